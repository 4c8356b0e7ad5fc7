/*
 * refusal.h - what `acquire` prints instead of a grant: text that fails if it is evaluated.
 */
#ifndef HF_CLI_REFUSAL_H
#define HF_CLI_REFUSAL_H

/* Makes this process print the refusal when it ends, even by a signal, until refuse_end. The
   refusal is JSON if --json is among the arguments. */
void refuse_begin(int argc, char *const *argv);
/* Ends that: from here on a grant is printed, or help was. */
void refuse_end(void);
/* Call these around text that is printed instead of a grant (help, the version). A shell that
   evaluates such text runs nothing of it, and the evaluation fails. */
void answer_begin(void);
void answer_end(void);
/* Prints the refusal now, unless it was printed. Async-signal-safe. */
void refuse(int status);
/* Does what refuse does; JSON has the last message as the reason, too. Returns the status. */
int refused(int status);
/* Notes a message as the reason. */
void refuse_reason(const char *text);

#endif
