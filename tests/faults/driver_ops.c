/*
 * driver_ops.c - see driver_ops.h. `st` is the handle whose calls fail; `other` reads the outcome.
 */
#include "driver_ops.h"

#include "os.h"
#include "test.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { IO_MS = 5000, HEAR_MS = 50 };

const hf_driver *driver;
static hf_url url;
static hf_store *st, *other;
static hf_party me = {.id = {1}, .lease_ms = 60000, .owner = "me", .owner_len = 2};
static hf_row before; /* the operation */
static int64_t clock_us;

static int write_to(hf_store *to, uint64_t seen, int n)
{
    hf_row row, cur;
    hf_row_init(&row);
    hf_row_init(&cur);
    if (hf_row_room(&row, 4)) return HF_NOMEM;
    row.rev = row.token = hf_rev_next(seen, clock_us);
    for (int i = 0; i < n; i++) {
        hf_party *p = &row.party[i];
        *p = me;
        p->id[1] = (uint8_t)i;
        p->expires_us = me.session ? 0 : clock_us + 60000000;
        if (!i) p->token = row.token;
    }
    row.n_holders = n > 0;
    row.n_queue = n > 0 ? (uint32_t)n - 1 : 0;
    int rc = driver->replace(to, &key, seen, n >= 0 ? &row : NULL, &cur, &clock_us, &err);
    hf_row_clear(&row);
    hf_row_clear(&cur);
    return rc;
}

/* ---- the operations ---- */

static int get(void)
{
    hf_row row;
    hf_row_init(&row);
    int rc = driver->get(st, &key, &row, &clock_us, &err);
    hf_row_clear(&row);
    return rc;
}

static int acquire(const hf_party *p)
{
    hf_row row;
    hf_row_init(&row);
    int rc = driver->acquire(st, &key, p, 9, &row, &clock_us, &err);
    hf_row_clear(&row);
    return rc;
}

static int take(void) { return acquire(&me); }

static int get_in_line(void)
{
    hf_party one_more = me;
    one_more.id[1] = 9;
    return acquire(&one_more);
}

static int insert(void) { return write_to(st, 0, 3); }
static int update(void) { return write_to(st, before.rev ? before.rev : 77, 3); }
static int erase(void) { return write_to(st, before.rev, -1); }
/* An error that there is no guard counts as success, too. */
static int enter_at(const char *where)
{
    int rc = driver->enter(st, &key, 7, 1, where, &err);
    return rc == HF_UNSUPPORTED || rc == HF_INVALID || rc == HF_LOST ? 0 : rc;
}
static int enter(void) { return enter_at(NULL); }
static int enter_where(void) { return enter_at("shows/{\"$oid\": \"0123456789abcdef01234567\"}"); }
static int sync_it(void) { return driver->sync(st, &key, &err); }

static int see(void *arg, const hf_rowkey *k, hf_row *row)
{
    (void)arg, (void)k, (void)row;
    return 0;
}

static int list(void) { return driver->scan(st, "", see, NULL, &clock_us, &err); }

static void note(void *arg, int ok, const char *text) { (void)arg, (void)ok, (void)text; }
static int inspect(void) { return driver->inspect(st, note, NULL, &err); }

/* Opens a store, and makes the first request, which may have to get a token. */
static int open_another(void)
{
    hf_store *more = NULL;
    hf_row row;
    int rc = driver->open(&url, IO_MS, &more, &(hf_caps){0}, &err);
    if (rc) return rc;
    hf_row_init(&row);
    rc = driver->get(more, &key, &row, &clock_us, &err);
    hf_row_clear(&row);
    driver->close(more);
    return rc;
}

/* Uses a handle of its own, because one that lost its connection doesn't subscribe again at
   once. */
/* How many requests it makes meanwhile is its own business. */
static int watch(hf_store *subscriber, const hf_event_count *since)
{
    int rc = driver->caps.notify->sleep(subscriber, since, hf__local_us() + HEAR_MS * 1000, &err);
    return rc < 0 ? rc : 0;
}

static int hear(void)
{
    hf_store *subscriber = NULL;
    hf_event_count since;
    hf_row row;
    hf_rowkey more;
    const hf_rowkey *const keys[] = {&key, &more};
    const hf_notify_ops *notify = driver->caps.notify;
    ops_exempt(1);
    int rc = driver->open(&url, IO_MS, &subscriber, &(hf_caps){0}, &err);
    ops_exempt(0);
    if (rc || hf_key_make("l", &more, &err)) return rc;
    for (size_t n = 1; n < 3 && !rc; n++) {
        rc = notify->subscribe(subscriber, keys[n - 1]);
        if (rc) hf_fail(&err, rc, 0, "subscribe to '%s': out of memory", keys[n - 1]->text);
        if (!rc) rc = notify->flush(subscriber, &since, &err);
        ops_exempt(1);
        if (!rc) rc = write_to(other, before.rev, 2);
        hf_row_clear(&before);
        if (!rc) rc = driver->get(other, &key, &before, &clock_us, &err);
        ops_exempt(0);
        if (!rc) rc = watch(subscriber, &since);
        hf_row_init(&row);
        if (!rc && notify->payload) notify->payload(subscriber, &key, &row);
        hf_row_clear(&row);
    }
    notify->interrupt(subscriber);
    if (!rc) rc = watch(subscriber, &since);
    ops_exempt(1);
    driver->close(subscriber);
    ops_exempt(0);
    return rc;
}

static int lease(void)
{
    uint64_t session;
    int64_t ms;
    int rc = driver->caps.sessions->make(st, 60000, &session, &ms, &clock_us, &err);
    if (rc) return rc;
    if (!rc) rc = driver->caps.sessions->keep(st, session, hf__local_us() + 5000000, &ms, &err);
    if (!rc) rc = driver->caps.sessions->left(st, session, &ms, &err);
    if (!rc) rc = driver->caps.sessions->end(st, session, &err);
    return rc;
}

const struct op ops[] = {{"get", get, 1, 0, 0},
                         {"get what isn't there", get, 0, 0, 0},
                         {"acquire", take, 0, 0, 1},
                         {"acquire once more", take, 1, HF_CONFLICT, 1},
                         {"get in line", get_in_line, 1, 0, 1},
                         {"insert", insert, 0, 0, 1},
                         {"update", update, 1, 0, 1},
                         {"update what isn't there", update, 0, HF_CONFLICT, 1},
                         {"erase", erase, 1, 0, 1},
                         {"enter", enter, 1, 0, 0},
                         {"enter nowhere", enter_where, 1, 0, 0},
                         {"sync", sync_it, 1, 0, 0},
                         {"list", list, 1, 0, 0},
                         {"hear", hear, 1, 0, 0},
                         {"lease", lease, 1, 0, 0},
                         {"inspect", inspect, 1, 0, 0},
                         {"open", open_another, 1, 0, 0}};
const size_t ops_n = COUNT(ops);

int ops_has(const struct op *op)
{
    /* Where a row is memory, waiters enter the queue by an update. */
    int appends = driver->acquire && !driver->caps.local;
    return !((op->run == take && !driver->acquire) || (op->run == get_in_line && !appends) ||
             (op->run == sync_it && !driver->sync) ||
             ((op->run == enter || op->run == enter_where) && !driver->enter) ||
             (op->run == hear && !driver->caps.notify) ||
             (op->run == lease && !driver->caps.sessions) ||
             (op->run == inspect && !driver->inspect));
}

static int prepared(const struct op *op)
{
    said(driver->get(other, &key, &before, &clock_us, &err), 0, NULL);
    int is_there = before.rev != 0;
    return op->is_there == is_there && (!is_there || before.n_queue == 1);
}

void ops_prepare(const struct op *op)
{
    /* A write that got no answer may land in between, each once. */
    for (int i = 0; i < 20 && !prepared(op); i++) {
        int rc = write_to(other, before.rev, op->is_there ? 2 : -1);
        if (rc != HF_CONFLICT) said(rc, 0, NULL);
        if (i == 19) fail_msg("%s: it can't be prepared", op->name);
    }
}

int ops_changed(void)
{
    hf_row row;
    hf_row_init(&row);
    hf_error keep = err;
    said(driver->get(other, &key, &row, &clock_us, &err), 0, NULL);
    int changed = row.rev != before.rev;
    hf_row_clear(&row);
    err = keep;
    return changed;
}

int ops_again(const struct op *op)
{
    ops_prepare(op);
    int rc = op->run();
    if (rc != op->good) usleep(20000); /* the driver may have to wait before it tries again */
    return rc;
}

int ops_find(const char *text)
{
    if (!hf_url_parse(text, &url, &err) && (driver = hf__driver(url.scheme, &err))) return 0;
    printf("Bail out! %s\n", err.text);
    return 1;
}

int ops_begin(void)
{
    int64_t ms;
    hf_row_init(&before);
    if (!hf_key_make("k", &key, &err) && !driver->open(&url, IO_MS, &st, &(hf_caps){0}, &err) &&
        !driver->open(&url, IO_MS, &other, &(hf_caps){0}, &err) &&
        (!driver->caps.sessions ||
         !driver->caps.sessions->make(other, 600000, &me.session, &ms, &clock_us, &err)))
        return 0;
    printf("Bail out! %s\n", err.text);
    return 1;
}

void ops_end(void)
{
    driver->close(st);
    driver->close(other);
    hf_row_clear(&before);
}
