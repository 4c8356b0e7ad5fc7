/*
 * conform_ever.c - the conformance suite on a store that goes on lying from some call on, says
 * nothing, has a clock that stands, or is asked by a process without memory. See conform_lies.h.
 */
#include "conform_lies.h"

#include <limits.h>

/* Of the rows that need room for so many parties the so-manyth finds none. For the compiler,
   realloc of NULL may be malloc. */
static size_t parties;
static int rooms;
void *__real_malloc(size_t n);
void *__wrap_malloc(size_t n);
void *__real_realloc(void *p, size_t n);
void *__wrap_realloc(void *p, size_t n);

static int no_room(size_t n) { return rooms && n == parties * sizeof(hf_party) && !--rooms; }

void *__wrap_malloc(size_t n) { return no_room(n) ? NULL : __real_malloc(n); }
void *__wrap_realloc(void *p, size_t n) { return no_room(n) ? NULL : __real_realloc(p, n); }

static void no_memory(void **state)
{
    static const struct {
        const char *name;
        size_t parties;
    } rows[] = {{"fields", 10}, {"crowd", 65}};
    (void)state;
    make();
    liar.caps.queue_cap = 64;
    for (size_t i = 0; i < COUNT(rows); i++) {
        parties = rows[i].parties;
        rooms = 1;
        examine(rows[i].name, HONEST, 0);
        assert_int_equal(rooms, 0);
        assert_non_null(strstr(why_text, "out of memory"));
    }
}

/* It goes on lying. */
static void for_ever(void **state)
{
    (void)state;
    make();
    on = 1;
    lies_from = 199; /* the last grant of that check */
    examine("tokens", HUGE_TOKEN, INT_MAX);
    lies_from = 0;
    assert_non_null(strstr(why_text, "token 1152921504606846976\n"));
    /* A free key is refused again and again. */
    examine("replace", REFUSES, 1);
    assert_non_null(strstr(why_text, "is in use"));
    on = 0;
}

/* Does a check say this of a lie at one of its first calls? */
static int says(const char *name, enum way lie, const char *text)
{
    for (int call = 1; call <= 8; call++) {
        examine(name, lie, call);
        if (strstr(why_text, text)) return 1;
    }
    return 0;
}

/* The message names the mistake of the driver's author. */
static void mistakes_are_named(void **state)
{
    (void)state;
    make();
    assert_true(says("replace", DENIES, "returned DENIED, not HF_CONFLICT"));
    assert_true(says("another handle", REFUSES, "hf_fail was not called"));
}

/* A token that no grant ever had doesn't enter, whatever the reason. */
static void who_does_not_enter(void **state)
{
    (void)state;
    make();
    int honest = examine("enter", HONEST, 0);
    assert_int_equal(examine("enter", HONEST, 1), honest);
    assert_int_equal(examine("enter", HONEST, 2), honest);
    assert_int_equal(examine("enter", DENIES, 1), honest + 1);
}

static void what_is_said_of_options(void **state)
{
    static const char *const texts[] = {"", "two\nlines"};
    (void)state;
    make();
    for (size_t i = 0; i < COUNT(texts); i++) {
        bad_text = texts[i];
        examine("never used", HONEST, 0);
        assert_non_null(strstr(why_text, "the refusal has no text, or several lines"));
    }
    bad_text = "unknown option 'no-such-option=misspelt-secret'";
    examine("never used", HONEST, 0);
    assert_non_null(strstr(why_text, "it may be a secret"));
    bad_text = NULL;
}

/* It stands for ever; or there is none, which is no lie, nor is it where no lease ends by it. */
static void clocks_that_stand(void **state)
{
    static const hf_session_ops none;
    (void)state;
    make();
    int honest = examine("clock", HONEST, 0);
    clock_is = 1000000; /* for ever */
    assert_true(examine("clock", HONEST, 0) > honest);
    clock_is = 0; /* there is none */
    assert_int_equal(examine("clock", HONEST, 0), honest);
    examine("tokens", HONEST, 0);
    clock_is = -1;
    liar.caps.liveness = NULL;
    honest = examine("clock", HONEST, 0);
    clock_is = 0; /* but holds end by it */
    assert_true(examine("clock", HONEST, 0) > honest);
    assert_non_null(strstr(why_text, "get tells no clock"));
    examine("another handle", HONEST, 0);
    assert_non_null(strstr(why_text, "get: *ret_clock_us is 0"));
    clock_is = -1;
    liar.caps.sessions = &none;
    honest = examine("clock", HONEST, 0);
    clock_is = 1000000;
    assert_int_equal(examine("clock", HONEST, 0), honest);
    clock_is = -1;
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_memory),          cmocka_unit_test(for_ever),
        cmocka_unit_test(who_does_not_enter), cmocka_unit_test(what_is_said_of_options),
        cmocka_unit_test(clocks_that_stand),  cmocka_unit_test(mistakes_are_named),
    };
    return TEST_MAIN(tests);
}
