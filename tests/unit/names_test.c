/*
 * names_test.c - no two keys have the same name in a store: proven by comparing all names of many
 * keys, made of the characters that mean something to somebody. They are sorted, so that a million
 * keys are 10^11 pairs. Firestore's codec is the only one that changes anything; a key of etcd's is
 * a range, and none may be within another's.
 */
#include "test.h"

#include "../../drivers/firestore/place.c"

#include <stdlib.h>

enum { MOST = 6, LETTERS = 9, ROOM = 200 << 20 };

static const char letters[LETTERS + 1] = "/%~-._2Fa";
static char *room; /* the names, each with its NUL */
static size_t used;
static char **name;
static size_t names;

static void add(const struct hf__fs_place *place, const char *key)
{
    char to[HF_FS_NAME_CAP];
    hf_rowkey legal;
    assert_int_equal(hf_key_make(key, &legal, NULL), 0);
    hf__fs_name(place, key, to);
    size_t len = strlen(to) + 1;
    if (len > ROOM - used) fail_msg("no room");
    name[names++] = memcpy(room + used, to, len);
    used += len;
}

/* Adds all texts of up to MOST letters that begin with `head`. */
static void add_all(const struct hf__fs_place *place, const char *head, int most)
{
    char key[HF_KEY_CAP];
    int digit[MOST] = {0};
    size_t n = strlen(head);
    memcpy(key, head, n + 1);
    for (int len = 1; len <= most; len++) {
        memset(digit, 0, sizeof digit);
        for (int at = 0; at >= 0;) {
            for (int i = 0; i < len; i++) key[n + (size_t)i] = letters[digit[i]];
            key[n + (size_t)len] = 0;
            add(place, key);
            for (at = len - 1; at >= 0 && ++digit[at] == LETTERS;) digit[at--] = 0;
        }
    }
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void apart(const char *root, const char *collection)
{
    static const struct {
        char c;
        int n;
    } heads[] = {{'/', 496}, {'/', 500}, {'~', 500}, {'%', 499}, {'a', 500}, {'_', 500}};
    struct hf__fs_place place;
    memset(&place, 0, sizeof place);
    assert_null(hf__fs_place(&place, root, collection));
    names = used = 0;
    add_all(&place, "", MOST);
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        char head[HF_KEY_CAP];
        memset(head, heads[i].c, (size_t)heads[i].n);
        head[heads[i].n] = 0;
        add_all(&place, head, 4); /* on both sides of where an ID would be too long */
    }
    qsort(name, names, sizeof *name, by_text);
    for (size_t i = 1; i < names; i++)
        if (!strcmp(name[i - 1], name[i])) fail_msg("two keys are '%s'", name[i]);
    assert_true(names > 600000);
}

static void in_one_collection(void **state)
{
    (void)state;
    apart(NULL, NULL);
}

static void below_the_database(void **state)
{
    (void)state;
    apart("/", "a");
}

static void below_a_document(void **state)
{
    (void)state;
    apart("a/b", "2F");
}

/* etcd keeps key K in [K, K\n): K \t REST. */
static void a_range_has_no_other_key(void **state)
{
    (void)state;
    char text[3] = "", end[4];
    for (int c = 1; c < 256; c++) {
        hf_rowkey key;
        text[0] = 'k';
        text[1] = (char)c;
        text[2] = 0;
        if (hf_key_make(text, &key, NULL)) continue;
        snprintf(end, sizeof end, "k\n");
        assert_true(strcmp(text, end) > 0);
    }
}

static int make_room(void **state)
{
    (void)state;
    room = malloc(ROOM);
    name = malloc(1000000 * sizeof *name);
    return room && name ? 0 : -1;
}

static int drop_room(void **state)
{
    (void)state;
    free(room);
    free(name);
    return 0;
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_one_collection),
        cmocka_unit_test(below_the_database),
        cmocka_unit_test(below_a_document),
        cmocka_unit_test(a_range_has_no_other_key),
    };
    return TEST_MAIN_WITH(tests, make_room, drop_room);
}
