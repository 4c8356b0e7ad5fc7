/*
 * front.h - the URL of a store whose server is reached through a port of this machine instead.
 */
#ifndef FRONT_H
#define FRONT_H

#include <stddef.h>

/* The server's address of the test URL `url` (HOST:PORT, or the path of a socket), and the URL with
   the port in its place. (firestore: has no server in its URL: FIRESTORE_EMULATOR_HOST is to be
   set.) Returns 0, or -1: not a URL of a store with a server. */
int front_url(const char *url, char *server, size_t cap, char *front, size_t front_cap, int port);

#endif
