/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * fork_child - one child of a fork, and one spare: processes of their own that fork.c starts. A warden is a fork of
 * what asked for it, and wardens of one process would share one layout of addresses.
 *
 * __child reads two lines: with what to begin before there is a snapshot ({"spare": ID}, {"recipe": REQUEST} or {}), and
 * then the snapshot's id; no second line means that there will be none. It prints the child's name. What was prepared
 * and is not there any more, or does not fit, costs time and nothing else.
 * __spares makes one spare of a cell, and begins anew for the next.
 */
#include <fcntl.h>
#include <time.h>

#include "copies.h"

#define LINE_MAX_BYTES (1u << 20)
#define GONE_NS 10000000000ull

/* From stdin, without its end. -ENODATA: there is none. */
static int line_read(struct buf *ret)
{
    char c;
    ssize_t n;

    while ((n = read(STDIN_FILENO, &c, 1)) != 0) { /* the next line is not ours to take */
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (c == '\n')
            return 0;
        buf_add(ret, &c, 1);
        if (ret->oom || ret->len > LINE_MAX_BYTES)
            return -EFBIG;
    }
    return -ENODATA;
}

/* NULL: nothing is prepared, and the child is made as a restore is. */
static struct client *begin(struct config *c, const json_t *how)
{
    const char *spare = json_string_value(json_object_get(how, "spare"));
    json_t *recipe = json_object_get(how, "recipe");
    struct client *cl = NULL;
    struct errbuf eb;
    int r = -ENOENT;

    if (spare) {
        r = client_connect(c, spare, &cl, errbuf_init(&eb));
    } else if (recipe) {
        json_object_set_new(recipe, "lease", json_true());
        r = client_spawn(c, &cl, errbuf_init(&eb));
        if (r == 0)
            r = client_call(cl, "create", recipe, NULL, NULL, NULL, NULL, errbuf_init(&eb));
    }
    if (r < 0 && cl)
        client_free(steal_ptr(&cl));
    return cl;
}

/* A refusal that a restore would meet as well is no reason to try one. */
static int final(int r)
{
    return r == 0 || r == -EPERM || r == -EEXIST;
}

static int become(const struct options *o, const struct config *c, struct client *cl,
                  const struct snapshot *s, json_t **ret_created)
{
    json_t *args, *request = copies_request(o, s);
    char config[65];
    int r;

    if (!request)
        return cli_err->code;
    spare_config(c, config);
    args = json_pack("{s:o, s:s}", "request", request, "config", config);
    r = client_call(cl, "become", args, ret_created, NULL, NULL, NULL, cli_err);
    json_decref(args);
    return r;
}

/* What was prepared is on its way out, and has the child's name until it is gone. */
static int instead(const struct options *o, struct config *c, const struct snapshot *s,
                   json_t **ret_created)
{
    const struct timespec moment = {0, 100000000};
    uint64_t end = now_ns() + GONE_NS;
    int status, r;

    for (;;) {
        errbuf_init(&cli_errbuf);
        r = copies_restore(o, c, s, NULL, ret_created, &status);
        if (r != -EEXIST || now_ns() > end)
            return r;
        nanosleep(&moment, NULL);
    }
}

/* Takes the client. */
static int child(const struct options *o, struct config *c, struct client *cl, const char *id)
{
    struct snapshot s = SNAPSHOT_INIT;
    json_t *created = NULL;
    int status, prepared = cl != NULL, refused = 0;
    int r = snapshot_find(c->state_dir, id, &s, cli_err);

    if (r == 0)
        r = manifest_check(s.manifest, cli_err);
    if (r == 0 && prepared) {
        r = become(o, c, cl, &s, &created);
        refused = !final(r);
    }
    client_free(cl);
    if (refused)
        r = instead(o, c, &s, &created);
    else if (r == 0 && !prepared)
        r = copies_restore(o, c, &s, NULL, &created, &status);
    if (r == 0)
        r = printf("%s\n", json_str(created, "name")) < 0;
    json_decref(created);
    snapshot_close(&s);
    return r;
}

int verb_fork_child(const struct options *o, int argc, char **argv)
{
    auto_buf struct buf first = BUF_INIT, second = BUF_INIT;
    struct client *cl = NULL;
    struct config *c;
    json_t *how;
    int r = cli_config(o, &c);

    (void)argc;
    (void)argv;
    if (r < 0)
        return r;
    r = line_read(&first);
    how = r == 0 ? json_loadb(first.ptr ? first.ptr : "", first.len, 0, NULL) : NULL;
    cl = begin(c, how);
    json_decref(how);
    r = line_read(&second);
    buf_add(&second, "", 1);
    if (r == 0 && !second.oom) {
        r = child(o, c, cl, second.ptr);
    } else {
        r = CLI_FAILED; /* the fork was given up, and says why itself */
        client_free(cl);
    }
    config_free(c);
    return r;
}

/* ---- a spare ---- */

static int spare_make(struct config *c, const char *cell, int *ret_full)
{
    struct client *parent = NULL, *cl = NULL;
    json_t *now = NULL;
    int r = client_connect(c, cell, &parent, cli_err);

    if (r == 0)
        r = client_call(parent, "spares", NULL, &now, NULL, NULL, NULL, cli_err);
    client_free(parent);
    *ret_full =
        (json_int_t)json_array_size(json_object_get(now, "waiting")) >= json_int(now, "keep");
    if (r == 0 && !*ret_full)
        r = client_spawn(c, &cl, cli_err);
    if (r == 0 && !*ret_full)
        r = client_call(cl, "create", json_object_get(now, "recipe"), NULL, NULL, NULL, NULL,
                        cli_err);
    client_free(cl);
    json_decref(now);
    return r;
}

int verb_fork_spares(const struct options *o, int argc, char **argv)
{
    char count[24];
    const char *next[8] = {"cella", "__spares", "--count", count};
    size_t n = 4;
    struct config *c;
    int full = 1, r = cli_config(o, &c);

    (void)argc;
    if (r < 0)
        return r;
    r = spare_make(c, argv[0], &full);
    config_free(c);
    if (r < 0 || full || o->count <= 1)
        return r;
    snprintf(count, sizeof(count), "%llu", (unsigned long long)o->count - 1);
    if (o->config) {
        next[n++] = "--config";
        next[n++] = o->config;
    }
    next[n++] = argv[0];
    execv("/proc/self/exe", (char *const *)(uintptr_t)next);
    return fail(cli_err, -errno, "cella __spares: %s", strerror(errno));
}
