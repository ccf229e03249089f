/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * exec - EXEC requests: the cell's default environment, user and directory are merged here and
 * nowhere else, and the audit's record of the command is made from the same fields.
 */
#include "trust.h"
#include "warden.h"

static const char *const base_env[] = {
    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME=/root",
    "LANG=C.UTF-8",
};

/* Same NAME before '='. */
static int env_same(const char *a, size_t a_len, const char *b, size_t b_len)
{
    const char *ea = memchr(a, '=', a_len), *eb = memchr(b, '=', b_len);
    size_t n = ea ? (size_t)(ea - a) : a_len;

    return n == (eb ? (size_t)(eb - b) : b_len) && !memcmp(a, b, n);
}

static int given_env(const uint8_t *fields, size_t len, const char *env)
{
    struct field f;
    size_t pos = 0;

    while (fields && field_next(fields, len, &pos, &f) == 1)
        if (f.tag == CELLA_TAG_ENV && env_same((const char *)f.p, f.len, env, strlen(env)))
            return 1;
    return 0;
}

static int request_env(const struct warden *w, const char *env)
{
    size_t i;
    json_t *v;

    json_array_foreach(w->req.env, i, v) if (env_same(json_string_value(v), json_string_length(v),
                                                      env, strlen(env))) return 1;
    return 0;
}

/* What the command does not say itself. */
static void defaults_add(struct warden *w, const uint8_t *fields, size_t len, struct buf *ret)
{
    const char *s;
    size_t i, n;
    json_t *v;

    for (i = 0; i < ARRAY_LEN(base_env); i++)
        if (!given_env(fields, len, base_env[i]) && !request_env(w, base_env[i]))
            field_add_str(ret, CELLA_TAG_ENV, base_env[i]);
    for (i = 0; w->trust_on && (s = trust_env(i)); i++)
        if (!given_env(fields, len, s) && !request_env(w, s))
            field_add_str(ret, CELLA_TAG_ENV, s);
    json_array_foreach(w->req.env, i, v) if (!given_env(fields, len, json_string_value(v)))
        field_add_str(ret, CELLA_TAG_ENV, json_string_value(v));
    if (w->req.user && (!fields || field_get_str(fields, len, CELLA_TAG_USER, &s, &n) == -ENOENT))
        field_add_str(ret, CELLA_TAG_USER, w->req.user);
    if (w->req.workdir && (!fields || field_get_str(fields, len, CELLA_TAG_CWD, &s, &n) == -ENOENT))
        field_add_str(ret, CELLA_TAG_CWD, w->req.workdir);
}

static int exec_audit(struct warden *w, const struct buf *fields, struct cella_error *err)
{
    auto_buf struct buf argv = BUF_INIT, cwd = BUF_INIT, user = BUF_INIT;
    struct field f;
    size_t pos = 0;
    uint32_t tty = 0;

    buf_add(&argv, "[", 1);
    while (field_next((const uint8_t *)fields->ptr, fields->len, &pos, &f) == 1) {
        if (f.tag == CELLA_TAG_ARG && argv.len < CELLA_EVENT_STR_MAX) {
            if (argv.len > 1)
                buf_add(&argv, ",", 1);
            buf_json_string(&argv, (const char *)f.p, f.len);
        } else if (f.tag == CELLA_TAG_CWD) {
            buf_add(&cwd, f.p, f.len);
        } else if (f.tag == CELLA_TAG_USER) {
            buf_add(&user, f.p, f.len);
        } else if (f.tag == CELLA_TAG_TTY) {
            tty = 1;
        }
    }
    buf_add(&argv, "]", 1);
    if (argv.oom || cwd.oom || user.oom)
        return fail(err, -ENOMEM, "exec: out of memory");
    return warden_audit(w, err, "exec.start", "s:argv", argv.ptr, "s:cwd", cwd.ptr ? cwd.ptr : "/",
                        "s:user", user.ptr ? user.ptr : "0:0", "b:tty", (int)tty, NULL);
}

int exec_merge(struct warden *w, const uint8_t *fields, size_t len, struct buf *ret,
               struct cella_error *err)
{
    buf_add(ret, fields, len);
    defaults_add(w, fields, len, ret);
    if (ret->oom)
        return fail(err, -ENOMEM, "exec: out of memory");
    if (ret->len > CELLA_FRAME_MAX)
        return fail(err, -E2BIG, "exec: arguments and environment are %zu bytes, at most %u",
                    ret->len, CELLA_FRAME_MAX);
    return exec_audit(w, ret, err);
}

int exec_from_request(struct warden *w, struct buf *ret)
{
    struct errbuf eb;
    size_t i;
    json_t *v;

    field_add_u32(ret, CELLA_TAG_OP, CELLA_OP_EXEC);
    json_array_foreach(w->req.argv, i, v) field_add_str(ret, CELLA_TAG_ARG, json_string_value(v));
    defaults_add(w, NULL, 0, ret);
    if (ret->oom)
        return -ENOMEM;
    if (ret->len > CELLA_FRAME_MAX)
        return -E2BIG;
    return exec_audit(w, ret, errbuf_init(&eb));
}
