/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * mounts - what a user may mount into a cell.
 *
 * One convenience mount undoes every wall, so the default is a list of what is never convenient:
 * control sockets, devices, kernel file systems, credentials. A path is judged after realpath(), in
 * both directions: it must neither lie below a refused path nor contain one. Threads: none; reads
 * /etc/passwd with its own stream, never through NSS.
 */
#include <pwd.h>
#include <sys/stat.h>

#include "config.h"
#include "mounts.h"

/* Refused with everything below. */
static const struct {
    const char *path, *why;
} subtrees[] = {
    {"/proc", "it is a kernel interface"},
    {"/sys", "it is a kernel interface"},
    {"/dev", "it holds device nodes"},
    {"/run", "it holds control sockets and credentials of services"},
    {"/var/run", "it holds control sockets and credentials of services"},
    {"/boot", "it holds the host's kernels"},
    {"/etc/shadow", "it holds password hashes"},
    {"/etc/shadow-", "it holds password hashes"},
    {"/etc/gshadow", "it holds password hashes"},
    {"/etc/gshadow-", "it holds password hashes"},
    {"/etc/sudoers", "it grants root"},
    {"/etc/sudoers.d", "it grants root"},
    {"/etc/ssl/private", "it holds private keys"},
    {"/etc/ssh", "it holds private keys"},
    {"/etc/wireguard", "it holds private keys"},
    {"/etc/letsencrypt", "it holds private keys"},
    {"/etc/kubernetes", "it holds cluster credentials"},
    {"/etc/cella", "it is cella's own configuration"},
    {"/var/lib/docker", "it is another container manager's state"},
    {"/var/lib/containers", "it is another container manager's state"},
    {"/var/lib/containerd", "it is another container manager's state"},
    {"/var/lib/kubelet", "it holds cluster credentials"},
    {"/var/spool/cron", "it runs commands as other users"},
};

/* Refused themselves (their parents are by the rule "contains"); what lies below is judged on its
 * own. */
static const char *const whole[] = {"/root", "/home", "/etc", "/var", "/var/lib", "/mnt", "/media"};

/* May be shown, never written: the host runs them. */
static const char *const readonly[] = {"/usr", "/etc",   "/bin",   "/sbin",
                                       "/lib", "/lib32", "/lib64", "/opt"};

/* Below every home. */
static const char *const credentials[] = {
    ".ssh",
    ".aws",
    ".config/gcloud",
    ".azure",
    ".kube",
    ".docker",
    ".gnupg",
    ".netrc",
    ".git-credentials",
    ".npmrc",
    ".pypirc",
    ".config/gh",
    ".config/git",
    ".password-store",
    ".local/share/keyrings",
    ".mozilla",
    ".config/chromium",
    ".config/google-chrome",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".terraform.d",
    ".vault-token",
    ".pgpass",
    ".my.cnf",
    ".config/containers",
    ".bash_history",
    ".zsh_history",
    ".python_history",
    ".rclone.conf",
    ".config/rclone",
};

/* Is `path` equal to `top` or below it? */
static int below(const char *path, const char *top)
{
    size_t n = strlen(top);

    if (!strcmp(top, "/"))
        return 1;
    return !strncmp(path, top, n) && (path[n] == 0 || path[n] == '/');
}

static const char *refused_by_lists(const char *real, int writable)
{
    size_t i;

    for (i = 0; i < ARRAY_LEN(subtrees); i++) {
        struct stat st;
        if (below(real, subtrees[i].path))
            return subtrees[i].why;
        if (below(subtrees[i].path, real) && lstat(subtrees[i].path, &st) == 0)
            return "it contains system paths that no cell may see";
    }
    for (i = 0; i < ARRAY_LEN(whole); i++)
        if (!strcmp(real, whole[i]))
            return "it contains credentials or other users' files; mount the directory that is "
                   "needed";
    for (i = 0; writable && i < ARRAY_LEN(readonly); i++)
        if (below(real, readonly[i]))
            return "the host itself runs from it, so a cell may not write it";
    return NULL;
}

static const char *refused_by_home(const struct passwd *pw, const char *real)
{
    int person = pw->pw_uid == 0 || (pw->pw_uid >= 1000 && pw->pw_uid < 65534);
    char home[PATH_MAX], path[2 * PATH_MAX];
    struct stat st;
    size_t i;

    if (!pw->pw_dir || pw->pw_dir[0] != '/' || !realpath(pw->pw_dir, home))
        return NULL;
    if (person && strcmp(home, "/") && below(home, real))
        return "it is or contains a home directory; mount the directory that is needed";
    for (i = 0; i < ARRAY_LEN(credentials); i++) {
        snprintf(path, sizeof(path), "%s/%s", strcmp(home, "/") ? home : "", credentials[i]);
        if (below(real, path))
            return "it holds a user's credentials or history";
        if (below(path, real) && lstat(path, &st) == 0)
            return "it contains a user's credentials or history";
    }
    return NULL;
}

static const char *refused_by_homes(const char *passwd, const char *real)
{
    auto_fclose FILE *f = fopen(passwd ? passwd : "/etc/passwd", "re");
    const char *why = NULL;
    struct passwd *pw;

    if (!f)
        return "the list of homes (/etc/passwd) cannot be read, so it cannot be checked";
    while (!why && (pw = fgetpwent(f)))
        why = refused_by_home(pw, real);
    return why;
}

const char *path_refused(const char *state_dir, const char *passwd, const char *real, int writable,
                         int *ret_never)
{
    auto_free char *state = state_dir ? realpath(state_dir, NULL) : NULL;
    const char *why;
    struct stat st;

    if (ret_never)
        *ret_never = 1;
    if (!strcmp(real, "/"))
        return "it is the whole host";
    if (!state && state_dir)
        state = strdup(state_dir);
    if (state && (below(real, state) || below(state, real)))
        return "it is, holds or lies in cella's state directory";
    if (stat(real, &st) < 0)
        return "it cannot be examined";
    if (S_ISSOCK(st.st_mode))
        return "it is a socket; a cell must not reach services of the host past the egress policy";
    if (S_ISCHR(st.st_mode) || S_ISBLK(st.st_mode))
        return "it is a device node";
    if (!S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode))
        return "it is neither a regular file nor a directory";
    if (ret_never)
        *ret_never = 0;
    why = refused_by_lists(real, writable);
    return why ? why : refused_by_homes(passwd, real);
}

static const struct config_mount_rule *rule_find(const struct config *c, const char *real)
{
    size_t i;

    for (i = 0; c && i < c->n_mounts; i++) {
        auto_free char *allowed = realpath(c->mounts[i].path, NULL);
        if (allowed && !strcmp(allowed, real))
            return &c->mounts[i];
    }
    return NULL;
}

int mount_resolve(const struct config *c, const char *source, int writable, char ret_real[PATH_MAX],
                  struct cella_error *err)
{
    const struct config_mount_rule *rule;
    char real[PATH_MAX];
    const char *why;
    int never;

    if (!source || source[0] != '/')
        return fail(err, -EINVAL, "mount source \"%s\": not an absolute path",
                    source ? source : "");
    if (!realpath(source, real))
        return fail(err, -errno, "mount source %s: %s", source, strerror(errno));
    why = path_refused(c ? c->state_dir : NULL, NULL, real, writable, &never);
    rule = why && !never ? rule_find(c, real) : NULL;
    if (rule && writable && !rule->writable)
        return fail(err, -EACCES,
                    "mount source %s: the config allows it read-only; mount it with :ro", source);
    if (why && !rule)
        return fail(
            err, -EACCES, "mount source %s%s%s%s: refused: %s%s", source,
            strcmp(source, real) ? " (" : "", strcmp(source, real) ? real : "",
            strcmp(source, real) ? ")" : "", why,
            never ? ""
                  : " (the operator can allow exactly this path under \"mounts\" in the config)");
    memcpy(ret_real, real, strlen(real) + 1);
    return 0;
}

int mount_check(const struct config *c, const char *source, int writable, struct cella_error *err)
{
    char real[PATH_MAX];

    return mount_resolve(c, source, writable, real, err);
}

/* Copies an absolute path without empty and "." components; -EINVAL for "..". */
static int normalise(const char *in, size_t len, char out[PATH_MAX])
{
    size_t n = 0, i = 0;

    if (!len || in[0] != '/' || len >= PATH_MAX)
        return -EINVAL;
    while (i < len) {
        size_t start, part;
        while (i < len && in[i] == '/')
            i++;
        for (start = i; i < len && in[i] != '/'; i++)
            ;
        part = i - start;
        if (part == 0 || (part == 1 && in[start] == '.'))
            continue;
        if (part == 2 && in[start] == '.' && in[start + 1] == '.')
            return -EINVAL;
        out[n++] = '/';
        memcpy(out + n, in + start, part);
        n += part;
    }
    if (n == 0)
        out[n++] = '/';
    out[n] = 0;
    return 0;
}

int mount_parse(const char *text, struct mount_arg *ret, struct cella_error *err)
{
    const char *dst = strchr(text, ':'), *mode = dst ? strchr(dst + 1, ':') : NULL;
    struct mount_arg m = {.writable = 0};
    size_t dst_len;

    if (!dst)
        return fail(err, -EINVAL, "mount \"%s\": expected SRC:DST[:ro|rw]", text);
    if (mode && strcmp(mode, ":ro") && strcmp(mode, ":rw"))
        return fail(err, -EINVAL, "mount \"%s\": \"%s\" is neither ro nor rw", text, mode + 1);
    dst_len = mode ? (size_t)(mode - dst - 1) : strlen(dst + 1);
    if (normalise(text, (size_t)(dst - text), m.source) < 0)
        return fail(err, -EINVAL,
                    "mount \"%s\": the source must be an absolute path without \"..\"", text);
    if (normalise(dst + 1, dst_len, m.target) < 0)
        return fail(err, -EINVAL,
                    "mount \"%s\": the target must be an absolute path without \"..\"", text);
    if (!strcmp(m.target, "/") || below(m.target, "/proc") || below(m.target, "/sys") ||
        below(m.target, "/dev"))
        return fail(err, -EINVAL, "mount \"%s\": nothing can be mounted on %s of a cell", text,
                    m.target);
    m.writable = mode && !strcmp(mode, ":rw");
    *ret = m;
    return 0;
}
