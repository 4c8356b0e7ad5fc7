/*
 * replace_many.c - postgres: many replaces sent at once over one connection, in libpq's pipeline
 * mode. A Sync behind each replace makes it a transaction of its own, so a failure doesn't concern
 * the next one. See store.h, and replace_many in holdfast_driver.h.
 *
 * The server carries the replaces out one after the other. lock_timeout is short on this
 * connection, so that a row that another client has locked doesn't hold up the others. If not all
 * replaces are answered in time, the connection is closed; those that were sent may still be
 * carried out.
 */
#include "kit/fork_gate.h"
#include "store.h"

#include <stdio.h>
#include <string.h>

enum { ROUNDS = 4 };
#define LOCK_MS "10"

enum { QUIET_VALUES = HF_FIELDS + HF_PG_QUIET_FIRST - 1 };

/* Replaces that are sent together. */
struct many {
    hf_store *st;
    struct hf__pg_link *link;
    int64_t until_us;
    hf_replace *item[HF_BATCH]; /* the replaces that have no answer yet */
    uint8_t quiet[HF_BATCH];    /* 1: sent as the short statement (replace.c) */
    uint8_t prepared[HF_BATCH]; /* how many other answers come just before this replace's */
    size_t n;
    int demoted; /* 1: see hf__pg_is_demoted */
    int cut; /* 1: a request wasn't sent whole. Nothing is sent behind it, because answers could be
                taken for those of other requests */
};

static int fail(hf_replace *item, int code, const char *why)
{
    return item->result =
               hf_fail(item->err, code, 0, "postgres: replace '%s': %s", item->key->text, why);
}

static void first_line(const char *from, char to[200])
{
    snprintf(to, 200, "%.*s", (int)strcspn(from, "\n"), from);
}

/* ---- replies ---- */

static const char *state_of(const PGresult *r)
{
    const char *state = PQresultErrorField(r, PG_DIAG_SQLSTATE);
    return state ? state : "";
}

/* ---- requests ---- */

/* Ends a request with a Sync. `taken`: libpq has accepted the request. Returns 0 if the request
   isn't sent whole, and sets m->cut. */
static int sent_whole(struct many *m, int taken)
{
    if (!taken || !PQpipelineSync(m->link->pg)) m->cut = 1;
    return !m->cut;
}

/* Puts the preparation of a frequent statement into the pipeline, if it is needed. Returns how many
   answers come for that: 0 or 1. */
static int prepare(struct many *m, const struct hf__pg_often *often, int n)
{
    struct hf__pg_link *link = m->link;
    if (link->pooled || link->forgets || link->prepared & often->bit) return 0;
    if (m->cut || !sent_whole(m, hf__pg_send_prepare(link, often, n))) return 0;
    link->prepared |= often->bit;
    return 1;
}

/* Puts the replace into the pipeline. Returns 1; 0: that failed, and the replace has its result. */
static int put(struct many *m, hf_replace *item, const struct hf__pg_often *often, int n)
{
    int quiet = n == QUIET_VALUES;
    char room[HF_FIELDS][24], seen[24], word[HF_PG_NOTIFICATION_CAP],
        addresses[HF_ADDRESSES_CAP] = "";
    const char *values[HF_PG_SWAP_VALUES] = {item->key->text, seen, m->st->listener.channel, word,
                                             addresses};
    struct hf__fields f;
    const char *why;
    int sent = 0, rc = hf__put_fields(item->row, HF_JSON_TEXT, &f, &why);
    if (rc) {
        fail(item, rc, why);
    } else {
        snprintf(seen, sizeof seen, "%llu", (unsigned long long)item->seen);
        hf__pg_fill(&f, values + (quiet ? HF_PG_QUIET_FIRST : HF_PG_FIRST) - 1, room);
        if (!quiet) {
            hf__pg_put_notification(item->key, item->row, word);
            hf__put_addresses(addresses, item->row);
        }
        sent = !m->cut && sent_whole(m, hf__pg_send(m->link, often, n, values));
        if (!sent) fail(item, HF_UNKNOWN, "it could not be sent");
    }
    hf__free_fields(&f);
    return sent;
}

/* ---- answers ---- */

/* Takes the reply of a long statement that has written nothing. Returns 1: the replace has its
   result; 0: the replace has to be sent again. */
static int refused(const hf_store *st, hf_replace *item, const PGresult *r)
{
    uint64_t there = hf__pg_has_row(r) ? (uint64_t)hf__pg_number(r, 0, 2 + HF_FIELD_REV) : 0;
    int rc = 0;
    if (there == item->seen) return 0; /* another client wrote while the statement ran */
    hf_row_clear(item->cur);
    if (there) rc = hf__pg_decode(st, r, 0, item->cur, "replace", item->key->text, item->err);
    item->result = rc ? rc : HF_CONFLICT;
    return 1;
}

static int failed(struct many *m, hf_replace *item, const PGresult *r)
{
    char why[200];
    const char *state = state_of(r);
    first_line(PQresultErrorMessage(r), why);
    int code = hf__pg_code(state, HF_UNKNOWN);
    m->demoted |= hf__pg_is_demoted(state);
    if (!strncmp(state, "26", 2) || !strncmp(state, "0A", 2)) {
        /* The server doesn't know the prepared statement, so nothing was done. The replace is sent
           again, unprepared. */
        m->link->prepared = 0;
        m->link->forgets = 1;
        return 0;
    }
    if (!strncmp(state, "42P01", 5)) { /* the table doesn't exist, so there is no row */
        hf_row_clear(item->cur);
        item->result = HF_CONFLICT;
        return 1;
    }
    fail(item, code, why);
    return 1;
}

static int judge(struct many *m, hf_replace *item, int quiet, const PGresult *r)
{
    if (PQresultStatus(r) != PGRES_TUPLES_OK) return failed(m, item, r);
    /* the short statement was refused, perhaps because the row has a waiter: the long one follows
     */
    if (quiet && !PQntuples(r)) return 0;
    item->clock_us = hf__pg_number(r, 0, quiet ? 0 : 1);
    if (!quiet && !hf__pg_number(r, 0, 0)) return refused(m->st, item, r);
    hf__pg_note_written(item->key, item->seen, item->row);
    item->result = 0;
    return 1;
}

/* Puts a statement into the pipeline that limits how long the following ones wait for a lock; but
   not behind a pooler, which would keep the setting for other clients. Returns how many answers
   come for that: 0 or 1. */
static int wait_for_no_lock(struct many *m)
{
    char ms[24];
    const char *values[] = {ms};
    if (m->link->pooled) return 0;
    snprintf(ms, sizeof ms, "%lld", (long long)m->st->how.io_timeout_ms);
    return sent_whole(m,
                      PQsendQueryParams(m->link->pg,
                                        "SELECT set_config('lock_timeout', '" LOCK_MS "', false), "
                                        "set_config('statement_timeout', $1::text, false)",
                                        1, NULL, values, NULL, NULL, 0));
}

/* Puts all replaces that have no result into the pipeline. Returns how many other answers come
   after that of the last replace. */
static int put_all(struct many *m, int first)
{
    const struct hf__pg_sql *sql = &m->st->sql;
    size_t n = 0, all = m->n;
    int prepared = first && all > 1 ? wait_for_no_lock(m) : 0;
    for (size_t i = 0; i < all; i++) {
        hf_replace *item = m->item[i];
        int quiet = first && item->seen && !item->row->n_queue;
        const struct hf__pg_often *often = quiet        ? &sql->quiet
                                           : item->seen ? &sql->update
                                                        : &sql->insert;
        int values = quiet ? QUIET_VALUES : HF_PG_SWAP_VALUES;
        if (all > 1) prepared += prepare(m, often, values);
        if (!put(m, item, often, values)) continue;
        m->item[n] = item;
        m->prepared[n] = (uint8_t)prepared;
        m->quiet[n++] = (uint8_t)quiet;
        prepared = 0;
    }
    m->n = n;
    return prepared;
}

/* Reads n answers that aren't those of replaces. What they say doesn't matter: if a statement
   couldn't be prepared, its executions fail. Returns 0 if an answer didn't come. */
static int see_prepared(struct many *m, int n)
{
    for (; n; n--) {
        PGresult *r = hf__pg_reply(m->link, m->until_us);
        if (!r) return 0;
        PQclear(r);
    }
    return 1;
}

/* Sends all replaces that have no result, and reads the answers that come in time. Replaces that
   have to be sent again stay in *m. Returns 0 if this connection can't be used any more. */
static int round_trip(struct many *m, int first)
{
    int behind = put_all(m, first), whole = 1;
    size_t again = 0;
    for (size_t i = 0; i < m->n; i++) {
        hf_replace *item = m->item[i];
        whole = whole && see_prepared(m, m->prepared[i]);
        PGresult *r = whole ? hf__pg_reply(m->link, m->until_us) : NULL;
        whole = r != NULL;
        if (!r)
            fail(item, HF_UNKNOWN,
                 hf__local_us() >= m->until_us ? "no answer in time" : "the connection is gone");
        else if (!judge(m, item, m->quiet[i], r))
            m->item[again++] = item;
        PQclear(r);
    }
    m->n = again;
    return whole && see_prepared(m, behind) && !m->cut;
}

static void replace(struct many *m)
{
    PGconn *pg = m->link->pg;
    int whole = PQenterPipelineMode(pg);
    for (int i = 0; whole && i < ROUNDS && m->n; i++) whole = round_trip(m, i == 0);
    for (size_t i = 0; i < m->n; i++) fail(m->item[i], HF_UNAVAILABLE, "others write it meanwhile");
    if (!whole || m->demoted || !PQexitPipelineMode(pg) || PQstatus(pg) != CONNECTION_OK)
        hf__pg_disconnect(m->link);
}

size_t hf__pg_replace_some(hf_store *st, void *link, hf_replace *item, size_t n, int64_t until_us)
{
    struct many m = {.st = st, .link = link, .until_us = until_us, .n = n};
    for (size_t i = 0; i < n; i++) m.item[i] = &item[i];
    hf__gate_begin();
    replace(&m);
    hf__gate_end();
    return n;
}
