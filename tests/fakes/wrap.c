/*
 * wrap.c - see wrap.h.
 */
#include "wrap.h"

#include "os.h"

#include <stdlib.h>

const char *hf__op_name(enum hf__op op)
{
    static const char *const names[HF__OPS] = {
        [HF__OP_GET] = "get",         [HF__OP_SWAP] = "replace",
        [HF__OP_ACQUIRE] = "acquire", [HF__OP_UPDATE] = "update",
        [HF__OP_SCAN] = "scan",       [HF__OP_SYNC] = "sync",
        [HF__OP_ENTER] = "enter",     [HF__OP_SESSION] = "session",
        [HF__OP_ALIVE] = "alive",     [HF__OP_LEASE] = "lease",
        [HF__OP_KEEP] = "keep",       [HF__OP_LEFT] = "left",
        [HF__OP_END] = "end",         [HF__OP_LISTEN] = "listen",
        [HF__OP_WATCH] = "watch",     [HF__OP_INTERRUPT] = "interrupt",
        [HF__OP_INSPECT] = "inspect", [HF__OP_CLOSE] = "close",
    };
    return names[op];
}

static struct hf__wrap *of(hf_store *st) { return (struct hf__wrap *)st; }

static struct hf__call call_of(enum hf__op op, const hf_rowkey *key)
{
    struct hf__call c = {.op = op, .key = key, .start_us = hf__local_us()};
    return c;
}

static void give_clock(const struct hf__wrap *w, int64_t *ret_clock_us)
{
    if (w->give_clock) *ret_clock_us = w->base_caps.local->now(w->st);
}

/* The answer of a call that shows a row, which its caller mayn't be to see. */
static int shown(struct hf__wrap *w, struct hf__call *c, int rc, hf_row *unseen,
                 int64_t *ret_clock_us, hf_error *err)
{
    if (rc && rc != HF_CONFLICT) c->row = NULL;
    give_clock(w, ret_clock_us);
    rc = w->after(w, c, rc, err);
    hf_row_clear(unseen);
    return rc;
}

static int wr_get(hf_store *st, const hf_rowkey *key, hf_row *row, int64_t *ret_clock_us,
                  hf_error *err)
{
    struct hf__wrap *w = of(st);
    struct hf__call c = call_of(HF__OP_GET, key);
    hf_row unseen;
    int rc = w->before(w, &c, err);
    if (rc) return rc;
    hf_row_init(&unseen);
    c.row = c.lose ? &unseen : row;
    rc = w->base->get(w->st, key, c.lose ? &unseen : row, ret_clock_us, err);
    return shown(w, &c, rc, &unseen, ret_clock_us, err);
}

static int wr_replace(hf_store *st, const hf_rowkey *key, uint64_t seen, const hf_row *row,
                      hf_row *cur, int64_t *ret_clock_us, hf_error *err)
{
    struct hf__wrap *w = of(st);
    struct hf__call c = call_of(HF__OP_SWAP, key);
    c.seen = seen;
    int rc = w->before(w, &c, err);
    if (rc) return rc;
    if (c.lose) cur = NULL;
    rc = w->base->replace(w->st, key, seen, row, cur, ret_clock_us, err);
    c.row = !rc ? row : rc == HF_CONFLICT ? cur : NULL;
    give_clock(w, ret_clock_us);
    return w->after(w, &c, rc, err);
}

/* Calls the hooks for each replace. Replaces that a hook doesn't let through aren't sent to the
   store. */
static int wr_replace_many(hf_store *st, hf_replace *item, size_t n, int64_t until_us)
{
    struct hf__wrap *w = of(st);
    struct hf__call *call = calloc(n + 1, sizeof *call);
    hf_replace *made = calloc(n + 1, sizeof *made);
    size_t n_made = 0;
    int rc = 0;
    for (size_t i = 0; i < n; i++) {
        if (!call || !made) {
            item[i].result = HF_NOMEM;
            continue;
        }
        call[i] = call_of(HF__OP_SWAP, item[i].key);
        call[i].seen = item[i].seen;
        item[i].result = w->before(w, &call[i], item[i].err);
        if (!item[i].result) made[n_made++] = item[i];
        if (!item[i].result) made[n_made - 1].result = HF_UNKNOWN;
    }
    if (made && (n_made || !n)) rc = w->base->replace_many(w->st, made, n_made, until_us);
    for (size_t i = 0, m = 0; made && call && i < n; i++) {
        if (item[i].result) continue;
        item[i] = made[m++];
        int was = item[i].result;
        call[i].row = !was ? item[i].row : was == HF_CONFLICT ? item[i].cur : NULL;
        item[i].result = w->after(w, &call[i], was, item[i].err);
        if (call[i].lose) hf_row_clear(item[i].cur);
    }
    free(call);
    free(made);
    return rc;
}

static int wr_acquire(hf_store *st, const hf_rowkey *key, const hf_party *party, uint32_t may_queue,
                      hf_row *cur, int64_t *ret_clock_us, hf_error *err)
{
    struct hf__wrap *w = of(st);
    struct hf__call c = call_of(HF__OP_ACQUIRE, key);
    hf_row unseen;
    int rc = w->before(w, &c, err);
    if (rc) return rc;
    hf_row_init(&unseen);
    hf_row *to = c.lose ? &unseen : cur;
    c.row = to;
    rc = w->base->acquire(w->st, key, party, may_queue, to, ret_clock_us, err);
    return shown(w, &c, rc, &unseen, ret_clock_us, err);
}

static int wr_update(hf_store *st, const hf_rowkey *key, int (*step)(void *arg, hf_row *row),
                     void *arg, hf_row *row, hf_error *err)
{
    struct hf__wrap *w = of(st);
    struct hf__call c = call_of(HF__OP_UPDATE, key);
    int64_t no_clock_us;
    hf_row unseen;
    int rc = w->before(w, &c, err);
    if (rc) return rc;
    hf_row_init(&unseen);
    c.row = c.lose ? &unseen : row;
    rc = w->base_caps.local->update(w->st, key, step, arg, c.lose ? &unseen : row, err);
    return shown(w, &c, rc, &unseen, &no_clock_us, err);
}

static int wr_scan(hf_store *st, const char *prefix,
                   int (*see)(void *arg, const hf_rowkey *, hf_row *), void *arg,
                   int64_t *ret_clock_us, hf_error *err)
{
    struct hf__wrap *w = of(st);
    struct hf__call c = call_of(HF__OP_SCAN, NULL);
    c.prefix = prefix;
    int rc = w->before(w, &c, err);
    if (rc) return rc;
    rc = w->base->scan(w->st, prefix, see, arg, ret_clock_us, err);
    give_clock(w, ret_clock_us);
    return w->after(w, &c, rc, err);
}

static int wr_sync(hf_store *st, const hf_rowkey *key, hf_error *err)
{
    struct hf__wrap *w = of(st);
    struct hf__call c = call_of(HF__OP_SYNC, key);
    int rc = w->before(w, &c, err);
    return rc ? rc : w->after(w, &c, w->base->sync(w->st, key, err), err);
}

static int wr_enter(hf_store *st, const hf_rowkey *key, uint64_t token, int alone,
                    const char *where, hf_error *err)
{
    struct hf__wrap *w = of(st);
    struct hf__call c = call_of(HF__OP_ENTER, key);
    int rc = w->before(w, &c, err);
    return rc ? rc : w->after(w, &c, w->base->enter(w->st, key, token, alone, where, err), err);
}

static int wr_session(hf_store *st, uint64_t *ret, hf_error *err)
{
    struct hf__wrap *w = of(st);
    struct hf__call c = call_of(HF__OP_SESSION, NULL);
    uint64_t unseen;
    int rc = w->before(w, &c, err);
    return rc ? rc
              : w->after(w, &c, w->base_caps.liveness->session(w->st, c.lose ? &unseen : ret, err),
                         err);
}

static int wr_alive(hf_store *st, uint64_t session, hf_error *err)
{
    struct hf__wrap *w = of(st);
    struct hf__call c = call_of(HF__OP_ALIVE, NULL);
    c.session = session;
    int rc = w->before(w, &c, err);
    return rc ? rc : w->after(w, &c, w->base_caps.liveness->alive(w->st, session, err), err);
}

static int wr_session_make(hf_store *st, int64_t lease_ms, uint64_t *ret, int64_t *ret_ms,
                           int64_t *ret_clock_us, hf_error *err)
{
    struct hf__wrap *w = of(st);
    struct hf__call c = call_of(HF__OP_LEASE, NULL);
    int rc = w->before(w, &c, err);
    if (rc) return rc;
    rc = w->base_caps.sessions->make(w->st, lease_ms, &c.session, ret_ms, ret_clock_us, err);
    if (!rc) *ret = c.session;
    return w->after(w, &c, rc, err);
}

static int wr_session_keep(hf_store *st, uint64_t session, int64_t until_us, int64_t *ret_ms,
                           hf_error *err)
{
    struct hf__wrap *w = of(st);
    struct hf__call c = call_of(HF__OP_KEEP, NULL);
    c.session = session;
    int rc = w->before(w, &c, err);
    if (!rc)
        rc = w->after(w, &c, w->base_caps.sessions->keep(w->st, session, until_us, ret_ms, err),
                      err);
    return rc;
}

static int wr_session_left(hf_store *st, uint64_t session, int64_t *ret_ms, hf_error *err)
{
    struct hf__wrap *w = of(st);
    struct hf__call c = call_of(HF__OP_LEFT, NULL);
    c.session = session;
    int rc = w->before(w, &c, err);
    return rc ? rc : w->after(w, &c, w->base_caps.sessions->left(w->st, session, ret_ms, err), err);
}

static int wr_session_end(hf_store *st, uint64_t session, hf_error *err)
{
    struct hf__wrap *w = of(st);
    struct hf__call c = call_of(HF__OP_END, NULL);
    c.session = session;
    int rc = w->before(w, &c, err);
    return rc ? rc : w->after(w, &c, w->base_caps.sessions->end(w->st, session, err), err);
}

static int wr_session_stale(hf_store *st, uint64_t session)
{
    return of(st)->base_caps.sessions->stale(of(st)->st, session);
}

static int wr_session_fd(hf_store *st)
{
    return of(st)->base_caps.liveness->session_fd(of(st)->st);
}

static int wr_wakeup_begin(hf_store *st, uint8_t wakeup, size_t n, hf_event_count *ret,
                           hf_error *err)
{
    struct hf__wrap *w = of(st);
    struct hf__call c = call_of(HF__OP_LISTEN, NULL);
    hf_event_count unseen;
    int rc = w->before(w, &c, err);
    if (rc) return rc;
    rc = w->base_caps.local->wakeup_begin(w->st, wakeup, n, c.lose ? &unseen : ret, err);
    return w->after(w, &c, rc, err);
}

static int wr_sleep(hf_store *st, uint8_t wakeup, const hf_event_count *since, int64_t until_us,
                    hf_error *err)
{
    struct hf__wrap *w = of(st);
    struct hf__call c = call_of(HF__OP_WATCH, NULL);
    int rc = w->before(w, &c, err);
    if (rc) return rc;
    int asked = w->base_caps.local->sleep(w->st, wakeup, since, until_us, err);
    rc = w->after(w, &c, asked < 0 ? asked : 0, err);
    return rc ? rc : asked;
}

static void wr_wake(hf_store *st, uint8_t wakeup)
{
    struct hf__wrap *w = of(st);
    struct hf__call c = call_of(HF__OP_INTERRUPT, NULL);
    if (w->before(w, &c, NULL)) return;
    w->base_caps.local->interrupt(w->st, wakeup);
    w->after(w, &c, 0, NULL);
}

static int wr_local_event(hf_store *st, uint8_t wakeup, hf_key_event *ret)
{
    return of(st)->base_caps.local->next_event(of(st)->st, wakeup, ret);
}

/* ---- notifications: the store's own; or of a local store that gives its clock, wakeup 0 ---- */

static const hf_notify_ops *notify_of(hf_store *st) { return of(st)->base_caps.notify; }

static int wr_subscribe(hf_store *st, const hf_rowkey *key)
{
    struct hf__wrap *w = of(st);
    struct hf__call c = call_of(HF__OP_LISTEN, key);
    if (!notify_of(st)) return 0;
    int rc = w->before(w, &c, NULL);
    return rc ? rc : w->after(w, &c, notify_of(st)->subscribe(w->st, key), NULL);
}

static void wr_unsubscribe(hf_store *st, const hf_rowkey *key)
{
    if (notify_of(st)) notify_of(st)->unsubscribe(of(st)->st, key);
}

static int wr_flush(hf_store *st, hf_event_count *ret, hf_error *err)
{
    struct hf__wrap *w = of(st);
    if (!notify_of(st)) return wr_wakeup_begin(st, 0, 0, ret, err);
    struct hf__call c = call_of(HF__OP_LISTEN, NULL);
    hf_event_count unseen;
    int rc = w->before(w, &c, err);
    if (rc) return rc;
    return w->after(w, &c, notify_of(st)->flush(w->st, c.lose ? &unseen : ret, err), err);
}

static int wr_notify_sleep(hf_store *st, const hf_event_count *since, int64_t until_us,
                           hf_error *err)
{
    struct hf__wrap *w = of(st);
    if (!notify_of(st)) return wr_sleep(st, 0, since, until_us, err);
    struct hf__call c = call_of(HF__OP_WATCH, NULL);
    int rc = w->before(w, &c, err);
    if (rc) return rc;
    int asked = notify_of(st)->sleep(w->st, since, until_us, err);
    rc = w->after(w, &c, asked < 0 ? asked : 0, err);
    return rc ? rc : asked;
}

static int wr_next_event(hf_store *st, hf_key_event *ret)
{
    return notify_of(st) ? notify_of(st)->next_event(of(st)->st, ret) : wr_local_event(st, 0, ret);
}

static int wr_payload(hf_store *st, const hf_rowkey *key, hf_row *row)
{
    return notify_of(st)->payload(of(st)->st, key, row);
}

static void wr_interrupt(hf_store *st)
{
    struct hf__wrap *w = of(st);
    if (!notify_of(st)) {
        wr_wake(st, 0);
        return;
    }
    struct hf__call c = call_of(HF__OP_INTERRUPT, NULL);
    if (w->before(w, &c, NULL)) return;
    notify_of(st)->interrupt(w->st);
    w->after(w, &c, 0, NULL);
}

static int wr_inspect(hf_store *st, void (*say)(void *arg, int ok, const char *text), void *arg,
                      hf_error *err)
{
    struct hf__wrap *w = of(st);
    struct hf__call c = call_of(HF__OP_INSPECT, NULL);
    int rc = w->before(w, &c, err);
    return rc ? rc : w->after(w, &c, w->base->inspect(w->st, say, arg, err), err);
}

static int64_t wr_now(hf_store *st) { return of(st)->base_caps.local->now(of(st)->st); }
static int wr_death_fd(hf_store *st) { return of(st)->base_caps.liveness->death_fd(of(st)->st); }
static int wr_death_read(hf_store *st)
{
    return of(st)->base_caps.liveness->death_read(of(st)->st);
}

static void wr_close(hf_store *st)
{
    struct hf__wrap *w = of(st);
    struct hf__call c = call_of(HF__OP_CLOSE, NULL);
    w->before(w, &c, NULL);
    w->base->close(w->st);
    w->after(w, &c, 0, NULL);
    w->end(w);
    free(w);
}

/* A store that gives its clock isn't local any more: it is watched by wakeup 0, which is that of
   all its parties then. */
static void wrap_groups(struct hf__wrap *w, hf_caps *caps)
{
    const hf_caps *base = &w->base_caps;
    w->local = (hf_local_ops){.now = wr_now,
                              .update = base->local && base->local->update ? wr_update : NULL,
                              .wakeup_begin = wr_wakeup_begin,
                              .sleep = wr_sleep,
                              .interrupt = wr_wake,
                              .next_event = wr_local_event};
    if (base->liveness) w->liveness = *base->liveness;
    w->liveness.session = wr_session;
    w->liveness.alive = wr_alive;
    if (w->liveness.session_fd) w->liveness.session_fd = wr_session_fd;
    if (w->liveness.death_fd) w->liveness.death_fd = wr_death_fd;
    if (w->liveness.death_read) w->liveness.death_read = wr_death_read;
    w->sessions = (hf_session_ops){.make = wr_session_make,
                                   .keep = wr_session_keep,
                                   .left = wr_session_left,
                                   .end = wr_session_end};
    if (base->sessions && base->sessions->stale) w->sessions.stale = wr_session_stale;
    if (base->local) caps->local = &w->local;
    if (base->liveness) caps->liveness = &w->liveness;
    if (base->sessions) caps->sessions = &w->sessions;
    w->notify = (hf_notify_ops){.subscribe = wr_subscribe,
                                .unsubscribe = wr_unsubscribe,
                                .flush = wr_flush,
                                .sleep = wr_notify_sleep,
                                .next_event = wr_next_event,
                                .interrupt = wr_interrupt};
    if (base->notify && base->notify->payload) w->notify.payload = wr_payload;
    if (base->notify || w->give_clock) caps->notify = &w->notify;
    if (w->give_clock) caps->local = NULL;
}

void hf__wrap(struct hf__wrap *w, const hf_driver **drv, hf_store **st, hf_caps *caps)
{
    const hf_driver *base = *drv;
    w->base = base;
    w->base_caps = *caps;
    w->st = *st;
    w->shown = *base;
    w->shown.close = wr_close;
    w->shown.get = wr_get;
    w->shown.replace = wr_replace;
    /* An operation that the store doesn't have isn't offered. */
    if (base->replace_many) w->shown.replace_many = wr_replace_many;
    if (base->acquire) w->shown.acquire = wr_acquire;
    if (base->enter) w->shown.enter = wr_enter;
    if (base->sync) w->shown.sync = wr_sync;
    if (base->scan) w->shown.scan = wr_scan;
    if (base->inspect) w->shown.inspect = wr_inspect;
    wrap_groups(w, caps);
    w->shown.caps = *caps;
    *drv = &w->shown;
    *st = (hf_store *)w;
}
