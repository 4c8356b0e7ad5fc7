/*
 * store.h - nats: what the driver's files share.
 */
#ifndef HF_NATS_STORE_H
#define HF_NATS_STORE_H

#include "addresses.h"
#include "kit/document.h"
#include "kit/links.h"
#include "kit/subscriber.h"
#include "link.h"

/* Room for the subject of the longest key, and for a request for its row. */
enum { HF_NATS_SUBJECT = 3 * HF_KEY_CAP + HF_NATS_NAME + 8, HF_NATS_QUERY = HF_NATS_SUBJECT + 32 };

/* The header of a write that lists the waiters which the write concerns: see addresses.h. */
#define HF_NATS_ADDRESSES "Holdfast-Concerns"

/* notify.c. The connection by which a handle is notified. */
struct hf__nats_notify {
    struct hf__sub sub;
    struct hf__nats_link link; /* used for notifications only */
    natsSubscription *all;     /* the subscription to all keys of the bucket; NULL: none */
    uint64_t heard;            /* events so far */
    int64_t retry_us;          /* local: when a connection may be tried again */
    int wake_fd;               /* for hf__nats_interrupt */
};

struct hf_store {
    struct hf__nats_how how;
    struct hf__links links;
    struct hf__nats_link link[HF_LINKS];
    char bucket[HF_NATS_NAME];
    char empty[HF_NATS_NAME + 24]; /* the command with which a person empties the store */
    char info[HF_NATS_NAME + 40]; /* the subject of requests for the state of the bucket's stream */
    char query[HF_NATS_NAME + 40]; /* the subject of requests for a message of the stream */
    struct hf__nats_notify notify;
    char republished[HF_NATS_SUBJECT]; /* how the subjects of notifications begin; "": the bucket
                                          doesn't republish */
    int replicas;                      /* of a new bucket; 0: three in a cluster, else one */
    int existing;                      /* 1: the bucket must not be made */
};

/* The status of a reply: 0, one of these, or the number of the server's error (10,000 and more). */
enum {
    HF_NATS_NOBODY = 1,  /* no server listens on the subject: the request was not carried out */
    HF_NATS_GARBLED = 2, /* it isn't a reply to such a request */
    HF_NATS_NO_MEMORY = 3,
    HF_NATS_BEHIND = 10071, /* the key's last message isn't the one that was expected */
    HF_NATS_BEHIND_TOO = 10164,
    HF_NATS_NO_MESSAGE = 10037,
    HF_NATS_NO_STREAM = 10059
};

/* names.c. hf__nats_subject writes the subject of a key in the bucket. hf__nats_key reads the key
   from the part of a subject behind `$KV.BUCKET.`; returns 0 if that isn't one of a key. */
void hf__nats_subject(const hf_store *st, const char *key, size_t len, char to[HF_NATS_SUBJECT]);
int hf__nats_key(const hf_store *st, const char *name, char to[HF_KEY_CAP], uint32_t *ret_len);
/* Decodes base64; the bytes are the caller's. NULL: no memory, or it isn't base64. */
char *hf__nats_bytes(const char *text, size_t *ret_len);
/* Reads a time such as 2026-11-27T18:50:00.123456789Z, in µs since 1970. Returns 0 if it isn't
   one. */
int64_t hf__nats_time(const char *text);

/* bucket.c. Reads a reply in JSON. Returns 0, with *ret, to be json_decref'ed; else the status of
   the reply, with the reason. */
int hf__nats_reply(const natsMsg *reply, json_t **ret, char why[HF_NATS_WHY]);
/* Returns the HF_ code for the status of a reply by which a request was refused: nothing was
   done. */
int hf__nats_code(int said);
/* Returns the clock in the reply to STREAM.INFO; 0 if it has none. */
int64_t hf__nats_clock(const json_t *info);
/* Reads the clock of the server that the link leads to. The callers use it if the bucket doesn't
   exist. Returns 0; or the HF_ code, with the reason. */
int hf__nats_server_clock(hf_store *st, struct hf__nats_link *link, int64_t until_us,
                          int64_t *ret_clock_us, char why[HF_NATS_WHY]);
/* Makes the bucket, unless it exists. */
int hf__nats_make(hf_store *st, struct hf__nats_link *link, int64_t until_us,
                  char why[HF_NATS_WHY]);
/* Finds or makes the bucket. Returns 0, or the error if it can't be a store. `safe`: the URL for
   messages. */
int hf__nats_prepare(hf_store *st, const char *safe, hf_error *err);
int hf__nats_inspect(hf_store *st, void (*say)(void *arg, int ok, const char *text), void *arg,
                     hf_error *err);

/* rows.c. Makes the request for the key's row. `query` is its text, and has to stay until the
 * reply. */
void hf__nats_ask_row(const hf_store *st, const hf_rowkey *key, char query[HF_NATS_QUERY],
                      struct hf__nats_request *r);
/* Reads the row from the reply, and the number of its message (0: there is none). Returns 0 or an
   HF_ code; *ret_said is the status of the reply. */
int hf__nats_read_row(const hf_store *st, const natsMsg *reply, const char *what, const char *key,
                      hf_row *row, uint64_t *ret_seq, int *ret_said, hf_error *err);
int hf__nats_get(hf_store *st, const hf_rowkey *key, hf_row *row, int64_t *ret_clock_us,
                 hf_error *err);

/* notify.c */
int hf__nats_notify_open(struct hf__nats_notify *n);
void hf__nats_notify_close(struct hf__nats_notify *n);
extern const hf_notify_ops hf__nats_notify;

/* replace.c */
int hf__nats_replace(hf_store *st, const hf_rowkey *key, uint64_t seen, const hf_row *row,
                     hf_row *cur, int64_t *ret_clock_us, hf_error *err);
size_t hf__nats_replace_some(hf_store *st, void *link, hf_replace *item, size_t n,
                             int64_t until_us);

#endif
