/*
 * sql.c - guards for PostgreSQL and SQLite. See guard.h, doc/guards.md.
 */
#include "guard.h"

#include "holdfast_driver.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define OWN_TABLE "TABLE: that is one of Holdfast's own"

enum { NAME_MOST = 63 }; /* PostgreSQL cuts longer ones */

/* What both have. */
struct sql {
    /* The names as texts: for what looks whether something is there. */
    char table_text[GUARD_TEXT_CAP], fence_text[GUARD_TEXT_CAP], enter_text[GUARD_TEXT_CAP];
    char table[GUARD_NAME_CAP], column[GUARD_NAME_CAP], locks[GUARD_NAME_CAP];
    char fence[GUARD_NAME_CAP], enter[GUARD_NAME_CAP], prefix[GUARD_TEXT_CAP];
};

static const char *common(const struct guard_options *o, const char *schema, const char *home,
                          int escapes, struct sql *ret)
{
    memset(ret, 0, sizeof *ret);
    if (o->table && !guard_name(schema, o->table, NAME_MOST, ret->table))
        return "TABLE: not a name of 1 to 63 bytes";
    if (o->table && !o->key_column && !o->undo)
        return "no --key-column: which column says what key a row belongs to";
    if (o->key_column && !guard_name(NULL, o->key_column, NAME_MOST, ret->column))
        return "--key-column: not a name of 1 to 63 bytes";
    if (!guard_text(o->key_prefix ? o->key_prefix : "", escapes, ret->prefix))
        return "--key-prefix: not a text of up to 512 bytes";
    if (!guard_name(home, o->locks ? o->locks : "holdfast", NAME_MOST, ret->locks))
        return "--locks: not a name of 1 to 63 bytes";
    if (o->locks && o->elsewhere) return "--locks and --elsewhere exclude each other";
    guard_name(home, "holdfast_fence", NAME_MOST, ret->fence);
    guard_name(home, "holdfast_enter", NAME_MOST, ret->enter);
    guard_text(ret->table, escapes, ret->table_text);
    guard_text(ret->fence, escapes, ret->fence_text);
    guard_text(ret->enter, escapes, ret->enter_text);
    return NULL;
}

/* Between $hf$ a body may hold anything but $hf$. */
static void dollars(const struct sql *s, char ret[16])
{
    const char *const inside[] = {s->column, s->prefix, s->locks, s->fence, s->table};
    for (int n = 0, clash = 1; clash; n++) {
        snprintf(ret, 16, n ? "$hf%d$" : "$hf$", n);
        clash = 0;
        for (size_t i = 0; i < sizeof inside / sizeof *inside; i++)
            clash |= strstr(inside[i], ret) != NULL;
    }
}

const char *guard_postgres(const struct guard_options *o)
{
    struct sql s;
    char check[GUARD_NAME_CAP], check_text[GUARD_TEXT_CAP], name[64], name_text[GUARD_TEXT_CAP];
    char home_text[GUARD_TEXT_CAP], dollar[16];
    const char *schema = o->schema ? o->schema : "public";
    const char *home = o->locks_schema ? o->locks_schema : "public";
    if (!guard_name(NULL, schema, NAME_MOST, check)) return "--schema: not a name of 1 to 63 bytes";
    if (!guard_name(NULL, home, NAME_MOST, check))
        return "--locks-schema: not a name of 1 to 63 bytes";
    const char *why = common(o, schema, home, GUARD_E_ESCAPES, &s);
    if (why) return why;
    if (o->table && !strcmp(home, schema) &&
        (!strcmp(s.table, s.locks) || !strcmp(s.table, s.fence)))
        return OWN_TABLE;
    /* Each table has a function of its own: that is several times faster than one for all. */
    snprintf(name, sizeof name, "holdfast_guard_%016" PRIx64,
             hf_key_hash(s.table, strlen(s.table)));
    guard_name(home, name, NAME_MOST, check);
    guard_text(check, GUARD_E_ESCAPES, check_text);
    guard_text(name, GUARD_E_ESCAPES, name_text);
    guard_text(home, GUARD_E_ESCAPES, home_text);
    dollars(&s, dollar);
    const struct word words[] = {
        {"TABLE", o->table ? s.table : NULL},
        {"NO_TABLE", o->table ? NULL : ""},
        {"COLUMN", s.column},
        {"PREFIX", s.prefix},
        {"LOCKS", s.locks},
        {"FENCE", s.fence},
        {"ENTER", s.enter},
        {"CHECK", check},
        {"TABLE_TEXT", s.table_text},
        {"FENCE_TEXT", s.fence_text},
        {"ENTER_TEXT", s.enter_text},
        {"CHECK_TEXT", check_text},
        {"CHECK_NAME", name_text},
        {"HOME_TEXT", home_text},
        {"DOLLAR", dollar},
        {"HERE", o->elsewhere ? NULL : ""},
        {NULL, NULL},
    };
    guard_fill(o->undo ? guard_postgres_undo_sql : guard_postgres_sql, words);
    return NULL;
}

struct trigger {
    char name[GUARD_NAME_CAP], text[GUARD_TEXT_CAP];
};

static void name_trigger(const char *what, const char *table, struct trigger *ret)
{
    char name[128];
    snprintf(name, sizeof name, "holdfast_%s_%s", what, table ? table : "");
    guard_name(NULL, name, sizeof name, ret->name);
    guard_text(name, GUARD_NO_ESCAPES, ret->text);
}

/* SQLite's names are the same in small letters and capitals, those of ASCII. */
static int is_own(const char *table, const char *locks)
{
    const char *const own[] = {locks ? locks : "holdfast", "holdfast",        "holdfast_clock",
                               "holdfast_fence",           "holdfast_nobody", "holdfast_enter"};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (!strcasecmp(table, own[i])) return 1;
    return 0;
}

const char *guard_sqlite(const struct guard_options *o)
{
    struct sql s;
    struct trigger insert, update, delete;
    const char *why = common(o, NULL, NULL, GUARD_NO_ESCAPES, &s);
    if (why) return why;
    if (o->table && is_own(o->table, o->locks)) return OWN_TABLE;
    name_trigger("insert", o->table, &insert);
    name_trigger("update", o->table, &update);
    name_trigger("delete", o->table, &delete);
    const struct word words[] = {
        {"TABLE", o->table ? s.table : NULL},
        {"NO_TABLE", o->table ? NULL : ""},
        {"COLUMN", s.column},
        {"PREFIX", s.prefix},
        {"LOCKS", s.locks},
        {"FENCE", s.fence},
        {"ENTER", s.enter},
        {"NOBODY", "\"holdfast_nobody\""},
        {"INDEX", "\"holdfast_fence_entered\""},
        {"ON_ENTER", "\"holdfast_on_enter\""},
        {"ON_LEAVE", "\"holdfast_on_leave\""},
        {"TABLE_TEXT", s.table_text},
        {"ON_INSERT", insert.name},
        {"ON_UPDATE", update.name},
        {"ON_DELETE", delete.name},
        {"ON_INSERT_TEXT", insert.text},
        {"ON_UPDATE_TEXT", update.text},
        {"ON_DELETE_TEXT", delete.text},
        {"HERE", o->elsewhere ? NULL : ""},
        {"ELSEWHERE", o->elsewhere ? "" : NULL},
        {NULL, NULL},
    };
    guard_fill(o->undo ? guard_sqlite_undo_sql : guard_sqlite_sql, words);
    return NULL;
}
