/*
 * link.c - nats: sends requests and takes their replies. See link.h.
 *
 * libnats runs no thread and no timer for a connection: the thread that makes a request waits
 * for the socket itself, with its own deadline (natsOptions_SetEventLoop in login.c). Requests that
 * are made together are sent together. Each has its own subject for the reply, so a reply that
 * comes too late isn't taken for that of another request.
 */
#include "link.h"

#include "kit/await.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Frees a message in this thread. The library exports this function, but no public header declares
   it. Weak: a libnats may lack it. */
extern void natsMsg_free(void *msg) __attribute__((weak));

void hf__nats_free(natsMsg *msg)
{
    if (natsMsg_free)
        natsMsg_free(msg);
    else
        natsMsg_Destroy(msg);
}

short hf__nats_events(const struct hf__nats_link *link)
{
    return (short)(POLLIN | (link->socket && link->socket->writes ? POLLOUT : 0));
}

natsStatus hf__nats_subscribe(struct hf__nats_link *link, const char *subjects,
                              natsSubscription **ret)
{
    struct hf__nats_quiet quiet;
    hf__nats_quiet(link->tls, &quiet);
    natsStatus s = natsConnection_SubscribeSync(ret, link->nc, subjects);
    if (s == NATS_OK) s = natsSubscription_SetPendingLimits(*ret, -1, -1);
    hf__nats_loud(&quiet);
    return s;
}

void hf__nats_drop_unread(natsSubscription *sub)
{
    uint64_t queued = 0;
    natsMsg *msg;
    while (sub && natsSubscription_QueuedMsgs(sub, &queued) == NATS_OK && queued &&
           natsSubscription_NextMsg(&msg, sub, 1) == NATS_OK)
        hf__nats_free(msg);
}

int hf__nats_serve(struct hf__nats_link *link, short revents)
{
    struct hf__nats_quiet quiet;
    hf__nats_quiet(link->tls, &quiet);
    if (revents & ~POLLOUT) natsConnection_ProcessReadEvent(link->nc);
    if (revents & POLLOUT && hf__nats_fd(link) >= 0) natsConnection_ProcessWriteEvent(link->nc);
    hf__nats_loud(&quiet);
    return hf__nats_fd(link) >= 0 && !natsConnection_IsClosed(link->nc);
}

int hf__nats_ended(struct hf__nats_link *link)
{
    /* The server sends a ping now and then; this answers it. */
    struct pollfd p = {hf__nats_fd(link), hf__nats_events(link), 0};
    return hf__nats_fd(link) < 0 || (poll(&p, 1, 0) > 0 && !hf__nats_serve(link, p.revents));
}

/* Adds the request to what the connection will write, or marks it as unsent. */
static natsStatus send_request(struct hf__nats_link *link, struct hf__nats_request *r)
{
    char reply[sizeof link->prefix + 24];
    natsMsg *msg = NULL;
    snprintf(reply, sizeof reply, "%s.%llu", link->prefix, (unsigned long long)link->sent++);
    natsStatus s = natsMsg_Create(&msg, r->subject, reply, r->data, (int)r->len);
    for (size_t i = 0; s == NATS_OK && i < sizeof r->header / sizeof *r->header; i++)
        if (r->header[i].value) s = natsMsgHeader_Set(msg, r->header[i].name, r->header[i].value);
    if (s != NATS_OK) {
        r->unsent = HF_NOMEM;
    } else if ((s = natsConnection_PublishMsg(link->nc, msg)) == NATS_MAX_PAYLOAD) {
        r->unsent = HF_FULL;
    }
    hf__nats_free(msg);
    return r->unsent ? NATS_OK : s;
}

/* Takes the messages that have come, and gives each of the n requests its reply. Returns how many
   replies there were. */
static size_t take(struct hf__nats_link *link, struct hf__nats_request *r, size_t n)
{
    size_t taken = 0, skip = strlen(link->prefix) + 1;
    uint64_t first = link->sent - n, queued = 0;
    natsMsg *msg;
    while (natsSubscription_QueuedMsgs(link->inbox, &queued) == NATS_OK && queued &&
           natsSubscription_NextMsg(&msg, link->inbox, 1) == NATS_OK) {
        const char *subject = natsMsg_GetSubject(msg);
        uint64_t i = strlen(subject) > skip ? strtoull(subject + skip, NULL, 10) - first : n;
        if (i < n && !r[i].reply) {
            r[i].reply = msg;
            taken++;
        } else {
            hf__nats_free(msg);
        }
    }
    return taken;
}

/* Writes to `why` why there is no reply, and returns the code. If a subject isn't permitted, the
   server sends no reply, only an error of the connection, which has the reason. */
static int explain(const struct hf__nats_link *link, natsStatus s, char why[HF_NATS_WHY])
{
    const char *text = "";
    if (s == NATS_OK) s = natsConnection_GetLastError(link->nc, &text);
    snprintf(why, HF_NATS_WHY, "%s%s%.*s",
             s == NATS_OK ? "no answer in time" : natsStatus_GetText(s), *text ? ": " : "",
             (int)strcspn(text, "\r\n"), text);
    return s == NATS_NOT_PERMITTED ? HF_DENIED : s == NATS_NO_MEMORY ? HF_NOMEM : HF_UNAVAILABLE;
}

static int denied(const struct hf__nats_link *link)
{
    const char *text;
    return natsConnection_GetLastError(link->nc, &text) == NATS_NOT_PERMITTED;
}

int hf__nats_ask(struct hf__nats_link *link, struct hf__nats_request *r, size_t n, int64_t until_us,
                 char why[HF_NATS_WHY])
{
    natsStatus s = NATS_OK;
    size_t missing = n, sent = 0;
    struct hf__nats_quiet quiet;
    for (size_t i = 0; i < n; i++) r[i].reply = NULL, r[i].unsent = 0;
    hf__nats_quiet(link->tls, &quiet);
    for (; sent < n && s == NATS_OK; sent++) {
        s = send_request(link, &r[sent]);
        if (r[sent].unsent) missing--;
    }
    hf__nats_loud(&quiet);
    link->sent += n - sent;
    while (s == NATS_OK && missing) {
        struct pollfd p = {hf__nats_fd(link), hf__nats_events(link), 0};
        int ready = denied(link) ? 0 : hf__wait_until(&p, 1, until_us);
        if (ready < 0) s = NATS_IO_ERROR;
        if (ready <= 0) break;
        if (!hf__nats_serve(link, p.revents)) s = NATS_CONNECTION_CLOSED;
        missing -= take(link, r, n);
    }
    if (!missing) return 0;
    int rc = explain(link, s, why);
    hf__nats_disconnect(link);
    return rc;
}

void hf__nats_done(struct hf__nats_request *r, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        hf__nats_free(r[i].reply);
        r[i].reply = NULL;
    }
}
