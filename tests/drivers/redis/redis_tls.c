/*
 * redis_tls.c - rediss in front of a server that doesn't speak TLS, or breaks off: the error says
 * so, at once.
 */
#include "fakes/said.h"
#include "test.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const hf_driver *rediss;
static int listener, port;

/* The answer on a connection, after its first bytes. */
struct talk {
    const char *bytes;
    size_t len;
    int closes; /* 1: then the server closes; 0: the client has to */
};

static void *answer(void *arg)
{
    const struct talk *t = arg;
    char text[4096];
    int fd = accept(listener, NULL, NULL);
    if (fd < 0) return NULL;
    if (recv(fd, text, sizeof text, 0) > 0 && send(fd, t->bytes, t->len, MSG_NOSIGNAL) >= 0 &&
        !t->closes)
        while (recv(fd, text, sizeof text, 0) > 0) continue;
    close(fd);
    return NULL;
}

static int opens_to(const struct talk *t, const char *form)
{
    pthread_t thread;
    hf_store *st = NULL;
    assert_int_equal(pthread_create(&thread, NULL, answer, (void *)(uintptr_t)t), 0);
    int rc = said_opens(rediss, form, port, 20000, &st);
    pthread_join(thread, NULL);
    assert_null(st);
    return rc;
}

#define BYTES(text) text, sizeof text - 1

static void what_isnt_tls_is_told(void **state)
{
    static const struct {
        struct talk talk;
        int code;
        const char *text;
    } cases[] = {
        {{BYTES("-ERR unknown command\r\n"), 0}, HF_UNAVAILABLE, "TLS: "},
        {{BYTES("HTTP/1.1 400 Bad Request\r\n\r\n"), 1}, HF_UNAVAILABLE, "TLS: "},
        {{BYTES(""), 1}, HF_UNAVAILABLE, "closed the connection"},
        {{BYTES("\x16\x03\x03"), 1}, HF_UNAVAILABLE, "closed the connection"},
        /* An alert: no certificate of ours, or the wrong one. */
        {{BYTES("\x15\x03\x03\x00\x02\x02\x28"), 0}, HF_DENIED, "handshake failure"},
        {{BYTES("\x15\x03\x03\x00\x02\x02\x30"), 1}, HF_DENIED, "unknown ca"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++)
        said(opens_to(&cases[i].talk, "rediss://HOST"), cases[i].code, cases[i].text);
}

/* Options that are wrong in themselves are refused before a connection is made. */
static void options_are_read_first(void **state)
{
    static const char *const cases[][2] = {
        {"cacert=/dev", "cacert '/dev': Is a directory"},
        {"cert=a", "cert and key: one without the other"},
        {"key=a", "cert and key: one without the other"},
        {"cert=/dev&key=a", "cert '/dev': Is a directory"},
        {"cacert=a&cacert=a", "cacert: too long, or given twice"},
        {"cert=a&cert=a", "cert: too long, or given twice"},
        {"key=a&key=a", "key: too long, or given twice"},
        {"servername=a&servername=a", "servername: too long, or given twice"},
    };
    char url[200];
    hf_store *st = NULL;
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        snprintf(url, sizeof url, "rediss://HOST/?%s", cases[i][0]);
        said(said_opens(rediss, url, port, 20000, &st), HF_INVALID, cases[i][1]);
    }
    said(said_opens(rediss, "rediss://HOST/?cacert=/nowhere", port, 20000, &st), HF_UNAVAILABLE,
         "cacert '/nowhere': No such file");
    said(said_opens(rediss, "rediss:?socket=/nowhere", port, 20000, &st), HF_INVALID,
         "socket: without TLS only");
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_isnt_tls_is_told),
        cmocka_unit_test(options_are_read_first),
    };
    listener = said_listens(0, &port);
    rediss = hf__driver("rediss", &err);
    if (listener < 0 || !rediss) {
        printf("Bail out! %s\n", err.text);
        return 1;
    }
    int bad = TEST_MAIN(tests);
    close(listener);
    return bad;
}
