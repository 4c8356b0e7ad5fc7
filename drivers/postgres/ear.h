/*
 * ear.h - postgres: how who waits is woken. See doc/stores/postgres.md.
 */
#ifndef HF_POSTGRES_EAR_H
#define HF_POSTGRES_EAR_H

#include "link.h"

/* One connection that listens, for all waits of a handle. Of the one thread that watches. */
struct hf__pg_ear {
    struct hf__pg_link link;
    char channel[80];
    int64_t deaf_until_us;
    uint64_t heard, *hash;
    size_t n_hash;
    int wake_fd;
};

/* 0, or errno. Close it in every case. */
int hf__pg_ear_open(struct hf__pg_ear *ear);
void hf__pg_ear_close(struct hf__pg_ear *ear);

int hf__pg_listen(const struct hf__pg_how *how, struct hf__pg_ear *ear,
                  const hf_rowkey *const *keys, size_t n, hf_ear *ret, hf_error *err);
int hf__pg_watch(struct hf__pg_ear *ear, const hf_ear *since, int64_t until_us, hf_error *err);
void hf__pg_interrupt(struct hf__pg_ear *ear);

#endif
