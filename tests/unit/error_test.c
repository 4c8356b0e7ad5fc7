/*
 * error_test.c - codes, names, texts, exit statuses, and the texts of errors.
 */
#include "holdfast_driver.h"
#include "test.h"

#include <string.h>

static void every_code_has_a_name_a_text_and_a_status(void **state)
{
    (void)state;
#define CHECK(name, number, status, text, state_text, action)                    \
    assert_int_equal(HF_##name, number);                                         \
    assert_string_equal(hf_code_name(number), #name);                            \
    assert_string_equal(hf_code_text(number), text);                             \
    assert_string_equal(hf_code_state(number), state_text);                      \
    assert_string_equal(hf_code_action(number), action);                         \
    assert_true(*hf_code_state(number) && (!number || *hf_code_action(number))); \
    assert_int_equal(hf_code_exit_status(number), status);
    HF_CODES(CHECK)
#undef CHECK
}

static void an_unknown_code_is_named_as_such(void **state)
{
    (void)state;
    assert_string_equal(hf_code_name(-999), "?");
    assert_string_equal(hf_code_name(1), "?");
    assert_string_equal(hf_code_text(-999), "unknown code");
    assert_string_equal(hf_code_state(-999), "");
    assert_string_equal(hf_code_action(-999), "");
    assert_int_equal(hf_code_exit_status(-999), 70);
}

static void fail_fills_the_error_and_returns_the_code(void **state)
{
    (void)state;
    hf_error err;
    assert_int_equal(hf_fail(&err, HF_FULL, 28, "file: replace '%s': no space", "k"), HF_FULL);
    assert_int_equal(err.code, HF_FULL);
    assert_int_equal(err.sys, 28);
    assert_string_equal(err.text, "file: replace 'k': no space");
}

static void fail_accepts_no_error(void **state)
{
    (void)state;
    assert_int_equal(hf_fail(NULL, HF_LOST, 0, "%s", "unheard"), HF_LOST);
}

static void a_text_is_one_harmless_line_whatever_is_in_it(void **state)
{
    (void)state;
    hf_error err;
    (void)hf_fail(&err, HF_INVALID, 0, "key '%s'", "a\nb\033[2J\177\xc3\xa9");
    assert_string_equal(err.text, "key 'a?b?[2J?\xc3\xa9'");
}

static void a_long_text_is_cut_and_ended(void **state)
{
    (void)state;
    hf_error err;
    char arg[2 * HF_TEXT_CAP];
    memset(arg, 'x', sizeof arg - 1);
    arg[sizeof arg - 1] = 0;
    (void)hf_fail(&err, HF_INVALID, 0, "%s", arg);
    assert_int_equal(strlen(err.text), HF_TEXT_CAP - 1);
}

static void the_version_is_the_headers(void **state)
{
    (void)state;
    assert_string_equal(hf_version(), HF_VERSION);
    assert_string_equal(hf_version(), PROJECT_VERSION);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_has_a_name_a_text_and_a_status),
        cmocka_unit_test(an_unknown_code_is_named_as_such),
        cmocka_unit_test(fail_fills_the_error_and_returns_the_code),
        cmocka_unit_test(fail_accepts_no_error),
        cmocka_unit_test(a_text_is_one_harmless_line_whatever_is_in_it),
        cmocka_unit_test(a_long_text_is_cut_and_ended),
        cmocka_unit_test(the_version_is_the_headers),
    };
    return TEST_MAIN(tests);
}
