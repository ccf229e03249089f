/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * Verifies arbitrary bytes as an audit file, with and without an audit directory. A file whose writer is unknown to
 * the directory must never be found good there, and a refusal must name a line and a reason.
 */
#include <fcntl.h>
#include <sys/stat.h>

#include "chain.h"

static char dir[64], file[80], host[80];

static void remove_all(void)
{
    remove_tree_at(AT_FDCWD, dir);
}

static int make_dir(void)
{
    struct key *k = NULL;
    int fd;

    strcpy(dir, "/dev/shm/cella-fuzz-audit-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    atexit(remove_all);
    snprintf(file, sizeof(file), "%s/abc.jsonl", dir);
    snprintf(host, sizeof(host), "%s/host.jsonl", dir);
    fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || key_open(fd, &k, NULL) < 0)
        abort();
    key_free(k);
    close(fd);
    return 0;
}

static int put(const char *path, const uint8_t *data, size_t size)
{
    auto_close int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    return fd < 0 ? -errno : write_all(fd, data, size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct audit_verify_result res;
    struct errbuf eb;

    if (!dir[0] && make_dir() < 0)
        return 0;
    if (put(file, data, size) < 0 || put(host, data, size) < 0)
        return 0;
    if (audit_verify(dir, file, &res, errbuf_init(&eb)) < 0 || !res.first_bad || !res.why[0])
        abort();
    if (audit_verify(NULL, file, &res, errbuf_init(&eb)) < 0 || (res.first_bad && !res.why[0]))
        abort();
    audit_verify_host_links(host, dir, &res, errbuf_init(&eb));
    return 0;
}
