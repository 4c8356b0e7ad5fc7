/*
 * kit_net.h - what the tests of connections have: name servers that answer what the test says, and
 * servers on loopback that accept, refuse or are silent.
 */
#ifndef HF_KIT_NET_H
#define HF_KIT_NET_H

#include <stdint.h>

/*
 * This getaddrinfo takes the place of the system's, for modules too if the program is linked with
 * -rdynamic. What is numeric goes to the system. A name "mute..." is answered
 * when the test says so. A name "none..." isn't known. Any other name has an address for each of
 * its characters '1' to '9' (127.0.0.1 to .9) and 'x' (::1): "at-1-x" has 127.0.0.1 and ::1.
 */
void kit_names_answer(void); /* answers the mute names, all of them, until kit_names_mute */
void kit_names_mute(void);
unsigned kit_names_asked(void);  /* lookups of names, so far */
void kit_names_wait(unsigned n); /* waits until n of them wait for a mute server */
int kit_names_opened_low(void);  /* 1: a lookup had descriptor 0, 1 or 2 */
void kit_names_in_child(void);   /* called in a child of fork: all names are answered, no lookup
                                    waits */

/* A listening socket on 127.0.0.N, on *port (0: any, which is written there). */
int kit_listen(int n, int *port);
/* Makes a server, like the one above, that never answers a connection: its queue is full.
 *ret_filler fills it. */
int kit_silent(int n, int *port, int *ret_filler);
/* Makes a port that refuses: it is bound, but nothing listens there. */
int kit_refusing(int n, int *port);
/* Open descriptors of this process. */
int kit_descriptors(void);
int64_t kit_in_ms(int64_t ms); /* local time */

#endif
