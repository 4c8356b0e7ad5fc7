/*
 * explore_world.c - see explore.h. Contents: what is known of a state; the beings that can go on;
 * the seam; one execution.
 *
 * A coroutine's state is a function of what it has read, so a running hash of that (its `past`)
 * stands for its stack and registers. Together with a hash of the mapping, kept up to date at every
 * write, that tells in a few nanoseconds whether a state has been met before.
 */
#include "explore.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { STEPS_CAP = 20000, IDLE_CAP = 300 };
static const int64_t NAP_US = 10000, DEADLINE_US = 1000000; /* shorter sleeps are one, the other */
static const int64_t TICK_US = 2000000; /* longer than any lease or claim in a scene with ticks */
static const int64_t START_US = INT64_C(1700000000000000);

enum mode { ASLEEP, SCHEDULED, AT_REST };

static struct {
    enum mode mode;
    int me; /* the coroutine that runs */
    jmp_buf at_rest;
    enum v_end end;
    struct v_budget left;
    uint32_t steps, idle, switches, ticks;
    int fresh_me, fresh_others; /* see turn_point */
    char wrong[400];
} w;

static struct v_coro coro[V_COROS];
static _Atomic uint32_t never; /* a being that waits for a death sleeps here */
static unsigned char *base;

/* What a scene begins with. */
static struct v_proc first_proc[V_PROCS], first_heir;
static int first_slot_of[V_SLOT_CAP];
static int64_t first_clock_us;

struct v_proc v_proc[V_PROCS], v_heir;
const struct v_scene *v_scene;
uint64_t v_steps, v_top_token[V_KEYS];
static uint64_t first_top[V_KEYS];
int64_t v_clock_us;
int v_tracing;

/* ---- what is known of a state ---- */

static uint64_t mix_bytes(uint64_t h, const unsigned char *p, size_t n)
{
    uint64_t v = 0;
    for (; n >= 8; n -= 8, p += 8) {
        memcpy(&v, p, 8);
        h = v_mix(h, v);
    }
    v = 0;
    memcpy(&v, p, n);
    return v_mix(h, v + n);
}

void v_learn(uint64_t what)
{
    if (w.mode == SCHEDULED) coro[w.me].past = v_mix(coro[w.me].past, what);
}

int64_t v_now(void)
{
    v_learn((uint64_t)v_clock_us);
    return v_clock_us + START_US;
}

static uint64_t proc_hash(const struct v_proc *p)
{
    if (p->life == V_BURIED) return 1;
    uint64_t h = v_mix((uint64_t)p->life, (uint64_t)p->result);
    h = v_mix(h, (uint64_t)(p->notice | p->queued << 1 | p->at_store << 2 | p->inside << 3));
    h = v_mix(h, p->token);
    for (int i = 0; i < V_KEYS; i++) h = v_mix(h, p->hint[i]);
    if (!p->st) return h;
    const struct hf__client *c = &p->st->c;
    h = v_mix(h, (uint64_t)c->last_us);
    h = v_mix(h, (uint64_t)atomic_load(&c->limit) ^ (uint64_t)atomic_load(&c->ceiling_us) << 20);
    return v_mix(h, (uint64_t)atomic_load(&c->broken) << 1 | (uint64_t)atomic_load(&c->look));
}

static uint64_t state_hash(void)
{
    v_memory_hash();
    uint64_t h = v_mix((uint64_t)w.me, (uint64_t)(w.left.preemptions << 8 | w.left.deaths));
    h = v_mix(h, (uint64_t)(w.fresh_me | w.fresh_others << 1));
    for (int i = 0; i < V_COROS; i++) {
        const struct v_coro *c = &coro[i];
        uint64_t at = 0;
        if (c->state == V_ASLEEP && c->word != &never)
            at = (uint64_t)((unsigned char *)c->word - base);
        if (v_proc[i % V_PROCS].life != V_ALIVE) continue;
        h = v_mix(h, c->state == V_OVER ? 0 : c->past);
        h = v_mix(h, (uint64_t)(c->timed_out << 8 | (int)c->state << 4 | i) + (at << 16));
        if (c->state == V_ASLEEP) h = v_mix(h, (uint64_t)c->until_us);
    }
    for (int i = 0; i < V_PROCS; i++) h = v_mix(h, proc_hash(&v_proc[i]) + (uint64_t)i);
    for (int i = 0; i < V_KEYS; i++) h = v_mix(h, v_top_token[i]);
    if (v_scene->flags & V_UNOPENED)
        for (uint32_t i = 0; i < HF_FILE_SLOTS && i < V_SLOT_CAP; i++)
            h = v_mix(h, (uint64_t)v_slot_of[i]);
    h = v_mix(h, w.ticks);
    return v_mix(h, (uint64_t)v_clock_us) + v_memory_hash();
}

/* How it ended: what is in the mapping, and what each being got. */
static uint64_t outcome(void)
{
    v_memory_hash();
    uint64_t h = v_memory_hash();
    for (int i = 0; i < V_PROCS; i++) {
        h = v_mix(h, (uint64_t)v_proc[i].life);
        if (v_proc[i].life != V_ALIVE) continue; /* what the dead believed is forgotten */
        h = v_mix(h, v_proc[i].token + (uint64_t)v_proc[i].result);
    }
    return h;
}

/* ---- ends ---- */

static _Noreturn void end(enum v_end how)
{
    w.end = how;
    if (w.mode == AT_REST) longjmp(w.at_rest, 1);
    v_leave(v_root);
}

void v_fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(w.wrong, sizeof w.wrong, format, args);
    va_end(args);
    end(V_WRONG);
}

const char *v_wrong(void) { return w.wrong; }

/* ---- the beings that can go on ---- */

static const char *const being_name[V_BEINGS] = {"A", "B", "C", "a", "b", "c", "kernel", "time"};

static int monitor_wanted(const struct v_proc *p)
{
    return p->life == V_ALIVE && p->notice && p->queued && p->at_store;
}

/* eager: a sleeper whose nap is over counts too. */
static int can_go_on(int i, int eager)
{
    if (i == V_GRAVE) {
        for (int p = 0; p < V_PROCS; p++)
            if (v_proc[p].life != V_ALIVE && v_proc[p].life != V_BURIED) return 1;
        return 0;
    }
    if (i == V_TIME) return w.ticks > 0;
    const struct v_coro *c = &coro[i];
    if (v_proc[i % V_PROCS].life != V_ALIVE) return 0;
    if (c->state == V_ASLEEP) return c->nap_us < DEADLINE_US && (eager || c->nap_us >= NAP_US);
    if (i < V_PROCS) return c->state != V_OVER;
    return c->state == V_READY || monitor_wanted(&v_proc[i - V_PROCS]);
}

static int candidates(int *list, int eager, int but)
{
    int n = 0;
    for (int i = 0; i < V_BEINGS; i++)
        if (i != but && can_go_on(i, eager)) list[n++] = i;
    return n;
}

/* Nobody else can go on: those whose nap ends first. */
static int nappers(int *list)
{
    int all[V_BEINGS], n = 0, of = candidates(all, 1, -1);
    int64_t first = INT64_MAX;
    for (int i = 0; i < of; i++)
        if (coro[all[i]].until_us < first) first = coro[all[i]].until_us;
    for (int i = 0; i < of; i++)
        if (coro[all[i]].until_us == first) list[n++] = all[i];
    if (n && ++w.idle > IDLE_CAP) v_fail("everybody naps for ever");
    return n;
}

/* Lists the beings that could die now. */
static int mortals(int *list)
{
    int n = 0;
    for (int p = 0; p < V_PROCS; p++)
        if (v_proc[p].life == V_ALIVE && coro[p].state != V_OVER && coro[p].state != V_NEW &&
            (!v_scene->mortal || v_scene->mortal >> p & 1) &&
            (p == w.me % V_PROCS ? w.fresh_me : w.fresh_others))
            list[n++] = p;
    return n;
}

static void tell_of_death(void)
{
    if (v_scene->flags & V_NO_NOTICE) return;
    for (int p = 0; p < V_PROCS; p++)
        if (v_proc[p].life == V_ALIVE && v_proc[p].at_store) v_proc[p].notice = 1;
}

/* Those that sleep until somebody is dead for all to see, or everybody else is done. */
static void wake_for_death(void)
{
    int busy = 0, dead = 0;
    for (int i = 0; i < V_PROCS; i++) {
        dead |= v_proc[i].life == V_BURIED;
        busy |= v_proc[i].life == V_KILLED || v_proc[i].life == V_HALF;
        busy |= v_proc[i].life == V_ALIVE && coro[i].state != V_OVER &&
                !(coro[i].state == V_ASLEEP && coro[i].word == &never);
    }
    for (int i = 0; i < V_PROCS && (dead || !busy); i++)
        if (coro[i].state == V_ASLEEP && coro[i].word == &never) coro[i].state = V_READY;
}

static void kill_process(int p, int at_once)
{
    if (v_tracing) v_trace("%s dies%s", being_name[p], at_once ? " and is buried" : "");
    v_proc[p].life = at_once ? V_BURIED : V_KILLED;
    v_proc[p].inside = 0;
    coro[p].state = coro[p + V_PROCS].state = V_OVER;
    coro[p].past = coro[p + V_PROCS].past = 0;
    tell_of_death();
    wake_for_death();
}

static void bury(void)
{
    for (int p = 0; p < V_PROCS; p++) {
        if (v_proc[p].life == V_ALIVE || v_proc[p].life == V_BURIED) continue;
        v_proc[p].life++;
        if (v_tracing)
            v_trace("kernel closes %s of %s",
                    v_proc[p].life == V_HALF ? "the client" : "the session", being_name[p]);
        if (v_proc[p].life == V_BURIED) tell_of_death();
        wake_for_death();
        return;
    }
}

/* What runs out is noticed by the expiry monitors, which sleep until then. */
static void tick(void)
{
    w.ticks--;
    v_clock_us += TICK_US;
    if (v_tracing) v_trace("time passes");
    for (int p = 0; p < V_PROCS; p++)
        if (v_proc[p].life == V_ALIVE && v_proc[p].at_store) v_proc[p].notice = 1;
}

static void entry(void);

static void switch_to(int i)
{
    int from = w.me;
    struct v_coro *c = &coro[i];
    int afresh = c->state == V_NEW || c->state == V_OVER;
    if (afresh) {
        c->sp = v_fresh_stack(i, entry);
        c->past = (uint64_t)i;
        if (i >= V_PROCS) v_proc[i - V_PROCS].notice = 0;
    }
    if (c->state == V_ASLEEP) { /* its sleep has ended by time */
        c->timed_out = 1;
        if (v_clock_us < c->until_us) v_clock_us = c->until_us;
        if (v_tracing) v_trace("%s has slept long enough", being_name[i]);
    }
    c->state = V_READY;
    w.me = i;
    w.switches++;
    if (from != i)
        v_switch(&coro[from].sp, c->sp);
    else if (afresh)
        v_leave(c->sp);
}

static int choose(int n)
{
    int known, c = v_choose(n, state_hash, &known);
    if (known) end(V_KNOWN);
    return c;
}

static void end_of_execution(void)
{
    for (int p = 0; p < V_PROCS; p++)
        if (v_proc[p].life == V_ALIVE && coro[p].state != V_OVER)
            v_fail("%s is stuck: it sleeps, and nobody is left to wake it", being_name[p]);
    end(V_WHOLE);
}

/* The coroutine that runs can't go on: whose turn is it? Comes back when it can. */
static void elsewhere(void)
{
    v_memory_hash();
    for (;;) {
        int list[V_BEINGS], n = candidates(list, 0, -1);
        if (!n) n = nappers(list);
        if (!n) end_of_execution();
        int next = list[choose(n)];
        if (next < V_COROS) {
            switch_to(next);
            return;
        }
        (next == V_GRAVE ? bury : tick)();
    }
}

static void entry(void)
{
    struct v_proc *p = &v_proc[w.me % V_PROCS];
    if (w.me < V_PROCS)
        v_scene->act(p);
    else
        v_notice(p);
    v_memory_hash();
    coro[w.me].state = V_OVER;
    if (v_tracing) v_trace("%s is done", being_name[w.me]);
    wake_for_death();
    elsewhere();
    abort();
}

void v_await_death(struct v_proc *me)
{
    struct v_coro *c = &coro[me->number];
    c->state = V_ASLEEP;
    c->word = &never;
    c->nap_us = c->until_us = INT64_MAX;
    wake_for_death();
    if (c->state == V_ASLEEP) elsewhere();
}

/* ---- the seam ---- */

static void show_seam(const char *where, const volatile void *at, size_t n, int kind)
{
    static const char *const kinds[] = {"calls", "reads", "writes", "changes"};
    char place[64] = "";
    uint64_t off = (uint64_t)((const volatile unsigned char *)at - base);
    if (!n)
        place[0] = 0;
    else if (off < HF_AT_SLOTS)
        snprintf(place, sizeof place, "header+%llu", (unsigned long long)off);
    else if (off < HF_AT_BUCKETS)
        snprintf(place, sizeof place, "slot %llu +%llu",
                 (unsigned long long)((off - HF_AT_SLOTS) / sizeof(struct hf__slot)),
                 (unsigned long long)((off - HF_AT_SLOTS) % sizeof(struct hf__slot)));
    else if (off < HF_AT_HEAP)
        snprintf(place, sizeof place, "bucket %llu +%llu",
                 (unsigned long long)((off - HF_AT_BUCKETS) / sizeof(struct hf__bucket)),
                 (unsigned long long)((off - HF_AT_BUCKETS) % sizeof(struct hf__bucket)));
    else
        snprintf(place, sizeof place, "line %llu +%llu", (unsigned long long)(off / HF_LINE),
                 (unsigned long long)(off % HF_LINE));
    v_trace("%-6s %-18s %-7s %s %zu", being_name[w.me], where, kinds[kind & 3], place, n);
}

/*
 * The choices at an access: go on, let another go on, let somebody die. Deaths that nobody could
 * tell apart are offered once: this process's behind what it wrote or asked for, not behind a mere
 * read; another's where this one begins to run, and behind its questions to the kernel.
 */
static void turn_point(void)
{
    int to[V_BEINGS], dying[V_PROCS], n_to = 0, n_dying = 0;
    if (w.left.preemptions) n_to = candidates(to, 1, w.me);
    if (w.left.deaths) n_dying = mortals(dying);
    if (!n_to && !n_dying) {
        if (!(coro[w.me].past & 7) && v_seen_before(state_hash)) end(V_KNOWN);
        return;
    }
    int c = choose(1 + n_to + 2 * n_dying);
    if (!c) return;
    if (c <= n_to) {
        w.left.preemptions--;
        if (to[c - 1] < V_COROS)
            switch_to(to[c - 1]);
        else
            (to[c - 1] == V_GRAVE ? bury : tick)();
        return;
    }
    int p = dying[(c - 1 - n_to) / 2];
    w.left.deaths--;
    kill_process(p, (c - 1 - n_to) % 2);
    if (p == w.me % V_PROCS) elsewhere();
}

void hf__seam(const char *where, const volatile void *at, size_t n, int kind)
{
    if (w.mode == ASLEEP) return;
    v_memory_hash();
    if (w.mode == SCHEDULED) {
        v_steps++;
        if (++w.steps > STEPS_CAP) end(V_CUT);
        uint32_t switches = w.switches;
        turn_point();
        w.fresh_others = kind == HF_SEAM_CALL || switches != w.switches;
        w.fresh_me = kind != HF_SEAM_READ || switches != w.switches;
        struct v_coro *c = &coro[w.me];
        if (kind & HF_SEAM_READ)
            c->past = mix_bytes(c->past, (const unsigned char *)(uintptr_t)at, n);
        else
            c->past = v_mix(c->past, 1);
        if (v_tracing) show_seam(where, at, n, kind);
    }
    if (kind & HF_SEAM_WRITE) v_memory_write(at, n);
}

/* ---- sleeping ---- */

void v_sleep(_Atomic uint32_t *word, uint32_t seen, int64_t us)
{
    uint32_t now = atomic_load(word);
    if (w.mode != SCHEDULED) {
        if (now == seen) v_fail("the heir finds a lock word that no being gives back");
        return;
    }
    struct v_coro *me = &coro[w.me];
    me->timed_out = 0;
    if (now == seen) {
        me->state = V_ASLEEP;
        me->word = word;
        me->nap_us = us;
        me->until_us = us < DEADLINE_US ? v_clock_us + us : INT64_MAX;
        if (v_tracing) v_trace("%s sleeps", being_name[w.me]);
        elsewhere();
    }
    me->past = v_mix(me->past, (uint64_t)me->timed_out + 2);
}

void v_wake(_Atomic uint32_t *word, int n)
{
    v_memory_hash();
    while (w.mode == SCHEDULED && n > 0) {
        int list[V_COROS], found = 0;
        for (int i = 0; i < V_COROS; i++)
            if (coro[i].state == V_ASLEEP && coro[i].word == word &&
                v_proc[i % V_PROCS].life == V_ALIVE)
                list[found++] = i;
        if (!found) return;
        int i = list[n < found ? choose(found) : 0];
        coro[i].state = V_READY;
        if (v_tracing) v_trace("%s wakes %s", being_name[w.me], being_name[i]);
        n--;
    }
}

int v_timed_out(const struct v_proc *p) { return coro[p->number].timed_out; }

/* ---- one execution ---- */

int v_world_open(const struct v_scene *scene)
{
    struct hf__boot boot = {.seq = 1, .offset_us = START_US};
    v_scene = scene;
    base = v_memory_new();
    memset(&w, 0, sizeof w);
    memset(v_proc, 0, sizeof v_proc);
    memset(&v_heir, 0, sizeof v_heir);
    memset(v_top_token, 0, sizeof v_top_token);
    memset(v_slot_of, 0, sizeof v_slot_of);
    v_clock_us = 1000000;
    v_name_keys();
    hf__format(base, scene->lines ? scene->lines : V_SPACE / HF_LINE, 0600, &boot);
    if (setjmp(w.at_rest)) {
        fprintf(stderr, "explore: scene '%s': %s\n", scene->name, w.wrong);
        return 1;
    }
    w.mode = AT_REST;
    v_heap_on = 1;
    v_attach(&v_heir, V_PROCS);
    for (int i = 0; i < V_PROCS; i++) v_attach(&v_proc[i], i);
    if (scene->prepare) scene->prepare();
    v_memory_hash();
    v_memory_remember();
    memcpy(first_slot_of, v_slot_of, sizeof v_slot_of);
    memcpy(first_proc, v_proc, sizeof v_proc);
    first_heir = v_heir;
    memcpy(first_top, v_top_token, sizeof first_top);
    first_clock_us = v_clock_us;
    w.mode = ASLEEP;
    v_heap_on = 0;
    return 0;
}

static void back_to_the_beginning(struct v_budget budget)
{
    v_memory_restore();
    memcpy(v_proc, first_proc, sizeof v_proc);
    v_heir = first_heir;
    memcpy(v_top_token, first_top, sizeof v_top_token);
    memcpy(v_slot_of, first_slot_of, sizeof v_slot_of);
    memset(coro, 0, sizeof coro);
    v_clock_us = first_clock_us;
    w.left = budget;
    w.steps = w.idle = w.switches = 0;
    w.ticks = v_scene->flags & V_TICKS ? 1 : 0;
    w.fresh_me = w.fresh_others = 1;
    v_root = NULL;
    w.me = V_GRAVE;
    w.mode = SCHEDULED;
    v_heap_on = 1;
}

enum v_end v_execute(struct v_budget budget)
{
    int list[V_BEINGS], known;
    back_to_the_beginning(budget);
    int n = candidates(list, 0, -1);
    int first = list[v_choose(n, state_hash, &known)];
    if (known) return V_KNOWN;
    coro[first].sp = v_fresh_stack(first, entry);
    coro[first].past = (uint64_t)first;
    coro[first].state = V_READY;
    w.me = first;
    v_switch(&v_root, coro[first].sp);
    v_memory_hash();
    v_stacks_check();
    if (w.end == V_WHOLE) v_search_note(outcome());
    w.mode = AT_REST;
    if (w.end == V_WHOLE && !setjmp(w.at_rest)) {
        v_last_will();
        if (v_scene->verdict) v_scene->verdict();
    }
    w.mode = ASLEEP;
    v_heap_on = 0;
    return w.end;
}

int v_anybody_dead(void)
{
    for (int i = 0; i < V_PROCS; i++)
        if (v_proc[i].life != V_ALIVE) return 1;
    return 0;
}
