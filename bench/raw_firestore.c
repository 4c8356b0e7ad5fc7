/*
 * raw_firestore.c - a conditional write by libcurl alone: a commit of one document, of as many
 * fields as a row of Holdfast has, on the precondition that it was last changed by the one before.
 */
#include "bench.h"
#include "raw.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FIELDS_CAP = 4096 };

static const char owner[] = "Authorization: Bearer owner";
static char commit[400], missing[400], name[300], when[64];
static unsigned long long rev;

static void write_it(void)
{
    static char fields[FIELDS_CAP], mask[FIELDS_CAP], body[3 * FIELDS_CAP];
    char next[24];
    size_t n = 0, m = 0;
    long status;
    snprintf(next, sizeof next, "%llu", ++rev);
    /* Fields of JSON, which are empty, are in the mask alone: that deletes what was there. */
    for (int i = 0; i < HF_FIELDS; i++) {
        const char *value = i == HF_FIELD_REV ? next : raw_value[i];
        m += (size_t)snprintf(mask + m, sizeof mask - m, "%s\"`%s`\"", i ? ", " : "", raw_name[i]);
        if (raw_kind[i] == HF_JSON) continue;
        n += (size_t)snprintf(fields + n, sizeof fields - n,
                              raw_kind[i] == HF_TEXT ? "%s\"%s\": {\"stringValue\": \"%s\"}"
                                                     : "%s\"%s\": {\"integerValue\": \"%s\"}",
                              i ? ", " : "", raw_name[i], value);
    }
    snprintf(body, sizeof body,
             "{\"writes\": [{\"update\": {\"name\": \"%s\", \"fields\": {%s}}, \"updateMask\": "
             "{\"fieldPaths\": [%s]}, \"currentDocument\": {%s%s%s}}]}",
             name, fields, mask, *when ? "\"updateTime\": \"" : "\"exists\": false", when,
             *when ? "\"" : "");
    const char *answer = raw_http(commit, body, owner, &status);
    const char *time = strstr(answer, "\"updateTime\"");
    if (status != 200 || !time) bench_die("firestore: not replaced: %s", answer);
    time = strchr(time + strlen("\"updateTime\""), '"');
    snprintf(when, sizeof when, "%.*s", (int)strcspn(time + 1, "\""), time + 1);
}

/* A document that isn't there. */
static void trip(void)
{
    long status;
    const char *answer = raw_http(missing, NULL, owner, &status);
    if (status != 404) bench_die("firestore: %s", answer);
}

static void open_it(const char *url, int durable)
{
    const char *host = getenv("FIRESTORE_EMULATOR_HOST"), *project = strstr(url, "://");
    int len = project ? (int)strcspn(project + 3, "/?") : 0;
    char documents[200];
    if (durable) bench_die("firestore: the emulator keeps everything in memory");
    if (!host || !project) bench_die("'%s': an emulator and a project are needed", url);
    snprintf(documents, sizeof documents, "projects/%.*s/databases/(default)/documents", len,
             project + 3);
    /* On this server there may have been others before. */
    snprintf(name, sizeof name, "%s/raw/bench-%d", documents, (int)getpid());
    snprintf(commit, sizeof commit, "http://%s/v1/%s:commit", host, documents);
    snprintf(missing, sizeof missing, "http://%s/v1/%s/raw/none", host, documents);
    write_it();
    write_it();
}

const struct raw raw_firestore = {"firestore", open_it, write_it, trip};
