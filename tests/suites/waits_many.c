/*
 * waits_many.c - the lock suite: a hundred thousand waits on distinct keys in one process are all
 * granted, and none of them ends by its limit while its key is free. Work is counted, not time:
 * requests, clock reads and steps of the threads that drive waits. A key takes about as many of
 * them beside 100,000 waits as beside 1,000.
 *
 * A step is a call by which these threads look at, plan or move one wait.
 */
#include "lock_suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct hf_wait;
struct hf_deadlines;
struct hf_deadline;

enum { FEW = 1000, MANY = 100000 };
enum { WAIT_MS = 600000 };   /* far longer than all of it takes */
enum { LEASE_MS = 3600000 }; /* nothing is renewed, and no waiter looks at a lease's end */
enum { IDLE_MS = 6500, IDLE_TIMES = 8 };
enum { REQUESTS, CLOCK_READS, STEPS, COUNTS };
static const char *const names[COUNTS] = {"requests", "clock reads", "steps"};
static long counted[COUNTS]; /* atomic; requests: of handles that are closed */

static void count(int what) { __atomic_add_fetch(&counted[what], 1, __ATOMIC_RELAXED); }

int __real_clock_gettime(clockid_t clock, struct timespec *ret);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret)
{
    count(CLOCK_READS);
    return __real_clock_gettime(clock, ret);
}

int __real_hf__needs_notifications(const struct hf_wait *w);
int __wrap_hf__needs_notifications(const struct hf_wait *w);
int __wrap_hf__needs_notifications(const struct hf_wait *w)
{
    count(STEPS);
    return __real_hf__needs_notifications(w);
}

void __real_hf__schedule(struct hf_wait *w);
void __wrap_hf__schedule(struct hf_wait *w);
void __wrap_hf__schedule(struct hf_wait *w)
{
    count(STEPS);
    __real_hf__schedule(w);
}

void __real_hf__deadline_set(struct hf_deadlines *all, struct hf_deadline *d, int64_t at_us);
void __wrap_hf__deadline_set(struct hf_deadlines *all, struct hf_deadline *d, int64_t at_us);
void __wrap_hf__deadline_set(struct hf_deadlines *all, struct hf_deadline *d, int64_t at_us)
{
    count(STEPS);
    __real_hf__deadline_set(all, d, at_us);
}

struct one {
    hf_lock *held, *got;
    hf_wait *wait;
    int code;
};

static struct one *all;
static char prefix[64];
static long ended; /* atomic */

static void over(void *arg, int code, hf_lock *lock, const hf_error *err)
{
    struct one *one = arg;
    (void)err;
    one->got = lock;
    one->code = code;
    __atomic_add_fetch(&ended, 1, __ATOMIC_RELEASE);
}

static void nap(void) { nanosleep(&(struct timespec){0, 1000000}, NULL); }

static void await_ended(long n)
{
    while (__atomic_load_n(&ended, __ATOMIC_ACQUIRE) < n) nap();
}

/* A lock that was handed over ends soon, until the handle has claimed it. */
static void await_claims(long n)
{
    for (long i = 0; i < n && !suite_has_sessions(); i++)
        for (int64_t ms; (ms = hf_left_ms(all[i].got)) < LEASE_MS / 2; nap())
            if (ms <= 0) fail_msg("%s was lost before it was claimed", hf_key(all[i].got));
}

static const char *key_of(long i)
{
    static char key[64];
    snprintf(key, sizeof key, "%.40s/%ld", prefix, i);
    return key;
}

static void start_wait(hf *waiter, long i)
{
    hf_options options = HF_OPTIONS_INIT;
    options.wait_ms = WAIT_MS;
    if (!suite_has_sessions()) options.lease_ms = LEASE_MS;
    OK(hf_acquire_start(waiter, key_of(i), &options, over, &all[i], &all[i].wait, &suite_error));
}

static long requests(hf *h)
{
    hf_stats stats = {.size = sizeof stats};
    OK(hf_get_stats(h, &stats));
    return (long)stats.store_ops;
}

/* The waits of a handle look in the order in which they were started: when one that was started
   last has been granted a free key, all of them stand in line. */
static void start_waits(hf *waiter, long n)
{
    for (long i = 0; i < n; i++) start_wait(waiter, i);
    start_wait(waiter, n);
    await_ended(1);
    IS(HF_OK, all[n].code);
    OK(hf_release(all[n].got, &suite_error));
    ended = 0;
}

/* Nothing happens. A few waits look every five seconds; many look seldom enough to leave the
   threads that drive them free. Each looks once more when the store notifies it, which may come
   late. Fails if they look all the time. */
static void stand_idle(hf *waiter, long n)
{
    long idle = n;
    for (int i = 0; i < IDLE_TIMES && idle > n / 20; i++) {
        long before = requests(waiter);
        int64_t until_ms = suite_ms() + IDLE_MS;
        while (suite_ms() < until_ms) nap();
        idle = requests(waiter) - before;
    }
    if (idle > n / 20) fail_msg("%ld waits: %ld requests in %d ms", n, idle, IDLE_MS);
}

/* What n keys take from the first wait to the last grant: *ret, for each thousand of them. */
static void serve(long n, int handles, long ret[COUNTS])
{
    hf_options options = HF_OPTIONS_INIT;
    hf *holder = suite_open(), *waiter = handles == 2 ? suite_open() : holder;
    all = calloc((size_t)n + 1, sizeof *all);
    assert_non_null(all);
    snprintf(prefix, sizeof prefix, "%.40s", suite_key("waits"));
    if (!suite_has_sessions()) options.lease_ms = LEASE_MS;
    for (long i = 0; i < n; i++)
        OK(hf_acquire(holder, key_of(i), &options, &all[i].held, &suite_error));
    ended = 0;
    memset(counted, 0, sizeof counted);
    counted[REQUESTS] = -requests(waiter);
    start_waits(waiter, n);
    if (n == MANY) stand_idle(waiter, n);
    for (long i = 0; i < n; i++) OK(hf_release(all[i].held, &suite_error));
    await_ended(n);
    for (long i = 0; i < n; i++) IS(HF_OK, all[i].code);
    await_claims(n);
    counted[REQUESTS] += requests(waiter);
    for (int i = 0; i < COUNTS; i++) ret[i] = counted[i] * FEW / n;
    for (long i = 0; i <= n; i++) hf_wait_free(all[i].wait);
    if (handles == 2) hf_close(waiter);
    hf_close(holder);
    free(all);
}

static void all_are_granted(int handles)
{
    long few[COUNTS], many[COUNTS];
    serve(FEW, handles, few);
    serve(MANY, handles, many);
    for (int i = 0; i < COUNTS; i++) {
        print_message("# %s of 1,000 keys: %ld beside %d waits, %ld beside %d\n", names[i], few[i],
                      FEW, many[i], MANY);
        /* A walk of all waits would make a hundred times as many. A look at the store of one wait
           may lead to another one; but not to one more for each of many. */
        if (many[i] > 2 * few[i] || (i == REQUESTS && many[i] > few[i] + FEW * 3 / 2))
            fail_msg("%s of 1,000 keys: %ld beside %d waits, %ld beside %d", names[i], few[i], FEW,
                     many[i], MANY);
    }
}

static void waits_of_another_handle(void **state)
{
    (void)state;
    all_are_granted(2);
}

static void waits_of_the_handle_that_holds(void **state)
{
    (void)state;
    all_are_granted(1);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(waits_of_another_handle),
        cmocka_unit_test(waits_of_the_handle_that_holds),
    };
    return suite_main(argc, argv, tests, sizeof tests / sizeof *tests, "waits_many");
}
