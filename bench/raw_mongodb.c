/*
 * raw_mongodb.c - a conditional write of a document by libmongoc alone: one findAndModify of as
 * many fields as a row of Holdfast has, confirmed by the majority's journals.
 */
#include "bench.h"
#include "raw.h"

#include <mongoc/mongoc.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static mongoc_client_t *to;
static char id[32]; /* on this server there may have been others before */
static int64_t rev = 1;

/* The reply, which is the caller's. */
static void ask(const char *database, bson_t *command, bson_t *reply)
{
    bson_error_t error;
    if (!mongoc_client_command_simple(to, database, command, NULL, reply, &error))
        bench_die("libmongoc: %s", error.message);
    bson_destroy(command);
}

static void put_fields(bson_t *fields)
{
    for (int i = 0; i < HF_FIELDS; i++) {
        if (raw_kind[i] == HF_JSON) continue; /* absent: they are empty */
        if (raw_kind[i] == HF_TEXT)
            bson_append_utf8(fields, raw_name[i], -1, raw_value[i], -1);
        else
            bson_append_int64(fields, raw_name[i], -1,
                              i == HF_FIELD_REV ? rev : strtoll(raw_value[i], NULL, 10));
    }
}

static void write_it(void)
{
    bson_t fields = BSON_INITIALIZER, reply;
    bson_iter_t it;
    int64_t seen = rev++;
    put_fields(&fields);
    ask("test",
        BCON_NEW("findAndModify", "raw", "query", "{", "_id", BCON_UTF8(id), "rev",
                 BCON_INT64(seen), "}", "update", "{", "$set", BCON_DOCUMENT(&fields), "}",
                 "fields", "{", "_id", BCON_INT32(1), "}", "writeConcern", "{", "w", "majority",
                 "j", BCON_BOOL(true), "}"),
        &reply);
    if (!bson_iter_init_find(&it, &reply, "value") || !BSON_ITER_HOLDS_DOCUMENT(&it))
        bench_die("mongodb: not replaced");
    bson_destroy(&fields);
    bson_destroy(&reply);
}

static void trip(void)
{
    bson_t reply;
    ask("test", BCON_NEW("ping", BCON_INT32(1)), &reply);
    bson_destroy(&reply);
}

/* What libmongoc notes of each connection, our driver's too, would stand among the figures. */
__attribute__((constructor)) static void say_nothing(void) { mongoc_log_set_handler(NULL, NULL); }

static void open_it(const char *url, int durable)
{
    bson_t reply;
    if (durable) bench_die("mongodb: the server keeps everything in memory");
    mongoc_init();
    snprintf(id, sizeof id, "bench/%d", (int)getpid());
    to = mongoc_client_new(url);
    if (!to) bench_die("libmongoc: '%s': not a URL", url);
    ask("test",
        BCON_NEW("insert", "raw", "documents", "[", "{", "_id", BCON_UTF8(id), "rev",
                 BCON_INT64(rev), "}", "]"),
        &reply);
    bson_destroy(&reply);
    write_it();
}

const struct raw raw_mongodb = {"mongodb", open_it, write_it, trip};
