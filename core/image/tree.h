/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* tree - what a directory tree holds, as one digest. */
#ifndef CELLA_IMAGE_TREE_H
#define CELLA_IMAGE_TREE_H

#include "util.h"

enum tree_how {
    /* Path, type, mode, owner, size and content of everything: the same for every copy. */
    TREE_CONTENT,
    /* What stat() says instead of the content: cheap, and another one after any change. */
    TREE_STAT
};

struct tree_facts {
    uint64_t entries;
    uint64_t bytes; /* of files, as their sizes say */
    uint64_t disk;  /* blocks of files, a file with several names once */
    char sha256[65];
};

/* Follows no link and stays on the file system of `dirfd`. -EFBIG above two million entries. */
int tree_digest(int dirfd, enum tree_how how, struct tree_facts *ret, struct cella_error *err);

#endif
