/*
 * lmdb_table.h - locks as one would keep them in LMDB: a table of keys and owners. Nothing waits
 * for the disk.
 */
#ifndef BENCH_LMDB_TABLE_H
#define BENCH_LMDB_TABLE_H

#include <stddef.h>

struct bench_lmdb;

/* A directory, which is made; of at most so many bytes. What fails ends the program. */
struct bench_lmdb *bench_lmdb_open(const char *path, size_t size);
/* The key is put, and taken away, in a transaction each; if its row `stays` (a number in it grows,
   say), it is written twice instead. */
void bench_lmdb_pair(struct bench_lmdb *l, const char *key, int stays);
/* Rows for n keys, in one transaction. */
void bench_lmdb_fill(struct bench_lmdb *l, const char *(*key)(long i), long n);
void bench_lmdb_close(struct bench_lmdb *l);

#endif
