/*
 * link.h - mongodb: connections to the servers, and rows as documents. See doc/stores/mongodb.md.
 */
#ifndef HF_MONGODB_LINK_H
#define HF_MONGODB_LINK_H

#include "kit/columns.h"
#include "kit/dial.h"

#include <mongoc/mongoc.h>

enum { HF_MG_NAME_CAP = 128, HF_MG_DUPLICATE_KEY = 11000, HF_MG_PORT_CAP = 8 };
/* The field that says whom of those in line the last write concerns, behind its rev. */
#define HF_MG_ADDRESSES "addresses"

/* How to connect. */
struct hf__mg_how {
    mongoc_uri_t *uri;
    char db[HF_MG_NAME_CAP], collection[HF_MG_NAME_CAP];
    char how_to_empty[HF_MG_NAME_CAP + 32]; /* for the message of hf__format_refused */
    char read_level[16];                    /* "": linearizable where there is a replica set */
    int64_t io_timeout_ms;
    struct hf__dial_target host[HF_DIAL_TARGETS]; /* of the URL */
    char port[HF_DIAL_TARGETS][HF_MG_PORT_CAP];
    size_t n_hosts;
    int tls, tls_by_libmongoc; /* the latter: with options that only its own streams have */
    mongoc_ssl_opt_t ssl;      /* its texts are those of `uri` */
};

/* A client of its own per link, used by one thread at a time: it has no threads of its own. */
struct hf__mg_link {
    mongoc_client_t *client;   /* NULL: not connected */
    int replicated;            /* a replica set's primary; else a server by itself */
    int64_t until_us;          /* local: no stream of it waits longer; 0: as libmongoc has it */
    int64_t first_until_us;    /* the same, for the request that it was connected for; 0: none */
    int broken;                /* errno of its last failure; ETIMEDOUT: the time was up */
    unsigned char reply[2048]; /* the beginning of the last one; see observe.c */
    size_t n_reply;
    struct hf__mg_search *search; /* for a server that can be written; NULL: it is connected */
};

/* What a request is for, for its errors; `ambiguous` is the code for a reply that didn't come. */
struct hf__mg_about {
    const char *what, *key;
    int ambiguous;
};

/* quiet.c. Before anything of libmongoc; once is enough. */
void hf__mg_start(void);
/* Around each call of libmongoc's that may take time or say something. hf__mg_begin returns 0 if
   the program is ending: then it isn't called. */
int hf__mg_begin(void);
void hf__mg_end(void);
/* Called around each wait for the network, or for another thread, within such a call: fork doesn't
   wait for a thread that is between the two. That thread holds no lock of libmongoc but its link's.
 */
void hf__mg_wait(void);
void hf__mg_go_on(void);

/* stream.c */
void hf__mg_streams_start(void); /* once */
/* All connections of this process break: what waits for them returns. */
void hf__mg_streams_stop(void);

/* link.c. Fills from the URL; INVALID says why. */
int hf__mg_how(const hf_url *url, int64_t io_timeout_ms, struct hf__mg_how *ret, hf_error *err);
void hf__mg_how_free(struct hf__mg_how *how);

/* connect.c. Of the hosts that the URL names, and those that they name, finds the one that can be
   written and has one clock. Takes io_timeout_ms at most, together with the first request. */
int hf__mg_connect(const struct hf__mg_how *how, struct hf__mg_link *link, hf_error *err);
void hf__mg_disconnect(struct hf__mg_link *link);

/* link.c. What an error of libmongoc's means; `ambiguous` where the request may have been done. */
int hf__mg_code(const bson_error_t *e, int ambiguous);
/* The same, of a command on this link, with which it may have logged in. */
int hf__mg_link_code(const struct hf__mg_link *link, const bson_error_t *e, int ambiguous);

/*
 * One command there and back. 0 and *ret (to be destroyed); else the code of what went wrong, with
 * the reason. *ret_code is the server's own code, 0 if it said none. A link that isn't sound any
 * more is disconnected.
 */
int hf__mg_ask(const struct hf__mg_how *how, struct hf__mg_link *link, const bson_t *command,
               const struct hf__mg_about *about, bson_t *ret, int *ret_code, hf_error *err);

/* rows.c. The update that makes a document this row, and notes when. 0, NOMEM, or INVALID:
 *ret_why. */
int hf__mg_encode(const hf_row *row, bson_t *update, const char **ret_why);
/* Raises the fence in a document, which `where` names as COLLECTION/ID. */
int hf__mg_enter(const struct hf__mg_how *how, struct hf__mg_link *link, const char *where,
                 uint64_t token, const struct hf__mg_about *about, hf_error *err);
/* A document as a row, for that reader. 0, NOMEM, or HF_CORRUPT. */
int hf__mg_decode(const bson_t *doc, const struct hf__row_reader *by, hf_row *row, hf_error *err);

#endif
