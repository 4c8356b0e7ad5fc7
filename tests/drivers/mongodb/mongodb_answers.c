/*
 * mongodb_answers.c - what the MongoDB driver makes of servers that answer anything, and of each
 * kind of error. This program defines what the driver asks libmongoc for: no server is asked.
 */
#include "fakes/said.h"
#include "test.h"

#include <dlfcn.h>
#include <mongoc/mongoc.h>
#include <stdio.h>
#include <string.h>

/* ---- libmongoc ---- */
#define E(name) MONGOC_ERROR_##name

struct answer {
    const char *json; /* the reply; NULL: it fails */
    uint32_t domain;
    int code;
};

#define CURSOR(what) "{\"cursor\": {\"firstBatch\": [" what "]}}"
#define DATE         "{\"$date\": 1769860800000}"
#define NOW          ", \"now\": " DATE
#define ROW                                                                        \
    "\"_id\": \"k\", \"format\": 2, \"rev\": 5, \"token\": 5, \"owner\": \"me\", " \
    "\"expires_us\": 1769860900000000, \"acquired_us\": 1769860800000000, "        \
    "\"lease_ms\": 60000, \"request\": \"00112233445566778899aabbccddeeff\", "     \
    "\"note\": \"\""
#define PARTY "\"request\": \"10112233445566778899aabbccddeeff\""
#define PLAIN "{" ROW "}"

static const struct {
    const char *name, *json;
} usual[] = {
    {"listCollections", CURSOR("{\"name\": \"holdfast\", \"type\": \"collection\"}")},
    {"create", "{}"},
    {"listIndexes", CURSOR("{\"name\": \"_id_\"}")},
    {"aggregate", CURSOR("{\"row\": [" PLAIN "]" NOW "}")},
    {"find", CURSOR(PLAIN)},
    {"isMaster", "{\"localTime\": " DATE "}"},
    {"findAndModify", "{\"value\": {\"written\": " DATE "}}"},
    {"buildInfo", "{\"version\": \"8.0.4\"}"},
};
static struct answer answers[COUNT(usual)];
static const char *type;     /* the type of the server that is found; NULL: none is */
static bson_error_t no_type; /* then */
static int selected, asked;  /* how often */

static struct answer *answer_to(const char *name)
{
    for (size_t i = 0; i < COUNT(usual); i++)
        if (!strcmp(usual[i].name, name)) return &answers[i];
    fail_msg("nobody is asked for '%s'", name);
    return NULL;
}

static void as_usual(void)
{
    for (size_t i = 0; i < COUNT(usual); i++) answers[i] = (struct answer){usual[i].json, 0, 0};
    type = "RSPrimary";
    selected = asked = 0;
}

bool mongoc_client_command_simple(mongoc_client_t *client, const char *db, const bson_t *command,
                                  const mongoc_read_prefs_t *prefs, bson_t *reply,
                                  bson_error_t *error)
{
    bson_iter_t it;
    bson_error_t wrong;
    (void)client, (void)db, (void)prefs;
    asked++;
    assert_true(bson_iter_init(&it, command) && bson_iter_next(&it));
    const struct answer *is = answer_to(bson_iter_key(&it));
    if (is->json) {
        if (!bson_init_from_json(reply, is->json, -1, &wrong))
            fail_msg("%s: %s", is->json, wrong.message);
        return true;
    }
    bson_init(reply);
    bson_set_error(error, is->domain, (uint32_t)is->code, "said so\nand more");
    return false;
}

mongoc_server_description_t *mongoc_client_select_server(mongoc_client_t *client, bool writes,
                                                         const mongoc_read_prefs_t *prefs,
                                                         bson_error_t *error)
{
    (void)client, (void)prefs;
    assert_true(writes);
    selected++;
    if (!type) *error = no_type;
    return type ? (mongoc_server_description_t *)(uintptr_t)type : NULL;
}

/* Ours are words; libmongoc gives back its own here, too. */
const char *mongoc_server_description_type(const mongoc_server_description_t *server)
{
    return (const char *)server;
}

static void (*real_destroy)(mongoc_server_description_t *);
void mongoc_server_description_destroy(mongoc_server_description_t *server)
{
    if ((const char *)server != type) real_destroy(server);
}

/* ---- the driver ---- */

static const hf_driver *mongodb;
static hf_store *st;
static hf_row row;
static int64_t clock_us;

static int opens(const char *url) { return said_opens(mongodb, url, 0, 1000, &st); }

static void opened(void)
{
    as_usual();
    said(opens("mongodb://h/test"), 0, NULL);
}
static int get(void) { return mongodb->get(st, &key, &row, &clock_us, &err); }

static int replaces(uint64_t seen, int keeps)
{
    hf_row to, cur;
    hf_row_init(&to);
    hf_row_init(&cur);
    to.rev = seen + 1;
    to.done_us = 1;
    int rc = mongodb->replace(st, &key, seen, keeps ? &to : NULL, &cur, &clock_us, &err);
    hf_row_clear(&cur);
    return rc;
}
static int enters(const char *where) { return mongodb->enter(st, &key, 7, 1, where, &err); }
static int n_seen, n_damaged, stops;
static int see(void *arg, const hf_rowkey *k, hf_row *r)
{
    (void)arg, (void)k;
    n_seen++;
    n_damaged += !r;
    return stops;
}
static int scans(const char *prefix)
{
    n_seen = n_damaged = 0;
    return mongodb->scan(st, prefix, see, NULL, &clock_us, &err);
}

/* ---- errors ---- */

static void each_error_has_its_code(void **state)
{
    static const struct {
        uint32_t domain;
        int code, reads, writes; /* its meaning for a read, and for a write */
        int again;               /* is another client made for the next request? */
    } cases[] = {
        {E(SERVER), 13, HF_DENIED, HF_DENIED, 0},
        {E(SERVER), 18, HF_DENIED, HF_DENIED, 0},
        {E(SERVER), 14031, HF_FULL, HF_FULL, 0},
        {E(SERVER), 2, HF_UNSUPPORTED, HF_UNSUPPORTED, 0},
        {E(SERVER), 40324, HF_UNSUPPORTED, HF_UNSUPPORTED, 0},
        {E(SERVER), 121, HF_INVALID, HF_INVALID, 0},
        {E(SERVER), 10334, HF_INVALID, HF_INVALID, 0},
        {E(SERVER), 11602, HF_UNAVAILABLE, HF_UNKNOWN, 1},
        {E(SERVER_SELECTION), 13053, HF_UNAVAILABLE, HF_UNAVAILABLE, 1},
        {E(STREAM), E(STREAM_NAME_RESOLUTION), HF_UNAVAILABLE, HF_UNAVAILABLE, 1},
        {E(STREAM), E(STREAM_NOT_ESTABLISHED), HF_UNAVAILABLE, HF_UNAVAILABLE, 1},
        {E(STREAM), E(STREAM_SOCKET), HF_UNAVAILABLE, HF_UNKNOWN, 1},
        {E(CLIENT), E(CLIENT_AUTHENTICATE), HF_DENIED, HF_DENIED, 1},
        {E(CLIENT), E(CLIENT_NOT_READY), HF_UNAVAILABLE, HF_UNAVAILABLE, 1},
        {E(CLIENT), E(CLIENT_SESSION_FAILURE), HF_UNAVAILABLE, HF_UNKNOWN, 1},
        {E(PROTOCOL), E(PROTOCOL_BAD_WIRE_VERSION), HF_UNSUPPORTED, HF_UNSUPPORTED, 1},
        {E(SASL), 1, HF_DENIED, HF_DENIED, 1},
        {E(SCRAM), 1, HF_DENIED, HF_DENIED, 1},
        {E(PROTOCOL), E(PROTOCOL_INVALID_REPLY), HF_UNAVAILABLE, HF_UNKNOWN, 1},
    };
    (void)state;
    opened();
    for (size_t i = 0; i < COUNT(cases); i++) {
        const struct answer bad = {NULL, cases[i].domain, cases[i].code};
        as_usual();
        *answer_to("aggregate") = *answer_to("findAndModify") = bad;
        said(get(), cases[i].reads, "mongodb: get 'k': said so");
        said(replaces(5, 1), cases[i].writes, "mongodb: replace 'k': said so");
        assert_null(strstr(err.text, "and more"));
        said(replaces(5, 0), cases[i].writes, "mongodb: replace 'k': said so");
        said(enters("shows/1"), cases[i].writes, "mongodb: enter 'k': said so");
        assert_int_equal(selected, 3 * cases[i].again);
        as_usual();
        said(get(), 0, NULL);
        said(replaces(5, 1), 0, NULL);
    }
    /* Interrupted; no longer the primary; codes that don't say whether the write was done. */
    static const int codes[] = {6,     7,     24,    46,    50,    64,    89, 91, 112,   134,
                                189,   202,   262,   317,   9001,  10058, 79, 0,  10107, 11600,
                                11601, 11602, 13388, 13435, 13436, 14064, 1,  8,  99999, 100};
    for (size_t i = 0; i < COUNT(codes); i++) {
        *answer_to("findAndModify") = (struct answer){NULL, E(SERVER), codes[i]};
        said(replaces(5, 1), HF_UNKNOWN, "said so");
    }
    mongodb->close(st);
}

static void who_cant_be_written_is_refused(void **state)
{
    static const struct {
        const char *type, *text;
        int code; /* UNAVAILABLE: it may become the primary */
    } kinds[] = {{"Mongos", "a sharded cluster", HF_UNSUPPORTED},
                 {"RSArbiter", "neither a primary", HF_UNSUPPORTED},
                 {"RSSecondary", "not a primary", HF_UNAVAILABLE},
                 {"Unknown", "not a primary", HF_UNAVAILABLE}};
    (void)state;
    as_usual();
    for (size_t i = 0; i < COUNT(kinds); i++) {
        type = kinds[i].type;
        said(opens("mongodb://h/test"), kinds[i].code, kinds[i].text);
        assert_int_equal(asked, 0);
    }
    type = NULL;
    bson_set_error(&no_type, E(SERVER_SELECTION), 13053, "none\nof them");
    said(opens("mongodb://h/test"), HF_UNAVAILABLE, "mongodb: connect: none");
    bson_set_error(&no_type, E(CLIENT), E(CLIENT_AUTHENTICATE), "who?");
    said(opens("mongodb://h/test"), HF_DENIED, "who?");
    type = "Standalone";
    said(opens("mongodb://h/test"), 0, NULL);
    assert_null(said_caps.notify);
    /* It has gone since. */
    *answer_to("aggregate") = (struct answer){NULL, E(STREAM), 1};
    said(get(), HF_UNAVAILABLE, NULL);
    type = NULL;
    bson_set_error(&no_type, E(SERVER_SELECTION), 13053, "who?");
    said(get(), HF_UNAVAILABLE, "who?");
    said(replaces(5, 1), HF_UNAVAILABLE, "who?");
    said(enters("shows/1"), HF_UNAVAILABLE, "who?");
    said(scans(""), HF_UNAVAILABLE, "who?");
    said(mongodb->inspect(st, NULL, NULL, &err), HF_UNAVAILABLE, "who?");
    assert_int_equal(row.rev, 0);
    mongodb->close(st);
}

/* ---- opening ---- */

static void a_collection_that_loses_rows_is_refused(void **state)
{
    static const struct {
        const char *command, *json, *text; /* NULL: it will do */
    } cases[] = {
        {"listCollections", CURSOR("{\"name\": \"holdfast\", \"type\": \"view\"}"), "a view"},
        {"listCollections", CURSOR("{\"options\": {\"capped\": true}}"), "capped"},
        {"listCollections", CURSOR("{\"options\": {\"expireAfterSeconds\": 60}}"), "by their age"},
        {"listCollections", CURSOR("{\"options\": {\"collation\": {\"locale\": \"en\"}}}"),
         "a collation"},
        {"listCollections", CURSOR("{\"type\": 7, \"options\": {\"capped\": false}}"), NULL},
        {"listCollections", CURSOR(""), NULL},
        {"listCollections", CURSOR("7"), NULL},
        {"listCollections", "{\"cursor\": 7}", NULL},
        {"listIndexes", CURSOR("{\"expireAfterSeconds\": 60}"), "a TTL index"},
        {"listIndexes", CURSOR("7, {\"expireAfterSeconds\": false}"), NULL},
        {"listIndexes", "{}", NULL},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        as_usual();
        answer_to(cases[i].command)->json = cases[i].json;
        int rc = opens("mongodb://h/test");
        said(rc, cases[i].text ? HF_UNSUPPORTED : 0, cases[i].text);
        if (!rc) mongodb->close(st);
    }
}

static void what_isnt_permitted_to_look_at_doesnt_matter(void **state)
{
    static const struct {
        const char *command;
        int code, rc;
    } cases[] = {{"listCollections", 13, 0},
                 {"listCollections", 1, HF_UNAVAILABLE},
                 {"listIndexes", 13, 0},
                 {"listIndexes", 115, 0},
                 {"listIndexes", 26, 0},
                 {"listIndexes", 1, HF_UNAVAILABLE},
                 {"create", 48, 0},
                 {"create", 13, 0},
                 {"create", 1, HF_UNAVAILABLE},
                 {"aggregate", 1, HF_UNAVAILABLE},
                 {"aggregate", 13, HF_DENIED}};
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        as_usual();
        if (!strcmp(cases[i].command, "create")) answer_to("listCollections")->json = CURSOR("");
        *answer_to(cases[i].command) = (struct answer){NULL, E(SERVER), cases[i].code};
        int rc = opens("mongodb://h/test");
        said(rc, cases[i].rc, cases[i].rc ? "said so" : NULL);
        if (!rc) mongodb->close(st);
    }
}

static void a_server_without_facets_is_asked_twice(void **state)
{
    (void)state;
    as_usual();
    *answer_to("aggregate") = (struct answer){NULL, E(SERVER), 40324};
    said(opens("mongodb://h/test"), 0, NULL);
    asked = 0;
    said(get(), 0, NULL);
    assert_int_equal(asked, 2);
    assert_int_equal(row.rev, 5);
    assert_int_equal(clock_us, INT64_C(1769860800000000));
    answer_to("find")->json = CURSOR("");
    said(get(), 0, NULL);
    assert_int_equal(row.rev, 0);
    answer_to("find")->json = CURSOR("7");
    said(get(), HF_UNAVAILABLE, "not a reply to this request");
    answer_to("find")->json = CURSOR("{\"format\": 1}");
    said(get(), HF_CORRUPT, "isn't of Holdfast");
    mongodb->close(st);
    said(opens("mongodb://h/test"), 0, NULL);
    mongodb->close(st);
    answer_to("find")->json = CURSOR(PLAIN);
    answer_to("isMaster")->json = "{}";
    said(opens("mongodb://h/test"), HF_UNSUPPORTED, "the server tells no time");
    *answer_to("isMaster") = (struct answer){NULL, E(SERVER), 1};
    said(opens("mongodb://h/test"), HF_UNAVAILABLE, "said so");
}

/* ---- replies ---- */

static void what_is_no_reply_is_none(void **state)
{
    static const char *const none[] = {"{}",
                                       "{\"cursor\": 7}",
                                       "{\"cursor\": {\"firstBatch\": 7}}",
                                       CURSOR("7"),
                                       CURSOR("{\"now\": " DATE "}"),
                                       CURSOR("{\"row\": 7" NOW "}"),
                                       CURSOR("{\"row\": [7]" NOW "}")};
    (void)state;
    opened();
    for (size_t i = 0; i < COUNT(none); i++) {
        answer_to("aggregate")->json = none[i];
        said(get(), HF_UNAVAILABLE, "mongodb: get 'k': not a reply to this request");
    }
    answer_to("aggregate")->json = CURSOR(""); /* no collection, so no time either */
    asked = 0;
    said(get(), 0, NULL);
    assert_int_equal(asked, 2);
    assert_int_equal(row.rev, 0);
    assert_int_equal(clock_us, INT64_C(1769860800000000));
    answer_to("aggregate")->json = CURSOR("{\"row\": []}");
    said(get(), 0, NULL);
    assert_int_equal(asked, 4);
    mongodb->close(st);
}

/* A reply with a row whose field is this; NULL: it has none. */
static void row_with(const char *field, const char *value)
{
    static char json[4000];
    char name[40];
    snprintf(name, sizeof name, "\"%s\": ", field);
    const char *from = strstr(PLAIN, name);
    const char *to = from ? from + strcspn(from, ",}") : "}", *between = from ? "" : ", ";
    if (!from) from = strrchr(PLAIN, '}');
    snprintf(json, sizeof json, CURSOR("{\"row\": [%.*s%s%s%s%s]" NOW "}"), (int)(from - PLAIN),
             PLAIN, between, value ? name : "\"none\": 1", value ? value : "", to);
    answer_to("aggregate")->json = json;
}

static void each_field_is_checked(void **state)
{
#define NAMES ", \"owner\": \"o\", \"note\": \"n\""
    static const char *const damaged[][3] = {
        {"format", NULL, "isn't of Holdfast"},
        {"rev", NULL, "isn't of Holdfast"},
        {"rev", "1.5", "isn't of Holdfast"},
        {"rev", "1e300", "isn't of Holdfast"},
        {"token", NULL, "'token' is missing, or of another type"},
        {"owner", "7", "'owner' is missing"},
        {"note", NULL, "'note' is missing"},
        {"more", "7", "more does not describe a holder"},
        {"more", "true", "'more' is missing, or of another type"},
        {"more", "{\"colour\": 1}", "doesn't know"},
        {"more", "{\"flags\": 4, \"owner\": \"me\"}", "has the reserved owner"},
        {"done", "7", "done is not a marker"},
        {"queue", "7", "the queue is not a list"},
        {"queue", "[7]", "the queue is not a list"},
        {"queue", "[{\"request\": \"x\"" NAMES "}]", "the queue is not a list"},
        {"queue", "[{" PARTY ", \"owner\": 7, \"note\": \"n\"}]", "the queue is not a list"},
        {"queue", "[{" PARTY ", \"owner\": \"o\", \"note\": 7}]", "the queue is not a list"},
        {"queue", "[{" PARTY ", \"owner\": \"a\\u0000b\", \"note\": \"\"}]", "not a string"},
        {"queue", "[{" PARTY NAMES ", \"bell\": 256}]", "the queue is not a list"},
    };
    (void)state;
    opened();
    for (size_t i = 0; i < COUNT(damaged); i++) {
        row_with(damaged[i][0], damaged[i][1]);
        int rc = get();
        if (rc != HF_CORRUPT || !strstr(err.text, damaged[i][2]) ||
            !strstr(err.text, "mongodb: get 'k': the row is damaged: "))
            fail_msg("%s: %s: %d, %s", damaged[i][0], damaged[i][1], rc, err.text);
        assert_int_equal(row.rev, 0);
    }
    row_with("format", "1");
    said(get(), HF_CORRUPT, "format 1, and this version reads format 2");
    row_with("rev", "6.0"); /* a number as the shell writes it */
    said(get(), 0, NULL);
    assert_int_equal(row.rev, 6);
    row_with("queue", "[{" PARTY NAMES ", \"lease_ms\": 7.0, \"more\": 1}]");
    said(get(), 0, NULL);
    assert_int_equal(row.n_queue, 1);
    assert_int_equal(row.party[1].lease_ms, 7);
    row_with("more", "{\"mode\": 2.0, \"limit\": 3, \"token\": 4}");
    said(get(), 0, NULL);
    assert_true(row.party[0].limit == 3 && row.party[0].token == 4 && row.token == 5);
    mongodb->close(st);
}

static void a_write_that_isnt_sure_is_unknown(void **state)
{
    static const char *const unsure[][2] = {
        {"{\"value\": {}, \"writeConcernError\": {\"errmsg\": \"waiting\\nlong\"}}", "waiting"},
        {"{\"writeConcernError\": {\"errmsg\": 7, \"code\": 189}}", "the majority has not"},
        {"{\"value\": {}, \"writeConcernError\": 7}", "the majority has not"}};
    (void)state;
    opened();
    for (size_t i = 0; i < COUNT(unsure); i++) {
        answer_to("findAndModify")->json = unsure[i][0];
        said(replaces(5, 1), HF_UNKNOWN, unsure[i][1]);
        said(enters("shows/1"), HF_UNKNOWN, unsure[i][1]);
    }
    static const char *const nothing[] = {"{}", "{\"value\": null}", "{\"value\": 7}"};
    assert_int_equal(selected, 3); /* the primary that has stepped down (189) is left */
    for (size_t i = 0; i < COUNT(nothing); i++) {
        answer_to("findAndModify")->json = nothing[i];
        said(replaces(5, 1), HF_CONFLICT, NULL);
    }
    *answer_to("findAndModify") = (struct answer){NULL, E(SERVER), 11000};
    said(replaces(0, 1), HF_CONFLICT, NULL);
    *answer_to("aggregate") = (struct answer){NULL, E(STREAM), 4};
    said(replaces(0, 1), HF_UNAVAILABLE, "said so"); /* the write was certainly refused */
    answer_to("findAndModify")->json = "{\"value\": {}}";
    said(replaces(5, 1), 0, NULL);
    assert_int_equal(clock_us, 0);
    mongodb->close(st);
}

static void a_row_that_isnt_text_isnt_written(void **state)
{
    hf_row to;
    (void)state;
    opened();
    asked = 0;
    hf_row_init(&to);
    assert_int_equal(hf_row_room(&to, 3), 0);
    memset(to.party, 0, 3 * sizeof *to.party);
    to.rev = to.token = 6;
    for (int where = 0; where < 4; where++) { /* the holder's, another's, a waiter's owner, note */
        to.n_holders = where == 1 ? 2 : 1;
        to.n_queue = where == 1 ? 0 : 1;
        for (int i = 0; i < 3; i++) {
            to.party[i].owner_len = to.party[i].note_len = 1;
            to.party[i].owner[0] = to.party[i].note[0] = 'x';
            to.party[i].token = 6;
        }
        hf_party *p = &to.party[where ? 1 : 0];
        *(where == 3 ? p->note : p->owner) = (char)0xff;
        said(mongodb->replace(st, &key, 5, &to, NULL, &clock_us, &err), HF_INVALID, "not UTF-8");
    }
    assert_int_equal(asked, 0);
    hf_row_clear(&to);
    mongodb->close(st);
}

/* ---- lists ---- */

static void a_list_shows_what_is_damaged(void **state)
{
    (void)state;
    opened();
    answer_to("find")->json =
        CURSOR(PLAIN ", {\"_id\": \"kx\"}, {\"_id\": \"l\"}, {\"_id\": \"m\"}");
    said(scans("k"), 0, NULL);
    assert_int_equal(n_seen, 2);
    assert_int_equal(n_damaged, 1);
    said(scans(""), 0, NULL);
    assert_int_equal(n_seen, 4);
    stops = 1;
    said(scans(""), 0, NULL);
    assert_int_equal(n_seen, 1);
    stops = 0;
    said(scans("k\xff"), 0, NULL); /* no key begins with this prefix, but keys do with its k */
    assert_int_equal(n_seen, 0);
    char far[2 * HF_KEY_CAP];
    memset(far, 'x', sizeof far);
    far[sizeof far - 1] = 0;
    asked = 0;
    said(scans(far), 0, NULL);
    assert_int_equal(asked, 0);
    far[HF_KEY_CAP] = 0;
    char json[3 * HF_KEY_CAP];
    snprintf(json, sizeof json, CURSOR("{\"_id\": \"%s\"}"), far);
    const char *const none[] = {CURSOR("{\"x\": 1}"), CURSOR("{\"_id\": 7}"),
                                CURSOR("{\"_id\": \"\"}"), CURSOR("{\"_id\": \"a\\u0000b\"}"),
                                json};
    for (size_t i = 0; i < COUNT(none); i++) {
        answer_to("find")->json = none[i];
        said(scans(""), HF_CORRUPT, "mongodb: list: a document whose _id is not a legal key");
    }
    answer_to("find")->json = CURSOR("7");
    said(scans(""), HF_UNAVAILABLE, "not a reply to this request");
    *answer_to("find") = (struct answer){NULL, E(SERVER), 13};
    said(scans(""), HF_DENIED, "said so");
    mongodb->close(st);
}

/* ---- guards ---- */

static void a_fence_has_a_place(void **state)
{
    static const char *const none[] = {"",
                                       "shows",
                                       "/1",
                                       "sh$ws/1",
                                       "shows/",
                                       "shows/{\"$gt\": 1}",
                                       "shows/1}, \"x\": {\"a\": 1",
                                       "shows/1, \"$lt\": 5"};
    char far[400];
    (void)state;
    opened();
    said(enters(NULL), HF_INVALID, "COLLECTION/ID");
    for (size_t i = 0; i < COUNT(none); i++) said(enters(none[i]), HF_INVALID, "COLLECTION/ID");
    memset(far, 'x', sizeof far);
    memcpy(far + sizeof far - 3, "/1", 3);
    said(enters(far), HF_INVALID, "COLLECTION/ID");
    static const char *const some[] = {"shows/1", "shows/\"a\"", "shows/{\"a\": 1}", "shows/{}"};
    for (size_t i = 0; i < COUNT(some); i++) said(enters(some[i]), 0, NULL);
    said(mongodb->enter(st, &key, 7, 0, "shows/1", &err), HF_UNSUPPORTED, "one holder at a time");
    *answer_to("findAndModify") = (struct answer){NULL, E(SERVER), 11000};
    said(enters("shows/1"), HF_LOST, "a later token has entered 'shows/1'");
    mongodb->close(st);
}

static char heard[1200];
static void hear(void *arg, int ok, const char *text)
{
    (void)arg;
    assert_true(ok);
    snprintf(heard + strlen(heard), sizeof heard - strlen(heard), "%s\n", text);
}

static void what_doctor_is_told(void **state)
{
    static const char *const versions[] = {"{}", "{\"version\": 8}"};
    (void)state;
    opened();
    said(mongodb->inspect(st, hear, NULL, &err), 0, NULL);
    assert_non_null(strstr(heard, "of collection 'holdfast' in database 'test'\nMongoDB 8.0.4, the "
                                  "primary of a replica set"));
    for (size_t i = 0; i < COUNT(versions); i++) {
        heard[0] = 0;
        answer_to("buildInfo")->json = versions[i];
        said(mongodb->inspect(st, hear, NULL, &err), 0, NULL);
        assert_non_null(strstr(heard, "MongoDB of some version, "));
    }
    *answer_to("buildInfo") = (struct answer){NULL, E(SERVER), 13};
    said(mongodb->inspect(st, hear, NULL, &err), HF_DENIED, "said so");
    mongodb->close(st);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_error_has_its_code),
        cmocka_unit_test(who_cant_be_written_is_refused),
        cmocka_unit_test(a_collection_that_loses_rows_is_refused),
        cmocka_unit_test(what_isnt_permitted_to_look_at_doesnt_matter),
        cmocka_unit_test(a_server_without_facets_is_asked_twice),
        cmocka_unit_test(what_is_no_reply_is_none),
        cmocka_unit_test(each_field_is_checked),
        cmocka_unit_test(a_write_that_isnt_sure_is_unknown),
        cmocka_unit_test(a_row_that_isnt_text_isnt_written),
        cmocka_unit_test(a_list_shows_what_is_damaged),
        cmocka_unit_test(a_fence_has_a_place),
        cmocka_unit_test(what_doctor_is_told),
    };
    Dl_info at;
    hf_row_init(&row);
    if (hf_key_make("k", &key, &err) || !(mongodb = hf__driver("mongodb", &err)) ||
        !dladdr((void *)(uintptr_t)mongodb, &at)) {
        printf("Bail out! %s\n", err.text);
        return 1;
    }
    void *module = dlopen(at.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    *(void **)&real_destroy = dlsym(module, "mongoc_server_description_destroy");
    return TEST_MAIN(tests);
}
