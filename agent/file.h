/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* file - what the workers of file operations (file.c, file_change.c) share. */
#ifndef CELLA_AGENT_FILE_H
#define CELLA_AGENT_FILE_H

#include <stdint.h>

struct job {
    uint32_t op, mode, flag; /* flag: RECURSIVE or PARENTS */
    int has_mode;
    char *path, *path2;
};

/* The one terminal frame of a worker, and its end. */
struct fields;
_Noreturn void job_fail(int err, const char *step, const char *path);
_Noreturn void job_done(const struct fields *f);
/* Opens the directory of `path`; *ret_name is the last component. */
int open_parent(char *path, char **ret_name);

static inline int is_dot(const char *name)
{
    return name[0] == '.' && (!name[1] || (name[1] == '.' && !name[2]));
}

/* ---- file_change.c ---- */
_Noreturn void file_remove(const struct job *j);
_Noreturn void file_rename(const struct job *j);
_Noreturn void file_mkdir(const struct job *j);

#endif
