/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * The network as programs look at it: devices, addresses, lists of sockets, names of both ends, a process by its directory.
 * On the host it runs in a network namespace of its own in which lo is up, which is what a cell has.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/capability.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "say.h"

static void alone(void)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[2] = {{0}};
    struct ifreq ifr = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    int fd = -1;

    if (!unshare(CLONE_NEWUSER | CLONE_NEWNET))
        fd = socket(AF_INET, SOCK_DGRAM, 0);
    if (fd < 0)
        return;
    ioctl(fd, SIOCSIFFLAGS, &ifr);
    close(fd);
    syscall(SYS_capset, &head, none);
}

static void say_address(const char *what, const struct sockaddr *address)
{
    const struct sockaddr_in *four = (const void *)address;
    const struct sockaddr_in6 *six = (const void *)address;
    char text[64] = "none";

    if (address && address->sa_family == AF_INET)
        inet_ntop(AF_INET, &four->sin_addr, text, sizeof(text));
    if (address && address->sa_family == AF_INET6)
        inet_ntop(AF_INET6, &six->sin6_addr, text, sizeof(text));
    printf("%s %d %s\n", what, address ? address->sa_family : -1, text);
}

static void devices(void)
{
    struct if_nameindex *names = if_nameindex(), *n;
    struct ifaddrs *list, *at;
    char name[IF_NAMESIZE] = "";

    for (n = names; n && n->if_index; n++)
        printf("device %u %s\n", n->if_index, n->if_name);
    say("getifaddrs", getifaddrs(&list));
    for (at = list; at; at = at->ifa_next) {
        printf("%s %x\n", at->ifa_name, at->ifa_flags);
        say_address("address", at->ifa_addr);
        say_address("mask", at->ifa_netmask);
    }
    say_value("nametoindex", if_nametoindex("lo"));
    say_value("nametoindex", if_nametoindex("eth9"));
    if_indextoname(1, name);
    printf("indextoname %s\n", name);
}

static void say_end(const char *what, int fd)
{
    struct sockaddr_storage name;
    socklen_t length = sizeof(name);

    say(what, getsockname(fd, (void *)&name, &length));
    say_address("is", (void *)&name);
    say_value("has a port", ((struct sockaddr_in *)&name)->sin_port != 0);
}

/* A datagram socket that looks at several peers, as getaddrinfo() does when it sorts. */
static void reconnect(int family, int bound)
{
    struct sockaddr_in four = {
        .sin_family = AF_INET, .sin_port = htons(9), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_in6 six = {
        .sin6_family = AF_INET6, .sin6_port = htons(9), .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    int fd = socket(family, SOCK_DGRAM, 0);

    if (bound && family == AF_INET) {
        four.sin_port = 0;
        say("bind", bind(fd, (void *)&four, sizeof(four)));
        four.sin_port = htons(9);
    }
    if (family == AF_INET6)
        say("connect", connect(fd, (void *)&six, sizeof(six)));
    say_end("first", fd);
    say("forget", connect(fd, &none, sizeof(none)));
    say_end("forgotten", fd);
    say("connect", connect(fd, (void *)&four, sizeof(four)));
    say_end("second", fd);
    say("forget", connect(fd, &none, sizeof(none)));
    say_end("forgotten", fd);
    say("send", sendto(fd, "x", 1, 0, (void *)&four, sizeof(four)));
    say_end("sent", fd);
    close(fd);
}

static int lines_with(const char *path, const char *words)
{
    char line[512];
    FILE *file = fopen(path, "r");
    int n = 0;

    while (file && fgets(line, sizeof(line), file))
        n += strstr(line, words) != NULL;
    if (file)
        fclose(file);
    return n;
}

static void lists(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons(0x1b62),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_un u = {.sun_family = AF_UNIX, .sun_path = "\0differential-network"};
    int l = socket(AF_INET, SOCK_STREAM, 0), c = socket(AF_INET, SOCK_STREAM, 0),
        d = socket(AF_INET, SOCK_DGRAM, 0), x = socket(AF_UNIX, SOCK_STREAM, 0), s;

    say("bind", bind(l, (void *)&a, sizeof(a)));
    say("listen", listen(l, 5));
    say("bind", bind(d, (void *)&a, sizeof(a)));
    say("bind", bind(x, (void *)&u, sizeof(u)));
    say("listen", listen(x, 5));
    say("connect", connect(c, (void *)&a, sizeof(a)));
    s = accept(l, NULL, NULL);
    send(c, "abc", 3, 0);
    say_value("listening",
              lines_with("/proc/net/tcp", " 0100007F:1B62 00000000:0000 0A 00000000:00000000 "));
    say_value("accepted", lines_with("/proc/net/tcp", " 0100007F:1B62 0100007F:"));
    say_value("waiting", lines_with("/proc/net/tcp", " 01 00000000:00000003 "));
    say_value("connected", lines_with("/proc/net/tcp", ":1B62 01 "));
    say_value("datagrams", lines_with("/proc/net/udp", " 0100007F:1B62 00000000:0000 07 "));
    say_value("unix", lines_with("/proc/net/unix", " 00010000 0001 01 "));
    say_value("unix", lines_with("/proc/net/unix", "@differential-network"));
    say_value("devices", lines_with("/proc/net/dev", ":"));
    say_value("addresses",
              lines_with("/proc/net/if_inet6", "00000000000000000000000000000001 01 80 10 80"));
    say_value("mtu", lines_with("/sys/class/net/lo/mtu", "65536"));
    close(s);
}

/* What is sent to an end that has closed: the first still goes out. */
static void after_close(int shut)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(a);
    int l = socket(AF_INET, SOCK_STREAM, 0), c = socket(AF_INET, SOCK_STREAM, 0), s, i, error = -1;
    struct pollfd p;
    char byte;

    say("bind", bind(l, (void *)&a, sizeof(a)));
    say("listen", listen(l, 5));
    getsockname(l, (void *)&a, &length);
    say("connect", connect(c, (void *)&a, sizeof(a)));
    s = accept(l, NULL, NULL);
    if (shut)
        say("shutdown", shutdown(c, SHUT_WR));
    say("close", close(c));
    p = (struct pollfd){.fd = s, .events = POLLIN | POLLOUT | POLLRDHUP};
    poll(&p, 1, 1000);
    say_value("ready", p.revents);
    say("send", send(s, "hello", 5, MSG_NOSIGNAL));
    poll(&p, 1, 1000);
    say_value("ready", p.revents);
    for (i = 0; i < 2; i++)
        say("recv", recv(s, &byte, 1, MSG_DONTWAIT));
    for (i = 0; i < 2; i++)
        say("send", send(s, "hello", 5, MSG_NOSIGNAL));
    length = sizeof(error);
    getsockopt(s, SOL_SOCKET, SO_ERROR, &error, &length);
    say_value("error", error);
    say("recv", recv(s, &byte, 1, MSG_DONTWAIT));
    close(s);
    close(l);
}

static void by_directory(void)
{
    char path[40];
    pid_t pid = fork();
    int fd, status = 0;

    if (!pid) {
        pause();
        _exit(0);
    }
    snprintf(path, sizeof(path), "/proc/%d", pid);
    fd = open(path, O_RDONLY | O_DIRECTORY);
    say("signal 0", syscall(SYS_pidfd_send_signal, fd, 0, NULL, 0));
    say("signal", syscall(SYS_pidfd_send_signal, fd, SIGTERM, NULL, 0));
    waitpid(pid, &status, 0);
    say_value("ended by", WTERMSIG(status));
    say("gone", syscall(SYS_pidfd_send_signal, fd, 0, NULL, 0));
    fd = open("/proc/self/fd", O_RDONLY | O_DIRECTORY);
    say("another directory", syscall(SYS_pidfd_send_signal, fd, 0, NULL, 0));
    fd = open("/", O_RDONLY | O_DIRECTORY);
    say("the root", syscall(SYS_pidfd_send_signal, fd, 0, NULL, 0));
}

int main(void)
{
    setvbuf(stdout, NULL, _IONBF, 0);
    alone();
    devices();
    reconnect(AF_INET6, 0);
    reconnect(AF_INET, 0);
    reconnect(AF_INET, 1);
    lists();
    after_close(0);
    after_close(1);
    by_directory();
    return 0;
}
