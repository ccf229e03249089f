/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * config_world - a directory with a few policies and a plugin behind relative names; "D" in a message is that directory.
 */
#ifndef CELLA_TEST_CONFIG_WORLD_H
#define CELLA_TEST_CONFIG_WORLD_H

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include <cmocka.h>
#undef fail /* util.h has its own */

#include "config.h"
#include "../../../core/plugin/plugin.h"

static char dir[64];

/* In place of core/plugin's. */
const char *plugin_dir(void)
{
    return dir;
}

static inline void put(const char *name, const char *text, size_t len, unsigned mode)
{
    char path[128];
    int fd;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write_all(fd, text, len), 0);
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
}

static inline int load(const char *text, struct config **ret, struct errbuf *eb)
{
    char path[128];

    snprintf(path, sizeof(path), "%s/cella.json", dir);
    put("cella.json", text, strlen(text), 0644);
    return config_load(path, ret, errbuf_init(eb));
}

/* The message with the directory's name replaced by "D". */
static inline const char *shorten(char *message)
{
    size_t n = strlen(dir);
    char *p;

    while ((p = strstr(message, dir))) {
        *p = 'D';
        memmove(p + 1, p + n, strlen(p + n) + 1);
    }
    return message;
}

static inline int setup(void **state)
{
    char path[128];

    (void)state;
    strcpy(dir, "/tmp/cella-test-config-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    unsetenv("CELLA_CONFIG");
    unsetenv("CELLA_STATE_DIR");
    snprintf(path, sizeof(path), "%s/sub", dir);
    mkdir(path, 0755);
    put("there.so", "", 0, 0644);
    put("ok.json", "{\"x\": 1}", 8, 0644);
    put("open.json", "{}", 2, 0666);
    put("nul.json", "{\0}", 3, 0644);
    put("foreign.json", "{}", 2, 0644);
    snprintf(path, sizeof(path), "%s/foreign.json", dir);
    return geteuid() == 0 && chown(path, 12345, 0) < 0 ? -1 : 0;
}

static inline int teardown(void **state)
{
    (void)state;
    return remove_tree_at(AT_FDCWD, dir);
}

#endif
