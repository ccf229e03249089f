/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* Starts cella-vmm with the descriptors of control.h and nothing else. Threads: one. */
#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "host.h"
#include "initrd.h"
#include "vmm_host.h"

#define HIGH 200

const char *vmm_missing(void)
{
    static char why[200];

    return host_kvm(why, sizeof(why)) ? NULL : why;
}

int vmm_initrd(const char *init)
{
    struct errbuf eb;
    int fd = memfd_create("initrd", MFD_CLOEXEC);

    if (initrd_write(fd, init, init, NULL, 0, errbuf_init(&eb)) < 0) {
        fprintf(stderr, "initrd: %s\n", eb.text);
        abort();
    }
    return fd;
}

static int file_of(const char *name, uint64_t bytes)
{
    int fd = memfd_create(name, MFD_CLOEXEC);

    if (fd < 0 || ftruncate(fd, (off_t)bytes) < 0)
        abort();
    return fd;
}

void vmm_parts_init(struct vmm_parts *p, const char *kernel, const char *append, uint64_t ram_mib)
{
    memset(p, 0, sizeof(*p));
    p->kernel_fd = kernel ? open(kernel, O_RDONLY | O_CLOEXEC) : -1;
    p->initrd_fd = p->tap_fd = -1;
    p->ram_fd = file_of("ram", ram_mib << 20);
    p->root_fd = file_of("root", 1 << 20);
    p->layer_fd[0] = file_of("layer", 8 << 20);
    p->n_layers = 1;
    p->config.size = sizeof(p->config);
    p->config.ram_bytes = ram_mib << 20;
    p->config.vcpus = 1;
    p->config.n_layers = 1;
    p->config.disk_bytes = 8 << 20;
    memset(p->config.generation, 'g', sizeof(p->config.generation));
    snprintf(p->config.append, sizeof(p->config.append), "%s", append ? append : "");
}

void vmm_parts_fini(struct vmm_parts *p)
{
    int i;

    close(p->kernel_fd);
    close(p->initrd_fd);
    close(p->ram_fd);
    close(p->root_fd);
    for (i = 0; i < p->n_layers; i++)
        close(p->layer_fd[i]);
}

static int copy_out(struct archive *a, int fd)
{
    static char part[65536];
    struct archive_entry *e;
    la_ssize_t n;

    if (archive_read_next_header(a, &e) != ARCHIVE_OK)
        return -1;
    while ((n = archive_read_data(a, part, sizeof(part))) > 0)
        if (write(fd, part, (size_t)n) != n)
            return -1;
    return n < 0 ? -1 : 0;
}

/* The note of type 18 of "Xen", made one of a type that nobody reads. */
static void hide_pvh(int fd)
{
    static const char note[] = "\4\0\0\0\10\0\0\0\22\0\0\0Xen";
    off_t size = lseek(fd, 0, SEEK_END);
    char *p = mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), *at;

    if (p == MAP_FAILED)
        abort();
    at = memmem(p, (size_t)size, note, sizeof(note));
    if (at)
        at[8] = 99;
    munmap(p, (size_t)size);
}

int vmm_unpack(const char *kernel, int pvh)
{
    struct archive *a = archive_read_new();
    uint8_t head[0x260];
    uint32_t at, len;
    char *text = NULL;
    size_t size;
    int fd = memfd_create("vmlinux", MFD_CLOEXEC);

    if (read_file_at(AT_FDCWD, kernel, 64 << 20, &text, &size) < 0)
        return -1;
    memcpy(head, text, sizeof(head));
    memcpy(&at, head + 0x248, 4);
    memcpy(&len, head + 0x24c, 4);
    at += (head[0x1f1] + 1u) * 512;
    archive_read_support_filter_all(a);
    archive_read_support_format_raw(a);
    /* The last four bytes are the kernel's own: how long it is unpacked. */
    if (at + (uint64_t)len > size ||
        archive_read_open_memory(a, text + at, len - 4) != ARCHIVE_OK || copy_out(a, fd) < 0) {
        fprintf(stderr, "%s: %s\n", kernel, archive_error_string(a));
        close(fd);
        fd = -1;
    }
    archive_read_free(a);
    free(text);
    if (fd >= 0 && !pvh)
        hide_pvh(fd);
    return fd;
}

static void listen_vsock(struct vmm *v)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};

    snprintf(v->vsock, sizeof(v->vsock), "/tmp/cella-vmm-%d-%p", getpid(), (void *)v);
    snprintf(a.sun_path, sizeof(a.sun_path), "%s", v->vsock);
    unlink(v->vsock);
    v->vsock_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (v->vsock_fd < 0 || bind(v->vsock_fd, (void *)&a, sizeof(a)) < 0 ||
        listen(v->vsock_fd, 8) < 0)
        abort();
}

static void child(const struct vmm_parts *p, int control, int console, int errors, int vsock)
{
    int fds[VMM_FD_LAYERS + VMM_LAYERS_MAX], n = VMM_FD_LAYERS + p->n_layers, i;
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    fds[0] = fds[1] = null;
    fds[VMM_FD_STDERR] = errors;
    fds[VMM_FD_CONTROL] = control;
    fds[VMM_FD_KVM] = open("/dev/kvm", O_RDWR | O_CLOEXEC);
    fds[VMM_FD_KERNEL] = p->kernel_fd;
    fds[VMM_FD_INITRD] = p->initrd_fd;
    fds[VMM_FD_RAM] = p->ram_fd;
    fds[VMM_FD_CONSOLE] = console;
    fds[VMM_FD_VSOCK] = vsock;
    fds[VMM_FD_TAP] = p->tap_fd;
    fds[VMM_FD_ROOT] = p->root_fd;
    for (i = 0; i < p->n_layers; i++)
        fds[VMM_FD_LAYERS + i] = p->layer_fd[i];
    for (i = 0; i < n; i++)
        fds[i] = fcntl(fds[i] < 0 ? null : fds[i], F_DUPFD_CLOEXEC, HIGH);
    for (i = 0; i < n; i++)
        dup2(fds[i], i);
    execle(VMM_PROGRAM, "cella-vmm", (char *)NULL, (char *[]){NULL});
    _exit(127);
}

void vmm_spawn(struct vmm *v, const struct vmm_parts *p)
{
    int control[2], console[2], errors[2];

    memset(v, 0, sizeof(*v));
    v->status = -1;
    listen_vsock(v);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, control) < 0 ||
        pipe2(console, O_CLOEXEC | O_NONBLOCK) < 0 || pipe2(errors, O_CLOEXEC) < 0)
        abort();
    fcntl(errors[0], F_SETFL, O_NONBLOCK);
    fcntl(console[0], F_SETPIPE_SZ, 1 << 20);
    v->pid = fork();
    if (v->pid == 0)
        child(p, control[1], console[1], errors[1], v->vsock_fd);
    close(control[1]);
    close(console[1]);
    close(errors[1]);
    v->control = control[0];
    v->console = console[0];
    v->errors = errors[0];
}

static void pump(struct vmm *v)
{
    ssize_t n;

    while (v->log_len < sizeof(v->log) - 1 &&
           (n = read(v->console, v->log + v->log_len, sizeof(v->log) - 1 - v->log_len)) > 0)
        v->log_len += (size_t)n;
    while (v->why_len < sizeof(v->why) - 1 &&
           (n = read(v->errors, v->why + v->why_len, sizeof(v->why) - 1 - v->why_len)) > 0)
        v->why_len += (size_t)n;
    v->log[v->log_len] = v->why[v->why_len] = 0;
}

int vmm_ask(struct vmm *v, const struct vmm_request *q, int fd, struct vmm_reply *ret)
{
    long n;

    memset(ret, 0, sizeof(*ret));
    if (send_fds(v->control, q, sizeof(*q), &fd, fd >= 0 ? 1 : 0) < 0)
        return -EPIPE;
    n = recv(v->control, ret, sizeof(*ret), 0);
    pump(v);
    return n == (long)sizeof(*ret) ? ret->code : -EPIPE;
}

int vmm_op(struct vmm *v, uint32_t op, uint64_t arg, int fd)
{
    struct vmm_request q = {.op = op, .arg = arg};
    struct vmm_reply r;
    int code = vmm_ask(v, &q, fd, &r);

    if (code < 0)
        fprintf(stderr, "cella-vmm: op %u: %d %s\n", op, code, r.text);
    return code;
}

int vmm_start(struct vmm *v, const struct vmm_parts *p)
{
    struct vmm_request q = {.op = VMM_OP_CONFIG, .config = p->config};
    struct vmm_reply r;

    vmm_spawn(v, p);
    return vmm_ask(v, &q, -1, &r);
}

const char *vmm_says(struct vmm *v, const char *what, const char *from, int ms)
{
    uint64_t until = now_ns() + (uint64_t)ms * 1000000u;
    size_t at = from ? (size_t)(from - v->log) : 0;
    const char *found;

    for (;;) {
        struct pollfd p = {.fd = v->console, .events = POLLIN};
        pump(v);
        found = strstr(v->log + at, what);
        if (found || now_ns() > until)
            break;
        if (poll(&p, 1, 200) > 0 && (p.revents & POLLHUP) && !(p.revents & POLLIN))
            break;
    }
    if (!found)
        fprintf(stderr, "no \"%s\" on the console; its end:\n%s\nstderr: %s\n", what,
                v->log + (v->log_len > 3000 ? v->log_len - 3000 : 0), v->why);
    return found;
}

int vmm_ended(struct vmm *v, int ms)
{
    uint64_t until = now_ns() + (uint64_t)ms * 1000000u;
    int status;

    while (v->status < 0) {
        pid_t got = waitpid(v->pid, &status, WNOHANG);
        pump(v);
        if (got == v->pid)
            v->status = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
        else if (now_ns() > until)
            break;
        else
            usleep(20000);
    }
    pump(v);
    return v->status;
}

void vmm_kill(struct vmm *v)
{
    if (v->status < 0) {
        kill(v->pid, SIGKILL);
        waitpid(v->pid, NULL, 0);
    }
    close(v->control);
    close(v->console);
    close(v->errors);
    close(v->vsock_fd);
    unlink(v->vsock);
}
