/*
 * session.c - postgres: after the login, checks that the server can be a store, and finds out where
 * the table is. See link.h.
 */
#include "link.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Sends a statement without values. Returns 0 or the code; `why` is the reason, without "postgres:
   connect ...". */
static int ask(const struct hf__pg_how *how, struct hf__pg_link *link, const char *sql,
               PGresult **ret, char why[HF_KIT_WHY])
{
    static const char before[] = "postgres: connect '': ";
    char state[6];
    hf_error err = {0, 0, ""};
    int rc = hf__pg_ask(how, link, HF_PG_ONCE(sql), 0, NULL, HF_UNAVAILABLE, ret, state, "connect",
                        "", &err);
    if (!rc) return 0;
    const char *bare = err.text;
    if (!strncmp(bare, before, sizeof before - 1)) bare += sizeof before - 1;
    snprintf(why, HF_KIT_WHY, "%.*s", HF_KIT_WHY - 1, bare);
    return rc;
}

/* Two columns: the database, and the schema of the table; "": there is no table. */
#define WHERE                                                                                      \
    "current_database(), coalesce((SELECT n.nspname FROM pg_catalog.pg_class AS c "                \
    "JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace WHERE c.oid = to_regclass(%s)), " \
    "'')"

static void read_where(struct hf__pg_link *link, const PGresult *r, int column)
{
    snprintf(link->database, sizeof link->database, "%s", PQgetvalue(r, 0, column));
    snprintf(link->schema, sizeof link->schema, "%s", PQgetvalue(r, 0, column + 1));
}

static int ask_where(const struct hf__pg_how *how, struct hf__pg_link *link, const char *before,
                     PGresult **ret, char why[HF_KIT_WHY])
{
    char sql[900];
    char *table = PQescapeLiteral(link->pg, how->table, strlen(how->table));
    snprintf(why, HF_KIT_WHY, "out of memory");
    if (!table) return HF_NOMEM;
    size_t n = (size_t)snprintf(sql, sizeof sql, "SELECT %s" WHERE, before, table);
    PQfreemem(table);
    return n < sizeof sql ? ask(how, link, sql, ret, why) : HF_NOMEM;
}

int hf__pg_locate(const struct hf__pg_how *how, struct hf__pg_link *link, hf_error *err)
{
    char why[HF_KIT_WHY];
    PGresult *r;
    int rc = ask_where(how, link, "", &r, why);
    if (rc) return hf_fail(err, rc, 0, "postgres: open: %s", why);
    read_where(link, r, 0);
    PQclear(r);
    return 0;
}

static int inspect(const struct hf__pg_how *how, struct hf__pg_link *link, char why[HF_KIT_WHY])
{
    PGresult *r;
    int rc = ask_where(how, link,
                       "pg_is_in_recovery(), current_setting('transaction_read_only'), "
                       "pg_backend_pid(), current_setting('server_version_num'), ",
                       &r, why);
    if (rc) return rc;
    int standby = *PQgetvalue(r, 0, 0) == 't', read_only = !strcmp(PQgetvalue(r, 0, 1), "on");
    long version = strtol(PQgetvalue(r, 0, 3), NULL, 10);
    /* Behind a pooler the client gets another process id than the server's own. */
    link->pooled = strtol(PQgetvalue(r, 0, 2), NULL, 10) != PQbackendPID(link->pg);
    read_where(link, r, 4);
    PQclear(r);
    why[0] = 0;
    if (standby)
        snprintf(why, HF_KIT_WHY, "the server is a standby: read-only");
    else if (read_only)
        snprintf(why, HF_KIT_WHY, "transactions are read-only here");
    else if (version < 90500)
        snprintf(why, HF_KIT_WHY, "older than PostgreSQL 9.5");
    return why[0] ? HF_UNSUPPORTED : 0;
}

/* Sets options of the session; but not behind a pooler, which would keep them for other clients.
   Among them: no sequential scans, because the server keeps the plans of prepared statements, and a
   plan from when the table was short would scan all of it when it is long. */
static int settle(const struct hf__pg_how *how, struct hf__pg_link *link, char why[HF_KIT_WHY])
{
    char sql[700];
    long long ms = how->io_timeout_ms;
    PGresult *r;
    if (link->pooled) return 0;
    snprintf(sql, sizeof sql,
             "SELECT set_config('statement_timeout', '%lld', false), "
             "set_config('lock_timeout', '%lld', false), "
             "set_config('idle_in_transaction_session_timeout', '%lld', false), "
             "set_config('default_transaction_isolation', 'read committed', false), "
             "set_config('enable_seqscan', 'off', false), "
             "CASE WHEN current_setting('synchronous_commit') = 'off' "
             "THEN set_config('synchronous_commit', 'on', false) END",
             ms, ms, ms);
    int rc = ask(how, link, sql, &r, why);
    if (!rc) PQclear(r);
    return rc;
}

/* Drops notices such as "relation exists, skipping". */
static void no_notice(void *arg, const PGresult *r) { (void)arg, (void)r; }

int hf__pg_begin(const struct hf__pg_how *how, struct hf__pg_link *link, char why[HF_KIT_WHY])
{
    PQsetnonblocking(link->pg, 1);
    PQsetErrorVerbosity(link->pg, PQERRORS_DEFAULT);
    PQsetNoticeReceiver(link->pg, no_notice, NULL);
    int rc = inspect(how, link, why);
    return rc ? rc : settle(how, link, why);
}
