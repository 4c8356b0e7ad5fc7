/*
 * staged_own_thread.c - a wait that its caller's thread drives: its time limit, its end by
 * hf_close, and the claim of a handover.
 */
#include "staged_waiter.h"

#include <pthread.h>
#include <signal.h>

/* ---- waits in a thread of their own ---- */

struct thread {
    pthread_t id;
    const char *key;
    int64_t wait_ms;
    hf_lock *lock;
    int code;
    hf_error err;
};

static void *wait_for(void *arg)
{
    struct thread *t = arg;
    hf_options o = HF_OPTIONS_INIT;
    o.wait_ms = t->wait_ms;
    t->code = hf_acquire(h, t->key, &o, &t->lock, &t->err);
    return NULL;
}

static void start(struct thread *t, const char *key, int64_t wait_ms)
{
    *t = (struct thread){.key = key, .wait_ms = wait_ms};
    assert_int_equal(pthread_create(&t->id, NULL, wait_for, t), 0);
}

static void returns(struct thread *t, int code)
{
    assert_int_equal(pthread_join(t->id, NULL), 0);
    if (t->code != code)
        fail_msg("%s, not %s: %s", hf_code_name(t->code), hf_code_name(code), t->err.text);
}

/* ---- and waits without ---- */

static void start_without(struct waiter *w, const char *key, int64_t wait_ms)
{
    hf_options o = HF_OPTIONS_INIT;
    o.wait_ms = wait_ms;
    ask_and(h, w, key, &o, note);
}

static void ends_without(struct waiter *w, int code)
{
    ends(w, code);
    if (w->lock) OK(hf_release(w->lock, &stage_error));
}

/* ---- the stage ---- */

static void await_line(const char *key)
{
    while (!stage_waiting(key)) hf__pause(1000);
}

/* The rival has "k" and "m". */
static void begin_watched(void)
{
    begin(WATCHED);
    OK(stage_acquire(rival, "k", 0, 60000, 0, &other));
    OK(stage_acquire(rival, "m", 0, 60000, 0, &lock));
}

static void waits(struct thread *t, const char *key, int64_t wait_ms)
{
    start(t, key, wait_ms);
    await_line(key);
}

/* The time limit of a wait that has ended holds no other up. */
static void past_deadlines_are_forgotten(void **state)
{
    (void)state;
    struct thread k;
    struct waiter first, second;
    begin_watched();
    start_without(&first, "k", 600000);
    start_without(&second, "k", 600000);
    await_line("k");
    OK(hf_release(other, &stage_error));
    ends_without(&first, HF_OK);
    ends_without(&second, HF_OK);
    OK(stage_acquire(rival, "k", 60000, 60000, 0, &other));
    waits(&k, "k", 60000);
    OK(hf_release(other, &stage_error));
    returns(&k, HF_OK);
    OK(hf_release(k.lock, &stage_error));
    OK(hf_release(lock, &stage_error));
    done();
}

static void its_time_runs_out(void **state)
{
    (void)state;
    struct thread k;
    begin_watched();
    waits(&k, "k", 300);
    returns(&k, HF_TIMEOUT);
    assert_int_equal(stage_row("k")->n_queue, 0);
    OK(hf_release(other, &stage_error));
    OK(hf_release(lock, &stage_error));
    done();
}

static void closing_ends_it(void **state)
{
    (void)state;
    struct thread k;
    begin_watched();
    waits(&k, "k", HF_FOREVER);
    hf_close(h);
    returns(&k, HF_CANCELED);
    assert_int_equal(stage_row("k")->n_queue, 0);
    stage_uncue();
    hf_close(rival);
}

static struct {
    int stopped, go_on; /* atomic */
} stop;

static void stand_still(int sig)
{
    (void)sig;
    __atomic_store_n(&stop.stopped, 1, __ATOMIC_SEQ_CST);
    while (!__atomic_load_n(&stop.go_on, __ATOMIC_SEQ_CST)) hf__pause(1000);
}

static void *close_it(void *arg)
{
    int64_t *took_us = arg, begun_us = hf__local_us();
    hf_close(h);
    *took_us = hf__local_us() - begun_us;
    return NULL;
}

/* The thread of one of two waits goes on only when both are over, and is waited for. */
static int64_t closing_takes_us(void)
{
    struct thread k, m;
    pthread_t closer;
    int64_t took_us;
    begin_watched();
    stop.stopped = stop.go_on = 0;
    waits(&k, "k", HF_FOREVER);
    start(&m, "m", HF_FOREVER);
    await_line("m");
    assert_int_equal(pthread_kill(k.id, SIGUSR1), 0);
    while (!__atomic_load_n(&stop.stopped, __ATOMIC_SEQ_CST)) hf__pause(1000);
    assert_int_equal(pthread_create(&closer, NULL, close_it, &took_us), 0);
    await_queue_of("k", 0);
    returns(&m, HF_CANCELED);
    hf__pause(5000); /* by now the closing thread waits */
    __atomic_store_n(&stop.go_on, 1, __ATOMIC_SEQ_CST);
    returns(&k, HF_CANCELED);
    pthread_join(closer, NULL);
    stage_uncue();
    hf_close(rival);
    return took_us;
}

/* The closing thread would look again ten times a second, but is signalled before. */
static void closing_is_told_of_the_last_thread(void **state)
{
    (void)state;
    struct sigaction still = {.sa_handler = stand_still}, before;
    sigaction(SIGUSR1, &still, &before);
    int rounds = 0;
    while (closing_takes_us() > 90000) assert_true(++rounds < 20);
    sigaction(SIGUSR1, &before, NULL);
}

static pthread_t closer;
static int64_t closing_took_us;

static void closing_begins(void)
{
    assert_int_equal(pthread_create(&closer, NULL, close_it, &closing_took_us), 0);
    while (!hf__closing(h)) hf__pause(1000);
}

/* A request that isn't queued, behind one that is. */
static void closing_awaits_who_only_tries(void **state)
{
    (void)state;
    struct waiter w;
    struct thread tries;
    begin_watched();
    start_without(&w, "k", HF_FOREVER);
    await_line("k");
    stage_cue(S_ACQUIRE, 1, 1, INSTEAD, 0, closing_begins);
    start(&tries, "k", 0);
    returns(&tries, HF_BUSY);
    assert_int_equal(pthread_join(closer, NULL), 0);
    assert_int_equal(w.code, HF_CANCELED);
    hf_wait_free(w.wait);
    stage_uncue();
    hf_close(rival);
}

/* The wait doesn't ask for a subscription more often, either. */
static void disconnected_it_polls(void **state)
{
    (void)state;
    struct thread k;
    begin_watched();
    waits(&k, "k", 60000);
    stage_cue(S_LISTEN, 1, 1 << 20, INSTEAD, HF_UNAVAILABLE, NULL);
    OK(hf_renew(other, 0, &stage_error)); /* it is notified of this, and of nothing more */
    uint64_t looked = stage_calls(S_GET), listened = stage_calls(S_LISTEN);
    stage_await(S_GET, looked + 3);
    assert_true(stage_calls(S_LISTEN) < listened + 20);
    OK(hf_release(other, &stage_error));
    returns(&k, HF_OK);
    OK(hf_release(k.lock, &stage_error));
    OK(hf_release(lock, &stage_error));
    done();
}

/* ---- the renewer is told of new holds ---- */

static void is_claimed(const char *key, const hf_lock *by)
{
    hf_rowkey k;
    hf_row row;
    int64_t clock_us;
    OK(hf_key_make(key, &k, &stage_error));
    hf_row_init(&row);
    do {
        hf__pause(1000);
        OK(stage_driver.get(rival->port.st, &k, &row, &clock_us, &stage_error));
        assert_true(hf_left_ms(by) > 0);
    } while (row.party[0].flags & HF_PARTY_UNCLAIMED);
    hf_row_clear(&row);
}

static void what_it_is_handed_is_claimed(void **state)
{
    (void)state;
    struct thread k;
    hf_lock *long_held;
    begin_watched();
    OK(stage_acquire(h, "long held", 0, 3600000, 0, &long_held));
    waits(&k, "k", 60000);
    OK(hf_release(other, &stage_error));
    returns(&k, HF_OK);
    is_claimed("k", k.lock);
    OK(hf_release(k.lock, &stage_error));
    OK(hf_release(long_held, &stage_error));
    OK(hf_release(lock, &stage_error));
    done();
}

/* The last look of the two, so that no other look follows. */
static void what_the_dispatcher_was_handed_is_claimed(void **state)
{
    (void)state;
    struct thread k;
    struct waiter m;
    hf_lock *long_held;
    begin_watched();
    OK(stage_acquire(h, "long held", 0, 3600000, 0, &long_held));
    start_without(&m, "m", HF_FOREVER);
    await_line("m");
    start(&k, "k", 60000);
    await_line("k");
    uint64_t watched_before = stage_calls(S_WATCH);
    OK(hf_renew(lock, 0, &stage_error)); /* the dispatcher is notified of this, for both */
    stage_await(S_WATCH, watched_before + 1);
    OK(hf_release(lock, &stage_error));
    await_end(&m);
    is_claimed("m", m.lock);
    ends_without(&m, HF_OK);
    OK(hf_release(other, &stage_error));
    returns(&k, HF_OK);
    OK(hf_release(k.lock, &stage_error));
    OK(hf_release(long_held, &stage_error));
    done();
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(past_deadlines_are_forgotten),
        cmocka_unit_test(its_time_runs_out),
        cmocka_unit_test(closing_ends_it),
        cmocka_unit_test(closing_is_told_of_the_last_thread),
        cmocka_unit_test(closing_awaits_who_only_tries),
        cmocka_unit_test(disconnected_it_polls),
        cmocka_unit_test(what_it_is_handed_is_claimed),
        cmocka_unit_test(what_the_dispatcher_was_handed_is_claimed),
    };
    return TEST_MAIN(tests);
}
