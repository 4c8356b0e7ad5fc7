/*
 * date.h - the server's date where its answers don't tell it: asked for by requests of its own, and
 * carried on by the local clock in between.
 */
#ifndef HF_ETCD_DATE_H
#define HF_ETCD_DATE_H

#include "holdfast_driver.h"

#include <pthread.h>

struct hf__et_http;

struct hf__et_date {
    pthread_mutex_t asking, mu; /* one asks at a time; mu: for what follows */
    int known, close;           /* close: how often it was asked for to know it closer */
    int64_t lo_us, hi_us;       /* how far it is ahead of the local clock, at least and less than */
    int64_t asked_us, due_us;   /* by the local clock: when it was asked for, and is to be again */
    int64_t told_us, set_us;    /* the last that was told; local: when it was found to be set */
    int64_t mute_until_us;      /* it was asked for in vain */
};

void hf__et_date_open(struct hf__et_date *date);
void hf__et_date_close(struct hf__et_date *date);

/* Makes sure that a date of the server is known. 0, or an HF_ error: none is, and no server tells
   it. */
int hf__et_date_need(struct hf__et_http *http, const char *what, const char *key, hf_error *err);

/* Returns the date; within a second of it the cluster's revision counts on. It goes back only if
   the server's clock was set, and is never ahead of the server's clock. */
int64_t hf__et_date_at(struct hf__et_date *date, int64_t revision);

/* Returns the clock for a reply that said clock_us, with a row of that rev (0: no row). A row that
   was written lately is ahead of the dates that were used before. Another one may be lost, or
   restored from a snapshot; others may have used a date that is closer than ours. So this one isn't
   behind what the server would have told with that reply: where that isn't certain it asks. */
int64_t hf__et_date_of_row(struct hf__et_http *http, uint64_t rev, int64_t clock_us);

/* Makes the next request ask for the date again, unless it was asked for just now. */
void hf__et_date_doubt(struct hf__et_date *date);

/* Notes the server's date, in whole seconds: `date_us` at some local time between sent_us and
   received_us. */
void hf__et_date_told(struct hf__et_date *date, int64_t sent_us, int64_t received_us,
                      int64_t date_us);

#endif
