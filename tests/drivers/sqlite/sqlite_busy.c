/*
 * sqlite_busy.c - how often the driver sqlite asks again while another client has the database
 * locked, and how often a waiter looks whether the database has changed.
 *
 * This program defines the functions by which a thread sleeps, and the clock. A sleep moves the
 * clock, and ends at once; after so many sleeps the other client's transaction ends.
 */
#undef _FORTIFY_SOURCE
#include "sqlite/store.h"
#include "sqlite_own.h"
#include "test.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { SLEEPS = 40, SOON_US = 2000, SELDOM_US = 16000 };

static int sleeps;                  /* so far */
static int64_t slept_us[SLEEPS];    /* how long each was to be */
static hf_row row;                  /* as it is stored */
static const char *then = "COMMIT"; /* what the other client does after the last sleep */

static int64_t slept_so_far_us; /* by which the clock is ahead (atomic) */
static hf_store *newcomers;     /* a handle that a newcomer uses which makes way */

static int fell_asleep(int64_t us)
{
    if (sleeps < SLEEPS) slept_us[sleeps] = us;
    __atomic_add_fetch(&slept_so_far_us, us, __ATOMIC_RELAXED);
    if (newcomers) { /* other requests of the handle go on meanwhile */
        assert_int_equal(pthread_mutex_trylock(&newcomers->mu), 0);
        pthread_mutex_unlock(&newcomers->mu);
    }
    if (++sleeps == SLEEPS) writes(then);
    return 0;
}

int clock_gettime(clockid_t id, struct timespec *ret)
{
    int64_t ahead_us = __atomic_load_n(&slept_so_far_us, __ATOMIC_RELAXED);
    if (syscall(SYS_clock_gettime, id, ret)) return -1;
    int64_t us = ret->tv_nsec / 1000 + ahead_us;
    ret->tv_sec += us / 1000000;
    ret->tv_nsec = us % 1000000 * 1000 + ret->tv_nsec % 1000;
    return 0;
}

int nanosleep(const struct timespec *t, struct timespec *left)
{
    (void)left;
    return fell_asleep(t->tv_sec * INT64_C(1000000) + t->tv_nsec / 1000);
}

int usleep(useconds_t us) { return fell_asleep(us); }

/* A waiter looks for changes between two calls of this. */
int poll(struct pollfd *fds, nfds_t n, int ms)
{
    (void)fds, (void)n;
    fell_asleep(ms * INT64_C(1000));
    errno = EAGAIN;
    return -1;
}

static int64_t longest_us(void)
{
    int64_t longest = 0;
    for (int i = 0; i < SLEEPS; i++)
        if (slept_us[i] > longest) longest = slept_us[i];
    return longest;
}

/* Makes "k" held, and another client lock the database until SLEEPS sleeps have begun. */
static hf_store *locked(void)
{
    static const hf_party holder = {.id = {1}, .lease_ms = 60000, .owner = "me", .owner_len = 2};
    hf_store *st = opened();
    writes("DELETE FROM holdfast");
    said(drv->acquire(st, &key, &holder, 0, &row, &clock_us, &err), 0, NULL);
    writes("BEGIN IMMEDIATE");
    sleeps = 0;
    return st;
}

/* A release, a renewal and a claim are replaces. Each asks again about every millisecond, however
   long it has waited. */
static void a_replace_asks_again_soon(void **state)
{
    (void)state;
    hf_store *st = locked();
    said(drv->replace(st, &key, row.rev, NULL, NULL, &clock_us, &err), 0, NULL);
    assert_int_equal(sleeps, SLEEPS);
    assert_in_range(longest_us(), 1, SOON_US);
    drv->close(st);
}

static void the_marker_of_once_asks_again_soon(void **state)
{
    (void)state;
    hf_store *st = locked();
    said(drv->sync(st, &key, &err), 0, NULL);
    assert_int_equal(sleeps, SLEEPS);
    assert_in_range(longest_us(), 1, SOON_US);
    drv->close(st);
}

/* A newcomer asks soon at first, then ever more rarely, at random times. It pauses for no longer
   than a part of the time that it has waited, and other requests of its handle don't wait for it.
 */
static void a_newcomer_makes_way(void **state)
{
    (void)state;
    static const hf_party newcomer = {.id = {2}, .lease_ms = 60000, .owner = "x", .owner_len = 1};
    hf_store *st = locked();
    newcomers = st;
    said(drv->acquire(st, &key, &newcomer, 10, &row, &clock_us, &err), 0, NULL);
    newcomers = NULL;
    assert_int_equal(sleeps, SLEEPS);
    assert_in_range(slept_us[0], 1, SOON_US);
    assert_in_range(longest_us(), SELDOM_US, 1000000);
    int64_t waited_us = 0;
    int same = 0;
    for (int i = 0; i < SLEEPS; i++) {
        if (i) same += slept_us[i] == slept_us[i - 1];
        assert_true(slept_us[i] <= SOON_US + waited_us / 4);
        waited_us += slept_us[i];
    }
    assert_true(same < SLEEPS / 2);
    /* The next request of this client is a holder's. */
    writes("BEGIN IMMEDIATE");
    sleeps = 0;
    said(drv->replace(st, &key, row.rev, NULL, NULL, &clock_us, &err), 0, NULL);
    assert_in_range(longest_us(), 1, SOON_US);
    drv->close(st);
}

/* A replace of a row that was replaced meanwhile can't succeed, so it doesn't wait for its turn. */
static void a_replace_that_comes_too_late_ends(void **state)
{
    (void)state;
    hf_store *st = locked();
    uint64_t rev = row.rev;
    then = "UPDATE holdfast SET rev = rev + 1, note = 'n'; COMMIT; BEGIN IMMEDIATE";
    said(drv->replace(st, &key, rev, NULL, &row, &clock_us, &err), HF_CONFLICT, NULL);
    assert_int_equal(sleeps, SLEEPS);
    assert_true(row.rev == rev + 1 && row.n_holders == 1 && clock_us);
    /* The same for a row that is gone, and one that has appeared. */
    then = "DELETE FROM holdfast; COMMIT; BEGIN IMMEDIATE";
    sleeps = 0;
    said(drv->replace(st, &key, rev + 1, NULL, &row, &clock_us, &err), HF_CONFLICT, NULL);
    assert_true(!row.rev && !row.n_holders);
    writes("COMMIT");
    then = "COMMIT";
    drv->close(st);
}

/* A client that finds no tables, and the database locked, doesn't wait for its turn to make what
   another one has made meanwhile. */
static void tables_that_are_made_meanwhile_are_used(void **state)
{
    (void)state;
    hf_url url;
    hf_store *st = NULL;
    said(hf_url_parse(url_text, &url, &err), 0, NULL);
    writes("ALTER TABLE holdfast RENAME TO a; ALTER TABLE holdfast_clock RENAME TO b; "
           "BEGIN IMMEDIATE");
    then = "ALTER TABLE a RENAME TO holdfast; ALTER TABLE b RENAME TO holdfast_clock; COMMIT; "
           "BEGIN IMMEDIATE";
    sleeps = 0;
    said(drv->open(&url, 5000, &st, &(hf_caps){0}, &err), 0, NULL);
    assert_int_equal(sleeps, SLEEPS);
    then = "COMMIT";
    writes(then);
    said(drv->get(st, &key, &row, &clock_us, &err), 0, NULL);
    drv->close(st);
}

/* How long a handle pauses at most that waits behind others, of whose notes each has `n` bytes. */
static int64_t longest_pause_us(int others, int n)
{
    const hf_notify_ops *notify = drv->caps.notify;
    hf_party p = {.id = {9, 9}, .lease_ms = 60000, .owner = "x", .owner_len = 1};
    hf_rowkey mine = key;
    hf_event_count count = {{0}};
    hf_key_event event;
    hf_row seen;
    hf_store *st = opened();
    hf_row_init(&seen);
    writes("DELETE FROM holdfast");
    p.note_len = (uint8_t)n;
    memset(p.note, 'n', (size_t)n);
    for (int i = 0; i < others + 2; i++) { /* a holder, the others, and then the waiter itself */
        p.id[0] = (uint8_t)i;
        said(drv->acquire(st, &key, &p, 4000, &row, &clock_us, &err), 0, NULL);
    }
    mine.who = p.id;
    mine.in_line = 1;
    said(notify->flush(st, &count, &err), 0, NULL);
    assert_true(notify->next_event(st, &event));
    assert_true(notify->payload(st, &mine, &seen));
    then = "UPDATE holdfast_clock SET ceiling_us = ceiling_us + 1";
    sleeps = 0;
    memset(slept_us, 0, sizeof slept_us);
    said(notify->sleep(st, &count, INT64_MAX, &err), 0, NULL);
    assert_int_equal(sleeps, SLEEPS);
    then = "COMMIT";
    hf_row_clear(&seen);
    drv->close(st);
    return longest_us();
}

/* Hundreds of waiters that look after each commit would keep the holder from the processor. */
static void a_waiter_far_back_looks_rarely(void **state)
{
    (void)state;
    int64_t near_us = longest_pause_us(0, 100), far_us = longest_pause_us(200, 100);
    assert_in_range(near_us, 10000, 25000);
    assert_in_range(longest_pause_us(20, 100), near_us, 60000);
    assert_in_range(far_us, 90000, 110000);
}

/* A request that finds the database locked for all of the time given is UNAVAILABLE, and no pause
   goes beyond that time. */
static void the_time_ends(void **state)
{
    (void)state;
    static const hf_party newcomer = {.id = {2}, .lease_ms = 60000, .owner = "x", .owner_len = 1};
    hf_url url;
    hf_store *st = NULL;
    said(hf_url_parse(url_text, &url, &err), 0, NULL);
    drv->close(locked());
    sleeps = SLEEPS; /* the other client's transaction goes on */
    said(drv->open(&url, 100, &st, &(hf_caps){0}, &err), 0, NULL);
    said(drv->replace(st, &key, row.rev, NULL, NULL, &clock_us, &err), HF_UNAVAILABLE,
         "locked by others");
    assert_int_equal(err.sys, EBUSY);
    for (int i = 0; i < 20; i++) {
        int64_t before_us = slept_so_far_us;
        said(drv->acquire(st, &key, &newcomer, 10, &row, &clock_us, &err), HF_UNAVAILABLE,
             "locked by others");
        assert_in_range(slept_so_far_us - before_us, 1, 100000);
    }
    writes("COMMIT");
    drv->close(st);
}

/* A database that is locked for a short time, even for readers, gets a database beside it. */
static void doctor_waits_for_the_settings(void **state)
{
    (void)state;
    hf_url url, beside;
    said(hf_url_parse(url_text, &url, &err), 0, NULL);
    writes("PRAGMA journal_mode = DELETE; BEGIN EXCLUSIVE");
    sleeps = 0;
    said(drv->scratch(&url, &beside, &err), 0, NULL);
    assert_int_equal(sleeps, SLEEPS);
    drv->discard(&beside);
    writes("PRAGMA journal_mode = WAL");
}

int main(void)
{
    if (sqlite_begin()) return 1;
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_replace_asks_again_soon),
        cmocka_unit_test(the_marker_of_once_asks_again_soon),
        cmocka_unit_test(a_newcomer_makes_way),
        cmocka_unit_test(a_replace_that_comes_too_late_ends),
        cmocka_unit_test(tables_that_are_made_meanwhile_are_used),
        cmocka_unit_test(a_waiter_far_back_looks_rarely),
        cmocka_unit_test(the_time_ends),
        cmocka_unit_test(doctor_waits_for_the_settings),
    };
    int failed = TEST_MAIN(tests);
    hf_row_clear(&row);
    sqlite3_close(other);
    return failed;
}
