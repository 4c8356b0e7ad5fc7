/*
 * etcd_sessions.c - the driver etcd: before a server that answers anything: sessions that live,
 * that are over, and of which that isn't certain.
 */
#include "etcd_said.h"
#include "os.h"

#include <stdio.h>
#include <string.h>

static void whose_session_is_missing_is_dead(void **state)
{
    (void)state;
    hf_store *st = opened();
    hf_row row;
    int64_t clock_us;
    char many[6000] = "";
    hf_row_init(&row);
    is(200, "{" HEADER ", \"kvs\": [%s, %s]}", kv("/p/k", HELD), kv("/p/k\trev", "5"));
    said(driver->get(st, &key, &row, &clock_us, &err), 0, NULL);
    assert_true(row.n_holders == 1 && row.party[0].flags & HF_PARTY_DEAD);
    /* The session's key is there, but without a lease: the session has left it. */
    is(200, "{" HEADER ", \"kvs\": [%s, %s, {\"key\": \"%s\"}]}", kv("/p/k", HELD),
       kv("/p/k\trev", "5"), answers_base64("/p/k\t" SESSION, 21));
    said(driver->get(st, &key, &row, &clock_us, &err), 0, NULL);
    assert_true(row.party[0].flags & HF_PARTY_DEAD);
    /* Names that aren't of sessions count for nothing. */
    is(200, "{" HEADER ", \"kvs\": [%s, %s, %s]}", kv("/p/k", HELD), kv("/p/k\tab", ""),
       kv("/p/k\trev", "5"));
    said(driver->get(st, &key, &row, &clock_us, &err), 0, NULL);
    assert_true(row.party[0].flags & HF_PARTY_DEAD);
    for (int i = 0; i < 20; i++) {
        char name[40];
        snprintf(name, sizeof name, "/p/k\t%08x00060002", 0x98 + i);
        snprintf(many + strlen(many), 200, ", %s", kv(name, ""));
    }
    is(200, "{" HEADER ", \"kvs\": [%s, %s%s]}", kv("/p/k", HELD), kv("/p/k\trev", "5"), many);
    said(driver->get(st, &key, &row, &clock_us, &err), 0, NULL);
    assert_false(row.party[0].flags & HF_PARTY_DEAD);
    hf_row_clear(&row);
    driver->close(st);
}

/* ---- sessions of another term ---- */

#define LATER "\"header\": {\"revision\": \"7\", \"raft_term\": \"3\"}"
#define QUEUED \
    "\"queue\": [{\"request\": \"10112233445566778899aabbccddeeff\", \
                 \"owner\": \"w\", \"note\": \"\", \"session\": 734439800834}]"

/* Checks the requests that follow a row in which a holder's session is in doubt. */
static void is_settled(hf_store *st, hf_row *row, const char *range)
{
    const struct answer doubt[] = {{"range", 200, range, 1},
                                   {"grant", 200, "{" LATER ", \"TTL\": \"6\"}", 1},
                                   {"txn", 200, "{\"succeeded\": true}", 1}};
    int64_t clock_us;
    answers_are(doubt, 3);
    said(driver->get(st, &key, row, &clock_us, &err), 0, NULL);
    assert_int_equal(answers_given(), 3);
    assert_non_null(strstr(answers_asked(), answers_base64("/p/k\t" SESSION, 21)));
    assert_false(row->party[0].flags & HF_PARTY_DEAD);
}

static void a_session_of_another_term_is_in_doubt(void **state)
{
    (void)state;
    hf_store *st = opened();
    hf_row row;
    int64_t clock_us;
    char held[3000], range[8192];
    hf_row_init(&row);
    snprintf(held, sizeof held, "%.*s, " QUEUED "}", (int)strlen(HELD) - 1, HELD);
    snprintf(range, sizeof range, "{" LATER ", \"kvs\": [%s, %s]}", kv("/p/k", held),
             kv("/p/k\trev", "5"));
    is_settled(st, &row, range);
    assert_true(row.n_queue == 1 && row.party[1].flags & HF_PARTY_DEAD); /* believes nothing */
    /* The lease by which it was put back has run out in the term in which it was made: the session
       is over. */
    is(200, "{" LATER ", \"kvs\": [%s, %s, %s]}", kv("/p/k", held), kv("/p/k\trev", "5"),
       kv("/p/k\t" SESSION ".", "000000ef00060003"));
    said(driver->get(st, &key, &row, &clock_us, &err), 0, NULL);
    assert_true(row.party[0].flags & HF_PARTY_DEAD && answers_given() == 1);
    /* While that lease is there the session counts as alive; in a further term it is in doubt
       again. */
    is(200, "{" LATER ", \"kvs\": [%s, %s, %s, %s]}", kv("/p/k", held), kv("/p/k\trev", "5"),
       kv("/p/k\t" SESSION, ""), kv("/p/k\t" SESSION ".", "000000ef00060003"));
    said(driver->get(st, &key, &row, &clock_us, &err), 0, NULL);
    assert_false(row.party[0].flags & HF_PARTY_DEAD || answers_given() != 1);
    snprintf(range, sizeof range, "{" HEADER ", \"kvs\": [%s, %s, %s]}", kv("/p/k", held),
             kv("/p/k\trev", "5"), kv("/p/k\t" SESSION ".", "000000ef00060003"));
    is_settled(st, &row, range);
    /* So it is if the reply has no term. */
    snprintf(range, sizeof range, "{\"kvs\": [%s, %s]}", kv("/p/k", held), kv("/p/k\trev", "5"));
    is_settled(st, &row, range);
    hf_row_clear(&row);
    driver->close(st);
}

static void what_was_noted_goes_with_its_session(void **state)
{
    (void)state;
    hf_store *st = opened();
    hf_row row;
    int64_t clock_us;
    char range[8192];
    hf_row_init(&row);
    snprintf(range, sizeof range, "{" HEADER ", \"kvs\": [%s, %s, %s]}", kv("/p/k", FREE_ROW),
             kv("/p/k\trev", "5"), kv("/p/k\t" SESSION ".", "000000ef00060003"));
    const struct answer left[] = {{"range", 200, range, 1}, {"txn", 503, "{}", 1}};
    answers_are(left, 2);
    said(driver->get(st, &key, &row, &clock_us, &err), 0, NULL);
    assert_true(answers_given() == 2 && strstr(answers_asked(), "request_delete_range"));
    assert_non_null(strstr(answers_asked(), answers_base64("/p/k\t" SESSION ".", 22)));
    hf_row_clear(&row);
    driver->close(st);
}

/* A reader that can't settle a doubt leaves it to the next reader, and gets its row. */
static void a_doubt_may_stay(void **state)
{
    (void)state;
    hf_store *st = opened();
    hf_row row;
    int64_t clock_us;
    char range[8192];
    hf_row_init(&row);
    snprintf(range, sizeof range, "{" LATER ", \"kvs\": [%s, %s]}", kv("/p/k", HELD),
             kv("/p/k\trev", "5"));
    const struct answer shut[] = {{"range", 200, range, 0}, {"grant", 503, "{}", 0}};
    answers_are(shut, 2);
    said(driver->get(st, &key, &row, &clock_us, &err), 0, NULL);
    assert_true(answers_given() == 2 && !(row.party[0].flags & HF_PARTY_DEAD));
    const struct answer brief[] = {{"range", 200, range, 0}, {"grant", 200, "{\"TTL\": \"5\"}", 0}};
    answers_are(brief, 2);
    said(driver->get(st, &key, &row, &clock_us, &err), 0, NULL);
    assert_true(answers_given() == 2 && !(row.party[0].flags & HF_PARTY_DEAD));
    /* A session that another program numbered is as long as its lease. */
    static const char foreign[] = "{\"format\": 1, \"rev\": 5, \"token\": 5, \"holders\": [{" PARTY
                                  ", \"token\": 5, \"session\": 171, \"lease_ms\": 5001}]}";
    snprintf(range, sizeof range, "{" LATER ", \"kvs\": [%s, %s]}", kv("/p/k", foreign),
             kv("/p/k\trev", "5"));
    answers_are(brief, 2);
    said(driver->get(st, &key, &row, &clock_us, &err), 0, NULL);
    assert_true(answers_given() == 2 && !(row.party[0].flags & HF_PARTY_DEAD));
    hf_row_clear(&row);
    driver->close(st);
}

/* If its write isn't answered, it isn't sent again to another member. */
static void a_doubt_is_settled_once(void **state)
{
    (void)state;
    hf_store *st = NULL;
    hf_row row;
    int64_t clock_us;
    char range[8192], url[100];
    hf_row_init(&row);
    answers_are(&well, 1);
    snprintf(url, sizeof url, "etcd://127.0.0.1:%s,127.0.0.1:PORT/p/", ported("PORT"));
    said(opens(url, &st), 0, NULL);
    snprintf(range, sizeof range, "{" LATER ", \"kvs\": [%s, %s]}", kv("/p/k", HELD),
             kv("/p/k\trev", "5"));
    const struct answer unheard[] = {{"range", 200, range, 0},
                                     {"grant", 200, "{\"TTL\": \"6\"}", 0},
                                     {"txn", ANSWER_CLOSED, "", 0}};
    answers_are(unheard, 3);
    said(driver->get(st, &key, &row, &clock_us, &err), 0, NULL);
    assert_int_equal(answers_given(), 3);
    assert_false(row.party[0].flags & HF_PARTY_DEAD);
    hf_row_clear(&row);
    driver->close(st);
}

/* When a later term has been seen; not by an answer from before. */
static void a_session_of_an_earlier_term_is_stale(void **state)
{
    (void)state;
    static const struct {
        const char *term;
        int stale;
    } seen[] = {{"2", 0}, {"3", 1}, {"1", 0}, {"32769", 1}, {"32771", 0}, {"65538", 0}};
    hf_store *st = opened();
    hf_row row;
    uint64_t session;
    int64_t ms, clock_us;
    hf_row_init(&row);
    is(200, "{" HEADER ", \"TTL\": \"9\"}");
    said(driver->caps.sessions->make(st, 9000, &session, &ms, &clock_us, &err), 0, NULL);
    for (size_t i = 0; i < COUNT(seen); i++) {
        is(200, "{\"header\": {\"raft_term\": \"%s\"}}", seen[i].term);
        said(driver->get(st, &key, &row, &clock_us, &err), 0, NULL);
        assert_int_equal(driver->caps.sessions->stale(st, session), seen[i].stale);
    }
    assert_false(driver->caps.sessions->stale(st, UINT64_C(7) << 16)); /* of no known term */
    hf_row_clear(&row);
    driver->close(st);
}

/* A session's number says its term, and its length: never less than it was made for. */
static void a_session_says_when_it_was_made(void **state)
{
    (void)state;
    static const int64_t lengths_s[] = {1, 2, 15, 16, 17, 31, 33, 100, 3600, 86399, 86400};
    hf_store *st = opened();
    is(200, "{" HEADER ", \"TTL\": \"90000\"}");
    for (size_t i = 0; i < COUNT(lengths_s); i++) {
        uint64_t session;
        int64_t ms, clock_us;
        said(driver->caps.sessions->make(st, lengths_s[i] * 1000 - 1, &session, &ms, &clock_us,
                                         &err),
             0, NULL);
        assert_true((session & 0xffff) == 2 && session < UINT64_C(1) << 63);
        uint64_t length = session >> 16 & 0xff;
        int64_t s = (int64_t)(length < 16 ? length : (8 + length % 8) << (length / 8 - 1));
        assert_true(s >= lengths_s[i] && s * 8 <= lengths_s[i] * 9 + 8);
    }
    driver->close(st);
}

/* ---- leases ---- */

static void leases_end_when_it_says_so(void **state)
{
    (void)state;
    hf_store *st = opened();
    uint64_t session = 0;
    int64_t ms = 0, clock_us;
    is(200, "{\"TTL\": \"1\"}");
    said(driver->caps.sessions->make(st, 1500, &session, &ms, &clock_us, &err), HF_UNAVAILABLE,
         "1000 ms instead of 1500");
    is(200, "{}");
    said(driver->caps.sessions->make(st, 1500, &session, &ms, &clock_us, &err), HF_UNAVAILABLE,
         "0 ms instead");
    is(200, "{\"TTL\": 2, \"error\": \"no\"}");
    said(driver->caps.sessions->make(st, 1500, &session, &ms, &clock_us, &err), HF_UNKNOWN,
         "the server says: no");
    is(500, "{}");
    said(driver->caps.sessions->make(st, 1500, &session, &ms, &clock_us, &err), HF_UNKNOWN,
         "status 500");
    assert_int_equal(session, 0);
    is(200, "{\"TTL\": 2}");
    said(driver->caps.sessions->make(st, 1500, &session, &ms, &clock_us, &err), 0, NULL);
    assert_true(ms == 2000 && session);

    ms = -7;
    are((struct answer){"keepalive", 200, "{\"TTL\": \"0\"}", 0});
    said(driver->caps.sessions->keep(st, session, hf__local_us() + 5000000, &ms, &err), HF_LOST,
         "the lease has run out");
    are((struct answer){"keepalive", 200, "{" HEADER ", \"TTL\": \"3\"}", 0});
    said(driver->caps.sessions->keep(st, session, hf__local_us() + 5000000, &ms, &err), 0, NULL);
    assert_int_equal(ms, 3000);
    ms = -7;
    static const char *const terms[] = {"3", "0", ""};
    for (size_t i = 0; i < COUNT(terms); i++) {
        char kept[200];
        snprintf(kept, sizeof kept, "{\"TTL\": \"3\", \"header\": {\"raft_term\": \"%s\"}}",
                 terms[i]);
        are((struct answer){"keepalive", 200, kept, 0});
        said(driver->caps.sessions->keep(st, session, hf__local_us() + 5000000, &ms, &err),
             HF_UNAVAILABLE, "the leader may have changed");
    }
    const struct answer half[] = {{"keepalive", 200, "{" HEADER ", \"TTL\": \"3\"}", 0},
                                  {"range", 503, "{\"error\": \"etcdserver: no leader\"}", 0},
                                  {"timetolive", 200, "{" HEADER ", \"TTL\": \"3\"}", 0}};
    answers_are(half, 3);
    said(driver->caps.sessions->keep(st, session, hf__local_us() + 5000000, &ms, &err),
         HF_UNAVAILABLE, "no leader");
    said(driver->caps.sessions->left(st, session, &ms, &err), HF_UNAVAILABLE, "no leader");
    are((struct answer){"timetolive", 200, "{" HEADER ", \"TTL\": \"-1\"}", 0});
    said(driver->caps.sessions->left(st, session, &ms, &err), HF_LOST, "the lease has run out");
    assert_int_equal(ms, -7);
    are(half[2]);
    said(driver->caps.sessions->left(st, session, &ms, &err), 0, NULL);
    assert_int_equal(ms, 3000);
    is(500, "{\"error\": \"no\"}");
    said(driver->caps.sessions->keep(st, session, hf__local_us() + 5000000, &ms, &err),
         HF_UNAVAILABLE, "no");
    said(driver->caps.sessions->left(st, session, &ms, &err), HF_UNAVAILABLE, "no");
    said(driver->caps.sessions->end(st, session, &err), HF_UNAVAILABLE, "no");
    driver->close(st);
}

/* A row that names more of our sessions than a transaction holds. */
static void too_many_sessions_are_too_many(void **state)
{
    (void)state;
    hf_store *st = opened();
    hf_row row;
    int64_t ms, clock_us;
    hf_row_init(&row);
    is(200, "{\"kvs\": [%s, %s]}", kv("/p/k", HELD), kv("/p/k\trev", "5"));
    said(driver->get(st, &key, &row, &clock_us, &err), 0, NULL);
    assert_int_equal(hf_row_room(&row, 125), 0);
    are((struct answer){"grant", 200, "{\"TTL\": \"2\"}", 0});
    for (uint32_t i = 1; i < 125; i++) {
        row.party[i] = row.party[0];
        row.party[i].id[0] = (uint8_t)i;
        said(driver->caps.sessions->make(st, 2000, &row.party[i].session, &ms, &clock_us, &err), 0,
             NULL);
    }
    row.n_queue = 124;
    answers_are(&well, 1);
    said(driver->replace(st, &key, 5, &row, NULL, &clock_us, &err), HF_FULL, "too many sessions");
    assert_int_equal(answers_given(), 0);
    hf_row_clear(&row);
    driver->close(st);
}

/* ---- a dead session beside it ---- */

#define GONE     "{\"error\": \"etcdserver: requested lease not found\"}"
#define OTHER_ID "8899aabbccddeeff0011223344556677"

/* Two sessions of this handle, and the row that they hold together, as it is read, too. */
static hf_store *held_twice(uint64_t session[2], hf_row *row, char range[8192])
{
    hf_store *st = opened();
    int64_t ms, clock_us;
    char held[1000];
    are((struct answer){"grant", 200, "{" HEADER ", \"TTL\": \"9\"}", 0});
    for (int i = 0; i < 2; i++)
        said(driver->caps.sessions->make(st, 9000, &session[i], &ms, &clock_us, &err), 0, NULL);
    snprintf(held, sizeof held,
             "{\"format\": 1, \"rev\": 5, \"token\": 5, \"holders\": [{" PARTY
             ", \"token\": 5, \"mode\": 1, \"session\": %llu}, {\"owner\": \"me\", \"note\": \"\", "
             "\"request\": \"" OTHER_ID "\", \"token\": 4, \"mode\": 1, \"session\": %llu}]}",
             (unsigned long long)session[0], (unsigned long long)session[1]);
    snprintf(range, 8192, "{" HEADER ", \"kvs\": [%s, %s]}", kv("/p/k", held),
             kv("/p/k\trev", "5"));
    are((struct answer){"range", 200, range, 0});
    said(driver->get(st, &key, row, &clock_us, &err), 0, NULL);
    assert_true(row->n_holders == 2 && row->party[1].session == session[1]);
    row->rev = 6;
    return st;
}

/* Is its key put by the last request? */
static int is_put(uint64_t session)
{
    char name[40];
    int n = snprintf(name, sizeof name, "/p/k\t%016llx", (unsigned long long)session);
    return strstr(answers_asked(), answers_base64(name, (size_t)n)) != NULL;
}

static const struct answer refused = {"txn", 404, GONE, 1};
static const struct answer alive = {"timetolive", 200, "{" HEADER ", \"TTL\": \"3\"}", 1};
static const struct answer dead = {"timetolive", 200, "{" HEADER ", \"TTL\": \"-1\"}", 1};

static void who_dies_beside_it_costs_it_nothing(void **state)
{
    (void)state;
    static char range[8192];
    uint64_t session[2];
    int64_t clock_us;
    hf_row row;
    hf_row_init(&row);
    hf_store *st = held_twice(session, &row, range);
    const struct answer read = {"range", 200, range, 0};
    const struct answer done = {"txn", 200, "{" HEADER ", \"succeeded\": true}", 1};
    /* Mostly nothing more is asked, and both keys are there. */
    answers_are(&done, 1);
    said(driver->replace(st, &key, 5, &row, NULL, &clock_us, &err), 0, NULL);
    assert_true(answers_given() == 1 && is_put(session[0]) && is_put(session[1]));
    /* A party whose session is over doesn't keep the rest of the row from being written. */
    const struct answer second[] = {refused, read, alive, dead, done};
    answers_are(second, COUNT(second));
    said(driver->replace(st, &key, 5, &row, NULL, &clock_us, &err), 0, NULL);
    assert_true(is_put(session[0]) && !is_put(session[1]));
    const struct answer both[] = {refused, read, dead, dead, done};
    answers_are(both, COUNT(both));
    said(driver->replace(st, &key, 5, &row, NULL, &clock_us, &err), 0, NULL);
    assert_false(is_put(session[0]) || is_put(session[1]));
    /* No session in the row is its own: it asks nothing. */
    row.n_holders = 1;
    row.party[0].session = 7;
    const struct answer nobody[] = {refused, read, dead, done};
    answers_are(nobody, COUNT(nobody));
    said(driver->replace(st, &key, 5, &row, NULL, &clock_us, &err), HF_LOST, "lease not found");
    assert_int_equal(answers_given(), 2);
    hf_row_clear(&row);
    driver->close(st);
}

static void nothing_is_bound_to_a_dead_session(void **state)
{
    (void)state;
    static char range[8192];
    uint64_t session[2];
    int64_t clock_us;
    hf_row row, other;
    hf_row_init(&row);
    hf_row_init(&other);
    hf_store *st = held_twice(session, &row, range);
    const struct answer read = {"range", 200, range, 0};
    const struct answer asked[] = {refused, read, dead, refused};
    for (int i = 0; i < 5; i++) {
        assert_int_equal(hf_row_copy(&other, &row), 0);
        hf_party *p = &other.party[1];
        if (i == 0) p->token = 6; /* granted anew */
        if (i == 1) p->id[0]++;
        if (i == 2) p->flags |= HF_PARTY_UNCLAIMED; /* even if its claim is new with this write */
        if (i == 3) p->session = session[0];        /* renewed with it */
        if (i == 4) { /* moves from the line to the holders, or back */
            other.n_holders = 1;
            other.n_queue = 1;
        }
        answers_are(asked, COUNT(asked));
        said(driver->replace(st, &key, 5, &other, NULL, &clock_us, &err), HF_LOST, NULL);
        assert_true(is_put(session[i == 3 ? 0 : 1]) || answers_given() == 2);
    }
    hf_row_clear(&row);
    hf_row_clear(&other);
    driver->close(st);
}

static void who_cannot_be_asked_for_leaves_it_open(void **state)
{
    (void)state;
    static char range[8192];
    uint64_t session[2];
    int64_t clock_us;
    hf_row row, cur;
    hf_row_init(&row);
    hf_row_init(&cur);
    hf_store *st = held_twice(session, &row, range);
    const struct answer read = {"range", 200, range, 0};
    const struct answer unread[] = {refused, {"range", 503, "{\"error\": \"no leader\"}", 0}};
    answers_are(unread, COUNT(unread));
    said(driver->replace(st, &key, 5, &row, &cur, &clock_us, &err), HF_UNAVAILABLE, "no leader");
    const struct answer unheard[] = {refused, read, {"timetolive", 503, "{\"error\": \"no\"}", 0}};
    answers_are(unheard, COUNT(unheard));
    said(driver->replace(st, &key, 5, &row, &cur, &clock_us, &err), HF_UNAVAILABLE, "no");
    const struct answer lost[] = {refused, read, alive, dead, {"txn", ANSWER_CLOSED, "", 0}};
    answers_are(lost, COUNT(lost));
    said(driver->replace(st, &key, 5, &row, &cur, &clock_us, &err), HF_UNKNOWN, NULL);
    /* Others have written. */
    const struct answer late[] = {refused, read};
    answers_are(late, COUNT(late));
    said(driver->replace(st, &key, 3, &row, NULL, &clock_us, &err), HF_CONFLICT, NULL);
    answers_are(late, COUNT(late));
    said(driver->replace(st, &key, 3, &row, &cur, &clock_us, &err), HF_CONFLICT, NULL);
    assert_true(cur.rev == 5 && cur.n_holders == 2 && answers_given() == 2);
    hf_row_clear(&row);
    hf_row_clear(&cur);
    driver->close(st);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(whose_session_is_missing_is_dead),
        cmocka_unit_test(a_session_of_another_term_is_in_doubt),
        cmocka_unit_test(what_was_noted_goes_with_its_session),
        cmocka_unit_test(a_doubt_may_stay),
        cmocka_unit_test(a_doubt_is_settled_once),
        cmocka_unit_test(a_session_of_an_earlier_term_is_stale),
        cmocka_unit_test(a_session_says_when_it_was_made),
        cmocka_unit_test(leases_end_when_it_says_so),
        cmocka_unit_test(too_many_sessions_are_too_many),
        cmocka_unit_test(who_dies_beside_it_costs_it_nothing),
        cmocka_unit_test(nothing_is_bound_to_a_dead_session),
        cmocka_unit_test(who_cannot_be_asked_for_leaves_it_open),
    };
    return etcd_said_begin() ? 1 : TEST_MAIN(tests);
}
