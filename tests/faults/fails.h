/*
 * fails.h - makes the n-th call of the library fail: an allocation, or a system call.
 *
 * The functions are replaced when the program is linked (--wrap), so this reaches what the program
 * itself calls too; an exempt thread's calls never fail.
 */
#ifndef FAILS_H
#define FAILS_H

#include <stddef.h>

/* From now on the n-th call fails; `on`: and all that follow. */
void fails_arm(long n, int on);
/* From now on the n-th call of this function fails with this errno. */
void fails_arm_one(long n, const char *name, int error);
/* Ends the failing. Returns the name of the function that failed; NULL: there were fewer calls. */
const char *fails_disarm(void);
void fails_exempt(int exempt); /* this thread: 1, 0 */
/* Returns how many blocks are allocated, by exempt and other threads. */
long fails_blocks(void);
/* How often each function was called, as text. */
const char *fails_calls(void);

#endif
