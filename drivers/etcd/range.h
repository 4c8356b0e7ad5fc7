/*
 * range.h - etcd: a range of keys to be watched, which grows.
 */
#ifndef HF_ETCD_RANGE_H
#define HF_ETCD_RANGE_H

/* All keys from the first to the last; NULL: no keys. */
struct hf__et_range {
    char *first, *last;
};

/* Extends the range so that it has the key. Returns 0 or HF_NOMEM: then the range is as before. */
int hf__et_range_extend(struct hf__et_range *r, const char *key);
/* Widens the range to all keys that begin with the common prefix of its ends. Keys that are waited
   for later are mostly among them, and so need no further stream. Returns 0 or HF_NOMEM. */
int hf__et_range_widen(struct hf__et_range *r);
void hf__et_range_clear(struct hf__et_range *r);

#endif
