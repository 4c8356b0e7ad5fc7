/*
 * sqlite.c - fuzz: any values in the columns of a row of SQLite's.
 */
#include "fuzz.h"

#include "../../drivers/sqlite/rows.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static sqlite3 *db;
    static sqlite3_stmt *s;
    struct fuzz f = {data, size};
    char sql[200] = "SELECT ?1", *texts[HF_FIELDS] = {NULL};
    static hf_store st = {.empty = "DROP TABLE x"};
    hf_error err = {0, 0, ""};
    hf_row row;
    for (int i = 1; !s && i < HF_FIELDS; i++) snprintf(sql + strlen(sql), 8, ", ?%d", i + 1);
    if (!s && (sqlite3_open(":memory:", &db) || sqlite3_prepare_v2(db, sql, -1, &s, NULL))) abort();
    uint64_t wrong = fuzz_number(&f); /* which columns aren't of the type that they should be */
    for (int i = 0; i < HF_FIELDS; i++) {
        int is_text = (hf__field[i].kind != HF_NUMBER) ^ (wrong >> i & 1);
        size_t len;
        if (is_text) {
            texts[i] = fuzz_line(&f, &len);
            sqlite3_bind_text(s, i + 1, texts[i], (int)len, SQLITE_STATIC);
        } else if (wrong & UINT64_C(1) << 40) {
            sqlite3_bind_double(s, i + 1, (double)fuzz_number(&f));
        } else {
            sqlite3_bind_int64(s, i + 1, (int64_t)fuzz_number(&f));
        }
    }
    hf_row_init(&row);
    if (sqlite3_step(s) != SQLITE_ROW) abort();
    fuzz_check_row(hf__sq_decode(&st, s, 0, &row, "get", "k", &err), &row, err.text);
    sqlite3_reset(s);
    sqlite3_clear_bindings(s);
    hf_row_clear(&row);
    for (int i = 0; i < HF_FIELDS; i++) free(texts[i]);
    return 0;
}
