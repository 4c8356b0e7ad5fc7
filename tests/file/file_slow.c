/*
 * file_slow.c - the `file:` driver where the disk takes its time: a growth that signals interrupt;
 * growths and recoveries by processes that are stopped, or don't come to an end; what other threads
 * do with the handle by which one waits for the disk.
 */
#include "../../drivers/file/store.h"

#include "file_common.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { BRIEFLY_MS = 300, PATIENCE_S = 20 };

/* ---- the disk ---- */

static int ticks;  /* a timer strikes in each call, unless its signal waits */
static int struck; /* how often it did */
static int stops;  /* the next call stops its process */
static int holds;  /* the next call posts `entered`, and waits for `gate` (atomic) */
static sem_t entered, gate;

static void take_time(void)
{
    if (stops) {
        stops = 0;
        raise(SIGSTOP);
    }
    if (__atomic_exchange_n(&holds, 0, __ATOMIC_ACQ_REL)) {
        sem_post(&entered);
        while (sem_wait(&gate)) continue;
    }
}

int __real_fallocate64(int fd, int mode, off_t at, off_t n);
int __wrap_fallocate64(int fd, int mode, off_t at, off_t n);
int __wrap_fallocate64(int fd, int mode, off_t at, off_t n)
{
    sigset_t blocked;
    pthread_sigmask(SIG_BLOCK, NULL, &blocked);
    if (ticks && (struck < 3 || sigismember(&blocked, SIGALRM) != 1)) {
        struck++;
        errno = EINTR;
        /* So that it ends here if it would go on for ever. */
        return struck < 1000 ? -1 : __real_fallocate64(fd, mode, at, n);
    }
    take_time();
    return __real_fallocate64(fd, mode, at, n);
}

int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd);
int __wrap_fdatasync(int fd)
{
    take_time();
    return __real_fdatasync(fd);
}

int __real_msync(void *at, size_t n, int flags);
int __wrap_msync(void *at, size_t n, int flags);
int __wrap_msync(void *at, size_t n, int flags)
{
    take_time();
    return __real_msync(at, n, flags);
}

/* ---- the users of the file ---- */

static hf_error err;

static int open_briefly(hf_store **ret)
{
    hf_url url;
    assert_int_equal(hf_url_parse(url_text, &url, &err), 0);
    return drv->open(&url, BRIEFLY_MS, ret, &(hf_caps){0}, &err);
}

static int make(hf_store *st, const char *by, int i, hf_error *why)
{
    char text[300];
    int64_t clock_us;
    hf_row row;
    snprintf(text, sizeof text, "%s/%0200d", by, i);
    hf_rowkey key = key_of(text);
    hf_row_init(&row);
    fill_row(&row, 10, 1, 0);
    int rc = drv->replace(st, &key, 0, &row, NULL, &clock_us, why);
    hf_row_clear(&row);
    return rc;
}

/* Fills the store until there is no room. This store gets no more, because another process is
   allocating. */
static void is_refused_room(hf_store *st)
{
    int rc = 0;
    for (int i = 0; !rc; i++) {
        assert_true(i < 100000);
        rc = make(st, "refused", i, &err);
    }
    assert_int_equal(rc, HF_UNAVAILABLE);
    assert_non_null(strstr(err.text, "the process that grows it is stopped, or takes too long"));
}

static sem_t done;
static int in_vain; /* a thread waited in vain for what the test should release (atomic) */

/* Releases what is held if the test doesn't: then the test fails, and ends. */
static void *let_go(void *arg)
{
    const pid_t *child = arg;
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_sec += PATIENCE_S;
    while (sem_timedwait(&done, &t))
        if (errno == ETIMEDOUT) {
            __atomic_store_n(&in_vain, 1, __ATOMIC_RELEASE);
            if (child) kill(*child, SIGCONT);
            if (!child) sem_post(&gate);
            break;
        }
    return NULL;
}

/* A process that does it, and is stopped in it. */
static pid_t stopped_while(void (*act)(void))
{
    int raw;
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        act();
        _exit(0);
    }
    assert_int_equal(waitpid(child, &raw, WUNTRACED), child);
    assert_true(WIFSTOPPED(raw));
    return child;
}

static void goes_on(pid_t child)
{
    int raw;
    kill(child, SIGCONT);
    assert_int_equal(waitpid(child, &raw, 0), child);
    assert_true(WIFEXITED(raw) && !WEXITSTATUS(raw));
}

/* ---- signals ---- */

static void a_signal_doesnt_end_a_growth(void **state)
{
    sigset_t before, after;
    (void)state;
    pthread_sigmask(SIG_BLOCK, NULL, &before);
    ticks = 1;
    int rc = open_code(url_text, &err);
    ticks = 0;
    if (rc) fail_msg("%s", err.text);
    assert_int_equal(struck, 3);
    pthread_sigmask(SIG_BLOCK, NULL, &after);
    for (int sig = 1; sig < SIGRTMAX; sig++)
        assert_int_equal(sigismember(&after, sig), sigismember(&before, sig));
}

/* ---- processes that are stopped ---- */

static void grow(void)
{
    hf_store *st = open_store();
    stops = 1;
    for (int i = 0; stops; i++)
        if (make(st, "child", i, &err)) _exit(1);
    drv->close(st);
}

static void one_that_grows_it_is_stopped(void **state)
{
    pthread_t thread;
    hf_store *st = NULL;
    hf_row row;
    (void)state;
    pid_t child = stopped_while(grow);
    pthread_create(&thread, NULL, let_go, &child);
    if (open_briefly(&st)) fail_msg("%s", err.text);
    is_refused_room(st);
    /* The space that is there can still be used. */
    char text[300];
    hf_row_init(&row);
    snprintf(text, sizeof text, "child/%0200d", 0);
    get(st, text, &row);
    assert_int_equal(row.rev, 10);
    row.rev = 11;
    assert_int_equal(replace(st, text, 10, &row, NULL), 0);
    hf_row_clear(&row);
    goes_on(child);
    sem_post(&done);
    pthread_join(thread, NULL);
    for (int i = 0; i < 100; i++)
        if (make(st, "later", i, &err)) fail_msg("%s", err.text);
    drv->close(st);
}

/* Changes the file as if it were of an earlier boot. */
static void reboot(void)
{
    struct hf__boot b[2];
    int fd = open(path, O_RDWR);
    assert_int_equal(pread(fd, b, sizeof b, HF_AT_BOOT), sizeof b);
    for (int i = 0; i < 2; i++) {
        b[i].boot_id[0] ^= 0xff;
        b[i].sum = hf__sum(&b[i], offsetof(struct hf__boot, sum), 1);
    }
    assert_int_equal(pwrite(fd, b, sizeof b, HF_AT_BOOT), sizeof b);
    close(fd);
}

static void recover(void)
{
    stops = 1;
    drv->close(open_store());
}

static void one_that_recovers_it_is_stopped(void **state)
{
    pthread_t thread;
    hf_store *st = NULL;
    (void)state;
    drv->close(open_store());
    reboot();
    pid_t child = stopped_while(recover);
    pthread_create(&thread, NULL, let_go, &child);
    assert_int_equal(open_briefly(&st), HF_UNAVAILABLE);
    assert_non_null(strstr(err.text, "a process that recovers it is stopped"));
    goes_on(child);
    sem_post(&done);
    pthread_join(thread, NULL);
    if (open_briefly(&st)) fail_msg("%s", err.text);
    drv->close(st);
}

/* ---- one thread of several ---- */

static void *grow_slowly(void *arg)
{
    hf_error why;
    __atomic_store_n(&holds, 1, __ATOMIC_RELEASE);
    for (int i = 0; __atomic_load_n(&holds, __ATOMIC_ACQUIRE); i++)
        if (make(arg, "slowly", i, &why)) return arg;
    return NULL;
}

static void another_thread_grows_it_for_ever(void **state)
{
    pthread_t slow, thread;
    hf_store *st = NULL;
    void *failed;
    (void)state;
    if (open_briefly(&st)) fail_msg("%s", err.text);
    pthread_create(&slow, NULL, grow_slowly, st);
    while (sem_wait(&entered)) continue;
    pthread_create(&thread, NULL, let_go, NULL);
    is_refused_room(st);
    sem_post(&gate);
    sem_post(&done);
    pthread_join(thread, NULL);
    pthread_join(slow, &failed);
    assert_null(failed);
    drv->close(st);
}

/* ---- one handle ---- */

static hf *handle;

static void acquires(const char *key)
{
    hf_error why;
    hf_lock *lock;
    if (hf_acquire(handle, key, NULL, &lock, &why)) fail_msg("%s", why.text);
    assert_int_equal(hf_release(lock, &why), 0);
}

/* Rows that are far ahead of the clock are written only below a ceiling that is on the disk. */
static void write_ahead(void)
{
    hf_row row;
    hf_store *st = open_store();
    hf_row_init(&row);
    fill_row(&row, (uint64_t)drv->caps.local->now(st) + UINT64_C(10000000000), 0, 0);
    assert_int_equal(replace(st, "ahead", 0, &row, NULL), 0);
    hf_row_clear(&row);
    drv->close(st);
}

/* Leaves what a process leaves that dies while it makes a cell. */
static void leave_stale(void)
{
    uint64_t one = 1;
    int fd = open(path, O_RDWR);
    off_t at = HF_AT_ALLOC + offsetof(struct hf__alloc, stale);
    assert_int_equal(pwrite(fd, &one, sizeof one, at), sizeof one);
    close(fd);
}

/* Acquires until a call needs the disk, which blocks it. */
static void *acquire_slowly(void *arg)
{
    char text[300] = "ahead";
    hf_lock *lock;
    hf_error why;
    __atomic_store_n(&holds, 1, __ATOMIC_RELEASE);
    for (int i = 0; __atomic_load_n(&holds, __ATOMIC_ACQUIRE); i++) {
        if (!arg) snprintf(text, sizeof text, "slowly/%0200d", i);
        if (hf_acquire(handle, text, NULL, &lock, &why)) return handle;
    }
    return NULL;
}

static void others_dont_wait_for_the_disk(void **state)
{
    hf_options leased = HF_OPTIONS_INIT;
    leased.lease_ms = 600000;
    (void)state;
    for (int how = 0; how < 3; how++) {
        pthread_t slow, thread;
        hf_lock *lock;
        void *failed;
        new_path(NULL);
        if (how == 2) write_ahead();
        if (hf_open(url_text, NULL, &handle, &err)) fail_msg("%s", err.text);
        if (hf_acquire(handle, "leased", &leased, &lock, &err)) fail_msg("%s", err.text);
        acquires("known");
        if (how == 1) leave_stale();
        pthread_create(&slow, NULL, acquire_slowly, how == 2 ? handle : NULL);
        while (sem_wait(&entered)) continue;
        pthread_create(&thread, NULL, let_go, NULL);
        acquires("known");
        assert_int_equal(hf_renew(lock, 0, &err), 0);
        assert_int_equal(hf_release(lock, &err), 0);
        if (__atomic_load_n(&in_vain, __ATOMIC_ACQUIRE)) fail_msg("they did, in way %d", how);
        sem_post(&gate);
        sem_post(&done);
        pthread_join(thread, NULL);
        pthread_join(slow, &failed);
        assert_null(failed);
        acquires("new");
        hf_close(handle);
    }
}

/* The flag of an acquire that must not wait isn't stored. */
static void the_hurry_isnt_stored(void **state)
{
    hf_lock *lock;
    hf_row row;
    (void)state;
    hf_row_init(&row);
    if (hf_open(url_text, NULL, &handle, &err)) fail_msg("%s", err.text);
    hf_store *st = open_store();
    for (int hot = 0; hot < 2; hot++) {
        assert_int_equal(hf_acquire(handle, "k", NULL, &lock, &err), 0);
        get(st, "k", &row);
        assert_int_equal(row.n_holders, 1);
        assert_int_equal(row.party[0].flags, 0);
        assert_int_equal(hf_release(lock, &err), 0);
    }
    drv->close(st);
    hf_close(handle);
    hf_row_clear(&row);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_signal_doesnt_end_a_growth, new_path),
        cmocka_unit_test_setup(one_that_grows_it_is_stopped, new_path),
        cmocka_unit_test_setup(one_that_recovers_it_is_stopped, new_path),
        cmocka_unit_test_setup(another_thread_grows_it_for_ever, new_path),
        cmocka_unit_test(others_dont_wait_for_the_disk),
        cmocka_unit_test_setup(the_hurry_isnt_stored, new_path),
    };
    sem_init(&entered, 0, 0);
    sem_init(&gate, 0, 0);
    sem_init(&done, 0, 0);
    return TEST_MAIN_WITH(tests, make_dir, remove_dir);
}
