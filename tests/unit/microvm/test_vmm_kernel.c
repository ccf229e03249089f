/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* Kernel loaders on small files made here: what is loaded where, and what is refused in which words. */
#include <asm/bootparam.h>
#include <elf.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "boot.h"
#include "layout.h"

#define MIB (1ull << 20)

static struct ram ram;
static int ram_fd = -1;

static int memory(void **state)
{
    (void)state;
    ram_fd = memfd_create("ram", MFD_CLOEXEC);
    assert_true(ram_fd >= 0 && ftruncate(ram_fd, 64 * MIB) == 0);
    return ram_map(&ram, ram_fd, 64 * MIB, 0);
}

static int memory_end(void **state)
{
    (void)state;
    ram_unmap(&ram);
    close(ram_fd);
    return 0;
}

static int file(const void *data, size_t len)
{
    int fd = memfd_create("file", MFD_CLOEXEC);

    assert_true(fd >= 0 && write(fd, data, len) == (ssize_t)len);
    return fd;
}

struct kernel { /* an ELF file with one segment and one note */
    Elf64_Ehdr e;
    Elf64_Phdr p[2];
    struct {
        Elf64_Nhdr h;
        char name[4];
        uint32_t entry;
    } note;
    char text[16];
};

static struct kernel elf(void)
{
    struct kernel k;

    memset(&k, 0, sizeof(k));
    memcpy(k.e.e_ident, "\177ELF\2\1\1", 7);
    k.e.e_type = ET_EXEC;
    k.e.e_machine = EM_X86_64;
    k.e.e_entry = 0x1000000;
    k.e.e_phoff = sizeof(k.e);
    k.e.e_phentsize = sizeof(k.p[0]);
    k.e.e_phnum = 2;
    k.p[0] = (Elf64_Phdr){.p_type = PT_LOAD,
                          .p_offset = offsetof(struct kernel, text),
                          .p_paddr = 0x1000000,
                          .p_filesz = sizeof(k.text),
                          .p_memsz = 4096};
    k.p[1] = (Elf64_Phdr){
        .p_type = PT_NOTE, .p_offset = offsetof(struct kernel, note), .p_filesz = sizeof(k.note)};
    k.note.h = (Elf64_Nhdr){.n_namesz = 4, .n_descsz = 4, .n_type = 18};
    memcpy(k.note.name, "Xen", 4);
    k.note.entry = 0x1000004;
    memcpy(k.text, "code of a kernel", 16);
    return k;
}

static int load(const void *kernel, size_t len, const void *initrd, size_t initrd_len,
                const char *cmdline, struct boot_entry *ret, struct why *w)
{
    int k = file(kernel, len), i = file(initrd, initrd_len);
    int r = boot_load(&ram, k, i, cmdline, ret, w);

    close(k);
    close(i);
    return r;
}

static void elf_pvh(void **state)
{
    struct kernel k = elf();
    struct boot_entry e;
    struct kvm_sregs s;
    struct kvm_regs r;
    uint32_t info[14];
    uint64_t map[9], module[2];
    char text[16];

    (void)state;
    memset(ram.base + 0x1000000, 'x', 4096);
    assert_int_equal(load(&k, sizeof(k), "initrd", 6, "quiet", &e, NULL), 0);
    assert_true(e.pvh);
    assert_int_equal(e.rip, 0x1000004);
    assert_int_equal(ram_read(&ram, 0x1000000, text, 16), 0);
    assert_memory_equal(text, "code of a kernel", 16);
    assert_int_equal(ram.base[0x1000010], 0); /* the rest of the segment is zeros */
    assert_int_equal(ram_read(&ram, e.arg, info, sizeof(info)), 0);
    assert_int_equal(info[0], 0x336ec578);
    assert_int_equal(info[3], 1);
    assert_string_equal((char *)ram.base + info[6], "quiet");
    assert_int_equal(info[8], AT_ACPI);
    assert_int_equal(info[12], 3);
    assert_int_equal(ram_read(&ram, info[10], map, sizeof(map)), 0);
    assert_int_equal(map[1], AT_RESERVED);
    assert_int_equal(map[6], MIB);
    assert_int_equal(map[7], 63 * MIB);
    assert_int_equal(ram_read(&ram, info[4], module, sizeof(module)), 0);
    assert_int_equal(module[0], 64 * MIB - 4096);
    assert_int_equal(module[1], 6);
    assert_memory_equal(ram.base + module[0], "initrd", 6);
    memset(&s, 0, sizeof(s));
    boot_regs(&e, &r, &s);
    assert_int_equal(r.rbx, e.arg);
    assert_int_equal(s.cr0, 0x11);
    assert_int_equal(s.efer, 0);
    assert_true(s.cs.db && !s.cs.l);
}

static void elf_64(void **state)
{
    struct kernel k = elf();
    struct boot_entry e;
    struct boot_params z;
    struct kvm_sregs s;
    struct kvm_regs r;
    uint64_t page;

    (void)state;
    k.note.h.n_type = 17;
    assert_int_equal(load(&k, sizeof(k), "", 0, "a b", &e, NULL), 0);
    assert_false(e.pvh);
    assert_int_equal(e.rip, 0x1000000);
    assert_int_equal(ram_read(&ram, e.arg, &z, sizeof(z)), 0);
    assert_int_equal(z.hdr.header, 0x53726448);
    assert_int_equal(z.hdr.ramdisk_size, 0);
    assert_int_equal(z.acpi_rsdp_addr, AT_ACPI);
    assert_int_equal(z.e820_entries, 3);
    assert_int_equal(z.e820_table[1].type, 2);
    assert_string_equal((char *)ram.base + z.hdr.cmd_line_ptr, "a b");
    memset(&s, 0, sizeof(s));
    boot_regs(&e, &r, &s);
    assert_int_equal(r.rsi, e.arg);
    assert_int_equal(s.efer, 0x500);
    assert_true(s.cs.l && !s.cs.db);
    /* The address of the entry is mapped to itself. */
    assert_int_equal(ram_read(&ram, s.cr3, &page, 8), 0);
    assert_int_equal(ram_read(&ram, page & ~0xfffull, &page, 8), 0);
    assert_int_equal(ram_read(&ram, (page & ~0xfffull) + 8 * (e.rip >> 21), &page, 8), 0);
    assert_int_equal(page, (e.rip >> 21 << 21) | 0x83);
}

static void elf_refused(void **state)
{
    const struct kernel good = elf();
    struct boot_entry e;
    struct why w;
    struct kernel k;
    size_t len;

    (void)state;
#define REFUSED(change, code, words)                                                               \
    do {                                                                                           \
        k = good;                                                                                  \
        change;                                                                                    \
        assert_int_equal(load(&k, sizeof(k), "", 0, "", &e, &w), code);                            \
        if (!strstr(w.text, words))                                                                \
            fail_msg("\"%s\" instead of \"%s\"", w.text, words);                                   \
    } while (0)
    REFUSED(k.e.e_machine = EM_AARCH64, -ENOEXEC, "none of a 64-bit x86 kernel");
    REFUSED(k.e.e_ident[EI_CLASS] = ELFCLASS32, -ENOEXEC, "none of a 64-bit x86 kernel");
    REFUSED(k.e.e_phnum = 0, -ENOEXEC, "program headers");
    REFUSED(k.e.e_phnum = 60, -ENOEXEC, "program headers");
    REFUSED(k.e.e_phoff = UINT64_MAX - 8, -ENOEXEC, "program headers");
    REFUSED(k.p[0].p_offset = UINT64_MAX - 4, -ENOEXEC, "cut off");
    REFUSED(k.p[0].p_filesz = 4000, -ENOEXEC, "cut off");
    REFUSED(k.p[0].p_memsz = 1, -ENOEXEC, "cut off");
    REFUSED(k.p[0].p_memsz = UINT64_MAX, -ENOMEM, "does not fit");
    REFUSED(k.p[0].p_memsz = 64 * MIB, -ENOMEM, "does not fit");
    REFUSED(k.p[0].p_paddr = 0x9000, -ENOEXEC, "where no memory is");
    REFUSED(k.p[0].p_paddr = UINT64_MAX - 100, -ENOEXEC, "where no memory is");
    REFUSED(k.p[0].p_type = PT_NULL, -ENOEXEC, "in none of its segments");
    REFUSED(k.note.entry = 0x2000000, -ENOEXEC, "in none of its segments");
    for (len = 0; len < offsetof(struct kernel, text) + sizeof(good.text); len++)
        assert_true(load(&good, len, "", 0, "", &e, &w) < 0);
}

/* ---------------------------------------------------------------------- bzImage */

struct image {
    uint8_t setup[5 * 512];
    uint8_t body[2048];
};

static struct setup_header *header(struct image *i)
{
    return (void *)(i->setup + 0x1f1);
}

static struct image bzimage(void)
{
    struct image i;
    struct setup_header *h = header(&i);

    memset(&i, 0, sizeof(i));
    h->setup_sects = 4;
    h->boot_flag = 0xaa55;
    h->jump = 0x66eb; /* the header ends at 0x202 + 0x66 */
    h->header = 0x53726448;
    h->version = 0x20f;
    h->loadflags = LOADED_HIGH;
    h->xloadflags = XLF_KERNEL_64;
    h->initrd_addr_max = 0x7fffffff;
    h->relocatable_kernel = 1;
    h->pref_address = 0x1000000;
    h->init_size = 0x100000;
    h->cmdline_size = 255;
    memcpy(i.body + 0x200, "entry", 5);
    return i;
}

static void bz_loads(void **state)
{
    struct image k = bzimage();
    struct boot_entry e;
    struct boot_params z;

    (void)state;
    assert_int_equal(load(&k, sizeof(k), "archive", 7, "quiet", &e, NULL), 0);
    assert_false(e.pvh);
    assert_int_equal(e.rip, 0x1000200);
    assert_memory_equal(ram.base + e.rip, "entry", 5);
    assert_int_equal(ram_read(&ram, e.arg, &z, sizeof(z)), 0);
    assert_int_equal(z.hdr.version, 0x20f);
    assert_int_equal(z.hdr.type_of_loader, 0xff);
    assert_int_equal(z.hdr.ramdisk_image, 64 * MIB - 4096);
    assert_int_equal(z.hdr.ramdisk_size, 7);
    assert_int_equal(z.hdr.init_size, 0x100000);
    header(&k)->relocatable_kernel = 0;
    assert_int_equal(load(&k, sizeof(k), "archive", 7, "quiet", &e, NULL), 0);
    assert_int_equal(e.rip, MIB + 0x200);
    header(&k)->initrd_addr_max = 32 * MIB - 1;
    assert_int_equal(load(&k, sizeof(k), "archive", 7, "quiet", &e, NULL), 0);
    assert_int_equal(ram_read(&ram, e.arg, &z, sizeof(z)), 0);
    assert_int_equal(z.hdr.ramdisk_image, 32 * MIB - 4096);
}

static void bz_refused(void **state)
{
    static char line[CMDLINE_MAX + 8];
    static char archive[48 << 20];
    const struct image good = bzimage();
    struct boot_entry e;
    struct image k;
    struct why w;

    (void)state;
    REFUSED(header(&k)->boot_flag = 0, -ENOEXEC, "neither an ELF file nor a bzImage");
    REFUSED(header(&k)->header = 0, -ENOEXEC, "neither an ELF file nor a bzImage");
    REFUSED(header(&k)->version = 0x20b, -ENOEXEC, "boot protocol 0x20b");
    REFUSED(header(&k)->xloadflags = 0, -ENOEXEC, "without a 64-bit entry");
    REFUSED(header(&k)->loadflags = 0, -ENOEXEC, "zImage");
    REFUSED(header(&k)->setup_sects = 255, -ENOEXEC, "behind its setup sectors");
    REFUSED(header(&k)->init_size = 0x7fffffff, -ENOMEM, "to unpack itself");
    REFUSED(header(&k)->pref_address = UINT64_MAX, -ENOMEM, "to unpack itself");
    assert_int_equal(load("", 0, "", 0, "", &e, &w), -ENOEXEC);
    assert_non_null(strstr(w.text, "empty"));
    memset(line, 'x', sizeof(line) - 1);
    k = good;
    assert_int_equal(load(&k, sizeof(k), "", 0, line, &e, &w), -E2BIG);
    line[256] = 0;
    assert_int_equal(load(&k, sizeof(k), "", 0, line, &e, &w), -E2BIG);
    line[255] = 0;
    assert_int_equal(load(&k, sizeof(k), "", 0, line, &e, &w), 0);
    assert_int_equal(load(&k, sizeof(k), archive, sizeof(archive), "", &e, &w), -ENOMEM);
    assert_non_null(strstr(w.text, "initrd: 49152 KiB do not fit"));
    assert_int_equal(load(&k, sizeof(k), archive, 47 * MIB, "", &e, &w), 0); /* just so */
    header(&k)->initrd_addr_max = 100;
    assert_int_equal(load(&k, sizeof(k), archive, 1, "", &e, &w), -ENOMEM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elf_pvh),  cmocka_unit_test(elf_64),     cmocka_unit_test(elf_refused),
        cmocka_unit_test(bz_loads), cmocka_unit_test(bz_refused),
    };
    return cmocka_run_group_tests(tests, memory, memory_end);
}
