/*
 * resources.c - the n-th allocation or system call fails, for n = 1, 2, 3 ... until a scenario
 * passes; once alone, and once with all that follow it.
 *
 * Whatever fails: the call says so in words, nothing crashes, hangs or leaks, and after an error
 * no lock is left behind: another handle can take the key.
 */
#include "fails.h"
#include "file/hurt.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct run {
    const char *url, *new_path, *new_url;
    hf *other; /* a handle whose calls don't fail */
    hf *h;     /* the one under test; NULL: the scenario opens it */
    long n;
    hf_error err;
    int on;         /* with all that follow */
    int unreleased; /* a release returned that it isn't confirmed */
    const char *doing;
};

#define STEP(call)           \
    do {                     \
        r->doing = #call;    \
        int rc_ = (call);    \
        if (rc_) return rc_; \
    } while (0)

static int give_back(struct run *r, hf_lock *lock)
{
    int rc = hf_release(lock, &r->err);
    if (rc) r->unreleased = 1;
    return rc;
}

static hf_options waits(int64_t ms)
{
    hf_options o = HF_OPTIONS_INIT;
    o.wait_ms = ms;
    return o;
}

static int see(void *arg, const hf_info *info)
{
    (void)arg;
    return !info;
}

/* ---- scenarios; the keys that they use are "k0" to "k4" and "event" ---- */

static int opens(struct run *r)
{
    hf *h;
    STEP(hf_open(r->url, NULL, &h, &r->err));
    hf_close(h);
    return 0;
}

static int creates(struct run *r)
{
    hf *h;
    unlink(r->new_path);
    int rc = hf_open(r->new_url, NULL, &h, &r->err);
    if (!rc) hf_close(h);
    return rc;
}

static int acquires(struct run *r)
{
    hf_lock *lock;
    hf_options o = waits(0);
    STEP(hf_acquire(r->h, "k0", &o, &lock, &r->err));
    STEP(give_back(r, lock));
    char key[40];
    snprintf(key, sizeof key, "fresh/%d/%ld", r->on, r->n); /* a key that was never used */
    STEP(hf_acquire(r->h, key, NULL, &lock, &r->err));
    return give_back(r, lock);
}

static int fill(struct run *r, hf *h, off_t size)
{
    hf_lock *lock;
    char key[HF_KEY_CAP];
    struct stat s = {0};
    for (int i = 0; s.st_size <= size; i++) {
        snprintf(key, sizeof key, "key/%0480d", i);
        STEP(hf_acquire(h, key, NULL, &lock, &r->err));
        STEP(hf_release(lock, &r->err));
        fails_exempt(1);
        if (i % 16 == 0) assert_int_equal(stat(r->new_path, &s), 0);
        fails_exempt(0);
    }
    return 0;
}

/* Uses so many keys that a new store has to grow. If it can't, the keys that it has still work. */
static int grows(struct run *r)
{
    hf *h;
    hf_lock *lock;
    struct stat s;
    fails_exempt(1);
    unlink(r->new_path);
    OK(hf_open(r->new_url, NULL, &h, &hurt_error));
    OK(hf_acquire(h, "first", NULL, &lock, &hurt_error));
    assert_int_equal(stat(r->new_path, &s), 0);
    fails_exempt(0);
    int rc = fill(r, h, s.st_size);
    fails_exempt(1);
    if (rc != HF_UNAVAILABLE) OK(hf_confirm(lock, &hurt_error)); /* that is for good */
    hf_close(h);
    fails_exempt(0);
    return rc;
}

static int acquires_all(struct run *r)
{
    static const char *const keys[] = {"k2", "k0", "k1"};
    hf_lock *locks[3];
    hf_options o = waits(0);
    STEP(hf_acquire_all(r->h, keys, 3, &o, locks, &r->err));
    int rc = 0;
    for (int i = 0; i < 3; i++) {
        int released = give_back(r, locks[i]);
        if (!rc) rc = released;
    }
    return rc;
}

static int shares(struct run *r) /* a row with many holders */
{
    hf_lock *locks[12];
    hf_options o = waits(0);
    int rc = 0, n = 0;
    o.mode = HF_SHARED;
    o.flags = HF_ALLOW_RECURSIVE;
    r->doing = "shared";
    for (; !rc && n < 12; n += !rc) rc = hf_acquire(r->h, "k3", &o, &locks[n], &r->err);
    while (n) {
        int released = give_back(r, locks[--n]);
        if (!rc) rc = released;
    }
    return rc;
}

struct helper {
    struct run *r;
    hf_lock *lock;
    pthread_t thread;
};

static size_t waiters;
static int count_waiters(void *arg, const hf_info *info)
{
    (void)arg;
    waiters = info->n_waiters;
    return 0;
}

/* How long the scenario holds. If it was too fast to reach what it has to, it is played more
   slowly. */
static int64_t hold_us = 20000;

/* Holds the key until another one waits for it, or for some time. */
static void *hold_a_little(void *arg)
{
    struct helper *p = arg;
    fails_exempt(1);
    waiters = 0;
    for (int64_t end = hurt_us() + hold_us; !waiters && hurt_us() < end; usleep(200))
        if (hf_peek(p->r->other, "k0", count_waiters, NULL, NULL)) break;
    hf_release(p->lock, NULL);
    return NULL;
}

static void begin_holding(struct helper *p, struct run *r)
{
    fails_exempt(1);
    p->r = r;
    OK(hf_acquire(r->other, "k0", NULL, &p->lock, &hurt_error));
    assert_int_equal(pthread_create(&p->thread, NULL, hold_a_little, p), 0);
    fails_exempt(0);
}

static int contends(struct run *r)
{
    struct helper p;
    hf_lock *lock;
    hf_options o = waits(3000);
    begin_holding(&p, r);
    r->doing = "contended acquire";
    int rc = hf_acquire(r->h, "k0", &o, &lock, &r->err);
    if (!rc) rc = give_back(r, lock);
    pthread_join(p.thread, NULL);
    return rc;
}

static int times_out(struct run *r)
{
    hf_lock *held, *lock;
    hf_options o = waits(hold_us / 4000);
    r->unreleased = 1; /* a ticket that there was no memory to withdraw costs its claim's second */
    fails_exempt(1);
    OK(hf_acquire(r->other, "k0", NULL, &held, &hurt_error));
    fails_exempt(0);
    r->doing = "timed out acquire";
    int rc = hf_acquire(r->h, "k0", &o, &lock, &r->err);
    fails_exempt(1);
    OK(hf_release(held, &hurt_error));
    fails_exempt(0);
    if (!rc) rc = give_back(r, lock);
    return rc == HF_TIMEOUT ? 0 : rc;
}

struct told {
    struct run *r;
    hf_lock *lock;
    int code, done;
};

static void tell(void *arg, int code, hf_lock *lock, const hf_error *err)
{
    struct told *t = arg;
    if (code) t->r->err = *err;
    t->lock = lock;
    t->code = code;
    __atomic_store_n(&t->done, 1, __ATOMIC_RELEASE);
}

static int started(struct run *r, int cancels)
{
    struct helper p;
    struct told t = {r, NULL, 0, 0};
    hf_wait *wait;
    hf_options o = waits(3000);
    begin_holding(&p, r);
    r->doing = "hf_acquire_start";
    int rc = hf_acquire_start(r->h, "k0", &o, tell, &t, &wait, &r->err);
    if (!rc) {
        if (cancels) hf_wait_cancel(wait);
        while (!__atomic_load_n(&t.done, __ATOMIC_ACQUIRE)) usleep(100);
        hf_wait_free(wait);
        rc = t.code == HF_CANCELED && cancels ? 0 : t.code;
        if (t.lock) rc = give_back(r, t.lock);
    }
    pthread_join(p.thread, NULL);
    return rc;
}

static int starts(struct run *r) { return started(r, 0); }
static int cancels(struct run *r) { return started(r, 1); }

static int is_done(void *arg, const hf_info *info)
{
    *(int *)arg = info->done_us != 0;
    return 0;
}

static int once(struct run *r)
{
    hf_once o = {0};
    hf_options try = waits(0);
    char event[40];
    snprintf(event, sizeof event, "once/%d/%ld", r->on, r->n);
    STEP(hf_once_begin(r->h, "event", 60000, &try, &o, &r->err));
    if (o.lock) STEP(give_back(r, o.lock));
    STEP(hf_once_begin(r->h, event, 60000, &try, &o, &r->err));
    if (!o.lock) return 0;
    r->doing = "hf_once_finish";
    int rc = hf_once_finish(o.lock, "result", 60000, &r->err);
    if (rc) return rc;
    int done = 0; /* what returned is true */
    fails_exempt(1);
    OK(hf_peek(r->other, event, is_done, &done, &hurt_error));
    fails_exempt(0);
    assert_true(done);
    return 0;
}

static int once_marked(struct run *r)
{
    hf_once o = {0};
    hf_options try = waits(0);
    char event[40];
    try.flags = HF_AT_MOST_ONCE;
    snprintf(event, sizeof event, "marked/%d/%ld", r->on, r->n);
    STEP(hf_once_begin(r->h, event, 60000, &try, &o, &r->err));
    return o.lock ? give_back(r, o.lock) : 0;
}

static int looks(struct run *r)
{
    STEP(hf_peek(r->h, "k0", see, NULL, &r->err));
    STEP(hf_list(r->h, "", see, NULL, &r->err));
    STEP(hf_watch(r->h, "k", see, NULL, &r->err));
    uint64_t n = 0;
    STEP(hf_prune(r->h, 60000, &n, &r->err));
    return 0;
}

static void never(void *arg, hf_lock *lock) { (void)arg, (void)lock; }

static int leases(struct run *r)
{
    hf_lock *lock;
    hf_options o = waits(0);
    o.lease_ms = 20000;
    STEP(hf_acquire(r->h, "k1", &o, &lock, &r->err));
    hf_lost_fd(lock); /* may be -1 */
    hf_on_lost(lock, never, NULL);
    r->doing = "hf_renew";
    int rc = hf_renew(lock, 0, &r->err);
    if (!rc) rc = hf_confirm(lock, &r->err);
    int released = give_back(r, lock);
    return rc ? rc : released;
}

static int adopts(struct run *r)
{
    hf_lock *lock, *mine;
    hf_options o = waits(0);
    o.lease_ms = 60000;
    o.flags = HF_DETACHED;
    fails_exempt(1);
    OK(hf_acquire(r->other, "k4", &o, &lock, &hurt_error));
    fails_exempt(0);
    r->doing = "hf_adopt";
    int rc = hf_adopt(r->h, "k4", hf_token(lock), &mine, &r->err);
    if (!rc) rc = give_back(r, mine);
    if (!rc) rc = hf_break(r->h, "k4", hf_token(lock), &r->err);
    if (rc == HF_LOST) rc = 0;
    fails_exempt(1);
    hf_release(lock, NULL);
    fails_exempt(0);
    return rc;
}

/* ---- what must hold around them ---- */

static int count_entries(const char *path)
{
    int n = 0;
    DIR *d = opendir(path);
    while (d && readdir(d)) n++;
    if (d) closedir(d);
    return n;
}

struct holdings {
    long blocks;
    int fds, threads;
};

static struct holdings holdings(void)
{
    return (struct holdings){fails_blocks(), count_entries("/proc/self/fd"),
                             count_entries("/proc/self/task")};
}

static int all_free(struct hurt_child *me, struct run *r, const char *when)
{
    static const char *const keys[] = {"k0", "k1", "k2", "k3", "k4", "event"};
    hf_options o = waits(60000);
    hf_lock *lock;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        int rc = hf_acquire(r->other, keys[i], &o, &lock, &r->err);
        if (rc) return hurt_say(me, "%s, '%s': %s", when, keys[i], r->err.text);
        hf_release(lock, NULL);
    }
    return 0;
}

/* Can this code come of something that the system refused? */
static int good_code(int rc)
{
    return rc == HF_NOMEM || rc == HF_UNAVAILABLE || rc == HF_FULL || rc == HF_DENIED ||
           rc == HF_UNKNOWN || rc == HF_UNSUPPORTED;
}

struct scenario {
    const char *name;
    int (*play)(struct run *r);
    int opens; /* itself */
    int on;
    const char *reaches; /* functions that must have been called, and so must have failed */
};

/* Makes one run in which the n-th call fails. Returns 0: there were fewer calls; 1: it went well;
   -1: it didn't. */
static int one_run(struct hurt_child *me, const struct scenario *s, struct run *r)
{
    char text[300];
    hf_open_options patience = HF_OPEN_OPTIONS_INIT;
    patience.io_timeout_ms = 300;
    struct holdings before = holdings();
    r->h = NULL;
    r->unreleased = 0;
    r->err.text[0] = 0;
    fails_exempt(1);
    if (!s->opens) OK(hf_open(r->url, &patience, &r->h, &hurt_error));
    fails_exempt(0);
    fails_arm(r->n, s->on);
    int rc = s->play(r);
    const char *failed = fails_disarm();
    fails_exempt(1);
    snprintf(text, sizeof text, "%s, call %ld (%s), %s: %s", s->name, r->n,
             failed ? failed : "none", r->doing, hf_code_name(rc));
    if (rc && (!failed || !good_code(rc) || strlen(r->err.text) < 10)) {
        hurt_say(me, "%s: %s", text, r->err.text);
        return -1;
    }
    if (!r->unreleased && all_free(me, r, text)) return -1;
    hf_close(r->h);
    if (all_free(me, r, text)) return -1;
    struct holdings after = holdings();
    /* A thread that was joined may be listed for a moment. */
    for (int64_t end = hurt_us() + 60000000; hurt_us() < end; usleep(1000)) {
        if (after.threads <= before.threads) break;
        after = holdings();
    }
    if (after.blocks != before.blocks || after.fds != before.fds ||
        after.threads > before.threads) {
        hurt_say(me, "%s: %ld blocks, %d descriptors, %d threads leaked", text,
                 after.blocks - before.blocks, after.fds - before.fds,
                 after.threads - before.threads);
        return -1;
    }
    return failed ? 1 : 0;
}

static int watches_files(void)
{
    char name[64], to[64];
    for (int fd = 0; fd < 64; fd++) {
        snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
        ssize_t n = readlink(name, to, sizeof to - 1);
        to[n > 0 ? n : 0] = 0;
        if (strstr(to, "inotify")) return 1;
    }
    return 0;
}

/* Once it has waited it has its threads and descriptors, which aren't leaks. */
static void let_wait(struct run *r)
{
    hf *h;
    hf_lock *held, *lock;
    hf_options o = waits(2);
    OK(hf_open(r->url, NULL, &h, &hurt_error));
    OK(hf_acquire(h, "k0", NULL, &held, &hurt_error));
    /* If the system has no watches left, it won't have any later either. */
    for (; !watches_files() && o.wait_ms < 4000; o.wait_ms *= 2)
        IS(HF_TIMEOUT, hf_acquire(r->other, "k0", &o, &lock, &hurt_error));
    hf_close(h);
}

/* Returns the functions that should have been called but weren't; "": all were. */
static const char *missing(const struct scenario *s)
{
    static char word[40];
    for (const char *name = s->reaches; *name; name += strspn(name, " ")) {
        memset(word, 0, sizeof word);
        memcpy(word, name, strcspn(name, " "));
        name += strlen(word);
        if (!strstr(fails_calls(), word)) return word;
    }
    return "";
}

static int all_runs(struct hurt_child *me, void *arg)
{
    const struct scenario *s = arg;
    struct run r = {.url = hurt_url(hurt_path("store")), .on = s->on};
    int how = 1;
    fails_exempt(1);
    r.new_path = hurt_path("new/store");
    r.new_url = hurt_url(r.new_path);
    OK(hf_open(r.url, NULL, &r.other, &hurt_error));
    let_wait(&r);
    if (all_free(me, &r, "at first")) return 1; /* the handles know the keys from here */
    /* On a slow machine the waiting thread may be too late: then it is done once more. */
    do {
        for (r.n = 1, how = 1; how > 0; r.n++) {
            me->at = r.n;
            how = one_run(me, s, &r);
        }
        hold_us *= 2;
    } while (!how && *missing(s) && hold_us < 3000000);
    hf_close(r.other);
    if (how) return 1;
    if (!*missing(s)) return 0;
    return hurt_say(me, "%s: %s isn't called; these are: %s", s->name, missing(s), fails_calls());
}

/* Alone, then with all that follow. */
static void survives(struct scenario s)
{
    for (s.on = 0; s.on < 2; s.on++) hurt_run(all_runs, &s, 60000);
}

static void opening(void **state)
{
    (void)state;
    survives((struct scenario){
        .name = "open",
        .play = opens,
        .opens = 1,
        .reaches = "calloc strdup open64 fcntl64 fstat64 fstatfs64 pread64 mmap64 read madvise"});
}

static void creating(void **state)
{
    (void)state;
    survives((struct scenario){.name = "create",
                               .play = creates,
                               .opens = 1,
                               .reaches = "fallocate64 pwrite64 fchmod fsync link"});
    assert_int_equal(count_entries(hurt_path("new")), 3); /* nothing but the store */
}

#define SCENARIO(name, play, reaches)                            \
    static void name(void **state)                               \
    {                                                            \
        (void)state;                                             \
        survives((struct scenario){#name, play, 0, 0, reaches}); \
    }
SCENARIO(acquiring, acquires, "calloc")
SCENARIO(growing, grows, "fallocate64 fdatasync fstat64 fcntl64")
SCENARIO(acquiring_several, acquires_all, "calloc")
SCENARIO(sharing, shares, "realloc")
SCENARIO(contending, contends, "pthread_create eventfd inotify_init1 inotify_add_watch")
SCENARIO(timing_out, times_out, "pthread_create")
SCENARIO(starting, starts, "pthread_create eventfd inotify_init1 inotify_add_watch")
SCENARIO(canceling, cancels, "pthread_create")
SCENARIO(running_once, once, "msync")
SCENARIO(marking_first, once_marked, "msync")
SCENARIO(looking, looks, "malloc calloc")
SCENARIO(leasing, leases, "pthread_create eventfd")
SCENARIO(adopting, adopts, "calloc")

/* A signal in the middle of a call is no reason to fail. */
static int interrupted_one(struct hurt_child *me, void *arg)
{
    struct run r = {.url = arg};
    for (r.n = 1;; r.n++) {
        fails_arm_one(r.n, "fcntl64", EINTR);
        int rc = opens(&r);
        if (rc) return hurt_say(me, "call %ld: %s", r.n, r.err.text);
        if (!fails_disarm()) break;
    }
    return r.n < 3 ? hurt_say(me, "nothing was interrupted") : 0;
}

static void interrupted(void **state)
{
    (void)state;
    hurt_run(interrupted_one, (void *)(uintptr_t)hurt_url(hurt_path("store")), 20000);
}

static int make_directory(void **state)
{
    (void)state;
    return mkdir(hurt_path("new"), 0700);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(opening),       cmocka_unit_test(creating),
        cmocka_unit_test(acquiring),     cmocka_unit_test(acquiring_several),
        cmocka_unit_test(growing),       cmocka_unit_test(interrupted),
        cmocka_unit_test(sharing),       cmocka_unit_test(contending),
        cmocka_unit_test(timing_out),    cmocka_unit_test(starting),
        cmocka_unit_test(canceling),     cmocka_unit_test(running_once),
        cmocka_unit_test(marking_first), cmocka_unit_test(looking),
        cmocka_unit_test(leasing),       cmocka_unit_test(adopting),
    };
    return HURT_MAIN(argc, argv, tests, make_directory, NULL);
}
