/*
 * acquire.c - the conformance suite: on every small row the store's `acquire` stores what hf__step
 * would store, or refuses and changes nothing. See conform.h.
 *
 * The rows combine a kind of holder, a length of the queue, and a marker or none. Each row gets
 * these requests: a new one, exclusive or shared; its holder's; its last waiter's; and that of the
 * former holder whose grant ended last. Each is made with room for more waiters and without. If
 * hf_row_acquire grants or appends, the store has to do so, too.
 */
#include "conform.h"

#include "drivers.h"
#include "step.h"

#include <stdio.h>
#include <string.h>

enum { MOST = 2, HOLDERS = 2 };

enum holder { NOBODY, ONE, OVER, UNCLAIMED, ENDED, ENDED_OVER, SHARED, LIMITED, HOLDER_KINDS };
enum request {
    A_NEW_ONE,
    A_SHARED_ONE,
    ITS_HOLDER,
    ITS_LAST_WAITER,
    ITS_LAST_HOLDER,
    REQUEST_KINDS
};

static const char *const holder_text[] = {"nobody",           "one",
                                          "one that is over", "an unclaimed one",
                                          "an ended one",     "an ended one that is over",
                                          "two shared ones",  "two limited ones"};
static const char *const request_text[] = {"a new request", "a new shared request", "its holder",
                                           "its last waiter", "the last holder"};

struct play {
    struct hf__suite *cfm;
    const hf_rowkey *key;
    hf_row row; /* the stored row before the acquire */
    hf_row got; /* the stored row after it */
    hf_row expected;
    enum holder holder;
    enum request request;
    uint32_t waiters, may_queue;
    int marked;
    uint32_t ids;    /* how many request ids were used */
    uint64_t newest; /* the highest rev so far */
};

static const char *bad(struct play *p, const char *what)
{
    char more[sizeof p->cfm->why];
    snprintf(more, sizeof more, "%s", what);
    return hf__bad(p->cfm, "%s comes to %s and %u waiting%s, of at most %u: %s",
                   request_text[p->request], holder_text[p->holder], p->waiters,
                   p->marked ? ", done" : "", p->may_queue, more);
}

/* A time far from any store's clock, so that no clock has to be read for it. */
static const int64_t LATER_US = INT64_C(1) << 52, LONG_AGO_US = 1;

/* Puts a text into the note that looks like those parts of a stored row for which the code of an
   `acquire` in a store may search. */
static void put_note(hf_party *p)
{
    static const char note[] = "}],\"request\":\"\"\\\"request\":[{\"mode\":1,\"holders\":[/\x7f";
    p->note_len = sizeof note - 1;
    memcpy(p->note, note, sizeof note);
}

static void put_holder(hf_party *p, enum holder kind, uint32_t i)
{
    p->expires_us = kind == OVER || kind == ENDED_OVER ? LONG_AGO_US : LATER_US;
    p->since_us = 1 + i;
    p->claim_ms = kind == UNCLAIMED ? p->claim_ms : 0;
    p->flags = kind == UNCLAIMED                     ? HF_PARTY_UNCLAIMED
               : kind == ENDED || kind == ENDED_OVER ? HF_PARTY_ENDING
                                                     : 0;
    p->mode = kind == SHARED ? HF_SHARED : kind == LIMITED ? HF_LIMITED : HF_EXCLUSIVE;
    p->limit = kind == LIMITED ? HOLDERS : 0;
}

/* Makes p->row for the present combination, with a new rev. Returns 0 or HF_NOMEM. */
static int make_row(struct play *p)
{
    hf_row *row = &p->row;
    uint64_t rev = p->newest + HOLDERS, token = row->token;
    if (hf_row_room(row, HOLDERS + MOST)) return HF_NOMEM;
    row->rev = rev;
    row->n_holders = p->holder == NOBODY ? 0 : p->holder < SHARED ? 1 : HOLDERS;
    row->n_queue = p->waiters;
    for (uint32_t i = 0; i < row->n_holders + row->n_queue; i++) {
        hf_party *to = &row->party[i];
        *to = hf__con_party(0, ++p->ids);
        if (i % 2) put_note(to);
        if (i < row->n_holders) put_holder(to, p->holder, i);
        if (i < row->n_holders) to->token = rev - 1 + i;
    }
    row->token = row->n_holders ? row->party[row->n_holders - 1].token : token;
    memset(row->last_id, 0, sizeof row->last_id);
    if (!row->n_holders) {
        hf_party last = hf__con_party(0, ++p->ids);
        memcpy(row->last_id, last.id, sizeof row->last_id);
    }
    row->done_us = row->keep_until_us = 0;
    row->done_by_len = 0;
    row->result_len = 0;
    row->done_by[0] = row->result[0] = 0;
    if (!p->marked) return 0;
    row->done_us = 9;
    row->keep_until_us = LATER_US;
    row->done_by_len = (uint8_t)snprintf(row->done_by, sizeof row->done_by, "d");
    row->result_len = (uint16_t)snprintf(row->result, sizeof row->result, "r");
    return 0;
}

/* Returns the id of a request that isn't new: the holder's, the last waiter's or the last holder's.
   NULL: the row has no such party. */
static const uint8_t *id_of(const struct play *p)
{
    const hf_row *row = &p->row;
    uint32_t n = row->n_holders + row->n_queue;
    if (p->request == ITS_HOLDER) return row->n_holders ? row->party[0].id : NULL;
    if (p->request == ITS_LAST_WAITER) return row->n_queue ? row->party[n - 1].id : NULL;
    /* A local store, which loses no replies, may forget the last holder. */
    int forgets = p->cfm->con.caps.local != NULL || !row->rev;
    return n || forgets ? NULL : row->last_id;
}

/* Makes the party that requests. Returns 0 if the row has no such party. */
static int make_party(struct play *p, hf_party *to)
{
    *to = hf__con_party(0, ++p->ids);
    put_note(to);
    if (p->request == A_SHARED_ONE) to->mode = HF_SHARED;
    if (p->request == A_NEW_ONE || p->request == A_SHARED_ONE) return 1;
    const uint8_t *id = id_of(p);
    if (id) memcpy(to->id, id, sizeof to->id);
    return id != NULL;
}

/* Checks that the stored row is the one that hf__step makes of the row before, at the same store's
   time. */
static const char *judge_stored(struct play *p, const hf_party *asks)
{
    int64_t at = hf__find_id(&p->got, asks->id);
    if (p->request == ITS_LAST_HOLDER) return bad(p, "granted again");
    if (at < 0) return bad(p, "done, but it isn't in the row");
    int64_t clock_us = p->got.party[at].since_us;
    struct hf_event ev = {.kind = p->may_queue ? HF_EV_ENQUEUE : HF_EV_TRY,
                          .now = {clock_us, clock_us},
                          .party = asks,
                          .queue_cap = p->may_queue,
                          .holders_cap = p->cfm->con.caps.holders_cap};
    if (hf_row_copy(&p->expected, &p->row) || hf_row_room(&p->expected, HOLDERS + MOST + 1))
        return bad(p, "out of memory");
    struct hf_outcome out = hf__step(&p->expected, &ev);
    int granted = out.answer == HF_ANS_GRANTED && out.changed;
    if (!granted && !(out.answer == HF_ANS_QUEUED && out.changed))
        return bad(p, "done, but the step does no such thing");
    /* A store that forgets free rows may give a higher rev than the step: that is allowed. */
    if (granted && p->got.rev > p->expected.rev) {
        p->expected.rev = p->expected.token = p->got.rev;
        p->expected.party[0].token = p->got.rev;
    }
    return hf_row_equal(&p->got, &p->expected) ? NULL : bad(p, "another row was stored");
}

/* Returns 1 if this store has to grant or append the request, as hf_row_acquire does. A store that
   is local, or has liveness or sessions, needn't append: the core never asks it to (may_queue in
   wait_request.c). */
static int has_to_be_done(struct play *p, const hf_party *asks, const hf_row *shown)
{
    if (hf_row_copy(&p->expected, shown)) return 1;
    memcpy(p->expected.last_id, p->row.last_id, sizeof p->row.last_id);
    if (hf_row_acquire(&p->expected, asks, p->may_queue, 2)) return 0;
    const hf_caps *caps = &p->cfm->con.caps;
    return !p->expected.n_queue || !(caps->local || caps->liveness || caps->sessions);
}

/* Calls `acquire` once on the present row, and checks the reply and the stored row. */
static const char *acquire_in_it(struct play *p)
{
    struct hf__suite *cfm = p->cfm;
    int64_t clock = 0;
    hf_error err = {0, 0, ""};
    hf_party asks;
    hf_row told;
    if (!make_party(p, &asks)) return NULL;
    hf_row_init(&told);
    int rc = cfm->con.drv->acquire(cfm->con.st, p->key, &asks, p->may_queue, &told, &clock, &err);
    if (!rc && !told.n_queue) hf__row_taken(&told, &asks);
    const char *why = hf__con_get(cfm, p->key, &p->got) ? cfm->why : NULL;
    if (!why && rc && rc != HF_CONFLICT) why = bad(p, hf__why(p->cfm, &err));
    if (!why && !hf_row_equal(&told, &p->got))
        why = bad(p, "the reply has another row than the store");
    if (!why && !rc) why = judge_stored(p, &asks);
    if (!why && rc && !hf_row_equal(&p->got, &p->row)) why = bad(p, "refused, it changed the row");
    if (!why && rc && has_to_be_done(p, &asks, &p->got)) why = bad(p, "refused");
    hf_row_clear(&told);
    if (!why && hf_row_copy(&p->row, &p->got)) why = bad(p, "out of memory");
    if (p->row.rev > p->newest) p->newest = p->row.rev;
    return why;
}

/* Makes the row for the present combination, and stores it in place of the last one. */
static const char *store_row(struct play *p)
{
    hf_row cur;
    uint8_t last_id[16];
    uint64_t seen = p->row.rev;
    int rc = make_row(p) ? HF_NOMEM : HF_CONFLICT;
    hf_row_init(&cur);
    /* A store that has forgotten the free row answers with a conflict and a rev of its own. */
    for (int tries = 2; rc == HF_CONFLICT && tries--; seen = cur.rev) {
        if (cur.rev >= p->row.rev) p->row.rev = cur.rev + 1;
        rc = hf__con_replace(p->cfm, p->key, seen, &p->row, &cur);
        if (cur.n_holders + cur.n_queue || cur.done_us) break;
    }
    hf_row_clear(&cur);
    if (rc) return rc == HF_NOMEM ? bad(p, "out of memory") : p->cfm->why;
    if (p->row.n_holders + p->row.n_queue || p->marked) return NULL;
    memcpy(last_id, p->row.last_id, sizeof last_id);
    if (hf__con_get(p->cfm, p->key, &p->row)) return p->cfm->why;
    memcpy(p->row.last_id, last_id, sizeof last_id);
    return NULL;
}

static const char *all_rows(struct play *p)
{
    const char *why = NULL;
    for (int holder = NOBODY; holder < HOLDER_KINDS && !why; holder++)
        for (p->waiters = 0; p->waiters <= MOST && !why; p->waiters++)
            for (int request = A_NEW_ONE; request < REQUEST_KINDS && !why; request++)
                for (p->may_queue = 0; p->may_queue <= MOST && !why; p->may_queue += MOST) {
                    p->holder = (enum holder)holder;
                    p->request = (enum request)request;
                    p->marked = (holder + request + (int)(p->waiters + p->may_queue / MOST)) % 2;
                    /* Without room for waiters: only new requests, and rows without a holder. */
                    if (!p->may_queue && request != A_NEW_ONE && holder != NOBODY) continue;
                    why = store_row(p);
                    /* At least once the next rev has to come from the clock, not from the rev
                       before plus 1. */
                    if (!why && holder == ONE && request == A_NEW_ONE)
                        hf__con_await_clock(p->cfm, p->key, p->row.rev + 2);
                    if (!why) why = acquire_in_it(p);
                }
    return why;
}

static const char *as_the_step_does(struct hf__suite *cfm, const hf_rowkey *key, hf_row *row)
{
    struct play p = {.cfm = cfm, .key = key};
    hf_row_init(&p.row);
    hf_row_init(&p.got);
    hf_row_init(&p.expected);
    const char *why = acquire_in_it(&p); /* the first call: the key has no row yet */
    if (!why) why = all_rows(&p);
    if (!why && hf_row_copy(row, &p.row)) why = hf__bad(cfm, "out of memory");
    hf_row_clear(&p.row);
    hf_row_clear(&p.got);
    hf_row_clear(&p.expected);
    return why;
}

static const char *acquires(struct hf__suite *cfm)
{
    return hf__con_at_key(cfm, "acquire", as_the_step_does);
}

void hf__conform_acquire(struct hf__suite *cfm)
{
    static const struct hf__check checks[] = {
        {"acquire stores what the step would store, or nothing", 0, acquires}};
    if (cfm->con.drv->acquire) hf__conform_run(cfm, checks, 1);
}
