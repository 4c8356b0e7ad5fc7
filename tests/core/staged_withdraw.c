/*
 * staged_withdraw.c - a request that is given up: what the caller is told where its withdrawal
 * fails, and what a write of the request does that arrives later.
 *
 * TIMEOUT and CANCELED say that nothing of the request stands in the row. Where that isn't known
 * the caller is told UNKNOWN.
 */
#include "staged_waiter.h"

#include <stdio.h>

static const unsigned kinds[] = {SERVER, WATCHED, WAKEUPS, LOCAL, LEASES};

static void ask_for(struct waiter *w, int64_t wait_ms)
{
    hf_options o = HF_OPTIONS_INIT;
    o.wait_ms = wait_ms;
    o.lease_ms = 60000;
    ask_and(h, w, "k", &o, note);
}

/* ---- a withdrawal that fails ---- */

static int refusal;

static int refused_update(hf_store *st, const hf_rowkey *key, int (*step)(void *arg, hf_row *row),
                          void *arg, hf_row *row, hf_error *err)
{
    (void)st, (void)key, (void)step, (void)arg, (void)row;
    return hf_fail(err, refusal, 0, "staged: refused");
}

static void a_failed_withdrawal_is_not_a_certain_end(void **state)
{
    (void)state;
    static const int codes[] = {HF_INVALID, HF_DENIED, HF_CORRUPT,    HF_NOMEM,
                                HF_FULL,    HF_LOST,   HF_UNSUPPORTED};
    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++)
        for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
            for (int cancels = 0; cancels < 2; cancels++) {
                struct waiter w;
                begin(kinds[kind]);
                refusal = codes[i];
                OK(stage_acquire(rival, "k", 0, 600000, 0, &other));
                ask_for(&w, cancels ? 600000 : 300);
                await_queue(1);
                stage_cue(S_SWAP, 1, 1 << 20, INSTEAD, codes[i], NULL);
                if (stage_local.update) stage_local.update = refused_update;
                if (cancels) hf_wait_cancel(w.wait);
                await_end(&w);
                if (w.code != HF_UNKNOWN || stage_row("k")->n_queue != 1)
                    fail_msg("store %zu, %s, withdrawal %s: told %s, %u in line", kind,
                             cancels ? "canceled" : "timed out", hf_code_name(codes[i]),
                             hf_code_name(w.code), stage_row("k")->n_queue);
                hf_wait_free(w.wait);
                stage_uncue();
                hf_release(other, NULL);
                done();
            }
}

/* The wait ends by an error of the store, and its withdrawal by the same error: that is the
   result. */
static void the_error_that_ends_a_wait_is_told(void **state)
{
    (void)state;
    struct waiter w;
    begin(SERVER);
    OK(stage_acquire(rival, "k", 0, 600000, 0, &other));
    ask_for(&w, 600000);
    await_queue(1);
    stage_cue(S_GET, 1, 1 << 20, INSTEAD, HF_DENIED, NULL);
    ends(&w, HF_DENIED);
    stage_uncue();
    OK(hf_release(other, &stage_error));
    done();
}

/* ---- a write that arrives late ---- */

static struct {
    int (*replace)(hf_store *, const hf_rowkey *, uint64_t, const hf_row *, hf_row *, int64_t *,
                   hf_error *);
    hf_rowkey key;
    uint64_t seen;
    hf_row row;
    int kept; /* atomic */
} late;

/* Each write that queues the request is lost on its way. The first one is kept. */
static int keep_the_first(hf_store *st, const hf_rowkey *key, uint64_t seen, const hf_row *row,
                          hf_row *cur, int64_t *ret_clock_us, hf_error *err)
{
    if (st == rival->port.st || !row->n_queue)
        return late.replace(st, key, seen, row, cur, ret_clock_us, err);
    if (!__atomic_load_n(&late.kept, __ATOMIC_SEQ_CST)) {
        OK(hf_key_make(key->text, &late.key, &stage_error));
        late.seen = seen;
        if (hf_row_copy(&late.row, row)) fail_msg("out of memory");
        __atomic_store_n(&late.kept, 1, __ATOMIC_SEQ_CST);
    }
    return hf_fail(err, HF_UNKNOWN, 0, "staged: no answer");
}

/* The withdrawal reads a row without the request. That doesn't prove that the write won't arrive.
   So the withdrawal writes, and the row has another rev when the write arrives. */
static void what_arrives_after_the_withdrawal_changes_nothing(void **state)
{
    (void)state;
    for (size_t kind = 0; kind < 3; kind++) {
        int64_t clock_us;
        struct waiter w;
        begin(kinds[kind]);
        late.replace = stage_driver.replace;
        late.kept = 0;
        hf_row_init(&late.row);
        h->port.io_timeout_ms = 100; /* how long it sends the write again */
        OK(stage_acquire(rival, "k", 0, 600000, 0, &other));
        stage_driver.replace = keep_the_first;
        ask_for(&w, 600000);
        while (!__atomic_load_n(&late.kept, __ATOMIC_SEQ_CST)) hf__pause(1000);
        hf_wait_cancel(w.wait);
        ends(&w, HF_CANCELED);
        stage_driver.replace = late.replace;
        IS(HF_CONFLICT, late.replace(rival->port.st, &late.key, late.seen, &late.row, NULL,
                                     &clock_us, &stage_error));
        assert_int_equal(stage_row("k")->n_queue, 0);
        hf_row_clear(&late.row);
        OK(hf_release(other, &stage_error));
        done();
    }
}

/* ---- a request of which a write has arrived ---- */

static void free_the_key(void) { OK(hf_release(other, &stage_error)); }

/* The reply is lost, and meanwhile the request is handed the key. It needs a session to hold with,
   and none can be made. */
static void what_cannot_be_held_is_given_back(void **state)
{
    (void)state;
    struct waiter w;
    begin(LEASES);
    OK(stage_acquire(rival, "k", 0, 600000, 0, &other));
    stage_cue(S_SWAP, 1, 1, ALTHOUGH, HF_UNKNOWN, NULL);
    stage_cue(S_SWAP, 2, 1, INSTEAD, 0, free_the_key);
    stage_cue(S_MAKE, 2, 1, INSTEAD, HF_DENIED, NULL);
    ask_for(&w, 600000);
    ends(&w, HF_DENIED);
    assert_int_equal(stage_row("k")->n_holders, 0);
    done();
}

static int nth;
enum { OTHERS = 8 };

/* The row becomes larger than it was when it was read; then an allocation fails. */
static void others_come(void)
{
    hf_row *row = stage_row("k");
    assert_int_equal(row->n_queue, 1);
    assert_int_equal(hf_row_room(row, 2 + OTHERS), 0);
    for (int i = 0; i < OTHERS; i++) {
        hf_party *p = &row->party[2 + i];
        hf_party_copy(p, &row->party[1]);
        memset(p->id, 1 + i, sizeof p->id);
        p->owner[0]++; /* this makes it another owner */
    }
    row->n_queue += OTHERS;
    row->rev++;
    stage_no_memory(nth);
}

/* The reply to its write is lost, and then there is no memory to find out the outcome. */
static void without_memory_a_lost_reply_stays_unknown(void **state)
{
    (void)state;
    int spared = 0;
    for (nth = 1; !spared; nth++) {
        begin(SERVER);
        OK(stage_acquire(rival, "k", 0, 600000, 0, &other));
        stage_cue(S_SWAP, 1, 1, ALTHOUGH, HF_UNKNOWN, NULL);
        stage_cue(S_SWAP, 2, 1, INSTEAD, 0, others_come);
        int rc = stage_acquire(h, "k", 300, 60000, 0, &lock);
        spared = !stage_no_memory(0);
        assert_int_not_equal(rc, HF_OK);
        if (rc != HF_UNKNOWN && stage_row("k")->n_queue != OTHERS)
            fail_msg("allocation %d: it stands in line: %s: %s", nth, hf_code_name(rc),
                     stage_error.text);
        OK(hf_break(rival, "k", hf_token(other), &stage_error));
        hf_release(other, NULL);
        done();
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failed_withdrawal_is_not_a_certain_end),
        cmocka_unit_test(the_error_that_ends_a_wait_is_told),
        cmocka_unit_test(what_arrives_after_the_withdrawal_changes_nothing),
        cmocka_unit_test(what_cannot_be_held_is_given_back),
        cmocka_unit_test(without_memory_a_lost_reply_stays_unknown),
    };
    return TEST_MAIN(tests);
}
