/*
 * explore_acts.c - what a handle of the library does, done by a virtual process: see explore.h.
 *
 * It follows acquire.c, renew.c and release.c of core/client, and expiry_monitor.c of core/threads,
 * without their threads, and checks on the way what a holder may believe.
 */
#include "explore.h"

#include "file_fsck.h"
#include "step.h"

#include <stdio.h>

enum { WAKEUP = 1 };
static const int64_t DEADLINE_US = 50000;

static const char *name(const struct v_proc *p)
{
    static const char *const names[] = {"A", "B", "C", "the heir"};
    return names[p->number];
}

/* ---- the request ---- */

void v_party(struct v_proc *me, uint8_t mode, uint32_t limit, uint32_t lease_ms)
{
    hf_party *p = &me->party;
    memset(p, 0, sizeof *p);
    p->mode = mode;
    p->limit = limit;
    p->lease_ms = lease_ms;
    p->claim_ms = 1000;
    p->wakeup = WAKEUP;
    p->session = me->port.session;
    p->owner_len = 1;
    p->owner[0] = (char)('A' + me->number);
    p->note_len = (uint8_t)v_scene->note_len;
    memset(p->note, 'n', p->note_len);
}

static void new_request(struct v_proc *me)
{
    me->party.id[0] = (uint8_t)(me->number + 1);
    me->party.id[1] = ++me->attempts;
}

/* ---- what a holder may believe ---- */

static int believes(const struct v_proc *p)
{
    return p->inside && p->life == V_ALIVE && (!p->expires_us || v_now() < p->expires_us);
}

static int admit_each_other(const struct v_proc *a, const struct v_proc *b)
{
    return a->mode == b->mode && a->mode != HF_EXCLUSIVE;
}

static void enter(struct v_proc *me, int key, const hf_row *row)
{
    int64_t at = hf__find_id(row, me->party.id);
    if (at < 0 || at >= (int64_t)row->n_holders)
        v_fail("%s was granted the key, but its row doesn't say so", name(me));
    const hf_party *p = &row->party[at];
    me->mode = p->mode;
    uint32_t inside = 1;
    for (int i = 0; i < V_PROCS; i++) {
        const struct v_proc *o = &v_proc[i];
        if (o == me || !believes(o) || o->inside != key + 1 || o->broken || me->broken) continue;
        inside++;
        if (!admit_each_other(me, o)) v_fail("%s and %s are inside at once", name(me), name(o));
        if (o->token == p->token) v_fail("%s and %s have one token", name(me), name(o));
    }
    if (p->mode == HF_LIMITED && inside > p->limit) v_fail("%u are inside at once", inside);
    /* Of grants that one write made, the later one may be claimed first. */
    if (p->token <= v_top_token[key] && !(v_scene->flags & V_CROWD) && !me->broken)
        v_fail("the token %llu comes after %llu", (unsigned long long)p->token,
               (unsigned long long)v_top_token[key]);
    if (p->token > v_top_token[key]) v_top_token[key] = p->token;
    me->inside = key + 1;
    me->token = p->token;
    me->rev = row->rev;
    me->expires_us = p->expires_us;
    me->plain = row->n_holders == 1 && !row->n_queue && !row->done_us && row->token == p->token;
    if (v_tracing) v_trace("%s is inside", name(me));
}

enum hf_answer v_event(struct v_proc *me, int key, struct hf_event *ev, hf_row *row)
{
    struct hf_outcome out;
    hf_error err;
    int rc = hf__cas_loop(&me->port, &me->key[key], ev, row, 0, 0, &out, &err);
    if (rc) v_fail("%s: %s", name(me), err.text);
    return out.answer;
}

/* ---- acquiring ---- */

/* Makes one look at the store, as hf__wait_look does. Returns 1 when the wait is over; *ret is the
   result. */
static int look(struct v_proc *me, int key, unsigned how, hf_row *row, int *ret)
{
    struct hf_event ev = {.kind = how & V_TRY ? HF_EV_TRY : HF_EV_ENQUEUE,
                          .party = &me->party,
                          .once = how & V_ONCE ? 1 : 0};
    struct hf_outcome out;
    hf_error err;
    int rc = 0;
    if (me->queued) {
        rc = hf__get_or_claim(&me->port, &me->key[key], &ev, row, &out, &err);
        if (rc < 0) v_fail("%s: %s", name(me), err.text);
        /* Waiters behind the first one let those ahead act first. */
        if (!rc && hf__find_id(row, me->party.id) >= (int64_t)row->n_holders + 1) return 0;
    }
    rc = rc ? 0 : hf__cas_loop(&me->port, &me->key[key], &ev, row, me->queued, 0, &out, &err);
    if (rc) v_fail("%s: %s", name(me), err.text);
    *ret = 1;
    if (out.answer == HF_ANS_GRANTED || out.answer == HF_ANS_ALREADY) {
        int64_t at = hf__find_id(row, me->party.id);
        int64_t end_us = at < 0 ? 0 : row->party[at].expires_us;
        /* An expired grant must not be believed, however it came about: once more. */
        if (end_us && v_now() >= end_us) return look(me, key, how, row, ret);
        enter(me, key, row);
        return 1;
    }
    *ret = out.answer == HF_ANS_DONE ? 2 : 0;
    if (out.answer == HF_ANS_DONE || out.answer == HF_ANS_BUSY) return 1;
    if (out.answer != HF_ANS_QUEUED) v_fail("%s: answer %d", name(me), (int)out.answer);
    me->queued = 1;
    if (v_scene->flags & V_FIRST_LOOK && !me->told_deaths) me->told_deaths = me->notice = 1;
    return 0;
}

static int await(struct v_proc *me, int key, unsigned how, hf_row *row)
{
    hf_store *st = me->st;
    int result, late = 0;
    hf_error err;
    for (;;) {
        hf_event_count since;
        if (hf__file_wakeup_begin(st, WAKEUP, 0, &since, &err)) v_fail("%s", err.text);
        if (late) {
            struct hf_event ev = {.kind = HF_EV_WITHDRAW};
            memcpy(ev.id, me->party.id, sizeof ev.id);
            if (v_event(me, key, &ev, row) != HF_ANS_OK) v_fail("%s can't withdraw", name(me));
            return 0;
        }
        if (look(me, key, how, row, &result)) return result;
        int64_t until = how & V_DEADLINE ? v_clock_us + DEADLINE_US : INT64_MAX;
        if (hf__file_sleep(st, WAKEUP, &since, until, &err)) v_fail("%s", err.text);
        late = how & V_DEADLINE && v_timed_out(me);
    }
}

int v_acquire(struct v_proc *me, int key, unsigned how)
{
    hf_row row;
    hf_row_init(&row);
    if (how & V_TAKE) {
        hf_error err;
        new_request(me);
        int rc = hf__port_acquire(&me->port, &me->key[key], &me->party, 0, &row, &err);
        if (rc < 0) v_fail("%s: %s", name(me), err.text);
        if (!rc) {
            enter(me, key, &row);
            return 1;
        }
    }
    new_request(me);
    me->queued = me->notice = 0;
    me->waits_for = &me->key[key];
    me->at_store = 1;
    int rc = await(me, key, how, &row);
    me->at_store = me->queued = me->notice = 0;
    hf_row_clear(&row);
    return rc;
}

void v_release(struct v_proc *me, int key)
{
    struct hf_event ev = {.kind = HF_EV_RELEASE, .token = me->token};
    hf_row row;
    hf_row_init(&row);
    if (v_tracing) v_trace("%s leaves", name(me));
    me->inside = 0;
    if (me->plain && !me->expires_us) {
        hf_error err;
        row.rev = me->rev + 1;
        row.token = me->token;
        int rc = hf__port_replace(&me->port, &me->key[key], me->rev, &row, NULL, &err);
        if (rc < 0) v_fail("%s: %s", name(me), err.text);
        if (!rc) return;
        hf_row_clear(&row);
    }
    enum hf_answer answer = v_event(me, key, &ev, &row);
    int over = me->expires_us && v_now() >= me->expires_us;
    if (answer != HF_ANS_OK && !over && !(v_scene->flags & V_BREAKS))
        v_fail("the grant of %s was taken away", name(me));
    hf_row_clear(&row);
}

/* ---- the expiry monitor's part ---- */

static int lives(struct v_proc *me, uint64_t session)
{
    if (!session || session == me->port.session) return 1;
    return hf__file_alive(me->st, session, NULL) != 0;
}

/* Like `to_notice` in core: the first waiter checks the holders, the others the one ahead. */
static int to_notice(struct v_proc *me, const hf_row *row, int64_t at)
{
    int act = !row->n_holders;
    if (at > (int64_t)row->n_holders) return act | !lives(me, row->party[at - 1].session);
    for (uint32_t i = 0; i < row->n_holders; i++) {
        const hf_party *p = &row->party[i];
        act |= p->expires_us && v_now() >= p->expires_us;
        act |= !lives(me, p->session);
    }
    return act;
}

void v_notice(struct v_proc *me)
{
    struct hf_event ev = {.kind = HF_EV_PROMOTE};
    struct hf_outcome out;
    hf_error err;
    hf_row row;
    memcpy(ev.id, me->party.id, sizeof ev.id);
    hf_row_init(&row);
    if (hf__port_get(&me->port, me->waits_for, &row, &err)) v_fail("%s", err.text);
    int64_t at = hf__find_id(&row, ev.id);
    if (at >= (int64_t)row.n_holders && to_notice(me, &row, at)) {
        if (hf__cas_loop(&me->port, me->waits_for, &ev, &row, 1, 0, &out, &err))
            v_fail("%s", err.text);
        at = hf__find_id(&row, ev.id);
    }
    /* The request was granted, or isn't queued any more: the wait has to ask. */
    if (at < (int64_t)row.n_holders) hf__file_interrupt(me->st, WAKEUP);
    hf_row_clear(&row);
}

/* ---- what is left ---- */

/* Checks that only dead processes may still hold or wait: the heir is granted the key. */
static void inherit(int key)
{
    struct v_proc *me = &v_heir;
    struct hf_event ev = {.kind = HF_EV_TRY, .party = &me->party};
    hf_error err;
    hf_row row;
    hf_row_init(&row);
    if (hf__port_get(&me->port, &me->key[key], &row, &err)) v_fail("%s", err.text);
    for (uint32_t i = 0; i < row.n_holders + row.n_queue; i++) {
        int owner = row.party[i].owner[0] - 'A';
        if (owner >= 0 && owner < V_PROCS && v_proc[owner].life == V_ALIVE &&
            !row.party[i].expires_us)
            v_fail("%s is done, but still %s", name(&v_proc[owner]),
                   i < row.n_holders ? "holds" : "waits");
    }
    int forgotten = v_scene->flags & V_PRUNES && !row.token;
    if (row.token < v_top_token[key] && !forgotten) v_fail("the row forgot a token");
    v_clock_us += 10000000; /* leases and claims are over */
    v_party(me, HF_EXCLUSIVE, 0, 0);
    new_request(me);
    enum hf_answer answer = v_event(me, key, &ev, &row);
    if (answer != HF_ANS_GRANTED) v_fail("the key isn't passed on: answer %d", (int)answer);
    enter(me, key, &row);
    v_release(me, key);
    hf_row_clear(&row);
}

void v_last_will(void)
{
    struct fsck f;
    for (int key = 0; key < V_KEYS; key++)
        if (v_top_token[key] || v_anybody_dead()) inherit(key);
    if (fsck(v_base(), V_SPACE / HF_LINE, &f)) v_fail("%s", f.why);
    /* The lock word of a dead process may stay until another one needs it; that of a living one may
       not. */
    if (f.locked && !v_anybody_dead()) v_fail("a lock word is held by a being that is done");
}
