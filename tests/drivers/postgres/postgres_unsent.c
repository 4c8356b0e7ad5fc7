/*
 * postgres_unsent.c - the driver postgres: of many replaces that are sent at once libpq refuses to
 * send one, or the server refuses to write.
 */
#include "pgsay.h"
#include "test.h"

#include "os.h"

#include <dlfcn.h>

#define URL   "postgres://u@HOST/db?sslmode=disable&gssencmode=disable"
#define NOW   "1769860800000017"
#define QUIET "queue = '' RETURNING (extract"
#define LOGIN "server_version_num"

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

static hf_row row[MANY], cur[MANY];
static hf_replace item[MANY];
static hf_error why[MANY];

static void replace_all(hf_store *st)
{
    for (int i = 0; i < MANY; i++) {
        hf_row_init(&row[i]);
        hf_row_init(&cur[i]);
        row[i].rev = 2;
        item[i] = (hf_replace){&key, 1, &row[i], &cur[i], HF_UNKNOWN, 0, &why[i]};
    }
    assert_int_equal(pg->replace_many(st, item, MANY, hf__local_us() + 60000000), 0);
}

/* The others keep their own answers: one that wasn't sent gets no other's. */
static void one_that_is_not_sent_gets_no_answer(void **state)
{
    (void)state;
    for (int unsent = 0; unsent <= MANY; unsent++) {
        hf_store *st = pg_opened(URL);
        pg_are(&(struct pg_rule){QUIET, NOW, 0}, 1);
        refused = unsent;
        replace_all(st);
        for (int i = 0; i < MANY; i++)
            assert_int_equal(item[i].result, i < unsent ? 0 : HF_UNKNOWN);
        /* Later requests don't meet what was left unread. */
        refused = MANY;
        replace_all(st);
        for (int i = 0; i < MANY; i++) assert_int_equal(item[i].result, 0);
        pg->close(st);
    }
}

/* A server that became read-only is left: the next batch finds one that can be written. */
static void a_batch_leaves_a_server_that_became_read_only(void **state)
{
    (void)state;
    hf_store *st = pg_opened(URL);
    pg_are(&(struct pg_rule){QUIET, NOW, 0}, 1);
    refused = MANY;
    replace_all(st);
    assert_int_equal(pg_asked(LOGIN), 1);
    pg_are(&(struct pg_rule){QUIET, "!25006 no writing", 0}, 1);
    refused = MANY;
    replace_all(st);
    for (int i = 0; i < MANY; i++) assert_int_equal(item[i].result, HF_UNAVAILABLE);
    assert_non_null(strstr(why[0].text, "no writing"));
    pg_are(&(struct pg_rule){QUIET, NOW, 0}, 1);
    refused = MANY;
    replace_all(st);
    for (int i = 0; i < MANY; i++) assert_int_equal(item[i].result, 0);
    assert_int_equal(pg_asked(LOGIN), 1);
    pg->close(st);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_that_is_not_sent_gets_no_answer),
        cmocka_unit_test(a_batch_leaves_a_server_that_became_read_only),
    };
    if (!pg_begin()) return 1;
    return TEST_MAIN(tests);
}
