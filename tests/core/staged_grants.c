/*
 * staged_grants.c - rare paths of grants and of reading a store: unknown outcomes, refusals, keys
 * with one hash, a handle that is closed meanwhile.
 */
#include "staged_waiter.h"

#include "admin.h"
#include "lock.h"
#include "scratch.h"

#include <stdlib.h>
#include <string.h>

/* ---- grants ---- */

static void adopted_it_lasts_until_the_store_says_so(void **state)
{
    (void)state;
    hf_lock *mine;
    begin(LEASES);
    OK(stage_acquire(rival, "k", 0, 60000, 0, &other));
    OK(hf_adopt(h, "k", hf_token(other), &mine, &stage_error));
    for (int sleeps = 0; !sleeps; hf__pause(1000)) {
        pthread_mutex_lock(&h->mu);
        sleeps = h->monitor_sleeps && h->monitor_until_us > 0;
        pthread_mutex_unlock(&h->mu);
    }
    stage_suspend(40000000);
    OK(hf_renew(other, 0, &stage_error)); /* whichever handle made it keeps it */
    stage_suspend(30000000);
    assert_int_equal(hf_left_ms(mine), 0);
    OK(hf_confirm(mine, &stage_error));
    OK(hf_release(mine, &stage_error));
    IS(HF_LOST, hf_release(other, &stage_error));
    done();
}

static void a_cap_that_isnt_reached_is_no_reason(void **state)
{
    (void)state;
    hf_options o = HF_OPTIONS_INIT;
    begin(SERVER);
    o.lease_ms = o.max_hold_ms = 60000;
    OK(hf_acquire(h, "k", &o, &lock, &stage_error));
    break_it();
    IS(HF_LOST, hf_release(lock, &stage_error));
    assert_null(strstr(stage_error.text, "max_hold_ms"));
    OK(stage_acquire(h, "k", 0, 60000, 0, &lock));
    pthread_mutex_lock(&h->mu);
    int64_t end_us = lock->expires_us;
    lock->expires_us = 1; /* none of the lease is left */
    hf__plan_renewal(lock);
    assert_true(lock->renew_at_us <= hf__local_us());
    lock->expires_us = end_us;
    pthread_mutex_unlock(&h->mu);
    OK(hf_release(lock, &stage_error));
    done();
}

static void what_cannot_be_given_back(void **state)
{
    (void)state;
    hf_options o = HF_OPTIONS_INIT;
    /* The key is to stay taken for a while, and the store refuses that. */
    begin(LEASES);
    o.lease_ms = 60000;
    o.at_least_ms = 5000;
    OK(hf_acquire(h, "k", &o, &lock, &stage_error));
    stage_cue(S_SWAP, 1, 1, INSTEAD, HF_DENIED, NULL);
    IS(HF_DENIED, hf_release(lock, &stage_error));
    done();
    /* No thread repeats the release: it ends with the handle. */
    begin(LOCAL);
    OK(stage_acquire(h, "k", 0, 0, 0, &lock));
    stage_no_threads(1);
    stage_cue(S_SWAP, 1, 1 << 20, INSTEAD, HF_UNAVAILABLE, NULL);
    IS(HF_UNAVAILABLE, hf_release(lock, &stage_error));
    stage_uncue();
    stage_no_threads(0);
    done();
    assert_int_equal(stage_row("k")->n_holders, 0);
}

static void with_a_note_of_its_own(void **state)
{
    (void)state;
    hf_options o = HF_OPTIONS_INIT;
    begin(LOCAL);
    o.note = "a note";
    OK(hf_acquire(h, "k", &o, &lock, &stage_error));
    assert_string_equal(stage_row("k")->party[0].note, "a note");
    OK(hf_release(lock, &stage_error));
    done();
}

static void of_others_with_longer_names(void **state)
{
    (void)state;
    hf_options o = HF_OPTIONS_INIT;
    begin(SERVER);
    o.wait_ms = 0;
    o.lease_ms = 60000;
    o.owner = "one";
    OK(hf_acquire(rival, "k", &o, &other, &stage_error));
    o.owner = "one more";
    IS(HF_BUSY, hf_acquire(h, "k", &o, &lock, &stage_error));
    OK(hf_release(other, &stage_error));
    done();
}

static void an_event_of_no_kind_changes_nothing(void **state)
{
    (void)state;
    struct hf_event ev = {.kind = (enum hf_event_kind)99, .now = {1, 1}};
    hf_row row;
    hf_row_init(&row);
    row.rev = row.done_us = 7;
    struct hf_outcome out = hf__step(&row, &ev);
    assert_int_equal(out.changed, 0);
    assert_int_equal(row.rev, 7);
}

/* ---- keys, stores ---- */

/* Chooses the last bytes of both keys so that their hashes differ by `differ`. Returns 0 if that is
   impossible. */
static int last_bytes(char *a, char *b, uint64_t differ)
{
    for (int i = 0; i < 8; i++, differ >>= 8) {
        int c = 'a', d = (int)(differ & 0xff);
        while (c <= 'z' && ((c ^ d) <= ' ' || (c ^ d) >= 0x7f)) c++;
        if (c > 'z') return 0;
        a[i] = (char)c;
        b[i] = (char)(c ^ d);
    }
    return 1;
}

/* Returns the state of hf_key_hash before the last eight bytes. */
static uint64_t before_last(const char *key)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325) ^ strlen(key), w;
    for (size_t at = 0; at + 8 < strlen(key); at += 8) {
        memcpy(&w, key + at, 8);
        hash = (hash ^ w) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 32;
    }
    return hash;
}

static void give_one_hash(char *a, char *b)
{
    do { /* the first eight bytes count up */
        int digit = 7;
        while (b[digit] == 'z') b[digit--] = 'a';
        b[digit]++;
    } while (!last_bytes(a + strlen(a) - 8, b + strlen(b) - 8, before_last(a) ^ before_last(b)));
    assert_true(hf_key_hash(a, strlen(a)) == hf_key_hash(b, strlen(b)));
}

static int count(void *arg, const hf_info *info)
{
    *(int *)arg += info != NULL;
    return info == NULL; /* ends a watch after its first round */
}

static void keys_of_one_hash(void **state)
{
    (void)state;
    char keys[][25] = {"aaaaaaaabbbbbbbb", "aaaaaaaadddddddd", "aaaaaaaabbbbbbbb",
                       "aaaaaaaaffffffffgggggggg"};
    hf *own;
    hf_lock *l[2];
    int n;
    for (int at = 0; at < 4; at += 2) {
        give_one_hash(keys[at], keys[at + 1]);
        OK(hf_open("mem:one-hash", NULL, &own, &stage_error));
        for (int i = 0; i < 2; i++) OK(hf_acquire(own, keys[at + i], NULL, &l[i], &stage_error));
        for (int i = 0; i < 2; i++) {
            assert_string_equal(hf_key(l[i]), keys[at + i]);
            IS(HF_RECURSIVE, hf_acquire(own, keys[at + i], NULL, &lock, &stage_error));
        }
        n = 0;
        OK(hf_watch(own, "", count, &n, &stage_error));
        assert_int_equal(n, 2);
        for (int i = 0; i < 2; i++) OK(hf_release(l[i], &stage_error));
        hf_close(own);
    }
}

/* No store is named, not even in the environment: the user's own file is used. An empty variable is
   refused. */
static void the_store_of_no_name(void **state)
{
    (void)state;
    hf *own;
    assert_non_null(scratch("file:@"));
    setenv("XDG_STATE_HOME", scratch_dir, 1);
    setenv("HOLDFAST_STORE", "", 1);
    assert_int_equal(hf_open(NULL, NULL, &own, &stage_error), HF_INVALID);
    unsetenv("HOLDFAST_STORE");
    OK(hf_open(NULL, NULL, &own, &stage_error));
    assert_int_equal(strncmp(hf_store_url(own), "file:", 5), 0);
    hf_close(own);
    unsetenv("XDG_STATE_HOME");
}

static int long_name;
int __real_gethostname(char *name, size_t len);
int __wrap_gethostname(char *name, size_t len);
int __wrap_gethostname(char *name, size_t len)
{
    if (!long_name) return __real_gethostname(name, len);
    memset(name, '%', len);
    return 0;
}

/* Host and user are so long that nothing else fits: the command is left out, with its name. */
static void a_note_without_room(void **state)
{
    (void)state;
    char *was = getenv("USER") ? strdup(getenv("USER")) : NULL, user[64];
    memset(user, '%', sizeof user);
    user[63] = 0;
    setenv("USER", user, 1);
    long_name = 1;
    begin(SERVER);
    long_name = 0;
    assert_non_null(strstr(h->party.note, " user=%25"));
    assert_null(strstr(h->party.note, "command"));
    assert_int_equal(h->party.note_len, strlen(h->party.note));
    if (was)
        setenv("USER", was, 1);
    else
        unsetenv("USER");
    free(was);
    done();
}

/* ---- freeing, listing ---- */

static void until_it_is_closed(void *arg, int code, hf_lock *l, const hf_error *err)
{
    while (!hf__closing(h)) hf__pause(1000);
    note(arg, code, l, err);
}

static void *free_it(void *arg)
{
    hf_wait_free(arg);
    return NULL;
}

/* A wait is freed, and its handle closed, while its callback runs. */
static void freeing_while_the_handle_is_closed(void **state)
{
    (void)state;
    struct waiter w;
    pthread_t thread;
    begin(SERVER);
    OK(stage_acquire(rival, "k", 0, 60000, 0, &other));
    ask_and(h, &w, "k", NULL, until_it_is_closed);
    await_queue(1);
    assert_int_equal(pthread_create(&thread, NULL, free_it, w.wait), 0);
    for (uint32_t callers = 0; callers < 2; hf__pause(1000)) { /* the thread waits; the dispatcher
                                                                  runs the callback */
        pthread_mutex_lock(&h->mu);
        callers = h->callers;
        pthread_mutex_unlock(&h->mu);
    }
    hf_close(h);
    h = NULL;
    pthread_join(thread, NULL);
    assert_int_equal(w.code, HF_CANCELED);
    OK(hf_release(other, &stage_error));
    done();
}

static void note_damaged(void *arg, const char *key, const char *why)
{
    (void)key, (void)why;
    *(int *)arg += 100;
}

static void damage(hf_row *row)
{
    if (row->rev) row->rev = UINT64_MAX;
}

/* The first damaged row is described, unless a worse error follows. */
static void several_rows_that_are_damaged(void **state)
{
    (void)state;
    int n = 0;
    begin(SERVER);
    for (int i = 0; i < 3; i++)
        OK(stage_acquire(rival, i ? i > 1 ? "c" : "b" : "a", 0, 60000, 0, &other));
    OK(hf_list(h, "", count, &n, &stage_error)); /* which learns the clock */
    assert_int_equal(n, 3);
    for (int worse = 0; worse < 2; worse++) {
        stage_forge(damage);
        stage_cue(S_GET, 1, 2, INSTEAD, HF_CORRUPT, NULL);
        stage_cue(S_GET, 3, 1, INSTEAD, worse ? HF_UNAVAILABLE : HF_CORRUPT, NULL);
        n = 0;
        IS(worse ? HF_UNAVAILABLE : HF_CORRUPT,
           hf__list(h, "", count, note_damaged, &n, &stage_error));
        assert_int_equal(n, worse ? 200 : 300);
        stage_uncue();
        stage_forge(NULL);
    }
    done();
}

static int scan_what_is_no_key(hf_store *st, const char *prefix,
                               int (*see)(void *arg, const hf_rowkey *, hf_row *), void *arg,
                               int64_t *ret_clock_us, hf_error *err)
{
    hf_rowkey key = {.text = "\xff", .len = 1};
    hf_row row;
    (void)st, (void)prefix, (void)err;
    hf_row_init(&row);
    row.rev = row.done_us = 1;
    *ret_clock_us = 0;
    return see(arg, &key, &row);
}

static void what_is_no_key_is_not_listed(void **state)
{
    (void)state;
    int n = 0;
    begin(SERVER);
    stage_driver.scan = scan_what_is_no_key;
    OK(hf_list(h, "", count, &n, &stage_error));
    assert_int_equal(n, 0);
    done();
}

/* The flag is stored only where a session could end the hold. */
static void only_where_sessions_are_a_row_says_that_it_outlives_one(void **state)
{
    (void)state;
    static const struct {
        unsigned can, flags;
    } on[] = {{SERVER, 0}, {WATCHED, 0}, {LEASES, HF_PARTY_DETACHED}};
    for (size_t i = 0; i < sizeof on / sizeof *on; i++) {
        begin(on[i].can);
        OK(stage_acquire(h, "k", 0, 60000, HF_DETACHED, &lock));
        assert_int_equal(stage_row("k")->party[0].flags, on[i].flags);
        OK(hf_release(lock, &stage_error));
        done();
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(adopted_it_lasts_until_the_store_says_so),
        cmocka_unit_test(a_cap_that_isnt_reached_is_no_reason),
        cmocka_unit_test(what_cannot_be_given_back),
        cmocka_unit_test(with_a_note_of_its_own),
        cmocka_unit_test(of_others_with_longer_names),
        cmocka_unit_test(an_event_of_no_kind_changes_nothing),
        cmocka_unit_test(keys_of_one_hash),
        cmocka_unit_test(the_store_of_no_name),
        cmocka_unit_test(a_note_without_room),
        cmocka_unit_test(freeing_while_the_handle_is_closed),
        cmocka_unit_test(several_rows_that_are_damaged),
        cmocka_unit_test(what_is_no_key_is_not_listed),
        cmocka_unit_test(only_where_sessions_are_a_row_says_that_it_outlives_one),
    };
    return TEST_MAIN(tests);
}
