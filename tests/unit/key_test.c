/*
 * key_test.c - which keys are legal, and their hash.
 */
#include "holdfast_driver.h"
#include "shown.h"
#include "test.h"

#include <stdio.h>
#include <string.h>

static void legal_keys_are_taken_as_they_are(void **state)
{
    (void)state;
    static const char *const good[] = {
        "a",
        " ",
        "/",
        "//",
        ".",
        "..",
        "screenings/12/A/5",
        "\"'\\%_*[]?",
        "a\xc2\xa0z",
        "\xc3\xa9",
        "e\xcc\x81",
        "\xe2\x82\xac",
        "\xed\x9f\xbf",
        "\xee\x80\x80",
        "\xef\xbf\xbf",
        "\xf0\x90\x80\x80",
        "\xf0\x9f\x94\x92",
        "\xf4\x8f\xbf\xbf",
        "\xdf\xbf",
        "\xe0\xa0\x80",
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        uint64_t hint = 7;
        hf_rowkey key = {.hint = &hint};
        hf_error err = {0, 0, ""};
        memset(&key, 0xff, sizeof key);
        if (hf_key_make(good[i], &key, &err)) fail_msg("%s: %s", good[i], err.text);
        assert_true(!key.hint && !key.who && !key.in_line); /* whatever was there before */
        assert_ptr_equal(key.text, good[i]);
        assert_int_equal(key.len, strlen(good[i]));
        assert_true(key.hash == hf_key_hash(good[i], strlen(good[i])));
        assert_null(key.hint);
    }
}

static void illegal_keys_are_refused_with_the_reason(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        {"", "empty"},
        {"a\nb", "control character at byte 1"},
        {"\x01", "control"},
        {"ab\x1f", "control character at byte 2"},
        {"\x7f", "control"},
        {"\xc2\x80", "control"},
        {"\xc2\x9f", "control"},
        {"\x80", "UTF-8"},
        {"a\xff", "not UTF-8 at byte 1"},
        {"\xc0\xaf", "UTF-8"},         /* too long for its value */
        {"\xc1\xbf", "UTF-8"},         /* the same */
        {"\xe0\x9f\xbf", "UTF-8"},     /* the same */
        {"\xf0\x8f\xbf\xbf", "UTF-8"}, /* the same */
        {"\xed\xa0\x80", "UTF-8"},     /* a surrogate */
        {"\xf4\x90\x80\x80", "UTF-8"}, /* above U+10FFFF */
        {"\xf5\x80\x80\x80", "UTF-8"},
        {"\xc3", "UTF-8"}, /* cut */
        {"\xe2\x82", "UTF-8"},
        {"\xf0\x9f\x94", "UTF-8"},
        {"\xc3z", "UTF-8"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        hf_rowkey key, before;
        hf_error err = {0, 0, ""};
        memset(&key, 'x', sizeof key);
        before = key;
        assert_int_equal(hf_key_make(bad[i][0], &key, &err), HF_INVALID);
        if (!strstr(err.text, bad[i][1])) fail_msg("'%s' for number %zu", err.text, i);
        assert_memory_equal(&key, &before, sizeof key);
    }
    hf_rowkey key;
    assert_int_equal(hf_key_make(NULL, &key, NULL), HF_INVALID);
}

static void the_longest_key_has_512_bytes(void **state)
{
    (void)state;
    char text[600];
    hf_rowkey key;
    hf_error err;
    for (size_t n = 508; n < 520; n++) {
        memset(text, 'k', n);
        text[n] = 0;
        assert_int_equal(hf_key_make(text, &key, &err), n <= 512 ? 0 : HF_INVALID);
        if (n > 512) assert_non_null(strstr(err.text, "longer than 512 bytes"));
        /* A character across the limit. */
        memcpy(text + n - 2, "\xc3\xa9", 2);
        assert_int_equal(hf_key_make(text, &key, NULL), n <= 512 ? 0 : HF_INVALID);
    }
}

/* The hash isn't cryptographic, but keys as people make them must not collide. */
static void hashes_spread(void **state)
{
    (void)state;
    enum { KEYS = 65536 };
    static unsigned char low[KEYS], high[KEYS];
    unsigned worst_low = 0, worst_high = 0;
    for (unsigned i = 0; i < KEYS; i++) {
        char text[40];
        int n = snprintf(text, sizeof text, "screenings/%u/%c/%u", i / 600,
                         'A' + (int)(i / 40 % 15), i % 40);
        uint64_t h = hf_key_hash(text, (size_t)n);
        unsigned a = ++low[h % KEYS], b = ++high[h >> 48];
        if (a > worst_low) worst_low = a;
        if (b > worst_high) worst_high = b;
    }
    /* 65,536 balls in as many bins: ten in one happens once in a hundred tries. */
    assert_in_range(worst_low, 5, 12);
    assert_in_range(worst_high, 5, 12);
}

/* What a terminal would obey, or what makes a text look like another one, is never shown. */
static void text_for_people_has_nothing_hidden(void **state)
{
    (void)state;
    static const struct {
        const char *text, *shown;
    } texts[] = {
        {"", ""},
        {"a\xc3\xa9\xe9\x8d\xb5\xf0\x9f\x94\x92z", "a\xc3\xa9\xe9\x8d\xb5\xf0\x9f\x94\x92z"},
        {"a\nb\x1b]\x7f.", "a?b?]?."},
        {"\xc2\x80 \xc2\x9f \xc2\xa0", "? ? \xc2\xa0"}, /* C1 */
        {"x\xe2\x80\xae"
         "cba\xe2\x81\xa6y\xd8\x9c",
         "x?cba?y?"}, /* direction */
        {"a\xe2\x80\xa8"
         "b\xe2\x80\xa9.",
         "a?b?."}, /* lines */
        {"a\xe2\x80\x8b"
         "b\xef\xbb\xbf"
         "c\xc2\xad",
         "a?b?c?"},                                               /* no width */
        {"\xf3\xa0\x80\x81\xf3\xa0\x81\xbf", "??"},               /* tags */
        {"\xe2\x80\x8c\xe2\x80\x8d", "\xe2\x80\x8c\xe2\x80\x8d"}, /* parts of words */
        {"\xff\xc3 \xe2\x80", "?? ??"},                           /* no UTF-8 */
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char shown[64], same[64];
        hf__show_text(texts[i].text, shown, sizeof shown);
        assert_string_equal(shown, texts[i].shown);
        snprintf(same, sizeof same, "%s", texts[i].text);
        hf__show_text(same, same, sizeof same);
        assert_string_equal(same, texts[i].shown);
        hf_error err;
        hf_fail(&err, HF_INVALID, 0, "%s", texts[i].text);
        assert_string_equal(err.text, texts[i].shown);
    }
    char small[4]; /* never cut within a character */
    hf__show_text("a\xe9\x8d\xb5", small, sizeof small);
    assert_string_equal(small, "a");
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(legal_keys_are_taken_as_they_are),
        cmocka_unit_test(illegal_keys_are_refused_with_the_reason),
        cmocka_unit_test(the_longest_key_has_512_bytes),
        cmocka_unit_test(hashes_spread),
        cmocka_unit_test(text_for_people_has_nothing_hidden),
    };
    return TEST_MAIN(tests);
}
