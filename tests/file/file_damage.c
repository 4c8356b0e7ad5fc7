/*
 * file_damage.c - the `file:` driver: each word of a store is another one, and so is each part of a
 * row whose sums are right. A request gets an answer or an error that says what is wrong, and
 * doesn't crash or hang; a flipped bit never makes it take one row for another.
 *
 * damage.c does the same to a file and the processes around it; here it is memory, so that no word
 * is left out.
 */
#include "file_seam.h"

#include "../../drivers/file/sum.h"

#include <errno.h>

enum { KEYS = 6, HELD = 0, WAITED, MARKED, GONE, LONG, NEW };

static hf_rowkey key[KEYS];
static hf_row was[KEYS], row, cur;
static hf_error err;
static int64_t clock_us;
static struct seam_image whole, dying;
static int truth; /* 1: a read that succeeds has to show what was written */
static char doing[80] = "";
static long runs, refusals;

/* ---- what is there ---- */

static void party(hf_party *p, int n)
{
    memset(p, 0, sizeof *p);
    p->id[0] = (uint8_t)n;
    p->id[15] = 1;
    p->session = hf__client_of(seam.client[1].st)->session;
    p->wakeup = 3;
    p->owner_len = (uint8_t)snprintf(p->owner, sizeof p->owner, "owner-%d", n);
    p->note_len = (uint8_t)snprintf(p->note, sizeof p->note, "host=h pid=%d", n);
}

static void fill(hf_row *to, uint64_t rev, uint32_t holders, uint32_t waiters, int done)
{
    if (hf_row_room(to, 64)) abort();
    to->rev = to->token = rev;
    to->n_holders = holders;
    to->n_queue = waiters;
    to->done_us = done ? 77 : 0;
    to->keep_until_us = done ? INT64_MAX : 0;
    to->result_len = (uint16_t)snprintf(to->result, sizeof to->result, "%s", done ? "sent" : "");
    to->done_by_len = 0;
    for (uint32_t i = 0; i < holders + waiters; i++) {
        party(&to->party[i], (int)i);
        if (holders > 1) to->party[i].mode = HF_SHARED;
        if (i < holders) to->party[i].token = rev;
    }
}

static int replace(hf_store *st, int k, uint64_t seen, const hf_row *to)
{
    return drv->replace(st, &key[k], seen, to, &cur, &clock_us, &err);
}

static void write_row(hf_store *st, int k, uint32_t holders, uint32_t waiters, int done)
{
    uint64_t seen = was[k].rev;
    fill(&was[k], (seen ? seen : (uint64_t)drv->caps.local->now(st)) + 1, holders, waiters, done);
    for (int i = 0; i < 3; i++) {
        int rc = replace(st, k, seen, &was[k]);
        if (!rc) return;
        if (rc < 0) fail_msg("%s", err.text);
        seen = cur.rev;
        was[k].rev = seen + 1;
        if (holders) was[k].token = was[k].rev;
        for (uint32_t h = 0; h < holders; h++) was[k].party[h].token = was[k].rev;
    }
    fail_msg("conflict on conflict");
}

static void furnish(hf_store *st, void *arg)
{
    (void)arg;
    write_row(st, HELD, 1, 0, 0);
    write_row(st, WAITED, 2, 3, 0);
    for (int i = 0; i < 3; i++) write_row(st, MARKED, 0, 0, i + 1);
    write_row(st, MARKED, 1, 0, 1);
    write_row(st, GONE, 1, 0, 0);
    assert_int_equal(replace(st, GONE, was[GONE].rev, NULL), 0);
    hf_row_clear(&was[GONE]);
    write_row(st, LONG, 1, 2, 0);
}

static void take_new(hf_store *st, void *arg)
{
    hf_party p;
    (void)arg;
    party(&p, 9);
    drv->acquire(st, &key[NEW], &p, 0, &cur, &clock_us, &err);
}

/* The world, and one in which client 1 has died on its way to a new cell. */
static int begin(void **state)
{
    (void)state;
    seam_format(2);
    for (int k = 0; k < KEYS; k++) {
        char *name = seam_key(k < 4 ? 1 : 2, k, k == LONG ? 300 : 0);
        if (hf_key_make(name, &key[k], &err)) return 1;
        key[k].text = name;
        hf_row_init(&was[k]);
    }
    seam_run(0, 0, furnish, NULL);
    hf_row_init(&row);
    hf_row_init(&cur);
    seam_save(&whole);
    for (long at = 1;; at++) {
        seam_restore(&whole);
        if (!seam_run(1, at, take_new, NULL)) return 1;
        const struct hf__client *c = hf__client_of(seam.client[0].st);
        if (HF_ALLOC(c)->intent_bump) break;
    }
    seam_save(&dying);
    return 0;
}

static int finish(void **state)
{
    (void)state;
    for (int k = 0; k < KEYS; k++) {
        free((void *)(uintptr_t)key[k].text);
        hf_row_clear(&was[k]);
    }
    hf_row_clear(&row);
    hf_row_clear(&cur);
    seam_free();
    return 0;
}

/* ---- requests that follow ---- */

static int is(int rc)
{
    if (rc >= 0) return rc;
    refusals++;
    if (!*err.text || err.code != rc) fail_msg("%s: %d without a word", doing, rc);
    if (rc != HF_CORRUPT && rc != HF_FULL && rc != HF_UNAVAILABLE && rc != HF_INVALID)
        fail_msg("%s: %d, %s", doing, rc, err.text);
    return rc;
}

static int see(void *arg, const hf_rowkey *k, hf_row *r)
{
    (void)r;
    int known = 0;
    for (int i = 0; i < KEYS; i++) known |= !strcmp(k->text, key[i].text);
    if (truth && !known) fail_msg("%s: '%s' is listed", doing, k->text);
    return ++*(int *)arg > 50;
}

/* The texts of parties aren't summed: they decide nothing. */
static int same_row(const hf_row *a, const hf_row *b)
{
    uint32_t n = a->n_holders + a->n_queue;
    if (a->rev != b->rev || a->token != b->token || a->n_holders != b->n_holders ||
        a->n_queue != b->n_queue || a->done_us != b->done_us ||
        (a->done_us && strcmp(a->result, b->result)))
        return 0;
    for (uint32_t i = 0; i < n; i++)
        if (hf__party_word_of(&a->party[i]) != hf__party_word_of(&b->party[i])) return 0;
    return 1;
}

static void looks(hf_store *st)
{
    for (int k = 0; k < KEYS; k++) {
        int rc = is(drv->get(st, &key[k], &row, &clock_us, &err));
        if (!rc && truth && k != NEW && k != GONE && !same_row(&row, &was[k]))
            fail_msg("%s: key %d is another", doing, k);
    }
    int n = 0;
    is(drv->scan(st, "", see, &n, &clock_us, &err));
}

static void comes(hf_store *st, void *arg)
{
    hf_party p;
    struct hf__client *c = hf__client_of(st);
    /* Half of the clients know only the part of the file that they have used. */
    if (*(int *)arg & 1) atomic_store(&c->limit, HF_AT_HEAP / HF_LINE);
    looks(st);
    party(&p, 8);
    for (int k = 0; k < KEYS; k++) is(drv->acquire(st, &key[k], &p, 0, &cur, &clock_us, &err));
    for (int k = 0; k < KEYS; k++) {
        /* Grows out of its body; is marked; grants it to the waiter; goes. */
        for (int i = 0; i < 4; i++) {
            uint64_t seen = i ? row.rev : was[k].rev;
            fill(&row, seen + 1 + (k == NEW && !i ? (uint64_t)clock_us : 0), i == 2 ? 3 : 1,
                 i ? 0 : 12, i == 1);
            is(replace(st, k, seen, i == 3 ? NULL : &row));
        }
    }
    for (int i = 0; i < 3; i++)
        is(drv->caps.liveness->alive(st, hf__session_id((uint64_t)i, (uint32_t)i), &err));
    is(drv->caps.liveness->alive(st, hf__client_of(seam.client[1].st)->session, &err));
    is(drv->sync(st, &key[0], &err));
}

static void opens(hf_store *none, void *arg)
{
    (void)none;
    hf_store *st = NULL;
    int rc = hf__file_attach(seam.base, SEAM_LINES, arg, NULL, &st, &err);
    if (!is(rc)) drv->close(st);
}

static void recovers(hf_store *st, void *arg)
{
    struct hf__boot now = {.boot_id = {1}};
    const struct hf__op op = {hf__client_of(st), "open", NULL, &err};
    (void)arg;
    truth = 0; /* a recovery leaves only markers and revs */
    if (!is(hf__recover(&op, &now, 2000000000, SEAM_LINES))) looks(st);
}

/* Each kind of client opens the changed image in turn. */
static void meets(const struct seam_image *from, void (*change)(const void *), const void *arg,
                  int is_true)
{
    static int half;
    const struct hf__file_env *env = hf__client_of(seam.client[0].st)->env;
    for (int who = 0; who < 3; who++) {
        seam_restore(from);
        change(arg);
        half++;
        truth = is_true;
        if (who == 0) seam_run(0, 0, comes, &half);
        if (who == 1) seam_run(2, 0, opens, (void *)(uintptr_t)env);
        if (who == 2) seam_run(0, 0, recovers, NULL);
        runs++;
    }
}

/* ---- every word ---- */

struct word {
    size_t at;
    uint64_t value;
};

static void set_word(const void *arg)
{
    const struct word *w = arg;
    memcpy(seam.base + w->at, &w->value, 8);
}

static void words_of(const struct seam_image *from)
{
    const struct hf__client *c = hf__client_of(seam.client[0].st);
    seam_restore(from);
    size_t end = hf__unseal(HF_ALLOC(c)->bump) * HF_LINE + 2048;
    for (size_t at = 0; at < end; at += 8) {
        uint64_t is_there, value;
        memcpy(&is_there, from->base + at, 8);
        int sealed = hf__sealed(is_there);
        /* The rest of the header and of the slots is empty. */
        if (!is_there && at > HF_AT_ALLOC + 128 && at < HF_AT_BUCKETS) continue;
        for (int how = 0; how < 8; how++) {
            value = how == 0   ? is_there ^ 8
                    : how == 1 ? is_there ^ UINT64_C(1) << 50
                    : how == 2 ? 0
                    : how == 3 ? UINT64_MAX
                    : how == 4 ? hf__seal(hf__unseal(is_there) + 1)
                    : how == 5 ? hf__seal((UINT64_C(1) << 40) - 1)
                    : how == 6 ? hf__seal(hf__unseal(is_there) ^ 0xff)
                               : hf__seal(HF_AT_HEAP / HF_LINE);
            if (how > 3 && !sealed) break;
            struct word w = {at, value};
            snprintf(doing, sizeof doing, "offset %zu, way %d", at, how);
            meets(from, set_word, &w, how < 2);
        }
    }
}

static void each_word_is_another(void **state)
{
    (void)state;
    runs = refusals = 0;
    words_of(&whole);
    words_of(&dying);
    if (refusals < 5000) fail_msg("%ld refusals in %ld runs", refusals, runs);
}

/* ---- what is wrong in itself, with all sums right ---- */

static struct hf__cell *cell_of(int k)
{
    const struct hf__client *c = hf__client_of(seam.client[0].st);
    const _Atomic uint64_t *link = &hf__bucket_at(c, key[k].hash)->head;
    for (;;) {
        struct hf__cell *cell = hf__line_at(c, hf__unseal(*link));
        if (cell->hash == key[k].hash) return cell;
        if (!cell->next) fail_msg("key %d has no cell", k);
        link = &cell->next;
    }
}

static struct hf__body *body_of(const struct hf__cell *cell, int other)
{
    const struct hf__client *c = hf__client_of(seam.client[0].st);
    return hf__line_at(c, hf__unseal(cell->body[(hf__unseal(cell->seq) & 1) ^ other]) >> 8);
}

struct lie {
    int k, other; /* the body that isn't current */
    size_t at;    /* where the change is: in the body's head, in a party, or in the marker */
    uint64_t value;
};

static void lie_in_head(const void *arg)
{
    const struct lie *l = arg;
    const struct hf__cell *cell = cell_of(l->k);
    struct hf__body *b = body_of(cell, l->other);
    memcpy((char *)b + l->at, &l->value, 8);
    b->check = hf__body_check(b, cell->self);
}

/* The sum is that of the parties as they are then. */
static void lie_in_party(const void *arg)
{
    const struct lie *l = arg;
    const struct hf__cell *cell = cell_of(l->k);
    struct hf__body *b = body_of(cell, 0);
    unsigned char *p = (unsigned char *)(b + 1);
    uint64_t sum = 0;
    p[l->at] = (unsigned char)l->value;
    for (uint32_t i = 0; i < hf__holders(b) + hf__waiters(b); i++) {
        hf_party one;
        memcpy(&one, p, HF_PARTY_FIXED);
        sum = hf__sum_next(sum, hf__party_word_of(&one));
        p += HF_PARTY_BYTES(one.owner_len, one.note_len);
    }
    b->extent = (b->extent & ((UINT64_C(1) << 40) - 1)) | hf__sum_bits(sum);
    b->check = hf__body_check(b, cell->self);
}

static void lie_in_marker(const void *arg)
{
    const struct lie *l = arg;
    const struct hf__client *c = hf__client_of(seam.client[0].st);
    const struct hf__cell *cell = cell_of(l->k);
    struct hf__marker *m = hf__line_at(c, hf__unseal(cell->marker));
    m += l->other;
    memcpy((char *)m + l->at, &l->value, 8);
    m->sum = hf__marker_sum(m, key[l->k].text, key[l->k].len, cell->hash);
}

static void what_is_wrong_in_itself(void **state)
{
    (void)state;
    static const uint64_t values[] = {
        0, 1, 3, 5000, UINT64_C(5000) << 32, UINT64_C(1) << 53, UINT64_C(3) << 32, UINT64_MAX};
    static const uint64_t bytes[] = {0, 1, 3, 0x7f, 0x80, 0xff};
    for (struct lie l = {0, 0, 0, 0}; l.k < NEW; l.k++) {
        for (size_t v = 0; v < sizeof values / sizeof *values; v++)
            for (l.at = 0, l.value = values[v]; l.at < offsetof(struct hf__body, check); l.at += 8)
                for (l.other = 0; l.other < 2; l.other++) {
                    snprintf(doing, sizeof doing, "head of %d at %zu: value %zu", l.k, l.at, v);
                    meets(&whole, lie_in_head, &l, 0);
                }
        l.other = 0;
        seam_restore(&whole);
        size_t used = hf__used(body_of(cell_of(l.k), 0));
        for (l.at = 0; l.at < used && l.at < 200; l.at++)
            for (size_t v = 0; v < sizeof bytes / sizeof *bytes; v++) {
                l.value = bytes[v];
                snprintf(doing, sizeof doing, "party of %d at %zu: byte %zu", l.k, l.at, v);
                meets(&whole, lie_in_party, &l, 0);
            }
    }
    for (struct lie l = {MARKED, 0, 0, 0}; l.other < 2; l.other++)
        for (l.at = 0; l.at < 48; l.at += 8)
            for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
                l.value = values[v];
                snprintf(doing, sizeof doing, "marker %d at %zu: value %zu", l.other, l.at, v);
                meets(&whole, lie_in_marker, &l, 0);
            }
}

/* ---- the system ---- */

static void nothing(const void *arg) { (void)arg; }

/* A file that isn't that of the name any more, or is cut off, answers nothing else from then on. */
static void a_file_that_is_gone(void **state)
{
    (void)state;
    snprintf(doing, sizeof doing, "gone");
    for (int half = 0; half < 2; half++) {
        seam_restore(&whole);
        seam.gone = "was removed";
        truth = 0;
        hf_store *st = seam.client[0].st;
        if (half) atomic_store(&hf__client_of(st)->limit, HF_AT_HEAP / HF_LINE);
        seam_run(0, 0, comes, &half);
        assert_int_equal(drv->sync(st, &key[0], &err), HF_CORRUPT);
        assert_non_null(strstr(err.text, "was removed"));
        assert_int_equal(drv->get(st, &key[0], &row, &clock_us, &err), HF_CORRUPT);
        assert_non_null(strstr(err.text, "was removed"));
        seam.gone = NULL;
    }
}

static void a_disk_that_fails(void **state)
{
    (void)state;
    snprintf(doing, sizeof doing, "no disk");
    seam.sync_error = EIO;
    meets(&whole, nothing, NULL, 0);
    meets(&dying, nothing, NULL, 0);
    seam_restore(&whole);
    int rc = drv->sync(seam.client[0].st, &key[0], &err);
    if (rc != HF_UNAVAILABLE && rc != HF_CORRUPT) fail_msg("%d, %s", rc, err.text);
    assert_non_null(strstr(err.text, strerror(EIO)));
    seam.sync_error = 0;
}

/* The system doesn't say whether the owner of a lock word lives. */
static void nobody_says_who_lives(void **state)
{
    (void)state;
    seam_restore(&dying);
    seam.client[1].dead = 1;
    seam.probe_error = ENOLCK;
    hf_party p;
    party(&p, 8);
    int rc = drv->acquire(seam.client[0].st, &key[NEW], &p, 0, &cur, &clock_us, &err);
    seam.probe_error = 0;
    assert_int_equal(rc, HF_UNAVAILABLE);
    assert_non_null(strstr(err.text, "asking whether another process lives"));
    assert_int_equal(drv->acquire(seam.client[0].st, &key[NEW], &p, 0, &cur, &clock_us, &err), 0);
}

/* The owner of a lock word lives, and doesn't go on. A client that waits looks ever more rarely, so
   that hundreds of them leave the processor to the owner, and gives up at its time limit. */
static void a_word_that_stays_held(void **state)
{
    enum { LIMIT_US = 200000, NAPS_MOST = 12 };
    (void)state;
    seam_restore(&dying);
    seam.client[1].dead = 0;
    struct hf__client *c = hf__client_of(seam.client[0].st);
    int64_t limit_us = c->io_timeout_us, began_us = seam.now_us;
    hf_party p;
    party(&p, 8);
    c->io_timeout_us = LIMIT_US;
    seam.naps = 0;
    int rc = drv->acquire(seam.client[0].st, &key[NEW], &p, 0, &cur, &clock_us, &err);
    c->io_timeout_us = limit_us;
    assert_int_equal(rc, HF_UNAVAILABLE);
    assert_non_null(strstr(err.text, "is stopped"));
    assert_in_range(seam.now_us - began_us, LIMIT_US, 2 * LIMIT_US);
    assert_in_range(seam.naps, 2, NAPS_MOST);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_word_is_another),  cmocka_unit_test(what_is_wrong_in_itself),
        cmocka_unit_test(a_file_that_is_gone),   cmocka_unit_test(a_disk_that_fails),
        cmocka_unit_test(nobody_says_who_lives), cmocka_unit_test(a_word_that_stays_held),
    };
    return TEST_MAIN_WITH(tests, begin, finish);
}
