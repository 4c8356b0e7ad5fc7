/*
 * race.h - what the racers of the conformance suite have in common: the arena, and how they
 * are started. See race.c.
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
    _Atomic uint32_t step[10]; /* how many have come here */
    _Atomic uint32_t wins, conflicts, first_wins, inside;
    _Atomic uint64_t acked, session;
    uint64_t total;   /* the number that the row should have in the end */
    uint64_t counter; /* how many grants there were; only the present holder adds to
                         it */
    _Atomic uint32_t reasons,
        failed;    /* how many reasons were given; whether the first one is written */
    char why[300]; /* of the first that failed */
};

struct hf__racer {
    struct hf__suite *cfm;
    struct hf__con con;
    struct hf__arena *arena;
    uint32_t n, me; /* of n */
};

typedef int hf__race_fn(struct hf__racer *r); /* nonzero: it failed, and arena->why says why */

int hf__race_fail(struct hf__racer *r, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void hf__race_nap(void);
void hf__race_arrive(struct hf__arena *a, int step);
/* Waits until n racers have arrived at the step. Returns 0 when they have. */
int hf__race_await(struct hf__arena *a, int step, uint32_t n);
/* Waits until all racers have arrived; otherwise reports the failure. */
int hf__race_meet(struct hf__racer *r, int step);

/* Reads the row from the racer's store. A failure is reported. */
int hf__race_get(struct hf__racer *r, const hf_rowkey *key, hf_row *row);
/* Replaces the row. Returns 0, HF_CONFLICT, or a negative code, which was reported. */
int hf__race_replace(struct hf__racer *r, const hf_rowkey *key, uint64_t seen, const hf_row *row,
                     hf_row *cur);
/* Makes the row that the racers write. */
int hf__race_create(struct hf__racer *r, const hf_rowkey *key);

/* The first one starts a racer in a process that ends with this one; the second one waits for its
   exit status. */
pid_t hf__race_start(struct hf__suite *cfm, struct hf__arena *a, uint32_t n, uint32_t me,
                     hf__race_fn *run);
int hf__race_end(pid_t pid);
/* Runs the racers, each with its own handle; `share`: one handle for all if the store allows that.
   Returns NULL, or why it failed. */
const char *hf__race_processes(struct hf__suite *cfm, struct hf__arena *a, uint32_t n,
                               hf__race_fn *run);
const char *hf__race_threads(struct hf__suite *cfm, struct hf__arena *a, uint32_t n, int share,
                             hf__race_fn *run);

typedef const char *hf__play_fn(struct hf__suite *cfm, struct hf__arena *a);

/* contend.c: no update is lost; acquire excludes. */
hf__play_fn hf__race_replaces_of_processes, hf__race_replaces_of_threads;
hf__play_fn hf__race_takes_of_processes, hf__race_takes_of_threads;
/* death.c: a killed process leaves a whole row; its death is noticed. */
hf__play_fn hf__race_killed, hf__race_death_is_noticed;
const char *hf__with_arena(struct hf__suite *cfm, hf__play_fn *play);

#endif
