/*
 * file_power.c - the `file:` driver and power cuts: any mixture of the versions that each sector of
 * the file has had since it was last synced is recovered; what was synced before is there, nothing
 * is there that never was, and tokens go on growing. Some processes are killed on the way.
 *
 *     file_power [SEED [ROUNDS]]
 */
#include "file_seam.h"

#include <time.h>

enum {
    SECTORS = SEAM_BYTES / HF_SECTOR,
    /* how many versions of a sector since the last sync are kept; if there are more, some are
       forgotten */
    VERSIONS = 64,
    KEYS = 6,
    STEPS = 40,       /* operations in a round */
    MOST = 8 * STEPS, /* with those that other processes write meanwhile */
    CUTS = 20         /* power cuts tried in a round */
};

static uint64_t seed = 1, began;
static long rounds = 300, cuts;

#define WRONG(...)                                                                \
    do {                                                                          \
        printf("# seed %llu, cut %ld\n", (unsigned long long)began, cuts % CUTS); \
        fail_msg(__VA_ARGS__);                                                    \
    } while (0)

static uint32_t roll(uint32_t n)
{
    seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (uint32_t)((seed >> 33) % n);
}

/* ---- the disk ---- */

static struct sector {
    unsigned n;
    unsigned char version[VERSIONS][HF_SECTOR];
} disk[SECTORS];

static void note_sector(int i)
{
    struct sector *s = &disk[i];
    const unsigned char *now = seam.base + i * HF_SECTOR;
    if (!memcmp(s->version[s->n - 1], now, HF_SECTOR)) return;
    /* The first, which is on disk for certain, and the last always stay. */
    unsigned at = s->n < VERSIONS ? s->n++ : 1 + roll(VERSIONS - 1);
    if (at != s->n - 1) memcpy(s->version[at], s->version[s->n - 1], HF_SECTOR);
    memcpy(s->version[s->n - 1], now, HF_SECTOR);
}

static void on_step(void *arg)
{
    (void)arg;
    for (int i = 0; i < SECTORS; i++) note_sector(i);
}

static void others_act(void);

static void on_sync(void *arg, uint64_t line, uint64_t n)
{
    const uint64_t each = HF_SECTOR / HF_LINE;
    uint64_t end = n ? (line + n + each - 1) / each : SECTORS;
    (void)arg;
    if (n) others_act(); /* between one part and the next */
    for (uint64_t i = line / each; i < end; i++) {
        memcpy(disk[i].version[0], seam.base + i * HF_SECTOR, HF_SECTOR);
        disk[i].n = 1;
    }
}

/* ---- what happened ---- */

static hf_rowkey key[KEYS];

static struct known {
    int n, was[MOST]; /* the results that its marker has had; was[0] is synced, 0: none */
    /* Results that may come back, too: written by a process that was killed before they counted, or
       any older result once the marker was removed. */
    int n_ghosts, ghost[MOST], n_old, old[MOST], removed;
    uint64_t top_rev;
} known[KEYS];

static hf_row row, cur;
static int next_result;

static void get(hf_store *st, int k, hf_row *to)
{
    hf_error err;
    int64_t clock_us;
    if (drv->get(st, &key[k], to, &clock_us, &err)) WRONG("%s", err.text);
}

static int result_of(const hf_row *r) { return r->done_us ? (int)strtol(r->result, NULL, 10) : 0; }

struct plan {
    int k, what;
    uint32_t parties;
};

enum { MARK, CHANGE, REMOVE, SYNC, SYNC_KEY, KINDS };

/* A sync puts on disk what was written before it; what other processes write during it may be
   there, too. */
static void sync_it(hf_store *st, const struct plan *p)
{
    hf_error err;
    const struct hf__op op = {hf__client_of(st), "sync", &key[p->k], &err};
    int all = p->what == SYNC, before[KEYS];
    for (int k = 0; k < KEYS; k++) {
        get(st, k, &cur);
        before[k] = known[k].n;
        if (!all && k != p->k) continue;
        known[k].was[known[k].n] = result_of(&cur);
        known[k].removed = 0;
    }
    if (all ? hf__sync(&op) : drv->sync(st, &key[p->k], &err)) WRONG("%s", err.text);
    for (int k = 0; k < KEYS; k++) {
        if (!all && k != p->k) continue;
        known[k].n -= before[k];
        memmove(known[k].was, known[k].was + before[k], (size_t)(known[k].n + 1) * sizeof(int));
    }
}

/* Makes one operation, by a process that may die in it. */
static void act(hf_store *st, void *arg)
{
    const struct plan *p = arg;
    struct known *known_key = &known[p->k];
    hf_error err;
    int64_t clock_us;
    get(st, p->k, &row);
    uint64_t seen = row.rev;
    if (p->what == SYNC || p->what == SYNC_KEY) {
        sync_it(st, p);
        return;
    }
    if (p->what == REMOVE) {
        known_key->was[++known_key->n] = 0;
        known_key->removed = 1;
        if (drv->replace(st, &key[p->k], seen, NULL, NULL, &clock_us, &err) < 0)
            WRONG("%s", err.text);
        return;
    }
    if (p->what == MARK) {
        row.done_us = 5;
        row.keep_until_us = INT64_MAX;
        row.result_len = (uint16_t)snprintf(row.result, sizeof row.result, "%d", ++next_result);
        row.done_by_len = 0;
        row.done_by[0] = 0;
        known_key->was[++known_key->n] = next_result;
        known_key->old[known_key->n_old++] = next_result;
    }
    row.rev = hf_rev_next(seen, drv->caps.local->now(st));
    row.token = row.rev;
    row.n_holders = p->parties > 0;
    row.n_queue = p->parties > 0 ? p->parties - 1 : 0;
    for (uint32_t i = 0; i < p->parties; i++) {
        hf_party *to = &row.party[i];
        memset(to, 0, sizeof *to);
        memcpy(to->id, &i, sizeof i);
        to->token = i ? 0 : row.rev;
        to->session = 1 << 16;
        to->note_len = (uint8_t)snprintf(to->note, sizeof to->note, "note %u", i);
    }
    known_key->top_rev = row.rev;
    if (drv->replace(st, &key[p->k], seen, &row, NULL, &clock_us, &err) < 0) WRONG("%s", err.text);
}

/* While one syncs. */
static void others_act(void)
{
    int who = seam.running;
    for (int n = (int)roll(4); n > 0; n--) {
        struct plan p = {(int)roll(KEYS), (int)roll(SYNC), roll(3) ? roll(3) : roll(12)};
        seam.running = (who + 1 + (int)roll(SEAM_CLIENTS - 1)) % SEAM_CLIENTS;
        act(seam.client[seam.running].st, &p);
    }
    seam.running = who;
}

/* ---- the power cut ---- */

static int is_among(int result, const int *list, int n)
{
    for (int i = 0; i < n; i++)
        if (list[i] == result) return 1;
    return 0;
}

static int cells_of(hf_store *st, const hf_rowkey *wanted)
{
    struct hf__client *c = hf__client_of(st);
    int n = 0;
    for (uint64_t link = hf__bucket_at(c, wanted->hash)->head; link;) {
        struct hf__cell *cell = hf__line_at(c, hf__unseal(link));
        struct hf__body *body =
            hf__line_at(c, hf__unseal(cell->body[hf__unseal(cell->seq) & 1]) >> 8);
        n += !(hf__flags(body) & HF_BODY_VACANT) && cell->key >> 48 == wanted->len &&
             !memcmp(hf__cell_key(cell), wanted->text, wanted->len);
        link = cell->next;
    }
    return n;
}

/* After recovery, by a process of the next boot. */
static void check(hf_store *st)
{
    hf_error err;
    hf_party p;
    int64_t clock_us;
    uint64_t lines;
    memset(&p, 0, sizeof p);
    p.lease_ms = 10;
    const char *wrong = seam_check(&lines);
    if (wrong) WRONG("%s", wrong);
    for (int k = 0; k < KEYS; k++) {
        if (cells_of(st, &key[k]) > 1) WRONG("key %d is in two cells", k);
        get(st, k, &cur);
        const struct known *was = &known[k];
        int result = result_of(&cur);
        if (!is_among(result, was->was, was->n + 1) &&
            !is_among(result, was->ghost, was->n_ghosts) &&
            !(was->removed && is_among(result, was->old, was->n_old)))
            WRONG("key %d has the result %d, which it can't have", k, result);
        if (cur.n_holders || cur.n_queue) WRONG("somebody still holds");
        if (drv->acquire(st, &key[k], &p, 0, &row, &clock_us, &err)) WRONG("%s", err.text);
        if (row.token <= known[k].top_rev) WRONG("a token came back");
    }
}

static void cut(const struct seam_image *image)
{
    struct hf__boot boot;
    hf_error err;
    for (int i = 0; i < SECTORS; i++) {
        /* Mostly chooses the newest or the oldest version, because mixtures of these two fail
           first. */
        unsigned n = disk[i].n, pick = roll(3) ? roll(2) * (n - 1) : roll(n);
        memcpy(seam.base + i * HF_SECTOR, disk[i].version[pick], HF_SECTOR);
    }
    for (int i = 0; i < SEAM_CLIENTS; i++) seam.client[i].dead = 1;
    seam.on_step = NULL;
    seam.on_sync = NULL;
    struct hf__client *c = hf__client_of(seam.client[0].st);
    const struct hf__op op = {c, "recover", NULL, &err};
    int tries = 1 + (int)roll(3); /* recovery is ended by another cut, and begun again */
    for (int t = 0; t < tries; t++) {
        memset(&boot, 0, sizeof boot);
        boot.boot_id[0] = (uint8_t)(t + 1);
        seam.now_us = 0;
        if (hf__recover(&op, &boot, image->now_us + 1000000000, SEAM_LINES)) WRONG("%s", err.text);
    }
    seam_open(0);
    check(seam.client[0].st);
    cuts++;
}

static void one_round(void)
{
    static struct seam_image image;
    static struct sector saved[SECTORS];
    seam_format(SEAM_CLIENTS);
    memset(known, 0, sizeof known);
    next_result = 0;
    for (int i = 0; i < SECTORS; i++) disk[i].n = 1;
    on_sync(NULL, 0, 0);
    seam.on_step = on_step;
    seam.on_sync = on_sync;
    for (int i = 0, n = 1 + (int)roll(STEPS); i < n; i++) {
        struct plan p = {(int)roll(KEYS), (int)roll(KINDS), roll(3) ? roll(3) : roll(12)};
        if (p.what == SYNC && roll(2)) p.what = CHANGE;
        int who = (int)roll(SEAM_CLIENTS);
        if (p.what < SYNC && !roll(4)) {
            if (seam_run(who, 1 + (long)roll(90), act, &p)) {
                struct known *was = &known[p.k];
                if (p.what == MARK) was->ghost[was->n_ghosts++] = next_result;
                if (p.what == REMOVE) was->ghost[was->n_ghosts++] = 0;
                drv->close(seam.client[who].st);
                seam.client[who].st = NULL;
                seam_open(who);
            }
        } else {
            seam_run(who, 0, act, &p);
        }
    }
    on_step(NULL);
    seam_save(&image);
    memcpy(saved, disk, sizeof saved);
    for (int i = 0; i < CUTS; i++) {
        drv->close(seam.client[0].st); /* of the last cut */
        seam.client[0].st = NULL;
        seam_open(0);
        cut(&image);
        memcpy(disk, saved, sizeof saved);
        memcpy(seam.base, image.base, SEAM_BYTES);
    }
    seam_free();
}

static void what_was_synced_survives(void **state)
{
    hf_error err;
    (void)state;
    hf_row_init(&row);
    hf_row_init(&cur);
    assert_int_equal(hf_row_room(&row, 64) | hf_row_room(&cur, 64), 0);
    char *names[KEYS];
    for (int k = 0; k < KEYS; k++) { /* in two buckets; one of the keys takes more than a line */
        names[k] = seam_key((uint32_t)k % 2, k, k == 3 ? 70 : 0);
        assert_int_equal(hf_key_make(names[k], &key[k], &err), 0);
    }
    for (long i = 0; i < rounds; i++) {
        began = seed; /* for the message: one round from this seed does it again */
        one_round();
    }
    printf("# %ld power cuts\n", cuts);
    assert_int_equal(cuts, rounds * CUTS);
    for (int k = 0; k < KEYS; k++) free(names[k]);
    hf_row_clear(&row);
    hf_row_clear(&cur);
}

int main(int argc, char **argv)
{
    if (argc > 1) seed = strtoull(argv[1], NULL, 10);
    if (argc > 2) rounds = strtol(argv[2], NULL, 10);
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_was_synced_survives)};
    return TEST_MAIN(tests);
}
