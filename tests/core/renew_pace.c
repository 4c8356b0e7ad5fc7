/*
 * renew_pace.c - what renewals learn of a store that is slow, or of which a part hangs; and by
 * which clock they go. See staged.h.
 */
#include "renewal_queue.h"
#include "staged_pair.h"

#include <stdio.h>
#include <string.h>

enum { MANY = 16, LEASE_MS = 600000 };

static struct {
    pthread_mutex_t mu;
    pthread_cond_t changed;
    const char *hangs; /* the key whose replace does, until it is NULL */
    int hung;          /* that does now */
    int stored;        /* replaces so far */
    int64_t ends_us[MANY];
    int64_t patience_us; /* of the last call */
} s = {.mu = PTHREAD_MUTEX_INITIALIZER};

static void one(hf_store *st, hf_replace *i)
{
    pthread_mutex_lock(&s.mu);
    while (s.hangs && !strcmp(s.hangs, i->key->text)) {
        s.hung = 1;
        pthread_cond_broadcast(&s.changed);
        pthread_cond_wait(&s.changed, &s.mu);
    }
    s.ends_us[s.stored++ % MANY] = i->row->party[0].expires_us;
    pthread_mutex_unlock(&s.mu);
    i->result = stage_driver.replace(st, i->key, i->seen, i->row, i->cur, &i->clock_us, i->err);
}

static int st_replace_many(hf_store *st, hf_replace *item, size_t n, int64_t until_us)
{
    pthread_mutex_lock(&s.mu);
    if (n) s.patience_us = until_us - hf__local_us();
    pthread_mutex_unlock(&s.mu);
    for (size_t i = 0; i < n; i++) one(st, &item[i]);
    return 0;
}

static hf_lock *locks[MANY];

/* Acts as if each request for one key took a second. */
static void takes_a_second(void) { stage_suspend(1000000); }

static void begin_many(int holds, void (*each)(void))
{
    begin(SERVER);
    stage_driver.replace_many = st_replace_many;
    stage_cue(S_ACQUIRE, 1, MANY, INSTEAD, 0, each);
    pthread_mutex_lock(&s.mu);
    s.hangs = NULL;
    s.hung = s.stored = 0;
    pthread_mutex_unlock(&s.mu);
    for (int i = 0; i < holds; i++) {
        char key[] = {(char)('a' + i), 0};
        OK(stage_acquire(h, key, 0, LEASE_MS, 0, &locks[i]));
    }
    stage_uncue();
}

static void end_many(int holds)
{
    for (int i = 0; i < holds; i++) OK(hf_release(locks[i], &stage_error));
    done();
}

static uint64_t renewals(void)
{
    hf_stats now = {.size = sizeof now};
    OK(hf_get_stats(h, &now));
    return now.renewals;
}

/* Makes these locks due for renewal now, as if they had been due at due_us. */
static void renew_now(hf_lock *const *l, int n, int64_t due_us)
{
    pthread_mutex_lock(&h->mu);
    for (int i = 0; i < n; i++) hf__renew_at(l[i], due_us);
    pthread_cond_signal(&h->renewer_cond);
    pthread_mutex_unlock(&h->mu);
}

/* Renews all of these locks. */
static void renew(hf_lock *const *l, int n)
{
    uint64_t before = renewals();
    renew_now(l, n, 0);
    while (renewals() < before + (uint64_t)n) hf__pause(1000);
}

/* ---- the round trip ---- */

/* The store was slow while the keys were acquired. It isn't any more, as renewals show. */
static void renewals_tell_how_long_a_request_takes(void **state)
{
    (void)state;
    begin_many(MANY, takes_a_second);
    assert_true(hf__port_round_trip_us(&h->port) > 900000);
    for (int i = 0; i < 60; i++) renew(locks, MANY);
    assert_true(hf__port_round_trip_us(&h->port) < 100000);
    end_many(MANY);
}

/* The time of a request with many renewals is only an upper bound of the time of one. */
static void many_take_longer_than_one(void **state)
{
    (void)state;
    begin_many(MANY, NULL);
    int64_t before_us = hf__port_round_trip_us(&h->port);
    stage_cue(S_SWAP, 1, 1 << 20, INSTEAD, 0, takes_a_second);
    renew(locks, MANY);
    assert_true(hf__port_round_trip_us(&h->port) == before_us);
    renew(locks, 1);
    assert_true(hf__port_round_trip_us(&h->port) > before_us);
    stage_uncue();
    end_many(MANY);
}

static void a_session_that_is_kept_tells_it(void **state)
{
    (void)state;
    begin(LEASES);
    stage_cue(S_SWAP, 1, MANY, INSTEAD, 0, takes_a_second);
    OK(stage_acquire(h, "k", 0, LEASE_MS, 0, &lock));
    stage_uncue();
    int64_t before_us = hf__port_round_trip_us(&h->port);
    assert_true(before_us > 50000);
    for (int i = 0; i < 60; i++) {
        pthread_mutex_lock(&h->mu);
        assert_int_equal(hf__session_keep(&h->sessions, lock->session, NULL), 0);
        pthread_mutex_unlock(&h->mu);
    }
    assert_true(hf__port_round_trip_us(&h->port) < before_us / 2);
    OK(hf_release(lock, &stage_error));
    done();
}

/* ---- how long an attempt may take ---- */

static int64_t patience_us(void)
{
    pthread_mutex_lock(&s.mu);
    int64_t us = s.patience_us;
    pthread_mutex_unlock(&s.mu);
    return us;
}

/* An attempt takes a sixth of the lease at most; if the one before wasn't answered, a sixth of what
   is left. */
static void an_attempt_takes_a_sixth(void **state)
{
    const int64_t lease_us = LEASE_MS * INT64_C(1000);
    (void)state;
    begin_many(1, NULL);
    h->port.io_timeout_ms = LEASE_MS;
    renew(locks, 1);
    assert_in_range(patience_us(), lease_us / 7, lease_us / 6);
    pthread_mutex_lock(&h->mu);
    hf__note_unanswered(locks[0], 1, 1);
    stage_suspend(lease_us / 2);
    stage_step_clock(lease_us / 2);
    pthread_mutex_unlock(&h->mu);
    renew(locks, 1);
    assert_in_range(patience_us(), lease_us / 14, lease_us / 12);
    end_many(1);
}

/* ---- the clock ---- */

/* One request uses one reading of the clock for all its renewals: here each reading is a
   millisecond later. */
static void one_request_goes_by_one_moment(void **state)
{
    (void)state;
    begin_many(MANY, NULL);
    stage_hurry(1000);
    renew(locks, MANY);
    stage_hurry(0);
    pthread_mutex_lock(&s.mu);
    assert_int_equal(s.stored, MANY);
    for (int i = 1; i < MANY; i++) assert_true(s.ends_us[i] == s.ends_us[0]);
    pthread_mutex_unlock(&s.mu);
    end_many(MANY);
}

/* ---- the workers ---- */

static void await_first_idle(void)
{
    for (int idle = 0; !idle; hf__pause(1000)) {
        pthread_mutex_lock(&h->mu);
        idle = h->renewals.first_idle && h->renewals.idle == 1;
        pthread_mutex_unlock(&h->mu);
    }
}

/* The first worker leaves doubtful renewals to others. While all others hang, another worker is
   started, although the first one is idle. */
static void the_first_worker_is_not_idle_for_what_hangs(void **state)
{
    (void)state;
    begin_many(2, NULL);
    pthread_mutex_lock(&s.mu);
    s.hangs = "a";
    pthread_mutex_unlock(&s.mu);
    pthread_mutex_lock(&h->mu);
    for (int i = 0; i < 2; i++) hf__note_unanswered(locks[i], 1, 1);
    pthread_mutex_unlock(&h->mu);
    renew_now(&locks[0], 1, hf__local_us()); /* it isn't late: that would take two workers */
    pthread_mutex_lock(&s.mu);
    while (!s.hung) pthread_cond_wait(&s.changed, &s.mu);
    pthread_mutex_unlock(&s.mu);
    await_first_idle();
    renew(&locks[1], 1);
    pthread_mutex_lock(&s.mu);
    assert_int_equal(s.stored, 1);
    s.hangs = NULL;
    pthread_cond_broadcast(&s.changed);
    pthread_mutex_unlock(&s.mu);
    while (renewals() < 2) hf__pause(1000);
    end_many(2);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(renewals_tell_how_long_a_request_takes),
        cmocka_unit_test(many_take_longer_than_one),
        cmocka_unit_test(a_session_that_is_kept_tells_it),
        cmocka_unit_test(an_attempt_takes_a_sixth),
        cmocka_unit_test(one_request_goes_by_one_moment),
        cmocka_unit_test(the_first_worker_is_not_idle_for_what_hangs),
    };
    return TEST_MAIN(tests);
}
