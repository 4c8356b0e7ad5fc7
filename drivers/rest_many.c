/*
 * rest_many.c - many requests side by side, by libcurl's multi interface: see hf__rest_ask_many.
 *
 * A lane carries one request after the other. A request that takes much longer than those that were
 * answered is given up. So it neither keeps its lane nor delays the results of the others.
 */
#include "rest_request.h"

#include "kit/fork_gate.h"
#include "os.h"

#include <stdlib.h>

/* A request is given up after the sum of HANGS_US and HANGS_TIMES the time of the slowest answer.
 */
enum { HANGS_US = 250000, HANGS_TIMES = 4 };
enum { POLL_MS = 1000, POLL_SOON_MS = 50 };

struct lane {
    CURL *easy; /* NULL: not made */
    int busy;
    int64_t began_us; /* local */
    struct hf__rest_request request;
    struct hf__rest_reply *reply;
};

struct hf__rest_lanes {
    CURLM *multi;
    int64_t slowest_us; /* how long the slowest answer in this call took; 0: there was none yet */
    struct lane lane[HF_REST_AT_ONCE];
};

static struct hf__rest_lanes *make_lanes(void)
{
    struct hf__rest_lanes *lanes = calloc(1, sizeof *lanes);
    if (!lanes) return NULL;
    lanes->multi = curl_multi_init();
    if (lanes->multi &&
        curl_multi_setopt(lanes->multi, CURLMOPT_MAXCONNECTS, (long)HF_REST_AT_ONCE) == CURLM_OK)
        return lanes;
    hf__rest_lanes_free(lanes);
    return NULL;
}

void hf__rest_lanes_free(struct hf__rest_lanes *lanes)
{
    if (!lanes) return;
    for (size_t i = 0; i < HF_REST_AT_ONCE; i++) curl_easy_cleanup(lanes->lane[i].easy);
    curl_multi_cleanup(lanes->multi);
    free(lanes);
}

/* Begins a request. Returns 1; 0: it can't be made, and its reply says why. */
static int start(const struct hf__rest *rest, CURLM *multi, struct lane *lane,
                 const struct hf__rest_call *call, struct hf__rest_reply *reply, int64_t until_us)
{
    int64_t left_ms = (until_us - hf__local_us()) / 1000;
    if (!hf__rest_begin(rest, &lane->easy, call, left_ms, &lane->request, reply)) return 0;
    if (curl_easy_setopt(lane->easy, CURLOPT_PRIVATE, (void *)lane) != CURLE_OK ||
        curl_multi_add_handle(multi, lane->easy) != CURLM_OK) {
        hf__rest_forget_call(lane->easy, &lane->request);
        *reply = (struct hf__rest_reply){.code = HF_NOMEM, .why = "out of memory"};
        return 0;
    }
    lane->reply = reply;
    lane->began_us = hf__local_us();
    lane->busy = 1;
    return 1;
}

static void end(struct hf__rest *rest, struct hf__rest_lanes *lanes, struct lane *lane, CURLcode rc)
{
    int64_t took_us = hf__local_us() - lane->began_us;
    curl_multi_remove_handle(lanes->multi, lane->easy);
    hf__rest_end(rest, lane->easy, rc, &lane->request, lane->reply);
    lane->busy = 0;
    if (lane->reply->status && took_us > lanes->slowest_us) lanes->slowest_us = took_us;
}

/* Fills in the replies of the requests that have ended. Returns how many. */
static size_t collect(struct hf__rest *rest, struct hf__rest_lanes *lanes)
{
    const CURLMsg *m;
    size_t n = 0;
    int more;
    while ((m = curl_multi_info_read(lanes->multi, &more))) {
        char *own = NULL;
        if (m->msg != CURLMSG_DONE) continue;
        curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &own);
        end(rest, lanes, (struct lane *)own, m->data.result);
        n++;
    }
    return n;
}

/* Gives up the requests that hang. Returns how many. */
static size_t give_up(struct hf__rest *rest, struct hf__rest_lanes *lanes)
{
    int64_t most_us = HANGS_US + HANGS_TIMES * lanes->slowest_us, now_us = hf__local_us();
    size_t n = 0;
    for (size_t i = 0; lanes->slowest_us && i < HF_REST_AT_ONCE; i++) {
        struct lane *lane = &lanes->lane[i];
        if (!lane->busy || now_us - lane->began_us < most_us) continue;
        lane->request.limit_ms = (now_us - lane->began_us) / 1000;
        end(rest, lanes, lane, CURLE_OPERATION_TIMEDOUT);
        n++;
    }
    return n;
}

static struct lane *idle(struct hf__rest_lanes *lanes)
{
    for (size_t i = 0; i < HF_REST_AT_ONCE; i++)
        if (!lanes->lane[i].busy) return &lanes->lane[i];
    return NULL;
}

static void drive(struct hf__rest *rest, struct hf__rest_lanes *lanes,
                  const struct hf__rest_call *call, struct hf__rest_reply *reply, size_t n,
                  int64_t until_us)
{
    struct lane *lane;
    size_t next = 0, running = 0;
    lanes->slowest_us = 0;
    while (next < n || running) {
        for (; next < n && (lane = idle(lanes)); next++)
            running += (size_t)start(rest, lanes->multi, lane, &call[next], &reply[next], until_us);
        int still;
        curl_multi_perform(lanes->multi, &still);
        size_t ended = collect(rest, lanes);
        ended += give_up(rest, lanes);
        running -= ended;
        if (!running || ended) continue;
        hf__gate_wait();
        curl_multi_poll(lanes->multi, NULL, 0, lanes->slowest_us ? POLL_SOON_MS : POLL_MS, NULL);
        hf__gate_go_on();
    }
}

void hf__rest_ask_many(struct hf__rest *rest, const struct hf__rest_call *call,
                       struct hf__rest_reply *reply, size_t n, int64_t until_us)
{
    int number = hf__pool_take(&rest->many_pool, until_us);
    struct hf__rest_lanes **lanes = number < 0 ? NULL : &rest->lanes[number];
    hf_low_hold(); /* so that libcurl gets no descriptor 0, 1 or 2 */
    hf__gate_begin();
    if (lanes && !*lanes) *lanes = make_lanes();
    if (lanes && *lanes) {
        hf__rest_socket_anew();
        drive(rest, *lanes, call, reply, n, until_us);
    } else {
        for (size_t i = 0; i < n; i++)
            reply[i] = lanes ? (struct hf__rest_reply){.code = HF_NOMEM, .why = "out of memory"}
                             : (struct hf__rest_reply){.code = HF_UNAVAILABLE, .why = HF_POOL_BUSY};
    }
    hf__gate_end();
    hf_low_free();
    if (lanes) hf__pool_give(&rest->many_pool, number, *lanes != NULL);
}
