/*
 * etcd_members.c - which of several members the driver etcd asks: names that no name server
 * answers, members that are mute or can't serve at the moment. Members and name server are part of
 * this program.
 */
#include "fakes/said.h"
#include "grpcsay.h"
#include "network/kit_net.h"
#include "os.h"
#include "test.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define HEADER 0x0a, 0x04, 0x18, 0x07, 0x20, 0x02
static const unsigned char none[] = {HEADER}, well[] = {HEADER, 0x10, 0x01};
#define NOON "Sat, 31 Jan 2026 12:00:00 GMT"
enum { LONG_MS = 60000 };

/* ---- the driver ---- */

static const hf_driver *driver;
static int port, mute_port;
static hf_store *st;
static hf_row row;
static int64_t clock_us;

static int reads(void) { return driver->get(st, &key, &row, &clock_us, &err); }
static int writes(void) { return driver->replace(st, &key, 0, NULL, NULL, &clock_us, &err); }

static int opens(int64_t io_ms, const char *form, ...) __attribute__((format(printf, 2, 3)));
static int opens(int64_t io_ms, const char *form, ...)
{
    char url[300];
    va_list args;
    va_start(args, form);
    vsnprintf(url, sizeof url, form, args);
    va_end(args);
    st = NULL;
    grpcsay_date(NOON);
    grpcsay_anew(GRPC_WELL);
    say_message(none, sizeof none);
    return said_opens(driver, url, 0, io_ms, &st);
}

static void a_name_that_no_server_answers(void **state)
{
    (void)state;
    said(opens(300, "etcd://mute:1/p/"), HF_UNAVAILABLE, NULL);
    assert_non_null(strstr(err.text, "etcd: "));
    /* Such a name doesn't take the others' time, whichever comes first. */
    said(opens(LONG_MS, "etcd://mute:1,127.0.0.1:%d/p/", port), 0, NULL);
    said(reads(), 0, NULL);
    driver->close(st);
    said(opens(LONG_MS, "etcd://127.0.0.1:%d,mute:1/p/", port), 0, NULL);
    driver->close(st);
}

static void each_address_of_a_name_is_tried(void **state)
{
    int filler, silent = kit_silent(2, &port, &filler), no = kit_refusing(3, &port);
    (void)state;
    said(opens(LONG_MS, "etcd://at-2-1:%d/p/", port), 0, NULL);
    said(reads(), 0, NULL);
    driver->close(st);
    said(opens(3000, "etcd://at-2-3:%d/p/", port), HF_UNAVAILABLE,
         "(127.0.0.2): no answer in time");
    said(HF_UNAVAILABLE, HF_UNAVAILABLE, "(127.0.0.3): ");
    close(silent);
    close(filler);
    close(no);
}

/* This member accepts connections, and sends nothing. */
static void members_that_are_mute_cost_a_part_of_the_time(void **state)
{
    (void)state;
    int64_t began_us = hf__local_us();
    said(opens(8000, "etcd://127.0.0.1:%d,127.0.0.1:%d/p/", mute_port, port), 0, NULL);
    assert_true(hf__local_us() - began_us < 7500000);
    driver->close(st);
}

/* This member has served before, and reads the request. A read is asked of the next member in
   time. */
static void a_member_that_turns_mute_leaves_time_for_the_next(void **state)
{
    (void)state;
    said(opens(8000, "etcd://127.0.0.1:%d,localhost:%d/p/", port, port), 0, NULL);
    said(reads(), 0, NULL);
    grpcsay_anew(GRPC_WELL);
    say_next();
    say_message(none, sizeof none);
    said(reads(), 0, NULL);
    assert_int_equal(grpcsay_requests(), 2);
    driver->close(st);
}

static void says(const char *status, const char *message, int to_a_write)
{
    grpcsay_anew(GRPC_WELL);
    say_status(status, message);
    say_next();
    say_message(well, to_a_write ? sizeof well : sizeof none);
    say_next();
    say_message(none, sizeof none);
}

static void who_cant_serve_is_left_for_another(void **state)
{
    (void)state;
    static const struct {
        const char *status, *message;
        int doubt; /* a write may have been done */
    } cases[] = {{"14", "etcdserver: no leader", 1},
                 {"14", "etcdserver: leader changed", 1},
                 {"14", "etcdserver: request timed out, possibly due to connection lost", 1},
                 {"14", "etcdserver: server stopped", 1},
                 {"14", "etcdserver: unhealthy cluster", 1},
                 {"9", "etcdserver: not capable", 0},
                 {"9", "etcdserver: rpc not supported for learner", 0},
                 {"8", "etcdserver: too many requests", 0}};
    said(opens(LONG_MS, "etcd://127.0.0.1:%d,localhost:%d/p/", port, port), 0, NULL);
    for (size_t i = 0; i < COUNT(cases); i++) {
        says(cases[i].status, cases[i].message, 0);
        int rc = reads();
        if (rc || grpcsay_requests() != 2) fail_msg("%s: %d, %s", cases[i].message, rc, err.text);
        says(cases[i].status, cases[i].message, !cases[i].doubt);
        said(writes(), cases[i].doubt ? HF_UNKNOWN : 0, NULL);
        assert_int_equal(grpcsay_requests(), cases[i].doubt ? 1 : 2);
        assert_int_equal(grpcsay_connections(), cases[i].doubt ? 0 : 1);
        said(reads(), 0, NULL); /* another member answers, in either case */
        assert_int_equal(grpcsay_connections(), 1);
    }
    /* An error that another member would give, too. */
    says("7", "etcdserver: permission denied", 0);
    said(reads(), HF_DENIED, NULL);
    assert_int_equal(grpcsay_requests(), 1);
    driver->close(st);
    /* There is no other one. */
    said(opens(LONG_MS, "etcd://127.0.0.1:%d/p/", port), 0, NULL);
    says("14", "etcdserver: no leader", 0);
    said(reads(), HF_UNAVAILABLE, "no leader");
    assert_int_equal(grpcsay_requests(), 1);
    driver->close(st);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_name_that_no_server_answers),
        cmocka_unit_test(each_address_of_a_name_is_tried),
        cmocka_unit_test(members_that_are_mute_cost_a_part_of_the_time),
        cmocka_unit_test(a_member_that_turns_mute_leaves_time_for_the_next),
        cmocka_unit_test(who_cant_serve_is_left_for_another),
    };
    hf_row_init(&row);
    port = grpcsay_begin();
    int mute_fd = said_listens(0, &mute_port);
    driver = hf__driver("etcd", &err);
    if (driver && mute_fd >= 0 && !hf_key_make("k", &key, &err)) return TEST_MAIN(tests);
    printf("Bail out! %s\n", err.text);
    return 1;
}
