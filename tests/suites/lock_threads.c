/*
 * lock_threads.c - what a program notices of the library's threads: they run its callbacks, and
 * their stacks have room for its thread-local variables. And its own threads may be canceled.
 */
#include "lock_suite.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- callbacks ---- */

enum { NOT_YET = 1 };

static struct {
    hf *other;       /* another handle than that of the callback */
    const char *key; /* held by a third one */
    int code;        /* of the acquisition that the callback made */
    pid_t child;     /* that the callback forked */
} made;

static void acquire_elsewhere(void)
{
    hf_options o = HF_OPTIONS_INIT;
    hf_lock *lock;
    o.wait_ms = 200; /* without the rule this is TIMEOUT */
    int rc = hf_acquire(made.other, made.key, &o, &lock, NULL);
    if (!rc) hf_release(lock, NULL);
    __atomic_store_n(&made.code, rc, __ATOMIC_SEQ_CST);
}

static void acquire_when_done(void *arg, int code, hf_lock *lock, const hf_error *err)
{
    (void)arg, (void)err;
    acquire_elsewhere();
    if (!code) hf_release(lock, NULL);
}

static void acquire_when_lost(void *arg, hf_lock *lock)
{
    (void)arg, (void)lock;
    acquire_elsewhere();
}

static int code_of_callback(void)
{
    int code;
    while ((code = __atomic_load_n(&made.code, __ATOMIC_SEQ_CST)) == NOT_YET) usleep(1000);
    return code;
}

/* In the child of a callback: a call may wait there. Without an end of its own the child would
   never end: the signals of a library's thread are blocked. */
static void be_the_child(void)
{
    hf_options o = HF_OPTIONS_INIT;
    hf_lock *lock;
    sigset_t alarms;
    sigemptyset(&alarms);
    sigaddset(&alarms, SIGALRM);
    alarm(20);
    pthread_sigmask(SIG_UNBLOCK, &alarms, NULL);
    o.wait_ms = 10;
    if (hf_acquire(made.other, made.key, &o, &lock, NULL) == HF_BUSY) _exit(1);
}

static void fork_child(void)
{
    pid_t child = fork();
    if (child)
        __atomic_store_n(&made.child, child, __ATOMIC_SEQ_CST);
    else
        be_the_child();
}

static void fork_when_done(void *arg, int code, hf_lock *lock, const hf_error *err)
{
    (void)arg, (void)code, (void)err;
    *(hf_lock **)arg = lock;
    fork_child();
}

static void fork_when_lost(void *arg, hf_lock *lock)
{
    (void)arg, (void)lock;
    fork_child();
}

static void expect_end_of_child(void)
{
    int status;
    pid_t child;
    while (!(child = __atomic_load_n(&made.child, __ATOMIC_SEQ_CST))) usleep(1000);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), 70);
    made.child = 0;
}

/* Calls of a callback are made while another handle holds made.key. */
static hf_lock *hold_elsewhere(hf *holder)
{
    hf_lock *held;
    made.other = suite_open();
    made.key = suite_key("elsewhere");
    made.code = NOT_YET;
    made.child = 0;
    OK(hf_acquire(holder, made.key, NULL, &held, &suite_error));
    return held;
}

/* On a store without sessions the loss shows at a renewal, after a third of the lease. */
static hf_lock *lose(hf *holder, hf *h, const char *key)
{
    hf_options o = HF_OPTIONS_INIT;
    hf_lock *lock;
    o.lease_ms = suite_has_sessions() ? 0 : suite_lease(3000);
    OK(hf_acquire(h, key, &o, &lock, &suite_error));
    OK(hf_break(holder, key, hf_token(lock), &suite_error));
    return lock;
}

/* If it did wait, the threads of two handles could wait for each other for ever. */
static void no_acquisition_in_a_callback_waits(void **state)
{
    (void)state;
    hf *h = suite_open(), *holder = suite_open();
    hf_lock *held = hold_elsewhere(holder), *lock;
    hf_wait *w;
    const char *own = suite_key("own");

    OK(hf_acquire_start(h, own, NULL, acquire_when_done, NULL, &w, &suite_error));
    IS(HF_BUSY, code_of_callback());
    hf_wait_free(w);

    made.code = NOT_YET;
    lock = lose(holder, h, own);
    OK(hf_on_lost(lock, acquire_when_lost, NULL));
    IS(HF_BUSY, code_of_callback());
    IS(HF_LOST, hf_release(lock, NULL));

    OK(hf_release(held, &suite_error));
    hf_close(h);
    hf_close(holder);
    hf_close(made.other);
}

/* The child would go on as the parent's thread: with the parent's waits, on its connections. */
static void a_child_that_returns_from_a_callback_ends(void **state)
{
    (void)state;
    hf *h = suite_open(), *holder = suite_open();
    hf_lock *held = hold_elsewhere(holder), *lock = NULL;
    hf_wait *w;
    const char *own = suite_key("own");

    OK(hf_acquire_start(h, own, NULL, fork_when_done, &lock, &w, &suite_error));
    expect_end_of_child();
    hf_wait_free(w);
    OK(hf_release(lock, &suite_error));

    lock = lose(holder, h, own);
    OK(hf_on_lost(lock, fork_when_lost, NULL));
    expect_end_of_child();
    IS(HF_LOST, hf_release(lock, NULL));

    OK(hf_release(held, &suite_error));
    hf_close(h);
    hf_close(holder);
    hf_close(made.other);
}

/* ---- pthread_cancel ---- */

static void *acquire_and_release(void *arg)
{
    hf_lock *lock;
    if (hf_acquire(arg, made.key, NULL, &lock, NULL) || hf_release(lock, NULL)) return arg;
    pthread_testcancel();
    return NULL;
}

/* The first of two waits sleeps at the store, the second behind it. Canceled there, their threads
   would leave the handle's mutex locked for ever. */
static void a_canceled_thread_leaves_the_call_first(void **state)
{
    (void)state;
    hf *h = suite_open();
    hf_lock *lock;
    pthread_t thread[2];
    hf_stats stats = {.size = sizeof stats};
    made.key = suite_key("canceled");
    OK(hf_acquire(h, made.key, NULL, &lock, &suite_error));
    for (int i = 0; i < 2; i++) pthread_create(&thread[i], NULL, acquire_and_release, h);
    suite_await_waiters(h, made.key, 1);
    while (!hf_get_stats(h, &stats) && stats.waiting < 2) usleep(1000);
    for (int i = 0; i < 2; i++) pthread_cancel(thread[i]);
    OK(hf_release(lock, &suite_error));
    for (int i = 0; i < 2; i++) {
        void *how;
        pthread_join(thread[i], &how);
        assert_ptr_equal(how, PTHREAD_CANCELED);
    }
    OK(hf_acquire(h, made.key, NULL, &lock, &suite_error));
    hf_close(h);
}

/* ---- stacks ---- */

/* As large as the library's stacks, in which glibc keeps it. */
static _Thread_local volatile char large[256 * 1024];

static void note_grant(void *arg, int code, hf_lock *lock, const hf_error *err)
{
    (void)err;
    memset((char *)large, code, sizeof large);
    *(hf_lock **)arg = lock;
}

static void threads_start_beside_large_thread_locals(void **state)
{
    (void)state;
    hf *h = suite_open();
    hf_lock *lock, *told = NULL;
    hf_wait *w;
    hf_options leased = HF_OPTIONS_INIT;
    leased.lease_ms = 30000;
    large[0] = 1;
    OK(hf_acquire(h, suite_key("leased"), &leased, &lock, &suite_error));
    assert_true(hf_lost_fd(lock) >= 0);
    OK(hf_acquire_start(h, suite_key("started"), NULL, note_grant, &told, &w, &suite_error));
    while (!__atomic_load_n(&told, __ATOMIC_SEQ_CST)) usleep(1000);
    hf_wait_free(w);
    OK(hf_release(told, &suite_error));
    OK(hf_release(lock, &suite_error));
    hf_close(h);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_acquisition_in_a_callback_waits),
        cmocka_unit_test(a_child_that_returns_from_a_callback_ends),
        cmocka_unit_test(a_canceled_thread_leaves_the_call_first),
        cmocka_unit_test(threads_start_beside_large_thread_locals),
    };
    return suite_main(argc, argv, tests, sizeof tests / sizeof *tests, "lock_threads");
}
