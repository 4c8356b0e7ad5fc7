/*
 * conform.c - the conformance suite, first part: what one caller can see. See conform.h.
 *
 * Contents: rows there and back; replace and acquire; the list.
 */
#include "conform.h"

#include "drivers.h"
#include "os.h"
#include "step.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { QUEUE_TRIED = 4096, HOLDERS_TRIED = 64 };

/* ---- rows there and back ---- */

static int acquire(struct hf__suite *cfm, const hf_rowkey *key, const hf_party *p, hf_row *cur)
{
    hf_error err = {0, 0, ""};
    int64_t clock;
    int rc = cfm->con.drv->acquire(cfm->con.st, key, p, 0, cur, &clock, &err);
    if (rc) hf__bad(cfm, "acquire: %s", rc < 0 ? err.text : "refused");
    if (!rc) hf__row_taken(cur, p);
    return rc;
}

/* A row with one holder, as an uncontended grant makes it. */
static void one_holder(hf_row *row, uint32_t n)
{
    row->n_holders = 1;
    row->n_queue = 0;
    row->done_us = row->keep_until_us = 0;
    row->party[0] = hf__con_party(1, n);
    row->party[0].since_us = 1;
}

/* Stores `row` as new, reads it back through this and another handle, compares, deletes it. */
static const char *there_and_back(struct hf__suite *cfm, const hf_rowkey *key, hf_row *row,
                                  const char *what)
{
    hf_error err = {0, 0, ""};
    const char *why = NULL, *flaw = NULL;
    hf_row read;
    hf_row_init(&read);
    if (hf__con_create(&cfm->con, key, row, &err))
        why = hf__bad(cfm, "%s: %s", what, err.text);
    else if (hf__con_get(cfm, key, &read))
        why = cfm->why;
    else if (!hf_row_equal(&read, row))
        why = hf__bad(cfm, "%s: not what was written", what);
    else if (hf_row_check(&read, &flaw))
        why = hf__bad(cfm, "%s: %s", what, flaw);
    else if (hf__con_replace(cfm, key, row->rev, NULL, NULL))
        why = hf__bad(cfm, "%s: cannot be deleted", what);
    hf_row_clear(&read);
    return why;
}

static const char *unused_key(struct hf__suite *cfm)
{
    char text[HF_KEY_CAP];
    hf_rowkey key = hf__con_key(cfm, text, "never used");
    hf_row row;
    hf_row_init(&row);
    /* What was in the row must not shine through. */
    one_holder(&row, 1);
    row.rev = row.token = 7;
    row.done_us = 1;
    int rc = hf__con_get(cfm, &key, &row);
    int clean = !row.rev && !row.token && !row.n_holders && !row.n_queue && !row.done_us;
    hf_row_clear(&row);
    if (rc) return cfm->why;
    HF_CHECK(clean, "something is in it");
    return NULL;
}

static void put_text(char *to, uint8_t *len, size_t n, const char *pattern)
{
    size_t m = strlen(pattern), i = 0;
    /* Whole patterns only, so that what is UTF-8 stays it. */
    for (; i + m <= n; i += m) memcpy(to + i, pattern, m);
    for (; i < n; i++) to[i] = 'x';
    to[n] = 0;
    *len = (uint8_t)n;
}

/* A row in which every field has a value of its own, texts are as long as they may be, numbers too
   (but for the rev, which would spoil the store's clock). */
static int full_row(hf_row *row)
{
    static const char *const nasty[] = {"\xc3\xa9\xf0\x9f\x94\x92", "'\"`", "%s%n%41", "\\0\\n/../",
                                        " ; -- $1 {{}} [] <&>"};
    if (hf_row_room(row, 10)) return HF_NOMEM;
    row->token = 5;
    row->done_us = INT64_C(9007199254740993);
    row->keep_until_us = INT64_MAX;
    row->n_holders = 4;
    row->n_queue = 6;
    put_text(row->done_by, &row->done_by_len, HF_OWNER_CAP - 1, nasty[0]);
    uint8_t result_len;
    put_text(row->result, &result_len, HF_RESULT_CAP - 1, nasty[1]);
    row->result_len = result_len;
    for (uint32_t i = 0; i < 10; i++) {
        hf_party *p = &row->party[i];
        memset(p, 0, sizeof *p);
        for (uint32_t j = 0; j < 16; j++) p->id[j] = (uint8_t)(i * 16 + j * 17);
        p->token = i < 4 ? 2 + i : 0;
        p->since_us = i == 1 ? INT64_MAX - 1 : INT64_C(1700000000000000) + i;
        p->expires_us = i == 1 ? INT64_MAX - 2 : i;
        p->session = i == 2 ? UINT64_MAX - 1 : (UINT64_C(1) << 53) + 1 + i;
        p->lease_ms = i == 3 ? UINT32_MAX : i * 1000;
        p->claim_ms = i == 4 ? UINT32_MAX : 1000 + i;
        p->mode = (uint8_t)(i < 4 ? HF_LIMITED : i % 3); /* holders are of one mode */
        p->limit = p->mode == HF_LIMITED ? (i == 5 ? UINT32_MAX : 4 + i) : 0;
        p->flags = i % 4 == 3 ? HF_PARTY_UNCLAIMED : 0;
        p->bell = (uint8_t)(i * 28);
        put_text(p->owner, &p->owner_len, i ? HF_OWNER_CAP - 1 : 1, nasty[i % 5]);
        put_text(p->note, &p->note_len, i == 6 ? 0 : HF_NOTE_CAP - 1, nasty[(i + 1) % 5]);
    }
    return 0;
}

static const char *every_field(struct hf__suite *cfm)
{
    char text[HF_KEY_CAP];
    hf_rowkey key = hf__con_key(cfm, text, "fields");
    const char *why = NULL;
    hf_row row;
    hf_row_init(&row);
    if (full_row(&row)) why = "out of memory";
    if (!why) why = there_and_back(cfm, &key, &row, "a row with everything");
    row.n_holders = row.n_queue = 0;
    row.result_len = 0;
    row.result[0] = 0;
    row.done_us = 1;
    row.keep_until_us = 0;
    if (!why) why = there_and_back(cfm, &key, &row, "a marker");
    row.done_us = 0;
    one_holder(&row, 1);
    if (!why) why = there_and_back(cfm, &key, &row, "a holder");
    row.n_holders = 0;
    row.n_queue = 1;
    row.party[0].token = 0;
    if (!why) why = there_and_back(cfm, &key, &row, "a waiter alone");
    hf_row_clear(&row);
    return why;
}

static const char *crowd(struct hf__suite *cfm, uint32_t holders, uint32_t queue)
{
    char text[HF_KEY_CAP];
    hf_rowkey key = hf__con_key(cfm, text, "crowd");
    const char *why = NULL;
    hf_row row;
    hf_row_init(&row);
    if (hf_row_room(&row, (size_t)holders + queue)) return "out of memory";
    row.n_holders = holders;
    row.n_queue = queue;
    row.token = holders;
    for (uint32_t i = 0; i < holders + queue; i++) {
        row.party[i] = hf__con_party(1, i);
        row.party[i].mode = HF_SHARED;
        if (i < holders) row.party[i].token = i + 1;
    }
    why = there_and_back(cfm, &key, &row, "a crowd");
    hf_row_clear(&row);
    return why;
}

static const char *long_queue(struct hf__suite *cfm)
{
    uint32_t most = cfm->caps.queue_cap < QUEUE_TRIED ? cfm->caps.queue_cap : QUEUE_TRIED;
    return crowd(cfm, 1, most);
}

static const char *many_holders(struct hf__suite *cfm)
{
    uint32_t most = cfm->caps.holders_cap < HOLDERS_TRIED ? cfm->caps.holders_cap : HOLDERS_TRIED;
    HF_CHECK(most, "it has room for none");
    return crowd(cfm, most, 2);
}

/* ---- replace and take ---- */

static const char *replace_on_seen(struct hf__suite *cfm)
{
    char text[HF_KEY_CAP];
    hf_rowkey key = hf__con_key(cfm, text, "replace");
    hf_error err = {0, 0, ""};
    hf_row row, cur;
    hf_row_init(&row);
    hf_row_init(&cur);
    one_holder(&row, 1);
    HF_CHECK(!hf__con_create(&cfm->con, &key, &row, &err), "%s", err.text);
    uint64_t first = row.rev;
    row.rev++;
    HF_CHECK(hf__con_replace(cfm, &key, 0, &row, &cur) == HF_CONFLICT, "created twice");
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
    HF_CHECK(!hf__con_create(&cfm->con, &key, &row, &err), "created again: %s", err.text);
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
    one_holder(&row, 1);
    if (hf__con_create(&cfm->con, &key, &row, &err) || hf__con_open(cfm, &other, &err))
        return hf__bad(cfm, "%s", err.text);
    for (uint32_t i = 0; i < 50 && !why; i++) {
        const struct hf__con *from = i % 2 ? &cfm->con : &other, *to = i % 2 ? &other : &cfm->con;
        uint64_t seen = row.rev++;
        one_holder(&row, i);
        row.party[0].token = row.token;
        if (from->drv->replace(from->st, &key, seen, &row, NULL, &clock, &err))
            why = hf__bad(cfm, "replace: %s", err.text);
        else if (to->drv->get(to->st, &key, &cur, &clock, &err) || !hf_row_equal(&cur, &row))
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

/* A request that came twice, for its reply was lost: granted, given back, and here again. A store
   that has no replies to lose may have forgotten it. */
static const char *acquire_comes_late(struct hf__suite *cfm, const hf_rowkey *key,
                                      const hf_party *p, hf_row *row)
{
    hf_row cur;
    if (cfm->con.caps.local) return NULL;
    hf_row_init(&cur);
    HF_CHECK(acquire(cfm, key, p, &cur) == HF_CONFLICT, "what was given back is taken by it again");
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
    HF_CHECK(!acquire(cfm, &key, &a, &row), "refused although nobody has it");
    HF_CHECK(row.n_holders == 1 && !row.n_queue && row.token == row.rev &&
                 row.party[0].token == row.token && !row.party[0].expires_us &&
                 !memcmp(row.party[0].id, a.id, 16) && row.party[0].note_len == a.note_len,
             "its row isn't a grant to the caller");
    HF_CHECK(!hf__con_get(cfm, &key, &cur) && hf_row_equal(&row, &cur), "another row was stored");
    HF_CHECK(acquire(cfm, &key, &b, &cur) == HF_CONFLICT, "granted twice");
    HF_CHECK(hf_row_equal(&row, &cur), "a conflict shows another row");
    uint64_t token = row.token;
    HF_CHECK(!give_back(cfm, &key, &row), "not given back: %s", cfm->why);
    const char *why = acquire_comes_late(cfm, &key, &a, &row);
    if (why) return why;
    HF_CHECK(!acquire(cfm, &key, &b, &row), "refused although it is free");
    HF_CHECK(row.token > token, "the token fell");
    HF_CHECK(row.party[0].expires_us == row.party[0].since_us + INT64_C(60000000), "another lease");
    /* Nobody holds, but somebody waits: his turn. */
    uint64_t seen = row.rev++;
    row.n_holders = 0;
    row.n_queue = 1;
    row.party[0] = b;
    HF_CHECK(!hf__con_replace(cfm, &key, seen, &row, NULL), "%s", cfm->why);
    HF_CHECK(acquire(cfm, &key, &a, &cur) == HF_CONFLICT, "barged past the queue");
    /* A free row keeps its marker when it is taken. */
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

/* Through release, and through the deletion of the row. */
static const char *tokens_grow(struct hf__suite *cfm)
{
    char text[HF_KEY_CAP];
    hf_rowkey key = hf__con_key(cfm, text, "tokens");
    hf_error err = {0, 0, ""};
    uint64_t last = 0;
    hf_row row;
    hf_row_init(&row);
    for (int i = 0; i < 200; i++) {
        one_holder(&row, 1);
        if (cfm->con.drv->acquire) {
            hf_party p = hf__con_party(1, (uint32_t)i);
            HF_CHECK(!acquire(cfm, &key, &p, &row), "grant %d: %s", i, cfm->why);
        } else {
            HF_CHECK(!hf__con_create(&cfm->con, &key, &row, &err), "grant %d: %s", i, err.text);
        }
        HF_CHECK(row.token > last, "token %llu after %llu", (unsigned long long)row.token,
                 (unsigned long long)last);
        last = row.token;
        int rc =
            i % 3 ? give_back(cfm, &key, &row) : hf__con_replace(cfm, &key, row.rev, NULL, NULL);
        HF_CHECK(!rc, "not given back: %s", cfm->why);
        if (!(i % 3)) hf__con_await_clock(cfm, &key, last);
    }
    HF_CHECK(last < UINT64_C(1) << 53, "token %llu", (unsigned long long)last);
    return NULL;
}

/* ---- the list ---- */

static int sweep(void *arg, const hf_rowkey *key, hf_row *row)
{
    struct hf__suite *cfm = arg;
    int64_t clock;
    if (row) (void)cfm->con.drv->replace(cfm->con.st, key, row->rev, NULL, NULL, &clock, NULL);
    return 0;
}

static const char *sweep_up(struct hf__suite *cfm)
{
    hf_error err = {0, 0, ""};
    HF_CHECK(!hf__con_scan(&cfm->con, cfm->prefix, sweep, cfm, &err), "%s", err.text);
    return NULL;
}

int hf__conform(const hf_driver *drv, const hf_url *url,
                void (*say)(void *arg, const char *promise, const char *why), void *arg)
{
    static const struct hf__check checks[] = {
        {"a key that nobody used is free", 0, unused_key},
        {"every field is read back byte for byte", 0, every_field},
        {"a queue as long as it may be is kept", 0, long_queue},
        {"a crowd of holders is kept", 0, many_holders},
        {"a row is replaced only by who has seen it", 0, replace_on_seen},
        {"another handle sees every change at once", 0, seen_by_another},
        {"what is free is acquired, and nothing else", 0, acquire_if_free},
        {"tokens grow, through release and deletion", 0, tokens_grow},
    };
    static const struct hf__check last[] = {{"it is swept up", 0, sweep_up}};
    struct hf__suite cfm = {.drv = drv, .url = url, .say = say, .arg = arg, .caps = drv->caps};
    hf_error err = {0, 0, ""};
    uint64_t r;
    hf__random(&r, sizeof r);
    snprintf(cfm.prefix, sizeof cfm.prefix, "holdfast-conform/%016llx/", (unsigned long long)r);
    cfm.in_memory = !strcmp(drv->name, "mem");
    /* What the store can is known once it is open; those that fork come while it isn't. */
    if (!cfm.in_memory && !hf__con_open(&cfm, &cfm.con, NULL)) {
        cfm.caps = cfm.con.caps;
        hf__con_close(&cfm.con);
    }
    if (!cfm.in_memory) hf__conform_processes(&cfm);
    if (hf__con_open(&cfm, &cfm.con, &err)) {
        say(arg, "it opens", err.text);
        return cfm.failed + 1;
    }
    cfm.caps = cfm.con.caps;
    hf__conform_run(&cfm, checks, sizeof checks / sizeof *checks);
    hf__conform_handle(&cfm);
    if (!cfm.con.st) return cfm.failed; /* it couldn't be opened again, as was said */
    hf__conform_keys(&cfm);
    hf__conform_acquire(&cfm);
    hf__conform_update(&cfm);
    hf__conform_many(&cfm);
    hf__conform_threads(&cfm);
    hf__conform_run(&cfm, last, 1);
    hf__con_close(&cfm.con);
    return cfm.failed;
}
