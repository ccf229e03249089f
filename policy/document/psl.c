/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * psl - what the public suffix list and IDNA say about a name.
 *
 * Both libraries are mapped only while a document is read that needs them: together they cost a process up to 0.9 MB,
 * and a warden asks once, when a document with a wildcard is read. Without the list nothing is known
 * about a wildcard, and the caller refuses it. Threads: any.
 */
#include <dlfcn.h>

#include <idn2.h>

#include "parse_int.h"

static void open_list(struct suffixes *s)
{
    __typeof__(&psl_latest) latest = NULL;

    s->lib = dlopen("libpsl.so.5", RTLD_NOW | RTLD_LOCAL);
    if (!s->lib)
        return;
    *(void **)&latest = dlsym(s->lib, "psl_latest");
    *(void **)&s->is = dlsym(s->lib, "psl_is_public_suffix");
    *(void **)&s->release = dlsym(s->lib, "psl_free");
    if (latest && s->is && s->release)
        s->list = latest(NULL);
}

int suffixes_has(struct suffixes *s, const char *name)
{
    if (!s->tried)
        open_list(s);
    s->tried = 1;
    return s->list ? s->is(s->list, name) : -ENOENT;
}

void suffixes_fini(struct suffixes *s)
{
    if (s->list)
        s->release(s->list);
    if (s->lib)
        dlclose(s->lib);
    *s = (struct suffixes){0};
}

int idn_to_ascii(const char *name, char out[POLICY_NAME_MAX + 1])
{
    void *lib = dlopen("libidn2.so.0", RTLD_NOW | RTLD_LOCAL);
    __typeof__(&idn2_to_ascii_8z) convert = NULL;
    __typeof__(&idn2_free) release = NULL;
    char *ascii = NULL;
    int r = -ENOENT;

    if (!lib)
        return r;
    *(void **)&convert = dlsym(lib, "idn2_to_ascii_8z");
    *(void **)&release = dlsym(lib, "idn2_free");
    if (convert && release &&
        convert(name, &ascii, IDN2_NONTRANSITIONAL | IDN2_NFC_INPUT) == IDN2_OK) {
        if (strlen(ascii) <= POLICY_NAME_MAX) {
            memcpy(out, ascii, strlen(ascii) + 1);
            r = 0;
        }
        release(ascii);
    }
    dlclose(lib);
    return r;
}
