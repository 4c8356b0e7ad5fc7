/*
 * firestore_secure.c - firestore in a set-user-ID program, whose environment is its caller's: no
 * keys of its connections are written to a file that the caller names.
 */
#include "fakes/answered.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int is_secure;

/* The module's, too: this program exports it. */
char *secure_getenv(const char *name) { return is_secure ? NULL : getenv(name); }

static void no_keys_are_logged(void **state)
{
    char keys[80];
    hf_store *st = NULL;
    (void)state;
    snprintf(keys, sizeof keys, "/tmp/holdfast-keys-%d", (int)getpid());
    assert_int_equal(setenv("SSLKEYLOGFILE", keys, 1), 0);
    is_secure = 1;
    said(opens("firestore://p", &st), HF_DENIED,
         "SSLKEYLOGFILE is set in a program with more rights");
    is_secure = 0;
    assert_int_equal(access(keys, F_OK), -1);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(no_keys_are_logged)};
    return answered_begin("firestore") ? 1 : TEST_MAIN(tests);
}
