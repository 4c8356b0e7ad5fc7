/*
 * renew_again.c - a renewal that the store doesn't answer is sent again on another connection,
 * after a sixth of the lease.
 *
 *   tests/servers/NAME renew_again @
 *
 * Of one hold the second renewal hangs: see slow_net.h. Its connection is never answered again, but
 * stays open. What counts is when the next request comes on another connection, and that the hold
 * is renewed by it.
 */
#include "holdfast.h"
#include "network/front.h"
#include "network/slow_net.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LEASE_MS = 24000, DELAY_MS = 2 };

static const char *url;

static uint64_t renewals(hf *h)
{
    hf_stats now = {.size = sizeof now};
    assert_int_equal(hf_get_stats(h, &now), 0);
    assert_int_equal(now.lost, 0);
    return now.renewals;
}

static void it_is_sent_again_on_another_connection(void **state)
{
    static char server[600], front[900];
    char host[40];
    struct slow_net net = {.seed = 1};
    hf_error err = {0};
    hf *h;
    hf_lock *lock;
    hf_options o = HF_OPTIONS_INIT;
    hf_open_options how = HF_OPEN_OPTIONS_INIT;
    (void)state;
    how.io_timeout_ms = LEASE_MS; /* the limit of any request isn't what ends the attempt */
    o.wait_ms = 60000;
    o.lease_ms = LEASE_MS;
    assert_int_equal(front_url(url, server, sizeof server, front, sizeof front, 0), 0);
    assert_int_equal(slow_net_start(&net, server, DELAY_MS), 0);
    front_url(url, server, sizeof server, front, sizeof front, net.port);
    snprintf(host, sizeof host, "127.0.0.1:%d", net.port);
    if (!strncmp(url, "firestore:", 10)) setenv("FIRESTORE_EMULATOR_HOST", host, 1);
    assert_int_equal(hf_open(front, &how, &h, &err), 0);
    assert_int_equal(hf_acquire(h, "renew-again", &o, &lock, &err), 0);
    while (!renewals(h)) usleep(1000); /* this one may make the connection for renewals */
    slow_net_hang_once(&net);
    uint64_t before = renewals(h);
    while (!slow_net_hung(&net)) usleep(1000);
    assert_int_equal(renewals(h), before);
    while (renewals(h) == before) usleep(1000);
    int64_t again_ms = slow_net_again_ms(&net);
    print_message("# sent again after %lld ms\n", (long long)again_ms);
    /* The other sixth is for a machine that is busy. */
    assert_in_range(again_ms, LEASE_MS / 7, LEASE_MS / 3);
    assert_true(hf_left_ms(lock) > 0);
    assert_int_equal(hf_release(lock, &err), 0);
    hf_close(h);
    slow_net_end(&net);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_sent_again_on_another_connection),
    };
    if (argc < 2) return 1;
    url = argv[1];
    return TEST_MAIN(tests);
}
