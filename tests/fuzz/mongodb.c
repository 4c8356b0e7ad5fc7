/*
 * mongodb.c - fuzz: any document as a row.
 */
#include "fuzz.h"
#include "mongodb/link.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *why = NULL;
    bson_t doc;
    hf_row row, back;
    if (!bson_init_static(&doc, data, size)) return 0;
    hf_row_init(&row);
    hf_row_init(&back);
    int rc = hf__mg_decode(&doc, &row, &why);
    fuzz_check_row(rc, &row, why);
    if (!rc) {
        bson_t again = BSON_INITIALIZER;
        rc = hf__mg_encode(&row, &again, &why);
        MUST(!rc || rc == HF_INVALID);
        if (!rc) MUST(!hf__mg_decode(&again, &back, &why) && hf_row_equal(&row, &back));
        bson_destroy(&again);
    }
    hf_row_clear(&row);
    hf_row_clear(&back);
    return 0;
}
