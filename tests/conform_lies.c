/*
 * conform_lies.c - the conformance suite finds what a store says or keeps that isn't so: one lie at
 * a time, each call of a check in turn, each part of a row. See conform_liar.c for stores that are
 * tried as a whole; here all checks but one are denied at once, so that a run takes no time.
 */
#include "conform.h"
#include "conform_key.h"
#include "drivers.h"
#include "test.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

static hf_driver liar;
static const hf_driver *base = &hf__mem_driver;
static const char *only; /* what the check calls its key; others are denied */
static int at, lies;     /* the call that is a lie; was there one? */
static int calls;
static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;

/* ---- ways of lying ---- */

enum way {
    HONEST,
    DENIES,
    TURNS,   /* done is called refused, and the other way round */
    FORGETS, /* what isn't done is called done */
    REV_UP,
    REV_DOWN,
    REV_NONE,
    TOKEN_UP,
    TOKEN_NONE,
    NO_HOLDER,
    NO_QUEUE,
    DONE,
    KEEPS,
    RESULT,
    ID,
    SINCE,
    EXPIRES,
    NOTE,
    OF_HOLDER,
    HUGE_TOKEN,
    WAYS
};
static enum way way;

static void change(hf_row *row)
{
    hf_party *p = row->n_holders + row->n_queue ? &row->party[0] : NULL;
    switch (way) {
    case REV_UP: row->rev++; break;
    case REV_DOWN: row->rev -= row->rev != 0; break;
    case REV_NONE: row->rev = 0; break;
    case TOKEN_UP: row->token++; break;
    case TOKEN_NONE: row->token = 0; break;
    case HUGE_TOKEN: row->token = row->rev = UINT64_C(1) << 60; break;
    case NO_HOLDER: row->n_holders = 0; break;
    case NO_QUEUE: row->n_queue = row->n_queue ? 0 : row->n_holders && row->cap > 1; break;
    case DONE: row->done_us = row->done_us ? 0 : 5; break;
    case KEEPS: row->keep_until_us += row->keep_until_us == INT64_MAX ? -1 : 1; break;
    case RESULT: row->result[0] ^= 1; break;
    case ID:
        if (p) p->id[0]++;
        break;
    case SINCE:
        if (p) p->since_us++;
        break;
    case EXPIRES:
        if (p) p->expires_us++;
        break;
    case NOTE:
        if (p) p->note_len--;
        break;
    case OF_HOLDER:
        if (p) p->token++;
        break;
    default: break;
    }
}

static int denied(const char *key)
{
    size_t n = only ? strlen(only) : 0;
    /* Only a group's keys go on. */
    return strncmp(name_of(key), only ? only : "", n) != 0 ||
           (n && strchr("/", name_of(key)[n]) == NULL);
}

static int lie_now(void)
{
    pthread_mutex_lock(&mu);
    int yes = way != HONEST && ++calls == at;
    lies += yes;
    pthread_mutex_unlock(&mu);
    return yes;
}

/* ---- the store ---- */

static int no(hf_error *err) { return hf_fail(err, HF_DENIED, 0, "liar: denied"); }

static void tell_clock(hf_store *st, int64_t *clock)
{
    if (!(liar.can & HF_CAN_INSTANT)) *clock = base->now(st);
}

static int li_get(hf_store *st, const hf_rowkey *key, hf_row *row, int64_t *clock, hf_error *err)
{
    if (denied(key->text)) return no(err);
    int lie = lie_now();
    if (lie && way == DENIES) return no(err);
    int rc = base->get(st, key, row, clock, err);
    tell_clock(st, clock);
    if (lie && way == SINCE) *clock -= 10000000;
    if (lie && way == EXPIRES) *clock += 10000000;
    if (lie && way == FORGETS) hf_row_clear(row);
    if (lie) change(row);
    return rc;
}

static int li_swap(hf_store *st, const hf_rowkey *key, uint64_t seen, const hf_row *row,
                   hf_row *cur, int64_t *clock, hf_error *err)
{
    if (denied(key->text)) return no(err);
    int lie = lie_now();
    tell_clock(st, clock);
    if (!lie) return base->swap(st, key, seen, row, cur, clock, err);
    if (way == DENIES) return no(err);
    if (way == FORGETS) return 0;
    hf_row other;
    hf_row_init(&other);
    if (row && hf_row_copy(&other, row)) return HF_NOMEM;
    if (way != HUGE_TOKEN) change(&other); /* which would spoil the store's clock */
    int rc = base->swap(st, key, seen, row ? &other : NULL, cur, clock, err);
    hf_row_clear(&other);
    if (way == TURNS) return rc ? 0 : HF_CONFLICT;
    if (rc && cur) change(cur);
    return rc;
}

static int li_take(hf_store *st, const hf_rowkey *key, const hf_party *party, hf_row *cur,
                   int64_t *clock, hf_error *err)
{
    if (denied(key->text)) return no(err);
    int lie = lie_now();
    if (lie && way == DENIES) return no(err);
    int rc = base->take(st, key, party, cur, clock, err);
    if (lie) change(cur);
    if (way == FORGETS && calls >= at) { /* from then on nobody is kept out */
        if (!rc) nanosleep(&(struct timespec){0, 50000}, NULL); /* while others come */
        return 0;
    }
    return lie && way == TURNS ? rc ? 0 : HF_CONFLICT : rc;
}

static int li_sync(hf_store *st, const hf_rowkey *key, hf_error *err)
{
    (void)st;
    return denied(key->text) || lie_now() ? no(err) : 0;
}

static int li_enter(hf_store *st, const hf_rowkey *key, uint64_t token, int alone,
                    const char *where, hf_error *err)
{
    static const int codes[] = {HF_LOST, HF_UNSUPPORTED, HF_INVALID};
    (void)st, (void)token, (void)alone, (void)where;
    if (denied(key->text)) return no(err);
    if (!lie_now()) return hf_fail(err, codes[at % 3], 0, "liar: enter: nobody holds it");
    return way == DENIES ? no(err) : 0;
}

static int li_session(hf_store *st, uint64_t *ret, hf_error *err)
{
    if (only && strcmp(only, "session") && strcmp(only, "bell")) return no(err);
    int rc = base->session(st, ret, err);
    if (!lie_now()) return rc;
    *ret = way == REV_NONE ? 0 : way == TURNS ? 1 : *ret + 1;
    return way == DENIES ? no(err) : 0;
}

static int li_alive(hf_store *st, uint64_t session, hf_error *err)
{
    int rc = base->alive(st, session, err);
    return !lie_now() ? rc : way == DENIES ? HF_UNAVAILABLE : !rc;
}

/* ---- bells ---- */

static int li_listen(hf_store *st, uint8_t bell, const hf_rowkey *const *keys, size_t n,
                     hf_ear *ret, hf_error *err)
{
    return lie_now() ? no(err) : base->listen(st, bell, keys, n, ret, err);
}

static int li_watch(hf_store *st, uint8_t bell, const hf_ear *ear, int64_t until_us, hf_error *err)
{
    return lie_now() ? no(err) : base->watch(st, bell, ear, until_us, err);
}

/* What woke it says how the row is, or who alone holds; or something else. */
static int li_told(hf_store *st, const hf_rowkey *key, hf_row *row)
{
    int64_t clock;
    if (base->get(st, key, row, &clock, NULL)) return 0;
    if (way == HONEST) return 0;
    row->rev = 0;
    change(row);
    if (way == TURNS) row->party[0].flags ^= 1;
    return 1;
}

static int open_lies, opens; /* the so-manyth is denied */

static int li_open(const hf_url *url, int64_t io_timeout_ms, hf_store **ret, hf_error *err)
{
    hf_url mild = *url;
    int n = ++opens;
    if (n == open_lies) return no(err);
    if (n == -open_lies) mild.query[0] = 0; /* takes any option */
    return base->open(&mild, io_timeout_ms, ret, err);
}

/* What is shown of a listing: the so-manyth row in another way, or one more in a listing. */
enum showing {
    TRULY,
    SKIPPED,
    TWICE,
    HASH,
    LENGTH,
    STRANGER,
    NO_ROW,
    UNDONE,
    OF_ANOTHER,
    ON_AND_ON, /* what stops it isn't heard */
    SHOWINGS
};
static enum showing showing;
static int shown, show_at, scans, scan_denied, scan_more;

struct relay {
    int (*see)(void *arg, const hf_rowkey *, hf_row *);
    void *arg;
    int stopped;
};

static int relay(void *arg, const hf_rowkey *key, hf_row *row)
{
    struct relay *r = arg;
    hf_rowkey other = *key;
    char text[HF_KEY_CAP];
    int now = ++shown == show_at || r->stopped;
    if (!now || showing == TRULY) return r->see(r->arg, key, row);
    snprintf(text, sizeof text, "x%s", key->text);
    switch (showing) {
    case SKIPPED: return 0;
    case TWICE: return r->see(r->arg, key, row) || r->see(r->arg, key, row);
    case HASH: other.hash++; break;
    case LENGTH: other.len--; break;
    case STRANGER: other.text = text; break;
    case NO_ROW: row = NULL; break;
    case UNDONE: row->done_us = 0; break;
    case OF_ANOTHER: row->result[0] ^= 1; break;
    default: r->stopped = r->see(r->arg, key, row) != 0; return 0;
    }
    return r->see(r->arg, &other, row);
}

static int li_scan(hf_store *st, const char *prefix,
                   int (*see)(void *arg, const hf_rowkey *, hf_row *), void *arg, int64_t *clock,
                   hf_error *err)
{
    struct relay r = {see, arg, 0};
    char text[HF_KEY_CAP];
    if (++scans == scan_denied) return no(err);
    int rc = base->scan(st, prefix, relay, &r, clock, err);
    if (rc || scans != scan_more) return rc;
    hf_row row;
    hf_row_init(&row);
    hf_rowkey key = {.text = text, .len = (uint32_t)snprintf(text, sizeof text, "%szz", prefix)};
    key.hash = hf_key_hash(key.text, key.len);
    row.done_us = 1;
    size_t skip = key.len > HF_RESULT_CAP - 1 ? key.len - (HF_RESULT_CAP - 1) : 0;
    snprintf(row.result, sizeof row.result, "%s", text + skip);
    see(arg, &key, &row);
    hf_row_clear(&row);
    return 0;
}

/* ---- what is said of it ---- */

static char why_text[4000];

static void say(void *arg, const char *promise, const char *why)
{
    (void)arg;
    if (!why) return;
    if (!*why || strchr(why, '\n')) fail_msg("'%s': no reason, or more than a line", promise);
    size_t n = strlen(why_text);
    snprintf(why_text + n, sizeof why_text - n, "%s\n", why);
}

static void make(void)
{
    liar = *base;
    liar.open = li_open;
    liar.get = li_get;
    liar.swap = li_swap;
    liar.take = li_take;
    liar.scan = li_scan;
    liar.session = li_session;
    liar.alive = li_alive;
    liar.sync = li_sync;
    liar.enter = li_enter;
    /* It tells its clock with its replies, so that this isn't waited for. */
    liar.can &= ~(unsigned)(HF_CAN_BELLS | HF_CAN_INSTANT);
    liar.now = NULL;
    liar.watch = NULL;
    liar.queue_cap = liar.holders_cap = 8; /* as a crowd, they take no time */
}

/* How many promises aren't kept. */
static int examine(const char *name, enum way how, int call)
{
    hf_url url;
    assert_int_equal(hf_url_parse("mem:lies", &url, NULL), 0);
    only = name;
    way = how;
    at = call;
    calls = lies = opens = shown = scans = 0;
    why_text[0] = 0;
    return hf__conform(&liar, &url, say, NULL);
}

/* ---- tests ---- */

/* Each call of a check, each lie. Not all can matter: what is changed in a reply of which nothing
   is used isn't seen. But of each call some are found, and a lie never makes a promise kept. */
static void each_call_of_a_check(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int calls, at_least; /* so many are lied at; so many lies are found */
    } checks[] = {{"never used", 1, 4},
                  {"fields", 16, 100},
                  {"crowd", 4, 30},
                  {"swap", 14, 60},
                  {"another handle", 12, 130},
                  {"take", 12, 80},
                  {"tokens", 8, 30},
                  {"sync", 4, 25},
                  {"enter", 1, 19}};
    make();
    for (size_t i = 0; i < COUNT(checks); i++) {
        int honest = examine(checks[i].name, HONEST, 0), found = 0, told = 0;
        for (int call = 1; call <= checks[i].calls; call++)
            for (int how = DENIES; how < WAYS; how++) {
                /* That clock would be waited for. */
                if (how == HUGE_TOKEN && call > 1 && !strcmp(checks[i].name, "tokens")) continue;
                int n = examine(checks[i].name, (enum way)how, call);
                if (n < honest || (n > honest && !lies))
                    fail_msg("%s: call %d, way %d: %s", checks[i].name, call, how, why_text);
                found += n > honest;
                told += lies;
            }
        if (found < checks[i].at_least)
            fail_msg("%s: only %d of %d lies found", checks[i].name, found, told);
    }
}

/* Thirteen groups of five keys are listed, then most of them, none, three, all (which erases them),
   and none again. */
static void listings(void **state)
{
    (void)state;
    static const int rows[] = {1, 38, 66, 100, 127, 140};
    make();
    int honest = examine("scan", HONEST, 0), all = scans;
    assert_true(all >= 18);
    for (size_t i = 0; i < COUNT(rows); i++)
        for (showing = SKIPPED; showing < ON_AND_ON; showing++) {
            show_at = rows[i];
            int n = examine("scan", HONEST, 0);
            if (n <= honest && !(rows[i] == 127 && (showing == SKIPPED || showing == TWICE)))
                fail_msg("row %d shown in way %d isn't noticed", rows[i], (int)showing);
        }
    showing = ON_AND_ON;
    show_at = 128;
    assert_true(examine("scan", HONEST, 0) > honest);
    showing = TRULY;
    for (scan_denied = 1; scan_denied <= all; scan_denied++)
        assert_true(examine("scan", HONEST, 0) > honest);
    scan_denied = 0;
    for (scan_more = 1; scan_more < all; scan_more++)
        assert_true(examine("scan", HONEST, 0) > honest);
    scan_more = 0;
    for (int call = 1; call <= 195; call += 97) assert_true(examine("scan", DENIES, call) > honest);
    assert_true(examine("scan", DENIES, 150) > honest);
}

/* Racers, of which one meets a lie. Nobody may be left waiting for the others. */
static void races(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        enum way way;
        int sure; /* is it always found? */
    } cases[] = {{"race", DENIES, 1}, {"race", FORGETS, 0}, {"race", REV_NONE, 0},
                 {"race", TURNS, 0},  {"takes", DENIES, 1}, {"takes", FORGETS, 1}};
    make();
    for (size_t i = 0; i < COUNT(cases); i++) {
        int honest = examine(cases[i].name, HONEST, 0), found = 0;
        for (int call = 1; call <= 60; call += call < 24 ? 1 : 9) {
            int n = examine(cases[i].name, cases[i].way, call);
            if (cases[i].sure && n <= honest)
                fail_msg("%s, way %d, call %d", cases[i].name, (int)cases[i].way, call);
            found += n > honest;
        }
        if (!found) fail_msg("%s: none is found", cases[i].name);
    }
}

/* Who waits is refused at each call in turn; and is told what isn't so of who holds. */
static void bells(void **state)
{
    (void)state;
    make();
    liar.can |= HF_CAN_BELLS;
    liar.watch = li_watch;
    liar.listen = li_listen;
    int honest = examine("bell", HONEST, 0), found = 0;
    for (int call = 1; call <= 14; call++) found += examine("bell", DENIES, call) > honest;
    if (found < 12) fail_msg("only %d are found", found);
    liar.told = li_told;
    static const struct {
        enum way way;
        int lies;
    } words[] = {{HONEST, 0}, {DENIES, 0},  {ID, 0},        {SINCE, 1},
                 {TURNS, 1},  {EXPIRES, 1}, {OF_HOLDER, 1}, {NO_HOLDER, 1}};
    for (size_t i = 0; i < COUNT(words); i++)
        if ((examine("bell", words[i].way, 1000) > honest) != words[i].lies)
            fail_msg("word %d", (int)words[i].way);
}

/* A store that isn't of one process alone is opened again, and others open it. */
static void what_outlives_its_handle(void **state)
{
    (void)state;
    static const enum way ways[] = {DENIES, TURNS, FORGETS, TOKEN_UP, KEEPS};
    hf_url url;
    hf_store *st; /* which keeps what is in memory */
    assert_int_equal(hf_url_parse("mem:lies", &url, NULL), 0);
    assert_int_equal(base->open(&url, 1000, &st, NULL), 0);
    make();
    liar.name = "liar";
    int honest = examine("stays", HONEST, 0), found = 0;
    for (int call = 1; call <= 4; call++)
        for (size_t w = 0; w < COUNT(ways); w++) {
            int n = examine("stays", ways[w], call);
            if (n < honest) fail_msg("call %d, way %d: %s", call, (int)ways[w], why_text);
            found += n > honest;
        }
    if (found < 12) fail_msg("only %d lies found", found);
    open_lies = opens - 1;
    assert_true(examine("stays", HONEST, 0) > honest || open_lies < 1);
    open_lies = 0;
    base->close(st);
}

static void clocks(void **state)
{
    (void)state;
    static const struct {
        enum way way;
        int call;
    } cases[] = {{DENIES, 1}, {DENIES, 2}, {SINCE, 2}, {EXPIRES, 1}, {EXPIRES, 3}};
    make();
    int honest = examine("clock", HONEST, 0);
    for (size_t i = 0; i < COUNT(cases); i++)
        if (examine("clock", cases[i].way, cases[i].call) <= honest)
            fail_msg("way %d at call %d", (int)cases[i].way, cases[i].call);
}

/* What wraps the store is told of as well, where it can't be had. */
static void wrapped(void **state)
{
    (void)state;
    make();
    int honest = examine("never used", HONEST, 0);
    setenv("HOLDFAST_TRACE", "", 1);
    assert_int_equal(examine("never used", HONEST, 0), honest);
    setenv("HOLDFAST_TRACE", "/dev/null", 1);
    assert_int_equal(examine("never used", HONEST, 0), honest);
    setenv("HOLDFAST_TRACE", "/dev/null/none", 1);
    assert_int_equal(examine("never used", HONEST, 0), 1);
    unsetenv("HOLDFAST_TRACE");
    setenv("HOLDFAST_FAULT", "nonsense", 1);
    assert_int_equal(examine("never used", HONEST, 0), 1);
    unsetenv("HOLDFAST_FAULT");
}

/* It has room for nobody at all. */
static void no_room(void **state)
{
    (void)state;
    make();
    liar.holders_cap = 0;
    examine("crowd", HONEST, 0);
    assert_non_null(strstr(why_text, "room for none"));
}

static void sessions(void **state)
{
    (void)state;
    static const enum way ways[] = {DENIES, TURNS, REV_UP, REV_NONE};
    make();
    int honest = examine("session", HONEST, 0), found = 0;
    for (int call = 1; call <= 9; call++)
        for (size_t w = 0; w < COUNT(ways); w++)
            found += examine("session", ways[w], call) > honest;
    if (found < 30) fail_msg("only %d lies about sessions found", found);
}

/* It can't be opened for the so-manyth time; or is, with an option that it doesn't have. */
static void openings(void **state)
{
    (void)state;
    static const char *const names[] = {"another handle", "session"};
    make();
    for (size_t i = 0; i < COUNT(names); i++) {
        int honest = examine(names[i], HONEST, 0), all = opens, found = 0;
        for (open_lies = -all; open_lies <= all; open_lies++)
            found += examine(names[i], HONEST, 0) > honest;
        open_lies = 0;
        if (found < all) fail_msg("%s: only %d of %d lies found", names[i], found, all);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_call_of_a_check),
        cmocka_unit_test(listings),
        cmocka_unit_test(races),
        cmocka_unit_test(bells),
        cmocka_unit_test(what_outlives_its_handle),
        cmocka_unit_test(clocks),
        cmocka_unit_test(wrapped),
        cmocka_unit_test(no_room),
        cmocka_unit_test(sessions),
        cmocka_unit_test(openings),
    };
    return TEST_MAIN(tests);
}
