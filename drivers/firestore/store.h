/*
 * store.h - firestore: what the driver's files share.
 */
#ifndef HF_FIRESTORE_STORE_H
#define HF_FIRESTORE_STORE_H

#include "api.h"
#include "fields.h"
#include "place.h"

struct hf_store {
    struct hf__fs_api api;
    struct hf__fs_place place;
    char how_to_empty[256];    /* the command that empties the store, for hf__format_refused */
    int64_t no_batch_until_us; /* local time until which batchWrite isn't tried again (atomic) */
    pthread_mutex_t mu;        /* protects seen */
    struct hf__fs_seen *seen;
};

/* hf__fs_remember keeps the update time of the document of that key and rev. hf__fs_recall returns
   it; -1: it isn't known. */
void hf__fs_remember(hf_store *st, const hf_rowkey *key, uint64_t rev, int64_t update_us);
int64_t hf__fs_recall(hf_store *st, const hf_rowkey *key, uint64_t rev);

/* Reads the row of a document. Returns 0 or the code; `what` is for the message. */
int hf__fs_decode(hf_store *st, const json_t *document, const hf_rowkey *key, hf_row *row,
                  const char *what, hf_error *err);
/* Makes one write, in the form that commit and batchWrite take; `row` NULL: a deletion. Returns
   NULL if that fails, with *ret_rc and *ret_why. */
json_t *hf__fs_write(const hf_store *st, const hf_rowkey *key, const hf_row *row, uint64_t seen,
                     int64_t update_us, int *ret_rc, const char **ret_why);
/* Makes a replace by a commit. For many_until_us see struct hf__rest_call. */
int hf__fs_replace_until(hf_store *st, const hf_rowkey *key, uint64_t seen, const hf_row *row,
                         hf_row *cur, int64_t *ret_clock_us, int64_t many_until_us, hf_error *err);

/* list.c */
int hf__fs_scan(hf_store *st, const char *prefix,
                int (*see)(void *arg, const hf_rowkey *, hf_row *), void *arg,
                int64_t *ret_clock_us, hf_error *err);

/* replace_many.c */
int hf__fs_replace_many(hf_store *st, hf_replace *item, size_t n, int64_t until_us);

#endif
