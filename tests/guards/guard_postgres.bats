#!/usr/bin/env bats
# holdfast guard postgres, in the database in which the locks are.

load ../cli/cli_common
load guard_sql
load guard_page

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
@test "a guard that can't be put up fails, and nothing of it stays" {
    words=$(declare -f sql_guard holdfast the_command)
    for of in 'seats --key-column no' 'nowhere --key-column id'; do
        run bash -c "$words; sql_guard $of | psql -X -q \"\$HOLDFAST_STORE\""
        [ "$status" != 0 ]
        [ "$(leftovers)" = 0 ]
    done
}

@test "a lease that has run out is over, though nobody else has come" {
    sql_guard seats --key-column id --key-prefix "$K/" | ask
    eval "$(holdfast acquire "$K/1" --lease 1s)"
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
    ask 'DROP TABLE days'
}

@test "a shell script does it by psql" {
    sql_guard seats --key-column id --key-prefix "$K/" | ask
    cat >sell.sql <<'END'
BEGIN;
SELECT holdfast_enter(:'key', :token);
UPDATE seats SET n = n + 1 WHERE :'key' LIKE '%/' || id;
COMMIT;
END
    # shellcheck disable=SC2016  # the command's
    sell='psql -X -q "$HOLDFAST_STORE" -v ON_ERROR_STOP=1 -v key="$HOLDFAST_KEY" \
        -v token="$HOLDFAST_TOKEN" -f sell.sql'
    holdfast run "$K/1" -- sh -c "$sell"
    run holdfast run "$K/1" -- sh -c "HOLDFAST_TOKEN=\$((HOLDFAST_TOKEN - 1)); $sell"
    refused "is over"
    run sh -c "HOLDFAST_KEY=$K/1 HOLDFAST_TOKEN=17; $sell"
    refused "is over"
    [ "$(n_of 1) $(n_of 2)" = "1 0" ]
}

@test "the page's example, as it stands" {
    PGHOST=${HOLDFAST_STORE#*host=}
    export PGHOST="${PGHOST%%&*}" PGUSER=holdfast
    createdb app
    psql -q app -c 'CREATE TABLE seats (id INTEGER PRIMARY KEY, sold INTEGER)' \
        -c 'INSERT INTO seats VALUES (42, 0)'
    holdfast -S postgres:///app run "$K" -- true # makes the locks' table
    eval "$(of_page PostgreSQL 1)"
    sql_of_page PostgreSQL 2 ":'key', :token" >sell.sql
    grep -q "^SELECT holdfast_enter(:'key', :token);" sell.sql
    eval "$(of_page PostgreSQL 3)"
    run psql app -c 'UPDATE seats SET sold = 9'
    refused "holdfast_enter"
    [ "$(psql -A -t app -c 'SELECT sold FROM seats')" = 1 ]
    dropdb app
}

@test "Holdfast's own tables are not guarded" {
    guard_own holdfast holdfast_fence
    run sql_guard mine --locks mine --key-column key
    refused "Holdfast's own"
    sql_guard holdfast --schema other --key-column key >out # another table of that name
    grep -q '"other"."holdfast"' out
}

@test "a table that gets another name keeps its guard" {
    guard_renamed
    # What had the name is guarded by a function of that name.
    words=$(declare -f ask sql_guard holdfast the_command)
    run bash -c "$words; sql_guard seats --key-column id | ask"
    refused "undo its guard first"
    [ -z "$(undo old)" ]
    ask 'UPDATE old SET n = 9' 'DROP TABLE old'
    sql_guard seats --key-column id --key-prefix "$K/" | ask
    run ask 'INSERT INTO seats VALUES (1, 9)'
    refused "holdfast_enter"
    # Nor does its column have to keep its name: what is said says what to do.
    ask 'ALTER TABLE seats RENAME id TO no'
    run ask 'INSERT INTO seats VALUES (1, 9)'
    refused 'no field "id"'
    refused 'CONTEXT'
    refused 'guard this table again'
    sql_guard seats --key-column no --key-prefix "$K/" | ask
    grant "$K/1"
    entered "$K/1" "$T" 'INSERT INTO seats VALUES (1, 9);'
}

@test "partitions: before their parent, after it, and those that come later" {
    ask 'CREATE TABLE p (id int, n int) PARTITION BY RANGE (id)' \
        'CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10)' \
        'CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (20)' \
        'CREATE TABLE p3 (id int, n int)' 'CREATE TABLE p4 (id int, n int)'
    for table in p1 p p3 p p1; do sql_guard $table --key-column id --elsewhere | ask; done
    ask 'ALTER TABLE p ATTACH PARTITION p3 FOR VALUES FROM (20) TO (30)' \
        'ALTER TABLE p ATTACH PARTITION p4 FOR VALUES FROM (30) TO (40)'
    each() { # SQL with a number
        for i in 1 11 21 31; do
            run ask "${1//@/$i}"
            refused "without holdfast_enter"
        done
    }
    each 'INSERT INTO p VALUES (@, 1)'
    run ask 'INSERT INTO p2 VALUES (11, 1)'
    refused "without holdfast_enter"
    for table in p p1 p2; do
        run ask "TRUNCATE $table"
        refused "truncated"
    done
    for i in 1 11 21 31; do entered $i 5 "INSERT INTO p VALUES ($i, 1);"; done
    each 'UPDATE p SET n = 9 WHERE id = @'
    # A row that moves to another partition needs both keys.
    run entered 1 5 'UPDATE p SET id = 12 WHERE id = 1;'
    refused "'12' written without"
    entered 1 5 "$(enter_sql 12 5)" 'UPDATE p SET id = 12 WHERE id = 1;'
    # Undone, each keeps what is its own.
    [ -z "$(undo p)" ]
    ask 'UPDATE p SET n = 3 WHERE id IN (11, 12, 31)'
    run ask 'UPDATE p SET n = 9 WHERE id = 21'
    refused "without holdfast_enter"
    run undo
    refused "p1, public.p3"
    [ -z "$(undo p1)$(undo p3)" ]
    ask 'TRUNCATE p' 'DROP TABLE p'
}

@test "tables that inherit are guarded first" {
    ask 'CREATE TABLE kids (more int) INHERITS (seats)' 'INSERT INTO kids VALUES (7, 0, 0)'
    words=$(declare -f ask sql_guard holdfast the_command)
    run bash -c "$words; sql_guard seats --key-column id | ask"
    refused "kids"
    sql_guard kids --key-column id --key-prefix "$K/" | ask
    sql_guard seats --key-column id --key-prefix "$K/" | ask
    run ask 'UPDATE seats SET n = 9 WHERE id = 7'
    refused "without holdfast_enter"
    ask 'DROP TABLE kids'
}

@test "all ways to write are seen" {
    sql_guard seats --key-column id --elsewhere | ask
    ask 'CREATE TABLE halls (id int PRIMARY KEY)' 'INSERT INTO halls VALUES (1), (2), (3)' \
        'ALTER TABLE seats ADD FOREIGN KEY (id) REFERENCES halls ON DELETE CASCADE
            ON UPDATE CASCADE' \
        'CREATE VIEW v AS SELECT * FROM seats'
    for sql in "COPY seats FROM PROGRAM 'echo 3,9' CSV" 'UPDATE v SET n = 9' \
        'INSERT INTO seats VALUES (1, 9) ON CONFLICT (id) DO UPDATE SET n = 9' \
        'MERGE INTO seats USING (SELECT 1 AS i) u ON id = i WHEN MATCHED THEN UPDATE SET n = 9' \
        'WITH x AS (DELETE FROM seats RETURNING n) SELECT * FROM x' 'DELETE FROM halls' \
        'UPDATE halls SET id = 4 WHERE id = 1' \
        "DO \$\$ BEGIN UPDATE seats SET n = 9; EXCEPTION WHEN division_by_zero THEN END \$\$"; do
        run ask "$sql"
        echo "$sql: $output"
        refused "without holdfast_enter"
    done
    # A savepoint takes entering back.
    run ask BEGIN 'SAVEPOINT a' "$(enter_sql 1 5)" 'ROLLBACK TO a' 'UPDATE seats SET n = 9' COMMIT
    refused "without holdfast_enter"
    ask BEGIN "$(enter_sql 1 5)" 'SAVEPOINT a' 'UPDATE seats SET n = 1 WHERE id = 1' COMMIT
    # Triggers are switched off by superusers only.
    ask 'CREATE ROLE clerk' 'GRANT ALL ON seats TO clerk'
    run ask 'SET ROLE clerk' "SET session_replication_role = 'replica'"
    refused "permission denied"
    run ask 'SET ROLE clerk' 'ALTER TABLE seats DISABLE TRIGGER USER'
    refused "must be owner"
    # Nor do rows that a policy hides escape.
    ask 'ALTER TABLE seats ENABLE ROW LEVEL SECURITY' \
        'CREATE POLICY w ON seats TO clerk USING (true) WITH CHECK (true)'
    run ask 'SET ROLE clerk' 'UPDATE seats SET n = 9 WHERE id = 2'
    refused "without holdfast_enter"
    [ "$(ask 'SELECT sum(n) FROM seats')" = 1 ]
    ask 'DROP OWNED BY clerk' 'DROP ROLE clerk' 'DROP TABLE halls CASCADE' 'DROP VIEW v'
}

@test "nobody can lay a fence for others to fall into" {
    ask 'CREATE ROLE mallory' 'CREATE SCHEMA m AUTHORIZATION mallory' 'SET ROLE mallory' \
        'CREATE TABLE m.holdfast_fence (key text PRIMARY KEY, token bigint, txid bigint)' \
        "INSERT INTO m.holdfast_fence VALUES ('1', 1, 1000000000000)" \
        "CREATE FUNCTION m.evil() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION
            ''done as %'', current_user; END'" \
        'CREATE TRIGGER e BEFORE UPDATE ON m.holdfast_fence FOR EACH ROW EXECUTE PROCEDURE m.evil()'
    install() { sql_guard seats --locks-schema m --key-column id --elsewhere | ask; }
    run install
    refused "belongs to mallory"
    ask 'DROP TABLE m.holdfast_fence' 'SET ROLE mallory' \
        "CREATE FUNCTION m.holdfast_enter(key text, token bigint, since txid_snapshot DEFAULT NULL)
            RETURNS void LANGUAGE sql AS ''"
    run install
    refused "belongs to mallory"
    ask 'UPDATE seats SET n = 1' 'DROP SCHEMA m CASCADE' 'DROP ROLE mallory'
}

@test "what an earlier version has left is replaced" {
    ask "CREATE TABLE holdfast_fence (key text COLLATE \"C\" PRIMARY KEY, token bigint NOT NULL,
            txid bigint NOT NULL)" "INSERT INTO holdfast_fence VALUES ('1', 7, 1000000000000)" \
        "CREATE FUNCTION holdfast_enter(key text, token bigint) RETURNS void LANGUAGE sql AS ''" \
        "CREATE FUNCTION holdfast_guard_0123() RETURNS trigger LANGUAGE plpgsql AS
            'BEGIN RETURN NULL; END'" \
        'CREATE TRIGGER holdfast_guard AFTER UPDATE ON seats FOR EACH ROW
            EXECUTE PROCEDURE holdfast_guard_0123()' \
        'CREATE TRIGGER holdfast_guard_all BEFORE TRUNCATE ON seats
            EXECUTE PROCEDURE holdfast_guard_0123()'
    sql_guard seats --key-column id --elsewhere | ask
    run ask 'DELETE FROM seats'
    refused "without holdfast_enter"
    run entered 1 6
    refused "is over"
    entered 1 7 'UPDATE seats SET n = 1 WHERE id = 1;' # numbers of another server mean nothing
    [ "$(leftovers)" = 6 ] # fence and its key; enter; check; two triggers
    [ -z "$(undo seats)" ]
}

@test "who enters in the statement that reads doesn't read what is old" {
    sql_guard seats --key-column id --elsewhere | ask
    mkfifo in
    psql -X -q -A -t -v ON_ERROR_STOP=1 "$HOLDFAST_STORE" <in >first.out 2>&1 3>&- &
    STARTED+=($!)
    exec 5>in
    # A function that lets another commit in the middle of the statement that reads.
    ask 'CREATE TABLE gate (id int)' 'CREATE FUNCTION wait() RETURNS int LANGUAGE plpgsql AS
        $$ BEGIN LOCK TABLE gate; RETURN 0; END $$'
    local level reads
    reads="SELECT n + wait(), holdfast_enter('1', @) FROM seats WHERE id = 1"
    for level in 1:'READ COMMITTED' 3:'REPEATABLE READ' 5:'SERIALIZABLE'; do
        local token=${level%%:*}
        echo "BEGIN; LOCK TABLE gate; SELECT 'locked $token';" >&5
        await grep -q "locked $token" first.out
        psql -X -q -A -t -v ON_ERROR_STOP=1 "$HOLDFAST_STORE" >stale.out 2>&1 3>&- \
            -c "BEGIN ISOLATION LEVEL ${level#*:}" -c "${reads//@/$((token + 1))}" \
            -c 'UPDATE seats SET n = n + 1 WHERE id = 1' -c COMMIT &
        STARTED+=($!)
        await waits_for_gate
        entered 1 "$token" 'UPDATE seats SET n = n + 1 WHERE id = 1'
        echo 'COMMIT;' >&5
        wait "${STARTED[-1]}" && return 1
        grep -q "try again\|could not serialize" stale.out
        [ "$(n_of 1)" = $(((token + 1) / 2)) ]
        # Tried again it passes.
        ask "BEGIN ISOLATION LEVEL ${level#*:}" "${reads//@/$((token + 1))}" COMMIT
    done
    exec 5>&-
    wait "${STARTED[0]}"
    # In a statement of its own one may wait, and says so.
    ask BEGIN "SELECT 1 WHERE holdfast_enter('1', 7, NULL) IS NULL" COMMIT
    ask 'DROP FUNCTION wait' 'DROP TABLE gate'
}
waits_for_gate() { [ "$(ask "SELECT count(*) FROM pg_locks WHERE NOT granted")" = 1 ]; }

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
