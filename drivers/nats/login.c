/*
 * login.c - nats: one connection to one server, within a deadline. See link.h.
 *
 * The library has a deadline for the login, but if a server falls silent between its greeting and
 * the end of the login, the library waits without a limit, and nothing can interrupt it. So a
 * separate thread logs in, and the caller leaves that thread behind at the deadline. The thread
 * goes on until the server closes the connection, and then frees its memory.
 */
#include "link.h"

#include "kit/await.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The caller waits this much longer than the library's own deadline, whose error says more. */
enum { GRACE_US = 100000 };
enum { WAITED_FOR, ENDED, LEFT };

struct login {
    struct hf__nats_how how;
    char host[HF_HOST_TEXT], url[HF_ENDPOINT_TEXT + 32], password[HF_SECRET_CAP];
    int64_t until_us;
    struct hf__nats_socket *socket;
    natsConnection *nc;
    int rc, state, done_fd; /* state: atomic */
    char why[HF_KIT_WHY];
};

/* ---- the library's socket, for which the thread that makes a request waits ---- */

static natsStatus attach(void **own, void *loop, natsConnection *nc, natsSock fd)
{
    static const int on = 1, seconds = 5;
    struct hf__nats_socket *socket = *own = loop;
    (void)nc;
    socket->fd = fd;
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    /* With keepalives a connection that waits for notifications and sends nothing also notices that
       the host is gone. */
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof seconds);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &seconds, sizeof seconds);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &on, sizeof on);
    return NATS_OK;
}

static natsStatus wants_read(void *own, bool add)
{
    (void)own, (void)add; /* hf__nats_events always waits for reading */
    return NATS_OK;
}

static natsStatus wants_write(void *own, bool add)
{
    ((struct hf__nats_socket *)own)->writes = add;
    return NATS_OK;
}

static natsStatus detach(void *own)
{
    ((struct hf__nats_socket *)own)->fd = -1;
    return NATS_OK;
}

/* An error handler that does nothing: without one the library prints errors. */
static void say_nothing(natsConnection *nc, natsSubscription *sub, natsStatus s, void *own)
{
    (void)nc, (void)sub, (void)s, (void)own;
}

/* ---- in the thread ---- */

static int code_of(const struct hf__nats_how *how, natsStatus s)
{
    switch (s) {
    case NATS_CONNECTION_AUTH_FAILED:
    case NATS_NOT_PERMITTED:
        /* The password was probably changed on the server first, and will be in the file soon. */
        return how->opened && (how->secret.path[0] || how->creds[0]) ? HF_UNAVAILABLE : HF_DENIED;
    /* TLS worked before, so the failure is temporary: certificates are being renewed. */
    case NATS_SSL_ERROR:
    case NATS_SECURE_CONNECTION_REQUIRED:
    case NATS_SECURE_CONNECTION_WANTED: return how->opened ? HF_UNAVAILABLE : HF_DENIED;
    case NATS_NO_MEMORY: return HF_NOMEM;
    default: return HF_UNAVAILABLE;
    }
}

static natsStatus set_login(const struct login *g, natsOptions *o)
{
    const struct hf__nats_how *how = &g->how;
    if (how->creds[0]) return natsOptions_SetUserCredentialsFromFiles(o, how->creds, NULL);
    if (how->user[0]) return natsOptions_SetUserInfo(o, how->user, g->password);
    return g->password[0] ? natsOptions_SetToken(o, g->password) : NATS_OK;
}

static natsStatus set_options(const struct login *g, natsOptions *o)
{
    int64_t left_ms = (g->until_us - hf__local_us()) / 1000;
    natsStatus s = natsOptions_SetURL(o, g->url);
    if (s == NATS_OK)
        s = natsOptions_SetEventLoop(o, g->socket, attach, wants_read, wants_write, detach);
    if (s == NATS_OK) s = natsOptions_SetTimeout(o, left_ms > 1 ? left_ms : 1);
    if (s == NATS_OK) s = natsOptions_SetAllowReconnect(o, false);
    /* Otherwise the library would also try servers that only the cluster names, each for the whole
       time. */
    if (s == NATS_OK) s = natsOptions_SetIgnoreDiscoveredServers(o, true);
    if (s == NATS_OK) s = natsOptions_SetSendAsap(o, true);
    if (s == NATS_OK) s = natsOptions_SetPingInterval(o, 0);
    if (s == NATS_OK) s = natsOptions_SetName(o, "holdfast");
    if (s == NATS_OK) s = natsOptions_SetErrorHandler(o, say_nothing, NULL);
    if (s == NATS_OK && g->how.tls) s = hf__nats_set_tls(&g->how, o, g->host);
    return s == NATS_OK ? set_login(g, o) : s;
}

/* Writes to g->why why the login failed, and returns the code. The library's text begins with a
   place in its source, "(file:n): ", which is left out. */
static int explain(struct login *g, natsStatus s)
{
    const char *text = nats_GetLastError(NULL), *place = text ? strstr(text, "): ") : NULL;
    if (place && *text == '(') text = place + 3;
    if (!text || !*text) text = natsStatus_GetText(s);
    if (s == NATS_TIMEOUT) text = "no answer in time";
    snprintf(g->why, sizeof g->why, "%.*s", (int)strcspn(text, "\r\n"), text);
    if (g->how.tls && hf__nats_key_is_encrypted()) {
        snprintf(g->why, sizeof g->why,
                 "tls_key: the key is encrypted; name one without a passphrase");
        return g->how.opened ? HF_UNAVAILABLE : HF_INVALID;
    }
    if (g->how.tls && hf__nats_handshake_was_late()) {
        snprintf(g->why, sizeof g->why, "TLS: no answer in time");
        return HF_UNAVAILABLE;
    }
    /* The server is shutting down, or doesn't speak TLS. */
    if (s == NATS_SSL_ERROR && hf__nats_handshake_was_cut()) return HF_UNAVAILABLE;
    return code_of(&g->how, s);
}

static void login_free(struct login *g)
{
    struct hf__nats_quiet quiet;
    hf__nats_quiet(g->nc && g->how.tls, &quiet);
    natsConnection_Destroy(g->nc);
    hf__nats_loud(&quiet);
    if (g->done_fd >= 0) close(g->done_fd);
    free(g->socket);
    explicit_bzero(g->password, sizeof g->password);
    explicit_bzero(g->how.password, sizeof g->how.password);
    free(g);
}

static void *connects(void *arg)
{
    struct login *g = arg;
    natsOptions *o = NULL;
    struct hf__nats_quiet quiet;
    hf__nats_quiet(g->how.tls, &quiet);
    natsStatus s = natsOptions_Create(&o);
    if (s == NATS_OK) s = set_options(g, o);
    hf__nats_handshake_ends(g->until_us);
    if (s == NATS_OK) s = natsConnection_Connect(&g->nc, o);
    hf__nats_handshake_ends(0);
    natsOptions_Destroy(o);
    g->rc = s == NATS_OK ? 0 : explain(g, s);
    hf__nats_thread_ends();
    hf__nats_loud(&quiet);
    if (__atomic_exchange_n(&g->state, ENDED, __ATOMIC_SEQ_CST) == LEFT)
        login_free(g);
    else
        hf__wake(g->done_fd);
    return NULL;
}

/* ---- the thread that waits for the login ---- */

static int start(struct login *g)
{
    pthread_t thread;
    sigset_t all, before;
    g->socket = calloc(1, sizeof *g->socket);
    g->done_fd = hf__wake_fd();
    if (!g->socket || g->done_fd < 0) return HF_NOMEM;
    g->socket->fd = -1;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&thread, NULL, connects, g);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc) return HF_NOMEM;
    pthread_detach(thread);
    return 0;
}

/* Waits for the thread until the deadline. Returns 0: the thread has ended, and the caller frees g;
   1: the thread is left behind, and frees g itself. */
static int await(struct login *g)
{
    struct pollfd p = {g->done_fd, POLLIN, 0};
    return hf__wait_until(&p, 1, g->until_us + GRACE_US) <= 0 &&
           __atomic_exchange_n(&g->state, LEFT, __ATOMIC_SEQ_CST) != ENDED;
}

int hf__nats_log_in(const struct hf__nats_how *how, const char *host, const char *url,
                    const char *password, int64_t until_us, struct hf__nats_link *link,
                    char why[HF_KIT_WHY])
{
    struct login *g = calloc(1, sizeof *g);
    snprintf(why, HF_KIT_WHY, "out of memory");
    if (!g) return HF_NOMEM;
    g->how = *how;
    g->until_us = until_us;
    g->done_fd = -1;
    snprintf(g->host, sizeof g->host, "%s", host);
    snprintf(g->url, sizeof g->url, "%s", url);
    snprintf(g->password, sizeof g->password, "%s", password);
    hf_low_hold();
    int rc = start(g), left = !rc && await(g);
    hf_low_free();
    if (left) {
        snprintf(why, HF_KIT_WHY, "no answer to the login in time");
        return HF_UNAVAILABLE;
    }
    if (!rc) {
        rc = g->rc;
        snprintf(why, HF_KIT_WHY, "%s", g->why);
        link->nc = g->nc;
        link->socket = g->socket;
        g->nc = NULL;
        g->socket = NULL;
    }
    login_free(g);
    return rc;
}
