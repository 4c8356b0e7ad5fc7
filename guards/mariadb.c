/*
 * mariadb.c - guards for MariaDB. See guard.h, doc/guards.md.
 */
#include "guard.h"

#include "holdfast_driver.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* A name has 64 characters at most, of up to 3 bytes. */
enum { NAME_MOST = 192, TRIGGERS = 5 };

struct trigger {
    char name[GUARD_NAME_CAP], text[GUARD_TEXT_CAP];
};

/* Named after the table as it is called when it is guarded: a name of 64 characters leaves no room
   for more of them. */
static void name_trigger(const char *what, const char *table, struct trigger *ret)
{
    char name[64];
    snprintf(name, sizeof name, "holdfast_guard_%016" PRIx64 "_%s",
             hf_key_hash(table, strlen(table)), what);
    guard_tick_name(name, NAME_MOST, ret->name);
    guard_text(name, GUARD_NO_ESCAPES, ret->text);
}

static int is_own(const char *table, const char *locks)
{
    const char *const own[] = {locks, "holdfast", "holdfast_fence", "holdfast_transaction"};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (!strcasecmp(table, own[i])) return 1;
    return 0;
}

/* The client ends a statement there, but for what is quoted. */
static void delimiter(const char *const inside[], char ret[16])
{
    for (int n = 0, clash = 1; clash; n++) {
        snprintf(ret, 16, n ? "$hf%d$" : "$hf$", n);
        clash = 0;
        for (size_t i = 0; inside[i]; i++) clash |= strstr(inside[i], ret) != NULL;
    }
}

const char *guard_mariadb(const struct guard_options *o)
{
    char table[GUARD_NAME_CAP] = "", column[GUARD_NAME_CAP] = "", locks[GUARD_NAME_CAP];
    char table_text[GUARD_TEXT_CAP] = "", column_text[GUARD_TEXT_CAP] = "";
    char prefix[GUARD_TEXT_CAP], dollar[16];
    static const char *const event[TRIGGERS] = {"before_insert", "after_insert", "before_update",
                                                "after_update", "before_delete"};
    struct trigger trigger[TRIGGERS];
    const char *locks_name = o->locks ? o->locks : "holdfast";
    if (o->table && !guard_tick_name(o->table, NAME_MOST, table))
        return "TABLE: not a name of 1 to 192 bytes";
    if (o->table && !o->key_column && !o->undo)
        return "no --key-column: which column says what key a row belongs to";
    if (o->key_column && !guard_tick_name(o->key_column, NAME_MOST, column))
        return "--key-column: not a name of 1 to 192 bytes";
    if (!guard_text(o->key_prefix ? o->key_prefix : "", GUARD_ESCAPES, prefix))
        return "--key-prefix: not a text of up to 512 bytes";
    if (!guard_tick_name(locks_name, NAME_MOST, locks))
        return "--locks: not a name of 1 to 192 bytes";
    if (o->locks && o->elsewhere) return "--locks and --elsewhere exclude each other";
    if (o->table && is_own(o->table, locks_name)) return "TABLE: that is one of Holdfast's own";
    guard_text(o->table ? o->table : "", GUARD_ESCAPES, table_text);
    guard_text(o->key_column ? o->key_column : "", GUARD_ESCAPES, column_text);
    for (int i = 0; i < TRIGGERS; i++)
        name_trigger(event[i], o->table ? o->table : "", &trigger[i]);
    delimiter((const char *const[]){table, column, locks, prefix, NULL}, dollar);
    const struct word words[] = {
        {"TABLE", o->table ? table : NULL},
        {"NO_TABLE", o->table ? NULL : ""},
        {"TABLE_TEXT", table_text},
        {"COLUMN", column},
        {"COLUMN_TEXT", column_text},
        {"PREFIX", prefix},
        {"LOCKS", locks},
        {"FENCE", "`holdfast_fence`"},
        {"PROBE", "`holdfast_transaction`"},
        {"ENTER", "`holdfast_enter`"},
        {"CHECK", "`holdfast_check`"},
        {"UNHIDE", "`holdfast_unhide`"},
        {"WHICH", "`holdfast_transaction`"},
        {"BEFORE_INSERT", trigger[0].name},
        {"BEFORE_INSERT_TEXT", trigger[0].text},
        {"AFTER_INSERT", trigger[1].name},
        {"AFTER_INSERT_TEXT", trigger[1].text},
        {"BEFORE_UPDATE", trigger[2].name},
        {"BEFORE_UPDATE_TEXT", trigger[2].text},
        {"AFTER_UPDATE", trigger[3].name},
        {"AFTER_UPDATE_TEXT", trigger[3].text},
        {"BEFORE_DELETE", trigger[4].name},
        {"BEFORE_DELETE_TEXT", trigger[4].text},
        {"DOLLAR", dollar},
        {"HERE", o->elsewhere ? NULL : ""},
        {NULL, NULL},
    };
    guard_fill(o->undo ? guard_mariadb_undo_sql : guard_mariadb_sql, words);
    return NULL;
}
