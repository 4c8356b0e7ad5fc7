/*
 * file_crash.c - the `file:` driver: a process ends before each of its accesses to shared memory in
 * turn, and so does the one that comes after it and finds what is left; the third must find the old
 * row or the new one, nothing stuck, nothing lost, nothing used twice, and everybody owed.
 */
#include "file_seam.h"

enum { KEYS = 4, WAKEUP = 5 };

static char *names[KEYS];
static hf_rowkey key[KEYS];
static uint64_t hint[KEYS];
static hf_row before[KEYS], after[KEYS], found, work, cur;

static void party(hf_party *p, int n, const char *note)
{
    memset(p, 0, sizeof *p);
    p->id[0] = (uint8_t)n;
    p->id[15] = 1;
    p->lease_ms = 1000;
    p->owner_len = (uint8_t)snprintf(p->owner, sizeof p->owner, "owner-%d", n);
    p->note_len = (uint8_t)snprintf(p->note, sizeof p->note, "%s", note);
}

/* Fills in holders and waiters; the first waiter is client 1, on its wakeup. */
static void fill(hf_row *row, uint64_t rev, uint32_t holders, uint32_t waiters)
{
    if (hf_row_room(row, 64)) abort();
    row->rev = row->token = rev;
    row->n_holders = holders;
    row->n_queue = waiters;
    row->done_us = 0;
    for (uint32_t i = 0; i < holders + waiters; i++) {
        party(&row->party[i], (int)i, "a note of some length, as they are");
        row->party[i].token = i < holders ? rev : 0;
        row->party[i].session = hf__client_of(seam.client[1].st)->session;
        row->party[i].wakeup = WAKEUP;
    }
}

static void mark(hf_row *row, const char *result)
{
    row->done_us = 77;
    row->keep_until_us = INT64_MAX;
    row->result_len = (uint16_t)snprintf(row->result, sizeof row->result, "%s", result);
    row->done_by_len = 0;
    row->done_by[0] = 0;
}

static int replace(hf_store *st, int k, uint64_t seen, const hf_row *row)
{
    hf_error err;
    int64_t clock_us;
    int rc = drv->replace(st, &key[k], seen, row, &cur, &clock_us, &err);
    if (rc < 0) {
        fprintf(stderr, "# %s\n", err.text);
        abort();
    }
    return rc;
}

static void get(hf_store *st, int k, hf_row *row)
{
    hf_error err;
    int64_t clock_us;
    if (drv->get(st, &key[k], row, &clock_us, &err)) {
        fprintf(stderr, "# %s\n", err.text);
        abort();
    }
}

/* ---- what is interrupted: each changes key 0 or key 2 ---- */

static void take_new(hf_store *st, void *arg)
{
    hf_error err;
    hf_party p;
    int64_t clock_us;
    (void)arg;
    party(&p, 9, "");
    if (drv->acquire(st, &key[2], &p, 0, &work, &clock_us, &err) < 0) abort();
}

static void take_free(hf_store *st, void *arg)
{
    hf_error err;
    hf_party p;
    int64_t clock_us;
    (void)arg;
    party(&p, 9, "");
    if (drv->acquire(st, &key[0], &p, 0, &work, &clock_us, &err) < 0) abort();
}

static void replace_given(hf_store *st, void *arg) { replace(st, 0, before[0].rev, arg); }
static void replace_new(hf_store *st, void *arg) { replace(st, 2, 0, arg); }
static void remove_row(hf_store *st, void *arg)
{
    (void)arg;
    replace(st, 0, before[0].rev, NULL);
}

/* ---- the check ---- */

static void look(hf_store *st, void *arg)
{
    (void)arg;
    for (int k = 0; k < KEYS; k++) get(st, k, &found);
}

static struct {
    uint64_t lost_before, lost_after;
    int handover, hinted;
    long runs;
} now;

/* Checks the store by the last process, which isn't killed. */
static void check(hf_store *st, void *arg)
{
    uint64_t lines;
    const struct hf__alloc *a = HF_ALLOC(hf__client_of(st));
    (void)arg;
    for (int k = 0; k < KEYS; k++) {
        get(st, k, &found);
        int old = hf_row_equal(&found, &before[k]), new = hf_row_equal(&found, &after[k]);
        if (!old && !new) fail_msg("key %s is neither as before nor as after", names[k]);
        if (k == 0 && now.handover && new && !seam.wakes) fail_msg("nobody was woken");
    }
    const char *wrong = seam_check(&lines);
    if (wrong) fail_msg("%s", wrong);
    /* Everything still works. This write needs space, so an unfinished allocation is settled; it
       leaves its own smaller body behind. */
    fill(&work, found.rev + 1000, 1, 8);
    if (replace(st, 3, found.rev, &work)) fail_msg("a conflict with nobody");
    get(st, 3, &found);
    if (!hf_row_equal(&found, &work)) fail_msg("what was written isn't read");
    wrong = seam_check(&lines);
    if (wrong) fail_msg("afterwards: %s", wrong);
    uint64_t lost = hf__unseal(a->bump) - lines;
    if (lost - HF_BODY_LINES(0) > now.lost_before && lost - HF_BODY_LINES(0) > now.lost_after)
        fail_msg("%llu lines belong to nothing", (unsigned long long)lost);
}

/* The rows of all keys, as client 3 sees them; and the lines below bump that belong to nothing:
   the header's, and bodies that became too small. */
static uint64_t read_all(hf_row *to)
{
    for (int k = 0; k < KEYS; k++) get(seam.client[3].st, k, &to[k]);
    uint64_t lines;
    assert_null(seam_check(&lines));
    return hf__unseal(HF_ALLOC(hf__client_of(seam.client[3].st))->bump) - lines;
}

static void interrupt_everywhere(void (*what)(hf_store *, void *), void *arg)
{
    static struct seam_image start, middle;
    uint64_t own_hint[KEYS];
    seam.running = 3;
    now.lost_before = read_all(before);
    seam_save(&start);
    memcpy(own_hint, hint, sizeof hint);
    assert_int_equal(seam_run(0, 0, what, arg), 0);
    now.lost_after = read_all(after);
    if (now.handover) assert_true(seam.wakes > 0);
    for (long i = 1, more = 1; more; i++) {
        seam_restore(&start);
        memcpy(hint, own_hint, sizeof hint);
        more = seam_run(0, i, what, arg);
        seam.client[0].dead = 1;
        for (int k = 0; k < KEYS; k++) hint[k] = 0; /* the next have their own */
        seam_save(&middle);
        unsigned wakes = seam.wakes;
        for (long j = 1, again = 1; again; j++, now.runs++) {
            seam_restore(&middle);
            seam.wakes = wakes;
            again = seam_run(2, j, look, NULL);
            seam.client[2].dead = 1;
            seam_run(3, 0, check, NULL);
        }
    }
}

/* ---- scenarios ---- */

static int finish(void **state)
{
    (void)state;
    for (int k = 0; k < KEYS; k++) {
        free(names[k]);
        hf_row_clear(&before[k]);
        hf_row_clear(&after[k]);
    }
    hf_row_clear(&found);
    hf_row_clear(&work);
    hf_row_clear(&cur);
    seam_free();
    return 0;
}

static int begin(void **state)
{
    hf_error err;
    (void)state;
    for (int k = 0; k < KEYS; k++) {
        names[k] = seam_key((uint32_t)k % 2, k, 0); /* two and two in one bucket */
        if (hf_key_make(names[k], &key[k], &err)) return 1;
        hint[k] = 0;
        key[k].hint = &hint[k];
        hf_row_init(&before[k]);
        hf_row_init(&after[k]);
        if (hf_row_room(&before[k], 64) || hf_row_room(&after[k], 64)) return 1;
    }
    hf_row_init(&found);
    hf_row_init(&work);
    hf_row_init(&cur);
    if (hf_row_room(&found, 64) || hf_row_room(&work, 64) || hf_row_room(&cur, 64)) return 1;
    seam_format(SEAM_CLIENTS);
    memset(&now, 0, sizeof now);
    seam.running = 3;
    for (int k = 0; k < KEYS; k++) {
        fill(&work, (uint64_t)k + 10, k == 0 ? 0 : 1, 0);
        if (k != 2 && replace(seam.client[3].st, k, 0, &work)) return 1;
    }
    seam.wakeup =
        &hf__slot_at(hf__client_of(seam.client[1].st), seam.client[1].slot)->wakeup[WAKEUP];
    return 0;
}

/* Each once with the hint that leads to the fast path, and once without. */
static void both_ways(void (*what)(hf_store *, void *), void *arg)
{
    static struct seam_image start;
    uint64_t own_hint[KEYS];
    seam_save(&start);
    memcpy(own_hint, hint, sizeof hint);
    interrupt_everywhere(what, arg);
    seam_restore(&start);
    for (int k = 0; k < KEYS; k++) {
        key[k].hint = NULL;
        hint[k] = own_hint[k];
    }
    interrupt_everywhere(what, arg);
    assert_true(now.runs > 100);
}

static void a_take_of_a_new_key(void **state)
{
    (void)state;
    both_ways(take_new, NULL);
}

static void a_take_of_a_free_key(void **state)
{
    (void)state;
    both_ways(take_free, NULL);
}

static void a_replace_into_another_size(void **state)
{
    hf_row row;
    (void)state;
    hf_row_init(&row);
    fill(&row, 20, 1, 12);
    both_ways(replace_given, &row);
    hf_row_clear(&row);
}

static void a_replace_of_a_new_key(void **state)
{
    hf_row row;
    (void)state;
    hf_row_init(&row);
    fill(&row, 20, 1, 3);
    mark(&row, "at once");
    both_ways(replace_new, &row);
    hf_row_clear(&row);
}

static void a_release(void **state)
{
    hf_row row;
    (void)state;
    hf_row_init(&row);
    fill(&row, 20, 1, 0);
    assert_int_equal(replace(seam.client[3].st, 0, 10, &row), 0);
    fill(&row, 21, 0, 0);
    both_ways(replace_given, &row);
    hf_row_clear(&row);
}

static void a_handover(void **state)
{
    hf_row row;
    (void)state;
    hf_row_init(&row);
    fill(&row, 20, 1, 2);
    assert_int_equal(replace(seam.client[3].st, 0, 10, &row), 0);
    for (uint32_t i = 0; i < 2; i++) hf_party_copy(&row.party[i], &row.party[i + 1]);
    row.rev = row.token = row.party[0].token = 21;
    row.party[0].flags = HF_PARTY_UNCLAIMED;
    row.n_queue = 1;
    now.handover = 1;
    both_ways(replace_given, &row);
    hf_row_clear(&row);
}

static void a_handover_to_many(void **state)
{
    hf_row row;
    (void)state;
    hf_row_init(&row);
    fill(&row, 20, 1, 25);
    assert_int_equal(replace(seam.client[3].st, 0, 10, &row), 0);
    for (uint32_t i = 0; i < 25; i++) {
        hf_party_copy(&row.party[i], &row.party[i + 1]);
        row.party[i].mode = HF_SHARED;
        row.party[i].token = 21;
        row.party[i].flags = HF_PARTY_UNCLAIMED;
    }
    row.rev = row.token = 21;
    row.n_holders = 25;
    row.n_queue = 0;
    now.handover = 1;
    interrupt_everywhere(replace_given, &row);
    hf_row_clear(&row);
}

static void a_first_and_a_second_marker(void **state)
{
    hf_row row;
    (void)state;
    hf_row_init(&row);
    fill(&row, 20, 0, 0);
    mark(&row, "first");
    both_ways(replace_given, &row);
    key[0].hint = NULL;
    finish(state);
    assert_int_equal(begin(state), 0);
    assert_int_equal(replace(seam.client[3].st, 0, 10, &row), 0);
    row.rev = 21;
    mark(&row, "second");
    both_ways(replace_given, &row);
    hf_row_clear(&row);
}

static void a_removal_and_a_reuse(void **state)
{
    hf_row row;
    (void)state;
    hf_row_init(&row);
    fill(&row, 20, 0, 0);
    mark(&row, "of the first key");
    assert_int_equal(replace(seam.client[3].st, 0, 10, &row), 0);
    both_ways(remove_row, NULL);
    finish(state);
    assert_int_equal(begin(state), 0);
    for (int k = 0; k < KEYS; k++) /* a vacant cell in every bucket */
        if (k != 2) assert_int_equal(replace(seam.client[3].st, k, (uint64_t)k + 10, NULL), 0);
    fill(&row, 20, 1, 0);
    both_ways(replace_new, &row);
    hf_row_clear(&row);
}

/* Client 3's slot is left by its end; 2 takes it, or another, and is ended, and so on. */
static void open_again(hf_store *st, void *arg)
{
    (void)st, (void)arg;
    const struct hf__op op = {hf__client_of(seam.client[seam.running].st), "open", NULL, NULL};
    if (hf__session_open(&op)) abort();
}

static void a_session_is_never_used_again(void **state)
{
    uint64_t seen[64];
    size_t n = 0;
    (void)state;
    seam.client[2].dead = 1;
    for (int i = 0; i < SEAM_CLIENTS; i++) seen[n++] = hf__client_of(seam.client[i].st)->session;
    for (long i = 1, more = 1; more && n < 60; i++) {
        more = seam_run(2, i, open_again, NULL);
        seam.client[2].dead = 1;
        assert_int_equal(seam_run(3, 0, open_again, NULL), 0);
        seam.client[3].dead = 0;
        uint64_t session = hf__client_of(seam.client[3].st)->session;
        for (size_t j = 0; j < n; j++) assert_int_not_equal(session, seen[j]);
        /* A session that is over isn't alive because another one has its slot now, either. */
        hf_error err;
        assert_int_equal(drv->caps.liveness->alive(seam.client[0].st, session, &err), 1);
        assert_int_equal(drv->caps.liveness->alive(seam.client[0].st, seen[2], &err), 0);
        seen[n++] = session;
    }
}

static void every_flipped_bit_of_a_word_shows(void **state)
{
    (void)state;
    const uint64_t values[] = {1, 2, 77, 0xffff, 0x123456789, (UINT64_C(1) << 40) - 1};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        for (int bit = 0; bit < 64; bit++) {
            assert_false(hf__sealed(hf__seal(values[i]) ^ UINT64_C(1) << bit));
            uint64_t word = hf__lock_word(hf__session_id(values[i], 4095 & (uint32_t)i * 321));
            assert_int_not_equal(hf__lock_owner(word), 0);
            if (bit) assert_int_equal(hf__lock_owner(word ^ UINT64_C(1) << bit), 0);
            if (bit) assert_int_equal(hf__lock_owner(UINT64_C(1) << bit), 0);
        }
}

int main(void)
{
#define CRASH(name) cmocka_unit_test_setup_teardown(name, begin, finish)
    const struct CMUnitTest tests[] = {
        CRASH(a_take_of_a_new_key),
        CRASH(a_take_of_a_free_key),
        CRASH(a_replace_into_another_size),
        CRASH(a_replace_of_a_new_key),
        CRASH(a_release),
        CRASH(a_handover),
        CRASH(a_handover_to_many),
        CRASH(a_first_and_a_second_marker),
        CRASH(a_removal_and_a_reuse),
        CRASH(a_session_is_never_used_again),
        cmocka_unit_test(every_flipped_bit_of_a_word_shows),
    };
    return TEST_MAIN(tests);
}
