/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * The machine as a whole on a KVM that is not one: orders over the control socket, states and their order, ports,
 * the filters' lists.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <linux/audit.h>
#include <linux/io_uring.h>
#include <linux/seccomp.h>

#include "confine.h"
#include "fake_kvm.h"
#include "layout.h"

#define RAM (32ull << 20)

static struct machine m, copy;
static struct vmm_config config;
static struct vmm_reply reply;
static int host; /* our end of the control socket */

static int order(struct machine *to, const struct vmm_request *q, size_t len, int fd)
{
    return fake_order(host, to, q, len, fd, &reply);
}

static int op(struct machine *to, uint32_t what, int fd)
{
    struct vmm_request q = {.op = what};

    return order(to, &q, sizeof(q), fd);
}

static int configure(struct machine *to, const struct vmm_config *c)
{
    struct vmm_request q = {.op = VMM_OP_CONFIG, .config = *c};

    return order(to, &q, sizeof(q), -1);
}

static void said(const char *words)
{
    if (!strstr(reply.text, words))
        fail_msg("\"%s\" instead of \"%s\"", reply.text, words);
}

static void config_is_judged(void **state)
{
    struct vmm_request q = {.op = VMM_OP_CONFIG};
    struct vmm_config c;

    (void)state;
#define REFUSED(change, code, words)                                                               \
    do {                                                                                           \
        c = config;                                                                                \
        change;                                                                                    \
        assert_int_equal(configure(&m, &c), code);                                                 \
        said(words);                                                                               \
        assert_int_equal(fake_end_status, VMM_EXIT_HOST);                                          \
    } while (0)
    REFUSED(c.size--, -EPROTO, "this build takes");
    REFUSED(c.flags = 1u << 20, -EINVAL, "unknown flags 0x100000");
    REFUSED(c.pad[1] = 1, -EINVAL, "unknown flags");
    REFUSED(c.ram_bytes = 0, -ERANGE, "whole MiB");
    REFUSED(c.ram_bytes += 4096, -ERANGE, "whole MiB");
    REFUSED(c.ram_bytes = UINT64_MAX - (1 << 20) + 1, -ERANGE, "whole MiB");
    REFUSED(c.vcpus = 0, -ERANGE, "1 to 32");
    REFUSED(c.vcpus = 33, -ERANGE, "1 to 32");
    REFUSED(c.n_layers = 17, -ERANGE, "1 to 16");
    REFUSED(c.n_layers = 0, -ERANGE, "1 to 16"); /* of a machine that boots */
    REFUSED(c.disk_bytes = 513, -ERANGE, "whole sectors");
    REFUSED(c.disk_bytes = 0, -ERANGE, "whole sectors");
    REFUSED((c.flags = VMM_CONFIG_NET, c.mac[0] = 1), -EINVAL, "a group's");
    REFUSED(c.flags = VMM_CONFIG_INCOMING, -EINVAL, "would write into the snapshot");
    REFUSED(memset(c.append, 'x', sizeof(c.append)), -EINVAL, "has no end");
    assert_int_equal(order(&m, &q, sizeof(q) - 1, -1), -EPROTO);
    said("a request of");
    assert_int_equal(op(&m, VMM_OP_CONT, -1), -EPROTO);
    said("CONFIG comes first");
    assert_int_equal(op(&m, 77, -1), -ENOSYS);
}

static void kvm_fails_in_the_middle(void **state)
{
    static const unsigned long requests[] = {
        KVM_GET_API_VERSION, KVM_CREATE_VM,   KVM_SET_TSS_ADDR,       KVM_CREATE_IRQCHIP,
        KVM_CREATE_PIT2,     KVM_CREATE_VCPU, KVM_SET_CPUID2,         KVM_SET_USER_MEMORY_REGION,
        KVM_SET_REGS,        KVM_SET_SREGS,   KVM_SET_LAPIC,          KVM_SET_MSRS,
        KVM_IRQFD,           KVM_IOEVENTFD,   KVM_GET_SUPPORTED_CPUID};
    static struct machine broken;
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(requests) / sizeof(requests[0]); i++) {
        memset(&broken, 0, sizeof(broken));
        fake_refuse = requests[i];
        assert_true(configure(&broken, &config) < 0);
        assert_true(strlen(reply.text) > 10); /* in words */
        assert_int_equal(fake_end_status, VMM_EXIT_HOST);
        ram_unmap(&broken.ram);
        loop_free(broken.loop);
    }
    fake_refuse = 0;
}

static void orders(void **state)
{
    struct vmm_request q = {.op = VMM_OP_PAUSE};
    int fd = memfd_create("x", MFD_CLOEXEC);

    (void)state;
    fake_log_n = 0;
    assert_int_equal(configure(&m, &config), 0);
    /* Interrupt controllers before processors, CPUID before registers. */
    assert_true(fake_at(KVM_CREATE_PIT2, 0) < fake_at(KVM_CREATE_VCPU, 0));
    assert_true(fake_at(KVM_SET_CPUID2, 0) < fake_at(KVM_SET_MSRS, 0));
    assert_true(fake_at(KVM_SET_MSRS, 0) < fake_at(KVM_SET_REGS, 0));
    assert_true(fake_at(KVM_SET_SREGS, 0) < fake_at(KVM_SET_LAPIC, 0));
    assert_int_equal(configure(&m, &config), -EALREADY);
    assert_true(m.cpu[0].parked); /* nothing runs yet */
    assert_int_equal(op(&m, VMM_OP_SAVE, -1), -EBADF);
    assert_int_equal(op(&m, VMM_OP_PAUSE, fd), -EBADF);
    assert_int_equal(op(&m, VMM_OP_LOAD, fd), -EPROTO);
    said("does not wait for a state");
    q.config.ram_bytes = 1;
    assert_int_equal(order(&m, &q, sizeof(q), -1), -EINVAL);
    assert_int_equal(op(&m, VMM_OP_CONT, -1), 0);
    assert_int_equal(op(&m, VMM_OP_SAVE, fd), -EBUSY);
    assert_int_equal(op(&m, VMM_OP_DETACH, -1), -EBUSY);
    assert_int_equal(op(&m, VMM_OP_STATS, -1), 0);
    said("{\"read\":0,\"written\":0}");
    q = (struct vmm_request){.op = VMM_OP_BALLOON, .arg = RAM + 1};
    assert_int_equal(order(&m, &q, sizeof(q), -1), -ERANGE);
    fake_log_n = 0;
    assert_int_equal(op(&m, VMM_OP_BUTTON, -1), 0);
    assert_true(fake_at(KVM_IRQ_LINE, 0) >= 0);
    assert_int_equal(op(&m, VMM_OP_PAUSE, -1), 0);
    assert_true(m.cpu[0].parked);
    assert_int_equal(op(&m, VMM_OP_PAUSE, -1), 0); /* again */
    assert_int_equal(op(&m, VMM_OP_CONT, -1), 0);
    assert_int_equal(op(&m, VMM_OP_PAUSE, -1), 0);
    close(fd);
}

static void in_order(const unsigned long *requests, size_t n, int from)
{
    size_t i;

    for (i = 0; i < n; i++) {
        int at = fake_at(requests[i], from);
        if (at < 0)
            fail_msg("request %zu (0x%lx) is not where it belongs", i, requests[i]);
        from = at + 1;
    }
}

static void saved_and_loaded(void **state)
{
    static const unsigned long save[] = {KVM_GET_MP_STATE, KVM_GET_REGS,        KVM_GET_LAPIC,
                                         KVM_GET_MSRS,     KVM_GET_VCPU_EVENTS, KVM_GET_PIT2,
                                         KVM_GET_IRQCHIP};
    static const unsigned long load[] = {
        KVM_SET_CPUID2,  KVM_SET_MP_STATE,    KVM_SET_REGS,      KVM_SET_SREGS,
        KVM_SET_XCRS,    KVM_SET_XSAVE,       KVM_SET_DEBUGREGS, KVM_SET_LAPIC,
        KVM_SET_MSRS,    KVM_SET_VCPU_EVENTS, KVM_SET_PIT2,      KVM_SET_CLOCK,
        KVM_SET_IRQCHIP, KVM_SET_IRQCHIP,     KVM_SET_IRQCHIP,   KVM_IRQ_LINE};
    struct vmm_config c = config;
    struct kvm_regs regs, back;
    int fd = memfd_create("state", MFD_CLOEXEC);
    uint8_t id[16];

    (void)state;
    memset(&regs, 0x5a, sizeof(regs));
    __wrap_ioctl(m.cpu[0].fd, KVM_SET_REGS, &regs);
    fake_log_n = 0;
    assert_int_equal(op(&m, VMM_OP_SAVE, fd), 0);
    in_order(save, sizeof(save) / sizeof(save[0]), 0);
    assert_int_equal(op(&m, VMM_OP_DETACH, -1), 0);
    assert_true(m.ram.is_private);
    c.flags |= VMM_CONFIG_PRIVATE | VMM_CONFIG_INCOMING;
    memset(c.generation, 'n', sizeof(c.generation));
    fake_log_n = 0;
    assert_int_equal(configure(&copy, &c), 0);
    assert_int_equal(fake_at(KVM_SET_REGS, 0), -1); /* nothing was booted */
    assert_int_equal(op(&copy, VMM_OP_CONT, -1), -EPROTO);
    said("no state was loaded");
    assert_int_equal(op(&copy, VMM_OP_SAVE, fd), -EPROTO);
    fake_log_n = 0;
    assert_int_equal(op(&copy, VMM_OP_LOAD, fd), 0);
    in_order(load, sizeof(load) / sizeof(load[0]), 0);
    __wrap_ioctl(copy.cpu[0].fd, KVM_GET_REGS, &back);
    assert_memory_equal(&regs, &back, sizeof(regs));
    assert_int_equal(ram_read(&copy.ram, AT_GENERATION, id, sizeof(id)), 0);
    assert_memory_equal(id, c.generation, sizeof(id));
    assert_int_equal(pread(VMM_FD_RAM, id, sizeof(id), AT_GENERATION), 16);
    assert_memory_equal(id, config.generation, sizeof(id)); /* the snapshot has the old one */
    assert_int_equal(op(&copy, VMM_OP_LOAD, fd), -EPROTO);
    assert_int_equal(fake_end_status, -1); /* refused, not failed */
    assert_int_equal(op(&copy, VMM_OP_CONT, -1), 0);
    assert_int_equal(op(&copy, VMM_OP_PAUSE, -1), 0);
    close(fd);
}

/* Each cut and each byte of a state: refused or taken, in words, never worse. */
static void bad_states(void **state)
{
    static uint8_t good[1 << 20], bad[1 << 20];
    static struct machine x;
    struct vmm_config c = config;
    struct cpuid own;
    struct why w;
    int fd = memfd_create("state", MFD_CLOEXEC), r;
    size_t len, at;

    (void)state;
    assert_int_equal(op(&m, VMM_OP_SAVE, fd), 0);
    len = (size_t)pread(fd, good, sizeof(good), 0);
    assert_in_range(len, 1000, sizeof(good) - 1);
    c.flags |= VMM_CONFIG_PRIVATE | VMM_CONFIG_INCOMING;
    assert_int_equal(fake_machine(&x, &c), 0);
    own = x.kvm.cpuid;
    for (at = 0; at < len; at += at < 64 ? 1 : 997) {
        assert_int_equal(ftruncate(fd, (off_t)at), 0);
        assert_int_equal(pwrite(fd, good, at, 0), (ssize_t)at);
        assert_true(machine_load(&x, fd, &w) < 0);
        assert_true(strlen(w.text) > 10);
    }
    for (at = 0; at < len; at += at < 200 ? 1 : 131) {
        memcpy(bad, good, len);
        bad[at] ^= 0xff;
        assert_int_equal(pwrite(fd, bad, len, 0), (ssize_t)len);
        r = machine_load(&x, fd, &w);
        assert_true(r <= 0);
        x.kvm.cpuid = own; /* a load that failed ends the program */
    }
    memcpy(bad, good, len);
    assert_int_equal(pwrite(fd, bad, len, 0), (ssize_t)len);
    assert_int_equal(ftruncate(fd, (off_t)len + 1), 0);
    assert_int_equal(machine_load(&x, fd, &w), -EBADMSG);
    assert_int_equal(ftruncate(fd, (off_t)len), 0);
    x.config.vcpus = 2;
    assert_int_equal(machine_load(&x, fd, &w), -EINVAL);
    assert_non_null(strstr(w.text, "1 processors"));
    x.config.vcpus = 1;
    assert_int_equal(machine_load(&x, fd, &w), 0);
    close(fd);
}

/* ------------------------------------------------------------------------ ports */

static int port_out(uint16_t port, uint8_t v)
{
    fake_end_armed = 1;
    fake_end_status = -1;
    if (setjmp(fake_end) == 0)
        bus_write(&m.ports, port, &v, 1);
    fake_end_armed = 0;
    return fake_end_status;
}

static uint8_t port_in(uint16_t port)
{
    uint8_t v;

    bus_read(&m.ports, port, &v, 1);
    return v;
}

static void serial_line(void **state)
{
    int fd = memfd_create("console", MFD_CLOEXEC), i;
    char text[600];

    (void)state;
    assert_true(dup2(fd, VMM_FD_CONSOLE) >= 0);
    for (i = 0; i < 5; i++)
        port_out(0x3f8, (uint8_t) "line\n"[i]);
    assert_int_equal(pread(fd, text, sizeof(text), 0), 5); /* at its end, at once */
    for (i = 0; i < 300; i++)
        port_out(0x3f8, 'x');
    assert_int_equal(pread(fd, text, sizeof(text), 0), 5 + 256);
    serial_flush(m.serial);
    assert_int_equal(pread(fd, text, sizeof(text), 0), 5 + 300);
    assert_int_equal(port_in(0x3fd), 0x60);
    port_out(0x3fb, 0x83); /* the divisor, */
    port_out(0x3f8, 7);
    assert_int_equal(port_in(0x3f8), 7);
    port_out(0x3fb, 3);
    assert_int_equal(pread(fd, text, sizeof(text), 0), 305); /* which is not sent */
    port_out(0x3fc, 0x1a);                                   /* loop: modem lines come back */
    assert_int_equal(port_in(0x3fe), 0x90);
    port_out(0x3fc, 0);
    port_out(0x3fa, 1);
    assert_int_equal(port_in(0x3fa), 0xc1);
    port_out(0x3f9, 2); /* "tell me when it is empty" */
    assert_int_equal(port_in(0x3fa), 0xc2);
    assert_int_equal(port_in(0x3fa), 0xc1); /* told */
    port_out(0x3ff, 0xa5);
    assert_int_equal(port_in(0x3ff), 0xa5);
    bus_read(&m.ports, 0x3fd, text, 2);
    assert_int_equal((uint8_t)text[0], 0xff); /* a register is one byte */
    close(fd);
}

static void power(void **state)
{
    (void)state;
    assert_int_equal(port_out(PORT_POWER, 0x20), -1);
    assert_int_equal(port_out(PORT_POWER, POWER_S5 << 2), -1);
    assert_int_equal(port_out(PORT_POWER, 0x20 | POWER_S5 << 2), VMM_EXIT_GUEST_DONE);
    assert_string_equal(fake_end_text, "guest: switched itself off");
    assert_int_equal(port_out(PORT_POWER + 2, 1), -1);
    assert_int_equal(port_out(PORT_POWER + 2, POWER_RESET_VALUE), VMM_EXIT_GUEST_DONE);
    assert_string_equal(fake_end_text, "guest: asked for a reset");
    assert_int_equal(port_out(0x64, 0xff), -1);
    assert_int_equal(port_out(0x64, 0xfe), VMM_EXIT_GUEST_DONE);
    assert_int_equal(port_in(0x64), 0); /* never busy */
    assert_int_equal(m.ram.base[AT_FIRMWARE], 0xb0);
}

/* ---------------------------------------------------------------------- filters */

/* What a filter answers; the few instructions that libseccomp makes. */
static uint32_t judge(const struct sock_fprog *p, const struct seccomp_data *d)
{
    uint32_t a = 0, pc = 0, v;

    for (;;) {
        const struct sock_filter *i = &p->filter[pc++];
        assert_true(pc <= p->len);
        switch (i->code) {
        case BPF_LD | BPF_W | BPF_ABS:
            assert_true(i->k + 4 <= sizeof(*d));
            memcpy(&a, (const uint8_t *)d + i->k, 4);
            continue;
        case BPF_ALU | BPF_AND | BPF_K:
            a &= i->k;
            continue;
        case BPF_RET | BPF_K:
            return i->k;
        case BPF_JMP | BPF_JA:
            pc += i->k;
            continue;
        case BPF_JMP | BPF_JEQ | BPF_K:
            v = a == i->k;
            break;
        case BPF_JMP | BPF_JGE | BPF_K:
            v = a >= i->k;
            break;
        case BPF_JMP | BPF_JGT | BPF_K:
            v = a > i->k;
            break;
        default:
            fail_msg("instruction 0x%x", i->code);
            return 0;
        }
        pc += v ? i->jt : i->jf;
    }
}

static int allowed(const struct sock_fprog *p, int nr, uint64_t arg1, uint64_t arg2)
{
    struct seccomp_data d = {.nr = nr, .arch = AUDIT_ARCH_X86_64, .args = {0, arg1, arg2}};

    return judge(p, &d) == SECCOMP_RET_ALLOW;
}

static int calls(const struct sock_fprog *p, const char *name)
{
    int nr, n = 0;

    for (nr = 0; nr < 600; nr++)
        n += nr == SYS_ioctl ? allowed(p, nr, KVM_RUN, 0) || allowed(p, nr, KVM_IRQ_LINE, 0)
                             : allowed(p, nr, 0, 0);
    fprintf(stderr, "%s: %d system calls, %u instructions\n", name, n, p->len);
    return n;
}

static void filters_are_short(void **state)
{
    static const int never[] = {
        SYS_execve,  SYS_execveat, SYS_open,           SYS_openat,
        SYS_openat2, SYS_socket,   SYS_connect,        SYS_bind,
        SYS_ptrace,  SYS_clone,    SYS_clone3,         SYS_fork,
        SYS_vfork,   SYS_mount,    SYS_setns,          SYS_unshare,
        SYS_bpf,     SYS_kill,     SYS_tkill,          SYS_prctl,
        SYS_seccomp, SYS_mprotect, SYS_io_uring_setup, SYS_io_uring_register};
    struct seccomp_data x32 = {.nr = 0x40000000 | SYS_write, .arch = AUDIT_ARCH_X86_64};
    struct seccomp_data i386 = {.nr = 4, .arch = AUDIT_ARCH_I386};
    const struct sock_fprog *p[] = {&confine_vmm_program, &confine_vcpu_program};
    size_t i, k;

    (void)state;
    assert_in_range(calls(p[0], "VMM thread"), 10, 55);
    assert_in_range(calls(p[1], "processor's thread"), 5, 30);
    for (k = 0; k < 2; k++) {
        for (i = 0; i < sizeof(never) / sizeof(never[0]); i++)
            if (allowed(p[k], never[i], 0, 0))
                fail_msg("system call %d is allowed", never[i]);
        assert_true(allowed(p[k], SYS_write, 0, 0));
        assert_true(allowed(p[k], SYS_mmap, 0, PROT_READ | PROT_WRITE));
        assert_false(allowed(p[k], SYS_mmap, 0, PROT_READ | PROT_EXEC));
        assert_int_not_equal(judge(p[k], &x32), SECCOMP_RET_ALLOW);
        assert_int_equal(judge(p[k], &i386), SECCOMP_RET_KILL_PROCESS);
    }
    assert_true(allowed(p[1], SYS_ioctl, KVM_RUN, 0));
    assert_false(allowed(p[0], SYS_ioctl, KVM_RUN, 0));
    assert_true(allowed(p[0], SYS_ioctl, KVM_SET_CLOCK, 0));
    assert_false(allowed(p[1], SYS_ioctl, KVM_SET_CLOCK, 0));
    assert_false(allowed(p[0], SYS_ioctl, KVM_CREATE_VM, 0));
    assert_false(allowed(p[1], SYS_tgkill, 0, 0));
    assert_true(allowed(p[0], SYS_io_uring_register, IORING_REGISTER_FILES_UPDATE, 0));
    assert_false(allowed(p[0], SYS_io_uring_register, IORING_REGISTER_ENABLE_RINGS, 0));
    assert_false(allowed(p[1], SYS_io_uring_register, IORING_REGISTER_FILES_UPDATE, 0));
}

#if !defined(__SANITIZE_ADDRESS__) /* whose run time needs more calls than the lists have */
static void child(int errors)
{
    struct why w;

    dup2(errors, VMM_FD_STDERR);
    if (confine_prepare(&w) < 0 || confine_vmm() < 0)
        _exit(99);
    (void)!write(VMM_FD_STDERR, "confined\n", 9);
    syscall(SYS_personality, 0xffffffff);
    _exit(98);
}

static void filter_bites(void **state)
{
    int p[2], status;
    char text[200] = "";
    pid_t pid;

    (void)state;
    assert_int_equal(pipe(p), 0);
    pid = fork();
    if (pid == 0)
        child(p[1]);
    close(p[1]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(read(p[0], text, sizeof(text) - 1) > 0);
    assert_string_equal(text, "confined\nseccomp: a thread asked for system call 0135\n");
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), VMM_EXIT_HOST);
    close(p[0]);
}
#endif

static int start(void **state)
{
    static uint8_t kernel[4096];
    size_t len = fake_kernel(kernel);

    (void)state;
    host = fake_fds(kernel, len, RAM);
    fake_config(&config, RAM);
    memset(config.generation, 'o', sizeof(config.generation));
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(config_is_judged),
        cmocka_unit_test(kvm_fails_in_the_middle),
        cmocka_unit_test(orders),
        cmocka_unit_test(saved_and_loaded),
        cmocka_unit_test(bad_states),
        cmocka_unit_test(serial_line),
        cmocka_unit_test(power),
        cmocka_unit_test(filters_are_short),
#if !defined(__SANITIZE_ADDRESS__)
        cmocka_unit_test(filter_bites),
#endif
    };
    return cmocka_run_group_tests(tests, start, NULL);
}
