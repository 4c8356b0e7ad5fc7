/*
 * mem_test.c - what is peculiar to mem:, the store in memory: names, forgotten rows, sessions,
 * wakeups, fork. What every store must do is in conform.
 */
#include "drivers.h"
#include "os.h"
#include "test.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const hf_driver *const d = &hf__mem_driver;

static hf_store *open_store(const char *text)
{
    hf_url url;
    hf_store *st = NULL;
    hf_error err = {0, 0, ""};
    assert_int_equal(hf_url_parse(text, &url, NULL), 0);
    if (d->open(&url, 1000, &st, &(hf_caps){0}, &err)) fail_msg("%s: %s", text, err.text);
    return st;
}

static hf_party party(uint64_t session, uint8_t n)
{
    hf_party p;
    memset(&p, 0, sizeof p);
    memset(p.id, n, 16);
    p.session = session;
    p.owner_len = 1;
    p.owner[0] = (char)('a' + n);
    p.claim_ms = 1000;
    return p;
}

static uint64_t session_of(hf_store *st)
{
    uint64_t s = 0;
    assert_int_equal(d->caps.liveness->session(st, &s, NULL), 0);
    return s;
}

/* Acquires and releases the key. Returns the token. */
static uint64_t pass(hf_store *st, const char *text)
{
    hf_rowkey key;
    hf_row row;
    int64_t clock;
    hf_party p = party(session_of(st), 1);
    assert_int_equal(hf_key_make(text, &key, NULL), 0);
    hf_row_init(&row);
    assert_int_equal(d->acquire(st, &key, &p, 0, &row, &clock, NULL), 0);
    uint64_t token = row.token, rev = row.rev;
    hf_row_clear(&row);
    row.rev = rev + 1;
    row.token = token;
    assert_int_equal(d->replace(st, &key, rev, &row, NULL, &clock, NULL), 0);
    return token;
}

static uint64_t rev_of(hf_store *st, const char *text)
{
    hf_rowkey key;
    hf_row row;
    int64_t clock;
    assert_int_equal(hf_key_make(text, &key, NULL), 0);
    hf_row_init(&row);
    assert_int_equal(d->get(st, &key, &row, &clock, NULL), 0);
    uint64_t rev = row.rev;
    hf_row_clear(&row);
    return rev;
}

static void a_name_is_one_store_another_name_another(void **state)
{
    (void)state;
    hf_store *a = open_store("mem:a"), *again = open_store("mem:a"), *b = open_store("mem:b"),
             *none = open_store("mem:");
    hf_rowkey key;
    hf_row row;
    int64_t clock;
    hf_party p = party(session_of(a), 1);
    assert_int_equal(hf_key_make("k", &key, NULL), 0);
    hf_row_init(&row);
    assert_int_equal(d->acquire(a, &key, &p, 0, &row, &clock, NULL), 0);
    assert_int_equal(rev_of(again, "k"), row.rev);
    assert_int_equal(rev_of(b, "k"), 0);
    assert_int_equal(rev_of(none, "k"), 0);
    hf_row_clear(&row);
    d->close(a);
    assert_int_not_equal(rev_of(again, "k"), 0);
    d->close(again);
    /* Freed with its last handle. */
    a = open_store("mem:a");
    assert_int_equal(rev_of(a, "k"), 0);
    d->close(a);
    d->close(b);
    d->close(none);
}

static void an_url_with_more_than_a_name_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"mem://a", "mem://u@/a", "mem:a?b=c", "mem://:1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        hf_url url;
        hf_store *st = NULL;
        hf_error err = {0, 0, ""};
        assert_int_equal(hf_url_parse(bad[i], &url, NULL), 0);
        assert_int_equal(d->open(&url, 1000, &st, &(hf_caps){0}, &err), HF_INVALID);
        assert_non_null(strstr(err.text, "write mem:"));
        assert_null(st);
    }
}

/* More grants than microseconds: the clock is no help, the floor must be. */
static void tokens_grow_although_free_rows_are_forgotten(void **state)
{
    (void)state;
    hf_store *st = open_store("mem:tokens");
    uint64_t last = 0;
    for (int i = 0; i < 200000; i++) {
        uint64_t token = pass(st, "k");
        if (token <= last)
            fail_msg("%llu after %llu", (unsigned long long)token, (unsigned long long)last);
        last = token;
    }
    assert_int_equal(rev_of(st, "k"), 0);
    /* Also after the store itself has been freed. */
    d->close(st);
    st = open_store("mem:tokens");
    assert_true(pass(st, "k") > last);
    d->close(st);
    assert_true(last < UINT64_C(1) << 53);
}

/* A new row below the floor is refused with a row that says where the floor is; from that it goes.
 */
static void a_replace_below_the_floor_learns_it(void **state)
{
    (void)state;
    hf_store *st = open_store("mem:floor");
    hf_rowkey key;
    hf_row row, cur;
    int64_t clock;
    hf_row_init(&row);
    hf_row_init(&cur);
    assert_int_equal(hf_key_make("k", &key, NULL), 0);
    uint64_t token = pass(st, "k");
    row.rev = row.token = token;
    row.n_holders = 1;
    row.party[0] = party(session_of(st), 3);
    row.party[0].token = token;
    assert_int_equal(d->replace(st, &key, 0, &row, &cur, &clock, NULL), HF_CONFLICT);
    assert_true(cur.rev > token);
    assert_int_equal(cur.n_holders + cur.n_queue, 0);
    row.rev = row.token = row.party[0].token = cur.rev + 1;
    assert_int_equal(d->replace(st, &key, cur.rev, &row, &cur, &clock, NULL), 0);
    /* After a deletion, a client that has seen the row must not be able to replace it. */
    assert_int_equal(d->replace(st, &key, row.rev, NULL, &cur, &clock, NULL), 0);
    assert_int_equal(d->replace(st, &key, row.rev, &row, &cur, &clock, NULL), HF_CONFLICT);
    assert_int_equal(cur.rev, 0);
    assert_int_equal(d->replace(st, &key, 0, &row, &cur, &clock, NULL), HF_CONFLICT);
    assert_true(cur.rev > row.rev);
    hf_row_clear(&row);
    hf_row_clear(&cur);
    d->close(st);
}

static void idle_keys_leave_nothing_behind(void **state)
{
    (void)state;
    hf_store *st = open_store("mem:idle");
    for (int i = 0; i < 20000; i++) {
        char text[HF_KEY_CAP];
        snprintf(text, sizeof text, "%0*d", 1 + i % (HF_KEY_CAP - 1), i);
        if (strlen(text) < HF_KEY_CAP) pass(st, text);
    }
    hf_rowkey key;
    hf_row row;
    int64_t clock;
    hf_row_init(&row);
    assert_int_equal(hf_key_make("1", &key, NULL), 0);
    for (int i = 0; i < 20000; i++) {
        char text[16];
        hf_party p = party(session_of(st), 1);
        snprintf(text, sizeof text, "held/%d", i);
        assert_int_equal(hf_key_make(text, &key, NULL), 0);
        assert_int_equal(d->acquire(st, &key, &p, 0, &row, &clock, NULL), 0);
    }
    for (int i = 0; i < 20000; i++) {
        char text[16];
        snprintf(text, sizeof text, "held/%d", i);
        assert_int_equal(hf_key_make(text, &key, NULL), 0);
        assert_int_equal(d->get(st, &key, &row, &clock, NULL), 0);
        assert_int_equal(d->replace(st, &key, row.rev, NULL, NULL, &clock, NULL), 0);
        assert_int_equal(rev_of(st, text), 0);
    }
    hf_row_clear(&row);
    d->close(st);
}

static void a_session_dies_with_its_handle_and_its_death_is_told(void **state)
{
    (void)state;
    hf_store *a = open_store("mem:s"), *b = open_store("mem:s");
    uint64_t sa = session_of(a), sb = session_of(b);
    assert_int_not_equal(sa, 0);
    assert_int_not_equal(sa, sb);
    assert_int_equal(d->caps.liveness->alive(a, sb, NULL), 1);
    assert_int_equal(d->caps.liveness->alive(a, sb + (1 << 20), NULL), 0);
    struct pollfd fd = {d->caps.liveness->death_fd(a), POLLIN, 0};
    assert_true(fd.fd >= 0);
    assert_int_equal(d->caps.liveness->death_fd(a), fd.fd);
    assert_int_equal(poll(&fd, 1, 0), 0);
    d->close(b);
    assert_int_equal(poll(&fd, 1, 0), 1);
    d->caps.liveness->death_read(a);
    assert_int_equal(poll(&fd, 1, 0), 0);
    assert_int_equal(d->caps.liveness->alive(a, sb, NULL), 0);
    assert_int_equal(d->caps.liveness->alive(a, sa, NULL), 1);
    b = open_store("mem:s");
    assert_int_not_equal(session_of(b), sb);
    assert_int_equal(d->caps.liveness->alive(a, sb, NULL), 0);
    d->close(a);
    d->close(b);
}

/* Does the watch end long before its time? Where it shouldn't, its time is short. */
static int watched(hf_store *st, uint8_t wakeup, const hf_event_count *since, int64_t most_us)
{
    int64_t start = hf__local_us();
    assert_int_equal(d->caps.local->sleep(st, wakeup, since, start + most_us, NULL), 0);
    return hf__local_us() - start < most_us;
}
static int owed(hf_store *st, uint8_t wakeup, const hf_event_count *since)
{
    return watched(st, wakeup, since, 100000000);
}
static int silent(hf_store *st, uint8_t wakeup, const hf_event_count *since)
{
    return !watched(st, wakeup, since, 20000);
}

/* 40 waiters on several wakeups of two handles are let in at once; each wakeup rings, no other. */
static void who_waited_and_holds_is_rung(void **state)
{
    (void)state;
    hf_store *a = open_store("mem:wakeups"), *b = open_store("mem:wakeups");
    hf_rowkey key;
    hf_row row;
    int64_t clock;
    hf_event_count since[3], since_b;
    hf_row_init(&row);
    assert_int_equal(hf_row_room(&row, 41), 0);
    assert_int_equal(hf_key_make("k", &key, NULL), 0);
    row.rev = row.token = pass(a, "k") + 2; /* above the floor */
    row.n_holders = 1;
    row.n_queue = 40;
    for (uint8_t i = 0; i < 41; i++) {
        row.party[i] = party(session_of(i % 4 ? a : b), i);
        row.party[i].wakeup = i % 4 ? i % 2 : 255;
    }
    row.party[0].token = row.token;
    assert_int_equal(d->replace(a, &key, 0, &row, NULL, &clock, NULL), 0);
    for (uint8_t i = 0; i < 3; i++) d->caps.local->wakeup_begin(a, i, 0, &since[i], NULL);
    d->caps.local->wakeup_begin(b, 255, 0, &since_b, NULL);
    row.rev++;
    assert_int_equal(d->replace(a, &key, row.rev - 1, &row, NULL, &clock, NULL), 0);
    assert_true(silent(a, 1, &since[1])); /* nobody was let in */
    row.rev += 40;
    row.token = row.rev;
    row.n_holders = 40;
    row.n_queue = 0;
    for (uint8_t i = 0; i < 40; i++) {
        row.party[i] = row.party[i + 1];
        row.party[i].token = row.rev;
    }
    assert_int_equal(d->replace(b, &key, row.rev - 40, &row, NULL, &clock, NULL), 0);
    assert_true(owed(a, 0, &since[0]));
    assert_true(owed(a, 1, &since[1]));
    assert_true(silent(a, 2, &since[2]));
    assert_true(owed(b, 255, &since_b));
    hf_row_clear(&row);
    d->close(a);
    d->close(b);
}

static void an_interrupt_ends_this_watch_or_the_next(void **state)
{
    (void)state;
    hf_store *st = open_store("mem:");
    hf_event_count since;
    d->caps.local->interrupt(st, 5);
    d->caps.local->wakeup_begin(st, 5, 0, &since, NULL);
    assert_true(owed(st, 5, &since));
    assert_true(silent(st, 5, &since));
    d->caps.local->interrupt(st, 5);
    assert_true(owed(st, 5, &since));
    d->close(st);
}

static void the_clock_is_about_the_time_of_day(void **state)
{
    (void)state;
    hf_store *st = open_store("mem:");
    int64_t last = d->caps.local->now(st);
    assert_true(llabs(last - hf__day_us()) < 60 * 1000000);
    for (int i = 0; i < 100000; i++) {
        int64_t now = d->caps.local->now(st);
        assert_true(now >= last);
        last = now;
        int64_t before = hf__local_us(), rough = hf__local_rough_us();
        assert_true(rough <= hf__local_us());
        assert_true(rough > before - 100000);
    }
    d->close(st);
}

static int forking_over;

static void *open_and_close(void *arg)
{
    (void)arg;
    while (!__atomic_load_n(&forking_over, __ATOMIC_RELAXED)) d->close(open_store("mem:busy"));
    return NULL;
}

/* Whatever the parent's threads were doing, the child opens a store of its own, and may close what
   it inherited. */
static void a_forked_child_can_open_its_own(void **state)
{
    (void)state;
    hf_store *st = open_store("mem:parents");
    pthread_t thread;
    pass(st, "k");
    assert_int_equal(pthread_create(&thread, NULL, open_and_close, NULL), 0);
    for (int i = 0; i < 50; i++) {
        pid_t pid = fork();
        if (!pid) {
            alarm(10);
            hf_store *own = open_store("mem:busy");
            int wrong = rev_of(own, "k") != 0 || !pass(own, "k");
            d->close(own);
            d->close(st);
            _exit(wrong);
        }
        int status = -1;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
    }
    __atomic_store_n(&forking_over, 1, __ATOMIC_RELAXED);
    pthread_join(thread, NULL);
    assert_true(pass(st, "k") > 0);
    d->close(st);
}

struct scanner {
    hf_store *st;
    int seen;
};

static int see_and_delete(void *arg, const hf_rowkey *key, hf_row *row)
{
    struct scanner *s = arg;
    int64_t clock;
    s->seen++;
    return d->replace(s->st, key, row->rev, NULL, NULL, &clock, NULL);
}

static void a_scan_may_delete_what_it_sees(void **state)
{
    (void)state;
    struct scanner s = {open_store("mem:scan"), 0};
    hf_row row;
    int64_t clock;
    hf_row_init(&row);
    for (int i = 0; i < 3000; i++) {
        char text[16];
        hf_rowkey key;
        hf_party p = party(session_of(s.st), 1);
        snprintf(text, sizeof text, "k/%d", i);
        assert_int_equal(hf_key_make(text, &key, NULL), 0);
        assert_int_equal(d->acquire(s.st, &key, &p, 0, &row, &clock, NULL), 0);
    }
    assert_int_equal(d->scan(s.st, "k/", see_and_delete, &s, &clock, NULL), 0);
    assert_int_equal(s.seen, 3000);
    assert_int_equal(d->scan(s.st, "", see_and_delete, &s, &clock, NULL), 0);
    assert_int_equal(s.seen, 3000);
    hf_row_clear(&row);
    d->close(s.st);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_name_is_one_store_another_name_another),
        cmocka_unit_test(an_url_with_more_than_a_name_is_refused),
        cmocka_unit_test(tokens_grow_although_free_rows_are_forgotten),
        cmocka_unit_test(a_replace_below_the_floor_learns_it),
        cmocka_unit_test(idle_keys_leave_nothing_behind),
        cmocka_unit_test(a_session_dies_with_its_handle_and_its_death_is_told),
        cmocka_unit_test(who_waited_and_holds_is_rung),
        cmocka_unit_test(an_interrupt_ends_this_watch_or_the_next),
        cmocka_unit_test(the_clock_is_about_the_time_of_day),
        cmocka_unit_test(a_forked_child_can_open_its_own),
        cmocka_unit_test(a_scan_may_delete_what_it_sees),
    };
    return TEST_MAIN(tests);
}
