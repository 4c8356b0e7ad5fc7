/*
 * power.c - a power cut at any moment, with any mixture of old and new sectors on the disk.
 *
 * A store is used by several handles while a log records what a disk could hold. Then images of it
 * are opened as after a reboot: another boot id, CLOCK_BOOTTIME near zero, the time of day a little
 * later. Whatever was synced is there: every event whose finish had returned is done, with its
 * result; none is that nobody finished. Every token is greater than all that were handed out, and
 * all keys can be taken, listed, pruned. Recovery is itself cut, and begun again.
 *
 * IMAGES=N tries N random images instead of the usual number; SEED=N makes others.
 */
#include "power_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void random_cuts(void **state)
{
    (void)state;
    const char *store = hurt_path("store"), *image = hurt_path("image");
    long images = 0, wanted = hurt_count("IMAGES", 8000);
    for (long boot = 0; images < wanted; boot++) {
        uint32_t moment = 0;
        if (boot % 8 == 0) power_fresh(store);
        power_begin(store);
        power_work(hurt_url(store), 30);
        power_end();
        int64_t day_us = power_day_skew_us;
        for (int cut = 0; cut < 10; cut++, images += 20) {
            power_day_skew_us = day_us;
            if (power_images(20, image, &moment))
                fail_msg("boot %ld, cut %d at %u: %s", boot, cut, moment, power_wrong);
        }
        /* One of the images is taken for what happened, and the next boot goes on from it. */
        if (power_check(image, moment, 1)) fail_msg("boot %ld: %s", boot, power_wrong);
        cutlog_free(power.log);
        assert_int_equal(rename(image, store), 0);
    }
    print_message("# %ld images, %llu operations\n", images, (unsigned long long)power.ops);
}

/* ---- all subsets ---- */

static void take_and_release(int which)
{
    OK(hf_release(power_take(which, HF_EXCLUSIVE), &hurt_error));
}

static void first_finish(void) { power_run_event(KEYS, 0, 1); }
static void second_finish(void) { power_run_event(KEYS + 1, 0, 1); }
static void at_most_once(void) { power_run_event(KEYS + 2, HF_AT_MOST_ONCE, 1); }
static void given_up(void) { power_run_event(KEYS + 3, HF_AT_MOST_ONCE, 0); }
static void new_key(void) { take_and_release(0); }
static void used_key(void) { take_and_release(1); }
static void used_event(void) { take_and_release(KEYS + 4); }

static void many_holders(void) /* bodies are replaced by larger ones */
{
    for (int i = 0; i < HELD; i++) power.held[i] = power_take(3, HF_SHARED);
    for (int i = 0; i < HELD; i++) {
        OK(hf_release(power.held[i], &hurt_error));
        power.held[i] = NULL;
    }
}

static void marker_goes(void) /* the marker is removed, and its cell becomes another key's */
{
    hf_options o = power_one_try();
    hf_once once;
    uint64_t n = 0;
    OK(hf_once_begin(power_any_handle(), "passing", 1000, &o, &once, &hurt_error));
    OK(hf_once_finish(once.lock, "gone soon", 1000, &hurt_error));
    power_time_passes(120000000);
    OK(hf_prune(power_any_handle(), 60000, &n, &hurt_error));
    assert_true(n >= 1);
    take_and_release(4);
    power_run_event(KEYS + 5, 0, 1);
}

static void before_subsets(void)
{
    take_and_release(1);
    power_run_event(KEYS + 1, 0, 0);
    power_run_event(KEYS + 4, 0, 1);
}

/* Tries images of a moment: every subset of the sectors that differ from what was synced, or a
   sample. */
static long subsets_at(uint32_t moment, uint64_t most, const char *image)
{
    int64_t day_us = power_day_skew_us;
    uint32_t units = cutlog_units(power.log, moment);
    uint64_t all = units < 63 ? UINT64_C(1) << units : UINT64_MAX, n = all < most ? all : most;
    for (uint64_t i = 0; i < n; i++) {
        cutlog_image(power.log, moment, CUT_SUBSET, n == all ? i : hurt_random(), image);
        power_day_skew_us = day_us;
        power_reboot((int64_t)hurt_below(40000000));
        if (power_check(image, moment, 0))
            fail_msg("at %u, subset %#llx of %u sectors: %s", moment, (unsigned long long)i, units,
                     power_wrong);
    }
    power_day_skew_us = day_us;
    return (long)n;
}

/* All subsets right before something is synced and at the end; a sample at every change between. */
static long subsets_of(void (*operation)(void), const char *store, const char *image)
{
    long images = 0;
    power_fresh(store);
    power_begin(store);
    before_subsets();
    cutlog_end(power.log);
    cutlog_free(power.log);
    power.log = cutlog_begin(store); /* all of that is on the disk */
    for (int i = 0; i < power.n; i++) power.promises[i].moment = 0;
    operation();
    power_end();
    uint32_t last = cutlog_now(power.log);
    for (uint32_t moment = 1; moment <= last; moment++) {
        if (moment == last || cutlog_news(power.log, moment + 1) == 2)
            images += subsets_at(moment, 4096, image);
        else if (cutlog_news(power.log, moment))
            images += subsets_at(moment, 8, image);
    }
    cutlog_free(power.log);
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

/* An event that was found undone after a cut, and is used by others, whose bodies need more room.
 */
static void undone_by(int which, const char *store, const char *image)
{
    uint32_t moment;
    power_begin(store);
    for (int i = 0; i < HELD; i++) power.held[i] = power_take(which, HF_SHARED);
    for (int i = 0; i < HELD; i++) {
        OK(hf_release(power.held[i], &hurt_error));
        power.held[i] = NULL;
    }
    power_end();
    for (int i = 0; i < 5; i++)
        if (power_images(4, image, &moment)) fail_msg("at %u: %s", moment, power_wrong);
    cutlog_free(power.log);
}

/* From then on the key's cell has a place for a marker. */
static void done_for_a_second(int which)
{
    hf_options o = power_one_try();
    hf_once once;
    OK(hf_once_begin(power_any_handle(), power.names[which], 1000, &o, &once, &hurt_error));
    OK(hf_once_finish(once.lock, "gone soon", 1000, &hurt_error));
    power_time_passes(120000000);
}

/* Marks an event up to its last sync, which no client has seen return. Returns the moment
   before. */
static uint32_t nearly_done(const char *store)
{
    power_fresh(store);
    power_begin(store);
    done_for_a_second(KEYS);
    cutlog_end(power.log);
    cutlog_free(power.log);
    power.log = cutlog_begin(store);
    first_finish();
    power_end();
    uint32_t moment = cutlog_now(power.log);
    /* Finds the last part of it that wasn't on disk. */
    while (cutlog_news(power.log, moment + 1) != 2 || !cutlog_units(power.log, moment)) moment--;
    return moment;
}

/* A mark that didn't count after one cut doesn't after the next. */
static void undone_stays_undone(void **state)
{
    (void)state;
    const char *store = hurt_path("store"), *image = hurt_path("image");
    uint64_t subsets = 1;
    int undone = 0;
    for (uint64_t i = 0; i < subsets; i++) {
        uint32_t moment = nearly_done(store);
        subsets = UINT64_C(1) << cutlog_units(power.log, moment);
        cutlog_image(power.log, moment, CUT_SUBSET, i, image);
        power_reboot((int64_t)hurt_below(40000000));
        if (power_check(image, moment, 1)) fail_msg("at %u: %s", moment, power_wrong);
        cutlog_free(power.log);
        if (power.done[KEYS]) continue;
        assert_int_equal(rename(image, store), 0);
        undone++;
        undone_by(KEYS, store, image);
    }
    assert_true(undone && (uint64_t)undone < subsets);
}

/* The file grows meanwhile. */
static void cuts_while_growing(void **state)
{
    (void)state;
    const char *store = hurt_path("store"), *image = hurt_path("image");
    hf_options o = power_one_try();
    hf_lock *lock;
    uint32_t moment;
    char key[32];
    power_fresh(store);
    power_begin(store);
    cutlog_pace(power.log, 150);
    for (int i = 0; i < 1200; i++) {
        snprintf(key, sizeof key, "many/%d", i);
        OK(hf_acquire(power_any_handle(), key, &o, &lock, &hurt_error));
        OK(hf_release(lock, &hurt_error));
        if (i % 150 == 149) power_run_event(KEYS + i / 150, 0, 1);
    }
    power_end();
    for (int i = 0; i < 60; i++)
        if (power_images(5, image, &moment)) fail_msg("cut %d at %u: %s", i, moment, power_wrong);
    cutlog_free(power.log);
}

/* The store appears whole, and stays: its content is synced before it has its name, its name before
   it is used. */
static void creation_is_synced(void **state)
{
    (void)state;
    const char *store = hurt_path("created");
    cutlog_calls();
    power_fresh(store);
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
        power_fresh(store);
        power_begin(store);
        cutlog_lie(power.log);
        power_work(hurt_url(store), 30);
        power_end();
        for (int cut = 0; cut < 10 && !noticed; cut++)
            noticed = power_images(5, image, &moment) && strstr(power_wrong, "is undone");
        cutlog_free(power.log);
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
        cmocka_unit_test(creation_is_synced), cmocka_unit_test(every_subset),
        cmocka_unit_test(random_cuts),        cmocka_unit_test(undone_stays_undone),
        cmocka_unit_test(cuts_while_growing), cmocka_unit_test(a_lying_disk_is_noticed),
    };
    return HURT_MAIN(argc, argv, tests, print_seed, NULL);
}
