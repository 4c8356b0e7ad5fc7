/*
 * staged_lead.c - a thread that waits alone is woken by what it waits for, without the pump in
 * between; what is others' stays the pump's.
 */
#include "staged_waiter.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/timerfd.h>

/* ---- who waits in a thread of its own ---- */

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

/* ---- and who without ---- */

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

/* ---- who does the pump's work ---- */

static pthread_mutex_t by_mu = PTHREAD_MUTEX_INITIALIZER;
static pthread_t watches_by, looks_by;
static int watched;

static void note_watch(void)
{
    pthread_mutex_lock(&by_mu);
    watches_by = pthread_self();
    watched = 1;
    pthread_mutex_unlock(&by_mu);
}

static void note_look(void)
{
    pthread_mutex_lock(&by_mu);
    looks_by = pthread_self();
    pthread_mutex_unlock(&by_mu);
}

static void await_watch_by(pthread_t who, int is)
{
    for (int there = 0; !there;) {
        pthread_mutex_lock(&by_mu);
        there = watched && !pthread_equal(watches_by, who) == !is;
        pthread_mutex_unlock(&by_mu);
        if (!there) hf__pause(1000);
    }
}

static void await_line(const char *key)
{
    while (!__atomic_load_n(&stage_row(key)->n_queue, __ATOMIC_SEQ_CST)) hf__pause(1000);
}

/* The rival has "k" and "m". */
static void begin_watched(void)
{
    begin(WATCHED);
    watched = 0;
    OK(stage_acquire(rival, "k", 0, 60000, 0, &other));
    OK(stage_acquire(rival, "m", 0, 60000, 0, &lock));
    stage_cue(S_WATCH, 1, 1 << 20, INSTEAD, 0, note_watch);
}

static void leads(struct thread *t, const char *key, int64_t wait_ms)
{
    start(t, key, wait_ms);
    await_watch_by(t->id, 1);
}

static void who_waits_alone_looks_itself(void **state)
{
    (void)state;
    struct thread k;
    begin_watched();
    leads(&k, "k", 60000);
    stage_cue(S_GET, 1, 1 << 20, INSTEAD, 0, note_look);
    OK(hf_release(other, &stage_error));
    returns(&k, HF_OK);
    assert_true(pthread_equal(looks_by, k.id));
    /* What is said when nobody waits is to be read, too: a server may keep it until then. */
    await_watch_by(k.id, 0);
    OK(hf_release(k.lock, &stage_error));
    OK(hf_release(lock, &stage_error));
    done();
}

/* A time limit of one who is through holds nobody up. */
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
    leads(&k, "k", 60000);
    OK(hf_release(other, &stage_error));
    returns(&k, HF_OK);
    OK(hf_release(k.lock, &stage_error));
    OK(hf_release(lock, &stage_error));
    done();
}

/* They may take a lock that its caller has. */
static void what_others_are_told_is_told_by_the_pump(void **state)
{
    (void)state;
    struct thread k;
    struct waiter m, behind;
    begin_watched();
    leads(&k, "k", 60000);
    start_without(&m, "m", 60000);
    await_watch_by(k.id, 0);
    OK(hf_release(lock, &stage_error));
    ends_without(&m, HF_OK);
    assert_false(pthread_equal(m.told_by, k.id));
    await_watch_by(k.id, 1); /* alone again */
    start_without(&behind, "k", 50);
    ends_without(&behind, HF_TIMEOUT);
    assert_false(pthread_equal(behind.told_by, k.id));
    await_watch_by(k.id, 1);
    start_without(&behind, "k", HF_FOREVER);
    hf_wait_cancel(behind.wait);
    ends_without(&behind, HF_CANCELED);
    assert_false(pthread_equal(behind.told_by, k.id));
    OK(hf_release(other, &stage_error));
    returns(&k, HF_OK);
    OK(hf_release(k.lock, &stage_error));
    done();
}

static struct waiter late;
static int comes;    /* of the leader alone */
static int has_come; /* atomic */
static pthread_t leader;

static void another_comes(void)
{
    if (!pthread_equal(pthread_self(), leader) || comes++) return;
    start_without(&late, "free", HF_FOREVER);
    __atomic_store_n(&has_come, 1, __ATOMIC_RELEASE);
}

/* Nor of those who come while it is at it: as it listens anew, or as it finds that it has the key.
 */
static void who_comes_meanwhile_is_told_by_the_pump(void **state)
{
    (void)state;
    for (int at_the_end = 0; at_the_end < 2; at_the_end++) {
        struct thread k;
        begin_watched();
        leads(&k, "k", 60000);
        leader = k.id;
        comes = has_come = 0;
        stage_cue(at_the_end ? S_GET : S_LISTEN, 1, 1 << 20, INSTEAD, 0, another_comes);
        OK(at_the_end ? hf_release(other, &stage_error) : hf_renew(other, 0, &stage_error));
        while (!__atomic_load_n(&has_come, __ATOMIC_ACQUIRE)) hf__pause(1000);
        ends_without(&late, HF_OK);
        assert_false(pthread_equal(late.told_by, k.id));
        if (!at_the_end) OK(hf_release(other, &stage_error));
        returns(&k, HF_OK);
        OK(hf_release(k.lock, &stage_error));
        OK(hf_release(lock, &stage_error));
        done();
    }
}

/* Two threads for two keys: neither waits for the other. */
static void of_two_none_leads(void **state)
{
    (void)state;
    struct thread k, m;
    begin_watched();
    leads(&k, "k", 60000);
    start(&m, "m", 60000);
    await_line("m");
    await_watch_by(k.id, 0);
    OK(hf_release(lock, &stage_error));
    returns(&m, HF_OK);
    await_watch_by(k.id, 1);
    OK(hf_release(m.lock, &stage_error));
    OK(hf_release(other, &stage_error));
    returns(&k, HF_OK);
    OK(hf_release(k.lock, &stage_error));
    done();
}

static int one_is_through; /* atomic */

static int is_wanted(void)
{
    const hf_row *row = stage_row("turns");
    return __atomic_load_n(&row->n_queue, __ATOMIC_SEQ_CST) != 0 ||
           __atomic_load_n(&one_is_through, __ATOMIC_SEQ_CST);
}

/* How often somebody had listened when this thread wrote its place in line: it hears nothing before
   somebody has listened for it; and how often that was itself, without the pump. Under by_mu. */
static struct {
    pthread_t by;
    uint64_t listens;
    int others_listen, unheard, by_itself;
} turns;

static int is_its(pthread_t id)
{
    pthread_mutex_lock(&by_mu);
    return pthread_equal(id, turns.by);
}

static void note_place(void)
{
    if (is_its(pthread_self())) {
        turns.listens = stage_calls(S_LISTEN);
        turns.others_listen = 0;
    }
    pthread_mutex_unlock(&by_mu);
}

static void note_listening(void)
{
    if (!is_its(pthread_self())) turns.others_listen = 1;
    pthread_mutex_unlock(&by_mu);
}

static void note_hearing(void)
{
    if (is_its(pthread_self())) {
        turns.unheard += stage_calls(S_LISTEN) == turns.listens;
        turns.by_itself += !turns.others_listen;
    }
    pthread_mutex_unlock(&by_mu);
}

/* Returns when the pump has been woken by it. */
static void run_the_timer_out(void)
{
    struct pollfd unread = {.fd = h->nap_fd, .events = POLLIN};
    struct itimerspec left;
    hf__timer_set(h->nap_fd, 1);
    do {
        hf__pause(100);
        assert_int_equal(timerfd_gettime(h->nap_fd, &left), 0);
    } while (left.it_value.tv_sec || left.it_value.tv_nsec || poll(&unread, 1, 0));
}

/* It may be about to wake up when somebody begins to lead. */
static void woken_while_another_leads_the_pump_sleeps_on(void **state)
{
    (void)state;
    struct thread k;
    begin_watched();
    leads(&k, "k", 60000);
    turns.by = k.id;
    turns.others_listen = 0;
    stage_cue(S_LISTEN, 1, 1 << 20, INSTEAD, 0, note_listening);
    run_the_timer_out();
    run_the_timer_out(); /* so it has slept again since */
    stage_uncue();
    assert_false(turns.others_listen);
    OK(hf_release(other, &stage_error));
    returns(&k, HF_OK);
    OK(hf_release(k.lock, &stage_error));
    OK(hf_release(lock, &stage_error));
    done();
}

/* Wanted again before the pump wakes up, as a rule. And nobody sleeps on though he was told. */
static void *take_turns(void *arg)
{
    hf *mine = arg;
    hf_lock *l;
    char *failed = NULL;
    pthread_mutex_lock(&by_mu);
    if (mine == h) turns.by = pthread_self();
    pthread_mutex_unlock(&by_mu);
    for (int i = 0; i < 200 && !failed; i++) {
        hf_error err;
        int rc = hf_acquire(mine, "turns", NULL, &l, &err);
        while (!rc && !is_wanted()) hf__pause(50);
        if (!rc) rc = hf_release(l, &err);
        if (rc) failed = strdup(err.text);
    }
    __atomic_store_n(&one_is_through, 1, __ATOMIC_SEQ_CST);
    return failed;
}

static void in_turns_each_leads(void **state)
{
    (void)state;
    pthread_t by[2];
    void *failed;
    begin(CALM_LEASES);
    one_is_through = 0;
    stage_cue(S_LISTEN, 1, 1 << 20, INSTEAD, 0, note_listening);
    stage_cue(S_SWAP, 1, 1 << 20, INSTEAD, 0, note_place);
    stage_cue(S_WATCH, 1, 1 << 20, INSTEAD, 0, note_hearing);
    hf *of[] = {h, rival};
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&by[i], NULL, take_turns, of[i]), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_join(by[i], &failed), 0);
        if (failed) fail_msg("%s", (char *)failed);
    }
    assert_int_equal(turns.unheard, 0);
    assert_true(turns.by_itself > 0);
    done();
}

static void its_time_runs_out(void **state)
{
    (void)state;
    struct thread k;
    begin_watched();
    leads(&k, "k", 300);
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
    leads(&k, "k", HF_FOREVER);
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
    leads(&k, "k", HF_FOREVER);
    start(&m, "m", HF_FOREVER);
    await_line("m");
    await_watch_by(k.id, 0);
    assert_int_equal(pthread_kill(k.id, SIGUSR1), 0);
    while (!__atomic_load_n(&stop.stopped, __ATOMIC_SEQ_CST)) hf__pause(1000);
    assert_int_equal(pthread_create(&closer, NULL, close_it, &took_us), 0);
    while (__atomic_load_n(&stage_row("k")->n_queue, __ATOMIC_SEQ_CST)) hf__pause(1000);
    returns(&m, HF_CANCELED);
    hf__pause(5000); /* by now the closer waits */
    __atomic_store_n(&stop.go_on, 1, __ATOMIC_SEQ_CST);
    returns(&k, HF_CANCELED);
    pthread_join(closer, NULL);
    stage_uncue();
    hf_close(rival);
    return took_us;
}

/* It looks again ten times a second, in any case; but is told before. */
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

/* One that doesn't stand in line, behind one that does. */
static void closing_awaits_who_only_tries(void **state)
{
    (void)state;
    struct waiter w;
    struct thread tries;
    begin_watched();
    start_without(&w, "k", HF_FOREVER);
    await_line("k");
    await_watch_by(pthread_self(), 0);
    stage_cue(S_TAKE, 1, 1, INSTEAD, 0, closing_begins);
    start(&tries, "k", 0);
    returns(&tries, HF_BUSY);
    assert_int_equal(pthread_join(closer, NULL), 0);
    assert_int_equal(w.code, HF_CANCELED);
    hf_wait_free(w.wait);
    stage_uncue();
    hf_close(rival);
}

/* From then on the pump looks now and then, and asks to hear no more often. */
static void deaf_it_is_driven_by_the_pump(void **state)
{
    (void)state;
    struct thread k;
    begin_watched();
    leads(&k, "k", 60000);
    looks_by = k.id;
    stage_cue(S_GET, 1, 1 << 20, INSTEAD, 0, note_look);
    stage_cue(S_LISTEN, 1, 1 << 20, INSTEAD, HF_UNAVAILABLE, NULL);
    OK(hf_renew(other, 0, &stage_error)); /* it hears of it, and then no more */
    uint64_t looked = stage_calls(S_GET), listened = stage_calls(S_LISTEN);
    stage_await(S_GET, looked + 3);
    assert_true(stage_calls(S_LISTEN) < listened + 20);
    OK(hf_release(other, &stage_error));
    returns(&k, HF_OK);
    assert_false(pthread_equal(looks_by, k.id));
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
    leads(&k, "k", 60000);
    OK(hf_release(other, &stage_error));
    returns(&k, HF_OK);
    is_claimed("k", k.lock);
    OK(hf_release(k.lock, &stage_error));
    OK(hf_release(long_held, &stage_error));
    OK(hf_release(lock, &stage_error));
    done();
}

/* By who leads from then on, for the pump sleeps. It is looked at last of the two, so that no other
   look comes behind. */
static void what_the_pump_was_handed_is_claimed(void **state)
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
    OK(hf_renew(lock, 0, &stage_error)); /* of which the pump hears, for both */
    stage_await(S_WATCH, watched_before + 1);
    OK(hf_release(lock, &stage_error));
    await_end(&m);
    await_watch_by(k.id, 1);
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
        cmocka_unit_test(who_waits_alone_looks_itself),
        cmocka_unit_test(past_deadlines_are_forgotten),
        cmocka_unit_test(what_others_are_told_is_told_by_the_pump),
        cmocka_unit_test(who_comes_meanwhile_is_told_by_the_pump),
        cmocka_unit_test(woken_while_another_leads_the_pump_sleeps_on),
        cmocka_unit_test(of_two_none_leads),
        cmocka_unit_test(in_turns_each_leads),
        cmocka_unit_test(its_time_runs_out),
        cmocka_unit_test(closing_ends_it),
        cmocka_unit_test(closing_is_told_of_the_last_thread),
        cmocka_unit_test(closing_awaits_who_only_tries),
        cmocka_unit_test(deaf_it_is_driven_by_the_pump),
        cmocka_unit_test(what_it_is_handed_is_claimed),
        cmocka_unit_test(what_the_pump_was_handed_is_claimed),
    };
    return TEST_MAIN(tests);
}
