/*
 * link.c - see link.h.
 *
 * Contents: bytes; there and back; what replies mean; the server's facts; connecting.
 */
#include "link.h"

#include "os.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

enum { CHUNK = 16384, FRESH_US = 50000 };

/* ---- bytes ---- */

static void set_why(struct hf__rd_link *link, const char *why)
{
    snprintf(link->why, sizeof link->why, "%s", why);
}

/* 1: ready; 0: out of time. */
static int await(int fd, short events, int64_t until_us)
{
    for (;;) {
        struct pollfd p = {fd, events, 0};
        int64_t left = until_us - hf__local_us();
        if (left <= 0) left = 0;
        int n = poll(&p, 1, (int)((left + 999) / 1000));
        if (n > 0) return 1;
        if (n < 0 && errno != EINTR) return 0;
        if (!left) return 0;
    }
}

/* How much of it went out: less than n is a failure, with the reason. */
static size_t send_bytes(struct hf__rd_link *link, const char *from, size_t n, int64_t until_us)
{
    size_t sent = 0;
    while (sent < n) {
        ssize_t k = send(link->fd, from + sent, n - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (k > 0) {
            sent += (size_t)k;
        } else if (k < 0 && (errno == EAGAIN || errno == EINTR)) {
            if (await(link->fd, POLLOUT, until_us)) continue;
            set_why(link, "it takes nothing in time");
            break;
        } else {
            set_why(link, strerror(errno));
            break;
        }
    }
    return sent;
}

/* What the filter wants to have sent. */
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

/* One read: >0 bytes, 0: nothing there, -1: broken. The first after a request waits by itself, for
   as long as a request may take: there is never anything yet. */
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

/* Feeds the reader with what is there. 1: something, 0: nothing yet, -1: broken. */
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
    /* The last words of who closes the connection are worth hearing. */
    return plain < 0 && !some ? -1 : some;
}

/* ---- there and back ---- */

void hf__rd_disconnect(struct hf__rd_link *link)
{
    if (link->filter) hf__rd_filter->end(link->filter);
    if (link->reader) redisReaderFree(link->reader);
    if (link->fd >= 0) close(link->fd);
    link->filter = NULL;
    link->reader = NULL;
    link->fd = -1;
}

/* What came beyond the last answer would be taken for the next one. */
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
    /* Whatever comes unasked is a farewell, except for TLS's own business. */
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
    int64_t until_us = hf__local_us() + how->io_timeout_ms * 1000;
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
    int64_t until_us = hf__local_us() + how->io_timeout_ms * 1000;
    size_t sent = 0;
    int n = 0, wanted = batch->n, broken, failed = batch->failed;
    if (failed) {
        set_why(link, "out of memory"); /* not even the number of its commands is right */
    } else if (says_too_much(link)) {
        set_why(link, "it says more than it was asked");
    } else {
        int ok = send_all(link, batch->text, batch->len, until_us, &sent);
        link->asked = ok;
        /* Who is turned away is often told why before anything is read of him. */
        while (n < wanted && (reply[n] = hf__rd_next(link, ok ? until_us : 0, &broken))) n++;
    }
    hf__rd_batch_free(batch);
    link->used_us = until_us - how->io_timeout_ms * 1000;
    if (n == wanted && !failed) return 0;
    /* The one reply to all of it, before the connection was closed. */
    if (n && reply[0]->type == REDIS_REPLY_ERROR) hf__rd_words(reply[0]->str, link->why);
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
};

/* The word as a whole, behind `before` (or at the beginning). */
static int says(const char *text, const char *word, int anywhere)
{
    size_t n = strlen(word);
    for (const char *at = text; (at = strstr(at, word)); at += n) {
        int begins = at == text || (anywhere && (at[-1] == ' ' || at[-1] == '-'));
        if (begins && (!at[n] || at[n] == ' ')) return 1;
    }
    return 0;
}

int hf__rd_code(const char *text)
{
    /* Before Redis 7 what a script met stands somewhere within the error. */
    for (int anywhere = 0; anywhere < 2; anywhere++)
        for (size_t i = 0; i < sizeof meaning / sizeof *meaning; i++)
            if (says(text, meaning[i].word, anywhere))
                return meaning[i].code == HF_UNAVAILABLE && strstr(text, "No space left")
                           ? HF_FULL
                           : meaning[i].code;
    if (strstr(text, "without any password") || strstr(text, "invalid password")) return HF_DENIED;
    if (strstr(text, "user executing the script can't")) return HF_DENIED;
    if (strstr(text, "DB index")) return HF_INVALID;
    if (strstr(text, "max number of clients")) return HF_UNAVAILABLE;
    if (strstr(text, " alert ")) return HF_DENIED; /* TLS: we have no certificate, or a wrong one */
    if (strstr(text, "unknown command")) return HF_UNSUPPORTED;
    return strstr(text, "user_script") ? HF_CORRUPT : HF_UNAVAILABLE;
}

void hf__rd_words(const char *text, char to[HF_RD_WHY])
{
    /* "... script: 92e8..., on @user_script:7." is of no use to anybody; neither are arguments. */
    static const char *const ends[] = {" script: ", ", with args", ". ", "\r", "\n"};
    size_t n = strlen(text);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        const char *at = strstr(text, ends[i]);
        if (at && (size_t)(at - text) < n) n = (size_t)(at - text);
    }
    if (says(text, "MOVED", 0) || says(text, "ASK", 0) || says(text, "CROSSSLOT", 0))
        snprintf(to, HF_RD_WHY,
                 "%.*s: the key belongs to another node of the cluster; with one slot for all keys "
                 "(?prefix={holdfast}:) name its node",
                 (int)(n < 60 ? n : 60), text);
    else
        snprintf(to, HF_RD_WHY, "%.*s", (int)n, text);
}

/* ---- the server's facts ---- */

/* The value of "name:value" at the beginning of a line. */
static void fact(const char *info, const char *name, char *to, size_t cap)
{
    size_t n = strlen(name);
    to[0] = 0;
    for (const char *at = info; at; at = strchr(at, '\n')) {
        at += *at == '\n';
        if (!strncmp(at, name, n) && at[n] == ':') {
            snprintf(to, cap, "%.*s", (int)strcspn(at + n + 1, "\r\n"), at + n + 1);
            return;
        }
    }
}

void hf__rd_read_facts(const char *info, struct hf__rd_facts *f)
{
    char flag[8];
    memset(f, 0, sizeof *f);
    fact(info, "redis_version", f->version, sizeof f->version);
    fact(info, "maxmemory_policy", f->policy, sizeof f->policy);
    fact(info, "role", f->role, sizeof f->role);
    fact(info, "aof_enabled", f->aof, sizeof f->aof);
    fact(info, "rdb_last_bgsave_status", f->save_ok, sizeof f->save_ok);
    fact(info, "cluster_enabled", flag, sizeof flag);
    f->cluster = flag[0] == '1';
}

/* Does the prefix put all keys into one slot? */
static int one_slot(const char *prefix)
{
    const char *open = strchr(prefix, '{'), *close = open ? strchr(open, '}') : NULL;
    return close && close > open + 1;
}

int hf__rd_fit(const struct hf__rd_how *how, const struct hf__rd_facts *f, char why[HF_RD_WHY])
{
    why[0] = 0;
    if (f->version[0] && strtol(f->version, NULL, 10) < 5)
        snprintf(why, HF_RD_WHY, "version %s is older than Redis 5", f->version);
    else if (!strcmp(f->role, "slave"))
        snprintf(why, HF_RD_WHY, "it is a replica: it shows the past, and takes no writes");
    else if (!strncmp(f->policy, "allkeys-", 8))
        snprintf(why, HF_RD_WHY,
                 "maxmemory-policy is %s: when memory is short it drops locks that are held "
                 "(noeviction doesn't)",
                 f->policy);
    else if (f->cluster && !one_slot(how->prefix))
        snprintf(why, HF_RD_WHY,
                 "it is a node of a cluster, which has only some of the keys: put them all into "
                 "one slot, ?prefix={holdfast}:, and name its node");
    return why[0] ? HF_UNSUPPORTED : 0;
}

/* ---- connecting ---- */

static int refuse(struct hf__rd_link *link, int code, hf_error *err)
{
    hf__rd_disconnect(link);
    return hf_fail(err, code, 0, HF_RD ": connect: %s", link->why);
}

/* From now on it waits where that isn't forbidden, but not for ever. */
static void settle(const struct hf__rd_how *how, const struct hf__rd_link *link)
{
    struct timeval t = {how->io_timeout_ms / 1000, how->io_timeout_ms % 1000 * 1000};
    if (setsockopt(link->fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t)) return;
    fcntl(link->fd, F_SETFL, fcntl(link->fd, F_GETFL) & ~O_NONBLOCK);
}

/* Starts or finishes a connection; 0: not in time, or not at all. */
static int reach(struct hf__rd_link *link, const struct sockaddr *to, socklen_t len,
                 int64_t until_us)
{
    int failure = 0;
    socklen_t size = sizeof failure;
    link->fd = hf__fd_above(socket(to->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (link->fd >= 0) {
        if (!connect(link->fd, to, len)) return 1;
        failure = errno;
        if (failure == EINPROGRESS) {
            if (!await(link->fd, POLLOUT, until_us))
                failure = ETIMEDOUT;
            else if (getsockopt(link->fd, SOL_SOCKET, SO_ERROR, &failure, &size))
                failure = errno;
        }
        if (!failure) return 1;
        close(link->fd);
        link->fd = -1;
    } else {
        failure = errno;
    }
    set_why(link, strerror(failure));
    return 0;
}

static int dial_socket(const struct hf__rd_how *how, struct hf__rd_link *link, int64_t until_us,
                       hf_error *err)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    memcpy(to.sun_path, how->socket, strlen(how->socket) + 1);
    if (reach(link, (const struct sockaddr *)&to, sizeof to, until_us)) return 0;
    return hf_fail(err, HF_UNAVAILABLE, 0, HF_RD ": connect '%s': %s", how->socket, link->why);
}

static int dial(const struct hf__rd_how *how, struct hf__rd_link *link, int64_t until_us,
                hf_error *err)
{
    struct addrinfo want = {.ai_socktype = SOCK_STREAM}, *found;
    int on = 1, idle = 15, between = 5, times = 3, ms = (int)how->io_timeout_ms;
    if (how->socket[0]) return dial_socket(how, link, until_us, err);
    int rc = getaddrinfo(how->host, how->port, &want, &found);
    if (rc)
        return hf_fail(err, HF_UNAVAILABLE, 0, HF_RD ": connect '%s:%s': %s", how->host, how->port,
                       gai_strerror(rc));
    for (const struct addrinfo *a = found; a && link->fd < 0; a = a->ai_next)
        reach(link, a->ai_addr, a->ai_addrlen, until_us);
    freeaddrinfo(found);
    if (link->fd < 0)
        return hf_fail(err, HF_UNAVAILABLE, 0, HF_RD ": connect '%s:%s': %s", how->host, how->port,
                       link->why);
    /* Refined where the system knows them; nothing depends on it. */
    setsockopt(link->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(link->fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(link->fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(link->fd, IPPROTO_TCP, TCP_KEEPINTVL, &between, sizeof between);
    setsockopt(link->fd, IPPROTO_TCP, TCP_KEEPCNT, &times, sizeof times);
    setsockopt(link->fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof ms);
    return 0;
}

static int secure(const struct hf__rd_how *how, struct hf__rd_link *link, int64_t until_us,
                  hf_error *err)
{
    char buffer[CHUNK];
    size_t sent = 0;
    link->filter = hf__rd_filter->begin(how->tls);
    if (!link->filter) return hf_fail(err, HF_NOMEM, 0, HF_RD ": connect: out of memory");
    for (;;) {
        int rc = hf__rd_filter->shake(link->filter, link->why);
        if (rc < 0) {
            char why[HF_RD_WHY];
            memcpy(why, link->why, sizeof why);
            send_sealed(link, until_us, &sent); /* tells the other why, too */
            set_why(link, why);
            return refuse(link, rc, err);
        }
        if (!send_sealed(link, until_us, &sent)) return refuse(link, HF_UNAVAILABLE, err);
        if (rc > 0) return 0;
        if (!await(link->fd, POLLIN, until_us)) {
            set_why(link, "no answer in time");
            return refuse(link, HF_UNAVAILABLE, err);
        }
        ssize_t n = receive(link, buffer, sizeof buffer);
        if (n < 0) return refuse(link, HF_UNAVAILABLE, err);
        if (n > 0 && hf__rd_filter->feed(link->filter, buffer, (size_t)n) < 0) {
            set_why(link, "out of memory");
            return refuse(link, HF_NOMEM, err);
        }
    }
}

/* A step of the greeting that went wrong. */
static int unwelcome(const struct hf__rd_how *how, struct hf__rd_link *link, const redisReply *r,
                     hf_error *err)
{
    int code = hf__rd_code(r->str);
    hf__rd_words(r->str, link->why);
    if (how->password[0] && strstr(link->why, how->password)) {
        set_why(link, "AUTH was refused");
        code = HF_DENIED;
    }
    return refuse(link, code, err);
}

enum { MAX_GREETING = 5 + HF_RD_SCRIPTS };

static int greet(const struct hf__rd_how *how, struct hf__rd_link *link, int whole, hf_error *err)
{
    struct hf__rd_batch batch = {NULL, 0, 0, 0, 0};
    struct hf__rd_facts facts;
    redisReply *reply[MAX_GREETING];
    int asked = 0;
    if (how->password[0] && how->user[0])
        hf__rd_say(&batch, "AUTH", how->user, how->password, NULL);
    else if (how->password[0])
        hf__rd_say(&batch, "AUTH", how->password, NULL);
    if (strcmp(how->db, "0") && whole) hf__rd_say(&batch, "SELECT", how->db, NULL);
    int must = batch.n;
    hf__rd_say(&batch, "CLIENT", "SETNAME", "holdfast", NULL);
    if (whole) {
        asked = batch.n;
        hf__rd_say(&batch, "INFO", NULL);
        for (int i = 0; i < HF_RD_SCRIPTS; i++)
            hf__rd_say(&batch, "SCRIPT", "LOAD", how->script[i], NULL);
        if (how->wait) hf__rd_say(&batch, "WAIT", "0", "1", NULL); /* may we? */
    }
    int n = batch.n, rc = hf__rd_talk(how, link, &batch, reply);
    if (rc) return refuse(link, hf__rd_code(link->why), err);
    /* What it needn't let us do, it is asked for again when there is no way around it. */
    for (int i = 0; i < n && !rc; i++) {
        if (reply[i]->type != REDIS_REPLY_ERROR) continue;
        int code = hf__rd_code(reply[i]->str);
        int known = strncmp(reply[i]->str, "NOPERM", 6) && strncmp(reply[i]->str, "ERR", 3);
        if (i < must || (known && code)) rc = unwelcome(how, link, reply[i], err);
    }
    for (int i = 0; whole && i < HF_RD_SCRIPTS && !rc; i++) {
        const redisReply *r = reply[asked + 1 + i];
        snprintf(link->sha[i], sizeof link->sha[i], "%s",
                 r->type == REDIS_REPLY_STRING ? r->str : "");
    }
    if (whole && !rc && reply[asked]->type == REDIS_REPLY_STRING) {
        hf__rd_read_facts(reply[asked]->str, &facts);
        rc = hf__rd_fit(how, &facts, link->why);
        if (rc) rc = refuse(link, rc, err);
    }
    if (whole && !rc && how->wait && reply[n - 1]->type == REDIS_REPLY_ERROR)
        rc = unwelcome(how, link, reply[n - 1], err);
    hf__rd_free(reply, n);
    return rc;
}

int hf__rd_connect(const struct hf__rd_how *how, struct hf__rd_link *link, int whole, hf_error *err)
{
    int64_t until_us = hf__local_us() + how->io_timeout_ms * 1000;
    int rc = dial(how, link, until_us, err);
    if (rc) return rc;
    settle(how, link);
    link->asked = 0;
    link->reader = redisReaderCreate();
    if (!link->reader) {
        set_why(link, "out of memory");
        return refuse(link, HF_NOMEM, err);
    }
    if (hf__rd_filter) rc = secure(how, link, until_us, err);
    if (!rc) rc = greet(how, link, whole, err);
    if (rc) hf__rd_disconnect(link);
    return rc;
}
