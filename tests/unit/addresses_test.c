/*
 * addresses_test.c - the queued waiters that a write concerns, and the addresses of a handle.
 */
#include "../../drivers/addresses.h"
#include "test.h"

#include <stdio.h>
#include <string.h>

static uint8_t id[16];

/* The nth request of a handle. */
static const uint8_t *request(uint8_t handle, uint8_t n)
{
    memset(id, handle, 8);
    memset(id + 8, n, 8);
    return id;
}

static void add(hf_row *row, uint8_t handle, uint8_t flags)
{
    uint32_t n = row->n_holders + row->n_queue;
    assert_int_equal(hf_row_room(row, n + 1), 0);
    memset(&row->party[n], 0, sizeof row->party[n]);
    memcpy(row->party[n].id, request(handle, (uint8_t)n), 16);
    row->party[n].flags = flags;
}

static const char *concerned(const char *holders, const char *waiting)
{
    static char to[HF_ADDRESSES_CAP];
    static char text[64];
    hf_row row;
    hf_row_init(&row);
    for (; *holders; holders++) { /* a small letter: unclaimed */
        add(&row, (uint8_t)(*holders & 31), *holders >= 'a' ? HF_PARTY_UNCLAIMED : 0);
        row.n_holders++;
    }
    for (; *waiting; waiting++) {
        add(&row, (uint8_t)(*waiting & 31), 0);
        row.n_queue++;
    }
    hf__put_addresses(to, &row);
    hf_row_clear(&row);
    size_t n = 0;
    for (const char *s = to; *s; s += HF_ADDRESS + 1) {
        unsigned handle = 0;
        assert_int_equal(sscanf(s, "%2x", &handle), 1);
        for (int i = 0; i < HF_ADDRESS; i += 2) assert_memory_equal(s, s + i, 2);
        assert_int_equal(s[HF_ADDRESS], ' ');
        text[n++] = (char)('A' + handle - 1);
    }
    text[n] = 0;
    return text;
}

static void a_write_concerns_few(void **state)
{
    (void)state;
    static const struct {
        const char *holders, *waiting, *concerned;
    } cases[] = {{"", "", ""},        {"A", "", ""},       {"a", "", "A"},
                 {"a", "BCDE", "AB"}, {"A", "BCDE", "AB"}, {"", "BC", "B"},
                 {"AB", "C", "C"},    {"ABC", "DE", "D"},  {"AbCd", "EF", "BDE"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(concerned(cases[i].holders, cases[i].waiting), cases[i].concerned);
}

/* As many holders as a row may have, each of them handed the key, and one waiter behind them. */
static void all_of_a_row_have_room(void **state)
{
    (void)state;
    static char to[HF_ADDRESSES_CAP + 1];
    hf_row row;
    hf_row_init(&row);
    to[HF_ADDRESSES_CAP] = 'x';
    for (row.n_holders = 0; row.n_holders < 300;) {
        add(&row, 1, HF_PARTY_UNCLAIMED);
        row.n_holders++;
        hf__put_addresses(to, &row);
        size_t most = HF_ADDRESSES_CAP / (HF_ADDRESS + 1) - 1;
        size_t n = row.n_holders < most ? row.n_holders : most;
        assert_int_equal(strlen(to), n * (HF_ADDRESS + 1));
    }
    assert_true(HF_ADDRESSES_CAP > 257 * (HF_ADDRESS + 1));
    assert_int_equal(to[HF_ADDRESSES_CAP], 'x');
    hf_row_clear(&row);
}

/* All requests of a handle have one in common. */
static void a_handle_has_one(void **state)
{
    (void)state;
    char to[HF_ADDRESS + 1];
    for (uint8_t n = 0; n < 100; n++) {
        hf__put_address(to, request(7, n));
        assert_string_equal(to, "0707070707070707");
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_write_concerns_few),
        cmocka_unit_test(all_of_a_row_have_room),
        cmocka_unit_test(a_handle_has_one),
    };
    return TEST_MAIN(tests);
}
