/*
 * kit_text.c - drivers/kit/text.h: request ids, keys in few characters, SQL names, the options of a
 * URL.
 */
#include "kit/text.h"
#include "test.h"

#include <stdio.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

static void ids_are_hex_digits(void **state)
{
    (void)state;
    static const uint8_t id[16] = {0x00, 0x1f, 0xa0, [15] = 0xff};
    static const char *const bad[] = {"",
                                      "0",
                                      "001FA0000000000000000000000000ff",
                                      "001fa0000000000000000000000000f",
                                      "001fa0000000000000000000000000ff0",
                                      "001fa0000000000000000000000000fg"};
    char text[33];
    uint8_t back[16];
    hf__put_id(text, id);
    assert_string_equal(text, "001fa0000000000000000000000000ff");
    assert_true(hf__read_id(text, 32, back));
    assert_memory_equal(back, id, sizeof id);
    for (size_t i = 0; i < COUNT(bad); i++) assert_false(hf__read_id(bad[i], strlen(bad[i]), back));
}

static void bytes_are_marked(void **state)
{
    (void)state;
    static const char *const bad[] = {"=", "=4", "=4g", "=4a", "=00", "a=00"};
    char text[3 * HF_KEY_CAP + 1], back[HF_KEY_CAP], *at = text;
    uint32_t len = 0;
    for (int byte = 1; byte < 256; byte++) at = hf__put_marked(at, '=', (char)byte);
    memcpy(at, "az", 3);
    assert_memory_equal(text, "=01=02", 6);
    assert_memory_equal(at - 6, "=FE=FF", 6);
    assert_true(hf__read_marked(text, '=', back, &len));
    assert_int_equal(len, 257);
    for (int byte = 1; byte < 256; byte++) assert_int_equal((unsigned char)back[byte - 1], byte);
    assert_string_equal(back + 255, "az");
    for (size_t i = 0; i < COUNT(bad); i++) assert_false(hf__read_marked(bad[i], '=', back, &len));
    /* The longest key, and one that is longer. */
    for (size_t i = 0, most = HF_KEY_CAP - 1; i < 2; i++, most++) {
        for (at = text; at < text + 3 * most;) at = hf__put_marked(at, '=', 'x');
        *at = 0;
        assert_int_equal(hf__read_marked(text, '=', back, &len), !i);
    }
}

static void names_are_quoted(void **state)
{
    (void)state;
    char to[160], wide[80];
    assert_int_equal(hf__quote_name("a\"b", '"', to, sizeof to), 0);
    assert_string_equal(to, "\"a\"\"b\"");
    memset(wide, 'w', sizeof wide);
    wide[63] = 0;
    assert_int_equal(hf__quote_name(wide, '"', to, sizeof to), 0);
    assert_int_equal(hf__quote_name(wide, '"', to, 128), HF_INVALID);
    wide[63] = 'w';
    wide[64] = 0;
    assert_int_equal(hf__quote_name(wide, '"', to, sizeof to), HF_INVALID);
    assert_int_equal(hf__quote_name("", '"', to, sizeof to), HF_INVALID);
    assert_int_equal(hf__quote_name("a\nb", '"', to, sizeof to), HF_INVALID);
    assert_int_equal(hf__quote_name("\xff", '"', to, sizeof to), HF_INVALID);
}

static void unknown_options_are_named(void **state)
{
    (void)state;
    static const char *const known[] = {"table", "tls", NULL};
    static const char *const good[] = {"", "&", "table=1", "tls", "tls&table=a&", "&&tls="};
    static const struct {
        const char *query, *name;
    } bad[] = {{"tables=1", "tables"},   {"tabl", "tabl"},
               {"tls=1&x", "x"},         {"=7", ""},
               {"tls&TLS=1&y=2", "TLS"}, {"an-option-of-many-letters=1", "an-option-"}};
    char name_of[11];
    hf_url url;
    memset(&url, 0, sizeof url);
    for (size_t i = 0; i < COUNT(good); i++) {
        snprintf(url.query, sizeof url.query, "%s", good[i]);
        assert_null(hf__unknown_option(&url, known, name_of, sizeof name_of));
    }
    for (size_t i = 0; i < COUNT(bad); i++) {
        snprintf(url.query, sizeof url.query, "%s", bad[i].query);
        const char *told = hf__unknown_option(&url, known, name_of, sizeof name_of);
        assert_non_null(told);
        assert_string_equal(told, bad[i].name);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_are_hex_digits),
        cmocka_unit_test(bytes_are_marked),
        cmocka_unit_test(names_are_quoted),
        cmocka_unit_test(unknown_options_are_named),
    };
    return TEST_MAIN(tests);
}
