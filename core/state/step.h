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
    HF_EV_TRY,      /* grant the key to `party`, unless another party excludes it */
    HF_EV_ENQUEUE,  /* as TRY, or else put it into the queue; a waiter that was granted the key
                       claims */
    HF_EV_WITHDRAW, /* give up the request `id`: waiting, handed over, or (maybe_done) granted */
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
    /* RENEW: the request comes from another client than the holder. The holder believes in the end
       that the row says, so the grant doesn't end sooner. */
    int adopted;
    int64_t until_us; /* RELEASE: 0, or until when the key stays taken */
    /* The store has no clock for leases (hf_session_ops): nothing ends by time, and every party has
       a session that ends by itself. `party` holds with its own session. */
    int timeless;
    /* If timeless. ENQUEUE: the session to wait with. RENEW: the session to hold with from now on;
       0: the present one. RELEASE: 0, or the session as long as which the key stays taken. */
    uint64_t session;
    const char *result; /* FINISH */
    size_t result_len;  /* below HF_RESULT_CAP */
    int once;           /* TRY, ENQUEUE: if a done marker is in force, the answer is DONE */
    int mark;           /* with `once`: the grant marks the event as done at once, for keep_us */
    int64_t keep_us;    /* FINISH, mark: how long the marker is in force; INT64_MAX: for ever */
    /* An earlier write for this event or request may have landed, or may land yet. A withdrawal
       then moves rev in any case, so that no replace can land later. */
    int maybe_done;
    int as_seen; /* for hf__cas_loop: decide on the known row only; a conflict ends the loop */
    const uint64_t *dead; /* sessions known to be dead */
    size_t n_dead;
    uint32_t queue_cap, holders_cap;
};

enum hf_answer {
    HF_ANS_GRANTED, /* GRANTED: the request holds from now on (granted, or it claimed a handover) */
    HF_ANS_ALREADY, /* the request holds already: its token is the same, nothing changed for it */
    HF_ANS_QUEUED,  /* the request stands in the queue, at `place` (0: first) */
    HF_ANS_BUSY,    /* not now */
    HF_ANS_NO_ROOM, /* not granted, and the queue (or the room for holders) is full */
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
 * Steps `row` in place. When `changed` is 0 the row is as it was; else its rev is a new one, and
 * nothing is true until it was replaced for the row that it came from. The caller provides room for
 * one more party (hf_row_room). Total: every event is legal on every row that hf_row_check accepts.
 */
struct hf_outcome hf__step(hf_row *row, const struct hf_event *event);

/* Returns 1 if the row may be deleted: free, no waiter, no marker in force, unchanged for
   idle_us. */
int hf__prunable(const hf_row *row, struct hf_time now, int64_t idle_us);

/* Returns 1 if the done marker is in force. */
int hf__marked(const hf_row *row, struct hf_time now);

/* Returns the index in row->party of the request, or of the grant with this token; or -1. */
int64_t hf__find_id(const hf_row *row, const uint8_t id[16]);
int64_t hf__find_token(const hf_row *row, uint64_t token);
/* Returns the index in row->party of the grant `token`; -1: the row doesn't have the grant, or its
   holder has released it and the key only stays taken for a while (HF_PARTY_ENDING). */
int64_t hf__find_grant(const hf_row *row, uint64_t token);

/* Completes cur->party[0], the holder of a grant that the store's `acquire` has made, from the
   party that asked: fills in what the reply doesn't bring. */
void hf__row_taken(hf_row *cur, const hf_party *party);
void hf__row_copy_mark(hf_row *to, const hf_row *from);

#endif
