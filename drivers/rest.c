/*
 * rest.c - see rest.h.
 */
#include "rest_request.h"

#include "curl_perform.h"
#include "kit/fork_gate.h"
#include "kit/secret.h"
#include "os.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int started;

static void start(void)
{
    hf__gate_begin();
    started = !curl_global_init(CURL_GLOBAL_DEFAULT);
    hf__gate_end();
}

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
        hf__gate_begin();
        curl_easy_cleanup(rest->link[i]);
        curl_easy_cleanup(rest->many[i]);
        curl_multi_cleanup(rest->multi[0][i]);
        curl_multi_cleanup(rest->multi[1][i]);
        hf__rest_lanes_free(rest->lanes[i]);
        hf__gate_end();
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

/* Makes the request on connection `number` of the pool that the call asks for. */
static void ask(struct hf__rest *rest, const struct hf__rest_call *call, int number,
                int64_t until_us, struct hf__rest_reply *r)
{
    int many = call->many_until_us != 0;
    CURL **link = many ? &rest->many[number] : &rest->link[number];
    struct hf__rest_request q;
    hf__gate_begin(); /* may wait for a fork, so the time that is left is computed after it */
    int64_t left_ms = (until_us - hf__local_us()) / 1000;
    if (hf__rest_begin(rest, link, call, left_ms, &q, r)) {
        if (!many) q.limit_ms = rest->io_timeout_ms; /* only the message of a timeout reads it */
        hf_low_hold(); /* so that libcurl gets no descriptor 0, 1 or 2 */
        hf__rest_socket_anew();
        CURLcode rc = hf__curl_perform(&rest->multi[many][number], *link);
        hf_low_free();
        hf__rest_end(rest, *link, rc, &q, r);
    }
    hf__gate_end();
}

void hf__rest_ask(struct hf__rest *rest, const struct hf__rest_call *call, struct hf__rest_reply *r)
{
    int64_t many_us = call->many_until_us, io_us = rest->io_timeout_ms * 1000;
    struct hf__pool *pool = many_us ? &rest->many_pool : &rest->pool;
    int number = hf__pool_take(pool, many_us ? many_us : hf__local_us() + io_us);
    *r = (struct hf__rest_reply){.code = HF_UNAVAILABLE, .why = HF_POOL_BUSY};
    if (number < 0) return;
    ask(rest, call, number, many_us ? many_us : hf__local_us() + io_us, r);
    hf__pool_give(pool, number, r->status != 0);
}
