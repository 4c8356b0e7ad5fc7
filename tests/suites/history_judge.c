/*
 * history_judge.c - what the clients wrote down, held against what was promised; see history.h.
 *
 * Tokens name the order of the grants, so nothing has to be searched for. Everything here follows
 * from three facts: a grant is made between its call and its return; it hasn't ended while it is
 * believed (unless an operator broke it); and a grant with a greater token was made later. What
 * might have happened without anybody's having seen it (the reply was lost, the caller was killed)
 * is believed to have happened wherever that would be an excuse.
 */
#include "history.h"

#include "holdfast.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const int64_t NEVER = INT64_MAX;
static const int64_t BREAK_SLACK_NS = 50000000;

struct hold {
    const struct h_op *op; /* the operation that it was granted to */
    int64_t last;          /* believed until then, and not broken before; 0: never */
    int64_t over;          /* it has certainly ended by then */
};

/* All of one key. */
struct key {
    const struct h_history *h;
    const struct h_op **op;
    size_t n;
    struct hold *hold; /* by token */
    size_t holds;
    struct h_verdict *v;
};

const char *h_check_name(enum h_check check)
{
    static const char *const names[H_CHECKS] = {"tokens", "overlap", "fifo",
                                                "busy",   "fence",   "markers"};
    return names[check];
}

static int asks(const struct h_op *op)
{
    return op->kind == H_TRY || op->kind == H_ACQUIRE || op->kind == H_BEGIN;
}

/* Could it have had an effect, or have yet? */
static int perhaps(const struct h_op *op)
{
    return op->answer == 0 || op->answer == H_OPEN || op->answer == HF_UNKNOWN ||
           op->answer == HF_UNAVAILABLE;
}

static void wrong(struct key *k, enum h_check check, const char *what, const struct h_op *a,
                  const struct h_op *b)
{
    struct h_verdict *v = k->v;
    if (v->wrong[check]++) return;
    int64_t t = a->asked < b->asked ? a->asked : b->asked;
    char one[2][150];
    const struct h_op *both[2] = {a, b};
    for (int i = 0; i < 2; i++)
        snprintf(one[i], sizeof one[i],
                 "client %d: %s token %" PRIu64 ", %" PRId64 " to %" PRId64 " us, believed %" PRId64
                 " to %" PRId64,
                 both[i]->client, h_answer_word(both[i]), both[i]->token,
                 (both[i]->asked - t) / 1000, both[i]->t1 ? (both[i]->t1 - t) / 1000 : -1,
                 both[i]->first ? (both[i]->first - t) / 1000 : -1,
                 both[i]->last ? (both[i]->last - t) / 1000 : -1);
    snprintf(v->why[check], sizeof v->why[check], "key %d: %s: %s; %s", a->key, what, one[0],
             one[1]);
}

static int by_token(const void *x, const void *y)
{
    const struct hold *a = x, *b = y;
    return a->op->token < b->op->token ? -1 : a->op->token > b->op->token;
}

static struct hold *find(const struct key *k, uint64_t token)
{
    size_t lo = 0, hi = k->holds;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (k->hold[mid].op->token < token)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < k->holds && k->hold[lo].op->token == token ? &k->hold[lo] : NULL;
}

static int admit(const struct h_op *a, const struct h_op *b)
{
    return a->mode == b->mode && a->mode != HF_EXCLUSIVE;
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Collects the holds, and how each of them ended. */
static void collect(struct key *k)
{
    for (size_t i = 0; i < k->n; i++)
        if (asks(k->op[i]) && k->op[i]->answer == 0)
            k->hold[k->holds++] = (struct hold){k->op[i], k->op[i]->last, NEVER};
    qsort(k->hold, k->holds, sizeof *k->hold, by_token);
    for (size_t i = 0; i < k->n; i++) {
        const struct h_op *op = k->op[i];
        struct hold *x = find(k, op->token);
        if (!x) continue;
        if (op->kind == H_RELEASE || op->kind == H_FINISH || op->kind == H_BREAK)
            if (op->answer == 0) x->over = least(x->over, op->t1);
        if (op->kind != H_BREAK || !perhaps(op)) continue;
        /* The holder learns of it at its next renewal, or when its lease is over. */
        if (op->answer == 0 && x->op->lease_ms &&
            x->op->last > op->t1 + (int64_t)x->op->lease_ms * 1000000 + BREAK_SLACK_NS)
            wrong(k, H_OVERLAP, "a grant that was broken was believed for more than its lease",
                  x->op, op);
        x->last = least(x->last, op->t0);
    }
}

/* ---- tokens ---- */

/* Finds a grant that excludes this one, was made after it, and was returned before `t0`. */
static const struct hold *overtaken(const struct key *k, const struct hold *x, int64_t t0)
{
    for (const struct hold *m = x + 1; m < k->hold + k->holds; m++)
        if (m->op->t1 < t0 && !admit(x->op, m->op)) return m;
    return NULL;
}

static void judge_tokens(struct key *k)
{
    /* of the grants with greater tokens, the first one that was returned */
    const struct h_op *soonest = NULL;
    for (size_t i = k->holds; i-- > 0;) {
        const struct h_op *op = k->hold[i].op;
        k->v->checked[H_TOKENS]++;
        if (!op->token) wrong(k, H_TOKENS, "a grant without a token", op, op);
        if (i && k->hold[i - 1].op->token == op->token)
            wrong(k, H_TOKENS, "a token was given twice", k->hold[i - 1].op, op);
        if (soonest && soonest->t1 < op->asked) wrong(k, H_TOKENS, "a token fell", soonest, op);
        if (!soonest || op->t1 < soonest->t1) soonest = op;
    }
    for (size_t i = 0; i < k->n; i++) {
        const struct h_op *op = k->op[i];
        int says = op->kind == H_RELEASE || op->kind == H_RENEW || op->kind == H_CONFIRM ||
                   op->kind == H_FINISH || op->kind == H_BREAK;
        const struct hold *x = says && op->answer == 0 ? find(k, op->token) : NULL;
        if (!says || op->answer != 0) continue;
        if (op->kind == H_RENEW && x && !x->op->lease_ms) continue; /* nobody was asked */
        k->v->checked[H_TOKENS]++;
        const struct hold *m = x ? overtaken(k, x, op->t0) : NULL;
        if (m) wrong(k, H_TOKENS, "a grant is said to last after its successor's", op, m->op);
        if (x && x->over < op->t0)
            wrong(k, H_TOKENS, "a grant is said to last after it was given back", op, x->op);
    }
}

/* ---- belief ---- */

static int covers(const struct hold *x, int64_t t) { return x->op->t1 <= t && t < x->last; }

static void judge_limit(struct key *k, const struct hold *m)
{
    uint32_t n = 0, limit = UINT32_MAX;
    if (m->op->mode != HF_LIMITED || m->last <= m->op->t1) return;
    for (size_t i = 0; i < k->holds; i++) {
        const struct hold *x = &k->hold[i];
        if (x->op->mode != HF_LIMITED || !covers(x, m->op->t1)) continue;
        n++;
        if (x->op->limit < limit) limit = x->op->limit;
    }
    if (n > limit) wrong(k, H_OVERLAP, "more hold than may", m->op, m->op);
}

static void judge_overlap(struct key *k)
{
    for (size_t j = 0; j < k->holds; j++) {
        const struct hold *m = &k->hold[j];
        for (const struct hold *x = k->hold; x < m; x++)
            if (m->op->t1 < x->last && !admit(x->op, m->op))
                wrong(k, H_OVERLAP, "granted while another believed", x->op, m->op);
        judge_limit(k, m);
        k->v->checked[H_OVERLAP]++;
    }
}

/* ---- the queue ---- */

static int by_return(const void *x, const void *y)
{
    const struct h_op *const *a = x, *const *b = y;
    return (*a)->t1 < (*b)->t1 ? -1 : (*a)->t1 > (*b)->t1;
}

/* Returns 1 if there was a time without a known holder that was long enough for a claim timeout.
   The overtaken client may have held in it. */
static int may_have_lapsed(const struct key *k, int64_t from, int64_t to)
{
    int64_t covered = from;
    const struct h_op **at = malloc((k->holds + 1) * sizeof(void *));
    size_t n = 0;
    int idle = 0;
    for (size_t i = 0; i < k->holds; i++)
        if (k->hold[i].op->t1 <= to && k->hold[i].op->last > from) at[n++] = k->hold[i].op;
    qsort(at, n, sizeof(void *), by_return);
    for (size_t i = 0; i < n && !idle; i++) {
        idle = at[i]->t1 - covered >= k->h->claim_ns;
        if (at[i]->last > covered) covered = at[i]->last;
    }
    idle |= to - covered >= k->h->claim_ns;
    free(at);
    return idle;
}

/* May `a`, which stood in the queue, have lost its place before `b` was granted? On a key that is
   always held alone a claim that runs out shows as an idle time; on others it takes its time. */
static int excused(const struct key *k, int alone, const struct h_op *a, const struct h_op *b)
{
    int64_t ns = b->t1 - a->queued;
    if (k->h->wait_cap_ns && ns > k->h->wait_cap_ns) return 1;
    return alone ? may_have_lapsed(k, a->queued, b->t1) : ns >= k->h->claim_ns;
}

/* A client that was seen in the queue before another asked is granted before it. */
static void judge_fifo(struct key *k)
{
    int alone = 1;
    for (size_t i = 0; i < k->holds; i++) alone &= k->hold[i].op->mode == HF_EXCLUSIVE;
    for (size_t i = 0; i < k->holds; i++) {
        const struct h_op *a = k->hold[i].op;
        if (!a->queued) continue;
        for (size_t j = 0; j < k->holds; j++) {
            const struct h_op *b = k->hold[j].op;
            if (b->asked <= a->queued) continue;
            k->v->checked[H_FIFO]++;
            if (b->token > a->token) continue;
            if (excused(k, alone, a, b))
                k->v->excused++;
            else
                wrong(k, H_FIFO, "a later request was granted before a queued one", a, b);
        }
    }
}

/* ---- refusals ---- */

/* Returns until when a request that wasn't granted may have held the key, or been in the way. */
static int64_t shadow(const struct h_op *op)
{
    if (!asks(op) || op->answer == 0 || op->answer == HF_BUSY) return 0;
    /* A client that waited for an event may have been granted its key just to see that it is done.
     */
    int ended = op->answer == HF_TIMEOUT || op->answer == HF_CANCELED || op->answer == H_DONE;
    return ended ? op->t1 : NEVER;
}

static void judge_busy(struct key *k)
{
    for (size_t i = 0; i < k->n; i++) {
        const struct h_op *op = k->op[i];
        if (!asks(op) || op->answer != HF_BUSY) continue;
        int excuse = 0;
        for (size_t j = 0; j < k->holds && !excuse; j++)
            excuse = k->hold[j].op->asked <= op->t1 && k->hold[j].over >= op->t0;
        for (size_t j = 0; j < k->n && !excuse; j++)
            excuse = k->op[j]->asked <= op->t1 && shadow(k->op[j]) >= op->t0;
        k->v->checked[H_BUSY]++;
        if (!excuse) wrong(k, H_BUSY, "busy, but nobody can have held it", op, op);
    }
}

/* ---- the fence ---- */

static int by_write(const void *x, const void *y)
{
    const struct h_op *a = *(const struct h_op *const *)x, *b = *(const struct h_op *const *)y;
    if (a->token != b->token) return a->token < b->token ? -1 : 1;
    return a->value < b->value ? -1 : a->value > b->value;
}

static void judge_refused(struct key *k, const struct h_op *op)
{
    const struct hold *x = find(k, op->token), *by = find(k, op->value);
    if (x && by && !admit(x->op, by->op) && x->last > op->t1)
        wrong(k, H_FENCE, "refused at the resource while it believed", op, by->op);
}

static void judge_fence(struct key *k)
{
    const struct h_op **w = malloc((k->n + 1) * sizeof(void *)), *soonest = NULL;
    size_t n = 0;
    for (size_t i = 0; i < k->n; i++) {
        const struct h_op *op = k->op[i];
        if (op->kind != H_WRITE) continue;
        if (op->answer == 0) w[n++] = op;
        if (op->answer == H_REFUSED) judge_refused(k, op);
        k->v->checked[H_FENCE]++;
    }
    qsort(w, n, sizeof(void *), by_write);
    for (size_t i = n; i-- > 0;) {
        if (soonest && soonest->t1 < w[i]->t0)
            wrong(k, H_FENCE, "a write was accepted after one with a greater token", soonest, w[i]);
        if (i && !by_write(&w[i - 1], &w[i])) wrong(k, H_FENCE, "a write twice", w[i - 1], w[i]);
        if (!soonest || w[i]->t1 < soonest->t1) soonest = w[i];
    }
    free(w);
}

/* ---- events ---- */

static void judge_markers(struct key *k)
{
    const struct h_op *done = NULL; /* the first one to show it */
    for (size_t i = 0; i < k->n; i++) {
        const struct h_op *op = k->op[i];
        if (op->answer != H_DONE && (op->kind != H_FINISH || op->answer != 0)) continue;
        k->v->checked[H_MARKERS]++;
        if (done && done->token != op->token)
            wrong(k, H_MARKERS, "an event was done by two", done, op);
        if (op->kind == H_FINISH && done && done->kind == H_FINISH)
            wrong(k, H_MARKERS, "an event was finished twice", done, op);
        if (!done || op->t1 < done->t1) done = op;
    }
    if (!done) return;
    int finished = 0;
    for (size_t i = 0; i < k->n; i++) {
        const struct h_op *op = k->op[i];
        if (op->kind == H_FINISH && op->token == done->token && perhaps(op) && op->t0 < done->t1)
            finished = 1;
        if (op->kind != H_BEGIN || op->answer != 0) continue;
        k->v->checked[H_MARKERS]++;
        if (op->token > done->token || op->asked > done->t1)
            wrong(k, H_MARKERS, "an event that was done ran again", done, op);
    }
    if (!finished) wrong(k, H_MARKERS, "an event is done that nobody has finished", done, done);
}

/* ---- all of it ---- */

void h_settle(struct h_op *op, size_t n, int64_t dead_ns)
{
    for (size_t i = 0; i < n; i++)
        if (op[i].answer != H_OPEN && !op[i].t1) op[i].t1 = dead_ns;
}

static int by_key(const void *x, const void *y)
{
    const struct h_op *a = *(const struct h_op *const *)x, *b = *(const struct h_op *const *)y;
    if (a->key != b->key) return a->key - b->key;
    return a->t0 < b->t0 ? -1 : a->t0 > b->t0;
}

void h_judge(const struct h_history *h, struct h_verdict *ret)
{
    const struct h_op **op = malloc((h->n + 1) * sizeof(void *));
    struct hold *hold = malloc((h->n + 1) * sizeof *hold);
    memset(ret, 0, sizeof *ret);
    if (!op || !hold) abort();
    for (size_t i = 0; i < h->n; i++) op[i] = &h->op[i];
    qsort(op, h->n, sizeof(void *), by_key);
    for (size_t at = 0; at < h->n;) {
        struct key k = {.h = h, .op = op + at, .hold = hold, .v = ret};
        while (at < h->n && op[at]->key == k.op[0]->key) at++, k.n++;
        collect(&k);
        judge_tokens(&k);
        judge_overlap(&k);
        judge_fifo(&k);
        judge_busy(&k);
        judge_fence(&k);
        judge_markers(&k);
    }
    free(hold);
    free(op);
}
