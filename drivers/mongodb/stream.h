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

#endif
