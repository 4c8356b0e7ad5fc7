/*
 * said.c - see said.h.
 */
#include "said.h"

#include "test.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

hf_rowkey key;
hf_error err;

void said(int rc, int code, const char *text)
{
    if (rc != code || (text && !strstr(err.text, text)))
        fail_msg("%d, %s: not %d, %s", rc, err.text, code, text ? text : "");
    assert_null(strstr(err.text, "s3cr3t"));
}

int said_listens(int receive_bytes, int *ret_port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0) return -1;
    if (receive_bytes) setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
    if (bind(fd, (struct sockaddr *)&a, sizeof a) || listen(fd, 64) ||
        getsockname(fd, (struct sockaddr *)&a, &len)) {
        close(fd);
        return -1;
    }
    *ret_port = ntohs(a.sin_port);
    return fd;
}

hf_caps said_caps;

int said_opens(const hf_driver *drv, const char *form, int port, int64_t io_ms, hf_store **ret)
{
    hf_url url;
    char text[2500];
    size_t n = 0;
    memset(&err, 0, sizeof err);
    for (const char *at; (at = strstr(form, "HOST")); form = at + 4)
        n += (size_t)snprintf(text + n, sizeof text - n, "%.*s127.0.0.1:%d", (int)(at - form), form,
                              port);
    snprintf(text + n, sizeof text - n, "%s", form);
    int rc = hf_url_parse(text, &url, &err);
    said_caps = drv->caps;
    return rc ? rc : drv->open(&url, io_ms, ret, &said_caps, &err);
}

const char *const said_fields[SAID_FIELDS][2] = {{"format", "2"},
                                                 {"rev", "5"},
                                                 {"token", "5"},
                                                 {"owner", "me"},
                                                 {"expires_us", "1769860900000000"},
                                                 {"acquired_us", "1769860800000000"},
                                                 {"lease_ms", "60000"},
                                                 {"request", "00112233445566778899aabbccddeeff"},
                                                 {"note", ""},
                                                 {"more", ""},
                                                 {"queue", ""},
                                                 {"done", ""}};
