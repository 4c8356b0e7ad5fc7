#!/usr/bin/env bats
# holdfast guard postgres, in the database in which the locks are.

load cli_common
load guard_sql

# shellcheck disable=SC2034  # for what is loaded
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
@test "holdfast enter raises the fence" { guard_entered_from_outside; }
@test "a table or column that isn't there is noticed at once" { guard_missing; }

@test "a lease that has run out is over, though nobody else has come" {
    sql_guard seats --key-column id --key-prefix "$K/" | ask
    eval "$(holdfast acquire "$K/1" --lease 100ms)"
    await eval "! ask '$(enter_sql "$K/1" "$HOLDFAST_TOKEN" | sed "s/'/'\\\\''/g")'"
    run entered "$K/1" "$HOLDFAST_TOKEN" 'UPDATE seats SET n = 9 WHERE id = 1'
    refused "is over"
}

@test "a writer needs no rights on the fence, and gets none" {
    sql_guard seats --key-column id --key-prefix "$K/" | ask
    ask "CREATE ROLE clerk; GRANT SELECT, UPDATE ON seats TO clerk"
    grant "$K/1"
    as_clerk() { ask 'SET ROLE clerk' "$@"; }
    as_clerk 'BEGIN' "$(enter_sql "$K/1" "$T")" 'UPDATE seats SET n = 4 WHERE id = 1' 'COMMIT'
    [ "$(n_of 1)" = 4 ]
    for sql in "UPDATE holdfast_fence SET txid = txid_current()" "TRUNCATE seats" \
        'UPDATE seats SET n = 5 WHERE id = 1' 'SELECT * FROM holdfast_fence'; do
        run as_clerk "$sql"
        [ "$status" != 0 ]
    done
    # Nor does a table of the same name that is his own mislead the guard.
    run as_clerk 'CREATE TEMP TABLE holdfast_fence (key text, token bigint, txid bigint)' \
        "INSERT INTO holdfast_fence VALUES ('$K/1', 1, txid_current())" \
        'UPDATE seats SET n = 5 WHERE id = 1'
    refused "holdfast_enter"
    run ask 'TRUNCATE seats'
    refused "truncated"
    ask 'DROP OWNED BY clerk; DROP ROLE clerk'
}

@test "a key is the same text whatever the session's settings are" {
    ask 'CREATE TABLE days (id date PRIMARY KEY, n int)' "INSERT INTO days VALUES ('2026-02-01', 0)"
    sql_guard days --key-column id --key-prefix "$K/" | ask
    grant "$K/01/02/2026"
    run entered "$K/01/02/2026" "$T" \
        "SET LOCAL datestyle = 'sql, dmy'; UPDATE days SET n = 9 WHERE id = '01/02/2026';"
    refused "without holdfast_enter"
    grant "$K/2026-02-01"
    entered "$K/2026-02-01" "$T" \
        "SET LOCAL datestyle = 'sql, dmy'; UPDATE days SET n = 1 WHERE id = '01/02/2026';"
    [ "$(ask 'SELECT n FROM days')" = 1 ]
}

@test "schemas: the table's, the locks'" {
    ask "CREATE SCHEMA \"s; 1\"; CREATE SCHEMA home; CREATE TABLE \"s; 1\".seats (id int, n int)"
    sql_guard seats --schema 's; 1' --locks-schema home --key-column id --elsewhere | ask
    run ask "INSERT INTO \"s; 1\".seats VALUES (1, 1)"
    [ "$status" != 0 ]
    ask 'BEGIN' "SELECT 1 WHERE home.holdfast_enter('1', 5) IS NULL" \
        "INSERT INTO \"s; 1\".seats VALUES (1, 1)" 'COMMIT'
    ask 'INSERT INTO seats VALUES (7, 7)'
    sql_guard seats --schema 's; 1' --locks-schema home --undo | ask
    sql_guard --locks-schema home --undo | ask
    ask 'DROP SCHEMA home' "DROP SCHEMA \"s; 1\" CASCADE"
}

@test "with one snapshot per transaction, entering behind somebody else fails" {
    sql_guard seats --key-column id --elsewhere | ask
    mkfifo in
    psql -X -q -A -t -v ON_ERROR_STOP=1 "$HOLDFAST_STORE" <in >first.out 2>&1 3>&- &
    STARTED+=($!)
    exec 5>in
    echo "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT n FROM seats WHERE id = 1;" >&5
    await grep -q 0 first.out
    entered 1 5 'UPDATE seats SET n = 1 WHERE id = 1'
    echo "SELECT holdfast_enter('1', 6); UPDATE seats SET n = n + 1 WHERE id = 1; COMMIT;" >&5
    exec 5>&-
    wait "${STARTED[-1]}" || true
    grep -q 'could not serialize' first.out
    [ "$(n_of 1)" = 1 ]
}
