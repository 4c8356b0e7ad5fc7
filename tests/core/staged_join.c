/*
 * staged_join.c - who comes behind others that wait: by a join, where the store has one, and when.
 */
#include "staged_waiter.h"

#include <string.h>

static struct waiter ahead, mine;
static int joined, landed; /* how often; and of these, how often it was let in */
static int over;           /* atomic: how often it has been answered */
static unsigned kind = SERVER;
static int told_code; /* told to whoever has joined */
static void (*meanwhile)(void);
static const hf_party *asks; /* for meanwhile */

/* What stores do in one request: here by two. */
static int join(hf_store *st, const hf_rowkey *key, const hf_party *party, uint32_t cap,
                hf_row *cur, int64_t *ret_clock_us, hf_error *err)
{
    int is_mine = !strcmp(party->note, "mine");
    joined += is_mine;
    asks = party;
    if (is_mine && meanwhile) meanwhile();
    int rc = stage_driver.get(st, key, cur, ret_clock_us, err);
    if (rc) return rc;
    uint64_t seen = cur->rev;
    rc = hf_row_join(cur, party, cap, *ret_clock_us);
    if (!rc) rc = stage_driver.replace(st, key, seen, cur, NULL, ret_clock_us, err);
    landed += is_mine && !rc;
    __atomic_add_fetch(&over, is_mine, __ATOMIC_SEQ_CST);
    return rc || !told_code || !is_mine ? rc : hf_fail(err, told_code, 0, "told so");
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

/* The rival holds; `others` of its wait. */
static void begin_behind(int others)
{
    begin(kind);
    stage_driver.join = join;
    joined = landed = over = told_code = 0;
    meanwhile = NULL;
    OK(stage_acquire(rival, "k", 0, 60000, 0, &other));
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

static void behind_others_it_joins(void **state)
{
    (void)state;
    begin_behind(1);
    start(&mine, h, 0, NULL);
    await_queue(2);
    all_are_served(1);
    assert_int_equal(joined, 1);
    assert_int_equal(landed, 1);
}

static void others_write_first(void) { stage_row("k")->rev++; }

/* Where it may have to be granted at once, or be told something else, it steps. */
static void else_it_steps(void **state)
{
    (void)state;
    begin_behind(0);
    start(&mine, h, 0, NULL);
    await_queue(1);
    all_are_served(0);
    assert_int_equal(joined, 0);
    begin_behind(1);
    start(&mine, h, HF_UNQUEUED, NULL);
    all_are_served(1);
    assert_int_equal(joined, 0);
    kind = LEASES; /* where a place in line needs a session */
    begin_behind(1);
    kind = SERVER;
    stage_cue(S_SWAP, 1, 2, INSTEAD, 0, others_write_first);
    start(&mine, h, 0, NULL);
    await_queue(2);
    all_are_served(1);
    assert_int_equal(joined, 0);
}

/* Who waits for an event is told that it is done, also while somebody waits for its end. */
static void an_event_is_not_joined(void **state)
{
    (void)state;
    hf_once once;
    hf_options o = HF_OPTIONS_INIT;
    o.note = "mine";
    begin_behind(1);
    mine = (struct waiter){.code = NOT_OVER};
    stage_cue(S_SWAP, 1, 2, INSTEAD, 0, others_write_first);
    OK(hf_once_start(h, "k", 60000, &o, &once, note, &mine, &mine.wait, &stage_error));
    await_queue(2);
    all_are_served(1);
    assert_int_equal(joined, 0);
}

/* The holder is over, and who stands behind it is dead: that is to be noticed. */
static void what_is_over_is_looked_after_first(void **state)
{
    (void)state;
    begin_behind(0);
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
    assert_int_equal(joined, 0);
}

static void give_all_back(void)
{
    meanwhile = NULL;
    OK(hf_release(other, &stage_error));
    other = NULL;
    ends_with_the_key(&ahead);
}

/* They have all gone, while it was on its way. */
static void refused_it_looks_again(void **state)
{
    (void)state;
    begin_behind(1);
    meanwhile = give_all_back;
    start(&mine, h, 0, NULL);
    while (!__atomic_load_n(&over, __ATOMIC_SEQ_CST)) hf__pause(1000);
    all_are_served(0);
    assert_int_equal(joined, 1);
    assert_int_equal(landed, 0);
}

static hf *third;
static struct waiter between;

static void fill(void)
{
    meanwhile = NULL;
    start(&between, third, 0, NULL);
    await_queue(2);
}

/* Waits for one of two things that are about to be said of a wait: was it the other alone? */
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
    begin_behind(1);
    stage_driver.queue_cap = 2;
    third = stage_open("rival");
    meanwhile = fill;
    start(&mine, h, 0, NULL);
    assert_int_equal(which(&mine.wait->full, &mine.wait->refused), 0); /* it needn't look for it */
    uint64_t asked = stage_calls(S_GET);
    stage_await(S_GET, asked + 3);
    assert_int_equal(stage_row("k")->n_queue, 2);
    assert_int_equal(joined, 1); /* what it sees is full */
    OK(hf_release(other, &stage_error));
    ends_with_the_key(&ahead);
    ends_with_the_key(&between);
    ends_with_the_key(&mine);
    hf_close(third);
    done();
}

/* Its reply was lost: it stands there once. */
static void a_lost_reply_is_no_second_place(void **state)
{
    (void)state;
    begin_behind(1);
    told_code = HF_UNKNOWN;
    start(&mine, h, 0, NULL);
    await_queue(2);
    uint64_t asked = stage_calls(S_GET);
    stage_await(S_GET, asked + 2);
    assert_int_equal(stage_row("k")->n_queue, 2);
    all_are_served(1);
    assert_int_equal(joined, 1);
}

static void the_one_before_lands(void)
{
    meanwhile = NULL;
    assert_int_equal(hf_row_join(stage_row("k"), asks, 2, 1), 0);
}

/* An earlier one lands just before it, on the last place: that there is no other one is nothing to
   who stands there. */
static void on_the_last_place_it_stands_in_line(void **state)
{
    (void)state;
    begin_behind(1);
    stage_driver.queue_cap = 2;
    meanwhile = the_one_before_lands;
    start(&mine, h, 0, NULL);
    enum hf_wait_state is;
    do {
        assert_int_equal(__atomic_load_n(&mine.wait->full, __ATOMIC_SEQ_CST), 0);
        is = __atomic_load_n(&mine.wait->state, __ATOMIC_SEQ_CST);
    } while (is < HF_WAIT_QUEUED);
    assert_int_equal(is, HF_WAIT_QUEUED);
    all_are_served(1);
    assert_int_equal(joined, 1);
}

/* The store is away just then; and refuses for good. */
static void what_fails_is_told(void **state)
{
    (void)state;
    begin_behind(1);
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
        cmocka_unit_test(behind_others_it_joins),
        cmocka_unit_test(else_it_steps),
        cmocka_unit_test(an_event_is_not_joined),
        cmocka_unit_test(what_is_over_is_looked_after_first),
        cmocka_unit_test(refused_it_looks_again),
        cmocka_unit_test(where_it_is_full_it_looks_now_and_then),
        cmocka_unit_test(a_lost_reply_is_no_second_place),
        cmocka_unit_test(on_the_last_place_it_stands_in_line),
        cmocka_unit_test(what_fails_is_told),
    };
    return TEST_MAIN(tests);
}
