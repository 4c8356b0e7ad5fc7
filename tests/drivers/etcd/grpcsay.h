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
    GRPC_GONE,  /* it closes connections on which HTTP/2 is spoken */
    GRPC_MUTE   /* it says nothing on them */
};

/* On a port of the loopback device, which is returned; once a program. */
int grpcsay_begin(void);
/* Forgets what was to be said; counts from 0. */
void grpcsay_anew(enum grpcsay how);
/* What it says of the date; NULL: nothing. Good as long as the text is. */
void grpcsay_date(const char *date);
void grpcsay_go_on(void);
int grpcsay_requests(void);    /* that came whole */
int grpcsay_connections(void); /* on which HTTP/2 was spoken */
int grpcsay_dates(void);       /* that were asked for */

/* What it answers, piece after piece. Headers are names and values, the last one NULL. */
void say_headers(int ends, const char *const *all);
void say_data(int ends, const void *bytes, size_t len);
enum { FRAME_RST = 3, FRAME_PING = 6, FRAME_GOAWAY = 7 };
void say_frame(int type, int flags, int of_stream, const void *bytes, size_t len);
void say_less(size_t bytes); /* so many of what was put together aren't said */
void say_later(void);        /* what follows is said only when grpcsay_go_on is called */
void say_close(void);        /* then the connection is closed */
/* What follows is for the next request. For further ones the last is said again. */
void say_next(void);

/* Well: these bytes as a message, or none with that status and text. */
void say_message(const void *bytes, size_t len);
void say_status(const char *status, const char *message);

#endif
