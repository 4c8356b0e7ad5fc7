/*
 * stream.h - mongodb: a connection of a link, as libmongoc reads and writes it.
 *
 * libmongoc's own streams have a time limit for each call only, and none for the lookup of names. A
 * stream of this file never waits beyond link->until_us (local time; 0: no such limit), sets
 * link->broken when it fails, and can be shut down when the program ends.
 */
#ifndef HF_MONGODB_STREAM_H
#define HF_MONGODB_STREAM_H

#include "link.h"

/* Makes a stream of a connected, non-blocking socket, which the stream owns from then on. With fd
   -1 every operation of the stream fails. NULL: out of memory; the socket is closed. */
mongoc_stream_t *hf__mg_stream(struct hf__mg_link *link, int fd);

/* observe.c. Returns a stream around `inner` that keeps the last reply in the link. The new stream
   owns `inner`. */
mongoc_stream_t *hf__mg_observe(struct hf__mg_link *link, mongoc_stream_t *inner);
/* Returns the server's error code in the last reply; 0: there is none, or it can't be read. */
int hf__mg_reply_code(const struct hf__mg_link *link);

#endif
