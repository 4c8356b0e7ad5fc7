/*
 * etcd.c - etcd://HOST:PORT,.../PREFIX (etcds: over TLS), rows as keys of an etcd v3, by its JSON
 * gateway. See etcd.h and doc/stores/etcd.md.
 */
#include "etcd.h"

#include "os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- leases ---- */

static int own_add(hf_store *st, uint64_t session)
{
    int ok = 1;
    pthread_mutex_lock(&st->mu);
    if (st->n_own == st->own_cap) {
        size_t cap = st->own_cap ? st->own_cap * 2 : 8;
        uint64_t *more = realloc(st->own, cap * sizeof *more);
        ok = more != NULL;
        if (more) {
            st->own = more;
            st->own_cap = cap;
        }
    }
    if (ok) st->own[st->n_own++] = session;
    pthread_mutex_unlock(&st->mu);
    return ok;
}

static void own_drop(hf_store *st, uint64_t session)
{
    pthread_mutex_lock(&st->mu);
    for (size_t i = 0; i < st->n_own; i++)
        if (st->own[i] == session) {
            memmove(&st->own[i], &st->own[i + 1], (--st->n_own - i) * sizeof *st->own);
            break;
        }
    pthread_mutex_unlock(&st->mu);
}

static int64_t number(const json_t *j, const char *name)
{
    const json_t *n = json_object_get(j, name);
    if (json_is_integer(n)) return json_integer_value(n);
    return json_is_string(n) ? strtoll(json_string_value(n), NULL, 10) : 0;
}

/* A request about one lease. */
static int ask(hf_store *st, const char *path, uint64_t session, int64_t ttl, int ambiguous,
               struct hf__et_reply *ret, const char *what, hf_error *err)
{
    char id[24], text[24], name[24];
    snprintf(id, sizeof id, "%llu", (unsigned long long)session);
    snprintf(name, sizeof name, "%016llx", (unsigned long long)session);
    snprintf(text, sizeof text, "%lld", (long long)ttl);
    json_t *body =
        ttl ? json_pack("{s:s, s:s}", "ID", id, "TTL", text) : json_pack("{s:s}", "ID", id);
    int rc = hf__et_post(&st->http, path, body, ambiguous, ret, what, name, err);
    json_decref(body);
    return rc;
}

static int et_lease_make(hf_store *st, int64_t lease_ms, uint64_t *ret, int64_t *ret_ms,
                         int64_t *ret_clock_us, hf_error *err)
{
    struct hf__et_reply reply = {NULL, 0};
    uint64_t session;
    do {
        /* Our choice, so that it never repeats, whatever becomes of the cluster. */
        hf__random(&session, sizeof session);
        session &= INT64_MAX;
    } while (!session);
    int rc = ask(st, "/v3/lease/grant", session, (lease_ms + 999) / 1000, HF_UNKNOWN, &reply,
                 "lease", err);
    if (rc) return rc;
    *ret_ms = number(reply.json, "TTL") * 1000;
    *ret_clock_us = reply.clock_us;
    if (*ret_ms < lease_ms)
        rc = hf_fail(err, HF_UNAVAILABLE, 0, "etcd: lease: %lld ms instead of %lld",
                     (long long)*ret_ms, (long long)lease_ms);
    else if (!own_add(st, session))
        rc = hf_fail(err, HF_NOMEM, 0, "etcd: lease: out of memory");
    hf__et_free(&reply);
    if (!rc) *ret = session;
    return rc;
}

/* The term of the member that answered. */
static int64_t term_of(const json_t *reply)
{
    return number(json_object_get(reply, "header"), "raft_term");
}

/*
 * Who leads extends a lease without asking anybody, and one who was paused or cut off may still
 * believe that it leads: what it extends its successor knows nothing of (etcd issue 15247). The
 * answer names the term from before the lease was extended. A majority confirms the term of a read
 * that is linearizable; if that came after and is of the same term, who extended the lease led
 * then.
 */
static int led_still(hf_store *st, uint64_t session, int64_t term, const char *what, hf_error *err)
{
    struct hf__et_reply reply = {NULL, 0};
    char name[24];
    snprintf(name, sizeof name, "%016llx", (unsigned long long)session);
    json_t *body = json_pack("{s:o, s:b}", "key", hf__et_key(st, "", ""), "count_only", 1);
    int rc = hf__et_post(&st->http, "/v3/kv/range", body, HF_UNAVAILABLE, &reply, what, name, err);
    json_decref(body);
    if (rc) return rc;
    if (!term || term_of(reply.json) != term)
        rc = hf_fail(err, HF_UNAVAILABLE, 0, "etcd: %s '%s': there is a new leader", what, name);
    hf__et_free(&reply);
    return rc;
}

static int et_lease_keep(hf_store *st, uint64_t session, int64_t *ret_ms, hf_error *err)
{
    struct hf__et_reply reply = {NULL, 0};
    int rc = ask(st, "/v3/lease/keepalive", session, 0, HF_UNAVAILABLE, &reply, "keep", err);
    if (rc) return rc;
    const json_t *result = json_object_get(reply.json, "result");
    int64_t ms = number(result, "TTL") * 1000, term = term_of(result);
    hf__et_free(&reply);
    if (ms <= 0)
        return hf_fail(err, HF_LOST, 0, "etcd: keep '%016llx': the lease has run out",
                       (unsigned long long)session);
    rc = led_still(st, session, term, "keep", err);
    if (!rc) *ret_ms = ms;
    return rc;
}

static int et_lease_left(hf_store *st, uint64_t session, int64_t *ret_ms, hf_error *err)
{
    struct hf__et_reply reply = {NULL, 0};
    int rc = ask(st, "/v3/lease/timetolive", session, 0, HF_UNAVAILABLE, &reply, "look", err);
    if (rc) return rc;
    int64_t ms = number(reply.json, "TTL") * 1000, term = term_of(reply.json);
    hf__et_free(&reply);
    if (ms < 0)
        return hf_fail(err, HF_LOST, 0, "etcd: look '%016llx': the lease has run out",
                       (unsigned long long)session);
    rc = led_still(st, session, term, "look", err);
    if (!rc) *ret_ms = ms;
    return rc;
}

static int et_lease_end(hf_store *st, uint64_t session, hf_error *err)
{
    struct hf__et_reply reply = {NULL, 0};
    own_drop(st, session);
    int rc = ask(st, "/v3/lease/revoke", session, 0, HF_UNAVAILABLE, &reply, "end", err);
    hf__et_free(&reply);
    return rc;
}

/* ---- opening ---- */

static void et_close(hf_store *st)
{
    hf__et_ear_close(st);
    hf__et_http_close(&st->http);
    free(st->own);
    pthread_mutex_destroy(&st->mu);
    free(st);
}

static int read_prefix(hf_store *st, const hf_url *url, hf_error *err)
{
    const char *path = url->path;
    if (!*path || !strcmp(path, "/")) path = "/holdfast/";
    int n = snprintf(st->prefix, sizeof st->prefix, "%s%s", path,
                     path[strlen(path) - 1] == '/' ? "" : "/");
    st->n_prefix = (size_t)n;
    if (n > 0 && st->n_prefix < 1024) return 0;
    return hf_fail(err, HF_INVALID, 0, "etcd: open '%s': the prefix is too long", url->safe);
}

/* Is it there, and may we read? */
static int prepare(hf_store *st, hf_error *err)
{
    const hf_rowkey any = {.text = "holdfast", .len = 8};
    int64_t clock_us;
    hf_row row;
    hf_row_init(&row);
    int rc = hf__et_get(st, &any, &row, &clock_us, err);
    hf_row_clear(&row);
    /* Whatever may be wrong with that row is its user's to hear. */
    return rc == HF_CORRUPT ? 0 : rc;
}

static int et_open(const hf_url *url, int64_t io_timeout_ms, hf_store **ret, hf_error *err)
{
    hf_store *st = calloc(1, sizeof *st);
    if (!st) return hf_fail(err, HF_NOMEM, 0, "etcd: open '%s': out of memory", url->safe);
    pthread_mutex_init(&st->mu, NULL);
    int rc = hf__et_http_open(&st->http, url, io_timeout_ms, err);
    if (!rc) rc = read_prefix(st, url, err);
    if (!rc && hf__et_ear_open(st))
        rc = hf_fail(err, HF_NOMEM, 0, "etcd: open '%s': out of memory", url->safe);
    if (!rc) rc = prepare(st, err);
    if (rc) {
        et_close(st);
        return rc;
    }
    *ret = st;
    return 0;
}

/* ---- doctor ---- */

/* Which is no fault: who only takes locks needn't be an administrator. */
static int not_told(void (*say)(void *arg, int ok, const char *text), void *arg, const char *what)
{
    char text[100];
    snprintf(text, sizeof text, "this user isn't told of %s: that is unknown", what);
    say(arg, 1, text);
    return 0;
}

static int inspect_members(hf_store *st, void (*say)(void *arg, int ok, const char *text),
                           void *arg, hf_error *err)
{
    struct hf__et_reply reply = {NULL, 0};
    char text[300];
    json_t *body = json_object();
    int rc = hf__et_post(&st->http, "/v3/cluster/member/list", body, HF_UNAVAILABLE, &reply,
                         "inspect", "", err);
    json_decref(body);
    if (rc == HF_DENIED) return not_told(say, arg, "its members");
    if (rc) return rc;
    size_t n = json_array_size(json_object_get(reply.json, "members")), voters = 0;
    for (size_t i = 0; i < n; i++)
        voters += !json_is_true(json_object_get(
            json_array_get(json_object_get(reply.json, "members"), i), "isLearner"));
    if (voters < 2)
        snprintf(text, sizeof text, "one member: nothing is lost with it, but it is all there is");
    else
        snprintf(text, sizeof text, "%zu members vote: it goes on without %zu of them", voters,
                 (voters - 1) / 2);
    say(arg, 1, text);
    hf__et_free(&reply);
    return 0;
}

static int inspect_alarms(hf_store *st, void (*say)(void *arg, int ok, const char *text), void *arg,
                          hf_error *err)
{
    struct hf__et_reply reply = {NULL, 0};
    json_t *body = json_pack("{s:s}", "action", "GET");
    int rc = hf__et_post(&st->http, "/v3/maintenance/alarm", body, HF_UNAVAILABLE, &reply,
                         "inspect", "", err);
    json_decref(body);
    if (rc == HF_DENIED) return not_told(say, arg, "its alarms");
    if (rc) return rc;
    int space = 0, corrupt = 0;
    const json_t *alarms = json_object_get(reply.json, "alarms");
    for (size_t i = 0; i < json_array_size(alarms); i++) {
        const char *name = json_string_value(json_object_get(json_array_get(alarms, i), "alarm"));
        space |= name && !strcmp(name, "NOSPACE");
        corrupt |= name && !strcmp(name, "CORRUPT");
    }
    say(arg, !space,
        space ? "NOSPACE: its quota is used up, nothing can be written"
              : "no alarm NOSPACE: there is room within its quota");
    if (corrupt) say(arg, 0, "CORRUPT: its members disagree about what they store");
    hf__et_free(&reply);
    return 0;
}

static int et_inspect(hf_store *st, void (*say)(void *arg, int ok, const char *text), void *arg,
                      hf_error *err)
{
    struct hf__et_reply reply = {NULL, 0};
    char text[300];
    json_t *body = json_object();
    int rc = hf__et_post(&st->http, "/v3/maintenance/status", body, HF_UNAVAILABLE, &reply,
                         "inspect", "", err);
    json_decref(body);
    if (rc) return rc;
    const char *version = json_string_value(json_object_get(reply.json, "version"));
    snprintf(text, sizeof text, "etcd %.60s, %lld KiB of data", version ? version : "?",
             (long long)(number(reply.json, "dbSize") / 1024));
    say(arg, 1, text);
    int led = number(reply.json, "leader") != 0;
    say(arg, led, led ? "there is a leader" : "there is no leader: nothing can be written");
    hf__et_free(&reply);
    rc = inspect_members(st, say, arg, err);
    return rc ? rc : inspect_alarms(st, say, arg, err);
}

extern HF_API const hf_driver HF_DRIVER_SYMBOL;
const hf_driver HF_DRIVER_SYMBOL = {
    .abi = HF_DRIVER_ABI,
#ifdef HF_ETCD_TLS
    .name = "etcds",
    .about = "keys in an etcd cluster, over TLS",
#else
    .name = "etcd",
    .about = "keys in an etcd cluster",
#endif
    .can = HF_CAN_THREADS | HF_CAN_LEASES,
    .queue_cap = 256,
    .holders_cap = 256,
    .poll_ms = 750,
    .open = et_open,
    .close = et_close,
    .get = hf__et_get,
    .swap = hf__et_swap,
    .lease_make = et_lease_make,
    .lease_keep = et_lease_keep,
    .lease_left = et_lease_left,
    .lease_end = et_lease_end,
    .listen = hf__et_listen,
    .watch = hf__et_watch,
    .interrupt = hf__et_interrupt,
    .scan = hf__et_scan,
    .inspect = et_inspect,
};
