/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * http - "http" and "inject" of a rule.
 *
 * An injection hands a real credential to whoever answers for the host, so everything about it is
 * exact: layer http, one host, a header that has no part in framing, a placeholder that survives
 * encoding and appears nowhere by chance. Threads: none needed.
 */
#include "parse_int.h"
#include "table_int.h"

#define METHODS_MAX 32u
#define PATHS_MAX 1024u
#define INJECT_MAX 16u

static int token(const char *s, size_t max)
{
    size_t n = strlen(s);

    return n && n <= max &&
           strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                     "!#$%&'*+-.^_`|~") == n;
}

static uint32_t known_method(const char *s)
{
    static const char *const names[] = {"GET",    "HEAD",    "POST",  "PUT",
                                        "DELETE", "OPTIONS", "PATCH", "TRACE"};
    size_t i;

    for (i = 0; i < ARRAY_LEN(names); i++)
        if (!strcmp(names[i], s))
            return 1u << i;
    return 0;
}

static int one_method(struct reader *r, const json_t *v, const char **more, struct policy_rule *out)
{
    const char *s = json_string_value(v);
    uint32_t bit;
    size_t i;

    if (!s || !token(s, 32) || s[strcspn(s, "abcdefghijklmnopqrstuvwxyz")])
        return reject(r, "",
                      "expected a method such as \"GET\"; methods are upper case, and "
                      "leaving \"methods\" out means any");
    if (!strcmp(s, "CONNECT"))
        return reject(r, "",
                      "CONNECT opens a tunnel through somebody else's proxy, and cannot be "
                      "allowed");
    bit = known_method(s);
    for (i = 0; i < out->n_methods && strcmp(more[i], s); i++)
        ;
    if (out->methods & bit || i < out->n_methods)
        return reject(r, "", "\"%s\" is here twice; remove one", s);
    out->methods |= bit;
    if (!bit) {
        more[out->n_methods] = keep_text(r, s);
        if (!more[out->n_methods++])
            return -ENOMEM;
    }
    return 0;
}

static int read_methods(struct reader *r, json_t *http, struct policy_rule *out)
{
    json_t *list = json_object_get(http, "methods"), *v;
    const char **more;
    size_t i;

    if (!list)
        return 0;
    if (!json_is_array(list) || !json_array_size(list) || json_array_size(list) > METHODS_MAX)
        return reject(r, "methods",
                      "expected a list of 1 to %u methods, such as [\"GET\"]; "
                      "leaving it out means any",
                      METHODS_MAX);
    more = keep(r, json_array_size(list) * sizeof(*more));
    if (!more)
        return -ENOMEM;
    out->method = more;
    json_array_foreach(list, i, v)
    {
        size_t mark = enter_at(r, "methods", i);
        int e = one_method(r, v, more, out);
        if (e < 0)
            return e;
        leave(r, mark);
    }
    return 0;
}

static int read_paths(struct reader *r, json_t *http, struct policy_rule *out)
{
    json_t *list = json_object_get(http, "paths"), *v;
    const char **paths, *why;
    size_t i;

    if (!list)
        return 0;
    if (!json_is_array(list) || !json_array_size(list) || json_array_size(list) > PATHS_MAX)
        return reject(r, "paths",
                      "expected a list of 1 to %u patterns, such as [\"/v1/**\"]; "
                      "leaving it out means any path",
                      PATHS_MAX);
    paths = keep(r, json_array_size(list) * sizeof(*paths));
    if (!paths)
        return -ENOMEM;
    out->path = paths;
    json_array_foreach(list, i, v)
    {
        size_t mark = enter_at(r, "paths", i);
        const char *s = json_string_value(v);
        if (!s)
            return reject(r, "", "expected a pattern such as \"/v1/messages\" or \"/v1/**\"");
        why = policy_path_pattern(s);
        if (why)
            return reject(r, "", "the path pattern %s", why);
        paths[out->n_paths] = keep_text(r, s);
        if (!paths[out->n_paths++])
            return -ENOMEM;
        leave(r, mark);
    }
    return 0;
}

int read_http(struct reader *r, json_t *rule, struct policy_rule *out)
{
    static const char *const known[] = {"methods", "paths", "websocket", NULL};
    static const char *const known_deny[] = {"methods", "paths", NULL};
    json_t *http = json_object_get(rule, "http");
    int e, websocket = 0;
    size_t mark;

    if (!http)
        return 0;
    if (out->layer != POLICY_HTTP)
        return reject_key(r, "http",
                          "\"http\" needs \"layer\": \"http\", because only there "
                          "requests are seen");
    if (!json_is_object(http))
        return reject(r, "http", "expected an object with \"methods\", \"paths\", \"websocket\"");
    mark = enter(r, "http");
    e = keys_known(r, http, r->deny ? known_deny : known,
                   r->deny ? "\"http\" of a denial" : "\"http\"");
    if (e == 0)
        e = read_methods(r, http, out);
    if (e == 0)
        e = read_paths(r, http, out);
    if (e == 0 && !r->deny)
        e = read_flag(r, http, "websocket", &websocket);
    out->websocket = (uint8_t)websocket;
    if (e == 0)
        leave(r, mark);
    return e;
}

/* -------------------------------------------------------------- injection */

/* Headers by which messages are delimited or routed, and those of one hop. */
static int header_reserved(const char *name)
{
    static const char *const names[] = {
        "host",    "content-length",   "transfer-encoding", "connection", "te",
        "trailer", "upgrade",          "keep-alive",        "expect",     "proxy-connection",
        "via",     "content-encoding", "http2-settings"};
    size_t i;

    for (i = 0; i < ARRAY_LEN(names); i++)
        if (!strcmp(names[i], name))
            return 1;
    return !strncmp(name, "proxy-", 6) || !strncmp(name, "sec-websocket-", 14) ||
           !strncmp(name, "x-cella-", 8);
}

static int inject_header(struct reader *r, json_t *v, struct policy_inject *out)
{
    const char *s = json_string_value(json_object_get(v, "name"));
    char lower[65], *p;

    if (out->surface == POLICY_SURFACE_BASIC) {
        out->name = "";
        return json_object_get(v, "name") ? reject_key(r, "name",
                                                       "surface \"basic\" is always the header "
                                                       "\"authorization\"; leave \"name\" out")
                                          : 0;
    }
    if (!s || !token(s, sizeof(lower) - 1))
        return reject(r, json_object_get(v, "name") ? "name" : "",
                      "an injection needs \"name\", the name of a header, such as \"x-api-key\": "
                      "1 to 64 letters, digits and \"-\"");
    for (p = lower; *s; s++)
        *p++ = *s >= 'A' && *s <= 'Z' ? (char)(*s + ('a' - 'A')) : *s;
    *p = 0;
    if (header_reserved(lower))
        return reject(r, "name",
                      "the header \"%s\" delimits or routes messages; a credential does "
                      "not belong there",
                      lower);
    out->name = keep_text(r, lower);
    return out->name ? 0 : -ENOMEM;
}

static int inject_placeholder(struct reader *r, json_t *v, struct policy_inject *out)
{
    const json_t *p = json_object_get(v, "placeholder");
    const char *s = json_string_value(p);
    size_t n = s ? strlen(s) : 0;
    int require = p != NULL, e;

    out->placeholder = "";
    if (p) {
        if (n < 4 || n > 256 ||
            strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~") != n)
            return reject(r, "placeholder",
                          "a placeholder is 4 to 256 of the characters A-Z a-z "
                          "0-9 - . _ ~, which survive every encoding");
        if (!s[strcspn(s, "-._~")])
            return reject(r, "placeholder",
                          "a placeholder contains at least one of - . _ ~, so "
                          "that it cannot be an ordinary word, such as "
                          "\"sk-cella__K1__\"");
        out->placeholder = keep_text(r, s);
        if (!out->placeholder)
            return -ENOMEM;
    }
    e = read_flag(r, v, "require", &require);
    if (e == 0 && require && !p)
        return reject(r, "require", "there is nothing to require without a \"placeholder\"");
    if (e == 0 && out->surface == POLICY_SURFACE_BASIC && !p)
        return reject(r, "", "surface \"basic\" needs a \"placeholder\" to put the secret for");
    out->require = (uint8_t)require;
    return e;
}

static int inject_prefix(struct reader *r, json_t *v, struct policy_inject *out)
{
    const json_t *p = json_object_get(v, "prefix");
    const char *s = json_string_value(p);
    size_t i;

    out->prefix = "";
    if (!p)
        return 0;
    if (*out->placeholder)
        return reject_key(r, "prefix",
                          "with a \"placeholder\" the cell writes the rest of the "
                          "header itself; leave \"prefix\" out");
    if (!s || !*s || strlen(s) > 64)
        return reject(r, "prefix", "expected a text of 1 to 64 characters, such as \"Bearer \"");
    for (i = 0; s[i]; i++)
        if (s[i] < ' ' || s[i] > '~')
            return reject(r, "prefix",
                          "has a byte that is not printable ASCII; a header value is "
                          "one line of it");
    out->prefix = keep_text(r, s);
    return out->prefix ? 0 : -ENOMEM;
}

static int one_inject(struct reader *r, json_t *v, struct policy_inject *all, uint16_t n)
{
    static const char *const known[] = {"secret",  "surface", "name", "placeholder",
                                        "require", "prefix",  NULL};
    struct policy_inject *out = &all[n];
    const char *secret, *surface;
    uint16_t i;
    int e;

    if (!json_is_object(v))
        return reject(r, "", "expected an injection, an object with \"secret\" and \"name\"");
    e = keys_known(r, v, known, "an injection");
    if (e < 0)
        return e;
    secret = json_string_value(json_object_get(v, "secret"));
    if (!secret || !name_valid(secret))
        return reject(r, json_object_get(v, "secret") ? "secret" : "",
                      "an injection needs \"secret\", the name under which the secret provider "
                      "knows it: 1 to 63 letters, digits, '.', '_' and '-'");
    surface = json_string_value(json_object_get(v, "surface"));
    if (json_object_get(v, "surface") &&
        (!surface || (strcmp(surface, "header") && strcmp(surface, "basic"))))
        return reject(r, "surface",
                      "expected \"header\" or \"basic\" (inside \"Authorization: "
                      "Basic\"); other places are not supported");
    out->surface =
        surface && !strcmp(surface, "basic") ? POLICY_SURFACE_BASIC : POLICY_SURFACE_HEADER;
    out->secret = keep_text(r, secret);
    e = out->secret ? inject_header(r, v, out) : -ENOMEM;
    if (e == 0)
        e = inject_placeholder(r, v, out);
    if (e == 0)
        e = inject_prefix(r, v, out);
    for (i = 0; e == 0 && i < n; i++)
        if (all[i].surface == out->surface && !strcmp(all[i].name, out->name) &&
            (!*all[i].placeholder || !*out->placeholder ||
             !strcmp(all[i].placeholder, out->placeholder)))
            return reject(r, "", "a second injection into the same place; both would be in force");
    return e;
}

int read_inject(struct reader *r, json_t *rule, struct policy_rule *out)
{
    json_t *list = json_object_get(rule, "inject"), *v;
    struct policy_inject *all;
    size_t i;

    if (!list)
        return 0;
    if (out->layer != POLICY_HTTP)
        return reject_key(r, "inject", "\"inject\" needs \"layer\": \"http\"");
    if (out->kind != POLICY_EXACT)
        return reject_key(r, "inject",
                          "\"inject\" needs one exact host; a credential must not "
                          "reach every name of a domain");
    if (!json_is_array(list) || !json_array_size(list) || json_array_size(list) > INJECT_MAX)
        return reject(r, "inject", "expected a list of 1 to %u injections", INJECT_MAX);
    for (i = 0; i < out->n_ports; i++)
        if (out->ports[i].lo <= 80 && 80 <= out->ports[i].hi)
            return reject_key(r, "inject",
                              "the rule opens port 80, where the credential would be "
                              "readable by everybody on the way; give that port a "
                              "rule of its own");
    all = keep(r, json_array_size(list) * sizeof(*all));
    if (!all)
        return -ENOMEM;
    out->inject = all;
    json_array_foreach(list, i, v)
    {
        size_t mark = enter_at(r, "inject", i);
        int e = one_inject(r, v, all, out->n_inject);
        if (e < 0)
            return e;
        out->n_inject++;
        leave(r, mark);
    }
    return 0;
}
