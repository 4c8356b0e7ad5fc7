/*
 * s3_names.c - the driver s3: names of objects: no two keys have one, each is a key's again, and
 * none is too long for S3, or for a file.
 */
#include "s3/store.h"
#include "test.h"

#include <stdio.h>
#include <string.h>

static void fits(const char *name)
{
    size_t part = 0, longest = 0;
    for (const char *p = name; *p; p++) {
        part = *p == '/' ? 0 : part + 1;
        if (part > longest) longest = part;
    }
    assert_true(longest <= 255);
    /* It fits with the longest prefix, too. */
    assert_true(strlen(name) + HF_S3_PREFIX - 1 <= HF_S3_NAME);
}

static void same(const char *key, size_t len)
{
    char name[HF_S3_NAME + 1], again[HF_KEY_CAP];
    uint32_t again_len;
    hf__s3_name(key, len, name);
    fits(name);
    if (!hf__s3_key(name, again, &again_len)) fail_msg("'%s' is no name", name);
    assert_int_equal(again_len, len);
    assert_memory_equal(again, key, len);
}

static void each_name_is_its_key_s(void **state)
{
    (void)state;
    static const char *const keys[] = {"a",      "deploy/web", ".",  "..",
                                       ".a.b",   "a/b/",       "~~", "~2F",
                                       "a b%_*", "\xc3\xa4/~", "A",  "a+b&c=d"};
    char key[HF_KEY_CAP];
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) same(keys[i], strlen(keys[i]));
    for (size_t len = 1; len < HF_KEY_CAP; len++)
        for (int way = 0; way < 3; way++) {
            static const char *const of[] = {"a", "/", "\xf0\x9f\x94\x92"};
            for (size_t i = 0; i < len; i++) key[i] = of[way][i % strlen(of[way])];
            same(key, len);
        }
}

static void names_are_as_documented(void **state)
{
    (void)state;
    char name[HF_S3_NAME + 1];
    hf__s3_name("deploy/web", 10, name);
    assert_string_equal(name, "deploy~2Fweb");
    hf__s3_name(".x", 2, name);
    assert_string_equal(name, "~2Ex");
}

static void what_is_no_key_s_is_none(void **state)
{
    (void)state;
    static const char *const names[] = {"",     "a/b", "~",    "~2",    "~2f", "~41",
                                        "a~00", "~~",  "~~YQ", ".",     "a b", "a%20",
                                        "~~/",  "x~~", "a/~",  "~~a~/b"};
    char key[HF_KEY_CAP];
    uint32_t len;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (hf__s3_key(names[i], key, &len)) fail_msg("'%s' is a key's", names[i]);
}

static void elements_are_found_and_ended(void **state)
{
    (void)state;
    char to[8];
    const char *xml = "<A><Key>x&amp;y</Key><Key>longer than that</Key><Key>", *at;
    assert_non_null(at = hf__s3_element(xml, "Key", to, sizeof to));
    assert_string_equal(to, "x&y");
    assert_non_null(at = hf__s3_element(at, "Key", to, sizeof to));
    assert_string_equal(to, "longer ");
    assert_null(hf__s3_element(at, "Key", to, sizeof to));
    assert_null(hf__s3_element(NULL, "Key", to, sizeof to));
    assert_string_equal(to, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_name_is_its_key_s),
        cmocka_unit_test(names_are_as_documented),
        cmocka_unit_test(what_is_no_key_s_is_none),
        cmocka_unit_test(elements_are_found_and_ended),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
