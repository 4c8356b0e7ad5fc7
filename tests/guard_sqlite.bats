#!/usr/bin/env bats
# holdfast guard sqlite, in the database in which the locks are.

load cli_common
load guard_sql

LEAVE='DELETE FROM holdfast_enter;'
ask() {
    if [ $# -gt 0 ]; then printf '%s;\n' "$@"; else cat; fi |
        sqlite3 -bail -cmd '.timeout 5000' "${HOLDFAST_STORE#sqlite:}"
}
enter_sql() { echo "INSERT INTO holdfast_enter (key, token) VALUES ('${1//\'/\'\'}', $2);"; }
quoted() { echo "'${1//\'/\'\'}'"; }
sql_guard() { holdfast guard sqlite "$@"; }
leftovers() { ask "SELECT count(*) FROM sqlite_schema WHERE name LIKE 'holdfast__%' ESCAPE '_' AND
    name <> 'holdfast_clock'"; }

setup() { guard_setup; }
teardown() { guard_teardown; }

@test "who hasn't entered, or with a token that is over, writes nothing" { guard_refuses; }
@test "with the locks elsewhere the greatest token that has entered counts" { guard_elsewhere; }
@test "several holders are all admitted, and each until it lets go" { guard_several_holders; }
@test "guards are put up again and removed" { guard_again_and_undone; }
@test "strange names are names" { guard_strange_names; }
@test "holdfast enter raises the fence" { guard_entered_from_outside; }
@test "a table or column that isn't there is noticed at once" { guard_missing; }

@test "keys that the column calls equal are two" {
    ask 'CREATE TABLE names (id TEXT COLLATE NOCASE PRIMARY KEY, n)' \
        'CREATE TABLE numbers (id, n)' "INSERT INTO names VALUES ('a5', 0)" \
        'INSERT INTO numbers VALUES (42, 0)'
    sql_guard names --key-column id --key-prefix "$K/" | ask
    sql_guard numbers --key-column id --key-prefix "$K/" | ask
    grant "$K/A5"
    run entered "$K/A5" "$T" "UPDATE names SET id = 'A5', n = 9 WHERE id = 'a5';"
    refused "without holdfast_enter"
    grant "$K/42.0"
    run entered "$K/42.0" "$T" 'UPDATE numbers SET id = 42.0, n = 9 WHERE id = 42;'
    refused "without holdfast_enter"
    [ "$(ask 'SELECT sum(n) FROM (SELECT n FROM names UNION ALL SELECT n FROM numbers)')" = 0 ]
}

@test "with foreign keys on, COMMIT refuses who has not left" {
    sql_guard seats --key-column id --key-prefix "$K/" | ask
    grant "$K/1"
    # shellcheck disable=SC2034  # for what is loaded
    LEAVE=
    run entered "$K/1" "$T" 'UPDATE seats SET n = 1 WHERE id = 1;'
    [ "$status" = 0 ]
    [ "$(ask 'SELECT count(*) FROM holdfast_enter')" = 1 ]
    ask 'DELETE FROM holdfast_enter'
    run ask 'PRAGMA foreign_keys = ON; BEGIN;' "$(enter_sql "$K/1" "$T")" \
        'UPDATE seats SET n = 2 WHERE id = 1;' 'COMMIT;'
    refused "FOREIGN KEY"
    ask 'PRAGMA foreign_keys = ON; BEGIN;' "$(enter_sql "$K/1" "$T")" \
        'UPDATE seats SET n = 3 WHERE id = 1;' 'DELETE FROM holdfast_enter;' 'COMMIT;'
    [ "$(n_of 1)" = 3 ]
}
