/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * boot - from files to a machine that can start: kernel by its format, initrd at the top of low memory, command
 * line, memory map, and either Linux' zero page with page tables for the 64-bit entry, or start_info for PVH.
 *
 * Order: the kernel first, because it says what it needs; then the initrd above that, or it is refused; then the
 * data below 1 MiB, which no kernel segment may touch. Threads: none of its own.
 */
#include <asm/bootparam.h>
#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "boot.h"
#include "layout.h"

#define PAGE 4096ull
#define LARGE (2ull << 20)
#define PRESENT_WRITE 3ull
#define LARGE_PAGE 0x80ull

#define PVH_MAGIC 0x336ec578u
#define E820_USABLE 1u
#define E820_KEPT 2u

struct pvh_info {
    uint32_t magic, version, flags, n_modules;
    uint64_t modules, cmdline, rsdp, map;
    uint32_t n_map, reserved;
};

struct pvh_module {
    uint64_t at, size, cmdline, reserved;
};

struct pvh_map {
    uint64_t at, size;
    uint32_t type, reserved;
};

static_assert(sizeof(struct pvh_info) == 56 && sizeof(struct pvh_map) == 24, "PVH's layout");
static_assert(AT_PVH_INFO + sizeof(struct pvh_info) <= AT_PVH_MODULES, "start_info fits");
static_assert(AT_CMDLINE + CMDLINE_MAX <= AT_RESERVED, "the command line fits");

int boot_read(int borrow_fd, uint64_t at, void *out, uint64_t len)
{
    while (len) {
        ssize_t n = pread(borrow_fd, out, len, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return -EIO;
        out = (uint8_t *)out + n;
        at += (uint64_t)n;
        len -= (uint64_t)n;
    }
    return 0;
}

static int size_of(int fd, uint64_t *ret, const char *name, struct why *w)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return why(w, -EBADF, "%s: no file was given", name);
    *ret = S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0;
    return 0;
}

static int kernel_load(const struct ram *ram, int fd, struct boot_image *ret, struct why *w)
{
    uint64_t size = 0;
    char magic[4];
    int r = size_of(fd, &size, "kernel", w);

    if (r < 0)
        return r;
    if (size < sizeof(magic) || boot_read(fd, 0, magic, sizeof(magic)) < 0)
        return why(w, -ENOEXEC, "kernel: the file is empty or cannot be read");
    return memcmp(magic, "\177ELF", 4) ? bzimage_load(ram, fd, size, ret, w)
                                       : elf_load(ram, fd, size, ret, w);
}

/* At the top of low memory, above all that the kernel needs. */
static int initrd_load(const struct ram *ram, int fd, const struct boot_image *k, uint64_t *ret_at,
                       uint64_t *ret_size, struct why *w)
{
    uint64_t size = 0, top = k->initrd_max < ram->low - 1 ? k->initrd_max + 1 : ram->low, at;
    int r = size_of(fd, &size, "initrd", w);

    *ret_at = *ret_size = 0;
    if (r < 0 || !size)
        return r;
    if (top < k->end || size > top - k->end || (top - size) / PAGE * PAGE < k->end)
        return why(w, -ENOMEM,
                   "initrd: %llu KiB do not fit into memory above the kernel, which needs the "
                   "first %llu of %llu MiB",
                   (unsigned long long)(size >> 10), (unsigned long long)(k->end >> 20),
                   (unsigned long long)((ram->low + ram->high) >> 20));
    at = (top - size) / PAGE * PAGE;
    if (boot_read(fd, 0, ram_at(ram, at, size), size) < 0)
        return why(w, -EIO, "initrd: cannot be read");
    *ret_at = at;
    *ret_size = size;
    return 0;
}

/* The same map in both boots. */
static uint32_t memory_map(const struct ram *ram, struct pvh_map out[4])
{
    uint32_t n = 3;

    out[0] = (struct pvh_map){.at = 0, .size = AT_RESERVED, .type = E820_USABLE};
    out[1] =
        (struct pvh_map){.at = AT_RESERVED, .size = AT_KERNEL - AT_RESERVED, .type = E820_KEPT};
    out[2] = (struct pvh_map){.at = AT_KERNEL, .size = ram->low - AT_KERNEL, .type = E820_USABLE};
    if (ram->high)
        out[n++] = (struct pvh_map){.at = RAM_HIGH, .size = ram->high, .type = E820_USABLE};
    return n;
}

static int write_pvh(const struct ram *ram, uint64_t initrd, uint64_t initrd_size)
{
    struct pvh_module module = {.at = initrd, .size = initrd_size};
    struct pvh_info info = {.magic = PVH_MAGIC,
                            .version = 1,
                            .n_modules = initrd_size ? 1 : 0,
                            .modules = AT_PVH_MODULES,
                            .cmdline = AT_CMDLINE,
                            .rsdp = AT_ACPI,
                            .map = AT_ZERO_PAGE};
    struct pvh_map map[4];

    info.n_map = memory_map(ram, map);
    return ram_write(ram, AT_ZERO_PAGE, map, info.n_map * sizeof(map[0])) |
           ram_write(ram, AT_PVH_MODULES, &module, sizeof(module)) |
           ram_write(ram, AT_PVH_INFO, &info, sizeof(info));
}

static int write_zero_page(const struct ram *ram, const struct boot_image *k, uint64_t initrd,
                           uint64_t initrd_size, uint32_t cmdline_len)
{
    struct boot_params zero;
    struct pvh_map map[4] = {{0, 0, 0, 0}};
    uint32_t i, n = memory_map(ram, map);

    memset(&zero, 0, sizeof(zero));
    if (k->header_len) {
        memcpy(&zero.hdr, k->header, k->header_len);
    } else {
        zero.hdr.boot_flag = 0xaa55;
        zero.hdr.header = 0x53726448;
        zero.hdr.kernel_alignment = 0x1000000;
    }
    zero.hdr.type_of_loader = 0xff; /* none that has a number */
    zero.hdr.cmd_line_ptr = (uint32_t)AT_CMDLINE;
    zero.hdr.cmdline_size = cmdline_len;
    zero.hdr.ramdisk_image = (uint32_t)initrd;
    zero.hdr.ramdisk_size = (uint32_t)initrd_size;
    zero.acpi_rsdp_addr = AT_ACPI;
    zero.e820_entries = (uint8_t)n;
    for (i = 0; i < n && i < 4; i++) {
        zero.e820_table[i].addr = map[i].at;
        zero.e820_table[i].size = map[i].size;
        zero.e820_table[i].type = map[i].type;
    }
    return ram_write(ram, AT_ZERO_PAGE, &zero, sizeof(zero));
}

/* The first GiB at its own addresses: the entry, the zero page and the command line lie there. */
static int write_pages(const struct ram *ram)
{
    uint64_t table[512] = {AT_PDPT | PRESENT_WRITE};
    int i, r = ram_write(ram, AT_PML4, table, sizeof(table));

    table[0] = AT_PD | PRESENT_WRITE;
    r |= ram_write(ram, AT_PDPT, table, sizeof(table));
    for (i = 0; i < 512; i++)
        table[i] = (uint64_t)i * LARGE | PRESENT_WRITE | LARGE_PAGE;
    return r | ram_write(ram, AT_PD, table, sizeof(table));
}

/* null, code, data, task: what boot_regs() has loaded, for who reloads a segment register. */
static int write_gdt(const struct ram *ram, int pvh)
{
    uint64_t gdt[4] = {0, pvh ? 0x00cf9b000000ffff : 0x00af9b000000ffff, 0x00cf93000000ffff,
                       0x00008b0000000067};

    return ram_write(ram, AT_GDT, gdt, sizeof(gdt));
}

int boot_load(const struct ram *ram, int borrow_kernel_fd, int borrow_initrd_fd,
              const char *cmdline, struct boot_entry *ret, struct why *w)
{
    struct boot_image k = {.entry = 0};
    size_t len = strlen(cmdline);
    uint64_t initrd = 0, size = 0;
    int r = kernel_load(ram, borrow_kernel_fd, &k, w);

    if (r < 0)
        return r;
    if (len >= CMDLINE_MAX || len > k.cmdline_max)
        return why(w, -E2BIG, "kernel command line: %zu bytes, and this kernel takes %u", len,
                   k.cmdline_max < CMDLINE_MAX ? k.cmdline_max : CMDLINE_MAX - 1);
    r = initrd_load(ram, borrow_initrd_fd, &k, &initrd, &size, w);
    if (r < 0)
        return r;
    r = ram_write(ram, AT_CMDLINE, cmdline, len + 1) | write_gdt(ram, k.pvh);
    if (k.pvh)
        r |= write_pvh(ram, initrd, size);
    else
        r |= write_pages(ram) | write_zero_page(ram, &k, initrd, size, (uint32_t)len);
    if (r)
        return why(w, -EFAULT, "boot: no memory below 1 MiB");
    ret->pvh = k.pvh;
    ret->rip = k.entry;
    ret->arg = k.pvh ? AT_PVH_INFO : AT_ZERO_PAGE;
    return 0;
}

/* ------------------------------------------------------------------- registers */

#define CR0_PE 1ull
#define CR0_ET 0x10ull
#define CR0_NE 0x20ull
#define CR0_PG (1ull << 31)
#define CR4_PAE 0x20ull
#define EFER_LME 0x100ull
#define EFER_LMA 0x400ull

static struct kvm_segment segment(uint16_t selector, uint8_t type, int code64)
{
    struct kvm_segment s = {.selector = selector,
                            .limit = 0xffffffff,
                            .type = type,
                            .present = 1,
                            .s = 1,
                            .g = 1,
                            .l = code64 ? 1 : 0,
                            .db = code64 ? 0 : 1};
    return s;
}

void boot_regs(const struct boot_entry *e, struct kvm_regs *ret, struct kvm_sregs *sregs)
{
    struct kvm_segment data = segment(0x10, 3, 0);

    memset(ret, 0, sizeof(*ret));
    ret->rflags = 2;
    ret->rip = e->rip;
    ret->rsp = ret->rbp = AT_STACK;
    if (e->pvh)
        ret->rbx = e->arg;
    else
        ret->rsi = e->arg;
    sregs->cs = segment(0x08, 0xb, !e->pvh);
    sregs->ds = sregs->es = sregs->fs = sregs->gs = sregs->ss = data;
    sregs->tr = segment(0x18, 0xb, 0);
    sregs->tr.s = sregs->tr.g = sregs->tr.db = 0;
    sregs->tr.limit = 0x67;
    sregs->gdt.base = AT_GDT;
    sregs->gdt.limit = 4 * 8 - 1;
    sregs->idt.base = 0;
    sregs->idt.limit = 0;
    sregs->cr0 = CR0_PE | CR0_ET;
    sregs->cr4 = 0;
    sregs->efer = 0;
    if (e->pvh)
        return;
    sregs->cr0 |= CR0_NE | CR0_PG;
    sregs->cr3 = AT_PML4;
    sregs->cr4 = CR4_PAE;
    sregs->efer = EFER_LME | EFER_LMA;
}
