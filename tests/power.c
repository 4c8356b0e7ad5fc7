/*
 * power.c - a power cut at any moment, with any mixture of old and new sectors on the disk.
 *
 * A store is used by several handles while a log records what a disk could hold. Then images of it
 * are opened as after a reboot: another boot id, CLOCK_BOOTTIME near zero, the time of day a little
 * later. Whatever was synced is there: every event whose finish had returned is done, with its
 * result; none is that nobody finished. Every token is greater than all that were handed out, and
 * all keys can be taken, listed, pruned. Recovery is itself cut, and begun again.
 *
 * IMAGES=N tries N random images instead of the usual number; SEED=N repeats a run.
 */
#include "cutlog.h"
#include "hurt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { KEYS = 8, EVENTS = 10, NAMES = KEYS + EVENTS, HANDLES = 3, HELD = 6, PROMISES = 4096 };

/* ---- clocks ---- */

static int64_t boot_skew_us, day_skew_us;
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret);
int __real_clock_gettime(clockid_t clock, struct timespec *ret);

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret)
{
    int rc = __real_clock_gettime(clock, ret);
    int64_t skew = clock == CLOCK_BOOTTIME   ? boot_skew_us
                   : clock == CLOCK_REALTIME ? day_skew_us
                                             : 0;
    int64_t us = (int64_t)ret->tv_sec * 1000000 + ret->tv_nsec / 1000 + skew;
    if (!skew) return rc;
    ret->tv_sec = us / 1000000;
    ret->tv_nsec = us % 1000000 * 1000 + ret->tv_nsec % 1000;
    return rc;
}

static void time_passes(int64_t us)
{
    boot_skew_us += us;
    day_skew_us += us;
}

/* The machine is on again after `off_us`. */
static void reboot(int64_t off_us)
{
    static unsigned boots;
    char id[64];
    struct timespec t;
    boots++;
    snprintf(id, sizeof id, "%08x-0000-4000-8000-%012x", boots, boots);
    assert_int_equal(setenv("HOLDFAST_TEST_BOOT_ID", id, 1), 0);
    __real_clock_gettime(CLOCK_BOOTTIME, &t);
    boot_skew_us = 4000000 - ((int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000);
    day_skew_us += off_us;
}

/* ---- what was promised ---- */

enum kind { TOKEN, BEGUN, DONE, RESULT };

struct promise {
    uint32_t moment;
    enum kind kind;
    int which;
    uint64_t token;
};

static struct {
    char names[NAMES][HF_KEY_CAP];
    /* before this boot */
    uint64_t tokens[NAMES];
    int done[NAMES], has_result[NAMES];
    /* in it */
    struct promise promises[PROMISES];
    int n;
    struct cutlog *log;
    hf *handles[HANDLES];
    hf_lock *held[HELD];
    uint64_t ops;
} w;

static const char *result_of(int which)
{
    static char text[HF_RESULT_CAP];
    snprintf(text, sizeof text, "result of %d %0*d", which, which * 12, which);
    return text;
}

static void promise(enum kind kind, int which, uint64_t token)
{
    assert_true(w.n < PROMISES);
    w.promises[w.n++] = (struct promise){cutlog_now(w.log), kind, which, token};
}

/* At a moment: the greatest token handed out; whether the event is done for certain, maybe, with
   its result for certain. */
struct state {
    uint64_t token;
    int done, maybe, result;
};

static struct state at_moment(int which, uint32_t moment)
{
    struct state s = {w.tokens[which], w.done[which], w.done[which], w.has_result[which]};
    for (int i = 0; i < w.n; i++) {
        const struct promise *p = &w.promises[i];
        if (p->which != which || p->moment > moment) continue;
        if (p->kind == TOKEN && p->token > s.token) s.token = p->token;
        if (p->kind == BEGUN) s.maybe = 1;
        if (p->kind == DONE) s.done = s.maybe = 1;
        if (p->kind == RESULT) s.result = 1;
    }
    return s;
}

/* ---- work ---- */

static hf_options one_try(void)
{
    hf_options o = HF_OPTIONS_INIT;
    o.wait_ms = 0;
    o.flags = HF_ALLOW_RECURSIVE;
    return o;
}

static hf *any_handle(void) { return w.handles[hurt_below(HANDLES)]; }

static hf_lock *take(int which, enum hf_mode mode)
{
    hf_options o = one_try();
    hf_lock *lock = NULL;
    o.mode = mode;
    int rc = hf_acquire(any_handle(), w.names[which], &o, &lock, &hurt_error);
    if (rc && rc != HF_BUSY) fail_msg("%s", hurt_error.text);
    if (lock) promise(TOKEN, which, hf_token(lock));
    return lock;
}

static void hold_or_release(void)
{
    int i = (int)hurt_below(HELD), which = (int)hurt_below(KEYS);
    hf_lock *lock = w.held[i];
    if (!lock) lock = take(which, which % 2 ? HF_SHARED : HF_EXCLUSIVE);
    if (!w.held[i] && hurt_below(2)) {
        w.held[i] = lock;
        return;
    }
    OK(hf_release(lock, &hurt_error));
    w.held[i] = NULL;
}

static void run_event(int which, unsigned flags, int finishes)
{
    hf_options o = one_try();
    hf_once once = {0};
    o.flags |= flags;
    if (flags) promise(BEGUN, which, 0);
    int rc = hf_once_begin(any_handle(), w.names[which], HF_FOREVER, &o, &once, &hurt_error);
    if (rc == HF_BUSY || (!rc && !once.lock)) return;
    if (rc) fail_msg("%s", hurt_error.text);
    promise(TOKEN, which, hf_token(once.lock));
    if (flags) promise(DONE, which, 0);
    if (!finishes) {
        OK(hf_release(once.lock, &hurt_error));
        return;
    }
    promise(BEGUN, which, 0);
    OK(hf_once_finish(once.lock, result_of(which), HF_FOREVER, &hurt_error));
    promise(DONE, which, 0);
    promise(RESULT, which, 0);
}

/* What comes and goes, and leaves its cells to others. */
static void run_passing(void)
{
    hf_options o = one_try();
    hf_once once = {0};
    hf_lock *lock;
    char key[HF_KEY_CAP];
    uint64_t n = 0;
    int len = snprintf(key, sizeof key, "passing/%d/", (int)hurt_below(40));
    memset(key + len, 'x', 400);
    key[len + (int)hurt_below(400)] = 0;
    switch (hurt_below(3)) {
    case 0:
        OK(hf_once_begin(any_handle(), key, 60000, &o, &once, &hurt_error));
        if (once.lock) OK(hf_once_finish(once.lock, "gone soon", 60000, &hurt_error));
        break;
    case 1:
        OK(hf_acquire(any_handle(), key, &o, &lock, &hurt_error));
        OK(hf_release(lock, &hurt_error));
        break;
    default: time_passes(120000000); OK(hf_prune(any_handle(), 60000, &n, &hurt_error));
    }
}

/* Some are opened anew, with other sessions; what they hold ends. */
static void open_again(const char *url)
{
    for (int i = 0; i < HELD; i++) {
        if (w.held[i]) OK(hf_release(w.held[i], &hurt_error));
        w.held[i] = NULL;
    }
    for (int i = 0; i < HANDLES; i++) {
        if (i && hurt_below(2)) continue;
        hf_close(w.handles[i]);
        OK(hf_open(url, NULL, &w.handles[i], &hurt_error));
    }
}

static void work(const char *url, int ops)
{
    for (; ops; ops--, w.ops++) {
        uint64_t what = hurt_below(20);
        int event = KEYS + (int)hurt_below(EVENTS);
        if (what < 8)
            hold_or_release();
        else if (what < 11)
            run_event(event, 0, 1);
        else if (what == 11)
            run_event(event, HF_AT_MOST_ONCE, (int)hurt_below(2));
        else if (what < 14)
            run_event(event, 0, 0);
        else if (what < 19)
            run_passing();
        else
            open_again(url);
    }
}

static void begin(const char *path)
{
    const char *url = hurt_url(path);
    w.n = 0;
    for (int i = 0; i < HELD; i++) w.held[i] = NULL;
    for (int i = 0; i < HANDLES; i++) OK(hf_open(url, NULL, &w.handles[i], &hurt_error));
    w.log = cutlog_begin(path);
}

static void end(void)
{
    cutlog_end(w.log);
    for (int i = 0; i < HANDLES; i++) hf_close(w.handles[i]);
}

/* A store in which nothing has happened yet. */
static void fresh(const char *path)
{
    hf *h;
    memset(w.tokens, 0, sizeof w.tokens);
    memset(w.done, 0, sizeof w.done);
    memset(w.has_result, 0, sizeof w.has_result);
    for (int i = 0; i < NAMES; i++)
        snprintf(w.names[i], sizeof w.names[i], "%s/%0*d", i < KEYS ? "key" : "event", i * 25, i);
    if (access(path, F_OK) == 0) assert_int_equal(unlink(path), 0);
    reboot(0);
    OK(hf_open(hurt_url(path), NULL, &h, &hurt_error));
    hf_close(h);
}

/* ---- after the cut ---- */

static char wrong[900]; /* what is wrong with an image */

__attribute__((format(printf, 1, 2))) static int bad(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(wrong, sizeof wrong, format, args);
    va_end(args);
    return 1;
}

#define TRY(call)                                                                     \
    do {                                                                              \
        int rc_ = (call);                                                             \
        if (rc_) return bad("%s: %s: %s", #call, hf_code_name(rc_), hurt_error.text); \
    } while (0)

static int count_parties(void *arg, const hf_info *info)
{
    *(size_t *)arg += info->n_holders + info->n_waiters;
    return 0;
}

/* The event, as it is found: done or not as it must be. */
static int check_event(hf *h, int which, struct state s, int adopts)
{
    hf_options o = one_try();
    hf_once once = {0};
    TRY(hf_once_begin(h, w.names[which], HF_FOREVER, &o, &once, &hurt_error));
    int done = !once.lock;
    if (once.lock) TRY(hf_release(once.lock, &hurt_error));
    if (s.done && !done) return bad("'%.20s' is undone", w.names[which]);
    if (!s.maybe && done) return bad("'%.20s' is done by itself", w.names[which]);
    if (done && strcmp(once.result, result_of(which)) && (s.result || once.result[0]))
        return bad("'%.20s' has the result '%s'", w.names[which], once.result);
    if (!adopts) return 0;
    w.done[which] = done;
    w.has_result[which] = done && once.result[0];
    return 0;
}

static int check_key(hf *h, int which, uint64_t above, int adopts)
{
    hf_options o = one_try();
    hf_lock *lock;
    TRY(hf_acquire(h, w.names[which], &o, &lock, &hurt_error));
    uint64_t token = hf_token(lock);
    TRY(hf_release(lock, &hurt_error));
    if (token <= above)
        return bad("'%.20s': its token went back by %lld us", w.names[which],
                   (long long)(above - token));
    if (adopts) w.tokens[which] = token;
    return 0;
}

static int look_around(hf *h, uint32_t moment, int adopts)
{
    hf_lock *lock;
    size_t parties = 0;
    uint64_t n = 0;
    hf_options o = one_try();
    TRY(hf_list(h, "", count_parties, &parties, &hurt_error));
    if (parties) return bad("%zu parties have outlived the reboot", parties);
    for (int i = 0; i < NAMES; i++) {
        struct state s = at_moment(i, moment);
        if (i >= KEYS && check_event(h, i, s, adopts)) return 1;
        if (check_key(h, i, s.token, adopts)) return 1;
    }
    TRY(hf_acquire(h, "new", &o, &lock, &hurt_error));
    TRY(hf_release(lock, &hurt_error));
    TRY(hf_prune(h, 60000, &n, &hurt_error));
    return 0;
}

/* Opens an image of the moment, twice, and looks at everything. `adopts`: what is found is what is
   known from then on. */
static int check(const char *path, uint32_t moment, int adopts)
{
    hf *h;
    int rc = 0;
    for (int round = 0; !rc && round < 2; round++) {
        TRY(hf_open(hurt_url(path), NULL, &h, &hurt_error));
        rc = look_around(h, moment, adopts && round);
        hf_close(h);
    }
    return rc;
}

/* The recovery of this image is cut too, and what that leaves is recovered. */
static int cut_recovery(const char *path, uint32_t moment)
{
    const char *path2 = hurt_path("again");
    hf *h;
    int rc = 0;
    struct cutlog *log = cutlog_begin(path);
    int failed = hf_open(hurt_url(path), NULL, &h, &hurt_error);
    cutlog_end(log);
    TRY(failed);
    hf_close(h);
    int64_t day_us = day_skew_us;
    uint32_t last = cutlog_now(log);
    for (int i = 0; !rc && i < 4; i++) {
        cutlog_image(log, 1 + (uint32_t)hurt_below(last), CUT_SECTORS, 0, path2);
        day_skew_us = day_us;
        reboot((int64_t)hurt_below(10000000));
        rc = check(path2, moment, 0);
    }
    cutlog_free(log);
    return rc;
}

/* ---- the tests ---- */

/* Random images of a random moment of the log; the last one's is left at `image`. 0: all good. */
static int random_images(int n, const char *image, uint32_t *ret_moment)
{
    int64_t day_us = day_skew_us;
    uint32_t moment = *ret_moment = 1 + (uint32_t)hurt_below(cutlog_now(w.log));
    for (int i = 0; i < n; i++) {
        cutlog_image(w.log, moment, (enum cut_how)hurt_below(3), hurt_random(), image);
        day_skew_us = day_us; /* the images are of one moment */
        reboot((int64_t)hurt_below(40000000));
        if (i % 10 == 5 ? cut_recovery(image, moment) : check(image, moment, 0)) return 1;
    }
    return 0;
}

static void random_cuts(void **state)
{
    (void)state;
    const char *store = hurt_path("store"), *image = hurt_path("image");
    long images = 0, wanted = hurt_count("IMAGES", 8000);
    for (long boot = 0; images < wanted; boot++) {
        uint32_t moment = 0;
        if (boot % 8 == 0) fresh(store);
        begin(store);
        work(hurt_url(store), 30);
        end();
        int64_t day_us = day_skew_us;
        for (int cut = 0; cut < 10; cut++, images += 20) {
            day_skew_us = day_us;
            if (random_images(20, image, &moment))
                fail_msg("boot %ld, cut %d at %u: %s", boot, cut, moment, wrong);
        }
        /* One of them is what happened, and the next boot goes on from there. */
        if (check(image, moment, 1)) fail_msg("boot %ld: %s", boot, wrong);
        cutlog_free(w.log);
        assert_int_equal(rename(image, store), 0);
    }
    print_message("# %ld images, %llu operations\n", images, (unsigned long long)w.ops);
}

/* ---- all subsets ---- */

static void take_and_release(int which) { OK(hf_release(take(which, HF_EXCLUSIVE), &hurt_error)); }

static void first_finish(void) { run_event(KEYS, 0, 1); }
static void second_finish(void) { run_event(KEYS + 1, 0, 1); }
static void at_most_once(void) { run_event(KEYS + 2, HF_AT_MOST_ONCE, 1); }
static void given_up(void) { run_event(KEYS + 3, HF_AT_MOST_ONCE, 0); }
static void new_key(void) { take_and_release(0); }
static void used_key(void) { take_and_release(1); }
static void used_event(void) { take_and_release(KEYS + 4); }

static void many_holders(void) /* bodies are replaced by larger ones */
{
    for (int i = 0; i < HELD; i++) w.held[i] = take(3, HF_SHARED);
    for (int i = 0; i < HELD; i++) {
        OK(hf_release(w.held[i], &hurt_error));
        w.held[i] = NULL;
    }
}

static void marker_goes(void) /* and its cell becomes another key's */
{
    hf_options o = one_try();
    hf_once once;
    uint64_t n = 0;
    OK(hf_once_begin(any_handle(), "passing", 1000, &o, &once, &hurt_error));
    OK(hf_once_finish(once.lock, "gone soon", 1000, &hurt_error));
    time_passes(120000000);
    OK(hf_prune(any_handle(), 60000, &n, &hurt_error));
    assert_true(n >= 1);
    take_and_release(4);
    run_event(KEYS + 5, 0, 1);
}

static void before_subsets(void)
{
    take_and_release(1);
    run_event(KEYS + 1, 0, 0);
    run_event(KEYS + 4, 0, 1);
}

/* Images of a moment: every subset of the sectors that differ from what was synced, or a sample. */
static long subsets_at(uint32_t moment, uint64_t most, const char *image)
{
    int64_t day_us = day_skew_us;
    uint32_t units = cutlog_units(w.log, moment);
    uint64_t all = units < 63 ? UINT64_C(1) << units : UINT64_MAX, n = all < most ? all : most;
    for (uint64_t i = 0; i < n; i++) {
        cutlog_image(w.log, moment, CUT_SUBSET, n == all ? i : hurt_random(), image);
        day_skew_us = day_us;
        reboot((int64_t)hurt_below(40000000));
        if (check(image, moment, 0))
            fail_msg("at %u, subset %#llx of %u sectors: %s", moment, (unsigned long long)i, units,
                     wrong);
    }
    day_skew_us = day_us;
    return (long)n;
}

/* All subsets right before something is synced and at the end; a sample at every change between. */
static long subsets_of(void (*operation)(void), const char *store, const char *image)
{
    long images = 0;
    fresh(store);
    begin(store);
    before_subsets();
    cutlog_end(w.log);
    cutlog_free(w.log);
    w.log = cutlog_begin(store); /* all of that is on the disk */
    for (int i = 0; i < w.n; i++) w.promises[i].moment = 0;
    operation();
    end();
    uint32_t last = cutlog_now(w.log);
    for (uint32_t moment = 1; moment <= last; moment++) {
        if (moment == last || cutlog_news(w.log, moment + 1) == 2)
            images += subsets_at(moment, 4096, image);
        else if (cutlog_news(w.log, moment))
            images += subsets_at(moment, 8, image);
    }
    cutlog_free(w.log);
    return images;
}

static void every_subset(void **state)
{
    (void)state;
    static void (*const operations[])(void) = {first_finish, second_finish, at_most_once,
                                               given_up,     new_key,       used_key,
                                               used_event,   many_holders,  marker_goes};
    long images = 0;
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++)
        images += subsets_of(operations[i], hurt_path("store"), hurt_path("image"));
    print_message("# %ld images\n", images);
}

/* The file grows meanwhile. */
static void cuts_while_growing(void **state)
{
    (void)state;
    const char *store = hurt_path("store"), *image = hurt_path("image");
    hf_options o = one_try();
    hf_lock *lock;
    uint32_t moment;
    char key[32];
    fresh(store);
    begin(store);
    cutlog_pace(w.log, 150);
    for (int i = 0; i < 1200; i++) {
        snprintf(key, sizeof key, "many/%d", i);
        OK(hf_acquire(any_handle(), key, &o, &lock, &hurt_error));
        OK(hf_release(lock, &hurt_error));
        if (i % 150 == 149) run_event(KEYS + i / 150, 0, 1);
    }
    end();
    for (int i = 0; i < 60; i++)
        if (random_images(5, image, &moment)) fail_msg("cut %d at %u: %s", i, moment, wrong);
    cutlog_free(w.log);
}

/* The store appears whole, and stays: its content is synced before it has its name, its name before
   it is used. */
static void creation_is_synced(void **state)
{
    (void)state;
    const char *store = hurt_path("created");
    cutlog_calls();
    fresh(store);
    const char *calls = cutlog_calls();
    const char *content = strchr(calls, 'W'), *synced = strchr(calls, 'S');
    const char *named = strchr(calls, 'L'), *kept = strchr(calls, 'D');
    if (!content || !synced || !named || !kept || content > synced || synced > named ||
        named > kept || strchr(synced, 'W'))
        fail_msg("calls: %s", calls);
}

/* These tests would notice a store that doesn't sync, or a disk that doesn't. */
static void a_lying_disk_is_noticed(void **state)
{
    (void)state;
    const char *store = hurt_path("store"), *image = hurt_path("image");
    int noticed = 0;
    for (int i = 0; i < 20 && !noticed; i++) {
        uint32_t moment;
        fresh(store);
        begin(store);
        cutlog_lie(w.log);
        work(hurt_url(store), 30);
        end();
        for (int cut = 0; cut < 10 && !noticed; cut++)
            noticed = random_images(5, image, &moment) && strstr(wrong, "is undone");
        cutlog_free(w.log);
    }
    assert_true(noticed);
}

static int print_seed(void **state)
{
    (void)state;
    hurt_seed();
    return 0;
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(creation_is_synced),
        cmocka_unit_test(every_subset),
        cmocka_unit_test(random_cuts),
        cmocka_unit_test(cuts_while_growing),
        cmocka_unit_test(a_lying_disk_is_noticed),
    };
    return HURT_MAIN(argc, argv, tests, print_seed, NULL);
}
