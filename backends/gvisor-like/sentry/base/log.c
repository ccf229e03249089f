/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * log - words to the operator, on the descriptor that the backend reads (2). A guest can cause them, so they are
 * bounded: a burst, then some in a second; what was left out is counted and said.
 * Threads: any.
 */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernel.h"

#define LINES_PER_SECOND 20
#define LINE_MAX_BYTES 512

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t second;
static unsigned lines, left_out;

/* @seccomp sentry: write */
static void say(const char *text, int length)
{
    ssize_t r;

    if (length > LINE_MAX_BYTES - 1)
        length = LINE_MAX_BYTES - 1;
    do
        r = write(STDERR_FILENO, text, (size_t)length);
    while (r < 0 && errno == EINTR);
}

static bool may_speak(void)
{
    uint64_t now = clock_monotonic() / 1000000000;
    char text[80];

    if (now != second) {
        if (left_out)
            say(text, snprintf(text, sizeof(text), "sentry: %u lines left out\n", left_out));
        second = now;
        lines = left_out = 0;
    }
    if (lines++ < LINES_PER_SECOND)
        return true;
    left_out++;
    return false;
}

__attribute__((format(printf, 2, 0))) static int format_line(char *text, const char *format,
                                                             va_list arguments)
{
    int length = snprintf(text, LINE_MAX_BYTES, "sentry: ");
    int more = vsnprintf(text + length, (size_t)(LINE_MAX_BYTES - length - 1), format, arguments);

    length += more < 0 ? 0 : more;
    if (length > LINE_MAX_BYTES - 2)
        length = LINE_MAX_BYTES - 2;
    text[length++] = '\n';
    return length;
}

void klog(const char *format, ...)
{
    char text[LINE_MAX_BYTES];
    va_list arguments;
    int length;

    va_start(arguments, format);
    length = format_line(text, format, arguments);
    va_end(arguments);
    pthread_mutex_lock(&lock);
    if (may_speak())
        say(text, length);
    pthread_mutex_unlock(&lock);
}

/* @seccomp sentry: gettid getpid tgkill rt_sigprocmask rt_sigaction */
void kpanic(const char *format, ...)
{
    char text[LINE_MAX_BYTES];
    va_list arguments;
    int length;

    va_start(arguments, format);
    length = format_line(text, format, arguments);
    va_end(arguments);
    say(text, length);
    abort();
}
