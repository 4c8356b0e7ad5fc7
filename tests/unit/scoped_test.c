/*
 * scoped_test.c - HF_SCOPED: however a scope is left, its lock is released.
 */
#include "holdfast.h"
#include "test.h"

static hf *store;

static int open_store(void **state)
{
    (void)state;
    return hf_open("mem:scoped", NULL, &store, NULL);
}

static int close_store(void **state)
{
    (void)state;
    hf_close(store);
    return 0;
}

/* Returns 1 if another handle can acquire the key at once. */
static int is_free(const char *key)
{
    hf_lock *lock;
    hf_options once = HF_OPTIONS_INIT;
    once.wait_ms = 0;
    once.flags = HF_ALLOW_RECURSIVE;
    if (hf_acquire(store, key, &once, &lock, NULL)) return 0;
    assert_int_equal(hf_release(lock, NULL), 0);
    return 1;
}

static uint32_t held(void)
{
    hf_stats stats = {.size = sizeof stats};
    assert_int_equal(hf_get_stats(store, &stats), 0);
    return stats.held;
}

static uint64_t token_inside(const char *key)
{
    HF_SCOPED hf_lock *lock = NULL;
    if (hf_acquire(store, key, NULL, &lock, NULL)) return 0;
    assert_false(is_free(key));
    return hf_token(lock);
}

static void a_return_releases(void **state)
{
    (void)state;
    uint64_t first = token_inside("k"), second = token_inside("k");
    assert_true(first && second > first);
    assert_true(is_free("k"));
}

static void a_break_and_a_continue_release(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        HF_SCOPED hf_lock *lock = NULL;
        assert_int_equal(hf_acquire(store, "k", NULL, &lock, NULL), 0);
        if (i < 3) continue;
        break;
    }
    assert_true(is_free("k"));
    assert_int_equal(held(), 0);
}

static void a_goto_out_of_nested_scopes_releases_all(void **state)
{
    (void)state;
    {
        HF_SCOPED hf_lock *a = NULL;
        assert_int_equal(hf_acquire(store, "a", NULL, &a, NULL), 0);
        {
            HF_SCOPED hf_lock *b = NULL;
            assert_int_equal(hf_acquire(store, "b", NULL, &b, NULL), 0);
            assert_int_equal(held(), 2);
            goto out;
        }
    }
out:
    assert_true(is_free("a"));
    assert_true(is_free("b"));
}

static void a_lock_never_acquired_is_nothing_to_release(void **state)
{
    (void)state;
    hf_lock *other;
    assert_int_equal(hf_acquire(store, "k", NULL, &other, NULL), 0);
    {
        HF_SCOPED hf_lock *lock = NULL;
        hf_options once = HF_OPTIONS_INIT;
        once.wait_ms = 0;
        once.flags = HF_ALLOW_RECURSIVE;
        assert_int_equal(hf_acquire(store, "k", &once, &lock, NULL), HF_BUSY);
        assert_null(lock);
    }
    assert_false(is_free("k"));
    assert_int_equal(hf_release(other, NULL), 0);
}

static void release_scope_clears(void **state)
{
    (void)state;
    hf_lock *lock;
    assert_int_equal(hf_acquire(store, "k", NULL, &lock, NULL), 0);
    hf_release_scope(&lock);
    assert_null(lock);
    hf_release_scope(&lock);
    assert_true(is_free("k"));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_return_releases),
        cmocka_unit_test(a_break_and_a_continue_release),
        cmocka_unit_test(a_goto_out_of_nested_scopes_releases_all),
        cmocka_unit_test(a_lock_never_acquired_is_nothing_to_release),
        cmocka_unit_test(release_scope_clears),
    };
    return TEST_MAIN_WITH(tests, open_store, close_store);
}
