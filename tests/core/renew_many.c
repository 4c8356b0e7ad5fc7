/*
 * renew_many.c - many renewals by one request (replace_many): each has a result of its own, what
 * isn't answered is sent again as it is, what is over isn't renewed. See staged.h.
 */
#include "renewal_queue.h"
#include "staged_pair.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

enum { MANY = 16 };

/* What the store does with the next replaces of this key, and how many of them. */
enum way { DOES, LOSES_IT, LOSES_REPLY };
static struct {
    pthread_mutex_t mu;
    pthread_cond_t changed;
    const char *key; /* NULL: every key */
    enum way way;
    int times;
    int calls, replaces;  /* so far */
    size_t size[MANY];    /* of the calls */
    char order[MANY][64]; /* keys, as they were asked for */
    uint64_t seen[MANY];
    hf_row row[MANY]; /* the rows that were to be stored */
    int holds;        /* calls don't return until this is 0 */
} s = {.mu = PTHREAD_MUTEX_INITIALIZER};

static void one(hf_store *st, hf_replace *i)
{
    hf_row ignored;
    int64_t clock = 0;
    int hit = s.times > 0 && (!s.key || !strcmp(s.key, i->key->text));
    if (s.replaces < MANY) {
        snprintf(s.order[s.replaces], sizeof s.order[0], "%s", i->key->text);
        s.seen[s.replaces] = i->seen;
        assert_int_equal(hf_row_copy(&s.row[s.replaces], i->row), 0);
    }
    s.replaces++;
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
    for (size_t i = 0; i < n; i++) one(st, &item[i]);
    if (n && s.calls < MANY) s.size[s.calls] = n;
    s.calls += n > 0;
    pthread_cond_broadcast(&s.changed);
    while (s.holds) pthread_cond_wait(&s.changed, &s.mu);
    pthread_mutex_unlock(&s.mu);
    return 0;
}

static void begin_many(void)
{
    stage(SERVER);
    stage_driver.replace_many = st_replace_many;
    pthread_mutex_lock(&s.mu);
    for (int i = 0; i < MANY; i++) hf_row_init(&s.row[i]);
    s.key = NULL;
    s.times = s.calls = s.replaces = s.holds = 0;
    pthread_mutex_unlock(&s.mu);
    h = stage_open("a");
    rival = stage_open("rival");
}

static void end_many(void)
{
    done();
    for (int i = 0; i < MANY; i++) hf_row_clear(&s.row[i]);
}

static void fails(const char *key, enum way way, int times)
{
    pthread_mutex_lock(&s.mu);
    s.key = key;
    s.way = way;
    s.times = times;
    pthread_mutex_unlock(&s.mu);
}

static void await_replaces(int n)
{
    pthread_mutex_lock(&s.mu);
    while (s.replaces < n) pthread_cond_wait(&s.changed, &s.mu);
    pthread_mutex_unlock(&s.mu);
}

/* Makes all of these locks due for renewal now. */
static void renew_now(hf_lock *const *l, int n)
{
    pthread_mutex_lock(&h->mu);
    for (int i = 0; i < n; i++) hf__renew_at(l[i], 0);
    pthread_cond_signal(&h->renewer_cond);
    pthread_mutex_unlock(&h->mu);
}

static uint64_t renewals(void)
{
    hf_stats now = {.size = sizeof now};
    OK(hf_get_stats(h, &now));
    return now.renewals;
}

static void await_renewals(uint64_t n)
{
    while (renewals() < n) hf__pause(1000);
}

static const char *const keys[] = {"a", "b", "c", "d", "e", "f", "g", "h",
                                   "i", "j", "k", "l", "m", "n", "o", "p"};

static void hold(hf_lock **l, int n, int64_t lease_ms)
{
    for (int i = 0; i < n; i++) OK(stage_acquire(h, keys[i], 0, lease_ms, 0, &l[i]));
}

/* ---- tests ---- */

static void each_has_its_own_result(void **state)
{
    (void)state;
    hf_lock *l[4];
    begin_many();
    hold(l, 4, 60000);
    OK(hf_break(rival, "b", hf_token(l[1]), &stage_error));
    uint64_t gets = stage_calls(S_GET);
    renew_now(l, 4);
    await_renewals(3);
    struct pollfd fd = {hf_lost_fd(l[1]), POLLIN, 0};
    assert_int_equal(poll(&fd, 1, 60000), 1);
    assert_int_equal(stage_calls(S_GET), gets); /* this handle knows its rows */
    for (int i = 0; i < 4; i++) IS(i == 1 ? HF_LOST : HF_OK, hf_release(l[i], &stage_error));
    end_many();
}

/* A write that isn't answered: the holder believes no longer than before, and the same write is
   sent again. */
static void what_is_not_answered_is_sent_again(void **state)
{
    (void)state;
    for (int way = LOSES_IT; way <= LOSES_REPLY; way++) {
        hf_lock *l[2];
        begin_many();
        hold(l, 2, 60000);
        int64_t ends = stage_row("a")->party[0].expires_us;
        stage_step_clock(1000000);
        fails("a", (enum way)way, 2);
        pthread_mutex_lock(&s.mu);
        s.holds = 1;
        pthread_mutex_unlock(&s.mu);
        renew_now(l, 2);
        await_replaces(2);
        pthread_mutex_lock(&h->mu);
        assert_true(l[0]->expires_us <= ends);
        pthread_mutex_unlock(&h->mu);
        pthread_mutex_lock(&s.mu);
        s.holds = 0;
        pthread_cond_broadcast(&s.changed);
        pthread_mutex_unlock(&s.mu);
        await_renewals(2);
        await_replaces(4);
        int a[3], n = 0;
        for (int i = 0; i < 4; i++)
            if (!strcmp(s.order[i], "a")) a[n++] = i;
        assert_int_equal(n, 3);
        for (int i = 1; i < 3; i++) {
            assert_true(s.seen[a[i]] == s.seen[a[0]]);
            assert_true(hf_row_equal(&s.row[a[i]], &s.row[a[0]]));
        }
        assert_true(hf_row_equal(stage_row("a"), &s.row[a[0]]));
        assert_true(l[0]->expires_us == stage_row("a")->party[0].expires_us);
        for (int i = 0; i < 2; i++) OK(hf_release(l[i], &stage_error));
        end_many();
    }
}

/* Never answered: it is over when its lease is, and another one gets the key. */
static void an_unanswered_one_is_believed_no_longer(void **state)
{
    (void)state;
    hf_lock *l[1];
    begin_many();
    fails(NULL, LOSES_IT, 1 << 20);
    hold(l, 1, 400);
    OK(stage_acquire(rival, "a", 60000, 60000, 0, &other));
    assert_int_equal(hf_left_ms(l[0]), 0);
    OK(hf_release(other, &stage_error));
    hf_release(l[0], NULL);
    end_many();
}

static void what_is_over_is_not_renewed(void **state)
{
    (void)state;
    hf_lock *l[3];
    begin_many();
    hold(l, 2, 60000);
    OK(stage_acquire(h, "c", 0, 600000, 0, &l[2]));
    struct pollfd fd = {hf_lost_fd(l[0]), POLLIN, 0};
    stage_suspend(61000000);
    stage_step_clock(61000000);
    renew_now(l, 3);
    await_renewals(1);
    assert_int_equal(poll(&fd, 1, 60000), 1);
    assert_int_equal(s.replaces, 1);
    assert_string_equal(s.order[0], "c");
    IS(HF_LOST, hf_release(l[0], &stage_error));
    IS(HF_LOST, hf_release(l[1], &stage_error));
    OK(hf_release(l[2], &stage_error));
    end_many();
}

static void the_most_urgent_is_the_first(void **state)
{
    (void)state;
    hf_lock *l[3];
    static const int64_t leases[] = {600000, 60000, 300000};
    begin_many();
    for (int i = 0; i < 3; i++) OK(stage_acquire(h, keys[i], 0, leases[i], 0, &l[i]));
    renew_now(l, 3);
    await_renewals(3);
    assert_string_equal(s.order[0], "b");
    assert_string_equal(s.order[1], "c");
    assert_string_equal(s.order[2], "a");
    for (int i = 0; i < 3; i++) OK(hf_release(l[i], &stage_error));
    end_many();
}

/* Grants of one key are renewed by one write. */
static void one_write_renews_all_of_a_key(void **state)
{
    (void)state;
    hf_lock *l[3];
    hf_options o = HF_OPTIONS_INIT;
    o.lease_ms = 60000;
    o.mode = HF_SHARED;
    o.flags = HF_ALLOW_RECURSIVE;
    begin_many();
    for (int i = 0; i < 3; i++) OK(hf_acquire(h, "a", &o, &l[i], &stage_error));
    stage_step_clock(1000000);
    int64_t before[3];
    for (int i = 0; i < 3; i++) before[i] = l[i]->expires_us;
    /* The first two don't know the row any more: then it is read, and renewed. */
    renew_now(l, 3);
    await_renewals(3);
    for (int i = 0; i < 3; i++) assert_true(l[i]->expires_us >= before[i]);
    assert_true(s.replaces <= 2);
    /* Grants of the key that are due soon are renewed by it, too. */
    int was = s.replaces;
    pthread_mutex_lock(&h->mu);
    for (int i = 0; i < 3; i++) hf__renew_at(l[i], i ? hf__local_us() + 4000000 : 0);
    pthread_cond_signal(&h->renewer_cond);
    pthread_mutex_unlock(&h->mu);
    await_renewals(6);
    assert_true(s.replaces <= was + 2);
    for (int i = 0; i < 3; i++) OK(hf_release(l[i], &stage_error));
    end_many();
}

static void *give_back(void *arg) { return hf_release(arg, NULL) ? arg : NULL; }

/* A lock whose renewal hangs is released as soon as the renewal is over. */
static void it_is_given_back_behind_a_renewal(void **state)
{
    (void)state;
    hf_lock *l[2];
    pthread_t thread;
    void *failed;
    begin_many();
    hold(l, 2, 60000);
    fails("a", LOSES_IT, 1);
    s.holds = 1;
    renew_now(l, 2);
    await_replaces(2);
    assert_int_equal(pthread_create(&thread, NULL, give_back, l[0]), 0);
    for (int is = 0; !is; hf__pause(1000)) {
        pthread_mutex_lock(&h->mu);
        is = l[0]->releasing;
        pthread_mutex_unlock(&h->mu);
    }
    assert_int_equal(stage_row("a")->n_holders, 1);
    pthread_mutex_lock(&s.mu);
    s.holds = 0;
    pthread_cond_broadcast(&s.changed);
    pthread_mutex_unlock(&s.mu);
    pthread_join(thread, &failed);
    assert_null(failed);
    assert_int_equal(stage_row("a")->n_holders, 0);
    OK(hf_release(l[1], &stage_error));
    assert_int_equal(s.replaces, 2); /* the released lock isn't renewed again */
    end_many();
}

/* Due times are spread: one request also renews what is due within a twelfth of its lease. */
static void what_is_due_soon_is_asked_for_as_well(void **state)
{
    (void)state;
    hf_lock *l[3];
    begin_many();
    hold(l, 3, 60000);
    pthread_mutex_lock(&h->mu);
    for (int i = 0; i < 3; i++) hf__renew_at(l[i], i ? hf__local_us() + (2 + 2 * i) * 1000000 : 0);
    pthread_cond_signal(&h->renewer_cond);
    pthread_mutex_unlock(&h->mu);
    await_renewals(1);
    pthread_mutex_lock(&s.mu);
    assert_int_equal(s.replaces, 2);
    assert_string_equal(s.order[0], "a");
    assert_string_equal(s.order[1], "b");
    pthread_mutex_unlock(&s.mu);
    for (int i = 0; i < 3; i++) OK(hf_release(l[i], &stage_error));
    end_many();
}

/* A renewal that always hangs is soon alone in its request, but each of those that hung beside it
   isn't. */
static void what_hung_is_asked_for_again_with_a_quarter_as_many(void **state)
{
    (void)state;
    hf_lock *l[MANY];
    begin_many();
    hold(l, MANY, 60000);
    fails(NULL, LOSES_IT, MANY);
    renew_now(l, MANY);
    await_renewals(MANY);
    pthread_mutex_lock(&s.mu);
    assert_int_equal(s.calls, 5);
    for (int i = 0; i < 5; i++) assert_int_equal(s.size[i], i ? MANY / 4 : MANY);
    pthread_mutex_unlock(&s.mu);
    for (int i = 0; i < MANY; i++) OK(hf_release(l[i], &stage_error));
    end_many();
}

/* A claim isn't made before its time, because its holder may release the lock before that. */
static void a_claim_is_not_made_early(void **state)
{
    (void)state;
    hf_lock *l[2];
    begin_many();
    hold(l, 2, 60000);
    pthread_mutex_lock(&h->mu);
    l[1]->claims = 1;
    hf__renew_at(l[1], hf__local_us() + 3000000);
    hf__renew_at(l[0], 0);
    pthread_cond_signal(&h->renewer_cond);
    pthread_mutex_unlock(&h->mu);
    await_renewals(1);
    pthread_mutex_lock(&s.mu);
    assert_int_equal(s.replaces, 1);
    pthread_mutex_unlock(&s.mu);
    renew_now(&l[1], 1);
    await_renewals(2);
    assert_false(l[1]->claims);
    for (int i = 0; i < 2; i++) OK(hf_release(l[i], &stage_error));
    end_many();
}

/* However many are asked for with those that end sooner. */
static void what_hangs_alone_stays_alone(void **state)
{
    (void)state;
    hf_lock *l[MANY];
    begin_many();
    hold(l, MANY - 1, 60000);
    OK(stage_acquire(h, keys[MANY - 1], 0, 600000, 0, &l[MANY - 1]));
    pthread_mutex_lock(&h->mu);
    for (int i = 0; i < MANY; i++) hf__note_unanswered(l[i], 1, i < MANY - 1 ? MANY : 1);
    pthread_mutex_unlock(&h->mu);
    renew_now(l, MANY);
    await_renewals(MANY);
    pthread_mutex_lock(&s.mu);
    assert_int_equal(s.calls, 2);
    assert_int_equal(s.size[0] + s.size[1], MANY);
    assert_int_equal(s.size[0] > s.size[1] ? s.size[1] : s.size[0], 1);
    pthread_mutex_unlock(&s.mu);
    for (int i = 0; i < MANY; i++) OK(hf_release(l[i], &stage_error));
    end_many();
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_has_its_own_result),
        cmocka_unit_test(what_is_not_answered_is_sent_again),
        cmocka_unit_test(an_unanswered_one_is_believed_no_longer),
        cmocka_unit_test(what_is_over_is_not_renewed),
        cmocka_unit_test(the_most_urgent_is_the_first),
        cmocka_unit_test(one_write_renews_all_of_a_key),
        cmocka_unit_test(it_is_given_back_behind_a_renewal),
        cmocka_unit_test(what_is_due_soon_is_asked_for_as_well),
        cmocka_unit_test(what_hung_is_asked_for_again_with_a_quarter_as_many),
        cmocka_unit_test(a_claim_is_not_made_early),
        cmocka_unit_test(what_hangs_alone_stays_alone),
    };
    return TEST_MAIN(tests);
}
