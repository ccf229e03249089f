/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * common - printing and connecting. Whatever did not come from the user of this terminal (names of
 * cells, files, audit text, messages about a cell) goes through print_safe().
 */
#include <stdarg.h>

#include "cli.h"

char *safe_string(const char *s, size_t len)
{
    auto_buf struct buf json = BUF_INIT;

    if (buf_json_string(&json, s, len) < 0) {
        fputs("cella: out of memory\n", stderr);
        exit(CLI_FAILED);
    }
    /* without the quotes; \" and \\ stay as they are: what is shown can be told from what is meant
     */
    json.ptr[json.len - 1] = 0;
    memmove(json.ptr, json.ptr + 1, json.len - 1);
    return steal_ptr(&json.ptr);
}

void print_safe(FILE *to, const char *s, size_t len)
{
    auto_free char *safe = safe_string(s, len);

    fputs(safe, to);
}

/* Control characters out, quotes and backslashes as they are: our own sentences hold them. */
static void say_line(const char *text)
{
    auto_free char *safe = safe_string(text, strlen(text));
    char *in = safe, *out = safe;

    for (; *in; in++) {
        if (in[0] == '\\' && (in[1] == '"' || in[1] == '\\'))
            in++;
        *out++ = *in;
    }
    *out = 0;
    fprintf(stderr, "cella: %s\n", safe);
}

void cli_say(const char *fmt, ...)
{
    char *text = NULL;
    va_list ap;

    va_start(ap, fmt);
    if (vasprintf(&text, fmt, ap) >= 0) {
        say_line(text);
        free(text);
    }
    va_end(ap);
}

int print_json(const json_t *j)
{
    /* JSON_ENSURE_ASCII: no byte of a cell can act on a terminal */
    auto_free char *text = json_dumps(j, JSON_INDENT(2) | JSON_ENSURE_ASCII | JSON_ENCODE_ANY);

    if (!text)
        return fail(cli_err, -ENOMEM, "out of memory");
    puts(text);
    return 0;
}

const char *json_str(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));

    return s ? s : "";
}

int64_t json_int(const json_t *o, const char *key)
{
    return json_integer_value(json_object_get(o, key));
}

void human_size(uint64_t bytes, char out[32])
{
    static const char units[] = "KMGT";
    double v = (double)bytes;
    int i = -1;

    while (v >= 1024 && i < 3) {
        v /= 1024;
        i++;
    }
    if (i < 0)
        snprintf(out, 32, "%llu", (unsigned long long)bytes);
    else
        snprintf(out, 32, v < 10 && v != (double)(unsigned)v ? "%.1f%c" : "%.0f%c", v, units[i]);
}

void human_time(uint64_t ns, char out[32])
{
    if (ns < 1000000000u)
        snprintf(out, 32, "%.4gms", (double)ns / 1e6);
    else if (ns % 1000000000u == 0)
        snprintf(out, 32, "%llus", (unsigned long long)(ns / 1000000000u));
    else
        snprintf(out, 32, "%.1fs", (double)ns / 1e9);
}

int cli_config(const struct options *o, struct config **ret)
{
    return config_load(o->config, ret, cli_err);
}

int cli_connect(const struct options *o, const char *cell, struct config **ret_config,
                struct client **ret)
{
    struct config *c;
    int r = cli_config(o, &c);

    if (r < 0)
        return r;
    r = client_connect(c, cell, ret, cli_err);
    if (r < 0) {
        config_free(c);
        return r;
    }
    *ret_config = c;
    return 0;
}
