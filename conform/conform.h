/*
 * conform.h - the conformance suite: checks that a store does what the core needs.
 */
#ifndef HF_CONFORM_H
#define HF_CONFORM_H

#include "holdfast_driver.h"

/* A trial is one run of the suite. Makes the prefix of its keys: that of all trials, and a random
   number. */
enum { HF_CONFORM_PREFIX_CAP = 48 };
void hf__conform_prefix(char ret[HF_CONFORM_PREFIX_CAP]);

/*
 * Runs the suite on the store of `url`. Calls `say` for each check: `promise` is what the store has
 * to do; `why` is NULL if it does, otherwise what is wrong. Writes only keys with the prefix, and
 * deletes them. Forks, so call it before the process has threads. Takes a few seconds.
 * hf__wrap_opened applies, as in hf_open.
 *
 * A check that an outage cuts short isn't reported: it is made again when the store answers.
 *
 * Returns: the number of checks that failed. HF_UNAVAILABLE, with *err: the store stopped
 * answering, and the remaining checks were not made. HF_NOMEM: no check was made.
 */
int hf__conform(const hf_driver *drv, const hf_url *url, const char *prefix,
                void (*say)(void *arg, const char *promise, const char *why), void *arg,
                hf_error *err);

/* Deletes the rows with the prefix, and those that other trials left an hour ago or more. Returns:
   0; HF_BUSY: the rows are still being written; or the error of a scan. */
int hf__conform_sweep(const hf_driver *drv, const hf_url *url, const char *prefix, hf_error *err);

/* ---- between the files of the suite ---- */

/* The store, opened once. */
struct hf__con {
    const hf_driver *drv;
    hf_store *st;
    hf_caps caps;
};

struct hf__suite {
    const hf_driver *drv;
    hf_caps caps; /* the capabilities of the store when it was first opened */
    const hf_url *url;
    void (*say)(void *arg, const char *promise, const char *why);
    void *arg;
    int failed;
    int in_memory; /* the store is in one process's memory: not shared with others, gone after the
                      last close */
    struct hf__con con;
    char prefix[HF_CONFORM_PREFIX_CAP];
    char why[400];         /* the reason of the check that fails */
    _Atomic int *no_reply; /* shared with the suite's processes. 1: an operation of the present
                              check was UNAVAILABLE or UNKNOWN; NULL: not noted */
    hf_error away;         /* code 0: the store answers; else the error that ended the trial */
};

enum hf__need { HF_NEEDS_THREADS = 1, HF_NEEDS_LOCAL = 2, HF_NEEDS_LIVENESS = 4 };

struct hf__check {
    const char *text;
    unsigned needs;                              /* of enum hf__need */
    const char *(*check)(struct hf__suite *cfm); /* returns NULL if it passes, else the reason, in
                                                    cfm->why */
};

/* Does what hf__conform_sweep does, on an open store. */
int hf__con_sweep(const struct hf__con *con, const char *prefix, hf_error *err);
/* Opens the suite's store once more. Returns 0 or the error. */
int hf__con_open(struct hf__suite *cfm, struct hf__con *ret, hf_error *err);
void hf__con_close(struct hf__con *con);
/* Sets *no_reply if this result of an operation is UNAVAILABLE or UNKNOWN. Returns `rc`. */
int hf__note(struct hf__suite *cfm, int rc);
/* Returns the text of an operation's error, and calls hf__note with its code. */
const char *hf__why(struct hf__suite *cfm, const hf_error *err);
/* Sets the reason of a failing check, and returns it. */
const char *hf__bad(struct hf__suite *cfm, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Makes the key prefix + name. Its text is stored in `text`, which has to last as long as the key.
 */
hf_rowkey hf__con_key(const struct hf__suite *cfm, char text[HF_KEY_CAP], const char *name);
/* Makes a party with usual values. n: makes its id, owner and note different from others'. */
hf_party hf__con_party(uint64_t session, uint32_t n);
/* Makes `row` one with a single holder, party n. */
void hf__con_one_holder(hf_row *row, uint32_t n);
/* Stores `row` as the first row of a key. Sets row->rev, and, if it has one holder, the token.
   Returns 0; HF_BUSY: the key is in use; or the error. */
int hf__con_create(const struct hf__con *con, const hf_rowkey *key, hf_row *row, hf_error *err);
/* These call get or replace on the suite's store. A failure is described in cfm->why. */
int hf__con_get(struct hf__suite *cfm, const hf_rowkey *key, hf_row *row);
int hf__con_replace(struct hf__suite *cfm, const hf_rowkey *key, uint64_t seen, const hf_row *row,
                    hf_row *cur);
/* Returns the store's clock in µs, from a read of the key or from `now`. Returns -1 after an error,
   with *err. */
int64_t hf__con_clock(const struct hf__con *con, const hf_rowkey *key, hf_row *row, hf_error *err);
/* Scans as the library does: `see` may get and replace. */
int hf__con_scan(const struct hf__con *con, const char *prefix,
                 int (*see)(void *arg, const hf_rowkey *key, hf_row *row), void *arg,
                 hf_error *err);
/* Runs a check with a key of that name and a row. If the check succeeds, the row is deleted. */
const char *hf__con_at_key(struct hf__suite *cfm, const char *name,
                           const char *(*play)(struct hf__suite *cfm, const hf_rowkey *key,
                                               hf_row *row));
/* Waits until the store's clock has passed `rev`, if that takes less than 3 s. Call it after a
   deletion: in use, a row is deleted long after its last write, so that a new row's rev, which
   comes from the clock, is higher. */
void hf__con_await_clock(struct hf__suite *cfm, const hf_rowkey *key, uint64_t rev);

/* Makes the checks of a group, and reports each by cfm->say. */
void hf__conform_run(struct hf__suite *cfm, const struct hf__check *check, size_t n);

/* The groups of checks. hf__conform_handle may leave the suite's store closed.
   hf__conform_processes forks, so it runs while the store is closed. */
void hf__conform_rows(struct hf__suite *cfm);
void hf__conform_replace(struct hf__suite *cfm);
void hf__conform_handle(struct hf__suite *cfm);
void hf__conform_keys(struct hf__suite *cfm);
void hf__conform_acquire(struct hf__suite *cfm);
void hf__conform_update(struct hf__suite *cfm);
void hf__conform_many(struct hf__suite *cfm);
void hf__conform_notify(struct hf__suite *cfm);
void hf__conform_processes(struct hf__suite *cfm);
void hf__conform_threads(struct hf__suite *cfm);

#define HF_CHECK(cond, ...)                            \
    do {                                               \
        if (!(cond)) return hf__bad(cfm, __VA_ARGS__); \
    } while (0)

#endif
