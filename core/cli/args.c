/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * args - command lines by table. What an option means is the same in every verb that has it;
 * letters are looked up among the verb's own options only. Invariants: values point into argv;
 * nothing is copied but the arrays of lists. Threads: none.
 */
#include "args.h"

#define AT(member) offsetof(struct options, member)

/* At most 16 long: the widest column of --help. */
static const struct opt table[] = {
    {"backend", 0, OPT_STR, "NAME", "isolation backend; default: the class's choice", AT(backend)},
    {"class", 0, OPT_STR, "NAME", "class of the config; default: default", AT(class)},
    {"image", 0, OPT_STR, "IMAGE", "host, dir:PATH, tar:FILE or a name of cella image ls",
     AT(image)},
    {"kernel", 0, OPT_STR, "VERSION", "kernel of a machine, of cella image kernel ls", AT(kernel)},
    {"policy", 0, OPT_STR, "POLICY", "egress: none, deny, a name of the config, or a FILE",
     AT(policy)},
    {"memory", 'm', OPT_SIZE, "SIZE", "memory limit, such as 64M", AT(memory)},
    {"cpus", 0, OPT_CPUS, "N", "CPU limit, such as 1 or 0.5", AT(cpu_millis)},
    {"pids", 0, OPT_COUNT, "N", "limit of processes and threads", AT(pids)},
    {"disk", 0, OPT_SIZE, "SIZE", "size of the writable layer", AT(disk)},
    {"io-read", 0, OPT_SIZE, "SIZE", "most bytes a second that are read from disk", AT(io_read)},
    {"io-write", 0, OPT_SIZE, "SIZE", "most bytes a second that are written to it", AT(io_write)},
    {"timeout", 0, OPT_DURATION, "TIME", "wall-clock limit, such as 10s or 5m", AT(timeout)},
    {"idle", 0, OPT_DURATION, "TIME", "end the cell when nothing happened for that long", AT(idle)},
    {"env", 'e', OPT_LIST, "NAME=VALUE", "environment variable; NAME alone takes it from here",
     AT(env)},
    {"mount", 'v', OPT_LIST, "SRC:DST[:rw]", "show a host path in the cell, read-only unless rw",
     AT(mounts)},
    {"user", 'u', OPT_STR, "USER[:GROUP]", "user of the command in the cell", AT(user)},
    {"workdir", 'w', OPT_STR, "DIR", "directory of the command in the cell", AT(workdir)},
    {"name", 0, OPT_STR, "NAME", "name of the cell", AT(name)},
    {"hostname", 0, OPT_STR, "NAME", "host name in the cell", AT(hostname)},
    {"read-only", 0, OPT_FLAG, NULL, "no writable layer", AT(readonly)},
    {"interactive", 'i', OPT_FLAG, NULL, "connect standard input", AT(interactive)},
    {"tty", 't', OPT_FLAG, NULL, "give the command a terminal", AT(tty)},
    {"rm", 0, OPT_FLAG, NULL, "remove the cell at the end (always so without --detach)", AT(rm)},
    {"detach", 'd', OPT_FLAG, NULL, "leave the command running and print the cell's name",
     AT(detach)},
    {"timings", 0, OPT_FLAG, NULL, "print on stderr how long each stage took", AT(timings)},
    {"json", 0, OPT_FLAG, NULL, "machine-readable output", AT(json)},
    {"config", 0, OPT_STR, "FILE", "config file; default: $CELLA_CONFIG, /etc/cella/cella.json",
     AT(config)},
    {"all", 'a', OPT_FLAG, NULL, "also stopped and dead cells", AT(all)},
    {"force", 'f', OPT_FLAG, NULL, "also when it is running", AT(force)},
    {"follow", 'f', OPT_FLAG, NULL, "wait for more", AT(follow)},
    {"stream", 's', OPT_FLAG, NULL, "once a second until interrupted", AT(stream)},
    {"check", 0, OPT_FLAG, NULL, "only report; status 1 when something is left", AT(check)},
    {"kill", 0, OPT_FLAG, NULL, "do not ask first", AT(kill)},
    {"time", 't', OPT_DURATION, "TIME", "how long to wait before killing; default: 10s", AT(grace)},
    {"lines", 'n', OPT_COUNT, "N", "how many lines; default: 20", AT(lines)},
    {"kind", 0, OPT_STR, "KIND", "only events of this kind, or of kinds below it", AT(kind)},
    {"cell", 0, OPT_STR, "CELL", "only the chain of this cell", AT(cell)},
    {"if-match", 0, OPT_STR, "REV", "only when this revision is in force", AT(if_match)},
    {"packages", 0, OPT_STR, "A,B,...", "Debian packages of the image; default: python3",
     AT(packages)},
    {"suite", 0, OPT_STR, "NAME", "Debian's release; default: bookworm", AT(suite)},
    {"mirror", 0, OPT_STR, "URL", "where its packages are; default: Debian's own", AT(mirror)},
    {"package", 0, OPT_STR, "NAME", "kernel package; default: linux-image-6.12-amd64", AT(package)},
    {"from", 0, OPT_STR, "FILE.deb", "kernel package that is here", AT(from)},
    {"file", 0, OPT_STR, "VMLINUZ", "kernel with everything built in", AT(file)},
    {"aside", 0, OPT_FLAG, NULL, "with --file: do not make it the default", AT(aside)},
    {"count", 'n', OPT_COUNT, "N", "how many children; default: 1", AT(count)},
    {"spares", 0, OPT_STR, "K", "machines that wait for the next fork; without -n, nothing else",
     AT(spares)},
    {"help", 'h', OPT_FLAG, NULL, "this text", AT(help)},
};

static const struct opt *table_find(const char *name)
{
    size_t i;

    for (i = 0; i < ARRAY_LEN(table); i++)
        if (!strcmp(table[i].name, name))
            return &table[i];
    return NULL;
}

const struct opt *opt_at(const struct verb *v, size_t i)
{
    size_t n;

    for (n = 0; v->opts && v->opts[n]; n++)
        if (n == i)
            return table_find(v->opts[n]);
    return i == n ? table_find("help") : NULL;
}

const struct opt *opt_find(const struct verb *v, const char *name, size_t len)
{
    const struct opt *o;
    size_t i;

    for (i = 0; (o = opt_at(v, i)); i++)
        if (strlen(o->name) == len && !strncmp(o->name, name, len))
            return o;
    return NULL;
}

static const struct opt *opt_letter(const struct verb *v, char letter)
{
    const struct opt *o;
    size_t i;

    for (i = 0; (o = opt_at(v, i)); i++)
        if (o->letter == letter)
            return o;
    return NULL;
}

/* Edits between two words, at most 32 letters each; 99 above. */
static unsigned distance(const char *a, size_t a_len, const char *b)
{
    size_t b_len = strlen(b), i, j;
    unsigned row[33];

    if (a_len > 32 || b_len > 32)
        return 99;
    for (j = 0; j <= b_len; j++)
        row[j] = (unsigned)j;
    for (i = 1; i <= a_len; i++) {
        unsigned diagonal = row[0];
        row[0] = (unsigned)i;
        for (j = 1; j <= b_len; j++) {
            unsigned change = diagonal + (a[i - 1] != b[j - 1]), least = row[j] + 1;
            diagonal = row[j];
            least = row[j - 1] + 1 < least ? row[j - 1] + 1 : least;
            row[j] = change < least ? change : least;
        }
    }
    return row[b_len];
}

const char *nearest(const char *word, size_t len, const char *(*at)(const void *ctx, size_t i),
                    const void *ctx)
{
    const char *best = NULL, *each;
    unsigned least = len > 4 ? 3 : 2, d;
    size_t i;

    for (i = 0; (each = at(ctx, i)); i++) {
        d = distance(word, len, each);
        if (d < least) {
            least = d;
            best = each;
        }
    }
    return best;
}

static const char *name_at(const void *ctx, size_t i)
{
    const struct opt *o = opt_at(ctx, i);

    return o ? o->name : NULL;
}

static int unknown_long(const struct verb *v, const char *name, size_t len, struct cella_error *err)
{
    const char *near = nearest(name, len, name_at, v);

    if (near)
        return fail(err, -EINVAL, "unknown flag --%.*s (did you mean --%s?)", (int)len, name, near);
    return fail(err, -EINVAL, "unknown flag --%.*s; \"cella %s --help\" lists the flags", (int)len,
                name, v->name);
}

/* "1", "0.5", "1.25" to thousandths. */
static int parse_cpus(const char *s, uint64_t *ret)
{
    uint64_t v = 0, scale = 100;

    if (*s < '0' || *s > '9')
        return -EINVAL;
    for (; *s >= '0' && *s <= '9'; s++)
        if ((v = v * 10 + (uint64_t)(*s - '0')) > 100000)
            return -ERANGE;
    v *= 1000;
    if (*s == '.')
        for (s++; *s >= '0' && *s <= '9'; s++, scale /= 10)
            v += (uint64_t)(*s - '0') * scale;
    *ret = v;
    return *s || !v ? -EINVAL : 0;
}

static int list_add(struct strlist *l, const char *value)
{
    const char **v = realloc(l->v, (l->n + 1) * sizeof(*v));

    if (!v)
        return -ENOMEM;
    l->v = v;
    l->v[l->n++] = value;
    return 0;
}

static int opt_set(const struct opt *o, const char *value, struct options *ret,
                   struct cella_error *err)
{
    void *at = (char *)ret + o->offset;
    const char *expected = NULL;
    int64_t count;
    int r = 0;

    switch (o->kind) {
    case OPT_FLAG:
        *(int *)at = 1;
        return 0;
    case OPT_STR:
        *(const char **)at = value;
        return 0;
    case OPT_LIST:
        r = list_add(at, value);
        expected = "less";
        break;
    case OPT_SIZE:
        r = parse_size(value, at);
        expected = "a size such as 64M";
        break;
    case OPT_DURATION:
        r = parse_duration(value, at);
        expected = "a time such as 500ms, 10s or 5m";
        break;
    case OPT_CPUS:
        r = parse_cpus(value, at);
        expected = "a number of CPUs such as 1 or 0.5";
        break;
    case OPT_COUNT:
        r = parse_i64(value, &count);
        if (r == 0 && count <= 0)
            r = -ERANGE;
        if (r == 0)
            *(uint64_t *)at = (uint64_t)count;
        expected = "a whole number above 0";
        break;
    }
    if (r == 0 && (o->kind == OPT_SIZE || o->kind == OPT_DURATION) && *(uint64_t *)at == 0)
        r = -ERANGE;
    return r < 0 ? fail(err, -EINVAL, "--%s \"%s\": expected %s", o->name, value, expected) : 0;
}

struct parse {
    const struct verb *v;
    int argc, i, n;
    char **argv;
    struct options *ret;
};

static int parse_long(struct parse *p, struct cella_error *err)
{
    const char *name = p->argv[p->i] + 2, *eq = strchr(name, '=');
    size_t len = eq ? (size_t)(eq - name) : strlen(name);
    const struct opt *o = opt_find(p->v, name, len);

    if (!o)
        return unknown_long(p->v, name, len, err);
    if (o->kind == OPT_FLAG && eq)
        return fail(err, -EINVAL, "--%s takes no value", o->name);
    if (o->kind == OPT_FLAG)
        return opt_set(o, NULL, p->ret, err);
    if (!eq && p->i + 1 >= p->argc)
        return fail(err, -EINVAL, "--%s needs a value (%s)", o->name, o->arg);
    return opt_set(o, eq ? eq + 1 : p->argv[++p->i], p->ret, err);
}

static int parse_short(struct parse *p, struct cella_error *err)
{
    const char *s;
    int r = 0;

    for (s = p->argv[p->i] + 1; *s && r == 0; s++) {
        const struct opt *o = opt_letter(p->v, *s);
        if (!o)
            return fail(err, -EINVAL, "unknown flag -%c; \"cella %s --help\" lists the flags",
                        *s >= 0x20 && *s < 0x7f ? *s : '?', p->v->name);
        if (o->kind == OPT_FLAG) {
            r = opt_set(o, NULL, p->ret, err);
            continue;
        }
        if (s[1])
            return opt_set(o, s + 1, p->ret, err);
        if (p->i + 1 >= p->argc)
            return fail(err, -EINVAL, "-%c needs a value (%s)", *s, o->arg);
        return opt_set(o, p->argv[++p->i], p->ret, err);
    }
    return r;
}

static int check_count(const struct parse *p, struct cella_error *err)
{
    if (p->ret->help)
        return 0;
    if (p->n < p->v->min)
        return fail(err, -EINVAL, "expected: cella %s %s", p->v->name, p->v->operands);
    if (p->v->max >= 0 && p->n > p->v->max)
        return fail(err, -EINVAL, "\"%s\" is one argument too many; expected: cella %s %s",
                    p->argv[1 + p->v->max], p->v->name, p->v->operands);
    return 0;
}

int args_parse(const struct verb *v, int argc, char **argv, struct options *ret, int *ret_n,
               char ***ret_operands, struct cella_error *err)
{
    struct parse p = {.v = v, .argc = argc, .i = 1, .argv = argv, .ret = ret};
    int ended = 0, r;

    for (; p.i < argc; p.i++) {
        char *a = argv[p.i];
        if (ended || a[0] != '-' || !a[1]) {
            argv[1 + p.n++] = a;
            /* what follows the words before a command is the command's */
            if (v->command && p.n >= v->command)
                ended = 1;
            continue;
        }
        if (!strcmp(a, "--")) {
            ended = 1;
            continue;
        }
        r = a[1] == '-' ? parse_long(&p, err) : parse_short(&p, err);
        if (r < 0)
            return r;
    }
    *ret_n = p.n;
    *ret_operands = argv + 1;
    return check_count(&p, err);
}

void options_fini(struct options *o)
{
    free(o->env.v);
    free(o->mounts.v);
    o->env = o->mounts = (struct strlist){NULL, 0};
}

void verb_help(const struct verb *v, FILE *to)
{
    const struct opt *o;
    char left[64];
    size_t i;

    fprintf(to, "cella %s [OPTIONS]%s%s\n\n%s.\n\n", v->name, *v->operands ? " " : "", v->operands,
            v->summary);
    for (i = 0; (o = opt_at(v, i)); i++) {
        snprintf(left, sizeof(left), "  %c%c%s--%s%s%s", o->letter ? '-' : ' ',
                 o->letter ? o->letter : ' ', o->letter ? ", " : "  ", o->name, o->arg ? " " : "",
                 o->arg ? o->arg : "");
        fprintf(to, "%-30s %s\n", left, o->help);
    }
}

void verb_options(const struct verb *v, FILE *to)
{
    const struct opt *o;
    size_t i;

    for (i = 0; (o = opt_at(v, i)); i++)
        fprintf(to, "--%s\t%c%s\t%s\t%s\n", o->name, '-',
                o->letter ? (const char[]){o->letter, 0} : "", o->arg ? o->arg : "-", o->help);
}
