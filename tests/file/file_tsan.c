/*
 * file_tsan.c - the `file:` store under real threads, for the thread sanitizer.
 *
 *   file_tsan [MILLISECONDS]
 *
 * The sanitizer sees no race between processes, nor between two mappings of one page. So here the
 * processes are threads: each with a client of its own, all on one mapping. They compete for a few
 * keys and die at random accesses (they jump out of the operation, and are dead for the others from
 * then on); the next one starts in their place. The kernel's byte lock orders the writes of the
 * dead before the reads of the thread that takes over; here that is the table `alive`.
 */
#include "cas_loop.h"
#include "drivers.h"
#include "file_fsck.h"
#include "os.h"
#include "step.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 4, KEYS = 2, BYTES = 4 << 20, LIVES_CAP = 60000, WAIT_US = 20000000, WAKEUP = 3 };

static unsigned char *base;
/* For each slot, 1 + the number of the life that has it; 0: none. */
static _Atomic uint32_t alive[HF_FILE_SLOTS];
static _Atomic uint32_t inside[KEYS];
static _Atomic uint64_t top[KEYS], deaths, grants, conflicts;
static _Atomic int over, n_wrong;
static char why[300];

/* One simulated process: its client, and when it dies. */
struct life {
    uint32_t number;
    int64_t seams; /* accesses that it still makes; negative: no end */
    uint64_t random;
    hf_store *st;
    struct hf_port port;
    hf_party party;
    hf_row row;
    jmp_buf death;
};

static _Thread_local struct life *me;

__attribute__((format(printf, 1, 2))) static void wrong(const char *format, ...)
{
    va_list args;
    if (n_wrong++) return;
    va_start(args, format);
    vsnprintf(why, sizeof why, format, args);
    va_end(args);
    over = 1;
}

void hf__seam(const char *where, const volatile void *at, size_t n, int kind)
{
    (void)where, (void)at, (void)n, (void)kind;
    if (me && me->seams >= 0 && me->seams-- == 0) longjmp(me->death, 1);
}

static uint64_t next_random(void)
{
    uint64_t z = me->random += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* ---- the system ---- */

static int64_t k_now(struct hf__client *c)
{
    (void)c;
    return hf__local_us();
}

static void k_wait(struct hf__client *c, _Atomic uint32_t *word, uint32_t seen, int64_t us)
{
    (void)c;
    if (us > 5000) us = 5000; /* deaths aren't notified: a sleeper looks now and then */
    struct timespec t = {0, us * 1000};
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, &t, NULL, 0);
}

static void k_wake(struct hf__client *c, _Atomic uint32_t *word, int n)
{
    (void)c;
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
}

static int k_probe(struct hf__client *c, int64_t byte)
{
    uint64_t slot = (uint64_t)(byte - (byte >= HF_BYTE_CLIENT ? HF_BYTE_CLIENT : HF_BYTE_SESSION));
    (void)c;
    return slot < HF_FILE_SLOTS && atomic_load(&alive[slot]) != 0;
}

static int k_take_slot(struct hf__client *c, uint32_t slot)
{
    uint32_t nobody = 0;
    (void)c;
    return atomic_compare_exchange_strong(&alive[slot], &nobody, me->number + 1);
}

static int k_grow(struct hf__client *c, uint64_t lines)
{
    (void)c;
    return lines * HF_LINE > BYTES ? ENOSPC : 0;
}

static int k_sync(struct hf__client *c, uint64_t line, uint64_t n)
{
    (void)c, (void)line, (void)n;
    return 0;
}

static int k_same_file(struct hf__client *c, const char **ret_why)
{
    (void)c, (void)ret_why;
    return 0;
}

static const struct hf__file_env kernel = {
    .now = k_now,
    .rough_now = k_now,
    .futex_wait = k_wait,
    .futex_wake = k_wake,
    .probe = k_probe,
    .take_slot = k_take_slot,
    .grow = k_grow,
    .sync = k_sync,
    .same_file = k_same_file,
};

/* ---- living ---- */

static int event(struct life *l, const hf_rowkey *key, struct hf_event *ev, int known)
{
    struct hf_outcome out;
    hf_error err;
    ev->party = &l->party;
    int rc = hf__cas_loop(&l->port, key, ev, &l->row, known, 0, &out, &err);
    if (rc) wrong("%s", err.text);
    return rc ? -1 : (int)out.answer;
}

static void enter(int key)
{
    uint32_t was = atomic_exchange(&inside[key], me->number + 1);
    if (was) wrong("life %u came in while life %u was inside", me->number, was - 1);
    uint64_t before = atomic_exchange(&top[key], me->row.token);
    if (me->row.token <= before) wrong("a token doesn't grow");
    grants++;
}

static void leave(int key) { atomic_store(&inside[key], 0); }

/* Acquires a key. The dead wake no waiter here, so a waiter also polls, as the library's expiry
   monitor does. */
static int acquire(struct life *l, int k, const hf_rowkey *key)
{
    hf_error err;
    struct hf_event ev = {.kind = HF_EV_ENQUEUE};
    uint64_t r = next_random();
    memcpy(l->party.id, &r, sizeof r);
    int rc = hf__port_acquire(&l->port, key, &l->party, 0, &l->row, &err);
    if (rc < 0) wrong("%s", err.text);
    if (!rc) {
        enter(k);
        return 1;
    }
    conflicts++;
    int64_t until = hf__local_us() + WAIT_US;
    while (!n_wrong) {
        hf_event_count since;
        if (hf__file_driver.caps.local->wakeup_begin(l->st, WAKEUP, 0, &since, &err))
            wrong("%s", err.text);
        int answer = event(l, key, &ev, 0);
        if (answer == HF_ANS_GRANTED || answer == HF_ANS_ALREADY) {
            enter(k);
            return 1;
        }
        if (hf__local_us() > until) wrong("life %u waits for ever", l->number);
        if (hf__file_driver.caps.local->sleep(l->st, WAKEUP, &since, until, &err))
            wrong("%s", err.text);
    }
    return 0;
}

static void act(struct life *l)
{
    static const char *const name[KEYS] = {"user/42", "screenings/12/A/5"};
    uint64_t r = next_random(), hint = 0;
    char text[32];
    hf_rowkey key;
    int k = (int)(r & 1);
    struct hf_event end = {.kind = HF_EV_RELEASE};
    if ((r >> 8 & 15) == 0) { /* sometimes a key of its own, which needs cells and space */
        snprintf(text, sizeof text, "new/%u", (unsigned)(r >> 16 & 255));
        struct hf_event try = {.kind = HF_EV_TRY};
        if (hf_key_make(text, &key, NULL)) abort();
        key.hint = &hint;
        l->party.id[0]++;
        if (event(l, &key, &try, 0) == HF_ANS_GRANTED) {
            end.token = l->row.token;
            event(l, &key, &end, 0);
        }
        return;
    }
    if (hf_key_make(name[k], &key, NULL)) abort();
    key.hint = &hint;
    l->party.note_len = (uint8_t)(r >> 24 & 127);
    memset(l->party.note, 'n', l->party.note_len);
    l->party.note[l->party.note_len] = 0;
    if (!acquire(l, k, &key)) return;
    end.token = l->row.token;
    leave(k);
    if (event(l, &key, &end, r >> 40 & 1) != HF_ANS_OK) wrong("a release is refused");
}

static void bury(struct life *l)
{
    uint32_t mine = l->number + 1;
    for (int k = 0; k < KEYS; k++) {
        uint32_t was = mine;
        atomic_compare_exchange_strong(&inside[k], &was, 0);
    }
    for (uint32_t i = 0; i < HF_FILE_SLOTS; i++) {
        uint32_t was = mine;
        if (atomic_compare_exchange_strong(&alive[i], &was, 0)) break;
    }
}

static void live(struct life *l)
{
    hf_error err;
    l->st = NULL;
    hf_row_init(&l->row);
    if (setjmp(l->death)) {
        deaths++;
    } else {
        if (hf__file_attach(base, BYTES / HF_LINE, &kernel, NULL, &l->st, &err))
            wrong("%s", err.text);
        l->port =
            (struct hf_port){.drv = &hf__file_driver, .st = l->st, .caps = hf__file_driver.caps};
        if (!n_wrong && hf__file_session(l->st, &l->port.session, &err)) wrong("%s", err.text);
        l->party.session = l->port.session;
        while (!over) act(l);
    }
    l->seams = -1;
    bury(l);
    if (l->st) hf__file_driver.close(l->st);
    hf_row_clear(&l->row);
}

static void *thread(void *arg)
{
    static _Atomic uint32_t lives;
    struct life l = {.random = (uint64_t)(uintptr_t)arg};
    me = &l;
    l.party.claim_ms = 1000;
    l.party.wakeup = WAKEUP;
    l.party.owner_len = 1;
    l.party.owner[0] = 't';
    while (!over) {
        l.number = lives++;
        if (l.number >= LIVES_CAP) break; /* space that a dead client had allocated is lost */
        l.seams = (int64_t)(next_random() % 3000);
        live(&l);
    }
    me = NULL;
    return NULL;
}

int main(int argc, char **argv)
{
    struct hf__boot boot = {.seq = 1, .offset_us = INT64_C(1600000000000000)};
    pthread_t threads[THREADS];
    struct fsck f;
    long ms = argc > 1 ? strtol(argv[1], NULL, 10) : 3000;
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    base = aligned_alloc(4096, BYTES);
    if (!base) return 70;
    memset(base, 0, BYTES);
    hf__format(base, BYTES / HF_LINE, 0600, &boot);
    for (uintptr_t i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, thread, (void *)(i + 1))) return 70;
    while (!over && nanosleep(&t, &t) && errno == EINTR) {
    }
    over = 1;
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    if (!n_wrong && fsck(base, BYTES / HF_LINE, &f)) wrong("%s", f.why);
    if (!n_wrong && (!deaths || !conflicts)) wrong("nobody died, or nobody met anybody");
    printf("# %llu grants, %llu deaths, %llu met another\n", (unsigned long long)grants,
           (unsigned long long)deaths, (unsigned long long)conflicts);
    if (n_wrong) printf("# %s\n", why);
    printf("%s 1 - threads as processes on one mapping\n1..1\n", n_wrong ? "not ok" : "ok");
    free(base);
    return n_wrong != 0;
}
