/*
 * s3.c - s3://BUCKET/PREFIX, rows as objects that are replaced on a condition. See store.h,
 * doc/stores/s3.md.
 *
 * Contents: ETags; reading; replacing; opening.
 *
 * A write is a conditional PUT: If-Match with the ETag of the object that was read, or
 * If-None-Match: * if there was none. So the driver keeps the ETag of every row that it gives to
 * the core, by key and rev, in a table of limited size. If the table has no ETag for a row, the row
 * is read first. An ETag stands for the content: the same ETag means the same row, also after a
 * backup was restored.
 *
 * An object is never deleted, because several servers check no condition for a DELETE. If a row is
 * removed, an object without a row is written in its place.
 *
 * Each object has a random number of its own. HTTP lets a proxy send a PUT again if it lost the
 * reply. Then the second PUT is refused although the first was carried out. So after a refusal the
 * driver reads the object: if it is exactly what was sent, with the same number, this write was
 * carried out.
 *
 * The driver has 1,420 lines, not the 400 of a driver on the kit. Some 320 lines are requests:
 * their signatures, the clock of a header and the meanings of refusals (ask.c); 210 are the URL and
 * the account, which is read as AWS's tools do (account.c, options.c); 150 many writes side by side
 * (replace_many.c); 120 names that servers with files can keep (names.c); 110 listing (list.c).
 */
#include "json.h"
#include "kit/text.h"
#include "os.h"
#include "store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ROUNDS: how often a refused write is made again if the row still is the one that was seen. */
enum { ROUNDS = 6, PAUSE_MS = 4, REMOVED_CAP = 80 };

/* ---- ETags of rows that were read ---- */

static struct hf__s3_seen *slot(hf_store *st, const hf_rowkey *key, uint64_t rev)
{
    return &st->seen[(key->hash ^ rev * UINT64_C(0x9E3779B97F4A7C15)) >> 7 & (HF_S3_SLOTS - 1)];
}

static void remember(hf_store *st, const hf_rowkey *key, uint64_t rev, const char *tag)
{
    pthread_mutex_lock(&st->mu);
    struct hf__s3_seen *s = slot(st, key, rev);
    *s = (struct hf__s3_seen){key->hash, rev, 1, ""};
    memcpy(s->tag, tag, strlen(tag) + 1);
    pthread_mutex_unlock(&st->mu);
}

static int recall(hf_store *st, const hf_rowkey *key, uint64_t rev, char tag[HF_REST_TAG])
{
    pthread_mutex_lock(&st->mu);
    const struct hf__s3_seen *s = slot(st, key, rev);
    int known = s->known && s->hash == key->hash && s->rev == rev;
    if (known) memcpy(tag, s->tag, HF_REST_TAG);
    pthread_mutex_unlock(&st->mu);
    return known;
}

/* ---- reading ---- */

/* Returns 1 if the document is the one that stands in place of a removed row. */
static int is_removed(const json_t *document)
{
    return json_integer_value(json_object_get(document, "format")) == HF_ROW_FORMAT &&
           json_is_string(json_object_get(document, "removed"));
}

static int decode(const hf_store *st, const struct hf__rest_reply *r, const char *key,
                  const char *what, hf_row *row, hf_error *err)
{
    const struct hf__row_reader where = {"s3", what, key, st->how_to_empty};
    int nomem;
    json_t *document = hf__json_read(r->body ? r->body : "", r->len, JSON_ALLOW_NUL, &nomem);
    int rc = 0;
    if (nomem)
        rc = hf_fail(err, HF_NOMEM, 0, "s3: %s '%s': out of memory", what, key);
    else if (!json_is_object(document))
        rc = hf_fail(err, HF_CORRUPT, 0, "s3: %s '%s': the object is no row", what, key);
    else if (!is_removed(document))
        rc = hf__row_from_document(document, &where, row, err);
    json_decref(document);
    return rc;
}

int hf__s3_belongs(const hf_store *st, const struct hf__rest_reply *r)
{
    return __atomic_load_n(&st->others, __ATOMIC_RELAXED) ||
           hf__s3_is_sum(r->tag, r->body ? r->body : "", r->len);
}

int hf__s3_tagged(const struct hf__rest_reply *r, int rc, const char *what, const hf_rowkey *key,
                  hf_error *err)
{
    if (rc || *r->tag) return rc;
    return hf_fail(err, HF_UNSUPPORTED, 0, "s3: %s '%s': the server tells no ETag", what,
                   key->text);
}

static int read_once(hf_store *st, const hf_rowkey *key, struct hf__rest_reply *r,
                     int64_t *ret_clock_us, const char *what, hf_error *err)
{
    char name[HF_S3_NAME + 1];
    struct hf__s3_call call = {.what = what, .key = key->text, .name = name};
    hf__s3_name(key->text, key->len, name);
    return hf__s3_tagged(r, hf__s3_ask(st, &call, r, ret_clock_us, err), what, key, err);
}

int hf__s3_is_text(hf_store *st, const struct hf__rest_reply *r, const char *text)
{
    if (!r->body || r->len != strlen(text) || memcmp(r->body, text, r->len)) return 0;
    __atomic_store_n(&st->others, !hf__s3_is_sum(r->tag, text, r->len), __ATOMIC_RELAXED);
    return 1;
}

int hf__s3_reads(hf_store *st, const hf_rowkey *key, int rc, const struct hf__rest_reply *r,
                 int64_t clock_us, hf_row *row, const char *what, hf_error *err)
{
    hf_row_clear(row);
    if (!rc) rc = decode(st, r, key->text, what, row, err);
    if (rc && rc != HF_S3_ABSENT) return rc;
    remember(st, key, row->rev, r->tag);
    if (clock_us) return 0;
    /* Without a time the core can't tell whether a lease has ended. */
    return hf_fail(err, HF_UNAVAILABLE, 0,
                   "s3: %s '%s': the reply has no date that fits those before", what, key->text);
}

/* Reads the row. *ret_written (unless NULL): 1 if the object is exactly `text`. */
static int read_row(hf_store *st, const hf_rowkey *key, hf_row *row, int64_t *ret_clock_us,
                    const char *what, const char *text, int *ret_written, hf_error *err)
{
    struct hf__rest_reply r;
    int rc = read_once(st, key, &r, ret_clock_us, what, err);
    for (int again = 0; !rc && !hf__s3_belongs(st, &r); again++) {
        if (again == ROUNDS || (text && hf__s3_is_text(st, &r, text))) break;
        hf__rest_reply_free(&r);
        rc = read_once(st, key, &r, ret_clock_us, what, err);
    }
    int other = !rc && !hf__s3_belongs(st, &r);
    if (text) *ret_written = !rc && hf__s3_is_text(st, &r, text);
    rc = hf__s3_reads(st, key, rc, &r, *ret_clock_us, row, what, err);
    /* Only an object with a row shows what the store's ETags are; a proxy's page doesn't. */
    if (other && !rc) __atomic_store_n(&st->others, 1, __ATOMIC_RELAXED);
    hf__rest_reply_free(&r);
    return rc;
}

int hf__s3_read(hf_store *st, const hf_rowkey *key, hf_row *row, int64_t *ret_clock_us,
                const char *what, hf_error *err)
{
    return read_row(st, key, row, ret_clock_us, what, NULL, NULL, err);
}

static int s3_get(hf_store *st, const hf_rowkey *key, hf_row *row, int64_t *ret_clock_us,
                  hf_error *err)
{
    return hf__s3_read(st, key, row, ret_clock_us, "get", err);
}

/* ---- replacing ---- */

char *hf__s3_encode(const hf_store *st, const hf_rowkey *key, const hf_row *row, int *ret_rc,
                    hf_error *err)
{
    const struct hf__row_reader where = {"s3", "replace", key->text, st->how_to_empty};
    char number[33], *text = NULL;
    uint8_t id[16];
    json_t *document = NULL;
    *ret_rc = 0;
    hf__random(id, sizeof id);
    hf__put_id(number, id);
    if (row) {
        *ret_rc = hf__row_to_document(row, &where, &document, err);
        if (*ret_rc) return NULL;
        if (!json_object_set_new(document, "write", json_string(number)))
            text = hf__json_text(document);
        json_decref(document);
    } else {
        text = malloc(REMOVED_CAP);
        if (text)
            snprintf(text, REMOVED_CAP, "{\"format\":%d,\"removed\":\"%s\"}", HF_ROW_FORMAT,
                     number);
    }
    if (!text) *ret_rc = hf_fail(err, HF_NOMEM, 0, "s3: replace '%s': out of memory", key->text);
    return text;
}

void hf__s3_written(hf_store *st, const hf_rowkey *key, const char *text, uint64_t rev,
                    const char *tag)
{
    if (hf__s3_is_sum(tag, text, strlen(text))) __atomic_store_n(&st->others, 0, __ATOMIC_RELAXED);
    remember(st, key, rev, tag);
}

/* Writes the object on the condition that it has that ETag. Returns 0, HF_CONFLICT, or the error;
 *ret_foreign: see `foreign` of hf__s3_call. */
static int put(hf_store *st, const struct hf__s3_change *c, const char *text, const char *tag,
               int *ret_foreign, int64_t *ret_clock_us, hf_error *err)
{
    const struct timespec pause = {0, PAUSE_MS * 1000000L};
    char name[HF_S3_NAME + 1];
    struct hf__s3_call call = {
        .what = "replace", .key = c->key->text, .name = name, .put = text, .tag = tag};
    struct hf__rest_reply r;
    hf__s3_name(c->key->text, c->key->len, name);
    int rc = hf__s3_ask(st, &call, &r, ret_clock_us, err);
    *ret_foreign = call.foreign;
    if (call.busy) nanosleep(&pause, NULL);
    if (rc == HF_S3_ABSENT) rc = HF_CONFLICT; /* the object that was to be replaced is gone */
    if (!rc) hf__s3_written(st, c->key, text, c->row ? c->row->rev : 0, r.tag);
    hf__rest_reply_free(&r);
    return rc;
}

int hf__s3_tag_of(hf_store *st, const hf_rowkey *key, uint64_t seen, const hf_row *row,
                  char tag[HF_REST_TAG])
{
    *tag = 0;
    return recall(st, key, seen, tag) || (!seen && row);
}

/* Replaces a row. Reads the row first if its ETag isn't known, and after each refusal, because only
   the row shows whether it still is the one that was seen. Also reads it after a reply with a
   foreign ETag: if the object is what was sent, the write was done, and the ETags of this store are
   no MD5 sums. */
static int replace_rounds(hf_store *st, const struct hf__s3_change *c, const char *text,
                          int64_t *ret_clock_us, hf_error *err)
{
    char tag[HF_REST_TAG];
    int known = hf__s3_tag_of(st, c->key, c->seen, c->row, tag), foreign = 0, written = 0;
    for (int round = 0; round < ROUNDS; round++) {
        int rc = known ? put(st, c, text, tag, &foreign, ret_clock_us, err) : HF_CONFLICT;
        if (rc != HF_CONFLICT && !foreign) return rc;
        rc = read_row(st, c->key, c->cur, ret_clock_us, "replace", text, &written,
                      foreign ? NULL : err);
        if (written) return 0;
        if (foreign) return HF_UNKNOWN;
        if (rc) return rc;
        if (c->cur->rev != c->seen) return HF_CONFLICT;
        if (!c->row && !c->seen) return 0; /* there was no row to delete */
        known = recall(st, c->key, c->seen, tag);
    }
    return hf_fail(err, HF_UNAVAILABLE, 0,
                   "s3: replace '%s': refused %d times, because other writes were under way",
                   c->key->text, ROUNDS);
}

static int s3_replace(hf_store *st, const hf_rowkey *key, uint64_t seen, const hf_row *row,
                      hf_row *cur, int64_t *ret_clock_us, hf_error *err)
{
    hf_row now;
    int rc;
    hf_row_init(&now);
    const struct hf__s3_change c = {key, seen, row, cur ? cur : &now};
    char *text = hf__s3_encode(st, key, row, &rc, err);
    if (text) rc = replace_rounds(st, &c, text, ret_clock_us, err);
    free(text);
    hf_row_clear(&now);
    return rc;
}

/* ---- opening ---- */

static void s3_close(hf_store *st)
{
    hf__rest_close(&st->rest);
    pthread_mutex_destroy(&st->mu);
    explicit_bzero(&st->at, sizeof st->at);
    free(st);
}

static int start(hf_store *st, const hf_url *url, hf_caps *caps, hf_error *err)
{
    char cafile[1024];
    int rc = hf__rest_open(&st->rest, err);
    if (!rc) rc = hf__s3_options(url, &st->at, cafile, caps, err);
    if (rc) return rc;
    if (curl_version_info(CURLVERSION_NOW)->version_num < 0x075700)
        return hf_fail(err, HF_UNSUPPORTED, 0,
                       "s3: open '%s': libcurl is older than 7.87 and can't sign this", url->safe);
    st->rest.straight = !strncmp(st->at.endpoint, "http:", 5);
    if (*cafile && !(st->rest.cafile = strdup(cafile)))
        return hf_fail(err, HF_NOMEM, 0, "s3: open '%s': out of memory", url->safe);
    snprintf(st->how_to_empty, sizeof st->how_to_empty, "aws s3 rm --recursive s3://%s/%s",
             st->at.bucket, st->at.prefix);
    return 0;
}

static int s3_open(const hf_url *url, int64_t io_timeout_ms, hf_store **ret, hf_caps *caps,
                   hf_error *err)
{
    hf_store *st = calloc(1, sizeof *st);
    if (!st) return hf_fail(err, HF_NOMEM, 0, "s3: open '%s': out of memory", url->safe);
    pthread_mutex_init(&st->mu, NULL);
    st->rest.store = "s3";
    st->rest.io_timeout_ms = io_timeout_ms;
    int rc = start(st, url, caps, err);
    if (rc) {
        s3_close(st);
        return rc;
    }
    *ret = st;
    return 0;
}

static int s3_inspect(hf_store *st, void (*say)(void *arg, int ok, const char *text), void *arg,
                      hf_error *err)
{
    const hf_rowkey key = {.text = "holdfast-doctor", .len = 15, .hash = 1};
    char text[700], why[HF_KIT_WHY];
    struct hf__s3_account who;
    int64_t clock_us = 0;
    hf_row row;
    hf_row_init(&row);
    int rc = hf__s3_read(st, &key, &row, &clock_us, "inspect", err);
    hf_row_clear(&row);
    if (rc && rc != HF_CORRUPT) return rc;
    rc = hf__s3_account(&st->at, &who, why);
    snprintf(text, sizeof text, "the bucket %s at %s, below %s, asked as %s", st->at.bucket,
             st->at.endpoint, st->at.prefix, rc ? "no account" : who.id);
    explicit_bzero(&who, sizeof who);
    say(arg, 1, text);
    return 0;
}

HF_DRIVER_ENTRY(s3) = {
    .abi = HF_DRIVER_ABI,
    .name = "s3",
    .about = "objects in a bucket of S3, or of a server that speaks its language",
    .caps = {.queue_cap = 256,
             .holders_cap = 256,
             .threads = 1,
             .poll_ms = 500,
             .clock_resolution_us = HF_S3_TICK_US},
    .open = s3_open,
    .close = s3_close,
    .get = s3_get,
    .replace = s3_replace,
    .replace_many = hf__s3_replace_many,
    .scan = hf__s3_scan,
    .inspect = s3_inspect,
};
