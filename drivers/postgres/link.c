/*
 * link.c - see link.h.
 *
 * Contents: how to connect; errors; one statement. Connecting: dial.c.
 */
#include "link.h"

#include "kit/fork_gate.h"
#include "kit/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- how to connect ---- */

/* The driver's own option, and those of libpq that are passed on. */
static const char *const options[] = {"table",
                                      "user",
                                      "host",
                                      "hostaddr",
                                      "port",
                                      "passfile",
                                      "sslmode",
                                      "sslcert",
                                      "sslkey",
                                      "sslpassword",
                                      "sslrootcert",
                                      "sslcrl",
                                      "sslcrldir",
                                      "sslsni",
                                      "gssencmode",
                                      "krbsrvname",
                                      "requirepeer",
                                      "ssl_min_protocol_version",
                                      "channel_binding",
                                      "application_name",
                                      "options",
                                      "service",
                                      "target_session_attrs",
                                      NULL};

static int add(struct hf__pg_how *how, const char *name, const char *value)
{
    if (how->n == HF_PG_PARAMS) return HF_INVALID;
    how->name[how->n] = strdup(name);
    how->value[how->n] = strdup(value);
    return how->name[how->n] && how->value[how->n++] ? 0 : HF_NOMEM;
}

static int names(const struct hf__pg_how *how, const char *name)
{
    for (int i = 0; i < how->n; i++)
        if (!strcmp(how->name[i], name)) return 1;
    return 0;
}

/* Reads a list of hosts, "a:1,[::1]:2,c", into libpq's two lists of hosts and ports. A single host
   was read before. */
static int add_hosts(struct hf__pg_how *how, const char *list)
{
    char hosts[300], ports[300];
    size_t n = 0, m = 0, ported = 0;
    if (!strchr(list, ',')) return add(how, "host", list);
    for (const char *at = list;; at++) {
        size_t all = strcspn(at, ","), open = *at == '[', len = strcspn(at, open ? "]," : ":,");
        const char *behind = at + len + (open && at[len] == ']');
        if (open && at[len] != ']') return HF_INVALID;
        if (behind < at + all && *behind != ':') return HF_INVALID;
        const char *port = behind < at + all ? behind + 1 : at + all;
        n += (size_t)snprintf(hosts + n, sizeof hosts - n, "%s%.*s", at == list ? "" : ",",
                              (int)(len - open), at + open);
        m += (size_t)snprintf(ports + m, sizeof ports - m, "%s%.*s", at == list ? "" : ",",
                              (int)(at + all - port), port);
        ported |= port < at + all;
        at += all;
        if (n >= sizeof hosts || m >= sizeof ports) return HF_INVALID;
        if (!*at) break;
    }
    int rc = add(how, "host", hosts);
    return rc || !ported ? rc : names(how, "port") ? HF_INVALID : add(how, "port", ports);
}

void hf__pg_how_free(struct hf__pg_how *how)
{
    for (int i = 0; i <= HF_PG_PARAMS; i++) {
        if (how->value[i]) explicit_bzero(how->value[i], strlen(how->value[i]));
        free(how->name[i]);
        free(how->value[i]);
    }
}

int hf__pg_how(const hf_url *url, struct hf__pg_how *how, hf_error *err)
{
    char value[1024];
    int rc = 0;
    if (hf__unknown_option(url, options, value, sizeof value))
        return hf_fail(err, HF_INVALID, 0, "postgres: open '%s': unknown option '%s'", url->safe,
                       value);
    for (const char *const *name = options + 1; *name && !rc; name++) {
        rc = hf_url_get(url, *name, value, sizeof value);
        if (rc == HF_UNSUPPORTED)
            rc = 0;
        else if (!rc)
            rc = add(how, *name, value);
    }
    if (!rc && url->host[0]) rc = add_hosts(how, url->host);
    if (!rc && url->user[0]) rc = add(how, "user", url->user);
    if (!rc && url->password[0]) rc = add(how, "password", url->password);
    if (!rc && url->path[0] == '/' && url->path[1]) rc = add(how, "dbname", url->path + 1);
    if (!rc && url->port) {
        snprintf(value, sizeof value, "%d", url->port);
        rc = names(how, "port") ? HF_INVALID : add(how, "port", value);
    }
    /* Longer than the driver's own deadline, so that the driver's message is shown. */
    snprintf(value, sizeof value, "%lld", (long long)how->io_timeout_ms + 1000);
    if (!rc) rc = add(how, "tcp_user_timeout", value);
    if (!rc) rc = add(how, "fallback_application_name", "holdfast");
    if (!rc) rc = add(how, "client_encoding", "UTF8");
    return rc ? hf_fail(err, rc, 0, "postgres: open '%s': an option is too long or given twice",
                        url->safe)
              : 0;
}

/* ---- errors ---- */

static int starts(const char *state, const char *with)
{
    return !strncmp(state, with, strlen(with));
}

/* More codes (see hf__pg_code) of statements that were refused or rolled back. A server that is
   asked directly undoes each statement that fails. A program between server and client (pgcat:
   58000) answers with other codes, also if it lost the server's reply to a write. */
static const char *const undone[] = {
    "0A",    /* not supported */
    "21",    /* a wrong number of rows */
    "25",    /* the transaction doesn't allow it: read-only, failed, idle for too long */
    "26",    /* the server doesn't know the prepared statement */
    "53",    /* too many connections, no memory */
    "54",    /* a limit of the program's */
    "55",    /* an object isn't in the right state; a lock wasn't granted in time */
    "57014", /* canceled, for example by statement_timeout */
    "P0",    /* raised by a trigger */
};

int hf__pg_code(const char *state, int ambiguous)
{
    if (starts(state, "40")) return ambiguous; /* sent again, it may succeed */
    if (starts(state, "08") || starts(state, "57P") || !*state) return ambiguous;
    if (starts(state, "28") || starts(state, "42501")) return HF_DENIED;
    if (starts(state, "53100")) return HF_FULL;
    if (starts(state, "3D000") || starts(state, "3F000")) return HF_INVALID;
    /* The text doesn't exist in the server's encoding. */
    if (starts(state, "22021") || starts(state, "22P05")) return HF_INVALID;
    if (starts(state, "XX001") || starts(state, "XX002")) return HF_CORRUPT;
    if (starts(state, "42") || starts(state, "22") || starts(state, "23")) return HF_CORRUPT;
    for (size_t i = 0; i < sizeof undone / sizeof *undone; i++)
        if (starts(state, undone[i])) return HF_UNAVAILABLE;
    return ambiguous;
}

int hf__pg_is_demoted(const char *state) { return starts(state, "25006"); }

/* Copies the first line of libpq's text, which has several. */
static void first_line(const char *from, char *to, size_t cap)
{
    while (*from == '\n' || *from == ' ') from++;
    snprintf(to, cap, "%.*s", (int)strcspn(from, "\n"), from);
}

/* ---- one statement ---- */

enum { TEXT_OID = 25 };

void hf__pg_disconnect(struct hf__pg_link *link)
{
    hf__gate_begin();
    PQfinish(link->pg);
    hf__gate_end();
    link->pg = NULL;
    link->asked = link->prepared = 0;
    link->forgets = 0;
}

int hf__pg_broken(struct hf__pg_link *link)
{
    struct pollfd p = {PQsocket(link->pg), POLLIN, 0};
    if (PQstatus(link->pg) != CONNECTION_OK) return 1;
    if (poll(&p, 1, 0) <= 0) return 0;
    hf__gate_begin();
    int read = PQconsumeInput(link->pg);
    hf__gate_end();
    return !read || PQstatus(link->pg) != CONNECTION_OK;
}

static int succeeded(const PGresult *r)
{
    ExecStatusType status = PQresultStatus(r); /* NULL counts as a failure */
    return status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK;
}

/* Reads the next result, which may be NULL. Returns 1; 0: it didn't come in time, or the connection
   broke. */
static int next_result(PGconn *pg, int64_t until_us, PGresult **ret)
{
    for (;;) {
        int more = PQflush(pg);
        if (more < 0) return 0;
        if (!more && !PQisBusy(pg)) break;
        struct pollfd p = {PQsocket(pg), more ? POLLIN | POLLOUT : POLLIN, 0};
        if (hf__gate_wait_until(&p, 1, until_us) <= 0 || !PQconsumeInput(pg)) return 0;
    }
    *ret = PQgetResult(pg);
    return 1;
}

PGresult *hf__pg_reply(struct hf__pg_link *link, int64_t until_us)
{
    PGresult *first = NULL, *r;
    int pipelined = PQpipelineStatus(link->pg) != PQ_PIPELINE_OFF, none = 0;
    while (none < 2 && next_result(link->pg, until_us, &r)) {
        none = r ? 0 : none + 1;
        if (r ? PQresultStatus(r) == PGRES_PIPELINE_SYNC : !pipelined) {
            PQclear(r);
            return first;
        }
        /* A statement that was executed may still fail at the commit, whose result follows. */
        int counts = r && (!first || !succeeded(r));
        PQclear(counts ? first : r);
        if (counts) first = r;
    }
    PQclear(first);
    return NULL;
}

/* Returns 1 if a prepared statement wasn't executed, because the server doesn't have it any more,
   or its result type has changed. */
static int not_known(const char *state) { return starts(state, "26") || starts(state, "0A"); }

int hf__pg_often(struct hf__pg_often *ret, int number, char *sql)
{
    ret->sql = sql;
    ret->bit = 1u << number;
    if (sql)
        snprintf(ret->name, sizeof ret->name, "holdfast_%016llx",
                 (unsigned long long)hf_key_hash(sql, strlen(sql)));
    return sql != NULL;
}

/* All parameters are texts, which the statement casts, so that it may leave some of them unused. */
static const Oid *texts(Oid types[HF_PG_VALUES])
{
    for (int i = 0; i < HF_PG_VALUES; i++) types[i] = TEXT_OID;
    return types;
}

int hf__pg_send_prepare(struct hf__pg_link *link, const struct hf__pg_often *often, int n)
{
    Oid types[HF_PG_VALUES];
    return PQsendPrepare(link->pg, often->name, often->sql, n, texts(types));
}

int hf__pg_send(struct hf__pg_link *link, const struct hf__pg_often *often, int n,
                const char *const *values)
{
    Oid types[HF_PG_VALUES];
    if (link->prepared & often->bit)
        return PQsendQueryPrepared(link->pg, often->name, n, values, NULL, NULL, 0);
    return PQsendQueryParams(link->pg, often->sql, n, texts(types), values, NULL, NULL, 0);
}

/* Prepares a statement from its second use on, because that costs a round trip. Returns 0 if the
   connection broke; then the statement wasn't sent. */
static int prepare(struct hf__pg_link *link, const struct hf__pg_often *often, int n,
                   int64_t until_us)
{
    if (!often->bit || link->pooled || link->forgets || link->prepared & often->bit) return 1;
    if (!(link->asked & often->bit)) {
        link->asked |= often->bit;
        return 1;
    }
    if (!hf__pg_send_prepare(link, often, n)) return 0;
    PGresult *r = hf__pg_reply(link, until_us);
    const char *state = r ? PQresultErrorField(r, PG_DIAG_SQLSTATE) : NULL;
    if (r && PQresultStatus(r) == PGRES_COMMAND_OK) link->prepared |= often->bit;
    /* The statement exists already: a pooler has given this connection a session of another client.
     */
    if (state && starts(state, "42P05")) link->forgets = 1;
    PQclear(r);
    return r && PQstatus(link->pg) == CONNECTION_OK;
}

/* Writes the reason why there is no answer. */
static void words(const struct hf__pg_how *how, const struct hf__pg_link *link, int64_t until_us,
                  char *why, size_t cap)
{
    if (link->until_us && hf__local_us() >= until_us)
        snprintf(why, cap, "no answer in time");
    else if (hf__local_us() >= until_us)
        snprintf(why, cap, "no answer within %lld ms", (long long)how->io_timeout_ms);
    else
        first_line(PQerrorMessage(link->pg), why, cap);
}

static int ask(const struct hf__pg_how *how, struct hf__pg_link *link,
               const struct hf__pg_often *often, int n, const char *const *values, int ambiguous,
               PGresult **ret, char ret_state[6], const char *what, const char *key, hf_error *err)
{
    char why[300];
    int64_t until_us = link->until_us ? link->until_us : hf__local_us() + how->io_timeout_ms * 1000;
    ret_state[0] = 0;
    if (!prepare(link, often, n, until_us) || !hf__pg_send(link, often, n, values)) {
        words(how, link, until_us, why, sizeof why);
        hf__pg_disconnect(link);
        return hf_fail(err, HF_UNAVAILABLE, 0, "postgres: %s '%s': %s", what, key, why);
    }
    PGresult *r = hf__pg_reply(link, until_us);
    if (succeeded(r)) {
        *ret = r;
        return 0;
    }
    const char *state = r ? PQresultErrorField(r, PG_DIAG_SQLSTATE) : NULL;
    snprintf(ret_state, 6, "%s", state ? state : "");
    if (r)
        first_line(PQresultErrorMessage(r), why, sizeof why);
    else
        words(how, link, until_us, why, sizeof why);
    int gone = !r || PQstatus(link->pg) != CONNECTION_OK || hf__pg_is_demoted(ret_state);
    int code = hf__pg_code(ret_state, ambiguous);
    PQclear(r);
    if (gone) hf__pg_disconnect(link);
    return hf_fail(err, code, 0, "postgres: %s '%s': %s", what, key, why);
}

int hf__pg_ask(const struct hf__pg_how *how, struct hf__pg_link *link,
               const struct hf__pg_often *often, int n, const char *const *values, int ambiguous,
               PGresult **ret, char ret_state[6], const char *what, const char *key, hf_error *err)
{
    hf__gate_begin();
    int rc = ask(how, link, often, n, values, ambiguous, ret, ret_state, what, key, err);
    if (rc && link->pg && link->prepared & often->bit && not_known(ret_state)) {
        link->prepared = 0;
        link->forgets = 1;
        rc = ask(how, link, often, n, values, ambiguous, ret, ret_state, what, key, err);
    }
    hf__gate_end();
    return rc;
}
