/*
 * conform.h - the conformance suite: what every store must do, tried on a real one.
 */
#ifndef HF_CONFORM_H
#define HF_CONFORM_H

#include "holdfast_driver.h"

/*
 * Tries the store of `url` and says for each promise whether it is kept (`why` is NULL) or not (why
 * it isn't). Returns the number of those that aren't. Writes only keys below a random prefix, and
 * deletes them. Forks, so it is called before the process has threads; takes a few seconds.
 * hf__wrap_opened applies, as in hf_open.
 */
int hf__conform(const hf_driver *drv, const hf_url *url,
                void (*say)(void *arg, const char *promise, const char *why), void *arg);

/* ---- between the files of the suite ---- */

/* The store, opened once. */
struct hf__con {
    const hf_driver *drv;
    hf_store *st;
    hf_caps caps;
};

struct hf__suite {
    const hf_driver *drv;
    hf_caps caps; /* of the store, as it was opened first */
    const hf_url *url;
    void (*say)(void *arg, const char *promise, const char *why);
    void *arg;
    int failed;
    int in_memory; /* of one process: nothing to share with others, nothing to find later */
    struct hf__con con;
    char prefix[48];
    char why[400]; /* of the check that fails */
};

enum hf__need { HF_NEEDS_THREADS = 1, HF_NEEDS_LOCAL = 2, HF_NEEDS_LIVENESS = 4 };

struct hf__check {
    const char *text;
    unsigned needs;                              /* of enum hf__need */
    const char *(*check)(struct hf__suite *cfm); /* NULL: kept; else why not, in cfm->why */
};

int hf__con_open(struct hf__suite *cfm, struct hf__con *ret, hf_error *err);
void hf__con_close(struct hf__con *con);
/* The reason of a failing check; returns it. */
const char *hf__bad(struct hf__suite *cfm, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The key prefix + name; `text` holds it. */
hf_rowkey hf__con_key(const struct hf__suite *cfm, char text[HF_KEY_CAP], const char *name);
/* A grant or a wait like any other, told apart by n. */
hf_party hf__con_party(uint64_t session, uint32_t n);
/* Makes `row` one with one holder, as an uncontended grant makes it. */
void hf__con_one_holder(hf_row *row, uint32_t n);
/* Stores `row` at a key that nobody uses; row->rev (and the token of its only holder) become what
   they have to be. */
int hf__con_create(const struct hf__con *con, const hf_rowkey *key, hf_row *row, hf_error *err);
/* get, replace on the open store; a failure is told in cfm->why. */
int hf__con_get(struct hf__suite *cfm, const hf_rowkey *key, hf_row *row);
int hf__con_replace(struct hf__suite *cfm, const hf_rowkey *key, uint64_t seen, const hf_row *row,
                    hf_row *cur);
/* scan as the library does it: `see` may get and replace. */
int hf__con_scan(const struct hf__con *con, const char *prefix,
                 int (*see)(void *arg, const hf_rowkey *key, hf_row *row), void *arg,
                 hf_error *err);
/* A play at a key of that name, and a row; if it goes well, the row that it leaves is deleted. */
const char *hf__con_at_key(struct hf__suite *cfm, const char *name,
                           const char *(*play)(struct hf__suite *cfm, const hf_rowkey *key,
                                               hf_row *row));
/* Until the store's clock has passed `rev`: rows are deleted long after their last write, and a
   clock may be coarse. */
void hf__con_await_clock(struct hf__suite *cfm, const hf_rowkey *key, uint64_t rev);
void hf__conform_run(struct hf__suite *cfm, const struct hf__check *check, size_t n);

/* Those about rows there and back; about replace and acquire; about the handle, which may be left
   closed; about keys; about acquire; about a change in place; those that fork, to be run while
   nothing is open; those with threads. */
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
