/*
 * stream.h - mongodb: a connection of a link, as libmongoc reads and writes it.
 *
 * libmongoc's own sockets have a time limit for each call, and names are looked up without any. A
 * stream of this file never waits beyond link->until_us (local time; 0: no such limit), sets
 * link->broken when it fails, and can be stopped when the program ends.
 */
#ifndef HF_MONGODB_STREAM_H
#define HF_MONGODB_STREAM_H

#include "link.h"

/* The socket is connected, non-blocking, and the stream's from then on; -1: the stream is broken,
   all that is done with it fails. NULL: no memory, and the socket is closed. */
mongoc_stream_t *hf__mg_stream(struct hf__mg_link *link, int fd);

/* observe.c. The same stream, whose last reply is kept in the link; it destroys `inner`. */
mongoc_stream_t *hf__mg_observe(struct hf__mg_link *link, mongoc_stream_t *inner);
/* The server's code in the last reply; 0: there is none, or it can't be told. */
int hf__mg_reply_code(const struct hf__mg_link *link);

#endif
