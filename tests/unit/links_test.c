/*
 * links_test.c - which of a store's connections carries a single request, and which a batch.
 */
#include "kit/links.h"
#include "test.h"

enum { MANY = 2 * HF_BATCH + 3, IO_MS = 60000 };

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

static int works(const void *of) { return ((const struct fake_link *)of)->connected; }

/* Of the last batch: the connection; the sizes of its parts; what is done during a part. */
static int batch_on;
static size_t part[4], parts;
static void (*meanwhile)(struct fake_link *link);

static size_t replace(hf_store *st, void *of, hf_replace *item, size_t n, int64_t until_us)
{
    void (*now)(struct fake_link *) = meanwhile;
    (void)st, (void)until_us;
    batch_on = (int)((struct fake_link *)of - array);
    part[parts++] = n;
    for (size_t i = 0; i < n; i++) item[i].result = 0;
    meanwhile = NULL;
    if (now) now(of);
    return n;
}

static int open_links(void **state)
{
    static const struct hf__link_kind kind = {
        "fake", sizeof(struct fake_link), 2, usable, make, works, replace};
    (void)state;
    memset(array, 0, sizeof array);
    connects = refusal = 0;
    meanwhile = NULL;
    hf__links_open(&links, &kind, NULL, array, IO_MS);
    return 0;
}

static int close_links(void **state)
{
    (void)state;
    hf__links_close(&links);
    return 0;
}

/* Returns the number of the connection, which is connected; -1: none, as *ret_code says. */
static int get(int *ret_code, hf_error *err)
{
    const struct fake_link *link = hf__links_get(&links, ret_code, err);
    if (!link) return -1;
    assert_true(link->connected);
    return (int)(link - array);
}

static void put(int number) { hf__links_put(&links, &array[number]); }

static hf_replace item[MANY];
static hf_error why[MANY];

/* Makes a batch of n replaces. Returns the number of its connection; -1: it got none. */
static int batch_until(size_t n, int64_t until_us)
{
    static const hf_rowkey key = {.text = "k", .len = 1};
    batch_on = -1;
    parts = 0;
    for (size_t i = 0; i < n; i++)
        item[i] = (hf_replace){.key = &key, .result = HF_UNKNOWN, .err = &why[i]};
    hf__links_replace_many(&links, item, n, until_us);
    return batch_on;
}

static int batch(size_t n) { return batch_until(n, hf__local_us()); }

static void a_connection_is_used_again_and_a_broken_one_is_made_anew(void **state)
{
    hf_error err;
    int rc;
    (void)state;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(get(&rc, &err), 0);
        assert_int_equal(rc, 0);
        put(0);
    }
    assert_int_equal(connects, 1);
    array[0].broken = 1;
    assert_int_equal(get(&rc, &err), 0);
    assert_int_equal(connects, 2);
    put(0);
    hf__links_put(&links, NULL); /* nothing was taken */
}

static int taken;

/* Each batch begins the next one, until all connections are taken. */
static void next_batch(struct fake_link *link)
{
    hf_error err;
    int rc;
    assert_int_equal(link - array, taken++);
    if (taken < HF_LINKS) {
        meanwhile = next_batch;
        batch(1);
        return;
    }
    assert_int_equal(batch(1), -1);
    assert_int_equal(item[0].result, HF_UNAVAILABLE);
    assert_string_equal(why[0].text, "fake: replace 'k': fake: " HF_POOL_BUSY);
    links.io_timeout_ms = 0; /* nobody gives one back */
    assert_int_equal(get(&rc, &err), -1);
    assert_int_equal(rc, HF_UNAVAILABLE);
    assert_string_equal(err.text, "fake: " HF_POOL_BUSY);
    put(3);
    assert_int_equal(batch(9), -1);
    assert_int_equal(get(&rc, &err), 3);
}

static void batches_and_requests_do_not_wait_for_each_other(void **state)
{
    hf_error err;
    int rc;
    (void)state;
    for (int i = 0; i < HF_POOL_LINKS; i++) assert_int_equal(get(&rc, &err), i);
    meanwhile = next_batch;
    taken = HF_POOL_LINKS;
    batch(1);
    assert_int_equal(taken, HF_LINKS);
    batch(9);
    assert_true(batch_on >= HF_POOL_LINKS);
    assert_int_equal(get(&rc, &err), -1);
}

static void a_small_batch_takes_an_idle_connection_of_the_requests(void **state)
{
    hf_error err;
    int rc;
    (void)state;
    assert_int_equal(batch(2), HF_POOL_LINKS); /* none is connected yet */
    assert_int_equal(get(&rc, &err), 0);
    put(0);
    assert_int_equal(batch(2), 0);
    assert_int_equal(batch(3), HF_POOL_LINKS);
    assert_int_equal(hf__links_replace_many(&links, NULL, 0, hf__local_us()), 0);
    assert_int_equal(connects, 2);
}

static void a_connect_that_fails_gives_the_connection_back(void **state)
{
    hf_error err;
    int rc;
    (void)state;
    refusal = HF_UNSUPPORTED;
    for (int i = 0; i < 2 * HF_POOL_LINKS; i++) {
        assert_int_equal(get(&rc, &err), -1);
        assert_int_equal(rc, HF_UNSUPPORTED);
        /* When the store was opened its server was fit. */
        assert_int_equal(batch(9), -1);
        assert_int_equal(item[8].result, HF_UNAVAILABLE);
        assert_string_equal(why[8].text, "fake: replace 'k': refused");
    }
    refusal = HF_DENIED;
    assert_int_equal(hf__links_replace_many(&links, NULL, 0, hf__local_us()), HF_DENIED);
    refusal = 0;
    assert_int_equal(get(&rc, &err), 0);
}

/* A batch whose time is nearly over has time to connect. */
static void a_connect_is_told_until_when(void **state)
{
    int64_t before_us = hf__local_us();
    hf_error err;
    int rc;
    (void)state;
    assert_int_equal(get(&rc, &err), 0);
    assert_true(array[0].until_us >= before_us + IO_MS * 1000);
    assert_int_equal(batch_until(9, before_us), HF_POOL_LINKS);
    assert_true(array[HF_POOL_LINKS].until_us >= before_us + 500000);
}

static void breaks(struct fake_link *link) { link->connected = 0; }

/* Once the connection is gone, the rest of the batch isn't sent. */
static void a_batch_is_made_in_parts(void **state)
{
    (void)state;
    assert_int_equal(batch(MANY), HF_POOL_LINKS);
    assert_int_equal(parts, 3);
    assert_int_equal(part[0] + part[1] + part[2], MANY);
    assert_int_equal(part[2], 3);
    meanwhile = breaks;
    batch(MANY);
    assert_int_equal(parts, 1);
    assert_int_equal(item[HF_BATCH - 1].result, 0);
    assert_int_equal(item[HF_BATCH].result, HF_UNAVAILABLE);
    assert_string_equal(why[MANY - 1].text, "fake: replace 'k': the connection is gone");
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
        cmocka_unit_test_setup_teardown(a_batch_is_made_in_parts, open_links, close_links),
    };
    return TEST_MAIN(tests);
}
