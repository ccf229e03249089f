/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * seccomp_gen - runs at build time: reads the annotations in the program's sources and prints one BPF program for
 * each kind of thread as a C array.
 *
 *   @seccomp THREAD …: CALL …        THREAD is vmm or vcpu
 *   CALL is a system call's name, or ioctl(REQUEST) for that request alone; mmap and mprotect are never
 *   allowed with PROT_EXEC, whatever is written.
 *
 * An annotation ends with its line. A name that is unknown here fails the build. Everything else is answered
 * with SIGSYS, whose handler names the call and ends the program. A request is compared as the 32 bits that the
 * kernel takes of it.
 */
#include <errno.h>
#include <linux/if_tun.h>
#include <linux/kvm.h>
#include <seccomp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#define CALLS_MAX 512

struct insn {
    uint16_t code;
    uint8_t jt, jf;
    uint32_t k;
};

struct thread {
    const char *name;
    scmp_filter_ctx ctx;
    int seen[CALLS_MAX], n, ioctl_seen;
    unsigned long requests[CALLS_MAX];
    int n_requests;
};

static struct thread threads[] = {{.name = "vmm"}, {.name = "vcpu"}};
#define N_THREADS (sizeof(threads) / sizeof(threads[0]))

/* clang-format off */
#define R(name) {#name, name}
static const struct {
    const char *name;
    unsigned long value;
} requests[] = {
    R(KVM_RUN), R(KVM_IRQ_LINE), R(KVM_KVMCLOCK_CTRL), R(KVM_GET_TSC_KHZ), R(KVM_SET_TSC_KHZ),
    R(KVM_GET_PIT2), R(KVM_SET_PIT2), R(KVM_GET_CLOCK), R(KVM_SET_CLOCK), R(KVM_GET_IRQCHIP), R(KVM_SET_IRQCHIP),
    R(KVM_GET_MP_STATE), R(KVM_SET_MP_STATE), R(KVM_GET_REGS), R(KVM_SET_REGS), R(KVM_GET_SREGS), R(KVM_SET_SREGS),
    R(KVM_GET_XCRS), R(KVM_SET_XCRS), R(KVM_GET_XSAVE), R(KVM_SET_XSAVE), R(KVM_GET_DEBUGREGS), R(KVM_SET_DEBUGREGS),
    R(KVM_GET_LAPIC), R(KVM_SET_LAPIC), R(KVM_GET_VCPU_EVENTS), R(KVM_SET_VCPU_EVENTS), R(KVM_GET_MSRS), R(KVM_SET_MSRS),
    R(KVM_SET_CPUID2), R(TUNSETOFFLOAD), R(TUNSETVNETHDRSZ), R(FIONREAD),
};
/* clang-format on */

static void check(int r, const char *what)
{
    if (r >= 0)
        return;
    fprintf(stderr, "seccomp_gen: %s: error %d\n", what, -r);
    exit(1);
}

static void allow_ioctl(struct thread *t, const char *name)
{
    size_t i;
    int k;

    for (i = 0; i < sizeof(requests) / sizeof(requests[0]); i++)
        if (!strcmp(requests[i].name, name))
            break;
    check(i < sizeof(requests) / sizeof(requests[0]) ? 0 : -ENOENT, name);
    for (k = 0; k < t->n_requests; k++)
        if (t->requests[k] == requests[i].value)
            return;
    t->requests[t->n_requests++] = requests[i].value;
    check(seccomp_rule_add(t->ctx, SCMP_ACT_ALLOW, SCMP_SYS(ioctl), 1,
                           SCMP_A1(SCMP_CMP_MASKED_EQ, 0xffffffff, requests[i].value & 0xffffffff)),
          name);
    t->n += !t->ioctl_seen;
    t->ioctl_seen = 1;
}

static void allow(struct thread *t, char *call)
{
    char *arg = strchr(call, '(');
    int nr;

    if (arg) {
        *arg++ = 0;
        arg[strcspn(arg, ")")] = 0;
        check(strcmp(call, "ioctl") ? -EINVAL : 0, call);
        allow_ioctl(t, arg);
        return;
    }
    nr = seccomp_syscall_resolve_name(call);
    check(nr < 0 || nr >= CALLS_MAX || nr == SCMP_SYS(ioctl) ? -ENOSYS : 0, call);
    if (t->seen[nr])
        return;
    t->seen[nr] = 1;
    t->n++;
    if (nr == SCMP_SYS(mmap) || nr == SCMP_SYS(mprotect))
        check(seccomp_rule_add(t->ctx, SCMP_ACT_ALLOW, nr, 1,
                               SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0)),
              call);
    else
        check(seccomp_rule_add(t->ctx, SCMP_ACT_ALLOW, nr, 0), call);
}

static void annotation(char *text, const char *file)
{
    char *calls = strchr(text, ':'), *word, *save;
    int wanted[N_THREADS] = {0};
    size_t i;

    check(calls ? 0 : -EINVAL, file);
    *calls++ = 0;
    for (word = strtok_r(text, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
        for (i = 0; i < N_THREADS && strcmp(threads[i].name, word); i++)
            ;
        check(i < N_THREADS ? 0 : -EINVAL, word);
        wanted[i] = 1;
    }
    for (word = strtok_r(calls, " \n", &save); word; word = strtok_r(NULL, " \n", &save)) {
        char copy[64];
        if (!strcmp(word, "*/"))
            return;
        for (i = 0; i < N_THREADS; i++) {
            snprintf(copy, sizeof(copy), "%s", word);
            if (wanted[i])
                allow(&threads[i], copy);
        }
    }
}

static void source(const char *path)
{
    char line[512], *at;
    FILE *f = fopen(path, "re");

    check(f ? 0 : -ENOENT, path);
    while (f && fgets(line, sizeof(line), f)) {
        at = strstr(line, "@seccomp ");
        if (at)
            annotation(at + strlen("@seccomp "), path);
    }
    if (f)
        fclose(f);
}

static void print(const struct thread *t)
{
    int fd = memfd_create("bpf", 0);
    struct insn insn;
    unsigned n = 0;

    check(fd < 0 ? -errno : 0, "memfd_create");
    check(seccomp_export_bpf(t->ctx, fd), "seccomp_export_bpf");
    lseek(fd, 0, SEEK_SET);
    printf("/* %d system calls, %d requests of ioctl */\n", t->n, t->n_requests);
    printf("static const struct sock_filter filter_%s[] = {\n", t->name);
    while (read(fd, &insn, sizeof(insn)) == (ssize_t)sizeof(insn)) {
        printf("    {0x%04x, %u, %u, 0x%08xu},\n", insn.code, insn.jt, insn.jf, insn.k);
        n++;
    }
    printf("};\n\n");
    check(n && n <= 4096 ? 0 : -E2BIG, "program length");
    close(fd);
}

int main(int argc, char **argv)
{
    size_t i;
    int k;

    for (i = 0; i < N_THREADS; i++) {
        threads[i].ctx = seccomp_init(SCMP_ACT_TRAP);
        check(threads[i].ctx ? 0 : -ENOMEM, "seccomp_init");
        check(seccomp_attr_set(threads[i].ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS),
              "bad arch");
        check(seccomp_attr_set(threads[i].ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2), "binary tree");
    }
    for (k = 1; k < argc; k++)
        source(argv[k]);
    printf("/* Made by seccomp_gen from the annotations in the sources. */\n\n");
    for (i = 0; i < N_THREADS; i++)
        print(&threads[i]);
    return 0;
}
