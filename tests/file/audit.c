/*
 * audit.c - the `file:` store, one instruction at a time.
 *
 * A child does one operation while its parent, by ptrace, executes it instruction by instruction.
 * Built twice:
 *
 *   with -DHF_SEAM  After each instruction the mapping is compared with what it was: every byte
 * that changed must be one that the last seam said would be written. So nothing changes behind the
 * backs of explore.c and kills.c. without         The code that users run. The operation is done
 * again and again; each time the child is killed one instruction later, and the parent has to find
 * the store whole, the old row or the new one, and the key to be had.
 *
 * Linked with -z now: otherwise most of the instructions would bind symbols.
 */
#include "cas_loop.h"
#include "drivers.h"
#include "file_fsck.h"
#include "step.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WINDOW = 32 << 10, STEPS_CAP = 60000, DEAD_SLOT = 9, DEAD_GENERATION = 7 };

/* One of the two processes: the parent, or the child. */
struct side {
    hf_store *st;
    struct hf_port port;
    hf_rowkey key[3]; /* the first two in one bucket */
    uint64_t hint[3];
    hf_party party;
    hf_row row;
};

struct op {
    const char *name;
    void (*before)(struct side *parent); /* prepares the store that the case starts with */
    void (*first)(struct side *child);   /* what the child does before it is traced */
    void (*between)(struct side *parent);
    void (*act)(struct side *child);
};

/* Said by the child. */
static volatile struct said {
    const char *where;
    uint64_t at, n;
    int kind;
} *said;

static char dir[64], path[96], url[128], wrong_text[300];
static struct side parent, child;

__attribute__((format(printf, 1, 2))) static int wrong(const char *format, ...)
{
    va_list args;
    if (wrong_text[0]) return -1;
    va_start(args, format);
    vsnprintf(wrong_text, sizeof wrong_text, format, args);
    va_end(args);
    return -1;
}

/* A clock that stands still. What depends on time (a check of the file once a second) is then the
   same in each run, however busy the machine is. The kernel's own clock read is a loop that starts
   again when a tick comes in between: it would never end if each instruction takes longer than a
   tick. */
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret)
{
    static struct timespec start[16]; /* the parent's, and so its children's */
    if ((size_t)clock >= sizeof start / sizeof *start) abort();
    if (!start[clock].tv_sec && syscall(SYS_clock_gettime, clock, &start[clock])) return -1;
    *ret = start[clock];
    return 0;
}

/* A session takes the first slot that is free from a random one on: here always the first, so that
 * none is in the place of the dead (DEAD_SLOT), and every run goes the same way. */
void __wrap_hf__random(void *to, size_t len);
void __wrap_hf__random(void *to, size_t len) { memset(to, HF_FILE_SLOTS, len); }

#ifdef HF_SEAM
void hf__seam(const char *where, const volatile void *at, size_t n, int kind)
{
    if (!child.st || !(kind & HF_SEAM_WRITE)) return;
    said->where = where;
    said->at = hf__offset_of(&child.st->c, at);
    said->n = n;
    said->kind = kind;
}
#endif

/* ---- sides ---- */

static void name_keys(struct side *s)
{
    static char text[3][16];
    for (int i = 0, n = 0; i < 3; n++) {
        snprintf(text[i], sizeof text[i], "seat/%d", n % 1000);
        if (hf_key_make(text[i], &s->key[i], NULL)) abort();
        int same =
            (s->key[i].hash & (HF_FILE_BUCKETS - 1)) == (s->key[0].hash & (HF_FILE_BUCKETS - 1));
        s->key[i].hint = &s->hint[i];
        if (same == (i != 2)) i++;
    }
}

static void open_side(struct side *s, char name)
{
    hf_url u;
    hf_error err;
    memset(s, 0, sizeof *s);
    name_keys(s);
    s->port.drv = &hf__file_driver;
    s->port.caps = hf__file_driver.caps;
    if (hf_url_parse(url, &u, &err) ||
        hf__file_driver.open(&u, 60000, &s->st, &(hf_caps){0}, &err) ||
        hf__file_session(s->st, &s->port.session, &err)) {
        fprintf(stderr, "audit: %s\n", err.text);
        exit(70);
    }
    s->port.st = s->st;
    s->party.id[0] = (uint8_t)name;
    s->party.session = s->port.session;
    s->party.claim_ms = 1000;
    s->party.wakeup = 1;
    s->party.owner_len = 1;
    s->party.owner[0] = name;
    hf_row_init(&s->row);
}

static int event(struct side *s, int key, struct hf_event *ev, struct hf_outcome *out)
{
    hf_error err;
    ev->party = &s->party;
    int rc = hf__cas_loop(&s->port, &s->key[key], ev, &s->row, 0, 0, out, &err);
    return rc ? wrong("%s", err.text) : 0;
}

static void take(struct side *s, int key)
{
    hf_error err;
    if (hf__port_acquire(&s->port, &s->key[key], &s->party, 0, &s->row, &err))
        wrong("a take is refused");
}

static void give_back(struct side *s, int key)
{
    struct hf_event ev = {.kind = HF_EV_RELEASE, .token = s->row.token};
    struct hf_outcome out;
    event(s, key, &ev, &out);
}

static void enqueue(struct side *s, int key)
{
    struct hf_event ev = {.kind = HF_EV_ENQUEUE};
    struct hf_outcome out;
    event(s, key, &ev, &out);
}

/* ---- operations ---- */

static void key_exists(struct side *s)
{
    take(s, 0);
    give_back(s, 0);
}

static void holds(struct side *s) { take(s, 0); }
static void waits(struct side *s) { enqueue(s, 0); }
static void releases(struct side *s) { give_back(s, 0); }
static void releases_plainly(struct side *s)
{
    hf_row row;
    hf_error err;
    hf_row_init(&row);
    row.rev = s->row.rev + 1;
    row.token = s->row.token;
    if (hf__port_replace(&s->port, &s->key[0], s->row.rev, &row, NULL, &err)) wrong("not released");
}

static void makes_a_key(struct side *s) { take(s, 2); }
static void makes_a_neighbour(struct side *s) { take(s, 1); }

static void writes_much(struct side *s)
{
    s->party.note_len = 250;
    memset(s->party.note, 'n', 250);
    enqueue(s, 0);
}

static void finishes(struct side *s)
{
    struct hf_event ev = {.kind = HF_EV_FINISH,
                          .token = s->row.token,
                          .result = "sold",
                          .result_len = 4,
                          .keep_us = INT64_MAX};
    struct hf_outcome out;
    event(s, 0, &ev, &out);
}

static void deletes(struct side *s)
{
    hf_error err;
    if (hf__port_get(&s->port, &s->key[0], &s->row, &err) ||
        hf__port_replace(&s->port, &s->key[0], s->row.rev, NULL, NULL, &err))
        wrong("not deleted");
}

static void a_key_was_deleted(struct side *s)
{
    key_exists(s);
    deletes(s);
}

/* Returns the lock word of a session whose slot no process has. */
static uint64_t word_of_the_dead(struct side *s)
{
    atomic_store(&hf__slot_at(&s->st->c, DEAD_SLOT)->generation, hf__seal(DEAD_GENERATION));
    return hf__lock_word(hf__session_id(DEAD_GENERATION, DEAD_SLOT));
}

static void bucket_of_the_dead(struct side *s)
{
    key_exists(s);
    atomic_store(&hf__bucket_at(&s->st->c, s->key[0].hash)->lock, word_of_the_dead(s));
}

/* A process died that had taken space for a key's cell and not used it. */
static void allocation_of_the_dead(struct side *s)
{
    key_exists(s);
    struct hf__client *c = &s->st->c;
    struct hf__alloc *a = HF_ALLOC(c);
    uint64_t bump = atomic_load(&a->bump), line = hf__unseal(bump);
    atomic_store(&a->lock, word_of_the_dead(s));
    atomic_store(&a->intent_word,
                 hf__seal(hf__offset_of(c, &hf__bucket_at(c, s->key[2].hash)->head) / 8));
    atomic_store(&a->intent_link, hf__seal(line));
    atomic_store(&a->intent_bump, bump);
    atomic_store(&a->bump, hf__seal(line + 10));
}

static void takes(struct side *s) { take(s, 0); }

static const struct op ops[] = {
    {"take", key_exists, NULL, NULL, takes},
    {"release", key_exists, holds, NULL, releases_plainly},
    {"enqueue", holds, NULL, NULL, waits},
    {"handover", key_exists, holds, waits, releases},
    {"take over a bucket", bucket_of_the_dead, NULL, NULL, takes},
    {"make a key", key_exists, NULL, NULL, makes_a_key},
    {"take over the allocator", allocation_of_the_dead, NULL, NULL, makes_a_key},
    {"outgrow a body", holds, NULL, NULL, writes_much},
    {"finish an event", key_exists, holds, NULL, finishes},
    {"delete", key_exists, NULL, NULL, deletes},
    {"use a deleted key's cell", a_key_was_deleted, NULL, NULL, makes_a_neighbour},
};

/* ---- the child ---- */

/* A child that stands in front of its operation. */
static pid_t spawn(const struct op *op)
{
    int status;
    pid_t pid = fork();
    if (pid < 0) exit((perror("audit: fork"), 70));
    if (!pid) {
        wrong_text[0] = 0;
        open_side(&child, 'c');
        if (op->first) op->first(&child);
        if (ptrace(PTRACE_TRACEME, 0, 0, 0)) _exit(70);
        raise(SIGSTOP);
        op->act(&child);
        raise(SIGSTOP);
        _exit(0);
    }
    if (waitpid(pid, &status, 0) < 0 || !WIFSTOPPED(status)) {
        wrong("%s: the child didn't get to its operation", op->name);
        return -1;
    }
    if (op->between) op->between(&parent);
    return pid;
}

static void end(pid_t pid)
{
    int status;
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
}

/* Executes one instruction. 1: done; 0: the operation is over. */
static int step(pid_t pid)
{
    int status;
    if (ptrace(PTRACE_SINGLESTEP, pid, 0, 0) < 0) return 0;
    if (waitpid(pid, &status, 0) < 0 || !WIFSTOPPED(status)) return 0;
    if (WSTOPSIG(status) != SIGTRAP && WSTOPSIG(status) != SIGSTOP)
        wrong("the child got signal %d", WSTOPSIG(status));
    return WSTOPSIG(status) == SIGTRAP;
}

/* ---- what a death leaves ---- */

static void check_key(int key, uint64_t token_before)
{
    struct hf_event promote = {.kind = HF_EV_PROMOTE}, try = {.kind = HF_EV_TRY};
    struct hf_outcome out;
    const char *why;
    memcpy(promote.id, parent.party.id, sizeof promote.id);
    if (event(&parent, key, &promote, &out)) return;
    if (hf_row_check(&parent.row, &why)) wrong("the row: %s", why);
    for (uint32_t i = 0; i < parent.row.n_holders + parent.row.n_queue; i++)
        if (parent.row.party[i].session != parent.port.session)
            wrong("the dead still stands there");
    if (parent.row.n_holders) give_back(&parent, key);
    if (event(&parent, key, &try, &out)) return;
    if (out.answer != HF_ANS_GRANTED) wrong("the key can't be had");
    if (out.token <= token_before) wrong("the token doesn't grow");
    give_back(&parent, key);
}

static void check_store(uint64_t token_before)
{
    struct fsck f;
    for (int key = 0; key < 3 && !wrong_text[0]; key++) check_key(key, key ? 0 : token_before);
    if (fsck(parent.st->c.base, atomic_load(&parent.st->c.limit), &f)) wrong("%s", f.why);
    if (f.locked) wrong("a lock word is left behind");
}

#ifdef HF_SEAM

/* ---- every change is one that a seam announced ---- */

static int look_at(const struct op *op)
{
    static unsigned char was[WINDOW];
    unsigned long steps = 0, changes = 0;
    const unsigned char *base = parent.st->c.base;
    pid_t pid = spawn(op);
    if (pid < 0) return -1;
    memcpy(was, base, WINDOW);
    said->n = 0;
    while (!wrong_text[0] && step(pid)) {
        steps++;
        if (!memcmp(was, base, WINDOW)) continue;
        changes++;
        for (size_t i = 0; i < WINDOW; i++) {
            if (was[i] == base[i]) continue;
            if (i >= said->at && i < said->at + said->n) continue;
            wrong("offset %zu changed, but the last seam, '%s', spoke of %llu to %llu", i,
                  said->n ? said->where : "none", (unsigned long long)said->at,
                  (unsigned long long)(said->at + said->n));
        }
        memcpy(was, base, WINDOW);
    }
    end(pid);
    if (!changes) wrong("nothing changed");
    if (!wrong_text[0]) check_store(0);
    printf("%s", wrong_text[0] ? "not ok" : "ok");
    return printf(" %d - %s: %lu instructions, %lu changes\n", (int)(op - ops) + 1, op->name, steps,
                  changes) < 0;
}

#else

/* ---- a death at every instruction ---- */

static unsigned char image[WINDOW]; /* copied from the store, again and again */

static void save(void) { memcpy(image, parent.st->c.base, WINDOW); }

static void restore(void)
{
    memcpy(parent.st->c.base, image, WINDOW);
    memset(parent.hint, 0, sizeof parent.hint);
}

struct place {
    uint64_t pc;
    uint32_t nth; /* time that the operation comes there */
};

static uint64_t pc_of(pid_t pid)
{
#if defined(__x86_64__)
    struct user_regs_struct r;
    return ptrace(PTRACE_GETREGS, pid, 0, &r) ? 0 : r.rip;
#else
    (void)pid;
    return 0;
#endif
}

static size_t walk(const struct op *op, struct place *places)
{
    size_t n = 0;
    pid_t pid = spawn(op);
    if (pid < 0) return 0;
    while (n < STEPS_CAP && step(pid)) {
        struct place p = {pc_of(pid), 1};
        for (size_t i = n; i-- > 0;)
            if (places[i].pc == p.pc) {
                p.nth = places[i].nth + 1;
                break;
            }
        places[n++] = p;
    }
    end(pid);
    return n;
}

#if defined(__x86_64__)
/* Lets the child run until it reaches the place for the nth time. Returns 0 if it never does. */
static int run_to(pid_t pid, const struct place *p)
{
    struct user_regs_struct r;
    int status;
    errno = 0;
    long word = ptrace(PTRACE_PEEKTEXT, pid, p->pc, 0);
    if (errno) return 0;
    for (uint32_t nth = 1;; nth++) {
        if (ptrace(PTRACE_POKETEXT, pid, p->pc, (word & ~0xffL) | 0xcc)) return 0;
        if (ptrace(PTRACE_CONT, pid, 0, 0) || waitpid(pid, &status, 0) < 0) return 0;
        if (!WIFSTOPPED(status) || WSTOPSIG(status) != SIGTRAP) return 0;
        if (nth == p->nth) return 1; /* it stops right behind the breakpoint instruction */
        if (ptrace(PTRACE_POKETEXT, pid, p->pc, word) || ptrace(PTRACE_GETREGS, pid, 0, &r))
            return 0;
        r.rip = p->pc;
        if (ptrace(PTRACE_SETREGS, pid, 0, &r) || !step(pid)) return 0;
    }
}
#endif

static int kill_at(const struct op *op, const struct place *places, size_t k)
{
    int there = 1;
    pid_t pid = spawn(op);
    if (pid < 0) return 0;
#if defined(__x86_64__)
    there = run_to(pid, &places[k]);
#else
    (void)places;
    for (size_t i = 0; i <= k && there; i++) there = step(pid);
#endif
    end(pid);
    return there;
}

static int look_at(const struct op *op)
{
    static struct place places[STEPS_CAP];
    size_t n, kills = 0;
    uint64_t before = parent.row.token;
    save();
    n = walk(op, places);
    for (size_t k = 0; k < n && !wrong_text[0]; k++) {
        restore();
        kills += kill_at(op, places, k) != 0;
        check_store(before);
        if (wrong_text[0]) printf("# after instruction %zu of %zu\n", k + 1, n);
    }
    if (!n || kills < n) wrong("only %zu of %zu instructions were found again", kills, n);
    printf("%s", wrong_text[0] ? "not ok" : "ok");
    return printf(" %d - %s: killed at each of %zu instructions\n", (int)(op - ops) + 1, op->name,
                  kills) < 0;
}

#endif

int main(int argc, char **argv)
{
    int bad = 0;
    const char *tmp = access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm";
    snprintf(dir, sizeof dir, "%s/holdfast-audit.XXXXXX", tmp);
    if (!mkdtemp(dir)) return perror("audit: mkdtemp"), 70;
    said = mmap(NULL, sizeof *said, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (said == MAP_FAILED) return perror("audit: memory"), 70;
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (const struct op *op = ops; op < ops + sizeof ops / sizeof *ops; op++) {
        if (argc > 1 && strcmp(argv[1], op->name)) continue;
        snprintf(path, sizeof path, "%s/%d", dir, (int)(op - ops));
        snprintf(url, sizeof url, "file:%s", path);
        wrong_text[0] = 0;
        open_side(&parent, 'p');
        op->before(&parent);
        look_at(op);
        if (wrong_text[0]) printf("# %s\n", wrong_text);
        bad |= wrong_text[0] != 0;
        hf__file_driver.close(parent.st);
        unlink(path);
    }
    rmdir(dir);
    printf("1..%zu\n", sizeof ops / sizeof *ops);
    return bad;
}
