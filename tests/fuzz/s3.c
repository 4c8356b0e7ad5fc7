/*
 * s3.c - fuzz: any text as an answer in XML, and as the name of an object; any key's name, and
 * back.
 */
#include "fuzz.h"
#include "s3/store.h"

static void read_answer(const char *xml)
{
    static const char *const names[] = {"Key", "Code", "IsTruncated"};
    char to[40];
    for (size_t i = 0; i < 3; i++)
        for (const char *at = xml; (at = hf__s3_element(at, names[i], to, sizeof to));)
            MUST(at >= xml && at < xml + strlen(xml) && strlen(to) < sizeof to);
}

/* Each key has one name, which begins as the names of all keys with its prefix do. */
static void name(const char *text)
{
    char to[HF_S3_NAME + 1], again[HF_KEY_CAP], begin[HF_S3_NAME + 1];
    uint32_t len;
    hf_rowkey key;
    if (hf_key_make(text, &key, NULL)) return;
    hf__s3_name(key.text, key.len, to);
    MUST(strlen(to) <= HF_S3_NAME);
    MUST(hf__s3_key(to, again, &len) && len == key.len && !strcmp(again, text));
    again[len / 2] = 0;
    if (!strncmp(to, HF_S3_LONGS, 2)) return;
    MUST(hf__s3_name_prefix(again, begin) && !strncmp(to, begin, strlen(begin)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz f = {data, size};
    char *text = fuzz_line(&f, NULL), key[HF_KEY_CAP], to[HF_S3_NAME + 1];
    uint32_t len;
    read_answer(text);
    name(text);
    if (hf__s3_key(text, key, &len)) {
        hf__s3_name(key, len, to);
        MUST(!strcmp(to, text));
    }
    free(text);
    return 0;
}
