/*
 * people.c - describes holders and waiters, by the notes in their rows.
 *
 * A note is "host=H user=U pid=P pidns=N command=C", with percent-encoded values, the command last;
 * N is the number of the PID namespace. Notes come from other programs and machines, so they are
 * shown, but never trusted.
 */
#include "cli.h"

#include "os.h"
#include "shown.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- times ---- */

void show_time(int64_t us, char *to, size_t cap)
{
    time_t seconds = (time_t)(us / 1000000);
    struct tm tm;
    if (!gmtime_r(&seconds, &tm) || !strftime(to, cap, "%Y-%m-%d %H:%M:%S", &tm))
        snprintf(to, cap, "?");
}

void show_left(int64_t ms, char *to, size_t cap)
{
    if (ms == HF_FOREVER)
        snprintf(to, cap, "-");
    else if (ms < 60000)
        snprintf(to, cap, "%.1fs", (double)ms / 1000);
    else if (ms < 3600000)
        snprintf(to, cap, "%lldm%02llds", (long long)(ms / 60000), (long long)(ms / 1000 % 60));
    else
        snprintf(to, cap, "%lldh%02lldm", (long long)(ms / 3600000), (long long)(ms / 60000 % 60));
}

/* ---- notes ---- */

static int hex(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Percent-decodes the text up to `end`; a '%' that isn't followed by two digits stays. */
static void decode(const char *from, const char *end, char *to, size_t cap)
{
    char raw[HF_NOTE_CAP];
    size_t at = 0;
    for (const char *s = from; s < end && at + 1 < sizeof raw; s++) {
        int encoded = *s == '%' && end - s > 2 && hex(s[1]) >= 0 && hex(s[2]) >= 0;
        raw[at++] = encoded ? (char)(hex(s[1]) * 16 + hex(s[2])) : *s;
        if (encoded) s += 2;
    }
    raw[at] = 0;
    hf__show_text(raw, to, cap);
}

void read_note(const char *note, struct person *ret)
{
    char pid[24] = "", pidns[24] = "";
    memset(ret, 0, sizeof *ret);
    for (const char *s = note; *s;) {
        const char *end = s + strcspn(s, " ");
        if (!strncmp(s, "host=", 5)) decode(s + 5, end, ret->host, sizeof ret->host);
        if (!strncmp(s, "user=", 5)) decode(s + 5, end, ret->user, sizeof ret->user);
        if (!strncmp(s, "pid=", 4)) decode(s + 4, end, pid, sizeof pid);
        if (!strncmp(s, "pidns=", 6)) decode(s + 6, end, pidns, sizeof pidns);
        if (!strncmp(s, "command=", 8)) {
            decode(s + 8, s + strlen(s), ret->command, sizeof ret->command);
            break;
        }
        s = end + (*end == ' ');
    }
    char *end;
    ret->pid = strtol(pid, &end, 10);
    if (*end || ret->pid < 0) ret->pid = 0;
    ret->pid_namespace = strtoull(pidns, NULL, 10);
    /* A note without these fields was written by a user: the whole of it is shown. */
    if (!ret->host[0] && !ret->pid && !ret->command[0])
        hf__show_text(note, ret->command, sizeof ret->command);
}

/* Appends the text, with '%', spaces and what isn't printable ASCII percent-encoded. Cuts what has
   no room. */
static void encode(char *to, size_t cap, const char *text)
{
    size_t at = strlen(to);
    for (const unsigned char *s = (const unsigned char *)text; *s;) {
        size_t n = hf__utf8(s); /* not cut in the middle */
        if (at + 3 * (n ? n : 1) >= cap) break;
        for (size_t i = 0; i < (n ? n : 1); i++, s++)
            if (*s > 0x20 && *s < 0x7f && *s != '%')
                to[at++] = (char)*s;
            else
                at += (size_t)snprintf(to + at, cap - at, "%%%02X", *s);
    }
    to[at] = 0;
}

static void add(char *to, size_t cap, const char *plain)
{
    size_t at = strlen(to);
    snprintf(to + at, cap - at, "%s", plain);
}

/* Appends a part of a command line, with the secrets in its URLs wiped. Other secrets can't be
   recognized. */
static void encode_command(char *to, size_t cap, const char *text)
{
    char *shown = strdup(text);
    if (shown) wipe_secrets(shown);
    encode(to, cap, shown ? shown : "?");
    free(shown);
}

/* Appends the command line of another process, if that process still exists. */
static void add_command_of(char *to, size_t cap, pid_t pid)
{
    char path[40], args[4096]; /* more than fits, because a secret that was cut isn't recognized */
    snprintf(path, sizeof path, "/proc/%ld/cmdline", (long)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, args, sizeof args - 1);
    if (fd >= 0) close(fd);
    while (n > 0 && !args[n - 1]) n--;
    for (ssize_t i = 0; i < n; i++)
        if (!args[i]) args[i] = ' ';
    args[n > 0 ? n : 0] = 0;
    encode_command(to, cap, args);
}

enum { RANDOM_DIGITS = 16 };

void write_owner(char owner[HF_OWNER_CAP])
{
    char host[65] = "", user[64], where[56], who[36];
    uint64_t unique;
    gethostname(host, sizeof host - 1);
    hf__random(&unique, sizeof unique);
    hf__show_text(host, where, sizeof where);
    hf__user_name(user, sizeof user);
    hf__show_text(user, who, sizeof who);
    snprintf(owner, HF_OWNER_CAP, "%s@%s:%ld:%0*llx", who, where, (long)getpid(), RANDOM_DIGITS,
             (unsigned long long)unique);
}

/* Returns the end of an owner of write_owner: the colon and the random digits; NULL: it is another
   owner. */
static const char *random_part(const char *owner)
{
    size_t n = strlen(owner);
    if (n <= RANDOM_DIGITS) return NULL;
    const char *at = owner + n - RANDOM_DIGITS;
    return strspn(at, "0123456789abcdef") == RANDOM_DIGITS && at[-1] == ':' && strchr(owner, '@')
               ? at - 1
               : NULL;
}

void show_owner(const char *owner, char *to, size_t cap)
{
    const char *end = random_part(owner);
    char part[HF_OWNER_CAP];
    snprintf(part, sizeof part, "%.*s", end ? (int)(end - owner) : (int)sizeof part, owner);
    hf__show_text(part, to, cap);
}

void write_note(char note[HF_NOTE_CAP], char *const *argv)
{
    char host[65] = "", user[64], numbers[80];
    gethostname(host, sizeof host - 1);
    hf__user_name(user, sizeof user);
    note[0] = 0;
    add(note, HF_NOTE_CAP, "host=");
    encode(note, HF_NOTE_CAP, host);
    add(note, HF_NOTE_CAP, " user=");
    encode(note, 160, user);
    snprintf(numbers, sizeof numbers,
             " pid=%ld pidns=%llu command=", (long)(argv ? getpid() : getppid()),
             (unsigned long long)hf__pid_namespace());
    add(note, HF_NOTE_CAP, numbers);
    if (!argv) add_command_of(note, HF_NOTE_CAP, getppid());
    for (int i = 0; argv && argv[i]; i++) {
        if (i) encode(note, HF_NOTE_CAP, " ");
        encode_command(note, HF_NOTE_CAP, argv[i]);
    }
}

/* `holdfast run` gives its command the descriptor on which the hold depends. So after the end of
   the process that the note names, processes that it has started may still hold. Only processes of
   this machine and this PID namespace can be checked. */
int is_carried(const hf_party_info *p)
{
    struct person who;
    char host[65] = "", shown[80];
    read_note(p->note, &who);
    gethostname(host, sizeof host - 1);
    hf__show_text(host, shown, sizeof shown);
    return p->token && p->left_ms == HF_FOREVER && who.pid && !strcmp(who.host, shown) &&
           who.pid_namespace && who.pid_namespace == hf__pid_namespace() &&
           kill((pid_t)who.pid, 0) && errno == ESRCH;
}

/* Returns 1 if a user has chosen this owner; 0 if write_owner or the library has made it, which
   isn't shown. */
static int was_chosen(const char *owner)
{
    if (random_part(owner)) return 0;
    return strlen(owner) != 32 || strspn(owner, "0123456789abcdef") != 32;
}

void describe(const hf_party_info *p, char *to, size_t cap)
{
    struct person who;
    read_note(p->note, &who);
    char pid[80] = "";
    int noted = who.host[0] || who.user[0] || who.command[0];
    if (noted && was_chosen(p->owner)) {
        hf__show_text(p->owner, to, cap);
        size_t n = strlen(to);
        n += (size_t)snprintf(to + n, cap - n, ", ");
        if (n >= cap) return;
        to += n;
        cap -= n;
    }
    if (who.pid)
        snprintf(pid, sizeof pid, " pid %ld%s", who.pid,
                 is_carried(p) ? ", ended; what it started holds on" : "");
    if (who.host[0] || who.user[0])
        snprintf(to, cap, "%s@%s%s%s%s%s", who.user[0] ? who.user : "?",
                 who.host[0] ? who.host : "?", pid, who.command[0] ? " (" : "", who.command,
                 who.command[0] ? ")" : "");
    else if (who.command[0])
        snprintf(to, cap, "%s%s", who.command, pid);
    else
        hf__show_text(p->owner, to, cap);
}

/* ---- sorted lines ---- */

int collect_line(struct lines *lines, const char *key, const char *line)
{
    if (lines->n == lines->cap) {
        size_t cap = lines->cap ? lines->cap * 2 : 64;
        char **more = realloc(lines->line, cap * sizeof *more);
        if (!more) return HF_NOMEM;
        lines->line = more;
        lines->cap = cap;
    }
    size_t k = strlen(key) + 1, n = strlen(line) + 1;
    char *both = malloc(k + n);
    if (!both) return HF_NOMEM;
    memcpy(both, key, k);
    memcpy(both + k, line, n);
    lines->line[lines->n++] = both;
    return 0;
}

static int by_key(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

void print_lines(struct lines *lines)
{
    if (lines->n) qsort(lines->line, lines->n, sizeof *lines->line, by_key);
    for (size_t i = 0; i < lines->n; i++) {
        fputs(lines->line[i] + strlen(lines->line[i]) + 1, stdout);
        free(lines->line[i]);
    }
    free(lines->line);
    *lines = (struct lines){NULL, 0, 0};
}
