/*
 * etcd_words.c - the driver etcd: before a server that answers anything: what a watch tells, whom
 * it wakes, and what is asked for it.
 */
#include "fakes/listens.h"

#include "etcd_said.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CREATED "{\"created\": true}\n"
#define MINE    "00112233445566778899aabbccddeeff"
#define OTHERS  "10112233445566778899aabbccddeeff"
#define INBOX   "/p/\t" SESSION "\tk" /* of a waiter for k */

static const uint8_t mine[16] = {0,    0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77,
                                 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff};
static const int64_t for_ever = INT64_MAX / 2;

/* Good for the next three calls. `type` may be NULL, `revision`, too. */
static const char *event(const char *name, const char *value, const char *revision,
                         const char *type)
{
    static char ring[4][1024];
    static int at;
    char *to = ring[at++ % 4];
    int n = snprintf(to, sizeof ring[0], "{\"kv\": {\"key\": \"%s\", \"value\": \"%s\"",
                     answers_base64(name, strlen(name)), value_of(value));
    if (revision)
        n += snprintf(to + n, sizeof ring[0] - (size_t)n, ", \"mod_revision\": \"%s\"", revision);
    n += snprintf(to + n, sizeof ring[0] - (size_t)n, "}");
    if (type) n += snprintf(to + n, sizeof ring[0] - (size_t)n, ", \"type\": \"%s\"", type);
    snprintf(to + n, sizeof ring[0] - (size_t)n, "}");
    return to;
}

static char line[8192];

static void put(const char *more)
{
    size_t len = strlen(line);
    assert_true(len + strlen(more) < sizeof line);
    snprintf(line + len, sizeof line - len, "%s", more);
}

static void add(const char *one)
{
    if (line[strlen(line) - 1] == '}') put(", ");
    put(one);
}

/* A handle that is queued for `key`, as MINE, and for another key, which is notified last. */
static hf_store *st;
static hf_rowkey other;
static const hf_rowkey *keys[2];
static hf_row row;

static void begin(void)
{
    st = opened();
    listens_anew(st);
    assert_int_equal(hf_key_make("other", &other, &err), 0);
    key.who = other.who = mine;
    key.in_line = other.in_line = 1;
    keys[0] = &key;
    keys[1] = &other;
    hf_row_init(&row);
    snprintf(line, sizeof line, "%s{\"events\": [", CREATED);
}

/* Returns how many events of `key` the watch of that kind brings ("": that of all changes). */
static uint64_t heard_on(const char *kind)
{
    hf_event_count since;
    add(event("/p/other\t" SESSION, "", "99", "DELETE"));
    put("]}\n");
    const struct answer both[] = {{kind, ANSWER_OPEN, line, 0},
                                  {"watch?filters", ANSWER_OPEN, CREATED, 0},
                                  {"watch", ANSWER_OPEN, *kind ? CREATED : line, 0}};
    answers_are(*kind ? both : &both[1], *kind ? 3 : 2);
    said(listen_for(driver, st, keys, 2, &since, &err), 0, NULL);
    for (int i = 0; !events_of(driver, st, &other); i++) {
        assert_true(i < 100);
        since.n[0] = 0;
        said(driver->caps.notify->sleep(st, &since, for_ever, &err), 0, NULL);
        said(listen_for(driver, st, keys, 2, &since, &err), 0, NULL);
    }
    return since.n[0] - 1;
}

static uint64_t heard(void) { return heard_on("watch?NOPUT"); }

static void end(void)
{
    hf_row_clear(&row);
    driver->close(st);
    key.who = NULL;
    key.in_line = 0;
}

#define WORD(id, token) id " " token " 734439800834 1000 0 4"
#define TAKEN                                                                                      \
    "{\"format\": 1, \"rev\": 5, \"token\": 5, \"holders\": [{\"owner\": \"me\", \"note\": \"\", " \
    "\"request\": \"" MINE "\", \"token\": 5, \"session\": 734439800834}]}"

static void words_wake_who_is_concerned(void **state)
{
    (void)state;
    static const char gone[] = "DELETE";
    static const struct {
        struct {
            const char *name, *value, *revision, *type;
        } event[4];
        uint64_t heard, token; /* token: that of the notified holder; 0: none */
    } cases[] = {
        /* The queued request has put its inbox; then the inbox names the holder. */
        {{{INBOX, "", "9", NULL}}, 0, 0},
        {{{INBOX, WORD(MINE, "77"), "9", NULL}}, 1, 77},
        /* The same grant again; another one; a notification without one. */
        {{{INBOX, WORD(OTHERS, "7"), "9", NULL}, {INBOX, WORD(OTHERS, "7"), "10", NULL}}, 1, 7},
        {{{INBOX, WORD(OTHERS, "7"), "9", NULL}, {INBOX, WORD(OTHERS, "8"), "10", NULL}}, 2, 8},
        {{{INBOX, WORD(OTHERS, "77"), "9", NULL}, {INBOX, WORD(MINE, "77"), "10", NULL}}, 2, 77},
        {{{INBOX, WORD(OTHERS, "77"), "9", NULL}, {INBOX, "?", "10", NULL}}, 2, 0},
        {{{INBOX, "?", "9", NULL}, {INBOX, "?", "10", NULL}}, 2, 0},
        /* A notification with the row as it was written. */
        {{{INBOX, WORD(MINE, "77") "\n" TAKEN, "9", NULL}}, 1, 5},
        {{{INBOX, "?\n" TAKEN, "9", NULL}}, 1, 5},
        {{{INBOX, WORD(MINE, "77") "\n" TAKEN, "9", NULL}, {INBOX, WORD(OTHERS, "78"), "10", NULL}},
         2,
         78},
        {{{INBOX, WORD(MINE, "77") "\n{}", "9", NULL}}, 1, 77},
        /* A session has ended: before a notification that doesn't know of that, or after it. */
        {{{INBOX, WORD(OTHERS, "77"), "9", NULL}, {"/p/k\t" SESSION, "", "10", gone}}, 2, 0},
        {{{"/p/k\t" SESSION, "", "9", gone}, {INBOX, WORD(OTHERS, "77"), "10", NULL}}, 2, 0},
        {{{INBOX, WORD(OTHERS, "77"), "10", NULL}, {"/p/k\t" SESSION, "", "9", gone}}, 2, 0},
        /* The same twice, or late, by two streams. */
        {{{INBOX, WORD(OTHERS, "7"), "9", NULL}, {INBOX, WORD(OTHERS, "8"), "9", NULL}}, 1, 7},
        {{{INBOX, WORD(OTHERS, "8"), "9", NULL}, {INBOX, WORD(OTHERS, "7"), "8", NULL}}, 1, 8},
        {{{"/p/k\t" SESSION, "", "9", gone}, {"/p/k\t" SESSION, "", "9", gone}}, 1, 0},
        /* A notification of another key, which no wait has; of a key whose name only begins like
           this one. */
        {{{"/p/\t" SESSION "\tkk", WORD(MINE, "77"), "9", NULL}}, 0, 0},
        {{{INBOX, WORD(MINE, "77"), "9", NULL}, {"/p/l\t" SESSION, "", "9", gone}}, 1, 77},
        {{{"/p/\tk", WORD(MINE, "77"), "9", NULL}}, 0, 0},
        /* An event that can't be understood may concern any key. */
        {{{INBOX, WORD(MINE, "77"), "9", NULL}, {"/p/far\trev", "5", NULL, NULL}}, 2, 0},
        {{{INBOX, WORD(MINE, "77"), "9", NULL}, {"/", "5", "10", NULL}}, 2, 0},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        begin();
        for (size_t n = 0; n < COUNT(cases[0].event) && cases[i].event[n].name; n++)
            add(event(cases[i].event[n].name, cases[i].event[n].value, cases[i].event[n].revision,
                      cases[i].event[n].type));
        uint64_t times = heard();
        int told = driver->caps.notify->payload(st, &key, &row);
        if (times != cases[i].heard || told != (cases[i].token != 0) ||
            row.token != cases[i].token || !events_of(driver, st, &key) != !times)
            fail_msg("case %zu: heard %d times, told: %d of %d, events: %d", i, (int)times, told,
                     (int)row.token, (int)events_of(driver, st, &key));
        end();
    }
}

static void a_word_brings_the_grant(void **state)
{
    (void)state;
    begin();
    add(event(INBOX, MINE " 77 734439800834 1000 2000 5", "9", NULL));
    assert_int_equal(heard(), 1);
    assert_int_equal(driver->caps.notify->payload(st, &key, &row), 1);
    const hf_party *p = &row.party[0];
    assert_true(!row.rev && row.n_holders == 1 && !row.n_queue && p->token == 77);
    assert_memory_equal(p->id, mine, 16);
    assert_true(p->session == 734439800834 && p->since_us == 1000 && p->expires_us == 2000);
    assert_int_equal(p->flags, 5);
    /* The next wait for the key doesn't get the payload, because that may name this waiter: it
       looks. */
    hf_event_count since;
    uint8_t next[16] = {1};
    uint64_t counted = events_of(driver, st, &key);
    key.who = next;
    said(listen_for(driver, st, keys, 2, &since, &err), 0, NULL);
    assert_int_equal(driver->caps.notify->payload(st, &key, &row), 0);
    assert_int_equal(events_of(driver, st, &key), counted);
    assert_int_equal(row.n_holders, 0);
    end();
}

/* After an event that no notification explains the row is read first, between two flushes. */
static void an_end_is_looked_at_first(void **state)
{
    (void)state;
    hf_event_count since;
    begin();
    add(event("/p/k\t" SESSION, "", "9", "DELETE"));
    add(event(INBOX, WORD(OTHERS, "77"), "10", NULL));
    assert_int_equal(heard(), 2);
    for (int told = 0; told < 2; told++) {
        said(listen_for(driver, st, keys, 2, &since, &err), 0, NULL);
        assert_int_equal(driver->caps.notify->payload(st, &key, &row), told);
    }
    end();
}

static void nonsense_is_no_word(void **state)
{
    (void)state;
    static const char *const words[] = {
        MINE,
        MINE " ",
        MINE " 77 1 1 1",
        MINE " 77 1 1 1 1 1",
        MINE " 77 1 1 1 1x",
        MINE " 0 1 1 1 1",
        MINE " 9223372036854775808 1 1 1 1",
        MINE " 77 1 9223372036854775808 1 1",
        MINE " 77 1 1 9223372036854775808 1",
        MINE " 77 1 1 1 256",
        "0011223344556677 77 1 1 1 1 and more of it",
        "x0112233445566778899aabbccddeeff 77 1 1 1 1",
    };
    for (size_t i = 0; i < COUNT(words); i++) {
        begin();
        add(event(INBOX, words[i], "9", NULL));
        if (heard() != 1 || driver->caps.notify->payload(st, &key, &row))
            fail_msg("'%s' is one", words[i]);
        end();
    }
}

static void what_was_heard_ends_with_the_watch(void **state)
{
    (void)state;
    hf_event_count since;
    int rc;
    begin();
    add(event(INBOX, WORD(MINE, "77"), "9", NULL));
    put("]}\n");
    const struct answer once[] = {{"watch", 200, line, 1}};
    answers_are(once, 1);
    do {
        rc = listen_for(driver, st, keys, 2, &since, &err);
        if (!rc) rc = driver->caps.notify->sleep(st, &since, for_ever, &err);
    } while (!rc);
    assert_int_equal(rc, HF_UNAVAILABLE);
    assert_int_equal(driver->caps.notify->payload(st, &key, &row), 0);
    assert_true(events_of(driver, st, &key) && events_of(driver, st, &other));
    end();
}

static size_t count(const char *text, const char *what)
{
    size_t n = 0;
    for (; (text = strstr(text, what)); text++) n++;
    return n;
}

/* A stream is one watch. */
static void many_keys_are_one_watch(void **state)
{
    (void)state;
    enum { KEYS = 300 };
    static hf_rowkey many[KEYS];
    static const hf_rowkey *all[KEYS];
    static char name[KEYS][16];
    hf_event_count since;
    begin();
    key.in_line = other.in_line = 0;
    for (int i = 0; i < KEYS; i++) {
        snprintf(name[i], sizeof name[i], "many/%d", (i * 7 + 3) % KEYS);
        assert_int_equal(hf_key_make(name[i], &many[i], &err), 0);
        all[i] = &many[i];
    }
    are((struct answer){"watch", ANSWER_OPEN, CREATED, 0});
    said(listen_for(driver, st, all, KEYS, &since, &err), 0, NULL);
    assert_int_equal(count(answers_asked(), "create_request"), 1);
    /* As texts, 99 is the last of these numbers. */
    assert_non_null(strstr(answers_asked(), answers_base64("/p/many/0\t", 10)));
    assert_non_null(strstr(answers_asked(), answers_base64("/p/many/99\n", 11)));
    /* A key between them is watched already; one before or behind them isn't. */
    int given = answers_given();
    assert_int_equal(hf_key_make("many/150x", &other, &err), 0);
    said(listen_for(driver, st, &keys[1], 1, &since, &err), 0, NULL);
    assert_int_equal(answers_given(), given);
    said(listen_for(driver, st, &keys[0], 1, &since, &err), 0, NULL);
    assert_int_equal(answers_given(), given + 1);
    assert_non_null(strstr(answers_asked(), answers_base64("/p/k\t", 5)));
    assert_non_null(strstr(answers_asked(), answers_base64("/p/k\n", 5)));
    assert_int_equal(hf_key_make("z", &other, &err), 0);
    said(listen_for(driver, st, &keys[1], 1, &since, &err), 0, NULL);
    assert_int_equal(answers_given(), given + 2);
    end();
}

/* A queued waiter is woken by notifications and by deletions; another waiter, by every write. */
static void each_hears_what_concerns_it(void **state)
{
    (void)state;
    hf_event_count since;
    begin();
    other.in_line = 0; /* otherwise the last event of the inboxes' watch wouldn't wake it */
    add(event(INBOX, WORD(MINE, "77"), "9", NULL));
    assert_int_equal(heard_on("watch?NODELETE"), 1);
    assert_int_equal(driver->caps.notify->payload(st, &key, &row), 1);
    assert_int_equal(answers_given(), 3);
    end();
    begin();
    key.in_line = 0;
    add(event("/p/k\trev", "5", "9", NULL));
    add(event("/p/k\t" SESSION, "", "9", NULL));
    assert_int_equal(heard_on("watch?range_end"), 1);
    assert_int_equal(driver->caps.notify->payload(st, &key, &row), 0);
    assert_int_equal(answers_given(), 3); /* the other one's, too */
    /* A queued waiter isn't woken by other writes beside its row. */
    end();
    begin();
    other.in_line = 0;
    add(event("/p/k\trev", "5", "9", NULL));
    add(event("/p/k\t" SESSION, "", "10", "DELETE"));
    assert_int_equal(heard_on(""), 0);
    end();
    /* A request out of line needs another watch. */
    begin();
    key.in_line = 0;
    assert_int_equal(heard(), 0);
    uint64_t counted = events_of(driver, st, &key);
    key.in_line = 1;
    are((struct answer){"watch", ANSWER_OPEN, CREATED, 0});
    said(listen_for(driver, st, keys, 2, &since, &err), 0, NULL);
    assert_int_equal(answers_given(), 1);
    assert_non_null(strstr(answers_asked(), "NOPUT"));
    assert_int_equal(events_of(driver, st, &key), counted);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_wake_who_is_concerned),
        cmocka_unit_test(a_word_brings_the_grant),
        cmocka_unit_test(an_end_is_looked_at_first),
        cmocka_unit_test(nonsense_is_no_word),
        cmocka_unit_test(what_was_heard_ends_with_the_watch),
        cmocka_unit_test(many_keys_are_one_watch),
        cmocka_unit_test(each_hears_what_concerns_it),
    };
    return etcd_said_begin() ? 1 : TEST_MAIN(tests);
}
