/*
 * mixed.h - what is asked for at random, and the books that are kept of who holds what: see
 * mixed.c.
 */
#ifndef MIXED_H
#define MIXED_H

#include "holdfast.h"

#include <pthread.h>
#include <stdint.h>

enum { KEYS = 3, HANDLES = 3, THREADS = 6 };
/* A lease that is over only if the machine stands still, which is borne, and one that never is. */
extern int64_t short_ms;
enum { LONG_MS = 600000, DEFAULT_MS = 30000 };

struct store {
    hf *h;
    char owner[HF_OWNER_CAP], note[HF_NOTE_CAP];
    /* How often its calls returned that (atomic). */
    uint64_t granted, busy, timeouts, canceled, over;
};

extern struct store stores[HANDLES];
extern char keys[KEYS][HF_KEY_CAP];
/* How many there were; `lost`: holds, for the machine stood still (atomic). */
extern uint64_t grants, refusals, lost;

/* What a thread asks for. */
struct request {
    hf_options o;
    const hf_options *given; /* &o, or NULL: none, which is what `o` has, too */
    const char *way;
    char owner[HF_OWNER_CAP], note[HF_NOTE_CAP];
    uint8_t id[16];
};

struct player {
    pthread_t thread;
    uint64_t chances;
    int number;
    uint64_t turns;   /* (atomic) */
    const char *does; /* (atomic) */
    struct request request, second;
};

/* One grant, as its holder knows it. */
struct hold {
    struct player *by;
    const struct request *asked;
    hf_lock *lock, *twin; /* another lock of the same grant, or NULL */
    int key, store, twin_store;
    int runs;    /* it is an event's */
    int adopted; /* its twin is */
    int over;    /* its holder was told so */
    uint64_t token;
    int64_t lease_ms;  /* at most so much is left of its lease; INT64_MAX: it has none */
    int64_t cap_ms;    /* the same of max_hold_ms */
    int64_t since_ms;  /* before it was granted or renewed */
    int64_t sure_ms;   /* for so long it can't be lost; INT64_MAX: never */
    struct hold *next; /* in the book of its key */
};

/* Prints what was wrong, of whose hold and request (either may be NULL), and ends the program. */
_Noreturn void wrong(const struct player *p, const struct request *r, const char *key,
                     const char *format, ...) __attribute__((format(printf, 4, 5)));

void does(struct player *p, const char *what);

/* Chance. */
uint64_t next_chance(uint64_t *chances);
static inline int one_in(struct player *p, unsigned n) { return next_chance(&p->chances) % n == 0; }
static inline int pick(struct player *p, int n)
{
    return (int)(next_chance(&p->chances) % (unsigned)n);
}
static inline void count(uint64_t *n) { __atomic_add_fetch(n, 1, __ATOMIC_RELAXED); }

/* Fills in a request. */
void choose(struct player *p, struct request *r);
/* What was refused may be so, and says why. `canceled`: it may have been given up. */
void look_refused(struct player *p, const struct request *r, int store, int key, int rc,
                  const hf_error *err, int64_t asked_ms, int canceled);
/* It is counted, and written down as by book_in. */
void granted(struct hold *hold, int64_t asked_ms, uint64_t last);
/* Asks in some way for the key of the first of the holds, which has its key and store, and perhaps
   for others; how many were granted. */
int ask(struct player *p, struct request *r, struct hold *holds);

/* The greatest token of the key that anybody was told. */
uint64_t book_last(int key);
/* Fills it in for what was granted upon a request made at `asked_ms`, when `last` was the greatest
   token; judges it, and writes it down. */
void book_in(struct hold *hold, int64_t asked_ms, uint64_t last);
/* Before it is given back, or given up in another way. */
void book_out(struct hold *hold);
/* All tokens were different ones. */
void book_close(void);

/* A call for it answered `rc`: 1: it went well; 0: it is over, and may be. */
int goes_on(struct hold *hold, const char *what, int rc, const hf_error *err);
/* What it says of itself, and what the store shows of it, is what was granted. */
void look_left(struct hold *hold, const hf_lock *lock);
void look_shown(struct hold *hold, int store);
/* Extended by `ms`, or by what it was asked for. */
void extend(struct hold *hold, int64_t ms);

#endif
