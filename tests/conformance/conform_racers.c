/*
 * conform_racers.c - the conformance suite's racers, threads and processes, of which one meets a
 * lie, ends, hangs, or isn't even started: the suite says what is wrong, at once.
 *
 * A driver around `file:` counts the calls of each kind, all processes together, anew after each
 * process that is killed; so a case can name the very call. What waits for something that doesn't
 * come isn't waited for: the clock runs away with it.
 */
#include "conform.h"
#include "conform_around.h"
#include "conform_key.h"
#include "drivers.h"
#include "os.h"
#include "scratch.h"
#include "test.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

enum way {
    HONEST,
    DENIES,
    TURNS, /* done is called refused, and the other way round */
    OTHER, /* a conflict is called by another number */
    EXITS, /* the process, before it is done */
    AFTER, /* the process, when it was done */
    DIES,  /* the process, with a status */
    HANGS, /* the process */
    LATE,  /* it takes ten seconds */
    EARLY, /* it returns at once */
    SAYS_YES,
    TORN, /* a row that can't be */
    KEEPS,
    SINCE, /* of a waiter */
    LEASE,
    OWNER
};

/* The calls by kinds: g(et), s(wap), d(elete), t(ake), o(pen), n(ew session), a(live), l(isten),
   w(atch); b(orn): a process, p: a thread; m(emory) for a row. */
struct lie {
    char verb;
    int nth;   /* since the last kill; 0: all of them */
    int kills; /* so many before it; -1: at any time */
    enum way way;
};

struct one {
    const char *why;  /* what it must say; NULL: the promise is kept */
    const char *only; /* the key that isn't denied */
    struct lie lie;
    int ends; /* a racer that hangs ends by itself, and isn't killed before that */
    int fast; /* the clock, from the lie on */
};

static const hf_driver *base = &hf__file_driver;
static hf_url url;
static const struct one *now;
static struct lie ending; /* where those end that write until they are killed */
static int64_t keep_at;   /* the marker's date in the row that a lie is about; 0: any */
static int silent;        /* nothing is to be read anywhere */
/* All processes have this in common. */
static struct shared {
    _Atomic int calls[128], kills, denied, ending, fast;
    _Atomic int64_t ahead_us;
} *all;

/* ---- the system ---- */

pid_t __real_fork(void);
pid_t __wrap_fork(void);
int __real_kill(pid_t pid, int sig);
int __wrap_kill(pid_t pid, int sig);
int __wrap_pause(void);
int __real_poll(struct pollfd *fd, nfds_t n, int ms);
int __wrap_poll(struct pollfd *fd, nfds_t n, int ms);
int __real_clock_gettime(clockid_t id, struct timespec *ret);
int __wrap_clock_gettime(clockid_t id, struct timespec *ret);
int __real_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*f)(void *), void *arg);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*f)(void *), void *arg);
void *__real_malloc(size_t n);
void *__wrap_malloc(size_t n);
void *__real_realloc(void *p, size_t n);
void *__wrap_realloc(void *p, size_t n);

static int is_it(const struct lie *l, char verb, int n)
{
    return l->way != HONEST && l->verb == verb && (!l->nth || l->nth == n) &&
           (l->kills < 0 || l->kills == all->kills);
}

static enum way way_of(char verb)
{
    int n = ++all->calls[(int)verb];
    enum way way = is_it(&ending, verb, n)     ? ending.way
                   : is_it(&now->lie, verb, n) ? now->lie.way
                                               : HONEST;
    if (way != HONEST && now->fast) all->fast = 1; /* not before: all are to get so far */
    if (way == EXITS) _exit(0);
    if (way == DIES) _exit(1);
    while (way == HANGS) __real_poll(NULL, 0, 1000); /* until it is killed */
    if (way == DENIES) all->denied = 1;
    if (way == LATE) all->ahead_us += 10000000;
    return way;
}

pid_t __wrap_fork(void)
{
    if (way_of('b') != DENIES) return __real_fork();
    errno = EAGAIN;
    return -1;
}

int __wrap_kill(pid_t pid, int sig)
{
    siginfo_t ended;
    all->ending = now->ends;
    if (now->ends) waitid(P_PID, (id_t)pid, &ended, WEXITED | WNOWAIT);
    all->ending = 0;
    all->kills++;
    for (size_t i = 0; i < COUNT(all->calls); i++) all->calls[i] = 0;
    return __real_kill(pid, sig);
}

int __wrap_pause(void)
{
    __real_poll(NULL, 0, 1);
    if (all->ending) _exit(0); /* as late as if it were killed, but what it did counts */
    return 0;
}

int __wrap_poll(struct pollfd *fd, nfds_t n, int ms) { return silent ? 0 : __real_poll(fd, n, ms); }

int __wrap_clock_gettime(clockid_t id, struct timespec *ret)
{
    int rc = __real_clock_gettime(id, ret);
    if (!all) return rc;
    if (all->fast) all->ahead_us += 100000;
    ret->tv_sec += all->ahead_us / 1000000;
    return rc;
}

int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*f)(void *), void *arg)
{
    return way_of('p') == DENIES ? EAGAIN : __real_pthread_create(t, a, f, arg);
}

/* Room for a row of twelve; for the compiler, realloc of NULL may be malloc. */
static int no_room(size_t n) { return now && n == 12 * sizeof(hf_party) && way_of('m') == DENIES; }

void *__wrap_malloc(size_t n) { return no_room(n) ? NULL : __real_malloc(n); }
void *__wrap_realloc(void *p, size_t n) { return no_room(n) ? NULL : __real_realloc(p, n); }

/* ---- the store ---- */

static int no(hf_error *err) { return hf_fail(err, HF_DENIED, 0, "liar: denied"); }

static int denied(const char *key) { return strcmp(name_of(key), now->only) != 0; }

static void change(hf_row *row, enum way way)
{
    hf_party *p = &row->party[1];
    if (way == TORN) row->token = row->rev + 1;
    if (way == KEEPS) row->keep_until_us += 5;
    if (way >= SINCE && !row->n_queue) fail_msg("nobody waits in it");
    if (way == SINCE) p->since_us++;
    if (way == LEASE) p->lease_ms++;
    if (way == OWNER) p->owner[0]++;
}

/* The party that was granted the key, as it was seen last, and the time before that. */
static hf_party handed, handed_before;

static void note_handed(const hf_row *row)
{
    const hf_party *p = &row->party[0];
    if (!row->n_holders || !(p->flags & HF_PARTY_UNCLAIMED) || p->token == handed.token) return;
    handed_before = handed;
    handed = *p;
}

/* A word that came late: it is of the row that was there before this one. */
static int li_told(hf_store *st, const hf_rowkey *key, hf_row *row)
{
    (void)st;
    (void)key;
    hf_row_clear(row);
    row->party[0] = handed_before;
    row->token = handed_before.token;
    row->n_holders = row->token != 0;
    return row->n_holders != 0;
}

static int li_get(hf_store *st, const hf_rowkey *key, hf_row *row, int64_t *clock, hf_error *err)
{
    if (denied(key->text)) return no(err);
    enum way way = way_of('g');
    int rc = base->get(st, key, row, clock, err);
    *clock = base->caps.local->now(st);
    if (way == DENIES && (!keep_at || row->keep_until_us == keep_at)) return no(err);
    note_handed(row);
    change(row, way);
    return rc;
}

static int li_replace(hf_store *st, const hf_rowkey *key, uint64_t seen, const hf_row *row,
                      hf_row *cur, int64_t *clock, hf_error *err)
{
    if (denied(key->text)) return no(err);
    enum way way = way_of(row ? 's' : 'd');
    *clock = base->caps.local->now(st);
    if (way == DENIES && (!keep_at || row->keep_until_us == keep_at)) return no(err);
    int rc = base->replace(st, key, seen, row, cur, clock, err);
    if (way == AFTER) _exit(0);
    if (way == TURNS) return rc ? 0 : HF_CONFLICT;
    return way == OTHER && rc ? HF_CONFLICT + 1 : rc;
}

static int li_acquire(hf_store *st, const hf_rowkey *key, const hf_party *party, uint32_t may_queue,
                      hf_row *cur, int64_t *clock, hf_error *err)
{
    if (denied(key->text)) return no(err);
    enum way way = way_of('t');
    return way == TURNS ? HF_CONFLICT : base->acquire(st, key, party, may_queue, cur, clock, err);
}

static int li_open(const hf_url *at, int64_t io_timeout_ms, hf_store **ret, hf_caps *caps,
                   hf_error *err)
{
    return way_of('o') == DENIES ? no(err) : base->open(at, io_timeout_ms, ret, caps, err);
}

static int li_session(hf_store *st, uint64_t *ret, hf_error *err)
{
    return way_of('n') == DENIES ? no(err) : base->caps.liveness->session(st, ret, err);
}

static int li_alive(hf_store *st, uint64_t session, hf_error *err)
{
    enum way way = way_of('a');
    int rc = base->caps.liveness->alive(st, session, err);
    return way == SAYS_YES ? 1 : way == TURNS ? !rc : rc;
}

static int li_wakeup_begin(hf_store *st, uint8_t wakeup, size_t n, hf_event_count *ret,
                           hf_error *err)
{
    return way_of('l') == DENIES ? no(err)
                                 : base->caps.local->wakeup_begin(st, wakeup, n, ret, err);
}

static int li_sleep(hf_store *st, uint8_t wakeup, const hf_event_count *since, int64_t until_us,
                    hf_error *err)
{
    enum way way = way_of('w');
    if (way == DENIES) return no(err);
    if (way == EARLY) return 0;
    /* Nobody comes any more once another one was denied something: time flies. */
    for (;;) {
        int64_t look_us = hf__local_us() + 20000, end_us = look_us < until_us ? look_us : until_us;
        int rc = base->caps.local->sleep(st, wakeup, since, end_us, err), over = all->denied;
        if (rc || hf__local_us() < end_us || end_us == until_us) return rc;
        if (over) all->ahead_us += 10000000;
        if (over) return 0;
    }
}

/* A store that notifies wakes every wait again and again. */
static int li_subscribe(hf_store *st, const hf_rowkey *key)
{
    (void)st, (void)key;
    return 0;
}

static void li_unsubscribe(hf_store *st, const hf_rowkey *key) { (void)st, (void)key; }

static int li_flush(hf_store *st, hf_event_count *ret, hf_error *err)
{
    (void)st, (void)ret;
    return way_of('l') == DENIES ? no(err) : 0;
}

static int li_notify_sleep(hf_store *st, const hf_event_count *since, int64_t until_us,
                           hf_error *err)
{
    (void)st, (void)since, (void)until_us;
    return way_of('w') == DENIES ? no(err) : 0;
}

static int li_next_event(hf_store *st, hf_key_event *ret)
{
    (void)st, (void)ret;
    return 0;
}

static void li_interrupt(hf_store *st) { (void)st; }

static hf_notify_ops notify = {.subscribe = li_subscribe,
                               .unsubscribe = li_unsubscribe,
                               .flush = li_flush,
                               .sleep = li_notify_sleep,
                               .next_event = li_next_event,
                               .interrupt = li_interrupt};

/* ---- what is said of it ---- */

static const char *promise;
static char why_text[500];
static int told, examined;

static void say(void *arg, const char *text, const char *why)
{
    (void)arg;
    if (strcmp(text, promise) != 0) return;
    told++;
    snprintf(why_text, sizeof why_text, "%s", why ? why : "");
}

enum has { LOCAL = 1, LIVENESS = 2, THREADS = 4 };

/* It tells its clock with its replies, all the same. */
static void make(unsigned has)
{
    static const hf_driver lies_of = {.open = li_open, .get = li_get, .replace = li_replace};
    static const hf_local_ops local_lies = {.wakeup_begin = li_wakeup_begin, .sleep = li_sleep};
    static const hf_liveness_ops liveness_lies = {.session = li_session, .alive = li_alive};
    make_around(base, &lies_of, &local_lies, &liveness_lies);
    liar.caps.local = has & LOCAL ? &local : NULL;
    liar.caps.liveness = has & LIVENESS ? &liveness : NULL;
    liar.caps.threads = (has & THREADS) != 0;
    liar.caps.queues = 0; /* two wins */
    liar.acquire = NULL;
}

static void examine(const char *of, void (*run)(struct hf__suite *cfm), const struct one *one)
{
    static const struct one none = {.only = ""};
    struct hf__suite cfm = {.drv = &liar, .url = &url, .say = say, .caps = liar.caps};
    int threads = run == hf__conform_threads;
    now = &none;
    snprintf(cfm.prefix, sizeof cfm.prefix, "c/%d/", ++examined);
    if (threads) assert_int_equal(hf__con_open(&cfm, &cfm.con, NULL), 0);
    int64_t ahead_us = all->ahead_us; /* no clock goes back */
    memset(all, 0, sizeof *all);
    all->ahead_us = ahead_us;
    promise = of;
    told = 0;
    now = one;
    run(&cfm);
    now = &none;
    if (threads) hf__con_close(&cfm.con);
    if (told != 1) fail_msg("'%s': told %d times", of, told);
    if (one->why ? !strstr(why_text, one->why) : *why_text != 0)
        fail_msg("'%s', %c %d after %d: '%s' instead of '%s'", of, one->lie.verb, one->lie.nth,
                 one->lie.kills, why_text, one->why ? one->why : "");
}

#define EXAMINE(of, run, cases) \
    for (size_t at = 0; at < COUNT(cases); at++) examine(of, run, &(cases)[at])

/* ---- tests ---- */

/* The check of a process that is killed. Here it ends by itself, in its fifth write. */
static void who_is_killed(void **state)
{
    (void)state;
    static const struct one cases[] = {
        {NULL, "killed", {'g', 0, -1, HONEST}, 1, 0},
        {"liar: denied", "killed", {'g', 1, 0, DENIES}, 1, 0},
        {"liar: denied", "killed", {'g', 2, 0, DENIES}, 1, 0},
        {"the other process doesn't begin", "killed", {'g', 1, 0, HANGS}, 0, 1},
        {"liar: denied", "killed", {'g', 1, 1, DENIES}, 1, 0},
        {"liar: denied", "killed", {'s', 1, 1, DENIES}, 1, 0},
        {"liar: denied", "killed", {'g', 2, 1, DENIES}, 1, 0},
        {"liar: denied", "killed", {'s', 2, 1, DENIES}, 1, 0},
        {NULL, "killed", {'s', 4, 2, AFTER}, 1, 0},
        {NULL, "killed", {'s', 2, 3, HANGS}, 0, 1},
        {NULL, "killed", {'s', 1, 2, TURNS}, 1, 0},
        {"left with token above rev", "killed", {'g', 1, 2, TORN}, 1, 0},
        {"was confirmed, but", "killed", {'g', 1, 2, KEEPS}, 1, 0},
        {"waiter 1 is torn", "killed", {'g', 1, 2, SINCE}, 1, 0},
        {"waiter 1 is torn", "killed", {'g', 1, 2, LEASE}, 1, 0},
        {"waiter 1 is torn", "killed", {'g', 1, 2, OWNER}, 1, 0},
        {"fork: ", "killed", {'b', 9, 0, DENIES}, 1, 0},
        {"fork: ", "killed", {'b', 2, 1, DENIES}, 1, 0},
        {"a process of the check crashed", "killed", {'g', 1, 1, DIES}, 1, 0},
        {"out of memory", "killed", {'m', 1, 1, DENIES}, 1, 0},
    };
    make(THREADS);
    ending = (struct lie){'s', 5, -1, EXITS};
    EXAMINE("a killed process leaves a whole row", hf__conform_processes, cases);
    /* Twice it is said that another one has written, although nobody is there any more. */
    const struct one never = {"cannot be written", "killed", {'s', 0, 1, TURNS}, 1, 0};
    examine("a killed process leaves a whole row", hf__conform_processes, &never);
    ending.way = HONEST;
}

static void whose_death_is_noticed(void **state)
{
    (void)state;
    static const struct one cases[] = {
        {NULL, "", {'n', 0, -1, HONEST}, 0, 0},
        {"liar: denied", "", {'n', 1, 1, DENIES}, 1, 0},
        {"the other process doesn't begin", "", {'n', 1, 1, HANGS}, 0, 1},
        {"it counts as dead before its death", "", {'a', 1, 1, TURNS}, 0, 0},
        {"the other process doesn't begin", "", {'a', 1, 1, DIES}, 0, 1},
        {"it still counts as alive after its death", "", {'a', 0, -1, SAYS_YES}, 1, 1},
        {"fork: ", "", {'b', 1, 1, DENIES}, 0, 0},
        {"fork: ", "", {'b', 2, 1, DENIES}, 0, 0},
    };
    const char *of = "the death of a process is noticed";
    make(LIVENESS | THREADS);
    EXAMINE(of, hf__conform_processes, cases);
    silent = 1;
    const struct one untold = {"no waiter was notified of it", "", {'n', 0, -1, HONEST}, 0, 0};
    examine(of, hf__conform_processes, &untold);
    silent = 0;
    liveness.death_fd = NULL;
    examine(of, hf__conform_processes, &cases[0]);
}

static void processes(void **state)
{
    (void)state;
    static const struct one replaces[] = {
        {"fork: ", "race", {'b', 2, 0, DENIES}, 0, 1},
        {"a process of the check crashed", "race", {'o', 0, 0, DIES}, 0, 1},
    };
    /* Eight begin after the one that is killed. */
    static const struct one takes[] = {
        {NULL, "takes", {'t', 0, -1, HONEST}, 0, 0},
        {"liar: denied", "takes", {'o', 3, 1, DENIES}, 0, 0},
        {"14 grants, of which 16 were given", "takes", {'t', 1, 1, EXITS}, 0, 0},
        {"no racer has released it", "takes", {'t', 0, 1, TURNS}, 0, 1},
    };
    make(THREADS);
    EXAMINE("eight processes lose no update", hf__conform_processes, replaces);
    liar.acquire = li_acquire;
    EXAMINE("eight processes acquire: exactly one holds", hf__conform_processes, takes);
    /* The waiting processes can't open it. */
    const struct one unopened = {"liar: denied", "wakeup", {'o', 0, 1, DENIES}, 0, 1};
    make(LOCAL | THREADS);
    examine("a waiter in another process is woken", hf__conform_processes, &unopened);
}

/* Of 17 writes the row tells, by a date that is 18 then. */
static void threads(void **state)
{
    (void)state;
    static const struct one replaces[] = {
        {NULL, "race", {'g', 0, -1, HONEST}, 0, 0},
        {"no more threads", "race", {'p', 1, -1, DENIES}, 0, 0},
        {"no more threads", "race", {'p', 5, -1, DENIES}, 0, 0},
        {"no conflicts", "race", {'s', 0, -1, OTHER}, 0, 0},
        {"liar: denied", "race", {'d', 1, -1, DENIES}, 0, 0},
    };
    static const struct one ends[] = {
        {"liar: denied", "race", {'g', 0, -1, DENIES}, 0, 0},
        {"liar: denied", "race", {'s', 0, -1, DENIES}, 0, 0},
    };
    const char *of = "eight threads lose no update";
    make(THREADS);
    EXAMINE(of, hf__conform_threads, replaces);
    keep_at = 18;
    EXAMINE(of, hf__conform_threads, ends);
    keep_at = 0;
    make(0);
    examine(of, hf__conform_threads, &replaces[0]);
}

static void wakeups(void **state)
{
    (void)state;
    static const struct one cases[] = {
        {NULL, "wakeup", {'g', 0, -1, HONEST}, 0, 0},
        {NULL, "wakeup", {'w', 1, -1, EARLY}, 0, 0},
        {"liar: denied", "wakeup", {'s', 1, -1, DENIES}, 0, 0},
        {"liar: denied", "wakeup", {'s', 2, -1, DENIES}, 0, 0},
        {"liar: denied", "wakeup", {'s', 3, -1, DENIES}, 0, 0},
        {"liar: denied", "wakeup", {'s', 4, -1, DENIES}, 0, 0},
        {"liar: denied", "wakeup", {'d', 1, -1, DENIES}, 0, 0},
        {"liar: denied", "wakeup", {'d', 2, -1, DENIES}, 0, 0},
        {"session: liar: denied", "wakeup", {'n', 1, -1, DENIES}, 0, 0},
        {"subscribe: liar: denied", "wakeup", {'l', 1, -1, DENIES}, 0, 0},
        {"subscribe: liar: denied", "wakeup", {'l', 2, -1, DENIES}, 0, 0},
        {"sleep: liar: denied", "wakeup", {'w', 1, -1, DENIES}, 0, 0},
        {"sleep: liar: denied", "wakeup", {'w', 2, -1, DENIES}, 0, 0},
        {"slept on although the key was granted", "wakeup", {'w', 1, -1, LATE}, 0, 0},
        {"slept through a change made before watch", "wakeup", {'w', 2, -1, LATE}, 0, 0},
    };
    const char *of = "a waiter in another thread is woken";
    make(LOCAL | LIVENESS | THREADS);
    EXAMINE(of, hf__conform_threads, cases);
    make(THREADS);
    liar.caps.notify = &notify;
    examine(of, hf__conform_threads, &cases[0]);
    notify.payload = li_told;
    examine(of, hf__conform_threads, &cases[0]);
    notify.payload = NULL;
    assert_int_not_equal(handed_before.token, 0);
    examine(of, hf__conform_threads, &cases[0]);
}

static void interrupts(void **state)
{
    (void)state;
    static const struct one cases[] = {
        {NULL, "", {'g', 0, -1, HONEST}, 0, 0},
        {"subscribe: liar: denied", "", {'l', 1, -1, DENIES}, 0, 0},
        {"subscribe: liar: denied", "", {'l', 3, -1, DENIES}, 0, 0},
        {"sleep: liar: denied", "", {'w', 2, -1, DENIES}, 0, 0},
        {"slept on although it was interrupted", "", {'w', 1, -1, LATE}, 0, 0},
        {"slept on past its time limit", "", {'w', 3, -1, LATE}, 0, 0},
    };
    make(LOCAL | LIVENESS | THREADS);
    EXAMINE("a watch can be interrupted", hf__conform_threads, cases);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_is_killed), cmocka_unit_test(whose_death_is_noticed),
        cmocka_unit_test(processes),     cmocka_unit_test(threads),
        cmocka_unit_test(wakeups),       cmocka_unit_test(interrupts),
    };
    all = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED || hf_url_parse(scratch("file:@"), &url, NULL)) return 1;
    return TEST_MAIN(tests);
}
