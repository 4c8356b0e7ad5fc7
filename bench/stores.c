/*
 * stores.c - a store with a server: what a lock costs there, beside a bare write.
 *
 *     stores URL ROUNDS ROUND_MS HANDOVERS [WARM_MS]     (ROUNDS or HANDOVERS 0: not these)
 *
 * "acquire+release" by a handle that knows the row, and "unseen", of a key that is new each time,
 * in turns with "write": the driver replaces such a row once, held and free in turn, as acquire and
 * release do; and, where raw_NAME.c has it, with "raw", the same conditional write by the store's
 * library alone, and "ping", the least that it can ask. With $HOLDFAST_TEST_DURABLE (the server is
 * started so, see tests/servers) the raw write is on disk when it is answered, and there is "once",
 * too: a new event is begun and marked as done. "a / b": of each round, or of each handover and the
 * trip before it, which what disturbs the machine for longer doesn't change. "handover": from one
 * process's giving up to the other's having it. "trip": just before, the giver releases a key that
 * nobody wants: the same write by the same connection, which is as warm.
 * Before the rounds the pair is done for WARM_MS, and all else for as long.
 */
#include "bench.h"
#include "raw.h"

#include "drivers.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SETTLE_MS = 5, IO_TIMEOUT_MS = 5000 };

static const char *url;

static void nap(long ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&t, &t) && errno == EINTR) continue;
}

/* ---- a write ---- */

static struct {
    const hf_driver *drv;
    hf_store *st;
    hf_caps caps;
    hf_rowkey key;
    hf_row row;
    uint64_t session; /* the holder's, where the store ends leases itself */
    char name[64];
} one;

/* Keys that nobody has used before: `used` of them by now. */
static struct {
    unsigned used, forgotten;
    char key[64];
    hf_row row;
} unseen;

static void one_write(void)
{
    hf_error err;
    int64_t clock_us = 0;
    uint64_t seen = one.row.rev++;
    one.row.token = one.row.party[0].token = one.row.rev;
    one.row.n_holders = !one.row.n_holders;
    bench_ok(one.drv->replace(one.st, &one.key, seen, &one.row, NULL, &clock_us, &err), &err);
}

static void open_one(const char *name)
{
    hf_error err;
    hf_url parsed;
    int64_t clock_us = 0, ms;
    bench_ok(hf_url_parse(url, &parsed, &err), &err);
    one.drv = hf__driver(parsed.scheme, &err);
    if (!one.drv) bench_die("%s", err.text);
    bench_ok(hf__open_store(one.drv, &parsed, IO_TIMEOUT_MS, &one.st, &one.caps, &err), &err);
    snprintf(one.name, sizeof one.name, "%s/%d", name, (int)getpid());
    bench_ok(hf_key_make(one.name, &one.key, &err), &err);
    hf_row_init(&one.row);
    hf_row_init(&unseen.row);
    bench_ok(one.drv->get(one.st, &one.key, &one.row, &clock_us, &err), &err);
    hf_party *p = &one.row.party[0];
    memset(p, 0, sizeof *p);
    p->id[0] = 1;
    p->lease_ms = 30000;
    p->expires_us = INT64_C(1) << 52;
    if (one.caps.sessions) {
        bench_ok(one.caps.sessions->make(one.st, p->lease_ms, &one.session, &ms, &clock_us, &err),
                 &err);
        p->session = one.session;
        p->expires_us = 0;
    }
    p->owner_len = (uint8_t)snprintf(p->owner, sizeof p->owner, "%032d", 7);
    p->note_len = (uint8_t)snprintf(p->note, sizeof p->note, "host=h pid=1 user=u command=bench");
    one.row.n_holders = 1;
    one.row.rev = one.row.token = (uint64_t)(clock_us > 0 ? clock_us : 1);
    uint64_t first = one.row.rev;
    p->token = first;
    bench_ok(one.drv->replace(one.st, &one.key, 0, &one.row, NULL, &clock_us, &err), &err);
}

static void close_one(void)
{
    int64_t clock_us;
    one.drv->replace(one.st, &one.key, one.row.rev, NULL, NULL, &clock_us, NULL);
    if (one.session) one.caps.sessions->end(one.st, one.session, NULL);
    one.drv->close(one.st);
}

/* ---- in turns ---- */

static hf *store;

static void one_pair(void)
{
    hf_error err;
    hf_lock *lock;
    bench_ok(hf_acquire(store, "pairs", NULL, &lock, &err), &err);
    bench_ok(hf_release(lock, &err), &err);
}

static const struct raw *find_raw(void)
{
    for (size_t i = 0; raws[i]; i++)
        if (!strncmp(url, raws[i]->scheme, strlen(raws[i]->scheme)) &&
            url[strlen(raws[i]->scheme)] == ':')
            return raws[i];
    return NULL;
}

static void one_event(void)
{
    static unsigned n;
    hf_error err;
    hf_once once;
    char key[64];
    snprintf(key, sizeof key, "events/%d/%u", (int)getpid(), n++);
    bench_ok(hf_once_begin(store, key, 60000, NULL, &once, &err), &err);
    if (!once.lock) bench_die("'%s': it has been", key);
    bench_ok(hf_once_finish(once.lock, NULL, 60000, &err), &err);
}

static const char *unseen_key(unsigned n)
{
    snprintf(unseen.key, sizeof unseen.key, "unseen/%d/%u", (int)getpid(), n);
    return unseen.key;
}

/* Of a key that nobody has used yet. */
static void one_unseen(void)
{
    hf_error err;
    hf_lock *lock;
    bench_ok(hf_acquire(store, unseen_key(unseen.used++), NULL, &lock, &err), &err);
    bench_ok(hf_release(lock, &err), &err);
}

/* Deletes the rows of the keys used so far: the stand-in for MongoDB writes the more slowly the
   more rows it has. */
static void forget_unseen(void)
{
    for (; unseen.forgotten < unseen.used; unseen.forgotten++) {
        hf_error err;
        hf_rowkey key;
        int64_t clock_us;
        bench_ok(hf_key_make(unseen_key(unseen.forgotten), &key, &err), &err);
        bench_ok(one.drv->get(one.st, &key, &unseen.row, &clock_us, &err), &err);
        bench_ok(one.drv->replace(one.st, &key, unseen.row.rev, NULL, NULL, &clock_us, &err), &err);
    }
}

enum { PAIR, UNSEEN, WRITE, ONCE, RAW, PING, WORK };

/* So that a server's compiler has done its work. */
static void warm(void (*const work[WORK])(void), long ms)
{
    int64_t start = bench_ns(), half = ms * 1000000;
    while (bench_ns() - start < half) work[PAIR]();
    while (bench_ns() - start < 2 * half)
        for (int i = PAIR + 1; i < WORK; i++) {
            if (work[i]) work[i]();
            forget_unseen();
        }
}

static void in_turns(long rounds, long ms, long warm_ms)
{
    static const char *const name[WORK] = {
        "acquire+release", "unseen", "write", "once", "raw", "ping"};
    static const int compared[][2] = {{PAIR, WRITE}, {PAIR, RAW}, {UNSEEN, WRITE}, {UNSEEN, RAW},
                                      {WRITE, RAW},  {ONCE, RAW}, {RAW, PING}};
    const struct raw *raw = find_raw();
    int durable = getenv("HOLDFAST_TEST_DURABLE") != NULL;
    void (*const work[WORK])(void) = {one_pair,
                                      one_unseen,
                                      one_write,
                                      durable ? one_event : NULL,
                                      raw ? raw->write : NULL,
                                      raw ? raw->trip : NULL};
    struct series took[WORK];
    store = bench_open(url);
    open_one("write");
    if (raw) raw->open(url, durable);
    one_pair();
    warm(work, warm_ms);
    for (int i = 0; i < WORK; i++) took[i] = bench_series(name[i], (size_t)rounds);
    for (long r = 0; r < rounds; r++)
        for (int i = 0; i < WORK; i++) {
            if (work[i]) bench_round(work[i], ms, &took[i]);
            forget_unseen();
        }
    close_one();
    hf_close(store);
    for (size_t i = 0; i < sizeof compared / sizeof *compared; i++) {
        int a = compared[i][0], b = compared[i][1];
        if (work[a] && work[b]) bench_print_ratio(&took[a], &took[b]);
    }
    for (int i = 0; i < WORK; i++)
        if (work[i]) bench_print(&took[i], "us");
}

/* ---- from one process to another ---- */

enum { MAX_HANDOVERS = 10000 };

static struct shared {
    int64_t given_ns;
    uint32_t first; /* number 0 has had it */
    uint32_t n, n_trips;
    double took[MAX_HANDOVERS], trip[MAX_HANDOVERS];
} *shared;

static void note_handover(double us)
{
    shared->took[shared->n] = us;
    __atomic_store_n(&shared->n, shared->n + 1, __ATOMIC_RELEASE);
}

static void alternate(int me, long n)
{
    hf_error err;
    hf *mine = bench_open(url), *aside = bench_open(url);
    const char *trip = me ? "trip/1" : "trip/0";
    if (me == 1)
        while (!__atomic_load_n(&shared->first, __ATOMIC_ACQUIRE)) nap(1);
    for (long i = 1; i <= n; i++) {
        hf_lock *lock, *other;
        bench_ok(hf_acquire(mine, "handover", NULL, &lock, &err), &err);
        int64_t now = bench_ns();
        if (me == 0 && i == 1)
            __atomic_store_n(&shared->first, 1, __ATOMIC_RELEASE);
        else
            note_handover((double)(now - shared->given_ns) / 1e3);
        if (me == 0 || i < n) bench_await_waiters(mine, "handover", 1);
        /* Another one had it last, as the one that is given on: between two writes of his own he
           might write less. */
        bench_ok(hf_acquire(aside, trip, NULL, &other, &err), &err);
        bench_ok(hf_release(other, &err), &err);
        nap(SETTLE_MS);
        bench_ok(hf_acquire(mine, trip, NULL, &other, &err), &err);
        int64_t start = bench_ns();
        bench_ok(hf_release(other, &err), &err);
        now = bench_ns();
        shared->trip[shared->n_trips++] = (double)(now - start) / 1e3;
        uint32_t had = shared->n;
        shared->given_ns = bench_ns();
        bench_ok(hf_release(lock, &err), &err);
        /* Wanting it again at once would be another measurement. */
        while (__atomic_load_n(&shared->n, __ATOMIC_ACQUIRE) == had && (me == 0 || i < n)) nap(1);
    }
    hf_close(mine);
    hf_close(aside);
    _exit(0);
}

static void handover(long n)
{
    pid_t child[2];
    shared = bench_shared(sizeof *shared);
    struct series took = bench_series("handover", MAX_HANDOVERS),
                  trip = bench_series("trip", MAX_HANDOVERS);
    fflush(stdout);
    for (int me = 0; me < 2; me++) {
        child[me] = fork();
        if (child[me] < 0) bench_die("fork: %s", strerror(errno));
        if (!child[me]) alternate(me, n);
    }
    for (int me = 0; me < 2; me++) bench_reap(child[me], 0);
    for (uint32_t i = 0; i < shared->n; i++) bench_add(&took, shared->took[i]);
    for (uint32_t i = 0; i < shared->n_trips; i++) bench_add(&trip, shared->trip[i]);
    if (took.n > trip.n) bench_die("a handover without a trip before it");
    trip.n = took.n; /* the last one has nobody to give it to */
    bench_print_ratio(&took, &trip);
    bench_print(&took, "us");
    bench_print(&trip, "us");
}

int main(int argc, char **argv)
{
    if (argc != 5 && argc != 6) bench_die("usage: stores URL ROUNDS ROUND_MS HANDOVERS [WARM_MS]");
    url = argv[1];
    long rounds = bench_number(argv[2], 0, 10000), ms = bench_number(argv[3], 1, 1000);
    long handovers = bench_number(argv[4], 0, MAX_HANDOVERS / 2);
    if (handovers) handover(handovers); /* forks: while there are no threads */
    if (rounds) in_turns(rounds, ms, argc > 5 ? bench_number(argv[5], 0, 60000) : 0);
    return 0;
}
