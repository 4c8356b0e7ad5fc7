/*
 * found_test.c - mistakes that the explorer found in code that it only imitates, each in its
 * smallest form.
 */
#include "test.h"

#include "cas_loop.h"
#include "drivers.h"
#include "fakes/faults.h"
#include "handle.h"
#include "scratch.h"
#include "step.h"

#include <pthread.h>
#include <unistd.h>

static const char *url;

static hf *store(void)
{
    hf_error err;
    hf *h;
    if (hf_open(url, NULL, &h, &err)) fail_msg("%s", err.text);
    return h;
}

struct asker {
    hf *h;
    const char *key;
    hf_options options;
    hf_lock *lock;
    int code;
    pthread_t thread;
};

static void *ask(void *arg)
{
    struct asker *a = arg;
    a->code = hf_acquire(a->h, a->key, &a->options, &a->lock, NULL);
    return NULL;
}

static void get(hf *h, const char *text, hf_row *row)
{
    hf_rowkey key;
    assert_int_equal(hf_key_make(text, &key, NULL), 0);
    assert_int_equal(hf__port_get(&h->port, &key, row, NULL), 0);
}

/* Waits until n waiters are queued. */
static void await_waiters(hf *h, const char *key, uint32_t n)
{
    hf_row row;
    hf_row_init(&row);
    int64_t until = hf__local_us() + 600000000;
    do {
        if (hf__local_us() > until) fail_msg("%u wait, not %u", row.n_queue, n);
        hf__pause(500);
        get(h, key, &row);
    } while (row.n_queue != n);
    hf_row_clear(&row);
}

static void start(struct asker *a, hf *h, const char *key, enum hf_mode mode, uint32_t place)
{
    *a = (struct asker){.h = h, .key = key, .options = HF_OPTIONS_INIT};
    a->options.mode = mode;
    a->options.wait_ms = 600000;
    assert_int_equal(pthread_create(&a->thread, NULL, ask, a), 0);
    await_waiters(h, key, place);
}

static int see_token(void *arg, const hf_info *info)
{
    *(uint64_t *)arg = info->token;
    return 0;
}

/* Two were granted by one write. The one with the smaller token leaves last, and without looking:
   its row must not say that the greater one was never granted. */
static void a_later_token_stays(void **state)
{
    struct asker a, b;
    hf *h = store(), *ha = store(), *hb = store();
    hf_lock *lock;
    uint64_t token;
    (void)state;
    assert_int_equal(hf_acquire(h, "page", NULL, &lock, NULL), 0);
    start(&a, ha, "page", HF_SHARED, 1);
    start(&b, hb, "page", HF_SHARED, 2);
    assert_int_equal(hf_release(lock, NULL), 0);
    pthread_join(a.thread, NULL);
    pthread_join(b.thread, NULL);
    assert_int_equal(a.code, 0);
    assert_int_equal(b.code, 0);
    struct asker *first = hf_token(a.lock) > hf_token(b.lock) ? &a : &b;
    struct asker *second = first == &a ? &b : &a;
    uint64_t greatest = hf_token(first->lock);
    assert_int_equal(hf_release(first->lock, NULL), 0);
    assert_int_equal(hf_adopt(h, "page", hf_token(second->lock), &lock, NULL), 0);
    assert_int_equal(hf_release(lock, NULL), 0);
    assert_int_equal(hf_peek(h, "page", see_token, &token, NULL), 0);
    assert_true(token >= greatest);
    hf_close(h);
    hf_close(ha);
    hf_close(hb);
}

/* A waiter was granted the key by a process that died before it could wake the waiter. The grant
   then ended: the waiter sleeps, and isn't in the row any more. It has to ask anew. */
static void a_forgotten_waiter_asks_anew(void **state)
{
    struct asker a;
    hf *h = store(), *ha = store(), *third;
    hf_lock *lock;
    hf_rowkey key;
    hf_row row;
    (void)state;
    assert_int_equal(hf_acquire(h, "seat", NULL, &lock, NULL), 0);
    start(&a, ha, "seat", HF_EXCLUSIVE, 1);
    hf__pause(20000); /* now its expiry monitor runs */
    hf_row_init(&row);
    assert_int_equal(hf_key_make("seat", &key, NULL), 0);
    int rc;
    do { /* a last write of it may still come */
        get(h, "seat", &row);
        uint64_t seen = row.rev++;
        row.n_queue = 0;
        rc = hf__port_replace(&h->port, &key, seen, &row, NULL, NULL);
    } while (rc == HF_CONFLICT);
    assert_int_equal(rc, 0);
    third = store();
    hf_close(third); /* a session dies, or seems to */
    await_waiters(h, "seat", 1);
    assert_int_equal(hf_release(lock, NULL), 0);
    pthread_join(a.thread, NULL);
    assert_int_equal(a.code, 0);
    hf_release(a.lock, NULL);
    hf_row_clear(&row);
    hf_close(h);
    hf_close(ha);
}

static void ask_in(hf *by, const hf_rowkey *key, hf_row *row, uint8_t id, enum hf_mode mode,
                   enum hf_answer want)
{
    hf_party party = by->party;
    struct hf_event ask_for = {.kind = HF_EV_ENQUEUE, .party = &party};
    struct hf_outcome out;
    party.id[0] = id;
    party.mode = (uint8_t)mode;
    assert_int_equal(hf__cas_loop(&by->port, key, &ask_for, row, 0, 0, &out, NULL), 0);
    assert_int_equal(out.answer, want);
}

/* The head gives up just when the holder has died, and the others left it to the head to notice. */
static void who_gives_up_looks_first(void **state)
{
    hf *h = store(), *gone = store();
    struct hf_event give_up = {.kind = HF_EV_WITHDRAW};
    struct hf_outcome out;
    hf_rowkey key;
    hf_row row;
    (void)state;
    hf_row_init(&row);
    assert_int_equal(hf_key_make("door", &key, NULL), 0);
    ask_in(gone, &key, &row, 3, HF_EXCLUSIVE, HF_ANS_GRANTED);
    ask_in(h, &key, &row, 1, HF_EXCLUSIVE, HF_ANS_QUEUED);
    ask_in(h, &key, &row, 2, HF_EXCLUSIVE, HF_ANS_QUEUED);
    hf_close(gone); /* it has no lock for the hold, which dies with its session */
    memcpy(give_up.id, h->party.id, sizeof give_up.id);
    give_up.id[0] = 1;
    assert_int_equal(hf__cas_loop(&h->port, &key, &give_up, &row, 0, 0, &out, NULL), 0);
    assert_int_equal(row.n_queue, 0);
    assert_int_equal(row.n_holders, 1);
    assert_int_equal(row.party[0].id[0], 2);
    hf_row_clear(&row);
    hf_close(h);
}

/* The first waiter has died unnoticed. A release notices that before it returns. The other holders
   decide which waiter may be granted then. */
static void who_releases_passes_over_the_dead(void **state)
{
    (void)state;
    for (int shared = 0; shared < 2; shared++) {
        enum hf_mode mode = shared ? HF_SHARED : HF_EXCLUSIVE;
        hf *h = store(), *gone = store();
        struct hf_event release = {.kind = HF_EV_RELEASE};
        struct hf_outcome out;
        hf_rowkey key;
        hf_row row;
        hf_row_init(&row);
        assert_int_equal(hf_key_make(shared ? "gates" : "gate", &key, NULL), 0);
        ask_in(h, &key, &row, 1, mode, HF_ANS_GRANTED);
        release.token = row.token;
        if (shared) ask_in(h, &key, &row, 2, mode, HF_ANS_GRANTED);
        ask_in(gone, &key, &row, 3, HF_EXCLUSIVE, HF_ANS_QUEUED);
        ask_in(h, &key, &row, 4, mode, HF_ANS_QUEUED);
        hf_close(gone); /* it has no wait for the request, which dies with its session */
        assert_int_equal(hf__cas_loop(&h->port, &key, &release, &row, 0, 0, &out, NULL), 0);
        assert_int_equal(out.answer, HF_ANS_OK);
        get(h, key.text, &row);
        assert_int_equal(row.n_queue, 0);
        assert_int_equal(row.n_holders, 1 + shared);
        assert_int_equal(row.party[shared].id[0], 4);
        assert_int_equal(row.party[shared].flags, HF_PARTY_UNCLAIMED);
        hf_row_clear(&row);
        hf_close(h);
    }
}

/* Times that no driver could compute with are refused before a driver gets them. */
static void a_request_has_a_legal_time(void **state)
{
    static const int64_t bad[] = {-1, 1, 99, 3600001, INT64_MAX}, good[] = {0, 100, 3600000};
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        hf_open_options o = HF_OPEN_OPTIONS_INIT;
        hf *h = NULL;
        o.io_timeout_ms = bad[i];
        assert_int_equal(hf_open(url, &o, &h, NULL), HF_INVALID);
        assert_null(h);
    }
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        hf_open_options o = HF_OPEN_OPTIONS_INIT;
        hf *h;
        o.io_timeout_ms = good[i];
        assert_int_equal(hf_open(url, &o, &h, NULL), 0);
        hf_close(h);
    }
}

/* Too long isn't "at least a minute". */
static void an_idle_time_is_told_its_range(void **state)
{
    static const int64_t bad[] = {-1, 59999, INT64_MAX};
    hf *h = store();
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        hf_error err;
        assert_int_equal(hf_prune(h, bad[i], NULL, &err), HF_INVALID);
        assert_non_null(strstr(err.text, "must be 60,000 to 3,153,600,000,000"));
    }
    hf_close(h);
}

/* Free and no longer marked, but used just now: its row still says which token was the last. */
static void what_was_used_just_now_is_kept(void **state)
{
    hf *h = store();
    hf_once once;
    uint64_t n = 0;
    hf_error err;
    (void)state;
    if (hf_once_begin(h, "just now", 1, NULL, &once, &err)) fail_msg("%s", err.text);
    if (hf_once_finish(once.lock, NULL, 1, &err)) fail_msg("%s", err.text);
    usleep(2000);
    if (hf_prune(h, 86400000, &n, &err)) fail_msg("%s", err.text);
    assert_int_equal(n, 0);
    hf_close(h);
}

/* Acquires the key as soon as the reply was lost. */
static void *take_meanwhile(void *arg)
{
    struct asker *a = arg;
    struct hf__fault_counts counts;
    for (int64_t until = hf__local_us() + 600000000; hf__local_us() < until; hf__pause(200)) {
        hf__fault_counts(&counts);
        if (counts.injected) break;
    }
    return ask(a);
}

/* A release finds its grant broken, removes the successor whose lease is over, and the reply to
   that write is lost. When it reads again the next holder has come. That must not count as a
   release whose reply was lost. */
static void what_is_noted_is_no_release(void **state)
{
    hf *clean = store(), *sick;
    struct asker next = {.h = clean, .key = "noted", .options = HF_OPTIONS_INIT};
    hf_options o = HF_OPTIONS_INIT;
    hf_lock *lock, *successor;
    hf_error err;
    (void)state;
    setenv("HOLDFAST_FAULT", "replace:2:before", 1);
    sick = store();
    unsetenv("HOLDFAST_FAULT");
    if (hf_acquire(sick, next.key, NULL, &lock, &err)) fail_msg("%s", err.text);
    if (hf_break(clean, next.key, hf_token(lock), &err)) fail_msg("%s", err.text);
    o.lease_ms = 100;
    o.flags = HF_NO_RENEW;
    if (hf_acquire(clean, next.key, &o, &successor, &err)) fail_msg("%s", err.text);
    while (hf_left_ms(successor) > 0) hf__pause(1000);
    hf__pause(20000);
    next.options.flags = HF_ALLOW_RECURSIVE;
    assert_int_equal(pthread_create(&next.thread, NULL, take_meanwhile, &next), 0);
    assert_string_equal(hf_code_name(hf_release(lock, &err)), "LOST");
    assert_int_equal(pthread_join(next.thread, NULL), 0);
    assert_int_equal(next.code, 0);
    hf_close(sick);
    hf_close(clean);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_later_token_stays),
        cmocka_unit_test(a_forgotten_waiter_asks_anew),
        cmocka_unit_test(who_gives_up_looks_first),
        cmocka_unit_test(who_releases_passes_over_the_dead),
        cmocka_unit_test(a_request_has_a_legal_time),
        cmocka_unit_test(an_idle_time_is_told_its_range),
        cmocka_unit_test(what_was_used_just_now_is_kept),
        cmocka_unit_test(what_is_noted_is_no_release),
    };
    url = scratch("file:@");
    if (!url) return 70;
    return TEST_MAIN(tests);
}
