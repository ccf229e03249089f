/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* The compiler checks today's headers against the frozen numbers; running it only says so. */
#include <stddef.h>
#include <stdio.h>

#include <cella/abi.h>
#include <cella/backend.h>
#include <cella/decider.h>
#include <cella/enforcer.h>
#include <cella/host.h>
#include <cella/guest.h>
#include <cella/link.h>
#include <cella/method.h>
#include <cella/plugin.h>
#include <cella/reap.h>
#include <cella/secret.h>
#include <cella/sink.h>

#define SIZE(type, n) _Static_assert(sizeof(struct type) == (n), "size of " #type);
#define OFFSET(type, member, n)                                                                    \
    _Static_assert(offsetof(struct type, member) == (n), "offset of " #type "." #member);
#define VALUE(name, n) _Static_assert((unsigned long long)(name) == (n), "value of " #name);

#include "frozen.h"

int main(void)
{
    puts("the headers agree with the frozen numbers");
    return 0;
}
