/*
 * firestore.c - firestore://PROJECT/DATABASE, rows as documents of Cloud Firestore. See place.h,
 * fields.h, api.h, doc/stores/firestore.md.
 *
 * Contents: update times; documents; get and replace; opening. Many rows: list.c.
 *
 * A write is one commit of one document with a precondition: that the document doesn't exist, or
 * that its update time still is the one that it had when it was read. So the driver keeps the
 * update time of every row that it gives to the core, by key and rev, in a table of limited size.
 * If the table has no time for a row, the row is read first.
 */
#include "kit/text.h"
#include "store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEEN_SLOTS = 16384 };

/* A row's update time: when the document of a key was updated to this rev. */
struct hf__fs_seen {
    uint64_t hash, rev;
    int64_t update_us;
};

/* ---- update times of rows that were read ---- */

static struct hf__fs_seen *slot(const hf_store *st, const hf_rowkey *key, uint64_t rev)
{
    return &st->seen[(key->hash ^ rev * UINT64_C(0x9E3779B97F4A7C15)) >> 7 & (SEEN_SLOTS - 1)];
}

void hf__fs_remember(hf_store *st, const hf_rowkey *key, uint64_t rev, int64_t update_us)
{
    pthread_mutex_lock(&st->mu);
    *slot(st, key, rev) = (struct hf__fs_seen){key->hash, rev, update_us};
    pthread_mutex_unlock(&st->mu);
}

int64_t hf__fs_recall(hf_store *st, const hf_rowkey *key, uint64_t rev)
{
    pthread_mutex_lock(&st->mu);
    const struct hf__fs_seen *s = slot(st, key, rev);
    int64_t us = s->hash == key->hash && s->rev == rev ? s->update_us : -1;
    pthread_mutex_unlock(&st->mu);
    return us;
}

/* ---- documents ---- */

static int fail(int code, const char *what, const char *key, const char *why, hf_error *err)
{
    return hf_fail(err, code, 0, "firestore: %s '%s': %s", what, key, why);
}

int hf__fs_decode(hf_store *st, const json_t *document, const hf_rowkey *key, hf_row *row,
                  const char *what, hf_error *err)
{
    const struct hf__row_reader by = {"firestore", what, key->text, st->how_to_empty};
    int64_t update_us = hf__fs_time(json_object_get(document, "updateTime"));
    int rc = hf__fs_row(json_object_get(document, "fields"), &by, row, err);
    if (rc) return rc;
    if (update_us < 0)
        return fail(HF_UNAVAILABLE, what, key->text, "an answer without a time", err);
    hf__fs_remember(st, key, row->rev, update_us);
    return 0;
}

static int read_row(hf_store *st, const hf_rowkey *key, hf_row *row, int64_t *ret_clock_us,
                    const char *what, int64_t many_until_us, hf_error *err)
{
    char name[HF_FS_NAME_CAP];
    struct hf__fs_call call = {.what = what, .key = key->text, .many_until_us = many_until_us};
    json_t *answer, *item;
    size_t i;
    int told = 0;
    hf_row_clear(row);
    hf__fs_name(&st->place, key->text, name);
    int rc = hf__fs_ask(&st->api, &call, st->place.documents, "batchGet",
                        json_pack("{s:[s]}", "documents", name), &answer, err);
    if (rc) return rc;
    json_array_foreach(answer, i, item)
    {
        const json_t *found = json_object_get(item, "found");
        int64_t clock_us = hf__fs_time(json_object_get(item, "readTime"));
        if (clock_us > 0) *ret_clock_us = clock_us;
        if (!found && !json_object_get(item, "missing")) continue;
        told = clock_us > 0;
        if (found) rc = hf__fs_decode(st, found, key, row, what, err);
    }
    json_decref(answer);
    if (!rc && !told)
        rc = fail(HF_UNAVAILABLE, what, key->text, "an answer without a document or a time", err);
    return rc;
}

/* ---- get and replace ---- */

static int fs_get(hf_store *st, const hf_rowkey *key, hf_row *row, int64_t *ret_clock_us,
                  hf_error *err)
{
    return read_row(st, key, row, ret_clock_us, "get", 0, err);
}

json_t *hf__fs_write(const hf_store *st, const hf_rowkey *key, const hf_row *row, uint64_t seen,
                     int64_t update_us, int *ret_rc, const char **ret_why)
{
    char name[HF_FS_NAME_CAP], time[HF_FS_TIME_CAP] = "";
    hf__fs_name(&st->place, key->text, name);
    if (seen) hf__fs_time_text(update_us, time);
    json_t *when = seen ? json_pack("{s:s}", "updateTime", time) : json_pack("{s:b}", "exists", 0);
    json_t *fields = row ? hf__fs_fields(key->text, row, ret_rc, ret_why) : NULL;
    json_t *write = NULL;
    if (row && !fields)
        json_decref(when);
    else if (!row)
        write = json_pack("{s:s, s:o}", "delete", name, "currentDocument", when);
    else if (seen) /* a mask, so that fields of other programs in the document stay */
        write =
            json_pack("{s:{s:s, s:o}, s:{s:o}, s:o}", "update", "name", name, "fields", fields,
                      "updateMask", "fieldPaths", hf__fs_field_names(), "currentDocument", when);
    else
        write = json_pack("{s:{s:s, s:o}, s:o}", "update", "name", name, "fields", fields,
                          "currentDocument", when);
    if (!write && (!row || fields)) {
        *ret_rc = HF_NOMEM;
        *ret_why = "out of memory";
    }
    return write;
}

/* Reads the present row into *cur (unless NULL), after a write was refused. Returns HF_CONFLICT or
   the error. */
static int conflict(hf_store *st, const hf_rowkey *key, hf_row *cur, int64_t *ret_clock_us,
                    int64_t many_until_us, hf_error *err)
{
    int rc = cur ? read_row(st, key, cur, ret_clock_us, "replace", many_until_us, err) : 0;
    return rc ? rc : HF_CONFLICT;
}

/* Finds the update time for the write's precondition (0: there must be no document); reads the row
   if it isn't known. Returns 0; HF_CONFLICT: the row isn't the one that was seen; or the error. */
static int find_time(hf_store *st, const hf_rowkey *key, uint64_t seen, hf_row *cur,
                     int64_t *ret_clock_us, int64_t *ret_update_us, int64_t many_until_us,
                     hf_error *err)
{
    *ret_update_us = seen ? hf__fs_recall(st, key, seen) : 0;
    if (*ret_update_us >= 0) return 0;
    hf_row now;
    hf_row_init(&now);
    int rc = read_row(st, key, cur ? cur : &now, ret_clock_us, "replace", many_until_us, err);
    uint64_t rev = cur ? cur->rev : now.rev;
    hf_row_clear(&now);
    if (rc) return rc;
    if (rev != seen) return HF_CONFLICT;
    *ret_update_us = hf__fs_recall(st, key, seen);
    /* Other threads may have pushed the time out of the table since the read. */
    return *ret_update_us >= 0 ? 0 : HF_CONFLICT;
}

int hf__fs_replace_until(hf_store *st, const hf_rowkey *key, uint64_t seen, const hf_row *row,
                         hf_row *cur, int64_t *ret_clock_us, int64_t many_until_us, hf_error *err)
{
    struct hf__fs_call call = {
        .what = "replace", .key = key->text, .writes = 1, .many_until_us = many_until_us};
    const char *why = NULL;
    json_t *answer;
    int64_t update_us;
    int rc = find_time(st, key, seen, cur, ret_clock_us, &update_us, many_until_us, err);
    if (rc) return rc;
    json_t *write = hf__fs_write(st, key, row, seen, update_us, &rc, &why);
    if (!write) return fail(rc, "replace", key->text, why, err);
    rc = hf__fs_ask(&st->api, &call, st->place.documents, "commit",
                    json_pack("{s:[o]}", "writes", write), &answer, err);
    if (rc && call.condition) return conflict(st, key, cur, ret_clock_us, many_until_us, err);
    if (rc) return rc;
    int64_t clock_us = hf__fs_time(json_object_get(answer, "commitTime"));
    json_t *result = json_array_get(json_object_get(answer, "writeResults"), 0);
    update_us = hf__fs_time(json_object_get(result, "updateTime"));
    json_decref(answer);
    if (clock_us <= 0)
        return fail(HF_UNKNOWN, "replace", key->text, "not an answer to a commit", err);
    *ret_clock_us = clock_us;
    if (row) hf__fs_remember(st, key, row->rev, update_us > 0 ? update_us : clock_us);
    return 0;
}

static int fs_replace(hf_store *st, const hf_rowkey *key, uint64_t seen, const hf_row *row,
                      hf_row *cur, int64_t *ret_clock_us, hf_error *err)
{
    return hf__fs_replace_until(st, key, seen, row, cur, ret_clock_us, 0, err);
}

/* ---- opening ---- */

static void fs_close(hf_store *st)
{
    hf__rest_close(&st->api.net);
    hf__fs_auth_close(&st->api.auth);
    pthread_mutex_destroy(&st->mu);
    free(st->seen);
    free(st);
}

static int refuse(const hf_url *url, const char *why, hf_error *err)
{
    return hf_fail(err, HF_INVALID, 0, "firestore: open '%s': %s", url->safe, why);
}

/* Reads an option. NULL: it isn't given, or *ret_why says what is wrong. */
static const char *option(const hf_url *url, const char *name, char *to, size_t cap,
                          const char **ret_why)
{
    int rc = hf_url_get(url, name, to, cap);
    if (rc == HF_INVALID || (!rc && !*to)) *ret_why = name;
    return rc ? NULL : to;
}

static int id_of(const char *s)
{
    return *s && !s[strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                              "-._:()")];
}

/* Reads the project and the database. Returns NULL, or what is wrong. */
static const char *set_database(hf_store *st, const hf_url *url)
{
    const char *database = url->path[0] == '/' ? url->path + 1 : url->path;
    if (!*database) database = "(default)";
    if (!id_of(url->host)) return "the project is missing: firestore://PROJECT/DATABASE";
    if (!id_of(database)) return "the database: not a legal database name";
    if (url->port || *url->user || *url->password)
        return "a user, password or port means nothing here";
    int n = snprintf(st->place.documents, sizeof st->place.documents,
                     "projects/%s/databases/%s/documents", url->host, database);
    return n < (int)sizeof st->place.documents ? NULL : "the database: too long";
}

/* Sets the server's address. Returns NULL, or what is wrong. */
static const char *set_endpoint(struct hf__fs_api *api, const char *endpoint)
{
    const char *host = secure_getenv("FIRESTORE_EMULATOR_HOST");
    int n;
    if (endpoint) {
        size_t len = strlen(endpoint);
        if (!hf__rest_url_safe(endpoint)) return "endpoint: not https://HOST";
        n = snprintf(api->base, sizeof api->base, "%s%sv1/", endpoint,
                     endpoint[len - 1] == '/' ? "" : "/");
        /* Without TLS the server is on this machine (hf__rest_url_safe): an emulator. */
        api->emulator = api->net.straight = !strncasecmp(endpoint, "http:", 5);
    } else if (host && *host) {
        if (host[strcspn(host, "/@?# ")]) return "FIRESTORE_EMULATOR_HOST: not HOST:PORT";
        n = snprintf(api->base, sizeof api->base, "http://%s/v1/", host);
        api->emulator = api->net.straight = 1;
    } else {
        n = snprintf(api->base, sizeof api->base, "https://firestore.googleapis.com/v1/");
    }
    return n < (int)sizeof api->base ? NULL : "endpoint: too long";
}

static int options(hf_store *st, const hf_url *url, hf_caps *caps, hf_error *err)
{
    static const char *const known[] = {"root",     "collection", "credentials", "cafile",
                                        "endpoint", "queue",      NULL};
    char root[1024], collection[1024], file[1024], cafile[1024], endpoint[256], queue[8], name[64];
    char why[200];
    const char *bad = hf__unknown_option(url, known, name, sizeof name), *missing = NULL;
    if (bad) {
        snprintf(why, sizeof why, "unknown option '%s'", bad);
        return refuse(url, why, err);
    }
    const char *r = option(url, "root", root, sizeof root, &missing);
    const char *c = option(url, "collection", collection, sizeof collection, &missing);
    const char *f = option(url, "credentials", file, sizeof file, &missing);
    const char *ca = option(url, "cafile", cafile, sizeof cafile, &missing);
    const char *e = option(url, "endpoint", endpoint, sizeof endpoint, &missing);
    const char *q = option(url, "queue", queue, sizeof queue, &missing);
    if (missing) {
        snprintf(why, sizeof why, "%s: empty, too long, or given twice", missing);
        return refuse(url, why, err);
    }
    if (q && strcmp(q, "0") && strcmp(q, "1")) return refuse(url, "queue: neither 0 nor 1", err);
    caps->queues = q && *q == '1';
    bad = set_database(st, url);
    if (!bad) bad = hf__fs_place(&st->place, r, c);
    if (!bad) bad = set_endpoint(&st->api, e);
    if (bad) return refuse(url, bad, err);
    snprintf(st->how_to_empty, sizeof st->how_to_empty, "delete the documents of %.100s%s%.100s",
             st->place.collection, st->place.has_root ? ", and those below /" : "",
             st->place.has_root ? st->place.root : "");
    if (ca && !(st->api.net.cafile = strdup(ca)))
        return hf_fail(err, HF_NOMEM, 0, "firestore: open '%s': out of memory", url->safe);
    return hf__fs_auth_open(&st->api.auth, f, st->api.emulator, err);
}

static int fs_open(const hf_url *url, int64_t io_timeout_ms, hf_store **ret, hf_caps *caps,
                   hf_error *err)
{
    hf_store *st = calloc(1, sizeof *st);
    if (!st) return hf_fail(err, HF_NOMEM, 0, "firestore: open '%s': out of memory", url->safe);
    pthread_mutex_init(&st->mu, NULL);
    pthread_mutex_init(&st->api.auth.mu, NULL);
    st->api.net.io_timeout_ms = io_timeout_ms;
    st->api.net.store = "firestore";
    int rc = hf__rest_open(&st->api.net, err);
    st->seen = calloc(SEEN_SLOTS, sizeof *st->seen);
    if (!rc && !st->seen)
        rc = hf_fail(err, HF_NOMEM, 0, "firestore: open '%s': out of memory", url->safe);
    if (!rc) rc = options(st, url, caps, err);
    if (rc) {
        fs_close(st);
        return rc;
    }
    *ret = st;
    return 0;
}

static int fs_inspect(hf_store *st, void (*say)(void *arg, int ok, const char *text), void *arg,
                      hf_error *err)
{
    const hf_rowkey key = {.text = "holdfast-doctor", .len = 15};
    char text[1200], who[HF_FS_WHO_CAP];
    int64_t clock_us = 0;
    hf_row row;
    hf_row_init(&row);
    int rc = read_row(st, &key, &row, &clock_us, "inspect", 0, err);
    hf_row_clear(&row);
    if (rc && rc != HF_CORRUPT) return rc;
    hf__fs_auth_who(&st->api.auth, who);
    snprintf(text, sizeof text, "%s, asked as %s", st->place.documents, who);
    say(arg, 1, text);
    snprintf(text, sizeof text, "keys are documents %s /%s",
             st->place.has_root ? "below" : "in the collection",
             st->place.has_root ? st->place.root : st->place.collection);
    say(arg, 1, text);
    if (st->api.emulator) say(arg, 1, "an emulator: its data end with it");
    return 0;
}

HF_DRIVER_ENTRY(firestore) = {
    .abi = HF_DRIVER_ABI,
    .name = "firestore",
    .about = "documents in Cloud Firestore",
    .caps = {.queue_cap = 256, .holders_cap = 256, .threads = 1},
    .open = fs_open,
    .close = fs_close,
    .get = fs_get,
    .replace = fs_replace,
    .replace_many = hf__fs_replace_many,
    .scan = hf__fs_scan,
    .inspect = fs_inspect,
};
