/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * probe_init - the init of a test's guest: says on the console what it finds, then does what probe=… on the kernel's
 * command line says. Every line begins with "probe:".
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/io.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/random.h>
#include <sys/reboot.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <time.h>
#include <unistd.h>

static void say(const char *what, const char *value)
{
    printf("probe: %s %s\n", what, value);
    fflush(stdout);
}

static void say_file(const char *what, const char *path)
{
    char text[200] = "";
    FILE *f = fopen(path, "r");

    if (f && fgets(text, sizeof(text), f))
        text[strcspn(text, "\n")] = 0;
    if (f)
        fclose(f);
    say(what, f ? text : "absent");
}

/* ACPI devices that became devices of the kernel. */
static void devices(void)
{
    DIR *d = opendir("/sys/bus/acpi/devices");
    struct dirent *e;
    int virtio = 0, generation = 0, serial = 0, button = 0, events = 0;

    while (d && (e = readdir(d))) {
        virtio += !strncmp(e->d_name, "LNRO0005:", 9);
        generation += !strncmp(e->d_name, "CLLA0001:", 9);
        serial += !strncmp(e->d_name, "PNP0501:", 8);
        button += !strncmp(e->d_name, "PNP0C0C:", 8);
        events += !strncmp(e->d_name, "ACPI0013:", 9);
    }
    if (d)
        closedir(d);
    printf("probe: acpi virtio=%d generation=%d serial=%d button=%d events=%d\n", virtio,
           generation, serial, button, events);
}

static long ms(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void flags(void)
{
    static char text[8192];
    static const char *const unwanted[] = {" vmx ", " svm ", " arch_perfmon ", " amx_tile ",
                                           " perfctr_core "};
    FILE *f = fopen("/proc/cpuinfo", "r");
    int bad = 0, hypervisor = 0;
    size_t i;

    while (f && fgets(text, sizeof(text), f)) {
        if (strncmp(text, "flags", 5))
            continue;
        hypervisor = !!strstr(text, " hypervisor ");
        for (i = 0; i < sizeof(unwanted) / sizeof(unwanted[0]); i++)
            bad += !!strstr(text, unwanted[i]);
        break;
    }
    if (f)
        fclose(f);
    printf("probe: cpuid hypervisor=%d unwanted=%d\n", hypervisor, bad);
}

static void facts(void)
{
    struct sysinfo si;

    sysinfo(&si);
    printf("probe: cpus %ld ram %lu\n", sysconf(_SC_NPROCESSORS_ONLN),
           (unsigned long)(si.totalram * si.mem_unit >> 20));
    say_file("clock", "/sys/devices/system/clocksource/clocksource0/current_clocksource");
    say_file("cores", "/sys/devices/system/cpu/cpu0/topology/core_siblings_list");
    devices();
    flags();
}

/* Ticks, in each of which time, memory and randomness can be seen. */
static void count(void)
{
    unsigned char *memory =
        mmap(NULL, 8 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unsigned long n, random, i, sum;

    for (i = 0; i < 8 << 20; i += 4096)
        memory[i] = (unsigned char)(i >> 12);
    for (n = 0;; n++) {
        for (i = sum = 0; i < 8 << 20; i += 4096)
            sum += memory[i];
        getrandom(&random, sizeof(random), 0);
        printf("probe: tick %lu mono %ld real %ld sum %lu random %lx\n", n, ms(CLOCK_MONOTONIC),
               ms(CLOCK_REALTIME), sum, random);
        fflush(stdout);
        usleep(50000);
    }
}

/* Ports and device memory with random bytes, for as long as it lives. */
static void hostile(void)
{
    int fd = open("/dev/mem", O_RDWR | O_SYNC);
    volatile unsigned *page = NULL;
    unsigned long i;

    if (fd >= 0)
        page = mmap(NULL, 8 << 12, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0xc0001000);
    say("hostile", page && page != MAP_FAILED ? "memory" : strerror(errno));
    iopl(3);
    for (i = 0; i < 20000; i++) {
        unsigned port = 0x3f8 + (unsigned)(random() % 8);
        if (page && page != MAP_FAILED)
            page[random() % (8 << 10)] = (unsigned)random();
        if (port != 0x3f8)
            outb((unsigned char)random(), (unsigned short)port);
    }
    outb(0, 0x3f9);
    outb(3, 0x3fb);
    outb(0, 0x3fc);
    say("hostile", "done");
}

int main(void)
{
    const char *what = getenv("probe");

    mount("proc", "/proc", "proc", 0, "");
    mount("sysfs", "/sys", "sysfs", 0, "");
    mount("dev", "/dev", "devtmpfs", 0, "");
    what = what ? what : "off";
    printf("probe: init mono %ld\n", ms(CLOCK_MONOTONIC));
    if (strcmp(what, "bare"))
        facts();
    say("doing", what);
    if (!strcmp(what, "panic"))
        return 0; /* process 1 ends */
    if (!strcmp(what, "reset"))
        reboot(RB_AUTOBOOT);
    if (!strcmp(what, "count")) /* quietly */
        count();
    if (!strcmp(what, "hostile"))
        hostile();
    reboot(RB_POWER_OFF);
    for (;;)
        pause();
}
