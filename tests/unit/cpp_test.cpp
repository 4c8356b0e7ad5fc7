/*
 * cpp_test.cpp - holdfast.hpp: what was acquired is given back, also when something throws.
 */
#include "holdfast.hpp"
#include "test.h"

#include <cstdlib>
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

static void a_loss_is_told(void **)
{
    std::promise<void> told;
    lock held = store->acquire("k");
    assert_string_equal(held.lost_reason().c_str(), "");
    held.on_lost([] { std::abort(); }); // replaced
    held.on_lost([&told, &held] {
        try {
            held.release(); // by its own callback
        } catch (const holdfast::error &e) {
            if (e.code() == HF_LOST) told.set_value();
        }
    });
    lock moved; // which doesn't lose the callback
    {
        lock other = store->acquire("other");
        other.on_lost([] { std::abort(); });
        other.on_lost(nullptr);
        assert_int_equal(hf_break(store->get(), "other", other.token(), nullptr), 0);
        other = store->acquire("third"); // the lost one is given back
        moved = std::move(other);
    }
    assert_string_equal(moved.key(), "third");
    assert_int_equal(hf_break(store->get(), "k", held.token(), nullptr), 0);
    told.get_future().wait();
    assert_false(static_cast<bool>(held));
}

static void an_event_runs_once(void **)
{
    {
        holdfast::event first = store->once("event");
        assert_true(static_cast<bool>(first));
        assert_true(first.held().confirm());
    } // not finished: undone
    {
        holdfast::event second = store->once("event");
        assert_true(static_cast<bool>(second));
        second.finish("all sent");
        assert_false(static_cast<bool>(second));
    }
    holdfast::event third = store->once("event");
    assert_false(static_cast<bool>(third));
    assert_string_equal(third.result(), "all sent");
    assert_true(third.done_us() > 0);
    assert_true(std::strlen(third.done_by()) > 0);
}

static int code_of(holdfast::pending &p)
{
    try {
        p.get();
    } catch (const holdfast::error &e) {
        return e.code();
    }
    return HF_OK;
}

static void an_acquisition_needs_no_thread(void **)
{
    std::promise<void> called;
    lock held = store->acquire("k");
    holdfast::pending first = store->start("k", holdfast::options(), [&] { called.set_value(); });
    holdfast::pending second = store->start("k");
    store->start("k"); // given up at once
    second.cancel();
    assert_int_equal(code_of(second), HF_CANCELED);
    held.release();
    called.get_future().wait();
    held = first.get();
    assert_string_equal(held.key(), "k");
    {
        holdfast::pending third = store->start("free"); // obtained, and never asked for
    }
    assert_true(is_free("free"));
    int code = 0;
    try {
        store->start("");
    } catch (const holdfast::error &e) {
        code = e.code();
    }
    assert_int_equal(code, HF_INVALID);
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
        cmocka_unit_test(a_loss_is_told),
        cmocka_unit_test(an_event_runs_once),
        cmocka_unit_test(an_acquisition_needs_no_thread),
        cmocka_unit_test(several_keys_are_all_or_none),
    };
    return TEST_MAIN(tests);
}
