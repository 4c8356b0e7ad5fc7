/*
 * update.c - the conformance suite: checks of `update`, which changes a row in place. See
 * conform.h.
 */
#include "race.h"

#include <string.h>

enum { WRITERS = 4, WRITES = 500, FAILS_WITH = HF_FULL };

/* What the step of an update is to do, and the rows that it has seen and made. */
struct step {
    hf_row saw, made;
    int calls, answer; /* how often the step was called; what it returns. FAILS_WITH: it changes the
                          row, but returns a failure */
    hf_party joins; /* the party that the step puts into the queue; owner_len 0: the step makes the
                       first waiter a holder instead */
};

static int step(void *arg, hf_row *row)
{
    struct step *s = arg;
    uint32_t n = row->n_holders + row->n_queue;
    s->calls++;
    if (hf_row_copy(&s->saw, row)) return HF_NOMEM;
    if (!s->answer) return 0;
    if (hf_row_room(row, (size_t)n + 1)) return HF_NOMEM;
    row->rev++;
    if (s->joins.owner_len) {
        hf_party_copy(&row->party[n], &s->joins);
        row->party[n].token = 0;
        row->n_queue++;
    } else {
        for (uint32_t i = 0; i + 1 < n; i++) hf_party_copy(&row->party[i], &row->party[i + 1]);
        row->n_queue--;
        row->party[0].token = row->token = row->rev;
    }
    return hf_row_copy(&s->made, row) ? HF_NOMEM : s->answer;
}

/* Makes one update, and checks that the store shows *row to the step, and stores and returns the
   row that the step makes, or changes nothing if the step fails. *row becomes the row that is
   stored. Returns NULL, or what is wrong. */
static const char *updates(struct hf__suite *cfm, const hf_rowkey *key, struct step *s, hf_row *row,
                           const char *what)
{
    const struct hf__con *con = &cfm->con;
    hf_error err = {0, 0, ""};
    hf_row got, told;
    const char *why = NULL;
    hf_row_init(&got);
    hf_row_init(&told);
    s->calls = 0;
    int rc = con->caps.local->update(con->st, key, step, s, &told, &err);
    int want = s->answer < 0 ? s->answer : 0;
    if (rc != want)
        why = hf__bad(cfm, "%s: %s instead of %s: %s", what, hf_code_text(rc), hf_code_text(want),
                      hf__why(cfm, &err));
    else if (!s->calls || !hf_row_equal(&s->saw, row))
        why = hf__bad(cfm, "%s: another row was shown than is there", what);
    else if (hf__con_get(cfm, key, &got))
        why = cfm->why;
    else if (!rc && !hf_row_equal(&got, &told))
        why = hf__bad(cfm, "%s: the reply has another row than the store", what);
    else if (s->answer <= 0 && !hf_row_equal(&got, row))
        why = hf__bad(cfm, "%s: the row was changed", what);
    else if (s->answer > 0 && !hf_row_equal(&got, &s->made))
        why = hf__bad(cfm, "%s: another row was stored", what);
    if (!why && hf_row_copy(row, &got)) why = hf__bad(cfm, "out of memory");
    hf_row_clear(&got);
    hf_row_clear(&told);
    return why;
}

static const char *in_place(struct hf__suite *cfm, const hf_rowkey *key, hf_row *row)
{
    struct step s = {.answer = 0};
    hf_error err = {0, 0, ""};
    hf_row_init(&s.saw);
    hf_row_init(&s.made);
    const char *why = updates(cfm, key, &s, row, "no party, and no change");
    row->n_holders = 1;
    row->party[0] = hf__con_party(1, 9);
    if (!why && hf__con_create(&cfm->con, key, row, &err))
        why = hf__bad(cfm, "%s", hf__why(cfm, &err));
    if (!why) why = updates(cfm, key, &s, row, "one holds, nothing is done");
    s.answer = 1;
    for (uint32_t i = 1; !why && i <= 4; i++) { /* more parties than a row has room for at first */
        s.joins = hf__con_party(1, i);
        why = updates(cfm, key, &s, row, "a party is queued");
        if (!why && (row->n_queue != i || memcmp(row->party[i].id, s.joins.id, 16) != 0))
            why = hf__bad(cfm, "the queued party isn't in the row");
    }
    s.answer = FAILS_WITH;
    if (!why) why = updates(cfm, key, &s, row, "it fails");
    s.answer = 1;
    s.joins.owner_len = 0;
    if (!why) why = updates(cfm, key, &s, row, "the first waiter is granted the key");
    if (!why && (row->n_holders != 1 || row->n_queue != 3 || row->party[0].token != row->rev))
        why = hf__bad(cfm, "the first waiter wasn't granted the key");
    hf_row_clear(&s.saw);
    hf_row_clear(&s.made);
    return why;
}

static const char *update_in_place(struct hf__suite *cfm)
{
    return hf__con_at_key(cfm, "update", in_place);
}

/* ---- side by side ---- */

static int count_up(void *arg, hf_row *row)
{
    (void)arg;
    row->rev++;
    return 1;
}

/* Racer 0 replaces the row WRITES times, the others change it in place as often. */
static int write_much(struct hf__racer *r)
{
    char text[HF_KEY_CAP];
    hf_rowkey key = hf__con_key(r->cfm, text, "updates");
    hf_error err = {0, 0, ""};
    int64_t clock;
    hf_row row, next;
    int rc = hf__race_meet(r, 0);
    hf_row_init(&row);
    hf_row_init(&next);
    for (int i = 0; !rc && i < WRITES; i++) {
        if (r->me)
            rc = r->con.caps.local->update(r->con.st, &key, count_up, NULL, &row, &err);
        else
            rc = r->con.drv->get(r->con.st, &key, &row, &clock, &err);
        if (!rc && !r->me) {
            do {
                rc = hf_row_copy(&next, &row);
                next.rev++;
            } while (!rc && (rc = r->con.drv->replace(r->con.st, &key, row.rev, &next, &row, &clock,
                                                      &err)) == HF_CONFLICT);
        }
        if (rc) hf__race_fail(r, "%s", hf__why(r->cfm, &err));
    }
    hf_row_clear(&row);
    hf_row_clear(&next);
    return rc;
}

static const char *play_writers(struct hf__suite *cfm, struct hf__arena *a)
{
    char text[HF_KEY_CAP];
    hf_rowkey key = hf__con_key(cfm, text, "updates");
    hf_error err = {0, 0, ""};
    hf_row row;
    hf_row_init(&row);
    row.n_holders = 1; /* a store may forget a free row */
    row.party[0] = hf__con_party(1, 1);
    if (hf__con_create(&cfm->con, &key, &row, &err)) return hf__bad(cfm, "%s", hf__why(cfm, &err));
    uint64_t all = row.rev + (uint64_t)WRITERS * WRITES;
    const char *why = hf__race_threads(cfm, a, WRITERS, 0, write_much);
    if (!why && hf__con_get(cfm, &key, &row)) why = cfm->why;
    if (!why && row.rev != all)
        why = hf__bad(cfm, "%llu of %d writes were lost", (unsigned long long)(all - row.rev),
                      WRITERS * WRITES);
    if (!why && hf__con_replace(cfm, &key, row.rev, NULL, NULL)) why = cfm->why;
    hf_row_clear(&row);
    return why;
}

static const char *updates_lose_none(struct hf__suite *cfm)
{
    return hf__with_arena(cfm, play_writers);
}

void hf__conform_update(struct hf__suite *cfm)
{
    static const struct hf__check checks[] = {
        {"a row is changed in place, or stays as it was", 0, update_in_place},
        {"of updates and replaces side by side none is lost", 0, updates_lose_none}};
    if (cfm->con.caps.local && cfm->con.caps.local->update) hf__conform_run(cfm, checks, 2);
}
