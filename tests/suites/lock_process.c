/*
 * lock_process.c - the lock suite, third part: processes that are killed, stopped, forked.
 */
#include "lock_suite.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static hf_options with_lease(int64_t lease_ms)
{
    hf_options o = HF_OPTIONS_INIT;
    o.lease_ms = lease_ms;
    o.wait_ms = 0;
    return o;
}

/* A child that takes the key (once: begins its event), says so, and holds it until it is killed. */
static pid_t taker(const char *key, const hf_options *o, int once)
{
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    pid_t pid = suite_fork();
    if (!pid) {
        hf *h;
        hf_lock *lock;
        hf_once event;
        hf_options patient = HF_OPTIONS_INIT;
        if (o) patient = *o;
        patient.wait_ms = SUITE_PATIENCE_MS; /* a grant that comes too late is asked for again */
        close(ready[0]);
        if (hf_open(suite_url, NULL, &h, &suite_error) ||
            (once ? hf_once_begin(h, key, 60000, &patient, &event, &suite_error)
                  : hf_acquire(h, key, &patient, &lock, &suite_error))) {
            fprintf(stderr, "# the taker of '%s': %s\n", key, suite_error.text);
            _exit(1);
        }
        if (write(ready[1], "x", 1) != 1) _exit(1);
        for (;;) pause();
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return pid;
}

static void reap(pid_t pid)
{
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void a_killed_holder_frees_its_key(void **state)
{
    (void)state;
    if (suite_is_private()) return;
    hf *h = suite_open();
    const char *key = suite_key("killed");
    hf_options o = HF_OPTIONS_INIT, mortal = with_lease(suite_short_lease());
    uint64_t last = 0;
    int64_t least_ms = INT64_MAX;
    o.wait_ms = SUITE_PATIENCE_MS;
    for (int i = 0; i < 5; i++) {
        pid_t pid = taker(key, &mortal, 0);
        int64_t start = suite_ms();
        hf_lock *lock;
        if (i % 2) reap(pid); /* dead before anybody asks */
        if (!(i % 2) && suite_fork() == 0) {
            usleep(50000);
            kill(pid, SIGKILL);
            _exit(0);
        }
        OK(hf_acquire(h, key, &o, &lock, &suite_error));
        if (suite_ms() - start < least_ms) least_ms = suite_ms() - start;
        assert_true(hf_token(lock) > last);
        last = hf_token(lock);
        OK(hf_release(lock, &suite_error));
        while (wait(NULL) > 0) continue;
    }
    assert_true(least_ms < 40000);
    hf_close(h);
}

static void a_stopped_holder_keeps_it(void **state)
{
    (void)state;
    if (suite_is_private() || !suite_has_sessions()) return;
    hf *h = suite_open();
    const char *key = suite_key("stopped");
    hf_options o = HF_OPTIONS_INIT;
    hf_lock *lock;
    o.wait_ms = 300;
    pid_t pid = taker(key, NULL, 0);
    kill(pid, SIGSTOP);
    IS(HF_TIMEOUT, hf_acquire(h, key, &o, &lock, &suite_error));
    reap(pid);
    o.wait_ms = SUITE_PATIENCE_MS;
    OK(hf_acquire(h, key, &o, &lock, &suite_error));
    hf_close(h);
}

/* An event that is delivered again after its run has died has the owner of that run: it waits until
   the dead hold is over, and isn't refused as recursive. */
static void an_event_is_run_again_by_the_owner_of_a_dead_run(void **state)
{
    (void)state;
    if (suite_is_private()) return;
    hf *h = suite_open();
    const char *key = suite_key("redelivered");
    hf_options o = HF_OPTIONS_INIT, mortal = with_lease(suite_short_lease());
    o.owner = mortal.owner = "execution-7";
    for (int i = 0; i < 2; i++) {
        hf_once event;
        pid_t pid = taker(key, &mortal, 1);
        o.wait_ms = 0;
        IS(HF_BUSY, hf_once_begin(h, key, 60000, &o, &event, &suite_error));
        reap(pid);
        o.wait_ms = i ? HF_FOREVER : SUITE_PATIENCE_MS;
        OK(hf_once_begin(h, key, 60000, &o, &event, &suite_error));
        assert_non_null(event.lock);
        OK(hf_release(event.lock, &suite_error));
    }
    hf_close(h);
}

/* A child that waits for the key; returns when it stands in the queue. */
static pid_t waiter(hf *h, const char *key, size_t place)
{
    pid_t pid = suite_fork();
    if (!pid) {
        hf *own;
        hf_lock *lock;
        int64_t start;
        int rc;
        if (hf_open(suite_url, NULL, &own, NULL)) _exit(1);
        do {
            start = suite_ms();
            if (hf_acquire(own, key, NULL, &lock, NULL)) _exit(2);
            usleep(1000);
            rc = hf_release(lock, NULL);
            /* The machine may let this process sleep for any time between the two. */
        } while (rc == HF_LOST && suite_ms() - start >= SUITE_CLAIM_MS);
        if (rc) _exit(3);
        hf_close(own);
        _exit(0);
    }
    suite_await_waiters(h, key, place);
    return pid;
}

static int64_t both_passed_over(void)
{
    hf *h = suite_open();
    const char *key = suite_key("waiters");
    hf_lock *lock;
    int status;
    OK(hf_acquire(h, key, NULL, &lock, &suite_error));
    pid_t stopped = waiter(h, key, 1), dead = waiter(h, key, 2), good = waiter(h, key, 3);
    kill(stopped, SIGSTOP);
    reap(dead);
    int64_t start = suite_ms();
    OK(hf_release(lock, &suite_error));
    assert_int_equal(waitpid(good, &status, 0), good);
    assert_int_equal(status, 0);
    int64_t took = suite_ms() - start;
    kill(stopped, SIGCONT);
    assert_int_equal(waitpid(stopped, &status, 0), stopped);
    assert_int_equal(status, 0); /* the waiter lost its place, but not its turn */
    hf_close(h);
    return took;
}

static void dead_and_stopped_waiters_are_passed_over(void **state)
{
    (void)state;
    if (!suite_is_private())
        suite_quick(both_passed_over, 6000 + suite_lease(0)); /* their claims */
}

static int64_t stopped_passed_over(void)
{
    hf *h = suite_open();
    const char *key = suite_key("passed over");
    hf_lock *lock;
    int status;
    OK(hf_acquire(h, key, NULL, &lock, &suite_error));
    pid_t stopped = waiter(h, key, 1), good = waiter(h, key, 2);
    kill(stopped, SIGSTOP);
    int64_t start = suite_ms();
    OK(hf_release(lock, &suite_error));
    assert_int_equal(waitpid(good, &status, 0), good);
    assert_int_equal(status, 0);
    int64_t took = suite_ms() - start;
    kill(stopped, SIGCONT);
    assert_int_equal(waitpid(stopped, &status, 0), stopped);
    assert_int_equal(status, 0);
    hf_close(h);
    return took;
}

/* No process dies, and the waiter behind knew of no end when it began to wait. */
static void a_stopped_waiter_is_passed_over(void **state)
{
    (void)state;
    if (!suite_is_private()) suite_quick(stopped_passed_over, 6000 + suite_lease(0));
}

static int64_t notices(void)
{
    hf *h = suite_open();
    const char *key = suite_key("chain");
    hf_options mortal = with_lease(suite_short_lease());
    int status;
    pid_t holder = taker(key, &mortal, 0);
    pid_t first = waiter(h, key, 1), second = waiter(h, key, 2);
    reap(first);
    reap(holder);
    int64_t start = suite_ms();
    assert_int_equal(waitpid(second, &status, 0), second);
    assert_int_equal(status, 0);
    int64_t took = suite_ms() - start;
    hf_close(h);
    return took;
}

static void the_one_behind_a_dead_waiter_notices_a_dead_holder(void **state)
{
    (void)state;
    if (!suite_is_private()) suite_quick(notices, 40000);
}

static void keep(void *arg, int code, hf_lock *lock, const hf_error *err)
{
    (void)code, (void)err;
    __atomic_store_n((hf_lock **)arg, lock, __ATOMIC_SEQ_CST);
}

/* Acquires and releases, also by a wait behind another handle. Returns 0, or the number of the step
   that failed. */
static int works(hf *h, const char *key)
{
    hf *other;
    hf_lock *l, *x = NULL;
    hf_wait *w;
    hf_options try = with_lease(0);
    try.wait_ms = 0;
    if (hf_acquire(h, key, &try, &l, NULL) || hf_confirm(l, NULL)) return 10;
    if (hf_open(suite_url, NULL, &other, NULL)) return 11;
    if (hf_acquire_start(other, key, NULL, keep, &x, &w, NULL)) return 12;
    suite_await_waiters(h, key, 1);
    if (hf_release(l, NULL)) return 13;
    while (!__atomic_load_n(&x, __ATOMIC_SEQ_CST)) usleep(500);
    uint64_t token = hf_token(x);
    if (hf_release(x, NULL)) return 14;
    hf_wait_free(w);
    hf_close(other);
    if (hf_acquire(h, key, &try, &l, NULL) || hf_token(l) <= token) return 15;
    return hf_release(l, NULL) ? 16 : 0;
}

static uint32_t held_by(hf *h)
{
    hf_stats stats = {.size = sizeof stats};
    return hf_get_stats(h, &stats) ? UINT32_MAX : stats.held;
}

/* In the child only locks and waits are lost: the parent's handle opens the store anew, also in the
   child's own child. The parent is not affected. */
static int in_child(hf *h, hf_lock *lock, hf_wait *wait, const char *key, const char *own, int deep)
{
    hf_lock *x;
    hf_options try = with_lease(0);
    int status = 0;
    try.wait_ms = 0;
    alarm(60);
    if (hf_left_ms(lock) != 0) return 2;
    if (hf_release(lock, NULL) != HF_LOST) return 3;
    int rc = hf_acquire(h, key, &try, &x, NULL);
    if (rc != (suite_is_private() ? HF_OK : HF_BUSY)) return 4;
    if (hf_confirm(lock, NULL) != HF_LOST || hf_renew(lock, 0, NULL) != HF_LOST) return 5;
    if (wait) hf_wait_cancel(wait);
    hf_wait_free(wait);
    if (!suite_is_private() && (rc = works(h, own))) return rc;
    if (deep) {
        hf_lock *mine;
        if (hf_acquire(h, own, &try, &mine, NULL)) return 6;
        pid_t pid = fork();
        if (!pid) _exit(in_child(h, mine, NULL, own, suite_key("grandchild"), 0));
        if (waitpid(pid, &status, 0) != pid || status) return 7;
        if (hf_release(mine, NULL)) return 8;
    }
    if (held_by(h) != (uint32_t)suite_is_private()) return 9;
    hf_close(h);
    return 0;
}

static void a_fork_leaves_the_parent_alone(void **state)
{
    (void)state;
    hf *h = suite_open(), *other = suite_open();
    const char *key = suite_key("fork"), *waited = suite_key("waited"), *own = suite_key("own");
    hf_lock *lock, *theirs, *x = NULL;
    hf_wait *w;
    int status;
    OK(hf_acquire(h, key, NULL, &lock, &suite_error));
    OK(hf_acquire(other, waited, NULL, &theirs, &suite_error));
    OK(hf_acquire_start(h, waited, NULL, keep, &x, &w, &suite_error));
    suite_await_waiters(other, waited, 1);
    for (int i = 0; i < 3; i++) {
        pid_t pid = suite_fork();
        if (!pid) _exit(in_child(h, lock, w, key, own, i == 0));
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
        OK(hf_confirm(lock, &suite_error));
        assert_int_equal(works(h, own), 0);
    }
    OK(hf_release(theirs, &suite_error));
    for (int64_t end = suite_ms() + SUITE_PATIENCE_MS; !__atomic_load_n(&x, __ATOMIC_SEQ_CST);) {
        assert_true(suite_ms() < end);
        usleep(500);
    }
    OK(hf_release(x, &suite_error));
    hf_wait_free(w);
    OK(hf_release(lock, &suite_error));
    hf_close(other);
    hf_close(h);
}

/* A child of a fork that lives on must not keep its dead parent's key. */
static void a_forked_child_does_not_keep_the_key(void **state)
{
    (void)state;
    if (suite_is_private() || !suite_has_sessions()) return;
    hf *h = suite_open();
    const char *key = suite_key("fork-child");
    hf_options o = HF_OPTIONS_INIT;
    hf_lock *lock;
    int ready[2];
    pid_t child;
    assert_int_equal(pipe(ready), 0);
    pid_t pid = suite_fork();
    if (!pid) {
        hf *own;
        if (hf_open(suite_url, NULL, &own, NULL) || hf_acquire(own, key, NULL, &lock, NULL))
            _exit(1);
        if (!suite_fork()) {
            child = getpid();
            if (write(ready[1], &child, sizeof child) != sizeof child) _exit(1);
            close(ready[1]);
            sleep(2 * SUITE_PATIENCE_MS / 1000);
            _exit(0);
        }
        for (;;) pause();
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &child, sizeof child), sizeof child);
    close(ready[0]);
    reap(pid);
    o.wait_ms = SUITE_PATIENCE_MS / 5;
    int rc = hf_acquire(h, key, &o, &lock, &suite_error);
    kill(child, SIGKILL);
    OK(rc);
    hf_close(h);
}

/* ---- signals ---- */

static volatile sig_atomic_t caught;

static void count_it(int sig)
{
    (void)sig;
    caught++;
}

struct disturbed {
    hf *h;
    const char *key;
    hf_lock *lock;
    int code;
};

static void *wait_disturbed(void *arg)
{
    struct disturbed *d = arg;
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, SIGUSR1);
    pthread_sigmask(SIG_UNBLOCK, &one, NULL);
    d->code = hf_acquire(d->h, d->key, NULL, &d->lock, NULL);
    return NULL;
}

/* Signals interrupt system calls, but end no wait of the library's. */
static void signals_do_not_disturb_who_waits(void **state)
{
    (void)state;
    hf *h = suite_open(), *other = suite_open();
    const char *key = suite_key("signals");
    struct sigaction count = {.sa_handler = count_it}, before; /* without SA_RESTART */
    struct disturbed d = {.h = other, .key = key};
    pthread_t thread;
    hf_lock *lock;
    sigset_t one, mask;
    sigemptyset(&one);
    sigaddset(&one, SIGUSR1);
    OK(hf_acquire(h, key, NULL, &lock, &suite_error));
    caught = 0;
    pthread_sigmask(SIG_BLOCK, &one, &mask);
    sigaction(SIGUSR1, &count, &before);
    assert_int_equal(pthread_create(&thread, NULL, wait_disturbed, &d), 0);
    suite_await_waiters(h, key, 1);
    for (int sent = 0; sent < 100; sent++) {
        int had = caught;
        assert_int_equal(pthread_kill(thread, SIGUSR1), 0);
        while (caught == had) usleep(500);
    }
    OK(hf_release(lock, &suite_error));
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_string_equal(hf_code_name(d.code), hf_code_name(HF_OK));
    OK(hf_release(d.lock, &suite_error));
    sigaction(SIGUSR1, &before, NULL);
    pthread_sigmask(SIG_SETMASK, &mask, NULL);
    hf_close(other);
    hf_close(h);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_holder_frees_its_key),
        cmocka_unit_test(a_stopped_holder_keeps_it),
        cmocka_unit_test(an_event_is_run_again_by_the_owner_of_a_dead_run),
        cmocka_unit_test(dead_and_stopped_waiters_are_passed_over),
        cmocka_unit_test(a_stopped_waiter_is_passed_over),
        cmocka_unit_test(the_one_behind_a_dead_waiter_notices_a_dead_holder),
        cmocka_unit_test(a_fork_leaves_the_parent_alone),
        cmocka_unit_test(a_forked_child_does_not_keep_the_key),
        cmocka_unit_test(signals_do_not_disturb_who_waits),
    };
    return suite_main(argc, argv, tests, sizeof tests / sizeof *tests, "lock_process");
}
