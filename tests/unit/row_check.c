/*
 * row_check.c - rows from outside that no sequence of steps can make are refused.
 */
#include "holdfast_driver.h"
#include "test.h"

#include <string.h>

/* Makes a row with so many holders and waiters, all of one mode, each with its own id. */
static void fill(hf_row *row, uint32_t holders, uint32_t waiters, enum hf_mode mode)
{
    hf_row_init(row);
    assert_int_equal(hf_row_room(row, (size_t)holders + waiters), 0);
    row->rev = row->token = 100000;
    row->n_holders = holders;
    row->n_queue = waiters;
    for (uint32_t i = 0; i < holders + waiters; i++) {
        hf_party *p = &row->party[i];
        memset(p, 0, sizeof *p);
        memcpy(p->id, &i, sizeof i);
        p->token = i < holders ? i + 1 : 0;
        p->session = 1;
        p->mode = (uint8_t)mode;
        p->limit = mode == HF_LIMITED ? holders : 0;
    }
}

static void is_right(hf_row *row)
{
    const char *why = "";
    if (hf_row_check(row, &why)) fail_msg("refused: %s", why);
    hf_row_clear(row);
}

static void is_wrong(hf_row *row, const char *reason)
{
    const char *why = "";
    assert_int_equal(hf_row_check(row, &why), HF_CORRUPT);
    assert_string_equal(why, reason);
    hf_row_clear(row);
}

static void exclusive_holders_are_alone(void **state)
{
    hf_row row;
    (void)state;
    fill(&row, 1, 3, HF_EXCLUSIVE);
    is_right(&row);
    fill(&row, 2, 0, HF_EXCLUSIVE);
    is_wrong(&row, "an exclusive holder beside another");
    fill(&row, 3, 0, HF_SHARED);
    row.party[2].mode = HF_EXCLUSIVE;
    is_wrong(&row, "an exclusive holder beside another");
}

static void holders_have_one_mode(void **state)
{
    hf_row row;
    (void)state;
    fill(&row, 3, 0, HF_SHARED);
    row.party[3 - 1].limit = 1; /* the limit means nothing to a shared holder */
    is_right(&row);
    fill(&row, 3, 0, HF_SHARED);
    row.party[1].mode = HF_LIMITED;
    row.party[1].limit = 9;
    is_wrong(&row, "holders of two modes");
    fill(&row, 2, 2, HF_SHARED); /* waiters may be of any */
    row.party[2].mode = HF_EXCLUSIVE;
    row.party[3].mode = HF_LIMITED;
    row.party[3].limit = 1;
    is_right(&row);
}

static void the_smallest_limit_counts(void **state)
{
    hf_row row;
    (void)state;
    fill(&row, 3, 0, HF_LIMITED);
    is_right(&row);
    fill(&row, 3, 0, HF_LIMITED);
    row.party[1].limit = 2;
    is_wrong(&row, "more holders than the limit");
}

/* Each pair of places, in rows of a few and of many parties. */
static void no_two_have_one_id(void **state)
{
    static const uint32_t sizes[] = {2, 3, 8, 9, 40, 300};
    hf_row row;
    (void)state;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (uint32_t step = sizes[s] > 40 ? 37 : 1, i = 0; i < sizes[s]; i += step)
            for (uint32_t j = 0; j < i; j += step) {
                fill(&row, 1, sizes[s] - 1, HF_EXCLUSIVE);
                memcpy(row.party[i].id, row.party[j].id, sizeof row.party[i].id);
                is_wrong(&row, "two parties with one request id");
            }
    fill(&row, 1, 4000, HF_EXCLUSIVE);
    is_right(&row);
    /* Ids that differ in either half only. */
    fill(&row, 1, 20, HF_EXCLUSIVE);
    for (uint32_t i = 0; i <= 20; i++) {
        memset(row.party[i].id, 7, sizeof row.party[i].id);
        row.party[i].id[i < 10 ? 0 : 15] = (uint8_t)(20 + i);
    }
    is_right(&row);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(exclusive_holders_are_alone),
        cmocka_unit_test(holders_have_one_mode),
        cmocka_unit_test(the_smallest_limit_counts),
        cmocka_unit_test(no_two_have_one_id),
    };
    return TEST_MAIN(tests);
}
