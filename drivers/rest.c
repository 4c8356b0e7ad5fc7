/*
 * rest.c - see rest.h.
 *
 * libcurl sends a request anew by itself if a connection that it kept turns out to be dead. For a
 * write that would be a repetition that nobody knows of. It can't do so once it has read some of
 * the body and may not go back to its beginning; that is why the body is read by a function.
 */
#include "rest.h"

#include "kit/reply_head.h"
#include "kit/secret.h"
#include "os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

enum { REPLY_MOST = 256 << 20 };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int started;

static void start(void) { started = !curl_global_init(CURL_GLOBAL_DEFAULT); }

int hf__rest_open(struct hf__rest *rest, hf_error *err)
{
    hf__pool_open(&rest->pool);
    hf__pool_open(&rest->many_pool);
    if (hf__keys_would_be_logged())
        return hf_fail(err, HF_DENIED, 0,
                       "%s: open: SSLKEYLOGFILE is set in a program with more rights than its "
                       "user: unset it",
                       rest->store);
    pthread_once(&once, start);
    return started ? 0 : hf_fail(err, HF_NOMEM, 0, "%s: open: libcurl doesn't start", rest->store);
}

void hf__rest_close(struct hf__rest *rest)
{
    for (int i = 0; i < HF_POOL_LINKS; i++) {
        curl_easy_cleanup(rest->link[i]);
        curl_easy_cleanup(rest->many[i]);
    }
    hf__pool_close(&rest->pool);
    hf__pool_close(&rest->many_pool);
    free(rest->cafile);
}

void hf__rest_forget(char *secret)
{
    if (secret) explicit_bzero(secret, strlen(secret));
    free(secret);
}

void hf__rest_reply_free(struct hf__rest_reply *reply)
{
    if (reply->body) explicit_bzero(reply->body, reply->len);
    free(reply->body);
    reply->body = NULL;
    reply->len = reply->cap = 0;
}

int hf__rest_url_safe(const char *url)
{
    static const char *const here[] = {"http://127.0.0.1:", "http://127.0.0.1/",
                                       "http://localhost:", "http://localhost/",
                                       "http://[::1]:",     "http://[::1]/"};
    if (!strncasecmp(url, "https://", 8)) return 1;
    for (size_t i = 0; i < sizeof here / sizeof *here; i++)
        if (!strncasecmp(url, here[i], strlen(here[i]))) return 1;
    return 0;
}

/* ---- one request ---- */

struct upload {
    const char *from, *at;
    size_t len, left;
    int touched, harmless;
};

static size_t give(char *to, size_t size, size_t n, void *arg)
{
    struct upload *up = arg;
    size_t len = size * n < up->left ? size * n : up->left;
    memcpy(to, up->at, len);
    up->at += len;
    up->left -= len;
    up->touched = 1;
    return len;
}

/* Back to the beginning, to send it again. */
static int go_back(void *arg, curl_off_t offset, int origin)
{
    struct upload *up = arg;
    if (!up->harmless || offset || origin != SEEK_SET) return CURL_SEEKFUNC_FAIL;
    up->at = up->from;
    up->left = up->len;
    return CURL_SEEKFUNC_OK;
}

static size_t keep(char *from, size_t size, size_t n, void *arg)
{
    struct hf__rest_reply *r = arg;
    size_t len = size * n;
    if (r->len + len + 1 > r->cap) {
        size_t cap = (r->len + len + 1) * 2;
        char *bigger = cap <= REPLY_MOST ? malloc(cap) : NULL;
        if (!bigger) return 0; /* which ends the request with an error */
        if (r->body) {
            memcpy(bigger, r->body, r->len);
            explicit_bzero(r->body, r->len);
        }
        free(r->body);
        r->body = bigger;
        r->cap = cap;
    }
    memcpy(r->body + r->len, from, len);
    r->len += len;
    r->body[r->len] = 0;
    return len;
}

/* The value of the header of that name, which ends with its colon; NULL: it is another one. */
static const char *value_of(const char *line, size_t len, const char *name, size_t *ret_len)
{
    size_t skip = strlen(name);
    if (len < skip || strncasecmp(line, name, skip) != 0) return NULL;
    while (skip < len && line[skip] == ' ') skip++;
    while (len > skip && strchr(" \r\n", line[len - 1])) len--;
    *ret_len = len - skip;
    return line + skip;
}

static size_t note_header(char *from, size_t size, size_t n, void *arg)
{
    struct hf__rest_reply *r = arg;
    char date[40];
    size_t len;
    const char *value;
    hf__head_line(&r->whole, from, size * n);
    if ((value = value_of(from, size * n, "ETag:", &len)) && len < sizeof r->tag)
        snprintf(r->tag, sizeof r->tag, "%.*s", (int)len, value);
    if ((value = value_of(from, size * n, "Date:", &len)) && len < sizeof date) {
        snprintf(date, sizeof date, "%.*s", (int)len, value);
        int64_t s = curl_getdate(date, NULL);
        r->date_us = s > 0 ? s * 1000000 : 0;
    }
    return size * n;
}

static curl_socket_t open_socket(void *arg, curlsocktype purpose, struct curl_sockaddr *a)
{
    (void)arg;
    (void)purpose;
    return hf__fd_above(socket(a->family, a->socktype | SOCK_CLOEXEC, a->protocol));
}

static __thread int was_connected; /* the socket that this thread closed last */

static int close_socket(void *arg, curl_socket_t fd)
{
    struct sockaddr_storage peer;
    socklen_t len = sizeof peer;
    (void)arg;
    was_connected = !getpeername(fd, (struct sockaddr *)&peer, &len);
    return close(fd);
}

/* What stays the same on a connection. 0: no memory. */
static int make_easy(const struct hf__rest *rest, CURL **link)
{
    if (*link) return 1;
    CURL *e = *link = curl_easy_init();
    if (!e) return 0;
    int bad = curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L) != CURLE_OK;
    bad |= curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https") != CURLE_OK;
    bad |= curl_easy_setopt(e, CURLOPT_FOLLOWLOCATION, 0L) != CURLE_OK;
    bad |= curl_easy_setopt(e, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1) != CURLE_OK;
    bad |= curl_easy_setopt(e, CURLOPT_TCP_KEEPALIVE, 1L) != CURLE_OK;
    bad |= curl_easy_setopt(e, CURLOPT_USERAGENT, "holdfast") != CURLE_OK;
    bad |= curl_easy_setopt(e, CURLOPT_READFUNCTION, give) != CURLE_OK;
    bad |= curl_easy_setopt(e, CURLOPT_SEEKFUNCTION, go_back) != CURLE_OK;
    bad |= curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, keep) != CURLE_OK;
    bad |= curl_easy_setopt(e, CURLOPT_HEADERFUNCTION, note_header) != CURLE_OK;
    bad |= curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT_MS, (long)rest->io_timeout_ms) != CURLE_OK;
    bad |= curl_easy_setopt(e, CURLOPT_OPENSOCKETFUNCTION, open_socket) != CURLE_OK;
    bad |= curl_easy_setopt(e, CURLOPT_CLOSESOCKETFUNCTION, close_socket) != CURLE_OK;
#if LIBCURL_VERSION_NUM >= 0x075700
    /* The time limits count for the lookup of the name, too: libcurl's thread that waits for a mute
       name server is left to itself. (Through a proxy it is the proxy that looks it up: so this
       isn't done by kit/dial.h.) */
    bad |= curl_easy_setopt(e, CURLOPT_QUICK_EXIT, 1L) != CURLE_OK;
#endif
    if (rest->straight) bad |= curl_easy_setopt(e, CURLOPT_NOPROXY, "*") != CURLE_OK;
    if (rest->cafile) bad |= curl_easy_setopt(e, CURLOPT_CAINFO, rest->cafile) != CURLE_OK;
    if (!bad) return 1;
    curl_easy_cleanup(e);
    *link = NULL;
    return 0;
}

/* What a request that didn't get through means, as if it hadn't been sent. */
static int code_of(CURLcode rc)
{
    switch (rc) {
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_ISSUER_ERROR:
    case CURLE_SSL_CERTPROBLEM: return HF_DENIED;
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL: return HF_INVALID;
    case CURLE_OUT_OF_MEMORY: return HF_NOMEM;
    default: return HF_UNAVAILABLE;
    }
}

/* Which part of a request was mute. What was sent goes over a connection, new or kept. */
static const char *mute_part(CURL *e, const struct upload *up)
{
    curl_off_t named = 0;
    curl_easy_getinfo(e, CURLINFO_NAMELOOKUP_TIME_T, &named);
    return up->touched ? "the reply" : !named ? "the name" : !was_connected ? "TCP" : "TLS";
}

/* The method, and how long the body is. Returns whether it couldn't be set. (A PUT is a POST by
   another name: libcurl lets a PUT of any size wait for a "100 Continue".) */
static int set_method(CURL *e, const char *method, size_t len)
{
    const char *name = strcmp(method, "PUT") ? NULL : method;
    if (curl_easy_setopt(e, CURLOPT_CUSTOMREQUEST, name) != CURLE_OK) return 1;
    if (!strcmp(method, "GET")) return curl_easy_setopt(e, CURLOPT_HTTPGET, 1L) != CURLE_OK;
    return curl_easy_setopt(e, CURLOPT_POST, 1L) != CURLE_OK ||
           curl_easy_setopt(e, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)len) != CURLE_OK;
}

/* The account that signs a request; NULL: none. Returns whether it could not be set. */
static int set_account(CURL *e, const char *sign, const char *user, const char *password)
{
    return curl_easy_setopt(e, CURLOPT_AWS_SIGV4, sign) != CURLE_OK ||
           curl_easy_setopt(e, CURLOPT_USERNAME, user) != CURLE_OK ||
           curl_easy_setopt(e, CURLOPT_PASSWORD, password) != CURLE_OK;
}

static void perform(struct hf__rest *rest, CURL *e, struct upload *up, int64_t limit_ms,
                    struct hf__rest_reply *r)
{
    char told[CURL_ERROR_SIZE] = "", file_why[HF_KIT_WHY];
    int bad = curl_easy_setopt(e, CURLOPT_READDATA, up) != CURLE_OK;
    bad |= curl_easy_setopt(e, CURLOPT_SEEKDATA, up) != CURLE_OK;
    bad |= curl_easy_setopt(e, CURLOPT_WRITEDATA, r) != CURLE_OK;
    bad |= curl_easy_setopt(e, CURLOPT_HEADERDATA, r) != CURLE_OK;
    bad |= curl_easy_setopt(e, CURLOPT_ERRORBUFFER, told) != CURLE_OK;
    unsigned held = hf__low_hold(); /* it opens descriptors for itself, too */
    was_connected = 0;
    CURLcode rc = bad ? CURLE_OUT_OF_MEMORY : curl_easy_perform(e);
    hf__low_free(held);
    (void)curl_easy_setopt(e, CURLOPT_ERRORBUFFER, NULL);
    (void)curl_easy_setopt(e, CURLOPT_HTTPHEADER, NULL);
    __atomic_fetch_add(&rest->sent, 1, __ATOMIC_RELAXED); /* a statistic */
    r->sent = up->touched;
    if (!rc && r->whole) {
        curl_easy_getinfo(e, CURLINFO_RESPONSE_CODE, &r->status);
        return;
    }
    r->code = rc ? code_of(rc) : HF_UNAVAILABLE;
    /* libcurl doesn't tell a file that can't be read from one that says nothing. */
    int of_file = rc == CURLE_SSL_CACERT_BADFILE && rest->cafile
                      ? hf__credential_check("cafile", rest->cafile, file_why)
                      : 0;
    if (of_file) r->code = of_file;
    if (!rc)
        snprintf(r->why, sizeof r->why, HF_HEAD_CUT);
    else if (rc == CURLE_OPERATION_TIMEDOUT)
        snprintf(r->why, sizeof r->why, "no answer within %lld ms (%s)", (long long)limit_ms,
                 mute_part(e, up));
    else
        snprintf(r->why, sizeof r->why, "%.*s", (int)strcspn(told, "\r\n"),
                 *told ? told : curl_easy_strerror(rc));
}

/* How long the request that is made now may take. */
static int64_t limit_of(const struct hf__rest *rest, int64_t many_until_us)
{
    return many_until_us ? (many_until_us - hf__local_us()) / 1000 : rest->io_timeout_ms;
}

/* All that is set for one request. Returns whether there was no memory for it. */
static int prepare(CURL *e, const struct hf__rest_call *call, struct curl_slist **list)
{
    for (const char *const *h = call->headers; *h; h++) {
        struct curl_slist *more = curl_slist_append(*list, *h);
        if (!more) return 1;
        *list = more;
    }
    return curl_easy_setopt(e, CURLOPT_URL, call->url) != CURLE_OK ||
           curl_easy_setopt(e, CURLOPT_HTTPHEADER, *list) != CURLE_OK ||
           set_method(e, call->method, call->len) ||
           (call->sign && set_account(e, call->sign, call->user, call->password));
}

void hf__rest_ask(struct hf__rest *rest, const struct hf__rest_call *call, struct hf__rest_reply *r)
{
    int64_t many = call->many_until_us;
    int64_t until_us = many ? many : hf__local_us() + rest->io_timeout_ms * 1000;
    struct hf__pool *pool = many ? &rest->many_pool : &rest->pool;
    int number = hf__pool_take(pool, until_us);
    *r = (struct hf__rest_reply){.code = HF_UNAVAILABLE, .why = HF_POOL_BUSY};
    if (number < 0) return;
    CURL **link = many ? &rest->many[number] : &rest->link[number];
    struct upload up = {call->body, call->body, call->len, call->len, 0, call->harmless};
    struct curl_slist *list = NULL;
    *r = (struct hf__rest_reply){.code = HF_NOMEM, .why = "out of memory"};
    int bad = !make_easy(rest, link) || prepare(*link, call, &list);
    int64_t limit_ms = limit_of(rest, many);
    int late = limit_ms <= 0; /* a request before it took too long; none is answered in less */
    if (!bad && !late)
        bad = curl_easy_setopt(*link, CURLOPT_TIMEOUT_MS, (long)limit_ms) != CURLE_OK;
    if (!bad && !late) perform(rest, *link, &up, limit_ms, r);
    if (!bad && late)
        *r = (struct hf__rest_reply){.code = HF_UNAVAILABLE,
                                     .why = "not sent: there was no time left"};
    if (*link && call->sign) (void)set_account(*link, NULL, NULL, NULL);
    hf__pool_give(pool, number, r->status != 0);
    for (struct curl_slist *h = list; h; h = h->next) explicit_bzero(h->data, strlen(h->data));
    curl_slist_free_all(list);
}
