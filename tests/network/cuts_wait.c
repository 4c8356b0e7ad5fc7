/*
 * cuts_wait.c - a wait whose connection is hurt: getting in line, being handed the key (or noticing
 * it, if the word is lost), the claim, the release; or leaving the line; see cuts.c.
 *
 * Three want the key: a holder beside the proxy, the wait through it, and one more behind that,
 * beside the proxy, too. Whatever becomes of the wait: two never hold at once, the one behind gets
 * its turn, later tokens are greater, and then the key is free.
 */
#include "cuts.h"

#include <errno.h>
#include <semaphore.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LONG_LEASE_MS = 600000, SHORT_WAIT_MS = 150, SCENE_WAIT_MS = 3000 };

static struct waiter {
    hf_wait *wait;
    hf_lock *lock;
    sem_t over;
    int ended, code; /* ended: atomic */
    hf_error err;
} first, behind;

static void told(void *arg, int code, hf_lock *lock, const hf_error *err)
{
    struct waiter *w = arg;
    if (err) w->err = *err;
    w->code = code;
    w->lock = lock;
    __atomic_store_n(&w->ended, 1, __ATOMIC_SEQ_CST);
    sem_post(&w->over);
}

static int ended(const struct waiter *w) { return __atomic_load_n(&w->ended, __ATOMIC_SEQ_CST); }

static int start(struct waiter *w, const struct cut_grant *g, hf *h, const hf_options *o)
{
    memset(w, 0, sizeof *w);
    sem_init(&w->over, 0, 0);
    int rc = hf_acquire_start(h, g->key, o, told, w, &w->wait, &w->err);
    return rc ? cut_bad(g, "a wait isn't started", rc, &w->err) : 0;
}

static int await(struct waiter *w, const struct cut_grant *g, const char *who)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += CUT_PATIENCE_MS / 1000;
    int rc;
    do rc = sem_timedwait(&w->over, &until);
    while (rc && errno == EINTR);
    if (rc) return cut_bad(g, who, HF_TIMEOUT, &w->err);
    hf_wait_free(w->wait);
    w->wait = NULL;
    return 0;
}

/* Waits for the waiter behind. A waiter that is granted the key but can't claim it in time is
   passed over. The one behind then has the key, and has to release it first. Returns 1: it had; -1:
   it is wrong. `at_ms`: when the key was released, with that many waiters `ahead` of the one
   behind. */
static int await_turn(struct cut_grant *g, int64_t at_ms, size_t ahead)
{
    int gave = 0;
    for (int64_t end = cut_ms() + CUT_PATIENCE_MS; sem_trywait(&first.over); usleep(1000)) {
        if (cut_ms() > end)
            return cut_bad(g, "a wait whose turn it is doesn't end", HF_TIMEOUT, &first.err);
        if (gave || !ended(&behind)) continue;
        if (behind.code) return cut_bad(g, "the one behind", behind.code, &behind.err);
        if (ahead && cut_ms() - at_ms < CUT_LEAST_CLAIM_MS)
            return cut_bad(g, "passed over before its claim was over", 0, NULL);
        if (hf_token(behind.lock) <= g->token) return cut_bad(g, "a token fell", 0, NULL);
        cut_note_grant(g, behind.lock);
        int rc = hf_release(behind.lock, &behind.err);
        if (rc && !(rc == HF_LOST && cut_late(g))) /* its claim came too late */
            return cut_bad(g, "the release of the waiter that went first", rc, &behind.err);
        gave = 1;
        __atomic_store_n(&behind.ended, 0, __ATOMIC_SEQ_CST);
    }
    hf_wait_free(first.wait);
    first.wait = NULL;
    return gave;
}

static const char BEHIND[] = "behind"; /* the owner of the request behind */

struct line {
    size_t holders, waiters;
    size_t ahead; /* how many waiters stand before the one behind */
    int has_behind;
};

static int count(void *arg, const hf_info *info)
{
    struct line *n = arg;
    *n = (struct line){info->n_holders, info->n_waiters, 0, 0};
    for (; n->ahead < info->n_waiters && !n->has_behind; n->ahead += !n->has_behind)
        n->has_behind = !strcmp(info->parties[info->n_holders + n->ahead].owner, BEHIND);
    if (!n->has_behind) n->ahead = 0;
    return 0;
}

/* Returns how many hold and wait, as the store says on a direct connection. */
static struct line in_line(const struct cut_grant *g)
{
    struct line n = {0, 0, 0, 0};
    hf_error err;
    int rc = hf_peek(cut_me.beside, g->key, count, &n, &err);
    if (rc && !cut_away(rc)) cut_bad(g, "looking at the line", rc, &err);
    return n;
}

/* Waits until the first one is queued. If it seems that it can't be, it may come after the one
   behind. */
static void await_first(const struct cut_grant *g, int64_t patience_ms)
{
    for (int64_t end = cut_ms() + patience_ms; !ended(&first) && cut_ms() < end; usleep(1000))
        if (in_line(g).waiters) return;
}

/* Nothing keeps it from coming into line. */
static int await_behind(const struct cut_grant *g)
{
    for (int64_t end = cut_ms() + CUT_PATIENCE_MS; !ended(&behind); usleep(1000)) {
        if (in_line(g).has_behind) return 0;
        if (cut_ms() > end)
            return cut_bad(g, "the one behind doesn't come into line", HF_TIMEOUT, &behind.err);
    }
    return 0;
}

/* A client beside the proxy holds the key, and the handle through the proxy is connected. */
static int set_the_stage(struct cut_grant *g, hf *h, hf_lock **held)
{
    hf_options o = HF_OPTIONS_INIT;
    hf_error err;
    struct line n;
    int rc = HF_UNAVAILABLE;
    o.lease_ms = LONG_LEASE_MS;
    o.wait_ms = CUT_GRACE_MS;
    cut_name_key(g);
    g->h = h;
    for (int64_t end = cut_ms() + CUT_PATIENCE_MS; cut_ms() < end; usleep(10000))
        if (!(rc = hf_peek(h, g->key, count, &n, &err)) || !cut_away(rc)) break;
    if (!rc) rc = hf_acquire(cut_me.beside, g->key, &o, held, &err);
    if (rc) return cut_bad(g, "before the case", rc, &err);
    g->token = hf_token(*held);
    return 0;
}

/* The wait was handed the key: as long as it believes, the one behind doesn't hold. */
static int judge_handed(struct cut_grant *g, int renews)
{
    hf_error err;
    g->lock = first.lock;
    if (hf_token(g->lock) <= g->token) cut_bad(g, "a token fell", 0, NULL);
    cut_note_grant(g, g->lock);
    int another = ended(&behind) || in_line(g).holders > 1;
    if (another && hf_left_ms(g->lock) > 0)
        return cut_bad(g, "a second grant while the first one believes", 0, NULL);
    int rc = renews ? hf_renew(g->lock, 0, &err) : 0;
    if (rc && !cut_away(rc) && !(rc == HF_LOST && cut_late(g)))
        return cut_bad(g, "the claim", rc, &err);
    another = ended(&behind);
    if (another && hf_left_ms(g->lock) > 0)
        return cut_bad(g, "a second grant while the claimed one believes", 0, NULL);
    rc = hf_release(g->lock, &err);
    g->lock = NULL;
    if (rc && !cut_away(rc) && !(rc == HF_LOST && cut_late(g)))
        return cut_bad(g, "the release of what was handed over", rc, &err);
    return rc;
}

/* May it stand in the row? */
static int unsure(int code) { return code == HF_UNKNOWN || code == HF_UNAVAILABLE; }

/* Plays one wait. `chance` decides which side ends it, whether the renewer makes its claim, and
   whether its caller chose its id. *ret: what the proxy saw. */
static int play(enum cut_op op, hf *h, const struct proxy_order *order, unsigned chance,
                int64_t wait_ms, struct proxy_state *ret)
{
    static const struct proxy_order calm = {.what = PROXY_PASS};
    struct cut_grant g;
    hf_lock *held;
    hf_error err;
    int renews = chance / 2 % 2, named = chance / 4 % 2, times_out = chance % 2;
    if (set_the_stage(&g, h, &held) || cut_tell(order, NULL)) return -1;
    hf_options o = cut_asks(&g, op == CUT_LEAVE && times_out ? SHORT_WAIT_MS : wait_ms);
    if (renews) o.flags = 0;
    if (!named) o.request_id = NULL;
    g.asked_ms = cut_ms();
    if (start(&first, &g, h, &o)) return -1;
    await_first(&g, order->what == PROXY_PASS ? CUT_PATIENCE_MS : 4 * CUT_IO_MS);
    hf_options next = HF_OPTIONS_INIT;
    next.lease_ms = LONG_LEASE_MS;
    next.wait_ms = CUT_PATIENCE_MS;
    next.owner = BEHIND;
    if (start(&behind, &g, cut_me.behind, &next) || await_behind(&g)) return -1;
    if (op == CUT_LEAVE) {
        if (!times_out) hf_wait_cancel(first.wait);
        if (await(&first, &g, "a wait that is over doesn't end")) return -1;
        if (!first.code) return cut_bad(&g, "handed the key, which another holds", 0, NULL);
        if (!cut_away(first.code) && first.code != HF_CANCELED)
            return cut_bad(&g, "leaving the line", first.code, &first.err);
        if (!unsure(first.code) && in_line(&g).waiters > 1)
            return cut_bad(&g, "out of line, as was told, but there it stands", first.code,
                           &first.err);
    }
    g.asked_ms = cut_ms();
    g.lease_ms = g.lease_ms < 1000 ? g.lease_ms : 1000; /* a claim ends sooner */
    size_t ahead = in_line(&g).ahead;
    /* A client without the server can't keep its session, and is passed over once that ends. */
    if (cut_me.sessions && (order->refuse == CUT_NOBODY || order->what == PROXY_SILENT)) ahead = 0;
    int64_t given_ms = cut_ms();
    int rc = hf_release(held, &err), gave = 0;
    if (rc) return cut_bad(&g, "the release before it", rc, &err);
    if (op == CUT_WAIT) {
        if ((gave = await_turn(&g, given_ms, ahead)) < 0) return -1;
        rc = first.code ? first.code : judge_handed(&g, renews);
        if (rc == -1) return -1;
    }
    if (op == CUT_LEAVE) rc = unsure(first.code) ? first.code : 0;
    cut_count(op, rc);
    if (cut_tell(&calm, ret)) return -1;
    if (await(&behind, &g, "the one behind doesn't get its turn")) return -1;
    if (behind.code) return cut_bad(&g, "the one behind", behind.code, &behind.err);
    if (!gave) {
        if (hf_token(behind.lock) <= g.token) return cut_bad(&g, "a token fell", 0, NULL);
        cut_note_grant(&g, behind.lock);
        rc = hf_release(behind.lock, &err);
        if (rc && !(rc == HF_LOST && cut_late(&g)))
            return cut_bad(&g, "the release of the one behind", rc, &err);
    }
    /* A request whose id its caller chose can be asked again for its outcome. */
    if (named && unsure(first.code)) {
        g.lease_ms = cut_me.lease;
        if (cut_resolve(&g, 0)) return -1;
        rc = hf_release(g.lock, &err);
        if (rc && !cut_away(rc) && !(rc == HF_LOST && cut_late(&g)))
            return cut_bad(&g, "the release of what was asked for again", rc, &err);
    }
    rc = cut_others_turn(&g, CUT_GRACE_MS);
    return rc ? cut_bad(&g, "the key isn't free in the end", rc, &err) : 0;
}

int64_t cut_wait_length(enum cut_op op, enum proxy_way way)
{
    static const struct proxy_order calm = {.what = PROXY_PASS};
    int64_t most = 0;
    /* Once with a claim by the wait, and once with one by the renewer. */
    for (unsigned chance = 0; chance <= 2; chance += 2) {
        struct proxy_state s = {{0}, 0, 0, 0};
        if (play(op, cut_me.patient, &calm, chance, CUT_PATIENCE_MS, &s)) return -1;
        if (s.bytes[way] > most) most = s.bytes[way];
    }
    return most;
}

void cut_wait_case(enum cut_op op, const struct proxy_order *order, unsigned chance)
{
    struct proxy_state s = {{0}, 0, 0, 0};
    /* scrambled, so that it doesn't follow the number of the byte */
    chance = chance * 2654435761U >> 16;
    if (play(op, cut_me.through, order, chance, CUT_PATIENCE_MS, &s)) return;
    __atomic_add_fetch(&cut_tally->cuts[op], s.hit, __ATOMIC_RELAXED);
}

void cut_wait_scene(enum cut_op op, const struct proxy_order *order)
{
    struct proxy_state s = {{0}, 0, 0, 0};
    if (play(op, cut_me.through, order, 4, SCENE_WAIT_MS, &s)) return;
    __atomic_add_fetch(&cut_tally->scenes[op], s.hit, __ATOMIC_RELAXED);
}
