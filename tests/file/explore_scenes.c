/*
 * explore_scenes.c - what the virtual processes do, scene by scene.
 */
#include "explore.h"

#include "step.h"

static const int64_t IDLE_US = 60000000;

/* ---- the plainest life ---- */

static void turns(struct v_proc *me)
{
    v_party(me, HF_EXCLUSIVE, 0, 0);
    v_acquire(me, 0, V_TAKE);
    v_release(me, 0);
}

static void key_exists(void)
{
    v_party(&v_heir, HF_EXCLUSIVE, 0, 0);
    v_acquire(&v_heir, 0, V_TAKE);
    v_release(&v_heir, 0);
}

static void first_look(struct v_proc *me)
{
    v_party(me, HF_EXCLUSIVE, 0, 0);
    v_acquire(me, 0, 0);
    v_release(me, 0);
}

/* ---- other keys ---- */

/* Each process makes a key of its own; then all want the same key. */
static void allocate(struct v_proc *me)
{
    v_party(me, HF_EXCLUSIVE, 0, 0);
    v_acquire(me, me->number, V_TAKE);
    v_release(me, me->number);
}

static void prune(struct v_proc *me)
{
    hf_row row;
    hf_error err;
    v_party(me, HF_EXCLUSIVE, 0, 0);
    if (me->number != 1) {
        /* The other process wants a key that fits where the pruned one was. */
        v_acquire(me, me->number, V_TAKE);
        v_release(me, me->number);
        if (me->number == 2) v_acquire(me, 0, V_TAKE), v_release(me, 0);
        return;
    }
    hf_row_init(&row);
    v_clock_us += 2 * IDLE_US;
    if (hf__port_get(&me->port, &me->key[0], &row, &err)) v_fail("%s", err.text);
    int rc = 0;
    if (hf__prunable(&row, hf__port_now(&me->port), IDLE_US))
        rc = hf__port_replace(&me->port, &me->key[0], row.rev, NULL, NULL, &err);
    if (rc < 0) v_fail("%s", err.text);
    hf_row_clear(&row);
}

/* A looks for the key before it is there, and makes it after it was there and was pruned. */
static void revive(struct v_proc *me)
{
    if (me->number == 1) {
        prune(me);
        return;
    }
    v_party(me, HF_EXCLUSIVE, 0, 0);
    v_acquire(me, 0, me->number ? V_TAKE : 0);
    v_release(me, 0);
    if (me->number == 2) v_acquire(me, 2, V_TAKE), v_release(me, 2);
}

/* ---- giving up, renewing, breaking ---- */

static void withdraw(struct v_proc *me)
{
    v_party(me, HF_EXCLUSIVE, 0, 0);
    if (v_acquire(me, 0, me->number == 1 ? V_DEADLINE : 0)) v_release(me, 0);
}

static void renew(struct v_proc *me)
{
    v_party(me, HF_EXCLUSIVE, 0, me->number ? 0 : 10000);
    v_acquire(me, 0, me->number ? V_TAKE : 0);
    if (!me->number) {
        struct hf_event ev = {.kind = HF_EV_RENEW, .token = me->token, .lease_ms = 20000};
        hf_row row;
        hf_row_init(&row);
        if (v_event(me, 0, &ev, &row) != HF_ANS_OK) v_fail("A can't renew its grant");
        int64_t at = hf__find_token(&row, me->token);
        if (at < 0) v_fail("A renewed its grant, but the row doesn't have it");
        me->expires_us = row.party[at].expires_us;
        hf_row_clear(&row);
    }
    v_release(me, 0);
}

/* A's grant ends by time, whatever A does; so do handovers that aren't claimed. */
static void expire(struct v_proc *me)
{
    v_party(me, HF_EXCLUSIVE, 0, me->number ? 0 : 1000);
    v_acquire(me, 0, 0);
    v_release(me, 0);
}

/* C ends the grant that it sees, whosever it is. */
static void break_grant(struct v_proc *me)
{
    v_party(me, HF_EXCLUSIVE, 0, 0);
    if (me->number < 2) {
        v_acquire(me, 0, V_TAKE);
        v_release(me, 0);
        return;
    }
    hf_row row;
    hf_error err;
    hf_row_init(&row);
    if (hf__port_get(&me->port, &me->key[0], &row, &err)) v_fail("%s", err.text);
    if (row.n_holders) {
        struct hf_event ev = {.kind = HF_EV_BREAK, .token = row.party[0].token};
        int owner = row.party[0].owner[0] - 'A';
        /* From here on its holder is not to be believed any more. */
        if (owner >= 0 && owner < V_PROCS) v_proc[owner].broken = 1;
        enum hf_answer answer = v_event(me, 0, &ev, &row);
        if (answer != HF_ANS_OK && answer != HF_ANS_GONE) v_fail("C can't break a grant");
    }
    hf_row_clear(&row);
}

/* ---- once ---- */

static void once(struct v_proc *me)
{
    v_party(me, HF_EXCLUSIVE, 0, 0);
    me->result = v_acquire(me, 0, V_ONCE);
    if (me->result != 1) return;
    struct hf_event ev = {.kind = HF_EV_FINISH,
                          .token = me->token,
                          .result = "sold",
                          .result_len = 4,
                          .keep_us = INT64_C(1) << 40};
    hf_row row;
    hf_row_init(&row);
    me->inside = 0;
    if (v_event(me, 0, &ev, &row) != HF_ANS_OK) v_fail("an event can't be finished");
    hf_row_clear(&row);
    me->result = 3; /* and it knows */
}

static void once_verdict(void)
{
    int finished = 0, told = 0;
    hf_row row;
    hf_error err;
    for (int i = 0; i < V_PROCS; i++) {
        finished += v_proc[i].result == 3;
        told += v_proc[i].result == 2 || v_proc[i].result == 3;
    }
    if (finished > 1) v_fail("an event was done %d times", finished);
    if (!v_anybody_dead() && finished + told == 0) v_fail("nobody did it");
    hf_row_init(&row);
    if (hf__port_get(&v_heir.port, &v_heir.key[0], &row, &err)) v_fail("%s", err.text);
    if (told && (!row.done_us || row.result_len != 4 || memcmp(row.result, "sold", 4)))
        v_fail("the marker is gone");
    hf_row_clear(&row);
}

/* ---- several inside ---- */

static void shared(struct v_proc *me)
{
    v_party(me, me->number < 2 ? HF_SHARED : HF_EXCLUSIVE, 0, 0);
    v_acquire(me, 0, 0);
    v_release(me, 0);
}

static void limited(struct v_proc *me)
{
    v_party(me, HF_LIMITED, 2, 0);
    v_acquire(me, 0, 0);
    v_release(me, 0);
}

/* ---- sessions ---- */

static void open_session(struct v_proc *me)
{
    v_open(me);
    for (int i = 0; i < V_PROCS; i++)
        if (i != me->number && v_proc[i].life == V_ALIVE && v_proc[i].st &&
            v_proc[i].port.session == me->port.session)
            v_fail("two processes have one session");
    v_party(me, HF_EXCLUSIVE, 0, 0);
    v_acquire(me, 0, V_TAKE);
    v_release(me, 0);
}

/* ---- without being told ---- */

/* B waits, and isn't notified that A died: the next process, C, must wake it. */
static void untold(struct v_proc *me)
{
    v_party(me, HF_EXCLUSIVE, 0, 0);
    if (me->number == 2) v_await_death(me);
    v_acquire(me, 0, 0);
    v_release(me, 0);
}

const struct v_scene v_scenes[] = {
    {.name = "turns", .about = "three take turns on a key", .act = turns, .prepare = key_exists},
    {.name = "create", .about = "three race to make a key", .act = turns},
    {.name = "allocate", .about = "each makes a key of its own", .act = allocate},
    {.name = "grow",
     .about = "rows outgrow their bodies",
     .act = turns,
     .prepare = key_exists,
     .note_len = 120},
    {.name = "space",
     .about = "the file grows",
     .act = allocate,
     .lines = HF_AT_HEAP / HF_LINE + 11},
    {.name = "withdraw", .about = "B gives up waiting", .act = withdraw, .prepare = key_exists},
    {.name = "renew", .about = "A renews a lease", .act = renew, .prepare = key_exists},
    {.name = "expire",
     .about = "leases and claims run out",
     .act = expire,
     .prepare = key_exists,
     .flags = V_TICKS},
    {.name = "break",
     .about = "C breaks a grant",
     .act = break_grant,
     .prepare = key_exists,
     .flags = V_BREAKS},
    {.name = "once",
     .about = "an event runs once",
     .act = once,
     .prepare = key_exists,
     .verdict = once_verdict},
    {.name = "shared",
     .about = "two readers and a writer",
     .act = shared,
     .prepare = key_exists,
     .flags = V_CROWD},
    {.name = "limit",
     .about = "two places for three",
     .act = limited,
     .prepare = key_exists,
     .flags = V_CROWD},
    {.name = "prune",
     .about = "B prunes the key",
     .act = prune,
     .prepare = key_exists,
     .flags = V_PRUNES},
    {.name = "revive",
     .about = "B prunes a key that A is about to make",
     .act = revive,
     .flags = V_PRUNES},
    {.name = "open", .about = "three open the store", .act = open_session, .flags = V_UNOPENED},
    {.name = "deaths",
     .about = "the expiry monitor begins with the wait",
     .act = first_look,
     .prepare = key_exists,
     .flags = V_FIRST_LOOK},
    {.name = "untold",
     .about = "C finds what A left behind",
     .act = untold,
     .prepare = key_exists,
     .mortal = 1,
     .flags = V_NO_NOTICE},
};
const size_t v_n_scenes = sizeof v_scenes / sizeof *v_scenes;
