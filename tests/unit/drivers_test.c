/*
 * drivers_test.c - finding a driver by its scheme, and the message if there is none. The argument
 * is the directory of the test modules.
 */
#include "cas_loop.h"
#include "drivers.h"
#include "test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *modules;

static char program[4096];              /* the path that the program seems to have; "": the
                                           real one */
static int no_memory, privileged, lost; /* the program has no path */
void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_malloc(size_t size) { return no_memory ? NULL : __real_malloc(size); }
unsigned long __real_getauxval(unsigned long type);
unsigned long __wrap_getauxval(unsigned long type);
unsigned long __wrap_getauxval(unsigned long type)
{
    return type == AT_SECURE && privileged ? 1 : __real_getauxval(type);
}
ssize_t __real_readlink(const char *path, char *to, size_t cap);
ssize_t __wrap_readlink(const char *path, char *to, size_t cap);
ssize_t __wrap_readlink(const char *path, char *to, size_t cap)
{
    if (program[0]) return snprintf(to, cap, "%s", program);
    return lost ? -1 : __real_readlink(path, to, cap);
}

/* A program of an installation that has no modules. */
static int elsewhere(void **state)
{
    (void)state;
    snprintf(program, sizeof program, "/nowhere/bin/program");
    return 0;
}

static int at_home(void **state)
{
    (void)state;
    program[0] = 0;
    return 0;
}

static int here(void **state)
{
    (void)state;
    return setenv("HOLDFAST_DRIVERS", modules, 1);
}

static void the_built_in_ones_are_there(void **state)
{
    (void)state;
    const hf_driver *mem = hf__driver("mem", NULL);
    assert_ptr_equal(mem, &hf__mem_driver);
    assert_string_equal(mem->name, "mem");
    assert_int_equal(mem->abi, HF_DRIVER_ABI);
}

static void a_good_module_is_loaded_once_and_stays(void **state)
{
    (void)state;
    hf_error err = {0, 0, ""};
    const hf_driver *good = hf__driver("good", &err);
    if (!good) fail_msg("%s", err.text);
    assert_string_equal(good->name, "good");
    hf_url url;
    hf_store *st = NULL;
    assert_int_equal(hf_url_parse("good:x", &url, NULL), 0);
    assert_int_equal(good->open(&url, 0, &st, &(hf_caps){0}, &err), HF_DENIED);
    assert_string_equal(err.text, "good: open 'good:x': always refused");
    assert_ptr_equal(hf__driver("good", NULL), good);
}

static void another_spelling_is_the_same_driver(void **state)
{
    (void)state;
    hf_error err = {0, 0, ""};
    setenv("HOLDFAST_DRIVERS", "/nowhere/at/all", 1);
    assert_null(hf__driver("postgresql", &err));
    /* The message isn't "unknown scheme", because the scheme is known. */
    if (!strstr(err.text, "driver 'postgres': not installed")) fail_msg("%s", err.text);
}

static void without_descriptors_a_module_is_away(void **state)
{
    (void)state;
    struct rlimit before, none;
    hf_error err = {0, 0, ""};
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = before;
    none.rlim_cur = 3;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    const hf_driver *d = hf__driver("bare", &err);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_null(d);
    assert_int_equal(err.code, HF_UNAVAILABLE);
    assert_int_equal(err.sys, EMFILE);
}

static void refused(const char *scheme, const char *why)
{
    hf_error err = {0, 0, ""};
    assert_null(hf__driver(scheme, &err));
    assert_int_equal(err.code, HF_INVALID);
    if (!strstr(err.text, why)) fail_msg("'%s' is told of %s", err.text, scheme);
    assert_null(hf__driver(scheme, NULL));
}

/* Schemes and options of other programs. */
static void what_others_write_is_answered_with_what_is_right(void **state)
{
    (void)state;
    hf *h;
    hf_error err = {0, 0, ""};
    refused("mongodb+srv", "unknown scheme: write mongodb: with the hosts");
    refused("valkey", "unknown scheme: write redis:");
    refused("mysql", "unknown scheme: MySQL isn't supported");
    refused("postgresql+psycopg", "write postgres:");
    assert_int_equal(hf_open("file:/tmp/x?timeout=5", NULL, &h, &err), HF_INVALID);
    if (!strstr(err.text, "unknown option 'timeout': the limit of a request is hf_open's"))
        fail_msg("%s", err.text);
    assert_int_equal(hf_open("file:/tmp/x?timeouts=5", NULL, &h, &err), HF_INVALID);
    if (!strstr(err.text, "unknown option 'timeouts'") || strstr(err.text, "hf_open"))
        fail_msg("%s", err.text);
}

static void a_bad_module_is_refused_with_the_reason(void **state)
{
    (void)state;
    refused("abi", "is for interface 6, not 5");
    refused("bare", "has no symbol hf_driver_entry");
    refused("alien", "another scheme");
    refused("nameless", "another scheme");
}

/* A module that can't be loaded for lack of memory is loaded the next time. */
static void without_memory_a_module_is_not_loaded(void **state)
{
    (void)state;
    hf_error err = {0, 0, ""};
    no_memory = 1;
    assert_null(hf__driver("good", &err));
    no_memory = 0;
    assert_int_equal(err.code, HF_NOMEM);
}

static void what_is_no_library_is_refused(void **state)
{
    (void)state;
    char dir[] = "/tmp/holdfast-XXXXXX", path[100];
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/libholdfast-text.so", dir);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs("no library\n", f);
    fclose(f);
    setenv("HOLDFAST_DRIVERS", dir, 1);
    refused("text", "load:");
    unlink(path);
    rmdir(dir);
}

static void a_known_scheme_is_not_installed_another_unknown(void **state)
{
    (void)state;
    setenv("HOLDFAST_DRIVERS", "/nowhere/at/all", 1);
    static const char *const known[][2] = {{"postgres", "postgres"},   {"redis", "redis"},
                                           {"rediss", "redis"},        {"etcd", "etcd"},
                                           {"etcds", "etcd"},          {"mongodb", "mongodb"},
                                           {"mariadb", "mariadb"},     {"nats", "nats"},
                                           {"firestore", "firestore"}, {"s3", "s3"}};
    char advice[160];
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        snprintf(advice, sizeof advice,
                 "not installed: install Debian's packages holdfast and holdfast-%s, or build "
                 "Holdfast, or its package for Node or Python, from a clone",
                 known[i][1]);
        refused(known[i][0], advice);
        refused(known[i][0], "; looked in /nowhere/at/all, ");
        refused(known[i][0], "/holdfast");
    }
    refused("nfs", "unknown scheme");
    refused("", "not a scheme");
    refused("../x", "not a scheme");
    refused("a/b", "not a scheme");
    refused("Mem", "not a scheme");
    refused("aaaaaaaaaabbbbbbbbbbccccccccccdd", "not a scheme");
    unsetenv("HOLDFAST_DRIVERS");
    refused("redis", "not installed");
}

/* The message names as many folders as it has room for. */
static void a_long_name_is_told_in_part(void **state)
{
    (void)state;
    char dir[900], longer[9000];
    memset(dir, 'x', sizeof dir);
    dir[0] = '/';
    dir[sizeof dir - 1] = 0;
    setenv("HOLDFAST_DRIVERS", dir, 1);
    refused("redis", "; looked in /xxx");
    memset(longer, 'x', sizeof longer); /* a folder of a part of that name isn't it */
    longer[0] = '/';
    longer[sizeof longer - 1] = 0;
    setenv("HOLDFAST_DRIVERS", longer, 1);
    refused("redis", "; looked in /");
    hf_error err;
    assert_null(hf__driver("redis", &err));
    assert_null(strstr(err.text, "/xxx"));
}

static int queueless;

static const hf_url any_url = {.scheme = "s"};

static void any_close(hf_store *st) { (void)st; }

static int any_open(const hf_url *url, int64_t io_timeout_ms, hf_store **ret, hf_caps *caps,
                    hf_error *err)
{
    (void)url, (void)io_timeout_ms, (void)err;
    *ret = (hf_store *)&queueless;
    if (queueless) caps->queues = 0;
    return 0;
}

static void an_opened_store_may_say_what_it_can(void **state)
{
    (void)state;
    hf_driver drv = {.caps = {.queues = 1, .queue_cap = 5}, .open = any_open, .close = any_close};
    hf_store *st;
    hf_caps caps;
    assert_int_equal(hf__open_store(&drv, &any_url, 1000, &st, &caps, NULL), 0);
    assert_memory_equal(&caps, &drv.caps, sizeof caps);
    queueless = 1;
    assert_int_equal(hf__open_store(&drv, &any_url, 1000, &st, &caps, NULL), 0);
    assert_true(!caps.queues && caps.queue_cap == 5 && drv.caps.queues);
}

static int showing_resolve(hf_url *url, hf_error *err)
{
    if (!strcmp(url->path, "/b")) return hf_fail(err, HF_INVALID, 0, "%s", url->safe);
    char longer[sizeof url->path];
    memset(longer, 'x', sizeof longer);
    longer[strcmp(url->path, "/long") ? 1 : sizeof longer - 1] = 0;
    return hf_url_set_path(url, longer, err);
}

static int showing_open(const hf_url *url, int64_t io_timeout_ms, hf_store **ret, hf_caps *caps,
                        hf_error *err)
{
    char value[16];
    (void)io_timeout_ms, (void)ret, (void)caps;
    assert_int_equal(hf_url_get(url, "pasword", value, sizeof value), 0);
    assert_string_equal(value, "hunter2");
    return hf_fail(err, HF_INVALID, 0, "%s", url->safe);
}

/* Which options there are only the driver knows: the value of a misspelt one may be a secret. */
static void no_error_of_a_driver_shows_the_options(void **state)
{
    (void)state;
    hf_driver drv = {.open = showing_open, .close = any_close, .resolve = showing_resolve};
    hf_url url;
    hf_store *st;
    hf_caps caps;
    hf_error err;
    assert_int_equal(hf_url_parse("s:/a?pasword=hunter2&b=%3f", &url, &err), 0);
    assert_int_equal(hf__open_store(&drv, &url, 1000, &st, &caps, &err), HF_INVALID);
    assert_string_equal(err.text, "s:/a");
    assert_int_equal(hf__resolve_url(&drv, &url, &err), 0);
    assert_string_equal(url.safe, "s:x?pasword=hunter2&b=%3f"); /* for children */
    assert_int_equal(hf_url_parse("s:/b?pasword=hunter2", &url, &err), 0);
    assert_int_equal(hf__resolve_url(&drv, &url, &err), HF_INVALID);
    assert_string_equal(err.text, "s:/b");
    char text[900] = "s:/long?";
    memset(text + strlen(text), 'o', sizeof text - 1 - strlen(text));
    text[sizeof text - 1] = 0;
    assert_int_equal(hf_url_parse(text, &url, &err), 0);
    assert_int_equal(hf__resolve_url(&drv, &url, &err), HF_INVALID);
    assert_string_equal(err.text, "url 's:...': the path is too long");
    drv.resolve = NULL;
    assert_int_equal(hf__resolve_url(&drv, &url, &err), 0);
}

static int clockless_get(hf_store *st, const hf_rowkey *key, hf_row *row, int64_t *ret_clock_us,
                         hf_error *err)
{
    (void)st, (void)key, (void)row, (void)ret_clock_us, (void)err;
    return 0;
}

/* A wait would go on without end. */
static void a_driver_without_a_clock_is_named(void **state)
{
    (void)state;
    static const hf_local_ops local = {0};
    static const hf_session_ops sessions = {0};
    const hf_driver drv = {
        .name = "drv", .open = any_open, .close = any_close, .get = clockless_get};
    struct hf_port port = {.drv = &drv};
    const hf_rowkey key = {.text = "k", .len = 1};
    hf_error err;
    hf_row row;
    hf_row_init(&row);
    assert_int_equal(hf__port_get(&port, &key, &row, &err), HF_UNSUPPORTED);
    assert_string_equal(err.text, "driver 'drv': its 'get' tells no clock");
    port.caps.sessions = &sessions;
    assert_int_equal(hf__port_get(&port, &key, &row, &err), 0);
    port.caps = (hf_caps){.local = &local};
    assert_int_equal(hf__port_get(&port, &key, &row, &err), 0);
}

static void what_a_driver_lacks_is_named(void **state)
{
    (void)state;
    const hf_driver none = {.name = "none"}, unclosed = {.name = "unclosed", .open = any_open};
    const hf_driver empty = {.name = "empty", .open = any_open, .close = any_close};
    struct hf_port port = {.drv = &empty};
    const hf_rowkey key = {.text = "k", .len = 1};
    hf_store *st;
    hf_caps caps;
    hf_error err;
    hf_row row;
    hf_row_init(&row);
    assert_int_equal(hf__open_store(&none, &any_url, 1000, &st, &caps, &err), HF_UNSUPPORTED);
    assert_string_equal(err.text, "driver 'none': it has no 'open'");
    assert_int_equal(hf__open_store(&unclosed, &any_url, 1000, &st, &caps, &err), HF_UNSUPPORTED);
    assert_string_equal(err.text, "driver 'unclosed': it has no 'close'");
    assert_int_equal(hf__port_get(&port, &key, &row, &err), HF_UNSUPPORTED);
    assert_string_equal(err.text, "driver 'empty': it has no 'get'");
    assert_int_equal(hf__port_replace(&port, &key, 0, &row, NULL, &err), HF_UNSUPPORTED);
    assert_string_equal(err.text, "driver 'empty': it has no 'replace'");
}

static void what_contradicts_itself_is_refused(void **state)
{
    (void)state;
    static const hf_notify_ops notify;
    static const hf_local_ops local;
    static const hf_liveness_ops liveness;
    static const hf_session_ops sessions;
    static const hf_caps bad[] = {{.threads = 1, .local = &local, .sessions = &sessions},
                                  {.threads = 1, .liveness = &liveness, .sessions = &sessions},
                                  {.local = &local},
                                  {.sessions = &sessions},
                                  {.notify = &notify},
                                  {.threads = 1, .notify = &notify},
                                  {.threads = 1, .local = &local, .notify = &notify}};
    hf_store *st;
    hf_caps caps;
    hf_error err;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const hf_driver drv = {.name = "bad", .caps = bad[i], .open = any_open, .close = any_close};
        assert_int_equal(hf__open_store(&drv, &any_url, 1000, &st, &caps, &err), HF_INVALID);
        assert_non_null(strstr(err.text, "driver 'bad': "));
        assert_non_null(st); /* to be closed */
    }
}

struct seen {
    int mem, good, abi, alien, bare, nameless, others;
};

static void see(void *arg, const char *scheme, const hf_driver *driver, const char *path,
                const char *why)
{
    struct seen *s = arg;
    if (!strcmp(scheme, "mem") && driver && !path && !why)
        s->mem++;
    else if (!strcmp(scheme, "good") && driver && path && !why)
        s->good++;
    else if (!strcmp(scheme, "abi") && !driver && path && strstr(why, "interface"))
        s->abi++;
    else if (!strcmp(scheme, "alien") && !driver && path && strstr(why, "scheme"))
        s->alien++;
    else if (!strcmp(scheme, "bare") && !driver && path && strstr(why, "symbol"))
        s->bare++;
    else if (!strcmp(scheme, "nameless") && !driver && path && strstr(why, "scheme"))
        s->nameless++;
    else if (!driver)
        s->others++;
}

static void all_are_listed_once(void **state)
{
    (void)state;
    /* The modules are also beside this program: they are found twice, but listed once. */
    struct seen s = {0};
    hf__drivers(see, &s);
    assert_int_equal(s.mem, 1);
    assert_int_equal(s.good, 1);
    assert_int_equal(s.abi, 1);
    assert_int_equal(s.alien, 1);
    assert_int_equal(s.bare, 1);
    assert_int_equal(s.nameless, 1);
    assert_int_equal(s.others, 0);
}

/* If a module is in another folder, too, the first folder counts; a broken link doesn't count. */
static void the_first_folder_counts(void **state)
{
    (void)state;
    char dir[] = "/tmp/holdfast-XXXXXX", path[2][100], to[1000];
    struct seen s = {0};
    assert_non_null(mkdtemp(dir));
    snprintf(path[0], sizeof path[0], "%s/libholdfast-good.so", dir);
    snprintf(path[1], sizeof path[1], "%s/libholdfast-gone.so", dir);
    snprintf(to, sizeof to, "%s/libholdfast-good.so", modules);
    assert_int_equal(symlink(to, path[0]), 0);
    assert_int_equal(symlink("/nowhere/at/all", path[1]), 0);
    setenv("HOLDFAST_DRIVERS", dir, 1);
    hf__drivers(see, &s);
    for (int i = 0; i < 2; i++) unlink(path[i]);
    rmdir(dir);
    assert_int_equal(s.good, 1);
    assert_int_equal(s.abi, 1); /* from beside this program */
    assert_int_equal(s.others, 0);
}

struct names {
    char text[100];
};

static void note_names(void *arg, const char *scheme, const hf_driver *driver, const char *path,
                       const char *why)
{
    struct names *n = arg;
    size_t used = strlen(n->text);
    (void)driver, (void)why;
    if (path && strstr(path, "/tmp/holdfast-"))
        snprintf(n->text + used, sizeof n->text - used, "%s ", scheme);
}

/* Other files in that folder aren't tried; drivers that are loaded aren't searched for. */
static void what_is_named_otherwise_is_passed_over(void **state)
{
    (void)state;
    static const char *const files[] = {"libholdfast-.so",
                                        "libholdfast-text.so.1",
                                        "libholdfast-Text.so",
                                        "libholdfast-file.so",
                                        "otherholdfast-text.so",
                                        "libholdfast-text.so",
                                        "readme",
                                        "libholdfast-aaaaaaaaaabbbbbbbbbbccccccccccdd.so"};
    char dir[] = "/tmp/holdfast-XXXXXX", path[200];
    struct names names = {""};
    assert_non_null(mkdtemp(dir));
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, files[i]);
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        fclose(f);
    }
    setenv("HOLDFAST_DRIVERS", dir, 1);
    hf__drivers(note_names, &names);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, files[i]);
        unlink(path);
    }
    rmdir(dir);
    assert_string_equal(names.text, "text ");
}

static void modules_beside_the_program_are_found(void **state)
{
    (void)state;
    unsetenv("HOLDFAST_DRIVERS");
    refused("abi", "is for interface");
    /* But not beside a set-user-ID program, nor beside a program whose place isn't known. */
    privileged = 1;
    refused("abi", "unknown scheme");
    privileged = 0;
    lost = 1;
    refused("abi", "unknown scheme");
    lost = 0;
}

/* Makes DIR/PART: a folder, or a link to the module `abi`. */
static void make_part(const char *dir, const char *part, int module)
{
    char at[200], to[4096];
    snprintf(at, sizeof at, "%s/%s", dir, part);
    snprintf(to, sizeof to, "%s/libholdfast-abi.so", modules);
    assert_int_equal(module ? symlink(to, at) : mkdir(at, 0755), 0);
}

static void only_a_build_is_looked_into_from_its_folders(void **state)
{
    (void)state;
    static const char *const parts[] = {"libholdfast-abi.so", "x", "build.ninja", "meson-info"};
    char dir[] = "/tmp/holdfast-XXXXXX", path[200];
    assert_non_null(mkdtemp(dir));
    unsetenv("HOLDFAST_DRIVERS");
    make_part(dir, "x", 0);
    make_part(dir, "libholdfast-abi.so", 1);
    snprintf(program, sizeof program, "%s/x/program", dir);
    refused("abi", "unknown scheme");
    make_part(dir, "build.ninja", 0);
    refused("abi", "unknown scheme");
    make_part(dir, "meson-info", 0);
    refused("abi", "is for interface");
    /* Any user could have put it there: in the root, and beside a program. */
    chmod(dir, 01777);
    refused("abi", "unknown scheme");
    snprintf(program, sizeof program, "%s/program", dir);
    refused("abi", "unknown scheme");
    chmod(dir, 0755);
    refused("abi", "is for interface");
    program[0] = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, parts[i]);
        assert_int_equal(remove(path), 0);
    }
    assert_int_equal(rmdir(dir), 0);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_built_in_ones_are_there),
        cmocka_unit_test_setup_teardown(another_spelling_is_the_same_driver, elsewhere, at_home),
        cmocka_unit_test_setup(without_descriptors_a_module_is_away, here),
        cmocka_unit_test_setup(without_memory_a_module_is_not_loaded, here),
        cmocka_unit_test_setup(a_good_module_is_loaded_once_and_stays, here),
        cmocka_unit_test_setup(what_others_write_is_answered_with_what_is_right, here),
        cmocka_unit_test_setup(a_bad_module_is_refused_with_the_reason, here),
        cmocka_unit_test(what_is_no_library_is_refused),
        cmocka_unit_test_setup_teardown(a_known_scheme_is_not_installed_another_unknown, elsewhere,
                                        at_home),
        cmocka_unit_test_setup_teardown(a_long_name_is_told_in_part, elsewhere, at_home),
        cmocka_unit_test(an_opened_store_may_say_what_it_can),
        cmocka_unit_test(no_error_of_a_driver_shows_the_options),
        cmocka_unit_test(what_a_driver_lacks_is_named),
        cmocka_unit_test(a_driver_without_a_clock_is_named),
        cmocka_unit_test(what_contradicts_itself_is_refused),
        cmocka_unit_test_setup(all_are_listed_once, here),
        cmocka_unit_test(the_first_folder_counts),
        cmocka_unit_test(what_is_named_otherwise_is_passed_over),
        cmocka_unit_test(modules_beside_the_program_are_found),
        cmocka_unit_test(only_a_build_is_looked_into_from_its_folders),
    };
    if (argc < 2) return 64;
    modules = argv[1];
    return TEST_MAIN(tests);
}
