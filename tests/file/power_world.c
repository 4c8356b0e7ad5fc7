/*
 * power_world.c - see power_world.h.
 */
#include "power_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- clocks ---- */

int64_t power_day_skew_us;
static int64_t boot_skew_us;
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret);
int __real_clock_gettime(clockid_t clock, struct timespec *ret);

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret)
{
    int rc = __real_clock_gettime(clock, ret);
    int64_t skew = clock == CLOCK_BOOTTIME   ? boot_skew_us
                   : clock == CLOCK_REALTIME ? power_day_skew_us
                                             : 0;
    int64_t us = (int64_t)ret->tv_sec * 1000000 + ret->tv_nsec / 1000 + skew;
    if (!skew) return rc;
    ret->tv_sec = us / 1000000;
    ret->tv_nsec = us % 1000000 * 1000 + ret->tv_nsec % 1000;
    return rc;
}

void power_time_passes(int64_t us)
{
    boot_skew_us += us;
    power_day_skew_us += us;
}

/* The machine is on again after `off_us`. */
void power_reboot(int64_t off_us)
{
    static unsigned boots;
    char id[64];
    struct timespec t;
    boots++;
    snprintf(id, sizeof id, "%08x-0000-4000-8000-%012x", boots, boots);
    assert_int_equal(setenv("HOLDFAST_TEST_BOOT_ID", id, 1), 0);
    __real_clock_gettime(CLOCK_BOOTTIME, &t);
    boot_skew_us = 4000000 - ((int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000);
    power_day_skew_us += off_us;
}

/* ---- what was promised ---- */

struct power power;

static const char *result_of(int which)
{
    static char text[HF_RESULT_CAP];
    snprintf(text, sizeof text, "result of %d %0*d", which, which * 12, which);
    return text;
}

static void promise(enum power_kind kind, int which, uint64_t token)
{
    assert_true(power.n < PROMISES);
    power.promises[power.n++] = (struct power_promise){cutlog_now(power.log), kind, which, token};
}

/* At a moment: the greatest token handed out; whether the event is done for certain, maybe, with
   its result for certain. */
struct state {
    uint64_t token;
    int done, maybe, result;
};

static struct state power_at_moment(int which, uint32_t moment)
{
    struct state s = {power.tokens[which], power.done[which], power.done[which],
                      power.has_result[which]};
    for (int i = 0; i < power.n; i++) {
        const struct power_promise *p = &power.promises[i];
        if (p->which != which || p->moment > moment) continue;
        if (p->kind == TOKEN && p->token > s.token) s.token = p->token;
        if (p->kind == BEGUN) s.maybe = 1;
        if (p->kind == DONE) s.done = s.maybe = 1;
        if (p->kind == RESULT) s.result = 1;
    }
    return s;
}

/* ---- work ---- */

hf_options power_one_try(void)
{
    hf_options o = HF_OPTIONS_INIT;
    o.wait_ms = 0;
    o.flags = HF_ALLOW_RECURSIVE;
    return o;
}

hf *power_any_handle(void) { return power.handles[hurt_below(HANDLES)]; }

hf_lock *power_take(int which, enum hf_mode mode)
{
    hf_options o = power_one_try();
    hf_lock *lock = NULL;
    o.mode = mode;
    int rc = hf_acquire(power_any_handle(), power.names[which], &o, &lock, &hurt_error);
    if (rc && rc != HF_BUSY) fail_msg("%s", hurt_error.text);
    if (lock) promise(TOKEN, which, hf_token(lock));
    return lock;
}

static void hold_or_release(void)
{
    int i = (int)hurt_below(HELD), which = (int)hurt_below(KEYS);
    hf_lock *lock = power.held[i];
    if (!lock) lock = power_take(which, which % 2 ? HF_SHARED : HF_EXCLUSIVE);
    if (!power.held[i] && hurt_below(2)) {
        power.held[i] = lock;
        return;
    }
    OK(hf_release(lock, &hurt_error));
    power.held[i] = NULL;
}

void power_run_event(int which, unsigned flags, int finishes)
{
    hf_options o = power_one_try();
    hf_once once = {0};
    o.flags |= flags;
    if (flags) promise(BEGUN, which, 0);
    int rc =
        hf_once_begin(power_any_handle(), power.names[which], HF_FOREVER, &o, &once, &hurt_error);
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

/* Uses keys that are deleted again, whose cells other keys then use. */
static void run_passing(void)
{
    hf_options o = power_one_try();
    hf_once once = {0};
    hf_lock *lock;
    char key[HF_KEY_CAP];
    uint64_t n = 0;
    int len = snprintf(key, sizeof key, "passing/%d/", (int)hurt_below(40));
    memset(key + len, 'x', 400);
    key[len + (int)hurt_below(400)] = 0;
    switch (hurt_below(3)) {
    case 0:
        OK(hf_once_begin(power_any_handle(), key, 60000, &o, &once, &hurt_error));
        if (once.lock) OK(hf_once_finish(once.lock, "gone soon", 60000, &hurt_error));
        break;
    case 1:
        OK(hf_acquire(power_any_handle(), key, &o, &lock, &hurt_error));
        OK(hf_release(lock, &hurt_error));
        break;
    default: power_time_passes(120000000); OK(hf_prune(power_any_handle(), 60000, &n, &hurt_error));
    }
}

/* Opens some handles anew, with other sessions; what they held ends. */
static void open_again(const char *url)
{
    for (int i = 0; i < HELD; i++) {
        if (power.held[i]) OK(hf_release(power.held[i], &hurt_error));
        power.held[i] = NULL;
    }
    for (int i = 0; i < HANDLES; i++) {
        if (i && hurt_below(2)) continue;
        hf_close(power.handles[i]);
        OK(hf_open(url, NULL, &power.handles[i], &hurt_error));
    }
}

void power_work(const char *url, int ops)
{
    for (; ops; ops--, power.ops++) {
        uint64_t what = hurt_below(20);
        int event = KEYS + (int)hurt_below(EVENTS);
        if (what < 8)
            hold_or_release();
        else if (what < 11)
            power_run_event(event, 0, 1);
        else if (what == 11)
            power_run_event(event, HF_AT_MOST_ONCE, (int)hurt_below(2));
        else if (what < 14)
            power_run_event(event, 0, 0);
        else if (what < 19)
            run_passing();
        else
            open_again(url);
    }
}

void power_begin(const char *path)
{
    const char *url = hurt_url(path);
    power.n = 0;
    for (int i = 0; i < HELD; i++) power.held[i] = NULL;
    for (int i = 0; i < HANDLES; i++) OK(hf_open(url, NULL, &power.handles[i], &hurt_error));
    power.log = cutlog_begin(path);
}

void power_end(void)
{
    cutlog_end(power.log);
    for (int i = 0; i < HANDLES; i++) hf_close(power.handles[i]);
}

/* A store in which nothing has happened yet. */
void power_fresh(const char *path)
{
    hf *h;
    memset(power.tokens, 0, sizeof power.tokens);
    memset(power.done, 0, sizeof power.done);
    memset(power.has_result, 0, sizeof power.has_result);
    for (int i = 0; i < NAMES; i++)
        snprintf(power.names[i], sizeof power.names[i], "%s/%0*d", i < KEYS ? "key" : "event",
                 i * 25, i);
    if (access(path, F_OK) == 0) assert_int_equal(unlink(path), 0);
    power_reboot(0);
    OK(hf_open(hurt_url(path), NULL, &h, &hurt_error));
    hf_close(h);
}

/* ---- after the cut ---- */

char power_wrong[900];

__attribute__((format(printf, 1, 2))) static int bad(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(power_wrong, sizeof power_wrong, format, args);
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
    hf_options o = power_one_try();
    hf_once once = {0};
    TRY(hf_once_begin(h, power.names[which], HF_FOREVER, &o, &once, &hurt_error));
    int done = !once.lock;
    if (once.lock) TRY(hf_release(once.lock, &hurt_error));
    if (s.done && !done) return bad("'%.20s' is undone", power.names[which]);
    if (!s.maybe && done) return bad("'%.20s' is done by itself", power.names[which]);
    if (done && strcmp(once.result, result_of(which)) && (s.result || once.result[0]))
        return bad("'%.20s' has the result '%s'", power.names[which], once.result);
    if (!adopts) return 0;
    power.done[which] = done;
    power.has_result[which] = done && once.result[0];
    return 0;
}

static int check_key(hf *h, int which, uint64_t above, int adopts)
{
    hf_options o = power_one_try();
    hf_lock *lock;
    TRY(hf_acquire(h, power.names[which], &o, &lock, &hurt_error));
    uint64_t token = hf_token(lock);
    TRY(hf_release(lock, &hurt_error));
    if (token <= above)
        return bad("'%.20s': its token went back by %lld us", power.names[which],
                   (long long)(above - token));
    if (adopts) power.tokens[which] = token;
    return 0;
}

static int look_around(hf *h, uint32_t moment, int adopts)
{
    hf_lock *lock;
    size_t parties = 0;
    uint64_t n = 0;
    hf_options o = power_one_try();
    TRY(hf_list(h, "", count_parties, &parties, &hurt_error));
    if (parties) return bad("%zu parties have outlived the reboot", parties);
    for (int i = 0; i < NAMES; i++) {
        struct state s = power_at_moment(i, moment);
        if (i >= KEYS && check_event(h, i, s, adopts)) return 1;
        if (check_key(h, i, s.token, adopts)) return 1;
    }
    TRY(hf_acquire(h, "new", &o, &lock, &hurt_error));
    TRY(hf_release(lock, &hurt_error));
    TRY(hf_prune(h, 60000, &n, &hurt_error));
    return 0;
}

/* Opens an image of the moment, twice, and checks everything. `adopts`: later checks start from
   what is found. */
int power_check(const char *path, uint32_t moment, int adopts)
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

/* Cuts the recovery of this image, too, and recovers what that leaves. */
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
    int64_t day_us = power_day_skew_us;
    uint32_t last = cutlog_now(log);
    for (int i = 0; !rc && i < 4; i++) {
        cutlog_image(log, 1 + (uint32_t)hurt_below(last), CUT_SECTORS, 0, path2);
        power_day_skew_us = day_us;
        power_reboot((int64_t)hurt_below(10000000));
        rc = power_check(path2, moment, 0);
    }
    cutlog_free(log);
    return rc;
}

/* Random images of a random moment of the log; the last one's is left at `image`. 0: all good. */
int power_images(int n, const char *image, uint32_t *ret_moment)
{
    int64_t day_us = power_day_skew_us;
    uint32_t moment = *ret_moment = 1 + (uint32_t)hurt_below(cutlog_now(power.log));
    for (int i = 0; i < n; i++) {
        cutlog_image(power.log, moment, (enum cut_how)hurt_below(3), hurt_random(), image);
        power_day_skew_us = day_us; /* the images are of one moment */
        power_reboot((int64_t)hurt_below(40000000));
        if (i % 10 == 5 ? cut_recovery(image, moment) : power_check(image, moment, 0)) return 1;
    }
    return 0;
}
