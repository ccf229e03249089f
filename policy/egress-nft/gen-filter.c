/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * gen-filter - writes a seccomp program as a C array, from the calls that calls.c of the gate or of
 * the HTTP engine allows; anything else kills the process. Runs at build time only.
 */
#include <stdio.h>
#include <stdlib.h>

#include <linux/filter.h>

#include "gen-filter.h"

/* The program as text; temporary file because the exporter writes to a descriptor. */
static int export(scmp_filter_ctx c, FILE *tmp, FILE *out)
{
    struct sock_filter f[1024];
    size_t n, i;

    if (filter_calls(c) < 0 || seccomp_export_bpf(c, fileno(tmp)) < 0)
        return -1;
    rewind(tmp);
    n = fread(f, sizeof(f[0]), sizeof(f) / sizeof(f[0]), tmp);
    fputs("/* SPDX-License-Identifier: GPL-2.0-or-later */\n"
          "static const struct sock_filter filter_program[] = {\n",
          out);
    for (i = 0; i < n; i++)
        fprintf(out, "    {0x%04x, %u, %u, 0x%08x},\n", f[i].code, f[i].jt, f[i].jf, f[i].k);
    fputs("};\n", out);
    return n ? 0 : -1;
}

int main(int argc, char **argv)
{
    scmp_filter_ctx c = seccomp_init(SCMP_ACT_KILL_PROCESS);
    FILE *tmp = tmpfile();
    FILE *out = argc == 2 ? fopen(argv[1], "we") : NULL;
    int r = c && tmp && out ? export(c, tmp, out) : -1;

    if (c)
        seccomp_release(c);
    if (tmp)
        fclose(tmp);
    if (out && fclose(out) != 0)
        r = -1;
    if (r < 0)
        fputs("gen-filter: cannot compute the filter\n", stderr);
    return r < 0;
}
