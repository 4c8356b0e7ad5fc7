/*
 * staged_crowd.c - one of a crowd: it is queued after the others, and is notified from then on. And
 * many waits of one handle.
 */
#include "staged_pair.h"
#include "start_threads.h"
#include "wait_schedule.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>

static struct {
    int subscribed; /* to its key */
    int unnotified; /* it slept in the queue without a subscription */
    int code;
    hf_lock *lock;
    sem_t sleeps, over;
    int (*sleep)(hf_store *, const hf_event_count *, int64_t, hf_error *);
} seen;

static int subscribe_and_note(hf_store *st, const hf_rowkey *key)
{
    (void)st;
    seen.subscribed |= !strcmp(key->text, "k");
    return 0;
}

static int sleep_and_note(hf_store *st, const hf_event_count *since, int64_t until_us,
                          hf_error *err)
{
    if (stage_row("k") && stage_row("k")->n_queue > 1) {
        if (!seen.subscribed) seen.unnotified = 1;
        sem_post(&seen.sleeps);
    }
    return seen.sleep(st, since, until_us, err);
}

static void told(void *arg, int code, hf_lock *l, const hf_error *err)
{
    (void)arg, (void)err;
    seen.code = code;
    seen.lock = l;
    sem_post(&seen.over);
}

static void told_not(void *arg, int code, hf_lock *l, const hf_error *err)
{
    (void)arg, (void)code, (void)l, (void)err;
}

static int conflicts;

static void another_write(void)
{
    if (conflicts-- > 0) stage_row("k")->rev++;
}

/* The wait's look ended in a conflict, so it is queued only after its dispatcher has flushed for
   other waits. The dispatcher subscribes to this key, too, before it sleeps. */
static void a_key_queued_late_is_subscribed_to(void **state)
{
    (void)state;
    hf_wait *wait, *before, *line;
    hf_lock *y;
    hf_options o = HF_OPTIONS_INIT;
    o.wait_ms = 600000;
    o.lease_ms = 60000;
    begin(WATCHED);
    memset(&seen, 0, sizeof seen);
    sem_init(&seen.sleeps, 0, 0);
    sem_init(&seen.over, 0, 0);
    seen.sleep = stage_notify.sleep;
    stage_notify.subscribe = subscribe_and_note;
    stage_notify.sleep = sleep_and_note;
    OK(stage_acquire(rival, "k", 0, 60000, 0, &other));
    OK(stage_acquire(rival, "y", 0, 60000, 0, &y));
    OK(hf_acquire_start(rival, "k", &o, told_not, NULL, &line, &stage_error));
    await_queue(1);
    uint64_t slept = stage_calls(S_WATCH);
    OK(hf_acquire_start(h, "y", &o, told_not, NULL, &before, &stage_error));
    stage_await(S_WATCH, slept + 1);
    conflicts = 5;
    stage_cue(S_SWAP, 1, 5, INSTEAD, 0, another_write);
    OK(hf_acquire_start(h, "k", &o, told, NULL, &wait, &stage_error));
    while (sem_wait(&seen.sleeps)) continue;
    assert_int_equal(seen.unnotified, 0);
    hf_wait_free(line);
    OK(hf_release(other, &stage_error));
    while (sem_wait(&seen.over)) continue;
    IS(HF_OK, seen.code);
    hf_wait_free(wait);
    OK(hf_release(seen.lock, &stage_error));
    hf_wait_free(before); /* which gives it up */
    OK(hf_release(y, &stage_error));
    done();
}

/* Two hundred waiters ahead are dead, and the holder's time is over: each of them is granted the
   key for a claim timeout. The wait leaves it to those ahead to notice that, but only once, and for
   two seconds at most: half a second for each place, each time, would be hours. */
static void the_dead_ahead_are_passed_over(void **state)
{
    (void)state;
    enum { DEAD = 200 };
    begin(SERVER);
    stage_driver.caps.queue_cap = DEAD + 1;
    change_caps();
    OK(stage_acquire(rival, "k", 0, 60000, 0, &other));
    hf_row *row = stage_row("k");
    assert_int_equal(hf_row_room(row, DEAD + 2), 0);
    for (uint32_t i = 1; i <= DEAD; i++) {
        hf_party_copy(&row->party[i], &row->party[0]);
        memset(row->party[i].id, (int)i, sizeof row->party[i].id);
        row->party[i].token = 0;
        row->party[i].expires_us = 0;
        row->party[i].claim_ms = 1;
    }
    row->n_queue = DEAD;
    row->party[0].expires_us = 1;
    row->rev++;
    OK(stage_acquire(h, "k", 30000, 60000, 0, &lock));
    OK(hf_release(lock, &stage_error));
    IS(HF_LOST, hf_release(other, &stage_error));
    done();
}

/* Returns after how long a waiter that has just looked looks again by itself, if its handle has
   more_waits more waits and a look takes look_us. */
static int64_t looks_in_us(struct hf_wait *w, uint32_t more_waits, int64_t look_us)
{
    pthread_mutex_lock(&h->mu);
    h->n_at_store += more_waits;
    h->look_takes_us = look_us;
    w->poll_at_us = 0;
    hf__notify(w);
    hf__kick_dispatcher(h);
    int64_t began_us = hf__local_us(), at_us;
    while (!(at_us = w->poll_at_us) || w->looking) {
        pthread_mutex_unlock(&h->mu);
        hf__pause(1000);
        pthread_mutex_lock(&h->mu);
    }
    h->n_at_store -= more_waits;
    pthread_mutex_unlock(&h->mu);
    return at_us - began_us;
}

/* A waiter that is notified looks by itself every five seconds or so. Many of one handle leave its
   dispatcher nine tenths of its time, as far as they look within five minutes. */
static void many_look_seldom(void **state)
{
    (void)state;
    hf_wait *wait;
    hf_options options = HF_OPTIONS_INIT;
    options.wait_ms = HF_FOREVER;
    begin(WATCHED);
    OK(stage_acquire(rival, "k", 0, 3600000, 0, &other));
    OK(hf_acquire_start(h, "k", &options, told_not, NULL, &wait, &stage_error));
    await_queue(1);
    while (!__atomic_load_n(&wait->subscribed, __ATOMIC_RELAXED)) hf__pause(1000);
    int64_t few = looks_in_us(wait, 0, 100), many = looks_in_us(wait, 9999, 1000);
    int64_t most = looks_in_us(wait, 1000000, 20000);
    assert_true(few >= 3600000 && few < 75000000);
    assert_true(many >= 74900000 && many < 190000000);
    assert_true(most >= 224900000);
    hf_wait_free(wait);
    OK(hf_release(other, &stage_error));
    done();
}

/* ---- events about every key ---- */

static int busy; /* atomic: each call of next_event returns an event about every key */

static int event_of_all(hf_store *st, hf_key_event *ret)
{
    static int more;
    (void)st;
    *ret = (hf_key_event){0};
    more = !more && __atomic_load_n(&busy, __ATOMIC_SEQ_CST);
    return more;
}

static int sleep_unless_busy(hf_store *st, const hf_event_count *since, int64_t until_us,
                             hf_error *err)
{
    if (__atomic_load_n(&busy, __ATOMIC_SEQ_CST)) return 0;
    return seen.sleep(st, since, until_us, err);
}

/* Events come faster than all the waits of a handle can look. A wait that looks for the
   first time has its turn all the same. */
static void among_many_events_a_new_wait_has_its_turn(void **state)
{
    (void)state;
    enum { CROWD = 200 };
    static hf_wait *crowd[CROWD];
    static hf_lock *held[CROWD];
    hf_wait *wait;
    char key[16];
    hf_options o = HF_OPTIONS_INIT;
    o.wait_ms = 600000;
    o.lease_ms = 600000;
    begin(WATCHED);
    memset(&seen, 0, sizeof seen);
    sem_init(&seen.over, 0, 0);
    seen.sleep = stage_notify.sleep;
    stage_notify.sleep = sleep_unless_busy;
    stage_notify.next_event = event_of_all;
    for (int i = 0; i < CROWD; i++) {
        snprintf(key, sizeof key, "k%d", i);
        OK(stage_acquire(rival, key, 0, 600000, 0, &held[i]));
        OK(hf_acquire_start(h, key, &o, told_not, NULL, &crowd[i], &stage_error));
        await_queue_of(key, 1);
    }
    __atomic_store_n(&busy, 1, __ATOMIC_SEQ_CST);
    uint64_t looks = stage_calls(S_GET);
    hf_wait_cancel(crowd[0]); /* it is woken */
    stage_await(S_GET, looks + CROWD);
    OK(hf_acquire_start(h, "free", &o, told, NULL, &wait, &stage_error));
    for (int64_t end_us = hf__local_us() + 30000000; sem_trywait(&seen.over); hf__pause(1000))
        if (hf__local_us() > end_us) fail_msg("it never looks");
    IS(HF_OK, seen.code);
    __atomic_store_n(&busy, 0, __ATOMIC_SEQ_CST);
    hf_wait_free(wait);
    OK(hf_release(seen.lock, &stage_error));
    for (int i = 0; i < CROWD; i++) {
        hf_wait_free(crowd[i]);
        OK(hf_release(held[i], &stage_error));
    }
    done();
}

/* ---- looks that take long ---- */

enum { SLOW = 8 };
static int all_started;        /* atomic */
static int looked;             /* how many waits have looked for the first time (atomic) */
static uint64_t flushed[SLOW]; /* the number of flushes before each of these looks */

/* Acts as if a look took a second. The first look waits until other waits are due. */
static void looks_slowly(void)
{
    int nth = __atomic_load_n(&looked, __ATOMIC_SEQ_CST);
    flushed[nth % SLOW] = stage_calls(S_LISTEN);
    while (!__atomic_load_n(&all_started, __ATOMIC_SEQ_CST)) hf__pause(1000);
    stage_suspend(1000000);
    __atomic_store_n(&looked, nth + 1, __ATOMIC_SEQ_CST);
}

/* A round of looks ends when it has taken long, for the claim of a wait that was granted the key
   meanwhile runs out: between two slow looks notifications are read. */
static void slow_looks_leave_time_for_events(void **state)
{
    (void)state;
    hf_wait *slow[SLOW];
    hf_lock *held[SLOW];
    hf_options o = HF_OPTIONS_INIT;
    char key[16];
    o.wait_ms = o.lease_ms = 600000;
    begin(WATCHED);
    for (int i = 0; i < SLOW; i++) {
        snprintf(key, sizeof key, "k%d", i);
        OK(stage_acquire(rival, key, 0, 600000, 0, &held[i]));
    }
    all_started = looked = 0;
    stage_cue(S_ACQUIRE, 1, SLOW, INSTEAD, 0, looks_slowly);
    for (int i = 0; i < SLOW; i++) {
        snprintf(key, sizeof key, "k%d", i);
        OK(hf_acquire_start(h, key, &o, told_not, NULL, &slow[i], &stage_error));
    }
    __atomic_store_n(&all_started, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&looked, __ATOMIC_SEQ_CST) < SLOW) hf__pause(1000);
    for (int i = 1; i < SLOW; i++) assert_true(flushed[i] > flushed[i - 1]);
    for (int i = 0; i < SLOW; i++) {
        hf_wait_free(slow[i]);
        OK(hf_release(held[i], &stage_error));
    }
    done();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_key_queued_late_is_subscribed_to),
        cmocka_unit_test(the_dead_ahead_are_passed_over),
        cmocka_unit_test(among_many_events_a_new_wait_has_its_turn),
        cmocka_unit_test(many_look_seldom),
        cmocka_unit_test(slow_looks_leave_time_for_events),
    };
    return TEST_MAIN(tests);
}
