/*
 * outage.h - what the tests of outages share: parties (processes that hold and want keys), what
 * they write down of it in memory that outlives them, and the control of their server.
 */
#ifndef OUTAGE_H
#define OUTAGE_H

#include "holdfast.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <cmocka.h>

enum {
    OUTAGE_PARTIES = 5,
    OUTAGE_KEYS = 2,
    OUTAGE_HOLDS = 50000,
    OUTAGE_WINDOWS = 32,
    OUTAGE_EVENTS = 60
};
enum { IO_MS = 1000 };

/*
 * One grant as its holder saw it, by CLOCK_BOOTTIME, which all processes share. The holder believed
 * at least from first_us to last_us: hf_left_ms said so before the first moment and after the last
 * one.
 */
struct hold {
    int key, party;
    uint64_t token;
    int64_t asked_us, first_us, last_us;
    int lost;
};

enum counted { GRANTS, REFUSALS, LOSSES, UNKNOWNS, AWAYS, DONES, COUNTED };

struct party {
    pid_t pid;
    int64_t late_us;        /* when its present call has taken too long; 0: none is under way */
    const char *doing;      /* a literal of this program, at the same address in all processes */
    int64_t holds_until_us; /* it means to hold until then; 0: it holds nothing */
    uint64_t count[COUNTED];
    int through;   /* every event is done, as far as it knows */
    char odd[700]; /* a thing that must not happen, if it did */
};

/* An event, and the run that was confirmed to have done it. */
struct event {
    uint64_t token;
    int64_t finished_us;
};

/* The time in which the store may have forgotten its grants. */
struct window {
    int64_t from_us, to_us;
    int all; /* it has */
};

struct world {
    int stop;
    uint32_t n_holds;
    struct party party[OUTAGE_PARTIES];
    struct hold hold[OUTAGE_HOLDS];
    struct event event[OUTAGE_EVENTS];
};
extern struct world *world;
extern const char *outage_url;
extern uint64_t outage_seed;
extern int64_t outage_lease_ms; /* the lease of all holds; see tests/servers/common.sh */

extern uint64_t outage_floor[OUTAGE_KEYS]; /* the greatest tokens of the scenes before */

int64_t outage_us(void);
void outage_nap_ms(int64_t ms);
void outage_next_scene(void); /* begins with an empty world, and random numbers of its own */
/* Returns a random number from 0 to n - 1, from the seed and what the process was seeded with. */
uint64_t outage_below(uint64_t n);
static inline int64_t outage_below_ms(int64_t n) { return (int64_t)outage_below((uint64_t)n); }
void outage_reseed(uint64_t with);
const char *outage_key(int key);
/* How far the wall clock of this process is off: see stepped.c. */
extern _Atomic int64_t *outage_step_s;
/* Makes stepped.c take effect, by executing this program anew. Returns 0, or an exit status. */
int outage_step_clocks(char **argv);

/* ---- parties (outage_party.c) ---- */

/* The body of a party: asks for keys, holds them, gives them back, until the world stops. */
_Noreturn void party_run(int me);
/* Plays a party whose wall clock is stepped before each acquisition. */
_Noreturn void party_stepped(int me);
/* Plays a party that services one event after the other, until each of them is done. */
_Noreturn void party_service(int me);

/* ---- a scene of its own (outage_stage.c) ---- */

void outage_holder_stopped(void **state);

/* ---- what came of it (outage_judge.c) ---- */

struct verdict {
    uint64_t count[COUNTED];
    uint64_t changes; /* how often a key changed hands: its next grant was another party's */
    uint64_t pairs;   /* pairs that believed at one time, of which the store had forgotten one */
    char why[900];    /* "": nothing is wrong */
};
void outage_judge(const struct window *windows, int n_windows, uint64_t floor[OUTAGE_KEYS],
                  struct verdict *ret);

#endif
