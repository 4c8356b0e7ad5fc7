/*
 * redis_subscribed.c - the keys that a handle listens for on redis, and the channels at which it is
 * told: drivers/redis/subscribed.c.
 */
#include "test.h"

#include "../../../drivers/redis/subscribed.h"

#include <stdio.h>
#include <string.h>

enum { MANY = 20000 };

static struct hf__rd_subscribed all;

static hf_rowkey key_of(int i)
{
    static char text[4][32];
    static int n;
    char *to = text[n++ % 4];
    hf_rowkey key;
    snprintf(to, sizeof text[0], "key/%d", i);
    assert_int_equal(hf_key_make(to, &key, NULL), 0);
    return key;
}

static struct hf__rd_key *find(int i)
{
    hf_rowkey key = key_of(i);
    return hf__rd_key_of(&all, key.text, key.len, key.hash);
}

static void want(int i, const char *channel)
{
    hf_rowkey key = key_of(i);
    assert_int_equal(hf__rd_want(&all, &key, channel, strlen(channel)), 0);
}

/* Tells the server of what has changed: how many subscriptions; *ret_less: how many fewer. */
static int flush(int *ret_less)
{
    int more = 0;
    *ret_less = 0;
    for (struct hf__rd_channel *c; (c = hf__rd_next_change(&all));) {
        more += c->users && !c->subscribed;
        *ret_less += !c->users && c->subscribed;
        c->subscribed = c->users != 0;
        if (!c->users) hf__rd_channel_free(c);
    }
    return more;
}

static int end(void **state)
{
    (void)state;
    hf__rd_subscribed_free(&all);
    return 0;
}

/* However many keys are told at one address, the server is asked for it once. */
static void keys_share_an_address(void **state)
{
    (void)state;
    int less;
    for (int i = 0; i < MANY; i++) want(i, "address");
    assert_int_equal(flush(&less), 1);
    assert_int_equal(less, 0);
    for (int i = 0; i < MANY; i++) hf__rd_unwant(&all, find(i));
    assert_true(all.n_keys <= 64);
    assert_int_equal(flush(&less), 0);
    assert_int_equal(less, 0); /* some are kept for a while, and go on being told */
    assert_non_null(find(MANY - 1));
    assert_null(find(0));
}

/* A key that gets in line is told elsewhere. */
static void a_key_changes_its_channel(void **state)
{
    (void)state;
    int less;
    want(1, "its own");
    assert_int_equal(flush(&less), 1);
    want(1, "address");
    assert_int_equal(flush(&less), 1);
    assert_int_equal(less, 1);
    want(1, "address");
    assert_int_equal(flush(&less) + less, 0);
}

static void each_key_has_its_events_in_their_order(void **state)
{
    (void)state;
    hf_key_event event;
    for (int i = 0; i < 3; i++) want(i, "address");
    for (int i = 2; i >= 0; i--)
        for (int times = 0; times < 2; times++) hf__rd_put_news(&all, find(i));
    for (int i = 2; i >= 0; i--) {
        assert_int_equal(hf__rd_next_news(&all, &event), 1);
        assert_true(event.hash == key_of(i).hash && event.mask == UINT64_MAX);
    }
    assert_int_equal(hf__rd_next_news(&all, &event), 0);
    hf__rd_put_news(&all, find(1));
    hf__rd_unwant(&all, find(1));
    all.any_news = 1;
    assert_int_equal(hf__rd_next_news(&all, &event), 1);
    assert_int_equal(event.mask, 0);
    assert_int_equal(hf__rd_next_news(&all, &event), 1);
    assert_true(event.hash == key_of(1).hash);
}

/* When the connection is made anew, all that is wanted is asked for again; what was said before
   may be overtaken. */
static void what_is_wanted_outlives_a_connection(void **state)
{
    (void)state;
    int less;
    for (int i = 0; i < 100; i++) {
        char own[32];
        snprintf(own, sizeof own, "channel/%d", i);
        want(i, own);
    }
    assert_int_equal(flush(&less), 100);
    hf__rd_keep_said(find(7), "said", 4, 100);
    assert_int_equal(find(7)->said_len, 4);
    hf__rd_unsubscribed(&all);
    assert_int_equal(find(7)->said_len, 0);
    assert_int_equal(flush(&less), 100);
    hf__rd_keep_said(find(7), "too long", 8, 4);
    assert_int_equal(find(7)->said_len, 0);
}

/* A listen that names all of its keys ends what it doesn't name. */
static void others_are_unwanted(void **state)
{
    (void)state;
    for (int i = 0; i < 10; i++) want(i, "address");
    all.listens++;
    want(3, "address");
    hf__rd_unwant_others(&all);
    for (int i = 0; i < 10; i++) assert_int_equal(hf__rd_is_wanted(find(i)), i == 3);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(keys_share_an_address, end),
        cmocka_unit_test_teardown(a_key_changes_its_channel, end),
        cmocka_unit_test_teardown(each_key_has_its_events_in_their_order, end),
        cmocka_unit_test_teardown(what_is_wanted_outlives_a_connection, end),
        cmocka_unit_test_teardown(others_are_unwanted, end),
    };
    return TEST_MAIN(tests);
}
