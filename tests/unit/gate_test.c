/*
 * gate_test.c - kit/fork_gate.h: a fork waits for the threads inside, and they for the fork.
 *
 * Two handlers of pthread_atfork enclose the gate's own: `before` runs when the gate hasn't been
 * asked yet, `behind` when it lets the fork pass. The gate's clock stands still. It passes only as
 * far as the gate's time limit, and only where the test says so (time_passes).
 */
#include "kit/fork_gate.h"

#include "os.h"
#include "test.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CHILD_S = 20, LIMIT_US = 1000000, SHORT_MS = 30 };

static sem_t go, there, done;
static int left, left_behind, enters, entered_behind; /* the first and the third: atomic */

static int time_passes, limits; /* limits: how often the gate has waited until its time limit */
static int64_t now_us = 1;

int64_t __wrap_hf__local_us(void);
void __wrap_hf__cond_until(pthread_cond_t *cond, pthread_mutex_t *mu, int64_t local_us);

int64_t __wrap_hf__local_us(void) { return now_us; }

void __wrap_hf__cond_until(pthread_cond_t *cond, pthread_mutex_t *mu, int64_t local_us)
{
    if (!time_passes) {
        pthread_cond_wait(cond, mu);
        return;
    }
    if (local_us != now_us + LIMIT_US) abort();
    now_us = local_us;
    limits++;
}

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
    left = left_behind = enters = entered_behind = time_passes = 0;
    return 0;
}

/* Forks. The child enters. Returns how many time limits have passed during the fork. */
static int forks(void)
{
    int status = 1, before_it = limits;
    pid_t pid = fork();
    if (!pid) {
        alarm(CHILD_S);
        hf__gate_begin();
        hf__gate_wait();
        hf__gate_go_on();
        hf__gate_end();
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    return limits - before_it;
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
    forks();
    assert_int_equal(left_behind, 1);
    time_passes = 1;
    assert_int_equal(forks(), 0); /* the thread waits all the time */
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
    time_passes = 1;
    while (sem_wait(&there)) continue;
    assert_int_equal(forks(), 1);
    assert_int_equal(forks(), 0);
    second = start(stays, NULL);
    while (sem_wait(&there)) continue;
    assert_int_equal(forks(), 1);
    assert_int_equal(forks(), 0);
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
    time_passes = 1;
    hf__gate_begin();
    assert_int_equal(forks(), 0);
    time_passes = 0;
    sem_init(&go, 0, 0);
    pthread_t thread = start(leaves, &no);
    while (sem_wait(&there)) continue;
    forks();
    assert_int_equal(left_behind, 1);
    pthread_join(thread, NULL);
    time_passes = 1;
    hf__gate_wait();
    assert_int_equal(forks(), 0);
    hf__gate_go_on();
    hf__gate_end();
    hf__gate_wait(); /* outside they do nothing */
    hf__gate_go_on();
    assert_int_equal(forks(), 0);
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
