/*
 * link.h - nats: connections to the server, and requests. See doc/stores/nats.md.
 */
#ifndef HF_NATS_LINK_H
#define HF_NATS_LINK_H

#include "holdfast_driver.h"
#include "kit/hosts.h"
#include "kit/quiet.h"
#include "kit/url_options.h"

#include <nats/nats.h>

enum { HF_NATS_PATH = 512, HF_NATS_WHY = 300, HF_NATS_INBOX = 64, HF_NATS_NAME = 64 };

/* How to connect, as the URL says. */
struct hf__nats_how {
    struct hf__hosts at;
    char user[128], password[256]; /* a password without a user is a token */
    struct hf__secret secret;      /* the file that has the password */
    char creds[HF_NATS_PATH];      /* the file with a user's JWT and seed */
    char inbox[HF_NATS_INBOX];     /* how the subjects for replies begin */
    int tls, verify;
    struct hf__tls_files files;
    int64_t io_timeout_ms;
    int opened; /* 1: the store was opened, so a server was fit once */
};

struct hf__nats_socket {
    int fd, writes; /* fd -1: the socket is closed. writes 1: the library wants to write */
};

struct hf__nats_link {
    natsConnection *nc;      /* NULL: not connected */
    natsSubscription *inbox; /* where replies come */
    char prefix[HF_NATS_INBOX + 40];
    uint64_t sent; /* how many requests were sent; the number makes each reply's subject */
    struct hf__nats_socket *socket; /* the connection's socket; NULL: none */
    int tls;
};

static inline int hf__nats_fd(const struct hf__nats_link *link)
{
    return link->socket ? link->socket->fd : -1;
}

/* A request; its texts are borrowed. */
struct hf__nats_request {
    const char *subject, *data;
    size_t len;
    struct {
        const char *name, *value; /* value NULL: there is none */
    } header[3];
    natsMsg *reply; /* NULL: none has come */
    int unsent;     /* 0; or why it wasn't sent. HF_FULL: longer than the server permits; or
                       HF_NOMEM */
};

/* options.c. Fills *how, the bucket's name and how many replicas are wanted (0: the URL doesn't
   say). */
int hf__nats_options(const hf_url *url, struct hf__nats_how *how, char bucket[HF_NATS_NAME],
                     int *ret_replicas, hf_error *err);

/* dial.c. Connects to the first server that works, until the local time until_us at most. */
int hf__nats_connect(const struct hf__nats_how *how, struct hf__nats_link *link, int64_t until_us,
                     hf_error *err);
void hf__nats_disconnect(struct hf__nats_link *link);

/* login.c. Connects to one server, by the URL of its address; `host` is its name. Fills nc and
   socket of the link. Returns 0, or the code, with the reason in `why`. */
int hf__nats_log_in(const struct hf__nats_how *how, const char *host, const char *url,
                    const char *password, int64_t until_us, struct hf__nats_link *link,
                    char why[HF_KIT_WHY]);

/* tls.c. Sets the TLS options of the URL for a connection to `host`. */
natsStatus hf__nats_set_tls(const struct hf__nats_how *how, natsOptions *o, const char *host);
/* Returns 1 if TLS failed because the key needs a passphrase, which is never asked for. */
int hf__nats_key_is_encrypted(void);
/* Sets the local time at which this thread's next TLS handshake ends; 0: there is no further
   one. */
void hf__nats_handshake_ends(int64_t until_us);
int hf__nats_handshake_was_late(void);
/* Returns 1 if the handshake ended without a refusal: the connection was cut, or the server doesn't
   speak TLS. */
int hf__nats_handshake_was_cut(void);
/* hf__nats_quiet and hf__nats_loud are called around calls of the library. In between the thread is
   inside the fork gate (kit/fork_gate.h), because the library and OpenSSL have locks of the whole
   process; and, with `tls`, SIGPIPE is blocked in this thread. */
struct hf__nats_quiet {
    struct hf__quiet quiet;
    int tls;
};
static inline void hf__nats_quiet(int tls, struct hf__nats_quiet *q)
{
    q->tls = tls;
    tls ? hf__quiet(&q->quiet) : hf__gate_begin();
}
static inline void hf__nats_loud(const struct hf__nats_quiet *q)
{
    q->tls ? hf__loud(&q->quiet) : hf__gate_end();
}
/* Frees what OpenSSL keeps for this thread, which is about to end. OpenSSL would do that at the
   thread's end, under a lock of the whole process and outside the fork gate. Called between
   hf__nats_quiet and hf__nats_loud. */
void hf__nats_thread_ends(void);

/* link.c. Subscribes the connection to these subjects. All messages that come are kept. */
natsStatus hf__nats_subscribe(struct hf__nats_link *link, const char *subjects,
                              natsSubscription **ret);
/* Frees the unread messages of a subscription that is about to end, by hf__nats_free. Does nothing
   if the connection is closed, or if `sub` is NULL. */
void hf__nats_drop_unread(natsSubscription *sub);
/* Lets the library read and write, after poll has returned these events. Returns 1; 0: the
   connection is closed. */
int hf__nats_serve(struct hf__nats_link *link, short revents);
/* Returns 1 if the connection has ended since the last request. Sends nothing. */
int hf__nats_ended(struct hf__nats_link *link);
/* Returns the events that poll has to wait for. */
short hf__nats_events(const struct hf__nats_link *link);
/*
 * Sends n requests and waits for all replies, until the local time until_us at most. Returns 0 if
 * all replies have come, except to requests that are `unsent`. Otherwise returns HF_UNAVAILABLE,
 * HF_DENIED or HF_NOMEM, with the reason in `why`: each request may have been carried out, and the
 * connection is closed. hf__nats_done frees the replies.
 */
int hf__nats_ask(struct hf__nats_link *link, struct hf__nats_request *r, size_t n, int64_t until_us,
                 char why[HF_NATS_WHY]);
void hf__nats_done(struct hf__nats_request *r, size_t n);
/*
 * Frees a message (may be NULL) in this thread. natsMsg_Destroy would leave that to a thread of the
 * library, under a mutex that may be locked while the process forks: the child would then wait for
 * that mutex for ever.
 */
void hf__nats_free(natsMsg *msg);

#endif
