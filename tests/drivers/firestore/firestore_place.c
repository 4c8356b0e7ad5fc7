/*
 * firestore_place.c - which document of Firestore a key is: the names, and what is refused as a
 * place.
 */
#include "firestore/place.h"

#include "test.h"

#include "holdfast_driver.h"

#include <stdio.h>
#include <string.h>

static struct hf__fs_place place;

static const char *at(const char *root, const char *collection)
{
    memset(&place, 0, sizeof place);
    snprintf(place.documents, sizeof place.documents, "D");
    return hf__fs_place(&place, root, collection);
}

static void named(const char *key, const char *want)
{
    static char name[HF_FS_NAME_CAP];
    hf__fs_name(&place, key, name);
    assert_string_equal(name, want);
}

static void above(const char *prefix, const char *want)
{
    static char name[HF_FS_NAME_CAP];
    hf__fs_above(&place, prefix, name);
    assert_string_equal(name, want);
}

static void in_a_collection_a_key_is_an_id(void **state)
{
    (void)state;
    assert_null(at(NULL, NULL));
    named("k", "D/holdfast/k");
    named("a/b", "D/holdfast/a%2Fb");
    named("100%", "D/holdfast/100%25");
    named(".", "D/holdfast/%2E");
    named("..", "D/holdfast/%2E.");
    named("...", "D/holdfast/...");
    named("a.", "D/holdfast/a.");
    named("__a__", "D/holdfast/%5F_a__");
    named("____", "D/holdfast/%5F___");
    named("___", "D/holdfast/___");
    named("__a", "D/holdfast/__a");
    named("a__", "D/holdfast/a__");
    named("a~b", "D/holdfast/a~b");
    assert_null(at(NULL, "/x/y/z/"));
    named("a", "D/x/y/z/a");
    assert_int_equal(hf__fs_is_path(&place, "a/b"), 0);
}

/* Longer than an ID may be, were it written as in a URL. */
static void many_slashes_are_written_shorter(void **state)
{
    char key[HF_KEY_CAP], want[HF_FS_ID_CAP], other[HF_FS_ID_CAP];
    (void)state;
    memset(key, '/', sizeof key - 1);
    key[sizeof key - 1] = 0;
    memcpy(key, "a~b", 3);
    size_t n = (size_t)snprintf(want, sizeof want, "%%~a~~b");
    for (size_t i = 3; key[i]; i++) n += (size_t)snprintf(want + n, sizeof want - n, "~-");
    hf__fs_escape(key, other);
    assert_string_equal(other, want);
    key[3] = '-'; /* so that no two keys have one ID */
    hf__fs_escape(key, other);
    assert_string_not_equal(other, want);
}

static void below_a_root_a_path_is_a_path(void **state)
{
    (void)state;
    assert_null(at("live/sync", NULL));
    named("a/b", "D/live/sync/a/b");
    named("a/b/c/d", "D/live/sync/a/b/c/d");
    named("a", "D/live/sync/holdfast/a");
    named("a/b/c", "D/live/sync/holdfast/a%2Fb%2Fc");
    named("a//c/d", "D/live/sync/holdfast/a%2F%2Fc%2Fd");
    named("a/..", "D/live/sync/holdfast/a%2F..");
    named("a/__b__", "D/live/sync/holdfast/a%2F__b__");
    /* Paths that would be in the collection of keys which are no paths. */
    named("holdfast/b", "D/live/sync/holdfast/holdfast%2Fb");
    named("holdfast/b/c/d", "D/live/sync/holdfast/b/c/d");
    named("holdfasu/b", "D/live/sync/holdfasu/b");
    assert_null(at("/", "keys"));
    named("a/b", "D/a/b");
    named("a", "D/keys/a");
    above("", "D");
    above("a/b/c", "D/a/b");
    above("a/b/", "D/a/b");
    above("a/b/c/d", "D/a/b");
    above("a/b/c/d/e", "D/a/b/c/d");
    above("a//c", "D");
    above("a", "D");
    assert_null(at("live/sync", NULL));
    above("a/b/c", "D/live/sync/a/b");
    above("", "D/live/sync");
}

/* Returns n times "a/", and `end`. */
static const char *deep(int n, const char *end)
{
    static char text[2000];
    size_t len = 0;
    while (n--) len += (size_t)snprintf(text + len, sizeof text - len, "a/");
    snprintf(text + len, sizeof text - len, "%s", end);
    return text;
}

static void places_have_limits(void **state)
{
    char collection[2000];
    (void)state;
    assert_null(at(deep(197, "b"), NULL));
    assert_int_equal(hf__fs_is_path(&place, "a/b"), 1); /* the last that isn't too deep */
    assert_int_equal(hf__fs_is_path(&place, "a/b/c/d"), 0);
    assert_string_equal(at(deep(199, "b"), NULL), "root: too deep");
    assert_string_equal(at(deep(600, "b"), NULL), "root: too long");
    assert_string_equal(at(NULL, deep(600, "b")), "collection: too long");
    memset(collection, 'c', 600);
    collection[600] = 0;
    assert_string_equal(at("/", collection), "collection: too long");
    collection[500] = 0;
    assert_null(at("/", collection));
    assert_string_equal(at(deep(400, "../b"), collection), "root: not a path of Firestore");
    char root[1100];
    memset(root, 'r', 900);
    memcpy(root + 900, "/b", 3);
    assert_string_equal(at(root, collection), "collection: too long");
    assert_string_equal(at("a", NULL), "root: must be the path of a document, an even number of "
                                       "parts (or / for the database)");
    assert_string_equal(at(NULL, ""), "collection: not a path of Firestore");
    assert_string_equal(at(NULL, "a/b"),
                        "collection: must be a collection, an odd number of parts");
    assert_string_equal(at("/", "a/b/c"),
                        "collection: with root= one name, of a collection below it");
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_a_collection_a_key_is_an_id),
        cmocka_unit_test(many_slashes_are_written_shorter),
        cmocka_unit_test(below_a_root_a_path_is_a_path),
        cmocka_unit_test(places_have_limits),
    };
    return TEST_MAIN(tests);
}
