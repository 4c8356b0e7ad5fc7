/*
 * serial_test.c - a driver that is not for several threads gets one call at a time, whichever
 * operations these are; and what is shown of a scan may use the store.
 *
 * The driver is one around `mem:`. One operation of it waits within its call until another call
 * begins, which must not happen; or for HOLD_MS. Link with --wrap=hf__driver.
 */
#include "admin.h"
#include "drivers.h"
#include "handle.h"
#include "test.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { HOLD_MS = 100 };
enum op { NONE, SCAN, SYNC, INSPECT, WARNING, ALIVE, OPS };

static const hf_driver *const base = &hf__mem_driver;
static hf_driver five;
static atomic_int calls, overlaps;
static enum op held;      /* the operation that waits */
static sem_t is_in, more; /* posted when the operation is inside its call; when another call has
                             begun */
static hf *h;

static void enter(enum op op)
{
    if (atomic_fetch_add(&calls, 1)) {
        atomic_fetch_add(&overlaps, 1);
        sem_post(&more);
    }
    if (op == NONE || op != held) return;
    struct timespec t;
    held = NONE;
    sem_post(&is_in);
    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_nsec += HOLD_MS * 1000000;
    t.tv_sec += t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    while (sem_timedwait(&more, &t) && errno == EINTR) continue;
}

static int leave(hf_store *st, int64_t *ret_clock_us, int rc)
{
    if (ret_clock_us) *ret_clock_us = base->caps.local->now(st);
    atomic_fetch_sub(&calls, 1);
    return rc;
}

static int se_get(hf_store *st, const hf_rowkey *key, hf_row *row, int64_t *clock, hf_error *err)
{
    enter(NONE);
    return leave(st, clock, base->get(st, key, row, clock, err));
}

static int se_replace(hf_store *st, const hf_rowkey *key, uint64_t seen, const hf_row *row,
                      hf_row *cur, int64_t *clock, hf_error *err)
{
    enter(NONE);
    return leave(st, clock, base->replace(st, key, seen, row, cur, clock, err));
}

static int (*shows)(void *arg, const hf_rowkey *key, hf_row *row);

/* The key "damaged" is one whose row is. */
static int show(void *arg, const hf_rowkey *key, hf_row *row)
{
    return shows(arg, key, strcmp(key->text, "damaged") ? row : NULL);
}

static int se_scan(hf_store *st, const char *prefix,
                   int (*see)(void *arg, const hf_rowkey *key, hf_row *row), void *arg,
                   int64_t *clock, hf_error *err)
{
    enter(SCAN);
    shows = see;
    return leave(st, clock, base->scan(st, prefix, show, arg, clock, err));
}

static int se_sync(hf_store *st, const hf_rowkey *key, hf_error *err)
{
    (void)key, (void)err;
    enter(SYNC);
    return leave(st, NULL, 0);
}

static int se_inspect(hf_store *st, void (*say)(void *arg, int ok, const char *text), void *arg,
                      hf_error *err)
{
    (void)err;
    enter(INSPECT);
    say(arg, 1, "it is fine");
    return leave(st, NULL, 0);
}

static int se_warning(hf_store *st, char *to, size_t cap)
{
    enter(WARNING);
    snprintf(to, cap, "beware");
    return leave(st, NULL, 1);
}

static int se_session(hf_store *st, uint64_t *ret, hf_error *err)
{
    enter(NONE);
    return leave(st, NULL, base->caps.liveness->session(st, ret, err));
}

static int se_alive(hf_store *st, uint64_t session, hf_error *err)
{
    enter(ALIVE);
    return leave(st, NULL, base->caps.liveness->alive(st, session, err));
}

static const hf_liveness_ops liveness = {.session = se_session, .alive = se_alive};

const hf_driver *__wrap_hf__driver(const char *scheme, hf_error *err);
const hf_driver *__wrap_hf__driver(const char *scheme, hf_error *err)
{
    (void)scheme, (void)err;
    five = (hf_driver){.abi = HF_DRIVER_ABI,
                       .name = "mem",
                       .caps = {.queue_cap = base->caps.queue_cap,
                                .holders_cap = base->caps.holders_cap,
                                .queues = 1,
                                .liveness = &liveness},
                       .open = base->open,
                       .close = base->close,
                       .get = se_get,
                       .replace = se_replace,
                       .scan = se_scan,
                       .sync = se_sync,
                       .inspect = se_inspect,
                       .warning = se_warning};
    return &five;
}

static int count(void *arg, const hf_info *info)
{
    (void)info;
    ++*(int *)arg;
    return 0;
}

static void note(void *arg, int ok, const char *text)
{
    (void)text;
    *(int *)arg += ok;
}

static void *use(void *op)
{
    char text[32] = "";
    hf_once once;
    hf_error err;
    int n = 0;
    switch (*(enum op *)op) {
    case SCAN: assert_int_equal(hf_list(h, "", count, &n, &err), 0); break;
    case INSPECT: assert_int_equal(hf__inspect(h, note, &n, &err), 0); break;
    case WARNING: assert_int_equal(hf_store_warning(h, text, sizeof text), 1); break;
    case ALIVE: assert_int_equal(hf__port_alive(&h->port, h->port.session), 1); break;
    default:
        assert_int_equal(hf_once_begin(h, "event", 60000, NULL, &once, &err), 0);
        assert_int_equal(hf_once_finish(once.lock, "", 60000, &err), 0);
    }
    return NULL;
}

static void one_call_at_a_time(void **state)
{
    (void)state;
    for (enum op op = SCAN; op < OPS; op++) {
        hf_error err;
        pthread_t thread;
        int n = 0;
        assert_int_equal(hf_open("mem:serial", NULL, &h, &err), 0);
        sem_init(&is_in, 0, 0);
        sem_init(&more, 0, 0);
        held = op;
        assert_int_equal(pthread_create(&thread, NULL, use, &op), 0);
        while (sem_wait(&is_in)) continue;
        assert_int_equal(hf_peek(h, "another", count, &n, &err), 0);
        pthread_join(thread, NULL);
        if (overlaps) print_error("two calls at once: operation %d\n", op);
        assert_int_equal(overlaps, 0);
        hf_close(h);
    }
}

/* Another thread acquires and releases while a row is shown. */
static void *passes(void *arg)
{
    hf_lock *lock;
    hf_error err;
    assert_int_equal(hf_acquire(h, "meanwhile", NULL, &lock, &err), 0);
    assert_int_equal(hf_release(lock, &err), 0);
    return arg;
}

static int use_the_store(void *arg, const hf_info *info)
{
    pthread_t thread;
    (void)info;
    assert_int_equal(pthread_create(&thread, NULL, passes, NULL), 0);
    pthread_join(thread, NULL);
    ++*(int *)arg;
    return 0;
}

static int stop(void *arg, const hf_info *info)
{
    (void)info;
    return ++*(int *)arg == 2;
}

static void a_callback_may_use_the_store(void **state)
{
    hf_error err;
    hf_lock *lock[3];
    int n = 0;
    (void)state;
    assert_int_equal(hf_open("mem:shown", NULL, &h, &err), 0);
    assert_int_equal(hf_acquire(h, "a", NULL, &lock[0], &err), 0);
    assert_int_equal(hf_acquire(h, "b", NULL, &lock[1], &err), 0);
    assert_int_equal(hf_acquire(h, "damaged", NULL, &lock[2], &err), 0);
    assert_int_equal(hf_list(h, "", use_the_store, &n, &err), 0);
    assert_true(n >= 3); /* the damaged one was read again, and there was nothing wrong with it */
    n = 0;
    assert_int_equal(hf_list(h, "", stop, &n, &err), 0);
    assert_int_equal(n, 2);
    for (int i = 0; i < 3; i++) hf_release(lock[i], NULL);
    assert_int_equal(overlaps, 0);
    hf_close(h);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_call_at_a_time),
        cmocka_unit_test(a_callback_may_use_the_store),
    };
    return TEST_MAIN(tests);
}
