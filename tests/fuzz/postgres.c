/*
 * postgres.c - fuzz: any texts in the columns of a row of PostgreSQL's.
 */
#include "fuzz.h"

#include "../../drivers/postgres/store.h"

#include <string.h>

enum { ALL = HF_FIELDS + 2 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz f = {data, size};
    PGresult *r = PQmakeEmptyPGresult(NULL, PGRES_TUPLES_OK);
    PGresAttDesc columns[ALL];
    static char name[] = "c";
    static hf_store st = {.empty = "DROP TABLE x"};
    hf_error err = {0, 0, ""};
    hf_row row;
    memset(columns, 0, sizeof columns);
    for (int i = 0; i < ALL; i++) columns[i].name = name;
    if (!r || !PQsetResultAttrs(r, ALL, columns)) abort();
    for (int i = 0; i < ALL; i++) {
        size_t len;
        char *text = fuzz_line(&f, &len);
        /* A text of PostgreSQL's has no NUL in it. */
        if (!PQsetvalue(r, 0, i, text, *text == '\\' ? -1 : (int)strlen(text))) abort();
        free(text);
    }
    hf_row_init(&row);
    (void)hf__pg_number(r, 0, 0);
    if (hf__pg_has_row(r))
        fuzz_check_row(hf__pg_decode(&st, r, 0, &row, "get", "k", &err), &row, err.text);
    hf_row_clear(&row);
    PQclear(r);
    return 0;
}
