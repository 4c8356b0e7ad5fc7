/*
 * scratch.c - sqlite: a database that `doctor` may fill: beside the store's, with its settings.
 */
#include "os.h"
#include "store.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *const settings[] = {"page_size", "auto_vacuum", "journal_mode"};
enum { SETTINGS = sizeof settings / sizeof *settings, BUSY_MS = 5000 };

/* Writes the settings of the database as statements that give them to another database. Returns 0
   or a result of SQLite's. */
static int read_settings(const char *path, char *to, size_t cap)
{
    sqlite3 *db = NULL;
    sqlite3_stmt *s = NULL;
    size_t n = 0;
    int sq = sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
    if (!sq) sqlite3_busy_timeout(db, BUSY_MS); /* such as while the last user closes the log */
    for (int i = 0; i < SETTINGS && !sq; i++) {
        char *sql = sqlite3_mprintf("PRAGMA %s", settings[i]);
        sq = sql ? sqlite3_prepare_v2(db, sql, -1, &s, NULL) : SQLITE_NOMEM;
        if (!sq) sq = sqlite3_step(s);
        if (sq == SQLITE_ROW && n < cap)
            n += (size_t)snprintf(to + n, cap - n, "PRAGMA %s = %s;", settings[i],
                                  (const char *)sqlite3_column_text(s, 0));
        if (sq == SQLITE_ROW || sq == SQLITE_DONE) sq = SQLITE_OK;
        sqlite3_finalize(s);
        s = NULL;
        sqlite3_free(sql);
    }
    sqlite3_close(db);
    return sq ? sq : n < cap ? 0 : SQLITE_TOOBIG;
}

static int make_alike(const char *path, const char *sql)
{
    sqlite3 *db = NULL;
    int sq = sqlite3_open_v2(
        path, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL);
    if (!sq) sq = sqlite3_exec(db, sql, NULL, NULL, NULL);
    /* With a table in it, the driver takes the database for another program's, and doesn't change
       its journal mode. */
    if (!sq) sq = sqlite3_exec(db, "CREATE TABLE doctor (n INTEGER)", NULL, NULL, NULL);
    sqlite3_close(db);
    return sq;
}

int hf__sq_scratch(const hf_url *url, hf_url *ret, hf_error *err)
{
    char path[sizeof url->path + 40], dir[sizeof url->path], sql[300] = "";
    uint64_t r;
    snprintf(dir, sizeof dir, "%s", url->path);
    char *slash = strrchr(dir, '/');
    if (slash) slash[slash == dir] = 0;
    if (access(slash ? dir : ".", W_OK | X_OK))
        return hf_fail(err, HF_DENIED, errno, "sqlite: make a database in '%s': %s", dir,
                       strerror(errno));
    hf__random(&r, sizeof r);
    snprintf(path, sizeof path, "%s.doctor-%016llx", url->path, (unsigned long long)r);
    *ret = *url;
    ret->existing = 0;
    int sq, rc = hf_url_set_path(ret, path, err);
    if (rc) return rc;
    sq = read_settings(url->path, sql, sizeof sql);
    if (!sq) sq = make_alike(path, sql);
    if (sq) hf__sq_discard(ret);
    return sq ? hf_fail(err, HF_UNAVAILABLE, 0, "sqlite: make '%s': %s", path, sqlite3_errstr(sq))
              : 0;
}

void hf__sq_discard(const hf_url *url)
{
    static const char *const tails[] = {"-journal", "-wal", "-shm", ""};
    char path[sizeof url->path + 16];
    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++) {
        snprintf(path, sizeof path, "%s%s", url->path, tails[i]);
        unlink(path);
    }
}
