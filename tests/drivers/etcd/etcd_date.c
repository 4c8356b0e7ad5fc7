/*
 * etcd_date.c - the date that etcd's gRPC doesn't have: between two requests for it the local clock
 * carries it on, and it never goes back; several dates together are more precise than one.
 */
#include "test.h"

#include "../../../drivers/etcd/dial.h"
#include "../../../drivers/etcd/http.h"
#include "../../../drivers/etcd/transport.h"

#include <stdio.h>
#include <string.h>

enum { S = 1000000 };

static int64_t local_us, ahead_us; /* the server's clock is so far ahead */
static int64_t takes_us, asked;
static int tells;
static struct hf__et_http http;

int64_t __wrap_hf__local_us(void);
int64_t __wrap_hf__local_us(void) { return local_us; }

int hf__et_ask_date(struct hf__et_http *h, int fd, const char *endpoint, int64_t until_us,
                    int64_t *ret_us, char why[HF_ET_WHY])
{
    (void)h;
    (void)fd;
    (void)endpoint;
    assert_true(until_us > local_us);
    asked++;
    local_us += takes_us / 2;
    *ret_us = (local_us + ahead_us) / S * S;
    local_us += takes_us - takes_us / 2;
    snprintf(why, HF_ET_WHY, "so it is");
    return tells ? 0 : HF_UNAVAILABLE;
}

/* Every endpoint can be connected to. */
int hf__et_dial(struct hf__et_http *h, int64_t until_us, hf__et_login_fn *login, void *arg,
                char why[HF_ET_WHY])
{
    int rc = HF_UNAVAILABLE;
    for (unsigned i = 0; i < h->n_endpoints && rc; i++) {
        rc = login(arg, 3, "http://h:1", until_us, why);
        if (!rc) h->at = (h->at + i) % h->n_endpoints;
    }
    return rc;
}

static hf_error err;

static int needed(void) { return hf__et_date_need(&http, &err); }

static int begin(void **state)
{
    (void)state;
    memset(&http, 0, sizeof http);
    http.n_endpoints = 2;
    http.io_timeout_ms = 10000;
    hf__et_date_open(&http.date);
    local_us = INT64_C(7000) * S + 123456;
    ahead_us = INT64_C(1700000000) * S + 654321;
    takes_us = 400;
    asked = 0;
    tells = 1;
    return 0;
}

static int end(void **state)
{
    (void)state;
    hf__et_date_close(&http.date);
    return 0;
}

static int64_t at(int64_t revision) { return hf__et_date_at(&http.date, revision); }
static int64_t behind(void) { return local_us + ahead_us - at(0); }

static void without_one_there_is_none(void **state)
{
    (void)state;
    tells = 0;
    assert_int_equal(at(5), 0);
    assert_int_equal(needed(), HF_UNAVAILABLE);
    assert_int_equal(asked, 2); /* of each endpoint */
    tells = 1;
    assert_int_equal(needed(), 0);
    assert_int_equal(asked, 3);
    assert_true(at(5) > 0);
    /* From then on the local clock carries it on, for however long no server gives a date. */
    tells = 0;
    for (int i = 0; i < 100; i++) {
        local_us += 59 * INT64_C(1000000);
        assert_int_equal(needed(), 0);
        /* It is behind by as much as the rates of the clocks may differ. */
        assert_in_range(behind(), 0, 2 * S + takes_us + (i + 1) * 59 * (S / 2000));
    }
    assert_true(asked <= 103);
}

static void it_is_known_closer_soon(void **state)
{
    (void)state;
    for (int i = 0; i < 4000; i++) {
        assert_int_equal(needed(), 0);
        local_us += 10000;
        assert_true(behind() >= 0 && behind() < 2 * S + takes_us);
    }
    assert_true(asked <= 9);
    /* A second begins within a fifth of one of when it does. */
    assert_true(http.date.hi_us - http.date.lo_us <= 200000 + takes_us);
    assert_true(http.date.lo_us <= ahead_us && ahead_us < http.date.hi_us + takes_us);
    int64_t before = asked;
    for (int i = 0; i < 60 * 100; i++) {
        assert_int_equal(needed(), 0);
        local_us += 10000;
    }
    assert_int_equal(asked - before, 1);
}

static void it_grows(void **state)
{
    (void)state;
    int64_t last = 0, revision = 0;
    for (int i = 0; i < 20000; i++) {
        assert_int_equal(needed(), 0);
        int64_t is = at(revision);
        assert_true(is >= last);
        last = is;
        revision += i % 7000 == 6999 ? -5000 : 37; /* set back to a backup, too */
        local_us += 7919;
        ahead_us += i % 2; /* it drifts */
    }
    /* Within a second the revision goes on. */
    local_us += 3 * S - (local_us + http.date.lo_us) % S;
    for (int i = 0; i < 100; i++) {
        int64_t is = at(1000000 + i);
        assert_true(is > last);
        last = is;
    }
}

static void a_clock_that_is_set_is_followed(void **state)
{
    (void)state;
    assert_int_equal(needed(), 0);
    int64_t was = at(0);
    ahead_us += 3600 * INT64_C(1000000);
    local_us += 120 * INT64_C(1000000);
    assert_int_equal(needed(), 0);
    assert_true(at(0) >= was + 3700 * INT64_C(1000000) && behind() >= 0);
    was = at(0);
    ahead_us -= 5 * S; /* a little: it waits */
    local_us += 120 * INT64_C(1000000);
    assert_int_equal(needed(), 0);
    assert_true(at(0) >= was);
    ahead_us -= 3600 * INT64_C(1000000);
    local_us += 120 * INT64_C(1000000);
    assert_int_equal(needed(), 0);
    assert_true(at(0) < was && behind() >= 0 && behind() < 2 * S);
}

/* One client reads a row that is lost then, and a later one reads that it is missing: each by the
   little that it knows of the date. And the date isn't asked for each time. */
static void a_new_row_is_never_behind_a_lost_one(void **state)
{
    enum { TIMES = 3000 };
    (void)state;
    struct hf__et_http early;
    uint64_t dice = 1;
    int64_t by_others = 0;
    int turns = 0;
    for (int i = 0; i < TIMES; i++) {
        hf__et_date_close(&http.date);
        begin(NULL);
        dice = dice * UINT64_C(6364136223846793005) + 1442695040888963407;
        tells = 1;
        local_us += (int64_t)(dice >> 20) % S;
        early = http;
        assert_int_equal(hf__et_date_need(&early, &err), 0);
        local_us += (int64_t)(dice >> 32) % (2 * S);
        assert_int_equal(needed(), 0);
        local_us += (int64_t)(dice >> 40) % (4 * S);
        int64_t had = hf__et_date_at(&early.date, i), sure = (local_us + ahead_us) / S;
        int64_t before = asked, clock = at(i + 1);
        assert_true(had / S <= sure);
        if (clock / S < had / S) turns++;
        tells = i % 8 != 0; /* if no server gives it, the latest possible date is taken */
        int64_t is = hf__et_date_of_row(&http, i % 2 ? 0 : (uint64_t)clock - 1000000, clock);
        assert_true(is > had && is / S >= sure && is % S == (i + 1) * 16 % S);
        assert_true(asked - before <= http.n_endpoints); /* each of them once */
        /* A row that was written lately is ahead of all of these dates. */
        before = asked;
        assert_int_equal(hf__et_date_of_row(&http, (uint64_t)clock - 100000, clock), clock);
        assert_int_equal(asked, before);
        /* One request for the date is enough, for a while. */
        before = asked;
        for (int k = 0; k < 20; k++) {
            assert_true(hf__et_date_of_row(&http, 0, at(i + 2)) > is);
            local_us += 50000;
        }
        by_others += asked - before;
    }
    assert_true(turns > TIMES / 20);
    assert_true(by_others < 8 * TIMES);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(without_one_there_is_none, begin, end),
        cmocka_unit_test_setup_teardown(it_is_known_closer_soon, begin, end),
        cmocka_unit_test_setup_teardown(it_grows, begin, end),
        cmocka_unit_test_setup_teardown(a_clock_that_is_set_is_followed, begin, end),
        cmocka_unit_test_setup_teardown(a_new_row_is_never_behind_a_lost_one, begin, end),
    };
    return TEST_MAIN(tests);
}
