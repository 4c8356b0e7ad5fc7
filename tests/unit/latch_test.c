/*
 * latch_test.c - the lock inside: one at a time has it, however many want it.
 */
#include "mem_latch.h"
#include "test.h"

#include <pthread.h>

enum { THREADS = 4, TIMES = 500000 };

static hf__latch latch;
static long counter; /* under the latch */
static int inside;

static void *count(void *arg)
{
    int *ret_two = arg;
    for (int i = 0; i < TIMES; i++) {
        hf__latch_lock(&latch);
        *ret_two |= inside++;
        counter++;
        inside--;
        hf__latch_unlock(&latch);
    }
    return NULL;
}

static void one_at_a_time_has_it(void **state)
{
    (void)state;
    pthread_t thread[THREADS];
    int two[THREADS] = {0};
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, count, &two[i]), 0);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
        assert_false(two[i]);
    }
    assert_int_equal(counter, (long)THREADS * TIMES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_at_a_time_has_it)};
    return TEST_MAIN(tests);
}
