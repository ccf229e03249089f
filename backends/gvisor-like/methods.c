/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * methods - typed methods: limits of a running cell, its processes, the system calls it asked for and did not get. What
 * the sentry answers is hostile once the guest has taken it over: rows are bounded in number, names go through
 * buf_json_string(). Threads: one.
 */
#include "gvisor_like.h"
#include "limit.h"

#define ROWS_MAX 4096u

LIMIT_METHOD(memory, memory_bytes, bytes)
LIMIT_METHOD(pids, pids, count)
LIMIT_METHOD(cpu, cpu_millis, millis)

static void missing_row(struct buf *b, const struct sentry_reply *reply, uint32_t i)
{
    const struct sentry_missing *m = &reply->missing[i];

    buf_addf(b, "{\"number\":%llu,\"name\":", (unsigned long long)m->number);
    buf_json_string(b, m->name, strnlen(m->name, sizeof(m->name)));
    buf_addf(b, ",\"count\":%llu}", (unsigned long long)m->count);
}

static void process_row(struct buf *b, const struct sentry_reply *reply, uint32_t i)
{
    const struct sentry_process *p = &reply->processes[i];

    buf_addf(b, "{\"pid\":%u,\"tasks\":%u,\"name\":", p->pid, p->tasks);
    buf_json_string(b, p->comm, strnlen(p->comm, sizeof(p->comm)));
    buf_add(b, "}", 1);
}

/* All rows of an answer that comes in parts, each asked for by what the last row was. */
static int64_t rows(struct cell *c, uint32_t op, const char *what, char *out, uint64_t cap,
                    struct cella_error *err)
{
    auto_buf struct buf b = BUF_INIT;
    struct sentry_reply reply;
    uint64_t after = op == SENTRY_OP_MISSING ? UINT64_MAX : 0;
    uint32_t i, total = 0;
    int r;

    if (c->sentry <= 0)
        return cella_error_set(err, -ESRCH, 0, "the cell has ended");
    buf_add(&b, "[", 1);
    do {
        r = order(c, what, op, after, 0, &reply, err);
        if (r < 0)
            return r;
        for (i = 0; i < reply.n && total < ROWS_MAX; i++, total++) {
            if (total)
                buf_add(&b, ",", 1);
            if (op == SENTRY_OP_MISSING)
                missing_row(&b, &reply, i);
            else
                process_row(&b, &reply, i);
            after = op == SENTRY_OP_MISSING ? reply.missing[i].number : reply.processes[i].pid;
        }
    } while (reply.n && total < ROWS_MAX);
    buf_add(&b, "]", 1);
    return buf_out(&b, out, cap, err);
}

static int64_t missing(void *self, char *out, uint64_t cap, struct cella_error *err)
{
    return rows(self, SENTRY_OP_MISSING, "missing system calls", out, cap, err);
}

static int64_t processes(void *self, char *out, uint64_t cap, struct cella_error *err)
{
    return rows(self, SENTRY_OP_PROCESSES, "processes", out, cap, err);
}

const struct cella_method methods[N_METHODS] = {
    LIMIT_MEMORY_METHOD,
    LIMIT_PIDS_METHOD,
    LIMIT_CPU_METHOD,
    {"missing", "-> json", "system calls the cell asked for and did not get: number, name, count",
     (cella_method_fn)missing, 0, 0},
    {"processes", "-> json", "the cell's processes: pid in the cell, tasks and name",
     (cella_method_fn)processes, 0, 0},
};
