/*
 * document_test.c - drivers/kit/document.h: a row as one JSON object and back; and the JSON of a
 * file (drivers/json.h).
 */
#include "json.h"
#include "kit/document.h"
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct hf__row_reader where = {"shelf", "get", "k", "rm k"};
static hf_error err;

static void party(hf_party *p, unsigned n)
{
    memset(p, 0, sizeof *p);
    p->id[0] = (uint8_t)n;
    p->lease_ms = 30000;
    p->since_us = 1000;
    p->owner_len = (uint8_t)snprintf(p->owner, sizeof p->owner, "owner-%u", n);
}

/* A holder and, if `more`, a waiter and a marker. */
static void make(hf_row *row, int more)
{
    hf_row_init(row);
    row->rev = row->token = 7;
    row->n_holders = 1;
    party(&row->party[0], 1);
    row->party[0].token = 7;
    row->party[0].expires_us = 2000;
    if (!more) return;
    row->n_queue = 1;
    party(&row->party[1], 2);
    row->done_us = 5;
    row->keep_until_us = INT64_MAX;
    row->done_by_len = 1;
    memcpy(row->done_by, "d", 2);
}

static void there_and_back(void **state)
{
    (void)state;
    for (int more = 0; more < 2; more++) {
        hf_row row, back;
        json_t *document;
        make(&row, more);
        hf_row_init(&back);
        assert_int_equal(hf__row_to_document(&row, &where, &document, &err), 0);
        assert_int_equal(json_object_size(document), more ? 11 : 9);
        assert_int_equal(hf__row_from_document(document, &where, &back, &err), 0);
        assert_true(hf_row_equal(&row, &back));
        json_decref(document);
        assert_int_equal(hf__row_from_document(NULL, &where, &back, &err), 0);
        assert_int_equal(back.rev, 0);
    }
}

static void what_is_no_row(void **state)
{
    static const char *const texts[] = {"[]", "{}", "{\"format\": 3}", "{\"format\": \"2\"}"};
    hf_row row;
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        json_t *document = json_loads(texts[i], 0, NULL);
        make(&row, 1);
        assert_int_equal(hf__row_from_document(document, &where, &row, &err), HF_CORRUPT);
        assert_non_null(strstr(err.text, "shelf: get 'k': "));
        assert_int_equal(row.rev, 0);
        json_decref(document);
    }
    /* A field of another type, of a row that is good otherwise. */
    json_t *document;
    make(&row, 0);
    assert_int_equal(hf__row_to_document(&row, &where, &document, &err), 0);
    json_object_set_new(document, "note", json_integer(1));
    assert_int_equal(hf__row_from_document(document, &where, &row, &err), HF_CORRUPT);
    assert_non_null(strstr(err.text, "'note'"));
    json_decref(document);
}

static void what_cannot_be_written(void **state)
{
    hf_row row;
    json_t *document = NULL;
    (void)state;
    make(&row, 0);
    row.party[0].owner[0] = (char)0xff;
    assert_int_equal(hf__row_to_document(&row, &where, &document, &err), HF_INVALID);
    assert_null(document);
}

static int allocations;
static void *scarce(size_t n) { return allocations-- > 0 ? malloc(n) : NULL; }

static void without_memory(void **state)
{
    hf_row row, back;
    int rc = HF_NOMEM;
    (void)state;
    make(&row, 1);
    hf_row_init(&back);
    for (int n = 0; rc; n++) {
        json_t *document = NULL;
        json_set_alloc_funcs(scarce, free);
        allocations = n;
        rc = hf__row_to_document(&row, &where, &document, &err);
        json_set_alloc_funcs(malloc, free);
        assert_true(!rc || rc == HF_NOMEM || (rc == HF_INVALID && !n));
        if (rc) continue;
        assert_int_equal(hf__row_from_document(document, &where, &back, &err), 0);
        assert_true(hf_row_equal(&row, &back)); /* nothing was left out */
        json_decref(document);
    }
}

static void files(void **state)
{
    static const struct {
        const char *text;
        int rc;
    } of[] = {{"{\"a\": 1}", 0}, {"[1]", 0},     {"", EBADMSG},
              {"1", EBADMSG},    {"{", EBADMSG}, {"{\"a\": 1, \"a\": 2}", EBADMSG}};
    char dir[] = "/tmp/holdfast-document-XXXXXX", path[64];
    json_t *json;
    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/f", dir);
    int at = open(dir, O_RDONLY | O_DIRECTORY);
    assert_int_equal(hf__json_load(at, "f", &json), ENOENT);
    assert_null(json);
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        fputs(of[i].text, f);
        fclose(f);
        assert_int_equal(hf__json_load(at, "f", &json), of[i].rc);
        assert_int_equal(json != NULL, !of[i].rc);
        json_decref(json);
    }
    assert_int_equal(hf__json_load(at, ".", &json), EISDIR);
    unlink(path);
    rmdir(dir);
    close(at);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_and_back), cmocka_unit_test(what_is_no_row),
        cmocka_unit_test(what_cannot_be_written), cmocka_unit_test(without_memory),
        cmocka_unit_test(files)};
    return TEST_MAIN(tests);
}
