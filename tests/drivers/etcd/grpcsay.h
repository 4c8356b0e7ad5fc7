/*
 * grpcsay.h - a server that answers any bytes of HTTP/2 to a client of gRPC, and a date to a
 * client of HTTP/1.1.
 */
#ifndef GRPCSAY_H
#define GRPCSAY_H

#include <stddef.h>

enum grpcsay {
    GRPC_WELL,  /* it speaks HTTP/2 */
    GRPC_HTTP1, /* HTTP/1.1 only */
    GRPC_GONE,  /* closes connections on which HTTP/2 is spoken */
    GRPC_MUTE,  /* sends nothing on them */
    GRPC_OTHER  /* speaks another protocol on each connection */
};

/* On a port of the loopback device, which is returned; once a program. */
int grpcsay_begin(void);
/* Forgets the answers, and counts from 0. */
void grpcsay_anew(enum grpcsay how);
/* Sets the date that it gives; NULL: none. The text has to last. */
void grpcsay_date(const char *date);
void grpcsay_go_on(void);
int grpcsay_requests(void);    /* that came whole */
int grpcsay_connections(void); /* on which HTTP/2 was spoken */
int grpcsay_dates(void);       /* that were asked for */

/* Set its answer, piece after piece. Headers are names and values, the last one NULL. */
void say_headers(int ends, const char *const *all);
void say_data(int ends, const void *bytes, size_t len);
enum { FRAME_RST = 3, FRAME_PING = 6, FRAME_GOAWAY = 7 };
void say_frame(int type, int flags, int of_stream, const void *bytes, size_t len);
void say_less(size_t bytes); /* leaves out the last bytes of the answer */
void say_later(void);        /* the pieces that follow are sent only after grpcsay_go_on */
void say_close(void);        /* then the connection is closed */
/* The pieces that follow are for the next request. Further requests get the last answer again. */
void say_next(void);

/* Well: these bytes as a message, or none with that status and text. */
void say_message(const void *bytes, size_t len);
void say_status(const char *status, const char *message);

#endif
