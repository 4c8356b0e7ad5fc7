/*
 * etcd_memory.c - the driver etcd: a request of which a part found no memory is never sent as what
 * is left of it.
 */
#include "../../../drivers/etcd/etcd.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PARTIES = 60, OWN = 10, PACKED_CAP = 1 << 16, MALLOCS_CAP = 1000 };

static long fail_at; /* counts down to the malloc that fails; 0: none does */

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_malloc(size_t size) { return fail_at && !--fail_at ? NULL : __real_malloc(size); }

char *__real_strdup(const char *text);
char *__wrap_strdup(const char *text);
char *__wrap_strdup(const char *text) { return fail_at && !--fail_at ? NULL : __real_strdup(text); }

static hf_store st = {.prefix = "/p/", .n_prefix = 3};
static hf_error err;

/* Makes a row with a holder and a queue, in which some parties have sessions of this handle; other
   waiters are to be notified. */
static void make_row(hf_row *row, struct hf__et_own own[OWN])
{
    hf_row_init(row);
    assert_int_equal(hf_row_room(row, PARTIES), 0);
    memset(row->party, 0, PARTIES * sizeof *row->party);
    for (uint32_t i = 0; i < PARTIES; i++) {
        hf_party *p = &row->party[i];
        p->id[0] = (uint8_t)(i + 1);
        p->session = 1000 + i;
        p->owner_len = (uint8_t)snprintf(p->owner, sizeof p->owner, "owner %u", i);
        if (i < OWN) own[i] = (struct hf__et_own){.session = p->session};
    }
    row->n_holders = 1;
    row->n_queue = PARTIES - 1;
    row->party[0].token = row->token = row->rev = 7;
}

/* The request as it would be sent; 0: it lacks something, and says so. */
static size_t pack(const hf_rowkey *key, uint64_t seen, const hf_row *row, uint8_t *to)
{
    static const struct hf__et_dead nobody = {.n = 0};
    struct hf__et_dead put;
    struct hf__et_txn t;
    hf__et_replace_txn(&t, &st, key, seen, row, &nobody, &put);
    fail_at = 0;
    size_t len = t.mem.failed ? 0 : protobuf_c_message_get_packed_size(&t.msg.base);
    assert_true(len <= PACKED_CAP);
    if (len) protobuf_c_message_pack(&t.msg.base, to);
    hf__et_txn_close(&t);
    return len;
}

static void a_write_is_whole_or_none(void **state)
{
    static uint8_t whole[PACKED_CAP], made[PACKED_CAP];
    static struct hf__et_own own[OWN];
    hf_rowkey key;
    hf_row row;
    (void)state;
    assert_int_equal(hf_key_make("k", &key, &err), 0);
    make_row(&row, own);
    st.own = own;
    st.n_own = OWN;
    for (int way = 0; way < 3; way++) { /* written, made, deleted */
        const hf_row *to = way == 2 ? NULL : &row;
        uint64_t seen = way == 1 ? 0 : 6;
        size_t len = pack(&key, seen, to, whole), n;
        long refused = 0, at = 0;
        assert_true(len > 0);
        do {
            fail_at = ++at;
            assert_true(at < MALLOCS_CAP);
            n = pack(&key, seen, to, made);
            refused += n == 0;
            if (n && (n != len || memcmp(made, whole, n) != 0))
                fail_msg("without the malloc %ld: %zu bytes of %zu", at, n, len);
        } while (!n);
        assert_true(refused >= (to ? 4 : 1)); /* more than a single chunk, where there is much */
    }
    hf_row_clear(&row);
}

static void what_is_not_whole_is_not_sent(void **state)
{
    const struct hf__et_mem failed = {NULL, 1};
    HfEt__RangeRequest request = HF_ET__RANGE_REQUEST__INIT;
    struct hf__et_reply reply = {NULL, 0, 0};
    struct hf__et_http http = {.io_timeout_ms = 1};
    (void)state;
    hf__pool_open(&http.pool);
    pthread_mutex_init(&http.token_mu, NULL);
    hf__et_date_open(&http.date);
    /* the date is known, so that it isn't asked for */
    hf__et_date_told(&http.date, 0, INT64_C(1) << 50, 1);
    assert_int_equal(hf__et_post(&http, HF_ET_RANGE, &request.base, &failed, HF_UNKNOWN, &reply,
                                 "get", "k", &err),
                     HF_NOMEM);
    assert_null(reply.message);
    hf__et_date_close(&http.date);
    pthread_mutex_destroy(&http.token_mu);
    hf__pool_close(&http.pool);
}

/* A subscription that was refused is never ended. */
static void a_subscription_is_whole_or_none(void **state)
{
    hf_rowkey key;
    (void)state;
    assert_int_equal(hf_key_make("k", &key, &err), 0);
    assert_int_equal(hf__et_notify_open(&st, &err), 0);
    assert_int_equal(hf__et_words_open(&st), 0);
    for (long at = 1; at <= 2; at++) { /* the first and the last of the keys that are watched */
        fail_at = at;
        assert_int_equal(hf__et_notify.subscribe(&st, &key), HF_NOMEM);
        assert_int_equal(fail_at, 0);
        assert_int_equal(hf__et_words_n_wanted(st.words), 0);
    }
    assert_int_equal(hf__et_notify.subscribe(&st, &key), 0);
    assert_int_equal(hf__et_words_n_wanted(st.words), 1);
    hf__et_notify_close(&st);
    hf__et_words_close(&st);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_write_is_whole_or_none),
        cmocka_unit_test(what_is_not_whole_is_not_sent),
        cmocka_unit_test(a_subscription_is_whole_or_none),
    };
    pthread_mutex_init(&st.mu, NULL);
    return TEST_MAIN(tests);
}
