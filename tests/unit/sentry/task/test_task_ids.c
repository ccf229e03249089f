/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* Who a task is and may become: calls of one guest in a row, each with what it must give. */
#include <linux/capability.h>
#include <linux/securebits.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <asm/prctl.h>

#include "world.h"

#define AT (MEMORY + 0x600)
#define NONE (-1)

struct step {
    long number;
    int64_t a0, a1, a2, result;
    int32_t uid, euid, suid; /* after it; NONE: not looked at */
};

static const struct step *steps;
static unsigned n_steps;

static void walks(struct user_regs_struct *r)
{
    const struct step *before = &steps[r->r15 - 1], *now = &steps[r->r15];
    const struct cred *cred = current->cred;

    if (r->r15) {
        if ((int64_t)r->rax != before->result)
            print_error("step %lu\n", (unsigned long)r->r15 - 1);
        assert_int_equal(r->rax, before->result);
        if (before->uid != NONE) {
            assert_int_equal(cred->uid, before->uid);
            assert_int_equal(cred->euid, before->euid);
            assert_int_equal(cred->suid, before->suid);
            assert_int_equal(cred->fsuid, before->euid);
        }
    }
    if (r->r15++ == n_steps)
        quit(r, 0);
    else
        call3(r, now->number, (uint64_t)now->a0, (uint64_t)now->a1, (uint64_t)now->a2);
}

static void walk(const struct step *list, unsigned n)
{
    steps = list;
    n_steps = n;
    assert_int_equal(world_run(walks, NULL), 0);
}
#define WALK(list) walk(list, sizeof(list) / sizeof(list[0]))

static void users_change(void **state)
{
    static const struct step root[] = {
        {SYS_setresuid, 10, 0, 30, 0, 10, 0, 30},
        {SYS_setuid, 5, 0, 0, 0, 5, 5, 5},
        {SYS_setuid, 0, 0, 0, -EPERM, 5, 5, 5},
        {SYS_setreuid, 0, -1, 0, -EPERM, 5, 5, 5},
        {SYS_setresuid, -1, 0, -1, -EPERM, 5, 5, 5},
        {SYS_setuid, -1, 0, 0, -EINVAL, 5, 5, 5},
        {SYS_setgid, 7, 0, 0, -EPERM, NONE, 0, 0},
        {SYS_setgroups, 0, 0, 0, -EPERM, NONE, 0, 0},
        {SYS_setfsuid, 0, 0, 0, 5, 5, 5, 5},
        {SYS_sethostname, MEMORY, 1, 0, -EPERM, NONE, 0, 0},
    };
    static const struct step back[] = {
        {SYS_setreuid, 40, 50, 0, 0, 40, 50, 50},   {SYS_setreuid, 50, 40, 0, 0, 50, 40, 40},
        {SYS_setuid, 50, 0, 0, 0, 50, 50, 40},      {SYS_setresuid, -1, 40, 50, 0, 50, 40, 50},
        {SYS_setuid, 60, 0, 0, -EPERM, 50, 40, 50},
    };
    static const struct step groups[] = {
        {SYS_setresgid, 1, 2, 3, 0, NONE, 0, 0},   {SYS_getegid, 0, 0, 0, 2, NONE, 0, 0},
        {SYS_setuid, 9, 0, 0, 0, 9, 9, 9},         {SYS_setregid, 3, 1, 0, -EPERM, NONE, 0, 0},
        {SYS_setresgid, 3, 1, 2, 0, NONE, 0, 0},   {SYS_getgid, 0, 0, 0, 3, NONE, 0, 0},
        {SYS_setgid, 4, 0, 0, -EPERM, NONE, 0, 0}, {SYS_setgid, 2, 0, 0, 0, NONE, 0, 0},
        {SYS_setfsgid, 77, 0, 0, 2, NONE, 0, 0},   {SYS_setfsgid, -1, 0, 0, 2, NONE, 0, 0},
    };

    (void)state;
    WALK(root);
    WALK(back);
    WALK(groups);
}

static void capabilities_go(void **state)
{
    static const struct step kept[] = {
        {SYS_prctl, PR_SET_KEEPCAPS, 1, 0, 0, NONE, 0, 0},
        {SYS_setuid, 5, 0, 0, 0, 5, 5, 5},
        {SYS_setuid, 0, 0, 0, -EPERM, 5, 5, 5}, /* permitted, but not effective */
        {SYS_prctl, PR_CAPBSET_DROP, 1, 0, -EPERM, NONE, 0, 0},
    };
    static const struct step bounds[] = {
        {SYS_prctl, PR_CAPBSET_READ, CAP_KILL, 0, 1, NONE, 0, 0},
        {SYS_prctl, PR_CAPBSET_DROP, CAP_KILL, 0, 0, NONE, 0, 0},
        {SYS_prctl, PR_CAPBSET_READ, CAP_KILL, 0, 0, NONE, 0, 0},
        {SYS_prctl, PR_CAPBSET_READ, 63, 0, -EINVAL, NONE, 0, 0},
        {SYS_prctl, PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_CHOWN, -EPERM, NONE, 0, 0},
        {SYS_prctl, PR_SET_SECUREBITS, 1 << SECURE_NOROOT_LOCKED, 0, 0, NONE, 0, 0},
        {SYS_prctl, PR_SET_SECUREBITS, 0, 0, -EPERM, NONE, 0, 0},
        {SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, NONE, 0, 0},
        {SYS_prctl, PR_GET_NO_NEW_PRIVS, 0, 0, 1, NONE, 0, 0},
        {SYS_prctl, PR_SET_DUMPABLE, 2, 0, -EINVAL, NONE, 0, 0},
        {SYS_prctl, PR_SET_PDEATHSIG, 65, 0, -EINVAL, NONE, 0, 0},
    };

    (void)state;
    WALK(kept);
    WALK(bounds);
}

/* What was given up by capset is not taken back. */
static void drops(struct user_regs_struct *r)
{
    switch (r->r15++) {
    case 0:
        poke(AT, _LINUX_CAPABILITY_VERSION_3);
        poke(AT + 16, 0);
        poke(AT + 24, 0);
        poke(AT + 32, 0);
        call3(r, SYS_capset, AT, AT + 16, 0);
        return;
    case 1:
        assert_int_equal(r->rax, 0);
        poke(AT + 16, 1ull << 32); /* permitted */
        call3(r, SYS_capset, AT, AT + 16, 0);
        return;
    case 2:
        assert_int_equal(r->rax, -EPERM);
        poke(AT + 16, 0);
        poke(AT + 24, 1); /* inheritable, which is not permitted */
        call3(r, SYS_capset, AT, AT + 16, 0);
        return;
    case 3:
        assert_int_equal(r->rax, -EPERM);
        poke(AT, 7);
        call3(r, SYS_capget, AT, 0, 0);
        return;
    default:
        assert_int_equal(r->rax, 0); /* asked for our version */
        assert_int_equal(peek32(AT), _LINUX_CAPABILITY_VERSION_3);
        quit(r, 0);
    }
}

static void what_was_dropped_stays_so(void **state)
{
    (void)state;
    assert_int_equal(world_run(drops, NULL), 0);
}

/* Set-id programs: ids, capabilities, and what keeps them from it. */
static void execs(struct user_regs_struct *r)
{
    struct cred *cred;
    bool secure;

    kernel_lock();
    if (r->r15++ == 0) {
        assert_int_equal(cred_for_exec(0755, 0, 0, false, &cred, &secure), 0);
        assert_false(secure);
        assert_true(cred->cap_effective);
        cred_put(cred);
        kernel_unlock();
        call3(r, SYS_setuid, 5, 0, 0);
        return;
    }
    assert_int_equal(cred_for_exec(S_ISUID | 0755, 0, 0, false, &cred, &secure), 0);
    assert_true(secure);
    assert_int_equal(cred->uid, 5);
    assert_int_equal(cred->euid, 0);
    assert_int_equal(cred->suid, 0);
    assert_true(cred->cap_effective);
    cred_put(cred);
    assert_int_equal(cred_for_exec(S_ISUID | 0755, 0, 0, true, &cred, &secure), 0);
    assert_false(secure);
    assert_int_equal(cred->euid, 5);
    assert_int_equal(cred->cap_permitted, 0);
    cred_put(cred);
    current->cred->no_new_privs = 1;
    assert_int_equal(cred_for_exec(S_ISUID | S_ISGID | 0755, 0, 9, false, &cred, &secure), 0);
    assert_int_equal(cred->euid, 5);
    assert_int_equal(cred->egid, 0);
    cred_put(cred);
    kernel_unlock();
    quit(r, 0);
}

static void programs_give_their_owners_ids(void **state)
{
    (void)state;
    assert_int_equal(world_run(execs, NULL), 0);
}

static void limits_hold(void **state)
{
    static const struct step list[] = {
        {SYS_setuid, 5, 0, 0, 0, 5, 5, 5},
        {SYS_setpriority, PRIO_PROCESS, 0, -1, -EACCES, NONE, 0, 0},
        {SYS_setpriority, PRIO_PROCESS, 0, 5, 0, NONE, 0, 0},
        {SYS_setpriority, PRIO_PROCESS, 0, 4, -EACCES, NONE, 0, 0},
        {SYS_getpriority, PRIO_PROCESS, 0, 0, 15, NONE, 0, 0},
        {SYS_arch_prctl, ARCH_SET_FS, 1ll << 47, 0, -EPERM, NONE, 0, 0},
        {SYS_arch_prctl, ARCH_SET_GS, -1, 0, -EPERM, NONE, 0, 0},
        {SYS_ioprio_set, 1, 0, 1 << 13, -EPERM, NONE, 0, 0},
        {SYS_reboot, 0xfee1dead, 672274793, 0, -EPERM, NONE, 0, 0},
        {SYS_personality, 0xffffffff, 0, 0, 0, NONE, 0, 0},
        {SYS_personality, 0x77, 0, 0, -EINVAL, NONE, 0, 0},
    };

    (void)state;
    WALK(list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(users_change),
        cmocka_unit_test(capabilities_go),
        cmocka_unit_test(what_was_dropped_stays_so),
        cmocka_unit_test(programs_give_their_owners_ids),
        cmocka_unit_test(limits_hold),
    };

    return cmocka_run_group_tests(tests, world_begin, NULL);
}
