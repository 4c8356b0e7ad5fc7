/*
 * mongodb_urls.c - what the MongoDB driver makes of a URL: what it refuses, and what libmongoc is
 * given. This program takes it in libmongoc's place.
 */
#include "fakes/said.h"
#include "test.h"

#include <mongoc/mongoc.h>
#include <stdio.h>
#include <string.h>

static char given[9000]; /* "": nothing */

mongoc_uri_t *mongoc_uri_new_with_error(const char *text, bson_error_t *error)
{
    (void)error;
    snprintf(given, sizeof given, "%s", text);
    return NULL;
}

static const hf_driver *mongodb;

static int opens(const char *url)
{
    hf_store *st;
    given[0] = 0;
    return said_opens(mongodb, url, 0, 1000, &st);
}

#define TIMES                                                                   \
    "?connectTimeoutMS=1000&socketTimeoutMS=1000&serverSelectionTimeoutMS=1000" \
    "&retryWrites=false&retryReads=false"

static void what_is_given_on(void **state)
{
    static const char *const cases[][2] = {
        {"mongodb:", "mongodb://localhost/"},
        {"mongodb://h", "mongodb://h/"},
        {"mongodb://h:7", "mongodb://h:7/"},
        {"mongodb://h/", "mongodb://h/"},
        {"mongodb://h/db", "mongodb://h/db"},
        {"mongodb://a:1,b:2,c/db", "mongodb://a:1,b:2,c/db"},
        {"mongodb://[::1]/db", "mongodb://[::1]/db"},
        {"mongodb://[::1]:7/db", "mongodb://[::1]:7/db"},
        {"mongodb://me@h/db", "mongodb://me@h/db"},
        {"mongodb://Me%40Z:s3cr3t%2f%7e%c3%a4@h/db", "mongodb://Me%40Z:s3cr3t%2F~%C3%A4@h/db"},
    };
    static const char *const options[][2] = {
        {"tls=true&tlsCAFile=/a/b.pem", "&tls=true&tlsCAFile=/a/b.pem"},
        {"replicaSet=rs%200", "&replicaSet=rs%200"},
        {"compressors=zstd,zlib", "&compressors=zstd,zlib"},
        {"ssl=false&&directConnection=true&", "&directConnection=true&ssl=false"},
        {"w=majority&journal=true&readPreference=primary&retryReads=true&retryWrites=false", ""},
        {"readConcernLevel=majority&collection=c", ""},
    };
    char url[300], text[600];
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        said(opens(cases[i][0]), HF_INVALID, "libmongoc doesn't take these hosts or options");
        snprintf(text, sizeof text, "%s" TIMES, cases[i][1]);
        assert_string_equal(given, text);
    }
    for (size_t i = 0; i < COUNT(options); i++) {
        snprintf(url, sizeof url, "mongodb://h/db?%s", options[i][0]);
        said(opens(url), HF_INVALID, "libmongoc doesn't take these hosts or options");
        snprintf(text, sizeof text, "mongodb://h/db" TIMES "%s", options[i][1]);
        assert_string_equal(given, text);
    }
}

static void what_means_something_else_is_refused(void **state)
{
    static const char *const cases[][2] = {
        {"x=1", "unknown option 'x'"},
        {"app=1", "unknown option 'app'"},
        {"=1", "unknown option ''"},
        {"tls", "tls: neither true nor false"},
        {"tls=1", "tls: neither true nor false"},
        {"tls=true&tls=true", "tls: too long, or given twice"},
        {"w=1", "w must be majority: with less"},
        {"journal=false", "journal must be true"},
        {"readConcernLevel=local", "readConcernLevel must be linearizable"},
        {"readPreference=secondary", "readPreference must be primary"},
        {"retryWrites=maybe", "it is a boolean"},
        {"collection=", "collection: not a legal collection name"},
        {"collection=a%24b", "collection: not a legal collection name"},
        {"collection=system.users", "collection: not a legal collection name"},
    };
    static const char *const names[] = {"a%2fb", "a%20b", "a.b", "system.x"};
    char url[3000];
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        snprintf(url, sizeof url, "mongodb://h/db?%s", cases[i][0]);
        said(opens(url), HF_INVALID, cases[i][1]);
        assert_string_equal(given, "");
    }
    for (size_t i = 0; i < COUNT(names); i++) {
        snprintf(url, sizeof url, "mongodb://h/%s", names[i]);
        said(opens(url), HF_INVALID, "not a legal database name");
    }
    snprintf(url, sizeof url, "mongodb://h/%064d", 0);
    said(opens(url), HF_INVALID, "not a legal database name");
    snprintf(url, sizeof url, "mongodb://h/db?collection=%0121d", 0);
    said(opens(url), HF_INVALID, "collection: not a legal collection name");
    snprintf(url, sizeof url, "mongodb://h/db?collection=%0129d", 0);
    said(opens(url), HF_INVALID, "collection: ");
}

/* All that fits into a URL has room once it is encoded. */
static void what_is_long_is_given_on_whole(void **state)
{
    char url[2000], text[4000];
    (void)state;
    size_t n = (size_t)snprintf(url, sizeof url, "mongodb://h/db?appName=");
    size_t k = (size_t)snprintf(text, sizeof text, "mongodb://h/db" TIMES "&appName=");
    for (int i = 0; i < 1000; i++) {
        url[n++] = '!';
        k += (size_t)snprintf(text + k, sizeof text - k, "%%21");
    }
    url[n] = 0;
    said(opens(url), HF_INVALID, "");
    assert_string_equal(given, text);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_given_on),
        cmocka_unit_test(what_means_something_else_is_refused),
        cmocka_unit_test(what_is_long_is_given_on_whole),
    };
    if (!(mongodb = hf__driver("mongodb", &err))) {
        printf("Bail out! %s\n", err.text);
        return 1;
    }
    return TEST_MAIN(tests);
}
