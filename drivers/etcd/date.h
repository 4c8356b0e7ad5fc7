/*
 * date.h - the server's date, which gRPC's answers don't contain. Separate HTTP requests ask for it
 * now and then; in between it is computed with the local clock.
 */
#ifndef HF_ETCD_DATE_H
#define HF_ETCD_DATE_H

#include "holdfast_driver.h"

#include <pthread.h>

struct hf__et_http;

struct hf__et_date {
    pthread_mutex_t asking, mu; /* asking: held by the thread that asks; mu: protects the rest */
    int known, close;           /* known: 1 once a date is known. close: how many requests in a row
                                   were made soon, to narrow the bounds */
    int64_t lo_us, hi_us;       /* how far the server's clock is ahead of the local one: at least
                                   lo_us, less than hi_us */
    int64_t asked_us, due_us;   /* local time: of the last date; when to ask for the next one */
    int64_t told_us, set_us;    /* the last value that hf__et_date_at returned; local time: when a
                                   date last disagreed with the bounds */
    int64_t mute_until_us;      /* local time: no server gave a date, so none is asked until then */
};

void hf__et_date_open(struct hf__et_date *date);
void hf__et_date_close(struct hf__et_date *date);

/* Makes sure that a date of the server is known. Returns 0, or an HF_ error: no date is known, and
   no server gives one. */
int hf__et_date_need(struct hf__et_http *http, hf_error *err);

/* Returns the date in microseconds. Its part below a second comes from the cluster's revision. It
   goes back only if the server's clock was set back. Its second is never ahead of the server's. */
int64_t hf__et_date_at(struct hf__et_date *date, int64_t revision);

/* Returns the store's clock for a reply whose date was computed as clock_us, and which has a row of
   that rev (0: no row). The clock is never behind the server's date at that moment, so that revs
   don't repeat. If the row was written lately, its rev already exceeds the dates that other clients
   have used. An old row, or none, proves nothing: the store may have been restored from a snapshot.
   Then this asks the server for its date. */
int64_t hf__et_date_of_row(struct hf__et_http *http, uint64_t rev, int64_t clock_us);

/* Makes the next request ask for the date again, unless the last date is less than 1 s old. */
void hf__et_date_doubt(struct hf__et_date *date);

/* Notes the server's date, in whole seconds: `date_us` at some local time between sent_us and
   received_us. */
void hf__et_date_told(struct hf__et_date *date, int64_t sent_us, int64_t received_us,
                      int64_t date_us);

#endif
