/*
 * firestore_mute.c - firestore in front of a server that accepts a connection and is mute: the
 * error names the part of it that had no answer.
 */
#include "fakes/said.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const hf_driver *firestore;
static int port;

static void is_mute(const char *endpoint, const char *part)
{
    char form[200];
    hf_store *st = NULL;
    hf_row row;
    int64_t clock_us;
    snprintf(form, sizeof form, "firestore://p?endpoint=%s", endpoint);
    said(said_opens(firestore, form, port, 1000, &st), 0, NULL);
    hf_row_init(&row);
    said(firestore->get(st, &key, &row, &clock_us, &err), HF_UNAVAILABLE, part);
    hf_row_clear(&row);
    firestore->close(st);
}

static void the_mute_part_is_named(void **state)
{
    (void)state;
    is_mute("http://HOST", "no answer within 1000 ms (the reply)");
    is_mute("https://HOST", "no answer within 1000 ms (TLS)");
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(the_mute_part_is_named)};
    int listener = said_listens(0, &port);
    setenv("FIRESTORE_ID_TOKEN", "token", 1);
    firestore = hf__driver("firestore", &err);
    if (listener < 0 || !firestore || hf_key_make("k", &key, &err)) {
        printf("Bail out! %s\n", err.text);
        return 1;
    }
    return TEST_MAIN(tests);
}
