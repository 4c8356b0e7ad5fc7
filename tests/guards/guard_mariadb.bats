#!/usr/bin/env bats
# holdfast guard mariadb, in the database in which the locks are.

load ../cli/cli_common
load guard_sql
load guard_page

# shellcheck disable=SC2034  # for what is loaded
LEAVE=
# Names within double quotes, and || as in the other databases, so that the shared tests are the
# same text. The words of a guard are handed on as they are.
ask() {
    if [ $# -gt 0 ]; then
        printf '%s\n;\n' "${@%;}" | sed '/^$/{N;/^\n;$/d;}' # no statement is empty
    else
        cat
    fi | as holdfast
}
as() { # USER [ARG...]
    local user=$1
    shift
    mariadb --no-defaults -S "$DIR/server.sock" -u "$user" -N -B --default-character-set=utf8mb4 \
        --init-command="SET sql_mode = 'ANSI_QUOTES,PIPES_AS_CONCAT,STRICT_ALL_TABLES'" "$@" \
        holdfast 2>&1
}
# What the client shows of the statement that failed is not what the server says of it.
refused() { [ "$status" != 0 ] && [[ $(sed '/^-\{14\}$/,/^-\{14\}$/d' <<<"$output") == *"$1"* ]]; }
quoted() {
    local text=${1//\\/\\\\}
    echo "'${text//\'/\'\'}'"
}
enter_sql() { echo "CALL holdfast_enter($(quoted "$1"), $2);"; }
sql_guard() { holdfast guard mariadb "$@"; }
leftovers() { ask "SELECT (SELECT count(*) FROM information_schema.TABLES WHERE TABLE_NAME LIKE
    'holdfast\\_%') + (SELECT count(*) FROM information_schema.ROUTINES WHERE ROUTINE_NAME LIKE
    'holdfast%') + (SELECT count(*) FROM information_schema.TRIGGERS WHERE TRIGGER_NAME LIKE
    'holdfast%')"; }
# A session that stays: what it is told comes by descriptor 5, what it says goes into session.out.
session() {
    mkfifo in
    as holdfast --unbuffered --force <in >session.out 3>&- &
    STARTED+=($!)
    exec 5>in
}
session_ends() {
    exec 5>&-
    wait "${STARTED[-1]}" || true
}

setup() {
    DIR=$(dirname "$HOLDFAST_TEST_CONTROL")
    ask 'ALTER DATABASE holdfast CHARACTER SET utf8mb4'
    guard_setup
}
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
    eval "$(holdfast acquire "$K/1" --lease 1s)"
    await eval "! ask '$(enter_sql "$K/1" "$HOLDFAST_TOKEN" | sed "s/'/'\\\\''/g")'"
    # Nor does a session's own time help.
    run entered "$K/1" "$HOLDFAST_TOKEN" 'UPDATE seats SET n = 9 WHERE id = 1'
    refused "is over"
    run ask 'SET timestamp = 1' BEGIN "$(enter_sql "$K/1" "$HOLDFAST_TOKEN")"
    refused "is over"
}

@test "a lease that lasts is no other one in a time zone that changes its clocks" {
    # The statement's time and the server's are on two sides of the change: an hour isn't theirs.
    as root -e "REPLACE INTO mysql.time_zone_name VALUES ('Summer', 9001);
        REPLACE INTO mysql.time_zone VALUES (9001, 'N');
        REPLACE INTO mysql.time_zone_transition_type VALUES (9001, 0, 0, 0, 'OLD'),
            (9001, 1, 3600, 1, 'NEW'), (9001, 2, -3600, 1, 'BACK');
        REPLACE INTO mysql.time_zone_transition VALUES (9001, 0, 0), (9001, 1000000, 1);
        FLUSH TABLES"
    sql_guard seats --key-column id --key-prefix "$K/" | ask
    grant "$K/1" # for a minute
    run ask "SET time_zone = 'Summer'" 'SET timestamp = 1000' BEGIN "$(enter_sql "$K/1" "$T")" \
        'UPDATE seats SET n = 1 WHERE id = 1' "SELECT @@time_zone" COMMIT
    echo "$output"
    [ "$status" = 0 ]
    [ "$output" = Summer ] # the session's zone stays as it was
    [ "$(n_of 1)" = 1 ]
}

@test "a connection that is used again has not entered" {
    sql_guard seats --key-column id --elsewhere | ask
    session
    enters() { echo "$(enter_sql 1 5) UPDATE seats SET n = n + 1 WHERE id = 1;"; }
    echo "BEGIN; $(enters) COMMIT; SELECT 'one';" >&5
    local end
    # However the transaction ended, the next one on the connection doesn't inherit it.
    for end in COMMIT ROLLBACK 'START TRANSACTION' 'CREATE TABLE ddl (i int)' 'DROP TABLE ddl' \
        'SET autocommit = 0; SET autocommit = 1' 'COMMIT AND CHAIN'; do
        echo "BEGIN; $(enters) $end; UPDATE seats SET n = 900 WHERE id = 1; ROLLBACK;" >&5
        echo "UPDATE seats SET n = 900 WHERE id = 1;" >&5
    done
    echo "SET autocommit = 0; $(enters) COMMIT; UPDATE seats SET n = 900 WHERE id = 1; COMMIT;" >&5
    echo "SET autocommit = 1; BEGIN; UPDATE seats SET n = 900 WHERE id = 1; COMMIT;" >&5
    # Nor does a call outside a transaction enter the next one; nor one that was taken back.
    echo "$(enter_sql 1 5) BEGIN; UPDATE seats SET n = 900 WHERE id = 1; COMMIT;" >&5
    echo "BEGIN; SAVEPOINT a; $(enter_sql 1 5) ROLLBACK TO a;" >&5
    echo "UPDATE seats SET n = 900 WHERE id = 1; COMMIT;" >&5
    # What was entered stays so through the rollback to a later savepoint.
    echo "BEGIN; $(enter_sql 1 5) SAVEPOINT a; UPDATE seats SET n = 900 WHERE id = 1;" >&5
    echo "ROLLBACK TO a; UPDATE seats SET n = n + 1 WHERE id = 1; COMMIT;" >&5
    session_ends
    [ "$(grep -c 'without holdfast_enter' session.out)" = 18 ]
    [ "$(grep -c ERROR session.out)" = 18 ]
    [ "$(n_of 1)" = 9 ] # all but ROLLBACK
    # Nothing is left of the transactions' numbers.
    [ "$(ask 'SELECT count(*) FROM holdfast_transaction FOR SYSTEM_TIME ALL')" = 0 ]
    # What the server itself notes of them may be emptied.
    as root -e 'TRUNCATE mysql.transaction_registry'
    entered 1 5 'UPDATE seats SET n = n + 1 WHERE id = 1'
    run ask 'UPDATE seats SET n = 900'
    refused "without holdfast_enter"
    [ "$(n_of 1)" = 10 ]
}

@test "all ways to write are seen" {
    sql_guard seats --key-column id --elsewhere | ask
    printf '1\t9\n3\t9\n' >rows
    ask 'CREATE VIEW v AS SELECT * FROM seats' 'CREATE TABLE other AS SELECT * FROM seats'
    ask <<'END'
DELIMITER //
CREATE FUNCTION f() RETURNS int MODIFIES SQL DATA BEGIN
    DECLARE CONTINUE HANDLER FOR SQLEXCEPTION BEGIN END;
    UPDATE seats SET n = 9; UPDATE seats SET n = 9; INSERT INTO seats VALUES (3, 9);
    DELETE FROM seats; REPLACE INTO seats VALUES (1, 9); UPDATE seats SET id = id + 10;
    RETURN 1;
END//
CREATE PROCEDURE p() BEGIN
    DECLARE CONTINUE HANDLER FOR SQLEXCEPTION BEGIN END;
    UPDATE seats SET n = 9; UPDATE seats SET n = 9; INSERT INTO seats VALUES (3, 9);
    DELETE FROM seats; REPLACE INTO seats VALUES (1, 9); UPDATE seats SET id = id + 10;
END//
DELIMITER ;
END
    for sql in 'UPDATE IGNORE seats SET n = 9' 'DELETE IGNORE FROM seats' \
        'INSERT IGNORE INTO seats VALUES (3, 9)' 'REPLACE INTO seats VALUES (1, 9)' \
        'INSERT INTO seats VALUES (1, 9) ON DUPLICATE KEY UPDATE n = 9' \
        'INSERT INTO seats SELECT id + 10, 9 FROM other' 'UPDATE v SET n = 9' \
        'UPDATE seats AS a JOIN other AS b USING (id) SET a.n = 9' \
        'DELETE a FROM seats AS a JOIN other AS b USING (id)' \
        "LOAD DATA LOCAL INFILE 'rows' REPLACE INTO TABLE seats" \
        "EXECUTE IMMEDIATE 'UPDATE seats SET n = 9'"; do
        run ask "$sql"
        echo "$sql: $output"
        refused "without holdfast_enter"
    done
    # Nor does a transaction that goes on behind the error change anything.
    ask 'CALL p()' BEGIN 'CALL p()' COMMIT BEGIN 'SELECT f()' COMMIT
    [ "$(ask 'SELECT id, n FROM seats ORDER BY id' | xargs)" = "1 0 2 0" ]
    ask 'DROP VIEW v' 'DROP TABLE other' 'DROP FUNCTION f' 'DROP PROCEDURE p'
}

@test "a statement that is refused in the middle has changed nothing" {
    sql_guard seats --key-column id --elsewhere | ask
    session
    echo "BEGIN; $(enter_sql 1 5) UPDATE seats SET n = n + 1 WHERE id = 1;" >&5
    echo "UPDATE seats SET n = n + 10 ORDER BY id;" >&5
    echo "INSERT INTO seats VALUES (3, 0);" >&5
    echo "$(enter_sql 2 5) UPDATE seats SET n = n + 100, id = 2 ORDER BY id DESC; COMMIT;" >&5
    session_ends
    [ "$(grep -c LOST2 session.out)" = 2 ]
    grep -q 'ERROR 1062' session.out # a duplicate key, for which the guard can do nothing
    [ "$(ask 'SELECT id, n FROM seats ORDER BY id' | xargs)" = "1 1 2 0" ]
}

@test "a key that is made behind the first look is seen, too" {
    ask 'CREATE TABLE made (id INT PRIMARY KEY AUTO_INCREMENT, n INT)' \
        'CREATE TABLE named (id VARCHAR(9), n INT)' "INSERT INTO named VALUES ('a', 0)"
    sql_guard made --key-column id --elsewhere | ask
    sql_guard named --key-column id --elsewhere | ask
    ask "CREATE TRIGGER later BEFORE UPDATE ON named FOR EACH ROW SET NEW.id = 'b'"
    run entered 0 5 'INSERT INTO made (n) VALUES (1)'
    refused "without holdfast_enter: 1"
    run entered a 5 'UPDATE named SET n = 1'
    refused "without holdfast_enter: b"
    # The same for the column, not the same key.
    ask 'DROP TRIGGER later'
    run entered a 5 "UPDATE named SET id = 'A'"
    refused "without holdfast_enter: A"
    run ask "INSERT INTO named VALUES (NULL, 1)"
    refused "a row without a key"
    [ "$(ask 'SELECT * FROM named' 'SELECT count(*) FROM made' | xargs)" = "a 0 0" ]
    ask 'DROP TABLE made' 'DROP TABLE named'
}

@test "with one snapshot per transaction, entering behind somebody else fails" {
    sql_guard seats --key-column id --elsewhere | ask
    session
    echo "SELECT 'old'; BEGIN; SELECT n FROM seats WHERE id = 1;" >&5
    await grep -q '^0$' session.out
    entered 1 5 'UPDATE seats SET n = 1 WHERE id = 1'
    echo "$(enter_sql 1 6) ROLLBACK; BEGIN; $(enter_sql 1 6)" >&5
    echo "UPDATE seats SET n = n + 1 WHERE id = 1; COMMIT; SELECT 'done';" >&5
    await grep -q 'done' session.out
    grep -q '(40001).*try again' session.out
    [ "$(n_of 1)" = 2 ]
    # A transaction that waits for another one to leave the key reads what that has written.
    echo "BEGIN; $(enter_sql 1 7) SELECT 'locked';" >&5
    await grep -q locked session.out
    entered 1 8 'SET @n = (SELECT n FROM seats WHERE id = 1)' \
        'UPDATE seats SET n = @n + 1 WHERE id = 1' >waits.out &
    STARTED+=($!)
    await waits_for_key
    echo "UPDATE seats SET n = n + 1 WHERE id = 1; COMMIT;" >&5
    wait "${STARTED[-1]}"
    exec 5>&-
    wait "${STARTED[0]}" || true
    [ "$(n_of 1)" = 4 ]
}

@test "a grant that is younger than the snapshot is over for that transaction" {
    sql_guard seats --key-column id --key-prefix "$K/" | ask
    session
    echo "BEGIN; SELECT 'old', n FROM seats WHERE id = 1;" >&5
    await grep -q old session.out
    grant "$K/1"
    echo "$(enter_sql "$K/1" "$T") ROLLBACK; SELECT 'ended'; BEGIN; $(enter_sql "$K/1" "$T")" >&5
    echo "UPDATE seats SET n = 1 WHERE id = 1; COMMIT; SELECT 'passed';" >&5
    session_ends
    grep -q passed session.out
    [ "$(grep -c 'ERROR.*(LOST1).*is over' session.out)" = 1 ]
    [ "$(n_of 1)" = 1 ]
}

@test "renewals go on while a transaction has entered" {
    sql_guard seats --key-column id --key-prefix "$K/" | ask
    grant "$K/1"
    session
    echo "BEGIN; $(enter_sql "$K/1" "$T") UPDATE seats SET n = 1 WHERE id = 1; SELECT 'in';" >&5
    await grep -q in session.out
    # It neither waits for that transaction nor keeps it from being overtaken: the fence does.
    holdfast renew "$K/1" --token "$T" --lease 90
    holdfast release "$K/1" --token "$T"
    local first=$T
    grant "$K/1" -n
    entered "$K/1" "$T" 'UPDATE seats SET n = n + 1 WHERE id = 1' >waits.out &
    STARTED+=($!)
    await waits_for_key
    echo 'COMMIT;' >&5
    wait "${STARTED[-1]}"
    echo "BEGIN; $(enter_sql "$K/1" "$first") ROLLBACK;" >&5
    exec 5>&-
    wait "${STARTED[0]}" || true
    grep -q 'is over' session.out
    [ "$(n_of 1)" = 2 ]
}
# The server shows INNODB_TRX as it was before, where the last look at it is less than 100 ms old.
waits_for_key() {
    [ "$(as root -e "SELECT variable_value FROM information_schema.GLOBAL_STATUS
        WHERE variable_name = 'innodb_row_lock_current_waits'")" = 1 ]
}

@test "a session of level SERIALIZABLE, in which entering would lock the lock, is refused" {
    sql_guard seats --key-column id --key-prefix "$K/" | ask
    grant "$K/1"
    run ask 'SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE' BEGIN \
        "$(enter_sql "$K/1" "$T")" 'UPDATE seats SET n = 5 WHERE id = 1' COMMIT
    refused "enter in another isolation level"
    [ "$(n_of 1)" = 0 ]
    entered "$K/1" "$T" 'UPDATE seats SET n = 1 WHERE id = 1'
    [ "$(n_of 1)" = 1 ]
}

@test "strangers don't wait for each other, whatever their isolation" {
    sql_guard seats --key-column id --elsewhere | ask
    entered 1 5
    entered 2 5
    session
    # With these an INSERT into an empty table may lock all of it.
    echo "SET unique_checks = 0, foreign_key_checks = 0;" >&5
    local level
    for level in 'READ UNCOMMITTED' 'READ COMMITTED' 'REPEATABLE READ' SERIALIZABLE; do
        echo "SET SESSION TRANSACTION ISOLATION LEVEL $level; BEGIN; $(enter_sql 1 5)" >&5
        echo "UPDATE seats SET n = n + 1 WHERE id = 1; SELECT 'in $level';" >&5
        await grep -q "in $level" session.out
        ask 'SET innodb_lock_wait_timeout = 1' "SET SESSION TRANSACTION ISOLATION LEVEL $level" \
            BEGIN "$(enter_sql 2 5)" 'UPDATE seats SET n = n + 1 WHERE id = 2' COMMIT
        echo 'COMMIT;' >&5
    done
    session_ends
    [ "$(n_of 1) $(n_of 2)" = "4 4" ]
}

@test "a writer needs no rights on the fence, and gets none" {
    sql_guard seats --key-column id --key-prefix "$K/" | ask
    as root -e "CREATE USER clerk@localhost; GRANT SELECT, UPDATE ON holdfast.seats TO
        clerk@localhost; GRANT EXECUTE ON PROCEDURE holdfast.holdfast_enter TO clerk@localhost"
    grant "$K/1"
    as_clerk() { printf '%s;\n' "$@" | as clerk; }
    as_clerk 'BEGIN' "CALL holdfast_enter('$K/1', $T)" 'UPDATE seats SET n = 4 WHERE id = 1' COMMIT
    [ "$(n_of 1)" = 4 ]
    for sql in "UPDATE holdfast_fence SET entered = ''" "TRUNCATE seats" \
        'UPDATE seats SET n = 5 WHERE id = 1' 'SELECT * FROM holdfast_fence' \
        'CALL holdfast_transaction(@me)' 'SELECT * FROM holdfast_transaction'; do
        run as_clerk "$sql"
        [ "$status" != 0 ]
    done
    as root -e 'DROP USER clerk@localhost'
    [ "$(n_of 1)" = 4 ]
}

@test "a table of the same name that is the session's own doesn't mislead the guard" {
    sql_guard seats --key-column id --key-prefix "$K/" | ask
    # A fence that says what the clerk wants: of a transaction that is numbered as the clerk likes,
    # or that the clerk knows the number of.
    local fence='CREATE TEMPORARY TABLE holdfast_fence ("key" VARBINARY(512), token BIGINT,
        entered VARBINARY(80))'
    run ask "$fence" 'CREATE TEMPORARY TABLE holdfast_transaction (connection BIGINT,
            number BIGINT DEFAULT 1)' \
        "INSERT INTO holdfast_fence VALUES ('$K/1', 1,
            @@global.server_id || '-' || CONNECTION_ID() || '-1')" \
        'UPDATE seats SET n = 5 WHERE id = 1'
    [ "$status" != 0 ]
    run ask "$fence" BEGIN 'INSERT INTO holdfast_transaction (connection) VALUES (1)' \
        "INSERT INTO holdfast_fence SELECT '$K/1', 1, @@global.server_id || '-' ||
            CONNECTION_ID() || '-' || number FROM holdfast_transaction" \
        'UPDATE seats SET n = 5 WHERE id = 1' COMMIT
    echo "$output"
    [ "$status" != 0 ]
    # A lock that nobody has.
    run ask 'CREATE TEMPORARY TABLE holdfast AS SELECT * FROM holdfast LIMIT 1' \
        "UPDATE holdfast SET \"key\" = '$K/1', format = 2, owner = 'clerk', token = 17, more = '',
            expires_us = 9007199254740991" \
        BEGIN "$(enter_sql "$K/1" 17)" 'UPDATE seats SET n = 5 WHERE id = 1' COMMIT
    refused "is over"
    [ "$(n_of 1)" = 0 ]
}

@test "tables that can't be guarded are refused" {
    ask 'CREATE TABLE old (id INT) ENGINE=MyISAM' 'CREATE TABLE aria (id INT) ENGINE=Aria' \
        'CREATE TABLE times (id TIMESTAMP)' 'CREATE TABLE halls (id INT PRIMARY KEY)' \
        'CREATE TABLE rooms (id INT, FOREIGN KEY (id) REFERENCES halls (id) ON DELETE CASCADE)' \
        'CREATE VIEW v AS SELECT * FROM seats' \
        'CREATE TABLE ever (id INT) WITH SYSTEM VERSIONING'
    put_up() { sql_guard "$1" --key-column id | ask; }
    for what in 'old no InnoDB table' 'aria no InnoDB table' 'v no InnoDB table' \
        'times another time zone' 'rooms cascades' 'ever system versioning'; do
        run put_up "${what%% *}"
        refused "${what#* }"
    done
    [ "$(ask "SELECT count(*) FROM information_schema.TRIGGERS")" = 0 ]
    ask 'DROP TABLE old, aria, times, rooms, halls, ever' 'DROP VIEW v'
}

@test "Holdfast's own tables are not guarded" {
    guard_own holdfast HoldFast holdfast_fence holdfast_transaction
    run sql_guard mine --locks mine --key-column key
    refused "Holdfast's own"
}

@test "a table that gets another name keeps its guard" {
    guard_renamed
    words=$(declare -f ask as sql_guard holdfast the_command)
    run bash -c "set -o pipefail; DIR=$DIR; $words; sql_guard seats --key-column id | ask"
    refused "undo its guard first"
    [ -z "$(undo old)" ]
    ask 'UPDATE old SET n = 9' 'DROP TABLE old'
    sql_guard seats --key-column id --key-prefix "$K/" | ask
    run ask 'INSERT INTO seats VALUES (1, 9)'
    refused "holdfast_enter"
}

@test "a shell script does it by mariadb" {
    sql_guard seats --key-column id --key-prefix "$K/" | ask
    cat >sell.sh <<'END'
mariadb --no-defaults -S "$SOCKET" -u holdfast holdfast -e "
    BEGIN;
    CALL holdfast_enter('$HOLDFAST_KEY', $HOLDFAST_TOKEN);
    UPDATE seats SET n = n + 1 WHERE id = ${HOLDFAST_KEY##*/};
    COMMIT"
END
    export SOCKET="$DIR/server.sock"
    holdfast run "$K/1" -- sh sell.sh
    run env HOLDFAST_KEY="$K/1" HOLDFAST_TOKEN=17 sh sell.sh
    refused "is over"
    run holdfast run "$K/2" -- env HOLDFAST_KEY="$K/1" sh sell.sh
    refused "is over"
    [ "$(n_of 1) $(n_of 2)" = "1 0" ]
}

@test "the page's example, as it stands" {
    export HOME=$PWD
    printf '[client]\nuser = root\nsocket = %s\n' "$DIR/server.sock" >.my.cnf
    mariadb -e 'CREATE DATABASE app CHARACTER SET utf8mb4;
        CREATE TABLE app.seats (id INTEGER PRIMARY KEY, sold INTEGER);
        INSERT INTO app.seats VALUES (42, 0)'
    export HOLDFAST_STORE="mariadb:///app?socket=$DIR/server.sock&user=root"
    holdfast run "$K" -- true # makes the locks' table
    eval "$(of_page MariaDB 1)"
    grant seats/42
    sql_of_page MariaDB 2 "'seats/42', $T" >sell.sql
    grep -q "^CALL holdfast_enter('seats/42', $T);" sell.sql
    mariadb app <sell.sql
    run mariadb app -e 'UPDATE seats SET sold = 9'
    refused "holdfast_enter"
    [ "$(mariadb -N -B app -e 'SELECT sold FROM seats')" = 1 ]
    mariadb -e 'DROP DATABASE app'
}
