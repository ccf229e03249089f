/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* plugin_int - what the files of core/plugin (and their tests) share. Nobody else includes it. */
#ifndef CELLA_CORE_PLUGIN_INT_H
#define CELLA_CORE_PLUGIN_INT_H

#include "plugin.h"

#if defined(__SANITIZE_ADDRESS__)
#define PLUGIN_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define PLUGIN_ASAN 1
#endif
#endif
#ifndef PLUGIN_ASAN
#define PLUGIN_ASAN 0
#endif

#define PLUGIN_FILE_MAX (256u << 20) /* bytes of a shared object */
#define PLUGIN_TABLE_MAX 65536u      /* bytes an operation table may claim */
#define PLUGIN_OPTIONS_MAX 64u
#define PLUGIN_METHODS_MAX 64u
#define PLUGIN_STRIDE_MAX 4096u
#define PLUGIN_TEXT_MAX 512u /* name, version, summary, help */
#define PLUGIN_PATH_MAX 4096u
#define METHOD_RESULT_MAX 65536u
#define METHOD_STR_MAX 65536u

/* Learned while the plugin is used. Reached through a const plugin, so it is its own object. */
struct plugin_runtime {
    const struct cella_host *host;    /* last host table handed over; for log() */
    unsigned stray_said, output_said; /* reports made, bounded */
    unsigned hot_calls;
    char pending[256];          /* something to say before there was a host to say it to */
    struct probe_result *probe; /* last answers, to compare later behaviour with; may be NULL */
};

/* ---- ELF note ---- */
/* A bounded source of bytes: a descriptor, or memory for tests and the fuzzer. */
struct elf_source {
    int fd;             /* read with pread, unless mem is set */
    const uint8_t *mem; /* NULL: the descriptor */
    uint64_t size;
};
int elf_note_read(const struct elf_source *src, struct cella_note *ret, struct cella_error *err);

/* ---- one description of each kind's operation table ---- */
struct op_info {
    const char *name;
    uint32_t offset;
    const char *def; /* what the host does when it is NULL; NULL itself = required */
};
struct kind_info {
    uint16_t kind;
    const char *name;
    uint32_t host_size, baseline;
    int has_methods;
    const struct op_info *ops;
    uint32_t n_ops;
};
const struct kind_info *kind_info_get(uint32_t kind);
const char *kind_name(uint32_t kind); /* "unknown" */
/* Is the operation present in the host's copy? */
int op_present(const struct plugin *p, const struct op_info *op);

/* ---- loader parts ---- */
/* Opens a plugin file for loading: every directory and the file must be writable by root or us
 * only. */
int plugin_open(const char *path, int *ret_fd, struct cella_error *err);
/* Checks table header and contents and fills p from it. */
int plugin_table_take(struct plugin *p, const void *table, const struct cella_note *note,
                      struct cella_error *err);
int plugin_options_check(const struct plugin *p, struct cella_error *err);
int option_type_known(uint32_t type);
const char *option_type_name(uint32_t type);
static inline const struct cella_option *option_at(const struct plugin *p, uint32_t i)
{
    return (const void *)((const char *)p->options + (uint64_t)i * p->option_stride);
}
static inline const struct cella_method *method_at(const struct plugin *p, uint32_t i)
{
    return (const void *)((const char *)p->methods + (uint64_t)i * p->method_stride);
}
/* All bytes zero? */
int bytes_zero(const void *p, size_t n);

/* ---- calls ---- */
#define SECOND_NS 1000000000ull
#define DEADLINE_PROBE (5 * SECOND_NS)
#define DEADLINE_BUILD (30 * SECOND_NS) /* create, start, attach */
#define DEADLINE_CALL (10 * SECOND_NS)
#define DEADLINE_SNAPSHOT (600 * SECOND_NS) /* memory and disk go to a disk */

/* One call into a plugin: watchdog, own error buffer, checks afterwards. */
struct call {
    const struct plugin *p;
    const char *op;
    struct errbuf eb;
    int hot; /* frequent operation: descriptors are swept now and then only */
};
/* Returns the error object to hand to the plugin. */
struct cella_error *call_begin(struct call *c, const struct plugin *p, const char *op,
                               uint64_t deadline_ns);
/* After the plugin returned: returns r or a negative errno with a message in err. */
int call_end(struct call *c, int64_t r, struct cella_error *err);
/* As call_end, for operations whose positive results mean something. */
int64_t call_end_count(struct call *c, int64_t r, struct cella_error *err);
/* For operations that return nothing. */
void call_end_void(struct call *c);
/* "NAME: OP …" with -EPROTO: the plugin broke the contract. */
int call_broken(const struct call *c, struct cella_error *err, const char *fmt, ...)
    CELLA_PRINTF(3, 4);
void plugin_host_seen(const struct plugin *p, const struct cella_host *host);

/* Valid, above the standard streams. Sets close-on-exec. */
int fd_take_check(int fd);
/* NUL inside the array, printable ASCII before it. */
int text_array_ok(const char *s, size_t cap);
/* Header of a struct the plugin filled must be as the host wrote it. */
int hdr_unchanged(const struct cella_hdr *h, uint32_t size, uint16_t kind);
/* Copies a data struct the plugin made: shorter is zero-extended, a longer one with a tail is
 * -E2BIG. */
int data_take(void *dst, uint32_t dst_size, uint32_t least, uint16_t kind, const void *src);

/* ---- stray descriptors and output ---- */
void stray_baseline(void);
void stray_check(const struct plugin *p, const char *op);

/* ---- probe ---- */
struct probe_sink {
    struct probe_result *out;
    struct errbuf bad; /* first thing that was wrong */
};
void probe_sink_init(struct probe_sink *s, struct probe_result *out,
                     struct cella_probe_report *ret_report);
const struct capability *probe_find(const struct probe_result *r, const char *name);
const char *answer_name(uint32_t answer);
void probe_remember(const struct plugin *p, const struct probe_result *r);

/* ---- lifecycle ---- */
enum backend_op {
    BACKEND_OP_CREATE,
    BACKEND_OP_START,
    BACKEND_OP_STOP,
    BACKEND_OP_CONNECT,
    BACKEND_OP_PAUSE,
    BACKEND_OP_RESUME,
    BACKEND_OP_STATS,
    BACKEND_OP_RESIZE,
    BACKEND_OP_SNAPSHOT,
    BACKEND_OP_RESTORE,
    BACKEND_OP_PREPARE,
    BACKEND_OP_LOAD,
    BACKEND_OP_DESTROY,
    BACKEND_OP_COUNT
};
const char *backend_state_name(enum backend_state s);
const char *backend_op_name(enum backend_op op);
/* 0 and the state after success, or -EPROTO with a message. */
int lifecycle_check(const char *plugin, enum backend_state state, enum backend_op op,
                    enum backend_state *ret_next, struct cella_error *err);

/* ---- signatures ---- */
enum sig_type { SIG_I32 = 1, SIG_U32, SIG_I64, SIG_U64, SIG_F64, SIG_BOOL, SIG_STR };
enum sig_result { SIG_RESULT_I32 = 1, SIG_RESULT_I64, SIG_RESULT_JSON };
#define SIG_NAME_MAX 32
struct sig_param {
    enum sig_type type;
    char name[SIG_NAME_MAX];
};
struct signature {
    struct sig_param params[CELLA_METHOD_PARAMS_MAX];
    uint32_t n_params;
    enum sig_result result;
};
int signature_parse(const char *text, struct signature *ret, struct cella_error *err);
const char *sig_type_name(enum sig_type t);
union arg {
    int32_t i32;
    uint32_t u32;
    int64_t i64;
    uint64_t u64;
    double f64;
    const char *str;
};
/* `args` NULL or null = {}. Strings are borrowed from args. Message: "WHO: argument "x": …". */
int signature_args(const struct signature *s, const char *who, const json_t *args,
                   union arg ret[CELLA_METHOD_PARAMS_MAX], struct cella_error *err);

/* ---- watchdog, for tests ---- */
/* Every later deadline becomes `ms` milliseconds; 0 = as given. */
void watchdog_test_deadline(unsigned ms);

#endif
