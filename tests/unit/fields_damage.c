/*
 * fields_damage.c - drivers/kit/columns.h: fields that are no row of format 2 are refused, each
 * with its reason.
 */
#include "kit/columns.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ID       "00112233445566778899aabbccddeeff"
#define ID2      "f0112233445566778899aabbccddeeff"
#define COUNT(a) (sizeof(a) / sizeof *(a))
#define LONGER   "0123456789012345678901234567890123456789012345678901234567890123456789"

static struct hf__fields held(void)
{
    struct hf__fields f = HF_NO_FIELDS;
    for (int i = 0; i < HF_FIELDS; i++) {
        if (hf__field[i].kind == HF_NUMBER)
            hf__got_number(&f, i, 5);
        else
            hf__got_text(&f, i, "", 0);
    }
    f.n[HF_FIELD_FORMAT] = 2;
    hf__got_text(&f, HF_FIELD_OWNER, "me", 2);
    hf__got_text(&f, HF_FIELD_REQUEST, ID, 32);
    return f;
}

/* Checks that the fields are read as damage, and that the message says so; `says` NULL: they are
   sound. Frees the fields. */
static void is_damaged(struct hf__fields *f, enum hf__json_as as, const char *says)
{
    const char *why = NULL;
    hf_row row;
    hf_row_init(&row);
    /* values that a failed read must not leave in the row */
    row.rev = row.token = row.n_holders = 1;
    int rc = hf__read_fields(f, as, &row, &why);
    if (!says && rc) fail_msg("%d: %s", rc, why);
    if (says && (rc != HF_CORRUPT || !why || !strstr(why, says)))
        fail_msg("%d, %s: not %s", rc, why ? why : "", says);
    if (says) assert_true(!row.rev && !row.token && !row.n_holders && !row.n_queue && !row.done_us);
    hf__free_fields(f);
    hf_row_clear(&row);
}

static void numbers_out_of_range_are_damage(void **state)
{
    (void)state;
    static const struct {
        enum hf__field_number field;
        int64_t n;
        const char *says;
    } cases[] = {
        {HF_FIELD_FORMAT, 1, "another format"},   {HF_FIELD_FORMAT, 3, "another format"},
        {HF_FIELD_REV, 0, "rev or token"},        {HF_FIELD_REV, INT64_MIN, "rev or token"},
        {HF_FIELD_REV, INT64_C(1) << 53, "2^53"}, {HF_FIELD_TOKEN, -1, "rev or token"},
        {HF_FIELD_TOKEN, 6, "token above rev"},   {HF_FIELD_TOKEN, 0, "without a token"},
        {HF_FIELD_LEASE, -1, "lease_ms"},         {HF_FIELD_LEASE, INT64_C(1) << 32, "lease_ms"},
        {HF_FIELD_EXPIRES, -1, "negative time"},  {HF_FIELD_EXPIRES, 0, "never end"},
        {HF_FIELD_ACQUIRED, -1, "negative time"},
    };
    struct hf__fields sound = held();
    is_damaged(&sound, HF_JSON_TEXT, NULL);
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct hf__fields f = held();
        f.n[cases[i].field] = cases[i].n;
        is_damaged(&f, HF_JSON_TEXT, cases[i].says);
    }
}

static void texts_that_do_not_fit_are_damage(void **state)
{
    (void)state;
    char wide[600];
    struct {
        enum hf__field_number field;
        const char *text;
        size_t len;
        const char *says;
    } cases[] = {
        {HF_FIELD_OWNER, wide, HF_OWNER_CAP, "owner: too long"},
        {HF_FIELD_OWNER, "a\0b", 3, "owner: too long"},
        {HF_FIELD_OWNER, "(ended)", 7, "reserved owner"},
        {HF_FIELD_NOTE, wide, HF_NOTE_CAP, "note: too long"},
        {HF_FIELD_NOTE, "\0", 1, "note: too long"},
        {HF_FIELD_REQUEST, "", 0, "not 32 hex digits"},
        {HF_FIELD_REQUEST, ID, 31, "not 32 hex digits"},
        {HF_FIELD_REQUEST, "00112233445566778899AAbbccddeeff", 32, "not 32 hex digits"},
        {HF_FIELD_REQUEST, "00112233445566778899aabbccddeefg", 32, "not 32 hex digits"},
        {HF_FIELD_REQUEST, "0011223344556677:899aabbccddeeff", 32, "not 32 hex digits"},
        {HF_FIELD_REQUEST, "00112233445566778899aabbccddee0`", 32, "not 32 hex digits"},
    };
    memset(wide, 'w', sizeof wide);
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct hf__fields f = held();
        hf__got_text(&f, cases[i].field, cases[i].text, cases[i].len);
        is_damaged(&f, HF_JSON_TEXT, cases[i].says);
    }
}

static void fields_that_are_missing_are_damage(void **state)
{
    (void)state;
    for (int i = 0; i < HF_FIELDS; i++) {
        struct hf__fields f = held();
        int optional = i >= HF_FIELD_MORE;
        f.got &= ~(1u << i);
        is_damaged(&f, HF_JSON_TEXT, optional ? NULL : hf__field[i].name);
        f = held();
        hf__got_other(&f, i);
        is_damaged(&f, HF_JSON_TEXT, hf__field[i].name);
    }
    struct hf__fields none = HF_NO_FIELDS;
    is_damaged(&none, HF_JSON_TREE, "'format' is missing");
    assert_int_equal(hf__field_of("more"), HF_FIELD_MORE);
    assert_int_equal(hf__field_of("key"), -1);
}

static const struct {
    enum hf__field_number field;
    const char *text, *says;
} bad_json[] = {
    {HF_FIELD_MORE, "[", "more"},
    {HF_FIELD_MORE, "17", "more"},
    {HF_FIELD_MORE, "[]", "more"},
    {HF_FIELD_MORE, "{\"mode\": 3}", "more"},
    {HF_FIELD_MORE, "{\"mode\": \"1\"}", "more"},
    {HF_FIELD_MORE, "{\"mode\": 1.0}", "more"},
    {HF_FIELD_MORE, "{\"mode\": 2}", "limit 0"},
    {HF_FIELD_MORE, "{\"limit\": -1}", "more"},
    {HF_FIELD_MORE, "{\"limit\": 4294967296}", "more"},
    {HF_FIELD_MORE, "{\"token\": -1}", "more"},
    {HF_FIELD_MORE, "{\"token\": 6}", "above the last"},
    {HF_FIELD_MORE, "{\"flags\": 256}", "more"},
    {HF_FIELD_MORE, "{\"claim_ms\": -1}", "more"},
    {HF_FIELD_MORE, "{\"bell\": 256}", "more"},
    {HF_FIELD_MORE, "{\"session\": 9223372036854775808}", "more"},
    {HF_FIELD_MORE, "{\"expires_us\": 9}", "doesn't know"},
    {HF_FIELD_MORE, "{\"whatever\": 1}", "doesn't know"},
    {HF_FIELD_MORE, "{\"mode\": 1, \"mode\": 0}", "more"},
    {HF_FIELD_MORE, "{\"owner\": \"ann\"}", "more"},
    {HF_FIELD_MORE, "{\"flags\": 4, \"owner\": \"ann\"}", "reserved owner"},
    {HF_FIELD_MORE, "{\"holders\": {}}", "holders"},
    {HF_FIELD_MORE, "{\"holders\": [7]}", "holders"},
    {HF_FIELD_MORE, "{\"holders\": [{\"request\": \"" ID2 "\", \"owner\": \"a\", \"note\": \"\"}]}",
     "without a token"},
    {HF_FIELD_MORE,
     "{\"holders\": [{\"request\": \"" ID "\", \"owner\": \"a\", \"note\": \"\", "
     "\"token\": 4, \"expires_us\": 9}]}",
     "an exclusive holder beside another"},
    {HF_FIELD_QUEUE, "{}", "the queue"},
    {HF_FIELD_QUEUE, "[", "the queue"},
    {HF_FIELD_QUEUE, "()", "the queue"},
    {HF_FIELD_QUEUE, "[17]", "the queue"},
    {HF_FIELD_QUEUE, "[{}]", "the queue"},
    {HF_FIELD_QUEUE, "[{\"request\": \"" ID2 "x\", \"owner\": \"a\", \"note\": \"\"}]",
     "the queue"},
    {HF_FIELD_QUEUE, "[{\"request\": \"" ID2 "\", \"note\": \"\"}]", "the queue"},
    {HF_FIELD_QUEUE, "[{\"request\": \"" ID2 "\", \"owner\": \"a\"}]", "the queue"},
    {HF_FIELD_QUEUE, "[{\"request\": \"" ID2 "\", \"owner\": 7, \"note\": \"\"}]", "the queue"},
    {HF_FIELD_QUEUE,
     "[{\"request\": \"" ID2 "\", \"owner\": \"" LONGER LONGER "\", \"note\": \"\"}]", "the queue"},
    {HF_FIELD_QUEUE, "[{\"request\": \"" ID2 "\", \"owner\": \"a\", \"note\": \"\", \"token\": 1}]",
     "waiter with a token"},
    {HF_FIELD_QUEUE, "[{\"request\": \"" ID "\", \"owner\": \"a\", \"note\": \"\"}]",
     "one request id"},
    {HF_FIELD_QUEUE, "[{\"request\": \"" ID2 "\", \"owner\": \"(ended)\", \"note\": \"\"}]",
     "reserved"},
    {HF_FIELD_DONE, "[]", "done"},
    {HF_FIELD_DONE, "{}", "done"},
    {HF_FIELD_DONE, "{\"done_us\": 0, \"keep_until_us\": 9, \"by\": \"\", \"result\": \"\"}",
     "done"},
    {HF_FIELD_DONE, "{\"done_us\": 1, \"keep_until_us\": -1, \"by\": \"\", \"result\": \"\"}",
     "done"},
    {HF_FIELD_DONE, "{\"done_us\": 1, \"by\": \"\", \"result\": \"\"}", "done"},
    {HF_FIELD_DONE, "{\"done_us\": 1, \"keep_until_us\": 9, \"result\": \"\"}", "done"},
    {HF_FIELD_DONE, "{\"done_us\": 1, \"keep_until_us\": 9, \"by\": \"\", \"result\": 7}", "done"},
    {HF_FIELD_DONE,
     "{\"done_us\": 1, \"keep_until_us\": 9, \"by\": \"" LONGER LONGER "\", \"result\": \"\"}",
     "done"},
};

static void json_that_is_another_is_damage(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(bad_json); i++) {
        struct hf__fields f = held();
        int field = (int)bad_json[i].field;
        hf__got_text(&f, field, bad_json[i].text, strlen(bad_json[i].text));
        is_damaged(&f, HF_JSON_TEXT, bad_json[i].says);
        json_t *tree = json_loads(bad_json[i].text, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, NULL);
        if (!tree) continue; /* a store of documents has no such thing */
        f = held();
        f.got &= ~(7u << HF_FIELD_MORE);
        hf__got_json(&f, field, tree);
        is_damaged(&f, HF_JSON_TREE, bad_json[i].says);
    }
}

static void more_and_a_waiter_may_be_read_without_a_holder(void **state)
{
    (void)state;
    static const char waits[] = "[{\"request\": \"" ID2 "\", \"owner\": \"a\", \"note\": \"\"}]";
    struct hf__fields f = held();
    hf__got_text(&f, HF_FIELD_QUEUE, waits, strlen(waits));
    hf__got_text(&f, HF_FIELD_OWNER, "", 0);
    is_damaged(&f, HF_JSON_TEXT, NULL);
    f = held();
    hf__got_text(&f, HF_FIELD_OWNER, "", 0);
    hf__got_text(&f, HF_FIELD_MORE, "{\"mode\":1}", 10);
    is_damaged(&f, HF_JSON_TEXT, "but there is none");
    f = held();
    hf__got_text(&f, HF_FIELD_OWNER, "", 0);
    hf__got_text(&f, HF_FIELD_MORE, "{}", 2); /* says nothing */
    is_damaged(&f, HF_JSON_TEXT, NULL);
}

static void a_tree_without_memory_is_not_an_empty_one(void **state)
{
    (void)state;
    for (int i = HF_FIELD_MORE; i < HF_FIELDS; i++) {
        const char *why;
        struct hf__fields f = held();
        f.got &= ~(7u << HF_FIELD_MORE);
        hf_row row;
        hf_row_init(&row);
        hf__got_json(&f, i, NULL);
        assert_int_equal(hf__read_fields(&f, HF_JSON_TREE, &row, &why), HF_NOMEM);
        assert_int_equal(row.rev, 0);
        hf_row_clear(&row);
    }
}

static void the_message_says_how_to_go_on(void **state)
{
    (void)state;
    const struct hf__row_reader where = {"sqlite", "get", "k", "DROP TABLE \"holdfast\""};
    const char *why;
    hf_error err = {0, 0, ""};
    hf_row row;
    hf_row_init(&row);
    struct hf__fields f = held();
    f.n[HF_FIELD_FORMAT] = 1;
    f.got = 1u << HF_FIELD_FORMAT; /* whatever other fields format 1 has */
    int rc = hf__read_fields(&f, HF_JSON_TEXT, &row, &why);
    assert_int_equal(rc, HF_CORRUPT);
    assert_int_equal(hf__fields_refused(&where, &f, rc, why, &err), HF_CORRUPT);
    assert_string_equal(err.text,
                        "sqlite: get 'k': this store has rows of format 1, and this version reads "
                        "format 2. Stop what uses the store and empty it: DROP TABLE \"holdfast\"; "
                        "the markers of events that were done once go with it");
    f.n[HF_FIELD_FORMAT] = 3; /* to be kept: a newer version needs it */
    assert_int_equal(hf__fields_refused(&where, &f, HF_CORRUPT, why, &err), HF_CORRUPT);
    assert_string_equal(err.text,
                        "sqlite: get 'k': the row is of format 3, and this version reads format 2: "
                        "it is damaged, or a newer version wrote it, which is to be used then");
    f.n[HF_FIELD_FORMAT] = 2;
    rc = hf__read_fields(&f, HF_JSON_TEXT, &row, &why);
    assert_int_equal(hf__fields_refused(&where, &f, rc, why, &err), HF_CORRUPT);
    assert_string_equal(err.text,
                        "sqlite: get 'k': the row is damaged: its field 'rev' is missing, "
                        "or of another type");
    assert_int_equal(hf__fields_refused(&where, &f, HF_NOMEM, "", &err), HF_NOMEM);
    assert_non_null(strstr(err.text, "out of memory"));
    hf_row_clear(&row);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_out_of_range_are_damage),
        cmocka_unit_test(texts_that_do_not_fit_are_damage),
        cmocka_unit_test(fields_that_are_missing_are_damage),
        cmocka_unit_test(json_that_is_another_is_damage),
        cmocka_unit_test(more_and_a_waiter_may_be_read_without_a_holder),
        cmocka_unit_test(a_tree_without_memory_is_not_an_empty_one),
        cmocka_unit_test(the_message_says_how_to_go_on),
    };
    return TEST_MAIN(tests);
}
