/*
 * sql.c - guards for PostgreSQL and SQLite. See guard.h, doc/guards.md.
 */
#include "guard.h"

#include "holdfast_driver.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { NAME_MOST = 63 }; /* PostgreSQL cuts longer ones */

/* What both have. */
struct sql {
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
    return NULL;
}

/* Between $hf$ a body may hold anything but $hf$. */
static void dollars(const struct sql *s, char ret[16])
{
    const char *const inside[] = {s->column, s->prefix, s->locks, s->fence};
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
    char check[GUARD_NAME_CAP], name[64], dollar[16];
    const char *schema = o->schema ? o->schema : "public";
    const char *home = o->locks_schema ? o->locks_schema : "public";
    if (!guard_name(NULL, schema, NAME_MOST, check)) return "--schema: not a name of 1 to 63 bytes";
    if (!guard_name(NULL, home, NAME_MOST, check))
        return "--locks-schema: not a name of 1 to 63 bytes";
    const char *why = common(o, schema, home, 1, &s);
    if (why) return why;
    /* Each table has a function of its own: that is several times faster than one for all. */
    snprintf(name, sizeof name, "holdfast_guard_%016" PRIx64,
             hf_key_hash(s.table, strlen(s.table)));
    guard_name(home, name, NAME_MOST, check);
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
        {"DOLLAR", dollar},
        {"HERE", o->elsewhere ? NULL : ""},
        {NULL, NULL},
    };
    guard_fill(o->undo ? guard_postgres_undo_sql : guard_postgres_sql, words);
    return NULL;
}

static const char *trigger(const char *what, const char *table, char ret[GUARD_NAME_CAP])
{
    char name[128];
    snprintf(name, sizeof name, "holdfast_%s_%s", what, table ? table : "");
    guard_name(NULL, name, sizeof name, ret);
    return ret;
}

const char *guard_sqlite(const struct guard_options *o)
{
    struct sql s;
    char insert[GUARD_NAME_CAP], update[GUARD_NAME_CAP], delete[GUARD_NAME_CAP];
    const char *why = common(o, NULL, NULL, 0, &s);
    if (why) return why;
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
        {"ON_INSERT", trigger("insert", o->table, insert)},
        {"ON_UPDATE", trigger("update", o->table, update)},
        {"ON_DELETE", trigger("delete", o->table, delete)},
        {"HERE", o->elsewhere ? NULL : ""},
        {"ELSEWHERE", o->elsewhere ? "" : NULL},
        {NULL, NULL},
    };
    guard_fill(o->undo ? guard_sqlite_undo_sql : guard_sqlite_sql, words);
    return NULL;
}
