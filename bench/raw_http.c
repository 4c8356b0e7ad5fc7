/*
 * raw_http.c - requests by libcurl alone, on one connection that is kept; see raw.h.
 */
#include "bench.h"
#include "raw.h"

#include <curl/curl.h>
#include <string.h>

enum { ANSWER_CAP = 1 << 16 };

static CURL *to;
static char answer[ANSWER_CAP];
static size_t length;

static size_t take_in(char *bytes, size_t size, size_t n, void *arg)
{
    (void)arg;
    n *= size;
    if (n >= sizeof answer - length) return 0;
    memcpy(answer + length, bytes, n);
    length += n;
    answer[length] = 0;
    return n;
}

static void begin(const char *header)
{
    static struct curl_slist *headers;
    if (to) return;
    to = curl_easy_init();
    headers = curl_slist_append(NULL, "Content-Type: application/json");
    headers = headers ? curl_slist_append(headers, "Expect:") : NULL;
    if (headers && header) headers = curl_slist_append(headers, header);
    if (!to || !headers) bench_die("libcurl: out of memory");
    curl_easy_setopt(to, CURLOPT_PROXY, "");
    curl_easy_setopt(to, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(to, CURLOPT_WRITEFUNCTION, take_in);
    curl_easy_setopt(to, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
}

const char *raw_http(const char *url, const char *body, const char *header, long *ret_status)
{
    begin(header);
    length = 0;
    answer[0] = 0;
    curl_easy_setopt(to, CURLOPT_URL, url);
    if (body) {
        curl_easy_setopt(to, CURLOPT_POSTFIELDSIZE, (long)strlen(body));
        curl_easy_setopt(to, CURLOPT_POSTFIELDS, body);
    } else {
        curl_easy_setopt(to, CURLOPT_HTTPGET, 1L);
    }
    CURLcode rc = curl_easy_perform(to);
    if (rc) bench_die("libcurl: '%s': %s", url, curl_easy_strerror(rc));
    curl_easy_getinfo(to, CURLINFO_RESPONSE_CODE, ret_status);
    return answer;
}
