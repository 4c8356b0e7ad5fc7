/*
 * witness.h - sqlite: a lock of this process's own on a file, which shows whether the process's
 * locks on that file were dropped. See files.c.
 */
#ifndef HF_SQLITE_WITNESS_H
#define HF_SQLITE_WITNESS_H

#include <stdatomic.h>
#include <stdint.h>
#include <sys/stat.h>

/* The bytes that SQLite itself locks; part of its file format (os_unix.c). */
enum { HF_SQ_SHARED_FIRST = 0x40000002, HF_SQ_SHARED_SIZE = 510, HF_SQ_DMS_BYTE = 128 };

/*
 * A descriptor of a file of which this process has locked one byte. To close the descriptor would
 * drop all POSIX locks that the process has on the file, SQLite's and the application's. So it
 * stays open as long as the file has a name or a store uses the witness.
 */
struct hf__sq_witness {
    struct hf__sq_witness *next;
    dev_t dev;
    ino_t ino;
    int fd, refs;
    _Atomic unsigned lost; /* how often the lock was found gone, before it was taken again */
};

/* Finds or makes the witness of the file of that name, and locks its byte. If the lock was gone,
   `lost` is raised before the lock is taken again, so that the witness's other users notice.
   Returns 0 or an errno; *ret_lost: the present `lost`. */
int hf__sq_take_witness(const char *path, struct hf__sq_witness **ret, unsigned *ret_lost);
/* Gives the witness up; *at is NULL from then on. */
void hf__sq_drop_witness(struct hf__sq_witness **at);
/* Returns 1 if the witness's lock has stood since its count was `lost`. Reads the lock first and
   the count after it, because hf__sq_take_witness raises the count before it locks. */
int hf__sq_stood(const struct hf__sq_witness *w, unsigned lost);
/* Locks the witness's byte again, without counting it as lost. */
void hf__sq_lock_byte(struct hf__sq_witness *w);

/* Takes a POSIX read lock on n bytes from `from` on. Returns 0 or an errno; EAGAIN: another process
   has a write lock there. */
int hf__sq_lock_range(int fd, int64_t from, int64_t n);
/* Returns 1 if no other copy of SQLite in this process has EXCLUSIVE on the database. In WAL mode
   our own copy doesn't take it while the connection is open. */
int hf__sq_is_shared(const struct hf__sq_witness *db);
/* Waits for at most `ms` while another copy has EXCLUSIVE, because to close the database would drop
   that copy's lock, too. Returns 1: no copy has it any more; 0: the time is over. */
int hf__sq_wait_until_shared(const struct hf__sq_witness *db, int64_t ms);

/* The fork handlers call these with all stores' mutexes held. */
void hf__sq_witness_before_fork(void);
void hf__sq_witness_after_fork(int in_child);

#endif
