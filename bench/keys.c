/*
 * keys.c - acquire and release, uncontended, on many keys, and what a key costs in memory.
 *
 *     keys URL KEYS ROUNDS ROUND_MS [DIRECTORY]
 *
 * "uniform": each as often as any other; "zipf": the nth 1/n as often as the first. "one": always
 * the first, in turns with them. With a directory also by LMDB there (lmdb_table.h): "lmdb
 * uniform", "lmdb zipf": a row for each key that stays, as Holdfast's does; "lmdb going": one that
 * is there while the key is held, so that the table is empty but for that. "idle": bytes for each
 * key that was held once and is free, in this process and, for file:, in the file; "held": for each
 * of as many (at most HELD) that are held.
 */
#include "bench.h"
#include "lmdb_table.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NAME_CAP = 32, PICKS = 1 << 20, BATCH = 64, HELD = 100000 };

static hf *store;
static char (*name)[NAME_CAP];
static uint32_t uniform[PICKS], zipf[PICKS], one[PICKS];
static const uint32_t *picks;
static size_t at;

/* Of a sequence that is the same each time. */
static double chance(void)
{
    static uint64_t x = UINT64_C(88172645463325252);
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return (double)(x >> 11) / (double)(UINT64_C(1) << 53);
}

static void pick(long keys)
{
    name = calloc((size_t)keys, sizeof *name);
    if (!name) bench_die("out of memory");
    for (long i = 0; i < keys; i++) snprintf(name[i], NAME_CAP, "seats/%ld", i);
    for (size_t i = 0; i < PICKS; i++) {
        uniform[i] = (uint32_t)(chance() * (double)keys);
        zipf[i] = (uint32_t)pow((double)keys + 1, chance()) - 1;
        if (zipf[i] >= keys) zipf[i] = (uint32_t)keys - 1;
    }
}

static void pair(const char *key)
{
    hf_lock *lock;
    hf_error err;
    bench_ok(hf_acquire(store, key, NULL, &lock, &err), &err);
    bench_ok(hf_release(lock, &err), &err);
}

static void batch(void)
{
    for (int i = 0; i < BATCH; i++) pair(name[picks[at++ % PICKS]]);
}

static struct bench_lmdb *staying, *going;

static void lmdb_batch(void)
{
    for (int i = 0; i < BATCH; i++) bench_lmdb_pair(staying, name[picks[at++ % PICKS]], 1);
}

static void going_batch(void)
{
    for (int i = 0; i < BATCH; i++) bench_lmdb_pair(going, name[picks[at++ % PICKS]], 0);
}

static const char *name_of(long i) { return name[i]; }

static void open_lmdb(const char *dir, long keys)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/going", dir);
    going = bench_lmdb_open(path, 16 << 20);
    snprintf(path, sizeof path, "%s/staying", dir);
    staying = bench_lmdb_open(path, (16 << 20) + (size_t)keys * 512);
    bench_lmdb_fill(staying, name_of, keys);
}

/* Bytes of this process and of the file, if the store is one. */
static double used(const char *url)
{
    char line[256];
    double kb = -1;
    struct stat st;
    FILE *f = fopen("/proc/self/status", "re");
    while (f && fgets(line, sizeof line, f)) {
        /* What is mapped of the file is counted once, as the file. */
        if (!strncmp(line, "RssAnon:", 8)) kb = strtod(line + 8, NULL);
    }
    if (f) fclose(f);
    if (kb < 0) bench_die("/proc/self/status: no RssAnon");
    const char *path = strncmp(url, "file:", 5) ? NULL : url + 5;
    if (path && stat(path, &st)) bench_die("'%s': %s", path, strerror(errno));
    return kb * 1024 + (path ? (double)st.st_blocks * 512 : 0);
}

static void print(const char *what, double bytes)
{
    struct series s = bench_series(what, 1);
    bench_add(&s, bytes);
    bench_print(&s, "B");
}

static void memory(const char *url, long keys)
{
    hf_error err;
    long n = keys < HELD ? keys : HELD;
    hf_lock **held = malloc((size_t)n * sizeof(hf_lock *));
    if (!held) bench_die("out of memory");
    memset(held, 0xff, (size_t)n * sizeof(hf_lock *)); /* ours, not the lock's */
    double before = used(url);
    for (long i = 0; i < keys; i++) pair(name[i]);
    double idle = used(url);
    for (long i = 0; i < n; i++) bench_ok(hf_acquire(store, name[i], NULL, &held[i], &err), &err);
    double full = used(url);
    for (long i = 0; i < n; i++) bench_ok(hf_release(held[i], &err), &err);
    free(held);
    print("idle", (idle - before) / (double)keys);
    print("held", (full - idle) / (double)n);
}

/* The system writes what was used to the disk some time after it was, and a page that was written
   costs more when it is used next. So that this isn't at the beginning of what is measured, it is
   done here: all that there is is on the disk, and was used once since. */
static void settle(long keys, int with_lmdb)
{
    sync();
    for (long i = 0; i < keys; i++) pair(name[i]);
    for (long i = 0; i < keys && with_lmdb; i++) bench_lmdb_pair(staying, name[i], 1);
}

int main(int argc, char **argv)
{
    if (argc != 5 && argc != 6) bench_die("usage: keys URL KEYS ROUNDS ROUND_MS [DIRECTORY]");
    long keys = bench_number(argv[2], 1, 10000000), rounds = bench_number(argv[3], 1, 10000);
    long ms = bench_number(argv[4], 1, 1000);
    struct {
        void (*batch)(void);
        const uint32_t *picks;
        struct series took;
    } way[] = {{batch, one, bench_series("one", (size_t)rounds)},
               {batch, uniform, bench_series("uniform", (size_t)rounds)},
               {batch, zipf, bench_series("zipf", (size_t)rounds)},
               {lmdb_batch, uniform, bench_series("lmdb uniform", (size_t)rounds)},
               {lmdb_batch, zipf, bench_series("lmdb zipf", (size_t)rounds)},
               {going_batch, uniform, bench_series("lmdb going", (size_t)rounds)}};
    size_t ways = argc == 6 ? sizeof way / sizeof *way : 3;
    pick(keys);
    store = bench_open(argv[1]);
    pair(name[0]);
    memory(argv[1], keys);
    if (argc == 6) open_lmdb(argv[5], keys);
    settle(keys, argc == 6);
    for (long r = 0; r < rounds; r++)
        for (size_t i = 0; i < ways; i++) {
            picks = way[i].picks;
            bench_round(way[i].batch, ms, &way[i].took);
        }
    for (size_t i = 1; i < 3; i++) bench_print_ratio(&way[i].took, &way[0].took);
    for (size_t i = 3; i < ways; i++) bench_print_ratio(&way[i == 4 ? 2 : 1].took, &way[i].took);
    for (size_t i = 0; i < ways; i++) {
        for (size_t k = 0; k < way[i].took.n; k++) way[i].took.v[k] *= 1e3 / BATCH;
        bench_print(&way[i].took, "ns");
    }
    if (argc == 6) {
        bench_lmdb_close(staying);
        bench_lmdb_close(going);
    }
    hf_close(store);
    free(name);
    return 0;
}
