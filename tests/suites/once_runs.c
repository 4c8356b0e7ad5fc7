/*
 * once_runs.c - events that many processes want to run, some of which are killed.
 *
 * An event whose finish returned is done for ever; one that wasn't finished is run by the next, or
 * by nobody if that was asked for. What an execution does is counted in shared memory.
 *
 * ROUNDS=N runs each test N times instead of the usual number; SEED=N does others.
 */
#include "file/hurt.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { RUNNERS = 10, WAIT_MS = 600000 };

static struct effects { /* of one event, in shared memory */
    int begun, ended;   /* executions */
    int running, together;
} *effects;

static const char *url;
static char event[64];

static int make_store(void **state)
{
    (void)state;
    hurt_seed();
    url = hurt_url(hurt_path("store"));
    effects =
        mmap(NULL, sizeof *effects, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return effects == MAP_FAILED;
}

static void new_event(const char *name, long round)
{
    memset(effects, 0, sizeof *effects);
    snprintf(event, sizeof event, "%s/%ld", name, round);
}

static int add(int *n, int by) { return __atomic_add_fetch(n, by, __ATOMIC_SEQ_CST); }

/* What the execution is about. Two at once would be noticed. */
static void execute(int us)
{
    add(&effects->begun, 1);
    if (add(&effects->running, 1) > 1) add(&effects->together, 1);
    if (us) usleep((useconds_t)us);
    add(&effects->running, -1);
    add(&effects->ended, 1);
}

struct plan {
    unsigned flags;
    int64_t wait_ms;
    int late_us; /* from having begun to the execution */
    int us;      /* that it takes */
    int dies;    /* by its own hand, right after finish returned */
    int meets;   /* waits for number[1] to be set before it begins */
    int stays;   /* executes until number[2] is set */
};

/* One runner. at: 1 opened, 2 executes, 3 finished or heard that it is done. number[0]: 1 it ran,
   2 it heard. */
static int runner(struct hurt_child *me, void *arg)
{
    const struct plan *plan = arg;
    hf *h;
    hf_error err;
    hf_once once = {0};
    hf_options o = HF_OPTIONS_INIT;
    char result[64];
    o.wait_ms = plan->wait_ms;
    o.flags = plan->flags;
    int rc = hf_open(url, NULL, &h, &err);
    if (rc) return hurt_say(me, "%s", err.text);
    __atomic_store_n(&me->at, 1, __ATOMIC_RELEASE);
    while (plan->meets && !__atomic_load_n(&me->number[1], __ATOMIC_ACQUIRE)) continue;
    rc = hf_once_begin(h, event, HF_FOREVER, &o, &once, &err);
    if (rc) return hurt_say(me, "%s", err.text);
    if (once.lock) {
        __atomic_store_n(&me->at, 2, __ATOMIC_RELEASE);
        for (int64_t until = hurt_us() + plan->late_us; hurt_us() < until;) continue;
        while (plan->stays && !__atomic_load_n(&me->number[2], __ATOMIC_ACQUIRE)) usleep(200);
        execute(plan->us);
        snprintf(result, sizeof result, "by %d", (int)getpid());
        rc = hf_once_finish(once.lock, result, HF_FOREVER, &err);
        if (rc) return hurt_say(me, "%s", err.text);
        if (plan->dies) kill(getpid(), SIGKILL);
    }
    snprintf(me->text, sizeof me->text, "%s", once.lock ? result : once.result);
    me->number[0] = once.lock ? 1 : 2;
    __atomic_store_n(&me->at, 3, __ATOMIC_RELEASE);
    hf_close(h);
    return 0;
}

static struct hurt_child *start(const struct plan *plan)
{
    return hurt_start(runner, (void *)(uintptr_t)plan);
}

/* Waits for a runner that isn't to be killed: did it run (1), or hear that the event is done (2)?
 */
static int outcome(struct hurt_child *c, char text[600])
{
    hurt_await(c, 20000);
    if (c->late || c->signal || c->status)
        fail_msg("'%s': %s, signal %d, at %ld: %s", event, c->late ? "hangs" : "ends", c->signal,
                 c->at, c->text);
    int how = (int)c->number[0];
    memcpy(text, c->text, sizeof c->text);
    hurt_free(c);
    return how;
}

static void meet(struct hurt_child *const *c, int n)
{
    for (int i = 0; i < n; i++) hurt_until(c[i], 1);
    for (int i = 0; i < n; i++) __atomic_store_n(&c[i]->number[1], 1, __ATOMIC_RELEASE);
}

/* Ten begin at the same moment; each ends with the same result. */
static void ten_run_it_once(void **state)
{
    (void)state;
    static const struct plan plan = {.wait_ms = WAIT_MS, .us = 2000, .meets = 1};
    long rounds = hurt_count("ROUNDS", 30);
    for (long round = 0; round < rounds; round++) {
        struct hurt_child *c[RUNNERS];
        char first[600] = "", text[600];
        int ran = 0;
        new_event("ten", round);
        for (int i = 0; i < RUNNERS; i++) c[i] = start(&plan);
        meet(c, RUNNERS);
        for (int i = 0; i < RUNNERS; i++) {
            ran += outcome(c[i], text) == 1;
            if (i == 0) memcpy(first, text, sizeof first);
            assert_string_equal(text, first);
        }
        assert_int_equal(ran, 1);
        assert_int_equal(effects->begun, 1);
        assert_int_equal(effects->ended, 1);
    }
}

/* Without patience they hear that somebody runs it now. */
static void the_impatient_are_busy(void **state)
{
    (void)state;
    static const struct plan plan = {.wait_ms = WAIT_MS, .us = 1, .stays = 1};
    char text[600];
    hf *h;
    hf_once once = {0};
    hf_options o = HF_OPTIONS_INIT;
    new_event("busy", 0);
    struct hurt_child *c = start(&plan);
    hurt_until(c, 2);
    OK(hf_open(url, NULL, &h, &hurt_error));
    o.wait_ms = 0;
    IS(HF_BUSY, hf_once_begin(h, event, HF_FOREVER, &o, &once, &hurt_error));
    o.wait_ms = 20;
    IS(HF_TIMEOUT, hf_once_begin(h, event, HF_FOREVER, &o, &once, &hurt_error));
    __atomic_store_n(&c->number[2], 1, __ATOMIC_RELEASE);
    assert_int_equal(outcome(c, text), 1);
    o.wait_ms = 0;
    OK(hf_once_begin(h, event, HF_FOREVER, &o, &once, &hurt_error));
    assert_null(once.lock);
    assert_string_equal(once.result, text);
    hf_close(h);
}

/* The runner is killed while others wait: one of them runs it, at once. */
static void a_killed_one_is_taken_over(void **state)
{
    (void)state;
    static const struct plan endless = {.wait_ms = WAIT_MS, .us = 60000000};
    static const struct plan waits = {.wait_ms = WAIT_MS, .us = 500};
    long rounds = hurt_count("ROUNDS", 30);
    int64_t least_us = INT64_MAX;
    for (long round = 0; round < rounds; round++) {
        struct hurt_child *c[3];
        char text[600];
        int ran = 0;
        new_event("killed", round);
        struct hurt_child *first = start(&endless);
        hurt_until(first, 2);
        for (int i = 0; i < 3; i++) c[i] = start(&waits);
        for (int i = 0; i < 3; i++) hurt_until(c[i], 1);
        if (round % 2) usleep(3000); /* they stand in the queue, or are about to */
        int64_t killed = hurt_us();
        add(&effects->running, -1); /* which it can't do any more */
        hurt_free(first);
        for (int i = 0; i < 3; i++) ran += outcome(c[i], text) == 1;
        assert_int_equal(ran, 1);
        assert_int_equal(effects->begun, 2);
        assert_int_equal(effects->ended, 1);
        assert_int_equal(effects->together, 0);
        if (hurt_us() - killed < least_us) least_us = hurt_us() - killed;
    }
    assert_true(least_us < 3000000);
}

static void a_marker_survives_its_maker(void **state)
{
    (void)state;
    static const struct plan dies = {.wait_ms = 0, .dies = 1}, next = {.wait_ms = 0};
    long rounds = hurt_count("ROUNDS", 100);
    for (long round = 0; round < rounds; round++) {
        char text[600];
        new_event("survives", round);
        struct hurt_child *c = start(&dies);
        hurt_await(c, 10000);
        assert_int_equal(c->signal, SIGKILL);
        hurt_free(c);
        assert_int_equal(outcome(start(&next), text), 2);
        assert_memory_equal(text, "by ", 3);
        assert_int_equal(effects->begun, 1);
    }
}

/* A runner that is killed at some moment between opening and finishing. */
static void cut_down(const struct plan *plan)
{
    struct hurt_child *c = start(plan);
    hurt_until(c, 1);
    int64_t until = hurt_us() + (int64_t)hurt_below(UINT64_C(40) << hurt_below(9));
    __atomic_store_n(&c->number[1], 1, __ATOMIC_RELEASE);
    while (hurt_us() < until) continue;
    hurt_kill(c);
    effects->running = 0;
    hurt_free(c);
}

static void at_most_once_is_never_twice(void **state)
{
    (void)state;
    static const struct plan plan = {
        .flags = HF_AT_MOST_ONCE, .wait_ms = WAIT_MS, .late_us = 20, .meets = 1};
    static const struct plan last = {.flags = HF_AT_MOST_ONCE, .wait_ms = WAIT_MS};
    long rounds = hurt_count("ROUNDS", 200), ran = 0, lost = 0;
    for (long round = 0; round < rounds || ((!ran || !lost) && round < 50 * rounds); round++) {
        char text[600];
        new_event("at-most", round);
        for (int i = 0; i < 3; i++) cut_down(&plan);
        int how = outcome(start(&last), text);
        if (effects->begun > 1) fail_msg("round %ld: ran %d times", round, effects->begun);
        if (how == 1) assert_int_equal(effects->begun, 1);
        assert_int_equal(outcome(start(&last), text), 2); /* done, whether it ran or not */
        ran += effects->begun;
        lost += !effects->begun;
    }
    print_message("# %ld rounds, %ld ran, %ld were given up\n", rounds, ran, lost);
    assert_true(ran > 0 && lost > 0); /* else it was killed at the wrong moments only */
}

/* The usual promise: it is run until it is finished, and not again. */
static void at_least_once_is_never_forgotten(void **state)
{
    (void)state;
    static const struct plan plan = {.wait_ms = WAIT_MS, .us = 50, .meets = 1};
    static const struct plan last = {.wait_ms = WAIT_MS};
    long rounds = hurt_count("ROUNDS", 100), again = 0;
    for (long round = 0; round < rounds; round++) {
        char text[600];
        new_event("at-least", round);
        for (int i = 0; i < 3; i++) cut_down(&plan);
        outcome(start(&last), text);
        int begun = effects->begun;
        assert_true(effects->ended >= 1);
        assert_int_equal(effects->together, 0);
        assert_int_equal(outcome(start(&last), text), 2);
        assert_int_equal(effects->begun, begun);
        again += begun > 1;
    }
    print_message("# %ld rounds, %ld had more than one execution\n", rounds, again);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(ten_run_it_once),
        cmocka_unit_test(the_impatient_are_busy),
        cmocka_unit_test(a_killed_one_is_taken_over),
        cmocka_unit_test(a_marker_survives_its_maker),
        cmocka_unit_test(at_most_once_is_never_twice),
        cmocka_unit_test(at_least_once_is_never_forgotten),
    };
    return HURT_MAIN(argc, argv, tests, make_store, NULL);
}
