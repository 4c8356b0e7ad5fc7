/*
 * explore_search.c - all the choices, depth first, without repeating what is known.
 *
 * An execution is a list of choices: which being goes on, which dies where. The next execution
 * repeats all but the last of them that can still be made differently. A state that was met before
 * (with the same numbers of preemptions and deaths left) needs no second look: everything that can
 * follow from it has been looked at, or will be when the first one's choices are taken up again.
 */
#include "explore.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { CHOICES_CAP = 1 << 16, SEEN_BITS = 23, WAYS = 4, ENDS_BITS = 20 };

static struct choice {
    uint8_t chosen, of;
} choices[CHOICES_CAP];
static int depth, known; /* choices made in this execution; to be repeated from the last one */
static int fixed, seen_bits;
static uint64_t *ends, n_ends, sum_of_ends;
static uint64_t *seen; /* of a full set the oldest is forgotten: that costs time, not soundness */

int v_seen_before(uint64_t (*hash)(void))
{
    /* What is being repeated was seen, by the execution that it repeats. */
    if (!seen || depth < known) return 0;
    uint64_t state = hash();
    uint64_t *set = seen + (state >> (64 - seen_bits)) / WAYS * WAYS;
    state |= 1;
    for (int i = 0; i < WAYS; i++) {
        if (set[i] == state) return 1;
        if (set[i]) continue;
        set[i] = state;
        return 0;
    }
    set[(state >> 8) % WAYS] = state;
    return 0;
}

int v_choose(int n, uint64_t (*state)(void), int *ret_known)
{
    *ret_known = 0;
    if (n <= 1) return 0;
    if (depth == CHOICES_CAP) abort();
    if (depth == known) {
        if (v_seen_before(state)) {
            *ret_known = 1;
            return 0;
        }
        choices[known++] = (struct choice){0, (uint8_t)n};
    } else if (choices[depth].of && choices[depth].of != n) {
        fprintf(stderr, "explore: an execution can't be repeated: choice %d has %d ways, had %d\n",
                depth, n, choices[depth].of);
        abort();
    }
    choices[depth].of = (uint8_t)n;
    if (choices[depth].chosen >= n) {
        fprintf(stderr, "explore: choice %d has only %d ways\n", depth, n);
        exit(64);
    }
    return choices[depth++].chosen;
}

void v_search_note(uint64_t outcome)
{
    if (!ends) return;
    for (uint64_t i = outcome |= 1;; i++) {
        uint64_t *at = &ends[i & ((UINT64_C(1) << ENDS_BITS) - 1)];
        if (*at == outcome) return;
        if (*at) continue;
        *at = outcome;
        n_ends++;
        sum_of_ends += outcome;
        if (n_ends >> (ENDS_BITS - 1)) abort(); /* too many to count */
        return;
    }
}

uint64_t v_search_ends(uint64_t *ret_sum)
{
    *ret_sum = sum_of_ends;
    return n_ends;
}

static void *zeroed(void *table, size_t all, size_t used)
{
    if (!table) {
        table = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (table == MAP_FAILED) abort();
        madvise(table, all, MADV_HUGEPAGE); /* where there are any; else it is slower */
    }
    return memset(table, 0, used);
}

void v_search_begin(int first, int pruned, int difficulty)
{
    static uint64_t *seen_table, *ends_table;
    depth = known = fixed = 0;
    if (first >= 0) {
        choices[0] = (struct choice){(uint8_t)first, 0};
        known = fixed = 1;
    }
    seen_bits = difficulty > 2 ? SEEN_BITS : 14 + 4 * difficulty;
    size_t size = sizeof *seen << SEEN_BITS;
    if (pruned) seen_table = zeroed(seen_table, size, sizeof *seen << seen_bits);
    seen = pruned ? seen_table : NULL;
    ends = ends_table = zeroed(ends_table, sizeof *ends << ENDS_BITS, sizeof *ends << ENDS_BITS);
    n_ends = sum_of_ends = 0;
}

int v_search_next(void)
{
    known = depth;
    while (known > fixed && choices[known - 1].chosen + 1 == choices[known - 1].of) known--;
    if (known <= fixed) return 0;
    choices[known - 1].chosen++;
    depth = 0;
    return 1;
}

/* "3=1,17=4": which choices weren't the first. */
void v_search_print(char *to, size_t cap)
{
    size_t n = 0;
    to[0] = 0;
    for (int i = 0; i < depth && n < cap; i++)
        if (choices[i].chosen)
            n += (size_t)snprintf(to + n, cap - n, "%s%d=%d", n ? "," : "", i, choices[i].chosen);
}

int v_search_replay(const char *from)
{
    memset(choices, 0, sizeof choices);
    depth = 0;
    known = CHOICES_CAP;
    while (*from) {
        char *end;
        long i = strtol(from, &end, 10);
        if (end == from || *end != '=' || i < 0 || i >= CHOICES_CAP) return 0;
        from = end + 1;
        long c = strtol(from, &end, 10);
        if (end == from || (*end && *end != ',') || c < 0 || c > 99) return 0;
        choices[i].chosen = (uint8_t)c;
        from = end + (*end == ',');
    }
    return 1;
}
