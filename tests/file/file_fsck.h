/*
 * file_fsck.h - is the store in this mapping whole? For the tests of the `file:` store.
 */
#ifndef HF_FILE_FSCK_H
#define HF_FILE_FSCK_H

#include "store.h"

struct fsck {
    uint64_t cells, vacant;
    uint64_t lost_lines; /* given away, but not part of anything */
    uint64_t outgrown;   /* the most lines that rows which grew can have left behind */
    unsigned locked;     /* how many lock words are held, by living or dead processes */
    char why[160];       /* what is wrong first */
};

/* Checks the store while no process uses it. Returns 0, or -1 and ret->why. */
int fsck(const unsigned char *base, uint64_t lines, struct fsck *ret);

#endif
