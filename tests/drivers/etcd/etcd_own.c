/*
 * etcd_own.c - the driver etcd: the keys that a write puts for its own sessions, one of which is
 * over. tests/servers/etcd etcd_own @
 */
#include "drivers.h"
#include "os.h"
#include "test.h"

#include <stdio.h>
#include <string.h>

static const hf_driver *drv;
static hf_url url;
static hf_error err;
static hf_store *owner, *other;

static uint64_t leased(void)
{
    uint64_t session;
    int64_t ms, clock;
    if (drv->caps.sessions->make(owner, 60000, &session, &ms, &clock, &err))
        fail_msg("%s", err.text);
    return session;
}

/* Adds a shared holder with that session. */
static void hold(hf_row *row, uint64_t session)
{
    assert_int_equal(hf_row_room(row, row->n_holders + 1), 0);
    hf_party *p = &row->party[row->n_holders++];
    memset(p, 0, sizeof *p);
    memset(p->id, (int)row->n_holders, sizeof p->id);
    p->token = ++row->token;
    p->session = session;
    p->mode = HF_SHARED;
    p->owner[0] = 'o';
    p->owner_len = 1;
}

static int written(hf_store *by, const char *name, hf_row *row)
{
    hf_rowkey key;
    int64_t clock;
    uint64_t seen = row->rev;
    assert_int_equal(hf_key_make(name, &key, &err), 0);
    row->rev = hf_rev_next(seen, hf__day_us());
    if (row->rev < row->token) row->rev = row->token;
    int rc = drv->replace(by, &key, seen, row, NULL, &clock, &err);
    if (rc) row->rev = seen;
    return rc;
}

/* Checks the holders of the key, as the other handle reads them: "d" is dead, "a" isn't. */
static void holds(const char *name, const char *who)
{
    hf_rowkey key;
    hf_row row;
    int64_t clock;
    char is[8] = "";
    hf_row_init(&row);
    assert_int_equal(hf_key_make(name, &key, &err), 0);
    if (drv->get(other, &key, &row, &clock, &err)) fail_msg("%s", err.text);
    assert_true(row.n_holders < sizeof is);
    for (uint32_t i = 0; i < row.n_holders; i++)
        is[i] = row.party[i].flags & HF_PARTY_DEAD ? 'd' : 'a';
    assert_string_equal(is, who);
    hf_row_clear(&row);
}

static void who_dies_beside_it_costs_it_nothing(void **state)
{
    (void)state;
    uint64_t session[2] = {leased(), leased()};
    hf_row row;
    hf_row_init(&row);
    hold(&row, session[0]);
    hold(&row, session[1]);
    assert_int_equal(written(owner, "beside", &row), 0);
    holds("beside", "aa");
    assert_int_equal(drv->caps.sessions->end(other, session[1], &err), 0);
    holds("beside", "ad");
    if (written(owner, "beside", &row)) fail_msg("%s", err.text);
    holds("beside", "ad");
    hold(&row, session[1]); /* but no new party is bound to it */
    assert_int_equal(written(owner, "beside", &row), HF_LOST);
    row.party[2].session = session[0];
    assert_int_equal(written(owner, "beside", &row), 0);
    holds("beside", "ada");
    hf_row_clear(&row);
}

static void a_key_that_was_removed_comes_back(void **state)
{
    (void)state;
    uint64_t session = leased();
    hf_row row;
    hf_row_init(&row);
    hold(&row, session);
    assert_int_equal(written(owner, "back", &row), 0);
    holds("back", "a");
    row.n_holders = 0; /* another handle breaks the grant: the keys beside the row are deleted */
    assert_int_equal(written(other, "back", &row), 0);
    hold(&row, session);
    assert_int_equal(written(other, "back", &row), 0); /* and that handle doesn't put them */
    holds("back", "d");
    assert_int_equal(written(owner, "back", &row), 0);
    holds("back", "a");
    hf_row_clear(&row);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_dies_beside_it_costs_it_nothing),
        cmocka_unit_test(a_key_that_was_removed_comes_back),
    };
    if (argc != 2) return 64;
    drv = hf__driver("etcd", &err);
    if (!drv || hf_url_parse(argv[1], &url, &err) ||
        drv->open(&url, 5000, &owner, &(hf_caps){0}, &err) ||
        drv->open(&url, 5000, &other, &(hf_caps){0}, &err)) {
        printf("Bail out! %s\n", err.text);
        return 1;
    }
    int failed = TEST_MAIN(tests);
    drv->close(owner);
    drv->close(other);
    return failed;
}
