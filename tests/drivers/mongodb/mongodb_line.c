/*
 * mongodb_line.c - the driver mongodb: which changes of a row a waiter is notified of, by its place
 * in the queue. tests/servers/mongodb mongodb_line @
 */
#include "drivers.h"
#include "fakes/listens.h"
#include "os.h"
#include "test.h"

#include <stdio.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

static const hf_driver *drv;
static hf_url url;
static hf_error err;
static hf_store *writer, *waiter;
static uint64_t rev;

/* Returns a party, each with a handle of its own. */
static hf_party party(char name)
{
    hf_party p;
    memset(&p, 0, sizeof p);
    memset(p.id, name, sizeof p.id);
    p.lease_ms = p.claim_ms = 60000;
    p.owner[0] = name;
    p.owner_len = 1;
    return p;
}

/* The row becomes: those before the '/' hold, a capital one has been handed it and sleeps still;
   the others wait. "": it is removed. */
static void becomes(const hf_rowkey *key, const char *who)
{
    hf_row row;
    int64_t clock;
    uint64_t seen = rev;
    hf_row_init(&row);
    assert_int_equal(hf_row_room(&row, strlen(who)), 0);
    row.rev = row.token = rev = hf_rev_next(rev, hf__day_us());
    const char *line = strchr(who, '/');
    for (const char *s = who; *s; s++) {
        if (*s == '/') continue;
        hf_party *p = &row.party[row.n_holders + row.n_queue];
        int asleep = *s >= 'A' && *s <= 'Z';
        *p = party((char)(asleep ? *s - 'A' + 'a' : *s));
        if (s > line) {
            row.n_queue++;
            continue;
        }
        row.n_holders++;
        p->token = row.token;
        p->since_us = p->expires_us = (int64_t)row.rev;
        p->flags = asleep ? HF_PARTY_UNCLAIMED : 0;
    }
    if (drv->replace(writer, key, seen, *who ? &row : NULL, NULL, &clock, &err))
        fail_msg("%s: %s", who, err.text);
    hf_row_clear(&row);
    if (!*who) rev = 0;
}

/* Returns 1 if the waiter was notified of the last change, which granted the key. */
static int has_heard(const hf_rowkey *key)
{
    hf_row row;
    hf_row_init(&row);
    int is = drv->caps.notify->payload(waiter, key, &row) && row.token == rev;
    hf_row_clear(&row);
    return is;
}

/* Returns how many events concerned the waiter, which has subscribed to that key alone. */
static uint64_t heard(const hf_rowkey *key)
{
    hf_event_count now;
    if (listen_for(drv, waiter, &key, 1, &now, &err)) fail_msg("listen: %s", err.text);
    return now.n[0];
}

/* Subscribes to the key as `name`, which is queued alone, so that it is notified. Then writes each
   of these rows, and counts of how many it was notified. The last row grants the key to another
   party. */
static int is_told(const char *text, char name, int in_line, const char *const *rows, size_t n)
{
    hf_rowkey key;
    const hf_rowkey *keys[] = {&key};
    hf_party p = party(name);
    hf_event_count since;
    assert_int_equal(hf_key_make(text, &key, &err), 0);
    key.who = p.id;
    key.in_line = in_line;
    rev = 0;
    if (listen_for(drv, waiter, keys, 1, &since, &err)) fail_msg("listen: %s", err.text);
    uint64_t before = since.n[0];
    const char alone[] = {'z', '/', name, 0};
    becomes(&key, alone);
    for (size_t i = 0; i < n; i++) becomes(&key, rows[i]);
    int64_t until_us = hf__local_us() + INT64_C(30000000);
    while (!has_heard(&key)) {
        if (hf__local_us() > until_us) fail_msg("%s: never heard of the last change", text);
        if (drv->caps.notify->sleep(waiter, &since, hf__local_us() + 10000, &err) < 0)
            fail_msg("watch: %s", err.text);
    }
    uint64_t counted = heard(&key);
    becomes(&key, "");
    return counted < before ? -1 : (int)(counted - before) - 1;
}

static void in_line_it_is_told_of_what_concerns_it(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        char who;
        int in_line, told;
        const char *row[6];
    } cases[] = {
        /* Another request is queued behind it, the holder renews, the key is handed over, and
           claimed. */
        {"third", 'd', 1, 0, {"a/bcd", "a/bcde", "a/bcdef", "B/cdef", "b/cdef"}},
        {"third, till the end", 'd', 1, 2, {"a/bcd", "a/bcde", "B/cde", "b/cde", "C/de", "D/e"}},
        {"first", 'b', 1, 3, {"a/bcd", "a/bcde", "B/cde"}},
        {"second", 'c', 1, 3, {"a/bcd", "a/bcde", "B/cde", "b/cde", "C/de"}},
        {"alone", 'b', 1, 2, {"a/b", "B/"}},
        {"one of two", 'c', 1, 1, {"a/bc", "BC/"}},
        /* A waiter out of line is notified of all. */
        {"outside", 'd', 0, 5, {"a/bc", "a/bce", "a/bcef", "B/cef", "C/ef"}},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        size_t n = 0;
        while (n < COUNT(cases[i].row) && cases[i].row[n]) n++;
        int told = is_told(cases[i].key, cases[i].who, cases[i].in_line, cases[i].row, n);
        if (told != cases[i].told)
            fail_msg("%s: told %d times, not %d", cases[i].key, told, cases[i].told);
    }
}

/* Every waiter is notified of a deletion, because the row that it waits in is gone. */
static void who_waits_is_told_of_a_removal(void **state)
{
    (void)state;
    hf_rowkey key;
    const hf_rowkey *keys[] = {&key};
    hf_party last = party('d');
    hf_event_count since;
    assert_int_equal(hf_key_make("removed", &key, &err), 0);
    key.who = last.id;
    key.in_line = 1;
    rev = 0;
    if (listen_for(drv, waiter, keys, 1, &since, &err)) fail_msg("listen: %s", err.text);
    becomes(&key, "a/d");
    becomes(&key, "a/bcde"); /* a change that doesn't concern it */
    becomes(&key, "");
    int64_t until_us = hf__local_us() + INT64_C(30000000);
    while (heard(&key) < since.n[0] + 2) {
        if (hf__local_us() > until_us) fail_msg("not told");
        if (drv->caps.notify->sleep(waiter, &since, hf__local_us() + 10000, &err) < 0)
            fail_msg("watch: %s", err.text);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_line_it_is_told_of_what_concerns_it),
        cmocka_unit_test(who_waits_is_told_of_a_removal),
    };
    if (argc != 2) return 64;
    drv = hf__driver("mongodb", &err);
    if (!drv || hf_url_parse(argv[1], &url, &err) ||
        drv->open(&url, 5000, &writer, &(hf_caps){0}, &err) ||
        drv->open(&url, 5000, &waiter, &(hf_caps){0}, &err)) {
        printf("Bail out! %s\n", err.text);
        return 1;
    }
    int failed = TEST_MAIN(tests);
    drv->close(writer);
    drv->close(waiter);
    return failed;
}
