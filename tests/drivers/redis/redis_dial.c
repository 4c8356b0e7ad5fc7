/*
 * redis_dial.c - the driver redis before several addresses and names: one deadline for all of them;
 * and the password that is read at each connect.
 *
 * A deadline is long where the call has to succeed: a call that spends it on one address ends by
 * the program's own time limit, or by an error.
 */
#include "network/kit_net.h"
#include "resp.h"
#include "scratch.h"
#include "test.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LATE = 60000, SOON = 3000 };

#define REPLICA "$12\r\nrole:slave\r\n\r\n"

static int get(hf_store *st)
{
    hf_row row;
    hf_row_init(&row);
    int rc = redis->get(st, &key, &row, &clock_us, &err);
    hf_row_clear(&row);
    return rc;
}

static void is(const char *command, const char *reply, int times)
{
    const struct resp_rule rules[] = {{command, reply, times, 0},
                                      {"EVALSHA", resp_row_but(0, "rev", "6"), 0, 0}};
    resp_are(rules, 2);
}

static int opens(const char *host, const char *behind, int64_t io_ms, hf_store **ret)
{
    char form[600];
    snprintf(form, sizeof form, "redis://%s:%d%s", host, resp_port(), behind);
    return said_opens(redis, form, 0, io_ms, ret);
}

static void works(const char *host, int64_t io_ms)
{
    hf_store *st = NULL;
    said(opens(host, "", io_ms, &st), 0, NULL);
    said(get(st), 0, NULL);
    redis->close(st);
}

static void a_silent_address_does_not_take_the_time_of_the_next(void **state)
{
    int port = resp_port(), filler, silent = kit_silent(2, &port, &filler);
    hf_store *st = NULL;
    (void)state;
    is("", "", 0);
    works("at-2-1", LATE);
    said(opens("at-2-3", "", SOON, &st), HF_UNAVAILABLE, "(127.0.0.2): no answer in time; 'at-2-3");
    said(opens("at-2-3", "", SOON, &st), HF_UNAVAILABLE, "(127.0.0.3): Connection refused");
    close(silent);
    close(filler);
}

static void a_mute_server_leaves_time_for_the_next(void **state)
{
    int port = resp_port(), mute = kit_listen(2, &port);
    (void)state;
    is("", "", 0);
    works("at-2-1", 3000);
    is("INFO", NULL, 1); /* the server is mute after the login */
    works("at-1-1", 3000);
    close(mute);
}

static void a_mute_name_server_does_not_hold_the_caller(void **state)
{
    hf_store *st = NULL;
    (void)state;
    kit_names_mute();
    said(opens("mute", "", SOON, &st), HF_UNAVAILABLE, "the name servers don't answer in time");
    kit_names_answer();
}

static void a_replica_is_passed_over(void **state)
{
    hf_store *st = NULL;
    (void)state;
    is("INFO", REPLICA, 1);
    works("at-1-1", LATE);
    is("INFO", REPLICA, 0);
    said(opens("at-1-1", "", LATE, &st), HF_UNSUPPORTED, "it is a replica");
    is("INFO", "-LOADING Redis is loading\r\n", 1);
    works("at-1-1", LATE);
}

static void write_file(const char *path, const char *content)
{
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    assert_true(fputs(content, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

/* Makes the server end the connection; the next request uses another one. */
static void cuts(hf_store *st)
{
    const struct resp_rule cut = {NULL, NULL, 1, 1};
    resp_are(&cut, 1);
    said(get(st), HF_UNAVAILABLE, "closed");
    is("", "", 0);
}

static void asked_with(const char *word)
{
    char *password = resp_password();
    assert_string_equal(password, word);
    free(password);
}

static void the_password_is_read_at_each_connect(void **state)
{
    char path[300], behind[400];
    hf_store *st = NULL;
    (void)state;
    snprintf(path, sizeof path, "%s/pass", scratch_dir);
    snprintf(behind, sizeof behind, "?passfile=%s", path);
    is("", "", 0);
    said(opens("127.0.0.1", behind, LATE, &st), HF_UNAVAILABLE, "No such file");
    write_file(path, "one\n");
    said(opens("127.0.0.1", behind, LATE, &st), 0, NULL);
    asked_with("one");
    write_file(path, "two\n");
    cuts(st);
    said(get(st), 0, NULL);
    asked_with("two");
    /* While it is being replaced. */
    assert_int_equal(unlink(path), 0);
    cuts(st);
    said(get(st), HF_UNAVAILABLE, "No such file");
    write_file(path, "three\n");
    said(get(st), 0, NULL);
    asked_with("three");
    /* The server has a new one already. */
    cuts(st);
    is("AUTH", "-WRONGPASS no\r\n", 1);
    said(get(st), HF_UNAVAILABLE, "WRONGPASS");
    said(get(st), 0, NULL);
    redis->close(st);
    is("AUTH", "-WRONGPASS no\r\n", 0);
    said(opens("127.0.0.1", behind, LATE, &st), HF_DENIED, "WRONGPASS");
    is("", "", 0);
    snprintf(behind, sizeof behind, "redis://:word@127.0.0.1:%d", resp_port());
    said(said_opens(redis, behind, 0, LATE, &st), 0, NULL);
    cuts(st);
    is("AUTH", "-WRONGPASS no\r\n", 0);
    said(get(st), HF_DENIED, "WRONGPASS");
    redis->close(st);
    is("", "", 0);
    /* A user who has the password in the file. */
    snprintf(behind, sizeof behind, "redis://u@127.0.0.1:%d?passfile=%s", resp_port(), path);
    said(said_opens(redis, behind, 0, LATE, &st), 0, NULL);
    redis->close(st);
}

static void descriptors_0_1_and_2_stay_closed(void **state)
{
    int status;
    (void)state;
    is("", "", 0);
    fflush(NULL);
    pid_t child = fork();
    if (!child) {
        hf_store *st = NULL;
        for (int i = 0; i < 3; i++) close(i);
        int rc = opens("at-3-1", "", LATE, &st), low = 0;
        if (!rc) rc = get(st);
        for (int i = 0; i < 3; i++) low |= fcntl(i, F_GETFD) >= 0;
        _exit(rc ? 1 : low ? 2 : 0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* The path of a socket may be relative: of the directory in which the store was opened. */
static void a_relative_path_is_of_the_directory_of_then(void **state)
{
    hf_store *st = NULL;
    char wanted[300];
    (void)state;
    assert_int_equal(chdir(scratch_dir), 0);
    snprintf(wanted, sizeof wanted, "connect '%s/none.sock': No such file", scratch_dir);
    said(said_opens(redis, "redis:?socket=none.sock", 0, LATE, &st), HF_UNAVAILABLE, wanted);
    assert_int_equal(chdir("/"), 0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_silent_address_does_not_take_the_time_of_the_next),
        cmocka_unit_test(a_mute_server_leaves_time_for_the_next),
        cmocka_unit_test(a_mute_name_server_does_not_hold_the_caller),
        cmocka_unit_test(a_replica_is_passed_over),
        cmocka_unit_test(the_password_is_read_at_each_connect),
        cmocka_unit_test(descriptors_0_1_and_2_stay_closed),
        cmocka_unit_test(a_relative_path_is_of_the_directory_of_then),
    };
    if (!scratch("file:@")) return 1;
    return resp_begin() ? TEST_MAIN(tests) : 1;
}
