/*
 * postgres_words.c - the driver postgres: how a waiter is woken by a server that says anything.
 */
#include "fakes/listens.h"
#include "pgsay.h"
#include "test.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define URL "postgres://u@HOST/db?sslmode=disable&gssencmode=disable"
#define NOW "1769860800000017"
#define GET "SELECT 0, "

static hf_row cur;

static hf_store *opened_anew(void)
{
    hf_store *st = pg_opened(URL);
    listens_anew(st);
    return st;
}

static int listen_to(hf_store *st, hf_event_count *ret)
{
    const hf_rowkey *keys[] = {&key};
    return listen_for(pg, st, keys, 1, ret, &err);
}

static int64_t in_ms(int64_t ms)
{
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000 + ms * 1000;
}

#define ARE(...) \
    pg_are((const struct pg_rule[]){__VA_ARGS__}, COUNT(((const struct pg_rule[]){__VA_ARGS__})))

static void who_waits(void **state)
{
    (void)state;
    char ours[30];
    hf_event_count since;
    hf_store *st = opened_anew();
    snprintf(ours, sizeof ours, "%llu", (unsigned long long)key.hash);
    ARE({"LISTEN", "1", 0});
    said(listen_to(st, &since), 0, NULL);
    said(pg->caps.notify->sleep(st, &since, in_ms(0), &err), 0, NULL);
    pg->caps.notify->interrupt(st);
    said(pg->caps.notify->sleep(st, &since, in_ms(60000), &err), 0, NULL);
    /* The server goes away while a wait sleeps, and while none does. */
    pg_cuts();
    said(pg->caps.notify->sleep(st, &since, in_ms(60000), &err), HF_UNAVAILABLE,
         "the connection broke");
    said(listen_to(st, &since), HF_UNAVAILABLE, "failed less than 5 s ago");
    pg->close(st);
    /* A notification for another key isn't used, one for this key is. */
    st = opened_anew();
    ARE({"LISTEN", "1", 0});
    said(listen_to(st, &since), 0, NULL);
    pg_notifies("12345");
    said(pg->caps.notify->sleep(st, &since, in_ms(50), &err), 0, NULL);
    pg_notifies(ours);
    assert_int_equal(pg->caps.notify->sleep(st, &since, in_ms(60000), &err), 1);
    /* After the connection was cut, the driver subscribes anew. */
    pg_cuts();
    do said(listen_to(st, &since), 0, NULL);
    while (pg_asked("LISTEN") < 2);
    pg->close(st);
    static const struct {
        const char *part, *told, *says;
        int code;
    } cases[] = {{"LISTEN", "!42501 permission denied", "permission", HF_DENIED},
                 {"connect", "!57P03 starting up", "starting up", HF_UNAVAILABLE},
                 {"pg_is_in_recovery", "f|off|78|150000|db|public", "a pooler", HF_UNAVAILABLE}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        st = opened_anew();
        ARE({cases[i].part, cases[i].told, 0});
        said(listen_to(st, &since), cases[i].code, cases[i].says);
        said(listen_to(st, &since), HF_UNAVAILABLE, "failed less than 5 s ago");
        pg->close(st);
    }
}

/* ---- what a word says, which anybody may have sent ---- */

#define ME      "0000000000000000000000000000000a"
#define ANOTHER "0000000000000000000000000000000b"
static const uint8_t me[16] = {[15] = 10}, other[16] = {[15] = 11};

static hf_event_count heard;

/* Sends the notification "KEY BEHIND" and sleeps. Returns how many requests follow. */
static int after_word(hf_store *st, const char *behind, int64_t ms)
{
    char word[200];
    snprintf(word, sizeof word, "%llu%s", (unsigned long long)key.hash, behind);
    said(listen_to(st, &heard), 0, NULL);
    pg_notifies(word);
    return pg->caps.notify->sleep(st, &heard, in_ms(ms), &err);
}

static hf_store *listens(const uint8_t *who, const char *there)
{
    hf_store *st = opened_anew();
    ARE({"LISTEN", "1", 0}, {GET, there, 0});
    key.who = who;
    said(listen_to(st, &heard), 0, NULL);
    return st;
}

#define TELLS(REV) \
    assert_int_equal(pg->caps.notify->payload(st, &key, &cur), 1), assert_int_equal(cur.rev, REV)

/* A payload that names the waiter makes the driver read the row, and use what is read: the payload
   itself doesn't grant. */
static void a_word_is_not_believed(void **state)
{
    (void)state;
    static const char *const read[] = {"",
                                       " " ME " 1769860800000000",
                                       " " ANOTHER,
                                       " " ANOTHER " ",
                                       " " ANOTHER " x",
                                       " " ANOTHER " 1x",
                                       " " ANOTHER " -1",
                                       " " ANOTHER " 9223372036854775808",
                                       " " ANOTHER "0 1",
                                       " 000000000000000000000000000000xb 1",
                                       "  " ANOTHER " 1"};
    const char *there = pg_row_but("0|" NOW, "rev", "7");
    hf_store *st = listens(me, there);
    for (size_t i = 0; i < COUNT(read); i++) {
        assert_int_equal(after_word(st, read[i], 60000), 1);
        TELLS(7);
        assert_memory_not_equal(cur.party[0].id, me, 16);
    }
    pg->close(st);
    /* There is no row, or it can't be read: there is no payload. */
    const char *const none[] = {pg_row_but("0|" NOW, "", NULL), "!42P01 no such table",
                                "!57P01 going down", pg_row_but("0|" NOW, "format", "1"), "."};
    for (size_t i = 0; i < COUNT(none); i++) {
        st = listens(me, none[i]);
        int asked = after_word(st, " " ME " 1", 60000);
        assert_int_equal(asked, *none[i] == '.' ? HF_UNAVAILABLE : 1);
        assert_int_equal(pg->caps.notify->payload(st, &key, &cur), 0);
        pg->close(st);
    }
    key.who = NULL;
}

/* A payload that names another is for the others, which needn't read. */
static void another_is_named(void **state)
{
    (void)state;
    hf_store *st = listens(me, pg_row_but("0|" NOW, "rev", "7"));
    assert_int_equal(after_word(st, " " ANOTHER " 1769860800000000", 60000), 0);
    TELLS(0);
    assert_int_equal(cur.n_holders, 1);
    assert_int_equal(cur.party[0].expires_us, INT64_C(1769860800000000));
    assert_memory_equal(cur.party[0].id, other, 16);
    assert_int_equal(pg_asked(GET), 0);
    /* The named request has come to wait now: that earlier notification isn't used for it. */
    key.who = other;
    said(listen_to(st, &heard), 0, NULL);
    assert_int_equal(pg->caps.notify->payload(st, &key, &cur), 0);
    assert_int_equal(after_word(st, " " ANOTHER " 1", 60000), 1);
    TELLS(7);
    /* A row that was read for it stays until it has been seen, even if a notification then names
       another request. */
    assert_int_equal(after_word(st, " " ANOTHER " 1", 60000), 1);
    assert_int_equal(after_word(st, " " ME " 1", 60000), 1);
    TELLS(7);
    assert_int_equal(after_word(st, " " ME " 1", 60000), 0);
    TELLS(0);
    /* Nor does it use what was notified before it came back. */
    said(listen_for(pg, st, NULL, 0, &heard, &err), 0, NULL);
    said(listen_to(st, &heard), 0, NULL);
    assert_int_equal(pg->caps.notify->payload(st, &key, &cur), 0);
    /* The wait has ended. Notifications that name it still make the driver read; others don't. */
    said(listen_for(pg, st, NULL, 0, &heard, &err), 0, NULL);
    char word[100];
    snprintf(word, sizeof word, "%llu " ANOTHER " 1", (unsigned long long)key.hash);
    pg_notifies(word);
    int asked = 0;
    while (!asked) asked = pg->caps.notify->sleep(st, &heard, in_ms(20), &err);
    assert_int_equal(asked, 1);
    *strchr(word, ' ') = 0;
    pg_notifies(word);
    while (pg->caps.notify->payload(st, &key, &cur))
        said(pg->caps.notify->sleep(st, &heard, in_ms(20), &err), 0, NULL);
    pg->close(st);
    key.who = NULL;
}

/* However many notifications make it read rows that no wait here needs, the sleep ends in time. */
static void a_flood_of_words(void **state)
{
    (void)state;
    char word[100], flood[2000];
    snprintf(word, sizeof word, "%llu " ME " 1", (unsigned long long)key.hash);
    snprintf(flood, sizeof flood, "@%s@%s", word, pg_row_but("0|" NOW, "rev", "7"));
    hf_store *st = listens(me, flood);
    said(listen_for(pg, st, NULL, 0, &heard, &err), 0, NULL);
    pg_notifies(word);
    int asked = 0;
    while (!asked) asked = pg->caps.notify->sleep(st, &heard, in_ms(20), &err);
    assert_true(asked > 0);
    pg->caps.notify->interrupt(st);
    assert_true(pg->caps.notify->sleep(st, &heard, in_ms(3600000), &err) >= 0);
    pg->close(st);
    key.who = NULL;
}

/* A queued waiter listens at its handle's address, once for all; not on the common channel. */
static void in_line_it_listens_at_an_address(void **state)
{
    (void)state;
    static const uint8_t mine[16] = {1, 2, 3, 4, 5, 6, 7, 8, 1},
                         next[16] = {1, 2, 3, 4, 5, 6, 7, 8, 2};
    static const char at[] = "LISTEN \"holdfast 0102030405060708\"", all[] = "LISTEN \"holdfast:";
    hf_store *st = opened_anew();
    ARE({"LISTEN", "1", 0});
    key.in_line = 1;
    key.who = mine;
    said(listen_to(st, &heard), 0, NULL);
    key.who = next;
    said(listen_to(st, &heard), 0, NULL);
    assert_int_equal(pg_asked(at), 1);
    assert_int_equal(pg_asked(all), 0);
    /* Not queued: it uses the channel of all keys; then it is queued again. */
    key.in_line = 0;
    said(listen_to(st, &heard), 0, NULL);
    assert_int_equal(pg_asked(all), 1);
    key.in_line = 1;
    said(listen_to(st, &heard), 0, NULL);
    assert_int_equal(pg_asked("UNLISTEN \"holdfast:"), 1);
    assert_int_equal(pg_asked(at), 1);
    key.in_line = 0;
    key.who = NULL;
    pg->close(st);
}

/* Requests with other ids have other channels. A channel that no wait uses any more is dropped in
   time. */
static void other_ids_are_elsewhere(void **state)
{
    (void)state;
    uint8_t id[16] = {0};
    hf_store *st = opened_anew();
    ARE({"LISTEN", "1", 0});
    key.in_line = 1;
    key.who = id;
    for (id[0] = 0; id[0] < 70; id[0]++) said(listen_to(st, &heard), 0, NULL);
    assert_int_equal(pg_asked("LISTEN \"holdfast 4500000000000000"), 1);
    assert_int_equal(pg_asked("UNLISTEN \"holdfast 0000000000000000"), 1);
    key.in_line = 0;
    key.who = NULL;
    pg->close(st);
}

/* The key's hint belongs to the writes: the thread that reads notifications leaves it alone. */
static void the_hint_is_of_the_writes_alone(void **state)
{
    (void)state;
    uint64_t hint = UINT64_C(1) << 63 | 1;
    hf_store *st = opened_anew();
    ARE({"LISTEN", "1", 0}, {GET, pg_row_but("0|" NOW, "rev", "7"), 0});
    key.hint = &hint;
    key.who = me;
    assert_int_equal(after_word(st, " " ME " 1", 60000), 1);
    TELLS(7);
    assert_true(events_of(pg, st, &key) != 0);
    assert_true(hint == (UINT64_C(1) << 63 | 1));
    key.hint = NULL;
    key.who = NULL;
    pg->close(st);
}

enum { MANY = 300, FEW = 5 };

/* Of many keys the notified one gets the event, also when most subscriptions have ended. */
static void a_word_reaches_its_key(void **state)
{
    (void)state;
    static char name[MANY][12];
    static hf_rowkey keys[MANY];
    const hf_rowkey *all[MANY];
    uint64_t before[MANY];
    hf_store *st = opened_anew();
    ARE({"LISTEN", "1", 0}, {GET, pg_row_but("0|" NOW, "rev", "7"), 0});
    for (int i = 0; i < MANY; i++) {
        snprintf(name[i], sizeof name[i], "many-%d", i);
        assert_int_equal(hf_key_make(name[i], &keys[i], &err), 0);
        all[i] = &keys[i];
    }
    for (int n = MANY, i = 137; n; n = n == MANY ? FEW : 0, i = 3) {
        char word[30];
        said(listen_for(pg, st, all, (size_t)n, &heard, &err), 0, NULL);
        for (int k = 0; k < n; k++) before[k] = events_of(pg, st, &keys[k]);
        snprintf(word, sizeof word, "%llu", (unsigned long long)keys[i].hash);
        pg_notifies(word);
        assert_int_equal(pg->caps.notify->sleep(st, &heard, in_ms(60000), &err), 1);
        for (int k = 0; k < n; k++)
            assert_int_equal(events_of(pg, st, &keys[k]) != before[k], k == i);
        assert_int_equal(pg->caps.notify->payload(st, &keys[i], &cur), 1);
        assert_int_equal(pg->caps.notify->payload(st, &keys[i - 1], &cur), 0);
    }
    pg->close(st);
}

int main(void)
{
    if (!pg_begin()) return 1;
    hf_row_init(&cur);
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_waits),
        cmocka_unit_test(a_word_is_not_believed),
        cmocka_unit_test(another_is_named),
        cmocka_unit_test(a_flood_of_words),
        cmocka_unit_test(in_line_it_listens_at_an_address),
        cmocka_unit_test(other_ids_are_elsewhere),
        cmocka_unit_test(the_hint_is_of_the_writes_alone),
        cmocka_unit_test(a_word_reaches_its_key),
    };
    int failed = TEST_MAIN(tests);
    hf_row_clear(&cur);
    return failed;
}
