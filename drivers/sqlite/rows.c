/*
 * rows.c - sqlite: the operations on rows. See store.h.
 */
#include "os.h"
#include "store.h"

#include <string.h>

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

/* Makes the first step of the statement SQ_GET for the key. Returns SQLITE_ROW: its columns are the
   clock's, then the row's (NULLs if there is none); or an error of SQLite's. If tables are missing,
   because another program has dropped them, they are made again, once. */
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
        if (within_transaction) hf__sq_roll_back(st);
        rc = hf__sq_make(st, within_transaction);
        if (!rc && within_transaction) rc = hf__sq_run(st->stmt[SQ_BEGIN]);
        if (rc) return rc;
    }
}

/* Reads the clock before the first write. Otherwise hf__sq_make_room would raise a ceiling that is
   high enough, and each new client would begin with a write that waits for the disk while the
   database is locked. Returns SQLite's code. */
static int learn_ceiling(hf_store *st, const hf_rowkey *key)
{
    int sq = find(st, key, 0);
    if (st->stmt[SQ_GET]) sqlite3_reset(st->stmt[SQ_GET]);
    return sq == SQLITE_ROW ? SQLITE_OK : sq;
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
    (void)ret_code; /* not set: a read may be repeated */
    hf_row_clear(r->row);
    hf__sq_roll_back(st);
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
    int done = hf__sq_run(s);
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
    int locked; /* 1: an acquire found the database locked, and nothing was done */
};

/* Returns 1 if the row that SQ_GET has found is the one that a replace has seen. A stored rev of 0
   is damage, not the absence of a row. */
static int is_seen(sqlite3_stmt *s, const struct write *w)
{
    int there = has_row(s);
    uint64_t rev = there ? (uint64_t)sqlite3_column_int64(s, 3 + HF_FIELD_REV) : 0;
    return !w->party && rev == w->seen && there == (w->seen != 0);
}

/* Begins the transaction. While the database is locked, a replace reads the row before it asks
   again. If the row was replaced, the replace ends without its turn: otherwise every waiter that
   has to write when a lease ends would keep the others from writing, to find a conflict. An acquire
   is a newcomer, and ends at once, with w->locked: hf__sq_acquire repeats it.
   Returns SQLite's code; SQLITE_ROW: the row was replaced, and SQ_GET has found it. */
static int begin(hf_store *st, struct write *w)
{
    int sq;
    st->if_busy = SQ_FAILS;
    for (int nth = 0;; nth++) {
        st->may_wait = 0;
        sq = hf__sq_run(st->stmt[SQ_BEGIN]);
        if ((sq & 0xff) != SQLITE_BUSY || !st->may_wait) break;
        if (w->party) {
            w->locked = 1;
            break;
        }
        int found = find(st, w->key, 0);
        if (found == SQLITE_ROW && !is_seen(st->stmt[SQ_GET], w)) {
            sq = found;
            break;
        }
        if (st->stmt[SQ_GET]) sqlite3_reset(st->stmt[SQ_GET]);
        if (!hf__sq_wait(st, SQ_RETRIES, nth)) break;
    }
    st->if_busy = SQ_RETRIES;
    return sq;
}

/* Compares and writes, between BEGIN and COMMIT. SQ_GET has found the row, or that there is none.
   Returns 0: written; HF_CONFLICT: nothing was written; or an error. */
static int decide(hf_store *st, struct write *w, hf_error *err)
{
    sqlite3_stmt *s = st->stmt[SQ_GET];
    const hf_rowkey *key = w->key;
    int there = has_row(s), same = is_seen(s, w), rc = 0;
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
    w->locked = 0;
    int rc = hf__sq_files_sound(st, what, key, err);
    if (rc) return rc;
    hf__sq_roll_back(st);
    int sq = st->stmt[SQ_BEGIN] ? SQLITE_OK : hf__sq_make(st, 1);
    if (!sq && !st->ceiling_us) sq = learn_ceiling(st, w->key);
    if (!sq) sq = hf__sq_make_room(st, w->row ? w->row->rev : 0);
    if (sq == SQLITE_ERROR) sq = hf__sq_make(st, 1);
    if (!sq) sq = begin(st, w);
    if (!sq) hf__sq_files_begin(st);
    if (!sq) sq = find(st, w->key, 1);
    if (sq != SQLITE_ROW)
        rc = hf__sq_failed(st, sq, what, key, HF_UNAVAILABLE, err);
    else
        rc = decide(st, w, err);
    if (!rc) rc = still_held(st, what, key, err);
    if (!rc) *ret_code = HF_UNKNOWN;
    if (!rc) rc = hf__sq_commit(st, what, key, err);
    hf__sq_roll_back(st);
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
    int64_t since_us = hf__local_us();
    int rc;
    do rc = hf__sq_attempt(st, "acquire", key->text, write_op, &w, err);
    while (rc == HF_UNAVAILABLE && w.locked && hf__sq_pause(st, since_us, 1));
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
        rc = hf__sq_run(s);
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
    sq = hf__sq_exec(st->db, "BEGIN IMMEDIATE");
    (void)ret_code; /* not set: entering may be repeated */
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
    if (!rc) rc = hf__sq_commit(st, "enter", key, err);
    hf__sq_roll_back(st);
    return rc;
}

/* Raises the fence: inserts the key and the token into the guard's view, in a transaction of its
   own, which has ended when this returns. */
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

/* Syncs by a write that waits for the disk. All writes go through one log (or one journal), so all
   earlier writes are on disk, too, unless the log was replaced. After a failure every later sync
   fails: Linux marks pages whose writing failed as clean, so a second try would prove nothing. */
static int sync_op(hf_store *st, void *arg, int *ret_code, hf_error *err)
{
    const hf_rowkey *key = arg;
    int rc = 0;
    *ret_code = HF_UNAVAILABLE;
    if (hf__sq_files_changed(st, &st->names_seen))
        return HF_UNAVAILABLE; /* hf__sq_attempt finds and reports the same */
    int sq = st->sync_failed ? SQLITE_IOERR : st->stmt[SQ_CEILING] ? SQLITE_OK : hf__sq_make(st, 1);
    if (!sq) sq = hf__sq_raise_ceiling(st, 0);
    rc = sq ? hf__sq_failed(st, sq, "sync", key->text, HF_UNAVAILABLE, err) : 0;
    if ((sq & 0xff) == SQLITE_IOERR) st->sync_failed = 1;
    return rc;
}

int hf__sq_sync(hf_store *st, const hf_rowkey *key, hf_error *err)
{
    hf_rowkey k = *key;
    return hf__sq_attempt(st, "sync", key->text, sync_op, &k, err);
}
