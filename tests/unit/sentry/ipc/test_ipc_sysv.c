/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* System V's semaphores, messages and segments, on the host's kernel and on ours. */
#include <errno.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <time.h>
#include <unistd.h>

#include "world.h"

static struct {
    long type;
    char text[9000];
} letter;

static int64_t op(int id, int number, int what, int flags)
{
    struct sembuf b = {(unsigned short)number, (short)what, (short)flags};

    return call(SYS_semop, id, &b, 1);
}

static void values(int id)
{
    unsigned short v[3] = {9, 9, 9};
    int64_t r = call(SYS_semctl, id, 0, GETALL, v);

    note("values %ld %d %d %d", (long)r, (int)v[0], (int)v[1], (int)v[2]);
}

static void semaphores(void)
{
    int key = 0x5e000000 + getpid(),
        id = (int)call(SYS_semget, key, 3, IPC_CREAT | IPC_EXCL | 0600);
    struct sembuf both_ops[2] = {{0, 1, 0}, {1, -1, IPC_NOWAIT}},
                  range[2] = {{0, 1, 0}, {1, 32767, 0}};
    struct semid_ds ds;
    int64_t r;

    note("get %d again %d excl %ld more %ld", id >= 0, call(SYS_semget, key, 2, 0) == id,
         (long)call(SYS_semget, key, 3, IPC_CREAT | IPC_EXCL), (long)call(SYS_semget, key, 4, 0));
    note("none %ld bad %ld %ld", (long)call(SYS_semget, key + 0x1000000, 1, 0),
         (long)call(SYS_semget, IPC_PRIVATE, 0, 0600),
         (long)call(SYS_semget, IPC_PRIVATE, 40000, 0600));
    values(id);
    note("up %ld %ld", (long)op(id, 0, 5, 0), (long)op(id, 2, 1, 0));
    note("down %ld", (long)op(id, 0, -2, 0));
    values(id);
    note("both %ld", (long)call(SYS_semop, id, both_ops, 2));
    values(id);
    note("nowait %ld zero %ld %ld", (long)op(id, 1, -1, IPC_NOWAIT), (long)op(id, 1, 0, 0),
         (long)op(id, 0, 0, IPC_NOWAIT));
    op(id, 1, 1, 0);
    note("range %ld", (long)call(SYS_semop, id, range, 2));
    note("number %ld none %ld many %ld", (long)op(id, 3, 1, 0),
         (long)call(SYS_semop, id, both_ops, 0), (long)call(SYS_semop, id, both_ops, 501));
    values(id);
    note("setval %ld %ld %ld", (long)call(SYS_semctl, id, 1, SETVAL, 7),
         (long)call(SYS_semctl, id, 1, SETVAL, 40000), (long)call(SYS_semctl, id, 3, SETVAL, 1));
    note("getval %ld pid %d ncnt %ld", (long)call(SYS_semctl, id, 1, GETVAL),
         call(SYS_semctl, id, 1, GETPID) == getpid(), (long)call(SYS_semctl, id, 1, GETNCNT));
    r = call(SYS_semctl, id, 0, IPC_STAT, &ds);
    note("stat %ld %lu %o %d %d", (long)r, ds.sem_nsems, (unsigned)ds.sem_perm.mode,
         ds.sem_perm.__key == key, ds.sem_otime > 0);
    ds.sem_perm.mode = 0400;
    note("set %ld", (long)call(SYS_semctl, id, 0, IPC_SET, &ds));
    note("undo %ld %ld", (long)op(id, 0, 1, SEM_UNDO), (long)op(id, 0, -1, SEM_UNDO));
    note("remove %ld", (long)call(SYS_semctl, id, 0, IPC_RMID));
    note("gone %ld %ld", (long)op(id, 0, 1, 0), (long)call(SYS_semctl, id, 0, IPC_RMID));
}

/* A number comes again after 65535 others: what was to be undone in the set that had it is no matter of the next one's. */
static void numbers_again(void)
{
    int id = (int)call(SYS_semget, IPC_PRIVATE, 1, 0600), next, i;

    note("up %ld", (long)op(id, 0, 32767, SEM_UNDO));
    call(SYS_semctl, id, 0, IPC_RMID);
    for (i = 0; i < 65534; i++) {
        next = (int)call(SYS_semget, IPC_PRIVATE, 1, 0600);
        call(SYS_semctl, next, 0, IPC_RMID);
    }
    next = (int)call(SYS_semget, IPC_PRIVATE, 1000, 0600);
    note("again %d", next == id);
    note("up %ld %ld", (long)op(next, 0, 2, SEM_UNDO), (long)op(next, 999, 1, SEM_UNDO));
    call(SYS_semctl, next, 0, IPC_RMID);
}

static void post(int id, long type, const char *text)
{
    struct {
        long type;
        char text[8];
    } own = {.type = type};

    memcpy(own.text, text, strlen(text));
    call(SYS_msgsnd, id, &own, strlen(text), 0);
}

/* How many wait, once somebody does: whose call has begun may not have come to that yet. */
static long waiters(int id, int number, int what)
{
    unsigned i;

    for (i = 0; i < 2500 && call(SYS_semctl, id, number, what) == 0; i++)
        pause_ms(2);
    return (long)call(SYS_semctl, id, number, what);
}

static void waiting(void)
{
    int id = (int)call(SYS_semget, IPC_PRIVATE, 2, 0600),
        q = (int)call(SYS_msgget, IPC_PRIVATE, 0600);
    struct timespec t = {0, 5000000};
    struct sembuf down = {0, -2, 0}, zero = {1, 0, 0};
    struct other *o;

    o = begin(SYS_semop, id, &down, 1);
    note("waits %d", waits(o));
    note("ncnt %ld", waiters(id, 0, GETNCNT));
    op(id, 0, 1, 0);
    note("waits %d", waits(o));
    op(id, 0, 1, 0);
    note("done %ld", (long)end(o));
    values(id);
    op(id, 1, 1, 0);
    o = begin(SYS_semop, id, &zero, 1);
    note("waits %d", waits(o));
    note("zcnt %ld", waiters(id, 1, GETZCNT));
    op(id, 1, -1, 0);
    note("done %ld", (long)end(o));
    note("time %ld", (long)call(SYS_semtimedop, id, &down, 1, &t));
    o = begin(SYS_semop, id, &down, 1);
    note("waits %d of %ld", waits(o), waiters(id, 0, GETNCNT));
    call(SYS_semctl, id, 0, IPC_RMID);
    note("removed %ld", (long)end(o));
    letter.type = 3;
    o = begin(SYS_msgrcv, q, &letter, 100, 3, 0);
    note("waits %d", waits(o));
    post(q, 4, "no");
    note("waits %d", waits(o));
    post(q, 3, "yes");
    note("received %ld", (long)end(o));
    o = begin(SYS_msgrcv, q, &letter, 100, 3, 0);
    note("waits %d", waits(o));
    call(SYS_msgctl, q, IPC_RMID, NULL);
    note("removed %ld", (long)end(o));
}

static void receive(int id, size_t size, long type, int flags)
{
    int64_t r;

    memset(&letter, 0, 32);
    r = call(SYS_msgrcv, id, &letter, size, type, flags | IPC_NOWAIT);
    note("msgrcv %ld %ld: %ld %.10s", (long)size, type, (long)r, letter.text);
    if (r >= 0)
        note(" type %ld", letter.type);
}

static void send(int id, long type, const char *text, size_t size)
{
    letter.type = type;
    memset(letter.text, 0, 64);
    strcpy(letter.text, text);
    note("msgsnd %ld", (long)call(SYS_msgsnd, id, &letter, size, IPC_NOWAIT));
}

static void messages(void)
{
    int key = 0x5e000000 + getpid(), id = (int)call(SYS_msgget, key, IPC_CREAT | 0600), i;
    struct msqid_ds ds;
    int64_t r;

    note("get %d again %d", id >= 0, call(SYS_msgget, key, 0) == id);
    receive(id, 10, 0, 0);
    send(id, 0, "zero", 4);
    send(id, -1, "less", 4);
    send(id, 5, "five", 4);
    send(id, 3, "three", 5);
    send(id, 4, "four", 4);
    send(id, 1, "", 0);
    receive(id, 3, 5, 0);
    receive(id, 3, 5, MSG_NOERROR);
    receive(id, 10, -3, 0);
    receive(id, 10, -3, 0);
    receive(id, 10, -3, 0);
    receive(id, 10, 9, 0);
    receive(id, 10, 9, MSG_EXCEPT);
    send(id, 1, "large", 8192);
    send(id, 1, "larger", 8193);
    for (i = 0; i < 3; i++)
        send(id, 2, "fills", 4096);
    r = call(SYS_msgctl, id, IPC_STAT, &ds);
    note("stat %ld %lu %lu %lu %d", (long)r, ds.msg_qnum, ds.__msg_cbytes, ds.msg_qbytes,
         ds.msg_lspid == getpid());
    ds.msg_qbytes = 100;
    note("set %ld", (long)call(SYS_msgctl, id, IPC_SET, &ds));
    receive(id, 10000, 0, 0);
    note("remove %ld", (long)call(SYS_msgctl, id, IPC_RMID, NULL));
    send(id, 1, "gone", 4);
    receive(id, 10, 0, 0);
}

/* Attaching them is judged by guests: it is mm/'s. */
static void segments(void)
{
    int key = 0x5e000000 + getpid(), id = (int)call(SYS_shmget, key, 5000, IPC_CREAT | 0640);
    struct shmid_ds ds;
    int64_t r;

    note("get %d again %d", id >= 0, call(SYS_shmget, key, 0, 0) == id);
    note("larger %ld excl %ld none %ld empty %ld", (long)call(SYS_shmget, key, 6000, 0),
         (long)call(SYS_shmget, key, 5000, IPC_CREAT | IPC_EXCL),
         (long)call(SYS_shmget, key + 0x1000000, 1, 0),
         (long)call(SYS_shmget, IPC_PRIVATE, 0, 0600));
    r = call(SYS_shmctl, id, IPC_STAT, &ds);
    note("stat %ld %zu %o %lu %d", (long)r, ds.shm_segsz, (unsigned)ds.shm_perm.mode,
         (unsigned long)ds.shm_nattch, ds.shm_cpid == getpid());
    ds.shm_perm.mode = 0600;
    note("set %ld", (long)call(SYS_shmctl, id, IPC_SET, &ds));
    note("bad %ld %ld", (long)call(SYS_shmat, id, 8, 0), (long)call(SYS_shmdt, 0x1000));
    note("remove %ld", (long)call(SYS_shmctl, id, IPC_RMID, NULL));
    note("gone %ld %ld", (long)call(SYS_shmctl, id, IPC_RMID, NULL),
         (long)call(SYS_shmat, id, NULL, 0));
}

#define BOTH(name)                                                                                 \
    static void test_##name(void **state)                                                          \
    {                                                                                              \
        (void)state;                                                                               \
        both(name);                                                                                \
    }
BOTH(semaphores)
BOTH(waiting)
BOTH(messages)
BOTH(segments)

static void test_numbers_again(void **state)
{
    (void)state;
    ours_alone(numbers_again, "up 0\nagain 1\nup 0 0\n"); /* the host's go on longer */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_semaphores),    cmocka_unit_test(test_waiting),
        cmocka_unit_test(test_messages),      cmocka_unit_test(test_segments),
        cmocka_unit_test(test_numbers_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
