/*
 * sim.c - a simulation of many clients: the virtual clock, the network, the keys that clients want,
 * and the numbers.
 *
 * Everything follows from the seed. A store serves one request after the other; a message takes
 * half of the round trip between two regions, and up to a tenth more. See sim.h, bench/README.md.
 */
#include "sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Round trips in ms between five regions; within one data centre it is half of one. */
static const int trip_ms[REGIONS][REGIONS] = {{1, 20, 80, 140, 230},
                                              {20, 1, 95, 150, 220},
                                              {80, 95, 1, 65, 200},
                                              {140, 150, 65, 1, 130},
                                              {230, 220, 200, 130, 1}};
enum { NEAR_US = 500, BACK_US = 10000000 };

static const struct plan plans[] = {
    {"told", TOLD, 0, 0},                     /* redis:, mongodb: the word says who has it */
    {"bell", BELL, 0, 0},                     /* postgres: a word, then a read */
    {"poll", POLL, 0, 0},                     /* no bell: four looks a second */
    {"redis-py", PEER_FIXED, 100000, 100000}, /* its sleep=0.1 */
    {"redlock", PEER_RANDOM, 100000, 300000}, /* node's: 200 ms, jitter 100 */
    {"redsync", PEER_RANDOM, 50000, 250000},  /* Go's */
    {"second", PEER_FIXED, 1000000, 1000000}, /* once a second */
};

static void die(const char *why, const char *what)
{
    fprintf(stderr, "sim: %s%s\n", why, what);
    exit(64);
}

static void *room(size_t n, size_t size)
{
    void *p = calloc(n ? n : 1, size);
    if (!p) die("out of memory", "");
    return p;
}

uint64_t sim_random(struct sim *s, uint64_t below)
{
    uint64_t z = s->rng += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    z ^= z >> 31;
    return below <= UINT32_MAX ? (z >> 32) * below >> 32 : z % below;
}

void sim_add(struct samples *to, int64_t v)
{
    if (to->n == to->cap) {
        to->cap = to->cap ? to->cap * 2 : 1024;
        to->v = realloc(to->v, to->cap * sizeof *to->v);
        if (!to->v) die("out of memory", "");
    }
    to->v[to->n++] = v;
}

/* ---- what comes next: a heap by time, then by order ---- */

struct event {
    int64_t at_us;
    uint64_t nth;
    uint32_t who, gen;
    enum event_kind kind;
};
static struct event *heap;
static size_t heap_n, heap_cap;
static uint64_t nth;

static int before(const struct event *a, const struct event *b)
{
    return a->at_us != b->at_us ? a->at_us < b->at_us : a->nth < b->nth;
}

void sim_at(struct sim *s, int64_t at_us, enum event_kind kind, uint32_t who, uint32_t gen)
{
    (void)s;
    if (heap_n == heap_cap) {
        heap_cap = heap_cap ? heap_cap * 2 : 4096;
        heap = realloc(heap, heap_cap * sizeof *heap);
        if (!heap) die("out of memory", "");
    }
    struct event e = {at_us, nth++, who, gen, kind};
    size_t i = heap_n++;
    for (; i && before(&e, &heap[(i - 1) / 2]); i = (i - 1) / 2) heap[i] = heap[(i - 1) / 2];
    heap[i] = e;
}

static struct event next_event(void)
{
    struct event first = heap[0], last = heap[--heap_n];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < heap_n; i = child) {
        if (child + 1 < heap_n && before(&heap[child + 1], &heap[child])) child++;
        if (!before(&heap[child], &last)) break;
        heap[i] = heap[child];
    }
    heap[i] = last;
    return first;
}

/* ---- the network ---- */

static int home_of(const struct sim *s, uint32_t key)
{
    return s->set.world ? (int)(key % REGIONS) : 0;
}

int64_t sim_one_way(struct sim *s, uint32_t who)
{
    const struct client *c = &s->client[who];
    int64_t us = s->set.world ? trip_ms[c->region][home_of(s, c->key)] * INT64_C(500) : NEAR_US / 2;
    return us + (int64_t)sim_random(s, (uint64_t)us / 10 + 1);
}

/* One request at a time: a client's requests of `kind` go out one after the other. */
void sim_sends(struct sim *s, uint32_t who, enum op op, enum hf_event_kind kind)
{
    struct client *c = &s->client[who];
    c->op = (uint8_t)op;
    c->kind = (uint8_t)kind;
    c->flight = 1;
    c->sent_us = s->now_us;
    s->ops++;
    sim_at(s, s->now_us + sim_one_way(s, who), EV_ARRIVES, who, 0);
}

static void arrives(struct sim *s, uint32_t who)
{
    struct client *c = &s->client[who];
    int64_t *busy = &s->busy_us[home_of(s, c->key)];
    if (*busy > s->now_us) s->now_us = *busy; /* served in turn; time is put back by the caller */
    *busy = s->now_us + s->set.service_us;
    if (s->set.plan.how >= PEER_FIXED)
        peer_serves(s, who);
    else
        holdfast_serves(s, who);
    if (*busy < s->now_us + s->set.service_us) *busy = s->now_us + s->set.service_us;
    sim_at(s, *busy + sim_one_way(s, who), EV_REPLY, who, 0);
}

/* ---- the keys that clients want ---- */

static uint32_t some_key(struct sim *s)
{
    if (!s->zipf) return (uint32_t)sim_random(s, (uint64_t)s->set.keys);
    double x = (double)sim_random(s, UINT64_C(1) << 52) / (double)(UINT64_C(1) << 52);
    size_t low = 0, high = (size_t)s->set.keys - 1;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (s->zipf[mid] > x)
            high = mid;
        else
            low = mid + 1;
    }
    return (uint32_t)low;
}

static void wants(struct sim *s, uint32_t who)
{
    struct client *c = &s->client[who];
    uint32_t key = some_key(s);
    if (key != c->key) c->free_rev = 0;
    c->key = key;
    c->state = WANTS;
    c->wanted_us = s->now_us;
    c->requests++;
    s->place[key].wanting++;
    if (s->set.plan.how >= PEER_FIXED)
        sim_sends(s, who, OP_PEER, HF_EV_TRY);
    else
        holdfast_wants(s, who);
}

void sim_idle(struct sim *s, uint32_t who)
{
    struct client *c = &s->client[who];
    c->state = IDLE;
    if (s->set.once) return;
    sim_at(s, s->now_us + (int64_t)sim_random(s, 2 * (uint64_t)s->set.think_us + 1), EV_WANT, who,
           0);
}

void sim_holds(struct sim *s, uint32_t who, int renews_soon)
{
    struct client *c = &s->client[who];
    struct place *p = &s->place[c->key];
    if (p->holder != NOBODY) s->overlaps++;
    p->holder = (int32_t)who;
    p->wanting--;
    c->state = HOLDS;
    s->holds++;
    sim_add(&s->waits, s->now_us - c->wanted_us);
    /* A sample is a handover if somebody wanted it when it was let go. */
    if (p->given_us >= 0) sim_add(&s->handovers, s->now_us - p->given_us);
    if (p->given_us < -1) sim_add(&s->after_death, s->now_us + p->given_us + 2);
    p->given_us = -1;
    c->held_until_us = s->now_us + s->set.hold_us;
    c->dies = s->set.die_every && s->holds % (uint64_t)s->set.die_every == 0;
    if (c->dies) c->held_until_us = s->now_us + (int64_t)sim_random(s, (uint64_t)s->set.hold_us);
    sim_at(s, c->held_until_us, EV_LET_GO, who, c->requests);
    int64_t renew = renews_soon ? 125000 : s->set.lease_us / 3;
    if (s->set.plan.how < PEER_FIXED && renew < s->set.hold_us)
        sim_at(s, s->now_us + renew, EV_RENEW, who, c->requests);
}

void sim_let_go(struct sim *s, uint32_t who, int dies)
{
    struct client *c = &s->client[who];
    struct place *p = &s->place[c->key];
    p->holder = NOBODY;
    p->given_us = !p->wanting ? -1 : dies ? -s->now_us - 2 : s->now_us;
    c->state = dies ? DEAD : GIVES;
    s->deaths += dies != 0;
}

static void lets_go(struct sim *s, uint32_t who)
{
    if (s->client[who].dies) {
        sim_let_go(s, who, 1);
        sim_at(s, s->now_us + BACK_US, EV_WANT, who, 0);
        return;
    }
    sim_let_go(s, who, 0);
    if (s->set.plan.how >= PEER_FIXED)
        sim_sends(s, who, OP_PEER, HF_EV_RELEASE);
    else
        holdfast_gives(s, who);
}

static void happens(struct sim *s, const struct event *e)
{
    struct client *c = &s->client[e->who];
    int peer = s->set.plan.how >= PEER_FIXED;
    switch (e->kind) {
    case EV_ARRIVES: arrives(s, e->who); break;
    case EV_REPLY:
        c->flight = 0;
        if (peer)
            peer_hears(s, e->who);
        else
            holdfast_hears(s, e->who);
        break;
    case EV_LOOK:
        if (e->gen != c->gen) break;
        if (peer)
            sim_sends(s, e->who, OP_PEER, HF_EV_TRY);
        else
            holdfast_looks(s, e->who);
        break;
    case EV_WORD:
        if (e->gen == c->requests) holdfast_word(s, e->who);
        break;
    case EV_LET_GO:
        if (c->state == HOLDS && e->gen == c->requests) lets_go(s, e->who);
        break;
    case EV_RENEW:
        if (c->state == HOLDS && e->gen == c->requests) holdfast_renews(s, e->who);
        break;
    case EV_WANT: wants(s, e->who); break;
    }
}

static void run(struct sim *s)
{
    for (uint32_t i = 0; i < s->set.clients; i++) {
        s->client[i].region = (uint8_t)(i % REGIONS);
        /* All of them come within the first second, or as they think. */
        uint64_t spread = s->set.think_us > 500000 ? 2 * (uint64_t)s->set.think_us : 1000000;
        sim_at(s, (int64_t)sim_random(s, spread), EV_WANT, i, 0);
    }
    while (heap_n) {
        struct event e = next_event();
        s->now_us = e.at_us;
        if (s->now_us >= s->end_us) break;
        happens(s, &e);
    }
    s->now_us = s->end_us;
}

/* ---- what came of it ---- */

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static double quantile_ms(struct samples *of, double q)
{
    if (!of->n) return -1;
    qsort(of->v, of->n, sizeof *of->v, by_value);
    return (double)of->v[(size_t)(q * (double)(of->n - 1) + 0.5)] / 1000;
}

/* Counts the waits that go on at the end: they have lasted that long at least. */
static void count_waiting(struct sim *s)
{
    for (long i = 0; i < s->set.clients; i++)
        if (s->client[i].state == WANTS) sim_add(&s->waits, s->end_us - s->client[i].wanted_us);
}

static void print(struct sim *s)
{
    const struct setup *set = &s->set;
    double seconds = (double)s->end_us / 1e6, holds = s->holds ? (double)s->holds : 1;
    count_waiting(s);
    double median = quantile_ms(&s->waits, 0.5);
    printf("{\"how\": \"%s\", \"clients\": %ld, \"keys\": %ld, \"holds_per_s\": %.1f, "
           "\"handover_p50_ms\": %.1f, \"handover_p99_ms\": %.1f, \"ops_per_s\": %.0f, "
           "\"ops_per_hold\": %.1f, \"conflicts_per_hold\": %.2f, \"wait_p50_ms\": %.1f, "
           "\"wait_p99_ms\": %.1f, \"wait_max_ms\": %.1f, \"death_p50_ms\": %.0f, "
           "\"death_max_ms\": %.0f, \"overlaps\": %llu}\n",
           set->plan.name, set->clients, set->keys, (double)s->holds / seconds,
           quantile_ms(&s->handovers, 0.5), quantile_ms(&s->handovers, 0.99),
           (double)s->ops / seconds, (double)s->ops / holds, (double)s->conflicts / holds, median,
           quantile_ms(&s->waits, 0.99), quantile_ms(&s->waits, 1),
           quantile_ms(&s->after_death, 0.5), quantile_ms(&s->after_death, 1),
           (unsigned long long)s->overlaps);
}

static void prepare(struct sim *s)
{
    const struct setup *set = &s->set;
    s->rng = set->seed;
    s->end_us = set->seconds * 1000000;
    s->client = room((size_t)set->clients, sizeof *s->client);
    s->place = room((size_t)set->keys, sizeof *s->place);
    for (long i = 0; i < set->clients; i++)
        s->client[i].next_heard = s->client[i].prev_heard = NOBODY;
    for (long i = 0; i < set->keys; i++) {
        hf_row_init(&s->place[i].row);
        s->place[i].heard = s->place[i].holder = s->place[i].peer = NOBODY;
        s->place[i].given_us = -1;
    }
    if (!set->zipf) return;
    /* The nth key is wanted 1/n as often as the first. */
    s->zipf = room((size_t)set->keys, sizeof *s->zipf);
    double sum = 0;
    for (long i = 0; i < set->keys; i++) s->zipf[i] = sum += 1 / (double)(i + 1);
    for (long i = 0; i < set->keys; i++) s->zipf[i] /= sum;
}

static long number(const char *name, const char *text)
{
    char *end;
    long n = strtol(text, &end, 10);
    if (end == text || *end || n < 0) die("not a number: ", name);
    return n;
}

int main(int argc, char **argv)
{
    static struct sim s;
    struct setup *set = &s.set;
    long hold = 1, think = 0, lease = 30000, service = 20, seconds = 30, seed = 1;
    struct {
        const char *name;
        long *to;
    } options[] = {
        {"clients", &set->clients}, {"keys", &set->keys},  {"zipf", &set->zipf},
        {"world", &set->world},     {"once", &set->once},  {"die-every", &set->die_every},
        {"hold-ms", &hold},         {"think-ms", &think},  {"lease-ms", &lease},
        {"service-us", &service},   {"seconds", &seconds}, {"seed", &seed}};
    set->clients = 100;
    set->keys = 1;
    set->plan = plans[0];
    for (int i = 1; i < argc; i++) {
        char *value = strchr(argv[i], '=');
        if (!value) die("usage: bench-sim [NAME=VALUE]..., not ", argv[i]);
        *value++ = 0;
        int known = 0;
        for (size_t k = 0; k < sizeof options / sizeof *options; k++)
            if (!strcmp(argv[i], options[k].name)) {
                *options[k].to = number(argv[i], value);
                known = 1;
            }
        for (size_t k = 0; !strcmp(argv[i], "how") && k < sizeof plans / sizeof *plans; k++)
            if (!strcmp(value, plans[k].name)) {
                set->plan = plans[k];
                known = 1;
            }
        if (!known) die("unknown: ", argv[i]);
    }
    if (set->clients < 1 || set->clients > 1000000 || set->keys < 1 || set->keys > 100000)
        die("too many clients or keys, or none", "");
    set->hold_us = hold * 1000;
    set->think_us = think * 1000;
    set->lease_us = lease * 1000;
    set->service_us = service;
    set->seconds = seconds;
    set->seed = (uint64_t)seed;
    prepare(&s);
    run(&s);
    print(&s);
    return 0;
}
