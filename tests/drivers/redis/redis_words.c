/*
 * redis_words.c - the driver redis: before a server that answers anything, like redis_answers.c:
 * opening, lists, doctor and subscriber.
 */
#include "fakes/listens.h"
#include "resp.h"
#include "test.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static hf_store *opened_anew(const char *url)
{
    hf_store *st = resp_opened(url);
    listens_anew(st);
    return st;
}

/* ---- opening ---- */

static void who_is_unfit_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *url, *command, *reply;
        int closes, code;
        const char *text;
    } cases[] = {
        {"redis://HOST", "INFO", "-NOPERM no\r\n", 0, 0, NULL},
        {"redis://HOST", "INFO", "-ERR unknown command\r\n", 0, 0, NULL},
        {"redis://HOST", "INFO", "-LOADING\r\n", 0, HF_UNAVAILABLE, "LOADING"},
        {"redis://HOST", "INFO", "-NOAUTH\r\n", 0, HF_DENIED, "NOAUTH"},
        {"redis://HOST", "INFO", "$0\r\n\r\n", 0, 0, NULL},
        {"redis://HOST", "INFO", "$17\r\nredis_version:4.0\r\n", 0, HF_UNSUPPORTED, "older"},
        {"redis://HOST", "INFO", "$10\r\nrole:slave\r\n", 0, HF_UNSUPPORTED, "replica"},
        {"redis://HOST", "INFO", "$28\r\nmaxmemory_policy:allkeys-lru\r\n", 0, HF_UNSUPPORTED,
         "allkeys-lru"},
        {"redis://HOST", "INFO", "$17\r\ncluster_enabled:1\r\n", 0, HF_UNSUPPORTED, "cluster"},
        {"redis://HOST?prefix={}", "INFO", "$17\r\ncluster_enabled:1\r\n", 0, HF_UNSUPPORTED,
         "cluster"},
        {"redis://HOST?prefix={a", "INFO", "$17\r\ncluster_enabled:1\r\n", 0, HF_UNSUPPORTED,
         "cluster"},
        {"redis://HOST?prefix={a}", "INFO", "$17\r\ncluster_enabled:1\r\n", 0, 0, NULL},
        {"redis://HOST", "CLIENT", "-ERR max number of clients reached\r\n", 1, HF_UNAVAILABLE,
         "max number"},
        {"redis://HOST", "CLIENT", NULL, 1, HF_UNAVAILABLE, "closed"},
        {"redis://HOST", "CLIENT", "-NOPERM no\r\n", 0, 0, NULL},
        {"redis://HOST/3", "SELECT", "-ERR DB index is out of range\r\n", 0, HF_INVALID, "DB"},
        {"redis://u:topsecret@HOST", "AUTH", "-WRONGPASS x\r\n", 0, HF_DENIED, "WRONGPASS"},
        {"redis://:topsecret@HOST", "AUTH", "-ERR topsecret is wrong\r\n", 0, HF_DENIED, "refused"},
        {"redis://:d@HOST", "AUTH", "-ERR invalid password\r\n", 0, HF_DENIED, "AUTH was refused"},
        {"redis://:d@HOST", "AUTH", "-LOADING a dataset\r\n", 0, HF_UNAVAILABLE,
         "LOADING a dataset"},
        {"redis://:d@HOST", "INFO", "-LOADING a dataset\r\n", 0, HF_UNAVAILABLE,
         "LOADING a dataset"},
        {"redis://:d@HOST", "AUTH", "-ERR max number of clients reached\r\n", 1, HF_UNAVAILABLE,
         "max number"},
        {"redis://HOST", "CLIENT", "-DENIED protected mode\r\n", 1, HF_DENIED, "DENIED"},
        {"redis://HOST/3", "SELECT", "-NOAUTH Authentication required\r\n", 0, HF_DENIED, "NOAUTH"},
        {"redis://HOST?wait=1", "WAIT", "-NOPERM no\r\n", 0, HF_DENIED, "NOPERM"},
        {"redis://HOST?wait=1", "WAIT", "-ERR no replica\r\n", 0, HF_UNAVAILABLE, "no replica"},
        {"redis://HOST?wait=101", "", "", 0, HF_INVALID, "wait: not a number"},
        {"redis://HOST?wait=x", "", "", 0, HF_INVALID, "wait: not a number"},
        {"redis://HOST?wait=", "", "", 0, HF_INVALID, "wait: not a number"},
        {"redis://HOST?db=x", "", "", 0, HF_INVALID, "db: not a number"},
        {"redis://HOST/x", "", "", 0, HF_INVALID, "the path isn't"},
        {"redis://HOST/123456", "", "", 0, HF_INVALID, "the path isn't"},
        {"redis://HOST/1?db=2", "", "", 0, HF_INVALID, "another database"},
        {"redis://HOST/2?db=2", "", "", 0, 0, NULL},
        {"redis://HOST?socket=/x", "", "", 0, HF_INVALID, "there is a host"},
        {"redis://HOST?prefix=", "", "", 0, HF_INVALID, "prefix: not"},
        {"redis://HOST?prefix=a%09b", "", "", 0, HF_INVALID, "a control character"},
        {"redis://HOST?passfile=/proc/none", "", "", 0, HF_UNAVAILABLE, "the password file '"},
        {"redis://HOST?passfile=/dev/null", "", "", 0, HF_INVALID, "the password file '"},
        {"redis://:p@HOST?passfile=/dev/null", "", "", 0, HF_INVALID, "a password already"},
        {"redis://HOST?passfile=a&passfile=b", "", "", 0, HF_INVALID, "given twice"},
        {"redis://HOST?cafile=x", "", "", 0, HF_INVALID, "unknown option 'cafile'"},
        {"redis://u@HOST", "", "", 0, HF_INVALID, "a user without"},
        {"redis://a,HOST", "", "", 0, HF_INVALID, "more than one host"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        hf_store *st = NULL;
        const struct resp_rule only = {cases[i].command, cases[i].reply, 0, cases[i].closes};
        resp_are(&only, 1);
        int rc = resp_opens(cases[i].url, &st);
        if (rc != cases[i].code) fail_msg("%s, %zu: %d: %s", cases[i].url, i, rc, err.text);
        said(rc, cases[i].code, cases[i].text);
        assert_null(strstr(err.text, "topsecret"));
        if (st) redis->close(st);
    }
}

/* It is told apart from a server that can't be reached. */
static void who_is_full_or_loads_is_there(void **state)
{
    static const struct resp_rule full = {"CLIENT", "-ERR max number of clients reached\r\n", 0, 1};
    static const struct resp_rule loads = {"INFO", "-LOADING a dataset\r\n", 0, 0};
    static const struct resp_rule gone = {"CLIENT", NULL, 0, 1};
    const struct resp_rule *cases[] = {&full, &loads, &gone};
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        hf_store *st = NULL;
        resp_are(cases[i], 1);
        said(resp_opens("redis://HOST", &st), HF_UNAVAILABLE, NULL);
        assert_int_equal(err.sys, cases[i] == &gone ? 0 : EBUSY);
    }
}

/* Then another may take its place. */
static void who_was_fit_once_is_away(void **state)
{
    (void)state;
    hf_store *st = opened_anew("redis://HOST");
    const struct resp_rule gone = {NULL, NULL, 0, 1};
    resp_are(&gone, 1);
    hf_row row;
    hf_row_init(&row);
    said(redis->get(st, &key, &row, &clock_us, &err), HF_UNAVAILABLE, "closed");
    const struct resp_rule replica = {"INFO", "$10\r\nrole:slave\r\n", 0, 0};
    resp_are(&replica, 1);
    said(redis->get(st, &key, &row, &clock_us, &err), HF_UNAVAILABLE, "replica");
    hf_row_clear(&row);
    redis->close(st);
}

/* ---- lists ---- */

struct seen {
    char text[400];
    int stop;
};

static int see(void *arg, const hf_rowkey *k, hf_row *row)
{
    struct seen *s = arg;
    snprintf(s->text + strlen(s->text), 100, "%s%s ", k->text, row ? "" : "!");
    return s->stop;
}

#define NONE "$-1\r\n$-1\r\n$-1\r\n$-1\r\n$-1\r\n$-1\r\n$-1\r\n$-1\r\n$-1\r\n$-1\r\n"

static void lists_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *scan, *rows;
        int code;
        const char *text; /* the keys that are shown, or the error */
    } cases[] = {
        {"*2\r\n$1\r\n0\r\n*0\r\n", "", 0, ""},
        {"*2\r\n$1\r\n0\r\n*2\r\n$10\r\nholdfast:a\r\n$10\r\nholdfast:a\r\n", NULL, 0, "a "},
        /* A key that isn't a row of ours is passed over, whatever its name. */
        {"*2\r\n$1\r\n0\r\n*3\r\n$0\r\n\r\n$9\r\nholdfast:\r\n$10\r\nholdfast:a\r\n", NULL, 0,
         "a "},
        {"*2\r\n$1\r\n0\r\n*2\r\n$4\r\nhold\r\n$11\r\notherwise:a\r\n", NULL, 0, ""},
        {"*2\r\n$1\r\n0\r\n*1\r\n$10\r\nholdfast:a\r\n", "-WRONGTYPE\r\n", 0, "a! "},
        {"*2\r\n$1\r\n0\r\n*1\r\n$10\r\nholdfast:a\r\n", "*2\r\n:0\r\n" CLOCK, 0, "a! "},
        {"*2\r\n$1\r\n0\r\n*1\r\n$10\r\nholdfast:a\r\n", "-OOM\r\n", HF_FULL, "list 'a': OOM"},
        {"*2\r\n$1\r\n0\r\n*1\r\n$10\r\nholdfast:a\r\n", "-NOSCRIPT\r\n", HF_UNAVAILABLE, "NOS"},
        {"*2\r\n$1\r\n0\r\n*1\r\n$10\r\nholdfast:a\r\n", ":7\r\n", HF_UNAVAILABLE,
         "the answer doesn't fit"},
        {"*2\r\n$1\r\n0\r\n*1\r\n$10\r\nholdfast:a\r\n", "x\r\n", HF_UNAVAILABLE, "rotocol"},
        {":7\r\n", "", HF_UNAVAILABLE, "the answer doesn't fit the request"},
        {"*1\r\n$1\r\n0\r\n", "", HF_UNAVAILABLE, "the answer doesn't fit the request"},
        {"*2\r\n:0\r\n*0\r\n", "", HF_UNAVAILABLE, "the answer doesn't fit the request"},
        {"*2\r\n$1\r\n0\r\n$1\r\nx\r\n", "", HF_UNAVAILABLE, "the answer doesn't fit the request"},
        {"*2\r\n$1\r\n0\r\n*1\r\n:7\r\n", "", HF_UNAVAILABLE, "the answer doesn't fit the request"},
        {"*2\r\n$1\r\n0\r\n*1\r\n$-1\r\n", "", HF_UNAVAILABLE,
         "the answer doesn't fit the request"},
        {"-NOPERM no\r\n", "", HF_DENIED, "NOPERM"},
        {"-READONLY no\r\n", "", HF_UNAVAILABLE, "READONLY"},
        {"x\r\n", "", HF_UNAVAILABLE, "rotocol"},
    };
    hf_store *st = opened_anew("redis://HOST");
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct seen s = {"", 0};
        const char *rows = cases[i].rows ? cases[i].rows : resp_row_but(0, "", "");
        const struct resp_rule three[] = {
            {"SCAN", cases[i].scan, 0, 0}, {"EVALSHA", rows, 0, 0}, {"EVAL", rows, 0, 0}};
        resp_are(three, 3);
        said(redis->scan(st, "", see, &s, &clock_us, &err), cases[i].code,
             cases[i].code ? cases[i].text : NULL);
        if (!cases[i].code) assert_string_equal(s.text, cases[i].text);
    }
    /* The key was deleted meanwhile, or its name is too long for a key. */
    static char name[HF_KEY_CAP + 1];
    const struct resp_rule gone[] = {
        {"SCAN", "*2\r\n$1\r\n0\r\n*1\r\n$10\r\nholdfast:a\r\n", 0, 0},
        {"EVALSHA", "*4\r\n:0\r\n" CLOCK ":0\r\n*12\r\n" NONE "$-1\r\n$-1\r\n", 0, 0}};
    struct seen nothing = {"", 0};
    resp_are(gone, 2);
    said(redis->scan(st, "", see, &nothing, &clock_us, &err), 0, NULL);
    memset(name, 'a', HF_KEY_CAP);
    said(redis->scan(st, name, see, &nothing, &clock_us, &err), 0, NULL);
    assert_string_equal(nothing.text, "");
    /* Two pages of names; the scripts are forgotten in between; a callback that has seen enough
       stops. */
    const struct resp_rule pages[] = {
        {"SCAN", "*2\r\n$1\r\n7\r\n*1\r\n$10\r\nholdfast:b\r\n", 1, 0},
        {"SCAN", "*2\r\n$1\r\n0\r\n*1\r\n$10\r\nholdfast:a\r\n", 1, 0},
        {"EVALSHA", "-NOSCRIPT\r\n", 2, 0},
        {NULL, resp_row_but(0, "", ""), 0, 0}};
    struct seen s = {"", 0};
    resp_are(pages, 4);
    said(redis->scan(st, "", see, &s, &clock_us, &err), 0, NULL);
    assert_string_equal(s.text, "a b ");
    s = (struct seen){"", 1};
    resp_are(pages, 4);
    said(redis->scan(st, "", see, &s, &clock_us, &err), 0, NULL);
    assert_string_equal(s.text, "a ");
    redis->close(st);
}

/* ---- doctor ---- */

static char heard[2000];

static void note(void *arg, int ok, const char *text)
{
    (void)arg;
    snprintf(heard + strlen(heard), 300, "%s%s\n", ok ? "" : "BAD ", text);
}

static void the_doctor_says_what_he_is_told(void **state)
{
    (void)state;
    static const struct {
        const char *reply;
        int code;
        const char *text;
    } cases[] = {
        {"-NOPERM no\r\n", 0, "this user may not ask"},
        {"-NOPERM no\r\n", 0, "the locks are in the database 0, in keys that begin with '{a}'\n"},
        {"-ERR unknown command\r\n", 0, "this user may not ask"},
        {"-LOADING no\r\n", HF_UNAVAILABLE, "inspect: LOADING no"},
        {"-NOAUTH no\r\n", HF_DENIED, "inspect: NOAUTH no"},
        {":7\r\n", HF_UNAVAILABLE, "inspect: the answer doesn't fit the request"},
        {"x\r\n", HF_UNAVAILABLE, "inspect: "},
        {"$0\r\n\r\n", 0,
         "Redis of a version that it doesn't tell, which may be written\n"
         "maxmemory-policy unknown: no row"},
        {"$10\r\nrole:slave\r\n", 0, "BAD it is a replica"},
        {"$34\r\nmaxmemory_policy:volatile-lru\r\nx:y\r\n", 0, "no time to live"},
        {"$13\r\naof_enabled:1\r\n", 0, "\nappendonly: "},
        {"$26\r\nrdb_last_bgsave_status:err\r\n", 0, "BAD the server could not write"},
        {"$17\r\ncluster_enabled:1\r\n", 0, "a cluster, of which one slot is used"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        hf_store *st = opened_anew("redis://HOST?wait=1&prefix={a}");
        const struct resp_rule one = {"INFO", cases[i].reply, 1, 0};
        heard[0] = 0;
        resp_are(&one, 1);
        said(redis->inspect(st, note, NULL, &err), cases[i].code,
             cases[i].code ? cases[i].text : NULL);
        if (!cases[i].code && !strstr(heard, cases[i].text)) fail_msg("%s", heard);
        assert_false(strstr(heard, "replica:") && strstr(heard, "may be written"));
        redis->close(st);
    }
}

/* ---- subscriber ---- */

#define TOLD(name)                "*3\r\n$9\r\nsubscribe\r\n$10\r\nholdfast:" name "\r\n:1\r\n"
#define MESSAGE(what, name, text) "*3\r\n$7\r\n" what "\r\n$10\r\nholdfast:" name "\r\n" text

#define AT    "holdfast:\t0123456789abcdef"
#define AT_IT "*3\r\n$7\r\nmessage\r\n$26\r\n" AT "\r\n"

/* A queued waiter isn't notified on the key's channel, but at its address, the first half of its
   id. There each message names its key. */
static hf_store *heard_at_its_address(hf_row *row)
{
    static const uint8_t who[16] = {0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 1};
    static const struct resp_rule rules[] = {{"SUBSCRIBE",
                                              AT_IT
                                              "$1\r\nx\r\n" AT_IT ":7\r\n" AT_IT "$42\r\nx\n" ID
                                              " 9 1 2 3\r\n" AT_IT "$42\r\nk\n" ID " 7 1 2 3\r\n"
                                              "*3\r\n$9\r\nsubscribe\r\n$26\r\n" AT "\r\n:1\r\n",
                                              0, 0}};
    hf_rowkey in_line = key;
    const hf_rowkey *keys[] = {&in_line};
    hf_event_count since;
    in_line.who = who;
    in_line.in_line = 1;
    hf_store *st = opened_anew("redis://HOST");
    resp_are(rules, 1);
    said(listen_for(redis, st, keys, 1, &since, &err), 0, NULL);
    assert_int_equal(since.n[0], 2); /* the connection, and one message */
    assert_true(redis->caps.notify->payload(st, &key, row));
    assert_true(row->token == 7 && row->n_holders == 1 && row->party[0].expires_us == 2);
    return st;
}

static void what_is_heard_wakes(void **state)
{
    (void)state;
    static const char *const refused[] = {"-NOPERM no\r\n", "x\r\n", "*3\r\n-"};
    const hf_rowkey *keys[] = {&key};
    const int64_t for_ever = INT64_MAX / 2;
    static char both[1000];
    hf_event_count since;
    hf_row row;
    hf_row_init(&row);
    /* Messages without meaning, and then one with meaning, which a bad server sends before it is
       asked: the confirmation comes last. */
    static const char words[] =
        ":7\r\n*1\r\n:7\r\n*3\r\n:1\r\n:2\r\n:3\r\n*3\r\n$7\r\nmessage\r\n:2\r\n:3\r\n" MESSAGE(
            "strange", "k", ":1\r\n") MESSAGE("message", "x", "$1\r\nx\r\n") TOLD("k");
    static const char *const events[] = {MESSAGE("message", "k", "$0\r\n\r\n"),
                                         MESSAGE("message", "k", ":7\r\n"),
                                         MESSAGE("message", "k", "$5\r\nthis!\r\n"),
                                         MESSAGE("message", "k", "$41\r\n" ID " -7 1 2 3\r\n"),
                                         MESSAGE("message", "k", "$40\r\n" ID " 0 1 2 3\r\n"),
                                         MESSAGE("message", "k", "$42\r\n" ID " 7 1 2 300\r\n"),
                                         MESSAGE("message", "k", "$36\r\n" ID " 7 1\r\n")};
    for (size_t i = 0; i < COUNT(events); i++) {
        hf_store *st = opened_anew("redis://HOST");
        const struct resp_rule first = {"SUBSCRIBE", both, 0, 0};
        snprintf(both, sizeof both, "%s%s", words, events[i]);
        resp_are(&first, 1);
        said(listen_for(redis, st, keys, 1, &since, &err), 0, NULL);
        since.n[0] = 1; /* counts connections; the event has come, or comes */
        said(redis->caps.notify->sleep(st, &since, for_ever, &err), 0, NULL);
        assert_false(redis->caps.notify->payload(st, &key, &row));
        said(redis->caps.notify->sleep(st, &since, 0, &err), 0, NULL);
        redis->close(st);
    }
    /* A notification says that the key was handed over, and to which request. */
    hf_store *heard_of = opened_anew("redis://HOST");
    const struct resp_rule handed = {"SUBSCRIBE",
                                     MESSAGE("message", "k", "$1\r\nx\r\n")
                                         MESSAGE("message", "k", "$40\r\n" ID " 7 1 2 3\r\n")
                                             TOLD("k"),
                                     0, 0};
    resp_are(&handed, 1);
    said(listen_for(redis, heard_of, keys, 1, &since, &err), 0, NULL);
    assert_true(redis->caps.notify->payload(heard_of, &key, &row));
    assert_true(row.token == 7 && row.n_holders == 1 && row.party[0].expires_us == 2);
    redis->close(heard_of);
    redis->close(heard_at_its_address(&row));
    for (size_t i = 0; i < COUNT(refused); i++) {
        hf_store *st = opened_anew("redis://HOST");
        const struct resp_rule no = {"SUBSCRIBE", refused[i], 0, 1};
        resp_are(&no, 1);
        said(listen_for(redis, st, keys, 1, &since, &err), HF_UNAVAILABLE,
             "subscribe to notifications: ");
        redis->close(st);
    }
    hf_store *st = opened_anew("redis://HOST");
    const struct resp_rule ends = {"SUBSCRIBE", TOLD("k"), 0, 1};
    resp_are(&ends, 1);
    int rc = listen_for(redis, st, keys, 1, &since, &err);
    if (!rc) rc = redis->caps.notify->sleep(st, &since, for_ever, &err);
    said(rc, HF_UNAVAILABLE, "subscribe to notifications: ");
    redis->close(st);
    hf_row_clear(&row);
}

/* Channels are the whole server's; rows aren't. */
static void what_another_database_tells_is_of_another_row(void **state)
{
    (void)state;
#define HANDED(n, channel, n_text, text) \
    "*3\r\n$7\r\nmessage\r\n$" #n "\r\n" channel "\r\n$" #n_text "\r\n" text "\r\n"
    static const struct {
        const char *url, *word;
        int is_told;
    } cases[] = {
        {"redis://HOST", HANDED(10, "holdfast:k", 40, ID " 7 1 2 3"), 1},
        {"redis://HOST/000", HANDED(10, "holdfast:k", 40, ID " 7 1 2 3"), 1},
        {"redis://HOST", HANDED(12, "holdfast:k\t1", 40, ID " 7 1 2 3"), 0},
        {"redis://HOST/1", HANDED(12, "holdfast:k\t1", 40, ID " 7 1 2 3"), 1},
        {"redis://HOST/01", HANDED(12, "holdfast:k\t1", 40, ID " 7 1 2 3"), 1},
        {"redis://HOST/1", HANDED(10, "holdfast:k", 40, ID " 7 1 2 3"), 0},
        {"redis://HOST/1", HANDED(13, "holdfast:k\t10", 40, ID " 7 1 2 3"), 0},
        {"redis://HOST/10", HANDED(13, "holdfast:k\t10", 40, ID " 7 1 2 3"), 1},
        {"redis://HOST", HANDED(26, AT, 42, "k\n" ID " 7 1 2 3"), 1},
        {"redis://HOST/1", HANDED(28, AT "\t1", 42, "k\n" ID " 7 1 2 3"), 1},
    };
    const hf_rowkey *keys[] = {&key};
    static char said_to[1000];
    hf_event_count since;
    hf_row row;
    hf_row_init(&row);
    for (size_t i = 0; i < COUNT(cases); i++) {
        hf_store *st = opened_anew(cases[i].url);
        const struct resp_rule first = {"SUBSCRIBE", said_to, 0, 0};
        snprintf(said_to, sizeof said_to, "%s" TOLD("k"), cases[i].word);
        resp_are(&first, 1);
        said(listen_for(redis, st, keys, 1, &since, &err), 0, NULL);
        if (redis->caps.notify->payload(st, &key, &row) != cases[i].is_told) fail_msg("%zu", i);
        redis->close(st);
    }
    hf_row_clear(&row);
}

/* The writer may have opened the store without `wait`: the payload only says that there was a
   change. */
static void who_waits_for_replicas_believes_no_word(void **state)
{
    (void)state;
    static const struct resp_rule handed = {
        "SUBSCRIBE", MESSAGE("message", "k", "$40\r\n" ID " 7 1 2 3\r\n") TOLD("k"), 0, 0};
    const hf_rowkey *keys[] = {&key};
    hf_event_count since;
    hf_row row;
    hf_row_init(&row);
    for (int wait = 0; wait < 2; wait++) {
        hf_store *st = opened_anew(wait ? "redis://HOST?wait=1" : "redis://HOST");
        uint64_t before = events_of(redis, st, &key);
        resp_are(&handed, 1);
        said(listen_for(redis, st, keys, 1, &since, &err), 0, NULL);
        assert_int_equal(redis->caps.notify->payload(st, &key, &row), !wait);
        assert_true(events_of(redis, st, &key) > before && since.n[0] == 2);
        redis->close(st);
    }
    hf_row_clear(&row);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_is_unfit_is_refused),
        cmocka_unit_test(who_is_full_or_loads_is_there),
        cmocka_unit_test(who_was_fit_once_is_away),
        cmocka_unit_test(lists_are_read),
        cmocka_unit_test(the_doctor_says_what_he_is_told),
        cmocka_unit_test(what_is_heard_wakes),
        cmocka_unit_test(what_another_database_tells_is_of_another_row),
        cmocka_unit_test(who_waits_for_replicas_believes_no_word),
    };
    return resp_begin() ? TEST_MAIN(tests) : 1;
}
