/*
 * pool_test.c - which of a handle's few connections a request is given.
 */
#include "pool.h"
#include "test.h"

#define SOON (hf__local_us() + 60000000)

static struct hf__pool pool;

static int open_pool(void **state)
{
    (void)state;
    hf__pool_open(&pool);
    return 0;
}

static int close_pool(void **state)
{
    (void)state;
    hf__pool_close(&pool);
    return 0;
}

static void who_comes_alone_has_the_same_again(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(hf__pool_take(&pool, SOON), 0);
        hf__pool_give(&pool, 0, 1);
    }
}

static void each_has_one_for_itself(void **state)
{
    (void)state;
    for (int i = 0; i < HF_POOL_LINKS; i++) assert_int_equal(hf__pool_take(&pool, SOON), i);
    hf__pool_give(&pool, 2, 0);
    assert_int_equal(hf__pool_take(&pool, SOON), 2);
}

/* New connections fail, but those that are open may stay. */
static void one_that_works_comes_before_one_that_does_not(void **state)
{
    (void)state;
    assert_int_equal(hf__pool_take(&pool, SOON), 0);
    assert_int_equal(hf__pool_take(&pool, SOON), 1);
    hf__pool_give(&pool, 1, 1);
    hf__pool_give(&pool, 0, 0);
    assert_int_equal(hf__pool_take(&pool, SOON), 1);
    /* While that one is in use, the other one is tried. */
    assert_int_equal(hf__pool_take(&pool, SOON), 0);
    hf__pool_give(&pool, 0, 0);
    hf__pool_give(&pool, 1, 1);
    assert_int_equal(hf__pool_take(&pool, SOON), 1);
    /* A connection that no longer works isn't preferred any more. */
    hf__pool_give(&pool, 1, 0);
    assert_int_equal(hf__pool_take(&pool, SOON), 0);
    hf__pool_give(&pool, 0, 1);
    assert_int_equal(hf__pool_take(&pool, SOON), 0);
}

static int64_t waited_us; /* how long the thread waited for a free connection */

static void *wait_for_one(void *arg)
{
    *(int *)arg = hf__pool_take(&pool, waited_us);
    return NULL;
}

/* The wait ends, because another request may never give its connection back. */
static void a_wait_for_a_free_one_ends(void **state)
{
    pthread_t thread;
    int got = 99;
    (void)state;
    for (int i = 0; i < HF_POOL_LINKS; i++) assert_int_equal(hf__pool_take(&pool, SOON), i);
    assert_int_equal(hf__pool_take(&pool, 0), -1);
    int64_t until_us = hf__local_us() + 20000;
    assert_int_equal(hf__pool_take(&pool, until_us), -1);
    assert_true(hf__local_us() >= until_us);
    hf__pool_give(&pool, -1, 1); /* nothing was taken */
    waited_us = SOON;
    assert_int_equal(pthread_create(&thread, NULL, wait_for_one, &got), 0);
    hf__pool_give(&pool, 2, 1);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(got, 2);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(who_comes_alone_has_the_same_again, open_pool, close_pool),
        cmocka_unit_test_setup_teardown(each_has_one_for_itself, open_pool, close_pool),
        cmocka_unit_test_setup_teardown(a_wait_for_a_free_one_ends, open_pool, close_pool),
        cmocka_unit_test_setup_teardown(one_that_works_comes_before_one_that_does_not, open_pool,
                                        close_pool),
    };
    return TEST_MAIN(tests);
}
