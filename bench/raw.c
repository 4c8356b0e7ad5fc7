/*
 * raw.c - see raw.h.
 */
#include "raw.h"

#include <stddef.h>

const struct raw *const raws[] = {
#ifdef BENCH_ETCD
    &raw_etcd,
#endif
    &raw_file,
#ifdef BENCH_FIRESTORE
    &raw_firestore,
#endif
#ifdef BENCH_MONGODB
    &raw_mongodb,
#endif
#ifdef BENCH_POSTGRES
    &raw_postgres,
#endif
#ifdef BENCH_REDIS
    &raw_redis,
#endif
#ifdef BENCH_SQLITE
    &raw_sqlite,
#endif
    NULL,
};

const char *const raw_name[HF_COLS] = {
#define NAME(NAME, name, is_text) name,
    HF_COLUMNS(NAME)
#undef NAME
};

const char raw_is_text[HF_COLS] = {
#define IS_TEXT(NAME, name, is_text) is_text,
    HF_COLUMNS(IS_TEXT)
#undef IS_TEXT
};

#define NOW_US "1700000000000000"

const char *const raw_value[HF_COLS] = {
    [HF_COL_FORMAT] = "1",     [HF_COL_REV] = NOW_US,
    [HF_COL_TOKEN] = NOW_US,   [HF_COL_OWNER] = "0123456789abcdef0123456789abcdef",
    [HF_COL_EXPIRES] = NOW_US, [HF_COL_ACQUIRED] = NOW_US,
    [HF_COL_LEASE] = "30000",  [HF_COL_MODE] = "0",
    [HF_COL_LIMIT] = "0",      [HF_COL_NOTE] = "host=h pid=1 user=u command=bench",
    [HF_COL_SESSION] = "0",    [HF_COL_REQUEST] = "0123456789abcdef0123456789abcdef",
    [HF_COL_GRANT] = NOW_US,   [HF_COL_CLAIM] = "1000",
    [HF_COL_FLAGS] = "0",      [HF_COL_BELL] = "0",
    [HF_COL_OTHERS] = "[]",    [HF_COL_QUEUE] = "[]",
    [HF_COL_DONE] = "0",       [HF_COL_KEEP_UNTIL] = "0",
    [HF_COL_DONE_BY] = "",     [HF_COL_RESULT] = "",
};
