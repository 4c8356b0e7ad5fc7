/*
 * notify.c - the conformance suite: checks of notifications (hf_notify_ops). See conform.h. (race.c
 * checks that a waiter is notified in time, whatever it does meanwhile.)
 */
#include "conform.h"

#include "os.h"
#include "race.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { KEYS = 40, PATIENCE_MS = 20000, PROMPT_MS = 4000, SHORT_MS = 50, EVENTS_MOST = 10000 };

/* A handle that subscribes; the suite's own handle writes. */
struct subscriber {
    struct hf__con con;
    const hf_notify_ops *ops;
    const char *check; /* a part of the names of its keys */
    uint64_t session;  /* the session of its parties; 1 if the store has no sessions */
    hf_event_count seen;
    char text[KEYS][HF_KEY_CAP];
    hf_rowkey key[KEYS];
    uint8_t id[KEYS][16];
    int notified[KEYS];
};

static const char *begin(struct hf__suite *cfm, struct subscriber *s)
{
    hf_error err = {0, 0, ""};
    int64_t left_ms, clock;
    memset(s, 0, sizeof *s);
    s->session = 1;
    HF_CHECK(!hf__con_open(cfm, &s->con, &err), "open: %s", hf__why(cfm, &err));
    s->ops = s->con.caps.notify;
    const hf_session_ops *sessions = s->con.caps.sessions;
    const hf_liveness_ops *liveness = s->con.caps.liveness;
    int rc = 0;
    if (liveness) rc = liveness->session(s->con.st, &s->session, &err);
    if (sessions) rc = sessions->make(s->con.st, 60000, &s->session, &left_ms, &clock, &err);
    HF_CHECK(!rc, "session: %s", hf__why(cfm, &err));
    return NULL;
}

static const char *end(struct subscriber *s, const char *why)
{
    const hf_session_ops *sessions = s->con.caps.sessions;
    if (s->con.st && sessions) (void)sessions->end(s->con.st, s->session, NULL);
    if (s->con.st) hf__con_close(&s->con);
    return why;
}

/* Writes a row by the subscriber's handle, in which one party of it holds the key, and one waits.
 */
static const char *make_row(struct hf__suite *cfm, struct subscriber *s, int i)
{
    char name[32];
    hf_error err = {0, 0, ""};
    hf_row row;
    snprintf(name, sizeof name, "notify/%s/%d", s->check, i);
    s->key[i] = hf__con_key(cfm, s->text[i], name);
    hf_row_init(&row);
    row.n_holders = row.n_queue = 1;
    row.party[0] = hf__con_party(s->session, 100);
    row.party[1] = hf__con_party(s->session, 200 + (uint32_t)i);
    memcpy(s->id[i], row.party[1].id, 16);
    int rc = hf__con_create(&s->con, &s->key[i], &row, &err);
    hf_row_clear(&row);
    HF_CHECK(!rc, "%s", hf__why(cfm, &err));
    return NULL;
}

/* Grants the key to the waiter. */
static const char *grant(struct hf__suite *cfm, struct subscriber *s, int i)
{
    hf_row row;
    hf_row_init(&row);
    int rc = hf__con_get(cfm, &s->key[i], &row);
    uint64_t seen = row.rev++;
    if (!rc) {
        hf_party_copy(&row.party[0], &row.party[1]);
        row.n_queue = 0;
        row.token = row.party[0].token = row.rev;
        row.party[0].flags |= HF_PARTY_UNCLAIMED;
        rc = hf__con_replace(cfm, &s->key[i], seen, &row, NULL);
    }
    hf_row_clear(&row);
    return rc ? cfm->why : NULL;
}

static const char *remove_row(struct hf__suite *cfm, struct subscriber *s, int i)
{
    hf_row row;
    hf_row_init(&row);
    int rc = hf__con_get(cfm, &s->key[i], &row);
    if (!rc && row.rev) rc = hf__con_replace(cfm, &s->key[i], row.rev, NULL, NULL);
    hf_row_clear(&row);
    return rc ? cfm->why : NULL;
}

static const char *subscribe(struct hf__suite *cfm, struct subscriber *s, int i, int queued)
{
    s->key[i].who = queued ? s->id[i] : NULL;
    s->key[i].in_line = queued;
    HF_CHECK(!s->ops->subscribe(s->con.st, &s->key[i]), "subscribe: out of memory");
    return NULL;
}

/* Takes the events that are pending; `count`: notes the keys that they name. */
static const char *take_events(struct hf__suite *cfm, struct subscriber *s, int count)
{
    hf_key_event event;
    int n = 0;
    for (; n < EVENTS_MOST && s->ops->next_event(s->con.st, &event); n++)
        for (int i = 0; i < KEYS && count; i++)
            s->notified[i] |= !((s->key[i].hash ^ event.hash) & event.mask);
    HF_CHECK(n < EVENTS_MOST, "next_event names events without end");
    return NULL;
}

static const char *flush(struct hf__suite *cfm, struct subscriber *s, int count)
{
    hf_error err = {0, 0, ""};
    HF_CHECK(!s->ops->flush(s->con.st, &s->seen, &err), "flush: %s", hf__why(cfm, &err));
    return take_events(cfm, s, count);
}

/* Sleeps and takes events until an event has named each of the n keys from `first` on. */
static const char *await_events(struct hf__suite *cfm, struct subscriber *s, int first, int n)
{
    hf_error err = {0, 0, ""};
    const char *why = NULL;
    int missing = 0;
    for (int64_t until = hf__local_us() + PATIENCE_MS * INT64_C(1000); !why;) {
        for (missing = 0; missing < n && s->notified[first + missing]; missing++) continue;
        if (missing == n) return NULL;
        if (hf__local_us() >= until) break;
        HF_CHECK(s->ops->sleep(s->con.st, &s->seen, until, &err) >= 0, "sleep: %s",
                 hf__why(cfm, &err));
        why = flush(cfm, s, 1);
    }
    return why ? why : hf__bad(cfm, "no event of key %d of %d came", missing, n);
}

/* ---- the rules ---- */

/* How a key is subscribed to: for a request outside the queue; for one in the queue; first outside,
   then in the queue; again after an unsubscribe. */
enum way { PLAIN, QUEUED, QUEUED_LATER, AGAIN, WAYS };

/* Subscribes to key number `way` in that way. */
static const char *subscribe_by(struct hf__suite *cfm, struct subscriber *s, int way)
{
    const char *why = subscribe(cfm, s, way, way == QUEUED);
    if (!why && way >= QUEUED_LATER) why = flush(cfm, s, 0);
    if (!why && way == AGAIN) {
        s->ops->unsubscribe(s->con.st, &s->key[way]);
        why = flush(cfm, s, 0);
    }
    return !why && way >= QUEUED_LATER ? subscribe(cfm, s, way, way == QUEUED_LATER) : why;
}

static const char *play_ways(struct hf__suite *cfm, struct subscriber *s)
{
    const char *why = NULL;
    for (int way = PLAIN; way < WAYS && !why; way++) {
        why = make_row(cfm, s, way);
        if (why) return why;
        why = subscribe_by(cfm, s, way);
        if (!why) why = flush(cfm, s, 0);
        if (!why) why = grant(cfm, s, way);
        if (!why) why = await_events(cfm, s, way, 1);
        if (why) return hf__bad(cfm, "subscribed in way %d: %s", way, why);
        s->ops->unsubscribe(s->con.st, &s->key[way]);
        why = remove_row(cfm, s, way);
    }
    return why;
}

/* Subscribes to all keys, changes all rows, and checks that each change is an event. (After a
   failure the end of the suite deletes the rows.) */
static const char *play_many(struct hf__suite *cfm, struct subscriber *s)
{
    const char *why = NULL;
    for (int i = 0; i < KEYS && !why; i++) {
        why = make_row(cfm, s, i);
        if (!why) why = subscribe(cfm, s, i, i % 2);
    }
    if (!why) why = flush(cfm, s, 0);
    for (int i = 0; i < KEYS && !why; i++) why = grant(cfm, s, i);
    if (!why) why = await_events(cfm, s, 0, KEYS);
    for (int i = 0; i < KEYS && !why; i++) {
        s->ops->unsubscribe(s->con.st, &s->key[i]);
        why = remove_row(cfm, s, i);
    }
    return why;
}

static void *interrupt_soon(void *arg)
{
    struct subscriber *s = arg;
    for (int i = 0; i < 200; i++) hf__race_nap();
    s->ops->interrupt(s->con.st);
    return NULL;
}

/* Checks three sleeps: one is interrupted before it begins, one by another thread, and one ends at
   its time limit. */
static const char *play_interrupts(struct hf__suite *cfm, struct subscriber *s)
{
    const char *why = make_row(cfm, s, 0);
    if (why) return why;
    why = subscribe(cfm, s, 0, 0);
    for (int how = 0; how < 3 && !why; how++) {
        hf_error err = {0, 0, ""};
        pthread_t thread;
        int64_t start = hf__local_us(), ms = how < 2 ? PATIENCE_MS : SHORT_MS;
        why = flush(cfm, s, 0);
        if (why) break;
        if (!how) s->ops->interrupt(s->con.st);
        int threads = how == 1 && !pthread_create(&thread, NULL, interrupt_soon, s);
        int rc = s->ops->sleep(s->con.st, &s->seen, start + ms * 1000, &err);
        int64_t took = hf__local_us() - start;
        if (threads) pthread_join(thread, NULL);
        if (rc < 0)
            why = hf__bad(cfm, "sleep: %s", hf__why(cfm, &err));
        else if (took > PROMPT_MS * INT64_C(1000))
            why = hf__bad(cfm, how < 2 ? "slept on although it was interrupted"
                                       : "slept on past its time limit");
    }
    s->ops->unsubscribe(s->con.st, &s->key[0]);
    const char *left = remove_row(cfm, s, 0);
    return why ? why : left;
}

static const char *with_subscriber(struct hf__suite *cfm, const char *check,
                                   const char *(*play)(struct hf__suite *cfm, struct subscriber *s))
{
    static struct subscriber s;
    const char *why = begin(cfm, &s);
    s.check = check;
    return end(&s, why ? why : play(cfm, &s));
}

static const char *subscribed(struct hf__suite *cfm)
{
    return with_subscriber(cfm, "ways", play_ways);
}
static const char *each_named(struct hf__suite *cfm)
{
    return with_subscriber(cfm, "many", play_many);
}
static const char *interrupted(struct hf__suite *cfm)
{
    return with_subscriber(cfm, "interrupts", play_interrupts);
}

void hf__conform_notify(struct hf__suite *cfm)
{
    static const struct hf__check checks[] = {
        {"a change of a subscribed key is an event", 0, subscribed},
        {"of many subscribed keys each change is an event", 0, each_named},
        {"a sleep for notifications can be interrupted", 0, interrupted}};
    if (cfm->caps.notify) hf__conform_run(cfm, checks, 3);
}
