/*
 * explore.c - every interleaving of three processes on one `file:` store, with deaths.
 *
 *   explore [--scene NAME] [--preemptions N] [--deaths N] [--seconds N] [--each N]
 *           [--executions N] [--jobs N] [--first] [--unpruned]
 *   explore --check [...]         looks twice, with and without pruning: the ends are the same
 *   explore --replay STRING       repeats one execution and shows it
 *   explore --list                names the scenes
 *
 * Looks at every scene with more and more preemptions and deaths, up to 2 and 1 if nothing else is
 * asked for, and at one preemption less with one death more: the second is of who cleans up behind
 * the first. Without --seconds it takes as long as it takes; with it every part gets its share of
 * them. --each: no part gets more executions than that, however fast the machine is.
 * A violation comes with a string for --replay; --first stops at it. --executions: fails if there
 * were fewer. --unpruned: goes on from known states, too.
 */
#include "explore.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ITEMS_CAP = 1024, REPLAY_CAP = 2000, JOBS_CAP = 64 };

/* A part of the search, which one job does at a time. */
struct item {
    const struct v_scene *scene;
    struct v_budget budget;
    int first; /* which process begins */
    int unpruned;
    /* what came of it */
    int complete;
    uint64_t executions, whole, known, cut, violations, steps, ends, sum_of_ends;
    double seconds;
    char wrong[400], replay[REPLAY_CAP];
};

static struct shared {
    _Atomic uint32_t next;
    _Atomic uint64_t executions;
    _Atomic int stop;
    uint32_t n;
    struct item item[ITEMS_CAP];
} *shared;

static struct {
    uint64_t executions; /* 0: no limit */
    uint64_t each;       /* 0: no limit */
    double seconds;      /* 0: no limit */
    int preemptions, deaths, jobs, unpruned, first, check;
    const char *scene;
} options = {.preemptions = 2, .deaths = 1, .jobs = 0};

static double started;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void v_trace(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
}

/* ---- one part ---- */

static void note_violation(struct item *it)
{
    if (it->violations++) return;
    char list[REPLAY_CAP - 100];
    v_search_print(list, sizeof list);
    snprintf(it->wrong, sizeof it->wrong, "%s", v_wrong());
    snprintf(it->replay, sizeof it->replay, "%s/%d/%d/%s", it->scene->name, it->budget.preemptions,
             it->budget.deaths, list);
}

static int enough(uint64_t done, double until)
{
    if (shared->stop || (options.each && done >= options.each)) return 1;
    return done % 64 == 0 && options.seconds > 0 && now() >= until;
}

static void do_item(struct item *it, double until)
{
    double begin = now();
    if (v_world_open(it->scene)) exit(1);
    v_search_begin(it->first, !it->unpruned, it->budget.preemptions + it->budget.deaths);
    v_steps = 0;
    for (;;) {
        enum v_end how = v_execute(it->budget);
        it->executions++;
        it->whole += how == V_WHOLE;
        it->known += how == V_KNOWN;
        it->cut += how == V_CUT;
        if (how == V_WRONG) {
            note_violation(it);
            if (options.first) shared->stop = 1;
        }
        if (!v_search_next()) {
            it->complete = !it->cut;
            break;
        }
        if (enough(it->executions, until)) break;
    }
    it->ends = v_search_ends(&it->sum_of_ends);
    it->steps = v_steps;
    it->seconds = now() - begin;
    shared->executions += it->executions;
}

static void job(void)
{
    for (;;) {
        uint32_t i = shared->next++;
        if (i >= shared->n || shared->stop) return;
        double left = started + options.seconds - now(), share = left * options.jobs;
        if (options.seconds > 0 && left <= 0) return;
        do_item(&shared->item[i], now() + share / (shared->n - i));
    }
}

/* ---- all of it ---- */

static void add(const struct v_scene *s, int preemptions, int deaths)
{
    for (int first = 0; first < V_PROCS; first++)
        for (int twice = 0; twice <= options.check && shared->n < ITEMS_CAP; twice++)
            shared->item[shared->n++] = (struct item){.scene = s,
                                                      .budget = {preemptions, deaths},
                                                      .first = first,
                                                      .unpruned = options.unpruned || twice};
}

static int wanted(const struct v_scene *s)
{
    return !options.scene || !strcmp(options.scene, s->name);
}

/* Plans small budgets first, because their findings are easier to read. */
static void plan(void)
{
    for (int sum = 0; sum <= options.preemptions + options.deaths; sum++)
        for (int p = sum; p >= 0; p--) {
            int d = sum - p;
            /* Two deaths cost one preemption: the second is of a being that cleans up. */
            int fits = p <= options.preemptions && d <= options.deaths;
            int twice = p <= options.preemptions - 1 && d <= options.deaths + 1;
            if (!fits && !twice) continue;
            for (size_t i = 0; i < v_n_scenes; i++)
                if (wanted(&v_scenes[i])) add(&v_scenes[i], p, d);
        }
}

static int run_jobs(void)
{
    pid_t child[JOBS_CAP];
    int bad = 0;
    for (int i = 0; i < options.jobs; i++) {
        child[i] = fork();
        if (child[i] < 0) exit((perror("explore: fork"), 70));
        if (!child[i]) {
            job();
            fflush(stdout);
            _exit(0);
        }
    }
    for (int i = 0; i < options.jobs; i++) {
        int status;
        if (waitpid(child[i], &status, 0) < 0 || status) bad = 1;
    }
    return bad;
}

/* Reports a scene: one test point each. */
static int report_scene(const struct v_scene *s, int number)
{
    struct item sum = {0};
    const struct item *bad = NULL;
    uint64_t ends = 0;
    int parts = 0, complete = 0, differ = 0;
    for (uint32_t i = 0; i < shared->n; i++) {
        const struct item *it = &shared->item[i];
        if (it->scene != s) continue;
        parts++;
        complete += it->complete;
        sum.executions += it->executions;
        sum.whole += it->whole;
        sum.known += it->known;
        sum.cut += it->cut;
        sum.steps += it->steps;
        sum.seconds += it->seconds;
        sum.violations += it->violations;
        if (it->violations && !bad) bad = it;
        if (options.check && it->unpruned)
            differ += it->ends != it[-1].ends || it->sum_of_ends != it[-1].sum_of_ends;
        ends += it->ends;
    }
    int ok = !bad && !sum.cut && sum.executions && !differ;
    printf("%s %d - %s: %llu executions (%llu to the end, %llu to a known state), %llu steps, "
           "%llu ends, %llu cut, %llu violations; %d of %d parts complete, %.1f s\n",
           ok ? "ok" : "not ok", number, s->name, (unsigned long long)sum.executions,
           (unsigned long long)sum.whole, (unsigned long long)sum.known,
           (unsigned long long)sum.steps, (unsigned long long)ends, (unsigned long long)sum.cut,
           (unsigned long long)sum.violations, complete, parts, sum.seconds);
    if (differ) printf("# pruning loses something in %d parts\n", differ);
    if (bad) printf("# %s\n# explore --replay '%s'\n", bad->wrong, bad->replay);
    return !ok;
}

static int explore(void)
{
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) exit((perror("explore: mmap"), 70));
    plan();
    if (!shared->n) exit((fprintf(stderr, "explore: no scene '%s'\n", options.scene), 64));
    started = now();
    int bad = run_jobs(), number = 0;
    for (size_t i = 0; i < v_n_scenes; i++)
        if (wanted(&v_scenes[i])) bad |= report_scene(&v_scenes[i], ++number);
    uint64_t n = shared->executions, steps = 0;
    for (uint32_t i = 0; i < shared->n; i++) steps += shared->item[i].steps;
    double took = now() - started;
    printf(
        "# %llu executions, %llu steps, in %.1f s by %d jobs: %.0f executions/s, %.1f M steps/s\n",
        (unsigned long long)n, (unsigned long long)steps, took, options.jobs, (double)n / took,
        (double)steps / took / 1e6);
    if (options.executions && n < options.executions) {
        printf("not ok %d - at least %llu executions\n", ++number,
               (unsigned long long)options.executions);
        bad = 1;
    }
    printf("1..%d\n", number);
    return bad;
}

/* ---- one execution again ---- */

static int replay(const char *text)
{
    char scene[32];
    struct v_budget budget;
    int used = 0;
    if (sscanf(text, "%31[^/]/%d/%d/%n", scene, &budget.preemptions, &budget.deaths, &used) != 3 ||
        !used || !v_search_replay(text + used)) {
        fprintf(stderr, "explore: '%s' is not a string for --replay\n", text);
        return 64;
    }
    for (size_t i = 0; i < v_n_scenes; i++) {
        if (strcmp(v_scenes[i].name, scene)) continue;
        if (v_world_open(&v_scenes[i])) return 1;
        v_tracing = 1;
        enum v_end how = v_execute(budget);
        printf("%s\n", how == V_WRONG ? v_wrong()
                       : how == V_CUT ? "cut: too long"
                                      : "as it should be");
        return how == V_WRONG;
    }
    fprintf(stderr, "explore: no scene '%s'\n", scene);
    return 64;
}

/* ---- the command line ---- */

static double number(const char *name, const char *text)
{
    char *end;
    double v = text ? strtod(text, &end) : -1;
    if (!text || *end || end == text || v < 0 || v > 1e12) {
        fprintf(stderr, "explore: %s wants a number\n", name);
        exit(64);
    }
    return v;
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *o = argv[i], *value = argv[i + 1];
        if (!strcmp(o, "--unpruned"))
            options.unpruned = 1;
        else if (!strcmp(o, "--check"))
            options.check = 1;
        else if (!strcmp(o, "--first"))
            options.first = 1;
        else if (!strcmp(o, "--list")) {
            for (size_t k = 0; k < v_n_scenes; k++)
                printf("%-10s %s\n", v_scenes[k].name, v_scenes[k].about);
            return 0;
        } else if (!strcmp(o, "--replay") && value)
            return replay(value);
        else if (!strcmp(o, "--scene") && value)
            options.scene = argv[++i];
        else if (!strcmp(o, "--executions"))
            options.executions = (uint64_t)number(o, argv[++i]);
        else if (!strcmp(o, "--each"))
            options.each = (uint64_t)number(o, argv[++i]);
        else if (!strcmp(o, "--seconds"))
            options.seconds = number(o, argv[++i]);
        else if (!strcmp(o, "--preemptions"))
            options.preemptions = (int)number(o, argv[++i]);
        else if (!strcmp(o, "--deaths"))
            options.deaths = (int)number(o, argv[++i]);
        else if (!strcmp(o, "--jobs"))
            options.jobs = (int)number(o, argv[++i]);
        else
            exit((fprintf(stderr, "explore: what is '%s'?\n", o), 64));
    }
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    if (!options.jobs) options.jobs = cpus < 1 ? 1 : cpus > JOBS_CAP ? JOBS_CAP : (int)cpus;
    if (options.jobs > JOBS_CAP) options.jobs = JOBS_CAP;
    setvbuf(stdout, NULL, _IOLBF, 0);
    return explore();
}
