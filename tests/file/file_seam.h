/*
 * file_seam.h - virtual processes on one mapping of the `file:` driver, built with -DHF_SEAM: each
 * is a store object of its own, and may be ended at any access to shared memory.
 */
#ifndef HF_FILE_SEAM_H
#define HF_FILE_SEAM_H

#include "../../drivers/file/store.h"

#include "drivers.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEAM_LINES = 1024, SEAM_BYTES = SEAM_LINES * HF_LINE, SEAM_CLIENTS = 4 };

struct seam_client {
    hf_store *st; /* NULL: never opened */
    int dead;
    uint32_t slot;
};

struct seam_world {
    unsigned char *base;
    struct seam_client client[SEAM_CLIENTS];
    int64_t now_us;
    long steps;   /* shared accesses so far */
    long stop_at; /* the one before which the running client ends; 0: none */
    jmp_buf stopped;
    int running;
    unsigned naps; /* futex waits since seam_begin */
    /* the wakeups at `wakeup` since seam_begin */
    unsigned wakes;
    _Atomic uint32_t *wakeup;                              /* to be watched; NULL: none */
    void (*on_step)(void *arg);                            /* before each access; NULL: nothing */
    void (*on_sync)(void *arg, uint64_t line, uint64_t n); /* n 0: everything */
    void *arg;
    /* The system's answers from now on. */
    const char *gone; /* the file is, as this says */
    int sync_error, probe_error;
};
extern struct seam_world seam;

/* An empty store with `n` clients. */
void seam_format(int n);
void seam_free(void);
/* Opens client i. */
void seam_open(int i);
/* Runs what(arg) as client i. Returns 1 if the client was killed at access number `at` (1, 2 ...;
   0: never). */
int seam_run(int i, long at, void (*what)(hf_store *st, void *arg), void *arg);

/* All of the state, to go back to. */
struct seam_image {
    unsigned char base[SEAM_BYTES];
    struct seam_client client[SEAM_CLIENTS];
    struct hf__client own[SEAM_CLIENTS];
    int64_t now_us;
};
void seam_save(struct seam_image *to);
void seam_restore(const struct seam_image *from);

/* A key whose cell is in the bucket, the `n`th of that kind; `len` bytes long if that is more than
   it takes. The text is the caller's to free. */
char *seam_key(uint32_t bucket, int n, size_t len);

/* Checks that no two things in the heap overlap, and that all lie below the bump. Counts the
   reachable lines in *ret_lines. Returns NULL, or what is wrong. */
const char *seam_check(uint64_t *ret_lines);

#define drv (&hf__file_driver)
#endif
