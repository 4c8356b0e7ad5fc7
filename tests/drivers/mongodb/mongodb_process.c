/*
 * mongodb_process.c - what the driver mongodb leaves alone in the process that loads it, and in
 * /dev/shm: another user of libmongoc logs as before, a file of another process stays, and the
 * program may end while a request is under way. This program isn't linked to libmongoc.
 */
#include "fakes/said.h"
#include "test.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int mute_fd, mute_port;

static const hf_driver *load(void)
{
    const hf_driver *drv = hf__driver("mongodb", &err);
    if (!drv) _exit(100);
    return drv;
}

/* Finds a function as other code that loads libmongoc would. */
static void *of_libmongoc(const char *name)
{
    void *library = dlopen("libmongoc-1.0.so.0", RTLD_NOW);
    void *at = library ? dlsym(library, name) : NULL;
    if (!at) _exit(101);
    return at;
}

static const char *counters(void)
{
    static char path[64];
    snprintf(path, sizeof path, "/dev/shm/mongoc-%d", (int)getpid());
    return path;
}

/* Opens the driver before a server that is mute. */
static int open_in_vain(const hf_driver *drv, int64_t io_ms)
{
    hf_store *st;
    return said_opens(drv, "mongodb://HOST/test", mute_port, io_ms, &st);
}

/* Runs `body` in a child with a mute server of its own. *ret_said: the child's standard error.
   Returns its status, as of wait. */
static int run(int (*body)(void), char *ret_said, size_t cap)
{
    int out[2], status;
    size_t len = 0;
    ssize_t n;
    assert_int_equal(pipe(out), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        alarm(60);
        dup2(out[1], 2);
        close(out[0]);
        close(out[1]);
        mute_fd = said_listens(0, &mute_port);
        exit(mute_fd < 0 ? 102 : body());
    }
    close(out[1]);
    for (char part[512]; (n = read(out[0], part, sizeof part)) > 0;)
        for (ssize_t i = 0; i < n; i++)
            if (len < cap - 1) ret_said[len++] = part[i]; /* the rest is read, too, and dropped */
    ret_said[len] = 0;
    close(out[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

/* ---- its log ---- */

static int logs(void)
{
    const hf_driver *drv = load();
    void (*say)(int level, const char *domain, const char *format, ...);
    open_in_vain(drv, 200);
    *(void **)&say = of_libmongoc("mongoc_log");
    say(0, "test", "%s", "somebody else's line");
    return 0;
}

static void others_log_as_before(void **state)
{
    char said_there[4096];
    (void)state;
    assert_int_equal(run(logs, said_there, sizeof said_there), 0);
    const char *line = strstr(said_there, "somebody else's line\n");
    assert_non_null(line);
    assert_null(strstr(line + 1, "\n\n"));
    assert_ptr_equal(strchr(said_there, '\n') + 1, line + strlen("somebody else's line\n"));
}

/* ---- its functions ---- */

/* Where the function is that this module itself calls by that name. */
static int is_theirs(void *module, const char *name)
{
    Dl_info found, real;
    void *here = dlsym(module, name);
    if (!here || !dladdr(here, &found) || !dladdr(of_libmongoc(name), &real)) return 0;
    return found.dli_fbase == real.dli_fbase;
}

static int replaces_nothing(void)
{
    Dl_info at;
    if (!dladdr((const void *)load(), &at)) return 1;
    void *module = dlopen(at.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    if (!module) return 2;
    return is_theirs(module, "mongoc_log") && is_theirs(module, "mongoc_cleanup") ? 0 : 3;
}

static void its_functions_are_its_own(void **state)
{
    char said_there[4096];
    (void)state;
    assert_int_equal(run(replaces_nothing, said_there, sizeof said_there), 0);
}

/* ---- its counters ---- */

static int leaves_no_counters(void)
{
    struct stat file;
    open_in_vain(load(), 200);
    return lstat(counters(), &file) ? 0 : 1;
}

/* Acts as if a process with this pid in another PID namespace had made the file. */
static int keeps_anothers_counters(void)
{
    struct stat file;
    int fd = open(counters(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) return 1;
    open_in_vain(load(), 200);
    int is_there = !lstat(counters(), &file);
    unlink(counters());
    return is_there ? 0 : 2;
}

static void only_its_own_counters_are_removed(void **state)
{
    char said_there[4096];
    (void)state;
    assert_int_equal(run(leaves_no_counters, said_there, sizeof said_there), 0);
    assert_string_equal(said_there, "");
    assert_int_equal(run(keeps_anothers_counters, said_there, sizeof said_there), 0);
}

/* ---- the end of the program ---- */

static int under_way; /* calls (atomic) */

static void *opens_for_long(void *arg)
{
    __atomic_store_n(&under_way, 1, __ATOMIC_SEQ_CST);
    open_in_vain(arg, 3600000);
    __atomic_store_n(&under_way, 0, __ATOMIC_SEQ_CST);
    return NULL;
}

/* libmongoc calls it when the program ends; here in libmongoc's place. A call that is under way
   then would use what is cleaned up. */
void mongoc_cleanup(void);
void mongoc_cleanup(void)
{
    const struct timespec pause = {0, 1000000};
    for (int ms = 0; __atomic_load_n(&under_way, __ATOMIC_SEQ_CST); ms++) {
        if (ms == 5000) _exit(103);
        nanosleep(&pause, NULL);
    }
}

/* Ends while a request is under way. */
static int ends(void)
{
    pthread_t thread;
    char byte;
    if (pthread_create(&thread, NULL, opens_for_long, (void *)(uintptr_t)load())) return 1;
    int fd = accept(mute_fd, NULL, NULL);
    return fd >= 0 && recv(fd, &byte, 1, 0) == 1 ? 0 : 2;
}

static void it_ends_at_any_time(void **state)
{
    char said_there[4096];
    (void)state;
    for (int i = 0; i < 5; i++) {
        assert_int_equal(run(ends, said_there, sizeof said_there), 0);
        assert_string_equal(said_there, "");
    }
}

/* A child of fork that ends leaves its parent's connections alone. */
static int survives_a_child(void)
{
    pthread_t thread;
    char byte;
    int status;
    if (pthread_create(&thread, NULL, opens_for_long, (void *)(uintptr_t)load())) return 1;
    int fd = accept(mute_fd, NULL, NULL);
    if (fd < 0 || recv(fd, &byte, 1, 0) != 1) return 2;
    pid_t pid = fork();
    if (!pid) {
        under_way = 0; /* the parent's */
        exit(0);
    }
    if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status)) return 3;
    while (recv(fd, &byte, 1, MSG_DONTWAIT) == 1) continue;
    return recv(fd, &byte, 1, MSG_DONTWAIT) == 0 ? 4 : 0;
}

static void its_children_too(void **state)
{
    char said_there[4096];
    (void)state;
    assert_int_equal(run(survives_a_child, said_there, sizeof said_there), 0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(others_log_as_before),
        cmocka_unit_test(its_functions_are_its_own),
        cmocka_unit_test(only_its_own_counters_are_removed),
        cmocka_unit_test(it_ends_at_any_time),
        cmocka_unit_test(its_children_too),
    };
    if (hf_key_make("k", &key, &err)) return 1;
    fflush(stdout);
    return TEST_MAIN(tests);
}
