/*
 * race.h - the conformance suite: racers, which are threads or processes that use one store at the
 * same time, and the arena, which is the memory that they share.
 */
#ifndef HF_RACE_H
#define HF_RACE_H

#include "conform.h"

#include <stdatomic.h>
#include <sys/types.h>

enum {
    HF_RACERS = 8,
    HF_RACE_PATIENCE_MS = 20000 /* how long to wait for a step of the race */
};

/* Memory that the racers share. */
struct hf__arena {
    _Atomic uint32_t step[10]; /* how many racers have arrived at each step */
    _Atomic uint32_t wins, conflicts, first_wins, inside; /* replaces done, refused, done in the
                                                             first round; racers that hold */
    _Atomic uint64_t acked, session;  /* the last write that was confirmed; a racer's session */
    uint64_t total;                   /* the number that the row has in the end */
    uint64_t counter;                 /* how many grants there were; only the holder adds to it */
    _Atomic uint32_t reasons, failed; /* how many racers failed; 1: `why` is written */
    char why[300];                    /* the reason of the first that failed */
};

struct hf__racer {
    struct hf__suite *cfm;
    struct hf__con con;
    struct hf__arena *arena;
    uint32_t n, me; /* how many racers there are; the number of this one, from 0 */
};

typedef int hf__race_fn(struct hf__racer *r); /* nonzero: it failed, and arena->why says why */

/* Makes the race fail with this reason, unless it has failed. Returns 1. */
int hf__race_fail(struct hf__racer *r, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Sleeps for 0.1 ms. */
void hf__race_nap(void);
/* Counts one racer more at the step. */
void hf__race_arrive(struct hf__arena *a, int step);
/* Waits until n racers have arrived at the step. Returns 0 when they have; 1: too late, or the race
   has failed. */
int hf__race_await(struct hf__arena *a, int step, uint32_t n);
/* Arrives at the step, and waits for all racers. Returns 0, or 1: the race has failed. */
int hf__race_meet(struct hf__racer *r, int step);

/* Reads the row by the racer's handle. Returns 0, or 1: the race has failed. */
int hf__race_get(struct hf__racer *r, const hf_rowkey *key, hf_row *row);
/* Replaces the row. Returns 0, HF_CONFLICT, or a negative code: the race has failed. */
int hf__race_replace(struct hf__racer *r, const hf_rowkey *key, uint64_t seen, const hf_row *row,
                     hf_row *cur);
/* Stores the row that the racers write. Returns 0, or 1: the race has failed. */
int hf__race_create(struct hf__racer *r, const hf_rowkey *key);

/* hf__race_start starts racer `me` in a process that is killed when this one ends. hf__race_end
   waits for such a process, and returns its exit status. */
pid_t hf__race_start(struct hf__suite *cfm, struct hf__arena *a, uint32_t n, uint32_t me,
                     hf__race_fn *run);
int hf__race_end(pid_t pid);
/* Runs n racers in processes or threads, each with a handle of its own; `share`: all use the
   suite's handle, if its calls may be made side by side. Returns NULL, or the reason of a failure.
 */
const char *hf__race_processes(struct hf__suite *cfm, struct hf__arena *a, uint32_t n,
                               hf__race_fn *run);
const char *hf__race_threads(struct hf__suite *cfm, struct hf__arena *a, uint32_t n, int share,
                             hf__race_fn *run);

typedef const char *hf__play_fn(struct hf__suite *cfm, struct hf__arena *a);

/* contend.c: checks that no update is lost, and that `acquire` excludes. */
hf__play_fn hf__race_replaces_of_processes, hf__race_replaces_of_threads;
hf__play_fn hf__race_takes_of_processes, hf__race_takes_of_threads;
/* death.c: checks that a killed process leaves a whole row, and that its death is noticed. */
hf__play_fn hf__race_killed, hf__race_death_is_noticed;
/* Makes an arena, calls `play` with it, and frees it. Returns what `play` returns. */
const char *hf__with_arena(struct hf__suite *cfm, hf__play_fn *play);

#endif
