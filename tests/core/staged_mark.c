/*
 * staged_mark.c - an event that has run is marked as done although the store is away for a while:
 * it is tried as long as the hold lasts, for a minute at most. What is told of it is so.
 */
#include "handle.h"
#include "staged_pair.h"

#include <pthread.h>
#include <string.h>

enum { LEASE_MS = 60000, DAY_MS = 86400000, AWAY_US = 4000000, TRIES = 3, FOR_EVER = 1000 };

static hf_once once;

static void runs(unsigned can, int64_t lease_ms)
{
    hf_options o = HF_OPTIONS_INIT;
    begin(can);
    o.wait_ms = 0;
    o.lease_ms = lease_ms;
    OK(hf_once_begin(h, "k", HF_FOREVER, &o, &once, &stage_error));
    assert_non_null(once.lock);
}

static int is_marked(void) { return stage_row("k")->done_us != 0; }

/* So long an attempt takes while the store is away: some of them, and io_timeout_ms is over. */
static void time_passes(void) { stage_suspend(AWAY_US); }

static void away_for_a_while(enum stage_op op, enum stage_way way, int code)
{
    runs(SERVER, LEASE_MS);
    stage_cue(op, 1, TRIES, way, code, time_passes);
    OK(hf_once_finish(once.lock, "sent", HF_FOREVER, &stage_error));
    assert_true(is_marked());
    assert_int_equal(stage_row("k")->n_holders, 0);
    done();
}

static void it_is_marked_when_the_store_is_back(void **state)
{
    (void)state;
    away_for_a_while(S_GET, INSTEAD, HF_UNAVAILABLE);
    away_for_a_while(S_GET, INSTEAD, HF_UNKNOWN);
    away_for_a_while(S_SWAP, INSTEAD, HF_UNAVAILABLE);
    away_for_a_while(S_SWAP, INSTEAD, HF_UNKNOWN);
    away_for_a_while(S_SWAP, ALTHOUGH, HF_UNKNOWN);
}

static void never_back(enum stage_op op, int code, int64_t lease_ms, const char *text)
{
    runs(SERVER, lease_ms);
    int64_t began_us = hf__local_us();
    stage_cue(op, 1, FOR_EVER, INSTEAD, code, time_passes);
    IS(code, hf_once_finish(once.lock, "sent", HF_FOREVER, &stage_error));
    int64_t took_ms = (hf__local_us() - began_us) / 1000;
    if (!strstr(stage_error.text, text)) fail_msg("%s", stage_error.text);
    /* To release the lock takes io_timeout_ms more. */
    if (took_ms < LEASE_MS - 2000 || took_ms > 2 * LEASE_MS)
        fail_msg("%lld ms", (long long)took_ms);
    stage_uncue();
    assert_false(is_marked());
    done();
}

static void it_is_tried_while_the_hold_lasts(void **state)
{
    (void)state;
    never_back(S_SWAP, HF_UNAVAILABLE, LEASE_MS, "the event isn't marked as done");
    never_back(S_GET, HF_UNAVAILABLE, LEASE_MS, "the event isn't marked as done");
    never_back(S_SWAP, HF_UNKNOWN, LEASE_MS, "the event may not be marked as done");
    never_back(S_SWAP, HF_UNAVAILABLE, DAY_MS, "the event isn't marked as done");
}

static pthread_t closer;
static int closing_begun;

static void *closes(void *arg)
{
    hf_close(h);
    return arg;
}

static void is_closed(void)
{
    if (!closing_begun) assert_int_equal(pthread_create(&closer, NULL, closes, NULL), 0);
    closing_begun = 1;
    while (!hf__closing(h)) hf__pause(1000);
    time_passes();
}

/* Then it is tried for io_timeout_ms more, so that hf_close ends soon. */
static void it_is_given_up_when_the_handle_is_closed(void **state)
{
    (void)state;
    runs(SERVER, DAY_MS);
    closing_begun = 0;
    int64_t began_us = hf__local_us();
    stage_cue(S_SWAP, 1, FOR_EVER, INSTEAD, HF_UNAVAILABLE, is_closed);
    IS(HF_UNAVAILABLE, hf_once_finish(once.lock, "sent", HF_FOREVER, &stage_error));
    pthread_join(closer, NULL);
    int64_t took_ms = (hf__local_us() - began_us) / 1000;
    if (took_ms > LEASE_MS / 2) fail_msg("%lld ms", (long long)took_ms);
    h = NULL;
    done();
}

static void begins_to_close(void)
{
    hf_close_begin(h);
    time_passes();
}

/* A program that awaits its own threads before hf_close says so first. */
static void it_is_given_up_when_closing_begins(void **state)
{
    hf_lock *held;
    (void)state;
    runs(SERVER, DAY_MS);
    OK(stage_acquire(h, "held", 0, DAY_MS, 0, &held));
    int64_t began_us = hf__local_us();
    stage_cue(S_SWAP, 1, FOR_EVER, INSTEAD, HF_UNAVAILABLE, begins_to_close);
    IS(HF_UNAVAILABLE, hf_once_finish(once.lock, "sent", HF_FOREVER, &stage_error));
    int64_t took_ms = (hf__local_us() - began_us) / 1000;
    if (took_ms > LEASE_MS / 2) fail_msg("%lld ms", (long long)took_ms);
    stage_uncue();
    IS(HF_CANCELED, stage_acquire(h, "other", 0, 0, 0, &lock));
    OK(hf_release(held, &stage_error));
    hf_close_begin(NULL);
    done();
}

/* What doesn't pass is told at once. */
static void it_is_not_tried_again_if_the_store_refuses(void **state)
{
    (void)state;
    runs(SERVER, LEASE_MS);
    stage_cue(S_SWAP, 1, 1, INSTEAD, HF_DENIED, NULL);
    IS(HF_DENIED, hf_once_finish(once.lock, "sent", HF_FOREVER, &stage_error));
    assert_false(is_marked());
    assert_int_equal(stage_row("k")->n_holders, 0);
    done();
}

static void rival_runs_it(void)
{
    hf_options o = HF_OPTIONS_INIT;
    stage_suspend((int64_t)LEASE_MS * 1000);
    o.wait_ms = 0;
    o.lease_ms = DAY_MS;
    static hf_once again;
    OK(hf_once_begin(rival, "k", HF_FOREVER, &o, &again, &stage_error));
    other = again.lock;
}

static void it_is_not_marked_over_the_next_run(void **state)
{
    (void)state;
    runs(SERVER, LEASE_MS);
    stage_cue(S_SWAP, 1, 1, INSTEAD, HF_UNAVAILABLE, rival_runs_it);
    assert_int_not_equal(hf_once_finish(once.lock, "sent", HF_FOREVER, &stage_error), 0);
    assert_false(is_marked());
    OK(hf_once_finish(other, "again", HF_FOREVER, &stage_error));
    assert_true(is_marked());
    done();
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_marked_when_the_store_is_back),
        cmocka_unit_test(it_is_tried_while_the_hold_lasts),
        cmocka_unit_test(it_is_given_up_when_the_handle_is_closed),
        cmocka_unit_test(it_is_given_up_when_closing_begins),
        cmocka_unit_test(it_is_not_tried_again_if_the_store_refuses),
        cmocka_unit_test(it_is_not_marked_over_the_next_run),
    };
    return TEST_MAIN(tests);
}
