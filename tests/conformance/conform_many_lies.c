/*
 * conform_many_lies.c - the conformance suite finds what a store does wrong that carries out many
 * replaces at once: one rule is broken at a time. See conform_lies.h.
 */
#include "conform_lies.h"

#include "os.h"

enum fault {
    NONE,
    STOPS_AT_CONFLICT, /* what comes behind a conflict isn't done, and UNKNOWN */
    SKIPS_SILENTLY,    /* what comes behind a conflict isn't done, but called done */
    SHIFTS_RESULTS,    /* each is told the result of the next one */
    SHOWS_NO_ROW,      /* of a conflict */
    SHOWS_ANOTHER,     /* the row of another key */
    WRITES_ANYWAY,     /* and calls it a conflict */
    DOES_NOTHING,      /* and calls it done */
    TELLS_NO_CLOCK,
    MERGES,           /* what the new row doesn't have stays */
    LATE_IS_CONFLICT, /* what there was no time for */
    LATE_IS_DONE,     /* the same is called done, but isn't */
    LATE_FOR_EVER,    /* after it nothing is answered any more */
    CREATES,          /* a row that is not there is said to be replaced */
    REFUSES_NONE,     /* none at all is an error */
    MIXES_THREADS,    /* two calls at a time: one is told what the other one is */
    UNANSWERED,       /* two calls at a time: two replaces of one aren't answered. No fault */
    FAULTS
};
static enum fault fault;
static atomic_int inside, broken, seen_two;

/* One of them, as it should be done. */
static int one(hf_store *st, hf_replace *i, const hf_row *row)
{
    int64_t clock = 0;
    int rc = base->replace(st, i->key, i->seen, row, i->cur, &clock, i->err);
    i->clock_us = base->caps.local->now(st);
    return i->result = rc;
}

static void merge(hf_store *st, hf_replace *i)
{
    hf_row row;
    int64_t clock;
    hf_row_init(&row);
    if (!base->get(st, i->key, &row, &clock, NULL) && row.rev == i->seen && row.done_us) {
        row.rev = i->row->rev;
        hf_party_copy(&row.party[0], &i->row->party[0]);
        one(st, i, &row);
    } else {
        one(st, i, i->row);
    }
    hf_row_clear(&row);
}

static void do_one(hf_store *st, hf_replace *item, size_t n, size_t k, int conflicts)
{
    hf_replace *i = &item[k];
    int64_t clock;
    switch (fault) {
    case STOPS_AT_CONFLICT:
        if (!conflicts) one(st, i, i->row);
        break;
    case SKIPS_SILENTLY:
        if (conflicts)
            i->result = 0;
        else
            one(st, i, i->row);
        break;
    case SHOWS_NO_ROW:
        if (one(st, i, i->row) == HF_CONFLICT) hf_row_clear(i->cur);
        break;
    case SHOWS_ANOTHER:
        if (one(st, i, i->row) == HF_CONFLICT)
            base->get(st, item[(k + 1) % n].key, i->cur, &clock, NULL);
        break;
    case WRITES_ANYWAY:
        if (one(st, i, i->row) == HF_CONFLICT)
            base->replace(st, i->key, i->cur->rev, i->row, NULL, &clock, NULL);
        break;
    case DOES_NOTHING:
        i->result = k == 5 ? 0 : one(st, i, i->row);
        i->clock_us = base->caps.local->now(st);
        break;
    case TELLS_NO_CLOCK:
        one(st, i, i->row);
        if (k == 2) i->clock_us = 0;
        break;
    case MERGES: merge(st, i); break;
    case CREATES:
        if (one(st, i, i->row) == HF_CONFLICT && !i->cur->n_holders) i->result = 0;
        break;
    default: one(st, i, i->row);
    }
}

static int without_time(hf_replace *item, size_t n)
{
    if (fault == LATE_FOR_EVER) broken = 1;
    for (size_t i = 0; i < n; i++) {
        if (fault == LATE_IS_CONFLICT) item[i].result = HF_CONFLICT;
        if (fault == LATE_IS_DONE) item[i].result = 0;
    }
    return 0;
}

static int li_replace_many(hf_store *st, hf_replace *item, size_t n, int64_t until_us)
{
    int conflicts = 0;
    if (!n) return fault == REFUSES_NONE ? HF_UNAVAILABLE : 0;
    if (denied(item[0].key->text)) return HF_DENIED;
    if (broken) return 0;
    if (hf__local_us() >= until_us) return without_time(item, n);
    int others = atomic_fetch_add(&inside, 1);
    int slow = fault == UNANSWERED && others;
    for (size_t i = 0; i < n; i++) {
        if (slow && i == n / 2) continue;
        do_one(st, item, n, i, conflicts);
        if (slow && i == n / 2 + 1) item[i].result = HF_UNKNOWN; /* although it was done */
        conflicts += item[i].result == HF_CONFLICT;
    }
    if (fault == SHIFTS_RESULTS) {
        int first = item[0].result;
        for (size_t i = 0; i + 1 < n; i++) item[i].result = item[i + 1].result;
        item[n - 1].result = first;
    }
    if (fault >= MIXES_THREADS) nanosleep(&(struct timespec){0, 1000000}, NULL);
    if (others && !atomic_fetch_add(&seen_two, 1) && fault == MIXES_THREADS)
        item[n / 2].result = HF_CONFLICT;
    atomic_fetch_sub(&inside, 1);
    return 0;
}

/* How many of the promises about many at once aren't kept. */
static int broken_promises(enum fault f)
{
    int kept, all;
    fault = NONE;
    liar.replace_many = NULL;
    kept = examine("many", HONEST, 0) + examine("many-late", HONEST, 0);
    liar.replace_many = li_replace_many;
    fault = f;
    broken = seen_two = inside = 0;
    all = examine("many", HONEST, 0);
    broken = 0;
    all += examine("many-late", HONEST, 0);
    return all - kept;
}

static void each_rule_that_is_broken_is_found(void **state)
{
    (void)state;
    make();
    /* Of three promises the keys of two are denied each time. */
    int honest = broken_promises(NONE);
    assert_int_equal(honest, 4);
    for (int f = NONE + 1; f < MIXES_THREADS; f++)
        if (broken_promises((enum fault)f) <= honest) fail_msg("fault %d isn't found", f);
}

/* All four threads' keys, and no others. */
static void threads_that_disturb_each_other_are_found(void **state)
{
    (void)state;
    make();
    liar.replace_many = li_replace_many;
    static const enum fault all[] = {NONE, MIXES_THREADS, UNANSWERED};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        fault = all[i];
        broken = seen_two = inside = 0;
        examine("many-by", HONEST, 0);
        int found = strstr(why_text, "key 4: ") != NULL, slow = strstr(why_text, "key 5: ") != NULL;
        if (found != (fault == MIXES_THREADS) || slow)
            fail_msg("fault %d: found: %d: %s", fault, found, why_text);
        if (fault != NONE && !seen_two) fail_msg("no two calls at a time");
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_rule_that_is_broken_is_found),
        cmocka_unit_test(threads_that_disturb_each_other_are_found),
    };
    return TEST_MAIN(tests);
}
