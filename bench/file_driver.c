/*
 * file_driver.c - what the `file:` driver itself costs, beside what limits it.
 *
 *     file_driver [URL]        default: a store of its own under $TMPDIR
 */
#include "drivers.h"
#include "os.h"
#include "step.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 200, KEYS = 1000 };

static double best;

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* The best of many short rounds: on a shared machine the others measure the neighbours. */
#define MEASURE(what, n, body)                            \
    do {                                                  \
        best = 1e9;                                       \
        for (int round_ = 0; round_ < ROUNDS; round_++) { \
            double start_ = seconds();                    \
            for (int i = 0; i < (n); i++) body;           \
            double took_ = (seconds() - start_) / (n);    \
            if (took_ < best) best = took_;               \
        }                                                 \
        printf("%-44s %8.1f ns\n", what, best * 1e9);     \
    } while (0)

static void must(int rc, const hf_error *err)
{
    if (rc == 0) return;
    fprintf(stderr, "file_driver: %s\n", err->text);
    exit(1);
}

static void party_of(hf_party *p, uint64_t session)
{
    memset(p, 0, sizeof *p);
    hf__random(p->id, sizeof p->id);
    p->session = session;
    p->owner_len = (uint8_t)snprintf(p->owner, sizeof p->owner, "%032d", 7);
    p->note_len = (uint8_t)snprintf(p->note, sizeof p->note, "host pid 12345 user build: ./bench");
}

static void pair(hf_store *st, const hf_rowkey *key, const hf_party *p, hf_row *row, hf_error *err)
{
    int64_t clock_us;
    must(hf__file_driver.acquire(st, key, p, 0, row, &clock_us, err), err);
    uint64_t seen = row->rev++;
    row->n_holders = 0;
    must(hf__file_driver.replace(st, key, seen, row, NULL, &clock_us, err), err);
}

/* A turn on a row with waiters: the holder releases, the next waiter claims, the first party gets
   in line again. */
struct turn {
    struct hf_event ev;
    hf_party p; /* the holder that releases */
};

static int in_turn(void *arg, hf_row *row)
{
    struct turn *t = arg;
    if (hf_row_room(row, row->n_holders + row->n_queue + 1)) return HF_NOMEM;
    t->ev.now.lo_us = t->ev.now.hi_us = (int64_t)row->rev;
    if (t->ev.kind == HF_EV_RELEASE) {
        hf_party_copy(&t->p, &row->party[0]);
        t->ev.token = t->p.token;
    }
    struct hf_outcome out = hf__step(row, &t->ev);
    return out.changed;
}

static void turn(hf_store *st, const hf_rowkey *key, struct turn *t, hf_row *row, hf_error *err)
{
    hf_party next;
    t->ev.kind = HF_EV_RELEASE;
    must(hf__file_driver.caps.local->update(st, key, in_turn, t, row, err), err);
    t->ev.kind = HF_EV_ENQUEUE;
    hf_party_copy(&next, &row->party[0]);
    t->ev.party = &next;
    must(hf__file_driver.caps.local->update(st, key, in_turn, t, row, err), err);
    t->ev.party = &t->p;
    must(hf__file_driver.caps.local->update(st, key, in_turn, t, row, err), err);
}

static void crowd(hf_store *st, const hf_rowkey *key, const hf_party *p, hf_row *row, int n,
                  hf_error *err)
{
    struct turn t = {.ev = {.kind = HF_EV_ENQUEUE, .holders_cap = 256, .queue_cap = 256}};
    for (int i = 0; i < n; i++) {
        hf_party_copy(&t.p, p);
        memcpy(t.p.id, &i, sizeof i);
        t.p.claim_ms = 100;
        t.ev.party = &t.p;
        must(hf__file_driver.caps.local->update(st, key, in_turn, &t, row, err), err);
    }
    char what[64];
    snprintf(what, sizeof what, "a turn of %d: 3 updates", n);
    MEASURE(what, 2000, turn(st, key, &t, row, err));
}

static void flock_pair(int fd)
{
    if (flock(fd, LOCK_EX) || flock(fd, LOCK_UN)) exit(1);
}

int main(int argc, char **argv)
{
    static char text[KEYS][32];
    static hf_rowkey key[KEYS];
    static uint64_t hint[KEYS];
    const char *dir = getenv("TMPDIR");
    char url[400], path[300];
    hf_url parsed;
    hf_error err;
    hf_store *st;
    hf_caps caps;
    hf_row row;
    hf_party p;
    uint64_t session;
    int64_t clock_us;
    snprintf(path, sizeof path, "%s/holdfast-bench-%d", dir ? dir : "/tmp", (int)getpid());
    snprintf(url, sizeof url, "file:%s", path);
    must(hf_url_parse(argc > 1 ? argv[1] : url, &parsed, &err), &err);
    must(hf__open_store(&hf__file_driver, &parsed, 5000, &st, &caps, &err), &err);
    must(hf__file_driver.caps.liveness->session(st, &session, &err), &err);
    party_of(&p, session);
    hf_row_init(&row);
    for (int i = 0; i < KEYS; i++) {
        snprintf(text[i], sizeof text[i], "screenings/12/A/%d", i);
        must(hf_key_make(text[i], &key[i], &err), &err);
        key[i].hint = &hint[i];
    }
    char other[320];
    snprintf(other, sizeof other, "%s.flock", path);
    int fd = open(other, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) exit(1);

    MEASURE("flock pair", 5000, flock_pair(fd));
    double base = best;
    MEASURE("CLOCK_BOOTTIME", 20000, hf__local_us());
    MEASURE("take + replace, one key", 20000, pair(st, &key[0], &p, &row, &err));
    printf("%-44s %8.3f\n", "  of a flock pair", best / base);
    MEASURE("take + replace, 1,000 keys in turn", 20000, pair(st, &key[i % KEYS], &p, &row, &err));
    MEASURE("get, free row", 20000,
            must(hf__file_driver.get(st, &key[0], &row, &clock_us, &err), &err));
    key[0].hint = NULL;
    MEASURE("take + replace, no hint", 20000, pair(st, &key[0], &p, &row, &err));
    MEASURE("alive, of one long gone", 5000,
            hf__file_driver.caps.liveness->alive(st, session + (1 << 16), &err));
    for (int n = 2; n <= 128; n *= 4) crowd(st, &key[n], &p, &row, n, &err);
    hf__file_driver.close(st);
    MEASURE("open + close", 20, {
        must(hf__open_store(&hf__file_driver, &parsed, 5000, &st, &caps, &err), &err);
        hf__file_driver.close(st);
    });
    hf_row_clear(&row);
    close(fd);
    unlink(other);
    if (argc < 2) unlink(path);
    return 0;
}
