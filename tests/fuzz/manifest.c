/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* The manifest of a snapshot: any JSON is checked without a crash, and no file out of the directory is opened. */
#include <fcntl.h>

#include "snapshot.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static int dir = -1;
    json_t *m = json_loadb((const char *)data, len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    struct errbuf eb;

    if (dir < 0)
        dir = open("/proc/self/fdinfo", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    manifest_check(m, errbuf_init(&eb));
    manifest_files_same(dir, json_object_get(m, "files"), 1, errbuf_init(&eb));
    json_decref(m);
    return 0;
}
