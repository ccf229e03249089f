/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * A whole flow of the HTTP engine between two parties that send what they like: first byte even HTTP/1.1, odd HTTP/2;
 * then pieces: one byte (top bit: from the server; length; 0: that side's end) and the bytes. No socket is used.
 * What leaves for the server starts with a request the policy allows, and buffers stay bounded.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "http.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct engine engine;

uint64_t watch_now(void)
{
    return 1000000000u;
}

void watch_set(struct engine *e, struct watch *w, uint32_t want)
{
    (void)e;
    (void)w;
    (void)want;
}

void watch_del(struct engine *e, struct watch *w)
{
    (void)e;
    (void)w;
}

int engine_tell(struct engine *e, const struct ctl_msg *m)
{
    (void)e;
    if (!memchr(m->name, 0, sizeof(m->name)) || !memchr(m->method, 0, sizeof(m->method)))
        abort();
    return 0;
}

void engine_tell_gate(struct engine *e, const struct engine_msg *m)
{
    (void)e;
    if (m->type != ENGINE_END)
        abort();
}

static void setup(void)
{
    static const struct policy_ports port = {443, 443};
    static const char *const path = "/ok/**";
    static const struct policy_inject inject[] = {
        {"k", "x-key", "", "", POLICY_SURFACE_HEADER, 0},
        {"k", "", "PLACE__HOLDER", "", POLICY_SURFACE_BASIC, 0},
    };
    struct policy_rule r = {.id = "r",
                            .host = "a.example",
                            .ports = &port,
                            .path = &path,
                            .inject = inject,
                            .methods = POLICY_GET | POLICY_POST,
                            .n_ports = 1,
                            .n_paths = 1,
                            .n_inject = 2,
                            .verdict = POLICY_ALLOW,
                            .proto = POLICY_TCP,
                            .layer = POLICY_HTTP,
                            .kind = POLICY_EXACT,
                            .websocket = 1};
    struct policy_head head = {.n_strata = 1, .generation = 1};
    struct policy_builder *b = policy_builder_new(&head);

    policy_builder_rule(b, &r);
    if (policy_builder_finish(b, &engine.table) < 0 || secret_put(&engine, "k", "SECRET", 6) < 0)
        abort();
    engine.tokens = 1;
    engine.tokens_at = watch_now();
}

/* What went to the server is forgotten, but not how it began. */
static void drain(struct flow *f, char first[8], size_t *n)
{
    if (f->cell.out.len > OUT_MAX + 3 * HEAD_BYTES_MAX ||
        f->up.out.len > OUT_MAX + 3 * HEAD_BYTES_MAX)
        abort();
    if (!f->h2 && f->phase <= PHASE_H1)
        while (*n < 8 && *n < f->up.out.len) {
            first[*n] = bytes_at(&f->up.out)[*n];
            (*n)++;
        }
    bytes_fini(&f->cell.out);
    bytes_fini(&f->up.out);
}

static int step(struct flow *f)
{
    long r = 1;
    int i;

    for (i = 0; i < 64 && r > 0 && f->phase != PHASE_CLOSING; i++)
        r = f->phase == PHASE_H2 ? h2_step(f) : f->phase == PHASE_H1 ? h1_step(f) : 0;
    return r < 0 || f->phase > PHASE_H2 || (f->phase == PHASE_H2 && h2_done(f)) ? -1 : 0;
}

static void feed(struct flow *f, struct side *s, const uint8_t *p, size_t n)
{
    if (!n)
        s->eof = 1;
    else if (!s->eof && s->w.fd >= 0 && s->in.len < HEAD_BYTES_MAX)
        bytes_add(&s->in, p, n);
    (void)f;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char preface[] =
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0"; /* and SETTINGS */
    struct flow *f = calloc(1, sizeof(*f));
    char first[8] = "";
    size_t n = 0, at = 1;

    if (!engine.table.head.magic)
        setup();
    f->e = &engine;
    f->tls = 1;
    f->port = 443;
    snprintf(f->name, sizeof(f->name), "a.example");
    f->cell.w.fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    f->up.w.fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    f->phase = size && data[0] & 1 ? PHASE_H2 : PHASE_H1;
    engine.list = f;
    engine.n_flows = 1;
    if (f->phase == PHASE_H2) {
        if (h2_start(f) < 0)
            abort();
        bytes_add(&f->cell.in, preface, sizeof(preface));
        bytes_add(&f->up.in, preface + 24, sizeof(preface) - 24);
    }
    while (at < size && step(f) == 0) {
        size_t len = data[at] & 0x7f, left = size - at - 1;
        feed(f, data[at] & 0x80 ? &f->up : &f->cell, data + at + 1, len < left ? len : left);
        at += 1 + len;
        step(f);
        drain(f, first, &n);
    }
    if (n >= 8 && memcmp(first, "GET /ok/", 8) != 0 && memcmp(first, "POST /ok", 8) != 0)
        abort();
    flow_end(f, 1, REASON_NONE);
    flow_reap(&engine);
    return 0;
}
