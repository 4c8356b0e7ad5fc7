/*
 * store.h - mongodb: what the driver's files share.
 */
#ifndef HF_MONGODB_STORE_H
#define HF_MONGODB_STORE_H

#include "kit/links.h"
#include "link.h"
#include "notify.h"

struct hf_store {
    struct hf__mg_how how;
    struct hf__links links;
    struct hf__mg_link link[HF_LINKS];
    hf__mg_listener *listener;
    int plain; /* the server has no $facet, no $$NOW, no projections: asked when the store is
                  opened */
};

/* mongodb.c. A batch takes its connection by kit/links.h, and gives it back here. */
void hf__mg_put_link(hf_store *st, struct hf__mg_link *link);
/* Asks for the store's clock by a request of its own. */
int hf__mg_ask_clock(hf_store *st, struct hf__mg_link *link, const struct hf__mg_about *about,
                     int64_t *ret_clock_us, hf_error *err);
/* Adds the read concern to a command; `one`: the command reads one document. */
void hf__mg_put_read_concern(const hf_store *st, const struct hf__mg_link *link, int one,
                             bson_t *command);
/* Finds the first document in the first batch of a reply. Returns 0 if there is none. */
int hf__mg_batch(const bson_t *reply, bson_iter_t *ret);
int hf__mg_document(const bson_iter_t *it, bson_t *ret);

/* replace_many.c */
int hf__mg_replace_many(hf_store *st, hf_replace *item, size_t n, int64_t until_us);

#endif
