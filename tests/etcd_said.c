/*
 * etcd_said.c - see etcd_said.h.
 */
#include "etcd_said.h"

#include <stdio.h>
#include <string.h>

const struct answer well = {"", 200, "{" HEADER "}", 0};

void are(struct answer first)
{
    const struct answer two[] = {first, well};
    answers_are(two, 2);
}

hf_store *opened(void)
{
    hf_store *st = NULL;
    answers_are(&well, 1);
    if (opens("etcd://127.0.0.1:PORT/p/?api=json", &st)) fail_msg("%s", err.text);
    return st;
}

const char *kv(const char *name, const char *value)
{
    static char ring[4][8192];
    static int at;
    char *to = ring[at++ % 4];
    const char *tab = strchr(name, '\t');
    snprintf(to, sizeof ring[0], "{\"key\": \"%s\", \"value\": \"%s\"%s}",
             answers_base64(name, strlen(name)), answers_base64(value, strlen(value)),
             tab && strlen(tab) == 17 ? ", \"lease\": \"7\"" : "");
    return to;
}
