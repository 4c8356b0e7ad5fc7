/*
 * competitor.c - see competitor.h.
 */
#include "competitor.h"

#include "../bench.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MANY = 128, LAST = MANY, NAP_NS = 50000, AWAKE_NS = 200000 };

struct hold {
    int64_t asked_ns, had_ns, gave_ns;
};

struct loop {
    char key[64], path[4096];
    int64_t start, end, hold, spread;
    int me, file; /* -1: there is none */
};

static void sleep_until(int64_t ns)
{
    struct timespec t = {ns / 1000000000, ns % 1000000000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR) continue;
}

static void mark(const struct loop *l, int at, int value)
{
    unsigned char c = (unsigned char)value;
    if (l->file >= 0 && pwrite(l->file, &c, 1, at) != 1) bench_die("pwrite: %s", strerror(errno));
}

/* Does another one want it; or has another one had it after this one? */
static int look(const struct loop *l, int at)
{
    unsigned char all[MANY + 1];
    if (pread(l->file, all, sizeof all, 0) != sizeof all) bench_die("pread: %s", strerror(errno));
    if (at == LAST) return all[LAST] != l->me;
    for (int i = 0; i < MANY; i++)
        if (all[i] && i != l->me) return 1;
    return 0;
}

static void await(const struct loop *l, int at)
{
    while (l->file >= 0 && !look(l, at) && bench_ns() < l->end) sleep_until(bench_ns() + NAP_NS);
}

/* Keeps the key. The competitor is awake, not woken, when it gives it. */
static void keep(const struct loop *l)
{
    int64_t now = bench_ns(), until = now + l->hold + (l->spread ? random() % l->spread : 0);
    if (until - now > AWAKE_NS) sleep_until(until - AWAKE_NS);
    while (bench_ns() < until) continue;
}

static void loop(const struct competitor *as, const struct loop *l)
{
    size_t n = 0, cap = 0;
    struct hold *holds = NULL;
    sleep_until(l->start);
    for (int64_t now; (now = bench_ns()) < l->end; n++) {
        if (n == cap) {
            cap = cap ? 2 * cap : 4096;
            holds = realloc(holds, cap * sizeof *holds);
            if (!holds) bench_die("out of memory");
        }
        mark(l, l->me, 1);
        as->take(l->key);
        int64_t had = bench_ns();
        mark(l, LAST, l->me);
        mark(l, l->me, 0);
        await(l, 0);
        keep(l);
        holds[n] = (struct hold){now, had, bench_ns()};
        if (as->give()) holds[n].gave_ns = 0;
        await(l, LAST);
    }
    for (size_t i = 0; i < n; i++)
        printf("%" PRId64 " %" PRId64 " %" PRId64 "\n", holds[i].asked_ns, holds[i].had_ns,
               holds[i].gave_ns);
    puts("end");
    free(holds);
}

static void obey(const struct competitor *as, const char *line)
{
    struct loop l = {.file = -1};
    if (sscanf(line, "take %63s", l.key) == 1) {
        as->take(l.key);
        printf("had %" PRId64 "\n", bench_ns());
    } else if (sscanf(line, "loop %63s %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64 " %d %4095s",
                      l.key, &l.start, &l.end, &l.hold, &l.spread, &l.me, l.path) == 7) {
        if (l.me < 0 || l.me >= MANY) bench_die("%d: no number of a competitor", l.me);
        if (strcmp(l.path, "-") != 0 && (l.file = open(l.path, O_RDWR | O_CLOEXEC)) < 0)
            bench_die("'%s': %s", l.path, strerror(errno));
        srandom((unsigned)l.me);
        loop(as, &l);
        if (l.file >= 0) close(l.file);
    } else {
        printf("gave %" PRId64 "\n", bench_ns());
        as->give();
    }
}

int compete(const struct competitor *as, const char *where, long lease_ms)
{
    char line[4500];
    as->open(where, lease_ms);
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        obey(as, line);
        fflush(stdout);
    }
    return 0;
}
