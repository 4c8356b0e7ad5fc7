/*
 * notify.h - postgres: notifications. See doc/stores/postgres.md.
 */
#ifndef HF_POSTGRES_NOTIFY_H
#define HF_POSTGRES_NOTIFY_H

#include "addresses.h"
#include "kit/subscriber.h"
#include "link.h"

enum { HF_PG_WORD_CAP = 96 };
/* The beginning of the channels of addresses. No table's channel begins like this. */
#define HF_PG_AT "holdfast "

/* Reads a row by the connection that listens. Returns 0, or an error code. */
typedef int hf__pg_read(hf_store *st, struct hf__pg_link *link, const hf_rowkey *key, hf_row *row);

/* The one connection with subscriptions, for all waits of a handle. Only the thread that sleeps in
   hf__pg_sleep uses it. The notifications have a mutex, because other threads read them. */
struct hf__pg_listener {
    struct hf__pg_link link;
    char channel[64]; /* the channel of all keys, for waits that aren't queued */
    int listens_all;  /* listens there */
    int64_t retry_at_us;
    uint64_t events;
    hf__pg_read *read; /* read_notified in postgres.c */
    hf_store *st;
    pthread_mutex_t mu;
    struct hf__sub sub; /* keys of queued waits have a channel, that of an address */
    struct subscription *unread,
        **unread_end; /* the keys whose rows are to be read, in the order of their notifications */
    int wake_fd;
};

/* Opens the listener, which is to be closed in every case. Returns 0 or errno. */
int hf__pg_notify_open(struct hf__pg_listener *listener, hf_store *st, hf__pg_read *read);
/* Writes the name of the table's channel, of any length that a name may have. */
void hf__pg_notify_channel(struct hf__pg_listener *listener, const char *schema, const char *table);
void hf__pg_notify_close(struct hf__pg_listener *listener);

/* Writes the notification of a write: the key, and its exclusive holder if there is one. */
void hf__pg_word(const hf_rowkey *key, const hf_row *row, char to[HF_PG_WORD_CAP]);

int hf__pg_subscribe(struct hf__pg_listener *listener, const hf_rowkey *key);
void hf__pg_unsubscribe(struct hf__pg_listener *listener, const hf_rowkey *key);
int hf__pg_next_event(struct hf__pg_listener *listener, hf_key_event *ret);
int hf__pg_flush(const struct hf__pg_how *how, struct hf__pg_listener *listener,
                 hf_event_count *ret, hf_error *err);
int hf__pg_sleep(struct hf__pg_listener *listener, const hf_event_count *since, int64_t until_us,
                 hf_error *err);
void hf__pg_interrupt(struct hf__pg_listener *listener);
int hf__pg_payload(struct hf__pg_listener *listener, const hf_rowkey *key, hf_row *row);

#endif
