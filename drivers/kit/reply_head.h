/*
 * reply_head.h - checks that the header of an HTTP reply is whole. For drivers that use libcurl.
 *
 * libcurl reports success if the connection is closed after the status line and before the line
 * with the body's length: then the body seems to end with the connection. Such a reply has a status
 * and no body. A driver that reads only the status would misunderstand it: HTTP 400, for example,
 * means a refused precondition or an invalid request.
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
