/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* refuse - the last words of a program whose thread asked for a system call that its filter does not have. */
#ifndef CELLA_REFUSE_H
#define CELLA_REFUSE_H

/* Before the first filter: from now on SIGSYS says `text` and the call's number on fd, and ends the program with status.
   text: static, at most REFUSE_TEXT_MAX bytes. 0 or -errno. */
#define REFUSE_TEXT_MAX 64
int refuse_by(const char *text, int fd, int status);

#endif
