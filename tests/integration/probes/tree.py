# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cella authors
"""Lists the tree below argv[1] as JSON: {path: [type, mode, uid, gid, size, content]}; content of files up to 64 KiB.

Left out: what every cell has of its own, at the paths of argv[2:].
"""
import hashlib
import json
import os
import stat
import sys

root, skipped = sys.argv[1].rstrip("/"), set(sys.argv[2:])
found = {}


def walk(directory):
    with os.scandir(root + directory or "/") as entries:
        for entry in entries:
            path = f"{directory}/{entry.name}"
            if path in skipped:
                continue
            st = entry.stat(follow_symlinks=False)
            kind, content, size = stat.S_IFMT(st.st_mode), "", st.st_size
            if kind == stat.S_IFLNK:
                content = os.readlink(root + path)
            elif kind == stat.S_IFREG and size <= 65536:
                with open(root + path, "rb") as handle:
                    content = hashlib.sha256(handle.read()).hexdigest()
            elif kind == stat.S_IFDIR:
                size = 0
            found[path] = [kind, stat.S_IMODE(st.st_mode), st.st_uid, st.st_gid, size, content]
            if kind == stat.S_IFDIR:
                walk(path)


walk("")
json.dump(found, sys.stdout)
