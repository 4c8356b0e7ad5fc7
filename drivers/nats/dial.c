/*
 * dial.c - nats: connecting. See link.h.
 *
 * kit/dial.h finds an address that accepts connections. The library is then given only that numeric
 * address. So it never looks up a name, and never spends the deadline on one server of a list.
 *
 * At its first use the library makes the whole process ignore SIGPIPE. That is undone here: the
 * program has to decide that, and the programs that it starts would inherit it.
 */
#include "kit/fork_gate.h"
#include "link.h"

#include "os.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- one attempt ---- */

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

static int log_in(const struct hf__nats_how *how, struct hf__nats_link *link,
                  const struct hf__attempt *a, const char *password, int64_t until_us,
                  char why[HF_KIT_WHY])
{
    char address[HF_ENDPOINT_TEXT], url[HF_ENDPOINT_TEXT + 32];
    hf__endpoint_text(&a->at, address);
    snprintf(url, sizeof url, strchr(address, ':') ? "nats://[%s]:%s" : "nats://%s:%s", address,
             how->at.port[a->target]);
    link->tls = how->tls;
    int rc = hf__nats_log_in(how, how->at.host[a->target], url, password, until_us, link, why);
    natsStatus s = rc ? NATS_OK : make_inbox(how, link);
    if (s != NATS_OK) {
        snprintf(why, HF_KIT_WHY, "%s", natsStatus_GetText(s));
        rc = s == NATS_NO_MEMORY ? HF_NOMEM : HF_UNAVAILABLE;
    }
    if (rc) hf__nats_disconnect(link);
    return rc;
}

/* Closes the connection. The socket is shut down first, because the library would wait half a
   second for the server otherwise. It still reads what the server has sent before. */
void hf__nats_disconnect(struct hf__nats_link *link)
{
    char unread[4096];
    struct hf__nats_quiet quiet;
    hf__nats_quiet(link->tls, &quiet);
    hf__nats_drop_unread(link->inbox);
    if (link->nc && hf__nats_fd(link) >= 0) {
        shutdown(link->socket->fd, SHUT_RDWR);
        while (recv(link->socket->fd, unread, sizeof unread, MSG_DONTWAIT) > 0) continue;
        /* OpenSSL may hold one record that it has read but not passed on: three reads are enough.
         */
        for (int i = 0; i < 3 && link->socket->fd >= 0; i++)
            natsConnection_ProcessReadEvent(link->nc);
    }
    natsSubscription_Destroy(link->inbox);
    natsConnection_Destroy(link->nc);
    hf__nats_loud(&quiet);
    link->inbox = NULL;
    link->nc = NULL;
    free(link->socket);
    link->socket = NULL;
}

/* ---- connecting ---- */

/* Starts the library, once per process. Restores the action for SIGPIPE, which the library changes.
   The library's threads block all signals. */
static int begin(hf_error *err)
{
    static pthread_mutex_t starting =
        PTHREAD_MUTEX_INITIALIZER; /* taken inside the fork gate only */
    static int started;
    struct sigaction before;
    sigset_t all, mask;
    natsStatus s = NATS_OK;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &mask);
    hf__gate_begin();
    pthread_mutex_lock(&starting);
    if (!started) {
        sigaction(SIGPIPE, NULL, &before);
        s = nats_Open(-1);
        sigaction(SIGPIPE, &before, NULL);
        started = s == NATS_OK;
    }
    pthread_mutex_unlock(&starting);
    hf__gate_end();
    pthread_sigmask(SIG_SETMASK, &mask, NULL);
    if (s == NATS_OK) return 0;
    /* nats_Open contacts no server: it only allocates memory and starts threads. */
    return hf_fail(err, HF_NOMEM, 0, "nats: begin: %s: out of memory, or of threads",
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

/* Checks the files before the library opens them. The library would wait if one is a named pipe,
   and reports all its errors as one. */
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
    if (rc) {
        hf_fail(err, rc, 0, "nats: connect: %s", secret);
    } else if (hf__dial_begin(targets, how->at.n, NULL, NULL, &d)) {
        rc = hf_fail(err, HF_NOMEM, 0, "nats: connect: out of memory");
    } else {
        rc = dial(how, link, password, d, until_us);
        hf__dial_why(d, why, sizeof why);
        hf__dial_end(d);
        if (rc) hf_fail(err, rc, 0, "nats: connect %s", why);
    }
    explicit_bzero(password, sizeof password);
    return rc;
}
