/*
 * nats_connect.c - nats: a connection, from its beginning to its end, in front of a server that
 * stops in the midst of it, or sends more than is read.
 */
#include "fakes/said.h"
#include "nats/link.h"
#include "network/kit_net.h"
#include "os.h"
#include "scratch.h"
#include "test.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SOON_MS = 300, LATE_MS = 60000, FLOOD = 20000 };

/* A text and its length. */
#define BYTES(text) (text), sizeof(text) - 1

enum stop { BEFORE_INFO, IN_TLS, IN_TLS_SLOWLY, IN_LOGIN, NEVER, CUT, REFUSED };

static int listener, port;
static enum stop stops;
static const char *last; /* what the server sends instead of a handshake, before it closes the
                            connection */
static size_t last_len;
static char heard[4096]; /* the first bytes of the client */
static int given_up;     /* eventfd: the client has stopped waiting */

static void put(int fd, const char *text)
{
    assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
}

/* A record of TLS that comes byte by byte, for as long as the client listens. */
static void dribble(int fd)
{
    struct pollfd p = {fd, 0, 0};
    if (send(fd, "\x16\x03\x03\x3f\xff", 5, MSG_NOSIGNAL) == 5)
        while (send(fd, "\x02", 1, MSG_NOSIGNAL) == 1) poll(&p, 1, 20);
}

static void talk(int fd)
{
    char text[4096];
    if (stops != BEFORE_INFO)
        put(fd, stops == IN_TLS || stops == IN_TLS_SLOWLY || stops == CUT
                    ? "INFO {\"server_id\":\"x\",\"version\":\"2.10.0\",\"tls_required\":true}\r\n"
                    : "INFO {\"server_id\":\"x\",\"version\":\"2.10.0\",\"headers\":true,"
                      "\"max_payload\":1000}\r\n");
    ssize_t got;
    while ((got = recv(fd, text, sizeof text - 1, 0)) > 0) {
        snprintf(heard, sizeof heard, "%.*s", (int)got, text);
        if (stops == IN_TLS_SLOWLY) dribble(fd);
        if (stops == CUT || stops == REFUSED) {
            send(fd, last, last_len, MSG_NOSIGNAL);
            return;
        }
        if (stops == IN_LOGIN) {
            eventfd_t n;
            eventfd_read(given_up, &n);
            return; /* closed: the library's thread ends, too */
        }
        if (stops != NEVER) continue;
        put(fd, "PONG\r\n");
        break;
    }
    for (int i = 0; stops == NEVER && i < FLOOD; i++)
        if (send(fd, "+OK\r\n+OK\r\n", 10, MSG_NOSIGNAL) < 0) break;
    while (recv(fd, text, sizeof text, 0) > 0) continue;
}

/* Serves two connections: the one that finds out whether there is a server, and the library's. */
static void *serve(void *arg)
{
    for (int i = 0; i < 2; i++) {
        int fd = accept(listener, NULL, NULL);
        if (fd < 0) break;
        if (i) talk(fd);
        close(fd);
    }
    return arg;
}

static void add(struct hf__nats_how *how, const char *host, int number)
{
    size_t n = how->at.n++;
    snprintf(how->at.host[n], sizeof how->at.host[n], "%s", host);
    snprintf(how->at.port[n], sizeof how->at.port[n], "%d", number);
}

/* The last server of the list is this program's. */
static int connects(enum stop at, struct hf__nats_how *how, struct hf__nats_link *link,
                    int64_t limit_ms, pthread_t *thread)
{
    add(how, "127.0.0.1", port);
    snprintf(how->inbox, sizeof how->inbox, "_INBOX");
    how->verify = 1;
    stops = at;
    memset(&err, 0, sizeof err);
    assert_int_equal(pthread_create(thread, NULL, serve, NULL), 0);
    return hf__nats_connect(how, link, hf__local_us() + limit_ms * 1000, &err);
}

#define LATE_LOGIN "no answer to the login in time"

/* A connection to a server that is mute from there on. */
static int meets_a_mute_server(enum stop at)
{
    struct hf__nats_how how = {.tls = at == IN_TLS || at == IN_TLS_SLOWLY};
    struct hf__nats_link link = {0};
    pthread_t thread;
    int64_t before_us = hf__local_us();
    int rc = connects(at, &how, &link, SOON_MS, &thread);
    int64_t took_us = hf__local_us() - before_us;
    if (at == IN_LOGIN) eventfd_write(given_up, 1);
    pthread_join(thread, NULL);
    assert_in_range(took_us, SOON_MS * 900, 20000000);
    return rc;
}

static void a_mute_server_takes_the_limit_and_no_more(void **state)
{
    static const char *const why[] = {"': no answer in time", "TLS: no answer in time",
                                      "TLS: no answer in time", LATE_LOGIN};
    (void)state;
    for (enum stop at = BEFORE_INFO; at < NEVER; at++) {
        int rc = meets_a_mute_server(at);
        /* If the machine lets the login's thread sleep, the caller gives up before it says more. */
        for (int i = 0; i < 15 && strstr(err.text, LATE_LOGIN) && at != IN_LOGIN; i++)
            rc = meets_a_mute_server(at);
        said(rc, HF_UNAVAILABLE, why[at]);
    }
}

/* ---- one deadline for several servers, addresses and names ---- */

/* That server comes first. A deadline is long where the call has to succeed: a call that spends it
   on one server ends by the program's own time limit. */
static void works_behind(const char *host, int number, int64_t limit_ms)
{
    struct hf__nats_how how = {0};
    struct hf__nats_link link = {0};
    pthread_t thread;
    add(&how, host, number);
    said(connects(NEVER, &how, &link, limit_ms, &thread), 0, NULL);
    hf__nats_disconnect(&link);
    pthread_join(thread, NULL);
}

static void a_silent_server_does_not_take_the_time_of_the_next(void **state)
{
    int number = 0, filler, silent = kit_silent(2, &number, &filler);
    (void)state;
    works_behind("127.0.0.2", number, LATE_MS);
    close(silent);
    close(filler);
}

static void a_mute_server_leaves_time_for_the_next(void **state)
{
    int number = 0, mute = kit_listen(2, &number);
    (void)state;
    works_behind("127.0.0.2", number, 3000);
    close(mute);
}

static void a_mute_name_server_does_not_take_the_time_of_the_next(void **state)
{
    struct hf__nats_how how = {0};
    struct hf__nats_link link = {0};
    (void)state;
    kit_names_mute();
    works_behind("mute", 4222, LATE_MS);
    add(&how, "mute", 4222);
    said(hf__nats_connect(&how, &link, kit_in_ms(SOON_MS), &err), HF_UNAVAILABLE,
         "the name servers don't answer in time");
    kit_names_answer();
}

static void each_address_of_a_name_is_tried(void **state)
{
    int number = 0, filler, silent = kit_silent(2, &number, &filler);
    int no = kit_refusing(3, &number);
    struct hf__nats_how how = {0};
    struct hf__nats_link link = {0};
    (void)state;
    add(&how, "at-2-3", number);
    said(hf__nats_connect(&how, &link, kit_in_ms(SOON_MS), &err), HF_UNAVAILABLE,
         "(127.0.0.2): no answer in time");
    said(HF_UNAVAILABLE, HF_UNAVAILABLE, "(127.0.0.3): Connection refused");
    close(silent);
    close(filler);
    close(no);
}

/* ---- TLS ---- */

/* Only a server that speaks TLS can refuse the handshake; one that goes down meanwhile doesn't. */
static void a_handshake_that_is_cut_denies_nothing(void **state)
{
    static const struct {
        const char *says;
        size_t len;
        int code;
    } cases[] = {{BYTES(""), HF_UNAVAILABLE},
                 {BYTES("-ERR lame duck\r\n"), HF_UNAVAILABLE},
                 {BYTES("HTTP/1.1 400 Bad Request\r\n\r\n"), HF_UNAVAILABLE},
                 {BYTES("\x15\x03\x03"), HF_UNAVAILABLE},
                 /* An alert: handshake failure. */
                 {BYTES("\x15\x03\x03\x00\x02\x02\x28"), HF_DENIED}};
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct hf__nats_how how = {.tls = 1};
        struct hf__nats_link link = {0};
        pthread_t thread;
        last = cases[i].says;
        last_len = cases[i].len;
        int rc = connects(CUT, &how, &link, LATE_MS, &thread);
        pthread_join(thread, NULL);
        said(rc, cases[i].code, "127.0.0.1");
    }
}

/* The errors with which a server refuses a login. */
static void refusals_are_passing_or_not(void **state)
{
    static const struct {
        const char *says;
        size_t len;
        int code;
    } cases[] = {{BYTES("-ERR 'maximum connections exceeded'\r\n"), HF_UNAVAILABLE},
                 {BYTES("-ERR 'maximum account active connections exceeded'\r\n"), HF_UNAVAILABLE},
                 {BYTES("-ERR 'Server Shutdown'\r\n"), HF_UNAVAILABLE},
                 {BYTES("-ERR 'Authorization Violation'\r\n"), HF_DENIED}};
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct hf__nats_how how = {0};
        struct hf__nats_link link = {0};
        pthread_t thread;
        last = cases[i].says;
        last_len = cases[i].len;
        int rc = connects(REFUSED, &how, &link, LATE_MS, &thread);
        pthread_join(thread, NULL);
        said(rc, cases[i].code, "127.0.0.1");
    }
}

static void a_password_is_read_at_each_connect(void **state)
{
    static const char *const words[] = {"first-word", "second-word"};
    struct hf__nats_how how = {.user = "locks"};
    (void)state;
    snprintf(how.secret.path, sizeof how.secret.path, "%s/word", scratch_dir);
    for (size_t i = 0; i < COUNT(words); i++) {
        struct hf__nats_link link = {0};
        pthread_t thread;
        FILE *f = fopen(how.secret.path, "we");
        assert_non_null(f);
        fprintf(f, "%s\n", words[i]);
        assert_int_equal(fclose(f), 0);
        how.at.n = 0;
        said(connects(NEVER, &how, &link, LATE_MS, &thread), 0, NULL);
        hf__nats_disconnect(&link);
        pthread_join(thread, NULL);
        assert_non_null(strstr(heard, words[i]));
    }
}

/* This program's terminal is a pseudo terminal, or there is none: nothing would answer a
   question. */
static void an_encrypted_key_is_refused(void **state)
{
    struct hf__nats_how how = {.tls = 1};
    struct hf__nats_link link = {0};
    char make[1500];
    (void)state;
    snprintf(how.files.key, sizeof how.files.key, "%s/key.pem", scratch_dir);
    snprintf(how.files.cert, sizeof how.files.cert, "%s/cert.pem", scratch_dir);
    snprintf(make, sizeof make,
             "openssl req -x509 -newkey rsa:2048 -passout pass:word -days 2 -subj /CN=x "
             "-keyout %s -out %s 2>/dev/null",
             how.files.key, how.files.cert);
    assert_int_equal(system(make), 0);
    pthread_t thread;
    int rc = connects(BEFORE_INFO, &how, &link, LATE_MS, &thread);
    said(rc, HF_INVALID, "tls_key: the key is encrypted");
    how.opened = 1;
    int fd = socket(AF_INET, SOCK_STREAM, 0); /* the server's second connection */
    assert_true(fd >= 0);
    struct sockaddr_storage at;
    socklen_t len = sizeof at;
    assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &len), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&at, len), 0);
    close(fd);
    pthread_join(thread, NULL);
}

/* The library waits for half a second before it closes a connection that seems sound. */
static void what_is_unread_does_not_delay_the_end(void **state)
{
    struct hf__nats_how how = {0};
    struct hf__nats_link link = {0};
    pthread_t thread;
    (void)state;
    said(connects(NEVER, &how, &link, LATE_MS, &thread), 0, NULL);
    struct pollfd p = {hf__nats_fd(&link), POLLIN, 0};
    int fast = 0;
    assert_int_equal(poll(&p, 1, LATE_MS), 1);
    int64_t before_us = hf__local_us();
    hf__nats_disconnect(&link);
    fast = hf__local_us() - before_us < 450000;
    pthread_join(thread, NULL);
    assert_true(fast);
}

static void what_is_too_long_is_not_sent(void **state)
{
    static char data[2000];
    struct hf__nats_how how = {0};
    struct hf__nats_link link = {0};
    struct hf__nats_request r = {.subject = "a", .data = data, .len = sizeof data};
    char why[HF_NATS_WHY];
    pthread_t thread;
    (void)state;
    said(connects(NEVER, &how, &link, LATE_MS, &thread), 0, NULL);
    int rc = hf__nats_ask(&link, &r, 1, hf__local_us() + LATE_MS * INT64_C(1000), why);
    assert_int_equal(rc, 0);
    assert_int_equal(r.unsent, HF_FULL);
    assert_non_null(link.nc); /* and the connection still works */
    hf__nats_disconnect(&link);
    pthread_join(thread, NULL);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_mute_server_takes_the_limit_and_no_more),
        cmocka_unit_test(a_silent_server_does_not_take_the_time_of_the_next),
        cmocka_unit_test(a_mute_server_leaves_time_for_the_next),
        cmocka_unit_test(a_mute_name_server_does_not_take_the_time_of_the_next),
        cmocka_unit_test(each_address_of_a_name_is_tried),
        cmocka_unit_test(a_handshake_that_is_cut_denies_nothing),
        cmocka_unit_test(refusals_are_passing_or_not),
        cmocka_unit_test(a_password_is_read_at_each_connect),
        cmocka_unit_test(an_encrypted_key_is_refused),
        cmocka_unit_test(what_is_unread_does_not_delay_the_end),
        cmocka_unit_test(what_is_too_long_is_not_sent),
    };
    listener = said_listens(0, &port);
    given_up = eventfd(0, EFD_CLOEXEC);
    if (listener < 0 || given_up < 0 || !scratch("file:@")) return 1;
    return TEST_MAIN(tests);
}
