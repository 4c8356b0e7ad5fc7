/*
 * cuts.c - the connection to a server is cut at every byte of a request and of its reply, and is
 * hurt in other ways that networks have; see proxy.h.
 *
 *   tests/servers/NAME cuts @ [--lease MS] [--jobs N] [--step N] [--guard COMMAND]
 *                             [--wait-step N] [--timed] [--sessions] [--only OP:WAY:BYTE]
 *                             [--clock-tick MS] [--hang MS]
 *
 * Each case does one operation through the proxy, which does its part at one byte of it. However
 * that ends: what was granted is nobody else's while it is believed, the same request asked again
 * says what became of it, what was given back is free, tokens grow, and what nobody knows of is
 * over after its lease. A client beside the proxy looks at that. `--step N`: only each N-th byte
 * (counted from the number $HF_TURN); `--wait-step N`: of the operations that wait. `--timed`: the
 * store's tokens are its time at the grants, and its clock is this machine's; elsewhere a lease
 * counts from the first asking. `--sessions`: its waiters stand in line with sessions, and are dead
 * without. `--clock-tick`: the store's clock is that coarse, so a holder takes its lease for over
 * that much before others do. `--hang`: a case that takes longer ends the program, which names it.
 */
#include "cuts.h"

#include "front.h"
#include "os.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *const op_names[CUT_OPS] = {"acquire",     "renew", "release", "once_begin",
                                              "once_finish", "wait",  "leave",   "enter"};
/* Bytes at each end of a direction that are never left out. */
enum { EDGE = 16 };

static const char *const way_names[] = {"up", "down"};

struct cut_tally *cut_tally;
struct cut_me cut_me;
static struct {
    const char *url, *only, *guard;
    int lease, tick, jobs, step, wait_step, timed, sessions, hang;
} options = {.lease = 1000, .jobs = 4, .step = 1, .hang = CUT_HANG_MS};

int64_t cut_ms(void) { return hf__local_us() / 1000; }

void cut_wrong(const char *format, ...)
{
    int none = 0;
    va_list args;
    if (!__atomic_compare_exchange_n(&cut_tally->wrong, &none, 1, 0, __ATOMIC_SEQ_CST,
                                     __ATOMIC_SEQ_CST))
        return;
    va_start(args, format);
    vsnprintf(cut_tally->why, sizeof cut_tally->why, format, args);
    va_end(args);
    snprintf(cut_tally->again, sizeof cut_tally->again, "%s", cut_me.at);
}

void cut_is_at(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(cut_me.at, sizeof cut_me.at, format, args);
    va_end(args);
    memcpy(cut_tally->worker[cut_me.number].at, cut_me.at, sizeof cut_me.at);
    cut_goes_on();
}

void cut_goes_on(void)
{
    __atomic_store_n(&cut_tally->worker[cut_me.number].since_ms, cut_ms(), __ATOMIC_RELEASE);
}

/* ---- through the proxy, beside it ---- */

static hf *open_store(const char *url, int64_t io_timeout_ms)
{
    hf_open_options oo = HF_OPEN_OPTIONS_INIT;
    hf_error err;
    hf *h = NULL;
    oo.io_timeout_ms = io_timeout_ms;
    for (int64_t end = cut_ms() + CUT_PATIENCE_MS; cut_ms() < end; usleep(20000))
        if (!hf_open(url, &oo, &h, &err)) return h;
    cut_wrong("open: %s", err.text);
    return NULL;
}

/* Opens what a worker needs. Returns 0 or -1. */
static int set_out(int number)
{
    static char server[600], front[900];
    struct cut_me *me = &cut_me;
    me->number = number;
    cut_is_at("opening");
    me->lease = options.lease;
    me->tick = options.tick;
    me->timed = options.timed;
    me->sessions = options.sessions;
    if (front_url(options.url, server, sizeof server, front, sizeof front, 0) ||
        proxy_start(&me->proxy, server)) {
        cut_wrong("no proxy for '%s'", options.url);
        return -1;
    }
    front_url(options.url, server, sizeof server, front, sizeof front, me->proxy.port);
    me->beside = open_store(options.url, CUT_BESIDE_MS);
    me->behind = open_store(options.url, CUT_BESIDE_MS);
    if (!strncmp(options.url, "firestore:", 10)) {
        char host[40];
        snprintf(host, sizeof host, "127.0.0.1:%d", me->proxy.port);
        setenv("FIRESTORE_EMULATOR_HOST", host, 1);
    }
    me->through = open_store(front, CUT_IO_MS);
    me->patient = open_store(front, 10000);
    return me->beside && me->behind && me->through && me->patient ? 0 : -1;
}

/* ---- the cases ---- */

static int at_every_byte(enum cut_op op, enum proxy_way way)
{
    cut_is_at("%s:%s:undisturbed", op_names[op], way_names[way]);
    int64_t n = cut_length(op, way);
    if (n <= 0) return -1;
    const char *given = getenv("HF_TURN");
    int64_t cases = 0, turn = given ? strtol(given, NULL, 10) : 0;
    for (int64_t k = 0; k <= n && !cut_tally->wrong; k++) {
        struct proxy_order order = {.what = PROXY_CUT, .way = way, .at = k};
        int step = cut_waits(op) && options.wait_step ? options.wait_step : options.step;
        int64_t edge = step > EDGE ? 2 : EDGE;
        if ((k + turn) % step && k > edge && k < n - edge) continue;
        if (cases++ % options.jobs != cut_me.number) continue;
        cut_is_at("%s:%s:%" PRId64, op_names[op], way_names[way], k);
        cut_case(op, &order, (unsigned)k);
    }
    __atomic_store_n(&cut_tally->length[op][way], n, __ATOMIC_RELAXED);
    return 0;
}

static void work(int number)
{
    if (set_out(number)) return;
    cut_tally->enters = cut_enters();
    for (int op = 0; op < CUT_OPS; op++) {
        if (op == CUT_ENTER && !cut_tally->enters) break;
        for (int way = 0; way < 2; way++)
            if (at_every_byte((enum cut_op)op, (enum proxy_way)way)) return;
        /* Each worker plays some of the other scenes. */
        for (int scene = 0; scene < CUT_SCENES && !cut_tally->wrong; scene++) {
            if ((scene + op) % options.jobs != number) continue;
            cut_is_at("%s:%s", op_names[op], cut_scene_name(scene));
            cut_scene((enum cut_op)op, scene);
        }
    }
    cut_orphans(0);
    hf_close(cut_me.through);
    hf_close(cut_me.patient);
    hf_close(cut_me.beside);
    hf_close(cut_me.behind);
    proxy_end(&cut_me.proxy);
    __atomic_add_fetch(&cut_tally->through, 1, __ATOMIC_SEQ_CST);
}

/* Plays one case again, by its name. */
static void again(const char *what)
{
    if (set_out(0)) return;
    cut_is_at("%s", what);
    cut_enters();
    for (int op = 0; op < CUT_OPS; op++) {
        size_t n = strlen(op_names[op]);
        if (strncmp(what, op_names[op], n) || what[n] != ':') continue;
        for (int way = 0; way < 2; way++) {
            size_t m = strlen(way_names[way]);
            if (strncmp(what + n + 1, way_names[way], m) || what[n + 1 + m] != ':') continue;
            long k = strtol(what + n + m + 2, NULL, 10);
            struct proxy_order order = {.what = PROXY_CUT, .way = (enum proxy_way)way, .at = k};
            cut_case((enum cut_op)op, &order, (unsigned)k);
        }
        for (int scene = 0; scene < CUT_SCENES; scene++)
            if (!strcmp(what + n + 1, cut_scene_name(scene))) cut_scene((enum cut_op)op, scene);
    }
    cut_orphans(0);
    __atomic_add_fetch(&cut_tally->through, 1, __ATOMIC_SEQ_CST);
}

static pid_t spawn(int number)
{
    fflush(stdout);
    pid_t pid = fork();
    if (pid) return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (number < 0)
        again(options.only);
    else
        work(number);
    _exit(0);
}

/* ---- what came of it ---- */

static int report(int64_t ms, int workers, int died)
{
    const struct cut_tally *t = cut_tally;
    int n = 0, bad = 0;
    uint64_t all = 0;
    for (int op = 0; op < CUT_OPS; op++) {
        if (op == CUT_ENTER && !t->enters) {
            puts("# enter: not offered by this store");
            break;
        }
        printf("# %s: %" PRId64 " bytes up, %" PRId64 " down; %" PRIu64 " cuts, %" PRIu64
               " other faults: %" PRIu64 " ok, %" PRIu64 " lost, %" PRIu64 " unknown, %" PRIu64
               " unavailable\n",
               op_names[op], t->length[op][0], t->length[op][1], t->cuts[op], t->scenes[op],
               t->ended[op][CUT_OK], t->ended[op][CUT_LOST], t->ended[op][CUT_UNKNOWN],
               t->ended[op][CUT_AWAY]);
        all += t->cuts[op] + t->scenes[op];
        /* In waits not every byte that was counted in advance comes each time: some belong to a new
           connection for notifications. */
        uint64_t least = cut_waits((enum cut_op)op) ? 10 : 20;
        int enough = options.only || t->cuts[op] > least;
        if (t->wrong && !enough) continue; /* not played any more */
        bad |= !enough;
        printf("%sok %d - %s: %" PRIu64 " cuts and other faults\n", enough ? "" : "not ", ++n,
               op_names[op], t->cuts[op] + t->scenes[op]);
    }
    printf("# %" PRIu64 " resolved by asking again, %" PRIu64
           " left to their lease, the longest of which took %" PRId64 " ms; %.1f s\n",
           t->resolved, t->orphans, t->longest_ms, (double)ms * 1e-3);
    int good = !t->wrong && !died && t->through == workers;
    bad |= !good;
    printf("%sok %d - no second grant, nothing lost, nothing left: %" PRIu64 " cases\n",
           good ? "" : "not ", ++n, all);
    char tick[40] = "";
    if (options.tick) snprintf(tick, sizeof tick, " --clock-tick %d", options.tick);
    if (t->wrong)
        printf("# wrong: %s: %s\n"
               "# again: tests/servers/NAME build/tests/cuts @ --lease %d%s%s%s --only '%s'\n",
               t->again, t->why, options.lease, tick, options.timed ? " --timed" : "",
               options.sessions ? " --sessions" : "", t->again);
    printf("1..%d\n", n);
    return bad;
}

static int number(const char *name, const char *text)
{
    char *end;
    long v = text ? strtol(text, &end, 10) : 0;
    if (!text || *end || v < 1) exit((fprintf(stderr, "cuts: %s wants a number\n", name), 64));
    return (int)v;
}

static pid_t pids[CUT_WORKERS]; /* 0: it has ended */

/* A worker that takes too long for a case is named, and ended with all others. */
static void end_what_hangs(int workers)
{
    int hang = 0;
    for (int i = 0; i < workers; i++) {
        int64_t since_ms = __atomic_load_n(&cut_tally->worker[i].since_ms, __ATOMIC_ACQUIRE);
        if (!pids[i] || cut_ms() - since_ms < options.hang) continue;
        printf("# hangs: %s: worker %d, for %lld ms\n", cut_tally->worker[i].at, i,
               (long long)(cut_ms() - since_ms));
        hang = 1;
    }
    for (int i = 0; hang && i < workers; i++)
        if (pids[i]) kill(pids[i], SIGKILL);
}

/* Waits until the workers have ended. Returns nonzero if one of them died. */
static int await_all(int workers)
{
    int died = 0, status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) >= 0) {
        for (int i = 0; pid && i < workers; i++)
            if (pids[i] == pid) pids[i] = 0;
        if (pid) {
            died |= status;
        } else {
            end_what_hangs(workers);
            usleep(20000);
        }
    }
    return died;
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *o = argv[i];
        if (*o != '-')
            options.url = o;
        else if (!strcmp(o, "--lease"))
            options.lease = number(o, argv[++i]);
        else if (!strcmp(o, "--clock-tick"))
            options.tick = number(o, argv[++i]);
        else if (!strcmp(o, "--jobs"))
            options.jobs = number(o, argv[++i]);
        else if (!strcmp(o, "--step"))
            options.step = number(o, argv[++i]);
        else if (!strcmp(o, "--wait-step"))
            options.wait_step = number(o, argv[++i]);
        else if (!strcmp(o, "--hang"))
            options.hang = number(o, argv[++i]);
        else if (!strcmp(o, "--timed"))
            options.timed = 1;
        else if (!strcmp(o, "--sessions"))
            options.sessions = 1;
        else if (!strcmp(o, "--guard") && argv[i + 1])
            options.guard = argv[++i];
        else if (!strcmp(o, "--only") && argv[i + 1])
            options.only = argv[++i];
        else
            exit((fprintf(stderr, "cuts: what is '%s'?\n", o), 64));
    }
    if (options.jobs > CUT_WORKERS) return fprintf(stderr, "cuts: too many jobs\n"), 64;
    if (!options.url) return fprintf(stderr, "usage: cuts URL [OPTION...]\n"), 64;
    cut_tally =
        mmap(NULL, sizeof *cut_tally, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (cut_tally == MAP_FAILED) return perror("cuts"), 70;
    signal(SIGPIPE, SIG_IGN);
    setvbuf(stdout, NULL, _IOLBF, 0);
    /* The guard needs the table of the locks. */
    hf *h = options.guard ? open_store(options.url, CUT_BESIDE_MS) : NULL;
    if (h) hf_close(h);
    if (options.guard && system(options.guard)) return puts("Bail out! no guard"), 70;
    int64_t began = cut_ms();
    int workers = options.only ? 1 : options.jobs;
    for (int i = 0; i < workers; i++) {
        cut_tally->worker[i].since_ms = began;
        if ((pids[i] = spawn(options.only ? -1 : i)) < 0) return perror("cuts: fork"), 70;
    }
    int died = await_all(workers);
    return report(cut_ms() - began, workers, died);
}
