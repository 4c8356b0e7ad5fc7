/*
 * marks.h - the keys for which wakeup 0 of a session was used (key_marks.h), in the file.
 *
 * A session whose wakeup 0 is shared by many waits makes the marks once, and leaves them to the
 * next session in its slot. A mark is only a hint where to look; a reboot voids all marks.
 */
#ifndef HF_FILE_MARKS_H
#define HF_FILE_MARKS_H

#include "shared.h"

#define HF_MARK_SEEN(p, how) HF_ON("mark", p, how)
#include "key_marks.h"

enum { HF_MARKS_LINES = (sizeof(struct hf__key_marks) + HF_LINE - 1) / HF_LINE };

/* Returns the marks of a session; NULL: it has none. *ret_missed: the link to them is damaged.
   (cell.c) */
struct hf__key_marks *hf__marks_of(const struct hf__op *op, struct hf__slot *s, int *ret_missed);
/* Makes the marks, unless they are there. No lock word may be held. Returns 0, or why they can't be
   made. */
int hf__marks_room(const struct hf__op *op, struct hf__slot *s);

#endif
