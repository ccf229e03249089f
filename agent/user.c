/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * user - "uid", "uid:gid", "name", "name:group" to numbers, from the cell's own /etc/passwd and
 * /etc/group.
 *
 * Why here: no libc lookup (static program, and NSS would run the cell's code in the agent). The
 * files are the workload's: only regular ones are read, at most FILE_MAX bytes, and they can say
 * nothing worse than another unprivileged number of the same cell. Runs in the child that becomes
 * the workload, never in the agent. Threads: no state beyond one buffer.
 */
#include <fcntl.h>
#include <sys/stat.h>

#include "agent.h"

#define FILE_MAX (256u * 1024u)

static char text[FILE_MAX + 1];

/* Reads a whole file into `text`; missing or odd files are empty. */
static void load(const char *path)
{
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    struct stat st;
    size_t len = 0;
    ssize_t n = 0;

    if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
        while (len < FILE_MAX && (n = read(fd, text + len, FILE_MAX - len)) > 0)
            len += (size_t)n;
    text[len] = 0;
    if (fd >= 0)
        close(fd);
}

/* Splits the next line of *at at ':' into at most max pieces; number of pieces, 0 = end. */
static size_t next_line(char **at, char **piece, size_t max)
{
    char *p = *at;
    size_t n = 0;

    if (!*p)
        return 0;
    piece[n++] = p;
    for (; *p && *p != '\n'; p++)
        if (*p == ':' && n < max) {
            *p = 0;
            piece[n++] = p + 1;
        }
    if (*p)
        *p++ = 0;
    *at = p;
    return n;
}

/* By name, or by number when name is NULL. */
static int passwd_find(const char *name, uint32_t uid, struct user *ret)
{
    char *at = text, *f[7];
    size_t n;
    int64_t u, g;

    load("/etc/passwd");
    while ((n = next_line(&at, f, 7)) > 0) {
        if (n < 4 || (u = parse_num(f[2])) < 0 || (g = parse_num(f[3])) < 0)
            continue;
        if (name ? strcmp(name, f[0]) != 0 : (uint32_t)u != uid)
            continue;
        ret->uid = (uint32_t)u;
        ret->gid = (uint32_t)g;
        return 0;
    }
    return -ENOENT;
}

static int group_find(const char *name, uint32_t *ret)
{
    char *at = text, *f[4];
    size_t n;
    int64_t g;

    load("/etc/group");
    while ((n = next_line(&at, f, 4)) > 0)
        if (n >= 3 && strcmp(f[0], name) == 0 && (g = parse_num(f[2])) >= 0) {
            *ret = (uint32_t)g;
            return 0;
        }
    return -ENOENT;
}

static int is_member(const char *list, const char *name)
{
    size_t n = strlen(name);

    while (*list) {
        if (strncmp(list, name, n) == 0 && (list[n] == ',' || !list[n]))
            return 1;
        while (*list && *list != ',')
            list++;
        if (*list)
            list++;
    }
    return 0;
}

static void groups_of(const char *name, struct user *u)
{
    char *at = text, *f[4];
    size_t n;
    int64_t g;

    load("/etc/group");
    while ((n = next_line(&at, f, 4)) > 0 && u->n_groups < 64)
        if (n == 4 && is_member(f[3], name) && (g = parse_num(f[2])) >= 0)
            u->groups[u->n_groups++] = (uint32_t)g;
}

int user_resolve(const char *spec, struct user *ret, const char **ret_why)
{
    char name[256], *group;
    int64_t num;

    if (strlen(spec) >= sizeof(name)) {
        *ret_why = "the user is longer than 255 bytes";
        return -EINVAL;
    }
    strcpy(name, spec);
    group = strchr(name, ':');
    if (group)
        *group++ = 0;
    *ret = (struct user){0};
    num = parse_num(name);
    if (num < 0 && passwd_find(name, 0, ret) < 0) {
        *ret_why = "no such user in the cell's /etc/passwd";
        return -ENOENT;
    }
    if (num >= 0) {
        if (!group && passwd_find(NULL, (uint32_t)num, ret) < 0)
            ret->gid = (uint32_t)num; /* never group 0 unasked */
        ret->uid = (uint32_t)num;
    } else {
        groups_of(name, ret);
    }
    if (!group)
        return 0;
    num = parse_num(group);
    if (num < 0 && group_find(group, &ret->gid) < 0) {
        *ret_why = "no such group in the cell's /etc/group";
        return -ENOENT;
    }
    if (num >= 0)
        ret->gid = (uint32_t)num;
    return 0;
}
