/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* policy - check a document; show, replace and move the one that is in force in a cell. */
#include <fcntl.h>
#include <limits.h>

#include "cli.h"
#include "policy_words.h"

/* The whole file, or standard input for "-". */
static int read_text(const char *file, char **ret, size_t *ret_len)
{
    auto_buf struct buf b = BUF_INIT;
    char part[4096];
    ssize_t n;
    int r;

    if (strcmp(file, "-")) {
        r = read_file_at(AT_FDCWD, file, DOCUMENT_BYTES_MAX, ret, ret_len);
        return r == -EFBIG ? fail(cli_err, r, "%s: longer than %u bytes; no policy is", file,
                                  DOCUMENT_BYTES_MAX)
               : r < 0     ? fail(cli_err, r, "%s: %s", file, strerror(-r))
                           : 0;
    }
    while ((n = read(STDIN_FILENO, part, sizeof(part))) > 0 && b.len <= DOCUMENT_BYTES_MAX)
        buf_add(&b, part, (size_t)n);
    if (n < 0)
        return fail(cli_err, -errno, "standard input: %s", strerror(errno));
    *ret_len = b.len;
    buf_add(&b, "", 1);
    if (b.oom)
        return fail(cli_err, -ENOMEM, "out of memory");
    *ret = steal_ptr(&b.ptr);
    return 0;
}

static int check_failed(const struct options *o)
{
    json_t *j;

    if (!o->json) {
        cli_say("%s", cli_errbuf.text);
        return 1;
    }
    j = json_pack("{s:b, s:s}", "ok", 0, "error", cli_errbuf.text);
    print_json(j);
    json_decref(j);
    return 1;
}

static int policy_check(const struct options *o, const char *file)
{
    const char *name = strcmp(file, "-") ? file : "<stdin>";
    auto_free char *text = NULL;
    struct document d;
    size_t len = 0, i;
    int r = read_text(file, &text, &len);

    if (r < 0)
        return r;
    if (document_parse(name, text, len, &d, cli_err) < 0)
        return check_failed(o);
    for (i = 0; r == 0 && i < d.n_phases; i++) { /* what only shows when it is put together */
        struct policy_table t = {0};
        r = document_compile(&d, i, NULL, 1, &t, cli_err);
        policy_table_fini(&t);
    }
    if (r < 0) {
        fail_wrap(cli_err, "%s", name);
        r = check_failed(o);
    } else {
        r = o->json ? policy_json(name, &d) : policy_words(name, &d);
    }
    document_fini(&d);
    return r;
}

/* ---- in a cell ---- */

static int revision_wanted(const struct options *o, json_t *args)
{
    int64_t revision;

    if (!o->if_match)
        return 0;
    if (parse_i64(o->if_match, &revision) < 0 || revision < 0)
        return fail(cli_err, -EINVAL,
                    "--if-match %s: expected a revision number, as \"cella policy show\" prints it",
                    o->if_match);
    return json_object_set_new(args, "if_match", json_integer(revision));
}

/* A word names a policy; what has a '/' or ends in .json, or is there, is a file. */
static int document_wanted(const char *what, json_t *args)
{
    char real[PATH_MAX];
    size_t n = strlen(what);

    if (!strchr(what, '/') && (n < 6 || strcmp(what + n - 5, ".json")) && access(what, F_OK) < 0)
        return json_object_set_new(args, "policy", json_string(what));
    if (!realpath(what, real))
        return fail(cli_err, -errno, "%s: %s", what, strerror(errno));
    return json_object_set_new(args, "file", json_string(real));
}

static int call(const struct options *o, const char *cell, const char *name, json_t *own_args,
                json_t **ret)
{
    struct config *c;
    struct client *cl;
    int r = cli_connect(o, cell, &c, &cl);

    if (r == 0) {
        r = client_call(cl, name, own_args, ret, NULL, NULL, NULL, cli_err);
        client_free(cl);
        config_free(c);
    }
    json_decref(own_args);
    return r;
}

static int print_change(const struct options *o, const json_t *reply)
{
    const char *phase = json_str(reply, "phase");
    int64_t killed = json_int(reply, "killed");

    if (o->json)
        return print_json(reply);
    printf("generation %lld, revision %lld", (long long)json_int(reply, "generation"),
           (long long)json_int(reply, "revision"));
    if (*phase) {
        printf(", phase ");
        print_safe(stdout, phase, strlen(phase));
    }
    printf("; %lld flow%s reset; took %.1f ms\n", (long long)killed, killed == 1 ? "" : "s",
           json_number_value(json_object_get(reply, "took_ms")));
    return 0;
}

static int changed(const struct options *o, const char *cell, const char *name, json_t *args, int r)
{
    json_t *reply = NULL;

    if (r == 0)
        r = revision_wanted(o, args);
    if (r != 0) {
        json_decref(args);
        return r < -1 ? r : fail(cli_err, -EINVAL, "policy: an argument is not UTF-8");
    }
    r = call(o, cell, name, args, &reply);
    if (r == 0)
        r = print_change(o, reply);
    json_decref(reply);
    return r;
}

static int policy_set(const struct options *o, const char *cell, const char *what)
{
    json_t *args = json_object();

    return changed(o, cell, "policy", args, document_wanted(what, args));
}

static int policy_phase(const struct options *o, const char *cell, const char *phase)
{
    json_t *args = json_object();

    return changed(o, cell, "phase", args, json_object_set_new(args, "to", json_string(phase)));
}

static void show_line(const char *label, const char *value)
{
    if (!*value)
        return;
    printf("%-11s ", label);
    print_safe(stdout, value, strlen(value));
    putchar('\n');
}

static int show(const json_t *reply, const char *text, size_t len)
{
    show_line("policy", json_str(reply, "name"));
    printf("%-11s %lld\n", "revision", (long long)json_int(reply, "revision"));
    printf("%-11s %lld\n", "generation", (long long)json_int(reply, "generation"));
    show_line("phase", json_str(reply, "phase"));
    show_line("ceiling", json_str(reply, "ceiling"));
    show_line("sha256", json_str(reply, "sha256"));
    show_line("incomplete", json_str(reply, "incomplete"));
    putchar('\n');
    while (len > 0) { /* line by line: its line ends are the text's own */
        const char *end = memchr(text, '\n', len);
        size_t n = end ? (size_t)(end - text) : len;
        print_safe(stdout, text, n);
        putchar('\n');
        n += end != NULL;
        text += n;
        len -= n;
    }
    return 0;
}

static int policy_show(const struct options *o, const char *cell)
{
    auto_free char *text = NULL;
    json_t *reply = NULL, *document;
    size_t len = 0;
    int r = call(o, cell, "policy", json_object(), &reply);

    if (r == 0)
        r = read_text(json_str(reply, "file"), &text, &len);
    if (r == 0 && o->json) {
        document = json_loadb(text, len, 0, NULL);
        json_object_set_new(reply, "document", document ? document : json_object());
        r = print_json(reply);
    } else if (r == 0 && !len) {
        r = show(reply, "{}", 2); /* "deny" has no text of its own */
    } else if (r == 0) {
        r = show(reply, text, len);
    }
    json_decref(reply);
    return r;
}

int verb_policy(const struct options *o, int argc, char **argv)
{
    static const struct {
        const char *name;
        int operands;
        int (*one)(const struct options *o, const char *what);
        int (*two)(const struct options *o, const char *cell, const char *what);
        const char *usage;
    } verbs_[] = {
        {"check", 2, policy_check, NULL, "cella policy check FILE"},
        {"show", 2, policy_show, NULL, "cella policy show CELL"},
        {"set", 3, NULL, policy_set, "cella policy set CELL FILE [--if-match REV]"},
        {"phase", 3, NULL, policy_phase, "cella policy phase CELL PHASE [--if-match REV]"},
    };
    size_t i;

    for (i = 0; i < ARRAY_LEN(verbs_); i++) {
        if (strcmp(argv[0], verbs_[i].name))
            continue;
        if (argc != verbs_[i].operands)
            return fail(cli_err, -EINVAL, "policy %s: expected: %s", argv[0], verbs_[i].usage);
        if (o->if_match && verbs_[i].one)
            return fail(cli_err, -EINVAL,
                        "policy %s changes nothing; --if-match is for set and "
                        "phase",
                        argv[0]);
        return verbs_[i].one ? verbs_[i].one(o, argv[1]) : verbs_[i].two(o, argv[1], argv[2]);
    }
    return fail(cli_err, -EINVAL,
                "policy: \"%s\" is not known; expected: cella policy check|show|set|phase ...",
                argv[0]);
}
