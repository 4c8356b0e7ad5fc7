/*
 * conform_lies.c - the conformance suite finds what a store says or keeps that isn't so: one lie at
 * a time, each call of a check in turn, each part of a row. See conform_liar.c for stores that are
 * tried as a whole; here all checks but one are denied at once, so that a run takes no time.
 */
#include "conform_lies.h"

#include <limits.h>

/* ---- tests ---- */

/* Each call of a check, each lie. Not all can matter: what is changed in a reply of which nothing
   is used isn't seen. But of each call some are found, and a lie never makes a promise kept. */
static void each_call_of_a_check(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int calls, at_least; /* how many calls are lied at; how many lies are found at least */
    } checks[] = {{"tokens", 8, 30}, {"never used", 1, 6}, {"fields", 16, 113},
                  {"crowd", 4, 32},  {"replace", 14, 69},  {"another handle", 12, 137},
                  {"free", 13, 141}, {"acquire", 60, 600}, {"update", 13, 180},
                  {"sync", 4, 30},   {"enter", 2, 22}};
    make();
    for (size_t i = 0; i < COUNT(checks); i++) {
        /* Only a local store can be updated in place. */
        int updates = !strcmp(checks[i].name, "update");
        liar.caps.local = updates ? &local : NULL;
        part = updates ? hf__conform_update : NULL;
        int honest = examine(checks[i].name, HONEST, 0), found = 0, told = 0;
        for (int call = 1; call <= checks[i].calls; call++)
            for (int how = DENIES; how < WAYS; how++) {
                /* That clock would be waited for; so would those that others tell wrong, but for
                   this check being the first. */
                if (how >= HUGE_TOKEN && call > 1 && !strcmp(checks[i].name, "tokens")) continue;
                int n = examine(checks[i].name, (enum way)how, call);
                if (n < honest || (n > honest && !lies))
                    fail_msg("%s: call %d, way %d: %s", checks[i].name, call, how, why_text);
                found += n > honest;
                told += lies;
            }
        if (found < checks[i].at_least)
            fail_msg("%s: only %d of %d lies found", checks[i].name, found, told);
    }
    part = NULL;
}

/* Thirteen groups of five keys are listed, then most of them, none, three, all (which erases them),
   and none again. */
static void listings(void **state)
{
    (void)state;
    static const int rows[] = {1, 38, 66, 100, 127, 140};
    make();
    int honest = examine("scan", HONEST, 0), all = scans;
    assert_true(all >= 18);
    for (size_t i = 0; i < COUNT(rows); i++)
        for (showing = SKIPPED; showing < ON_AND_ON; showing++) {
            show_at = rows[i];
            int n = examine("scan", HONEST, 0);
            if (n <= honest && !(rows[i] == 127 && (showing == SKIPPED || showing == TWICE)))
                fail_msg("row %d shown in way %d isn't noticed", rows[i], (int)showing);
        }
    showing = ON_AND_ON;
    show_at = 128;
    assert_true(examine("scan", HONEST, 0) > honest);
    showing = TRULY;
    for (scan_denied = 1; scan_denied <= all; scan_denied++)
        assert_true(examine("scan", HONEST, 0) > honest);
    scan_denied = 0;
    for (scan_more = 1; scan_more < all; scan_more++)
        assert_true(examine("scan", HONEST, 0) > honest);
    scan_more = 0;
    for (int call = 1; call <= 195; call += 97) assert_true(examine("scan", DENIES, call) > honest);
    assert_true(examine("scan", DENIES, 150) > honest);
}

/* Racers, of which one meets a lie. None of the others may be left waiting. */
static void races(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        enum way way;
        int sure; /* is it always found? */
    } cases[] = {{"race", DENIES, 1}, {"race", FORGETS, 0}, {"race", REV_NONE, 0},
                 {"race", TURNS, 0},  {"takes", DENIES, 1}, {"takes", FORGETS, 1}};
    make();
    for (size_t i = 0; i < COUNT(cases); i++) {
        int honest = examine(cases[i].name, HONEST, 0), found = 0;
        for (int call = 1; call <= 60; call += call < 24 ? 1 : 9) {
            int n = examine(cases[i].name, cases[i].way, call);
            if (cases[i].sure && n <= honest)
                fail_msg("%s, way %d, call %d", cases[i].name, (int)cases[i].way, call);
            found += n > honest;
        }
        if (!found) fail_msg("%s: none is found", cases[i].name);
    }
}

/* ---- notifications ---- */

static int li_subscribe(hf_store *st, const hf_rowkey *key)
{
    (void)st, (void)key;
    return 0;
}

static void li_unsubscribe(hf_store *st, const hf_rowkey *key) { (void)st, (void)key; }

static int li_flush(hf_store *st, hf_event_count *ret, hf_error *err)
{
    (void)st, (void)ret, (void)err;
    return 0;
}

/* The sleep returns at once, so every wait is woken again and again. */
static int li_notify_sleep(hf_store *st, const hf_event_count *since, int64_t until_us,
                           hf_error *err)
{
    (void)st, (void)since, (void)until_us, (void)err;
    nanosleep(&(struct timespec){0, 200000}, NULL);
    return 1;
}

static int li_next_event(hf_store *st, hf_key_event *ret)
{
    (void)st, (void)ret;
    return 0;
}

static void li_interrupt(hf_store *st) { (void)st; }

static hf_notify_ops notify = {.subscribe = li_subscribe,
                               .unsubscribe = li_unsubscribe,
                               .flush = li_flush,
                               .sleep = li_notify_sleep,
                               .next_event = li_next_event,
                               .interrupt = li_interrupt};

/* The row as it is, or its only holder; or something else. */
static int payload_is_whole;

static int li_payload(hf_store *st, const hf_rowkey *key, hf_row *row)
{
    int64_t clock;
    if (base->get(st, key, row, &clock, NULL)) return 0;
    if (way == HONEST) return 0;
    if (!payload_is_whole) row->rev = 0;
    change(row);
    if (way == TURNS) row->party[0].flags ^= 1;
    return 1;
}

/* A waiter is refused at each call in turn. */
static void wakeups(void **state)
{
    (void)state;
    make();
    liar.caps.local = &local;
    int honest = examine("wakeup", HONEST, 0), found = 0;
    for (int call = 1; call <= 14; call++) found += examine("wakeup", DENIES, call) > honest;
    if (found < 12) fail_msg("only %d are found", found);
}

/* A notification differs from what is stored. */
static void payloads(void **state)
{
    (void)state;
    static const struct {
        enum way way;
        int whole, lies;
    } said[] = {{HONEST, 0, 0}, {DENIES, 0, 0},   {ID, 0, 0},        {SINCE, 0, 1},
                {TURNS, 0, 1},  {EXPIRES, 0, 1},  {OF_HOLDER, 0, 1}, {NO_HOLDER, 0, 1},
                {DENIES, 1, 0}, {REV_DOWN, 1, 0}, {TOKEN_UP, 1, 1}};
    make();
    liar.caps.notify = &notify;
    notify.payload = li_payload;
    int honest = examine("wakeup", HONEST, 0);
    for (size_t i = 0; i < COUNT(said); i++) {
        payload_is_whole = said[i].whole;
        if ((examine("wakeup", said[i].way, INT_MAX) > honest) != said[i].lies)
            fail_msg("payload %zu", i);
    }
    notify.payload = NULL;
}

static int lease_denied; /* 1: none is made; 2: none is ended */
static int leases;       /* made, and not ended */

static int li_session_make(hf_store *st, int64_t lease_ms, uint64_t *ret, int64_t *ret_ms,
                           int64_t *clock, hf_error *err)
{
    (void)st;
    if (lease_denied == 1) return no(err);
    *ret = (uint64_t)++leases;
    *ret_ms = lease_ms;
    *clock = 0;
    return 0;
}

static int li_session_end(hf_store *st, uint64_t session, hf_error *err)
{
    (void)st, (void)session;
    if (lease_denied == 2) return no(err);
    leases--;
    return 0;
}

/* Where sessions are leases a waiter has one, which is ended. */
static void wakeups_of_leases(void **state)
{
    (void)state;
    make();
    static const hf_session_ops sessions = {.make = li_session_make, .end = li_session_end};
    liar.caps.liveness = NULL;
    liar.caps.sessions = &sessions;
    liar.caps.notify = &notify;
    int honest = examine("wakeup", HONEST, 0);
    assert_null(strstr(why_text, "end: "));
    assert_int_equal(leases, 0);
    for (lease_denied = 1; lease_denied <= 2; lease_denied++)
        assert_int_equal(examine("wakeup", HONEST, 0), honest + 1);
    assert_non_null(strstr(why_text, "end: liar: denied"));
}

/* A store that isn't of one process alone is opened again, and others open it. `keeper` keeps what
   is in memory meanwhile. */
static int stays(enum way how, int call, int denied_at)
{
    hf_url url;
    hf_store *keeper;
    assert_int_equal(hf_url_parse("mem:lies", &url, NULL), 0);
    /* Revs go on from a clock that was told wrong: what is made anew is refused once, each time,
       and not only until that moment has come. */
    open_lies = 0;
    examine("stays", EXPIRES, 1);
    assert_int_equal(base->open(&url, 1000, &keeper, &(hf_caps){0}, NULL), 0);
    open_lies = denied_at;
    int n = examine("stays", how, call);
    base->close(keeper);
    return n;
}

static void what_outlives_its_handle(void **state)
{
    (void)state;
    static const enum way ways[] = {DENIES, TURNS, FORGETS, TOKEN_UP, KEEPS};
    make();
    liar.name = "liar";
    int honest = stays(HONEST, 0, 0), all = opens, found = 0, lost = 0;
    for (int call = 1; call <= 5; call++)
        for (size_t w = 0; w < COUNT(ways); w++) {
            int n = stays(ways[w], call, 0);
            if (n < honest) fail_msg("call %d, way %d: %s", call, (int)ways[w], why_text);
            found += n > honest;
        }
    if (found < 14) fail_msg("only %d lies found", found);
    assert_true(stays(HONEST, 0, all - 1) > honest || all < 2);
    for (int at_open = 1; at_open <= all; at_open++) lost += stays(HONEST, 0, at_open) != honest;
    assert_true(lost);
    open_lies = 0;
}

static void clocks(void **state)
{
    (void)state;
    static const struct {
        enum way way;
        int call;
    } cases[] = {{DENIES, 1}, {DENIES, 2}, {SINCE, 2}, {EXPIRES, 1}, {EXPIRES, 3}};
    make();
    int honest = examine("clock", HONEST, 0);
    for (size_t i = 0; i < COUNT(cases); i++) {
        int n;
        /* If the machine stands still while the clock is watched, the clock isn't read as often,
           and there was no lie. */
        do n = examine("clock", cases[i].way, cases[i].call);
        while (!lies);
        if (n <= honest) fail_msg("way %d at call %d", (int)cases[i].way, cases[i].call);
    }
}

/* What wraps the store is told of as well, where it can't be had. */
static void wrapped(void **state)
{
    (void)state;
    make();
    int honest = examine("never used", HONEST, 0);
    setenv("HOLDFAST_TRACE", "", 1);
    assert_int_equal(examine("never used", HONEST, 0), honest);
    setenv("HOLDFAST_TRACE", "/dev/null", 1);
    assert_int_equal(examine("never used", HONEST, 0), honest);
    setenv("HOLDFAST_TRACE", "/dev/null/none", 1);
    assert_int_equal(examine("never used", HONEST, 0), 1);
    unsetenv("HOLDFAST_TRACE");
    setenv("HOLDFAST_FAULT", "nonsense", 1);
    assert_int_equal(examine("never used", HONEST, 0), 1);
    unsetenv("HOLDFAST_FAULT");
}

/* It has room for nobody at all. */
static void no_room(void **state)
{
    (void)state;
    make();
    liar.caps.holders_cap = 0;
    examine("crowd", HONEST, 0);
    assert_non_null(strstr(why_text, "room for none"));
}

static void sessions(void **state)
{
    (void)state;
    static const enum way ways[] = {DENIES, TURNS, REV_UP, REV_DOWN, REV_NONE};
    make();
    int honest = examine("session", HONEST, 0), found = 0;
    for (int call = 1; call <= 11; call++)
        for (size_t w = 0; w < COUNT(ways); w++)
            found += examine("session", ways[w], call) > honest;
    if (found < 49) fail_msg("only %d lies about sessions found", found);
}

/* It can't be opened for the so-manyth time; or is, with an option that it doesn't have. */
static void openings(void **state)
{
    (void)state;
    static const char *const names[] = {"another handle", "session"};
    make();
    for (size_t i = 0; i < COUNT(names); i++) {
        int honest = examine(names[i], HONEST, 0), all = opens, found = 0;
        for (open_lies = -all; open_lies <= all; open_lies++)
            found += examine(names[i], HONEST, 0) > honest;
        open_lies = 0;
        if (found < all) fail_msg("%s: only %d of %d lies found", names[i], found, all);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_call_of_a_check),
        cmocka_unit_test(listings),
        cmocka_unit_test(races),
        cmocka_unit_test(wakeups),
        cmocka_unit_test(payloads),
        cmocka_unit_test(wakeups_of_leases),
        cmocka_unit_test(what_outlives_its_handle),
        cmocka_unit_test(clocks),
        cmocka_unit_test(wrapped),
        cmocka_unit_test(no_room),
        cmocka_unit_test(sessions),
        cmocka_unit_test(openings),
    };
    return TEST_MAIN(tests);
}
