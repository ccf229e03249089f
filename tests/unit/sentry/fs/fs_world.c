/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * fs_world - see fs_world.h. Each side is a process of its own, with a mount namespace and a tmpfs of its own.
 */
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fake_gofer.h"
#include "fake_platform.h"
#include "fs/vfs.h"
#include "fs_world.h"

bool ours, readonly_root;
uint64_t disk_limit;
static FILE *text;
static char place[32]; /* where a side mounts its tmpfs; removed after it */

/* ---- calls ---- */

#define CALL(name_, status_, note_) SYSCALL(name_);
#define REFUSE(name_, error_, note_)
#include "fs/calls.def"
#undef CALL
#undef REFUSE
#define CALL(name_, status_, note_) {SYS_##name_, sys_##name_},
#define REFUSE(name_, error_, note_)
static const struct {
    long number;
    syscall_function function;
} rows[] = {
#include "fs/calls.def"
    {-1, NULL},
};

int64_t call_(long number, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f)
{
    const uint64_t arguments[6] = {a, b, c, d, e, f};
    unsigned i;
    int64_t r;

    if (!ours) {
        r = syscall(number, a, b, c, d, e, f);
        return r < 0 ? -errno : r;
    }
    for (i = 0; rows[i].function; i++)
        if (rows[i].number == number)
            return rows[i].function(arguments);
    fail_msg("call %ld is none of fs/", number);
    return -ENOSYS;
}

void note(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vfprintf(text, format, arguments);
    va_end(arguments);
    fputc('\n', text);
}

uint64_t hash_bytes(const void *bytes, size_t size)
{
    uint64_t hash = 0xcbf29ce484222325ull;
    size_t i;

    for (i = 0; i < size; i++)
        hash = (hash ^ ((const unsigned char *)bytes)[i]) * 0x100000001b3ull;
    return hash;
}

/* Another one each time, as the host makes them. */
static void our_cred(uint32_t uid)
{
    struct cred *cred = arena_alloc(ARENA_CRED, sizeof(*cred));

    *cred = (struct cred){.refs = 1 << 20};
    cred->euid = cred->fsuid = cred->egid = cred->fsgid = uid;
    cred->cap_permitted = cred->cap_bounding = ~0ull;
    cred->cap_effective = uid ? 0 : ~0ull;
    current->cred = cred;
}

void become(uint32_t uid)
{
    if (ours) {
        our_cred(uid);
        return;
    }
    if (syscall(SYS_setresuid, -1, 0, -1) || syscall(SYS_setresgid, -1, 0, -1))
        abort();
    if (uid && (syscall(SYS_setresgid, -1, uid, -1) || syscall(SYS_setresuid, -1, uid, -1)))
        abort();
}

static void set_limit(int which, uint64_t value)
{
    struct rlimit limit = {value, RLIM_INFINITY};

    if (ours) {
        current->process->limits[which] = limit;
        return;
    }
    getrlimit((__rlimit_resource_t)which, &limit);
    limit.rlim_cur = value < limit.rlim_max ? value : limit.rlim_max;
    if (setrlimit((__rlimit_resource_t)which, &limit))
        abort();
}

void limit_files(uint64_t n)
{
    set_limit(RLIMIT_NOFILE, n);
}

void limit_size(uint64_t bytes)
{
    set_limit(RLIMIT_FSIZE, bytes);
}

/* ---- the whole tree ---- */

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void dump_file(const char *name, const struct stat *s)
{
    static char bytes[1 << 16];
    int64_t fd = call(SYS_open, name, O_RDONLY | O_NONBLOCK), got;
    uint64_t hash = 0;

    while (fd >= 0 && (got = call(SYS_read, fd, bytes, sizeof(bytes))) > 0)
        hash = hash * 31 + hash_bytes(bytes, (size_t)got);
    note("  content %llx %lld", (unsigned long long)hash, (long long)s->st_size);
    if (fd >= 0)
        call(SYS_close, fd);
}

static void dump(const char *directory)
{
    static char bytes[1 << 16];
    char *names[4096], name[5000], target[300];
    struct stat s;
    unsigned n = 0, i;
    int64_t fd = call(SYS_open, directory, O_RDONLY | O_DIRECTORY), got, at;

    while (fd >= 0 && (got = call(SYS_getdents64, fd, bytes, sizeof(bytes))) > 0)
        for (at = 0; at < got; at += *(uint16_t *)(bytes + at + 16))
            if (n < 4096 && strcmp(bytes + at + 19, ".") && strcmp(bytes + at + 19, ".."))
                names[n++] = strdup(bytes + at + 19);
    if (fd >= 0)
        call(SYS_close, fd);
    qsort(names, n, sizeof(*names), compare_names);
    for (i = 0; i < n; i++) {
        snprintf(name, sizeof(name), "%s/%s", directory, names[i]);
        free(names[i]);
        if (call(SYS_lstat, name, &s)) {
            note("%s: none", name);
            continue;
        }
        note("%s %o %u:%u links %u size %lld rdev %llx", name, s.st_mode, s.st_uid, s.st_gid,
             (unsigned)s.st_nlink, (long long)s.st_size, (unsigned long long)s.st_rdev);
        if (S_ISREG(s.st_mode))
            dump_file(name, &s);
        if (S_ISLNK(s.st_mode) && (got = call(SYS_readlink, name, target, sizeof(target))) >= 0)
            note("  -> %.*s", (int)got, target);
        if (S_ISDIR(s.st_mode) && strlen(name) < 4000)
            dump(name);
    }
}

void dump_tree(void)
{
    become(0);
    call(SYS_chdir, "/");
    dump("");
    dump("/");
}

/* ---- the two sides ---- */

static void populate_here(scenario populate)
{
    umask(0);
    if (populate)
        populate();
    umask(022);
}

static void make_place(scenario populate)
{
    if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
        mount("tmpfs", place, "tmpfs", 0, "mode=755") || chdir(place)) {
        perror("a tmpfs of the test's own");
        exit(3);
    }
    populate_here(populate);
}

static void host_side(scenario populate, scenario run)
{
    int null, fd;

    make_place(NULL);
    /* A node of its own: what is done to it must not be done to the host's. */
    null = mknod("null", S_IFCHR | 0666, makedev(1, 3)) ? -1 : open("null", O_RDWR);
    fchmod(null, 0666);
    if (null < 0 || unlink("null"))
        exit(3);
    populate_here(populate);
    for (fd = 0; fd < 3; fd++) /* as ours */
        dup2(null, fd);
    if (chroot(".")) {
        perror("chroot");
        exit(3);
    }
    if (syscall(SYS_setgroups, 0, NULL))
        exit(3);
    close_range(3, (unsigned)fileno(text) - 1, 0);
    signal(SIGXFSZ, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    run();
}

static void ignore_signals(void)
{
    struct process *process = current->process;
    unsigned i;

    process->sighand = arena_alloc(ARENA_SIGNAL, sizeof(*process->sighand));
    for (i = 0; i < SIGNALS; i++)
        process->sighand->actions[i].handler = (uintptr_t)SIG_IGN;
    TAILQ_INIT(&process->pending.queue);
    TAILQ_INIT(&current->pending.queue);
    waitq_init(&process->signal_waitq);
}

static void our_side(scenario populate, scenario run)
{
    struct gofer_attr attr = {0};
    struct fs_mount tmp = {"/tmp", 1 << 20};
    const char *null = "/dev/null";
    struct file *file;
    uint32_t root = 0;
    int fd;

    make_place(populate);
    fake_sentry(256ul << 20);
    all_tasks = arena_alloc(ARENA_BYTES, sizeof(*all_tasks));
    TAILQ_INIT(all_tasks);
    fake_task();
    our_cred(0);
    ignore_signals();
    if (populate)
        fake_gofer_root(place, &root, &attr);
    if (fs_setup(root, &attr, readonly_root, disk_limit, &tmp, 0))
        exit(4);
    current->fs = fsctx_new();
    current->files = fdtable_new();
    if (!readonly_root) { /* on the mount that the host's is on, and like it with no name */
        null = "/null";
        call(SYS_mknod, null, S_IFCHR | 0666, makedev(1, 3));
        call(SYS_chmod, null, 0666);
    }
    if (path_open(AT_FDCWD, null, O_RDWR, 0, &file))
        exit(4);
    for (fd = 0; fd < 3; fd++, file_get(file))
        if (fd_install(file, 0, 0) != fd)
            exit(4);
    file_put(file);
    call(SYS_unlink, null);
    while (!readonly_root &&
           (call(SYS_umount2, "/dev/shm", 0) == 0 || call(SYS_umount2, "/dev", MNT_DETACH) == 0))
        ;
    call(SYS_rmdir, "/dev/pts");
    call(SYS_rmdir, "/dev");
    call(SYS_rmdir, "/proc");
    call(SYS_rmdir, "/sys");
    run();
    fdtable_put(current->files);
    fsctx_put(current->fs);
}

static char *one_side(bool is_ours, scenario populate, scenario run)
{
    FILE *file = tmpfile();
    char *result;
    int status;
    long size;
    pid_t pid;

    strcpy(place, "/tmp/cella-test-fs-XXXXXX");
    if (!mkdtemp(place))
        abort();
    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        alarm(120); /* a call that waits for ever is a failure */
        ours = is_ours;
        text = fdopen(fcntl(fileno(file), F_DUPFD, 1000), "w");
        (ours ? our_side : host_side)(populate, run);
        fflush(text);
        _exit(0);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid || status) {
        print_error("%s ended with %x\n", is_ours ? "ours" : "the host's side", status);
        status = 1;
    }
    rmdir(place);
    fseek(file, 0, SEEK_END);
    size = ftell(file);
    rewind(file);
    result = calloc(1, (size_t)size + 64);
    if (!result || fread(result, 1, (size_t)size, file) != (size_t)size)
        abort();
    if (status)
        strcpy(result + size, is_ours ? "OURS DIED\n" : "HOST DIED\n");
    fclose(file);
    return result;
}

static void keep(const char *name, const char *text_)
{
    FILE *file = fopen(name, "w");

    if (file && fputs(text_, file) >= 0)
        fclose(file);
}

bool differs(scenario populate, scenario run)
{
    char *host = one_side(false, populate, run), *us = one_side(true, populate, run);
    bool result = strcmp(host, us) != 0;
    size_t i;

    if (result) {
        for (i = 0; host[i] == us[i]; i++)
            ;
        while (i > 0 && host[i - 1] != '\n')
            i--;
        print_error("line: host: %.*s\n      ours: %.*s\n", (int)strcspn(host + i, "\n"), host + i,
                    (int)strcspn(us + i, "\n"), us + i);
        if (getenv("FS_TEST_KEEP")) {
            keep("host.txt", host);
            keep("ours.txt", us);
        }
    }
    free(host);
    free(us);
    return result;
}

void both(scenario populate, scenario run)
{
    assert_false(differs(populate, run));
}

void ours_alone(scenario populate, scenario run)
{
    char *us = one_side(true, populate, run);

    if (strstr(us, "OURS DIED") || strstr(us, "WRONG"))
        fail_msg("%s", us);
    free(us);
}
