/*
 * file_life.c - the `file:` driver between threads and processes: races, wakeups, deaths, forks.
 */
#include "../../drivers/file/store.h"

#include "file_common.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Shared with children. */
static struct together {
    _Atomic uint64_t conflicts, ready;
    uint64_t session;
} *together;

/* ---- races ---- */

enum { RACERS = 4, WINS = 3000 };

/* Adds one to the rev, WINS times, however often others are faster. */
static void race(hf_store *st)
{
    hf_row row, next;
    hf_rowkey key = key_of("race");
    hf_error err;
    int64_t clock_us;
    uint64_t hint = 0;
    key.hint = &hint;
    hf_row_init(&row);
    hf_row_init(&next);
    for (int won = 0; won < WINS;) {
        if (drv->get(st, &key, &row, &clock_us, &err)) abort();
        if (hf_row_copy(&next, &row)) abort();
        next.rev++;
        next.token = next.rev;
        int rc = drv->replace(st, &key, row.rev, &next, NULL, &clock_us, &err);
        if (rc < 0) abort();
        if (rc) together->conflicts++;
        won += !rc;
    }
    hf_row_clear(&row);
    hf_row_clear(&next);
}

static void *race_thread(void *st)
{
    race(st);
    return NULL;
}

static void nothing_is_lost_between_threads(void **state)
{
    pthread_t t[RACERS];
    hf_store *st = open_store();
    hf_row row;
    (void)state;
    hf_row_init(&row);
    together->conflicts = 0;
    uint64_t rounds = 0;
    do { /* on a busy machine the threads may have run one after the other */
        for (int i = 0; i < RACERS; i++)
            assert_int_equal(pthread_create(&t[i], NULL, race_thread, st), 0);
        for (int i = 0; i < RACERS; i++) pthread_join(t[i], NULL);
        rounds++;
    } while (!together->conflicts);
    get(st, "race", &row);
    assert_int_equal(row.rev, rounds * RACERS * WINS);
    drv->close(st);
    hf_row_clear(&row);
}

static void nothing_is_lost_between_processes(void **state)
{
    hf_store *st = open_store();
    hf_row row;
    uint64_t rounds = 0;
    (void)state;
    hf_row_init(&row);
    together->conflicts = 0;
    do {
        pid_t child[RACERS];
        for (int i = 0; i < RACERS; i++) {
            child[i] = fork();
            if (child[i]) continue;
            hf_store *own = open_store();
            race(own);
            drv->close(own);
            _exit(0);
        }
        for (int i = 0; i < RACERS; i++) {
            int status;
            assert_int_equal(waitpid(child[i], &status, 0), child[i]);
            assert_int_equal(status, 0);
        }
        rounds++;
    } while (!together->conflicts);
    get(st, "race", &row);
    assert_int_equal(row.rev, rounds * RACERS * WINS);
    drv->close(st);
    hf_row_clear(&row);
}

/* ---- wakeups ---- */

static void a_handover_wakes_who_is_next(void **state)
{
    hf_store *st = open_store(), *other = open_store();
    hf_event_count since, quiet;
    hf_error err;
    hf_row row;
    uint64_t session;
    (void)state;
    hf_row_init(&row);
    assert_int_equal(drv->caps.liveness->session(st, &session, &err), 0);
    fill_row(&row, 5, 1, 2);
    row.party[1].session = session;
    row.party[1].wakeup = 3;
    row.party[2].session = session;
    row.party[2].wakeup = 4;
    assert_int_equal(replace(other, "k", 0, &row, NULL), 0);
    assert_int_equal(drv->caps.local->wakeup_begin(st, 3, 0, &since, &err), 0);
    assert_int_equal(drv->caps.local->wakeup_begin(st, 4, 0, &quiet, &err), 0);

    hf_row next; /* released by the holder, granted to the first in the queue */
    hf_row_init(&next);
    fill_row(&next, 6, 1, 1);
    hf_party_copy(&next.party[0], &row.party[1]);
    hf_party_copy(&next.party[1], &row.party[2]);
    next.party[0].token = 6;
    next.party[0].flags = HF_PARTY_UNCLAIMED;
    assert_int_equal(replace(other, "k", 5, &next, NULL), 0);
    int64_t start = hf__local_us();
    assert_int_equal(drv->caps.local->sleep(st, 3, &since, start + 100000000, &err), 0);
    assert_true(hf__local_us() - start < 50000000);
    start = hf__local_us();
    assert_int_equal(drv->caps.local->sleep(st, 4, &quiet, start + 20000, &err), 0);
    assert_true(hf__local_us() - start >= 20000);
    drv->close(st);
    drv->close(other);
    hf_row_clear(&row);
    hf_row_clear(&next);
}

static void *interrupt(void *st)
{
    drv->caps.local->interrupt(st, 200);
    return NULL;
}

static void interrupt_ends_a_watch(void **state)
{
    hf_store *st = open_store();
    pthread_t t;
    hf_event_count since;
    hf_error err;
    int64_t start = hf__local_us();
    (void)state;
    assert_int_equal(drv->caps.local->wakeup_begin(st, 200, 0, &since, &err), 0);
    assert_int_equal(pthread_create(&t, NULL, interrupt, st), 0);
    assert_int_equal(drv->caps.local->sleep(st, 200, &since, start + 100000000, &err), 0);
    pthread_join(t, NULL);
    drv->caps.local->interrupt(st, 200); /* an interrupt also ends the next sleep, if no thread
                                            sleeps now */
    assert_int_equal(drv->caps.local->wakeup_begin(st, 200, 0, &since, &err), 0);
    assert_int_equal(drv->caps.local->sleep(st, 200, &since, start + 100000000, &err), 0);
    assert_true(hf__local_us() - start < 50000000);
    drv->close(st);
}

/* ---- the dead ---- */

static pid_t start_holder(void)
{
    together->ready = 0;
    pid_t child = fork();
    if (child) {
        while (!together->ready) usleep(20);
        return child;
    }
    hf_store *st = open_store();
    hf_error err;
    hf_row row;
    hf_party p;
    hf_row_init(&row);
    if (drv->caps.liveness->session(st, &together->session, &err)) abort();
    fill_party(&p, 1, "");
    p.session = together->session;
    p.lease_ms = 0;
    if (take(st, "held", &p, &row)) abort();
    together->ready = 1;
    for (;;) pause();
}

static void end(pid_t child, int sig)
{
    int status;
    kill(child, sig);
    assert_int_equal(waitpid(child, &status, 0), child);
}

static void a_dead_session_is_known_at_once(void **state)
{
    hf_store *st = open_store();
    hf_error err;
    hf_row row;
    uint64_t own;
    (void)state;
    hf_row_init(&row);
    assert_int_equal(drv->caps.liveness->session(st, &own, &err), 0);
    int fd = drv->caps.liveness->death_fd(st);
    pid_t child = start_holder();
    assert_int_equal(drv->caps.liveness->alive(st, own, &err), 1);
    assert_int_equal(drv->caps.liveness->alive(st, together->session, &err), 1);
    kill(child, SIGSTOP); /* a stopped process lives */
    assert_int_equal(drv->caps.liveness->alive(st, together->session, &err), 1);
    drv->caps.liveness->death_read(st);
    end(child, SIGKILL);
    assert_int_equal(drv->caps.liveness->alive(st, together->session, &err), 0);
    assert_int_equal(drv->caps.liveness->alive(st, together->session + (1 << 16), &err), 0);
    assert_int_equal(drv->caps.liveness->alive(st, UINT64_MAX, &err), 0);
    if (fd >= 0) { /* inotify said so, too */
        fd_set set;
        struct timeval none = {0, 0};
        FD_ZERO(&set);
        FD_SET(fd, &set);
        assert_int_equal(select(fd + 1, &set, NULL, NULL, &none), 1);
        drv->caps.liveness->death_read(st);
        FD_SET(fd, &set);
        assert_int_equal(select(fd + 1, &set, NULL, NULL, &none), 0);
    }
    get(st, "held", &row);
    assert_int_equal(row.n_holders, 1);
    assert_int_equal(row.party[0].session, together->session);
    drv->close(st);
    hf_row_clear(&row);
}

/* ---- lock words ---- */

/* Starts a process that dies, or stops, with the bucket of `text` locked. It writes the lock word
   itself, as hf__lock would. Returns when it has. */
static pid_t lock_bucket(const char *text, int then)
{
    together->ready = 0;
    pid_t child = fork();
    if (child) {
        while (!together->ready) usleep(20);
        return child;
    }
    hf_store *st = open_store();
    struct hf__client *c = hf__client_of(st);
    atomic_store(&hf__bucket_at(c, key_of(text).hash)->lock, c->word);
    together->ready = 1;
    if (then == SIGKILL) kill(getpid(), SIGKILL);
    for (;;) pause();
}

static void a_lock_word_of_the_dead_is_taken_over(void **state)
{
    hf_store *st = open_store();
    hf_row row;
    hf_party p;
    int status;
    (void)state;
    hf_row_init(&row);
    pid_t child = lock_bucket("k", SIGKILL);
    assert_int_equal(waitpid(child, &status, 0), child);
    int64_t start = hf__local_us();
    fill_party(&p, 1, "");
    assert_int_equal(take(st, "k", &p, &row), 0);
    assert_true(hf__local_us() - start < 1000000);
    get(st, "k", &row);
    assert_int_equal(row.n_holders, 1);
    drv->close(st);
    hf_row_clear(&row);
}

static void who_was_not_woken_by_the_dead_is_woken(void **state)
{
    hf_store *st = open_store();
    hf_event_count since;
    hf_error err;
    hf_row row;
    uint64_t session;
    int status;
    (void)state;
    hf_row_init(&row);
    assert_int_equal(drv->caps.liveness->session(st, &session, &err), 0);
    fill_row(&row, 5, 1, 0); /* the process that granted it died before the wakeup */
    row.party[0].session = session;
    row.party[0].wakeup = 9;
    row.party[0].flags = HF_PARTY_UNCLAIMED;
    assert_int_equal(replace(st, "k", 0, &row, NULL), 0);
    pid_t child = lock_bucket("k", SIGKILL);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(drv->caps.local->wakeup_begin(st, 9, 0, &since, &err), 0);
    hf_store *other = open_store();
    get(other, "k", &row);
    int64_t start = hf__local_us();
    assert_int_equal(drv->caps.local->sleep(st, 9, &since, start + 100000000, &err), 0);
    assert_true(hf__local_us() - start < 50000000);
    drv->close(st);
    drv->close(other);
    hf_row_clear(&row);
}

static void a_stopped_process_blocks_for_a_limited_time(void **state)
{
    hf_url url;
    hf_error err;
    hf_row row;
    hf_store *st;
    hf_rowkey key = key_of("k");
    int64_t clock_us;
    (void)state;
    hf_row_init(&row);
    pid_t child = lock_bucket("k", SIGSTOP);
    assert_int_equal(hf_url_parse(url_text, &url, &err), 0);
    assert_int_equal(drv->open(&url, 50, &st, &(hf_caps){0}, &err), 0);
    assert_int_equal(drv->get(st, &key, &row, &clock_us, &err), HF_UNAVAILABLE);
    assert_non_null(strstr(err.text, "stopped"));
    end(child, SIGKILL);
    assert_int_equal(drv->get(st, &key, &row, &clock_us, &err), 0);
    drv->close(st);
    hf_row_clear(&row);
}

/* ---- forks ---- */

/* As with `holdfast run`: the command has a duplicate of the descriptor, and its wrapper is killed
   with a bucket locked. The hold goes on, the lock word doesn't. */
static void a_session_outlives_its_process_in_a_child(void **state)
{
    hf_store *st = open_store();
    hf_error err;
    hf_row row;
    int hold[2], status;
    char byte;
    (void)state;
    hf_row_init(&row);
    assert_int_equal(pipe(hold), 0);
    together->ready = 0;
    pid_t wrapper = fork();
    if (!wrapper) {
        close(hold[1]);
        hf_store *own = open_store();
        struct hf__client *c = hf__client_of(own);
        if (drv->caps.liveness->session(own, &together->session, &err)) abort();
        int fd = dup(drv->caps.liveness->session_fd(own));
        if (fd < 0) abort();
        if (!fork()) { /* the command: runs until the test closes the pipe */
            together->ready = 1;
            _exit(read(hold[0], &byte, 1) != 0);
        }
        while (!together->ready) usleep(20);
        close(fd);
        atomic_store(&hf__bucket_at(c, key_of("k").hash)->lock, c->word);
        kill(getpid(), SIGKILL);
    }
    assert_int_equal(waitpid(wrapper, &status, 0), wrapper);
    assert_int_equal(drv->caps.liveness->alive(st, together->session, &err), 1);
    get(st, "k", &row);
    assert_int_equal(drv->caps.liveness->alive(st, together->session, &err), 1);
    close(hold[1]);
    close(hold[0]);
    int64_t until = hf__local_us() + 600000000;
    while (drv->caps.liveness->alive(st, together->session, &err) && hf__local_us() < until)
        usleep(20);
    assert_int_equal(drv->caps.liveness->alive(st, together->session, &err), 0);
    drv->close(st);
    hf_row_clear(&row);
}

static void a_forked_child_has_nothing(void **state)
{
    hf_store *st = open_store();
    hf_error err;
    hf_row row;
    hf_rowkey key = key_of("k");
    uint64_t session;
    int64_t clock_us;
    int go[2], status;
    char byte;
    (void)state;
    hf_row_init(&row);
    assert_int_equal(drv->caps.liveness->session(st, &session, &err), 0);
    drv->caps.liveness->death_fd(st);
    assert_int_equal(pipe(go), 0);
    together->ready = 0;
    pid_t child = fork();
    if (!child) { /* every operation says so, and touches nothing */
        together->ready = 1;
        close(go[1]);
        hf_event_count since = {{0, 0}};
        int bad = drv->get(st, &key, &row, &clock_us, &err) != HF_LOST;
        bad |= drv->replace(st, &key, 0, &row, NULL, &clock_us, &err) != HF_LOST;
        bad |= drv->caps.liveness->alive(st, session, &err) != HF_LOST;
        bad |= drv->caps.liveness->session(st, &session, &err) != HF_LOST;
        bad |= drv->caps.local->wakeup_begin(st, 0, 0, &since, &err) != HF_LOST;
        bad |= drv->caps.local->sleep(st, 0, &since, INT64_MAX, &err) != HF_LOST;
        bad |= sync_event(st, &err) != HF_LOST;
        bad |= drv->caps.liveness->session_fd(st) != -1 || drv->caps.liveness->death_fd(st) != -1;
        drv->caps.local->interrupt(st, 0);
        drv->close(st);
        hf_store *own = open_store(); /* but it may open a handle of its own */
        get(own, "k", &row);
        drv->close(own);
        bad |= read(go[0], &byte, 1) != 1;
        _exit(bad);
    }
    while (!together->ready) usleep(20);
    get(st, "k", &row); /* the parent's is unaffected */
    drv->close(st);
    st = open_store(); /* and the child doesn't hide the parent's death */
    assert_int_equal(drv->caps.liveness->alive(st, session, &err), 0);
    assert_int_equal(write(go[1], "x", 1), 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    close(go[0]);
    close(go[1]);
    drv->close(st);
    hf_row_clear(&row);
}

/* A daemon that closes every descriptor has closed the store's, too: its holds are over, and it
   gets LOST instead of believing that it holds. */
static void a_descriptor_closed_by_the_program_is_noticed(void **state)
{
    hf_store *st = open_store();
    struct hf__client *c = hf__client_of(st);
    hf_error err;
    hf_event_count since;
    (void)state;
    int other = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_true(other >= 0);
    assert_int_equal(dup2(other, c->session_fd), c->session_fd);
    assert_int_equal(drv->caps.local->wakeup_begin(st, 0, 0, &since, &err), 0);
    assert_int_equal(drv->caps.local->sleep(st, 0, &since, hf__local_us() + 1000, &err),
                     HF_CORRUPT);
    assert_non_null(strstr(err.text, "closed"));
    drv->close(st);
    close(other);
}

/* The descriptors were closed as above, and other files have their numbers by now. That nothing is
   locked in those proves nothing. */
static void descriptors_of_others_say_nothing(void **state)
{
    hf_store *st = open_store();
    struct hf__client *c = hf__client_of(st);
    hf_error err;
    struct stat s;
    char name[160];
    (void)state;
    pid_t child = start_holder();
    assert_int_equal(drv->caps.liveness->alive(st, together->session, &err), 1);
    snprintf(name, sizeof name, "%s.log", path);
    int other = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(other >= 0);
    assert_int_equal(dup2(other, c->fd), c->fd);
    assert_int_equal(dup2(other, c->session_fd), c->session_fd);
    assert_int_equal(drv->caps.liveness->alive(st, together->session, &err), HF_UNAVAILABLE);
    assert_int_equal(hf__os_grow(c, 2 * c->limit), EBADF);
    assert_int_equal(hf__os_sync(c, 0, 0), EBADF);
    assert_int_equal(fstat(other, &s), 0);
    assert_int_equal(s.st_size, 0);
    end(child, SIGKILL);
    drv->close(st);
    close(other);
}

/* The descriptors were closed as above, but this program has opened the store again, and that has
   their numbers. */
static void descriptors_of_a_store_opened_again_are_its_own(void **state)
{
    hf_store *st = open_store(), *again;
    hf_error err;
    (void)state;
    again = open_store();
    assert_int_equal(sync_event(st, &err), 0);
    struct hf__client *c = hf__client_of(st), *now = hf__client_of(again);
    uint64_t dead = c->session + (UINT64_C(1) << 16); /* to be, when it has been opened */
    assert_int_equal(dup2(now->fd, c->fd), c->fd);
    assert_int_equal(dup2(now->session_fd, c->session_fd), c->session_fd);
    assert_int_equal(drv->caps.liveness->alive(st, dead, &err), 0); /* by its generation */
    assert_int_equal(sync_event(again, &err), 0);
    assert_int_equal(sync_event(st, &err), HF_CORRUPT);
    assert_non_null(strstr(err.text, "closed"));
    assert_int_equal(sync_event(again, &err), 0);
    drv->close(st);
    drv->close(again);
}

/* ---- damage ---- */

static int see_each(void *seen, const hf_rowkey *key, hf_row *row)
{
    ((int *)seen)[key->text[0] - 'a'] += row ? 1 : 10;
    return 0;
}

static void a_damaged_row_hides_no_other(void **state)
{
    hf_store *st = open_store();
    struct hf__client *c = hf__client_of(st);
    const struct hf__op op = {c, "spoil", NULL, NULL};
    struct hf__found f = {.cell = NULL};
    hf_error err;
    hf_row row;
    int64_t clock_us;
    (void)state;
    hf_row_init(&row);
    for (const char *name = "a\0b\0c\0"; *name; name += 2) {
        fill_row(&row, 5, 1, 1);
        assert_int_equal(replace(st, name, 0, &row, NULL), 0);
    }
    assert_int_equal(hf__follow(&op, &hf__bucket_at(c, key_of("b").hash)->head, 0, &f.cell), 0);
    assert_int_equal(hf__current(&op, &f), 0);
    unsigned char *party = (unsigned char *)(f.at + 1), *head = (unsigned char *)f.at;
    for (int i = 0; i < 2; i++) { /* first a flipped party, then a flipped head */
        int seen[3] = {0, 0, 0};
        party[0] ^= 1;
        if (i) head[offsetof(struct hf__body, rev)] ^= 1;
        assert_int_equal(drv->scan(st, "", see_each, seen, &clock_us, &err), 0);
        assert_int_equal(seen[0], 1);
        assert_int_equal(seen[1], 10);
        assert_int_equal(seen[2], 1);
        memset(seen, 0, sizeof seen);
        assert_int_equal(drv->scan(st, "c", see_each, seen, &clock_us, &err), 0);
        assert_int_equal(seen[1], 0);
        assert_int_equal(seen[2], 1);
    }
    drv->close(st);
    hf_row_clear(&row);
}

/* ---- slots ---- */

static void all_sessions_in_use(void **state)
{
    hf_store *st = open_store();
    hf_error err;
    struct hf__client *c = hf__client_of(st);
    struct flock all = {.l_type = F_WRLCK,
                        .l_whence = SEEK_SET,
                        .l_start = HF_BYTE_SESSION,
                        .l_len = HF_FILE_SLOTS};
    (void)state;
    uint32_t own = (uint32_t)(c->session & 0xffff);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    all.l_len = own; /* everything but this one's */
    if (own) assert_int_equal(fcntl(fd, F_OFD_SETLK, &all), 0);
    all.l_start = HF_BYTE_SESSION + own + 1;
    all.l_len = HF_FILE_SLOTS - own - 1;
    if (all.l_len) assert_int_equal(fcntl(fd, F_OFD_SETLK, &all), 0);
    assert_int_equal(open_code(url_text, &err), HF_FULL);
    close(fd);
    assert_int_equal(open_code(url_text, &err), 0);
    drv->close(st);
}

static int share(void **state)
{
    together =
        mmap(NULL, sizeof *together, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return together == MAP_FAILED || make_dir(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(nothing_is_lost_between_threads, new_path),
        cmocka_unit_test_setup(nothing_is_lost_between_processes, new_path),
        cmocka_unit_test_setup(a_handover_wakes_who_is_next, new_path),
        cmocka_unit_test_setup(interrupt_ends_a_watch, new_path),
        cmocka_unit_test_setup(a_dead_session_is_known_at_once, new_path),
        cmocka_unit_test_setup(a_lock_word_of_the_dead_is_taken_over, new_path),
        cmocka_unit_test_setup(who_was_not_woken_by_the_dead_is_woken, new_path),
        cmocka_unit_test_setup(a_stopped_process_blocks_for_a_limited_time, new_path),
        cmocka_unit_test_setup(a_session_outlives_its_process_in_a_child, new_path),
        cmocka_unit_test_setup(a_forked_child_has_nothing, new_path),
        cmocka_unit_test_setup(a_descriptor_closed_by_the_program_is_noticed, new_path),
        cmocka_unit_test_setup(descriptors_of_others_say_nothing, new_path),
        cmocka_unit_test_setup(descriptors_of_a_store_opened_again_are_its_own, new_path),
        cmocka_unit_test_setup(a_damaged_row_hides_no_other, new_path),
        cmocka_unit_test_setup(all_sessions_in_use, new_path),
    };
    return TEST_MAIN_WITH(tests, share, remove_dir);
}
