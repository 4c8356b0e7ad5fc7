/*
 * kit_resolve.c - names are looked up with a deadline; credentials are read again.
 */
#include "holdfast_driver.h"
#include "kit/resolve.h"
#include "kit/secret.h"
#include "kit_net.h"
#include "os.h"
#include "scratch.h"
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const int64_t SOON = 50, LATE = 60000; /* ms */

static struct hf__endpoint at[HF_ENDPOINTS];
static size_t n_at;
static char why[HF_KIT_WHY];

static int resolve(const char *host, int64_t ms)
{
    n_at = 0;
    return hf__resolve(host, "6379", kit_in_ms(ms), at, &n_at, why);
}

static const char *text(size_t i)
{
    static char to[HF_ENDPOINT_TEXT];
    assert_true(i < n_at);
    hf__endpoint_text(&at[i], to);
    return to;
}

static void numbers_and_paths_are_not_looked_up(void **state)
{
    static const char *const hosts[] = {"127.0.0.1", "::1", "192.0.2.7", "2001:db8::1",
                                        "/run/redis.sock"};
    unsigned before = kit_names_asked();
    (void)state;
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
        assert_int_equal(resolve(hosts[i], 0), 0);
        assert_int_equal(n_at, 1);
        assert_string_equal(text(0), hosts[i]);
    }
    assert_int_equal(kit_names_asked(), before);
}

static void a_path_that_is_too_long_is_refused(void **state)
{
    char path[200] = "/";
    (void)state;
    memset(path + 1, 'x', sizeof path - 2);
    assert_int_equal(resolve(path, LATE), HF_INVALID);
    assert_non_null(strstr(why, "too long"));
}

static void a_name_gives_its_families_in_turn(void **state)
{
    (void)state;
    assert_int_equal(resolve("1-2-3-x", LATE), 0);
    assert_int_equal(n_at, 4);
    assert_string_equal(text(0), "127.0.0.1");
    assert_string_equal(text(1), "::1");
    assert_string_equal(text(2), "127.0.0.2");
    assert_string_equal(text(3), "127.0.0.3");
    assert_int_equal(ntohs(at[0].to.v4.sin_port), 6379);
    assert_int_equal(resolve("x-1", LATE), 0);
    assert_string_equal(text(0), "::1");
    assert_string_equal(text(1), "127.0.0.1");
}

static void a_name_that_is_not_known_is_said(void **state)
{
    (void)state;
    assert_int_equal(resolve("none", LATE), HF_UNAVAILABLE);
    assert_non_null(strstr(why, "not known"));
}

/* The lookup goes on without its caller; later callers join it, and get its answer. */
static void a_mute_name_server_does_not_hold_the_caller(void **state)
{
    unsigned before = kit_names_asked();
    (void)state;
    kit_names_mute();
    for (int i = 0; i < 3; i++) {
        assert_int_equal(resolve("mute", SOON), HF_UNAVAILABLE);
        assert_non_null(strstr(why, "in time"));
    }
    kit_names_wait(1);
    assert_int_equal(kit_names_asked(), before + 1);
    struct hf__lookup *l;
    assert_int_equal(hf__lookup_start("mute", "6379", &l, why), 0);
    assert_int_equal(hf__lookup_take(l, at, &n_at, why), HF_LOOKUP_PENDING);
    kit_names_answer();
    struct pollfd p = {hf__lookup_fd(l), POLLIN, 0};
    assert_int_equal(poll(&p, 1, (int)LATE), 1);
    assert_int_equal(hf__lookup_take(l, at, &n_at, why), 0);
    assert_string_equal(text(0), "127.0.0.1");
    hf__lookup_end(l);
    assert_int_equal(kit_names_asked(), before + 1);
    /* A lookup that is over isn't joined. */
    assert_int_equal(resolve("mute", LATE), 0);
    assert_int_equal(kit_names_asked(), before + 2);
}

static void abandoned_lookups_do_not_pile_up(void **state)
{
    char host[16];
    (void)state;
    kit_names_mute();
    for (int i = 0; i < HF_LOOKUPS; i++) {
        snprintf(host, sizeof host, "mute%d", i);
        assert_int_equal(resolve(host, 0), HF_UNAVAILABLE);
    }
    assert_int_equal(resolve("mute-one-more", LATE), HF_UNAVAILABLE);
    assert_non_null(strstr(why, "are being looked up"));
    assert_int_equal(resolve("127.0.0.1", 0), 0);
    kit_names_wait(HF_LOOKUPS);
    int before = kit_descriptors();
    kit_names_answer();
    while (kit_descriptors() > before - HF_LOOKUPS) poll(NULL, 0, 1);
    assert_int_equal(resolve("at-1", LATE), 0);
}

/* The thread sanitizer lets a child of fork start threads then. */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void) { return "die_after_fork=0"; }

static void a_child_of_fork_looks_up_for_itself(void **state)
{
    (void)state;
    kit_names_mute();
    assert_int_equal(resolve("mute-parent", 0), HF_UNAVAILABLE);
    kit_names_wait(1);
    fflush(NULL);
    pid_t child = fork();
    if (!child) {
        kit_names_in_child();
        _exit(resolve("mute-parent", LATE) ? 1 : 0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    kit_names_answer();
}

/* ---- credentials ---- */

static void write_file(const char *path, const char *content)
{
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    assert_true(fputs(content, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void a_password_is_read_again(void **state)
{
    struct hf__secret s;
    char got[HF_SECRET_CAP], path[300];
    (void)state;
    snprintf(path, sizeof path, "%s/pass", scratch_dir);
    write_file(path, "one\r\nmore\n");
    assert_int_equal(hf__secret_open(&s, path, why), 0);
    assert_int_equal(hf__secret_get(&s, got, why), 0);
    assert_string_equal(got, "one");
    write_file(path, "two");
    assert_int_equal(hf__secret_get(&s, got, why), 0);
    assert_string_equal(got, "two");
    /* While it is being replaced. */
    write_file(path, "");
    assert_int_equal(hf__secret_get(&s, got, why), HF_UNAVAILABLE);
    assert_string_equal(got, "");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(hf__secret_get(&s, got, why), HF_UNAVAILABLE);
    assert_non_null(strstr(why, path));
    assert_non_null(strstr(why, "No such file"));
    assert_int_equal(hf__secret_open(&s, path, why), HF_UNAVAILABLE);
    assert_non_null(strstr(why, "No such file"));
}

/* A file that can't be read now may be readable later; a path that is no such file is refused, and
   no call hangs on it. */
static void a_file_that_cannot_be_read_now_is_told_from_what_never_can(void **state)
{
    struct hf__secret s;
    struct rlimit before, none;
    char got[HF_SECRET_CAP], path[300], fifo[300];
    (void)state;
    snprintf(path, sizeof path, "%s/rotated", scratch_dir);
    snprintf(fifo, sizeof fifo, "%s/fifo", scratch_dir);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    write_file(path, "word\n");
    assert_int_equal(hf__secret_open(&s, path, why), 0);
    assert_int_equal(hf__credential_check("key", path, why), 0);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = before;
    none.rlim_cur = 0;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    int got_rc = hf__secret_get(&s, got, why), checked = hf__credential_check("key", path, why);
    int opened = hf__secret_open(&s, path, why);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(got_rc, HF_UNAVAILABLE);
    assert_int_equal(checked, HF_UNAVAILABLE);
    assert_int_equal(opened, HF_UNAVAILABLE);
    assert_non_null(strstr(why, "Too many open files"));
    assert_int_equal(hf__secret_open(&s, fifo, why), HF_INVALID);
    assert_non_null(strstr(why, "named pipe"));
    assert_int_equal(hf__credential_check("key", fifo, why), HF_INVALID);
    assert_int_equal(hf__secret_open(&s, scratch_dir, why), HF_INVALID);
    write_file(path, "");
    assert_int_equal(hf__secret_open(&s, path, why), HF_INVALID);
    assert_int_equal(hf__credential_code(EACCES), HF_UNAVAILABLE);
    assert_int_equal(hf__credential_code(EIO), HF_UNAVAILABLE);
    assert_int_equal(hf__credential_code(ENOMEM), HF_NOMEM);
}

static void what_can_be_read_only_once_is_kept(void **state)
{
    struct hf__secret s;
    char got[HF_SECRET_CAP], path[64];
    int end[2];
    (void)state;
    assert_int_equal(pipe(end), 0);
    assert_int_equal(write(end[1], "once\n", 5), 5);
    close(end[1]);
    snprintf(path, sizeof path, "/dev/fd/%d", end[0]);
    assert_int_equal(hf__secret_open(&s, path, why), 0);
    close(end[0]);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(hf__secret_get(&s, got, why), 0);
        assert_string_equal(got, "once");
    }
    hf__secret_forget(&s);
    assert_string_equal(s.kept, "");
}

static void a_line_that_is_too_long_is_refused_and_not_quoted(void **state)
{
    struct hf__secret s;
    char line[HF_SECRET_CAP + 1], path[300];
    (void)state;
    snprintf(path, sizeof path, "%s/long", scratch_dir);
    memset(line, 'q', HF_SECRET_CAP);
    line[HF_SECRET_CAP] = 0;
    write_file(path, line);
    assert_int_equal(hf__secret_open(&s, path, why), HF_INVALID);
    assert_non_null(strstr(why, "too long"));
    assert_null(strstr(why, "qqq"));
    line[HF_SECRET_CAP - 1] = 0;
    write_file(path, line);
    assert_int_equal(hf__secret_open(&s, path, why), 0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_and_paths_are_not_looked_up),
        cmocka_unit_test(a_path_that_is_too_long_is_refused),
        cmocka_unit_test(a_name_gives_its_families_in_turn),
        cmocka_unit_test(a_name_that_is_not_known_is_said),
        cmocka_unit_test(a_mute_name_server_does_not_hold_the_caller),
        cmocka_unit_test(abandoned_lookups_do_not_pile_up),
        cmocka_unit_test(a_child_of_fork_looks_up_for_itself),
        cmocka_unit_test(a_password_is_read_again),
        cmocka_unit_test(a_file_that_cannot_be_read_now_is_told_from_what_never_can),
        cmocka_unit_test(what_can_be_read_only_once_is_kept),
        cmocka_unit_test(a_line_that_is_too_long_is_refused_and_not_quoted),
    };
    if (!scratch("file:@")) return 1;
    return TEST_MAIN(tests);
}
