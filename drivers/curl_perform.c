/*
 * curl_perform.c - see curl_perform.h.
 */
#include "curl_perform.h"

#include "kit/fork_gate.h"

#include <string.h>

enum { POLL_MS = 1000 };

CURLcode hf__curl_perform(CURLM **multi, CURL *easy)
{
    CURLcode rc = CURLE_OUT_OF_MEMORY;
    const CURLMsg *m;
    int running = 1, more;
    if (!*multi) *multi = curl_multi_init();
    CURLMcode bad = *multi ? curl_multi_add_handle(*multi, easy) : CURLM_OUT_OF_MEMORY;
    while (!bad && !(bad = curl_multi_perform(*multi, &running)) && running) {
        hf__gate_wait();
        curl_multi_poll(*multi, NULL, 0, POLL_MS, NULL);
        hf__gate_go_on();
    }
    while (*multi && (m = curl_multi_info_read(*multi, &more)))
        if (m->msg == CURLMSG_DONE) rc = m->data.result;
    if (*multi) curl_multi_remove_handle(*multi, easy);
    return rc;
}

const char *hf__curl_why(CURLcode rc, const char *told)
{
    /* libcurl's text then names a version of HTTP. (Without TLS it names the protocol "https".) */
    if (rc == CURLE_UNSUPPORTED_PROTOCOL && strstr(told, "HTTP"))
        return "what answers there doesn't speak HTTP/1.1";
    if (rc == CURLE_SSL_CONNECT_ERROR && strstr(told, "wrong version number"))
        return "what answers there doesn't speak TLS";
    return *told ? told : curl_easy_strerror(rc);
}
