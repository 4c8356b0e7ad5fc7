/*
 * sql.h - postgres: the statements that the driver asks, made once for each table.
 */
#ifndef HF_POSTGRES_SQL_H
#define HF_POSTGRES_SQL_H

#include "kit/sql.h"
#include "link.h"

/* How many rows a page of a scan has; the number of the parameter that is the first column: of a
   write, and of a short one. */
enum { HF_PG_PAGE = 64, HF_PG_FIRST = 6, HF_PG_QUIET_FIRST = 3 };
/* How many fields a grant writes: a free row has no queue, and its marker stays. The parameters of
   an acquire are the key, those fields, the most waiters, claim_ms, the channel of all keys, the
   key's hash. */
enum { HF_PG_ACQUIRE = HF_FIELD_QUEUE, HF_PG_ACQUIRE_VALUES = HF_PG_ACQUIRE + 5 };

struct hf__pg_sql {
    struct hf__pg_often get, insert, update, erase, acquire, scan;
    struct hf__pg_often quiet; /* an update that returns a row only if it was done */
    char *create;
    char *is_old; /* succeeds if the table has the columns of format 1 */
    char *no_row; /* what `get` answers if there is no row */
};

/* Makes the statements; `table` is quoted. Returns 1; 0: no memory. To be freed in every case. */
int hf__pg_sql(struct hf__pg_sql *ret, const char *table);
/* Makes the statement that creates the table, to be freed. Returns NULL if there is no memory. */
char *hf__pg_sql_create(const char *table);
/* Returns 1 if the table exists after that statement. IF NOT EXISTS doesn't see a table that
   another client is just creating, nor its type. */
int hf__pg_was_made(int rc, const char *state);
void hf__pg_sql_free(struct hf__pg_sql *sql);

#endif
