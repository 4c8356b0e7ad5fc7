/*
 * replace.c - the conformance suite: checks of replace and acquire by one thread. See conform.h.
 */
#include "conform.h"

#include "step.h"

#include <string.h>

static int acquire(struct hf__suite *cfm, const hf_rowkey *key, const hf_party *p, hf_row *cur)
{
    hf_error err = {0, 0, ""};
    int64_t clock;
    int rc = cfm->con.drv->acquire(cfm->con.st, key, p, 0, cur, &clock, &err);
    if (rc) hf__bad(cfm, "acquire: %s", rc < 0 ? hf__why(cfm, &err) : "refused");
    if (!rc) hf__row_taken(cur, p);
    return rc;
}

static const char *replace_on_seen(struct hf__suite *cfm)
{
    char text[HF_KEY_CAP];
    hf_rowkey key = hf__con_key(cfm, text, "replace");
    hf_error err = {0, 0, ""};
    hf_row row, cur;
    hf_row_init(&row);
    hf_row_init(&cur);
    hf__con_one_holder(&row, 1);
    HF_CHECK(!hf__con_create(&cfm->con, &key, &row, &err), "%s", hf__why(cfm, &err));
    uint64_t first = row.rev;
    row.rev++;
    int rc = hf__con_replace(cfm, &key, 0, &row, &cur);
    HF_CHECK(rc >= 0, "replace on another rev returned %s, not HF_CONFLICT", hf_code_name(rc));
    HF_CHECK(rc == HF_CONFLICT, "created twice");
    HF_CHECK(cur.rev == first && cur.n_holders == 1, "a conflict shows another row");
    HF_CHECK(hf__con_replace(cfm, &key, first + 1, &row, &cur) == HF_CONFLICT,
             "replaced on a rev to come");
    HF_CHECK(!hf__con_replace(cfm, &key, first, &row, &cur), "refused on the rev that is there");
    HF_CHECK(hf__con_replace(cfm, &key, first, &row, NULL) == HF_CONFLICT,
             "replaced on an old rev");
    HF_CHECK(hf__con_replace(cfm, &key, first, NULL, &cur) == HF_CONFLICT, "deleted on an old rev");
    HF_CHECK(hf_row_equal(&cur, &row), "a conflict shows another row than the current");
    HF_CHECK(!hf__con_replace(cfm, &key, row.rev, NULL, &cur),
             "not deleted on the rev that is there");
    HF_CHECK(!hf__con_get(cfm, &key, &cur) && !cur.rev, "still there after it was deleted");
    HF_CHECK(hf__con_replace(cfm, &key, row.rev, &row, &cur) == HF_CONFLICT,
             "replaced what was deleted");
    HF_CHECK(!cur.rev && !cur.n_holders, "a conflict shows what was deleted");
    hf__con_await_clock(cfm, &key, row.rev);
    HF_CHECK(!hf__con_create(&cfm->con, &key, &row, &err), "created again: %s", hf__why(cfm, &err));
    HF_CHECK(row.rev > first, "its rev fell from %llu to %llu", (unsigned long long)first,
             (unsigned long long)row.rev);
    return NULL;
}

static const char *seen_by_another(struct hf__suite *cfm)
{
    char text[HF_KEY_CAP];
    hf_rowkey key = hf__con_key(cfm, text, "another handle");
    hf_error err = {0, 0, ""};
    struct hf__con other = {.st = NULL};
    const char *why = NULL;
    hf_row row, cur;
    int64_t clock;
    hf_row_init(&row);
    hf_row_init(&cur);
    hf__con_one_holder(&row, 1);
    if (hf__con_create(&cfm->con, &key, &row, &err) || hf__con_open(cfm, &other, &err))
        return hf__bad(cfm, "%s", hf__why(cfm, &err));
    for (uint32_t i = 0; i < 50 && !why; i++) {
        const struct hf__con *from = i % 2 ? &cfm->con : &other, *to = i % 2 ? &other : &cfm->con;
        uint64_t seen = row.rev++;
        hf__con_one_holder(&row, i);
        row.party[0].token = row.token;
        if (from->drv->replace(from->st, &key, seen, &row, NULL, &clock, &err))
            why = hf__bad(cfm, "replace: %s", hf__why(cfm, &err));
        else if (hf__note(cfm, to->drv->get(to->st, &key, &cur, &clock, &err)) ||
                 !hf_row_equal(&cur, &row))
            why = hf__bad(cfm, "the other doesn't see change %u", i);
    }
    hf_row_clear(&row);
    hf_row_clear(&cur);
    hf__con_close(&other);
    return why;
}

/* Ends the grant in `row` as a release does. */
static int give_back(struct hf__suite *cfm, const hf_rowkey *key, hf_row *row)
{
    uint64_t seen = row->rev++;
    row->n_holders = 0;
    memcpy(row->last_id, row->party[0].id, sizeof row->last_id);
    return hf__con_replace(cfm, key, seen, row, NULL);
}

/* Sends a request again after its grant was released, as if its first reply had been lost. The
   store must not grant it again. Not checked on local stores, which lose no replies, and may forget
   the request. */
static const char *acquire_comes_late(struct hf__suite *cfm, const hf_rowkey *key,
                                      const hf_party *p, hf_row *row)
{
    hf_row cur;
    if (cfm->con.caps.local) return NULL;
    hf_row_init(&cur);
    HF_CHECK(acquire(cfm, key, p, &cur) == HF_CONFLICT,
             "a late copy of the request was granted after the release");
    HF_CHECK(hf_row_equal(row, &cur), "a conflict shows another row than the free one");
    return NULL;
}

static const char *acquire_if_free(struct hf__suite *cfm)
{
    char text[HF_KEY_CAP];
    hf_rowkey key = hf__con_key(cfm, text, "free");
    hf_party a = hf__con_party(1, 1), b = hf__con_party(0, 2);
    hf_row row, cur;
    if (!cfm->con.drv->acquire) return NULL;
    hf_row_init(&row);
    hf_row_init(&cur);
    HF_CHECK(!acquire(cfm, &key, &a, &row), "refused although the key is free");
    HF_CHECK(row.n_holders == 1 && !row.n_queue && row.token == row.rev &&
                 row.party[0].token == row.token && !row.party[0].expires_us &&
                 !memcmp(row.party[0].id, a.id, 16) && row.party[0].note_len == a.note_len,
             "its row isn't a grant to the caller");
    HF_CHECK(!hf__con_get(cfm, &key, &cur) && hf_row_equal(&row, &cur), "another row was stored");
    HF_CHECK(acquire(cfm, &key, &b, &cur) == HF_CONFLICT, "granted twice");
    HF_CHECK(hf_row_equal(&row, &cur), "a conflict shows another row");
    uint64_t token = row.token;
    HF_CHECK(!give_back(cfm, &key, &row), "not released: %s", cfm->why);
    const char *why = acquire_comes_late(cfm, &key, &a, &row);
    if (why) return why;
    HF_CHECK(!acquire(cfm, &key, &b, &row), "refused although it is free");
    HF_CHECK(row.token > token, "the token fell");
    HF_CHECK(row.party[0].expires_us == row.party[0].since_us + INT64_C(60000000), "another lease");
    /* Makes a row with a waiter and without a holder: the next step grants the key to the
       waiter. */
    uint64_t seen = row.rev++;
    row.n_holders = 0;
    row.n_queue = 1;
    row.party[0] = b;
    HF_CHECK(!hf__con_replace(cfm, &key, seen, &row, NULL), "%s", cfm->why);
    HF_CHECK(acquire(cfm, &key, &a, &cur) == HF_CONFLICT, "barged past the queue");
    /* A free row keeps its marker when the key is acquired. */
    seen = row.rev++;
    row.n_queue = 0;
    row.done_us = 9;
    row.keep_until_us = 10;
    row.done_by_len = 1;
    row.result_len = 1;
    memcpy(row.done_by, "d", 2);
    memcpy(row.result, "r", 2);
    HF_CHECK(!hf__con_replace(cfm, &key, seen, &row, NULL), "%s", cfm->why);
    HF_CHECK(!acquire(cfm, &key, &a, &cur), "refused although it is free and marked");
    HF_CHECK(cur.done_us == 9 && cur.keep_until_us == 10 && cur.result[0] == 'r', "marker lost");
    HF_CHECK(!hf__con_replace(cfm, &key, cur.rev, NULL, NULL), "%s", cfm->why);
    return NULL;
}

/* Checks that tokens grow after a release, and after the row was deleted. */
static const char *tokens_grow(struct hf__suite *cfm)
{
    char text[HF_KEY_CAP];
    hf_rowkey key = hf__con_key(cfm, text, "tokens");
    hf_error err = {0, 0, ""};
    uint64_t last = 0;
    hf_row row;
    hf_row_init(&row);
    /* Fewer rounds with a coarse clock: after each deletion the check waits for its next tick. */
    int rounds = cfm->con.caps.clock_resolution_us < 100000 ? 200 : 12;
    for (int i = 0; i < rounds; i++) {
        hf__con_one_holder(&row, 1);
        if (cfm->con.drv->acquire) {
            hf_party p = hf__con_party(1, (uint32_t)i);
            HF_CHECK(!acquire(cfm, &key, &p, &row), "grant %d: %s", i, cfm->why);
        } else {
            HF_CHECK(!hf__con_create(&cfm->con, &key, &row, &err), "grant %d: %s", i,
                     hf__why(cfm, &err));
        }
        HF_CHECK(row.token > last, "token %llu after %llu", (unsigned long long)row.token,
                 (unsigned long long)last);
        last = row.token;
        int rc =
            i % 3 ? give_back(cfm, &key, &row) : hf__con_replace(cfm, &key, row.rev, NULL, NULL);
        HF_CHECK(!rc, "not released: %s", cfm->why);
        if (!(i % 3)) hf__con_await_clock(cfm, &key, last);
    }
    HF_CHECK(last < UINT64_C(1) << 53, "token %llu", (unsigned long long)last);
    return NULL;
}

void hf__conform_replace(struct hf__suite *cfm)
{
    static const struct hf__check checks[] = {
        {"a row is replaced only by a client that has seen it", 0, replace_on_seen},
        {"another handle sees every change at once", 0, seen_by_another},
        {"what is free is acquired, and nothing else", 0, acquire_if_free},
        {"tokens grow, through release and deletion", 0, tokens_grow},
    };
    hf__conform_run(cfm, checks, sizeof checks / sizeof *checks);
}
