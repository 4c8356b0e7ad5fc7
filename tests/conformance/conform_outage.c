/*
 * conform_outage.c - a store that goes away during a trial is neither proved nor refuted; and what
 * a trial leaves is swept up, at the latest by the next one.
 *
 * A driver around `mem:` that is like a server's: from its k-th call on it can't be reached, for
 * one call or for all.
 */
#include "conform.h"
#include "conform_around.h"
#include "conform_free.h"
#include "conform_key.h"
#include "drivers.h"
#include "os.h"
#include "test.h"

#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static const hf_driver *base = &hf__mem_driver;
static _Atomic int calls;
static int away_from, away_until; /* of the calls */
static _Atomic int clock_reads;
static int64_t ahead_us; /* by which the clock it tells is ahead of mem's */

static int is_away(hf_error *err)
{
    int n = atomic_fetch_add(&calls, 1);
    if (n < away_from || n >= away_until) return 0;
    return hf_fail(err, n % 2 ? HF_UNAVAILABLE : HF_UNKNOWN, 0, "it is away");
}

static int aw_open(const hf_url *url, int64_t io_timeout_ms, hf_store **ret, hf_caps *caps,
                   hf_error *err)
{
    int n = atomic_load(&calls);
    if (n >= away_from && n < away_until) return hf_fail(err, HF_UNAVAILABLE, 0, "it is away");
    return base->open(url, io_timeout_ms, ret, caps, err);
}

static int aw_get(hf_store *st, const hf_rowkey *key, hf_row *row, int64_t *clock, hf_error *err)
{
    /* The clock is read for as long as it takes: one call, or chance would say how many there are.
     */
    int rc = strcmp(name_of(key->text), "clock") != 0 || !atomic_fetch_add(&clock_reads, 1)
                 ? is_away(err)
                 : 0;
    if (!rc) rc = base->get(st, key, row, clock, err);
    *clock = base->caps.local->now(st) + ahead_us;
    return rc;
}

static int aw_replace(hf_store *st, const hf_rowkey *key, uint64_t seen, const hf_row *row,
                      hf_row *cur, int64_t *clock, hf_error *err)
{
    int rc = is_away(err);
    if (!rc) rc = free_replace(base, st, key, seen, row, cur, clock, err);
    *clock = base->caps.local->now(st) + ahead_us;
    return rc;
}

static int aw_acquire(hf_store *st, const hf_rowkey *key, const hf_party *party, uint32_t may_queue,
                      hf_row *cur, int64_t *clock, hf_error *err)
{
    int rc = is_away(err);
    return rc ? rc : free_acquire(base, st, key, party, may_queue, cur, clock, err);
}

static int aw_scan(hf_store *st, const char *prefix,
                   int (*see)(void *arg, const hf_rowkey *, hf_row *), void *arg, int64_t *clock,
                   hf_error *err)
{
    int rc = is_away(err);
    return rc ? rc : base->scan(st, prefix, see, arg, clock, err);
}

static void make(void)
{
    static const hf_driver ways = {.open = aw_open,
                                   .get = aw_get,
                                   .replace = aw_replace,
                                   .acquire = aw_acquire,
                                   .scan = aw_scan};
    static const hf_local_ops same = {.now = NULL};
    static const hf_liveness_ops same_too = {.session = NULL};
    make_around(base, &ways, &same, &same_too);
    liar.caps.local = NULL;
    liar.caps.liveness = NULL;
    liar.caps.queues = 0;
}

static void say(void *arg, const char *promise, const char *why)
{
    (void)arg;
    if (why) fail_msg("away from call %d to %d: '%s': %s", away_from, away_until, promise, why);
}

static int examine(int from, int until, hf_error *err)
{
    char prefix[HF_CONFORM_PREFIX_CAP];
    hf_url url;
    assert_int_equal(hf_url_parse("mem:outage", &url, NULL), 0);
    hf__conform_prefix(prefix);
    no_free_row();
    atomic_store(&calls, 0);
    atomic_store(&clock_reads, 0);
    away_from = from;
    away_until = until;
    return hf__conform(&liar, &url, prefix, say, NULL, err);
}

enum { PARTS = 12 }; /* of a trial, each of which it goes away in */

static void a_store_that_goes_away_is_not_accused(void **state)
{
    (void)state;
    hf_error err;
    make();
    assert_int_equal(examine(INT_MAX, INT_MAX, &err), 0);
    int all = atomic_load(&calls);
    for (int part = 0; part < PARTS;) {
        int at = 1 + all / PARTS * part;
        int cut = examine(at, INT_MAX, &err);
        /* Writers meet by chance, so that some trials have fewer calls: it has its parts, too. */
        if (atomic_load(&calls) <= at) {
            all = atomic_load(&calls);
            continue;
        }
        assert_int_equal(cut, HF_UNAVAILABLE);
        assert_string_equal(err.text, "it is away");
        /* It comes back at once: the check that was cut short is made again. */
        int rc = examine(at, at + 1, &err);
        if (rc) fail_msg("away for call %d: %d", at, rc);
        part++;
    }
}

/* ---- what is swept up ---- */

static hf_rowkey make_row(struct hf__con *con, const char *text, int64_t rev)
{
    hf_rowkey key;
    hf_row row;
    int64_t clock;
    hf_error err = {0, 0, ""};
    assert_int_equal(hf_key_make(text, &key, &err), 0);
    hf_row_init(&row);
    hf__con_one_holder(&row, 1);
    row.rev = row.token = row.party[0].token = (uint64_t)rev;
    int rc = con->drv->replace(con->st, &key, 0, &row, NULL, &clock, &err);
    if (rc) fail_msg("%s: %s", text, err.text);
    hf_row_clear(&row);
    return key;
}

static int is_there(const struct hf__con *con, const hf_rowkey *key)
{
    hf_row row;
    int64_t clock;
    hf_row_init(&row);
    assert_int_equal(con->drv->get(con->st, key, &row, &clock, NULL), 0);
    int is = row.n_holders != 0;
    hf_row_clear(&row);
    return is;
}

static void a_sweep_takes_its_own_rows_and_abandoned_ones(void **state)
{
    (void)state;
    const int64_t minute_us = 60 * INT64_C(1000000);
    hf_error err = {0, 0, ""};
    hf_url url;
    make();
    away_from = INT_MAX;
    assert_int_equal(hf_url_parse("mem:swept", &url, NULL), 0);
    struct hf__suite cfm = {.drv = &liar, .url = &url};
    assert_int_equal(hf__con_open(&cfm, &cfm.con, &err), 0);
    int64_t now = base->caps.local->now(cfm.con.st);
    hf_rowkey old = make_row(&cfm.con, "holdfast-conform/b/old", now);
    hf_rowkey foreign = make_row(&cfm.con, "shop/order", now);
    hf_rowkey recent = make_row(&cfm.con, "holdfast-conform/b/recent", now + 2 * minute_us);
    hf_rowkey own = make_row(&cfm.con, "holdfast-conform/a/own", now + 2 * minute_us);
    ahead_us = 61 * minute_us;
    assert_int_equal(hf__conform_sweep(&liar, &url, "holdfast-conform/a/", &err), 0);
    assert_false(is_there(&cfm.con, &own));
    assert_false(is_there(&cfm.con, &old));
    assert_true(is_there(&cfm.con, &recent));
    assert_true(is_there(&cfm.con, &foreign));
    hf__con_close(&cfm.con);
    ahead_us = 0;
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_store_that_goes_away_is_not_accused),
        cmocka_unit_test(a_sweep_takes_its_own_rows_and_abandoned_ones),
    };
    return TEST_MAIN(tests);
}
