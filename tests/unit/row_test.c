/*
 * row_test.c - the row's memory, its copy, its comparison, its check, its acquire.
 */
#include "holdfast_driver.h"
#include "step.h"
#include "test.h"

#include <stdio.h>
#include <string.h>

static hf_party party(uint32_t n)
{
    hf_party p;
    memset(&p, 0, sizeof p);
    memcpy(p.id, &n, sizeof n);
    p.id[15] = 1;
    p.since_us = 5;
    p.session = 9;
    p.owner_len = (uint8_t)snprintf(p.owner, sizeof p.owner, "owner-%u", n);
    p.note_len = (uint8_t)snprintf(p.note, sizeof p.note, "%0*u", (int)(n * 37 % 256), n);
    if (n == 0) p.note_len = 0, p.note[0] = 0;
    return p;
}

/* Makes a legal row with so many parties, and a marker. */
static void fill(hf_row *row, uint32_t holders, uint32_t queue)
{
    hf_row_init(row);
    assert_int_equal(hf_row_room(row, (size_t)holders + queue), 0);
    row->rev = 100 + holders;
    row->token = holders ? 99 + holders : 50;
    row->n_holders = holders;
    row->n_queue = queue;
    row->done_us = 7;
    row->keep_until_us = INT64_MAX;
    row->done_by_len = 2;
    memcpy(row->done_by, "me", 3);
    row->result_len = 4;
    memcpy(row->result, "done", 5);
    for (uint32_t i = 0; i < holders + queue; i++) {
        row->party[i] = party(i);
        if (i < holders) row->party[i].token = 100 + i;
        if (i < holders && i % 3 == 1) row->party[i].expires_us = 1000;
    }
}

static void an_empty_row_is_no_row(void **state)
{
    (void)state;
    hf_row row;
    const char *why = "";
    memset(&row, 'x', sizeof row);
    hf_row_init(&row);
    assert_int_equal(row.rev, 0);
    assert_int_equal(row.n_holders + row.n_queue, 0);
    assert_true(row.cap >= 1);
    assert_int_equal(hf_row_check(&row, &why), 0);
    hf_row_clear(&row);
    assert_int_equal(row.rev, 0);
}

static void a_copy_is_equal_and_independent(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {0, 1, 2, 3, 5, 300, 1, 0};
    hf_row to;
    hf_row_init(&to);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        hf_row from;
        fill(&from, sizes[i] / 2, sizes[i] - sizes[i] / 2);
        assert_int_equal(hf_row_copy(&to, &from), 0);
        assert_true(hf_row_equal(&to, &from));
        if (sizes[i]) {
            assert_ptr_not_equal(to.party, from.party);
            from.party[0].owner[0] = 'X';
            assert_false(hf_row_equal(&to, &from));
        }
        hf_row_clear(&from);
    }
    hf_row_clear(&to);
}

static void room_keeps_what_is_there(void **state)
{
    (void)state;
    hf_row row, before;
    fill(&row, 1, 1);
    hf_row_init(&before);
    assert_int_equal(hf_row_copy(&before, &row), 0);
    for (size_t n = 1; n < 2000; n = n * 3 + 1) {
        assert_int_equal(hf_row_room(&row, n), 0);
        assert_true(row.cap >= n);
        assert_true(hf_row_equal(&row, &before));
    }
    hf_row_clear(&row);
    hf_row_clear(&before);
}

/* Each field, changed alone, makes a difference. */
static void every_field_is_compared(void **state)
{
    (void)state;
    hf_row a, b;
    fill(&a, 1, 1);
    hf_row_init(&b);
#define DIFFERS(change)                           \
    do {                                          \
        assert_int_equal(hf_row_copy(&b, &a), 0); \
        assert_true(hf_row_equal(&a, &b));        \
        change;                                   \
        assert_false(hf_row_equal(&a, &b));       \
    } while (0)
    DIFFERS(b.rev++);
    DIFFERS(b.token++);
    DIFFERS(b.done_us++);
    DIFFERS(b.done_us = 0);
    DIFFERS(b.keep_until_us--);
    DIFFERS(b.done_by[1] = 'y');
    DIFFERS((b.done_by[2] = 'y', b.done_by[3] = 0, b.done_by_len = 3));
    DIFFERS(b.result[0] = 'D');
    DIFFERS(b.result_len = 3);
    DIFFERS((b.n_holders = 2, b.n_queue = 0));
    DIFFERS(b.n_queue = 0);
    DIFFERS(b.party[1].id[15]++);
    DIFFERS(b.party[0].token++);
    DIFFERS(b.party[1].since_us++);
    DIFFERS(b.party[0].expires_us++);
    DIFFERS(b.party[0].session++);
    DIFFERS(b.party[0].lease_ms++);
    DIFFERS(b.party[0].claim_ms++);
    DIFFERS(b.party[0].limit++);
    DIFFERS(b.party[0].mode++);
    DIFFERS(b.party[0].flags++);
    DIFFERS(b.party[0].wakeup++);
    DIFFERS(b.party[1].owner[0]++);
    DIFFERS(b.party[1].owner_len--);
    DIFFERS(b.party[1].note[3]++);
    DIFFERS(b.party[1].note_len--);
#undef DIFFERS
    hf_row_clear(&a);
    hf_row_clear(&b);
}

/* Each illegal row is refused with the reason. */
static void what_is_illegal_is_found(void **state)
{
    (void)state;
    hf_row a, b;
    const char *why;
    fill(&a, 2, 1);
    for (int i = 0; i < 2; i++) {
        a.party[i].mode = HF_LIMITED;
        a.party[i].limit = 2;
    }
    hf_row_init(&b);
    assert_int_equal(hf_row_check(&a, &why), 0);
#define ILLEGAL(change, text)                                       \
    do {                                                            \
        assert_int_equal(hf_row_copy(&b, &a), 0);                   \
        why = "";                                                   \
        change;                                                     \
        assert_int_equal(hf_row_check(&b, &why), HF_CORRUPT);       \
        if (!strstr(why, text)) fail_msg("%s: '%s'", #change, why); \
    } while (0)
    ILLEGAL(b.rev = 0, "without a rev");
    ILLEGAL(b.token = b.rev + 1, "token above rev");
    ILLEGAL(b.rev = UINT64_C(1) << 53, "2^53");
    ILLEGAL(b.done_us = -1, "negative");
    ILLEGAL(b.keep_until_us = -1, "negative");
    ILLEGAL(b.result_len = HF_RESULT_CAP, "result");
    ILLEGAL(b.result[1] = 0, "result");
    ILLEGAL(b.result[4] = 'x', "result");
    ILLEGAL(b.done_by_len = HF_OWNER_CAP, "marker's owner");
    ILLEGAL(b.party[0].token = 0, "without a token");
    ILLEGAL(b.party[0].token = b.token + 1, "above the last");
    ILLEGAL(b.party[2].token = 1, "waiter with a token");
    ILLEGAL(b.party[0].session = 0, "never end");
    ILLEGAL(b.party[2].mode = 3, "mode");
    ILLEGAL(b.party[1].limit = 0, "limit");
    ILLEGAL(b.party[2].since_us = -1, "negative");
    ILLEGAL(b.party[0].expires_us = -1, "negative");
    ILLEGAL(b.party[0].owner_len = HF_OWNER_CAP, "owner");
    ILLEGAL(b.party[2].owner[b.party[2].owner_len] = 'x', "owner");
    ILLEGAL((b.party[0].owner_len = 7, memcpy(b.party[0].owner, "(ended)", 8)), "reserved");
    ILLEGAL((b.party[2].owner_len = 7, memcpy(b.party[2].owner, "(ended)", 8)), "reserved");
    ILLEGAL(b.party[2].note[0] = 0, "note");
    ILLEGAL(b.party[2].note_len = 255, "note");
#undef ILLEGAL
    hf_row_clear(&a);
    hf_row_clear(&b);
}

static void revs_follow_the_clock_and_never_fall(void **state)
{
    (void)state;
    assert_int_equal(hf_rev_next(0, 0), 1);
    assert_int_equal(hf_rev_next(7, 0), 8);
    assert_int_equal(hf_rev_next(7, -5), 8);
    assert_int_equal(hf_rev_next(7, 8), 8);
    assert_int_equal(hf_rev_next(7, 7), 8);
    assert_int_equal(hf_rev_next(7, 1000), 1000);
    assert_int_equal(hf_rev_next(1000, 7), 1001);
}

/* Checks that the result is HF_CONFLICT, and that the row stays as it is. */
static void refuses(const hf_row *row, const hf_party *p, uint32_t may_queue, int64_t clock_us)
{
    hf_row copy;
    hf_row_init(&copy);
    assert_int_equal(hf_row_copy(&copy, row), 0);
    assert_int_equal(hf_row_acquire(&copy, p, may_queue, clock_us), HF_CONFLICT);
    assert_true(hf_row_equal(&copy, row));
    hf_row_clear(&copy);
}

static void acquire_appends_behind_one_holder(void **state)
{
    (void)state;
    hf_row row;
    hf_party p = party(3);
    hf_row_init(&row);
    row.rev = 5;
    row.n_queue = 1;
    row.party[0] = party(1);
    refuses(&row, &p, 9, 5000); /* nobody holds */
    row.n_holders = 1;
    row.n_queue = 0;
    row.party[0].expires_us = 6000;
    refuses(&row, &p, 0, 5000);
    refuses(&row, &p, 9, 6000); /* at this moment the holder's time is over */
    row.party[0].mode = HF_SHARED;
    refuses(&row, &p, 9, 5000);
    row.party[0].mode = HF_EXCLUSIVE;
    p.token = 7;
    p.expires_us = 8;
    p.mode = HF_SHARED;
    assert_int_equal(hf_row_acquire(&row, &p, 1, 5999), 0);
    assert_true(row.rev == 5999 && row.n_holders == 1 && row.n_queue == 1);
    assert_true(row.party[1].since_us == 5999 && !row.party[1].expires_us && !row.party[1].token);
    assert_memory_equal(row.party[1].id, p.id, sizeof p.id);
    refuses(&row, &row.party[0], 9, 5000); /* it holds */
    refuses(&row, &row.party[1], 9, 5000); /* it waits */
    p = party(4);
    p.flags = HF_PARTY_DETACHED;
    refuses(&row, &p, 9, 5000);
    p.flags = HF_PARTY_UNCLAIMED;
    refuses(&row, &p, 1, 5000);                            /* no place is left */
    assert_int_equal(hf_row_acquire(&row, &p, 2, 100), 0); /* a clock that is behind the rev */
    assert_true(row.rev == 6000 && row.n_queue == 2 && !row.party[2].flags);
    assert_int_equal(row.party[1].mode, HF_SHARED);
    hf_row_clear(&row);
}

static void acquire_grants_what_is_free(void **state)
{
    (void)state;
    hf_row row, before;
    hf_party p = party(3);
    hf_row_init(&row);
    hf_row_init(&before);
    assert_int_equal(hf_row_acquire(&row, &p, 0, 5000), 0);
    assert_true(row.rev == 5000 && row.token == 5000 && row.party[0].token == 5000);
    assert_true(row.n_holders == 1 && !row.n_queue);
    assert_true(row.party[0].since_us == 5000 && !row.party[0].expires_us);
    assert_int_equal(hf_row_copy(&before, &row), 0);
    assert_int_equal(hf_row_acquire(&row, &p, 0, 6000), HF_CONFLICT);
    assert_true(hf_row_equal(&row, &before));
    row.n_holders = 0;
    row.n_queue = 1;
    assert_int_equal(hf_row_acquire(&row, &p, 0, 6000), HF_CONFLICT);
    row.n_queue = 0;
    row.done_us = 3;
    p.lease_ms = 20;
    p.claim_ms = 1000;                                     /* the request has claimed already */
    assert_int_equal(hf_row_acquire(&row, &p, 0, 100), 0); /* a clock that is behind the rev */
    assert_true(row.rev == 5001 && row.token == 5001 && row.done_us == 3);
    assert_int_equal(row.party[0].expires_us, 20100);
    assert_int_equal(row.party[0].claim_ms, 0);
    hf__row_taken(&row, &p);
    assert_int_equal(row.party[0].claim_ms, 0);
    row.n_holders = 0;
    p.flags = HF_PARTY_DETACHED | HF_PARTY_UNCLAIMED;
    p.session = 5;
    assert_int_equal(hf_row_acquire(&row, &p, 0, 200), 0);
    assert_true(!row.party[0].session && row.party[0].flags == HF_PARTY_DETACHED);
    hf_row_clear(&row);
    hf_row_clear(&before);
}

/* Its grant has ended in this way: then the same request comes too late. */
static void comes_late(hf_row *row, struct hf_event end)
{
    hf_row free_row, before;
    hf_party p = party(3), other = party(4);
    hf_row_init(&free_row);
    hf_row_init(&before);
    end.now = (struct hf_time){9000, 9000};
    hf__step(row, &end);
    assert_true(!row->n_holders && !row->n_queue);
    assert_int_equal(hf_row_copy(&free_row, row), 0);
    assert_int_equal(hf_row_copy(&before, row), 0);
    assert_int_equal(hf_row_acquire(&free_row, &p, 0, 10000), HF_CONFLICT);
    assert_true(hf_row_equal(&free_row, &before));
    assert_int_equal(hf_row_acquire(&free_row, &other, 0, 10000), 0);
    hf_row_clear(row);
    hf_row_clear(&free_row);
    hf_row_clear(&before);
}

static void acquire_refuses_whose_grant_ended_last(void **state)
{
    (void)state;
    hf_row row;
    hf_party p = party(3);
    p.lease_ms = 1;
    hf_row_init(&row);
    assert_int_equal(hf_row_acquire(&row, &p, 0, 5000), 0);
    comes_late(&row, (struct hf_event){.kind = HF_EV_RELEASE, .token = row.token});
    assert_int_equal(hf_row_acquire(&row, &p, 0, 5000), 0);
    comes_late(&row, (struct hf_event){.kind = HF_EV_BREAK, .token = row.token});
    assert_int_equal(hf_row_acquire(&row, &p, 0, 5000), 0);
    comes_late(&row, (struct hf_event){.kind = HF_EV_PROMOTE}); /* its lease is over */
    /* The request is given up while it isn't known whether it was granted. */
    struct hf_event gives_up = {.kind = HF_EV_WITHDRAW, .maybe_done = 1};
    memcpy(gives_up.id, p.id, sizeof p.id);
    comes_late(&row, gives_up);
    /* A waiter that went away hasn't held. */
    assert_int_equal(hf_row_room(&row, 2), 0);
    row.n_queue = 1;
    row.party[0] = p;
    row.rev = 5000;
    gives_up.maybe_done = 0;
    hf__step(&row, &gives_up);
    assert_int_equal(hf_row_acquire(&row, &p, 0, 10000), 0);
    hf_row_clear(&row);
}

static void the_end_of_a_row_is_its_first(void **state)
{
    (void)state;
    hf_row row;
    hf_row_init(&row);
    assert_int_equal(hf_row_room(&row, 4), 0);
    row.n_holders = 4;
    for (uint32_t i = 0; i < 4; i++) row.party[i] = party(i + 1);
    static const int64_t ends[] = {0, 700, 500, 600};
    for (uint32_t i = 0; i < 4; i++) row.party[i].expires_us = ends[i];
    assert_int_equal(hf_row_end(&row), 500);
    row.party[2].flags = HF_PARTY_UNCLAIMED; /* a claim isn't a lease */
    assert_int_equal(hf_row_end(&row), 600);
    row.n_holders = 1;
    assert_int_equal(hf_row_end(&row), 0);
    hf_row_clear(&row);
}

static void content_needs_a_rev(void **state)
{
    (void)state;
    const char *why = NULL;
    hf_row row;
    for (int i = 0; i < 4; i++) {
        hf_row_init(&row);
        row.n_holders = i == 0;
        row.n_queue = i == 1;
        row.token = i == 2;
        row.done_us = i == 3;
        assert_int_equal(hf_row_check(&row, &why), HF_CORRUPT);
        assert_string_equal(why, "content without a rev");
    }
}

/* Pruning deletes rows that have been free and idle for long, and no others. */
static void what_may_be_pruned(void **state)
{
    (void)state;
    const struct hf_time now = {5000, 5000};
    hf_row row;
    hf_row_init(&row);
    assert_false(hf__prunable(&row, now, 1000)); /* none */
    row.rev = 4000;
    assert_true(hf__prunable(&row, now, 1000));
    assert_false(hf__prunable(&row, now, 1001));
    row.n_holders = 1;
    assert_false(hf__prunable(&row, now, 1000));
    row.n_holders = 0;
    row.n_queue = 1;
    assert_false(hf__prunable(&row, now, 1000));
    row.n_queue = 0;
    row.done_us = 1;
    row.keep_until_us = 6000;
    assert_false(hf__prunable(&row, now, 1000));
    row.keep_until_us = 4999;
    assert_true(hf__prunable(&row, now, 1000));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_row_is_no_row),
        cmocka_unit_test(a_copy_is_equal_and_independent),
        cmocka_unit_test(room_keeps_what_is_there),
        cmocka_unit_test(every_field_is_compared),
        cmocka_unit_test(what_is_illegal_is_found),
        cmocka_unit_test(revs_follow_the_clock_and_never_fall),
        cmocka_unit_test(acquire_appends_behind_one_holder),
        cmocka_unit_test(acquire_grants_what_is_free),
        cmocka_unit_test(acquire_refuses_whose_grant_ended_last),
        cmocka_unit_test(the_end_of_a_row_is_its_first),
        cmocka_unit_test(content_needs_a_rev),
        cmocka_unit_test(what_may_be_pruned),
    };
    return TEST_MAIN(tests);
}
