/*
 * mongodb.c - fuzz: any document as a row.
 */
#include "fuzz.h"
#include "mongodb/link.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct hf__row_reader by = {"mongodb", "get", "k", "drop it"};
    const char *why = NULL;
    hf_error err = {0, 0, ""};
    bson_t doc;
    hf_row row, back;
    if (!bson_init_static(&doc, data, size)) return 0;
    hf_row_init(&row);
    hf_row_init(&back);
    int rc = hf__mg_decode(&doc, &by, &row, &err);
    fuzz_check_row(rc, &row, err.text);
    if (!rc) {
        bson_t again = BSON_INITIALIZER, set;
        bson_iter_t it;
        const uint8_t *bytes;
        uint32_t len;
        rc = hf__mg_encode(&row, &again, &why);
        MUST(!rc || rc == HF_INVALID);
        if (!rc) {
            MUST(bson_iter_init_find(&it, &again, "$set") && BSON_ITER_HOLDS_DOCUMENT(&it));
            bson_iter_document(&it, &len, &bytes);
            MUST(bson_init_static(&set, bytes, len) && !hf__mg_decode(&set, &by, &back, &err) &&
                 hf_row_equal(&row, &back));
        }
        bson_destroy(&again);
    }
    hf_row_clear(&row);
    hf_row_clear(&back);
    return 0;
}
