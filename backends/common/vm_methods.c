/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * methods - typed methods: the console, the machine, its memory and processor time. What the guest wrote on its
 * console is hostile: it is bounded, and goes through buf_json_string(). Threads: one.
 */
#include "limit.h"
#include "vm.h"

/* The newest of it that fits: one byte of the console becomes at most six of JSON. */
static int64_t console(void *self, char *out, uint64_t cap, struct cella_error *err)
{
    struct vm *f = self;
    auto_buf struct buf b = BUF_INIT;
    size_t most = cap > 64 ? (size_t)(cap - 64) / 6 : 0, len;
    char *text = malloc(CONSOLE_KEPT);

    if (!text)
        return cella_error_set(err, -ENOMEM, 0, "out of memory");
    console_read(&f->console, CONSOLE_KEPT);
    len = console_tail(&f->console, text, most < CONSOLE_KEPT ? most : CONSOLE_KEPT);
    buf_addf(&b, "{\"bytes\":%llu,\"tail\":", (unsigned long long)f->console.total);
    buf_json_string(&b, text, len);
    buf_add(&b, "}", 1);
    free(text);
    return buf_out(&b, out, cap, err);
}

static int64_t machine(void *self, char *out, uint64_t cap, struct cella_error *err)
{
    struct vm *f = self;
    auto_buf struct buf b = BUF_INIT;

    buf_addf(&b, "{\"engine\":\"%s\",\"accel\":\"%s\",\"cpu\":", f->engine->identity,
             f->kvm ? "kvm" : "tcg");
    buf_json_string(&b, f->cpu, strlen(f->cpu));
    buf_addf(&b,
             ",\"memory\":%llu,\"cpus\":%u,\"disk\":%llu,\"layers\":%u,\"network\":%s,\"pid\":%d,"
             "\"snapshot_pause_us\":%llu}",
             (unsigned long long)f->ram_bytes, f->vcpus, (unsigned long long)f->disk_bytes,
             f->n_layers, f->has_net ? "true" : "false", (int)f->engine->pid,
             (unsigned long long)f->pause_ns / 1000);
    return buf_out(&b, out, cap, err);
}

static int32_t balloon(void *self, uint64_t bytes, struct cella_error *err)
{
    struct cella_limits l = {.memory_bytes = bytes};

    if (!bytes)
        return cella_error_set(err, -EINVAL, 0, "bytes 0: a machine needs memory");
    return limits_resize(self, &l, err);
}

LIMIT_METHOD(cpu, cpu_millis, millis)

const struct cella_method vm_methods[VM_N_METHODS] = {
    {"console", "-> json", "the last of what the guest's kernel said on its serial console",
     (cella_method_fn)console, 0, 0},
    {"machine", "-> json", "what the machine has, and its engine's pid on the host",
     (cella_method_fn)machine, 0, 0},
    {"balloon", "u64 bytes -> i32", "leave the guest so much of its memory",
     (cella_method_fn)balloon, 0, 0},
    LIMIT_CPU_METHOD,
};
