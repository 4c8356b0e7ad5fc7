/*
 * link.h - redis: connections to the server. See doc/stores/redis.md.
 *
 * hiredis parses replies. This driver formats commands and carries bytes itself: that is quicker,
 * each wait has a time limit, and TLS can be a filter in between.
 */
#ifndef HF_REDIS_LINK_H
#define HF_REDIS_LINK_H

#include "holdfast_driver.h"
#include "kit/secret.h"

#include <hiredis/hiredis.h>
#include <pthread.h>

#ifdef HF_REDIS_TLS
#define HF_RD "rediss"
#else
#define HF_RD "redis"
#endif

enum { HF_RD_PREFIX_CAP = 65, HF_RD_DB_CAP = 8 };

/* The scripts: each is one operation, whole or not at all. */
enum hf__rd_script { HF_RD_GET, HF_RD_SWAP, HF_RD_ACQUIRE, HF_RD_ENTER, HF_RD_SCRIPTS };

/* How to connect. */
struct hf__rd_how {
    char host[256], port[8], socket[108];
    char user[128], password[256];
    struct hf__secret secret; /* passfile: read at each connect */
    char prefix[HF_RD_PREFIX_CAP];
    char db[HF_RD_DB_CAP];
    char channels[HF_RD_DB_CAP + 1]; /* how the names of channels end (store.h) */
    unsigned wait;                   /* how many replicas must have a write */
    int64_t io_timeout_ms;
    int opened; /* 1: the store was opened, so a server was fit once */
    char *script[HF_RD_SCRIPTS];
    void *tls; /* the filter's own data: certificates and so on; NULL without TLS */
};

/* A filter between plain bytes and the socket's bytes: TLS (rediss only). It never touches the
   socket. */
struct hf__rd_filter {
    /* Sets up what all connections share. Returns 0 or the code, with the reason. */
    int (*ready)(const hf_url *url, void **ret, char why[HF_KIT_WHY]);
    void (*forget)(void *ready);
    /* Begins one connection; files are read again. Returns 0 or the code, with the reason. */
    int (*begin)(void *ready, void **ret, char why[HF_KIT_WHY]);
    void (*end)(void *filter);
    /* Goes on with the handshake. Returns 1: the connection is secured; 0: more has to be sent and
       received; negative: the code. */
    int (*shake)(void *filter, char why[HF_KIT_WHY]);
    /* Encrypts plain bytes; `to_send` then returns what has to be sent, piece by piece (0: no
       more). Negative: the connection is broken, with the reason. */
    int (*seal)(void *filter, const char *plain, size_t n, char why[HF_KIT_WHY]);
    /* Copies the next encrypted bytes to be sent. Returns how many; 0: there are no more. */
    size_t (*to_send)(void *filter, char *to, size_t cap);
    /* Takes bytes that came from the socket. Returns 0; negative: there is no memory for them. */
    int (*feed)(void *filter, const char *bytes, size_t n);
    /* Decrypts bytes. Returns how many plain bytes there are; 0: none yet; negative: the code, with
       the reason: the connection is broken, or the server has closed it. */
    int (*open)(void *filter, char *to, size_t cap, char why[HF_KIT_WHY]);
    const char *const *options; /* the URL parameters that the filter knows, NULL at the end */
};
extern const struct hf__rd_filter *const hf__rd_filter; /* NULL: this module has no TLS */

/* What a server's INFO says; a fact that it doesn't have is "" or 0. */
struct hf__rd_facts {
    const char *product; /* constant */
    char version[24], policy[24], role[12];
    char aof[4], save_ok[8];
    int cluster;
};

struct hf__rd_link {
    int fd;           /* -1: not connected */
    int asked;        /* 1: a request was sent, and no byte of its reply has been read yet */
    int64_t until_us; /* local: the deadline of the login; 0: each request has its own */
    int64_t used_us;  /* local: when the last answered request was sent */
    redisReader *reader;
    void *filter;
    char sha[HF_RD_SCRIPTS][44]; /* the hash by which the server knows a script; "": it doesn't */
    char why[HF_KIT_WHY];        /* of the last failure */
    int code;                    /* while it connects: the code that belongs to `why` */
};

/* Commands to be sent at once. `failed`: out of memory. */
struct hf__rd_batch {
    char *text;
    size_t len, cap;
    int n, failed;
};
void hf__rd_put(struct hf__rd_batch *batch, int argc, const char *const *argv, const size_t *len);
/* Appends as hf__rd_put NUL-terminated words, with NULL at the end. */
void hf__rd_say(struct hf__rd_batch *batch, ...);
void hf__rd_batch_free(struct hf__rd_batch *batch);

/* dial.c. Connects to the first address that works, until the local time until_us at most, and logs
   in. With `whole` it also loads the scripts and checks that this server can be a store; without,
   the link can be used for notifications only. */
int hf__rd_connect(const struct hf__rd_how *how, struct hf__rd_link *link, int whole,
                   int64_t until_us, hf_error *err);
/* Makes the TLS handshake. Returns 0 or the code, with the reason in link->why. */
int hf__rd_secure(const struct hf__rd_how *how, struct hf__rd_link *link, int64_t until_us);
void hf__rd_disconnect(struct hf__rd_link *link);
/* Returns 1 if the server has closed the connection since its last use. Sends nothing, and looks
   only if that use was some time ago. */
int hf__rd_broken(struct hf__rd_link *link);

/*
 * Sends the batch (and frees it) and reads its replies into reply[], to be freed by the caller.
 * Returns 0; HF_UNAVAILABLE: nothing was sent; HF_UNKNOWN: not everything was answered. In the
 * latter two cases link->why says why, the link is disconnected, and there are no replies.
 */
int hf__rd_talk(const struct hf__rd_how *how, struct hf__rd_link *link, struct hf__rd_batch *batch,
                redisReply **reply);
void hf__rd_free(redisReply **reply, int n);
/* Sends the batch without waiting for replies, and frees it. Returns 0 or HF_UNAVAILABLE. */
int hf__rd_send(const struct hf__rd_how *how, struct hf__rd_link *link, struct hf__rd_batch *batch);
/* Returns the next reply; NULL: none has come until until_us (0: doesn't wait). *ret_broken: the
   connection is broken. */
redisReply *hf__rd_next(struct hf__rd_link *link, int64_t until_us, int *ret_broken);

/* Returns 1 if the code of the error reply says that nothing was written. That holds for errors
   inside a script, too, because a script's first command that can fail is its write. */
int hf__rd_is_refusal(const char *text);
/* Returns the HF_ code for an error reply. */
int hf__rd_code(const char *text);
/* hf__rd_says returns 1 if the error reply has that code; hf__rd_is_coded, if it has any known
   one. */
int hf__rd_says(const char *text, const char *code);
int hf__rd_is_coded(const char *text);
/* Copies the first sentence of the error's text, without quoted arguments. */
void hf__rd_words(const char *text, char to[HF_KIT_WHY]);

/* facts.c. Reads the reply to INFO. */
void hf__rd_read_facts(const char *info, struct hf__rd_facts *ret);
/* Checks that this server can be a store. Returns 0, or HF_UNSUPPORTED with the reason. */
int hf__rd_fit(const struct hf__rd_how *how, const struct hf__rd_facts *facts,
               char why[HF_KIT_WHY]);

#endif
