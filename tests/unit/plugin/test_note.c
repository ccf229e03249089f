/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* The note parser on objects made by hand: each thing it refuses, one at a time. */
#include <elf.h>

#include "harness.h"

struct object {
    Elf64_Ehdr e;
    Elf64_Phdr p[2];
    uint8_t notes[256];
};

#if defined(__x86_64__)
#define MACHINE EM_X86_64
#else
#define MACHINE EM_AARCH64
#endif

static size_t add_note(uint8_t *at, uint32_t type, const char *name, uint32_t namesz,
                       uint32_t descsz, const struct cella_note *n)
{
    Elf64_Nhdr h = {namesz, descsz, type};
    size_t len = sizeof(h);

    memcpy(at, &h, sizeof(h));
    memcpy(at + len, name, namesz);
    len += (namesz + 3) & ~3u;
    memcpy(at + len, n, descsz < sizeof(*n) ? descsz : sizeof(*n));
    return len + ((descsz + 3) & ~3u);
}

static const struct cella_note good_note = {CELLA_NOTE_MAGIC, CELLA_KIND_SINK, 1, 2, 3};

static struct object object(void)
{
    struct object o;
    size_t len;

    memset(&o, 0, sizeof(o));
    memcpy(o.e.e_ident, ELFMAG, SELFMAG);
    o.e.e_ident[EI_CLASS] = ELFCLASS64;
    o.e.e_ident[EI_DATA] = ELFDATA2LSB;
    o.e.e_ident[EI_VERSION] = EV_CURRENT;
    o.e.e_version = EV_CURRENT;
    o.e.e_type = ET_DYN;
    o.e.e_machine = MACHINE;
    o.e.e_phoff = offsetof(struct object, p);
    o.e.e_phentsize = sizeof(Elf64_Phdr);
    o.e.e_phnum = 2;
    o.p[0] = (Elf64_Phdr){.p_type = PT_LOAD, .p_filesz = sizeof(o)};
    len = add_note(o.notes, NT_GNU_BUILD_ID, "GNU", 4, 5, &good_note);
    len += add_note(o.notes + len, CELLA_NOTE_TYPE, "cella", 6, sizeof(good_note), &good_note);
    o.p[1] = (Elf64_Phdr){.p_type = PT_NOTE,
                          .p_offset = offsetof(struct object, notes),
                          .p_filesz = len,
                          .p_align = 4};
    return o;
}

static int parse(const struct object *o, struct cella_note *n, struct errbuf *eb)
{
    struct elf_source src = {.fd = -1, .mem = (const uint8_t *)o, .size = sizeof(*o)};

    return elf_note_read(&src, n, errbuf_init(eb));
}

static void finds(void **state)
{
    struct object o = object();
    struct cella_note n;
    struct errbuf eb;

    (void)state;
    assert_ok(parse(&o, &n, &eb), eb);
    assert_memory_equal(&n, &good_note, sizeof(n));
    o.notes[0] = 0x7f; /* the first note claims a name that runs past the segment */
    assert_int_equal(parse(&o, &n, &eb), -ENOEXEC);
    assert_says(eb.text, "a note runs past its segment");
}

#define CASE(words, change)                                                                        \
    do {                                                                                           \
        struct object o = object();                                                                \
        struct cella_note n = {.magic = 5};                                                        \
        struct errbuf eb;                                                                          \
        change;                                                                                    \
        assert_true(parse(&o, &n, &eb) < 0);                                                       \
        assert_says(eb.text, words);                                                               \
        assert_int_equal(n.magic, 5);                                                              \
    } while (0)

static void refuses(void **state)
{
    (void)state;
    CASE("not an ELF file", o.e.e_ident[0] = 'E');
    CASE("not a 64-bit", o.e.e_ident[EI_CLASS] = ELFCLASS32);
    CASE("little-endian", o.e.e_ident[EI_DATA] = ELFDATA2MSB);
    CASE("another machine", o.e.e_machine = EM_RISCV);
    CASE("not a shared object", o.e.e_type = ET_EXEC);
    CASE("program headers of 55 bytes", o.e.e_phentsize = 55);
    CASE("0 program headers", o.e.e_phnum = 0);
    CASE("129 program headers", o.e.e_phnum = 129);
    CASE("lie outside", o.e.e_phoff = sizeof(o) - 8);
    CASE("lie outside", o.e.e_phoff = UINT64_MAX - 16);
    CASE("a segment ends outside", o.p[0].p_filesz = sizeof(o) + 1);
    CASE("a segment ends outside", o.p[0].p_offset = UINT64_MAX);
    CASE("lie outside", o.p[1].p_offset = sizeof(o) - 4);
    CASE("note segment of 16385 bytes", o.p[1].p_filesz = 16385);
    CASE("no cella note", o.p[1].p_type = PT_NULL);
    CASE("no cella note", o.p[1].p_filesz = 0);
    CASE("more than one cella note", {
        o.p[1].p_filesz = add_note(o.notes, CELLA_NOTE_TYPE, "cella", 6, 16, &good_note);
        o.p[0] = o.p[1];
    });
    CASE("its cella note has 12 bytes",
         o.p[1].p_filesz = add_note(o.notes, CELLA_NOTE_TYPE, "cella", 6, 12, &good_note));
    CASE("no cella note",
         o.p[1].p_filesz = add_note(o.notes, CELLA_NOTE_TYPE, "cellb", 6, 16, &good_note));
    CASE("no cella note",
         o.p[1].p_filesz = add_note(o.notes, CELLA_NOTE_TYPE + 1, "cella", 6, 16, &good_note));
}

static void size_limit(void **state)
{
    struct object o = object();
    struct elf_source src = {.fd = -1, .mem = (const uint8_t *)&o, .size = PLUGIN_FILE_MAX + 1ull};
    struct cella_note n;
    struct errbuf eb;

    (void)state;
    assert_int_equal(elf_note_read(&src, &n, errbuf_init(&eb)), -EFBIG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds),
        cmocka_unit_test(refuses),
        cmocka_unit_test(size_limit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
