/*
 * date.h - the server's date, which gRPC's answers don't contain. It is asked for by requests of
 * its own, and extrapolated by the local clock in between.
 */
#ifndef HF_ETCD_DATE_H
#define HF_ETCD_DATE_H

#include "holdfast_driver.h"

#include <pthread.h>

struct hf__et_http;

struct hf__et_date {
    pthread_mutex_t asking, mu; /* asking: held by the thread that asks; mu: protects the rest */
    int known, close;           /* close: how often it was asked for to narrow the bounds */
    int64_t lo_us, hi_us;       /* how far the server's clock is ahead of the local one: at least
                                   lo_us, less than hi_us */
    int64_t asked_us, due_us;   /* local: when it was last asked for; when it is to be asked for
                                   again */
    int64_t told_us, set_us;    /* the last date that was returned; local: when the server's clock
                                   was found to be set */
    int64_t mute_until_us;      /* local: no server gave a date, so none is asked until then */
};

void hf__et_date_open(struct hf__et_date *date);
void hf__et_date_close(struct hf__et_date *date);

/* Makes sure that a date of the server is known. Returns 0, or an HF_ error: no date is known, and
   no server gives one. */
int hf__et_date_need(struct hf__et_http *http, const char *what, const char *key, hf_error *err);

/* Returns the date. Within a second the cluster's revision takes the place of the clock. The date
   goes back only if the server's clock was set, and is never ahead of the server's clock. */
int64_t hf__et_date_at(struct hf__et_date *date, int64_t revision);

/* Returns the clock for a reply that said clock_us, with a row of that rev (0: no row). The clock
   is never behind the date that the server would have sent with that reply. A row that was written
   lately proves that, because its rev is ahead of the dates that were used before. An old row, or a
   missing one, proves nothing: it may be restored from a snapshot, and another client may have used
   a later date. Then this asks the server for its date. */
int64_t hf__et_date_of_row(struct hf__et_http *http, uint64_t rev, int64_t clock_us);

/* Makes the next request ask for the date again, unless it was asked for just now. */
void hf__et_date_doubt(struct hf__et_date *date);

/* Notes the server's date, in whole seconds: `date_us` at some local time between sent_us and
   received_us. */
void hf__et_date_told(struct hf__et_date *date, int64_t sent_us, int64_t received_us,
                      int64_t date_us);

#endif
