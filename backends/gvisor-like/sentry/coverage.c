/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * coverage - prints the page docs/system-calls.md from the table of system calls: what a program in a cell of the backend
 * gvisor-like gets of Linux. With an argument: compares it with that file, and says which numbers have no row.
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

#include "task.h"
#include "task/numbers.h"

#define LAST 462 /* mseal: the last number of Linux 6.10 */

struct line {
    unsigned number;
    const char *name;
    enum syscall_status status;
    int error;
    const char *note;
};

#define CALL(name_, status_, note_) {SYS_##name_, #name_, status_, 0, note_},
#define REFUSE(name_, error_, note_) {SYS_##name_, #name_, SYSCALL_REFUSED, error_, note_},
static struct line lines[] = {
#include "calls.h"
};
#define N_LINES (sizeof(lines) / sizeof(lines[0]))

static int by_number(const void *a, const void *b)
{
    const struct line *x = a, *y = b;

    return x->number < y->number ? -1 : x->number > y->number;
}

static size_t count(enum syscall_status status)
{
    size_t i, n = 0;

    for (i = 0; i < N_LINES; i++)
        n += lines[i].status == status;
    return n;
}

static const char *status_text(const struct line *line)
{
    switch (line->status) {
    case SYSCALL_FULL:
        return "yes";
    case SYSCALL_PARTIAL:
        return "partly";
    case SYSCALL_REFUSED:
        return strerrorname_np(line->error);
    case SYSCALL_UNKNOWN:
        break;
    }
    return "?";
}

static void print_page(FILE *out)
{
    size_t i;

    fprintf(out,
            "<!-- SPDX-License-Identifier: Apache-2.0 -->\n"
            "<!-- Made by build/backends/gvisor-like/sentry/sentry-coverage from the table of "
            "system calls. -->\n"
            "# System calls of the backend gvisor-like\n\n"
            "%zu are implemented, %zu partly (the note says what is missing), %zu are refused with "
            "the error that stands\n"
            "here. Any other number is `ENOSYS`. What a workload asked for and did not get is "
            "counted, and `cella inspect`\n"
            "shows it.\n\n"
            "| number | system call | there | note |\n|---|---|---|---|\n",
            count(SYSCALL_FULL), count(SYSCALL_PARTIAL), count(SYSCALL_REFUSED));
    for (i = 0; i < N_LINES; i++)
        fprintf(out, "| %u | %s | %s | %s |\n", lines[i].number, lines[i].name,
                status_text(&lines[i]), lines[i].note);
}

/* Numbers of Linux without a row, or with two: each needs a decision. 335 to 423 are not used on this machine. */
static int gaps(void)
{
    unsigned number, bad = 0;
    size_t i = 0;

    for (number = 0; number <= LAST; number++) {
        if (number == 335)
            number = 424;
        for (; i < N_LINES && lines[i].number < number; i++)
            if (i + 1 < N_LINES && lines[i + 1].number == lines[i].number)
                bad += (unsigned)fprintf(stderr, "two rows: %s\n", lines[i].name);
        if (i == N_LINES || lines[i].number != number)
            bad += (unsigned)fprintf(stderr, "no row: %u\n", number);
    }
    return bad ? 1 : 0;
}

/* A file's first `size` bytes, and whether there is more: their number. */
static size_t read_some(const char *path, char *to, size_t size)
{
    FILE *in = fopen(path, "r");
    size_t got = in ? fread(to, 1, size, in) : 0;

    if (in)
        fclose(in);
    return got;
}

static bool is_page(const char *path, const char *page, size_t size)
{
    char *there = malloc(size + 1);
    bool same = there && read_some(path, there, size + 1) == size && memcmp(page, there, size) == 0;

    free(there);
    return same;
}

static int compare(const char *path)
{
    char *page = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&page, &size);
    bool same;

    if (!out)
        return 1;
    print_page(out);
    fclose(out);
    same = is_page(path, page, size);
    free(page);
    if (!same)
        fprintf(stderr,
                "%s is not what the table says: build/backends/gvisor-like/sentry/sentry-coverage "
                "> %s\n",
                path, path);
    return !same;
}

int main(int argc, char **argv)
{
    qsort(lines, N_LINES, sizeof(lines[0]), by_number);
    if (argc > 1)
        return gaps() | compare(argv[1]);
    print_page(stdout);
    return 0;
}
