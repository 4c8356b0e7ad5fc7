/*
 * grpcsay.c - see grpcsay.h. A thread for each connection, which ends with it. Frames are put
 * together by hand, so that they can be wrong.
 */
#include "grpcsay.h"

#include "fakes/said.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { REPLIES = 4, REPLY_CAP = 4096, IDS = 64, HEAD = 9, PREFACE = 24, PAYLOAD_CAP = 1 << 16 };
enum { DATA = 0, HEADERS = 1, SETTINGS = 4, END_STREAM = 1, ACK = 1, END_HEADERS = 4 };

struct reply {
    uint8_t bytes[REPLY_CAP];
    size_t len;
    size_t id[IDS]; /* where the stream's number belongs */
    int n_ids, closes;
    size_t later; /* the bytes from here on wait for grpcsay_go_on; 0: none do */
};

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t going_on = PTHREAD_COND_INITIALIZER;
static int goes_on;
static struct reply replies[REPLIES];
static int now, requests, connections, dates;
static enum grpcsay how;
static const char *date;

/* ---- what is to be said ---- */

static void put(const void *bytes, size_t len)
{
    struct reply *r = &replies[now];
    if (r->len + len > REPLY_CAP) abort();
    if (len) memcpy(r->bytes + r->len, bytes, len);
    r->len += len;
}

void say_frame(int type, int flags, int of_stream, const void *bytes, size_t len)
{
    const uint8_t head[HEAD] = {(uint8_t)(len >> 16), (uint8_t)(len >> 8), (uint8_t)len,
                                (uint8_t)type, (uint8_t)flags};
    struct reply *r = &replies[now];
    if (of_stream) {
        if (r->n_ids == IDS) abort();
        r->id[r->n_ids++] = r->len + 5;
    }
    put(head, sizeof head);
    put(bytes, len);
}

/* A text as HPACK has it, as it is. */
static size_t put_text(uint8_t *to, const char *text)
{
    size_t len = strlen(text), n = 0;
    if (len < 127) {
        to[n++] = (uint8_t)len;
    } else {
        if (len - 127 > 127) abort();
        to[n++] = 127;
        to[n++] = (uint8_t)(len - 127);
    }
    memcpy(to + n, text, len);
    return n + len;
}

void say_headers(int ends, const char *const *all)
{
    uint8_t block[1024];
    size_t n = 0;
    for (; *all; all += 2) {
        if (n + strlen(all[0]) + strlen(all[1]) + 5 > sizeof block) abort();
        block[n++] = 0;
        n += put_text(block + n, all[0]);
        n += put_text(block + n, all[1]);
    }
    say_frame(HEADERS, END_HEADERS | (ends ? END_STREAM : 0), 1, block, n);
}

void say_data(int ends, const void *bytes, size_t len)
{
    say_frame(DATA, ends ? END_STREAM : 0, 1, bytes, len);
}

void say_less(size_t bytes) { replies[now].len -= bytes; }
void say_later(void) { replies[now].later = replies[now].len; }
void say_close(void) { replies[now].closes = 1; }

void say_next(void)
{
    if (++now == REPLIES) abort();
}

void say_message(const void *bytes, size_t len)
{
    static const char *const good[] = {":status", "200", "content-type", "application/grpc", NULL};
    static const char *const ends[] = {"grpc-status", "0", NULL};
    const uint8_t head[5] = {0, 0, 0, (uint8_t)(len >> 8), (uint8_t)len};
    say_headers(0, good);
    say_data(0, head, sizeof head);
    say_data(0, bytes, len);
    say_headers(1, ends);
}

void say_status(const char *status, const char *message)
{
    const char *const all[] = {":status",          "200",         "content-type",
                               "application/grpc", "grpc-status", status,
                               "grpc-message",     message,       NULL};
    say_headers(1, all);
}

void grpcsay_anew(enum grpcsay is)
{
    pthread_mutex_lock(&mu);
    memset(replies, 0, sizeof replies);
    now = requests = connections = dates = goes_on = 0;
    how = is;
    pthread_mutex_unlock(&mu);
}

void grpcsay_date(const char *is)
{
    pthread_mutex_lock(&mu);
    date = is;
    pthread_mutex_unlock(&mu);
}

void grpcsay_go_on(void)
{
    pthread_mutex_lock(&mu);
    goes_on = 1;
    pthread_cond_broadcast(&going_on);
    pthread_mutex_unlock(&mu);
}

static int read_of(const int *n)
{
    pthread_mutex_lock(&mu);
    int is = *n;
    pthread_mutex_unlock(&mu);
    return is;
}

int grpcsay_requests(void) { return read_of(&requests); }
int grpcsay_connections(void) { return read_of(&connections); }
int grpcsay_dates(void) { return read_of(&dates); }

/* ---- the server ---- */

/* 0: the client has gone. */
static int hear(int fd, void *to, size_t len)
{
    return !len || recv(fd, to, len, MSG_WAITALL) == (ssize_t)len;
}

static void say(int fd, const void *bytes, size_t len)
{
    if (len) send(fd, bytes, len, MSG_NOSIGNAL);
}

/* 0: it was the last. */
static int answer(int fd, const uint8_t id[4])
{
    pthread_mutex_lock(&mu);
    struct reply r = replies[requests < now ? requests : now];
    requests++;
    pthread_mutex_unlock(&mu);
    for (int i = 0; i < r.n_ids; i++)
        if (r.id[i] + 4 <= r.len) memcpy(r.bytes + r.id[i], id, 4);
    say(fd, r.bytes, r.later ? r.later : r.len);
    if (r.later) {
        pthread_mutex_lock(&mu);
        while (!goes_on) pthread_cond_wait(&going_on, &mu);
        pthread_mutex_unlock(&mu);
        say(fd, r.bytes + r.later, r.len - r.later);
    }
    return !r.closes;
}

/* Reads until the client has gone, so that the last answer arrives. */
static void drain(int fd)
{
    char bytes[4096];
    shutdown(fd, SHUT_WR);
    while (recv(fd, bytes, sizeof bytes, 0) > 0) continue;
}

static void speak_http2(int fd)
{
    static const uint8_t settings[HEAD] = {0, 0, 0, SETTINGS}, ack[HEAD] = {0, 0, 0, SETTINGS, ACK};
    uint8_t head[PREFACE], *payload = malloc(PAYLOAD_CAP);
    if (!payload || !hear(fd, head, PREFACE - 4)) abort();
    say(fd, settings, sizeof settings);
    while (hear(fd, head, HEAD)) {
        size_t len = (size_t)head[0] << 16 | (size_t)head[1] << 8 | head[2];
        if (len > PAYLOAD_CAP) abort();
        if (!hear(fd, payload, len)) break;
        if (head[3] == SETTINGS && !(head[4] & ACK)) say(fd, ack, sizeof ack);
        if (head[3] == DATA && head[4] & END_STREAM && !answer(fd, head + 5)) break;
    }
    free(payload);
}

static void speak_http1(int fd, int asks_date)
{
    char text[4096] = "", said_date[100] = "";
    size_t n = 0;
    while (asks_date && !strstr(text, "\r\n\r\n")) {
        ssize_t k = recv(fd, text + n, sizeof text - 1 - n, 0);
        if (k <= 0) return;
        n += (size_t)k;
        text[n] = 0;
    }
    pthread_mutex_lock(&mu);
    dates += asks_date;
    if (date) snprintf(said_date, sizeof said_date, "Date: %s\r\n", date);
    pthread_mutex_unlock(&mu);
    snprintf(text, sizeof text, "HTTP/1.1 %s\r\n%sContent-Length: 0\r\n\r\n",
             asks_date ? "200 OK" : "400 Bad Request", said_date);
    say(fd, text, strlen(text));
}

static void *serve(void *arg)
{
    int fd = (int)(intptr_t)arg;
    char first[4];
    if (hear(fd, first, sizeof first)) {
        int is_http2 = !memcmp(first, "PRI ", 4);
        pthread_mutex_lock(&mu);
        enum grpcsay is = how;
        connections += is_http2;
        pthread_mutex_unlock(&mu);
        if (is == GRPC_OTHER)
            say(fd, "-ERR hello\r\n", 12);
        else if (!is_http2 || is == GRPC_HTTP1)
            speak_http1(fd, !is_http2);
        else if (is == GRPC_WELL)
            speak_http2(fd);
        if (is == GRPC_MUTE && is_http2) {
            char byte;
            while (recv(fd, &byte, 1, 0) > 0) continue;
        }
        drain(fd);
    }
    close(fd);
    return NULL;
}

static void *listen_on(void *arg)
{
    int fd = (int)(intptr_t)arg, one, yes = 1;
    while ((one = accept(fd, NULL, NULL)) >= 0) {
        pthread_t t;
        setsockopt(one, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
        if (!pthread_create(&t, NULL, serve, (void *)(intptr_t)one)) pthread_detach(t);
    }
    return NULL;
}

int grpcsay_begin(void)
{
    pthread_t t;
    int port, fd = said_listens(0, &port);
    if (fd < 0 || pthread_create(&t, NULL, listen_on, (void *)(intptr_t)fd)) {
        printf("Bail out! no server\n");
        exit(1);
    }
    pthread_detach(t);
    return port;
}
