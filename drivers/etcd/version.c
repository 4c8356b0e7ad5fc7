/*
 * version.c - asks for the server's date, which gRPC's answers don't have: GET /version, over
 * HTTP/1.1, by libcurl, on a socket that kit/dial.h has connected. libcurl doesn't look up the name
 * itself, because its look-up may exceed the time limit.
 */
#include "transport.h"

#include "curl_perform.h"
#include "dial.h"
#include "kit/fork_gate.h"
#include "os.h"

#include <curl/curl.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

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

static size_t drop(char *bytes, size_t size, size_t n, void *arg)
{
    (void)bytes;
    (void)arg;
    return size * n;
}

/* Gives the connected socket to libcurl, which owns it from then on. */
static curl_socket_t connected(void *arg, curlsocktype purpose, struct curl_sockaddr *a)
{
    int *socket_fd = arg, fd = *socket_fd;
    (void)purpose;
    (void)a; /* not the server's address, but set_socket's */
    *socket_fd = -1;
    return fd < 0 ? CURL_SOCKET_BAD : fd;
}

static int is_connected(void *arg, curl_socket_t fd, curlsocktype purpose)
{
    (void)arg;
    (void)fd;
    (void)purpose;
    return CURL_SOCKOPT_ALREADY_CONNECTED;
}

/* Makes libcurl use the connected socket, and gives it an address for the host, which it needs but
   doesn't use. Returns 1; 0: out of memory. */
static int set_socket(CURL *c, const char *endpoint, int *fd, struct curl_slist **addresses)
{
    char host[HF_ET_HOST_CAP], port[HF_ET_PORT_CAP], text[HF_ET_HOST_CAP + 40];
    hf__et_split(endpoint, host, port);
    snprintf(text, sizeof text, "%s:%s:127.0.0.1", host, port);
    if (!strchr(host, ':') && !(*addresses = curl_slist_append(NULL, text))) return 0;
    return (!*addresses || !curl_easy_setopt(c, CURLOPT_RESOLVE, *addresses)) &&
           !curl_easy_setopt(c, CURLOPT_OPENSOCKETFUNCTION, connected) &&
           !curl_easy_setopt(c, CURLOPT_OPENSOCKETDATA, fd) &&
           !curl_easy_setopt(c, CURLOPT_SOCKOPTFUNCTION, is_connected);
}

static int set_common(const struct hf__et_http *http, CURL *c, const char *endpoint)
{
    char url[600];
    snprintf(url, sizeof url, "%s/version", endpoint);
    CURLcode rc = curl_easy_setopt(c, CURLOPT_URL, url);
    if (!rc) rc = curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    if (!rc) rc = curl_easy_setopt(c, CURLOPT_PROXY, "");
    if (!rc) rc = curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
    if (!rc) rc = curl_easy_setopt(c, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1);
    if (!rc) rc = curl_easy_setopt(c, CURLOPT_FORBID_REUSE, 1L); /* the next request is far off */
    if (!rc && http->cafile) rc = curl_easy_setopt(c, CURLOPT_CAINFO, http->cafile);
    if (!rc && http->cert) rc = curl_easy_setopt(c, CURLOPT_SSLCERT, http->cert);
    if (!rc && http->key) rc = curl_easy_setopt(c, CURLOPT_SSLKEY, http->key);
    /* Gives no passphrase for the key: a library has no terminal to ask for one. */
    if (!rc && http->key) rc = curl_easy_setopt(c, CURLOPT_KEYPASSWD, "");
    return rc == CURLE_OK;
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

/* Returns 1 if the server was reached, but speaks another protocol. */
static int is_other_protocol(CURLcode rc)
{
    return rc == CURLE_UNSUPPORTED_PROTOCOL || rc == CURLE_GOT_NOTHING ||
           rc == CURLE_WEIRD_SERVER_REPLY || rc == CURLE_RECV_ERROR;
}

/* Makes the request. The caller is inside the fork gate. */
static CURLcode request(struct hf__et_http *http, int fd, const char *endpoint, int64_t until_us,
                        int64_t *ret_us, char told[CURL_ERROR_SIZE])
{
    struct curl_slist *addresses = NULL;
    int64_t left_ms = (until_us - hf__local_us()) / 1000;
    CURLcode rc = CURLE_OUT_OF_MEMORY;
    CURLM *multi = NULL; /* made for each request, because they are rare */
    CURL *c = http->date_link ? http->date_link : curl_easy_init();
    if (c) curl_easy_reset(c);
    if (c && set_common(http, c, endpoint) && set_socket(c, endpoint, &fd, &addresses) &&
        !curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, drop) &&
        !curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, take_header) &&
        !curl_easy_setopt(c, CURLOPT_HEADERDATA, ret_us) &&
        !curl_easy_setopt(c, CURLOPT_ERRORBUFFER, told) &&
        !curl_easy_setopt(c, CURLOPT_TIMEOUT_MS, (long)(left_ms > 0 ? left_ms : 1))) {
        hf_low_hold(); /* so that libcurl gets no descriptor 0, 1 or 2 */
        rc = hf__curl_perform(&multi, c);
        hf_low_free();
    }
    if (fd >= 0) close(fd);
    if (c) curl_easy_setopt(c, CURLOPT_ERRORBUFFER, NULL);
    curl_slist_free_all(addresses);
    if (rc) curl_easy_cleanup(c);
    curl_multi_cleanup(multi);
    http->date_link = rc ? NULL : c;
    return rc;
}

int hf__et_ask_date(struct hf__et_http *http, int fd, const char *endpoint, int64_t until_us,
                    int64_t *ret_us, char why[HF_ET_WHY])
{
    char told[CURL_ERROR_SIZE] = "";
    *ret_us = 0;
    int unread = strncmp(endpoint, "https:", 6) ? 0 : hf__et_check_files(http, why);
    if (unread) {
        if (fd >= 0) close(fd);
        return unread;
    }
    hf__gate_begin();
    CURLcode rc = request(http, fd, endpoint, until_us, ret_us, told);
    hf__gate_end();
    if (!rc && *ret_us > 0) return 0;
    snprintf(why, HF_ET_WHY, "no date by HTTP/1.1: %s%s",
             rc ? hf__curl_why(rc, told) : "its answer has none",
             !rc || is_other_protocol(rc) ? "; the address for gRPC has to serve HTTP/1.1, too"
                                          : "");
    return rc ? meaning(rc) : HF_UNAVAILABLE;
}

void hf__et_version_close(struct hf__et_http *http)
{
    hf__gate_begin();
    curl_easy_cleanup(http->date_link);
    hf__gate_end();
}
