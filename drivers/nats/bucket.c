/*
 * bucket.c - nats: the bucket, which is a JetStream stream, and its clock. See store.h.
 *
 * Contents: replies; the clock; making it; opening; what doctor looks at.
 *
 * The clock is that of the server which leads the bucket's stream. The reply to STREAM.INFO has its
 * time (`ts`, since NATS 2.10). The reply to a write has no time, and a message has only the time
 * when it was written. So each operation sends STREAM.INFO, too, in the same round trip.
 * $SYS.REQ.USER.INFO also has a time, but that of the server to which the client has connected,
 * which is another server for other clients.
 */
#include "store.h"

#include "json.h"
#include "os.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- replies ---- */

int hf__nats_reply(const natsMsg *reply, json_t **ret, char why[HF_NATS_WHY])
{
    int no_memory = 0;
    *ret = NULL;
    if (!reply) { /* no request was sent; the caller finds the reason in hf__nats_request.unsent */
        snprintf(why, HF_NATS_WHY, "out of memory");
        return HF_NATS_NO_MEMORY;
    }
    if (natsMsg_IsNoResponders((natsMsg *)reply)) {
        snprintf(why, HF_NATS_WHY, "no answer from JetStream: it isn't enabled, or not ready");
        return HF_NATS_NOBODY;
    }
    json_t *all =
        hf__json_read(natsMsg_GetData(reply), (size_t)natsMsg_GetDataLength(reply), 0, &no_memory);
    json_t *error = json_object_get(all, "error");
    if (json_is_object(all) && !error) {
        *ret = all;
        return 0;
    }
    int said = (int)json_integer_value(json_object_get(error, "err_code"));
    const char *text = json_string_value(json_object_get(error, "description"));
    snprintf(why, HF_NATS_WHY, "%s", text ? text : "not a reply to this request");
    json_decref(all);
    if (no_memory) snprintf(why, HF_NATS_WHY, "out of memory");
    if (said < 10000) said = no_memory ? HF_NATS_NO_MEMORY : HF_NATS_GARBLED;
    return said;
}

int hf__nats_code(int said)
{
    switch (said) {
    case HF_NATS_NO_MEMORY: return HF_NOMEM;
    case 10002: /* a limit of the account is reached */
    case 10023: /* insufficient resources */
    case 10028:
    case 10047: /* insufficient storage */
    case 10054: /* the message is too long */
    case 10122: return HF_FULL;
    case 10109: return HF_DENIED; /* the stream is sealed */
    default: return HF_UNAVAILABLE;
    }
}

/* Sends one request. Returns 0, with the reply's JSON in *ret; else an HF_ code, with the reason.
 *ret_said: the status of the reply. */
static int ask(struct hf__nats_link *link, const char *subject, const char *data, int64_t until_us,
               json_t **ret, int *ret_said, char why[HF_NATS_WHY])
{
    struct hf__nats_request r = {.subject = subject, .data = data, .len = strlen(data)};
    *ret_said = 0;
    int rc = hf__nats_ask(link, &r, 1, until_us, why);
    if (!rc && (*ret_said = hf__nats_reply(r.reply, ret, why))) rc = hf__nats_code(*ret_said);
    hf__nats_done(&r, 1);
    return rc;
}

/* ---- the clock ---- */

int64_t hf__nats_clock(const json_t *info)
{
    const char *text = json_string_value(json_object_get(info, "ts"));
    return text ? hf__nats_time(text) : 0;
}

int hf__nats_server_clock(hf_store *st, struct hf__nats_link *link, int64_t until_us,
                          int64_t *ret_clock_us, char why[HF_NATS_WHY])
{
    json_t *reply;
    int said, rc = ask(link, "$SYS.REQ.USER.INFO", "", until_us, &reply, &said, why);
    (void)st;
    if (rc) return rc;
    const char *text = json_string_value(json_object_get(json_object_get(reply, "server"), "time"));
    *ret_clock_us = text ? hf__nats_time(text) : 0;
    json_decref(reply);
    if (*ret_clock_us) return 0;
    snprintf(why, HF_NATS_WHY, "the server tells no time");
    return HF_UNAVAILABLE;
}

/* ---- making it ---- */

/*
 * Makes the bucket. The bucket numbers its messages. A bucket that was removed and made again
 * starts at a greater number, so that a late write meant for the old bucket doesn't find the number
 * that it expects. With `republish` the server notifies the waiters after each write.
 */
static int make(hf_store *st, struct hf__nats_link *link, int replicas, int64_t until_us,
                int *ret_said, char why[HF_NATS_WHY])
{
    char subject[HF_NATS_NAME + 40], config[1200];
    json_t *reply = NULL;
    snprintf(subject, sizeof subject, "$JS.API.STREAM.CREATE.KV_%s", st->bucket);
    snprintf(config, sizeof config,
             "{\"name\":\"KV_%s\",\"subjects\":[\"$KV.%s.>\"],\"description\":\"locks of "
             "holdfast\",\"retention\":\"limits\",\"storage\":\"file\",\"discard\":\"new\","
             "\"max_msgs_per_subject\":1,\"max_msgs\":-1,\"max_bytes\":-1,\"max_age\":0,"
             "\"max_msg_size\":-1,\"max_consumers\":-1,\"num_replicas\":%d,\"deny_delete\":true,"
             "\"allow_rollup_hdrs\":true,\"allow_direct\":false,\"first_seq\":%lld,\"republish\":{"
             "\"src\":\"$KV.%s.>\",\"dest\":\"holdfast.%s.>\",\"headers_only\":true}}",
             st->bucket, st->bucket, replicas, (long long)hf__day_us(), st->bucket, st->bucket);
    int rc = ask(link, subject, config, until_us, &reply, ret_said, why);
    json_decref(reply);
    return rc;
}

enum { NAME_IN_USE = 10058, NO_CLUSTER = 10074 };

int hf__nats_make(hf_store *st, struct hf__nats_link *link, int64_t until_us, char why[HF_NATS_WHY])
{
    int said, rc = make(st, link, st->replicas ? st->replicas : 3, until_us, &said, why);
    if (rc && said == NO_CLUSTER && !st->replicas) rc = make(st, link, 1, until_us, &said, why);
    if (rc && said == NAME_IN_USE) return 0; /* another client has made it meanwhile */
    if (rc && said >= 10000 && rc == HF_UNAVAILABLE && said != 10008) rc = HF_UNSUPPORTED;
    return rc;
}

/* ---- opening ---- */

/* Returns why the bucket can't be a store; NULL: it can. */
static const char *unfit(const hf_store *st, const json_t *info)
{
    char subject[HF_NATS_NAME + 8];
    const json_t *config = json_object_get(info, "config");
    const json_t *subjects = json_object_get(config, "subjects");
    const char *first = json_string_value(json_array_get(subjects, 0));
    const char *kept = json_string_value(json_object_get(config, "retention"));
    snprintf(subject, sizeof subject, "$KV.%s.>", st->bucket);
    if (!hf__nats_clock(info)) return "the server is older than NATS 2.10: it tells no time";
    if (json_object_get(config, "mirror")) return "the bucket is a mirror: it can't be written";
    if (!first || strcmp(first, subject) != 0 || json_array_size(subjects) != 1)
        return "the stream isn't a bucket of keys and values";
    if (!kept || strcmp(kept, "limits") != 0)
        return "the stream deletes messages when they are read";
    return NULL;
}

/* Reads the prefix of the subjects on which the bucket republishes its writes. */
static void read_republish(hf_store *st, const json_t *info)
{
    const json_t *r = json_object_get(json_object_get(info, "config"), "republish");
    const char *from = json_string_value(json_object_get(r, "src"));
    const char *to = json_string_value(json_object_get(r, "dest"));
    char subject[HF_NATS_NAME + 8];
    size_t len = to ? strlen(to) : 0;
    snprintf(subject, sizeof subject, "$KV.%s.>", st->bucket);
    st->republished[0] = 0;
    if (!from || strcmp(from, subject) != 0 || len < 2 || len >= sizeof st->republished / 2 ||
        strcmp(to + len - 2, ".>") != 0)
        return;
    snprintf(st->republished, sizeof st->republished, "%.*s", (int)len - 1, to);
}

static int prepare(hf_store *st, struct hf__nats_link *link, const char *safe, int64_t until_us,
                   hf_error *err)
{
    char why[HF_NATS_WHY] = "";
    json_t *info = NULL;
    int said, rc = ask(link, st->info, "", until_us, &info, &said, why);
    if (said == HF_NATS_NO_STREAM && st->existing)
        return hf_fail(err, HF_UNAVAILABLE, ENOENT,
                       "no store at '%s': there is no bucket '%s'; the first lock makes it", safe,
                       st->bucket);
    if (said == HF_NATS_NO_STREAM) {
        rc = hf__nats_make(st, link, until_us, why);
        if (!rc) rc = ask(link, st->info, "", until_us, &info, &said, why);
    }
    const char *bad = rc ? NULL : unfit(st, info);
    read_republish(st, info);
    json_decref(info);
    if (bad) return hf_fail(err, HF_UNSUPPORTED, 0, "nats: open '%s': %s", st->bucket, bad);
    return rc ? hf_fail(err, rc, 0, "nats: open '%s': %s", st->bucket, why) : 0;
}

int hf__nats_prepare(hf_store *st, const char *safe, hf_error *err)
{
    int64_t until_us = hf__local_us() + st->how.io_timeout_ms * 1000;
    int rc;
    struct hf__nats_link *link = hf__links_get(&st->links, &rc, err);
    if (!rc) rc = prepare(st, link, safe, until_us, err);
    hf__links_put(&st->links, link);
    return rc;
}

/* ---- what doctor looks at ---- */

struct doctor {
    void (*say)(void *arg, int ok, const char *text);
    void *arg;
};

static int64_t number(const json_t *config, const char *name)
{
    return json_integer_value(json_object_get(config, name));
}

static int is(const json_t *config, const char *name, const char *value)
{
    const char *text = json_string_value(json_object_get(config, name));
    return text && !strcmp(text, value);
}

/* Reports settings by which the server may delete rows. */
static void say_limits(const struct doctor *d, const json_t *config)
{
    int drops = is(config, "discard", "old") &&
                (number(config, "max_bytes") > 0 || number(config, "max_msgs") > 0);
    int ages = number(config, "max_age") > 0;
    if (ages) d->say(d->arg, 0, "the bucket has a TTL: it deletes rows of held locks");
    if (drops) d->say(d->arg, 0, "the bucket has a limit and discards old messages: it loses rows");
    if (!ages && !drops) d->say(d->arg, 1, "no limit of the bucket takes a row away");
    if (json_is_true(json_object_get(config, "no_ack")))
        d->say(d->arg, 0, "no_ack: the server doesn't say what it has stored");
}

static void say_all(const hf_store *st, const struct doctor *d, const json_t *info)
{
    char text[300];
    const json_t *config = json_object_get(info, "config"), *cluster;
    int file = is(config, "storage", "file"), told = st->republished[0];
    int64_t replicas = number(config, "num_replicas");
    cluster = json_object_get(json_object_get(info, "cluster"), "name");
    snprintf(text, sizeof text, "the locks are in the bucket '%s'; waiters %s", st->bucket,
             told ? "are notified" : "poll, for it doesn't republish");
    d->say(d->arg, 1, text);
    d->say(d->arg, file,
           file ? "storage: file; a power cut may take the last writes, unless the server has "
                  "sync_interval: always"
                : "storage: memory: a restart of the server loses all locks");
    snprintf(text, sizeof text,
             replicas > 1 || !cluster
                 ? "replicas: %lld"
                 : "replicas: %lld, in a cluster: if one server is lost, all locks may be",
             (long long)replicas);
    d->say(d->arg, replicas > 1 || !cluster, text);
    say_limits(d, config);
}

int hf__nats_inspect(hf_store *st, void (*say)(void *arg, int ok, const char *text), void *arg,
                     hf_error *err)
{
    const struct doctor d = {say, arg};
    char why[HF_NATS_WHY] = "";
    json_t *info = NULL;
    int64_t until_us = hf__local_us() + st->how.io_timeout_ms * 1000;
    int said, rc;
    struct hf__nats_link *link = hf__links_get(&st->links, &rc, err);
    if (!rc) {
        rc = ask(link, st->info, "", until_us, &info, &said, why);
        if (rc) hf_fail(err, rc, 0, "nats: inspect '%s': %s", st->bucket, why);
    }
    hf__links_put(&st->links, link);
    if (!rc) say_all(st, &d, info);
    json_decref(info);
    return rc;
}
