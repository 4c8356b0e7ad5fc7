/*
 * firestore_many.c - the driver firestore: many replaces at once, before a server that answers
 * anything: each has the result that its own status says. See answered.h.
 */
#include "fakes/answered.h"
#include "os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TIME    "2026-01-31T12:00:00.000007Z"
#define TIME_US (INT64_C(1769860800) * 1000000 + 7)
#define BASE    "projects/p/databases/(default)/documents/holdfast/"
#define FREE_ROW                                   \
    ", \"format\": {\"integerValue\": \"2\"}, "    \
    "\"rev\": {\"integerValue\": \"5\"}, "         \
    "\"token\": {\"integerValue\": \"5\"}, "       \
    "\"owner\": {\"stringValue\": \"\"}, "         \
    "\"expires_us\": {\"integerValue\": \"0\"}, "  \
    "\"acquired_us\": {\"integerValue\": \"0\"}, " \
    "\"lease_ms\": {\"integerValue\": \"0\"}, "    \
    "\"request\": {\"stringValue\": \"\"}, \"note\": {\"stringValue\": \"\"}"
#define FREE(name)                                                       \
    "{\"found\": {\"name\": \"" BASE name "\", \"updateTime\": \"" TIME  \
    "\", \"fields\": {\"key\": {\"stringValue\": \"" name "\"}" FREE_ROW \
    "}}, \"readTime\": \"" TIME "\"}"

enum { MANY = 6 };

static hf_store *st;
static hf_row row[MANY], cur[MANY];
static hf_rowkey keys[MANY];
static hf_replace item[MANY];
static hf_error errors[MANY];

static void begin(int user)
{
    static const char *const names[] = {"k0", "k1", "k2", "k3", "k4", "k5"};
    if (user) setenv("FIRESTORE_ID_TOKEN", "s3cr3t-token", 1);
    if (opens("firestore://p?endpoint=http://127.0.0.1:PORT", &st)) fail_msg("%s", err.text);
    unsetenv("FIRESTORE_ID_TOKEN");
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(hf_key_make(names[i], &keys[i], NULL), 0);
        hf_row_init(&row[i]);
        hf_row_init(&cur[i]);
        row[i].rev = row[i].token = 6;
    }
}

static void ask(uint64_t seen)
{
    for (int i = 0; i < MANY; i++) {
        errors[i] = (hf_error){0, 0, ""};
        item[i] = (hf_replace){.key = &keys[i],
                               .seen = seen,
                               .row = &row[i],
                               .cur = &cur[i],
                               .result = HF_UNKNOWN,
                               .err = &errors[i]};
    }
    assert_int_equal(driver->replace_many(st, item, MANY, hf__local_us() + 60000000), 0);
}

static void done(void)
{
    for (int i = 0; i < MANY; i++) {
        hf_row_clear(&row[i]);
        hf_row_clear(&cur[i]);
    }
    driver->close(st);
}

/* ---- tests ---- */

#define OK_OF "{\"updateTime\": \"" TIME "\"}"
#define STATUSES                                                                       \
    "{\"writeResults\": [" OK_OF ", {}, {}, {}, {}], \"status\": [{}, {\"code\": 9}, " \
    "{\"code\": 14, \"message\": \"soon\"}, {\"code\": 7, \"message\": \"no\"}, {}]}"

static void each_has_its_own_status(void **state)
{
    static const int results[MANY] = {0,         HF_CONFLICT, HF_UNKNOWN,
                                      HF_DENIED, HF_UNKNOWN,  HF_UNKNOWN};
    const struct answer list[] = {{"batchWrite", 200, STATUSES, 1},
                                  {"batchGet", 200, "[" FREE("k1") "]", 1}};
    (void)state;
    begin(0);
    answers_are(list, COUNT(list));
    ask(0);
    assert_int_equal(answers_given(), 2);
    for (int i = 0; i < MANY; i++)
        if (item[i].result != results[i])
            fail_msg("%d: %s: %s", i, hf_code_name(item[i].result), errors[i].text);
    assert_int_equal(item[0].clock_us, TIME_US);
    assert_int_equal(item[1].clock_us, TIME_US);
    assert_int_equal(cur[1].rev, 5);
    assert_non_null(strstr(errors[3].text, "no"));
    done();
}

/* Rows that were never seen are read first, by one request; then each is written on the condition
   that it is still the same. */
static void what_is_not_remembered_is_read(void **state)
{
    const struct answer list[] = {
        {"batchGet", 200,
         "[" FREE("k2") ", " FREE("k0") ", {\"missing\": \"" BASE "k1\", \"readTime\": \"" TIME
                                        "\"}]",
         1},
        {"batchWrite", 200, "{\"writeResults\": [" OK_OF ", " OK_OF "], \"status\": [{}, {}]}", 1}};
    (void)state;
    begin(0);
    answers_are(list, COUNT(list));
    ask(5);
    assert_int_equal(answers_given(), 2);
    assert_non_null(strstr(answers_asked(), "\"updateTime\":\"" TIME "\""));
    assert_int_equal(item[0].result, 0);
    assert_int_equal(item[1].result, HF_CONFLICT);
    assert_int_equal(cur[1].rev, 0);
    assert_int_equal(item[2].result, 0);
    for (int i = 3; i < MANY; i++) assert_int_equal(item[i].result, HF_UNAVAILABLE);
    done();
}

/* If the answer isn't whole, no replace has a known result. */
static void no_answer_says_nothing(void **state)
{
    static const struct answer list[] = {{"batchWrite", 500, "{}", 0}};
    static const struct answer closed[] = {{"batchWrite", ANSWER_CLOSED, "", 0}};
    static const struct answer garbled[] = {{"batchWrite", 200, "{}", 0}};
    static const struct answer *const all[] = {list, closed, garbled};
    (void)state;
    begin(0);
    for (size_t i = 0; i < COUNT(all); i++) {
        answers_are(all[i], 1);
        ask(0);
        for (int k = 0; k < MANY; k++) assert_int_equal(item[k].result, HF_UNKNOWN);
    }
    done();
}

/* Users and programs that may not call batchWrite commit one write after the other. A user never
   tries it; a program that was refused tries it again after a while. */
static void who_may_not_commits_singly(void **state)
{
    const struct answer list[] = {{"batchWrite", 403,
                                   "{\"error\": {\"status\": "
                                   "\"PERMISSION_DENIED\"}}",
                                   0},
                                  {"commit", 200, "{\"commitTime\": \"" TIME "\"}", 0}};
    (void)state;
    for (int user = 0; user < 2; user++) {
        begin(user);
        for (int again = 0; again < 2; again++) {
            answers_are(list, COUNT(list));
            ask(0);
            assert_int_equal(answers_given(), MANY + (!user && !again));
            for (int i = 0; i < MANY; i++) assert_int_equal(item[i].result, 0);
        }
        done();
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_has_its_own_status),
        cmocka_unit_test(what_is_not_remembered_is_read),
        cmocka_unit_test(no_answer_says_nothing),
        cmocka_unit_test(who_may_not_commits_singly),
    };
    static const char *const others[] = {"FIRESTORE_ID_TOKEN", "FIRESTORE_ID_TOKEN_FILE",
                                         "FIRESTORE_EMULATOR_HOST",
                                         "GOOGLE_APPLICATION_CREDENTIALS"};
    for (size_t i = 0; i < COUNT(others); i++) unsetenv(others[i]);
    return answered_begin("firestore") ? 1 : TEST_MAIN(tests);
}
