/*
 * step.h - the one lock algorithm: a pure function from a row and an event to a row and an answer.
 *
 * No I/O, no allocation, no clock: time comes in with the event. The same code runs in production,
 * in the enumeration of tests/core/step_enum.c and in the explorer of the `file:` driver.
 */
#ifndef HF_STEP_H
#define HF_STEP_H

#include "holdfast_driver.h"

/* hi_us when no clock is known. Far below overflow when leases are added. */
#define HF_CLOCK_UNKNOWN (INT64_MAX / 4)

/* The store's clock lies in [lo_us, hi_us] at the moment of the step. */
struct hf_time {
    int64_t lo_us, hi_us;
};

enum hf_event_kind {
    HF_EV_TRY,      /* grant the key to `party`, if no holder or waiter is in its way */
    HF_EV_ENQUEUE,  /* as TRY, but otherwise put `party` into the queue. If `party` was granted the
                       key while it waited, it claims the grant */
    HF_EV_WITHDRAW, /* give up the request `id`, which waits, or was granted the key by a handover
                       and hasn't claimed it, or (maybe_done) holds it */
    HF_EV_RENEW,    /* make the grant `token` last lease_ms from now (0: as long as its session, if
                       it has one; else as long as before) */
    HF_EV_RELEASE,  /* end the grant `token`; keep the key taken until `until_us`, if that is later
                     */
    HF_EV_PROMOTE,  /* end what is over, and grant the key to the next waiter */
    HF_EV_BREAK,    /* for an operator: end the grant `token` */
    HF_EV_FINISH,   /* turn the grant `token` into the marker of a done event */
    HF_EV_FORGET    /* for an operator: remove the marker of a done event, which may then run again
                     */
};

struct hf_event {
    enum hf_event_kind kind;
    struct hf_time now;
    const hf_party *party; /* TRY, ENQUEUE: the party to be granted the key or queued */
    uint8_t id[16];        /* WITHDRAW */
    uint64_t token;        /* RENEW, RELEASE, BREAK, FINISH */
    uint32_t lease_ms;     /* RENEW */
    /* RENEW of a lock that was made by hf_adopt: its holder may be another process, which relies on
       the end that the row has. So the renewal doesn't move the end to an earlier time. */
    int adopted;
    int64_t until_us; /* RELEASE: 0, or until when the key stays taken */
    /* The store has no clock for leases (hf_session_ops): no grant ends by time, and every party
       has a session that ends by itself. */
    int timeless;
    /* If timeless. ENQUEUE: the session to wait with (party->session is the one to hold with).
       RENEW: the session to hold with from now on; 0: the present one. RELEASE: the session that
       keeps the key taken for as long as it lives; 0: the key isn't kept taken. */
    uint64_t session;
    const char *result; /* FINISH */
    size_t result_len;  /* below HF_RESULT_CAP */
    int once;           /* TRY, ENQUEUE: if a done marker is in force, the answer is DONE */
    int mark;           /* with `once`: the write that grants also sets the marker, for keep_us */
    int64_t keep_us;    /* FINISH, mark: how long the marker is in force; INT64_MAX: for ever */
    /* An earlier write for this event or request may have landed, or may land yet. A withdrawal
       then changes rev in any case, so that no earlier replace can land after it. */
    int maybe_done;
    int as_seen; /* for hf__cas_loop: decide on the known row only; a conflict ends the loop */
    const uint64_t *dead; /* sessions known to be dead */
    size_t n_dead;
    uint32_t queue_cap, holders_cap;
};

enum hf_answer {
    HF_ANS_GRANTED, /* the request holds from now on: it was granted, or it claimed a handover */
    HF_ANS_ALREADY, /* the request held before, with the same token */
    HF_ANS_QUEUED,  /* the request stands in the queue, at `place` (0: first) */
    HF_ANS_BUSY,    /* TRY: other parties are in the way; the row doesn't name the request */
    HF_ANS_NO_ROOM, /* ENQUEUE: not granted, and the queue is full */
    HF_ANS_DONE,    /* the event is done; the request neither holds nor waits */
    HF_ANS_OK,      /* the request is done: renewed, released, broken, finished, withdrawn,
                       forgotten or promoted */
    HF_ANS_GONE     /* the row has no such grant, or no such marker, any more */
};

struct hf_outcome {
    enum hf_answer answer;
    int changed;    /* the row must be written for the answer to be true */
    uint32_t place; /* QUEUED: how many waiters stand before the request */
    uint64_t token; /* GRANTED, ALREADY */
};

/*
 * Changes `row` as the event demands. If `changed` is 0 the row is as it was. Otherwise it has a
 * new rev, and the answer becomes true when the store has replaced the row that was read by this
 * one. The caller provides room for one more party (hf_row_room). Every event is legal on every row
 * that hf_row_check accepts.
 */
struct hf_outcome hf__step(hf_row *row, const struct hf_event *event);

/* Returns 1 if the row may be deleted: free, no waiter, no marker in force, unchanged for
   idle_us. */
int hf__prunable(const hf_row *row, struct hf_time now, int64_t idle_us);

/* Returns 1 if the done marker is in force. */
int hf__marked(const hf_row *row, struct hf_time now);

/* Returns the index in row->party of the request, or of the holder with this token; -1: none. */
int64_t hf__find_id(const hf_row *row, const uint8_t id[16]);
int64_t hf__find_token(const hf_row *row, uint64_t token);
/* Returns the index in row->party of the grant `token`; -1: the row doesn't have the grant, or its
   holder has released it and the key only stays taken for a while (HF_PARTY_ENDING). */
int64_t hf__find_grant(const hf_row *row, uint64_t token);

/* Completes cur->party[0], the holder of a grant that the store's `acquire` has made: takes what
   the reply doesn't have from `party`, which asked. */
void hf__row_taken(hf_row *cur, const hf_party *party);
/* Copies the done marker. */
void hf__row_copy_mark(hf_row *to, const hf_row *from);

#endif
