/*
 * notify.c - sqlite: notices that the database has changed. A second connection polls data_version,
 * a number that changes with each commit of another connection; that takes some microseconds. It
 * polls often at first, then every 20 ms. If all waits of the handle are far back in their queues,
 * it polls more rarely: otherwise hundreds of waiters that look after each commit would keep the
 * holder from the processor. The number doesn't say which key has changed, so an event is about all
 * keys.
 */
#include "kit/await.h"
#include "kit/text.h"
#include "store.h"

#include <string.h>

enum { FASTEST_LOOK_MS = 2, SLOWEST_LOOK_MS = 20 };
/* A waiter far back pauses for 1 ms per so many bytes of the queue that stand before it. A waiter
   takes about 300 bytes there, so that is less time than the waiters ahead need to get the key in
   turn. The longest pause is that of a store without notifications. */
enum { AHEAD_PER_MS = 128, FAR_LOOK_MOST_MS = 100 };

/* Reads a number that changes when another connection commits. Takes some microseconds. */
static int read_version(hf_store *st, uint64_t *ret)
{
    pthread_mutex_lock(&st->version_mu);
    int sq = SQLITE_OK;
    if (!st->version_db) {
        hf_low_hold();
        sq = sqlite3_open_v2(st->path, &st->version_db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX,
                             NULL);
        if (!sq) sq = sqlite3_busy_timeout(st->version_db, (int)st->io_timeout_ms);
        if (!sq)
            sq = sqlite3_prepare_v2(st->version_db, "PRAGMA data_version", -1, &st->version, NULL);
        if (sq) {
            sqlite3_close(st->version_db);
            st->version_db = NULL;
        }
        /* The first step opens the WAL file, whose descriptor has to be made under hf_low_hold,
           too. */
        if (!sq) sqlite3_step(st->version), sqlite3_reset(st->version);
        hf_low_free();
    }
    if (!sq) {
        sq = sqlite3_step(st->version);
        if (sq == SQLITE_ROW) *ret = (uint64_t)sqlite3_column_int64(st->version, 0);
        sqlite3_reset(st->version);
        sq = sq == SQLITE_ROW ? SQLITE_OK : sq == SQLITE_DONE ? SQLITE_ERROR : sq;
    }
    pthread_mutex_unlock(&st->version_mu);
    return sq;
}

/* Returns how often the database was opened again. A number of data_version means nothing to
   another connection, so a new connection is an event, too. */
static uint64_t openings(hf_store *st)
{
    pthread_mutex_lock(&st->version_mu);
    uint64_t n = st->openings;
    pthread_mutex_unlock(&st->version_mu);
    return n;
}

/* Returns 1, once, if the files or locks have changed. That is an event: a wait has to look, and
   its read opens the database again. */
static int files_changed(hf_store *st)
{
    pthread_mutex_lock(&st->version_mu);
    int changed = st->files.settled && !st->told_change && hf__sq_files_changed(st, NULL);
    if (changed) st->told_change = 1;
    pthread_mutex_unlock(&st->version_mu);
    st->any_event |= changed;
    return changed;
}

static int unreadable(int sq, hf_error *err)
{
    return hf_fail(err, HF_UNAVAILABLE, 0,
                   "sqlite: subscribe to notifications: cannot read data_version: %s; waiters poll "
                   "meanwhile",
                   sq ? sqlite3_errstr(sq) : "the descriptor that wakes the waiters is gone");
}

static int flush(hf_store *st, hf_event_count *ret, hf_error *err)
{
    ret->n[1] = openings(st);
    int sq = read_version(st, &ret->n[0]);
    if (sq) return unreadable(sq, err);
    st->any_event |= memcmp(ret, &st->flushed, sizeof *ret) != 0;
    st->flushed = *ret;
    return 0;
}

/* Does nothing: data_version counts the commits of the whole database, so every key has a
   subscription. */
static int subscribe(hf_store *st, const hf_rowkey *key)
{
    (void)st, (void)key;
    return 0;
}

static void unsubscribe(hf_store *st, const hf_rowkey *key) { (void)st, (void)key; }

static int next_event(hf_store *st, hf_key_event *ret)
{
    int is = st->any_event;
    *ret = (hf_key_event){0, 0};
    st->any_event = 0;
    if (is) __atomic_store_n(&st->ahead, INT64_MAX, __ATOMIC_RELAXED); /* all waits look now */
    return is;
}

/* Returns the longest pause between two polls. */
static int64_t longest_pause_ms(const hf_store *st)
{
    int64_t ahead = __atomic_load_n(&st->ahead, __ATOMIC_RELAXED), ms = ahead / AHEAD_PER_MS;
    if (ahead == INT64_MAX || ms < SLOWEST_LOOK_MS) return SLOWEST_LOOK_MS;
    return ms < FAR_LOOK_MOST_MS ? ms : FAR_LOOK_MOST_MS;
}

static int sleep_until(hf_store *st, const hf_event_count *since, int64_t until_us, hf_error *err)
{
    struct pollfd wake = {st->wake_fd, POLLIN, 0};
    int64_t most_ms = longest_pause_ms(st);
    int64_t pause_ms = most_ms > SLOWEST_LOOK_MS ? most_ms : FASTEST_LOOK_MS;
    for (;;) {
        uint64_t version;
        if (files_changed(st)) return 0;
        int sq = read_version(st, &version);
        if (sq) return unreadable(sq, err);
        int64_t now_us = hf__local_us(), look_us = now_us + pause_ms * 1000;
        if (version != since->n[0] || openings(st) != since->n[1] || until_us <= now_us) return 0;
        int woken = hf__wait_until(&wake, 1, look_us < until_us ? look_us : until_us);
        if (woken > 0) return hf__woken(st->wake_fd) ? 0 : unreadable(0, err);
        if (pause_ms < most_ms) pause_ms += 2;
    }
}

/* Notes how many bytes of the queue stand before a wait that looks; 0 if that isn't known. */
static void note_ahead(hf_store *st, int64_t ahead)
{
    if (ahead < __atomic_load_n(&st->ahead, __ATOMIC_RELAXED))
        __atomic_store_n(&st->ahead, ahead, __ATOMIC_RELAXED);
}

/* Reads the row without its queue. A crowd of waiters looks whenever one of them has written, and
   most of them find that another one still has the key. To decode the whole queue, too, would cost
   each of them a time that grows with the crowd. Returns 0 instead of waiting, and for a row that
   has to be read as a whole. */
static int payload(hf_store *st, const hf_rowkey *key, hf_row *row)
{
    char id[33];
    int64_t ahead = 0;
    int one = 0;
    hf_row_clear(row);
    if (!key->who || !key->in_line || pthread_mutex_trylock(&st->mu)) {
        note_ahead(st, 0);
        return 0;
    }
    sqlite3_stmt *s = st->db ? st->stmt[SQ_HOLDER] : NULL;
    st->if_busy = SQ_FAILS;
    if (s) {
        hf__put_id(id, key->who);
        hf__sq_bind_text(s, 1, key->text, key->len);
        hf__sq_bind_text(s, 2, id, sizeof id - 1);
        one = sqlite3_step(s) == SQLITE_ROW &&
              !hf__sq_decode(st, s, 0, row, "get", key->text, NULL) && row->n_holders == 1 &&
              !row->done_us;
        if (one) ahead = sqlite3_column_int64(s, HF_FIELDS); /* 0: it isn't in the queue */
        sqlite3_reset(s);
    }
    st->if_busy = SQ_RETRIES;
    one = one && !hf__sq_files_changed(st, &st->names_seen);
    pthread_mutex_unlock(&st->mu);
    row->rev = 0; /* it isn't the whole row */
    if (!one) hf_row_clear(row);
    note_ahead(st, one ? ahead : 0);
    return one;
}

static void interrupt(hf_store *st) { hf__wake(st->wake_fd); }

const hf_notify_ops hf__sq_notify = {.subscribe = subscribe,
                                     .unsubscribe = unsubscribe,
                                     .flush = flush,
                                     .sleep = sleep_until,
                                     .next_event = next_event,
                                     .payload = payload,
                                     .interrupt = interrupt};
