/*
 * guard.c - holdfast guard: prints a guard, which makes a database refuse writes without a grant.
 */
#include "cli.h"

#include "guard.h"

#include <getopt.h>
#include <stddef.h>
#include <string.h>

enum {
    POSTGRES = 1,
    SQLITE = 2,
    FIRESTORE = 4,
    REDIS = 8,
    MONGODB = 16,
    MARIADB = 32,
    SQL = POSTGRES | SQLITE | MARIADB,
};

static const struct kind {
    const char *name;
    unsigned bit;
    int operands; /* at most */
    const char *(*print)(const struct guard_options *);
} kinds[] = {
    {"postgres", POSTGRES, 1, guard_postgres}, {"mariadb", MARIADB, 1, guard_mariadb},
    {"sqlite", SQLITE, 1, guard_sqlite},       {"firestore", FIRESTORE, 0, guard_firestore},
    {"redis", REDIS, 0, guard_redis},          {"mongodb", MONGODB, 1, guard_mongodb},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

#define TEXT(member) offsetof(struct guard_options, member), 0
#define FLAG(member) offsetof(struct guard_options, member), 1
static const struct {
    const char *name;
    unsigned kinds;
    size_t at;
    int is_flag;
    const char *value, *help;
} known[] = {
    {"key-column", SQL, TEXT(key_column), "COLUMN", "the column that says a row's key"},
    {"key-prefix", SQL | REDIS | FIRESTORE, TEXT(key_prefix), "TEXT", "what each key begins with"},
    {"schema", POSTGRES, TEXT(schema), "NAME", "the schema of the table"},
    {"locks", SQL, TEXT(locks), "TABLE", "where the locks are (holdfast)"},
    {"locks-schema", POSTGRES, TEXT(locks_schema), "NAME", "the schema of the locks"},
    {"elsewhere", SQL | REDIS, FLAG(elsewhere), NULL, "the locks are in another store"},
    {"lock", FIRESTORE, TEXT(lock), "COLLECTION", "the collection of the locks"},
    {"data", FIRESTORE, TEXT(data), "COLLECTION", "the collection that is guarded"},
    {"owner", FIRESTORE, TEXT(owner), "CLAIM",
     "which claim of a user's token is the owner (auth.uid)"},
    {"token-field", FIRESTORE | MONGODB, TEXT(token_field), "NAME", "the field with the token"},
    {"max-lease", FIRESTORE, TEXT(max_lease), "TIME", "the longest lease a user may write"},
    {"undo", SQL, FLAG(undo), NULL, "print what removes the guard"},
};
enum { KNOWN = sizeof known / sizeof *known };

static int unknown_kind(const char *name)
{
    char all[128];
    size_t n = 0;
    for (int i = 0; i < KINDS; i++)
        n += (size_t)snprintf(all + n, sizeof all - n, "%s%s", i ? ", " : "", kinds[i].name);
    return name ? bad_usage("unknown kind of database '%s': %s", name, all)
                : bad_usage("no kind of database: %s", all);
}

static void help(const struct command *self)
{
    printf("usage: holdfast %s %s\n\n%s\n\n", self->name, self->synopsis, self->about);
    for (int i = 0; i < KNOWN; i++) {
        char name[64];
        snprintf(name, sizeof name, "--%s%s%s", known[i].name, known[i].value ? " " : "",
                 known[i].value ? known[i].value : "");
        printf("      %-26s %s\n", name, known[i].help);
    }
    printf("\nman holdfast-%s says more.\n", self->page);
}

/* Reads the options. Returns 0; -1: help was printed; or the exit status. The operands begin at
   argv[optind]. */
static int take_options(const struct command *self, int argc, char **argv,
                        struct guard_options *ret, unsigned *ret_given)
{
    struct option options[KNOWN + 3] = {{"help", no_argument, NULL, 'h'},
                                        {"store", required_argument, NULL, 'S'}};
    for (int i = 0; i < KNOWN; i++)
        options[i + 2] = (struct option){
            known[i].name, known[i].is_flag ? no_argument : required_argument, NULL, 256 + i};
    opterr = 0;
    optind = 1;
    for (int c; (c = getopt_long(argc, argv, ":hS:", options, NULL)) != -1;) {
        if (c == 'h') {
            help(self);
            return -1;
        }
        if (c == 'S') { /* every command accepts -S; this one opens no store */
            int status = take_url(optarg);
            if (status) return status;
            continue;
        }
        if (c == ':') return bad_usage("%s needs an argument", argv[optind - 1]);
        if (c == '?') return bad_usage("unknown option '%s'", argv[optind - 1]);
        char *member = (char *)ret + known[c - 256].at;
        if (known[c - 256].is_flag)
            *(int *)(void *)member = 1;
        else
            *(const char **)(void *)member = optarg;
        *ret_given |= 1u << (c - 256);
    }
    return 0;
}

int guard_command(const struct command *self, int argc, char **argv)
{
    struct guard_options o = {.table = NULL};
    const struct kind *kind = NULL;
    unsigned given = 0;
    int status = take_options(self, argc, argv, &o, &given);
    if (status) return status < 0 ? finish_output() : status;
    const char *name = optind < argc ? argv[optind++] : NULL;
    for (int i = 0; i < KINDS && name; i++)
        if (!strcmp(kinds[i].name, name)) kind = &kinds[i];
    if (!kind) return unknown_kind(name);
    for (int i = 0; i < KNOWN; i++)
        if (given & 1u << i && !(known[i].kinds & kind->bit))
            return bad_usage("guard %s has no option --%s", kind->name, known[i].name);
    if (argc - optind > kind->operands)
        return bad_usage("'%s' is one argument too many", argv[optind + kind->operands]);
    if (optind < argc) o.table = argv[optind];
    o.max_lease_ms = o.max_lease ? parse_time(o.max_lease) : 300000;
    if (o.max_lease_ms < 100 || o.max_lease_ms > 86400000)
        return bad_usage("--max-lease '%s': not a time from 100ms to 24h", o.max_lease);
    const char *why = kind->print(&o);
    return why ? bad_usage("%s", why) : finish_output();
}
