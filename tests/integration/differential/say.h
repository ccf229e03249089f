/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * say.h - for programs that are run natively and in a cell, and must print the same.
 * Each line is a name and a value; nothing that is printed may depend on numbers of processes, addresses or the time.
 */
#ifndef SAY_H
#define SAY_H

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* What a call gave: the result, or the name of the error. */
static inline long say(const char *name, long result)
{
    int error = errno;

    if (result == -1)
        printf("%s: %s\n", name, strerror(error));
    else
        printf("%s: %ld\n", name, result);
    fflush(stdout);
    return result;
}

/* Whether it went well. */
static inline long say_ok(const char *name, long result)
{
    int error = errno;

    printf("%s: %s\n", name, result == -1 ? strerror(error) : "ok");
    fflush(stdout);
    return result;
}

static inline void say_value(const char *name, long value)
{
    printf("%s = %ld\n", name, value);
    fflush(stdout);
}

#define BAD ((void *)8) /* no address of a program's */

#endif
