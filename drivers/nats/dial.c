/*
 * dial.c - nats: connecting. See link.h.
 *
 * kit/dial.h finds an address that accepts connections. libnats is then given only that numeric
 * address. So libnats never looks up a name, and never spends the deadline on one server of a list.
 *
 * At its first use libnats makes the whole process ignore SIGPIPE. That is undone here: the program
 * that uses Holdfast has to decide that, and the programs that it starts would inherit the choice.
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

struct login {
    const struct hf__nats_how *how;
    struct hf__nats_link *link;
    char password[HF_SECRET_CAP];
};

static int log_in(void *arg, struct hf__attempt *a, int64_t until_us)
{
    const struct login *l = arg;
    const struct hf__nats_how *how = l->how;
    struct hf__nats_link *link = l->link;
    char address[HF_ENDPOINT_TEXT], url[HF_ENDPOINT_TEXT + 32];
    close(hf__dial_take(a));
    hf__endpoint_text(&a->at, address);
    snprintf(url, sizeof url, strchr(address, ':') ? "nats://[%s]:%s" : "nats://%s:%s", address,
             how->at.port[a->target]);
    link->tls = how->tls;
    int rc =
        hf__nats_log_in(how, how->at.host[a->target], url, l->password, until_us, link, a->why);
    natsStatus s = rc ? NATS_OK : make_inbox(how, link);
    if (s != NATS_OK) {
        snprintf(a->why, sizeof a->why, "%s", natsStatus_GetText(s));
        rc = s == NATS_NO_MEMORY ? HF_NOMEM : HF_UNAVAILABLE;
    }
    /* The protocol tells its errors apart by their texts. */
    a->busy = rc && strcasestr(a->why, "maximum connections");
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

int hf__nats_connect(const struct hf__nats_how *how, struct hf__nats_link *link, int64_t until_us,
                     hf_error *err)
{
    const char *const files[][2] = {{"creds", how->creds},
                                    {"tls_ca", how->files.ca},
                                    {"tls_cert", how->files.cert},
                                    {"tls_key", how->files.key},
                                    {NULL, NULL}};
    struct hf__dial_target targets[HF_DIAL_TARGETS];
    struct login l = {.how = how, .link = link};
    const struct hf__connection to = {"nats", targets, how->at.n, NULL, log_in, &l, how->opened};
    char why[HF_KIT_WHY];
    int rc = begin(err);
    if (rc) return rc;
    hf__hosts_targets(&how->at, targets);
    rc = hf__password_get(&how->secret, how->password, l.password, why);
    if (!rc) rc = hf__credentials_check(files, how->opened, why);
    rc = rc ? hf_fail(err, rc, 0, "nats: connect: %s", why) : hf__connect(&to, until_us, err);
    explicit_bzero(l.password, sizeof l.password);
    return rc;
}
