/*
 * addresses.h - addressed notifications, for stores that notify by channels. A waiter in the queue
 * is notified at an address of its handle, and only of writes that concern it: of a thousand
 * waiters a handover wakes two. Compiled into each module that uses it.
 *
 * An address is the first half of a request's id, in hex. All requests of a handle have it in
 * common, but for those whose id the caller has chosen.
 *
 * Thread safety: none of its own; a caller protects what it passes.
 */
#ifndef HF_ADDRESSES_H
#define HF_ADDRESSES_H

#include "holdfast_driver.h"

enum { HF_ADDRESS = 16, HF_ADDRESSES_CAP = (HF_ADDRESS + 1) * 258 };

/* Writes the address of the request `id`, with a NUL. */
void hf__put_address(char to[HF_ADDRESS + 1], const uint8_t id[16]);

/* Returns 1 if a write of this row concerns the party at index i. It concerns a waiter that was
   granted the key, the first waiter, and the only holder while a request waits, because that holder
   can hand over without a read. It doesn't concern the waiters behind. */
int hf__concerns(const hf_row *row, uint32_t i);
/* Writes the addresses of the parties that the write concerns, each with a space behind it. */
void hf__put_addresses(char to[HF_ADDRESSES_CAP], const hf_row *row);

#endif
