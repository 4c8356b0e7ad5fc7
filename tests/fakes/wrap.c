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
    if (w->give_clock) *ret_clock_us = w->base->now(w->st);
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

/* To the hooks each of them is a replace. What they don't let through isn't asked of the store. */
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
    rc = w->base->update(w->st, key, step, arg, c.lose ? &unseen : row, err);
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
    return rc ? rc : w->after(w, &c, w->base->session(w->st, c.lose ? &unseen : ret, err), err);
}

static int wr_alive(hf_store *st, uint64_t session, hf_error *err)
{
    struct hf__wrap *w = of(st);
    struct hf__call c = call_of(HF__OP_ALIVE, NULL);
    c.session = session;
    int rc = w->before(w, &c, err);
    return rc ? rc : w->after(w, &c, w->base->alive(w->st, session, err), err);
}

static int wr_lease_make(hf_store *st, int64_t lease_ms, uint64_t *ret, int64_t *ret_ms,
                         int64_t *ret_clock_us, hf_error *err)
{
    struct hf__wrap *w = of(st);
    struct hf__call c = call_of(HF__OP_LEASE, NULL);
    int rc = w->before(w, &c, err);
    if (rc) return rc;
    rc = w->base->lease_make(w->st, lease_ms, &c.session, ret_ms, ret_clock_us, err);
    if (!rc) *ret = c.session;
    return w->after(w, &c, rc, err);
}

static int wr_lease_keep(hf_store *st, uint64_t session, int64_t until_us, int64_t *ret_ms,
                         hf_error *err)
{
    struct hf__wrap *w = of(st);
    struct hf__call c = call_of(HF__OP_KEEP, NULL);
    c.session = session;
    int rc = w->before(w, &c, err);
    if (!rc) rc = w->after(w, &c, w->base->lease_keep(w->st, session, until_us, ret_ms, err), err);
    return rc;
}

static int wr_lease_left(hf_store *st, uint64_t session, int64_t *ret_ms, hf_error *err)
{
    struct hf__wrap *w = of(st);
    struct hf__call c = call_of(HF__OP_LEFT, NULL);
    c.session = session;
    int rc = w->before(w, &c, err);
    return rc ? rc : w->after(w, &c, w->base->lease_left(w->st, session, ret_ms, err), err);
}

static int wr_lease_end(hf_store *st, uint64_t session, hf_error *err)
{
    struct hf__wrap *w = of(st);
    struct hf__call c = call_of(HF__OP_END, NULL);
    c.session = session;
    int rc = w->before(w, &c, err);
    return rc ? rc : w->after(w, &c, w->base->lease_end(w->st, session, err), err);
}

static int wr_lease_worn(hf_store *st, uint64_t session)
{
    return of(st)->base->lease_worn(of(st)->st, session);
}

static int wr_session_fd(hf_store *st) { return of(st)->base->session_fd(of(st)->st); }

static int wr_listen(hf_store *st, uint8_t bell, const hf_rowkey *const *keys, size_t n,
                     hf_ear *ret, hf_error *err)
{
    struct hf__wrap *w = of(st);
    struct hf__call c = call_of(HF__OP_LISTEN, n && keys ? keys[0] : NULL);
    hf_ear unseen;
    int rc = w->before(w, &c, err);
    if (rc) return rc;
    rc = w->base->listen(w->st, bell, keys, n, c.lose ? &unseen : ret, err);
    return w->after(w, &c, rc, err);
}

static int wr_watch(hf_store *st, uint8_t bell, const hf_ear *ear, int64_t until_us, hf_error *err)
{
    struct hf__wrap *w = of(st);
    struct hf__call c = call_of(HF__OP_WATCH, NULL);
    int rc = w->before(w, &c, err);
    if (rc) return rc;
    int asked = w->base->watch(w->st, bell, ear, until_us, err);
    rc = w->after(w, &c, asked < 0 ? asked : 0, err);
    return rc ? rc : asked;
}

static void wr_interrupt(hf_store *st, uint8_t bell)
{
    struct hf__wrap *w = of(st);
    struct hf__call c = call_of(HF__OP_INTERRUPT, NULL);
    if (w->before(w, &c, NULL)) return;
    w->base->interrupt(w->st, bell);
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

static int64_t wr_now(hf_store *st) { return of(st)->base->now(of(st)->st); }
static int wr_mourn_fd(hf_store *st) { return of(st)->base->mourn_fd(of(st)->st); }
static int wr_mourn_read(hf_store *st) { return of(st)->base->mourn_read(of(st)->st); }

static uint64_t wr_rang(hf_store *st, const hf_rowkey *key)
{
    return of(st)->base->rang(of(st)->st, key);
}

static int wr_next_event(hf_store *st, uint8_t bell, hf_key_event *ret)
{
    return of(st)->base->next_event(of(st)->st, bell, ret);
}

static int wr_subscribe(hf_store *st, const hf_rowkey *key)
{
    struct hf__wrap *w = of(st);
    struct hf__call c = call_of(HF__OP_LISTEN, key); /* which it is, of one key */
    int rc = w->before(w, &c, NULL);
    return rc ? rc : w->after(w, &c, w->base->subscribe(w->st, key), NULL);
}

static void wr_unsubscribe(hf_store *st, const hf_rowkey *key)
{
    of(st)->base->unsubscribe(of(st)->st, key);
}

static int wr_told(hf_store *st, const hf_rowkey *key, hf_row *row)
{
    return of(st)->base->told(of(st)->st, key, row);
}

/* Only of stores that have a choice. */
static unsigned wr_promises(hf_store *st) { return of(st)->base->promises(of(st)->st); }

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

void hf__wrap(struct hf__wrap *w, const hf_driver **drv, hf_store **st)
{
    const hf_driver *base = *drv;
    w->base = base;
    w->st = *st;
    w->shown = *base;
    w->shown.close = wr_close;
    w->shown.get = wr_get;
    w->shown.replace = wr_replace;
    /* What the store doesn't offer isn't offered. */
    if (base->replace_many) w->shown.replace_many = wr_replace_many;
    if (base->acquire) w->shown.acquire = wr_acquire;
    if (base->update) w->shown.update = wr_update;
    if (base->now) w->shown.now = wr_now;
    if (base->session) w->shown.session = wr_session;
    if (base->alive) w->shown.alive = wr_alive;
    if (base->lease_make) w->shown.lease_make = wr_lease_make;
    if (base->lease_keep) w->shown.lease_keep = wr_lease_keep;
    if (base->lease_left) w->shown.lease_left = wr_lease_left;
    if (base->lease_end) w->shown.lease_end = wr_lease_end;
    if (base->lease_worn) w->shown.lease_worn = wr_lease_worn;
    if (base->session_fd) w->shown.session_fd = wr_session_fd;
    if (base->listen) w->shown.listen = wr_listen;
    if (base->watch) w->shown.watch = wr_watch;
    if (base->interrupt) w->shown.interrupt = wr_interrupt;
    if (base->told) w->shown.told = wr_told;
    if (base->rang) w->shown.rang = wr_rang;
    if (base->next_event) w->shown.next_event = wr_next_event;
    if (base->subscribe) w->shown.subscribe = wr_subscribe;
    if (base->unsubscribe) w->shown.unsubscribe = wr_unsubscribe;
    if (base->mourn_fd) w->shown.mourn_fd = wr_mourn_fd;
    if (base->mourn_read) w->shown.mourn_read = wr_mourn_read;
    if (base->enter) w->shown.enter = wr_enter;
    if (base->sync) w->shown.sync = wr_sync;
    if (base->scan) w->shown.scan = wr_scan;
    if (base->inspect) w->shown.inspect = wr_inspect;
    if (base->promises) w->shown.promises = wr_promises;
    if (w->give_clock) {
        w->shown.can &= ~(unsigned)HF_CAN_INSTANT;
        w->shown.now = NULL;
    }
    *drv = &w->shown;
    *st = (hf_store *)w;
}
