/*
 * close_race.c - a wait is given up or freed by one thread while another one closes the handle.
 *
 * Link with --wrap=pthread_mutex_lock.
 */
#include "holdfast.h"
#include "test.h"

#include <pthread.h>
#include <semaphore.h>

static _Thread_local int comes_late; /* the handle is closed before this thread locks its next
                                        mutex */
static sem_t is_late, closed;

int __real_pthread_mutex_lock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex)
{
    if (comes_late) {
        comes_late = 0;
        sem_post(&is_late);
        while (sem_wait(&closed)) continue;
    }
    return __real_pthread_mutex_lock(mutex);
}

static hf_wait *wait;

static void *cancels(void *arg)
{
    comes_late = 1;
    hf_wait_cancel(wait);
    return arg;
}

static void *frees(void *arg)
{
    comes_late = 1;
    hf_wait_free(wait);
    return arg;
}

static void done(void *arg, int code, hf_lock *lock, const hf_error *err)
{
    (void)lock, (void)err;
    *(int *)arg = code;
}

static void comes_when_it_is_closed(void *(*body)(void *))
{
    pthread_t thread;
    hf_error err;
    hf_lock *lock;
    hf *h;
    int code = 1;
    sem_init(&is_late, 0, 0);
    sem_init(&closed, 0, 0);
    assert_int_equal(hf_open("mem:close", NULL, &h, &err), 0);
    assert_int_equal(hf_acquire(h, "k", NULL, &lock, &err), 0);
    assert_int_equal(hf_acquire_start(h, "k", NULL, done, &code, &wait, &err), 0);
    assert_int_equal(pthread_create(&thread, NULL, body, NULL), 0);
    while (sem_wait(&is_late)) continue;
    hf_close(h);
    assert_int_equal(code, HF_CANCELED);
    sem_post(&closed);
    pthread_join(thread, NULL);
}

static void who_gives_up_may_come_late(void **state)
{
    (void)state;
    comes_when_it_is_closed(cancels);
    hf_wait_free(wait);
}

static void who_frees_may_come_late(void **state)
{
    (void)state;
    comes_when_it_is_closed(frees);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_gives_up_may_come_late),
        cmocka_unit_test(who_frees_may_come_late),
    };
    return TEST_MAIN(tests);
}
