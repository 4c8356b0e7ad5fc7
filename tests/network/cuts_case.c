/*
 * cuts_case.c - one operation whose connection is hurt, and what has to be true of it afterwards;
 * see cuts.c.
 */
#include "cuts.h"

#include "os.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { KEEP_MS = 3600000, GRACE_MS = CUT_GRACE_MS, CLAIM_MS = CUT_CLAIM_MS };
static const char RESULT[] = "sold";

static hf_error err;

void cut_name_key(struct cut_grant *g)
{
    struct cut_me *me = &cut_me;
    memset(g, 0, sizeof *g);
    snprintf(g->key, sizeof g->key, "cuts/%d/%05d", me->number, ++me->keys % 100000);
    memcpy(g->id, &me->keys, sizeof me->keys);
    g->id[8] = (uint8_t)(me->number + 1);
    g->h = me->through;
    g->lease_ms = me->lease;
}

int cut_bad(const struct cut_grant *g, const char *what, int rc, const hf_error *why)
{
    char granted[60] = "";
    if (g->granted_ms)
        snprintf(granted, sizeof granted, ", and %lld ms after its grant",
                 (long long)(cut_ms() - g->granted_ms));
    cut_wrong("'%s', token %llu, %lld ms after it was asked for%s: %s: %s%s%s", g->key,
              (unsigned long long)g->token, (long long)(cut_ms() - g->asked_ms), granted, what,
              hf_code_name(rc), rc ? ": " : "", rc ? why->text : "");
    return -1;
}

static int wrong(const struct cut_grant *g, const char *what, int rc)
{
    return cut_bad(g, what, rc, &err);
}

int cut_away(int rc) { return rc == HF_UNKNOWN || rc == HF_UNAVAILABLE || rc == HF_TIMEOUT; }
/* May its lease be over, by a clock that isn't the store's? */
int cut_late(const struct cut_grant *g)
{
    int64_t since_ms = g->granted_ms > g->asked_ms ? g->granted_ms : g->asked_ms;
    return cut_ms() - since_ms >= (g->lease_ms - cut_me.tick) * 9 / 10;
}

void cut_note_grant(struct cut_grant *g, const hf_lock *lock)
{
    g->token = hf_token(lock);
    int64_t now_ms = cut_ms(); /* read first: a pause here makes it no younger than it is */
    if (cut_me.timed) g->granted_ms = now_ms - (hf__day_us() - (int64_t)g->token) / 1000;
}

hf_options cut_asks(const struct cut_grant *g, int64_t wait_ms)
{
    hf_options o = HF_OPTIONS_INIT;
    o.lease_ms = g->lease_ms;
    o.wait_ms = wait_ms;
    o.flags = HF_NO_RENEW;
    o.request_id = g->id;
    return o;
}

/* ---- what was granted, given back, or nobody knows of ---- */

/* A client beside the proxy acquires the key after the holder before. `wait_ms` 0: it must be free
   at once. */
int cut_others_turn(const struct cut_grant *g, int64_t wait_ms)
{
    hf_options o = HF_OPTIONS_INIT;
    hf_lock *lock;
    o.wait_ms = wait_ms;
    o.lease_ms = 20000;
    int rc = hf_acquire(cut_me.beside, g->key, &o, &lock, &err);
    if (rc) return rc;
    if (hf_token(lock) <= g->token) wrong(g, "a token fell", 0);
    rc = hf_release(lock, &err);
    return rc ? wrong(g, "the other's release", rc), 0 : 0;
}

void cut_orphans(int leave)
{
    struct cut_me *me = &cut_me;
    while (me->orphans > leave && !cut_tally->wrong) {
        struct cut_orphan *o = &me->orphan[0];
        cut_goes_on(); /* each takes its time */
        struct cut_grant g = {.token = o->token, .asked_ms = o->since_ms, .lease_ms = me->lease};
        memcpy(g.key, o->key, sizeof g.key);
        int64_t over = o->since_ms + me->lease + CLAIM_MS + GRACE_MS - cut_ms();
        int rc = cut_others_turn(&g, over > GRACE_MS ? over : GRACE_MS);
        if (rc) wrong(&g, "an orphan isn't over after its lease", rc);
        int64_t took = cut_ms() - o->since_ms;
        /* An orphan that was looked at long after its end says nothing. */
        if (over > CLAIM_MS + GRACE_MS && took > cut_tally->longest_ms)
            cut_tally->longest_ms = took;
        __atomic_add_fetch(&cut_tally->orphans, 1, __ATOMIC_RELAXED);
        memmove(o, o + 1, sizeof *o * (size_t)--me->orphans);
    }
}

static void orphan(const struct cut_grant *g)
{
    struct cut_me *me = &cut_me;
    if (me->orphans == CUT_PENDING) cut_orphans(CUT_PENDING / 2);
    struct cut_orphan *o = &me->orphan[me->orphans++];
    memcpy(o->key, g->key, sizeof o->key);
    o->since_ms = cut_ms();
    o->token = g->token;
}

/* Checks that the key is held: no other client gets it while the holder believes. Then releases it,
   and another client gets it. */
static int judge_held(struct cut_grant *g)
{
    int rc = cut_others_turn(g, 0);
    int64_t left = hf_left_ms(g->lock);
    if (!rc && left > 0) return wrong(g, "a second grant while the first one believes", rc);
    if (rc && rc != HF_BUSY && !cut_away(rc)) return wrong(g, "another's try", rc);
    if (rc == HF_BUSY) {
        rc = hf_confirm(g->lock, &err);
        if (rc && rc != HF_UNAVAILABLE && !(rc == HF_LOST && cut_late(g)))
            return wrong(g, "confirm", rc);
    }
    rc = hf_release(g->lock, &err);
    g->lock = NULL;
    if (rc && rc != HF_LOST && !cut_away(rc)) return wrong(g, "release", rc);
    if (rc == HF_LOST && !cut_late(g)) return wrong(g, "release", rc);
    if (rc) {
        orphan(g);
        return 0;
    }
    rc = cut_others_turn(g, GRACE_MS);
    return rc ? wrong(g, "the next one's acquisition", rc) : 0;
}

/* Repeats the same request until the store returns its outcome. */
int cut_resolve(struct cut_grant *g, int once)
{
    hf_options o = cut_asks(g, CUT_PATIENCE_MS / 4);
    hf_once event = {0};
    int rc = HF_UNKNOWN;
    /* The lease counts from the grant, which was made between the first request and now. */
    for (int64_t end = cut_ms() + CUT_PATIENCE_MS; cut_away(rc) && cut_ms() < end;)
        rc = once ? hf_once_begin(g->h, g->key, KEEP_MS, &o, &event, &err)
                  : hf_acquire(g->h, g->key, &o, &g->lock, &err);
    if (once && !rc) g->lock = event.lock;
    if (rc) return wrong(g, "the same request again", rc);
    if (!g->lock) return wrong(g, "an event is done that nobody has finished", 0);
    cut_note_grant(g, g->lock);
    __atomic_add_fetch(&cut_tally->resolved, 1, __ATOMIC_RELAXED);
    return 0;
}

/* Checks an event that may have been finished. */
static int judge_event(struct cut_grant *g, int rc)
{
    hf_options o = HF_OPTIONS_INIT;
    hf_once event;
    o.wait_ms = GRACE_MS;
    o.lease_ms = 20000;
    int is = hf_once_begin(cut_me.beside, g->key, KEEP_MS, &o, &event, &err);
    if (is) return wrong(g, "the event's next runner", is);
    if (!event.lock) {
        if (strcmp(event.result, RESULT)) return wrong(g, "the event's result is another", 0);
        return rc == HF_LOST ? wrong(g, "an event is done that was said to be lost", 0) : 0;
    }
    if (!rc) wrong(g, "a finished event isn't done", 0);
    if (hf_token(event.lock) <= g->token) wrong(g, "a token fell", 0);
    return hf_release(event.lock, &err);
}

/* ---- entering ---- */

static int where_is_needed;

/* The name of the fence, where the store has none for a key by itself. */
static int enter(const struct cut_grant *g, hf_lock *lock)
{
    char where[100];
    snprintf(where, sizeof where, "cuts_data/\"%s\"", g->key);
    return hf_enter(lock, where_is_needed ? where : NULL, &err);
}

int cut_enters(void)
{
    struct cut_grant g;
    hf_options o;
    cut_name_key(&g);
    o = cut_asks(&g, GRACE_MS);
    if (hf_acquire(cut_me.beside, g.key, &o, &g.lock, &err)) return 0;
    int rc = enter(&g, g.lock);
    if (rc == HF_INVALID) where_is_needed = 1;
    if (rc == HF_INVALID) rc = enter(&g, g.lock);
    hf_release(g.lock, NULL);
    return rc != HF_UNSUPPORTED;
}

/* The holder has entered, or enters now. Then its successor enters, and shuts it out. */
static int judge_entered(struct cut_grant *g, int rc)
{
    hf_options o = HF_OPTIONS_INIT;
    hf_lock *next = NULL;
    o.wait_ms = GRACE_MS;
    o.lease_ms = 20000;
    for (int64_t end = cut_ms() + CUT_PATIENCE_MS; cut_away(rc) && cut_ms() < end;)
        rc = enter(g, g->lock);
    if (rc && !(rc == HF_LOST && cut_late(g))) return wrong(g, "entering again", rc);
    rc = hf_break(cut_me.beside, g->key, g->token, &err);
    if (rc && !(rc == HF_LOST && cut_late(g))) return wrong(g, "break", rc);
    rc = hf_acquire(cut_me.beside, g->key, &o, &next, &err);
    if (!rc) rc = enter(g, next);
    if (rc) return wrong(g, "the next one enters", rc);
    if (hf_token(next) <= g->token) wrong(g, "a token fell", 0);
    rc = HF_UNKNOWN;
    for (int64_t end = cut_ms() + CUT_PATIENCE_MS; cut_away(rc) && cut_ms() < end;)
        rc = enter(g, g->lock);
    if (rc != HF_LOST) wrong(g, "entering after the next one has", rc);
    hf_release(g->lock, NULL);
    g->lock = NULL;
    rc = hf_release(next, &err);
    return rc ? wrong(g, "the next one's release", rc) : 0;
}

/* ---- one operation ---- */

static int is_begun(enum cut_op op) { return op == CUT_BEGIN || op == CUT_FINISH; }

static int see(void *arg, const hf_info *info)
{
    (void)arg, (void)info;
    return 0;
}

/* Makes what the operation needs to find. */
static int prepare(enum cut_op op, struct cut_grant *g, hf *h)
{
    hf_once event;
    for (int64_t end = cut_ms() + CUT_PATIENCE_MS; cut_ms() < end;) {
        int rc = 0;
        cut_name_key(g);
        g->h = h;
        hf_options o = cut_asks(g, CUT_PATIENCE_MS / 4);
        g->asked_ms = cut_ms();
        if (op == CUT_FINISH)
            rc = hf_once_begin(h, g->key, KEEP_MS, &o, &event, &err);
        else if (op == CUT_RENEW || op == CUT_RELEASE || op == CUT_ENTER)
            rc = hf_acquire(h, g->key, &o, &g->lock, &err);
        else
            rc = hf_peek(h, g->key, see, NULL, &err) == HF_UNAVAILABLE ? HF_UNAVAILABLE : 0;
        if (!rc && op == CUT_FINISH) g->lock = event.lock;
        if (g->lock) g->token = hf_token(g->lock);
        if (!rc && (op == CUT_ACQUIRE || op == CUT_BEGIN)) cut_name_key(g), g->h = h;
        if (!rc) return 0;
        if (!cut_away(rc)) return wrong(g, "before the case", rc);
        usleep(10000);
    }
    return wrong(g, "before the case", HF_UNAVAILABLE);
}

void cut_count(enum cut_op op, int rc)
{
    enum cut_end end = !rc                    ? CUT_OK
                       : rc == HF_LOST        ? CUT_LOST
                       : rc == HF_UNAVAILABLE ? CUT_AWAY
                                              : CUT_UNKNOWN;
    __atomic_add_fetch(&cut_tally->ended[op][end], 1, __ATOMIC_RELAXED);
}

/* Some ask once, some wait. */
static int operate(enum cut_op op, struct cut_grant *g, int waits)
{
    hf_options o = cut_asks(g, waits ? 3000 : 0);
    hf_once event = {0};
    int rc = 0;
    if (op == CUT_ACQUIRE || op == CUT_BEGIN) g->asked_ms = cut_ms();
    switch (op) {
    case CUT_ACQUIRE: rc = hf_acquire(g->h, g->key, &o, &g->lock, &err); break;
    case CUT_BEGIN:
        rc = hf_once_begin(g->h, g->key, KEEP_MS, &o, &event, &err);
        if (!rc && !(g->lock = event.lock)) wrong(g, "an event is done that nobody has begun", rc);
        break;
    case CUT_RENEW: rc = hf_renew(g->lock, 0, &err); break;
    case CUT_RELEASE: rc = hf_release(g->lock, &err); break;
    case CUT_ENTER: rc = enter(g, g->lock); break;
    default: rc = hf_once_finish(g->lock, RESULT, KEEP_MS, &err); break;
    }
    if ((op == CUT_ACQUIRE || op == CUT_BEGIN) && g->lock) g->token = hf_token(g->lock);
    if (op == CUT_RELEASE || op == CUT_FINISH) g->lock = NULL;
    cut_count(op, rc);
    return rc;
}

static int judge(enum cut_op op, struct cut_grant *g, int rc, unsigned chance)
{
    int lost = rc == HF_LOST && cut_late(g);
    if (rc && !cut_away(rc) && !lost) return wrong(g, "the operation", rc);
    switch (op) {
    case CUT_ACQUIRE:
    case CUT_BEGIN:
        if (rc && chance % 4 == 3) {
            orphan(g);
            return 0;
        }
        if (rc && cut_resolve(g, op == CUT_BEGIN)) return -1;
        return g->lock ? judge_held(g) : 0;
    case CUT_RENEW: return judge_held(g);
    case CUT_ENTER: return judge_entered(g, rc);
    case CUT_RELEASE:
        if (rc) {
            orphan(g);
            return 0;
        }
        rc = cut_others_turn(g, 0);
        return rc && !cut_away(rc) ? wrong(g, "what was given back isn't free", rc) : 0;
    default: return judge_event(g, rc);
    }
}

int cut_tell(const struct proxy_order *order, struct proxy_state *ret)
{
    if (!proxy_tell(&cut_me.proxy, order, ret)) return 0;
    cut_wrong("the proxy has gone");
    return -1;
}

static const struct proxy_order calm = {.what = PROXY_PASS};

/* Plays the operation undisturbed until it has ended well `times` times: on a busy server some
   attempts fail. Returns the most bytes that one had; *ret_last: those of the last one. */
static int64_t undisturbed(enum cut_op op, enum proxy_way way, hf *h, int times, int64_t *ret_last)
{
    struct proxy_state s = {{0}, 0, 0, 0};
    int64_t most = 0, end = cut_ms() + CUT_PATIENCE_MS;
    for (int good = 0; good < times;) {
        struct cut_grant g;
        if (prepare(op, &g, h) || cut_tell(&calm, NULL)) return -1;
        int rc = operate(op, &g, 0);
        if (cut_tell(&calm, &s)) return -1;
        if (judge(op, &g, rc, 0)) return -1;
        if (!rc) *ret_last = s.bytes[way];
        if (!rc && s.bytes[way] > most) most = s.bytes[way];
        good += !rc;
        if (cut_ms() > end) return wrong(&g, "undisturbed", rc);
    }
    return most;
}

int64_t cut_length(enum cut_op op, enum proxy_way way)
{
    int64_t last;
    return cut_waits(op) ? cut_wait_length(op, way)
                         : undisturbed(op, way, cut_me.patient, 2, &last);
}

void cut_case(enum cut_op op, const struct proxy_order *order, unsigned chance)
{
    struct proxy_state s;
    struct cut_grant g;
    if (cut_waits(op)) {
        cut_wait_case(op, order, chance);
        return;
    }
    if (prepare(op, &g, cut_me.through) || cut_tell(order, NULL)) return;
    int rc = operate(op, &g, chance / 2 % 2);
    if (cut_tell(&calm, &s)) return;
    __atomic_add_fetch(&cut_tally->cuts[op], s.hit, __ATOMIC_RELAXED);
    judge(op, &g, rc, chance);
}

/* ---- other faults ---- */

static const struct {
    const char *name;
    struct proxy_order order;
    int patient, free;
} scenes[CUT_SCENES] = {
    {"reply lost, and then nobody is there", {PROXY_CUT, PROXY_DOWN, 0, 0, 0, CUT_NOBODY}, 0, 0},
    {"request lost, and then nobody is there", {PROXY_CUT, PROXY_UP, 0, 0, 0, CUT_NOBODY}, 0, 0},
    {"cut, and the next connections, too", {PROXY_CUT, PROXY_DOWN, 0, 0, 0, 3}, 0, 0},
    {"half open: the server hears nothing", {PROXY_SILENT, PROXY_UP, 0, 0, 0, 0}, 0, 0},
    {"half open: the server isn't heard", {PROXY_SILENT, PROXY_DOWN, 0, 0, 0, 0}, 0, 0},
    {"request later than the lease", {PROXY_DELAY, PROXY_UP, 0, 0, 1, 0}, 1, 0},
    {"reply later than the lease", {PROXY_DELAY, PROXY_DOWN, 0, 0, 1, 0}, 1, 0},
    {"request arrives when another holds", {PROXY_LATE, PROXY_UP, 0, 0, 0, 0}, 0, 0},
    {"request arrives when all is over", {PROXY_LATE, PROXY_UP, 0, 0, 0, 0}, 0, 1},
    {"request arrives twice", {PROXY_TWICE, PROXY_UP, 0, 0, 0, 0}, 0, 0},
};

const char *cut_scene_name(int scene) { return scenes[scene].name; }

/* Sends the kept bytes to the server now, and waits until it has answered, or has closed. */
static void deliver(void)
{
    static const struct proxy_order now = {.what = PROXY_DELIVER}, look = {.what = PROXY_COUNT};
    struct proxy_state s = {{0}, 0, 0, 0};
    if (cut_tell(&now, NULL)) return;
    for (int64_t end = cut_ms() + 5000; !s.answered && cut_ms() < end; usleep(2000))
        if (cut_tell(&look, &s)) return;
}

/* The old request lands while another client holds, which isn't affected. */
static void late_for_another(enum cut_op op, struct cut_grant *g)
{
    hf_options o = HF_OPTIONS_INIT;
    hf_once event = {0};
    hf_lock *lock = NULL;
    o.lease_ms = 20000;
    o.wait_ms = GRACE_MS;
    int rc = is_begun(op) ? hf_once_begin(cut_me.beside, g->key, KEEP_MS, &o, &event, &err)
                          : hf_acquire(cut_me.beside, g->key, &o, &lock, &err);
    if (is_begun(op)) lock = event.lock;
    if (rc) {
        wrong(g, "the next one's acquisition", rc);
        return;
    }
    deliver();
    if (!lock) { /* the event is done, and stays so */
        judge_event(g, 0);
        return;
    }
    rc = hf_confirm(lock, &err);
    if (rc) wrong(g, "the holder when an old request arrived", rc);
    rc = hf_release(lock, &err);
    if (rc) wrong(g, "the holder when an old request arrived: release", rc);
}

/* Finds out the outcome of the operation, and releases the key. Returns 1: it is certain; -1: it is
   wrong. */
static int settle(enum cut_op op, struct cut_grant *g, int rc)
{
    if (rc && !cut_away(rc) && !(rc == HF_LOST && cut_late(g)))
        return wrong(g, "the operation", rc);
    if ((op == CUT_ACQUIRE || op == CUT_BEGIN) && rc && cut_resolve(g, op == CUT_BEGIN)) return -1;
    if (g->lock) {
        rc = hf_release(g->lock, &err);
        g->lock = NULL;
        if (rc && !cut_away(rc) && !(rc == HF_LOST && cut_late(g))) return wrong(g, "release", rc);
    }
    return !rc;
}

/* The old request lands after the key was released (if that is certain), and gets nothing. */
static void late_for_all(struct cut_grant *g, int free)
{
    deliver();
    int rc = free ? cut_others_turn(g, 0) : HF_UNKNOWN;
    if (rc && !cut_away(rc)) wrong(g, "an old request got what had been given back", rc);
    if (rc) orphan(g);
}

void cut_scene(enum cut_op op, int scene)
{
    struct proxy_order order = scenes[scene].order;
    struct proxy_state s;
    struct cut_grant g;
    int kept = order.what == PROXY_LATE || order.what == PROXY_TWICE;
    if (cut_waits(op)) {
        if (!kept && !order.ms) cut_wait_scene(op, &order);
        return;
    }
    /* Once a server has seen a statement a few times it is sent as a short name. */
    if (kept && undisturbed(op, PROXY_UP, cut_me.through, 3, &order.bytes) < 0) return;
    /* Their numbers vary a little, so fewer are kept than were counted. */
    order.bytes = order.bytes > 40 ? order.bytes - 40 : 1;
    if (order.ms) order.ms = cut_me.lease * 3 / 2;
    if (prepare(op, &g, scenes[scene].patient ? cut_me.patient : cut_me.through)) return;
    if (cut_tell(&order, NULL)) return;
    int rc = operate(op, &g, 0);
    if (!kept) {
        if (cut_tell(&calm, &s)) return;
        judge(op, &g, rc, 0);
    } else {
        if ((rc = settle(op, &g, rc)) < 0) return;
        if (scenes[scene].free)
            late_for_all(&g, rc);
        else
            late_for_another(op, &g);
        if (cut_tell(&calm, &s)) return;
    }
    __atomic_add_fetch(&cut_tally->scenes[op], s.hit, __ATOMIC_RELAXED);
}
