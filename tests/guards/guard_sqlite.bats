#!/usr/bin/env bats
# holdfast guard sqlite, in the database in which the locks are.

load ../cli/cli_common
load guard_sql

LEAVE='DELETE FROM holdfast_enter;'
ask() {
    if [ $# -gt 0 ]; then printf '%s;\n' "$@"; else cat; fi |
        sqlite3 -bail -cmd '.timeout 60000' "${HOLDFAST_STORE#sqlite:}"
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
@test "a guard that can't be put up fails, and nothing of it stays" {
    words=$(declare -f sql_guard holdfast the_command)
    for of in 'seats --key-column no' 'nowhere --key-column id'; do
        run bash -c "$words; sql_guard $of | sqlite3 \"\${HOLDFAST_STORE#sqlite:}\""
        [ "$status" != 0 ]
        [ "$(leftovers)" = 0 ]
    done
}

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
    ask 'DROP TABLE names' 'DROP TABLE numbers'
}

@test "a shell script does it by sqlite3" {
    sql_guard seats --key-column id --key-prefix "$K/" | ask
    cat >sell.sh <<'END'
sqlite3 -bail -cmd '.timeout 5000' "${HOLDFAST_STORE#sqlite:}" "
    BEGIN IMMEDIATE;
    INSERT INTO holdfast_enter VALUES ('$HOLDFAST_KEY', $HOLDFAST_TOKEN);
    UPDATE seats SET n = n + 1 WHERE id = ${HOLDFAST_KEY##*/};
    DELETE FROM holdfast_enter;
    COMMIT"
END
    holdfast run "$K/1" -- sh sell.sh
    run env HOLDFAST_KEY="$K/1" HOLDFAST_TOKEN=17 sh sell.sh
    refused "is over"
    run holdfast run "$K/2" -- env HOLDFAST_KEY="$K/1" sh sell.sh
    refused "is over"
    [ "$(n_of 1) $(n_of 2)" = "1 0" ]
}

@test "Holdfast's own tables are not guarded" {
    guard_own Holdfast holdfast_FENCE holdfast_nobody holdfast_clock holdfast_enter
    run sql_guard Mine --locks mine --key-column key
    refused "Holdfast's own"
}

@test "a table that gets another name keeps its guard, and so does a column" {
    guard_renamed
    ask 'ALTER TABLE old RENAME COLUMN id TO no'
    grant "$K/1"
    entered "$K/1" "$T" 'UPDATE old SET n = 1 WHERE no = 1;'
    run ask 'UPDATE old SET n = 9'
    refused "holdfast_enter"
    [ -z "$(undo SEATS)" ] # by the name that it had
    ask 'UPDATE old SET n = 9' 'DROP TABLE old'
}

@test "all ways to write are seen" {
    ask 'DROP TABLE seats' 'CREATE TABLE seats (id TEXT PRIMARY KEY, code INT UNIQUE, n INT) ' \
        'CREATE TABLE sturdy (id TEXT PRIMARY KEY, code INT UNIQUE, n INT) WITHOUT ROWID' \
        'CREATE VIEW v AS SELECT * FROM seats' \
        'CREATE TRIGGER vu INSTEAD OF UPDATE ON v BEGIN UPDATE seats SET n = NEW.n; END'
    local table sql key
    for table in seats sturdy; do
        ask "INSERT INTO $table VALUES ('a', 1, 0), ('b', 2, 0), (NULL, 3, 0)" || # no key of sturdy
            ask "INSERT INTO $table VALUES ('a', 1, 0), ('b', 2, 0)"
        sql_guard $table --key-column id --elsewhere | ask
        for sql in "INSERT OR IGNORE INTO @ VALUES ('c', 4, 9)" 'UPDATE OR IGNORE @ SET n = 9' \
            "INSERT OR FAIL INTO @ VALUES ('c', 4, 9)" "REPLACE INTO @ VALUES ('a', 1, 9)" \
            "INSERT INTO @ VALUES ('a', 1, 9) ON CONFLICT (id) DO UPDATE SET n = 9" \
            "INSERT INTO @ VALUES ('z', 1, 9) ON CONFLICT (code) DO UPDATE SET n = 9" \
            'UPDATE @ SET n = 9 FROM (SELECT 1) RETURNING n' 'DELETE FROM @' \
            'CREATE TEMP TABLE holdfast_fence AS SELECT 1 AS entered, id AS key FROM @;
                UPDATE @ SET n = 9' \
            "ATTACH '${HOLDFAST_STORE#sqlite:}' AS x; UPDATE x.@ SET n = 9" \
            'PRAGMA trusted_schema = OFF; UPDATE @ SET n = 9' 'UPDATE v SET n = 9' \
            'PRAGMA recursive_triggers = ON; BEGIN; INSERT INTO holdfast_enter VALUES (char(97), 5);
                REPLACE INTO @ VALUES (char(97), 2, 9); DELETE FROM holdfast_enter; COMMIT'; do
            run ask "${sql//@/$table}"
            echo "$sql: $output"
            refused "without holdfast_enter"
        done
        # Whatever is to happen on a conflict: it is entered, and the fence isn't lowered.
        for key in 'OR IGNORE' 'OR REPLACE'; do
            ask BEGIN "INSERT $key INTO holdfast_enter VALUES ('a', 5)" \
                "UPDATE $table SET n = n + 1 WHERE id = 'a'" 'DELETE FROM holdfast_enter' COMMIT
            run ask BEGIN "INSERT $key INTO holdfast_enter VALUES ('a', 4)"
            refused "is over"
        done
        [ "$(ask "SELECT max(n), min(n) FROM $table")" = '2|0' ]
        ask 'PRAGMA trusted_schema = OFF; BEGIN' "INSERT INTO holdfast_enter VALUES ('a', 5)" \
            "UPDATE $table SET n = 3 WHERE id = 'a'" 'DELETE FROM holdfast_enter' COMMIT
    done
    [ "$(fence_of a)" = 5 ]
    ask 'DROP TABLE sturdy' 'DROP VIEW v'
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
