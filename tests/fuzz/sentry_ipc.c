/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * sentry_ipc - any calls of ipc/ in any order with any arguments, by one task to which a signal is always due, so that no wait lasts.
 * The bytes are calls: a number of the table, then each argument as a kind and a value. What they point to is the bytes themselves.
 * Afterwards all is closed, and nothing may be left.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

#include "base/base.h"
#include "fakes.h"
#include "ipc/sysv.h"

#define MEMORY 65536u
#define CALLS_MAX 300u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CALL(name_, status_, note_) SYSCALL(name_);
#define REFUSE(name_, error_, note_)
#include "ipc/calls.def"
#undef CALL
#undef REFUSE
#define CALL(name_, status_, note_) sys_##name_,
#define REFUSE(name_, error_, note_)
static const syscall_function calls[] = {
#include "ipc/calls.def"
};
#define N_CALLS (sizeof(calls) / sizeof(calls[0]))
static const long files_calls[] = {SYS_read,  SYS_write, SYS_readv, SYS_writev,
                                   SYS_fcntl, SYS_ioctl, SYS_dup,   SYS_close};
#define N_FILE_CALLS (sizeof(files_calls) / sizeof(files_calls[0]))
static const char *const names[] = {"/dev/ptmx", "/dev/pts/0", "/dev/pts/1", "/dev/tty"};

static uint8_t memory[MEMORY];

struct input {
    const uint8_t *data;
    size_t size;
};

static uint64_t take(struct input *in, unsigned bytes)
{
    uint64_t value = 0;

    while (bytes-- > 0)
        if (in->size) {
            value = value << 8 | *in->data++;
            in->size--;
        }
    return value;
}

static uint64_t argument(struct input *in)
{
    uint8_t kind = (uint8_t)take(in, 1);

    switch (kind & 7) {
    case 0:
    case 1:
        return 3 + kind / 8 % 16; /* a descriptor */
    case 2:
    case 3:
        return (uintptr_t)memory + take(in, 2) % MEMORY;
    case 4:
        return kind >> 3;
    case 5:
        return take(in, 1) << (kind >> 3) % 24;
    case 6:
        return take(in, 4);
    default:
        return (uint64_t)(int64_t)(int8_t)take(in, 1);
    }
}

static void one_call(struct input *in)
{
    unsigned which = (unsigned)take(in, 1) % (N_CALLS + N_FILE_CALLS + 2);
    uint64_t a[6];
    unsigned i;

    for (i = 0; i < 6; i++)
        a[i] = argument(in);
    current->process->pending.bits |= SIGBIT(SIGUSR1);
    if (which < N_CALLS)
        calls[which](a);
    else if (which < N_CALLS + N_FILE_CALLS)
        fake_call(files_calls[which - N_CALLS], a);
    else
        fake_open(names[a[0] % 4], (uint32_t)a[1]);
}

static void remove_sysv(void)
{
    const struct sysv_state *s = sysv();
    uint32_t i;

    for (i = 0; i < SYSV_MAX; i++) {
        if (s->shm.at[i])
            sys_shmctl((uint64_t[6]){(uint64_t)s->shm.at[i]->id, IPC_RMID});
        if (s->sem.at[i])
            sys_semctl((uint64_t[6]){(uint64_t)s->sem.at[i]->id, 0, IPC_RMID});
        if (s->msg.at[i])
            sys_msgctl((uint64_t[6]){(uint64_t)s->msg.at[i]->id, IPC_RMID});
    }
    if (s->n_semaphores || s->message_bytes)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, size};
    static bool begun;
    unsigned n = 0;

    if (!begun)
        fake_begin();
    begun = true;
    fake_guest(memory, sizeof(memory)); /* what is behind it is the kernel's */
    if (size)
        for (n = 0; n + size <= MEMORY; n += (unsigned)size)
            memcpy(memory + n, data, size);
    kernel_lock();
    for (n = 0; in.size && n < CALLS_MAX; n++)
        one_call(&in);
    remove_sysv();
    if (fake_close_all())
        abort();
    kernel_unlock();
    return 0;
}
