/*
 * lock_trips.c - the lock suite: what an uncontended acquisition costs at a store that has to be
 * asked. Where HOLDFAST_TEST_LOG names the log of the server, its lines with HOLDFAST_TEST_LOG_MARK
 * are what counts; or HOLDFAST_TEST_COUNT is a command that tells how many there were.
 * HOLDFAST_TEST_TRIPS: how many requests a key takes that was never seen (1).
 *
 * HOLDFAST_TEST_HANDOVER: "G T N", where the store notifies waiters. A handle that releases a key
 * to a waiter makes G requests for that. The waiter makes T from the notification to holding, and N
 * until it has passed the key on to a third.
 */
#include "handle.h"
#include "lock_suite.h"
#include "traced.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static uint64_t told_by(const char *command)
{
    char line[64] = "";
    FILE *f = popen(command, "r");
    assert_non_null(f);
    assert_non_null(fgets(line, sizeof line, f));
    assert_int_equal(pclose(f), 0);
    return strtoull(line, NULL, 10);
}

static uint64_t sent(hf *h)
{
    const char *log = getenv("HOLDFAST_TEST_LOG"), *mark = getenv("HOLDFAST_TEST_LOG_MARK");
    const char *count = getenv("HOLDFAST_TEST_COUNT");
    hf_stats s = {.size = sizeof s};
    char line[8192];
    uint64_t n = 0;
    if (count) return told_by(count);
    if (!log) {
        OK(hf_get_stats(h, &s));
        return s.store_ops;
    }
    FILE *f = fopen(log, "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) n += strstr(line, mark) != NULL;
    fclose(f);
    return n;
}

static void one_there_and_one_back(void **state)
{
    (void)state;
    enum { PAIRS = 20 };
    hf *a = suite_open();
    const char *key = suite_key("trips");
    const char *first_text = getenv("HOLDFAST_TEST_TRIPS");
    uint64_t first = first_text ? strtoull(first_text, NULL, 10) : 1;
    hf_lock *lock;
    uint64_t before = sent(a);
    OK(hf_acquire(a, key, NULL, &lock, &suite_error));
    assert_int_equal(sent(a) - before, first); /* a key that this handle has never seen */
    OK(hf_release(lock, &suite_error));
    assert_int_equal(sent(a) - before, first + 1);
    for (int i = 0; i < PAIRS; i++) {
        OK(hf_acquire(a, key, NULL, &lock, &suite_error));
        OK(hf_release(lock, &suite_error));
    }
    assert_int_equal(sent(a) - before, first + 1 + 2 * PAIRS);
    hf_close(a);
}

static void a_refusal_is_one(void **state)
{
    (void)state;
    hf *a = suite_open(), *b = suite_open();
    const char *key = suite_key("refused");
    hf_lock *lock, *x;
    hf_options try = HF_OPTIONS_INIT;
    try.wait_ms = 0;
    OK(hf_acquire(a, key, NULL, &lock, &suite_error));
    uint64_t before = sent(b);
    IS(HF_BUSY, hf_acquire(b, key, &try, &x, &suite_error));
    assert_int_equal(sent(b) - before, 1);
    hf_close(a);
    hf_close(b);
}

/* Needs a guard, or a message that there is none. */
static void entering_is_one(void **state)
{
    (void)state;
    hf *a = suite_open();
    hf_lock *lock;
    OK(hf_acquire(a, suite_key("enters"), NULL, &lock, &suite_error));
    const char *where = hf_enter(lock, NULL, &suite_error) == HF_INVALID ? "suite_trips/7" : NULL;
    uint64_t before = sent(a);
    int rc = hf_enter(lock, where, &suite_error);
    assert_true(rc == HF_OK || rc == HF_UNSUPPORTED);
    if (rc) /* nothing, or one that found none */
        assert_in_range(sent(a) - before, 0, 1);
    else
        assert_int_equal(sent(a) - before, 1);
    OK(hf_release(lock, &suite_error));
    hf_close(a);
}

/* ---- waiters ---- */

/* A key that is free isn't subscribed to. */
static void a_free_key_is_not_listened_for(void **state)
{
    (void)state;
    char path[PATH_ROOM];
    hf *a = open_traced(path);
    const char *key = suite_key("free");
    struct got g = {.by = a};
    hf_wait *wait;
    sem_init(&g.told, 0, 0);
    for (int i = 0; i < 3; i++) {
        OK(hf_acquire_start(a, key, NULL, got, &g, &wait, &suite_error));
        await_told(&g);
        OK(hf_release(g.lock, &suite_error));
        hf_wait_free(wait);
    }
    assert_null(strchr(traced(path, key), 'l'));
    unlink(path);
    hf_close(a);
}

/* Waits until the waiter is queued, has subscribed, and has looked once more for changes in
   between. */
static void await_looked(const char *path, const char *key)
{
    int64_t end = suite_ms() + 20000;
    for (;; usleep(1000)) {
        const char *did = traced(path, key), *heard = strchr(did, 'l');
        if (heard) assert_non_null(strpbrk(did, "ra"));
        if (heard) assert_true(strpbrk(did, "ra") < heard);
        if (heard && strchr(heard, 'g')) return;
        if (suite_ms() > end) fail_msg("after 20 s it has only done: %s", did);
    }
}

/* Where a free key is acquired by one request, a request for a held key is queued by one, too: the
   first waiter and those behind it. Then the handle subscribes. */
static void in_line_by_one(void **state)
{
    (void)state;
    enum { WAITERS = 3 };
    char path[WAITERS][PATH_ROOM];
    struct got of[WAITERS];
    hf_wait *wait[WAITERS];
    hf *a = suite_open();
    const char *key = suite_key("in_line");
    hf_lock *lock;
    OK(hf_acquire(a, key, NULL, &lock, &suite_error));
    for (uint32_t i = 0; i < WAITERS; i++) {
        of[i] = (struct got){.by = open_traced(path[i])};
        sem_init(&of[i].told, 0, 0);
        OK(hf_acquire_start(of[i].by, key, NULL, got, &of[i], &wait[i], &suite_error));
        suite_await_waiters(a, key, i + 1);
        const char *did = traced(path[i], key);
        if (strcspn(did, "lg") > 1) fail_msg("waiter %u has done: %s", i, did);
    }
    OK(hf_release(lock, &suite_error));
    for (int i = 0; i < WAITERS; i++) {
        await_told(&of[i]);
        OK(hf_release(of[i].lock, &suite_error));
        hf_wait_free(wait[i]);
        hf_close(of[i].by);
        unlink(path[i]);
    }
    hf_close(a);
}

/* Of HOLDFAST_TEST_HANDOVER. */
static uint64_t expected(int which)
{
    unsigned long long n[5];
    const char *text = getenv("HOLDFAST_TEST_HANDOVER");
    assert_int_equal(sscanf(text, "%llu %llu %llu %llu %llu", &n[0], &n[1], &n[2], &n[3], &n[4]),
                     5);
    return n[which];
}

/* One handle has the key; others may be queued for it, in their order. */
struct scene {
    hf *a;
    const char *key;
    hf_lock *lock;    /* of a */
    const char *note; /* of those in line */
    int64_t lease_ms;
    size_t n;
    struct in_line {
        char path[PATH_ROOM];
        struct got got;
        hf_wait *wait;
    } in_line[4];
};

static void begin(struct scene *s, const char *name, size_t n)
{
    memset(s, 0, sizeof *s);
    s->a = suite_open();
    s->n = n;
    s->key = suite_key(name);
    for (size_t i = 0; i < n; i++) {
        s->in_line[i].got.by = open_traced(s->in_line[i].path);
        sem_init(&s->in_line[i].got.told, 0, 0);
    }
    OK(hf_acquire(s->a, s->key, NULL, &s->lock, &suite_error));
}

/* The next one, until it has looked. */
static struct got *gets_in_line(struct scene *s, size_t which)
{
    struct in_line *w = &s->in_line[which];
    hf_options o = HF_OPTIONS_INIT;
    o.note = s->note;
    o.lease_ms = s->lease_ms;
    OK(hf_acquire_start(w->got.by, s->key, &o, got, &w->got, &w->wait, &suite_error));
    await_looked(w->path, s->key);
    return &w->got;
}

/* How many requests its release makes. */
static uint64_t gives_back(hf *by, hf_lock *lock)
{
    uint64_t before = asked(by);
    OK(hf_release(lock, &suite_error));
    return asked(by) - before;
}

static void end(struct scene *s)
{
    for (struct in_line *w = s->in_line; w < &s->in_line[s->n]; w++) {
        hf_wait_free(w->wait);
        unlink(w->path);
        hf_close(w->got.by);
    }
    hf_close(s->a);
}

/* The least of this many rounds counts, because a waiter polls now and then, too. */
enum { ROUNDS = 5 };

static void least(uint64_t *of, uint64_t n)
{
    if (n < *of) *of = n;
}

static void from_giving_to_having(void **state)
{
    (void)state;
    uint64_t given = UINT64_MAX, taken = UINT64_MAX;
    for (int i = 0; i < ROUNDS; i++) {
        struct scene s;
        begin(&s, "handover", 1);
        struct got *b = gets_in_line(&s, 0);
        uint64_t before = asked(b->by);
        least(&given, gives_back(s.a, s.lock));
        await_told(b);
        least(&taken, b->asked - before);
        OK(hf_release(b->lock, &suite_error));
        end(&s);
    }
    assert_int_equal(given, expected(0));
    assert_int_equal(taken, expected(1));
}

/* Waits until the holder, which has waited for the key, has been notified of a waiter behind it. */
static void await_word(hf *h, const char *key)
{
    int64_t end = suite_ms() + 20000;
    hf_rowkey rk;
    hf_row row;
    OK(hf_key_make(key, &rk, &suite_error));
    hf_row_init(&row);
    for (int heard = 0; !heard; usleep(1000)) {
        heard = h->port.caps.notify->payload(h->port.st, &rk, &row) && row.n_queue == 1;
        if (suite_ms() > end) fail_msg("it was not notified of the waiter within 20 s");
    }
    hf_row_clear(&row);
}

/* Waits until the new holder has claimed the key: its own write no longer makes an event for it. */
static void await_claim(hf *h, const char *key)
{
    int64_t end = suite_ms() + 60000, clock_us;
    hf_rowkey rk;
    hf_row row;
    OK(hf_key_make(key, &rk, &suite_error));
    hf_row_init(&row);
    do {
        usleep(1000);
        OK(h->port.drv->get(h->port.st, &rk, &row, &clock_us, &suite_error));
        if (suite_ms() > end) fail_msg("it was not claimed within 60 s");
    } while (row.n_holders != 1 || row.party[0].flags & HF_PARTY_UNCLAIMED);
    hf_row_clear(&row);
}

/* A waiter that is granted a key is notified of the first waiter behind it, long before its next
   renewal. */
static void from_having_to_giving_on(void **state)
{
    (void)state;
    uint64_t given = UINT64_MAX;
    for (int i = 0; i < ROUNDS; i++) {
        struct scene s;
        begin(&s, "given_on", 2);
        s.lease_ms = 3600000;
        struct got *b = gets_in_line(&s, 0);
        OK(hf_release(s.lock, &suite_error));
        await_told(b);
        await_claim(s.a, s.key);
        struct got *c = gets_in_line(&s, 1);
        if (expected(2) == 1) await_word(b->by, s.key);
        least(&given, gives_back(b->by, b->lock));
        await_told(c);
        OK(hf_release(c->lock, &suite_error));
        end(&s);
    }
    assert_int_equal(given, expected(2));
}

/* The requests of the first waiter, while another one is queued behind it and then granted
   the key. */
static void others_who_come(void **state)
{
    (void)state;
    uint64_t asks = UINT64_MAX;
    for (int i = 0; i < ROUNDS; i++) {
        struct scene s;
        begin(&s, "others", 2);
        struct got *b = gets_in_line(&s, 0);
        uint64_t before = asked(b->by);
        struct got *c = gets_in_line(&s, 1);
        OK(hf_release(s.lock, &suite_error));
        await_told(b);
        least(&asks, b->asked - before);
        OK(hf_release(b->lock, &suite_error));
        await_told(c);
        OK(hf_release(c->lock, &suite_error));
        end(&s);
    }
    assert_int_equal(asks, expected(3));
}

/* Waits until the handle has made this many requests, or more. */
static void await_asked(hf *h, uint64_t times)
{
    int64_t end = suite_ms() + 20000;
    for (; asked(h) < times; usleep(1000))
        if (suite_ms() > end) fail_msg("after 20 s it has not looked");
    usleep(20000);
}

/* The second waiter, while the first is granted the key and passes it on; the row is too long for a
   notification. */
static void another_is_handed_it(void **state)
{
    (void)state;
    uint64_t asks = UINT64_MAX;
    char note[256];
    memset(note, 'n', sizeof note - 1);
    note[sizeof note - 1] = 0;
    for (int i = 0; i < ROUNDS; i++) {
        struct scene s;
        begin(&s, "another", 4);
        s.note = note;
        for (size_t n = 0; n < s.n; n++) gets_in_line(&s, n);
        struct got *b = &s.in_line[0].got, *c = &s.in_line[1].got;
        uint64_t before = asked(c->by);
        OK(hf_release(s.lock, &suite_error));
        await_told(b);
        await_asked(c->by, before + expected(4));
        OK(hf_release(b->lock, &suite_error));
        await_told(c);
        least(&asks, c->asked - before);
        OK(hf_release(c->lock, &suite_error));
        for (size_t n = 2; n < s.n; n++) {
            await_told(&s.in_line[n].got);
            OK(hf_release(s.in_line[n].got.lock, &suite_error));
        }
        end(&s);
    }
    assert_int_equal(asks, expected(4) + expected(1));
}

/* Waits until the handle has made no request for a while. */
static void await_rest(hf *h)
{
    int64_t end = suite_ms() + 60000;
    for (uint64_t before = UINT64_MAX; before != asked(h);) {
        before = asked(h);
        usleep(50000);
        if (suite_ms() > end) fail_msg("after 60 s it goes on asking");
    }
}

/* Of waits for many keys, only the wait for the key that has changed looks. */
static void one_of_many(void **state)
{
    enum { KEYS = 30 };
    (void)state;
    uint64_t asks = UINT64_MAX, others = UINT64_MAX;
    char names[KEYS][64];
    hf *a = suite_open(), *b = suite_open();
    hf_lock *lock[KEYS];
    hf_wait *wait[KEYS];
    static struct got of[KEYS];
    for (int i = 0; i < KEYS; i++) {
        snprintf(names[i], sizeof names[i], "%s/%d", suite_key("of_many"), i);
        OK(hf_acquire(a, names[i], NULL, &lock[i], &suite_error));
        of[i] = (struct got){.by = b};
        sem_init(&of[i].told, 0, 0);
        OK(hf_acquire_start(b, names[i], NULL, got, &of[i], &wait[i], &suite_error));
    }
    for (int i = 0; i < KEYS; i++) suite_await_waiters(a, names[i], 1);
    await_rest(b);
    for (int i = 0; i < KEYS; i++) {
        uint64_t before = asked(b);
        OK(hf_release(lock[i], &suite_error));
        await_told(&of[i]);
        if (i < KEYS / 2) least(&asks, of[i].asked - before); /* while there are others */
        uint64_t had = asked(b);
        OK(hf_release(of[i].lock, &suite_error));
        uint64_t gave = asked(b) - had;
        usleep(5000); /* if other waits were woken, their requests would come about now */
        if (i < KEYS / 2) least(&others, asked(b) - had - gave);
    }
    for (int i = 0; i < KEYS; i++) hf_wait_free(wait[i]);
    hf_close(b);
    hf_close(a);
    if (asks != expected(1) || others) fail_msg("%d, others %d", (int)asks, (int)others);
}

/* ---- a handle that hands over, and requests again ---- */

/* The handle knows the row that it wrote, and is queued by one request. */
static void back_in_line_by_one(void **state)
{
    (void)state;
    size_t least_ops = SIZE_MAX;
    for (int i = 0; i < ROUNDS; i++) {
        struct scene s;
        char path[PATH_ROOM];
        struct got again = {.by = open_traced(path)};
        hf_wait *wait;
        sem_init(&again.told, 0, 0);
        begin(&s, "back", 2);
        OK(hf_release(s.lock, &suite_error));
        OK(hf_acquire(again.by, s.key, NULL, &s.lock, &suite_error));
        for (size_t n = 0; n < s.n; n++) gets_in_line(&s, n);
        OK(hf_release(s.lock, &suite_error));
        size_t before = strlen(traced(path, s.key));
        OK(hf_acquire_start(again.by, s.key, NULL, got, &again, &wait, &suite_error));
        await_looked(path, s.key);
        size_t ops = strcspn(traced(path, s.key) + before, "l");
        least_ops = ops < least_ops ? ops : least_ops;
        for (size_t n = 0; n < s.n; n++) {
            await_told(&s.in_line[n].got);
            OK(hf_release(s.in_line[n].got.lock, &suite_error));
        }
        await_told(&again);
        OK(hf_release(again.lock, &suite_error));
        hf_wait_free(wait);
        hf_close(again.by);
        unlink(path);
        end(&s);
    }
    assert_int_equal(least_ops, 1);
}

/* That lasts for a moment only: later a free key is acquired by as few requests as any. */
static void later_it_is_taken(void **state)
{
    (void)state;
    struct scene s;
    begin(&s, "later", 1);
    struct got *b = gets_in_line(&s, 0);
    OK(hf_release(s.lock, &suite_error));
    await_told(b);
    OK(hf_release(b->lock, &suite_error));
    usleep(40000);
    uint64_t before = asked(s.a);
    OK(hf_acquire(s.a, s.key, NULL, &s.lock, &suite_error));
    if (strtoull(getenv("HOLDFAST_TEST_TRIPS"), NULL, 10) == 1)
        assert_int_equal(asked(s.a) - before, 1);
    OK(hf_release(s.lock, &suite_error));
    end(&s);
}

/* Only the store knows the state of a request whose id the caller chose: it may have held the key
   meanwhile, and released it. Repeated, because the cached row is used for a moment only. */
static void a_named_request_asks_the_store(void **state)
{
    (void)state;
    hf *a = suite_open(), *b = suite_open();
    const char *key = suite_key("named");
    hf_lock *lock, *other, *last, *x;
    uint8_t id[16];
    for (int i = 0; i < 2 * ROUNDS; i++) {
        hf_options shared = HF_OPTIONS_INIT, named = HF_OPTIONS_INIT;
        memset(id, 0x5a + i, sizeof id);
        shared.mode = named.mode = HF_SHARED;
        named.request_id = id;
        OK(hf_acquire(a, key, &shared, &lock, &suite_error));
        OK(hf_acquire(b, key, &named, &other, &suite_error));
        OK(hf_release(lock, &suite_error)); /* this leaves the request as the holder */
        OK(hf_release(other, &suite_error));
        OK(hf_acquire(b, key, NULL, &last, &suite_error));
        named.wait_ms = 20;
        IS(HF_TIMEOUT, hf_acquire(a, key, &named, &x, &suite_error));
        OK(hf_release(last, &suite_error));
    }
    hf_close(a);
    hf_close(b);
}

/* ---- a tight loop ---- */

static struct {
    const char *key;
    int over; /* atomic */
    uint64_t times;
} hurry;

static void *take_again_and_again(void *arg)
{
    hf *h = suite_open();
    hf_error err;
    while (!__atomic_load_n(&hurry.over, __ATOMIC_ACQUIRE)) {
        hf_lock *lock;
        if (hf_acquire(h, hurry.key, NULL, &lock, &err) || hf_release(lock, &err)) {
            fprintf(stderr, "# in a hurry: %s\n", err.text);
            abort();
        }
        __atomic_add_fetch(&hurry.times, 1, __ATOMIC_RELEASE);
    }
    hf_close(h);
    return arg;
}

/* The requests of a far client arrive milliseconds later: before its write meets the row that it
   has read, the near client has had the key again. */
static void who_is_far_away_gets_in_line(void **state)
{
    (void)state;
    pthread_t thread;
    hf_lock *lock;
    hf_options o = HF_OPTIONS_INIT;
    setenv("HOLDFAST_FAULT", "any:*:delay=10", 1);
    hf *far = suite_open();
    unsetenv("HOLDFAST_FAULT");
    hurry.key = suite_key("hurry");
    o.wait_ms = 600000; /* only ends what hangs */
    assert_int_equal(pthread_create(&thread, NULL, take_again_and_again, NULL), 0);
    while (!__atomic_load_n(&hurry.times, __ATOMIC_ACQUIRE)) usleep(1000);
    int rc = hf_acquire(far, hurry.key, &o, &lock, &suite_error);
    __atomic_store_n(&hurry.over, 1, __ATOMIC_RELEASE);
    if (!rc) hf_release(lock, NULL);
    pthread_join(thread, NULL);
    OK(rc);
    hf_close(far);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_line_by_one),
        cmocka_unit_test(one_there_and_one_back),
        cmocka_unit_test(a_refusal_is_one),
        cmocka_unit_test(entering_is_one),
        cmocka_unit_test(a_free_key_is_not_listened_for),
        cmocka_unit_test(who_is_far_away_gets_in_line),
        cmocka_unit_test(a_named_request_asks_the_store),
        cmocka_unit_test(from_giving_to_having),
        cmocka_unit_test(from_having_to_giving_on),
        cmocka_unit_test(others_who_come),
        cmocka_unit_test(another_is_handed_it),
        cmocka_unit_test(one_of_many),
        cmocka_unit_test(back_in_line_by_one),
        cmocka_unit_test(later_it_is_taken),
    };
    size_t n = sizeof tests / sizeof *tests;
    /* Where waiters aren't notified, there is nothing to count. */
    if (!getenv("HOLDFAST_TEST_HANDOVER")) n -= 7;
    const char *first = getenv("HOLDFAST_TEST_TRIPS");
    int from = first && strtoull(first, NULL, 10) > 1; /* the store has no acquire */
    return suite_main(argc, argv, tests + from, n - (size_t)from, "lock_trips");
}
