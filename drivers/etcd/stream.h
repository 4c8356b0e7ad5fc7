/*
 * stream.h - requests that go on answering (watches), several of which one thread waits for.
 */
#ifndef HF_ETCD_STREAM_H
#define HF_ETCD_STREAM_H

#include "http.h"

struct hf__et_stream;

/* Begins one. `hear` is told, in hf__et_streams_perform, of each answer as the gateway would say
   it; NULL: it can't be read. The multi handle is the waiting thread's. NULL: it can't be begun. */
struct hf__et_stream *hf__et_stream_begin(struct hf__et_http *http, CURLM *multi, const char *path,
                                          const json_t *body,
                                          void (*hear)(void *arg, const json_t *said), void *arg);
void hf__et_stream_end(CURLM *multi, struct hf__et_stream *s);
int hf__et_stream_ended(const struct hf__et_stream *s);

/* Of the array some may be NULL. perform: takes in what has come. 0, or 1: it doesn't work. wait:
   until something has come to one of them, or somebody calls curl_multi_wakeup. */
int hf__et_streams_perform(CURLM *multi, struct hf__et_stream *const *all, size_t n);
int hf__et_streams_wait(CURLM *multi, struct hf__et_stream *const *all, size_t n, int ms);

#endif
