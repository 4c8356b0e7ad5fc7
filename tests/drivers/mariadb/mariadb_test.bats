#!/usr/bin/env bats
# mariadb: what is this store's own, on the server of servers/mariadb.

bats_require_minimum_version 1.5.0
load ../../cli/cli_common
load ../drivers_common
load mariadb_common
setup() { cli_setup; }
teardown() {
    ask "SET GLOBAL read_only = 0; SET GLOBAL time_zone = 'SYSTEM'; SET GLOBAL init_connect = '';
        SET GLOBAL lc_messages = 'en_US'"
    ask 'DROP TRIGGER IF EXISTS refuse' 2>/dev/null || true
    cli_teardown
}

# The same store for another user.
as() { echo "mariadb:///holdfast?socket=$DIR/server.sock&user=$1"; }

@test "doctor says of settings what is wrong, not what should be" { # that server doesn't sync
    made
    one_is_bad "innodb_flush_log_at_trx_commit or innodb_flush_method: "
    [[ $output == *"the table's engine is InnoDB"* ]]
}

@test "ls -v and doctor say which database and which table" {
    says_where "the locks are in the table \`holdfast\`.\`holdfast\`"
    HOLDFAST_STORE+='&table=shelf' says_where "the locks are in the table \`holdfast\`.\`shelf\`"
    ask 'DROP TABLE shelf'
}

@test "a server that is read-only is refused, even for a user who may write there" {
    made
    ask 'SET GLOBAL read_only = 1'
    for user in holdfast root; do
        run holdfast -S "$(as $user)" run -n "$K" -- true
        echo "$user: $output"
        [ "$status" != 0 ]
        [ "$status" != 75 ]
        [[ $output == *"the server is read-only"* ]]
        run holdfast -S "$(as $user)" show "$K"
        [ "$status" != 0 ]
        [[ $output == *"the server is read-only"* ]]
        run holdfast -S "$(as $user)" doctor
        [ "$status" = 65 ]
        [[ $output == *"not safe, because "*"the server is read-only"* ]]
    done
}

@test "a server that becomes read-only is waited out" {
    hold "$K"
    background run -w 60 "$K" -- true
    await waiters "$K" 1
    ask 'SET GLOBAL read_only = 1'
    asked() { [ "$(ask "SELECT COUNT(*) FROM information_schema.PROCESSLIST
        WHERE USER = 'holdfast' AND COMMAND != 'Sleep'")" = 0 ]; }
    await asked
    kill "$(cat cmd.pid)"
    ask 'SET GLOBAL read_only = 0'
    finished
    cat bg.err
    [ "$STATUS" = 0 ]
}

@test "the session's time zone and autocommit count for nothing" {
    made
    hold "$K"
    for zone in -12:00 +12:00; do
        ask "SET GLOBAL time_zone = '$zone';
            SET GLOBAL init_connect = 'SET autocommit = 0, time_zone = ''$zone'''"
        run holdfast run -n "$K" -- true
        echo "$zone: $output"
        [ "$status" = 75 ]
        run holdfast run -n "$K$zone" -- true
        [ "$status" = 0 ]
        [ "$(ask "SELECT COUNT(*) FROM holdfast WHERE \`key\` = '$K$zone'")" = 1 ]
    done
}

@test "keys and texts are bytes: no collation, no blanks lost" {
    hold "$K-a"
    for key in "$K-A" "$K-á" "$K-a " "$K-😀"; do
        run holdfast run -n "$key" -- true
        echo "'$key': $output"
        [ "$status" = 0 ]
    done
    run holdfast run -n "$K-a" -- true
    [ "$status" = 75 ]
    run holdfast acquire "$K-o" --lease 100s --owner '😀é  '
    [ "$status" = 0 ]
    [ "$(ask "SELECT HEX(owner) FROM holdfast WHERE \`key\` = '$K-o'")" = F09F9880C3A92020 ]
    [ "$(holdfast show --json "$K-o" | grep -c '"owner":"😀é  "')" = 1 ]
}

@test "messages in another language mean the same" {
    made
    ask "SET GLOBAL lc_messages = 'de_DE'; CREATE USER fremd@localhost;
        CREATE USER zu@localhost IDENTIFIED BY 'x';
        GRANT SELECT ON holdfast.holdfast TO fremd@localhost"
    run holdfast -S "$(as zu)" run -n "$K" -- true
    refused 77
    run holdfast -S "$(as fremd)" run -n "$K" -- true
    refused 77
    run holdfast -S "${HOLDFAST_STORE/holdfast?/keine?}" run -n "$K" -- true
    ask "DROP USER fremd@localhost, zu@localhost"
    echo "$status: $output"
    [ "$status" = 77 ] || [ "$status" = 64 ]
}

# As documented, word for word.
@test "a user with the least privileges of the page" {
    made
    ask "CREATE USER app@'%'"
    ask "$(grant_of_page mariadb "app@'%'")"
    HOLDFAST_STORE=$(as app)
    use_all
    ask "REVOKE UPDATE ON holdfast FROM app@'%'"
    run holdfast run -n "$K" -- true
    ask "DROP USER app@'%'"
    refused 77
}

@test "too many connections of a user: passing" {
    made
    ask "CREATE USER busy@localhost WITH MAX_USER_CONNECTIONS 1;
        GRANT ALL ON holdfast.* TO busy@localhost"
    mariadb --no-defaults -S "$DIR/server.sock" -u busy -e 'DO SLEEP(600)' 3>&- &
    STARTED+=($!)
    there() { [ "$(ask "SELECT COUNT(*) FROM information_schema.PROCESSLIST
        WHERE USER = 'busy'")" = 1 ]; }
    await there
    run holdfast -S "$(as busy)" run -n "$K" -- true
    refused 69
    HOLDFAST_STORE=$(as busy) background run -w 60 "$K" -- true
    kill "${STARTED[0]}"
    ask "KILL USER busy@localhost"
    finished
    ask "DROP USER busy@localhost"
    cat bg.err
    [ "$STATUS" = 0 ]
}

@test "a row that another transaction has locked is not written, and not lost" {
    run holdfast run "$K" -- true
    [ "$status" = 0 ]
    mkfifo in
    mariadb --no-defaults -S "$DIR/server.sock" -u root -N -n holdfast <in >out 3>&- &
    STARTED+=($!)
    exec 7>in
    echo "BEGIN; SELECT COUNT(*) FROM holdfast WHERE \`key\` = '$K' FOR UPDATE;" >&7
    await test -s out
    run holdfast run -n "$K" -- true
    echo "$status: $output"
    [ "$status" = 69 ]
    background run -w 60 "$K" -- true
    echo 'COMMIT;' >&7
    exec 7>&-
    finished
    [ "$STATUS" = 0 ]
}

# The first write of each connection fails by this number.
refuse() {
    mariadb --no-defaults -S "$DIR/server.sock" -u root holdfast <<SQL
DELIMITER //
CREATE OR REPLACE TRIGGER refuse BEFORE UPDATE ON holdfast FOR EACH ROW
IF @refused IS NULL THEN
    SET @refused = 1;
    SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = $1, MESSAGE_TEXT = 'otras palabras';
END IF//
SQL
}

@test "a refusal is judged by its number" {
    made
    for number in 1020 1213 1317 1180 1969; do # nothing was done, or it isn't known: made anew
        refuse $number
        run holdfast run -n "$K-made" -- true
        echo "$number: $status: $output"
        [ "$status" = 0 ]
    done
    for pair in 1205:69 1290:69 1142:77 1227:77 1021:69 1114:69 1406:65 1264:65; do
        refuse "${pair%:*}"
        run holdfast run -n "$K-made" -- true
        echo "$pair: $status: $output"
        [ "$status" = "${pair#*:}" ]
        [[ $output == *"otras palabras"* ]]
    done
}

@test "a table that is another's is said to be so" {
    ask 'CREATE TABLE theirs (`key` VARBINARY(512) PRIMARY KEY, rev BIGINT)'
    run holdfast -S "$HOLDFAST_STORE&table=theirs" run -n "$K" -- true
    echo "$status: $output"
    [ "$status" = 65 ]
    [ "$(ask 'SELECT COUNT(*) FROM theirs')" = 0 ]
    ask 'DROP TABLE theirs'
}

@test "options that don't fit, and MySQL, are refused with the reason" {
    for url in 'mariadb://h' 'mariadb://h/d?tabel=x' 'mariadb://h/d?table=a.b' \
        'mariadb://h/d?table=a%60b' 'mariadb://h/d?ssl=maybe' 'mariadb://h/d?ssl=off&ssl_ca=/x' \
        'mariadb://u@h/d?user=v' 'mariadb://h/d?socket=/x' 'mariadb:///d?socket=x' \
        'mariadb://a:1,b:x/d' 'mariadb://u:p@h/d?passfile=/x' 'mysql://h/d'; do
        run holdfast -S "$url" run -n "$K" -- true
        echo "$url: $output"
        [ "$status" = 64 ]
    done
    [[ $output == *"MySQL isn't supported"* ]]
}
