/*
 * link.h - mongodb: connections to the servers, and rows as documents. See doc/stores/mongodb.md.
 */
#ifndef HF_MONGODB_LINK_H
#define HF_MONGODB_LINK_H

#include "kit/columns.h"
#include "kit/dial.h"

#include <mongoc/mongoc.h>

enum { HF_MG_NAME_CAP = 128, HF_MG_DUPLICATE_KEY = 11000, HF_MG_PORT_CAP = 8 };
/* The field that has the row's rev and the addresses of the waiters that the last write concerns
   (addresses.h). */
#define HF_MG_ADDRESSES "addresses"

/* How to connect. */
struct hf__mg_how {
    mongoc_uri_t *uri;
    char db[HF_MG_NAME_CAP], collection[HF_MG_NAME_CAP];
    char how_to_empty[HF_MG_NAME_CAP + 32]; /* the command that empties the store, for
                                               hf__format_refused */
    char read_level[16];                    /* the read concern; "": linearizable, if there is a
                                               replica set */
    int64_t io_timeout_ms;
    struct hf__dial_target host[HF_DIAL_TARGETS]; /* the hosts of the URL */
    char port[HF_DIAL_TARGETS][HF_MG_PORT_CAP];
    size_t n_hosts;
    int tls, tls_by_libmongoc; /* tls_by_libmongoc: the URL has options that only libmongoc's own
                                  streams know */
    mongoc_ssl_opt_t ssl;      /* its texts belong to `uri` */
};

/* A connection to the store: a libmongoc client, which one thread at a time uses. */
struct hf__mg_link {
    mongoc_client_t *client;   /* NULL: not connected */
    int replicated;            /* 1: the primary of a replica set; 0: a server by itself */
    int64_t until_us;          /* the local time until which streams of the link wait at most; 0:
                                  libmongoc's own limits hold */
    int64_t first_until_us;    /* until_us for the next request, set by the caller; 0: as usual */
    int broken;                /* the errno of the last failure of a stream; ETIMEDOUT: its time was
                                  over */
    unsigned char reply[2048]; /* the beginning of the last reply; see observe.c */
    size_t n_reply;
    struct hf__mg_search *search; /* the search for a server that can be written; NULL: the link is
                                     connected */
};

/* The verb and the key of a request, for its errors. `ambiguous`: the code if it isn't known
   whether the request was carried out. */
struct hf__mg_about {
    const char *what, *key;
    int ambiguous;
};

/* quiet.c. Call this at least once before any other function of libmongoc. */
void hf__mg_start(void);
/* Call these around each call of libmongoc that may take time or log something. In between the
   thread is inside the fork gate (kit/fork_gate.h). If hf__mg_begin returns 0, the program is
   ending: libmongoc must not be called, nor hf__mg_end. */
int hf__mg_begin(void);
void hf__mg_end(void);

/* stream.c. Forgets all streams, in the child of a fork: it has inherited its parent's connections,
   and must not use them. */
void hf__mg_streams_forget(void);
/* Shuts down all connections of this process, so that threads that wait for them return. */
void hf__mg_streams_stop(void);

/* options.c. Fills in what the URL says. Returns 0; HF_INVALID: err says why. */
int hf__mg_how(const hf_url *url, int64_t io_timeout_ms, struct hf__mg_how *ret, hf_error *err);
void hf__mg_how_free(struct hf__mg_how *how);

/* connect.c. Connects to the primary: one of the URL's hosts, or a member that they name.
   Connecting and the first request together take io_timeout_ms at most. */
int hf__mg_connect(const struct hf__mg_how *how, struct hf__mg_link *link, hf_error *err);
void hf__mg_disconnect(struct hf__mg_link *link);

/* link.c. Returns the HF_ code for an error of libmongoc; `ambiguous` if the request may have been
   carried out. */
int hf__mg_code(const bson_error_t *e, int ambiguous);
/* Does the same for a command on this link, for which the link may have had to log in. */
int hf__mg_link_code(const struct hf__mg_link *link, const bson_error_t *e, int ambiguous);

/*
 * Sends one command and waits for its reply. Returns 0, with *ret, to be destroyed; else the error.
 * *ret_code is the server's own error code; 0: it sent none. A link that can't be used any more is
 * disconnected.
 */
int hf__mg_ask(const struct hf__mg_how *how, struct hf__mg_link *link, const bson_t *command,
               const struct hf__mg_about *about, bson_t *ret, int *ret_code, hf_error *err);

/* rows.c. Builds the update that makes a document this row, with the time of the write. Returns 0,
   HF_NOMEM, or HF_INVALID with *ret_why. */
int hf__mg_encode(const hf_row *row, bson_t *update, const char **ret_why);
/* Raises the fence in the document that `where` names as COLLECTION/ID. */
int hf__mg_enter(const struct hf__mg_how *how, struct hf__mg_link *link, const char *where,
                 uint64_t token, const struct hf__mg_about *about, hf_error *err);
/* Reads a row from a document. `by` names the verb and the key for the error. Returns 0, HF_NOMEM
   or HF_CORRUPT. */
int hf__mg_decode(const bson_t *doc, const struct hf__row_reader *by, hf_row *row, hf_error *err);

#endif
