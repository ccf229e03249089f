/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* image - images and guest kernels: made, listed, checked, removed. */
#include <fcntl.h>
#include <sys/ioctl.h>
#include <time.h>

#include "cli.h"
#include "image_audit.h"
#include "images.h"
#include "kernel.h"
#include "snapshot.h"

struct place {
    struct config *c;
    const char *dir; /* of the state */
};

/* ---- progress: one line that is written over, on a terminal only ---- */

static void progress(void *ctx, const char *line)
{
    struct winsize w = {0};
    int width;

    (void)ctx;
    if (!isatty(STDERR_FILENO))
        return;
    width = ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 10 ? w.ws_col - 1 : 79;
    fputs("\r\033[K", stderr);
    print_safe(stderr, line, strnlen(line, (size_t)width));
    fflush(stderr);
}

static void progress_end(void)
{
    if (isatty(STDERR_FILENO))
        fputs("\r\033[K", stderr);
}

/* ---- who uses an image ---- */

struct users {
    const char *state_dir, *digest;
    char *who;
};

static int user_of(void *ctx, const struct cell_info *info)
{
    struct users *u = ctx;

    if (!info->alive || strcmp(json_str(info->json, "digest"), u->digest))
        return 0;
    snprintf(u->who, 128, "cell %s", info->name[0] ? info->name : info->id);
    return 1;
}

static int used(void *ctx, const char *digest, char who[128])
{
    struct users u = {.state_dir = ctx, .digest = digest, .who = who};
    struct errbuf eb;

    who[0] = 0;
    store_list(ctx, user_of, &u, errbuf_init(&eb));
    return who[0] || snapshot_uses(ctx, digest, who);
}

/* ---- ls ---- */

static void age_text(int64_t created, char out[32])
{
    time_t t = (time_t)created;
    struct tm tm;

    if (created <= 0 || !gmtime_r(&t, &tm) || !strftime(out, 32, "%Y-%m-%d", &tm))
        snprintf(out, 32, "-");
}

static void cell_text(const char *text, int width)
{
    auto_free char *safe = safe_string(*text ? text : "-", strlen(*text ? text : "-"));

    printf("%-*.*s ", width, width < 60 ? 60 : width, safe);
}

static void print_row(const struct place *p, const json_t *row)
{
    char size[32], unique[32], date[32], who[128] = "";
    int64_t disk = json_int(row, "disk") + json_int(row, "image_bytes");

    human_size((uint64_t)json_int(row, "bytes"), size);
    human_size((uint64_t)disk, unique);
    age_text(json_int(row, "created"), date);
    if (json_is_true(json_object_get(row, "in_use")) &&
        !used((void *)(uintptr_t)p->dir, json_str(row, "digest"), who))
        snprintf(who, sizeof(who), "in use");
    cell_text(json_str(row, "name"), 20);
    printf("%-19.19s %-8s %-8s %-10s ", json_str(row, "digest"), size, unique, date);
    cell_text(who, 1);
    putchar('\n');
}

static int image_ls(const struct options *o, const struct place *p, char **argv)
{
    json_t *rows, *row;
    size_t i;
    int r = image_list(p->dir, &rows, cli_err);

    (void)argv;
    if (r < 0)
        return r;
    if (o->json) {
        json_array_foreach(rows, i, row)
        {
            char who[128] = "";
            if (used((void *)(uintptr_t)p->dir, json_str(row, "digest"), who))
                json_object_set_new(row, "used_by", json_string(who));
        }
        r = print_json(rows);
    } else {
        printf("%-20s %-19s %-8s %-8s %-10s %s\n", "NAME", "DIGEST", "SIZE", "UNIQUE", "MADE",
               "USED BY");
        json_array_foreach(rows, i, row) print_row(p, row);
    }
    json_decref(rows);
    return r;
}

/* ---- build, import, rm, verify, gc ---- */

static int say_made(const struct options *o, const char *name, const char *digest)
{
    json_t *j;
    int r;

    if (!o->json) {
        printf("%s %s\n", name, digest);
        return 0;
    }
    j = json_pack("{s:s, s:s}", "name", name, "digest", digest);
    r = print_json(j);
    json_decref(j);
    return r;
}

static int build(const struct options *o, const struct place *p, const char *name, char *digest)
{
    struct image_build b = {.name = name,
                            .suite = o->suite ? o->suite : "bookworm",
                            .mirror = o->mirror,
                            .packages = o->packages ? o->packages : "python3,ca-certificates",
                            .uid_count = CELLA_UID_COUNT,
                            .line = progress};
    uint32_t slot;
    int fd, r = store_init(p->dir, cli_err);

    if (r == 0)
        r = store_slot_take(p->dir, "image-build", &slot, &fd, cli_err); /* its ids are ours now */
    if (r < 0)
        return r;
    b.uid_base = CELLA_UID_BASE + slot * CELLA_UID_COUNT;
    r = image_build(p->dir, &b, digest, cli_err);
    progress_end();
    if (ftruncate(fd, 0) < 0 && r == 0)
        r = fail(cli_err, -errno, "slot %u: %s", slot, strerror(errno));
    close(fd);
    return r;
}

static int image_build_(const struct options *o, const struct place *p, char **argv)
{
    struct asked a;
    char digest[80];
    int r = asked_begin(p->c, "build", argv[0], o->packages, &a);

    if (r < 0)
        return r;
    r = build(o, p, argv[0], digest);
    if (r < 0)
        fail_wrap(cli_err, "image build %s", argv[0]);
    else
        r = asked_record(&a, "image.built", argv[0], digest, NULL);
    r = asked_end(&a, r);
    return r < 0 ? r : say_made(o, argv[0], digest);
}

static int image_import_(const struct options *o, const struct place *p, char **argv)
{
    struct asked a;
    char digest[80];
    int r = asked_begin(p->c, "import", argv[0], argv[1], &a);

    if (r < 0)
        return r;
    r = image_import(p->dir, argv[0], argv[1], digest, cli_err);
    if (r == 0)
        r = asked_record(&a, "image.imported", argv[0], digest, argv[1]);
    r = asked_end(&a, r);
    return r < 0 ? r : say_made(o, argv[0], digest);
}

/* The member `want` of the row that has `value` in `key`; malloc, NULL: there is none. */
static char *row_find(json_t *own_rows, const char *key, const char *value, const char *want)
{
    json_t *row;
    char *found = NULL;
    size_t i;

    json_array_foreach(own_rows, i, row) if (!found && !strcmp(json_str(row, key), value)) found =
        strdup(json_str(row, want));
    json_decref(own_rows);
    return found;
}

static int image_rm(const struct options *o, const struct place *p, char **argv)
{
    const struct image_refs refs = {used, (void *)(uintptr_t)p->dir};
    auto_free char *digest = NULL;
    struct asked a;
    json_t *rows;
    int r = asked_begin(p->c, "rm", argv[0], NULL, &a);

    (void)o;
    if (r < 0)
        return r;
    if (image_list(p->dir, &rows, cli_err) == 0)
        digest =
            row_find(rows, strncmp(argv[0], "sha256:", 7) ? "name" : "digest", argv[0], "digest");
    r = image_remove(p->dir, argv[0], &refs, cli_err);
    if (r == 0)
        r = asked_record(&a, "image.removed", argv[0], digest, NULL);
    return asked_end(&a, r);
}

static int image_verify_(const struct options *o, const struct place *p, char **argv)
{
    int r = image_verify(p->dir, argv[0], cli_err);

    if (r < 0)
        return r;
    return o->json ? say_made(o, argv[0], "ok") : printf("%s: as recorded\n", argv[0]) < 0;
}

static int image_disk_(const struct options *o, const struct place *p, char **argv)
{
    auto_free char *path = NULL;
    int r = image_disk(p->dir, argv[0], &path, cli_err);

    (void)o;
    return r < 0 ? r : puts(path) < 0;
}

struct collecting {
    struct asked asked;
    int check, r;
};

/* Before it is removed. "image DIGEST" */
static void gc_found(void *ctx, const char *what)
{
    struct collecting *g = ctx;

    puts(what);
    if (!g->check &&
        asked_record(&g->asked, "image.removed", NULL, strchr(what, ' ') + 1, NULL) < 0)
        g->r = cli_err->code;
}

static int image_gc(const struct options *o, const struct place *p, char **argv)
{
    const struct image_refs refs = {used, (void *)(uintptr_t)p->dir};
    struct collecting g = {.check = o->check};
    int r = o->check ? 0 : asked_begin(p->c, "gc", NULL, NULL, &g.asked);

    (void)argv;
    if (r == 0)
        r = image_collect(p->dir, o->check, &refs, gc_found, &g, cli_err);
    if (g.asked.chain)
        r = asked_end(&g.asked, r < 0 ? r : g.r);
    return r < 0 ? r : o->check && r > 0;
}

/* ---- kernels ---- */

static int kernel_ls(const struct options *o, const struct place *p, char **argv)
{
    json_t *rows, *row;
    size_t i;
    int r = kernel_list(p->dir, &rows, cli_err);

    (void)argv;
    if (r < 0)
        return r;
    if (o->json) {
        r = print_json(rows);
    } else {
        printf("%-34s %-8s %-8s %-10s %s\n", "VERSION", "SIZE", "DEFAULT", "MADE", "FROM");
        json_array_foreach(rows, i, row)
        {
            char size[32], date[32];
            human_size((uint64_t)json_int(row, "bytes"), size);
            age_text(json_int(row, "created"), date);
            cell_text(json_str(row, "version"), 34);
            printf("%-8s %-8s %-10s ", size,
                   json_is_true(json_object_get(row, "default")) ? "yes" : "no", date);
            cell_text(json_str(row, "source"), 1);
            putchar('\n');
        }
    }
    json_decref(rows);
    return r;
}

static char *kernel_digest(const struct place *p, const char *version)
{
    json_t *rows, *row;
    char *digest = NULL;
    size_t i;

    if (kernel_list(p->dir, &rows, cli_err) < 0)
        return NULL;
    json_array_foreach(rows, i,
                       row) if (!digest && !strcmp(json_str(row, "version"), version) &&
                                asprintf(&digest, "sha256:%s",
                                         json_str(json_object_get(row, "vmlinuz"), "sha256")) < 0)
        digest = NULL;
    json_decref(rows);
    return digest;
}

static int kernel_fetch_(const struct options *o, const struct place *p, char **argv)
{
    const char *source = o->from ? o->from : o->file ? o->file : o->package;
    auto_free char *digest = NULL;
    struct asked a;
    char version[128];
    int r;

    (void)argv;
    if (!!o->from + !!o->file + !!o->package > 1)
        return fail(cli_err, -EINVAL, "image kernel fetch: one of --package, --from and --file");
    if (o->aside && !o->file)
        return fail(cli_err, -EINVAL, "image kernel fetch: --aside goes with --file");
    r = asked_begin(p->c, "kernel fetch", NULL, source ? source : KERNEL_META, &a);
    if (r < 0)
        return r;
    r = o->from   ? kernel_from_deb(p->dir, o->from, version, cli_err)
        : o->file ? kernel_from_file(p->dir, o->file, o->aside, version, cli_err)
                  : kernel_fetch(p->dir, o->package, progress, NULL, version, cli_err);
    progress_end();
    digest = r == 0 ? kernel_digest(p, version) : NULL;
    if (r == 0)
        r = asked_record(&a, "kernel.fetched", version, digest, source ? source : KERNEL_META);
    r = asked_end(&a, r);
    if (r == 0)
        puts(version);
    return r;
}

static int kernel_use_(const struct options *o, const struct place *p, char **argv)
{
    auto_free char *digest = NULL;
    struct asked a;
    int r = asked_begin(p->c, "kernel use", argv[0], NULL, &a);

    (void)o;
    if (r < 0)
        return r;
    r = kernel_use(p->dir, argv[0], cli_err);
    digest = r == 0 ? kernel_digest(p, argv[0]) : NULL;
    if (r == 0)
        r = asked_record(&a, "kernel.default", argv[0], digest, NULL);
    return asked_end(&a, r);
}

static int kernel_rm(const struct options *o, const struct place *p, char **argv)
{
    auto_free char *digest = NULL;
    struct asked a;
    int r = asked_begin(p->c, "kernel rm", argv[0], NULL, &a);

    (void)o;
    if (r < 0)
        return r;
    digest = kernel_digest(p, argv[0]);
    r = kernel_remove(p->dir, argv[0], cli_err);
    if (r == 0)
        r = asked_record(&a, "kernel.removed", argv[0], digest, NULL);
    return asked_end(&a, r);
}

/* ---- the table ---- */

static const struct {
    const char *words[2];
    int operands;
    int (*run)(const struct options *o, const struct place *p, char **argv);
    const char *usage;
} subs[] = {
    {{"ls"}, 0, image_ls, "cella image ls"},
    {{"build"},
     1,
     image_build_,
     "cella image build NAME [--packages A,B] [--suite S] [--mirror URL]"},
    {{"import"}, 2, image_import_, "cella image import NAME tar:FILE|dir:PATH"},
    {{"rm"}, 1, image_rm, "cella image rm NAME|DIGEST"},
    {{"verify"}, 1, image_verify_, "cella image verify NAME|DIGEST"},
    {{"disk"}, 1, image_disk_, "cella image disk IMAGE"},
    {{"gc"}, 0, image_gc, "cella image gc [--check]"},
    {{"kernel", "ls"}, 0, kernel_ls, "cella image kernel ls"},
    {{"kernel", "fetch"},
     0,
     kernel_fetch_,
     "cella image kernel fetch [--package NAME | --from FILE.deb | --file VMLINUZ [--aside]]"},
    {{"kernel", "use"}, 1, kernel_use_, "cella image kernel use VERSION"},
    {{"kernel", "rm"}, 1, kernel_rm, "cella image kernel rm VERSION"},
};

static int sub_go(const struct options *o, size_t i, int argc, char **argv)
{
    struct place p;
    int r;

    if (argc != subs[i].operands)
        return fail(cli_err, -EINVAL, "expected: %s", subs[i].usage);
    r = cli_config(o, &p.c);
    if (r < 0)
        return r;
    p.dir = p.c->state_dir;
    r = subs[i].run(o, &p, argv);
    config_free(p.c);
    return r;
}

int verb_image(const struct options *o, int argc, char **argv)
{
    size_t i;

    for (i = 0; i < ARRAY_LEN(subs); i++) {
        int n = subs[i].words[1] ? 2 : 1;
        if (argc >= n && !strcmp(argv[0], subs[i].words[0]) &&
            (n == 1 || !strcmp(argv[1], subs[i].words[1])))
            return sub_go(o, i, argc - n, argv + n);
    }
    return fail(
        cli_err, -EINVAL,
        "image: \"%s%s%s\" is not known; expected: ls, build, import, rm, verify, disk, gc, "
        "kernel ls, kernel fetch, kernel use or kernel rm",
        argv[0], argc > 1 && !strcmp(argv[0], "kernel") ? " " : "",
        argc > 1 && !strcmp(argv[0], "kernel") ? argv[1] : "");
}
