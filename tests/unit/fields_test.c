/*
 * fields_test.c - drivers/kit/columns.h: rows as the fields of format 2 and back, each field and
 * each flag. What is damaged: fields_damage.c.
 */
#include "kit/columns.h"
#include "test.h"

#include <stdio.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

/* ---- rows ---- */

static hf_party party(unsigned n, const char *owner)
{
    hf_party p;
    memset(&p, 0, sizeof p);
    p.id[0] = (uint8_t)(n + 1);
    p.since_us = 1000 + n;
    p.lease_ms = 30000;
    p.owner_len = (uint8_t)strlen(owner);
    memcpy(p.owner, owner, p.owner_len);
    p.note_len = (uint8_t)snprintf(p.note, sizeof p.note, "host=h pid=%u", n);
    return p;
}

/* A plain exclusive hold. */
static void hold(hf_row *row)
{
    hf_row_init(row);
    row->rev = row->token = 1764230400000000;
    row->n_holders = 1;
    row->party[0] = party(0, "ann");
    row->party[0].token = row->token;
    row->party[0].expires_us = 1764230430000000;
}

static void add(hf_row *row, hf_party p, int holds)
{
    assert_int_equal(hf_row_room(row, row->n_holders + row->n_queue + 1), 0);
    row->party[row->n_holders + row->n_queue] = p;
    if (holds)
        row->n_holders++;
    else
        row->n_queue++;
}

/* The fields of a row as a store reads them back, text or tree. */
static void tell(struct hf__fields *to, const struct hf__fields *from, enum hf__json_as as)
{
    for (int i = 0; i < HF_FIELDS; i++) {
        if (hf__field[i].kind == HF_NUMBER)
            hf__got_number(to, i, from->n[i]);
        else if (hf__field[i].kind == HF_TEXT || as == HF_JSON_TEXT)
            hf__got_text(to, i, from->text[i], from->len[i]);
        else if (from->json[i])
            hf__got_json(to, i, json_deep_copy(from->json[i]));
    }
}

/* There and back in both forms; `more`, `queue` and `done` are these texts. */
static void is_written(const hf_row *row, const char *more, const char *queue, const char *done)
{
    const char *const texts[] = {more, queue, done}, *why = NULL;
    hf_row back;
    hf_row_init(&back);
    for (int as = HF_JSON_TEXT; as <= HF_JSON_TREE; as++) {
        struct hf__fields f, read = HF_NO_FIELDS;
        assert_int_equal(hf__put_fields(row, (enum hf__json_as)as, &f, &why), 0);
        for (int i = 0; as == HF_JSON_TEXT && i < 3; i++)
            assert_string_equal(f.text[HF_FIELD_MORE + i], texts[i]);
        for (int i = 0; as == HF_JSON_TREE && i < 3; i++)
            assert_int_equal(f.json[HF_FIELD_MORE + i] != NULL, *texts[i] != 0);
        tell(&read, &f, (enum hf__json_as)as);
        int rc = hf__read_fields(&read, (enum hf__json_as)as, &back, &why);
        if (rc) fail_msg("%d: %s", rc, why);
        assert_true(hf_row_equal(row, &back));
        hf__free_fields(&f);
        hf__free_fields(&read);
    }
    hf_row_clear(&back);
}

static void a_plain_hold_needs_no_json(void **state)
{
    (void)state;
    struct hf__fields f;
    const char *why;
    hf_row row;
    hold(&row);
    is_written(&row, "", "", "");
    assert_int_equal(hf__put_fields(&row, HF_JSON_TEXT, &f, &why), 0);
    assert_int_equal(f.n[HF_FIELD_FORMAT], 2);
    assert_true(f.n[HF_FIELD_REV] == 1764230400000000 && f.n[HF_FIELD_TOKEN] == 1764230400000000);
    assert_true(f.n[HF_FIELD_EXPIRES] == 1764230430000000 && f.n[HF_FIELD_ACQUIRED] == 1000);
    assert_int_equal(f.n[HF_FIELD_LEASE], 30000);
    assert_string_equal(f.text[HF_FIELD_OWNER], "ann");
    assert_string_equal(f.text[HF_FIELD_NOTE], "host=h pid=0");
    assert_string_equal(f.text[HF_FIELD_REQUEST], "01000000000000000000000000000000");
    hf__free_fields(&f);
    hf_row_clear(&row);
}

static void each_number_beside_a_plain_hold_is_in_more(void **state)
{
    (void)state;
    hf_row row;
    hold(&row);
    hf_party plain = row.party[0], *p = row.party;
#define SAYS(change, text)              \
    do {                                \
        *p = plain;                     \
        change;                         \
        is_written(&row, text, "", ""); \
    } while (0)
    SAYS(p->mode = HF_SHARED, "{\"mode\":1}");
    SAYS((p->mode = HF_LIMITED, p->limit = 3), "{\"mode\":2,\"limit\":3}");
    SAYS(p->session = 7, "{\"session\":7}");
    SAYS(p->session = UINT64_MAX, "{\"session\":-1}");
    SAYS(p->claim_ms = 1000, "{\"claim_ms\":1000}");
    SAYS(p->wakeup = 3, "{\"bell\":3}");
    SAYS(p->flags = HF_PARTY_UNCLAIMED, "{\"flags\":1}");
    SAYS(p->flags = HF_PARTY_DETACHED, "{\"flags\":2}");
    SAYS(p->token--, "{\"token\":1764230399999999}");
    SAYS(p->flags = HF_PARTY_ENDING, "{\"flags\":4,\"owner\":\"ann\"}");
    SAYS((p->flags = HF_PARTY_ENDING | HF_PARTY_DETACHED, p->mode = HF_SHARED),
         "{\"mode\":1,\"flags\":6,\"owner\":\"ann\"}");
    SAYS((p->expires_us = 0, p->lease_ms = 0, p->session = 9), "{\"session\":9}");
#undef SAYS
    hf_row_clear(&row);
}

/* The fields that a guard checks name no holder: owner, token and expires_us refuse the
   former one. */
static void an_ended_hold_has_the_reserved_owner(void **state)
{
    (void)state;
    struct hf__fields f;
    const char *why;
    hf_row row;
    hold(&row);
    row.party[0].flags = HF_PARTY_ENDING;
    assert_int_equal(hf__put_fields(&row, HF_JSON_TREE, &f, &why), 0);
    assert_string_equal(f.text[HF_FIELD_OWNER], "(ended)");
    assert_int_equal(f.len[HF_FIELD_OWNER], 7);
    hf__free_fields(&f);
    row.party[0] = party(0, "(ended)");
    assert_int_equal(hf__put_fields(&row, HF_JSON_TREE, &f, &why), HF_INVALID);
    assert_non_null(strstr(why, "reserved"));
    hf__free_fields(&f);
    hf_row_clear(&row);
}

static void further_holders_and_waiters_are_lists(void **state)
{
    (void)state;
    hf_row row;
    hold(&row);
    hf_party other = party(1, "ben"), waits = party(2, "cay");
    row.party[0].mode = other.mode = HF_SHARED;
    row.party[0].token = row.token - 2;
    other.token = row.token;
    other.expires_us = 9;
    other.flags = HF_PARTY_UNCLAIMED;
    other.claim_ms = 1000;
    add(&row, other, 1);
    waits.claim_ms = 1000;
    waits.wakeup = 4;
    add(&row, waits, 0);
    is_written(&row,
               "{\"token\":1764230399999998,\"mode\":1,\"holders\":[{\"request\":"
               "\"02000000000000000000000000000000\",\"owner\":\"ben\",\"note\":\"host=h pid=1\","
               "\"token\":1764230400000000,\"since_us\":1001,\"expires_us\":9,\"lease_ms\":30000,"
               "\"claim_ms\":1000,\"mode\":1,\"flags\":1}]}",
               "[{\"request\":\"03000000000000000000000000000000\",\"owner\":\"cay\",\"note\":"
               "\"host=h pid=2\",\"since_us\":1002,\"lease_ms\":30000,\"claim_ms\":1000,"
               "\"bell\":4}]",
               "");
    hf_row_clear(&row);
    hf_row_init(&row);
    row.rev = 3;
    add(&row, waits, 0); /* a waiter, and no holder */
    is_written(&row, "",
               "[{\"request\":\"03000000000000000000000000000000\",\"owner\":\"cay\",\"note\":"
               "\"host=h pid=2\",\"since_us\":1002,\"lease_ms\":30000,\"claim_ms\":1000,"
               "\"bell\":4}]",
               "");
    hf_row_clear(&row);
}

static void a_marker_is_an_object(void **state)
{
    (void)state;
    hf_row row;
    hold(&row);
    row.done_us = 17;
    row.keep_until_us = INT64_MAX;
    row.done_by_len = 3;
    memcpy(row.done_by, "dan", 4);
    row.result_len = 2;
    memcpy(row.result, "\xc3\xa9", 3);
    static const char done[] = "{\"done_us\":17,\"keep_until_us\":9223372036854775807,"
                               "\"by\":\"dan\",\"result\":\"\xc3\xa9\"}";
    is_written(&row, "", "", done);
    row.n_holders = 0;
    is_written(&row, "", "", done);
    row.done_us = INT64_MAX;
    row.keep_until_us = 0;
    row.done_by_len = 0;
    row.done_by[0] = 0;
    row.result_len = 0;
    row.result[0] = 0;
    is_written(&row, "", "",
               "{\"done_us\":9223372036854775807,\"keep_until_us\":0,\"by\":\"\",\"result\":\"\"}");
    hf_row_clear(&row);
}

/* A free row names the request whose grant ended last. Other text in that field is no damage. */
static void a_free_row_names_its_last_request(void **state)
{
    (void)state;
    static const char *const unknown[] = {"", "by hand", "00112233445566778899aabbccddeefg"};
    static const uint8_t none[16];
    struct hf__fields f;
    const char *why;
    hf_row row, back;
    hf_row_init(&row);
    hf_row_init(&back);
    row.rev = row.token = 5;
    assert_int_equal(hf__put_fields(&row, HF_JSON_TEXT, &f, &why), 0);
    assert_int_equal(f.len[HF_FIELD_REQUEST], 0);
    row.last_id[0] = 0xff;
    assert_int_equal(hf__put_fields(&row, HF_JSON_TEXT, &f, &why), 0);
    assert_string_equal(f.text[HF_FIELD_REQUEST], "ff000000000000000000000000000000");
    assert_true(!f.len[HF_FIELD_OWNER] && !f.len[HF_FIELD_NOTE] && !f.n[HF_FIELD_EXPIRES] &&
                !f.n[HF_FIELD_ACQUIRED] && !f.n[HF_FIELD_LEASE]);
    struct hf__fields read = HF_NO_FIELDS;
    tell(&read, &f, HF_JSON_TEXT);
    assert_int_equal(hf__read_fields(&read, HF_JSON_TEXT, &back, &why), 0);
    assert_memory_equal(back.last_id, row.last_id, sizeof row.last_id);
    for (size_t i = 0; i < COUNT(unknown); i++) {
        hf__got_text(&read, HF_FIELD_REQUEST, unknown[i], strlen(unknown[i]));
        assert_int_equal(hf__read_fields(&read, HF_JSON_TEXT, &back, &why), 0);
        assert_memory_equal(back.last_id, none, sizeof none);
    }
    hf_row_clear(&row);
    hf_row_clear(&back);
}

static void only_utf8_is_written(void **state)
{
    (void)state;
    const char *why = NULL;
    hf_row row;
    hold(&row);
    add(&row, party(1, "ben"), 0);
    row.done_us = 7;
    row.done_by[0] = row.result[0] = 'r';
    row.done_by[1] = row.result[1] = 0;
    row.done_by_len = 1;
    row.result_len = 1;
    char *const texts[] = {row.party[0].owner, row.party[0].note, row.party[1].owner,
                           row.party[1].note,  row.done_by,       row.result};
    for (size_t i = 0; i <= COUNT(texts); i++) {
        struct hf__fields f;
        if (i < COUNT(texts)) *texts[i] = (char)0xff;
        int rc = hf__put_fields(&row, HF_JSON_TEXT, &f, &why);
        assert_int_equal(rc, i < COUNT(texts) ? HF_INVALID : 0);
        if (rc) assert_non_null(strstr(why, "is not UTF-8"));
        if (rc) *texts[i] = 'x';
        hf__free_fields(&f);
    }
    struct hf__fields f;
    row.party[0].owner_len = 0;
    assert_int_equal(hf__put_fields(&row, HF_JSON_TEXT, &f, &why), HF_INVALID);
    assert_string_equal(why, "a holder without a name looks like none");
    hf__free_fields(&f);
    hf_row_clear(&row);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plain_hold_needs_no_json),
        cmocka_unit_test(each_number_beside_a_plain_hold_is_in_more),
        cmocka_unit_test(an_ended_hold_has_the_reserved_owner),
        cmocka_unit_test(further_holders_and_waiters_are_lists),
        cmocka_unit_test(a_marker_is_an_object),
        cmocka_unit_test(a_free_row_names_its_last_request),
        cmocka_unit_test(only_utf8_is_written),
    };
    return TEST_MAIN(tests);
}
