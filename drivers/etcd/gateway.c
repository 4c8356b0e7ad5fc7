/*
 * gateway.c - exchanges with etcd's JSON gateway, over HTTP/1.1, by libcurl. See transport.h.
 */
#include "transport.h"

#include "json.h"
#include "kit/dial.h"
#include "kit/reply_head.h"
#include "os.h"

#include <limits.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { REPLY_CAP = 64 << 20 };

struct text {
    char *at;
    size_t len, cap;
};

static size_t take_in(char *bytes, size_t size, size_t n, void *arg)
{
    struct text *t = arg;
    n *= size;
    if (t->len + n + 1 > t->cap) {
        size_t cap = (t->len + n + 1) * 2;
        char *more = cap < REPLY_CAP ? realloc(t->at, cap) : NULL;
        if (!more) return 0;
        t->at = more;
        t->cap = cap;
    }
    memcpy(t->at + t->len, bytes, n);
    t->len += n;
    t->at[t->len] = 0;
    return n;
}

struct head {
    int64_t date_us; /* 0: none was there */
    int whole;
};

static size_t take_header(char *bytes, size_t size, size_t n, void *arg)
{
    struct head *head = arg;
    char date[64];
    size_t len = size * n;
    hf__head_line(&head->whole, bytes, len);
    if (len > 6 && len - 6 < sizeof date && !strncasecmp(bytes, "Date: ", 6)) {
        memcpy(date, bytes + 6, len - 6);
        date[len - 6] = 0;
        time_t t = curl_getdate(date, NULL);
        if (t > 0) head->date_us = (int64_t)t * 1000000;
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

/* ---- what all requests have in common ---- */

static curl_socket_t connected(void *arg, curlsocktype purpose, struct curl_sockaddr *a)
{
    struct hf__et_reach *reach = arg;
    char host[HF_ET_HOST_CAP], port[HF_ET_PORT_CAP];
    const struct hf__dial_target target = {host, port};
    struct hf__attempt *found;
    struct hf__dial *dial;
    int fd = reach->fd;
    (void)purpose;
    (void)a; /* which stands for any */
    reach->fd = -1;
    if (fd >= 0) return fd;
    hf__et_split(reach->endpoint, host, port);
    if (hf__dial_begin(&target, 1, NULL, NULL, &dial)) return CURL_SOCKET_BAD;
    if (!hf__dial_next(dial, reach->until_us, &found)) fd = hf__dial_take(found);
    hf__dial_end(dial);
    return fd < 0 ? CURL_SOCKET_BAD : fd;
}

static int is_connected(void *arg, curl_socket_t fd, curlsocktype purpose)
{
    (void)arg;
    (void)fd;
    (void)purpose;
    return CURL_SOCKOPT_ALREADY_CONNECTED;
}

/* An address that stands for the host's, whatever they are. 0: no memory. */
static int set_reach(CURL *c, struct hf__et_reach *reach)
{
    char host[HF_ET_HOST_CAP], port[HF_ET_PORT_CAP], text[HF_ET_HOST_CAP + 40];
    hf__et_split(reach->endpoint, host, port);
    snprintf(text, sizeof text, "%s:%s:127.0.0.1", host, port);
    if (!strchr(host, ':') && !reach->addresses &&
        !(reach->addresses = curl_slist_append(NULL, text)))
        return 0;
    return (!reach->addresses || !curl_easy_setopt(c, CURLOPT_RESOLVE, reach->addresses)) &&
           !curl_easy_setopt(c, CURLOPT_OPENSOCKETFUNCTION, connected) &&
           !curl_easy_setopt(c, CURLOPT_OPENSOCKETDATA, reach) &&
           !curl_easy_setopt(c, CURLOPT_SOCKOPTFUNCTION, is_connected);
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
    /* Nobody is there to type one. */
    if (!rc && http->key) rc = curl_easy_setopt(c, CURLOPT_KEYPASSWD, "");
    return rc == CURLE_OK;
}

static int set_url(CURL *c, const char *endpoint, const char *path)
{
    char url[600];
    snprintf(url, sizeof url, "%s%s", endpoint, path);
    return curl_easy_setopt(c, CURLOPT_URL, url) == CURLE_OK;
}

int hf__et_gateway_set(const struct hf__et_http *http, CURL *c, struct hf__et_reach *reach,
                       const char *path)
{
    return set_common(http, c) && set_reach(c, reach) && set_url(c, reach->endpoint, path);
}

void hf__et_free_headers(struct curl_slist *all)
{
    for (struct curl_slist *h = all; h; h = h->next) explicit_bzero(h->data, strlen(h->data));
    curl_slist_free_all(all);
}

/* 0: no memory. */
static int add_header(struct curl_slist **all, const char *line)
{
    struct curl_slist *more = curl_slist_append(*all, line);
    if (more) *all = more;
    return more != NULL;
}

struct curl_slist *hf__et_gateway_headers(const char *token)
{
    struct curl_slist *all = NULL;
    char *line = NULL;
    int ok = add_header(&all, "Content-Type: application/json") && add_header(&all, "Expect:");
    if (ok && token && *token) {
        if (asprintf(&line, "Authorization: %s", token) < 0) line = NULL;
        ok = line && add_header(&all, line);
        hf__et_free_secret(line);
    }
    if (ok) return all;
    hf__et_free_headers(all);
    return NULL;
}

/* ---- bytes as base64 ---- */

static json_t *to_base64(const char *bytes, size_t len)
{
    unsigned char *text = malloc((len + 2) / 3 * 4 + 1);
    if (!text) return NULL;
    int n = EVP_EncodeBlock(text, (const unsigned char *)bytes, (int)len);
    json_t *j = json_stringn((const char *)text, (size_t)n);
    free(text);
    return j;
}

/* JSON's null, if it isn't base64. */
static json_t *of_base64(const char *text, size_t n)
{
    size_t pad = 0;
    if (n % 4 != 0 || n >= INT_MAX) return json_null();
    unsigned char *to = malloc(n / 4 * 3 + 1);
    if (!to) return NULL;
    while (pad < 2 && pad < n && text[n - 1 - pad] == '=') pad++;
    /* It takes blanks around the text, and a '=' anywhere. */
    int bad = strcspn(text, "= \t\r\n-") != n - pad, len = 0;
    if (!bad) len = EVP_DecodeBlock(to, (const unsigned char *)text, (int)n);
    bad |= len < 0 || (size_t)len < pad;
    json_t *j = bad ? json_null() : hf__et_bytes((const char *)to, (size_t)len - pad);
    free(to);
    return j;
}

int hf__et_gateway_body(struct hf__et_exchange *x, const json_t *body)
{
    x->method = hf__et_method(x->path);
    if (!x->method) return HF_INVALID;
    json_t *copy = json_deep_copy(body);
    x->body =
        copy && !hf__et_recode(x->method->request, copy, to_base64) ? hf__json_text(copy) : NULL;
    json_decref(copy);
    if (!x->body) return HF_NOMEM;
    x->len = strlen(x->body);
    return 0;
}

json_t *hf__et_gateway_read(const struct hf__et_method *m, const char *text, size_t len,
                            int *ret_nomem)
{
    const char *end = len ? memchr(text, '\n', len) : NULL;
    json_t *json = hf__json_read(len ? text : "", len, 0, ret_nomem);
    if (!json && !*ret_nomem && end) json = hf__json_read(text, (size_t)(end - text), 0, ret_nomem);
    json_t *said = m->streams ? json_object_get(json, "result") : json;
    if (!hf__et_recode(m->reply, said, of_base64)) return json;
    *ret_nomem = 1;
    json_decref(json);
    return NULL;
}

static int set_exchange(const struct hf__et_http *http, CURL *c, struct hf__et_reach *reach,
                        struct hf__et_exchange *x, struct text *body, struct text *reply,
                        struct head *head, struct curl_slist *headers, int64_t left_ms)
{
    return headers && hf__et_gateway_set(http, c, reach, x->path) &&
           !curl_easy_setopt(c, CURLOPT_POST, 1L) &&
           !curl_easy_setopt(c, CURLOPT_POSTFIELDSIZE, (long)body->len) &&
           !curl_easy_setopt(c, CURLOPT_READFUNCTION, give_out) &&
           !curl_easy_setopt(c, CURLOPT_READDATA, body) &&
           !curl_easy_setopt(c, CURLOPT_HTTPHEADER, headers) &&
           !curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, take_in) &&
           !curl_easy_setopt(c, CURLOPT_WRITEDATA, reply) &&
           !curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, take_header) &&
           !curl_easy_setopt(c, CURLOPT_HEADERDATA, head) &&
           !curl_easy_setopt(c, CURLOPT_ERRORBUFFER, x->why) &&
           !curl_easy_setopt(c, CURLOPT_TIMEOUT_MS, (long)left_ms);
}

static int meaning(CURLcode rc)
{
    switch (rc) {
    case CURLE_OK: return 0;
    case CURLE_OUT_OF_MEMORY: return HF_NOMEM;
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CERTPROBLEM: return HF_DENIED;
    default: return HF_UNAVAILABLE;
    }
}

void hf__et_gateway_exchange(struct hf__et_http *http, int number, const char *endpoint,
                             struct hf__et_exchange *x, int64_t left_ms, int64_t share_ms)
{
    struct text body = {x->body, x->len, 0}, reply = {NULL, 0, 0};
    struct head head = {0, 0};
    struct curl_slist *headers = NULL;
    struct hf__et_reach reach = {endpoint, hf__local_us() + share_ms * 1000, -1, NULL};
    CURL **link = &http->link[number], *c;
    CURLcode rc = CURLE_OUT_OF_MEMORY;
    long sent = 0;
    if (!*link) *link = curl_easy_init();
    c = *link;
    if (c) curl_easy_reset(c);
    if (c) headers = hf__et_gateway_headers(x->token);
    if (c && set_exchange(http, c, &reach, x, &body, &reply, &head, headers, left_ms)) {
        unsigned held = hf__low_hold(); /* it opens descriptors for itself, too */
        rc = curl_easy_perform(c);
        hf__low_free(held);
        curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, &x->status);
        curl_easy_getinfo(c, CURLINFO_REQUEST_SIZE, &sent);
    }
    if (rc && !x->why[0]) snprintf(x->why, sizeof x->why, "%s", curl_easy_strerror(rc));
    if (c) curl_easy_setopt(c, CURLOPT_ERRORBUFFER, NULL);
    x->sent = sent != 0;
    x->failed = meaning(rc);
    x->date_us = head.date_us;
    if (!rc && !head.whole) {
        x->failed = HF_UNAVAILABLE;
        snprintf(x->why, sizeof x->why, HF_HEAD_CUT);
    }
    if (!x->failed) x->json = hf__et_gateway_read(x->method, reply.at, reply.len, &x->nomem);
    hf__et_free_headers(headers);
    curl_slist_free_all(reach.addresses);
    free(reply.at);
}

void hf__et_gateway_close(struct hf__et_http *http)
{
    for (int i = 0; i < HF_POOL_LINKS; i++) curl_easy_cleanup(http->link[i]);
    curl_easy_cleanup(http->date_link);
}

/* ---- the date ---- */

static size_t drop(char *bytes, size_t size, size_t n, void *arg)
{
    (void)bytes;
    (void)arg;
    return size * n;
}

/* Seldom: the connection isn't kept. */
int hf__et_gateway_date(struct hf__et_http *http, int fd, const char *endpoint, int64_t until_us,
                        int64_t *ret_us, char why[HF_ET_WHY])
{
    struct hf__et_reach reach = {endpoint, until_us, fd, NULL};
    int64_t left_ms = (until_us - hf__local_us()) / 1000;
    CURL *c = http->date_link ? http->date_link : curl_easy_init();
    CURLcode rc = CURLE_OUT_OF_MEMORY;
    struct head head = {0, 0};
    why[0] = 0;
    if (c) curl_easy_reset(c);
    if (c && hf__et_gateway_set(http, c, &reach, "/version") &&
        !curl_easy_setopt(c, CURLOPT_FORBID_REUSE, 1L) &&
        !curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, drop) &&
        !curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, take_header) &&
        !curl_easy_setopt(c, CURLOPT_HEADERDATA, &head) &&
        !curl_easy_setopt(c, CURLOPT_ERRORBUFFER, why) &&
        !curl_easy_setopt(c, CURLOPT_TIMEOUT_MS, (long)(left_ms > 0 ? left_ms : 1))) {
        unsigned held = hf__low_hold();
        rc = curl_easy_perform(c);
        hf__low_free(held);
    }
    *ret_us = head.date_us;
    if (reach.fd >= 0) close(reach.fd);
    if (c) curl_easy_setopt(c, CURLOPT_ERRORBUFFER, NULL);
    curl_slist_free_all(reach.addresses);
    if (rc) curl_easy_cleanup(c);
    http->date_link = rc ? NULL : c;
    if (rc && !why[0]) snprintf(why, HF_ET_WHY, "%s", curl_easy_strerror(rc));
    if (!rc && *ret_us <= 0) snprintf(why, HF_ET_WHY, "its answer has none");
    if (rc) return meaning(rc);
    return *ret_us > 0 ? 0 : HF_UNAVAILABLE;
}
