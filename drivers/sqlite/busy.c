/*
 * busy.c - sqlite: waits while another client has the database locked. See store.h.
 *
 * SQLite has no queue for its locks: a client that finds the database locked sleeps, and tries
 * again. SQLite's own busy handler (sqlite3_busy_timeout) sleeps longer with each try, up to 100
 * ms. So the client that has waited longest tries least often. Among a crowd of newcomers, which
 * have waited for a short time only, a holder wouldn't get its release through for seconds.
 *
 * This handler makes newcomers give way instead. A release, a renewal, a claim and whatever else is
 * not a newcomer's tries again about every millisecond. A newcomer, which only asks for the key or
 * opens the database, tries ever more rarely, at random times, up to 0.8 s apart: so the more
 * newcomers there are, the more of the time the database isn't locked. It pauses for no longer than
 * it has waited already. A request that has failed, because its time was over, is followed by one
 * that goes on as rarely, until one has had its turn. Only what a newcomer rarely does before its
 * write isn't slowed down: the read of the clock (learn_ceiling in rows.c), once in a handle's
 * life, and raising the ceiling of revs.
 */
#include "os.h"
#include "store.h"

enum { SOON_US = 1000, NEWCOMER_DOUBLINGS = 9 };

int hf__sq_wait(hf_store *st, enum hf__sq_if_busy how, int nth)
{
    int64_t now_us = hf__local_us(), us = SOON_US;
    uint32_t dice;
    if (how == SQ_FAILS) return 0;
    if (!nth) st->busy_since_us = now_us;
    if (now_us - st->busy_since_us >= st->io_timeout_ms * 1000) return 0;
    if (how == SQ_MAKES_WAY) us <<= st->made_way;
    if (how == SQ_MAKES_WAY && st->made_way < NEWCOMER_DOUBLINGS) st->made_way++;
    hf__random(&dice, sizeof dice);
    us = us / 2 + (int64_t)((uint64_t)us * dice >> 32);
    struct timespec pause = {us / 1000000, us % 1000000 * 1000};
    nanosleep(&pause, NULL);
    return 1;
}

/* A busy handler of SQLite's. */
static int handle_busy(void *arg, int nth)
{
    hf_store *st = arg;
    st->may_wait = 1;
    return hf__sq_wait(st, st->if_busy, nth);
}

void hf__sq_wait_if_busy(hf_store *st) { sqlite3_busy_handler(st->db, handle_busy, st); }
