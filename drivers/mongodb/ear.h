/*
 * ear.h - mongodb: who waits is woken by a change stream. See doc/stores/mongodb.md.
 */
#ifndef HF_MONGODB_EAR_H
#define HF_MONGODB_EAR_H

#include "link.h"

typedef struct hf__mg_ear hf__mg_ear;

/* NULL: out of memory. */
hf__mg_ear *hf__mg_ear_new(const hf_url *url, int64_t io_timeout_ms);
void hf__mg_ear_free(hf__mg_ear *ear);
/* As hf_driver has them. */
int hf__mg_subscribe(hf__mg_ear *ear, const hf_rowkey *key);
void hf__mg_unsubscribe(hf__mg_ear *ear, const hf_rowkey *key);
int hf__mg_next_event(hf__mg_ear *ear, hf_key_event *ret);
int hf__mg_flush(hf__mg_ear *ear, hf_event_count *ret, hf_error *err);
int hf__mg_sleep(hf__mg_ear *ear, const hf_event_count *since, int64_t until_us, hf_error *err);
int hf__mg_payload(hf__mg_ear *ear, const hf_rowkey *key, hf_row *row);
void hf__mg_interrupt(hf__mg_ear *ear);

#endif
