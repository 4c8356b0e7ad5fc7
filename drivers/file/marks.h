/*
 * marks.h - the marks in the file that say for which keys wakeup 0 of a session was posted
 * (key_marks.h).
 *
 * Many waits of a session may share wakeup 0. Then the session makes marks once, and the next
 * session in its slot uses them again. A mark says only which key's row to read; a reboot voids all
 * marks.
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
