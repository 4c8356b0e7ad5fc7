/*
 * promises.c - what a kind of store promises, and what not, in words: for doctor and stores.
 */
#include "promises.h"

#include <stdio.h>
#include <string.h>

static void say_waits(const hf_caps *caps, void (*say)(void *, enum promise, const char *),
                      void *arg)
{
    char line[160];
    snprintf(line, sizeof line, "waiters are served in order, %u in the queue; further ones poll",
             caps->queue_cap);
    if (caps->queues)
        say(arg, PROMISED, line);
    else
        say(arg, LESS, "waiters don't queue: after a release the first that looks gets the key");
    snprintf(line, sizeof line, "a waiter looks about every %u ms",
             caps->poll_ms ? caps->poll_ms : 250);
    if (caps->local || caps->notify)
        say(arg, PROMISED, "a waiter is woken when its turn comes");
    else
        say(arg, LESS, line);
}

void store_promises(const hf_driver *drv, const hf_caps *caps,
                    void (*say)(void *arg, enum promise is, const char *words), void *arg)
{
    say(arg, PROMISED,
        "one holder at a time by key (or as many as asked for), with tokens that only grow");
    say(arg, PROMISED,
        caps->liveness
            ? "a hold lasts as long as its process, whatever the clock says, and ends with it"
            : "a hold is a lease, 30 s unless asked otherwise, renewed while its process runs");
    say_waits(caps, say, arg);
    if (drv->sync)
        say(arg, PROMISED, "the mark of a done event is on disk before the call returns");
    if (!strcmp(drv->name, "mem"))
        say(arg, NOT_PROMISED,
            "anything between processes: the store is the memory of one process");
    if (!strcmp(drv->name, "file"))
        say(arg, NOT_PROMISED,
            "anything between machines: the store is a file that one machine has mapped");
    if (!caps->liveness)
        say(arg, NOT_PROMISED, "that a dead holder's key is free before its lease is over");
    if (!caps->liveness && !caps->sessions)
        say(arg, NOT_PROMISED,
            "anything about a lease if the store's own clock is set back or forward");
    say(arg, NOT_PROMISED,
        "that a holder which was paused does nothing late: let the data refuse old tokens");
}
