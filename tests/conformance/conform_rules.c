/*
 * conform_rules.c - the conformance suite finds each wrong rule of `acquire`: a store that grants
 * or appends where the step would do something else, stores another row than the step, or refuses
 * what it has to do. A store around `mem:`, as a server's: see conform_lies.h.
 */
#include "conform_lies.h"

enum rule {
    RIGHT,
    GRANTS_ALONE, /* a store may not append, where it could */
    BARGES,       /* grants although others wait */
    AFTER_THE_END,
    BEHIND_NOBODY,
    BEHIND_WHAT_IS_OVER,
    BEHIND_SEVERAL,
    SENT_TWICE, /* although the request is there already */
    ONE_TOO_MANY,
    UNASKED, /* although it mustn't wait */
    IN_FRONT,
    LOSES_THE_MARK,
    KEEPS_THE_REV,
    SPOILS_A_REFUSAL,
    REFUSES_WHAT_IS_FREE,
    LATE_ENDS, /* a lease that is a millisecond longer */
    OF_ANOTHER_MODE,
    RULES
};
static enum rule rule;

static void append(hf_row *row, const hf_party *party, int64_t clock_us)
{
    uint32_t n = row->n_holders + row->n_queue;
    assert_int_equal(hf_row_room(row, n + 1), 0);
    row->rev = hf_rev_next(row->rev, clock_us);
    row->n_queue++;
    hf_party_copy(&row->party[n], party);
    row->party[n].since_us = clock_us;
}

/* What the wrong rule does with a row that the right one refuses. 1: it does. */
static int does(hf_row *row, const hf_party *party, uint32_t may_queue, int64_t clock_us)
{
    const hf_party *holder = &row->party[0];
    int is_there = 0, over = row->n_holders && holder->expires_us && holder->expires_us <= clock_us;
    for (uint32_t i = 0; i < row->n_holders + row->n_queue; i++)
        is_there |= !memcmp(row->party[i].id, party->id, 16);
    int fits = row->n_queue < may_queue, one = row->n_holders == 1;
    switch (rule) {
    case BARGES:
        if (row->n_holders || !row->n_queue || is_there) return 0;
        row->n_queue = 0;
        return !hf_row_acquire(row, party, 0, clock_us);
    case AFTER_THE_END:
        if (row->n_holders || row->n_queue) return 0;
        memset(row->last_id, 0, sizeof row->last_id);
        return !hf_row_acquire(row, party, 0, clock_us);
    case BEHIND_NOBODY: fits = fits && !row->n_holders && row->n_queue && !is_there; break;
    case BEHIND_WHAT_IS_OVER: fits = fits && one && over && !is_there; break;
    case BEHIND_SEVERAL: /* with whom it may hold together */
        fits = fits && row->n_holders > 1 && !is_there && party->mode == holder->mode;
        break;
    case SENT_TWICE: fits = fits && one && !over && is_there; break;
    case ONE_TOO_MANY:
        fits = may_queue && row->n_queue == may_queue && one && !over && !is_there;
        break;
    case UNASKED: fits = !may_queue && one && !over && !is_there; break;
    default: return 0;
    }
    if (fits) append(row, party, clock_us);
    return fits;
}

/* What it does wrong where the right rule does something. */
static int spoil(hf_row *row, const hf_row *was)
{
    uint32_t n = row->n_holders + row->n_queue;
    switch (rule) {
    case GRANTS_ALONE: return row->n_queue > 0;
    case REFUSES_WHAT_IS_FREE: return !row->n_queue;
    case IN_FRONT:
        if (row->n_queue < 2) break;
        hf_party last = row->party[n - 1];
        row->party[n - 1] = row->party[n - 2];
        row->party[n - 2] = last;
        break;
    case LOSES_THE_MARK: row->done_us = row->keep_until_us = 0; break;
    case KEEPS_THE_REV:
        if (row->n_queue) row->rev = was->rev + 1;
        break;
    case LATE_ENDS:
        if (!row->n_queue) row->party[0].expires_us += 1000;
        break;
    case OF_ANOTHER_MODE: row->party[n - 1].mode = HF_EXCLUSIVE; break;
    default: break;
    }
    return 0;
}

static int acquire_wrongly(hf_store *st, const hf_rowkey *key, const hf_party *party,
                           uint32_t may_queue, hf_row *cur, int64_t *clock, hf_error *err)
{
    hf_row was;
    hf_row_init(&was);
    if (denied(key->text)) return no(err);
    int rc = base->get(st, key, cur, clock, err);
    *clock = base->caps.local->now(st);
    if (!rc && hf_row_copy(&was, cur)) rc = HF_NOMEM;
    if (!rc && key->hash == free_hash && !cur->rev) /* mem forgets what is free */
        memcpy(cur->last_id, free_row.last_id, sizeof cur->last_id);
    if (!rc) rc = hf_row_acquire(cur, party, may_queue, *clock);
    int done = rc == HF_CONFLICT ? does(cur, party, may_queue, *clock) : !rc && !spoil(cur, &was);
    int writes = done || (rule == SPOILS_A_REFUSAL && rc == HF_CONFLICT && cur->rev++);
    if (!rc || rc == HF_CONFLICT) rc = done ? 0 : HF_CONFLICT;
    if (!done && !writes && hf_row_copy(cur, &was)) rc = HF_NOMEM;
    hf_row next;
    hf_row_init(&next);
    for (int tries = 2; writes && tries--; was.rev = next.rev)
        if (base->replace(st, key, was.rev, cur, &next, clock, err) != HF_CONFLICT) break;
    hf_row_clear(&next);
    hf_row_clear(&was);
    return rc;
}

static void each_wrong_rule_is_found(void **state)
{
    (void)state;
    make();
    liar.acquire = acquire_wrongly;
    liar.caps.liveness = NULL;
    int honest = examine("acquire", HONEST, 0);
    assert_null(strstr(why_text, "of at most"));
    for (rule = GRANTS_ALONE; rule < RULES; rule++)
        if (examine("acquire", HONEST, 0) <= honest) fail_msg("rule %d isn't found", (int)rule);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(each_wrong_rule_is_found)};
    return TEST_MAIN(tests);
}
