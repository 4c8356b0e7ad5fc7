/*
 * outage.c - the store is killed, stopped, emptied and set back while processes hold keys and want
 * them; so are the processes.
 *
 *   tests/servers/NAME outage @ [PATTERN]     (SEED=number: the same decisions again)
 *
 * What is done to the server goes through the control of tests/servers/common.sh, and which scenes
 * are played depends on what that can do. Each scene starts some parties (outage_party.c), lets
 * something happen to them, sees that each of them is served again, ends them, and judges what they
 * wrote down (outage_judge.c). A call that doesn't return in time fails, and so does a scene
 * without grants, without a change of hands, or without the losses that it was made for.
 */
#include "outage.h"

#include "os.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SERVED_MS = 600000, ENDED_MS = 600000, ENOUGH_GRANTS = 30 }; /* later isn't just slow */

struct world *world;
const char *outage_url;
uint64_t outage_seed;
int64_t outage_lease_ms = 1000;

static uint64_t chance, incarnations;
static const char *control;
static char abilities[400];
static int server_down, server_paused, server_parted;
static void (*party_body)(int);
uint64_t outage_floor[OUTAGE_KEYS];
static struct window windows[OUTAGE_WINDOWS];
static int n_windows;

int64_t outage_us(void) { return hf__local_us(); }

/* splitmix64 */
static uint64_t next_chance(void)
{
    uint64_t z = (chance += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

uint64_t outage_below(uint64_t n) { return next_chance() % n; }

void outage_reseed(uint64_t with)
{
    chance = outage_seed ^ with * UINT64_C(0xd1342543de82ef95);
    next_chance();
}

void outage_next_scene(void)
{
    static uint64_t scene;
    memset(world, 0, sizeof *world);
    outage_reseed(++scene << 32);
}

const char *outage_key(int key)
{
    static const char *const keys[OUTAGE_KEYS] = {"outage/a", "outage/b"};
    return keys[key];
}

void outage_nap_ms(int64_t ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&t, &t) && errno == EINTR) continue;
}

/* ---- the server ---- */

static int can(const char *what) { return strstr(abilities, what) != NULL; }

/* Runs the control; its output goes to `to`. */
static void control_says(const char *verb, char *to, size_t cap)
{
    int pipe_fd[2];
    assert_int_equal(pipe(pipe_fd), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        dup2(pipe_fd[1], 1);
        close(pipe_fd[0]);
        close(pipe_fd[1]);
        execl(control, control, verb, (char *)NULL);
        _exit(127);
    }
    close(pipe_fd[1]);
    size_t n = 0;
    ssize_t got;
    while (n < cap - 1 && (got = read(pipe_fd[0], to + n, cap - 1 - n)) > 0) n += (size_t)got;
    to[n] = 0;
    close(pipe_fd[0]);
    int status, rc;
    do rc = waitpid(pid, &status, 0);
    while (rc < 0 && errno == EINTR);
    if (status) fail_msg("the server's control: %s: status %d: %s", verb, status, to);
}

static void tell_server(const char *verb)
{
    char line[4000];
    control_says(verb, line, sizeof line);
}

/* After `what` the store may have forgotten grants that it has made; `all`: it has forgotten
   everything. */
static void forget_by(void (*what)(void), int all)
{
    int64_t from_us = outage_us();
    what();
    assert_true(n_windows < OUTAGE_WINDOWS);
    windows[n_windows++] = (struct window){from_us, outage_us(), all};
}

static void start_server(void)
{
    tell_server("start");
    server_down = 0;
}

static void pause_server(int stop)
{
    tell_server(stop ? "pause" : "resume");
    server_paused = stop;
}

/* ---- parties ---- */

static void start_party(int i)
{
    struct party *p = &world->party[i];
    uint64_t number = ++incarnations;
    p->late_us = p->holds_until_us = p->through = 0;
    fflush(stdout);
    pid_t parent = getpid(), pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) _exit(1);
        outage_reseed(number);
        party_body(i);
    }
    p->pid = pid;
}

static void end_party(int i)
{
    struct party *p = &world->party[i];
    if (!p->pid) return;
    kill(p->pid, SIGKILL);
    kill(p->pid, SIGCONT);
    waitpid(p->pid, NULL, 0);
    p->pid = 0;
}

/* Stops a party for a while. Time that it can't use isn't held against it. */
static void freeze_party(int i, int64_t ms)
{
    struct party *p = &world->party[i];
    kill(p->pid, SIGSTOP);
    outage_nap_ms(ms);
    if (__atomic_load_n(&p->late_us, __ATOMIC_SEQ_CST))
        __atomic_add_fetch(&p->late_us, ms * 1000, __ATOMIC_SEQ_CST);
    kill(p->pid, SIGCONT);
}

/* Checks that no party has gone, has met what must not be, or is overdue. */
static void look_after(void)
{
    for (int i = 0; i < OUTAGE_PARTIES; i++) {
        const struct party *p = &world->party[i];
        int64_t late_us = __atomic_load_n(&p->late_us, __ATOMIC_SEQ_CST);
        if (*p->odd) fail_msg("%s", p->odd);
        if (late_us && outage_us() > late_us) fail_msg("party %d: %s doesn't return", i, p->doing);
        int status;
        if (p->pid && waitpid(p->pid, &status, WNOHANG) == p->pid && !world->stop) {
            world->party[i].pid = 0;
            fail_msg("party %d ended: status 0x%x", i, (unsigned)status);
        }
    }
}

static void wait_ms(int64_t ms)
{
    int64_t until_us = outage_us() + ms * 1000;
    while (outage_us() < until_us) {
        look_after();
        outage_nap_ms(5);
    }
}

/* Returns the number of a process that holds a key for longer than a lease from now. */
static int await_holder(void)
{
    int64_t end_us = outage_us() + (int64_t)SERVED_MS * 1000;
    for (;;) {
        for (int i = 0; i < OUTAGE_PARTIES; i++) {
            int64_t until = __atomic_load_n(&world->party[i].holds_until_us, __ATOMIC_ACQUIRE);
            if (until > outage_us() + outage_lease_ms * 1500) return i;
        }
        look_after();
        if (outage_us() > end_us) fail_msg("nobody holds a key");
        outage_nap_ms(1);
    }
}

/* Waits until each party has got a key once more. */
static void all_are_served(void)
{
    uint64_t before[OUTAGE_PARTIES];
    int64_t end_us = outage_us() + (int64_t)SERVED_MS * 1000;
    for (int i = 0; i < OUTAGE_PARTIES; i++) before[i] = world->party[i].count[GRANTS];
    for (int i = 0; i < OUTAGE_PARTIES; i++)
        while (__atomic_load_n(&world->party[i].count[GRANTS], __ATOMIC_RELAXED) == before[i]) {
            look_after();
            if (outage_us() > end_us)
                fail_msg("party %d isn't served any more: %s", i, world->party[i].doing);
            outage_nap_ms(5);
        }
}

/* However slow they are, they race for something. */
static void await_grants(void)
{
    uint64_t n;
    int64_t end_us = outage_us() + (int64_t)SERVED_MS * 1000;
    do {
        wait_ms(5);
        n = 0;
        for (int i = 0; i < OUTAGE_PARTIES; i++)
            n += __atomic_load_n(&world->party[i].count[GRANTS], __ATOMIC_RELAXED);
    } while (n < ENOUGH_GRANTS && outage_us() < end_us);
}

static void all_end(void)
{
    int64_t end_us = outage_us() + (int64_t)ENDED_MS * 1000;
    __atomic_store_n(&world->stop, 1, __ATOMIC_SEQ_CST);
    for (int i = 0; i < OUTAGE_PARTIES; i++)
        while (world->party[i].pid) {
            int status;
            pid_t gone = waitpid(world->party[i].pid, &status, WNOHANG);
            if (gone) world->party[i].pid = 0;
            if (gone && status) fail_msg("party %d ended: status 0x%x", i, (unsigned)status);
            if (!gone && outage_us() > end_us)
                fail_msg("party %d: %s doesn't return", i, world->party[i].doing);
            if (!gone) outage_nap_ms(5);
        }
}

/* ---- scenes ---- */

static void begin_scene(void (*body)(int))
{
    party_body = body;
    n_windows = 0;
    outage_next_scene();
    for (int i = 0; i < OUTAGE_PARTIES; i++) start_party(i);
    wait_ms(300);
}

/* `lost`: a holder must have lost its key. */
static void end_scene(int lost)
{
    struct verdict v;
    all_are_served();
    await_grants();
    all_end();
    outage_judge(windows, n_windows, outage_floor, &v);
    printf("# %llu grants, %llu changes of hands, %llu refusals, %llu losses, %llu unknown, %llu "
           "unavailable, %llu pairs of which one was forgotten\n",
           (unsigned long long)v.count[GRANTS], (unsigned long long)v.changes,
           (unsigned long long)v.count[REFUSALS], (unsigned long long)v.count[LOSSES],
           (unsigned long long)v.count[UNKNOWNS], (unsigned long long)v.count[AWAYS],
           (unsigned long long)v.pairs);
    if (*v.why) fail_msg("%s", v.why);
    if (v.count[GRANTS] < 10 || v.changes < 5) fail_msg("nobody raced for anything");
    if (lost && !v.count[LOSSES]) fail_msg("nobody lost anything");
}

/* Returns 1 if the scene has shown no loss: then it goes on, for a while. On a busy machine a
   holder may have released before the outage. */
static int shows_no_loss(int rounds)
{
    enum { ROUNDS_CAP = 100 };
    for (int i = 0; i < OUTAGE_PARTIES; i++)
        if (__atomic_load_n(&world->party[i].count[LOSSES], __ATOMIC_RELAXED)) return 0;
    return rounds < ROUNDS_CAP;
}

static void for_one_lease_longer(void) { wait_ms(outage_lease_ms + 400 + outage_below_ms(600)); }

static void parties_stopped(void **state)
{
    (void)state;
    begin_scene(party_run);
    for (int i = 0; i < 8 || shows_no_loss(i); i++) {
        /* Any process, for a while; or the holder, until about when its successor has begun. */
        int who = await_holder();
        int64_t ms = outage_lease_ms + outage_below_ms(outage_lease_ms / 3);
        if (i % 4 == 0) {
            who = (int)outage_below(OUTAGE_PARTIES);
            ms = outage_lease_ms / 2 + outage_below_ms(outage_lease_ms * 3 / 2);
        }
        freeze_party(who, ms);
        look_after();
    }
    end_scene(1);
}

/* No promise hangs on the clients' idea of the date. */
static void clocks_stepped(void **state)
{
    (void)state;
    begin_scene(party_stepped);
    for (int i = 0; i < 2; i++) {
        await_holder();
        for_one_lease_longer();
    }
    end_scene(0);
}

static void parties_killed(void **state)
{
    (void)state;
    begin_scene(party_run);
    for (int i = 0; i < 12; i++) {
        int who = (int)outage_below(OUTAGE_PARTIES);
        wait_ms(100 + outage_below_ms(400));
        end_party(who);
        start_party(who);
    }
    end_scene(0);
}

static void kill_and_start_at_once(void)
{
    server_down = 1;
    tell_server("kill");
    start_server();
}

static void kill_and_start_late(void)
{
    server_down = 1;
    tell_server("kill");
    for_one_lease_longer();
    start_server();
}

static void server_killed(void **state)
{
    (void)state;
    void (*const ways[])(void) = {kill_and_start_at_once, kill_and_start_late,
                                  kill_and_start_at_once};
    begin_scene(party_run);
    for (int i = 0; i < 3 || shows_no_loss(i); i++) {
        void (*way)(void) = ways[i < 3 ? i : 1];
        await_holder();
        if (can("forgets"))
            forget_by(way, 1);
        else
            way();
        wait_ms(outage_below_ms(700));
    }
    end_scene(1);
}

static void fail_over(void) { tell_server("failover"); }

/* Another server takes the place of one that is killed. */
static void server_failed_over(void **state)
{
    (void)state;
    begin_scene(party_run);
    for (int i = 0; i < 4 || (can("failover-forgets") && shows_no_loss(i)); i++) {
        await_holder();
        if (can("failover-forgets"))
            forget_by(fail_over, 0);
        else
            fail_over();
        all_are_served();
    }
    end_scene(0);
}

/* A cluster's leader is cut off from the other members, which elect another, but not from us. Or it
   is stopped until all the leases that it counts are over: when it goes on, it may end a lease that
   the new leader keeps for its holder. */
static void leader_parted(void **state)
{
    (void)state;
    begin_scene(party_run);
    for (int i = 0; i < 10; i++) {
        int stop = i >= 2;
        await_holder();
        tell_server(stop ? "freeze" : "part");
        server_parted = 1;
        if (stop || outage_below(2)) for_one_lease_longer();
        if (i < 3) all_are_served();
        if (stop) await_holder();
        tell_server("heal");
        server_parted = 0;
        wait_ms(outage_below_ms(700));
    }
    end_scene(0);
}

static void server_stopped(void **state)
{
    (void)state;
    begin_scene(party_run);
    for (int i = 0; i < 4 || shows_no_loss(i); i++) {
        await_holder();
        pause_server(1);
        i % 2 ? for_one_lease_longer() : wait_ms(outage_below_ms(outage_lease_ms));
        pause_server(0);
        wait_ms(outage_below_ms(500));
    }
    end_scene(1);
}

static void wipe(void) { tell_server("wipe"); }
static void drop(void) { tell_server("drop"); }
static void restore(void) { tell_server("restore"); }
static void forgetting(void (*how)(void))
{
    begin_scene(party_run);
    for (int i = 0; i < 3 || shows_no_loss(i); i++) {
        await_holder();
        if (!i && can("coarse")) wait_ms(outage_lease_ms); /* see can in tests/servers/common.sh */
        forget_by(how, 1);
        for_one_lease_longer();
    }
    end_scene(1);
}

static void rows_wiped(void **state)
{
    (void)state;
    forgetting(wipe);
}

static void table_dropped(void **state)
{
    (void)state;
    forgetting(drop);
}

static void backup_restored(void **state)
{
    (void)state;
    begin_scene(party_run);
    await_holder();
    tell_server("backup");
    wait_ms(outage_lease_ms); /* the holder is in it: its lease there is over soon */
    for (int i = 0; i < 2 || shows_no_loss(i); i++) {
        for_one_lease_longer();
        await_holder();
        forget_by(restore, 1);
    }
    end_scene(1);
}

static int all_through(void)
{
    for (int i = 0; i < OUTAGE_PARTIES; i++)
        if (!world->party[i].through) return 0;
    return 1;
}

static void hurt_somebody(void)
{
    int who = (int)outage_below(OUTAGE_PARTIES);
    if (can("kill") && !can("forgets") && outage_below(2)) {
        kill_and_start_at_once();
    } else if (can("failover") && !can("failover-forgets") && outage_below(2)) {
        fail_over();
    } else if (can("pause") && outage_below(2)) {
        pause_server(1);
        wait_ms(outage_below_ms(outage_lease_ms * 2));
        pause_server(0);
    } else {
        end_party(who);
        start_party(who);
    }
}

/* Events that are marked as done stay so, and each is done once, whatever happens. */
static void events_serviced(void **state)
{
    (void)state;
    uint64_t runs = 0, told = 0;
    int64_t end_us = outage_us() + INT64_C(1800000000);
    int hurt = 0;
    begin_scene(party_service);
    for (; !all_through(); hurt++) {
        int64_t began_us = outage_us();
        hurt_somebody();
        /* A killed party begins anew: the slower they are, the longer it must be left alone. So
           must servers that elect another one for seconds; not at first, for two are wanted. */
        int64_t took_ms = (outage_us() - began_us) / 1000;
        if (began_us > end_us) fail_msg("not all events are done");
        wait_ms((hurt ? took_ms : 0) + (300 + outage_below_ms(500)) * (1 + hurt / 12));
    }
    all_end();
    for (int i = 0; i < OUTAGE_PARTIES; i++) {
        runs += world->party[i].count[GRANTS];
        told += world->party[i].count[DONES];
        if (*world->party[i].odd) fail_msg("%s", world->party[i].odd);
    }
    printf("# %d events: %llu runs, %llu times told that it is done, %d outages\n", OUTAGE_EVENTS,
           (unsigned long long)runs, (unsigned long long)told, hurt);
    /* A fail-over takes its time, in which much is done. */
    assert_true(runs >= OUTAGE_EVENTS && told >= OUTAGE_EVENTS && hurt > !can("failover"));
}

/* ---- all of it ---- */

/* Cleans up after a scene that has failed. */
static int tidy_up(void **state)
{
    (void)state;
    for (int i = 0; i < OUTAGE_PARTIES; i++) end_party(i);
    if (server_paused) pause_server(0);
    if (server_parted) tell_server("heal");
    server_parted = 0;
    if (server_down) start_server();
    return 0;
}

static int set_up(void)
{
    const char *given = getenv("SEED"), *lease = getenv("HOLDFAST_TEST_LEASE_MS");
    control = getenv("HOLDFAST_TEST_CONTROL");
    if (lease) outage_lease_ms = strtoll(lease, NULL, 10);
    if (!control) {
        fprintf(stderr, "outage: run it by one of tests/servers\n");
        return 64;
    }
    world = mmap(NULL, sizeof *world, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (world == MAP_FAILED) return 71;
    hf__random(&outage_seed, sizeof outage_seed);
    if (given) outage_seed = strtoull(given, NULL, 10);
    control_says("can", abilities, sizeof abilities);
    abilities[strcspn(abilities, "\n")] = 0;
    return 0;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *needs;
        struct CMUnitTest test;
    } scenes[] = {
        {"", cmocka_unit_test_teardown(outage_holder_stopped, tidy_up)},
        {"", cmocka_unit_test_teardown(parties_stopped, tidy_up)},
        {"", cmocka_unit_test_teardown(clocks_stepped, tidy_up)},
        {"", cmocka_unit_test_teardown(parties_killed, tidy_up)},
        {"", cmocka_unit_test_teardown(events_serviced, tidy_up)},
        {"kill", cmocka_unit_test_teardown(server_killed, tidy_up)},
        {"failover", cmocka_unit_test_teardown(server_failed_over, tidy_up)},
        {"part", cmocka_unit_test_teardown(leader_parted, tidy_up)},
        {"pause", cmocka_unit_test_teardown(server_stopped, tidy_up)},
        {"wipe", cmocka_unit_test_teardown(rows_wiped, tidy_up)},
        {"drop", cmocka_unit_test_teardown(table_dropped, tidy_up)},
        {"backup", cmocka_unit_test_teardown(backup_restored, tidy_up)},
    };
    struct CMUnitTest outage[sizeof scenes / sizeof *scenes];
    size_t n = 0;
    if (argc < 2) {
        fprintf(stderr, "usage: outage URL [PATTERN]\n");
        return 64;
    }
    outage_url = argv[1];
    int rc = outage_step_clocks(argv);
    if (!rc) rc = set_up();
    if (rc) return rc;
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++)
        if (can(scenes[i].needs)) outage[n++] = scenes[i].test;
    cmocka_set_message_output(CM_OUTPUT_TAP);
    if (argc > 2) cmocka_set_test_filter(argv[2]);
    printf("# the server can: %s\n# again: SEED=%llu tests/servers/NAME outage @%s%s\n", abilities,
           (unsigned long long)outage_seed, argc > 2 ? " " : "", argc > 2 ? argv[2] : "");
    return _cmocka_run_group_tests("outage", outage, n, NULL, NULL);
}
