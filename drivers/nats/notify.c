/*
 * notify.c - nats: notifications. See store.h.
 *
 * A bucket with `republish` sends a message after each write. Its subject ends with the key; its
 * header names the waiters that the write concerns. A handle that waits has a connection for these
 * messages, subscribed to all keys of the bucket, once. (A subscription to one key would have to
 * reach every server of a cluster before each wait.) The thread that sleeps reads that connection;
 * the driver has no thread of its own.
 *
 * Thread safety: one thread at a time, but for nats_interrupt.
 */
#include "store.h"

#include "kit/await.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* How long after a failure no new connection is tried. */
enum { RETRY_MS = 5000 };

int hf__nats_notify_open(struct hf__nats_notify *n)
{
    hf__sub_open(&n->sub, 0, NULL);
    n->wake_fd = hf__wake_fd();
    return n->wake_fd < 0 ? HF_UNAVAILABLE : 0;
}

static void disconnect(struct hf__nats_notify *n)
{
    struct hf__nats_quiet quiet;
    hf__nats_quiet(n->link.tls, &quiet);
    hf__nats_drop_unread(n->all);
    hf__nats_disconnect(&n->link);
    natsSubscription_Destroy(n->all);
    hf__nats_loud(&quiet);
    n->all = NULL;
    n->heard++;
    hf__sub_disconnected(&n->sub);
    hf__sub_put_any(&n->sub);
}

void hf__nats_notify_close(struct hf__nats_notify *n)
{
    disconnect(n);
    hf__sub_free(&n->sub);
    if (n->wake_fd >= 0) close(n->wake_fd);
}

/* ---- what came ---- */

/* Returns 1 if this write concerns the request that waits for the key; also if that isn't known. */
static int concerns(const struct hf__sub_key *k, natsMsg *msg)
{
    char address[HF_ADDRESS + 1];
    const char *whom = NULL;
    if (!k->in_line || natsMsgHeader_Get(msg, HF_NATS_ADDRESSES, &whom) != NATS_OK || !whom)
        return 1;
    hf__put_address(address, k->who);
    return strstr(whom, address) != NULL;
}

static void hear(hf_store *st, natsMsg *msg)
{
    struct hf__nats_notify *n = &st->notify;
    char text[HF_KEY_CAP];
    uint32_t len;
    const char *subject = natsMsg_GetSubject(msg);
    size_t head = strlen(st->republished);
    if (strlen(subject) <= head || !hf__nats_key(st, subject + head, text, &len)) return;
    struct hf__sub_key *k = hf__sub_find(&n->sub, text, len, hf_key_hash(text, len));
    if (!k || !hf__sub_is_wanted(k) || !concerns(k, msg)) return;
    hf__sub_put_event(&n->sub, k);
    n->heard++;
}

/* Takes in all messages that the connection has read. */
static void hear_all(hf_store *st)
{
    struct hf__nats_notify *n = &st->notify;
    uint64_t queued = 0;
    natsMsg *msg;
    while (natsSubscription_QueuedMsgs(n->all, &queued) == NATS_OK && queued &&
           natsSubscription_NextMsg(&msg, n->all, 1) == NATS_OK) {
        hear(st, msg);
        hf__nats_free(msg);
    }
}

/* ---- the keys ---- */

static int nats_subscribe(hf_store *st, const hf_rowkey *key)
{
    return hf__sub_want(&st->notify.sub, key, NULL, 0, NULL) ? 0 : HF_NOMEM;
}

static void nats_unsubscribe(hf_store *st, const hf_rowkey *key)
{
    hf__sub_unsubscribe(&st->notify.sub, key);
}

static int nats_next_event(hf_store *st, hf_key_event *ret)
{
    return hf__sub_next_event(&st->notify.sub, ret);
}

/* Connects and subscribes, then makes a request and waits for its reply. The subscription reaches
   the server that leads the bucket before that request does. So every write after this function's
   return is notified. */
static int subscribe_all(hf_store *st, hf_error *err)
{
    struct hf__nats_notify *n = &st->notify;
    struct hf__nats_request r = {.subject = st->info, .data = ""};
    char all[sizeof st->republished + 1], why[HF_NATS_WHY] = "out of memory";
    int64_t until_us = hf__local_us() + st->how.io_timeout_ms * 1000;
    int rc = n->link.nc ? 0 : hf__nats_connect(&st->how, &n->link, until_us, err);
    if (rc) return rc;
    n->heard++;
    hf__sub_put_any(&n->sub);
    snprintf(all, sizeof all, "%s>", st->republished);
    if (hf__nats_subscribe(&n->link, all, &n->all) != NATS_OK) rc = HF_UNAVAILABLE;
    if (!rc) rc = hf__nats_ask(&n->link, &r, 1, until_us, why);
    hf__nats_done(&r, 1);
    return rc ? hf_fail(err, HF_UNAVAILABLE, 0, "nats: subscribe '%s': %s", all, why) : 0;
}

static int nats_flush(hf_store *st, hf_event_count *ret, hf_error *err)
{
    struct hf__nats_notify *n = &st->notify;
    int rc = 0;
    if (hf__sub_wanted(&n->sub) && !n->all) {
        if (hf__local_us() < n->retry_us)
            rc = hf_fail(err, HF_UNAVAILABLE, 0,
                         "nats: subscribe: not tried, because it failed less than 5 s "
                         "ago; waiters poll meanwhile");
        else if ((rc = subscribe_all(st, err)))
            n->retry_us = hf__local_us() + RETRY_MS * INT64_C(1000);
        if (rc) disconnect(n);
    }
    ret->n[0] = n->heard;
    ret->n[1] = 0;
    return rc;
}

/* ---- sleeping ---- */

static int nats_sleep(hf_store *st, const hf_event_count *since, int64_t until_us, hf_error *err)
{
    struct hf__nats_notify *n = &st->notify;
    int open = 1, over = 0;
    if (n->all) hear_all(st);
    while (open && !over && n->heard == since->n[0]) {
        struct pollfd p[2] = {{n->wake_fd, POLLIN, 0},
                              {hf__nats_fd(&n->link), hf__nats_events(&n->link), 0}};
        int ready = hf__wait_until(p, 2, until_us);
        over = !ready || (p[0].revents && hf__woken(n->wake_fd));
        open = ready >= 0 && (!p[1].revents || hf__nats_serve(&n->link, p[1].revents));
        if (n->all) hear_all(st);
    }
    if (!open) disconnect(n);
    if (hf__sub_wanted(&n->sub) && !n->all)
        return hf_fail(err, HF_UNAVAILABLE, 0, "nats: the connection for notifications broke");
    return 0;
}

static void nats_interrupt(hf_store *st) { hf__wake(st->notify.wake_fd); }

const hf_notify_ops hf__nats_notify = {.subscribe = nats_subscribe,
                                       .unsubscribe = nats_unsubscribe,
                                       .flush = nats_flush,
                                       .sleep = nats_sleep,
                                       .next_event = nats_next_event,
                                       .interrupt = nats_interrupt};
