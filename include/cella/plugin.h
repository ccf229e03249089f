/* SPDX-License-Identifier: MIT */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * cella/plugin.h - how a shared object becomes a cella plugin.
 *
 * A plugin is one shared object with one exported function and one ELF note:
 *
 *   #include <cella/backend.h>
 *   #include <cella/plugin.h>
 *   … static functions …
 *   static const struct cella_backend_ops ops = { .hdr = CELLA_HDR_INIT(struct cella_backend_ops,
 *       CELLA_KIND_BACKEND), .name = "mine", … };
 *   CELLA_REGISTER(CELLA_KIND_BACKEND, ops)
 *
 * The host reads the note with its own bounded parser before it calls dlopen(), so the constructors
 * of an incompatible object never run. It refuses an object whose file or any parent directory is
 * writable by anyone but root (or the user cella runs as), opens it once and loads it from the opened
 * descriptor with RTLD_NOW|RTLD_LOCAL.
 *
 * Versions: the major of note and table must equal the host's. The note's min_host_minor must not
 * be greater than the host's minor. The plugin's own minor may be anything.
 */
#ifndef CELLA_PLUGIN_H
#define CELLA_PLUGIN_H

#include <stdarg.h>
#include <stdio.h>

#include <cella/abi.h>
#include <cella/host.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CELLA_ENTRY_NAME "cella_plugin_entry_v1"

/* ELF note: name "cella", type CELLA_NOTE_TYPE, descriptor struct cella_note. Section .note.cella. */
#define CELLA_NOTE_TYPE 0x43454c41u
#define CELLA_NOTE_MAGIC 0x616c6c65u

struct cella_note {
    uint32_t magic;          /* CELLA_NOTE_MAGIC */
    uint16_t kind;           /* enum cella_kind, a plugin kind */
    uint16_t major;          /* CELLA_ABI_MAJOR at build */
    uint32_t minor;          /* CELLA_ABI_MINOR at build */
    uint32_t min_host_minor; /* oldest host minor the plugin works with */
};

struct cella_elf_note {
    uint32_t namesz, descsz, type;
    char name[8];
    struct cella_note desc;
};

/* Returns the plugin's operation table (static storage, starts with struct cella_hdr). */
typedef const void *(*cella_plugin_entry_fn)(void);

#ifdef __cplusplus
#define CELLA_EXTERN_C extern "C"
#else
#define CELLA_EXTERN_C
#endif

#define CELLA_REGISTER_MINOR(kind_, ops_, min_host_minor_)                                         \
    CELLA_EXTERN_C CELLA_EXPORT const void *cella_plugin_entry_v1(void);                           \
    CELLA_EXTERN_C CELLA_EXPORT const void *cella_plugin_entry_v1(void)                            \
    {                                                                                              \
        return &(ops_);                                                                            \
    }                                                                                              \
    static const struct cella_elf_note cella_note_                                                 \
        __attribute__((used, section(".note.cella"), aligned(4))) = {                              \
            6,                                                                                     \
            sizeof(struct cella_note),                                                             \
            CELLA_NOTE_TYPE,                                                                       \
            {'c', 'e', 'l', 'l', 'a', 0, 0, 0},                                                    \
            {CELLA_NOTE_MAGIC, (uint16_t)(kind_), CELLA_ABI_MAJOR, CELLA_ABI_MINOR,                \
             (min_host_minor_)}};

#define CELLA_REGISTER(kind_, ops_) CELLA_REGISTER_MINOR(kind_, ops_, 0)

/* Fills `err` (may be NULL) and returns `code`, which must be negative. Never allocates. */
static inline int cella_error_set(struct cella_error *err, int code, uint32_t step, const char *fmt,
                                  ...) CELLA_PRINTF(4, 5);
static inline int cella_error_set(struct cella_error *err, int code, uint32_t step, const char *fmt,
                                  ...)
{
    va_list ap;
    int n;

    if (!err)
        return code;
    err->code = code;
    err->step = step;
    if (!err->msg || !err->msg_cap)
        return code;
    va_start(ap, fmt);
    n = vsnprintf(err->msg, err->msg_cap, fmt, ap);
    va_end(ap);
    if (n < 0)
        n = 0;
    err->msg_len = (uint32_t)n < err->msg_cap ? (uint32_t)n : err->msg_cap - 1;
    return code;
}

/* The value of option `name`, or NULL when the table does not have it. */
static inline const struct cella_option_value *
cella_options_get(const struct cella_options *options, const char *name)
{
    uint32_t i;
    const char *a, *b;

    for (i = 0; options && i < options->n_values; i++) {
        const struct cella_option_value *v =
            (const struct cella_option_value *)(const void *)((const char *)options->values +
                                                              (uint64_t)i * options->value_stride);
        for (a = v->name, b = name; *a && *a == *b; a++, b++)
            ;
        if (*a == *b)
            return v;
    }
    return (const struct cella_option_value *)0;
}

#ifdef __cplusplus
}
#endif
#endif
