/*
 * staged_keys.c - subscriptions that are made and ended one by one, and events that name a key: a
 * staged store (staged.h) with subscribe, unsubscribe and next_event of its own.
 */
#include "staged_waiter.h"
#include "start_threads.h"

enum { KEYS = 6, EVENTS = 32, QUICK_US = 2000000 };

static struct {
    pthread_mutex_t mu;
    char subscribed[KEYS];
    int in_line[KEYS];
    int calls, ends, no_memory;
    hf_key_event event[EVENTS];
    int events;
    uint64_t gets[KEYS];
} seen = {.mu = PTHREAD_MUTEX_INITIALIZER};

static struct waiter waiter[KEYS];
static hf_lock *held[KEYS];

static const char *name_of(int i)
{
    static const char *const names[KEYS] = {"k0", "k1", "k2", "k3", "k4", "k5"};
    return names[i];
}

static int number_of(const hf_rowkey *key) { return key->text[1] - '0'; }

static int subscribe(hf_store *st, const hf_rowkey *key)
{
    int i = number_of(key);
    (void)st;
    pthread_mutex_lock(&seen.mu);
    int rc = seen.no_memory ? HF_NOMEM : 0;
    seen.calls++;
    seen.subscribed[i] = !rc;
    seen.in_line[i] = key->in_line;
    pthread_mutex_unlock(&seen.mu);
    return rc;
}

static void unsubscribe(hf_store *st, const hf_rowkey *key)
{
    (void)st;
    pthread_mutex_lock(&seen.mu);
    seen.ends++;
    seen.subscribed[number_of(key)] = 0;
    pthread_mutex_unlock(&seen.mu);
}

static int next_event(hf_store *st, hf_key_event *ret)
{
    (void)st;
    pthread_mutex_lock(&seen.mu);
    int is = seen.events > 0;
    if (is) *ret = seen.event[--seen.events];
    pthread_mutex_unlock(&seen.mu);
    return is;
}

static int (*real_get)(hf_store *, const hf_rowkey *, hf_row *, int64_t *, hf_error *);

static int get(hf_store *st, const hf_rowkey *key, hf_row *row, int64_t *ret_clock_us,
               hf_error *err)
{
    __atomic_add_fetch(&seen.gets[number_of(key)], 1, __ATOMIC_SEQ_CST);
    return real_get(st, key, row, ret_clock_us, err);
}

static void send(hf_key_event event)
{
    pthread_mutex_lock(&seen.mu);
    assert_true(seen.events < EVENTS);
    seen.event[seen.events++] = event;
    pthread_mutex_unlock(&seen.mu);
    pthread_mutex_lock(&h->mu);
    hf__kick_dispatcher(h);
    pthread_mutex_unlock(&h->mu);
}

static void send_for(int i)
{
    hf_rowkey key;
    OK(hf_key_make(name_of(i), &key, &stage_error));
    send((hf_key_event){key.hash, UINT64_MAX});
}

static void begin_with_keys(void)
{
    pthread_mutex_lock(&seen.mu);
    memset(seen.subscribed, 0, sizeof seen.subscribed);
    memset(seen.gets, 0, sizeof seen.gets);
    seen.calls = seen.ends = seen.no_memory = seen.events = 0;
    pthread_mutex_unlock(&seen.mu);
    begin(WATCHED);
    real_get = stage_driver.get;
    stage_driver.get = get;
    stage_notify.subscribe = subscribe;
    stage_notify.unsubscribe = unsubscribe;
    stage_notify.next_event = next_event;
    for (int i = 0; i < KEYS; i++) OK(stage_acquire(rival, name_of(i), 0, 0, 0, &held[i]));
}

static uint64_t gets_of(int i) { return __atomic_load_n(&seen.gets[i], __ATOMIC_SEQ_CST); }

static void await_gets(int i, uint64_t n)
{
    while (gets_of(i) < n) hf__pause(1000);
}

static int is_subscribed(int i)
{
    pthread_mutex_lock(&seen.mu);
    int is = seen.subscribed[i] && seen.in_line[i];
    pthread_mutex_unlock(&seen.mu);
    return is;
}

static int dispatcher_sleeps(void)
{
    pthread_mutex_lock(&h->mu);
    int sleeps = h->dispatcher_sleeps && !h->dispatcher_todo;
    pthread_mutex_unlock(&h->mu);
    return sleeps;
}

/* Each wait is queued, and its key is subscribed to. */
static void all_wait(void)
{
    hf_options options = HF_OPTIONS_INIT;
    options.wait_ms = HF_FOREVER;
    for (int i = 0; i < KEYS; i++) ask_and(h, &waiter[i], name_of(i), &options, note);
    for (int i = 0; i < KEYS; i++)
        while (!is_subscribed(i)) hf__pause(1000);
    while (!dispatcher_sleeps()) hf__pause(1000);
}

static void all_are_served(void)
{
    for (int i = 0; i < KEYS; i++) {
        if (!held[i]) continue;
        OK(hf_release(held[i], &stage_error));
        send_for(i);
        ends_with_the_key(&waiter[i]);
    }
    done();
}

/* Waits that look meanwhile because it is time (after some seconds) would be counted, too. */
static int leads_to_one(void)
{
    uint64_t before[KEYS];
    begin_with_keys();
    all_wait();
    int64_t began_us = hf__local_us();
    for (int i = 0; i < KEYS; i++) before[i] = gets_of(i);
    send_for(3);
    await_gets(3, before[3] + 1);
    while (!dispatcher_sleeps()) hf__pause(1000);
    int others = 0;
    for (int i = 0; i < KEYS; i++) others += i != 3 && gets_of(i) != before[i];
    int is_quick = hf__local_us() - began_us < QUICK_US;
    all_are_served();
    if (is_quick) assert_int_equal(others, 0);
    return is_quick;
}

static void an_event_leads_to_its_wait_alone(void **state)
{
    (void)state;
    while (!leads_to_one()) continue;
}

static void an_event_of_any_key_leads_to_all(void **state)
{
    uint64_t before[KEYS];
    (void)state;
    begin_with_keys();
    all_wait();
    for (int i = 0; i < KEYS; i++) before[i] = gets_of(i);
    send((hf_key_event){0, 0});
    for (int i = 0; i < KEYS; i++) await_gets(i, before[i] + 1);
    all_are_served();
}

/* An event may name the low bits of a hash: as many as there are. */
static void an_event_may_name_a_part_of_a_hash(void **state)
{
    uint64_t before[KEYS];
    hf_rowkey key;
    (void)state;
    begin_with_keys();
    all_wait();
    for (int bits = 1; bits < 64; bits++) {
        for (int i = 0; i < KEYS; i++) before[i] = gets_of(i);
        OK(hf_key_make(name_of(2), &key, &stage_error));
        uint64_t mask = (UINT64_C(1) << bits) - 1;
        send((hf_key_event){key.hash & mask, mask});
        await_gets(2, before[2] + 1);
    }
    all_are_served();
}

static void each_key_is_told_once(void **state)
{
    (void)state;
    begin_with_keys();
    all_wait();
    pthread_mutex_lock(&seen.mu);
    int calls = seen.calls;
    pthread_mutex_unlock(&seen.mu);
    assert_int_equal(calls, KEYS);
    OK(hf_release(held[0], &stage_error));
    held[0] = NULL;
    send_for(0);
    ends_with_the_key(&waiter[0]);
    while (is_subscribed(0)) hf__pause(1000); /* no wait is for this key any more */
    all_are_served();
    assert_int_equal(seen.calls, KEYS);
    assert_true(seen.ends <= KEYS);
}

/* There are no notifications for a while: the waits poll. When the store notifies again all of them
   look, because events in between are lost. */
static void what_was_not_heard_is_looked_for(void **state)
{
    (void)state;
    begin_with_keys();
    all_wait();
    stage_cue(S_LISTEN, 1, 3, INSTEAD, HF_UNAVAILABLE, NULL);
    OK(hf_release(held[1], &stage_error)); /* a change without an event */
    held[1] = NULL;
    pthread_mutex_lock(&h->mu);
    hf__kick_dispatcher(h);
    pthread_mutex_unlock(&h->mu);
    ends_with_the_key(&waiter[1]);
    stage_uncue();
    all_are_served();
}

/* A wait whose key can't be subscribed to looks as often as where nothing is notified. */
static void without_memory_it_looks_by_itself(void **state)
{
    (void)state;
    hf_options options = HF_OPTIONS_INIT;
    options.wait_ms = HF_FOREVER;
    begin_with_keys();
    pthread_mutex_lock(&seen.mu);
    seen.no_memory = 1;
    pthread_mutex_unlock(&seen.mu);
    for (int i = 0; i < KEYS; i++) ask_and(h, &waiter[i], name_of(i), &options, note);
    for (int i = 0; i < KEYS; i++) {
        await_gets(i, 2);
        OK(hf_release(held[i], &stage_error));
        ends_with_the_key(&waiter[i]);
    }
    done();
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_event_leads_to_its_wait_alone),
        cmocka_unit_test(an_event_of_any_key_leads_to_all),
        cmocka_unit_test(an_event_may_name_a_part_of_a_hash),
        cmocka_unit_test(each_key_is_told_once),
        cmocka_unit_test(what_was_not_heard_is_looked_for),
        cmocka_unit_test(without_memory_it_looks_by_itself),
    };
    return TEST_MAIN(tests);
}
