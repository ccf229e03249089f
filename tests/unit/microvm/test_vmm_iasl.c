/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * The ACPI tables as somebody else reads them: ACPICA's iasl, the reference, takes each apart and compiles what it
 * read. It must have nothing to say about either, the second must be the first, and the devices are there by name.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "acpi.h"
#include "layout.h"

#define HEADER 36u
#define TEXT_MAX 65536u

static struct ram ram;
static char dir[] = "/tmp/cella-iasl.XXXXXX";
static char text[TEXT_MAX]; /* what was read last */

static uint64_t le(const uint8_t *p, size_t n)
{
    uint64_t v = 0;

    memcpy(&v, p, n);
    return v;
}

static size_t read_file(const char *name, char *buf, size_t cap)
{
    char path[80];
    ssize_t n;
    int fd;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    n = read(fd, buf, cap - 1);
    close(fd);
    assert_true(n >= 0 && (size_t)n < cap - 1);
    buf[n] = 0;
    return (size_t)n;
}

static void write_file(const char *name, const uint8_t *p, size_t n)
{
    char path[80];
    int fd;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0 && write(fd, p, n) == (ssize_t)n);
    close(fd);
}

/* iasl with these words, in the directory; what it says is in `text`. */
static void iasl(const char *words)
{
    char line[200];
    int status;

    snprintf(line, sizeof(line), "cd %s && exec iasl %s >said 2>&1 </dev/null", dir, words);
    status = system(line); /* fixed words, and a name of mkdtemp() */
    read_file("said", text, sizeof(text));
    if (status != 0)
        print_error("iasl %s:\n%s\n", words, text);
    assert_int_equal(status, 0);
    if (strstr(text, "Error  ") || strstr(text, "Warning  ") || strstr(text, "Remark  "))
        print_error("iasl %s:\n%s\n", words, text);
    assert_null(strstr(text, "Error  "));
    assert_null(strstr(text, "Warning  "));
    assert_null(strstr(text, "Remark  "));
}

/* From the first of its terms on: what comes before is about the file. */
static const char *terms(const char *dsl)
{
    const char *p = strstr(dsl, "DefinitionBlock");

    assert_non_null(p);
    return p;
}

/* Lengths of blocks can be written in more ways than one: the same language is what is the same to read. */
static void same_language(const char *name)
{
    static char first[TEXT_MAX];
    char words[80];

    snprintf(words, sizeof(words), "-d %s-2.aml", name);
    iasl(words);
    snprintf(words, sizeof(words), "%s-2.dsl", name);
    read_file(words, first, sizeof(first));
    snprintf(words, sizeof(words), "%s.dsl", name);
    read_file(words, text, sizeof(text));
    assert_string_equal(terms(first), terms(text));
}

static void same_bytes(const char *name, const uint8_t *table)
{
    static uint8_t again[8192];
    char words[80];
    size_t n;

    snprintf(words, sizeof(words), "%s-2.aml", name);
    n = read_file(words, (char *)again, sizeof(again));
    assert_int_equal(n, le(table + 4, 4));
    assert_memory_equal(again + HEADER, table + HEADER, n - HEADER);
    snprintf(words, sizeof(words), "%s.dsl", name);
    read_file(words, text, sizeof(text));
}

/* `name`.dat becomes `name`.dsl, in `text`; compiled again it is the same. */
static void judge(const char *name, const uint8_t *table)
{
    size_t len = le(table + 4, 4);
    char words[80];

    snprintf(words, sizeof(words), "%s.dat", name);
    write_file(words, table, len);
    snprintf(words, sizeof(words), "-d %s.dat", name);
    iasl(words);
    snprintf(words, sizeof(words), "-oa -p %s-2 %s.dsl", name, name);
    iasl(words);
    assert_non_null(strstr(text, "0 Errors, 0 Warnings, 0 Remarks"));
    if (!memcmp(table, "DSDT", 4))
        same_language(name);
    else
        same_bytes(name, table);
}

static const uint8_t *table(uint64_t at)
{
    return ram_at(&ram, at, HEADER);
}

/* Of a machine with so many processors and these devices: RSDP, then what it leads to. */
static void machine(uint32_t vcpus, uint32_t virtio)
{
    const struct acpi_machine m = {.vcpus = vcpus, .virtio = virtio};
    const uint8_t *rsdp, *xsdt, *fadt;

    assert_int_equal(acpi_write(&ram, &m), 0);
    rsdp = ram_at(&ram, AT_ACPI, HEADER);
    xsdt = table(le(rsdp + 24, 8));
    fadt = table(le(xsdt + HEADER, 8));
    judge("xsdt", xsdt);
    judge("facp", fadt);
    assert_non_null(strstr(text, "Hardware Reduced (V5) : 1"));
    assert_non_null(strstr(text, "Reset Register Supported (V2) : 1"));
    judge("apic", table(le(xsdt + HEADER + 8, 8)));
}

static unsigned count(const char *what)
{
    const char *p = text;
    unsigned n = 0;

    while ((p = strstr(p, what))) {
        n++;
        p++;
    }
    return n;
}

static void processors(void **state)
{
    (void)state;
    machine(3, 0x3f);
    assert_int_equal(count("[Processor Local APIC]"), 3);
    assert_int_equal(count("Processor Enabled : 1"), 3);
    assert_int_equal(count("[I/O APIC]"), 1);
    machine(32, 0);
    assert_int_equal(count("[Processor Local APIC]"), 32);
}

static void dsdt(uint32_t virtio)
{
    const uint8_t *rsdp, *fadt;

    machine(1, virtio);
    rsdp = ram_at(&ram, AT_ACPI, HEADER);
    fadt = table(le(table(le(rsdp + 24, 8)) + HEADER, 8));
    judge("dsdt", table(le(fadt + 140, 8)));
}

static void devices(void **state)
{
    uint32_t n;
    char words[40];

    (void)state;
    dsdt(0x2b);
    assert_int_equal(count("\"LNRO0005\""), 4);
    for (n = 0; n < 8; n++) {
        snprintf(words, sizeof(words), "Device (VR0%u)", n);
        assert_int_equal(count(words), 0x2bu >> n & 1);
        snprintf(words, sizeof(words), "0x%08X,         // Address Base",
                 (unsigned)(VIRTIO_MMIO_BASE + n * VIRTIO_MMIO_SIZE));
        assert_int_equal(count(words), 0x2bu >> n & 1);
    }
    assert_int_equal(count("Device (COM1)"), 1);
    assert_int_equal(count("EisaId (\"PNP0501\")"), 1);
    assert_int_equal(count("Device (VGEN)"), 1);
    assert_int_equal(count("Name (_CID, \"VM_Gen_Counter\")"), 1);
    assert_int_equal(count("Device (PWRB)"), 1);
    assert_int_equal(count("EisaId (\"PNP0C0C\")"), 1);
    assert_int_equal(count("Device (GEDV)"), 1);
    assert_int_equal(count("Name (_HID, \"ACPI0013\""), 1);
    assert_int_equal(count("Notify (\\_SB.VGEN, 0x80)"), 1);
    assert_int_equal(count("Notify (\\_SB.PWRB, 0x80)"), 1);
    assert_int_equal(count("Name (\\_S5, Package"), 1);
    dsdt(0xff);
    assert_int_equal(count("\"LNRO0005\""), 8);
    dsdt(0);
    assert_int_equal(count("\"LNRO0005\""), 0);
}

static int setup(void **state)
{
    int fd = memfd_create("ram", MFD_CLOEXEC), r;

    (void)state;
    r = fd >= 0 && ftruncate(fd, 32 << 20) == 0 ? ram_map(&ram, fd, 32 << 20, 0) : -1;
    close(fd);
    return r < 0 || !mkdtemp(dir) ? -1 : 0;
}

static int teardown(void **state)
{
    char line[80];

    (void)state;
    ram_unmap(&ram);
    snprintf(line, sizeof(line), "rm -r %s", dir);
    return system(line);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(processors), cmocka_unit_test(devices)};

    return cmocka_run_group_tests(tests, setup, teardown);
}
