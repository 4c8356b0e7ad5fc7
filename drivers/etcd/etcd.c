/*
 * etcd.c - etcd://HOST:PORT,.../PREFIX (etcds: over TLS), rows as keys of an etcd v3, by its gRPC.
 * See etcd.h and doc/stores/etcd.md.
 */
#include "etcd.h"

#include "kit/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- opening ---- */

static void et_close(hf_store *st)
{
    hf__et_notify_close(st);
    hf__et_words_close(st);
    hf__et_http_close(&st->http);
    free(st->own);
    free(st->marks.at);
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

/* Checks that the server answers, and that this user may read. */
static int prepare(hf_store *st, hf_error *err)
{
    const hf_rowkey any = {.text = "holdfast", .len = 8};
    int64_t clock_us;
    hf_row row;
    hf_row_init(&row);
    int rc = hf__et_look(st, &any, &row, &clock_us, err);
    hf_row_clear(&row);
    /* If that row is damaged, the client that uses it reports the damage. */
    return rc == HF_CORRUPT ? 0 : rc;
}

static int et_open(const hf_url *url, int64_t io_timeout_ms, hf_store **ret, hf_caps *caps,
                   hf_error *err)
{
    (void)caps;
    hf_store *st = calloc(1, sizeof *st);
    if (!st) return hf_fail(err, HF_NOMEM, 0, "etcd: open '%s': out of memory", url->safe);
    pthread_mutex_init(&st->mu, NULL);
    hf__et_sessions_open(st);
    int rc = hf__et_http_open(&st->http, url, io_timeout_ms, err);
    if (!rc) rc = read_prefix(st, url, err);
    if (!rc) rc = hf__et_notify_open(st, err);
    if (!rc && hf__et_words_open(st))
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

/* Reports that this user may not read some setting of the server. It isn't reported as a failure,
   because locks need no administrator's rights. */
static int not_told(void (*say)(void *arg, int ok, const char *text), void *arg, const char *what)
{
    char text[100];
    snprintf(text, sizeof text, "this user may not ask for %s", what);
    say(arg, 1, text);
    return 0;
}

static int inspect_members(hf_store *st, void (*say)(void *arg, int ok, const char *text),
                           void *arg, hf_error *err)
{
    struct hf__et_reply reply = {NULL, 0, 0};
    char text[300];
    HfEt__EmptyRequest request = HF_ET__EMPTY_REQUEST__INIT;
    int rc = hf__et_post(&st->http, HF_ET_MEMBERS, &request.base, NULL, HF_UNAVAILABLE, &reply,
                         "inspect", "", err);
    if (rc == HF_DENIED) return not_told(say, arg, "its members");
    if (rc) return rc;
    const HfEt__MemberListResponse *list = (HfEt__MemberListResponse *)reply.message;
    size_t voters = 0;
    for (size_t i = 0; i < list->n_members; i++) voters += !list->members[i]->islearner;
    if (voters < 2)
        snprintf(
            text, sizeof text,
            "one member: while it is down nothing can be locked, and its disk has the only copy");
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
    struct hf__et_reply reply = {NULL, 0, 0};
    HfEt__AlarmRequest request = HF_ET__ALARM_REQUEST__INIT; /* GET */
    int rc = hf__et_post(&st->http, HF_ET_ALARMS, &request.base, NULL, HF_UNAVAILABLE, &reply,
                         "inspect", "", err);
    if (rc == HF_DENIED) return not_told(say, arg, "its alarms");
    if (rc) return rc;
    int space = 0, corrupt = 0;
    const HfEt__AlarmResponse *list = (HfEt__AlarmResponse *)reply.message;
    for (size_t i = 0; i < list->n_alarms; i++) {
        space |= list->alarms[i]->alarm == HF_ET__ALARM_MEMBER__ALARM_TYPE__NOSPACE;
        corrupt |= list->alarms[i]->alarm == HF_ET__ALARM_MEMBER__ALARM_TYPE__CORRUPT;
    }
    say(arg, !space,
        space ? "NOSPACE: its quota is used up, nothing can be written"
              : "no alarm NOSPACE: there is room within its quota");
    if (corrupt) say(arg, 0, "CORRUPT: its members disagree about what they store");
    hf__et_free(&reply);
    return 0;
}

/* Returns 1 if this release of etcd may lose or alter a confirmed write when a member crashes:
   etcd's pull request 13908 (mended in 3.5.3) and issue 14370 (mended in 3.5.5). */
static int loses_answers(const char *version)
{
    unsigned major, minor, patch;
    return sscanf(version, "%u.%u.%u", &major, &minor, &patch) == 3 && major == 3 && minor == 5 &&
           patch < 5;
}

static int et_inspect(hf_store *st, void (*say)(void *arg, int ok, const char *text), void *arg,
                      hf_error *err)
{
    struct hf__et_reply reply = {NULL, 0, 0};
    char text[sizeof st->prefix + 60];
    HfEt__EmptyRequest request = HF_ET__EMPTY_REQUEST__INIT;
    int rc = hf__et_post(&st->http, HF_ET_STATUS, &request.base, NULL, HF_UNAVAILABLE, &reply,
                         "inspect", "", err);
    if (rc) return rc;
    const HfEt__StatusResponse *is = (HfEt__StatusResponse *)reply.message;
    snprintf(text, sizeof text, "the rows are the keys that begin with '%.*s'", (int)st->n_prefix,
             st->prefix);
    say(arg, 1, text);
    const char *version =
        is->version && hf__is_utf8(is->version, strlen(is->version)) ? is->version : "?";
    snprintf(text, sizeof text, "etcd %.60s, %lld KiB of data", version,
             (long long)(is->dbsize / 1024));
    say(arg, 1, text);
    if (loses_answers(version)) {
        snprintf(text, sizeof text, "etcd %.60s may lose writes in a crash: use 3.5.5 or later",
                 version);
        say(arg, 0, text);
    }
    int led = is->leader != 0;
    say(arg, led, led ? "there is a leader" : "there is no leader: nothing can be written");
    hf__et_free(&reply);
    rc = inspect_members(st, say, arg, err);
    return rc ? rc : inspect_alarms(st, say, arg, err);
}

static const hf_session_ops sessions = {.make = hf__et_session_make,
                                        .keep = hf__et_session_keep,
                                        .left = hf__et_session_left,
                                        .end = hf__et_session_end,
                                        .stale = hf__et_session_stale};

#define ENTRY(scheme, of)                      \
    HF_DRIVER_ENTRY(scheme) = {                \
        .abi = HF_DRIVER_ABI,                  \
        .name = #scheme,                       \
        .about = "keys in an etcd cluster" of, \
        .caps = {.queue_cap = 256,             \
                 .holders_cap = 256,           \
                 .poll_ms = 750,               \
                 .threads = 1,                 \
                 .queues = 1,                  \
                 .notify = &hf__et_notify,     \
                 .sessions = &sessions},       \
        .open = et_open,                       \
        .close = et_close,                     \
        .get = hf__et_get,                     \
        .replace = hf__et_replace,             \
        .scan = hf__et_scan,                   \
        .inspect = et_inspect,                 \
    }

/* A module has one scheme. If drivers are built into the library, it has both. */
#if defined HF_DRIVERS_BUILT_IN || !defined HF_ETCD_TLS
ENTRY(etcd, "");
#endif
#if defined HF_DRIVERS_BUILT_IN || defined HF_ETCD_TLS
ENTRY(etcds, ", over TLS");
#endif
