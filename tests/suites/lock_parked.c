/*
 * lock_parked.c - the lock suite, fourth part: many waits of one process, up to ten thousand.
 */
#include "lock_suite.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static struct {
    int told, bad;
    uint64_t last;
    const char *key;
} parked;

static void release_at_once(void *arg, int code, hf_lock *lock, const hf_error *err)
{
    (void)err;
    if (code || ((uintptr_t)arg && hf_token(lock) <= parked.last)) parked.bad++;
    if (!code) parked.last = hf_token(lock);
    if (!code && hf_release(lock, NULL)) parked.bad++;
    __atomic_add_fetch(&parked.told, 1, __ATOMIC_SEQ_CST);
}

static long status_number(const char *field)
{
    char line[256];
    long n = -1;
    FILE *f = fopen("/proc/self/status", "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f))
        if (!strncmp(line, field, strlen(field))) n = strtol(line + strlen(field), NULL, 10);
    fclose(f);
    return n;
}

static int64_t cpu_us(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (int64_t)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000 + u.ru_utime.tv_usec +
           u.ru_stime.tv_usec;
}

static long switches(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return u.ru_nvcsw;
}

/* Sanitizers have memory and threads of their own. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

/* Returns when no thread of this process has run for a fifth of a second. Fails if that never
   happens; a sanitizer's own thread may never rest. */
static void settle(void)
{
    for (int64_t end = suite_ms() + (SANITIZED ? 2000 : SUITE_PATIENCE_MS); suite_ms() < end;) {
        long before = switches();
        int64_t cpu = cpu_us();
        usleep(200000);
        if (switches() - before <= 1 && cpu_us() - cpu < 1000) return; /* our own nap */
    }
    if (!SANITIZED) fail_msg("the threads don't come to rest");
}

static uint64_t requests(hf *h)
{
    hf_stats s = {.size = sizeof s};
    OK(hf_get_stats(h, &s));
    return s.store_ops;
}

static void park(size_t n, size_t keys)
{
    hf *holder = suite_open(), *h = suite_open();
    hf_wait **w = calloc(n, sizeof *w);
    hf_lock **l = calloc(keys, sizeof *l);
    char key[64];
    long threads = status_number("Threads:"); /* the client library of a store may have some */
    memset(&parked, 0, sizeof parked);
    for (size_t i = 0; i < keys; i++) {
        snprintf(key, sizeof key, "parked/%d/%zu/%zu", (int)getpid(), keys, i);
        OK(hf_acquire(holder, key, NULL, &l[i], &suite_error));
    }
    long rss = status_number("VmRSS:");
    for (size_t i = 0; i < n; i++) {
        snprintf(key, sizeof key, "parked/%d/%zu/%zu", (int)getpid(), keys, i % keys);
        OK(hf_acquire_start(h, key, NULL, release_at_once, (void *)(uintptr_t)(keys == 1), &w[i],
                            &suite_error));
    }
    for (size_t i = 0; i < keys; i++) {
        snprintf(key, sizeof key, "parked/%d/%zu/%zu", (int)getpid(), keys, i);
        suite_await_waiters(holder, key, 1);
    }
    if (suite_has_sessions()) settle();
    assert_true(status_number("Threads:") - threads <= 7); /* of two handles */
    if (!SANITIZED) assert_true(status_number("VmRSS:") - rss <= 64 * 1024);
    int64_t cpu = cpu_us();
    long before = switches();
    uint64_t ops = requests(h);
    int64_t since = suite_ms();
    usleep(1000000);
    /* the thread may sleep for longer */
    uint64_t seconds = (uint64_t)(suite_ms() - since) / 1000 + 1;
    /* Polled four times a second and key, however many wait for it; or not at all. */
    if (!SANITIZED)
        assert_true(requests(h) - ops <= (suite_has_sessions() ? 0 : 4 * keys * seconds));
    if (suite_has_sessions()) {
        if (!SANITIZED) assert_true(cpu_us() - cpu < 2500 * (int64_t)seconds);
        if (!SANITIZED) assert_true(switches() - before < 3 + (long)seconds);
    }
    assert_int_equal(__atomic_load_n(&parked.told, __ATOMIC_SEQ_CST), 0);
    for (size_t i = 0; i < keys; i++) OK(hf_release(l[i], &suite_error));
    for (int64_t end = suite_ms() + SUITE_PATIENCE_MS;
         __atomic_load_n(&parked.told, __ATOMIC_SEQ_CST) < (int)n; usleep(5000))
        if (suite_ms() > end) fail_msg("%d of %zu served", parked.told, n);
    assert_int_equal(parked.bad, 0);
    for (size_t i = 0; i < n; i++) hf_wait_free(w[i]);
    free(w);
    free(l);
    hf_close(h);
    hf_close(holder);
}

static void ten_thousand_parked_on_one_key(void **state)
{
    (void)state;
    park(10000, 1);
}

static void many_parked_on_their_own_keys(void **state)
{
    (void)state;
    /* Fewer where each key has to be polled. */
    size_t n = suite_has_sessions() ? 10000 : 200;
    park(n, n);
}

/* A waiter that is notified looks seldom, also where one process waits for very many keys. */
static void many_listened_for(void **state)
{
    enum { MOST = 3000 };
    (void)state;
    static hf_lock *l[MOST];
    static hf_wait *w[MOST];
    const char *many = getenv("HOLDFAST_TEST_MANY");
    char key[64];
    if (!many) return; /* on other stores it takes long, or nothing is notified */
    char *end_of;
    int keys = (int)strtol(many, &end_of, 10);
    assert_true(!*end_of && keys >= 1000 && keys <= MOST);
    hf *holder = suite_open(), *h = suite_open();
    memset(&parked, 0, sizeof parked);
    hf_options long_lease = HF_OPTIONS_INIT;
    long_lease.lease_ms = 3600000; /* an end that is near would be looked at */
    for (int i = 0; i < keys; i++) {
        snprintf(key, sizeof key, "listened/%d/%d", (int)getpid(), i);
        OK(hf_acquire(holder, key, &long_lease, &l[i], &suite_error));
    }
    for (int i = 0; i < keys; i++) {
        snprintf(key, sizeof key, "listened/%d/%d", (int)getpid(), i);
        OK(hf_acquire_start(h, key, NULL, release_at_once, NULL, &w[i], &suite_error));
    }
    for (int i = 0; i < keys; i++) {
        snprintf(key, sizeof key, "listened/%d/%d", (int)getpid(), i);
        suite_await_waiters(holder, key, 1);
    }
    /* Each looks once more when it is listened for, and then every five seconds or so: there is a
       time in which they are few. */
    uint64_t ops = 0;
    for (int64_t end = suite_ms() + 60000;;) {
        int64_t since = suite_ms();
        ops = requests(h);
        usleep(2000000);
        ops = (requests(h) - ops) * 1000 / (uint64_t)(suite_ms() - since);
        if (ops <= (uint64_t)keys / 3) break;
        if (suite_ms() > end) fail_msg("%d waits: %d requests a second", keys, (int)ops);
    }
    for (int i = 0; i < keys; i++) hf_wait_free(w[i]);
    for (int i = 0; i < keys; i++) OK(hf_release(l[i], &suite_error));
    assert_int_equal(parked.bad, keys); /* all of them were given up */
    hf_close(h);
    hf_close(holder);
}

static void note_grant(void *arg, int code, hf_lock *lock, const hf_error *err)
{
    (void)err;
    if (!code) __atomic_store_n((hf_lock **)arg, lock, __ATOMIC_SEQ_CST);
}

static void *ask(void *arg)
{
    hf_lock *lock;
    int rc = hf_acquire(arg, parked.key, NULL, &lock, NULL);
    return rc || hf_release(lock, NULL) ? arg : NULL;
}

/* The request holds the key already: it doesn't stand behind waiters for its own release. */
static void a_request_asked_again_waits_for_nobody(void **state)
{
    (void)state;
    static const uint8_t id[16] = "again-and-again";
    hf *h = suite_open();
    hf_options o = HF_OPTIONS_INIT;
    hf_lock *lock, *again, *told = NULL;
    hf_wait *w;
    pthread_t thread;
    void *failed;
    parked.key = suite_key("again");
    o.request_id = id;
    OK(hf_acquire(h, parked.key, &o, &lock, &suite_error));
    pthread_create(&thread, NULL, ask, h);
    suite_await_waiters(h, parked.key, 1);
    OK(hf_acquire(h, parked.key, &o, &again, &suite_error));
    assert_int_equal(hf_token(again), hf_token(lock));
    OK(hf_acquire_start(h, parked.key, &o, note_grant, &told, &w, &suite_error));
    while (!__atomic_load_n(&told, __ATOMIC_SEQ_CST)) usleep(1000);
    assert_int_equal(hf_token(told), hf_token(lock));
    hf_wait_free(w);
    OK(hf_release(lock, &suite_error));
    IS(HF_LOST, hf_release(again, NULL));
    IS(HF_LOST, hf_release(told, NULL));
    pthread_join(thread, &failed);
    assert_null(failed);
    hf_close(h);
}

/* Returns 1 if n waits are queued before that time. Later the first of them may have the key. */
static int wait_by(hf *store, size_t n, int64_t until_ms)
{
    while (suite_waiters(store, parked.key) != n) {
        if (suite_ms() >= until_ms) return 0;
        usleep(500);
    }
    return 1;
}

/* Measures how late a waiter gets a key whose holder's lease has run out, if the waiter ahead has
   given up meanwhile. Where the store has no wakeups, it may be half a second and a look. */
static int64_t behind_one_that_gave_up(void)
{
    /* Longer each time that this was too short for all to be there. */
    static int64_t lease_ms = 500;
    hf *a = suite_open(), *b = suite_open(), *c = suite_open();
    hf_options holds = HF_OPTIONS_INIT, first = HF_OPTIONS_INIT;
    hf_lock *lock, *mine, *none = NULL;
    hf_wait *w;
    parked.key = suite_key("gave-up");
    holds.lease_ms = lease_ms = suite_lease(lease_ms);
    holds.flags = HF_NO_RENEW;
    int64_t from = suite_ms(), until = from + lease_ms;
    OK(hf_acquire(a, parked.key, &holds, &lock, &suite_error));
    OK(hf_acquire_start(b, parked.key, &first, note_grant, &none, &w, &suite_error));
    int in_time = wait_by(a, 1, until);
    pthread_t thread;
    pthread_create(&thread, NULL, ask, c);
    in_time = in_time && wait_by(a, 2, until);
    hf_wait_free(w);
    in_time = in_time && suite_ms() < until && !none;
    if (none) OK(hf_release(none, &suite_error));
    void *failed;
    pthread_join(thread, &failed);
    int64_t late = suite_ms() - until;
    assert_null(failed);
    hf_release(lock, NULL);
    OK(hf_acquire(a, parked.key, NULL, &mine, &suite_error));
    hf_close(a);
    hf_close(b);
    hf_close(c);
    if (!in_time && lease_ms < 30000) lease_ms *= 2;
    return !in_time ? -1 : suite_has_sessions() ? late : 0;
}

SUITE_QUICK(who_moves_up_to_the_head_notices_its_end, behind_one_that_gave_up, 300)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_moves_up_to_the_head_notices_its_end),
        cmocka_unit_test(a_request_asked_again_waits_for_nobody),
        cmocka_unit_test(ten_thousand_parked_on_one_key),
        cmocka_unit_test(many_parked_on_their_own_keys),
        cmocka_unit_test(many_listened_for),
    };
    return suite_main(argc, argv, tests, sizeof tests / sizeof *tests, "lock_parked");
}
