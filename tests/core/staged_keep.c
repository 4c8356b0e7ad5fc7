/*
 * staged_keep.c - holds that are renewed in time, whatever happens beside that: in a callback, in
 * the dispatcher, in a thread that keeps the session; and what is believed of a holder.
 */
#include "staged_waiter.h"
#include "withdraw.h"

enum { LONG_US = 40000000, CLAIM_MS = 6000, POLL_MS = CLAIM_MS / 3 };

static hf_lock *long_held; /* for which the renewer sleeps */

/* Claims last longer than any pause of the machine, and are to be made after an eighth of that. */
static void begin_with_long_claims(void)
{
    begin(WATCHED);
    stage_driver.caps.poll_ms = POLL_MS;
    change_caps();
    OK(stage_acquire(h, "long held", 0, 3600000, 0, &long_held));
    OK(stage_acquire(rival, "k", 0, 60000, 0, &other));
}

static void end_with_long_claims(void)
{
    OK(hf_release(long_held, &stage_error));
    done();
}

/* Returns 1 if less time than a claim timeout has passed, so that no other client can have got the
   key. */
static int claimed_meanwhile(void)
{
    for (int64_t until = hf__local_us() + (CLAIM_MS - 1000) * 1000; hf__local_us() < until;) {
        if (!(stage_first("k").flags & HF_PARTY_UNCLAIMED)) return 1;
        hf__pause(1000);
    }
    return 0;
}

static int claimed; /* atomic; -1: nobody has looked */

static void notes_late(void *arg, int code, hf_lock *l, const hf_error *err)
{
    claimed = claimed_meanwhile();
    note(arg, code, l, err);
}

/* The renewer must not learn of the hold only when the callback has returned. */
static void a_callback_that_takes_longer_than_a_claim(void **state)
{
    (void)state;
    struct waiter k;
    hf_options o = HF_OPTIONS_INIT;
    o.lease_ms = 60000;
    begin_with_long_claims();
    uint64_t watched = stage_calls(S_WATCH);
    ask_and(h, &k, "k", &o, notes_late);
    stage_await(S_WATCH, watched + 1);
    await_queue(1);
    OK(hf_release(other, &stage_error));
    ends_with_the_key(&k);
    assert_int_equal(claimed, 1);
    end_with_long_claims();
}

static int taken; /* atomic */
static hf_lock *first, *second;

static void listens_long(void)
{
    if (__atomic_load_n(&taken, __ATOMIC_SEQ_CST) && claimed < 0) claimed = claimed_meanwhile();
}

static void *takes_two(void *arg)
{
    OK(stage_acquire(h, "k", -1, 60000, 0, &first));
    __atomic_store_n(&taken, 1, __ATOMIC_SEQ_CST);
    OK(stage_acquire(h, "m", -1, 60000, 0, &second));
    return arg;
}

/* The renewer learns of the hold a millisecond later, although the subscription in between takes
   longer. */
static void a_listen_that_takes_longer_than_a_claim(void **state)
{
    (void)state;
    pthread_t thread;
    begin_with_long_claims();
    OK(stage_acquire(rival, "m", 0, 60000, 0, &lock));
    uint64_t watched = stage_calls(S_WATCH);
    taken = 0;
    claimed = -1;
    assert_int_equal(pthread_create(&thread, NULL, takes_two, NULL), 0);
    await_queue(1);
    stage_await(S_WATCH, watched + 2);
    stage_cue(S_LISTEN, 1, 1 << 20, INSTEAD, 0, listens_long);
    OK(hf_release(other, &stage_error));
    await_queue_of("m", 1);
    OK(hf_release(lock, &stage_error));
    pthread_join(thread, NULL);
    assert_int_not_equal(claimed, 0);
    OK(hf_release(first, &stage_error));
    OK(hf_release(second, &stage_error));
    end_with_long_claims();
}

/* ---- a clock that is set back ---- */

/* The row as it is, but no clock. */
static int tells(hf_store *st, const hf_rowkey *key, hf_row *row)
{
    int64_t unheard;
    return !stage_driver.get(st, key, row, &unheard, NULL) && row->rev;
}

static int see_nothing(void *arg, const hf_info *info)
{
    (void)arg, (void)info;
    return 0;
}

static int has_it(struct waiter *w) { return __atomic_load_n(&w->code, __ATOMIC_SEQ_CST) == HF_OK; }

static struct waiter ahead;

static void until_it_is_taken_up(void)
{
    for (int i = 0; i < 100 && !has_it(&ahead); i++) hf__pause(1000);
}

/* By a reading from before the clock was set back, the granted waiter's lease would be over. The
   waiter behind it must not take the key because of that. */
static void a_word_is_not_judged_by_an_old_clock(void **state)
{
    (void)state;
    struct waiter behind;
    hf_options o = HF_OPTIONS_INIT;
    o.lease_ms = 60000;
    begin_with_long_claims();
    stage_notify.payload = tells;
    hf *third = stage_open("b");
    uint64_t watched = stage_calls(S_WATCH);
    ask_and(third, &ahead, "k", &o, note);
    stage_await(S_WATCH, watched + 1);
    await_queue(1);
    watched = stage_calls(S_WATCH);
    ask_and(h, &behind, "k", &o, note);
    await_queue(2);
    stage_await(S_WATCH, watched + 2);
    hf__pause(50000); /* the wait is subscribed; later it would read the row */
    stage_step_clock(-20000000);
    OK(hf_peek(rival, "k", see_nothing, NULL, &stage_error));
    OK(hf_peek(third, "k", see_nothing, NULL, &stage_error));
    stage_cue(S_SWAP, 1, 1, INSTEAD, 0, until_it_is_taken_up);
    OK(hf_release(other, &stage_error));
    await_end(&ahead);
    /* If the second got it because the machine stood still, the first one's lease was over before.
     */
    for (int i = 0; i < 500 && !has_it(&behind); i++) hf__pause(1000);
    assert_false(has_it(&behind) && hf_left_ms(ahead.lock) > 0);
    hf_release(ahead.lock, NULL);
    hf_wait_free(ahead.wait);
    ends_with_the_key(&behind);
    hf_close(third);
    end_with_long_claims();
}

/* ---- sessions ---- */

/* For longer than a deferred cancel waits for its next turn (a pause lasts half of that at least).
 */
static void hangs(void) { hf__pause(1100000); }

/* Sessions are kept also while earlier requests can't be withdrawn. */
static void sessions_are_kept_beside_regrets(void **state)
{
    (void)state;
    begin(LEASES);
    OK(stage_acquire(h, "k", 0, 12000, 0, &lock));
    stage_cue(S_GET, 1, 1 << 20, INSTEAD, HF_UNAVAILABLE, hangs);
    pthread_mutex_lock(&h->mu);
    for (uint8_t i = 1; i < 3; i++) {
        uint8_t id[16] = {i};
        hf__defer_cancel(h, lock->e, id);
    }
    pthread_mutex_unlock(&h->mu);
    stage_await(S_GET, stage_calls(S_GET) + 3);
    uint64_t kept = stage_calls(S_KEEP);
    for (int64_t until = hf__local_us() + LONG_US; hf__local_us() < until; hf__pause(1000))
        if (stage_calls(S_KEEP) > kept) break;
    assert_true(stage_calls(S_KEEP) > kept);
    stage_uncue();
    hf_release(lock, NULL);
    done();
}

static struct hf_session *session;

/* A keeper comes by just then, and passes over it. */
static void is_passed_over(void)
{
    struct hf_keepers *k = &h->sessions.keepers;
    int sleep = 0;
    pthread_mutex_lock(&h->mu);
    session->keep_at_us = 0;
    pthread_cond_broadcast(&k->work);
    pthread_mutex_unlock(&h->mu);
    while (!sleep) {
        pthread_mutex_lock(&h->mu);
        sleep = k->n && k->idle == k->n;
        pthread_mutex_unlock(&h->mu);
        hf__pause(10000);
    }
}

/* The keepers must not pass over such a session. */
static void a_session_that_another_thread_keeps_is_kept_on(void **state)
{
    (void)state;
    begin(LEASES);
    pthread_mutex_lock(&h->mu);
    OK(hf__session_have(&h->sessions, 3000, 0, &session, &stage_error));
    stage_cue(S_KEEP, 1, 1, INSTEAD, 0, is_passed_over);
    OK(hf__session_keep(&h->sessions, session, &stage_error));
    pthread_mutex_unlock(&h->mu);
    for (int64_t until = hf__local_us() + LONG_US; hf__local_us() < until; hf__pause(1000))
        if (stage_calls(S_KEEP) >= 2) break;
    assert_true(stage_calls(S_KEEP) >= 2);
    pthread_mutex_lock(&h->mu);
    hf__session_put(&h->sessions, session);
    pthread_mutex_unlock(&h->mu);
    done();
}

/* ---- the row that a lock keeps ---- */

/* Gives the row a queue of n waiters, each with a note of 200 bytes. */
static void set_queue(hf_row *row, uint32_t n)
{
    assert_int_equal(hf_row_room(row, 1 + n), 0);
    for (uint32_t i = 1; i <= n; i++) {
        hf_party *p = &row->party[i];
        hf_party_copy(p, &row->party[0]);
        memcpy(p->id, &i, sizeof i);
        p->token = 0;
        p->note_len = 200;
        memset(p->note, 'n', 200);
        p->note[200] = 0;
    }
    row->n_queue = n;
    row->rev++;
}

/* A handle may have many thousand locks, so each keeps only a short row. The last-row cache, of
   which a handle has one, may keep a longer row. */
static void a_lock_keeps_no_long_row(void **state)
{
    (void)state;
    begin(SERVER);
    OK(stage_acquire(h, "k", 0, 600000, 0, &lock));
    for (uint32_t n = 8; n <= 64; n *= 8) { /* about 2 and 17 kB */
        set_queue(stage_row("k"), n);
        OK(hf_renew(lock, 0, &stage_error));
        assert_int_equal(lock->row != NULL, n == 8);
    }
    OK(hf_release(lock, &stage_error));
    assert_non_null(h->last_row.e);
    done();
}

/* ---- without a lease ---- */

/* A hold without a lease that was broken must not seem to last because the store isn't asked. */
static void a_broken_hold_without_a_lease_is_not_renewed(void **state)
{
    (void)state;
    begin(LOCAL);
    OK(stage_acquire(h, "k", 0, 0, 0, &lock));
    OK(hf_renew(lock, 0, &stage_error));
    assert_true(hf_left_ms(lock) == INT64_MAX);
    break_it();
    OK(stage_acquire(rival, "k", 0, 0, 0, &other));
    IS(HF_LOST, hf_renew(lock, 0, &stage_error));
    IS(HF_LOST, hf_release(lock, &stage_error));
    OK(hf_release(other, &stage_error));
    done();
}

/* A third of no lease is no time, which the store didn't get to answer again. */
static void such_a_renewal_waits_for_the_store(void **state)
{
    (void)state;
    begin(LOCAL);
    h->port.io_timeout_ms = 60000;
    OK(stage_acquire(h, "k", 0, 0, 0, &lock));
    for (int lease_ms = 0; lease_ms < 120000; lease_ms += 60000) {
        stage_cue(S_GET, 1, 1, INSTEAD, HF_UNAVAILABLE, NULL);
        OK(hf_renew(lock, lease_ms, &stage_error));
    }
    OK(hf_release(lock, &stage_error));
    done();
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_callback_that_takes_longer_than_a_claim),
        cmocka_unit_test(a_listen_that_takes_longer_than_a_claim),
        cmocka_unit_test(a_word_is_not_judged_by_an_old_clock),
        cmocka_unit_test(sessions_are_kept_beside_regrets),
        cmocka_unit_test(a_session_that_another_thread_keeps_is_kept_on),
        cmocka_unit_test(a_lock_keeps_no_long_row),
        cmocka_unit_test(a_broken_hold_without_a_lease_is_not_renewed),
        cmocka_unit_test(such_a_renewal_waits_for_the_store),
    };
    return TEST_MAIN(tests);
}
