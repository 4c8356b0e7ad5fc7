/*
 * addresses.c - see addresses.h.
 */
#include "addresses.h"

#include "kit/text.h"

#include <string.h>

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
