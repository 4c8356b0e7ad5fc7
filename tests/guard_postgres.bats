#!/usr/bin/env bats
# holdfast guard postgres, in the database in which the locks are.

load cli_common
load guard_sql

LEAVE=
ask() {
    if [ $# -gt 0 ]; then printf '%s;\n' "$@"; else cat; fi |
        psql -X -q -A -t -F ' ' -v ON_ERROR_STOP=1 "$HOLDFAST_STORE" -f -
}
quoted() {
    local text=${1//\\/\\\\}
    echo "E'${text//\'/\'\'}'"
}
enter_sql() { echo "SELECT 1 WHERE holdfast_enter($(quoted "$1"), $2) IS NULL;"; }
sql_guard() { holdfast guard postgres "$@"; }
leftovers() { ask "SELECT (SELECT count(*) FROM pg_class WHERE relname LIKE 'holdfast\\_%' AND
    relname NOT LIKE 'holdfast\\_pkey') + (SELECT count(*) FROM pg_proc WHERE proname LIKE
    'holdfast%') + (SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'holdfast%')"; }

setup() { guard_setup; }
teardown() { guard_teardown; }

@test "who hasn't entered, or with a token that is over, writes nothing" { guard_refuses; }
@test "with the locks elsewhere the greatest token that has entered counts" { guard_elsewhere; }
@test "several holders are all admitted, and each until it lets go" { guard_several_holders; }
@test "guards are put up again and removed" { guard_again_and_undone; }
@test "strange names are names" { guard_strange_names; }
@test "a table or column that isn't there is noticed at once" { guard_missing; }
