/*
 * deadlines_test.c - core/util/deadlines.c against a plain list, by chance.
 */
#include "test.h"

#include "deadlines.h"

#include <string.h>

enum { NODES = 200, TURNS = 200000 };

static struct hf_deadline node[NODES];
static struct hf_deadlines all;

static uint32_t dice(uint32_t of)
{
    static uint64_t x = 88172645463325252;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return (uint32_t)(x % of);
}

/* Returns the first deadline, found by a look at each. */
static struct hf_deadline *first_of_all(void)
{
    struct hf_deadline *first = NULL;
    for (int i = 0; i < NODES; i++) {
        struct hf_deadline *d = &node[i];
        if (!d->nth) continue;
        int sooner =
            !first || d->at_us < first->at_us || (d->at_us == first->at_us && d->nth < first->nth);
        if (sooner) first = d;
    }
    return first;
}

static void the_first_is_found(void **state)
{
    (void)state;
    size_t n = 0;
    for (int i = 0; i < TURNS; i++) {
        struct hf_deadline *d = &node[dice(NODES)];
        n -= d->nth != 0;
        if (dice(3)) {
            hf__deadline_set(&all, d, dice(50));
            n++;
        } else {
            hf__deadline_drop(&all, d);
        }
        assert_ptr_equal(all.first, first_of_all());
        assert_int_equal(all.n, n);
    }
}

static void equal_ones_have_their_turn(void **state)
{
    (void)state;
    memset(&all, 0, sizeof all);
    memset(node, 0, sizeof node);
    for (int i = 0; i < NODES; i++) hf__deadline_set(&all, &node[i], 7);
    hf__deadline_set(&all, &node[3], 7); /* which keeps its turn */
    for (int i = 0; i < NODES; i++) {
        assert_ptr_equal(all.first, &node[i]);
        hf__deadline_drop(&all, &node[i]);
    }
    assert_int_equal(hf__deadlines_next(&all), INT64_MAX);
}

/* Set in the order in which they are due, each is taken out without a look at the others, and so is
   one in the middle. */
static void those_in_order_make_a_chain(void **state)
{
    (void)state;
    memset(&all, 0, sizeof all);
    memset(node, 0, sizeof node);
    for (int i = 0; i < NODES; i++) hf__deadline_set(&all, &node[i], i / 2);
    for (int i = 0; i < NODES; i++) {
        assert_ptr_equal(all.first, &node[i]);
        assert_true(i == NODES - 1 || (all.first->child && !all.first->child->next));
        hf__deadline_drop(&all, &node[i]);
    }
    for (int i = 0; i < NODES; i++) hf__deadline_set(&all, &node[i], i);
    hf__deadline_drop(&all, &node[NODES / 2]);
    hf__deadline_drop(&all, &node[NODES - 1]); /* the next deadline isn't put behind it */
    hf__deadline_set(&all, &node[NODES - 1], NODES);
    for (int i = 0; i < NODES; i++) {
        if (i == NODES / 2) continue;
        assert_ptr_equal(all.first, &node[i]);
        hf__deadline_drop(&all, &node[i]);
    }
    assert_int_equal(hf__deadlines_next(&all), INT64_MAX);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_is_found),
        cmocka_unit_test(equal_ones_have_their_turn),
        cmocka_unit_test(those_in_order_make_a_chain),
    };
    return TEST_MAIN(tests);
}
