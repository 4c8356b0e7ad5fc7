/*
 * race.c - the conformance suite: threads and processes that race on one row, wake each
 * other, and are killed. See conform.h.
 *
 * What they tell each other stands in memory that they share, the arena. Nobody waits for ever: a
 * step of the dance that doesn't come is an error of its own.
 */
#include "race.h"

#include "drivers.h"

#include "os.h"
#include "step.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    WINS = 50, /* of each */
    WINS_WHERE_WRITES_ARE_DEAR = 2,
    PROMPT_MS = 4000, /* what a wake-up may take on a busy machine; a poll would take longer */
    SLEEP_MS = 8000,
    PATIENCE_S = 10, /* for a turn in a race */
    KILLS = 10
};

static int get(struct hf__racer *r, const hf_rowkey *key, hf_row *row)
{
    hf_error err = {0, 0, ""};
    int64_t clock;
    if (!r->con.drv->get(r->con.st, key, row, &clock, &err)) return 0;
    return hf__race_fail(r, "get: %s", err.text);
}

/* 0, HF_CONFLICT, or negative (told). */
static int replace(struct hf__racer *r, const hf_rowkey *key, uint64_t seen, const hf_row *row,
                   hf_row *cur)
{
    hf_error err = {0, 0, ""};
    int64_t clock;
    int rc = r->con.drv->replace(r->con.st, key, seen, row, cur, &clock, &err);
    if (rc < 0) hf__race_fail(r, "replace: %s", err.text);
    return rc;
}

/* ---- no update is lost ---- */

static uint32_t wins_each(const struct hf__racer *r)
{
    return !r->con.caps.queues ? WINS_WHERE_WRITES_ARE_DEAR : WINS;
}

/* Adds one to the number in the row, as it was when it was read. */
static int add_one(struct hf__racer *r, const hf_rowkey *key, hf_row *row)
{
    uint64_t seen = row->rev++;
    row->keep_until_us++;
    int rc = replace(r, key, seen, row, NULL);
    if (!rc) atomic_fetch_add(&r->arena->wins, 1);
    if (rc == HF_CONFLICT) atomic_fetch_add(&r->arena->conflicts, 1);
    return rc;
}

static int create(struct hf__racer *r, const hf_rowkey *key)
{
    hf_error err = {0, 0, ""};
    hf_row row;
    hf_row_init(&row);
    row.done_us = row.keep_until_us = 1;
    return hf__con_create(&r->con, key, &row, &err) ? hf__race_fail(r, "%s", err.text) : 0;
}

/*
 * In the first round all have read the row before anyone writes, so that all but one must meet a
 * conflict: a race in which nobody met one would prove nothing.
 */
static int race_replaces(struct hf__racer *r)
{
    char text[HF_KEY_CAP];
    hf_rowkey key = hf__con_key(r->cfm, text, "race");
    hf_row row;
    uint64_t last = 0;
    hf_row_init(&row);
    if (!r->me && create(r, &key)) return 1;
    if (hf__race_meet(r, 0) || get(r, &key, &row) || hf__race_meet(r, 1)) return 1;
    int rc = add_one(r, &key, &row);
    if (rc < 0) return 1;
    if (!rc) atomic_fetch_add(&r->arena->first_wins, 1);
    for (uint32_t wins = 0; wins < wins_each(r);) {
        if (atomic_load(&r->arena->failed) || get(r, &key, &row)) return 1;
        if (row.rev < last) return hf__race_fail(r, "an old row was read");
        last = row.rev;
        hf__race_nap(); /* somebody else may write now */
        rc = add_one(r, &key, &row);
        if (rc < 0) return 1;
        wins += !rc;
    }
    if (hf__race_meet(r, 2) || r->me) return 0;
    if (get(r, &key, &row) || replace(r, &key, row.rev, NULL, NULL)) return 1;
    r->arena->total = (uint64_t)row.keep_until_us - 1;
    return 0;
}

static const char *judge_replaces(struct hf__suite *cfm, struct hf__arena *a)
{
    uint32_t wins = a->wins, conflicts = a->conflicts;
    HF_CHECK(a->total == wins, "%u updates, of which the row knows %llu", wins,
             (unsigned long long)a->total);
    HF_CHECK(a->first_wins == 1, "%u of %d writers won with the same rev", a->first_wins,
             HF_RACERS);
    HF_CHECK(conflicts >= HF_RACERS - 1, "no conflicts: it proves nothing");
    return NULL;
}

/* ---- acquire excludes ---- */

static int inside(struct hf__racer *r)
{
    struct hf__arena *a = r->arena;
    if (atomic_fetch_add(&a->inside, 1)) return hf__race_fail(r, "two hold it at once");
    a->counter++;
    hf__race_nap(); /* somebody else may come in now */
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
        if (rc < 0) return hf__race_fail(r, "acquire: %s", err.text);
        if (rc) {
            /* Somebody's release may have got lost: an examined store isn't to be trusted yet. */
            if (hf__local_us() >= until)
                return hf__race_fail(r, "acquire: nobody has given it back for %d s", PATIENCE_S);
            hf__race_nap();
            continue;
        }
        if (inside(r)) return 1;
        hf__row_taken(&row, &p);
        wins++;
        until = hf__local_us() + PATIENCE_S * INT64_C(1000000);
        uint64_t seen = row.rev++;
        row.n_holders = 0;
        rc = replace(r, &key, seen, &row, NULL);
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

/* ---- who waits is woken ---- */

/* Racer 0 waits in the queue; racer 1 lets in whoever is first there. While it sleeps, and between
   its listen and its watch; and, where a watch is of keys, when it has said that it stands in line:
   first, and behind another. */
enum wait_how { LISTEN_FIRST = 1, IN_LINE = 2, BEHIND = 4 };

/* The number of who waits so, from here on. */
enum { MINE = 10 };

static int let_in(struct hf__racer *r, const hf_rowkey *key, int step)
{
    hf_row row;
    hf_row_init(&row);
    if (hf__race_await(r->arena, step, 1)) return hf__race_fail(r, "the waiter doesn't come");
    /* Most of the time it has fallen asleep by then; awake it must notice too. */
    for (int i = 0; i < 200; i++) hf__race_nap();
    if (get(r, key, &row)) return 1;
    uint64_t seen = row.rev++;
    row.token = row.rev;
    row.n_holders = 1;
    row.n_queue--;
    for (uint32_t i = 0; i <= row.n_queue; i++) hf_party_copy(&row.party[i], &row.party[i + 1]);
    row.party[0].token = row.rev;
    row.party[0].flags |= HF_PARTY_UNCLAIMED;
    int rc = replace(r, key, seen, &row, NULL);
    hf_row_clear(&row);
    if (rc) return hf__race_fail(r, "cannot let it in");
    hf__race_arrive(r->arena, step + 1);
    return 0;
}

/* What woke it may have said what the row is now, or who alone has the key; then as it is. What it
   says of an older row is no lie. */
static int word_is_true(const struct hf__con *con, const hf_rowkey *key, const hf_row *row)
{
    hf_row told;
    if (!con->drv->told) return 1;
    hf_row_init(&told);
    int true_word = 1, is = con->drv->told(con->st, key, &told);
    if (is && told.rev) {
        true_word = told.rev < row->rev || hf_row_equal(&told, row);
    } else if (is) {
        /* Of an earlier holder, it is of an older row. */
        const hf_party *p = &row->party[0], *is_told = &told.party[0];
        /* That another has it, and until when, is all that some say to the others. */
        int hearsay = key->who && memcmp(key->who, p->id, 16) != 0 && !is_told->token;
        true_word = told.n_holders == 1 &&
                    (memcmp(is_told->id, p->id, 16) != 0 ||
                     (is_told->expires_us == p->expires_us &&
                      (hearsay || (is_told->token == p->token && is_told->since_us == p->since_us &&
                                   is_told->flags == p->flags))));
    }
    hf_row_clear(&told);
    return true_word;
}

enum { WAKEUP = 9 };

/* The row in which racer 0 waits, and its key as it listens for it. 0: it is there. */
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
    /* Another id each time: a notification of an earlier row may come as late as it likes. */
    row->party[mine] = hf__con_party(session, MINE + (uint32_t)how);
    row->party[mine].bell = r->con.caps.local ? WAKEUP : 0;
    memcpy(id, row->party[mine].id, 16);
    key->who = how & IN_LINE ? id : NULL;
    key->in_line = (how & IN_LINE) != 0;
    return hf__con_create(&r->con, key, row, &err) ? hf__race_fail(r, "%s", err.text) : 0;
}

/* Begins to listen: for the wakeup of a local store, else for the key. */
static int listen_for(const struct hf__con *con, const hf_rowkey *key, hf_ear *ret, hf_error *err)
{
    const hf_driver *drv = con->drv;
    hf_key_event before;
    if (con->caps.local) return con->caps.local->wakeup_begin(con->st, WAKEUP, 1, ret, err);
    if (!drv->subscribe) return drv->listen(con->st, 0, &key, 1, ret, err);
    if (drv->subscribe(con->st, key)) return hf_fail(err, HF_NOMEM, 0, "out of memory");
    int rc = drv->listen(con->st, 0, NULL, 0, ret, err);
    while (!rc && drv->next_event(con->st, 0, &before)) continue;
    return rc;
}

static int sleep_in_line(struct hf__racer *r, const hf_rowkey *key, hf_row *row, int step, int how)
{
    const struct hf__con *con = &r->con;
    const hf_local_ops *local = con->caps.local;
    int listen_first = how & LISTEN_FIRST;
    uint32_t before = row->n_queue;
    hf_error err = {0, 0, ""};
    hf_ear ear;
    if (listen_for(con, key, &ear, &err)) return hf__race_fail(r, "listen: %s", err.text);
    hf__race_arrive(r->arena, step);
    if (listen_first && hf__race_await(r->arena, step + 1, 1))
        return hf__race_fail(r, "not let in");
    for (int64_t start = hf__local_us(), until = start + SLEEP_MS * INT64_C(1000);;) {
        if ((local ? local->sleep(con->st, WAKEUP, &ear, until, &err)
                   : con->drv->watch(con->st, 0, &ear, until, &err)) < 0)
            return hf__race_fail(r, "watch: %s", err.text);
        if (hf__local_us() - start > PROMPT_MS * INT64_C(1000))
            return hf__race_fail(r, listen_first ? "slept through what came before watch"
                                                 : "slept on although it was let in");
        if (get(r, key, row)) return 1;
        if (row->n_queue < before) break;
    }
    if (!word_is_true(con, key, row)) return hf__race_fail(r, "was told something else");
    return replace(r, key, row->rev, NULL, NULL) ? hf__race_fail(r, "cannot be deleted") : 0;
}

static int wait_asleep(struct hf__racer *r, hf_rowkey key, uint64_t session, int step, int how)
{
    uint8_t id[16];
    hf_row row;
    hf_row_init(&row);
    int failed =
        get_in_line(r, &key, &row, id, session, how) || sleep_in_line(r, &key, &row, step, how);
    if (r->con.drv->unsubscribe) r->con.drv->unsubscribe(r->con.st, &key);
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
    /* A waiter of a dead session would be told of nothing. */
    if (sessions) rc = sessions->make(r->con.st, 60000, &session, &left_ms, &clock, &err);
    if (rc) return hf__race_fail(r, "session: %s", err.text);
    for (int i = 0; i < n && !rc; i++) rc = wait_asleep(r, key, session, 2 * i, hows[i]);
    if (sessions && sessions->end(r->con.st, session, &err) && !rc)
        rc = hf__race_fail(r, "end: %s", err.text);
    return rc;
}

static int interrupt_others(struct hf__racer *r)
{
    const struct hf__con *con = &r->con;
    hf_error err = {0, 0, ""};
    enum { OTHER_WAKEUP = 11 };
    if (r->me) {
        if (hf__race_await(r->arena, 0, 1)) return hf__race_fail(r, "the waiter doesn't come");
        for (int i = 0; i < 200; i++) hf__race_nap();
        con->caps.local->interrupt(con->st, OTHER_WAKEUP);
        return 0;
    }
    for (int i = 0; i < 3; i++) {
        /* By the other; by oneself, in advance; by the time. */
        int64_t start = hf__local_us(), until = start + (i < 2 ? SLEEP_MS * INT64_C(1000) : 50000);
        hf_ear ear;
        if (i == 1) con->caps.local->interrupt(con->st, OTHER_WAKEUP);
        if (con->caps.local->wakeup_begin(con->st, OTHER_WAKEUP, 0, &ear, &err))
            return hf__race_fail(r, "listen: %s", err.text);
        if (!i) hf__race_arrive(r->arena, 0);
        if (con->caps.local->sleep(con->st, OTHER_WAKEUP, &ear, until, &err) < 0)
            return hf__race_fail(r, "watch: %s", err.text);
        if (hf__local_us() - start > PROMPT_MS * INT64_C(1000))
            return hf__race_fail(r, i < 2 ? "slept on although it was interrupted"
                                          : "slept on and on");
    }
    return 0;
}

/* ---- kill -9 ---- */

static int read_and_hang(struct hf__racer *r)
{
    char text[HF_KEY_CAP];
    hf_rowkey key = hf__con_key(r->cfm, text, "killed");
    hf_row row;
    hf_row_init(&row);
    if (create(r, &key) || get(r, &key, &row)) return 1;
    hf__race_arrive(r->arena, 0);
    for (;;) pause();
}

static int write_and_write(struct hf__racer *r)
{
    char text[HF_KEY_CAP];
    hf_rowkey key = hf__con_key(r->cfm, text, "killed");
    hf_row row;
    hf_row_init(&row);
    if (get(r, &key, &row)) return 1;
    for (uint32_t i = 0;; i++) {
        /* Rows of changing size: what is torn must show. */
        uint64_t seen = row.rev++;
        if (hf_row_room(&row, 12)) return hf__race_fail(r, "out of memory");
        row.keep_until_us++;
        row.token = row.rev;
        row.n_holders = 1;
        row.n_queue = i % 11;
        for (uint32_t j = 0; j <= row.n_queue; j++) row.party[j] = hf__con_party(1, i + j);
        row.party[0].token = row.token;
        if (replace(r, &key, seen, &row, NULL))
            return hf__race_fail(r, "nobody else writes, and yet");
        atomic_store(&r->arena->acked, (uint64_t)row.keep_until_us);
    }
}

static int check_whole(struct hf__racer *r, const hf_row *row, uint64_t acked)
{
    const char *flaw = "";
    if (hf_row_check(row, &flaw)) return hf__race_fail(r, "left with %s", flaw);
    uint64_t is = (uint64_t)row->keep_until_us;
    if (is != acked && is != acked + 1)
        return hf__race_fail(r, "write %llu was told, but %llu is there", (unsigned long long)acked,
                             (unsigned long long)is);
    for (uint32_t j = 1; j <= row->n_queue; j++) {
        hf_party p = hf__con_party(1, 0);
        if (row->party[j].since_us != p.since_us || row->party[j].lease_ms != p.lease_ms ||
            memcmp(row->party[j].owner, "conform-", 8))
            return hf__race_fail(r, "waiter %u is torn", j);
    }
    return 0;
}

/* What the dead left is whole, and can be written. */
static int find_whole(struct hf__racer *r)
{
    char text[HF_KEY_CAP];
    hf_rowkey key = hf__con_key(r->cfm, text, "killed");
    uint64_t acked = atomic_load(&r->arena->acked);
    hf_row row;
    int rc = HF_CONFLICT;
    hf_row_init(&row);
    /* What the dead had sent may still arrive, and only that: one conflict at most. */
    for (int i = 0; i < 2 && rc == HF_CONFLICT; i++) {
        if (get(r, &key, &row) || check_whole(r, &row, acked)) return 1;
        uint64_t seen = row.rev++;
        row.n_holders = row.n_queue = 0;
        rc = replace(r, &key, seen, &row, NULL);
    }
    if (rc) return hf__race_fail(r, "cannot be written");
    atomic_store(&r->arena->acked, (uint64_t)row.keep_until_us);
    hf_row_clear(&row);
    return 0;
}

static void kill_it(pid_t pid)
{
    kill(pid, SIGKILL);
    hf__race_end(pid);
}

static const char *killed(struct hf__suite *cfm, struct hf__arena *a)
{
    pid_t pid = hf__race_start(cfm, a, 1, 0, read_and_hang);
    if (pid < 0) return hf__bad(cfm, "fork: %s", strerror(errno));
    int late = hf__race_await(a, 0, 1);
    kill_it(pid);
    if (late) return hf__bad(cfm, "%s", a->failed ? a->why : "it doesn't begin");
    atomic_store(&a->acked, 1);
    const char *why = hf__race_processes(cfm, a, 1, find_whole);
    for (uint32_t i = 0; i < KILLS && !why; i++) {
        uint64_t before = atomic_load(&a->acked);
        int64_t until = hf__local_us() + HF_RACE_PATIENCE_MS * INT64_C(1000);
        pid = hf__race_start(cfm, a, 1, 0, write_and_write);
        if (pid < 0) return hf__bad(cfm, "fork: %s", strerror(errno));
        while (atomic_load(&a->acked) == before && !a->failed && hf__local_us() < until)
            hf__race_nap();
        for (uint32_t j = 0; j < i * 3; j++) hf__race_nap();
        kill_it(pid);
        why = hf__race_processes(cfm, a, 1, find_whole);
    }
    return why;
}

/* ---- sessions of the dead ---- */

static int tell_session(struct hf__racer *r)
{
    hf_error err = {0, 0, ""};
    uint64_t s = 0;
    if (r->con.caps.liveness->session(r->con.st, &s, &err))
        return hf__race_fail(r, "session: %s", err.text);
    atomic_store(&r->arena->session, s);
    hf__race_arrive(r->arena, 0);
    for (;;) pause();
}

static int mourn(struct hf__racer *r)
{
    const struct hf__con *con = &r->con;
    hf_error err = {0, 0, ""};
    uint64_t s = atomic_load(&r->arena->session);
    const hf_liveness_ops *of = con->caps.liveness;
    struct pollfd fd = {of->death_fd ? of->death_fd(con->st) : -1, POLLIN, 0};
    if (of->alive(con->st, s, &err) != 1) return hf__race_fail(r, "dead before it died");
    if (fd.fd >= 0) of->death_read(con->st);
    hf__race_arrive(r->arena, 1);
    if (fd.fd >= 0 && poll(&fd, 1, PROMPT_MS) != 1)
        return hf__race_fail(r, "nobody was told of it");
    int64_t until = hf__local_us() + HF_RACE_PATIENCE_MS * INT64_C(1000);
    while (of->alive(con->st, s, &err) != 0) {
        if (hf__local_us() > until) return hf__race_fail(r, "it lives on");
        hf__race_nap();
    }
    return 0;
}

static const char *death_is_noticed(struct hf__suite *cfm, struct hf__arena *a)
{
    pid_t pid = hf__race_start(cfm, a, 1, 0, tell_session);
    if (pid < 0) return hf__bad(cfm, "fork: %s", strerror(errno));
    int late = hf__race_await(a, 0, 1);
    pid_t other = late ? 0 : hf__race_start(cfm, a, 1, 1, mourn);
    int sys = errno;
    if (other > 0) late = hf__race_await(a, 1, 1);
    kill_it(pid);
    if (other < 0) return hf__bad(cfm, "fork: %s", strerror(sys));
    if (other > 0 && hf__race_end(other)) late = 1;
    if (a->failed) return hf__bad(cfm, "%s", a->why);
    return late ? hf__bad(cfm, "it doesn't begin") : NULL;
}

/* ---- the lists ---- */

static const char *p_replaces(struct hf__suite *cfm, struct hf__arena *a)
{
    const char *why = hf__race_processes(cfm, a, HF_RACERS, race_replaces);
    return why ? why : judge_replaces(cfm, a);
}

static const char *p_takes(struct hf__suite *cfm, struct hf__arena *a)
{
    const char *why = hf__race_processes(cfm, a, HF_RACERS, race_takes);
    return why ? why : judge_takes(cfm, a);
}

static const char *p_ring(struct hf__suite *cfm, struct hf__arena *a)
{
    return hf__race_processes(cfm, a, 2, ring);
}

static const char *t_replaces(struct hf__suite *cfm, struct hf__arena *a)
{
    const char *why = hf__race_threads(cfm, a, HF_RACERS, 1, race_replaces);
    return why ? why : judge_replaces(cfm, a);
}

static const char *t_takes(struct hf__suite *cfm, struct hf__arena *a)
{
    const char *why = hf__race_threads(cfm, a, HF_RACERS, 1, race_takes);
    return why ? why : judge_takes(cfm, a);
}

static const char *t_ring(struct hf__suite *cfm, struct hf__arena *a)
{
    return hf__race_threads(cfm, a, 2, 0, ring);
}

static const char *t_interrupt(struct hf__suite *cfm, struct hf__arena *a)
{
    return hf__race_threads(cfm, a, 2, 1, interrupt_others);
}

/* One function per entry, without an argument of its own. */
#define WITH_ARENA(name, play) \
    static const char *name(struct hf__suite *cfm) { return hf__with_arena(cfm, play); }
WITH_ARENA(replaces_of_processes, p_replaces)
WITH_ARENA(takes_of_processes, p_takes)
WITH_ARENA(wakes_processes, p_ring)
WITH_ARENA(kills, killed)
WITH_ARENA(deaths, death_is_noticed)
WITH_ARENA(replaces_of_threads, t_replaces)
WITH_ARENA(takes_of_threads, t_takes)
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
        {"of eight processes that acquire one has it", 0, takes_of_processes}};
    static const struct hf__check watching[] = {
        {"who waits in another process is woken", 0, wakes_processes}};
    hf__conform_run(cfm, checks, sizeof checks / sizeof *checks);
    if (cfm->drv->acquire) hf__conform_run(cfm, taking, 1);
    if (cfm->caps.local || cfm->caps.watches) hf__conform_run(cfm, watching, 1);
}

void hf__conform_threads(struct hf__suite *cfm)
{
    static const struct hf__check checks[] = {
        {"eight threads lose no update", 0, replaces_of_threads}};
    static const struct hf__check taking[] = {
        {"of eight threads that acquire one has it", 0, takes_of_threads}};
    static const struct hf__check watching[] = {
        {"who waits in another thread is woken", 0, wakes_threads}};
    static const struct hf__check interrupting[] = {
        {"a watch can be interrupted", HF_NEEDS_LOCAL, interrupts}};
    hf__conform_run(cfm, checks, 1);
    if (cfm->drv->acquire) hf__conform_run(cfm, taking, 1);
    if (cfm->caps.local || cfm->caps.watches) hf__conform_run(cfm, watching, 1);
    hf__conform_run(cfm, interrupting, 1);
}
