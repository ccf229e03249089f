/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * method - typed methods of plugins: signatures parsed once at load, call interfaces built at the first
 * call, JSON arguments in, JSON result out. The only user of libffi, which is mapped at the first call:
 * most processes make none. No closures, so no executable memory. Threads: as for the instance.
 */
#include <dlfcn.h>
#include <ffi.h>

#include "plugin_int.h"

#define FFI_ARGS_MAX (CELLA_METHOD_PARAMS_MAX + 4) /* self, buf, cap, err */

struct bound {
    const struct cella_method *m;
    struct signature sig;
    ffi_cif cif;
    ffi_type *types[FFI_ARGS_MAX];
};

struct method_set {
    uint32_t n;
    struct bound methods[];
};

/* What is used of libffi. */
static struct {
    __typeof__(&ffi_prep_cif) prep;
    __typeof__(&ffi_call) call;
    ffi_type *sint32, *uint32, *sint64, *uint64, *real, *pointer;
} lib;

static int lib_open(struct cella_error *err)
{
    static const char *const names[] = {"ffi_type_sint32", "ffi_type_uint32", "ffi_type_sint64",
                                        "ffi_type_uint64", "ffi_type_double", "ffi_type_pointer"};
    ffi_type **const types[] = {&lib.sint32, &lib.uint32, &lib.sint64,
                                &lib.uint64, &lib.real,   &lib.pointer};
    void *so;
    size_t i;
    int ok;

    if (lib.call)
        return 0;
    so = dlopen("libffi.so.8", RTLD_NOW | RTLD_LOCAL); /* for the life of the process */
    if (!so)
        return fail(err, -ENOENT, "typed methods need libffi (package libffi8): %s", dlerror());
    *(void **)&lib.prep = dlsym(so, "ffi_prep_cif");
    ok = lib.prep != NULL;
    for (i = 0; i < ARRAY_LEN(types); i++)
        ok &= (*types[i] = dlsym(so, names[i])) != NULL;
    if (ok)
        *(void **)&lib.call = dlsym(so, "ffi_call");
    return lib.call ? 0 : fail(err, -ENOSYS, "libffi.so.8 lacks a symbol of its own interface");
}

static ffi_type *ffi_type_of(enum sig_type t)
{
    switch (t) {
    case SIG_I32:
    case SIG_BOOL:
        return lib.sint32;
    case SIG_U32:
        return lib.uint32;
    case SIG_I64:
        return lib.sint64;
    case SIG_U64:
        return lib.uint64;
    case SIG_F64:
        return lib.real;
    case SIG_STR:
        break;
    }
    return lib.pointer;
}

static int method_name_ok(const char *s)
{
    return s && s[0] >= 'a' && s[0] <= 'z' && strnlen(s, 64) < 64 &&
           s[strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789-")] == 0;
}

static int cif_prepare(struct bound *b, struct cella_error *err)
{
    unsigned n = 0;
    uint32_t i;
    int r = b->types[0] ? 0 : lib_open(err);

    if (r < 0 || b->types[0])
        return r;
    b->types[n++] = lib.pointer;
    for (i = 0; i < b->sig.n_params; i++)
        b->types[n++] = ffi_type_of(b->sig.params[i].type);
    if (b->sig.result == SIG_RESULT_JSON) {
        b->types[n++] = lib.pointer;
        b->types[n++] = lib.uint64;
    }
    b->types[n++] = lib.pointer;
    if (lib.prep(&b->cif, FFI_DEFAULT_ABI, n,
                 b->sig.result == SIG_RESULT_I32 ? lib.sint32 : lib.sint64, b->types) == FFI_OK)
        return 0;
    b->types[0] = NULL;
    return fail(err, -EINVAL, "libffi cannot build a call for it");
}

static int method_bind(const struct plugin *p, uint32_t i, struct bound *b, struct cella_error *err)
{
    const struct cella_method *m = method_at(p, i);
    uint32_t k;
    int r;

    if (!method_name_ok(m->name))
        return fail(err, -EINVAL, "method %u has no valid name ([a-z][a-z0-9-]*)", i);
    if (!m->fn || !m->signature || strnlen(m->signature, PLUGIN_TEXT_MAX) == PLUGIN_TEXT_MAX)
        return fail(err, -EINVAL, "method \"%s\" has no function or no signature", m->name);
    if (!m->help || strnlen(m->help, PLUGIN_TEXT_MAX) == PLUGIN_TEXT_MAX)
        return fail(err, -EINVAL, "method \"%s\" has no help text", m->name);
    if (m->flags || m->reserved0 || !bytes_zero(m + 1, p->method_stride - sizeof(*m)))
        return fail(err, -EINVAL, "method \"%s\" has flags or reserved members that must be zero",
                    m->name);
    for (k = 0; k < i; k++)
        if (!strcmp(method_at(p, k)->name, m->name))
            return fail(err, -EINVAL, "method \"%s\" appears twice", m->name);
    b->m = m;
    r = signature_parse(m->signature, &b->sig, err);
    return r < 0 ? fail_wrap(err, "method \"%s\"", m->name) : 0;
}

int method_set_new(const struct plugin *p, struct method_set **ret, struct cella_error *err)
{
    struct method_set *s;
    uint32_t i;
    int r = 0;

    if (p->n_methods > PLUGIN_METHODS_MAX || (p->n_methods && !p->methods))
        return fail(err, -EINVAL, "its method table is missing or has more than %u entries",
                    PLUGIN_METHODS_MAX);
    if (p->n_methods &&
        (p->method_stride < sizeof(struct cella_method) || p->method_stride > PLUGIN_STRIDE_MAX ||
         p->method_stride % _Alignof(struct cella_method)))
        return fail(err, -EINVAL, "its method table has a stride of %u bytes, %zu are needed",
                    p->method_stride, sizeof(struct cella_method));
    s = calloc(1, sizeof(*s) + p->n_methods * sizeof(s->methods[0]));
    if (!s)
        return fail(err, -ENOMEM, "out of memory");
    s->n = p->n_methods;
    for (i = 0; r == 0 && i < s->n; i++)
        r = method_bind(p, i, &s->methods[i], err);
    if (r < 0)
        method_set_free(s);
    else
        *ret = s;
    return r;
}

void method_set_free(struct method_set *m)
{
    free(m);
}

static struct bound *method_find(const struct plugin *p, const char *name)
{
    size_t prefix = strlen(p->name);
    uint32_t i;

    if (!strncmp(name, p->name, prefix) && name[prefix] == '.')
        name += prefix + 1;
    for (i = 0; p->method_set && i < p->method_set->n; i++)
        if (!strcmp(p->method_set->methods[i].m->name, name))
            return &p->method_set->methods[i];
    return NULL;
}

static int unknown_method(const struct plugin *p, const char *method, struct cella_error *err)
{
    char list[512] = "";
    size_t n = 0;
    uint32_t i;

    for (i = 0; p->method_set && i < p->method_set->n && n < sizeof(list); i++)
        n += (size_t)snprintf(list + n, sizeof(list) - n, "%s%s.%s", i ? ", " : "", p->name,
                              p->method_set->methods[i].m->name);
    return fail(err, -ENOENT, "there is no method \"%.128s\"; %s has %s", method, p->name,
                n ? list : "no methods");
}

/* Storage of one call; everything libffi points at lives here. */
struct invocation {
    union arg args[CELLA_METHOD_PARAMS_MAX];
    void *self, *buf, *err;
    uint64_t cap;
    void *values[FFI_ARGS_MAX];
    union {
        ffi_sarg narrow;
        int64_t wide;
    } result;
};

static int64_t invoke(struct bound *b, struct invocation *v)
{
    unsigned n = 0;
    uint32_t i;

    v->values[n++] = &v->self;
    for (i = 0; i < b->sig.n_params; i++)
        v->values[n++] = &v->args[i];
    if (b->sig.result == SIG_RESULT_JSON) {
        v->values[n++] = &v->buf;
        v->values[n++] = &v->cap;
    }
    v->values[n++] = &v->err;
    lib.call(&b->cif, FFI_FN(b->m->fn), &v->result, v->values);
    return b->sig.result == SIG_RESULT_I32 ? (int64_t)(int32_t)v->result.narrow : v->result.wide;
}

static int result_json(const struct call *c, const char *text, int64_t n, json_t **ret,
                       struct cella_error *err)
{
    json_error_t where;
    json_t *v;

    if (n > METHOD_RESULT_MAX)
        return call_broken(c, err, "it returned a length of %lld, the buffer has %u", (long long)n,
                           METHOD_RESULT_MAX);
    v = json_loadb(text, (size_t)n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &where);
    if (!v)
        return call_broken(c, err, "its result is not JSON (line %d, column %d: %.160s)",
                           where.line, where.column, where.text);
    *ret = v;
    return 0;
}

int method_call(struct plugin *p, void *self, const char *method, const json_t *args,
                json_t **ret_result, struct cella_error *err)
{
    struct bound *b = method_find(p, method);
    auto_free char *buf = NULL;
    struct invocation v = {.self = self};
    char who[160];
    struct call c;
    int64_t n;
    int r;

    if (!b)
        return unknown_method(p, method, err);
    snprintf(who, sizeof(who), "%s.%s", p->name, b->m->name);
    if (!self)
        return fail(err, -EPROTO, "%s: there is no cell to call it on", who);
    r = signature_args(&b->sig, who, args, v.args, err);
    if (r == 0)
        r = cif_prepare(b, err);
    if (r < 0)
        return r;
    if (b->sig.result == SIG_RESULT_JSON) {
        v.buf = buf = calloc(1, METHOD_RESULT_MAX);
        v.cap = METHOD_RESULT_MAX;
        if (!buf)
            return fail(err, -ENOMEM, "%s: out of memory", who);
    }
    v.err = call_begin(&c, p, b->m->name, DEADLINE_CALL);
    n = invoke(b, &v);
    n = call_end_count(&c, n, err);
    if (n < 0)
        return (int)n;
    if (b->sig.result == SIG_RESULT_JSON)
        return result_json(&c, buf, n, ret_result, err);
    *ret_result = json_integer(n);
    return *ret_result ? 0 : fail(err, -ENOMEM, "%s: out of memory", who);
}
