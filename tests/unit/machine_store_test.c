/*
 * machine_store_test.c - which store a program gets that names none.
 */
#include "machine_store.h"

#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/machine_store.XXXXXX", file[64];

static void write_line(const char *line)
{
    FILE *f = fopen(file, "w");
    assert_non_null(f);
    fprintf(f, "%s\nanother line\n", line);
    fclose(f);
}

/* Opens without a URL. Returns 0, and the store's URL in *ret; or the code. */
static int opens(char ret[200], hf_error *err)
{
    hf *store;
    int rc = hf_open(NULL, NULL, &store, err);
    if (rc) return rc;
    snprintf(ret, 200, "%s", hf_store_url(store));
    hf_close(store);
    return 0;
}

static void the_variable_the_file_and_the_users_own(void **state)
{
    char url[200], wanted[100];
    hf_error err;
    (void)state;
    assert_int_equal(opens(url, &err), 0);
    assert_non_null(strstr(url, "/holdfast/locks"));
    snprintf(wanted, sizeof wanted, "file:%s/for-all", folder);
    snprintf(url, sizeof url, "%s \t\r", wanted);
    write_line(url);
    assert_int_equal(opens(url, &err), 0);
    assert_string_equal(url, wanted);
    setenv("HOLDFAST_STORE", "mem:", 1);
    assert_int_equal(opens(url, &err), 0);
    assert_string_equal(url, "mem:");
    unsetenv("HOLDFAST_STORE");
    unlink(file);
}

/* A program that took another store instead would not exclude those that name theirs. */
static void a_variable_that_names_no_store_for_all(void **state)
{
    static const struct {
        const char *text, *why;
    } cases[] = {
        {"", "HOLDFAST_STORE is set, but empty"},    {" \r\n", "HOLDFAST_STORE is set, but empty"},
        {"file:rel", "HOLDFAST_STORE: the path in"}, {"file:./rel", "relative"},
        {"file:r%2fel?mode=0666", "relative"},       {" file:/x", "begins with a blank"},
    };
    char url[200], wanted[100];
    hf_error err;
    (void)state;
    write_line("file:/another");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        setenv("HOLDFAST_STORE", cases[i].text, 1);
        assert_int_equal(opens(url, &err), HF_INVALID);
        if (!strstr(err.text, cases[i].why)) fail_msg("%s: %s", cases[i].text, err.text);
    }
    hf *store;
    assert_int_equal(hf_open("", NULL, &store, &err), HF_INVALID);
    /* What a file's line or a copied text has behind it names no other store. */
    snprintf(wanted, sizeof wanted, "file:%s/for-all", folder);
    snprintf(url, sizeof url, "%s \t\r\n", wanted);
    setenv("HOLDFAST_STORE", url, 1);
    assert_int_equal(opens(url, &err), 0);
    assert_string_equal(url, wanted);
    unsetenv("HOLDFAST_STORE");
    unlink(file);
}

/* A file that is there but can't be used is never passed over. */
static void a_file_that_names_no_store_for_all(void **state)
{
    static const struct {
        const char *line, *why;
    } cases[] = {
        {"", "names no store"},
        {"  ", "names no store"},
        {"file:rel", "relative"},
        {"mem:", "each process"},
        {"redis://user:s3cr3t@h", "a secret"},
        {"postgres://h/d?password=s3cr3t", "a secret"},
        {"# the store", "url: "},
    };
    char url[200];
    hf_error err;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_line(cases[i].line);
        assert_int_equal(opens(url, &err), HF_INVALID);
        if (!strstr(err.text, cases[i].why) || strstr(err.text, "s3cr3t"))
            fail_msg("%s: %s", cases[i].line, err.text);
    }
    unlink(file);
    FILE *f = fopen(file, "we");
    assert_non_null(f);
    fwrite("file:/x\0y\n", 1, 10, f);
    fclose(f);
    assert_int_equal(opens(url, &err), HF_INVALID);
    assert_non_null(strstr(err.text, "a zero byte"));
    unlink(file);
}

/* What stands in the file's place, and is no file, is neither passed over nor waited for. */
static void what_is_no_file_in_its_place(void **state)
{
    char url[200], away[200], below[200];
    hf_error err;
    (void)state;
    hf__machine_file = folder;
    assert_int_equal(opens(url, &err), HF_INVALID);
    assert_non_null(strstr(err.text, "no regular file"));
    hf__machine_file = file;
    assert_int_equal(mkfifo(file, 0600), 0);
    assert_int_equal(opens(url, &err), HF_INVALID);
    assert_non_null(strstr(err.text, "no regular file"));
    unlink(file);
    /* As when the filesystem that they lead to isn't mounted. */
    snprintf(away, sizeof away, "%s/away/store", folder);
    assert_int_equal(symlink(away, file), 0);
    assert_int_equal(opens(url, &err), HF_INVALID);
    assert_non_null(strstr(err.text, "leads nowhere"));
    snprintf(below, sizeof below, "%s/store", file);
    hf__machine_file = below;
    assert_int_equal(opens(url, &err), HF_INVALID);
    unlink(file);
    assert_int_equal(opens(url, &err), 0); /* there is no such folder */
    hf__machine_file = file;
    /* A link to a file is as good as the file. */
    snprintf(away, sizeof away, "%s/linked", folder);
    write_line("mem:");
    assert_int_equal(rename(file, away), 0);
    assert_int_equal(symlink(away, file), 0);
    assert_int_equal(opens(url, &err), HF_INVALID);
    assert_non_null(strstr(err.text, "each process"));
    unlink(file);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_variable_the_file_and_the_users_own),
        cmocka_unit_test(a_variable_that_names_no_store_for_all),
        cmocka_unit_test(a_file_that_names_no_store_for_all),
        cmocka_unit_test(what_is_no_file_in_its_place),
    };
    if (!mkdtemp(folder)) return 1;
    snprintf(file, sizeof file, "%s/store", folder);
    hf__machine_file = file;
    unsetenv("HOLDFAST_STORE");
    setenv("XDG_STATE_HOME", folder, 1);
    int failed = TEST_MAIN(tests);
    char command[100];
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    return system(command) || failed;
}
