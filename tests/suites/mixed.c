/*
 * mixed.c - threads that ask for a few keys through several handles, each time with other options,
 * in another way, and with everything that can be done with a hold; what it says of itself and what
 * the store shows of it is held against what was asked for, and against the books (mixed_book.c).
 *
 *     mixed URL [-s SEED] [-n TURNS] [-t SECONDS]
 *
 * URL may have an @ as in scratch.h. It ends after so many turns of each thread, or so many
 * seconds. Each thread's choices follow from the seed; how they meet doesn't.
 */
#include "mixed.h"

#include "lock_suite.h"
#include "scratch.h"

#include <inttypes.h>
#include <sched.h>
#include <time.h>

/* After this many seconds in a row without any progress the run counts as stuck. */
enum { STUCK = 60 };

struct store stores[HANDLES];
char keys[KEYS][HF_KEY_CAP];
uint64_t grants, refusals, lost;
int64_t short_ms = 5000;

static struct player players[THREADS];
static uint64_t seed, most_turns = 1000000;
static int64_t until_ms;
static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended;
static int playing;

uint64_t next_chance(uint64_t *chances)
{
    uint64_t z = *chances += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

_Noreturn void wrong(const struct player *p, const struct request *r, const char *key,
                     const char *format, ...)
{
    va_list args;
    static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&once); /* for ever: the first one ends the program */
    printf("not ok 1 - everything is as it was asked for\n# ");
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf("\n# key '%s'", key);
    if (p)
        printf(", thread %d, turn %" PRIu64 ", %s", p->number,
               __atomic_load_n(&p->turns, __ATOMIC_RELAXED),
               __atomic_load_n(&p->does, __ATOMIC_RELAXED));
    if (r)
        printf("\n# %s, %s: wait %" PRId64 " lease %" PRId64 " max_hold %" PRId64
               " at_least %" PRId64 " mode %d limit %u flags %x owner %s note %s id %s",
               r->way, r->given ? "options" : "no options", r->o.wait_ms, r->o.lease_ms,
               r->o.max_hold_ms, r->o.at_least_ms, (int)r->o.mode, (unsigned)r->o.limit, r->o.flags,
               r->o.owner ? r->o.owner : "-", r->o.note ? r->o.note : "-",
               r->o.request_id ? "given" : "-");
    printf("\n# again: mixed %s -s %" PRIu64 "\n", suite_url, seed);
    fflush(stdout);
    scratch_remove();
    _exit(1);
}

void does(struct player *p, const char *what)
{
    __atomic_store_n(&p->does, what, __ATOMIC_RELAXED);
}

/* ---- what is done with a hold ---- */

static void confirm(struct hold *hold, hf_lock *lock)
{
    hf_error err = {0, 0, ""};
    int rc = hf_confirm(lock, &err);
    goes_on(hold, "confirm", rc, &err);
}

static void give_back(struct hold *hold, const char *what, hf_lock *lock)
{
    hf_error err = {0, 0, ""};
    int rc = hf_release(lock, &err);
    goes_on(hold, what, rc, &err);
    count(&stores[lock == hold->twin ? hold->twin_store : hold->store].over);
}

/* A hold that is gone because of this test itself. */
static void is_gone(const struct hold *hold, const char *what, int rc, const hf_error *err)
{
    if (rc != HF_LOST)
        wrong(hold->by, hold->asked, keys[hold->key], "%s: %s, not lost: %s", what,
              hf_code_name(rc), rc ? err->text : "");
}

/* A holder asks again, and doesn't wait. */
static void ask_beside(struct hold *hold)
{
    struct player *p = hold->by;
    struct request *r = &p->second;
    const hf_options *has = &hold->asked->o;
    hf_error err = {0, 0, ""};
    struct hold beside = {.by = p, .asked = r, .key = hold->key};
    choose(p, r);
    r->given = &r->o;
    r->o.wait_ms = 0;
    r->way = "hf_acquire, once more";
    beside.store = pick(p, HANDLES);
    const struct store *s = &stores[beside.store];
    int alone = r->o.mode == HF_EXCLUSIVE || has->mode == HF_EXCLUSIVE;
    uint64_t last = book_last(hold->key);
    int64_t asked_ms = suite_ms();
    int rc = hf_acquire(s->h, keys[hold->key], r->given, &beside.lock, &err);
    look_left(hold, hold->lock);
    if (!rc && !hold->over && (alone || has->mode != r->o.mode))
        wrong(p, r, keys[hold->key], "%s beside token %" PRIu64 " of mode %d", hf_code_name(rc),
              hold->token, (int)has->mode);
    if (!rc) {
        granted(&beside, asked_ms, last);
        look_shown(&beside, beside.store);
        book_out(&beside);
        give_back(&beside, "release", beside.lock);
    } else {
        look_refused(p, r, beside.store, hold->key, rc, &err, asked_ms, 0);
    }
}

/* The same request once more, or the grant adopted, is another lock of the same grant. */
static void get_twin(struct hold *hold)
{
    struct player *p = hold->by;
    const hf_options *o = &hold->asked->o;
    hf_error err = {0, 0, ""};
    int asks = o->request_id && !hold->runs, adopts = (o->flags & HF_DETACHED) != 0, rc;
    if (hold->over || (!asks && !adopts) || one_in(p, 3)) return;
    hold->twin_store = pick(p, HANDLES);
    hf *h = stores[hold->twin_store].h;
    if (asks && (!adopts || one_in(p, 2))) {
        does(p, "asks with the same request");
        p->second.o = *o;
        p->second.o.wait_ms = 0;
        rc = hf_acquire(h, keys[hold->key], &p->second.o, &hold->twin, &err);
    } else {
        does(p, "adopts");
        hold->adopted = 1;
        rc = hf_adopt(h, keys[hold->key], hold->token, &hold->twin, &err);
    }
    if (!goes_on(hold, p->does, rc, &err)) return;
    count(&stores[hold->twin_store].granted);
    if (hf_token(hold->twin) != hold->token)
        wrong(p, hold->asked, keys[hold->key], "%s: token %" PRIu64 ", not %" PRIu64, p->does,
              hf_token(hold->twin), hold->token);
    look_left(hold, hold->twin);
    if (!hold->over) confirm(hold, hold->twin);
}

static void look(struct hold *hold)
{
    struct player *p = hold->by;
    for (int n = pick(p, 4); n > 0 && !hold->over; n--) {
        switch (pick(p, 6)) {
        case 0:
            does(p, "confirms");
            confirm(hold, hold->lock);
            break;
        case 1:
            does(p, "looks");
            look_shown(hold, pick(p, HANDLES));
            break;
        case 2:
            does(p, "renews");
            extend(hold, (const int64_t[]){0, 0, short_ms, LONG_MS}[pick(p, 4)]);
            break;
        case 3:
        case 4:
            does(p, "asks once more");
            ask_beside(hold);
            break;
        default: sched_yield(); break;
        }
    }
    if (!hold->over) look_left(hold, hold->lock);
}

static void finish(struct hold *hold)
{
    hf_error err = {0, 0, ""};
    char result[60];
    does(hold->by, "finishes");
    snprintf(result, sizeof result, "done by %d", hold->by->number);
    int rc = hf_once_finish(hold->lock, result, 1 + pick(hold->by, 20), &err);
    goes_on(hold, "finish", rc, &err);
    count(&stores[hold->store].over);
}

static void end(struct hold *hold)
{
    struct player *p = hold->by;
    hf_error err = {0, 0, ""};
    int breaks = !hold->over && one_in(p, 8);
    get_twin(hold);
    book_out(hold);
    if (breaks) {
        does(p, "breaks");
        int rc = hf_break(stores[pick(p, HANDLES)].h, keys[hold->key], hold->token, &err);
        breaks = goes_on(hold, "break", rc, &err);
        if (breaks && one_in(p, 2)) is_gone(hold, "confirm", hf_confirm(hold->lock, &err), &err);
    }
    does(p, "gives back");
    hf_lock *first = hold->lock, *second = hold->twin;
    if (second && one_in(p, 2)) {
        first = hold->twin;
        second = hold->lock;
    }
    if (breaks)
        is_gone(hold, "release", hf_release(first, &err), &err);
    else if (hold->runs && first == hold->lock && one_in(p, 2))
        finish(hold);
    else
        give_back(hold, "release", first);
    if (second) is_gone(hold, "release", hf_release(second, &err), &err);
}

static void turn(struct player *p)
{
    struct request *r = &p->request;
    struct hold holds[KEYS];
    does(p, "asks");
    choose(p, r);
    memset(holds, 0, sizeof holds);
    holds[0] = (struct hold){.by = p, .asked = r};
    holds[0].key = pick(p, KEYS);
    holds[0].store = pick(p, HANDLES);
    int n = ask(p, r, holds);
    for (int i = 0; i < n; i++) look(&holds[i]);
    for (int i = 0; i < n; i++) end(&holds[i]);
}

static void *play(void *arg)
{
    struct player *p = arg;
    while (p->turns < most_turns && suite_ms() < until_ms) {
        turn(p);
        count(&p->turns);
    }
    pthread_mutex_lock(&mu);
    playing--;
    pthread_cond_signal(&ended);
    pthread_mutex_unlock(&mu);
    return NULL;
}

/* ---- all of them ---- */

static uint64_t turns(void)
{
    uint64_t n = 0;
    for (int i = 0; i < THREADS; i++) n += __atomic_load_n(&players[i].turns, __ATOMIC_RELAXED);
    return n;
}

static int say(void *arg, const hf_info *info)
{
    (void)arg;
    for (size_t i = 0; i < info->n_holders + info->n_waiters; i++)
        printf("# %s: %s '%s' (%s), token %" PRIu64 ", mode %d\n", info->key,
               i < info->n_holders ? "held by" : "waited for by", info->parties[i].owner,
               info->parties[i].note, info->parties[i].token, (int)info->parties[i].mode);
    return 0;
}

/* Waits until all threads have ended, or none makes progress. It counts how often this thread was
   awake, not the time: if the machine stands still, this thread does, too. */
static void watch(void)
{
    uint64_t seen = 0;
    pthread_mutex_lock(&mu);
    for (int stuck = 0; playing; stuck++) {
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        t.tv_sec++;
        pthread_cond_timedwait(&ended, &mu, &t);
        if (turns() != seen) stuck = 0;
        seen = turns();
        if (stuck < STUCK) continue;
        for (int i = 0; i < THREADS; i++)
            printf("# thread %d %s\n", i, __atomic_load_n(&players[i].does, __ATOMIC_RELAXED));
        for (int i = 0; i < KEYS; i++) hf_peek(stores[0].h, keys[i], say, NULL, NULL);
        wrong(NULL, NULL, "", "nobody gets any further");
    }
    pthread_mutex_unlock(&mu);
}

static void open_stores(void)
{
    hf_error err;
    for (int i = 0; i < HANDLES; i++) {
        struct store *s = &stores[i];
        hf_open_options o = HF_OPEN_OPTIONS_INIT;
        snprintf(s->owner, sizeof s->owner, "handle %d", i);
        snprintf(s->note, sizeof s->note, "of handle %d", i);
        o.owner = s->owner;
        o.note = s->note;
        o.io_timeout_ms = LONG_MS; /* the machine may be slow */
        if (hf_open(suite_url, &o, &s->h, &err)) wrong(NULL, NULL, "", "%s", err.text);
    }
    for (int i = 0; i < KEYS; i++) memcpy(keys[i], suite_key("mixed/key"), 96);
}

static int nobody(void *arg, const hf_info *info)
{
    if (info->n_holders || info->n_waiters)
        wrong(NULL, NULL, info->key, "%zu holders, %zu waiters are left", info->n_holders,
              info->n_waiters);
    ++*(int *)arg;
    return 0;
}

/* Waits for keys that at_least_ms keeps taken. */
static void nothing_is_left(void)
{
    hf_error err;
    hf_lock *lock;
    for (int i = 0; i < KEYS; i++) {
        int seen = 0;
        uint64_t last = book_last(i);
        int rc = hf_acquire(stores[i % HANDLES].h, keys[i], NULL, &lock, &err);
        if (rc) wrong(NULL, NULL, keys[i], "acquire at last: %s", err.text);
        count(&stores[i % HANDLES].granted);
        if (hf_token(lock) <= last) wrong(NULL, NULL, keys[i], "the last token is too small");
        rc = hf_release(lock, &err);
        if (rc) wrong(NULL, NULL, keys[i], "release at last: %s", err.text);
        rc = hf_peek(stores[0].h, keys[i], nobody, &seen, &err);
        if (rc || seen != 1) wrong(NULL, NULL, keys[i], "peek at last: %s", err.text);
    }
}

/* No thread has seen what hf_acquire_all was granted and released again. */
static void the_numbers_add_up(void)
{
    for (int i = 0; i < HANDLES; i++) {
        const struct store *s = &stores[i];
        hf_stats n = {.size = sizeof n};
        if (hf_get_stats(s->h, &n)) wrong(NULL, NULL, "", "no statistics");
        if (n.acquired != n.released || n.held || n.waiting || n.acquired < s->granted ||
            n.busy != s->busy || n.timeouts != s->timeouts || n.canceled != s->canceled)
            wrong(NULL, NULL, "",
                  "handle %d: acquired %" PRIu64 " (%" PRIu64 "), released %" PRIu64
                  ", busy %" PRIu64 " (%" PRIu64 "), timeouts %" PRIu64 " (%" PRIu64
                  "), canceled %" PRIu64 " (%" PRIu64 "), held %u, waiting %u",
                  i, n.acquired, s->granted, n.released, n.busy, s->busy, n.timeouts, s->timeouts,
                  n.canceled, s->canceled, (unsigned)n.held, (unsigned)n.waiting);
    }
}

static void parse(int argc, char **argv)
{
    int c, seconds = 6;
    seed = (uint64_t)suite_ms() * 1000003 + (uint64_t)getpid();
    while ((c = getopt(argc, argv, "s:n:t:")) != -1) {
        if (c == 's') seed = strtoull(optarg, NULL, 10);
        if (c == 'n') most_turns = strtoull(optarg, NULL, 10);
        if (c == 't') seconds = (int)strtol(optarg, NULL, 10);
        if (c == '?') exit(64);
    }
    suite_url = optind == argc - 1 ? scratch(argv[optind]) : NULL;
    if (!suite_url) fprintf(stderr, "usage: mixed URL [-s SEED] [-n TURNS] [-t SECONDS]\n");
    if (!suite_url) exit(64);
    until_ms = suite_ms() + seconds * 1000;
    short_ms = suite_lease(short_ms);
}

int main(int argc, char **argv)
{
    pthread_condattr_t a;
    setvbuf(stdout, NULL, _IOLBF, 0);
    parse(argc, argv);
    printf("1..1\n# seed %" PRIu64 "\n", seed);
    pthread_condattr_init(&a);
    pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
    pthread_cond_init(&ended, &a);
    open_stores();
    playing = THREADS;
    for (int i = 0; i < THREADS; i++) {
        struct player *p = &players[i];
        p->number = i;
        p->does = "begins";
        p->chances = seed + (uint64_t)i * UINT64_C(0xd1342543de82ef95);
        if (pthread_create(&p->thread, NULL, play, p)) wrong(NULL, NULL, "", "no thread");
    }
    watch();
    for (int i = 0; i < THREADS; i++) pthread_join(players[i].thread, NULL);
    nothing_is_left();
    the_numbers_add_up();
    book_close();
    for (int i = 0; i < HANDLES; i++) hf_close(stores[i].h);
    printf("# %" PRIu64 " turns, %" PRIu64 " granted, %" PRIu64 " refused, %" PRIu64 " lost\n",
           turns(), grants, refusals, lost);
    printf("ok 1 - everything is as it was asked for\n");
    return 0;
}
