/*
 * firestore_answers.c - the driver firestore: before a server that answers anything, also instead
 * of a token: what it makes of it.
 */
#include "fakes/answered.h"

#include <dlfcn.h>
#include <netdb.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TIME                "2026-01-31T12:00:00.000007Z"
#define TIME_US             (INT64_C(1769860800) * 1000000 + 7)
#define NAME                "projects/p/databases/(default)/documents/holdfast/k"
#define MISSING             "[{\"missing\": \"" NAME "\", \"readTime\": \"" TIME "\"}]"
#define TEXT(name, value)   "\"" name "\": {\"stringValue\": \"" value "\"}"
#define NUMBER(name, value) "\"" name "\": {\"integerValue\": \"" value "\"}"
#define LOCK \
    TEXT("key", "k") ", " NUMBER("format", "2") ", " NUMBER("rev", "5") ", " NUMBER("token", "5")
#define FREE                                                                  \
    LOCK ", " TEXT("owner", "") ", " NUMBER("expires_us", "0") ", " NUMBER(   \
        "acquired_us", "0") ", " NUMBER("lease_ms", "0") ", " TEXT("request", \
                                                                   "") ", " TEXT("note", "")
#define OTHER_TYPE(name) "its field '" name "' is missing, or of another type"
#define OLD_FORMAT                                                       \
    "rows of format 1, and this version reads format 2. Stop what uses " \
    "the store "
#define MAP(name, fields) "\"" name "\": {\"mapValue\": {\"fields\": {" fields "}}}"

static int opens_with(const char *options, hf_store **ret)
{
    char url[1000];
    snprintf(url, sizeof url, "firestore://p?endpoint=http://127.0.0.1:PORT%s", options);
    return opens(url, ret);
}

static hf_store *opened(void)
{
    hf_store *st = NULL;
    setenv("FIRESTORE_ID_TOKEN", "s3cr3t-token", 1);
    if (opens_with("", &st)) fail_msg("%s", err.text);
    unsetenv("FIRESTORE_ID_TOKEN");
    return st;
}

/* ---- what is no answer ---- */

static void errors_mean_what_they_say(void **state)
{
    (void)state;
    static const struct meaning all[] = {
        {200, "", HF_UNAVAILABLE, HF_UNKNOWN, "not an answer of Firestore"},
        {200, "[{\"found\"", HF_UNAVAILABLE, HF_UNKNOWN, "not an answer of Firestore"},
        {200, "17", HF_UNAVAILABLE, HF_UNKNOWN, "not an answer of Firestore"},
        {200, "[]", HF_UNAVAILABLE, HF_UNKNOWN, "an answer"},
        {200, "[{\"readTime\": \"" TIME "\"}]", HF_UNAVAILABLE, HF_UNKNOWN, "an answer"},
        {200, "[{\"missing\": \"x\"}]", HF_UNAVAILABLE, HF_UNKNOWN, "an answer"},
        {200, "[{\"missing\": \"x\", \"readTime\": \"2026\"}]", HF_UNAVAILABLE, HF_UNKNOWN,
         "an answer"},
        {200, "[{}, {\"error\": {\"status\": \"UNAVAILABLE\", \"message\": \"soon\"}}]",
         HF_UNAVAILABLE, HF_UNKNOWN, "UNAVAILABLE, HTTP 200: soon"},
        {401, "", HF_DENIED, HF_DENIED, "HTTP 401"},
        {403, "{\"error\": {\"message\": \"no s3cr3t-token\"}}", HF_DENIED, HF_DENIED,
         "(it tells secrets)"},
        {413, "<html>", HF_INVALID, HF_INVALID, "HTTP 413"},
        {429, "{}", HF_UNAVAILABLE, HF_UNAVAILABLE, "HTTP 429"},
        {501, "{}", HF_UNSUPPORTED, HF_UNSUPPORTED, "HTTP 501"},
        {500, "{\"error\": {\"message\": \"one\\ntwo\"}}", HF_UNAVAILABLE, HF_UNKNOWN, "500: one"},
        {ANSWER_CLOSED, "", HF_UNAVAILABLE, HF_UNKNOWN, ""},
        {ANSWER_OTHER, "", HF_UNAVAILABLE, HF_UNKNOWN, "there doesn't speak HTTP"},
        {ANSWER_CUT, "[", HF_UNAVAILABLE, HF_UNKNOWN, ""},
        /* HTTP has one status for a refused precondition and for a bad request. */
        {400, "<html>", HF_UNAVAILABLE, HF_UNAVAILABLE, "HTTP 400"},
        {ANSWER_HEAD_CUT(200), "", HF_UNAVAILABLE, HF_UNKNOWN, "closed within the header"},
        {ANSWER_HEAD_CUT(400), "", HF_UNAVAILABLE, HF_UNKNOWN, "closed within the header"},
        {ANSWER_HEAD_CUT(404), "", HF_UNAVAILABLE, HF_UNKNOWN, "closed within the header"},
        {ANSWER_HEAD_CUT(403), "", HF_UNAVAILABLE, HF_UNKNOWN, "closed within the header"},
    };
    hf_store *st = opened();
    answers_mean(st, all, COUNT(all), NULL);
    driver->close(st);
}

/* ---- documents ---- */

static void documents_are_read_or_damaged(void **state)
{
    (void)state;
    static const struct {
        const char *fields;
        const char *text; /* NULL: it is one */
    } cases[] = {
        {FREE, NULL},
        {LOCK ", \"owner\": {\"nullValue\": null}", OTHER_TYPE("owner")},
        {FREE ", \"note\": {\"stringValue\": 7}", OTHER_TYPE("note")},
        {LOCK ", " TEXT("owner", ""), OTHER_TYPE("expires_us")},
        {FREE ", \"lease_ms\": {\"stringValue\": \"1\"}", OTHER_TYPE("lease_ms")},
        {FREE ", \"lease_ms\": {\"integerValue\": \"1x\"}", OTHER_TYPE("lease_ms")},
        {FREE ", \"lease_ms\": {\"integerValue\": 1}", NULL},
        {FREE ", \"lease_ms\": {\"doubleValue\": 1.0}", NULL},
        {FREE ", \"lease_ms\": {\"doubleValue\": 1.5}", OTHER_TYPE("lease_ms")},
        {FREE ", \"lease_ms\": {\"doubleValue\": 1e300}", OTHER_TYPE("lease_ms")},
        {FREE ", \"lease_ms\": {\"doubleValue\": \"NaN\"}", OTHER_TYPE("lease_ms")},
        {FREE ", \"queue\": {\"stringValue\": \"[]\"}", "the queue is not a list"},
        {FREE ", \"queue\": {\"arrayValue\": {}}", NULL},
        {FREE ", \"queue\": {\"arrayValue\": {\"values\": [{\"nullValue\": null}]}}",
         OTHER_TYPE("queue")},
        {FREE ", \"queue\": {\"arrayValue\": {\"values\": [{\"mapValue\": {}}]}}",
         "the queue is not a list"},
        {FREE ", \"queue\": {\"arrayValue\": {\"values\": [{\"mapValue\": {\"fields\": {\"a\": "
              "{}}}}]}}",
         OTHER_TYPE("queue")},
        {FREE ", \"queue\": {\"arrayValue\": {\"values\": [{\"arrayValue\": {\"values\": [{"
              "\"arrayValue\": {\"values\": [{\"arrayValue\": {\"values\": [{\"arrayValue\": {}}"
              "]}}]}}]}}]}}",
         OTHER_TYPE("queue")},
        {FREE ", " MAP("more", ""), NULL},
        {FREE ", \"more\": {\"nullValue\": null}", OTHER_TYPE("more")},
        {FREE ", " MAP("more", NUMBER("flags", "2")), "but there is none"},
        {FREE ", \"done\": {\"mapValue\": {}}", "done is not a marker"},
        {FREE ", " NUMBER("format", "1"), OLD_FORMAT},
        {LOCK, "is not a lock"},
        {TEXT("key", "k"), "is not a lock"},
        {NUMBER("format", "2"), "is not a lock"},
        {TEXT("key", "j") ", " NUMBER("format", "2") ", " NUMBER("rev", "5") ", " NUMBER(
             "token", "5") ", " TEXT("owner", ""),
         "is the lock of another key"},
    };
    hf_store *st = opened();
    hf_row row;
    int64_t clock_us = 0;
    hf_row_init(&row);
    for (size_t i = 0; i < COUNT(cases); i++) {
        is(200,
           "[{\"found\": {\"name\": \"" NAME "\", \"updateTime\": \"" TIME
           "\", \"fields\": {%s}}, \"readTime\": \"" TIME "\"}]",
           cases[i].fields);
        int rc = driver->get(st, &key, &row, &clock_us, &err);
        said(rc, cases[i].text ? HF_CORRUPT : 0, cases[i].text);
        assert_int_equal(row.rev, cases[i].text ? 0 : 5);
    }
    assert_int_equal(clock_us, TIME_US);
    static const char *const times[] = {"", "2026-01-31 12:00:00Z", "2026-01-31T12:00:00",
                                        "2026-01-31T12:00:00.5+01:00"};
    for (size_t i = 0; i < COUNT(times); i++) {
        is(200,
           "[{\"found\": {\"updateTime\": \"%s\", \"fields\": {" FREE "}}, \"readTime\": \"" TIME
           "\"}]",
           times[i]);
        said(driver->get(st, &key, &row, &clock_us, &err), HF_UNAVAILABLE, "without a time");
    }
    hf_row_clear(&row);
    driver->close(st);
}

static const char found[] = "[{\"found\": {\"name\": \"" NAME "\", \"updateTime\": \"" TIME
                            "\", \"fields\": {" FREE "}}, \"readTime\": \"" TIME "\"}]";

static void a_write_is_answered(void **state)
{
    (void)state;
    static const char *const not_done[] = {"FAILED_PRECONDITION", "ALREADY_EXISTS", "ABORTED",
                                           "NOT_FOUND"};
    hf_store *st = opened();
    hf_row row, cur;
    int64_t clock_us;
    char refusal[200];
    hf_row_init(&row);
    hf_row_init(&cur);
    row.rev = row.token = 6;
    struct answer list[] = {{"commit", 200, "{\"commitTime\": \"" TIME "\"}", 0},
                            {"batchGet", 200, found, 0}};
    answers_are(list, 2);
    /* A row that was never seen is read first. */
    said(driver->replace(st, &key, 5, &row, &cur, &clock_us, &err), 0, NULL);
    assert_int_equal(answers_given(), 2);
    assert_int_equal(clock_us, TIME_US);
    said(driver->replace(st, &key, 4, &row, &cur, &clock_us, &err), HF_CONFLICT, NULL);
    assert_int_equal(cur.rev, 5);
    said(driver->replace(st, &key, 4, &row, NULL, &clock_us, &err), HF_CONFLICT, NULL);
    /* Now it is known when rev 6 was written. */
    answers_are(list, 1);
    said(driver->replace(st, &key, 6, NULL, &cur, &clock_us, &err), 0, NULL);
    assert_non_null(strstr(answers_asked(), "\"updateTime\":\"" TIME "\""));
    for (size_t i = 0; i < COUNT(not_done); i++) {
        snprintf(refusal, sizeof refusal, "{\"error\": {\"status\": \"%s\"}}", not_done[i]);
        list[0].status = 400;
        list[0].body = refusal;
        answers_are(list, 2);
        said(driver->replace(st, &key, 0, &row, &cur, &clock_us, &err), HF_CONFLICT, NULL);
        assert_int_equal(cur.rev, 5);
        said(driver->replace(st, &key, 0, &row, NULL, &clock_us, &err), HF_CONFLICT, NULL);
        answers_are(list, 1);
        said(driver->replace(st, &key, 0, &row, &cur, &clock_us, &err), HF_UNAVAILABLE, "HTTP 500");
    }
    /* Nothing is asked. */
    answers_are(list, 0);
    row.done_us = 7;
    row.result[0] = (char)0xff;
    row.result_len = 1;
    said(driver->replace(st, &key, 0, &row, &cur, &clock_us, &err), HF_INVALID, "not UTF-8");
    assert_int_equal(answers_given(), 0);
    hf_row_clear(&row);
    hf_row_clear(&cur);
    driver->close(st);
}

/* ---- credentials ---- */

static char file[] = "/tmp/holdfast-answers-XXXXXX";

static void credentials_are(const char *text)
{
    FILE *f = fopen(file, "w");
    if (!f) fail_msg("%s", file);
    fputs(ported(text), f);
    fclose(f);
}

#define PERSON                                                                               \
    "{\"type\": \"authorized_user\", \"client_id\": \"me\", \"client_secret\": \"s3cr3t\", " \
    "\"refresh_token\": \"s3cr3t-too\", \"token_uri\": \"http://127.0.0.1:PORT/token\"}"
#define ANOTHER                                                                              \
    "{\"type\": \"authorized_user\", \"client_id\": \"another\", \"client_secret\": \"s\", " \
    "\"refresh_token\": \"s3cr3t-too\", \"token_uri\": \"http://127.0.0.1:PORT/token\"}"

static void bad_credentials_are_told_apart(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"", "not a file of credentials"},
        {"[]", "not a file of credentials"},
        {"{\"type\": 7}", "not a file of credentials"},
        {"{\"type\": \"robot\"}", "neither of a service account nor of a user"},
        {"{\"type\": \"service_account\"}", "no client_email"},
        {"{\"type\": \"service_account\", \"client_email\": \"a\"}", "no private_key"},
        {"{\"type\": \"service_account\", \"client_email\": \"a\", \"private_key\": \"b\"}",
         "no token_uri"},
        {"{\"type\": \"service_account\", \"client_email\": \"a\", \"private_key\": \"b\", "
         "\"token_uri\": \"http://elsewhere/\"}",
         "token_uri: not https"},
        {"{\"type\": \"authorized_user\"}", "no client_id"},
        {"{\"type\": \"authorized_user\", \"client_id\": \"\"}", "no client_id"},
        {"{\"type\": \"authorized_user\", \"client_id\": \"a\"}", "no client_secret"},
        {"{\"type\": \"authorized_user\", \"client_id\": \"a\", \"client_secret\": \"b\"}",
         "no refresh_token"},
        {"{\"type\": \"authorized_user\", \"client_id\": \"a\", \"client_secret\": \"b\", "
         "\"refresh_token\": \"s3cr3t\"}",
         NULL},
    };
    char options[200];
    snprintf(options, sizeof options, "&credentials=%s", file);
    for (size_t i = 0; i < COUNT(cases); i++) {
        hf_store *st = NULL;
        credentials_are(cases[i].text);
        said(opens_with(options, &st), cases[i].says ? HF_INVALID : 0, cases[i].says);
        if (st) driver->close(st);
    }
}

static void a_token_is_got_for_them(void **state)
{
    (void)state;
    static const struct {
        int status;
        const char *body;
        int code;
        const char *text;
    } cases[] = {
        {400, "{\"error\": \"invalid_grant\", \"error_description\": \"revoked\\n\"}", HF_DENIED,
         "token for 'me' from 'http://127.0.0.1:"},
        {401, "{\"error\": \"invalid_client\"}", HF_DENIED, "HTTP 401: invalid_client"},
        {403, "", HF_DENIED, "HTTP 403: no reason tol"},
        {400, "{\"error\": \"temporarily_unavailable\"}", HF_UNAVAILABLE, "temporarily"},
        {503, "", HF_UNAVAILABLE, "HTTP 503"},
        {200, "", HF_UNAVAILABLE, "the answer holds no token"},
        {200, "{\"access_token\": \"\", \"expires_in\": 9}", HF_UNAVAILABLE, "no token"},
        {200, "{\"access_token\": \"a b\", \"expires_in\": 9}", HF_UNAVAILABLE, "no token"},
        {200, "{\"access_token\": \"a\\u007f\", \"expires_in\": 9}", HF_UNAVAILABLE, "no token"},
        {200, "{\"access_token\": \"a\", \"expires_in\": 0}", HF_UNAVAILABLE, "no token"},
        {200, "{\"access_token\": \"a\"}", HF_UNAVAILABLE, "no token"},
        {ANSWER_CLOSED, "", HF_UNAVAILABLE, "token for 'me'"},
        {ANSWER_HEAD_CUT(400), "", HF_UNAVAILABLE, "closed within the header"},
    };
    char options[200];
    hf_store *st = NULL;
    hf_row row;
    int64_t clock_us;
    hf_row_init(&row);
    snprintf(options, sizeof options, "&credentials=%s", file);
    credentials_are(PERSON);
    said(opens_with(options, &st), 0, NULL);
    for (size_t i = 0; i < COUNT(cases); i++) {
        const struct answer list[] = {{"token", cases[i].status, cases[i].body, 0},
                                      {"batchGet", 200, MISSING, 0}};
        answers_are(list, 2);
        said(driver->get(st, &key, &row, &clock_us, &err), cases[i].code, cases[i].text);
        /* Without a token no other request is made; libcurl may ask for one twice. */
        assert_in_range(answers_given(), 1, cases[i].status == ANSWER_CLOSED ? 2 : 1);
    }
    /* If a token is refused, another one is got, once. */
    static const char one[] = "{\"access_token\": \"one\", \"expires_in\": 36000}";
    const struct answer refused[] = {{"token", 200, one, 2},
                                     {"batchGet", 401, "", 1},
                                     {"batchGet", 200, MISSING, 2},
                                     {"batchGet", 401, "", 0}};
    answers_are(refused, 4);
    said(driver->get(st, &key, &row, &clock_us, &err), 0, NULL);
    assert_int_equal(answers_given(), 4);
    said(driver->get(st, &key, &row, &clock_us, &err), 0, NULL);
    assert_int_equal(answers_given(), 5);
    said(driver->get(st, &key, &row, &clock_us, &err), HF_UNAVAILABLE, "HTTP 500: no reason");
    hf_row_clear(&row);
    driver->close(st);
}

/* The file is read for each token, because its key may be replaced while the store is in use. */
static void credentials_are_read_again(void **state)
{
    (void)state;
    static const char brief[] = "{\"access_token\": \"one\", \"expires_in\": 36000}";
    const struct answer list[] = {
        {"token", 200, brief, 0}, {"batchGet", 401, "", 1}, {"batchGet", 200, MISSING, 0}};
    const struct answer asked[] = {{"token?client_id=me&", 200, brief, 0},
                                   {"batchGet", 200, MISSING, 0}};
    const struct answer anew[] = {{"token?client_id=another&", 200, brief, 0},
                                  {"batchGet", 401, "", 1},
                                  {"batchGet", 200, MISSING, 0}};
    char options[200];
    hf_store *st = NULL;
    hf_row row;
    int64_t clock_us;
    hf_row_init(&row);
    snprintf(options, sizeof options, "&credentials=%s", file);
    credentials_are(PERSON);
    said(opens_with(options, &st), 0, NULL);
    answers_are(asked, 2);
    said(driver->get(st, &key, &row, &clock_us, &err), 0, NULL);
    credentials_are(ANOTHER);
    answers_are(anew, 3);
    said(driver->get(st, &key, &row, &clock_us, &err), 0, NULL);
    assert_int_equal(answers_given(), 3);
    /* While it is being replaced. */
    static const char *const halves[] = {"", "{\"type\": \"authorized_user\""};
    for (size_t i = 0; i < 3; i++) {
        if (i < 2) credentials_are(halves[i]);
        if (i == 2) unlink(file);
        answers_are(list, 3);
        said(driver->get(st, &key, &row, &clock_us, &err), HF_UNAVAILABLE, "credentials '");
        credentials_are(PERSON);
        said(driver->get(st, &key, &row, &clock_us, &err), 0, NULL);
    }
    hf_row_clear(&row);
    driver->close(st);
}

/* ---- a name server that is mute ---- */

static pthread_mutex_t never = PTHREAD_MUTEX_INITIALIZER;

int getaddrinfo(const char *name, const char *service, const struct addrinfo *want,
                struct addrinfo **ret)
{
    static int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    if (name && !strcmp(name, "mute.example")) {
        pthread_mutex_lock(&never);
        pthread_mutex_unlock(&never);
    }
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
    return real(name, service, want, ret);
}

static void a_name_is_not_waited_for_for_ever(void **state)
{
    (void)state;
    hf_store *st = NULL;
    hf_row row;
    int64_t clock_us;
    hf_row_init(&row);
    pthread_mutex_lock(&never);
    setenv("FIRESTORE_ID_TOKEN", "s3cr3t-token", 1);
    said(said_opens(driver, "firestore://p?endpoint=https://mute.example", 0, 300, &st), 0, NULL);
    said(driver->get(st, &key, &row, &clock_us, &err), HF_UNAVAILABLE, "within 300 ms");
    said(driver->replace(st, &key, 0, NULL, NULL, &clock_us, &err), HF_UNAVAILABLE,
         "within 300 ms");
    unsetenv("FIRESTORE_ID_TOKEN");
    driver->close(st);
    pthread_mutex_unlock(&never);
}

/* ---- URLs ---- */

static void urls_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *options, *says;
    } cases[] = {
        {"&root=", "root: empty"},
        {"&root=a", "root: must be the path of a document"},
        {"&root=a/..", "root: not a path"},
        {"&root=a/__b__", "root: not a path"},
        {"&collection=a/b", "collection: must be a collection"},
        {"&collection=.", "collection: not a path"},
        {"&root=/&collection=a/b/c", "collection: with root= one name"},
        {"&queue=2", "queue: neither 0 nor 1"},
        {"&cue=1", "unknown option 'cue'"},
        {"&endpoint=https://a", "given twice"},
        {"&collection=a/b/c&queue=1", NULL},
        {"&root=/a/b/&collection=c&cafile=x", NULL},
    };
    setenv("FIRESTORE_ID_TOKEN", "s3cr3t-token", 1);
    for (size_t i = 0; i < COUNT(cases); i++) {
        hf_store *st = NULL;
        int rc = opens_with(cases[i].options, &st);
        said(rc, cases[i].says ? HF_INVALID : 0, cases[i].says);
        if (st) driver->close(st);
    }
    unsetenv("FIRESTORE_ID_TOKEN");
}

/* The project, the database and the server of a URL. */
static void places_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *emulator, *url, *says; /* NULL: not given; it will do */
    } cases[] = {
        {"127.0.0.1:PORT", "firestore://p", NULL},
        {"127.0.0.1:PORT", "firestore://p/", NULL},
        {"127.0.0.1:PORT", "firestore://p/(default)", NULL},
        {"127.0.0.1:PORT", "firestore://p/d-1?endpoint=http://127.0.0.1:1/", NULL},
        {"127.0.0.1:PORT", "firestore://p?endpoint=https://a.example&queue=0", NULL},
        {"127.0.0.1:PORT", "firestore:", "the project is missing"},
        {"127.0.0.1:PORT", "firestore:///d", "the project is missing"},
        {"127.0.0.1:PORT", "firestore://p/a%20b", "the database: not a legal database name"},
        {"127.0.0.1:PORT", "firestore://p/a/b", "the database: not a legal database name"},
        {"127.0.0.1:PORT", "firestore://me@p", "a user, password or port means nothing here"},
        {"127.0.0.1:PORT", "firestore://:s3cr3t@p", "a user, password or port means nothing"},
        {"127.0.0.1:PORT", "firestore://p:80", "a user, password or port means nothing here"},
        {"127.0.0.1:PORT", "firestore://p?endpoint=ftp://a", "endpoint: not https://HOST"},
        {"127.0.0.1:PORT/x", "firestore://p", "FIRESTORE_EMULATOR_HOST: not HOST:PORT"},
        {"", "firestore://p", "no credentials"},
        {NULL, "firestore://p", "no credentials"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        hf_store *st = NULL;
        unsetenv("FIRESTORE_EMULATOR_HOST");
        if (cases[i].emulator) setenv("FIRESTORE_EMULATOR_HOST", ported(cases[i].emulator), 1);
        if (strstr(cases[i].url, "https")) setenv("FIRESTORE_ID_TOKEN", "s3cr3t-token", 1);
        int rc = opens(cases[i].url, &st);
        int denied = cases[i].says && strstr(cases[i].says, "credentials");
        said(rc, !cases[i].says ? 0 : denied ? HF_DENIED : HF_INVALID, cases[i].says);
        if (st) driver->close(st);
        unsetenv("FIRESTORE_ID_TOKEN");
    }
    unsetenv("FIRESTORE_EMULATOR_HOST");
}

/* Without an option the environment names the file; a file without credentials is refused. */
static void credentials_are_found(void **state)
{
    (void)state;
    hf_store *st = NULL;
    credentials_are(PERSON);
    setenv("GOOGLE_APPLICATION_CREDENTIALS", file, 1);
    said(opens("firestore://p", &st), 0, NULL);
    driver->close(st);
    setenv("GOOGLE_APPLICATION_CREDENTIALS", "", 1);
    said(opens("firestore://p", &st), HF_DENIED, "no credentials");
    said(opens("firestore://p", &st), HF_DENIED, "FIRESTORE_EMULATOR_HOST (HOST:PORT)");
    setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nowhere/at/all", 1);
    said(opens("firestore://p", &st), HF_UNAVAILABLE, "No such file");
    setenv("GOOGLE_APPLICATION_CREDENTIALS", "/tmp", 1);
    said(opens("firestore://p", &st), HF_INVALID, "Is a directory");
    setenv("GOOGLE_APPLICATION_CREDENTIALS", "/dev/zero", 1);
    said(opens("firestore://p", &st), HF_INVALID, "File too large");
    unsetenv("GOOGLE_APPLICATION_CREDENTIALS");
    /* A user's token, and its file, which is read for each request. */
    hf_row row;
    int64_t clock_us;
    hf_row_init(&row);
    setenv("FIRESTORE_ID_TOKEN", "no token", 1);
    said(opens_with("", &st), 0, NULL);
    said(driver->get(st, &key, &row, &clock_us, &err), HF_DENIED, "FIRESTORE_ID_TOKEN: not a");
    driver->close(st);
    setenv("FIRESTORE_ID_TOKEN_FILE", file, 1);
    said(opens_with("", &st), 0, NULL);
    credentials_are("a\x7f\n");
    said(driver->get(st, &key, &row, &clock_us, &err), HF_DENIED, "FIRESTORE_ID_TOKEN_FILE: not");
    credentials_are("\n"); /* it is being replaced */
    said(driver->get(st, &key, &row, &clock_us, &err), HF_UNAVAILABLE, "empty");
    unlink(file);
    said(driver->get(st, &key, &row, &clock_us, &err), HF_UNAVAILABLE, "No such file");
    credentials_are("s3cr3t-token\n");
    is(200, MISSING);
    said(driver->get(st, &key, &row, &clock_us, &err), 0, NULL);
    assert_non_null(strstr(answers_asked(), "Bearer s3cr3t-token\r\n"));
    is(401, "{}"); /* there is no other */
    said(driver->get(st, &key, &row, &clock_us, &err), HF_DENIED, "HTTP 401");
    assert_int_equal(answers_given(), 1);
    driver->close(st);
    setenv("FIRESTORE_ID_TOKEN_FILE", "/nowhere/at/all", 1);
    said(opens_with("", &st), HF_UNAVAILABLE, "No such file");
    unsetenv("FIRESTORE_ID_TOKEN_FILE");
    unsetenv("FIRESTORE_ID_TOKEN");
}

static char heard[2000];
static void hear(void *arg, int ok, const char *text)
{
    (void)arg;
    assert_true(ok);
    snprintf(heard + strlen(heard), sizeof heard - strlen(heard), "%s\n", text);
}

/* As whom, and where. */
static void what_doctor_is_told(void **state)
{
    (void)state;
    static const struct {
        const char *credentials, *options, *as, *where; /* NULL: a user's token */
    } cases[] = {
        {NULL, "", "asked as a user: the security rules decide", "in the collection /holdfast\n"},
        {PERSON, "&root=a/b", "asked as a person's own credentials", "below /a/b\n"},
        {PERSON, "&root=/", "asked as a person's own credentials", "below /\n"},
    };
    char options[300];
    const struct answer list[] = {
        {"token", 200, "{\"access_token\": \"one\", \"expires_in\": 36000}", 0},
        {"batchGet", 200, MISSING, 0}};
    answers_are(list, 2);
    for (size_t i = 0; i < COUNT(cases); i++) {
        hf_store *st = NULL;
        heard[0] = 0;
        if (cases[i].credentials) credentials_are(cases[i].credentials);
        if (!cases[i].credentials) setenv("FIRESTORE_ID_TOKEN", "s3cr3t-token", 1);
        snprintf(options, sizeof options, "%s%s%s", cases[i].options,
                 cases[i].credentials ? "&credentials=" : "", cases[i].credentials ? file : "");
        said(opens_with(options, &st), 0, NULL);
        unsetenv("FIRESTORE_ID_TOKEN");
        said(driver->inspect(st, hear, NULL, &err), 0, NULL);
        if (!strstr(heard, cases[i].as) || !strstr(heard, cases[i].where) ||
            !strstr(heard, "an emulator: its data end with it"))
            fail_msg("%s", heard);
        driver->close(st);
    }
    hf_store *st = opened();
    is(403, "{}");
    said(driver->inspect(st, hear, NULL, &err), HF_DENIED, "HTTP 403");
    driver->close(st);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_mean_what_they_say),
        cmocka_unit_test(documents_are_read_or_damaged),
        cmocka_unit_test(a_write_is_answered),
        cmocka_unit_test(bad_credentials_are_told_apart),
        cmocka_unit_test(a_token_is_got_for_them),
        cmocka_unit_test(credentials_are_read_again),
        cmocka_unit_test(a_name_is_not_waited_for_for_ever),
        cmocka_unit_test(urls_are_read),
        cmocka_unit_test(places_are_read),
        cmocka_unit_test(credentials_are_found),
        cmocka_unit_test(what_doctor_is_told),
    };
    static const char *const others[] = {"FIRESTORE_ID_TOKEN", "FIRESTORE_ID_TOKEN_FILE",
                                         "FIRESTORE_EMULATOR_HOST",
                                         "GOOGLE_APPLICATION_CREDENTIALS"};
    for (size_t i = 0; i < COUNT(others); i++) unsetenv(others[i]);
    int fd = mkstemp(file);
    if (fd < 0) return perror(file), 1;
    close(fd);
    int failed = answered_begin("firestore") ? 1 : TEST_MAIN(tests);
    unlink(file);
    return failed;
}
