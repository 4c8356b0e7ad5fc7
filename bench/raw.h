/*
 * raw.h - a store's own library without anything of ours: what a lock is measured against. A store
 * has a file raw_NAME.c with one of these, and a line in raw.c.
 */
#ifndef BENCH_RAW_H
#define BENCH_RAW_H

struct raw {
    const char *scheme;
    void (*open)(const char *url); /* connects, makes a row */
    /* Replaces that row, with as much in it as a held lock's, if it is still the one that it was.
     */
    void (*write)(void);
};
extern const struct raw *const raws[]; /* NULL at the end */
extern const struct raw raw_redis;

#endif
