/*
 * firestore.c - fuzz: any document as a row, any text as a time.
 */
#include "firestore/fields.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz f = {data, size};
    uint8_t how = fuzz_byte(&f);
    if (how % 8 == 7) {
        json_t *time = json_stringn((const char *)f.at, f.left);
        char text[HF_FS_TIME_CAP];
        int64_t us = hf__fs_time(time);
        if (us >= 0) hf__fs_time_text(us, text);
        json_decref(time);
        return 0;
    }
    json_t *fields = json_loadb((const char *)f.at, f.left, 0, NULL);
    const struct hf__row_reader by = {"firestore", "get", "k", "delete it"};
    const char *why = NULL;
    hf_error err = {0, 0, ""};
    hf_row row, back;
    hf_row_init(&row);
    hf_row_init(&back);
    int rc = hf__fs_row(fields, &by, &row, &err);
    fuzz_check_row(rc, &row, err.text);
    if (!rc) {
        json_t *again = hf__fs_fields("k", &row, &rc, &why);
        MUST(again && !hf__fs_row(again, &by, &back, &err) && hf_row_equal(&row, &back));
        json_decref(again);
    }
    hf_row_clear(&row);
    hf_row_clear(&back);
    json_decref(fields);
    return 0;
}
