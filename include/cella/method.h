/* SPDX-License-Identifier: MIT */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * cella/method.h - typed methods: functions a plugin exports beyond its operation table.
 *
 * The host parses the signature once at load, converts and range-checks JSON arguments, calls
 * through libffi and converts the result, so that `cella call CELL container.limit-memory
 * '{"bytes":67108864}'` works with no code written for it.
 *
 *   signature  = [ param *( "," param ) ] "->" result
 *   param      = type name                 name = [a-z][a-z0-9_]*, unique in the signature
 *   type       = "i32" | "u32" | "i64" | "u64" | "f64" | "bool" | "str"
 *   result     = "i32" | "i64" | "json"
 *
 * White space between tokens is free. At most 8 parameters. The C function is
 *
 *   int32_t f(void *self, <params>, struct cella_error *err)                          "-> i32"
 *   int64_t f(void *self, <params>, struct cella_error *err)                          "-> i64"
 *   int64_t f(void *self, <params>, char *buf, uint64_t cap, struct cella_error *err) "-> json"
 *
 * with i32 int32_t, u32 uint32_t, i64 int64_t, u64 uint64_t, f64 double, bool int32_t (0 or 1), str
 * const char * (UTF-8, NUL-terminated, no NUL inside, valid during the call).
 *
 * A negative result is a negative errno and `err` says why. "json" writes one JSON text of the returned
 * length into `buf` (no NUL needed); it returns -ENOBUFS when `cap` is too small.
 *
 * Methods run on the host's thread for the instance, only while the cell is created, running or
 * paused. They must return within the host's call deadline (10 s).
 */
#ifndef CELLA_METHOD_H
#define CELLA_METHOD_H

#include <cella/abi.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CELLA_METHOD_PARAMS_MAX 8

typedef void (*cella_method_fn)(void); /* cast of the real function */

struct cella_method {
    const char *name;      /* [a-z][a-z0-9-]*, unique; called as <plugin name>.<name> */
    const char *signature; /* grammar above */
    const char *help;      /* one line */
    cella_method_fn fn;
    uint32_t flags; /* zero */
    uint32_t reserved0;
};

#ifdef __cplusplus
}
#endif
#endif
