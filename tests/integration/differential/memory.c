/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* Mappings: what the calls answer, what is in the pages after them, and which signal a bad access gives. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "say.h"

#define PAGE 4096ul
#define RW (PROT_READ | PROT_WRITE)
#define ANON (MAP_PRIVATE | MAP_ANONYMOUS)
#define SYS(name, ...) syscall(SYS_##name, __VA_ARGS__)

static sigjmp_buf back;
static volatile int signo, code;
static volatile unsigned long offset;
static char *area; /* 64 pages of addresses of ours */

static void caught(int n, siginfo_t *info, void *context)
{
    (void)context;
    signo = n;
    code = info->si_code;
    offset = (unsigned long)((char *)info->si_addr - area);
    siglongjmp(back, 1);
}

/* Reads, writes or runs a byte. */
static void touch(const char *name, volatile char *at, int what)
{
    signo = 0;
    if (sigsetjmp(back, 1) == 0) {
        if (what == 'r')
            printf("%s: %d\n", name, *at);
        else if (what == 'w')
            *at = 'w';
        else
            ((void (*)(void))(uintptr_t)at)();
    }
    if (signo)
        printf("%s: signal %d code %d at %#lx\n", name, signo, code, offset);
    else if (what == 'w')
        printf("%s: written\n", name);
    fflush(stdout);
}

static void *reserve(unsigned long pages)
{
    return mmap(NULL, pages * PAGE, PROT_NONE, ANON | MAP_NORESERVE, -1, 0);
}

static void again(void)
{
    mmap(area, 64 * PAGE, PROT_NONE, ANON | MAP_FIXED, -1, 0);
}

static void maps(void)
{
    say_ok("map nothing", SYS(mmap, 0, 0, RW, ANON, -1, 0));
    say_ok("map without a type", SYS(mmap, 0, PAGE, RW, MAP_ANONYMOUS, -1, 0));
    say_ok("map odd offset", SYS(mmap, 0, PAGE, RW, ANON, -1, 1));
    say_ok("map all", SYS(mmap, 0, -PAGE, RW, ANON, -1, 0));
    say_ok("map more than all", SYS(mmap, 0, ~0ul, RW, ANON, -1, 0));
    say_ok("map odd address", SYS(mmap, area + 1, PAGE, RW, ANON | MAP_FIXED, -1, 0));
    say_ok("map no descriptor", SYS(mmap, 0, PAGE, RW, MAP_PRIVATE, 99, 0));
    say_ok("map over", SYS(mmap, area, PAGE, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0));
    say_ok("map above all", SYS(mmap, 1ul << 47, PAGE, RW, ANON | MAP_FIXED, -1, 0));
    say_ok("map shared validate",
           SYS(mmap, 0, PAGE, RW, MAP_SHARED_VALIDATE | MAP_ANONYMOUS | MAP_SYNC, -1, 0));
    say_value("low", (unsigned long)SYS(mmap, 0, PAGE, RW, ANON | MAP_32BIT, -1, 0) < 1ul << 31);
    say("unmap odd", SYS(munmap, area + 1, PAGE));
    say("unmap nothing", SYS(munmap, area, 0));
    say("unmap all", SYS(munmap, area, ~0ul));
    say("unmap kernel", SYS(munmap, 1ul << 47, PAGE));
    touch("none", area, 'r');
    munmap(area, PAGE);
    touch("unmapped", area, 'r');
    say("unmap a hole", munmap(area, PAGE));
    again();
}

static void protection(void)
{
    mprotect(area, 4 * PAGE, RW);
    touch("write", area, 'w');
    mprotect(area, PAGE, PROT_READ);
    touch("write read-only", area, 'w');
    touch("read read-only", area, 'r');
    touch("run data", area + PAGE, 'x');
    mprotect(area + PAGE, PAGE, PROT_WRITE);
    touch("read write-only", area + PAGE, 'r');
    area[2 * PAGE] = (char)0xc3;
    mprotect(area + 2 * PAGE, PAGE, PROT_READ | PROT_EXEC);
    touch("run", area + 2 * PAGE, 'x');
    mprotect(area + 2 * PAGE, PAGE, PROT_NONE);
    touch("read none", area + 2 * PAGE, 'r');
    say("protect odd", SYS(mprotect, area + 1, PAGE, RW));
    say("protect what", SYS(mprotect, area, PAGE, 64));
    say("protect nothing", SYS(mprotect, area, 0, RW));
    munmap(area + 5 * PAGE, PAGE);
    say("protect a hole", SYS(mprotect, area + 4 * PAGE, 3 * PAGE, RW));
    touch("before the hole", area + 4 * PAGE, 'w');
    touch("behind the hole", area + 6 * PAGE, 'w');
    say("protect grows down", SYS(mprotect, area, PAGE, RW | PROT_GROWSDOWN));
    again();
}

static void files(void)
{
    int fd = open("/tmp/memory.file", O_RDWR | O_CREAT | O_TRUNC, 0600), reading;
    char *shared, *private;
    char bytes[8] = {0};

    say_value("written", write(fd, "content", 7));
    say("size", ftruncate(fd, 2 * PAGE + 10));
    reading = open("/tmp/memory.file", O_RDONLY);
    say_ok("shared read-only", SYS(mmap, 0, PAGE, RW, MAP_SHARED, reading, 0));
    shared = mmap(area, 4 * PAGE, RW, MAP_SHARED | MAP_FIXED, fd, 0);
    private = mmap(area + 8 * PAGE, 4 * PAGE, RW, MAP_PRIVATE | MAP_FIXED, reading, 0);
    touch("shared", shared, 'r');
    touch("private", private, 'r');
    memcpy(shared, "CON", 3);
    touch("private sees", private, 'r');
    touch("private writes", private + 1, 'w');
    say_value("pread", pread(fd, bytes, 7, 0));
    printf("file: %s\n", bytes);
    touch("end of the last page", shared + 3 * PAGE - 1, 'r');
    touch("past the end", shared + 3 * PAGE, 'r');
    say("copy past the end", write(fd, shared + 3 * PAGE, 1));
    say("cut", ftruncate(fd, 3));
    touch("cut page", shared + PAGE, 'r');
    touch("private of it", private + PAGE, 'w');
    touch("zero behind", shared + 4, 'r');
    say("grow", ftruncate(fd, PAGE * 2));
    touch("grown", shared + PAGE, 'r');
    say("msync", msync(shared, PAGE, MS_SYNC));
    say("msync both", msync(shared, PAGE, MS_SYNC | MS_ASYNC));
    say("msync odd", msync(shared + 1, PAGE, MS_SYNC));
    say("msync none", SYS(msync, area + 100 * PAGE * 1000, PAGE, MS_SYNC));
    close(reading);
    reading = open("/tmp/memory.file", O_WRONLY);
    say_ok("map write-only", SYS(mmap, 0, PAGE, PROT_READ, MAP_PRIVATE, reading, 0));
    say_ok("map far", SYS(mmap, 0, PAGE, PROT_READ, MAP_PRIVATE, fd, -PAGE));
    say_ok("map a directory",
           SYS(mmap, 0, PAGE, PROT_READ, MAP_PRIVATE, open("/tmp", O_RDONLY), 0));
    close(fd);
    unlink("/tmp/memory.file");
    again();
}

static void remaps(void)
{
    char *at;

    mprotect(area, 4 * PAGE, RW);
    area[0] = 'a';
    area[3 * PAGE] = 'd';
    say_ok("remap grows", SYS(mremap, area, 4 * PAGE, 8 * PAGE, 0));
    at = mremap(area, 4 * PAGE, 8 * PAGE, MREMAP_MAYMOVE);
    say_value("moved", at != area && at != MAP_FAILED);
    touch("first", at, 'r');
    touch("last", at + 3 * PAGE, 'r');
    touch("new", at + 7 * PAGE, 'r');
    touch("old", area, 'r');
    say_value("fixed", mremap(at, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, area + 20 * PAGE) ==
                           area + 20 * PAGE);
    touch("there", area + 20 * PAGE, 'r');
    touch("gone", area + 21 * PAGE, 'r');
    say_ok("remap over itself", SYS(mremap, at + PAGE, 2 * PAGE, 2 * PAGE, 3, at + 2 * PAGE));
    say_ok("remap to nothing", SYS(mremap, at + PAGE, PAGE, 0, MREMAP_MAYMOVE));
    say_ok("remap odd", SYS(mremap, at + PAGE + 1, PAGE, PAGE, MREMAP_MAYMOVE));
    say_ok("remap what", SYS(mremap, at + PAGE, PAGE, PAGE, 64));
    say_ok("remap fixed alone", SYS(mremap, at + PAGE, PAGE, PAGE, MREMAP_FIXED, area));
    munmap(at, 8 * PAGE);
    say_ok("remap a hole", SYS(mremap, at, PAGE, 2 * PAGE, MREMAP_MAYMOVE));
    again();
}

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

static void remaps_that_stay(void)
{
    char *at, *other, path[] = "/tmp/memory.stays";
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);

    mprotect(area, 4 * PAGE, RW);
    area[0] = 'a';
    area[3 * PAGE] = 'd';
    at = (char *)SYS(mremap, area, 4 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, 0);
    say_value("stays", at != area && at != MAP_FAILED);
    touch("moved", at, 'r');
    touch("last", at + 3 * PAGE, 'r');
    touch("left", area, 'r');
    touch("left", area + 3 * PAGE, 'w');
    touch("apart", at + 3 * PAGE, 'r');
    say_value("to", SYS(mremap, at, PAGE, PAGE, 7, area + 20 * PAGE) == (long)(area + 20 * PAGE));
    touch("there", area + 20 * PAGE, 'r');
    touch("empty", at, 'r');
    other = (char *)SYS(mremap, at, PAGE, PAGE, 5, area + 30 * PAGE); /* taken, so elsewhere */
    say_value("elsewhere", other != MAP_FAILED && other != area + 30 * PAGE);
    munmap(area + 30 * PAGE, PAGE);
    other = (char *)SYS(mremap, at, PAGE, PAGE, 5, area + 30 * PAGE);
    say_value("where it was asked", other == area + 30 * PAGE);
    say_ok("stays alone", SYS(mremap, at, PAGE, PAGE, MREMAP_DONTUNMAP, 0));
    say_ok("stays and grows", SYS(mremap, at, PAGE, 2 * PAGE, 5, 0));
    say_ok("stays and shrinks", SYS(mremap, at, 2 * PAGE, PAGE, 5, 0));
    say_ok("stays odd", SYS(mremap, at, PAGE, PAGE, 5, 1));
    say_ok("stays over itself", SYS(mremap, at, 2 * PAGE, 2 * PAGE, 5, at + PAGE));
    say_ok("stays in a hole", SYS(mremap, area + 64 * PAGE - 1, PAGE, PAGE, 5, 0));
    munmap(at, 4 * PAGE);
    say_ok("stays without", SYS(mremap, at, PAGE, PAGE, 5, 0));
    if (ftruncate(fd, 2 * PAGE) < 0 || pwrite(fd, "f", 1, 0) != 1)
        say("file", -1);
    at = mmap(NULL, 2 * PAGE, RW, MAP_PRIVATE, fd, 0);
    at[1] = 'p';
    other = (char *)SYS(mremap, at, 2 * PAGE, 2 * PAGE, 5, 0);
    touch("private moved", other + 1, 'r');
    touch("private left", at + 1, 'r');
    touch("file left", at, 'r');
    at = mmap(NULL, 2 * PAGE, RW, MAP_SHARED, fd, 0);
    at[1] = 's';
    other = (char *)SYS(mremap, at, 2 * PAGE, 2 * PAGE, 5, 0);
    touch("shared moved", other + 1, 'r');
    touch("shared left", at + 1, 'r');
    close(fd);
    unlink(path);
    again();
}

static void advice(void)
{
    unsigned char states[4];

    mprotect(area, 4 * PAGE, RW);
    memset(area, 'x', 4 * PAGE);
    say("dontneed", madvise(area, PAGE, MADV_DONTNEED));
    touch("after it", area, 'r');
    touch("beside it", area + PAGE, 'r');
    say("what", madvise(area, PAGE, 4711));
    say("odd", madvise(area + 1, PAGE, MADV_DONTNEED));
    say("nothing", madvise(area, 0, MADV_DONTNEED));
    say("remove private", madvise(area, PAGE, MADV_REMOVE));
    say("willneed", madvise(area, PAGE, MADV_WILLNEED));
    say("mincore", mincore(area, 4 * PAGE, states));
    say_value("there", states[1] & 1);
    say("mincore odd", mincore(area + 1, PAGE, states));
    say("mincore to nowhere", mincore(area, PAGE, BAD));
    say("wipe", madvise(area + PAGE, PAGE, MADV_WIPEONFORK));
    say("dontfork", madvise(area + 2 * PAGE, PAGE, MADV_DONTFORK));
    fflush(stdout);
    if (fork() == 0) {
        touch("child wiped", area + PAGE, 'r');
        touch("child none", area + 2 * PAGE, 'r');
        touch("child copy", area + 3 * PAGE, 'r');
        touch("child writes", area + 3 * PAGE, 'w');
        _exit(0);
    }
    wait(NULL);
    touch("parent", area + 3 * PAGE, 'r');
    munmap(area + PAGE, PAGE);
    say("over a hole", madvise(area, 3 * PAGE, MADV_DONTNEED));
    again();
}

static void locks(void)
{
    struct rlimit limit = {2 * PAGE, 2 * PAGE};

    setrlimit(RLIMIT_MEMLOCK, &limit);
    mprotect(area, 4 * PAGE, RW);
    say("lock", mlock(area, 2 * PAGE));
    say("lock again", mlock(area, PAGE));
    say("lock more", mlock(area + 2 * PAGE, PAGE));
    say("dontneed locked", madvise(area, PAGE, MADV_DONTNEED));
    say("unlock", munlock(area, PAGE));
    say("lock now", mlock(area + 2 * PAGE, PAGE));
    munmap(area + 10 * PAGE, PAGE);
    say("lock a hole", mlock(area + 10 * PAGE, PAGE));
    say("lock2 what", SYS(mlock2, area, PAGE, 64));
    say("lockall nothing", mlockall(0));
    say("lockall", mlockall(MCL_CURRENT));
    say("unlockall", munlockall());
    again();
}

static void across(void)
{
    struct iovec local = {area, 8}, remote = {area + PAGE, 8};

    mprotect(area, 2 * PAGE, RW);
    strcpy(area + PAGE, "remote");
    say("vm read", process_vm_readv(getpid(), &local, 1, &remote, 1, 0));
    printf("read: %s\n", area);
    say("vm flags", process_vm_readv(getpid(), &local, 1, &remote, 1, 1));
    say("vm nobody", process_vm_readv(0x3ffffff, &local, 1, &remote, 1, 0));
    say("vm many", process_vm_readv(getpid(), &local, 5000, &remote, 1, 0));
    remote.iov_base = area + 60 * PAGE;
    say("vm none", process_vm_writev(getpid(), &local, 1, &remote, 1, 0));
    remote = (struct iovec){area + 2 * PAGE - 4, 8};
    say("vm partly", process_vm_writev(getpid(), &local, 1, &remote, 1, 0));
    again();
}

static void heap(void)
{
    char *end = (char *)SYS(brk, 0);

    say_value("brk same", (char *)SYS(brk, 0) == end);
    say_value("brk grows", (char *)SYS(brk, end + 3 * PAGE) == end + 3 * PAGE);
    memset(end, 'h', 3 * PAGE);
    say_value("brk shrinks", (char *)SYS(brk, end) == end);
    say_value("brk grows again", (char *)SYS(brk, end + 2 * PAGE) == end + 2 * PAGE);
    touch("zero", end + PAGE, 'r');
    say_value("brk below", (char *)SYS(brk, 4096) == end + 2 * PAGE);
    say_value("brk above", (char *)SYS(brk, -1ul) == end + 2 * PAGE);
}

static void stack(void)
{
    struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
    char *down;

    getrlimit(RLIMIT_STACK, &limit);
    down = mmap(area + 40 * PAGE, PAGE, RW, ANON | MAP_GROWSDOWN | MAP_FIXED, -1, 0);
    touch("grows not into a neighbour", down - PAGE, 'w');
    munmap(area, 64 * PAGE);
    area = mmap(NULL, 2048 * PAGE, PROT_NONE, ANON, -1, 0);
    munmap(area, 2048 * PAGE);
    down = mmap(area + 2000 * PAGE, PAGE, RW, ANON | MAP_GROWSDOWN | MAP_FIXED, -1, 0);
    touch("grows", down - PAGE, 'w');
    touch("grows far", down - 100 * PAGE, 'w');
}

int main(void)
{
    struct sigaction action = {.sa_sigaction = caught, .sa_flags = SA_SIGINFO};

    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
    area = reserve(64);
    maps();
    protection();
    files();
    remaps();
    remaps_that_stay();
    advice();
    locks();
    across();
    heap();
    stack();
    return 0;
}
