/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* stages - what the warden says of its steps, and when, in one line on stderr. */
#include "stages.h"

/* Stages come in their order; what claims another is moved there. */
static void stage_at(void *ctx, const char *name, uint64_t at)
{
    struct stages *s = ctx;
    uint64_t last = s->n ? s->v[s->n - 1].at : 0, now = now_ns();

    if (s->on && s->n < ARRAY_LEN(s->v)) {
        snprintf(s->v[s->n].name, sizeof(s->v[0].name), "%s", name);
        s->v[s->n++].at = at < last ? last : at > now ? now : at;
    }
}

void stages_next(struct stages *s, const char *name)
{
    stage_at(s, name, now_ns());
}

client_progress *stages_listener(const struct stages *s)
{
    return s->on ? stage_at : NULL;
}

void stages_print(struct stages *s)
{
    uint64_t end = now_ns();
    size_t i;

    if (!s->on || !s->n)
        return;
    fputs("cella: timings (ms):", stderr);
    for (i = 0; i < s->n; i++) {
        fputc(' ', stderr);
        print_safe(stderr, s->v[i].name, strlen(s->v[i].name));
        fprintf(stderr, " %.1f",
                (double)((i + 1 < s->n ? s->v[i + 1].at : end) - s->v[i].at) / 1e6);
    }
    fprintf(stderr, " total %.1f\n", (double)(end - s->v[0].at) / 1e6);
}
