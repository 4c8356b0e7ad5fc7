/*
 * postgres_dial.c - the driver postgres before several servers, addresses and names: one deadline
 * for all of them; and which table it takes.
 *
 * A deadline is long where the call has to succeed: a call that spends it on one server ends by the
 * program's own time limit, or by an error.
 */
#include "network/kit_net.h"
#include "pgsay.h"
#include "test.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define ARE(...) \
    pg_are((const struct pg_rule[]){__VA_ARGS__}, COUNT(((const struct pg_rule[]){__VA_ARGS__})))

#define DB "/db?sslmode=disable&gssencmode=disable"

enum { LATE = 60000, SOON = 3000 };

static int other; /* listens, and isn't PostgreSQL's */

/* Opens postgres://u@BEFOREHOSTBEHIND, where # stands for that port. */
static int opens(const char *before, const char *behind, int port, int64_t io_ms, hf_store **ret)
{
    char form[600];
    size_t n = (size_t)snprintf(form, sizeof form, "postgres://u@");
    for (const char *p = before; *p; p++)
        n += (size_t)snprintf(form + n, sizeof form - n, *p == '#' ? "%d" : "%c",
                              *p == '#' ? port : *p);
    snprintf(form + n, sizeof form - n, "HOST%s", behind);
    return pg_opens(form, io_ms, ret);
}

static void works(const char *before, const char *behind, int port, int64_t io_ms)
{
    hf_store *st = NULL;
    hf_row row;
    hf_row_init(&row);
    said(opens(before, behind, port, io_ms, &st), 0, NULL);
    said(pg->get(st, &key, &row, &clock_us, &err), 0, NULL);
    hf_row_clear(&row);
    pg->close(st);
}

static void a_silent_server_does_not_take_the_time_of_the_next(void **state)
{
    int port = 0, filler, silent = kit_silent(2, &port, &filler);
    (void)state;
    pg_are(NULL, 0);
    works("127.0.0.2:#,", DB, port, LATE);
    close(silent);
    close(filler);
}

/* The server accepts, and never answers the greeting. */
static void a_mute_server_leaves_time_for_the_next(void **state)
{
    int port = 0, mute = kit_listen(2, &port);
    (void)state;
    pg_are(NULL, 0);
    works("127.0.0.2:#,", DB, port, 3000);
    /* Nor does a server that is mute only after the login. */
    ARE({"pg_is_in_recovery", "?", 1});
    works("HOST,", DB, port, 3000);
    ARE({"set_config", "?", 1});
    works("HOST,", DB, port, 3000);
    close(mute);
}

static void a_mute_name_server_does_not_take_the_time_of_the_next(void **state)
{
    hf_store *st = NULL;
    (void)state;
    pg_are(NULL, 0);
    kit_names_mute();
    works("mute:5432,", DB, 0, LATE);
    said(pg_opens("postgres://u@mute" DB, SOON, &st), HF_UNAVAILABLE,
         "'mute:5432': the name servers don't answer in time");
    kit_names_answer();
}

/* The driver looks up the name, and gives libpq its addresses. */
static void each_address_of_a_name_is_tried(void **state)
{
    int port = 0, filler, silent = kit_silent(2, &port, &filler), no = kit_refusing(3, &port);
    unsigned before = kit_names_asked();
    char text[200];
    (void)state;
    hf_store *st = NULL;
    pg_are(NULL, 0);
    snprintf(text, sizeof text, "postgres://u@at-2-3:%d" DB, port);
    said(pg_opens(text, SOON, &st), HF_UNAVAILABLE, "(127.0.0.2): no answer in time; 'at-2-3:");
    said(pg_opens(text, SOON, &st), HF_UNAVAILABLE, "(127.0.0.3): Connection refused");
    assert_int_equal(kit_names_asked(), before + 2); /* nobody else asks */
    close(silent);
    close(filler);
    close(no);
}

static void a_standby_is_passed_over(void **state)
{
    (void)state;
    hf_store *st = NULL;
    ARE({"pg_is_in_recovery", "t|off|77|150000|db|public", 1});
    works("HOST,", DB, 0, LATE);
    ARE({"pg_is_in_recovery", "f|on|77|150000|db|public", 1});
    works("HOST,", DB "&target_session_attrs=any", 0, LATE);
    /* One of them will become the primary, so it is waited for. */
    ARE({"pg_is_in_recovery", "t|off|77|150000|db|public", 0});
    said(opens("HOST,", DB, 0, LATE, &st), HF_UNAVAILABLE, "standby");
    said(opens("", DB, 0, LATE, &st), HF_UNSUPPORTED, "standby");
    /* The server could be used before: another one will soon take its place. */
    pg_are(NULL, 0);
    said(opens("", DB, 0, LATE, &st), 0, NULL);
    pg_cuts();
    ARE({"pg_is_in_recovery", "t|off|77|150000|db|public", 0});
    hf_row row;
    hf_row_init(&row);
    while (!pg->get(st, &key, &row, &clock_us, &err)) continue;
    said(pg->get(st, &key, &row, &clock_us, &err), HF_UNAVAILABLE, "standby");
    hf_row_clear(&row);
    pg->close(st);
}

/* If no server can be used, one that refuses for good is named. */
static void the_reasons_of_all_are_told(void **state)
{
    int port = 0, no = kit_refusing(3, &port);
    (void)state;
    hf_store *st = NULL;
    ARE({"connect", "!28P01 no such word", 0});
    said(opens("127.0.0.3:#,", DB, port, LATE, &st), HF_DENIED,
         ": Connection refused; '127.0.0.1:");
    assert_non_null(strstr(err.text, "no such word"));
    ARE({"connect", "!28P01 no such word", 1});
    works("HOST,", DB, port, LATE);
    close(no);
}

/* Answers the first bytes of a connection by *arg, and then, but for a single letter that is no
   yes, and for an alert, ends it. Of "S" and more, the letter is the first answer, and the rest the
   second. */
static void *says(void *arg)
{
    char greeting[1000];
    const char *answer = arg;
    int fd = accept(other, NULL, NULL), twice = *answer == 'S' && answer[1] && answer[1] < ' ';
    if (recv(fd, greeting, sizeof greeting, 0) > 0)
        send(fd, answer, twice ? 1 : strlen(answer), MSG_NOSIGNAL);
    /* MSG_MORE: the end is in the same segment. */
    if (twice && recv(fd, greeting, sizeof greeting, 0) > 0)
        send(fd, answer + 1, strlen(answer + 1),
             MSG_NOSIGNAL | (answer[1] == '\x15' ? 0 : MSG_MORE));
    if (strcmp(arg, "N") != 0 && strcmp(arg, "-") != 0 && !(twice && answer[1] == '\x15'))
        shutdown(fd, SHUT_WR);
    while (recv(fd, greeting, sizeof greeting, 0) > 0) continue;
    close(fd);
    return NULL;
}

/* Only a PostgreSQL server can refuse TLS, or be refused because of it. */
static void what_speaks_another_protocol_denies_nothing(void **state)
{
    static const struct {
        const char *says;
        int code;
    } cases[] = {{"-ERR unknown command\r\n", HF_UNAVAILABLE},
                 {"HTTP/1.1 400 Bad Request\r\n\r\n", HF_UNAVAILABLE},
                 {"SSH-2.0-x\r\n", HF_UNAVAILABLE},
                 {"NO\r\n", HF_UNAVAILABLE},
                 {"-", HF_UNAVAILABLE},
                 {"\x15\x03\x03", HF_UNAVAILABLE},
                 {"S", HF_UNAVAILABLE},
                 /* A handshake that has begun; an alert. */
                 {"S\x16\x03\x03\x01\x7a\x02", HF_UNAVAILABLE},
                 {"S\x15\x03\x03\xff\x02\x02\x30", HF_DENIED},
                 {"", HF_UNAVAILABLE},
                 {"N", HF_DENIED}};
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        hf_store *st = NULL;
        pthread_t thread;
        int port;
        other = said_listens(0, &port);
        assert_true(other >= 0);
        assert_int_equal(pthread_create(&thread, NULL, says, (void *)(uintptr_t)cases[i].says), 0);
        said(said_opens(pg, "postgres://u@HOST/db?sslmode=require&gssencmode=disable", port, LATE,
                        &st),
             cases[i].code, "127.0.0.1:");
        pthread_join(thread, NULL);
        close(other);
    }
}

/* ---- which table ---- */

#define DB_URL "postgres://u@HOST" DB

static int replace(hf_store *st)
{
    hf_row row;
    hf_row_init(&row);
    row.rev = 1;
    int rc = pg->replace(st, &key, 0, &row, NULL, &clock_us, &err);
    hf_row_clear(&row);
    return rc;
}

/* The table's schema is found once: by the search path, or by the URL. */
static void the_schema_is_part_of_the_name(void **state)
{
    (void)state;
    hf_store *st = pg_opened(DB_URL);
    said(replace(st), HF_CONFLICT, NULL);
    assert_int_equal(pg_asked("INTO \"public\".\"holdfast\""), 1);
    pg->close(st);
    st = pg_opened(DB_URL "&table=al.locks");
    said(replace(st), HF_CONFLICT, NULL);
    assert_int_equal(pg_asked("INTO \"al\".\"locks\""), 1);
    assert_int_equal(pg_asked("CREATE TABLE"), 0);
    pg->close(st);
    /* The table is made where the search path says, and that one is used from then on. */
    st = NULL;
    ARE({"pg_is_in_recovery", "f|off|77|150000|db|", 0}, {"to_regclass", "db|bo", 0});
    said(pg_opens(DB_URL, 60000, &st), 0, NULL);
    assert_int_equal(pg_asked("CREATE TABLE"), 1);
    said(replace(st), HF_CONFLICT, NULL);
    assert_int_equal(pg_asked("INTO \"bo\".\"holdfast\""), 1);
    pg->close(st);
    ARE({"pg_is_in_recovery", "f|off|77|150000|db|", 0}, {"CREATE", "!42501 not for you", 0});
    said(pg_opens(DB_URL, 60000, &st), HF_DENIED, "not for you");
    ARE({"pg_is_in_recovery", "f|off|77|150000|db|", 0}, {"to_regclass", "db|", 0});
    said(pg_opens(DB_URL, 60000, &st), HF_UNAVAILABLE, "dropped meanwhile");
}

/* A password from a file may be older than the server's, for a while; the URL's own isn't. */
static void a_password_that_was_right_once(void **state)
{
    (void)state;
    static const struct {
        const char *url;
        int code;
    } cases[] = {{DB_URL, HF_UNAVAILABLE}, {"postgres://u:word@HOST" DB, HF_DENIED}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        hf_row row;
        hf_store *st = pg_opened(cases[i].url);
        hf_row_init(&row);
        pg_cuts();
        ARE({"connect", "!28P01 no such word", 0});
        while (!pg->get(st, &key, &row, &clock_us, &err)) continue;
        said(pg->get(st, &key, &row, &clock_us, &err), cases[i].code, "no such word");
        hf_row_clear(&row);
        pg->close(st);
    }
}

static void descriptors_0_1_and_2_stay_closed(void **state)
{
    int status, port = 0, no = kit_refusing(3, &port);
    (void)state;
    pg_are(NULL, 0);
    fflush(NULL);
    pid_t child = fork();
    if (!child) {
        hf_store *st = NULL;
        hf_row row;
        hf_row_init(&row);
        for (int i = 0; i < 3; i++) close(i);
        int rc = opens("127.0.0.3:#,", DB, port, LATE, &st), low = 0;
        if (!rc) rc = pg->get(st, &key, &row, &clock_us, &err);
        for (int i = 0; i < 3; i++) low |= fcntl(i, F_GETFD) >= 0;
        _exit(rc ? 1 : low ? 2 : 0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    close(no);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_silent_server_does_not_take_the_time_of_the_next),
        cmocka_unit_test(a_mute_server_leaves_time_for_the_next),
        cmocka_unit_test(a_mute_name_server_does_not_take_the_time_of_the_next),
        cmocka_unit_test(each_address_of_a_name_is_tried),
        cmocka_unit_test(a_standby_is_passed_over),
        cmocka_unit_test(the_reasons_of_all_are_told),
        cmocka_unit_test(what_speaks_another_protocol_denies_nothing),
        cmocka_unit_test(the_schema_is_part_of_the_name),
        cmocka_unit_test(a_password_that_was_right_once),
        cmocka_unit_test(descriptors_0_1_and_2_stay_closed),
    };
    return pg_begin() ? TEST_MAIN(tests) : 1;
}
