/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * psl - what the public suffix list and IDNA say about a name.
 *
 * Both libraries are mapped only while they are asked: together they cost a process up to 0.9 MB,
 * and a warden asks once, when a document with a wildcard is read. Without the list nothing is known
 * about a wildcard, and the caller refuses it. Threads: any.
 */
#include <dlfcn.h>

#include <idn2.h>
#include <libpsl.h>

#include "parse_int.h"

int psl_suffix(const char *name)
{
    void *lib = dlopen("libpsl.so.5", RTLD_NOW | RTLD_LOCAL);
    __typeof__(&psl_latest) latest = NULL;
    __typeof__(&psl_is_public_suffix) is = NULL;
    __typeof__(&psl_free) release = NULL;
    psl_ctx_t *list;
    int r = -ENOENT;

    if (!lib)
        return r;
    *(void **)&latest = dlsym(lib, "psl_latest");
    *(void **)&is = dlsym(lib, "psl_is_public_suffix");
    *(void **)&release = dlsym(lib, "psl_free");
    list = latest && is && release ? latest(NULL) : NULL;
    if (list) {
        r = is(list, name);
        release(list);
    }
    dlclose(lib);
    return r;
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
