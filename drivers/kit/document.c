/*
 * document.c - see document.h.
 */
#include "document.h"

int hf__row_to_document(const hf_row *row, const struct hf__row_reader *where, json_t **ret,
                        hf_error *err)
{
    struct hf__fields f;
    const char *why;
    int bad = 0, rc = hf__put_fields(row, HF_JSON_TREE, &f, &why);
    json_t *document = rc ? NULL : json_object();
    for (int i = 0; document && i < HF_FIELDS; i++) {
        const char *name = hf__field[i].name;
        if (hf__field[i].kind == HF_NUMBER)
            bad |= json_object_set_new(document, name, json_integer(f.n[i]));
        else if (hf__field[i].kind == HF_TEXT)
            bad |= json_object_set_new(document, name, json_stringn(f.text[i], f.len[i]));
        else if (f.json[i])
            bad |= json_object_set(document, name, f.json[i]);
    }
    hf__free_fields(&f);
    if (!rc && (!document || bad)) {
        rc = HF_NOMEM;
        why = "out of memory";
        json_decref(document);
    }
    if (rc)
        return hf_fail(err, rc, 0, "%s: %s '%s': %s", where->store, where->what, where->key, why);
    *ret = document;
    return 0;
}

int hf__row_from_document(const json_t *document, const struct hf__row_reader *where, hf_row *row,
                          hf_error *err)
{
    struct hf__fields f = HF_NO_FIELDS;
    const char *why;
    hf_row_clear(row);
    if (!document) return 0;
    for (int i = 0; i < HF_FIELDS; i++) {
        json_t *value = json_object_get(document, hf__field[i].name);
        if (!value) continue;
        if (hf__field[i].kind == HF_JSON)
            hf__got_json(&f, i, json_incref(value));
        else if (hf__field[i].kind == HF_NUMBER && json_is_integer(value))
            hf__got_number(&f, i, json_integer_value(value));
        else if (hf__field[i].kind == HF_TEXT && json_is_string(value))
            hf__got_text(&f, i, json_string_value(value), json_string_length(value));
        else
            hf__got_other(&f, i);
    }
    int rc = hf__read_fields(&f, HF_JSON_TREE, row, &why);
    if (rc) rc = hf__fields_refused(where, &f, rc, why, err);
    hf__free_fields(&f);
    return rc;
}
