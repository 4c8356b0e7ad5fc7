/*
 * fairness.c - contended grants with cancellations and kills: the order of the queue is kept, and
 * every survivor is served.
 *
 *     fairness URL [GRANTS [SEED]]
 *
 * Worker processes compete for a few keys. Every request gets a number when it is made (`made`)
 * and, where it can be known, another once it stands in the queue (`stood`). If a stood before b
 * was made, then a's token must be smaller than b's. About 30 % of the requests are given
 * up (twice as many try to: some are granted first), 5 % end with their process killed, while
 * waiting or while holding.
 */
#include "handle.h"
#include "scratch.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WORKERS = 12, KEYS = 3, KILL_PERMILLE = 62, CANCEL_PERCENT = 60, STUCK_S = 600 };

enum ending { OPEN, GRANTED, GIVEN_UP, KILLED, FAILED };

struct request {
    uint64_t made, stood, token; /* stood: UINT64_MAX if not known */
    uint32_t key, ending;
};

static struct shared {
    uint64_t numbers, requests, granted, given_up, killed_waiting, killed_holding;
    uint64_t holder[KEYS], last_token[KEYS];
    uint32_t overlaps, backwards, failed, stop;
    char why[256];
    uint64_t cap;
    struct request request[];
} *s;

static const char *url;

static uint64_t next_number(uint64_t *n) { return __atomic_fetch_add(n, 1, __ATOMIC_SEQ_CST); }

static uint64_t roll(uint64_t *seed) /* splitmix64 */
{
    uint64_t z = *seed += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static void note_failure(struct request *r, int code, const hf_error *err)
{
    r->ending = FAILED;
    if (!__atomic_exchange_n(&s->failed, 1, __ATOMIC_SEQ_CST))
        snprintf(s->why, sizeof s->why, "%s: %.200s", hf_code_name(code), err->text);
}

static void die(void)
{
    kill(getpid(), SIGKILL);
    for (;;) pause();
}

/* Sleeps. sched_yield won't do: where several processes do nothing else, some kernels (Linux 6.18)
   let no other process run for minutes. */
static void nap(void)
{
    const struct timespec t = {0, 20000};
    nanosleep(&t, NULL);
}

/* Plays a holder, which proves that it is alone and that its token is the greatest. */
static void hold(struct request *r, hf_lock *lock, uint64_t *seed, int dies)
{
    uint64_t me = (uint64_t)getpid();
    r->token = hf_token(lock);
    r->ending = GRANTED;
    if (__atomic_exchange_n(&s->holder[r->key], me, __ATOMIC_SEQ_CST))
        __atomic_fetch_add(&s->overlaps, 1, __ATOMIC_SEQ_CST);
    if (r->token <= s->last_token[r->key]) __atomic_fetch_add(&s->backwards, 1, __ATOMIC_SEQ_CST);
    s->last_token[r->key] = r->token;
    if (roll(seed) % 16 == 0) nap();
    if (__atomic_exchange_n(&s->holder[r->key], 0, __ATOMIC_SEQ_CST) != me)
        __atomic_fetch_add(&s->overlaps, 1, __ATOMIC_SEQ_CST);
    next_number(&s->granted);
    if (dies) {
        next_number(&s->killed_holding);
        die();
    }
    hf_error err;
    int rc = hf_release(lock, &err);
    if (rc) note_failure(r, rc, &err);
}

struct told {
    int code, done;
    hf_lock *lock;
    hf_error err;
};

static void on_told(void *arg, int code, hf_lock *lock, const hf_error *err)
{
    struct told *t = arg;
    t->code = code;
    t->lock = lock;
    if (err) t->err = *err;
    __atomic_store_n(&t->done, 1, __ATOMIC_RELEASE);
}

/* A request whose place in the queue is seen. */
static void ask_async(hf *h, const char *key, struct request *r, uint64_t *seed, int kills,
                      int gives_up)
{
    struct told t = {0};
    hf_wait *w;
    int waiting_kill = kills && roll(seed) % 2;
    int rc = hf_acquire_start(h, key, NULL, on_told, &t, &w, &t.err);
    if (rc) {
        note_failure(r, rc, &t.err);
        return;
    }
    /* The wait is QUEUED once the store has recorded it. */
    while (__atomic_load_n(&w->state, __ATOMIC_ACQUIRE) < HF_WAIT_QUEUED &&
           !__atomic_load_n(&t.done, __ATOMIC_ACQUIRE))
        nap();
    if (!__atomic_load_n(&t.done, __ATOMIC_ACQUIRE)) r->stood = next_number(&s->numbers);
    if (waiting_kill) {
        r->ending = KILLED;
        next_number(&s->killed_waiting);
        die();
    }
    if (gives_up) hf_wait_cancel(w);
    while (!__atomic_load_n(&t.done, __ATOMIC_ACQUIRE)) nap();
    if (!t.code) {
        hold(r, t.lock, seed, kills);
    } else if (t.code == HF_CANCELED && gives_up) {
        r->ending = GIVEN_UP;
        next_number(&s->given_up);
    } else {
        note_failure(r, t.code, &t.err);
    }
    hf_wait_free(w);
}

static void ask_sync(hf *h, const char *key, struct request *r, uint64_t *seed, int kills,
                     int gives_up)
{
    hf_options o = HF_OPTIONS_INIT;
    hf_lock *lock;
    hf_error err;
    if (gives_up) o.wait_ms = (int64_t)(roll(seed) % 2);
    int rc = hf_acquire(h, key, &o, &lock, &err);
    if (!rc) {
        hold(r, lock, seed, kills);
    } else if ((rc == HF_TIMEOUT || rc == HF_BUSY) && gives_up) {
        r->ending = GIVEN_UP;
        next_number(&s->given_up);
    } else {
        note_failure(r, rc, &err);
    }
}

static void work(uint64_t seed)
{
    static const char *const keys[KEYS] = {"fair/a", "fair/b", "fair/c"};
    hf *h;
    hf_error err;
    hf_open_options o = HF_OPEN_OPTIONS_INIT;
    o.io_timeout_ms = 60000; /* a process that stands still in a write isn't wrong */
    if (hf_open(url, &o, &h, &err)) {
        fprintf(stderr, "%s\n", err.text);
        _exit(2);
    }
    while (!__atomic_load_n(&s->stop, __ATOMIC_RELAXED)) {
        uint64_t i = next_number(&s->requests);
        if (i >= s->cap) break;
        struct request *r = &s->request[i];
        int kills = roll(&seed) % 1000 < KILL_PERMILLE;
        int gives_up = roll(&seed) % 100 < CANCEL_PERCENT;
        r->key = (uint32_t)(roll(&seed) % KEYS);
        r->stood = UINT64_MAX;
        r->made = next_number(&s->numbers);
        if (roll(&seed) % 2)
            ask_async(h, keys[r->key], r, &seed, kills, gives_up);
        else
            ask_sync(h, keys[r->key], r, &seed, kills, gives_up);
    }
    hf_close(h);
    _exit(0);
}

static pid_t start(uint64_t seed)
{
    pid_t pid = fork();
    if (!pid) work(seed);
    return pid;
}

static int by_token(const void *a, const void *b)
{
    uint64_t x = ((const struct request *)a)->token, y = ((const struct request *)b)->token;
    return x < y ? -1 : x > y;
}

/* Counts pairs in the wrong order: a request with a later token stood in the queue before this one
   was even made. */
static uint64_t out_of_order(uint32_t key, uint64_t *ret_pairs)
{
    uint64_t n = 0, bad = 0, first = UINT64_MAX;
    struct request *g = calloc(s->cap, sizeof *g);
    for (uint64_t i = 0; i < s->requests && i < s->cap; i++)
        if (s->request[i].token && s->request[i].key == key) g[n++] = s->request[i];
    qsort(g, n, sizeof *g, by_token);
    for (uint64_t i = n; i-- > 0;) {
        if (first < g[i].made) bad++;
        if (first != UINT64_MAX) ++*ret_pairs;
        if (g[i].stood < first) first = g[i].stood;
        if (i && g[i].token == g[i - 1].token) bad++;
    }
    free(g);
    return bad;
}

__attribute__((format(printf, 3, 4))) static int point(int number, int ok, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    printf("%s %d - ", ok ? "ok" : "not ok", number);
    vprintf(format, args);
    printf("\n");
    va_end(args);
    return !ok;
}

static int report(uint64_t target, int stuck)
{
    uint64_t bad = 0, pairs = 0, open = 0;
    for (uint32_t k = 0; k < KEYS; k++) bad += out_of_order(k, &pairs);
    for (uint64_t i = 0; i < s->requests && i < s->cap; i++)
        open += s->request[i].made && s->request[i].ending == OPEN;
    int failures = 0;
    printf("1..6\n");
    failures += point(1, !stuck && s->granted >= target, "%llu grants, nobody stuck",
                      (unsigned long long)s->granted);
    failures += point(2, !s->overlaps, "%u overlapping holders", s->overlaps);
    failures += point(3, !s->backwards, "%u tokens that went back", s->backwards);
    failures += point(4, !bad && pairs > target / 4, "%llu out of order among %llu ordered grants",
                      (unsigned long long)bad, (unsigned long long)pairs);
    failures += point(5, !s->failed, "no request failed %s", s->why);
    /* Cancellations that came too late count as grants; kills happen in one of two ways. */
    failures += point(
        6, !open && s->given_up * 100 > s->requests * 25 && s->killed_holding && s->killed_waiting,
        "of %llu requests %llu given up, %llu killed waiting, %llu killed holding, "
        "%llu without an end",
        (unsigned long long)s->requests, (unsigned long long)s->given_up,
        (unsigned long long)s->killed_waiting, (unsigned long long)s->killed_holding,
        (unsigned long long)open);
    return failures != 0;
}

int main(int argc, char **argv)
{
    if (argc < 2) return 64;
    url = scratch(argv[1]);
    if (!url) return 71;
    uint64_t target = argc > 2 ? strtoull(argv[2], NULL, 10) : 100000;
    uint64_t seed = argc > 3 ? strtoull(argv[3], NULL, 10) : (uint64_t)time(NULL);
    uint64_t cap = target * 4 + 10000;
    printf("# seed %llu: replay with %s %s %llu %llu\n", (unsigned long long)seed, argv[0], url,
           (unsigned long long)target, (unsigned long long)seed);
    s = mmap(NULL, sizeof *s + cap * sizeof(struct request), PROT_READ | PROT_WRITE,
             MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (s == MAP_FAILED) return 71;
    s->cap = cap;
    s->numbers = 1;
    fflush(stdout);
    int live = 0, stuck = 0;
    uint64_t before = 0;
    time_t moved = time(NULL);
    pid_t pids[WORKERS];
    for (; live < WORKERS; live++) pids[live] = start(roll(&seed));
    while (live) {
        int status;
        pid_t pid = waitpid(-1, &status, WNOHANG);
        if (pid > 0) {
            int i = 0;
            while (pids[i] != pid) i++;
            if (WIFSIGNALED(status) && !s->stop) {
                pids[i] = start(roll(&seed));
            } else {
                pids[i] = 0;
                live--;
            }
            continue;
        }
        struct timespec nap = {0, 500000};
        nanosleep(&nap, NULL);
        if (s->granted >= target || s->failed) s->stop = 1;
        if (s->granted != before) moved = time(NULL);
        before = s->granted;
        if (time(NULL) - moved > STUCK_S) {
            stuck = 1;
            for (int i = 0; i < WORKERS; i++)
                if (pids[i]) kill(pids[i], SIGKILL);
        }
    }
    return report(target, stuck);
}
