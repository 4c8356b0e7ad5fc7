/*
 * explore.h - a virtual world for the code of the `file:` store: processes that are coroutines on
 * one mapping, a scheduler whose every choice is on record, death at any access.
 *
 * The code under test is the real one, built with -DHF_SEAM: before each access to the mapping it
 * calls hf__seam(), and the world may go on with somebody else there, or let a process die. System
 * calls arrive at a table of the world's own. An execution is a function of the choices made in
 * it; the search (explore_search.c) makes them all, up to a number of preemptions and of deaths.
 *
 * A process has two coroutines, as a handle of the library has two threads: the one that acquires,
 * and the expiry monitor, which is told of deaths and looks on behalf of the one that waits.
 */
#ifndef HF_EXPLORE_H
#define HF_EXPLORE_H

#include "cas_loop.h"
#include "drivers.h"
#include "store.h"

#include <setjmp.h>

enum {
    V_PROCS = 3,
    V_COROS = 2 * V_PROCS, /* process p acquires in coroutine p and tends in p + V_PROCS */
    V_GRAVE = V_COROS,     /* not a coroutine: the kernel, which drops the locks of the dead */
    V_TIME = V_COROS + 1,  /* not a coroutine either: time, in which leases and claims run out */
    V_BEINGS = V_COROS + 2,
    V_SESSIONS = V_PROCS + 1, /* plus the heir, a process that looks at what is left at the end */
    V_KEYS = 3,
    V_SPACE = 2 << 20, /* the mapping */
    V_SLOT_CAP = 64
};

enum v_life {
    V_ALIVE,
    V_KILLED, /* runs no more, but the kernel has not dropped its locks yet */
    V_HALF,   /* one of its two descriptors is closed */
    V_BURIED  /* every other process can see that it is dead */
};

enum v_state { V_NEW, V_READY, V_ASLEEP, V_OVER };

struct v_coro {
    void *sp; /* where it goes on */
    enum v_state state;
    _Atomic uint32_t *word; /* asleep: on this */
    int64_t nap_us, until_us;
    int timed_out; /* the last sleep ended by time */
    uint64_t past; /* hash of all that it has read from the world */
};

struct v_proc {
    int number;
    enum v_life life;
    hf_store *st;
    struct hf_port port;
    hf_rowkey key[V_KEYS];
    uint64_t hint[V_KEYS];
    /* what a handle keeps for a wait (core/client/handle.h) */
    hf_party party;
    int at_store, queued, notice;
    const hf_rowkey *waits_for;
    uint8_t attempts; /* makes ids of requests */
    int told_deaths;  /* the expiry monitor has begun */
    /* what it believes */
    int inside; /* 1 + number of the key that it holds, 0: none */
    uint64_t token, rev;
    int plain;
    int64_t expires_us; /* 0: none */
    uint8_t mode;
    int broken; /* an operator ended its grant */
    int result; /* of the scene's own */
};

/* A scene: what the processes do, and what must be true at the end. */
struct v_scene {
    const char *name, *about;
    void (*prepare)(void); /* called once, before any process runs; NULL: nothing to prepare */
    void (*act)(struct v_proc *me);
    void (*verdict)(void); /* called after every execution, when all have ended; NULL: no check of
                              its own */
    unsigned mortal;       /* bit p: process p may die; 0: all may */
    unsigned flags;        /* enum v_flag */
    uint32_t note_len;     /* the length of each party's note, which makes bodies larger */
    uint64_t lines;        /* of the file; 0: plenty */
};

enum v_flag {
    V_NO_NOTICE = 1, /* no process is notified of deaths */
    V_FIRST_LOOK =
        2,          /* the expiry monitor starts with the first wait, as it does in a new handle */
    V_BREAKS = 4,   /* a process breaks grants, so a holder may learn of it late */
    V_UNOPENED = 8, /* the processes open their sessions themselves */
    V_CROWD = 16,   /* several may be inside at once: the modes decide */
    V_PRUNES = 32,  /* a process deletes rows: their contents are forgotten, their tokens aren't */
    V_TICKS = 64    /* once, at any moment, so much time passes that every lease runs out */
};

struct v_budget {
    int preemptions, deaths;
};

/* ---- what it stands on (explore_machine.c) ---- */

void v_switch(void **from, void *to);
_Noreturn void v_leave(void *to); /* never to come back */
void *v_fresh_stack(int i, void (*entry)(void));
void v_stacks_check(void);
extern void *v_root;               /* where executions are started from */
extern int v_heap_on;              /* malloc and free are the world's */
unsigned char *v_memory_new(void); /* a mapping of V_SPACE bytes, zeroed */
void v_memory_remember(void);      /* to be restored: mapping and heap */
void v_memory_restore(void);
void v_memory_write(const volatile void *at, size_t n); /* n bytes are about to be written */
uint64_t v_memory_hash(void); /* returns a hash of how the mapping differs from the remembered
                                 image */

static inline uint64_t v_mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * UINT64_C(0x9e3779b97f4a7c15);
    return h ^ h >> 29;
}

/* ---- the world (explore_world.c) ---- */

extern struct v_proc v_proc[V_PROCS];
extern const struct v_scene *v_scene;
extern uint64_t v_steps;
extern int64_t v_clock_us;           /* local time */
int64_t v_now(void);                 /* the store's */
extern uint64_t v_top_token[V_KEYS]; /* the greatest that was granted */
extern struct v_proc v_heir;         /* looks at what is left at the end; never scheduled */

/* Makes the store of a scene and remembers it. 0, or the error is printed. */
int v_world_open(const struct v_scene *scene);
/* Plays one execution from the beginning. */
enum v_end { V_WHOLE, V_KNOWN, V_CUT, V_WRONG };
enum v_end v_execute(struct v_budget budget);
const char *v_wrong(void); /* what was wrong */

/* For scenes: the execution ends here, and is a violation. */
_Noreturn void v_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The last sleep of this process's own coroutine ended by time. */
int v_timed_out(const struct v_proc *p);
/* Adds to the process's `past` what a scene has learnt outside the mapping. */
void v_learn(uint64_t what);
/* Sleeps until a process has died and all can see that, or all others are done. */
void v_await_death(struct v_proc *me);
int v_anybody_dead(void);
unsigned char *v_base(void);

void v_sleep(_Atomic uint32_t *word, uint32_t seen, int64_t us);
void v_wake(_Atomic uint32_t *word, int n);

/* ---- the system (explore_kernel.c) ---- */

extern int v_slot_of[V_SLOT_CAP]; /* the process that has a session's slot: 1 + its number */
void v_name_keys(void);
void v_attach(struct v_proc *p, int number);
/* Opens the session of a process. */
void v_open(struct v_proc *p);

/* ---- what a handle does (explore_acts.c) ---- */

enum { V_TAKE = 1, V_ONCE = 2, V_DEADLINE = 4, V_TRY = 8 };
void v_party(struct v_proc *me, uint8_t mode, uint32_t limit, uint32_t lease_ms);
/* 1: holds; 0: gave up; 2: the event is done. */
int v_acquire(struct v_proc *me, int key, unsigned how);
void v_release(struct v_proc *me, int key);
enum hf_answer v_event(struct v_proc *me, int key, struct hf_event *ev, hf_row *row);
void v_notice(struct v_proc *me); /* what the expiry monitor does after a notice of a death */
void v_last_will(void);           /* at rest: the dead are dead, the store is whole */
extern const struct v_scene v_scenes[];
extern const size_t v_n_scenes;

/* ---- the search (explore_search.c) ---- */

/* Returns one of n choices. Asks for the state's hash only if the choice is a new one. *ret_known:
   all that could follow from this state has been explored, or will be. */
int v_choose(int n, uint64_t (*state)(void), int *ret_known);
/* Was this state met before, in another execution? */
int v_seen_before(uint64_t (*hash)(void));
/* A new search: `first` of the first choice's ways only (-1: all); without pruning nothing is
   remembered. `difficulty` says how much there will be to remember: preemptions and deaths. */
void v_search_begin(int first, int pruned, int difficulty);
int v_search_next(void); /* 0: that was the last */
/* The first one notes the outcome of an execution. The second one returns how many outcomes were
   noted since the search began, and their sum. */
void v_search_note(uint64_t outcome);
uint64_t v_search_ends(uint64_t *ret_sum);
void v_search_print(char *to, size_t cap);
int v_search_replay(const char *from);

/* ---- the trace ---- */

extern int v_tracing;
void v_trace(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
