/* SPDX-License-Identifier: MIT */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * cella/reap.h - cleaning up after a host process that died. Shared by backends and enforcers.
 * Cleanup belongs to the next start, not to exit paths: reap() must work from the names alone.
 */
#ifndef CELLA_REAP_H
#define CELLA_REAP_H

#include <cella/abi.h>

#ifdef __cplusplus
extern "C" {
#endif

struct cella_reap {
    struct cella_hdr hdr; /* CELLA_KIND_REAP */
    const char *cell_id;
    const char *scratch; /* may no longer exist */
    uint32_t uid_base, uid_count;
    uint32_t dry_run; /* 1: remove nothing, only report through `found` */
    uint32_t reserved0;
    void *ctx;
    /* Called once for each object of the dead cell that exists: "cgroup /sys/fs/cgroup/…". */
    void (*found)(void *ctx, const char *what);
};

#ifdef __cplusplus
}
#endif
#endif
