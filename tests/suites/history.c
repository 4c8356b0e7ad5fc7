/*
 * history.c - concurrent clients of one store, killed, stopped and lied to at random; what they
 * write down of it is judged twice. See history.h.
 *
 *   history URL [--operations N] [--seconds N] [--seed N] [--round N] [--lease MS] [--clients N]
 *           [--porcupine TOOL] [--keep FILE] [--queue 0|1] [--wait-cap MS] [--calm]
 *
 * URL may have an @ as in scratch.h. Rounds of at most --round operations, each on new keys, are
 * played until there are --operations of them, or --seconds are over. In each round chance decides
 * how many clients there are, how often they are killed (SIGKILL) and stopped (SIGSTOP, up to one
 * and a half leases), whether replies are lost (tests/fakes/wrap_fault.c), how often waits are
 * given up and grants are broken. On `mem:` the clients are threads of one process, which is
 * stopped. TOOL says where the second judge is (tools/porcupine). What was wrong is kept as text,
 * in FILE or beside the temporary files.
 */
#include "history.h"

#include "holdfast.h"
#include "scratch.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

enum { ENDED_MS = 1500000, TICK_US = 1000, DEATHS = 5 };

static struct {
    const char *url, *porcupine, *keep;
    uint64_t seed;
    int64_t operations, seconds, round;
    int lease, clients, queue, wait_cap, calm;
} options = {.operations = 20000, .round = 40000, .lease = 200, .queue = 1};

static struct h_world *w;
static int world_fd, threads;
static uint64_t chances;
static char why[700];

struct process {
    pid_t pid;
    int64_t resume_ns, stopped_ns; /* 0: runs */
    int through;                   /* has no room for more operations */
};
static struct process process[H_CLIENTS];

static struct {
    uint64_t operations, rounds, lives, kills, stops, injected, served, grants, answers[8];
    int64_t checked_us;
} sum;

/* splitmix64 */
static uint64_t next(void)
{
    uint64_t z = (chances += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static int pick(const int *of, int n) { return of[next() % (uint64_t)n]; }

__attribute__((format(printf, 1, 2))) static int wrong(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (!*why) vsnprintf(why, sizeof why, format, args);
    va_end(args);
    return -1;
}

/* ---- clients ---- */

static void *thread(void *number)
{
    h_client_run(w, (int)(intptr_t)number);
    return NULL;
}

/* Runs this program as one client, or as all of them. */
static int be_client(const char *fd, const char *number)
{
    int n = (int)strtol(number, NULL, 10);
    world_fd = (int)strtol(fd, NULL, 10);
    w = mmap(NULL, sizeof *w, PROT_READ | PROT_WRITE, MAP_SHARED, world_fd, 0);
    if (w == MAP_FAILED) return 70;
    pthread_t t[H_CLIENTS];
    if (n >= 0) {
        h_client_run(w, n);
        return 0;
    }
    /* The contents of a memory store go with its last handle. */
    hf *keeper;
    if (hf_open(w->plan.url, NULL, &keeper, NULL)) return 70;
    for (intptr_t i = 0; i < w->plan.clients; i++)
        if (pthread_create(&t[i], NULL, thread, (void *)i)) return 70;
    for (int i = 0; i < w->plan.clients; i++) pthread_join(t[i], NULL);
    /* The heir. */
    w->client[0].life++;
    h_client_run(w, 0);
    hf_close(keeper);
    return 0;
}

static int start(int i)
{
    char fd[16], number[16], faults[80];
    struct process *p = &process[i];
    w->client[i].life++;
    sum.lives++;
    snprintf(fd, sizeof fd, "%d", world_fd);
    snprintf(number, sizeof number, "%d", threads ? -1 : i);
    snprintf(faults, sizeof faults, "random:seed=%llu:p=0.%03d", (unsigned long long)(next() >> 32),
             w->plan.faults);
    fflush(stdout);
    pid_t parent = getpid();
    p->pid = fork();
    if (p->pid < 0) return wrong("fork: %s", strerror(errno));
    if (!p->pid) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) _exit(1);
        if (w->plan.faults)
            setenv("HOLDFAST_FAULT", faults, 1);
        else
            unsetenv("HOLDFAST_FAULT");
        execl("/proc/self/exe", "history", "--client", fd, number, (char *)NULL);
        _exit(127);
    }
    return 0;
}

static void resume(struct process *p, int n)
{
    int64_t stood = h_now() - p->stopped_ns;
    if (!p->resume_ns) return;
    for (int i = 0; i < (threads ? w->plan.clients : 1); i++) {
        int64_t *late = &w->client[threads ? i : n].late_ns;
        if (__atomic_load_n(late, __ATOMIC_RELAXED))
            __atomic_add_fetch(late, stood, __ATOMIC_RELAXED);
    }
    p->resume_ns = 0;
    if (p->pid) kill(p->pid, SIGCONT);
}

static void end_all(void)
{
    for (int i = 0; i < H_CLIENTS; i++) {
        if (!process[i].pid) continue;
        kill(process[i].pid, SIGKILL);
        kill(process[i].pid, SIGCONT);
        waitpid(process[i].pid, NULL, 0);
        process[i].pid = 0;
    }
}

static int processes(void) { return threads ? 1 : w->plan.clients; }

/* Checks that no client has met what must not be, hangs, or has gone. Returns how many are left, or
   -1. */
static int look_after(void)
{
    int left = 0;
    for (int i = 0; i < w->plan.clients; i++) {
        struct h_client *c = &w->client[i];
        int64_t late = __atomic_load_n(&c->late_ns, __ATOMIC_RELAXED);
        if (*c->odd) return wrong("%s", c->odd);
        if (late && !process[threads ? 0 : i].resume_ns && h_now() > late)
            return wrong("client %d: %s doesn't return", i, c->doing);
    }
    for (int i = 0; i < processes(); i++) {
        int status;
        struct process *p = &process[i];
        if (!p->pid) continue;
        left++;
        if (waitpid(p->pid, &status, WNOHANG) != p->pid) continue;
        p->pid = 0;
        p->through = 1;
        left--;
        if (*w->client[i].odd) return wrong("%s", w->client[i].odd);
        if (status) return wrong("client %d ended: status 0x%x", i, (unsigned)status);
    }
    return left;
}

/* ---- a round ---- */

static int kills_10s, stops_s; /* in ten seconds; in one second */
static int kills_left;         /* in this round */

/* A brisk round is many operations in a short time: its clients are killed, but never stopped, and
   seldom lied to, for each of those costs the others a lease or a pause. In a rough one, with some
   fewer operations, all of it happens. */
static void make_plan(const char *url)
{
    static const int faults[2][4] = {{0, 5, 20, 50}, {0, 1, 3, 8}}, some[] = {0, 0, 3, 10},
                     kills[2][3] = {{0, 3, 10}, {0, 50, 300}}, cancels[] = {0, 300, 300, 600},
                     stops[] = {0, 1, 4};
    static const int holds[] = {50, 500, 2000}, slots[] = {1, 2, 3, 4, 6};
    struct h_plan *p = &w->plan;
    int sessions = !strncmp(url, "file:", 5) || !strncmp(url, "mem:", 4);
    int rough = next() % 3 == 0;
    memset(w, 0, sizeof *w);
    snprintf(p->url, sizeof p->url, "%s", url);
    p->seed = next();
    p->clients = options.clients ? options.clients : 2 + (int)(next() % (H_CLIENTS - 1));
    p->slots = pick(slots, 5);
    for (int i = 0; i < 3; i++) p->leases[i] = options.lease << i;
    if (sessions && next() % 2) p->leases[next() % 3] = 0;
    p->hold_us = pick(holds, rough ? 3 : 1);
    p->late = rough ? pick(some, 4) / 3 : 0;
    p->break_ = pick(some, 4);
    p->cancel = pick(cancels, 4);
    p->starts = 100 + (int)(next() % 400);
    p->tries = 100 + (int)(next() % 400);
    p->reopen = pick(some, 4);
    p->queues = options.queue;
    p->look = 500;
    p->budget = rough ? (options.round + 7) / 8 : options.round;
    p->faults = rough ? pick(faults[sessions], 4) : (int)(next() % 2);
    /* Where deaths aren't reported, each one costs the others a lease, or a claim timeout: too many
       would only make a queue of the dead. */
    kills_left = sessions ? INT32_MAX : DEATHS;
    kills_10s = pick(kills[sessions], 3);
    stops_s = rough ? pick(stops, 3) : 0;
    if (options.calm) p->faults = p->late = p->break_ = p->cancel = kills_10s = stops_s = 0;
}

/* Chooses what happens to the clients, `ns` after the last time. */
static int hurt(double s)
{
    int i = (int)(next() % (uint64_t)processes());
    struct process *p = &process[i];
    double roll = (double)(next() >> 11) * 0x1p-53;
    for (int k = 0; k < processes(); k++)
        if (process[k].resume_ns && h_now() >= process[k].resume_ns) resume(&process[k], k);
    if (!p->pid || p->through || p->resume_ns) return 0;
    if (!threads && kills_left > 0 && roll < kills_10s * s / 10) {
        kills_left--;
        kill(p->pid, SIGKILL);
        waitpid(p->pid, NULL, 0);
        p->pid = 0;
        h_settle(w->client[i].op, w->client[i].n, h_now());
        __atomic_store_n(&w->client[i].late_ns, 0, __ATOMIC_RELAXED);
        sum.kills++;
        return start(i);
    }
    roll = (double)(next() >> 11) * 0x1p-53;
    if (roll < stops_s * s) {
        int64_t lease_ns = (int64_t)options.lease * 1000000 << next() % 3;
        p->stopped_ns = h_now();
        kill(p->pid, SIGSTOP);
        p->resume_ns =
            p->stopped_ns + lease_ns / 4 + (int64_t)(next() % (uint64_t)lease_ns) * 5 / 4;
        sum.stops++;
    }
    return 0;
}

/* The clients end, after each has had each key once more. So does a client that comes after. */
static int let_end(void)
{
    for (int heir = 0; heir < 2 - threads; heir++) {
        int64_t end_ns = h_now() + (int64_t)ENDED_MS * 1000000;
        __atomic_store_n(&w->stop, 1, __ATOMIC_SEQ_CST);
        for (int i = 0; i < processes(); i++) resume(&process[i], i);
        if (heir) w->plan.faults = 0;
        if (heir && start(0)) return -1;
        for (int left; (left = look_after());) {
            if (left < 0) return -1;
            if (h_now() > end_ns) return wrong("somebody doesn't end");
            usleep(1000);
        }
    }
    return 0;
}

static int play(int64_t until_ns)
{
    memset(process, 0, sizeof process);
    for (int i = 0; i < processes(); i++)
        if (start(i)) return -1;
    int64_t last = h_now();
    while (__atomic_load_n(&w->begun, __ATOMIC_RELAXED) < w->plan.budget) {
        usleep(TICK_US);
        int64_t now = h_now();
        int left = look_after();
        if (left < 0 || hurt((double)(now - last) * 1e-9)) return -1;
        if (!left || now > until_ns) break;
        last = now;
    }
    return let_end();
}

/* ---- what came of it ---- */

static struct h_verdict total;

static struct h_history gather(void)
{
    struct h_history h = {.claim_ns = 900000000,
                          .wait_cap_ns = options.wait_cap * INT64_C(1000000)};
    h.op = malloc(sizeof *h.op * H_CLIENTS * H_OPS);
    for (int i = 0; h.op && i < w->plan.clients; i++) {
        struct h_client *c = &w->client[i];
        memcpy(h.op + h.n, c->op, c->n * sizeof *h.op);
        h.n += c->n;
        sum.injected += c->injected;
        sum.served += c->last_rounds;
    }
    for (size_t i = 0; i < h.n; i++) {
        const struct h_op *op = &h.op[i];
        static const int8_t counted[] = {HF_LOST,    HF_UNKNOWN,  HF_UNAVAILABLE, HF_BUSY,
                                         HF_TIMEOUT, HF_CANCELED, H_OPEN,         H_DONE};
        sum.grants += op->answer == 0 && (op->kind <= H_ACQUIRE || op->kind == H_BEGIN);
        for (int k = 0; k < 8; k++) sum.answers[k] += op->answer == counted[k];
    }
    return h;
}

static void keep_text(const struct h_history *h, const char *prefix)
{
    char path[400];
    const char *tmp = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/holdfast-history-%" PRIu64 ".jsonl", tmp ? tmp : "/tmp",
             options.seed);
    if (options.keep) snprintf(path, sizeof path, "%s", options.keep);
    FILE *f = fopen(path, "w");
    if (!f) return;
    h_write(f, h, prefix);
    fclose(f);
    printf("# the history: %s\n", path);
}

static int judge(struct h_porcupine *porcupine)
{
    struct h_verdict v;
    struct h_history h = gather();
    char prefix[64];
    int64_t began = h_now();
    int bad = *why != 0;
    if (!h.op) return wrong("out of memory");
    h_judge(&h, &v);
    h_key_name(0, prefix, w->plan.seed);
    prefix[strlen(prefix) - 1] = 0;
    for (int i = 0; i < H_CHECKS; i++) {
        total.checked[i] += v.checked[i];
        total.wrong[i] += v.wrong[i];
        if (v.wrong[i]) memcpy(total.why[i], v.why[i], sizeof v.why[i]);
        bad |= v.wrong[i] != 0;
    }
    total.excused += v.excused;
    uint64_t before = porcupine->illegal + porcupine->unknown;
    if (options.porcupine && h_porcupine_judge(porcupine, &h, prefix))
        bad = wrong("%s", porcupine->why);
    bad |= porcupine->illegal + porcupine->unknown != before;
    if (bad || options.keep) keep_text(&h, prefix);
    sum.operations += h.n;
    sum.rounds++;
    sum.checked_us += (h_now() - began) / 1000;
    free(h.op);
    return bad ? -1 : 0;
}

static int tap(int *number, int good, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static int tap(int *number, int good, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    printf("%sok %d - ", good ? "" : "not ", ++*number);
    vprintf(format, args);
    puts("");
    va_end(args);
    return !good;
}

static int report(const struct h_porcupine *p, int64_t took_us)
{
    int n = 0, bad = 0;
    printf("# %" PRIu64 " operations in %" PRIu64
           " rounds, %.1f s, of which %.1f s were judging: %.0f "
           "operations/s\n",
           sum.operations, sum.rounds, (double)took_us * 1e-6, (double)sum.checked_us * 1e-6,
           (double)sum.operations * 1e6 / (double)took_us);
    printf("# %" PRIu64 " lives, %" PRIu64 " kills, %" PRIu64 " stops, %" PRIu64
           " faults injected\n# %" PRIu64 " grants, %" PRIu64 " lost, %" PRIu64 " unknown, %" PRIu64
           " unavailable, %" PRIu64 " busy, %" PRIu64 " timeouts, %" PRIu64 " canceled, %" PRIu64
           " cut short, %" PRIu64 " done\n",
           sum.lives, sum.kills, sum.stops, sum.injected, sum.grants, sum.answers[0],
           sum.answers[1], sum.answers[2], sum.answers[3], sum.answers[4], sum.answers[5],
           sum.answers[6], sum.answers[7]);
    bad |= tap(&n, !*why, "everybody was served or told, %" PRIu64 " times after all", sum.served);
    if (*why) printf("# %s\n", why);
    for (int i = 0; i < H_CHECKS; i++) {
        bad |= tap(&n, !total.wrong[i], "%s: %" PRIu64 " checked, %" PRIu64 " wrong",
                   h_check_name((enum h_check)i), total.checked[i], total.wrong[i]);
        if (total.wrong[i]) printf("# %s\n", total.why[i]);
        if (i == H_FIFO)
            printf("# of the queue, %" PRIu64 " may have let a claim run out\n", total.excused);
    }
    if (options.porcupine) {
        bad |= tap(&n, !p->illegal && !p->unknown && p->operations == sum.operations,
                   "porcupine: %" PRIu64 " histories, %" PRIu64 " operations, illegal %" PRIu64
                   ", unknown %" PRIu64,
                   p->histories, p->operations, p->illegal, p->unknown);
        printf("# of %" PRIu64 " refusals %" PRIu64 " could be judged\n", p->busy,
               p->busy - p->busy_open);
        if (*p->why) printf("# %s\n", p->why);
    }
    int enough = options.seconds || sum.operations >= (uint64_t)options.operations;
    bad |= tap(&n, enough, "at least %" PRId64 " operations: %" PRIu64,
               options.seconds ? 0 : options.operations, sum.operations);
    printf("1..%d\n", n);
    return bad;
}

/* ---- the whole ---- */

static int64_t number(const char *name, const char *text)
{
    char *end;
    long long v = text ? strtoll(text, &end, 10) : 0;
    if (!text || *end || end == text || v < 0)
        exit((fprintf(stderr, "history: %s wants a number\n", name), 64));
    return v;
}

static void parse(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *o = argv[i], *v = argv[i + 1];
        if (!strcmp(o, "--calm")) {
            options.calm = 1;
            continue;
        }
        if (*o != '-') {
            options.url = o;
            continue;
        }
        if (!v) exit((fprintf(stderr, "history: %s wants a value\n", o), 64));
        i++;
        if (!strcmp(o, "--operations"))
            options.operations = number(o, v);
        else if (!strcmp(o, "--seconds"))
            options.seconds = number(o, v);
        else if (!strcmp(o, "--seed"))
            options.seed = (uint64_t)number(o, v);
        else if (!strcmp(o, "--round"))
            options.round = number(o, v);
        else if (!strcmp(o, "--lease"))
            options.lease = (int)number(o, v);
        else if (!strcmp(o, "--clients"))
            options.clients = (int)number(o, v);
        else if (!strcmp(o, "--queue"))
            options.queue = (int)number(o, v);
        else if (!strcmp(o, "--wait-cap"))
            options.wait_cap = (int)number(o, v);
        else if (!strcmp(o, "--porcupine"))
            options.porcupine = v;
        else if (!strcmp(o, "--keep"))
            options.keep = v;
        else
            exit((fprintf(stderr, "history: what is '%s'?\n", o), 64));
    }
    if (!options.url || options.clients > H_CLIENTS)
        exit((fprintf(stderr, "usage: history URL [OPTION...]\n"), 64));
    if (!options.seed) options.seed = (uint64_t)h_now() / 1000 % 1000000000;
}

int main(int argc, char **argv)
{
    if (argc == 4 && !strcmp(argv[1], "--client")) return be_client(argv[2], argv[3]);
    setvbuf(stdout, NULL, _IOLBF, 0);
    parse(argc, argv);
    signal(SIGPIPE, SIG_IGN);
    printf("# again: history %s --seed %" PRIu64 " --operations %" PRId64 "\n", options.url,
           options.seed, options.operations);
    const char *url = scratch(options.url);
    struct h_porcupine porcupine = {0};
    chances = options.seed;
    threads = !strncmp(options.url, "mem:", 4);
    world_fd = memfd_create("history", 0);
    if (!url || world_fd < 0 || ftruncate(world_fd, sizeof *w)) return perror("history"), 70;
    w = mmap(NULL, sizeof *w, PROT_READ | PROT_WRITE, MAP_SHARED, world_fd, 0);
    if (w == MAP_FAILED) return perror("history"), 70;
    if (options.porcupine && h_porcupine_start(&porcupine, options.porcupine))
        printf("Bail out! %s\n", porcupine.why), exit(70);
    int64_t began = h_now();
    int64_t until = options.seconds ? began + options.seconds * 1000000000 : INT64_MAX;
    int64_t least = options.seconds ? INT64_MAX : options.operations;
    while ((int64_t)sum.operations < least && h_now() < until) {
        make_plan(url);
        int64_t left = least - (int64_t)sum.operations;
        if (left < w->plan.budget) w->plan.budget = left;
        int bad = play(until);
        end_all();
        bad |= judge(&porcupine);
        if (bad) break;
    }
    h_porcupine_end(&porcupine);
    return report(&porcupine, (h_now() - began) / 1000);
}
