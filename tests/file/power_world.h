/*
 * power_world.h - a store in use, a disk that records what it could hold, and the power cut; see
 * power.c.
 */
#ifndef POWER_WORLD_H
#define POWER_WORLD_H

#include "cutlog.h"
#include "hurt.h"

enum { KEYS = 8, EVENTS = 10, NAMES = KEYS + EVENTS, HANDLES = 3, HELD = 6, PROMISES = 4096 };

enum power_kind { TOKEN, BEGUN, DONE, RESULT };

struct power_promise {
    uint32_t moment;
    enum power_kind kind;
    int which;
    uint64_t token;
};

extern struct power {
    char names[NAMES][HF_KEY_CAP];
    /* before this boot */
    uint64_t tokens[NAMES];
    int done[NAMES], has_result[NAMES];
    /* in it */
    struct power_promise promises[PROMISES];
    int n;
    struct cutlog *log;
    hf *handles[HANDLES];
    hf_lock *held[HELD];
    uint64_t ops;
} power;

/* ---- clocks ---- */

extern int64_t power_day_skew_us; /* how far the time of day differs from the real one */
void power_time_passes(int64_t us);
void power_reboot(int64_t off_us); /* the machine is on again after `off_us` */

/* ---- work ---- */

hf_options power_one_try(void);
hf *power_any_handle(void);
/* NULL: it's busy. */
hf_lock *power_take(int which, enum hf_mode mode);
void power_run_event(int which, unsigned flags, int finishes);
void power_work(const char *url, int ops);
void power_fresh(const char *path); /* a store in which nothing has happened yet */
void power_begin(const char *path); /* opens the handles and begins the log */
void power_end(void);

/* ---- after the cut ---- */

extern char power_wrong[900]; /* why an image is wrong */
/* Opens an image of the moment, twice, and checks everything. `adopts`: later checks start from
   what is found. Returns 0 if all is right. */
int power_check(const char *path, uint32_t moment, int adopts);
/* Random images of a random moment of the log; the last one's is left at `image`. 0: all good. */
int power_images(int n, const char *image, uint32_t *ret_moment);

#endif
