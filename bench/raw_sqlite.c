/*
 * raw_sqlite.c - a conditional write of a row by SQLite alone: a prepared UPDATE of as many columns
 * as a row of Holdfast has, in a journal like the driver's (WAL, synced at checkpoints only), or
 * synced each time.
 */
#include "bench.h"
#include "raw.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SQL_CAP = 4096 };

static sqlite3 *db;
static sqlite3_stmt *replace, *read;
static sqlite3_int64 rev = 1;

static void must(int rc, int wanted)
{
    if (rc != wanted) bench_die("sqlite: %s", sqlite3_errmsg(db));
}

static void write_it(void)
{
    sqlite3_bind_int64(replace, HF_FIELDS + 1, rev++);
    sqlite3_bind_int64(replace, HF_FIELD_REV + 1, rev);
    must(sqlite3_step(replace), SQLITE_DONE);
    sqlite3_reset(replace);
    if (sqlite3_changes(db) != 1) bench_die("sqlite: not replaced");
}

/* Nobody is asked, but the file has to be locked and looked at. */
static void trip(void)
{
    must(sqlite3_step(read), SQLITE_ROW);
    sqlite3_reset(read);
}

static void open_it(const char *url, int durable)
{
    char columns[SQL_CAP], sets[SQL_CAP], sql[2 * SQL_CAP];
    size_t n = 0, m = 0;
    for (int i = 0; i < HF_FIELDS; i++) {
        n += (size_t)snprintf(columns + n, sizeof columns - n, ", \"%s\" %s DEFAULT 0", raw_name[i],
                              raw_kind[i] != HF_NUMBER ? "TEXT" : "INTEGER");
        m += (size_t)snprintf(sets + m, sizeof sets - m, "%s\"%s\" = ?%d", i ? ", " : "",
                              raw_name[i], i + 1);
    }
    must(sqlite3_open(url + strlen("sqlite:"), &db), SQLITE_OK);
    sqlite3_busy_timeout(db, 10000);
    snprintf(sql, sizeof sql,
             "PRAGMA journal_mode = WAL; PRAGMA synchronous = %s;"
             "CREATE TABLE raw (key TEXT NOT NULL PRIMARY KEY%s);"
             "INSERT INTO raw (key, rev) VALUES ('bench', 1)",
             durable ? "FULL" : "NORMAL", columns);
    must(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    snprintf(sql, sizeof sql, "UPDATE raw SET %s WHERE key = 'bench' AND rev = ?%d", sets,
             HF_FIELDS + 1);
    must(sqlite3_prepare_v2(db, sql, -1, &replace, NULL), SQLITE_OK);
    must(sqlite3_prepare_v2(db, "SELECT rev FROM raw WHERE key = 'bench'", -1, &read, NULL),
         SQLITE_OK);
    for (int i = 0; i < HF_FIELDS; i++) {
        if (raw_kind[i] != HF_NUMBER)
            sqlite3_bind_text(replace, i + 1, raw_value[i], -1, SQLITE_STATIC);
        else
            sqlite3_bind_int64(replace, i + 1, strtoll(raw_value[i], NULL, 10));
    }
    write_it();
}

const struct raw raw_sqlite = {"sqlite", open_it, write_it, trip};
