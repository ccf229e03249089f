/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * system - the system as a whole, as a guest asks for it: names, memory, random bytes, the kernel's log.
 * Threads: the kernel lock.
 */
#include <linux/capability.h>
#include <linux/reboot.h>
#include <string.h>
#include <sys/random.h>
#include <sys/utsname.h>

#include "room.h"

#ifndef CELLA_VERSION
#define CELLA_VERSION "0"
#endif
#define NAME_MOST 64
#define RANDOM_MOST 0x2000000u /* of one call, as Linux */
#define LOG_SIZE (1 << 17)

struct guest_utsname {
    char sysname[65], nodename[65], release[65], version[65], machine[65], domainname[65];
};

static struct names {
    char host[NAME_MOST + 1], domain[NAME_MOST + 1];
} names = {.host = "cella", .domain = "(none)"};

void hostname_set(const char *name, size_t length)
{
    if (length > NAME_MOST)
        length = NAME_MOST;
    memset(names.host, 0, sizeof(names.host));
    memcpy(names.host, name, length);
}

const char *hostname(void)
{
    return names.host;
}

const char *kernel_release(void)
{
    return "6.1.0-cella";
}

const char *kernel_version(void)
{
    return "#1 SMP cella " CELLA_VERSION;
}

static void name_copy(char *to, const char *from)
{
    memcpy(to, from, strnlen(from, NAME_MOST));
}

SYSCALL(uname)
{
    struct guest_utsname name = {.sysname = "Linux", .machine = "x86_64"};

    name_copy(name.nodename, names.host);
    name_copy(name.domainname, names.domain);
    name_copy(name.release, kernel_release());
    name_copy(name.version, kernel_version());
    return copy_out(current->mm, a[0], &name, sizeof(name));
}

static int64_t set_name(const uint64_t a[6], char to[NAME_MOST + 1])
{
    char name[NAME_MOST + 1] = "";

    if (!capable(CAP_SYS_ADMIN))
        return -EPERM;
    if ((int64_t)a[1] < 0 || a[1] > NAME_MOST)
        return -EINVAL;
    if (copy_in(current->mm, name, a[0], a[1]) < 0)
        return -EFAULT;
    memcpy(to, name, sizeof(name));
    return 0;
}

SYSCALL(sethostname)
{
    return set_name(a, names.host);
}

SYSCALL(setdomainname)
{
    return set_name(a, names.domain);
}

struct guest_sysinfo {
    int64_t uptime;
    uint64_t loads[3], total_ram, free_ram, shared_ram, buffer_ram, total_swap, free_swap;
    uint16_t procs, pad;
    uint32_t pad2;
    uint64_t total_high, free_high;
    uint32_t mem_unit, pad3;
};
static_assert(sizeof(struct guest_sysinfo) == 112, "as the kernel has it");

SYSCALL(sysinfo)
{
    uint64_t limit = memfile_limit(), used = memfile_used();
    struct guest_sysinfo info = {
        .uptime = (int64_t)(clock_boottime() / NS_PER_SECOND),
        .total_ram = limit,
        .free_ram = limit > used ? limit - used : 0,
        .procs = task_count() > UINT16_MAX ? UINT16_MAX : (uint16_t)task_count(),
        .mem_unit = 1,
    };

    return copy_out(current->mm, a[0], &info, sizeof(info));
}

/* @seccomp sentry: getrandom */
SYSCALL(getrandom)
{
    unsigned char bytes[256];
    uint64_t size = a[1] < RANDOM_MOST ? a[1] : RANDOM_MOST, done, some;
    ssize_t got;

    if (a[2] & ~(uint64_t)(GRND_NONBLOCK | GRND_RANDOM | 4) || (a[2] & 6) == 6)
        return -EINVAL;
    for (done = 0; done < size; done += some) {
        some = size - done < sizeof(bytes) ? size - done : sizeof(bytes);
        got = getrandom(bytes, some, 0);
        if (got != (ssize_t)some)
            return done ? (int64_t)done : -EAGAIN;
        if (copy_out(current->mm, a[0] + done, bytes, some) < 0)
            return done ? (int64_t)done : -EFAULT;
    }
    return (int64_t)size;
}

/* The log is empty: what the sentry has to say is said to the operator, outside. */
SYSCALL(syslog)
{
    int type = (int)a[0];

    if (type != 3 && type != 10 && !capable(CAP_SYSLOG) && !capable(CAP_SYS_ADMIN))
        return -EPERM;
    switch (type) {
    case 0: /* close, open */
    case 1:
    case 5: /* clear, console */
    case 6:
    case 7:
    case 9: /* unread */
        return 0;
    case 2: /* read: waits for what never comes */
        return WAIT_UNTIL(&current->process->signal_waitq, 0, WAIT_FOREVER, false);
    case 3:
    case 4:
        return !a[1] || (int)a[2] < 0 ? -EINVAL : 0;
    case 8:
        return a[2] < 1 || a[2] > 8 ? -EINVAL : 0;
    case 10:
        return LOG_SIZE;
    default:
        return -EINVAL;
    }
}

/* Ends the cell, when its init may ask for that. */
SYSCALL(reboot)
{
    if (!capable(CAP_SYS_BOOT))
        return -EPERM;
    if ((uint32_t)a[0] != LINUX_REBOOT_MAGIC1 ||
        ((uint32_t)a[1] != LINUX_REBOOT_MAGIC2 && (uint32_t)a[1] != LINUX_REBOOT_MAGIC2A &&
         (uint32_t)a[1] != LINUX_REBOOT_MAGIC2B && (uint32_t)a[1] != LINUX_REBOOT_MAGIC2C))
        return -EINVAL;
    switch ((uint32_t)a[2]) {
    case LINUX_REBOOT_CMD_CAD_ON:
    case LINUX_REBOOT_CMD_CAD_OFF:
        return 0;
    case LINUX_REBOOT_CMD_RESTART:
    case LINUX_REBOOT_CMD_RESTART2:
        process_kill(init_process(), SIGHUP);
        return 0;
    case LINUX_REBOOT_CMD_HALT:
    case LINUX_REBOOT_CMD_POWER_OFF:
        process_kill(init_process(), SIGINT);
        return 0;
    default:
        return -EINVAL;
    }
}
