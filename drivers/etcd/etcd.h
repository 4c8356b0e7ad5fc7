/*
 * etcd.h - what the files of the etcd driver share. See doc/stores/etcd.md.
 *
 * A key K of ours is these keys of etcd's, all of them beginning with the store's prefix:
 *
 *     K               the row, as JSON
 *     K \t rev        its rev, as text: what a write compares
 *     K \t SESSION    one for each session that the row names, in hex; empty, bound to the lease of
 *                     that number
 *     K \t SESSION .  rarely: by which other lease that key was put back (leases.c)
 *     K \t word       who had it when somebody waited last, for who is woken (words.c)
 *
 * Control characters don't occur in our keys, so that [K, K\n) is K's and nobody else's: one range
 * reads the row and who of it lives, one watch hears of its changes and of its deaths. A write puts
 * row, rev and the writer's own sessions in one transaction, which etcd refuses if the lease of one
 * of these is gone: then it is made without the keys of those that stood in the row with such a
 * session already (swap.c), and no grant, nor place in line, is ever made with one. So a session
 * that the row names, and that isn't there, has ended; whether a holder may still believe in it is
 * told by the terms (leases.c).
 */
#ifndef HF_ETCD_H
#define HF_ETCD_H

#include "http.h"

/* etcd takes 128 operations in a transaction. */
enum { HF_ET_KEY_CAP = HF_KEY_CAP + 1100, HF_ET_WORD_CAP = 128, HF_ET_OPS_CAP = 120 };

struct hf__et_ear;   /* watch.c */
struct hf__et_words; /* words.c */

struct hf_store {
    struct hf__et_http http;
    char prefix[1040];
    size_t n_prefix;
    struct hf__et_ear *ear;
    struct hf__et_words *words;
    pthread_mutex_t mu;
    uint64_t *own; /* sessions made here and not ended, the newest last */
    size_t n_own, own_cap;
};

/* prefix + text + tail, as the gateway takes it. */
json_t *hf__et_key(const hf_store *st, const char *text, const char *tail);

/* leases.c */
int64_t hf__et_number(const json_t *j, const char *name);
int hf__et_lease_make(hf_store *st, int64_t lease_ms, uint64_t *ret, int64_t *ret_ms,
                      int64_t *ret_clock_us, hf_error *err);
int hf__et_lease_keep(hf_store *st, uint64_t session, int64_t *ret_ms, hf_error *err);
int hf__et_lease_left(hf_store *st, uint64_t session, int64_t *ret_ms, hf_error *err);
int hf__et_lease_end(hf_store *st, uint64_t session, hf_error *err);
int hf__et_lease_worn(hf_store *st, uint64_t session);
/* One that nobody keeps, for at least `s` seconds. 0 or HF_UNAVAILABLE. */
int hf__et_lease_unkept(hf_store *st, int64_t s, uint64_t *ret);
/* For how many seconds it was made, at least. */
int64_t hf__et_session_s(uint64_t session);
/* Was it made in that term? If a reply of that term shows that it is gone, it has run out. */
int hf__et_made_in(uint64_t session, int64_t term);

/* Sessions of our own that are known to have ended. */
struct hf__et_dead {
    uint64_t session[HF_ET_OPS_CAP];
    size_t n;
};

/* rows.c */
/* What a swap asks for, in which the keys of the dead aren't put. NULL: out of memory. */
struct hf__flat;
json_t *hf__et_swap_json(hf_store *st, const hf_rowkey *key, uint64_t seen, const hf_row *row,
                         const struct hf__flat *flat, const struct hf__et_dead *dead);
/* A row from an answer of that term. */
int hf__et_take_range(hf_store *st, const json_t *range, int64_t term, const hf_rowkey *key,
                      hf_row *row, const char *what, hf_error *err);
int hf__et_names(const hf_row *row, uint64_t session);
int hf__et_get(hf_store *st, const hf_rowkey *key, hf_row *row, int64_t *ret_clock_us,
               hf_error *err);
int hf__et_scan(hf_store *st, const char *prefix,
                int (*see)(void *arg, const hf_rowkey *, hf_row *), void *arg,
                int64_t *ret_clock_us, hf_error *err);

/* swap.c */
int hf__et_swap(hf_store *st, const hf_rowkey *key, uint64_t seen, const hf_row *row, hf_row *cur,
                int64_t *ret_clock_us, hf_error *err);

/* words.c */
int hf__et_words_open(hf_store *st);
void hf__et_words_close(hf_store *st);
/* What those who wait are to be told of that row; 0: nothing, for nobody waits. */
size_t hf__et_word(const hf_row *row, char to[HF_ET_WORD_CAP]);
/* From now on these keys are waited for, and no others. 0 or HF_NOMEM. */
int hf__et_words_want(struct hf__et_words *w, const hf_rowkey *const *keys, size_t n);
/* Others may have been lost: nothing is known any more. */
void hf__et_words_forget(struct hf__et_words *w);
/* Takes in what a watch tells. How much of it somebody here is to look at. */
uint64_t hf__et_words_hear(const hf_store *st, const json_t *events);
int hf__et_told(hf_store *st, const hf_rowkey *key, hf_row *row);
uint64_t hf__et_rang(hf_store *st, const hf_rowkey *key);

/* watch.c */
int hf__et_ear_open(hf_store *st);
void hf__et_ear_close(hf_store *st);
int hf__et_listen(hf_store *st, uint8_t bell, const hf_rowkey *const *keys, size_t n, hf_ear *ret,
                  hf_error *err);
int hf__et_watch(hf_store *st, uint8_t bell, const hf_ear *ear, int64_t until_us, hf_error *err);
void hf__et_interrupt(hf_store *st, uint8_t bell);

#endif
