/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * host - which QEMU is here, and whether KVM runs guests: asked by running one. A hypervisor below may offer
 * /dev/kvm and even make a machine without a processor that can run it; so the processor's flags are asked for
 * too, and seven bytes of guest code are run to their end. Threads: one.
 */
#include <ctype.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#include "host.h"

#define CPUINFO_MAX (256u << 10)
#define VERSION_MS 3000

const char *const mke2fs_paths[] = {"/usr/sbin/mke2fs", "/sbin/mke2fs", NULL};
const char *const qemu_img_paths[] = {"/usr/bin/qemu-img", "/usr/local/bin/qemu-img", NULL};

const char *host_program(const char *const *paths)
{
    size_t i;

    for (i = 0; paths[i]; i++)
        if (access(paths[i], X_OK) == 0)
            return paths[i];
    return NULL;
}

/* ---- programs ---- */

int run_program(const char *path, char *const argv[], struct cella_error *err)
{
    static char *const no_environment[] = {NULL};
    posix_spawn_file_actions_t actions;
    int status = 0, r, i;
    pid_t pid;

    r = posix_spawn_file_actions_init(&actions);
    for (i = 0; r == 0 && i < 3; i++)
        r = posix_spawn_file_actions_addopen(&actions, i, "/dev/null", O_RDWR, 0);
    if (r == 0)
        r = posix_spawn(&pid, path, &actions, NULL, argv, no_environment);
    posix_spawn_file_actions_destroy(&actions);
    if (r)
        return fail(err, -r, "%s: cannot run it: %s", path, strerror(r));
    while ((r = waitpid(pid, &status, 0)) < 0 && errno == EINTR)
        ;
    if (r < 0 || !WIFEXITED(status) || WEXITSTATUS(status))
        return fail(err, -EIO, "%s failed (%s %d)", path, WIFSIGNALED(status) ? "signal" : "status",
                    WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    return 0;
}

/* ---- KVM ---- */

/* The value of one line of /proc/cpuinfo, first processor. */
static int cpu_line(const char *text, const char *name, const char **ret, size_t *ret_len)
{
    size_t n = strlen(name);
    const char *p = text, *end;

    while (p && *p) {
        end = strchr(p, '\n');
        if (!strncmp(p, name, n) && (p[n] == '\t' || p[n] == ' ' || p[n] == ':')) {
            p = strchr(p, ':');
            if (!p || (end && p > end))
                return -ENOENT;
            p += strspn(p, ": ");
            *ret = p;
            *ret_len = end && end > p ? (size_t)(end - p) : strlen(p);
            return 0;
        }
        p = end ? end + 1 : NULL;
    }
    return -ENOENT;
}

static int has_word(const char *s, size_t len, const char *word)
{
    size_t n = strlen(word), i;

    for (i = 0; i + n <= len; i++)
        if (!memcmp(s + i, word, n) && (i == 0 || s[i - 1] == ' ') &&
            (i + n == len || s[i + n] == ' '))
            return 1;
    return 0;
}

static int kvm_flags(char *why, size_t cap)
{
    auto_free char *text = NULL;
    const char *flags;
    size_t len;

    if (read_file_at(AT_FDCWD, "/proc/cpuinfo", CPUINFO_MAX, &text, NULL) < 0 ||
        cpu_line(text, "flags", &flags, &len) < 0) {
        snprintf(why, cap, "/proc/cpuinfo names no processor flags");
        return 0;
    }
    if (has_word(flags, len, "vmx") || has_word(flags, len, "svm"))
        return 1;
    snprintf(why, cap,
             "the processor has neither vmx nor svm: it runs no guests, whatever "
             "/dev/kvm says; on a virtual machine enable nested virtualisation");
    return 0;
}

/* mov $0x217,%dx; mov $'k',%al; out %al,(%dx); hlt - in real mode. */
static const uint8_t guest_code[] = {0xba, 0x17, 0x02, 0xb0, 'k', 0xee, 0xf4};

static int guest_run(int vm, int vcpu, size_t run_size, uint8_t *page, struct kvm_run *run)
{
    struct kvm_userspace_memory_region m = {.guest_phys_addr = 0x1000,
                                            .memory_size = 4096,
                                            .userspace_addr = (uint64_t)(uintptr_t)page};
    struct kvm_regs regs = {.rip = 0x1000, .rflags = 2};
    struct kvm_sregs sregs;

    (void)run_size;
    memcpy(page, guest_code, sizeof(guest_code));
    if (ioctl(vm, KVM_SET_USER_MEMORY_REGION, &m) < 0 || ioctl(vcpu, KVM_GET_SREGS, &sregs) < 0)
        return 0;
    sregs.cs.base = 0;
    sregs.cs.selector = 0;
    if (ioctl(vcpu, KVM_SET_SREGS, &sregs) < 0 || ioctl(vcpu, KVM_SET_REGS, &regs) < 0 ||
        ioctl(vcpu, KVM_RUN, 0) < 0 || run->exit_reason != KVM_EXIT_IO || run->io.port != 0x217 ||
        *((uint8_t *)run + run->io.data_offset) != 'k')
        return 0;
    return ioctl(vcpu, KVM_RUN, 0) == 0 && run->exit_reason == KVM_EXIT_HLT;
}

static int kvm_try(char *why, size_t cap)
{
    auto_close int kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC), vm = -1, vcpu = -1;
    uint8_t *page = MAP_FAILED;
    void *run = MAP_FAILED;
    int size, ok = 0;

    if (kvm < 0) {
        snprintf(why, cap, "/dev/kvm: %s", strerror(errno));
        return 0;
    }
    size = ioctl(kvm, KVM_GET_VCPU_MMAP_SIZE, 0);
    vm = ioctl(kvm, KVM_CREATE_VM, 0);
    if (vm >= 0)
        vcpu = ioctl(vm, KVM_CREATE_VCPU, 0);
    if (vcpu >= 0 && size >= (int)sizeof(struct kvm_run)) {
        page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        run = mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_SHARED, vcpu, 0);
    }
    if (page != MAP_FAILED && run != MAP_FAILED)
        ok = guest_run(vm, vcpu, (size_t)size, page, run);
    if (!ok)
        snprintf(why, cap, "/dev/kvm is there but does not run a guest of seven bytes");
    if (page != MAP_FAILED)
        munmap(page, 4096);
    if (run != MAP_FAILED)
        munmap(run, (size_t)size);
    return ok;
}

/* ---- QEMU ---- */

static int version_read(int fd, char *out, size_t cap)
{
    char text[256];
    size_t len = 0;
    const char *p;
    ssize_t n;

    while (len < sizeof(text) - 1) {
        struct pollfd p1 = {.fd = fd, .events = POLLIN};
        if (poll(&p1, 1, VERSION_MS) <= 0)
            break;
        n = read(fd, text + len, sizeof(text) - 1 - len);
        if (n <= 0)
            break;
        len += (size_t)n;
    }
    text[len] = 0;
    p = strstr(text, "version ");
    if (!p)
        return -EBADMSG;
    p += 8;
    len = strspn(p, "0123456789.");
    if (!len || len >= cap)
        return -EBADMSG;
    memcpy(out, p, len);
    out[len] = 0;
    return 0;
}

static int qemu_version(const char *path, char *out, size_t cap, struct cella_error *err)
{
    static char *const no_environment[] = {NULL};
    char *argv[] = {(char *)path, (char *)"--version", NULL};
    posix_spawn_file_actions_t actions;
    int ends[2], r;
    pid_t pid;

    if (pipe2(ends, O_CLOEXEC) < 0)
        return fail(err, -errno, "%s: %s", path, strerror(errno));
    r = posix_spawn_file_actions_init(&actions);
    if (r == 0)
        r = posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDWR, 0);
    if (r == 0)
        r = posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    if (r == 0)
        r = posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_RDWR, 0);
    if (r == 0)
        r = posix_spawn(&pid, path, &actions, NULL, argv, no_environment);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    if (r) {
        close(ends[0]);
        return fail(err, -r, "%s: cannot run it: %s", path, strerror(r));
    }
    r = version_read(ends[0], out, cap);
    close(ends[0]);
    kill(pid, SIGKILL); /* it has said what it had to */
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    return r < 0 ? fail(err, r, "%s --version: it names no version: is it QEMU?", path) : 0;
}

int host_qemu(const char *qemu, char *ret_version, size_t cap, struct cella_error *err)
{
    char version[64] = "";
    int r;

    if (access(qemu, X_OK) < 0)
        return fail(err, -ENOENT,
                    "%s: %s; install the package qemu-system-x86, or set the option \"qemu\"", qemu,
                    strerror(errno));
    if (!ret_version)
        return 0;
    r = qemu_version(qemu, version, sizeof(version), err);
    if (r < 0)
        return r;
    if (atoi(version) < 7)
        return fail(err, -ENOTSUP, "QEMU %s is too old: 7.2 is needed", version);
    snprintf(ret_version, cap, "%s", version);
    return 0;
}

/* A probe asks, then the cell of the same process: making a machine is not cheap. */
int host_kvm(char *why, size_t cap)
{
    static int known;

    known = known || (kvm_flags(why, cap) && kvm_try(why, cap));
    return known;
}

int host_io_uring(const char *setting, struct cella_error *err)
{
    auto_free char *text = NULL;
    int r = read_file_at(AT_FDCWD, setting, 64, &text, NULL);

    if (r == -ENOENT) /* a kernel older than the setting */
        return 0;
    if (r < 0)
        return fail(err, r, "%s: %s", setting, strerror(-r));
    if (text[0] == '0')
        return 0;
    return fail(err, -ENOTSUP,
                "kernel.io_uring_disabled is %.1s: the disks of cella-vmm need io_uring; set it to "
                "0, or choose the engine qemu",
                text);
}

static uint64_t raw_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC_RAW, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

uint64_t host_tsc_khz(void)
{
    const struct timespec moment = {0, 20000000};
    uint64_t ns = raw_ns(), ticks = __builtin_ia32_rdtsc();

    nanosleep(&moment, NULL);
    ns = raw_ns() - ns;
    return (uint64_t)((double)(__builtin_ia32_rdtsc() - ticks) * 1e6 / (double)ns);
}

int host_cpu(char *out, size_t cap)
{
    static const char *const names[] = {"vendor_id", "cpu family", "model", "stepping", "flags"};
    auto_free char *text = NULL;
    auto_buf struct buf b = BUF_INIT;
    const char *v;
    size_t i, len;
    uint64_t sum = 14695981039346656037ull;
    int r = read_file_at(AT_FDCWD, "/proc/cpuinfo", CPUINFO_MAX, &text, NULL);

    if (r < 0)
        return r;
    for (i = 0; i < ARRAY_LEN(names); i++)
        if (cpu_line(text, names[i], &v, &len) == 0)
            buf_addf(&b, "%.*s;", (int)len, v);
    if (b.oom || !b.len)
        return -ENOMEM;
    for (i = 0; i < b.len; i++)
        sum = (sum ^ (unsigned char)b.ptr[i]) * 1099511628211ull;
    if (cpu_line(text, "model name", &v, &len) < 0) {
        v = "unknown";
        len = 7;
    }
    snprintf(out, cap, "%.*s (%016llx)", (int)(len < 80 ? len : 80), v, (unsigned long long)sum);
    return 0;
}
