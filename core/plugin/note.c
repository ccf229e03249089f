/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * note - finds the ELF note of cella in a shared object without loading it.
 *
 * Why own code: the decision whether an object's constructors may run must be made before dlopen(),
 * and the file may be anything. Only what the decision needs is read: the ELF header, the program
 * headers and the PT_NOTE segments, each with a size limit, each range checked against the file's
 * size. Section headers are not looked at; a loader does not either.
 *
 * Invariants: no read outside [0, size); no allocation depends on a number of the file beyond the
 * limits below. Threads: no state.
 */
#include <elf.h>
#include <sys/stat.h>

#include "plugin_int.h"

#define PHDRS_MAX 128u
#define NOTE_SEGMENT_MAX 16384u

static int inside(const struct elf_source *src, uint64_t off, uint64_t len)
{
    uint64_t end;

    return !__builtin_add_overflow(off, len, &end) && end <= src->size;
}

static int read_at(const struct elf_source *src, uint64_t off, void *buf, uint64_t len,
                   struct cella_error *err)
{
    uint64_t done = 0;

    if (!inside(src, off, len))
        return fail(err, -ENOEXEC, "truncated or corrupt ELF file: bytes %llu+%llu lie outside it",
                    (unsigned long long)off, (unsigned long long)len);
    if (src->mem) {
        memcpy(buf, src->mem + off, len);
        return 0;
    }
    while (done < len) {
        ssize_t n = pread(src->fd, (char *)buf + done, len - done, (off_t)(off + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return fail(err, -errno, "cannot read the file: %s", strerror(errno));
        if (n == 0)
            return fail(err, -ENOEXEC, "the file became shorter while it was read");
        done += (uint64_t)n;
    }
    return 0;
}

static int ehdr_check(const Elf64_Ehdr *e, struct cella_error *err)
{
#if defined(__x86_64__)
    const uint16_t machine = EM_X86_64;
#elif defined(__aarch64__)
    const uint16_t machine = EM_AARCH64;
#else
#error "cella plugins are defined for x86-64 and aarch64"
#endif
    if (memcmp(e->e_ident, ELFMAG, SELFMAG))
        return fail(err, -ENOEXEC, "not an ELF file");
    if (e->e_ident[EI_CLASS] != ELFCLASS64 || e->e_ident[EI_DATA] != ELFDATA2LSB ||
        e->e_ident[EI_VERSION] != EV_CURRENT || e->e_version != EV_CURRENT)
        return fail(err, -ENOEXEC, "not a 64-bit little-endian ELF file");
    if (e->e_machine != machine)
        return fail(err, -ENOEXEC, "built for another machine (ELF machine %u, this host is %u)",
                    e->e_machine, machine);
    if (e->e_type != ET_DYN)
        return fail(err, -ENOEXEC, "not a shared object (ELF type %u)", e->e_type);
    if (e->e_phentsize != sizeof(Elf64_Phdr))
        return fail(err, -ENOEXEC, "corrupt ELF file: program headers of %u bytes", e->e_phentsize);
    if (e->e_phnum == 0 || e->e_phnum > PHDRS_MAX)
        return fail(err, -ENOEXEC, "corrupt ELF file: %u program headers (1 to %u are accepted)",
                    e->e_phnum, PHDRS_MAX);
    return 0;
}

static uint64_t align_up(uint64_t v, uint64_t a)
{
    return (v + a - 1) & ~(a - 1);
}

/* Walks one PT_NOTE segment. *found counts notes of cella over all segments. */
static int segment_walk(const uint8_t *seg, uint64_t len, uint64_t align, struct cella_note *ret,
                        unsigned *found, struct cella_error *err)
{
    uint64_t at = 0;

    while (len - at >= sizeof(Elf64_Nhdr)) {
        Elf64_Nhdr n;
        uint64_t name, desc, end;
        memcpy(&n, seg + at, sizeof(n));
        name = at + sizeof(n);
        desc = align_up(name + n.n_namesz, align);
        end = desc + n.n_descsz; /* no overflow: 32-bit sizes */
        if (end > len)
            return fail(err, -ENOEXEC, "corrupt ELF file: a note runs past its segment");
        if (n.n_type == CELLA_NOTE_TYPE && n.n_namesz == 6 && !memcmp(seg + name, "cella", 6)) {
            if (n.n_descsz < sizeof(*ret))
                return fail(err, -ENOEXEC, "its cella note has %u bytes, %zu are needed",
                            n.n_descsz, sizeof(*ret));
            if ((*found)++)
                return fail(err, -ENOEXEC, "it carries more than one cella note");
            memcpy(ret, seg + desc, sizeof(*ret));
        }
        at = align_up(end, align);
        if (at > len)
            break;
    }
    return 0;
}

static int segment_read(const struct elf_source *src, const Elf64_Phdr *ph, struct cella_note *ret,
                        unsigned *found, struct cella_error *err)
{
    uint8_t seg[NOTE_SEGMENT_MAX];
    int r;

    if (ph->p_filesz > sizeof(seg))
        return fail(err, -ENOEXEC, "corrupt ELF file: a note segment of %llu bytes (limit %u)",
                    (unsigned long long)ph->p_filesz, NOTE_SEGMENT_MAX);
    r = read_at(src, ph->p_offset, seg, ph->p_filesz, err);
    if (r < 0)
        return r;
    return segment_walk(seg, ph->p_filesz, ph->p_align == 8 ? 8 : 4, ret, found, err);
}

int elf_note_read(const struct elf_source *src, struct cella_note *ret, struct cella_error *err)
{
    Elf64_Ehdr e;
    Elf64_Phdr phdrs[PHDRS_MAX];
    struct cella_note note = {0};
    unsigned found = 0, i;
    int r;

    if (src->size > PLUGIN_FILE_MAX)
        return fail(err, -EFBIG, "the file has %llu bytes, at most %u are accepted",
                    (unsigned long long)src->size, PLUGIN_FILE_MAX);
    if (src->size < sizeof(e))
        return fail(err, -ENOEXEC, "not an ELF file (%llu bytes)", (unsigned long long)src->size);
    r = read_at(src, 0, &e, sizeof(e), err);
    if (r < 0 || (r = ehdr_check(&e, err)) < 0)
        return r;
    r = read_at(src, e.e_phoff, phdrs, e.e_phnum * sizeof(phdrs[0]), err);
    if (r < 0)
        return r;
    for (i = 0; i < e.e_phnum; i++) {
        const Elf64_Phdr *ph = &phdrs[i];
        /* What lies outside the file would be mapped all the same and fault in the loader. */
        if (ph->p_type == PT_LOAD && !inside(src, ph->p_offset, ph->p_filesz))
            return fail(err, -ENOEXEC, "truncated ELF file: a segment ends outside of it");
        if (ph->p_type != PT_NOTE)
            continue;
        r = segment_read(src, ph, &note, &found, err);
        if (r < 0)
            return r;
    }
    if (!found)
        return fail(err, -ENOEXEC,
                    "no cella note: it is not a cella plugin (a plugin ends with CELLA_REGISTER)");
    *ret = note;
    return 0;
}

int plugin_note_read(int fd, struct cella_note *ret_note, struct cella_error *err)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return fail(err, -errno, "cannot examine the file: %s", strerror(errno));
    if (!S_ISREG(st.st_mode))
        return fail(err, -EINVAL, "not a regular file");
    return elf_note_read(&(struct elf_source){.fd = fd, .size = (uint64_t)st.st_size}, ret_note,
                         err);
}
