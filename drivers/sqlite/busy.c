/*
 * busy.c - sqlite: waits while another client has the database locked. See store.h.
 *
 * SQLite has no queue for its locks: a client that finds the database locked sleeps, and tries
 * again. SQLite's own busy handler (sqlite3_busy_timeout) sleeps longer with each try, up to 100
 * ms. So the client that has waited longest tries least often. Among a crowd of newcomers, which
 * have waited for a short time only, a holder wouldn't get its release through for seconds.
 *
 * Here newcomers give way instead. A release, a renewal, a claim and whatever else is not a
 * newcomer's tries again about every millisecond. A newcomer, which only asks for the key or opens
 * the database, pauses for about an eighth of the time that it has waited, 0.8 s at most. So the
 * more newcomers there are, the more of the time the database isn't locked. Only what a newcomer
 * rarely does before its write isn't slowed down: the read of the clock (learn_ceiling in rows.c),
 * once in a handle's life, and raising the ceiling of revs.
 *
 * A newcomer pauses without st->mu, so that the other requests of its handle go on meanwhile. Only
 * an opening pauses with it: nothing else uses the handle yet.
 */
#include "os.h"
#include "store.h"

enum { SOON_US = 1000, WAITED_SHARE = 8, LONGEST_US = 800000 };

int hf__sq_pause(const hf_store *st, int64_t since_us, int makes_way)
{
    int64_t waited_us = hf__local_us() - since_us, us = SOON_US;
    int64_t left_us = st->io_timeout_ms * 1000 - waited_us;
    uint32_t dice;
    if (left_us <= 0) return 0;
    if (makes_way && waited_us / WAITED_SHARE > us) us = waited_us / WAITED_SHARE;
    if (us > LONGEST_US) us = LONGEST_US;
    hf__random(&dice, sizeof dice);
    us = us / 2 + (int64_t)((uint64_t)us * dice >> 32);
    if (us > left_us) us = left_us;
    struct timespec pause = {us / 1000000, us % 1000000 * 1000};
    nanosleep(&pause, NULL);
    return 1;
}

int hf__sq_wait(hf_store *st, enum hf__sq_if_busy how, int nth)
{
    if (how == SQ_FAILS) return 0;
    if (!nth) st->busy_since_us = hf__local_us();
    return hf__sq_pause(st, st->busy_since_us, how == SQ_MAKES_WAY);
}

/* A busy handler of SQLite's. */
static int handle_busy(void *arg, int nth)
{
    hf_store *st = arg;
    st->may_wait = 1;
    return hf__sq_wait(st, st->if_busy, nth);
}

void hf__sq_wait_if_busy(hf_store *st) { sqlite3_busy_handler(st->db, handle_busy, st); }
