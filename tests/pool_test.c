/*
 * pool_test.c - which of a handle's few connections a request is given.
 */
#include "pool.h"
#include "test.h"

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
        assert_int_equal(hf__pool_take(&pool), 0);
        hf__pool_give(&pool, 0, 1);
    }
}

static void each_has_one_for_itself(void **state)
{
    (void)state;
    for (int i = 0; i < HF_POOL_LINKS; i++) assert_int_equal(hf__pool_take(&pool), i);
    hf__pool_give(&pool, 2, 0);
    assert_int_equal(hf__pool_take(&pool), 2);
}

/* Nobody is let in any more, as it seems, but who is in may stay. */
static void one_that_works_comes_before_one_that_does_not(void **state)
{
    (void)state;
    assert_int_equal(hf__pool_take(&pool), 0);
    assert_int_equal(hf__pool_take(&pool), 1);
    hf__pool_give(&pool, 1, 1);
    hf__pool_give(&pool, 0, 0);
    assert_int_equal(hf__pool_take(&pool), 1);
    /* While that is in use, the other one is tried. */
    assert_int_equal(hf__pool_take(&pool), 0);
    hf__pool_give(&pool, 0, 0);
    hf__pool_give(&pool, 1, 1);
    assert_int_equal(hf__pool_take(&pool), 1);
    /* What doesn't work any more isn't preferred any more. */
    hf__pool_give(&pool, 1, 0);
    assert_int_equal(hf__pool_take(&pool), 0);
    hf__pool_give(&pool, 0, 1);
    assert_int_equal(hf__pool_take(&pool), 0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(who_comes_alone_has_the_same_again, open_pool, close_pool),
        cmocka_unit_test_setup_teardown(each_has_one_for_itself, open_pool, close_pool),
        cmocka_unit_test_setup_teardown(one_that_works_comes_before_one_that_does_not, open_pool,
                                        close_pool),
    };
    return TEST_MAIN(tests);
}
