/*
 * admin.c - looking at a store, and what operators do to it.
 */
#include "admin.h"

#include "claim_timeout.h"
#include "handle.h"
#include "os.h"
#include "validity.h"

#include <stdlib.h>
#include <string.h>

enum { WATCH_LOOK_US = 250000, TOLD_US = 100000, PRUNE_MIN_MS = 60000 };

/* ---- rows as people see them ---- */

static void show_party(const hf_party *p, struct hf_time now, hf_party_info *to)
{
    memset(to, 0, sizeof *to);
    memcpy(to->owner, p->owner, (size_t)p->owner_len + 1);
    memcpy(to->note, p->note, (size_t)p->note_len + 1);
    to->token = p->token;
    to->since_us = p->since_us;
    to->mode = (enum hf_mode)p->mode;
    to->limit = p->limit;
    to->claimed = !(p->flags & HF_PARTY_UNCLAIMED);
    if (p->token) /* and isn't over */
        to->left_ms = p->expires_us ? (p->expires_us - now.lo_us + 999) / 1000 : HF_FOREVER;
}

static int over(hf *h, const hf_party *p, struct hf_time now)
{
    return hf__validity_at(p->expires_us, now) == HF_GRANT_OVER || hf__port_dead(&h->port, p);
}

/* How long the session of a holder lives, where that is its end. Asked once for many that share it.
   If the store doesn't say, nothing is said. */
static void show_left(hf *h, const hf_party *p, hf_party_info *to)
{
    int64_t now = hf__local_us(), left_ms = HF_FOREVER;
    if (!h->port.caps.sessions || !p->token || p->expires_us) return;
    pthread_mutex_lock(&h->mu);
    int known = h->told.session == p->session && now - h->told.at_us < TOLD_US;
    if (known) left_ms = h->told.left_ms;
    pthread_mutex_unlock(&h->mu);
    if (!known) {
        if (hf__port_lease_left(&h->port, p->session, &left_ms, NULL) == HF_LOST) left_ms = 0;
        pthread_mutex_lock(&h->mu);
        h->told.session = p->session;
        h->told.left_ms = left_ms;
        h->told.at_us = now;
        pthread_mutex_unlock(&h->mu);
    }
    to->left_ms = left_ms;
}

/* Shows a row; what `see` answered, or a negative code. */
static int show_row(hf *h, const char *key, const hf_row *row, hf_info_fn *see, void *arg,
                    hf_error *err)
{
    uint32_t n = row->n_holders + row->n_queue;
    hf_party_info *parties = malloc((n ? n : 1) * sizeof *parties);
    hf_info *info = calloc(1, sizeof *info);
    int rc = HF_NOMEM;
    if (!parties || !info) {
        hf_fail(err, rc, 0, "show '%s': out of memory", key);
        goto out;
    }
    struct hf_time now = hf__port_now(&h->port);
    memcpy(info->key, key, strlen(key) + 1);
    info->rev = row->rev;
    info->token = row->token;
    info->now_us = now.lo_us;
    if (hf__marked(row, now)) {
        info->done_us = row->done_us;
        info->keep_until_us = row->keep_until_us == INT64_MAX ? HF_FOREVER : row->keep_until_us;
        memcpy(info->result, row->result, (size_t)row->result_len + 1);
        memcpy(info->done_by, row->done_by, (size_t)row->done_by_len + 1);
    }
    size_t k = 0;
    for (uint32_t i = 0; i < n; i++) {
        const hf_party *p = &row->party[i];
        if (over(h, p, now)) continue;
        show_party(p, now, &parties[k]);
        show_left(h, p, &parties[k++]);
        if (i < row->n_holders)
            info->n_holders++;
        else
            info->n_waiters++;
    }
    info->parties = parties;
    rc = see(arg, info) ? 1 : 0;
out:
    free(parties);
    free(info);
    return rc;
}

int hf_peek(hf *h, const char *key, hf_info_fn *see, void *arg, hf_error *err)
{
    hf_rowkey k;
    hf_row row;
    int rc = hf_key_make(key, &k, err);
    if (!rc) rc = hf__begin_call(h, "show", err);
    if (rc) return rc;
    hf_row_init(&row);
    rc = hf__port_get(&h->port, &k, &row, err);
    if (!rc) rc = show_row(h, key, &row, see, arg, err);
    hf_row_clear(&row);
    hf__end_call(h);
    return rc < 0 ? rc : 0;
}

struct listing {
    hf *h;
    hf_info_fn *see;
    void *arg;
    hf_error *err;
    int code, stopped;
};

static int list_one(void *arg, const hf_rowkey *key, hf_row *row)
{
    struct listing *l = arg;
    int rc = 0;
    if (hf__closing(l->h))
        rc = hf_fail(l->err, HF_CANCELED, 0, "list: the store is being closed");
    else
        rc = show_row(l->h, key->text, row, l->see, l->arg, l->err);
    if (rc < 0) l->code = rc;
    if (rc > 0) l->stopped = 1;
    return rc != 0;
}

/* What a row says depends on the clock, which the store tells with its replies: here the first
   reply is a row already. Asks for some other before. */
static int learn_clock(hf *h, hf_error *err)
{
    hf_rowkey any;
    hf_row row;
    if (hf__port_now(&h->port).lo_us > 0) return 0;
    hf_row_init(&row);
    hf_key_make("holdfast", &any, NULL);
    int rc = hf__port_get(&h->port, &any, &row, err);
    hf_row_clear(&row);
    return rc == HF_CORRUPT ? 0 : rc; /* which is told to who asks for it */
}

struct scanning {
    hf *h;
    int (*see)(void *, const hf_rowkey *, hf_row *);
    void *arg;
    /* Told of each damaged row, after which the scan goes on. NULL: it ends with the first. */
    void (*damaged)(void *, const char *key, const char *why);
    void *damaged_arg;
    int code; /* of the first damaged row, or of what went wrong with looking at it */
    hf_error err;
};

/* A damaged row has to say itself what is wrong with it. */
static int see_damaged(struct scanning *s, const hf_rowkey *key)
{
    hf_row row;
    hf_error err;
    int stop = 1;
    hf_row_init(&row);
    int rc = hf__port_get(&s->h->port, key, &row, &err);
    if (!rc) { /* it has been mended, or removed */
        stop = row.rev ? s->see(s->arg, key, &row) : 0;
    } else if (rc == HF_CORRUPT && s->damaged) {
        s->damaged(s->damaged_arg, key->text, err.text);
        stop = 0;
    }
    hf_row_clear(&row);
    if (rc && (!s->code || rc != HF_CORRUPT)) {
        s->code = rc;
        s->err = err;
    }
    return stop;
}

/* What isn't the name of a key isn't a lock, for nobody can name it: something else of somebody's,
   which stays where it is. */
static int see_scanned(void *arg, const hf_rowkey *key, hf_row *row)
{
    struct scanning *s = arg;
    hf_rowkey legal;
    if (hf_key_make(key->text, &legal, NULL)) return 0;
    return row ? s->see(s->arg, key, row) : see_damaged(s, key);
}

/* Scans with the clock learnt and the store serialized, like every request. */
static int scan(struct scanning *s, const char *prefix, hf_error *err)
{
    hf *h = s->h;
    if (!h->port.drv->scan)
        return hf_fail(err, HF_UNSUPPORTED, 0, "list: this store can't list its keys");
    int rc = learn_clock(h, err);
    if (rc) return rc;
    rc = hf__port_scan(&h->port, prefix ? prefix : "", see_scanned, s, err);
    if (!rc && s->code) {
        rc = s->code;
        if (err) *err = s->err;
    }
    return rc;
}

int hf__list(hf *h, const char *prefix, hf_info_fn *see,
             void (*damaged)(void *arg, const char *key, const char *why), void *arg, hf_error *err)
{
    hf_error own;
    struct listing l = {h, see, arg, &own, 0, 0};
    struct scanning s = {.h = h, .see = list_one, .arg = &l};
    s.damaged = damaged;
    s.damaged_arg = arg;
    int rc = hf__begin_call(h, "list", err);
    if (rc) return rc;
    rc = scan(&s, prefix, err);
    hf__end_call(h);
    if (!l.code) return rc;
    if (err) *err = own;
    return l.code;
}

static void pass_over(void *arg, const char *key, const char *why)
{
    (void)arg, (void)key, (void)why;
}

int hf_list(hf *h, const char *prefix, hf_info_fn *see, void *arg, hf_error *err)
{
    return hf__list(h, prefix, see, pass_over, arg, err);
}

int hf__inspect(hf *h, void (*say)(void *arg, int ok, const char *text), void *arg, hf_error *err)
{
    int rc = hf__begin_call(h, "inspect", err);
    if (rc) return rc;
    rc = hf__port_inspect(&h->port, say, arg, err);
    hf__end_call(h);
    return rc;
}

int hf_store_warning(hf *h, char *ret, size_t cap)
{
    if (!cap || hf__begin_call(h, "warning", NULL)) return 0;
    int found = hf__port_warning(&h->port, ret, cap);
    hf__end_call(h);
    return found;
}

/* ---- watching ---- */

struct seen { /* a key that was shown as held or waited for */
    char *key;
    uint64_t hash, shape;
    int round;
};

struct watching {
    struct listing l;
    struct seen *seen;
    size_t n, cap;
    int round;
};

/* What of a row people watch: who holds, who waits; not each renewal. */
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

/* Only keys that are held or waited for are remembered: a free one that changes was told when it
   became free, and its row may be gone by now. */
static int watch_one(void *arg, const hf_rowkey *key, hf_row *row)
{
    struct watching *w = arg;
    struct hf_time now = hf__port_now(&w->l.h->port);
    struct seen *s = find_seen(w, key);
    uint32_t n = row->n_holders + row->n_queue, i = 0;
    /* What is over would be shown as free. To ask whether a session lives takes a system call: not
       for each row at each look. */
    while (!s && i < n && over(w->l.h, &row->party[i], now)) i++;
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
    return changed ? list_one(&w->l, key, row) : 0;
}

/* Stores that drop the rows of free keys don't show them in a scan any more. */
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
        if (read) list_one(&w->l, &key, &row);
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
    struct watching w = {.l = {h, see, arg, err, 0, 0}};
    struct scanning s = {.h = h, .see = watch_one, .arg = &w};
    int rc = hf__begin_call(h, "watch", err);
    if (rc) return rc;
    while (!rc) {
        w.round++;
        rc = scan(&s, prefix, err);
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

/* ---- operating ---- */

/* One event for a key, by an operator. `what`: the call, for messages. */
static int operate(hf *h, const char *what, const char *key, struct hf_event *ev,
                   struct hf_outcome *out, hf_error *err)
{
    hf_row row;
    struct hf_entry *e = NULL;
    int rc = hf__begin_call(h, what, err);
    if (rc) return rc;
    const struct hf_name name = hf__name(key);
    pthread_mutex_lock(&h->mu);
    rc = hf__entry(h, name, &e, err);
    pthread_mutex_unlock(&h->mu);
    if (rc) {
        hf__end_call(h);
        return rc;
    }
    hf_row_init(&row);
    int64_t until = hf__local_us() + h->port.io_timeout_ms * 1000;
    rc = hf__turn(&h->port, &e->key, ev, &row, 0, until, out, err);
    if (!rc) hf__watch_claim(h, e, &row);
    hf_row_clear(&row);
    /* What a power cut must not bring back. */
    if (!rc && ev->kind == HF_EV_FORGET && out->answer == HF_ANS_OK)
        rc = hf__port_sync(&h->port, &e->key, err);
    pthread_mutex_lock(&h->mu);
    hf__entry_unref(e);
    hf__leave_call(h);
    pthread_mutex_unlock(&h->mu);
    return rc;
}

int hf_break(hf *h, const char *key, uint64_t token, hf_error *err)
{
    struct hf_event ev = {.kind = HF_EV_BREAK, .token = token};
    struct hf_outcome out;
    int rc = operate(h, "break", key, &ev, &out, err);
    if (!rc && out.answer != HF_ANS_OK)
        rc = hf_fail(err, HF_LOST, 0, "break '%s': the grant %llu is over", key,
                     (unsigned long long)token);
    return rc;
}

int hf_forget(hf *h, const char *key, hf_error *err)
{
    struct hf_event ev = {.kind = HF_EV_FORGET};
    struct hf_outcome out;
    int rc = operate(h, "forget", key, &ev, &out, err);
    if (!rc && out.answer != HF_ANS_OK)
        rc = hf_fail(err, HF_LOST, 0, "forget '%s': it is not marked as done", key);
    return rc;
}

struct pruning {
    hf *h;
    int64_t idle_us;
    uint64_t n;
    hf_error *err;
    int code;
};

static int prune_one(void *arg, const hf_rowkey *key, hf_row *row)
{
    struct pruning *p = arg;
    if (!hf__prunable(row, hf__port_now(&p->h->port), p->idle_us)) return 0;
    if (hf__closing(p->h)) {
        p->code = hf_fail(p->err, HF_CANCELED, 0, "prune: the store is being closed");
        return 1;
    }
    int rc = hf__port_replace(&p->h->port, key, row->rev, NULL, NULL, p->err);
    /* A conflict: somebody uses it after all. An unknown outcome is harmless: it may be gone. */
    if (!rc) p->n++;
    if (rc < 0 && rc != HF_UNKNOWN) p->code = rc;
    return p->code != 0;
}

int hf_prune(hf *h, int64_t idle_ms, uint64_t *ret_n, hf_error *err)
{
    struct pruning p = {h, 0, 0, err, 0};
    struct scanning s = {.h = h, .see = prune_one, .arg = &p};
    int rc = hf__alive(h, "prune", err);
    if (!rc && (idle_ms < PRUNE_MIN_MS || idle_ms > INT64_C(3153600000000)))
        rc = hf_fail(err, HF_INVALID, 0, "prune: idle_ms: must be 60,000 to 3,153,600,000,000");
    if (rc) return rc;
    rc = hf__begin_call(h, "prune", err);
    if (rc) return rc;
    p.idle_us = idle_ms * 1000;
    rc = scan(&s, "", err);
    hf__end_call(h);
    if (!rc) rc = p.code;
    if (!rc && ret_n) *ret_n += p.n;
    return rc;
}

int hf_get_stats(hf *h, hf_stats *ret)
{
    if (ret->size < sizeof *ret) return HF_INVALID;
    int rc = hf__alive(h, "stats", NULL);
    if (rc) return rc;
    pthread_mutex_lock(&h->mu);
    size_t size = ret->size;
    *ret = h->stats;
    ret->size = size;
    ret->store_ops += __atomic_load_n(&h->port.ops, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&h->mu);
    return 0;
}

/* ---- grants that nothing was done with ---- */

void hf__give_up(hf_lock *l)
{
    if (!l || hf__held_here(l, "release", NULL)) return;
    pthread_mutex_lock(&l->h->mu);
    l->at_least_ms = 0;
    pthread_mutex_unlock(&l->h->mu);
    (void)hf_release(l, NULL);
}
