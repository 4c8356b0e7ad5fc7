/*
 * staged_memory.c - allocations that fail: see staged.h.
 */
#include "staged.h"

#include <stdlib.h>

static int failing; /* atomic: the allocation that fails, counted down; 0: none */

static int fails(void)
{
    int n = __atomic_load_n(&failing, __ATOMIC_SEQ_CST);
    while (n > 0 &&
           !__atomic_compare_exchange_n(&failing, &n, n - 1, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        continue;
    return n == 1;
}

int stage_no_memory(int nth)
{
    static int last;
    int left = __atomic_exchange_n(&failing, nth, __ATOMIC_SEQ_CST), failed = last && !left;
    last = nth;
    return failed;
}

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_malloc(size_t size) { return fails() ? NULL : __real_malloc(size); }
void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size) { return fails() ? NULL : __real_calloc(n, size); }
void *__real_realloc(void *old, size_t size);
void *__wrap_realloc(void *old, size_t size);
void *__wrap_realloc(void *old, size_t size) { return fails() ? NULL : __real_realloc(old, size); }
char *__real_strdup(const char *text);
char *__wrap_strdup(const char *text);
char *__wrap_strdup(const char *text) { return fails() ? NULL : __real_strdup(text); }
