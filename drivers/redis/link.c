/*
 * link.c - see link.h.
 *
 * Contents: bytes; TLS; requests and replies; what replies mean. Connecting: dial.c.
 */
#include "link.h"

#include "kit/await.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CHUNK = 16384, FRESH_US = 50000 };

/* ---- bytes ---- */

static void set_why(struct hf__rd_link *link, const char *why)
{
    link->code = HF_UNAVAILABLE;
    snprintf(link->why, sizeof link->why, "%s", why);
}

/* Waits for these events. Returns 1: ready; 0: the time is up. */
static int await(int fd, short events, int64_t until_us)
{
    struct pollfd p = {fd, events, 0};
    int n = hf__wait_until(&p, 1, until_us);
    return (n ? n : poll(&p, 1, 0)) > 0;
}

/* Sends the bytes. Returns how many were sent; fewer than n is a failure, with the reason. */
static size_t send_bytes(struct hf__rd_link *link, const char *from, size_t n, int64_t until_us)
{
    size_t sent = 0;
    while (sent < n) {
        ssize_t k = send(link->fd, from + sent, n - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (k > 0) {
            sent += (size_t)k;
        } else if (k < 0 && (errno == EAGAIN || errno == EINTR)) {
            if (await(link->fd, POLLOUT, until_us)) continue;
            set_why(link, "it took the request too slowly");
            break;
        } else {
            set_why(link, strerror(errno));
            break;
        }
    }
    return sent;
}

/* Sends all encrypted bytes that the filter (TLS) has ready; adds their number to *ret_sent.
   Returns 0 if that failed. */
static int send_sealed(struct hf__rd_link *link, int64_t until_us, size_t *ret_sent)
{
    char buffer[CHUNK];
    size_t n;
    while ((n = hf__rd_filter->to_send(link->filter, buffer, sizeof buffer))) {
        size_t sent = send_bytes(link, buffer, n, until_us);
        *ret_sent += sent;
        if (sent < n) return 0;
    }
    return 1;
}

static int send_all(struct hf__rd_link *link, const char *from, size_t n, int64_t until_us,
                    size_t *ret_sent)
{
    *ret_sent = 0;
    if (!link->filter) return (*ret_sent = send_bytes(link, from, n, until_us)) == n;
    while (n) {
        size_t part = n < CHUNK ? n : CHUNK;
        if (hf__rd_filter->seal(link->filter, from, part, link->why) < 0 ||
            !send_sealed(link, until_us, ret_sent))
            return 0;
        from += part;
        n -= part;
    }
    return 1;
}

/* Reads once from the socket. Returns the number of bytes; 0: nothing has come; -1: broken. The
   first read after a request blocks, until the socket's time limit, because the reply can't be
   there yet. */
static ssize_t receive(struct hf__rd_link *link, char *to, size_t cap)
{
    int flags = link->asked ? 0 : MSG_DONTWAIT;
    link->asked = 0;
    ssize_t n = recv(link->fd, to, cap, flags);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
    if (n > 0) return n;
    set_why(link, n ? strerror(errno) : "the server closed the connection");
    return -1;
}

/* Passes the bytes that have come to the reader. Returns 1: there were some; 0: nothing yet; -1:
   broken. */
static int take_in(struct hf__rd_link *link)
{
    char buffer[CHUNK];
    int some = 0;
    ssize_t n = receive(link, buffer, sizeof buffer);
    if (n <= 0) return (int)n;
    if (!link->filter) {
        if (redisReaderFeed(link->reader, buffer, (size_t)n) == REDIS_OK) return 1;
        set_why(link, "out of memory, or not the protocol of Redis");
        return -1;
    }
    if (hf__rd_filter->feed(link->filter, buffer, (size_t)n) < 0) {
        set_why(link, "out of memory");
        return -1;
    }
    int plain;
    while ((plain = hf__rd_filter->open(link->filter, buffer, sizeof buffer, link->why)) > 0) {
        if (redisReaderFeed(link->reader, buffer, (size_t)plain) != REDIS_OK) return -1;
        some = 1;
    }
    if (plain < 0) link->code = plain;
    /* If bytes came before the connection ended, they count: they may be the server's reason. */
    return plain < 0 && !some ? -1 : some;
}

/* ---- TLS ---- */

/* Makes one step of the TLS handshake. Returns 1: it is done; 0: it goes on; otherwise the code,
   with the reason in link->why. */
static int shake(struct hf__rd_link *link, int64_t until_us)
{
    char buffer[CHUNK], why[HF_KIT_WHY];
    size_t sent = 0;
    int rc = hf__rd_filter->shake(link->filter, link->why);
    memcpy(why, link->why, sizeof why);
    int went = send_sealed(link, until_us, &sent); /* after a failure it sends the alert */
    if (rc < 0) {
        memcpy(link->why, why, sizeof why);
        return rc;
    }
    if (!went) return HF_UNAVAILABLE;
    if (rc > 0) return 1;
    if (!await(link->fd, POLLIN, until_us)) {
        set_why(link, "no answer in time");
        return HF_UNAVAILABLE;
    }
    ssize_t n = receive(link, buffer, sizeof buffer);
    if (n < 0) return HF_UNAVAILABLE;
    if (n == 0 || hf__rd_filter->feed(link->filter, buffer, (size_t)n) >= 0) return 0;
    set_why(link, "out of memory");
    return HF_NOMEM;
}

int hf__rd_secure(const struct hf__rd_how *how, struct hf__rd_link *link, int64_t until_us)
{
    int rc = hf__rd_filter->begin(how->tls, &link->filter, link->why);
    while (!rc) rc = shake(link, until_us);
    return rc > 0 ? 0 : rc;
}

/* ---- requests and replies ---- */

void hf__rd_disconnect(struct hf__rd_link *link)
{
    if (link->filter) hf__rd_filter->end(link->filter);
    if (link->reader) redisReaderFree(link->reader);
    if (link->fd >= 0) close(link->fd);
    link->filter = NULL;
    link->reader = NULL;
    link->fd = -1;
}

/* Returns 1 if more bytes have come than the expected replies; the next request would take them for
   its reply. */
static int says_too_much(const struct hf__rd_link *link)
{
    return link->reader->pos != link->reader->len;
}

int hf__rd_broken(struct hf__rd_link *link)
{
    char c;
    if (says_too_much(link)) return 1;
    if (hf__local_us() - link->used_us < FRESH_US) return 0;
    ssize_t n = recv(link->fd, &c, 1, MSG_PEEK | MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
    /* Bytes that no request asked for mean that the server ends the connection; but with TLS they
       may be records of the protocol itself. */
    return n <= 0 || !link->filter || take_in(link) != 0;
}

redisReply *hf__rd_next(struct hf__rd_link *link, int64_t until_us, int *ret_broken)
{
    *ret_broken = 0;
    for (;;) {
        void *reply = NULL;
        if (redisReaderGetReply(link->reader, &reply) != REDIS_OK) {
            set_why(link, link->reader->errstr);
            break;
        }
        if (reply) return reply;
        if (until_us && !link->asked && !await(link->fd, POLLIN, until_us)) {
            set_why(link, "no answer in time");
            return NULL;
        }
        int some = take_in(link);
        if (some < 0) break;
        if (!some && !until_us) return NULL;
    }
    *ret_broken = 1;
    return NULL;
}

int hf__rd_send(const struct hf__rd_how *how, struct hf__rd_link *link, struct hf__rd_batch *batch)
{
    int64_t until_us = link->until_us ? link->until_us : hf__local_us() + how->io_timeout_ms * 1000;
    size_t sent;
    int ok = !batch->failed && send_all(link, batch->text, batch->len, until_us, &sent);
    if (batch->failed) set_why(link, "out of memory");
    hf__rd_batch_free(batch);
    if (!ok) hf__rd_disconnect(link);
    return ok ? 0 : HF_UNAVAILABLE;
}

int hf__rd_talk(const struct hf__rd_how *how, struct hf__rd_link *link, struct hf__rd_batch *batch,
                redisReply **reply)
{
    int64_t now_us = hf__local_us();
    int64_t until_us = link->until_us ? link->until_us : now_us + how->io_timeout_ms * 1000;
    size_t sent = 0;
    int n = 0, wanted = batch->n, broken, failed = batch->failed;
    if (failed) {
        /* the batch lacks a part of its commands, so nothing is sent */
        set_why(link, "out of memory");
    } else if (says_too_much(link)) {
        set_why(link, "it sent more than it was asked for");
    } else {
        int ok = send_all(link, batch->text, batch->len, until_us, &sent);
        link->asked = ok;
        /* Reads even if sending failed: a server that refuses a client often says why first. */
        while (n < wanted && (reply[n] = hf__rd_next(link, ok ? until_us : 0, &broken))) n++;
    }
    hf__rd_batch_free(batch);
    link->used_us = now_us;
    if (n == wanted && !failed) return 0;
    /* If the server has sent one error and closed the connection, that error is the reason. */
    if (n && reply[0]->type == REDIS_REPLY_ERROR) {
        link->code = hf__rd_code(reply[0]->str);
        hf__rd_words(reply[0]->str, link->why);
    }
    hf__rd_free(reply, n);
    hf__rd_disconnect(link);
    return failed ? HF_NOMEM : sent ? HF_UNKNOWN : HF_UNAVAILABLE;
}

void hf__rd_free(redisReply **reply, int n)
{
    for (int i = 0; i < n; i++) freeReplyObject(reply[i]);
}

/* ---- what replies mean ---- */

static const struct {
    const char *word;
    int code;
} meaning[] = {
    {"NOAUTH", HF_DENIED},
    {"WRONGPASS", HF_DENIED},
    {"NOPERM", HF_DENIED},
    {"DENIED", HF_DENIED},
    {"OOM", HF_FULL},
    {"WRONGTYPE", HF_CORRUPT},
    {"MOVED", HF_UNSUPPORTED},
    {"ASK", HF_UNSUPPORTED},
    {"CROSSSLOT", HF_UNSUPPORTED},
    {"LOADING", HF_UNAVAILABLE},
    {"BUSY", HF_UNAVAILABLE},
    {"READONLY", HF_UNAVAILABLE},
    {"MASTERDOWN", HF_UNAVAILABLE},
    {"MISCONF", HF_UNAVAILABLE},
    {"NOREPLICAS", HF_UNAVAILABLE},
    {"TRYAGAIN", HF_UNAVAILABLE},
    {"CLUSTERDOWN", HF_UNAVAILABLE},
    {"NOSCRIPT", HF_UNAVAILABLE},
};

/* Returns 1 if the text begins with this word. */
static int says(const char *text, const char *word)
{
    size_t n = strlen(word);
    return !strncmp(text, word, n) && (!text[n] || text[n] == ' ');
}

static int starts(const char *text, const char *with) { return !strncmp(text, with, strlen(with)); }

/* Returns where the code of an error is in its text: it is the first word. But before Redis 7 an
   error inside a script is reported as ERR, and the code is behind the last "@user_script: LINE: ",
   perhaps with a '-'. Only errors of scripts are read like that, because others may quote such
   text. */
static const char *code_in(const char *text)
{
    static const char mark[] = "@user_script:";
    const char *found = NULL;
    if (!says(text, "ERR")) return text;
    int script = starts(text, "ERR Error running script");
    for (const char *at = text; script && (at = strstr(at, mark)); at++)
        found = at + sizeof mark - 1;
    if (!found) return text + 3 + (text[3] == ' ');
    found += strspn(found, " 0123456789:");
    return found + (*found == '-');
}

static int coded(const char *code)
{
    for (size_t i = 0; i < sizeof meaning / sizeof *meaning; i++)
        if (says(code, meaning[i].word)) return meaning[i].code;
    return 0;
}

int hf__rd_says(const char *text, const char *code) { return says(code_in(text), code); }
int hf__rd_is_coded(const char *text) { return coded(text) != 0; }
int hf__rd_is_refusal(const char *text) { return coded(code_in(text)) != 0; }

/* Goes by the error's first word, because the rest may quote anything, such as a key. ERR stands
   for many errors without a code of their own; these are told apart by their texts, which are the
   same on all servers. */
int hf__rd_code(const char *text)
{
    const char *code = code_in(text);
    if (coded(code)) return coded(code);
    if (!says(text, "ERR")) return HF_UNAVAILABLE;
    if (starts(code, "unknown command ")) return HF_UNSUPPORTED;
    if (starts(code, "The user executing the script can't ")) return HF_DENIED;
    return strstr(text, "user_script") ? HF_CORRUPT : HF_UNAVAILABLE;
}

void hf__rd_words(const char *text, char to[HF_KIT_WHY])
{
    /* Cut off: the end "... script: 92e8..., on @user_script:7.", which helps no reader, and
       arguments. */
    static const char *const ends[] = {" script: ", ", with args", ". ", "\r", "\n"};
    size_t n = strlen(text);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        const char *at = strstr(text, ends[i]);
        if (at && (size_t)(at - text) < n) n = (size_t)(at - text);
    }
    if (says(text, "MOVED") || says(text, "ASK") || says(text, "CROSSSLOT"))
        snprintf(to, HF_KIT_WHY,
                 "%.*s: the key belongs to another node of the cluster; with one slot for all keys "
                 "(?prefix={holdfast}:) name its node",
                 (int)(n < 60 ? n : 60), text);
    else
        snprintf(to, HF_KIT_WHY, "%.*s", (int)n, text);
}
