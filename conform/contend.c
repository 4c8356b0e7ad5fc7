/*
 * contend.c - the conformance suite: threads and processes that write one row at the same time lose
 * no update, and those that acquire exclude each other. See race.h.
 */
#include "race.h"

#include "os.h"
#include "step.h"

enum {
    WINS = 50, /* of each racer */
    WINS_WHERE_WRITES_ARE_DEAR = 2,
    PATIENCE_S = 10 /* for how long a racer waits for the others to release the key */
};

static uint32_t wins_each(const struct hf__racer *r)
{
    return !r->con.caps.queues ? WINS_WHERE_WRITES_ARE_DEAR : WINS;
}

/* Adds 1 to the number in the row (keep_until_us) by a replace of the row that was read. */
static int add_one(struct hf__racer *r, const hf_rowkey *key, hf_row *row)
{
    uint64_t seen = row->rev++;
    row->keep_until_us++;
    int rc = hf__race_replace(r, key, seen, row, NULL);
    if (!rc) atomic_fetch_add(&r->arena->wins, 1);
    if (rc == HF_CONFLICT) atomic_fetch_add(&r->arena->conflicts, 1);
    return rc;
}

/*
 * Races replaces. In the first round all racers read the row before any writes, so that all but one
 * must get a conflict: a race without conflicts would prove nothing.
 */
static int race_replaces(struct hf__racer *r)
{
    char text[HF_KEY_CAP];
    hf_rowkey key = hf__con_key(r->cfm, text, "race");
    hf_row row;
    uint64_t last = 0;
    hf_row_init(&row);
    if (!r->me && hf__race_create(r, &key)) return 1;
    if (hf__race_meet(r, 0) || hf__race_get(r, &key, &row) || hf__race_meet(r, 1)) return 1;
    int rc = add_one(r, &key, &row);
    if (rc < 0) return 1;
    if (!rc) atomic_fetch_add(&r->arena->first_wins, 1);
    for (uint32_t wins = 0; wins < wins_each(r);) {
        if (atomic_load(&r->arena->failed) || hf__race_get(r, &key, &row)) return 1;
        if (row.rev < last) return hf__race_fail(r, "an old row was read");
        last = row.rev;
        hf__race_nap(); /* other racers may write now */
        rc = add_one(r, &key, &row);
        if (rc < 0) return 1;
        wins += !rc;
    }
    if (hf__race_meet(r, 2) || r->me) return 0;
    if (hf__race_get(r, &key, &row) || hf__race_replace(r, &key, row.rev, NULL, NULL)) return 1;
    r->arena->total = (uint64_t)row.keep_until_us - 1;
    return 0;
}

static const char *judge_replaces(struct hf__suite *cfm, struct hf__arena *a)
{
    uint32_t wins = a->wins, conflicts = a->conflicts;
    HF_CHECK(a->total == wins, "%u updates were confirmed, but the row has %llu", wins,
             (unsigned long long)a->total);
    HF_CHECK(a->first_wins == 1, "%u of %d writers won with the same rev", a->first_wins,
             HF_RACERS);
    HF_CHECK(conflicts >= HF_RACERS - 1, "no conflicts: it proves nothing");
    return NULL;
}

static int inside(struct hf__racer *r)
{
    struct hf__arena *a = r->arena;
    if (atomic_fetch_add(&a->inside, 1)) return hf__race_fail(r, "two hold it at once");
    a->counter++;
    hf__race_nap(); /* from here on another racer may hold the key */
    atomic_fetch_sub(&a->inside, 1);
    return 0;
}

static int race_takes(struct hf__racer *r)
{
    char text[HF_KEY_CAP];
    hf_rowkey key = hf__con_key(r->cfm, text, "takes");
    hf_party p = hf__con_party(1, r->me);
    hf_row row;
    hf_row_init(&row);
    if (hf__race_meet(r, 0)) return 1;
    int64_t until = hf__local_us() + PATIENCE_S * INT64_C(1000000);
    for (uint32_t wins = 0; wins < wins_each(r);) {
        hf_error err = {0, 0, ""};
        int64_t clock;
        if (atomic_load(&r->arena->failed)) return 1;
        int rc = r->con.drv->acquire(r->con.st, &key, &p, 0, &row, &clock, &err);
        if (rc < 0) return hf__race_fail(r, "acquire: %s", hf__why(r->cfm, &err));
        if (rc) {
            /* A bad store may have lost the release of another racer. */
            if (hf__local_us() >= until)
                return hf__race_fail(r, "acquire: no racer has released it for %d s", PATIENCE_S);
            hf__race_nap();
            continue;
        }
        if (inside(r)) return 1;
        hf__row_taken(&row, &p);
        wins++;
        until = hf__local_us() + PATIENCE_S * INT64_C(1000000);
        uint64_t seen = row.rev++;
        row.n_holders = 0;
        rc = hf__race_replace(r, &key, seen, &row, NULL);
        if (rc == HF_CONFLICT)
            return hf__race_fail(r, "a row that was held was changed by another");
        if (rc) return 1;
    }
    return 0;
}

static const char *judge_takes(struct hf__suite *cfm, struct hf__arena *a)
{
    uint32_t each = !cfm->caps.queues ? WINS_WHERE_WRITES_ARE_DEAR : WINS;
    HF_CHECK(a->counter == HF_RACERS * each, "%llu grants, of which %u were given",
             (unsigned long long)a->counter, HF_RACERS * each);
    return NULL;
}

const char *hf__race_replaces_of_processes(struct hf__suite *cfm, struct hf__arena *a)
{
    const char *why = hf__race_processes(cfm, a, HF_RACERS, race_replaces);
    return why ? why : judge_replaces(cfm, a);
}

const char *hf__race_takes_of_processes(struct hf__suite *cfm, struct hf__arena *a)
{
    const char *why = hf__race_processes(cfm, a, HF_RACERS, race_takes);
    return why ? why : judge_takes(cfm, a);
}

const char *hf__race_replaces_of_threads(struct hf__suite *cfm, struct hf__arena *a)
{
    const char *why = hf__race_threads(cfm, a, HF_RACERS, 1, race_replaces);
    return why ? why : judge_replaces(cfm, a);
}

const char *hf__race_takes_of_threads(struct hf__suite *cfm, struct hf__arena *a)
{
    const char *why = hf__race_threads(cfm, a, HF_RACERS, 1, race_takes);
    return why ? why : judge_takes(cfm, a);
}
