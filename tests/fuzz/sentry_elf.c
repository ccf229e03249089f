/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* A file that a guest wants to execute, which is its own interpreter when it asks for one. What was loaded goes away whole. */
#include <stdlib.h>
#include <string.h>

#include "../unit/sentry/fake_platform.h"
#include "task/exec.h"

static struct object *content;
static struct file program = {.refs = 1, .kind = FILE_REGULAR};

static int map(struct file *file, struct object **ret_object)
{
    (void)file;
    *ret_object = content;
    return 0;
}

static const struct file_ops regular = {.map = map};
const struct file_ops *const file_ops[FILE_KINDS] = {[FILE_REGULAR] = &regular};

int64_t file_read_at(struct file *file, void *buffer, size_t size, uint64_t offset)
{
    (void)file;
    return object_read(content, offset, buffer, size);
}

int exec_open(int dirfd, const char *name, unsigned flags, struct file **ret_file)
{
    (void)dirfd;
    (void)flags;
    if (strlen(name) > 4095)
        abort();
    exec_hold(&program);
    *ret_file = &program;
    return 0;
}

void exec_hold(struct file *file)
{
    file->refs++;
}

void exec_close(struct file *file)
{
    if (file->refs-- < 2)
        abort();
}

static void judge(const struct exec *exec)
{
    struct vma_info area;
    uint64_t at = 0;

    while (mm_next_area(exec->mm, at, &area)) {
        if (area.start < at || area.start >= area.end || area.end > PLATFORM_GUEST_MAX)
            abort();
        at = area.end;
    }
    if (exec->regs.rsp % 16 || exec->regs.rsp >= exec->mm->stack_start)
        abort();
}

static void load(void)
{
    static struct cred cred;
    struct exec exec = {.file = &program, .cred = &cred, .name = "/bin/program"};

    if (exec_string_add(&exec.argv, "program", 7) < 0 || exec_string_add(&exec.envp, "A=1", 3) < 0)
        abort();
    if (elf_load(&exec) >= 0) {
        judge(&exec);
        mm_put(exec.mm);
    } else if (exec.mm) {
        abort();
    }
    exec_strings_free(&exec.argv);
    exec_strings_free(&exec.envp);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool begun;
    uint64_t areas, pages;

    if (!begun) {
        fake_sentry(64ul << 20);
        fake_task();
        begun = true;
    }
    areas = arena_count(ARENA_VMA);
    content = object_new(0);
    if (!content || object_write(content, 0, data, size) != (int64_t)size)
        abort();
    load();
    object_put(content);
    pages = program.refs;
    if (arena_count(ARENA_VMA) != areas || pages != 1)
        abort();
    return 0;
}
