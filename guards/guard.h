/*
 * guard.h - what `holdfast guard` prints: for each kind of database a template and its values.
 *
 * The templates are files of their own in this folder; embed.py turns them into C at build time.
 */
#ifndef HF_GUARD_H
#define HF_GUARD_H

#include <stddef.h>
#include <stdint.h>

struct guard_options {
    const char *table; /* NULL: only what the guards of a database share */
    const char *key_column, *key_prefix;
    const char *schema, *locks, *locks_schema;
    int elsewhere; /* the locks are in another store: there is no row to look at */
    int undo;
    const char *lock, *data, *owner, *token_field;
    const char *max_lease;
    int64_t max_lease_ms; /* what that means */
};

/* Each prints what it makes to stdout and returns NULL; or prints nothing and says what is wrong
   with the options (constant text). */
const char *guard_postgres(const struct guard_options *o);
const char *guard_sqlite(const struct guard_options *o);
const char *guard_mariadb(const struct guard_options *o);
const char *guard_firestore(const struct guard_options *o);
const char *guard_redis(const struct guard_options *o);
const char *guard_mongodb(const struct guard_options *o);

/* ---- fill.c ---- */

/* @NAME@ in a template becomes `value`. Lines from "@if NAME" to "@end" are left out unless NAME is
   there and has a value. */
struct word {
    const char *name, *value;
};
/* Prints the template, whose lines end with NULL. `words` ends with a name of NULL. */
void guard_fill(const char *const *template, const struct word *words);

enum { GUARD_NAME_CAP = 512, GUARD_TEXT_CAP = 2200 };
/* A name within double quotes, as SQL has it; with the schema's before it if that isn't NULL.
   0: it is none of 1 to `most` bytes of UTF-8 without control characters. */
int guard_name(const char *schema, const char *name, size_t most, char ret[GUARD_NAME_CAP]);
/* The same within backquotes, as MariaDB has it. */
int guard_tick_name(const char *name, size_t most, char ret[GUARD_NAME_CAP]);
/* What a backslash in a text means: itself; what PostgreSQL's E'' says; what MariaDB's '' says. */
enum { GUARD_NO_ESCAPES, GUARD_E_ESCAPES, GUARD_ESCAPES };
/* A text within single quotes. 0: as above, up to 512 bytes, "" too. */
int guard_text(const char *text, int escapes, char ret[GUARD_TEXT_CAP]);
/* The same within double quotes, as JSON has it. */
int guard_json(const char *text, char ret[GUARD_TEXT_CAP]);

extern const char *const guard_postgres_sql[], *const guard_postgres_undo_sql[];
extern const char *const guard_mariadb_sql[], *const guard_mariadb_undo_sql[];
extern const char *const guard_firestore_rules[];
extern const char *const guard_redis_lua[], *const guard_mongodb_js[];
extern const char *const guard_sqlite_sql[], *const guard_sqlite_undo_sql[];

#endif
