/*
 * links_test.c - which of a store's connections carries a single request, and which a batch.
 */
#include "kit/links.h"
#include "test.h"

/* A free connection is had without a wait. */
enum { NO_WAIT = 0 };

struct fake_link {
    int connected, broken;
    int64_t until_us; /* the deadline that the last connect got */
};

static struct fake_link array[HF_LINKS];
static struct hf__links links;
static int connects, refusal; /* how many; the result of each */

static int usable(void *of)
{
    struct fake_link *link = of;
    if (link->broken) link->connected = link->broken = 0;
    return link->connected;
}

static int make(hf_store *st, void *of, int64_t until_us, hf_error *err)
{
    struct fake_link *link = of;
    (void)st;
    connects++;
    link->until_us = until_us;
    if (refusal) return hf_fail(err, refusal, 0, "refused");
    link->connected = 1;
    return 0;
}

static int open_links(void **state)
{
    static const struct hf__link_kind kind = {"fake", sizeof(struct fake_link), 2, usable, make};
    (void)state;
    memset(array, 0, sizeof array);
    connects = refusal = 0;
    hf__links_open(&links, &kind, NULL, array);
    return 0;
}

static int close_links(void **state)
{
    (void)state;
    hf__links_close(&links);
    return 0;
}

/* Returns the number of the connection, which is connected; -1: none, as *ret_code says. */
static int number_of(const struct fake_link *link)
{
    if (!link) return -1;
    assert_true(link->connected);
    return (int)(link - array);
}

static int get(int64_t until_us, int *ret_code, hf_error *err)
{
    return number_of(hf__links_get(&links, until_us, ret_code, err));
}

static int get_batch(size_t n, int64_t until_us, int *ret_code, hf_error *err)
{
    return number_of(hf__links_get_batch(&links, n, until_us, ret_code, err));
}

static void put(int number, int works) { hf__links_put(&links, &array[number], works); }

static void a_connection_is_used_again_and_a_broken_one_is_made_anew(void **state)
{
    hf_error err;
    int rc;
    (void)state;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(get(NO_WAIT, &rc, &err), 0);
        assert_int_equal(rc, 0);
        put(0, 1);
    }
    assert_int_equal(connects, 1);
    array[0].broken = 1;
    assert_int_equal(get(NO_WAIT, &rc, &err), 0);
    assert_int_equal(connects, 2);
    put(0, 1);
    hf__links_put(&links, NULL, 1); /* nothing was taken */
}

static void batches_and_requests_do_not_wait_for_each_other(void **state)
{
    hf_error err;
    int rc;
    (void)state;
    for (int i = 0; i < HF_POOL_LINKS; i++) assert_int_equal(get(NO_WAIT, &rc, &err), i);
    for (int i = 0; i < HF_POOL_LINKS; i++)
        assert_int_equal(get_batch(1, NO_WAIT, &rc, &err), HF_POOL_LINKS + i);
    assert_int_equal(get(NO_WAIT, &rc, &err), -1);
    assert_int_equal(rc, HF_UNAVAILABLE);
    assert_string_equal(err.text, "fake: " HF_POOL_BUSY);
    assert_int_equal(get_batch(9, NO_WAIT, &rc, &err), -1);
    assert_int_equal(rc, HF_UNAVAILABLE);
    put(HF_POOL_LINKS + 2, 1); /* to the batches, not to the requests */
    assert_int_equal(get(NO_WAIT, &rc, &err), -1);
    assert_int_equal(get_batch(9, NO_WAIT, &rc, &err), HF_POOL_LINKS + 2);
    put(3, 1);
    assert_int_equal(get_batch(9, NO_WAIT, &rc, &err), -1);
    assert_int_equal(get(NO_WAIT, &rc, &err), 3);
}

static void a_small_batch_takes_an_idle_connection_of_the_requests(void **state)
{
    hf_error err;
    int rc;
    (void)state;
    assert_int_equal(get_batch(2, NO_WAIT, &rc, &err), HF_POOL_LINKS); /* none is connected yet */
    put(HF_POOL_LINKS, 1);
    assert_int_equal(get(NO_WAIT, &rc, &err), 0);
    put(0, 1);
    assert_int_equal(get_batch(2, NO_WAIT, &rc, &err), 0);
    put(0, 1);
    assert_int_equal(get_batch(3, NO_WAIT, &rc, &err), HF_POOL_LINKS);
    put(HF_POOL_LINKS, 1);
    assert_int_equal(get_batch(0, NO_WAIT, &rc, &err), HF_POOL_LINKS);
}

static void a_connect_that_fails_gives_the_connection_back(void **state)
{
    hf_error err;
    int rc;
    (void)state;
    refusal = HF_UNSUPPORTED;
    for (int i = 0; i < 2 * HF_POOL_LINKS; i++) {
        assert_int_equal(get(NO_WAIT, &rc, &err), -1);
        assert_int_equal(rc, HF_UNSUPPORTED);
        /* When the store was opened its server was fit. */
        assert_int_equal(get_batch(9, NO_WAIT, &rc, &err), -1);
        assert_int_equal(rc, HF_UNAVAILABLE);
        assert_string_equal(err.text, "refused");
    }
    refusal = HF_DENIED;
    assert_int_equal(get_batch(9, NO_WAIT, &rc, &err), -1);
    assert_int_equal(rc, HF_DENIED);
    refusal = 0;
    assert_int_equal(get(NO_WAIT, &rc, &err), 0);
}

/* A batch whose time is nearly over has time to connect. */
static void a_connect_is_told_until_when(void **state)
{
    int64_t before_us = hf__local_us(), until_us = before_us + 60000000;
    hf_error err;
    int rc;
    (void)state;
    assert_int_equal(get(until_us, &rc, &err), 0);
    assert_int_equal(array[0].until_us, until_us);
    assert_int_equal(get_batch(9, before_us, &rc, &err), HF_POOL_LINKS);
    assert_true(array[HF_POOL_LINKS].until_us >= before_us + 500000);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_connection_is_used_again_and_a_broken_one_is_made_anew,
                                        open_links, close_links),
        cmocka_unit_test_setup_teardown(batches_and_requests_do_not_wait_for_each_other, open_links,
                                        close_links),
        cmocka_unit_test_setup_teardown(a_small_batch_takes_an_idle_connection_of_the_requests,
                                        open_links, close_links),
        cmocka_unit_test_setup_teardown(a_connect_that_fails_gives_the_connection_back, open_links,
                                        close_links),
        cmocka_unit_test_setup_teardown(a_connect_is_told_until_when, open_links, close_links),
    };
    return TEST_MAIN(tests);
}
