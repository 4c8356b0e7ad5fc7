/*
 * kit_options.c - drivers/kit/url_options.h: a table of options, the password file, TLS.
 */
#include "kit/url_options.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

static char table[8], db[8], passfile[64];
static int tls;
static const struct hf__option options[] = {{"table", HF_TEXT_OPTION(table)},
                                            {"tls", .is_on = &tls},
                                            {"passfile", HF_TEXT_OPTION(passfile)},
                                            {"db", HF_TEXT_OPTION(db)}};
static hf_error err;

static int reads(const char *query)
{
    hf_url url;
    memset(&url, 0, sizeof url);
    snprintf(url.query, sizeof url.query, "%s", query);
    snprintf(url.safe, sizeof url.safe, "x://h");
    err.text[0] = 0;
    tls = -1;
    return hf__options("x", &url, options, COUNT(options), &err);
}

static void values_go_to_their_places(void **state)
{
    (void)state;
    assert_int_equal(reads("table=abcdefg&tls=on"), 0);
    assert_string_equal(table, "abcdefg");
    assert_string_equal(db, "");
    assert_int_equal(tls, 1);
    assert_int_equal(reads("db=abcdefg&tls=off&passfile=p"), 0);
    assert_string_equal(table, "");
    assert_string_equal(db, "abcdefg");
    assert_string_equal(passfile, "p");
    assert_int_equal(tls, 0);
    assert_int_equal(reads(""), 0);
    assert_string_equal(passfile, "");
    assert_int_equal(tls, -1);
}

static void what_is_wrong_is_said(void **state)
{
    (void)state;
    static const struct {
        const char *query, *text;
    } bad[] = {
        {"tabel=1", "x: open 'x://h': unknown option 'tabel'; did you mean 'table'?"},
        {"TLS=on", "x: open 'x://h': unknown option 'TLS'"},
        {"pasfil=1", "x: open 'x://h': unknown option 'pasfil'; did you mean 'passfile'?"},
        {"d=1", "x: open 'x://h': unknown option 'd'"},
        {"dbs=1", "x: open 'x://h': unknown option 'dbs'; did you mean 'db'?"},
        {"nothing=1", "x: open 'x://h': unknown option 'nothing'"},
        {"=1", "x: open 'x://h': unknown option ''"},
        {"db=", "x: open 'x://h': db: empty, too long, or given twice"},
        {"db=abcdefgh", "x: open 'x://h': db: empty, too long, or given twice"},
        {"db=a&db=a", "x: open 'x://h': db: empty, too long, or given twice"},
        {"tls=yes", "x: open 'x://h': tls: not 'on' or 'off'"},
        {"tls=on&tls=on", "x: open 'x://h': tls: not 'on' or 'off'"},
        {"tls=", "x: open 'x://h': tls: not 'on' or 'off'"},
    };
    for (size_t i = 0; i < COUNT(bad); i++) {
        assert_int_equal(reads(bad[i].query), HF_INVALID);
        assert_string_equal(err.text, bad[i].text);
    }
    char query[600] = "";
    memset(query, 'a', sizeof query - 1); /* a name longer than any */
    assert_int_equal(reads(query), HF_INVALID);
}

static void a_table_may_be_long(void **state)
{
    (void)state;
    enum { N = 40 };
    char name[N][8], value[N][8];
    struct hf__option many[N];
    hf_url url;
    memset(&url, 0, sizeof url);
    snprintf(url.query, sizeof url.query, "n39=a&n0=b");
    for (int i = 0; i < N; i++) {
        snprintf(name[i], sizeof name[i], "n%d", i);
        many[i] = (struct hf__option){name[i], HF_TEXT_OPTION(value[i])};
    }
    assert_int_equal(hf__options("x", &url, many, N, &err), 0);
    assert_string_equal(value[39], "a");
    assert_string_equal(value[0], "b");
}

static void files_turn_tls_on(void **state)
{
    (void)state;
    hf_url url;
    struct hf__tls_files none = {"", "", ""}, some = {"", "", "/key"};
    static const struct {
        int given, files, code, tls;
    } cases[] = {{-1, 0, 0, 0}, {-1, 1, 0, 1}, {1, 0, 0, 1},
                 {1, 1, 0, 1},  {0, 0, 0, 0},  {0, 1, HF_INVALID, 0}};
    memset(&url, 0, sizeof url);
    for (size_t i = 0; i < COUNT(cases); i++) {
        tls = cases[i].given;
        assert_int_equal(
            hf__option_tls("x", &url, "tls", cases[i].files ? &some : &none, &tls, &err),
            cases[i].code);
        assert_int_equal(tls, cases[i].tls);
    }
}

static void a_password_file_beside_a_password_is_refused(void **state)
{
    (void)state;
    char path[] = "/tmp/kit_options_XXXXXX", word[HF_SECRET_CAP], why[HF_KIT_WHY];
    struct hf__secret secret;
    hf_url url;
    memset(&url, 0, sizeof url);
    memset(&secret, 0, sizeof secret);
    int fd = mkstemp(path);
    assert_int_equal(write(fd, "word\n", 5), 5);
    close(fd);
    assert_int_equal(hf__option_passfile("x", &url, "", &secret, &err), 0);
    assert_int_equal(hf__password_get(&secret, "given", word, why), 0);
    assert_string_equal(word, "given");
    assert_int_equal(hf__option_passfile("x", &url, path, &secret, &err), 0);
    assert_int_equal(hf__password_get(&secret, "given", word, why), 0);
    assert_string_equal(word, "word");
    unlink(path);
    assert_int_equal(hf__password_get(&secret, "given", word, why), HF_UNAVAILABLE);
    assert_int_equal(hf__option_passfile("x", &url, path, &secret, &err), HF_UNAVAILABLE);
    snprintf(url.password, sizeof url.password, "given");
    assert_int_equal(hf__option_passfile("x", &url, path, &secret, &err), HF_INVALID);
    assert_non_null(strstr(err.text, "passfile: there is a password already"));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_go_to_their_places),
        cmocka_unit_test(what_is_wrong_is_said),
        cmocka_unit_test(a_table_may_be_long),
        cmocka_unit_test(files_turn_tls_on),
        cmocka_unit_test(a_password_file_beside_a_password_is_refused),
    };
    return TEST_MAIN(tests);
}
