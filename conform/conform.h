/*
 * conform.h - the conformance suite: what every store must do, tried on a real one.
 */
#ifndef HF_CONFORM_H
#define HF_CONFORM_H

#include "holdfast_driver.h"

/* The prefix of all trials: the keys of one trial begin with it and a random number. */
enum { HF_CONFORM_PREFIX_CAP = 48 };
void hf__conform_prefix(char ret[HF_CONFORM_PREFIX_CAP]);

/*
 * Tries the store of `url` and says for each promise whether it is kept (`why` is NULL) or not (why
 * it isn't). Writes only keys below the prefix, and deletes them. Forks, so it is called before the
 * process has threads; takes a few seconds. hf__wrap_opened applies, as in hf_open.
 *
 * A check that an outage cuts short says nothing of the store: once the store answers, it is made
 * again.
 *
 * Returns: the number of promises that aren't kept. HF_UNAVAILABLE, *err says why: the store went
 * away, and the checks from there on were not made. HF_NOMEM: none was made.
 */
int hf__conform(const hf_driver *drv, const hf_url *url, const char *prefix,
                void (*say)(void *arg, const char *promise, const char *why), void *arg,
                hf_error *err);

/* Deletes the rows below the prefix, and those of trials that were abandoned. Returns: 0, as scan,
   or HF_BUSY: they are written still. */
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
    char why[400];         /* of the check that fails */
    _Atomic int *no_reply; /* shared with the suite's processes: 1: an operation of the present
                              check met a store that was away, or lost the reply; NULL: not noted */
    hf_error away;         /* code 0: the store is there; else the error that ended the trial */
};

enum hf__need { HF_NEEDS_THREADS = 1, HF_NEEDS_LOCAL = 2, HF_NEEDS_LIVENESS = 4 };

struct hf__check {
    const char *text;
    unsigned needs;                              /* of enum hf__need */
    const char *(*check)(struct hf__suite *cfm); /* returns NULL if the promise is kept; else why
                                                    not, in cfm->why */
};

/* Sweeps as hf__conform_sweep, in a store that is open. */
int hf__con_sweep(const struct hf__con *con, const char *prefix, hf_error *err);
int hf__con_open(struct hf__suite *cfm, struct hf__con *ret, hf_error *err);
void hf__con_close(struct hf__con *con);
/* Notes the result of an operation of the present check, and returns it. */
int hf__note(struct hf__suite *cfm, int rc);
/* Returns the text of an operation's error, and notes its code. */
const char *hf__why(struct hf__suite *cfm, const hf_error *err);
/* Sets the reason of a failing check, and returns it. */
const char *hf__bad(struct hf__suite *cfm, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Makes the key prefix + name; `text` keeps it. */
hf_rowkey hf__con_key(const struct hf__suite *cfm, char text[HF_KEY_CAP], const char *name);
/* Makes a party with usual values; n tells it from others. */
hf_party hf__con_party(uint64_t session, uint32_t n);
/* Makes `row` one with one holder, as an uncontended grant makes it. */
void hf__con_one_holder(hf_row *row, uint32_t n);
/* Stores `row` at a key that no other check uses. Sets row->rev, and the token of its only
   holder. */
int hf__con_create(const struct hf__con *con, const hf_rowkey *key, hf_row *row, hf_error *err);
/* These call get or replace on the open store. A failure is reported in cfm->why. */
int hf__con_get(struct hf__suite *cfm, const hf_rowkey *key, hf_row *row);
int hf__con_replace(struct hf__suite *cfm, const hf_rowkey *key, uint64_t seen, const hf_row *row,
                    hf_row *cur);
/* Reads the key, and returns the store's clock in µs. -1: *err says why. */
int64_t hf__con_clock(const struct hf__con *con, const hf_rowkey *key, hf_row *row, hf_error *err);
/* Scans as the library does: `see` may get and replace. */
int hf__con_scan(const struct hf__con *con, const char *prefix,
                 int (*see)(void *arg, const hf_rowkey *key, hf_row *row), void *arg,
                 hf_error *err);
/* Runs a check with a key of that name and a row. If the check succeeds, the row is deleted. */
const char *hf__con_at_key(struct hf__suite *cfm, const char *name,
                           const char *(*play)(struct hf__suite *cfm, const hf_rowkey *key,
                                               hf_row *row));
/* Waits until the store's clock has passed `rev`, because in use rows are deleted long after their
   last write, and a clock may be coarse. */
void hf__con_await_clock(struct hf__suite *cfm, const hf_rowkey *key, uint64_t rev);
void hf__conform_run(struct hf__suite *cfm, const struct hf__check *check, size_t n);

/* The groups of checks. `handle` may leave the connection closed; `processes` forks, so it runs
   while nothing is open. */
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
