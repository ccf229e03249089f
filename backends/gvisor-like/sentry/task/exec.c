/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * exec - a process becomes another program.
 * Everything that can fail comes first and touches nothing of the caller; then task_exec_begin() ends its other threads,
 * and from there it is the new program or dead.
 * Scripts: execve(2), "interpreter scripts"; what Linux's binfmt_script does with spaces, one argument, 256 bytes.
 * Threads: the kernel lock.
 */
#include <fcntl.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>

#include "../fs/vfs.h"
#include "exec.h"

/* ---- strings ---- */

/* The strings that a guest's array of pointers names. In all at most a quarter of the stack's limit, as Linux has it. */
static int strings_in(struct exec_strings *strings, struct mm *mm, uint64_t array, size_t *left)
{
    char *text = malloc(EXEC_STRING_MAX);
    uint64_t address;
    int64_t length;
    int result = text ? 0 : -ENOMEM;

    while (array && result >= 0) {
        result = copy_in(mm, &address, array, sizeof(address));
        if (result < 0 || !address)
            break;
        array += sizeof(address);
        length = copy_in_string(mm, text, address, EXEC_STRING_MAX);
        if (length < 0)
            result = length == -ENAMETOOLONG ? -E2BIG : (int)length;
        else if ((uint64_t)length + 1 + sizeof(address) > *left)
            result = -E2BIG;
        else
            result = exec_string_add(strings, text, (size_t)length);
        if (result >= 0)
            *left -= (size_t)length + 1 + sizeof(address);
    }
    free(text);
    return result;
}

/* ---- the file ---- */

static int may_execute(struct file *file)
{
    struct inode *inode = file->inode;
    int result;

    if (!inode || !S_ISREG(inode->mode) || (file->mount && file->mount->flags & MS_NOEXEC))
        return -EACCES;
    result = inode_permission(inode, 1);
    if (result >= 0 && inode->n_writers)
        result = -ETXTBSY;
    return result;
}

/* Regular files only: nothing else is opened by being looked at. */
static int open_regular(const struct path *path, struct file **ret_file)
{
    struct inode *inode = path->dentry->inode;

    if (!inode)
        return -ENOENT;
    if (S_ISLNK(inode->mode))
        return -ELOOP;
    return S_ISREG(inode->mode) ? open_inode(path, inode, O_RDONLY, ret_file) : -EACCES;
}

void exec_hold(struct file *file)
{
    file_get(file);
    file->inode->n_exec++;
}

void exec_close(struct file *file)
{
    file->inode->n_exec--;
    file_put(file);
}

/* Takes the reference: may it be executed, it is held for that; else there is none. */
static int hold_executable(struct file **file)
{
    struct file *opened = *file;
    int result = may_execute(opened);

    if (result >= 0)
        exec_hold(opened);
    else
        *file = NULL;
    file_put(opened);
    return result;
}

int exec_open(int dirfd, const char *name, unsigned flags, struct file **ret_file)
{
    struct path path;
    int result = path_lookup(dirfd, name, flags & AT_SYMLINK_NOFOLLOW ? 0 : LOOKUP_FOLLOW, &path);

    if (result < 0)
        return result;
    result = open_regular(&path, ret_file);
    path_put(&path);
    return result < 0 ? result : hold_executable(ret_file);
}

/* ---- what it is ---- */

static int read_head(struct exec *exec)
{
    int64_t size = file_read_at(exec->file, exec->head, sizeof(exec->head), 0);

    exec->head_size = size < 0 ? 0 : (size_t)size;
    return size < 0 ? (int)size : 0;
}

static char *skip_blank(char *text, bool blank)
{
    while (*text && (*text == ' ' || *text == '\t') == blank)
        text++;
    return text;
}

/* "#! interpreter [argument]": its first line, cut; -ENOEXEC: none, or one that does not fit. */
static int script_line(const struct exec *exec, char line[EXEC_HEAD + 1], char **ret_name,
                       char **ret_argument)
{
    char *end, *name;

    memcpy(line, exec->head, exec->head_size);
    line[exec->head_size] = 0;
    end = strchr(line, '\n');
    if (!end && strlen(line) == EXEC_HEAD && !strpbrk(skip_blank(line + 2, true), " \t"))
        return -ENOEXEC; /* its name may be cut */
    if (end)
        *end = 0;
    for (end = line + strlen(line); end > line + 2 && (end[-1] == ' ' || end[-1] == '\t'); end--)
        end[-1] = 0;
    name = skip_blank(line + 2, true);
    if (!*name)
        return -ENOEXEC;
    *ret_name = name;
    end = skip_blank(name, false);
    *ret_argument = *end ? skip_blank(end, true) : NULL;
    *end = 0;
    return 0;
}

/* argv becomes: interpreter, its argument, the script's name, the rest. */
static int script_arguments(struct exec *exec, const char *name, const char *argument)
{
    struct exec_strings old = exec->argv;
    const char *text = old.bytes;
    unsigned i;
    int result;

    exec->argv = (struct exec_strings){0};
    result = exec_string_add(&exec->argv, name, strlen(name));
    if (result >= 0 && argument)
        result = exec_string_add(&exec->argv, argument, strlen(argument));
    if (result >= 0)
        result = exec_string_add(&exec->argv, exec->script, strlen(exec->script));
    for (i = 0; i < old.n && result >= 0; i++, text += strlen(text) + 1)
        if (i > 0)
            result = exec_string_add(&exec->argv, text, strlen(text));
    exec_strings_free(&old);
    return result;
}

/* The interpreter takes the script's place. */
static int take_interpreter(struct exec *exec)
{
    char line[EXEC_HEAD + 1], *name, *argument;
    struct file *file;
    int result = script_line(exec, line, &name, &argument);

    if (result >= 0)
        result = script_arguments(exec, name, argument);
    if (result >= 0)
        result = exec_open(AT_FDCWD, name, 0, &file);
    if (result < 0)
        return result;
    exec_close(exec->file);
    exec->file = file;
    snprintf(exec->script, sizeof(exec->script), "%s", name);
    return read_head(exec);
}

/* Scripts give way to what interprets them, until it is a program. */
static int resolve(struct exec *exec)
{
    unsigned depth;
    int result = read_head(exec);

    snprintf(exec->script, sizeof(exec->script), "%s", exec->name);
    for (depth = 0; result >= 0 && exec->head_size > 2 && memcmp(exec->head, "#!", 2) == 0; depth++)
        result = depth == EXEC_DEPTH ? -ELOOP : take_interpreter(exec);
    return result;
}

/* Another process has its directories by CLONE_FS: what a set-id program would do with them it would do to that one, and
   the other way round. */
static bool shares_directories(void)
{
    const struct task *task;
    uint32_t own = 0;

    TAILQ_FOREACH(task, &current->process->tasks, process_link)
    own += task->fs == current->fs;
    return current->fs->refs > own;
}

/* Whose ids it has: of the file that is loaded, so of no script. */
static int new_cred(struct exec *exec, struct cred **ret_cred)
{
    const struct inode *inode = exec->file->inode;
    bool nosuid = (exec->file->mount && exec->file->mount->flags & MS_NOSUID) ||
                  (shares_directories() && !capable(CAP_SETUID));

    return cred_for_exec(inode->mode, inode->uid, inode->gid, nosuid, ret_cred, &exec->secure);
}

/* ---- execve ---- */

static void exec_free(struct exec *exec)
{
    if (exec->file)
        exec_close(exec->file);
    exec_strings_free(&exec->argv);
    exec_strings_free(&exec->envp);
    free(exec);
}

/* No way back: current becomes what was loaded. */
static int become(struct exec *exec, struct cred *cred)
{
    struct mm *old_mm = current->mm;
    int result = task_exec_begin();

    if (result < 0) {
        mm_put(exec->mm);
        cred_put(cred);
        return result;
    }
    /* Before the credentials: the old one may be another's, too, who stays as dumpable as it was. */
    current->mm = exec->mm;
    cred_set(cred);
    exec->mm->dumpable = !exec->secure && inode_permission(exec->file->inode, 4) >= 0;
    if (exec->secure)
        current->parent_death_signal = 0;
    current->regs = exec->regs;
    task_exec_end(old_mm, exec->name);
    return 0;
}

static int execute(struct exec *exec)
{
    struct cred *cred;
    int result = resolve(exec);

    if (result >= 0)
        result = new_cred(exec, &cred);
    if (result < 0)
        return result;
    exec->cred = cred;
    result = elf_load(exec);
    if (result < 0) {
        cred_put(cred);
        return result;
    }
    return become(exec, cred);
}

/* What the program is called: a descriptor's is /dev/fd/N, as Linux has it. */
static int name_it(struct exec *exec, int dirfd, const char *name)
{
    int length;

    if (name[0] == '/' || dirfd == AT_FDCWD)
        length = snprintf(exec->name, sizeof(exec->name), "%s", name);
    else
        length = snprintf(exec->name, sizeof(exec->name), name[0] ? "/dev/fd/%d/%s" : "/dev/fd/%d",
                          dirfd, name);
    return length < (int)sizeof(exec->name) ? 0 : -ENAMETOOLONG;
}

static size_t room_for_strings(void)
{
    rlim_t stack = current->process->limits[RLIMIT_STACK].rlim_cur / 4;
    size_t most = 6ul << 20, least = 128ul << 10;

    return stack > most ? most : stack < least ? least : (size_t)stack;
}

static int strings_of_guest(struct exec *exec, uint64_t argv, uint64_t envp)
{
    size_t left = room_for_strings();
    int result = strings_in(&exec->argv, current->mm, argv, &left);

    if (result >= 0)
        result = strings_in(&exec->envp, current->mm, envp, &left);
    if (result >= 0 && !exec->argv.n)
        result = exec_string_add(&exec->argv, "", 0); /* as Linux since 5.18 */
    return result;
}

static int open_fd(int fd, struct file **ret_file)
{
    struct file *named = fd_get(fd);
    struct path path;
    int result;

    if (!named)
        return -EBADF;
    if (named->dentry) {
        path = (struct path){named->mount, named->dentry};
        result = open_regular(&path, ret_file);
    } else {
        result = named->inode && S_ISREG(named->inode->mode) ? 0 : -EACCES;
        if (result == 0) {
            file_get(named); /* a memfd */
            *ret_file = named;
        }
    }
    file_put(named);
    return result < 0 ? result : hold_executable(ret_file);
}

static int64_t exec_call(int dirfd, uint64_t guest_name, uint64_t argv, uint64_t envp,
                         unsigned flags)
{
    struct exec *exec = calloc(1, sizeof(*exec));
    char *name = malloc(4096);
    int64_t result = exec && name ? 0 : -ENOMEM;

    if (!result && flags & ~(unsigned)(AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW))
        result = -EINVAL;
    if (!result)
        result = copy_in_string(current->mm, name, guest_name, 4096);
    if (result == 0 && !(flags & AT_EMPTY_PATH))
        result = -ENOENT;
    if (result >= 0)
        result = name_it(exec, dirfd, name);
    if (result >= 0)
        result = name[0] ? exec_open(dirfd, name, flags, &exec->file) : open_fd(dirfd, &exec->file);
    if (result >= 0)
        result = strings_of_guest(exec, argv, envp);
    if (result >= 0)
        result = execute(exec);
    free(name);
    if (exec)
        exec_free(exec);
    return result;
}

SYSCALL(execve)
{
    return exec_call(AT_FDCWD, a[0], a[1], a[2], 0);
}

SYSCALL(execveat)
{
    return exec_call((int)a[0], a[1], a[2], a[3], (unsigned)a[4]);
}

/* ---- the first process ---- */

static int strings_of_kernel(struct exec_strings *strings, char *const *texts)
{
    int result = 0;

    for (; *texts && result >= 0; texts++)
        result = exec_string_add(strings, *texts, strlen(*texts));
    return result;
}

int exec_load(struct task *task, struct file *program, const char *name, char *const argv[],
              char *const envp[])
{
    struct exec *exec = calloc(1, sizeof(*exec));
    int result = exec ? 0 : -ENOMEM;

    if (!exec)
        return result;
    exec->cred = task->cred;
    exec_hold(program);
    exec->file = program;
    snprintf(exec->name, sizeof(exec->name), "%s", name);
    result = strings_of_kernel(&exec->argv, argv);
    if (result >= 0)
        result = strings_of_kernel(&exec->envp, envp);
    if (result >= 0)
        result = elf_load(exec);
    if (result >= 0) {
        task->mm = exec->mm;
        task->regs = exec->regs;
        snprintf(task->comm, sizeof(task->comm), "%s", name);
    }
    exec_free(exec);
    return result;
}
