/*
 * mysay.h - a server that speaks MariaDB's protocol and has an empty table, and the driver mariadb
 * before it. What the test wants is answered by an error, or not at all.
 */
#ifndef HF_MYSAY_H
#define HF_MYSAY_H

#include "fakes/said.h"

/* Changed while no request is under way. */
struct my_error {
    const char *part; /* a part of the requests that this is for; NULL: every request is answered as
                         usual */
    int at, number;   /* at: of its statements it is the one that fails, by this error (0: none) */
    int mutes;        /* how many of these requests get no answer at all */
};
extern struct my_error my_bad;
/* The part that stands for the settings at the front of a request: `at` is the one that fails. */
#define MY_SETTINGS "SET autocommit"
/* 1: new connections are told another number than the server's, as by a pooler. */
extern int my_pooled;
/* 1: the server says that it is read-only. It takes each write all the same, as from a user with
   the privilege READ ONLY ADMIN. */
extern int my_read_only;
extern const hf_driver *mariadb;

/* Starts the server and finds the driver, once in a program. Returns 0 if the driver is missing,
   which is printed. */
int my_begin(void);
/* HOST in the URL stands for where the server is. */
int my_opens(const char *form, int64_t io_ms, hf_store **ret);

#endif
