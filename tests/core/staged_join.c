/*
 * staged_join.c - a request that is queued by an `acquire`, where the store appends, and when it
 * isn't.
 */
#include "staged_waiter.h"

#include <string.h>

static struct waiter ahead, mine;
static int sent, landed; /* how often this request was sent; how often the store queued it */
static int over;         /* atomic: how often it has been answered */
static unsigned kind = SERVER;
static int told_code; /* the result that this request gets, once, although it was carried out */
static void (*meanwhile)(void);
static const hf_party *asks; /* for meanwhile */
static int (*acquire_of_stage)(hf_store *st, const hf_rowkey *key, const hf_party *party,
                               uint32_t may_queue, hf_row *cur, int64_t *ret_clock_us,
                               hf_error *err);

static int acquire(hf_store *st, const hf_rowkey *key, const hf_party *party, uint32_t may_queue,
                   hf_row *cur, int64_t *ret_clock_us, hf_error *err)
{
    int is_mine = !strcmp(party->note, "mine"), code = is_mine ? told_code : 0;
    sent += is_mine;
    asks = party;
    if (is_mine && meanwhile) meanwhile();
    int rc = acquire_of_stage(st, key, party, may_queue, cur, ret_clock_us, err);
    landed += is_mine && !rc && cur->n_queue;
    __atomic_add_fetch(&over, is_mine, __ATOMIC_SEQ_CST);
    if (is_mine) told_code = 0;
    return rc || !code ? rc : hf_fail(err, code, 0, "told so");
}

static void start(struct waiter *w, hf *store, unsigned flags, const char *owner)
{
    hf_options o = HF_OPTIONS_INIT;
    o.lease_ms = 90000;
    o.flags = flags;
    o.note = store == h ? "mine" : NULL;
    o.owner = owner;
    ask_and(store, w, "k", &o, note);
}

/* The rival holds, in that mode; `others` of its wait. */
static void begin_behind(int others, enum hf_mode mode)
{
    begin(kind);
    acquire_of_stage = stage_driver.acquire;
    stage_driver.acquire = acquire;
    stage_appends = 1;
    sent = landed = over = told_code = 0;
    meanwhile = NULL;
    hf_options o = HF_OPTIONS_INIT;
    o.lease_ms = 60000;
    o.mode = mode;
    OK(hf_acquire(rival, "k", &o, &other, &stage_error));
    if (others) start(&ahead, rival, 0, NULL);
    if (others) await_queue(1);
}

static void all_are_served(int others)
{
    if (other) OK(hf_release(other, &stage_error));
    if (others) ends_with_the_key(&ahead);
    ends_with_the_key(&mine);
    done();
}

/* Also as the first waiter. */
static void by_one_request_it_is_in_line(void **state)
{
    (void)state;
    for (int others = 0; others < 2; others++) {
        begin_behind(others, HF_EXCLUSIVE);
        uint64_t swaps = stage_calls(S_SWAP);
        start(&mine, h, 0, NULL);
        await_queue((uint32_t)others + 1);
        assert_int_equal(stage_calls(S_SWAP), swaps);
        all_are_served(others);
        assert_int_equal(sent, 1);
        assert_int_equal(landed, 1);
    }
}

static void others_write_first(void) { stage_row("k")->rev++; }

/* The request is stepped where it could share the key with the holders, where it isn't to be
   queued, and where a place in the queue needs a session. */
static void else_it_steps(void **state)
{
    (void)state;
    begin_behind(0, HF_SHARED);
    start(&mine, h, 0, NULL);
    await_queue(1);
    all_are_served(0);
    assert_true(sent == 1 && landed == 0);
    begin_behind(1, HF_EXCLUSIVE);
    start(&mine, h, HF_UNQUEUED, NULL);
    all_are_served(1);
    assert_int_equal(landed, 0);
    kind = LEASES;
    begin_behind(1, HF_EXCLUSIVE);
    kind = SERVER;
    stage_cue(S_SWAP, 1, 2, INSTEAD, 0, others_write_first);
    start(&mine, h, 0, NULL);
    await_queue(2);
    all_are_served(1);
    assert_int_equal(sent, 0);
}

/* Its write upon a known row is too late, twice. An acquire needs to know no row. */
static void whom_others_overtake_needs_no_row(void **state)
{
    (void)state;
    begin_behind(1, HF_SHARED);
    meanwhile = NULL;
    hf_row *row = stage_row("k");
    row->party[0].mode = HF_EXCLUSIVE; /* from the second request on it may be appended */
    stage_cue(S_ACQUIRE, 1, 1, INSTEAD, HF_CONFLICT, NULL);
    stage_cue(S_SWAP, 1, 2, INSTEAD, 0, others_write_first);
    start(&mine, h, 0, NULL);
    await_queue(2);
    stage_uncue();
    all_are_served(1);
    assert_true(sent == 2 && landed == 1);
}

/* A wait for an event learns that the event is done, also while another one waits for its end. */
static void an_event_is_stepped(void **state)
{
    (void)state;
    hf_once once;
    hf_options o = HF_OPTIONS_INIT;
    o.note = "mine";
    begin_behind(1, HF_EXCLUSIVE);
    mine = (struct waiter){.code = NOT_OVER};
    stage_cue(S_SWAP, 1, 2, INSTEAD, 0, others_write_first);
    OK(hf_once_start(h, "k", 60000, &o, &once, note, &mine, &mine.wait, &stage_error));
    await_queue(2);
    all_are_served(1);
    assert_int_equal(sent, 0);
}

/* The holder is over, and the waiter behind it is dead: the request has to notice both. */
static void what_is_over_is_looked_after_first(void **state)
{
    (void)state;
    begin_behind(0, HF_EXCLUSIVE);
    hf_row *row = stage_row("k");
    assert_int_equal(hf_row_room(row, 3), 0);
    hf_party_copy(&row->party[1], &row->party[0]);
    memset(row->party[1].id, 9, sizeof row->party[1].id);
    row->party[1].token = 0;
    row->party[1].claim_ms = 100;
    row->party[1].expires_us = 0;
    row->party[0].expires_us = 1;
    row->n_queue = 1;
    start(&mine, h, 0, NULL);
    await_end(&mine);
    IS(HF_LOST, hf_release(other, &stage_error));
    other = NULL;
    all_are_served(0);
    assert_true(sent == 1 && landed == 0);
}

static void give_all_back(void)
{
    meanwhile = NULL;
    OK(hf_release(other, &stage_error));
    other = NULL;
    ends_with_the_key(&ahead);
}

/* All other parties have gone while the request was on its way. */
static void what_is_free_by_then_is_granted(void **state)
{
    (void)state;
    begin_behind(1, HF_EXCLUSIVE);
    meanwhile = give_all_back;
    start(&mine, h, 0, NULL);
    while (!__atomic_load_n(&over, __ATOMIC_SEQ_CST)) hf__pause(1000);
    all_are_served(0);
    assert_true(sent == 1 && landed == 0);
}

static hf *third;
static struct waiter between;

static void fill(void)
{
    meanwhile = NULL;
    start(&between, third, 0, NULL);
    await_queue(2);
}

/* Waits until one of two counts of a wait goes up. Returns 1 if it was only the other one. */
static int which(const uint8_t *one, const uint8_t *other_one)
{
    int is, is_other;
    do {
        is = __atomic_load_n(one, __ATOMIC_SEQ_CST);
        is_other = __atomic_load_n(other_one, __ATOMIC_SEQ_CST);
    } while (!is && !is_other);
    return is_other && !is;
}

/* No place was left by then: it looks now and then. */
static void where_it_is_full_it_looks_now_and_then(void **state)
{
    (void)state;
    begin_behind(1, HF_EXCLUSIVE);
    stage_driver.caps.queue_cap = 2;
    change_caps();
    third = stage_open("rival");
    meanwhile = fill;
    start(&mine, h, 0, NULL);
    /* it needn't look for that */
    assert_int_equal(which(&mine.wait->full, &mine.wait->refused), 0);
    uint64_t gets = stage_calls(S_GET);
    stage_await(S_GET, gets + 3);
    assert_int_equal(stage_row("k")->n_queue, 2);
    assert_int_equal(sent, 1); /* the row that it sees has a full queue */
    OK(hf_release(other, &stage_error));
    ends_with_the_key(&ahead);
    ends_with_the_key(&between);
    ends_with_the_key(&mine);
    hf_close(third);
    done();
}

/* The reply was lost: the request stands in the queue once. */
static void a_lost_reply_is_no_second_place(void **state)
{
    (void)state;
    begin_behind(1, HF_EXCLUSIVE);
    told_code = HF_UNKNOWN;
    start(&mine, h, 0, NULL);
    await_queue(2);
    uint64_t gets = stage_calls(S_GET);
    stage_await(S_GET, gets + 2);
    assert_int_equal(stage_row("k")->n_queue, 2);
    all_are_served(1);
    assert_int_equal(sent, 2); /* which finds it there */
}

static void the_one_before_lands(void)
{
    meanwhile = NULL;
    assert_int_equal(hf_row_acquire(stage_row("k"), asks, 2, 1), 0);
}

/* An earlier one lands just before it, on the last place: it doesn't matter to the
   waiter that no other place is left. */
static void on_the_last_place_it_stands_in_line(void **state)
{
    (void)state;
    begin_behind(1, HF_EXCLUSIVE);
    stage_driver.caps.queue_cap = 2;
    change_caps();
    meanwhile = the_one_before_lands;
    start(&mine, h, 0, NULL);
    enum hf_wait_state is;
    do {
        assert_int_equal(__atomic_load_n(&mine.wait->full, __ATOMIC_SEQ_CST), 0);
        is = __atomic_load_n(&mine.wait->state, __ATOMIC_SEQ_CST);
    } while (is < HF_WAIT_QUEUED);
    assert_int_equal(is, HF_WAIT_QUEUED);
    all_are_served(1);
    assert_int_equal(sent, 1);
}

/* The store is away just then; and refuses for good. */
static void what_fails_is_told(void **state)
{
    (void)state;
    begin_behind(1, HF_EXCLUSIVE);
    told_code = HF_DENIED;
    start(&mine, h, 0, NULL);
    ends(&mine, HF_DENIED);
    OK(hf_release(other, &stage_error));
    ends_with_the_key(&ahead);
    done();
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_one_request_it_is_in_line),
        cmocka_unit_test(else_it_steps),
        cmocka_unit_test(whom_others_overtake_needs_no_row),
        cmocka_unit_test(an_event_is_stepped),
        cmocka_unit_test(what_is_over_is_looked_after_first),
        cmocka_unit_test(what_is_free_by_then_is_granted),
        cmocka_unit_test(where_it_is_full_it_looks_now_and_then),
        cmocka_unit_test(a_lost_reply_is_no_second_place),
        cmocka_unit_test(on_the_last_place_it_stands_in_line),
        cmocka_unit_test(what_fails_is_told),
    };
    return TEST_MAIN(tests);
}
