/*
 * torture.c - the n-th store call fails, before it took effect and after, for every n; then the
 * same again with every later call failing for a while, and at random.
 *
 * A clean handle on the same store watches: a caller that was told that it holds must really hold,
 * no other may get in, tokens grow, and when the tortured handle is closed nothing is left behind.
 */
#include "drivers.h"
#include "fakes/faults.h"
#include "lock_suite.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct play {
    hf *clean, *sick;
    const char *key, *other;
    uint64_t last_token; /* the greatest that anybody was given for `key` */
    uint64_t mine;       /* the sick handle's */
    int64_t asked_ms;    /* when it asked for it */
};

static hf_options within(int64_t wait_ms)
{
    hf_options o = HF_OPTIONS_INIT;
    o.wait_ms = wait_ms;
    o.lease_ms =
        suite_has_sessions() ? 3000 : suite_lease(1000); /* an orphan's end has to be waited for */
    return o;
}

/* What the clean handle holds stays. */
static hf_options plainly(void)
{
    hf_options o = within(SUITE_PATIENCE_MS);
    o.lease_ms = 600000;
    return o;
}

/* What a call may answer when the store is sick; a process that stood still for a
   lease has lost it. */
static int honest(const struct play *p, int rc)
{
    int64_t lease_ms = suite_has_sessions() ? 2000 : suite_lease(1000);
    if (rc == HF_LOST && suite_ms() - p->asked_ms >= lease_ms) return 1;
    return rc == HF_OK || rc == HF_UNKNOWN || rc == HF_UNAVAILABLE || rc == HF_TIMEOUT ||
           rc == HF_BUSY;
}

static void is_held(struct play *p, hf_lock *lock)
{
    hf_lock *x;
    hf_options o = within(0);
    if (hf_left_ms(lock) <= 0) return; /* it knows that it may have lost it */
    if (hf_token(lock) != p->mine) assert_true(hf_token(lock) > p->last_token);
    p->mine = p->last_token = hf_token(lock);
    int rc = hf_acquire(p->clean, hf_key(lock), &o, &x, &suite_error);
    if (!rc && hf_left_ms(lock) <= 0) { /* meanwhile */
        p->last_token = hf_token(x);
        OK(hf_release(x, &suite_error));
        return;
    }
    IS(HF_BUSY, rc);
}

static void acquire_renew_release(struct play *p)
{
    hf_lock *lock = NULL;
    hf_options o = within(400);
    hf_error err = {0};
    int rc = hf_acquire(p->sick, p->key, &o, &lock, &err);
    assert_true(honest(p, rc));
    if (rc) {
        assert_null(lock);
        assert_int_equal(err.code, rc);
        assert_non_null(strstr(err.text, p->key));
        return;
    }
    is_held(p, lock);
    rc = hf_renew(lock, suite_lease(2000), &err);
    assert_true(honest(p, rc));
    is_held(p, lock);
    rc = hf_release(lock, &err);
    assert_true(honest(p, rc));
    if (rc) return;
    /* Said to be released: then it is free. */
    o = within(0);
    OK(hf_acquire(p->clean, p->key, &o, &lock, &suite_error));
    assert_true(hf_token(lock) > p->last_token);
    p->last_token = hf_token(lock);
    OK(hf_release(lock, &suite_error));
}

static void *release_soon(void *arg)
{
    usleep(30000);
    hf_release(arg, NULL);
    return NULL;
}

static void wait_for_it(struct play *p)
{
    hf_lock *held, *lock = NULL;
    hf_options o = within(1500), plain = plainly();
    pthread_t t;
    OK(hf_acquire(p->clean, p->key, &plain, &held, &suite_error));
    p->last_token = hf_token(held);
    pthread_create(&t, NULL, release_soon, held);
    int rc = hf_acquire(p->sick, p->key, &o, &lock, NULL);
    assert_true(honest(p, rc));
    if (!rc) {
        is_held(p, lock);
        assert_true(honest(p, hf_release(lock, NULL)));
    }
    pthread_join(t, NULL);
}

static void give_up_waiting(struct play *p)
{
    hf_lock *held, *lock = NULL;
    hf_options o = within(60), plain = plainly();
    OK(hf_acquire(p->clean, p->key, &plain, &held, &suite_error));
    p->last_token = hf_token(held);
    int rc = hf_acquire(p->sick, p->key, &o, &lock, NULL);
    assert_true(rc != HF_OK && honest(p, rc));
    /* TIMEOUT says for certain that nobody was left in the queue. */
    if (rc == HF_TIMEOUT) assert_int_equal(suite_waiters(p->clean, p->key), 0);
    OK(hf_confirm(held, &suite_error));
    OK(hf_release(held, &suite_error));
}

static void run_once(struct play *p)
{
    hf_once o = {0}, again = {0};
    hf_options opt = within(400);
    int rc = hf_once_begin(p->sick, p->key, 60000, &opt, &o, NULL);
    assert_true(honest(p, rc));
    if (rc) return;
    assert_non_null(o.lock);
    is_held(p, o.lock);
    rc = hf_once_finish(o.lock, "done", 60000, NULL);
    assert_true(honest(p, rc));
    opt = within(0);
    int seen = hf_once_begin(p->clean, p->key, 60000, &opt, &again, NULL);
    if (!rc) {
        assert_int_equal(seen, HF_OK);
        assert_null(again.lock);
        assert_string_equal(again.result, "done");
    } else if (!seen && again.lock) {
        OK(hf_release(again.lock, &suite_error)); /* unknown: not marked after all */
    }
}

static void two_keys(struct play *p)
{
    const char *keys[] = {p->other, p->key};
    hf_lock *l[2] = {NULL, NULL};
    hf_options o = within(400);
    int rc = hf_acquire_all(p->sick, keys, 2, &o, l, NULL);
    assert_true(honest(p, rc));
    if (rc) {
        assert_null(l[0]);
        return;
    }
    is_held(p, l[1]);
    for (int i = 0; i < 2; i++) assert_true(honest(p, hf_release(l[i], NULL)));
}

static void (*const scenes[])(struct play *) = {acquire_renew_release, wait_for_it, give_up_waiting,
                                                run_once, two_keys};

/* Plays a scene with the plan; how many faults were injected. */
static uint64_t play(void (*scene)(struct play *), const char *plan)
{
    struct hf__fault_counts before, after;
    struct play p = {
        .clean = suite_open(), .key = suite_key("torture"), .other = suite_key("other")};
    hf_open_options oo = HF_OPEN_OPTIONS_INIT;
    hf_options wait = within(60000);
    hf_lock *lock;
    oo.io_timeout_ms = 300;
    hf__fault_counts(&before);
    setenv("HOLDFAST_FAULT", plan, 1);
    OK(hf_open(suite_url, &oo, &p.sick, &suite_error));
    unsetenv("HOLDFAST_FAULT");
    p.asked_ms = suite_ms();
    scene(&p);
    hf_close(p.sick);
    hf__fault_counts(&after);
    /* Whatever happened: nothing is left behind for longer than a lease. */
    OK(hf_acquire(p.clean, p.key, &wait, &lock, &suite_error));
    assert_true(hf_token(lock) > p.last_token);
    OK(hf_release(lock, &suite_error));
    OK(hf_acquire(p.clean, p.other, &wait, &lock, &suite_error));
    OK(hf_release(lock, &suite_error));
    assert_int_equal(suite_waiters(p.clean, p.key), 0);
    hf_close(p.clean);
    return after.injected - before.injected;
}

static void every_nth(const char *what)
{
    char plan[64];
    for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++) {
        int n = 1;
        for (;; n++) {
            snprintf(plan, sizeof plan, "any:%d:%s", n, what);
            if (!play(scenes[i], plan)) break;
            assert_true(n < 200);
        }
        assert_true(n > 2); /* a scene makes several calls: each had its turn */
    }
}

static void before_it_took_effect(void **state)
{
    (void)state;
    every_nth("before");
}

static void after_it_took_effect(void **state)
{
    (void)state;
    every_nth("after");
}

static void refused(void **state)
{
    (void)state;
    every_nth("unavailable");
}

static void away_for_good(void **state)
{
    (void)state;
    char plan[64];
    for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++)
        for (int n = 1; n < 6; n += 2) {
            snprintf(plan, sizeof plan, "any:%d+:%s", n, n % 4 == 1 ? "unavailable" : "before");
            play(scenes[i], plan);
        }
}

static void at_random(void **state)
{
    (void)state;
    char plan[64];
    unsigned seed = (unsigned)suite_ms();
    printf("# seed %u\n", seed);
    for (unsigned k = 0; k < 40; k++) {
        snprintf(plan, sizeof plan, "random:seed=%u:p=0.2", seed + k);
        play(scenes[k % (sizeof scenes / sizeof *scenes)], plan);
    }
}

/* 1: what it was given is over. */
static int over_on_arrival(int64_t lease_ms)
{
    hf *clean = suite_open(), *slow;
    const char *key = suite_key("late");
    hf_options o = within(10 * lease_ms);
    hf_lock *lock = NULL;
    char plan[64];
    int over = 0;
    o.lease_ms = lease_ms;
    snprintf(plan, sizeof plan, "replace:1:late=%d,acquire:1:late=%d", 2 * (int)lease_ms,
             2 * (int)lease_ms);
    setenv("HOLDFAST_FAULT", plan, 1);
    OK(hf_open(suite_url, NULL, &slow, &suite_error));
    unsetenv("HOLDFAST_FAULT");
    int rc = hf_acquire(slow, key, &o, &lock, &suite_error);
    if (!rc) {
        /* Not the first grant, which was over on arrival. */
        over = hf_left_ms(lock) <= 0;
        if (!over) rc = hf_confirm(lock, &suite_error);
        if (rc == HF_LOST && hf_left_ms(lock) <= 0) over = 1;
        if (!over) OK(rc);
        hf_release(lock, NULL);
    }
    hf_close(slow);
    hf_close(clean);
    return over;
}

/* Every write lands, but its reply comes when the lease is over: nobody may believe it. */
static void later_than_the_lease(void **state)
{
    (void)state;
    suite_longer(over_on_arrival, suite_lease(200));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(before_it_took_effect),
        cmocka_unit_test(after_it_took_effect),
        cmocka_unit_test(refused),
        cmocka_unit_test(away_for_good),
        cmocka_unit_test(at_random),
        cmocka_unit_test(later_than_the_lease),
    };
    return suite_main(argc, argv, tests, sizeof tests / sizeof *tests, "torture");
}
