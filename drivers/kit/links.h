/*
 * links.h - the connections of one store to its server, and the choice of one for each request.
 * Compiled into each module that uses it.
 *
 * The connections are the driver's: an array of HF_LINKS of them. The first HF_POOL_LINKS carry
 * single requests. The others carry the batches of replace_many, so that no batch waits for single
 * requests, and no single request for a batch. A small batch takes an idle connection of the single
 * requests while others of them remain: see hf__pool_spare.
 *
 * Thread safety: all functions by any thread, but for hf__links_open and hf__links_close. Nothing
 * is allocated.
 */
#ifndef HF_KIT_LINKS_H
#define HF_KIT_LINKS_H

#include "holdfast_driver.h"
#include "pool.h"

enum { HF_LINKS = 2 * HF_POOL_LINKS };

/* How many replaces of a batch a driver gets at once, at most. */
enum { HF_BATCH = 512 };

/* What a driver does with one of its connections. `link` is an element of the array. */
struct hf__link_kind {
    const char *store; /* the driver's name, for messages */
    size_t size;       /* the size of an element of the array */
    size_t small;      /* a batch of at most so many replaces is small; 0: none is */
    /* Closes the link if its connection is broken. Returns 1 if it is connected. */
    int (*usable)(void *link);
    /* Connects the link until the local time until_us (hf__local_us). Returns 0, or the error. */
    int (*connect)(hf_store *st, void *link, int64_t until_us, hf_error *err);
    /* Returns 1 if the link is connected, as far as is known without a look at the connection. */
    int (*works)(const void *link);
    /* Makes the first of these replaces, of which there are HF_BATCH at most, until the local time
       until_us. Returns how many have got their results. */
    size_t (*replace)(hf_store *st, void *link, hf_replace *item, size_t n, int64_t until_us);
};

struct hf__links {
    const struct hf__link_kind *kind;
    hf_store *st;
    char *array;
    int64_t io_timeout_ms;
    struct hf__pool single, batch;
};

/* Sets up the links; `array` has HF_LINKS elements, none of them connected. */
void hf__links_open(struct hf__links *links, const struct hf__link_kind *kind, hf_store *st,
                    void *array, int64_t io_timeout_ms);
/* Frees the pools. No request may be under way. The driver closes its connections itself. */
void hf__links_close(struct hf__links *links);
/*
 * Takes a connection for one request: waits for a free one, and connects it, for io_timeout_ms at
 * most. Returns it, connected; hf__links_put gives it back. Returns NULL if there is none: nothing
 * was sent, and *ret_code and err have the error (HF_UNAVAILABLE: none was free in time).
 */
void *hf__links_get(struct hf__links *links, int *ret_code, hf_error *err);
/* Gives a link back; NULL is allowed. */
void hf__links_put(struct hf__links *links, void *link);
/*
 * replace_many of holdfast_driver.h, on a connection for a batch. Connecting may take until
 * hf__pool_connect_until, and the deadline is later by the time that it took. Its error is never
 * HF_UNSUPPORTED: the store worked when it was opened, so a server that can't be a store now may be
 * replaced again.
 */
int hf__links_replace_many(struct hf__links *links, hf_replace *item, size_t n, int64_t until_us);

#endif
