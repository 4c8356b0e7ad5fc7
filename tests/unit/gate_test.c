/*
 * gate_test.c - kit/fork_gate.h: a fork waits for the threads inside, and they for the fork.
 *
 * Two handlers of pthread_atfork enclose the gate's own: `before` runs when the gate hasn't been
 * asked yet, `behind` when it lets the fork pass.
 */
#include "kit/fork_gate.h"

#include "os.h"
#include "test.h"

#include <pthread.h>
#include <semaphore.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CHILD_S = 20, SOON_US = 600000, SHORT_MS = 30 };

static sem_t go, there, done;
static int left, left_behind, enters, entered_behind; /* the first and the third: atomic */

static void pause_shortly(void)
{
    const struct timespec t = {0, SHORT_MS * 1000000L};
    nanosleep(&t, NULL);
}

static void before(void) { sem_post(&go); }

static void behind(void)
{
    left_behind = __atomic_load_n(&left, __ATOMIC_SEQ_CST);
    if (!enters) return;
    sem_post(&there); /* the thread enters now */
    pause_shortly();
    entered_behind = __atomic_load_n(&left, __ATOMIC_SEQ_CST);
}

static int setup(void **state)
{
    (void)state;
    sem_init(&go, 0, 0);
    sem_init(&there, 0, 0);
    sem_init(&done, 0, 0);
    left = left_behind = enters = entered_behind = 0;
    return 0;
}

/* Forks. The child enters. Returns how long fork took. */
static int64_t forks(void)
{
    int status = 1;
    int64_t began_us = hf__local_us();
    pid_t pid = fork();
    if (!pid) {
        alarm(CHILD_S);
        hf__gate_begin();
        hf__gate_wait();
        hf__gate_go_on();
        hf__gate_end();
        _exit(0);
    }
    int64_t took_us = hf__local_us() - began_us;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    return took_us;
}

static pthread_t start(void *(*what)(void *), void *arg)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, what, arg), 0);
    return thread;
}

/* ---- a fork waits for the threads inside ---- */

static void *leaves(void *arg)
{
    int waits = *(int *)arg;
    hf__gate_begin();
    hf__gate_begin();
    sem_post(&there);
    while (sem_wait(&go)) continue;
    hf__gate_end();
    pause_shortly();
    __atomic_store_n(&left, 1, __ATOMIC_SEQ_CST);
    if (waits) hf__gate_wait();
    if (waits)
        while (sem_wait(&done)) continue;
    if (waits) hf__gate_go_on();
    hf__gate_end();
    return NULL;
}

static void test_until_it_has_left(void **state)
{
    int no = 0;
    (void)state;
    pthread_t thread = start(leaves, &no);
    while (sem_wait(&there)) continue;
    forks();
    assert_int_equal(left_behind, 1);
    pthread_join(thread, NULL);
}

static void test_until_it_waits(void **state)
{
    int yes = 1;
    (void)state;
    pthread_t thread = start(leaves, &yes);
    while (sem_wait(&there)) continue;
    assert_true(forks() < SOON_US);
    assert_int_equal(left_behind, 1);
    assert_true(forks() < SOON_US); /* the thread waits all the time */
    sem_post(&done);
    pthread_join(thread, NULL);
}

/* ---- a thread that comes waits for the fork ---- */

static void *comes(void *arg)
{
    int goes_on = *(int *)arg;
    if (goes_on) hf__gate_begin();
    if (goes_on) hf__gate_wait();
    sem_post(&done);
    while (sem_wait(&there)) continue;
    if (goes_on)
        hf__gate_go_on();
    else
        hf__gate_begin();
    __atomic_store_n(&left, 1, __ATOMIC_SEQ_CST);
    hf__gate_end();
    return NULL;
}

static void test_threads_that_come(void **state)
{
    (void)state;
    for (int goes_on = 0; goes_on <= 1; goes_on++) {
        left = entered_behind = 0;
        enters = 1;
        pthread_t thread = start(comes, &goes_on);
        while (sem_wait(&done)) continue;
        forks();
        assert_int_equal(entered_behind, 0);
        pthread_join(thread, NULL);
        assert_int_equal(left, 1);
    }
}

/* ---- a thread that stays ---- */

static void *stays(void *arg)
{
    (void)arg;
    hf__gate_begin();
    sem_post(&there);
    while (sem_wait(&done)) continue;
    hf__gate_end();
    return NULL;
}

static void test_waits_for_each_once(void **state)
{
    pthread_t first = start(stays, NULL), second;
    while (sem_wait(&there)) continue;
    assert_true(forks() > SOON_US);
    assert_true(forks() < SOON_US);
    second = start(stays, NULL);
    while (sem_wait(&there)) continue;
    assert_true(forks() > SOON_US);
    assert_true(forks() < SOON_US);
    sem_post(&done);
    sem_post(&done);
    pthread_join(first, NULL);
    pthread_join(second, NULL);
    setup(state);
    test_until_it_has_left(state);
}

/* ---- a thread that forks inside ---- */

static void test_own_fork(void **state)
{
    int no = 0;
    (void)state;
    hf__gate_begin();
    assert_true(forks() < SOON_US);
    sem_init(&go, 0, 0);
    pthread_t thread = start(leaves, &no);
    while (sem_wait(&there)) continue;
    forks();
    assert_int_equal(left_behind, 1);
    pthread_join(thread, NULL);
    hf__gate_wait();
    assert_true(forks() < SOON_US);
    hf__gate_go_on();
    hf__gate_end();
    hf__gate_wait(); /* outside they do nothing */
    hf__gate_go_on();
    assert_true(forks() < SOON_US);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_until_it_has_left, setup),
        cmocka_unit_test_setup(test_until_it_waits, setup),
        cmocka_unit_test_setup(test_threads_that_come, setup),
        cmocka_unit_test_setup(test_waits_for_each_once, setup),
        cmocka_unit_test_setup(test_own_fork, setup),
    };
    sem_init(&go, 0, 0);
    pthread_atfork(behind, NULL, NULL);
    hf__gate_begin();
    hf__gate_end();
    pthread_atfork(before, NULL, NULL);
    return TEST_MAIN(tests);
}
