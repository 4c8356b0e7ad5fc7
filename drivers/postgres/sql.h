/*
 * sql.h - postgres: the statements that the driver asks, made once for each table.
 */
#ifndef HF_POSTGRES_SQL_H
#define HF_POSTGRES_SQL_H

#include "link.h"

/* A page of a scan; the parameter of a write that is the first column, and of a quiet one. */
enum { HF_PG_PAGE = 64, HF_PG_FIRST = 6, HF_PG_QUIET_FIRST = 3 };

struct hf__pg_sql {
    struct hf__pg_often get, insert, update, erase, take, join, scan;
    struct hf__pg_often quiet; /* an update that only says when it was done, if it was */
    char *create;
};

/* `table` is quoted. 1, or 0 without memory; free it in every case. */
int hf__pg_sql(struct hf__pg_sql *ret, const char *table);
/* The statement that makes the table; to be freed. NULL: no memory. */
char *hf__pg_sql_create(const char *table);
void hf__pg_sql_free(struct hf__pg_sql *sql);

#endif
