/*
 * rows.c - sqlite: statements, the clock, and the operations on rows. See store.h.
 *
 * Contents: statements and errors; the clock; rows.
 */
#include "os.h"
#include "store.h"

#include <errno.h>
#include <string.h>

static const int64_t CEILING_STEP_US = INT64_C(600) * 1000000,
                     CEILING_ROOM_US = INT64_C(60) * 1000000;

static int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }

/* ---- statements and errors ---- */

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

/* Returns the code for a result of SQLite's. `ambiguous`: for an error of the disk, after which the
   write may have been done. */
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
    if ((rc & 0xff) == SQLITE_BUSY) why = "locked by others for all of the time given";
    int told = sys && ((rc & 0xff) == SQLITE_CANTOPEN || (rc & 0xff) == SQLITE_IOERR);
    return hf_fail(err, code, sys, "sqlite: %s '%s': %s%s%s", what, key, why, told ? ": " : "",
                   told ? strerror(sys) : "");
}

/* Runs a statement that has no rows to show. */
static int run(sqlite3_stmt *s)
{
    int rc = sqlite3_step(s);
    int reset = sqlite3_reset(s);
    return rc == SQLITE_DONE ? reset : rc;
}

static int exec(sqlite3 *db, const char *sql) { return sqlite3_exec(db, sql, NULL, NULL, NULL); }

/* Ends a transaction if there is one. A transaction that stays open, for want of memory, keeps the
   others from writing, and this connection from seeing what they wrote: the next operation tries
   again. */
static void roll_back(hf_store *st)
{
    if (!sqlite3_get_autocommit(st->db) && st->stmt[SQ_ROLLBACK]) run(st->stmt[SQ_ROLLBACK]);
    if (!sqlite3_get_autocommit(st->db)) exec(st->db, "ROLLBACK");
}

/*
 * Commits. After an error sqlite3_get_autocommit() alone says what became of the transaction. It is
 * still open: COMMIT didn't begin, or waited for others in vain, and a ROLLBACK leaves nothing. It
 * is over: SQLite has rolled it back, or was already through with it (the journal is gone, but its
 * removal failed); and what a WAL was given can come back when it is recovered.
 * Returns:
 *   0           committed
 *   HF_UNKNOWN  it may be committed, or may be later
 *   a code      nothing was, nor will be
 */
static int commit(hf_store *st, const char *what, const char *key, hf_error *err)
{
    int sq = st->stmt[SQ_COMMIT] ? run(st->stmt[SQ_COMMIT]) : exec(st->db, "COMMIT");
    if (!sq) return 0;
    int open = !sqlite3_get_autocommit(st->db);
    int rc = hf__sq_failed(st, sq, what, key, HF_UNAVAILABLE, err);
    if (open) roll_back(st);
    if (open && sqlite3_get_autocommit(st->db)) return rc;
    if (err) err->code = HF_UNKNOWN;
    return HF_UNKNOWN;
}

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

/* Prepares the statement whose text is in `to`, and frees the text. Returns a result of SQLite's.
 */
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

/* Returns the store's clock. It never goes back in this process, whatever happens to the database.
   Under the mutex. */
int64_t hf__sq_now_us(hf_store *st)
{
    st->last_us = max64(st->last_us, hf__local_us() + st->offset_us);
    return st->last_us;
}

/* Reads one number by a query without parameters. If there is none, *ret stays as it is. */
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

/* Reads the clock of this boot, or makes it. Called within a transaction. */
static int set_clock(hf_store *st)
{
    int64_t there = 0, ceiling = 0, highest = 0, local = hf__local_us();
    char *known = sqlite3_mprintf("SELECT count(*) FROM %%s WHERE boot = %Q", st->boot.id);
    int rc = known ? hf__sq_ask(st, known, st->clock, &there) : SQLITE_NOMEM;
    sqlite3_free(known);
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
    if (!rc) rc = sql ? exec(st->db, sql) : SQLITE_NOMEM;
    sqlite3_free(sql);
    return rc;
}

/* Makes what is missing: the tables, the clock of this boot. All of it is on disk when it
   returns. */
int hf__sq_make(hf_store *st, int writes)
{
    int64_t any;
    int sq = SQLITE_OK;
    st->old = 0;
    if (st->existing && !writes) sq = hf__sq_ask(st, "SELECT 1 FROM %s LIMIT 1", st->table, &any);
    st->gone = sq == SQLITE_ERROR; /* the statement can't be prepared: there is no such table */
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
    int rc = sql ? exec(st->db, "PRAGMA synchronous = FULL; BEGIN IMMEDIATE") : SQLITE_NOMEM;
    if (!rc) rc = exec(st->db, sql);
    if (!rc) rc = set_clock(st);
    if (!rc) rc = exec(st->db, "COMMIT");
    if (rc) roll_back(st);
    exec(st->db, "PRAGMA synchronous = NORMAL");
    sqlite3_free(sql);
    if (!rc) rc = hf__sq_prepare(st);
    /* A column that only format 1 has. */
    if (rc == SQLITE_ERROR)
        st->old = !hf__sq_ask(st, "SELECT granted FROM %s LIMIT 1", st->table, &any);
    return rc;
}

/* Writes, and waits for the disk. */
static int write_ceiling(hf_store *st, int64_t to_us)
{
    int rc = exec(st->db, "PRAGMA synchronous = FULL");
    sqlite3_bind_int64(st->stmt[SQ_CEILING], 1, to_us);
    if (!rc) rc = run(st->stmt[SQ_CEILING]);
    exec(st->db, "PRAGMA synchronous = NORMAL");
    if (!rc) st->ceiling_us = max64(st->ceiling_us, to_us);
    return rc;
}

/* Raises the ceiling of revs on disk before a rev passes it. */
static int make_room(hf_store *st, uint64_t rev)
{
    int64_t highest = max64((int64_t)rev, hf__sq_now_us(st));
    if (highest + CEILING_ROOM_US < st->ceiling_us) return SQLITE_OK;
    return write_ceiling(st, highest + CEILING_STEP_US);
}

/* ---- rows ---- */

/* Reads the fields from column `at` on. Returns 0 or HF_NOMEM. */
static int read_columns(sqlite3_stmt *s, int at, struct hf__fields *f)
{
    for (int i = 0; i < HF_FIELDS; i++) {
        int is_number = hf__field[i].kind == HF_NUMBER;
        if (sqlite3_column_type(s, at + i) != (is_number ? SQLITE_INTEGER : SQLITE_TEXT)) {
            hf__got_other(f, i);
        } else if (is_number) {
            hf__got_number(f, i, sqlite3_column_int64(s, at + i));
        } else {
            const char *text = (const char *)sqlite3_column_text(s, at + i);
            if (!text) return HF_NOMEM;
            hf__got_text(f, i, text, (size_t)sqlite3_column_bytes(s, at + i));
        }
    }
    return 0;
}

int hf__sq_decode(const hf_store *st, sqlite3_stmt *s, int at, hf_row *row, const char *what,
                  const char *key, hf_error *err)
{
    const struct hf__row_reader where = {"sqlite", what, key, st->empty};
    struct hf__fields f = HF_NO_FIELDS;
    const char *why = "";
    int rc = read_columns(s, at, &f);
    if (!rc) rc = hf__read_fields(&f, HF_JSON_TEXT, row, &why);
    if (rc) rc = hf__fields_refused(&where, &f, rc, why, err);
    hf__free_fields(&f);
    return rc;
}

/* Makes the first step of GET for the key. Returns SQLITE_ROW, with the row (or nulls) after
   the clock; or the error. Missing tables are made again, once: another program may have
   dropped them. */
static int find(hf_store *st, const hf_rowkey *key, int within_transaction)
{
    for (int again = 0;; again++) {
        sqlite3_stmt *s = st->stmt[SQ_GET];
        int rc = s ? SQLITE_OK : SQLITE_ERROR;
        if (s) {
            hf__sq_bind_text(s, 1, key->text, key->len);
            rc = sqlite3_step(s);
        }
        const char *boot = rc == SQLITE_ROW ? (const char *)sqlite3_column_text(s, 0) : "";
        if (!boot) rc = SQLITE_NOMEM;
        if (rc == SQLITE_ROW && !strcmp(boot, st->boot.id)) {
            st->offset_us = sqlite3_column_int64(s, 1);
            st->ceiling_us = sqlite3_column_int64(s, 2);
            return rc;
        }
        int missing = rc == SQLITE_ROW || rc == SQLITE_DONE || rc == SQLITE_ERROR;
        if (s) sqlite3_reset(s);
        if (!missing || again) return rc == SQLITE_ROW || rc == SQLITE_DONE ? SQLITE_ERROR : rc;
        if (within_transaction) roll_back(st);
        rc = hf__sq_make(st, within_transaction);
        if (!rc && within_transaction) rc = run(st->stmt[SQ_BEGIN]);
        if (rc) return rc;
    }
}

static int has_row(sqlite3_stmt *s) { return sqlite3_column_type(s, 3) != SQLITE_NULL; }

struct reading {
    const hf_rowkey *key;
    hf_row *row;
    int64_t clock_us;
};

static int read_op(hf_store *st, void *arg, int *ret_code, hf_error *err)
{
    struct reading *r = arg;
    const char *key = r->key->text;
    int rc = 0;
    (void)ret_code; /* may always be read again */
    hf_row_clear(r->row);
    roll_back(st);
    int found = find(st, r->key, 0);
    if (found != SQLITE_ROW && !hf__sq_no_rows(st, found))
        rc = hf__sq_failed(st, found, "get", key, HF_UNAVAILABLE, err);
    else if (found == SQLITE_ROW && has_row(st->stmt[SQ_GET]))
        rc = hf__sq_decode(st, st->stmt[SQ_GET], 3, r->row, "get", key, err);
    if (st->stmt[SQ_GET]) sqlite3_reset(st->stmt[SQ_GET]);
    if (!rc) r->clock_us = hf__sq_now_us(st);
    return rc;
}

int hf__sq_get(hf_store *st, const hf_rowkey *key, hf_row *row, int64_t *ret_clock_us,
               hf_error *err)
{
    struct reading r = {key, row, *ret_clock_us};
    hf_row_clear(row);
    int rc = hf__sq_attempt(st, "get", key->text, read_op, &r, err);
    if (rc) hf_row_clear(row);
    *ret_clock_us = r.clock_us;
    return rc;
}

static int write_row(hf_store *st, int there, const hf_rowkey *key, const hf_row *row,
                     hf_error *err)
{
    struct hf__fields f = HF_NO_FIELDS;
    const char *why;
    sqlite3_stmt *s = st->stmt[!row ? SQ_DELETE : there ? SQ_UPDATE : SQ_INSERT];
    int rc = row ? hf__put_fields(row, HF_JSON_TEXT, &f, &why) : 0;
    if (rc) {
        hf__free_fields(&f);
        return hf_fail(err, rc, 0, "sqlite: replace '%s': %s", key->text, why);
    }
    hf__sq_bind_text(s, 1, key->text, key->len);
    for (int i = 0; row && i < HF_FIELDS; i++) {
        if (hf__field[i].kind == HF_NUMBER)
            sqlite3_bind_int64(s, i + 2, f.n[i]);
        else
            hf__sq_bind_text(s, i + 2, f.text[i], f.len[i]);
    }
    int done = run(s);
    sqlite3_clear_bindings(s);
    hf__free_fields(&f);
    return done ? hf__sq_failed(st, done, "replace", key->text, HF_UNAVAILABLE, err) : 0;
}

/* Checks before COMMIT that the connection's locks are still held. */
static int still_held(hf_store *st, const char *what, const char *key, hf_error *err)
{
    if (hf__sq_files_held(st)) return 0;
    return hf_fail(err, HF_UNAVAILABLE, 0,
                   "sqlite: %s '%s': this process's locks on the database were dropped within the "
                   "transaction, by another copy of SQLite or a program that copied the database",
                   what, key);
}

struct write {
    const hf_rowkey *key;
    uint64_t seen;
    const hf_row *row;     /* of a replace */
    const hf_party *party; /* the party of an acquire; NULL: this is a replace */
    uint32_t may_queue;
    hf_row *cur;
    int64_t clock_us;
};

/* Compares and writes, between BEGIN and COMMIT. Returns 0: written; HF_CONFLICT: nothing was
   written. */
static int decide(hf_store *st, struct write *w, hf_error *err)
{
    sqlite3_stmt *s = st->stmt[SQ_GET];
    const hf_rowkey *key = w->key;
    int there = has_row(s), rc = 0;
    uint64_t rev = there ? (uint64_t)sqlite3_column_int64(s, 3 + HF_FIELD_REV) : 0;
    /* A row of rev 0 is damaged, which isn't the same as no row. */
    int same = !w->party && rev == w->seen && there == (w->seen != 0);
    w->clock_us = hf__sq_now_us(st);
    if (w->cur && !same) {
        hf_row_clear(w->cur);
        if (there)
            rc = hf__sq_decode(st, s, 3, w->cur, w->party ? "acquire" : "replace", key->text, err);
    }
    sqlite3_reset(s);
    if (rc) return rc;
    if (!w->party) return same ? write_row(st, there, key, w->row, err) : HF_CONFLICT;
    rc = hf_row_acquire(w->cur, w->party, w->may_queue, w->clock_us);
    if (rc == HF_NOMEM)
        return hf_fail(err, rc, 0, "sqlite: acquire '%s': out of memory", key->text);
    return rc ? rc : write_row(st, there, key, w->cur, err);
}

static int write_op(hf_store *st, void *arg, int *ret_code, hf_error *err)
{
    struct write *w = arg;
    const char *what = w->party ? "acquire" : "replace", *key = w->key->text;
    int rc = hf__sq_files_sound(st, what, key, err);
    if (rc) return rc;
    roll_back(st);
    int sq = st->stmt[SQ_BEGIN] ? SQLITE_OK : hf__sq_make(st, 1);
    if (!sq) sq = make_room(st, w->row ? w->row->rev : 0);
    if (sq == SQLITE_ERROR) sq = hf__sq_make(st, 1);
    if (!sq) sq = run(st->stmt[SQ_BEGIN]);
    if (!sq) hf__sq_files_begin(st);
    if (!sq && (sq = find(st, w->key, 1)) == SQLITE_ROW) sq = SQLITE_OK;
    if (sq)
        rc = hf__sq_failed(st, sq, what, key, HF_UNAVAILABLE, err);
    else
        rc = decide(st, w, err);
    if (!rc) rc = still_held(st, what, key, err);
    if (!rc) *ret_code = HF_UNKNOWN;
    if (!rc) rc = commit(st, what, key, err);
    roll_back(st);
    return rc;
}

int hf__sq_replace(hf_store *st, const hf_rowkey *key, uint64_t seen, const hf_row *row,
                   hf_row *cur, int64_t *ret_clock_us, hf_error *err)
{
    struct write w = {.key = key, .seen = seen, .row = row, .cur = cur};
    int rc = hf__sq_attempt(st, "replace", key->text, write_op, &w, err);
    *ret_clock_us = w.clock_us;
    return rc;
}

int hf__sq_acquire(hf_store *st, const hf_rowkey *key, const hf_party *party, uint32_t may_queue,
                   hf_row *cur, int64_t *ret_clock_us, hf_error *err)
{
    struct write w = {.key = key, .party = party, .may_queue = may_queue, .cur = cur};
    int rc = hf__sq_attempt(st, "acquire", key->text, write_op, &w, err);
    *ret_clock_us = w.clock_us;
    return rc;
}

/* Runs one statement with the key and the token. */
static int run_once(hf_store *st, const char *sql, const hf_rowkey *key, uint64_t token)
{
    sqlite3_stmt *s = NULL;
    int rc = sqlite3_prepare_v2(st->db, sql, -1, &s, NULL);
    if (!rc) {
        hf__sq_bind_text(s, 1, key->text, key->len);
        if (sqlite3_bind_parameter_count(s) > 1) sqlite3_bind_int64(s, 2, (int64_t)token);
        rc = run(s);
    }
    sqlite3_finalize(s);
    return rc;
}

static int no_guard(hf_store *st)
{
    int64_t n = 0;
    return !hf__sq_ask(st, "SELECT count(*) FROM sqlite_master WHERE name = %Q", "holdfast_enter",
                       &n) &&
           !n;
}

struct entering {
    const hf_rowkey *key;
    uint64_t token;
};

static int enter_op(hf_store *st, void *arg, int *ret_code, hf_error *err)
{
    const struct entering *e = arg;
    const char *key = e->key->text;
    int sq, rc = hf__sq_files_sound(st, "enter", key, err);
    if (rc) return rc;
    sq = exec(st->db, "BEGIN IMMEDIATE");
    (void)ret_code; /* entering again does no harm */
    if (!sq) hf__sq_files_begin(st);
    if (!sq)
        sq = run_once(st, "INSERT INTO holdfast_enter (key, token) VALUES (?1, ?2)", e->key,
                      e->token);
    if (!sq) sq = run_once(st, "DELETE FROM holdfast_enter WHERE key = ?1", e->key, e->token);
    if (sq == SQLITE_ERROR && no_guard(st))
        rc = hf_fail(err, HF_UNSUPPORTED, 0,
                     "sqlite: enter '%s': no guard is there: see holdfast guard sqlite", key);
    else if ((sq & 0xff) == SQLITE_CONSTRAINT)
        rc = hf_fail(err, HF_LOST, 0, "sqlite: enter '%s': %s", key, sqlite3_errmsg(st->db));
    else if (sq)
        rc = hf__sq_failed(st, sq, "enter", key, HF_UNKNOWN, err);
    if (!rc) rc = still_held(st, "enter", key, err);
    if (!rc) rc = commit(st, "enter", key, err);
    roll_back(st);
    return rc;
}

/* Inserts into the guard's view, in a transaction of its own, which has ended when this returns. */
int hf__sq_enter(hf_store *st, const hf_rowkey *key, uint64_t token, int alone, const char *where,
                 hf_error *err)
{
    struct entering e = {key, token};
    (void)alone; /* the guard reads all holders, so any of them may enter */
    if (where)
        return hf_fail(err, HF_INVALID, 0,
                       "sqlite: enter '%s': the fence is named by the key alone: leave `where` out",
                       key->text);
    return hf__sq_attempt(st, "enter", key->text, enter_op, &e, err);
}

/* Syncs by a write that waits for the disk. All writes go through one log (or one journal), so
   everything before it is on disk, too, unless the log has been replaced. Linux marks pages clean
   whose writing failed, so a second try proves nothing: after a failure no marker is trusted any
   more. */
static int sync_op(hf_store *st, void *arg, int *ret_code, hf_error *err)
{
    const hf_rowkey *key = arg;
    int rc = 0;
    *ret_code = HF_UNAVAILABLE;
    if (hf__sq_files_changed(st, &st->names_seen))
        return HF_UNAVAILABLE; /* hf__sq_attempt says it */
    int sq = st->sync_failed ? SQLITE_IOERR : st->stmt[SQ_CEILING] ? SQLITE_OK : hf__sq_make(st, 1);
    if (!sq) sq = write_ceiling(st, 0);
    rc = sq ? hf__sq_failed(st, sq, "sync", key->text, HF_UNAVAILABLE, err) : 0;
    if ((sq & 0xff) == SQLITE_IOERR) st->sync_failed = 1;
    return rc;
}

int hf__sq_sync(hf_store *st, const hf_rowkey *key, hf_error *err)
{
    hf_rowkey k = *key;
    return hf__sq_attempt(st, "sync", key->text, sync_op, &k, err);
}
