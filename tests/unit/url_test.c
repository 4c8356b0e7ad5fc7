/*
 * url_test.c - which URLs of stores are legal, how they are read, and that no secret gets out.
 */
#include "drivers.h"
#include "holdfast_driver.h"
#include "test.h"

#include <stdio.h>
#include <string.h>

struct good {
    const char *text, *scheme, *user, *password, *host;
    int port;
    const char *path, *query, *safe; /* safe NULL: as text */
};

static const struct good goods[] = {
    {"mem:", "mem", "", "", "", 0, "", "", NULL},
    {"mem:NAME", "mem", "", "", "", 0, "NAME", "", NULL},
    {"file:", "file", "", "", "", 0, "", "", NULL},
    {"file:/abs/x", "file", "", "", "", 0, "/abs/x", "", NULL},
    {"file:rel/x", "file", "", "", "", 0, "rel/x", "", NULL},
    {"file:///abs", "file", "", "", "", 0, "/abs", "", NULL},
    {"file:/with space/\xc3\xa9", "file", "", "", "", 0, "/with space/\xc3\xa9", "", NULL},
    {"file:/a%20b%25%3f#c", "file", "", "", "", 0, "/a b%?#c", "", NULL},
    {"file:///srv/me@work/x", "file", "", "", "", 0, "/srv/me@work/x", "", NULL},
    {"file:/me@work:x", "file", "", "", "", 0, "/me@work:x", "", NULL},
    {"file:/a:b%40c", "file", "", "", "", 0, "/a:b@c", "", NULL},
    {"file:a//b", "file", "", "", "", 0, "a//b", "", NULL},
    {"file:/x \t\r\n", "file", "", "", "", 0, "/x", "", "file:/x"},
    {"file:/x%20 ", "file", "", "", "", 0, "/x ", "", "file:/x%20"},
    {"file:x?mode=0600\r\n", "file", "", "", "", 0, "x", "mode=0600", "file:x?mode=0600"},
    {"redis://:pw@h \n", "redis", "", "pw", "h", 0, "", "", "redis://h"},
    {"file:x?mode=0600", "file", "", "", "", 0, "x", "mode=0600", NULL},
    {"redis://h", "redis", "", "", "h", 0, "", "", NULL},
    {"redis://h:6379/0", "redis", "", "", "h", 6379, "/0", "", NULL},
    {"redis://:65535", "redis", "", "", "", 65535, "", "", NULL},
    {"redis://[::1]:6379", "redis", "", "", "::1", 6379, "", "", NULL},
    {"redis://[fe80::1%25eth0]", "redis", "", "", "fe80::1%eth0", 0, "", "", NULL},
    {"redis://u@h", "redis", "u", "", "h", 0, "", "", NULL},
    {"redis://:pw@h", "redis", "", "pw", "h", 0, "", "", "redis://h"},
    {"redis://:@h", "redis", "", "", "h", 0, "", "", "redis://h"},
    {"postgres://u:pw@h:5432/db?sslmode=require", "postgres", "u", "pw", "h", 5432, "/db",
     "sslmode=require", "postgres://u@h:5432/db?sslmode=require"},
    {"pg://u%40x:p%2525%2F%3f@h/", "pg", "u@x", "p%25/?", "h", 0, "/", "", "pg://u%40x@h/"},
    {"pg://u:p@ss@h", "pg", "u", "p@ss", "h", 0, "", "", "pg://u@h"},
    {"pg://u:p:w@h", "pg", "u", "p:w", "h", 0, "", "", "pg://u@h"},
    {"pg://u:p#w@h", "pg", "u", "p#w", "h", 0, "", "", "pg://u@h"},
    {"pg://%2Fvar%2Frun/db", "pg", "", "", "/var/run", 0, "/db", "", NULL},
    {"pg://?host=h", "pg", "", "", "", 0, "", "host=h", NULL},
    {"etcd://a:1,b:2,[::1]:3/p", "etcd", "", "", "a:1,b:2,[::1]:3", 0, "/p", "", NULL},
    {"x+y-1:z", "x+y-1", "", "", "", 0, "z", "", NULL},
    {"s:?a=1&&b=&c&=d", "s", "", "", "", 0, "", "a=1&&b=&c&=d", "s:?a=1&b=&c&=d"},
    {"s:?a=1&", "s", "", "", "", 0, "", "a=1&", "s:?a=1"},
    {"s:?", "s", "", "", "", 0, "", "", "s:"},
};

static void every_form_is_taken_apart(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof goods / sizeof *goods; i++) {
        const struct good *g = &goods[i];
        hf_url u;
        hf_error err = {0, 0, ""};
        memset(&u, 'x', sizeof u);
        if (hf_url_parse(g->text, &u, &err)) fail_msg("%s: %s", g->text, err.text);
        assert_string_equal(u.scheme, g->scheme);
        assert_string_equal(u.user, g->user);
        assert_string_equal(u.password, g->password);
        assert_string_equal(u.host, g->host);
        assert_int_equal(u.port, g->port);
        assert_string_equal(u.path, g->path);
        assert_string_equal(u.query, g->query);
        assert_string_equal(u.safe, g->safe ? g->safe : g->text);
    }
}

/* The second text is a part of the message. No message may contain SECRET. */
static const char *const bads[][2] = {
    {"", "empty"},
    {"SECRET", "no scheme"},
    {"/SECRET/x", "no scheme"},
    {":SECRET", "no scheme"},
    {"FILE:SECRET", "no scheme"},
    {"fi_le:SECRET", "no scheme"},
    {"\xc3\xa9:SECRET", "no scheme"},
    {"abcdefghijklmnopqrstuvwxyz-012345:SECRET", "31"},
    {"r://u:SECRET@h:x", "isn't a number"},
    {"r://u:SECRET@h:", "empty port"},
    {"r://u:SECRET@h:0", "port 0"},
    {"r://u:SECRET@h:65536", "above"},
    {"r://u:SECRET@h:99999999999999999999", "above"},
    {"r://u:SECRET@h:-1", "isn't a number"},
    {"r://u:SECRET@::1", "IPv6"},
    {"r://u:SECRET@[::1", "without"},
    {"r://u:SECRET@[::1]x", "between"},
    {"r://u:SECRET@[]", "IPv6"},
    {"r://u:SECRET@[host]", "IPv6"},
    {"r://u:SECRET@[12]", "IPv6"},
    {"r://u:SECRET@[::1%25]", "IPv6"},
    {"r://u:SECRET@a b", "isn't a name"},
    {"r://u:SECRET@a<b", "isn't a name"},
    {"r://u:SECRET/SECRET@h", "'@' after the host"},
    {"r://u:1/SECRET@h", "'@' after the host"},
    {"r://u:1?SECRET@h", "'@' after the host"},
    {"r://u:a@b/SECRET@h", "'@' after the host"},
    {"r:/u:SECRET@h/0", "'//' is needed"},
    {"r:u:SECRET@h", "'//' is needed"},
    {"r:///u:SECRET@h/0", "'//' is needed"},
    {"r:///u:SECRET/SECRET@h/0?a=b", "'//' is needed"},
    {"r://u:SECRET%@h", "'%'"},
    {"r://u:SECRET%2@h", "'%'"},
    {"r://u:SECRET%g0@h", "'%'"},
    {"r://u:SECRET%0g@h", "'%'"},
    {"r:SECRET%", "'%'"},
    {"r:?a=SECRET%", "'%'"},
    {"r:?%=SECRET", "'%'"},
    {"r://u:SECRET%00@h", "control"},
    {"r:SECRET%0a", "control"},
    {"r:SECRET\nx", "control"},
    {"r:SECRET\x7f", "control"},
    {"r:?token=SECRET%1f", "control"},
    {"r:?token=SECRET\tx", "control"},
};

static void what_cannot_be_parsed_is_said_without_secrets(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bads / sizeof *bads; i++) {
        hf_url u, before;
        hf_error err = {0, 0, ""};
        memset(&u, 'x', sizeof u);
        before = u;
        if (hf_url_parse(bads[i][0], &u, &err) != HF_INVALID) fail_msg("taken: %s", bads[i][0]);
        assert_int_equal(err.code, HF_INVALID);
        if (!strstr(err.text, bads[i][1])) fail_msg("'%s' for %s", err.text, bads[i][0]);
        assert_null(strstr(err.text, "SECRET"));
        assert_null(strchr(err.text, '\n'));
        assert_memory_equal(&u, &before, sizeof u);
    }
    hf_url u;
    assert_int_equal(hf_url_parse(NULL, &u, NULL), HF_INVALID);
}

static void every_length_has_its_limit(void **state)
{
    (void)state;
    static const struct {
        const char *before, *after;
        size_t most;
    } parts[] = {
        {"s://", "@h", sizeof((hf_url *)0)->user - 1},
        {"s://u:", "@h", sizeof((hf_url *)0)->password - 1},
        {"s://", "/p", sizeof((hf_url *)0)->host - 1},
        {"s:", "?q=1", sizeof((hf_url *)0)->path - 1},
        {"s:p?", "", sizeof((hf_url *)0)->query - 1},
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        for (size_t over = 0; over < 2; over++) {
            char name[2000], text[2100];
            size_t n = parts[i].most + over;
            hf_url u;
            memset(name, 'n', n);
            name[n] = 0;
            snprintf(text, sizeof text, "%s%s%s", parts[i].before, name, parts[i].after);
            int rc = hf_url_parse(text, &u, NULL);
            if (rc != (over ? HF_INVALID : 0)) fail_msg("part %zu, length %zu: %d", i, n, rc);
        }
    /* Short once decoded, but `safe` shows it as it was written. */
    char text[1500] = "s:";
    for (int i = 0; i < 480; i++) memcpy(text + 2 + 3 * i, "%61", 4);
    hf_url u;
    assert_int_equal(hf_url_parse(text, &u, NULL), HF_INVALID);
}

static void secrets_are_left_out_of_safe(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        {"s:?password=SECRET", "s:"},
        {"s:?PassWord=SECRET&a=b", "s:?a=b"},
        {"s:?p%61ssword=SECRET", "s:"},
        {"s:?sslpassword=SECRET", "s:"},
        {"s:?token=SECRET=SECRET", "s:"},
        {"s:?id_token=SECRET", "s:"},
        {"s:?clientSecret=SECRET", "s:"},
        {"s:?key=SECRET&x", "s:?x"},
        {"s:?api_key=SECRET", "s:"},
        {"s:?pwd=SECRET", "s:"},
        {"s:?credentials=SECRET", "s:"},
        {"s:?token=", "s:?token="},
        {"s://u:SECRET@h/p?a=1&secret=SECRET&b=2", "s://u@h/p?a=1&b=2"},
        {"s:?a=1&secret=SECRET", "s:?a=1"},
        {"s:?a=1&secret=SECRET&", "s:?a=1"},
        /* What stood before the secret may end in a blank, which a URL's end doesn't have. */
        {"s:p ?secret=SECRET", "s:p%20"},
        {"s:?a=1 &secret=SECRET", "s:?a=1%20"},
        {"s:?a=  &secret=SECRET", "s:?a= %20"},
        {"s:?a=1&&b=2&", "s:?a=1&b=2"},
        {"s:?keys=2&table=locks", NULL},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        hf_url u;
        assert_int_equal(hf_url_parse(pairs[i][0], &u, NULL), 0);
        assert_string_equal(u.safe, pairs[i][1] ? pairs[i][1] : pairs[i][0]);
    }
}

/* Whatever the path, `safe` is a URL of it, and everything else stays as it was. */
static void a_path_is_set_and_read_again(void **state)
{
    (void)state;
    static const char *const froms[] = {
        "s:", "s:rel?mode=1", "s:///x?a=%3f", "s://u@h:1/x?a=1", "s://h", "s:/a?key=SECRET&b=2"};
    static const char *const paths[] = {"/a",         "/a b/%41?#@", "//x/y",
                                        "/\xc3\xa9:", "/a:b@c@",     "/@:@"};
    char text[1100];
    hf_url u, v;
    for (size_t i = 0; i < sizeof froms / sizeof *froms; i++)
        for (size_t j = 0; j < sizeof paths / sizeof *paths; j++) {
            assert_int_equal(hf_url_parse(froms[i], &u, NULL), 0);
            assert_int_equal(hf_url_set_path(&u, paths[j], NULL), 0);
            assert_string_equal(u.path, paths[j]);
            if (hf_url_parse(u.safe, &v, NULL)) fail_msg("%s", u.safe);
            assert_string_equal(v.path, paths[j]);
            assert_string_equal(v.user, u.user);
            assert_string_equal(v.host, u.host);
            assert_int_equal(v.port, u.port);
            assert_null(strstr(u.safe, "SECRET"));
            if (!strstr(froms[i], "SECRET")) assert_string_equal(v.query, u.query);
        }
    /* A path that no URL can express makes a URL that is refused later, not another path. */
    assert_int_equal(hf_url_parse("s:", &u, NULL), 0);
    assert_int_equal(hf_url_set_path(&u, "/a\nb", NULL), 0);
    assert_string_equal(u.safe, "s:/a%0Ab");
    assert_int_equal(hf_url_parse(u.safe, &v, NULL), HF_INVALID);
    memset(text, 'p', sizeof text);
    text[sizeof text - 1] = 0;
    assert_int_equal(hf_url_set_path(&u, text, NULL), HF_INVALID);
    assert_string_equal(u.safe, "s:/a%0Ab");
}

static void what_is_too_long_or_half_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int legal;
    } urls[] = {{"a+b-1:x", 1},
                {"a_b:x", 0},
                {"a~b:x", 0},
                {"s://[fe80::1%25eth0]/", 1},
                {"s://[fe80::1%25]/", 0},
                {"s://[1.2.3.4]/", 0},
                {"s://[::x]/", 0}};
    hf_url u;
    hf_error err;
    for (size_t i = 0; i < sizeof urls / sizeof *urls; i++)
        if ((hf_url_parse(urls[i].text, &u, &err) == 0) != urls[i].legal)
            fail_msg("'%s': %s", urls[i].text, urls[i].legal ? err.text : "is taken");
    /* Each part of a query may be as long as a query, and together they are too long. */
    char text[2 * sizeof u.query + 20], part[sizeof u.query];
    memset(part, 'x', sizeof part);
    part[sizeof part * 3 / 4] = 0;
    snprintf(text, sizeof text, "s:p?a=%s&b=%s", part, part);
    assert_int_equal(hf_url_parse(text, &u, &err), HF_INVALID);
    assert_non_null(strstr(err.text, "too long"));
    memset(text, 's', 300);
    memcpy(text + 300, ":x", 3);
    assert_int_equal(hf_url_parse(text, &u, &err), HF_INVALID);
    /* A path that fits, but not as it is written in a URL. */
    assert_int_equal(hf_url_parse("s:p", &u, NULL), 0);
    memset(text, '%', sizeof u.path - 1);
    text[sizeof u.path - 1] = 0;
    assert_int_equal(hf_url_set_path(&u, text, &err), HF_INVALID);
    assert_string_equal(u.path, "p");
    /* A query that wasn't parsed, but set: a value that can't be read is absent, or an error. */
    char value[8] = "";
    assert_int_equal(hf_url_parse("s:p", &u, NULL), 0);
    memcpy(u.query, "%zz=1&a=%zz&c=%31", 18);
    assert_int_equal(hf_url_get(&u, "b", value, sizeof value), HF_UNSUPPORTED);
    assert_int_equal(hf_url_get(&u, "b", NULL, 0), HF_UNSUPPORTED);
    assert_int_equal(hf_url_get(&u, "a", value, sizeof value), HF_INVALID);
    assert_int_equal(hf_url_get(&u, "c", value, sizeof value), 0);
    assert_string_equal(value, "1");
}

static void names_of_secrets(void **state)
{
    (void)state;
    static const char *const are[] = {"auth",        "AUTH", "key",  "ApiKey",
                                      "my_password", "%zz",  "%6bey"};
    static const char *const arent[] = {"author", "ke", "keys", "table", ""};
    for (size_t i = 0; i < sizeof are / sizeof *are; i++)
        if (!hf__url_secret(are[i], strlen(are[i]), "x", 1)) fail_msg("%s", are[i]);
    for (size_t i = 0; i < sizeof arent / sizeof *arent; i++)
        if (hf__url_secret(arent[i], strlen(arent[i]), "x", 1)) fail_msg("%s", arent[i]);
    hf_url u;
    assert_int_equal(hf_url_parse("s:p?&a=1&&password=x&&b=2&", &u, NULL), 0);
    assert_string_equal(u.safe, "s:p?a=1&b=2");
}

/* The name of a file is passed on; a secret that stands where a file's name may stand isn't. */
static void names_of_files_are_no_secrets(void **state)
{
    (void)state;
    static const char *const shown[] = {"passfile=/etc/p",
                                        "passfile=p",
                                        "tlsCertificateKeyFile=k",
                                        "PassFile=%2Fp",
                                        "key=/etc/tls/client.key",
                                        "key=%2Fetc%2Fk",
                                        "sslkey=client.key",
                                        "sslkey=./k",
                                        "sslkey=../k",
                                        "credentials=/srv/account.json",
                                        "credentials=a/account.json",
                                        "key=client.pem"};
    static const char *const hidden[] = {"key=QUJDREVG",
                                         "key=ab/cd",
                                         "key=a.b.eyJhbGciOi",
                                         "key=.pem",
                                         "key=x.p",
                                         "key=x.abcdef",
                                         "key=x.PEM/y",
                                         "credentials=word",
                                         "sslpassword=/p",
                                         "tlsCertificateKeyFilePassword=/p",
                                         "apikey=/p.pem",
                                         "access_key=/p.pem",
                                         "passfiles=/p"};
    char text[200];
    hf_url u;
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++) {
        snprintf(text, sizeof text, "s://h?%s&a=1", shown[i]);
        assert_int_equal(hf_url_parse(text, &u, NULL), 0);
        assert_string_equal(u.safe, text);
    }
    for (size_t i = 0; i < sizeof hidden / sizeof *hidden; i++) {
        snprintf(text, sizeof text, "s://h?%s&a=1", hidden[i]);
        assert_int_equal(hf_url_parse(text, &u, NULL), 0);
        assert_string_equal(u.safe, "s://h?a=1");
    }
    assert_true(hf__url_secret("key", 3, "%zz", 3));
}

static void get_reads_the_query(void **state)
{
    (void)state;
    hf_url u;
    char value[8] = "x";
    assert_int_equal(
        hf_url_parse("s:?a=1&b=%26%3d%2525&c&d=&two=1&two=2&long=1234567&more=12345678&e=a+b", &u,
                     NULL),
        0);
    assert_int_equal(hf_url_get(&u, "a", value, sizeof value), 0);
    assert_string_equal(value, "1");
    assert_int_equal(hf_url_get(&u, "b", value, sizeof value), 0);
    assert_string_equal(value, "&=%25");
    assert_int_equal(hf_url_get(&u, "c", value, sizeof value), 0);
    assert_string_equal(value, "");
    assert_int_equal(hf_url_get(&u, "e", value, sizeof value), 0);
    assert_string_equal(value, "a+b");
    assert_int_equal(hf_url_get(&u, "d", value, sizeof value), 0);
    assert_string_equal(value, "");
    assert_int_equal(hf_url_get(&u, "long", value, sizeof value), 0);
    assert_string_equal(value, "1234567");
    assert_int_equal(hf_url_get(&u, "more", value, sizeof value), HF_INVALID);
    assert_string_equal(value, "1234567");
    assert_int_equal(hf_url_get(&u, "two", value, sizeof value), HF_INVALID);
    assert_int_equal(hf_url_get(&u, "none", value, sizeof value), HF_UNSUPPORTED);
    assert_string_equal(value, "");
    assert_int_equal(hf_url_get(&u, "A", value, sizeof value), HF_UNSUPPORTED);
}

/* Any bytes are parsed to an end, and a URL that is accepted shows no control character. */
static void noise_is_refused_or_clean(void **state)
{
    (void)state;
    static const char alphabet[] = "ab:/?@#%25[]&=,1. \n\x80";
    uint64_t x = 88172645463325252u;
    for (int round = 0; round < 200000; round++) {
        char text[40];
        hf_url u;
        size_t n = 0;
        for (; n < sizeof text - 1; n++) {
            x ^= x << 13, x ^= x >> 7, x ^= x << 17;
            if (x % 23 == 0) break;
            text[n] = alphabet[(x >> 8) % (sizeof alphabet - 1)];
        }
        text[n] = 0;
        if (n > 1) text[1] = ':';
        if (hf_url_parse(text, &u, NULL)) continue;
        const char *const clean[] = {u.user, u.password, u.host, u.path, u.safe};
        for (size_t i = 0; i < sizeof clean / sizeof *clean; i++)
            assert_null(strchr(clean[i], '\n'));
        assert_true(u.port >= 0 && u.port <= 65535);
        /* Parsing the safe URL gives the same, except for the secrets. */
        hf_url again;
        assert_int_equal(hf_url_parse(u.safe, &again, NULL), 0);
        assert_string_equal(again.safe, u.safe);
        assert_string_equal(again.path, u.path);
        assert_string_equal(again.host, u.host);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form_is_taken_apart),
        cmocka_unit_test(what_cannot_be_parsed_is_said_without_secrets),
        cmocka_unit_test(every_length_has_its_limit),
        cmocka_unit_test(secrets_are_left_out_of_safe),
        cmocka_unit_test(a_path_is_set_and_read_again),
        cmocka_unit_test(get_reads_the_query),
        cmocka_unit_test(what_is_too_long_or_half_is_refused),
        cmocka_unit_test(names_of_secrets),
        cmocka_unit_test(names_of_files_are_no_secrets),
        cmocka_unit_test(noise_is_refused_or_clean),
    };
    return TEST_MAIN(tests);
}
