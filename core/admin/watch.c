/*
 * watch.c - hf_watch, which shows each key whose holders or waiters change.
 */
#include "admin.h"
#include "handle.h"
#include "info.h"
#include "list.h"
#include "thread.h"
#include "validity.h"

#include <stdlib.h>
#include <string.h>

enum { WATCH_LOOK_US = 250000 };

struct seen { /* a key that was shown as held or waited for */
    char *key;
    uint64_t hash, shape; /* shape: shape_of the row when it was seen last */
    int round;            /* the look at the store in which it was seen last */
};

struct watching {
    struct hf_listing l;
    struct seen *seen;
    size_t n, cap;
    int round;
};

/* Returns a hash of those parts of a row whose change a watch shows: holders, waiters and marker,
   but not the ends of leases. */
static uint64_t shape_of(const hf_row *row, struct hf_time now)
{
    uint64_t shape = hf_key_hash("", 0) + (uint64_t)row->done_us;
    for (uint32_t i = 0; i < row->n_holders + row->n_queue; i++) {
        const hf_party *p = &row->party[i];
        int ended = hf__validity_at(p->expires_us, now) == HF_GRANT_OVER;
        shape = shape * 31 + hf_key_hash((const char *)p->id, 16) + p->token + p->flags +
                (unsigned)ended;
    }
    return shape;
}

static struct seen *find_seen(struct watching *w, const hf_rowkey *key)
{
    for (size_t i = 0; i < w->n; i++)
        if (w->seen[i].hash == key->hash && !strcmp(w->seen[i].key, key->text)) return &w->seen[i];
    return NULL;
}

static struct seen *add_seen(struct watching *w, const hf_rowkey *key)
{
    if (w->n == w->cap) {
        size_t cap = w->cap ? w->cap * 2 : 64;
        struct seen *more = realloc(w->seen, cap * sizeof *more);
        if (!more) return NULL;
        w->seen = more;
        w->cap = cap;
    }
    w->seen[w->n] = (struct seen){strdup(key->text), key->hash, 0, 0};
    return w->seen[w->n].key ? &w->seen[w->n++] : NULL;
}

static void forget_seen(struct watching *w, struct seen *s)
{
    free(s->key);
    *s = w->seen[--w->n];
}

/* Shows a row if it has changed since the last look. Only keys that are held or waited for are
   remembered. A key is shown once more when it becomes free, and then forgotten. */
static int watch_one(void *arg, const hf_rowkey *key, hf_row *row)
{
    struct watching *w = arg;
    struct hf_time now = hf__port_now(&w->l.h->port);
    struct seen *s = find_seen(w, key);
    uint32_t n = row->n_holders + row->n_queue, i = 0;
    /* A key that is new here is shown only if one of its parties isn't over. Known keys aren't
       asked about, because to find out whether a session lives takes a system call. */
    while (!s && i < n && hf__party_ended(w->l.h, &row->party[i], now)) i++;
    int idle = i == n;
    if (idle && !s) return 0;
    if (!s && !(s = add_seen(w, key))) {
        w->l.code = hf_fail(w->l.err, HF_NOMEM, 0, "watch: out of memory");
        return 1;
    }
    uint64_t shape = shape_of(row, now);
    int changed = !s->round || s->shape != shape;
    s->round = w->round;
    s->shape = shape;
    if (idle) forget_seen(w, s);
    return changed ? hf__list_one(&w->l, key, row) : 0;
}

/* Shows the remembered keys that the scan no longer has, and forgets them: some stores delete the
   row of a key that becomes free. */
static void watch_vanished(struct watching *w)
{
    for (size_t i = 0; i < w->n && !w->l.code && !w->l.stopped;) {
        hf_rowkey key;
        hf_row row;
        if (w->seen[i].round == w->round) {
            i++;
            continue;
        }
        hf_row_init(&row);
        hf_key_make(w->seen[i].key, &key, NULL);
        w->l.code = hf__port_get(&w->l.h->port, &key, &row, w->l.err);
        int read = !w->l.code;
        if (read) hf__list_one(&w->l, &key, &row);
        hf_row_clear(&row);
        if (read) forget_seen(w, &w->seen[i]);
    }
}

int hf_watch(hf *h, const char *prefix, hf_info_fn *see, void *arg, hf_error *err)
{
    return hf__watch(h, prefix, see, NULL, arg, err);
}

int hf__watch(hf *h, const char *prefix, hf_info_fn *see, hf_failed_look_fn *failed, void *arg,
              hf_error *err)
{
    HF_NOT_CANCELED;
    struct watching w = {.l = {h, see, arg, err, 0, 0}};
    struct hf_scanning s = {.h = h, .see = watch_one, .arg = &w};
    int rc = hf__begin_call(h, "watch", err);
    if (rc) return rc;
    while (!rc) {
        w.round++;
        rc = hf__scan(&s, prefix, err);
        if (!rc && !w.l.code && !w.l.stopped) watch_vanished(&w);
        if (!rc) rc = w.l.code;
        if (rc && failed && !failed(arg, err))
            rc = w.l.code = 0;
        else if (rc || w.l.stopped || see(arg, NULL))
            break;
        hf__pause(WATCH_LOOK_US);
        if (hf__closing(h)) rc = hf_fail(err, HF_CANCELED, 0, "watch: the store is being closed");
    }
    hf__end_call(h);
    for (size_t i = 0; i < w.n; i++) free(w.seen[i].key);
    free(w.seen);
    return rc;
}
