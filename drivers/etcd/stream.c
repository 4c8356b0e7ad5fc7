/*
 * stream.c - see stream.h.
 */
#include "stream.h"

#include "kit/await.h"

#include <stdlib.h>

struct hf__et_stream {
    struct hf__et_exchange x; /* has the body of the request, which h2 reads */
    hf__et_receive_fn *receive;
    void *arg;
    int ended;
    struct hf__et_h2 *h2;
};

struct hf__et_stream *hf__et_stream_begin(struct hf__et_http *http, enum hf__et_call call,
                                          const ProtobufCMessage *request,
                                          const struct hf__et_mem *mem, hf__et_receive_fn *receive,
                                          void *arg)
{
    struct hf__et_stream *s = mem->failed ? NULL : calloc(1, sizeof *s);
    char *token = NULL;
    if (!s) return NULL;
    s->receive = receive;
    s->arg = arg;
    s->x.call = call;
    if (!hf__et_token(http, &token, NULL) && !hf__et_frame(request, &s->x.body, &s->x.len)) {
        s->x.token = token;
        s->h2 = hf__et_h2_begin(http, &s->x, hf__local_us() + http->io_timeout_ms * 1000);
        s->x.token = NULL;
    }
    hf__et_free_secret(token);
    if (s->h2) return s;
    hf__et_stream_end(s);
    return NULL;
}

void hf__et_stream_end(struct hf__et_stream *s)
{
    if (!s) return;
    hf__et_h2_end(s->h2);
    free(s->x.body);
    free(s);
}

int hf__et_stream_ended(const struct hf__et_stream *s) { return s->ended; }

void hf__et_streams_perform(struct hf__et_stream *const *all, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (all[i] && !all[i]->ended)
            all[i]->ended = hf__et_h2_receive(all[i]->h2, all[i]->receive, all[i]->arg);
}

int hf__et_streams_wait(struct hf__et_stream *const *all, size_t n, int wake_fd, int64_t until_us)
{
    struct pollfd fds[HF_ET_STREAMS_CAP + 1] = {{.fd = wake_fd, .events = POLLIN}};
    nfds_t n_fds = 1;
    for (size_t i = 0; i < n; i++) {
        int to_write;
        if (!all[i] || n_fds > HF_ET_STREAMS_CAP) continue;
        fds[n_fds].fd = hf__et_h2_fd(all[i]->h2, &to_write);
        fds[n_fds++].events = (short)(to_write ? POLLIN | POLLOUT : POLLIN);
    }
    return hf__wait_until(fds, n_fds, until_us) < 0;
}
