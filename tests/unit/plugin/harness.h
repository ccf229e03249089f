/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* harness - what the plugin tests share: cmocka, a host table that keeps its log, message checks.
 */
#ifndef CELLA_TEST_PLUGIN_HARNESS_H
#define CELLA_TEST_PLUGIN_HARNESS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "plugin_int.h"
#undef fail /* cmocka has one of its own */
#include <cmocka.h>

static char host_log[4096] __attribute__((unused));

static void host_log_add(void *ctx, uint32_t level, const char *topic, const char *fmt, ...)
    CELLA_PRINTF(4, 5);
static void host_log_add(void *ctx, uint32_t level, const char *topic, const char *fmt, ...)
{
    size_t n = strlen(host_log);
    va_list ap;

    (void)ctx, (void)level, (void)topic;
    va_start(ap, fmt);
    vsnprintf(host_log + n, sizeof(host_log) - n, fmt, ap);
    va_end(ap);
}

static const struct cella_host test_host __attribute__((unused)) = {
    .hdr = CELLA_HDR_INIT(struct cella_host, CELLA_KIND_HOST),
    .log = host_log_add,
};

/* cmocka's own macro uses the name that util.h had. */
#define fail_msg_(...)                                                                             \
    do {                                                                                           \
        print_error(__VA_ARGS__);                                                                  \
        print_error("\n");                                                                         \
        _fail(__FILE__, __LINE__);                                                                 \
    } while (0)

static inline void assert_says_(const char *text, const char *part, const char *file, int line)
{
    if (text && strstr(text, part))
        return;
    print_error("\"%s\" does not say \"%s\"\n", text ? text : "", part);
    _fail(file, line);
}
#define assert_says(text, part) assert_says_((text), (part), __FILE__, __LINE__)

#define assert_ok(call, eb)                                                                        \
    do {                                                                                           \
        int r_ = (call);                                                                           \
        if (r_ < 0)                                                                                \
            fail_msg_("%s: %d: %s", #call, r_, (eb).text);                                         \
    } while (0)

#endif
