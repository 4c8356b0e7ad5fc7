/*
 * etcd_serve.h - the answers of answers.h by gRPC, as etcd gives them: bodies are JSON (see
 * etcd_text.h), a line each where a call goes on answering; and a date by HTTP/1.1.
 */
#ifndef HF_ETCD_SERVE_H
#define HF_ETCD_SERVE_H

/*
 * Serves that connection until it ends. What an answer becomes:
 *
 *     200              the body as a message (what isn't one: its bytes, as they are), and OK
 *     another status   the body's "error" with its "code" (or UNKNOWN); a body without "error": a
 *                      proxy's answer of that HTTP status
 *     ANSWER_OPEN      messages, and the call goes on
 *     ANSWER_CUT       a part of the body, and the connection is closed
 *     ANSWER_HEAD_CUT  headers with that HTTP status, and the connection is closed
 *     ANSWER_CLOSED    the connection is closed
 */
void etcd_serve(int fd);

#endif
