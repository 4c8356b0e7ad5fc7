/*
 * staged_close.c - a handle that is closed while others still work with it: calls of its users, the
 * renewing threads, a callback; and what was given up, but not by the store, before and without
 * that.
 *
 * Link with --wrap=pthread_mutex_lock, too.
 */
#include "staged_waiter.h"
#include "withdraw.h"

#include <stdio.h>
#include <unistd.h>

enum { LONG_US = 40000000, SHOWS_US = 300000 }; /* a failure shows within SHOWS_US */

static int closed; /* atomic */

static int is(const int *flag) { return __atomic_load_n(flag, __ATOMIC_SEQ_CST); }
static void set(int *flag) { __atomic_store_n(flag, 1, __ATOMIC_SEQ_CST); }

static int within(int64_t us, const int *flag)
{
    for (int64_t until = hf__local_us() + us; !is(flag) && hf__local_us() < until;) hf__pause(1000);
    return is(flag);
}

/* ---- a thread that comes late ---- */

static _Thread_local int closer; /* is it that thread? */
static struct {
    pthread_mutex_t *mu;
    int worker;         /* 1: the thread is a renewal worker; 0: the one that closes */
    int nth;            /* the thread waits before its nth lock of `mu` (atomic) */
    int is_late, go_on; /* atomic */
} late;

int __real_pthread_mutex_lock(pthread_mutex_t *mu);
int __wrap_pthread_mutex_lock(pthread_mutex_t *mu);

/* Returns 1 in a renewal worker. `mu` is the handle's mutex, which protects the list of workers. */
static int is_worker(pthread_mutex_t *mu)
{
    int is = 0;
    __real_pthread_mutex_lock(mu);
    for (uint32_t i = 0; i < h->renewals.workers; i++)
        is |= pthread_equal(pthread_self(), h->renewals.worker[i].thread);
    pthread_mutex_unlock(mu);
    return is;
}

static int is_the_nth(void)
{
    return __atomic_load_n(&late.nth, __ATOMIC_SEQ_CST) > 0 &&
           !__atomic_sub_fetch(&late.nth, 1, __ATOMIC_SEQ_CST);
}

int __wrap_pthread_mutex_lock(pthread_mutex_t *mu)
{
    int it =
        __atomic_load_n(&late.mu, __ATOMIC_SEQ_CST) == mu && (late.worker ? is_worker(mu) : closer);
    if (it && is_the_nth()) {
        set(&late.is_late);
        while (!is(&late.go_on)) hf__pause(1000);
    }
    return __real_pthread_mutex_lock(mu);
}

static void make_late(int worker, int nth)
{
    late.worker = worker;
    late.nth = nth;
    late.is_late = late.go_on = 0;
    __atomic_store_n(&late.mu, &h->mu, __ATOMIC_SEQ_CST);
}

/* ---- closing ---- */

static void *closes(void *arg)
{
    closer = 1;
    hf_close(h);
    set(&closed);
    return arg;
}

static pthread_t begin_to_close(void)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, closes, NULL), 0);
    return thread;
}

/* Checks that closing has ended. If it hasn't, no test can go on, because the handle is still in
   use. */
static void has_closed(pthread_t thread)
{
    if (!within(LONG_US, &closed)) {
        print_error("hf_close doesn't return\n");
        _exit(1);
    }
    pthread_join(thread, NULL);
    __atomic_store_n(&late.mu, NULL, __ATOMIC_SEQ_CST);
    closed = 0;
    h = NULL;
}

/* ---- beside calls ---- */

enum { KEYS = 8 };
static int several_ended; /* with that; by its thread */
static int by_closing;    /* atomic: the closing thread released what the call had acquired */

static void *acquires_several(void *arg)
{
    static const char *const keys[KEYS] = {"a1", "a2", "a3", "a4", "a5", "a6", "a7", "k"};
    hf_lock *got[KEYS];
    hf_options o = HF_OPTIONS_INIT;
    several_ended = hf_acquire_all(h, keys, KEYS, &o, got, NULL);
    return arg;
}

static void gives_back_slowly(void)
{
    if (closer)
        set(&by_closing);
    else
        within(SHOWS_US / KEYS, &by_closing);
}

/* The call itself releases what it has acquired so far: closing must not free it meanwhile. */
static void several_that_are_being_acquired_are_waited_for(void **state)
{
    (void)state;
    pthread_t thread;
    begin(SERVER);
    OK(stage_acquire(rival, "k", 0, 60000, 0, &other));
    assert_int_equal(pthread_create(&thread, NULL, acquires_several, NULL), 0);
    await_queue(1);
    stage_cue(S_SWAP, 1, 1 << 20, INSTEAD, 0, gives_back_slowly);
    pthread_t closing = begin_to_close();
    has_closed(closing);
    pthread_join(thread, NULL);
    assert_false(is(&by_closing));
    IS(HF_CANCELED, several_ended);
    for (int i = 1; i < KEYS; i++) {
        char key[] = {'a', (char)('0' + i), 0};
        assert_int_equal(stage_row(key)->n_holders, 0);
    }
    OK(hf_release(other, &stage_error));
    done();
}

static int asked, closed_beside; /* atomic */

static void is_asked(void)
{
    set(&asked);
    if (within(SHOWS_US, &closed)) set(&closed_beside);
}

static void *adopts(void *arg)
{
    hf_lock *l;
    *(int *)arg = hf_adopt(h, "k", hf_token(other), &l, NULL);
    return NULL;
}

/* Closing freed the store that it was asking. */
static void one_that_is_being_adopted_is_waited_for(void **state)
{
    (void)state;
    pthread_t thread;
    int code = NOT_OVER;
    begin(SERVER);
    OK(stage_acquire(rival, "k", 0, 60000, HF_DETACHED, &other));
    stage_cue(S_GET, 1, 1, INSTEAD, 0, is_asked);
    assert_int_equal(pthread_create(&thread, NULL, adopts, &code), 0);
    while (!is(&asked)) hf__pause(1000);
    pthread_t closing = begin_to_close();
    pthread_join(thread, NULL);
    has_closed(closing);
    assert_false(is(&closed_beside));
    IS(HF_OK, code);
    OK(hf_release(other, &stage_error));
    done();
}

/* A call that comes while the handle is being closed begins nothing. */
static void comes_too_late(void)
{
    const char *key = "x";
    hf_lock *l;
    IS(HF_CANCELED, hf_adopt(h, "k", 1, &l, &stage_error));
    IS(HF_CANCELED, hf_acquire_all(h, &key, 1, NULL, &l, &stage_error));
}

static void nothing_is_begun_while_it_is_closed(void **state)
{
    (void)state;
    begin(SERVER);
    OK(stage_acquire(h, "k", 0, 60000, 0, &lock));
    stage_cue(S_SWAP, 1, 1, INSTEAD, 0, comes_too_late);
    hf_close(h);
    h = NULL;
    done();
}

/* ---- beside the library's own threads ---- */

/* A worker has found the lock in its queue: it must not release it once more after it was freed. */
static void a_pending_release_is_made_by_one(void **state)
{
    (void)state;
    begin(LEASES);
    OK(stage_acquire(h, "k", 0, 60000, 0, &lock));
    stage_cue(S_GET, 1, 1 << 20, INSTEAD, HF_UNAVAILABLE, NULL);
    stage_cue(S_SWAP, 1, 1 << 20, INSTEAD, HF_UNAVAILABLE, NULL);
    IS(HF_UNAVAILABLE, hf_release(lock, NULL));
    stage_uncue();
    make_late(1, 1);
    while (!is(&late.is_late)) hf__pause(1000);
    pthread_t closing = begin_to_close();
    within(SHOWS_US, &closed);
    set(&late.go_on);
    has_closed(closing);
    assert_int_equal(stage_row("k")->n_holders, 0);
    done();
}

static int given_back; /* atomic */

static void gives_it_back(void *arg, hf_lock *l)
{
    (void)arg;
    hf_release(l, NULL);
    set(&given_back);
}

/* The closing thread has found the lock in the list: it must not release it once more if its
   holder, notified of the loss, has done so. */
static void a_lost_lock_is_given_back_by_one(void **state)
{
    (void)state;
    begin(SERVER);
    OK(stage_acquire(h, "k", 0, 400, HF_NO_RENEW, &lock));
    hf_on_lost(lock, gives_it_back, NULL);
    make_late(0, 2); /* its own call is the first one */
    pthread_t closing = begin_to_close();
    while (!is(&late.is_late)) hf__pause(1000);
    within(400000 + SHOWS_US, &given_back);
    set(&late.go_on);
    has_closed(closing);
    done();
}

/* ---- what the store didn't take back ---- */

/* For longer than a deferred cancel waits for its next turn (a pause lasts half of that at least).
 */
static void hangs(void) { hf__pause(1100000); }

static void hang_all(void)
{
    static const enum stage_op ops[] = {S_GET, S_SWAP, S_KEEP, S_END};
    for (int i = 0; i < 4; i++) stage_cue(ops[i], 1, 1 << 20, INSTEAD, HF_UNAVAILABLE, hangs);
}

/* When the store has refused one request, the next one is due: that must not go on for ever. */
static void regrets_do_not_keep_it_from_closing(void **state)
{
    (void)state;
    begin(LEASES);
    OK(stage_acquire(h, "k", 0, 60000, 0, &lock));
    hang_all();
    pthread_mutex_lock(&h->mu);
    for (uint8_t i = 1; i < 3; i++) {
        uint8_t id[16] = {i};
        hf__defer_cancel(h, lock->e, id);
    }
    pthread_mutex_unlock(&h->mu);
    stage_await(S_GET, stage_calls(S_GET) + 3);
    has_closed(begin_to_close());
    done();
}

static hf_stats stats(void)
{
    hf_stats st = {.size = sizeof st};
    OK(hf_get_stats(h, &st));
    return st;
}

/* When its session is over nothing repeats the release any more: the lock must not stay in
   memory. */
static void a_pending_release_whose_session_ends_is_forgotten(void **state)
{
    (void)state;
    begin(LEASES);
    OK(stage_acquire(h, "k", 0, 900, 0, &lock));
    stage_cue(S_GET, 1, 1 << 20, INSTEAD, HF_UNAVAILABLE, NULL);
    stage_cue(S_SWAP, 1, 1 << 20, INSTEAD, HF_UNAVAILABLE, NULL);
    stage_cue(S_KEEP, 1, 1 << 20, INSTEAD, HF_UNAVAILABLE, NULL);
    hf_release(lock, NULL);
    while (!stats().lost && stats().held) hf__pause(1000);
    stage_uncue();
    for (int64_t until = hf__local_us() + LONG_US; stats().held && hf__local_us() < until;)
        hf__pause(1000);
    assert_int_equal(stats().held, 0);
    done();
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(several_that_are_being_acquired_are_waited_for),
        cmocka_unit_test(one_that_is_being_adopted_is_waited_for),
        cmocka_unit_test(nothing_is_begun_while_it_is_closed),
        cmocka_unit_test(a_pending_release_is_made_by_one),
        cmocka_unit_test(a_lost_lock_is_given_back_by_one),
        cmocka_unit_test(regrets_do_not_keep_it_from_closing),
        cmocka_unit_test(a_pending_release_whose_session_ends_is_forgotten),
    };
    return TEST_MAIN(tests);
}
