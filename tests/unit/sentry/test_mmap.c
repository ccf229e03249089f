/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* The system calls of mm/: what they answer, and what a guest's access finds after them. */
#include <sys/mount.h>

#include "fs.h"
#include "mm_touch.h"

#define ANON (MAP_PRIVATE | MAP_ANONYMOUS)
#define CALL(name, ...) sys_##name((const uint64_t[6]){__VA_ARGS__})

SYSCALL(mmap);
SYSCALL(munmap);
SYSCALL(mprotect);
SYSCALL(pkey_mprotect);
SYSCALL(brk);
SYSCALL(mremap);
SYSCALL(madvise);
SYSCALL(msync);
SYSCALL(mincore);
SYSCALL(mlock);
SYSCALL(mlock2);
SYSCALL(munlock);
SYSCALL(munlockall);
SYSCALL(mlockall);

SYSCALL(membarrier);
SYSCALL(process_vm_readv);
SYSCALL(process_vm_writev);

/* What mmap asks of a file, without a file system. */
static struct object *content;
static struct file file;
static bool able;
static struct mount place;

static int map_content(struct file *of, struct object **ret_object)
{
    (void)of;
    *ret_object = content;
    return 0;
}
static const struct file_ops with_content = {.map = map_content}, without;
const struct file_ops *const file_ops[FILE_KINDS] = {
    [FILE_REGULAR] = &with_content, [FILE_PIPE] = &without};
struct file *fd_get_io(int fd)
{
    if (fd != 3)
        return NULL;
    file.refs++;
    return &file;
}
void file_get(struct file *of)
{
    of->refs++;
}
void file_put(struct file *of)
{
    of->refs--;
}
bool capable(int capability)
{
    (void)capability;
    return able;
}
struct task *task_by_tid(int32_t tid)
{
    struct task *task;

    TAILQ_FOREACH(task, all_tasks, link)
    if (task->tid == tid)
        return task;
    return NULL;
}

static int set_up(void **state)
{
    (void)state;
    fake_task();
    fake_changes = fake_faults = fake_interrupts = 0;
    able = false;
    content = NULL;
    place = (struct mount){0};
    file = (struct file){
        .refs = 1, .kind = FILE_REGULAR, .mode = FMODE_READ | FMODE_WRITE, .mount = &place};
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    fake_task_end();
    object_put(content);
    assert_int_equal(file.refs, 1);
    assert_int_equal(memfile_used(), 0); /* each test gives all back */
    assert_int_equal(arena_count(ARENA_VMA), 0);
    assert_int_equal(arena_count(ARENA_OBJECT), 0);
    assert_int_equal(arena_count(ARENA_MM), 0);
    return 0;
}

static void map(uint64_t address, uint64_t pages)
{
    assert_int_equal(CALL(mmap, address, pages * PAGE_SIZE, RW, ANON | MAP_FIXED, -1ul, 0),
                     address);
}

static void test_mmap_errors(void **state)
{
    (void)state;
    assert_int_equal(CALL(mmap, 0, 0, RW, ANON, -1ul, 0), -EINVAL);
    assert_int_equal(CALL(mmap, 0, PAGE_SIZE, RW, MAP_ANONYMOUS, -1ul, 0), -EINVAL);
    assert_int_equal(CALL(mmap, 0, PAGE_SIZE, RW, ANON, -1ul, 1), -EINVAL);
    assert_int_equal(CALL(mmap, 0, UINT64_MAX, RW, ANON, -1ul, 0), -ENOMEM);
    assert_int_equal(CALL(mmap, 1, PAGE_SIZE, RW, ANON | MAP_FIXED, -1ul, 0), -EINVAL);
    assert_int_equal(CALL(mmap, 0, PAGE_SIZE, RW, MAP_PRIVATE, 9, 0), -EBADF);
    assert_int_equal(CALL(mmap, 0, PAGE_SIZE, RW, ANON | MAP_HUGETLB, -1ul, 0), -ENOMEM);
    assert_int_equal(CALL(mmap, 0, PAGE_SIZE, RW, MAP_PRIVATE, 3, -PAGE_SIZE), -EOVERFLOW);
    assert_int_equal(CALL(mmap, 0, PAGE_SIZE, RW, MAP_SHARED_VALIDATE | MAP_SYNC, 3, 0),
                     -EOPNOTSUPP);
    assert_int_equal(CALL(munmap, A, 0), -EINVAL);
    assert_int_equal(CALL(munmap, A + 1, PAGE_SIZE), -EINVAL);
    assert_int_equal(CALL(munmap, A, UINT64_MAX), -EINVAL);
    assert_int_equal(CALL(munmap, A, PAGE_SIZE), 0); /* nothing there */
    assert_int_equal(CALL(mmap, 0, PAGE_SIZE, RW, ANON | MAP_32BIT, -1ul, 0),
                     0x80000000ul - PAGE_SIZE);
    map(A, 1);
    assert_int_equal(CALL(mmap, A, PAGE_SIZE, RW, ANON | MAP_FIXED_NOREPLACE, -1ul, 0), -EEXIST);
}

static void test_mmap_file(void **state)
{
    struct mm *mm = current->mm;

    (void)state;
    content = object_new(PAGE_SIZE);
    object_write(content, 0, "file", 4);
    assert_int_equal(CALL(mmap, A, PAGE_SIZE, PROT_READ, MAP_SHARED | MAP_FIXED, 3, 0), A);
    assert_int_equal(get(mm, A), 'f');
    assert_int_equal(CALL(mprotect, A, PAGE_SIZE, RW), 0);
    put(mm, A, 'F');
    file.mode = FMODE_READ;
    assert_int_equal(CALL(mmap, A, PAGE_SIZE, RW, MAP_SHARED | MAP_FIXED, 3, 0), -EACCES);
    assert_int_equal(CALL(mmap, A, PAGE_SIZE, PROT_READ, MAP_SHARED | MAP_FIXED, 3, 0), A);
    assert_int_equal(CALL(mprotect, A, PAGE_SIZE, RW), -EACCES);
    assert_int_equal(CALL(mmap, 2 * A, PAGE_SIZE, RW, MAP_PRIVATE | MAP_FIXED, 3, 0), 2 * A);
    put(mm, 2 * A, 'P');
    assert_int_equal(get(mm, A), 'F');
    place.flags = MS_NOEXEC;
    assert_int_equal(CALL(mmap, A, PAGE_SIZE, PROT_EXEC, MAP_PRIVATE, 3, 0), -EPERM);
    assert_int_equal(CALL(mprotect, 2 * A, PAGE_SIZE, PROT_EXEC), 0); /* mapped before */
    file.mode = FMODE_WRITE;
    assert_int_equal(CALL(mmap, A, PAGE_SIZE, PROT_READ, MAP_PRIVATE, 3, 0), -EACCES);
    file.mode = FMODE_READ;
    file.kind = FILE_PIPE;
    assert_int_equal(CALL(mmap, A, PAGE_SIZE, PROT_READ, MAP_PRIVATE, 3, 0), -ENODEV);
}

static void test_shared_anonymous(void **state)
{
    struct mm *mm = current->mm, *child;

    (void)state;
    assert_int_equal(
        CALL(mmap, A, 2 * PAGE_SIZE, RW, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1ul, 0), A);
    put(mm, A + PAGE_SIZE, 's');
    mm_fork(mm, &child);
    fake_enter(child);
    assert_int_equal(get(child, A + PAGE_SIZE), 's');
    put(child, A, 'c');
    fake_enter(mm);
    assert_int_equal(get(mm, A), 'c');
    mm_put(child);
}

static void test_limits(void **state)
{
    struct rlimit *limits = current->process->limits;

    (void)state;
    map(A, 4);
    limits[RLIMIT_AS].rlim_cur = 8 * PAGE_SIZE;
    assert_int_equal(CALL(mmap, 0, 5 * PAGE_SIZE, RW, ANON, -1ul, 0), -ENOMEM);
    assert_true(CALL(mmap, 0, 4 * PAGE_SIZE, RW, ANON, -1ul, 0) > 0);
    assert_int_equal(CALL(mremap, A, 4 * PAGE_SIZE, 5 * PAGE_SIZE, MREMAP_MAYMOVE), -ENOMEM);
    limits[RLIMIT_AS].rlim_cur = RLIM_INFINITY;
    limits[RLIMIT_MEMLOCK].rlim_cur = 2 * PAGE_SIZE;
    assert_int_equal(CALL(mlock, A, 3 * PAGE_SIZE), -ENOMEM);
    assert_int_equal(CALL(mlock, A, 2 * PAGE_SIZE), 0);
    assert_int_equal(CALL(mlock, A + PAGE_SIZE, PAGE_SIZE), 0); /* again: not counted twice */
    assert_int_equal(CALL(mlock, A + 2 * PAGE_SIZE, PAGE_SIZE), -ENOMEM);
    assert_int_equal(CALL(munlock, A, PAGE_SIZE), 0);
    assert_int_equal(CALL(mlock, A + 2 * PAGE_SIZE, PAGE_SIZE), 0);
    assert_int_equal(CALL(munmap, A, 4 * PAGE_SIZE), 0);
    assert_int_equal(current->mm->locked, 0);
    limits[RLIMIT_MEMLOCK].rlim_cur = 0;
    map(A, 1);
    assert_int_equal(CALL(mlock, A, PAGE_SIZE), -EPERM);
    able = true;
    assert_int_equal(CALL(mlock, A, PAGE_SIZE), 0);
    assert_int_equal(CALL(mlock, 2 * A, PAGE_SIZE), -ENOMEM);
    assert_int_equal(CALL(mlock2, A, PAGE_SIZE, 2), -EINVAL);
    assert_int_equal(CALL(mlockall, 0), -EINVAL);
    assert_int_equal(CALL(mlockall, MCL_CURRENT), 0);
    assert_int_equal(current->mm->locked, current->mm->bytes_mapped);
    assert_int_equal(CALL(madvise, A, PAGE_SIZE, MADV_DONTNEED), -EINVAL);
    assert_int_equal(CALL(munlockall, 0), 0);
    assert_int_equal(current->mm->locked, 0);
}

static void test_brk(void **state)
{
    struct mm *mm = current->mm;

    (void)state;
    mm->brk_start = mm->brk = A + 100;
    assert_int_equal(CALL(brk, 0), A + 100);
    assert_int_equal(CALL(brk, A + 3 * PAGE_SIZE), A + 3 * PAGE_SIZE);
    put(mm, A + PAGE_SIZE, 'h');
    assert_int_equal(CALL(brk, A + 200), A + 200);
    assert_null(touch(mm, A + PAGE_SIZE, PROT_READ));
    assert_int_equal(CALL(brk, A + 3 * PAGE_SIZE), A + 3 * PAGE_SIZE);
    assert_int_equal(get(mm, A + PAGE_SIZE), 0);
    map(A + 8 * PAGE_SIZE, 1);
    assert_int_equal(CALL(brk, A + 9 * PAGE_SIZE), A + 3 * PAGE_SIZE);
    current->process->limits[RLIMIT_DATA].rlim_cur = 4 * PAGE_SIZE;
    assert_int_equal(CALL(brk, A + 6 * PAGE_SIZE), A + 3 * PAGE_SIZE);
    assert_int_equal(CALL(brk, UINT64_MAX), A + 3 * PAGE_SIZE);
}

static void test_mremap(void **state)
{
    struct mm *mm = current->mm;
    int64_t at;

    (void)state;
    map(A, 4);
    put(mm, A, 'a');
    put(mm, A + 3 * PAGE_SIZE, 'd');
    assert_int_equal(CALL(mremap, A, 4 * PAGE_SIZE, 8 * PAGE_SIZE, 0), A);
    assert_int_equal(get(mm, A + 3 * PAGE_SIZE), 'd');
    assert_int_equal(CALL(mremap, A, 8 * PAGE_SIZE, 4 * PAGE_SIZE, 0), A);
    assert_null(touch(mm, A + 4 * PAGE_SIZE, PROT_READ));
    map(A + 4 * PAGE_SIZE, 1);
    CALL(mprotect, A + 4 * PAGE_SIZE, PAGE_SIZE, PROT_READ);
    assert_int_equal(CALL(mremap, A, 4 * PAGE_SIZE, 8 * PAGE_SIZE, 0), -ENOMEM);
    at = CALL(mremap, A, 4 * PAGE_SIZE, 8 * PAGE_SIZE, MREMAP_MAYMOVE);
    assert_true(at > 0 && at != A);
    assert_int_equal(get(mm, (uint64_t)at), 'a');
    assert_int_equal(get(mm, (uint64_t)at + 3 * PAGE_SIZE), 'd');
    assert_int_equal(get(mm, (uint64_t)at + 7 * PAGE_SIZE), 0);
    assert_null(touch(mm, A, PROT_READ));
    /* The middle of it, to a place of the caller's, over what is there. */
    map(2 * A, 2);
    put(mm, 2 * A, 'x');
    assert_int_equal(CALL(mremap, (uint64_t)at + 3 * PAGE_SIZE, PAGE_SIZE, 2 * PAGE_SIZE,
                          MREMAP_MAYMOVE | MREMAP_FIXED, 2 * A),
                     2 * A);
    assert_int_equal(get(mm, 2 * A), 'd');
    assert_int_equal(get(mm, 2 * A + PAGE_SIZE), 0);
    assert_null(touch(mm, (uint64_t)at + 3 * PAGE_SIZE, PROT_READ));
    assert_int_equal(get(mm, (uint64_t)at), 'a');
    assert_int_equal(CALL(mremap, 2 * A, 2 * PAGE_SIZE, 2 * PAGE_SIZE,
                          MREMAP_MAYMOVE | MREMAP_FIXED, 2 * A + PAGE_SIZE),
                     -EINVAL);
    assert_int_equal(CALL(mremap, 3 * A, PAGE_SIZE, 2 * PAGE_SIZE, MREMAP_MAYMOVE), -EFAULT);
    assert_int_equal(CALL(mremap, 2 * A, PAGE_SIZE, 0, MREMAP_MAYMOVE), -EINVAL);
    assert_int_equal(CALL(mremap, 2 * A, PAGE_SIZE, PAGE_SIZE, MREMAP_FIXED, A), -EINVAL);
    assert_int_equal(CALL(mremap, 2 * A, PAGE_SIZE, PAGE_SIZE, 8 | MREMAP_MAYMOVE), -EINVAL);
}

static void test_mremap_that_stays(void **state)
{
    struct mm *mm = current->mm;
    uint64_t before;
    int64_t at;

    (void)state;
    map(A, 4);
    put(mm, A + PAGE_SIZE, 'b');
    put(mm, A + 2 * PAGE_SIZE, 'c');
    before = mm->bytes_mapped;
    at = CALL(mremap, A + PAGE_SIZE, 2 * PAGE_SIZE, 2 * PAGE_SIZE,
              MREMAP_MAYMOVE | MREMAP_DONTUNMAP, 0);
    assert_true(at > 0);
    assert_int_equal(get(mm, (uint64_t)at), 'b');
    assert_int_equal(get(mm, (uint64_t)at + PAGE_SIZE), 'c');
    assert_int_equal(get(mm, A + PAGE_SIZE), 0); /* nothing of the pages is left there */
    put(mm, A + PAGE_SIZE, 'n');
    assert_int_equal(get(mm, (uint64_t)at), 'b');
    assert_int_equal(mm->bytes_mapped, before + 2 * PAGE_SIZE);
    assert_int_equal(CALL(mremap, A, 4 * PAGE_SIZE, 4 * PAGE_SIZE,
                          MREMAP_MAYMOVE | MREMAP_DONTUNMAP | MREMAP_FIXED, 2 * A),
                     2 * A); /* it is one area again */
    assert_int_equal(get(mm, 2 * A + PAGE_SIZE), 'n');
    assert_int_equal(CALL(mremap, A, PAGE_SIZE, PAGE_SIZE, MREMAP_DONTUNMAP, 0), -EINVAL);
    assert_int_equal(
        CALL(mremap, A, PAGE_SIZE, 2 * PAGE_SIZE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, 0), -EINVAL);
    current->process->limits[RLIMIT_AS].rlim_cur = mm->bytes_mapped;
    assert_int_equal(CALL(mremap, A, PAGE_SIZE, PAGE_SIZE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, 0),
                     -ENOMEM);
}

static void test_mremap_shared(void **state)
{
    struct mm *mm = current->mm;

    (void)state;
    content = object_new(4 * PAGE_SIZE);
    CALL(mmap, A, 2 * PAGE_SIZE, RW, MAP_SHARED | MAP_FIXED, 3, PAGE_SIZE);
    put(mm, A + PAGE_SIZE, 's');
    assert_int_equal(
        CALL(mremap, A, 2 * PAGE_SIZE, 3 * PAGE_SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, 2 * A), 2 * A);
    assert_int_equal(get(mm, 2 * A + PAGE_SIZE), 's');
    put(mm, 2 * A + 2 * PAGE_SIZE, 't');
    char byte;
    object_read(content, 3 * PAGE_SIZE, &byte, 1);
    assert_int_equal(byte, 't');
}

static void test_madvise(void **state)
{
    struct mm *mm = current->mm, *child;
    char byte;

    (void)state;
    map(A, 4);
    put(mm, A, 'a');
    put(mm, A + PAGE_SIZE, 'b');
    assert_int_equal(CALL(madvise, A, PAGE_SIZE, MADV_DONTNEED), 0);
    assert_int_equal(get(mm, A), 0);
    assert_int_equal(get(mm, A + PAGE_SIZE), 'b');
    assert_int_equal(CALL(madvise, A + PAGE_SIZE, PAGE_SIZE, MADV_FREE), 0);
    assert_int_equal(CALL(madvise, A, 8 * PAGE_SIZE, MADV_DONTNEED), -ENOMEM);
    assert_int_equal(CALL(madvise, A + 1, PAGE_SIZE, MADV_DONTNEED), -EINVAL);
    assert_int_equal(CALL(madvise, A, PAGE_SIZE, 4711), -EINVAL);
    assert_int_equal(CALL(madvise, A, 0, MADV_DONTNEED), 0);
    assert_int_equal(CALL(madvise, A, PAGE_SIZE, MADV_HWPOISON), -EINVAL);
    assert_int_equal(CALL(madvise, A, PAGE_SIZE, MADV_REMOVE), -EINVAL);
    put(mm, A, 'a');
    put(mm, A + PAGE_SIZE, 'b');
    put(mm, A + 2 * PAGE_SIZE, 'c');
    assert_int_equal(CALL(madvise, A, PAGE_SIZE, MADV_DONTFORK), 0);
    assert_int_equal(CALL(madvise, A + PAGE_SIZE, PAGE_SIZE, MADV_WIPEONFORK), 0);
    mm_fork(mm, &child);
    assert_int_equal(copy_in(child, &byte, A, 1), -EFAULT);
    assert_int_equal(copy_in(child, &byte, A + PAGE_SIZE, 1), 0);
    assert_int_equal(byte, 0);
    assert_int_equal(copy_in(child, &byte, A + 2 * PAGE_SIZE, 1), 0);
    assert_int_equal(byte, 'c');
    mm_put(child);
    assert_int_equal(CALL(madvise, A, 2 * PAGE_SIZE, MADV_DOFORK), 0);
    assert_int_equal(CALL(madvise, A, 2 * PAGE_SIZE, MADV_KEEPONFORK), 0);
    assert_int_equal(areas(mm), 1);
    assert_int_equal(CALL(madvise, A, 4 * PAGE_SIZE, 23), 0); /* POPULATE_WRITE */
    assert_int_equal(mm->pages_private, 4);
}

static void test_madvise_remove(void **state)
{
    struct mm *mm = current->mm;

    (void)state;
    content = object_new(4 * PAGE_SIZE);
    CALL(mmap, A, 4 * PAGE_SIZE, RW, MAP_SHARED | MAP_FIXED, 3, 0);
    put(mm, A, 'a');
    put(mm, A + PAGE_SIZE, 'b');
    assert_int_equal(CALL(madvise, A, PAGE_SIZE, MADV_DONTNEED), 0);
    assert_int_equal(get(mm, A), 'a');
    assert_int_equal(CALL(madvise, A, PAGE_SIZE, MADV_REMOVE), 0);
    assert_int_equal(get(mm, A), 0);
    assert_int_equal(get(mm, A + PAGE_SIZE), 'b');
}

static void test_msync_mincore(void **state)
{
    struct mm *mm = current->mm;
    char states[4];

    (void)state;
    map(A, 4);
    CALL(mprotect, A, PAGE_SIZE, PROT_READ);
    put(mm, A + PAGE_SIZE, 'x');
    CALL(madvise, A, 4 * PAGE_SIZE, MADV_DONTNEED);
    copy_out(mm, A + 3 * PAGE_SIZE, "x", 1);
    assert_int_equal(CALL(mincore, A, 4 * PAGE_SIZE, A + 3 * PAGE_SIZE), 0);
    copy_in(mm, states, A + 3 * PAGE_SIZE, 4);
    assert_memory_equal(states, "\0\0\0\1", 4);
    assert_int_equal(CALL(mincore, A, 5 * PAGE_SIZE, A + 3 * PAGE_SIZE), -ENOMEM);
    assert_int_equal(CALL(mincore, A + 1, PAGE_SIZE, A), -EINVAL);
    assert_int_equal(CALL(mincore, A, PAGE_SIZE, 2 * A), -EFAULT);
    assert_int_equal(CALL(msync, A, 4 * PAGE_SIZE, MS_SYNC), 0);
    assert_int_equal(CALL(msync, A, 5 * PAGE_SIZE, MS_SYNC), -ENOMEM);
    assert_int_equal(CALL(msync, A, PAGE_SIZE, MS_SYNC | MS_ASYNC), -EINVAL);
    assert_int_equal(CALL(msync, A + 1, PAGE_SIZE, MS_SYNC), -EINVAL);
}

static void test_mprotect(void **state)
{
    (void)state;
    map(A, 2);
    assert_int_equal(CALL(mprotect, A, PAGE_SIZE, 16), -EINVAL);
    assert_int_equal(CALL(mprotect, A, 0, RW), 0);
    assert_int_equal(CALL(mprotect, A, 3 * PAGE_SIZE, RW), -ENOMEM);
    assert_int_equal(CALL(mprotect, A, PAGE_SIZE, RW | PROT_GROWSDOWN), -EINVAL);
    assert_int_equal(CALL(pkey_mprotect, A, PAGE_SIZE, RW, 1), -EINVAL);
    assert_int_equal(CALL(pkey_mprotect, A, PAGE_SIZE, PROT_READ, (uint32_t)-1), 0);
}

static void test_process_vm(void **state)
{
    struct mm *mm = current->mm, *child;
    struct iovec local = {(void *)(A + 8), 4}, remote = {(void *)A, 4};
    struct cred mine = {0}, its = {.uid = 5};
    struct task other;
    char bytes[4];

    (void)state;
    map(A, 4);
    copy_out(mm, A, "mine", 4);
    mm_fork(mm, &child);
    copy_out(child, A, "hers", 4);
    other = (struct task){.tid = 7, .mm = child, .cred = &its};
    TAILQ_INSERT_TAIL(all_tasks, &other, link);
    current->cred = &mine;
    copy_out(mm, A + PAGE_SIZE, &local, sizeof(local));
    copy_out(mm, A + PAGE_SIZE + 64, &remote, sizeof(remote));
    assert_int_equal(CALL(process_vm_readv, 7, A + PAGE_SIZE, 1, A + PAGE_SIZE + 64, 1, 0), -EPERM);
    its.uid = 0;
    child->dumpable = 0;
    assert_int_equal(CALL(process_vm_readv, 7, A + PAGE_SIZE, 1, A + PAGE_SIZE + 64, 1, 0), -EPERM);
    child->dumpable = 1;
    assert_int_equal(CALL(process_vm_readv, 7, A + PAGE_SIZE, 1, A + PAGE_SIZE + 64, 1, 0), 4);
    copy_in(mm, bytes, A + 8, 4);
    assert_memory_equal(bytes, "hers", 4);
    remote.iov_base = (void *)(A + 100);
    copy_out(mm, A + PAGE_SIZE + 64, &remote, sizeof(remote));
    assert_int_equal(CALL(process_vm_writev, 7, A + PAGE_SIZE, 1, A + PAGE_SIZE + 64, 1, 0), 4);
    copy_in(child, bytes, A + 100, 4);
    assert_memory_equal(bytes, "hers", 4);
    assert_int_equal(CALL(process_vm_readv, 8, A + PAGE_SIZE, 1, A + PAGE_SIZE + 64, 1, 0), -ESRCH);
    assert_int_equal(CALL(process_vm_readv, 7, A + PAGE_SIZE, 1, A + PAGE_SIZE + 64, 1, 1),
                     -EINVAL);
    TAILQ_REMOVE(all_tasks, &other, link);
    current->cred = NULL;
    mm_put(child);
}

static void test_membarrier(void **state)
{
    (void)state;
    assert_true(CALL(membarrier, 0, 0) & 8);
    assert_int_equal(CALL(membarrier, 8, 0), -EPERM);
    assert_int_equal(CALL(membarrier, 16, 0), 0);
    assert_int_equal(CALL(membarrier, 8, 0), 0);
    assert_int_equal(CALL(membarrier, 8, 1), -EINVAL);
    assert_int_equal(CALL(membarrier, 2, 0), -EINVAL);
}

#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(mmap_errors), TEST(mmap_file),      TEST(shared_anonymous),  TEST(limits),
        TEST(brk),         TEST(mremap),         TEST(mremap_that_stays), TEST(mremap_shared),
        TEST(madvise),     TEST(madvise_remove), TEST(msync_mincore),     TEST(mprotect),
        TEST(process_vm),  TEST(membarrier),
    };

    fake_sentry(MEMORY);
    cmocka_set_test_filter(getenv("CMOCKA_FILTER"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
