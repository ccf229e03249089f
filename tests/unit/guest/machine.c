/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* Builds and runs the machine of machine.h in a directory of its own. Threads: one. */
#include <fcntl.h>
#include <glob.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "initrd.h"
#include "machine.h"

#define HELLO_MS 120000

static const char *const modules[] = {"net/core/failover",      "drivers/net/net_failover",
                                      "drivers/net/virtio_net", "drivers/block/virtio_blk",
                                      "lib/libcrc32c",          "fs/erofs/erofs",
                                      "fs/overlayfs/overlay",   "net/ipv4/inet_diag",
                                      "net/ipv4/tcp_diag",      "net/ipv4/udp_diag"};

static char *cache(char buf[300])
{
    const char *lab = getenv("LAB_CACHE"), *home = getenv("HOME");

    snprintf(buf, 300, "%s%s/kernel",
             lab    ? lab
             : home ? home
                    : "/root",
             lab ? "" : "/.cache/cella-lab");
    return buf;
}

const char *machine_missing(void)
{
    static const char *const tools[] = {"/usr/bin/qemu-system-x86_64", "/usr/bin/mkfs.erofs",
                                        "/usr/sbin/mkfs.ext4", "/usr/bin/busybox"};
    char path[300];
    size_t i;

    for (i = 0; i < ARRAY_LEN(tools); i++)
        if (access(tools[i], X_OK) < 0)
            return tools[i];
    strcat(cache(path), "/vmlinuz");
    return access(path, R_OK) < 0 ? "the lab's kernel (tests/lab/lab-vm fetches it)" : NULL;
}

static int sh(const char *script, const char *dir)
{
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        execl("/bin/sh", "sh", "-ec", script, "sh", dir, (char *)NULL);
        _exit(127);
    }
    waitpid(pid, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EIO;
}

static int files_make(struct machine *m)
{
    return sh(
        "cd \"$1\"; mkdir -p root/bin root/etc root/proc root/sys root/dev root/run root/root;"
        "cp /usr/bin/busybox root/bin/;"
        "for a in sh cat ls id echo sleep hostname ip nc wc head date touch rm dd mount ps "
        "kill grep stat sha256sum yes nproc sort mkfifo; do ln -s busybox root/bin/$a; done;"
        "echo root:x:0:0::/root:/bin/sh >root/etc/passwd; echo old >root/etc/bundle;"
        "ln -s ../run/nowhere root/etc/resolv.conf; chown -R 0:0 root;"
        "mkfs.erofs root.erofs root >/dev/null 2>&1; truncate -s 24M rw;"
        "mkfs.ext4 -q -m 0 -O ^has_journal rw",
        m->dir);
}

static int initrd_make(struct machine *m)
{
    char base[300], pattern[400], path[400];
    const char *list[ARRAY_LEN(modules)];
    struct errbuf eb;
    glob_t g;
    size_t i;
    int r = 0;

    snprintf(pattern, sizeof(pattern), "%s/lib/modules/*/kernel", cache(base));
    if (glob(pattern, 0, NULL, &g) != 0)
        return -ENOENT;
    for (i = 0; i < ARRAY_LEN(modules); i++) {
        snprintf(path, sizeof(path), "%s/%s.ko", g.gl_pathv[0], modules[i]);
        list[i] = strdup(path);
    }
    globfree(&g);
    snprintf(path, sizeof(path), "%s/initrd", m->dir);
    auto_close int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    r = initrd_write(fd, GUEST_PROGRAM, AGENT_PROGRAM, list, ARRAY_LEN(list), errbuf_init(&eb));
    if (r < 0)
        fprintf(stderr, "%s\n", eb.text);
    for (i = 0; i < ARRAY_LEN(modules); i++)
        free((void *)(uintptr_t)list[i]);
    return r;
}

static void qemu(const struct machine *m)
{
    char kernel[320], console[128], dump[128], sock[2][128], disk[2][160];
    int log;

    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (chdir(m->dir) < 0)
        _exit(127);
    strcat(cache(kernel), "/vmlinuz");
    snprintf(console, sizeof(console), "file:%s/console", m->dir);
    snprintf(sock[0], 128, "socket,id=p0,path=%s/cella.agent,server=on,wait=off", m->dir);
    snprintf(sock[1], 128, "socket,id=p1,path=%s/cella.guest,server=on,wait=off", m->dir);
    snprintf(disk[0], 160, "file=%s/root.erofs,if=none,id=d0,format=raw,readonly=on", m->dir);
    snprintf(disk[1], 160, "file=%s/rw,if=none,id=d1,format=raw", m->dir);
    snprintf(dump, sizeof(dump), "filter-dump,id=f0,netdev=n0,file=%s/packets", m->dir);
    log = open("qemu.log", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    dup2(log, 1);
    dup2(log, 2);
    execl("/usr/bin/qemu-system-x86_64", "qemu", "-M", "q35", "-accel", "tcg", "-cpu",
          "qemu64,+ssse3,+sse4.1,+sse4.2", "-m", "192M", "-nodefaults", "-no-user-config",
          "-display", "none", "-no-reboot", "-serial", console, "-kernel", kernel, "-initrd",
          "initrd", "-append", "console=ttyS0 quiet loglevel=4 panic=-1 cella=1 mitigations=off",
          "-drive", disk[1], "-device", "virtio-blk-pci,drive=d1,serial=cella-rw", "-drive",
          disk[0], "-device", "virtio-blk-pci,drive=d0,serial=cella-root", "-device",
          "virtio-serial-pci", "-chardev", sock[1], "-device",
          "virtserialport,chardev=p1,name=cella.guest", "-chardev", sock[0], "-device",
          "virtserialport,chardev=p0,name=cella.agent", "-netdev", "user,id=n0,restrict=on",
          "-object", dump, "-device", "virtio-net-pci,netdev=n0,mac=52:54:00:00:00:01",
          (char *)NULL);
    _exit(127);
}

int machine_connect(struct machine *m, const char *port)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), tries;

    snprintf(a.sun_path, sizeof(a.sun_path), "%s/%s", m->dir, port);
    for (tries = 0; tries < 3000; tries++) {
        if (connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0)
            return fd;
        usleep(20000);
    }
    close(fd);
    return -ETIMEDOUT;
}

static void on_ready(void *ctx)
{
    ((struct machine *)ctx)->ready = 1;
}

static void on_closed(void *ctx, int code, const char *why)
{
    struct machine *m = ctx;

    m->closed = 1;
    m->closed_code = code;
    snprintf(m->why, sizeof(m->why), "%s", why);
}

static const struct guest_events guest_events = {on_ready, on_closed};

int machine_guest(struct machine *m, int own_fd)
{
    m->ready = 0;
    if (own_fd < 0 || guest_new(m->cell.loop, own_fd, &guest_events, m, &m->guest) < 0)
        return -EIO;
    return cell_wait(&m->cell, &m->ready, HELLO_MS);
}

static void agent_hello(void *ctx, uint32_t version)
{
    ((struct cell *)ctx)->hello = (int)version;
}

static void agent_closed(void *ctx, int code, const char *why)
{
    struct cell *c = ctx;

    c->closed = 1;
    c->closed_code = code;
    snprintf(c->why, sizeof(c->why), "%s", why);
}

static const struct link_events agent_events = {agent_hello, agent_closed};

int machine_agent(struct machine *m, const uint8_t *skip)
{
    int fd = machine_connect(m, "cella.agent");
    struct errbuf eb;

    m->cell.hello = m->cell.closed = 0;
    if (fd >= 0 && skip && guest_skip(fd, skip, 60000000000ull, errbuf_init(&eb)) < 0) {
        fprintf(stderr, "%s\n", eb.text);
        close(fd);
        return -EIO;
    }
    if (fd < 0 || link_new(m->cell.loop, fd, &agent_events, &m->cell, &m->cell.link) < 0)
        return -EIO;
    return cell_wait(&m->cell, &m->cell.hello, HELLO_MS);
}

int machine_start(struct machine *m)
{
    int r;

    *m = (struct machine){0};
    strcpy(m->dir, "/tmp/cella-machine.XXXXXX");
    if (!mkdtemp(m->dir))
        return -errno;
    signal(SIGPIPE, SIG_IGN);
    r = files_make(m);
    if (r == 0)
        r = initrd_make(m);
    if (r < 0 || loop_new(&m->cell.loop) < 0)
        return r < 0 ? r : -ENOMEM;
    m->pid = fork();
    if (m->pid == 0)
        qemu(m);
    return machine_guest(m, machine_connect(m, "cella.guest"));
}

void machine_stop(struct machine *m)
{
    link_free(m->cell.link);
    guest_free(m->guest);
    loop_free(m->cell.loop);
    if (m->pid > 0) {
        kill(m->pid, SIGKILL);
        waitpid(m->pid, NULL, 0);
    }
    if (m->dir[0])
        remove_tree_at(AT_FDCWD, m->dir);
}

void machine_console(const struct machine *m)
{
    static const char *const files[] = {"console", "qemu.log"};
    size_t i;

    for (i = 0; i < 2; i++) {
        auto_free char *path = path_join(m->dir, files[i]), *text = NULL;
        size_t len = 0;
        if (read_file_at(AT_FDCWD, path, 1 << 20, &text, &len) == 0)
            fprintf(stderr, "%s: %s\n", files[i], len > 3000 ? text + len - 3000 : text);
    }
}

size_t machine_packets(const struct machine *m, uint32_t src)
{
    auto_free char *path = path_join(m->dir, "packets"), *text = NULL;
    size_t len, at, n = 0;
    uint32_t size, from;

    if (read_file_at(AT_FDCWD, path, 64 << 20, &text, &len) < 0)
        return 0;
    for (at = 24; at + 16 <= len; at += 16 + size) {
        memcpy(&size, text + at + 8, 4);
        if (size < 42 || at + 16 + size > len)
            continue;
        memcpy(&from, text + at + 16 + (text[at + 16 + 13] == 6 ? 28 : 26), 4); /* ARP, IPv4 */
        n += from == src;
    }
    return n;
}

void identity_fields(struct buf *b, const struct who *w, const uint8_t *nonce)
{
    uint8_t bytes[64], mac[6] = {0x52, 0x54, 0, 0, 0, w->mac_last};

    memset(bytes, w->seed, sizeof(bytes));
    field_add_u64(b, CELLA_TAG_EPOCH_NS, wall_ns());
    field_add(b, CELLA_TAG_ENTROPY, bytes, 64);
    field_add_str(b, CELLA_TAG_HOSTNAME, w->hostname);
    field_add(b, CELLA_TAG_MACHINE_ID, bytes, 16);
    field_add(b, CELLA_TAG_BOOT_ID, bytes, 16);
    field_add_u64(b, CELLA_TAG_GENERATION, w->generation);
    if (nonce)
        field_add(b, CELLA_TAG_NONCE, nonce, CELLA_GUEST_NONCE);
    field_add(b, CELLA_TAG_MAC, mac, 6);
    field_add_str(b, CELLA_TAG_ADDRESS, w->address);
    field_add_str(b, CELLA_TAG_GATEWAY, w->gateway);
}
