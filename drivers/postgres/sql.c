/*
 * sql.c - postgres: the statements. See sql.h.
 */
#include "sql.h"

#include "notify.h"

#include <stdlib.h>
#include <string.h>

/* The store's clock, in microseconds. */
#define NOW "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"

static const char *type_of(int field)
{
    return hf__field[field].kind == HF_NUMBER ? "bigint" : "text";
}

/* Writes each column with its value, from parameter `first` on. */
static void put_update(struct hf__sql *t, const char *table, int first)
{
    hf__sql_put(t, "UPDATE %s AS t SET ", table);
    for (int i = 0; i < HF_FIELDS; i++)
        hf__sql_put(t, "%s\"%s\" = $%d::%s", i ? ", " : "", hf__field[i].name, i + first,
                    type_of(i));
    hf__sql_put(t, " WHERE t.key = $1::text AND t.rev = $2::bigint");
}

/* The parameters of a write: $1 is the key, $2 the rev seen, $3 the channel of all keys, $4 the
   payload, $5 the addresses; the columns begin at $HF_PG_FIRST. */
static void put_values(struct hf__sql *t)
{
    for (int i = 0; i < HF_FIELDS; i++) hf__sql_put(t, ", $%d::%s", i + HF_PG_FIRST, type_of(i));
}

/* Writes the condition for a notification: the holders change. A request that joins the queue
   notifies nobody, because it would wake all waiters, unless it is the first: then the holder is
   notified. */
static void put_matters(struct hf__sql *t)
{
    static const int holders[] = {HF_FIELD_TOKEN, HF_FIELD_OWNER, HF_FIELD_EXPIRES, HF_FIELD_MORE};
    hf__sql_put(t, " AND (");
    for (size_t i = 0; i < sizeof holders / sizeof *holders; i++) {
        int c = holders[i];
        hf__sql_put(t, "%so.\"%s\" <> $%d::%s", i ? " OR " : "", hf__field[c].name, c + HF_PG_FIRST,
                    type_of(c));
    }
    hf__sql_put(t, ") OR coalesce(o.queue, '') = '' AND $%d::text <> ''",
                HF_FIELD_QUEUE + HF_PG_FIRST);
}

/* Writes the columns of the reply to a write: whether it was done, the time, and the row that was
   there before. */
static void put_told(struct hf__sql *t, const char *table, int deletes)
{
    hf__sql_put(t, " RETURNING 1) SELECT (SELECT count(*) FROM w), " NOW ", ");
    hf__sql_put_names(t, "o.", '\"', HF_FIELDS);
    hf__sql_put(t, ", CASE WHEN EXISTS (SELECT 1 FROM w) AND (coalesce(o.queue, '') <> ''");
    if (!deletes) put_matters(t);
    hf__sql_put(
        t,
        ") THEN (SELECT count(pg_notify(c, $4::text)) FROM (SELECT $3::text UNION ALL SELECT "
        "'" HF_PG_AT "' || a FROM unnest(string_to_array($5::text, ' ')) AS a WHERE a <> '') AS "
        "n (c)) END FROM (SELECT 1) AS one LEFT JOIN %s AS o ON o.key = $1::text",
        table);
}

enum { INSERT, UPDATE, ERASE, ACQUIRE, GET, SCAN, QUIET };

static char *sql_write(const char *table, struct hf__sql *t, int kind)
{
    if (kind == INSERT) {
        hf__sql_put(t, "WITH w AS (INSERT INTO %s (key, ", table);
        hf__sql_put_names(t, "", '\"', HF_FIELDS);
        hf__sql_put(t, ") SELECT $1::text");
        put_values(t);
        hf__sql_put(t, " WHERE $2::bigint = 0 ON CONFLICT (key) DO NOTHING");
    } else if (kind == UPDATE) {
        hf__sql_put(t, "WITH w AS (");
        put_update(t, table, HF_PG_FIRST);
    } else {
        hf__sql_put(t,
                    "WITH w AS (DELETE FROM %s AS t WHERE t.key = $1::text AND t.rev = $2::bigint",
                    table);
    }
    put_told(t, table, kind == ERASE);
    return hf__sql_take(t);
}

/* The short update, for a row without waiters. It refuses if the stored row has a waiter, so it
   notifies nobody. */
static char *sql_quiet(const char *table, struct hf__sql *t)
{
    put_update(t, table, HF_PG_QUIET_FIRST);
    hf__sql_put(t, " AND t.queue = '' RETURNING " NOW);
    return hf__sql_take(t);
}

/* The parameters of an acquire that follow its columns, which are $2 to $11. */
#define MOST_WAITERS "$12::bigint"
#define CLAIM        "$13::text"
#define CHANNEL      "$14::text"
#define KEY_HASH     "$15::text"
_Static_assert(HF_PG_ACQUIRE == 10 && HF_PG_ACQUIRE_VALUES == 15, "the numbers of the parameters");

/* What a notification contains: hf__pg_put_notification. */
#define WORD KEY_HASH " || ' ' || w.request || ' ' || w.expires_us::text"

/* Appends the request to the queue's JSON. Its `more` has the members that aren't plain. */
#define WAITER                                                                                   \
    "'{\"request\":\"' || excluded.request || '\",\"owner\":' || to_json(excluded.owner)::text " \
    "|| ',\"note\":' || to_json(excluded.note)::text || ',\"since_us\":' || "                    \
    "excluded.acquired_us::text || ',\"lease_ms\":' || excluded.lease_ms::text || "              \
    "',\"claim_ms\":' || " CLAIM " || CASE excluded.more WHEN '' THEN '}' ELSE ',' || "          \
    "substr(excluded.more, 2) END || ']'"

/* Conditions: the request may be granted; it may get a place in the queue. A member is found by its
   name in quotes, because quotes within a text are escaped. `more` names a mode or further holders,
   unless one party holds alone and exclusively. Each waiter has one "request". There are few
   functions, because each takes the server time to prepare. */
#define MAY_ACQUIRE                                                                          \
    " WHERE t.format = excluded.format AND t.request <> excluded.request AND CASE t.owner "  \
    "WHEN '' THEN t.more = '' AND t.queue = '' ELSE (t.expires_us = 0 OR t.expires_us > "    \
    "excluded.acquired_us) AND t.more !~ '\"(mode|holders)\"' AND (t.queue = '' OR t.queue " \
    "LIKE '[{%%}]' AND strpos(t.queue, excluded.request) = 0) AND length(t.queue) - "        \
    "length(replace(t.queue, '\"request\":', '')) < 10 * " MOST_WAITERS " END"

/* hf_row_acquire as a statement. The columns are those of a grant, with the statement's time. A row
   that is held keeps all of them but rev and queue. If this waiter is the first one, the holder is
   notified. */
static char *sql_acquire(const char *table, struct hf__sql *t)
{
    hf__sql_put(t, "WITH w AS (INSERT INTO %s AS t (key, ", table);
    hf__sql_put_names(t, "", '\"', HF_PG_ACQUIRE);
    hf__sql_put(t, ") SELECT $1::text");
    for (int i = 0; i < HF_PG_ACQUIRE; i++) {
        if (i == HF_FIELD_REV || i == HF_FIELD_TOKEN || i == HF_FIELD_ACQUIRED)
            hf__sql_put(t, ", c.now");
        else if (i == HF_FIELD_EXPIRES)
            hf__sql_put(t, ", CASE WHEN $%d::bigint = 0 THEN 0 ELSE c.now + $%d::bigint * 1000 END",
                        HF_FIELD_LEASE + 2, HF_FIELD_LEASE + 2);
        else
            hf__sql_put(t, ", $%d::%s", i + 2, type_of(i));
    }
    hf__sql_put(
        t, " FROM (SELECT " NOW " AS now) AS c ON CONFLICT (key) DO UPDATE SET rev = greatest("
           "t.rev + 1, excluded.rev), queue = CASE t.owner WHEN '' THEN t.queue ELSE CASE t.queue "
           "WHEN '' THEN '[' ELSE left(t.queue, -1) || ',' END || " WAITER " END");
    for (int i = 0; i < HF_PG_ACQUIRE; i++) {
        const char *name = hf__field[i].name;
        if (i == HF_FIELD_FORMAT || i == HF_FIELD_REV) continue;
        hf__sql_put(t, ", \"%s\" = CASE t.owner WHEN '' THEN ", name);
        if (i == HF_FIELD_TOKEN)
            hf__sql_put(t, "greatest(t.rev + 1, excluded.rev)");
        else
            hf__sql_put(t, "excluded.\"%s\"", name);
        hf__sql_put(t, " ELSE t.\"%s\" END", name);
    }
    hf__sql_put(t, MAY_ACQUIRE " RETURNING t.*) SELECT 1, " NOW ", ");
    hf__sql_put_names(t, "w.", '\"', HF_FIELDS);
    hf__sql_put(
        t,
        ", CASE WHEN strpos(w.queue, '[{\"request\":\"' || $%d::text) = 1 THEN pg_notify(" CHANNEL
        ", " WORD ")::text || pg_notify('" HF_PG_AT "' || left(w.request, %d), " WORD
        ")::text END FROM w UNION ALL SELECT 0, " NOW ", ",
        HF_FIELD_REQUEST + 2, HF_ADDRESS);
    hf__sql_put_names(t, "o.", '\"', HF_FIELDS);
    hf__sql_put(
        t,
        ", NULL FROM (SELECT 1) AS one LEFT JOIN %s AS o ON o.key = $1::text WHERE NOT EXISTS "
        "(SELECT "
        "1 FROM w)",
        table);
    return hf__sql_take(t);
}

char *hf__pg_sql_create(const char *table)
{
    struct hf__sql t = {NULL, 0, 0, 0};
    hf__sql_put(&t, "CREATE TABLE IF NOT EXISTS %s (key text COLLATE \"C\" PRIMARY KEY", table);
    for (int i = 0; i < HF_FIELDS; i++)
        hf__sql_put(&t, ", \"%s\" %s NOT NULL%s", hf__field[i].name, type_of(i),
                    hf__field[i].kind == HF_JSON ? " DEFAULT ''" : "");
    hf__sql_put(&t, ")");
    return hf__sql_take(&t);
}

int hf__pg_was_made(int rc, const char *state)
{
    return !rc || !strcmp(state, "23505") || !strcmp(state, "42P07") || !strcmp(state, "42710");
}

int hf__pg_sql(struct hf__pg_sql *s, const char *table)
{
    struct hf__sql t = {NULL, 0, 0, 0};
    int made = hf__pg_often(&s->insert, INSERT, sql_write(table, &t, INSERT)) &&
               hf__pg_often(&s->update, UPDATE, sql_write(table, &t, UPDATE)) &&
               hf__pg_often(&s->quiet, QUIET, sql_quiet(table, &t)) &&
               hf__pg_often(&s->erase, ERASE, sql_write(table, &t, ERASE)) &&
               hf__pg_often(&s->acquire, ACQUIRE, sql_acquire(table, &t));
    hf__sql_put(&t, "SELECT 0, " NOW ", ");
    hf__sql_put_names(&t, "o.", '\"', HF_FIELDS);
    hf__sql_put(&t, " FROM (SELECT 1) AS one LEFT JOIN %s AS o ON o.key = $1::text", table);
    made &= hf__pg_often(&s->get, GET, hf__sql_take(&t));
    hf__sql_put(&t, "SELECT o.key, " NOW ", ");
    hf__sql_put_names(&t, "o.", '\"', HF_FIELDS);
    hf__sql_put(
        &t, " FROM %s AS o WHERE o.key >= $1::text AND o.key > $2::text ORDER BY o.key LIMIT %d",
        table, HF_PG_PAGE);
    made &= hf__pg_often(&s->scan, SCAN, hf__sql_take(&t));
    s->create = hf__pg_sql_create(table);
    hf__sql_put(&t, "SELECT granted FROM %s LIMIT 0", table);
    s->is_old = hf__sql_take(&t);
    hf__sql_put(&t, "SELECT 0, " NOW);
    for (int i = 0; i < HF_FIELDS; i++) hf__sql_put(&t, ", NULL");
    s->no_row = hf__sql_take(&t);
    return made && s->create && s->is_old && s->no_row;
}

void hf__pg_sql_free(struct hf__pg_sql *s)
{
    char *sql[] = {s->get.sql,     s->insert.sql, s->update.sql, s->quiet.sql, s->erase.sql,
                   s->acquire.sql, s->scan.sql,   s->create,     s->is_old,    s->no_row};
    for (size_t i = 0; i < sizeof sql / sizeof *sql; i++) free(sql[i]);
}
