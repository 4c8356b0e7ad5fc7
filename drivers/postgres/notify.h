/*
 * notify.h - postgres: notifications. See doc/stores/postgres.md.
 */
#ifndef HF_POSTGRES_NOTIFY_H
#define HF_POSTGRES_NOTIFY_H

#include "addresses.h"
#include "kit/subscriber.h"
#include "link.h"

enum { HF_PG_NOTIFICATION_CAP = 96 };
/* How the names of the channels of addresses begin. No table's channel begins like this. */
#define HF_PG_AT "holdfast "

/* The connection with subscriptions, one for all waits of a handle. One thread at a time uses it
   (hf_notify_ops). `payload` reads what notifications have shown in any thread, under the mutex of
   `sub`. */
struct hf__pg_listener {
    struct hf__pg_link link;
    char channel[64]; /* the channel of all keys, for waits that aren't queued */
    int listens_all;  /* 1: subscribed to that channel */
    int64_t retry_at_us;
    uint64_t events;
    struct hf__sub sub; /* keys of queued waits have a channel, that of an address */
    struct subscription *unread,
        **unread_end; /* the keys whose rows are to be read, in the order of their notifications */
    int wake_fd;
};

/* Sets up the listener; connects nothing. The caller closes it, even if this fails. Returns 0 or an
   errno. */
int hf__pg_notify_open(struct hf__pg_listener *listener);
void hf__pg_notify_close(struct hf__pg_listener *listener);

/* replace.c. Writes the notification of a write: the key, and its exclusive holder if there is one.
 */
void hf__pg_put_notification(const hf_rowkey *key, const hf_row *row,
                             char to[HF_PG_NOTIFICATION_CAP]);

extern const hf_notify_ops hf__pg_notify;

#endif
