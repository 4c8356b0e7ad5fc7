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
#ifdef BENCH_MARIADB
    &raw_mariadb,
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

const char *const raw_name[HF_FIELDS] = {
#define NAME(NAME, name, kind) name,
    HF_FIELDS_OF_A_ROW(NAME)
#undef NAME
};

const enum hf__field_kind raw_kind[HF_FIELDS] = {
#define KIND(NAME, name, kind) kind,
    HF_FIELDS_OF_A_ROW(KIND)
#undef KIND
};

#define NOW_US "1700000000000000"

const char *const raw_value[HF_FIELDS] = {
    [HF_FIELD_FORMAT] = "2",
    [HF_FIELD_REV] = NOW_US,
    [HF_FIELD_TOKEN] = NOW_US,
    [HF_FIELD_OWNER] = "0123456789abcdef0123456789abcdef",
    [HF_FIELD_EXPIRES] = NOW_US,
    [HF_FIELD_ACQUIRED] = NOW_US,
    [HF_FIELD_LEASE] = "30000",
    [HF_FIELD_REQUEST] = "0123456789abcdef0123456789abcdef",
    [HF_FIELD_NOTE] = "host=h pid=1 user=u command=bench",
    [HF_FIELD_MORE] = "",
    [HF_FIELD_QUEUE] = "",
    [HF_FIELD_DONE] = "",
};
