/*
 * dial.c - postgres: connecting. See link.h.
 *
 * Contents: where the servers are; one attempt; connecting. What is asked of a server then:
 * session.c.
 *
 * libpq is given one address at a time, as hostaddr beside its host. So it never looks up a name,
 * and never spends the deadline on one server of a list: kit/dial.h divides the time. What
 * target_session_attrs asks for, a server that can be written to, session.c finds out itself.
 *
 * A thread is inside of kit/fork_gate.h while it is in libpq, which has locks of the whole process,
 * as the libraries have that it uses (OpenSSL, GSSAPI).
 */
#include "kit/dial.h"
#include "kit/fork_gate.h"
#include "link.h"

#include "os.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- where the servers are ---- */

/* The name in messages of the socket that libpq uses by default. */
#define DEFAULT_SOCKET "/the default socket"

/* A server: the entries at one place of libpq's lists of hosts, addresses and ports. */
struct server {
    char host[300]; /* the host as it is passed to libpq; "": none */
    char seen[320]; /* the host or address that is dialed and named in messages */
    char port[8];
};

struct login {
    const struct hf__pg_how *how;
    struct hf__pg_link *link;
    struct server server[HF_DIAL_TARGETS];
    struct hf__dial_target target[HF_DIAL_TARGETS];
    size_t n;
    int asks; /* 1: the options have no sslpassword, so libpq would ask for a key's passphrase on
                 the terminal */
};

static int among(const char *name, const char *const *names)
{
    while (*names && strcmp(*names, name) != 0) names++;
    return *names != NULL;
}

/* Makes parameters for libpq: those of `how`, except the names in `without`, then `more`, in
   pairs. */
struct params {
    const char *name[HF_PG_PARAMS + 8], *value[HF_PG_PARAMS + 8];
};

static void make_params(struct params *to, const struct hf__pg_how *how, const char *const *without,
                        const char *const *more)
{
    int n = 0;
    for (int i = 0; i < how->n; i++) {
        if (among(how->name[i], without)) continue;
        to->name[n] = how->name[i];
        to->value[n++] = how->value[i];
    }
    for (; *more; more += 2) {
        to->name[n] = more[0];
        to->value[n++] = more[1];
    }
    to->name[n] = to->value[n] = NULL;
}

/* Finds out what libpq makes of the parameters, the environment and the service file. It begins a
   connection with an sslmode that doesn't exist, which libpq refuses before it connects. The
   password keeps libpq from reading a password file. */
static PQconninfoOption *effective(const struct hf__pg_how *how)
{
    static const char *const without[] = {"sslmode", "password", NULL};
    static const char *const more[] = {"sslmode", "none of them", "password", "-", NULL};
    struct params p;
    make_params(&p, how, without, more);
    hf_low_hold(); /* libpq may open a service file: not as descriptor 0, 1 or 2 */
    hf__gate_begin();
    PGconn *pg = PQconnectStartParams(p.name, p.value, 0);
    PQconninfoOption *found = pg ? PQconninfo(pg) : NULL;
    PQfinish(pg);
    hf__gate_end();
    hf_low_free();
    return found;
}

static const char *option(const PQconninfoOption *all, const char *name)
{
    while (all->keyword && strcmp(all->keyword, name) != 0) all++;
    return all->keyword && all->val ? all->val : "";
}

/* Copies entry i of a list that libpq divides at commas. If `one_for_all`, a single entry counts
   for all i. Returns 0 if there are fewer entries, or if the entry is too long. */
static int entry(const char *list, size_t i, int one_for_all, char *to, size_t cap)
{
    if (one_for_all && !strchr(list, ',')) i = 0;
    for (; i; i--) {
        list = strchr(list, ',');
        if (!list) return 0;
        list++;
    }
    return (size_t)snprintf(to, cap, "%.*s", (int)strcspn(list, ","), list) < cap;
}

static int port_number(const char *text)
{
    char *end;
    long n = strtol(text, &end, 10);
    return *text && !*end && n > 0 && n < 65536;
}

static size_t entries(const char *list)
{
    size_t n = 1;
    while ((list = strchr(list, ','))) n++, list++;
    return n;
}

static const char *read_server(const PQconninfoOption *all, size_t i, struct server *s)
{
    const char *hosts = option(all, "host"), *addresses = option(all, "hostaddr");
    char address[64] = "";
    s->host[0] = 0;
    if (*hosts && !entry(hosts, i, 0, s->host, sizeof s->host)) return "a host is too long";
    if (*addresses && !entry(addresses, i, 0, address, sizeof address))
        return "hostaddr: one is too long";
    if (!entry(option(all, "port"), i, 1, s->port, sizeof s->port)) return "a port is too long";
    if (!*s->port) snprintf(s->port, sizeof s->port, "5432");
    if (!port_number(s->port)) return "a port isn't a number up to 65535";
    /* Uses the path of a socket, an abstract one (@), or libpq's default socket. */
    int local = !*address && (*s->host == '@' || !*s->host);
    snprintf(s->seen, sizeof s->seen, "%s%s", local ? "/" : "",
             *address   ? address
             : *s->host ? s->host
                        : &DEFAULT_SOCKET[1]);
    return NULL;
}

static int read_servers(const struct hf__pg_how *how, struct login *l, hf_error *err)
{
    PQconninfoOption *all = effective(how);
    const char *why = NULL;
    if (!all) return hf_fail(err, HF_NOMEM, 0, "postgres: connect: out of memory");
    l->how = how;
    const char *addresses = option(all, "hostaddr"), *hosts = option(all, "host");
    const char *ports = option(all, "port");
    l->asks = !*option(all, "sslpassword");
    l->n = entries(*addresses ? addresses : hosts);
    if (l->n > HF_DIAL_TARGETS) why = "more than 16 hosts";
    if (*addresses && *hosts && entries(hosts) != l->n) why = "not as many hosts as hostaddr";
    if (strchr(ports, ',') && entries(ports) != l->n) why = "not as many ports as hosts";
    for (size_t i = 0; i < l->n && !why; i++) {
        why = read_server(all, i, &l->server[i]);
        l->target[i] = (struct hf__dial_target){l->server[i].seen, l->server[i].port};
    }
    PQconninfoFree(all);
    return why ? hf_fail(err, HF_INVALID, 0, "postgres: connect: %s", why) : 0;
}

int hf__pg_check(const struct hf__pg_how *how, hf_error *err)
{
    static const char *const without[] = {"host", "hostaddr", "port", "password", NULL};
    static const char *const more[] = {"host", "/", "port", "1", "password", "-", NULL};
    static const char *const attrs[] = {"", "any", "read-write", "primary", NULL};
    static const char *const reading[] = {"read-only", "standby", "prefer-standby", NULL};
    struct login l;
    struct params p;
    char wanted[32];
    int rc = read_servers(how, &l, err);
    if (rc) return rc;
    PQconninfoOption *all = effective(how);
    if (!all) return hf_fail(err, HF_NOMEM, 0, "postgres: open: out of memory");
    snprintf(wanted, sizeof wanted, "%s", option(all, "target_session_attrs"));
    PQconninfoFree(all);
    if (among(wanted, reading))
        return hf_fail(err, HF_INVALID, 0,
                       "postgres: open: target_session_attrs=%s: locks need a server that can be "
                       "written to",
                       wanted);
    /* An address without a server: libpq checks the options, and then fails. */
    make_params(&p, how, without, more);
    hf_low_hold();
    hf__gate_begin();
    int bad = PQpingParams(p.name, p.value, 0) == PQPING_NO_ATTEMPT;
    /* Asks once more, because libpq may have had no memory. */
    if (bad) bad = PQpingParams(p.name, p.value, 0) == PQPING_NO_ATTEMPT;
    bad |= !among(wanted, attrs);
    PGconn *pg = bad ? PQconnectStartParams(p.name, p.value, 0) : NULL;
    const char *told = pg ? PQerrorMessage(pg) : "out of memory";
    if (bad) hf_fail(err, HF_INVALID, 0, "postgres: open: %.*s", (int)strcspn(told, "\n"), told);
    PQfinish(pg);
    hf__gate_end();
    hf_low_free();
    return bad ? HF_INVALID : 0;
}

/* ---- one attempt ---- */

static enum hf__attempt_state refused(const struct login *l, struct hf__attempt *a, int tls)
{
    int told = strcmp(l->server[a->target].seen, DEFAULT_SOCKET) != 0;
    a->code = hf__pg_refusal(l->how, a->own, tls, told, &a->busy, a->why);
    return HF_ATTEMPT_FAILED;
}

static enum hf__attempt_state start(void *arg, struct hf__attempt *a)
{
    static const char *const without[] = {"host", "hostaddr", "port", "target_session_attrs", NULL};
    const struct login *l = arg;
    const struct server *s = &l->server[a->target];
    char address[HF_ENDPOINT_TEXT] = "";
    if (a->at.to.any.sa_family != AF_UNIX) hf__endpoint_text(&a->at, address);
    const char *more[] = {"target_session_attrs", "any", "port", s->port, "host", s->host,
                          "hostaddr", address,
                          /* Without this libpq would ask for a passphrase on the terminal. */
                          l->asks ? "sslpassword" : NULL, "none", NULL};
    struct params p;
    make_params(&p, l->how, without, more);
    PGconn *pg = PQconnectStartParams(p.name, p.value, 0);
    a->own = pg;
    if (!pg) {
        a->code = HF_NOMEM;
        snprintf(a->why, sizeof a->why, "out of memory");
        return HF_ATTEMPT_FAILED;
    }
    if (PQstatus(pg) == CONNECTION_BAD) return refused(l, a, 0);
    PQsetErrorVerbosity(pg, PQERRORS_VERBOSE);
    a->fd = PQsocket(pg);
    a->events = POLLOUT;
    return HF_ATTEMPT_RUNS;
}

static enum hf__attempt_state step(void *arg, struct hf__attempt *a)
{
    PGconn *pg = a->own;
    int tls = hf__pg_tls_goes_on(pg);
    PostgresPollingStatusType next = PQconnectPoll(pg);
    if (next == PGRES_POLLING_FAILED) return refused(arg, a, tls);
    if (next == PGRES_POLLING_OK) return HF_ATTEMPT_READY;
    a->fd = PQsocket(pg);
    a->events = next == PGRES_POLLING_READING ? POLLIN : POLLOUT;
    int linked = PQstatus(pg) != CONNECTION_STARTED && PQstatus(pg) != CONNECTION_NEEDED;
    return linked ? HF_ATTEMPT_LINKED : HF_ATTEMPT_RUNS;
}

static void stop(void *arg, struct hf__attempt *a)
{
    (void)arg;
    PQfinish(a->own);
}

/* ---- connecting ---- */

/* Begins the session, if this server can be a store. */
static int log_in(void *arg, struct hf__attempt *a, int64_t until_us)
{
    const struct login *l = arg;
    l->link->pg = a->own;
    a->own = NULL;
    l->link->until_us = until_us;
    int rc = hf__pg_begin(l->how, l->link, a->why);
    l->link->until_us = 0;
    if (rc) hf__pg_disconnect(l->link);
    return rc;
}

int hf__pg_connect(const struct hf__pg_how *how, struct hf__pg_link *link, int64_t until_us,
                   hf_error *err)
{
    static const struct hf__dial_ops ops = {start, step, stop};
    struct login l = {.link = link};
    int rc = read_servers(how, &l, err);
    if (rc) return rc;
    const struct hf__connection to = {"postgres", l.target, l.n, &ops, log_in, &l, how->opened};
    return hf__connect(&to, until_us, err);
}
