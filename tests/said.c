/*
 * said.c - see said.h.
 */
#include "said.h"

#include "test.h"

#include <string.h>

hf_rowkey key;
hf_error err;

void said(int rc, int code, const char *text)
{
    if (rc != code || (text && !strstr(err.text, text)))
        fail_msg("%d, %s: not %d, %s", rc, err.text, code, text ? text : "");
    assert_null(strstr(err.text, "s3cr3t"));
}
