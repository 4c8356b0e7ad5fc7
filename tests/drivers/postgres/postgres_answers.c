/*
 * postgres_answers.c - the driver postgres: what it makes of a server that answers anything.
 */
#include "pgsay.h"
#include "test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define URL     "postgres://u@HOST/db?sslmode=disable&gssencmode=disable"
#define NOW     "1769860800000017"
#define GET     "SELECT 0, "
#define ACQUIRE "DO UPDATE"
#define SCAN    "ORDER BY"
#define LONG    "WITH w AS"
#define QUIET   "queue = '' RETURNING (extract"
#define OLD     "SELECT granted"

static hf_row row, cur;

static int get(hf_store *st) { return pg->get(st, &key, &cur, &clock_us, &err); }

static int take(hf_store *st)
{
    hf_party p = {.id = {1}, .lease_ms = 60000, .owner = "me", .owner_len = 2};
    return pg->acquire(st, &key, &p, 0, &cur, &clock_us, &err);
}

static int get_in_line(hf_store *st)
{
    hf_party p = {.id = {1}, .lease_ms = 60000, .owner = "me", .owner_len = 2};
    return pg->acquire(st, &key, &p, 9, &cur, &clock_us, &err);
}

static int replace(hf_store *st, uint64_t seen)
{
    hf_row_clear(&row);
    row.rev = seen + 1;
    return pg->replace(st, &key, seen, &row, &cur, &clock_us, &err);
}

static int see(void *arg, const hf_rowkey *k, hf_row *r)
{
    (void)k;
    *(int *)arg += r ? 1 : 100;
    return *(int *)arg >= 1000;
}

static int seen_rows;
static int list(hf_store *st, const char *prefix)
{
    seen_rows = 0;
    return pg->scan(st, prefix, see, &seen_rows, &clock_us, &err);
}

#define ARE(...) \
    pg_are((const struct pg_rule[]){__VA_ARGS__}, COUNT(((const struct pg_rule[]){__VA_ARGS__})))

/* The meaning of an SQLSTATE for a read, and for a statement that may have written. */
static void states_mean_something(void **state)
{
    (void)state;
    static const struct {
        const char *told;
        int read, written;
    } cases[] = {
        {"!40001 serialization", HF_UNAVAILABLE, HF_UNKNOWN},
        {"!08006 connection failure", HF_UNAVAILABLE, HF_UNKNOWN},
        {"!57P01 terminating", HF_UNAVAILABLE, HF_UNKNOWN},
        {"!without a state", HF_UNAVAILABLE, HF_UNKNOWN},
        {"!28000 no such role", HF_DENIED, HF_DENIED},
        {"!42501 permission denied", HF_DENIED, HF_DENIED},
        {"!53100 disk full", HF_FULL, HF_FULL},
        {"!3D000 no such database", HF_INVALID, HF_INVALID},
        {"!3F000 no such schema", HF_INVALID, HF_INVALID},
        {"!22021 not a text", HF_INVALID, HF_INVALID},
        {"!22P05 untranslatable", HF_INVALID, HF_INVALID},
        {"!42703 no such column", HF_CORRUPT, HF_CORRUPT},
        {"!XX001 damaged", HF_CORRUPT, HF_CORRUPT},
        {"!XX002 damaged", HF_CORRUPT, HF_CORRUPT},
        {"!XX000 tuple concurrently updated", HF_UNAVAILABLE, HF_UNKNOWN},
        {"!58000 a pooler lost the server", HF_UNAVAILABLE, HF_UNKNOWN},
        {"!ZZ999 of a later version", HF_UNAVAILABLE, HF_UNKNOWN},
        {"!55000 not accepting", HF_UNAVAILABLE, HF_UNAVAILABLE},
        {"!21000 more than one row", HF_UNAVAILABLE, HF_UNAVAILABLE},
        {"!25P02 transaction is aborted", HF_UNAVAILABLE, HF_UNAVAILABLE},
        {"!53200 out of memory", HF_UNAVAILABLE, HF_UNAVAILABLE},
        {"!54000 too complex", HF_UNAVAILABLE, HF_UNAVAILABLE},
        {"!57014 statement timeout", HF_UNAVAILABLE, HF_UNAVAILABLE},
        {"!P0001 raised by a trigger", HF_UNAVAILABLE, HF_UNAVAILABLE},
        {"!22003 out of range", HF_CORRUPT, HF_CORRUPT},
        {"!23514 check", HF_CORRUPT, HF_CORRUPT},
        {"!53300 too many connections", HF_UNAVAILABLE, HF_UNAVAILABLE},
        {"!25006 read-only", HF_UNAVAILABLE, HF_UNAVAILABLE},
        {".", HF_UNAVAILABLE, HF_UNKNOWN},
    };
    hf_store *st = pg_opened(URL);
    for (size_t i = 0; i < COUNT(cases); i++) {
        const char *words = strchr(cases[i].told, ' ');
        ARE({GET, cases[i].told, 1}, {"INSERT INTO", cases[i].told, 2}, {OLD, cases[i].told, 0});
        said(get(st), cases[i].read, words ? words + 1 : NULL);
        said(replace(st, 0), cases[i].written, words ? words + 1 : NULL);
        said(take(st), cases[i].written, words ? words + 1 : NULL);
        said(get(st), 0, NULL);
    }
    pg->close(st);
}

/* A table that was dropped is made again, also while another client makes it. */
static void a_missing_table_is_made(void **state)
{
    (void)state;
    static const struct {
        const char *made;
        int code;
    } cases[] = {{"", 0},
                 {"!23505 pg_type_typname_nsp_index", 0},
                 {"!42P07 already there", 0},
                 {"!42710 type \"holdfast\" already exists", 0},
                 {"!42501 permission denied", HF_DENIED}};
    hf_store *st = pg_opened(URL);
    for (size_t i = 0; i < COUNT(cases); i++) {
        ARE({GET, "!42P01 no such table", 1}, {"CREATE TABLE", cases[i].made, 1});
        said(get(st), cases[i].code, NULL);
        assert_int_equal(pg_asked(GET), cases[i].code ? 1 : 2);
    }
    pg->close(st);
}

/* A name that a statement was given may be taken, or gone. */
static void names_of_statements(void **state)
{
    (void)state;
    hf_store *st = pg_opened(URL);
    pg_are(NULL, 0);
    for (int i = 0; i < 4; i++) said(get(st), 0, NULL);
    assert_int_equal(pg_asked("prepare"), 1);
    ARE({GET, "!26000 no such statement", 1});
    said(get(st), 0, NULL);
    assert_int_equal(pg_asked(GET), 2);
    ARE({GET, "!26000 no such statement", 1});
    said(get(st), HF_UNAVAILABLE, "no such statement"); /* the server has forgotten the statement */
    said(list(st, ""), 0, NULL);
    assert_int_equal(pg_asked("prepare"), 0);
    pg->close(st);
    static const struct {
        const char *told;
        int code, asked;
    } cases[] = {{"!42P05 already exists", 0, 1},
                 {"!53200 no memory", 0, 3},
                 {"?", HF_UNAVAILABLE, 1},
                 {".", HF_UNAVAILABLE, 1}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        st = NULL;
        pg_are(NULL, 0);
        said(pg_opens(URL, 3000, &st), 0, NULL);
        ARE({"prepare", cases[i].told, 0});
        said(get(st), cases[i].code, NULL);
        int before = pg_asked("prepare");
        if (!cases[i].code) said(get(st), 0, NULL);
        if (!cases[i].code) said(get(st), 0, NULL);
        if (before != 1 || pg_asked("prepare") != cases[i].asked)
            fail_msg("%s: %d, %d", cases[i].told, before, pg_asked("prepare"));
        pg_are(NULL, 0);
        said(get(st), 0, NULL);
        pg->close(st);
    }
}

static void who_isnt_let_in(void **state)
{
    (void)state;
    static const struct {
        const char *part, *told, *says;
        int code;
    } cases[] = {
        {"connect", "!28P01 password authentication failed", "password", HF_DENIED},
        {"connect", "!28000 no pg_hba.conf entry", "pg_hba.conf", HF_DENIED},
        {"connect", "!28000 role \"u\" does not exist", "role", HF_DENIED},
        {"connect", "!42501 permission denied for database", "permission", HF_DENIED},
        {"connect", "!28000 certificate needed", "certificate", HF_DENIED},
        {"connect", "!3D000 database \"db\" does not exist", "database", HF_INVALID},
        {"connect", "!22023 invalid value for parameter", "invalid", HF_INVALID},
        {"connect", "!57P03 the system is starting up", "starting up", HF_UNAVAILABLE},
        /* The state counts, whatever the language of the text. */
        {"connect", "!28P01 Kennwort fehlgeschlagen", "Kennwort", HF_DENIED},
        {"connect", "!53300 zu viele Verbindungen: password", "zu viele", HF_UNAVAILABLE},
        {"connect", "!53300 too many connections for role \"u\"", "too many", HF_UNAVAILABLE},
        {"connect", "!53300 too many connections for database \"db\"", "for", HF_UNAVAILABLE},
        {"connect", "!53400 configured limit", "limit", HF_UNAVAILABLE},
        {"connect", "!55000 database \"db\" is not currently accepting connections", "accepting",
         HF_UNAVAILABLE},
        {"connect", "!57P03 the database system is shutting down, invalid", "down", HF_UNAVAILABLE},
        {"connect", "!57P01 authentication", "authentication", HF_UNAVAILABLE},
        {"connect", "!08P01 no such user, password", "no such user", HF_UNAVAILABLE},
        {"connect", "!XX000 certificate", "certificate", HF_UNAVAILABLE},
        {"connect", "!without a state: invalid password", "without a state", HF_UNAVAILABLE},
        {"connect", ".", "closed", HF_UNAVAILABLE},
        {"pg_is_in_recovery", "t|off|77|150000|db|public", "a standby", HF_UNSUPPORTED},
        {"pg_is_in_recovery", "f|on|77|150000|db|public", "read-only", HF_UNSUPPORTED},
        {"pg_is_in_recovery", "f|off|77|90400|db|public", "older than", HF_UNSUPPORTED},
        {"pg_is_in_recovery", "!57P01 going down", "going down", HF_UNAVAILABLE},
        {"set_config", "!42501 not for you", "not for you", HF_DENIED},
        {"set_config", ".", "closed", HF_UNAVAILABLE},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        hf_store *st = NULL;
        ARE({cases[i].part, cases[i].told, 0});
        said(pg_opens(URL, 60000, &st), cases[i].code, cases[i].says);
        int busy = !strncmp(cases[i].told, "!53", 3) || !strncmp(cases[i].told, "!57P", 4);
        assert_int_equal(err.sys, busy && !strcmp(cases[i].part, "connect") ? EBUSY : 0);
    }
    hf_store *st = NULL;
    ARE({"connect", "?", 0});
    said(pg_opens(URL, 3000, &st), HF_UNAVAILABLE, "no answer in time");
    ARE({GET, "?", 0});
    said(pg_opens(URL, 3000, &st), HF_UNAVAILABLE, "no answer within 3000 ms");
    said(pg_opens("postgres://u@no.such.host.invalid/db", 60000, &st), HF_UNAVAILABLE,
         "'no.such.host.invalid:5432': ");
}

static void options(void **state)
{
    (void)state;
    static const struct {
        const char *url, *says;
    } wrong[] = {
        {"postgres://HOST/db?table=", "table: not NAME"},
        {"postgres://HOST/db?table=a%22b", "table: not NAME"},
        {"postgres://HOST/db?table=a.", "table: not NAME"},
        {"postgres://HOST/db?table=.b", "table: not NAME"},
        {"postgres://HOST/db?table=.", "table: not NAME"},
        {"postgres://HOST/db?table=a.b.c", "SCHEMA.NAME"},
        {"postgres://HOST/db?target_session_attrs=standby", "written to"},
        {"postgres://HOST/db?target_session_attrs=prefer-standby", "written to"},
        {"postgres://HOST/db?target_session_attrs=read-only", "written to"},
        {"postgres://HOST/db?target_session_attrs=any-other", "any-other"},
        {"postgres://HOST/db?sslmode=nonsense", "nonsense"},
        {"postgres:///db?host=a,b&hostaddr=127.0.0.1", "hosts"},
        {"postgres:///db?host=a,b,c&port=1,2", "port"},
        {"postgres://a,b/db?port=x", "port"},
        {"postgres://a:1,[::1/db", "given twice"},
        {"postgres://HOST/"
         "db?table=nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn",
         "table: not NAME"},
        {"postgres://HOST/db?nothing=1", "unknown option 'nothing'"},
        {"postgres://HOST/db?us=1", "unknown option 'us'"},
        {"postgres://HOST/db?port=5", "given twice"},
    };
    hf_store *st = NULL;
    for (size_t i = 0; i < COUNT(wrong); i++)
        said(pg_opens(wrong[i].url, 60000, &st), HF_INVALID, wrong[i].says);
    char text[1400];
    snprintf(text, sizeof text, "postgres://HOST/db?options=%01100d", 0);
    said(pg_opens(text, 60000, &st), HF_INVALID, "too long");
    pg->close(pg_opened("postgres://u:s3cr3t@HOST/db?table=other&&sslmode=disable"));
    pg->close(pg_opened("postgres://HOST/?user=u&sslmode=disable"));
    pg->close(pg_opened("postgres://HOST?user=u&sslmode=disable&target_session_attrs=any"));
    pg->close(pg_opened(URL "&target_session_attrs=read-write"));
    pg->close(pg_opened(URL "&table="
                            "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn"));
}

static void rows_that_are_damaged(void **state)
{
    (void)state;
    static const char *const damage[][2] = {
        {"format", NULL}, {"owner", NULL},       {"format", "1"},     {"format", "3"},
        {"queue", "{"},   {"token", "9999"},     {"request", "none"}, {"more", "[{}]"},
        {"done", "{}"},   {"more", "{\"a\":1}"}, {"owner", "(ended)"}};
    hf_store *st = pg_opened(URL);
    for (size_t i = 0; i < COUNT(damage); i++) {
        const char *name = damage[i][0], *value = damage[i][1];
        const char *there = pg_row_but("0|" NOW, name, value);
        const char *listed = pg_row_but("k|" NOW, name, value);
        int other = value && !strcmp(name, "format");
        const char *says = !other          ? "damaged"
                           : *value == '1' ? "empty it: DROP TABLE \"public\".\"holdfast\""
                                           : "newer version";
        ARE({GET, there, 0}, {SCAN, listed, 1}, {"w AS (INSERT", there, 0},
            {"w AS (UPDATE", there, 0});
        said(get(st), HF_CORRUPT, says);
        said(replace(st, 7), HF_CORRUPT, says);
        said(replace(st, 0), HF_CORRUPT, says);
        said(list(st, ""), 0, NULL);
        assert_int_equal(seen_rows, 100);
    }
    pg->close(st);
    /* Also if it is the row that opening reads. */
    ARE({GET, pg_row_but("0|" NOW, "format", "1"), 0});
    said(pg_opens(URL, 60000, &st), 0, NULL);
    pg->close(st);
}

/* A refusal that shows the row which the write expected isn't about the present row. */
static void a_stale_refusal_is_read_again(void **state)
{
    (void)state;
    hf_store *st = pg_opened(URL);
    const char *same = pg_row_but("0|" NOW, "rev", "5"), *next = pg_row_but("0|" NOW, "rev", "6");
    ARE({"w AS (UPDATE", same, 0}, {GET, next, 0});
    said(replace(st, 5), HF_CONFLICT, NULL);
    assert_true(cur.rev == 6);
    said(pg->replace(st, &key, 5, &row, NULL, &clock_us, &err), HF_CONFLICT, NULL);
    ARE({"w AS (UPDATE", same, 0}, {GET, "!57P01 going down", 0});
    said(replace(st, 5), HF_UNAVAILABLE, "going down");
    /* A take that is refused by a row which looks free. */
    ARE({ACQUIRE, pg_row_but("0|" NOW, "owner", ""), 0}, {GET, next, 0});
    said(take(st), HF_CONFLICT, NULL);
    assert_true(cur.rev == 6);
    ARE({ACQUIRE, pg_row_but("0|" NOW, "", NULL), 0}, {GET, next, 0});
    said(take(st), HF_CONFLICT, NULL);
    assert_true(cur.rev == 6);
    ARE({ACQUIRE, pg_row_but("1|" NOW, "format", "1"), 0});
    said(take(st), HF_CORRUPT, "rows of format 1");
    pg->close(st);
}

static void listings(void **state)
{
    (void)state;
    static char page[200000], long_key[700];
    hf_store *st = pg_opened(URL);
    size_t n = 0;
    for (int i = 0; i < 64; i++) {
        char before[60];
        snprintf(before, sizeof before, "k%02d|" NOW, i);
        n += (size_t)snprintf(page + n, sizeof page - n, "%s%s", i ? "\n" : "",
                              pg_row_but(before, "note", ""));
    }
    ARE({SCAN, page, 1}, {SCAN, pg_row_but("k99|" NOW, "note", ""), 1});
    said(list(st, "k"), 0, NULL);
    assert_int_equal(seen_rows, 65);
    /* The scan ends by the callback, or at a key behind those with the prefix. */
    ARE({SCAN, page, 0});
    seen_rows = 0;
    int almost = 990;
    said(pg->scan(st, "k", see, &almost, &clock_us, &err), 0, NULL);
    assert_int_equal(almost, 1000);
    said(list(st, "k0"), 0, NULL);
    assert_int_equal(seen_rows, 10);
    ARE({SCAN, page, 1}, {SCAN, "!57P01 going down", 0});
    said(list(st, "k"), HF_UNAVAILABLE, "going down");
    snprintf(long_key, sizeof long_key, "%0600d|" NOW, 7);
    ARE({SCAN, pg_row_but(long_key, "note", ""), 0});
    said(list(st, ""), HF_CORRUPT, "a row whose key is not a legal one");
    pg->close(st);
}

#define WAITS(id) "[{\"request\":\"" id "\",\"owner\":\"o\",\"note\":\"\",\"since_us\":5}]"

/* The request is queued if the row shows it at the end; a refusal shows the present row. */
static void a_place_in_line(void **state)
{
    (void)state;
    hf_store *st = pg_opened(URL);
    ARE({ACQUIRE, pg_row_but("1|" NOW, "queue", WAITS("01000000000000000000000000000000")), 0});
    said(get_in_line(st), 0, NULL);
    assert_true(cur.n_queue == 1 && clock_us == INT64_C(1769860800000017));
    ARE({ACQUIRE, pg_row_but("1|" NOW, "queue", WAITS("02000000000000000000000000000000")), 0});
    said(get_in_line(st), HF_UNKNOWN, "acquire 'k': the answer doesn't fit the request");
    ARE({ACQUIRE, pg_row_but("1|" NOW, "", NULL), 0});
    said(get_in_line(st), HF_UNKNOWN, "acquire 'k': the answer doesn't fit the request");
    ARE({ACQUIRE, pg_row_but("0|" NOW, "rev", "6"), 0});
    said(get_in_line(st), HF_CONFLICT, NULL);
    assert_int_equal(cur.rev, 6);
    /* A row that isn't there by the statement's snapshot has come meanwhile. */
    ARE({ACQUIRE, pg_row_but("0|" NOW, "", NULL), 0}, {GET, pg_row_but("0|" NOW, "rev", "6"), 0});
    said(get_in_line(st), HF_CONFLICT, NULL);
    assert_int_equal(cur.rev, 6);
    ARE({ACQUIRE, pg_row_but("0|" NOW, "format", "1"), 0});
    said(get_in_line(st), HF_CORRUPT, "rows of format 1");
    ARE({ACQUIRE, "!53100 disk full", 0});
    said(get_in_line(st), HF_FULL, "disk full");
    ARE({ACQUIRE, ".", 0});
    said(get_in_line(st), HF_UNKNOWN, NULL);
    pg->close(st);
}

static void guards(void **state)
{
    (void)state;
    hf_store *st = pg_opened(URL);
    ARE({"holdfast_enter", "!LOST1 is lost", 1}, {"holdfast_enter", "!LOST1 is lost", 1},
        {"holdfast_enter", "!42883 no function", 1}, {"holdfast_enter", ".", 1});
    said(pg->enter(st, &key, 5, 1, NULL, &err), HF_LOST, "is lost");
    assert_int_equal(err.code, HF_LOST);
    assert_int_equal(pg->enter(st, &key, 5, 1, NULL, NULL), HF_LOST);
    said(pg->enter(st, &key, 5, 1, NULL, &err), HF_UNSUPPORTED, "no guard is there");
    said(pg->enter(st, &key, 5, 1, NULL, &err), HF_UNKNOWN, NULL);
    said(pg->enter(st, &key, 5, 1, NULL, &err), 0, NULL);
    said(pg->enter(st, &key, 5, 1, "shelf", &err), HF_INVALID, "named by the key alone");
    /* Nor if no connection can be made. */
    pg_cuts();
    ARE({"connect", "!57P03 starting up", 0});
    while (!pg->enter(st, &key, 5, 1, NULL, &err) || err.code == HF_UNKNOWN) continue;
    said(pg->enter(st, &key, 5, 1, NULL, &err), HF_UNAVAILABLE, "starting up");
    pg->close(st);
}

struct told {
    int good, bad;
    char text[1000];
};

static void hears(void *arg, int ok, const char *text)
{
    struct told *t = arg;
    size_t n = strlen(t->text);
    *(ok ? &t->good : &t->bad) += 1;
    snprintf(t->text + n, sizeof t->text - n, "%s\n", text);
}

static void settings(void **state)
{
    (void)state;
    static const struct {
        const char *told;
        int bad;
    } cases[] = {{"15.4|on|on|on", 0},
                 {"15.4|off|on|on", 1},
                 {"15.4|on|off|on", 1},
                 {"15.4|on|on|off", 1},
                 {"15.4|off|off|off", 2}};
    hf_store *st = pg_opened(URL);
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct told t = {0, 0, ""};
        ARE({"server_version'", cases[i].told, 0});
        said(pg->inspect(st, hears, &t, &err), 0, NULL);
        if (t.bad != cases[i].bad) fail_msg("%s: %s", cases[i].told, t.text);
        assert_non_null(strstr(t.text, "waiters are woken"));
        assert_non_null(strstr(t.text, "in the table public.holdfast of the database db\n"));
    }
    ARE({"server_version'", "!42501 permission denied", 0});
    struct told t = {0, 0, ""};
    said(pg->inspect(st, hears, &t, &err), HF_DENIED, "permission");
    pg->close(st);
    ARE({"pg_is_in_recovery", "f|off|78|150000|db|public", 0},
        {"server_version'", "15|on|on|on", 0});
    said(pg_opens(URL, 60000, &st), 0, NULL);
    assert_int_equal(pg_asked("set_config"), 0); /* which would be another's */
    said(pg->inspect(st, hears, &t, &err), 0, NULL);
    assert_non_null(strstr(t.text, "waiters poll"));
    pg->close(st);
}

/* A row that is longer than the socket's buffers, while the server doesn't read. */
static void who_doesnt_read_is_left(void **state)
{
    (void)state;
    hf_store *st = NULL;
    hf_row big;
    hf_row_init(&big);
    pg_are(NULL, 0);
    said(pg_opens(URL, 3000, &st), 0, NULL);
    if (hf_row_room(&big, 257)) fail();
    big.rev = big.token = 9;
    big.n_holders = 1;
    big.n_queue = 256;
    for (int i = 0; i < 257; i++) {
        hf_party *p = &big.party[i];
        memset(p, 0, sizeof *p);
        memcpy(p->id, &i, sizeof i);
        p->token = i ? 0 : 9;
        p->owner_len = (uint8_t)snprintf(p->owner, sizeof p->owner, "%0120d", i);
        p->note_len = (uint8_t)snprintf(p->note, sizeof p->note, "%0120d", i);
    }
    pg_stops();
    said(pg->replace(st, &key, 8, &big, NULL, &clock_us, &err), HF_UNKNOWN,
         "no answer within 3000 ms");
    pg_are(NULL, 0);
    hf_row_clear(&big);
    pg->close(st);
}

/* ---- quiet writes ---- */

static uint64_t hint;

/* Writes by a handle that has a hint: a row with so many holders, and so many waiters. */
static int write_next(hf_store *st, uint32_t holders, uint32_t queue)
{
    hf_rowkey k = key;
    k.hint = &hint;
    for (int i = 0; i < 2; i++)
        row.party[i] = (hf_party){.id = {(uint8_t)(i + 1)}, .owner = "me", .owner_len = 2};
    row.party[0].token = row.token = 1;
    row.n_holders = holders;
    row.n_queue = queue;
    uint64_t seen = row.rev++;
    return pg->replace(st, &k, seen, &row, &cur, &clock_us, &err);
}

/* Releases the key and acquires it again, with no other client in between. */
static void comes_back(hf_store *st)
{
    hint = 0;
    row.rev = 1;
    said(write_next(st, 0, 0), 0, NULL);
    said(write_next(st, 1, 0), 0, NULL);
}

/* Checks how many long and how many short statements were sent. */
static void said_so(int at_length, int quietly)
{
    assert_int_equal(pg_asked(LONG), at_length);
    assert_int_equal(pg_asked("UPDATE") - pg_asked(LONG " (UPDATE"), quietly);
}

static void at_length_all_is_done(void) { ARE({LONG, pg_row_but("1|" NOW, "rev", "1"), 0}); }

static void who_is_alone_with_a_key_writes_quietly(void **state)
{
    (void)state;
    hf_store *st = pg_opened(URL);
    at_length_all_is_done();
    hf_row_clear(&row);
    if (hf_row_room(&row, 2)) fail();
    comes_back(st);
    said_so(2, 0);
    for (uint32_t holders = 0; holders < 2; holders++) {
        ARE({QUIET, NOW, 1});
        clock_us = 0;
        said(write_next(st, holders, 0), 0, NULL);
        assert_true(clock_us == strtoll(NOW, NULL, 10));
        assert_int_equal(pg_asked(LONG), 0);
    }
    /* The row has changed, or has a waiter: the long statement is needed. */
    ARE({QUIET, "", 1}, {LONG, pg_row_but("0|" NOW, "rev", "77"), 1});
    said(write_next(st, 0, 0), HF_CONFLICT, NULL);
    assert_int_equal(cur.rev, 77);
    assert_int_equal(pg_asked(LONG), 1);
    /* If the outcome isn't known, the long statement isn't sent. */
    row.rev--;
    ARE({QUIET, ".", 1});
    said(write_next(st, 0, 0), HF_UNKNOWN, NULL);
    assert_int_equal(pg_asked(LONG), 0);
    pg->close(st);
}

static void where_somebody_else_writes_nobody_writes_quietly(void **state)
{
    (void)state;
    hf_store *st = pg_opened(URL);
    for (int how = 0; how < 4; how++) {
        at_length_all_is_done();
        comes_back(st);
        if (how == 0) said(write_next(st, 1, 1), 0, NULL); /* somebody comes into line */
        if (how == 1) row.rev++;                           /* another one has written */
        if (how == 2) row.rev = 0;                         /* it is gone */
        hf_rowkey k = key;
        k.hint = &hint;
        if (how == 3) said(pg->replace(st, &k, row.rev, NULL, &cur, &clock_us, &err), 0, NULL);
        said(write_next(st, 0, 0), 0, NULL);
        said_so(how == 0 || how == 3 ? 4 : 3, 0);
    }
    /* In turns: another client acquires and releases the key each time in between. */
    hint = 0;
    for (int i = 0; i < 3; i++) {
        at_length_all_is_done();
        said(write_next(st, 1, 0), 0, NULL);
        said(write_next(st, 0, 0), 0, NULL);
        said_so(2, 0);
        ARE({LONG, pg_row_but("0|" NOW, "rev", "77"), 0});
        said(write_next(st, 1, 0), HF_CONFLICT, NULL);
        said_so(1, 0);
        row.rev += 2;
    }
    hf_row_clear(&row);
    pg->close(st);
}

int main(void)
{
    if (!pg_begin()) return 1;
    hf_row_init(&row);
    hf_row_init(&cur);
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(states_mean_something),
        cmocka_unit_test(a_missing_table_is_made),
        cmocka_unit_test(names_of_statements),
        cmocka_unit_test(who_isnt_let_in),
        cmocka_unit_test(options),
        cmocka_unit_test(rows_that_are_damaged),
        cmocka_unit_test(a_stale_refusal_is_read_again),
        cmocka_unit_test(who_is_alone_with_a_key_writes_quietly),
        cmocka_unit_test(where_somebody_else_writes_nobody_writes_quietly),
        cmocka_unit_test(listings),
        cmocka_unit_test(a_place_in_line),
        cmocka_unit_test(guards),
        cmocka_unit_test(settings),
        cmocka_unit_test(who_doesnt_read_is_left),
    };
    int failed = TEST_MAIN(tests);
    hf_row_clear(&row);
    hf_row_clear(&cur);
    return failed;
}
