/*
 * guard_model.c - every order of events between three clients, their lock and a guarded database.
 *
 * A lease may run out at any step, a client may die at any step, and any step may take arbitrarily
 * long; transactions see what is committed, and what they write is seen when they commit. What is
 * explored is what `holdfast guard` prints: holdfast_enter looks at the lock's row (without locking
 * it), then takes the fence's row until the end of the transaction. Controls, in which the guard
 * lacks something, must lose updates: else this would prove nothing.
 *
 *     guard_model        says what came of it as TAP
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CLIENTS = 3, STEPS = 16 };

enum op {
    END,
    HOLD,        /* be granted the lock, alone */
    SHARE,       /* be granted it, together with others that share */
    LOOK,        /* is my token one of the present holders'? */
    ENTER,       /* show it to the fence, and keep the fence's row until the transaction ends */
    ENTER_SINCE, /* the same in the statement that has read: if nobody else has entered since */
    CALL,        /* hf_enter: the same in a transaction of its own, which may land although its
                    client has given up */
    READ,        /* the counter */
    AGAIN,       /* read it again: is it the same? */
    WRITE,       /* what was read, plus one; seen by others when it is committed */
    COMMIT,      /* the end of a transaction */
    WRITE_HELD,  /* one atomic step: if my token holds, the counter is what was read plus one */
    WRITE_IF, /* one atomic step: if the fence is my token, the counter is what was read plus one */
    RELEASE
};

enum guard { LOOKS = 1, FENCES = 2, COUNTS = 4 /* how often the fence was entered */ };

struct client {
    uint8_t at, token, seen, wrote, lowest,
        fence;     /* fence: to be when it commits; 0: not entered */
    uint8_t since; /* how many had entered when it read */
    uint8_t
        under_way; /* what a CALL that was given up would raise the fence to; 0: there is none */
};

struct state {
    struct client c[CLIENTS];
    uint8_t in_row[CLIENTS]; /* a token that holds, by client; 0: none */
    uint8_t shared, last_token, counter, fence, fence_owner, entered, accepted;
};

struct scene {
    const char *what;
    unsigned guard;
    const uint8_t *programs[CLIENTS];
    int holds; /* expected: no update is lost */
};

/* ---- what has been seen ---- */

static struct state *seen;
static uint8_t *used;
static size_t n_seen, cap;

static size_t hash(const struct state *s)
{
    uint64_t h = 14695981039346656037u;
    for (size_t i = 0; i < sizeof *s; i++) h = (h ^ ((const uint8_t *)s)[i]) * 1099511628211u;
    return (size_t)(h ^ h >> 29);
}

static int add(const struct state *s)
{
    size_t at = hash(s) & (cap - 1);
    while (used[at]) {
        if (!memcmp(&seen[at], s, sizeof *s)) return 0;
        at = (at + 1) & (cap - 1);
    }
    if (n_seen + 1 > cap / 4 * 3) {
        printf("Bail out! more than %zu states\n", n_seen);
        exit(1);
    }
    used[at] = 1;
    seen[at] = *s;
    n_seen++;
    return 1;
}

/* ---- one step ---- */

static const struct scene *scene;
static const char *violation;
static unsigned refusals;

static void end_transaction(struct state *s, int i)
{
    if (s->fence_owner == i + 1) s->fence_owner = 0;
    s->c[i].wrote = s->c[i].fence = s->c[i].lowest = 0;
}

static void stop(struct state *s, int i)
{
    const uint8_t *p = scene->programs[i];
    uint8_t to = scene->guard & LOOKS ? s->c[i].lowest : s->c[i].token;
    if (p[s->c[i].at] == CALL && to > s->fence) s->c[i].under_way = to;
    end_transaction(s, i);
    while (p[s->c[i].at] != END) s->c[i].at++;
    s->c[i].token = s->c[i].seen = 0; /* no matter any more: fewer states */
}

/* Refuses; a holder must not be refused. */
static void refuse(struct state *s, int i)
{
    refusals++;
    if (s->in_row[i]) violation = "a holder was refused";
    stop(s, i);
}

static int acquire(struct state *s, int i, int shared)
{
    int taken = 0;
    for (int j = 0; j < CLIENTS; j++) taken |= s->in_row[j];
    if (taken && !(shared && s->shared)) return 0;
    s->shared = (uint8_t)shared;
    s->c[i].token = s->in_row[i] = ++s->last_token;
    return 1;
}

static int enter(struct state *s, int i)
{
    struct client *c = &s->c[i];
    if (!(scene->guard & FENCES)) return 1;
    if (s->fence_owner && s->fence_owner != i + 1) return 0; /* waits */
    if (s->fence > c->token) {
        refuse(s, i);
        return 2;
    }
    uint8_t to = scene->guard & LOOKS ? c->lowest : c->token;
    c->fence = to > s->fence ? to : s->fence;
    s->fence_owner = (uint8_t)(i + 1);
    return 1;
}

static int look(struct state *s, int i)
{
    struct client *c = &s->c[i];
    if (!(scene->guard & LOOKS)) return 1;
    if (!s->in_row[i]) {
        refuse(s, i);
        return 2;
    }
    c->lowest = c->token;
    for (int j = 0; j < CLIENTS; j++)
        if (s->in_row[j] && s->in_row[j] < c->lowest) c->lowest = s->in_row[j];
    return 1;
}

static void commit(struct state *s, int i)
{
    struct client *c = &s->c[i];
    if (c->wrote) {
        s->counter = c->wrote;
        s->accepted++;
    }
    if (c->fence) s->fence = c->fence;
    if (c->fence && scene->guard & COUNTS) s->entered++;
    end_transaction(s, i);
}

/* 0, 1, 2 as of step. A client that has to try again gives up here. */
static int enter_since(struct state *s, int i)
{
    if (s->fence_owner && s->fence_owner != i + 1) return 0;
    if (s->entered == s->c[i].since || !(scene->guard & COUNTS)) return enter(s, i);
    refusals++;
    stop(s, i);
    return 2;
}

/* 0, 1, 2 as of step. */
static int call(struct state *s, int i)
{
    int done = enter(s, i);
    if (done == 1) commit(s, i);
    return done;
}

/* The next step of client i. 0: it can't go on now. */
static int step(struct state *s, int i)
{
    struct client *c = &s->c[i];
    int done = 1;
    switch ((enum op)scene->programs[i][c->at]) {
    case END: return 0;
    case HOLD: done = acquire(s, i, 0); break;
    case SHARE: done = acquire(s, i, 1); break;
    case LOOK: done = look(s, i); break;
    case ENTER: done = enter(s, i); break;
    case ENTER_SINCE: done = enter_since(s, i); break;
    case CALL: done = call(s, i); break;
    case READ:
        c->seen = s->counter;
        c->since = s->entered;
        break;
    case AGAIN:
        if (c->seen != s->counter) violation = "what was read has changed";
        break;
    case WRITE: c->wrote = (uint8_t)(c->seen + 1); break;
    case COMMIT: commit(s, i); break;
    case WRITE_HELD:
    case WRITE_IF:
        if (scene->programs[i][c->at] == WRITE_HELD ? !s->in_row[i] : s->fence != c->token) {
            refuse(s, i);
            return 1;
        }
        s->counter = (uint8_t)(c->seen + 1);
        s->accepted++;
        break;
    case RELEASE: s->in_row[i] = 0; break;
    }
    if (done == 1) c->at++;
    return done;
}

/* ---- all orders ---- */

static void explore(const struct state *s)
{
    int ended = 0;
    if (!add(s) || violation) return;
    for (int i = 0; i < CLIENTS; i++) {
        struct state next = *s;
        if (scene->programs[i][s->c[i].at] == END) ended++;
        if (step(&next, i)) {
            explore(&next);
            next = *s;
            stop(&next, i); /* it dies instead; its lock stays until it runs out */
            explore(&next);
        }
        if (s->in_row[i]) { /* its lease runs out, and it hasn't noticed */
            next = *s;
            next.in_row[i] = 0;
            explore(&next);
        }
        if (s->c[i].under_way && !s->fence_owner) { /* arrives after all */
            next = *s;
            if (next.c[i].under_way > next.fence) next.fence = next.c[i].under_way;
            next.c[i].under_way = 0;
            explore(&next);
        }
    }
    if (ended == CLIENTS && s->counter != s->accepted) violation = "an update is lost";
}

/* ---- scenes ---- */

#define PROGRAM(name, ...) static const uint8_t name[STEPS] = {__VA_ARGS__, END}
PROGRAM(one, HOLD, LOOK, ENTER, READ, WRITE, COMMIT, RELEASE);
PROGRAM(at_once, HOLD, READ, LOOK, ENTER_SINCE, WRITE, COMMIT, RELEASE);
PROGRAM(two, HOLD, LOOK, ENTER, READ, COMMIT, LOOK, ENTER, WRITE, COMMIT, RELEASE);
PROGRAM(late, HOLD, READ, LOOK, ENTER, WRITE, COMMIT, RELEASE);
PROGRAM(twice, HOLD, LOOK, ENTER, READ, COMMIT, LOOK, ENTER, AGAIN, WRITE, COMMIT, RELEASE);
PROGRAM(reader, SHARE, LOOK, ENTER, READ, COMMIT, LOOK, ENTER, AGAIN, COMMIT, RELEASE);
PROGRAM(plain, HOLD, ENTER, COMMIT, READ, WRITE_IF, RELEASE);
PROGRAM(ahead, HOLD, LOOK, CALL, READ, LOOK, ENTER, WRITE, COMMIT, RELEASE);
PROGRAM(ahead_reader, SHARE, LOOK, CALL, READ, LOOK, ENTER, AGAIN, COMMIT, RELEASE);
PROGRAM(ahead_if, HOLD, LOOK, CALL, READ, WRITE_IF, RELEASE);
PROGRAM(confirmed, HOLD, LOOK, READ, LOOK, ENTER, WRITE, COMMIT, RELEASE);
PROGRAM(confirmed_if, HOLD, LOOK, READ, LOOK, ENTER, COMMIT, WRITE_IF, RELEASE);
PROGRAM(atomic, HOLD, READ, WRITE_HELD, RELEASE);
PROGRAM(unentered, HOLD, READ, ENTER, COMMIT, WRITE_IF, RELEASE);

#define ALL(p)  \
    {           \
        p, p, p \
    }
static const struct scene scenes[] = {
    {"one transaction, the locks in the same database", LOOKS | FENCES, ALL(one), 1},
    {"one transaction, the locks elsewhere", FENCES, ALL(one), 1},
    {"two transactions, the locks in the same database", LOOKS | FENCES, ALL(two), 1},
    {"two transactions, the locks elsewhere", FENCES, ALL(two), 1},
    {"some in one, some in two", LOOKS | FENCES, {one, two, two}, 1},
    {"what a holder reads stays until it writes", LOOKS | FENCES, {twice, twice, one}, 1},
    {"entering in the statement that reads (PostgreSQL)", LOOKS | FENCES | COUNTS, ALL(at_once), 1},
    {"entering in the statement that reads by one", FENCES | COUNTS, {at_once, one, two}, 1},
    {"readers that share, a writer", LOOKS | FENCES, {reader, reader, two}, 1},
    {"enter, read, conditional write (Redis, MongoDB)", FENCES, ALL(plain), 1},
    {"hf_enter, read, a transaction to write (PostgreSQL, SQLite)", LOOKS | FENCES, ALL(ahead), 1},
    {"hf_enter by one, one transaction by others", LOOKS | FENCES, {ahead, one, two}, 1},
    {"hf_enter by readers that share, and by a writer",
     LOOKS | FENCES,
     {ahead_reader, ahead_reader, ahead},
     1},
    {"hf_enter, read, conditional write (Redis)", LOOKS | FENCES, ALL(ahead_if), 1},
    {"hf_enter, read, conditional write, the locks not looked at (MongoDB, etcd)", FENCES,
     ALL(ahead_if), 1},
    {"the lock is looked at in the atomic step of the write (Firestore)", 0, ALL(atomic), 1},
    {"control: no guard", 0, ALL(one), 0},
    {"control: the lock's row is looked at, without a fence", LOOKS, ALL(one), 0},
    {"control: reading before entering", LOOKS | FENCES, ALL(late), 0},
    {"control: reading before entering, the locks elsewhere", FENCES, ALL(late), 0},
    {"control: reading before entering, conditional write", FENCES, ALL(unentered), 0},
    {"control: entering in the statement that reads, others may have entered since", LOOKS | FENCES,
     ALL(at_once), 0},
    {"control: one that reads before entering is enough", LOOKS | FENCES, {two, two, late}, 0},
    {"control: hf_confirm in place of hf_enter", LOOKS | FENCES, ALL(confirmed), 0},
    {"control: hf_confirm, conditional write", LOOKS | FENCES, ALL(confirmed_if), 0},
    {"control: readers that share, hf_enter without the lock's row",
     FENCES,
     {ahead_reader, ahead_reader, ahead},
     0},
    {"control: readers that share without the lock's row", FENCES, {reader, reader, two}, 0},
};
enum { SCENES = sizeof scenes / sizeof *scenes };

int main(void)
{
    int failures = 0;
    cap = (size_t)1 << 23;
    seen = malloc(cap * sizeof *seen);
    used = calloc(cap, 1);
    if (!seen || !used) {
        printf("Bail out! out of memory\n");
        return 1;
    }
    for (int i = 0; i < SCENES; i++) {
        struct state start;
        memset(&start, 0, sizeof start);
        scene = &scenes[i];
        violation = NULL;
        n_seen = refusals = 0;
        memset(used, 0, cap);
        explore(&start);
        /* Where nobody is ever refused, the guard was not in the way at all. */
        int good = scene->holds ? !violation && refusals : violation != NULL;
        failures += !good;
        printf("%s %d - %s: %s (%zu states)\n", good ? "ok" : "not ok", i + 1, scene->what,
               violation ? violation : "no update is lost", n_seen);
    }
    printf("1..%d\n", SCENES);
    free(seen);
    free(used);
    return failures != 0;
}
