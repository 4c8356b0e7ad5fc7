/*
 * history_client.c - a process that asks for keys, holds them, gives them back, and writes down
 * each call before it is made and each answer when it has come; see history.h.
 */
#include "history.h"

#include "drivers.h"
#include "fakes/faults.h"
#include "holdfast.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { KEEP_MS = 3600000, BOUND_MS = 600000, LAST_MS = 600000, COUNT_BITS = 11 };

struct me {
    struct h_world *w;
    struct h_client *c;
    int number;
    uint64_t chance;
    hf *h;
    hf_error err;
    uint64_t injected_before;
    int doubtful; /* how many requests it gave up whose outcome isn't known */
};

int64_t h_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void h_key_name(uint16_t key, char ret[64], uint64_t seed)
{
    snprintf(ret, 64, "history/%llu/%u", (unsigned long long)seed, key);
}

/* splitmix64 */
static uint64_t next(struct me *me)
{
    uint64_t z = (me->chance += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static int64_t below(struct me *me, int64_t n)
{
    return n > 0 ? (int64_t)(next(me) % (uint64_t)n) : 0;
}
static int chance(struct me *me, int of_1000) { return below(me, 1000) < of_1000; }
static int stopped(const struct me *me) { return __atomic_load_n(&me->w->stop, __ATOMIC_RELAXED); }

/* ---- what is written down ---- */

/* There is room for the last round, too. */
static int full(const struct me *me) { return me->c->n + 400 > H_OPS; }

/* Notes the operation before the call. The note stays like this if the call never returns. */
static struct h_op *begin(struct me *me, enum h_kind kind, uint16_t key, const char *what,
                          int64_t ms)
{
    struct h_op *op = &me->c->op[me->c->n];
    memset(op, 0, sizeof *op);
    op->kind = (uint8_t)kind;
    op->key = key;
    op->client = (uint8_t)me->number;
    op->life = me->c->life;
    op->answer = H_OPEN;
    __atomic_fetch_add(&me->w->begun, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&me->w->used[key % H_SLOTS], 1, __ATOMIC_RELAXED);
    me->c->doing = what;
    op->t0 = op->asked = h_now();
    __atomic_store_n(&me->c->late_ns, op->t0 + (ms + BOUND_MS) * 1000000, __ATOMIC_RELAXED);
    __atomic_store_n(&me->c->n, me->c->n + 1, __ATOMIC_RELEASE);
    return op;
}

static void odd(struct me *me, const char *what, int rc)
{
    if (!*me->c->odd)
        snprintf(me->c->odd, sizeof me->c->odd, "client %d: %s: %s: %s", me->number, what,
                 hf_code_name(rc), rc ? me->err.text : "");
}

/* After it. Only these may be answered. */
static void end(struct me *me, struct h_op *op, int rc)
{
    int64_t now = h_now();
    struct hf__fault_counts counts;
    op->answer = (int8_t)rc;
    __atomic_store_n(&op->t1, now, __ATOMIC_RELEASE);
    __atomic_store_n(&me->c->late_ns, 0, __ATOMIC_RELAXED);
    if (rc < 0 && rc != HF_BUSY && rc != HF_TIMEOUT && rc != HF_CANCELED && rc != HF_LOST &&
        rc != HF_UNKNOWN && rc != HF_UNAVAILABLE)
        odd(me, me->c->doing, rc);
    if ((op->kind <= H_ACQUIRE || op->kind == H_BEGIN) && rc == HF_UNKNOWN) me->doubtful = 1;
    hf__fault_counts(&counts);
    me->c->injected += counts.injected - me->injected_before;
    me->injected_before = counts.injected;
}

/* A slot that this plan uses, and its present key. Locks only, or also events. */
static uint16_t some_key(struct me *me, int events)
{
    static const int order[H_SLOTS] = {0, H_SLOTS - 1, 2, 3, 1, 4};
    struct h_world *w = me->w;
    int slot = order[below(me, w->plan.slots)];
    if (!events && slot == H_SLOTS - 1) slot = 0;
    uint32_t g = __atomic_load_n(&w->generation[slot], __ATOMIC_ACQUIRE);
    uint32_t cap = slot == H_SLOTS - 1 ? H_EVENT_OPS : H_KEY_OPS;
    if (__atomic_load_n(&w->used[slot], __ATOMIC_RELAXED) >= cap &&
        (slot == H_SLOTS - 1 || g + 1 < H_GENERATIONS) &&
        __atomic_compare_exchange_n(&w->generation[slot], &g, g + 1, 0, __ATOMIC_SEQ_CST,
                                    __ATOMIC_SEQ_CST)) {
        __atomic_store_n(&w->used[slot], 0, __ATOMIC_RELAXED);
        g++;
    }
    return h_key(slot, g);
}

/* ---- holding ---- */

static int believe(hf_lock *lock, struct h_op *grant)
{
    int64_t before = h_now();
    int64_t left = hf_left_ms(lock);
    int64_t after = h_now();
    if (left <= 0) return 0;
    if (!grant->first) __atomic_store_n(&grant->first, after, __ATOMIC_RELEASE);
    __atomic_store_n(&grant->last, before, __ATOMIC_RELEASE);
    return 1;
}

static void pass_time(struct me *me, hf_lock *lock, struct h_op *grant, int64_t us)
{
    int64_t until = h_now() + us * 1000;
    while (believe(lock, grant) && h_now() < until && !stopped(me)) {
        if (us < 60) continue;
        usleep((useconds_t)(us / 8 < 500 ? us / 8 : 500));
    }
}

/* A resource that takes no smaller token than it has seen. */
static void write_fenced(struct me *me, uint16_t key, uint64_t token)
{
    uint64_t *word = &me->w->fence[key % H_SLOTS][key / H_SLOTS];
    struct h_op *op = begin(me, H_WRITE, key, "a write", 0);
    uint64_t cur = __atomic_load_n(word, __ATOMIC_ACQUIRE), to;
    op->token = token;
    do {
        if (token < cur >> COUNT_BITS) {
            op->value = cur >> COUNT_BITS;
            end(me, op, H_REFUSED);
            return;
        }
        to = token == cur >> COUNT_BITS ? cur + 1 : token << COUNT_BITS | 1;
    } while (!__atomic_compare_exchange_n(word, &cur, to, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
    op->value = to & ((1 << COUNT_BITS) - 1);
    end(me, op, 0);
}

static void with_lock(struct me *me, enum h_kind kind, hf_lock *lock, uint16_t key, uint64_t token)
{
    struct h_op *op = begin(me, kind, key, kind == H_RENEW ? "renew" : "confirm", 0);
    op->token = token;
    end(me, op, kind == H_RENEW ? hf_renew(lock, 0, &me->err) : hf_confirm(lock, &me->err));
}

static void release(struct me *me, hf_lock *lock, uint16_t key, uint64_t token)
{
    struct h_op *op = begin(me, H_RELEASE, key, "release", 0);
    op->token = token;
    end(me, op, hf_release(lock, &me->err));
}

static void hold(struct me *me, hf_lock *lock, struct h_op *grant, int late)
{
    const struct h_plan *p = &me->w->plan;
    uint64_t token = grant->token;
    __atomic_store_n(&me->w->holding[grant->key % H_SLOTS], token, __ATOMIC_RELAXED);
    believe(lock, grant);
    write_fenced(me, grant->key, token);
    if (chance(me, 60)) with_lock(me, H_RENEW, lock, grant->key, token);
    if (chance(me, 60)) with_lock(me, H_CONFIRM, lock, grant->key, token);
    if (late)
        pass_time(me, lock, grant, (int64_t)grant->lease_ms * 1500);
    else if (chance(me, 500))
        pass_time(me, lock, grant, below(me, p->hold_us) + 1);
    believe(lock, grant);
    if (late || chance(me, 150)) write_fenced(me, grant->key, token);
    release(me, lock, grant->key, token);
}

/* ---- asking ---- */

struct asking {
    struct me *me;
    uint16_t key;
    int64_t asked;
    char owner[48];
    hf_options o;
    hf_lock *lock;
    hf_once once;
    pthread_mutex_t mu;
    pthread_cond_t changed;
    int told, code;
    hf_error err;
    int seen;
};

static void prepare(struct me *me, struct asking *a, uint16_t key)
{
    static const int64_t waits[] = {5, 50, 300, 2000, 2000, 10000, 10000, HF_FOREVER};
    const struct h_plan *p = &me->w->plan;
    int slot = key % H_SLOTS;
    memset(a, 0, sizeof *a);
    a->me = me;
    a->key = key;
    hf_options o = HF_OPTIONS_INIT;
    a->o = o;
    snprintf(a->owner, sizeof a->owner, "h%d.%u.%u", me->number, me->c->life, me->c->n);
    a->o.owner = a->owner;
    a->o.lease_ms = p->leases[below(me, 3)];
    a->o.wait_ms = chance(me, p->tries) ? 0 : waits[below(me, sizeof waits / sizeof *waits)];
    if ((slot == 2 || slot == 3) && chance(me, 800)) a->o.mode = slot == 2 ? HF_SHARED : HF_LIMITED;
    if (a->o.mode == HF_LIMITED) a->o.limit = (uint32_t)(2 + below(me, 2));
}

/* Notes what is asked, with a new request id. */
static struct h_op *ask(struct asking *a, enum h_kind kind, uint8_t id[16])
{
    struct me *me = a->me;
    int64_t ms = a->o.wait_ms == HF_FOREVER ? BOUND_MS : a->o.wait_ms;
    struct h_op *op = begin(me, kind, a->key, kind == H_BEGIN ? "once" : "acquire", ms);
    if (a->asked)
        op->asked = a->asked;
    else
        a->asked = op->t0;
    op->mode = (uint8_t)a->o.mode;
    op->limit = (uint16_t)a->o.limit;
    op->lease_ms = (uint32_t)a->o.lease_ms;
    memcpy(op->request, id, 16);
    a->o.request_id = id;
    return op;
}

static void told(void *arg, int code, hf_lock *lock, const hf_error *err)
{
    struct asking *a = arg;
    pthread_mutex_lock(&a->mu);
    a->told = 1;
    a->code = code;
    a->lock = lock;
    if (code) a->err = *err;
    pthread_cond_signal(&a->changed);
    pthread_mutex_unlock(&a->mu);
}

static int find_me(void *arg, const hf_info *info)
{
    struct asking *a = arg;
    for (size_t i = info->n_holders; i < info->n_holders + info->n_waiters; i++)
        a->seen |= !strcmp(info->parties[i].owner, a->owner);
    return 0;
}

static int is_told(struct asking *a)
{
    pthread_mutex_lock(&a->mu);
    int is = a->told;
    pthread_mutex_unlock(&a->mu);
    return is;
}

/* Waits until the store shows the request in its row. */
static void look(struct asking *a, struct h_op *op, const char *name)
{
    for (int i = 0; i < 50 && !a->seen && !is_told(a); i++) {
        if (i) usleep(200);
        if (hf_peek(a->me->h, name, find_me, a, NULL)) return;
    }
    if (a->seen) op->queued = h_now();
}

/* Started; perhaps looked for in the queue; perhaps given up. */
static int start(struct asking *a, struct h_op *op, const char *name)
{
    struct me *me = a->me;
    const struct h_plan *p = &me->w->plan;
    hf_wait *wait;
    int cancels = chance(me, p->cancel);
    a->told = 0;
    pthread_mutex_init(&a->mu, NULL);
    pthread_cond_init(&a->changed, NULL);
    int rc = hf_acquire_start(me->h, name, &a->o, told, a, &wait, &me->err);
    if (rc) return rc;
    if (p->queues && a->o.wait_ms && chance(me, p->look)) look(a, op, name);
    if (cancels) {
        usleep((useconds_t)below(me, p->hold_us + 100));
        hf_wait_cancel(wait);
    }
    pthread_mutex_lock(&a->mu);
    while (!a->told) pthread_cond_wait(&a->changed, &a->mu);
    pthread_mutex_unlock(&a->mu);
    hf_wait_free(wait);
    pthread_mutex_destroy(&a->mu);
    pthread_cond_destroy(&a->changed);
    me->err = a->err;
    return a->code;
}

static void new_id(struct me *me, uint8_t id[16])
{
    uint64_t two[2] = {next(me), next(me) ^ (uint64_t)h_now()};
    memcpy(id, two, 16);
}

static void ask_for_lock(struct me *me)
{
    struct asking a;
    char name[64];
    uint8_t id[16];
    int rc;
    prepare(me, &a, some_key(me, 0));
    h_key_name(a.key, name, me->w->plan.seed);
    new_id(me, id);
    int late = a.o.lease_ms && chance(me, me->w->plan.late),
        starts = chance(me, me->w->plan.starts);
    if (late) a.o.flags |= HF_NO_RENEW;
    for (int tries = 0; tries < 3; tries++) {
        struct h_op *op = ask(&a, a.o.wait_ms ? H_ACQUIRE : H_TRY, id);
        rc = starts ? start(&a, op, name) : hf_acquire(me->h, name, &a.o, &a.lock, &me->err);
        if (!rc) op->token = hf_token(a.lock);
        end(me, op, rc);
        if (!rc) me->doubtful = 0;
        if (!rc) hold(me, a.lock, op, late);
        /* If the outcome isn't known, the request is mostly asked again. */
        if (rc != HF_UNKNOWN || chance(me, 300) || stopped(me)) return;
    }
}

static void ask_for_event(struct me *me, uint16_t key)
{
    struct asking a;
    char name[64], result[24];
    uint8_t id[16];
    prepare(me, &a, key);
    if (a.o.wait_ms > 2000 || a.o.wait_ms == HF_FOREVER) a.o.wait_ms = 2000;
    h_key_name(a.key, name, me->w->plan.seed);
    new_id(me, id);
    struct h_op *op = ask(&a, H_BEGIN, id);
    int rc = hf_once_begin(me->h, name, KEEP_MS, &a.o, &a.once, &me->err);
    hf_lock *lock = rc ? NULL : a.once.lock;
    if (!rc) op->token = lock ? hf_token(lock) : strtoull(a.once.result, NULL, 10);
    end(me, op, rc || lock ? rc : H_DONE);
    if (!lock) return;
    uint64_t token = op->token;
    believe(lock, op);
    if (chance(me, 300)) pass_time(me, lock, op, below(me, me->w->plan.hold_us) + 1);
    believe(lock, op);
    if (chance(me, 400)) {
        release(me, lock, key, token);
        return;
    }
    snprintf(result, sizeof result, "%llu", (unsigned long long)token);
    op = begin(me, H_FINISH, key, "finish", 0);
    op->token = token;
    end(me, op, hf_once_finish(lock, result, KEEP_MS, &me->err));
}

static void break_one(struct me *me)
{
    char name[64];
    uint16_t key = some_key(me, 0);
    uint64_t token = __atomic_load_n(&me->w->holding[key % H_SLOTS], __ATOMIC_RELAXED);
    if (!token) return;
    h_key_name(key, name, me->w->plan.seed);
    struct h_op *op = begin(me, H_BREAK, key, "break", 0);
    op->token = token;
    end(me, op, hf_break(me->h, name, token, &me->err));
}

/* ---- a life ---- */

static int open_store(struct me *me)
{
    hf_open_options oo = HF_OPEN_OPTIONS_INIT;
    for (int i = 0; i < 1000; i++) {
        me->c->doing = "open";
        __atomic_store_n(&me->c->late_ns, h_now() + (int64_t)BOUND_MS * 1000000, __ATOMIC_RELAXED);
        int rc = hf_open(me->w->plan.url, &oo, &me->h, &me->err);
        __atomic_store_n(&me->c->late_ns, 0, __ATOMIC_RELAXED);
        if (!rc) return 0;
        if (rc != HF_UNAVAILABLE && rc != HF_UNKNOWN) {
            odd(me, "open", rc);
            return rc;
        }
        usleep(20000);
    }
    odd(me, "open", HF_UNAVAILABLE);
    return HF_UNAVAILABLE;
}

static void close_store(struct me *me)
{
    me->c->doing = "close";
    __atomic_store_n(&me->c->late_ns, h_now() + (int64_t)BOUND_MS * 1000000, __ATOMIC_RELAXED);
    hf_close(me->h);
    __atomic_store_n(&me->c->late_ns, 0, __ATOMIC_RELAXED);
}

/* On etcd a request that has a name of its caller's, may have landed and isn't asked again stands
   for as long as its handle is open: its session is kept for the others. */
static int settle_doubts(struct me *me)
{
    int is = me->doubtful && !strncmp(me->w->plan.url, "etcd", 4);
    me->doubtful = 0;
    if (!is) return 0;
    close_store(me);
    return open_store(me);
}

/* Each key once more: every client that is left is served. */
static void last_round(struct me *me)
{
    static const int order[H_SLOTS] = {0, H_SLOTS - 1, 2, 3, 1, 4};
    for (int i = 0; i < me->w->plan.slots; i++) {
        struct asking a;
        char name[64];
        uint8_t id[16];
        if (order[i] == H_SLOTS - 1) continue;
        int rc = HF_UNKNOWN;
        /* The only failure that may occur here is a lost reply. */
        for (int tries = 0; tries < 20 && (rc == HF_UNKNOWN || rc == HF_UNAVAILABLE); tries++) {
            prepare(me, &a, h_key(order[i], me->w->generation[order[i]]));
            h_key_name(a.key, name, me->w->plan.seed);
            new_id(me, id);
            a.o.mode = HF_EXCLUSIVE;
            a.o.limit = 0;
            a.o.wait_ms = LAST_MS;
            struct h_op *op = ask(&a, H_ACQUIRE, id);
            rc = hf_acquire(me->h, name, &a.o, &a.lock, &me->err);
            if (!rc) op->token = hf_token(a.lock);
            end(me, op, rc);
            if (!rc) release(me, a.lock, a.key, op->token);
            if (settle_doubts(me)) return;
        }
        if (rc)
            odd(me, "not served at the end", rc);
        else
            me->c->last_rounds++;
    }
}

static void act(struct me *me)
{
    uint16_t key = some_key(me, 1);
    if (key % H_SLOTS == H_SLOTS - 1)
        ask_for_event(me, key);
    else if (chance(me, me->w->plan.break_))
        break_one(me);
    else
        ask_for_lock(me);
}

void h_client_run(struct h_world *world, int number)
{
    struct me me = {.w = world, .c = &world->client[number], .number = number};
    struct hf__fault_counts counts;
    me.chance = world->plan.seed ^ ((uint64_t)number << 40 | (uint64_t)me.c->life << 8);
    hf__fault_counts(&counts);
    me.injected_before = counts.injected;
    if (open_store(&me)) return;
    while (!stopped(&me) && !full(&me)) {
        act(&me);
        if (settle_doubts(&me)) return;
        if (!chance(&me, world->plan.reopen)) continue;
        close_store(&me);
        if (open_store(&me)) return;
    }
    last_round(&me);
    close_store(&me);
}
