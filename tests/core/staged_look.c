/*
 * staged_look.c - reading a store that fails, is damaged or is being closed; options that are
 * refused; deaths that are reported, or not.
 */
#include "admin.h"
#include "staged_pair.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- lists ---- */

struct seen {
    int shown, stop_at, nulls, stop_at_null;
    hf_info last;
    hf_party_info party;
};

static int see(void *arg, const hf_info *info)
{
    struct seen *s = arg;
    if (!info) return ++s->nulls == s->stop_at_null;
    s->last = *info;
    if (info->n_holders) s->party = info->parties[0];
    return ++s->shown == s->stop_at;
}

/* Damages the row as the scan shows it. What a get says of it is cued. */
static void damage(hf_row *row)
{
    if (row->n_holders && row->party[0].owner_len == 7) row->rev = UINT64_MAX;
}

static void some_rows(void)
{
    hf_options o = HF_OPTIONS_INIT;
    o.lease_ms = 60000;
    OK(hf_acquire(rival, "a", &o, &other, &stage_error));
    o.owner = "damaged";
    OK(hf_acquire(rival, "b", &o, &other, &stage_error));
    o.owner = NULL;
    OK(hf_acquire(rival, "c", &o, &other, &stage_error));
    stage_forge(damage);
}

static char damaged_key[64];

static void note_damaged(void *arg, const char *key, const char *why)
{
    (void)arg, (void)why;
    snprintf(damaged_key, sizeof damaged_key, "%s", key);
}

static void a_damaged_row_is_told_and_the_others_shown(void **state)
{
    (void)state;
    struct seen s = {0};
    begin(SERVER);
    some_rows();
    /* the second get: the first one learns the clock */
    stage_cue(S_GET, 2, 1, INSTEAD, HF_CORRUPT, NULL);
    IS(HF_CORRUPT, hf_list(h, "", see, &s, &stage_error));
    assert_int_equal(s.shown, 2);
    s.shown = 0;
    stage_cue(S_GET, 1, 1, INSTEAD, HF_CORRUPT, NULL);
    IS(HF_CORRUPT, hf__list(h, NULL, see, note_damaged, &s, NULL));
    assert_string_equal(damaged_key, "b");
    assert_int_equal(s.shown, 2);
    /* The store goes away while the row is read. */
    s.shown = 0;
    stage_cue(S_GET, 1, 1, INSTEAD, HF_UNAVAILABLE, NULL);
    IS(HF_UNAVAILABLE, hf_list(h, "", see, &s, &stage_error));
    assert_int_equal(s.shown, 1);
    /* Mended meanwhile, or gone. */
    s.shown = 0;
    OK(hf_list(h, "", see, &s, &stage_error));
    assert_int_equal(s.shown, 3);
    /* Without a callback for damaged rows the first one ends the scan: hf_watch, hf_prune. */
    uint64_t n = 0;
    stage_cue(S_GET, 1, 1, INSTEAD, HF_CORRUPT, NULL);
    IS(HF_CORRUPT, hf_prune(h, 60000, &n, &stage_error));
    stage_cue(S_GET, 1, 1, INSTEAD, HF_CORRUPT, NULL);
    IS(HF_CORRUPT, hf_watch(h, "", see, &s, &stage_error));
    done();
}

static void emptied(hf_row *row)
{
    static int times;
    if (row->rev == UINT64_MAX) return;
    if (row->n_holders && row->party[0].owner_len == 7) {
        if (!times++)
            row->rev = UINT64_MAX;
        else
            hf_row_clear(row);
    }
}

static void a_row_that_is_gone_when_looked_at(void **state)
{
    (void)state;
    struct seen s = {0};
    begin(SERVER);
    some_rows();
    stage_forge(emptied);
    OK(hf_list(h, "", see, &s, &stage_error));
    assert_int_equal(s.shown, 2);
    done();
}

static void close_begins(void)
{
    pthread_mutex_lock(&h->mu);
    h->closing = 1;
    pthread_mutex_unlock(&h->mu);
}

static int see_and_close(void *arg, const hf_info *info)
{
    (void)info;
    ++*(int *)arg;
    close_begins();
    return 0;
}

static void looks_end_when_the_store_is_closed(void **state)
{
    (void)state;
    uint64_t n = 0;
    int shown = 0;
    struct seen s = {0};
    hf_once once;
    hf_wait *w;
    begin(SERVER);
    some_rows();
    stage_forge(NULL);
    IS(HF_CANCELED, hf_list(h, "", see_and_close, &shown, &stage_error));
    assert_int_equal(shown, 1);
    /* Nothing new begins then. */
    IS(HF_CANCELED, hf_list(h, "", see, &s, &stage_error));
    IS(HF_CANCELED, hf_peek(h, "a", see, &s, &stage_error));
    IS(HF_CANCELED, hf_watch(h, "", see, &s, &stage_error));
    IS(HF_CANCELED, hf_prune(h, 60000, &n, &stage_error));
    IS(HF_CANCELED, hf_break(h, "a", 1, &stage_error));
    IS(HF_CANCELED, hf_acquire(h, "a", NULL, &lock, &stage_error));
    IS(HF_CANCELED, hf_acquire_start(h, "a", NULL, NULL, NULL, &w, &stage_error));
    IS(HF_CANCELED, hf_once_begin(h, "a", 1000, NULL, &once, &stage_error));
    done();
    shown = 0;
    begin(SERVER);
    some_rows();
    stage_forge(NULL);
    IS(HF_CANCELED, hf_watch(h, "", see_and_close, &shown, &stage_error));
    done();
    begin(SERVER);
    OK(stage_acquire(rival, "p", 0, 60000, 0, &other));
    OK(hf_release(other, &stage_error));
    stage_step_clock(INT64_C(120000000));
    stage_cue(S_SCAN, 1, 1, INSTEAD, 0, close_begins);
    IS(HF_CANCELED, hf_prune(h, 60000, &n, &stage_error));
    assert_int_equal(n, 0);
    done();
}

static void pruning(void **state)
{
    (void)state;
    static const char *const keys[] = {"p", "q", "r"};
    uint64_t n = 0;
    begin(SERVER);
    for (int i = 0; i < 3; i++) {
        OK(stage_acquire(rival, keys[i], 0, 60000, 0, &other));
        OK(hf_release(other, &stage_error));
    }
    stage_step_clock(INT64_C(120000000));
    stage_cue(S_SWAP, 1, 1, INSTEAD, HF_UNKNOWN, NULL);
    stage_cue(S_SWAP, 2, 1, INSTEAD, HF_DENIED, NULL);
    IS(HF_DENIED, hf_prune(h, 60000, &n, &stage_error));
    assert_int_equal(n, 0);
    OK(hf_prune(h, 60000, &n, &stage_error));
    assert_int_equal(n, 3);
    OK(hf_prune(h, 60000, NULL, &stage_error));
    IS(HF_INVALID, hf_prune(h, 59999, &n, &stage_error));
    IS(HF_INVALID, hf_prune(h, INT64_MAX, &n, &stage_error));
    stage_cue(S_SCAN, 1, 1, INSTEAD, HF_UNAVAILABLE, NULL);
    IS(HF_UNAVAILABLE, hf_prune(h, 60000, &n, &stage_error));
    stage_driver.scan = NULL;
    IS(HF_UNSUPPORTED, hf_prune(h, 60000, &n, &stage_error));
    done();
}

static void a_clock_that_cannot_be_learnt(void **state)
{
    (void)state;
    struct seen s = {0};
    begin(SERVER);
    some_rows();
    stage_forge(NULL);
    stage_cue(S_GET, 1, 1, INSTEAD, HF_UNAVAILABLE, NULL);
    IS(HF_UNAVAILABLE, hf_list(h, "", see, &s, &stage_error));
    stage_cue(S_GET, 1, 1, INSTEAD, HF_CORRUPT, NULL); /* only a request for that row fails */
    OK(hf_list(h, "", see, &s, &stage_error));
    done();
}

/* ---- watching ---- */

static void vanish(void)
{
    hf_row_clear(stage_row("a"));
    hf_row_clear(stage_row("b"));
}

static void a_watch_tells_of_what_vanished(void **state)
{
    (void)state;
    struct seen s = {.stop_at = 4};
    begin(SERVER);
    some_rows();
    stage_forge(NULL);
    stage_cue(S_SCAN, 2, 1, INSTEAD, 0, vanish);
    OK(hf_watch(h, "", see, &s, &stage_error));
    assert_int_equal(s.last.n_holders, 0);
    done();
    begin(SERVER);
    some_rows();
    stage_forge(NULL);
    s = (struct seen){0};
    stage_cue(S_SCAN, 2, 1, INSTEAD, 0, vanish);
    stage_cue(S_GET, 2, 1, INSTEAD, HF_DENIED, NULL);
    IS(HF_DENIED, hf_watch(h, "", see, &s, &stage_error));
    done();
    begin(SERVER);
    some_rows();
    stage_forge(NULL);
    s = (struct seen){0};
    stage_cue(S_SCAN, 2, 1, INSTEAD, HF_DENIED, NULL);
    IS(HF_DENIED, hf_watch(h, "", see, &s, &stage_error));
    s = (struct seen){.stop_at_null = 2};
    OK(hf_watch(h, "", see, &s, &stage_error));
    assert_int_equal(s.shown, 3);
    done();
}

/* ---- what is left ---- */

static void what_is_left_of_a_session(void **state)
{
    (void)state;
    struct seen s = {0};
    begin(LEASES);
    OK(stage_acquire(h, "k", 0, 60000, 0, &lock));
    OK(stage_acquire(h, "l", 0, 60000, 0, &other));
    OK(hf_peek(rival, "k", see, &s, &stage_error));
    assert_true(s.party.left_ms > 50000);
    s = (struct seen){0};
    OK(hf_list(h, "", see, &s, &stage_error)); /* once for both */
    assert_int_equal(s.shown, 2);
    assert_int_equal(stage_calls(S_LEFT), 1);
    stage_suspend(200000);
    stage_cue(S_LEFT, 1, 1, INSTEAD, HF_LOST, NULL);
    OK(hf_peek(h, "k", see, &s, &stage_error));
    assert_int_equal(s.party.left_ms, 0);
    stage_suspend(200000);
    stage_cue(S_LEFT, 1, 1, INSTEAD, HF_UNAVAILABLE, NULL);
    OK(hf_peek(h, "k", see, &s, &stage_error));
    assert_true(s.party.left_ms == HF_FOREVER);
    stage_cue(S_GET, 1, 1, INSTEAD, HF_UNAVAILABLE, NULL);
    IS(HF_UNAVAILABLE, hf_peek(h, "k", see, &s, &stage_error));
    IS(HF_INVALID, hf_peek(h, "", see, &s, &stage_error));
    OK(hf_release(lock, &stage_error));
    OK(hf_release(other, &stage_error));
    done();
}

/* ---- deaths ---- */

static void *wait_for_it(void *arg)
{
    hf_lock *l;
    *(int *)arg = stage_acquire(h, "k", 60000, 0, 0, &l);
    if (!*(int *)arg) hf_release(l, NULL);
    return NULL;
}

enum { TOLD, NOT_TOLD, NO_WORD, UNSURE, DEATHS };

static void a_dead_holder_is_noticed(void **state)
{
    (void)state;
    for (int how = 0; how < DEATHS; how++) {
        pthread_t thread;
        int code = 77;
        begin(LOCAL);
        if (how == NOT_TOLD) stage_tells_no_deaths();
        OK(stage_acquire(rival, "k", 0, 0, 0, &other));
        uint64_t asked = stage_calls(S_ALIVE);
        if (how == UNSURE) stage_cue(S_ALIVE, 1, 3, INSTEAD, HF_UNAVAILABLE, NULL);
        assert_int_equal(pthread_create(&thread, NULL, wait_for_it, &code), 0);
        await_queue(1);
        stage_await(S_ALIVE, asked + 2);
        /* The session of the holder, and the first one that was made here. */
        stage_kill(rival->port.session);
        if (how == NO_WORD) stage_suspend(31000000); /* the last resort: the poll */
        if (how != NOT_TOLD) stage_tell_deaths(1);
        pthread_join(thread, NULL);
        assert_int_equal(code, HF_OK);
        hf_release(other, NULL);
        done();
    }
}

/* ---- options ---- */

static void options_that_are_no_good(void **state)
{
    (void)state;
    begin(SERVER);
    hf_options good = HF_OPTIONS_INIT, o;
    hf_once once;
    hf_lock *many[65];
    hf_wait *w;
    const char *keys[65];
    static char text[400];
    memset(text, 'x', sizeof text - 1);
#define REFUSED(field, value)                                        \
    do {                                                             \
        o = good;                                                    \
        o.field = value;                                             \
        IS(HF_INVALID, hf_acquire(h, "k", &o, &lock, &stage_error)); \
    } while (0)
    REFUSED(size, 1);
    REFUSED(wait_ms, -2);
    REFUSED(wait_ms, INT64_MAX);
    REFUSED(lease_ms, 99);
    REFUSED(lease_ms, 86400001);
    REFUSED(max_hold_ms, -1);
    REFUSED(max_hold_ms, INT64_MAX);
    REFUSED(at_least_ms, -1);
    REFUSED(at_least_ms, 86400001);
    good.max_hold_ms = 60000;
    REFUSED(at_least_ms, 60001);
    assert_non_null(strstr(stage_error.text, "at_least_ms"));
    assert_non_null(strstr(stage_error.text, "max_hold_ms"));
    good.max_hold_ms = 0;
    REFUSED(mode, (enum hf_mode)9);
    REFUSED(owner, "");
    REFUSED(owner, text);
    REFUSED(owner, "\xff");
    REFUSED(note, text);
    REFUSED(flags, 1u << 30);
    REFUSED(flags, HF_DETACHED);
    good.mode = HF_LIMITED;
    REFUSED(limit, 0);
    REFUSED(limit, 1001);
    REFUSED(limit, 9);
    good.mode = HF_EXCLUSIVE;
    IS(HF_INVALID, hf_acquire(h, NULL, NULL, &lock, &stage_error));
    o = good;
    o.size = 1;
    IS(HF_INVALID, hf_acquire(h, NULL, &o, &lock, &stage_error));
    IS(HF_INVALID, hf_acquire_all(h, keys, 1, &o, many, &stage_error));
    for (int i = 0; i < 65; i++) keys[i] = "a";
    IS(HF_INVALID, hf_acquire_all(h, keys, 0, NULL, many, &stage_error));
    IS(HF_INVALID, hf_acquire_all(h, keys, 65, NULL, many, &stage_error));
    IS(HF_INVALID, hf_acquire_all(h, keys, 2, NULL, many, &stage_error));
    IS(HF_INVALID, hf_once_begin(h, "k", 0, NULL, &once, &stage_error));
    IS(HF_INVALID, hf_once_begin(h, "k", INT64_MAX, NULL, &once, &stage_error));
    IS(HF_INVALID, hf_once_begin(h, "k", 1, &o, &once, &stage_error));
    IS(HF_INVALID, hf_once_begin(h, "", 1, NULL, &once, &stage_error));
    o = good;
    o.mode = HF_SHARED;
    IS(HF_INVALID, hf_once_begin(h, "k", 1, &o, &once, &stage_error));
    IS(HF_INVALID, hf_once_start(h, "k", 0, NULL, &once, NULL, NULL, &w, &stage_error));
    IS(HF_INVALID, hf_acquire_start(h, "", NULL, NULL, NULL, &w, &stage_error));
    o.size = 1;
    IS(HF_INVALID, hf_acquire_start(h, "k", &o, NULL, NULL, &w, &stage_error));
    hf_stats stats = {.size = 1};
    IS(HF_INVALID, hf_get_stats(h, &stats));
    done();
}

static void refused(hf_open_options o, const char *url)
{
    hf *no = NULL;
    IS(HF_INVALID, hf_open(url, &o, &no, &stage_error));
    assert_null(no);
}

static void opening_with_what_is_no_good(void **state)
{
    (void)state;
    static char text[400];
    hf_open_options good = HF_OPEN_OPTIONS_INIT, o = good;
    hf *no = NULL;
    stage(LOCAL);
    memset(text, 'x', sizeof text - 1);
    o.size = 1;
    refused(o, "staged:a");
    o = good;
    o.io_timeout_ms = 99;
    refused(o, "staged:a");
    o.io_timeout_ms = 3600001;
    refused(o, "staged:a");
    o = good;
    o.owner = "";
    refused(o, "staged:a");
    o.owner = text;
    refused(o, "staged:a");
    o.owner = "\xff";
    refused(o, "staged:a");
    o = good;
    o.note = text;
    refused(o, "staged:a");
    refused(good, "staged");
    refused(good, "nothing-of-that-name:a");
    stage_cue(S_OPEN, 1, 1, INSTEAD, HF_DENIED, NULL);
    IS(HF_DENIED, hf_open("staged:a", NULL, &no, &stage_error));
    stage_cue(S_SESSION, 1, 1, INSTEAD, HF_FULL, NULL);
    IS(HF_FULL, hf_open("staged:a", NULL, &no, &stage_error));
    setenv("HOLDFAST_FAULT", "nonsense", 1);
    refused(good, "staged:a");
    setenv("HOLDFAST_FAULT", "", 1);
    setenv("HOLDFAST_TRACE", "/nowhere/at/all", 1);
    refused(good, "staged:a");
    setenv("HOLDFAST_TRACE", "", 1);
    /* Opening succeeds whatever the environment says about the user. */
    static const char *const users[] = {NULL, "somebody", "some body %", text};
    for (int i = 0; i < 8; i++) {
        unsetenv("USER");
        unsetenv("LOGNAME");
        if (users[i / 2]) setenv(i % 2 ? "USER" : "LOGNAME", users[i / 2], 1);
        program_invocation_short_name = i == 7   ? text
                                        : i == 6 ? (char *)"a %b\xc3\xa9"
                                                 : text + 390;
        OK(hf_open("staged:a", NULL, &no, &stage_error));
        hf_lock *l;
        OK(hf_acquire(no, "k", NULL, &l, &stage_error));
        assert_int_equal(stage_row("k")->party[0].note_len, strlen(stage_row("k")->party[0].note));
        assert_true(strstr(stage_row("k")->party[0].note, "user=") != NULL);
        OK(hf_release(l, &stage_error));
        hf_close(no);
    }
    o = good;
    o.owner = "an owner";
    o.note = "a note";
    OK(hf_open("staged:a", &o, &no, &stage_error));
    assert_int_equal(hf_session_fd(no), -1);
    hf_close(no);
    hf_close(NULL);
}

/* ---- losses that are told ---- */

static int told; /* atomic */
static int release_in_callback;

static void on_lost(void *arg, hf_lock *l)
{
    (void)arg;
    hf_lock *mine;
    /* This is the expiry monitor's thread: it must not wait for itself. */
    assert_int_equal(stage_acquire(h, "held", 60000, 60000, 0, &mine), HF_BUSY);
    __atomic_add_fetch(&told, 1, __ATOMIC_SEQ_CST); /* the test releases "held" from here on */
    if (release_in_callback)
        hf_release(l, NULL);
    else
        hf__pause(50000);
}

static void a_callback_and_a_release(void **state)
{
    (void)state;
    static const unsigned cans[] = {SERVER, LOCAL};
    for (int i = 0; i < 4; i++) {
        begin(cans[i / 2]);
        told = 0;
        release_in_callback = i % 2;
        OK(stage_acquire(rival, "held", 0, 60000, 0, &other));
        OK(stage_acquire(h, "k", 0, 200, HF_NO_RENEW, &lock));
        hf_on_lost(lock, on_lost, NULL);
        if (!release_in_callback) {
            assert_true(hf_lost_fd(lock) >= 0);
            assert_int_equal(hf_lost_fd(lock), hf_lost_fd(lock));
        }
        while (!__atomic_load_n(&told, __ATOMIC_SEQ_CST)) hf__pause(1000);
        if (!release_in_callback) {
            hf_on_lost(lock, NULL, NULL);
            IS(HF_LOST, hf_release(lock, &stage_error)); /* waits for the callback */
        }
        OK(hf_release(other, &stage_error));
        done();
        assert_int_equal(told, 1);
    }
}

static void a_broken_hold_is_told_where_it_has_no_end(void **state)
{
    (void)state;
    begin(LOCAL);
    OK(hf_acquire(h, "k", NULL, &lock, &stage_error));
    struct pollfd fd = {hf_lost_fd(lock), POLLIN, 0};
    stage_cue(S_GET, 1, 1, INSTEAD, HF_UNAVAILABLE, NULL); /* proves nothing */
    assert_int_equal(poll(&fd, 1, 300), 0);
    OK(hf_break(rival, "k", hf_token(lock), &stage_error));
    assert_int_equal(poll(&fd, 1, 60000), 1);
    IS(HF_LOST, hf_release(lock, &stage_error));
    OK(hf_acquire(h, "k", NULL, &lock, &stage_error));
    fd.fd = hf_lost_fd(lock);
    stage_cue(S_GET, 1, 1 << 30, INSTEAD, HF_CORRUPT, NULL); /* others may be in another store */
    assert_int_equal(poll(&fd, 1, 60000), 1);
    stage_uncue();
    IS(HF_LOST, hf_release(lock, &stage_error));
    done();
}

static void closing_doesnt_wait_for_each_lock(void **state)
{
    (void)state;
    static const char *const keys[] = {"a", "b", "c", "d"};
    begin(SERVER);
    for (int i = 0; i < 4; i++) OK(stage_acquire(h, keys[i], 0, 60000, 0, &lock));
    stage_cue(S_SWAP, 1, 1 << 30, INSTEAD, HF_UNAVAILABLE, NULL);
    stage_cue(S_GET, 1, 1 << 30, INSTEAD, HF_UNAVAILABLE, NULL);
    done();
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_damaged_row_is_told_and_the_others_shown),
        cmocka_unit_test(a_row_that_is_gone_when_looked_at),
        cmocka_unit_test(looks_end_when_the_store_is_closed),
        cmocka_unit_test(pruning),
        cmocka_unit_test(a_clock_that_cannot_be_learnt),
        cmocka_unit_test(a_watch_tells_of_what_vanished),
        cmocka_unit_test(what_is_left_of_a_session),
        cmocka_unit_test(a_dead_holder_is_noticed),
        cmocka_unit_test(options_that_are_no_good),
        cmocka_unit_test(opening_with_what_is_no_good),
        cmocka_unit_test(a_callback_and_a_release),
        cmocka_unit_test(a_broken_hold_is_told_where_it_has_no_end),
        cmocka_unit_test(closing_doesnt_wait_for_each_lock),
    };
    return TEST_MAIN(tests);
}
