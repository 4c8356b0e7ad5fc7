/*
 * told_test.c - payloads of notifications: a client that gets the row by one doesn't read it. A
 * payload that is old, overtaken or wrong costs requests and nothing else.
 */
#include "staged.h"
#include "test.h"

#include <errno.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- what the store tells ---- */

enum { NOTHING, THE_ROW, THE_HOLDER, THE_WORD };
static int tells; /* atomic: one of these */
static hf_row word;
static hf *rival; /* whose requests are nobody's */

static void look(hf_row *row)
{
    hf_rowkey key;
    int64_t clock_us;
    OK(hf_key_make("k", &key, &stage_error));
    OK(stage_driver.get(rival->port.st, &key, row, &clock_us, &stage_error));
}

static int told(hf_store *st, const hf_rowkey *key, hf_row *row)
{
    int how = __atomic_load_n(&tells, __ATOMIC_ACQUIRE);
    (void)st;
    if (strcmp(key->text, "k") != 0 || how == NOTHING) return 0;
    if (how == THE_WORD) return !hf_row_copy(row, &word);
    look(row);
    if (how == THE_ROW) return row->rev != 0;
    row->rev = 0;
    row->n_queue = 0;
    return row->n_holders == 1;
}

static void tell(int how) { __atomic_store_n(&tells, how, __ATOMIC_RELEASE); }

/* Makes the present row the payload of all notifications from here on. */
static void keep_the_word(void)
{
    look(&word);
    tell(THE_WORD);
}

/* ---- three handles that want one key ---- */

static struct party {
    hf *h;
    hf_wait *wait;
    hf_lock *lock;
    sem_t done;
    int code;
    hf_error err;
} a, b, c;

static void done(void *arg, int code, hf_lock *lock, const hf_error *err)
{
    struct party *p = arg;
    if (err) p->err = *err;
    p->code = code;
    p->lock = lock;
    sem_post(&p->done);
}

static void begin(void)
{
    struct party *all[] = {&a, &b, &c};
    stage(STAGE_WATCHES); /* a waiter is woken for each change */
    stage_notify.payload = told;
    tell(NOTHING);
    hf_row_init(&word);
    rival = stage_open("rival");
    for (int i = 0; i < 3; i++) {
        memset(all[i], 0, sizeof *all[i]);
        sem_init(&all[i]->done, 0, 0);
        all[i]->h = stage_open("a");
    }
}

static void end(void)
{
    struct party *all[] = {&a, &b, &c};
    tell(NOTHING);
    for (int i = 0; i < 3; i++) {
        hf_close(all[i]->h);
        hf_wait_free(all[i]->wait);
    }
    hf_close(rival);
    hf_row_clear(&word);
}

static uint64_t asked(const struct party *p)
{
    hf_stats s = {.size = sizeof s};
    OK(hf_get_stats(p->h, &s));
    return s.store_ops;
}

/* Waits until n waits are at the store. */
static void await_line(uint32_t n)
{
    hf_row row;
    hf_row_init(&row);
    for (look(&row); row.n_queue != n; look(&row)) usleep(1000);
    hf_row_clear(&row);
}

/* Starts a wait that is queued, has subscribed, and has looked once more. */
static void wait_behind(struct party *p, uint32_t place)
{
    hf_options o = HF_OPTIONS_INIT;
    uint64_t watched = stage_calls(S_WATCH);
    OK(hf_acquire_start(p->h, "k", &o, done, p, &p->wait, &stage_error));
    await_line(place + 1);
    stage_await(S_WATCH, watched + 1);
}

/* Wakes the waiters, and returns when they have made the looks that follow. */
static void wake_all(void)
{
    static int times;
    char key[32];
    hf_lock *other;
    uint64_t watched = stage_calls(S_WATCH);
    snprintf(key, sizeof key, "other/%d", times++);
    OK(hf_acquire(rival, key, NULL, &other, &stage_error));
    stage_await(S_WATCH, watched + 1);
}

static void await_done(struct party *p)
{
    while (sem_wait(&p->done)) assert_int_equal(errno, EINTR);
    if (p->code) fail_msg("%s: %s", hf_code_name(p->code), p->err.text);
}

/* Nobody holds, nobody waits. */
static void is_free(void)
{
    hf_row row;
    hf_row_init(&row);
    look(&row);
    assert_int_equal(row.n_holders, 0);
    assert_int_equal(row.n_queue, 0);
    hf_row_clear(&row);
}

/* a holds; b waits behind it, and gets the key. Returns how many requests b makes for that. */
static uint64_t handed(int how)
{
    OK(hf_acquire(a.h, "k", NULL, &a.lock, &stage_error));
    wait_behind(&b, 0);
    uint64_t before = asked(&b);
    tell(how);
    OK(hf_release(a.lock, &stage_error));
    await_done(&b);
    return asked(&b) - before;
}

/* ---- tests ---- */

static void who_is_told_does_not_ask(void **state)
{
    (void)state;
    static const struct {
        int how;
        uint64_t asks;
    } expected[] = {{THE_ROW, 0}, {THE_HOLDER, 0}, {NOTHING, 1}};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        uint64_t least = UINT64_MAX;
        for (int round = 0; round < 5; round++) { /* the renewer may make the claim meanwhile */
            begin();
            uint64_t asks = handed(expected[i].how);
            if (asks < least) least = asks;
            OK(hf_release(b.lock, &stage_error));
            is_free();
            end();
        }
        assert_int_equal(least, expected[i].asks);
    }
}

static void a_word_about_another_key_is_no_reason_to_look(void **state)
{
    (void)state;
    for (int told_of = 1; told_of >= 0; told_of--) {
        begin();
        OK(hf_acquire(a.h, "k", NULL, &a.lock, &stage_error));
        wait_behind(&b, 0);
        if (told_of) keep_the_word();
        uint64_t before = asked(&b);
        wake_all();
        if (told_of)
            assert_int_equal(asked(&b), before);
        else
            assert_true(asked(&b) > before);
        tell(NOTHING);
        OK(hf_release(a.lock, &stage_error));
        await_done(&b);
        OK(hf_release(b.lock, &stage_error));
        end();
    }
}

/* The first waiter behind the holder is known: the release needs no blind write and no read. */
static void who_hears_of_a_waiter_gives_on_at_once(void **state)
{
    (void)state;
    uint64_t least = UINT64_MAX;
    for (int round = 0; round < 5; round++) {
        begin();
        handed(THE_ROW);
        wait_behind(&c, 0);
        uint64_t before = asked(&b);
        OK(hf_release(b.lock, &stage_error));
        if (asked(&b) - before < least) least = asked(&b) - before;
        await_done(&c);
        OK(hf_release(c.lock, &stage_error));
        is_free();
        end();
    }
    assert_int_equal(least, 1);
}

static void who_hears_of_a_waiter_renews_in_one(void **state)
{
    (void)state;
    begin();
    handed(THE_ROW);
    tell(NOTHING);
    wait_behind(&c, 0);
    tell(THE_ROW);
    OK(hf_renew(b.lock, 30000, &stage_error)); /* and the renewer has nothing to do meanwhile */
    uint64_t before = asked(&b);
    OK(hf_renew(b.lock, 30000, &stage_error));
    assert_int_equal(asked(&b) - before, 1);
    OK(hf_release(b.lock, &stage_error));
    assert_int_equal(asked(&b) - before, 2);
    await_done(&c);
    OK(hf_release(c.lock, &stage_error));
    is_free();
    end();
}

/* The notification came before the second waiter was queued: that waiter isn't lost. */
static void a_word_that_was_overtaken_loses_nobody(void **state)
{
    (void)state;
    begin();
    handed(THE_ROW);
    keep_the_word();
    wait_behind(&c, 0);
    OK(hf_release(b.lock, &stage_error));
    tell(NOTHING);
    await_done(&c);
    assert_true(hf_token(c.lock) > word.token);
    OK(hf_release(c.lock, &stage_error));
    is_free();
    end();
}

/* A write upon a payload's row compares the rev: a false payload brings no party into the row. */
static void a_row_that_never_was_is_not_written(void **state)
{
    (void)state;
    begin();
    handed(THE_ROW);
    look(&word);
    assert_int_equal(hf_row_room(&word, 2), 0);
    word.rev++;
    word.n_queue = 1;
    word.party[1] = word.party[0];
    word.party[1].token = 0;
    memset(word.party[1].id, 7, 16);
    tell(THE_WORD);
    OK(hf_renew(b.lock, 30000, &stage_error));
    OK(hf_release(b.lock, &stage_error));
    is_free();
    end();
}

/* A row in which the grant is missing, or over, isn't used either. */
static void a_row_without_the_grant_is_no_loss(void **state)
{
    (void)state;
    for (int flags = 0; flags <= HF_PARTY_ENDING; flags += HF_PARTY_ENDING) {
        begin();
        handed(THE_ROW);
        look(&word);
        word.rev++;
        word.party[0].flags |= (uint8_t)flags;
        word.party[0].token += !flags;
        tell(THE_WORD);
        OK(hf_renew(b.lock, 30000, &stage_error));
        OK(hf_confirm(b.lock, &stage_error));
        OK(hf_release(b.lock, &stage_error));
        is_free();
        end();
    }
}

/* b waits behind a, and gets a payload with a grant that isn't in the row. */
static void tell_of(hf_party *(*grant)(void), int64_t expires_us)
{
    begin();
    OK(hf_acquire(a.h, "k", NULL, &a.lock, &stage_error));
    wait_behind(&b, 0);
    look(&word);
    word.party[0] = *grant();
    word.rev = 0;
    word.n_queue = 0;
    word.party[0].flags = HF_PARTY_UNCLAIMED;
    if (expires_us) word.party[0].expires_us = expires_us;
    tell(THE_WORD);
}

/* b doesn't hold, and gets the key when it is its turn. */
static void end_in_order(void)
{
    assert_int_equal(sem_trywait(&b.done), -1);
    tell(NOTHING);
    OK(hf_release(a.lock, &stage_error));
    await_done(&b);
    OK(hf_confirm(b.lock, &stage_error));
    OK(hf_release(b.lock, &stage_error));
    end();
}

/* Another grant than the one that a had when b was queued. */
static hf_party *of_a(void)
{
    word.party[0].token = word.token = word.rev + 1;
    return &word.party[0];
}

static hf_party *of_b_long_ago(void)
{
    hf_party *p = &word.party[1];
    p->token = word.token = p->since_us = 1;
    p->expires_us = 2;
    return p;
}

/* The claim timeout isn't over yet, but the key has been released since, and b was queued anew. */
static hf_party *of_b_just_now(void)
{
    hf_party *p = &word.party[1];
    p->token = word.token = p->since_us = (int64_t)word.rev;
    return p;
}

/* A payload that names a holder and its end, but no grant. */
static hf_party *of_b_without_a_token(void)
{
    word.party[1].token = 0;
    return &word.party[1];
}

/* Handed over by an earlier grant of the same request, or by none. */
static void a_word_that_hands_nothing_over_is_looked_into(void **state)
{
    (void)state;
    hf_party *(*const told_of[])(void) = {of_b_long_ago, of_b_just_now, of_b_without_a_token};
    for (int i = 0; i < 3; i++) {
        tell_of(told_of[i], i ? hf__day_us() + 30000000 : 0);
        uint64_t before = asked(&b);
        wake_all();
        assert_true(asked(&b) > before);
        end_in_order();
    }
}

/* The key was handed to another waiter: a queued waiter doesn't look earlier because of that. */
static void a_word_that_hands_it_to_another(void **state)
{
    enum { SOON_US = 2000000, TIMES = 20 };
    int64_t from_us;
    (void)state;
    for (int i = 0;; i++) {
        from_us = hf__local_us();
        tell_of(of_a, 0);
        uint64_t before = asked(&b);
        wake_all();
        uint64_t after = asked(&b);
        /* otherwise its own next look may have come */
        int soon = hf__local_us() - from_us < SOON_US;
        end_in_order();
        if (after == before) break;
        assert_true(!soon && i < TIMES);
    }
    /* It looks when that waiter's time is over. Repeated, until the machine isn't too busy to show
       it. */
    for (int i = 0, quick = 0; !quick; i++) {
        assert_true(i < 5);
        from_us = hf__local_us();
        tell_of(of_a, hf__day_us() + 200000);
        uint64_t before = asked(&b);
        wake_all();
        while (asked(&b) == before) usleep(1000);
        quick = hf__local_us() - from_us < SOON_US;
        end_in_order();
    }
}

/* Grants that last as long as a session, whose end no payload has; or two holders, which no payload
   names. */
static hf_party *of_a_without_an_end(void)
{
    word.party[0].expires_us = 0;
    return &word.party[0];
}

static void a_word_without_a_time(void **state)
{
    (void)state;
    for (int two = 0; two < 2; two++) {
        tell_of(of_a_without_an_end, 0);
        if (two) {
            tell(NOTHING);
            word.n_holders = 2;
            tell(THE_WORD);
        }
        wake_all();
        end_in_order();
    }
}

/* A payload from an earlier subscription is nothing to a wait whose subscription is lost. */
static void a_disconnected_wait_believes_no_payload(void **state)
{
    (void)state;
    tell_of(of_a, 0);
    stage_cue(S_LISTEN, 1, 1 << 20, INSTEAD, HF_UNAVAILABLE, NULL);
    uint64_t before = asked(&b);
    OK(hf_acquire(rival, "other", NULL, &c.lock, &stage_error)); /* which wakes it */
    while (asked(&b) == before) usleep(1000);
    stage_uncue();
    end_in_order();
}

/* The payload may be old: too little time is left for a claim. */
static void a_word_that_comes_late_is_looked_into(void **state)
{
    (void)state;
    enum { QUARTER_US = 10000000, MOST_US = 30000000 };
    for (int late = 0; late < 2; late++) {
        begin();
        stage_driver.caps.poll_ms = 10000; /* a claim may take four times as long */
        hf_close(b.h);
        b.h = stage_open("a");
        OK(hf_acquire(a.h, "k", NULL, &a.lock, &stage_error));
        wait_behind(&b, 0);
        look(&word);
        assert_int_equal(word.party[1].claim_ms, 40000);
        word.party[0] = word.party[1];
        word.party[0].token = word.rev + 1;
        word.party[0].flags = HF_PARTY_UNCLAIMED;
        word.party[0].expires_us = hf__day_us() + (late ? QUARTER_US : MOST_US);
        word.rev = 0;
        word.n_queue = 0;
        tell(THE_WORD);
        uint64_t before = asked(&b);
        wake_all();
        if (late) {
            assert_true(asked(&b) > before);
            assert_int_equal(sem_trywait(&b.done), -1);
            tell(NOTHING);
            OK(hf_release(a.lock, &stage_error));
        }
        await_done(&b);
        if (late) OK(hf_release(b.lock, &stage_error));
        end();
        hf_row_clear(&word);
    }
}

/* The store has lost its rows, and its clock was behind: the new row's rev is below the old one. */
static void a_row_that_began_anew_is_looked_at(void **state)
{
    (void)state;
    begin();
    OK(hf_acquire(a.h, "k", NULL, &a.lock, &stage_error));
    wait_behind(&b, 0);
    look(&word);
    word.rev = word.token = 7;
    word.n_queue = 0;
    word.party[0] = word.party[1];
    word.party[0].token = 7;
    word.party[0].flags = HF_PARTY_UNCLAIMED;
    tell(THE_WORD);
    uint64_t before = asked(&b);
    wake_all();
    assert_true(asked(&b) > before);
    tell(NOTHING);
    OK(hf_release(a.lock, &stage_error));
    await_done(&b);
    OK(hf_release(b.lock, &stage_error));
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_is_told_does_not_ask),
        cmocka_unit_test(a_word_about_another_key_is_no_reason_to_look),
        cmocka_unit_test(who_hears_of_a_waiter_gives_on_at_once),
        cmocka_unit_test(who_hears_of_a_waiter_renews_in_one),
        cmocka_unit_test(a_word_that_was_overtaken_loses_nobody),
        cmocka_unit_test(a_row_that_never_was_is_not_written),
        cmocka_unit_test(a_row_without_the_grant_is_no_loss),
        cmocka_unit_test(a_word_that_hands_nothing_over_is_looked_into),
        cmocka_unit_test(a_word_that_hands_it_to_another),
        cmocka_unit_test(a_word_without_a_time),
        cmocka_unit_test(a_disconnected_wait_believes_no_payload),
        cmocka_unit_test(a_word_that_comes_late_is_looked_into),
        cmocka_unit_test(a_row_that_began_anew_is_looked_at),
    };
    return TEST_MAIN(tests);
}
