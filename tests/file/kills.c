/*
 * kills.c - real SIGKILL: processes on a real `file:` store that die at any access to the mapping.
 *
 *   kills [--kills N] [--jobs N] [--seed N] [--first]
 *
 * Built with -DHF_SEAM: before each access to the mapping the library calls hf__seam(), and the
 * process that has been told to die at its k-th call does so, with all its threads, wherever it is
 * (inside of an allocation, of a recovery, of somebody else's recovery). Several live at a time and
 * compete for the same keys. A holder says so in memory of the test's own, so that two holders at
 * once meet; tokens must grow; nobody may wait for long. After every round nobody is
 * left, and what they leave must be whole: every key can be had, no session is in use, no space is
 * lost.
 */
#include "cas_loop.h"
#include "drivers.h"
#include "file_fsck.h"
#include "holdfast.h"
#include "step.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    VICTIMS = 3,
    ROUND = 1000, /* kills */
    KEYS = 2,
    EVENTS = ROUND,
    PLACES = 512,
    JOBS_CAP = 16,
    LONG_MS = 600000, /* no waiter waits for longer than this */
    /* a grant that takes longer than this came by a claim timeout, not by a wakeup */
    LATE_MS = 900,
    ACTS = 3
};

struct victim {
    pid_t pid;
    uint64_t life;    /* number of this life in the arena; 0: none */
    uint64_t kill_at; /* the access at which it dies; 0: at none */
    _Atomic uint64_t seams;
    _Atomic int dying;
};

/* What a job's processes share besides the store. */
struct arena {
    struct victim victim[VICTIMS];
    _Atomic uint64_t inside[KEYS], top[KEYS];
    _Atomic uint32_t done[EVENTS]; /* how often each event of the round was serviced */
    _Atomic uint64_t kills, lives, waits, late, longest_us, rounds;
    _Atomic(const char *) place[PLACES]; /* where somebody died */
    _Atomic uint32_t deaths_at[PLACES];
    _Atomic int wrong;
    char why[400];
    char dir[64], path[96], url[128];
    uint64_t seed;
};

static struct arena *a;
static struct victim *me; /* in a victim */

static struct {
    uint64_t kills;
    uint64_t seed;
    int jobs, first;
} options = {.kills = 2000, .seed = 1};

static int64_t now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* The first one to notice something says it. */
__attribute__((format(printf, 1, 2))) static void wrong(const char *format, ...)
{
    int none = 0;
    va_list args;
    if (!atomic_compare_exchange_strong(&a->wrong, &none, 1)) return;
    va_start(args, format);
    vsnprintf(a->why, sizeof a->why, format, args);
    va_end(args);
}

/* ---- dying ---- */

static void note_place(const char *where)
{
    for (unsigned i = 0; i < PLACES; i++) {
        const char *seen = NULL;
        if (atomic_compare_exchange_strong(&a->place[i], &seen, where) || seen == where) {
            a->deaths_at[i]++;
            return;
        }
    }
}

void hf__seam(const char *where, const volatile void *at, size_t n, int kind)
{
    (void)at, (void)n, (void)kind;
    if (!me || ++me->seams != me->kill_at) return;
    note_place(where);
    me->dying = 1;
    kill(getpid(), SIGKILL);
    for (;;) pause(); /* until it arrives */
}

/* ---- living ---- */

static int lives(uint64_t life)
{
    const struct victim *v = &a->victim[life % VICTIMS];
    return v->life == life && !v->dying;
}

static void enter(int key, hf_lock *lock)
{
    uint64_t was = atomic_exchange(&a->inside[key], me->life), token = hf_token(lock);
    if (was && lives(was))
        wrong("%llu and %llu are inside at once", (unsigned long long)was,
              (unsigned long long)me->life);
    uint64_t top = atomic_exchange(&a->top[key], token);
    if (token <= top)
        wrong("the token %llu comes after %llu", (unsigned long long)token,
              (unsigned long long)top);
}

static void leave(int key)
{
    uint64_t mine = me->life;
    if (!atomic_compare_exchange_strong(&a->inside[key], &mine, 0))
        wrong("%llu came in while %llu was inside", (unsigned long long)mine,
              (unsigned long long)me->life);
}

static void note_wait(int64_t us)
{
    uint64_t longest = a->longest_us;
    a->waits++;
    a->late += us >= LATE_MS * 1000;
    while ((uint64_t)us > longest &&
           !atomic_compare_exchange_weak(&a->longest_us, &longest, (uint64_t)us)) {
    }
}

/* 0, or the code when it is one that may come. */
static int acquired(int rc, const hf_error *err, int may)
{
    if (rc && rc != may) wrong("%s", err->text);
    return rc;
}

static void lock_key(hf *h, uint64_t r)
{
    static const char *const name[KEYS] = {"screenings/12/A/5", "user/42"};
    char note[HF_NOTE_CAP];
    int key = (int)(r >> 8 & 1), hurried = (r >> 16 & 3) == 0;
    hf_options o = HF_OPTIONS_INIT;
    hf_error err;
    hf_lock *lock;
    memset(note, 'n', sizeof note);
    note[r >> 32 & 255] = 0;
    note[sizeof note - 1] = 0;
    o.note = note;
    o.wait_ms = hurried ? (int64_t)(r >> 24 & 3) : LONG_MS;
    if ((r >> 20 & 3) == 0) o.lease_ms = 60000;
    int64_t began = now_us();
    const hf_options *how = (r >> 18 & 3) == 0 && !hurried ? NULL : &o; /* the shortest way, too */
    int rc = hf_acquire(h, name[key], how, &lock, &err);
    if (rc && hurried && (rc == HF_TIMEOUT || rc == HF_BUSY)) return;
    if (acquired(rc, &err, HF_OK)) return;
    note_wait(now_us() - began);
    enter(key, lock);
    if ((r >> 22 & 3) == 0 && hf_renew(lock, 60000, &err)) wrong("%s", err.text);
    leave(key);
    if (hf_release(lock, &err)) wrong("%s", err.text);
}

static void lock_shared(hf *h, uint64_t r)
{
    hf_options o = HF_OPTIONS_INIT;
    hf_error err;
    hf_lock *lock;
    o.wait_ms = LONG_MS;
    o.mode = r >> 8 & 1 ? HF_SHARED : HF_LIMITED;
    o.limit = o.mode == HF_LIMITED ? 2 : 0;
    if (acquired(hf_acquire(h, o.limit ? "places" : "page", &o, &lock, &err), &err, HF_OK)) return;
    if (hf_release(lock, &err)) wrong("%s", err.text);
}

static void make_key(hf *h, uint64_t r)
{
    char key[64];
    hf_error err;
    hf_lock *lock;
    snprintf(key, sizeof key, "new/%llu", (unsigned long long)(r >> 8 & 2047));
    if (acquired(hf_acquire(h, key, NULL, &lock, &err), &err, HF_OK)) return;
    if (hf_release(lock, &err)) wrong("%s", err.text);
}

static void do_event(hf *h)
{
    hf_options o = HF_OPTIONS_INIT;
    char key[64];
    hf_error err;
    hf_once once;
    uint64_t event = me->life / 6 % EVENTS;
    snprintf(key, sizeof key, "event/%llu", (unsigned long long)event);
    o.wait_ms = LONG_MS;
    int was = a->done[event] != 0;
    if (acquired(hf_once_begin(h, key, 3600000, &o, &once, &err), &err, HF_OK)) return;
    if (!once.lock) {
        if (strcmp(once.result, "sold")) wrong("%s: its result is '%s'", key, once.result);
        return;
    }
    if (was) wrong("%s runs again", key);
    if (hf_once_finish(once.lock, "sold", 3600000, &err))
        wrong("%s", err.text);
    else
        a->done[event]++;
}

_Noreturn static void live(uint64_t seed)
{
    hf_error err;
    hf *h;
    hf_open_options o = HF_OPEN_OPTIONS_INIT;
    o.io_timeout_ms = 60000; /* a process that stands still in a write isn't wrong */
    alarm(LONG_MS / 1000 * 2);
    if (hf_open(a->url, &o, &h, &err)) {
        wrong("%s", err.text);
        _exit(1);
    }
    for (int i = 0; i < ACTS; i++) {
        uint64_t r = next_random(&seed);
        switch (r & 15) {
        case 0:
        case 1: make_key(h, r); break;
        case 2:
        case 3: lock_shared(h, r); break;
        case 4:
        case 5: do_event(h); break;
        default: lock_key(h, r); break;
        }
    }
    if (next_random(&seed) & 1) hf_close(h);
    _exit(0);
}

/* ---- what they leave ---- */

struct visit {
    struct hf_port port;
    uint64_t rows;
};

static int inherit(void *arg, const hf_rowkey *key, hf_row *row)
{
    struct visit *v = arg;
    struct hf_event ev = {.kind = HF_EV_TRY};
    struct hf_outcome out;
    hf_party party = {.session = v->port.session, .id = {1}, .owner_len = 1, .owner = "h"};
    hf_error err;
    const char *why;
    ev.party = &party;
    v->rows++;
    if (hf_row_check(row, &why)) wrong("'%s': %s", key->text, why);
    uint64_t before = row->token;
    int rc = hf__cas_loop(&v->port, key, &ev, row, 0, 0, &out, &err);
    if (rc)
        wrong("%s", err.text);
    else if (out.answer != HF_ANS_GRANTED)
        wrong("'%s' isn't passed on", key->text);
    else if (out.token <= before)
        wrong("'%s': the token doesn't grow", key->text);
    struct hf_event end = {.kind = HF_EV_RELEASE, .token = out.token};
    if (!rc && hf__cas_loop(&v->port, key, &end, row, 0, 0, &out, &err)) wrong("%s", err.text);
    return a->wrong;
}

static void check_sessions(struct hf__client *c)
{
    for (uint32_t i = 0; i < HF_FILE_SLOTS; i++) {
        if (i == (c->session & 0xffff)) continue;
        if (hf__os_probe(c, HF_BYTE_SESSION + i) || hf__os_probe(c, HF_BYTE_CLIENT + i))
            wrong("session slot %u is still in use", i);
    }
}

/* Checks what is left, in a process of its own, while no other process uses the store. */
_Noreturn static void look_after_them(void)
{
    const hf_driver *d = &hf__file_driver;
    struct visit v = {.port = {.drv = d, .caps = d->caps, .io_timeout_ms = 60000}};
    struct fsck f;
    hf_url url;
    hf_error err;
    hf_store *st;
    int64_t clock;
    hf_row row;
    uint64_t hint = 0;
    hf_rowkey key;
    hf_party party = {.id = {2}, .lease_ms = 1};
    if (hf_url_parse(a->url, &url, &err) || d->open(&url, 5000, &st, &(hf_caps){0}, &err) ||
        d->caps.liveness->session(st, &v.port.session, &err) ||
        hf_key_make("the last one", &key, &err)) {
        wrong("%s", err.text);
        _exit(1);
    }
    v.port.st = st;
    check_sessions(&st->c);
    if (d->scan(st, "", inherit, &v, &clock, &err)) wrong("%s", err.text);
    /* A process that makes a key settles an allocation that was left unfinished. */
    hf_row_init(&row);
    key.hint = &hint;
    if (d->acquire(st, &key, &party, 0, &row, &clock, &err)) wrong("a new key can't be made");
    if (fsck(st->c.base, st->c.limit, &f)) wrong("%s", f.why);
    d->close(st);
    _exit(0);
}

static void remove_files(void)
{
    char name[sizeof a->dir + 260];
    DIR *d = opendir(a->dir);
    if (!d) return;
    for (struct dirent *e; (e = readdir(d));) {
        if (e->d_name[0] == '.') continue;
        snprintf(name, sizeof name, "%s/%s", a->dir, e->d_name);
        unlink(name);
    }
    closedir(d);
}

/* ---- a job ---- */

static pid_t spawn(struct victim *v, uint64_t kill_at)
{
    v->kill_at = kill_at;
    v->seams = 0;
    v->dying = 0;
    uint64_t seed = a->seed + v->life * 1000003;
    pid_t pid = fork();
    if (pid < 0) exit((perror("kills: fork"), 70));
    if (!pid) {
        me = v;
        live(seed);
    }
    return v->pid = pid;
}

static void ended(struct victim *v, int status, uint64_t *usual)
{
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && v->dying)
        a->kills++;
    else if (WIFSIGNALED(status))
        wrong("a process ended by signal %d", WTERMSIG(status));
    else if (WEXITSTATUS(status))
        wrong("a process ended with status %d", WEXITSTATUS(status));
    else if (!v->kill_at)
        *usual = (*usual * 15 + v->seams) / 16;
    v->pid = 0;
}

/* Plays a round: victims come and go; then what they have left is checked. */
static void play_round(uint64_t *random, uint64_t *usual)
{
    uint64_t until = a->kills + ROUND;
    int running = 0;
    memset((void *)a->inside, 0, sizeof a->inside);
    memset((void *)a->top, 0, sizeof a->top);
    memset((void *)a->done, 0, sizeof a->done);
    snprintf(a->path, sizeof a->path, "%s/%llu", a->dir, (unsigned long long)++a->rounds);
    snprintf(a->url, sizeof a->url, "file:%s", a->path);
    do {
        int more = a->kills < until && !a->wrong;
        for (int i = 0; i < VICTIMS && more; i++) {
            struct victim *v = &a->victim[i];
            if (v->pid) continue;
            v->life = ++a->lives * VICTIMS + (uint64_t)i;
            /* Some are spared: they say how many accesses a whole life has. */
            int spared = next_random(random) % 8 == 0;
            spawn(v, spared ? 0 : 1 + next_random(random) % (*usual * 5 / 4));
            running++;
        }
        for (int i = 0; i < VICTIMS && a->wrong; i++)
            if (a->victim[i].pid) kill(a->victim[i].pid, SIGKILL);
        int status;
        pid_t pid = wait(&status);
        if (pid < 0) exit((perror("kills: wait"), 70));
        for (int i = 0; i < VICTIMS; i++)
            if (a->victim[i].pid == pid) ended(&a->victim[i], status, usual), running--;
    } while (running || (a->kills < until && !a->wrong));
    if (!a->wrong) {
        int status;
        pid_t pid = fork();
        if (!pid) look_after_them();
        if (pid < 0 || waitpid(pid, &status, 0) < 0) exit((perror("kills: fork"), 70));
        if (WIFSIGNALED(status))
            wrong("the process after them died of signal %d", WTERMSIG(status));
    }
    remove_files();
}

static void job(uint64_t kills)
{
    uint64_t random = a->seed, usual = 300;
    const char *tmp = access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm"; /* nothing has to last */
    snprintf(a->dir, sizeof a->dir, "%s/holdfast-kills.XXXXXX", tmp);
    if (!mkdtemp(a->dir)) exit((perror("kills: mkdtemp"), 70));
    while (a->kills < kills && !a->wrong) play_round(&random, &usual);
    rmdir(a->dir);
}

/* ---- all of it ---- */

static int report(struct arena *arenas, int64_t took_us)
{
    uint64_t kills = 0, lived = 0, longest = 0, waits = 0, late = 0, rounds = 0;
    unsigned places = 0;
    int bad = 0;
    for (int i = 0; i < options.jobs; i++) {
        struct arena *x = &arenas[i];
        kills += x->kills;
        lived += x->lives;
        waits += x->waits;
        late += x->late;
        rounds += x->rounds;
        if (x->longest_us > longest) longest = x->longest_us;
        if (x->wrong) {
            bad = 1;
            printf("# seed %llu, after %llu kills: %s\n", (unsigned long long)x->seed,
                   (unsigned long long)x->kills, x->why);
        }
        unsigned n = 0;
        while (n < PLACES && x->place[n]) n++;
        if (n > places) places = n;
    }
    double took = (double)took_us * 1e-6;
    printf("# %llu kills of %llu lives at %u places, %llu rounds, %.1f s: %.0f kills/s\n",
           (unsigned long long)kills, (unsigned long long)lived, places, (unsigned long long)rounds,
           took, (double)kills / took);
    printf("# %llu acquisitions, the longest took %.0f ms, %llu at least %d ms\n",
           (unsigned long long)waits, (double)longest * 1e-3, (unsigned long long)late, LATE_MS);
    printf("%s 1 - %llu kills: one inside, tokens grow, nobody left behind, the store whole\n",
           bad ? "not ok" : "ok", (unsigned long long)kills);
    int few = kills < options.kills && !options.first;
    printf("%s 2 - at least %llu kills\n1..2\n", few ? "not ok" : "ok",
           (unsigned long long)options.kills);
    return bad || few;
}

static uint64_t number(const char *name, const char *text)
{
    char *end;
    unsigned long long v = text ? strtoull(text, &end, 10) : 0;
    if (!text || *end || end == text) {
        fprintf(stderr, "kills: %s wants a number\n", name);
        exit(64);
    }
    return v;
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *o = argv[i];
        if (!strcmp(o, "--first"))
            options.first = 1;
        else if (!strcmp(o, "--kills"))
            options.kills = number(o, argv[++i]);
        else if (!strcmp(o, "--seed"))
            options.seed = number(o, argv[++i]);
        else if (!strcmp(o, "--jobs"))
            options.jobs = (int)number(o, argv[++i]);
        else
            exit((fprintf(stderr, "kills: what is '%s'?\n", o), 64));
    }
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    if (!options.jobs) options.jobs = cpus < 1 ? 1 : (int)cpus;
    if (options.jobs > JOBS_CAP) options.jobs = JOBS_CAP;
    struct arena *arenas = mmap(NULL, sizeof *arenas * (size_t)options.jobs, PROT_READ | PROT_WRITE,
                                MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (arenas == MAP_FAILED) return perror("kills: mmap"), 70;
    int64_t began = now_us();
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int i = 0; i < options.jobs; i++) {
        a = &arenas[i];
        a->seed = options.seed * 1000 + (uint64_t)i;
        pid_t pid = fork();
        if (pid < 0) return perror("kills: fork"), 70;
        if (!pid) {
            job((options.kills + (uint64_t)options.jobs - 1) / (uint64_t)options.jobs);
            _exit(0);
        }
    }
    int failed = 0, status;
    while (wait(&status) > 0) failed |= status;
    return report(arenas, now_us() - began) || failed;
}
