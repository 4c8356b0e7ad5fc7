/*
 * death.c - the conformance suite: a process that is killed leaves a whole row, and its death is
 * noticed. See race.h.
 */
#include "race.h"

#include "os.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

enum {
    KILLS = 10,
    PROMPT_MS = 4000 /* how long the notice of a death may take on a busy machine */
};

static int read_and_hang(struct hf__racer *r)
{
    char text[HF_KEY_CAP];
    hf_rowkey key = hf__con_key(r->cfm, text, "killed");
    hf_row row;
    hf_row_init(&row);
    if (hf__race_create(r, &key) || hf__race_get(r, &key, &row)) return 1;
    hf__race_arrive(r->arena, 0);
    for (;;) pause();
}

static int write_and_write(struct hf__racer *r)
{
    char text[HF_KEY_CAP];
    hf_rowkey key = hf__con_key(r->cfm, text, "killed");
    hf_row row;
    hf_row_init(&row);
    if (hf__race_get(r, &key, &row)) return 1;
    for (uint32_t i = 0;; i++) {
        /* Writes rows of changing size, so that a torn one shows. */
        uint64_t seen = row.rev++;
        if (hf_row_room(&row, 12)) return hf__race_fail(r, "out of memory");
        row.keep_until_us++;
        row.token = row.rev;
        row.n_holders = 1;
        row.n_queue = i % 11;
        for (uint32_t j = 0; j <= row.n_queue; j++) row.party[j] = hf__con_party(1, i + j);
        row.party[0].token = row.token;
        if (hf__race_replace(r, &key, seen, &row, NULL))
            return hf__race_fail(r, "a replace failed although only this process writes");
        atomic_store(&r->arena->acked, (uint64_t)row.keep_until_us);
    }
}

static int check_whole(struct hf__racer *r, const hf_row *row, uint64_t acked)
{
    const char *flaw = "";
    if (hf_row_check(row, &flaw)) return hf__race_fail(r, "left with %s", flaw);
    uint64_t is = (uint64_t)row->keep_until_us;
    if (is != acked && is != acked + 1)
        return hf__race_fail(r, "write %llu was confirmed, but the row has %llu",
                             (unsigned long long)acked, (unsigned long long)is);
    for (uint32_t j = 1; j <= row->n_queue; j++) {
        hf_party p = hf__con_party(1, 0);
        if (row->party[j].since_us != p.since_us || row->party[j].lease_ms != p.lease_ms ||
            memcmp(row->party[j].owner, "conform-", 8))
            return hf__race_fail(r, "waiter %u is torn", j);
    }
    return 0;
}

/* Checks that the row that a killed process has left is whole, and can be replaced. */
static int find_whole(struct hf__racer *r)
{
    char text[HF_KEY_CAP];
    hf_rowkey key = hf__con_key(r->cfm, text, "killed");
    uint64_t acked = atomic_load(&r->arena->acked);
    hf_row row;
    int rc = HF_CONFLICT;
    hf_row_init(&row);
    /* A write that the killed process had sent may still arrive, so one conflict is allowed, and no
       more. */
    for (int i = 0; i < 2 && rc == HF_CONFLICT; i++) {
        if (hf__race_get(r, &key, &row) || check_whole(r, &row, acked)) return 1;
        uint64_t seen = row.rev++;
        row.n_holders = row.n_queue = 0;
        rc = hf__race_replace(r, &key, seen, &row, NULL);
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

const char *hf__race_killed(struct hf__suite *cfm, struct hf__arena *a)
{
    pid_t pid = hf__race_start(cfm, a, 1, 0, read_and_hang);
    if (pid < 0) return hf__bad(cfm, "fork: %s", strerror(errno));
    int late = hf__race_await(a, 0, 1);
    kill_it(pid);
    if (late) return hf__bad(cfm, "%s", a->failed ? a->why : "the other process doesn't begin");
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

static int tell_session(struct hf__racer *r)
{
    hf_error err = {0, 0, ""};
    uint64_t s = 0;
    if (r->con.caps.liveness->session(r->con.st, &s, &err))
        return hf__race_fail(r, "session: %s", hf__why(r->cfm, &err));
    atomic_store(&r->arena->session, s);
    hf__race_arrive(r->arena, 0);
    for (;;) pause();
}

static int await_death(struct hf__racer *r)
{
    const struct hf__con *con = &r->con;
    hf_error err = {0, 0, ""};
    uint64_t s = atomic_load(&r->arena->session);
    const hf_liveness_ops *of = con->caps.liveness;
    struct pollfd fd = {of->death_fd ? of->death_fd(con->st) : -1, POLLIN, 0};
    if (of->alive(con->st, s, &err) != 1)
        return hf__race_fail(r, "it counts as dead before its death");
    if (fd.fd >= 0) of->death_read(con->st);
    hf__race_arrive(r->arena, 1);
    if (fd.fd >= 0 && poll(&fd, 1, PROMPT_MS) != 1)
        return hf__race_fail(r, "no waiter was notified of it");
    int64_t until = hf__local_us() + HF_RACE_PATIENCE_MS * INT64_C(1000);
    while (of->alive(con->st, s, &err) != 0) {
        if (hf__local_us() > until)
            return hf__race_fail(r, "it still counts as alive after its death");
        hf__race_nap();
    }
    return 0;
}

const char *hf__race_death_is_noticed(struct hf__suite *cfm, struct hf__arena *a)
{
    pid_t pid = hf__race_start(cfm, a, 1, 0, tell_session);
    if (pid < 0) return hf__bad(cfm, "fork: %s", strerror(errno));
    int late = hf__race_await(a, 0, 1);
    pid_t other = late ? 0 : hf__race_start(cfm, a, 1, 1, await_death);
    int sys = errno;
    if (other > 0) late = hf__race_await(a, 1, 1);
    kill_it(pid);
    if (other < 0) return hf__bad(cfm, "fork: %s", strerror(sys));
    if (other > 0 && hf__race_end(other)) late = 1;
    if (a->failed) return hf__bad(cfm, "%s", a->why);
    return late ? hf__bad(cfm, "the other process doesn't begin") : NULL;
}
