/*
 * redis.c - fuzz: any bytes as what a server answers to a script, as a message, and as commands
 * (which hiredis formats alike).
 */
#include "fuzz.h"

#include "../../drivers/redis/redis.c"

/* Each line is a word; the same command twice. */
static void check_commands(struct fuzz f)
{
    enum { MOST = 40 };
    struct hf__rd_batch batch = {NULL, 0, 0, 0, 0};
    char *word[MOST], *formatted;
    size_t len[MOST];
    int n = 0;
    while (n < MOST && f.left) {
        word[n] = fuzz_line(&f, &len[n]);
        n++;
    }
    if (!n) return;
    long long is = redisFormatCommandArgv(&formatted, n, (const char **)word, len);
    MUST(is > 0);
    for (int i = 0; i < 2; i++) hf__rd_put(&batch, n, (const char *const *)word, len);
    MUST(!batch.failed && batch.n == 2 && batch.len == 2 * (size_t)is);
    for (int i = 0; i < 2; i++) MUST(!memcmp(batch.text + i * is, formatted, (size_t)is));
    redisFreeCommand(formatted);
    hf__rd_batch_free(&batch);
    while (n) free(word[--n]);
}

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
            int rc = acquired(r, &key, &party, &row, &err);
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
    check_commands((struct fuzz){data, size});
    return 0;
}
