/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * Reads arbitrary text as a configuration file, through a file in memory so that ownership and size
 * checks run too. A refusal must carry a message; an accepted file must have at least one class and
 * one sink, and every class a policy that exists.
 */
#include <fcntl.h>

#include "config.h"

static char path[64];

static void file_remove(void)
{
    unlink(path);
}

static int file_open(void)
{
    if (!path[0]) {
        snprintf(path, sizeof(path), "/dev/shm/cella-fuzz-config-%d", getpid());
        atexit(file_remove);
    }
    return open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
}

static void check(const struct config *c)
{
    size_t i;

    if (!c->n_classes || !c->n_sinks || !c->state_dir || c->state_dir[0] != '/')
        abort();
    for (i = 0; i < c->n_classes; i++) {
        const struct config_class *k = &c->classes[i];
        if (!k->limits.memory || !k->limits.disk || !k->limits.cpu_millis || !k->limits.pids)
            abort();
        if (strcmp(k->policy, "none") && strcmp(k->policy, "deny") &&
            !config_policy_find(c, k->policy))
            abort();
        if (k->floor < CELLA_STRENGTH_PROCESS || (k->backends && !k->n_backends))
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct config *c = NULL;
    struct errbuf eb;
    auto_close int fd = file_open();

    if (fd < 0 || write_all(fd, data, size) < 0)
        return 0;
    if (config_load(path, &c, errbuf_init(&eb)) < 0) {
        if (!eb.text[0] || c)
            abort();
        return 0;
    }
    check(c);
    config_free(c);
    return 0;
}
