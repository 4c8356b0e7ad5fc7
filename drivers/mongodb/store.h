/*
 * store.h - mongodb: what the driver's files share.
 */
#ifndef HF_MONGODB_STORE_H
#define HF_MONGODB_STORE_H

#include "kit/links.h"
#include "link.h"

typedef struct hf__mg_listener hf__mg_listener;

struct hf_store {
    struct hf__mg_how how;
    struct hf__links links;
    struct hf__mg_link link[HF_LINKS];
    hf__mg_listener *listener;
    int plain; /* 1: the server doesn't know $facet, $$NOW or projections; found out by `open` */
};

/* mongodb.c. Sends the command and waits for its reply, as hf__mg_ask, after connecting again if
   need be. The command is destroyed in every case. */
int hf__mg_request(hf_store *st, struct hf__mg_link *link, bson_t *command,
                   const struct hf__mg_about *about, bson_t *ret, int *ret_code, hf_error *err);
/* Fills in the error for a reply that can't be read. Returns its code. */
int hf__mg_garbled(const struct hf__mg_about *about, hf_error *err);
/* Reads the row from a document. Returns 0 or the error. */
int hf__mg_row_of(const hf_store *st, const bson_t *doc, hf_row *row,
                  const struct hf__mg_about *about, hf_error *err);
/* Asks for the store's clock by a separate request: `hello`, by its old name, which all versions
   know. */
int hf__mg_ask_clock(hf_store *st, struct hf__mg_link *link, const struct hf__mg_about *about,
                     int64_t *ret_clock_us, hf_error *err);
/* Adds the read concern to a command; `one`: the command reads one document. With it a read shows
   nothing that may be rolled back; a read of one document also nothing that is out of date
   (linearizable). A single server needs none: it has only one state. */
void hf__mg_put_read_concern(const hf_store *st, const struct hf__mg_link *link, int one,
                             bson_t *command);
/* Finds the first document in the first batch of a reply. Returns 0 if there is none. */
int hf__mg_batch(const bson_t *reply, bson_iter_t *ret);
int hf__mg_document(const bson_iter_t *it, bson_t *ret);

/* change.c. These read an event of a change stream. Returns the key; NULL: it names none. */
const char *hf__mg_change_key(const bson_t *event, uint32_t *ret_len);
/* Reads the party that was granted the key; token 0: none. */
void hf__mg_change_holder(const bson_t *event, hf_party *ret);
/* Returns 1 if the change concerns the waiter with this address. */
int hf__mg_change_concerns(const bson_t *event, const char *address);
/* Makes the pipeline of the change stream: it leaves in the events only what these functions read.
 */
bson_t *hf__mg_change_pipeline(void);

/* notify.c. Makes a listener. NULL: out of memory. */
hf__mg_listener *hf__mg_listener_new(const hf_url *url, int64_t io_timeout_ms);
void hf__mg_listener_free(hf__mg_listener *listener);
extern const hf_notify_ops hf__mg_notify;

/* list.c */
int hf__mg_scan(hf_store *st, const char *prefix,
                int (*see)(void *arg, const hf_rowkey *, hf_row *), void *arg,
                int64_t *ret_clock_us, hf_error *err);

/* collection.c. Makes the collection if there is none; with `existing`, that is an error instead.
   Refuses a collection that would drop rows (capped, TTL) or take two keys for one (collation). */
int hf__mg_prepare_collection(hf_store *st, struct hf__mg_link *link,
                              const struct hf__mg_about *about, int existing, hf_error *err);
/* Tells `holdfast doctor` of the server, and of how the rows are kept. */
int hf__mg_inspect(hf_store *st, void (*say)(void *arg, int ok, const char *text), void *arg,
                   hf_error *err);

/* replace_many.c: see kit/links.h. */
size_t hf__mg_replace_some(hf_store *st, void *link, hf_replace *item, size_t n, int64_t until_us);

#endif
