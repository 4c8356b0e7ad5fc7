/*
 * fuzz.h - what the fuzz targets share: bytes that become values, and a promise that has to hold.
 */
#ifndef HF_FUZZ_H
#define HF_FUZZ_H

#include "holdfast_driver.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

#define MUST(what)                                                             \
    do {                                                                       \
        if (!(what)) {                                                         \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #what); \
            abort();                                                           \
        }                                                                      \
    } while (0)

struct fuzz {
    const uint8_t *at;
    size_t left;
};

static inline uint8_t fuzz_byte(struct fuzz *f)
{
    if (!f->left) return 0;
    f->left--;
    return *f->at++;
}

static inline uint64_t fuzz_number(struct fuzz *f)
{
    uint64_t n = 0;
    for (unsigned bytes = fuzz_byte(f) % 9; bytes; bytes--) n = n << 8 | fuzz_byte(f);
    return n;
}

/* The bytes before the next newline, in memory of exactly their size and a NUL; to be freed. */
static inline char *fuzz_line(struct fuzz *f, size_t *ret_len)
{
    const uint8_t *end = f->left ? memchr(f->at, '\n', f->left) : NULL;
    size_t len = end ? (size_t)(end - f->at) : f->left;
    char *text = malloc(len + 1);
    if (!text) abort();
    if (len) memcpy(text, f->at, len);
    text[len] = 0;
    f->at += len + (end != NULL);
    f->left -= len + (end != NULL);
    if (ret_len) *ret_len = len;
    return text;
}

/* A row that a decoder took for whole is whole; one that it refused has left nothing. */
static inline void fuzz_check_row(int rc, hf_row *row, const char *why)
{
    const char *flaw = NULL;
    if (rc)
        MUST((rc == HF_CORRUPT || rc == HF_INVALID) && why && *why);
    else
        MUST(!hf_row_check(row, &flaw));
}

#endif
