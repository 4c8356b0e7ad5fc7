/*
 * cpp_test.cpp - holdfast.hpp: what was acquired is given back, also when something throws.
 */
#include "holdfast.hpp"
#include "test.h"

#include <cstring>
#include <type_traits>

using holdfast::lock;

static_assert(!std::is_copy_constructible<lock>::value, "a lock has one owner");
static_assert(std::is_nothrow_move_constructible<lock>::value, "a lock can be handed on");

static holdfast::store *store;

static bool is_free(const char *key)
{
    holdfast::options how;
    how.wait_ms = 0;
    how.flags = HF_ALLOW_RECURSIVE;
    return static_cast<bool>(store->try_acquire(key, how));
}

static void a_scope_releases(void **)
{
    std::uint64_t first;
    {
        lock held = store->acquire("k");
        first = held.token();
        assert_string_equal(held.key(), "k");
        assert_true(held.left_ms() > 0);
        assert_true(held.confirm());
        assert_false(is_free("k"));
    }
    assert_true(is_free("k"));
    assert_true(store->acquire("k").token() > first);
}

static void an_exception_releases(void **)
{
    bool caught = false;
    try {
        lock held = store->acquire("k");
        throw std::runtime_error("in the middle");
    } catch (const std::runtime_error &) {
        caught = true;
    }
    assert_true(caught);
    assert_true(is_free("k"));
}

static lock from_a_function() { return store->acquire("k"); }

static void a_moved_lock_is_released_once_by_its_last_owner(void **)
{
    lock outer;
    assert_false(static_cast<bool>(outer));
    {
        lock inner = from_a_function();
        outer = std::move(inner);
        assert_false(static_cast<bool>(inner));
    }
    assert_false(is_free("k"));
    outer = lock();
    assert_true(is_free("k"));
}

static void an_explicit_release_empties(void **)
{
    lock held = store->acquire("k");
    held.renew();
    held.release();
    assert_false(static_cast<bool>(held));
    assert_true(is_free("k"));
}

static void try_acquire_answers_with_an_empty_lock(void **)
{
    lock held = store->acquire("k");
    assert_false(is_free("k"));
}

static void what_fails_throws_with_its_code(void **)
{
    int code = 0;
    try {
        store->acquire("");
    } catch (const holdfast::error &e) {
        code = e.code();
        assert_non_null(std::strstr(e.what(), "key"));
    }
    assert_int_equal(code, HF_INVALID);
    code = 0;
    try {
        store->acquire(std::string("seat\0-1", 7)); // not the key "seat"
    } catch (const holdfast::error &e) {
        code = e.code();
        assert_non_null(std::strstr(e.what(), "NUL"));
    }
    assert_int_equal(code, HF_INVALID);
    code = 0;
    try {
        holdfast::store none("no-such-scheme:");
    } catch (const holdfast::error &e) {
        code = e.code();
    }
    assert_int_equal(code, HF_INVALID);
}

static void a_lock_that_was_broken_says_so(void **)
{
    lock held = store->acquire("k");
    assert_int_equal(hf_break(store->get(), "k", held.token(), nullptr), 0);
    assert_false(held.confirm());
    int code = 0;
    try {
        held.enter();
    } catch (const holdfast::error &e) {
        code = e.code();
    }
    assert_int_equal(code, HF_UNSUPPORTED); /* mem: */
    try {
        held.release();
    } catch (const holdfast::error &e) {
        code = e.code();
    }
    assert_int_equal(code, HF_LOST);
    assert_false(static_cast<bool>(held));
}

static void several_keys_are_all_or_none(void **)
{
    {
        std::vector<lock> both = store->acquire_all({"b", "a"});
        assert_int_equal(both.size(), 2);
        assert_string_equal(both[0].key(), "b");
        assert_string_equal(both[1].key(), "a");
        assert_false(is_free("a"));
        assert_false(is_free("b"));
    }
    assert_true(is_free("a"));
    assert_true(is_free("b"));
    holdfast::store other("mem:cpp");
    lock b = other.acquire("b");
    holdfast::options how;
    how.wait_ms = 0;
    int code = 0;
    try {
        store->acquire_all({"a", "b"}, how);
    } catch (const holdfast::error &e) {
        code = e.code();
    }
    assert_int_equal(code, HF_BUSY);
    assert_true(is_free("a"));
}

int main()
{
    holdfast::store opened("mem:cpp");
    store = &opened;
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_scope_releases),
        cmocka_unit_test(an_exception_releases),
        cmocka_unit_test(a_moved_lock_is_released_once_by_its_last_owner),
        cmocka_unit_test(an_explicit_release_empties),
        cmocka_unit_test(try_acquire_answers_with_an_empty_lock),
        cmocka_unit_test(what_fails_throws_with_its_code),
        cmocka_unit_test(a_lock_that_was_broken_says_so),
        cmocka_unit_test(several_keys_are_all_or_none),
    };
    return TEST_MAIN(tests);
}
