/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* fake_sink - sink_open() and its like over struct fake. A line is refused whole or appended whole.
 */
#include <fcntl.h>
#include <sys/stat.h>

#include "fake_sink.h"

void fake_init(struct fake *f, const char *name, const char *dir)
{
    memset(f, 0, sizeof(*f));
    f->plugin.name = name;
    snprintf(f->dir, sizeof(f->dir), "%s", dir);
    mkdir(dir, 0700);
}

int sink_open(const struct plugin *p, const struct cella_host *host,
              const struct cella_options *options, void **ret_self, struct cella_error *err)
{
    struct fake *f = (struct fake *)(uintptr_t)p;

    (void)host;
    (void)options;
    (void)err;
    f->open++;
    *ret_self = f;
    return 0;
}

int sink_event(const struct plugin *p, void *self, const struct cella_record *record,
               struct cella_error *err)
{
    struct fake *f = self;
    char path[192];
    int fd;

    (void)p;
    f->events++;
    if (f->die_before && (int)f->events == f->die_before)
        _exit(9);
    if (f->fail_next) {
        f->fail_next -= f->fail_next > 0;
        f->failures++;
        return fail(err, f->fail_code ? f->fail_code : -ENOSPC, "fake: no room");
    }
    snprintf(path, sizeof(path), "%s/%s.jsonl", f->dir, record->chain);
    fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || write_all(fd, record->line.ptr, record->line.len) < 0 ||
        write_all(fd, "\n", 1) < 0)
        abort();
    close(fd);
    snprintf(f->last_kind, sizeof(f->last_kind), "%s", record->kind);
    if (f->die_after && (int)f->events == f->die_after)
        _exit(9);
    return 0;
}

int sink_flush(const struct plugin *p, void *self, struct cella_error *err)
{
    (void)p;
    (void)err;
    ((struct fake *)self)->flushes++;
    return 0;
}

void sink_close(const struct plugin *p, void *self)
{
    (void)p;
    if (self)
        ((struct fake *)self)->open--;
}
