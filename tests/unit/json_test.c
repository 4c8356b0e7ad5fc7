/*
 * json_test.c - drivers/json.h: it reads what jansson reads, and reads it whole or not at all when
 * memory is short.
 */
#include "test.h"

#include "json.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static long count, fail_at; /* 0: none */
static int go_on;           /* the allocations after it fail, too */
static size_t most;         /* larger allocations fail, too; 0: none is too large */

static int fails(size_t n)
{
    count++;
    if (most && n > most) return errno = ENOMEM, 1;
    if (!fail_at || (count != fail_at && !(go_on && count > fail_at))) return 0;
    errno = ENOMEM;
    return 1;
}

static void *scarce(size_t n) { return fails(n) ? NULL : malloc(n); }

void *__real_realloc(void *p, size_t n);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_realloc(void *p, size_t n) { return fails(n) ? NULL : __real_realloc(p, n); }

static const char *const texts[] = {
    "{}",
    "[]",
    " [1, 2.5, true, false, null, \"\"]\n",
    "{\"a\": {\"b\": [[[\"c\"]]]}, \"a\": 2}",
    "[\"fifteen letters\", \"sixteen  letters\", \"\\\"\\\\\\\"\\\\\", \"\\u00e9\\ud83d\\ude00\"]",
    "[1234567890123456, -9223372036854775808, 12345678901234567890123456789012345678901234567.5]",
    "[\"a text of 31 characters, exactly\", \"one of 32 characters, and a quote\"]",
    "{\"kvs\":[{\"key\":\"L2hvbGRmYXN0L2JlbG93L2E=\",\"value\":\"eyJmb3JtYXQiOjEsInJldiI6MTc2\"}]}",
    "[0000000000000000000000000000000000000]",
    "[12345678901234567890123]",
    "[\"an end that is missing, behind more letters than fit into sixteen bytes",
    "[\"\\ud800 half a character that isn't ended by its other half: \\\\\"]",
    "[\"a NUL: \\u0000\"]",
    "{\"\\u0000\": 1}",
    "\"a text alone\"",
    "17",
    "null",
    "",
    "1], [2",
    "{}, {}",
    "{}]",
    "{}{}",
    "[1] x",
    ",",
    "\"\", []",
    "[\"\xc3\xa9\xff\"]",
    "[\"a line\nand another\"]",
    "{\"a\" 1}",
};
enum { TEXTS = sizeof texts / sizeof *texts };
static const size_t flags[] = {0, JSON_ALLOW_NUL, JSON_REJECT_DUPLICATES};

static void reads_as_jansson_does(void **state)
{
    (void)state;
    for (size_t i = 0; i < TEXTS; i++)
        for (size_t k = 0; k < 3; k++) {
            int nomem = -1;
            errno = ENOMEM; /* of somebody else's */
            json_t *own = hf__json_read(texts[i], strlen(texts[i]), flags[k], &nomem);
            assert_int_equal(errno, ENOMEM);
            json_t *theirs = json_loadb(texts[i], strlen(texts[i]), flags[k], NULL);
            assert_int_equal(nomem, 0);
            if (!own != !theirs || (own && !json_equal(own, theirs))) fail_msg("%s", texts[i]);
            json_decref(own);
            json_decref(theirs);
        }
}

/* Each length of a token, each allocation failing in turn, alone or with all that follow. */
static void whole_or_no_memory(void **state)
{
    (void)state;
    char text[300];
    for (size_t len = 0; len < 140; len++) {
        int n = snprintf(text, sizeof text, "{\"%.*s\": [\"\\\"%0*d\", 1%0*d]}", (int)len,
                         "keykeykeykeykeykeykeykeykeykeykeykeykeykeykeykey", (int)len, 7,
                         len < 18 ? (int)len + 1 : 1, 7);
        json_t *whole = json_loadb(text, (size_t)n, 0, NULL);
        assert_non_null(whole);
        for (go_on = 0; go_on < 2; go_on++)
            for (fail_at = 1;; fail_at++) {
                int nomem = -1;
                count = 0;
                json_t *j = hf__json_read(text, (size_t)n, 0, &nomem);
                int met = count >= fail_at;
                if (j ? nomem || !json_equal(j, whole) : nomem != 1)
                    fail_msg("%s: allocation %ld", text, fail_at);
                json_decref(j);
                if (!met) break;
            }
        fail_at = 0;
        json_decref(whole);
    }
}

/* Small allocations succeed, but a buffer can't grow. */
static void whole_or_no_room(void **state)
{
    (void)state;
    char text[300];
    for (int len = 0; len < 140; len++) {
        int n = snprintf(text, sizeof text, "[\"%0*d\"]", len, 7);
        json_t *whole = json_loadb(text, (size_t)n, 0, NULL);
        assert_non_null(whole);
        for (size_t room = 8; room < 800; room++) {
            int nomem = -1;
            most = room;
            json_t *j = hf__json_read(text, (size_t)n, 0, &nomem);
            most = 0;
            if (j ? nomem || !json_equal(j, whole) : nomem != 1)
                fail_msg("%s: no more than %zu", text, room);
            json_decref(j);
        }
        json_decref(whole);
    }
}

/* A text that isn't JSON isn't refused for lack of memory; one that is may be. */
static void wrong_or_no_memory(void **state)
{
    (void)state;
    for (size_t i = 0; i < TEXTS; i++)
        for (fail_at = 1;; fail_at++) {
            int nomem = -1;
            count = 0;
            json_t *j = hf__json_read(texts[i], strlen(texts[i]), 0, &nomem);
            long was = fail_at;
            int met = count >= fail_at;
            fail_at = 0;
            json_t *theirs = json_loadb(texts[i], strlen(texts[i]), 0, NULL);
            if (j ? nomem || !json_equal(j, theirs) : nomem ? !met : theirs != NULL)
                fail_msg("%s: allocation %ld", texts[i], was);
            json_decref(j);
            json_decref(theirs);
            fail_at = was;
            if (!met) break;
        }
    fail_at = 0;
}

/* The same of writing. Here it is the buffer that fails, which json.c allocates itself. */
static void written_whole_or_not(void **state)
{
    (void)state;
    char text[400], name[120];
    for (int len = 0; len < 100; len++) {
        memset(name, 'n', sizeof name);
        name[len] = 0;
        snprintf(text, sizeof text, "{\"%s\":[{\"a\":\"%s\"},17],\"b\":{}}", name, name);
        json_t *j = json_loads(text, 0, NULL);
        go_on = 0; /* a single failure is what does harm */
        for (fail_at = 1;; fail_at++) {
            count = 0;
            char *told = hf__json_text(j);
            if (told ? strcmp(told, text) != 0 : count < fail_at)
                fail_msg("%s: allocation %ld: %s", text, fail_at, told ? told : "none");
            free(told);
            if (count < fail_at) break;
        }
        fail_at = 0;
        json_decref(j);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_as_jansson_does), cmocka_unit_test(whole_or_no_memory),
        cmocka_unit_test(whole_or_no_room),      cmocka_unit_test(wrong_or_no_memory),
        cmocka_unit_test(written_whole_or_not),
    };
    json_set_alloc_funcs(scarce, free);
    return TEST_MAIN(tests);
}
