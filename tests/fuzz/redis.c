/*
 * redis.c - fuzz: any bytes as what a server answers to a script, and as a message.
 */
#include "fuzz.h"

#include "../../drivers/redis/redis.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    redisReader *reader = redisReaderCreate();
    void *got = NULL;
    hf_error err = {0, 0, ""};
    hf_rowkey key;
    hf_party party;
    hf_row row;
    if (!reader || hf_key_make("k", &key, &err)) abort();
    memset(&party, 0, sizeof party);
    party.owner_len = (uint8_t)snprintf(party.owner, sizeof party.owner, "o");
    party.lease_ms = 1000;
    hf_row_init(&row);
    redisReaderFeed(reader, (const char *)data, size);
    while (redisReaderGetReply(reader, &got) == REDIS_OK && got) {
        redisReply *r = got;
        if (r->type != REDIS_REPLY_ERROR && hf__rd_shaped(r)) {
            (void)hf__rd_clock_of(r);
            fuzz_check_row(hf__rd_decode(r, &row, "get", "k", &err), &row, err.text);
            int rc = taken(r, &key, &party, &row, &err);
            MUST(!rc || rc == HF_CORRUPT || rc == HF_UNKNOWN);
        }
        freeReplyObject(r);
        got = NULL;
    }
    redisReaderFree(reader);
    char *said = calloc(1, size + 1);
    if (!said) abort();
    memcpy(said, data, size);
    if (hf__rd_read_word(said, size, &row) && row.rev)
        fuzz_check_row(0, &row, "");
    else
        MUST(row.n_holders <= 1 && !row.n_queue);
    free(said);
    hf_row_clear(&row);
    return 0;
}
