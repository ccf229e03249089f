/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * cella-unpack - the process in which archives are parsed. Started by unpack_spawn() with the
 * archive as descriptor 3, the target directory as 4 and the result pipe as 5; arguments: the four
 * limits.
 *
 * Should: change its root to the target, leave the network, keep only the capabilities that writing
 * a tree with owners takes, install an allow-list of system calls, and only then look at the first
 * byte. Mustn't: see any path of the host, start a program, live longer than its CPU limit.
 */
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include <seccomp.h>
#include <sys/capability.h>

#include "image_int.h"

#ifdef __SANITIZE_ADDRESS__ /* gcc */
#define SANITIZED
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) /* clang */
#define SANITIZED
#endif
#endif

#define CPU_SECONDS 900
#define MEMORY_MAX (2ull << 30) /* xz may ask for a large dictionary */

static const cap_value_t kept[] = {CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_FSETID};

static int caps_reduce(void)
{
    cap_t caps = cap_init();
    int r = caps ? 0 : -1;

    if (r == 0)
        r = cap_set_flag(caps, CAP_PERMITTED, ARRAY_LEN(kept), kept, CAP_SET);
    if (r == 0)
        r = cap_set_flag(caps, CAP_EFFECTIVE, ARRAY_LEN(kept), kept, CAP_SET);
    if (r == 0)
        r = cap_set_proc(caps);
    cap_free(caps);
    return r;
}

static int limits_set(void)
{
    const struct rlimit cpu = {CPU_SECONDS, CPU_SECONDS}, memory = {MEMORY_MAX, MEMORY_MAX},
                        none = {0, 0};

    if (setrlimit(RLIMIT_CPU, &cpu) < 0 || setrlimit(RLIMIT_CORE, &none) < 0)
        return -1;
#ifdef SANITIZED /* its shadow is larger than any limit */
    (void)memory;
    return 0;
#else
    return setrlimit(RLIMIT_AS, &memory);
#endif
}

static int filter_load(void)
{
    static const int allowed[] = {
        SCMP_SYS(read),          SCMP_SYS(write),        SCMP_SYS(lseek),
        SCMP_SYS(close),         SCMP_SYS(openat2),      SCMP_SYS(mkdirat),
        SCMP_SYS(symlinkat),     SCMP_SYS(linkat),       SCMP_SYS(unlinkat),
        SCMP_SYS(openat),        SCMP_SYS(fchown),       SCMP_SYS(fchownat),
        SCMP_SYS(fchmod),        SCMP_SYS(fchmodat),     SCMP_SYS(utimensat),
        SCMP_SYS(fstat),         SCMP_SYS(newfstatat),   SCMP_SYS(ftruncate),
        SCMP_SYS(pwrite64),      SCMP_SYS(getdents64),   SCMP_SYS(brk),
        SCMP_SYS(mmap),          SCMP_SYS(munmap),       SCMP_SYS(mremap),
        SCMP_SYS(mprotect),      SCMP_SYS(madvise),      SCMP_SYS(futex),
        SCMP_SYS(getrandom),     SCMP_SYS(gettimeofday), SCMP_SYS(fcntl),
        SCMP_SYS(clock_gettime), SCMP_SYS(getpid),       SCMP_SYS(exit),
        SCMP_SYS(exit_group),    SCMP_SYS(rt_sigreturn), SCMP_SYS(rt_sigprocmask),
        SCMP_SYS(rt_sigaction),  SCMP_SYS(dup),          SCMP_SYS(fstatfs),
        SCMP_SYS(renameat2),     SCMP_SYS(sigaltstack),  SCMP_SYS(gettid),
        SCMP_SYS(time),
    };
    scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ERRNO(EPERM));
    int r = ctx ? 0 : -1;
    size_t i;

    for (i = 0; r == 0 && i < ARRAY_LEN(allowed); i++)
        r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, allowed[i], 0);
    if (r == 0)
        r = seccomp_load(ctx);
    seccomp_release(ctx);
    return r;
}

static int jail(void)
{
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
        limits_set() < 0 || unshare(CLONE_NEWNET | CLONE_NEWIPC) < 0)
        return -errno;
    if (fchdir(UNPACK_FD_ROOT) < 0 || chroot(".") < 0 || caps_reduce() < 0)
        return -errno;
    return filter_load() < 0 ? -EIO : 0;
}

int main(int argc, char **argv)
{
    struct unpack_result res = {0};
    struct cella_error err = {.hdr = CELLA_HDR_INIT(struct cella_error, CELLA_KIND_ERROR),
                              .msg = res.message,
                              .msg_cap = sizeof(res.message)};
    struct unpack_limits l;
    uint64_t *const into[] = {&l.entries, &l.bytes, &l.ratio, &l.ratio_from};
    int i;

    if (argc != 5)
        return 2;
    for (i = 0; i < 4; i++)
        *into[i] = strtoull(argv[i + 1], NULL, 10);
    res.code = jail();
    if (res.code < 0)
        fail(&err, res.code, "cella-unpack could not confine itself: %s", strerror(-res.code));
    else
        res.code = unpack_tar(UNPACK_FD_ARCHIVE, UNPACK_FD_ROOT, &l, res.sha256, &err);
    return write_all(UNPACK_FD_RESULT, &res, sizeof(res)) < 0;
}
