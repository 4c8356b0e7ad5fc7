/*
 * store.h - s3: what the driver's files share. doc/stores/s3.md says what it does.
 */
#ifndef HF_S3_STORE_H
#define HF_S3_STORE_H

#include "kit/document.h"
#include "kit/secret.h"
#include "rest.h"

enum {
    HF_S3_PREFIX = 320,      /* room for the prefix of all names, which ends with a slash */
    HF_S3_NAME = 1024,       /* room for the whole name of an object, without a NUL */
    HF_S3_TICK_US = 2000000, /* how late the clock may be: see clock_of in ask.c */
    HF_S3_ABSENT = 2,        /* returned by hf__s3_ask: there is no such object */
    HF_S3_SLOTS = 8192
};

/* Where the objects are, and the account of requests. */
struct hf__s3_where {
    char endpoint[260]; /* "https://s3.eu-central-1.amazonaws.com" */
    char bucket[64];
    char prefix[HF_S3_PREFIX];
    char sign[100];            /* for CURLOPT_AWS_SIGV4 */
    char id[128];              /* from the URL; "": a file or the environment names the account */
    char secret[256];          /* from the URL */
    char file[HF_SECRET_PATH]; /* the credentials file; "": none */
    char profile[64];
};

/* The ETag of the object whose row has this rev. With rev 0: that of the object in place of a
   removed row; or "" if there is no object. */
struct hf__s3_seen {
    uint64_t hash, rev;
    int known;
    char tag[HF_REST_TAG];
};

struct hf_store {
    struct hf__rest rest;
    struct hf__s3_where at;
    char how_to_empty[500]; /* for hf__format_refused */
    int let_in;             /* 1: a request was carried out, so the account works (atomic) */
    int others;             /* 1: an object has shown that ETags aren't the MD5 sums of what was
                               written, as with SSE-KMS (atomic) */
    pthread_mutex_t mu;     /* protects what follows */
    int64_t ahead_us;       /* the store's clock is ahead of the local one by at least this */
    int64_t ahead_at_us;    /* the local time when ahead_us was found; 0: nothing is known yet */
    int64_t odd_us;         /* the local time since which the server's dates contradict ahead_us; 0:
                               they don't */
    struct hf__s3_seen seen[HF_S3_SLOTS];
};

/* options.c */
int hf__s3_options(const hf_url *url, struct hf__s3_where *at, char cafile[1024], hf_caps *caps,
                   hf_error *err);

/* account.c. The account with which a request is signed; the caller wipes it. */
struct hf__s3_account {
    char id[128], secret[256], token[4096];
};
/* Reads the account. Returns 0; HF_DENIED: none is configured; HF_UNAVAILABLE: the file can't be
   read now. */
int hf__s3_account(const struct hf__s3_where *at, struct hf__s3_account *ret, char why[HF_KIT_WHY]);

/* names.c. hf__s3_name writes the name of a key's object, without the store's prefix. hf__s3_key
   reads the key from a name; returns 0 if no key has that name. Names of long keys begin with
   HF_S3_LONGS. */
#define HF_S3_LONGS "~~"
void hf__s3_name(const char *key, size_t len, char to[HF_S3_NAME + 1]);
int hf__s3_key(const char *name, char to[HF_KEY_CAP], uint32_t *ret_len);
/* Writes how the names of all keys with that prefix begin, except names that begin with
   HF_S3_LONGS. Returns 0 if all such keys have these long names. */
int hf__s3_name_prefix(const char *prefix, char to[HF_S3_NAME + 1]);
/* Copies the text of the first element of that name, without entities. Returns where the element
   ends; NULL: there is none. */
const char *hf__s3_element(const char *xml, const char *name, char *to, size_t cap);

/* ask.c */
struct hf__s3_call {
    const char *what, *key; /* for messages: "s3: get 'key': ..." */
    const char *name;       /* the name of the object; NULL: the request is about the bucket */
    const char *query;      /* the query of a request about the bucket; encoded and in order */
    const char *put;        /* the content to write; NULL: the request is a read */
    const char *tag;        /* of a write: the ETag of the object that it replaces; "": there is no
                               object */
    int busy;               /* out: 1: refused because another write was under way */
    int foreign;            /* out: 1: HF_UNKNOWN, because the reply's ETag isn't that of what was
                               sent; a proxy may have answered */
};
/*
 * Makes one request. The caller frees the reply, also after an error. Returns 0: it was carried
 * out; HF_S3_ABSENT: there is no such object; HF_CONFLICT: the write's condition wasn't met, so it
 * wasn't done; or an HF_ error, with *err.
 */
int hf__s3_ask(hf_store *st, struct hf__s3_call *call, struct hf__rest_reply *reply,
               int64_t *ret_clock_us, hf_error *err);

/* One of several requests. `rc` is what hf__s3_ask would return for it. */
struct hf__s3_asked {
    struct hf__s3_call call;
    hf_error *err; /* may be NULL */
    struct hf__rest_reply reply;
    int64_t clock_us; /* 0, unless the request was carried out or refused */
    int rc;
};
/* Makes n requests side by side. They have to be answered by local time until_us. */
void hf__s3_ask_many(hf_store *st, struct hf__s3_asked *one, size_t n, int64_t until_us);

/* Returns 1 if the ETag is the MD5 sum of the text. */
int hf__s3_is_sum(const char *tag, const char *text, size_t len);

/* s3.c. Reads the present row of the key. */
int hf__s3_read(hf_store *st, const hf_rowkey *key, hf_row *row, int64_t *ret_clock_us,
                const char *what, hf_error *err);

/* One replace. */
struct hf__s3_change {
    const hf_rowkey *key;
    uint64_t seen;
    const hf_row *row; /* NULL: the row is to be removed */
    hf_row *cur;       /* not NULL */
};
/* Finds the ETag of the row that is to be replaced; "": there is no object. Returns 1; 0: it isn't
   known. */
int hf__s3_tag_of(hf_store *st, const hf_rowkey *key, uint64_t seen, const hf_row *row,
                  char tag[HF_REST_TAG]);
/* Returns the text of the object to be written, to be freed. Its random number makes it unlike that
   of any other write. NULL: *ret_rc and *err say why. */
char *hf__s3_encode(const hf_store *st, const hf_rowkey *key, const hf_row *row, int *ret_rc,
                    hf_error *err);
/* Keeps the ETag of the row that was written. */
void hf__s3_written(hf_store *st, const hf_rowkey *key, const char *text, uint64_t rev,
                    const char *tag);
/* Returns 1 if the reply's ETag belongs to its body. While an object is replaced, a server that
   keeps objects as files may send the ETag of one version with the body of the other. Then this
   returns 0, and the caller reads again. */
int hf__s3_belongs(const hf_store *st, const struct hf__rest_reply *r);
/* Returns rc, the result of a read; but HF_UNSUPPORTED, with *err, if the object came without an
   ETag. */
int hf__s3_tagged(const struct hf__rest_reply *r, int rc, const char *what, const hf_rowkey *key,
                  hf_error *err);
/* Returns 1 if the object that was read is exactly this text, so the write was carried out. If the
   object's ETag isn't the text's MD5 sum, notes that in st->others. */
int hf__s3_is_text(hf_store *st, const struct hf__rest_reply *r, const char *text);
/* Reads the row from the reply to a read, whose result was `rc` and whose clock clock_us, and keeps
   its ETag. Returns 0 or the error; HF_UNAVAILABLE if clock_us is 0. */
int hf__s3_reads(hf_store *st, const hf_rowkey *key, int rc, const struct hf__rest_reply *r,
                 int64_t clock_us, hf_row *row, const char *what, hf_error *err);

/* replace_many.c */
int hf__s3_replace_many(hf_store *st, hf_replace *item, size_t n, int64_t until_us);

/* list.c */
int hf__s3_scan(hf_store *st, const char *prefix,
                int (*see)(void *arg, const hf_rowkey *, hf_row *), void *arg,
                int64_t *ret_clock_us, hf_error *err);

#endif
