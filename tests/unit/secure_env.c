/*
 * secure_env.c - a set-user-ID program, in which secure_getenv finds nothing: which store it opens
 * isn't its caller's to say.
 */
#include "holdfast.h"
#include "scratch.h"
#include "test.h"

static int is_secure;

char *__wrap_secure_getenv(const char *name);
char *__wrap_secure_getenv(const char *name) { return is_secure ? NULL : getenv(name); }

static void the_store_is_not_the_callers_to_name(void **state)
{
    const char *url = scratch("file:@");
    hf_error err;
    hf *store;
    (void)state;
    assert_non_null(url);
    assert_int_equal(setenv("HOLDFAST_STORE", url, 1), 0);
    assert_int_equal(setenv("HOME", scratch_dir, 1), 0);
    assert_int_equal(setenv("XDG_STATE_HOME", scratch_dir, 1), 0);
    for (is_secure = 0; is_secure < 2; is_secure++) {
        int rc = hf_open(NULL, NULL, &store, &err);
        int named = !rc && !strcmp(hf_store_url(store), url);
        if (!rc) hf_close(store);
        assert_int_equal(named, !is_secure);
        assert_int_equal(access(url + strlen("file:"), F_OK), is_secure ? -1 : 0);
        unlink(url + strlen("file:"));
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_store_is_not_the_callers_to_name),
    };
    return TEST_MAIN(tests);
}
