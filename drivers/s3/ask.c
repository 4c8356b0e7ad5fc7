/*
 * ask.c - s3: one request, what its answer means, and the clock. See store.h.
 *
 * A refusal is judged by the code in its body, or by its status, never by its words. A write that
 * was refused by a status of 4xx wasn't done; one that wasn't answered, or by 5xx, may have been.
 */
#include "store.h"

#include "os.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { HASH_TEXT = 65, DATE_TEXT = 40, SHOWN = 160, ODD_US = 3000000, STEP_SLACK_PPM = 2000 };

/* ---- what an answer means ---- */

struct meaning {
    const char *code;
    int means;
};

static const struct meaning meanings[] = {
    {"NoSuchKey", HF_S3_ABSENT},
    {"NoSuchBucket", HF_UNAVAILABLE},
    {"PreconditionFailed", HF_CONFLICT},
    {"ConditionalRequestConflict", HF_CONFLICT},
    {"OperationAborted", HF_CONFLICT},
    {"RequestTimeout", HF_UNAVAILABLE},
    {"NotImplemented", HF_UNSUPPORTED},
    {"MethodNotAllowed", HF_UNSUPPORTED},
    {"QuotaExceeded", HF_FULL},
    {"EntityTooLarge", HF_FULL},
    /* By MinIO and its like. */
    {"XMinioStorageFull", HF_FULL},
    {"XMinioAdminBucketQuotaExceeded", HF_FULL},
};

static int of_status(long status, int writes)
{
    switch (status) {
    case 401:
    case 403: return HF_DENIED;
    case 409:
    case 412: return writes ? HF_CONFLICT : HF_UNAVAILABLE;
    case 400: return HF_INVALID;
    case 501: return HF_UNSUPPORTED;
    case 507: return HF_FULL;
    default: break;
    }
    return writes && status >= 500 ? HF_UNKNOWN : HF_UNAVAILABLE;
}

/* Does what the server says tell a secret? */
static int tells(const char *text, const struct hf__s3_account *who)
{
    return strstr(text, who->secret) || (*who->token && strstr(text, who->token));
}

static int fail(const struct hf__s3_call *call, int code, const char *why, hf_error *err)
{
    return hf_fail(err, code, 0, "s3: %s '%s': %s", call->what, call->key, why);
}

static int judge(const hf_store *st, struct hf__s3_call *call, const struct hf__rest_reply *r,
                 const struct hf__s3_account *who, hf_error *err)
{
    char code[64], told[SHOWN], why[SHOWN + 120];
    int writes = call->put != NULL;
    if (!r->status) return fail(call, writes && r->sent ? HF_UNKNOWN : r->code, r->why, err);
    if (r->status == 200) return 0;
    hf__s3_element(r->body, "Code", code, sizeof code);
    hf__s3_element(r->body, "Message", told, sizeof told);
    int means = of_status(r->status, writes);
    for (size_t i = 0; i < sizeof meanings / sizeof *meanings; i++)
        if (!strcmp(meanings[i].code, code)) means = meanings[i].means;
    if (writes && means == HF_UNAVAILABLE && r->status >= 500) means = HF_UNKNOWN;
    call->busy = means == HF_CONFLICT && r->status == 409;
    if (means > 0) return means;
    if (!strcmp(code, "NoSuchBucket"))
        return hf_fail(err, means, ENOENT, "s3: %s '%s': no store at 's3://%s': no such bucket",
                       call->what, call->key, st->at.bucket);
    /* A key may be exchanged while the store is used, here a little later than there. */
    if (means == HF_DENIED && *st->at.file && __atomic_load_n(&st->let_in, __ATOMIC_RELAXED) &&
        strcmp(code, "AccessDenied") != 0)
        means = HF_UNAVAILABLE;
    snprintf(why, sizeof why, "HTTP %ld%s%s%s%.*s", r->status, *code ? ", " : "", code,
             *told ? ": " : "", (int)strcspn(told, "\r\n"), tells(told, who) ? "" : told);
    return fail(call, means, why, err);
}

/* ---- the clock ---- */

/*
 * The header Date is of whole seconds, and some servers make it anew only once a second: so the
 * clock ticks by two. A server that stood still may tell the past once more. Such a date
 * contradicts those before, and isn't told to anybody; unless they all do so for a while: the clock
 * was set.
 */
static int64_t clock_of(hf_store *st, int64_t sent_us, int64_t received_us, int64_t date_us)
{
    int64_t told_us = date_us;
    if (date_us <= 0) return 0;
    pthread_mutex_lock(&st->mu);
    int64_t far_us = (received_us - st->ahead_at_us) * STEP_SLACK_PPM / 1000000;
    int64_t least_us = sent_us + st->ahead_us - far_us;
    int odd = st->ahead_at_us && date_us + HF_S3_TICK_US < least_us;
    if (odd && !st->odd_us) st->odd_us = received_us;
    if (odd && received_us - st->odd_us < ODD_US) told_us = 0;
    if (!odd || told_us) {
        int64_t ahead_us = date_us - received_us;
        st->odd_us = 0;
        if (!st->ahead_at_us || told_us == date_us) {
            int fresh = odd || !st->ahead_at_us || ahead_us >= st->ahead_us - far_us;
            if (fresh) {
                st->ahead_us = ahead_us;
                st->ahead_at_us = received_us;
            }
        }
    }
    pthread_mutex_unlock(&st->mu);
    return told_us;
}

/* The time of day by the server's dates: the machine's clock may be wrong, and a server refuses
   what is signed more than 15 minutes off. Before the first reply only the machine's is known. */
static int64_t day_of_store_us(hf_store *st)
{
    pthread_mutex_lock(&st->mu);
    int64_t us = st->ahead_at_us ? hf__local_us() + st->ahead_us : hf__day_us();
    pthread_mutex_unlock(&st->mu);
    return us;
}

/* ---- one request ---- */

/* A hash in hexadecimal digits; 0: OpenSSL has none. */
static int put_hash(const EVP_MD *kind, char to[HASH_TEXT], const char *body, size_t len)
{
    unsigned char hash[EVP_MAX_MD_SIZE];
    unsigned n = 0;
    if (EVP_Digest(body, len, hash, &n, kind, NULL) != 1) return 0;
    for (unsigned i = 0; i < n && i < 32; i++) snprintf(to + 2 * i, 3, "%02x", hash[i]);
    return 1;
}

int hf__s3_is_sum(const char *tag, const char *text, size_t len)
{
    char hash[HASH_TEXT];
    return put_hash(EVP_md5(), hash, text, len) && *tag == '"' && !strncmp(tag + 1, hash, 32) &&
           !strcmp(tag + 33, "\"");
}

/* The header of the time at which a request is signed. */
static void put_date(char to[DATE_TEXT], int64_t us)
{
    time_t s = (time_t)(us / 1000000);
    struct tm t = {0};
    gmtime_r(&s, &t);
    strftime(to, DATE_TEXT, "x-amz-date: %Y%m%dT%H%M%SZ", &t);
}

/* Signed at that time. A short-lived account has a token, which is signed, too. */
static int send_it(hf_store *st, const struct hf__s3_call *call, const struct hf__s3_account *who,
                   int64_t day_us, struct hf__rest_reply *r)
{
    const struct hf__s3_where *at = &st->at;
    char url[sizeof at->endpoint + HF_S3_NAME + 700], hash[HASH_TEXT], condition[HF_REST_TAG + 20];
    char sum[HASH_TEXT + 24], token[sizeof who->token + 24];
    char date[DATE_TEXT];
    const char *headers[6] = {sum, date}, *body = call->put ? call->put : "";
    size_t n = 2;
    snprintf(url, sizeof url, "%s/%s%s%s%s%s", at->endpoint, at->bucket, call->name ? "/" : "",
             call->name ? at->prefix : "", call->name ? call->name : "?",
             call->name ? "" : call->query);
    if (!put_hash(EVP_sha256(), hash, body, strlen(body))) return HF_NOMEM;
    snprintf(sum, sizeof sum, "x-amz-content-sha256: %s", hash);
    put_date(date, day_us);
    snprintf(condition, sizeof condition, "%s: %s", *call->tag ? "If-Match" : "If-None-Match",
             *call->tag ? call->tag : "*");
    if (call->put) headers[n++] = condition;
    if (call->put) headers[n++] = "content-type: application/json";
    snprintf(token, sizeof token, "x-amz-security-token: %s", who->token);
    if (*who->token) headers[n++] = token;
    const struct hf__rest_call ask = {.method = call->put ? "PUT" : "GET",
                                      .url = url,
                                      .headers = headers,
                                      .body = body,
                                      .len = strlen(body),
                                      .harmless = !call->put,
                                      .sign = at->sign,
                                      .user = who->id,
                                      .password = who->secret};
    hf__rest_ask(&st->rest, &ask, r);
    explicit_bzero(token, sizeof token);
    return 0;
}

/* Was it refused because the time of its signature is wrong, and tells the server a better one? */
static int is_skewed(const struct hf__rest_reply *r)
{
    char code[64];
    if (r->status != 403 || r->date_us <= 0) return 0;
    hf__s3_element(r->body, "Code", code, sizeof code);
    return !strcmp(code, "RequestTimeTooSkewed");
}

int hf__s3_ask(hf_store *st, struct hf__s3_call *call, struct hf__rest_reply *r,
               int64_t *ret_clock_us, hf_error *err)
{
    struct hf__s3_account who;
    char why[HF_KIT_WHY];
    int64_t sent_us = hf__local_us();
    *r = (struct hf__rest_reply){.status = 0};
    if (!call->tag) call->tag = "";
    call->busy = 0;
    int rc = hf__s3_account(&st->at, &who, why);
    if (rc) return fail(call, rc, why, err);
    int unsent = send_it(st, call, &who, day_of_store_us(st), r);
    /* It wasn't done: once more, by the server's own time. */
    if (!unsent && is_skewed(r)) {
        int64_t day_us = r->date_us;
        hf__rest_reply_free(r);
        sent_us = hf__local_us();
        unsent = send_it(st, call, &who, day_us, r);
    }
    rc = unsent ? fail(call, HF_NOMEM, "out of memory", err) : judge(st, call, r, &who, err);
    explicit_bzero(&who, sizeof who);
    int64_t clock_us = clock_of(st, sent_us, hf__local_us(), r->date_us);
    if (rc >= 0) {
        __atomic_store_n(&st->let_in, 1, __ATOMIC_RELAXED);
        *ret_clock_us = clock_us;
    }
    return rc;
}
