/*
 * peers.c - acquire and release by Holdfast, by others, and the limits of the machine.
 *
 * Each peer keeps its state in static variables: a benchmark's process uses it once. Databases run
 * without fsync, as a lock table would: what is compared is the work, not the disk.
 */
#include "bench.h"
#include "lmdb_table.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

enum { MANY = 1000 };

static void nothing(const char *dir) { (void)dir; }
static void nothing_more(void) {}

static const char *path_in(const char *dir, const char *name)
{
    static char path[4096];
    if ((size_t)snprintf(path, sizeof path, "%s/%s", dir, name) >= sizeof path)
        bench_die("'%s': too long", dir);
    return path;
}

/* ---- the limits: what the machine and the C library can do ---- */

static void cas_pairs(long n)
{
    static uint64_t word;
    for (long i = 0; i < n; i++) {
        uint64_t was = 0;
        if (!__atomic_compare_exchange_n(&word, &was, 1, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
            bench_die("cas: not free");
        was = 1;
        if (!__atomic_compare_exchange_n(&word, &was, 0, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
            bench_die("cas: not held");
    }
}

static void mutex_pairs(long n)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    for (long i = 0; i < n; i++) {
        pthread_mutex_lock(&mutex);
        pthread_mutex_unlock(&mutex);
    }
}

static pthread_mutex_t *robust;

static void robust_setup(const char *dir)
{
    (void)dir;
    pthread_mutexattr_t attr;
    robust = bench_shared(sizeof *robust);
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(robust, &attr);
    pthread_mutexattr_destroy(&attr);
}

static void robust_pairs(long n)
{
    for (long i = 0; i < n; i++) {
        pthread_mutex_lock(robust);
        pthread_mutex_unlock(robust);
    }
}

/*
 * The least that a row in shared memory takes which a death at any point leaves whole: a lock word
 * that names its owner, the row (as many bytes as Holdfast's) written beside the current one, a
 * check, a clock, a token, and the word that says which of the two is the current one; twice. It
 * finds no key, checks nothing, tells its caller of no grant, and lets in no second thread.
 */
enum { ROW_WORDS = 25 };

static struct bare {
    _Atomic uint64_t lock, seq;
    struct {
        uint64_t token, check;
        int64_t since_us;
        uint64_t word[ROW_WORDS];
    } row[2];
} *bare;

static void bare_setup(const char *dir)
{
    (void)dir;
    bare = bench_shared(sizeof *bare);
}

static void bare_write(const uint64_t word[ROW_WORDS])
{
    uint64_t none = 0;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME_COARSE, &now);
    int64_t now_us = (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
    if (!atomic_compare_exchange_strong_explicit(&bare->lock, &none, 1, memory_order_acquire,
                                                 memory_order_relaxed))
        bench_die("bare row: not free");
    uint64_t seq = atomic_load_explicit(&bare->seq, memory_order_relaxed);
    uint64_t token = bare->row[seq & 1].token + 1;
    if (token < (uint64_t)now_us) token = (uint64_t)now_us;
    bare->row[~seq & 1].token = token;
    bare->row[~seq & 1].since_us = now_us;
    memcpy(bare->row[~seq & 1].word, word, sizeof bare->row[0].word);
    bare->row[~seq & 1].check = (token ^ (uint64_t)now_us) * UINT64_C(0xbf58476d1ce4e5b9);
    atomic_store_explicit(&bare->seq, seq + 1, memory_order_release);
    atomic_store_explicit(&bare->lock, 0, memory_order_release);
}

static void bare_pairs(long n)
{
    uint64_t held[ROW_WORDS] = {1}, left[ROW_WORDS] = {0};
    for (long i = 0; i < n; i++) {
        held[1] = (uint64_t)i;
        bare_write(held);
        bare_write(left);
    }
}

/* ---- Holdfast ---- */

static hf *mem, *file;
static char many[MANY][16];

static void name_keys(void)
{
    for (int i = 0; i < MANY; i++) snprintf(many[i], sizeof many[i], "seats/%d", i);
}

static void mem_setup(const char *dir)
{
    (void)dir;
    name_keys();
    mem = bench_open("mem:");
}

static void file_setup(const char *dir)
{
    char url[4200];
    name_keys();
    snprintf(url, sizeof url, "file:%s", path_in(dir, "pairs.holdfast"));
    file = bench_open(url);
}

static void pair(hf *store, const char *key)
{
    hf_lock *lock;
    hf_error err;
    bench_ok(hf_acquire(store, key, NULL, &lock, &err), &err);
    bench_ok(hf_release(lock, &err), &err);
}

static void mem_pairs(long n)
{
    for (long i = 0; i < n; i++) pair(mem, many[0]);
}

static void mem_many_pairs(long n)
{
    for (long i = 0; i < n; i++) pair(mem, many[i % MANY]);
}

static void file_pairs(long n)
{
    for (long i = 0; i < n; i++) pair(file, many[0]);
}

static void file_many_pairs(long n)
{
    for (long i = 0; i < n; i++) pair(file, many[i % MANY]);
}

static void mem_finish(void) { hf_close(mem); }
static void file_finish(void) { hf_close(file); }

/* ---- flock(2) on a descriptor that stays open ---- */

static int flocked = -1;

static void flock_setup(const char *dir)
{
    flocked = open(path_in(dir, "flock"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (flocked < 0) bench_die("flock: open: %s", strerror(errno));
}

static void flock_pairs(long n)
{
    for (long i = 0; i < n; i++)
        if (flock(flocked, LOCK_EX) || flock(flocked, LOCK_UN))
            bench_die("flock: %s", strerror(errno));
}

static void flock_finish(void) { close(flocked); }

/* ---- fcntl: a byte of a file, locked for the open descriptor ---- */

static void ofd(short type)
{
    struct flock byte = {.l_type = type, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
    if (fcntl(flocked, F_OFD_SETLKW, &byte)) bench_die("fcntl: %s", strerror(errno));
}

static void ofd_pairs(long n)
{
    for (long i = 0; i < n; i++) {
        ofd(F_WRLCK);
        ofd(F_UNLCK);
    }
}

/* ---- LMDB: a key put if it isn't there, and deleted, each in a transaction ---- */

static struct bench_lmdb *lmdb;

static void lmdb_setup(const char *dir) { lmdb = bench_lmdb_open(path_in(dir, "lmdb"), 16 << 20); }

static void lmdb_pairs(long n)
{
    for (long i = 0; i < n; i++) bench_lmdb_pair(lmdb, "seats/0", 0);
}

static void lmdb_finish(void) { bench_lmdb_close(lmdb); }

/* ---- SQLite: a row inserted and deleted, prepared statements ---- */

static sqlite3 *db;
static sqlite3_stmt *insert, *delete;

static void sqlite_ok(int rc)
{
    if (rc != SQLITE_OK && rc != SQLITE_DONE) bench_die("sqlite: %s", sqlite3_errmsg(db));
}

static void sqlite_setup(const char *dir)
{
    sqlite_ok(sqlite3_open(path_in(dir, "pairs.db"), &db));
    sqlite_ok(sqlite3_exec(db,
                           "PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF;"
                           "CREATE TABLE locks (key TEXT PRIMARY KEY, owner TEXT) WITHOUT ROWID",
                           NULL, NULL, NULL));
    sqlite_ok(sqlite3_prepare_v2(db, "INSERT INTO locks VALUES ('seats/0', 'somebody')", -1,
                                 &insert, NULL));
    sqlite_ok(sqlite3_prepare_v2(
        db, "DELETE FROM locks WHERE key = 'seats/0' AND owner = 'somebody'", -1, &delete, NULL));
}

static void sqlite_pairs(long n)
{
    for (long i = 0; i < n; i++) {
        sqlite_ok(sqlite3_step(insert));
        sqlite_ok(sqlite3_reset(insert));
        sqlite_ok(sqlite3_step(delete));
        sqlite_ok(sqlite3_reset(delete));
    }
}

static void sqlite_finish(void)
{
    sqlite3_finalize(insert);
    sqlite3_finalize(delete);
    sqlite3_close(db);
}

const struct peer bench_peers[] = {
    {"cas", nothing, cas_pairs, nothing_more},
    {"mutex", nothing, mutex_pairs, nothing_more},
    {"mem", mem_setup, mem_pairs, nothing_more},
    {"mem, 1000 keys", nothing, mem_many_pairs, mem_finish},
    {"robust mutex", robust_setup, robust_pairs, nothing_more},
    {"bare row", bare_setup, bare_pairs, nothing_more},
    {"file", file_setup, file_pairs, nothing_more},
    {"flock", flock_setup, flock_pairs, nothing_more},
    {"ofd", nothing, ofd_pairs, flock_finish},
    {"file, 1000 keys", nothing, file_many_pairs, file_finish},
    {"lmdb", lmdb_setup, lmdb_pairs, lmdb_finish},
    {"sqlite", sqlite_setup, sqlite_pairs, sqlite_finish},
};
const size_t bench_peers_n = sizeof bench_peers / sizeof *bench_peers;
