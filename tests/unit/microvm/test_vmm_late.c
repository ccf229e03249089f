/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* A copy whose memory and disk come when it is made already, on a KVM that is not one. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "fake_kvm.h"
#include "layers.h"
#include "layout.h"

#define RAM (32ull << 20)
#define DISK (1ull << 20)
#define SOMEWHERE (16ull << 20)

static struct machine parent, copy;
static struct vmm_config config;
static struct vmm_reply reply;
static int host, state_fd, ram_fd, layer_fd[2];

static int ask(struct machine *m, uint32_t what, uint64_t arg, uint64_t arg2, int fd)
{
    struct vmm_request q = {.op = what, .arg = arg, .arg2 = arg2};

    return fake_order(host, m, &q, sizeof(q), fd, &reply);
}

static void configure(struct machine *m, const struct vmm_config *c)
{
    struct vmm_request q = {.op = VMM_OP_CONFIG, .config = *c};

    assert_int_equal(fake_order(host, m, &q, sizeof(q), -1, &reply), 0);
}

static void refused(int code, int want, const char *words)
{
    assert_int_equal(code, want);
    if (!strstr(reply.text, words))
        fail_msg("\"%s\" instead of \"%s\"", reply.text, words);
    assert_int_equal(fake_end_status, -1); /* it goes on waiting */
}

static int file(uint64_t bytes)
{
    int fd = memfd_create("file", MFD_CLOEXEC);

    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    return fd;
}

/* One that has its content does not take another. */
static void only_a_copy_without_content(void **state)
{
    struct vmm_config c = config;

    (void)state;
    configure(&parent, &c);
    refused(ask(&parent, VMM_OP_MEMORY, 0, 0, ram_fd), -EPROTO, "does not wait");
    refused(ask(&parent, VMM_OP_LAYER, 0, 1, layer_fd[0]), -EPROTO, "does not wait");
    assert_int_equal(ask(&parent, VMM_OP_SAVE, 0, 0, state_fd), 0);
    c.flags = VMM_CONFIG_PRIVATE | VMM_CONFIG_INCOMING;
    configure(&copy, &c);
    refused(ask(&copy, VMM_OP_MEMORY, 0, 0, ram_fd), -EPROTO, "does not wait for it");
    refused(ask(&copy, VMM_OP_LAYER, 0, 1, layer_fd[0]), -EPROTO, "does not wait for one");
    assert_int_equal(ask(&copy, VMM_OP_LOAD, 0, 0, state_fd), 0);
    memset(&copy, 0, sizeof(copy));
}

static void memory_comes(void)
{
    int small = file(RAM - 4096);
    char text[6] = "";

    refused(ask(&copy, VMM_OP_CONT, 0, 0, -1), -EPROTO, "no state was loaded");
    refused(ask(&copy, VMM_OP_LOAD, 0, 0, state_fd), -EPROTO, "its memory did not come");
    refused(ask(&copy, VMM_OP_MEMORY, 0, 0, -1), -EBADF, "0 descriptors");
    refused(ask(&copy, VMM_OP_MEMORY, 0, 0, small), -EFBIG, "cannot be mapped as 32 MiB");
    close(small);
    assert_int_equal(pwrite(ram_fd, "saved", 5, SOMEWHERE), 5);
    assert_int_equal(ask(&copy, VMM_OP_MEMORY, 0, 0, ram_fd), 0);
    assert_int_equal(ram_read(&copy.ram, SOMEWHERE, text, 5), 0);
    assert_string_equal(text, "saved");
    assert_int_equal(ram_write(&copy.ram, SOMEWHERE, "own!!", 5), 0);
    assert_int_equal(pread(ram_fd, text, 5, SOMEWHERE), 5);
    assert_string_equal(text, "saved"); /* the snapshot is never written */
    refused(ask(&copy, VMM_OP_MEMORY, 0, 0, ram_fd), -EPROTO, "does not wait");
}

static void layers_come(void)
{
    int none = file(DISK), last;

    refused(ask(&copy, VMM_OP_LOAD, 0, 0, state_fd), -EPROTO, "its disk did not come");
    refused(ask(&copy, VMM_OP_LAYER, 0, 0, layer_fd[0]), -ERANGE, "number 0 of 0");
    refused(ask(&copy, VMM_OP_LAYER, 0, 17, layer_fd[0]), -ERANGE, "1 to 16");
    refused(ask(&copy, VMM_OP_LAYER, 1, 2, layer_fd[1]), -ERANGE, "in their order");
    assert_int_equal(ask(&copy, VMM_OP_LAYER, 0, 2, layer_fd[0]), 0);
    refused(ask(&copy, VMM_OP_LAYER, 0, 2, layer_fd[0]), -ERANGE, "in their order");
    refused(ask(&copy, VMM_OP_LAYER, 1, 1, layer_fd[1]), -ERANGE, "number 1 of 1");
    refused(ask(&copy, VMM_OP_LOAD, 0, 0, state_fd), -EPROTO, "its disk did not come");
    last = dup(none);
    close(last);
    refused(ask(&copy, VMM_OP_LAYER, 1, 2, none), -EUCLEAN, "writable disk");
    assert_int_equal(dup(none), last); /* what was refused is not kept */
    close(last);
    close(none);
    assert_int_equal(ask(&copy, VMM_OP_LAYER, 1, 2, layer_fd[1]), 0);
    refused(ask(&copy, VMM_OP_LAYER, 0, 1, layer_fd[0]), -EPROTO, "does not wait");
}

static void content_comes_late(void **state)
{
    struct vmm_config c = config;
    uint8_t id[16];

    (void)state;
    c.flags = VMM_CONFIG_PRIVATE | VMM_CONFIG_INCOMING;
    c.n_layers = 0;
    configure(&copy, &c);
    memory_comes();
    layers_come();
    refused(ask(&copy, VMM_OP_SAVE, 0, 0, state_fd), -EPROTO, "no machine yet");
    assert_int_equal(ask(&copy, VMM_OP_LOAD, 0, 0, state_fd), 0);
    assert_int_equal(ram_read(&copy.ram, AT_GENERATION, id, sizeof(id)), 0);
    assert_memory_equal(id, c.generation, sizeof(id));
    refused(ask(&copy, VMM_OP_MEMORY, 0, 0, ram_fd), -EPROTO, "does not wait for a state");
    assert_int_equal(ask(&copy, VMM_OP_CONT, 0, 0, -1), 0);
    refused(ask(&copy, VMM_OP_LAYER, 0, 1, layer_fd[0]), -EBUSY, "running");
    assert_int_equal(ask(&copy, VMM_OP_PAUSE, 0, 0, -1), 0);
    assert_int_equal(ask(&copy, VMM_OP_SAVE, 0, 0, state_fd), 0);
}

static int start(void **state)
{
    static uint8_t kernel[4096];
    size_t len = fake_kernel(kernel);

    (void)state;
    host = fake_fds(kernel, len, RAM);
    fake_config(&config, RAM);
    memset(config.generation, 'o', sizeof(config.generation));
    state_fd = file(0);
    ram_fd = file(RAM);
    layer_fd[0] = file(DISK);
    layer_fd[1] = file(0);
    return layer_create(layer_fd[1], DISK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_a_copy_without_content),
        cmocka_unit_test(content_comes_late),
    };

    return cmocka_run_group_tests(tests, start, NULL);
}
