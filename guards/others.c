/*
 * others.c - guards for Redis and MongoDB: what to send. See guard.h, doc/guards.md.
 */
#include "guard.h"

#include <stdio.h>
#include <string.h>

const char *guard_redis(const struct guard_options *o)
{
    char prefix[GUARD_TEXT_CAP];
    if (o->key_prefix && o->elsewhere) return "--key-prefix and --elsewhere exclude each other";
    /* Only in a comment: no more than one line. */
    if (!guard_text(o->key_prefix ? o->key_prefix : "holdfast:", 0, prefix))
        return "--key-prefix: not a text of up to 512 bytes";
    const struct word words[] = {
        {"PREFIX", prefix},
        {"HERE", o->elsewhere ? NULL : ""},
        {"ELSEWHERE", o->elsewhere ? "" : NULL},
        {NULL, NULL},
    };
    guard_fill(guard_redis_lua, words);
    return NULL;
}

const char *guard_mongodb(const struct guard_options *o)
{
    char collection[GUARD_TEXT_CAP], field[GUARD_TEXT_CAP];
    const char *name = o->token_field ? o->token_field : "holdfast_token";
    if (!o->table) return "no COLLECTION: the documents that it guards";
    if (!*o->table || strlen(o->table) > 120 || strchr(o->table, '$') ||
        !guard_json(o->table, collection))
        return "COLLECTION: not a name of 1 to 120 bytes without dollars";
    if (!*name || strpbrk(name, "$.") || !guard_json(name, field))
        return "--token-field: not a name without dots and dollars";
    const struct word words[] = {{"COLLECTION", collection}, {"FIELD", field}, {NULL, NULL}};
    guard_fill(guard_mongodb_js, words);
    return NULL;
}
