/*
 * rows.c - the conformance suite: checks that a row is read back as it was written, however full it
 * is. See conform.h.
 */
#include "conform.h"

#include <string.h>

enum { QUEUE_TRIED = 4096, HOLDERS_TRIED = 64 };

/* Stores `row` as the first row of the key, reads it back, compares, and deletes it. `what`: the
   kind of row, for messages. */
static const char *there_and_back(struct hf__suite *cfm, const hf_rowkey *key, hf_row *row,
                                  const char *what)
{
    hf_error err = {0, 0, ""};
    const char *why = NULL, *flaw = NULL;
    hf_row read;
    hf_row_init(&read);
    if (hf__con_create(&cfm->con, key, row, &err))
        why = hf__bad(cfm, "%s: %s", what, hf__why(cfm, &err));
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
    /* `get` must replace all that was in *row before. */
    hf__con_one_holder(&row, 1);
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
    /* Fills with whole patterns only, so that UTF-8 text stays UTF-8. */
    for (; i + m <= n; i += m) memcpy(to + i, pattern, m);
    for (; i < n; i++) to[i] = 'x';
    to[n] = 0;
    *len = (uint8_t)n;
}

/* Makes a row whose fields differ, with texts and numbers as large as they may be. Not the rev:
   later revs of the store would have to be above it. */
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
        p->wakeup = (uint8_t)(i * 28);
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
    hf__con_one_holder(&row, 1);
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

void hf__conform_rows(struct hf__suite *cfm)
{
    static const struct hf__check checks[] = {
        {"a key that was never used is free", 0, unused_key},
        {"every field is read back byte for byte", 0, every_field},
        {"a queue as long as it may be is kept", 0, long_queue},
        {"a crowd of holders is kept", 0, many_holders},
    };
    hf__conform_run(cfm, checks, sizeof checks / sizeof *checks);
}
