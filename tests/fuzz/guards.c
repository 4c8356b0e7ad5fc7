/*
 * guards.c - fuzz: what `holdfast guard` prints, whatever the names in it are. SQLite's can be
 * parsed; in the others no quote is left open, and nothing comes to be outside of its quotes.
 */
#include "fuzz.h"
#include "guard.h"

#include <sqlite3.h>

/* Whose quotes: MariaDB's names are within backquotes, and its texts have escapes. */
enum { OTHER, SQL, MARIADB };

/* What stands outside of quotes and comments, with each quoted thing as one character: the same for
   all names. */
static size_t skeleton(const char *s, const char *comment, int sql, char *to)
{
    char *begin = to;
    for (; *s; s++) {
        if (!strncmp(s, comment, strlen(comment))) {
            while (*s && *s != '\n') s++;
            if (!*s) break;
        }
        if (*s != '"' && *s != '\'' && !(sql == MARIADB && *s == '`')) {
            if (!(sql && *s == 'E' && s[1] == '\'')) *to++ = *s;
            continue;
        }
        char quote = *s;
        int escapes = !sql || (quote == '\'' && (sql == MARIADB || s[-1] == 'E'));
        for (s++; *s && *s != quote; s++) {
            if (escapes && *s == '\\' && s[1]) s++;
            if (sql && *s == quote) break;
        }
        MUST(*s == quote);
        while (sql && s[1] == quote) { /* a doubled one: it goes on */
            for (s += 2; *s && *s != quote; s++)
                if (escapes && *s == '\\' && s[1]) s++;
            MUST(*s == quote);
        }
        *to++ = quote;
    }
    *to = 0;
    return (size_t)(to - begin);
}

static char *printed(const char *(*print)(const struct guard_options *),
                     const struct guard_options *o, const char **ret_why)
{
    char *text = NULL;
    size_t n = 0;
    FILE *before = stdout;
    stdout = open_memstream(&text, &n);
    *ret_why = print(o);
    fclose(stdout);
    stdout = before;
    return text;
}

static void parses(char *sql, const struct guard_options *o)
{
    static const char line[] = "\n.bail on\n"; /* for the program sqlite3 */
    sqlite3 *db;
    char *why = NULL, *at = strstr(sql, line);
    MUST(at != NULL);
    memcpy(at + 1, "--", 2);
    if (sqlite3_open(":memory:", &db)) abort();
    char *table = sqlite3_mprintf("CREATE TABLE \"%w\" (\"%w\", x)", o->table ? o->table : "t",
                                  o->key_column ? o->key_column : "c");
    if (!sqlite3_exec(db, table, NULL, NULL, NULL) && sqlite3_exec(db, sql, NULL, NULL, &why))
        MUST(!strstr(why, "syntax error") && !strstr(why, "unrecognized token") &&
             !strstr(why, "incomplete input"));
    memcpy(at, line, 3);
    sqlite3_free(table);
    sqlite3_free(why);
    sqlite3_close(db);
}

/* `$hf$` may be longer because of what is in it. */
static void plain_dollars(char *s)
{
    for (char *at; (at = strstr(s, "$hf")); s = at + 3)
        if (strspn(at + 3, "0123456789"))
            memmove(at + 3, at + 3 + strspn(at + 3, "0123456789"),
                    strlen(at + 3 + strspn(at + 3, "0123456789")) + 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct {
        const char *(*print)(const struct guard_options *);
        const char *comment;
        int sql;
    } kinds[] = {{guard_postgres, "--", SQL},    {guard_sqlite, "--", SQL},
                 {guard_redis, "--", OTHER},     {guard_mongodb, "//", OTHER},
                 {guard_firestore, "//", OTHER}, {guard_mariadb, "--", MARIADB}};
    struct fuzz f = {data, size};
    size_t kind = fuzz_byte(&f) % (sizeof kinds / sizeof *kinds);
    uint8_t has = fuzz_byte(&f), more = fuzz_byte(&f);
    char *line[9];
    const char *why;
    for (int i = 0; i < 9; i++) line[i] = fuzz_line(&f, NULL);
    struct guard_options o = {.max_lease_ms = 300000, .max_lease = NULL}, plain = o;
#define OPTION(bit, member, n, usual) \
    if (bit) o.member = line[n], plain.member = usual
    OPTION(has & 1, table, 0, "t");
    OPTION(has & 1 || more & 8, key_column, 1, "c");
    OPTION(has & 2, key_prefix, 2, "p");
    OPTION(has & 4, schema, 3, "s");
    OPTION(has & 8, locks, 4, "l");
    OPTION(has & 16, locks_schema, 5, "h");
    OPTION(has & 32, token_field, 6, "f");
    o.lock = line[7], plain.lock = "locks";
    o.data = line[8], plain.data = "data";
    o.elsewhere = plain.elsewhere = (has & 64) != 0;
    o.undo = plain.undo = (has & 128) != 0;
    char *text = printed(kinds[kind].print, &o, &why);
    if (!why) {
        char *usual = printed(kinds[kind].print, &plain, &why);
        MUST(!why);
        if (kind == 1) parses(text, &o);
        if (kind == 0 || kind == 5) plain_dollars(text);
        char *bones[2] = {malloc(strlen(text) + 1), malloc(strlen(usual) + 1)};
        skeleton(text, kinds[kind].comment, kinds[kind].sql, bones[0]);
        skeleton(usual, kinds[kind].comment, kinds[kind].sql, bones[1]);
        /* Names of rules stand without quotes, and are of letters that need none. */
        if (kind != 4) MUST(!strcmp(bones[0], bones[1]));
        free(bones[0]);
        free(bones[1]);
        free(usual);
    }
    free(text);
    for (int i = 0; i < 9; i++) free(line[i]);
    return 0;
}
