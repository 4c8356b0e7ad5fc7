/*
 * step_model.h - requests in small, and one step of a row, judged: what the exhaustive and the
 * random run of step_enum have in common.
 */
#ifndef STEP_MODEL_H
#define STEP_MODEL_H

#include "step_judge.h"

#define MODEL_NOW_US  INT64_C(1000000000)
#define MODEL_FAR_US  UINT64_C(5000000000) /* how far a rev may be ahead of the clock */
#define MODEL_TICK_US 1000
#define MODEL_PARTIES 16

struct model_request {
    enum hf_mode mode;
    uint32_t limit, lease, claim; /* in ticks; lease 0: as long as its session */
    int session;                  /* 1: it has a session; 2: another process may ask for it, too */
    int detached;
    char owner;
};

/* The rows of the step under way. */
extern hf_row model_was, model_is;
extern const char *model_name;     /* of the run */
extern const char *model_why;      /* the first violation; NULL: none */
extern uint64_t model_steps;       /* so far */
extern uint64_t model_acquired[2]; /* granted by hf_row_acquire, and appended, so far */

void model_start(const char *name);
/* Returns the session of the i-th request; `other`: of the other process that asks it. */
uint64_t model_session(int i, int other);
/* The party of the i-th request, as it asks. */
void model_party(hf_party *p, const struct model_request *r, int i, int other);
int model_index(const hf_party *p);
/* Turns a holder into one whose key stays taken for a while after its release. */
void model_ending(hf_party *p);
/* Notes and shows the violation, if it is the first; 1. */
int model_fail(const char *why, const struct hf_event *ev, const struct hf_outcome *out);
/* Steps model_was to model_is. 0, or 1: something is violated. */
int model_step(const struct hf_event *ev, struct hf_outcome *ret);

/* step_wander.c: makes `steps` random steps from the seed. Returns 0, or 1 after a violation. */
int wander(uint64_t seed, uint64_t steps);

#endif
