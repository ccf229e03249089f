/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * elf - an uncompressed kernel: its segments go where they say, and it starts at the entry that a Xen note names
 * for PVH, or else at the 64-bit entry of the ELF header.
 *
 * Segments are read from the file straight into the guest's memory, after ram_at() has judged where they go. No
 * segment may lie below 1 MiB, where the boot data is. Threads: none of its own.
 */
#include <elf.h>
#include <errno.h>
#include <string.h>

#include "boot.h"
#include "layout.h"

#define PHDRS_MAX 64u
#define NOTES_MAX 65536u
#define XEN_PHYS32_ENTRY 18u

static int header_judge(const Elf64_Ehdr *e, uint64_t size, struct why *w)
{
    if (e->e_ident[EI_CLASS] != ELFCLASS64 || e->e_ident[EI_DATA] != ELFDATA2LSB ||
        e->e_machine != EM_X86_64 || (e->e_type != ET_EXEC && e->e_type != ET_DYN))
        return why(w, -ENOEXEC, "kernel: an ELF file, but none of a 64-bit x86 kernel");
    if (e->e_phentsize != sizeof(Elf64_Phdr) || !e->e_phnum || e->e_phnum > PHDRS_MAX ||
        e->e_phoff > size || e->e_phnum * sizeof(Elf64_Phdr) > size - e->e_phoff)
        return why(w, -ENOEXEC, "kernel: its ELF program headers are not in the file");
    return 0;
}

static int segment_load(const struct ram *ram, int fd, uint64_t size, const Elf64_Phdr *p,
                        struct why *w)
{
    uint8_t *at;

    if (p->p_filesz > p->p_memsz || p->p_offset > size || p->p_filesz > size - p->p_offset)
        return why(w, -ENOEXEC, "kernel: a segment of its ELF file is cut off");
    if (p->p_paddr < AT_KERNEL || p->p_paddr >= ram->low)
        return why(w, -ENOEXEC, "kernel: a segment wants to be at 0x%llx, where no memory is",
                   (unsigned long long)p->p_paddr);
    at = ram_at(ram, p->p_paddr, p->p_memsz);
    if (!at)
        return why(w, -ENOMEM, "kernel: a segment of %llu MiB at 0x%llx does not fit into memory",
                   (unsigned long long)(p->p_memsz >> 20), (unsigned long long)p->p_paddr);
    if (boot_read(fd, p->p_offset, at, p->p_filesz) < 0)
        return why(w, -EIO, "kernel: cannot be read");
    memset(at + p->p_filesz, 0, p->p_memsz - p->p_filesz);
    return 0;
}

/* Notes are {name size, description size, type, name, description}, each part padded to four bytes. */
static int notes_find(const uint8_t *notes, uint64_t len, uint64_t *ret_entry)
{
    uint64_t at = 0;

    while (len - at >= sizeof(Elf64_Nhdr)) {
        Elf64_Nhdr h;
        uint64_t name, desc;
        memcpy(&h, notes + at, sizeof(h));
        at += sizeof(h);
        name = ((uint64_t)h.n_namesz + 3) & ~3ull;
        desc = ((uint64_t)h.n_descsz + 3) & ~3ull;
        if (name > len - at || desc > len - at - name)
            return 0;
        if (h.n_type == XEN_PHYS32_ENTRY && h.n_namesz == 4 && !memcmp(notes + at, "Xen", 4) &&
            (h.n_descsz == 4 || h.n_descsz == 8)) {
            *ret_entry = 0;
            memcpy(ret_entry, notes + at + name, h.n_descsz);
            return 1;
        }
        at += name + desc;
    }
    return 0;
}

static int pvh_entry(int fd, uint64_t size, const Elf64_Phdr *p, uint64_t *ret_entry)
{
    static uint8_t notes[NOTES_MAX]; /* one kernel is loaded in the life of the program */

    if (p->p_offset > size || p->p_filesz > size - p->p_offset || p->p_filesz > sizeof(notes) ||
        boot_read(fd, p->p_offset, notes, p->p_filesz) < 0)
        return 0;
    return notes_find(notes, p->p_filesz, ret_entry);
}

int elf_load(const struct ram *ram, int borrow_fd, uint64_t size, struct boot_image *ret,
             struct why *w)
{
    Elf64_Phdr ph[PHDRS_MAX];
    Elf64_Ehdr e;
    int i, r, inside = 0;

    if (size < sizeof(e) || boot_read(borrow_fd, 0, &e, sizeof(e)) < 0)
        return why(w, -ENOEXEC, "kernel: too short for an ELF file");
    r = header_judge(&e, size, w);
    if (r < 0)
        return r;
    if (boot_read(borrow_fd, e.e_phoff, ph, e.e_phnum * sizeof(ph[0])) < 0)
        return why(w, -EIO, "kernel: cannot be read");
    ret->entry = e.e_entry;
    for (i = 0; i < e.e_phnum; i++)
        if (ph[i].p_type == PT_NOTE && pvh_entry(borrow_fd, size, &ph[i], &ret->entry))
            ret->pvh = 1;
    for (i = 0; i < e.e_phnum; i++) {
        if (ph[i].p_type != PT_LOAD || !ph[i].p_memsz)
            continue;
        r = segment_load(ram, borrow_fd, size, &ph[i], w);
        if (r < 0)
            return r;
        if (ph[i].p_paddr + ph[i].p_memsz > ret->end)
            ret->end = ph[i].p_paddr + ph[i].p_memsz;
        inside |= ret->entry >= ph[i].p_paddr && ret->entry - ph[i].p_paddr < ph[i].p_filesz;
    }
    if (!inside)
        return why(w, -ENOEXEC, "kernel: its entry 0x%llx is in none of its segments",
                   (unsigned long long)ret->entry);
    ret->initrd_max = ram->low - 1;
    ret->cmdline_max = CMDLINE_MAX - 1;
    return 0;
}
