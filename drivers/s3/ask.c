/*
 * ask.c - s3: one request, what its answer means, and the clock. See store.h.
 *
 * A refusal is judged by the code in its body or by its HTTP status, never by its message. A write
 * that was refused with 4xx wasn't done. A write without an answer, or with 5xx, may have been
 * done. S3 answers a write with 200 and the object's ETag. Another answer comes from a proxy, and
 * doesn't say whether the write was done.
 */
#include "store.h"

#include "kit/fork_gate.h"
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
    /* Codes of MinIO and servers like it. */
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
    return writes && (status >= 500 || status < 300) ? HF_UNKNOWN : HF_UNAVAILABLE;
}

/* Returns 1 if the server's text has a secret of the account. */
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
    call->foreign = writes && r->status == 200 && *r->tag &&
                    !__atomic_load_n(&st->others, __ATOMIC_RELAXED) &&
                    !hf__s3_is_sum(r->tag, call->put, strlen(call->put));
    if (call->foreign)
        return fail(call, HF_UNKNOWN, "HTTP 200: the ETag isn't that of what was sent", err);
    if (r->status == 200 && (!writes || *r->tag)) return 0;
    if (r->status == 200) return fail(call, HF_UNKNOWN, "HTTP 200: the answer has no ETag", err);
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
    /* The account worked before. Its key may just be replaced: on the server first, and in the
       file a little later. */
    if (means == HF_DENIED && *st->at.file && __atomic_load_n(&st->let_in, __ATOMIC_RELAXED) &&
        strcmp(code, "AccessDenied") != 0)
        means = HF_UNAVAILABLE;
    snprintf(why, sizeof why, "HTTP %ld%s%s%s%.*s", r->status, *code ? ", " : "", code,
             *told ? ": " : "", (int)strcspn(told, "\r\n"), tells(told, who) ? "" : told);
    return fail(call, means, why, err);
}

/* ---- the clock ---- */

/*
 * Returns the store's clock for a reply with this date; 0: it isn't known. The header Date has
 * whole seconds, and some servers update it only once a second, so it may be two seconds late
 * (HF_S3_TICK_US). A server that was stopped may send an older date once more. Such a date
 * contradicts those before, and the result is 0. If all dates do so for a while (ODD_US), the
 * server's clock was set back, and they count.
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

/* Returns the time of day with which a request is signed. It is computed from the server's dates,
   because a server refuses a signature that is more than 15 minutes off, and this machine's clock
   may be wrong. Before the first reply it is this machine's time. */
static int64_t day_of_store_us(hf_store *st)
{
    pthread_mutex_lock(&st->mu);
    int64_t us = st->ahead_at_us ? hf__local_us() + st->ahead_us : hf__day_us();
    pthread_mutex_unlock(&st->mu);
    return us;
}

/* ---- one request ---- */

/* Writes a hash of the body in hexadecimal digits. Returns 1; 0: OpenSSL doesn't offer this hash.
 */
static int put_hash(const EVP_MD *kind, char to[HASH_TEXT], const char *body, size_t len)
{
    unsigned char hash[EVP_MAX_MD_SIZE];
    unsigned n = 0;
    hf__gate_begin(); /* OpenSSL finds the hash under a lock */
    int done = EVP_Digest(body, len, hash, &n, kind, NULL) == 1;
    hf__gate_end();
    if (!done) return 0;
    for (unsigned i = 0; i < n && i < 32; i++) snprintf(to + 2 * i, 3, "%02x", hash[i]);
    return 1;
}

int hf__s3_is_sum(const char *tag, const char *text, size_t len)
{
    char hash[HASH_TEXT];
    return put_hash(EVP_md5(), hash, text, len) && *tag == '"' && !strncmp(tag + 1, hash, 32) &&
           !strcmp(tag + 33, "\"");
}

/* Writes the header with the time at which a request is signed. */
static void put_date(char to[DATE_TEXT], int64_t us)
{
    time_t s = (time_t)(us / 1000000);
    struct tm t = {0};
    gmtime_r(&s, &t);
    strftime(to, DATE_TEXT, "x-amz-date: %Y%m%dT%H%M%SZ", &t);
}

/* What a request is signed with: the account (temporary credentials have a token, which is signed,
   too) and the time. */
struct signer {
    struct hf__s3_account who;
    char token[sizeof((struct hf__s3_account *)0)->token + 24], date[DATE_TEXT];
};

/* A request, and the memory that it points to. */
struct made {
    char url[sizeof((struct hf__s3_where *)0)->endpoint + HF_S3_NAME + 700];
    char sum[HASH_TEXT + 24], condition[HF_REST_TAG + 20];
    const char *headers[6];
};

static int signer_get(hf_store *st, struct signer *as, char why[HF_KIT_WHY])
{
    put_date(as->date, day_of_store_us(st));
    int rc = hf__s3_account(&st->at, &as->who, why);
    snprintf(as->token, sizeof as->token, "x-amz-security-token: %s", rc ? "" : as->who.token);
    return rc;
}

/* Makes the HTTP request for the call: its URL and headers. Returns 0 or HF_NOMEM. */
static int make(const hf_store *st, const struct hf__s3_call *call, const struct signer *as,
                struct made *m, struct hf__rest_call *ret)
{
    const struct hf__s3_where *at = &st->at;
    const char *body = call->put ? call->put : "", *tag = call->tag ? call->tag : "";
    char hash[HASH_TEXT];
    size_t n = 0;
    snprintf(m->url, sizeof m->url, "%s/%s%s%s%s%s", at->endpoint, at->bucket,
             call->name ? "/" : "", call->name ? at->prefix : "", call->name ? call->name : "?",
             call->name ? "" : call->query);
    if (!put_hash(EVP_sha256(), hash, body, strlen(body))) return HF_NOMEM;
    snprintf(m->sum, sizeof m->sum, "x-amz-content-sha256: %s", hash);
    snprintf(m->condition, sizeof m->condition, "%s: %s", *tag ? "If-Match" : "If-None-Match",
             *tag ? tag : "*");
    m->headers[n++] = m->sum;
    m->headers[n++] = as->date;
    if (call->put) m->headers[n++] = m->condition;
    if (call->put) m->headers[n++] = "content-type: application/json";
    if (*as->who.token) m->headers[n++] = as->token;
    m->headers[n] = NULL;
    *ret = (struct hf__rest_call){.method = call->put ? "PUT" : "GET",
                                  .url = m->url,
                                  .headers = m->headers,
                                  .body = body,
                                  .len = strlen(body),
                                  .harmless = !call->put,
                                  .sign = at->sign,
                                  .user = as->who.id,
                                  .password = as->who.secret};
    return 0;
}

/* Returns 1 if the request was refused because of the time of its signature, and the reply has the
   server's time. */
static int is_skewed(const struct hf__rest_reply *r)
{
    char code[64];
    if (r->status != 403 || r->date_us <= 0) return 0;
    hf__s3_element(r->body, "Code", code, sizeof code);
    return !strcmp(code, "RequestTimeTooSkewed");
}

/* Returns the result of a request that was sent at local time sent_us, as hf__s3_ask does, and
   notes the server's clock. */
static int result(hf_store *st, struct hf__s3_call *call, const struct hf__rest_reply *r,
                  const struct signer *as, int64_t sent_us, int64_t *ret_clock_us, hf_error *err)
{
    call->busy = 0;
    int rc = judge(st, call, r, &as->who, err);
    int64_t clock_us = clock_of(st, sent_us, hf__local_us(), r->date_us);
    if (rc < 0) return rc;
    __atomic_store_n(&st->let_in, 1, __ATOMIC_RELAXED);
    *ret_clock_us = clock_us;
    return rc;
}

int hf__s3_ask(hf_store *st, struct hf__s3_call *call, struct hf__rest_reply *r,
               int64_t *ret_clock_us, hf_error *err)
{
    struct signer as;
    struct made made;
    struct hf__rest_call ask;
    char why[HF_KIT_WHY];
    int64_t sent_us = hf__local_us();
    *r = (struct hf__rest_reply){.status = 0};
    int rc = signer_get(st, &as, why);
    if (rc) {
        rc = fail(call, rc, why, err);
    } else if (make(st, call, &as, &made, &ask)) {
        rc = fail(call, HF_NOMEM, "out of memory", err);
    } else {
        hf__rest_ask(&st->rest, &ask, r);
        /* The request wasn't carried out. It is sent once more, signed by the server's time. */
        if (is_skewed(r)) {
            put_date(as.date, r->date_us);
            hf__rest_reply_free(r);
            sent_us = hf__local_us();
            hf__rest_ask(&st->rest, &ask, r);
        }
        rc = result(st, call, r, &as, sent_us, ret_clock_us, err);
    }
    explicit_bzero(&as, sizeof as);
    return rc;
}

/* ---- many requests ---- */

/* What the requests need while they are under way. */
struct under_way {
    struct made *made;
    struct hf__rest_call *ask;
    struct hf__rest_reply *reply;
};

static void send_all(hf_store *st, struct hf__s3_asked *one, size_t n, const struct signer *as,
                     struct under_way *w, int64_t until_us)
{
    int64_t sent_us = hf__local_us();
    int bad = 0;
    for (size_t i = 0; i < n && !bad; i++)
        bad = make(st, &one[i].call, as, &w->made[i], &w->ask[i]);
    if (!bad) hf__rest_ask_many(&st->rest, w->ask, w->reply, n, until_us);
    for (size_t i = 0; i < n; i++) {
        one[i].reply =
            bad ? (struct hf__rest_reply){.code = HF_NOMEM, .why = "out of memory"} : w->reply[i];
        one[i].rc =
            result(st, &one[i].call, &one[i].reply, as, sent_us, &one[i].clock_us, one[i].err);
        if (is_skewed(&one[i].reply))
            one[i].rc = fail(&one[i].call, HF_UNAVAILABLE,
                             "this machine's clock is off; the next attempt is signed by the "
                             "server's time",
                             one[i].err);
    }
}

void hf__s3_ask_many(hf_store *st, struct hf__s3_asked *one, size_t n, int64_t until_us)
{
    struct signer as;
    char why[HF_KIT_WHY];
    int rc = signer_get(st, &as, why);
    struct under_way w = {calloc(n, sizeof *w.made), calloc(n, sizeof *w.ask),
                          calloc(n, sizeof *w.reply)};
    if (!rc && w.made && w.ask && w.reply)
        send_all(st, one, n, &as, &w, until_us);
    else
        for (size_t i = 0; i < n; i++)
            one[i].rc = rc ? fail(&one[i].call, rc, why, one[i].err)
                           : fail(&one[i].call, HF_NOMEM, "out of memory", one[i].err);
    free(w.made);
    free(w.ask);
    free(w.reply);
    explicit_bzero(&as, sizeof as);
}
