/*
 * cas_loop.c - applies one event to the row in the store. See cas_loop.h.
 */
#include "cas_loop.h"

#include "os.h"

#include <string.h>

enum {
    DEAD_CAP = 64,
    /* A newcomer to the queue leaves the loop after one conflict more than this (_ALONE: if the
       store has no `acquire`). */
    NEWCOMER_CONFLICTS = 1,
    NEWCOMER_CONFLICTS_ALONE = 3,
    /* After more conflicts than this (TRY_: for a TRY; MUST_: for other events) the loop pauses
       before each further attempt, and ends with CONFLICT if the time of a TRY or an ENQUEUE is
       over. */
    TRY_CONFLICTS = 4,
    MUST_CONFLICTS = 64,
    PAUSE_CONFLICT_US = 1000,
    PAUSE_RETRY_US = 50000
};

struct dead {
    uint64_t session[DEAD_CAP];
    size_t n;
};

/* Returns 1 if the party's session is dead, and adds that session to `dead`. May ask the driver. */
static int probe(struct hf_port *port, const hf_party *p, struct dead *dead)
{
    for (size_t i = 0; p->session && i < dead->n; i++)
        if (dead->session[i] == p->session) return 1;
    if (dead->n == DEAD_CAP || !hf__port_dead(port, p)) return 0;
    dead->session[dead->n++] = p->session;
    return 1;
}

/*
 * Finds the dead parties among those that matter for the event: the holders in the way of a
 * newcomer or of a waiter, the party just ahead of a waiter, and the first of the queue, so that no
 * dead waiter is granted the key. On a store with sessions every party is looked at.
 */
static void find_dead(struct hf_port *port, const struct hf_event *ev, const hf_row *row,
                      struct dead *dead)
{
    uint32_t n = row->n_holders + row->n_queue;
    if (port->caps.sessions) { /* the row itself says of each session whether it is dead */
        for (uint32_t i = 0; i < n; i++) probe(port, &row->party[i], dead);
        return;
    }
    if (!port->caps.liveness) return;
    /* WITHDRAW is among them because it may take away the first waiter, on which the other waiters
       rely to notice a dead holder. */
    if (ev->kind == HF_EV_TRY || ev->kind == HF_EV_ENQUEUE || ev->kind == HF_EV_PROMOTE ||
        ev->kind == HF_EV_WITHDRAW)
        for (uint32_t i = 0; i < row->n_holders; i++) probe(port, &row->party[i], dead);
    for (uint32_t i = row->n_holders; i < n; i++)
        if (!probe(port, &row->party[i], dead)) break;
    if (ev->kind != HF_EV_PROMOTE) return;
    int64_t mine = hf__find_id(row, ev->id);
    if (mine > (int64_t)row->n_holders) probe(port, &row->party[mine - 1], dead);
}

int hf__cas_judge(int rc, const hf_row *row, const hf_row *next, int *mine)
{
    /* The stored row is exactly what was sent: an earlier sending landed, and its reply was lost.
     */
    if (rc == HF_CONFLICT) return *mine && hf_row_equal(row, next) ? 0 : rc;
    if (rc == HF_UNKNOWN) *mine = 1;
    /* Once a reply was lost, an error of a repetition doesn't prove that nothing was written. */
    return rc < 0 && *mine ? HF_UNKNOWN : rc;
}

/* Fills *err and returns the code, for a write that can't be sent for lack of memory. `mine`: an
   earlier write may have landed, so the outcome is UNKNOWN. */
static int no_memory(const hf_rowkey *key, int mine, hf_error *err)
{
    int rc = mine ? HF_UNKNOWN : HF_NOMEM;
    return hf_fail(err, rc, 0, "step '%s': out of memory", key->text);
}

/* Returns 1 if the event's time is over, so that it isn't tried again. The time of a FINISH is also
   over io_timeout_ms after hf_close or hf_close_begin has begun. */
static int is_late(const struct hf_port *port, const struct hf_event *ev, int64_t until_us)
{
    int64_t closing_us =
        ev->kind == HF_EV_FINISH ? __atomic_load_n(&port->closing_us, __ATOMIC_RELAXED) : 0;
    int64_t now_us = hf__local_us();
    return now_us >= until_us || (closing_us && now_us >= closing_us + port->io_timeout_ms * 1000);
}

/* Sends one replace, again and again while its reply is lost.
   Returns: 0: it is stored; HF_CONFLICT: `row` is the current one; or the error. *ret_mine becomes
   1 if the write may have landed. */
static int write_row(struct hf_port *port, const hf_rowkey *key, const struct hf_event *ev,
                     hf_row *row, hf_row *next, int64_t until_us, int *ret_mine, hf_error *err)
{
    uint64_t seen = row->rev;
    for (;;) {
        int rc = hf__port_replace(port, key, seen, next, row, err);
        rc = hf__cas_judge(rc, row, next, ret_mine);
        if (rc != HF_UNKNOWN || is_late(port, ev, until_us)) return rc;
        hf__pause(PAUSE_RETRY_US);
    }
}

/* Corrects the answer GONE of an event that an earlier write of this loop may have carried out,
   although its reply was lost. After a release, break, forget or finish the grant (or the marker)
   is gone because of that write. Other events need no correction: the step on the current row gives
   their answer. */
static void own_effect(const struct hf_event *ev, const hf_row *row, int64_t wrote_done_us,
                       struct hf_outcome *out)
{
    if (out->answer != HF_ANS_GONE) return;
    if (ev->kind == HF_EV_RELEASE || ev->kind == HF_EV_BREAK || ev->kind == HF_EV_FORGET)
        out->answer = HF_ANS_OK;
    if (ev->kind == HF_EV_FINISH && row->done_us == wrote_done_us && wrote_done_us &&
        row->result_len == ev->result_len && !memcmp(row->result, ev->result, ev->result_len))
        out->answer = HF_ANS_OK;
}

/* Reads the row, trying again while the store is away. */
static int read_row(struct hf_port *port, const hf_rowkey *key, const struct hf_event *ev,
                    hf_row *row, int64_t until_us, hf_error *err)
{
    for (;;) {
        int rc = hf__port_get(port, key, row, err);
        if (rc != HF_UNAVAILABLE && rc != HF_UNKNOWN) return rc;
        if (is_late(port, ev, until_us)) return HF_UNAVAILABLE;
        hf__pause(PAUSE_RETRY_US);
    }
}

/* Returns 1 if the outcome needs a session that the event or its party doesn't have yet: sessions
   are made only when they are needed. */
static int unbound(const struct hf_event *ev, const struct hf_outcome *out)
{
    if (!ev->timeless || !ev->party) return 0;
    if (out->answer == HF_ANS_QUEUED) return !ev->session;
    return (out->answer == HF_ANS_GRANTED || out->answer == HF_ANS_ALREADY) && !ev->party->session;
}

/* Returns 1 for a newcomer: the event would only put its request into the queue. Such a write can
   wait until other clients have written. */
static int only_wants(const struct hf_event *ev, const hf_row *row)
{
    return ev->kind == HF_EV_ENQUEUE && hf__find_id(row, ev->party->id) < 0;
}

/* ---- at once, where the store lets the row be changed in place ---- */

struct in_place {
    struct hf_port *port;
    struct hf_event *ev;
    struct hf_outcome *out;
    int stepped;
};

/* Steps the row, for the store's `update`, which holds the store's lock meanwhile. Doesn't look for
   dead sessions: that takes system calls, and other clients wait for the lock. */
static int step_in_place(void *arg, hf_row *row)
{
    struct in_place *p = arg;
    p->stepped = 1;
    p->ev->now = hf__port_now(p->port);
    *p->out = hf__step(row, p->ev);
    return p->out->changed;
}

/* As step_in_place, but only if a handover has granted the key to the event's request. */
static int claim_in_place(void *arg, hf_row *row)
{
    struct in_place *p = arg;
    int64_t at = hf__find_id(row, p->ev->party->id);
    p->stepped = 0;
    if (at < 0 || at >= (int64_t)row->n_holders || !(row->party[at].flags & HF_PARTY_UNCLAIMED))
        return 0;
    return step_in_place(arg, row);
}

static void fill_in(const struct hf_port *port, struct hf_event *ev)
{
    if (!ev->queue_cap) ev->queue_cap = port->caps.queue_cap;
    ev->holders_cap = port->caps.holders_cap;
    ev->timeless = port->caps.sessions != 0;
}

/* ---- by a read and a write, again as long as others write in between ---- */

/* Returns 1 if the row has to be read again after a write that the store has refused, because:
   - a session that the row names, and that isn't the event's, has died since the row was read;
   - the store can't be reached, and the event is FINISH: without the marker the work, which is
     done, would be done again. */
static int reads_again(const struct hf_port *port, const struct hf_event *ev, int rc,
                       int64_t until_us, int *left)
{
    if (rc == HF_LOST && !ev->party && !ev->session && !ev->as_seen) return (*left)-- > 0;
    if (rc != HF_UNAVAILABLE || ev->kind != HF_EV_FINISH || is_late(port, ev, until_us)) return 0;
    hf__pause(PAUSE_RETRY_US);
    return 1;
}

static int cas_loop(struct hf_port *port, const hf_rowkey *key, struct hf_event *ev, hf_row *row,
                    hf_row *next, int known, int64_t until_us, struct hf_outcome *out,
                    hf_error *err)
{
    int rc, mine = ev->maybe_done, conflicts = 0, again = 2;
    int tried = ev->maybe_done; /* 1: a write that does what the event asks may have landed */
    int64_t wrote_done_us = 0;  /* done_us of the last such write */
    int calm = port->drv->acquire ? NEWCOMER_CONFLICTS : NEWCOMER_CONFLICTS_ALONE;
    fill_in(port, ev);
    if (!known) {
        rc = read_row(port, key, ev, row, until_us, err);
        if (rc) return rc;
    }
    for (;;) {
        struct dead dead;
        dead.n = 0;
        find_dead(port, ev, row, &dead);
        ev->dead = dead.session;
        ev->n_dead = dead.n;
        ev->now = hf__port_now(port);
        rc = hf_row_copy(next, row);
        if (!rc) rc = hf_row_room(next, (size_t)next->n_holders + next->n_queue + 1);
        if (rc) return no_memory(key, mine, err);
        for (uint32_t i = 0; ev->timeless && i < next->n_holders + next->n_queue; i++)
            next->party[i].flags &= (uint8_t)~HF_PARTY_DEAD;
        *out = hf__step(next, ev);
        if (tried) own_effect(ev, row, wrote_done_us, out);
        if (unbound(ev, out)) return HF_UNBOUND;
        if (!out->changed) return 0;
        /* Makes room before the write: once the write is stored, copying the row for the caller
           must not fail. */
        rc = hf_row_room(row, (size_t)next->n_holders + next->n_queue);
        if (rc) return no_memory(key, mine, err);
        int does = out->answer != HF_ANS_GONE; /* 0: the write only removes what was over anyway */
        if (does && ev->kind == HF_EV_FINISH) wrote_done_us = next->done_us;
        rc = write_row(port, key, ev, row, next, until_us, &mine, err);
        tried |= does && mine;
        if (!rc) return hf_row_copy(row, next);
        if (reads_again(port, ev, rc, until_us, &again)) {
            rc = read_row(port, key, ev, row, until_us, err);
            if (rc) return rc;
            continue;
        }
        if (rc != HF_CONFLICT || ev->as_seen) return rc;
        conflicts++;
        if (port->caps.local) continue;
        /* Other clients write faster than this one. wait_advance.c decides what to do. */
        if (only_wants(ev, row) && conflicts > calm) return mine ? HF_UNKNOWN : HF_CONFLICT;
        /* A holder and a party in the queue have to get through. */
        int must = ev->kind != HF_EV_TRY;
        if (conflicts <= (must ? MUST_CONFLICTS : TRY_CONFLICTS)) continue;
        /* A request for a key can fail; a release has to get through. */
        if (ev->party && hf__local_us() >= until_us) return mine ? HF_UNKNOWN : HF_CONFLICT;
        hf__pause(PAUSE_CONFLICT_US);
        /* After the pause the row from the last conflict is too old. */
        rc = read_row(port, key, ev, row, until_us, err);
        if (rc) return mine ? HF_UNKNOWN : rc;
    }
}

/* ---- either ---- */

static int updates(const struct hf_port *port)
{
    return port->caps.local && port->caps.local->update;
}

/* Returns 1 if a dead party may keep the key from the waiters, after an update that didn't know
   which parties are dead: the key was granted to a dead waiter; or the first waiter is dead; or,
   after a withdrawal, a holder is dead. (The withdrawn waiter may have been the first one, and the
   others rely on the first one to notice a death.) */
static int waits_for_dead(struct hf_port *port, const struct hf_event *ev, const hf_row *row)
{
    int handed = 0, gives_up = ev->kind == HF_EV_WITHDRAW;
    for (uint32_t i = 0; i < row->n_holders; i++) {
        int unclaimed = row->party[i].flags & HF_PARTY_UNCLAIMED;
        if ((unclaimed || gives_up) && hf__port_dead(port, &row->party[i])) return 1;
        handed |= unclaimed;
    }
    if (ev->party || handed || !row->n_queue) return 0; /* a claim frees nothing */
    return hf__port_dead(port, &row->party[row->n_holders]);
}

/* Changes the row in place by a step. When this returns, a waiter that was granted the key has been
   woken; if that waiter is dead, the next one has been granted the key.
   Returns: 1: a step was made; 0: there was nothing to step; or the error. */
static int update(struct hf_port *port, const hf_rowkey *key, int (*step)(void *arg, hf_row *row),
                  struct hf_event *ev, hf_row *row, struct hf_outcome *out, hf_error *err)
{
    struct in_place p = {port, ev, out, 0};
    struct hf_event promote = {.kind = HF_EV_PROMOTE};
    struct hf_outcome ignored;
    hf_row next;
    fill_in(port, ev);
    ev->dead = NULL;
    ev->n_dead = 0;
    int rc = hf__port_update(port, key, step, &p, row, err);
    if (rc || !p.stepped) return rc;
    if (ev->maybe_done) own_effect(ev, row, 0, out);
    if (!(out->changed || ev->kind == HF_EV_WITHDRAW) || !waits_for_dead(port, ev, row)) return 1;
    hf_row_init(&next);
    /* If the promotion fails, the waiters notice the death themselves. The caller's event is done.
     */
    cas_loop(port, key, &promote, row, &next, 1, 0, &ignored, NULL);
    hf_row_clear(&next);
    return 1;
}

int hf__get_or_claim(struct hf_port *port, const hf_rowkey *key, struct hf_event *ev, hf_row *row,
                     struct hf_outcome *out, hf_error *err)
{
    if (!updates(port)) return hf__port_get(port, key, row, err);
    return update(port, key, claim_in_place, ev, row, out, err);
}

int hf__cas_loop(struct hf_port *port, const hf_rowkey *key, struct hf_event *ev, hf_row *row,
                 int known, int64_t until_us, struct hf_outcome *out, hf_error *err)
{
    hf_row next;
    int rc;
    /* A request for a key, and a promotion, have to know first which parties are dead. */
    if (!known && updates(port) && !ev->party && ev->kind != HF_EV_PROMOTE) {
        rc = update(port, key, step_in_place, ev, row, out, err);
        return rc < 0 ? rc : 0; /* not tried again: such a store loses no replies */
    }
    hf_row_init(&next);
    rc = cas_loop(port, key, ev, row, &next, known, until_us, out, err);
    hf_row_clear(&next);
    /* The text is that of the last failure. The code is UNKNOWN if an earlier reply was lost. */
    if (rc < 0 && err) err->code = rc;
    return rc;
}
