/*
 * resolve.h - looks up host names, with a deadline. Compiled into each module that uses it.
 *
 * A helper thread looks up a name, because getaddrinfo has no deadline: with mute name servers it
 * takes 10 seconds or more. If the caller stops waiting, the thread goes on until getaddrinfo
 * returns. Until then further lookups of the same name and port use the same thread, and at most
 * HF_LOOKUPS threads run, so abandoned threads don't pile up. The module (or the library that the
 * driver is built into) must stay loaded meanwhile: it is linked with -z nodelete.
 *
 * A numeric address and a path need no thread.
 *
 * Thread safety: any thread; one lookup by one thread at a time.
 */
#ifndef HF_KIT_RESOLVE_H
#define HF_KIT_RESOLVE_H

#include "endpoint.h"

#include <stdint.h>

/* How many endpoints of one name are used, and how many lookups run at a time in this module. */
enum { HF_ENDPOINTS = 16, HF_LOOKUPS = 32 };

/* Returned by hf__lookup_take: there is no answer yet. */
enum { HF_LOOKUP_PENDING = 1 };

struct hf__lookup;

/*
 * Starts to look up a host: a name, an address (also with a zone, fe80::1%eth0), or the path of a
 * Unix socket, which begins with '/'. `port` is a number as a text.
 * Returns: 0 and *ret, to be ended by hf__lookup_end; HF_NOMEM; HF_INVALID (the path is too long);
 * HF_UNAVAILABLE (too many lookups, no descriptor, no thread).
 */
int hf__lookup_start(const char *host, const char *port, struct hf__lookup **ret,
                     char why[HF_KIT_WHY]);
/* Returns a descriptor that becomes readable when the answer is there; -1: it is there already. */
int hf__lookup_fd(const struct hf__lookup *l);
/*
 * Reads the answer, if it is there. Never waits.
 * Returns: 0, with *ret_n endpoints: IPv4 and IPv6 in turn (RFC 8305, section 4), beginning with
 * the family that the system prefers; HF_LOOKUP_PENDING; HF_UNAVAILABLE or HF_NOMEM: the lookup
 * failed, with the reason in `why`.
 */
int hf__lookup_take(struct hf__lookup *l, struct hf__endpoint to[HF_ENDPOINTS], size_t *ret_n,
                    char why[HF_KIT_WHY]);
/* Ends a lookup, and frees it. A helper thread that still runs frees the rest. `l` may be NULL. */
void hf__lookup_end(struct hf__lookup *l);

/* Makes a whole lookup: waits for the answer until the local time until_us (hf__local_us) at most.
   Returns what hf__lookup_start and hf__lookup_take return; HF_UNAVAILABLE also if there is no
   answer in time. */
int hf__resolve(const char *host, const char *port, int64_t until_us,
                struct hf__endpoint to[HF_ENDPOINTS], size_t *ret_n, char why[HF_KIT_WHY]);

#endif
