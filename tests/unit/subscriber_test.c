/*
 * subscriber_test.c - the keys to which a handle has subscribed, and their channels and events:
 * drivers/kit/subscriber.c.
 */
#include "test.h"

#include "../../drivers/kit/subscriber.h"

#include <stdio.h>
#include <string.h>

enum { MANY = 20000 };

static struct hf__sub all;

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

static struct hf__sub_key *find(int i)
{
    hf_rowkey key = key_of(i);
    return hf__sub_find(&all, key.text, key.len, key.hash);
}

static void want(int i, const char *channel)
{
    hf_rowkey key = key_of(i);
    assert_non_null(hf__sub_want(&all, &key, channel, channel ? strlen(channel) : 0, NULL));
}

/* Takes the changes that the server is to be sent. Returns how many are new subscriptions;
 *ret_less: how many are ended. */
static int flush(int *ret_less)
{
    int more = 0;
    *ret_less = 0;
    for (struct hf__sub_channel *c; (c = hf__sub_next_change(&all));) {
        more += c->users && !c->subscribed;
        *ret_less += !c->users && c->subscribed;
        c->subscribed = c->users != 0;
        if (!c->users) hf__sub_channel_free(c);
    }
    return more;
}

static int begin(void **state)
{
    (void)state;
    hf__sub_open(&all, 0, NULL);
    return 0;
}

static int end(void **state)
{
    (void)state;
    hf__sub_free(&all);
    return 0;
}

/* However many keys share a channel, the server is asked for it once. */
static void keys_share_an_address(void **state)
{
    (void)state;
    int less;
    for (int i = 0; i < MANY; i++) want(i, "address");
    assert_int_equal(flush(&less), 1);
    assert_int_equal(less, 0);
    for (int i = 0; i < MANY; i++) hf__sub_unwant(&all, find(i));
    assert_true(all.n_keys <= 64);
    assert_int_equal(flush(&less), 0);
    assert_int_equal(less, 0); /* some stay subscribed for a while */
    assert_non_null(find(MANY - 1));
    assert_null(find(0));
}

/* A key whose request is queued moves to another channel. */
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
        for (int times = 0; times < 2; times++) hf__sub_put_event(&all, find(i));
    for (int i = 2; i >= 0; i--) {
        assert_int_equal(hf__sub_next_event(&all, &event), 1);
        assert_true(event.hash == key_of(i).hash && event.mask == UINT64_MAX);
    }
    assert_int_equal(hf__sub_next_event(&all, &event), 0);
    hf__sub_put_event(&all, find(1));
    hf__sub_unwant(&all, find(1));
    hf__sub_put_any(&all);
    assert_int_equal(hf__sub_next_event(&all, &event), 1);
    assert_int_equal(event.mask, 0);
    assert_int_equal(hf__sub_next_event(&all, &event), 1);
    assert_true(event.hash == key_of(1).hash);
}

/* On a new connection every wanted channel is subscribed to again; earlier payloads may be out of
   date. */
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
    hf__sub_put_payload(find(7), "said", 4, 100);
    assert_int_equal(find(7)->payload_len, 4);
    hf__sub_disconnected(&all);
    assert_int_equal(find(7)->payload_len, 0);
    assert_int_equal(flush(&less), 100);
    hf__sub_put_payload(find(7), "too long", 8, 4);
    assert_int_equal(find(7)->payload_len, 0);
}

static uint8_t asked_for[16] = {1};

/* Returns 1 if it was wanted for that request before. */
static int want_for(int i, const uint8_t *who, int in_line)
{
    hf_rowkey key = key_of(i);
    int same;
    key.who = who;
    key.in_line = in_line;
    struct hf__sub_key *k = hf__sub_want(&all, &key, NULL, 0, &same);
    assert_non_null(k);
    assert_int_equal(k->named, who != NULL);
    assert_int_equal(k->in_line, who && in_line);
    return same;
}

/* A payload for one request isn't given to another one, nor to one that has come back. */
static void a_key_knows_its_request(void **state)
{
    (void)state;
    uint8_t another[16] = {2};
    assert_int_equal(want_for(1, asked_for, 1), 0);
    assert_int_equal(want_for(1, asked_for, 0), 1);
    assert_int_equal(want_for(1, another, 1), 0);
    assert_int_equal(want_for(1, NULL, 1), 0);
    assert_int_equal(want_for(1, NULL, 0), 1);
    hf__sub_unwant(&all, find(1));
    assert_int_equal(want_for(1, NULL, 0), 0);
}

/* The driver subscribes to the channel of all keys only while a wanted key has no channel of its
   own. */
static void wanted_keys_without_a_channel_are_counted(void **state)
{
    (void)state;
    want(1, NULL);
    want(2, "address");
    assert_int_equal(all.n_apart, 1);
    want(1, NULL);
    want(2, NULL);
    assert_int_equal(all.n_apart, 2);
    hf__sub_unwant(&all, find(1));
    hf__sub_unwant(&all, find(1));
    assert_int_equal(all.n_apart, 1);
    assert_int_equal(hf__sub_wanted(&all), 1);
    want(1, "address");
    want(2, "address");
    assert_int_equal(all.n_apart, 0);
    assert_int_equal(hf__sub_wanted(&all), 2);
}

/* This many channels stay subscribed: a request that comes back to one costs nothing. */
static void channels_are_spared(void **state)
{
    (void)state;
    int less, more = 0, fewer = 0;
    all.spare_channels = 3;
    for (int i = 0; i < 6; i++) {
        char at[32];
        snprintf(at, sizeof at, "address %d", i);
        want(1, at);
        more += flush(&less);
        fewer += less;
    }
    assert_int_equal(more, 6);
    assert_int_equal(fewer, 2); /* 0 and 1: the key is at 5 */
    want(1, "address 2");
    assert_int_equal(flush(&less) + less, 0);
    want(1, "address 0");
    assert_int_equal(flush(&less), 1);
    assert_int_equal(less, 1); /* 3, which was left first */
    /* The server forgets those that are spare, too; none is asked for again without a key. */
    hf__sub_disconnected(&all);
    assert_int_equal(flush(&less), 1);
    assert_int_equal(less, 0);
    /* A channel that was left before the server was asked for it. */
    want(1, "never");
    want(1, "address 0");
    assert_int_equal(flush(&less) + less, 0);
    assert_int_equal(all.n_spare, 0);
}

/* A key that the driver has in a list of its own stays. */
static void a_pinned_key_stays(void **state)
{
    (void)state;
    for (int i = 0; i < 300; i++) want(i, NULL);
    find(0)->pinned = 1;
    for (int i = 0; i < 300; i++) hf__sub_unwant(&all, find(i));
    assert_non_null(find(0));
    find(0)->pinned = 0;
    want(300, NULL);
    hf__sub_unwant(&all, find(300));
    assert_null(find(0));
    assert_true(all.n_keys <= 64);
}

static int n_forgotten;
static void forgets(struct hf__sub_key *k) { n_forgotten += k != NULL; }

struct larger {
    struct hf__sub_key key;
    int more;
};

/* A driver's own part of a key begins as 0 and goes with it. */
static void a_driver_has_its_own_part(void **state)
{
    (void)state;
    hf__sub_open(&all, sizeof(struct larger), forgets);
    n_forgotten = 0;
    for (int i = 0; i < 200; i++) {
        want(i, NULL);
        struct larger *k = (struct larger *)find(i);
        assert_int_equal(k->more, 0);
        k->more = i;
    }
    for (int i = 0; i < 200; i++) hf__sub_unwant(&all, find(i));
    assert_int_equal(n_forgotten + (int)all.n_keys, 200);
    n_forgotten = 0;
    size_t left = all.n_keys;
    hf__sub_free(&all);
    assert_int_equal(n_forgotten, left);
    hf__sub_open(&all, 0, NULL);
}

/* A notification that names a hash alone is of each key that has it. */
static void keys_of_one_hash_are_found(void **state)
{
    (void)state;
    want(1, NULL);
    want(2, NULL);
    hf_rowkey twin = key_of(3);
    twin.hash = key_of(1).hash;
    assert_non_null(hf__sub_want(&all, &twin, NULL, 0, NULL));
    int n = 0;
    for (struct hf__sub_key *k = NULL; (k = hf__sub_of_hash(&all, twin.hash, k)); n++)
        assert_true(k->hash == twin.hash);
    assert_int_equal(n, 2);
    assert_null(hf__sub_of_hash(&all, key_of(3).hash, NULL));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(keys_share_an_address, begin, end),
        cmocka_unit_test_setup_teardown(a_key_changes_its_channel, begin, end),
        cmocka_unit_test_setup_teardown(each_key_has_its_events_in_their_order, begin, end),
        cmocka_unit_test_setup_teardown(what_is_wanted_outlives_a_connection, begin, end),
        cmocka_unit_test_setup_teardown(a_key_knows_its_request, begin, end),
        cmocka_unit_test_setup_teardown(wanted_keys_without_a_channel_are_counted, begin, end),
        cmocka_unit_test_setup_teardown(channels_are_spared, begin, end),
        cmocka_unit_test_setup_teardown(a_pinned_key_stays, begin, end),
        cmocka_unit_test_setup_teardown(a_driver_has_its_own_part, begin, end),
        cmocka_unit_test_setup_teardown(keys_of_one_hash_are_found, begin, end),
    };
    return TEST_MAIN(tests);
}
