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
 * One grant as its holder saw it, by CLOCK_BOOTTIME, which all share. It believed from first_us to
 * last_us at least: there hf_left_ms said so, before the one and after the other.
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
    int64_t late_us;        /* when what it does now has taken too long; 0: nothing */
    const char *doing;      /* a literal: the same address in all of them */
    int64_t holds_until_us; /* that it means to hold on until then; 0: holds nothing */
    uint64_t count[COUNTED];
    int through;   /* every event is done, as far as it has been told */
    char odd[700]; /* what must not have happened */
};

/* An event, and the run of it that was confirmed as the one that did it. */
struct event {
    uint64_t token;
    int64_t finished_us;
};

/* Between these the store may have forgotten what it had granted. */
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
extern int64_t outage_lease_ms; /* of all holds; see tests/servers/common.sh */

extern uint64_t outage_floor[OUTAGE_KEYS]; /* the greatest tokens of the scenes before */

int64_t outage_us(void);
void outage_nap_ms(int64_t ms);
void outage_next_scene(void); /* an empty world, and its own chances */
/* 0 to n - 1, from the seed and whatever the process was seeded with. */
uint64_t outage_below(uint64_t n);
static inline int64_t outage_below_ms(int64_t n) { return (int64_t)outage_below((uint64_t)n); }
void outage_reseed(uint64_t with);
const char *outage_key(int key);
/* By how much the wall clock of this process is wrong: see stepped.c. */
extern _Atomic int64_t *outage_step_s;
/* Sees to it, by beginning anew. 0, or an exit status. */
int outage_step_clocks(char **argv);

/* ---- parties (outage_party.c) ---- */

/* The body of a party: asks for keys, holds them, gives them back, until the world stops. */
_Noreturn void party_run(int me);
/* It, with a wall clock that is stepped before each acquisition. */
_Noreturn void party_stepped(int me);
/* Another: services one event after the other, unless that is done, until each of them is. */
_Noreturn void party_service(int me);

/* ---- a scene of its own (outage_stage.c) ---- */

void outage_holder_stopped(void **state);

/* ---- what came of it (outage_judge.c) ---- */

struct verdict {
    uint64_t count[COUNTED];
    uint64_t changes; /* of hands: the next grant of a key was another party's */
    uint64_t pairs;   /* of two that believed at one time, of which the store had forgotten one */
    char why[900];    /* "": nothing is wrong */
};
void outage_judge(const struct window *windows, int n_windows, uint64_t floor[OUTAGE_KEYS],
                  struct verdict *ret);

#endif
