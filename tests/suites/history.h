/*
 * history.h - what concurrent clients did to a store, operation by operation, and its two judges.
 *
 * Clients (history_client.c) are processes that write each call and each answer into memory which
 * outlives them, by CLOCK_BOOTTIME, which all share. history.c starts them and hurts them;
 * history_judge.c holds what they wrote against what was promised; so does, without knowing of it,
 * Porcupine (tests/suites/porcupine.go), which reads the same history as text (history_text.c).
 */
#ifndef HISTORY_H
#define HISTORY_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

enum {
    H_CLIENTS = 8,
    H_OPS = 12000,    /* of one client */
    H_SLOTS = 6,      /* keys at a time; the last one's are events */
    H_KEY_OPS = 1500, /* of one key, and how many may be under way: Porcupine takes 2,000 */
    H_EVENT_OPS = 40,
    H_GENERATIONS = 64 /* of a slot of locks */
};

/* the name, and the word for it in the text */
#define H_KINDS(X)         \
    X(TRY, "try")          \
    X(ACQUIRE, "acquire")  \
    X(RENEW, "renew")      \
    X(CONFIRM, "confirm")  \
    X(RELEASE, "release")  \
    X(BREAK, "break")      \
    X(BEGIN, "once_begin") \
    X(FINISH, "once_done") \
    X(WRITE, "fwrite")
enum h_kind {
#define H_KIND_ENUM(name, word) H_##name,
    H_KINDS(H_KIND_ENUM) H_KIND_COUNT
#undef H_KIND_ENUM
};

/* The answers: a call that hasn't returned, a code of holdfast.h as it is (0 to -13), an event that
   is done, a write that the fence refused. */
enum { H_OPEN = 1, H_DONE = 2, H_REFUSED = 3 };

/* One operation. Times in nanoseconds of CLOCK_BOOTTIME. */
struct h_op {
    int64_t t0, t1;      /* called, returned (0: not) */
    int64_t asked;       /* TRY, ACQUIRE, BEGIN: the first call with this request */
    int64_t queued;      /* ACQUIRE: was seen in the store's queue by then; 0: wasn't */
    int64_t first, last; /* a grant: it was believed from then to then at least; 0: never */
    uint64_t token;      /* the token of the grant that the operation is about, or that made the
                            marker (DONE) */
    uint64_t value;      /* WRITE: the how-manyth of its grant */
    uint64_t request[2];
    uint32_t life; /* the number of its client's process */
    uint16_t key;  /* the number of the key in this history */
    uint16_t limit;
    uint32_t lease_ms;
    uint8_t client, kind, mode;
    int8_t answer;
};

struct h_history {
    struct h_op *op; /* in no order */
    size_t n;
    int64_t claim_ns;    /* a handover that isn't claimed is passed on after this time */
    int64_t wait_cap_ns; /* a waiter may lose its place when it waits for longer; 0: it doesn't */
};

/* ---- the judge (history_judge.c) ---- */

enum h_check { H_TOKENS, H_OVERLAP, H_FIFO, H_BUSY, H_FENCE, H_MARKERS, H_CHECKS };

struct h_verdict {
    uint64_t checked[H_CHECKS]; /* how many things of each kind were looked at */
    uint64_t excused;           /* pairs out of order in which a claim timeout may have ended */
    uint64_t wrong[H_CHECKS];
    char why[H_CHECKS][400]; /* the first of each */
};
const char *h_check_name(enum h_check check);
void h_judge(const struct h_history *h, struct h_verdict *ret);
/* A client that was killed between writing down an answer and its time has left no time. The answer
   came before the client was known to be dead. */
void h_settle(struct h_op *op, size_t n, int64_t dead_ns);

/* ---- text (history_text.c) ---- */

/* Writes one JSON object a line. `prefix` stands before the number of each key. */
void h_write(FILE *to, const struct h_history *h, const char *prefix);
const char *h_answer_word(const struct h_op *op);

/* The second judge: a program that reads histories as text. */
struct h_porcupine {
    FILE *to, *from;
    pid_t pid;
    uint64_t histories, operations, illegal, unknown, busy, busy_open;
    char why[400];
};
/* Starts it: the program that `tools/porcupine` prints. Returns 0, or -1 and why. */
int h_porcupine_start(struct h_porcupine *p, const char *tool);
/* Has one more history judged. Returns 0 if it could be passed to the judge. */
int h_porcupine_judge(struct h_porcupine *p, const struct h_history *h, const char *prefix);
void h_porcupine_end(struct h_porcupine *p);

/* ---- the world of the clients (history_client.c) ---- */

/* What a client does, as chances of 1000; and its store. */
struct h_plan {
    char url[900];
    uint64_t seed;
    int clients;
    int slots;      /* keys at a time */
    int leases[3];  /* ms; 0: none */
    int hold_us;    /* at most, as a rule */
    int late;       /* of 1000 holds, how many last longer than the lease, without renewal */
    int break_;     /* of 1000 */
    int cancel;     /* of 1000 waits that are started, how many are cancelled */
    int starts;     /* of 1000 requests, how many are started by hf_acquire_start */
    int tries;      /* of 1000 */
    int reopen;     /* of 1000 */
    int queues;     /* waiters stand in the store's queue */
    int faults;     /* of 1000 requests to the store, how many are lost, before or after they took
                       effect */
    int look;       /* of 1000 started waits, how many look for their place in the queue */
    int64_t budget; /* operations in all */
};

struct h_client {
    uint32_t n, life;     /* operations begun; processes so far */
    int64_t late_ns;      /* when its present action has taken too long; 0: it does nothing */
    uint64_t injected;    /* lost replies and the like */
    uint64_t last_rounds; /* of the last rounds: how many keys it acquired once more */
    const char *doing;    /* a literal of this program, at the same address in all processes */
    char odd[600];        /* a thing that must not happen, if it did */
    struct h_op op[H_OPS];
};

struct h_world {
    struct h_plan plan;
    int stop;      /* 1: no more requests; each key once more, and the end */
    int64_t begun; /* operations */
    uint32_t generation[H_SLOTS], used[H_SLOTS];
    /* A resource for each key: the greatest token that has entered (<< 11), and its writes. */
    uint64_t fence[H_SLOTS][H_GENERATIONS];
    uint64_t holding[H_SLOTS]; /* a token, for clients that break */
    struct h_client client[H_CLIENTS];
};

/* Keys are numbered by slot and generation. */
static inline uint16_t h_key(int slot, uint32_t generation)
{
    return (uint16_t)(generation * H_SLOTS + (uint32_t)slot);
}
void h_key_name(uint16_t key, char ret[64], uint64_t seed);

int64_t h_now(void);

/* The life of a client; returns when the world has stopped. */
void h_client_run(struct h_world *world, int me);

#endif
