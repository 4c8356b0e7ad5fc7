/*
 * mariadb_dial.c - the driver mariadb before several servers, addresses and names: one deadline for
 * all of them.
 *
 * A deadline is long where the call has to succeed: a call that spends it on one server ends by the
 * program's own time limit, or by an error.
 */
#include "mysay.h"
#include "network/kit_net.h"
#include "test.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { LATE = 60000, SOON = 3000 };

/* Opens mariadb://u@BEFOREHOST/db, where # stands for that port, and reads a row. */
static void works(const char *before, int port, int64_t io_ms)
{
    char form[200] = "mariadb://u@";
    int64_t clock_us;
    hf_store *st = NULL;
    hf_row row;
    size_t n = strlen(form);
    for (const char *p = before; *p; p++)
        n += (size_t)snprintf(form + n, sizeof form - n, *p == '#' ? "%d" : "%c",
                              *p == '#' ? port : *p);
    snprintf(form + n, sizeof form - n, "HOST/db");
    hf_row_init(&row);
    said(my_opens(form, io_ms, &st), 0, NULL);
    said(mariadb->get(st, &key, &row, &clock_us, &err), 0, NULL);
    hf_row_clear(&row);
    mariadb->close(st);
}

static void a_silent_server_does_not_take_the_time_of_the_next(void **state)
{
    int port = 0, filler, silent = kit_silent(2, &port, &filler);
    (void)state;
    works("127.0.0.2:#,", port, LATE);
    close(silent);
    close(filler);
}

/* The server accepts, and sends no greeting; or it is mute after the login. */
static void a_mute_server_leaves_time_for_the_next(void **state)
{
    int port = 0, mute = kit_listen(2, &port);
    (void)state;
    works("127.0.0.2:#,", port, 3000);
    static const char *const parts[] = {"VERSION()", "SET autocommit"};
    for (size_t i = 0; i < COUNT(parts); i++) {
        my_bad = (struct my_error){.part = parts[i], .mutes = 1};
        works("HOST,", 0, 3000);
        assert_int_equal(my_bad.mutes, 0);
        my_bad.part = NULL;
    }
    close(mute);
}

static void a_mute_name_server_does_not_take_the_time_of_the_next(void **state)
{
    hf_store *st = NULL;
    (void)state;
    kit_names_mute();
    works("mute:3306,", 0, LATE);
    said(my_opens("mariadb://u@mute/db", SOON, &st), HF_UNAVAILABLE,
         "the name servers don't answer in time");
    kit_names_answer();
}

static void each_address_of_a_name_is_tried(void **state)
{
    int port = 0, filler, silent = kit_silent(2, &port, &filler), no = kit_refusing(3, &port);
    hf_store *st = NULL;
    char text[200];
    (void)state;
    snprintf(text, sizeof text, "mariadb://u@at-2-3:%d/db", port);
    said(my_opens(text, SOON, &st), HF_UNAVAILABLE, "(127.0.0.2): no answer in time");
    said(my_opens(text, SOON, &st), HF_UNAVAILABLE, "(127.0.0.3): ");
    close(silent);
    close(filler);
    close(no);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_silent_server_does_not_take_the_time_of_the_next),
        cmocka_unit_test(a_mute_server_leaves_time_for_the_next),
        cmocka_unit_test(a_mute_name_server_does_not_take_the_time_of_the_next),
        cmocka_unit_test(each_address_of_a_name_is_tried),
    };
    if (!my_begin()) return 1;
    return TEST_MAIN(tests);
}
