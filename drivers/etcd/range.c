/*
 * range.c - see range.h.
 */
#include "range.h"

#include "holdfast_driver.h"

#include <stdlib.h>
#include <string.h>

void hf__et_range_clear(struct hf__et_range *r)
{
    free(r->first);
    free(r->last);
    *r = (struct hf__et_range){NULL, NULL};
}

int hf__et_range_extend(struct hf__et_range *r, const char *key)
{
    int before = !r->first || strcmp(key, r->first) < 0;
    int behind = !r->last || strcmp(key, r->last) > 0;
    char *first = before ? strdup(key) : NULL, *last = behind ? strdup(key) : NULL;
    if ((before && !first) || (behind && !last)) {
        free(first);
        free(last);
        return HF_NOMEM;
    }
    if (before) {
        free(r->first);
        r->first = first;
    }
    if (behind) {
        free(r->last);
        r->last = last;
    }
    return 0;
}

int hf__et_range_widen(struct hf__et_range *r)
{
    size_t n = 0;
    while (r->first[n] && r->first[n] == r->last[n]) n++;
    char *last = malloc(n + 2);
    if (!last) return HF_NOMEM;
    memcpy(last, r->first, n);
    last[n] = '\xff'; /* a byte that no key has */
    last[n + 1] = 0;
    free(r->last);
    r->last = last;
    if (!n) r->first[n++] = ' '; /* no key begins with a smaller byte, but inboxes do */
    r->first[n] = 0;
    return 0;
}
