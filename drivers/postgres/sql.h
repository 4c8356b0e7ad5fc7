/*
 * sql.h - postgres: the statements that the driver asks, made once for each table.
 */
#ifndef HF_POSTGRES_SQL_H
#define HF_POSTGRES_SQL_H

#include "kit/columns.h"
#include "link.h"

/* A page of a scan; the parameter of a write that is the first column, and of a quiet one. */
enum { HF_PG_PAGE = 64, HF_PG_FIRST = 6, HF_PG_QUIET_FIRST = 3 };
/* How many fields a grant writes: a free row has no queue, and its marker stays. The parameters of
   an acquire are the key, those, the most waiters, claim_ms, the channel of all, the key's hash. */
enum { HF_PG_ACQUIRE = HF_FIELD_QUEUE, HF_PG_ACQUIRE_VALUES = HF_PG_ACQUIRE + 5 };

struct hf__pg_sql {
    struct hf__pg_often get, insert, update, erase, acquire, scan;
    struct hf__pg_often quiet; /* an update that only says when it was done, if it was */
    char *create;
    char *is_old;           /* succeeds if the table has the columns of format 1 */
    char *no_row, *no_page; /* what `get` and `scan` answer where the table has no row */
};

/* `table` is quoted. 1, or 0 without memory; free it in every case. */
int hf__pg_sql(struct hf__pg_sql *ret, const char *table);
/* The statement that makes the table; to be freed. NULL: no memory. */
char *hf__pg_sql_create(const char *table);
/* Is the table there now, after that statement? Its IF NOT EXISTS doesn't see a table that somebody
   else is just making; nor its type. */
int hf__pg_was_made(int rc, const char *state);
void hf__pg_sql_free(struct hf__pg_sql *sql);

#endif
