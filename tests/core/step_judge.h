/*
 * step_judge.h - is what a step made of a row right? Written from ARCHITECTURE.md's invariants and
 * the contract in step.h, not from step.c.
 */
#ifndef STEP_JUDGE_H
#define STEP_JUDGE_H

#include "step.h"

/* NULL, or the name of the invariant that is violated, a colon, and how. */
const char *judge_step(const hf_row *before, const struct hf_event *ev, const hf_row *after,
                       const struct hf_outcome *out);

/* Do these two admit each other? */
int judge_together(const hf_party *a, const hf_party *b);

#endif
