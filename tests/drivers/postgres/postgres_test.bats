#!/usr/bin/env bats
# postgres: what is this store's own, on the server of servers/postgres.

bats_require_minimum_version 1.5.0
load ../../cli/cli_common
load ../drivers_common
setup() { cli_setup; }
teardown() { cli_teardown; }

@test "doctor says of settings what is wrong, not what should be" { # that server doesn't sync
    made
    one_is_bad "fsync or full_page_writes is off: a power cut may damage"
    [[ $output == *"not safe, because fsync or full_page_writes is off: "* ]]
    [[ $output != *"a power cut doesn't damage"* ]]
}

LOG=$(dirname "$HOLDFAST_TEST_CONTROL")/log
ask() { psql -X -q -v ON_ERROR_STOP=1 "$HOLDFAST_TEST_STORE" "$@"; }
# How many writes went by their names so far. (A connection that only reads fires no trigger.)
named() { grep -Ec 'LOG:  execute holdfast_[0-9a-f]*: (WITH|UPDATE)' "$LOG" || true; }

@test "what is asked often is planned once, and bears that it is forgotten" {
    run holdfast run "$K" -- true # the table
    [ "$status" = 0 ]
    ask -c "ALTER ROLE holdfast SET log_statement = 'all'"
    run holdfast bench
    echo "$output"
    [ "$status" = 0 ]
    had=$(named)
    [ "$had" -gt 100 ]
    # As a pooler does that isn't known to be one: what was prepared is gone.
    ask -c "CREATE FUNCTION forget() RETURNS trigger LANGUAGE plpgsql AS
            \$\$ BEGIN EXECUTE 'DEALLOCATE ALL'; RETURN NULL; END \$\$" \
        -c 'CREATE TRIGGER forget AFTER UPDATE ON holdfast EXECUTE FUNCTION forget()'
    run holdfast bench
    ask -c 'DROP FUNCTION forget CASCADE' -c "ALTER ROLE holdfast RESET log_statement"
    echo "$output"
    [ "$status" = 0 ]
    [ "$(named)" -gt "$had" ]         # it was tried
    [ "$(named)" -lt $((had + 100)) ] # and left alone, for it doesn't hold
}

@test "what is planned once bears that a column becomes another" {
    run holdfast run "$K" -- true
    [ "$status" = 0 ]
    holdfast bench >bench.txt 2>&1 3>&- &
    STARTED+=($!)
    for type in varchar text varchar text varchar text; do
        ask -c "ALTER TABLE holdfast ALTER COLUMN note TYPE $type"
    done
    wait $!
    cat bench.txt
}

@test "a table of format 1 is refused, with how to go on" {
    ask -c "CREATE TABLE old (key text PRIMARY KEY, format bigint, rev bigint, token bigint,
        owner text, expires_us bigint, granted bigint, others text, queue text)"
    sep=\?
    [[ $HOLDFAST_STORE != *\?* ]] || sep=\&
    for command in "run $K -- true" "show $K" ls watch "once $K -- true" doctor; do
        # shellcheck disable=SC2086
        run timeout 60 "$HOLDFAST" -S "$HOLDFAST_STORE${sep}table=old" $command
        echo "$command: $output"
        [ "$status" = 65 ]
        [[ $output == *"rows of format 1, and this version reads format 2"* ]]
        [[ $output == *"DROP TABLE \"public\".\"old\""* ]]
    done
    ask -c 'DROP TABLE old'
    run holdfast -S "$HOLDFAST_STORE${sep}table=old" run "$K" -- true
    [ "$status" = 0 ]
    ask -c 'DROP TABLE old'
}

@test "a write that fails when it is committed wasn't done" {
    run holdfast run "$K" -- true
    [ "$status" = 0 ]
    ask -c "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
            \$\$ BEGIN RAISE 'not now' USING ERRCODE = '23514'; END \$\$" \
        -c 'CREATE CONSTRAINT TRIGGER refuse AFTER INSERT OR UPDATE ON holdfast DEFERRABLE
            INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse()'
    run holdfast run "$K" -- true
    ask -c 'DROP FUNCTION refuse CASCADE'
    echo "$output"
    [ "$status" != 0 ]
    [[ $output == *"not now"* ]]
}
