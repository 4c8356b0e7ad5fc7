/*
 * staged_claim.c - the renewer learns in time which claims it has to make, whatever else is to be
 * done.
 */
#include "staged_waiter.h"
#include "threads.h"

#include <pthread.h>
#include <stdlib.h>

/* ---- of a hold that was handed over ---- */

/* The dispatcher's thread, after it has reported the grant of "k"; whether it has looked for
   another wait since; whether the claim was made during that look. */
static struct {
    pthread_t dispatcher;
    int told; /* atomic */
    int asked, claimed;
} claim;

static void note_k(void *arg, int code, hf_lock *l, const hf_error *err)
{
    claim.dispatcher = pthread_self();
    __atomic_store_n(&claim.told, 1, __ATOMIC_RELEASE);
    note(arg, code, l, err);
}

/* Within 20 s: a second after it was handed over it is over, unless it is claimed. */
static int is_claimed(void)
{
    hf_rowkey key;
    int64_t clock_us;
    int is = 0;
    hf_row row;
    OK(hf_key_make("k", &key, &stage_error));
    hf_row_init(&row);
    for (int64_t end = hf__local_us() + 20000000; !is && hf__local_us() < end; hf__pause(1000)) {
        OK(stage_driver.get(rival->port.st, &key, &row, &clock_us, &stage_error));
        is = row.n_holders == 1 && !(row.party[0].flags & HF_PARTY_UNCLAIMED);
    }
    hf_row_clear(&row);
    return is;
}

static void ask_while_it_looks(void)
{
    if (!__atomic_load_n(&claim.told, __ATOMIC_ACQUIRE)) return;
    if (!pthread_equal(claim.dispatcher, pthread_self()) || claim.asked++) return;
    claim.claimed = is_claimed();
}

/* Starts a wait for the key, and waits until it is subscribed. */
static void waits_for(const char *key, struct waiter *w, hf_acquired_fn *told)
{
    hf_options o = HF_OPTIONS_INIT;
    uint64_t watched = stage_calls(S_WATCH);
    ask_and(h, w, key, &o, told);
    stage_await(S_WATCH, watched + 1);
}

static hf_lock *long_held;

/* The rival has "k"; the renewer of `h` sleeps for minutes. */
static void begin_held(void)
{
    begin(WATCHED);
    memset(&claim, 0, sizeof claim);
    OK(stage_acquire(h, "long held", 0, 3600000, 0, &long_held));
    OK(stage_acquire(rival, "k", 0, 60000, 0, &other));
}

static void a_claim_is_made_though_nothing_else_happens(void **state)
{
    (void)state;
    struct waiter k;
    begin_held();
    waits_for("k", &k, note_k);
    OK(hf_release(other, &stage_error));
    await_end(&k);
    assert_true(is_claimed());
    ends_with_the_key(&k);
    OK(hf_release(long_held, &stage_error));
    done();
}

/* The dispatcher has others to look for, and the store may be slow to answer it. */
static void a_claim_does_not_wait_for_others(void **state)
{
    (void)state;
    struct waiter k, m;
    begin_held();
    OK(stage_acquire(rival, "m", 0, 60000, 0, &lock));
    waits_for("m", &m, note);
    waits_for("k", &k, note_k); /* the later one is looked at first */
    stage_cue(S_GET, 1, 1000, INSTEAD, 0, ask_while_it_looks);
    OK(hf_release(other, &stage_error));
    await_end(&k);
    OK(hf_release(lock, &stage_error));
    await_end(&m);
    stage_uncue();
    assert_true(claim.asked && claim.claimed);
    ends_with_the_key(&k);
    ends_with_the_key(&m);
    OK(hf_release(long_held, &stage_error));
    done();
}

static struct waiter slow;
static int64_t left_ms; /* what was left of the hold before its claim was stored */

/* Acts as if the write of the claim took 1.5 s. */
static void the_claim_takes_long(void)
{
    while (!__atomic_load_n(&claim.told, __ATOMIC_ACQUIRE)) hf__pause(1000);
    await_end(&slow);
    stage_suspend(1500000);
    left_ms = hf_left_ms(slow.lock);
}

/* Where a request takes longer than usual a waiter asks for more time to claim its grant. */
static void a_slow_claim_is_waited_for(void **state)
{
    (void)state;
    begin_held();
    __atomic_store_n(&h->port.round_trip_us, 2000000, __ATOMIC_RELAXED);
    waits_for("k", &slow, note_k);
    await_queue(1);
    assert_in_range(stage_row("k")->party[1].claim_ms, 4000, 8000);
    stage_cue(S_SWAP, 1, 1, INSTEAD, 0, the_claim_takes_long);
    OK(hf_release(other, &stage_error));
    await_end(&slow);
    assert_true(is_claimed());
    assert_true(left_ms > 0);
    ends_with_the_key(&slow);
    OK(hf_release(long_held, &stage_error));
    done();
}

/* ---- of a session ---- */

static struct hf_session *needed;
static uint64_t kept_by_then;

static struct hf_session *have(int own)
{
    struct hf_session *t = NULL;
    OK(hf__session_have(&h->sessions, 60000, own, &t, &stage_error));
    return t;
}

/* The session is kept before the request that ends another one is answered. */
static void it_is_due(void)
{
    pthread_mutex_lock(&h->mu);
    needed->keep_at_us = 0;
    hf__kick_keepers(&h->sessions);
    pthread_mutex_unlock(&h->mu);
    stage_await(S_KEEP, kept_by_then + 1);
}

static void what_is_kept_does_not_wait_for_what_is_ended(void **state)
{
    (void)state;
    begin(LEASES);
    uint64_t ended = stage_calls(S_END);
    kept_by_then = stage_calls(S_KEEP);
    stage_cue(S_END, 1, 1, INSTEAD, 0, it_is_due);
    pthread_mutex_lock(&h->mu);
    needed = have(0);
    struct hf_session *given_up[] = {have(1), have(1), have(1)};
    for (int i = 0; i < 3; i++) hf__session_put(&h->sessions, given_up[i]);
    pthread_mutex_unlock(&h->mu);
    stage_await(S_END, ended + 3);
    pthread_mutex_lock(&h->mu);
    hf__session_put(&h->sessions, needed);
    pthread_mutex_unlock(&h->mu);
    done();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_claim_is_made_though_nothing_else_happens),
        cmocka_unit_test(a_claim_does_not_wait_for_others),
        cmocka_unit_test(a_slow_claim_is_waited_for),
        cmocka_unit_test(what_is_kept_does_not_wait_for_what_is_ended),
    };
    return TEST_MAIN(tests);
}
