/*
 * kit_dial.c - several servers and addresses under one deadline.
 *
 * A deadline is a minute where the call has to succeed: a call that spends it on one address hangs
 * visibly. It is short where the call has to fail.
 */
#include "holdfast_driver.h"
#include "kit/dial.h"
#include "kit_net.h"
#include "os.h"
#include "scratch.h"
#include "test.h"

#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static const int64_t LATE = 60000, SOON = 700; /* ms */

static struct hf__dial *d;
static struct hf__attempt *a;
static char why[1000];
static char port[8];

static void begin(const char *const *hosts, size_t n, int number)
{
    struct hf__dial_target target[HF_DIAL_TARGETS];
    snprintf(port, sizeof port, "%d", number);
    for (size_t i = 0; i < n; i++) target[i] = (struct hf__dial_target){hosts[i], port};
    assert_int_equal(hf__dial_begin(target, n, NULL, NULL, &d), 0);
}
#define BEGIN(number, ...)                              \
    do {                                                \
        static const char *const all[] = {__VA_ARGS__}; \
        begin(all, sizeof all / sizeof *all, number);   \
    } while (0)

static int next(int64_t ms)
{
    int rc = hf__dial_next(d, kit_in_ms(ms), &a);
    hf__dial_why(d, why, sizeof why);
    return rc;
}

/* The next one is that address, and really connected to it. */
static void reaches(int listener, const char *address)
{
    char text[HF_ENDPOINT_TEXT];
    int rc = next(LATE);
    if (rc) print_error("%s\n", why);
    assert_int_equal(rc, 0);
    hf__endpoint_text(&a->at, text);
    assert_string_equal(text, address);
    int fd = hf__dial_take(a), other = accept(listener, NULL, NULL), no_delay = 0;
    socklen_t size = sizeof no_delay;
    assert_true(fd > 2 && other >= 0);
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    assert_true(fcntl(fd, F_GETFL) & O_NONBLOCK);
    if (a->at.to.any.sa_family != AF_UNIX) {
        assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &no_delay, &size), 0);
        assert_true(no_delay);
    }
    assert_int_equal(send(fd, "x", 1, MSG_NOSIGNAL), 1);
    assert_int_equal(recv(other, text, 1, 0), 1);
    close(fd);
    close(other);
}

static void a_silent_address_does_not_take_the_time_of_the_next(void **state)
{
    int number = 0, filler, before = kit_descriptors();
    (void)state;
    int dead = kit_silent(2, &number, &filler), alive = kit_listen(3, &number);
    BEGIN(number, "127.0.0.2", "127.0.0.3");
    reaches(alive, "127.0.0.3");
    hf__dial_end(d);
    BEGIN(number, "2-3"); /* one name */
    reaches(alive, "127.0.0.3");
    hf__dial_end(d);
    close(dead);
    close(filler);
    close(alive);
    assert_int_equal(kit_descriptors(), before); /* the losers are closed */
}

static void one_that_refuses_is_followed_at_once(void **state)
{
    int number = 0, refuses[HF_ENDPOINTS - 1];
    (void)state;
    int alive = kit_listen(9, &number);
    for (int i = 1; i < 9; i++) refuses[i] = kit_refusing(i, &number);
    BEGIN(number, "1-2-3-4", "5-6-7-8-9");
    reaches(alive, "127.0.0.9");
    assert_int_equal(a->target, 1);
    hf__dial_end(d);
    for (int i = 1; i < 9; i++) close(refuses[i]);
    close(alive);
}

static void the_order_is_kept(void **state)
{
    int number = 0, first = kit_listen(4, &number), second = kit_listen(5, &number);
    (void)state;
    BEGIN(number, "at-4", "at-5");
    reaches(first, "127.0.0.4");
    hf__dial_end(d);
    BEGIN(number, "5-4");
    reaches(second, "127.0.0.5");
    hf__dial_end(d);
    close(first);
    close(second);
}

static void a_mute_name_server_does_not_take_the_time_of_the_next(void **state)
{
    int number = 0, alive = kit_listen(3, &number);
    (void)state;
    kit_names_mute();
    BEGIN(number, "mute", "127.0.0.3");
    reaches(alive, "127.0.0.3");
    hf__dial_end(d);
    kit_names_answer();
    close(alive);
}

/* The server accepts, and then sends nothing; the caller spends a part of the time on it. */
static void a_mute_server_leaves_time_for_the_next(void **state)
{
    int number = 0, mute = kit_listen(2, &number), alive = kit_listen(3, &number);
    (void)state;
    BEGIN(number, "2-3");
    int64_t until_us = kit_in_ms(LATE);
    reaches(mute, "127.0.0.2");
    int64_t share_us = hf__dial_share(d, until_us);
    assert_true(share_us <= until_us - LATE * 1000 / 4 && share_us > hf__local_us());
    hf__dial_fail(d, a, HF_UNAVAILABLE, "no answer in time");
    reaches(alive, "127.0.0.3");
    assert_true(hf__dial_share(d, until_us) == until_us); /* the last one has all of the rest */
    hf__dial_fail(d, a, HF_UNAVAILABLE, "LOADING");
    assert_int_equal(next(LATE), HF_UNAVAILABLE);
    char wanted[200];
    snprintf(wanted, sizeof wanted,
             "'2-3:%d' (127.0.0.2): no answer in time; '2-3:%d' (127.0.0.3): LOADING", number,
             number);
    assert_string_equal(why, wanted);
    hf__dial_end(d);
    close(mute);
    close(alive);
}

static void what_was_tried_is_told(void **state)
{
    char wanted[300];
    int number = 0, filler, dead = kit_silent(2, &number, &filler), no = kit_refusing(3, &number);
    (void)state;
    kit_names_mute();
    BEGIN(number, "127.0.0.2", "at-3", "none", "mute");
    assert_int_equal(next(SOON), HF_UNAVAILABLE);
    snprintf(wanted, sizeof wanted,
             "'127.0.0.2:%d': no answer in time; 'at-3:%d' (127.0.0.3): Connection refused; "
             "'none:%d': Name or service not known; 'mute:%d': the name servers don't answer in "
             "time",
             number, number, number, number);
    assert_string_equal(why, wanted);
    hf__dial_why(d, why, 80);
    assert_non_null(strstr(why, "; 3 more"));
    hf__dial_end(d);
    BEGIN(number, "::1");
    assert_int_equal(next(SOON), HF_UNAVAILABLE);
    snprintf(wanted, sizeof wanted, "'[::1]:%d': ", number);
    assert_ptr_equal(strstr(why, wanted), why);
    hf__dial_end(d);
    kit_names_answer();
    close(dead);
    close(filler);
    close(no);
}

static int codes(int first, int second)
{
    int number = 0, one = kit_listen(2, &number), two = kit_listen(3, &number);
    BEGIN(number, "2-3");
    reaches(one, "127.0.0.2");
    hf__dial_fail(d, a, first, "first");
    reaches(two, "127.0.0.3");
    hf__dial_fail(d, a, second, "second");
    int rc = next(LATE);
    hf__dial_end(d);
    close(one);
    close(two);
    return rc;
}

static void the_code_is_the_one_that_waiting_does_not_mend(void **state)
{
    (void)state;
    assert_int_equal(codes(HF_UNAVAILABLE, HF_UNAVAILABLE), HF_UNAVAILABLE);
    assert_int_equal(codes(HF_UNAVAILABLE, HF_DENIED), HF_DENIED);
    assert_int_equal(codes(HF_DENIED, HF_INVALID), HF_DENIED);
    assert_int_equal(codes(HF_UNSUPPORTED, HF_UNSUPPORTED), HF_UNSUPPORTED);
    /* The server that isn't there may be the one that can be written to. */
    assert_int_equal(codes(HF_UNSUPPORTED, HF_UNAVAILABLE), HF_UNAVAILABLE);
}

static void a_unix_socket_is_an_address(void **state)
{
    struct hf__endpoint e;
    char path[300];
    (void)state;
    snprintf(path, sizeof path, "%s/socket", scratch_dir);
    assert_int_equal(hf__endpoint_local(&e, path), 0);
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listener, &e.to.any, e.len), 0);
    assert_int_equal(listen(listener, 1), 0);
    const char *const hosts[] = {path};
    begin(hosts, 1, 0);
    reaches(listener, path);
    hf__dial_end(d);
    close(listener);
    begin(hosts, 1, 0);
    char wanted[400];
    assert_int_equal(next(LATE), HF_UNAVAILABLE);
    snprintf(wanted, sizeof wanted, "'%s': Connection refused", path);
    assert_string_equal(why, wanted);
    hf__dial_end(d);
}

/* The thread sanitizer lets a child of fork start threads, where a lookup still runs here. */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void) { return "die_after_fork=0"; }

static void descriptors_0_1_and_2_stay_closed(void **state)
{
    int number = 0, alive = kit_listen(3, &number), status;
    (void)state;
    fflush(NULL);
    pid_t child = fork();
    if (!child) {
        for (int i = 0; i < 3; i++) close(i);
        BEGIN(number, "at-3");
        int rc = hf__dial_next(d, kit_in_ms(LATE), &a), fd = rc ? -1 : hf__dial_take(a), low = 0;
        for (int i = 0; i < 3; i++) low |= fcntl(i, F_GETFD) >= 0;
        _exit(rc ? 1 : fd <= 2 ? 2 : low ? 3 : kit_names_opened_low() ? 4 : 0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    close(alive);
}

/* ---- a library that connects by itself ---- */

static int started, stopped;

/* 127.0.0.2 is accepted and then mute; 127.0.0.3 is ready by its third step. */
static enum hf__attempt_state lib_start(void *arg, struct hf__attempt *at)
{
    (void)arg;
    started++;
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    int *own = calloc(2, sizeof *own);
    assert_non_null(own);
    own[0] = pair[1];
    at->own = own;
    at->fd = pair[0];
    at->events = POLLOUT;
    return HF_ATTEMPT_RUNS;
}

static enum hf__attempt_state lib_step(void *arg, struct hf__attempt *at)
{
    int *own = at->own;
    (void)arg;
    own[1]++;
    if (at->target == 0) at->events = POLLIN;
    if (at->target == 1 && own[1] == 3) return HF_ATTEMPT_READY;
    return HF_ATTEMPT_LINKED;
}

static void lib_stop(void *arg, struct hf__attempt *at)
{
    int *own = at->own;
    (void)arg;
    if (!own) return;
    stopped++;
    close(at->fd);
    close(own[0]);
    free(own);
}

static void a_library_that_logs_in_leaves_time_for_the_next(void **state)
{
    static const struct hf__dial_ops ops = {lib_start, lib_step, lib_stop};
    static const struct hf__dial_target targets[] = {{"127.0.0.2", "1"}, {"127.0.0.3", "1"}};
    int before = kit_descriptors();
    (void)state;
    assert_int_equal(hf__dial_begin(targets, 2, &ops, NULL, &d), 0);
    assert_int_equal(next(3000), 0); /* the first one gets half of the time */
    assert_int_equal(a->target, 1);
    assert_int_equal(started, 2);
    lib_stop(NULL, a);
    a->own = NULL;
    hf__dial_end(d);
    assert_int_equal(stopped, 2);
    assert_int_equal(kit_descriptors(), before);
}

static void no_server_and_too_many_are_told(void **state)
{
    struct hf__dial_target target[HF_DIAL_TARGETS + 1];
    static const size_t n[] = {0, HF_DIAL_TARGETS + 1};
    static const char *const text[] = {"x: connect: 0 servers are named; it can be 1 to 16",
                                       "x: connect: 17 servers are named; it can be 1 to 16"};
    hf_error err;
    (void)state;
    for (size_t i = 0; i <= HF_DIAL_TARGETS; i++)
        target[i] = (struct hf__dial_target){"127.0.0.1", "1"};
    for (size_t i = 0; i < 2; i++) {
        struct hf__connection to = {.store = "x", .targets = target, .n = n[i]};
        assert_int_equal(hf__connect(&to, kit_in_ms(SOON), &err), HF_INVALID);
        assert_string_equal(err.text, text[i]);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_silent_address_does_not_take_the_time_of_the_next),
        cmocka_unit_test(one_that_refuses_is_followed_at_once),
        cmocka_unit_test(the_order_is_kept),
        cmocka_unit_test(a_mute_name_server_does_not_take_the_time_of_the_next),
        cmocka_unit_test(a_mute_server_leaves_time_for_the_next),
        cmocka_unit_test(what_was_tried_is_told),
        cmocka_unit_test(the_code_is_the_one_that_waiting_does_not_mend),
        cmocka_unit_test(a_unix_socket_is_an_address),
        cmocka_unit_test(descriptors_0_1_and_2_stay_closed),
        cmocka_unit_test(no_server_and_too_many_are_told),
        cmocka_unit_test(a_library_that_logs_in_leaves_time_for_the_next),
    };
    if (!scratch("file:@")) return 1;
    return TEST_MAIN(tests);
}
