/*
 * lmdb_table.c - see lmdb_table.h.
 */
#include "lmdb_table.h"

#include "bench.h"

#include <errno.h>
#include <lmdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* As many bytes as an owner and a token have. */
static char owner[24] = "somebody";

struct bench_lmdb {
    MDB_env *env;
    MDB_dbi dbi;
};

static void ok(int rc)
{
    if (rc) bench_die("lmdb: %s", mdb_strerror(rc));
}

static MDB_txn *begin(struct bench_lmdb *l)
{
    MDB_txn *txn;
    ok(mdb_txn_begin(l->env, NULL, 0, &txn));
    return txn;
}

static MDB_val text(const char *key) { return (MDB_val){strlen(key) + 1, (void *)(uintptr_t)key}; }

static void put(struct bench_lmdb *l, MDB_txn *txn, const char *name, unsigned flags)
{
    MDB_val key = text(name), value = {sizeof owner, owner};
    ok(mdb_put(txn, l->dbi, &key, &value, flags));
}

struct bench_lmdb *bench_lmdb_open(const char *path, size_t size)
{
    struct bench_lmdb *l = malloc(sizeof *l);
    if (!l) bench_die("out of memory");
    if (mkdir(path, 0700) && errno != EEXIST) bench_die("lmdb: mkdir: %s", strerror(errno));
    ok(mdb_env_create(&l->env));
    ok(mdb_env_set_mapsize(l->env, size));
    ok(mdb_env_open(l->env, path, MDB_NOSYNC | MDB_WRITEMAP, 0600));
    MDB_txn *txn = begin(l);
    ok(mdb_dbi_open(txn, NULL, 0, &l->dbi));
    ok(mdb_txn_commit(txn));
    return l;
}

void bench_lmdb_pair(struct bench_lmdb *l, const char *name, int stays)
{
    MDB_txn *txn = begin(l);
    put(l, txn, name, stays ? 0 : MDB_NOOVERWRITE);
    ok(mdb_txn_commit(txn));
    txn = begin(l);
    if (stays) {
        put(l, txn, name, 0);
    } else {
        MDB_val key = text(name);
        ok(mdb_del(txn, l->dbi, &key, NULL));
    }
    ok(mdb_txn_commit(txn));
}

void bench_lmdb_fill(struct bench_lmdb *l, const char *(*key)(long i), long n)
{
    MDB_txn *txn = begin(l);
    for (long i = 0; i < n; i++) put(l, txn, key(i), 0);
    ok(mdb_txn_commit(txn));
}

void bench_lmdb_close(struct bench_lmdb *l)
{
    mdb_env_close(l->env);
    free(l);
}
