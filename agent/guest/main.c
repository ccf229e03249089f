/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * cella-guest - process 1 of a guest machine: brings the machine to where the host may say who it
 * is (BOOT), starts the agent, and stays for what only the machine's root can do, on port 1.
 *
 * Why not the agent itself: the agent lives with the workload and gives up every privilege for
 * that; freezing the cell, its own agent included, and giving it another identity needs somebody
 * who stands outside. Invariants: one request at a time, answered before the next is read; the
 * agent's end is the machine's end; init never exits, because the kernel would panic. Threads: one.
 */
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/reboot.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <linux/virtio_ids.h>
#include <sys/wait.h>
#include <time.h>

#include "guest.h"

#define IDLE_MS 3000 /* of quiet after the start; what nobody waits for is loaded then */

static char words[400];
static int agent_fd = -1, control_fd = -1;
static int listeners[2] = {-1, -1}; /* of the agent's port and of ours; -1 = serial ports */
static pid_t agent_pid;
static uint64_t steps[CELLA_GUEST_STEPS];

int blame(int err, const char *what, const char *detail)
{
    words[0] = 0;
    text_add(words, sizeof(words), what);
    if (detail) {
        text_add(words, sizeof(words), " ");
        text_add(words, sizeof(words), detail);
    }
    if (err) {
        text_add(words, sizeof(words), ": ");
        text_add(words, sizeof(words), strerror(err));
    }
    return -err;
}

const char *blamed(void)
{
    return words;
}

void say(const char *what, const char *detail)
{
    char line[400] = "cella-guest: ";
    int e = errno;

    text_add(line, sizeof(line), what);
    if (detail) {
        text_add(line, sizeof(line), " ");
        text_add(line, sizeof(line), detail);
    }
    text_add(line, sizeof(line), ": ");
    text_add(line, sizeof(line), strerror(e));
    text_add(line, sizeof(line), "\n");
    if (write(2, line, strlen(line)) < 0)
        errno = e;
}

void step(enum cella_guest_step s)
{
    struct timespec t = {0};

    clock_gettime(CLOCK_BOOTTIME, &t);
    steps[s] = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void power_off(void)
{
    sync();
    reboot(RB_POWER_OFF);
    for (;;)
        pause();
}

_Noreturn void leave(int code)
{
    (void)code;
    errno = EPROTO;
    say("the host broke the protocol of port 1", NULL);
    power_off();
}

/* ---- requests ---- */

static int op_boot(uint8_t *payload, size_t len, struct fields *out)
{
    static struct boot b;
    int port, r;

    if (agent_pid)
        return blame(EALREADY, "BOOT for the second time", NULL);
    step(CELLA_GUEST_STEP_HELLO);
    r = boot_parse(payload, len, &b);
    if (r == 0 && b.n_mounts)
        modules_load(MODULES_SHARES);
    if (r == 0)
        r = root_mount();
    step(CELLA_GUEST_STEP_ROOT);
    if (r == 0)
        r = identity_apply(&b.id);
    step(CELLA_GUEST_STEP_IDENTITY);
    if (r == 0)
        r = group_make(&b);
    if (r < 0)
        return r;
    port = listeners[0] < 0 ? port_open("cella.agent") : vsock_socket();
    if (port < 0)
        return port;
    r = cell_start(&b, agent_fd, port, &control_fd);
    close(port);
    if (r < 0)
        return r;
    agent_pid = r;
    close_fd(&agent_fd);
    step(CELLA_GUEST_STEP_CELL);
    put_bytes(out, CELLA_TAG_STEPS, steps, sizeof(steps));
    return 0;
}

static int op_freeze(uint8_t *payload, size_t len, struct fields *out)
{
    int r;

    (void)payload;
    (void)len;
    (void)out;
    modules_load(MODULES_COPY); /* copies find them loaded */
    r = group_freeze(1);
    return r == 0 ? net_silence(1) : r;
}

static int op_thaw(uint8_t *payload, size_t len, struct fields *out)
{
    int r = net_silence(0);

    (void)payload;
    (void)len;
    (void)out;
    return r == 0 ? group_freeze(0) : r;
}

/* The agent is frozen: what it is told waits for it. */
static int op_settle(uint8_t *payload, size_t len, struct fields *out)
{
    struct identity id;
    int r = identity_parse(payload, len, &id);

    (void)out;
    if (r == 0)
        r = net_silence(1); /* it is; but all that follows rests on it */
    if (r == 0)
        r = identity_apply(&id);
    if (r == 0 && send(control_fd, id.nonce, sizeof(id.nonce), MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        r = blame(errno, "cannot tell the agent of its new link", NULL);
    return r;
}

static int op_clock(uint8_t *payload, size_t len, struct fields *out)
{
    struct identity id;
    int r = clock_parse(payload, len, &id);

    (void)out;
    return r == 0 ? clock_apply(&id) : r;
}

static int op_usage(uint8_t *payload, size_t len, struct fields *out)
{
    (void)payload;
    (void)len;
    group_usage(out);
    return 0;
}

static int op_resize(uint8_t *payload, size_t len, struct fields *out)
{
    uint64_t v;
    uint32_t cpus;
    int r = 0;

    (void)out;
    if (get_u32(payload, len, CELLA_TAG_CPUS, &cpus) == 0)
        r = cpus_online(cpus);
    if (r == 0 && get_u64(payload, len, CELLA_TAG_PIDS, &v) == 0)
        r = group_pids(v);
    if (r == 0 && get_u64(payload, len, CELLA_TAG_MEMORY, &v) == 0)
        r = group_memory(v);
    return r;
}

static int op_show(uint8_t *payload, size_t len, struct fields *out)
{
    const uint8_t *content = NULL, *name = NULL;
    size_t pos = 0, n = 0, name_len = 0;
    uint64_t offset = 0, size;
    char text[64] = "";
    struct field f;

    (void)out;
    while (field_next(payload, len, &pos, &f) > 0) {
        if (f.tag == CELLA_TAG_CONTENT) {
            content = f.p;
            n = f.len;
        } else if (f.tag == CELLA_TAG_NAME) {
            name = f.p;
            name_len = f.len;
        }
    }
    if (!content || !name || !name_ok((const char *)name, name_len) ||
        get_u64(payload, len, CELLA_TAG_OFFSET, &offset) < 0)
        return blame(EINVAL, "SHOW needs NAME, OFFSET and CONTENT", NULL);
    memcpy(text, name, name_len);
    if (get_u64(payload, len, CELLA_TAG_SIZE, &size) < 0)
        size = offset + n;
    return shown_write(text, offset, size, content, n);
}

static int op_poweroff(uint8_t *payload, size_t len, struct fields *out)
{
    (void)payload;
    (void)len;
    (void)out;
    power_off();
}

static int hello(void)
{
    struct fields f = {0};

    put_u32(&f, CELLA_TAG_VERSION, CELLA_LINK_VERSION);
    put_u32(&f, CELLA_TAG_PID, 1);
    out_frame(CELLA_FRAME_HELLO, 0, 0, f.b, f.len);
    return 0;
}

/* Answered by the nonce and HELLO. */
static void reset(uint8_t *payload, size_t len)
{
    size_t pos = 0;
    struct field f;

    while (field_next(payload, len, &pos, &f) > 0)
        if (f.tag == CELLA_TAG_NONCE && f.len == CELLA_GUEST_NONCE)
            out_anew(f.p);
    hello();
}

static const struct {
    uint32_t op;
    int needs_agent;
    int (*run)(uint8_t *payload, size_t len, struct fields *out);
} ops[] = {{CELLA_GUEST_BOOT, 0, op_boot},        {CELLA_GUEST_FREEZE, 1, op_freeze},
           {CELLA_GUEST_SETTLE, 1, op_settle},    {CELLA_GUEST_THAW, 1, op_thaw},
           {CELLA_GUEST_USAGE, 1, op_usage},      {CELLA_GUEST_RESIZE, 1, op_resize},
           {CELLA_GUEST_SHOW, 0, op_show},        {CELLA_GUEST_CLOCK, 1, op_clock},
           {CELLA_GUEST_POWEROFF, 0, op_poweroff}};

static int op_run(uint32_t op, uint8_t *payload, size_t len, struct fields *out)
{
    size_t i;

    for (i = 0; i < ARRAY_LEN(ops); i++)
        if (ops[i].op == op)
            return ops[i].needs_agent && !agent_pid ? blame(EPROTO, "BOOT comes first", NULL)
                                                    : ops[i].run(payload, len, out);
    return blame(EOPNOTSUPP, "this guest does not know the request", NULL);
}

void on_frame(const struct cella_frame *f, uint8_t *payload)
{
    struct fields out = {0};
    uint32_t op = 0;
    int r;

    if (f->type != CELLA_FRAME_OPEN || f->channel || !f->stream ||
        get_u32(payload, f->length, CELLA_TAG_OP, &op) < 0)
        leave(2);
    if (op == CELLA_GUEST_RESET) {
        reset(payload, f->length);
        return;
    }
    r = op_run(op, payload, f->length, &out);
    if (r < 0) {
        out = (struct fields){0};
        put_u32(&out, CELLA_TAG_ERRNO, (uint32_t)-r);
        put_bytes(&out, CELLA_TAG_MESSAGE, words, strlen(words));
    }
    out_frame(r < 0 ? CELLA_FRAME_ERROR : CELLA_FRAME_RESULT, 0, f->stream, out.b, out.len);
}

/* ---- start ---- */

/* The program runs from memory that nobody can change, and the archive's copy of it is freed. */
static int agent_take(void)
{
    int file = open("/agent", O_RDONLY | O_CLOEXEC), mem;
    static char buf[65536];
    ssize_t n = -1;

    mem = (int)syscall(SYS_memfd_create, "cella-agent", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    while (file >= 0 && mem >= 0 && (n = read(file, buf, sizeof(buf))) > 0)
        if (write(mem, buf, (size_t)n) != n)
            return blame(errno, "cannot copy the agent to memory", NULL);
    if (n < 0 ||
        fcntl(mem, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0)
        return blame(errno, "cannot read or seal the agent", NULL);
    close(file);
    unlink("/agent");
    return mem;
}

static void start_or_die(int r)
{
    if (r >= 0)
        return;
    errno = -r;
    say(words, NULL);
    power_off();
}

static int signals(void)
{
    sigset_t set;

    sigfillset(&set);
    sigprocmask(SIG_SETMASK, &set, NULL);
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static void reap(int sigfd)
{
    struct signalfd_siginfo si;
    int status;
    pid_t pid;

    while (read(sigfd, &si, sizeof(si)) == (ssize_t)sizeof(si))
        ;
    while ((pid = waitpid(-1, &status, WNOHANG | __WALL)) > 0)
        if (pid == agent_pid)
            power_off(); /* the cell has ended */
}

/* The host is at a port: its connection is the link from now on. */
static void port_taken(int agent)
{
    int fd = vsock_accept(listeners[!agent]);

    if (fd < 0)
        return;
    if (!agent) {
        link_take(fd);
        return;
    }
    if (vsock_pass(control_fd, fd) < 0)
        say("cannot give the agent its link", NULL);
    close(fd);
}

static int patience(int idle)
{
    if (link_fd() < 0 && listeners[1] < 0)
        return LINK_AWAY_MS;
    return agent_pid && !idle ? IDLE_MS : -1;
}

static _Noreturn void serve(int sigfd)
{
    int idle = 0, n;

    for (;;) {
        struct pollfd set[4] = {{link_fd(), 0, 0},
                                {sigfd, POLLIN, 0},
                                {listeners[1], POLLIN, 0},
                                {agent_pid ? listeners[0] : -1, POLLIN, 0}};
        set[0].events = (short)(POLLIN | (out_pending() ? POLLOUT : 0));
        n = poll(set, ARRAY_LEN(set), patience(idle));
        if (n < 0 && errno != EINTR)
            leave(125);
        if (n == 0 && agent_pid && !idle) {
            idle = 1;
            modules_load(MODULES_IDLE);
        }
        if (set[1].revents)
            reap(sigfd);
        if (set[2].revents)
            port_taken(0);
        if (set[3].revents)
            port_taken(1);
        link_look();
        if (set[0].revents & (POLLIN | POLLHUP | POLLERR) && !set[2].revents)
            in_read();
        out_flush();
    }
}

/* Serial ports, or sockets. */
static int ports_find(void)
{
    if (!virtio_has(VIRTIO_ID_VSOCK)) {
        modules_load(MODULES_PORTS);
        return port_open("cella.guest");
    }
    modules_load(MODULES_VSOCK);
    listeners[0] = vsock_listen(CELLA_GUEST_VSOCK_AGENT);
    listeners[1] = listeners[0] < 0 ? listeners[0] : vsock_listen(CELLA_GUEST_VSOCK_GUEST);
    return listeners[1] < 0 ? listeners[1] : vsock_socket();
}

int main(void)
{
    int sigfd, port;

    if (getpid() != 1) {
        static const char msg[] = "cella-guest: this is process 1 of a guest machine; it is not "
                                  "run by hand.\n";
        return write(2, msg, sizeof(msg) - 1) < 0 ? 125 : 125;
    }
    step(CELLA_GUEST_STEP_KERNEL);
    umask(022);
    system_mounts();
    write_text("/proc/self/oom_score_adj", "-1000");
    modules_load(MODULES_START);
    step(CELLA_GUEST_STEP_DRIVERS);
    start_or_die(agent_fd = agent_take());
    start_or_die(state_make());
    start_or_die(port = ports_find());
    agent_fd = fcntl(agent_fd, F_DUPFD_CLOEXEC, 16);
    if (port != LINK_FD && dup3(port, LINK_FD, O_CLOEXEC) < 0)
        start_or_die(blame(errno, "descriptors", NULL));
    sigfd = signals();
    link_init();
    step(CELLA_GUEST_STEP_PORTS);
    hello();
    serve(sigfd);
}
