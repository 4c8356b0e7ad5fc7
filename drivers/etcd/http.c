/*
 * http.c - see http.h.
 */
#include "http.h"

#include "columns.h"
#include "json.h"
#include "os.h"

#include <limits.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { REPLY_CAP = 64 << 20, PORT = 2379 };

/* ---- base64 ---- */

json_t *hf__et_bytes(const char *bytes, size_t len)
{
    unsigned char *text = malloc((len + 2) / 3 * 4 + 1);
    if (!text) return NULL;
    int n = EVP_EncodeBlock(text, (const unsigned char *)bytes, (int)len);
    json_t *j = json_stringn((const char *)text, (size_t)n);
    free(text);
    return j;
}

int hf__et_read_bytes(const json_t *from, char **ret, size_t *ret_len)
{
    const char *s = from ? json_string_value(from) : "";
    size_t n = from ? json_string_length(from) : 0, pad = 0;
    *ret = NULL;
    if (!s || n % 4 != 0 || n >= INT_MAX) return HF_CORRUPT;
    char *to = malloc(n / 4 * 3 + 1);
    if (!to) return HF_NOMEM;
    while (pad < 2 && pad < n && s[n - 1 - pad] == '=') pad++;
    /* It takes blanks around the text, and a '=' anywhere. */
    int bad = strcspn(s, "= \t\r\n-") != n - pad, len = 0;
    if (!bad) len = EVP_DecodeBlock((unsigned char *)to, (const unsigned char *)s, (int)n);
    if (bad || len < 0 || (size_t)len < pad) {
        free(to);
        return HF_CORRUPT;
    }
    *ret = to;
    *ret_len = (size_t)len - pad;
    to[*ret_len] = 0;
    return 0;
}

/* ---- one exchange ---- */

struct text {
    char *at;
    size_t len, cap;
    int failed;
};

static size_t take_in(char *bytes, size_t size, size_t n, void *arg)
{
    struct text *t = arg;
    n *= size;
    if (t->len + n + 1 > t->cap) {
        size_t cap = (t->len + n + 1) * 2;
        char *more = cap < REPLY_CAP ? realloc(t->at, cap) : NULL;
        if (!more) {
            t->failed = 1;
            return 0;
        }
        t->at = more;
        t->cap = cap;
    }
    memcpy(t->at + t->len, bytes, n);
    t->len += n;
    t->at[t->len] = 0;
    return n;
}

static size_t take_header(char *bytes, size_t size, size_t n, void *arg)
{
    char date[64];
    size_t len = size * n;
    if (len > 6 && len - 6 < sizeof date && !strncasecmp(bytes, "Date: ", 6)) {
        memcpy(date, bytes + 6, len - 6);
        date[len - 6] = 0;
        time_t t = curl_getdate(date, NULL);
        if (t > 0) *(int64_t *)arg = (int64_t)t * 1000000;
    }
    return len;
}

/* The request is handed out by a function that can't begin again, so that libcurl doesn't send a
   write twice by itself when a connection broke under it. */
static size_t give_out(char *to, size_t size, size_t n, void *arg)
{
    struct text *t = arg;
    n *= size;
    if (n > t->len) n = t->len;
    memcpy(to, t->at, n);
    t->at += n;
    t->len -= n;
    return n;
}

static int set_common(const struct hf__et_http *http, CURL *c)
{
    CURLcode rc = curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    if (!rc) rc = curl_easy_setopt(c, CURLOPT_PROXY, "");
    if (!rc) rc = curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
    if (!rc) rc = curl_easy_setopt(c, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1);
    if (!rc) rc = curl_easy_setopt(c, CURLOPT_TCP_KEEPALIVE, 1L);
    if (!rc) rc = curl_easy_setopt(c, CURLOPT_TCP_KEEPIDLE, 15L);
    if (!rc) rc = curl_easy_setopt(c, CURLOPT_TCP_KEEPINTVL, 5L);
    if (!rc && http->cafile) rc = curl_easy_setopt(c, CURLOPT_CAINFO, http->cafile);
    if (!rc && http->cert) rc = curl_easy_setopt(c, CURLOPT_SSLCERT, http->cert);
    if (!rc && http->key) rc = curl_easy_setopt(c, CURLOPT_SSLKEY, http->key);
    return rc == CURLE_OK;
}

static int set_url(CURL *c, const char *endpoint, const char *path)
{
    char url[600];
    snprintf(url, sizeof url, "%s%s", endpoint, path);
    return curl_easy_setopt(c, CURLOPT_URL, url) == CURLE_OK;
}

void hf__et_free_headers(struct curl_slist *all)
{
    for (struct curl_slist *h = all; h; h = h->next) explicit_bzero(h->data, strlen(h->data));
    curl_slist_free_all(all);
}

static void free_secret(char *secret)
{
    if (secret) explicit_bzero(secret, strlen(secret));
    free(secret);
}

/* 0: no memory. */
static int add_header(struct curl_slist **all, const char *line)
{
    struct curl_slist *more = curl_slist_append(*all, line);
    if (more) *all = more;
    return more != NULL;
}

/* All of them, a token of any length, too; NULL: no memory. */
static struct curl_slist *headers(const char *token)
{
    struct curl_slist *all = NULL;
    char *line = NULL;
    int ok = add_header(&all, "Content-Type: application/json") && add_header(&all, "Expect:");
    if (ok && token && *token) {
        if (asprintf(&line, "Authorization: %s", token) < 0) line = NULL;
        ok = line && add_header(&all, line);
        free_secret(line);
    }
    if (ok) return all;
    hf__et_free_headers(all);
    return NULL;
}

void hf__et_next(struct hf__et_http *http)
{
    unsigned at = __atomic_load_n(&http->at, __ATOMIC_RELAXED);
    __atomic_store_n(&http->at, (at + 1) % http->n_endpoints, __ATOMIC_RELAXED);
}

struct exchange {
    const char *path, *body;
    struct curl_slist *headers;
    struct text reply;
    int64_t clock_us;
    long status;
    CURLcode rc;
    long sent;  /* bytes */
    int repeat; /* it changes nothing, or nothing more if it is done twice */
    char why[CURL_ERROR_SIZE];
};

static void exchange(struct hf__et_http *http, CURL *c, const char *endpoint, struct exchange *x,
                     int64_t left_ms)
{
    struct text body = {(char *)(uintptr_t)x->body, strlen(x->body), 0, 0};
    long connect_ms = (long)(http->n_endpoints > 1 ? http->io_timeout_ms / 3 : left_ms);
    curl_easy_reset(c);
    x->rc = CURLE_OUT_OF_MEMORY;
    x->reply.len = 0;
    x->clock_us = 0;
    x->status = x->sent = 0;
    x->why[0] = 0;
    if (!set_common(http, c) || !set_url(c, endpoint, x->path) ||
        curl_easy_setopt(c, CURLOPT_POST, 1L) ||
        curl_easy_setopt(c, CURLOPT_POSTFIELDSIZE, (long)body.len) ||
        curl_easy_setopt(c, CURLOPT_READFUNCTION, give_out) ||
        curl_easy_setopt(c, CURLOPT_READDATA, &body) ||
        curl_easy_setopt(c, CURLOPT_HTTPHEADER, x->headers) ||
        curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, take_in) ||
        curl_easy_setopt(c, CURLOPT_WRITEDATA, &x->reply) ||
        curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, take_header) ||
        curl_easy_setopt(c, CURLOPT_HEADERDATA, &x->clock_us) ||
        curl_easy_setopt(c, CURLOPT_ERRORBUFFER, x->why) ||
        curl_easy_setopt(c, CURLOPT_TIMEOUT_MS, (long)left_ms) ||
        curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT_MS, connect_ms < left_ms ? connect_ms : left_ms))
        return;
    x->rc = curl_easy_perform(c);
    curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, &x->status);
    curl_easy_getinfo(c, CURLINFO_REQUEST_SIZE, &x->sent);
    if (x->rc && !x->why[0]) snprintf(x->why, sizeof x->why, "%s", curl_easy_strerror(x->rc));
    curl_easy_setopt(c, CURLOPT_ERRORBUFFER, NULL);
}

/* Each endpoint in turn, until something was sent that mustn't be sent twice. One that is mute
   mustn't use up the others' time then. */
static void carry(struct hf__et_http *http, struct exchange *x)
{
    int64_t until_us = hf__local_us() + http->io_timeout_ms * 1000;
    int number = hf__pool_take(&http->pool);
    CURL **link = &http->link[number];
    if (!*link) *link = curl_easy_init();
    x->rc = CURLE_OUT_OF_MEMORY;
    for (unsigned i = 0; *link && i < http->n_endpoints; i++) {
        unsigned at = __atomic_load_n(&http->at, __ATOMIC_RELAXED) % http->n_endpoints;
        int64_t left_ms = (until_us - hf__local_us()) / 1000;
        if (left_ms <= 0) break;
        if (x->repeat) left_ms = (left_ms + http->n_endpoints - i - 1) / (http->n_endpoints - i);
        exchange(http, *link, http->endpoint[at], x, left_ms);
        if (!x->rc) break;
        hf__et_next(http);
        if (x->sent && !x->repeat) break;
    }
    hf__pool_give(&http->pool, number);
}

/* ---- what the server says ---- */

/* What the error's text begins with says more than its numbers, which differ between releases. */
static const struct {
    const char *text;
    int code; /* 0: the ambiguous one */
} meanings[] = {
    {"requested lease not found", HF_LOST},
    {"permission denied", HF_DENIED},
    {"invalid auth token", HF_DENIED},
    {"user name is empty", HF_DENIED},
    {"authentication failed", HF_DENIED},
    {"database space exceeded", HF_FULL},
    {"request is too large", HF_FULL},
    {"too many requests", HF_UNAVAILABLE},
    {"no leader", 0},
    {"leader changed", 0},
    {"timed out", 0},
    {"not capable", HF_UNSUPPORTED},
    {"authentication is not enabled", HF_UNSUPPORTED},
};

int hf__et_error(const json_t *json, long status, int ambiguous, const char **ret_why)
{
    json_t *error = json_object_get(json, "error");
    const char *why = json_string_value(error);
    if (!why) why = json_string_value(json_object_get(error, "message"));
    if (!why) why = json_string_value(json_object_get(json, "message"));
    *ret_why = why ? why : "an answer that isn't etcd's";
    for (size_t i = 0; why && i < sizeof meanings / sizeof *meanings; i++)
        if (strstr(why, meanings[i].text)) return meanings[i].code ? meanings[i].code : ambiguous;
    if (status == 401 || status == 403) return HF_DENIED;
    if (status == 404 && !why) {
        *ret_why = "no v3 gateway there (404)";
        return HF_UNSUPPORTED;
    }
    return ambiguous;
}

void hf__et_free(struct hf__et_reply *reply)
{
    json_decref(reply->json);
    reply->json = NULL;
}

/* Texts of others in ours: one line, nothing that a terminal would obey. */
static const char *plain(char *text)
{
    for (char *s = text; *s; s++)
        if ((unsigned char)*s < 0x20 || *s == 0x7f) *s = ' ';
    return text;
}

/* The answer, or the first of several: a lease that is kept is a stream of them, one a line. */
static json_t *read_reply(const struct text *reply, int *ret_nomem)
{
    const char *text = reply->at ? reply->at : "", *end = memchr(text, '\n', reply->len);
    json_t *json = hf__json_read(text, reply->len, 0, ret_nomem);
    if (!json && !*ret_nomem && end) json = hf__json_read(text, (size_t)(end - text), 0, ret_nomem);
    return json;
}

/* What stands above every answer. */
static void read_header(const json_t *header, int64_t clock_us, struct hf__et_reply *ret)
{
    const char *revision = json_string_value(json_object_get(header, "revision"));
    const char *term = json_string_value(json_object_get(header, "raft_term"));
    /* The date is of whole seconds; within one of them the cluster's revision goes on, faster
       than revs do: a write that makes several grants adds so many to them. */
    ret->clock_us = clock_us;
    if (clock_us && revision) ret->clock_us += strtoll(revision, NULL, 10) * 16 % 1000000;
    ret->term = term ? strtoll(term, NULL, 10) : 0;
}

static int settle(struct exchange *x, int ambiguous, struct hf__et_reply *ret, const char *what,
                  const char *key, hf_error *err)
{
    char text[256];
    const char *why;
    int nomem;
    if (x->rc) {
        int code = x->sent ? ambiguous : HF_UNAVAILABLE;
        if (x->rc == CURLE_OUT_OF_MEMORY && !x->sent) code = HF_NOMEM;
        if (x->rc == CURLE_PEER_FAILED_VERIFICATION || x->rc == CURLE_SSL_CACERT_BADFILE ||
            x->rc == CURLE_SSL_CERTPROBLEM)
            code = HF_DENIED;
        return hf_fail(err, code, 0, "etcd: %s '%s': %s", what, key, plain(x->why));
    }
    json_t *json = read_reply(&x->reply, &nomem);
    if (nomem)
        return hf_fail(err, ambiguous == HF_UNAVAILABLE ? HF_NOMEM : ambiguous, 0,
                       "etcd: %s '%s': out of memory", what, key);
    if (x->status == 200 && json_is_object(json) && !json_object_get(json, "error")) {
        ret->json = json;
        read_header(json_object_get(json, "header"), x->clock_us, ret);
        return 0;
    }
    int code = hf__et_error(json, x->status, ambiguous, &why);
    snprintf(text, sizeof text, "%s", why);
    json_decref(json);
    return hf_fail(err, code, 0, "etcd: %s '%s': %s", what, key, plain(text));
}

static int request(struct hf__et_http *http, const char *path, const char *body, const char *token,
                   int ambiguous, struct hf__et_reply *ret, const char *what, const char *key,
                   hf_error *err)
{
    struct exchange x = {.path = path,
                         .body = body,
                         .headers = headers(token),
                         .repeat = ambiguous == HF_UNAVAILABLE};
    if (!x.headers) return hf_fail(err, HF_NOMEM, 0, "etcd: %s '%s': out of memory", what, key);
    carry(http, &x);
    int rc = settle(&x, ambiguous, ret, what, key, err);
    if (!rc && ret->term) __atomic_store_n(&http->term, ret->term, __ATOMIC_RELEASE);
    hf__et_free_headers(x.headers);
    free(x.reply.at);
    return rc;
}

/* ---- who we are ---- */

/* A token of the user's; `old` isn't valid any more. A copy, to be freed. */
static int get_token(struct hf__et_http *http, const char *old, char **ret, hf_error *err)
{
    struct hf__et_reply reply = {NULL, 0, 0};
    int rc = 0;
    pthread_mutex_lock(&http->token_mu);
    if (!http->token || (old && !strcmp(old, http->token))) {
        json_t *who = json_pack("{s:s, s:s}", "name", http->user, "password", http->password);
        char *body = who ? hf__json_text(who) : NULL;
        rc = body ? request(http, "/v3/auth/authenticate", body, NULL, HF_UNAVAILABLE, &reply,
                            "authenticate", http->user, err)
                  : hf_fail(err, HF_INVALID, 0, "etcd: open: the password is not UTF-8");
        const char *token = rc ? NULL : json_string_value(json_object_get(reply.json, "token"));
        if (rc == HF_UNSUPPORTED) { /* nobody is asked who he is, as etcdctl sees it, too */
            token = "";
            rc = 0;
        }
        if (!rc && !token)
            rc = hf_fail(err, HF_UNAVAILABLE, 0, "etcd: authenticate '%s': no token", http->user);
        free_secret(body);
        json_decref(who);
        free_secret(http->token);
        http->token = rc ? NULL : strdup(token);
        hf__et_free(&reply);
    }
    *ret = rc ? NULL : http->token ? strdup(http->token) : NULL;
    if (!rc && !*ret) rc = hf_fail(err, HF_NOMEM, 0, "etcd: authenticate: out of memory");
    pthread_mutex_unlock(&http->token_mu);
    return rc;
}

int hf__et_post(struct hf__et_http *http, const char *path, const json_t *body, int ambiguous,
                struct hf__et_reply *ret, const char *what, const char *key, hf_error *err)
{
    hf_error own;
    char *text = body ? hf__json_text(body) : NULL, *token = NULL;
    int rc = text ? 0 : hf_fail(err, HF_NOMEM, 0, "etcd: %s '%s': out of memory", what, key);
    if (!rc && http->user) rc = get_token(http, NULL, &token, err);
    if (!rc) {
        rc = request(http, path, text, token, ambiguous, ret, what, key, &own);
        /* It has expired, or meanwhile one is asked for: then nothing was done. */
        if (rc == HF_DENIED && token &&
            (strstr(own.text, "invalid auth token") || strstr(own.text, "user name is empty"))) {
            char *next = NULL;
            rc = get_token(http, token, &next, &own);
            if (!rc) rc = request(http, path, text, next, ambiguous, ret, what, key, &own);
            free_secret(next);
        }
        if (rc && err) *err = own;
    }
    free_secret(token);
    free(text);
    return rc;
}

CURL *hf__et_stream(struct hf__et_http *http, const char *path, const char *body,
                    struct curl_slist **ret_headers)
{
    CURL *c = curl_easy_init();
    char *token = NULL;
    unsigned at = __atomic_load_n(&http->at, __ATOMIC_RELAXED) % http->n_endpoints;
    *ret_headers = NULL;
    if (c && http->user && get_token(http, NULL, &token, NULL)) {
        curl_easy_cleanup(c);
        return NULL;
    }
    *ret_headers = c ? headers(token) : NULL;
    free_secret(token);
    if (c && *ret_headers && set_common(http, c) && set_url(c, http->endpoint[at], path) &&
        !curl_easy_setopt(c, CURLOPT_HTTPHEADER, *ret_headers) &&
        !curl_easy_setopt(c, CURLOPT_POSTFIELDS, body) &&
        !curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT_MS, (long)http->io_timeout_ms))
        return c;
    hf__et_free_headers(*ret_headers);
    *ret_headers = NULL;
    curl_easy_cleanup(c);
    return NULL;
}

/* ---- opening ---- */

/* One host or host:port of the list. 0, HF_INVALID or HF_NOMEM. */
static int add_endpoint(struct hf__et_http *http, const char *from, size_t len, int port, int tls)
{
    char text[300], host[256];
    if (!len || len >= sizeof host || http->n_endpoints == HF_ET_ENDPOINTS) return HF_INVALID;
    memcpy(host, from, len);
    host[len] = 0;
    const char *colon = strrchr(host, ':'), *bracket = strrchr(host, ']');
    int bare6 = colon && strchr(host, ':') != colon && !bracket;
    int has_port = colon && !bare6 && (!bracket || bracket < colon);
    int n = snprintf(text, sizeof text, "%s://%s%s%s", tls ? "https" : "http", bare6 ? "[" : "",
                     host, bare6 ? "]" : "");
    if (n < 0) return HF_INVALID;
    if (!has_port)
        snprintf(text + n, sizeof text - (size_t)n, ":%d", port ? port : PORT);
    else if (!colon[1] || strspn(colon + 1, "0123456789") != strlen(colon + 1))
        return HF_INVALID;
    char *own = strdup(text);
    if (!own) return HF_NOMEM;
    http->endpoint[http->n_endpoints++] = own;
    return 0;
}

static int option(const hf_url *url, const char *name, char **ret, hf_error *err)
{
    char value[1024];
    int rc = hf_url_get(url, name, value, sizeof value);
    if (rc == HF_UNSUPPORTED) return 0;
    if (rc || !*value)
        return hf_fail(err, HF_INVALID, 0, "etcd: open '%s': %s: not a file's name", url->safe,
                       name);
    *ret = strdup(value);
    return *ret ? 0 : hf_fail(err, HF_NOMEM, 0, "etcd: open '%s': out of memory", url->safe);
}

static int options(struct hf__et_http *http, const hf_url *url, hf_error *err)
{
    static const char *const plain_known[] = {NULL}, *const tls_known[] = {"cafile", "cert", "key",
                                                                           NULL};
    char name[64];
    int tls = !strcmp(url->scheme, "etcds");
    const char *bad = hf__unknown_option(url, tls ? tls_known : plain_known, name, sizeof name);
    if (bad)
        return hf_fail(err, HF_INVALID, 0, "etcd: open '%s': %s: unknown%s", url->safe, bad,
                       tls ? "" : " (cafile, cert and key belong to etcds:)");
    int rc = option(url, "cafile", &http->cafile, err);
    if (!rc) rc = option(url, "cert", &http->cert, err);
    if (!rc) rc = option(url, "key", &http->key, err);
    if (!rc && !http->cert != !http->key)
        rc = hf_fail(err, HF_INVALID, 0, "etcd: open '%s': %s: needs the other of the two",
                     url->safe, http->cert ? "cert" : "key");
    return rc;
}

int hf__et_http_open(struct hf__et_http *http, const hf_url *url, int64_t io_timeout_ms,
                     hf_error *err)
{
    int tls = !strcmp(url->scheme, "etcds");
    hf__pool_open(&http->pool);
    pthread_mutex_init(&http->token_mu, NULL);
    http->ready = !curl_global_init(CURL_GLOBAL_DEFAULT);
    http->io_timeout_ms = io_timeout_ms;
    if (!http->ready) return hf_fail(err, HF_NOMEM, 0, "etcd: open: libcurl doesn't start");
    int rc = options(http, url, err);
    if (rc) return rc;
    const char *hosts = *url->host ? url->host : "127.0.0.1";
    for (const char *s = hosts; !rc; s++) {
        size_t len = strcspn(s, ",");
        rc = add_endpoint(http, s, len, url->port, tls);
        if (rc)
            hf_fail(err, rc, 0, "etcd: open '%s': %s", url->safe,
                    rc == HF_NOMEM ? "out of memory" : "the hosts are not host:port,...");
        s += len;
        if (!*s) break;
    }
    if (!rc && *url->user) {
        http->user = strdup(url->user);
        http->password = strdup(url->password);
        if (!http->user || !http->password)
            rc = hf_fail(err, HF_NOMEM, 0, "etcd: open '%s': out of memory", url->safe);
    }
    return rc;
}

void hf__et_http_close(struct hf__et_http *http)
{
    for (int i = 0; i < HF_POOL_LINKS; i++) curl_easy_cleanup(http->link[i]);
    for (unsigned i = 0; i < http->n_endpoints; i++) free(http->endpoint[i]);
    char *texts[] = {http->cafile, http->cert, http->key, http->user};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) free(texts[i]);
    free_secret(http->password);
    free_secret(http->token);
    hf__pool_close(&http->pool);
    pthread_mutex_destroy(&http->token_mu);
    if (http->ready) curl_global_cleanup();
}
