/*
 * staged_hear.c - what a waiter is notified of: changes before its subscription, a key that it was
 * granted, nothing.
 */
#include "staged_waiter.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t had_slept; /* how often the handle had slept when the waiter's callback ran */

static void told(void *arg, int code, hf_lock *l, const hf_error *err)
{
    had_slept = stage_calls(S_WATCH);
    note(arg, code, l, err);
}

static void start(struct waiter *w, const char *key, int64_t wait_ms, unsigned flags)
{
    hf_options o = HF_OPTIONS_INIT;
    o.wait_ms = wait_ms;
    o.lease_ms = 90000;
    o.flags = flags;
    ask_and(h, w, key, &o, told);
}

static void the_rival_gives_it_back(void)
{
    if (other) OK(hf_release(other, &stage_error));
    other = NULL;
}

/* A rival has the key. */
static void begin_behind_a_rival(unsigned can)
{
    begin(can);
    OK(stage_acquire(rival, "k", 0, 60000, 0, &other));
}

/* The request is also queued. */
static void begin_in_line(struct waiter *w)
{
    begin_behind_a_rival(CALM_LEASES);
    start(w, "k", 60000, 0);
    await_queue(1);
}

/* The waiter was handed the key between its look and its subscription: no notification follows. */
static void what_came_before_it_listened_is_seen(void **state)
{
    (void)state;
    struct waiter w;
    begin_behind_a_rival(WATCHED);
    stage_cue(S_LISTEN, 1, 1, INSTEAD, 0, the_rival_gives_it_back);
    uint64_t slept = stage_calls(S_WATCH);
    start(&w, "k", 60000, 0);
    ends(&w, HF_OK);
    assert_int_equal(had_slept, slept);
    OK(hf_release(w.lock, &stage_error));
    done();
}

/* ---- how it is listened for ---- */

static const uint8_t by_name[16] = "its caller's id", no_id[16];
static int (*base_flush)(hf_store *, hf_event_count *, hf_error *);
static int (*base_sleep)(hf_store *, const hf_event_count *, int64_t, hf_error *);
static int said_in_line, given_back, slept_elsewhere;
static uint64_t slept_before;

/* A store that notifies of nothing. The rival gives the key back just before the subscription of a
   wait in the queue takes effect: of any wait, or of the one with that id. */
static const uint8_t *awaited;
static uint8_t subscriber_id[16];

static int subscribes(hf_store *st, const hf_rowkey *key)
{
    (void)st;
    said_in_line = key->in_line;
    memcpy(subscriber_id, key->who, sizeof subscriber_id);
    return 0;
}

static void unsubscribes(hf_store *st, const hf_rowkey *key)
{
    (void)st, (void)key;
    said_in_line = 0;
}

static int no_event(hf_store *st, hf_key_event *ret)
{
    (void)st, (void)ret;
    return 0;
}

static int flushes(hf_store *st, hf_event_count *ret, hf_error *err)
{
    hf_event_count events;
    const uint8_t *id = __atomic_load_n(&awaited, __ATOMIC_SEQ_CST);
    if (said_in_line && (!id || !memcmp(subscriber_id, id, 16)) && !given_back++) {
        the_rival_gives_it_back();
        slept_before = stage_calls(S_WATCH);
    }
    *ret = (hf_event_count){{1, 0}};
    return base_flush(st, &events, err);
}

static int sleeps(hf_store *st, const hf_event_count *since, int64_t until_us, hf_error *err)
{
    hf_event_count events;
    (void)since;
    if (stage_row("k") && stage_row("k")->n_queue && !said_in_line) slept_elsewhere++;
    int rc = base_flush(st, &events, err);
    return rc ? rc : base_sleep(st, &events, until_us, err);
}

static void begin_untold(const uint8_t *who)
{
    begin_behind_a_rival(WATCHED);
    base_flush = stage_notify.flush;
    base_sleep = stage_notify.sleep;
    stage_notify.subscribe = subscribes;
    stage_notify.unsubscribe = unsubscribes;
    stage_notify.flush = flushes;
    stage_notify.sleep = sleeps;
    stage_notify.next_event = no_event;
    awaited = who;
    said_in_line = given_back = slept_elsewhere = 0;
}

static void ends_without_sleep(struct waiter *w)
{
    ends(w, HF_OK);
    assert_int_equal(had_slept, slept_before);
    assert_int_equal(slept_elsewhere, 0);
    OK(hf_release(w->lock, &stage_error));
    done();
}

/* The request isn't queued, because the store was away, and is subscribed to as such. Then it is
   queued: the dispatcher changes the subscription before it sleeps, and the wait looks once more
   for what was notified before. */
static void who_gets_into_line_is_listened_for_there(void **state)
{
    (void)state;
    struct waiter w;
    begin_untold(NULL);
    stage_cue(S_ACQUIRE, 1, 1, INSTEAD, HF_UNAVAILABLE, NULL);
    start(&w, "k", 60000, 0);
    ends_without_sleep(&w);
}

/* A request whose id the caller chose may be notified on another channel than those before and
   behind it. */
static void another_id_is_listened_for_anew(int first_is_named)
{
    struct waiter first, second;
    hf_options named = HF_OPTIONS_INIT, unnamed = HF_OPTIONS_INIT;
    begin_untold(by_name);
    named.request_id = by_name;
    if (first_is_named) awaited = no_id;
    ask_and(h, &first, "k", first_is_named ? &named : &unnamed, told);
    await_queue(1);
    ask_and(h, &second, "k", first_is_named ? &unnamed : &named, told);
    __atomic_store_n(&awaited, second.wait->party.id, __ATOMIC_SEQ_CST);
    hf_wait_cancel(first.wait);
    ends(&first, HF_CANCELED);
    ends_without_sleep(&second);
}

static void a_named_one_is_listened_for_anew(void **state)
{
    (void)state;
    another_id_is_listened_for_anew(0);
}

static void who_comes_behind_a_named_one_is_listened_for_anew(void **state)
{
    (void)state;
    another_id_is_listened_for_anew(1);
}

/* The request may be queued without knowing it: when it is asked again, it has that place. */
static void asked_again_it_is_the_same_request(void **state)
{
    (void)state;
    struct waiter w;
    begin_behind_a_rival(SERVER);
    stage_cue(S_SWAP, 1, 1 << 20, ALTHOUGH, HF_UNKNOWN, NULL);
    uint64_t asked = stage_calls(S_GET);
    start(&w, "k", 60000, 0);
    stage_await(S_GET, asked + 2); /* the handle has given up the first write, and looks */
    stage_uncue();
    stage_await(S_GET, asked + 4);
    assert_int_equal(stage_row("k")->n_queue, 1);
    OK(hf_release(other, &stage_error));
    ends(&w, HF_OK);
    OK(hf_release(w.lock, &stage_error));
    assert_int_equal(stage_row("k")->n_holders + stage_row("k")->n_queue, 0);
    done();
}

/* A handle remembers a limited number of keys; it never forgets keys that are in use. */
static void what_is_held_is_not_forgotten(void **state)
{
    (void)state;
    hf *own;
    hf_lock *l;
    hf_wait *wait;
    hf_options again = HF_OPTIONS_INIT;
    char key[24];
    OK(hf_open("mem:keys", NULL, &own, &stage_error));
    OK(hf_acquire(own, "mine", NULL, &lock, &stage_error));
    for (int i = 0; i < 10000; i++) {
        snprintf(key, sizeof key, "key %d", i);
        OK(hf_acquire(own, key, NULL, &l, &stage_error));
        OK(hf_release(l, &stage_error));
    }
    /* Asked for again by its owner: a thread would wait for itself if the key were forgotten. */
    again.owner = hf_owner(lock);
    IS(HF_RECURSIVE, hf_acquire_start(own, "mine", &again, told, NULL, &wait, &stage_error));
    /* If that many are in use at once, all of them are remembered. */
    hf_lock **held = calloc(10000, sizeof *held);
    assert_non_null(held);
    for (int i = 0; i < 10000; i++) {
        snprintf(key, sizeof key, "held %d", i);
        OK(hf_acquire(own, key, NULL, &held[i], &stage_error));
    }
    for (int i = 0; i < 10000; i++) {
        snprintf(key, sizeof key, "held %d", i);
        assert_string_equal(hf_key(held[i]), key);
        again.owner = hf_owner(held[i]);
        IS(HF_RECURSIVE, hf_acquire_start(own, key, &again, told, NULL, &wait, &stage_error));
        OK(hf_release(held[i], &stage_error));
    }
    free(held);
    OK(hf_release(lock, &stage_error));
    hf_close(own);
}

/* ---- handed a key where the store keeps leases ---- */

/* The waiter holds with the session that it waited with, until the renewal that is its claim. */
static void handed_it_holds_with_what_it_waited_with(void **state)
{
    (void)state;
    struct waiter w;
    begin_in_line(&w);
    uint64_t waits_with = stage_row("k")->party[1].session;
    the_rival_gives_it_back();
    ends(&w, HF_OK);
    assert_true(hf_left_ms(w.lock) > 0);
    assert_true(stage_row("k")->party[0].session == waits_with);
    OK(hf_confirm(w.lock, &stage_error));
    OK(hf_renew(w.lock, 0, &stage_error));
    assert_true(stage_row("k")->party[0].session != waits_with);
    assert_int_equal(stage_row("k")->party[0].flags & HF_PARTY_UNCLAIMED, 0);
    OK(hf_release(w.lock, &stage_error));
    done();
}

/* If the session is nearly over, or another one's, or dead, the waiter asks again, with another
   session. */
static void as_dead(hf_row *row)
{
    if (row->n_holders && row->party[0].flags & HF_PARTY_UNCLAIMED)
        row->party[0].flags |= HF_PARTY_DEAD;
}

static void as_of_another_session(hf_row *row)
{
    if (row->n_holders && row->party[0].flags & HF_PARTY_UNCLAIMED) row->party[0].session++;
}

static void as_claimed(hf_row *row)
{
    if (row->n_holders) row->party[0].flags &= (uint8_t)~HF_PARTY_UNCLAIMED;
}

static void handed_with_a_session_of_no_use_it_asks_again(void **state)
{
    (void)state;
    void (*const forges[])(hf_row *) = {as_dead, as_of_another_session, as_claimed};
    for (size_t i = 0; i < sizeof forges / sizeof *forges; i++) {
        struct waiter w;
        begin_in_line(&w);
        stage_forge(forges[i]);
        the_rival_gives_it_back();
        ends(&w, HF_OK);
        stage_forge(NULL);
        OK(hf_confirm(w.lock, &stage_error));
        OK(hf_release(w.lock, &stage_error));
        assert_int_equal(stage_row("k")->n_queue, 0);
        done();
    }
}

/* Woken late, with less than a half of its session left, it claims at once. */
static void handed_late_it_claims_at_once(void **state)
{
    (void)state;
    struct waiter w;
    begin_in_line(&w);
    stage_cue(S_KEEP, 1, 1 << 20, INSTEAD, HF_UNAVAILABLE, NULL);
    stage_suspend(36000000);
    the_rival_gives_it_back();
    ends(&w, HF_OK);
    stage_uncue(); /* until then no thread keeps the session that it waited with */
    assert_int_equal(stage_row("k")->party[0].flags & HF_PARTY_UNCLAIMED, 0);
    OK(hf_release(w.lock, &stage_error));
    done();
}

/* ---- deaths that are notified ---- */

static uint64_t anothers; /* a session that lives */

/* Two parties ahead of the queued waiter: a first waiter that is dead, as the holder is, and one
   that lives. */
static void as_if_two_had_died(hf_row *row)
{
    if (!row->n_holders || row->n_queue != 1 || row->party[0].flags & HF_PARTY_UNCLAIMED) return;
    assert_int_equal(hf_row_room(row, 4), 0);
    for (uint32_t i = 3; i > 1; i--) hf_party_copy(&row->party[i], &row->party[1]);
    row->n_queue = 3;
    row->party[0].flags |= HF_PARTY_DEAD;
    row->party[1].flags |= HF_PARTY_DEAD;
    row->party[1].id[0] ^= 2;
    row->party[1].session = UINT32_MAX;
    row->party[2].id[0] ^= 1;
    row->party[2].session = anothers;
}

/* The waiter right behind a dead one needn't have been notified of the death. */
static void whoever_looks_helps_the_one_behind_the_dead(void **state)
{
    (void)state;
    struct waiter w;
    hf_lock *x, *y;
    begin_in_line(&w);
    OK(stage_acquire(rival, "y", 0, 30000, 0, &y));
    anothers = stage_row("y")->party[0].session;
    stage_forge(as_if_two_had_died);
    OK(stage_acquire(rival, "x", 0, 60000, 0, &x)); /* an event, so that the wait looks */
    const hf_row *row = stage_row("k");
    while (!(row->party[0].flags & HF_PARTY_UNCLAIMED)) hf__pause(1000);
    stage_forge(NULL);
    assert_true(row->n_holders == 1 && row->n_queue == 1);
    assert_true(row->party[0].id[0] == (row->party[1].id[0] ^ 1));
    OK(hf_break(rival, "k", row->party[0].token, &stage_error));
    ends(&w, HF_OK);
    IS(HF_LOST, hf_release(other, &stage_error));
    other = NULL;
    OK(hf_release(x, &stage_error));
    OK(hf_release(y, &stage_error));
    OK(hf_release(w.lock, &stage_error));
    done();
}

static void the_hold_is_broken(void) { OK(hf_break(rival, "k", hf_token(lock), &stage_error)); }

/* Two waits of one key are queued: the request of one of them held when it was asked again, and
   doesn't any more. The dispatcher sleeps nevertheless, and both get the key. */
static void two_of_one_key_let_it_sleep(void **state)
{
    (void)state;
    struct waiter before, w, again;
    hf_options named = HF_OPTIONS_INIT;
    named.wait_ms = named.lease_ms = 60000;
    named.request_id = by_name;
    begin(WATCHED);
    OK(hf_acquire(h, "k", &named, &lock, &stage_error));
    ask_and(rival, &before, "k", NULL, note);
    await_queue(1);
    start(&w, "k", 60000, 0);
    await_queue(2);
    stage_cue(S_ACQUIRE, 1, 1, INSTEAD, 0, the_hold_is_broken);
    ask_and(h, &again, "k", &named, note);
    await_end(&before);
    await_queue(2);
    for (int sleeps = 0; !sleeps; hf__pause(1000)) {
        pthread_mutex_lock(&h->mu);
        sleeps = h->dispatcher_sleeps && w.wait->look_at_us > hf__local_us() &&
                 again.wait->look_at_us > hf__local_us();
        pthread_mutex_unlock(&h->mu);
    }
    assert_false(w.wait->subscribed); /* this wait polls, because one key has one subscription */
    ends_with_the_key(&before);
    ends_with_the_key(&w);
    ends_with_the_key(&again);
    hf_release(lock, NULL); /* lost */
    done();
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_came_before_it_listened_is_seen),
        cmocka_unit_test(who_gets_into_line_is_listened_for_there),
        cmocka_unit_test(a_named_one_is_listened_for_anew),
        cmocka_unit_test(who_comes_behind_a_named_one_is_listened_for_anew),
        cmocka_unit_test(two_of_one_key_let_it_sleep),
        cmocka_unit_test(asked_again_it_is_the_same_request),
        cmocka_unit_test(what_is_held_is_not_forgotten),
        cmocka_unit_test(handed_it_holds_with_what_it_waited_with),
        cmocka_unit_test(handed_with_a_session_of_no_use_it_asks_again),
        cmocka_unit_test(handed_late_it_claims_at_once),
        cmocka_unit_test(whoever_looks_helps_the_one_behind_the_dead),
    };
    return TEST_MAIN(tests);
}
