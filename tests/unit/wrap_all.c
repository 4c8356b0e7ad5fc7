/*
 * wrap_all.c - every call of a driver through the drivers around it: it comes to the store with
 * what the caller gave, its answer comes back, and a plan of faults and a trace know its name. What
 * the store doesn't offer isn't offered.
 */
#include "drivers.h"
#include "fakes/faults.h"
#include "test.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- a store that offers everything and says what it was asked ---- */

struct hf_store {
    char asked[100]; /* the last call, "": none since */
    int answer;
    hf_error *err; /* that it was given */
};

static int closed;
static hf_store store;
static hf_rowkey key;
static hf_row row;
static hf_error err;
static int64_t clock_us;

static void asked(hf_store *st, const char *what, const hf_rowkey *k, uint64_t n)
{
    snprintf(st->asked, sizeof st->asked, "%s %s %llu", what, k ? k->text : "-",
             (unsigned long long)n);
}

static int asked_err(hf_store *st, const char *what, const hf_rowkey *k, uint64_t n, hf_error *e)
{
    asked(st, what, k, n);
    st->err = e;
    return st->answer;
}

static void all_close(hf_store *st) { asked(st, "close", NULL, (uint64_t)++closed); }

static int all_get(hf_store *st, const hf_rowkey *k, hf_row *ret, int64_t *ret_clock_us,
                   hf_error *e)
{
    ret->rev = 7;
    *ret_clock_us = 5;
    return asked_err(st, "get", k, 0, e);
}

static int all_replace(hf_store *st, const hf_rowkey *k, uint64_t seen, const hf_row *to,
                       hf_row *cur, int64_t *ret_clock_us, hf_error *e)
{
    if (cur) cur->rev = 7;
    *ret_clock_us = 5;
    return asked_err(st, to ? "replace" : "erase", k, seen, e);
}

static int all_acquire(hf_store *st, const hf_rowkey *k, const hf_party *party, uint32_t may_queue,
                       hf_row *cur, int64_t *ret_clock_us, hf_error *e)
{
    cur->rev = 7;
    *ret_clock_us = 5;
    return asked_err(st, "acquire", k, party->session + may_queue, e);
}

static int all_update(hf_store *st, const hf_rowkey *k, int (*step)(void *arg, hf_row *row),
                      void *arg, hf_row *to, hf_error *e)
{
    to->rev = 7;
    return asked_err(st, "update", k, (uint64_t)step(arg, to), e);
}

static int64_t all_now(hf_store *st)
{
    asked(st, "now", NULL, 0);
    return 9;
}

static int all_session(hf_store *st, uint64_t *ret, hf_error *e)
{
    *ret = 7;
    return asked_err(st, "session", NULL, 0, e);
}

static int all_alive(hf_store *st, uint64_t session, hf_error *e)
{
    return asked_err(st, "alive", NULL, session, e);
}

static int all_session_make(hf_store *st, int64_t lease_ms, uint64_t *ret, int64_t *ret_ms,
                            int64_t *ret_clock_us, hf_error *e)
{
    *ret = 7;
    *ret_ms = *ret_clock_us = 5;
    return asked_err(st, "lease", NULL, (uint64_t)lease_ms, e);
}

static int all_session_keep(hf_store *st, uint64_t session, int64_t until_us, int64_t *ret_ms,
                            hf_error *e)
{
    assert_int_equal(until_us, 40);
    *ret_ms = 5;
    return asked_err(st, "keep", NULL, session, e);
}

static int all_session_left(hf_store *st, uint64_t session, int64_t *ret_ms, hf_error *e)
{
    *ret_ms = 5;
    return asked_err(st, "left", NULL, session, e);
}

static int all_session_end(hf_store *st, uint64_t session, hf_error *e)
{
    return asked_err(st, "end", NULL, session, e);
}

static int all_session_stale(hf_store *st, uint64_t session)
{
    asked(st, "stale", NULL, session);
    return st->answer;
}

static int all_session_fd(hf_store *st)
{
    asked(st, "session_fd", NULL, 0);
    return 11;
}

static int all_subscribe(hf_store *st, const hf_rowkey *k)
{
    asked(st, "subscribe", k, 0);
    return 0;
}

static void all_unsubscribe(hf_store *st, const hf_rowkey *k) { asked(st, "unsubscribe", k, 0); }

static int all_flush(hf_store *st, hf_event_count *ret, hf_error *e)
{
    ret->n[0] = 7;
    return asked_err(st, "flush", NULL, 3, e);
}

static int all_notify_sleep(hf_store *st, const hf_event_count *since, int64_t until_us,
                            hf_error *e)
{
    (void)since;
    return asked_err(st, "notify_sleep", NULL, (uint64_t)until_us, e);
}

static int all_next_event(hf_store *st, hf_key_event *ret)
{
    *ret = (hf_key_event){7, 1};
    asked(st, "next_event", NULL, 0);
    return 1;
}

static void all_interrupt(hf_store *st) { asked(st, "interrupt", NULL, 0); }

static int all_payload(hf_store *st, const hf_rowkey *k, hf_row *ret)
{
    ret->rev = 7;
    asked(st, "payload", k, 0);
    return 1;
}

static int all_death_fd(hf_store *st)
{
    asked(st, "death_fd", NULL, 0);
    return 12;
}

static int all_death_read(hf_store *st)
{
    asked(st, "death_read", NULL, 0);
    return 1;
}

static int all_sync(hf_store *st, const hf_rowkey *k, hf_error *e)
{
    return asked_err(st, "sync", k, 0, e);
}

static int all_scan(hf_store *st, const char *prefix,
                    int (*see)(void *arg, const hf_rowkey *, hf_row *), void *arg,
                    int64_t *ret_clock_us, hf_error *e)
{
    (void)see, (void)arg;
    *ret_clock_us = 5;
    return asked_err(st, "scan", NULL, strlen(prefix), e);
}

static int all_inspect(hf_store *st, void (*say)(void *arg, int ok, const char *text), void *arg,
                       hf_error *e)
{
    (void)say, (void)arg;
    return asked_err(st, "inspect", NULL, 0, e);
}

static int all_enter(hf_store *st, const hf_rowkey *k, uint64_t token, int alone, const char *where,
                     hf_error *e)
{
    return asked_err(st, alone && !strcmp(where, "there") ? "enter" : "?", k, token, e);
}

static int all_wakeup_begin(hf_store *st, uint8_t wakeup, size_t n, hf_event_count *ret,
                            hf_error *e)
{
    ret->n[0] = 7;
    return asked_err(st, "wakeup_begin", NULL, wakeup + n, e);
}

static int all_sleep(hf_store *st, uint8_t wakeup, const hf_event_count *since, int64_t until_us,
                     hf_error *e)
{
    (void)since;
    return asked_err(st, "sleep", NULL, wakeup + (uint64_t)until_us, e);
}

static void all_wake(hf_store *st, uint8_t wakeup) { asked(st, "wake", NULL, wakeup); }

static int all_local_event(hf_store *st, uint8_t wakeup, hf_key_event *ret)
{
    *ret = (hf_key_event){7, 1};
    asked(st, "local_event", NULL, wakeup);
    return 1;
}

static const hf_notify_ops all_notify = {.subscribe = all_subscribe,
                                         .unsubscribe = all_unsubscribe,
                                         .flush = all_flush,
                                         .sleep = all_notify_sleep,
                                         .next_event = all_next_event,
                                         .payload = all_payload,
                                         .interrupt = all_interrupt};

static const hf_local_ops all_local = {.now = all_now,
                                       .update = all_update,
                                       .wakeup_begin = all_wakeup_begin,
                                       .sleep = all_sleep,
                                       .interrupt = all_wake,
                                       .next_event = all_local_event};
static const hf_liveness_ops all_liveness = {.session = all_session,
                                             .session_fd = all_session_fd,
                                             .alive = all_alive,
                                             .death_fd = all_death_fd,
                                             .death_read = all_death_read};
static const hf_session_ops all_sessions = {.make = all_session_make,
                                            .keep = all_session_keep,
                                            .left = all_session_left,
                                            .end = all_session_end,
                                            .stale = all_session_stale};

static const hf_driver all = {.abi = HF_DRIVER_ABI,
                              .name = "all",
                              .caps = {.threads = 1,
                                       .notify = &all_notify,
                                       .local = &all_local,
                                       .liveness = &all_liveness,
                                       .sessions = &all_sessions},
                              .close = all_close,
                              .get = all_get,
                              .replace = all_replace,
                              .acquire = all_acquire,
                              .sync = all_sync,
                              .scan = all_scan,
                              .inspect = all_inspect,
                              .enter = all_enter};

/* ---- the calls ---- */

static const hf_driver *d;
static hf_caps caps;
static hf_store *st;
static uint64_t got;
static int64_t got_ms;
static hf_event_count since;

static int do_get(void) { return d->get(st, &key, &row, &clock_us, &err); }
static int do_replace(void)
{
    static const hf_row to;
    return d->replace(st, &key, 42, &to, &row, &clock_us, &err);
}
static int do_erase(void) { return d->replace(st, &key, 42, NULL, NULL, &clock_us, &err); }
static int do_acquire(void)
{
    static const hf_party me = {.session = 40};
    return d->acquire(st, &key, &me, 2, &row, &clock_us, &err);
}
static int step(void *arg, hf_row *to) { return arg == &row && to->rev == 7 ? 42 : 0; }
static int do_update(void) { return caps.local->update(st, &key, step, &row, &row, &err); }
static int do_scan(void) { return d->scan(st, "k/\n", NULL, NULL, &clock_us, &err); }
static int do_sync(void) { return d->sync(st, &key, &err); }
static int do_enter(void) { return d->enter(st, &key, 42, 1, "there", &err); }
static int do_session(void) { return caps.liveness->session(st, &got, &err); }
static int do_alive(void) { return caps.liveness->alive(st, 42, &err); }
static int do_lease(void) { return caps.sessions->make(st, 42, &got, &got_ms, &clock_us, &err); }
static int do_keep(void) { return caps.sessions->keep(st, 42, 40, &got_ms, &err); }
static int do_left(void) { return caps.sessions->left(st, 42, &got_ms, &err); }
static int do_end(void) { return caps.sessions->end(st, 42, &err); }
static int do_watch(void) { return caps.notify->sleep(st, &since, 42, &err); }
static int do_wakeup_begin(void) { return caps.local->wakeup_begin(st, 3, 2, &since, &err); }
static int do_sleep(void) { return caps.local->sleep(st, 2, &since, 40, &err); }
static int do_inspect(void) { return d->inspect(st, NULL, NULL, &err); }
static int do_listen(void) { return caps.notify->flush(st, &since, &err); }

static const struct call {
    const char *name;
    int (*make)(void);
    const char *asks;  /* the store */
    const char *trace; /* what the trace shows, if the call succeeds */
    int rows, writes;  /* it belongs to "any"; a call without an answer may have been carried out */
} calls[] = {
    {"get", do_get, "get k 0", "get 'k' -> OK rev=7 parties=0+0", 1, 0},
    {"replace", do_replace, "replace k 42", "replace 'k' seen=42 -> OK rev=0 parties=0+0", 1, 1},
    {"replace", do_erase, "erase k 42", "replace 'k' seen=42 -> OK deleted", 1, 1},
    {"acquire", do_acquire, "acquire k 42", "acquire 'k' -> OK rev=7 parties=0+0", 1, 1},
    {"update", do_update, "update k 42", "update 'k' -> OK rev=7 parties=0+0", 1, 1},
    {"scan", do_scan, "scan - 3", "scan 'k/?' -> OK", 1, 0},
    {"sync", do_sync, "sync k 0", "sync 'k' -> OK", 1, 0},
    {"enter", do_enter, "enter k 42", "enter 'k' -> OK", 0, 1},
    {"session", do_session, "session - 0", "session -> OK", 0, 0},
    {"alive", do_alive, "alive - 42", "alive 42 -> DEAD", 0, 0},
    {"lease", do_lease, "lease - 42", "lease 7 -> OK", 0, 0},
    {"keep", do_keep, "keep - 42", "keep 42 -> OK", 0, 0},
    {"left", do_left, "left - 42", "left 42 -> OK", 0, 0},
    {"end", do_end, "end - 42", "end 42 -> OK", 0, 0},
    {"listen", do_listen, "flush - 3", "listen -> OK", 0, 0},
    {"watch", do_watch, "notify_sleep - 42", "watch -> OK", 0, 0},
    {"listen", do_wakeup_begin, "wakeup_begin - 5", "listen -> OK", 0, 0},
    {"watch", do_sleep, "sleep - 42", "watch -> OK", 0, 0},
    {"inspect", do_inspect, "inspect - 0", "inspect -> OK", 0, 0},
};
enum { CALLS = sizeof calls / sizeof *calls };

static void around(const char *plan, const char *trace)
{
    char text[100];
    memset(&store, 0, sizeof store);
    memset(&err, 0, sizeof err);
    closed = 0;
    d = &all;
    st = &store;
    caps = all.caps;
    /* The store's clock doesn't come with its replies. */
    snprintf(text, sizeof text, "%s%s", plan && *plan ? "instant," : "", plan ? plan : "");
    if (plan) assert_int_equal(hf__wrap_fault(&d, &st, &caps, text, &err), 0);
    if (trace) assert_int_equal(hf__wrap_trace(&d, &st, &caps, trace, &err), 0);
}

static void ended(void)
{
    d->close(st);
    assert_int_equal(closed, 1);
}

static int make(const struct call *c)
{
    store.asked[0] = 0;
    store.err = NULL;
    err.text[0] = 0;
    hf_row_clear(&row);
    clock_us = got_ms = 0;
    got = since.n[0] = 0;
    return c->make();
}

/* Returns 1 if a result was filled in. */
static int filled(void) { return row.rev || got || since.n[0]; }

static void each_comes_to_the_store_and_its_answer_back(void **state)
{
    static const int codes[] = {0, 1, HF_CONFLICT, HF_DENIED};
    (void)state;
    around("", NULL);
    for (size_t i = 0; i < CALLS; i++)
        for (size_t k = 0; k < 4; k++) {
            store.answer = codes[k];
            assert_int_equal(make(&calls[i]), codes[k]);
            assert_string_equal(store.asked, calls[i].asks);
            assert_ptr_equal(store.err, &err);
            if (!codes[k]) assert_int_equal(clock_us ? clock_us : got_ms ? got_ms : 5, 5);
            if (!codes[k] && !strcmp(calls[i].name, "lease")) assert_int_equal(got, 7);
        }
    ended();
}

static void each_can_fail_before_it_takes_effect(void **state)
{
    (void)state;
    for (size_t i = 0; i < CALLS; i++) {
        char plan[60], text[60];
        snprintf(plan, sizeof plan, "%s:1:before,%s:2:denied", calls[i].name, calls[i].name);
        snprintf(text, sizeof text, "fault: %s '%s': reply lost", calls[i].name,
                 strstr(calls[i].asks, " k ") ? "k" : "");
        around(plan, NULL);
        assert_int_equal(make(&calls[i]), calls[i].writes ? HF_UNKNOWN : HF_UNAVAILABLE);
        assert_string_equal(err.text, text);
        assert_string_equal(store.asked, "");
        assert_false(filled());
        assert_int_equal(make(&calls[i]), HF_DENIED);
        assert_non_null(strstr(err.text, hf_code_text(HF_DENIED)));
        assert_string_equal(store.asked, "");
        assert_int_equal(make(&calls[i]), 0);
        assert_string_equal(store.asked, calls[i].asks);
        ended();
    }
}

static void each_can_take_effect_unheard_of(void **state)
{
    (void)state;
    for (size_t i = 0; i < CALLS; i++) {
        char plan[60];
        snprintf(plan, sizeof plan, "%s:1+:after", calls[i].name);
        around(plan, NULL);
        for (store.answer = 0; store.answer < 2; store.answer++) {
            assert_int_equal(make(&calls[i]), calls[i].writes ? HF_UNKNOWN : HF_UNAVAILABLE);
            assert_string_equal(store.asked, calls[i].asks);
            if (calls[i].make != do_lease) assert_false(filled());
        }
        ended();
    }
}

static void any_is_one_of_those_that_carry_rows(void **state)
{
    (void)state;
    for (size_t i = 0; i < CALLS; i++) {
        around("any:*:full", NULL);
        assert_int_equal(make(&calls[i]), calls[i].rows ? HF_FULL : 0);
        ended();
        around("random:seed=1:p=1", NULL);
        assert_int_equal(make(&calls[i]), !calls[i].rows    ? 0
                                          : calls[i].writes ? HF_UNKNOWN
                                                            : HF_UNAVAILABLE);
        ended();
    }
}

/* Operations without a result: the call is made, or it isn't. */
static void an_interrupt_can_fail(void **state)
{
    (void)state;
    around("interrupt:1:before,interrupt:2:late=1,close:*:before", NULL);
    caps.notify->interrupt(st), assert_string_equal(store.asked, "");
    caps.notify->interrupt(st);
    assert_string_equal(store.asked, "interrupt - 0");
    caps.local->interrupt(st, 4);
    assert_string_equal(store.asked, "wake - 4");
    ended(); /* in any case */
}

static void each_has_its_line_in_a_trace(void **state)
{
    (void)state;
    char path[] = "/tmp/holdfast-XXXXXX", text[8192], *at = text;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    around(NULL, path);
    for (size_t i = 0; i < CALLS; i++) assert_int_equal(make(&calls[i]), 0);
    store.answer = 1;
    assert_int_equal(make(&calls[9]), 1);
    store.answer = HF_UNAVAILABLE;
    assert_int_equal(make(&calls[0]), HF_UNAVAILABLE);
    assert_int_equal(make(&calls[1]), HF_UNAVAILABLE);
    assert_int_equal(make(&calls[3]), HF_UNAVAILABLE);
    assert_int_equal(make(&calls[9]), HF_UNAVAILABLE);
    caps.notify->interrupt(st);
    ended();
    ssize_t n = read(fd, text, sizeof text - 1);
    assert_true(n > 0);
    text[n] = 0;
    close(fd);
    unlink(path);
    static const char *const more[] = {"alive 42 -> ALIVE",
                                       "get 'k' -> UNAVAILABLE",
                                       "replace 'k' seen=42 -> UNAVAILABLE",
                                       "acquire 'k' -> UNAVAILABLE",
                                       "alive 42 -> UNAVAILABLE",
                                       "interrupt -> OK",
                                       "close -> OK"};
    for (size_t i = 0; i < CALLS + sizeof more / sizeof *more; i++) {
        const char *want = i < CALLS ? calls[i].trace : more[i - CALLS];
        char *end = strchr(at, '\n'), *said = strchr(at, ' ');
        if (!end || !said) fail_msg("no line '%s'", want);
        *end = 0;
        char *took = strrchr(at, ' ');
        if (took <= said || (size_t)(took - said - 1) != strlen(want) ||
            memcmp(said + 1, want, strlen(want)) != 0)
            fail_msg("no '%s' in: %s", want, at);
        at = end + 1;
    }
    assert_string_equal(at, "");
}

/* On the terminal's side nothing is closed at the end. */
static void a_trace_may_go_to_where_errors_go(void **state)
{
    (void)state;
    around(NULL, "stderr");
    ended();
    assert_true(write(STDERR_FILENO, "", 0) == 0 || errno != EBADF);
}

static void what_asks_nothing_of_the_store_goes_by(void **state)
{
    (void)state;
    around("any:*:before,alive:*:before,session:*:before", NULL);
    assert_int_equal(caps.local->now(st), 9);
    assert_int_equal(caps.liveness->session_fd(st), 11);
    assert_int_equal(caps.liveness->death_fd(st), 12);
    assert_int_equal(caps.liveness->death_read(st), 1);
    hf_key_event event;
    assert_true(caps.notify->next_event(st, &event) && event.hash == 7);
    assert_string_equal(store.asked, "next_event - 0");
    assert_true(caps.local->next_event(st, 3, &event) && event.mask == 1);
    caps.notify->unsubscribe(st, &key), assert_string_equal(store.asked, "unsubscribe k 0");
    assert_int_equal(caps.notify->subscribe(st, &key), 0);
    assert_string_equal(store.asked, "subscribe k 0");
    assert_int_equal(caps.notify->payload(st, &key, &row), 1);
    assert_string_equal(store.asked, "payload k 0");
    assert_int_equal(row.rev, 7);
    store.answer = 1;
    assert_int_equal(caps.sessions->stale(st, 42), 1);
    assert_string_equal(store.asked, "stale - 42");
    ended();
}

static void what_isnt_offered_isnt_offered(void **state)
{
    (void)state;
    const hf_driver least = {.abi = HF_DRIVER_ABI,
                             .name = "least",
                             .close = all_close,
                             .get = all_get,
                             .replace = all_replace};
    around(NULL, NULL);
    d = &least;
    caps = least.caps;
    assert_int_equal(hf__wrap_fault(&d, &st, &caps, "", &err), 0);
    assert_true(d->close && d->get && d->replace && d->close != all_close && d->get != all_get &&
                d->replace != all_replace);
    hf_driver left = *d;
    left.close = least.close;
    left.get = least.get;
    left.replace = least.replace;
    assert_memory_equal(&left, &least, sizeof left);
    assert_memory_equal(&caps, &least.caps, sizeof caps);
    ended();
}

/* A mistake of a script's: the number is too large to be one. */
static void a_plan_knows_its_limits(void **state)
{
    static const char *const bad[] = {"get:1:delay=3600001",
                                      "get:1:late=3600001",
                                      "get:1:late=",
                                      "get:*delay=1",
                                      "random:seed=1:p=",
                                      "random:seed=1:p=-1",
                                      "any",
                                      "any:",
                                      "any:1",
                                      "instant,",
                                      "instantly",
                                      "get:1"};
    (void)state;
    around(NULL, NULL);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        err.text[0] = 0;
        assert_int_equal(hf__wrap_fault(&d, &st, &caps, bad[i], &err), HF_INVALID);
        if (!strstr(err.text, "not a rule")) fail_msg("%s: %s", bad[i], err.text);
        assert_ptr_equal(st, &store);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_comes_to_the_store_and_its_answer_back),
        cmocka_unit_test(each_can_fail_before_it_takes_effect),
        cmocka_unit_test(each_can_take_effect_unheard_of),
        cmocka_unit_test(any_is_one_of_those_that_carry_rows),
        cmocka_unit_test(an_interrupt_can_fail),
        cmocka_unit_test(each_has_its_line_in_a_trace),
        cmocka_unit_test(a_trace_may_go_to_where_errors_go),
        cmocka_unit_test(what_asks_nothing_of_the_store_goes_by),
        cmocka_unit_test(what_isnt_offered_isnt_offered),
        cmocka_unit_test(a_plan_knows_its_limits),
    };
    hf_row_init(&row);
    if (hf_key_make("k", &key, &err)) return 1;
    return TEST_MAIN(tests);
}
