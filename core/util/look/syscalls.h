/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * syscalls - what code in a cell may ask of the host's kernel. This file is the whole policy;
 * seccomp_gen.c turns it into two BPF programs at build time.
 *
 * Everything not named here fails with EPERM. ALLOW lets a call pass with any arguments; WHEN
 * passes it only for the arguments named; ABSENT fails with ENOSYS, because programs probe for the
 * call and fall back on that answer alone; REFUSE is looked at in the second program and takes
 * single arguments away again from a call that ALLOW passed.
 *
 * WHEN(call, reason, n conditions: ARG(index, mask, value))   (argument & mask) == value
 */

/* clang-format off */

/* ---- plain: own memory, own threads, own files; the kernel checks ids and paths as for any user ---- */
#define SYSCALLS_PLAIN(ALLOW) \
    ALLOW(accept) ALLOW(accept4) ALLOW(access) ALLOW(alarm) ALLOW(arch_prctl) ALLOW(bind) ALLOW(brk) \
    ALLOW(capget) ALLOW(capset) ALLOW(chdir) ALLOW(chmod) ALLOW(chown) ALLOW(clock_getres) ALLOW(clock_gettime) \
    ALLOW(clock_nanosleep) ALLOW(close) ALLOW(close_range) ALLOW(connect) ALLOW(copy_file_range) ALLOW(creat) \
    ALLOW(dup) ALLOW(dup2) ALLOW(dup3) ALLOW(epoll_create) ALLOW(epoll_create1) ALLOW(epoll_ctl) \
    ALLOW(epoll_pwait) ALLOW(epoll_pwait2) ALLOW(epoll_wait) ALLOW(eventfd) ALLOW(eventfd2) ALLOW(execve) \
    ALLOW(execveat) ALLOW(exit) ALLOW(exit_group) ALLOW(faccessat) ALLOW(faccessat2) ALLOW(fadvise64) \
    ALLOW(fallocate) ALLOW(fchdir) ALLOW(fchmod) ALLOW(fchmodat) ALLOW(fchown) ALLOW(fchownat) ALLOW(fcntl) \
    ALLOW(fdatasync) ALLOW(fgetxattr) ALLOW(flistxattr) ALLOW(flock) ALLOW(fork) ALLOW(fremovexattr) \
    ALLOW(fsetxattr) ALLOW(fstat) ALLOW(fstatfs) ALLOW(fsync) ALLOW(ftruncate) ALLOW(futex) ALLOW(futex_waitv) \
    ALLOW(futimesat) ALLOW(get_robust_list) ALLOW(get_thread_area) ALLOW(getcpu) ALLOW(getcwd) ALLOW(getdents) \
    ALLOW(getdents64) ALLOW(getegid) ALLOW(geteuid) ALLOW(getgid) ALLOW(getgroups) ALLOW(getitimer) \
    ALLOW(getpeername) ALLOW(getpgid) ALLOW(getpgrp) ALLOW(getpid) ALLOW(getppid) ALLOW(getpriority) \
    ALLOW(getrandom) ALLOW(getresgid) ALLOW(getresuid) ALLOW(getrlimit) ALLOW(getrusage) ALLOW(getsid) \
    ALLOW(getsockname) ALLOW(getsockopt) ALLOW(gettid) ALLOW(gettimeofday) ALLOW(getuid) ALLOW(getxattr) \
    ALLOW(inotify_add_watch) ALLOW(inotify_init) ALLOW(inotify_init1) ALLOW(inotify_rm_watch) ALLOW(io_cancel) \
    ALLOW(io_destroy) ALLOW(io_getevents) ALLOW(io_pgetevents) ALLOW(io_setup) ALLOW(io_submit) ALLOW(ioprio_get) \
    ALLOW(ioprio_set) ALLOW(kill) ALLOW(landlock_add_rule) ALLOW(landlock_create_ruleset) \
    ALLOW(landlock_restrict_self) ALLOW(lchown) ALLOW(lgetxattr) ALLOW(link) ALLOW(linkat) ALLOW(listen) \
    ALLOW(listxattr) ALLOW(llistxattr) ALLOW(lremovexattr) ALLOW(lseek) ALLOW(lsetxattr) ALLOW(lstat) \
    ALLOW(madvise) ALLOW(membarrier) ALLOW(memfd_create) ALLOW(mincore) ALLOW(mkdir) ALLOW(mkdirat) ALLOW(mknod) \
    ALLOW(mknodat) ALLOW(mlock) ALLOW(mlock2) ALLOW(mlockall) ALLOW(mmap) ALLOW(mprotect) ALLOW(mq_getsetattr) \
    ALLOW(mq_notify) ALLOW(mq_open) ALLOW(mq_timedreceive) ALLOW(mq_timedsend) ALLOW(mq_unlink) ALLOW(mremap) \
    ALLOW(msgctl) ALLOW(msgget) ALLOW(msgrcv) ALLOW(msgsnd) ALLOW(msync) ALLOW(munlock) ALLOW(munlockall) \
    ALLOW(munmap) ALLOW(nanosleep) ALLOW(newfstatat) ALLOW(open) ALLOW(openat) ALLOW(openat2) ALLOW(pause) \
    ALLOW(pidfd_open) ALLOW(pidfd_send_signal) ALLOW(pipe) ALLOW(pipe2) ALLOW(pkey_alloc) ALLOW(pkey_free) \
    ALLOW(pkey_mprotect) ALLOW(poll) ALLOW(ppoll) ALLOW(prctl) ALLOW(pread64) ALLOW(preadv) ALLOW(preadv2) \
    ALLOW(prlimit64) ALLOW(process_madvise) ALLOW(process_mrelease) ALLOW(pselect6) ALLOW(pwrite64) ALLOW(pwritev) \
    ALLOW(pwritev2) ALLOW(read) ALLOW(readahead) ALLOW(readlink) ALLOW(readlinkat) ALLOW(readv) ALLOW(recvfrom) \
    ALLOW(recvmmsg) ALLOW(recvmsg) ALLOW(remap_file_pages) ALLOW(removexattr) ALLOW(rename) ALLOW(renameat) \
    ALLOW(renameat2) ALLOW(restart_syscall) ALLOW(rmdir) ALLOW(rseq) ALLOW(rt_sigaction) ALLOW(rt_sigpending) \
    ALLOW(rt_sigprocmask) ALLOW(rt_sigqueueinfo) ALLOW(rt_sigreturn) ALLOW(rt_sigsuspend) ALLOW(rt_sigtimedwait) \
    ALLOW(rt_tgsigqueueinfo) ALLOW(sched_get_priority_max) ALLOW(sched_get_priority_min) ALLOW(sched_getaffinity) \
    ALLOW(sched_getattr) ALLOW(sched_getparam) ALLOW(sched_getscheduler) ALLOW(sched_rr_get_interval) \
    ALLOW(sched_setaffinity) ALLOW(sched_setattr) ALLOW(sched_setparam) ALLOW(sched_setscheduler) \
    ALLOW(sched_yield) ALLOW(seccomp) ALLOW(select) ALLOW(semctl) ALLOW(semget) ALLOW(semop) ALLOW(semtimedop) \
    ALLOW(sendfile) ALLOW(sendmmsg) ALLOW(sendmsg) ALLOW(sendto) ALLOW(set_robust_list) ALLOW(set_thread_area) \
    ALLOW(set_tid_address) ALLOW(setfsgid) ALLOW(setfsuid) ALLOW(setgid) ALLOW(setgroups) ALLOW(setitimer) \
    ALLOW(setpgid) ALLOW(setpriority) ALLOW(setregid) ALLOW(setresgid) ALLOW(setresuid) ALLOW(setreuid) \
    ALLOW(setrlimit) ALLOW(setsid) ALLOW(setsockopt) ALLOW(setuid) ALLOW(setxattr) ALLOW(shmat) ALLOW(shmctl) \
    ALLOW(shmdt) ALLOW(shmget) ALLOW(shutdown) ALLOW(sigaltstack) ALLOW(signalfd) ALLOW(signalfd4) ALLOW(splice) \
    ALLOW(stat) ALLOW(statfs) ALLOW(statx) ALLOW(symlink) ALLOW(symlinkat) ALLOW(sync) ALLOW(sync_file_range) \
    ALLOW(syncfs) ALLOW(sysinfo) ALLOW(tee) ALLOW(tgkill) ALLOW(time) ALLOW(timer_create) ALLOW(timer_delete) \
    ALLOW(timer_getoverrun) ALLOW(timer_gettime) ALLOW(timer_settime) ALLOW(timerfd_create) \
    ALLOW(timerfd_gettime) ALLOW(timerfd_settime) ALLOW(times) ALLOW(tkill) ALLOW(truncate) ALLOW(umask) \
    ALLOW(uname) ALLOW(unlink) ALLOW(unlinkat) ALLOW(utime) ALLOW(utimensat) ALLOW(utimes) ALLOW(vfork) \
    ALLOW(vmsplice) ALLOW(wait4) ALLOW(waitid) ALLOW(write) ALLOW(writev)

/* ---- newer than the libseccomp of Debian 12, by number (same on every architecture since 424) ---- */
#define SYSCALLS_PLAIN_NUMBERS(ALLOW_NR) \
    ALLOW_NR(451, "cachestat: as mincore, of an open file") \
    ALLOW_NR(452, "fchmodat2: chmod by the newer libc") \
    ALLOW_NR(454, "futex_wake: as futex") \
    ALLOW_NR(455, "futex_wait: as futex") \
    ALLOW_NR(456, "futex_requeue: as futex") \
    ALLOW_NR(462, "mseal: only takes rights away from the caller's memory")

/* ---- exceptions: allowed although they look dangerous, or only with some arguments ---- */
#define SYSCALLS_EXCEPTIONS(ALLOW_WHY, WHEN) \
    ALLOW_WHY(ptrace, "debuggers and crash handlers; the cell's user namespace bounds the targets") \
    ALLOW_WHY(process_vm_readv, "the same check and power as ptrace, which is allowed") \
    ALLOW_WHY(process_vm_writev, "the same check and power as ptrace, which is allowed") \
    ALLOW_WHY(ioctl, "terminals and sockets need it; the second program takes the dangerous requests away") \
    WHEN(clone, "processes and threads, but no new namespace", 1, ARG(0, CLONE_NEW_ANY, 0)) \
    WHEN(unshare, "undoing the sharing of descriptors or cwd between threads; no new namespace", 1, ARG(0, UNSHARE_NEW_ANY, 0)) \
    WHEN(personality, "asking for the present one", 1, ARG(0, 0xffffffff, 0xffffffff)) \
    WHEN(personality, "going back to plain Linux", 1, ARG(0, 0xffffffff, 0)) \
    WHEN(socket, "local stream", 2, ARG(0, 0xffffffff, AF_UNIX), ARG(1, 0xf, SOCK_STREAM)) \
    WHEN(socket, "local datagram", 2, ARG(0, 0xffffffff, AF_UNIX), ARG(1, 0xf, SOCK_DGRAM)) \
    WHEN(socket, "local packet stream", 2, ARG(0, 0xffffffff, AF_UNIX), ARG(1, 0xf, SOCK_SEQPACKET)) \
    WHEN(socket, "TCP; policy is enforced outside", 3, ARG(0, 0xffffffff, AF_INET), ARG(1, 0xf, SOCK_STREAM), ARG(2, 0xffffffff, 0)) \
    WHEN(socket, "TCP, named", 3, ARG(0, 0xffffffff, AF_INET), ARG(1, 0xf, SOCK_STREAM), ARG(2, 0xffffffff, IPPROTO_TCP)) \
    WHEN(socket, "UDP; policy is enforced outside", 3, ARG(0, 0xffffffff, AF_INET), ARG(1, 0xf, SOCK_DGRAM), ARG(2, 0xffffffff, 0)) \
    WHEN(socket, "UDP, named", 3, ARG(0, 0xffffffff, AF_INET), ARG(1, 0xf, SOCK_DGRAM), ARG(2, 0xffffffff, IPPROTO_UDP)) \
    WHEN(socket, "TCP over IPv6", 3, ARG(0, 0xffffffff, AF_INET6), ARG(1, 0xf, SOCK_STREAM), ARG(2, 0xffffffff, 0)) \
    WHEN(socket, "TCP over IPv6, named", 3, ARG(0, 0xffffffff, AF_INET6), ARG(1, 0xf, SOCK_STREAM), ARG(2, 0xffffffff, IPPROTO_TCP)) \
    WHEN(socket, "UDP over IPv6", 3, ARG(0, 0xffffffff, AF_INET6), ARG(1, 0xf, SOCK_DGRAM), ARG(2, 0xffffffff, 0)) \
    WHEN(socket, "UDP over IPv6, named", 3, ARG(0, 0xffffffff, AF_INET6), ARG(1, 0xf, SOCK_DGRAM), ARG(2, 0xffffffff, IPPROTO_UDP)) \
    WHEN(socket, "interface and address lists for libc (getifaddrs)", 2, ARG(0, 0xffffffff, AF_NETLINK), ARG(2, 0xffffffff, NETLINK_ROUTE)) \
    WHEN(socketpair, "local pairs", 1, ARG(0, 0xffffffff, AF_UNIX))

/* ---- answered with ENOSYS ---- */
#define SYSCALLS_ABSENT(ABSENT) \
    ABSENT(435, "clone3: its flags lie in memory, where a filter cannot see them; libc falls back to clone") \
    ABSENT(447, "memfd_secret: memory the host cannot inspect; probed by libraries") \
    ABSENT(453, "map_shadow_stack: probed by libc") \
    ABSENT(457, "statmount: part of the mount API") \
    ABSENT(458, "listmount: part of the mount API") \
    ABSENT(459, "lsm_get_self_attr: probed") \
    ABSENT(460, "lsm_set_self_attr: probed") \
    ABSENT(461, "lsm_list_modules: probed") \
    ABSENT(463, "setxattrat: probed by libc, which has a fallback") \
    ABSENT(464, "getxattrat: as above") \
    ABSENT(465, "listxattrat: as above") \
    ABSENT(466, "removexattrat: as above") \
    ABSENT(467, "open_tree_attr: part of the mount API") \
    ABSENT(468, "file_getattr: probed") \
    ABSENT(469, "file_setattr: probed")

/* ---- numbers that no kernel has given out yet: programs of the future probe them and fall back on ENOSYS alone ---- */
#define SYSCALLS_FUTURE_FIRST 470
#define SYSCALLS_FUTURE_LAST 511 /* x32 begins above */

/* ---- taken away again from calls that are allowed ---- */
#define SYSCALLS_REFUSED(REFUSE) \
    REFUSE(ioctl, 1, 0x5412, "TIOCSTI: types into the terminal of another process") \
    REFUSE(ioctl, 1, 0x541C, "TIOCLINUX: the same through the console's selection buffer") \
    REFUSE(ioctl, 1, 0x5423, "TIOCSETD: loads line disciplines, rarely tested kernel code")

/* Left out on purpose, so EPERM: io_uring_* (its own call surface, unseen by this filter) · bpf · perf_event_open ·
   userfaultfd · keyctl add_key request_key (keys know no cell) · mount umount2 pivot_root chroot open_tree move_mount
   fsopen fsconfig fsmount fspick mount_setattr · setns · kexec_* init_module finit_module delete_module · quotactl acct
   swapon swapoff reboot syslog · open_by_handle_at name_to_handle_at (files outside the root) · fanotify_* ·
   lookup_dcookie · pidfd_getfd kcmp · iopl ioperm modify_ldt · mbind set_mempolicy migrate_pages move_pages ·
   settimeofday clock_settime clock_adjtime adjtimex · sethostname setdomainname vhangup · uselib ustat sysfs _sysctl */

/* clang-format on */
