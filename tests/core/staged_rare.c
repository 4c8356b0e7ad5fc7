/*
 * staged_rare.c - rare failures: each allocation of an operation fails in turn, and a child of a
 * fork uses its parent's objects.
 */
#include "staged_pair.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char KEY[] = "k";

static int see(void *arg, const hf_info *info)
{
    (void)arg;
    return info == NULL; /* ends a watch after its first round */
}

/* ---- without memory ---- */

static int nth;   /* the number of the allocation that fails */
static int stays; /* 1: the request may stay in the row, because its release is what fails */

static void arm(void)
{
    stage_no_memory(nth);
    nth = stays = 0;
}

static int opens(void)
{
    hf *own;
    arm();
    int rc = hf_open("staged:a", NULL, &own, &stage_error);
    if (!rc) hf_close(own);
    return rc;
}

static int holds(void)
{
    arm();
    int rc = stage_acquire(h, KEY, 0, 60000, 0, &lock);
    stays = !rc;
    return rc ? rc : hf_release(lock, &stage_error);
}

static int holds_alone(void)
{
    arm();
    int rc = stage_acquire(h, KEY, 0, 60000, HF_NO_RENEW, &lock);
    stays = !rc;
    if (!rc && (rc = hf_renew(lock, 50000, &stage_error))) hf_release(lock, NULL);
    return rc ? rc : hf_release(lock, &stage_error);
}

/* As long as whatever has its own end: without a lease, where that can be. */
static int holds_plainly(void)
{
    arm();
    int rc = hf_acquire(h, KEY, NULL, &lock, &stage_error);
    stays = !rc;
    return rc ? rc : hf_release(lock, &stage_error);
}

static int told_code; /* atomic; 77: not yet */
static hf_lock *told_lock;

static void told(void *arg, int code, hf_lock *l, const hf_error *err)
{
    (void)arg, (void)err;
    told_lock = l;
    __atomic_store_n(&told_code, code, __ATOMIC_SEQ_CST);
}

static int is_started(void)
{
    hf_wait *w;
    hf_options o = HF_OPTIONS_INIT;
    o.lease_ms = 60000;
    told_code = 77;
    arm();
    int rc = hf_acquire_start(h, KEY, &o, told, NULL, &w, &stage_error);
    if (rc) return rc;
    while (__atomic_load_n(&told_code, __ATOMIC_SEQ_CST) == 77) hf__pause(1000);
    hf_wait_free(w);
    stays = !told_code;
    return told_code ? told_code : hf_release(told_lock, &stage_error);
}

static int waits_in_vain(void)
{
    OK(stage_acquire(rival, KEY, 0, 60000, 0, &other));
    arm();
    int rc = stage_acquire(h, KEY, 30, 60000, 0, &lock);
    assert_int_not_equal(rc, HF_OK);
    stays = 1; /* 1: it is queued, and leaving the queue fails, which is then reported */
    if (rc == HF_UNKNOWN) rc = HF_NOMEM;
    OK(hf_release(other, &stage_error));
    return rc == HF_TIMEOUT ? 0 : rc;
}

static int runs_once(void)
{
    hf_once once;
    arm();
    int rc = hf_once_begin(h, KEY, 60000, NULL, &once, &stage_error);
    if (rc || !once.lock) return rc;
    stays = 1;
    return hf_once_finish(once.lock, "done", 60000, &stage_error);
}

/* Four holders, so that the row has to grow; it is peeked at, listed, watched. */
static int is_shared(void)
{
    hf_lock *l[4] = {NULL};
    hf_options o = HF_OPTIONS_INIT;
    int rc = 0;
    o.mode = HF_SHARED;
    o.lease_ms = 60000;
    o.wait_ms = 0;
    o.flags = HF_ALLOW_RECURSIVE;
    arm();
    for (int i = 0; i < 4 && !rc; i++) rc = hf_acquire(h, KEY, &o, &l[i], &stage_error);
    if (!rc) rc = hf_peek(h, KEY, see, NULL, &stage_error);
    if (!rc) rc = hf_list(h, "", see, NULL, &stage_error);
    if (!rc) rc = hf_watch(h, "", see, NULL, &stage_error);
    if (!rc) rc = hf_confirm(l[0], &stage_error);
    for (int i = 0; i < 4; i++) {
        int is = hf_release(l[i], &stage_error);
        stays |= is != 0;
        if (!rc) rc = is;
    }
    return rc;
}

static int is_broken(void)
{
    OK(stage_acquire(rival, KEY, 0, 60000, 0, &other));
    arm();
    int rc = hf_break(h, KEY, hf_token(other), &stage_error);
    hf_release(other, NULL);
    return rc;
}

static int is_adopted(void)
{
    hf_lock *mine;
    OK(stage_acquire(rival, KEY, 0, 60000, HF_DETACHED, &other));
    arm();
    int rc = hf_adopt(h, KEY, hf_token(other), &mine, &stage_error);
    stays = 1;
    if (!rc) rc = hf_release(mine, &stage_error);
    hf_release(other, NULL);
    return rc;
}

/* A failed allocation is reported as such, and leaves nothing: the same call succeeds when there is
   memory. */
static void each_allocation_fails_in_turn(void **state)
{
    (void)state;
    static const unsigned cans[] = {SERVER, WATCHED, WAKEUPS, LOCAL, LEASES};
    int (*const does[])(void) = {opens,         holds,     holds_alone, holds_plainly, is_started,
                                 waits_in_vain, runs_once, is_shared,   is_broken,     is_adopted};
    for (size_t can = 0; can < sizeof cans / sizeof *cans; can++)
        for (size_t op = 0; op < sizeof does / sizeof *does; op++)
            for (int n = 1, spared = 0; !spared; n++) {
                begin(cans[can]);
                nth = n;
                int rc = does[op]();
                spared = !stage_no_memory(0);
                if (rc && (rc != HF_NOMEM || spared))
                    fail_msg("store %zu, operation %zu, allocation %d: %s: %s", can, op, n,
                             hf_code_name(rc), stage_error.text);
                /* A grant that couldn't be released ends by its lease or its claim timeout, for
                   which the test doesn't wait. */
                for (hf_row *row = stage_row(KEY); row && row->n_holders;) {
                    if (!stays)
                        fail_msg("store %zu, operation %zu, allocation %d: it holds", can, op, n);
                    if (hf_break(rival, KEY, row->party[0].token, NULL)) break;
                }
                rc = does[op]();
                if (rc)
                    fail_msg("store %zu, operation %zu, after allocation %d: %s: %s", can, op, n,
                             hf_code_name(rc), stage_error.text);
                done();
            }
}

/* ---- a child of a fork ---- */

static void a_child_is_told_that_a_lock_is_not_its_own(void **state)
{
    (void)state;
    hf_wait *w;
    int status;
    begin(SERVER);
    OK(stage_acquire(rival, KEY, 0, 60000, 0, &other));
    OK(stage_acquire(h, "x", 0, 60000, 0, &lock));
    OK(hf_acquire_start(h, KEY, NULL, told, NULL, &w, &stage_error));
    await_queue(1);
    pid_t pid = fork();
    if (!pid) {
        int wrong = hf_enter(lock, NULL, NULL) != HF_LOST;
        wrong |= (hf_once_finish(lock, "", 1, NULL) != HF_LOST) << 1;
        wrong |= (hf_lost_fd(lock) != -1) << 2;
        wrong |= (hf_left_ms(lock) != 0 || hf_release(lock, NULL) != HF_LOST) << 3;
        wrong |= (hf_confirm(lock, NULL) != HF_LOST || hf_renew(lock, 0, NULL) != HF_LOST) << 4;
        hf_on_lost(lock, NULL, NULL);
        hf_wait_cancel(w);
        hf_wait_free(w);
        hf_close(h);
        if (wrong) printf("# in the child: 0x%x\n", (unsigned)wrong);
        fflush(stdout);
        _exit(wrong != 0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    /* None of that was the parent's. */
    OK(hf_confirm(lock, &stage_error));
    told_code = 77;
    OK(hf_release(other, &stage_error));
    while (__atomic_load_n(&told_code, __ATOMIC_SEQ_CST) == 77) hf__pause(1000);
    assert_int_equal(told_code, HF_OK);
    OK(hf_release(told_lock, &stage_error));
    hf_wait_free(w);
    OK(hf_release(lock, &stage_error));
    done();
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_allocation_fails_in_turn),
        cmocka_unit_test(a_child_is_told_that_a_lock_is_not_its_own),
    };
    return TEST_MAIN(tests);
}
