/*
 * etcd_answers.c - the driver etcd: before a server that answers anything: what it makes of it.
 */
#include "fakes/listens.h"

#include "etcd_said.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what is no answer ---- */

static void errors_mean_what_they_say(void **state)
{
    (void)state;
    static const struct {
        int status;
        const char *body;
        int code;
        const char *text;
    } cases[] = {
        {200, "[]", HF_UNAVAILABLE, "an answer that isn't etcd's"},
        {200, "", HF_UNAVAILABLE, "its answer isn't one whole gRPC message"},
        {200, "{\"kvs\": [", HF_UNAVAILABLE, "an answer that isn't etcd's"},
        {200, "nothing\nof it", HF_UNAVAILABLE, "an answer that isn't etcd's"},
        {404, "<html>", HF_UNSUPPORTED, "HTTP status 404, without gRPC's"},
        {501, "", HF_UNSUPPORTED, "HTTP status 501, without gRPC's"},
        {503, "{\"message\": \"gone\"}", HF_UNAVAILABLE, "HTTP status 503, without gRPC's"},
        {401, "", HF_DENIED, "HTTP status 401, without gRPC's"},
        {403, "{}", HF_DENIED, "HTTP status 403, without gRPC's"},
        {500, "{\"error\": \"a\\u0007b\\u007fc\"}", HF_UNAVAILABLE, "a b c"},
        {400, "{\"error\": \"etcdserver: permission denied\"}", HF_DENIED, "denied"},
        {400, "{\"error\": \"etcdserver: request is too large\"}", HF_FULL, "too large"},
        {500, "{\"error\": \"etcdserver: mvcc: database space exceeded\"}", HF_FULL, "space"},
        {503, "{\"error\": \"etcdserver: no leader\"}", HF_UNAVAILABLE, "no leader"},
        {429, "{\"error\": \"etcdserver: too many requests\"}", HF_UNAVAILABLE, "too many"},
        /* A phrase somewhere in a text doesn't count. If the text isn't etcd's, gRPC's code
           does. */
        {500, "{\"error\": \"no permission denied, too large\"}", HF_UNAVAILABLE, "too large"},
        {500, "{\"error\": \"nein\", \"code\": 7}", HF_DENIED, "nein"},
        {500, "{\"error\": \"x\", \"code\": 16}", HF_DENIED, "x"},
        {ANSWER_CLOSED, "", HF_UNAVAILABLE, ""},
        {ANSWER_CUT, "{", HF_UNAVAILABLE, ""},
        /* A status alone is no answer. */
        {ANSWER_HEAD_CUT(200), "", HF_UNAVAILABLE, "the connection was closed"},
        {ANSWER_HEAD_CUT(404), "", HF_UNAVAILABLE, "the connection was closed"},
        {ANSWER_HEAD_CUT(501), "", HF_UNAVAILABLE, "the connection was closed"},
    };
    hf_store *st = opened();
    hf_row row;
    int64_t clock_us;
    hf_row_init(&row);
    for (size_t i = 0; i < COUNT(cases); i++) {
        are((struct answer){"/v3/kv/range", cases[i].status, cases[i].body, 0});
        said(driver->get(st, &key, &row, &clock_us, &err), cases[i].code, cases[i].text);
        are((struct answer){"/v3/kv/txn", cases[i].status, cases[i].body, 0});
        int rc = driver->replace(st, &key, 0, NULL, NULL, &clock_us, &err);
        said(rc,
             cases[i].code == HF_UNAVAILABLE && !strstr(cases[i].body, "requests") ? HF_UNKNOWN
                                                                                   : cases[i].code,
             cases[i].text);
    }
    hf_row_clear(&row);
    driver->close(st);
}

/* ---- rows ---- */

#define SIXTEEN "sixteen letters "
#define LONG    SIXTEEN SIXTEEN SIXTEEN SIXTEEN SIXTEEN SIXTEEN SIXTEEN SIXTEEN
#define HOLDER(len, more) \
    "\x42" len "\x0a\x10" \
    "0123456789abcdef"    \
    "\x12\x02"            \
    "me"                  \
    "\x20\x05\x38\x07" more
#define ROW_OF(party) "{\"format\": 1, \"rev\": 5, \"token\": 5, \"holders\": [{" party "}]}"

static void damaged_ranges_are_told(void **state)
{
    (void)state;
    static const struct {
        const char *row, *rev;
        const char *text; /* NULL: it is one */
    } cases[] = {
        {FREE_ROW, "5", NULL},
        {FREE_ROW, "6", "the rev beside the row isn't the row's"},
        {"[1]", "5", "not a row"},
        {"\b", "5", "not a row"},
        /* A row with an unknown field. */
        {"\x08\x01\x10\x05\x18\x05", "5", NULL},
        {"\x08\x01\x10\x05\x18\x05\x58\x01", "5", "not a row"},
        {"\x08\x01\x10\x05\x18\x05" HOLDER("\x1a", ""), "5", NULL},
        {"\x08\x01\x10\x05\x18\x05" HOLDER("\x1c", "\x70\x01"), "5", "a valid one"},
        {"", "5", "another version"},
        {"{\"format\": 2, \"rev\": 5}", "5", "another version"},
        {"{\"format\": 1, \"rev\": -5}", "5", "rev above 2^53"},
        {ROW_OF("\"owner\": \"me\", \"request\": \"short\""), "5",
         "a holder or waiter that isn't a valid one"},
        {ROW_OF("\"owner\": \"me\""), "5", "a holder or waiter that isn't a valid one"},
        {ROW_OF("\"owner\": \"" LONG "\", \"request\": \"" ID "\""), "5",
         "a holder or waiter that isn't a valid one"},
        {ROW_OF(PARTY ", \"mode\": 256"), "5", "a holder or waiter that isn't a valid one"},
        {ROW_OF(PARTY ", \"mode\": 3"), "5", "unknown mode"},
        {ROW_OF(PARTY ", \"flags\": 256"), "5", "a holder or waiter that isn't a valid one"},
        {ROW_OF(PARTY ", \"wakeup\": 256"), "5", "a holder or waiter that isn't a valid one"},
        {ROW_OF(PARTY ", \"lease_ms\": 4294967296"), "5",
         "a holder or waiter that isn't a valid one"},
        {ROW_OF(PARTY ", \"claim_ms\": 4294967296"), "5",
         "a holder or waiter that isn't a valid one"},
        {ROW_OF(PARTY ", \"limit\": 4294967296"), "5", "a holder or waiter that isn't a valid one"},
        {ROW_OF(PARTY ", \"token\": 5"), "5", "never end"},
        {ROW_OF(PARTY ", \"token\": 6, \"session\": 7"), "5", "above the last grant"},
        {ROW_OF(PARTY ", \"token\": 5, \"expires_us\": -1"), "5", "negative time"},
    };
    hf_store *st = opened();
    hf_row row;
    int64_t clock_us = 0;
    hf_row_init(&row);
    for (size_t i = 0; i < COUNT(cases); i++) {
        is(200, "{" HEADER ", \"kvs\": [%s, %s]}", kv("/p/k", cases[i].row),
           kv("/p/k\trev", cases[i].rev));
        int rc = driver->get(st, &key, &row, &clock_us, &err);
        if (cases[i].text)
            said(rc, HF_CORRUPT, cases[i].text);
        else
            said(rc, 0, NULL);
    }
    assert_true(clock_us >= INT64_C(1769860800) * 1000000 + 7 * 16);
    is(200, "{\"kvs\": [%s]}", kv("/p/k\trev", "5"));
    said(driver->get(st, &key, &row, &clock_us, &err), HF_CORRUPT, "a rev without a row");
    is(200, "{\"kvs\": [%s, %s]}", kv("/p/k", FREE_ROW), kv("/p/other", "x"));
    said(driver->get(st, &key, &row, &clock_us, &err), HF_CORRUPT,
         "keys that Holdfast doesn't write");
    hf_row_clear(&row);
    driver->close(st);
}

static void a_write_is_answered(void **state)
{
    (void)state;
    hf_store *st = opened();
    hf_row row, cur;
    int64_t clock_us;
    hf_row_init(&row);
    hf_row_init(&cur);
    is(200, "{\"kvs\": [%s, %s]}", kv("/p/k", HELD), kv("/p/k\trev", "5"));
    said(driver->get(st, &key, &row, &clock_us, &err), 0, NULL);
    row.rev = 6;
    is(200, "{\"succeeded\": true}");
    said(driver->replace(st, &key, 5, &row, &cur, &clock_us, &err), 0, NULL);
    assert_int_equal(answers_given(), 1);
    is(200, "{\"responses\": [{\"response_range\": {\"kvs\": [%s, %s]}}]}", kv("/p/k", HELD),
       kv("/p/k\trev", "5"));
    said(driver->replace(st, &key, 4, &row, &cur, &clock_us, &err), HF_CONFLICT, NULL);
    assert_int_equal(cur.rev, 5);
    said(driver->replace(st, &key, 4, &row, NULL, &clock_us, &err), HF_CONFLICT, NULL);
    is(200, "{\"responses\": [{\"response_range\": {\"kvs\": [%s]}}]}", kv("/p/k", "x"));
    said(driver->replace(st, &key, 4, &row, &cur, &clock_us, &err), HF_CORRUPT, "damaged");
    is(200, "{}");
    said(driver->replace(st, &key, 4, &row, &cur, &clock_us, &err), HF_CONFLICT, NULL);
    assert_int_equal(cur.rev, 0);
    is(404, "{\"error\": \"etcdserver: requested lease not found\"}");
    said(driver->replace(st, &key, 5, &row, &cur, &clock_us, &err), HF_LOST, "lease not found");
    hf_row_clear(&row);
    hf_row_clear(&cur);
    driver->close(st);
}

/* A write that was refused or lost may have removed the inbox. When the request is queued again, it
   puts the inbox again; without it no writer would notify it. */
static void an_inbox_that_may_be_gone_is_put_again(void **state)
{
    (void)state;
    static const int lost[] = {ANSWER_CLOSED, 200};
    hf_store *st = opened();
    hf_row row;
    int64_t clock_us, ms;
    uint64_t session;
    char inbox[40];
    is(200, "{" HEADER ", \"TTL\": \"60\"}");
    said(driver->caps.sessions->make(st, 60000, &session, &ms, &clock_us, &err), 0, NULL);
    snprintf(inbox, sizeof inbox, "/p/\t%016llx\tk", (unsigned long long)session);
    hf_row_init(&row);
    is(200, "{\"kvs\": [%s, %s]}", kv("/p/k", HELD), kv("/p/k\trev", "5"));
    said(driver->get(st, &key, &row, &clock_us, &err), 0, NULL);
    row.party[0].session = 0;
    row.party[1] = row.party[0];
    row.party[1].id[0]++;
    row.party[1].token = 0;
    row.party[1].session = session;
    for (size_t i = 0; i < COUNT(lost); i++) {
        row.n_queue = 1;
        for (int again = 0; again < 2; again++) {
            row.rev++;
            is(200, "{\"succeeded\": true}");
            said(driver->replace(st, &key, row.rev - 1, &row, NULL, &clock_us, &err), 0, NULL);
            assert_non_null(strstr(answers_asked(), answers_base64(inbox, strlen(inbox))));
            assert_int_equal(strstr(answers_asked(), "ignore_lease") != NULL, again);
        }
        row.n_queue = 0;
        is(lost[i], "{}");
        said(driver->replace(st, &key, row.rev, &row, NULL, &clock_us, &err),
             lost[i] == 200 ? HF_CONFLICT : HF_UNKNOWN, NULL);
        assert_non_null(strstr(answers_asked(), answers_base64(inbox, strlen(inbox))));
    }
    hf_row_clear(&row);
    driver->close(st);
}

/* etcd reports a write that has used up its room like one that it didn't make. */
static void what_had_no_room_is_looked_for(void **state)
{
    (void)state;
    static const char full[] = "{\"error\": \"etcdserver: mvcc: database space exceeded\"}";
    static const char written[] = "{\"format\": 1, \"rev\": 6, \"token\": 5, \"holders\": [{" PARTY
                                  ", \"token\": 5, \"session\": 734439800834}]}";
    static char old[2000], new[2000];
    hf_store *st = opened();
    hf_row row;
    int64_t clock_us;
    hf_row_init(&row);
    snprintf(old, sizeof old, "{" HEADER ", \"kvs\": [%s, %s, %s]}", kv("/p/k", HELD),
             kv("/p/k\trev", "5"), kv("/p/k\t" SESSION, ""));
    /* The row's holder has died since, but the row is what was written. */
    snprintf(new, sizeof new, "{" HEADER ", \"kvs\": [%s, %s]}", kv("/p/k", written),
             kv("/p/k\trev", "6"));
    are((struct answer){"range", 200, old, 0});
    said(driver->get(st, &key, &row, &clock_us, &err), 0, NULL);
    row.rev = 6;
    const struct answer done[] = {{"txn", 500, full, 0}, {"range", 200, new, 0}};
    answers_are(done, 2);
    clock_us = 0;
    said(driver->replace(st, &key, 5, &row, NULL, &clock_us, &err), 0, NULL);
    assert_true(clock_us != 0 && answers_given() == 2);
    const struct answer refused[] = {{"txn", 500, full, 0}, {"range", 200, old, 0}};
    answers_are(refused, 2);
    said(driver->replace(st, &key, 5, &row, NULL, &clock_us, &err), HF_FULL, "space exceeded");
    /* Another client's row, perhaps written upon this one. */
    answers_are(done, 2);
    row.party[0].flags = HF_PARTY_UNCLAIMED;
    said(driver->replace(st, &key, 5, &row, NULL, &clock_us, &err), HF_UNKNOWN, "space exceeded");
    const struct answer mute[] = {{"txn", 500, full, 0}, {"range", ANSWER_CLOSED, "", 0}};
    answers_are(mute, 2);
    said(driver->replace(st, &key, 5, &row, NULL, &clock_us, &err), HF_UNKNOWN, "space exceeded");
    /* A row that was to go. */
    answers_are(refused, 2);
    said(driver->replace(st, &key, 4, NULL, NULL, &clock_us, &err), HF_UNKNOWN, "space exceeded");
    const struct answer gone[] = {{"txn", 500, full, 0}, {"range", 200, "{" HEADER "}", 0}};
    answers_are(gone, 2);
    said(driver->replace(st, &key, 5, NULL, NULL, &clock_us, &err), 0, NULL);
    hf_row_clear(&row);
    driver->close(st);
}

/* ---- logging in ---- */

static void a_user_is_asked_for(void **state)
{
    (void)state;
    hf_store *st = NULL;
    hf_row row;
    int64_t clock_us;
    hf_row_init(&row);
    static const char url[] = "etcd://me:s3cr3t@127.0.0.1:PORT/p";
    are((struct answer){"authenticate", 200, "{}", 0});
    said(opens(url, &st), HF_UNAVAILABLE, "no token");
    are((struct answer){"authenticate", 400, "{\"error\": \"etcdserver: authentication failed\"}",
                        0});
    said(opens(url, &st), HF_DENIED, "authentication failed");
    are((struct answer){"authenticate", 400,
                        "{\"error\": \"etcdserver: authentication is not enabled\"}", 0});
    said(opens(url, &st), 0, NULL);
    driver->close(st);

    /* Signed ones are long. */
    char reply[3000] = "{\"token\": \"";
    memset(reply + strlen(reply), 'T', 2500);
    snprintf(reply + strlen(reply), 20, "END\"}");
    const struct answer signs[] = {{"authenticate", 200, reply, 0}, well};
    answers_are(signs, 2);
    said(opens(url, &st), 0, NULL);
    assert_non_null(strstr(answers_asked(), "TTTEND\r\n"));
    driver->close(st);

    const struct answer expires[] = {
        {"authenticate", 200, "{\"token\": \"one\"}", 1},
        {"authenticate", 200, "{\"token\": \"two\"}", 1},
        {"range", 200, "{}", 1},
        {"range", 401, "{\"error\": \"etcdserver: invalid auth token\"}", 1},
        {"range", 200, "{}", 1},
        {"range", 401, "{\"error\": \"etcdserver: user name is empty\"}", 1},
        {"authenticate", 503, "{\"error\": \"etcdserver: no leader\"}", 1},
        {"range", 403, "{\"error\": \"etcdserver: permission denied\"}", 1}};
    answers_are(expires, COUNT(expires));
    said(opens(url, &st), 0, NULL);
    said(driver->get(st, &key, &row, &clock_us, &err), 0, NULL);
    said(driver->get(st, &key, &row, &clock_us, &err), HF_UNAVAILABLE, "no leader");
    answers_are(&expires[7], 1);
    said(driver->get(st, &key, &row, &clock_us, &err), HF_UNAVAILABLE, NULL);
    driver->close(st);
    /* The rights of its users have changed since. */
    const struct answer old[] = {
        {"authenticate", 200, "{\"token\": \"one\"}", 2},
        {"range", 200, "{}", 1},
        {"range", 400, "{\"error\": \"etcdserver: revision of auth store is old\"}", 1},
        {"range", 200, "{}", 0}};
    answers_are(old, COUNT(old));
    said(opens(url, &st), 0, NULL);
    said(driver->get(st, &key, &row, &clock_us, &err), 0, NULL);
    assert_int_equal(answers_given(), 5);
    driver->close(st);
    hf_row_clear(&row);
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

static void pages_are_told_in_order(void **state)
{
    (void)state;
    hf_store *st = opened();
    struct seen s = {"", 0};
    int64_t clock_us;
    char first[6000], second[6000];
    snprintf(first, sizeof first, "{\"more\": true, \"kvs\": [%s, %s, {\"key\": \"L3AvYQBi\"}, ",
             kv("/p/a", FREE_ROW), kv("/p/a\trev", "5"));
    snprintf(first + strlen(first), 3000, "%s, %s, %s, %s]}", kv("/p/", "x"), kv("/", "x"),
             kv("/p/b\trev", "5"), kv("/p/c", FREE_ROW));
    snprintf(second, sizeof second, "{\"kvs\": [%s, %s, %s]}", kv("/p/c", FREE_ROW),
             kv("/p/c\trev", "5"), kv("/p/d\t" SESSION, ""));
    const struct answer pages[] = {{"range", 200, first, 1}, {"range", 200, second, 1}};
    answers_are(pages, 2);
    said(driver->scan(st, "", see, &s, &clock_us, &err), 0, NULL);
    assert_string_equal(s.text, "a b! c ");
    /* A key that fills a page alone is asked for again with more room. */
    const struct answer narrow[] = {
        {"range", 200, "{\"more\": true, \"kvs\": [{\"key\": \"L3AvYQ==\"}]}", 1},
        {"range", 200, "{\"more\": true, \"kvs\": [{\"key\": \"L3AvYQ==\"}]}", 1},
        {"range", 200, second, 1}};
    answers_are(narrow, 3);
    s.text[0] = 0;
    said(driver->scan(st, "a", see, &s, &clock_us, &err), 0, NULL);
    assert_non_null(strstr(answers_asked(), "16000"));
    assert_string_equal(s.text, "c ");
    s.stop = 1;
    answers_are(&pages[0], 1);
    said(driver->scan(st, "", see, &s, &clock_us, &err), 0, NULL);
    is(200, "nothing of it");
    said(driver->scan(st, "", see, &s, &clock_us, &err), HF_UNAVAILABLE, "isn't etcd's");
    is(500, "{}");
    said(driver->scan(st, "", see, &s, &clock_us, &err), HF_UNAVAILABLE, "HTTP status 500");
    driver->close(st);
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
    hf_store *st = opened();
    const struct answer ill[] = {
        {"status", 200, "{\"dbSize\": \"4096\", \"leader\": \"0\"}", 0},
        {"member/list", 200, "{\"members\": [{}, {}, {}, {\"isLearner\": true}]}", 0},
        {"alarm", 200, "{\"alarms\": [{}, {\"alarm\": \"NOSPACE\"}, {\"alarm\": \"CORRUPT\"}]}",
         0}};
    const struct answer shut[] = {{"status", 200, "{\"version\": \"3.5\", \"leader\": 5}", 0},
                                  {"member/list", 403, "", 0},
                                  {"alarm", 403, "", 0}};
    heard[0] = 0;
    answers_are(ill, 3);
    said(driver->inspect(st, note, NULL, &err), 0, NULL);
    assert_string_equal(heard,
                        "the rows are the keys that begin with '/p/'\n"
                        "etcd ?, 4 KiB of data\nBAD there is no leader: nothing can be written\n"
                        "3 members vote: it goes on without 1 of them\n"
                        "BAD NOSPACE: its quota is used up, nothing can be written\n"
                        "BAD CORRUPT: its members disagree about what they store\n");
    heard[0] = 0;
    answers_are(shut, 3);
    said(driver->inspect(st, note, NULL, &err), 0, NULL);
    assert_non_null(strstr(heard, "this user may not ask for its members\n"
                                  "this user may not ask for its alarms\n"));
    for (size_t n = 0; n < 3; n++) {
        answers_are(shut, n ? 1 : 0);
        if (n == 2) {
            const struct answer two[] = {shut[0], shut[1], {"alarm", 500, "", 0}};
            answers_are(two, 3);
        }
        said(driver->inspect(st, note, NULL, &err), HF_UNAVAILABLE, "inspect");
    }
    driver->close(st);
}

/* ---- watches ---- */

static void what_is_heard_wakes(void **state)
{
    (void)state;
    hf_store *st = opened();
    hf_rowkey other;
    hf_event_count since, later;
    char event[600], far[600];
    assert_int_equal(hf_key_make("other", &other, &err), 0);
    const hf_rowkey *keys[] = {&key, &other};
    static const char created[] = "{\"created\": true}\n";
    const int64_t for_ever = INT64_MAX / 2;
    /* An event of the key; one of a key that no wait has; one that can't be read. */
    snprintf(event, sizeof event, "%s{\"events\": [{\"kv\": {\"key\": \"%s\"}}]}\n", created,
             answers_base64("/p/k\trev", 8));
    snprintf(far, sizeof far, "%s{\"events\": [{\"kv\": {\"key\": \"%s\"}}, {}]}\n", created,
             answers_base64("/p/far\trev", 10));
    const char *const words[] = {event, far};
    for (size_t i = 0; i < 2; i++) {
        are((struct answer){"watch", ANSWER_OPEN, words[i], 0});
        said(listen_for(driver, st, keys, 1, &since, &err), 0, NULL);
        since.n[0] = 0; /* since before it */
        said(driver->caps.notify->sleep(st, &since, for_ever, &err), 0, NULL);
        driver->close(st);
        listens_anew(st);
        st = opened();
    }
    /* There is no event: the sleep is interrupted. */
    are((struct answer){"watch", ANSWER_OPEN, created, 0});
    said(listen_for(driver, st, keys, 1, &since, &err), 0, NULL);
    driver->caps.notify->interrupt(st);
    said(driver->caps.notify->sleep(st, &since, for_ever, &err), 0, NULL);
    said(driver->caps.notify->sleep(st, &since, 0, &err), 0, NULL);
    /* More keys than there are streams for: all get a new one. */
    for (int i = 0; i < 6; i++) {
        char name[8];
        snprintf(name, sizeof name, "k%d", i);
        assert_int_equal(hf_key_make(name, &other, &err), 0);
        static const char twice[] = "{\"created\": true}\n{\"created\": true}\n";
        are((struct answer){"watch", ANSWER_OPEN, twice, 0});
        said(listen_for(driver, st, keys, 2, &later, &err), 0, NULL);
    }
    assert_true(later.n[0] > since.n[0]);
    /* The new stream covers all keys with this prefix: later ones need no further stream. */
    int given = answers_given();
    assert_int_equal(hf_key_make("k6/later", &other, &err), 0);
    said(listen_for(driver, st, keys, 2, &later, &err), 0, NULL);
    assert_int_equal(answers_given(), given);
    driver->close(st);
    listens_anew(st);
    /* The watch fails: the error says so, and for a while no other is tried. */
    static const char *const no[] = {"{\"canceled\": true}\n", "nonsense\n", ""};
    for (size_t i = 0; i < 3; i++) {
        st = opened();
        are((struct answer){"watch", 200, no[i], 0});
        said(listen_for(driver, st, keys, 1, &since, &err), HF_UNAVAILABLE, "no watch");
        /* "not tried", unless five seconds have passed meanwhile. */
        said(listen_for(driver, st, keys, 1, &since, &err), HF_UNAVAILABLE, "notifications: no");
        driver->close(st);
        listens_anew(st);
    }
    /* It breaks later. */
    st = opened();
    are((struct answer){"watch", 200, created, 0});
    int rc = listen_for(driver, st, keys, 1, &since, &err);
    if (!rc) rc = driver->caps.notify->sleep(st, &since, for_ever, &err);
    assert_int_equal(rc, HF_UNAVAILABLE);
    driver->close(st);
    listens_anew(st);
}

/* ---- URLs ---- */

static void urls_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *url;
        int code;
        const char *text;
    } cases[] = {
        {"etcd://127.0.0.1:PORT", 0, NULL},
        {"etcd://127.0.0.1:PORT/a", 0, NULL},
        {"etcd://127.0.0.1:1,127.0.0.1:PORT/a/", 0, NULL},
        {"etcd://127.0.0.1:PORT,,127.0.0.1:7", HF_INVALID, "not HOST[:PORT],..."},
        {"etcd://127.0.0.1:x,127.0.0.1:PORT", HF_INVALID, "not HOST[:PORT],..."},
        {"etcd://127.0.0.1:,127.0.0.1:PORT", HF_INVALID, "not HOST[:PORT],..."},
        {"etcd://a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q:PORT", HF_INVALID, "not HOST[:PORT],..."},
        {"etcd://127.0.0.1:PORT/?cafile=x", HF_INVALID, "cafile: unknown (cafile, cert and key"},
        {"etcd://127.0.0.1:PORT/?x", HF_INVALID, "x: unknown"},
        {"etcd://127.0.0.1:PORT/?api=json", HF_INVALID, "api: unknown: etcd is asked by gRPC"},
        {"etcd://[::1]:1/PORT", HF_UNAVAILABLE, ""},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        hf_store *st = NULL;
        answers_are(&well, 1);
        int rc = opens(cases[i].url, &st);
        if (rc != cases[i].code) fail_msg("%s: %d: %s", cases[i].url, rc, err.text);
        said(rc, cases[i].code, cases[i].text);
        if (st) driver->close(st);
    }
    char far[1200];
    hf_store *st = NULL;
    snprintf(far, sizeof far, "etcd://127.0.0.1:PORT/%01022d", 0);
    said(opens(far, &st), HF_INVALID, "etcd: open ");
    snprintf(far, sizeof far, "etcd://a.%0250d,127.0.0.1:PORT", 0);
    said(opens(far, &st), HF_INVALID, "");
}

/* No connection is made with less than what the URL asks for. */
static void certificates_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *options;
        int code;
        const char *text;
    } cases[] = {
        {"cafile=", HF_INVALID, "cafile: not a file's name"},
        {"cafile=a&cafile=b", HF_INVALID, "cafile: not a file's name"},
        {"cert=", HF_INVALID, "cert: not a file's name"},
        {"key=", HF_INVALID, "key: not a file's name"},
        {"cert=a", HF_INVALID, "cert: cert and key go together"},
        {"key=a", HF_INVALID, "key: cert and key go together"},
        {"ca=a", HF_INVALID, "ca: unknown"},
        {"cafile=/nowhere/at/all", HF_UNAVAILABLE, "/nowhere/at/all"},
        {"cert=/nowhere/at/all&key=/nowhere/at/all", HF_UNAVAILABLE, "cert '/nowhere/at/all'"},
        {"cafile=/dev", HF_INVALID, "cafile '/dev': Is a directory"},
    };
    const hf_driver *plain = driver;
    driver = hf__driver("etcds", &err);
    if (!driver) fail_msg("%s", err.text);
    for (size_t i = 0; i < COUNT(cases); i++) {
        char url[200];
        hf_store *st = NULL;
        answers_are(&well, 1);
        snprintf(url, sizeof url, "etcds://127.0.0.1:PORT/?%s", cases[i].options);
        said(opens(url, &st), cases[i].code, cases[i].text);
        assert_int_equal(answers_given(), 0);
        assert_null(st);
    }
    driver = plain;
}

/* Acts as a set-user-ID program, whose environment is its caller's. */
static int is_secure;

char *secure_getenv(const char *name) { return is_secure ? NULL : getenv(name); }

static void no_keys_are_logged_for_the_caller_of_a_program(void **state)
{
    hf_store *st = NULL;
    (void)state;
    assert_int_equal(setenv("SSLKEYLOGFILE", "/nowhere/keys", 1), 0);
    is_secure = 1;
    said(opens("etcd://127.0.0.1:PORT", &st), HF_DENIED,
         "SSLKEYLOGFILE is set in a program with more rights");
    is_secure = 0;
    assert_int_equal(unsetenv("SSLKEYLOGFILE"), 0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_mean_what_they_say),
        cmocka_unit_test(damaged_ranges_are_told),
        cmocka_unit_test(a_write_is_answered),
        cmocka_unit_test(an_inbox_that_may_be_gone_is_put_again),
        cmocka_unit_test(what_had_no_room_is_looked_for),
        cmocka_unit_test(a_user_is_asked_for),
        cmocka_unit_test(pages_are_told_in_order),
        cmocka_unit_test(the_doctor_says_what_he_is_told),
        cmocka_unit_test(what_is_heard_wakes),
        cmocka_unit_test(urls_are_read),
        cmocka_unit_test(certificates_are_read),
        cmocka_unit_test(no_keys_are_logged_for_the_caller_of_a_program),
    };
    return etcd_said_begin() ? 1 : TEST_MAIN(tests);
}
