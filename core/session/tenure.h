/*
 * tenure.h - sessions that end by themselves unless they are kept.
 */
#ifndef HF_TENURE_H
#define HF_TENURE_H

#include "holdfast_driver.h"

struct hf_entry;
struct hf_tenure;
struct hf_wait;

int hf__tenure_have(hf *h, uint32_t lease_ms, int own, struct hf_tenure **at, hf_error *err);
int hf__tenure_keep(hf *h, struct hf_tenure *t, hf_error *err);
void hf__tenure_put(hf *h, struct hf_tenure *t);
struct hf_tenure *hf__tenure_adopt(hf *h, const hf_party *p, int64_t sent_us, int64_t ms);
void hf__tenure_begins(hf *h, struct hf_tenure *t, int64_t asked_us);
int hf__tenure_kept(const hf *h, uint64_t session); /* one of ours, for whoever needs it */
int64_t hf__tenure_until(const hf_lock *lock);
int hf__tenure_keeper(hf_lock *lock, struct hf_tenure **ret, hf_error *err);
int hf__tenure_renew(hf_lock *lock, uint32_t lease_ms, int by_hand, hf_row *row, hf_error *err);
void hf__tenure_tend(hf *h, struct hf_tenure *t);
int64_t hf__tenures_tend(hf *h);
void hf__tenures_doubt(hf *h, struct hf_wait *w);
void hf__regret(hf *h, struct hf_entry *e, const uint8_t id[16]);
void hf__tenures_close(hf *h, int away);

#endif
