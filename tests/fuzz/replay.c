/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * Runs a fuzz target over the files of its corpus directory, so that every input ever found stays a
 * regression test in builds without libFuzzer. A missing directory counts as an empty corpus.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay_file(const char *path)
{
    FILE *f = fopen(path, "rbe");
    uint8_t *data;
    size_t n;

    if (!f)
        return -1;
    data = malloc(1 << 20);
    if (!data) {
        fclose(f);
        return -1;
    }
    n = fread(data, 1, 1 << 20, f);
    fclose(f);
    LLVMFuzzerTestOneInput(data, n);
    free(data);
    return 0;
}

int main(int argc, char **argv)
{
    DIR *d;
    struct dirent *e;
    char path[4096];
    unsigned count = 0;

    LLVMFuzzerTestOneInput((const uint8_t *)"",
                           0); /* before the directory is open: a target may want low descriptors */
    d = argc > 1 ? opendir(argv[1]) : NULL;
    while (d && (e = readdir(d))) {
        if (e->d_name[0] == '.')
            continue;
        snprintf(path, sizeof(path), "%s/%s", argv[1], e->d_name);
        if (replay_file(path) < 0) {
            fprintf(stderr, "replay: cannot read %s\n", path);
            return 1;
        }
        count++;
    }
    if (d)
        closedir(d);
    printf("replayed %u inputs\n", count);
    return 0;
}
