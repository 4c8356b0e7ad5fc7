/*
 * stream.h - requests that go on answering (watches). One thread can wait for several of them.
 */
#ifndef HF_ETCD_STREAM_H
#define HF_ETCD_STREAM_H

#include "h2.h"

struct hf__et_stream;

/* Begins a request that goes on answering; `mem` as for hf__et_post. hf__et_streams_perform calls
   `receive` for each answer. Returns NULL if it can't be begun. */
struct hf__et_stream *hf__et_stream_begin(struct hf__et_http *http, enum hf__et_call call,
                                          const ProtobufCMessage *request,
                                          const struct hf__et_mem *mem, hf__et_receive_fn *receive,
                                          void *arg);
void hf__et_stream_end(struct hf__et_stream *s);
int hf__et_stream_ended(const struct hf__et_stream *s);

/* `perform` takes in what has come to the streams. `wait` returns when bytes have come to one of
   them, when wake_fd can be read (-1: none), or at local time until_us; 1: it can't wait. Pointers
   in the array may be NULL. */
enum { HF_ET_STREAMS_CAP = 16 };
void hf__et_streams_perform(struct hf__et_stream *const *all, size_t n);
int hf__et_streams_wait(struct hf__et_stream *const *all, size_t n, int wake_fd, int64_t until_us);

#endif
