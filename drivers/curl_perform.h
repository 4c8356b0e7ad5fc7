/*
 * curl_perform.h - one request of libcurl, inside of the gate of kit/fork_gate.h.
 */
#ifndef HF_CURL_PERFORM_H
#define HF_CURL_PERFORM_H

#include <curl/curl.h>

/* Makes a request as curl_easy_perform does, but leaves the gate while it waits. The caller is
   inside. *multi is kept for the next request; NULL: it is made. */
CURLcode hf__curl_perform(CURLM **multi, CURL *easy);

#endif
