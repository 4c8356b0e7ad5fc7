/*
 * staged_threads.c - rare events of a handle's expiry monitor and renewer: deaths of many parties
 * or of none, reported or not; a store that fails just then; a handle that is closed meanwhile.
 */
#include "lost.h"
#include "renewal_queue.h"
#include "staged_waiter.h"
#include "start_threads.h"
#include "wait_schedule.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

static void ask(hf *store, struct waiter *w, int64_t lease_ms)
{
    hf_options o = HF_OPTIONS_INIT;
    o.lease_ms = lease_ms;
    o.wait_ms = 600000;
    ask_and(store, w, "k", &o, note);
}

/* Waits until `is` returns true under the mutex. */
static void await(int (*is)(void))
{
    pthread_mutex_lock(&h->mu);
    for (; !is(); pthread_mutex_lock(&h->mu)) {
        pthread_mutex_unlock(&h->mu);
        hf__pause(1000);
    }
    pthread_mutex_unlock(&h->mu);
}

static int monitor_sleeps_long(void)
{
    return h->monitor_sleeps && h->deaths_reported &&
           h->monitor_until_us > hf__local_us() + 5000000;
}

static void until_the_handle_closes(void)
{
    for (int closing = 0; closing < 3; hf__pause(1000)) closing = hf__closing(h);
}

/* Puts a first waiter into the row that never does anything. */
static void add_a_sleeper(uint64_t session)
{
    hf_row *row = stage_row("k");
    assert_int_equal(hf_row_room(row, 2), 0);
    hf_party *p = &row->party[1];
    hf_party_copy(p, &row->party[0]);
    memset(p->id, 7, sizeof p->id);
    p->token = 0;
    p->expires_us = 0;
    p->session = session;
    row->n_queue = 1;
    row->rev++;
}

/* ---- the expiry monitor: ends ---- */

static void the_end_of_a_session_is_told_in_time(void **state)
{
    (void)state;
    begin(LEASES);
    OK(stage_acquire(h, "k", 0, 300, HF_NO_RENEW, &lock));
    struct pollfd fd = {hf_lost_fd(lock), POLLIN, 0};
    assert_int_equal(poll(&fd, 1, 60000), 1);
    IS(HF_LOST, hf_release(lock, &stage_error));
    done();
}

static int told; /* atomic */

static void on_lost(void *arg, hf_lock *l)
{
    (void)arg, (void)l;
    __atomic_add_fetch(&told, 1, __ATOMIC_SEQ_CST);
}

static int has_been_round(void) { return h->monitor_sleeps && h->monitor_until_us > 0; }

/* The expiry monitor finds the lock lost while it is being released. */
static void it_is_lost(void)
{
    pthread_mutex_lock(&h->mu);
    hf__mark_lost(lock, 0);
    pthread_mutex_unlock(&h->mu);
    await(has_been_round);
}

static void what_is_being_given_back_is_not_told(void **state)
{
    (void)state;
    begin(SERVER);
    OK(stage_acquire(h, "k", 0, 60000, 0, &lock));
    told = 0;
    hf_on_lost(lock, on_lost, NULL);
    await(has_been_round);
    stage_cue(S_SWAP, 1, 1, INSTEAD, 0, it_is_lost);
    hf_release(lock, &stage_error);
    assert_int_equal(told, 0);
    done();
}

/* ---- the expiry monitor: waits ---- */

/* The wait depends on its own handle's session: the store isn't asked whether that lives. */
static void who_waits_for_its_own_handle(void **state)
{
    (void)state;
    struct waiter w;
    begin(LOCAL);
    OK(stage_acquire(h, "k", 0, 0, 0, &lock));
    ask(h, &w, 0);
    await_queue(1);
    await(monitor_sleeps_long);
    assert_int_equal(stage_calls(S_ALIVE), 0);
    OK(hf_release(lock, &stage_error));
    ends_with_the_key(&w);
    done();
}

static int alive_asked; /* atomic */

static int each_is_asked_for(hf_store *st, uint64_t session, hf_error *err)
{
    (void)st, (void)session, (void)err;
    return __atomic_add_fetch(&alive_asked, 1, __ATOMIC_SEQ_CST) > 0;
}

/* More holders than are remembered in one round. */
static void a_crowd_of_holders_is_looked_at(void **state)
{
    (void)state;
    enum { CROWD = 2 * HF_ROUND_CAP };
    struct waiter w;
    begin(LOCAL);
    stage_driver.caps.holders_cap = CROWD;
    change_caps();
    stage_liveness.alive = each_is_asked_for;
    __atomic_store_n(&alive_asked, 0, __ATOMIC_SEQ_CST);
    OK(stage_acquire(rival, "k", 0, 0, 0, &other));
    hf_row *row = stage_row("k");
    assert_int_equal(hf_row_room(row, CROWD), 0);
    for (uint32_t i = 1; i < CROWD; i++) {
        hf_party_copy(&row->party[i], &row->party[0]);
        row->party[i].id[0] = (uint8_t)i;
        row->party[i].session = 1000 + i;
        row->party[i].token = ++row->token;
    }
    row->n_holders = CROWD;
    row->rev = row->token;
    ask(h, &w, 0);
    await_queue(1);
    await(monitor_sleeps_long);
    hf_close(h); /* this gives up the wait */
    h = NULL;
    ends(&w, HF_CANCELED);
    assert_true(__atomic_load_n(&alive_asked, __ATOMIC_SEQ_CST) >= CROWD);
    stage_row("k")->n_holders = 1;
    hf_release(other, NULL);
    done();
}

static int nobody_can_tell(hf_store *st, uint64_t session, hf_error *err)
{
    (void)st, (void)session, (void)err;
    return -1;
}

static int all_are_planned(void)
{
    for (const struct hf_wait *w = h->at_store; w; w = w->list_next)
        if (w->check.at_us <= hf__local_us()) return 0;
    return h->monitor_sleeps && !h->monitor_todo;
}

/* Each wait that depends on it is looked at again soon. */
static void a_session_of_which_the_store_can_not_tell(void **state)
{
    (void)state;
    struct waiter w[2];
    const char *const key[] = {"k", "j"};
    hf_lock *held[2];
    hf_options o = HF_OPTIONS_INIT;
    begin(LOCAL);
    o.wait_ms = 600000;
    stage_liveness.alive = nobody_can_tell;
    for (int i = 0; i < 2; i++) {
        OK(stage_acquire(rival, key[i], 0, 0, 0, &held[i]));
        ask_and(h, &w[i], key[i], &o, note);
    }
    await(all_are_planned);
    pthread_mutex_lock(&h->mu);
    for (struct hf_wait *one = h->at_store; one; one = one->list_next) hf__check_at(one, 0);
    hf__kick_monitor(h, 0);
    pthread_mutex_unlock(&h->mu);
    await(all_are_planned);
    pthread_mutex_lock(&h->mu);
    for (const struct hf_wait *one = h->at_store; one; one = one->list_next)
        assert_true(one->check.at_us <= hf__local_us() + HF_POLL_MS * 1000);
    pthread_mutex_unlock(&h->mu);
    hf_close(h); /* this gives up the waits */
    h = NULL;
    for (int i = 0; i < 2; i++) ends(&w[i], HF_CANCELED);
    for (int i = 0; i < 2; i++) hf_release(held[i], NULL);
    done();
}

static void in_line_for_nobody(hf_row *row)
{
    if (row->n_holders != 1 || row->n_queue != 1) return;
    hf_party_copy(&row->party[0], &row->party[1]);
    row->n_holders = 0;
}

/* The dispatcher sleeps: the expiry monitor notices. */
static void who_waits_for_nobody_is_let_in(void **state)
{
    (void)state;
    struct waiter w;
    begin(LOCAL);
    OK(stage_acquire(rival, "k", 0, 0, 0, &other));
    uint64_t watched = stage_calls(S_WATCH);
    ask(h, &w, 0);
    await_queue(1);
    stage_await(S_WATCH, watched + 1);
    await(monitor_sleeps_long);
    stage_forge(in_line_for_nobody);
    stage_tell_deaths(1);
    ends(&w, HF_OK);
    stage_forge(NULL);
    OK(hf_release(w.lock, &stage_error));
    hf_release(other, NULL);
    done();
}

/* The write that follows the notice fails: the monitor notices again. */
static void what_was_noticed_in_vain_is_noticed_again(void **state)
{
    (void)state;
    struct waiter w;
    begin(LOCAL);
    OK(stage_acquire(rival, "k", 0, 0, 0, &other));
    ask(h, &w, 0);
    await_queue(1);
    await(monitor_sleeps_long);
    stage_cue(S_SWAP, 1, 1, INSTEAD, HF_UNAVAILABLE, NULL);
    stage_kill(stage_row("k")->party[0].session);
    stage_tell_deaths(1);
    ends(&w, HF_OK);
    OK(hf_release(w.lock, &stage_error));
    hf_release(other, NULL);
    done();
}

static hf_wait *pinned;

static int both_looked;
static int have_both_looked(void) { return __atomic_exchange_n(&both_looked, 0, __ATOMIC_ACQUIRE); }
static int has_looked(void) { return pinned->look_at_us && pinned->pins == 1; }

static int is_noticed(void)
{
    return pinned->check.nth && pinned->check.at_us && pinned->pins == 1;
}

/* Waits until the dispatcher has looked, in the expiry monitor; or the other way round. */
static void the_other_one_looks(void)
{
    int dispatcher = pthread_equal(pthread_self(), h->dispatcher);
    pthread_mutex_lock(&h->mu);
    if (dispatcher) {
        hf__check_at(pinned, 0);
        hf__kick_monitor(h, 0);
    } else {
        pinned->look_at_us = 0;
        hf__schedule(pinned);
        hf__kick_dispatcher(h);
    }
    pthread_mutex_unlock(&h->mu);
    await(dispatcher ? is_noticed : has_looked);
    __atomic_store_n(&both_looked, 1, __ATOMIC_RELEASE);
}

/* The dispatcher looks for the wait while the expiry monitor does, and the other way round. */
static void two_look_for_one_wait(void **state)
{
    (void)state;
    struct waiter w;
    begin(LOCAL);
    OK(stage_acquire(rival, "k", 0, 0, 0, &other));
    uint64_t watched = stage_calls(S_WATCH);
    ask(h, &w, 0);
    await_queue(1);
    stage_await(S_WATCH, watched + 1);
    await(monitor_sleeps_long);
    pinned = w.wait;
    stage_cue(S_GET, 1, 1, INSTEAD, 0, the_other_one_looks);
    stage_tell_deaths(1);
    await(have_both_looked);
    stage_suspend(11000000); /* the monitor has looked for deaths for long enough */
    await(monitor_sleeps_long);
    stage_cue(S_GET, 1, 1, INSTEAD, 0, the_other_one_looks);
    pthread_mutex_lock(&h->mu);
    pinned->look_at_us = 0;
    hf__schedule(pinned);
    hf__kick_dispatcher(h);
    pthread_mutex_unlock(&h->mu);
    await(have_both_looked);
    OK(hf_release(other, &stage_error));
    ends_with_the_key(&w);
    done();
}

/* A local store in which no session dies while it holds or waits. */
static void a_local_store_without_deaths(void **state)
{
    (void)state;
    struct waiter w;
    stage(LOCAL);
    stage_liveness.death_fd = stage_liveness.death_read = NULL;
    h = stage_open("a");
    rival = stage_open("rival");
    OK(stage_acquire(rival, "k", 0, 60000, 0, &other));
    ask(h, &w, 60000);
    await_queue(1);
    await(monitor_sleeps_long);
    pthread_mutex_lock(&h->mu);
    assert_int_equal(h->deaths_reported, 1); /* the monitor needn't look for deaths */
    pthread_mutex_unlock(&h->mu);
    OK(hf_release(other, &stage_error));
    ends_with_the_key(&w);
    done();
}

/* After a notice of a death that can't be seen yet, the monitor looks again and again, but not for
   ever. */
static void a_death_that_is_never_seen(void **state)
{
    (void)state;
    struct waiter w;
    begin(LOCAL);
    OK(stage_acquire(rival, "k", 0, 0, 0, &other));
    ask(h, &w, 0);
    await_queue(1);
    await(monitor_sleeps_long);
    uint64_t asked = stage_calls(S_GET);
    stage_tell_deaths(1);
    stage_await(S_GET, asked + 1);
    stage_suspend(11000000);
    await(monitor_sleeps_long);
    assert_true(stage_calls(S_GET) >= asked + 11);
    asked = stage_calls(S_GET);
    pthread_mutex_lock(&h->mu);
    hf__kick_monitor(h, 0); /* from then on a wakeup isn't about deaths */
    pthread_mutex_unlock(&h->mu);
    await(monitor_sleeps_long);
    assert_int_equal(stage_calls(S_GET), asked);
    OK(hf_release(other, &stage_error));
    ends_with_the_key(&w);
    done();
}

/* ---- promises ---- */

/* The waiter that it handed the key to doesn't claim, and the store is away when the monitor looks
   after that: other clients pass the key on. */
static void a_promise_that_cannot_be_kept(void **state)
{
    (void)state;
    for (int closing = 0; closing < 2; closing++) {
        begin(LOCAL);
        OK(stage_acquire(rival, "x", 0, 0, 0, &other));
        OK(stage_acquire(h, "k", 0, 0, 0, &lock));
        add_a_sleeper(stage_row("x")->party[0].session);
        OK(hf_release(lock, &stage_error));
        assert_true(stage_row("k")->party[0].flags & HF_PARTY_UNCLAIMED);
        uint64_t asked = stage_calls(S_GET);
        stage_cue(S_GET, 1, 1, INSTEAD, HF_UNAVAILABLE, closing ? until_the_handle_closes : NULL);
        stage_suspend(2000000);
        pthread_mutex_lock(&h->mu);
        hf__kick_monitor(h, 0);
        pthread_mutex_unlock(&h->mu);
        stage_await(S_GET, asked + 1);
        hf_close(h);
        h = NULL;
        assert_int_equal(stage_row("k")->n_holders, 1);
        OK(hf_release(other, &stage_error));
        done();
    }
}

static void without_a_monitor_nothing_is_promised(void **state)
{
    (void)state;
    struct waiter w;
    begin(LOCAL);
    OK(stage_acquire(h, "k", 0, 0, 0, &lock));
    ask(rival, &w, 0);
    await_queue(1);
    stage_no_threads(1);
    OK(hf_release(lock, &stage_error));
    pthread_mutex_lock(&h->mu);
    assert_int_equal(h->monitor_runs, 0);
    pthread_mutex_unlock(&h->mu);
    stage_no_threads(0);
    ends_with_the_key(&w);
    done();
}

/* ---- the dispatcher ---- */

static void wait_in_a_callback(void *arg, int code, hf_lock *l, const hf_error *err)
{
    hf_lock *none;
    IS(HF_BUSY, stage_acquire(h, "held", 60000, 60000, 0, &none)); /* at once */
    note(arg, code, l, err);
}

/* A callback that runs on the dispatcher can't wait for what the dispatcher has to do. */
static void a_callback_does_not_wait(void **state)
{
    (void)state;
    struct waiter w;
    begin(SERVER);
    OK(stage_acquire(rival, "held", 0, 60000, 0, &other));
    ask_and(h, &w, "k", NULL, wait_in_a_callback);
    ends_with_the_key(&w);
    OK(hf_release(other, &stage_error));
    done();
}

/* ---- the renewer ---- */

static void renew_now(void)
{
    pthread_mutex_lock(&h->mu);
    hf__renew_at(lock, 0);
    pthread_cond_signal(&h->renewer_cond);
    pthread_mutex_unlock(&h->mu);
}

static void a_renewal_that_is_refused_loses_it(void **state)
{
    (void)state;
    begin(SERVER);
    OK(stage_acquire(h, "k", 0, 60000, 0, &lock));
    struct pollfd fd = {hf_lost_fd(lock), POLLIN, 0};
    break_it();
    renew_now();
    assert_int_equal(poll(&fd, 1, 60000), 1);
    IS(HF_LOST, hf_release(lock, &stage_error));
    done();
}

static int is_given_back(void) { return lock->releasing; }
static void until_it_is_given_back(void) { await(is_given_back); }

/* The lock is released while the renewer works on it, and its renewal fails. */
static void a_renewal_that_fails_as_it_is_given_back(void **state)
{
    (void)state;
    begin(SERVER);
    OK(stage_acquire(h, "k", 0, 60000, 0, &lock));
    uint64_t asked = stage_calls(S_SWAP);
    stage_cue(S_SWAP, 1, 1, INSTEAD, HF_DENIED, until_it_is_given_back);
    renew_now();
    stage_await(S_SWAP, asked + 1);
    OK(hf_release(lock, &stage_error));
    assert_int_equal(stage_row("k")->n_holders, 0);
    done();
}

static int renewer_sleeps(void) { return h->renewer_until_us > 0; }

/* A lock whose release waits for a callback is passed over. */
static void what_is_being_given_back_is_not_renewed(void **state)
{
    (void)state;
    begin(SERVER);
    OK(stage_acquire(h, "k", 0, 60000, 0, &lock));
    uint64_t asked = stage_calls(S_SWAP);
    pthread_mutex_lock(&h->mu);
    lock->releasing = 1;
    hf__renew_at(lock, 0);
    h->renewer_until_us = -1;
    pthread_cond_signal(&h->renewer_cond);
    pthread_mutex_unlock(&h->mu);
    await(renewer_sleeps);
    assert_int_equal(stage_calls(S_SWAP), asked);
    pthread_mutex_lock(&h->mu);
    lock->releasing = 0;
    pthread_mutex_unlock(&h->mu);
    OK(hf_release(lock, &stage_error));
    done();
}

/* ---- closing ---- */

static void *give_it_back_at_last(void *arg)
{
    (void)arg;
    for (int closing = 0; closing < 2; hf__pause(1000)) closing = hf__closing(h);
    pthread_mutex_lock(&h->mu);
    lock->releasing = 0;
    pthread_cond_broadcast(&h->changed);
    pthread_mutex_unlock(&h->mu);
    return NULL;
}

/* A thread is releasing the lock as the handle is closed: hf_close waits for that. */
static void closing_while_one_is_given_back(void **state)
{
    (void)state;
    pthread_t thread;
    begin(SERVER);
    OK(stage_acquire(h, "k", 0, 60000, 0, &lock));
    pthread_mutex_lock(&h->mu);
    lock->releasing = 1;
    pthread_mutex_unlock(&h->mu);
    assert_int_equal(pthread_create(&thread, NULL, give_it_back_at_last, NULL), 0);
    hf_close(h);
    h = NULL;
    pthread_join(thread, NULL);
    assert_int_equal(stage_row("k")->n_holders, 0);
    done();
}

static void until_closing_waits(void)
{
    for (int closing = 0; closing < 2; hf__pause(1000)) closing = hf__closing(h);
}

/* So is a renewal. */
static void closing_while_one_is_renewed(void **state)
{
    (void)state;
    begin(SERVER);
    OK(stage_acquire(h, "k", 0, 60000, 0, &lock));
    uint64_t asked = stage_calls(S_SWAP);
    stage_cue(S_SWAP, 1, 1, INSTEAD, 0, until_closing_waits);
    renew_now();
    stage_await(S_SWAP, asked + 1);
    hf_close(h);
    h = NULL;
    assert_int_equal(stage_row("k")->n_holders, 0);
    done();
}

/* The store is away, and says so at once: each of its locks is tried as long as there is time. */
static void closing_where_the_store_says_no_at_once(void **state)
{
    (void)state;
    static const char *const keys[] = {"a", "b", "c"};
    static const int codes[] = {HF_UNAVAILABLE, HF_UNKNOWN};
    for (int i = 0; i < 2; i++) {
        hf_open_options o = HF_OPEN_OPTIONS_INIT;
        begin(SERVER);
        hf_close(h);
        o.io_timeout_ms = i ? 100 : 60000;
        OK(hf_open("staged:a", &o, &h, &stage_error));
        for (int k = 0; k < 3; k++) OK(stage_acquire(h, keys[k], 0, 60000, HF_NO_RENEW, &lock));
        uint64_t tried = stage_calls(S_SWAP);
        stage_cue(S_SWAP, 1, 1 << 20, INSTEAD, codes[i], NULL);
        hf_close(h);
        h = NULL;
        if (!i) assert_int_equal(stage_calls(S_SWAP), tried + 6); /* blind, and having looked */
        done();
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_end_of_a_session_is_told_in_time),
        cmocka_unit_test(what_is_being_given_back_is_not_told),
        cmocka_unit_test(who_waits_for_its_own_handle),
        cmocka_unit_test(a_session_of_which_the_store_can_not_tell),
        cmocka_unit_test(a_crowd_of_holders_is_looked_at),
        cmocka_unit_test(who_waits_for_nobody_is_let_in),
        cmocka_unit_test(what_was_noticed_in_vain_is_noticed_again),
        cmocka_unit_test(two_look_for_one_wait),
        cmocka_unit_test(a_local_store_without_deaths),
        cmocka_unit_test(a_death_that_is_never_seen),
        cmocka_unit_test(a_promise_that_cannot_be_kept),
        cmocka_unit_test(without_a_monitor_nothing_is_promised),
        cmocka_unit_test(a_callback_does_not_wait),
        cmocka_unit_test(a_renewal_that_is_refused_loses_it),
        cmocka_unit_test(a_renewal_that_fails_as_it_is_given_back),
        cmocka_unit_test(what_is_being_given_back_is_not_renewed),
        cmocka_unit_test(closing_while_one_is_given_back),
        cmocka_unit_test(closing_while_one_is_renewed),
        cmocka_unit_test(closing_where_the_store_says_no_at_once),
    };
    return TEST_MAIN(tests);
}
