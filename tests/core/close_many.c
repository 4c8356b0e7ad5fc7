/*
 * close_many.c - a handle that is closed while it holds many locks releases them by few requests,
 * or by several at once; what isn't answered is asked again. See staged.h.
 */
#include "staged_waiter.h"

#include <stdio.h>
#include <string.h>

enum { HOLDS = 48, CALLS_MOST = 1, LONG_US = 40000000, THREADS = 4 };

enum way { DOES, LOSES_IT, LOSES_REPLY };
static struct {
    pthread_mutex_t mu;
    int on, calls; /* counted from the moment at which the handle is closed */
    enum way way;
    int times; /* the first `times` of these calls are lost */
} s = {.mu = PTHREAD_MUTEX_INITIALIZER};

static void one(hf_store *st, hf_replace *i)
{
    hf_row ignored;
    int64_t clock = 0;
    int hit = s.times > 0;
    s.times -= hit;
    hf_row_init(&ignored);
    if (!hit)
        i->result = stage_driver.replace(st, i->key, i->seen, i->row, i->cur, &i->clock_us, i->err);
    else if (s.way == LOSES_REPLY)
        stage_driver.replace(st, i->key, i->seen, i->row, &ignored, &clock, NULL);
    if (hit) i->result = hf_fail(i->err, HF_UNKNOWN, 0, "staged: reply lost");
    hf_row_clear(&ignored);
}

static int st_replace_many(hf_store *st, hf_replace *item, size_t n, int64_t until_us)
{
    (void)until_us;
    pthread_mutex_lock(&s.mu);
    s.calls += s.on;
    for (size_t i = 0; i < n; i++) one(st, &item[i]);
    pthread_mutex_unlock(&s.mu);
    return 0;
}

static void begin_many(int many)
{
    begin(SERVER);
    if (many) stage_driver.replace_many = st_replace_many;
    hf_close(h);
    h = stage_open("a");
    s.on = s.calls = s.times = 0;
}

static const char *key_of(int i)
{
    static char text[24];
    snprintf(text, sizeof text, "k%d", i);
    return text;
}

static void hold(int n)
{
    hf_lock *l;
    for (int i = 0; i < n; i++) OK(stage_acquire(h, key_of(i), 0, 600000, 0, &l));
}

static void lose(enum way way, int times)
{
    pthread_mutex_lock(&s.mu);
    s.way = way;
    s.times = times;
    s.on = 1;
    pthread_mutex_unlock(&s.mu);
}

static void close_it(void)
{
    hf_close(h);
    h = NULL;
}

static int held(int n)
{
    int found = 0;
    for (int i = 0; i < n; i++) found += stage_row(key_of(i))->n_holders != 0;
    return found;
}

static void end_many(void)
{
    stage_uncue();
    hf_close(h);
    hf_close(rival);
}

/* ---- tests ---- */

static void by_few_requests(void **state)
{
    (void)state;
    begin_many(1);
    hold(HOLDS);
    uint64_t single = stage_calls(S_SWAP) + stage_calls(S_GET);
    lose(DOES, 0);
    close_it();
    /* Each of these writes belongs to one replace_many: see `one`. */
    single = stage_calls(S_SWAP) + stage_calls(S_GET) - single;
    assert_int_equal(held(HOLDS), 0);
    assert_int_equal(s.calls, CALLS_MOST);
    assert_int_equal(single, HOLDS);
    end_many();
}

static void what_is_not_answered_is_asked_again(void **state)
{
    (void)state;
    for (int way = LOSES_IT; way <= LOSES_REPLY; way++) {
        begin_many(1);
        hold(HOLDS);
        lose((enum way)way, HOLDS / 2);
        close_it();
        assert_int_equal(held(HOLDS), 0);
        assert_true(s.calls <= 2 * CALLS_MOST);
        end_many();
    }
}

static int count_waiters(void *arg, const hf_info *info)
{
    *(size_t *)arg = info->n_waiters;
    return 0;
}

/* Counts as the store does, because the rival's threads write the row. */
static void await_waiter(const char *key)
{
    for (size_t n = 0; !n; hf__pause(1000))
        OK(hf_peek(rival, key, count_waiters, &n, &stage_error));
}

/* A waiter is handed the key; the release of a grant that was broken leaves the next one alone. */
static void each_by_its_own_row(void **state)
{
    (void)state;
    hf_lock *first, *second;
    struct waiter waits;
    hf_options o = HF_OPTIONS_INIT;
    begin_many(1);
    OK(stage_acquire(h, "k", 0, 600000, 0, &first));
    OK(stage_acquire(h, "broken", 0, 600000, 0, &second));
    hold(8);
    o.wait_ms = LONG_US / 1000;
    ask_and(rival, &waits, "k", &o, note);
    await_waiter("k");
    OK(hf_break(rival, "broken", hf_token(second), &stage_error));
    OK(stage_acquire(rival, "broken", 0, 600000, 0, &other));
    lose(DOES, 0);
    close_it();
    assert_int_equal(held(8), 0);
    ends_with_the_key(&waits);
    assert_int_equal(stage_row("broken")->n_holders, 1);
    OK(hf_release(other, &stage_error));
    end_many();
}

/* ---- one by one, several at once ---- */

static int in_flight, most; /* atomic */

static void waits_for_others(void)
{
    int n = __atomic_add_fetch(&in_flight, 1, __ATOMIC_SEQ_CST);
    int64_t until = hf__local_us() + LONG_US;
    if (n > __atomic_load_n(&most, __ATOMIC_SEQ_CST)) __atomic_store_n(&most, n, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&most, __ATOMIC_SEQ_CST) < THREADS && hf__local_us() < until)
        hf__pause(1000);
    __atomic_sub_fetch(&in_flight, 1, __ATOMIC_SEQ_CST);
}

static void several_at_once(void **state)
{
    (void)state;
    begin_many(0);
    hold(40);
    in_flight = most = 0;
    stage_cue(S_SWAP, 1, THREADS, INSTEAD, 0, waits_for_others);
    close_it();
    assert_int_equal(held(40), 0);
    assert_int_equal(most, THREADS);
    end_many();
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_few_requests),
        cmocka_unit_test(what_is_not_answered_is_asked_again),
        cmocka_unit_test(each_by_its_own_row),
        cmocka_unit_test(several_at_once),
    };
    return TEST_MAIN(tests);
}
