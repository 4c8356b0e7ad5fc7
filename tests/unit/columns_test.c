/*
 * columns_test.c - drivers/columns.h: rows as columns and back, what is damaged.
 */
#include "columns.h"
#include "test.h"

#include <string.h>

#define ID       "00112233445566778899aabbccddeeff"
#define COUNT(a) (sizeof(a) / sizeof *(a))

static void set(struct hf__flat *flat, enum hf__column col, const char *text)
{
    flat->text[col] = text;
    flat->len[col] = strlen(text);
}

/* Somebody holds it. */
static struct hf__flat held(void)
{
    struct hf__flat flat;
    memset(&flat, 0, sizeof flat);
    for (int i = 0; i < HF_COLS; i++) set(&flat, (enum hf__column)i, "");
    set(&flat, HF_COL_OWNER, "me");
    set(&flat, HF_COL_REQUEST, ID);
    set(&flat, HF_COL_OTHERS, "[]");
    set(&flat, HF_COL_QUEUE, "[]");
    flat.n[HF_COL_FORMAT] = HF_FORMAT_1;
    flat.n[HF_COL_EXPIRES] = 9;
    flat.n[HF_COL_REV] = flat.n[HF_COL_TOKEN] = flat.n[HF_COL_GRANT] = 5;
    return flat;
}

static void is_damaged(const struct hf__flat *flat, const char *says)
{
    const char *why = NULL;
    hf_row row;
    hf_row_init(&row);
    int rc = hf__unflatten(flat, &row, &why);
    if (says) {
        if (rc != HF_CORRUPT || !why || !strstr(why, says))
            fail_msg("%d, %s: not %s", rc, why ? why : "", says);
        assert_int_equal(row.rev, 0);
        assert_int_equal(row.n_holders, 0);
    } else if (rc) {
        fail_msg("%d, %s", rc, why);
    }
    hf_row_clear(&row);
}

static void numbers_out_of_range_are_damage(void **state)
{
    (void)state;
    static const struct {
        enum hf__column col;
        int64_t n;
        const char *says;
    } cases[] = {
        {HF_COL_FORMAT, HF_FORMAT_1 + 1, "another version"},
        {HF_COL_REV, 0, "rev or token"},
        {HF_COL_REV, INT64_MIN, "rev or token"},
        {HF_COL_TOKEN, -1, "rev or token"},
        {HF_COL_LEASE, -1, "out of range"},
        {HF_COL_LEASE, INT64_C(1) << 32, "out of range"},
        {HF_COL_MODE, HF_LIMITED + 1, "out of range"},
        {HF_COL_LIMIT, INT64_C(1) << 32, "out of range"},
        {HF_COL_CLAIM, INT64_C(1) << 32, "out of range"},
        {HF_COL_FLAGS, 256, "out of range"},
        {HF_COL_BELL, 256, "out of range"},
        {HF_COL_BELL, -1, "out of range"},
        {HF_COL_GRANT, -1, "out of range"},
        {HF_COL_GRANT, 6, ""}, /* greater than the rev */
    };
    struct hf__flat sound = held();
    is_damaged(&sound, NULL);
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct hf__flat flat = held();
        flat.n[cases[i].col] = cases[i].n;
        is_damaged(&flat, cases[i].says);
    }
}

static void texts_that_do_not_fit_are_damage(void **state)
{
    (void)state;
    char wide[600];
    struct {
        enum hf__column col;
        const char *text;
        size_t len;
        const char *says;
    } cases[] = {
        {HF_COL_OWNER, wide, HF_OWNER_CAP, "owner: too long"},
        {HF_COL_OWNER, "a\0b", 3, "owner: too long"},
        {HF_COL_NOTE, wide, HF_NOTE_CAP, "note: too long"},
        {HF_COL_NOTE, "\0", 1, "note: too long"},
        {HF_COL_DONE_BY, wide, HF_OWNER_CAP, "done_by: too long"},
        {HF_COL_RESULT, wide, HF_RESULT_CAP, "result: too long"},
        {HF_COL_REQUEST, ID, 31, "not 32 hex digits"},
        {HF_COL_REQUEST, "0011223344556677 899aabbccddeeff", 32, "not 32 hex digits"},
        {HF_COL_REQUEST, "00112233445566778899AAbbccddeeff", 32, "not 32 hex digits"},
        {HF_COL_REQUEST, "00112233445566778899aabbccddeefg", 32, "not 32 hex digits"},
        {HF_COL_REQUEST, "0011223344556677:899aabbccddeeff", 32, "not 32 hex digits"},
        {HF_COL_REQUEST, "00112233445566778899aabbccddee0`", 32, "not 32 hex digits"},
    };
    memset(wide, 'w', sizeof wide);
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct hf__flat flat = held();
        flat.n[HF_COL_DONE] = 7;
        flat.text[cases[i].col] = cases[i].text;
        flat.len[cases[i].col] = cases[i].len;
        is_damaged(&flat, cases[i].says);
    }
}

static void lists_that_are_none_are_damage(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "{}",
        "[",
        "17",
        "()",
        "[17]",
        "[{}]",
        "[{\"request\": 7}]",
        "[{\"request\": \"" ID "x\", \"owner\": \"a\", \"note\": \"\"}]",
        "[{\"request\": \"" ID "\", \"note\": \"\"}]",
        "[{\"request\": \"" ID "\", \"owner\": \"a\"}]",
        "[{\"request\": \"" ID "\", \"owner\": 7, \"note\": \"\"}]",
        "[{\"request\": \"" ID "\", \"owner\": \"a\", \"note\": \"\", \"token\": \"5\"}]",
        "[{\"request\": \"" ID "\", \"owner\": \"a\", \"note\": \"\", \"token\": -1}]",
        "[{\"request\": \"" ID "\", \"owner\": \"a\", \"note\": \"\", \"bell\": 256}]",
        "[{\"request\": \"" ID
        "\", \"owner\": \"012345678901234567890123456789012345678901234567890"
        "123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890"
        "1"
        "234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901"
        "23"
        "4567890123456789012345678901234567890123\", \"note\": \"\"}]",
    };
    for (size_t i = 0; i < COUNT(bad); i++) {
        struct hf__flat flat = held();
        set(&flat, HF_COL_QUEUE, bad[i]);
        is_damaged(&flat, "the queue is not a list of waiters");
        flat = held();
        set(&flat, HF_COL_OTHERS, bad[i]);
        is_damaged(&flat, "others is not a list of holders");
    }
    struct hf__flat flat = held();
    static const char one[] =
        "[{\"request\": \"f0112233445566778899aabbccddeeff\", \"owner\": \"a\", \"note\": \"\"}]";
    set(&flat, HF_COL_QUEUE, one);
    is_damaged(&flat, NULL);
    set(&flat, HF_COL_QUEUE, "[]");
    set(&flat, HF_COL_OWNER, "");
    set(&flat, HF_COL_OTHERS, one);
    is_damaged(&flat, "others hold it, but nobody does");
}

/* ---- what can't be stored ---- */

static void name(hf_party *p, unsigned n, const char *owner)
{
    memset(p, 0, sizeof *p);
    p->id[0] = (uint8_t)(n + 1);
    p->expires_us = 9;
    p->owner_len = (uint8_t)strlen(owner);
    memcpy(p->owner, owner, p->owner_len);
}

static void only_utf8_is_stored(void **state)
{
    (void)state;
    struct hf__flat flat;
    const char *why = NULL;
    hf_row row, back;
    hf_row_init(&row);
    hf_row_init(&back);
    assert_int_equal(hf_row_room(&row, 4), 0);
    row.rev = row.token = 5;
    row.n_holders = row.n_queue = 2;
    for (unsigned i = 0; i < 4; i++) {
        name(&row.party[i], i, "\xc3\xa9");
        row.party[i].mode = HF_SHARED;
        row.party[i].token = i < 2 ? 4 + i : 0;
    }
    assert_int_equal(hf__flatten(&row, &flat, &why), 0);
    assert_int_equal(hf__unflatten(&flat, &back, &why), 0);
    assert_true(hf_row_equal(&row, &back));
    hf__flat_free(&flat);
    for (unsigned i = 0; i < 4; i++) {
        row.party[i].owner[0] = (char)0xff;
        assert_int_equal(hf__flatten(&row, &flat, &why), HF_INVALID);
        assert_non_null(strstr(why, "is not UTF-8"));
        hf__flat_free(&flat);
        row.party[i].owner[0] = (char)0xc3;
        row.party[i].note_len = 1;
        row.party[i].note[0] = (char)0x80;
        assert_int_equal(hf__flatten(&row, &flat, &why), HF_INVALID);
        assert_non_null(strstr(why, "is not UTF-8"));
        hf__flat_free(&flat);
        row.party[i].note_len = 0;
    }
    row.done_us = 7;
    row.result_len = 1;
    row.result[0] = (char)0xff;
    assert_int_equal(hf__flatten(&row, &flat, &why), HF_INVALID);
    hf__flat_free(&flat);
    row.done_us = 0; /* then nobody looks at it */
    assert_int_equal(hf__flatten(&row, &flat, &why), 0);
    hf__flat_free(&flat);
    row.party[0].owner_len = 0;
    assert_int_equal(hf__flatten(&row, &flat, &why), HF_INVALID);
    assert_string_equal(why, "a holder without a name looks like none");
    hf__flat_free(&flat);
    hf_row_clear(&row);
    hf_row_clear(&back);
}

/* Of a free row they say whose grant ended last; what a person has written there is no damage. */
static void a_free_row_names_its_last_holder(void **state)
{
    (void)state;
    static const char *const unknown[] = {"", "by hand", "00112233445566778899aabbccddeefg"};
    static const uint8_t none[16];
    struct hf__flat flat = held();
    const char *why = NULL;
    hf_row row;
    hf_row_init(&row);
    set(&flat, HF_COL_OWNER, "");
    flat.n[HF_COL_GRANT] = flat.n[HF_COL_EXPIRES] = 0;
    assert_int_equal(hf__unflatten(&flat, &row, &why), 0);
    assert_int_equal(row.last_id[0], 0x00);
    assert_int_equal(row.last_id[15], 0xff);
    struct hf__flat again;
    assert_int_equal(hf__flatten(&row, &again, &why), 0);
    assert_int_equal(again.len[HF_COL_REQUEST], 32);
    assert_memory_equal(again.text[HF_COL_REQUEST], ID, 32);
    hf__flat_free(&again);
    for (size_t i = 0; i < COUNT(unknown); i++) {
        set(&flat, HF_COL_REQUEST, unknown[i]);
        assert_int_equal(hf__unflatten(&flat, &row, &why), 0);
        assert_memory_equal(row.last_id, none, sizeof none);
        assert_int_equal(hf__flatten(&row, &again, &why), 0);
        assert_int_equal(again.len[HF_COL_REQUEST], 0);
        hf__flat_free(&again);
    }
    hf_row_clear(&row);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_out_of_range_are_damage),
        cmocka_unit_test(texts_that_do_not_fit_are_damage),
        cmocka_unit_test(lists_that_are_none_are_damage),
        cmocka_unit_test(only_utf8_is_stored),
        cmocka_unit_test(a_free_row_names_its_last_holder),
    };
    return TEST_MAIN(tests);
}
