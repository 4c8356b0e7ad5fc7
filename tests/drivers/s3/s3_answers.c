/*
 * s3_answers.c - the driver s3: before a server that answers anything: what it makes of it, what it
 * asks, and who it says that it is.
 */
#include "fakes/answered.h"
#include "network/kit_net.h"

#include "os.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ERROR(code, message) \
    "<?xml version=\"1.0\"?><Error><Code>" code "</Code><Message>" message "</Message></Error>"

#define SKEWED ERROR("RequestTimeTooSkewed", "x")

static void sum_of(const char *body, char to[40])
{
    unsigned char sum[16];
    assert_int_equal(EVP_Digest(body, strlen(body), sum, NULL, EVP_md5(), NULL), 1);
    *to++ = '"';
    for (int i = 0; i < 16; i++, to += 2) snprintf(to, 4, "%02x\"", sum[i]);
}

/* The last request was signed at a time that begins so. */
static void signed_at(const char *time)
{
    char header[60], scope[60];
    const char *asked = answers_asked();
    snprintf(header, sizeof header, "x-amz-date: %s", time);
    snprintf(scope, sizeof scope, "Credential=ID/%.8s/", time);
    if (!strstr(asked, header) || !strstr(asked, scope) || !strstr(asked, ";x-amz-date"))
        fail_msg("it asked: %s", asked);
}

static hf_store *opened(const char *more)
{
    char url[300];
    hf_store *st = NULL;
    snprintf(url, sizeof url, "s3://bucket/locks?endpoint=http://127.0.0.1:PORT%s", more);
    if (opens(url, &st)) fail_msg("%s", err.text);
    return st;
}

static void errors_mean_what_they_say(void **state)
{
    (void)state;
    static const struct meaning all[] = {
        /* A page of something in between doesn't say that the row was written. */
        {200, "<html>Blocked</html>", HF_UNSUPPORTED, HF_UNKNOWN, "no ETag"},
        {202, "", HF_UNAVAILABLE, HF_UNKNOWN, "HTTP 202"},
        {204, "", HF_UNAVAILABLE, HF_UNKNOWN, "HTTP 204"},
        {302, "", HF_UNAVAILABLE, HF_UNAVAILABLE, "HTTP 302"},
        {400, ERROR("AuthorizationHeaderMalformed", "the region is wrong"), HF_INVALID, HF_INVALID,
         "HTTP 400, AuthorizationHeaderMalformed: the region is wrong"},
        {401, "", HF_DENIED, HF_DENIED, "HTTP 401"},
        {403, ERROR("AccessDenied", "Access Denied"), HF_DENIED, HF_DENIED, "403, AccessDenied"},
        {403, ERROR("SignatureDoesNotMatch", "it was s3cr3t-key"), HF_DENIED, HF_DENIED,
         "SignatureDoesNotMatch: "},
        /* A page of something in between doesn't say that there is no row. */
        {404, "<html>Not Found</html>", HF_UNAVAILABLE, HF_UNAVAILABLE, "HTTP 404"},
        {404, ERROR("NoSuchBucket", "x"), HF_UNAVAILABLE, HF_UNAVAILABLE, "no such bucket"},
        {429, "", HF_UNAVAILABLE, HF_UNAVAILABLE, "HTTP 429"},
        {500, ERROR("InternalError", "one\ntwo"), HF_UNAVAILABLE, HF_UNKNOWN, "InternalError: one"},
        {503, ERROR("SlowDown", "wait"), HF_UNAVAILABLE, HF_UNKNOWN, "503, SlowDown"},
        {501, ERROR("NotImplemented", "a header"), HF_UNSUPPORTED, HF_UNSUPPORTED, "501, NotImpl"},
        {507, "", HF_FULL, HF_FULL, "HTTP 507"},
        {ANSWER_CLOSED, "", HF_UNAVAILABLE, HF_UNKNOWN, ""},
        {ANSWER_OTHER, "", HF_UNAVAILABLE, HF_UNKNOWN, "there doesn't speak HTTP"},
        {ANSWER_CUT, "{", HF_UNAVAILABLE, HF_UNKNOWN, ""},
        {ANSWER_HEAD_CUT(200), "", HF_UNAVAILABLE, HF_UNKNOWN, "closed within the header"},
        {ANSWER_HEAD_CUT(412), "", HF_UNAVAILABLE, HF_UNKNOWN, "closed within the header"},
        {ANSWER_HEAD_CUT(404), "", HF_UNAVAILABLE, HF_UNKNOWN, "closed within the header"},
    };
    hf_store *st = opened("");
    hf_row row;
    hf_row_init(&row);
    row.rev = 7;
    answers_mean(st, all, COUNT(all), &row);
    hf_row_clear(&row);
    driver->close(st);
}

/* A write is made on a condition; a refused one is followed by a read, to compare the rows. */
static void a_write_has_a_condition(void **state)
{
    (void)state;
    static const struct answer gone[] = {
        {NULL, 412, "", 1}, {NULL, 404, ERROR("NoSuchKey", "x"), 1}, {NULL, ANSWER_TAGGED, "", 1}};
    static const struct answer always[] = {{"PUT", 409, "", 0}, {NULL, 409, "", 0}};
    hf_store *st = opened("&region=here-1");
    hf_row row;
    int64_t clock_us = 0;
    hf_row_init(&row);
    row.rev = 7;
    answers_are(gone, COUNT(gone));
    assert_int_equal(driver->replace(st, &key, 0, &row, NULL, &clock_us, &err), 0);
    assert_int_equal(answers_given(), 3);
    assert_true(clock_us == INT64_C(1769860800) * 1000000);
    const char *asked = answers_asked();
    if (!strstr(asked, "PUT /bucket/locks/k HTTP") || !strstr(asked, "If-None-Match: *") ||
        !strstr(asked, "/here-1/s3/aws4_request") || !strstr(asked, "if-none-match;x-amz-content"))
        fail_msg("it asked: %s", asked);
    if (strstr(asked, "s3cr3t")) fail_msg("it tells the key");
    answers_are(always, COUNT(always));
    said(driver->replace(st, &key, 0, &row, NULL, &clock_us, &err), HF_UNAVAILABLE, "HTTP 409");
    hf_row_clear(&row);
    driver->close(st);
}

/* It answers all requests, with an ETag of its own: nothing was written, however often it does. */
static void a_page_of_a_proxy_proves_nothing(void **state)
{
    (void)state;
    hf_store *st = opened("");
    hf_row row, cur;
    int64_t clock_us = 0;
    hf_row_init(&row);
    hf_row_init(&cur);
    row.rev = 7;
    is(ANSWER_FOREIGN, "<html>Blocked</html>");
    said(driver->get(st, &key, &cur, &clock_us, &err), HF_CORRUPT, "");
    for (int i = 0; i < 3; i++) {
        said(driver->replace(st, &key, 0, &row, &cur, &clock_us, &err), HF_UNKNOWN, "");
        hf_replace one = {.key = &key, .row = &row, .cur = &cur, .result = HF_UNKNOWN};
        (void)driver->replace_many(st, &one, 1, hf__local_us() + 5000000);
        assert_int_equal(one.result, HF_UNKNOWN);
    }
    hf_row_clear(&row);
    hf_row_clear(&cur);
    driver->close(st);
}

/* All answers are of the same date, which is not this machine's. */
static void signed_by_the_servers_time(void **state)
{
    (void)state;
    static const struct answer once[] = {{NULL, 403, SKEWED, 1}, {NULL, ANSWER_TAGGED, "", 0}};
    hf_row row;
    int64_t clock_us = 0;
    hf_row_init(&row);
    row.rev = 7;
    for (int writes = 0; writes < 2; writes++) {
        hf_store *st = opened("");
        answers_are(once, COUNT(once));
        int rc = writes ? driver->replace(st, &key, 0, &row, NULL, &clock_us, &err)
                        : driver->get(st, &key, &row, &clock_us, &err);
        if (!writes) hf_row_clear(&row);
        said(rc, writes ? 0 : HF_CORRUPT, writes ? NULL : "no row");
        assert_int_equal(answers_given(), 2);
        signed_at("20260131T12");
        /* From then on no request is refused for it. */
        is(404, ERROR("NoSuchKey", "x"));
        said(driver->get(st, &key, &row, &clock_us, &err), 0, NULL);
        assert_int_equal(answers_given(), 1);
        signed_at("20260131T12");
        /* A server that goes on refusing is asked no more than twice. */
        is(403, SKEWED);
        said(driver->get(st, &key, &row, &clock_us, &err), HF_DENIED, "RequestTimeTooSkewed");
        assert_int_equal(answers_given(), 2);
        row.rev = 7;
        driver->close(st);
    }
    hf_row_clear(&row);
}

/* Without a time no lease can be judged: a read whose date falls back is no answer, until such
   dates are taken for those of a clock that was set. */
static void a_date_that_falls_back_is_no_answer(void **state)
{
    (void)state;
    hf_store *st = opened("");
    hf_row row, cur;
    int64_t clock_us = 0;
    hf_row_init(&row);
    hf_row_init(&cur);
    row.rev = 7;
    is(404, ERROR("NoSuchKey", "x"));
    said(driver->get(st, &key, &cur, &clock_us, &err), 0, NULL);
    answers_date("Sat, 31 Jan 2026 11:59:00 GMT");
    said(driver->get(st, &key, &cur, &clock_us, &err), HF_UNAVAILABLE, "no date that fits");
    /* A write that was refused shows a row without a time. */
    said(driver->replace(st, &key, 5, &row, &cur, &clock_us, &err), HF_UNAVAILABLE, "no date");
    while (driver->get(st, &key, &cur, &clock_us, &err) == HF_UNAVAILABLE) usleep(50000);
    said(driver->get(st, &key, &cur, &clock_us, &err), 0, NULL);
    assert_true(clock_us == (INT64_C(1769860800) - 60) * 1000000);
    answers_date(ANSWERS_DATE);
    hf_row_clear(&row);
    hf_row_clear(&cur);
    driver->close(st);
}

/* The file of credentials is read at each request. */
static void credentials_are_read_again(void **state)
{
    (void)state;
    char file[] = "/tmp/s3_answers.XXXXXX", more[100];
    static const char *const texts[] = {
        "[default]\naws_access_key_id = ONE\naws_secret_access_key=s3cr3t-one\n",
        "[other]\naws_access_key_id=BAD\n[default]\n aws_access_key_id=TWO\r\n"
        "aws_secret_access_key = s3cr3t-two\naws_session_token = s3cr3t-token \n"};
    hf_row row;
    int64_t clock_us;
    hf_store *st = NULL;
    hf_row_init(&row);
    close(mkstemp(file));
    snprintf(more, sizeof more, "&credentials=%s", file);
    unsetenv("AWS_ACCESS_KEY_ID");
    for (int i = 0; i < 2; i++) {
        FILE *f = fopen(file, "w");
        fputs(texts[i], f);
        fclose(f);
        if (!i) st = opened(more);
        is(404, ERROR("NoSuchKey", "x"));
        said(driver->get(st, &key, &row, &clock_us, &err), 0, NULL);
        const char *asked = answers_asked();
        if (!strstr(asked, i ? "Credential=TWO/" : "Credential=ONE/") ||
            !strstr(asked, "x-amz-security-token: s3cr3t-token") != !i)
            fail_msg("it asked: %s", asked);
    }
    /* The key is exchanged here a little later than there. */
    is(403, ERROR("InvalidAccessKeyId", "x"));
    said(driver->get(st, &key, &row, &clock_us, &err), HF_UNAVAILABLE, "InvalidAccessKeyId");
    is(403, ERROR("AccessDenied", "x"));
    said(driver->get(st, &key, &row, &clock_us, &err), HF_DENIED, "AccessDenied");
    unlink(file);
    said(driver->get(st, &key, &row, &clock_us, &err), HF_UNAVAILABLE, "No such file");
    setenv("AWS_ACCESS_KEY_ID", "ID", 1);
    hf_row_clear(&row);
    driver->close(st);
}

/* A profile's name that is too long matters only if a file is read for that profile. */
static void a_profile_that_is_not_used_is_not_judged(void **state)
{
    (void)state;
    char file[] = "/tmp/s3_answers.XXXXXX", more[100], profile[65] = "";
    hf_store *st = NULL;
    close(mkstemp(file));
    memset(profile, 'p', sizeof profile - 1);
    setenv("AWS_PROFILE", profile, 1);
    driver->close(opened(""));
    snprintf(more, sizeof more, "s3://bucket?credentials=%s", file);
    said(opens(more, &st), HF_INVALID, "AWS_PROFILE is too long");
    snprintf(more, sizeof more, "&credentials=%s&profile=p", file);
    driver->close(opened(more));
    unsetenv("AWS_PROFILE");
    unlink(file);
}

static void is_away(const char *host, int number, int64_t io_ms, const char *text)
{
    char form[200];
    hf_store *st = NULL;
    hf_row row;
    int64_t clock_us;
    snprintf(form, sizeof form, "s3://bucket/locks?endpoint=https://%s:%d", host, number);
    said(said_opens(driver, form, 0, io_ms, &st), 0, NULL);
    hf_row_init(&row);
    said(driver->get(st, &key, &row, &clock_us, &err), HF_UNAVAILABLE, text);
    said(driver->replace(st, &key, 0, NULL, NULL, &clock_us, &err), HF_UNAVAILABLE, text);
    driver->close(st);
}

/* The name, its addresses and the request share one deadline. */
static void names_and_addresses_share_a_deadline(void **state)
{
    int number = 0, filler, silent = kit_silent(2, &number, &filler);
    int no = kit_refusing(3, &number);
    (void)state;
    is_away("mute", number, 500, "no answer within 500 ms (the name)");
    kit_names_answer();
    is_away("at-2-3", number, 3000, "Failed to connect to at-2-3");
    close(silent);
    close(filler);
    close(no);
}

static void urls_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *url, *text;
    } cases[] = {
        {"s3://", "the bucket"},
        {"s3://b", "the bucket"},
        {"s3://bucket:80", "a port belongs to ?endpoint="},
        {"s3://bucket/a//b", "the prefix"},
        {"s3://bucket/../b", "the prefix"},
        {"s3://bucket/a%20b", "the prefix"},
        {"s3://id@bucket", "go together"},
        {"s3://bucket?endpoint=http://far.example", "endpoint: not https"},
        {"s3://bucket?endpoint=https://h/path", "endpoint: not https"},
        {"s3://bucket?region=a:b", "region"},
        {"s3://bucket?queue=2", "queue"},
        {"s3://bucket?cafile=", "cafile: empty"},
        {"s3://bucket?regoin=x", "regoin"},
        {"s3://bucket?credentials=/dev", "credentials '/dev'"},
    };
    hf_store *st = NULL;
    for (size_t i = 0; i < COUNT(cases); i++)
        said(opens(cases[i].url, &st), HF_INVALID, cases[i].text);
    unsetenv("AWS_ACCESS_KEY_ID");
    setenv("HOME", "/nowhere", 1);
    st = opened("");
    hf_row row;
    int64_t clock_us;
    hf_row_init(&row);
    said(driver->get(st, &key, &row, &clock_us, &err), HF_DENIED, "no credentials");
    driver->close(st);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_mean_what_they_say),
        cmocka_unit_test(a_write_has_a_condition),
        cmocka_unit_test(a_page_of_a_proxy_proves_nothing),
        cmocka_unit_test(signed_by_the_servers_time),
        cmocka_unit_test(a_date_that_falls_back_is_no_answer),
        cmocka_unit_test(credentials_are_read_again),
        cmocka_unit_test(a_profile_that_is_not_used_is_not_judged),
        cmocka_unit_test(names_and_addresses_share_a_deadline),
        cmocka_unit_test(urls_are_refused),
    };
    unsetenv("AWS_SESSION_TOKEN");
    unsetenv("AWS_REGION");
    unsetenv("AWS_DEFAULT_REGION");
    unsetenv("AWS_PROFILE");
    unsetenv("AWS_SHARED_CREDENTIALS_FILE");
    setenv("AWS_ACCESS_KEY_ID", "ID", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "s3cr3t-key", 1);
    cmocka_set_message_output(CM_OUTPUT_TAP);
    answers_tags(sum_of);
    if (answered_begin("s3")) return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
