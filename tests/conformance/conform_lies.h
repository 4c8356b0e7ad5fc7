/*
 * conform_lies.h - a store around `mem:` that lies to the conformance suite, at the calls and in
 * the way that a test says: for the programs that try one lie at a time.
 */
#ifndef CONFORM_LIES_H
#define CONFORM_LIES_H

#include "conform.h"
#include "conform_around.h"
#include "conform_free.h"
#include "conform_key.h"
#include "drivers.h"
#include "test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

static const hf_driver *base = &hf__mem_driver;
static const char *only; /* what the check calls its key; others are denied */
static int at, lies;     /* the call that is a lie; was there one? */
static int on;           /* and all after it */
static int calls;
static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;

/* ---- ways of lying ---- */

enum way {
    HONEST,
    DENIES,
    TURNS,   /* done is called refused, and the other way round */
    FORGETS, /* what isn't done is called done */
    REV_UP,
    REV_DOWN,
    REV_NONE,
    TOKEN_UP,
    TOKEN_NONE,
    NO_HOLDER,
    NO_QUEUE,
    DONE,
    KEEPS,
    RESULT,
    ID,
    SINCE,
    EXPIRES,
    NOTE,
    OF_HOLDER,
    HUGE_TOKEN,
    HELD, /* what is free */
    WAITED,
    REFUSES, /* isn't done, and called a conflict */
    WAYS
};
static enum way way;

static void change(hf_row *row)
{
    hf_party *p = row->n_holders + row->n_queue ? &row->party[0] : NULL;
    switch (way) {
    case REV_UP: row->rev++; break;
    case REV_DOWN: row->rev -= row->rev != 0; break;
    case REV_NONE: row->rev = 0; break;
    case TOKEN_UP: row->token++; break;
    case TOKEN_NONE: row->token = 0; break;
    case HUGE_TOKEN: row->token = row->rev = UINT64_C(1) << 60; break;
    case NO_HOLDER: row->n_holders = 0; break;
    case HELD:
    case WAITED:
        if (p) break;
        memset(&row->party[0], 0, sizeof row->party[0]);
        row->n_holders = way == HELD;
        row->n_queue = way == WAITED;
        break;
    case NO_QUEUE: row->n_queue = row->n_queue ? 0 : row->n_holders && row->cap > 1; break;
    case DONE: row->done_us = row->done_us ? 0 : 5; break;
    case KEEPS: row->keep_until_us += row->keep_until_us == INT64_MAX ? -1 : 1; break;
    case RESULT: row->result[0] ^= 1; break;
    case ID:
        if (p) p->id[0]++;
        break;
    case SINCE:
        if (p) p->since_us++;
        break;
    case EXPIRES:
        if (p) p->expires_us++;
        break;
    case NOTE:
        if (p) p->note_len--;
        break;
    case OF_HOLDER:
        if (p) p->token++;
        break;
    default: break;
    }
}

static int denied(const char *key)
{
    size_t n = only ? strlen(only) : 0;
    /* Only a group's keys go on. */
    return strncmp(name_of(key), only ? only : "", n) != 0 ||
           (n && strchr("/", name_of(key)[n]) == NULL);
}

/* The request (hf__con_party) with whose acquire it begins to lie, whatever was called before; 0:
   that isn't what it goes by. */
static uint32_t lies_from;

static int lie_now(void)
{
    pthread_mutex_lock(&mu);
    int yes = way != HONEST && ++calls >= at && (on || calls == at);
    lies += yes;
    pthread_mutex_unlock(&mu);
    return yes;
}

/* ---- the store ---- */

static int no(hf_error *err) { return hf_fail(err, HF_DENIED, 0, "liar: denied"); }

static int64_t clock_is = -1; /* it stands, if this isn't negative */
/* So much a clock is told wrong. What is made anew in `mem:` is above all that was there before: a
   wrong clock is passed in no run, or what it refuses would depend on how long that takes. */
static const int64_t WRONG_US = INT64_C(24) * 3600 * 1000000;

static void tell_clock(hf_store *st, int64_t *clock)
{
    if (!liar.caps.local) *clock = clock_is < 0 ? base->caps.local->now(st) : clock_is;
}

static int li_get(hf_store *st, const hf_rowkey *key, hf_row *row, int64_t *clock, hf_error *err)
{
    if (denied(key->text)) return no(err);
    int lie = lie_now();
    if (lie && way == DENIES) return no(err);
    int rc = base->get(st, key, row, clock, err);
    tell_clock(st, clock);
    if (lie && way == SINCE) *clock -= WRONG_US;
    if (lie && way == EXPIRES) *clock += WRONG_US;
    if (lie && way == FORGETS) hf_row_clear(row);
    if (lie) change(row);
    return rc;
}

static int li_replace(hf_store *st, const hf_rowkey *key, uint64_t seen, const hf_row *row,
                      hf_row *cur, int64_t *clock, hf_error *err)
{
    if (denied(key->text)) return no(err);
    int lie = lie_now();
    tell_clock(st, clock);
    if (!lie) return free_replace(base, st, key, seen, row, cur, clock, err);
    if (way == DENIES) return no(err);
    if (way == REFUSES) return HF_CONFLICT;
    if (way == FORGETS || (way == HUGE_TOKEN && seen == UINT64_C(1) << 60)) return 0;
    hf_row other;
    hf_row_init(&other);
    if (row && hf_row_copy(&other, row)) return HF_NOMEM;
    if (way != HUGE_TOKEN) change(&other); /* which would spoil the store's clock */
    int rc = base->replace(st, key, seen, row ? &other : NULL, cur, clock, err);
    hf_row_clear(&other);
    if (way == TURNS) return rc ? 0 : HF_CONFLICT;
    if (rc && cur) change(cur);
    return rc;
}

static int li_acquire(hf_store *st, const hf_rowkey *key, const hf_party *party, uint32_t may_queue,
                      hf_row *cur, int64_t *clock, hf_error *err)
{
    if (denied(key->text)) return no(err);
    if (lies_from && !memcmp(party->id, &lies_from, sizeof lies_from)) at = calls + 1;
    int lie = lie_now();
    if (lie && way == DENIES) return no(err);
    int rc = free_acquire(base, st, key, party, may_queue, cur, clock, err);
    if (lie) change(cur);
    if (way == FORGETS && calls >= at) { /* from then on nobody is kept out */
        if (!rc) nanosleep(&(struct timespec){0, 50000}, NULL); /* while others come */
        return 0;
    }
    return lie && way == TURNS ? rc ? 0 : HF_CONFLICT : rc;
}

/* By two calls, for nobody else is there. */
static int li_update(hf_store *st, const hf_rowkey *key, int (*step)(void *arg, hf_row *row),
                     void *arg, hf_row *row, hf_error *err)
{
    int64_t clock;
    if (denied(key->text)) return no(err);
    int lie = lie_now();
    if (lie && way == DENIES) return no(err);
    int rc = base->get(st, key, row, &clock, err);
    uint64_t seen = row->rev;
    if (!rc) rc = step(arg, row);
    if (lie) change(row);
    if (rc == 1)
        rc = lie && way == FORGETS ? 0 : base->replace(st, key, seen, row, NULL, &clock, err);
    return lie && way == TURNS ? rc ? 0 : HF_FULL : rc;
}

static int li_sync(hf_store *st, const hf_rowkey *key, hf_error *err)
{
    (void)st;
    return denied(key->text) || lie_now() ? no(err) : 0;
}

static int li_enter(hf_store *st, const hf_rowkey *key, uint64_t token, int alone,
                    const char *where, hf_error *err)
{
    static const int codes[] = {HF_LOST, HF_UNSUPPORTED, HF_INVALID};
    (void)st, (void)token, (void)alone, (void)where;
    if (denied(key->text)) return no(err);
    if (!lie_now()) return hf_fail(err, codes[at % 3], 0, "liar: enter: nobody holds it");
    return way == DENIES ? no(err) : 0;
}

static int li_session(hf_store *st, uint64_t *ret, hf_error *err)
{
    static uint64_t before; /* what was told last */
    if (only && strcmp(only, "session") && strcmp(only, "wakeup")) return no(err);
    int rc = base->caps.liveness->session(st, ret, err);
    uint64_t lie = way == REV_NONE ? 0 : way == TURNS ? 1 : way == REV_DOWN ? before : *ret + 1;
    if (lie_now()) {
        *ret = lie;
        rc = way == DENIES ? no(err) : 0;
    }
    before = *ret;
    return rc;
}

static int li_alive(hf_store *st, uint64_t session, hf_error *err)
{
    int rc = base->caps.liveness->alive(st, session, err);
    return !lie_now() ? rc : way == DENIES ? HF_UNAVAILABLE : !rc;
}

/* ---- openings, listings ---- */

static int open_lies, opens; /* the so-manyth is denied */
static atomic_int handles;   /* open now */
static const char *bad_text; /* what is said of an option that isn't known; NULL: what is so */

static int li_open(const hf_url *url, int64_t io_timeout_ms, hf_store **ret, hf_caps *caps,
                   hf_error *err)
{
    hf_url mild = *url;
    int n = ++opens;
    if (n == open_lies) return no(err);
    if (bad_text && url->query[0]) {
        snprintf(err->text, sizeof err->text, "%s", bad_text);
        return HF_INVALID;
    }
    if (n == -open_lies) mild.query[0] = 0; /* takes any option */
    int rc = base->open(&mild, io_timeout_ms, ret, caps, err);
    if (!rc) handles++;
    return rc;
}

static void li_close(hf_store *st)
{
    if (st) handles--;
    base->close(st);
}

/* What is shown of a listing: the so-manyth row in another way, or one more in a listing. */
enum showing {
    TRULY,
    SKIPPED,
    TWICE,
    HASH,
    LENGTH,
    STRANGER,
    NO_ROW,
    UNDONE,
    OF_ANOTHER,
    SHORTER,
    ON_AND_ON, /* what stops it isn't heard */
    SHOWINGS
};
static enum showing showing;
static int shown, show_at, scans, scan_denied, scan_more;

struct relay {
    int (*see)(void *arg, const hf_rowkey *, hf_row *);
    void *arg;
    int stopped;
};

static int relay(void *arg, const hf_rowkey *key, hf_row *row)
{
    struct relay *r = arg;
    hf_rowkey other = *key;
    char text[HF_KEY_CAP];
    int now = ++shown == show_at || r->stopped;
    if (!now || showing == TRULY) return r->see(r->arg, key, row);
    snprintf(text, sizeof text, "x%s", key->text);
    switch (showing) {
    case SKIPPED: return 0;
    case TWICE: return r->see(r->arg, key, row) || r->see(r->arg, key, row);
    case HASH: other.hash++; break;
    case LENGTH: other.len--; break;
    case STRANGER: other.text = text; break;
    case SHORTER:
        other.text = "x";
        other.len = 1;
        break;
    case NO_ROW: row = NULL; break;
    case UNDONE: row->done_us = 0; break;
    case OF_ANOTHER: row->result[0] ^= 1; break;
    default: r->stopped = r->see(r->arg, key, row) != 0; return 0;
    }
    return r->see(r->arg, &other, row);
}

static int li_scan(hf_store *st, const char *prefix,
                   int (*see)(void *arg, const hf_rowkey *, hf_row *), void *arg, int64_t *clock,
                   hf_error *err)
{
    struct relay r = {see, arg, 0};
    char text[HF_KEY_CAP];
    if (++scans == scan_denied) return no(err);
    int rc = base->scan(st, prefix, relay, &r, clock, err);
    if (rc || scans != scan_more) return rc;
    hf_row row;
    hf_row_init(&row);
    hf_rowkey key = {.text = text, .len = (uint32_t)snprintf(text, sizeof text, "%szz", prefix)};
    key.hash = hf_key_hash(key.text, key.len);
    row.done_us = 1;
    size_t skip = key.len > HF_RESULT_CAP - 1 ? key.len - (HF_RESULT_CAP - 1) : 0;
    snprintf(row.result, sizeof row.result, "%s", text + skip);
    see(arg, &key, &row);
    hf_row_clear(&row);
    return 0;
}

/* ---- what is said of it ---- */

static char why_text[4000];

static void say(void *arg, const char *promise, const char *why)
{
    (void)arg;
    if (!why) return;
    if (!*why || strchr(why, '\n')) fail_msg("'%s': no reason, or more than a line", promise);
    size_t n = strlen(why_text);
    snprintf(why_text + n, sizeof why_text - n, "%s\n", why);
}

static int li_wakeup_begin(hf_store *st, uint8_t wakeup, size_t n, hf_event_count *ret,
                           hf_error *err)
{
    return lie_now() ? no(err) : base->caps.local->wakeup_begin(st, wakeup, n, ret, err);
}

static int li_sleep(hf_store *st, uint8_t wakeup, const hf_event_count *since, int64_t until_us,
                    hf_error *err)
{
    return lie_now() ? no(err) : base->caps.local->sleep(st, wakeup, since, until_us, err);
}

static void make(void)
{
    static const hf_driver lies_of = {.open = li_open,
                                      .close = li_close,
                                      .get = li_get,
                                      .replace = li_replace,
                                      .acquire = li_acquire,
                                      .scan = li_scan,
                                      .sync = li_sync,
                                      .enter = li_enter};
    static const hf_local_ops local_lies = {
        .update = li_update, .wakeup_begin = li_wakeup_begin, .sleep = li_sleep};
    static const hf_liveness_ops liveness_lies = {.session = li_session, .alive = li_alive};
    make_around(base, &lies_of, &local_lies, &liveness_lies);
    /* It tells its clock with its replies, so that this isn't waited for. A test may give it
       `local` back. */
    liar.caps.local = NULL;
    liar.caps.queue_cap = liar.caps.holders_cap = 8; /* as a crowd, they take no time */
}

static void (*part)(struct hf__suite *cfm); /* of the suite, to be tried alone; NULL: all of it */

static int examine_part(const hf_url *url)
{
    static unsigned runs;
    struct hf__suite cfm = {.drv = &liar, .url = url, .say = say, .caps = liar.caps};
    snprintf(cfm.prefix, sizeof cfm.prefix, "holdfast-conform/%u/", ++runs);
    assert_int_equal(hf__con_open(&cfm, &cfm.con, NULL), 0);
    part(&cfm);
    hf__con_close(&cfm.con);
    return cfm.failed;
}

/* How many promises aren't kept. */
static int examine(const char *name, enum way how, int call)
{
    char prefix[HF_CONFORM_PREFIX_CAP];
    hf_url url;
    hf__conform_prefix(prefix);
    assert_int_equal(hf_url_parse("mem:lies", &url, NULL), 0);
    only = name;
    way = how;
    at = call;
    calls = lies = opens = shown = scans = 0;
    why_text[0] = 0;
    no_free_row();
    int n = part ? examine_part(&url) : hf__conform(&liar, &url, prefix, say, NULL, NULL);
    /* What is left open would keep what was in memory, for whatever comes later. */
    if (handles) fail_msg("%s, way %d, call %d: a handle is left open", name, (int)how, call);
    return n;
}

#endif
