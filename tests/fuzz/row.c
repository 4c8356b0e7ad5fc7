/*
 * row.c - fuzz: any columns as a row, which then is one that can be written and read again.
 */
#include "columns.h"
#include "fuzz.h"

static void again(const hf_row *row)
{
    struct hf__flat flat = {.others = NULL, .queue = NULL};
    const char *why = NULL;
    hf_row back, copy;
    hf_row_init(&back);
    hf_row_init(&copy);
    MUST(!hf_row_copy(&copy, row) && hf_row_equal(&copy, row));
    int rc = hf__flatten(row, &flat, &why);
    MUST(!rc || (rc == HF_INVALID && why)); /* texts that aren't UTF-8 */
    if (!rc) {
        MUST(!hf__unflatten(&flat, &back, &why));
        MUST(hf_row_equal(&back, row));
    }
    hf__flat_free(&flat);
    hf_row_clear(&back);
    hf_row_clear(&copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz f = {data, size};
    struct hf__flat flat;
    char *texts[HF_COLS] = {NULL};
    const char *why = NULL;
    hf_row row;
    memset(&flat, 0, sizeof flat);
    for (int i = 0; i < HF_COLS; i++) {
        flat.text[i] = "";
        if (hf__column_is_text[i])
            flat.text[i] = texts[i] = fuzz_line(&f, &flat.len[i]);
        else
            flat.n[i] = (int64_t)fuzz_number(&f);
    }
    hf_row_init(&row);
    int rc = hf__unflatten(&flat, &row, &why);
    fuzz_check_row(rc, &row, why);
    if (!rc) again(&row);
    hf_row_clear(&row);
    for (int i = 0; i < HF_COLS; i++) free(texts[i]);
    return 0;
}
