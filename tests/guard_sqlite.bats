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
