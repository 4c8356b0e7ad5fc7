/*
 * answers.c - see answers.h. A thread for each connection, which ends with it.
 */
#include "answers.h"

#include "said.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ANSWERS = 16, ASKED = 1 << 16 };

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static struct answer list[ANSWERS];
static size_t n_list;
static int used[ANSWERS], given;
static char asked[ASKED];
static const char *_Atomic date = ANSWERS_DATE;

static int fits(const char *want, const char *path, const char *text)
{
    char part[64];
    const char *of_body = strchr(want, '?');
    size_t len = of_body ? (size_t)(of_body - want) : strlen(want);
    snprintf(part, sizeof part, "%.*s", (int)len, want);
    return strstr(path, part) && (!of_body || strstr(text, of_body + 1));
}

struct answer answers_find(const char *path, const char *text)
{
    struct answer found = {NULL, 500, "", 0};
    pthread_mutex_lock(&mu);
    snprintf(asked, sizeof asked, "%s", text);
    given++;
    for (size_t i = 0; i < n_list; i++) {
        if (list[i].path && !fits(list[i].path, path, text)) continue;
        if (list[i].times && used[i] >= list[i].times) continue;
        used[i]++;
        found = list[i];
        break;
    }
    pthread_mutex_unlock(&mu);
    return found;
}

/* A request, head and body; 0: the client has gone. */
static int hear(int fd, char *text, size_t cap)
{
    size_t n = 0, whole = 0;
    while (!whole || n < whole) {
        ssize_t k = n < cap - 1 ? recv(fd, text + n, cap - 1 - n, 0) : 0;
        if (k <= 0) return 0;
        n += (size_t)k;
        text[n] = 0;
        const char *end = strstr(text, "\r\n\r\n"), *len = strcasestr(text, "content-length:");
        if (end)
            whole = (size_t)(end - text) + 4 + (len && len < end ? strtoul(len + 15, NULL, 10) : 0);
    }
    return 1;
}

static void (*tag_of)(const char *body, char to[40]);

void answers_tags(void (*of)(const char *body, char to[40])) { tag_of = of; }

static int say(int fd, const struct answer *a, const char *request)
{
    size_t len = strlen(a->body);
    char head[300], tag[40];
    if (a->status == ANSWER_CLOSED) return 0;
    if (a->status == ANSWER_OTHER) {
        send(fd, "-ERR hello\r\n", 12, MSG_NOSIGNAL);
        return 1;
    }
    if (a->status <= ANSWER_NO_HEAD) {
        snprintf(head, sizeof head, "HTTP/1.1 %d Word\r\nContent-Type: appl",
                 ANSWER_NO_HEAD - a->status);
        send(fd, head, strlen(head), MSG_NOSIGNAL);
        return 0;
    }
    snprintf(head, sizeof head, "HTTP/1.1 %d Word\r\n", a->status < 0 ? 200 : a->status);
    if (a->status != ANSWER_BARE)
        snprintf(head + strlen(head), 100, "Date: %s\r\n", atomic_load(&date));
    if (a->status == ANSWER_TAGGED) {
        tag_of(strstr(request, "\r\n\r\n") + 4, tag);
        snprintf(head + strlen(head), 100, "ETag: %s\r\n", tag);
    }
    if (a->status == ANSWER_FOREIGN)
        snprintf(head + strlen(head), 100, "ETag: \"55555555555555555555555555555555\"\r\n");
    if (a->status != ANSWER_OPEN)
        snprintf(head + strlen(head), 100, "Content-Length: %zu\r\n",
                 len + (a->status == ANSWER_CUT ? 10 : 0));
    send(fd, head, strlen(head), MSG_NOSIGNAL);
    send(fd, "\r\n", 2, MSG_NOSIGNAL);
    send(fd, a->body, len, MSG_NOSIGNAL);
    return a->status != ANSWER_CUT;
}

static void serve_http(int fd)
{
    char *text = malloc(ASKED), path[600];
    while (text && hear(fd, text, ASKED)) {
        if (sscanf(text, "%*s %599s", path) != 1) break;
        struct answer a = answers_find(path, text);
        if (!say(fd, &a, text)) break;
    }
    free(text);
}

static void (*serve_it)(int fd) = serve_http;

void answers_by(void (*serve)(int fd)) { serve_it = serve; }

static void *serve(void *arg)
{
    int fd = (int)(intptr_t)arg;
    serve_it(fd);
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

int answers_begin(void)
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

void answers_are(const struct answer *from, size_t n)
{
    pthread_mutex_lock(&mu);
    if (n > ANSWERS) abort();
    if (n) memcpy(list, from, n * sizeof *from);
    n_list = n;
    memset(used, 0, sizeof used);
    given = 0;
    pthread_mutex_unlock(&mu);
}

void answers_date(const char *text) { atomic_store(&date, text); }

int answers_given(void)
{
    pthread_mutex_lock(&mu);
    int n = given;
    pthread_mutex_unlock(&mu);
    return n;
}

const char *answers_base64(const char *bytes, size_t n)
{
    static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    static char ring[8][4096];
    static int at;
    char *to = ring[at++ % 8], *s = to;
    for (size_t i = 0; i < n; i += 3) {
        unsigned v = 0;
        for (size_t k = 0; k < 3; k++) v = v << 8 | (i + k < n ? (unsigned char)bytes[i + k] : 0);
        for (int k = 18; k >= 0; k -= 6) *s++ = digit[v >> k & 63];
        if (i + 2 >= n) s[-1] = '=';
        if (i + 1 >= n) s[-2] = '=';
    }
    *s = 0;
    return to;
}

const char *answers_asked(void) { return asked; }
