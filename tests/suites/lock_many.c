/*
 * lock_many.c - the lock suite: many waits on distinct keys in one process. Work is counted, not
 * time: requests, clock reads and wakeups for each key must not grow with the number of waits.
 */
#include "lock_suite.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { FEW = 100, MANY = 4000, SERVED = 30, ROUNDS = 3 };

static uint64_t clock_reads, signals; /* atomic */

int __real_clock_gettime(clockid_t clock, struct timespec *ret);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret)
{
    __atomic_add_fetch(&clock_reads, 1, __ATOMIC_RELAXED);
    return __real_clock_gettime(clock, ret);
}

int __real_pthread_cond_signal(pthread_cond_t *cond);
int __wrap_pthread_cond_signal(pthread_cond_t *cond);
int __wrap_pthread_cond_signal(pthread_cond_t *cond)
{
    __atomic_add_fetch(&signals, 1, __ATOMIC_RELAXED);
    return __real_pthread_cond_signal(cond);
}

struct one {
    char key[64];
    hf_lock *held, *got;
    hf_wait *wait;
    int code; /* atomic */
};

enum { NOT_OVER = 77 };

static void nap(void) { nanosleep(&(struct timespec){0, 200000}, NULL); }

static hf *holder, *waiter;
static struct one *all;
static int n_all;

static void over(void *arg, int code, hf_lock *lock, const hf_error *err)
{
    struct one *one = arg;
    (void)err;
    one->got = lock;
    __atomic_store_n(&one->code, code, __ATOMIC_SEQ_CST);
}

static int code_of(const struct one *one) { return __atomic_load_n(&one->code, __ATOMIC_SEQ_CST); }

static void await_code(const struct one *one, int code)
{
    while (code_of(one) == NOT_OVER) nap();
    IS(code, code_of(one));
}

static void await_in_line(const struct one *one)
{
    while (!suite_waiters(holder, one->key)) nap();
}

/* Waits until the dispatcher has made the looks that were due before. It makes them in the order of
   their times, so a request that came later looks last. */
static void await_looks(void)
{
    struct one later = {.code = NOT_OVER};
    hf_options options = HF_OPTIONS_INIT;
    options.wait_ms = HF_FOREVER;
    snprintf(later.key, sizeof later.key, "%.40s/later", suite_key("many"));
    OK(hf_acquire_start(waiter, later.key, &options, over, &later, &later.wait, &suite_error));
    await_code(&later, HF_OK);
    OK(hf_release(later.got, &suite_error));
    hf_wait_free(later.wait);
}

/* One handle holds each key, and the other one waits for each. */
static void start(int n, int64_t wait_ms)
{
    hf_options options = HF_OPTIONS_INIT;
    options.wait_ms = wait_ms;
    n_all = n;
    all = calloc((size_t)n, sizeof *all);
    assert_non_null(all);
    holder = suite_open();
    waiter = suite_open();
    for (int i = 0; i < n; i++) {
        snprintf(all[i].key, sizeof all[i].key, "%.40s/%d", suite_key("many"), i);
        all[i].code = NOT_OVER;
        OK(hf_acquire(holder, all[i].key, NULL, &all[i].held, &suite_error));
    }
    for (int i = 0; i < n; i++)
        OK(hf_acquire_start(waiter, all[i].key, &options, over, &all[i], &all[i].wait,
                            &suite_error));
    for (int i = 0; i < n; i++) await_in_line(&all[i]);
    await_looks();
}

static void end(void)
{
    for (int i = 0; i < n_all; i++) hf_wait_free(all[i].wait);
    hf_close(waiter);
    hf_close(holder);
    free(all);
}

static uint64_t requests(void)
{
    hf_stats stats = {.size = sizeof stats};
    OK(hf_get_stats(waiter, &stats));
    return stats.store_ops;
}

static uint64_t since(uint64_t *counter, uint64_t before)
{
    return __atomic_load_n(counter, __ATOMIC_RELAXED) - before;
}

/* One key costs about the same however many other keys are waited for. */
static void assert_flat(const char *what, uint64_t few, uint64_t many)
{
    if (many > 3 * few + 10 * SERVED)
        fail_msg("%s of %d keys: %llu beside %d waits, %llu beside %d", what, SERVED,
                 (unsigned long long)few, FEW, (unsigned long long)many, MANY);
}

static void give_back(struct one *one)
{
    OK(hf_release(one->held, &suite_error));
    while (code_of(one) == NOT_OVER) sched_yield();
    IS(HF_OK, code_of(one));
}

static void give_up(struct one *one)
{
    hf_wait_cancel(one->wait);
    await_code(one, HF_CANCELED);
    OK(hf_release(one->held, &suite_error));
}

/* Serves keys one at a time, so that each is an event of its own. *ret: requests and clock reads of
   the best of some rounds, because one of them also has the looks that were due since the start. */
static void serve(int n, void (*one)(struct one *one), uint64_t ret[2])
{
    start(n, HF_FOREVER);
    ret[0] = ret[1] = UINT64_MAX;
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t asked = requests(), read = since(&clock_reads, 0);
        for (int i = 0; i < SERVED; i++) one(&all[round * SERVED + i]);
        asked = requests() - asked;
        read = since(&clock_reads, read);
        if (asked < ret[0]) ret[0] = asked;
        if (read < ret[1]) ret[1] = read;
    }
    for (int i = ROUNDS * SERVED; i < n; i++) OK(hf_release(all[i].held, &suite_error));
    for (int i = ROUNDS * SERVED; i < n; i++) await_code(&all[i], HF_OK);
    end();
}

static void a_handover_leads_to_one_wait(void **state)
{
    uint64_t few[2], many[2];
    (void)state;
    serve(FEW, give_back, few);
    serve(MANY, give_back, many);
    assert_flat("requests", few[0], many[0]);
    assert_flat("clock reads", few[1], many[1]);
}

static void a_wait_that_is_cancelled_disturbs_no_other(void **state)
{
    uint64_t few[2], many[2];
    (void)state;
    serve(FEW, give_up, few);
    serve(MANY, give_up, many);
    assert_flat("requests", few[0], many[0]);
}

/* Each wait is ended; the others aren't woken each time that one has ended. */
static void closing_tells_each_wait_once(void **state)
{
    (void)state;
    start(MANY, HF_FOREVER);
    uint64_t before = since(&signals, 0);
    int64_t began_ms = suite_ms();
    hf_close(waiter);
    /* The closing thread also signals every 100 ms, if the machine is slow. */
    uint64_t rounds = 4 + (uint64_t)(suite_ms() - began_ms) / 100;
    assert_true(since(&signals, before) < rounds * MANY);
    for (int i = 0; i < n_all; i++) await_code(&all[i], HF_CANCELED);
    waiter = suite_open();
    end();
}

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static int at_gate; /* atomic */

/* The thread that drives all waits stands here meanwhile. */
static void over_behind_the_gate(void *arg, int code, hf_lock *lock, const hf_error *err)
{
    __atomic_store_n(&at_gate, 1, __ATOMIC_SEQ_CST);
    pthread_mutex_lock(&gate);
    pthread_mutex_unlock(&gate);
    over(arg, code, lock, err);
}

static void hold_and_wait(struct one *one, const char *name, int64_t wait_ms, hf_acquired_fn *told)
{
    hf_options options = HF_OPTIONS_INIT;
    options.wait_ms = wait_ms;
    *one = (struct one){.code = NOT_OVER};
    snprintf(one->key, sizeof one->key, "%.60s", suite_key(name));
    OK(hf_acquire(holder, one->key, NULL, &one->held, &suite_error));
    OK(hf_acquire_start(waiter, one->key, &options, told, one, &one->wait, &suite_error));
    await_in_line(one);
}

/* A wait that looks late first takes what it was handed. */
static int looked_at_late(int64_t ms)
{
    struct one first, late;
    at_gate = 0;
    n_all = 0;
    all = NULL;
    holder = suite_open();
    waiter = suite_open();
    hold_and_wait(&first, "first", HF_FOREVER, over_behind_the_gate);
    int64_t until_ms = suite_ms() + ms;
    hold_and_wait(&late, "late", ms, over);
    pthread_mutex_lock(&gate);
    OK(hf_release(first.held, &suite_error));
    while (!__atomic_load_n(&at_gate, __ATOMIC_SEQ_CST)) nap();
    OK(hf_release(late.held, &suite_error));
    int in_time = suite_ms() < until_ms;
    while (suite_ms() <= until_ms + 1) nap();
    pthread_mutex_unlock(&gate);
    await_code(&first, HF_OK);
    while (code_of(&late) == NOT_OVER) nap();
    if (in_time) IS(HF_OK, code_of(&late));
    hf_wait_free(first.wait);
    hf_wait_free(late.wait);
    end();
    return !in_time;
}

SUITE_LONGER(a_wait_that_was_handed_its_key_does_not_time_out, looked_at_late, 100)

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_handover_leads_to_one_wait),
        cmocka_unit_test(a_wait_that_is_cancelled_disturbs_no_other),
        cmocka_unit_test(closing_tells_each_wait_once),
        cmocka_unit_test(a_wait_that_was_handed_its_key_does_not_time_out),
    };
    return suite_main(argc, argv, tests, sizeof tests / sizeof *tests, "lock_many");
}
