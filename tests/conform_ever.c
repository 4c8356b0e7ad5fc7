/*
 * conform_ever.c - the conformance suite on a store that goes on lying from some call on, says
 * nothing, or has a clock that stands. See conform_lies.h.
 */
#include "conform_lies.h"

/* It goes on lying. */
static void for_ever(void **state)
{
    (void)state;
    make();
    on = 1;
    /* What is free is refused, again and again. */
    examine("swap", REFUSES, 1);
    assert_non_null(strstr(why_text, "is in use"));
    on = 0;
}

static void what_is_said_of_options(void **state)
{
    static const char *const texts[] = {"", "two\nlines"};
    (void)state;
    make();
    for (size_t i = 0; i < COUNT(texts); i++) {
        bad_text = texts[i];
        examine("never used", HONEST, 0);
        assert_non_null(strstr(why_text, "without a word"));
    }
    bad_text = NULL;
}

/* It stands for ever; or there is none, which is no lie, nor is it where no lease ends by it. */
static void clocks_that_stand(void **state)
{
    (void)state;
    make();
    int honest = examine("clock", HONEST, 0);
    clock_is = 1000000; /* for ever */
    assert_true(examine("clock", HONEST, 0) > honest);
    clock_is = 0; /* there is none */
    assert_int_equal(examine("clock", HONEST, 0), honest);
    examine("tokens", HONEST, 0);
    clock_is = 1000000;
    liar.can |= HF_CAN_LEASES;
    assert_int_equal(examine("clock", HONEST, 0), honest);
    clock_is = -1;
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(for_ever),
        cmocka_unit_test(what_is_said_of_options),
        cmocka_unit_test(clocks_that_stand),
    };
    return TEST_MAIN(tests);
}
