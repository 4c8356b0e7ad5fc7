/*
 * staged_restored.c - old requests are in the row again, because a backup was restored.
 */
#include "staged_waiter.h"

#include <string.h>

static struct waiter mine, next;

static void start(struct waiter *w)
{
    hf_options o = HF_OPTIONS_INIT;
    o.lease_ms = 60000;
    ask_and(h, w, "k", &o, note);
}

/* The rival holds, we wait. */
static hf_row *begin_in_line(void)
{
    begin(LEASES);
    OK(stage_acquire(rival, "k", 0, 60000, 0, &other));
    start(&mine);
    await_queue(1);
    return stage_row("k");
}

static void old_request(hf_party *p, const hf_party *like)
{
    hf_party_copy(p, like);
    memset(p->id, 9, sizeof p->id);
}

/* The old request was handed the key, and would hold it for as long as this handle waits. */
static void what_we_were_handed_then_is_given_up(void **state)
{
    (void)state;
    hf_row *row = begin_in_line();
    old_request(&row->party[0], &row->party[1]);
    row->party[0].token = row->token;
    row->party[0].flags = HF_PARTY_UNCLAIMED;
    row->rev++;
    ends_with_the_key(&mine);
    IS(HF_LOST, hf_release(other, &stage_error));
    done();
}

static void put_before_us(hf_row *row)
{
    assert_int_equal(hf_row_room(row, 3), 0);
    hf_party_copy(&row->party[2], &row->party[1]);
    old_request(&row->party[1], &row->party[2]);
    __atomic_store_n(&row->n_queue, 2, __ATOMIC_SEQ_CST);
    row->rev++;
}

/* The old request must not be the first in the queue again and again. */
static void where_we_stood_then_is_given_up(void **state)
{
    (void)state;
    hf_row *row = begin_in_line();
    put_before_us(row);
    await_queue(1);
    assert_int_equal(hf__find_id(stage_row("k"), mine.wait->party.id), 1);
    OK(hf_release(other, &stage_error));
    ends_with_the_key(&mine);
    done();
}

static void look_thrice(void) { stage_await(S_GET, stage_calls(S_GET) + 3); }

/* Requests of another handle stay; so does a queued one that a try beside a wait finds. */
static void what_is_asked_for_stays(void **state)
{
    (void)state;
    struct waiter ahead;
    hf_options o = HF_OPTIONS_INIT;
    begin(LEASES);
    OK(stage_acquire(rival, "k", 0, 60000, 0, &other));
    ask_and(rival, &ahead, "k", &o, note);
    await_queue(1);
    start(&mine);
    await_queue(2);
    uint8_t id[16];
    memcpy(id, mine.wait->party.id, sizeof id);
    look_thrice();
    IS(HF_BUSY, stage_acquire(h, "k", 0, 60000, 0, &lock));
    assert_int_equal(stage_row("k")->n_queue, 2);
    assert_int_equal(hf__find_id(stage_row("k"), id), 2);
    OK(hf_release(other, &stage_error));
    ends_with_the_key(&ahead);
    ends_with_the_key(&mine);
    done();
}

static hf_lock *elsewhere;

static hf_row *begin_before_a_try(void)
{
    begin(LEASES);
    OK(stage_acquire(h, "x", 0, 60000, 0, &elsewhere));
    OK(stage_acquire(rival, "k", 0, 60000, 0, &other));
    hf_row *row = stage_row("k");
    assert_int_equal(hf_row_room(row, 2), 0);
    old_request(&row->party[1], &row->party[0]);
    row->party[1].token = 0;
    row->party[1].session = stage_row("x")->party[0].session;
    row->n_queue = 1;
    row->rev++;
    return row;
}

/* A request that only tries is withdrawn, too, and has looked once nevertheless. */
static void a_try_is_over_after_one_look(void **state)
{
    (void)state;
    hf_row *row = begin_before_a_try();
    uint64_t asked = stage_calls(S_GET);
    IS(HF_BUSY, stage_acquire(h, "k", 0, 60000, 0, &lock));
    assert_int_equal(stage_calls(S_GET), asked + 1);
    assert_int_equal(row->n_queue, 0);
    OK(hf_release(other, &stage_error));
    OK(hf_release(elsewhere, &stage_error));
    done();
}

static void another_asks_it(void)
{
    hf_row *row = stage_row("k");
    row->party[1].session = row->party[0].session;
    row->rev++;
}

/* Between the look and its withdrawal another process has asked the same request again. */
static void what_another_has_asked_meanwhile_stays(void **state)
{
    (void)state;
    hf_row *row = begin_before_a_try();
    stage_cue(S_SWAP, 1, 1, INSTEAD, 0, another_asks_it);
    IS(HF_BUSY, stage_acquire(h, "k", 0, 60000, 0, &lock));
    assert_int_equal(row->n_queue, 1);
    OK(hf_release(other, &stage_error));
    OK(hf_break(rival, "k", stage_row("k")->token, &stage_error));
    OK(hf_release(elsewhere, &stage_error));
    done();
}

/* The store fails just then: the caller gets that error. */
static void what_fails_is_told(void **state)
{
    (void)state;
    begin_before_a_try();
    stage_cue(S_SWAP, 1, 1, INSTEAD, HF_DENIED, NULL);
    IS(HF_DENIED, stage_acquire(h, "k", 0, 60000, 0, &lock));
    OK(hf_break(rival, "k", hf_token(other), &stage_error));
    IS(HF_LOST, hf_release(other, &stage_error));
    OK(hf_break(rival, "k", stage_row("k")->token, &stage_error));
    OK(hf_release(elsewhere, &stage_error));
    done();
}

/* A hold that was claimed stays: the call that asks for it just now may not have its lock yet. */
static void what_was_claimed_stays(void **state)
{
    (void)state;
    hf_row *row = begin_in_line();
    row->party[0].session = row->party[1].session;
    put_before_us(row);
    await_queue(1);
    look_thrice();
    assert_int_equal(stage_row("k")->n_holders, 1);
    assert_int_equal(stage_row("k")->token, hf_token(other));
    OK(hf_release(other, &stage_error));
    ends_with_the_key(&mine);
    done();
}

/* Handed over, but not claimed yet: it has a lock when the next wait is queued. */
static void what_has_a_lock_stays(void **state)
{
    (void)state;
    begin_in_line();
    OK(hf_release(other, &stage_error));
    await_end(&mine);
    IS(HF_OK, mine.code);
    start(&next);
    await_queue(1);
    look_thrice();
    OK(hf_confirm(mine.lock, &stage_error));
    OK(hf_release(mine.lock, &stage_error));
    hf_wait_free(mine.wait);
    ends_with_the_key(&next);
    done();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_we_were_handed_then_is_given_up),
        cmocka_unit_test(where_we_stood_then_is_given_up),
        cmocka_unit_test(what_is_asked_for_stays),
        cmocka_unit_test(a_try_is_over_after_one_look),
        cmocka_unit_test(what_another_has_asked_meanwhile_stays),
        cmocka_unit_test(what_fails_is_told),
        cmocka_unit_test(what_was_claimed_stays),
        cmocka_unit_test(what_has_a_lock_stays),
    };
    return TEST_MAIN(tests);
}
