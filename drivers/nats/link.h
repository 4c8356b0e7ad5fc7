/*
 * link.h - nats: connections to the server, and requests. See doc/stores/nats.md.
 */
#ifndef HF_NATS_LINK_H
#define HF_NATS_LINK_H

#include "holdfast_driver.h"
#include "kit/hosts.h"
#include "kit/secret.h"

#include <nats/nats.h>
#include <signal.h>

enum { HF_NATS_PATH = 512, HF_NATS_WHY = 300, HF_NATS_INBOX = 64, HF_NATS_NAME = 64 };

/* How to connect, as the URL says. */
struct hf__nats_how {
    struct hf__hosts at;
    char user[128], password[256]; /* a password without a user is a token */
    struct hf__secret secret;      /* a password that stands in a file */
    char creds[HF_NATS_PATH];      /* a user's JWT and seed */
    char inbox[HF_NATS_INBOX];     /* the beginning of the subjects for replies */
    int tls, verify;
    char tls_ca[HF_NATS_PATH], tls_cert[HF_NATS_PATH], tls_key[HF_NATS_PATH];
    int64_t io_timeout_ms;
    int opened; /* a server was fit once */
};

struct hf__nats_socket {
    int fd, writes; /* -1: the socket is closed; 1: the library wants to write */
};

struct hf__nats_link {
    natsConnection *nc;      /* NULL: not connected */
    natsSubscription *inbox; /* where replies come */
    char prefix[HF_NATS_INBOX + 40];
    uint64_t sent; /* the number of requests so far: each has its own subject for the reply */
    struct hf__nats_socket *socket; /* the connection's subscription; NULL: none */
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
    int unsent;     /* 0, or why it wasn't sent: HF_FULL: longer than the server permits;
                       HF_NOMEM */
};

/* options.c. Fills *how, the bucket's name and how many replicas are wanted (0: the URL doesn't
   say). */
int hf__nats_options(const hf_url *url, struct hf__nats_how *how, char bucket[HF_NATS_NAME],
                     int *ret_replicas, hf_error *err);

/* dial.c. Connects to the first server that can be used, until the local time until_us at most. */
int hf__nats_connect(const struct hf__nats_how *how, struct hf__nats_link *link, int64_t until_us,
                     hf_error *err);
void hf__nats_disconnect(struct hf__nats_link *link);

/* login.c. Connects to one server, by the URL of its address; `host` is its name. Fills nc and
   socket of the link. Returns 0, or the code, with the reason in `why`. */
int hf__nats_log_in(const struct hf__nats_how *how, const char *host, const char *url,
                    const char *password, int64_t until_us, struct hf__nats_link *link,
                    char why[HF_KIT_WHY]);

/* tls.c. Fills in what the URL says of TLS, and the callbacks below. */
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
/* Called around the library's calls: in between the thread is inside of the gate of
   kit/fork_gate.h, because the library and OpenSSL have locks of the whole process. A SIGPIPE of
   this thread is held back, if the connection uses TLS. */
struct hf__nats_quiet {
    sigset_t mask;
    int on, pending;
};
void hf__nats_quiet(int tls, struct hf__nats_quiet *q);
void hf__nats_loud(const struct hf__nats_quiet *q);
/* Frees what OpenSSL has for this thread, which ends soon and is between these two calls: at the
   thread's end OpenSSL would do it under a lock of the whole process. */
void hf__nats_thread_ends(void);

/* link.c. Subscribes the connection to these subjects. All messages that come are kept. */
natsStatus hf__nats_subscribe(struct hf__nats_link *link, const char *subjects,
                              natsSubscription **ret);
/* Frees what came for a subscription, by hf__nats_free: for one that ends soon. It has no effect
   when the connection has been closed. `sub` may be NULL. */
void hf__nats_drop_unread(natsSubscription *sub);
/* Reads and writes what is ready. Returns 0 if the connection is closed. */
int hf__nats_serve(struct hf__nats_link *link, short revents);
/* Returns 1 if the connection has ended since the last request. Sends nothing. */
int hf__nats_ended(struct hf__nats_link *link);
/* Returns the events that poll has to wait for. */
short hf__nats_events(const struct hf__nats_link *link);
/*
 * Sends n requests and waits for all replies, until the local time until_us at most. Returns 0 if
 * all replies have come, except to requests that are `unsent`. Otherwise returns HF_UNAVAILABLE,
 * HF_DENIED or HF_NOMEM, and the reason in `why`: what was sent may have been carried out, and the
 * connection is gone. hf__nats_done frees the replies.
 */
int hf__nats_ask(struct hf__nats_link *link, struct hf__nats_request *r, size_t n, int64_t until_us,
                 char why[HF_NATS_WHY]);
void hf__nats_done(struct hf__nats_request *r, size_t n);
/*
 * Frees a message; NULL: nothing. By natsMsg_Destroy a thread of the library would free it, under a
 * mutex which may be locked when the process forks: the child's next message would wait for ever.
 */
void hf__nats_free(natsMsg *msg);

#endif
