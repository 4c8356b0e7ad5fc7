/*
 * secure_env.c - a set-user-ID program, in which secure_getenv finds nothing: which store it opens
 * isn't its caller's to say.
 */
#include "handle.h"
#include "holdfast.h"
#include "module_dirs.h"
#include "scratch.h"
#include "test.h"

#include <pwd.h>
#include <sys/stat.h>

static int is_secure;
static char callers[HF_KEY_CAP], own[HF_KEY_CAP]; /* homes */

char *__wrap_secure_getenv(const char *name);
char *__wrap_secure_getenv(const char *name) { return is_secure ? NULL : getenv(name); }

int __wrap_getpwuid_r(uid_t uid, struct passwd *entry, char *text, size_t cap, struct passwd **ret);
int __wrap_getpwuid_r(uid_t uid, struct passwd *entry, char *text, size_t cap, struct passwd **ret)
{
    (void)text, (void)cap;
    assert_int_equal(uid, geteuid());
    *entry = (struct passwd){.pw_dir = own};
    *ret = entry;
    return 0;
}

static void the_store_is_not_the_callers_to_name(void **state)
{
    const char *url = scratch("file:@");
    hf_error err;
    hf *store;
    (void)state;
    assert_non_null(url);
    assert_int_equal(setenv("HOLDFAST_STORE", url, 1), 0);
    snprintf(callers, sizeof callers, "%s/callers", scratch_dir);
    snprintf(own, sizeof own, "%s/own", scratch_dir);
    assert_int_equal(mkdir(callers, 0700) | mkdir(own, 0700), 0);
    assert_int_equal(setenv("HOME", callers, 1), 0);
    assert_int_equal(setenv("XDG_STATE_HOME", callers, 1), 0);
    for (is_secure = 0; is_secure < 2; is_secure++) {
        int rc = hf_open(NULL, NULL, &store, &err);
        assert_int_equal(rc, 0);
        const char *found = hf_store_url(store);
        assert_int_equal(!strcmp(found, url), !is_secure);
        if (is_secure) assert_ptr_equal(strstr(found, own), found + strlen("file:"));
        hf_close(store);
        assert_int_equal(access(url + strlen("file:"), F_OK), is_secure ? -1 : 0);
        unlink(url + strlen("file:"));
    }
}

/* A module is code. */
static void the_modules_are_not_the_callers_to_name(void **state)
{
    static const char dir[] = "/the/callers";
    struct hf_module_dirs dirs;
    (void)state;
    assert_int_equal(setenv("HOLDFAST_DRIVERS", dir, 1), 0);
    for (is_secure = 0; is_secure < 2; is_secure++) {
        int found = 0;
        hf__module_dirs(&dirs);
        for (size_t i = 0; i < sizeof dirs.dir / sizeof *dirs.dir; i++)
            found |= !strcmp(dirs.dir[i], dir);
        assert_int_equal(found, !is_secure);
    }
}

/* A holder's note names the user that the process runs as, not the user in the caller's
   environment. */
static void the_user_is_not_the_callers_to_name(void **state)
{
    hf_error err;
    hf *store;
    (void)state;
    assert_int_equal(setenv("USER", "another", 1), 0);
    for (is_secure = 0; is_secure < 2; is_secure++) {
        assert_int_equal(hf_open("mem:secure", NULL, &store, &err), 0);
        assert_int_equal(!!strstr(store->party.note, "user=another"), !is_secure);
        hf_close(store);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_store_is_not_the_callers_to_name),
        cmocka_unit_test(the_modules_are_not_the_callers_to_name),
        cmocka_unit_test(the_user_is_not_the_callers_to_name),
    };
    return TEST_MAIN(tests);
}
