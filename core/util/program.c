/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* program - where this program's helpers lie, and the name it shows to ps. Threads: none. */
#include <limits.h>
#include <sys/prctl.h>

#include "util.h"

static struct {
    char *at; /* the arguments, one piece of memory */
    size_t len;
} title;

void proc_title_init(int argc, char **argv)
{
    int i;

    for (i = 0; i < argc; i++)
        if (i == 0 || argv[i] == title.at + title.len) {
            title.at = argv[0];
            title.len = (size_t)(argv[i] + strlen(argv[i]) + 1 - argv[0]);
        }
}

void proc_title(const char *name)
{
    prctl(PR_SET_NAME, name);
    if (!title.len)
        return;
    memset(title.at, 0, title.len);
    memcpy(title.at, name, strlen(name) < title.len ? strlen(name) : title.len - 1);
}

const char *helper_path(const char *name)
{
    static char dir[PATH_MAX], path[PATH_MAX + 80];
    ssize_t n;
    char *slash;

    if (!dir[0]) {
        n = readlink("/proc/self/exe", dir, sizeof(dir) - 1);
        dir[n > 0 ? n : 0] = 0;
        slash = strrchr(dir, '/');
        if (slash)
            *slash = 0;
    }
    if (strchr(name, '/') || strlen(name) > 64)
        return NULL;
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    if (access(path, X_OK) == 0)
        return path;
    snprintf(path, sizeof(path), "%s/%s", CELLA_LIBEXECDIR, name);
    return access(path, X_OK) == 0 ? path : NULL;
}
