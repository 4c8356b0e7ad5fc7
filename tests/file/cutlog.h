/*
 * cutlog.h - what a disk may hold after a power cut.
 *
 * While a log records a file that is mapped and written, it notes at every access to the shared
 * memory which sectors have changed, and when the file was synced. A disk image of a moment is then
 * any mixture: each sector as it was at the last sync, or at any time since.
 *
 * The program that links this replaces fdatasync and fsync, and is built with HF_SEAM.
 */
#ifndef CUTLOG_H
#define CUTLOG_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { CUT_SECTOR = 512, CUT_PAGE = 4096 };

struct cutlog;

/* Begins to record the file, which is on disk as it is now. */
struct cutlog *cutlog_begin(const char *path);
void cutlog_end(struct cutlog *l); /* records no more */
void cutlog_free(struct cutlog *l);
void cutlog_pace(struct cutlog *l, unsigned every); /* makes it look only at every n-th access */
void cutlog_lie(struct cutlog *l);  /* from now on the disk says that it has synced, but hasn't */
void cutlog_look(struct cutlog *l); /* notes the sectors that have changed since the last look */
/* Moments are numbered; this one's number. Everything before is noted. */
uint32_t cutlog_now(struct cutlog *l);

/* Is there something that was first there at this moment? 2: a sync had just ended. */
int cutlog_news(const struct cutlog *l, uint32_t moment);
/* The sectors that may differ at that moment from the last sync before it. */
uint32_t cutlog_units(const struct cutlog *l, uint32_t moment);

enum cut_how {
    CUT_SUBSET,  /* of the units that differ, unit i is new if bit i of `choice` is set, else as
                    synced */
    CUT_SECTORS, /* each of a random time */
    CUT_PAGES    /* each page of a random time */
};
/* Writes an image of that moment to the path. */
void cutlog_image(struct cutlog *l, uint32_t moment, enum cut_how how, uint64_t choice,
                  const char *path);

/* Returns the system calls since the last call of this, in order, a letter each: W pwrite, S fsync
   of a file, L link, D fsync of a directory, U unlink. */
const char *cutlog_calls(void);

#endif
