/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* Users, groups, capabilities, prctl, scheduling, names: what is allowed to whom. */
#include <asm/prctl.h>
#include <grp.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <sys/wait.h>

#include "say.h"

static void show(const char *name)
{
    unsigned r, e, s, gr, ge, gs;

    syscall(SYS_getresuid, &r, &e, &s);
    syscall(SYS_getresgid, &gr, &ge, &gs);
    printf("%s: uid %u %u %u gid %u %u %u\n", name, r, e, s, gr, ge, gs);
}

static uint64_t caps(int which)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2];

    if (syscall(SYS_capget, &head, data))
        return 0;
    if (which == 0)
        return data[0].effective | (uint64_t)data[1].effective << 32;
    return which == 1 ? data[0].permitted | (uint64_t)data[1].permitted << 32
                      : data[0].inheritable | (uint64_t)data[1].inheritable << 32;
}

static void show_caps(const char *name)
{
    printf("%s: effective %d permitted %d inheritable %d\n", name, caps(0) != 0, caps(1) != 0,
           caps(2) != 0);
}

static void users(void)
{
    gid_t groups[3] = {30, 10, 20};

    say("setgroups", setgroups(3, groups));
    say("getgroups", getgroups(0, NULL));
    say("getgroups small", getgroups(1, groups));
    say("getgroups", getgroups(3, groups));
    printf("groups %u %u %u\n", groups[0], groups[1], groups[2]);
    say("setresgid", syscall(SYS_setresgid, 100, 200, 300));
    say("setfsuid", setfsuid(55));
    say("setfsuid", setfsuid(-1));
    say("setfsuid", setfsuid(0));
    say("setresuid", syscall(SYS_setresuid, 1000, 0, 2000));
    show("now");
    say("seteuid", syscall(SYS_setresuid, -1, 2000, -1));
    show("now");
    show_caps("as 2000");
    say("setuid back", syscall(SYS_setuid, 0));
    say("setreuid", syscall(SYS_setreuid, 2000, 1000));
    show("now");
    say("setgroups", syscall(SYS_setgroups, 0, NULL));
    say("setgid", syscall(SYS_setgid, 0));
    say("setregid", syscall(SYS_setregid, 300, 100));
    show("now");
    say("setuid -1", syscall(SYS_setuid, -1));
    say("nice up", setpriority(PRIO_PROCESS, 0, -5));
    say("nice down", setpriority(PRIO_PROCESS, 0, 5));
    errno = 0;
    say("nice", syscall(SYS_getpriority, PRIO_PROCESS, 0));
    say("sethostname", syscall(SYS_sethostname, "x", 1));
    say("raise a limit", setrlimit(RLIMIT_CORE, &(struct rlimit){.rlim_max = RLIM_INFINITY}));
    say("reboot", syscall(SYS_reboot, 1, 2, 3, 4));
}

static void keep(void)
{
    say("KEEPCAPS", prctl(PR_SET_KEEPCAPS, 1));
    say("setuid", syscall(SYS_setresuid, 1000, 1000, 1000));
    show_caps("kept");
    say("KEEPCAPS", prctl(PR_GET_KEEPCAPS));
}

static void drop(void)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {{0}};

    say("capset", syscall(SYS_capset, &head, data));
    show_caps("dropped");
    data[0].permitted = 1;
    say("capset back", syscall(SYS_capset, &head, data));
    head.version = 7;
    say("capget version", syscall(SYS_capget, &head, data));
    say_value("version", head.version == _LINUX_CAPABILITY_VERSION_3);
    say("CAPBSET_DROP", prctl(PR_CAPBSET_DROP, 1));
    say("setuid", syscall(SYS_setuid, 1000));
}

static void prctls(void)
{
    char name[17] = "";

    say("NAME", prctl(PR_SET_NAME, "a name that is too long"));
    prctl(PR_GET_NAME, name);
    printf("name %s\n", name);
    say("DUMPABLE", prctl(PR_GET_DUMPABLE));
    say("DUMPABLE 3", prctl(PR_SET_DUMPABLE, 3));
    say("NO_NEW_PRIVS", prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
    say("NO_NEW_PRIVS 2", prctl(PR_SET_NO_NEW_PRIVS, 2, 0, 0, 0));
    say("NO_NEW_PRIVS 1", prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    say("NO_NEW_PRIVS", prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
    say("PDEATHSIG 65", prctl(PR_SET_PDEATHSIG, 65));
    say("SUBREAPER", prctl(PR_SET_CHILD_SUBREAPER, 1));
    say("CAPBSET_READ", prctl(PR_CAPBSET_READ, 0));
    say("CAPBSET_READ 99", prctl(PR_CAPBSET_READ, 99));
    say("AMBIENT", prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, 0, 0, 0));
    say("AMBIENT raise", prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, 0, 0, 0));
    say("SECUREBITS", prctl(PR_GET_SECUREBITS));
    say("TIMERSLACK", prctl(PR_GET_TIMERSLACK));
    say("99999", prctl(99999));
    say("arch_prctl", syscall(SYS_arch_prctl, 0x9999, 0));
    say("arch_prctl high", syscall(SYS_arch_prctl, ARCH_SET_GS, 0x8000000000000000ul));
    say("personality", syscall(SYS_personality, 0xffffffff));
}

static void scheduling(void)
{
    struct sched_param param = {0};
    cpu_set_t set;

    say("yield", sched_yield());
    say("scheduler", syscall(SYS_sched_getscheduler, 0));
    say("scheduler of nobody", syscall(SYS_sched_getscheduler, 99999));
    say("param", syscall(SYS_sched_getparam, 0, &param));
    say_value("priority", param.sched_priority);
    param.sched_priority = 200;
    say("priority 200", syscall(SYS_sched_setscheduler, 0, SCHED_FIFO, &param));
    param.sched_priority = 1;
    say("other with priority", syscall(SYS_sched_setscheduler, 0, SCHED_OTHER, &param));
    say("max", sched_get_priority_max(SCHED_FIFO));
    say("min", sched_get_priority_min(SCHED_RR));
    say("max of nothing", sched_get_priority_max(77));
    say_ok("affinity", syscall(SYS_sched_getaffinity, 0, sizeof(set), &set));
    say("affinity small", syscall(SYS_sched_getaffinity, 0, 1, &set));
    CPU_ZERO(&set);
    say("affinity of none", syscall(SYS_sched_setaffinity, 0, sizeof(set), &set));
    say("nice of nobody", syscall(SYS_getpriority, PRIO_PROCESS, 99999));
    say("nice of what", syscall(SYS_getpriority, 9, 0));
}

static void names(void)
{
    struct utsname name;
    struct sysinfo info;
    char bytes[300];

    say("uname", uname(&name));
    printf("%s %s\n", name.sysname, name.machine);
    say("uname pointer", syscall(SYS_uname, BAD));
    say("sysinfo", sysinfo(&info));
    say_value("unit", info.mem_unit);
    say("getrandom", syscall(SYS_getrandom, bytes, sizeof(bytes), 0));
    say("getrandom flags", syscall(SYS_getrandom, bytes, 1, 99));
    say("getrandom pointer", syscall(SYS_getrandom, BAD, 1, 0));
    say("hostname long", syscall(SYS_sethostname, bytes, 65));
    say_ok("getcpu", syscall(SYS_getcpu, NULL, NULL, NULL));
}

static void in_child(void (*function)(void))
{
    pid_t pid = fork();

    if (!pid) {
        function();
        _exit(0);
    }
    waitpid(pid, NULL, 0);
}

int main(void)
{
    setvbuf(stdout, NULL, _IONBF, 0);
    in_child(users);
    in_child(keep);
    in_child(drop);
    in_child(prctls);
    in_child(scheduling);
    in_child(names);
    return 0;
}
