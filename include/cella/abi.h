/* SPDX-License-Identifier: MIT */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * cella/abi.h - what every cella plugin and the host agree on.
 *
 * Include <cella/plugin.h> and the header of your kind; they include this one.
 *
 * Rules that hold in every header of this directory:
 *
 * - C99 and C++. Fixed-width integers only. No bit fields, no bare enum fields, no bool.
 * - Every struct that crosses the boundary starts with struct cella_hdr. Only the
 *   CELLA_HDR_INIT / CELLA_*_INIT / CELLA_REGISTER_* macros fill it.
 * - Operation tables grow at the end. The host copies min(its size, plugin's size) into a zeroed
 *   table, so an operation the plugin does not know is NULL and gets its documented default, and
 *   an unknown tail is ignored. A table shorter than the major's baseline is refused.
 * - Data structs (everything else) also grow at the end. A shorter one is zero-extended. A longer
 *   one whose unknown tail is not all zero is refused with -E2BIG: it asks for something the
 *   reader would silently not do. Zero in a new field means the old behaviour and no new privilege.
 * - `flags` and `reserved*` must be zero unless a constant here names the bit. Readers refuse others.
 * - Strings are UTF-8 and NUL-terminated; a `struct cella_span` is bytes with a length and need not be.
 * - No memory changes owner. The host owns what it passes for the duration of the call, unless a
 *   member says longer. A plugin owns what it hands out; the member says how long it must stay.
 * - File descriptors are close-on-exec. Names say who closes: `own_` is taken over by the callee on
 *   success and on failure, `borrow_` stays the caller's and is valid during the call. -1 means none.
 * - Functions that can fail return 0 or a positive result on success and a negative errno on
 *   failure. On failure outputs are untouched and `err` (may be NULL) says what happened. On success
 *   `err` is untouched.
 * - Unless a table declares otherwise the host calls one instance from one thread at a time.
 * - A plugin never calls exit, abort, _exit (except in a child it forked), signal, setenv, chdir,
 *   umask or atexit, and never writes to descriptors 0, 1, 2.
 */
#ifndef CELLA_ABI_H
#define CELLA_ABI_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CELLA_ABI_MAJOR 1
#define CELLA_ABI_MINOR 0

#if defined(__GNUC__)
#define CELLA_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define CELLA_EXPORT __attribute__((visibility("default")))
#else
#define CELLA_PRINTF(fmt, args)
#define CELLA_EXPORT
#endif

/* What a struct is. Distinct per type, so a table of one kind is never taken for another. */
enum cella_kind {
    CELLA_KIND_NONE = 0,
    /* plugin kinds: the operation tables */
    CELLA_KIND_BACKEND = 1,
    CELLA_KIND_ENFORCER = 2,
    CELLA_KIND_DECIDER = 3,
    CELLA_KIND_SINK = 4,
    CELLA_KIND_SECRET = 5,
    /* the host's own tables */
    CELLA_KIND_HOST = 32,
    /* data structs */
    CELLA_KIND_ERROR = 64,
    CELLA_KIND_PROBE = 65,
    CELLA_KIND_PROBE_REPORT = 66,
    CELLA_KIND_SPEC = 67,
    CELLA_KIND_LIMITS = 68,
    CELLA_KIND_STARTED = 69,
    CELLA_KIND_STATS = 70,
    CELLA_KIND_REAP = 71,
    CELLA_KIND_ATTACH = 72,
    CELLA_KIND_ATTACHED = 73,
    CELLA_KIND_POLICY = 74,
    CELLA_KIND_APPLIED = 75,
    CELLA_KIND_FLOW = 76,
    CELLA_KIND_REQUEST = 77,
    CELLA_KIND_VERDICT = 78,
    CELLA_KIND_EVENT = 79,
    CELLA_KIND_RECORD = 80,
    CELLA_KIND_SECRET_QUERY = 81,
    CELLA_KIND_OPTIONS = 82,
    CELLA_KIND_SNAPSHOT = 83,
    CELLA_KIND_REACH = 84,
    CELLA_KIND_REACH_ROW = 85,
    CELLA_KIND_REACH_SEEN = 86,
    CELLA_KIND_READY = 87
};

/* The first 16 bytes of every struct that crosses. Frozen for ever. */
struct cella_hdr {
    uint32_t size;  /* sizeof the struct as its writer knows it, bytes */
    uint16_t kind;  /* enum cella_kind */
    uint16_t major; /* CELLA_ABI_MAJOR of the writer */
    uint32_t minor; /* CELLA_ABI_MINOR of the writer */
    uint32_t flags; /* zero unless the struct names bits */
};

#define CELLA_HDR_INIT(type, kind_)                                                                \
    {                                                                                              \
        (uint32_t)sizeof(type), (uint16_t)(kind_), CELLA_ABI_MAJOR, CELLA_ABI_MINOR, 0             \
    }

/* Bytes with a length. `ptr` may be NULL only when `len` is 0. */
struct cella_span {
    const char *ptr;
    uint64_t len;
};

/*
 * Error object. The caller supplies the struct and the message buffer; the callee fills `code`,
 * `step` and the message with cella_error_set() of <cella/plugin.h> or by hand. The message is one
 * line without a final newline: what was asked, what happened, what to do.
 */
struct cella_error {
    struct cella_hdr hdr; /* CELLA_KIND_ERROR */
    int32_t code;         /* negative errno, as returned */
    uint32_t step;        /* plugin's own number of the failing stage; 0 = not given */
    uint32_t msg_len;     /* bytes in msg, without the NUL */
    uint32_t msg_cap;     /* bytes of msg, with the NUL; 0 = no buffer */
    char *msg;            /* NUL-terminated; may be NULL when msg_cap is 0 */
};

/* ------------------------------------------------------------------ options */

/*
 * A knob of a plugin. The host parses the config by this table, checks type and range, fills
 * defaults and hands the values over as struct cella_options. The table is static.
 */
enum cella_option_type {
    CELLA_OPT_BOOL = 1000, /* i64: 0 or 1 */
    CELLA_OPT_INT = 2000,  /* i64 within [min, max] */
    CELLA_OPT_SIZE = 3000, /* i64 bytes within [min, max]; text such as "64M" (powers of 1024) */
    CELLA_OPT_DURATION = 4000, /* i64 nanoseconds within [min, max]; text such as "250ms", "10m" */
    CELLA_OPT_STRING = 5000,   /* str */
    CELLA_OPT_ENUM = 6000,     /* str, one of the '|'-separated words of `choices` */
    CELLA_OPT_PATH = 7000      /* str, absolute path */
};

struct cella_option {
    const char *name;    /* [a-z0-9_-]+, unique in the table */
    const char *help;    /* one line */
    const char *def;     /* default as text; NULL = option is required */
    const char *choices; /* for CELLA_OPT_ENUM, else NULL */
    uint32_t type;       /* enum cella_option_type */
    uint32_t flags;      /* zero */
    int64_t min, max;    /* inclusive; both 0 = no range */
};

struct cella_option_value {
    const char *name; /* as in the table */
    const char *str;  /* STRING, ENUM, PATH: the text; other types: NULL */
    int64_t i64;      /* BOOL, INT, SIZE, DURATION */
};

/* All options of the table, in its order, defaults filled in. Valid during the call. */
struct cella_options {
    struct cella_hdr hdr; /* CELLA_KIND_OPTIONS */
    const struct cella_option_value *values;
    uint32_t n_values;
    uint32_t value_stride; /* sizeof(struct cella_option_value) as the writer knows it */
};

/* ------------------------------------------------------------- capabilities */

/* How far a plugin can do a thing on this host. Ordered. */
enum cella_answer {
    CELLA_NONE = 1000,     /* not at all; the reason says why */
    CELLA_EMULATED = 2000, /* works, by weaker or slower means; the reason says which */
    CELLA_NATIVE = 3000    /* works as named */
};

/*
 * Where a probe pushes its answers. `capability` may be called any number of times during the
 * probe, from the probing thread. Names are [a-z0-9.-]+; well-known names are listed in the
 * header of the kind; others are shown and otherwise ignored. `reason` is one line, may be NULL
 * only for CELLA_NATIVE.
 */
/* In hdr.flags of a probe report: a cell is waiting. Say whether one can be made here; what only a trial
   would show need not be tried, nor reported. */
#define CELLA_PROBE_QUICK 1u

struct cella_probe_report {
    struct cella_hdr hdr; /* CELLA_KIND_PROBE_REPORT */
    void *ctx;
    void (*capability)(void *ctx, const char *name, uint32_t answer, const char *reason);
};

/* ------------------------------------------------------------------- events */

/*
 * One fact for the audit, as a plugin states it. The core adds sequence number, time, cell and
 * policy generation, escapes every string and bounds it (CELLA_EVENT_STR_MAX); a field can never
 * forge another. Field names are [a-z0-9_]+; a duplicate or malformed name drops the field and the
 * record says so.
 */
#define CELLA_EVENT_FIELDS_MAX 32
#define CELLA_EVENT_STR_MAX 1024

enum cella_field_type { CELLA_FIELD_STR = 1000, CELLA_FIELD_INT = 2000, CELLA_FIELD_BOOL = 3000 };

struct cella_field {
    const char *name;
    uint32_t type; /* enum cella_field_type */
    uint32_t reserved0;
    int64_t i64;           /* INT, BOOL */
    struct cella_span str; /* STR; any bytes */
};

struct cella_event {
    struct cella_hdr hdr; /* CELLA_KIND_EVENT */
    const char *kind;     /* dotted: "net.deny", "limit.hit", … [a-z0-9.]+ */
    const struct cella_field *fields;
    uint32_t n_fields;
    uint32_t field_stride; /* sizeof(struct cella_field) as the writer knows it */
};

#ifdef __cplusplus
}
#endif
#endif
