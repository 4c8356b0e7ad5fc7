/*
 * conform_liar.c - stores that don't keep what a store promises: the conformance suite finds each.
 *
 * A driver around `mem:` lies about the keys that the checks use, at the k-th call for a key, for
 * k = 1, 2, 3 ... So in one run each check meets one lie. In each way of lying:
 *   DENIES   the call isn't made, and fails
 *   TURNS    what was done is called a conflict; what wasn't is called done
 *   FORGETS  a write is called done, but isn't; a read finds nothing
 *   CHANGES  the row that is shown, or stored, is another one
 */
#include "conform.h"
#include "conform_around.h"
#include "conform_free.h"
#include "conform_key.h"
#include "drivers.h"
#include "test.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum way { HONEST, DENIES, TURNS, FORGETS, CHANGES, WAYS };

static const hf_driver *base = &hf__mem_driver;
static const char *at_url = "mem:liar";
static enum way way;
static int at, racing; /* the call that is a lie; do the racers meet lies, or the others? */
static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static struct {
    char name[64];
    int calls;
} told[256];
static int lies, promises, broken;

static int is_race(const char *name)
{
    return !strcmp(name, "race") || !strcmp(name, "takes") || !strcmp(name, "wakeup") ||
           !strcmp(name, "killed");
}

/* Is this call to be a lie? */
static int lie_now(const char *key)
{
    const char *name = name_of(key);
    int yes = 0;
    if (way == HONEST || is_race(name) != racing) return 0;
    pthread_mutex_lock(&mu);
    for (size_t i = 0; i < sizeof told / sizeof *told; i++) {
        if (*told[i].name && strncmp(told[i].name, name, sizeof told[i].name - 1) != 0) continue;
        snprintf(told[i].name, sizeof told[i].name, "%s", name);
        yes = ++told[i].calls == at;
        break;
    }
    lies += yes;
    pthread_mutex_unlock(&mu);
    return yes;
}

static void change(hf_row *row)
{
    row->token++;
    row->rev++;
    if (row->done_us) row->result[0] ^= 1;
}

/* A store that doesn't answer at once reports its clock with its replies: in whole grains. */
static int64_t grain_us = 1;

static void tell_clock(hf_store *st, int64_t *clock)
{
    if (!liar.caps.local) *clock = base->caps.local->now(st) / grain_us * grain_us;
}

/* Of a store that knows nothing of what was deleted, whose revs are then by its clock alone. For
   one check's key: mem forgets a free row as if it were deleted, of which other checks make use. */
static int is_floorless(const hf_rowkey *key)
{
    return grain_us > 1 && key->len > 5 && !strcmp(key->text + key->len - 5, "/replace");
}

static int floorless_replace(hf_store *st, const hf_rowkey *key, uint64_t seen, const hf_row *row,
                             hf_row *cur, int64_t *clock, hf_error *err)
{
    int64_t ignored;
    hf_row left; /* what mem answers a rev with that isn't above one which it has deleted */
    int rc = free_replace(base, st, key, seen, row, cur, clock, err);
    if (rc != HF_CONFLICT || seen || !row) return rc;
    hf_row_init(&left);
    if (base->get(st, key, &left, &ignored, err)) return HF_NOMEM;
    if (left.rev && !left.n_holders && !left.n_queue && !left.done_us)
        rc = free_replace(base, st, key, left.rev, row, cur, clock, err);
    hf_row_clear(&left);
    return rc;
}

static int li_get(hf_store *st, const hf_rowkey *key, hf_row *row, int64_t *clock, hf_error *err)
{
    int lie = lie_now(key->text);
    if (lie && way == DENIES) return hf_fail(err, HF_DENIED, 0, "liar: get: denied");
    if (lie && way == TURNS) return hf_fail(err, HF_CORRUPT, 0, "liar: get: damaged");
    int rc = base->get(st, key, row, clock, err);
    tell_clock(st, clock);
    if (lie && way == FORGETS) hf_row_clear(row);
    if (lie && way == CHANGES) change(row);
    return rc;
}

static int li_replace(hf_store *st, const hf_rowkey *key, uint64_t seen, const hf_row *row,
                      hf_row *cur, int64_t *clock, hf_error *err)
{
    int lie = lie_now(key->text);
    tell_clock(st, clock);
    if (!lie)
        return is_floorless(key) ? floorless_replace(st, key, seen, row, cur, clock, err)
                                 : free_replace(base, st, key, seen, row, cur, clock, err);
    if (way == DENIES) return hf_fail(err, HF_DENIED, 0, "liar: replace: denied");
    if (way == FORGETS) return 0;
    hf_row other;
    hf_row_init(&other);
    if (row && hf_row_copy(&other, row)) return HF_NOMEM;
    if (way == CHANGES) other.keep_until_us += other.keep_until_us == INT64_MAX ? -1 : 1;
    int rc = base->replace(st, key, seen, row ? &other : NULL, cur, clock, err);
    hf_row_clear(&other);
    if (way == CHANGES) {
        if (rc && cur) change(cur);
        return rc;
    }
    return rc ? 0 : HF_CONFLICT;
}

static int li_acquire(hf_store *st, const hf_rowkey *key, const hf_party *party, uint32_t may_queue,
                      hf_row *cur, int64_t *clock, hf_error *err)
{
    int lie = lie_now(key->text);
    if (lie && way == DENIES) return hf_fail(err, HF_DENIED, 0, "liar: acquire: denied");
    int rc = free_acquire(base, st, key, party, may_queue, cur, clock, err);
    if (lie && way == TURNS) return rc ? 0 : HF_CONFLICT;
    if (lie && way == FORGETS) cur->n_holders = cur->n_queue = 0;
    if (lie && way == CHANGES) change(cur);
    return rc;
}

static int li_update(hf_store *st, const hf_rowkey *key, int (*step)(void *arg, hf_row *row),
                     void *arg, hf_row *row, hf_error *err)
{
    int lie = lie_now(key->text);
    if (lie && way == DENIES) return hf_fail(err, HF_DENIED, 0, "liar: update: denied");
    int rc = base->caps.local->update(st, key, step, arg, row, err);
    if (lie && way == TURNS) return rc ? 0 : HF_FULL;
    if (lie && way == FORGETS) row->n_queue = 0;
    if (lie && way == CHANGES) change(row);
    return rc;
}

struct relay {
    int (*see)(void *arg, const hf_rowkey *, hf_row *);
    void *arg;
};

static int relay(void *arg, const hf_rowkey *key, hf_row *row)
{
    struct relay *r = arg;
    if (!lie_now("x/y/scanned")) return r->see(r->arg, key, row);
    if (way == FORGETS) return 0;
    if (way == TURNS) return r->see(r->arg, key, row) || r->see(r->arg, key, row);
    if (way == DENIES) return r->see(r->arg, key, NULL);
    hf_rowkey other = *key;
    other.hash++;
    return r->see(r->arg, &other, row);
}

static int li_scan(hf_store *st, const char *prefix,
                   int (*see)(void *arg, const hf_rowkey *, hf_row *), void *arg, int64_t *clock,
                   hf_error *err)
{
    struct relay r = {see, arg};
    int lie = lie_now("x/y/scan");
    if (lie && way == DENIES) return hf_fail(err, HF_DENIED, 0, "liar: scan: denied");
    if (lie && way == FORGETS) return 0;
    return base->scan(st, lie && way == CHANGES ? "" : prefix, relay, &r, clock, err);
}

static int64_t li_now(hf_store *st)
{
    int64_t now = base->caps.local->now(st);
    if (!lie_now("x/y/now")) return now;
    return way == DENIES ? -1 : way == TURNS ? 1 : now + (way == CHANGES ? 10000000 : -10000000);
}

static int li_session(hf_store *st, uint64_t *ret, hf_error *err)
{
    int rc = base->caps.liveness->session(st, ret, err);
    if (!lie_now("x/y/session")) return rc;
    if (way == DENIES) return hf_fail(err, HF_DENIED, 0, "liar: session: denied");
    *ret = way == FORGETS ? 0 : way == TURNS ? 1 : *ret + 1;
    return 0;
}

static int li_alive(hf_store *st, uint64_t session, hf_error *err)
{
    int rc = base->caps.liveness->alive(st, session, err);
    if (!lie_now("x/y/alive")) return rc;
    return way == DENIES ? HF_UNAVAILABLE : !rc;
}

static int li_open(const hf_url *url, int64_t io_timeout_ms, hf_store **ret, hf_caps *caps,
                   hf_error *err)
{
    hf_url mild = *url;
    int lie = lie_now("x/y/open");
    if (lie && way == DENIES) return hf_fail(err, HF_DENIED, 0, "liar: open: denied");
    if (lie && way == TURNS) mild.query[0] = 0; /* takes any option */
    int rc = base->open(&mild, io_timeout_ms, ret, caps, err);
    if (lie && way == FORGETS && err) err->text[0] = 0;
    return rc;
}

static int li_sync(hf_store *st, const hf_rowkey *key, hf_error *err)
{
    (void)st;
    return lie_now(key->text) ? hf_fail(err, HF_FULL, 0, "liar: sync: no room") : 0;
}

static int li_enter(hf_store *st, const hf_rowkey *key, uint64_t token, int alone,
                    const char *where, hf_error *err)
{
    (void)st, (void)token, (void)alone, (void)where;
    if (!lie_now(key->text)) return hf_fail(err, HF_LOST, 0, "liar: enter: nobody holds it");
    return way == DENIES ? hf_fail(err, HF_DENIED, 0, "liar: enter: denied") : 0;
}

static void say(void *arg, const char *promise, const char *why)
{
    (void)arg;
    promises++;
    if (!why) return;
    broken++;
    if (!*why || strchr(why, '\n')) fail_msg("'%s': no reason, or more than a line", promise);
}

/* How many promises aren't kept. */
static int examine(enum way how, int call, int among_racers)
{
    char prefix[HF_CONFORM_PREFIX_CAP];
    hf_url url;
    assert_int_equal(hf_url_parse(at_url, &url, NULL), 0);
    memset(told, 0, sizeof told);
    way = how;
    at = call;
    racing = among_racers;
    lies = promises = broken = 0;
    no_free_row();
    hf__conform_prefix(prefix);
    int n = hf__conform(&liar, &url, prefix, say, NULL, NULL);
    way = HONEST;
    assert_int_equal(n, broken);
    return n;
}

static int li_wakeup_begin(hf_store *st, uint8_t wakeup, size_t n, hf_event_count *ret,
                           hf_error *err)
{
    (void)st, (void)wakeup, (void)n, (void)ret;
    return hf_fail(err, HF_DENIED, 0, "liar: wakeup_begin: denied");
}

static void make(int wakeups)
{
    static const hf_driver lies_of = {.open = li_open,
                                      .get = li_get,
                                      .replace = li_replace,
                                      .acquire = li_acquire,
                                      .scan = li_scan,
                                      .sync = li_sync,
                                      .enter = li_enter};
    static const hf_liveness_ops liveness_lies = {.session = li_session, .alive = li_alive};
    hf_local_ops local_lies = {.now = li_now, .update = li_update};
    if (!wakeups) local_lies.wakeup_begin = li_wakeup_begin; /* whose checks take their time */
    make_around(base, &lies_of, &local_lies, &liveness_lies);
}

static void an_honest_one_passes(void **state)
{
    (void)state;
    make(1);
    assert_int_equal(examine(HONEST, 0, 0), 0);
    assert_true(promises > 15);
}

static void lies_are_found(void **state)
{
    (void)state;
    make(0);
    int honest = examine(HONEST, 0, 0);
    for (int how = DENIES; how < WAYS; how++) {
        int calls = 0, found = 0;
        for (int call = 1; call <= 14; call++) {
            found += examine((enum way)how, call, 0) > honest;
            calls += lies > 0;
        }
        /* Not every lie can be found: a change in a part of a reply that isn't used doesn't
           show. */
        if (found < calls - 1) fail_msg("way %d: %d of %d runs found", how, found, calls);
        assert_true(calls > 10);
    }
}

static void racers_are_not_deceived(void **state)
{
    (void)state;
    make(1);
    /* Racers that are told of a grant which they don't have wait for it for ten seconds. */
    static const enum way ways[] = {DENIES, FORGETS, CHANGES};
    for (int how = 0; how < 3; how++)
        for (int call = 1; call <= 5; call += 4) {
            int n = examine(ways[how], call, 1);
            if (ways[how] == DENIES && !n) fail_msg("call %d: not found", call);
        }
}

/* A store like a server: it sends its clock with its replies, and has neither sessions nor
   wakeups. */
static void a_store_like_a_server_passes(void **state)
{
    (void)state;
    make(0);
    liar.caps.local = NULL;
    liar.caps.liveness = NULL;
    liar.caps.queues = 0;
    assert_int_equal(examine(HONEST, 0, 0), 0);
    assert_true(promises > 12);
    liar.acquire = NULL;
    assert_int_equal(examine(HONEST, 0, 0), 0);
    for (int call = 1; call <= 3; call++) assert_true(examine(DENIES, call, 0) > 0);
}

/* A server's, in which a whole check may be over before it moves on. */
static void a_coarse_clock_passes(void **state)
{
    (void)state;
    grain_us = 1000;
    assert_int_equal(examine(HONEST, 0, 0), 0);
    grain_us = 1;
}

/* A holder would believe in its lease for as long as the clock stands; unless the driver says it.
 */
static void a_clock_that_stands_too_long_is_found(void **state)
{
    (void)state;
    grain_us = 20000;
    assert_int_equal(examine(HONEST, 0, 0), 1);
    liar.caps.clock_resolution_us = 15000;
    assert_int_equal(examine(HONEST, 0, 0), 1);
    liar.caps.clock_resolution_us = 20000; /* as it is */
    assert_int_equal(examine(HONEST, 0, 0), 0);
    liar.caps.clock_resolution_us = 0;
    grain_us = 1;
}

/* Where others have it open, too: what a process of the race is denied is told by it. */
static void processes_tell_what_went_wrong(void **state)
{
    (void)state;
    static char dir[] = "/tmp/holdfast-liar-XXXXXX";
    char url[120], path[100];
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/store", dir);
    snprintf(url, sizeof url, "file:%s", path);
    base = &hf__file_driver;
    at_url = url;
    make(1);
    assert_true(examine(DENIES, 1, 1) >= 3);
    assert_true(examine(DENIES, 3, 1) >= 3);
    /* Some of the processes can't open the store. */
    assert_true(examine(DENIES, 2, 0) > 0);
    base = &hf__mem_driver;
    at_url = "mem:liar";
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(dir), 0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_honest_one_passes),
        cmocka_unit_test(a_store_like_a_server_passes),
        cmocka_unit_test(a_coarse_clock_passes),                 /* of the same store */
        cmocka_unit_test(a_clock_that_stands_too_long_is_found), /* likewise */
        cmocka_unit_test(processes_tell_what_went_wrong),
        cmocka_unit_test(lies_are_found),
        cmocka_unit_test(racers_are_not_deceived),
    };
    return TEST_MAIN(tests);
}
