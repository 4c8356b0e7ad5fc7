/*
 * race.c - the conformance suite: checks that threads and processes wake each other, and the table
 * of all checks that need several of them. See race.h.
 */
#include "race.h"

#include "os.h"

#include <string.h>

enum {
    PROMPT_MS = 4000, /* how long a wakeup may take on a busy machine; a poll would take longer */
    SLEEP_MS = 8000
};

/* ---- waiters are woken ---- */

/* Racer 0 waits in the queue; racer 1 grants the key to the first waiter there. Racer 1 writes
   while racer 0 sleeps, or (LISTEN_FIRST) after racer 0 has subscribed and before it sleeps. On
   stores with hf_notify_ops racer 0 also subscribes as a queued request (IN_LINE), as the first
   waiter or behind another (BEHIND). */
enum wait_how { LISTEN_FIRST = 1, IN_LINE = 2, BEHIND = 4 };

/* Racer 0's party has this number, plus the `how` of the wait (hf__con_party). */
enum { MINE = 10 };

static int let_in(struct hf__racer *r, const hf_rowkey *key, int step)
{
    hf_row row;
    hf_row_init(&row);
    if (hf__race_await(r->arena, step, 1))
        return hf__race_fail(r, "the waiter hasn't begun to wait in time");
    /* By then racer 0 mostly sleeps. If it is still awake, it must notice the write, too. */
    for (int i = 0; i < 200; i++) hf__race_nap();
    if (hf__race_get(r, key, &row)) return 1;
    uint64_t seen = row.rev++;
    row.token = row.rev;
    row.n_holders = 1;
    row.n_queue--;
    for (uint32_t i = 0; i <= row.n_queue; i++) hf_party_copy(&row.party[i], &row.party[i + 1]);
    row.party[0].token = row.rev;
    row.party[0].flags |= HF_PARTY_UNCLAIMED;
    int rc = hf__race_replace(r, key, seen, &row, NULL);
    hf_row_clear(&row);
    if (rc) return hf__race_fail(r, "the key cannot be granted");
    hf__race_arrive(r->arena, step + 1);
    return 0;
}

/* Checks the payload of the last notification: it must agree with the present row `row`, or be of
   an older one. Returns 1 if it does, or if there is none. */
static int word_is_true(const struct hf__con *con, const hf_rowkey *key, const hf_row *row)
{
    hf_row told;
    const hf_notify_ops *ops = con->caps.notify;
    if (!ops || !ops->payload) return 1;
    hf_row_init(&told);
    int true_word = 1, is = ops->payload(con->st, key, &told);
    if (is && told.rev) {
        true_word = told.rev < row->rev || hf_row_equal(&told, row);
    } else if (is) {
        /* A payload with another holder is of an older row. */
        const hf_party *p = &row->party[0], *is_told = &told.party[0];
        /* To waiters other than the holder some drivers send no more than the holder's id and
           expires_us. */
        int by_name = key->who && memcmp(key->who, p->id, 16) != 0 && !is_told->token;
        true_word = told.n_holders == 1 &&
                    (memcmp(is_told->id, p->id, 16) != 0 ||
                     (is_told->expires_us == p->expires_us &&
                      (by_name || (is_told->token == p->token && is_told->since_us == p->since_us &&
                                   is_told->flags == p->flags))));
    }
    hf_row_clear(&told);
    return true_word;
}

enum { WAKEUP = 9 };

/* Stores the row in which racer 0 waits, and fills in *key for the subscription. Returns 0 on
   success. */
static int get_in_line(struct hf__racer *r, hf_rowkey *key, hf_row *row, uint8_t id[16],
                       uint64_t session, int how)
{
    uint32_t mine = how & BEHIND ? 2 : 1;
    hf_error err = {0, 0, ""};
    if (hf_row_room(row, 3)) return hf__race_fail(r, "out of memory");
    row->n_holders = 1;
    row->n_queue = mine;
    row->party[0] = hf__con_party(1, 1);
    row->party[1] = hf__con_party(1, 3);
    /* Another id each time: a notification of an earlier wait may still come. */
    row->party[mine] = hf__con_party(session, MINE + (uint32_t)how);
    row->party[mine].wakeup = r->con.caps.local ? WAKEUP : 0;
    memcpy(id, row->party[mine].id, 16);
    key->who = how & IN_LINE ? id : NULL;
    key->in_line = (how & IN_LINE) != 0;
    return hf__con_create(&r->con, key, row, &err) ? hf__race_fail(r, "%s", hf__why(r->cfm, &err))
                                                   : 0;
}

/* Subscribes to the key, and takes the events that came before; on a local store begins the wakeup.
 */
static int listen_for(const struct hf__con *con, const hf_rowkey *key, hf_event_count *ret,
                      hf_error *err)
{
    const hf_notify_ops *ops = con->caps.notify;
    hf_key_event before;
    if (con->caps.local) return con->caps.local->wakeup_begin(con->st, WAKEUP, 1, ret, err);
    if (ops->subscribe(con->st, key)) return hf_fail(err, HF_NOMEM, 0, "out of memory");
    int rc = ops->flush(con->st, ret, err);
    while (!rc && ops->next_event(con->st, &before)) continue;
    return rc;
}

static int sleep_in_line(struct hf__racer *r, const hf_rowkey *key, hf_row *row, int step, int how)
{
    const struct hf__con *con = &r->con;
    const hf_local_ops *local = con->caps.local;
    int listen_first = how & LISTEN_FIRST;
    uint32_t before = row->n_queue;
    hf_error err = {0, 0, ""};
    hf_event_count seen;
    if (listen_for(con, key, &seen, &err))
        return hf__race_fail(r, "subscribe: %s", hf__why(r->cfm, &err));
    hf__race_arrive(r->arena, step);
    if (listen_first && hf__race_await(r->arena, step + 1, 1))
        return hf__race_fail(r, "the key was not granted");
    for (int64_t start = hf__local_us(), until = start + SLEEP_MS * INT64_C(1000);;) {
        if ((local ? local->sleep(con->st, WAKEUP, &seen, until, &err)
                   : con->caps.notify->sleep(con->st, &seen, until, &err)) < 0)
            return hf__race_fail(r, "sleep: %s", hf__why(r->cfm, &err));
        if (hf__local_us() - start > PROMPT_MS * INT64_C(1000))
            return hf__race_fail(r, listen_first ? "slept through a change made before watch"
                                                 : "slept on although the key was granted");
        if (hf__race_get(r, key, row)) return 1;
        if (row->n_queue < before) break;
    }
    if (!word_is_true(con, key, row)) return hf__race_fail(r, "the notification shows another row");
    return hf__race_replace(r, key, row->rev, NULL, NULL) ? hf__race_fail(r, "cannot be deleted")
                                                          : 0;
}

static int wait_asleep(struct hf__racer *r, hf_rowkey key, uint64_t session, int step, int how)
{
    uint8_t id[16];
    hf_row row;
    hf_row_init(&row);
    int failed =
        get_in_line(r, &key, &row, id, session, how) || sleep_in_line(r, &key, &row, step, how);
    if (r->con.caps.notify) r->con.caps.notify->unsubscribe(r->con.st, &key);
    hf_row_clear(&row);
    return failed;
}

static int ring(struct hf__racer *r)
{
    char text[HF_KEY_CAP];
    hf_rowkey key = hf__con_key(r->cfm, text, "wakeup");
    hf_error err = {0, 0, ""};
    uint64_t session = 1;
    static const int hows[] = {0, LISTEN_FIRST, IN_LINE, IN_LINE | LISTEN_FIRST, IN_LINE | BEHIND};
    int n = r->con.caps.local ? 2 : 5;
    for (int i = 0; r->me && i < n; i++)
        if (let_in(r, &key, 2 * i)) return 1;
    if (r->me) return 0;
    const hf_session_ops *sessions = r->con.caps.sessions;
    const hf_liveness_ops *liveness = r->con.caps.liveness;
    int64_t left_ms, clock;
    int rc = 0;
    if (liveness) rc = liveness->session(r->con.st, &session, &err);
    /* The waiter needs a live session to be notified. */
    if (sessions) rc = sessions->make(r->con.st, 60000, &session, &left_ms, &clock, &err);
    if (rc) return hf__race_fail(r, "session: %s", hf__why(r->cfm, &err));
    for (int i = 0; i < n && !rc; i++) rc = wait_asleep(r, key, session, 2 * i, hows[i]);
    if (sessions && sessions->end(r->con.st, session, &err) && !rc)
        rc = hf__race_fail(r, "end: %s", hf__why(r->cfm, &err));
    return rc;
}

static int interrupt_others(struct hf__racer *r)
{
    const struct hf__con *con = &r->con;
    hf_error err = {0, 0, ""};
    enum { OTHER_WAKEUP = 11 };
    if (r->me) {
        if (hf__race_await(r->arena, 0, 1))
            return hf__race_fail(r, "the waiter hasn't begun to wait in time");
        for (int i = 0; i < 200; i++) hf__race_nap();
        con->caps.local->interrupt(con->st, OTHER_WAKEUP);
        return 0;
    }
    for (int i = 0; i < 3; i++) {
        /* The first sleep is interrupted by the other racer, the second by this thread before it
           begins; the third ends by time. */
        int64_t start = hf__local_us(), until = start + (i < 2 ? SLEEP_MS * INT64_C(1000) : 50000);
        hf_event_count seen;
        if (i == 1) con->caps.local->interrupt(con->st, OTHER_WAKEUP);
        if (con->caps.local->wakeup_begin(con->st, OTHER_WAKEUP, 0, &seen, &err))
            return hf__race_fail(r, "subscribe: %s", hf__why(r->cfm, &err));
        if (!i) hf__race_arrive(r->arena, 0);
        if (con->caps.local->sleep(con->st, OTHER_WAKEUP, &seen, until, &err) < 0)
            return hf__race_fail(r, "sleep: %s", hf__why(r->cfm, &err));
        if (hf__local_us() - start > PROMPT_MS * INT64_C(1000))
            return hf__race_fail(r, i < 2 ? "slept on although it was interrupted"
                                          : "slept on past its time limit");
    }
    return 0;
}

/* ---- the lists ---- */

static const char *p_ring(struct hf__suite *cfm, struct hf__arena *a)
{
    return hf__race_processes(cfm, a, 2, ring);
}

static const char *t_ring(struct hf__suite *cfm, struct hf__arena *a)
{
    return hf__race_threads(cfm, a, 2, 0, ring);
}

static const char *t_interrupt(struct hf__suite *cfm, struct hf__arena *a)
{
    return hf__race_threads(cfm, a, 2, 1, interrupt_others);
}

/* The table's functions have no arena, so each race gets a function that makes one. */
#define WITH_ARENA(name, play) \
    static const char *name(struct hf__suite *cfm) { return hf__with_arena(cfm, play); }
WITH_ARENA(replaces_of_processes, hf__race_replaces_of_processes)
WITH_ARENA(takes_of_processes, hf__race_takes_of_processes)
WITH_ARENA(wakes_processes, p_ring)
WITH_ARENA(kills, hf__race_killed)
WITH_ARENA(deaths, hf__race_death_is_noticed)
WITH_ARENA(replaces_of_threads, hf__race_replaces_of_threads)
WITH_ARENA(takes_of_threads, hf__race_takes_of_threads)
WITH_ARENA(wakes_threads, t_ring)
WITH_ARENA(interrupts, t_interrupt)

void hf__conform_processes(struct hf__suite *cfm)
{
    static const struct hf__check checks[] = {
        {"eight processes lose no update", 0, replaces_of_processes},
        {"a killed process leaves a whole row", 0, kills},
        {"the death of a process is noticed", HF_NEEDS_LIVENESS, deaths},
    };
    static const struct hf__check taking[] = {
        {"eight processes acquire: exactly one holds", 0, takes_of_processes}};
    static const struct hf__check watching[] = {
        {"a waiter in another process is woken", 0, wakes_processes}};
    hf__conform_run(cfm, checks, sizeof checks / sizeof *checks);
    if (cfm->drv->acquire) hf__conform_run(cfm, taking, 1);
    if (cfm->caps.local || cfm->caps.notify) hf__conform_run(cfm, watching, 1);
}

void hf__conform_threads(struct hf__suite *cfm)
{
    static const struct hf__check checks[] = {
        {"eight threads lose no update", 0, replaces_of_threads}};
    static const struct hf__check taking[] = {
        {"eight threads acquire: exactly one holds", 0, takes_of_threads}};
    static const struct hf__check watching[] = {
        {"a waiter in another thread is woken", 0, wakes_threads}};
    static const struct hf__check interrupting[] = {
        {"a watch can be interrupted", HF_NEEDS_LOCAL, interrupts}};
    hf__conform_run(cfm, checks, 1);
    if (cfm->drv->acquire) hf__conform_run(cfm, taking, 1);
    if (cfm->caps.local || cfm->caps.notify) hf__conform_run(cfm, watching, 1);
    hf__conform_run(cfm, interrupting, 1);
}
