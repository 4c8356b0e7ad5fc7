/*
 * staged_ways.c - rare paths of the core: stores of other kinds, odd options, ends that a call
 * notices first, what operators read.
 */
#include "staged_pair.h"

#include "admin.h"
#include "wait_schedule.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static void told(void *arg, int code, hf_lock *l, const hf_error *err)
{
    (void)err, (void)l;
    __atomic_store_n((int *)arg, code, __ATOMIC_SEQ_CST);
}

/* ---- kinds of stores ---- */

/* The store answers at once, and a hold ends by its lease alone. */
static void an_instant_store_without_sessions(void **state)
{
    (void)state;
    uint8_t id[16] = {7};
    hf_options o = HF_OPTIONS_INIT;
    begin(STAGE_LOCAL);
    OK(hf_acquire(h, "k", NULL, &lock, &stage_error));
    assert_in_range(hf_left_ms(lock), 1, 30000);
    OK(hf_renew(lock, 0, &stage_error));
    OK(hf_release(lock, &stage_error));
    o.request_id = id;
    OK(hf_acquire(h, "k", &o, &lock, &stage_error));
    assert_memory_equal(stage_row("k")->party[0].id, id, sizeof id);
    OK(hf_release(lock, &stage_error));
    stage_cue(S_ACQUIRE, 1, 1, INSTEAD, HF_DENIED, NULL);
    IS(HF_DENIED, hf_acquire(h, "k", NULL, &lock, &stage_error));
    stage_driver.acquire = NULL;
    OK(hf_acquire(h, "k", NULL, &lock, &stage_error));
    OK(hf_release(lock, &stage_error));
    done();
}

static int number(const hf_store *st)
{
    (void)st;
    return 7;
}

static void a_descriptor_that_carries_the_session(void **state)
{
    (void)state;
    begin(LOCAL);
    assert_int_equal(hf_session_fd(h), -1);
    stage_liveness.session_fd = (int (*)(hf_store *))(uintptr_t)number;
    assert_int_equal(hf_session_fd(h), 7);
    done();
}

/* The clock may be set back by so much that a late reply can't be the reason. */
static void a_clock_of_seconds_that_is_set_back(void **state)
{
    (void)state;
    begin(LEASES);
    OK(stage_acquire(h, "k", 0, 60000, 0, &lock));
    uint64_t token = hf_token(lock);
    OK(hf_release(lock, &stage_error));
    for (int by = 1; by <= 100; by *= 100) {
        stage_step_clock(-by * INT64_C(1000000));
        OK(stage_acquire(h, "k", 0, 60000, 0, &lock));
        assert_true(hf_token(lock) > token);
        token = hf_token(lock);
        OK(hf_release(lock, &stage_error));
    }
    /* New keys have tokens by that clock. */
    OK(stage_acquire(h, "x", 0, 60000, 0, &lock));
    assert_true(hf_token(lock) < token - 50 * UINT64_C(1000000));
    OK(hf_release(lock, &stage_error));
    stage_hide_clock(1);
    OK(stage_acquire(h, "k", 0, 60000, 0, &lock));
    assert_true(hf_token(lock) > token);
    OK(hf_release(lock, &stage_error));
    done();
}

static uint64_t dies;

static void it_dies(void) { stage_kill(dies); }

/* The waiter to which the release hands the key dies between the look and the write. */
static void a_release_to_one_who_just_died(void **state)
{
    (void)state;
    for (int away = 0; away < 2; away++) {
        hf_wait *w;
        int code = 77;
        begin(CALM_LEASES);
        OK(stage_acquire(h, "k", 0, 60000, 0, &lock));
        OK(hf_acquire_start(rival, "k", NULL, told, &code, &w, &stage_error));
        await_queue(1);
        dies = stage_row("k")->party[1].session;
        stage_cue(S_SWAP, 2, 1, INSTEAD, 0, it_dies); /* behind the blind one */
        if (away) stage_cue(S_GET, 1, 1, INSTEAD, HF_DENIED, NULL);
        IS(away ? HF_DENIED : HF_OK, hf_release(lock, &stage_error));
        stage_uncue();
        hf_wait_cancel(w);
        hf_wait_free(w);
        done();
    }
}

/* ---- options ---- */

static void who_owns_it_is_told_from_who_does_not(void **state)
{
    (void)state;
    hf_options o = HF_OPTIONS_INIT;
    hf_lock *l;
    begin(SERVER);
    o.wait_ms = 0;
    o.lease_ms = 60000;
    o.owner = "one";
    OK(hf_acquire(h, "k", &o, &lock, &stage_error));
    IS(HF_BUSY, hf_acquire(rival, "k", &o, &l, &stage_error));
    o.wait_ms = HF_FOREVER;
    IS(HF_RECURSIVE, hf_acquire(h, "k", &o, &l, &stage_error));
    o.wait_ms = 0;
    o.flags = HF_ALLOW_RECURSIVE;
    IS(HF_BUSY, hf_acquire(rival, "k", &o, &l, &stage_error));
    o.flags = 0;
    o.mode = HF_SHARED;
    IS(HF_BUSY, hf_acquire(rival, "k", &o, &l, &stage_error));
    o.mode = HF_EXCLUSIVE;
    o.owner = "two"; /* as long, and another */
    IS(HF_BUSY, hf_acquire(rival, "k", &o, &l, &stage_error));
    OK(hf_release(lock, &stage_error));
    done();
}

static void an_event_within_an_event(void **state)
{
    (void)state;
    hf_options o = HF_OPTIONS_INIT;
    uint8_t id[16] = {9};
    hf_once once, again;
    hf_wait *w;
    int code = 77;
    begin(SERVER);
    o.wait_ms = 0;
    o.lease_ms = 60000;
    o.request_id = id;
    OK(hf_once_begin(h, "k", 60000, &o, &once, &stage_error));
    OK(hf_once_begin(h, "k", 60000, &o, &again, &stage_error)); /* the same request */
    assert_int_equal(hf_token(again.lock), hf_token(once.lock));
    o.request_id = NULL;
    o.wait_ms = HF_FOREVER;
    IS(HF_RECURSIVE, hf_once_begin(h, "k", 60000, &o, &again, &stage_error));
    o.wait_ms = 0;
    o.flags = HF_ALLOW_RECURSIVE;
    IS(HF_BUSY, hf_once_begin(h, "k", 60000, &o, &again, &stage_error));
    OK(hf_once_start(h, "k", 60000, &o, &again, told, &code, &w, &stage_error));
    while (__atomic_load_n(&code, __ATOMIC_SEQ_CST) == 77) hf__pause(1000);
    assert_int_equal(code, HF_BUSY);
    hf_wait_free(w);
    o.size = 1;
    IS(HF_INVALID, hf_once_start(h, "k", 60000, &o, &again, told, &code, &w, &stage_error));
    hf_lock *same = again.lock;
    char bytes[301];
    memset(bytes, 0x80, 300); /* nothing but the middle of letters */
    bytes[300] = 0;
    OK(hf_once_finish(once.lock, bytes, 60000, &stage_error));
    assert_int_equal(stage_row("k")->result_len, 0);
    assert_true(stage_row("k")->done_us != 0);
    hf_release(same, NULL);
    done();
}

/* ---- ends that nobody was told of yet ---- */

/* The machine slept: a call knows it before any thread has woken. */
static void who_asks_is_told_that_it_is_over(void **state)
{
    (void)state;
    hf_options o = HF_OPTIONS_INIT;
    begin(SERVER);
    OK(stage_acquire(h, "k", 0, 60000, HF_NO_RENEW, &lock));
    stage_suspend(61000000);
    IS(HF_LOST, hf_renew(lock, 0, &stage_error));
    hf_release(lock, NULL);
    o.max_hold_ms = 60000;
    o.lease_ms = 600000;
    OK(hf_acquire(h, "x", &o, &lock, &stage_error));
    stage_suspend(61000000);
    IS(HF_LOST, hf_renew(lock, 0, &stage_error));
    IS(HF_LOST, hf_release(lock, &stage_error));
    done();
    begin(LEASES);
    OK(stage_acquire(h, "k", 0, 60000, 0, &lock));
    stage_suspend(61000000);
    IS(HF_LOST, hf_renew(lock, 0, &stage_error));
    IS(HF_LOST, hf_release(lock, &stage_error));
    done();
}

static void adopting_from_the_dead(void **state)
{
    (void)state;
    hf_lock *mine;
    begin(LOCAL);
    OK(stage_acquire(rival, "k", 0, 0, 0, &other));
    stage_kill(stage_row("k")->party[0].session);
    IS(HF_LOST, hf_adopt(h, "k", hf_token(other), &mine, &stage_error));
    hf_release(other, NULL);
    done();
}

/* The handle finds out once that the store is away, not again for each of its locks. */
static void closing_where_the_store_is_away(void **state)
{
    (void)state;
    static const int codes[] = {HF_UNKNOWN, HF_UNAVAILABLE};
    for (int i = 0; i < 2; i++) {
        begin(SERVER);
        for (int k = 0; k < 8; k++) {
            char key[8];
            snprintf(key, sizeof key, "k%d", k);
            OK(stage_acquire(h, key, 0, 60000, HF_NO_RENEW, &lock));
        }
        uint64_t before = stage_calls(S_SWAP);
        stage_cue(S_SWAP, 1, 1 << 20, INSTEAD, codes[i], NULL);
        stage_cue(S_GET, 1, 1 << 20, INSTEAD, HF_UNAVAILABLE, NULL);
        hf_close(h);
        h = NULL;
        /* Each that is tried takes the io timeout of 100 ms at least, or a request. */
        assert_true(stage_calls(S_SWAP) - before < 80);
        done();
    }
}

/* ---- what people look at ---- */

struct looks {
    int n, rounds, more, left_forever;
    size_t holders, waiters;
    char note[HF_NOTE_CAP];
    void (*then)(void);
};

static int see(void *arg, const hf_info *info)
{
    struct looks *s = arg;
    if (!info) {
        if (s->then) s->then();
        return ++s->rounds == 2 + s->more;
    }
    s->n++;
    s->holders = info->n_holders;
    s->waiters = info->n_waiters;
    if (info->n_holders + info->n_waiters) {
        s->left_forever = info->parties[0].left_ms == HF_FOREVER;
        memcpy(s->note, info->parties[0].note, sizeof s->note);
    }
    return 0;
}

static void an_hour_passes(void) { stage_step_clock(INT64_C(3600000000)); }

static void what_has_run_out_is_not_shown(void **state)
{
    (void)state;
    struct looks s = {.then = an_hour_passes, .more = 1}; /* the reply after that one shows it */
    begin(SERVER);
    OK(stage_acquire(rival, "k", 0, 60000, HF_NO_RENEW, &other));
    OK(hf_watch(h, "", see, &s, &stage_error));
    assert_int_equal(s.n, 2); /* first as held; then as free, although no client wrote it */
    assert_int_equal(s.holders, 0);
    OK(hf_peek(h, "k", see, &s, &stage_error));
    assert_int_equal(s.holders, 0);
    hf_release(other, NULL);
    done();
}

static void in_line_for_nobody(hf_row *row)
{
    if (row->n_holders != 1 || row->n_queue) return;
    row->n_holders = 0;
    row->n_queue = 1;
    row->party[0].token = 0;
    row->party[0].expires_us = 0;
}

static void a_row_of_waiters_alone_is_shown(void **state)
{
    (void)state;
    struct looks s = {0};
    begin(SERVER);
    OK(stage_acquire(rival, "k", 0, 60000, HF_NO_RENEW, &other));
    stage_forge(in_line_for_nobody);
    OK(hf_watch(h, "", see, &s, &stage_error));
    assert_true(s.n == 1 && !s.holders && s.waiters == 1);
    stage_forge(NULL);
    OK(hf_release(other, &stage_error));
    done();
}

static void with_an_end(hf_row *row)
{
    if (row->n_holders) row->party[0].expires_us = hf__day_us() + 60000000;
}

static void where_sessions_end_by_themselves(void **state)
{
    (void)state;
    struct looks s = {0};
    hf_wait *w;
    int code = 77;
    begin(CALM_LEASES);
    OK(stage_acquire(rival, "k", 0, 60000, 0, &other));
    OK(hf_acquire_start(rival, "k", NULL, told, &code, &w, &stage_error));
    await_queue(1);
    uint64_t asked = stage_calls(S_LEFT);
    OK(hf_peek(h, "k", see, &s, &stage_error));
    assert_true(s.holders == 1 && s.waiters == 1);
    /* the holder's session was asked for, not the waiter's */
    assert_int_equal(stage_calls(S_LEFT), asked + 1);
    /* A row that says its end itself. */
    stage_forge(with_an_end);
    OK(hf_peek(h, "k", see, &s, &stage_error));
    assert_false(s.left_forever);
    assert_int_equal(stage_calls(S_LEFT), asked + 1);
    stage_forge(NULL);
    hf_wait_free(w);
    OK(hf_release(other, &stage_error));
    done();
}

static void many_keys_are_watched(void **state)
{
    (void)state;
    struct looks s = {0};
    hf *own;
    hf_lock *l;
    char key[24];
    OK(hf_open("mem:many", NULL, &own, &stage_error));
    for (int i = 0; i < 200; i++) {
        snprintf(key, sizeof key, "key %d", i);
        OK(hf_acquire(own, key, NULL, &l, &stage_error));
    }
    OK(hf_watch(own, "", see, &s, &stage_error));
    assert_int_equal(s.n, 200);
    hf_close(own);
}

static void whoever_lists_needs_no_error(void **state)
{
    (void)state;
    struct looks s = {0};
    begin(SERVER);
    OK(stage_acquire(h, "k", 0, 60000, 0, &lock));
    OK(hf_list(h, "", see, &s, NULL));
    stage_no_memory(1);
    IS(HF_NOMEM, hf_list(h, "", see, &s, NULL));
    stage_no_memory(0);
    OK(hf_release(lock, &stage_error));
    done();
}

/* A part that doesn't fit is left out whole. */
static void a_note_has_what_fits(void **state)
{
    (void)state;
    struct looks s = {0};
    char user[64], pidns[48];
    struct stat ns;
    OK(stat("/proc/self/ns/pid", &ns));
    snprintf(pidns, sizeof pidns, " pidns=%llu ", (unsigned long long)ns.st_ino);
    memset(user, '%', 63);
    user[63] = 0;
    char *was = getenv("USER") ? strdup(getenv("USER")) : NULL;
    setenv("USER", user, 1);
    begin(SERVER);
    OK(stage_acquire(h, "k", 0, 60000, 0, &lock));
    OK(hf_peek(h, "k", see, &s, &stage_error));
    assert_non_null(strstr(s.note, "host="));
    assert_non_null(strstr(s.note, pidns));
    assert_non_null(strstr(s.note, " user=%25%25"));
    assert_null(strstr(s.note, "=ommand"));
    OK(hf_release(lock, &stage_error));
    done();
    if (was)
        setenv("USER", was, 1);
    else
        unsetenv("USER");
    free(was);
}

static void the_store_of_the_environment(void **state)
{
    (void)state;
    hf *own;
    stage(SERVER);
    setenv("HOLDFAST_STORE", "staged:a", 1);
    OK(hf_open(NULL, NULL, &own, &stage_error));
    assert_string_equal(hf_store_url(own), "staged:a");
    unsetenv("HOLDFAST_STORE");
    hf_close(own);
}

/* ---- room for others ---- */

static void it_breathes_longer_now_and_then(void **state)
{
    (void)state;
    begin(SERVER);
    static const struct {
        uint32_t yields;
        int64_t us;
    } expected[] = {{0, 2000}, {3, 8000}, {15, 32000}, {63, 128000}, {255, 128000}};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        struct hf_entry e = {.wrote_us = 1000000, .yields = expected[i].yields};
        assert_int_equal(hf__note_yield(&h->port, &e, 1000000 + expected[i].us - 1), 0);
        assert_int_equal(hf__note_yield(&h->port, &e, 1000000 + expected[i].us), 1);
    }
    struct hf_port unqueued = h->port;
    unqueued.caps.poll_ms = 250;
    unqueued.caps.queues = 0;
    struct hf_entry e = {.wrote_us = 1000000, .yields = 63}, e2 = {.wrote_us = 1000000};
    assert_int_equal(hf__note_yield(&unqueued, &e, 1000000 + 499999), 0);
    assert_int_equal(hf__note_yield(&unqueued, &e, 1000000 + 500000), 1);
    assert_int_equal(hf__note_yield(&unqueued, &e2, 1000000 + 2000), 1);
    done();
}

static void only_who_waits_breathes(void **state)
{
    (void)state;
    begin(SERVER);
    int64_t soon = hf__local_us() + 1000000;
    struct hf_entry e = {.wrote_us = soon};
    struct hf_wait w = {.h = h, .e = &e, .started_us = 1, .deadline_us = INT64_MAX};
    assert_int_equal(hf__yields_first(&w), 1);
    assert_int_equal(w.look_at_us, soon + 2000);
    w.deadline_us = soon; /* before that */
    assert_int_equal(hf__yields_first(&w), 0);
    w.deadline_us = 1; /* a try */
    assert_int_equal(hf__yields_first(&w), 0);
    w.deadline_us = INT64_MAX;
    e.yield_at_us = soon + 1000000; /* it isn't time */
    assert_int_equal(hf__yields_first(&w), 0);
    done();
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_instant_store_without_sessions),
        cmocka_unit_test(a_descriptor_that_carries_the_session),
        cmocka_unit_test(a_clock_of_seconds_that_is_set_back),
        cmocka_unit_test(a_release_to_one_who_just_died),
        cmocka_unit_test(who_owns_it_is_told_from_who_does_not),
        cmocka_unit_test(an_event_within_an_event),
        cmocka_unit_test(who_asks_is_told_that_it_is_over),
        cmocka_unit_test(adopting_from_the_dead),
        cmocka_unit_test(closing_where_the_store_is_away),
        cmocka_unit_test(what_has_run_out_is_not_shown),
        cmocka_unit_test(a_row_of_waiters_alone_is_shown),
        cmocka_unit_test(where_sessions_end_by_themselves),
        cmocka_unit_test(many_keys_are_watched),
        cmocka_unit_test(whoever_lists_needs_no_error),
        cmocka_unit_test(a_note_has_what_fits),
        cmocka_unit_test(the_store_of_the_environment),
        cmocka_unit_test(it_breathes_longer_now_and_then),
        cmocka_unit_test(only_who_waits_breathes),
    };
    return TEST_MAIN(tests);
}
