/*
 * competitor.h - one of many processes that want a key; bench/contend/measure starts them and does
 * the sums. Told by lines on its standard input, it answers by lines:
 *
 *                                                ready
 *     take KEY                                   had NS             when it had it
 *     give                                       gave NS            just before it gave it up
 *     loop KEY START END HOLD SPREAD ME FILE     ASKED HAD GAVE     for each time that it had it;
 *                                                end                GAVE is 0 if it lost it
 *
 * It ends at the end of its input.
 *
 * From START to END it wants the key again and again, and keeps it for HOLD and up to SPREAD more;
 * all in ns by CLOCK_MONOTONIC. FILE "-": it wants it again at once. Else it gives it only when
 * another one is waiting (has been, for HOLD), and doesn't want it again before another one has had
 * it: then the key changes hands each time, to a competitor that was asleep. In FILE byte ME is 1
 * while it wants it, and byte LAST is the number of the last holder. competitor.py, competitor.js
 * and go/contend.go do the same.
 */
#ifndef BENCH_COMPETITOR_H
#define BENCH_COMPETITOR_H

struct competitor {
    const char *name;
    /* Leases of so long, 0: as the library has it. */
    void (*open)(const char *where, long lease_ms);
    void (*take)(const char *key); /* waits */
    int (*give)(void);             /* 0: it was its own until then */
};
extern const struct competitor holdfast_competitor;
/* flock(2), fcntl's locks, a robust mutex, and a queue of futexes; NULL at the end. `where` is a
   directory. */
extern const struct competitor *const local_competitors[];

/* Obeys until the end of its input. */
int compete(const struct competitor *as, const char *where, long lease_ms);

#endif
