/*
 * change.c - mongodb: reads from an event of a change stream which row has changed, and how.
 */
#include "kit/text.h"
#include "store.h"

#include <string.h>

#define CHANGED "updateDescription.updatedFields."

/* Finds the value at this path of the event. Returns 0 if there is none. */
static int find_at(const bson_t *event, const char *path, bson_iter_t *ret)
{
    bson_iter_t it;
    return bson_iter_init(&it, event) && bson_iter_find_descendant(&it, path, ret);
}

static int number_at(const bson_t *event, const char *path, int64_t *ret)
{
    bson_iter_t it;
    if (!find_at(event, path, &it) || !BSON_ITER_HOLDS_NUMBER(&it)) return 0;
    *ret = bson_iter_as_int64(&it);
    return *ret >= 0;
}

void hf__mg_change_holder(const bson_t *event, hf_party *ret)
{
    bson_iter_t it;
    int64_t token, flags = HF_PARTY_UNCLAIMED;
    uint32_t len;
    ret->token = 0;
    if (!find_at(event, CHANGED "request", &it) || !BSON_ITER_HOLDS_UTF8(&it)) return;
    const char *text = bson_iter_utf8(&it, &len);
    if (!hf__read_id(text, len, ret->id) || !number_at(event, CHANGED "token", &token) ||
        !number_at(event, CHANGED "acquired_us", &ret->since_us) ||
        !number_at(event, CHANGED "expires_us", &ret->expires_us))
        return;
    /* A handover puts the flag UNCLAIMED into `more`. An event has only fields that have changed,
       so `more` is missing if the former holder hadn't claimed the key either. */
    if (find_at(event, CHANGED "more", &it)) {
        flags = 0;
        if (!BSON_ITER_HOLDS_DOCUMENT(&it)) return;
        number_at(event, CHANGED "more.flags", &flags);
        number_at(event, CHANGED "more.token", &token);
    }
    ret->flags = (uint8_t)flags;
    ret->token = (uint64_t)token;
}

const char *hf__mg_change_key(const bson_t *event, uint32_t *ret_len)
{
    bson_iter_t id;
    if (!find_at(event, "documentKey._id", &id) || !BSON_ITER_HOLDS_UTF8(&id)) return NULL;
    return bson_iter_utf8(&id, ret_len);
}

int hf__mg_change_concerns(const bson_t *event, const char *address)
{
    bson_iter_t it;
    if (!find_at(event, CHANGED HF_MG_ADDRESSES, &it) || !BSON_ITER_HOLDS_UTF8(&it))
        return 1; /* the row was deleted, or another program wrote it: it may concern any waiter */
    return strstr(bson_iter_utf8(&it, NULL), address) != NULL;
}

#define FIELD(name) CHANGED name, BCON_INT32(1)

bson_t *hf__mg_change_pipeline(void)
{
    return BCON_NEW("pipeline", "[", "{", "$project", "{", "documentKey", BCON_INT32(1),
                    FIELD("request"), FIELD("token"), FIELD("acquired_us"), FIELD("expires_us"),
                    FIELD("more"), FIELD(HF_MG_ADDRESSES), "}", "}", "]");
}
