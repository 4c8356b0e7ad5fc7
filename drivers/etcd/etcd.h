/*
 * etcd.h - what the files of the etcd driver share. See doc/stores/etcd.md.
 *
 * A lock's key K is stored as these keys of etcd's, each behind the store's prefix:
 *
 *     K               the row (row.c)
 *     K \t rev        the row's rev, as text: a write compares it
 *     K \t SESSION    one for each session that the row names, in hex; empty, bound to the lease
 *                     whose number the session is
 *     K \t SESSION .  rarely: the other lease under which that key was put back (leases.c)
 *     \t SESSION \t K an inbox, bound to the same lease: the notification for the waiter with that
 *                     session (txn.c, words.c)
 *
 * Keys of locks have no control characters, so all keys in [K, K\n) belong to K. One range request
 * reads the row and shows which of its sessions live. One watch brings its changes, or only the
 * ends of its sessions. One more watch covers all inboxes of a handle, because the numbers of the
 * handle's sessions begin with the same digits.
 *
 * A write puts the row, the rev and the keys of the writer's own sessions in one transaction. etcd
 * refuses it if the lease of one of these sessions is gone. Then the write is made again without
 * the keys of such sessions, provided that they give no party in the row anything new (replace.c):
 * no grant, and no place in the queue, is ever made with a session that has ended. So if the row
 * names a session whose key is missing, that session has ended. Whether its holder may still
 * believe that it holds is found by the raft terms (leases.c).
 */
#ifndef HF_ETCD_H
#define HF_ETCD_H

#include "http.h"
#include "proto.h"

/* HF_ET_OPS_CAP: etcd takes 128 operations in a transaction. */
enum {
    HF_ET_KEY_CAP = HF_KEY_CAP + 1100,
    HF_ET_WORD_CAP = 128,
    HF_ET_OPS_CAP = 120,
    HF_ET_TAIL_CAP = 20
};

struct hf__et_watcher; /* watch.c */
struct hf__et_words;   /* words.c */

/* A note that this handle has put the key of a session beside the row of a key; session 0: an empty
   entry. `inbox`: whether it has put the session's inbox, too; MAYBE if a write that is under way,
   or had no reply, puts or deletes it. */
enum hf__et_inbox_state { HF_ET_NO_INBOX, HF_ET_PUT, HF_ET_MAYBE };
struct hf__et_mark {
    uint64_t hash, session;
    enum hf__et_inbox_state inbox;
};
struct hf__et_marks {
    struct hf__et_mark *at;
    size_t places, n; /* the capacity, a power of two or 0; how many entries are used */
};

/* A session that this handle has made, and the local time until which it may live unless it is
   kept. */
struct hf__et_own {
    uint64_t session;
    int64_t until_us;
};

struct hf_store {
    struct hf__et_http http;
    char prefix[1040];
    size_t n_prefix;
    struct hf__et_watcher *watcher;
    struct hf__et_words *words;
    pthread_mutex_t mu;
    struct hf__et_own *own; /* sessions that haven't ended, the newest last */
    size_t n_own, own_cap;
    struct hf__et_marks marks;
    uint32_t address, count; /* the digits with which the numbers of this handle's sessions begin:
                                see leases.c */
};

/* keys.c */
/* Return the key PREFIX text tail, and the key of an inbox; in the request's memory. */
ProtobufCBinaryData hf__et_key(const hf_store *st, struct hf__et_mem *mem, const char *text,
                               const char *tail);
ProtobufCBinaryData hf__et_inbox(const hf_store *st, struct hf__et_mem *mem, const char *text,
                                 uint64_t session);
/* Fills in a request for the row of that key and all keys beside it. */
void hf__et_range_of(const hf_store *st, struct hf__et_mem *mem, const char *text,
                     HfEt__RangeRequest *ret);

/* leases.c */
/* Writes how the names of this handle's inboxes begin, behind the store's prefix: a tabulator and
   digits. With `behind`: the first name after all of them. */
enum { HF_ET_ADDRESS_CAP = 8 };
void hf__et_address(const hf_store *st, char ret[HF_ET_ADDRESS_CAP], int behind);
void hf__et_sessions_open(hf_store *st);
int hf__et_session_make(hf_store *st, int64_t lease_ms, uint64_t *ret, int64_t *ret_ms,
                        int64_t *ret_clock_us, hf_error *err);
int hf__et_session_keep(hf_store *st, uint64_t session, int64_t until_us, int64_t *ret_ms,
                        hf_error *err);
int hf__et_session_left(hf_store *st, uint64_t session, int64_t *ret_ms, hf_error *err);
int hf__et_session_end(hf_store *st, uint64_t session, hf_error *err);
int hf__et_session_stale(hf_store *st, uint64_t session);
/* Makes a lease of at least `s` seconds that isn't kept alive. Returns 0 or HF_UNAVAILABLE. */
int hf__et_lease_unkept(hf_store *st, int64_t s, uint64_t *ret);
/* Returns the length in seconds with which the session was made, from its number. */
int64_t hf__et_session_s(uint64_t session);
/* Returns 1 if the session was made in that raft term. Then, if a reply of the same term shows that
   the session is gone, its time has run out. */
int hf__et_made_in(uint64_t session, int64_t term);

/* A list of this handle's own sessions; mostly of those that are known to have ended. */
struct hf__et_dead {
    uint64_t session[HF_ET_OPS_CAP];
    size_t n;
};

/* marks.c; the caller holds st->mu */
struct hf__et_mark *hf__et_mark(const struct hf__et_marks *m, uint64_t hash, uint64_t session);
void hf__et_mark_set(hf_store *st, uint64_t hash, uint64_t session, enum hf__et_inbox_state inbox);
void hf__et_mark_drop(struct hf__et_marks *m, uint64_t hash, uint64_t session);

/* ops.c */
/* A transaction and its memory. If there is no memory for a part, mem.failed is set. */
struct hf__et_txn {
    struct hf__et_mem mem;
    HfEt__TxnRequest msg;
};
void hf__et_txn_open(struct hf__et_txn *t);
void hf__et_txn_close(struct hf__et_txn *t);
void hf__et_add_put(struct hf__et_txn *t, ProtobufCBinaryData key, ProtobufCBinaryData value,
                    uint64_t lease);
void hf__et_add_delete(struct hf__et_txn *t, ProtobufCBinaryData key);
/* Deletes all keys from `key` to before `end`. */
void hf__et_add_delete_all(struct hf__et_txn *t, ProtobufCBinaryData key, ProtobufCBinaryData end);
/* Makes the transaction succeed only if the key is absent, or has no lease. */
void hf__et_add_unbound(struct hf__et_txn *t, ProtobufCBinaryData key);
void hf__et_add_compare(struct hf__et_txn *t, const hf_store *st, const hf_rowkey *key,
                        uint64_t seen);
/* Add an empty operation, a put, or a comparison for equality to any transaction, also a nested
   one. NULL: out of memory. */
HfEt__RequestOp *hf__et_op(struct hf__et_mem *mem, HfEt__TxnRequest *to);
HfEt__PutRequest *hf__et_put(struct hf__et_mem *mem, HfEt__TxnRequest *to, ProtobufCBinaryData key,
                             ProtobufCBinaryData value);
HfEt__Compare *hf__et_compare(struct hf__et_mem *mem, HfEt__TxnRequest *to, ProtobufCBinaryData key,
                              HfEt__Compare__Target target);

/* txn.c */
void hf__et_tail(uint64_t session, const char *end, char ret[HF_ET_TAIL_CAP]);
int hf__et_names(const hf_row *row, uint64_t session);
/* Builds the transaction that replaces the row. It puts no keys for the sessions in `dead`.
 *ret_put lists the sessions whose inboxes it puts. The caller closes *t. */
void hf__et_replace_txn(struct hf__et_txn *t, hf_store *st, const hf_rowkey *key, uint64_t seen,
                        const hf_row *row, const struct hf__et_dead *dead,
                        struct hf__et_dead *ret_put);
/* Notes in the marks that the transaction was carried out; if not `certain`, that it may have
   been. */
void hf__et_written(hf_store *st, const hf_rowkey *key, const hf_row *row,
                    const struct hf__et_dead *dead, const struct hf__et_dead *put, int certain);

/* row.c */
/* Returns the row as bytes, to be freed; NULL: out of memory. */
uint8_t *hf__et_row_bytes(const hf_row *row, size_t *ret_len);
/* Reads the row from bytes; `row` is initialized. Returns 0, HF_NOMEM or HF_CORRUPT. */
int hf__et_read_row(const ProtobufCBinaryData *bytes, hf_row *row, const char **ret_why);

/* rows.c */
/* Reads the row from an answer of that term. Puts back the keys of sessions in doubt (leases.c). */
int hf__et_take_range(hf_store *st, const HfEt__RangeResponse *range, int64_t term,
                      const hf_rowkey *key, hf_row *row, const char *what, hf_error *err);
/* Reads a row on which no write will be based; so this doesn't ask for a newer date. */
int hf__et_look(hf_store *st, const hf_rowkey *key, hf_row *row, int64_t *ret_clock_us,
                hf_error *err);
int hf__et_get(hf_store *st, const hf_rowkey *key, hf_row *row, int64_t *ret_clock_us,
               hf_error *err);

/* list.c */
int hf__et_scan(hf_store *st, const char *prefix,
                int (*see)(void *arg, const hf_rowkey *, hf_row *), void *arg,
                int64_t *ret_clock_us, hf_error *err);

/* replace.c */
int hf__et_replace(hf_store *st, const hf_rowkey *key, uint64_t seen, const hf_row *row,
                   hf_row *cur, int64_t *ret_clock_us, hf_error *err);

/* words.c */
int hf__et_words_open(hf_store *st);
void hf__et_words_close(hf_store *st);
/* Writes the notification that describes the row's holder. Returns its length. */
size_t hf__et_word(const hf_row *row, char to[HF_ET_WORD_CAP]);
/* Subscribes to the key, or ends the subscription. Returns 0 or HF_NOMEM. */
int hf__et_words_subscribe(struct hf__et_words *w, const hf_rowkey *key);
void hf__et_words_unsubscribe(struct hf__et_words *w, const hf_rowkey *key);
int hf__et_words_next_event(struct hf__et_words *w, hf_key_event *ret);
/* The number of keys with a subscription; and a call of `see` for each of them. */
size_t hf__et_words_n_wanted(struct hf__et_words *w);
void hf__et_words_each_wanted(struct hf__et_words *w,
                              void (*see)(void *arg, const char *key, int in_line), void *arg);
/* Counts a flush of subscriptions. After an event that isn't a notification, the notifications of
   its key aren't used until some flushes have passed: a wait has to look at the row first. */
void hf__et_words_listen(struct hf__et_words *w);
/* Forgets all notifications, because others may have been lost. */
void hf__et_words_forget(struct hf__et_words *w);
/* Takes in the answer of a watch (`ends`: it brings deletions only). Returns how many events need a
   look by a wait of this handle. */
uint64_t hf__et_words_receive(const hf_store *st, const HfEt__WatchResponse *said, int ends);
/* Returns 1 if this handle has a subscription to the key. */
int hf__et_words_wanted(struct hf__et_words *w, const hf_rowkey *key);
/* Does what `payload` of hf_notify_ops does, by the notifications that have come. */
int hf__et_words_told(struct hf__et_words *w, const hf_rowkey *key, hf_row *row);

/* watch.c */
int hf__et_notify_open(hf_store *st, hf_error *err);
void hf__et_notify_close(hf_store *st);
extern const hf_notify_ops hf__et_notify;

#endif
