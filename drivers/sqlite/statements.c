/*
 * statements.c - sqlite: statements and their errors, transactions, the tables, and the clock that
 * one of the tables keeps. See store.h.
 */
#include "os.h"
#include "store.h"

#include <errno.h>
#include <string.h>

static const int64_t CEILING_STEP_US = INT64_C(600) * 1000000,
                     CEILING_ROOM_US = INT64_C(60) * 1000000;

static int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }

/* ---- errors ---- */

static int code_of_errno(int sys, int otherwise)
{
    switch (sys) {
    case EACCES:
    case EPERM:
    case EROFS: return HF_DENIED;
    case ENOTDIR:
    case EISDIR:
    case ENAMETOOLONG: return HF_INVALID;
    case ENOSPC:
    case EDQUOT:
    case EFBIG: return HF_FULL;
    case ENOMEM: return HF_NOMEM;
    default: return otherwise;
    }
}

/* Returns the HF_ code for a result of SQLite's. `ambiguous` is the code for an error of the disk,
   after which a write may have been done. */
static int code_of(sqlite3 *db, int rc, int ambiguous)
{
    switch (rc & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_INTERRUPT:
    case SQLITE_PROTOCOL: return HF_UNAVAILABLE;
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_AUTH: return HF_DENIED;
    case SQLITE_CANTOPEN: return code_of_errno(sqlite3_system_errno(db), HF_UNAVAILABLE);
    case SQLITE_FULL:
    case SQLITE_TOOBIG: return HF_FULL;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
    case SQLITE_MISMATCH:
    case SQLITE_ERROR: return HF_CORRUPT;
    case SQLITE_NOMEM: return HF_NOMEM;
    default: return ambiguous;
    }
}

int hf__sq_failed(hf_store *st, int rc, const char *what, const char *key, int ambiguous,
                  hf_error *err)
{
    const struct hf__row_reader where = {"sqlite", what, key, st->empty};
    if (st->old && rc == SQLITE_ERROR) return hf__format_refused(&where, 1, err);
    if (st->gone && rc == SQLITE_ERROR)
        return hf_fail(err, HF_UNAVAILABLE, ENOENT,
                       "sqlite: %s '%s': no store is there: the database has no table %s", what,
                       key, st->table);
    int code = code_of(st->db, rc, ambiguous);
    int sys = sqlite3_system_errno(st->db);
    /* A later statement, for example a rollback, may have replaced the text of the error. */
    int same = (sqlite3_errcode(st->db) & 0xff) == (rc & 0xff);
    const char *why = same ? sqlite3_errmsg(st->db) : sqlite3_errstr(rc);
    int busy = (rc & 0xff) == SQLITE_BUSY;
    if (busy) why = "locked by others for all of the time given";
    int told = sys && ((rc & 0xff) == SQLITE_CANTOPEN || (rc & 0xff) == SQLITE_IOERR);
    if (busy) sys = EBUSY; /* the database is there: a wait goes on */
    return hf_fail(err, code, sys, "sqlite: %s '%s': %s%s%s", what, key, why, told ? ": " : "",
                   told ? strerror(sys) : "");
}

/* ---- transactions ---- */

int hf__sq_run(sqlite3_stmt *s)
{
    int rc = sqlite3_step(s);
    int reset = sqlite3_reset(s);
    return rc == SQLITE_DONE ? reset : rc;
}

int hf__sq_exec(sqlite3 *db, const char *sql) { return sqlite3_exec(db, sql, NULL, NULL, NULL); }

void hf__sq_roll_back(hf_store *st)
{
    if (!sqlite3_get_autocommit(st->db) && st->stmt[SQ_ROLLBACK]) hf__sq_run(st->stmt[SQ_ROLLBACK]);
    if (!sqlite3_get_autocommit(st->db)) hf__sq_exec(st->db, "ROLLBACK");
}

int hf__sq_commit(hf_store *st, const char *what, const char *key, hf_error *err)
{
    int sq = st->stmt[SQ_COMMIT] ? hf__sq_run(st->stmt[SQ_COMMIT]) : hf__sq_exec(st->db, "COMMIT");
    if (!sq) return 0;
    int open = !sqlite3_get_autocommit(st->db);
    int rc = hf__sq_failed(st, sq, what, key, HF_UNAVAILABLE, err);
    if (open) hf__sq_roll_back(st);
    if (open && sqlite3_get_autocommit(st->db)) return rc;
    if (err) err->code = HF_UNKNOWN;
    return HF_UNKNOWN;
}

/* ---- statements ---- */

void hf__sq_bind_text(sqlite3_stmt *s, int at, const char *text, size_t len)
{
    sqlite3_bind_text(s, at, text, (int)len, SQLITE_STATIC);
}

void hf__sq_drop_statements(hf_store *st)
{
    for (int i = 0; i < SQ_STATEMENTS; i++) {
        sqlite3_finalize(st->stmt[i]);
        st->stmt[i] = NULL;
    }
}

static void add_fields(sqlite3_str *to, const char *before, const char *format)
{
    for (int i = 0; i < HF_FIELDS; i++) {
        sqlite3_str_appendall(to, i ? ", " : before);
        sqlite3_str_appendf(to, format, hf__field[i].name, i + 2);
    }
}

/* Prepares the statement whose text is in `to`, and frees `to`. */
static int prepare(hf_store *st, sqlite3_stmt **ret, sqlite3_str *to)
{
    char *sql = sqlite3_str_finish(to);
    int rc = sql ? sqlite3_prepare_v3(st->db, sql, -1, SQLITE_PREPARE_PERSISTENT, ret, NULL)
                 : SQLITE_NOMEM;
    sqlite3_free(sql);
    return rc;
}

int hf__sq_prepare(hf_store *st)
{
    sqlite3_str *s[SQ_STATEMENTS];
    for (int i = 0; i < SQ_STATEMENTS; i++) s[i] = sqlite3_str_new(st->db);
    sqlite3_str_appendall(s[SQ_BEGIN], "BEGIN IMMEDIATE");
    sqlite3_str_appendall(s[SQ_COMMIT], "COMMIT");
    sqlite3_str_appendall(s[SQ_ROLLBACK], "ROLLBACK");
    add_fields(s[SQ_GET], "SELECT c.boot, c.offset_us, c.ceiling_us, ", "t.\"%s\"");
    sqlite3_str_appendf(s[SQ_GET], " FROM %s AS c LEFT JOIN %s AS t ON t.key = ?1", st->clock,
                        st->table);
    for (int i = 0; i < HF_FIELDS; i++) {
        const char *format = i == HF_FIELD_QUEUE ? "%s''" : "%s\"%s\"";
        sqlite3_str_appendf(s[SQ_HOLDER], format, i ? ", " : "SELECT ", hf__field[i].name);
    }
    sqlite3_str_appendf(s[SQ_HOLDER], ", instr(\"%s\", ?2) FROM %s WHERE key = ?1",
                        hf__field[HF_FIELD_QUEUE].name, st->table);
    sqlite3_str_appendf(s[SQ_INSERT], "INSERT INTO %s (key", st->table);
    add_fields(s[SQ_INSERT], ", ", "\"%s\"");
    sqlite3_str_appendall(s[SQ_INSERT], ") VALUES (?1");
    for (int i = 0; i < HF_FIELDS; i++) sqlite3_str_appendf(s[SQ_INSERT], ", ?%d", i + 2);
    sqlite3_str_appendall(s[SQ_INSERT], ")");
    sqlite3_str_appendf(s[SQ_UPDATE], "UPDATE %s", st->table);
    add_fields(s[SQ_UPDATE], " SET ", "\"%s\" = ?%d");
    sqlite3_str_appendall(s[SQ_UPDATE], " WHERE key = ?1");
    sqlite3_str_appendf(s[SQ_DELETE], "DELETE FROM %s WHERE key = ?1", st->table);
    add_fields(s[SQ_SCAN], "SELECT key, ", "\"%s\"");
    sqlite3_str_appendf(s[SQ_SCAN], " FROM %s WHERE key >= ?1 AND key > ?2 ORDER BY key LIMIT %d",
                        st->table, SQ_PAGE_ROWS);
    sqlite3_str_appendf(s[SQ_CEILING], "UPDATE %s SET ceiling_us = max(ceiling_us + 1, ?1)",
                        st->clock);
    int rc = SQLITE_OK;
    for (int i = 0; i < SQ_STATEMENTS; i++) {
        if (rc) {
            sqlite3_free(sqlite3_str_finish(s[i]));
            continue;
        }
        rc = prepare(st, &st->stmt[i], s[i]);
    }
    return rc;
}

/* ---- the clock ---- */

int64_t hf__sq_now_us(hf_store *st)
{
    st->last_us = max64(st->last_us, hf__local_us() + st->offset_us);
    return st->last_us;
}

int hf__sq_ask(hf_store *st, const char *format, const char *name, int64_t *ret)
{
    char *sql = sqlite3_mprintf(format, name);
    sqlite3_stmt *s = NULL;
    int rc = sql ? sqlite3_prepare_v2(st->db, sql, -1, &s, NULL) : SQLITE_NOMEM;
    if (!rc) {
        rc = sqlite3_step(s);
        if (rc == SQLITE_ROW) *ret = sqlite3_column_int64(s, 0);
        if (rc == SQLITE_ROW || rc == SQLITE_DONE) rc = SQLITE_OK;
    }
    sqlite3_finalize(s);
    sqlite3_free(sql);
    return rc;
}

/* Finds out whether this boot's clock is there. Returns SQLite's code. */
static int has_clock(hf_store *st, int64_t *ret)
{
    char *known = sqlite3_mprintf("SELECT count(*) FROM %%s WHERE boot = %Q", st->boot.id);
    int rc = known ? hf__sq_ask(st, known, st->clock, ret) : SQLITE_NOMEM;
    sqlite3_free(known);
    return rc;
}

/* Reads the offset of this boot's clock, or makes it: see store.h. The caller has begun a
   transaction. */
static int set_clock(hf_store *st)
{
    int64_t there = 0, ceiling = 0, highest = 0, local = hf__local_us();
    int rc = has_clock(st, &there);
    if (!rc) rc = hf__sq_ask(st, "SELECT max(ceiling_us) FROM %s", st->clock, &ceiling);
    if (!rc && there) rc = hf__sq_ask(st, "SELECT offset_us FROM %s", st->clock, &st->offset_us);
    if (rc || there) {
        st->ceiling_us = ceiling;
        return rc;
    }
    rc = hf__sq_ask(st, "SELECT max(rev) FROM %s", st->table, &highest);
    int64_t start = max64(max64(hf__day_us(), ceiling), max64(highest, st->last_us)) + 1;
    st->offset_us = start - local;
    st->ceiling_us = start + CEILING_STEP_US;
    char *sql = sqlite3_mprintf("DELETE FROM %s; INSERT INTO %s (one, boot, timens, offset_us, "
                                "ceiling_us) VALUES (1, %Q, %lld, %lld, %lld)",
                                st->clock, st->clock, st->boot.id, (long long)st->boot.timens,
                                (long long)st->offset_us, (long long)st->ceiling_us);
    if (!rc) rc = sql ? hf__sq_exec(st->db, sql) : SQLITE_NOMEM;
    sqlite3_free(sql);
    return rc;
}

/* ---- the tables ---- */

/* Begins the transaction that makes the tables. While the database is locked, looks whether another
   client has made them: otherwise each of a crowd of newcomers would wait for its turn to write
   nothing. Returns SQLite's code; SQLITE_DONE: they are there, and the statements are prepared. */
static int begin_making(hf_store *st)
{
    enum hf__sq_if_busy how = st->if_busy;
    int64_t made = 0;
    int sq = hf__sq_exec(st->db, "PRAGMA synchronous = FULL");
    for (int nth = 0; !sq; nth++) {
        st->if_busy = SQ_FAILS;
        st->may_wait = 0;
        sq = hf__sq_exec(st->db, "BEGIN IMMEDIATE");
        int locked = (sq & 0xff) == SQLITE_BUSY && st->may_wait;
        if (locked && !has_clock(st, &made) && made && !hf__sq_prepare(st)) sq = SQLITE_DONE;
        if (sq != SQLITE_DONE) hf__sq_drop_statements(st);
        st->if_busy = how;
        if (!locked || sq == SQLITE_DONE || !hf__sq_wait(st, how, nth)) break;
        sq = SQLITE_OK;
    }
    return sq;
}

int hf__sq_make(hf_store *st, int writes)
{
    int64_t any;
    int sq = SQLITE_OK;
    st->old = 0;
    if (st->existing && !writes) sq = hf__sq_ask(st, "SELECT 1 FROM %s LIMIT 1", st->table, &any);
    st->gone = sq == SQLITE_ERROR; /* a statement can't be prepared if there is no such table */
    if (sq) return sq;
    sqlite3_str *s = sqlite3_str_new(st->db);
    sqlite3_str_appendf(s, "CREATE TABLE IF NOT EXISTS %s (key TEXT NOT NULL PRIMARY KEY",
                        st->table);
    for (int i = 0; i < HF_FIELDS; i++) {
        static const char *const types[] = {
            [HF_NUMBER] = "INTEGER NOT NULL",
            [HF_TEXT] = "TEXT NOT NULL",
            [HF_JSON] = "TEXT NOT NULL DEFAULT ''",
        };
        sqlite3_str_appendf(s, ", \"%s\" %s", hf__field[i].name, types[hf__field[i].kind]);
    }
    sqlite3_str_appendf(s,
                        "); CREATE TABLE IF NOT EXISTS %s (one INTEGER PRIMARY KEY CHECK (one = "
                        "1), boot TEXT NOT NULL, timens INTEGER NOT NULL, offset_us INTEGER NOT "
                        "NULL, ceiling_us INTEGER NOT NULL)",
                        st->clock);
    char *sql = sqlite3_str_finish(s);
    hf__sq_drop_statements(st);
    int rc = sql ? begin_making(st) : SQLITE_NOMEM, made = rc == SQLITE_DONE;
    if (!rc) rc = hf__sq_exec(st->db, sql);
    if (!rc) rc = set_clock(st);
    if (!rc) rc = hf__sq_exec(st->db, "COMMIT");
    if (rc) hf__sq_roll_back(st);
    hf__sq_exec(st->db, "PRAGMA synchronous = NORMAL");
    sqlite3_free(sql);
    if (made) return SQLITE_OK;
    if (!rc) rc = hf__sq_prepare(st);
    /* Only format 1 has a column `granted`. */
    if (rc == SQLITE_ERROR)
        st->old = !hf__sq_ask(st, "SELECT granted FROM %s LIMIT 1", st->table, &any);
    return rc;
}

int hf__sq_raise_ceiling(hf_store *st, int64_t to_us)
{
    int rc = hf__sq_exec(st->db, "PRAGMA synchronous = FULL");
    sqlite3_bind_int64(st->stmt[SQ_CEILING], 1, to_us);
    if (!rc) rc = hf__sq_run(st->stmt[SQ_CEILING]);
    hf__sq_exec(st->db, "PRAGMA synchronous = NORMAL");
    if (!rc) st->ceiling_us = max64(st->ceiling_us, to_us);
    return rc;
}

int hf__sq_make_room(hf_store *st, uint64_t rev)
{
    int64_t highest = max64((int64_t)rev, hf__sq_now_us(st));
    if (highest + CEILING_ROOM_US < st->ceiling_us) return SQLITE_OK;
    return hf__sq_raise_ceiling(st, highest + CEILING_STEP_US);
}
