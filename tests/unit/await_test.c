/*
 * await_test.c - waits of a driver for its descriptors: they end at their time or when another
 * thread wakes them, and neither earlier nor by a signal.
 */
#include "kit/await.h"
#include "test.h"

#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <time.h>

enum { SOON_US = 20000, NEVER_US = 60000000 };

static int fd;
static int signals; /* of SIGUSR1 */

static int open_fd(void **state)
{
    (void)state;
    fd = hf__wake_fd();
    return fd < 0;
}

static int close_fd(void **state)
{
    (void)state;
    return close(fd);
}

static void ends_at_its_time(void **state)
{
    struct pollfd p = {fd, POLLIN, 0};
    int64_t until_us = hf__local_us() + SOON_US;
    (void)state;
    assert_int_equal(hf__wait_until(&p, 1, until_us), 0);
    assert_true(hf__local_us() >= until_us);
}

/* Otherwise a peer that sends a byte now and then would keep its reader for ever. */
static void does_not_look_when_the_time_is_up(void **state)
{
    struct pollfd p = {fd, POLLIN, 0};
    (void)state;
    hf__wake(fd);
    assert_int_equal(hf__wait_until(&p, 1, hf__local_us()), 0);
}

static void remembers_a_wake(void **state)
{
    struct pollfd p = {fd, POLLIN, 0};
    (void)state;
    assert_false(hf__woken(fd));
    hf__wake(fd);
    hf__wake(fd);
    assert_int_equal(hf__wait_until(&p, 1, hf__local_us() + NEVER_US), 1);
    assert_true(p.revents & POLLIN);
    assert_true(hf__woken(fd));
    assert_false(hf__woken(fd));
}

static void *wake(void *arg)
{
    (void)arg;
    hf__wake(fd);
    return NULL;
}

static void is_woken_by_another_thread(void **state)
{
    struct pollfd p = {fd, POLLIN, 0};
    pthread_t thread;
    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, wake, NULL), 0);
    assert_int_equal(hf__wait_until(&p, 1, hf__local_us() + NEVER_US), 1);
    pthread_join(thread, NULL);
}

static void count(int sig) { signals += sig == SIGUSR1; }

/* The signal comes again and again, so that one at least comes during the wait. */
static void is_not_ended_by_a_signal(void **state)
{
    struct itimerspec often = {{0, 1000000}, {0, 1000000}}, off = {{0, 0}, {0, 0}};
    struct sigevent how = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    struct sigaction action = {.sa_handler = count}, before;
    struct pollfd p = {fd, POLLIN, 0};
    timer_t timer;
    (void)state;
    sigaction(SIGUSR1, &action, &before);
    assert_int_equal(timer_create(CLOCK_MONOTONIC, &how, &timer), 0);
    assert_int_equal(timer_settime(timer, 0, &often, NULL), 0);
    int64_t until_us = hf__local_us() + SOON_US;
    assert_int_equal(hf__wait_until(&p, 1, until_us), 0);
    assert_true(hf__local_us() >= until_us);
    assert_int_equal(timer_settime(timer, 0, &off, NULL), 0);
    timer_delete(timer);
    sigaction(SIGUSR1, &before, NULL);
    assert_true(signals > 0);
}

static void says_why_it_cannot_wait(void **state)
{
    struct pollfd p = {fd, POLLIN, 0};
    struct rlimit before, none;
    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = before;
    none.rlim_cur = 0; /* more descriptors are refused */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    int ready = hf__wait_until(&p, 1, hf__local_us() + NEVER_US), sys = errno;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(ready, -1);
    assert_int_equal(sys, EINVAL);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(ends_at_its_time, open_fd, close_fd),
        cmocka_unit_test_setup_teardown(does_not_look_when_the_time_is_up, open_fd, close_fd),
        cmocka_unit_test_setup_teardown(remembers_a_wake, open_fd, close_fd),
        cmocka_unit_test_setup_teardown(is_woken_by_another_thread, open_fd, close_fd),
        cmocka_unit_test_setup_teardown(is_not_ended_by_a_signal, open_fd, close_fd),
        cmocka_unit_test_setup_teardown(says_why_it_cannot_wait, open_fd, close_fd),
    };
    return TEST_MAIN(tests);
}
