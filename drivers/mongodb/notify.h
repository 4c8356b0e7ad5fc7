/*
 * notify.h - mongodb: notifications, by a change stream. See doc/stores/mongodb.md.
 */
#ifndef HF_MONGODB_NOTIFY_H
#define HF_MONGODB_NOTIFY_H

#include "link.h"

typedef struct hf__mg_listener hf__mg_listener;

/* Makes a listener. NULL: out of memory. */
hf__mg_listener *hf__mg_listener_new(const hf_url *url, int64_t io_timeout_ms);
void hf__mg_listener_free(hf__mg_listener *listener);
/* As hf_notify_ops has them. */
int hf__mg_subscribe(hf__mg_listener *listener, const hf_rowkey *key);
void hf__mg_unsubscribe(hf__mg_listener *listener, const hf_rowkey *key);
int hf__mg_next_event(hf__mg_listener *listener, hf_key_event *ret);
int hf__mg_flush(hf__mg_listener *listener, hf_event_count *ret, hf_error *err);
int hf__mg_sleep(hf__mg_listener *listener, const hf_event_count *since, int64_t until_us,
                 hf_error *err);
int hf__mg_payload(hf__mg_listener *listener, const hf_rowkey *key, hf_row *row);
void hf__mg_interrupt(hf__mg_listener *listener);

#endif
