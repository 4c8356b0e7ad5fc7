/*
 * connect.c - mongodb: finds the server that can be written, among the hosts that the URL names.
 *
 * kit/dial.h tries the hosts: all names are looked up at once, and each address has its own
 * attempt. So a mute name server or a dead member costs only a part of the time. For each host that
 * accepts a connection a libmongoc client is made, which may connect to that host, and to members
 * that this host names and the URL doesn't; not to the other hosts of the URL.
 *
 * libmongoc gets its connections from this file (as the stream initiator) while it looks for a
 * server. If it asks for another connection later, the connection is refused, and the client is
 * replaced.
 *
 * A refused connection is a stream that is broken from the beginning, never NULL. libmongoc (1.23,
 * for one) may ask for a connection while it holds a lock of its own; for a NULL it would take that
 * lock again, and wait for ever.
 */
#include "kit/fork_gate.h"
#include "link.h"

#include "os.h"
#include "stream.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { WHY_CAP = 400 };

/* The search for a server that can be written. */
struct hf__mg_search {
    const struct hf__mg_how *how;
    struct hf__dial *dial;     /* NULL: libmongoc hasn't asked for a connection yet */
    struct hf__attempt *found; /* the host that is tried now; NULL: no host is left */
    int64_t until_us;
    int code;              /* the error if no host is left */
    char refused[WHY_CAP]; /* why libmongoc was last refused a connection; or "" */
};

/* ---- connections for libmongoc ---- */

/* Sets the error of a refused connection: libmongoc then takes the host for unreachable. Returns
   NULL. */
static mongoc_stream_t *not_this(bson_error_t *error)
{
    bson_set_error(error, MONGOC_ERROR_STREAM, MONGOC_ERROR_STREAM_NOT_ESTABLISHED,
                   "not connected");
    return NULL;
}

static mongoc_stream_t *none(bson_error_t *error, const char *why)
{
    bson_set_error(error, MONGOC_ERROR_STREAM, MONGOC_ERROR_STREAM_CONNECT, "%s", why);
    return NULL;
}

/* Returns the stream of a connected socket, after the TLS handshake if there is TLS. */
static mongoc_stream_t *bare_stream_of(struct hf__mg_link *link, int fd, const char *host,
                                       bson_error_t *error)
{
    const struct hf__mg_how *how = link->search->how;
    mongoc_stream_t *bare = hf__mg_stream(link, fd);
    if (!bare) return none(error, "out of memory");
    if (!how->tls) return bare;
    mongoc_ssl_opt_t ssl = how->ssl;
    mongoc_stream_t *tls = mongoc_stream_tls_new_with_hostname(bare, host, &ssl, 1);
    if (!tls) {
        mongoc_stream_destroy(bare);
        return none(error, "TLS: the files of certificates or keys can't be used");
    }
    int64_t left_ms = (link->until_us - hf__local_us()) / 1000;
    if (left_ms > 0 && mongoc_stream_tls_handshake_block(tls, host, (int32_t)left_ms, error))
        return tls;
    if (left_ms <= 0) none(error, "TLS: no answer in time");
    mongoc_stream_destroy(tls);
    return NULL;
}

static mongoc_stream_t *stream_of(struct hf__mg_link *link, int fd, const char *host,
                                  bson_error_t *error)
{
    return hf__mg_observe(link, bare_stream_of(link, fd, host, error));
}

/* These call the functions of kit/dial.h outside the fork gate, because they wait: for the network,
   and for threads that look up names. */
static int dial_begin(const struct hf__dial_target *target, size_t n, struct hf__dial **ret)
{
    hf__gate_wait();
    int rc = hf__dial_begin(target, n, NULL, NULL, ret);
    hf__gate_go_on();
    return rc;
}

static int dial_next(struct hf__dial *dial, int64_t until_us, struct hf__attempt **ret)
{
    hf__gate_wait();
    int rc = hf__dial_next(dial, until_us, ret);
    hf__gate_go_on();
    return rc;
}

static void dial_end(struct hf__dial *dial)
{
    hf__gate_wait();
    hf__dial_end(dial);
    hf__gate_go_on();
}

static void next_host(struct hf__mg_link *link)
{
    struct hf__mg_search *s = link->search;
    s->code = dial_next(s->dial, s->until_us, &s->found);
    link->until_us = s->code ? s->until_us : hf__dial_share(s->dial, s->until_us);
}

/* Connects to a member that a host of the URL has named. */
static mongoc_stream_t *member(struct hf__mg_link *link, const char *name, unsigned port,
                               bson_error_t *error)
{
    char number[HF_MG_PORT_CAP], why[WHY_CAP];
    const struct hf__dial_target target = {name, number};
    struct hf__dial *dial;
    struct hf__attempt *found;
    int fd = -1;
    snprintf(number, sizeof number, "%u", port);
    int rc = dial_begin(&target, 1, &dial);
    if (rc) return none(error, "out of memory");
    rc = dial_next(dial, link->until_us, &found);
    if (!rc) fd = hf__dial_take(found);
    hf__dial_why(dial, why, sizeof why);
    dial_end(dial);
    return rc ? none(error, why) : stream_of(link, fd, name, error);
}

/* Returns the index of a host among those of the URL; n_hosts: the URL doesn't name it. */
static size_t place_of(const struct hf__mg_how *how, const mongoc_host_list_t *host)
{
    size_t i = 0;
    char number[HF_MG_PORT_CAP];
    snprintf(number, sizeof number, "%u", (unsigned)host->port);
    while (i < how->n_hosts && (strcasecmp(how->host[i].host, host->host) != 0 ||
                                strcmp(how->host[i].port, number) != 0))
        i++;
    return i;
}

static mongoc_stream_t *reach(struct hf__mg_link *link, const mongoc_host_list_t *host,
                              bson_error_t *error)
{
    struct hf__mg_search *s = link->search;
    if (!s) return not_this(error);
    size_t place = place_of(s->how, host);
    if (!s->dial) {
        if (dial_begin(s->how->host, s->how->n_hosts, &s->dial))
            return none(error, "out of memory");
        next_host(link);
    }
    if (place == s->how->n_hosts)
        return s->found ? member(link, host->host, host->port, error) : not_this(error);
    if (!s->found || s->found->target != place || s->found->fd < 0) return not_this(error);
    return stream_of(link, hf__dial_take(s->found), host->host, error);
}

static mongoc_stream_t *initiate(const mongoc_uri_t *uri, const mongoc_host_list_t *host, void *arg,
                                 bson_error_t *error)
{
    struct hf__mg_link *link = arg;
    mongoc_stream_t *found = reach(link, host, error);
    (void)uri;
    if (found) return found;
    if (link->search && error->code != MONGOC_ERROR_STREAM_NOT_ESTABLISHED)
        snprintf(link->search->refused, WHY_CAP, "%.*s", WHY_CAP - 1, error->message);
    return hf__mg_stream(link, -1);
}

/* ---- one client ---- */

/* Returns 0 if a server of that type can be a store; else the code, with the reason. */
static int judge(struct hf__mg_link *link, const char *type, char why[WHY_CAP])
{
    link->replicated = !strcmp(type, "RSPrimary");
    if (link->replicated || !strcmp(type, "Standalone")) return 0;
    int never = !strcmp(type, "RSArbiter") || !strcmp(type, "LoadBalancer");
    int router = !strcmp(type, "Mongos");
    snprintf(why, WHY_CAP, "%s",
             router  ? "a sharded cluster, each router of which has a clock of its own"
             : never ? "neither a primary nor one that may become it"
                     : "not a primary, so it can't be written (name all hosts, and replicaSet)");
    return router || never ? HF_UNSUPPORTED : HF_UNAVAILABLE;
}

/* Makes a libmongoc client for the host that is tried, and lets it look for a server. Returns 0 or
   the code, with the reason. */
static int ask_one(const struct hf__mg_how *how, struct hf__mg_link *link, char why[WHY_CAP])
{
    bson_error_t e = {0, 0, ""};
    char type[32];
    link->broken = 0;
    link->search->refused[0] = 0;
    link->client = mongoc_client_new_from_uri_with_error(how->uri, &e);
    if (!link->client) {
        snprintf(why, WHY_CAP, "%.*s", (int)strcspn(e.message, "\n"), e.message);
        return HF_INVALID;
    }
    mongoc_client_set_error_api(link->client, MONGOC_ERROR_API_VERSION_2);
    if (!mongoc_uri_get_appname(how->uri)) mongoc_client_set_appname(link->client, "holdfast");
    if (!how->tls_by_libmongoc) mongoc_client_set_stream_initiator(link->client, initiate, link);
    mongoc_server_description_t *server = mongoc_client_select_server(link->client, true, NULL, &e);
    if (!server) {
        int late = link->broken == ETIMEDOUT;
        const char *refused = link->search->refused;
        const char *said = late ? "no answer in time" : *refused ? refused : e.message;
        snprintf(why, WHY_CAP, "%.*s", (int)strcspn(said, "\n"), said);
        return hf__mg_code(&e, HF_UNAVAILABLE);
    }
    snprintf(type, sizeof type, "%s", mongoc_server_description_type(server));
    mongoc_server_description_destroy(server);
    return judge(link, type, why);
}

/* ---- the search ---- */

/* Goes on to the next host, after this one has failed with *ret_rc and `why`. Returns 1; 0: there
   is none, and *ret_rc and `why` are about all hosts. */
static int go_on(struct hf__mg_link *link, int *ret_rc, char why[WHY_CAP])
{
    struct hf__mg_search *s = link->search;
    if (!s->dial) return 0;
    if (s->found) {
        hf__dial_fail(s->dial, s->found, *ret_rc, why);
        next_host(link);
        if (s->found) return 1;
    }
    *ret_rc = s->code;
    hf__dial_why(s->dial, why, WHY_CAP);
    return 0;
}

int hf__mg_connect(const struct hf__mg_how *how, struct hf__mg_link *link, hf_error *err)
{
    struct hf__mg_search s = {.how = how};
    char why[WHY_CAP] = "the program is ending";
    int rc = HF_UNAVAILABLE;
    s.until_us = link->until_us = hf__local_us() + how->io_timeout_ms * 1000;
    link->search = &s;
    while (hf__mg_begin()) {
        hf_low_hold(); /* so that libmongoc and OpenSSL get no descriptor 0, 1 or 2 */
        rc = ask_one(how, link, why);
        hf_low_free();
        if (rc) hf__mg_disconnect(link);
        int again = rc && go_on(link, &rc, why);
        hf__mg_end();
        if (!again) break;
    }
    dial_end(s.dial);
    link->search = NULL;
    link->first_until_us = s.until_us;
    return rc ? hf_fail(err, rc, 0, "mongodb: connect: %s", why) : 0;
}
