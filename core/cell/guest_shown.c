/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * guest_shown - /run/cella of a machine: the files that shown.c and denials.c keep on the host, told
 * to the guest's init, which the cell sees them through. Threads: one; nothing waits.
 */
#include <dirent.h>
#include <fcntl.h>

#include "guest_int.h"

static int show(struct machine *m, const char *name, size_t offset, size_t size, const char *text,
                size_t len, guest_done done, void *ctx)
{
    auto_buf struct buf b = BUF_INIT;

    field_add_str(&b, CELLA_TAG_NAME, name);
    field_add_u64(&b, CELLA_TAG_OFFSET, offset);
    field_add_u64(&b, CELLA_TAG_SIZE, size);
    field_add(&b, CELLA_TAG_CONTENT, text, len);
    return b.oom ? -ENOMEM
                 : guest_send(m->guest, CELLA_GUEST_SHOW, b.ptr, b.len, BOOT_NS, done, ctx);
}

static int show_file(struct warden *w, const char *name, const char *text, size_t len)
{
    size_t at = 0, n;
    int r = 0;

    if (len > CELLA_GUEST_SHOWN_BYTES)
        return -EFBIG;
    do {
        n = len - at < CELLA_GUEST_SHOWN_CHUNK ? len - at : CELLA_GUEST_SHOWN_CHUNK;
        r = show(w->machine, name, at, len, text + at, n, NULL, NULL);
        at += n;
    } while (r == 0 && at < len);
    return r;
}

static void denials_told(void *ctx, int code, const char *why, const uint8_t *payload, size_t len)
{
    struct warden *w = ctx;

    (void)why;
    (void)payload;
    (void)len;
    w->machine->denials.sending = 0;
    if (code == 0)
        machine_denials(w);
}

/* One piece at a time: what comes meanwhile goes with the next. */
void machine_denials(struct warden *w)
{
    struct machine *m = w->machine;
    char text[CELLA_GUEST_SHOWN_CHUNK];
    ssize_t n;

    if (!m->guest || m->denials.sending || w->denials.fd < 0)
        return;
    if (m->denials.halved != w->denials.halved)
        m->denials.sent = 0;
    m->denials.halved = w->denials.halved;
    n = pread(w->denials.fd, text, sizeof(text), (off_t)m->denials.sent);
    if (n > 0 && show(m, "denials", m->denials.sent, m->denials.sent + (size_t)n, text, (size_t)n,
                      denials_told, w) == 0) {
        m->denials.sending = 1;
        m->denials.sent += (size_t)n;
    }
}

/* Every file of the directory as it is; denials follow as they come. */
int machine_show_all(struct warden *w)
{
    DIR *d = dir_open_at(w->dir.dirfd, SHOWN_DIR);
    struct dirent *e;
    int r = 0;

    while (r == 0 && d && (e = readdir(d))) {
        auto_free char *text = NULL;
        size_t len;
        if (e->d_name[0] == '.')
            continue;
        r = read_file_at(dirfd(d), e->d_name, CELLA_GUEST_SHOWN_BYTES, &text, &len);
        if (r == 0)
            r = show_file(w, e->d_name, text, len);
        if (!strcmp(e->d_name, "denials"))
            w->machine->denials.sent = len;
    }
    if (d)
        closedir(d);
    return r;
}

int machine_shown(struct warden *w)
{
    return w->machine->guest ? machine_show_all(w) : 0; /* before the start: all files go then */
}
