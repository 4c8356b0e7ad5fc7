/*
 * addresses.c - see addresses.h.
 */
#include "addresses.h"

#include "kit/text.h"

#include <stdlib.h>
#include <string.h>

enum { SPARE = 64 }; /* who waits again soon needn't ask for it again */

void hf__put_address(char to[HF_ADDRESS + 1], const uint8_t id[16])
{
    char whole[33];
    hf__put_id(whole, id);
    memcpy(to, whole, HF_ADDRESS);
    to[HF_ADDRESS] = 0;
}

int hf__concerns(const hf_row *row, uint32_t i)
{
    if (i >= row->n_holders) return i == row->n_holders && row->n_queue;
    return (row->n_holders == 1 && row->n_queue) || row->party[i].flags & HF_PARTY_UNCLAIMED;
}

void hf__put_addresses(char to[HF_ADDRESSES_CAP], const hf_row *row)
{
    uint32_t n = row->n_holders + (row->n_queue != 0);
    for (uint32_t i = 0; i < n && i < HF_ADDRESSES_CAP / (HF_ADDRESS + 1) - 1; i++) {
        if (!hf__concerns(row, i)) continue;
        hf__put_address(to, row->party[i].id);
        to[HF_ADDRESS] = ' ';
        to += HF_ADDRESS + 1;
    }
    *to = 0;
}

void hf__addresses_begin(struct hf__addresses *all)
{
    for (size_t i = 0; i < all->n; i++) all->at[i].wanted = 0;
}

int hf__address_want(struct hf__addresses *all, const uint8_t who[16])
{
    struct hf__address a = {.wanted = 1};
    hf__put_address(a.text, who);
    for (size_t n = 0; n < all->n; n++) {
        size_t i = (all->found + n) % all->n;
        if (memcmp(all->at[i].text, a.text, HF_ADDRESS) != 0) continue;
        all->at[i].wanted = 1;
        all->found = i;
        return 0;
    }
    struct hf__address *more = realloc(all->at, (all->n + 1) * sizeof *more);
    if (!more) return HF_NOMEM;
    all->at = more;
    all->at[all->n++] = a;
    return 0;
}

size_t hf__addresses_end(struct hf__addresses *all)
{
    size_t wanted = 0, before = all->n, kept = 0;
    for (size_t i = 0; i < before; i++) wanted += all->at[i].wanted;
    if (before <= wanted + SPARE) return 0;
    for (size_t i = 0; i < before; i++) {
        if (!all->at[i].wanted) continue;
        struct hf__address a = all->at[i];
        all->at[i] = all->at[kept];
        all->at[kept++] = a;
    }
    all->n = kept;
    return before - kept;
}

void hf__addresses_clear(struct hf__addresses *all)
{
    free(all->at);
    memset(all, 0, sizeof *all);
}
