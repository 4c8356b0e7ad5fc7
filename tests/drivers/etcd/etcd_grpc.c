/*
 * etcd_grpc.c - the driver etcd before a server that answers any bytes to gRPC: what isn't a clear
 * answer leaves a write in doubt, and nothing is sent twice.
 */
#include "fakes/listens.h"
#include "fakes/said.h"
#include "grpcsay.h"
#include "os.h"
#include "test.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

/* A reply's header: revision 7, term 2. There is no row; the transaction succeeded. */
#define HEADER 0x0a, 0x04, 0x18, 0x07, 0x20, 0x02
static const unsigned char none[] = {HEADER}, well[] = {HEADER, 0x10, 0x01};
#define NOON "Sat, 31 Jan 2026 12:00:00 GMT"
enum { NOON_S = 1769860800 };

static const hf_driver *driver;
static int port;
static hf_store *st;
static hf_row row;
static int64_t clock_us;

/* Opens the driver before a server that has only given good answers so far. */
static void opened(int64_t io_ms)
{
    grpcsay_date(NOON);
    grpcsay_anew(GRPC_WELL);
    say_message(none, sizeof none);
    said(said_opens(driver, "etcd://HOST/p/", port, io_ms, &st), 0, NULL);
}

static void closed(void)
{
    driver->close(st);
    listens_anew(st);
}
static int reads(void) { return driver->get(st, &key, &row, &clock_us, &err); }
static int writes(void) { return driver->replace(st, &key, 0, NULL, NULL, &clock_us, &err); }

/* ---- what it says ---- */

static void errors_mean_what_they_say(void **state)
{
    (void)state;
    static const struct {
        const char *status, *message;
        int code; /* 0: ambiguous */
        const char *text;
    } cases[] = {
        {"7", "etcdserver: permission denied", HF_DENIED, "': etcdserver: permission denied"},
        {"7", "etcdserver%3A%20permission%20denied", HF_DENIED, "': etcdserver: permission denied"},
        {"7", "", HF_DENIED, "gRPC's status 7"},
        {"16", "etcdserver: invalid auth token", HF_DENIED, "invalid auth token"},
        {"16", "", HF_DENIED, "gRPC's status 16"},
        {"12", "unknown service etcdserverpb.KV", HF_UNSUPPORTED, "unknown service"},
        {"8", "etcdserver: mvcc: database space exceeded", HF_UNKNOWN, NULL}, /* see replace.c */
        {"3", "etcdserver: request is too large", HF_UNKNOWN, NULL},
        {"14", "etcdserver: leader changed", 0, "leader changed"},
        {"14", "etcdserver: request timed out", 0, "request timed out"},
        {"9", "etcdserver: not capable", HF_UNAVAILABLE, "not capable"},
        {"14", "etcdserver: rpc not supported for learner", HF_UNAVAILABLE, "learner"},
        {"2", "no permission denied, too many requests", 0, "too many"},
        {"2", "100%25 %e2%82%ac %C3%A4", 0, "': 100% \xe2\x82\xac \xc3\xa4"},
        {"2", "%2 %zz %", 0, "': %2 %zz %"},
        {"2", "one%0Atwo%00three", 0, "': one two"},
        {"2", "not %ff UTF-8", 0, "an answer that isn't etcd's"},
        {"0x", "", 0, "its answer broke off"},
        {"", "", 0, "its answer broke off"},
        {"4000", "", 0, "its answer broke off"},
    };
    opened(60000);
    for (size_t i = 0; i < COUNT(cases); i++) {
        grpcsay_anew(GRPC_WELL);
        say_status(cases[i].status, cases[i].message);
        int doubt = !cases[i].code;
        if (cases[i].text) said(reads(), doubt ? HF_UNAVAILABLE : cases[i].code, cases[i].text);
        said(writes(), doubt ? HF_UNKNOWN : cases[i].code, cases[i].text);
    }
    closed();
}

/* Answers that a proxy may give without any gRPC. */
static void other_servers_are_told(void **state)
{
    (void)state;
    static const struct {
        const char *status;
        int code;
    } cases[] = {{"403", HF_DENIED}, {"404", HF_UNSUPPORTED}, {"503", 0}, {"x", 0}};
    opened(60000);
    for (size_t i = 0; i < COUNT(cases); i++) {
        const char *const all[] = {":status", cases[i].status, NULL};
        grpcsay_anew(GRPC_WELL);
        say_headers(1, all);
        int doubt = !cases[i].code;
        said(reads(), doubt ? HF_UNAVAILABLE : cases[i].code, NULL);
        said(writes(), doubt ? HF_UNKNOWN : cases[i].code, NULL);
    }
    closed();
}

/* ---- answers that aren't whole ---- */

static const char *const good[] = {":status", "200", "content-type", "application/grpc", NULL};
static const char *const fine[] = {"grpc-status", "0", NULL};

static void framed(const char *bytes, size_t len)
{
    say_headers(0, good);
    say_data(0, bytes, len);
    say_headers(1, fine);
}

static void no_trailers(void)
{
    say_headers(0, good);
    say_data(1, "\0\0\0\0\0", 5);
}
static void no_message(void) { say_status("0", ""); }
static void cut_in_its_head(void) { framed("\0\0\0", 3); }
static void shorter_than_it_says(void) { framed("\0\0\0\0\6\x0a\x04", 7); }
static void longer_than_it_says(void) { framed("\0\0\0\0\2\x0a\0\x10\1", 9); }
static void two_messages(void) { framed("\0\0\0\0\2\x0a\0\0\0\0\0\2\x0a\0", 14); }
static void compressed(void) { framed("\1\0\0\0\2\x0a\0", 7); }
static void huge(void) { framed("\0\xff\xff\xff\xff\x0a\0", 7); }
static void no_protobuf(void) { framed("\0\0\0\0\3\x0a\x09\x18", 8); }
static void without_header(void) { framed("\0\0\0\0\0", 5); }
static void reset(void) { say_frame(FRAME_RST, 0, 1, "\0\0\0\2", 4); }
static void refused(void) { say_frame(FRAME_RST, 0, 1, "\0\0\0\7", 4); }
static void reset_in_it(void)
{
    say_headers(0, good);
    say_data(0, "\0\0\0\0\2\x0a\0", 7);
    reset();
}
static void going_away(void) { say_frame(FRAME_GOAWAY, 0, 0, "\0\0\0\0\0\0\0\0", 8); }
static void going_away_in_anger(void) { say_frame(FRAME_GOAWAY, 0, 0, "\0\0\0\0\0\0\0\2", 8); }
static void gone(void) { say_close(); }
static void gone_in_a_frame(void)
{
    say_message(well, sizeof well);
    say_less(4);
    say_close();
}
static void gone_before_its_end(void)
{
    say_headers(0, good);
    say_data(0, "\0\0\0\0\2\x0a\0", 7);
    say_close();
}
static void no_http2(void) { say_frame(1, 4, 1, "\xff\xff\xff\xff\xff\xff\xff", 7); }

static const struct {
    const char *name;
    void (*says)(void);
} doubts[] = {
    {"no trailers", no_trailers},
    {"no message", no_message},
    {"cut in its head", cut_in_its_head},
    {"shorter than it says", shorter_than_it_says},
    {"longer than it says", longer_than_it_says},
    {"two messages", two_messages},
    {"compressed", compressed},
    {"huge", huge},
    {"no protobuf", no_protobuf},
    {"without a header", without_header},
    {"reset", reset},
    {"refused", refused},
    {"reset in it", reset_in_it},
    {"going away", going_away},
    {"going away in anger", going_away_in_anger},
    {"gone", gone},
    {"gone in a frame", gone_in_a_frame},
    {"gone before its end", gone_before_its_end},
    {"no HTTP/2", no_http2},
};

static void what_is_not_whole_is_a_doubt(void **state)
{
    (void)state;
    opened(60000);
    for (size_t i = 0; i < COUNT(doubts); i++) {
        grpcsay_anew(GRPC_WELL);
        doubts[i].says();
        say_next();
        say_message(well, sizeof well);
        int rc = writes();
        if (rc != HF_UNKNOWN || grpcsay_requests() != 1)
            fail_msg("%s: %d, %s, %d requests", doubts[i].name, rc, err.text, grpcsay_requests());
        assert_true(strlen(err.text) > 10);
        /* After that the driver works again. */
        rc = writes();
        if (rc || grpcsay_requests() != 2)
            fail_msg("%s: then %d, %s", doubts[i].name, rc, err.text);
    }
    closed();
}

/* A read that goes on to another member goes there once. */
static void a_read_goes_on_elsewhere(void **state)
{
    (void)state;
    char form[100];
    snprintf(form, sizeof form, "etcd://HOST,127.0.0.1:%d/p/", port);
    grpcsay_date(NOON);
    grpcsay_anew(GRPC_WELL);
    say_message(none, sizeof none);
    said(said_opens(driver, form, port, 60000, &st), 0, NULL);
    for (size_t i = 0; i < COUNT(doubts); i++) {
        grpcsay_anew(GRPC_WELL);
        doubts[i].says();
        say_next();
        say_message(none, sizeof none);
        int rc = reads();
        if (rc || grpcsay_requests() != 2)
            fail_msg("%s: %d, %s, %d requests", doubts[i].name, rc, err.text, grpcsay_requests());
        grpcsay_anew(GRPC_WELL);
        doubts[i].says();
        assert_int_equal(writes(), HF_UNKNOWN);
        assert_int_equal(grpcsay_requests(), 1);
    }
    closed();
}

static void what_is_mute_takes_its_time(void **state)
{
    (void)state;
    opened(300);
    grpcsay_anew(GRPC_WELL); /* the server reads the request, and sends nothing */
    said(writes(), HF_UNKNOWN, "timed out");
    said(reads(), HF_UNAVAILABLE, "timed out");
    grpcsay_anew(GRPC_MUTE); /* nothing was sent to it */
    said(writes(), HF_UNAVAILABLE, "timed out");
    assert_int_equal(grpcsay_requests(), 0);
    closed();
}

/* ---- connections ---- */

static void who_goes_away_is_left(void **state)
{
    (void)state;
    opened(60000);
    for (int i = 0; i < 3; i++) { /* it goes away with its answer: one more connection each time */
        grpcsay_anew(GRPC_WELL);
        say_message(well, sizeof well);
        say_frame(FRAME_GOAWAY, 0, 0, "\x7f\xff\xff\xff\0\0\0\0", 8);
        if (i == 1) say_close();
        said(writes(), 0, NULL);
        said(writes(), 0, NULL);
        assert_int_equal(grpcsay_requests(), 2);
        assert_int_equal(grpcsay_connections(), 1 + (i > 0));
    }
    grpcsay_anew(GRPC_WELL); /* pings come in between */
    say_frame(FRAME_PING, 0, 0, "12345678", 8);
    say_message(well, sizeof well);
    for (int i = 0; i < 5; i++) said(writes(), 0, NULL);
    assert_int_equal(grpcsay_requests(), 5);
    assert_int_equal(grpcsay_connections(), 1);
    closed();
}

static void http1_alone_is_told(void **state)
{
    (void)state;
    static const enum grpcsay ways[] = {GRPC_HTTP1, GRPC_GONE};
    for (size_t i = 0; i < COUNT(ways); i++) {
        int code = ways[i] == GRPC_HTTP1 ? HF_UNSUPPORTED : HF_UNAVAILABLE;
        grpcsay_date(NOON);
        grpcsay_anew(ways[i]);
        said(said_opens(driver, "etcd://HOST/p/", port, 60000, &st), code, "HTTP/2");
        opened(60000);
        closed();
        opened(60000);
        grpcsay_anew(GRPC_WELL);
        gone();
        assert_int_equal(writes(), HF_UNKNOWN);
        grpcsay_anew(ways[i]); /* nothing of a write has been sent */
        said(writes(), HF_UNAVAILABLE, "HTTP/2");
        closed();
    }
}

/* ---- watches ---- */

/* The watches are created; an event of our key comes in several pieces. */
static const char created[] = "\0\0\0\0\x08\x0a\x04\x18\x07\x20\x02\x18\x01";
static const char told[] = "\0\0\0\0\x0c\x5a\x0a\x12\x08\x0a\x04/p/k\x18\x09";

static void told_in_pieces(void)
{
    for (size_t i = 0; i + 1 < sizeof told; i++) say_data(0, told + i, 1);
}
static void compressed_piece(void) { say_data(0, "\1\0\0\0\2\x0a\0", 7); }
static void damaged_piece(void) { say_data(0, "\0\0\0\0\3\x0a\x09\x18", 8); }
static void canceled(void) { say_data(0, "\0\0\0\0\2\x20\x01", 7); }
static void its_end(void) { say_headers(1, fine); }
static void other_than_http2(void) { say_frame(1, 4, 1, "\xff\xff\xff\xff\xff\xff", 6); }

static void what_is_heard_wakes(void **state)
{
    (void)state;
    static const struct {
        void (*says)(void);
        int code;
    } cases[] = {{told_in_pieces, 0},
                 {compressed_piece, HF_UNAVAILABLE},
                 {damaged_piece, HF_UNAVAILABLE},
                 {canceled, HF_UNAVAILABLE},
                 {its_end, HF_UNAVAILABLE},
                 {reset, HF_UNAVAILABLE},
                 {going_away, HF_UNAVAILABLE},
                 {other_than_http2, HF_UNAVAILABLE},
                 {gone, HF_UNAVAILABLE}};
    const hf_rowkey *keys[] = {&key};
    for (size_t n = 0; n < 2 * COUNT(cases); n++) {
        size_t i = n / 2;
        hf_event_count since;
        opened(60000);
        grpcsay_anew(GRPC_WELL);
        say_headers(0, good);
        say_data(0, created, sizeof created - 1);
        say_later();
        cases[i].says();
        int64_t until_us = hf__local_us() + 60000000;
        said(listen_for(driver, st, keys, 1, &since, &err), 0, NULL);
        grpcsay_go_on();
        /* A call of payload may read what came before the watch: the watch reports it all the same,
           and disconnects. */
        for (int ms = 0; n % 2 && ms < 100; ms++) {
            (void)driver->caps.notify->payload(st, &key, &row);
            poll(NULL, 0, 1);
        }
        int rc = driver->caps.notify->sleep(st, &since, until_us, &err);
        if (rc != cases[i].code) fail_msg("%zu: %d, %s", i, rc, err.text);
        assert_true(hf__local_us() < until_us);
        assert_int_equal(grpcsay_requests(), 1);
        closed();
    }
    /* An answer that isn't a stream of watches ends the watch. */
    hf_event_count since;
    opened(60000);
    grpcsay_anew(GRPC_WELL);
    say_status("7", "etcdserver: permission denied");
    said(listen_for(driver, st, keys, 1, &since, &err), HF_UNAVAILABLE, "no watch");
    closed();
    opened(300);
    grpcsay_anew(GRPC_MUTE);
    gone();
    (void)reads();
    said(listen_for(driver, st, keys, 1, &since, &err), HF_UNAVAILABLE, "no watch");
    closed();
}

/* ---- the date ---- */

static void the_date_is_asked_for(void **state)
{
    (void)state;
    grpcsay_anew(GRPC_WELL);
    grpcsay_date(NULL);
    say_message(none, sizeof none);
    said(said_opens(driver, "etcd://HOST/p/", port, 60000, &st), HF_UNAVAILABLE, "no date");
    assert_int_equal(grpcsay_connections(), 0);
    said(said_opens(driver, "etcd://127.0.0.1:1", port, 60000, &st), HF_UNAVAILABLE,
         "etcd: connect '127.0.0.1:1': Connection refused");
    grpcsay_date("yesterday");
    said(said_opens(driver, "etcd://HOST/p/", port, 60000, &st), HF_UNAVAILABLE, "no date");
    grpcsay_anew(GRPC_OTHER);
    said(said_opens(driver, "etcd://HOST/p/", port, 60000, &st), HF_UNAVAILABLE,
         "what answers there doesn't speak HTTP/1.1; the address for gRPC has to serve HTTP/1.1");
    opened(60000);
    assert_int_equal(grpcsay_dates(), 1);
    grpcsay_date(NULL);
    int64_t last_us = 0, from_us = hf__local_us();
    for (int i = 0; i < 500; i++) {
        said(reads(), 0, NULL);
        assert_true(clock_us >= last_us);
        last_us = clock_us;
    }
    int64_t took_us = hf__local_us() - from_us, s = (int64_t)NOON_S * 1000000;
    assert_true(last_us >= s + 7 * 16 && last_us <= s + took_us + 2000000);
    assert_true(grpcsay_dates() <= 1 + (int)(took_us / 300000) + 1);
    closed();
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_mean_what_they_say),    cmocka_unit_test(other_servers_are_told),
        cmocka_unit_test(what_is_not_whole_is_a_doubt), cmocka_unit_test(a_read_goes_on_elsewhere),
        cmocka_unit_test(what_is_mute_takes_its_time),  cmocka_unit_test(who_goes_away_is_left),
        cmocka_unit_test(http1_alone_is_told),          cmocka_unit_test(what_is_heard_wakes),
        cmocka_unit_test(the_date_is_asked_for),
    };
    hf_row_init(&row);
    port = grpcsay_begin();
    driver = hf__driver("etcd", &err);
    if (driver && !hf_key_make("k", &key, &err)) return TEST_MAIN(tests);
    printf("Bail out! %s\n", err.text);
    return 1;
}
