/*
 * outage_stage.c - one holder, stopped for longer than its lease, and its successor; see outage.h.
 */
#include "outage.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WAIT_MS = 600000 };
enum { HOLDS = 1, SUCCEEDED, WOKEN, ASKED };

struct stage {
    int first, second; /* how far they have got */
    uint64_t first_token, second_token;
    int64_t left_ms; /* when the first one was woken */
    int renewed, confirmed, released, kept;
};

static void stage_wait(const int *at, int until)
{
    int64_t end_us = outage_us() + (int64_t)WAIT_MS * 1000;
    while (__atomic_load_n(at, __ATOMIC_ACQUIRE) < until && outage_us() < end_us) usleep(500);
}

static void set(int *at, int to) { __atomic_store_n(at, to, __ATOMIC_RELEASE); }

static hf_lock *take(int64_t lease_ms, uint64_t *ret_token)
{
    hf *h;
    hf_lock *lock;
    hf_error err;
    hf_options o = HF_OPTIONS_INIT;
    hf_open_options oo = HF_OPEN_OPTIONS_INIT;
    o.lease_ms = lease_ms;
    o.wait_ms = WAIT_MS;
    oo.io_timeout_ms = 60000; /* a server that is stopped for a while doesn't count as away */
    if (hf_open(outage_url, &oo, &h, &err) || hf_acquire(h, outage_key(0), &o, &lock, &err)) {
        printf("# %s\n", err.text);
        _exit(1);
    }
    *ret_token = hf_token(lock);
    return lock;
}

/* Plays a holder that believes, is stopped at any point, and looks once more. */
static void first_holder(struct stage *s)
{
    hf_lock *lock = take(outage_lease_ms, &s->first_token);
    set(&s->first, HOLDS);
    stage_wait(&s->second, SUCCEEDED);
    s->left_ms = hf_left_ms(lock);
    s->confirmed = hf_confirm(lock, NULL);
    s->renewed = hf_renew(lock, 0, NULL);
    s->released = hf_release(lock, NULL);
    set(&s->first, WOKEN);
}

static void second_holder(struct stage *s)
{
    hf_lock *lock = take(60000, &s->second_token);
    set(&s->second, SUCCEEDED);
    stage_wait(&s->first, WOKEN);
    s->kept = hf_left_ms(lock) > 0 ? hf_confirm(lock, NULL) : HF_LOST;
    if (hf_release(lock, NULL)) s->kept = HF_LOST;
    set(&s->second, ASKED);
}

static pid_t play(void (*part)(struct stage *), struct stage *s)
{
    fflush(stdout);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        part(s);
        _exit(0);
    }
    return pid;
}

/* In memory that the parties share; the teardown finds their pids there. */
void outage_holder_stopped(void **state)
{
    (void)state;
    enum { ROUNDS = 4 };
    for (int round = 0; round < ROUNDS; round++) {
        outage_next_scene();
        struct stage *s = (struct stage *)(void *)world->hold;
        world->party[0].pid = play(first_holder, s);
        stage_wait(&s->first, HOLDS);
        world->party[1].pid = play(second_holder, s);
        outage_nap_ms(outage_below_ms(outage_lease_ms)); /* before, in, or after a renewal */
        kill(world->party[0].pid, SIGSTOP);
        stage_wait(&s->second, SUCCEEDED);
        kill(world->party[0].pid, SIGCONT);
        for (int i = 0; i < 2; i++) {
            int status = -1;
            waitpid(world->party[i].pid, &status, 0);
            world->party[i].pid = 0;
            assert_int_equal(status, 0);
        }
        assert_int_equal(s->second, ASKED);
        assert_true(s->left_ms <= 0);
        assert_string_equal(hf_code_name(s->confirmed), "LOST");
        assert_string_equal(hf_code_name(s->renewed), "LOST");
        assert_string_equal(hf_code_name(s->released), "LOST");
        assert_string_equal(hf_code_name(s->kept), "OK");
        assert_true(s->first_token > outage_floor[0]);
        assert_true(s->second_token > s->first_token);
        outage_floor[0] = s->second_token;
    }
    printf("# %d holders stopped for longer than their lease\n", ROUNDS);
}
