/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * seccomp_annotations - runs at build time: reads the annotations in a program's sources and prints one BPF program for
 * each kind of thread as a C array, filter_THREAD.
 *
 *   seccomp-annotations THREAD … -- SOURCE …
 *
 *   @seccomp THREAD …: CALL …
 *   CALL is a system call's name; ioctl(REQUEST) or prctl(REQUEST) for that request alone; NAME!ENOSYS for one that is
 *   answered so, because the C library then asks by another; or NAME(CONDITION,…), all of which must hold:
 *   ARGUMENT=VALUE or ARGUMENT&MASK=VALUE, of the low 32 bits. VALUE, MASK: numbers and constants of the table
 *   below, joined by "|". The same name may come several times. mmap and mprotect without a
 *   condition are never allowed with PROT_EXEC, whatever is written.
 *
 * An annotation ends with its line. A name that is unknown here fails the build. Everything else is answered
 * with SIGSYS: its handler names the call and ends the program; without one it ends all the same.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <linux/futex.h>
#include <linux/io_uring.h>
#include <linux/kvm.h>
#include <linux/memfd.h>
#include <sched.h>
#include <seccomp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define CALLS_MAX 512
#define THREADS_MAX 4
#define CONDITIONS_MAX 6

struct insn {
    uint16_t code;
    uint8_t jt, jf;
    uint32_t k;
};

struct thread {
    const char *name;
    scmp_filter_ctx ctx;
    int seen[CALLS_MAX], n, rules;
};

static struct thread threads[THREADS_MAX];
static size_t n_threads;

/* What the C library's pthread_create asks of clone. */
#define PTHREAD_CREATE_FLAGS                                                                       \
    (CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM |            \
     CLONE_SETTLS | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID)

/* clang-format off */
#define R(name) {#name, (unsigned long)(name)}
static const struct {
    const char *name;
    unsigned long value;
} constants[] = {
    R(KVM_RUN), R(KVM_IRQ_LINE), R(KVM_KVMCLOCK_CTRL), R(KVM_GET_TSC_KHZ), R(KVM_SET_TSC_KHZ),
    R(KVM_GET_PIT2), R(KVM_SET_PIT2), R(KVM_GET_CLOCK), R(KVM_SET_CLOCK), R(KVM_GET_IRQCHIP), R(KVM_SET_IRQCHIP),
    R(KVM_GET_MP_STATE), R(KVM_SET_MP_STATE), R(KVM_GET_REGS), R(KVM_SET_REGS), R(KVM_GET_SREGS), R(KVM_SET_SREGS),
    R(KVM_GET_XCRS), R(KVM_SET_XCRS), R(KVM_GET_XSAVE), R(KVM_SET_XSAVE), R(KVM_GET_DEBUGREGS), R(KVM_SET_DEBUGREGS),
    R(KVM_GET_LAPIC), R(KVM_SET_LAPIC), R(KVM_GET_VCPU_EVENTS), R(KVM_SET_VCPU_EVENTS), R(KVM_GET_MSRS), R(KVM_SET_MSRS),
    R(KVM_SET_CPUID2), R(TUNSETOFFLOAD), R(TUNSETVNETHDRSZ), R(FIONREAD), R(IORING_REGISTER_FILES_UPDATE),
    R(O_RDONLY), R(O_PATH), R(O_DIRECTORY), R(O_NOFOLLOW), R(O_NOCTTY), R(O_NONBLOCK), R(O_CLOEXEC), R(AT_EMPTY_PATH),
    R(F_GETFD), R(F_SETFD), R(F_GETFL), R(F_SETFL), R(F_DUPFD_CLOEXEC), R(F_ADD_SEALS), R(F_GET_SEALS),
    R(MFD_CLOEXEC), R(MFD_ALLOW_SEALING), R(PROT_READ), R(PROT_WRITE), R(PROT_EXEC), R(PROT_NONE),
    R(MAP_SHARED), R(MAP_PRIVATE), R(MAP_FIXED), R(MAP_ANONYMOUS), R(MAP_NORESERVE), R(MAP_STACK), R(MAP_FIXED_NOREPLACE), R(MADV_DONTDUMP),
    R(MADV_DONTNEED), R(MADV_REMOVE), R(MADV_DONTFORK), R(MADV_FREE), R(MADV_HUGEPAGE), R(MADV_NOHUGEPAGE),
    R(FALLOC_FL_PUNCH_HOLE), R(FALLOC_FL_KEEP_SIZE),
    R(FUTEX_WAIT), R(FUTEX_WAKE), R(FUTEX_WAIT_BITSET), R(FUTEX_WAKE_BITSET), R(FUTEX_PRIVATE_FLAG), R(FUTEX_CLOCK_REALTIME),
    R(PTHREAD_CREATE_FLAGS), R(CLONE_VM), R(CLONE_FS), R(CLONE_FILES), R(CLONE_SIGHAND), R(CLONE_THREAD), R(CLONE_SYSVSEM), R(CLONE_SETTLS),
    R(CLONE_PARENT_SETTID), R(CLONE_CHILD_CLEARTID), R(CLONE_CHILD_SETTID), R(CLONE_PTRACE), R(CLONE_PARENT), R(CLONE_VFORK), R(SIGCHLD),
    R(PR_SET_NAME), R(PR_SET_PDEATHSIG), R(PR_SET_DUMPABLE), R(PR_SET_NO_NEW_PRIVS), R(PR_SET_SECCOMP), R(PR_SET_VMA),
    R(PTRACE_TRACEME), R(PTRACE_SEIZE), R(PTRACE_ATTACH), R(PTRACE_DETACH), R(PTRACE_INTERRUPT), R(PTRACE_LISTEN), R(PTRACE_CONT), R(PTRACE_KILL),
    R(PTRACE_SYSCALL), R(PTRACE_SYSEMU), R(PTRACE_SYSEMU_SINGLESTEP), R(PTRACE_SINGLESTEP), R(PTRACE_GETREGS), R(PTRACE_SETREGS),
    R(PTRACE_GETREGSET), R(PTRACE_SETREGSET), R(PTRACE_GETSIGINFO), R(PTRACE_SETSIGINFO), R(PTRACE_GETEVENTMSG),
    R(PTRACE_SETOPTIONS), R(PTRACE_GETFPREGS), R(PTRACE_SETFPREGS), R(PTRACE_PEEKUSER), R(PTRACE_POKEUSER),
    R(PTRACE_GETSIGMASK), R(PTRACE_SETSIGMASK), R(PTRACE_PEEKDATA), R(PTRACE_POKEDATA), R(PTRACE_GET_SYSCALL_INFO),
    R(SIGKILL), R(SIGSTOP), R(SIGURG), R(SIGUSR1), R(SIGUSR2), R(SIGCONT), R(SIGURG),
    R(MSG_DONTWAIT), R(MSG_NOSIGNAL), R(MSG_TRUNC), R(MSG_CMSG_CLOEXEC), R(WNOHANG), R(__WALL), R(__WCLONE), R(__WNOTHREAD),
};
/* clang-format on */

static void check(int r, const char *what)
{
    if (r >= 0)
        return;
    fprintf(stderr, "seccomp-annotations: %s: error %d\n", what, -r);
    exit(1);
}

static uint32_t constant(const char *name, size_t length)
{
    char *end;
    unsigned long v = strtoul(name, &end, 0);
    size_t i;

    if (end == name + length)
        return (uint32_t)v;
    for (i = 0; i < sizeof(constants) / sizeof(constants[0]); i++)
        if (strlen(constants[i].name) == length && !memcmp(constants[i].name, name, length))
            return (uint32_t)constants[i].value;
    check(-ENOENT, name);
    return 0;
}

static uint32_t value(const char *text, const char *end)
{
    uint32_t v = 0;

    while (text < end) {
        const char *bar = memchr(text, '|', (size_t)(end - text));
        const char *stop = bar ? bar : end;
        v |= constant(text, (size_t)(stop - text));
        text = stop + 1;
    }
    return v;
}

/* "2=A|B" or "2&A=B"; or "REQUEST", which is argument `request` of the call, -1: of none. */
static struct scmp_arg_cmp condition(const char *text, const char *end, int request)
{
    const char *equals = memchr(text, '=', (size_t)(end - text));
    const char *mask = equals ? memchr(text, '&', (size_t)(equals - text)) : NULL;

    if (!equals && request >= 0)
        return SCMP_CMP64((unsigned)request, SCMP_CMP_MASKED_EQ, 0xffffffffu, value(text, end));
    check(equals && text[0] >= '0' && text[0] <= '5' ? 0 : -EINVAL, text);
    return SCMP_CMP64((unsigned)(text[0] - '0'), SCMP_CMP_MASKED_EQ,
                      mask ? value(mask + 1, equals) : 0xffffffffu, value(equals + 1, end));
}

static int conditions(char *text, int request, struct scmp_arg_cmp out[CONDITIONS_MAX])
{
    int n = 0;
    char *end = strchr(text, ')');

    check(end ? 0 : -EINVAL, text);
    while (text < end) {
        char *comma = memchr(text, ',', (size_t)(end - text));
        check(n < CONDITIONS_MAX ? 0 : -E2BIG, text);
        out[n++] = condition(text, comma ? comma : end, request);
        text = comma ? comma + 1 : end;
    }
    return n;
}

static void allow(struct thread *t, char *call)
{
    struct scmp_arg_cmp args[CONDITIONS_MAX];
    char *arg = strchr(call, '('), *absent = strstr(call, "!ENOSYS");
    int nr, n = 0, r;

    if (absent) {
        *absent = 0;
        check(
            seccomp_rule_add(t->ctx, SCMP_ACT_ERRNO(ENOSYS), seccomp_syscall_resolve_name(call), 0),
            call);
        return;
    }
    if (arg) {
        *arg++ = 0;
        n = conditions(arg, !strcmp(call, "ioctl") ? 1 : !strcmp(call, "prctl") ? 0 : -1, args);
    }
    nr = seccomp_syscall_resolve_name(call);
    check(nr < 0 || nr >= CALLS_MAX || (nr == SCMP_SYS(ioctl) && !n) ? -ENOSYS : 0, call);
    if (!n && (nr == SCMP_SYS(mmap) || nr == SCMP_SYS(mprotect)))
        args[n++] = SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0);
    r = seccomp_rule_add_array(t->ctx, SCMP_ACT_ALLOW, nr, (unsigned)n, args);
    check(r == -EEXIST ? 0 : r, call);
    t->rules += r == 0;
    t->n += !t->seen[nr];
    t->seen[nr] = 1;
}

static void annotation(char *text, const char *file)
{
    char *calls = strchr(text, ':'), *word, *save;
    int wanted[THREADS_MAX] = {0};
    size_t i;
    int any = 0, other = 0;

    check(calls ? 0 : -EINVAL, file);
    *calls++ = 0;
    for (word = strtok_r(text, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
        for (i = 0; i < n_threads && strcmp(threads[i].name, word); i++)
            ;
        other |= i == n_threads;
        if (i < n_threads)
            any = wanted[i] = 1;
    }
    check(any && !other ? 0 : -EINVAL, file);
    for (word = strtok_r(calls, " \n", &save); word; word = strtok_r(NULL, " \n", &save)) {
        char copy[256];
        if (!strcmp(word, "*/"))
            return;
        for (i = 0; i < n_threads; i++) {
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
    printf("/* %d system calls, %d rules */\n", t->n, t->rules);
    printf("#define FILTER_%s_CALLS %d\n", t->name, t->n);
    printf("static const struct sock_filter filter_%s[] = {\n", t->name);
    while (read(fd, &insn, sizeof(insn)) == (ssize_t)sizeof(insn)) {
        printf("    {0x%04x, %u, %u, 0x%08xu},\n", insn.code, insn.jt, insn.jf, insn.k);
        n++;
    }
    printf("};\n\n");
    check(n && n <= 4096 ? 0 : -E2BIG, "program length");
    close(fd);
}

static void thread_add(const char *name)
{
    struct thread *t = &threads[n_threads];

    check(n_threads < THREADS_MAX ? 0 : -E2BIG, name);
    t->name = name;
    t->ctx = seccomp_init(SCMP_ACT_TRAP);
    check(t->ctx ? 0 : -ENOMEM, "seccomp_init");
    check(seccomp_attr_set(t->ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS), "bad arch");
    check(seccomp_attr_set(t->ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2), "binary tree");
    n_threads++;
}

int main(int argc, char **argv)
{
    size_t i;
    int k;

    for (k = 1; k < argc && strcmp(argv[k], "--"); k++)
        thread_add(argv[k]);
    check(k > 1 && k < argc ? 0 : -EINVAL, "usage: THREAD … -- SOURCE …");
    while (++k < argc)
        source(argv[k]);
    printf("/* Made by seccomp-annotations from the annotations in the sources. */\n\n");
    for (i = 0; i < n_threads; i++)
        print(&threads[i]);
    return 0;
}
