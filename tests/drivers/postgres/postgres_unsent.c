/*
 * postgres_unsent.c - the driver postgres: of many replaces that are sent at once libpq refuses to
 * send one.
 */
#include "pgsay.h"
#include "test.h"

#include "os.h"

#include <dlfcn.h>

#define URL   "postgres://u@HOST/db?sslmode=disable&gssencmode=disable"
#define NOW   "1769860800000017"
#define QUIET "queue = '' RETURNING (extract"

enum { MANY = 4 };

typedef struct pg_conn PGconn;
int PQsendQueryPrepared(PGconn *conn, const char *name, int n, const char *const *values,
                        const int *lengths, const int *formats, int format);

static int refused = MANY; /* which execution libpq refuses, counted from 0 */

/* The driver finds this one first. */
__attribute__((visibility("default"))) int PQsendQueryPrepared(PGconn *conn, const char *name,
                                                               int n, const char *const *values,
                                                               const int *lengths,
                                                               const int *formats, int format)
{
    void *libpq = dlopen("libpq.so.5", RTLD_NOW | RTLD_NOLOAD);
    int (*real)(PGconn *, const char *, int, const char *const *, const int *, const int *, int);
    if (!refused--) return 0;
    *(void **)&real = dlsym(libpq, "PQsendQueryPrepared");
    dlclose(libpq);
    return real(conn, name, n, values, lengths, formats, format);
}

/* The others keep their own answers: one that wasn't sent gets no other's. */
static void one_that_is_not_sent_gets_no_answer(void **state)
{
    (void)state;
    for (int unsent = 0; unsent <= MANY; unsent++) {
        hf_store *st = pg_opened(URL);
        hf_row row[MANY], cur[MANY];
        hf_replace item[MANY];
        hf_error why[MANY];
        for (int i = 0; i < MANY; i++) {
            hf_row_init(&row[i]);
            hf_row_init(&cur[i]);
            row[i].rev = 2;
            item[i] = (hf_replace){
                .key = &key, .seen = 1, .row = &row[i], .cur = &cur[i], .err = &why[i]};
        }
        pg_are(&(struct pg_rule){QUIET, NOW, 0}, 1);
        refused = unsent;
        assert_int_equal(pg->replace_many(st, item, MANY, hf__local_us() + 60000000), 0);
        for (int i = 0; i < MANY; i++)
            assert_int_equal(item[i].result, i < unsent ? 0 : HF_UNKNOWN);
        /* Later requests don't meet what was left unread. */
        refused = MANY;
        assert_int_equal(pg->replace_many(st, item, MANY, hf__local_us() + 60000000), 0);
        for (int i = 0; i < MANY; i++) assert_int_equal(item[i].result, 0);
        pg->close(st);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_that_is_not_sent_gets_no_answer),
    };
    if (!pg_begin()) return 1;
    return TEST_MAIN(tests);
}
