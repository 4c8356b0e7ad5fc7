/*
 * sim.h - clients of modelled stores on a virtual clock. The lock is the shipped step; what a
 * client does between two steps follows core/store/cas_loop.c, and wait_advance.c and accept.c of
 * core/client.
 */
#ifndef SIM_H
#define SIM_H

#include "step.h"

enum { REGIONS = 5, NOBODY = -1, ALL_SEEN = 1 << 20 };

enum how { TOLD, BELL, POLL, PEER_FIXED, PEER_RANDOM };

struct plan {
    const char *name;
    enum how how;
    int64_t least_us, most_us; /* a peer's pause between two attempts */
};

struct setup {
    struct plan plan;
    long clients, keys, zipf, world, once, die_every;
    int64_t hold_us, think_us, lease_us, seconds, service_us;
    uint64_t seed;
};

enum state { IDLE, WANTS, HOLDS, GIVES, DEAD };
enum op { OP_NONE, OP_GET, OP_SWAP, OP_ACQUIRE, OP_HEAR, OP_PEER };

struct client {
    int64_t wanted_us, held_until_us, renew_at_us;
    uint64_t known_rev, free_rev, free_token, token, seen_rev;
    struct hf_outcome out; /* of the last request */
    struct hf_time now;    /* with which the write in flight was stepped */
    int64_t sent_us;       /* the last request */
    int64_t grant_ends_us; /* of the grant that it was shown last */
    int64_t end_us;        /* as the last reply showed it: when the holders end; INT64_MAX: not */
    uint32_t requests, gen, key;
    int32_t next_heard, prev_heard;
    uint8_t region, state, op, kind, flight, calm, conflict, queued, heard, listed, woken, refused,
        full, dies, unclaimed;
    uint8_t line;     /* somebody stands in line */
    uint8_t row_long; /* it was told of its grant, but not of the row */
};

struct place {
    hf_row row;
    int32_t heard;  /* the first of the clients that listen */
    int32_t holder; /* as the clients see it: NOBODY, or the client that has it */
    int32_t peer;   /* a peer's lock: the client that has it */
    int64_t peer_ends_us;
    int64_t given_us; /* the last holder let go (or died) then; -1: no sample */
    int64_t wanting;  /* clients that want it */
};

struct samples {
    int64_t *v;
    size_t n, cap;
};

struct sim {
    struct setup set;
    int64_t now_us, end_us;
    struct client *client;
    struct place *place;
    double *zipf;
    int64_t busy_us[REGIONS]; /* until when each store has work */
    uint64_t rng, ops, conflicts, holds, deaths, words, overlaps;
    struct samples waits, handovers, after_death;
};

enum event_kind { EV_ARRIVES, EV_REPLY, EV_LOOK, EV_WORD, EV_LET_GO, EV_RENEW, EV_WANT };

/* sim.c */
uint64_t sim_random(struct sim *s, uint64_t below);
void sim_at(struct sim *s, int64_t at_us, enum event_kind kind, uint32_t who, uint32_t gen);
void sim_sends(struct sim *s, uint32_t who, enum op op, enum hf_event_kind kind);
int64_t sim_one_way(struct sim *s, uint32_t who);
void sim_holds(struct sim *s, uint32_t who, int renews_soon);
void sim_let_go(struct sim *s, uint32_t who, int dies);
void sim_idle(struct sim *s, uint32_t who);
void sim_add(struct samples *to, int64_t v);

/* sim_holdfast.c: at the store; at the client */
void holdfast_serves(struct sim *s, uint32_t who);
void holdfast_hears(struct sim *s, uint32_t who); /* the reply */
void holdfast_wants(struct sim *s, uint32_t who);
void holdfast_looks(struct sim *s, uint32_t who);
void holdfast_word(struct sim *s, uint32_t who);
void holdfast_gives(struct sim *s, uint32_t who);
void holdfast_renews(struct sim *s, uint32_t who);

/* sim_peer.c */
void peer_serves(struct sim *s, uint32_t who);
void peer_hears(struct sim *s, uint32_t who);

#endif
