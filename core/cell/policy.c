/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * policy - the policy in force in the cell: found at create, replaced or moved to another phase while the
 * cell runs.
 *
 * The document's meaning is the enforcer's. Here: which text is in force (name, digest, revision,
 * phase), under which generation, and that one change at a time goes from a known text to another. A
 * generation number that an enforcer has seen is never used again, not even after a failure. A
 * change that fails leaves the tighter of old and new, which the enforcer guarantees; the record
 * says so until a change succeeds. Threads: one, so changes never overlap.
 */
#include <fcntl.h>
#include <sodium.h>

#include "warden.h"

#define POLICY_MAX (1u << 20)
#define DOCUMENT_FILE "policy.json" /* in the cell's directory: the text in force */

void policy_text_fini(struct policy_text *p)
{
    free(p->name);
    free(p->text);
    *p = (struct policy_text){NULL, NULL, 0, "", ""};
}

/* What the text says of itself, when it is the JSON of a document. Another enforcer's may be
   anything. */
static void describe(struct policy_text *p)
{
    uint8_t digest[crypto_hash_sha256_BYTES];
    json_t *root = json_loads(p->text, JSON_REJECT_DUPLICATES, NULL);
    json_int_t revision = json_integer_value(json_object_get(root, "revision"));
    const char *active = json_string_value(json_object_get(root, "active"));

    p->revision = revision > 0 ? revision : 0;
    snprintf(p->phase, sizeof(p->phase), "%s", active && name_valid(active) ? active : "");
    json_decref(root);
    crypto_hash_sha256(digest, (const unsigned char *)p->text, strlen(p->text));
    hex_encode(digest, sizeof(digest), p->sha256);
}

/* Takes both strings; NULL = out of memory. */
static int text_take(char *own_name, char *own_text, struct policy_text *ret,
                     struct cella_error *err)
{
    struct policy_text p = {own_name, own_text, 0, "", ""};

    if (!own_name || !own_text) {
        policy_text_fini(&p);
        return fail(err, -ENOMEM, "policy: out of memory");
    }
    describe(&p);
    *ret = p;
    return 0;
}

static int text_of_file(const char *file, struct policy_text *ret, struct cella_error *err)
{
    char *text = NULL;
    size_t len = 0;
    int r = read_file_at(AT_FDCWD, file, POLICY_MAX, &text, &len);

    if (r == 0 && strlen(text) != len)
        r = -EILSEQ;
    if (r < 0) {
        free(text);
        return fail(err, r, "policy file %s: %s", file,
                    r == -EILSEQ ? "holds a NUL byte; it is no JSON text" : strerror(-r));
    }
    return text_take(strdup(file), text, ret, err);
}

static int text_of_name(const struct config *c, const char *name, struct policy_text *ret,
                        struct cella_error *err)
{
    const struct config_policy *p = config_policy_find(c, name);

    if (!strcmp(name, "none") || !strcmp(name, "deny"))
        return text_take(strdup(name), strdup(""), ret, err);
    if (!p)
        return fail(err, -ENOENT,
                    "policy \"%s\": not \"none\", \"deny\", a policy of the config, or a file",
                    name);
    return text_take(strdup(name), strdup(p->document), ret, err);
}

static int text_requested(const struct warden *w, struct policy_text *ret, struct cella_error *err)
{
    if (w->req.policy_file)
        return text_of_file(w->req.policy_file, ret, err);
    return text_of_name(w->config, w->req.policy ? w->req.policy : w->class->policy, ret, err);
}

int policy_is(const struct warden *w, const char *name)
{
    return !w->req.policy_file && !strcmp(w->req.policy ? w->req.policy : w->class->policy, name);
}

int policy_closed(const struct warden *w)
{
    return policy_is(w, "none") || policy_is(w, "deny");
}

int policy_find(struct warden *w, struct cella_error *err)
{
    return text_requested(w, &w->policy, err);
}

/* Text of the class's ceiling; "" without one, "{}" for one that closes everything. */
static const char *ceiling_text(const struct warden *w)
{
    const char *name = w->class ? w->class->ceiling : NULL;
    const struct config_policy *p = name ? config_policy_find(w->config, name) : NULL;
    size_t i;

    if (!name)
        return "";
    for (i = 0; p && p->document[i]; i++) /* blank is a document that allows nothing */
        if (!strchr(" \t\r\n", p->document[i]))
            return p->document;
    return "{}";
}

struct cella_policy policy_struct(const struct warden *w, const struct policy_text *p,
                                  uint64_t generation)
{
    const char *ceiling = ceiling_text(w);

    return (struct cella_policy){.hdr = CELLA_HDR_INIT(struct cella_policy, CELLA_KIND_POLICY),
                                 .name = p->name,
                                 .document = {p->text, strlen(p->text)},
                                 .ceiling = {ceiling, strlen(ceiling)},
                                 .generation = generation};
}

/* Into cell.json and, for `policy show`, the text beside it. */
int policy_record(struct warden *w, struct cella_error *err)
{
    const struct policy_text *p = &w->policy;
    json_t *o =
        json_pack("{s:s, s:I, s:I, s:s, s:s}", "name", p->name, "revision", (json_int_t)p->revision,
                  "generation", (json_int_t)w->generation, "phase", p->phase, "sha256", p->sha256);
    int r;

    if (o && w->class && w->class->ceiling)
        json_object_set_new(o, "ceiling", json_string(w->class->ceiling));
    if (o && w->policy_trouble[0])
        json_object_set_new(o, "incomplete", json_string(w->policy_trouble));
    json_object_set_new(w->cell, "generation", json_integer((json_int_t)w->generation));
    if (json_object_set_new(w->cell, "policy", o) < 0)
        return fail(err, -EINVAL, "policy: its name \"%s\" cannot be recorded", p->name);
    r = replace_file_at(w->dir.dirfd, DOCUMENT_FILE, p->text, strlen(p->text), 0600);
    return r < 0 ? fail(err, r, "%s/%s: %s", w->dir.path, DOCUMENT_FILE, strerror(-r)) : 0;
}

/* ---- while the cell runs ---- */

static int change_possible(const struct warden *w, json_t *args, struct cella_error *err)
{
    json_t *match = json_object_get(args, "if_match");

    if (w->ended || !w->enforcer_on)
        return fail(err, -ESRCH, "policy: the cell has ended or is not made yet");
    if (!match || json_is_null(match))
        return 0;
    if (!json_is_integer(match) || json_integer_value(match) < 0)
        return fail(err, -EINVAL, "policy: \"if_match\" must be a revision number");
    if (json_integer_value(match) != w->policy.revision)
        return fail(err, -ESTALE,
                    "policy: revision %lld is in force, not %lld; somebody changed it. Look at it "
                    "(cella policy show) and make the change again",
                    (long long)w->policy.revision, (long long)json_integer_value(match));
    return 0;
}

/* With If-Match, two writers are told apart by revision; a text that keeps the number would hide one. */
static int revision_moves(const struct warden *w, json_t *args, const struct policy_text *to,
                          struct cella_error *err)
{
    json_t *match = json_object_get(args, "if_match");

    if (!json_is_integer(match) || to->revision != w->policy.revision ||
        !strcmp(to->sha256, w->policy.sha256))
        return 0;
    return fail(err, -EINVAL,
                "policy %s: it is another text under revision %lld, which is in force; give it the "
                "next \"revision\", so that a change made at the same time is noticed",
                to->name, (long long)to->revision);
}

/* The one of three that is given: a text, a file on this host, a policy by name. */
static int text_wanted(struct warden *w, json_t *args, struct policy_text *ret,
                       struct cella_error *err)
{
    const char *document = json_string_value(json_object_get(args, "document"));
    const char *file = json_string_value(json_object_get(args, "file"));
    const char *known = json_string_value(json_object_get(args, "policy"));
    const char *name = json_string_value(json_object_get(args, "name"));

    if (!!document + !!file + !!known != 1)
        return fail(err, -EINVAL,
                    "policy: needs one of \"document\" (its text), \"file\" (an absolute path) and "
                    "\"policy\" (\"deny\" or a name of the config)");
    if (document && strlen(document) > POLICY_MAX)
        return fail(err, -EFBIG, "policy: the document is longer than %u bytes", POLICY_MAX);
    if (document)
        return text_take(strdup(name && *name && strlen(name) < 256 ? name : "document"),
                         strdup(document), ret, err);
    if (file && file[0] != '/')
        return fail(err, -EINVAL, "policy file \"%s\": must be an absolute path", file);
    return file ? text_of_file(file, ret, err) : text_of_name(w->config, known, ret, err);
}

static int device_agrees(const struct warden *w, const struct policy_text *to,
                         struct cella_error *err)
{
    int has = w->attached.address[0] != 0, wants = strcmp(to->name, "none") != 0;

    if (has == wants)
        return 0;
    return has ? fail(err, -EOPNOTSUPP,
                      "policy \"none\": this cell has a network device, which cannot be taken away "
                      "while it runs; \"deny\" allows nothing either")
               : fail(err, -EOPNOTSUPP,
                      "policy %s: this cell has no network device (policy \"none\", or a backend "
                      "without one); make a new cell with it",
                      to->name);
}

/* ---- a spare becomes a cell ---- */

int policy_late(struct warden *w, struct cella_error *err)
{
    struct policy_text to = {NULL, NULL, 0, "", ""};
    struct cella_policy policy;
    int r = text_requested(w, &to, err);

    if (r == 0)
        r = device_agrees(w, &to, err);
    if (r == 0) {
        policy = policy_struct(w, &to, w->generation_last + 1);
        r = enforcer_check(w->enforcer_plugin, &policy, err);
    }
    if (r < 0) {
        policy_text_fini(&to);
        return r;
    }
    policy_text_fini(&w->policy);
    w->policy = to;
    return policy_record(w, err);
}

int policy_apply_late(struct warden *w, struct cella_error *err)
{
    struct cella_policy policy = policy_struct(w, &w->policy, w->generation_last + 1);
    struct cella_applied applied;
    int r;

    if (!w->policy.text[0]) /* as it was attached */
        return 0;
    w->generation_last++;
    r = enforcer_apply(&w->enforcer, &policy, &applied, err);
    if (r < 0)
        return r;
    w->generation = w->generation_last;
    if (applied.ca_pem.len)
        w->attached.ca_pem = applied.ca_pem;
    return policy_record(w, err);
}

struct change {
    const char *event;
    uint64_t old_generation, generation, killed, took_ns;
    char old_sha256[65];
    int64_t old_revision;
    char old_phase[64];
};

static struct change change_begin(struct warden *w, const char *event)
{
    struct change c = {.event = event,
                       .old_generation = w->generation,
                       .generation = ++w->generation_last,
                       .old_revision = w->policy.revision};

    snprintf(c.old_sha256, sizeof(c.old_sha256), "%s", w->policy.sha256);
    snprintf(c.old_phase, sizeof(c.old_phase), "%s", w->policy.phase);
    c.took_ns = now_ns();
    return c;
}

/* `to`: the text and phase that were asked for. */
static int change_audit(struct warden *w, const struct change *c, const struct policy_text *to,
                        const char *phase, int result, const char *message, struct cella_error *err)
{
    return warden_audit(w, err, c->event, "s:verdict", result < 0 ? "refused" : "applied",
                        "s:policy", to->name, "s:sha256", to->sha256, "s:old_sha256", c->old_sha256,
                        "i:revision", to->revision, "i:old_revision", c->old_revision, "s:phase",
                        phase, "s:old_phase", c->old_phase, "i:gen", (int64_t)c->generation,
                        "i:old_gen", (int64_t)c->old_generation, "i:killed", (int64_t)c->killed,
                        "s:message", message, NULL);
}

/* The enforcer said no, or failed on the way: the tighter of both is in force, under a number of its own. */
static int change_failed(struct warden *w, const struct change *c, const struct policy_text *to,
                         const char *phase, int r, struct cella_error *err)
{
    struct errbuf eb;

    snprintf(w->policy_trouble, sizeof(w->policy_trouble), "%s",
             err && err->msg ? err->msg : strerror(-r));
    change_audit(w, c, to, phase, r, w->policy_trouble, NULL);
    if (policy_record(w, errbuf_init(&eb)) < 0 || warden_save(w) < 0)
        warden_log(w, CELLA_LOG_ERROR, "policy", "the failed change is not in the record");
    return r;
}

static int change_done(struct warden *w, struct change *c, const struct cella_applied *applied,
                       json_t **ret, struct cella_error *err)
{
    int r;

    c->took_ns = now_ns() - c->took_ns;
    c->killed = applied->killed;
    w->generation = c->generation;
    w->policy_trouble[0] = 0;
    r = policy_record(w, err);
    if (r == 0 && warden_save(w) < 0)
        r = fail(err, -EIO, "the policy is in force, but the cell's record could not be written");
    if (change_audit(w, c, &w->policy, w->policy.phase, 0, NULL, r == 0 ? err : NULL) < 0)
        r = -EIO;
    if (r == 0)
        r = shown_trust(w, &applied->ca_pem, err);
    if (r < 0)
        return r;
    *ret = json_pack("{s:I, s:I, s:s, s:I, s:f}", "generation", (json_int_t)w->generation,
                     "revision", (json_int_t)w->policy.revision, "phase", w->policy.phase, "killed",
                     (json_int_t)c->killed, "took_ms", (double)(c->took_ns / 1000) / 1000.0);
    return *ret ? 0 : fail(err, -ENOMEM, "policy: out of memory");
}

static json_t *policy_shown(struct warden *w)
{
    json_t *o = json_deep_copy(json_object_get(w->cell, "policy"));

    if (o)
        json_object_set_new(o, "file", json_sprintf("%s/%s", w->dir.path, DOCUMENT_FILE));
    return o;
}

/* A text that the enforcer does not accept as such changes nothing and takes no number. */
static int replace(struct warden *w, struct policy_text *to, json_t **ret, struct cella_error *err)
{
    struct cella_policy policy = policy_struct(w, to, w->generation_last + 1);
    struct cella_applied applied;
    struct change c;
    int r = enforcer_check(w->enforcer_plugin, &policy, err);

    if (r < 0) {
        c = (struct change){.event = "policy.change",
                            .generation = w->generation,
                            .old_generation = w->generation,
                            .old_revision = w->policy.revision};
        snprintf(c.old_sha256, sizeof(c.old_sha256), "%s", w->policy.sha256);
        snprintf(c.old_phase, sizeof(c.old_phase), "%s", w->policy.phase);
        change_audit(w, &c, to, to->phase, r, err->msg, NULL);
        return r;
    }
    c = change_begin(w, "policy.change");
    r = enforcer_apply(&w->enforcer, &policy, &applied, err);
    if (r < 0)
        return change_failed(w, &c, to, to->phase, r, err);
    policy_text_fini(&w->policy);
    w->policy = *to;
    *to = (struct policy_text){NULL, NULL, 0, "", ""};
    return change_done(w, &c, &applied, ret, err);
}

int policy_change(struct warden *w, json_t *args, json_t **ret, struct cella_error *err)
{
    struct policy_text to = {NULL, NULL, 0, "", ""};
    int r;

    if (!json_object_size(args)) {
        *ret = policy_shown(w);
        return *ret ? 0 : fail(err, -ENOMEM, "policy: out of memory");
    }
    r = change_possible(w, args, err);
    if (r == 0)
        r = text_wanted(w, args, &to, err);
    if (r == 0)
        r = revision_moves(w, args, &to, err);
    if (r == 0)
        r = device_agrees(w, &to, err);
    if (r == 0)
        r = replace(w, &to, ret, err);
    policy_text_fini(&to);
    return r;
}

static int phase_to(struct warden *w, const char *event, const char *phase, json_t **ret,
                    struct cella_error *err)
{
    struct cella_applied applied;
    struct change c = change_begin(w, event);
    int r = enforcer_phase(&w->enforcer, phase, c.generation, &applied, err);

    if (r < 0)
        return change_failed(w, &c, &w->policy, phase, r, err);
    snprintf(w->policy.phase, sizeof(w->policy.phase), "%s", phase);
    return change_done(w, &c, &applied, ret, err);
}

int policy_phase(struct warden *w, json_t *args, json_t **ret, struct cella_error *err)
{
    const char *to = json_string_value(json_object_get(args, "to"));
    int r = change_possible(w, args, err);

    if (r == 0 && (!to || !name_valid(to)))
        r = fail(err, -EINVAL, "phase: \"to\" must be the name of a phase of the policy in force");
    return r < 0 ? r : phase_to(w, "policy.phase", to, ret, err);
}

int policy_again(struct warden *w, struct cella_error *err)
{
    auto_free char *phase =
        strdup(w->policy.phase); /* "" has no name to switch to, and none to lose */
    struct policy_text same = {NULL, NULL, 0, "", ""};
    json_t *reply = NULL;
    int r = phase ? 0 : fail(err, -ENOMEM, "policy: out of memory");

    if (r == 0 && *phase)
        r = phase_to(w, "policy.phase", phase, &reply, err);
    else if (r == 0)
        r = text_take(strdup(w->policy.name), strdup(w->policy.text), &same, err);
    if (r == 0 && !*phase)
        r = replace(w, &same, &reply, err);
    policy_text_fini(&same);
    json_decref(reply);
    return r;
}
