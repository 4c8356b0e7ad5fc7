/*
 * staged_wait.c - waits on stores that are away, lose replies, or notify of nothing or of something
 * untrue: each wait ends, once, with a true result.
 */
#include "staged_waiter.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- a thread that waits ---- */

struct asker {
    pthread_t thread;
    const char *key;
    int64_t wait_ms, lease_ms;
    unsigned flags;
    int code, once;
    hf_once event;
    hf_lock *lock;
    hf_error err;
};

static void *ask(void *arg)
{
    struct asker *a = arg;
    hf_options o = HF_OPTIONS_INIT;
    o.wait_ms = a->wait_ms;
    o.lease_ms = a->lease_ms;
    o.flags = a->flags;
    o.note = "a waiter";
    if (a->once)
        a->code = hf_once_begin(h, a->key, HF_FOREVER, &o, &a->event, &a->err);
    else
        a->code = hf_acquire(h, a->key, &o, &a->lock, &a->err);
    if (!a->code && a->once) a->lock = a->event.lock;
    if (!a->code && a->lock) hf_release(a->lock, NULL);
    return NULL;
}

static void start(struct asker *a, int64_t wait_ms)
{
    a->key = "k";
    a->wait_ms = wait_ms;
    assert_int_equal(pthread_create(&a->thread, NULL, ask, a), 0);
}

static void returns(struct asker *a, int code)
{
    assert_int_equal(pthread_join(a->thread, NULL), 0);
    if (a->code != code)
        fail_msg("%s, not %s: %s", hf_code_name(a->code), hf_code_name(code), a->err.text);
}

/* ---- looks that come late ---- */

/* Requests the key, and blocks the thread that would look until the limit has passed. */
static void ask_and_sleep(void *arg, int code, hf_lock *l, const hf_error *err)
{
    struct waiter *late = arg;
    hf_options o = HF_OPTIONS_INIT;
    (void)err;
    assert_int_equal(code, HF_OK);
    o.wait_ms = 500;
    OK(hf_acquire_start(h, "k", &o, note, late, &late->wait, &stage_error));
    stage_suspend(1000000);
    OK(hf_release(l, &stage_error));
}

static void who_is_late_looks_once(void **state)
{
    (void)state;
    static const unsigned cans[] = {SERVER, WATCHED, WAKEUPS};
    for (int i = 0; i < 6; i++) {
        int held = i % 2;
        hf_wait *before;
        struct waiter late = {.code = NOT_OVER};
        begin(cans[i / 2]);
        if (held) OK(stage_acquire(rival, "k", 0, 60000, 0, &other));
        OK(hf_acquire_start(h, "before", NULL, ask_and_sleep, &late, &before, &stage_error));
        ends(&late, held ? HF_TIMEOUT : HF_OK);
        OK(hf_release(late.lock, &stage_error));
        if (held) OK(hf_release(other, &stage_error));
        assert_int_equal(stage_row("k")->n_holders + stage_row("k")->n_queue, 0);
        hf_wait_free(before);
        done();
    }
}

/* ---- stores that are away ---- */

static void a_wait_bears_a_store_that_is_away(void **state)
{
    (void)state;
    static const unsigned cans[] = {SERVER, WATCHED, WAKEUPS};
    for (size_t i = 0; i < 3; i++) {
        struct asker a = {.lease_ms = 60000};
        begin(cans[i]);
        OK(stage_acquire(rival, "k", 0, 60000, 0, &other));
        start(&a, 60000);
        await_queue(1);
        stage_cue(S_GET, 1, 2, INSTEAD, HF_UNAVAILABLE, NULL);
        stage_cue(S_GET, 3, 2, INSTEAD, HF_UNKNOWN, NULL);
        stage_cue(S_LISTEN, 1, 3, INSTEAD, HF_UNAVAILABLE, NULL);
        stage_cue(S_WATCH, 1, 2, INSTEAD, HF_UNAVAILABLE, NULL);
        OK(hf_release(other, &stage_error));
        returns(&a, HF_OK);
        done();
    }
}

static void an_endless_wait_does_not_bear_it_for_ever(void **state)
{
    (void)state;
    struct asker a = {.lease_ms = 60000};
    begin(SERVER);
    OK(stage_acquire(rival, "k", 0, 60000, 0, &other));
    start(&a, HF_FOREVER);
    await_queue(1);
    uint64_t calls = stage_calls(S_GET);
    stage_cue(S_GET, 1, 1 << 30, INSTEAD, HF_UNAVAILABLE, NULL);
    stage_await(S_GET, calls + 2);
    stage_suspend(16000000);
    returns(&a, HF_UNKNOWN); /* whether it left the queue isn't known */
    stage_uncue();
    hf_release(other, NULL);
    done();
}

/* A server that has no room for a client is there. */
static void an_endless_wait_bears_a_full_server_for_ever(void **state)
{
    (void)state;
    struct asker a = {.lease_ms = 60000};
    begin(SERVER);
    OK(stage_acquire(rival, "k", 0, 60000, 0, &other));
    start(&a, HF_FOREVER);
    await_queue(1);
    uint64_t calls = stage_calls(S_GET);
    stage_sys = EBUSY;
    stage_cue(S_GET, 1, 1 << 30, INSTEAD, HF_UNAVAILABLE, NULL);
    stage_await(S_GET, calls + 1);
    stage_suspend(16000000);
    stage_await(S_GET, calls + 2);
    stage_uncue();
    OK(hf_release(other, &stage_error));
    returns(&a, HF_OK);
    stage_sys = 0; /* not before: a request that is under way may yet be answered by the cue */
    done();
}

static void what_cannot_be_withdrawn_is_unknown(void **state)
{
    (void)state;
    struct asker a = {.lease_ms = 60000};
    begin(SERVER);
    OK(stage_acquire(rival, "k", 0, 60000, 0, &other));
    start(&a, 300);
    await_queue(1);
    stage_cue(S_SWAP, 1, 1 << 30, INSTEAD, HF_UNKNOWN, NULL);
    returns(&a, HF_UNKNOWN);
    stage_uncue();
    struct asker b = {.lease_ms = 60000};
    start(&b, 300);
    await_queue(2);
    stage_cue(S_SWAP, 1, 1 << 30, INSTEAD, HF_DENIED, NULL);
    returns(&b, HF_UNKNOWN); /* it is still queued, whatever keeps it there */
    stage_uncue();
    struct asker c = {.lease_ms = 60000};
    start(&c, 60000);
    await_queue(3);
    stage_cue(S_GET, 1, 1, INSTEAD, HF_DENIED, NULL);
    returns(&c, HF_DENIED);
    assert_int_equal(stage_row("k")->n_queue, 2);
    done();
}

static void the_rival_takes_it(void)
{
    if (!other) OK(stage_acquire(rival, "k", 0, 60000, 0, &other));
}

/* An acquire isn't bound to a rev: as long as its effect wasn't seen, it may still land. */
static void a_take_that_is_never_heard_of_is_unknown(void **state)
{
    (void)state;
    begin(SERVER);
    stage_cue(S_ACQUIRE, 1, 1 << 30, INSTEAD, HF_UNKNOWN, NULL);
    IS(HF_UNKNOWN, stage_acquire(h, "k", 0, 60000, 0, &lock));
    stage_uncue();
    stage_cue(S_ACQUIRE, 1, 1 << 30, INSTEAD, HF_UNKNOWN, the_rival_takes_it);
    IS(HF_UNKNOWN, stage_acquire(h, "k", 300, 60000, 0, &lock));
    assert_int_equal(stage_row("k")->n_queue, 0);
    stage_uncue();
    stage_cue(S_ACQUIRE, 1, 1, ALTHOUGH, HF_UNKNOWN, NULL);
    OK(stage_acquire(h, "x", 1000, 60000, 0, &lock));
    OK(hf_release(lock, &stage_error));
    stage_cue(S_ACQUIRE, 1, 1, INSTEAD, HF_DENIED, NULL);
    IS(HF_DENIED, stage_acquire(h, "y", 1000, 60000, 0, &lock));
    stage_cue(S_ACQUIRE, 1, 1, INSTEAD, HF_LOST, NULL);
    IS(HF_LOST, stage_acquire(h, "y", 0, 60000, 0, &lock));
    done();
}

/* A write whose reply was lost, and which had been sent again, lands at the very end. However its
   grant was released, the free row says that this request had it last. */
static void a_take_that_lands_after_all_is_refused(void **state)
{
    (void)state;
    begin(SERVER);
    for (int way = 0; way < 4; way++) {
        hf_once once;
        hf_options o = HF_OPTIONS_INIT;
        o.lease_ms = 60000;
        stage_cue(S_ACQUIRE, 1, 1, INSTEAD, HF_UNKNOWN, NULL);
        if (way < 3)
            OK(stage_acquire(h, "k", 1000, 60000, 0, &lock));
        else
            OK(hf_once_begin(h, "k", 1000, &o, &once, &stage_error));
        stage_uncue();
        hf_row *row = stage_row("k");
        hf_party again = row->party[0];
        if (way == 1) OK(hf_renew(lock, 0, &stage_error));
        if (way == 2) stage_cue(S_SWAP, 1, 1, ALTHOUGH, HF_UNKNOWN, NULL);
        if (way < 3)
            OK(hf_release(lock, &stage_error));
        else
            OK(hf_once_finish(once.lock, "", 1000, &stage_error));
        stage_uncue();
        assert_int_equal(row->n_holders, 0);
        IS(HF_CONFLICT, hf_row_acquire(row, &again, 0, (int64_t)row->rev));
        assert_int_equal(row->n_holders, 0);
    }
    done();
}

/* ---- grants that are no use ---- */

static int forged;

static void as_if_over(hf_row *row)
{
    if (forged-- > 0 && row->n_holders) row->party[0].expires_us = 1;
}

static void as_if_nobody(hf_row *row)
{
    if (forged-- > 0) row->n_holders = 0;
}

static void as_if_waiting(hf_row *row)
{
    if (forged-- <= 0 || !row->n_holders) return;
    row->n_holders = 0;
    row->n_queue = 1;
    row->party[0].token = 0;
}

static void a_grant_that_is_over_is_not_believed(void **state)
{
    (void)state;
    void (*const forge[])(hf_row *) = {as_if_over, as_if_nobody, as_if_waiting};
    for (int i = 0; i < 3; i++) {
        begin(SERVER);
        forged = 1;
        stage_forge(forge[i]);
        OK(stage_acquire(h, "k", 5000, 60000, 0, &lock));
        OK(hf_release(lock, &stage_error));
        done();
    }
}

static void the_clock_jumps(void) { stage_step_clock(3600000000); }

static void a_try_whose_grant_comes_too_late_has_none(void **state)
{
    (void)state;
    begin(SERVER);
    stage_driver.acquire = NULL;
    stage_cue(S_SWAP, 1, 1, INSTEAD, 0, the_clock_jumps);
    IS(HF_UNAVAILABLE, stage_acquire(h, "k", 0, 60000, 0, &lock));
    stage_cue(S_SWAP, 1, 1, INSTEAD, 0, the_clock_jumps);
    OK(stage_acquire(h, "k", 5000, 60000, 0, &lock));
    OK(hf_release(lock, &stage_error));
    done();
}

static void an_old_clock_is_not_trusted_with_a_short_lease(void **state)
{
    (void)state;
    begin(SERVER);
    for (int old = 0; old < 2; old++) {
        OK(stage_acquire(h, "k", 0, 100, HF_NO_RENEW, &lock));
        OK(hf_release(lock, &stage_error));
        if (old) stage_suspend(120000000);
        uint64_t takes = stage_calls(S_ACQUIRE);
        OK(stage_acquire(h, "k", 0, 100, HF_NO_RENEW, &lock));
        OK(hf_release(lock, &stage_error));
        assert_int_equal(stage_calls(S_ACQUIRE) - takes, old);
    }
    done();
}

/* ---- lines ---- */

static void a_full_line_is_waited_for(void **state)
{
    (void)state;
    begin(SERVER);
    stage_driver.caps.queue_cap = 0;
    change_caps();
    OK(stage_acquire(rival, "k", 0, 60000, 0, &other));
    IS(HF_BUSY, stage_acquire(h, "k", 0, 60000, 0, &lock));
    IS(HF_TIMEOUT, stage_acquire(h, "k", 100, 60000, 0, &lock));
    struct asker a = {.lease_ms = 60000};
    uint64_t calls = stage_calls(S_GET);
    start(&a, 60000);
    stage_await(S_GET, calls + 1);
    OK(hf_release(other, &stage_error));
    returns(&a, HF_OK);
    done();
}

/* Where writes are expensive, a request is queued only if it asks for that. */
static void where_writes_cost_nobody_lines_up(void **state)
{
    (void)state;
    begin(STAGE_NOT_QUEUE);
    OK(stage_acquire(rival, "k", 0, 60000, 0, &other));
    struct asker a = {.lease_ms = 60000};
    uint64_t calls = stage_calls(S_GET);
    start(&a, 60000);
    stage_await(S_GET, calls + 3);
    assert_int_equal(stage_row("k")->n_queue, 0);
    OK(hf_release(other, &stage_error));
    returns(&a, HF_OK);
    done();
}

static void behind_others_of_its_process(void **state)
{
    (void)state;
    static const unsigned cans[] = {SERVER, WAKEUPS};
    for (int i = 0; i < 2; i++) {
        begin(cans[i]);
        OK(stage_acquire(rival, "k", 0, 60000, 0, &other));
        struct asker a = {.lease_ms = 60000};
        start(&a, 60000);
        await_queue(1);
        IS(HF_TIMEOUT, stage_acquire(h, "k", 50, 60000, 0, &lock));
        IS(HF_BUSY, stage_acquire(h, "k", 0, 60000, 0, &lock));
        stage_cue(S_ACQUIRE, 1, 1, INSTEAD, HF_DENIED, NULL);
        IS(HF_DENIED, stage_acquire(h, "k", 0, 60000, 0, &lock));
        OK(hf_release(other, &stage_error));
        returns(&a, HF_OK);
        done();
    }
}

static void *close_it(void *arg)
{
    hf_close(arg);
    return NULL;
}

static void note_code(void *arg, int code, hf_lock *l, const hf_error *err)
{
    (void)err, (void)l;
    __atomic_store_n((int *)arg, code, __ATOMIC_SEQ_CST);
}

static hf_lock *got;

static void note_lock(void *arg, int code, hf_lock *l, const hf_error *err)
{
    got = l;
    note_code(arg, code, l, err);
}

static uint64_t waiting(hf *store)
{
    hf_stats stats = {.size = sizeof stats};
    assert_int_equal(hf_get_stats(store, &stats), 0);
    return stats.waiting;
}

static void closing_ends_those_in_line(void **state)
{
    (void)state;
    static const unsigned cans[] = {SERVER, WAKEUPS, LOCAL};
    for (int i = 0; i < 3; i++) {
        struct asker a = {.lease_ms = 60000}, b = a;
        int code = 77;
        hf_wait *w;
        hf_options o = HF_OPTIONS_INIT;
        pthread_t closer;
        begin(cans[i]);
        OK(stage_acquire(rival, "k", 0, 60000, 0, &other));
        start(&a, 60000);
        await_queue(1);
        start(&b, 60000);
        o.wait_ms = HF_FOREVER;
        o.lease_ms = 60000;
        OK(hf_acquire_start(h, "k", &o, note_code, &code, &w, &stage_error));
        while (waiting(h) != 3) hf__pause(1000);
        assert_int_equal(pthread_create(&closer, NULL, close_it, h), 0);
        returns(&a, HF_CANCELED);
        returns(&b, HF_CANCELED);
        pthread_join(closer, NULL);
        assert_int_equal(code, HF_CANCELED);
        hf_wait_free(w);
        h = NULL;
        OK(hf_release(other, &stage_error));
        done();
    }
}

/* ---- without threads ---- */

static void without_threads_a_wait_ends_at_once(void **state)
{
    (void)state;
    hf_wait *w;
    int code = 0;
    begin(SERVER);
    OK(stage_acquire(rival, "k", 0, 60000, 0, &other));
    stage_no_threads(1);
    IS(HF_NOMEM, stage_acquire(h, "k", 5000, 60000, 0, &lock));
    IS(HF_NOMEM, hf_acquire_start(h, "k", NULL, note_code, &code, &w, &stage_error));
    assert_int_equal(stage_row("k")->n_queue, 0);
    IS(HF_NOMEM, stage_acquire(h, "free", 0, 60000, 0, &lock)); /* nothing would renew it */
    OK(stage_acquire(h, "free", 0, 60000, HF_NO_RENEW, &lock));
    OK(hf_release(lock, &stage_error));
    stage_no_threads(0);
    OK(hf_release(other, &stage_error));
    done();
    /* If no other client notices that the holder has gone, the wait looks by itself. */
    begin(LOCAL);
    OK(stage_acquire(rival, "k", 0, 200, HF_NO_RENEW, &other));
    stage_no_threads(1);
    OK(stage_acquire(h, "k", 20000, 60000, HF_NO_RENEW, &lock));
    OK(hf_release(lock, &stage_error));
    stage_no_threads(0);
    hf_release(other, NULL);
    done();
}

/* ---- waits that the dispatcher drives ---- */

static void a_started_wait_is_told_once(void **state)
{
    (void)state;
    static const unsigned cans[] = {SERVER, WATCHED, WAKEUPS, LOCAL};
    for (int i = 0; i < 4; i++) {
        hf_wait *w, *behind, *late;
        int code = 77, second = 77, third = 77;
        hf_options o = HF_OPTIONS_INIT;
        begin(cans[i]);
        OK(stage_acquire(rival, "k", 0, 60000, 0, &other));
        o.wait_ms = 60000;
        o.lease_ms = 60000;
        OK(hf_acquire_start(h, "k", &o, note_lock, &code, &w, &stage_error));
        await_queue(1);
        o.wait_ms = 30;
        OK(hf_acquire_start(h, "k", &o, note_code, &second, &behind, &stage_error));
        o.wait_ms = 0;
        OK(hf_acquire_start(h, "k", &o, note_code, &third, &late, &stage_error));
        while (__atomic_load_n(&second, __ATOMIC_SEQ_CST) == 77 ||
               __atomic_load_n(&third, __ATOMIC_SEQ_CST) == 77)
            hf__pause(1000);
        assert_int_equal(second, HF_TIMEOUT);
        assert_int_equal(third, HF_BUSY);
        stage_cue(S_WATCH, 1, 1, INSTEAD, HF_UNAVAILABLE, NULL);
        stage_cue(S_LISTEN, 2, 1, INSTEAD, HF_UNAVAILABLE, NULL);
        OK(hf_release(other, &stage_error));
        while (__atomic_load_n(&code, __ATOMIC_SEQ_CST) == 77) hf__pause(1000);
        assert_int_equal(code, HF_OK);
        hf_wait_free(w);
        hf_wait_cancel(behind);
        hf_wait_free(behind);
        hf_wait_free(late);
        OK(hf_release(got, &stage_error));
        done();
    }
}

static void an_event_that_cannot_be_seen_as_done_is_not(void **state)
{
    (void)state;
    hf_once once;
    begin(SERVER);
    hf_options o = HF_OPTIONS_INIT;
    o.lease_ms = 60000;
    OK(hf_once_begin(rival, "k", HF_FOREVER, &o, &once, &stage_error));
    OK(hf_once_finish(once.lock, "done", HF_FOREVER, &stage_error));
    stage_cue(S_SYNC, 1, 1, INSTEAD, HF_FULL, NULL);
    IS(HF_FULL, hf_once_begin(h, "k", HF_FOREVER, &o, &once, &stage_error));
    OK(hf_once_begin(h, "k", HF_FOREVER, &o, &once, &stage_error));
    assert_null(once.lock);
    assert_string_equal(once.result, "done");
    stage_driver.sync = NULL;
    OK(hf_once_begin(h, "k", HF_FOREVER, &o, &once, &stage_error));
    assert_null(once.lock);
    done();
}

/* An event that runs at most once is marked first; if the mark can't be made durable, it doesn't
   run. */
static void a_mark_that_does_not_last_lets_nothing_run(void **state)
{
    (void)state;
    hf_once once;
    hf_wait *w;
    int code = 77;
    begin(SERVER);
    hf_options o = HF_OPTIONS_INIT;
    o.lease_ms = 60000;
    o.flags = HF_AT_MOST_ONCE;
    stage_cue(S_SYNC, 1, 2, INSTEAD, HF_FULL, NULL);
    IS(HF_FULL, hf_once_begin(h, "k", 100, &o, &once, &stage_error));
    OK(hf_once_start(h, "x", 100, &o, &once, note_lock, &code, &w, &stage_error));
    while (__atomic_load_n(&code, __ATOMIC_SEQ_CST) == 77) hf__pause(1000);
    assert_int_equal(code, HF_FULL);
    assert_null(got);
    hf_wait_free(w);
    code = 77;
    OK(hf_once_start(h, "y", 100, &o, &once, note_lock, &code, &w, &stage_error));
    while (__atomic_load_n(&code, __ATOMIC_SEQ_CST) == 77) hf__pause(1000);
    assert_int_equal(code, HF_OK);
    assert_ptr_equal(once.lock, got);
    hf_wait_free(w);
    OK(hf_release(got, &stage_error));
    done();
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_is_late_looks_once),
        cmocka_unit_test(a_wait_bears_a_store_that_is_away),
        cmocka_unit_test(an_endless_wait_does_not_bear_it_for_ever),
        cmocka_unit_test(an_endless_wait_bears_a_full_server_for_ever),
        cmocka_unit_test(what_cannot_be_withdrawn_is_unknown),
        cmocka_unit_test(a_take_that_is_never_heard_of_is_unknown),
        cmocka_unit_test(a_take_that_lands_after_all_is_refused),
        cmocka_unit_test(a_grant_that_is_over_is_not_believed),
        cmocka_unit_test(a_try_whose_grant_comes_too_late_has_none),
        cmocka_unit_test(an_old_clock_is_not_trusted_with_a_short_lease),
        cmocka_unit_test(a_full_line_is_waited_for),
        cmocka_unit_test(where_writes_cost_nobody_lines_up),
        cmocka_unit_test(behind_others_of_its_process),
        cmocka_unit_test(closing_ends_those_in_line),
        cmocka_unit_test(without_threads_a_wait_ends_at_once),
        cmocka_unit_test(a_started_wait_is_told_once),
        cmocka_unit_test(an_event_that_cannot_be_seen_as_done_is_not),
        cmocka_unit_test(a_mark_that_does_not_last_lets_nothing_run),
    };
    return TEST_MAIN(tests);
}
