/*
 * mongodb_reads.c - with which concern the MongoDB driver reads: never with less than what the
 * majority has, and with none of a server by itself. This program takes the requests in libmongoc's
 * place.
 */
#include "fakes/said.h"
#include "test.h"

#include <dlfcn.h>
#include <mongoc/mongoc.h>
#include <stdio.h>
#include <string.h>

static char level[4][20]; /* the levels that were asked for last; "": none was */
enum { OF_OTHERS, OF_LIST, OF_LOOK, OF_WRITE };
static const char *type;

bool mongoc_client_command_simple(mongoc_client_t *client, const char *db, const bson_t *command,
                                  const mongoc_read_prefs_t *prefs, bson_t *reply,
                                  bson_error_t *error)
{
    bson_iter_t it, at;
    (void)client, (void)db, (void)prefs, (void)error;
    assert_true(bson_iter_init(&it, command) && bson_iter_next(&it));
    const char *name = bson_iter_key(&it);
    int of = !strcmp(name, "find")            ? OF_LIST
             : !strcmp(name, "aggregate")     ? OF_LOOK
             : !strcmp(name, "findAndModify") ? OF_WRITE
                                              : OF_OTHERS;
    level[of][0] = 0;
    if (bson_iter_init(&it, command) && bson_iter_find_descendant(&it, "readConcern.level", &at))
        snprintf(level[of], sizeof level[of], "%s", bson_iter_utf8(&at, NULL));
    bson_init(reply);
    BCON_APPEND(reply, "cursor", "{", "firstBatch", "[", "]", "}", "localTime",
                BCON_DATE_TIME(1769860800000), "value", "{", "}");
    return true;
}

mongoc_server_description_t *mongoc_client_select_server(mongoc_client_t *client, bool writes,
                                                         const mongoc_read_prefs_t *prefs,
                                                         bson_error_t *error)
{
    (void)client, (void)writes, (void)prefs, (void)error;
    return (mongoc_server_description_t *)(uintptr_t)type;
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

static const hf_driver *mongodb;

static int see(void *arg, const hf_rowkey *k, hf_row *row)
{
    (void)arg, (void)k, (void)row;
    return 0;
}

static void reads_by(const char *server, const char *url, const char *look, const char *list)
{
    hf_store *st = NULL;
    hf_row row;
    int64_t clock_us;
    type = server;
    memset(level, 'x', sizeof level);
    said(said_opens(mongodb, url, 0, 1000, &st), 0, NULL);
    hf_row_init(&row);
    said(mongodb->get(st, &key, &row, &clock_us, &err), 0, NULL);
    assert_int_equal(row.rev, 0);
    assert_int_equal(clock_us, INT64_C(1769860800000000));
    said(mongodb->scan(st, "", see, NULL, &clock_us, &err), 0, NULL);
    said(mongodb->replace(st, &key, 5, NULL, NULL, &clock_us, &err), 0, NULL);
    assert_string_equal(level[OF_LOOK], look);
    assert_string_equal(level[OF_LIST], list);
    assert_string_equal(level[OF_WRITE], ""); /* it has a write concern */
    mongodb->close(st);
}

static void no_read_shows_what_may_be_undone(void **state)
{
    (void)state;
    reads_by("RSPrimary", "mongodb://h/db", "linearizable", "majority");
    reads_by("RSPrimary", "mongodb://h/db?readConcernLevel=linearizable", "linearizable",
             "majority");
    reads_by("RSPrimary", "mongodb://h/db?readConcernLevel=majority", "majority", "majority");
    reads_by("Standalone", "mongodb://h/db", "", "");
    reads_by("Standalone", "mongodb://h/db?readConcernLevel=majority", "", "");
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(no_read_shows_what_may_be_undone)};
    Dl_info at;
    if (hf_key_make("k", &key, &err) || !(mongodb = hf__driver("mongodb", &err)) ||
        !dladdr((void *)(uintptr_t)mongodb, &at)) {
        printf("Bail out! %s\n", err.text);
        return 1;
    }
    void *module = dlopen(at.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    *(void **)&real_destroy = dlsym(module, "mongoc_server_description_destroy");
    return TEST_MAIN(tests);
}
