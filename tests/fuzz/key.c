/*
 * key.c - fuzz: two different keys, the names that stores give them, and back. The key itself is
 * the name on mem, file, sqlite, postgres, mongodb; behind a prefix on redis and etcd, where the
 * name of one mustn't be among the other's. names_test.c has the proof for many keys.
 */
#include "firestore/place.h"
#include "fuzz.h"

/* The end of what etcd keeps for a key: [K, K\n) is its own. */
static int within(const char *key, const char *other)
{
    char end[HF_KEY_CAP + 1];
    snprintf(end, sizeof end, "%s\n", key);
    return strcmp(other, key) >= 0 && strcmp(other, end) < 0;
}

static void apart(const struct hf__fs_place *place, const char *a, const char *b)
{
    static char name[2][HF_FS_NAME_CAP];
    char above[HF_FS_NAME_CAP];
    hf__fs_name(place, a, name[0]);
    hf__fs_name(place, b, name[1]);
    MUST(strcmp(name[0], name[1]) != 0);
    if (!place->has_root || !hf__fs_is_path(place, a)) return;
    hf__fs_above(place, a, above);
    MUST(!strncmp(name[0], above, strlen(above)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const roots[] = {NULL, "/", "a/b"}, *const collections[] = {NULL, "a",
                                                                                   "%2F"};
    struct fuzz f = {data, size};
    uint8_t how = fuzz_byte(&f);
    char *a = fuzz_line(&f, NULL), *b = fuzz_line(&f, NULL);
    hf_rowkey key;
    hf_error err;
    struct hf__fs_place place;
    memset(&place, 0, sizeof place);
    if (!hf_key_make(a, &key, &err) && !hf_key_make(b, &key, &err) && strcmp(a, b) != 0) {
        MUST(!within(a, b) && !within(b, a));
        if (!hf__fs_place(&place, roots[how % 3], collections[how / 3 % 3])) apart(&place, a, b);
    }
    memset(&place, 0, sizeof place);
    if (how & 128) (void)hf__fs_place(&place, how & 64 ? a : NULL, b);
    free(a);
    free(b);
    return 0;
}
