/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* What a cell is shown, by the first byte: the rest as PEM, what passes holds no key; the rest as the fields of an event, the
   line is one JSON object whatever they are; the rest as an image's keystore and bundle. */
#include <stdlib.h>
#include <sys/mman.h>

#include <jansson.h>

#include "denials.h"
#include "trust.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void pem(const char *text, size_t len)
{
    const char *why = NULL;
    int n = trust_pem_check(text, len, &why);

    if (n >= 0 ? n == 0 || memmem(text, len, "PRIVATE KEY", 11) : !why)
        abort();
}

static void line(const char *text, size_t len)
{
    char name[8] = "";
    size_t half = len / 2, n = half < sizeof(name) - 1 ? half : sizeof(name) - 1;
    struct cella_field f[] = {
        {"reason", CELLA_FIELD_STR, 0, 0, {text, half}},
        {name, CELLA_FIELD_STR, 0, 0, {text + half, len - half}},
        {"port", CELLA_FIELD_INT, 0, (int64_t)len, {NULL, 0}},
    };
    struct cella_event e = {.hdr = CELLA_HDR_INIT(struct cella_event, CELLA_KIND_EVENT),
                            .kind = "net.deny",
                            .fields = f,
                            .n_fields = 3,
                            .field_stride = sizeof(f[0])};
    struct denials d = {-1, memfd_create("denials", MFD_CLOEXEC), 0};
    char out[8192];
    json_t *o;
    ssize_t got;

    memcpy(name, text, n);
    denials_add(&d, &e, (uint64_t)len << 40);
    got = pread(d.fd, out, sizeof(out), 0);
    if (got > 0) {
        o = json_loadb(out, (size_t)got, JSON_ALLOW_NUL, NULL);
        if (!json_is_object(o) || out[got - 1] != '\n' || memchr(out, '\n', (size_t)got - 1))
            abort();
        json_decref(o);
    }
    denials_close(&d);
}

static void keystore(const char *text, size_t len)
{
    struct buf ks = BUF_INIT;
    size_t half = len / 2;

    if (trust_keystore(text, half, text + half, len - half, text + half, len - half, len, &ks) <
            0 ||
        ks.len < 32)
        abort();
    buf_fini(&ks);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    if (data[0] % 3 == 0)
        pem((const char *)data + 1, size - 1);
    else if (data[0] % 3 == 1)
        line((const char *)data + 1, size - 1);
    else
        keystore((const char *)data + 1, size - 1);
    return 0;
}
