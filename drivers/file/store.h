/*
 * store.h - the driver's hf_store, and what the driver's files offer to each other, except for what
 * concerns the mapping: shared.h.
 */
#ifndef HF_FILE_STORE_H
#define HF_FILE_STORE_H

#include "marks.h"
#include "shared.h"

enum { HF_FILE_PATH_CAP = 1200 };

struct hf_store {
    struct hf__client c;              /* first: see hf__client_of */
    pthread_mutex_t mu;               /* protects death_fd */
    _Atomic uint8_t interrupted[256]; /* 1: the next sleep at that wakeup returns at once */
    /* Used only by the thread that sleeps at wakeup 0, which many waits share: see marks.h. */
    struct hf__marked_wakeup shared_wakeup;
    size_t marks_for;              /* from this number of waits on, marks are made */
    int marked;                    /* 1: there are marks */
    int death_fd;                  /* -1: not opened yet; -2: it can't be opened */
    int64_t death_size;            /* the size of the file when death_fd was last read */
    struct hf_store *next, **link; /* in the list of this process's stores, for fork */
    unsigned mode;
    int attached; /* 1: the mapping is a test's (hf__file_attach), and isn't unmapped */
    char path[HF_FILE_PATH_CAP];
};

static inline struct hf__client *hf__client_of(hf_store *st) { return &st->c; }

/* ---- session.c ---- */

int hf__session_open(const struct hf__op *op);
/* hf__fork_watch adds an open store to the list of stores whose descriptors a forked child closes.
   hf__fork_forget removes it. */
void hf__fork_watch(hf_store *st);
void hf__fork_forget(hf_store *st);
/* Between these two no thread of the process can fork: a child would keep descriptors that were
   opened, but whose store isn't in the list yet. */
void hf__fork_hold(void);
void hf__fork_release(void);

int hf__file_session(hf_store *st, uint64_t *ret, hf_error *err);
int hf__file_alive(hf_store *st, uint64_t session, hf_error *err);
int hf__file_session_fd(hf_store *st);
int hf__file_wakeup_begin(hf_store *st, uint8_t wakeup, size_t n, hf_event_count *ret,
                          hf_error *err);
int hf__file_sleep(hf_store *st, uint8_t wakeup, const hf_event_count *since, int64_t until_us,
                   hf_error *err);
void hf__file_interrupt(hf_store *st, uint8_t wakeup);
int hf__file_next_event(hf_store *st, uint8_t wakeup, hf_key_event *ret);
int hf__file_death_fd(hf_store *st);
int hf__file_death_read(hf_store *st);

/* ---- rows.c: the operations on a row ---- */

int hf__rows_get(hf_store *st, const hf_rowkey *key, hf_row *row, int64_t *ret_clock_us,
                 hf_error *err);
int hf__rows_replace(hf_store *st, const hf_rowkey *key, uint64_t seen, const hf_row *row,
                     hf_row *cur, int64_t *ret_clock_us, hf_error *err);
int hf__rows_update(hf_store *st, const hf_rowkey *key, int (*step)(void *arg, hf_row *row),
                    void *arg, hf_row *row, hf_error *err);
/* Finds the key's cell, by its hint or by a search; f->cell is NULL if there is none. The caller
   holds the bucket's lock. */
int hf__locate(const struct hf__op *op, struct hf__bucket *b, struct hf__found *f);
/* Keeps the hint that leads to the cell. */
void hf__remember(const struct hf__op *op, const struct hf__found *f);
/* Provides what an operation that returned the positive result rc (HF_NEED_...) lacked. No lock
   word may be held. Returns 0: begin again; or an error. */
int hf__provide(const struct hf__op *op, int rc, struct hf__found *f, size_t need, hf_row *row);

/* ---- acquire.c ---- */

int hf__rows_acquire(hf_store *st, const hf_rowkey *key, const hf_party *party, uint32_t may_queue,
                     hf_row *cur, int64_t *ret_clock_us, hf_error *err);

/* ---- scan.c ---- */

int hf__rows_scan(hf_store *st, const char *prefix,
                  int (*see)(void *arg, const hf_rowkey *, hf_row *), void *arg,
                  int64_t *ret_clock_us, hf_error *err);

/* ---- recover.c: the header, and what is done after a reboot ---- */

/* Writes the header of a new store into `base`, which is zero. `lines` is the file's size. */
void hf__format(void *base, uint64_t lines, unsigned mode, const struct hf__boot *boot);
/* Checks a header. Returns NULL, or what is wrong. */
const char *hf__static_wrong(const struct hf__static *s);
/* Reads the boot block in force. Returns 0 or HF_CORRUPT. */
int hf__boot_read(const struct hf__op *op, struct hf__boot *ret);
/* Recovers the store after a reboot: voids holds and queues, drops torn cells, keeps revs and
   markers, and sets the clock. No other process may use the store meanwhile. `now` names the
   present boot; its other fields are filled in. wall_us is the time of day, `lines` the file's
   size. */
int hf__recover(const struct hf__op *op, struct hf__boot *now, int64_t wall_us, uint64_t lines);
/* Raises the ceiling of revs above `rev`, and syncs it. Returns 0 or an error. */
int hf__raise_ceiling(const struct hf__op *op, uint64_t rev);

/* ---- system.c ---- */

/* Calls fcntl with an OFD lock. Returns 0, -EAGAIN or -errno; with F_OFD_GETLK 1 if another
   description has locked it. */
int hf__byte_lock(int fd, int command, short type, int64_t from, int64_t len);
/* Waits until local time until_us for the lock of a byte, which other processes keep for as long as
   a piece of work takes. Returns 0, ETIMEDOUT, or an errno. */
int hf__byte_lock_until(int fd, int64_t byte, int64_t until_us);
/* Allocates space on disk for these bytes. Bytes beyond the file's end must not be in use. Returns
   0 or an errno. */
int hf__provide_blocks(int fd, int64_t from, int64_t to);

/* ---- map.c ---- */

int hf__map(hf_store *st, int force, int existing, int64_t io_timeout_ms, hf_error *err);
void hf__unmap(hf_store *st);
void hf__close_both(hf_store *st);
/* Fills in the name of this boot. Returns 0 or an error. */
int hf__boot_here(struct hf__boot *ret, hf_error *err);

/* ---- trust.c ---- */

struct stat;

/* Checks that all processes that map a file of this filesystem share its memory. An unknown
   filesystem is refused unless `force` is 1. Returns 0 or the error. */
int hf__trust_filesystem(hf_store *st, int fd, int force, hf_error *err);
/* Checks the kind of file, its owner and its filesystem. */
int hf__trust(hf_store *st, int fd, const struct stat *s, int force, hf_error *err);
/* Reads the first page by read(2) and checks it: the static header, the file's owner and mode. */
int hf__check_header(hf_store *st, int fd, const struct stat *s, hf_error *err);
const char *hf__filesystem(long magic, int *ret_good);
/* Returns the HF_ code for an errno about a file. */
int hf__file_code(int sys);
/* Fills in the error "file: WHAT 'PATH': ..." for an errno. Returns its HF_ code. */
int hf__refuse_errno(hf_store *st, int sys, const char *what, hf_error *err);

/* ---- place.c ---- */

/* Writes the path of the default store (the URL `file:`), as the environment says. Creates nothing.
 *ret_exists: the length of the part of the path that has to exist already: the home directory, or
   0. */
int hf__default_path(char *to, size_t cap, size_t *ret_exists, hf_error *err);
/* If `store` is the default store's path, makes its directories, for this user alone. The error
   names the first directory that can't be made, or that has to exist and doesn't. */
int hf__make_default_directories(const char *store, hf_error *err);
int hf__file_scratch(const hf_url *url, hf_url *ret, hf_error *err);
void hf__file_discard(const hf_url *url);

#ifdef HF_SEAM
/*
 * For tests: makes a store of a mapping that the test has formatted itself, with the test's own
 * system calls. Any number of stores may share one mapping, each with its env_arg. The driver's
 * operations work on it; close doesn't unmap.
 */
int hf__file_attach(void *base, uint64_t lines, const struct hf__file_env *env, void *env_arg,
                    hf_store **ret, hf_error *err);
#endif

#endif
