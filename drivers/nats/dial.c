/*
 * dial.c - nats: connecting. See link.h.
 *
 * The library is given one numeric address at a time, of a server that has just accepted a
 * connection: so it never looks up a name, and never spends the deadline on one server of a list.
 *
 * The library ignores SIGPIPE in the whole process when it is first used. That is undone: it is the
 * program's to decide, and the programs that it starts would inherit it.
 */
#include "link.h"

#include "os.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- the library's socket, which the asking thread waits for ---- */

static natsStatus attach(void **own, void *loop, natsConnection *nc, natsSock fd)
{
    static const int on = 1, seconds = 5;
    struct hf__nats_link *link = *own = loop;
    (void)nc;
    link->fd = fd;
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    /* A host that is gone is noticed by who waits for notifications, too. */
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof seconds);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &seconds, sizeof seconds);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &on, sizeof on);
    return NATS_OK;
}

static natsStatus wants_read(void *own, bool add)
{
    (void)own, (void)add; /* always */
    return NATS_OK;
}

static natsStatus wants_write(void *own, bool add)
{
    ((struct hf__nats_link *)own)->writes = add;
    return NATS_OK;
}

static natsStatus detach(void *own)
{
    ((struct hf__nats_link *)own)->fd = -1;
    return NATS_OK;
}

/* Otherwise errors would be printed. */
static void say_nothing(natsConnection *nc, natsSubscription *sub, natsStatus s, void *own)
{
    (void)nc, (void)sub, (void)s, (void)own;
}

/* ---- one attempt ---- */

static int code_of(const struct hf__nats_how *how, natsStatus s)
{
    switch (s) {
    case NATS_CONNECTION_AUTH_FAILED:
    case NATS_NOT_PERMITTED:
        /* The server has a new password, and the file that it is read from will. */
        return how->opened && (how->secret.path[0] || how->creds[0]) ? HF_UNAVAILABLE : HF_DENIED;
    /* What worked before is passing: certificates are being renewed. */
    case NATS_SSL_ERROR:
    case NATS_SECURE_CONNECTION_REQUIRED:
    case NATS_SECURE_CONNECTION_WANTED: return how->opened ? HF_UNAVAILABLE : HF_DENIED;
    case NATS_NO_MEMORY: return HF_NOMEM;
    default: return HF_UNAVAILABLE;
    }
}

static natsStatus set_login(const struct hf__nats_how *how, natsOptions *o, const char *password)
{
    if (how->creds[0]) return natsOptions_SetUserCredentialsFromFiles(o, how->creds, NULL);
    if (how->user[0]) return natsOptions_SetUserInfo(o, how->user, password);
    return password[0] ? natsOptions_SetToken(o, password) : NATS_OK;
}

static natsStatus set_options(const struct hf__nats_how *how, natsOptions *o,
                              struct hf__nats_link *link, const char *host, const char *password,
                              int64_t left_ms)
{
    natsStatus s = natsOptions_SetEventLoop(o, link, attach, wants_read, wants_write, detach);
    if (s == NATS_OK) s = natsOptions_SetTimeout(o, left_ms);
    if (s == NATS_OK) s = natsOptions_SetAllowReconnect(o, false);
    /* Servers that the URL doesn't name would each have the whole time. */
    if (s == NATS_OK) s = natsOptions_SetIgnoreDiscoveredServers(o, true);
    if (s == NATS_OK) s = natsOptions_SetSendAsap(o, true);
    if (s == NATS_OK) s = natsOptions_SetPingInterval(o, 0);
    if (s == NATS_OK) s = natsOptions_SetName(o, "holdfast");
    if (s == NATS_OK) s = natsOptions_SetErrorHandler(o, say_nothing, NULL);
    if (s == NATS_OK && how->tls) s = hf__nats_set_tls(how, o, host);
    return s == NATS_OK ? set_login(how, o, password) : s;
}

static natsStatus make_inbox(const struct hf__nats_how *how, struct hf__nats_link *link)
{
    char all[sizeof link->prefix + 2];
    uint64_t id[2];
    hf__random(id, sizeof id);
    snprintf(link->prefix, sizeof link->prefix, "%s.%016llx%016llx", how->inbox,
             (unsigned long long)id[0], (unsigned long long)id[1]);
    snprintf(all, sizeof all, "%s.*", link->prefix);
    return hf__nats_subscribe(link, all, &link->inbox);
}

/* Why the login failed, and its code. */
static int explain(const struct hf__nats_how *how, natsStatus s, char why[HF_KIT_WHY])
{
    const char *text = nats_GetLastError(NULL);
    snprintf(why, HF_KIT_WHY, "%.*s", (int)strcspn(text ? text : "", "\r\n"), text ? text : "");
    if (!why[0]) snprintf(why, HF_KIT_WHY, "%s", natsStatus_GetText(s));
    if (how->tls && hf__nats_key_is_encrypted()) {
        snprintf(why, HF_KIT_WHY, "tls_key: the key is encrypted; name one without a passphrase");
        return how->opened ? HF_UNAVAILABLE : HF_INVALID;
    }
    if (!how->tls || !hf__nats_handshake_was_late()) return code_of(how, s);
    snprintf(why, HF_KIT_WHY, "TLS: no answer in time");
    return HF_UNAVAILABLE;
}

static int log_in(const struct hf__nats_how *how, struct hf__nats_link *link,
                  const struct hf__attempt *a, const char *password, int64_t until_us,
                  char why[HF_KIT_WHY])
{
    char address[HF_ENDPOINT_TEXT], url[HF_ENDPOINT_TEXT + 32];
    struct hf__nats_quiet quiet;
    natsOptions *o = NULL;
    int64_t left_ms = (until_us - hf__local_us()) / 1000;
    hf__endpoint_text(&a->at, address);
    snprintf(url, sizeof url, strchr(address, ':') ? "nats://[%s]:%s" : "nats://%s:%s", address,
             how->at.port[a->target]);
    hf__nats_quiet(how->tls, &quiet);
    unsigned held = hf__low_hold();
    link->fd = -1;
    link->writes = 0;
    link->tls = how->tls;
    natsStatus s = natsOptions_Create(&o);
    if (s == NATS_OK) s = natsOptions_SetURL(o, url);
    if (s == NATS_OK)
        s = set_options(how, o, link, how->at.host[a->target], password, left_ms > 1 ? left_ms : 1);
    hf__nats_handshake_ends(until_us);
    if (s == NATS_OK) s = natsConnection_Connect(&link->nc, o);
    hf__nats_handshake_ends(0);
    natsOptions_Destroy(o);
    hf__low_free(held);
    if (s == NATS_OK) s = make_inbox(how, link);
    hf__nats_loud(&quiet);
    if (s == NATS_OK) return 0;
    int rc = explain(how, s, why);
    hf__nats_disconnect(link);
    return rc;
}

/* The library would wait half a second for the server when it closes a connection that is sound. So
   it is shown the end of it, behind all that the server has sent. */
void hf__nats_disconnect(struct hf__nats_link *link)
{
    char unread[4096];
    struct hf__nats_quiet quiet;
    hf__nats_quiet(link->tls, &quiet);
    if (link->nc && link->fd >= 0) {
        shutdown(link->fd, SHUT_RDWR);
        while (recv(link->fd, unread, sizeof unread, MSG_DONTWAIT) > 0) continue;
        /* OpenSSL may have read more than it has shown: a record, at most. */
        for (int i = 0; i < 3 && link->fd >= 0; i++) natsConnection_ProcessReadEvent(link->nc);
    }
    natsSubscription_Destroy(link->inbox);
    natsConnection_Destroy(link->nc);
    hf__nats_loud(&quiet);
    link->inbox = NULL;
    link->nc = NULL;
    link->fd = -1;
}

/* ---- connecting ---- */

/* The library is begun, by one thread at a time for the sake of SIGPIPE, which it ignores from then
   on. Its threads get none of the program's signals. */
static int begin(hf_error *err)
{
    static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
    struct sigaction before;
    sigset_t all, mask;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &mask);
    pthread_mutex_lock(&one_at_a_time);
    sigaction(SIGPIPE, NULL, &before);
    natsStatus s = nats_Open(-1);
    sigaction(SIGPIPE, &before, NULL);
    pthread_mutex_unlock(&one_at_a_time);
    pthread_sigmask(SIG_SETMASK, &mask, NULL);
    if (s == NATS_OK) return 0;
    return hf_fail(err, s == NATS_NO_MEMORY ? HF_NOMEM : HF_UNAVAILABLE, 0, "nats: begin: %s",
                   natsStatus_GetText(s));
}

static int dial(const struct hf__nats_how *how, struct hf__nats_link *link, const char *password,
                struct hf__dial *d, int64_t until_us)
{
    struct hf__attempt *a;
    char why[HF_KIT_WHY];
    int rc;
    while (!(rc = hf__dial_next(d, until_us, &a))) {
        int fd = hf__dial_take(a);
        close(fd);
        rc = log_in(how, link, a, password, hf__dial_share(d, until_us), why);
        if (!rc) break;
        hf__dial_fail(d, a, rc, why);
    }
    return rc;
}

/* The library would wait for the writer of a named pipe, and tells nothing else apart. */
static int check_files(const struct hf__nats_how *how, char why[HF_KIT_WHY])
{
    const char *const of[][2] = {{"creds", how->creds},
                                 {"tls_ca", how->tls_ca},
                                 {"tls_cert", how->tls_cert},
                                 {"tls_key", how->tls_key}};
    int rc = 0;
    for (size_t i = 0; !rc && i < sizeof of / sizeof *of; i++)
        if (of[i][1][0]) rc = hf__credential_check(of[i][0], of[i][1], why);
    return rc == HF_INVALID && how->opened ? HF_UNAVAILABLE : rc;
}

int hf__nats_connect(const struct hf__nats_how *how, struct hf__nats_link *link, int64_t until_us,
                     hf_error *err)
{
    struct hf__dial_target targets[HF_DIAL_TARGETS];
    struct hf__dial *d;
    char why[500], secret[HF_KIT_WHY], password[HF_SECRET_CAP];
    int rc = begin(err);
    if (rc) return rc;
    hf__hosts_targets(&how->at, targets);
    memcpy(password, how->password, sizeof how->password);
    rc = how->secret.path[0] ? hf__secret_get(&how->secret, password, secret) : 0;
    if (!rc) rc = check_files(how, secret);
    if (rc) return hf_fail(err, rc, 0, "nats: connect: %s", secret);
    if (hf__dial_begin(targets, how->at.n, NULL, NULL, &d))
        return hf_fail(err, HF_NOMEM, 0, "nats: connect: out of memory");
    rc = dial(how, link, password, d, until_us);
    hf__dial_why(d, why, sizeof why);
    hf__dial_end(d);
    explicit_bzero(password, sizeof password);
    return rc ? hf_fail(err, rc, 0, "nats: connect %s", why) : 0;
}
