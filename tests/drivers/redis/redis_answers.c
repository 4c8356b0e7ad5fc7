/*
 * redis_answers.c - the driver redis: before a server that answers anything to its scripts: what it
 * makes of it. Opening, lists and subscriber: redis_words.c.
 */
#include "os.h"
#include "resp.h"
#include "test.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REPLICA "$12\r\nrole:slave\r\n\r\n"

/* This to the next call, by its name and whole. */
static void is(const char *reply, int closes)
{
    const struct resp_rule both[] = {{"EVALSHA", reply, 0, closes}, {"EVAL", reply, 0, closes}};
    resp_are(both, 2);
}

static int get(hf_store *st)
{
    hf_row row;
    hf_row_init(&row);
    int rc = redis->get(st, &key, &row, &clock_us, &err);
    hf_row_clear(&row);
    return rc;
}

static int take(hf_store *st, hf_row *row)
{
    hf_party p = {.id = {1}, .lease_ms = 60000, .owner = "me", .owner_len = 2};
    return redis->acquire(st, &key, &p, 0, row, &clock_us, &err);
}

static int takes(hf_store *st)
{
    hf_row row;
    hf_row_init(&row);
    int rc = take(st, &row);
    hf_row_clear(&row);
    return rc;
}

static int gets_in_line(hf_store *st)
{
    hf_party p = {.id = {1}, .lease_ms = 60000, .owner = "me", .owner_len = 2};
    hf_row row;
    hf_row_init(&row);
    int rc = redis->acquire(st, &key, &p, 9, &row, &clock_us, &err);
    hf_row_clear(&row);
    return rc;
}

static int replaces(hf_store *st, int shows)
{
    hf_row cur;
    hf_row_init(&cur);
    int rc = redis->replace(st, &key, 3, NULL, shows ? &cur : NULL, &clock_us, &err);
    hf_row_clear(&cur);
    return rc;
}

static int replaces_many(hf_store *st)
{
    hf_row to, cur;
    hf_row_init(&to);
    hf_row_init(&cur);
    to.rev = 4;
    hf_replace one = {&key, 3, &to, &cur, HF_UNKNOWN, 0, &err};
    (void)redis->replace_many(st, &one, 1, hf__local_us() + 60000000);
    hf_row_clear(&cur);
    return one.result;
}

static int enters(hf_store *st) { return redis->enter(st, &key, 7, 0, NULL, &err); }

/* ---- what is no answer ---- */

static void errors_mean_what_they_say(void **state)
{
    (void)state;
    static const struct {
        const char *reply;
        int code; /* HF_UNKNOWN: it doesn't say that nothing was written */
        const char *text;
    } cases[] = {
        {"-NOAUTH Authentication required.\r\n", HF_DENIED, "NOAUTH"},
        {"-WRONGPASS no\r\n", HF_DENIED, "WRONGPASS"},
        {"-NOPERM this user has no permissions\r\n", HF_DENIED, "NOPERM"},
        {"-DENIED Redis is running in protected mode\r\n", HF_DENIED, "DENIED"},
        {"-OOM command not allowed\r\n", HF_FULL, "OOM"},
        {"-WRONGTYPE Operation against a key\r\n", HF_CORRUPT, "WRONGTYPE"},
        {"-MOVED 3999 127.0.0.1:6381\r\n", HF_UNSUPPORTED, "another node of the cluster"},
        {"-ASK 3999 127.0.0.1:6381\r\n", HF_UNSUPPORTED, "another node of the cluster"},
        {"-CROSSSLOT Keys in request\r\n", HF_UNSUPPORTED, "another node of the cluster"},
        {"-LOADING Redis is loading\r\n", HF_UNAVAILABLE, "LOADING"},
        {"-BUSY Redis is busy\r\n", HF_UNAVAILABLE, "BUSY"},
        {"-READONLY You can't write\r\n", HF_UNAVAILABLE, "READONLY"},
        {"-MASTERDOWN Link\r\n", HF_UNAVAILABLE, "MASTERDOWN"},
        {"-MISCONF Errors writing\r\n", HF_UNAVAILABLE, "MISCONF"},
        {"-MISCONF Errors writing to the AOF file: No space left on device\r\n", HF_UNAVAILABLE,
         "space"},
        {"-NOREPLICAS Not enough\r\n", HF_UNAVAILABLE, "NOREPLICAS"},
        {"-TRYAGAIN\r\n", HF_UNAVAILABLE, "TRYAGAIN"},
        {"-CLUSTERDOWN\r\n", HF_UNAVAILABLE, "CLUSTERDOWN"},
        {"-BUSYBODY\r\n", HF_UNKNOWN, "BUSYBODY"},
        {"-ERR Error running script: @user_script:1: -OOM command not allowed\r\n", HF_FULL, "ERR"},
        {"-ERR The user executing the script can't run this\r\n", HF_DENIED, "ERR"},
        {"-ERR Error running script (call to f_92e8): @user_script:7: @user_script: 7: -READONLY "
         "You can't write\r\n",
         HF_UNAVAILABLE, "ERR"},
        {"-ERR Error running script (call to f_92e8): @user_script:7: @user_script: 7: -WRONGTYPE "
         "no\r\n",
         HF_CORRUPT, "ERR"},
        /* A code counts only where codes stand, not inside a quoted text. */
        {"-ERR some NOAUTH WRONGPASS OOM -NOPERM invalid password alert\r\n", HF_UNKNOWN, "ERR"},
        {"-LOADING NOAUTH\r\n", HF_UNAVAILABLE, "LOADING"},
        {"-ERR unknown command 'x', with args beginning with: 'NOAUTH' '@user_script: 1: -OOM "
         "'\r\n",
         HF_UNSUPPORTED, "'x'"},
        {"-ERR max number of clients reached\r\n", HF_UNKNOWN, "ERR"},
        {"-ERR unknown command 'EVAL', with args beginning with: 's'\r\n", HF_UNSUPPORTED,
         "'EVAL'"},
        {"-ERR Error compiling user_script: x\r\n", HF_CORRUPT, "ERR"},
        {"-NOSCRIPT No matching script\r\n", HF_UNAVAILABLE, "NOSCRIPT"},
        {"-strange\r\n", HF_UNKNOWN, "strange"},
        {"-\r\n", HF_UNKNOWN, "'k': "},
    };
    hf_store *st = resp_opened("redis://HOST");
    for (size_t i = 0; i < COUNT(cases); i++) {
        is(cases[i].reply, 0);
        int of_a_write = cases[i].code;
        said(get(st), of_a_write == HF_UNKNOWN ? HF_UNAVAILABLE : of_a_write, cases[i].text);
        said(takes(st), of_a_write, cases[i].text);
        said(replaces(st, 1), of_a_write, cases[i].text);
        said(redis->enter(st, &key, 7, 0, NULL, &err), of_a_write, cases[i].text);
    }
    is("-LOST a later holder has been here\r\n", 0);
    said(redis->enter(st, &key, 7, 0, NULL, &err), HF_LOST, ": a later holder");
    /* No other server is asked whether the write was lost. */
    said(get(st), HF_UNAVAILABLE, "LOST a later");
    said(replaces(st, 1), HF_UNKNOWN, "LOST a later");
    redis->close(st);
}

/* The script may have run, but there is no answer. */
static int replaces_one(hf_store *st) { return replaces(st, 1); }

/* A server that became a replica is left: the next request finds that it can't be a store. */
static void a_server_that_became_a_replica_is_left(void **state)
{
    static int (*const request[])(hf_store *) = {get, takes, replaces_one, replaces_many, enters};
    static const char *const told[] = {"-READONLY You can't write\r\n", "-MASTERDOWN Link\r\n"};
    (void)state;
    for (size_t i = 0; i < 2 * COUNT(request); i++) {
        int (*one)(hf_store *) = request[i / 2];
        const struct resp_rule rules[] = {{"INFO", REPLICA, 0, 0}, {NULL, told[i % 2], 0, 0}};
        hf_store *st = resp_opened("redis://HOST");
        resp_are(rules + 1, 1);
        said(one(st), HF_UNAVAILABLE, told[i % 2][1] == 'R' ? "READONLY" : "MASTERDOWN");
        resp_are(rules, 1);
        said(one(st), HF_UNAVAILABLE, "a replica");
        redis->close(st);
    }
}

static void what_is_no_answer_leaves_a_write_unknown(void **state)
{
    (void)state;
    static const struct {
        const char *reply;
        int closes;
        const char *text;
    } cases[] = {
        {NULL, 1, "closed the connection"},
        {"", 1, "closed the connection"},
        {"*4", 1, "closed the connection"},
        {"*3\r\n:1\r\n*2\r\n", 1, "closed the connection"},
        {"$100\r\nshort", 1, "closed the connection"},
        {"HTTP/1.1 400 Bad Request\r\n", 0, "rotocol error"},
        {"*x\r\n", 0, ""},
        {":x\r\n", 0, ""},
        {"$-7\r\n", 0, ""},
        {"*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n", 0, ""},
        {"$-1\r\n", 0, "the answer doesn't fit the request"},
        {"*-1\r\n", 0, "the answer doesn't fit the request"},
        {"*0\r\n", 0, "the answer doesn't fit the request"},
        {":7\r\n", 0, "the answer doesn't fit the request"},
        {"$2\r\nOK\r\n", 0, "the answer doesn't fit the request"},
        {"*1\r\n:1\r\n", 0, "the answer doesn't fit the request"},
        {"*2\r\n$1\r\n1\r\n" CLOCK, 0, "the answer doesn't fit the request"},
        {"*2\r\n:1\r\n:2\r\n", 0, "the answer doesn't fit the request"},
        {"*2\r\n:1\r\n*1\r\n$1\r\n1\r\n", 0, "the answer doesn't fit the request"},
        {"*2\r\n:1\r\n*3\r\n$1\r\n1\r\n$1\r\n1\r\n$1\r\n1\r\n", 0,
         "the answer doesn't fit the request"},
        {"*2\r\n:1\r\n*2\r\n:1\r\n$1\r\n1\r\n", 0, "the answer doesn't fit the request"},
        {"*2\r\n:1\r\n*2\r\n$1\r\n1\r\n:1\r\n", 0, "the answer doesn't fit the request"},
        {"*2\r\n-ERR\r\n" CLOCK, 0, "the answer doesn't fit the request"},
        /* A clock is two numbers, and of this world. */
        {"*2\r\n:1\r\n*2\r\n$3\r\nnow\r\n$1\r\n1\r\n", 0, "the answer doesn't fit the request"},
        {"*2\r\n:1\r\n*2\r\n$1\r\n1\r\n$0\r\n\r\n", 0, "the answer doesn't fit the request"},
        {"*2\r\n:1\r\n*2\r\n$1\r\n1\r\n$7\r\n1000000\r\n", 0, "the answer doesn't fit the request"},
        {"*2\r\n:1\r\n*2\r\n$1\r\n1\r\n$2\r\n-1\r\n", 0, "the answer doesn't fit the request"},
        {"*2\r\n:1\r\n*2\r\n$2\r\n-1\r\n$1\r\n1\r\n", 0, "the answer doesn't fit the request"},
        {"*2\r\n:1\r\n*2\r\n$19\r\n9223372036854775807\r\n$1\r\n1\r\n", 0,
         "the answer doesn't fit the request"},
        {"*2\r\n$3\r\nnow\r\n$1\r\n1\r\n", 0, "the answer doesn't fit the request"},
        {"*2\r\n$1\r\n1\r\n$7\r\n1000000\r\n", 0, "the answer doesn't fit the request"},
        {"*3\r\n$1\r\n1\r\n$1\r\n1\r\n$1\r\n1\r\n", 0, "the answer doesn't fit the request"},
    };
    hf_store *st = resp_opened("redis://HOST");
    for (size_t i = 0; i < COUNT(cases); i++) {
        is(cases[i].reply, cases[i].closes);
        said(get(st), HF_UNAVAILABLE, cases[i].text);
        is(cases[i].reply, cases[i].closes);
        said(takes(st), HF_UNKNOWN, cases[i].text);
        is(cases[i].reply, cases[i].closes);
        said(replaces(st, 1), HF_UNKNOWN, cases[i].text);
        is(cases[i].reply, cases[i].closes);
        said(redis->enter(st, &key, 7, 0, NULL, &err), HF_UNKNOWN, cases[i].text);
    }
    /* The clock alone is a replace's, and such a one's alone as was done. */
    is(CLOCK, 0);
    said(get(st), HF_UNAVAILABLE, "the answer doesn't fit the request");
    said(takes(st), HF_UNKNOWN, "the answer doesn't fit the request");
    said(gets_in_line(st), HF_UNKNOWN, "the answer doesn't fit the request");
    is("*2\r\n:1\r\n" CLOCK, 0);
    said(replaces(st, 1), HF_UNKNOWN, "the answer doesn't fit the request");
    redis->close(st);
}

/* An answer too many isn't that of the next request, which goes over another connection. */
static void what_is_said_unasked_answers_nothing(void **state)
{
    (void)state;
    char two[3000];
    hf_row row;
    hf_row_init(&row);
    hf_store *st = resp_opened("redis://HOST");
    for (int i = 0; i < 3; i++) {
        snprintf(two, sizeof two, "%s%s", resp_row_but(0, "rev", "6"), resp_row_but(0, "rev", "7"));
        is(two, 0);
        said(redis->get(st, &key, &row, &clock_us, &err), 0, NULL);
        assert_int_equal(row.rev, 6);
        is(resp_row_but(0, "rev", "8"), 0);
        said(redis->get(st, &key, &row, &clock_us, &err), 0, NULL);
        assert_int_equal(row.rev, 8);
        is(two, 0);
        said(replaces(st, 1), HF_CONFLICT, NULL);
        is(CLOCK, 0);
        said(replaces(st, 1), 0, NULL);
    }
    hf_row_clear(&row);
    redis->close(st);
}

/* ---- rows ---- */

#define OTHER_TYPE(name) "its field '" name "' is missing, or of another type"

static void damaged_rows_are_told(void **state)
{
    (void)state;
    static const struct {
        const char *name, *value, *text; /* NULL: it is one */
    } cases[] = {
        {"", "", NULL},
        {"more", NULL, NULL},
        {"queue", NULL, NULL},
        {"done", NULL, NULL},
        {"rev", NULL, OTHER_TYPE("rev")},
        {"note", NULL, OTHER_TYPE("note")},
        {"rev", "", OTHER_TYPE("rev")},
        {"rev", "x", OTHER_TYPE("rev")},
        {"rev", " 5", OTHER_TYPE("rev")},
        {"rev", "5 ", OTHER_TYPE("rev")},
        {"rev", "99999999999999999999", OTHER_TYPE("rev")},
        {"rev", "-5", "damaged"},
        {"rev", "0", "damaged"},
        {"token", "6", "damaged"},
        {"format", "1", "rows of format 1, and this version reads format 2"},
        {"request", "1234", "damaged"},
        {"more", "{\"mode\":17}", "damaged"},
        {"more", "{", "damaged"},
        {"more", "[]", "damaged"},
        {"more", "{\"holders\":{}}", "damaged"},
        {"done", "{}", "damaged"},
        {"queue", "{}", "damaged"},
        {"queue", "[7]", "damaged"},
        {"queue", "[{}]", "damaged"},
    };
    hf_store *st = resp_opened("redis://HOST");
    for (size_t i = 0; i < COUNT(cases); i++) {
        int code = cases[i].text ? HF_CORRUPT : 0;
        is(resp_row_but(0, cases[i].name, cases[i].value), 0);
        said(get(st), code, cases[i].text);
        /* A write that only compares is answered that the row isn't the same. */
        said(replaces(st, 0), HF_CONFLICT, NULL);
        said(replaces(st, 1), code ? code : HF_CONFLICT, cases[i].text);
        said(takes(st), code ? code : HF_CONFLICT, cases[i].text);
        said(gets_in_line(st), code ? code : HF_CONFLICT, cases[i].text);
    }
    assert_int_equal(clock_us, INT64_C(1769860800) * 1000000 + 17);
    is("*4\r\n:0\r\n" CLOCK ":0\r\n*0\r\n", 0);
    said(get(st), HF_CORRUPT, "the answer doesn't fit the request");
    is("*4\r\n:0\r\n" CLOCK "$1\r\n1\r\n*0\r\n", 0);
    said(get(st), HF_CORRUPT, "the answer doesn't fit the request");
    is("*4\r\n:0\r\n" CLOCK ":1\r\n:1\r\n", 0);
    said(replaces(st, 1), HF_CORRUPT, "the answer doesn't fit the request");
    is("*2\r\n:0\r\n" CLOCK, 0);
    said(takes(st), HF_CORRUPT, "the answer doesn't fit the request");
    is(CLOCK, 0);
    said(replaces(st, 1), 0, NULL);
    redis->close(st);
}

#define TAKEN(rev) "*3\r\n:1\r\n" CLOCK rev

static void *no_memory(size_t n)
{
    (void)n;
    errno = ENOMEM;
    return NULL;
}

static void grants_are_told(void **state)
{
    (void)state;
    static const struct {
        const char *reply;
        int code;
        const char *text;
    } cases[] = {
        {TAKEN("$1\r\n7\r\n"), 0, NULL},
        {TAKEN("$-1\r\n"), HF_UNKNOWN, "the answer doesn't fit the request"},
        {TAKEN(":7\r\n"), HF_UNKNOWN, "the answer doesn't fit the request"},
        {TAKEN("$1\r\nx\r\n"), HF_UNKNOWN, "the answer doesn't fit the request"},
        {TAKEN("$1\r\n0\r\n"), HF_UNKNOWN, "the answer doesn't fit the request"},
        {TAKEN("$2\r\n-7\r\n"), HF_UNKNOWN, "the answer doesn't fit the request"},
        {TAKEN("$19\r\n9223372036854775807\r\n"), HF_CORRUPT, "rev above 2^53"},
        {"*2\r\n:1\r\n" CLOCK, HF_UNKNOWN, "the answer doesn't fit the request"},
        {"*4\r\n:1\r\n" CLOCK "$1\r\n7\r\n$1\r\n1\r\n", HF_UNKNOWN,
         "the answer doesn't fit the request"},
        {"*4\r\n:1\r\n" CLOCK ":0\r\n*0\r\n", HF_CORRUPT, "the answer doesn't fit the request"},
        {"*4\r\n:1\r\n" CLOCK ":1\r\n*0\r\n", HF_CORRUPT, "the answer doesn't fit the request"},
    };
    hf_store *st = resp_opened("redis://HOST");
    hf_row row;
    hf_row_init(&row);
    for (size_t i = 0; i < COUNT(cases); i++) {
        is(cases[i].reply, 0);
        said(take(st, &row), cases[i].code, cases[i].text);
        assert_true(cases[i].code || (row.rev >= 7 && row.n_holders == 1));
    }
    /* Where the row has a marker it comes whole: it must be this request's. */
    is(resp_row_but(1, "request", "01000000000000000000000000000000"), 0);
    said(take(st, &row), 0, NULL);
    assert_true(row.rev == 5 && row.n_holders == 1);
    is(resp_row_but(1, "", ""), 0);
    said(take(st, &row), HF_UNKNOWN, "the answer doesn't fit the request");
    is(resp_row_but(1, "done", "[]"), 0);
    said(take(st, &row), HF_CORRUPT, "damaged");
    /* If there is no memory for the marker, the key is held all the same. */
    is(resp_row_but(1, "done", "{\"done_us\":5,\"keep_until_us\":9,\"by\":\"o\",\"result\":\"\"}"),
       0);
    json_set_alloc_funcs(no_memory, free);
    said(take(st, &row), HF_UNKNOWN, "out of memory");
    json_set_alloc_funcs(malloc, free);
    hf_row_clear(&row);
    redis->close(st);
}

#define WAITS(id) "[{\"request\":\"" id "\",\"owner\":\"o\",\"note\":\"\",\"since_us\":5}]"

/* The request is queued if the row shows it at the end. */
static void places_are_told(void **state)
{
    (void)state;
    hf_store *st = resp_opened("redis://HOST");
    is(resp_row_but(1, "queue", WAITS("01000000000000000000000000000000")), 0);
    said(gets_in_line(st), 0, NULL);
    is(resp_row_but(1, "queue", WAITS("02000000000000000000000000000000")), 0);
    said(gets_in_line(st), HF_UNKNOWN, "acquire 'k': the answer doesn't fit the request");
    is(resp_row_but(1, "queue", ""), 0);
    said(gets_in_line(st), HF_UNKNOWN, "acquire 'k': the answer doesn't fit the request");
    is("*4\r\n:1\r\n" CLOCK ":0\r\n*0\r\n", 0);
    said(gets_in_line(st), HF_CORRUPT, "acquire 'k': the answer doesn't fit the request");
    is("*2\r\n:1\r\n" CLOCK, 0);
    said(gets_in_line(st), HF_UNKNOWN, "acquire 'k': the answer doesn't fit the request");
    is("-OOM command not allowed\r\n", 0);
    said(gets_in_line(st), HF_FULL, "acquire 'k': OOM");
    is(NULL, 1);
    said(gets_in_line(st), HF_UNKNOWN, "acquire 'k'");
    redis->close(st);
}

/* ---- what is more than an answer ---- */

/* Otherwise the second answer would be taken for that to the next request, perhaps for
   another key. */
static void an_answer_too_many_is_nobodys(void **state)
{
    (void)state;
    hf_store *st = resp_opened("redis://HOST");
    char two[200];
    snprintf(two, sizeof two, "%s%s", CLOCK, TAKEN("$1\r\n7\r\n"));
    is(two, 0);
    said(replaces(st, 1), 0, NULL);
    is("-OOM\r\n", 0);
    said(takes(st), HF_FULL, "OOM");
    redis->close(st);
}

static void a_script_that_is_forgotten_is_sent_whole(void **state)
{
    (void)state;
    hf_store *st = resp_opened("redis://HOST?wait=2");
    const struct resp_rule forgotten[] = {{"EVALSHA", "-NOSCRIPT No matching\r\n", 0, 0},
                                          {"EVAL", CLOCK, 0, 0},
                                          {"WAIT", ":2\r\n", 0, 0}};
    resp_are(forgotten, 3);
    said(replaces(st, 1), 0, NULL);
    assert_int_equal(resp_whole(), 1);
    static const struct {
        const char *reply;
        const char *text;
    } cases[] = {
        {":1\r\n", "1 of 2 replicas have it"},       {":-7\r\n", "-7 of 2 replicas have it"},
        {"$1\r\n7\r\n", "0 of 2 replicas have it"},  {"$-1\r\n", "0 of 2 replicas have it"},
        {"*1\r\n:7\r\n", "0 of 2 replicas have it"}, {"-NOPERM no\r\n", "NOPERM"}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        const struct resp_rule waits[] = {{"EVALSHA", CLOCK, 0, 0}, {"WAIT", cases[i].reply, 0, 0}};
        resp_are(waits, 2);
        said(replaces(st, 1), HF_UNKNOWN, cases[i].text);
        said(takes(st), HF_UNKNOWN, NULL);
    }
    redis->close(st);
    /* A server that keeps no scripts gets them whole at once. */
    const struct resp_rule none[] = {{"SCRIPT", "-ERR unknown command 'SCRIPT'\r\n", 0, 0},
                                     {"EVALSHA", NULL, 0, 1},
                                     {"EVAL", CLOCK, 0, 0}};
    resp_are(none, 3);
    said(resp_opens("redis://HOST", &st), 0, NULL);
    said(replaces(st, 1), 0, NULL);
    redis->close(st);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_mean_what_they_say),
        cmocka_unit_test(a_server_that_became_a_replica_is_left),
        cmocka_unit_test(what_is_no_answer_leaves_a_write_unknown),
        cmocka_unit_test(what_is_said_unasked_answers_nothing),
        cmocka_unit_test(damaged_rows_are_told),
        cmocka_unit_test(grants_are_told),
        cmocka_unit_test(places_are_told),
        cmocka_unit_test(an_answer_too_many_is_nobodys),
        cmocka_unit_test(a_script_that_is_forgotten_is_sent_whole),
    };
    return resp_begin() ? TEST_MAIN(tests) : 1;
}
