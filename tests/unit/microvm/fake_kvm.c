/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* KVM as far as cella-vmm asks. Threads: any; the tables have a lock. */
#include <asm/bootparam.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fake_kvm.h"

#define RUN_LEN 12288
#define BLOBS 512

unsigned long fake_log[FAKE_LOG];
int fake_log_n;
unsigned long fake_refuse;
jmp_buf fake_end;
int fake_end_armed, fake_end_status;
char fake_end_text[512];

static struct blob { /* what was set on a descriptor */
    int fd;
    unsigned nr;
    uint32_t sub;
    uint8_t data[4200];
} blobs[BLOBS];
static int n_blobs;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

int __wrap_confine_vcpu(void);
__attribute__((visibility("default"))) int __lsan_is_turned_off(void);
void __wrap_vmm_end(enum vmm_exit status, const char *fmt, ...) PRINTF_LIKE(2, 3)
    __attribute__((noreturn));

/* A machine that cannot be made takes nothing back: the program ends then. */
int __lsan_is_turned_off(void)
{
    return 1;
}

int __wrap_confine_vcpu(void)
{
    return -ENOSYS; /* the thread is the test's */
}

void __wrap_vmm_end(enum vmm_exit status, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(fake_end_text, sizeof(fake_end_text), fmt, ap);
    va_end(ap);
    fake_end_status = (int)status;
    if (fake_end_armed)
        longjmp(fake_end, 1);
    fprintf(stderr, "vmm_end: %d %s\n", (int)status, fake_end_text);
    abort();
}

/* GET and SET of one thing have different numbers; the thing is what they share. */
static const struct {
    unsigned long get, set;
    size_t len;
} things[] = {
    {KVM_GET_MP_STATE, KVM_SET_MP_STATE, sizeof(struct kvm_mp_state)},
    {KVM_GET_REGS, KVM_SET_REGS, sizeof(struct kvm_regs)},
    {KVM_GET_SREGS, KVM_SET_SREGS, sizeof(struct kvm_sregs)},
    {KVM_GET_XCRS, KVM_SET_XCRS, sizeof(struct kvm_xcrs)},
    {KVM_GET_XSAVE, KVM_SET_XSAVE, sizeof(struct kvm_xsave)},
    {KVM_GET_DEBUGREGS, KVM_SET_DEBUGREGS, sizeof(struct kvm_debugregs)},
    {KVM_GET_LAPIC, KVM_SET_LAPIC, sizeof(struct kvm_lapic_state)},
    {KVM_GET_VCPU_EVENTS, KVM_SET_VCPU_EVENTS, sizeof(struct kvm_vcpu_events)},
    {KVM_GET_PIT2, KVM_SET_PIT2, sizeof(struct kvm_pit_state2)},
    {KVM_GET_CLOCK, KVM_SET_CLOCK, sizeof(struct kvm_clock_data)},
    {KVM_GET_IRQCHIP, KVM_SET_IRQCHIP, sizeof(struct kvm_irqchip)},
};

static struct blob *blob_of(int fd, unsigned nr, uint32_t sub)
{
    int i;

    for (i = 0; i < n_blobs; i++)
        if (blobs[i].fd == fd && blobs[i].nr == nr && blobs[i].sub == sub)
            return &blobs[i];
    if (n_blobs == BLOBS)
        abort();
    blobs[n_blobs] = (struct blob){.fd = fd, .nr = nr, .sub = sub};
    return &blobs[n_blobs++];
}

static int thing(int fd, unsigned long request, void *p)
{
    unsigned i;

    for (i = 0; i < sizeof(things) / sizeof(things[0]); i++) {
        struct kvm_irqchip *chip = things[i].get == KVM_GET_IRQCHIP ? p : NULL;
        uint32_t sub;
        if (request != things[i].get && request != things[i].set)
            continue;
        sub = chip ? chip->chip_id : 0;
        if (request == things[i].set)
            memcpy(blob_of(fd, i, sub)->data, p, things[i].len);
        else
            memcpy(p, blob_of(fd, i, sub)->data, things[i].len);
        if (chip)
            chip->chip_id = sub;
        break;
    }
    return 0; /* others succeed and do nothing */
}

static int msrs(int fd, unsigned long request, void *p)
{
    struct {
        uint32_t n, pad;
        struct kvm_msr_entry v[MSR_MAX];
    } *l = p;
    uint32_t i;

    for (i = 0; i < l->n; i++) {
        struct blob *b = blob_of(fd, 1000, l->v[i].index);
        if (request == KVM_GET_MSRS)
            memcpy(&l->v[i].data, b->data, 8);
        else
            memcpy(b->data, &l->v[i].data, 8);
    }
    return (int)l->n;
}

static int describe(unsigned long request, void *p)
{
    static const uint32_t index[] = {0x10, 0x6e0, 0xc0000080, 0x1b};
    struct cpuid *c = p;
    struct {
        uint32_t n, v[4];
    } *list = p;

    if (request == KVM_GET_MSR_INDEX_LIST) {
        list->n = 4;
        memcpy(list->v, index, sizeof(index));
        return 0;
    }
    c->n = 2;
    memset(c->v, 0, 2 * sizeof(c->v[0]));
    c->v[0].eax = 1;
    c->v[1].function = 1;
    c->v[1].edx = 0x178bfbff;
    return 0;
}

/* A processor that sleeps until somebody wants it to stop. Without a table of who runs: the flag is in memory. */
static int run(int fd)
{
    struct kvm_run *r = mmap(NULL, RUN_LEN, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    if (r == MAP_FAILED)
        abort();
    while (!__atomic_load_n(&r->immediate_exit, __ATOMIC_SEQ_CST))
        usleep(1000);
    munmap(r, RUN_LEN);
    errno = EINTR;
    return -1;
}

static int answer(int fd, unsigned long request, void *p)
{
    int r;

    switch (request) {
    case KVM_GET_API_VERSION:
        return 12;
    case KVM_CHECK_EXTENSION:
        return 64;
    case KVM_CREATE_VM:
        return eventfd(0, EFD_CLOEXEC);
    case KVM_GET_VCPU_MMAP_SIZE:
        return RUN_LEN;
    case KVM_CREATE_VCPU:
        r = memfd_create("vcpu", MFD_CLOEXEC);
        return r >= 0 && ftruncate(r, RUN_LEN) == 0 ? r : -1;
    case KVM_GET_SUPPORTED_CPUID:
    case KVM_GET_MSR_INDEX_LIST:
        return describe(request, p);
    case KVM_GET_MSRS:
    case KVM_SET_MSRS:
        return msrs(fd, request, p);
    case KVM_GET_TSC_KHZ:
        return 2000000;
    default:
        return thing(fd, request, p);
    }
}

int __wrap_ioctl(int fd, unsigned long request, ...)
{
    va_list ap;
    void *p;
    int r;

    va_start(ap, request);
    p = va_arg(ap, void *);
    va_end(ap);
    if (request == KVM_RUN)
        return run(fd);
    pthread_mutex_lock(&lock);
    if (fake_log_n < FAKE_LOG)
        fake_log[fake_log_n++] = request;
    if (fake_refuse == request) {
        errno = EINVAL;
        r = -1;
    } else {
        r = answer(fd, request, p);
    }
    pthread_mutex_unlock(&lock);
    return r;
}

int fake_at(unsigned long request, int from)
{
    for (; from < fake_log_n; from++)
        if (fake_log[from] == request)
            return from;
    return -1;
}

/* -------------------------------------------------------------------- machines */

static void put(int fd, int at)
{
    if (fd < 0 || (fd != at && (dup2(fd, at) < 0 || close(fd) < 0)))
        abort();
}

static int file(uint64_t bytes)
{
    int fd = memfd_create("file", 0);

    if (fd < 0 || ftruncate(fd, (off_t)bytes) < 0)
        abort();
    return fcntl(fd, F_DUPFD, 40);
}

int fake_fds(const void *kernel, size_t kernel_len, uint64_t ram_bytes)
{
    int sock[2], i;

    for (i = 3; i < 32; i++)
        put(open("/dev/null", O_RDWR), i);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sock) < 0)
        abort();
    put(sock[1], VMM_FD_CONTROL);
    put(file(kernel_len), VMM_FD_KERNEL);
    if (pwrite(VMM_FD_KERNEL, kernel, kernel_len, 0) != (ssize_t)kernel_len)
        abort();
    put(file(ram_bytes), VMM_FD_RAM);
    put(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0), VMM_FD_VSOCK);
    put(file(1 << 20), VMM_FD_ROOT);
    put(file(1 << 20), VMM_FD_LAYERS);
    return sock[0];
}

void fake_config(struct vmm_config *c, uint64_t ram_bytes)
{
    memset(c, 0, sizeof(*c));
    c->size = sizeof(*c);
    c->ram_bytes = ram_bytes;
    c->vcpus = 1;
    c->n_layers = 1;
    c->disk_bytes = 1 << 20;
}

size_t fake_kernel(uint8_t out[4096])
{
    struct setup_header *h = (void *)(out + 0x1f1);

    memset(out, 0, 4096);
    h->setup_sects = 1;
    h->boot_flag = 0xaa55;
    h->jump = 0x66eb;
    h->header = 0x53726448;
    h->version = 0x20f;
    h->loadflags = LOADED_HIGH;
    h->xloadflags = XLF_KERNEL_64;
    h->initrd_addr_max = 0x7fffffff;
    h->cmdline_size = 255;
    return 4096;
}

int fake_machine(struct machine *m, const struct vmm_config *c)
{
    struct why w = {.text = ""};
    int r;

    memset(m, 0, sizeof(*m));
    m->config = *c;
    pthread_mutex_init(&m->lock, NULL);
    r = kvm_open(&m->kvm, VMM_FD_KVM, c->vcpus, &w);
    if (r == 0)
        r = ram_map(&m->ram, VMM_FD_RAM, c->ram_bytes, 1);
    m->loop = loop_new();
    if (r == 0 && m->loop)
        m->serial = serial_new(&m->ports, m->loop, VMM_FD_CONSOLE, -1);
    if (r == 0)
        r = platform_add(&m->ports);
    if (r == 0)
        r = devices_make(m, &w);
    for (; r == 0 && m->n_cpu < c->vcpus; m->n_cpu++)
        r = vcpu_make(&m->cpu[m->n_cpu], m, m->n_cpu, &w);
    if (r < 0)
        fprintf(stderr, "fake machine: %s\n", w.text);
    return r;
}

int fake_order(int host, struct machine *to, const struct vmm_request *q, size_t len, int fd,
               struct vmm_reply *ret)
{
    struct iovec io = {.iov_base = (void *)(uintptr_t)q, .iov_len = len};
    union {
        char space[CMSG_SPACE(sizeof(int))];
        struct cmsghdr head;
    } c;
    struct msghdr msg = {.msg_iov = &io, .msg_iovlen = 1};

    memset(&c, 0, sizeof(c));
    if (fd >= 0) {
        msg.msg_control = &c;
        msg.msg_controllen = sizeof(c);
        c.head.cmsg_level = SOL_SOCKET;
        c.head.cmsg_type = SCM_RIGHTS;
        c.head.cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(&c.head), &fd, sizeof(int));
    }
    if (sendmsg(host, &msg, 0) != (ssize_t)len)
        abort();
    fake_end_armed = 1;
    fake_end_status = -1;
    if (setjmp(fake_end) == 0)
        control_turn(to);
    fake_end_armed = 0;
    memset(ret, 0, sizeof(*ret));
    if (recv(host, ret, sizeof(*ret), MSG_DONTWAIT) != (ssize_t)sizeof(*ret))
        abort();
    return ret->code;
}
