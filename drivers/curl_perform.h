/*
 * curl_perform.h - makes one request with libcurl. While it waits for the network, another thread
 * can fork (kit/fork_gate.h).
 */
#ifndef HF_CURL_PERFORM_H
#define HF_CURL_PERFORM_H

#include <curl/curl.h>

/* Makes a request as curl_easy_perform does. The caller is inside the fork gate; this function
   leaves the gate only while it waits for the network. If *multi is NULL, it is made. The caller
   keeps it for the next request, and frees it by curl_multi_cleanup. */
CURLcode hf__curl_perform(CURLM **multi, CURL *easy);
/* Returns why that request failed: libcurl's own text (that of CURLOPT_ERRORBUFFER, `told`, if it
   isn't empty), or plain words if the server speaks another protocol. */
const char *hf__curl_why(CURLcode rc, const char *told);

#endif
