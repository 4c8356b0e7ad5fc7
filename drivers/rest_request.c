/*
 * rest_request.c - see rest_request.h.
 *
 * libcurl sends a request again by itself if a connection that it kept turns out to be dead. A
 * write must not be sent twice without the driver's knowledge. libcurl can't send it again once it
 * has read some of the body and can't go back to the body's beginning. That is why the body is read
 * by a function (give), and go_back refuses unless the call is `harmless`.
 */
#include "rest_request.h"

#include "curl_perform.h"
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

static size_t give(char *to, size_t size, size_t n, void *arg)
{
    struct hf__rest_upload *up = arg;
    size_t len = size * n < up->left ? size * n : up->left;
    memcpy(to, up->at, len);
    up->at += len;
    up->left -= len;
    up->touched = 1;
    return len;
}

/* Goes back to the beginning of the body, for libcurl to send it again. */
static int go_back(void *arg, curl_off_t offset, int origin)
{
    struct hf__rest_upload *up = arg;
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
        if (!bigger) return 0; /* ends the request with an error */
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

/* Returns the value of the header with that name (which ends with a colon); NULL: the line is
   another header. */
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
    return hf__socket(a->family, a->socktype, a->protocol);
}

static __thread int was_connected; /* 1: the socket that this thread closed last was connected */

void hf__rest_socket_anew(void) { was_connected = 0; }

static int close_socket(void *arg, curl_socket_t fd)
{
    struct sockaddr_storage peer;
    socklen_t len = sizeof peer;
    (void)arg;
    was_connected = !getpeername(fd, (struct sockaddr *)&peer, &len);
    return close(fd);
}

/* Makes the handle, unless it exists, and sets the options that all requests share. Returns 0 if
   there is no memory. */
static int make_handle(const struct hf__rest *rest, CURL **link)
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
    /* The time limits hold for the lookup of the server's name, too: libcurl doesn't wait for its
       thread that asks a mute name server. (kit/dial.h isn't used for the lookup, because behind a
       proxy the proxy looks up the name.) */
    bad |= curl_easy_setopt(e, CURLOPT_QUICK_EXIT, 1L) != CURLE_OK;
#endif
    if (rest->straight) bad |= curl_easy_setopt(e, CURLOPT_NOPROXY, "*") != CURLE_OK;
    if (rest->cafile) bad |= curl_easy_setopt(e, CURLOPT_CAINFO, rest->cafile) != CURLE_OK;
    if (!bad) return 1;
    curl_easy_cleanup(e);
    *link = NULL;
    return 0;
}

/* Returns the code for a request that failed, if nothing of it was sent. */
static int code_of(CURLcode rc)
{
    switch (rc) {
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_ISSUER_ERROR:
    case CURLE_SSL_CERTPROBLEM: return HF_DENIED;
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_URL_MALFORMAT: return HF_INVALID;
    case CURLE_OUT_OF_MEMORY: return HF_NOMEM;
    default: return HF_UNAVAILABLE;
    }
}

/* Returns what there was no answer for in time: the lookup of the name, the connection, TLS, or the
   request. For the message. */
static const char *mute_part(CURL *e, const struct hf__rest_upload *up)
{
    curl_off_t named = 0;
    curl_easy_getinfo(e, CURLINFO_NAMELOOKUP_TIME_T, &named);
    return up->touched ? "the reply" : !named ? "the name" : !was_connected ? "TCP" : "TLS";
}

/* Sets the method and the length of the body. Returns 1 on failure. A PUT is set up as a POST whose
   method is named PUT, because libcurl's own PUT waits for a "100 Continue" at any size. */
static int set_method(CURL *e, const char *method, size_t len)
{
    const char *name = strcmp(method, "PUT") ? NULL : method;
    if (curl_easy_setopt(e, CURLOPT_CUSTOMREQUEST, name) != CURLE_OK) return 1;
    if (!strcmp(method, "GET")) return curl_easy_setopt(e, CURLOPT_HTTPGET, 1L) != CURLE_OK;
    return curl_easy_setopt(e, CURLOPT_POST, 1L) != CURLE_OK ||
           curl_easy_setopt(e, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)len) != CURLE_OK;
}

/* Sets the account that signs a request; NULL: none. Returns 1 on failure. */
static int set_account(CURL *e, const char *sign, const char *user, const char *password)
{
    return curl_easy_setopt(e, CURLOPT_AWS_SIGV4, sign) != CURLE_OK ||
           curl_easy_setopt(e, CURLOPT_USERNAME, user) != CURLE_OK ||
           curl_easy_setopt(e, CURLOPT_PASSWORD, password) != CURLE_OK;
}

/* Sets everything for one request. Returns 1 on failure. */
static int set_all(CURL *e, const struct hf__rest_call *call, struct hf__rest_request *q,
                   struct hf__rest_reply *r)
{
    for (const char *const *h = call->headers; *h; h++) {
        struct curl_slist *more = curl_slist_append(q->list, *h);
        if (!more) return 1;
        q->list = more;
    }
    return curl_easy_setopt(e, CURLOPT_URL, call->url) != CURLE_OK ||
           curl_easy_setopt(e, CURLOPT_HTTPHEADER, q->list) != CURLE_OK ||
           curl_easy_setopt(e, CURLOPT_READDATA, &q->up) != CURLE_OK ||
           curl_easy_setopt(e, CURLOPT_SEEKDATA, &q->up) != CURLE_OK ||
           curl_easy_setopt(e, CURLOPT_WRITEDATA, r) != CURLE_OK ||
           curl_easy_setopt(e, CURLOPT_HEADERDATA, r) != CURLE_OK ||
           curl_easy_setopt(e, CURLOPT_ERRORBUFFER, q->told) != CURLE_OK ||
           curl_easy_setopt(e, CURLOPT_TIMEOUT_MS, (long)q->limit_ms) != CURLE_OK ||
           set_method(e, call->method, call->len) ||
           (call->sign && set_account(e, call->sign, call->user, call->password));
}

int hf__rest_begin(const struct hf__rest *rest, CURL **link, const struct hf__rest_call *call,
                   int64_t limit_ms, struct hf__rest_request *q, struct hf__rest_reply *r)
{
    *q = (struct hf__rest_request){
        .up = {call->body, call->body, call->len, call->len, 0, call->harmless},
        .limit_ms = limit_ms};
    *r = (struct hf__rest_reply){.code = HF_UNAVAILABLE, .why = "not sent: there was no time left"};
    if (limit_ms <= 0) return 0; /* less than 1 ms is left: no request is answered in that */
    if (make_handle(rest, link) && !set_all(*link, call, q, r)) return 1;
    *r = (struct hf__rest_reply){.code = HF_NOMEM, .why = "out of memory"};
    hf__rest_forget_call(*link, q);
    return 0;
}

void hf__rest_forget_call(CURL *e, struct hf__rest_request *q)
{
    if (e) (void)curl_easy_setopt(e, CURLOPT_ERRORBUFFER, NULL);
    if (e) (void)curl_easy_setopt(e, CURLOPT_HTTPHEADER, NULL);
    if (e) (void)set_account(e, NULL, NULL, NULL);
    for (struct curl_slist *h = q->list; h; h = h->next) explicit_bzero(h->data, strlen(h->data));
    curl_slist_free_all(q->list);
    q->list = NULL;
}

void hf__rest_end(struct hf__rest *rest, CURL *e, CURLcode rc, struct hf__rest_request *q,
                  struct hf__rest_reply *r)
{
    char file_why[HF_KIT_WHY];
    __atomic_fetch_add(&rest->sent, 1, __ATOMIC_RELAXED); /* a statistic */
    r->why[0] = 0;
    r->sent = q->up.touched;
    if (!rc && r->whole) {
        curl_easy_getinfo(e, CURLINFO_RESPONSE_CODE, &r->status);
        hf__rest_forget_call(e, q);
        return;
    }
    r->code = rc ? code_of(rc) : HF_UNAVAILABLE;
    /* libcurl gives one error for a file that can't be read and for one without certificates. */
    int of_file = rc == CURLE_SSL_CACERT_BADFILE && rest->cafile
                      ? hf__credential_check("cafile", rest->cafile, file_why)
                      : 0;
    if (of_file) r->code = of_file;
    if (!rc)
        snprintf(r->why, sizeof r->why, HF_HEAD_CUT);
    else if (rc == CURLE_OPERATION_TIMEDOUT)
        snprintf(r->why, sizeof r->why, "no answer within %lld ms (%s)", (long long)q->limit_ms,
                 mute_part(e, &q->up));
    else {
        const char *why = hf__curl_why(rc, q->told);
        snprintf(r->why, sizeof r->why, "%.*s", (int)strcspn(why, "\r\n"), why);
    }
    hf__rest_forget_call(e, q);
}
