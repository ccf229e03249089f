/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * stage - plays plugin and gate to one cella-gate-http, for test_http.py.
 *
 *   stage ENGINE RULES ROOTS NAME:PORT:UPSTREAM[:plain] ...
 *
 * Listens on 203.0.113.2:PORT for what would be the cell, dials 203.0.113.1:UPSTREAM, and hands both to the
 * engine as a flow of NAME. RULES has one rule a line: "id=a host=h ports=443 methods=GET,POST paths=/x
 * ws=1 inject=SECRET:header:NAME:PLACEHOLDER:REQUIRE:PREFIX". Commands on stdin: "secret NAME VALUE", "publish RULES",
 * "flush". Says one JSON object a line. Runs in a network namespace its caller made.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ctl.h"
#include "engine.h"
#include "table.h"

#define NAMES 16

struct door {
    char name[128];
    int fd, tls;
    uint16_t upstream;
};

static struct door doors[NAMES];
static int n_doors, ctl, flows;
static uint64_t generation;
static uint32_t ids;

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static int send_with(int sock, const void *p, size_t n, const int *fds, int nfds)
{
    union {
        char b[CMSG_SPACE(2 * sizeof(int))];
        struct cmsghdr align;
    } c = {0};
    struct iovec iov = {(void *)(uintptr_t)p, n};
    struct msghdr h = {.msg_iov = &iov, .msg_iovlen = 1};
    struct cmsghdr *m;

    if (nfds) {
        h.msg_control = &c;
        h.msg_controllen = CMSG_SPACE((size_t)nfds * sizeof(int));
        m = CMSG_FIRSTHDR(&h);
        m->cmsg_level = SOL_SOCKET;
        m->cmsg_type = SCM_RIGHTS;
        m->cmsg_len = CMSG_LEN((size_t)nfds * sizeof(int));
        memcpy(CMSG_DATA(m), fds, (size_t)nfds * sizeof(int));
    }
    return sendmsg(sock, &h, MSG_NOSIGNAL) < 0 ? -1 : 0;
}

static uint32_t method_bit(const char *m)
{
    static const char *const names[] = {"GET",    "HEAD",    "POST",  "PUT",
                                        "DELETE", "OPTIONS", "PATCH", "TRACE"};
    unsigned i;

    for (i = 0; i < 8; i++)
        if (!strcmp(m, names[i]))
            return 1u << i;
    return 0;
}

static void rule_inject(struct policy_inject *in, char *v)
{
    char *part[6] = {"", "", "", "", "", ""};
    int i;

    for (i = 0; i < 6 && v; i++)
        part[i] = strsep(&v, ":");
    in->secret = part[0];
    in->surface = strcmp(part[1], "basic") ? POLICY_SURFACE_HEADER : POLICY_SURFACE_BASIC;
    in->name = part[2];
    in->placeholder = part[3];
    in->require = *part[4] == '1';
    in->prefix = part[5];
    for (v = part[5]; *v; v++)
        if (*v == '_')
            *v = ' ';
}

static void rule_add(struct policy_builder *b, char *line)
{
    static struct policy_ports ports[8];
    static const char *paths[8];
    static struct policy_inject inject[4];
    struct policy_rule r = {.kind = POLICY_EXACT,
                            .verdict = POLICY_ALLOW,
                            .proto = POLICY_TCP,
                            .layer = POLICY_HTTP,
                            .ports = ports,
                            .path = paths,
                            .inject = inject,
                            .id = "r",
                            .host = ""};
    char *word, *v, *one;

    memset(inject, 0, sizeof(inject));
    while ((word = strsep(&line, " \n"))) {
        v = strchr(word, '=');
        if (!v)
            continue;
        *v++ = 0;
        if (!strcmp(word, "id"))
            r.id = v;
        else if (!strcmp(word, "host"))
            r.host = v;
        else if (!strcmp(word, "ws"))
            r.websocket = 1;
        else if (!strcmp(word, "deny"))
            r.verdict = POLICY_DENY, r.layer = POLICY_RAW;
        else if (!strcmp(word, "ports"))
            while ((one = strsep(&v, ",")))
                ports[r.n_ports].lo = ports[r.n_ports].hi = (uint16_t)atoi(one), r.n_ports++;
        else if (!strcmp(word, "methods"))
            while ((one = strsep(&v, ",")))
                r.methods |= method_bit(one);
        else if (!strcmp(word, "paths"))
            while ((one = strsep(&v, ",")))
                paths[r.n_paths++] = one;
        else if (!strcmp(word, "inject"))
            rule_inject(&inject[r.n_inject++], v);
    }
    policy_builder_rule(b, &r);
}

static int table_fd(const char *path)
{
    struct policy_head head = {.n_strata = 1, .generation = ++generation};
    struct policy_builder *b = policy_builder_new(&head);
    struct policy_table t;
    char line[2048];
    void *bytes;
    size_t len;
    FILE *f = fopen(path, "re");
    int fd, r;

    if (!f)
        die(path);
    while (fgets(line, sizeof(line), f))
        if (strlen(line) > 1)
            rule_add(b, line);
    fclose(f);
    r = policy_builder_finish(b, &t);
    if (r < 0 || policy_table_save(&t, &bytes, &len) < 0) {
        fprintf(stderr, "stage: the rules do not make a table: %s\n", strerror(-r));
        exit(1);
    }
    fd = memfd_create("table", MFD_CLOEXEC);
    if (fd < 0 || write(fd, bytes, len) != (ssize_t)len)
        die("memfd");
    free(bytes);
    policy_table_fini(&t);
    return fd;
}

static pid_t engine_start(char **argv, int roots)
{
    int c[2], f[2], table = table_fd(argv[2]);
    pid_t pid;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, c) < 0 ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, f) < 0)
        die("socketpair");
    ctl = c[0];
    flows = f[0];
    pid = fork();
    if (pid == 0) {
        char *args[] = {argv[1], getenv("CA_NAMES"), NULL}, *env[] = {NULL};
        int from[] = {c[1], table, f[1], roots}, high[4], i;
        for (i = 0; i < 4; i++)
            high[i] = fcntl(from[i], F_DUPFD_CLOEXEC, 50);
        dup2(high[0], FD_CTL);
        dup2(high[1], FD_POLICY);
        dup2(high[2], ENGINE_FD_FLOWS);
        dup2(high[3], ENGINE_FD_ROOTS);
        execve(argv[1], args, env);
        _exit(127);
    }
    close(c[1]);
    close(f[1]);
    close(table);
    return pid;
}

static int connect_to(uint16_t port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    inet_pton(AF_INET, "203.0.113.1", &a.sin_addr);
    if (connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0)
        return -1;
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

static void accept_one(struct door *d)
{
    struct engine_msg m = {.type = ENGINE_FLOW,
                           .id = ++ids,
                           .gen = generation,
                           .dst = 0xcb007101,
                           .port = d->upstream,
                           .tls = (uint16_t)d->tls};
    int fds[2];

    fds[0] = accept4(d->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    fds[1] = connect_to(d->upstream);
    snprintf(m.name, sizeof(m.name), "%s", d->name);
    if (fds[0] >= 0 && fds[1] >= 0 && send_with(flows, &m, sizeof(m), fds, 2) < 0)
        die("flow");
    close(fds[0]);
    if (fds[1] >= 0)
        close(fds[1]);
}

static void door_open(char *spec)
{
    struct door *d = &doors[n_doors++];
    struct sockaddr_in a = {.sin_family = AF_INET};
    int on = 1;

    snprintf(d->name, sizeof(d->name), "%s", strsep(&spec, ":"));
    a.sin_port = htons((uint16_t)atoi(strsep(&spec, ":")));
    d->upstream = (uint16_t)atoi(strsep(&spec, ":"));
    d->tls = !spec;
    inet_pton(AF_INET, "203.0.113.2", &a.sin_addr);
    d->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(d->fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(d->fd, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(d->fd, 64) < 0)
        die("listen");
}

static void say_pem(int fd)
{
    char pem[65536];
    ssize_t n = pread(fd, pem, sizeof(pem) - 1, 0), i;

    printf("{\"type\":\"up\",\"pem\":\"");
    for (i = 0; i < n; i++)
        pem[i] == '\n' ? (void)fputs("\\n", stdout) : (void)putchar(pem[i]);
    puts("\"}");
}

static void heard_ctl(void)
{
    struct ctl_msg m;
    union {
        char b[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } c;
    struct iovec iov = {&m, sizeof(m)};
    struct msghdr h = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &c, .msg_controllen = sizeof(c)};
    int fd;

    if (recvmsg(ctl, &h, MSG_CMSG_CLOEXEC) != (ssize_t)sizeof(m)) {
        puts("{\"type\":\"down\"}");
        exit(0);
    }
    if (m.type == CTL_UP && CMSG_FIRSTHDR(&h)) {
        memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&h)), sizeof(fd));
        say_pem(fd);
        close(fd);
        return;
    }
    printf("{\"type\":\"%s\",\"reason\":%u,\"rule\":\"%s\",\"name\":\"%s\",\"method\":\"%s\","
           "\"hash\":\"%s\","
           "\"gen\":%llu,\"killed\":%llu,\"suppressed\":%llu}\n",
           m.type == CTL_DENY        ? "deny"
           : m.type == CTL_PUBLISHED ? "published"
           : m.type == CTL_FLUSHED   ? "flushed"
                                     : "other",
           m.reason, m.rule, m.name, m.method, m.path_hash, (unsigned long long)m.gen,
           (unsigned long long)m.tx, (unsigned long long)m.suppressed);
}

static void heard_flows(void)
{
    struct engine_msg m;

    if (recv(flows, &m, sizeof(m), 0) != (ssize_t)sizeof(m))
        return;
    if (m.type == ENGINE_END)
        printf(
            "{\"type\":\"end\",\"id\":%u,\"reason\":%u,\"tx\":%llu,\"rx\":%llu,\"rule\":\"%s\"}\n",
            m.id, m.reason, (unsigned long long)m.tx, (unsigned long long)m.rx, m.rule);
}

static void command(char *line)
{
    struct engine_secret s = {.type = ENGINE_SECRET};
    struct ctl_msg m = {.type = CTL_FLUSH};
    char *verb = strsep(&line, " \n"), *a = line ? strsep(&line, " \n") : NULL;
    int fd;

    if (!strcmp(verb, "secret") && a && line) {
        line[strcspn(line, "\n")] = 0;
        snprintf(s.name, sizeof(s.name), "%s", a);
        s.len = (uint32_t)snprintf(s.value, sizeof(s.value), "%s", line);
        send(ctl, &s, offsetof(struct engine_secret, value) + s.len, 0);
    } else if (!strcmp(verb, "publish") && a) {
        m.type = CTL_PUBLISH;
        fd = table_fd(a);
        send_with(ctl, &m, sizeof(m), &fd, 1);
        close(fd);
    } else if (!strcmp(verb, "flush")) {
        send(ctl, &m, sizeof(m), 0);
    }
}

int main(int argc, char **argv)
{
    struct pollfd p[NAMES + 3];
    char line[9000];
    int i, roots;
    pid_t pid;

    if (argc < 5 || argc > NAMES + 4)
        return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    setvbuf(stdin, NULL, _IONBF, 0); /* poll must see what is left */
    roots = open(argv[3], O_RDONLY | O_CLOEXEC);
    pid = engine_start(argv, roots);
    printf("{\"type\":\"pid\",\"pid\":%d}\n", (int)pid);
    for (i = 4; i < argc; i++)
        door_open(argv[i]);
    for (;;) {
        p[0] = (struct pollfd){0, POLLIN, 0};
        p[1] = (struct pollfd){ctl, POLLIN, 0};
        p[2] = (struct pollfd){flows, POLLIN, 0};
        for (i = 0; i < n_doors; i++)
            p[3 + i] = (struct pollfd){doors[i].fd, POLLIN, 0};
        if (poll(p, 3 + (nfds_t)n_doors, -1) < 0)
            die("poll");
        if (p[0].revents) {
            if (!fgets(line, sizeof(line), stdin))
                return 0;
            command(line);
        }
        if (p[1].revents)
            heard_ctl();
        if (p[2].revents & POLLIN)
            heard_flows();
        for (i = 0; i < n_doors; i++)
            if (p[3 + i].revents)
                accept_one(&doors[i]);
    }
}
