/*
 * fields.c - fuzz: any fields as a row of format 2, which then is one that can be written and read
 * again, as text and as a tree.
 */
#include "fuzz.h"
#include "kit/columns.h"

static void again(const hf_row *row, enum hf__json_as as)
{
    struct hf__fields f, read = HF_NO_FIELDS;
    const char *why = NULL;
    hf_row back;
    hf_row_init(&back);
    int rc = hf__put_fields(row, as, &f, &why);
    MUST(!rc || (rc == HF_INVALID && why)); /* texts that aren't UTF-8 */
    for (int i = 0; !rc && i < HF_FIELDS; i++) {
        if (hf__field[i].kind == HF_NUMBER)
            hf__got_number(&read, i, f.n[i]);
        else if (hf__field[i].kind == HF_TEXT || as == HF_JSON_TEXT)
            hf__got_text(&read, i, f.text[i], f.len[i]);
        else if (f.json[i])
            hf__got_json(&read, i, json_incref(f.json[i]));
    }
    if (!rc) MUST(!hf__read_fields(&read, as, &back, &why) && hf_row_equal(&back, row));
    hf__free_fields(&f);
    hf__free_fields(&read);
    hf_row_clear(&back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz from = {data, size};
    struct hf__fields f = HF_NO_FIELDS;
    char *texts[HF_FIELDS] = {NULL};
    const char *why = NULL;
    hf_row row;
    uint64_t missing = fuzz_number(&from);
    for (int i = 0; i < HF_FIELDS; i++) {
        size_t len;
        if (missing >> i & 1) continue;
        if (hf__field[i].kind == HF_NUMBER) {
            hf__got_number(&f, i, (int64_t)fuzz_number(&from));
        } else {
            texts[i] = fuzz_line(&from, &len);
            hf__got_text(&f, i, texts[i], len);
        }
    }
    hf_row_init(&row);
    int rc = hf__read_fields(&f, HF_JSON_TEXT, &row, &why);
    fuzz_check_row(rc, &row, why);
    if (!rc) again(&row, HF_JSON_TEXT);
    if (!rc) again(&row, HF_JSON_TREE);
    hf_row_clear(&row);
    hf__free_fields(&f);
    for (int i = 0; i < HF_FIELDS; i++) free(texts[i]);
    return 0;
}
