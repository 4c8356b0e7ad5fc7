/*
 * file_marks.c - the `file:` driver: a wakeup that many waits share says for which keys it counted.
 */
#include "../../drivers/file/marks.h"
#include "../../drivers/file/store.h"

#include "file_common.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MANY = 1000 };

static const hf_key_event any = {0, 0};

static void listen_for(hf_store *st, size_t waits)
{
    hf_event_count since;
    hf_error err;
    assert_int_equal(drv->caps.local->wakeup_begin(st, 0, waits, &since, &err), 0);
}

static int is(const hf_key_event *event, const char *text)
{
    hf_rowkey key = key_of(text);
    return event->mask == HF_MARK_VALUES - 1 && event->hash == (key.hash & event->mask);
}

/* Checks that the next event is of any key; of that key; or that there is none. */
static void assert_any(hf_store *st)
{
    hf_key_event event;
    assert_int_equal(drv->caps.local->next_event(st, 0, &event), 1);
    assert_memory_equal(&event, &any, sizeof any);
}

static void assert_key(hf_store *st, const char *text)
{
    hf_key_event event;
    assert_int_equal(drv->caps.local->next_event(st, 0, &event), 1);
    assert_true(is(&event, text));
}

static void assert_none(hf_store *st)
{
    hf_key_event event;
    assert_int_equal(drv->caps.local->next_event(st, 0, &event), 0);
}

static uint64_t session_of(hf_store *st)
{
    uint64_t session;
    hf_error err;
    assert_int_equal(drv->caps.liveness->session(st, &session, &err), 0);
    return session;
}

/* Writes by `st` a row that is held, and in which a session waits by that wakeup. */
static void has_a_waiter(hf_store *st, const char *text, uint64_t session, uint8_t wakeup)
{
    hf_row row;
    hf_row_init(&row);
    fill_row(&row, 5, 1, 1);
    row.party[1].session = session;
    row.party[1].wakeup = wakeup;
    assert_int_equal(replace(st, text, 0, &row, NULL), 0);
    hf_row_clear(&row);
}

static void hand_over(hf_store *st, const char *text)
{
    hf_row row;
    hf_row_init(&row);
    get(st, text, &row);
    uint64_t seen = row.rev;
    hf_party_copy(&row.party[0], &row.party[1]);
    row.n_queue = 0;
    row.party[0].token = row.token = ++row.rev;
    row.party[0].flags = HF_PARTY_UNCLAIMED;
    assert_int_equal(replace(st, text, seen, &row, NULL), 0);
    hf_row_clear(&row);
}

static void of_many_the_key_is_told(void **state)
{
    (void)state;
    hf_store *st = open_store(), *other = open_store();
    listen_for(st, MANY);
    assert_any(st); /* events before that weren't marked */
    assert_none(st);
    has_a_waiter(other, "a", session_of(st), 0);
    has_a_waiter(other, "b", session_of(st), 0);
    has_a_waiter(other, "own", session_of(st), 3);
    assert_none(st);
    hand_over(other, "b");
    assert_key(st, "b");
    assert_none(st);
    hand_over(other, "own"); /* a wakeup of its own */
    assert_none(st);
    hand_over(other, "a");
    assert_key(st, "a");
    assert_none(st);
    drv->close(st);
    drv->close(other);
}

static void of_few_any_may_be_meant(void **state)
{
    (void)state;
    hf_store *st = open_store(), *other = open_store();
    listen_for(st, HF_MARKS_FROM - 1);
    has_a_waiter(other, "a", session_of(st), 0);
    assert_none(st);
    hand_over(other, "a");
    assert_any(st);
    assert_none(st);
    drv->close(st);
    drv->close(other);
}

/* A process that takes the dead one's bucket lock wakes again, and marks. */
static void what_the_dead_granted_is_marked(void **state)
{
    (void)state;
    hf_store *st = open_store(), *other = open_store();
    hf_row row;
    int status;
    hf_row_init(&row);
    has_a_waiter(other, "a", session_of(st), 0);
    hand_over(other, "a"); /* before the marks were made, as if there had been no debt */
    listen_for(st, MANY);
    assert_any(st);
    assert_none(st);
    pid_t child = fork();
    if (!child) {
        hf_store *own = open_store();
        struct hf__client *c = hf__client_of(own);
        hf_rowkey key = key_of("a");
        if (!hf__trylock(c, &hf__bucket_at(c, key.hash)->lock)) _exit(1);
        kill(getpid(), SIGKILL);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    get(other, "a", &row);
    assert_key(st, "a");
    assert_none(st);
    hf_row_clear(&row);
    drv->close(st);
    drv->close(other);
}

static struct hf__slot *slot_of(hf_store *st)
{
    return hf__slot_at(hf__client_of(st), (uint32_t)(session_of(st) & 0xffff));
}

/* A link that is damaged leads nowhere: then any key may be meant. */
static void a_damaged_link_is_not_followed(void **state)
{
    (void)state;
    hf_store *st = open_store(), *other = open_store();
    listen_for(st, MANY);
    assert_any(st);
    has_a_waiter(other, "a", session_of(st), 0);
    has_a_waiter(other, "b", session_of(st), 0);
    uint64_t link = slot_of(st)->marks;
    static const uint64_t bad[] = {1, UINT64_C(1) << 60};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        slot_of(st)->marks = i ? hf__seal(bad[i] >> 24) : link ^ bad[i];
        hand_over(other, i ? "b" : "a");
        assert_any(st);
        assert_none(st);
    }
    /* Only the granting process saw the damage. */
    slot_of(st)->marks = link ^ 1;
    has_a_waiter(other, "c", session_of(st), 0);
    hand_over(other, "c");
    slot_of(st)->marks = link;
    assert_any(st);
    assert_none(st);
    drv->close(st);
    drv->close(other);
}

/* The next session in the slot has the marks of the one before. */
static void a_slot_keeps_its_marks(void **state)
{
    (void)state;
    hf_store *st = open_store();
    listen_for(st, MANY);
    uint32_t slot = (uint32_t)(session_of(st) & 0xffff);
    uint64_t link = slot_of(st)->marks;
    assert_true(link != 0);
    drv->close(st);
    st = open_store();
    struct hf__slot *s = hf__slot_at(hf__client_of(st), slot);
    assert_int_equal(s->marks, link);
    const struct hf__op op = {hf__client_of(st), "test", NULL, NULL};
    assert_int_equal(hf__marks_room(&op, s), 0);
    assert_int_equal(s->marks, link);
    drv->close(st);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup(f, new_path)
    static const struct CMUnitTest tests[] = {
        CASE(of_many_the_key_is_told),         CASE(of_few_any_may_be_meant),
        CASE(what_the_dead_granted_is_marked), CASE(a_damaged_link_is_not_followed),
        CASE(a_slot_keeps_its_marks),
    };
    return TEST_MAIN_WITH(tests, make_dir, remove_dir);
}
