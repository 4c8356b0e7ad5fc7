/*
 * pool.h - numbers for a few connections of one store, so that each request has a connection for
 * itself. The connections themselves are the driver's: an array of HF_POOL_LINKS.
 *
 * A connection that worked is taken before one that would have to be made. So a store whose server
 * accepts no more connections goes on with those that are open.
 *
 * Thread safety: all functions by any thread, but for hf__pool_open and hf__pool_close. A pool is
 * part of the driver's store; it owns no memory.
 */
#ifndef HF_POOL_H
#define HF_POOL_H

#include "os.h"

enum { HF_POOL_LINKS = 4 }; /* numbered from 0 */
/* Why hf__pool_take returns -1, for the message of HF_UNAVAILABLE. Nothing was sent then. */
#define HF_POOL_BUSY "no connection was free in time: other requests have all of them"

struct hf__pool {
    pthread_mutex_t mu;
    pthread_cond_t freed;
    unsigned busy, works; /* a bit for each connection; works: it was connected when it was given
                             back */
};

/* Sets up a pool whose connections are all free, and none connected. */
static inline void hf__pool_open(struct hf__pool *pool)
{
    pthread_mutex_init(&pool->mu, NULL);
    hf__thread_condition(&pool->freed);
    pool->busy = pool->works = 0;
}

/* Frees the pool. No connection may be in use. */
static inline void hf__pool_close(struct hf__pool *pool)
{
    pthread_mutex_destroy(&pool->mu);
    pthread_cond_destroy(&pool->freed);
}

/* Takes a free connection: hf__pool_give gives it back. Waits for one until the local time until_us
   (hf__local_us, in microseconds) at most. Returns its number, or -1: none was free in time. */
static inline int hf__pool_take(struct hf__pool *pool, int64_t until_us)
{
    int i = 0;
    pthread_mutex_lock(&pool->mu);
    while (pool->busy == (1u << HF_POOL_LINKS) - 1) {
        if (hf__local_us() >= until_us) {
            pthread_mutex_unlock(&pool->mu);
            return -1;
        }
        hf__cond_until(&pool->freed, &pool->mu, until_us);
    }
    unsigned idle = pool->works & ~pool->busy;
    while (idle ? !(idle & 1u << i) : pool->busy & 1u << i) i++;
    pool->busy |= 1u << i;
    pthread_mutex_unlock(&pool->mu);
    return i;
}

/* Returns the local time by which a connection has to be made, for requests that have to be
   answered by until_us. It is until_us, but at least 0.5 s and at most 1 s from now. */
static inline int64_t hf__pool_connect_until(int64_t until_us)
{
    int64_t now = hf__local_us(), us = until_us - now;
    return now + (us < 500000 ? 500000 : us > 1000000 ? 1000000 : us);
}

/* Takes a connection that works and is idle, if others remain for other requests. Never waits.
   Returns its number, or -1. */
static inline int hf__pool_spare(struct hf__pool *pool)
{
    int i = 0;
    pthread_mutex_lock(&pool->mu);
    unsigned idle = pool->works & ~pool->busy;
    if (idle && !(pool->busy & (pool->busy - 1))) { /* at most one of the pool is in use */
        while (!(idle & 1u << i)) i++;
        pool->busy |= 1u << i;
    } else {
        i = -1;
    }
    pthread_mutex_unlock(&pool->mu);
    return i;
}

/* Gives back what hf__pool_take returned; -1 is ignored. `works`: it is connected, as far as is
   known. */
static inline void hf__pool_give(struct hf__pool *pool, int i, int works)
{
    if (i < 0) return;
    pthread_mutex_lock(&pool->mu);
    pool->busy &= ~(1u << i);
    pool->works &= ~(1u << i);
    if (works) pool->works |= 1u << i;
    pthread_cond_signal(&pool->freed);
    pthread_mutex_unlock(&pool->mu);
}

#endif
