/*
 * reply_head.h - is the header of a reply over HTTP whole? For drivers that use libcurl.
 *
 * libcurl reports success if the connection is closed behind the status line and before the line
 * that tells the body's length: the body then seems to end with the connection. Such a reply has a
 * status and no body. A driver that goes by the status alone would misread it: HTTP 400, for
 * example, is a refused precondition as well as an invalid request.
 *
 * Thread safety: any thread.
 */
#ifndef HF_KIT_REPLY_HEAD_H
#define HF_KIT_REPLY_HEAD_H

#include <stddef.h>
#include <string.h>

#define HF_HEAD_CUT "the connection was closed within the header of the reply"

/* Notes one line of the header, for libcurl's CURLOPT_HEADERFUNCTION. *whole is 0 at first, and 1
   after the empty line that ends the header. An interim reply (1xx) has a header of its own. */
static inline void hf__head_line(int *whole, const char *line, size_t len)
{
    if (len >= 5 && !memcmp(line, "HTTP/", 5)) *whole = 0;
    if ((len == 2 && !memcmp(line, "\r\n", 2)) || (len == 1 && *line == '\n')) *whole = 1;
}

#endif
