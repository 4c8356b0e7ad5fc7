/*
 * mem_tables.h - mem: the stores of this process by name, and their open handles.
 */
#ifndef HF_MEM_TABLES_H
#define HF_MEM_TABLES_H

#include "key_marks.h"
#include "mem_shard.h"

#include <pthread.h>

enum { WAKEUPS = 256, SLOT_BITS = 16 };

struct table {
    struct shard shard[SHARDS];
    struct table *next;
    char *name;
    uint32_t refs;
    pthread_mutex_t mu;     /* protects what follows; taken after a shard's lock, if both are
                               taken */
    struct hf_store **slot; /* the open handles; NULL: free */
    uint32_t slots;
};

struct hf_store {
    struct table *table;
    uint64_t session;
    unsigned fork_generation;
    int death_fd; /* becomes readable when a session ends; -1: not made. Under table->mu */
    struct hf__wakeup wakeup[WAKEUPS];
    /* The keys for which wakeup 0, which many waits share, was posted. NULL as long as there are
       few waits. Made under table->mu. */
    struct hf__key_marks *marks;
    struct hf__marked_wakeup shared_wakeup; /* wakeup 0, as the dispatcher has read it */
};

/* The store's clock is CLOCK_BOOTTIME plus this. Set when the first store is opened. */
extern int64_t hf__mm_day_offset_us;

/* mem_tables.c: open and close of the driver */
int hf__mm_open(const hf_url *url, int64_t io_timeout_ms, hf_store **ret, hf_caps *caps,
                hf_error *err);
void hf__mm_close(hf_store *st);

/* mem_wakeups.c: operations of hf_local_ops, and all of hf_liveness_ops */
int hf__mm_wakeup_begin(hf_store *st, uint8_t wakeup, size_t n, hf_event_count *ret, hf_error *err);
int hf__mm_sleep(hf_store *st, uint8_t wakeup, const hf_event_count *since, int64_t until_us,
                 hf_error *err);
int hf__mm_next_event(hf_store *st, uint8_t wakeup, hf_key_event *ret);
void hf__mm_interrupt(hf_store *st, uint8_t wakeup);
extern const hf_liveness_ops hf__mm_liveness;

#endif
