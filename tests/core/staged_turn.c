/*
 * staged_turn.c - lost replies, rows that others have changed, stores that are away: the results of
 * a release, a renewal, a mark, a break and a fence, one by one.
 */
#include "staged_pair.h"

#include <semaphore.h>
#include <stdlib.h>
#include <string.h>

static void break_and_take(void)
{
    break_it();
    OK(stage_acquire(rival, "k", 0, 60000, 0, &other));
}

static void stand_in_line(void)
{
    hf_row *row = stage_row("k");
    assert_int_equal(hf_row_room(row, 2), 0);
    hf_party *p = &row->party[row->n_holders];
    hf_party_copy(p, &row->party[0]);
    p->id[0] ^= 1;
    p->token = 0;
    p->expires_us = 0;
    row->n_queue = 1;
    row->rev++;
}

/* ---- releases ---- */

static void a_release_that_landed_unheard_is_one(void **state)
{
    (void)state;
    begin(SERVER);
    OK(stage_acquire(h, "k", 0, 60000, 0, &lock));
    stage_cue(S_SWAP, 1, 1, ALTHOUGH, HF_UNKNOWN, NULL);
    OK(hf_release(lock, &stage_error));
    assert_int_equal(stage_row("k")->n_holders, 0);
    done();
}

static void a_release_whose_key_moved_on_is_one(void **state)
{
    (void)state;
    begin(SERVER);
    OK(stage_acquire(h, "k", 0, 60000, 0, &lock));
    stage_cue(S_SWAP, 1, 1, ALTHOUGH, HF_UNKNOWN, NULL); /* the blind one has landed */
    OK(hf_release(lock, &stage_error));
    OK(stage_acquire(h, "k", 0, 60000, 0, &lock));
    stand_in_line(); /* the blind write meets a waiter, the next reply is lost, the grant broken */
    stage_cue(S_SWAP, 2, 1, INSTEAD, HF_UNKNOWN, NULL);
    stage_cue(S_SWAP, 3, 1, INSTEAD, 0, break_it);
    OK(hf_release(lock, &stage_error));
    done();
}

static void a_release_of_what_was_broken_is_lost(void **state)
{
    (void)state;
    begin(SERVER);
    OK(stage_acquire(h, "k", 0, 60000, 0, &lock));
    stage_cue(S_SWAP, 1, 1, INSTEAD, 0, break_and_take);
    IS(HF_LOST, hf_release(lock, &stage_error));
    assert_int_equal(stage_row("k")->n_holders, 1);
    OK(hf_release(other, &stage_error));
    done();
}

static void a_release_never_heard_of_says_so(void **state)
{
    (void)state;
    begin(SERVER);
    OK(stage_acquire(h, "k", 0, 60000, 0, &lock));
    stage_cue(S_SWAP, 1, 1000, INSTEAD, HF_UNKNOWN, NULL);
    IS(HF_UNKNOWN, hf_release(lock, &stage_error));
    /* No other error is a certainty after that. */
    stage_uncue();
    stage_kill_sessions();
    OK(hf_break(rival, "k", stage_row("k")->token, &stage_error));
    OK(stage_acquire(h, "k", 0, 60000, 0, &lock));
    stage_cue(S_SWAP, 1, 1, INSTEAD, HF_UNKNOWN, NULL);
    stage_cue(S_SWAP, 2, 1000, INSTEAD, HF_UNAVAILABLE, NULL);
    IS(HF_UNKNOWN, hf_release(lock, &stage_error));
    done();
}

static void what_is_over_is_given_back_with_one_request(void **state)
{
    (void)state;
    begin(SERVER);
    OK(stage_acquire(h, "k", 0, 100, HF_NO_RENEW, &lock));
    while (hf_left_ms(lock) > 0) hf__pause(1000);
    uint64_t before = stage_calls(S_SWAP) + stage_calls(S_GET);
    stage_cue(S_GET, 1, 1000, INSTEAD, HF_UNAVAILABLE, NULL);
    stage_cue(S_SWAP, 1, 1000, INSTEAD, HF_UNKNOWN, NULL);
    IS(HF_LOST, hf_release(lock, &stage_error));
    assert_true(stage_calls(S_SWAP) + stage_calls(S_GET) - before <= 2);
    done();
}

/* No other client would ever release the key: the release is tried again in the background. */
static void what_could_not_be_given_back_is_tried_again(void **state)
{
    (void)state;
    begin(STAGE_LIVENESS);
    OK(stage_acquire(h, "k", 0, 0, 0, &lock));
    assert_true(hf_left_ms(lock) == INT64_MAX);
    OK(hf_renew(lock, 0, &stage_error));
    stage_cue(S_SWAP, 1, 2, INSTEAD, HF_DENIED, NULL);
    IS(HF_DENIED, hf_release(lock, &stage_error));
    assert_int_equal(stage_row("k")->n_holders, 1);
    hf_lock *next;
    OK(stage_acquire(rival, "k", 10000, 0, 0, &next));
    OK(hf_release(next, &stage_error));
    done();
}

/* ---- renewals, marks, breaks ---- */

static void a_renewal_looks_again_while_the_store_is_away(void **state)
{
    (void)state;
    begin(SERVER);
    OK(stage_acquire(h, "k", 0, 60000, HF_NO_RENEW, &lock));
    /* One failure at a time: two pauses may take longer than the handle's requests may. */
    stage_cue(S_GET, 1, 1, INSTEAD, HF_UNAVAILABLE, NULL);
    OK(hf_renew(lock, 50000, &stage_error));
    stage_cue(S_GET, 1, 1, INSTEAD, HF_UNKNOWN, NULL);
    OK(hf_renew(lock, 50000, &stage_error));
    stage_cue(S_GET, 1, 1000, INSTEAD, HF_UNAVAILABLE, NULL);
    IS(HF_UNAVAILABLE, hf_renew(lock, 50000, &stage_error));
    stage_uncue();
    stage_cue(S_GET, 1, 1, INSTEAD, HF_CORRUPT, NULL);
    IS(HF_CORRUPT, hf_renew(lock, 50000, &stage_error));
    IS(HF_INVALID, hf_renew(lock, 99, &stage_error));
    IS(HF_INVALID, hf_renew(lock, 86400001, &stage_error));
    break_it();
    IS(HF_LOST, hf_renew(lock, 50000, &stage_error));
    IS(HF_LOST, hf_renew(lock, 50000, &stage_error));
    IS(HF_LOST, hf_release(lock, &stage_error));
    done();
}

static int conflicts; /* left to be made */

static void another_write(void)
{
    if (conflicts-- > 0) stage_row("k")->rev++;
}

/* A release is repeated at once, without a read, so that a crowd that wants to be queued can't hold
   it up. If it is refused again and again, the row is read anew. */
static void who_gives_back_writes_until_it_lands(void **state)
{
    (void)state;
    enum { AT_ONCE = 64, MORE = AT_ONCE + 5 };
    begin(SERVER);
    OK(stage_acquire(h, "k", 0, 60000, HF_NO_RENEW, &lock));
    uint64_t reads = stage_calls(S_GET), writes = stage_calls(S_SWAP);
    conflicts = AT_ONCE;
    stage_cue(S_SWAP, 1, 1000, INSTEAD, 0, another_write);
    OK(hf_release(lock, &stage_error));
    assert_int_equal(stage_calls(S_GET) - reads, 0);
    assert_int_equal(stage_calls(S_SWAP) - writes, AT_ONCE + 1);
    stage_uncue();
    OK(stage_acquire(h, "k", 0, 60000, HF_NO_RENEW, &lock));
    conflicts = MORE;
    stage_cue(S_SWAP, 1, 1000, INSTEAD, 0, another_write);
    OK(hf_release(lock, &stage_error));
    stage_uncue();
    OK(stage_acquire(h, "k", 0, 60000, HF_NO_RENEW, &lock));
    conflicts = MORE;
    stage_cue(S_SWAP, 1, 1000, INSTEAD, 0, another_write);
    stage_cue(S_GET, 1, 1, INSTEAD, HF_CORRUPT, NULL);
    IS(HF_CORRUPT, hf_release(lock, &stage_error));
    stage_uncue();
    OK(hf_break(h, "k", stage_row("k")->token, &stage_error));
    OK(stage_acquire(h, "k", 0, 60000, HF_NO_RENEW, &lock));
    conflicts = MORE;
    stage_cue(S_SWAP, 2, 1, INSTEAD, HF_UNKNOWN, NULL); /* behind the blind one */
    stage_cue(S_SWAP, 1, 1000, INSTEAD, 0, another_write);
    stage_cue(S_GET, 1, 1, INSTEAD, HF_CORRUPT, NULL);
    IS(HF_UNKNOWN, hf_release(lock, &stage_error));
    done();
}

static void told_nothing(void *arg, int code, hf_lock *l, const hf_error *err)
{
    (void)arg, (void)code, (void)l, (void)err;
}

/* Behind queued waiters it asks twice, then it pauses for those that must get through. */
static void who_wants_to_get_in_line_isnt_in_a_hurry(void **state)
{
    (void)state;
    begin(SERVER);
    OK(stage_acquire(rival, "k", 0, 60000, 0, &other));
    hf_wait *line;
    OK(hf_acquire_start(rival, "k", NULL, told_nothing, NULL, &line, &stage_error));
    await_queue(1);
    stage_driver.acquire = NULL;
    conflicts = 1 << 30;
    stage_cue(S_SWAP, 1, 1 << 30, INSTEAD, 0, another_write);
    uint64_t writes = stage_calls(S_SWAP);
    IS(HF_TIMEOUT, stage_acquire(h, "k", 300, 60000, 0, &lock));
    /* The windows double from 400 us on: a dozen of them are longer than that. Each pause is drawn
       at random from its window; a hundred pauses that are all next to nothing don't happen. */
    assert_in_range(stage_calls(S_SWAP) - writes, 2, 200);
    stage_uncue();
    hf_wait_free(line);
    OK(hf_release(other, &stage_error));
    done();
}

/* A wait's, or a try's: it gives up when its time is over, or the request's. */
static void who_asks_in_vain_is_told(void **state)
{
    (void)state;
    begin(SERVER);
    OK(stage_acquire(rival, "k", 0, 60000, 0, &other));
    OK(hf_release(other, &stage_error));
    conflicts = 1 << 30;
    stage_cue(S_SWAP, 1, 1 << 30, INSTEAD, 0, another_write);
    stage_driver.acquire = NULL;
    IS(HF_BUSY, stage_acquire(h, "k", 0, 60000, 0, &lock));
    IS(HF_TIMEOUT, stage_acquire(h, "k", 150, 60000, 0, &lock));
    stage_uncue();
    conflicts = 1 << 30;
    stage_cue(S_SWAP, 1, 1, INSTEAD, HF_UNKNOWN, NULL);
    stage_cue(S_SWAP, 2, 1 << 30, INSTEAD, 0, another_write);
    IS(HF_UNKNOWN, stage_acquire(h, "k", 0, 60000, 0, &lock));
    stage_uncue();
    conflicts = 9;
    stage_cue(S_SWAP, 1, 1, INSTEAD, HF_UNKNOWN, NULL);
    stage_cue(S_SWAP, 2, 1 << 30, INSTEAD, 0, another_write);
    stage_cue(S_GET, 2, 1, INSTEAD, HF_CORRUPT, NULL);
    IS(HF_UNKNOWN, stage_acquire(h, "k", 0, 60000, 0, &lock));
    done();
}

static void rival_gives_back(void) { OK(hf_release(other, &stage_error)); }

/* Its writes come too late, although no waiter is queued. The driver's acquire needs no row. */
static void who_is_overtaken_takes(void **state)
{
    (void)state;
    begin(SERVER);
    OK(stage_acquire(rival, "k", 0, 60000, 0, &other));
    conflicts = 1 << 30;
    stage_cue(S_SWAP, 1, 1 << 30, INSTEAD, 0, another_write);
    stage_cue(S_ACQUIRE, 3, 1, INSTEAD, 0, rival_gives_back);
    uint64_t reads = stage_calls(S_GET);
    OK(stage_acquire(h, "k", 20000, 60000, 0, &lock));
    assert_int_equal(stage_calls(S_GET), reads);
    stage_uncue();
    OK(hf_release(lock, &stage_error));
    done();
}

static int64_t others_until_us;

static void another_write_for_a_while(void)
{
    if (hf__local_us() < others_until_us) stage_row("k")->rev++;
}

static struct {
    sem_t over;
    int code;
} claim;

static void told_of_the_claim(void *arg, int code, hf_lock *l, const hf_error *err)
{
    (void)arg, (void)l, (void)err;
    claim.code = code;
    sem_post(&claim.over);
}

/* A wait that one fast handle overtakes again and again isn't one of a crowd: if other waiters are
   queued then, its first window isn't as long as after that many refusals by a crowd. */
static void who_is_overtaken_is_no_crowd(void **state)
{
    (void)state;
    hf_wait *wait;
    begin(SERVER);
    sem_init(&claim.over, 0, 0);
    OK(stage_acquire(rival, "k", 0, 60000, 0, &other));
    stage_driver.acquire = NULL;
    conflicts = 1 << 30;
    uint64_t writes = stage_calls(S_SWAP);
    stage_cue(S_SWAP, 1, 1 << 30, INSTEAD, 0, another_write);
    OK(hf_acquire_start(h, "k", NULL, told_of_the_claim, NULL, &wait, &stage_error));
    stage_await(S_SWAP, writes + 40);
    hf_wait_cancel(wait);
    while (sem_wait(&claim.over)) continue;
    stage_uncue();
    IS(HF_CANCELED, claim.code);
    assert_int_equal(wait->refused, 0);
    assert_in_range(wait->overtaken, 10, 255);
    hf_wait_free(wait);
    OK(hf_release(other, &stage_error));
    done();
}

/* The waiter was handed the key, and must get through; but it doesn't try for longer than its
   limit, nor without pauses. */
static void who_claims_in_vain_is_told(void **state)
{
    (void)state;
    hf_options o = HF_OPTIONS_INIT;
    hf_wait *wait;
    o.wait_ms = 300;
    o.lease_ms = 60000;
    o.flags = HF_NO_RENEW;
    begin(SERVER);
    sem_init(&claim.over, 0, 0);
    OK(stage_acquire(rival, "k", 0, 60000, 0, &other));
    OK(hf_acquire_start(h, "k", &o, told_of_the_claim, NULL, &wait, &stage_error));
    await_queue(1);
    uint64_t writes = stage_calls(S_SWAP);
    others_until_us = hf__local_us() + 600000;
    stage_cue(S_SWAP, 1, 1 << 30, INSTEAD, 0, another_write_for_a_while);
    OK(hf_release(other, &stage_error));
    while (sem_wait(&claim.over)) continue;
    IS(HF_TIMEOUT, claim.code);
    assert_in_range(stage_calls(S_SWAP) - writes, 1, 5000);
    stage_uncue();
    hf_wait_free(wait);
    assert_int_equal(stage_row("k")->n_holders + stage_row("k")->n_queue, 0);
    done();
}

static hf_lock *begin_event(void)
{
    hf_once once;
    hf_options o = HF_OPTIONS_INIT;
    o.wait_ms = 0;
    o.lease_ms = 60000;
    OK(hf_once_begin(h, "k", HF_FOREVER, &o, &once, &stage_error));
    assert_non_null(once.lock);
    return once.lock;
}

static void a_mark_that_landed_unheard_is_made(void **state)
{
    (void)state;
    begin(SERVER);
    lock = begin_event();
    stage_cue(S_SWAP, 1, 1, ALTHOUGH, HF_UNKNOWN, NULL);
    OK(hf_once_finish(lock, "good", HF_FOREVER, &stage_error));
    assert_string_equal(stage_row("k")->result, "good");
    done();
}

/* The mark has landed, and the row has been written again before we see it. */
static void its_own_mark_is_proof(void) { stage_row("k")->rev++; }

static void another_result(void)
{
    stage_row("k")->rev++;
    memcpy(stage_row("k")->result, "evil", 5);
}

static void a_longer_result(void)
{
    stage_row("k")->rev++;
    memcpy(stage_row("k")->result, "goods", 6);
    stage_row("k")->result_len = 5;
}

static void done_at_another_time(void)
{
    stage_row("k")->rev++;
    stage_row("k")->done_us++;
}

static void undone(void)
{
    stage_row("k")->rev++;
    stage_row("k")->done_us = 0;
}

static void only_our_own_mark_is_proof(void **state)
{
    (void)state;
    void (*const meanwhile[])(void) = {its_own_mark_is_proof, another_result, a_longer_result,
                                       done_at_another_time, undone};
    for (size_t i = 0; i < sizeof meanwhile / sizeof *meanwhile; i++) {
        begin(SERVER);
        lock = begin_event();
        stage_cue(S_SWAP, 1, 1, ALTHOUGH, HF_UNKNOWN, NULL);
        stage_cue(S_SWAP, 2, 1, INSTEAD, 0, meanwhile[i]);
        int rc = hf_once_finish(lock, "good", HF_FOREVER, &stage_error);
        assert_string_equal(hf_code_name(rc), hf_code_name(i ? HF_LOST : HF_OK));
        done();
    }
}

static void a_mark_that_is_broken_is_lost(void **state)
{
    (void)state;
    begin(SERVER);
    lock = begin_event();
    stage_cue(S_SWAP, 1, 1, INSTEAD, HF_UNKNOWN, NULL);
    stage_cue(S_SWAP, 2, 1, INSTEAD, 0, break_it);
    IS(HF_LOST, hf_once_finish(lock, "good", HF_FOREVER, &stage_error));
    done();
}

static void a_mark_that_fails_gives_the_key_back(void **state)
{
    (void)state;
    begin(SERVER);
    lock = begin_event();
    IS(HF_INVALID, hf_once_finish(lock, "", 0, &stage_error));
    lock = begin_event();
    IS(HF_INVALID, hf_once_finish(lock, NULL, -2, &stage_error));
    lock = begin_event();
    stage_cue(S_SWAP, 1, 1, INSTEAD, HF_FULL, NULL);
    IS(HF_FULL, hf_once_finish(lock, "good", 1000, &stage_error));
    assert_int_equal(stage_row("k")->n_holders, 0);
    assert_true(stage_row("k")->done_us == 0);
    lock = begin_event();
    stage_cue(S_SYNC, 1, 1, INSTEAD, HF_FULL, NULL);
    IS(HF_FULL, hf_once_finish(lock, "good", INT64_MAX, &stage_error));
    done();
}

/* An event that ran must not run again for its text. */
static void a_result_is_cut_between_letters(void **state)
{
    (void)state;
    for (int odd = 0; odd < 2; odd++) {
        char text[400] = "";
        begin(SERVER);
        lock = begin_event();
        size_t n = (size_t)odd;
        memset(text, 'x', n);
        while (n < 300) {
            memcpy(text + n, "\xc3\xa9", 2);
            n += 2;
        }
        OK(hf_once_finish(lock, text, HF_FOREVER, &stage_error));
        assert_int_equal(stage_row("k")->result_len, odd ? HF_RESULT_CAP - 1 : HF_RESULT_CAP - 2);
        assert_memory_equal(stage_row("k")->result, text, stage_row("k")->result_len);
        done();
    }
}

static void a_break_that_landed_unheard_is_one(void **state)
{
    (void)state;
    begin(SERVER);
    OK(stage_acquire(h, "k", 0, 60000, HF_NO_RENEW, &lock));
    stage_cue(S_SWAP, 1, 1, ALTHOUGH, HF_UNKNOWN, NULL);
    stage_cue(S_SWAP, 2, 1, INSTEAD, 0, its_own_mark_is_proof);
    OK(hf_break(h, "k", hf_token(lock), &stage_error));
    IS(HF_LOST, hf_break(h, "k", hf_token(lock), &stage_error));
    stage_cue(S_GET, 1, 1000, INSTEAD, HF_UNAVAILABLE, NULL);
    IS(HF_UNAVAILABLE, hf_break(h, "k", hf_token(lock), &stage_error));
    stage_uncue();
    IS(HF_INVALID, hf_break(h, "", 1, &stage_error));
    IS(HF_LOST, hf_confirm(lock, &stage_error));
    IS(HF_LOST, hf_release(lock, &stage_error));
    done();
}

/* ---- fences, looks ---- */

static void a_fence_is_raised_until_it_is_heard(void **state)
{
    (void)state;
    begin(SERVER);
    OK(stage_acquire(h, "k", 0, 60000, HF_NO_RENEW, &lock));
    OK(hf_enter(lock, NULL, &stage_error));
    uint64_t before = stage_calls(S_ENTER);
    stage_cue(S_ENTER, 1, 2, INSTEAD, HF_UNKNOWN, NULL);
    OK(hf_enter(lock, NULL, &stage_error));
    assert_int_equal(stage_calls(S_ENTER) - before, 3);
    stage_cue(S_ENTER, 1, 1000, INSTEAD, HF_UNKNOWN, NULL);
    IS(HF_UNKNOWN, hf_enter(lock, NULL, &stage_error));
    stage_uncue();
    stage_cue(S_ENTER, 1, 1, INSTEAD, HF_UNSUPPORTED, NULL);
    IS(HF_UNSUPPORTED, hf_enter(lock, NULL, &stage_error));
    stage_cue(S_ENTER, 1, 1, INSTEAD, HF_LOST, NULL);
    IS(HF_LOST, hf_enter(lock, NULL, &stage_error));
    before = stage_calls(S_ENTER);
    IS(HF_LOST, hf_enter(lock, NULL, &stage_error)); /* the handle knows of the loss by now */
    assert_int_equal(stage_calls(S_ENTER), before);
    stage_driver.enter = NULL;
    IS(HF_UNSUPPORTED, hf_enter(lock, NULL, &stage_error));
    IS(HF_LOST, hf_release(lock, &stage_error));
    done();
}

static void a_look_that_fails_proves_nothing(void **state)
{
    (void)state;
    begin(SERVER);
    OK(stage_acquire(h, "k", 0, 60000, HF_NO_RENEW, &lock));
    OK(hf_confirm(lock, &stage_error));
    stage_cue(S_GET, 1, 1, INSTEAD, HF_UNAVAILABLE, NULL);
    IS(HF_UNAVAILABLE, hf_confirm(lock, &stage_error));
    OK(hf_confirm(lock, &stage_error));
    break_it();
    IS(HF_LOST, hf_confirm(lock, &stage_error));
    assert_true(hf_left_ms(lock) == 0);
    IS(HF_LOST, hf_release(lock, &stage_error));
    done();
}

static void adopting_asks_the_store(void **state)
{
    (void)state;
    hf_lock *mine;
    begin(SERVER);
    OK(stage_acquire(rival, "k", 0, 60000, HF_NO_RENEW | HF_DETACHED, &other));
    uint64_t token = hf_token(other);
    stage_cue(S_GET, 1, 1, INSTEAD, HF_UNAVAILABLE, NULL);
    IS(HF_UNAVAILABLE, hf_adopt(h, "k", token, &mine, &stage_error));
    IS(HF_INVALID, hf_adopt(h, "", token, &mine, &stage_error));
    IS(HF_LOST, hf_adopt(h, "k", token + 1, &mine, &stage_error));
    OK(hf_adopt(h, "k", token, &mine, &stage_error));
    OK(hf_release(mine, &stage_error));
    IS(HF_LOST, hf_adopt(h, "k", token, &mine, &stage_error));
    IS(HF_LOST, hf_release(other, &stage_error));
    OK(stage_acquire(rival, "k", 0, 100, HF_NO_RENEW | HF_DETACHED, &other));
    while (hf_left_ms(other) > 0) hf__pause(1000);
    hf__pause(10000);
    IS(HF_LOST, hf_adopt(h, "k", hf_token(other), &mine, &stage_error));
    IS(HF_LOST, hf_release(other, &stage_error));
    done();
}

/* A driver that may not be called by two threads at once. */
static int inside;

static void alone(void)
{
    assert_int_equal(__atomic_add_fetch(&inside, 1, __ATOMIC_SEQ_CST), 1);
    hf__pause(2000);
    __atomic_sub_fetch(&inside, 1, __ATOMIC_SEQ_CST);
}

static void *take_turns(void *arg)
{
    hf_lock *l;
    for (int i = 0; i < 5; i++)
        if (!stage_acquire(h, arg, 0, 60000, HF_NO_RENEW, &l)) hf_release(l, NULL);
    return NULL;
}

static void a_driver_that_bears_no_threads_sees_one(void **state)
{
    (void)state;
    static char one[] = "one", two[] = "two";
    pthread_t thread[2];
    stage(SERVER);
    stage_driver.caps.threads = 0;
    h = stage_open("a");
    rival = stage_open("rival");
    stage_cue(S_GET, 1, 1 << 30, INSTEAD, 0, alone);
    stage_cue(S_SWAP, 1, 1 << 30, INSTEAD, 0, alone);
    stage_cue(S_ACQUIRE, 1, 1 << 30, INSTEAD, 0, alone);
    assert_int_equal(pthread_create(&thread[0], NULL, take_turns, one), 0);
    assert_int_equal(pthread_create(&thread[1], NULL, take_turns, two), 0);
    for (int i = 0; i < 2; i++) pthread_join(thread[i], NULL);
    done();
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_release_that_landed_unheard_is_one),
        cmocka_unit_test(a_release_whose_key_moved_on_is_one),
        cmocka_unit_test(a_release_of_what_was_broken_is_lost),
        cmocka_unit_test(a_release_never_heard_of_says_so),
        cmocka_unit_test(what_is_over_is_given_back_with_one_request),
        cmocka_unit_test(what_could_not_be_given_back_is_tried_again),
        cmocka_unit_test(a_renewal_looks_again_while_the_store_is_away),
        cmocka_unit_test(who_gives_back_writes_until_it_lands),
        cmocka_unit_test(who_wants_to_get_in_line_isnt_in_a_hurry),
        cmocka_unit_test(who_asks_in_vain_is_told),
        cmocka_unit_test(who_is_overtaken_takes),
        cmocka_unit_test(who_is_overtaken_is_no_crowd),
        cmocka_unit_test(who_claims_in_vain_is_told),
        cmocka_unit_test(a_mark_that_landed_unheard_is_made),
        cmocka_unit_test(only_our_own_mark_is_proof),
        cmocka_unit_test(a_mark_that_is_broken_is_lost),
        cmocka_unit_test(a_mark_that_fails_gives_the_key_back),
        cmocka_unit_test(a_result_is_cut_between_letters),
        cmocka_unit_test(a_break_that_landed_unheard_is_one),
        cmocka_unit_test(a_fence_is_raised_until_it_is_heard),
        cmocka_unit_test(a_look_that_fails_proves_nothing),
        cmocka_unit_test(adopting_asks_the_store),
        cmocka_unit_test(a_driver_that_bears_no_threads_sees_one),
    };
    return TEST_MAIN(tests);
}
