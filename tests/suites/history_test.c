/*
 * history_test.c - the judges of histories refuse wrong ones: see history.h.
 *
 *   history_test PORCUPINE-TOOL
 *
 * Each test makes one true history, changes one thing in it, and says which check has to notice,
 * and whether the second judge does. What it changes is a mistake that a lock can make.
 */
#include "history.h"

#include "holdfast.h"
#include "test.h"

#include <stdlib.h>
#include <string.h>

enum { CAP = 2200 };
static const int64_t MS = 1000000;
static const int64_t LONG_AGO = INT64_C(1000000000000);

static struct h_op ops[CAP];
static size_t n;
static struct h_porcupine porcupine;

/* From and to in milliseconds. */
static struct h_op *add(int kind, int key, int client, int from, int to, int answer, uint64_t token)
{
    struct h_op *op = &ops[n++];
    memset(op, 0, sizeof *op);
    op->kind = (uint8_t)kind;
    op->key = (uint16_t)key;
    op->client = (uint8_t)client;
    op->t0 = op->asked = LONG_AGO + from * MS;
    op->t1 = to < 0 ? 0 : LONG_AGO + to * MS;
    op->answer = (int8_t)(to < 0 ? H_OPEN : answer);
    op->token = token;
    op->lease_ms = 1000;
    op->request[0] = n;
    return op;
}

/* Adds a hold of 10 ms that is believed, written with, and released. */
static struct h_op *hold(int key, int client, int from, uint64_t token)
{
    struct h_op *op = add(H_ACQUIRE, key, client, from, from + 1, 0, token);
    op->first = op->t1;
    op->last = op->t1 + 8 * MS;
    add(H_WRITE, key, client, from + 2, from + 3, 0, token)->value = 1;
    add(H_RELEASE, key, client, from + 10, from + 11, 0, token);
    return op;
}

/* The operation that does this with this token. */
static struct h_op *the(int kind, uint64_t token)
{
    for (size_t i = 0; i < n; i++)
        if (ops[i].kind == kind && ops[i].token == token) return &ops[i];
    fail_msg("no such operation");
    return NULL;
}

/*
 * Key 1: holds one after the other, one of which waited from 25 on; a killed one; one that was
 * broken; a refusal. Key 2: shared ones. Key 3: at most two. Key 4: an event.
 */
static void true_history(void)
{
    n = 0;
    hold(1, 0, 0, 100);
    hold(1, 1, 20, 110);
    add(H_TRY, 1, 3, 23, 24, HF_BUSY, 0);
    struct h_op *waits = hold(1, 2, 32, 120);
    waits->asked = waits->t0 = LONG_AGO + 22 * MS;
    waits->queued = LONG_AGO + 25 * MS;
    waits = hold(1, 3, 44, 130); /* a later request */
    waits->asked = waits->t0 = LONG_AGO + 26 * MS;
    struct h_op *killed = hold(1, 0, 60, 140);
    n--; /* it never gave back */
    killed->last = LONG_AGO + 64 * MS;
    add(H_ACQUIRE, 1, 1, 65, -1, 0, 0);
    hold(1, 2, 1100, 1240);
    add(H_CONFIRM, 1, 2, 1104, 1105, 0, 1240);
    struct h_op *broken = hold(1, 3, 1200, 1300);
    add(H_BREAK, 1, 0, 1204, 1205, 0, 1300);
    the(H_RELEASE, 1300)->answer = HF_LOST;
    broken->last = LONG_AGO + 1300 * MS;
    hold(1, 1, 1210, 1310);
    for (int i = 0; i < 3; i++) hold(2, i, 1 + i, 200 + (uint64_t)i)->mode = HF_SHARED;
    for (int i = 0; i < 3; i++) {
        struct h_op *op = hold(3, i, 1 + 8 * i, 210 + (uint64_t)i);
        op->mode = HF_LIMITED;
        op->limit = 2;
    }
    the(H_ACQUIRE, 212)->asked = LONG_AGO + 9 * MS;
    hold(4, 0, 0, 300)->kind = H_BEGIN; /* this run releases the event undone */
    add(H_BEGIN, 4, 1, 20, 21, 0, 310)->last = LONG_AGO + 25 * MS;
    add(H_FINISH, 4, 1, 30, 31, 0, 310);
    add(H_BEGIN, 4, 2, 40, 41, H_DONE, 310);
}

/* `check` (-1: none) finds it, and nothing else does; the second judge, too, if `both`. */
static void judged(int check, int both)
{
    struct h_history h = {ops, n, 900 * MS, 0};
    struct h_verdict v;
    h_judge(&h, &v);
    for (int i = 0; i < H_CHECKS; i++) {
        if (i == check && !v.wrong[i]) fail_msg("%s: not noticed", h_check_name(check));
        if (check < 0 && v.wrong[i]) fail_msg("%s: %s", h_check_name(i), v.why[i]);
    }
    uint64_t before = porcupine.illegal;
    assert_int_equal(h_porcupine_judge(&porcupine, &h, "test/"), 0);
    if ((porcupine.illegal > before) != both) fail_msg("Porcupine: %s", porcupine.why);
    assert_int_equal(porcupine.unknown, 0);
}

static void nothing_wrong(void **state)
{
    struct h_history h = {ops, 0, 900 * MS, 0};
    struct h_verdict v;
    (void)state;
    true_history();
    h.n = n;
    h_judge(&h, &v);
    for (int i = 0; i < H_CHECKS; i++) assert_true(v.checked[i] > 0);
    judged(-1, 0);
}

static void double_grant(void **state)
{
    (void)state;
    true_history();
    ops[n] = *the(H_ACQUIRE, 110); /* another client, in the middle of the hold */
    ops[n].token = 115;
    ops[n].client = 4;
    ops[n].t0 += 3 * MS;
    ops[n].t1 += 3 * MS;
    ops[n++].asked += 3 * MS;
    judged(H_OVERLAP, 1);
}

static void token_falls(void **state)
{
    (void)state;
    true_history();
    uint64_t lower = 90;
    the(H_RELEASE, 110)->token = lower;
    the(H_WRITE, 110)->token = lower;
    the(H_ACQUIRE, 110)->token = lower;
    judged(H_TOKENS, 1);
}

static void token_twice(void **state)
{
    (void)state;
    true_history();
    the(H_RELEASE, 110)->token = 100;
    the(H_WRITE, 110)->value = 2;
    the(H_WRITE, 110)->token = 100;
    the(H_ACQUIRE, 110)->token = 100;
    judged(H_TOKENS, 1);
}

static void queue_jumped(void **state)
{
    (void)state;
    true_history();
    the(H_ACQUIRE, 130)->queued = LONG_AGO + 31 * MS;
    the(H_ACQUIRE, 130)->asked = LONG_AGO + 21 * MS;
    the(H_ACQUIRE, 120)->asked = LONG_AGO + 31 * MS + 1;
    judged(H_FIFO, 0); /* the second judge doesn't know of queues */
}

/* The same order is allowed if a claim timeout may have ended meanwhile. */
static void claim_lapsed(void **state)
{
    (void)state;
    true_history();
    the(H_ACQUIRE, 1240)->asked = the(H_ACQUIRE, 1240)->t0 = LONG_AGO + 68 * MS;
    struct h_op *late = hold(1, 4, 1400, 1400);
    late->asked = LONG_AGO + 60 * MS;
    late->queued = LONG_AGO + 67 * MS;
    judged(-1, 0);
    struct h_history h = {ops, n, 900 * MS, 0};
    struct h_verdict v;
    h_judge(&h, &v);
    assert_true(v.excused > 0);
}

/* A client that was stopped between its grant and its return holds nothing any more. */
static void told_too_late(void **state)
{
    (void)state;
    true_history();
    struct h_op *late = add(H_ACQUIRE, 1, 4, 12, 900, 0, 105);
    add(H_RELEASE, 1, 4, 901, 902, HF_LOST, late->token);
    judged(-1, 0);
}

/* The client was killed between the answer to its release and writing down its time. */
static void killed_while_writing(void **state)
{
    (void)state;
    true_history();
    the(H_RELEASE, 100)->t1 = 0;
    judged(H_TOKENS, 0);
    true_history();
    the(H_RELEASE, 100)->t1 = 0;
    h_settle(ops, n, LONG_AGO + 14 * MS);
    assert_true(the(H_RELEASE, 100)->t1 == LONG_AGO + 14 * MS);
    judged(-1, 0);
}

static void busy_for_nothing(void **state)
{
    (void)state;
    true_history();
    add(H_TRY, 1, 4, 15, 16, HF_BUSY, 0);
    judged(H_BUSY, 1);
}

static void release_of_another(void **state)
{
    (void)state;
    true_history();
    the(H_RELEASE, 100)->t0 = LONG_AGO + 24 * MS;
    the(H_RELEASE, 100)->t1 = LONG_AGO + 25 * MS;
    judged(H_TOKENS, 1);
}

static void confirmed_after_release(void **state)
{
    (void)state;
    true_history();
    add(H_CONFIRM, 1, 0, 14, 15, 0, 100);
    judged(H_TOKENS, 1);
}

static void one_too_many(void **state)
{
    (void)state;
    true_history();
    the(H_ACQUIRE, 212)->t1 = LONG_AGO + 9 * MS + 1;
    the(H_ACQUIRE, 212)->asked = LONG_AGO + 9 * MS;
    the(H_ACQUIRE, 210)->last = the(H_ACQUIRE, 211)->last = LONG_AGO + 11 * MS;
    the(H_ACQUIRE, 211)->t1 = LONG_AGO + 8 * MS;
    the(H_ACQUIRE, 211)->t0 = the(H_ACQUIRE, 211)->asked = LONG_AGO + 7 * MS;
    judged(H_OVERLAP, 1);
}

static void broken_and_believed(void **state)
{
    (void)state;
    true_history();
    the(H_ACQUIRE, 1300)->last = LONG_AGO + 2400 * MS;
    /* The holder may believe in its lock for a while after the break, and the judge of overlaps
       doesn't know for how long. */
    judged(H_OVERLAP, 0);
}

static void refused_while_believing(void **state)
{
    (void)state;
    true_history();
    struct h_op *write = the(H_WRITE, 110);
    write->answer = H_REFUSED;
    write->value = 120;
    judged(H_FENCE, 0); /* the second judge doesn't look at resources */
}

static void write_after_newer(void **state)
{
    (void)state;
    true_history();
    the(H_WRITE, 100)->t0 = LONG_AGO + 40 * MS;
    the(H_WRITE, 100)->t1 = LONG_AGO + 41 * MS;
    judged(H_FENCE, 0);
}

static void marker_lost(void **state)
{
    (void)state;
    true_history();
    add(H_BEGIN, 4, 3, 50, 51, 0, 320);
    judged(H_MARKERS, 1);
}

static void done_by_two(void **state)
{
    (void)state;
    true_history();
    add(H_BEGIN, 4, 3, 50, 51, 0, 320);
    add(H_FINISH, 4, 3, 52, 53, 0, 320);
    judged(H_MARKERS, 1);
}

static void done_by_nobody(void **state)
{
    (void)state;
    true_history();
    the(H_FINISH, 310)->answer = HF_LOST;
    judged(H_MARKERS, 1);
}

/* A history that isn't judged in time doesn't count as right. */
static void too_long(void **state)
{
    struct h_history h = {ops, 0, 900 * MS, 0};
    (void)state;
    n = 0;
    for (int i = 0; n + 3 < CAP; i++) hold(1, 0, i * 20, 100 + (uint64_t)i);
    h.n = n;
    assert_int_equal(h_porcupine_judge(&porcupine, &h, "test/"), 0);
    assert_int_equal(porcupine.unknown, 1);
    porcupine.unknown = 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_wrong),
        cmocka_unit_test(double_grant),
        cmocka_unit_test(token_falls),
        cmocka_unit_test(token_twice),
        cmocka_unit_test(queue_jumped),
        cmocka_unit_test(claim_lapsed),
        cmocka_unit_test(told_too_late),
        cmocka_unit_test(killed_while_writing),
        cmocka_unit_test(busy_for_nothing),
        cmocka_unit_test(release_of_another),
        cmocka_unit_test(one_too_many),
        cmocka_unit_test(confirmed_after_release),
        cmocka_unit_test(broken_and_believed),
        cmocka_unit_test(refused_while_believing),
        cmocka_unit_test(write_after_newer),
        cmocka_unit_test(marker_lost),
        cmocka_unit_test(done_by_two),
        cmocka_unit_test(done_by_nobody),
        cmocka_unit_test(too_long),
    };
    if (argc != 2) return 64;
    if (h_porcupine_start(&porcupine, argv[1])) {
        printf("Bail out! %s\n", porcupine.why);
        return 1;
    }
    int failed = TEST_MAIN(tests);
    h_porcupine_end(&porcupine);
    return failed;
}
