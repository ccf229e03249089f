/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* exec.h - what exec.c and elf.c share. */
#ifndef SENTRY_EXEC_H
#define SENTRY_EXEC_H

#include "fs.h"
#include "task.h"

#define EXEC_STRING_MAX (128ul << 10) /* MAX_ARG_STRLEN, with its NUL */
#define EXEC_HEAD 256                 /* bytes of a file that tell what it is: BINPRM_BUF_SIZE */
#define EXEC_DEPTH 5                  /* interpreters of scripts that are scripts */

/* A program being loaded. Strings are one block, each with its NUL; all of it is the heap's, not the arena's: it is gone
   before the call returns. */
struct exec_strings {
    char *bytes;
    size_t size, room;
    unsigned n;
};

struct exec {
    struct file *file; /* reference */
    struct exec_strings argv, envp;
    char name[4096]; /* as it was called: AT_EXECFN, comm */
    char script
        [4096]; /* what an interpreter is told to read: the name, or an interpreter that is a script */
    const struct cred *cred; /* borrowed: whose ids the program is told */
    bool secure;             /* AT_SECURE */
    unsigned char head[EXEC_HEAD];
    size_t head_size;
    /* What comes of it. */
    struct mm *mm;
    struct user_regs_struct regs;
};

int exec_string_add(struct exec_strings *strings, const char *text,
                    size_t length); /* -E2BIG, -ENOMEM */
void exec_strings_free(struct exec_strings *strings);

/* A regular file that may be executed, held as exec_hold() does. */
int exec_open(int dirfd, const char *name, unsigned flags, struct file **ret_file);

/* elf.c: a new mm with the program, its interpreter and its stack; -ENOEXEC: not of a kind that runs here. */
int elf_load(struct exec *exec);

#endif
