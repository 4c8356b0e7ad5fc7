/*
 * etcd_inboxes.c - the driver etcd: which waiters a write notifies, and what it leaves behind.
 *
 *     tests/servers/etcd etcd_inboxes @
 */
#include "drivers.h"
#include "fakes/listens.h"
#include "os.h"
#include "test.h"

#include "../../../drivers/etcd/tidies.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PARTIES = 4, MANY = 130, LATE_US = 300000, AWAIT_US = 30000000 };

static const hf_driver *drv;
static hf_url url;
static hf_error err;

/* One party: a handle of its own, which is subscribed to one key. */
struct one {
    hf_store *st;
    uint64_t session;
    uint8_t id[16];
    hf_rowkey key;
    hf_event_count since;
};
static struct one all[PARTIES];

static void party(hf_row *row, uint32_t at, const struct one *o, uint64_t session)
{
    hf_party *p = &row->party[at];
    memset(p, 0, sizeof *p);
    memcpy(p->id, o->id, 16);
    p->session = session;
    p->mode = HF_EXCLUSIVE;
    p->since_us = 1000;
    p->owner[0] = 'o';
    p->owner_len = 1;
}

/* HF_PARTY_ENDING, and the write also deletes unused keys beside the row. */
enum { TIDILY = 256 | HF_PARTY_ENDING };

/* Makes the row in which the first party of "0123" holds and the others are queued; "": no
   party. */
static void row_of(hf_row *row, const char *who, unsigned flags)
{
    assert_int_equal(hf_row_room(row, PARTIES), 0);
    for (uint32_t i = 0; who[i]; i++) party(row, i, &all[who[i] - '0'], all[who[i] - '0'].session);
    row->n_holders = *who != 0;
    row->n_queue = *who ? (uint32_t)strlen(who) - 1 : 0;
    do {
        row->rev = hf_rev_next(row->rev, hf__day_us());
    } while (hf__et_tidies(row->rev) != (flags == TIDILY));
    if (*who && !(flags & HF_PARTY_ENDING)) row->token = row->rev;
    if (*who) row->party[0].token = row->token;
    if (*who) row->party[0].flags = (uint8_t)(flags & HF_PARTY_UNCLAIMED);
}

static void write_row(int by, hf_row *row, uint64_t seen)
{
    int64_t clock;
    if (drv->replace(all[by].st, &all[by].key, seen, row, NULL, &clock, &err))
        fail_msg("%s", err.text);
}

static void write_as(int by, hf_row *row, const char *who, unsigned flags)
{
    uint64_t seen = row->rev;
    row_of(row, who, flags);
    write_row(by, row, seen);
}

static void listen_as(int i, const char *name, int in_line)
{
    const hf_rowkey *keys[] = {&all[i].key};
    assert_int_equal(hf_key_make(name, &all[i].key, &err), 0);
    all[i].key.who = all[i].id;
    all[i].key.in_line = in_line;
    if (listen_for(drv, all[i].st, keys, 1, &all[i].since, &err)) fail_msg("%s", err.text);
}

static int hears_within(int i, int64_t us)
{
    uint64_t counted = events_of(drv, all[i].st, &all[i].key);
    int64_t until = hf__local_us() + us;
    while (hf__local_us() < until && events_of(drv, all[i].st, &all[i].key) == counted) {
        const hf_rowkey *keys[] = {&all[i].key};
        drv->caps.notify->sleep(all[i].st, &all[i].since, until, &err);
        listen_for(drv, all[i].st, keys, 1, &all[i].since, &err);
    }
    return events_of(drv, all[i].st, &all[i].key) != counted;
}

/* Returns 1 if it gets an event since its flush, however late. */
static int hears(int i) { return hears_within(i, AWAIT_US); }
/* Returns 1 if it gets no event within a time in which one would have come. */
static int is_left_alone(int i) { return !hears_within(i, LATE_US); }

static int told(int i, hf_row *row)
{
    return drv->caps.notify->payload(all[i].st, &all[i].key, row);
}

/* Waits for the event of a session's end. An older notification may come first, whose payload is
   skipped. */
static int hears_an_end(int i)
{
    uint64_t counted = events_of(drv, all[i].st, &all[i].key);
    int64_t until = hf__local_us() + AWAIT_US;
    int heard = 0;
    hf_row row;
    hf_row_init(&row);
    while (!heard && hf__local_us() < until) {
        hears_within(i, LATE_US / 30);
        heard = events_of(drv, all[i].st, &all[i].key) != counted && !told(i, &row);
    }
    hf_row_clear(&row);
    return heard;
}

/* Waits for the notification of this very grant. Older notifications may come first. */
static int is_told_of(int i, hf_row *row, uint64_t token)
{
    int64_t until = hf__local_us() + AWAIT_US;
    int is = 0;
    while (!is && hf__local_us() < until) {
        hears_within(i, LATE_US / 30);
        is = told(i, row) && row->n_holders && row->party[0].token == token;
    }
    return is;
}

/* Returns 1 if it gets this very row, however late; also if it doesn't watch meanwhile. */
static int is_told_if(int watches, int i, hf_row *row, uint64_t rev)
{
    int64_t until = hf__local_us() + AWAIT_US;
    while (hf__local_us() < until && !(told(i, row) && row->rev == rev)) {
        if (watches)
            hears_within(i, LATE_US / 30);
        else
            poll(NULL, 0, 1);
    }
    return row->rev == rev;
}

static int is_told(int i, hf_row *row, uint64_t rev) { return is_told_if(1, i, row, rev); }

/* Makes a new key that the first party holds; the others are queued, each by a write of its own. */
static void line_up(const char *name, const char *who, hf_row *row)
{
    char some[PARTIES + 1] = "";
    for (int i = 0; i < PARTIES; i++) assert_int_equal(hf_key_make(name, &all[i].key, &err), 0);
    for (size_t n = 0; who[n]; n++) {
        some[n] = who[n];
        write_as(who[n] - '0', row, some, n ? HF_PARTY_ENDING : 0);
    }
}

static void each_is_told_what_concerns_it(void **state)
{
    (void)state;
    hf_row row, said;
    hf_row_init(&row);
    hf_row_init(&said);
    line_up("told", "0123", &row);
    for (int i = 1; i < PARTIES; i++) listen_as(i, "told", 1);
    /* The key is handed over. The new holder gets the row, the next waiter gets the new holder. No
       other party is notified, nor is the one that has left. */
    write_as(0, &row, "123", HF_PARTY_UNCLAIMED);
    assert_true(is_told(1, &said, row.rev));
    assert_true(said.rev == row.rev && said.n_queue == 2 && hf_row_equal(&said, &row));
    assert_true(is_told_of(2, &said, row.token));
    assert_true(!said.rev && said.n_holders == 1 && said.party[0].token == row.token);
    assert_memory_equal(said.party[0].id, all[1].id, 16);
    assert_true(is_left_alone(3));
    assert_false(told(3, &said));
    /* A request that is queued behind them concerns no waiter. */
    write_as(0, &row, "1230", HF_PARTY_ENDING);
    assert_true(is_left_alone(2) && is_left_alone(3));
    /* The payload has the whole row, with a single holder. */
    assert_true(is_told(1, &said, row.rev));
    write_as(1, &row, "", 0);
    hf_row_clear(&row);
    hf_row_clear(&said);
}

/* No waiter is behind it: the end of the former holder doesn't wake it once more. It is still
   notified when it holds with another session than it waited with. */
static void the_last_one_is_told_and_goes_on_being_told(void **state)
{
    (void)state;
    hf_row row, said;
    int64_t ms, clock;
    hf_row_init(&row);
    hf_row_init(&said);
    line_up("last", "01", &row);
    listen_as(1, "last", 1);
    write_as(0, &row, "1", HF_PARTY_UNCLAIMED);
    assert_true(is_told(1, &said, row.rev));
    assert_true(is_left_alone(1));
    uint64_t waited_with = all[1].session;
    assert_int_equal(drv->caps.sessions->make(all[1].st, 60000, &all[1].session, &ms, &clock, &err),
                     0);
    write_as(1, &row, "1", HF_PARTY_ENDING);
    write_as(2, &row, "12", HF_PARTY_ENDING);
    assert_true(is_told(1, &said, row.rev) && said.n_queue == 1);
    write_as(1, &row, "", 0);
    assert_int_equal(drv->caps.sessions->end(all[1].st, all[1].session, &err), 0);
    all[1].session = waited_with;
    hf_row_clear(&row);
    hf_row_clear(&said);
}

/* A holder doesn't watch: `payload` reads what has come for it all the same. The next watch also
   reports what was read in this way, or waiters would sleep on. */
static void who_does_not_watch_is_told(void **state)
{
    (void)state;
    hf_row row, said;
    hf_row_init(&row);
    hf_row_init(&said);
    line_up("unread", "012", &row);
    listen_as(1, "unread", 1);
    listen_as(2, "unread", 1);
    write_as(0, &row, "12", HF_PARTY_UNCLAIMED);
    assert_true(is_told_if(0, 1, &said, row.rev));
    write_as(3, &row, "123", HF_PARTY_ENDING);
    assert_true(is_told_if(0, 1, &said, row.rev) && said.n_queue == 2);
    uint64_t counted = events_of(drv, all[2].st, &all[2].key);
    write_as(1, &row, "23", HF_PARTY_UNCLAIMED);
    assert_true(is_told_if(0, 2, &said, row.rev));
    assert_true(events_of(drv, all[2].st, &all[2].key) != counted);
    int64_t start = hf__local_us();
    assert_int_equal(drv->caps.notify->sleep(all[2].st, &all[2].since, start + AWAIT_US, &err), 0);
    assert_true(hf__local_us() - start < AWAIT_US);
    write_as(2, &row, "", 0);
    hf_row_clear(&row);
    hf_row_clear(&said);
}

/* All waiters see the end of a session; and a write passes although it would notify that session.
 */
static void an_end_is_told_to_all(void **state)
{
    (void)state;
    hf_row row;
    hf_row_init(&row);
    uint64_t mine = all[0].session;
    int64_t ms, clock;
    assert_int_equal(drv->caps.sessions->make(all[0].st, 60000, &all[0].session, &ms, &clock, &err),
                     0);
    line_up("end", "0123", &row);
    for (int i = 1; i < PARTIES; i++) listen_as(i, "end", 1);
    assert_int_equal(drv->caps.sessions->end(all[0].st, all[0].session, &err), 0);
    for (int i = 1; i < PARTIES; i++) assert_true(hears_an_end(i));
    assert_int_equal(drv->get(all[1].st, &all[1].key, &row, &clock, &err), 0);
    assert_true(row.party[0].flags & HF_PARTY_DEAD);
    write_as(1, &row, "0123", HF_PARTY_ENDING);
    write_as(1, &row, "", 0);
    all[0].session = mine;
    /* So is the deletion of the row, which has no lease either. */
    write_as(0, &row, "01", 0);
    write_as(1, &row, "01", HF_PARTY_ENDING);
    assert_int_equal(drv->replace(all[0].st, &all[0].key, row.rev, NULL, NULL, &clock, &err), 0);
    assert_true(hears_an_end(1));
    hf_row_clear(&row);
}

/* Returns how many keys are in that range; *ret_bound: how many of them have a lease. */
static int keys_from(const char *from, const char *to, int *ret_bound)
{
    char command[400], line[600];
    int n = 0;
    const char *at = strstr(getenv("HF_ETCD_AT"), "127");
    *ret_bound = 0;
    snprintf(command, sizeof command,
             "ETCDCTL_API=3 etcdctl --endpoints=%.40s get --write-out=json '%s' '%s' | "
             "tr '{' '\\n'",
             at, from, to);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        n += strstr(line, "\"mod_revision\"") != NULL;
        *ret_bound += strstr(line, "\"lease\"") != NULL;
    }
    assert_int_equal(pclose(f), 0);
    return n;
}

static int beside(const char *name, int *ret_bound)
{
    char from[100], to[100];
    snprintf(from, sizeof from, "/holdfast/%s\t0", name);
    snprintf(to, sizeof to, "/holdfast/%s\tg", name);
    return keys_from(from, to, ret_bound);
}

static int inboxes(void)
{
    int bound, n = keys_from("/holdfast/\t", "/holdfast/\n", &bound);
    assert_int_equal(n, bound); /* none outlives its session */
    return n;
}

static void what_was_put_is_taken_away(void **state)
{
    (void)state;
    hf_row row;
    int bound, before = inboxes();
    hf_row_init(&row);
    for (int i = 0; i < PARTIES; i++) assert_int_equal(hf_key_make("put", &all[i].key, &err), 0);
    write_as(0, &row, "0", 0);
    assert_int_equal(inboxes(), before); /* nobody waits */
    write_as(1, &row, "01", HF_PARTY_ENDING);
    write_as(2, &row, "012", HF_PARTY_ENDING);
    assert_int_equal(inboxes(), before + 2);
    assert_true(beside("put", &bound) == 3 && bound == 3);
    /* A wait that leaves deletes its inbox. Its key stays, so that no other waiter is woken. */
    write_as(0, &row, "12", HF_PARTY_UNCLAIMED);
    assert_true(beside("put", &bound) == 3 && bound == 2);
    write_as(1, &row, "2", HF_PARTY_UNCLAIMED);
    assert_true(beside("put", &bound) == 3 && bound == 1);
    assert_int_equal(inboxes(), before + 1);
    write_as(2, &row, "", 0);
    assert_int_equal(beside("put", &bound), 0);
    assert_int_equal(inboxes(), before);
    hf_row_clear(&row);
}

/* If there is always a waiter, unused keys are deleted now and then. */
static void what_lies_about_is_tidied_up(void **state)
{
    (void)state;
    hf_row row, said;
    int bound;
    hf_row_init(&row);
    hf_row_init(&said);
    for (int i = 0; i < PARTIES; i++) assert_int_equal(hf_key_make("tidy", &all[i].key, &err), 0);
    write_as(0, &row, "0", 0);
    write_as(1, &row, "01", HF_PARTY_ENDING);
    write_as(2, &row, "012", HF_PARTY_ENDING);
    listen_as(2, "tidy", 1);
    write_as(0, &row, "12", HF_PARTY_UNCLAIMED);
    assert_true(beside("tidy", &bound) == 3 && bound == 2);
    assert_true(is_told_of(2, &said, row.token));
    /* No waiter is notified of that. */
    write_as(1, &row, "12", TIDILY);
    assert_true(beside("tidy", &bound) == 2 && bound == 2);
    assert_true(is_left_alone(2));
    /* A write by a party that leaves puts the cleaning off. */
    write_as(0, &row, "120", TIDILY);
    write_as(1, &row, "20", TIDILY);
    assert_true(beside("tidy", &bound) == 3 && bound == 2);
    write_as(2, &row, "20", TIDILY);
    assert_true(beside("tidy", &bound) == 2 && bound == 2);
    write_as(2, &row, "", 0);
    hf_row_clear(&row);
    hf_row_clear(&said);
}

/* If there is no waiter, overlapping holds leave no keys behind. */
static void overlapping_holds_leave_nothing(void **state)
{
    (void)state;
    hf_row row;
    int bound;
    hf_row_init(&row);
    for (int i = 0; i < PARTIES; i++) assert_int_equal(hf_key_make("over", &all[i].key, &err), 0);
    write_as(0, &row, "0", 0);
    for (int i = 1; i < PARTIES; i++) {
        char both[3] = {(char)('0' + i - 1), (char)('0' + i), 0};
        uint64_t seen = row.rev;
        row_of(&row, both, HF_PARTY_ENDING);
        row.n_holders = 2;
        row.n_queue = 0;
        row.party[1].token = row.token = row.rev;
        row.party[0].mode = row.party[1].mode = HF_SHARED;
        row.party[0].token = row.rev - 1;
        write_row(i, &row, seen);
        write_as(i - 1, &row, both + 1, HF_PARTY_ENDING);
        assert_true(beside("over", &bound) == 1 && bound == 1);
    }
    write_as(PARTIES - 1, &row, "", 0);
    hf_row_clear(&row);
}

enum { AT_ONCE = 60 };
static pthread_barrier_t begin;

static void *take_and_give_back(void *arg)
{
    hf_row row;
    hf_rowkey key;
    hf_error own;
    char name[32];
    int64_t clock;
    int bad = 0;
    hf_row_init(&row);
    snprintf(name, sizeof name, "at-once/%d", (int)(intptr_t)arg);
    bad |= hf_key_make(name, &key, &own);
    pthread_barrier_wait(&begin);
    for (int i = 0; i < 2; i++) {
        uint64_t seen = row.rev;
        row_of(&row, "0", 0);
        bad |= drv->replace(all[0].st, &key, seen, &row, NULL, &clock, &own);
        seen = row.rev;
        row_of(&row, "", 0);
        bad |= drv->replace(all[0].st, &key, seen, &row, NULL, &clock, &own);
    }
    hf_row_clear(&row);
    return (void *)(intptr_t)bad;
}

static void many_keys_are_written_at_once(void **state)
{
    (void)state;
    pthread_t thread[AT_ONCE];
    pthread_barrier_init(&begin, NULL, AT_ONCE);
    for (int i = 0; i < AT_ONCE; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, take_and_give_back, (void *)(intptr_t)i),
                         0);
    for (int i = 0; i < AT_ONCE; i++) {
        void *bad;
        pthread_join(thread[i], &bad);
        assert_null(bad);
    }
    pthread_barrier_destroy(&begin);
}

/* More than etcd takes in one list of operations. */
static void many_are_handed_it_at_once(void **state)
{
    (void)state;
    static struct one many[MANY];
    hf_row row, said;
    int64_t ms, clock;
    hf_row_init(&row);
    hf_row_init(&said);
    assert_int_equal(hf_key_make("many", &all[0].key, &err), 0);
    listen_as(1, "many", 1);
    for (uint32_t i = 0; i < MANY; i++) {
        hf_store *by = all[i % 2 ? 2 : 3].st;
        memset(many[i].id, (int)i + 1, sizeof many[i].id);
        assert_int_equal(drv->caps.sessions->make(by, 60000, &many[i].session, &ms, &clock, &err),
                         0);
        assert_int_equal(hf_row_room(&row, i + 1), 0);
        party(&row, row.n_holders++, &many[i], many[i].session);
    }
    row.rev = hf_rev_next(0, hf__day_us()) + MANY;
    for (uint32_t i = 0; i < MANY; i++) {
        row.party[i].token = row.token = row.rev - MANY + i;
        row.party[i].mode = HF_SHARED;
        row.party[i].flags = HF_PARTY_UNCLAIMED;
    }
    /* The last of them is subscribed. */
    memcpy(row.party[MANY - 1].id, all[1].id, 16);
    row.party[MANY - 1].session = all[1].session;
    hf_row in_line;
    hf_row_init(&in_line);
    write_as(0, &in_line, "01", 0);
    uint64_t seen = in_line.rev;
    write_as(1, &in_line, "01", HF_PARTY_ENDING);
    seen = in_line.rev;
    row.rev = row.rev > seen ? row.rev : seen + MANY;
    while (!hf__et_tidies(row.rev)) row.rev++; /* plus the keys that it deletes */
    write_row(1, &row, seen);
    assert_true(hears(1));
    row.n_holders = 0;
    seen = row.rev++;
    write_row(0, &row, seen);
    for (uint32_t i = 0; i < MANY; i++)
        assert_int_equal(drv->caps.sessions->end(all[i % 2 ? 2 : 3].st, many[i].session, &err), 0);
    hf_row_clear(&in_line);
    hf_row_clear(&row);
    hf_row_clear(&said);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_is_told_what_concerns_it),
        cmocka_unit_test(an_end_is_told_to_all),
        cmocka_unit_test(the_last_one_is_told_and_goes_on_being_told),
        cmocka_unit_test(who_does_not_watch_is_told),
        cmocka_unit_test(what_was_put_is_taken_away),
        cmocka_unit_test(what_lies_about_is_tidied_up),
        cmocka_unit_test(overlapping_holds_leave_nothing),
        cmocka_unit_test(many_keys_are_written_at_once),
        cmocka_unit_test(many_are_handed_it_at_once),
    };
    int64_t ms, clock;
    if (argc != 2) return 64;
    setenv("HF_ETCD_AT", argv[1], 1);
    drv = hf__driver("etcd", &err);
    int rc = !drv || hf_url_parse(argv[1], &url, &err);
    for (int i = 0; i < PARTIES && !rc; i++) {
        memset(all[i].id, 'a' + i, 16);
        rc = drv->open(&url, 5000, &all[i].st, &(hf_caps){0}, &err) ||
             drv->caps.sessions->make(all[i].st, 60000, &all[i].session, &ms, &clock, &err);
    }
    if (rc) {
        printf("Bail out! %s\n", err.text);
        return 1;
    }
    int failed = TEST_MAIN(tests);
    for (int i = 0; i < PARTIES; i++) drv->close(all[i].st);
    return failed;
}
