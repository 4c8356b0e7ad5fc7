/*
 * faults.h - drivers around drivers, by which tests make a store fail, or see what it is asked.
 */
#ifndef HF_FAULTS_H
#define HF_FAULTS_H

#include "holdfast_driver.h"

/*
 * Puts a driver around an opened one. On success *drv, *st and *caps are replaced; closing the new
 * store closes and frees both. hf__wrap_trace writes a line per call to `where`: "stderr", or a
 * file to append to. hf__wrap_fault fails calls by `plan` (see wrap_fault.c). In a test program,
 * and in the command holdfast-faults, $HOLDFAST_FAULT and $HOLDFAST_TRACE do so for every store
 * that is opened.
 */
int hf__wrap_trace(const hf_driver **drv, hf_store **st, hf_caps *caps, const char *where,
                   hf_error *err);
int hf__wrap_fault(const hf_driver **drv, hf_store **st, hf_caps *caps, const char *plan,
                   hf_error *err);

/* How many calls this process has made and failed so far, over all handles. */
struct hf__fault_counts {
    uint64_t calls, injected;
};
void hf__fault_counts(struct hf__fault_counts *ret);

#endif
