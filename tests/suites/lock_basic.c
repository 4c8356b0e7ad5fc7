/*
 * lock_basic.c - the lock suite, first part: granting, waiting, modes, options, bad input.
 */
#include "lock_suite.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void one_at_a_time(void **state)
{
    (void)state;
    hf *a = suite_open(), *b = suite_open();
    const char *key = suite_key("one");
    hf_lock *lock = NULL, *other = NULL;
    hf_options try = HF_OPTIONS_INIT;
    try.wait_ms = 0;
    OK(hf_acquire(a, key, NULL, &lock, &suite_error));
    assert_string_equal(hf_key(lock), key);
    assert_true(hf_token(lock) > 0 && hf_token(lock) < UINT64_C(1) << 53);
    assert_true(hf_left_ms(lock) > 0);
    IS(HF_BUSY, hf_acquire(b, key, &try, &other, &suite_error));
    assert_null(other);
    assert_non_null(strstr(suite_error.text, key));
    assert_int_equal(suite_error.code, HF_BUSY);
    uint64_t token = hf_token(lock);
    OK(hf_confirm(lock, &suite_error));
    OK(hf_release(lock, &suite_error));
    OK(hf_acquire(b, key, &try, &other, &suite_error));
    assert_true(hf_token(other) > token);
    OK(hf_release(other, &suite_error));
    hf_close(a);
    hf_close(b);
}

static void tokens_grow_across_handles(void **state)
{
    (void)state;
    hf *keeper = suite_open(); /* a private store lives as long as a handle has it open */
    const char *key = suite_key("grow");
    uint64_t last = 0;
    for (int i = 0; i < 200; i++) {
        hf *h = suite_open();
        hf_lock *lock;
        OK(hf_acquire(h, key, NULL, &lock, &suite_error));
        assert_true(hf_token(lock) > last);
        last = hf_token(lock);
        if (i % 2) OK(hf_release(lock, &suite_error));
        hf_close(h); /* releases the other half */
    }
    hf_close(keeper);
}

static int64_t timed_out(void)
{
    hf *a = suite_open(), *b = suite_open();
    const char *key = suite_key("timeout");
    hf_lock *lock, *other;
    hf_options o = HF_OPTIONS_INIT;
    o.wait_ms = 150;
    OK(hf_acquire(a, key, NULL, &lock, &suite_error));
    int64_t start = suite_ms();
    IS(HF_TIMEOUT, hf_acquire(b, key, &o, &other, &suite_error));
    int64_t took = suite_ms() - start;
    assert_true(took >= 149);
    assert_int_equal(suite_waiters(b, key), 0); /* no request is left in the queue */
    OK(hf_release(lock, &suite_error));
    o.wait_ms = SUITE_PATIENCE_MS;
    OK(hf_acquire(b, key, &o, &other, &suite_error));
    hf_close(a);
    hf_close(b);
    return took;
}

SUITE_QUICK(times_out, timed_out, 2000)

/* ---- many threads, a long and breakable critical section ---- */

enum { THREADS = 8, ROUNDS = 150, LEAST_ROUNDS = 5, ROUNDS_MS = 15000 }; /* where they poll */

static struct {
    const char *key;
    volatile long parts[10];
    volatile int inside;
    int overlaps, torn, rounds;
    hf *stores[2];
} work;

/* Two handles of file: are two mappings of one page, and the thread sanitizer sees nothing pass
   from one to the other. So for that store it is told that the lock orders what is done under it;
   what it would say about it there is checked through mem:. */
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
void __tsan_acquire(void *);
void __tsan_release(void *);
#define LOCK_ORDERS(how) \
    if (!suite_is_private()) __tsan_##how(&work)
#endif
#endif
#ifndef LOCK_ORDERS
#define LOCK_ORDERS(how) (void)0
#endif

static void *worker(void *arg)
{
    hf *h = work.stores[(uintptr_t)arg % 2];
    int64_t end_ms = suite_ms() + ROUNDS_MS;
    for (int i = 0; i < ROUNDS && (i < LEAST_ROUNDS || suite_ms() < end_ms); i++) {
        hf_lock *lock;
        if (hf_acquire(h, work.key, NULL, &lock, NULL)) return (void *)1;
        LOCK_ORDERS(acquire);
        if (work.inside++) work.overlaps++;
        for (int k = 0; k < 10; k++) {
            work.parts[k]++;
            if (k == 5 && i % 8 == 0) sched_yield();
        }
        for (int k = 1; k < 10; k++)
            if (work.parts[k] != work.parts[0]) work.torn++;
        work.inside--;
        work.rounds++;
        LOCK_ORDERS(release);
        if (hf_release(lock, NULL)) return (void *)2;
    }
    return NULL;
}

static void threads_exclude_each_other(void **state)
{
    (void)state;
    memset(&work, 0, sizeof work);
    work.stores[0] = suite_open();
    work.stores[1] = suite_open();
    work.key = suite_key("threads");
    pthread_t t[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++) pthread_create(&t[i], NULL, worker, (void *)i);
    for (int i = 0; i < THREADS; i++) {
        void *bad;
        pthread_join(t[i], &bad);
        assert_null(bad);
    }
    assert_int_equal(work.overlaps, 0);
    assert_int_equal(work.torn, 0);
    assert_int_equal(work.parts[9], work.rounds);
    hf_stats s = {.size = sizeof s};
    OK(hf_get_stats(work.stores[0], &s));
    assert_int_equal(s.held + s.waiting, 0);
    assert_in_range(s.acquired, THREADS / 2 * LEAST_ROUNDS, THREADS / 2 * ROUNDS);
    hf_close(work.stores[0]);
    hf_close(work.stores[1]);
}

/* ---- waits without a thread ---- */

static struct {
    pthread_mutex_t mu;
    pthread_cond_t cond;
    int order[256], n, codes[256];
    hf_lock *locks[256];
} told = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, {0}, 0, {0}, {0}};

static void note_told(void *arg, int code, hf_lock *lock, const hf_error *err)
{
    pthread_mutex_lock(&told.mu);
    assert_true((code == 0) == (lock != NULL));
    assert_true((code == 0) == (err == NULL));
    told.order[told.n] = (int)(uintptr_t)arg;
    told.codes[told.n] = code;
    told.locks[told.n++] = lock;
    pthread_cond_broadcast(&told.cond);
    pthread_mutex_unlock(&told.mu);
}

static void await_told(int n)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_sec += SUITE_PATIENCE_MS / 1000;
    pthread_mutex_lock(&told.mu);
    while (told.n < n)
        if (pthread_cond_timedwait(&told.cond, &told.mu, &t)) {
            pthread_mutex_unlock(&told.mu);
            fail_msg("told %d times, not %d", told.n, n);
        }
    pthread_mutex_unlock(&told.mu);
}

static void served_in_order(void **state)
{
    (void)state;
    enum { N = 12 };
    hf *h[4], *holder = suite_open();
    const char *key = suite_key("fifo");
    hf_lock *lock;
    hf_wait *w[N];
    told.n = 0;
    for (int i = 0; i < 4; i++) h[i] = suite_open();
    OK(hf_acquire(holder, key, NULL, &lock, &suite_error));
    /* One wait per handle stands in the store; the first four give the order of the handles. */
    for (int i = 0; i < N; i++) {
        OK(hf_acquire_start(h[i % 4], key, NULL, note_told, (void *)(uintptr_t)i, &w[i],
                            &suite_error));
        if (i < 4) suite_await_waiters(holder, key, (size_t)i + 1);
    }
    int64_t given_ms = suite_ms();
    OK(hf_release(lock, &suite_error));
    for (int i = 0, late = 0; i < N; i++) {
        await_told(i + 1);
        assert_int_equal(told.codes[i], HF_OK);
        /* Whom the machine lets sleep for so long is passed over, or loses what it was handed. */
        late |= suite_ms() - given_ms >= SUITE_CLAIM_MS;
        if (i < 4 && !late) assert_int_equal(told.order[i], i);
        int64_t next_ms = suite_ms();
        int rc = hf_release(told.locks[i], &suite_error);
        late |= suite_ms() - given_ms >= SUITE_CLAIM_MS;
        if (!late || rc != HF_LOST) OK(rc);
        given_ms = next_ms;
    }
    /* Within each handle its waits were served in their order. */
    for (int i = 0; i < N; i++)
        for (int k = i + 1; k < N; k++)
            if (told.order[i] % 4 == told.order[k] % 4) assert_true(told.order[i] < told.order[k]);
    for (int i = 0; i < N; i++) hf_wait_free(w[i]);
    for (int i = 0; i < 4; i++) hf_close(h[i]);
    hf_close(holder);
}

static void cancelled_waits_leave(void **state)
{
    (void)state;
    hf *a = suite_open(), *b = suite_open();
    const char *key = suite_key("cancel");
    hf_lock *lock;
    hf_wait *w[3];
    told.n = 0;
    OK(hf_acquire(a, key, NULL, &lock, &suite_error));
    for (uintptr_t i = 0; i < 3; i++)
        OK(hf_acquire_start(b, key, NULL, note_told, (void *)i, &w[i], &suite_error));
    suite_await_waiters(a, key, 1);
    hf_wait_cancel(w[1]); /* this wait is queued behind another one */
    await_told(1);
    assert_int_equal(told.order[0], 1);
    assert_int_equal(told.codes[0], HF_CANCELED);
    hf_wait_cancel(w[0]); /* the one at the store */
    await_told(2);
    assert_int_equal(told.order[1], 0);
    assert_int_equal(told.codes[1], HF_CANCELED);
    hf_wait_free(w[0]);
    hf_wait_free(w[1]);
    OK(hf_release(lock, &suite_error));
    await_told(3);
    assert_int_equal(told.codes[2], HF_OK);
    hf_wait_cancel(w[2]); /* too late: it has the lock */
    assert_int_equal(suite_holders(a, key), 1);
    OK(hf_release(told.locks[2], &suite_error));
    hf_wait_free(w[2]);
    assert_int_equal(suite_waiters(a, key), 0);
    hf_close(a);
    hf_close(b);
}

static void freeing_a_wait_cancels_it(void **state)
{
    (void)state;
    hf *a = suite_open(), *b = suite_open();
    const char *key = suite_key("free");
    hf_lock *lock;
    hf_wait *w;
    told.n = 0;
    OK(hf_acquire(a, key, NULL, &lock, &suite_error));
    OK(hf_acquire_start(b, key, NULL, note_told, NULL, &w, &suite_error));
    hf_wait_free(w);
    assert_int_equal(told.n, 1);
    assert_int_equal(told.codes[0], HF_CANCELED);
    assert_int_equal(suite_waiters(a, key), 0);
    hf_wait_free(NULL);
    hf_close(a);
    hf_close(b);
}

static void async_tries_and_timeouts(void **state)
{
    (void)state;
    hf *a = suite_open(), *b = suite_open();
    const char *key = suite_key("async");
    hf_lock *lock;
    hf_wait *w[3];
    hf_options o = HF_OPTIONS_INIT;
    told.n = 0;
    OK(hf_acquire(a, key, NULL, &lock, &suite_error));
    o.wait_ms = 0;
    OK(hf_acquire_start(b, key, &o, note_told, NULL, &w[0], &suite_error));
    await_told(1);
    assert_int_equal(told.codes[0], HF_BUSY);
    o.wait_ms = 100;
    OK(hf_acquire_start(b, key, &o, note_told, NULL, &w[1], &suite_error));
    OK(hf_acquire_start(b, key, &o, note_told, NULL, &w[2], &suite_error));
    await_told(3);
    assert_int_equal(told.codes[1], HF_TIMEOUT);
    assert_int_equal(told.codes[2], HF_TIMEOUT);
    assert_int_equal(suite_waiters(a, key), 0);
    for (int i = 0; i < 3; i++) hf_wait_free(w[i]);
    hf_close(a);
    hf_close(b);
}

static void closing_ends_everything(void **state)
{
    (void)state;
    hf *a = suite_open(), *b = suite_open();
    const char *key = suite_key("close"), *other = suite_key("close");
    hf_lock *lock, *mine;
    hf_wait *w;
    hf_options try = HF_OPTIONS_INIT;
    try.wait_ms = 0;
    told.n = 0;
    OK(hf_acquire(a, key, NULL, &lock, &suite_error));
    OK(hf_acquire(b, other, NULL, &mine, &suite_error));
    OK(hf_acquire_start(b, key, NULL, note_told, NULL, &w, &suite_error));
    suite_await_waiters(a, key, 1);
    hf_close(b);
    assert_int_equal(told.n, 1);
    assert_int_equal(told.codes[0], HF_CANCELED);
    hf_wait_free(w); /* after the close this is allowed, once the callback has run */
    assert_int_equal(suite_waiters(a, key), 0);
    OK(hf_acquire(a, other, &try, &mine, &suite_error));
    hf_close(a);
    hf_close(NULL);
}

/* ---- modes ---- */

static void shared_and_exclusive(void **state)
{
    (void)state;
    hf *h[4];
    const char *key = suite_key("shared");
    hf_lock *l[4], *x;
    hf_wait *w[2];
    hf_options s = HF_OPTIONS_INIT;
    told.n = 0;
    for (int i = 0; i < 4; i++) h[i] = suite_open();
    s.mode = HF_SHARED;
    for (int i = 0; i < 3; i++) OK(hf_acquire(h[i], key, &s, &l[i], &suite_error));
    assert_int_equal(suite_holders(h[0], key), 3);
    assert_true(hf_token(l[0]) < hf_token(l[1]) && hf_token(l[1]) < hf_token(l[2]));
    s.wait_ms = 0;
    hf_options try = HF_OPTIONS_INIT;
    try.wait_ms = 0;
    IS(HF_BUSY, hf_acquire(h[3], key, &try, &x, &suite_error));
    /* A writer in the queue isn't overtaken by readers. */
    OK(hf_acquire_start(h[3], key, NULL, note_told, (void *)0, &w[0], &suite_error));
    suite_await_waiters(h[0], key, 1);
    IS(HF_BUSY, hf_acquire(h[0], key, &s, &x, &suite_error));
    s.wait_ms = HF_FOREVER;
    OK(hf_acquire_start(h[0], key, &s, note_told, (void *)1, &w[1], &suite_error));
    suite_await_waiters(h[0], key, 2);
    for (int i = 0; i < 3; i++) OK(hf_release(l[i], &suite_error));
    await_told(1);
    assert_true(told.order[0] == 0 && suite_holders(h[1], key) == 1);
    OK(hf_release(told.locks[0], &suite_error));
    await_told(2);
    OK(hf_release(told.locks[1], &suite_error));
    hf_wait_free(w[0]);
    hf_wait_free(w[1]);
    for (int i = 0; i < 4; i++) hf_close(h[i]);
}

/* ---- misuse ---- */

static void same_request_same_grant(void **state)
{
    (void)state;
    static const uint8_t id[16] = "request-0123456";
    hf *a = suite_open();
    const char *key = suite_key("request");
    hf_lock *first, *again;
    hf_options o = HF_OPTIONS_INIT;
    o.request_id = id;
    o.flags = HF_ALLOW_RECURSIVE;
    OK(hf_acquire(a, key, &o, &first, &suite_error));
    OK(hf_acquire(a, key, &o, &again, &suite_error));
    assert_true(hf_token(first) == hf_token(again));
    OK(hf_release(first, &suite_error));
    IS(HF_LOST, hf_release(again, &suite_error));
    hf_close(a);
}

static void bad_input_is_refused(void **state)
{
    (void)state;
    hf *h = suite_open(), *none = NULL;
    hf_lock *lock = NULL;
    char longest[HF_KEY_CAP + 1];
    memset(longest, 'k', sizeof longest);
    longest[HF_KEY_CAP] = 0;
    const char *keys[] = {"",         "a\nb",  "\x7f", "\xff", "\xc0\x80", "\xed\xa0\x80",
                          "\xc2\x85", "tab\t", longest};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        IS(HF_INVALID, hf_acquire(h, keys[i], NULL, &lock, &suite_error));
        assert_null(strchr(suite_error.text, '\n'));
        assert_null(lock);
    }
    longest[HF_KEY_CAP - 1] = 0;
    OK(hf_acquire(h, longest, NULL, &lock, &suite_error));
    OK(hf_release(lock, &suite_error));
    const hf_options good = HF_OPTIONS_INIT;
    for (int i = 0; i < 9; i++) {
        hf_options o = good;
        char owner[HF_OWNER_CAP + 1], note[HF_NOTE_CAP + 1];
        memset(owner, 'o', sizeof owner);
        owner[HF_OWNER_CAP] = 0;
        memset(note, 'n', sizeof note);
        note[HF_NOTE_CAP] = 0;
        if (i == 0) o.size = 3;
        if (i == 1) o.wait_ms = -2;
        if (i == 2) o.lease_ms = 99;
        if (i == 3) o.max_hold_ms = -1;
        if (i == 4) o.mode = (enum hf_mode)7;
        if (i == 5) o.mode = HF_LIMITED;
        if (i == 6) o.owner = owner;
        if (i == 7) o.note = note;
        if (i == 8) o.flags = HF_DETACHED;
        lock = NULL;
        IS(HF_INVALID, hf_acquire(h, "k", &o, &lock, &suite_error));
        assert_null(lock);
    }
    IS(HF_INVALID, hf_open("nosuch:thing", NULL, &none, &suite_error));
    IS(HF_INVALID, hf_open("no-scheme-at-all", NULL, &none, &suite_error));
    assert_null(none);
    hf_close(h);
}

static void every_legal_key(void **state)
{
    (void)state;
    static const char *const keys[] = {"screenings/12/A/5",
                                       "a",
                                       "A",
                                       "a ",
                                       " a",
                                       "a//b",
                                       "a/",
                                       "/",
                                       ".",
                                       "..",
                                       "$where",
                                       "{$ne:''}",
                                       "it's \"quoted\"",
                                       "percent%20",
                                       "per%cent",
                                       "_",
                                       "*",
                                       "[x]",
                                       "\\",
                                       "`",
                                       "käse",
                                       "日本語",
                                       "\xf0\x9f\x8e\xac",
                                       "__name__",
                                       "a.b.c",
                                       "a:b",
                                       "a;drop table x",
                                       ("a\xc2\xa0"
                                        "b")};
    enum { N = sizeof keys / sizeof *keys };
    hf *h = suite_open(), *other = suite_open();
    hf_lock *l[N], *x;
    hf_options try = HF_OPTIONS_INIT;
    try.wait_ms = 0;
    for (size_t i = 0; i < N; i++) OK(hf_acquire(h, keys[i], &try, &l[i], &suite_error));
    for (size_t i = 0; i < N; i++) {
        IS(HF_BUSY, hf_acquire(other, keys[i], &try, &x, &suite_error));
        assert_string_equal(hf_key(l[i]), keys[i]);
        OK(hf_release(l[i], &suite_error));
    }
    hf_close(h);
    hf_close(other);
}

/* ---- several keys ---- */

static void all_or_nothing(void **state)
{
    (void)state;
    hf *a = suite_open(), *b = suite_open();
    const char *k1 = suite_key("all"), *k2 = suite_key("all"), *k3 = suite_key("all");
    const char *keys[] = {k3, k1, k2}, *twice[] = {k1, k2, k1};
    hf_lock *l[3] = {0}, *one;
    hf_options o = HF_OPTIONS_INIT;
    o.wait_ms = 100;
    OK(hf_acquire(b, k3, NULL, &one, &suite_error));
    IS(HF_TIMEOUT, hf_acquire_all(a, keys, 3, &o, l, &suite_error));
    assert_null(l[0]);
    assert_int_equal(suite_holders(a, k1) + suite_holders(a, k2), 0);
    OK(hf_release(one, &suite_error));
    o.wait_ms = SUITE_PATIENCE_MS;
    OK(hf_acquire_all(a, keys, 3, &o, l, &suite_error));
    for (int i = 0; i < 3; i++) assert_string_equal(hf_key(l[i]), keys[i]);
    for (int i = 0; i < 3; i++) OK(hf_release(l[i], &suite_error));
    IS(HF_INVALID, hf_acquire_all(a, twice, 3, &o, l, &suite_error));
    IS(HF_INVALID, hf_acquire_all(a, keys, 0, &o, l, &suite_error));
    hf_close(a);
    hf_close(b);
}

/* Where clients poll, most of a pair's time is spent waiting: there the least number is tried, or
   as many as pass in a few seconds; all of them with HF_LONG. */
enum { PAIRS = 60, LEAST_PAIRS = 15, PAIRS_MS = 5000 };

static void *take_pairs(void *arg)
{
    hf *h = suite_open();
    const char *const *k = arg;
    long bad = 0;
    int all = getenv("HF_LONG") != NULL;
    int64_t end_ms = suite_ms() + PAIRS_MS;
    for (int i = 0; i < PAIRS && (all || i < LEAST_PAIRS || suite_ms() < end_ms); i++) {
        const char *two[] = {k[i % 3], k[(i + 1) % 3]};
        hf_lock *l[2];
        hf_options o = HF_OPTIONS_INIT;
        o.wait_ms = SUITE_PATIENCE_MS;
        if (hf_acquire_all(h, two, 2, &o, l, NULL)) {
            bad++;
            continue;
        }
        hf_release(l[0], NULL);
        hf_release(l[1], NULL);
    }
    hf_close(h);
    return (void *)bad;
}

static void circles_do_not_deadlock(void **state)
{
    (void)state;
    const char *k[3] = {suite_key("circle"), suite_key("circle"), suite_key("circle")};
    pthread_t t[4];
    for (int i = 0; i < 4; i++) pthread_create(&t[i], NULL, take_pairs, k);
    for (int i = 0; i < 4; i++) {
        void *bad;
        pthread_join(t[i], &bad);
        assert_null(bad);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_at_a_time),
        cmocka_unit_test(tokens_grow_across_handles),
        cmocka_unit_test(times_out),
        cmocka_unit_test(threads_exclude_each_other),
        cmocka_unit_test(served_in_order),
        cmocka_unit_test(cancelled_waits_leave),
        cmocka_unit_test(freeing_a_wait_cancels_it),
        cmocka_unit_test(async_tries_and_timeouts),
        cmocka_unit_test(closing_ends_everything),
        cmocka_unit_test(shared_and_exclusive),
        cmocka_unit_test(same_request_same_grant),
        cmocka_unit_test(bad_input_is_refused),
        cmocka_unit_test(every_legal_key),
        cmocka_unit_test(all_or_nothing),
        cmocka_unit_test(circles_do_not_deadlock),
    };
    return suite_main(argc, argv, tests, sizeof tests / sizeof *tests, "lock_basic");
}
