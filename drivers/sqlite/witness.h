/*
 * witness.h - sqlite: a lock of this process's own on a file, which shows whether the process's
 * locks on that file were dropped. See files.c.
 */
#ifndef HF_SQLITE_WITNESS_H
#define HF_SQLITE_WITNESS_H

#include <stdatomic.h>
#include <stdint.h>
#include <sys/stat.h>

/* Where SQLite has its own locks: os_unix.c, sqliteInt.h; part of the file format. */
enum { HF_SQ_SHARED_FIRST = 0x40000002, HF_SQ_SHARED_SIZE = 510, HF_SQ_DMS_BYTE = 128 };

/*
 * A descriptor of a file, and the byte of it that this process has locked. To close it drops
 * SQLite's locks on that file, and the application's: it stays open for as long as the file has a
 * name or a store uses it.
 */
struct hf__sq_witness {
    struct hf__sq_witness *next;
    dev_t dev;
    ino_t ino;
    int fd, refs;
    _Atomic unsigned lost; /* how often its lock was found gone, and taken again */
};

/* Finds or makes the witness of the file of that name, with its byte locked. If the lock was gone,
   the other users of the witness are notified before it is taken again. Returns 0, or errno. */
int hf__sq_take_witness(const char *path, struct hf__sq_witness **ret, unsigned *ret_lost);
/* Gives the witness up; *at is NULL from then on. */
void hf__sq_drop_witness(struct hf__sq_witness **at);
/* Returns 1 if the witness hasn't been lost since its count was `lost`. The order of the two reads
   matters: see hf__sq_take_witness. */
int hf__sq_stood(const struct hf__sq_witness *w, unsigned lost);
/* Locks the byte again. */
void hf__sq_lock_byte(struct hf__sq_witness *w);

/* Locks these bytes for reading. Returns 0, or errno; EAGAIN: another process has them. */
int hf__sq_lock_range(int fd, int64_t from, int64_t n);
/* Returns 1 if no other copy of SQLite has EXCLUSIVE on the database, in WAL mode. This
   connection's own copy doesn't take it while the connection is open. */
int hf__sq_is_shared(const struct hf__sq_witness *db);
/* Waits while another copy has EXCLUSIVE, as SQLite waits for locks of other processes. Closing the
   database now would drop that lock, too. Returns 1 when no copy has EXCLUSIVE any more. */
int hf__sq_wait_until_shared(const struct hf__sq_witness *db, int64_t ms);

/* Called with all stores' mutexes held. */
void hf__sq_witness_before_fork(void);
void hf__sq_witness_after_fork(int in_child);

#endif
