/*
 * options.c - redis: reads the URL; and the texts of the scripts.
 */
#include "kit/text.h"
#include "store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the URL ---- */

static int bad(const hf_url *url, const char *what, hf_error *err)
{
    return hf_fail(err, HF_INVALID, 0, HF_RD ": open '%s': %s", url->safe, what);
}

/* Copies the option's text, a number of at most `most`; "": the option isn't given. Returns 1; 0:
   it isn't such a number. */
static int number(const hf_url *url, const char *name, unsigned long most, char *to, size_t cap)
{
    char *end;
    int rc = hf_url_get(url, name, to, cap);
    if (rc == HF_UNSUPPORTED) return 1;
    if (rc || !*to || strspn(to, "0123456789") != strlen(to)) return 0;
    return strtoul(to, &end, 10) <= most;
}

static int which_db(struct hf__rd_how *how, const hf_url *url, hf_error *err)
{
    char db[8];
    const char *path = url->path[0] == '/' ? url->path + 1 : url->path;
    if (!number(url, "db", 99999, db, sizeof db)) return bad(url, "db: not a number", err);
    if (strspn(path, "0123456789") != strlen(path) || strlen(path) > 5)
        return bad(url, "the path isn't the number of a database", err);
    if (*path && db[0] && strcmp(path, db) != 0)
        return bad(url, "db: the path names another database", err);
    snprintf(how->db, sizeof how->db, "%s", *path ? path : db[0] ? db : "0");
    return 0;
}

static int who(struct hf__rd_how *how, const hf_url *url, hf_error *err)
{
    char path[HF_SECRET_PATH], why[HF_KIT_WHY];
    memcpy(how->user, url->user, sizeof how->user);
    memcpy(how->password, url->password, sizeof how->password);
    int rc = hf_url_get(url, "passfile", path, sizeof path);
    if (rc == HF_INVALID) return bad(url, "passfile: too long, or given twice", err);
    if (!rc && how->password[0]) return bad(url, "passfile: there is a password already", err);
    if (!rc && (rc = hf__secret_open(&how->secret, path, why)))
        return hf_fail(err, rc, 0, HF_RD ": open '%s': %s", url->safe, why);
    /* Some tools take redis://WORD@ for a password, so the error doesn't show it. */
    if (how->user[0] && !how->password[0] && !how->secret.path[0])
        return hf_fail(err, HF_INVALID, 0,
                       HF_RD ": open: a user without a password (a password alone is "
                             "written " HF_RD "://:PASSWORD@HOST)");
    return 0;
}

/* Makes a relative path absolute, by the present working directory. */
static int whole_path(struct hf__rd_how *how)
{
    char dir[sizeof how->socket], path[sizeof how->socket];
    if (how->socket[0] == '/') return 0;
    if (!getcwd(dir, sizeof dir)) return HF_INVALID;
    size_t n = (size_t)snprintf(path, sizeof path, "%s/%s", dir, how->socket);
    if (n >= sizeof path) return HF_INVALID;
    memcpy(how->socket, path, n + 1);
    return 0;
}

static int where(struct hf__rd_how *how, const hf_url *url, hf_error *err)
{
    int rc = hf_url_get(url, "socket", how->socket, sizeof how->socket);
    if (rc == HF_INVALID) return bad(url, "socket: too long, or given twice", err);
    if (!rc && hf__rd_filter) return bad(url, "socket: without TLS only", err);
    if (!rc && (url->host[0] || url->port)) return bad(url, "socket: there is a host, too", err);
    if (!rc && !how->socket[0]) return bad(url, "socket: empty", err);
    if (!rc && whole_path(how)) return bad(url, "socket: the path is too long", err);
    if (strchr(url->host, ',')) return bad(url, "more than one host", err);
    snprintf(how->host, sizeof how->host, "%s", url->host[0] ? url->host : "127.0.0.1");
    snprintf(how->port, sizeof how->port, "%d", url->port ? url->port : 6379);
    return 0;
}

static const char *unknown_option(const hf_url *url, char *name, size_t cap)
{
    static const char *const own[] = {"db", "passfile", "prefix", "socket", "wait"};
    const char *known[16];
    size_t n = 0;
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) known[n++] = own[i];
    for (size_t i = 0; hf__rd_filter && hf__rd_filter->options[i]; i++)
        known[n++] = hf__rd_filter->options[i];
    known[n] = NULL;
    return hf__unknown_option(url, known, name, cap);
}

int hf__rd_options(hf_store *st, const hf_url *url, hf_error *err)
{
    struct hf__rd_how *how = &st->how;
    char text[64], why[HF_KIT_WHY];
    if (unknown_option(url, text, sizeof text))
        return hf_fail(err, HF_INVALID, 0, HF_RD ": open '%s': unknown option '%s'", url->safe,
                       text);
    int rc = where(how, url, err);
    if (!rc) rc = which_db(how, url, err);
    if (!rc) rc = who(how, url, err);
    if (rc) return rc;
    rc = hf_url_get(url, "prefix", how->prefix, sizeof how->prefix);
    if (rc == HF_UNSUPPORTED)
        snprintf(how->prefix, sizeof how->prefix, "holdfast:");
    else if (rc || !how->prefix[0])
        return bad(url, "prefix: not 1 to 64 bytes", err);
    const char *db = how->db + strspn(how->db, "0");
    snprintf(how->channels, sizeof how->channels, "%s%s", *db ? "\t" : "", db);
    if (!number(url, "wait", 100, text, sizeof text))
        return bad(url, "wait: not a number up to 100", err);
    how->wait = (unsigned)strtoul(text, NULL, 10);
    rc = hf__rd_filter ? hf__rd_filter->ready(url, &how->tls, why) : 0;
    return rc ? hf_fail(err, rc, 0, HF_RD ": open '%s': %s", url->safe, why) : 0;
}

/* ---- the scripts ---- */

/* The indices in ARGV at which the values of a row begin. */
enum { FIRST_OF_SWAP = 8, FIRST_OF_ACQUIRE = 6 };

/* A script's reply is {done, clock, whether there is a row, the row}. The clock is the reply to
   TIME. The row is the values of its fields, in the order of kit/columns.h; numbers are texts,
   because Lua would round them. The reply to a replace that was done is only the clock: one more
   table in a reply costs a twelfth of the server's time. A request has the values of a row in the
   same order. */
#define TEXT_OF(number) #number
#define AS_TEXT(number) TEXT_OF(number)
#define SAID_MOST       AS_TEXT(HF_RD_SAID_MOST)
#define HEAD            "local k, a, t = KEYS[1], ARGV, redis.call('TIME')\n"
/* These marks in the scripts are replaced when a store is opened:
   $        the names of all fields
   @        for swap: names and values of all fields
   !        for swap: names and values of the fields that every row has
   &        for acquire: names and values of the fields that come from the request
   #name#   for swap: the value of this field
   #&name#  for acquire: the value of this field */
#define TELL "return {0, t, redis.call('EXISTS', k), redis.call('HMGET', k$)}\n"
/* If the client waits for replicas (?wait=), they must also have the row that a refusal shows. So
   the script makes a write that changes nothing: a replica that has this write has all writes
   before it. */
#define REFUSE "  if a[2] ~= '0' and old[1] then redis.call('HSET', k, 'rev', old[1]) end\n  " TELL

/* Publishes the notification `word` on the key's channel, and on the channels of the addresses
   (notify.c). */
#define NOTIFY(PREFIX, CHANNELS, ADDRESSES)                                         \
    "  redis.pcall('PUBLISH', k .. " CHANNELS ", word)\n"                           \
    "  word = string.sub(k, string.len(" PREFIX ") + 1) .. '\\n' .. word\n"         \
    "  for to in string.gmatch(" ADDRESSES ", '%x+') do\n"                          \
    "    redis.pcall('PUBLISH', " PREFIX " .. '\\t' .. to .. " CHANNELS ", word)\n" \
    "  end\n"

/* The HDEL changes nothing, but a server that has become a replica refuses it, instead of showing
   an old row. ARGV: '1' if the client waits for replicas: then a write that changes nothing is
   made, as in REFUSE. */
static const char get[] =
    HEAD "local w = redis.pcall('HDEL', k, '(none)')\n"
         "if type(w) == 'table' and w.err and string.find(w.err, 'READONLY', 1, true) then\n"
         "  return w\n"
         "end\n"
         "local rev = a[1] == '1' and redis.call('HMGET', k, 'rev')[1]\n"
         "if rev then redis.call('HSET', k, 'rev', rev) end\n" TELL;

/* The replace. ARGV: the rev seen; wait; whether the new row has waiters; the notification ('*':
   the row itself); the prefix; what channel names end in; the addresses of the parties that the
   change concerns (notify.c); the values of the row (none: delete the row). The write of the row
   comes before all other writes, so that an error means that nothing was done. If the row had
   `more`, a queue or a marker, and now has none, this write stores them as empty texts; the HDELs
   after it only tidy up. A notification is published if the holders change, or the first waiter
   comes: it tells the holder, which then can hand the key over without a read. Another waiter at
   the end of the queue notifies nobody. */
static const char swap[] =
    HEAD "local old = redis.call('HMGET', k, 'rev', 'queue', 'more', 'done')\n"
         "if (old[1] or '0') ~= a[1] or (not old[1] and redis.call('EXISTS', k) == 1) then\n" REFUSE
         "end\n"
         "local tell = a[3] == '1' or (old[2] and old[2] ~= '')\n"
         "if tell and a[8] and old[2] and old[2] ~= '' then\n"
         "  local was = redis.call('HMGET', k, 'owner', 'request', 'expires_us')\n"
         "  tell = was[1] ~= #owner# or was[2] ~= #request# or was[3] ~= #expires_us# or\n"
         "         (old[3] or '') ~= #more#\n"
         "end\n"
         "if not a[8] then\n"
         "  redis.call('DEL', k)\n"
         "elseif old[2] or old[3] or old[4] or #queue# ~= '' or #more# ~= '' or\n"
         "       #done# ~= '' then\n"
         "  redis.call('HSET', k@)\n"
         "  for field, value in pairs({queue = #queue#, more = #more#, done = #done#}) do\n"
         "    if value == '' then redis.pcall('HDEL', k, field) end\n"
         "  end\n"
         "else\n"
         "  redis.call('HSET', k!)\n"
         "end\n"
         "if tell then\n"
         "  local word = a[4]\n"
         "  if word == '*' then word = table.concat(a, '\\0', 8) end\n" NOTIFY("a[5]", "a[6]",
                                                                               "a[7]") "end\n"
                                                                                       "return t\n";

/* hf_row_acquire, in Lua. ARGV: the most waiters, wait, claim_ms, the prefix, what channel names
   end in, the values of the fields that come from the request. All numbers are below 2^53, so Lua
   computes exactly.
   A free key is granted. The reply then has the row only if the row has a marker, because values in
   a reply are what costs most.
   On a held key the request gets a place in the queue, if one party holds, exclusively. The script
   sees that by `more`, a JSON text: it would have a member for the mode or for further holders. The
   script searches for the member's name in quotes, which can't occur inside a string of JSON. */
static const char acquire[] = HEAD
    "local old = redis.call('HMGET', k, 'rev', 'format', 'owner', 'more', 'queue', 'done',\n"
    "                       'request', 'expires_us')\n"
    "local rev, now, id = tonumber(old[1] or '0'), t[1] * 1000000 + t[2], #&request#\n"
    "local more, line, held = old[4] or '', old[5] or '', false\n"
    "if old[1] or redis.call('EXISTS', k) == 1 then\n"
    "  if not rev or rev >= 9007199254740991 or old[2] ~= '2' or not old[3] then\n"
    "    " TELL "  end\n"
    "  held = old[3] ~= ''\n"
    "  local fits = old[7] ~= id and more == '' and line == ''\n"
    "  if held then\n"
    "    local ends = tonumber(old[8])\n"
    "    local function lacks(text, what) return not string.find(text, what, 1, true) end\n"
    "    local function has_room()\n"
    "      local _, n = string.gsub(line, '\"request\"%s*:', '')\n"
    "      return n < tonumber(a[1])\n"
    "    end\n"
    "    fits = a[1] ~= '0' and ends and (ends == 0 or now < ends) and old[7] ~= id and\n"
    "           lacks(more, '\"mode\"') and lacks(more, '\"holders\"') and lacks(line, id) and\n"
    "           (line == '' or string.sub(line, 1, 2) == '[{' and\n"
    "            string.sub(line, -2) == '}]') and has_room()\n"
    "  end\n"
    "  if not fits then\n  " REFUSE "  end\n"
    "end\n"
    "local clock, ends = string.format('%.0f', now), '0'\n"
    "rev = rev < now and clock or string.format('%.0f', rev + 1)\n"
    "if held then\n"
    "  line = (line == '' and '[' or string.sub(line, 1, -2) .. ',') ..\n"
    "    '{\"request\":\"' .. id .. '\",\"owner\":' .. cjson.encode(#&owner#) ..\n"
    "    ',\"note\":' .. cjson.encode(#&note#) .. ',\"since_us\":' .. clock ..\n"
    "    ',\"lease_ms\":' .. #&lease_ms# .. ',\"claim_ms\":' .. a[3] ..\n"
    "    (#&more# == '' and '}' or ',' .. string.sub(#&more#, 2)) .. ']'\n"
    "  redis.call('HSET', k, 'rev', rev, 'queue', line)\n"
    "  local row = redis.call('HMGET', k$)\n"
    "  if (old[5] or '') == '' then\n"
    "    for i, value in ipairs(row) do row[i] = value or '' end\n"
    "    local word = table.concat(row, '\\0')\n"
    "    if a[2] ~= '0' or string.len(word) >= " SAID_MOST " then word = '' end\n" NOTIFY(
        "a[4]", "a[5]",
        "string.sub(old[7] or '', 1, 16)") "  end\n"
                                           "  return {1, t, 1, row}\n"
                                           "end\n"
                                           "if #&lease_ms# ~= '0' then\n"
                                           "  ends = string.format('%.0f', now + #&lease_ms# * "
                                           "1000)\n"
                                           "end\n"
                                           "if #&more# == '' then\n"
                                           "  redis.call('HSET', k, 'rev', rev, 'token', rev, "
                                           "'acquired_us', clock,\n"
                                           "             'expires_us', ends&)\n"
                                           "else\n"
                                           "  redis.call('HSET', k, 'rev', rev, 'token', rev, "
                                           "'acquired_us', clock,\n"
                                           "             'expires_us', ends, 'more', #&more#&)\n"
                                           "end\n"
                                           "if (old[6] or '') == '' then return {1, t, rev} end\n"
                                           "return {1, t, 1, redis.call('HMGET', k$)}\n";

#define BIT(NAME) (UINT32_C(1) << HF_FIELD_##NAME)
enum {
    ALL = (UINT32_C(1) << HF_FIELDS) - 1,
    MAY_BE_ABSENT = BIT(MORE) | BIT(QUEUE) | BIT(DONE),
    GRANTED = BIT(REV) | BIT(TOKEN) | BIT(ACQUIRED) | BIT(EXPIRES)
};
const uint32_t hf__rd_fields_of_replace = ALL;
const uint32_t hf__rd_fields_of_acquire = ALL & ~(GRANTED | BIT(QUEUE) | BIT(DONE));
#undef BIT

/* Writes what the mark at *at stands for (the marks are listed above the scripts), and moves *at to
   the end of the mark. */
static void expand(FILE *to, const char **at)
{
    int one = **at == '#', names_only = **at == '$';
    const char *name = *at += one;
    int is_acquire = **at == '&', plain = is_acquire || **at == '!';
    uint32_t given = is_acquire ? hf__rd_fields_of_acquire : hf__rd_fields_of_replace;
    int next = is_acquire ? FIRST_OF_ACQUIRE : FIRST_OF_SWAP;
    if (one) *at = strchr(name, '#');
    name += one && is_acquire;
    for (int i = 0; i < HF_FIELDS; i++) {
        const char *field = hf__field[i].name;
        size_t len = strlen(field);
        if (!(given >> i & 1)) continue;
        if (one && len == (size_t)(*at - name) && !memcmp(field, name, len))
            fprintf(to, "a[%d]", next);
        if (!one && !(plain && MAY_BE_ABSENT >> i & 1)) fprintf(to, ", '%s'", field);
        if (!one && !(plain && MAY_BE_ABSENT >> i & 1) && !names_only) fprintf(to, ", a[%d]", next);
        next++;
    }
}

/* The script that `holdfast guard redis` prints, made from guards/redis.lua. KEYS: fence, row.
   ARGV: token. */
extern const char guard_script_redis_lua[];

static char *script(const char *body)
{
    char *text = NULL;
    size_t len;
    FILE *to = open_memstream(&text, &len);
    if (!to) return NULL;
    for (const char *s = body; *s; s++)
        if (strchr("$@!&#", *s))
            expand(to, &s);
        else
            fputc(*s, to);
    int failed = ferror(to);
    if (!fclose(to) && !failed) return text;
    free(text);
    return NULL;
}

int hf__rd_scripts(struct hf__rd_how *how)
{
    how->script[HF_RD_GET] = script(get);
    how->script[HF_RD_SWAP] = script(swap);
    how->script[HF_RD_ACQUIRE] = script(acquire);
    how->script[HF_RD_ENTER] = strdup(guard_script_redis_lua);
    for (int i = 0; i < HF_RD_SCRIPTS; i++)
        if (!how->script[i]) return HF_NOMEM;
    return 0;
}
