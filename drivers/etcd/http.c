/*
 * http.c - see http.h. open.c reads the URL.
 */
#include "http.h"

#include "kit/text.h"
#include "os.h"
#include "transport.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { AMBIGUOUS = 1 };

void hf__et_free_secret(char *secret)
{
    if (secret) explicit_bzero(secret, strlen(secret));
    free(secret);
}

/* ---- what the server says ---- */

/* Whether the request is made again after this answer. */
enum again {
    NOBODY,  /* the request isn't made again */
    ANOTHER, /* this member can't serve now; another one may */
    AS_NEW   /* nothing was done; the request is made again after a new login */
};

/*
 * etcd names its errors by these texts, which begin its messages and which its own clients compare,
 * too (api/v3rpc/rpctypes). They aren't localized. Their gRPC codes differ between releases.
 */
static const struct meaning {
    const char *text;
    int code; /* AMBIGUOUS: the error doesn't say whether the request was carried out */
    enum again again;
} meanings[] = {
    {"etcdserver: requested lease not found", HF_LOST, NOBODY},
    {"etcdserver: permission denied", HF_DENIED, NOBODY},
    {"etcdserver: invalid auth token", HF_DENIED, AS_NEW},
    {"etcdserver: user name is empty", HF_DENIED, AS_NEW},
    {"etcdserver: revision of auth store is old", HF_UNAVAILABLE, AS_NEW},
    {"etcdserver: authentication failed", HF_DENIED, NOBODY},
    {"etcdserver: authentication is not enabled", HF_UNSUPPORTED, NOBODY},
    {"etcdserver: mvcc: database space exceeded", HF_FULL, NOBODY},
    {"etcdserver: request is too large", HF_FULL, NOBODY},
    {"etcdserver: too many operations", HF_FULL, NOBODY},
    {"grpc: received message larger than max", HF_FULL, NOBODY},
    {"etcdserver: too many requests", HF_UNAVAILABLE, ANOTHER},
    /* A server that is just starting doesn't know yet what the cluster supports. */
    {"etcdserver: not capable", HF_UNAVAILABLE, ANOTHER},
    {"etcdserver: rpc not supported for learner", HF_UNAVAILABLE, ANOTHER},
    {"etcdserver: no leader", AMBIGUOUS, ANOTHER},
    {"etcdserver: not leader", AMBIGUOUS, ANOTHER},
    {"etcdserver: leader changed", AMBIGUOUS, ANOTHER},
    {"etcdserver: request timed out", AMBIGUOUS, ANOTHER},
    {"etcdserver: server stopped", AMBIGUOUS, ANOTHER},
    {"etcdserver: unhealthy cluster", AMBIGUOUS, ANOTHER},
};

static const struct meaning *meaning_of(const char *why)
{
    for (size_t i = 0; i < sizeof meanings / sizeof *meanings; i++)
        if (!strncmp(why, meanings[i].text, strlen(meanings[i].text))) return &meanings[i];
    return NULL;
}

/* Returns the HF_ code for a code of gRPC's, if the text isn't one of etcd's. AMBIGUOUS, unless the
   code says that nothing was done. */
static int code_of_grpc(int status)
{
    switch (status) {
    case HF_ET_PERMISSION_DENIED:
    case HF_ET_UNAUTHENTICATED: return HF_DENIED;
    case HF_ET_UNIMPLEMENTED: return HF_UNSUPPORTED;
    default: return AMBIGUOUS;
    }
}

static int code_of(const struct hf__et_exchange *x, int ambiguous)
{
    const struct meaning *m = meaning_of(x->said);
    int code = m ? m->code : code_of_grpc(x->status);
    return code == AMBIGUOUS ? ambiguous : code;
}

/* ---- one exchange ---- */

/* Returns 1 if this member can't serve the request now and another member may be asked; makes that
   the endpoint in use. */
static int asks_another(struct hf__et_http *http, const struct hf__et_exchange *x)
{
    const struct meaning *m = x->failed ? NULL : meaning_of(x->said);
    if (!m || m->again != ANOTHER || http->n_endpoints < 2) return 0;
    hf__et_next(http);
    return x->repeat || m->code == HF_UNAVAILABLE;
}

/* Makes the request on one endpoint after the other until one answers, or until a request that
   mustn't be sent twice was sent. A request that may be repeated gives each endpoint its share of
   the time, so that a mute endpoint doesn't use up all of it. */
static void carry(struct hf__et_http *http, struct hf__et_exchange *x)
{
    int64_t until_us = hf__local_us() + http->io_timeout_ms * 1000, patience_ms = INT64_MAX;
    struct hf__pool *pool = &http->pool;
    int first = 0;
    if (x->keep_until_us) {
        patience_ms = (x->keep_until_us - hf__local_us()) / 1000;
        until_us = hf__pool_connect_until(x->keep_until_us);
        pool = &http->keep_pool;
        first = HF_POOL_LINKS;
    }
    int number = hf__pool_take(pool, until_us);
    x->failed = HF_UNAVAILABLE;
    snprintf(x->why, sizeof x->why, "%s", number < 0 ? HF_POOL_BUSY : "timed out");
    for (unsigned i = 0; number >= 0 && i < http->n_endpoints; i++) {
        int64_t left_ms = (until_us - hf__local_us()) / 1000;
        if (left_ms <= 0) break;
        if (x->repeat) left_ms = (left_ms + http->n_endpoints - i - 1) / (http->n_endpoints - i);
        if (left_ms > patience_ms) left_ms = patience_ms;
        hf__et_free_message(x->message);
        x->message = NULL;
        x->status = x->sent = 0;
        x->why[0] = x->said[0] = 0;
        hf__et_h2_exchange(http, first + number, x, until_us, left_ms);
        if (!x->failed && !asks_another(http, x)) break;
        if (!x->failed) continue;
        if (x->nobody) break;
        hf__et_next(http);
        if (x->sent && !x->repeat) break;
    }
    hf__pool_give(pool, number, !x->failed);
}

void hf__et_free(struct hf__et_reply *reply)
{
    hf__et_free_message(reply->message);
    reply->message = NULL;
}

/* Replaces control characters of the server's text by blanks: the text becomes one line, without
   commands to a terminal. */
static const char *plain(char *text)
{
    for (char *s = text; *s; s++)
        if ((unsigned char)*s < 0x20 || *s == 0x7f) *s = ' ';
    return text;
}

static void read_header(struct hf__et_http *http, struct hf__et_reply *ret)
{
    const HfEt__Header *header = hf__et_header(ret->message);
    ret->term = header ? (int64_t)header->raft_term : 0;
    ret->clock_us = hf__et_date_at(&http->date, header ? header->revision : 0);
}

static int settle(struct hf__et_http *http, struct hf__et_exchange *x, int ambiguous,
                  struct hf__et_reply *ret, const char *what, const char *key, hf_error *err)
{
    char text[HF_ET_WHY];
    if (x->failed) {
        int code = x->sent ? ambiguous : x->failed;
        if (x->failed == HF_DENIED) code = HF_DENIED;
        /* The store has spoken gRPC before, so the URL isn't wrong: it may do so again later. */
        if (code == HF_UNSUPPORTED && __atomic_load_n(&http->term, __ATOMIC_ACQUIRE))
            code = HF_UNAVAILABLE;
        snprintf(text, sizeof text, "%s", x->why);
        return hf_fail(err, code, 0, "etcd: %s '%s': %s", what, key, plain(text));
    }
    if (x->nomem)
        return hf_fail(err, ambiguous == HF_UNAVAILABLE ? HF_NOMEM : ambiguous, 0,
                       "etcd: %s '%s': out of memory", what, key);
    if (!x->status) {
        ret->message = x->message;
        x->message = NULL;
        read_header(http, ret);
        return 0;
    }
    /* etcd's errors always have a text. */
    snprintf(text, sizeof text, "%s", x->said[0] ? x->said : "an answer that isn't etcd's");
    return hf_fail(err, code_of(x, ambiguous), 0, "etcd: %s '%s': %s", what, key, plain(text));
}

static int request(struct hf__et_http *http, enum hf__et_call call, const ProtobufCMessage *body,
                   const struct hf__et_mem *mem, const char *token, int64_t keep_us, int ambiguous,
                   struct hf__et_reply *ret, int *ret_as_new, const char *what, const char *key,
                   hf_error *err)
{
    const struct meaning *m = NULL;
    struct hf__et_exchange x = {.call = call,
                                .token = token,
                                .keep_until_us = keep_us,
                                .repeat = ambiguous == HF_UNAVAILABLE};
    *ret_as_new = 0;
    if ((mem && mem->failed) || hf__et_frame(body, &x.body, &x.len))
        return hf_fail(err, HF_NOMEM, 0, "etcd: %s '%s': out of memory", what, key);
    carry(http, &x);
    int rc = settle(http, &x, ambiguous, ret, what, key, err);
    if (rc && !x.failed) m = meaning_of(x.said);
    *ret_as_new = m && m->again == AS_NEW;
    /* The reply to a keepalive has a header from before the lease was extended, so its term may be
       an earlier one: it isn't noted. */
    if (!rc && ret->term && call != HF_ET_LEASE_KEEP)
        __atomic_store_n(&http->term, ret->term, __ATOMIC_RELEASE);
    explicit_bzero(x.body, x.len); /* the body of a login has the password */
    free(x.body);
    hf__et_free_message(x.message);
    return rc;
}

/* ---- logging in ---- */

/* Logs in, and sets http->token. The caller holds token_mu. Returns 0 or the error. */
static int log_in(struct hf__et_http *http, hf_error *err)
{
    struct hf__et_reply reply = {NULL, 0, 0};
    HfEt__AuthenticateRequest who = HF_ET__AUTHENTICATE_REQUEST__INIT;
    const char *token = NULL;
    int as_new;
    if (!hf__is_utf8(http->password, strlen(http->password)))
        return hf_fail(err, HF_INVALID, 0, "etcd: open: the password is not UTF-8");
    who.name = http->user;
    who.password = http->password;
    int rc = request(http, HF_ET_LOGIN, &who.base, NULL, NULL, 0, HF_UNAVAILABLE, &reply, &as_new,
                     "authenticate", http->user, err);
    if (!rc) token = ((HfEt__AuthenticateResponse *)reply.message)->token;
    if (rc == HF_UNSUPPORTED) { /* the server doesn't ask for a user, so the URL's user is ignored,
                                   as by etcdctl */
        token = "";
        rc = 0;
    }
    if (!rc && !token)
        rc = hf_fail(err, HF_UNAVAILABLE, 0, "etcd: authenticate '%s': no token", http->user);
    hf__et_free_secret(http->token);
    http->token = rc ? NULL : strdup(token);
    hf__et_free(&reply);
    return rc;
}

/* Returns in *ret a copy of the user's token, to be freed; logs in if there is none, or if the one
   there is `old`, which the server has refused. Returns 0 or the error. */
static int get_token(struct hf__et_http *http, const char *old, char **ret, hf_error *err)
{
    int rc = 0;
    pthread_mutex_lock(&http->token_mu);
    if (!http->token || (old && !strcmp(old, http->token))) rc = log_in(http, err);
    *ret = rc ? NULL : http->token ? strdup(http->token) : NULL;
    if (!rc && !*ret) rc = hf_fail(err, HF_NOMEM, 0, "etcd: authenticate: out of memory");
    pthread_mutex_unlock(&http->token_mu);
    return rc;
}

int hf__et_token(struct hf__et_http *http, char **ret, hf_error *err)
{
    *ret = NULL;
    return http->user ? get_token(http, NULL, ret, err) : 0;
}

static int post(struct hf__et_http *http, enum hf__et_call call, const ProtobufCMessage *body,
                const struct hf__et_mem *mem, int64_t keep_us, int ambiguous,
                struct hf__et_reply *ret, const char *what, const char *key, hf_error *err)
{
    char *token = NULL;
    int as_new, rc = hf__et_token(http, &token, err);
    if (!rc) {
        rc =
            request(http, call, body, mem, token, keep_us, ambiguous, ret, &as_new, what, key, err);
        /* The token has expired, or the server has begun to ask for one. In both cases nothing was
           done, so the request is made again. */
        if (rc && as_new && token) {
            char *next = NULL;
            rc = get_token(http, token, &next, err);
            if (!rc)
                rc = request(http, call, body, mem, next, keep_us, ambiguous, ret, &as_new, what,
                             key, err);
            hf__et_free_secret(next);
        }
    }
    hf__et_free_secret(token);
    return rc;
}

int hf__et_post(struct hf__et_http *http, enum hf__et_call call, const ProtobufCMessage *body,
                const struct hf__et_mem *mem, int ambiguous, struct hf__et_reply *ret,
                const char *what, const char *key, hf_error *err)
{
    int rc = hf__et_date_need(http, err);
    return rc ? rc : post(http, call, body, mem, 0, ambiguous, ret, what, key, err);
}

int hf__et_post_keep(struct hf__et_http *http, enum hf__et_call call, const ProtobufCMessage *body,
                     const struct hf__et_mem *mem, int64_t until_us, struct hf__et_reply *ret,
                     const char *what, const char *key, hf_error *err)
{
    return post(http, call, body, mem, until_us, HF_UNAVAILABLE, ret, what, key, err);
}
