/*
 * firestore_mute.c - firestore in front of a server that accepts a connection and is mute: the
 * error names the part of it that had no answer. And of a name with an address that is silent; and
 * of a fork for whose end a request waits: the request ends in its time all the same.
 */
#include "fakes/said.h"
#include "network/kit_net.h"
#include "test.h"

#include "os.h"

#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const hf_driver *firestore;
static int port;

static void is_away(const char *endpoint, int number, int64_t io_ms, const char *part)
{
    char form[200];
    hf_store *st = NULL;
    hf_row row;
    int64_t clock_us;
    snprintf(form, sizeof form, "firestore://p?endpoint=%s:%d", endpoint, number);
    said(said_opens(firestore, form, 0, io_ms, &st), 0, NULL);
    hf_row_init(&row);
    said(firestore->get(st, &key, &row, &clock_us, &err), HF_UNAVAILABLE, part);
    hf_row_clear(&row);
    firestore->close(st);
}

static void the_mute_part_is_named(void **state)
{
    (void)state;
    is_away("http://127.0.0.1", port, 1000, "no answer within 1000 ms (the reply)");
    is_away("https://127.0.0.1", port, 1000, "no answer within 1000 ms (TLS)");
    is_away("https://mute", port, 1000, "no answer within 1000 ms (the name)");
    kit_names_answer();
}

static void a_silent_address_leaves_time_for_the_next(void **state)
{
    int number = 0, filler, silent = kit_silent(2, &number, &filler);
    int no = kit_refusing(3, &number);
    (void)state;
    is_away("https://at-2-3", number, 3000, "Failed to connect to at-2-3");
    close(silent);
    close(filler);
    close(no);
}

/* ---- a fork that takes its time ---- */

enum { FORK_MS = 1500, IO_MS = 3000 };

static int takes_long;
static sem_t forks;

/* Called when the gate is closed: its handler was registered later than this one. */
static void before_fork(void)
{
    const struct timespec t = {FORK_MS / 1000, FORK_MS % 1000 * 1000000L};
    if (!takes_long) return;
    sem_post(&forks);
    nanosleep(&t, NULL);
}

static void *forker(void *arg)
{
    pid_t pid = fork();
    if (!pid) _exit(0);
    waitpid(pid, NULL, 0);
    return arg;
}

static void a_fork_takes_the_requests_time(void **state)
{
    pthread_t thread;
    (void)state;
    sem_init(&forks, 0, 0);
    takes_long = 1;
    assert_int_equal(pthread_create(&thread, NULL, forker, NULL), 0);
    while (sem_wait(&forks)) continue;
    int64_t began_us = hf__local_us();
    is_away("http://127.0.0.1", port, IO_MS, "no answer within 3000 ms (the reply)");
    assert_true(hf__local_us() - began_us < (IO_MS + FORK_MS / 2) * INT64_C(1000));
    pthread_join(thread, NULL);
    takes_long = 0;
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_mute_part_is_named),
        cmocka_unit_test(a_silent_address_leaves_time_for_the_next),
        cmocka_unit_test(a_fork_takes_the_requests_time),
    };
    pthread_atfork(before_fork, NULL, NULL);
    int listener = said_listens(0, &port);
    setenv("FIRESTORE_ID_TOKEN", "token", 1);
    firestore = hf__driver("firestore", &err);
    if (listener < 0 || !firestore || hf_key_make("k", &key, &err)) {
        printf("Bail out! %s\n", err.text);
        return 1;
    }
    return TEST_MAIN(tests);
}
