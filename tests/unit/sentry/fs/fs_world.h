/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * fs_world.h - the same system calls on the host's kernel and on ours, over the same tree, and what they say compared.
 * The host's side has the tree on a tmpfs it is chrooted to; ours has it as the image, behind a gofer in the test.
 * Guest addresses are those of the test's own process.
 */
#ifndef TEST_FS_WORLD_H
#define TEST_FS_WORLD_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <sys/syscall.h>

#include <cmocka.h>

typedef void (*scenario)(void);

/* populate makes the tree in the current directory, by calls of the host; NULL: ours has no image, only a tmpfs. */
void both(scenario populate, scenario run);
void ours_alone(scenario populate, scenario run);
/* Does it differ? Prints where. */
bool differs(scenario populate, scenario run);

extern bool ours;
extern uint64_t disk_limit;      /* of our root; 0: none */
extern bool readonly_root;       /* ours */
extern uint64_t gofer_questions; /* asked so far */
int64_t call_(long number, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f);
#define CALL6(n, a, b, c, d, e, f, ...)                                                            \
    call_(n, (uint64_t)(a), (uint64_t)(b), (uint64_t)(c), (uint64_t)(d), (uint64_t)(e),            \
          (uint64_t)(f))
#define call(...) CALL6(__VA_ARGS__, 0, 0, 0, 0, 0, 0, 0)
void note(const char *format, ...) __attribute__((format(printf, 1, 2)));
void become(uint32_t uid); /* effective ids of the task, as seteuid() has them; 0: back */
void limit_files(uint64_t n), limit_size(uint64_t bytes);
void dump_tree(void); /* all that is below the root */
uint64_t hash_bytes(const void *bytes, size_t size);

#endif
