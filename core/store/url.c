/*
 * url.c - the URL that names a store.
 *
 *     mem:NAME   file:   file:rel/path   file:/abs   file:///abs
 *     scheme://user:password@host:port/path?name=value&name=value
 *
 * It differs from RFC 3986 on purpose:
 *   - '#' is an ordinary character. A fragment means nothing for a store, and must not be dropped
 *     in silence.
 *   - '+' isn't a space.
 *   - An '@' after the host must be written %40. An '@' there is nearly always the end of a
 *     password with an unescaped '/' in it, and part of the password would be shown as a path.
 *   - An '@' behind a ':' in a URL without a host must be written %40, too. There "//" is nearly
 *     always missing before user and password.
 * Everything is percent-decoded exactly once. Control characters and NUL are refused, raw or
 * encoded. Blanks and line ends behind the URL, which files and copied lines have, don't count: a
 * name that ends in a blank is written with %20. A list of hosts, "a:1,b:2", is passed to the
 * driver as it is. Errors quote no more than the scheme: the rest may be secret.
 */
#include "drivers.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* A piece of the text: [from, to). */
struct span {
    const char *from, *to;
};

struct parts {
    struct span scheme, user, password, host, port, path, query;
    int has_authority, has_user, has_password, brackets;
};

static int fail(const struct parts *p, const char *why, hf_error *err)
{
    if (p->scheme.to == p->scheme.from) return hf_fail(err, HF_INVALID, 0, "url: %s", why);
    return hf_fail(err, HF_INVALID, 0, "url '%.*s:...': %s", (int)(p->scheme.to - p->scheme.from),
                   p->scheme.from, why);
}

static const char *find(struct span s, char c)
{
    const char *at = s.to > s.from ? memchr(s.from, c, (size_t)(s.to - s.from)) : NULL;
    return at ? at : s.to;
}

static int hex(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

static int control(int c) { return c < 0x20 || c == 0x7f; }

/* Percent-decodes once into `to`. Returns what is wrong, or NULL. */
static const char *decode(struct span s, char *to, size_t cap)
{
    size_t n = 0;
    while (s.from < s.to) {
        int c = (unsigned char)*s.from++;
        if (c == '%') {
            int high = s.to - s.from >= 2 ? hex(s.from[0]) : -1;
            int low = high < 0 ? -1 : hex(s.from[1]);
            if (low < 0) return "a '%' that isn't followed by two hexadecimal digits";
            c = high * 16 + low;
            s.from += 2;
        }
        if (control(c)) return "contains a control character";
        if (n + 1 >= cap) return "a part of it is too long";
        to[n++] = (char)c;
    }
    to[n] = 0;
    return NULL;
}

static int scheme_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '+' || c == '-';
}

/* Splits "user:password@host:port". Returns what is wrong, or NULL. */
static const char *split_authority(struct span a, struct parts *p)
{
    for (const char *at = a.to; at > a.from; at--) {
        if (at[-1] != '@') continue;
        struct span who = {a.from, at - 1};
        p->has_user = 1;
        p->user = (struct span){a.from, find(who, ':')};
        p->has_password = p->user.to < who.to;
        if (p->has_password) p->password = (struct span){p->user.to + 1, who.to};
        a.from = at;
        break;
    }
    p->host = a;
    if (find(a, ',') < a.to) return NULL;
    const char *rest;
    if (a.from < a.to && *a.from == '[') {
        const char *end = find(a, ']');
        if (end == a.to) return "'[' without ']'";
        p->brackets = 1;
        p->host = (struct span){a.from + 1, end};
        rest = end + 1;
        if (rest < a.to && *rest != ':') return "something between ']' and the port";
    } else {
        rest = p->host.to = find(a, ':');
    }
    if (rest == a.to) return NULL;
    p->port = (struct span){rest + 1, a.to};
    if (find(p->port, ':') < a.to) return "more than one ':' in the host (an IPv6 one needs [])";
    return p->port.from < p->port.to ? NULL : "an empty port";
}

size_t hf__url_length(const char *text)
{
    size_t n = strlen(text);
    while (n && strchr(" \t\r\n", text[n - 1])) n--;
    return n;
}

static const char *split(const char *text, struct parts *p)
{
    struct span all = {text, text + hf__url_length(text)};
    if (*text == '@') return "@FILE is for the option -S; write the URL itself here";
    if (strchr(" \t\r\n", *text)) return "begins with a blank or a line end";
    while (scheme_char(*all.from)) all.from++;
    if (*all.from != ':' || all.from == text)
        return "no scheme, such as file:/path or mem: (lower case)";
    if (all.from - text > 31) return "the scheme is longer than 31 characters";
    p->scheme = (struct span){text, all.from++};
    if (all.from[0] == '/' && all.from[1] == '/') {
        struct span rest = {all.from + 2, all.to};
        const char *slash = find(rest, '/'), *mark = find(rest, '?');
        struct span authority = {rest.from, slash < mark ? slash : mark};
        p->has_authority = 1;
        all.from = authority.to;
        if (authority.from < authority.to && find(all, '@') < all.to)
            return "an '@' after the host (in a path write %40; in a password '/' is %2F, '?' %3F)";
        const char *why = split_authority(authority, p);
        if (why) return why;
    }
    const char *mark = find(all, '?');
    p->path = (struct span){all.from, mark};
    struct span behind = {find(p->path, ':'), mark};
    if (find(behind, '@') < mark)
        return "an '@' behind a ':' (before a host '//' is needed; in a path write %40)";
    if (mark < all.to) p->query = (struct span){mark + 1, all.to};
    return NULL;
}

static const char *parse_port(struct span s, int *ret)
{
    int port = 0;
    for (; s.from < s.to; s.from++) {
        if (*s.from < '0' || *s.from > '9') return "the port isn't a number";
        port = port * 10 + (*s.from - '0');
        if (port > 65535) return "the port is above 65535";
    }
    *ret = port;
    return port ? NULL : "port 0";
}

/* Returns 1 for an IPv6 address, also with a zone (fe80::1%25eth0 in the URL). The resolver finds
   out whether the zone exists. */
static int is_ipv6(const char *host)
{
    size_t n = strspn(host, "0123456789abcdefABCDEF:.");
    return memchr(host, ':', n) && (!host[n] || (host[n] == '%' && host[n + 1]));
}

static const char *check_host(const struct parts *p, const char *host)
{
    if (p->brackets) return is_ipv6(host) ? NULL : "no IPv6 address between '[' and ']'";
    if (strpbrk(host, " \"<>\\^`{|}")) return "the host isn't a name";
    return strpbrk(host, "[]") && !strchr(host, ',') ? "brackets within the host" : NULL;
}

/* Takes the first name=value off the query `rest`. */
static void next_pair(struct span *rest, struct span *name, struct span *value)
{
    struct span pair = {rest->from, find(*rest, '&')};
    name->from = pair.from;
    name->to = find(pair, '=');
    value->from = name->to < pair.to ? name->to + 1 : pair.to;
    value->to = pair.to;
    rest->from = pair.to < rest->to ? pair.to + 1 : rest->to;
}

/* Returns 1 if the value is surely a file's name: a path, or a name with an extension ("/etc/x",
   "./x", "client.pem"). Any other word may be the secret itself. */
static int is_file_name(const char *value)
{
    const char *slash = strrchr(value, '/'), *dot = strrchr(slash ? slash : value, '.');
    if (value[0] == '/' || !strncmp(value, "./", 2) || !strncmp(value, "../", 3)) return 1;
    size_t n = dot ? strspn(dot + 1, "abcdefghijklmnopqrstuvwxyz0123456789") : 0;
    return dot > value && n >= 2 && n <= 5 && !dot[1 + n];
}

/* Returns 1 if the option's value is the name of a file: the name isn't a secret, the file's
   content is. */
static int names_file(const char *name, const char *raw_value, size_t len)
{
    static const char *const either[] = {"key", "sslkey", "credentials"};
    char value[sizeof((hf_url *)0)->query];
    size_t n = strlen(name);
    if (n >= 4 && !strcasecmp(name + n - 4, "file")) return 1;
    for (size_t i = 0; i < sizeof either / sizeof *either; i++)
        if (!strcasecmp(name, either[i]))
            return !decode((struct span){raw_value, raw_value + len}, value, sizeof value) &&
                   is_file_name(value);
    return 0;
}

int hf__url_secret(const char *raw_name, size_t len, const char *raw_value, size_t value_len)
{
    static const char *const within[] = {"pass",      "pwd",        "secret",
                                         "token",     "credential", "private",
                                         "signature", "jwt",        "authmechanismproperties"};
    char name[256];
    if (decode((struct span){raw_name, raw_name + len}, name, sizeof name)) return 1;
    size_t n = strlen(name);
    if (names_file(name, raw_value, value_len)) return 0;
    if (n >= 3 && !strcasecmp(name + n - 3, "key")) return 1;
    if (!strcasecmp(name, "auth")) return 1;
    for (size_t i = 0; i < sizeof within / sizeof *within; i++)
        if (strcasestr(name, within[i])) return 1;
    return 0;
}

static int secret(struct span name, struct span value)
{
    return value.from < value.to && hf__url_secret(name.from, (size_t)(name.to - name.from),
                                                   value.from, (size_t)(value.to - value.from));
}

struct out {
    char *to;
    size_t len, cap;
};

static void put(struct out *o, struct span s)
{
    size_t n = s.to > s.from ? (size_t)(s.to - s.from) : 0;
    if (o->len + n < o->cap) {
        if (n) memcpy(o->to + o->len, s.from, n);
        o->to[o->len + n] = 0;
    }
    o->len += n;
}

static void put_text(struct out *o, const char *text)
{
    put(o, (struct span){text, text + strlen(text)});
}

/* Writes the query without the values that may be secret. */
static void put_query(struct out *o, struct span rest)
{
    const char *before = "?";
    while (rest.from < rest.to) {
        struct span name, value;
        next_pair(&rest, &name, &value);
        if (name.from == value.to || secret(name, value)) continue;
        put_text(o, before);
        put(o, (struct span){name.from, value.to});
        before = "&";
    }
}

static const char *build_safe(const struct parts *p, char *to, size_t cap)
{
    struct out o = {to, 0, cap};
    put(&o, p->scheme);
    put_text(&o, p->has_authority ? "://" : ":");
    put(&o, p->user);
    /* Secrets are left out, not replaced by stars: children get this URL, and would take the stars
       for the password. */
    if (p->has_user && (p->user.from < p->user.to || !p->has_password)) put_text(&o, "@");
    if (p->brackets) put_text(&o, "[");
    put(&o, p->host);
    if (p->brackets) put_text(&o, "]");
    if (p->port.from < p->port.to) put_text(&o, ":");
    put(&o, p->port);
    put(&o, p->path);
    put_query(&o, p->query);
    /* Where a part was left out, a blank may be the last character now: parsing cuts it off. */
    if (o.len < cap && to[o.len - 1] == ' ') {
        o.len--;
        put_text(&o, "%20");
    }
    return o.len < cap ? NULL : "it is too long";
}

/* Checks that every value can be decoded, because hf_url_get can't say why one can't. Returns what
   is wrong, or NULL. */
static const char *check_query(struct span query)
{
    char scratch[sizeof((hf_url *)0)->query];
    for (struct span rest = query; rest.from < rest.to;) {
        struct span name, value;
        const char *why;
        next_pair(&rest, &name, &value);
        if ((why = decode(name, scratch, sizeof scratch))) return why;
        if ((why = decode(value, scratch, sizeof scratch))) return why;
    }
    return NULL;
}

static const char *fill(const struct parts *p, hf_url *u)
{
    const char *why;
    _Static_assert(sizeof u->scheme >= 32, "split() has counted it");
    memcpy(u->scheme, p->scheme.from, (size_t)(p->scheme.to - p->scheme.from));
    if ((why = decode(p->user, u->user, sizeof u->user))) return why;
    if ((why = decode(p->password, u->password, sizeof u->password))) return why;
    if ((why = decode(p->host, u->host, sizeof u->host))) return why;
    if ((why = check_host(p, u->host))) return why;
    if (p->port.from && (why = parse_port(p->port, &u->port))) return why;
    if ((why = decode(p->path, u->path, sizeof u->path))) return why;
    if ((why = check_query(p->query))) return why;
    struct out query = {u->query, 0, sizeof u->query};
    put(&query, p->query);
    if (query.len >= query.cap) return "the query is too long";
    return build_safe(p, u->safe, sizeof u->safe);
}

int hf_url_parse(const char *text, hf_url *ret, hf_error *err)
{
    struct parts p;
    hf_url u;
    memset(&p, 0, sizeof p);
    memset(&u, 0, sizeof u);
    if (!text || !hf__url_length(text)) return fail(&p, "is empty", err);
    const char *why = split(text, &p);
    if (!why) why = fill(&p, &u);
    if (why) return fail(&p, why, err);
    *ret = u;
    return 0;
}

/* Writes the path so that parsing gives the same path again. A path with a control character makes
   a URL that parsing refuses. */
static void put_path(struct out *o, const char *path, int has_host)
{
    for (int no_at = has_host; *path; path++) {
        char c[4] = {*path, 0, 0, 0};
        no_at |= *path == ':';
        if (control((unsigned char)*path) || *path == '%' || *path == '?' ||
            (*path == '@' && no_at) || (*path == ' ' && !path[1]))
            snprintf(c, sizeof c, "%%%02X", (unsigned char)*path);
        put_text(o, c);
    }
}

int hf_url_set_path(hf_url *url, const char *path, hf_error *err)
{
    char safe[sizeof url->safe];
    struct out o = {safe, 0, sizeof safe};
    struct span rest = {strchr(url->safe, ':') + 1, url->safe + strlen(url->safe)};
    const char *authority = NULL;
    if (rest.from[0] == '/' && rest.from[1] == '/') authority = rest.from += 2;
    const char *mark = find(rest, '?');
    if (authority) rest.from = find((struct span){rest.from, mark}, '/');
    put(&o, (struct span){url->safe, rest.from});
    if (!authority && path[0] == '/' && path[1] == '/') put_text(&o, "//");
    put_path(&o, path, authority && authority < rest.from);
    put(&o, (struct span){mark, rest.to});
    if (strlen(path) >= sizeof url->path || o.len >= o.cap)
        return hf_fail(err, HF_INVALID, 0, "url '%s:...': the path is too long", url->scheme);
    memmove(url->path, path, strlen(path) + 1);
    memcpy(url->safe, safe, o.len + 1);
    return 0;
}

int hf_url_get(const hf_url *url, const char *name, char *ret, size_t cap)
{
    char key[sizeof url->query], value[sizeof url->query];
    struct span rest = {url->query, url->query + strlen(url->query)};
    int found = 0;
    while (rest.from < rest.to) {
        struct span n, v;
        next_pair(&rest, &n, &v);
        if (decode(n, key, sizeof key) || strcmp(key, name)) continue;
        if (found++ || decode(v, value, sizeof value)) return HF_INVALID;
    }
    if (!found) {
        if (cap) ret[0] = 0;
        return HF_UNSUPPORTED;
    }
    size_t len = strlen(value);
    if (len >= cap) return HF_INVALID;
    memcpy(ret, value, len + 1);
    return 0;
}
