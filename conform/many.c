/*
 * many.c - the conformance suite: checks of replace_many. See conform.h.
 */
#include "race.h"

#include "cas_loop.h"
#include "os.h"
#include "port.h"

#include <stdio.h>

enum { KEYS = 8, WRITERS = 4, ROUNDS = 20, PATIENCE_US = 10000000, PAUSE_US = 10000 };
/* No row has this rev. */
static const uint64_t NO_REV = (UINT64_C(1) << 53) - 1;

/* A few keys, their rows as they are stored, and the rows that are to replace them. */
struct many {
    char text[KEYS][HF_KEY_CAP];
    hf_rowkey key[KEYS];
    hf_row row[KEYS], next[KEYS], cur[KEYS];
    hf_replace item[KEYS];
    hf_error err[KEYS];
};

static void init(struct hf__suite *cfm, struct many *m, const char *group)
{
    char name[80];
    for (int i = 0; i < KEYS; i++) {
        snprintf(name, sizeof name, "%s/%d", group, i);
        m->key[i] = hf__con_key(cfm, m->text[i], name);
        hf_row_init(&m->row[i]);
        hf_row_init(&m->next[i]);
        hf_row_init(&m->cur[i]);
    }
}

static void clear(struct many *m)
{
    for (int i = 0; i < KEYS; i++) {
        hf_row_clear(&m->row[i]);
        hf_row_clear(&m->next[i]);
        hf_row_clear(&m->cur[i]);
    }
}

/* Stores a row with a holder at each key. The row of the last key also has waiters and a marker. */
static const char *create(struct hf__suite *cfm, struct many *m)
{
    hf_error err = {0, 0, ""};
    for (uint32_t i = 0; i < KEYS; i++) {
        hf_row *row = &m->row[i];
        if (hf_row_room(row, 3)) return hf__bad(cfm, "out of memory");
        row->n_holders = 1;
        row->party[0] = hf__con_party(0, 10 * i);
        row->party[0].expires_us = 1000000;
        if (i == KEYS - 1) {
            row->n_queue = 2;
            row->party[1] = hf__con_party(0, 10 * i + 1);
            row->party[2] = hf__con_party(0, 10 * i + 2);
            row->done_us = 5;
            row->keep_until_us = INT64_MAX;
            row->result_len = (uint16_t)snprintf(row->result, sizeof row->result, "result");
            row->done_by_len = (uint8_t)snprintf(row->done_by, sizeof row->done_by, "by");
        }
        if (hf__con_create(&cfm->con, &m->key[i], row, &err))
            return hf__bad(cfm, "%s", hf__why(cfm, &err));
    }
    return NULL;
}

/* Plans for each key a replace that moves the end of its hold, as a renewal does. */
static const char *plan(struct hf__suite *cfm, struct many *m)
{
    for (int i = 0; i < KEYS; i++) {
        if (hf_row_copy(&m->next[i], &m->row[i])) return hf__bad(cfm, "out of memory");
        m->next[i].rev++;
        m->next[i].party[0].expires_us += 1000;
        m->err[i] = (hf_error){0, 0, ""};
        m->item[i] = (hf_replace){.key = &m->key[i],
                                  .seen = m->row[i].rev,
                                  .row = &m->next[i],
                                  .cur = &m->cur[i],
                                  .result = HF_UNKNOWN,
                                  .err = &m->err[i]};
    }
    return NULL;
}

static int ask(struct hf__suite *cfm, struct many *m, int n, int64_t patience_us)
{
    const struct hf__con *con = &cfm->con;
    int64_t until_us = hf__local_us() + patience_us;
    int rc;
    /* UNAVAILABLE: nothing was sent, because connecting took too long. Tries again. */
    while ((rc = con->drv->replace_many(con->st, m->item, (size_t)n, until_us)) == HF_UNAVAILABLE &&
           hf__local_us() < until_us)
        hf__pause(PAUSE_US);
    if (!patience_us) return rc;
    for (int i = 0; i < n; i++) hf__note(cfm, m->item[i].result);
    return hf__note(cfm, rc);
}

/* Checks that row i is stored as its result says. m->row[i] becomes the stored row. */
static const char *is_stored(struct hf__suite *cfm, struct many *m, int i)
{
    const char *why = NULL;
    hf_row got;
    hf_row_init(&got);
    if (hf__con_get(cfm, &m->key[i], &got))
        why = cfm->why;
    else if (!m->item[i].result && !hf_row_equal(&got, &m->next[i]))
        why = hf__bad(cfm, "the replace of key %d is said to be done, but another row is there", i);
    else if (m->item[i].result == HF_CONFLICT && !hf_row_equal(&got, &m->row[i]))
        why = hf__bad(cfm, "the replace of key %d was refused, but its row was changed", i);
    else if (m->item[i].result == HF_CONFLICT && !hf_row_equal(&m->cur[i], &got))
        why = hf__bad(cfm, "the conflict of key %d doesn't show the current row", i);
    if (!why && hf_row_copy(&m->row[i], &got)) why = hf__bad(cfm, "out of memory");
    hf_row_clear(&got);
    return why;
}

static const char *erase(struct hf__suite *cfm, struct many *m, const char *why)
{
    for (int i = 0; i < KEYS && !why; i++)
        if (m->row[i].rev && hf__con_replace(cfm, &m->key[i], m->row[i].rev, NULL, NULL))
            why = cfm->why;
    clear(m);
    return why;
}

/* ---- results ---- */

/* Makes replaces of which two have to be refused: the first, and one between those that have to be
   done. */
static const char *some_refused(struct hf__suite *cfm, struct many *m)
{
    const char *why = plan(cfm, m);
    int told = cfm->caps.local || cfm->caps.sessions;
    if (why) return why;
    m->item[0].seen = NO_REV;
    m->item[3].seen--;
    /* The replace of the last key removes its waiters and its marker. */
    m->next[KEYS - 1].n_queue = 0;
    m->next[KEYS - 1].done_us = m->next[KEYS - 1].keep_until_us = 0;
    m->next[KEYS - 1].result_len = m->next[KEYS - 1].done_by_len = 0;
    int rc = ask(cfm, m, KEYS, PATIENCE_US);
    HF_CHECK(!rc, "replace_many: %s", hf_code_text(rc));
    for (int i = 0; i < KEYS; i++) {
        int want = i == 0 || i == 3 ? HF_CONFLICT : 0;
        HF_CHECK(m->item[i].result == want, "key %d of %d: %s instead of %s: %s", i, KEYS,
                 m->item[i].result == HF_CONFLICT ? "a conflict" : hf_code_text(m->item[i].result),
                 want ? "a conflict" : "done", m->err[i].text);
        HF_CHECK(told || m->item[i].clock_us > 0, "key %d: its reply brings no clock", i);
    }
    for (int i = 0; i < KEYS && !why; i++) why = is_stored(cfm, m, i);
    return why;
}

/* Checks that the replace of a row that was deleted is refused, and those beside it are done. */
static const char *one_absent(struct hf__suite *cfm, struct many *m)
{
    if (hf__con_replace(cfm, &m->key[1], m->row[1].rev, NULL, NULL)) return cfm->why;
    const char *why = plan(cfm, m);
    int rc = why ? 0 : ask(cfm, m, 3, PATIENCE_US);
    if (why) return why;
    HF_CHECK(!rc, "replace_many: %s", hf_code_text(rc));
    HF_CHECK(m->item[1].result == HF_CONFLICT && !m->cur[1].n_holders,
             "a row that isn't there was replaced, or is shown");
    HF_CHECK(!m->item[0].result && !m->item[2].result, "beside it others aren't replaced");
    hf_row_clear(&m->row[1]);
    why = is_stored(cfm, m, 0);
    return why ? why : is_stored(cfm, m, 2);
}

static const char *each_has_its_result(struct hf__suite *cfm)
{
    struct many m;
    init(cfm, &m, "many");
    const char *why = create(cfm, &m);
    if (!why && ask(cfm, &m, 0, PATIENCE_US)) why = hf__bad(cfm, "none at all: not done");
    if (!why) why = some_refused(cfm, &m);
    if (!why) why = one_absent(cfm, &m);
    return erase(cfm, &m, why);
}

/* ---- unknown ones ---- */

/* Makes replaces without any time, which may be done, done later, or not sent. Then makes the same
   replaces again: each must take effect once, now or before. */
static const char *none_in_time(struct hf__suite *cfm, struct many *m)
{
    const char *why = plan(cfm, m);
    if (why) return why;
    ask(cfm, m, KEYS, 0);
    for (int i = 0; i < KEYS; i++) {
        int rc = m->item[i].result;
        HF_CHECK(!rc || rc == HF_UNKNOWN || rc == HF_UNAVAILABLE,
                 "without time for it key %d is answered by %s", i,
                 rc == HF_CONFLICT ? "a conflict" : hf_code_text(rc));
        if (!rc) why = is_stored(cfm, m, i);
        if (why) return why;
        m->item[i].result = HF_UNKNOWN;
        m->item[i].clock_us = 0;
    }
    int rc = ask(cfm, m, KEYS, PATIENCE_US);
    HF_CHECK(!rc, "replace_many: after one without time: %s", hf_code_text(rc));
    for (int i = 0; i < KEYS; i++) {
        int own = m->item[i].result == HF_CONFLICT && hf_row_equal(&m->cur[i], &m->next[i]);
        HF_CHECK(own || !m->item[i].result, "after one without time key %d: %s", i,
                 m->item[i].result == HF_CONFLICT ? "another row is there" : m->err[i].text);
        m->item[i].result = 0;
        why = is_stored(cfm, m, i);
        if (why) return why;
    }
    return NULL;
}

static const char *unknown_spoils_nothing(struct hf__suite *cfm)
{
    struct many m;
    init(cfm, &m, "many-late");
    const char *why = create(cfm, &m);
    for (int i = 0; i < 3 && !why; i++) why = none_in_time(cfm, &m);
    return erase(cfm, &m, why);
}

/* ---- side by side ---- */

/* Repeats by itself a replace that a busy store has not made, or not answered in time (then the
   first one may have been made). */
static void make_alone(const struct hf__con *con, hf_replace *item)
{
    int64_t until_us = hf__local_us() + PATIENCE_US;
    int mine = item->result == HF_UNKNOWN;
    while ((item->result == HF_UNAVAILABLE || item->result == HF_UNKNOWN) &&
           hf__local_us() < until_us) {
        int rc = con->drv->replace(con->st, item->key, item->seen, item->row, item->cur,
                                   &item->clock_us, item->err);
        item->result = hf__cas_judge(rc, item->cur, item->row, &mine);
    }
}

static int write_many(struct hf__racer *r)
{
    struct many m;
    char group[40];
    const char *why = NULL;
    snprintf(group, sizeof group, "many-by/%u", r->me);
    struct hf__suite own = *r->cfm; /* a copy, for this thread's `why` */
    own.con = r->con;
    init(&own, &m, group);
    int rc = hf__race_meet(r, 0);
    if (!rc) why = create(&own, &m);
    for (int round = 0; !rc && !why && round < ROUNDS; round++) {
        why = plan(&own, &m);
        if (!why && ask(&own, &m, KEYS, PATIENCE_US)) why = hf__bad(&own, "no connection");
        for (int i = 0; i < KEYS && !why; i++) {
            make_alone(&r->con, &m.item[i]);
            if (hf__note(&own, m.item[i].result))
                why = hf__bad(&own, "key %d: %s", i, m.err[i].text);
            if (!why && hf_row_copy(&m.row[i], &m.next[i])) why = hf__bad(&own, "out of memory");
        }
    }
    for (int i = 0; i < KEYS && !why && !rc; i++) why = is_stored(&own, &m, i);
    why = erase(&own, &m, why);
    if (why) hf__race_fail(r, "%s", why);
    return why != NULL;
}

static const char *play_writers(struct hf__suite *cfm, struct hf__arena *a)
{
    return hf__race_threads(cfm, a, WRITERS, 1, write_many);
}

static const char *threads_side_by_side(struct hf__suite *cfm)
{
    return hf__with_arena(cfm, play_writers);
}

void hf__conform_many(struct hf__suite *cfm)
{
    static const struct hf__check checks[] = {
        {"of many replaces at once each has its own result", 0, each_has_its_result},
        {"a replace that isn't answered spoils no other, and is done once", 0,
         unknown_spoils_nothing},
        {"threads replace many at once, side by side", HF_NEEDS_THREADS, threads_side_by_side}};
    if (cfm->con.drv->replace_many) hf__conform_run(cfm, checks, 3);
}
