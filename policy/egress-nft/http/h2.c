/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/* h2 - HTTP/2 is not offered in a handshake yet (tls.c), so no flow ever gets here; if one did, it ends. */
#include <errno.h>

#include "http.h"

int h2_start(struct flow *f)
{
    (void)f;
    return -EPROTONOSUPPORT;
}

long h2_step(struct flow *f)
{
    (void)f;
    return -EPROTONOSUPPORT;
}

int h2_done(const struct flow *f)
{
    (void)f;
    return 1;
}

uint64_t h2_judge(struct flow *f)
{
    (void)f;
    return 0;
}

void h2_free(struct flow *f)
{
    (void)f;
}
