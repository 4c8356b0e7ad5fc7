/*
 * line.c - what a store promises that lets a waiter in behind others by itself (join).
 */
#include "conform.h"

#include <stdio.h>
#include <string.h>

enum { CAP = 4 };

static int join(struct hf__suite *cfm, const hf_rowkey *key, const hf_party *p, hf_row *cur)
{
    int64_t clock = 0;
    hf_error err = {0, 0, ""};
    int rc = cfm->con.drv->join(cfm->con.st, key, p, CAP, cur, &clock, &err);
    if (rc) hf__bad(cfm, "join: %s", rc < 0 ? err.text : "refused");
    return rc;
}

/* It is refused, and nothing has changed: *row is what is there. */
static const char *refused(struct hf__suite *cfm, const hf_rowkey *key, const hf_party *p,
                           const hf_row *row, const char *what)
{
    hf_row cur;
    hf_row_init(&cur);
    int rc = join(cfm, key, p, &cur), same = hf_row_equal(&cur, row);
    hf_row_clear(&cur);
    HF_CHECK(rc == HF_CONFLICT, "%s: %s", what, rc ? cfm->why : "not refused");
    HF_CHECK(same, "%s: the refusal shows another row", what);
    rc = hf__con_get(cfm, key, &cur);
    same = hf_row_equal(&cur, row);
    hf_row_clear(&cur);
    return rc ? cfm->why : same ? NULL : hf__bad(cfm, "%s: the row was changed", what);
}

/* It is let in: *row becomes what is there. */
static const char *let_in(struct hf__suite *cfm, const hf_rowkey *key, const hf_party *p,
                          hf_row *row)
{
    hf_row cur;
    uint32_t last = row->n_holders + row->n_queue;
    uint64_t rev = row->rev;
    hf_row_init(&cur);
    const char *why = NULL;
    if (join(cfm, key, p, &cur))
        why = cfm->why;
    else if (hf_row_join(row, p, CAP, 1))
        why = hf__bad(cfm, "out of memory");
    else if (cur.rev <= rev || cur.n_queue != row->n_queue)
        why = hf__bad(cfm, "it doesn't stand at the end of the line");
    else if (cur.rev < hf_rev_next(rev, cur.party[last].since_us))
        why = hf__bad(cfm, "its rev is behind the clock");
    if (!why) { /* by the store's clock, which isn't known */
        row->rev = cur.rev;
        row->party[last].since_us = cur.party[last].since_us;
        if (cur.party[last].since_us < 0 || !hf_row_equal(&cur, row))
            why = hf__bad(cfm, "another row was stored");
    }
    hf_row_clear(&cur);
    if (!why && hf__con_get(cfm, key, &cur)) why = cfm->why;
    if (!why && !hf_row_equal(&cur, row)) why = hf__bad(cfm, "another row is there");
    hf_row_clear(&cur);
    return why;
}

static const char *change(struct hf__suite *cfm, const hf_rowkey *key, hf_row *row)
{
    uint64_t seen = row->rev++;
    return hf__con_replace(cfm, key, seen, row, NULL) ? cfm->why : NULL;
}

static const char *join_the_line(struct hf__suite *cfm, const hf_rowkey *key, hf_row *row)
{
    hf_party p = hf__con_party(1, 4);
    const char *why = refused(cfm, key, &p, row, "nobody is there");
    if (why) return why;
    hf_error err = {0, 0, ""};
    if (hf_row_room(row, CAP + 2)) return hf__bad(cfm, "out of memory");
    row->n_holders = 1;
    row->party[0] = hf__con_party(1, 1);
    if (hf__con_create(&cfm->con, key, row, &err)) return hf__bad(cfm, "%s", err.text);
    why = refused(cfm, key, &p, row, "nobody waits");
    row->n_queue = 1;
    row->party[1] = hf__con_party(1, 2);
    /* A text that looks like what the store may look for. */
    row->party[1].note_len = (uint8_t)snprintf(row->party[1].note, sizeof row->party[1].note, "%s",
                                               "}],\"request\":\"\"\\\"request\":[{");
    if (!why) why = change(cfm, key, row);
    /* Whatever was written meanwhile: nobody has told it the rev. */
    if (!why) why = let_in(cfm, key, &p, row);
    if (!why) why = refused(cfm, key, &p, row, "it waits already");
    if (!why) why = refused(cfm, key, &row->party[0], row, "it holds");
    p = hf__con_party(1, 5);
    memcpy(p.note, row->party[1].note, sizeof p.note);
    p.note_len = row->party[1].note_len;
    if (!why) why = let_in(cfm, key, &p, row);
    p = hf__con_party(1, 6);
    if (!why) why = let_in(cfm, key, &p, row);
    p = hf__con_party(1, 7);
    if (!why) why = refused(cfm, key, &p, row, "no place is left");
    return why;
}

/* Not to others who hold together with the first, either; nor where nobody holds. */
static const char *not_among_holders(struct hf__suite *cfm, const hf_rowkey *key, hf_row *row)
{
    hf_party p = hf__con_party(1, 8);
    hf_row_clear(row);
    if (hf__con_get(cfm, key, row)) return cfm->why;
    if (hf_row_room(row, 4)) return hf__bad(cfm, "out of memory");
    row->n_holders = 2;
    row->n_queue = 1;
    for (uint32_t i = 0; i < 3; i++) row->party[i] = hf__con_party(1, 10 + i);
    row->party[0].mode = row->party[1].mode = HF_SHARED;
    row->party[0].token = row->token = row->rev + 1;
    row->party[1].token = row->rev;
    const char *why = change(cfm, key, row);
    if (!why) why = refused(cfm, key, &row->party[1], row, "it holds with others");
    if (!why) why = let_in(cfm, key, &p, row);
    row->n_holders = 0;
    row->n_queue = 1;
    row->party[0] = hf__con_party(1, 9);
    if (!why) why = change(cfm, key, row);
    return why ? why : refused(cfm, key, &p, row, "nobody holds");
}

static const char *in_line(struct hf__suite *cfm, const hf_rowkey *key, hf_row *row)
{
    const char *why = join_the_line(cfm, key, row);
    return why ? why : not_among_holders(cfm, key, row);
}

static const char *joins(struct hf__suite *cfm) { return hf__con_at_key(cfm, "join", in_line); }

void hf__conform_line(struct hf__suite *cfm)
{
    static const struct hf__check checks[] = {
        {"join lets in behind others, and nowhere else", 0, joins}};
    if (cfm->con.drv->join) hf__conform_run(cfm, checks, 1);
}
