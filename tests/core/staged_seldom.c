/*
 * staged_seldom.c - ways through waits that are seldom gone: two keys in one round, a waiter
 * without memory, a crowd of the dead, a store that fails just then.
 */
#include "staged_waiter.h"
#include "start_threads.h"

#include <semaphore.h>
#include <stdlib.h>
#include <string.h>

static void ask(hf *store, struct waiter *w, const char *key, int64_t wait_ms, int64_t max_hold_ms)
{
    hf_options o = HF_OPTIONS_INIT;
    o.lease_ms = 60000;
    o.wait_ms = wait_ms;
    o.max_hold_ms = max_hold_ms;
    ask_and(store, w, key, &o, note);
}

/* Puts a first waiter into the row that never does anything. */
static void add_a_sleeper(uint64_t session)
{
    hf_row *row = stage_row("k");
    assert_int_equal(hf_row_room(row, 2), 0);
    hf_party *p = &row->party[1];
    hf_party_copy(p, &row->party[0]);
    p->claim_ms = HF_CLAIM_MS;
    memset(p->id, 7, sizeof p->id);
    p->token = 0;
    p->expires_us = 0;
    p->session = session;
    row->n_queue = 1;
    row->rev++;
}

static int is_handed(void)
{
    hf_row *row = stage_row("k");
    return row->n_holders && row->party[0].flags & HF_PARTY_UNCLAIMED;
}

/* ---- the dispatcher ---- */

static hf_lock *held[2];

static void both_are_given_back(void)
{
    for (int i = 0; i < 2; i++) {
        if (held[i]) OK(hf_release(held[i], &stage_error));
        held[i] = NULL;
    }
}

static void without_more_threads(void)
{
    if (held[0]) stage_no_threads(1);
    both_are_given_back();
}

static void wake_up(void)
{
    hf_lock *news;
    OK(stage_acquire(rival, "news", 0, 60000, 0, &news));
    OK(hf_release(news, &stage_error));
}

/* Two waits are handed their keys in one round: the monitor waits for the earlier end of the
   two. */
static void two_are_handed_at_once(void **state)
{
    (void)state;
    for (int how = 0; how < 3; how++) {
        struct waiter w[2];
        begin(WATCHED);
        hf_close(h);
        stage_driver.caps.poll_ms = 15000; /* a minute to make a claim in */
        rival->port.caps = stage_driver.caps;
        h = stage_open("a");
        for (int i = 0; i < 2; i++) {
            const char *key = i ? "k" : "x";
            OK(stage_acquire(rival, key, 0, 60000, 0, &held[i]));
            ask(h, &w[i], key, 600000, i == how ? 20000 : 0);
            await_queue_of(key, 1);
        }
        if (how == 2) OK(hf__need_renewer(h, &stage_error));
        stage_cue(S_WATCH, 1, 1, INSTEAD, 0, how == 2 ? without_more_threads : both_are_given_back);
        wake_up();
        for (int i = 0; i < 2; i++) ends(&w[i], HF_OK);
        stage_no_threads(0);
        for (int i = 0; i < 2; i++) {
            assert_true(hf_left_ms(w[i].lock) > 0);
            OK(hf_release(w[i].lock, &stage_error));
        }
        done();
    }
}

static void *wait_for_it(void *arg)
{
    hf_lock *l;
    *(int *)arg = stage_acquire(h, "k", 600000, 60000, 0, &l);
    if (!*(int *)arg) hf_release(l, NULL);
    return NULL;
}

/* The wait stands behind a thread that drives its own wait, and whose limit isn't the dispatcher's
   business. */
static void behind_a_thread_its_time_runs_out(void **state)
{
    (void)state;
    struct waiter w;
    pthread_t thread;
    int code = 77;
    begin(SERVER);
    OK(stage_acquire(rival, "k", 0, 60000, 0, &other));
    assert_int_equal(pthread_create(&thread, NULL, wait_for_it, &code), 0);
    await_queue(1);
    ask(h, &w, "k", 20, 0);
    ends(&w, HF_TIMEOUT);
    OK(hf_release(other, &stage_error));
    pthread_join(thread, NULL);
    IS(HF_OK, code);
    /* This thread isn't one of the handle's own threads, which may not wait. */
    OK(stage_acquire(h, "k", 0, 60000, 0, &lock));
    OK(hf_release(lock, &stage_error));
    done();
}

/* Notifications cease: a wait that the dispatcher drives looks by itself. */
static void wakeups_that_fall_silent(void **state)
{
    (void)state;
    struct waiter w;
    pthread_t thread;
    int code = 77, looks = 0;
    hf_lock *x;
    begin(LOCAL);
    OK(stage_acquire(rival, "k", 0, 0, 0, &other));
    OK(stage_acquire(rival, "x", 0, 0, 0, &x));
    ask(h, &w, "x", 600000, 0);
    await_queue_of("x", 1);
    assert_int_equal(pthread_create(&thread, NULL, wait_for_it, &code), 0);
    await_queue(1);
    stage_cue(S_LISTEN, 1, 1 << 20, INSTEAD, HF_UNAVAILABLE, NULL);
    for (int kicked = 0; !looks; hf__pause(1000)) {
        pthread_mutex_lock(&h->mu);
        if (!kicked++) hf__kick_dispatcher(h);
        looks = w.wait->look_at_us != INT64_MAX;
        pthread_mutex_unlock(&h->mu);
    }
    stage_uncue();
    OK(hf_release(x, &stage_error));
    ends_with_the_key(&w);
    OK(hf_release(other, &stage_error));
    pthread_join(thread, NULL);
    IS(HF_OK, code);
    done();
}

static int (*sleep_of_the_stage)(hf_store *, const hf_event_count *, int64_t, hf_error *);

static int asks_often(hf_store *st, const hf_event_count *since, int64_t until_us, hf_error *err)
{
    int rc = sleep_of_the_stage(st, since, until_us, err);
    return rc ? rc : 1000;
}

static void what_a_watch_asks_counts(void **state)
{
    (void)state;
    for (int blind = 0; blind < 2; blind++) {
        struct waiter w;
        hf_stats stats = {.size = sizeof stats};
        begin(WATCHED);
        hf_close(h);
        if (blind) stage_driver.caps.notify = NULL;
        sleep_of_the_stage = stage_notify.sleep;
        stage_notify.sleep = asks_often;
        h = stage_open("a");
        OK(stage_acquire(rival, "k", 0, 60000, 0, &other));
        uint64_t watched = stage_calls(S_WATCH);
        ask(h, &w, "k", 600000, 0);
        await_queue(1);
        if (!blind) stage_await(S_WATCH, watched + 1);
        OK(hf_release(other, &stage_error));
        ends_with_the_key(&w);
        OK(hf_get_stats(h, &stats));
        assert_int_equal(stats.store_ops >= 1000, !blind);
        done();
    }
}

/* The queue was full: an event that wakes its waiters doesn't wake a wait that polls. */
static void who_found_no_room_is_not_woken(void **state)
{
    (void)state;
    struct waiter first, in_line, outside;
    hf_lock *y;
    begin(WATCHED);
    hf_close(h);
    stage_driver.caps.poll_ms = 15000;
    stage_driver.caps.queue_cap = 1;
    rival->port.caps = stage_driver.caps;
    h = stage_open("a");
    OK(stage_acquire(rival, "k", 0, 60000, 0, &other));
    OK(stage_acquire(rival, "y", 0, 60000, 0, &y));
    ask(rival, &first, "k", 600000, 0);
    await_queue(1);
    ask(h, &outside, "k", 600000, 0);
    ask(h, &in_line, "y", 600000, 0);
    await_queue_of("y", 1);
    for (int full = 0; !full; hf__pause(1000)) {
        pthread_mutex_lock(&h->mu);
        full = outside.wait->look_at_us > hf__local_us() + 5000000;
        pthread_mutex_unlock(&h->mu);
    }
    uint64_t watched = stage_calls(S_WATCH);
    wake_up();
    OK(hf_release(y, &stage_error)); /* by then the dispatcher has made a round */
    ends(&in_line, HF_OK);
    stage_await(S_WATCH, watched + 1);
    assert_int_equal(outside.wait->full, 1); /* the store has not answered "full" to it once more */
    OK(hf_release(in_line.lock, &stage_error));
    hf_wait_free(outside.wait);
    hf_wait_free(first.wait);
    OK(hf_release(other, &stage_error));
    done();
}

/* ---- waits ---- */

static void the_machine_sleeps(void) { stage_suspend(61000000); }

/* When the request is queued, the holder's time is over. */
static void in_line_behind_what_is_over(void **state)
{
    (void)state;
    begin(SERVER);
    OK(stage_acquire(rival, "k", 0, 60000, HF_NO_RENEW, &other));
    stage_cue(S_SWAP, 1, 1, INSTEAD, 0, the_machine_sleeps);
    OK(stage_acquire(h, "k", 600000, 60000, 0, &lock));
    OK(hf_release(lock, &stage_error));
    hf_release(other, NULL);
    done();
}

/* The holder's time is over, and the first waiter doesn't notice. */
static void behind_one_who_sleeps(void **state)
{
    (void)state;
    struct waiter w;
    begin(SERVER);
    OK(stage_acquire(rival, "k", 0, 60000, HF_NO_RENEW, &other));
    add_a_sleeper(0);
    ask(h, &w, "k", 600000, 0);
    await_queue(2);
    stage_suspend(62000000);
    await_queue(1);
    assert_int_equal(stage_row("k")->party[0].id[0], 7);
    stage_suspend(62000000); /* and it doesn't claim the key */
    ends_with_the_key(&w);
    hf_release(other, NULL);
    done();
}

/* Where sessions are the store's, the store notices that the waiter ahead is dead. */
static void behind_one_who_dies(void **state)
{
    (void)state;
    struct waiter w;
    hf_lock *x;
    begin(LEASES);
    hf *third = stage_open("b");
    OK(stage_acquire(third, "x", 0, 60000, 0, &x));
    OK(stage_acquire(rival, "k", 0, 60000, 0, &other));
    add_a_sleeper(stage_row("x")->party[0].session);
    ask(h, &w, "k", 600000, 0);
    await_queue(2);
    stage_kill(stage_row("x")->party[0].session);
    await_queue(1);
    OK(hf_release(other, &stage_error));
    ends_with_the_key(&w);
    hf_release(x, NULL);
    hf_close(third);
    done();
}

static hf_wait *crowded;

static void it_was_refused_often(void) { crowded->full = UINT8_MAX; }

static void refused_more_often_than_is_counted(void **state)
{
    (void)state;
    struct waiter w;
    begin(SERVER);
    stage_driver.caps.queue_cap = 0;
    change_caps();
    OK(stage_acquire(rival, "k", 0, 60000, 0, &other));
    ask(h, &w, "k", 600000, 0);
    crowded = w.wait;
    uint64_t asked = stage_calls(S_GET);
    stage_cue(S_GET, 1, 1, INSTEAD, 0, it_was_refused_often);
    stage_await(S_GET, asked + 1);
    hf_wait_cancel(w.wait);
    while (__atomic_load_n(&w.code, __ATOMIC_SEQ_CST) == 77) hf__pause(1000);
    assert_int_equal(w.wait->full, UINT8_MAX);
    ends(&w, HF_CANCELED);
    OK(hf_release(other, &stage_error));
    done();
    begin(LOCAL);
    stage_driver.caps.queue_cap = 0;
    change_caps();
    OK(stage_acquire(rival, "k", 0, 0, 0, &other));
    IS(HF_TIMEOUT, stage_acquire(h, "k", 50, 60000, 0, &lock));
    OK(hf_release(other, &stage_error));
    done();
}

static void a_first_look_that_is_put_off(void **state)
{
    (void)state;
    begin(SERVER);
    OK(stage_acquire(h, "k", 0, 60000, 0, &lock));
    struct hf_entry *e = lock->e;
    OK(hf_release(lock, &stage_error));
    pthread_mutex_lock(&h->mu);
    int64_t soon_us = hf__local_us() + 300000;
    e->wrote_us = soon_us;
    e->yield_at_us = 0;
    pthread_mutex_unlock(&h->mu);
    OK(stage_acquire(h, "k", 600000, 60000, 0, &lock));
    assert_true(hf__local_us() > soon_us); /* others have had the time to get in between */
    OK(hf_release(lock, &stage_error));
    done();
}

static void no_more_memory(void) { stage_no_memory(1); }

/* The first acquire's reply was lost, and the second one finds its grant, for which there is no
   memory: the key is released, and that is certain. */
static void a_take_that_is_found_and_cannot_be_told(void **state)
{
    (void)state;
    begin(SERVER);
    stage_cue(S_ACQUIRE, 1, 1, ALTHOUGH, HF_UNKNOWN, NULL);
    stage_cue(S_ACQUIRE, 2, 1, INSTEAD, 0, no_more_memory);
    IS(HF_NOMEM, stage_acquire(h, "k", 1000, 60000, 0, &lock));
    assert_int_equal(stage_no_memory(0), 1);
    assert_int_equal(stage_row("k")->n_holders, 0);
    OK(stage_acquire(h, "k", 0, 60000, 0, &lock));
    OK(hf_release(lock, &stage_error));
    done();
}

static void the_clock_jumps(void) { stage_step_clock(3600000000); }

/* The outcome isn't in doubt either if the grant was over as soon as it was made. */
static void a_take_that_is_found_and_is_over(void **state)
{
    (void)state;
    begin(SERVER);
    stage_cue(S_ACQUIRE, 1, 1, ALTHOUGH, HF_UNKNOWN, NULL);
    stage_cue(S_ACQUIRE, 2, 1, INSTEAD, 0, the_clock_jumps);
    stage_cue(S_SWAP, 1, 1, INSTEAD, 0, the_clock_jumps);
    IS(HF_UNAVAILABLE, stage_acquire(h, "k", 0, 60000, 0, &lock));
    assert_int_equal(stage_row("k")->n_holders, 0);
    done();
}

static void a_store_that_knows_no_sessions_calls_one_lost(void **state)
{
    (void)state;
    begin(SERVER);
    stage_driver.acquire = NULL;
    stage_cue(S_SWAP, 1, 1, INSTEAD, HF_LOST, NULL);
    IS(HF_LOST, stage_acquire(h, "k", 0, 60000, 0, &lock));
    OK(stage_acquire(h, "k", 0, 60000, 0, &lock));
    /* The key can't be released either as long as the store answers only that. */
    stage_cue(S_SWAP, 1, 10, INSTEAD, HF_LOST, NULL);
    IS(HF_LOST, hf_release(lock, &stage_error));
    done();
}

static void another_write(void)
{
    pthread_mutex_lock(&rival->mu);
    stage_row("k")->rev++;
    pthread_mutex_unlock(&rival->mu);
}

/* The reply to its first write was lost; then others always wrote first. */
static void overtaken_with_a_write_in_doubt(void **state)
{
    (void)state;
    struct waiter w;
    begin(SERVER);
    stage_driver.acquire = NULL;
    OK(stage_acquire(rival, "k", 0, 60000, 0, &other));
    stage_cue(S_SWAP, 1, 1, INSTEAD, HF_UNKNOWN, NULL);
    stage_cue(S_SWAP, 2, 4, INSTEAD, 0, another_write);
    ask(h, &w, "k", 600000, 0);
    await_queue(1);
    OK(hf_release(other, &stage_error));
    while (__atomic_load_n(&w.code, __ATOMIC_SEQ_CST) == 77) hf__pause(1000);
    assert_int_equal(w.wait->lost_reply, 1); /* its first write may still land */
    ends_with_the_key(&w);
    done();
}

/* More dead holders than one turn looks for. */
static void a_crowd_of_the_dead(void **state)
{
    (void)state;
    enum { DEAD = 80 };
    begin(LOCAL);
    stage_driver.caps.holders_cap = DEAD;
    change_caps();
    OK(stage_acquire(rival, "k", 0, 0, 0, &other));
    hf_row *row = stage_row("k");
    assert_int_equal(hf_row_room(row, DEAD), 0);
    for (uint32_t i = 1; i < DEAD; i++) {
        hf_party_copy(&row->party[i], &row->party[0]);
        row->party[i].id[0] = (uint8_t)i;
        row->party[i].session = 100000 + i;
        row->party[i].token = ++row->token;
    }
    row->n_holders = DEAD;
    row->rev = row->token;
    OK(hf_release(other, &stage_error));
    assert_int_equal(row->n_holders, DEAD - 1);
    OK(stage_acquire(h, "k", 600000, 0, 0, &lock));
    OK(hf_release(lock, &stage_error));
    assert_int_equal(row->n_holders, 0);
    done();
}

/* ---- handed over ---- */

static void it_is_handed_without_memory(void)
{
    if (is_handed()) stage_no_memory(1);
}

static void handed_what_it_cannot_hold(void **state)
{
    (void)state;
    static const unsigned cans[] = {WATCHED, CALM_LEASES};
    for (int i = 0; i < 2; i++) {
        struct waiter w;
        begin(cans[i]);
        OK(stage_acquire(rival, "k", 0, 60000, 0, &other));
        ask(h, &w, "k", 600000, 0);
        await_queue(1);
        stage_cue(S_GET, 1, 1 << 20, INSTEAD, 0, it_is_handed_without_memory);
        OK(hf_release(other, &stage_error));
        ends(&w, HF_NOMEM);
        stage_uncue();
        stage_no_memory(0);
        assert_int_equal(stage_row("k")->n_holders, 0);
        done();
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_are_handed_at_once),
        cmocka_unit_test(behind_a_thread_its_time_runs_out),
        cmocka_unit_test(wakeups_that_fall_silent),
        cmocka_unit_test(what_a_watch_asks_counts),
        cmocka_unit_test(who_found_no_room_is_not_woken),
        cmocka_unit_test(in_line_behind_what_is_over),
        cmocka_unit_test(behind_one_who_sleeps),
        cmocka_unit_test(behind_one_who_dies),
        cmocka_unit_test(refused_more_often_than_is_counted),
        cmocka_unit_test(a_first_look_that_is_put_off),
        cmocka_unit_test(a_take_that_is_found_and_cannot_be_told),
        cmocka_unit_test(a_take_that_is_found_and_is_over),
        cmocka_unit_test(a_store_that_knows_no_sessions_calls_one_lost),
        cmocka_unit_test(overtaken_with_a_write_in_doubt),
        cmocka_unit_test(a_crowd_of_the_dead),
        cmocka_unit_test(handed_what_it_cannot_hold),
    };
    return TEST_MAIN(tests);
}
