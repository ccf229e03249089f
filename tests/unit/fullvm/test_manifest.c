/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* Sparse copies, digests, and the manifest of a machine. No machine is booted. */
#include <setjmp.h>
#include <stdarg.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "vm_manifest.h"
#undef fail /* cmocka has its own */
#include <cmocka.h>

#define MIB (1u << 20)

static int file_new(uint64_t size)
{
    char path[] = "/var/tmp/cella-sparse.XXXXXX";
    int fd = mkstemp(path);

    assert_true(fd >= 0);
    unlink(path);
    assert_int_equal(ftruncate(fd, (off_t)size), 0);
    return fd;
}

static void put(int fd, off_t at, const char *s)
{
    assert_int_equal(pwrite(fd, s, strlen(s), at), strlen(s));
}

static void digest(int fd, uint64_t size, unsigned char ret[SPARSE_DIGEST])
{
    assert_int_equal(sparse_digest(fd, size, ret), 0);
}

static void test_copy(void **state)
{
    int from = file_new(64 * MIB), to = file_new(0), mem = memfd_create("x", MFD_CLOEXEC);
    unsigned char a[SPARSE_DIGEST], b[SPARSE_DIGEST];
    struct stat st;
    char text[8] = "";

    (void)state;
    put(from, 0, "begin");
    put(from, 33 * MIB + 5, "middle");
    put(from, 64 * MIB - 3, "end");
    assert_int_equal(sparse_copy(from, to, 64 * MIB), 0);
    assert_int_equal(fstat(to, &st), 0);
    assert_int_equal(st.st_size, 64 * MIB);
    assert_true(st.st_blocks * 512 < 4 * MIB); /* holes stayed holes */
    assert_int_equal(pread(to, text, 6, 33 * MIB + 5), 6);
    assert_string_equal(text, "middle");
    digest(from, 64 * MIB, a);
    digest(to, 64 * MIB, b);
    assert_memory_equal(a, b, sizeof(a));
    assert_int_equal(sparse_copy(from, mem, 64 * MIB), 0); /* to another kind of file system */
    digest(mem, 64 * MIB, b);
    assert_memory_equal(a, b, sizeof(a));
    close(from);
    close(to);
    close(mem);
}

/* Zeros and holes are the same; a byte, its place and the size are not. */
static void test_digest(void **state)
{
    int fd = file_new(MIB);
    unsigned char a[SPARSE_DIGEST], b[SPARSE_DIGEST];
    char zero[4096] = "";

    (void)state;
    put(fd, 70000, "x");
    digest(fd, MIB, a);
    assert_int_equal(pwrite(fd, zero, sizeof(zero), 500000), sizeof(zero));
    digest(fd, MIB, b);
    assert_memory_equal(a, b, sizeof(a));
    put(fd, 500000, "y");
    digest(fd, MIB, b);
    assert_memory_not_equal(a, b, sizeof(a));
    assert_int_equal(pwrite(fd, zero, 1, 500000), 1);
    assert_int_equal(pwrite(fd, zero, 1, 70000), 1);
    put(fd, 70000 + 65536, "x");
    digest(fd, MIB, b);
    assert_memory_not_equal(a, b, sizeof(a));
    assert_int_equal(ftruncate(fd, MIB + 1), 0);
    digest(fd, MIB + 1, a);
    assert_memory_not_equal(a, b, sizeof(a));
    close(fd);
}

static void example(struct manifest *m)
{
    static const char *const names[] = {"ram", "state", "disk.0", "disk.1"};
    size_t i;

    *m = (struct manifest){.engine = "7.2.22",
                           .cpu = "max",
                           .host_cpu = "Some (0123)",
                           .accel = "tcg",
                           .ram_bytes = 4096,
                           .disk_bytes = 8192,
                           .vcpus = 1,
                           .n_files = ARRAY_LEN(names)};
    for (i = 0; i < ARRAY_LEN(names); i++) {
        snprintf(m->files[i].name, sizeof(m->files[i].name), "%s", names[i]);
        m->files[i].size = i == 0 ? 4096 : 8192;
    }
}

static int read_back(const char *text, struct manifest *m, struct errbuf *eb)
{
    memset(m, 0, sizeof(*m));
    return manifest_read(text, strlen(text), m, errbuf_init(eb));
}

static void test_manifest(void **state)
{
    struct manifest m, back;
    char *text = NULL;
    struct errbuf eb;
    size_t i, len;

    (void)state;
    example(&m);
    assert_int_equal(manifest_write(&m, &text), 0);
    assert_int_equal(read_back(text, &back, &eb), 0);
    assert_string_equal(back.cpu, "max");
    assert_int_equal(back.n_layers, 2);
    len = strlen(text);
    for (i = 0; i < len; i++) { /* no byte can be another */
        text[i] ^= 1;
        assert_true(read_back(text, &back, &eb) < 0);
        text[i] ^= 1;
    }
    for (i = 0; i < len; i++) /* none can be missing */
        assert_true(manifest_read(text, i, &back, errbuf_init(&eb)) < 0);
    assert_int_equal(read_back(text, &back, &eb), 0);
    free(text);
}

static void refused(const struct manifest *m)
{
    struct manifest back;
    char *text = NULL;
    struct errbuf eb;

    assert_int_equal(manifest_write(m, &text), 0);
    assert_int_equal(read_back(text, &back, &eb), -EBADMSG);
    free(text);
}

/* Whole by its digest, and still nothing that this backend wrote. */
static void test_inconsistent(void **state)
{
    struct manifest m;

    (void)state;
    example(&m);
    m.n_files = 4;
    m.files[2] = m.files[1]; /* twice the same, no disk */
    refused(&m);
    example(&m);
    strcpy(m.files[3].name, "disk.2"); /* a gap */
    refused(&m);
    example(&m);
    strcpy(m.files[1].name, "../x");
    refused(&m);
    example(&m);
    m.files[0].size = 1; /* memory of another size */
    refused(&m);
    example(&m);
    m.files[2].size = 1;
    refused(&m);
    example(&m);
    m.n_files = 2; /* no disk */
    refused(&m);
    example(&m);
    m.ram_bytes = 1ull << 45;
    m.files[0].size = 1ull << 45;
    refused(&m);
}

static void test_check(void **state)
{
    struct manifest *m = calloc(1, sizeof(*m));
    struct errbuf eb;
    int fd = file_new(MIB);

    (void)state;
    put(fd, 5, "saved");
    assert_int_equal(manifest_note(m, "ram", fd, 0), 0);
    assert_int_equal(manifest_check(&m->files[0], fd, errbuf_init(&eb)), 0);
    usleep(20000); /* a file system's clock is no finer */
    put(fd, 5, "saveD");
    assert_int_equal(manifest_check(&m->files[0], fd, &eb.err), -EBADMSG);
    put(fd, 5, "saved");
    assert_int_equal(manifest_check(&m->files[0], fd, &eb.err), 0);
    assert_int_equal(ftruncate(fd, MIB - 1), 0);
    assert_int_equal(manifest_check(&m->files[0], fd, &eb.err), -EBADMSG);
    close(fd);
    free(m);
}

/* Without a digest only the times tell, so another time is a refusal. */
static void test_brief(void **state)
{
    struct manifest *m = calloc(1, sizeof(*m)), *back = calloc(1, sizeof(*back));
    auto_free char *text = NULL;
    struct errbuf eb;
    int fd = file_new(MIB);

    (void)state;
    put(fd, 5, "saved");
    *m = (struct manifest){.engine = "e",
                           .cpu = "c",
                           .host_cpu = "h",
                           .accel = "tcg",
                           .ram_bytes = MIB,
                           .disk_bytes = MIB,
                           .vcpus = 1};
    assert_int_equal(manifest_note(m, "ram", fd, 1), 0);
    assert_int_equal(manifest_note(m, "state", fd, 1), 0);
    assert_int_equal(manifest_note(m, "disk.0", fd, 0), 0);
    assert_int_equal(manifest_write(m, &text), 0);
    assert_int_equal(manifest_read(text, strlen(text), back, errbuf_init(&eb)), 0);
    assert_int_equal(back->files[0].undigested, 1);
    assert_int_equal(back->files[2].undigested, 0);
    assert_int_equal(manifest_check(&back->files[0], fd, &eb.err), 0);
    usleep(20000);
    put(fd, 5, "saved"); /* the same content, by somebody */
    assert_int_equal(manifest_check(&back->files[0], fd, &eb.err), -EBADMSG);
    assert_int_equal(manifest_check(&back->files[2], fd, &eb.err), 0);
    close(fd);
    free(m);
    free(back);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_copy),     cmocka_unit_test(test_digest),
        cmocka_unit_test(test_manifest), cmocka_unit_test(test_inconsistent),
        cmocka_unit_test(test_check),    cmocka_unit_test(test_brief),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
