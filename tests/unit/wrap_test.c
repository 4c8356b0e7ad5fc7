/*
 * wrap_test.c - the drivers around drivers: what a plan of faults does, and what a trace shows.
 */
#include "drivers.h"
#include "fakes/faults.h"
#include "os.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct store {
    const hf_driver *d;
    hf_store *st;
    hf_caps caps;
    hf_rowkey key;
    hf_row row;
    int64_t clock;
};

static void open_store(struct store *s)
{
    hf_url url;
    memset(s, 0, sizeof *s);
    s->d = &hf__mem_driver;
    assert_int_equal(hf_url_parse("mem:wrap", &url, NULL), 0);
    assert_int_equal(hf__open_store(s->d, &url, 1000, &s->st, &s->caps, NULL), 0);
    assert_int_equal(hf_key_make("k", &s->key, NULL), 0);
    hf_row_init(&s->row);
}

static void open_faulty(struct store *s, const char *plan)
{
    hf_error err = {0, 0, ""};
    open_store(s);
    if (hf__wrap_fault(&s->d, &s->st, &s->caps, plan, &err)) fail_msg("%s: %s", plan, err.text);
}

static void close_store(struct store *s)
{
    hf_row_clear(&s->row);
    s->d->close(s->st);
}

static int get(struct store *s) { return s->d->get(s->st, &s->key, &s->row, &s->clock, NULL); }

/* Marks the key's event as done, which is a row that stays. */
static int put(struct store *s, uint64_t seen, uint64_t rev, hf_row *cur)
{
    hf_row row;
    hf_row_init(&row);
    row.rev = rev;
    row.done_us = 1;
    return s->d->replace(s->st, &s->key, seen, &row, cur, &s->clock, NULL);
}

static int erase(struct store *s)
{
    return s->d->replace(s->st, &s->key, s->row.rev, NULL, NULL, &s->clock, NULL);
}

static int take(struct store *s)
{
    hf_party p;
    memset(&p, 0, sizeof p);
    p.session = 1;
    return s->d->acquire(s->st, &s->key, &p, 0, &s->row, &s->clock, NULL);
}

static void without_rules_nothing_changes(void **state)
{
    (void)state;
    struct store s;
    open_faulty(&s, "");
    assert_non_null(s.caps.local);
    assert_non_null(s.caps.liveness);
    assert_string_equal(s.d->name, "mem");
    assert_null(s.d->sync);
    assert_int_equal(take(&s), 0);
    assert_int_equal(take(&s), HF_CONFLICT);
    assert_int_equal(erase(&s), 0);
    close_store(&s);
}

static void before_leaves_the_store_as_it_was(void **state)
{
    (void)state;
    struct store s;
    open_faulty(&s, "replace:2:before");
    assert_int_equal(take(&s), 0);
    uint64_t rev = s.row.rev;
    assert_int_equal(put(&s, rev, rev + 1, NULL), 0);
    s.row.token = 77;
    assert_int_equal(put(&s, rev + 1, rev + 2, &s.row), HF_UNKNOWN);
    assert_int_equal(s.row.token, 77);
    assert_int_equal(get(&s), 0);
    assert_int_equal(s.row.rev, rev + 1);
    assert_int_equal(put(&s, rev + 1, rev + 2, NULL), 0);
    assert_int_equal(get(&s), 0);
    assert_int_equal(erase(&s), 0);
    close_store(&s);
}

static void after_takes_effect_and_keeps_it_to_itself(void **state)
{
    (void)state;
    struct store s;
    open_faulty(&s, "acquire:1:after,replace:1:after,replace:2:after,get:3:after");
    assert_int_equal(take(&s), HF_UNKNOWN);
    assert_int_equal(s.row.rev, 0);
    assert_int_equal(get(&s), 0);
    assert_int_equal(s.row.n_holders, 1);
    uint64_t rev = s.row.rev;
    assert_int_equal(put(&s, rev, rev + 1, &s.row), HF_UNKNOWN);
    assert_int_equal(s.row.rev, rev);
    /* A conflict is a reply too. */
    assert_int_equal(put(&s, rev, rev + 1, &s.row), HF_UNKNOWN);
    assert_int_equal(s.row.rev, rev);
    assert_int_equal(put(&s, rev, rev + 1, &s.row), HF_CONFLICT);
    assert_int_equal(s.row.rev, rev + 1);
    assert_int_equal(get(&s), 0);
    s.row.token = 77;
    assert_int_equal(get(&s), HF_UNAVAILABLE);
    assert_int_equal(s.row.token, 77);
    assert_int_equal(erase(&s), 0);
    close_store(&s);
}

static void any_counts_the_calls_that_carry_rows(void **state)
{
    (void)state;
    struct store s;
    open_faulty(&s, "any:3+:unavailable,listen:1:denied");
    hf_event_count since;
    assert_int_equal(s.caps.notify->flush(s.st, &since, NULL), HF_DENIED);
    assert_int_equal(s.caps.notify->flush(s.st, &since, NULL), 0);
    assert_int_equal(take(&s), 0);
    assert_int_equal(erase(&s), 0);
    assert_int_equal(get(&s), HF_UNAVAILABLE);
    assert_int_equal(take(&s), HF_UNAVAILABLE);
    close_store(&s);
}

static void times_are_added_where_the_plan_says(void **state)
{
    (void)state;
    struct hf__fault_counts before, after;
    struct store s;
    open_faulty(&s, "get:1:delay=30,get:2:late=30");
    hf__fault_counts(&before);
    for (int i = 0; i < 3; i++) {
        int64_t start = hf__local_us();
        assert_int_equal(get(&s), 0);
        assert_true(i == 2 || hf__local_us() - start >= 30000);
    }
    hf__fault_counts(&after);
    assert_int_equal(after.injected - before.injected, 2);
    close_store(&s);
}

static void with_rules_the_store_answers_like_a_server(void **state)
{
    (void)state;
    struct store s;
    open_faulty(&s, "get:99:before");
    assert_null(s.caps.local);
    assert_non_null(s.caps.notify);
    assert_int_equal(get(&s), 0);
    int64_t first = s.clock;
    assert_true(llabs(first - hf__day_us()) < 60 * 1000000);
    assert_int_equal(take(&s), 0);
    assert_true(s.clock >= first);
    assert_int_equal(erase(&s), 0);
    close_store(&s);
    open_faulty(&s, "instant,get:1:corrupt");
    assert_non_null(s.caps.local);
    assert_non_null(s.caps.liveness);
    assert_int_equal(get(&s), HF_CORRUPT);
    close_store(&s);
}

static uint64_t pattern(const char *plan, int *ret_failed)
{
    struct store s;
    open_faulty(&s, plan);
    uint64_t bits = 0;
    *ret_failed = 0;
    for (int i = 0; i < 1000; i++) {
        int failed = get(&s) != 0;
        bits = bits * 31 + (uint64_t)failed;
        *ret_failed += failed;
    }
    close_store(&s);
    return bits;
}

static void a_seed_means_the_same_faults_again(void **state)
{
    (void)state;
    int failed;
    uint64_t one = pattern("random:seed=7:p=0.1", &failed);
    assert_true(failed > 50 && failed < 200);
    assert_true(pattern("random:seed=7:p=0.1", &failed) == one);
    assert_true(pattern("random:seed=8:p=0.1", &failed) != one);
    pattern("random:seed=7:p=0", &failed);
    assert_int_equal(failed, 0);
    pattern("random:seed=7:p=1", &failed);
    assert_int_equal(failed, 1000);
}

static void what_was_injected_is_counted(void **state)
{
    (void)state;
    struct hf__fault_counts before, after;
    hf__fault_counts(&before);
    struct store s;
    open_faulty(&s, "get:2:before");
    for (int i = 0; i < 3; i++) get(&s);
    close_store(&s);
    hf__fault_counts(&after);
    assert_int_equal(after.injected - before.injected, 1);
    assert_int_equal(after.calls - before.calls, 4);
}

static void a_plan_that_makes_no_sense_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "x",
        "replace",
        "replace:",
        "replace:1",
        "replace:1:",
        "replace:0:before",
        "replace:-1:before",
        "replace:1:befor",
        "replace:1:before,",
        "replace:1:before,,get:1:before",
        "replace:1:before;",
        "replacee:1:before",
        "replace:1:delay=",
        "replace:1:delay=x",
        "random",
        "random:seed=1",
        "random:seed=x:p=1",
        "random:seed=1:p=2",
        "random:seed=1:p=nan",
        "*:1:before",
        "get:1:full,get:1:full,get:1:full,get:1:full,get:1:full,get:1:full,get:1:full,get:1:full,"
        "get:1:full,get:1:full,get:1:full,get:1:full,get:1:full,get:1:full,get:1:full,get:1:full,"
        "get:1:full",
    };
    struct store s;
    open_store(&s);
    const hf_driver *d = s.d;
    hf_store *st = s.st;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        hf_error err = {0, 0, ""};
        if (hf__wrap_fault(&s.d, &s.st, &s.caps, bad[i], &err) != HF_INVALID)
            fail_msg("taken: %s", bad[i]);
        assert_ptr_equal(s.d, d);
        assert_ptr_equal(s.st, st);
    }
    close_store(&s);
}

static void a_trace_has_a_line_per_call(void **state)
{
    (void)state;
    char path[] = "/tmp/holdfast-XXXXXX", text[4096];
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    struct store s;
    open_store(&s);
    assert_int_equal(hf__wrap_trace(&s.d, &s.st, &s.caps, path, NULL), 0);
    assert_int_equal(take(&s), 0);
    unsigned long long rev = s.row.rev;
    assert_int_equal(take(&s), HF_CONFLICT);
    assert_int_equal(s.d->caps.liveness->alive(s.st, 12345, NULL), 0);
    assert_int_equal(erase(&s), 0);
    assert_int_equal(get(&s), 0);
    close_store(&s);
    ssize_t n = read(fd, text, sizeof text - 1);
    assert_true(n > 0);
    text[n] = 0;
    close(fd);
    unlink(path);
    const char *const want[] = {" acquire 'k' -> OK rev=%llu parties=1+0 ",
                                " acquire 'k' -> CONFLICT rev=%llu parties=1+0 ",
                                " alive 12345 -> DEAD ",
                                " replace 'k' seen=%llu -> OK deleted ",
                                " get 'k' -> OK rev=0 parties=0+0 ",
                                " close -> OK "};
    const char *at = text;
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        char line[128], *mark;
        memcpy(line, want[i], strlen(want[i]) + 1);
        if ((mark = strstr(line, "%llu"))) {
            char tail[64];
            memcpy(tail, mark + 4, strlen(mark + 4) + 1);
            snprintf(mark, sizeof line - (size_t)(mark - line), "%llu%s", rev, tail);
        }
        const char *end = strchr(at, '\n');
        assert_non_null(end);
        const char *found = strstr(at, line);
        if (!found || found > end) fail_msg("no '%s' in: %s", line, at);
        at = end + 1;
    }
    assert_string_equal(at, "");
}

static void a_trace_that_cannot_be_written_is_refused(void **state)
{
    (void)state;
    struct store s;
    open_store(&s);
    hf_error err = {0, 0, ""};
    assert_int_equal(hf__wrap_trace(&s.d, &s.st, &s.caps, "/nowhere/at/all", &err), HF_INVALID);
    assert_non_null(strstr(err.text, "/nowhere/at/all"));
    assert_ptr_equal(s.d, &hf__mem_driver);
    close_store(&s);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_rules_nothing_changes),
        cmocka_unit_test(before_leaves_the_store_as_it_was),
        cmocka_unit_test(after_takes_effect_and_keeps_it_to_itself),
        cmocka_unit_test(any_counts_the_calls_that_carry_rows),
        cmocka_unit_test(times_are_added_where_the_plan_says),
        cmocka_unit_test(with_rules_the_store_answers_like_a_server),
        cmocka_unit_test(a_seed_means_the_same_faults_again),
        cmocka_unit_test(what_was_injected_is_counted),
        cmocka_unit_test(a_plan_that_makes_no_sense_is_refused),
        cmocka_unit_test(a_trace_has_a_line_per_call),
        cmocka_unit_test(a_trace_that_cannot_be_written_is_refused),
    };
    return TEST_MAIN(tests);
}
