/*
 * raw_mariadb.c - a conditional write of a row by libmariadb alone: a prepared UPDATE of as many
 * columns as a row of Holdfast has.
 */
#include "bench.h"
#include "mariadb_url.h"
#include "raw.h"

#include <stdio.h>
#include <string.h>

enum { SQL_CAP = 4096, VALUES = HF_FIELDS + 1 };

static MYSQL *to;
static MYSQL_STMT *replace, *ping;
static MYSQL_BIND value[VALUES];
static char seen[24], next[24];
static unsigned long long rev = 1;

static void bind(int i, const char *text)
{
    value[i].buffer_type = MYSQL_TYPE_STRING;
    value[i].buffer = (void *)(uintptr_t)text;
    value[i].buffer_length = strlen(text);
}

static void write_it(void)
{
    snprintf(seen, sizeof seen, "%llu", rev++);
    snprintf(next, sizeof next, "%llu", rev);
    bind(HF_FIELD_REV, next);
    bind(HF_FIELDS, seen);
    if (mysql_stmt_bind_param(replace, value) || mysql_stmt_execute(replace))
        bench_die("libmariadb: %s", mysql_stmt_error(replace));
    if (mysql_stmt_affected_rows(replace) != 1) bench_die("mariadb: not replaced");
}

static void trip(void)
{
    if (mysql_stmt_execute(ping)) bench_die("libmariadb: %s", mysql_stmt_error(ping));
}

static void open_it(const char *url, int durable)
{
    char columns[SQL_CAP], sets[SQL_CAP], sql[2 * SQL_CAP];
    size_t n = 0, m = 0;
    if (durable) bench_die("mariadb: the test's server doesn't sync its writes");
    to = mariadb_connected(url);
    for (int i = 0; i < HF_FIELDS; i++) {
        const char *type = raw_kind[i] == HF_NUMBER ? "BIGINT" : "VARBINARY(512)";
        n += (size_t)snprintf(columns + n, sizeof columns - n, ", `%s` %s NOT NULL DEFAULT '0'",
                              raw_name[i], type);
        m += (size_t)snprintf(sets + m, sizeof sets - m, "%s`%s` = ?", i ? ", " : "", raw_name[i]);
        bind(i, raw_value[i]);
    }
    /* On this server there may have been others before. */
    mariadb_ask(to, "DROP TABLE IF EXISTS raw");
    snprintf(sql, sizeof sql, "CREATE TABLE raw (`key` VARBINARY(512) PRIMARY KEY%s)", columns);
    mariadb_ask(to, sql);
    mariadb_ask(to, "INSERT INTO raw (`key`, rev) VALUES ('bench', 1)");
    snprintf(sql, sizeof sql, "UPDATE raw SET %s WHERE `key` = 'bench' AND rev = ?", sets);
    replace = mariadb_prepared(to, sql);
    ping = mariadb_prepared(to, "DO 1");
    write_it();
}

const struct raw raw_mariadb = {"mariadb", open_it, write_it, trip};
