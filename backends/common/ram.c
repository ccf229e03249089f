/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * ram - the guest's RAM as the kernel knows it, not as QEMU says. /proc/PID/maps tells where the file is
 * mapped, whole, and whether writes go to it or to copies. Threads: none.
 */
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "qemu.h"

#define MAPS_MAX (4u << 20)

struct mapping {
    uint64_t from, to, offset, inode;
    unsigned major, minor;
    char perms[5];
};

static int line_read(const char *line, struct mapping *m)
{
    unsigned long long from, to, offset, inode;

    if (sscanf(line, "%llx-%llx %4s %llx %x:%x %llu", &from, &to, m->perms, &offset, &m->major,
               &m->minor, &inode) != 7)
        return -EBADMSG;
    m->from = from;
    m->to = to;
    m->offset = offset;
    m->inode = inode;
    return 0;
}

int qemu_ram_find(const struct qemu *q, int borrow_ram_fd, int private, uint64_t ram_bytes,
                  uint64_t *ret_address, struct cella_error *err)
{
    char path[48];
    auto_free char *text = NULL;
    struct mapping m;
    struct stat st;
    uint64_t at = 0, len = 0;
    char *line;
    int r;

    snprintf(path, sizeof(path), "/proc/%d/maps", (int)q->pid);
    r = read_file_at(AT_FDCWD, path, MAPS_MAX, &text, NULL);
    if (r < 0 || fstat(borrow_ram_fd, &st) < 0)
        return fail(err, r < 0 ? r : -errno, "memory of the guest: %s",
                    strerror(r < 0 ? -r : errno));
    for (line = text; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        if (line_read(line, &m) < 0 || m.inode != st.st_ino || m.major != major(st.st_dev) ||
            m.minor != minor(st.st_dev))
            continue;
        if (m.perms[3] != (private ? 'p' : 's') || m.offset != len || (len && m.from != at + len))
            return fail(err, -EPROTO,
                        "memory of the guest: QEMU has mapped it in another way than "
                        "it was told; is this a QEMU that %s does not know?",
                        "cella-qemu-ram.so");
        if (!len)
            at = m.from;
        len += m.to - m.from;
    }
    if (len != ram_bytes)
        return fail(err, -EPROTO,
                    "memory of the guest: QEMU has mapped %llu bytes of its file instead of %llu",
                    (unsigned long long)len, (unsigned long long)ram_bytes);
    *ret_address = at;
    return 0;
}
