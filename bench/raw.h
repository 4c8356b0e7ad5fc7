/*
 * raw.h - a store's own library without anything of ours: what a lock is measured against. A store
 * has a file raw_NAME.c with one of these, and a line in raw.c.
 */
#ifndef BENCH_RAW_H
#define BENCH_RAW_H

#include "../drivers/kit/columns.h"

struct raw {
    const char *scheme;
    /* Connects, makes a row. `durable`: each write has to be on disk when it is answered; it ends
       the program if the store can't do that, or wasn't started so. */
    void (*open)(const char *url, int durable);
    /* Replaces that row, with as much in it as a held lock's, if it is still the one that it was.
     */
    void (*write)(void);
    /* The least that can be asked; NULL: nobody is asked. */
    void (*trip)(void);
};
extern const struct raw *const raws[]; /* NULL at the end */
extern const struct raw raw_etcd, raw_file, raw_firestore, raw_mariadb, raw_mongodb, raw_postgres,
    raw_redis, raw_sqlite;

/* What stands in the row of a plain hold, by its fields (drivers/kit/columns.h); the rev is each
   file's own. Those of JSON are empty. */
extern const char *const raw_value[HF_FIELDS];
extern const char *const raw_name[HF_FIELDS];
extern const enum hf__field_kind raw_kind[HF_FIELDS];

/* ---- raw_http.c, for stores that speak HTTP ---- */

/* POST, or GET if there is no body, on the one connection; the answer's text, and its status. */
const char *raw_http(const char *url, const char *body, const char *header, long *ret_status);

/* ---- raw_grpc.c, for stores that speak gRPC ---- */

void raw_grpc_open(const char *url); /* connects */
/* Where the next message goes. */
unsigned char *raw_grpc_message(size_t len);
/* Calls with it; the answer's message. */
const unsigned char *raw_grpc(const char *path, size_t *ret_len);

#endif
