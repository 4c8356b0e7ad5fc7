#!/usr/bin/env bats
# postgres: over TCP: TLS, passwords, rights, standbys. On the server of servers/postgres
# with HOLDFAST_TEST_TCP.

bats_require_minimum_version 1.5.0
load ../../cli/cli_common
load ../drivers_common
setup() {
    cli_setup
    PORT=${HOLDFAST_STORE#*127.0.0.1:}
    PORT=${PORT%%/*}
    AT=127.0.0.1:$PORT
    for bin in /usr/lib/postgresql/*/bin; do BIN=$bin; done
    AS=
    [ "$(id -u)" != 0 ] || AS='setpriv --reuid=postgres --regid=postgres --clear-groups --'
}
teardown() {
    local pid
    for pid in "${STARTED[@]}"; do kill -QUIT "$pid" 2>/dev/null || true; done
    cli_teardown
}

ask() { psql -X -q -A -t -v ON_ERROR_STOP=1 -h 127.0.0.1 -p "$PORT" -U holdfast postgres "$@"; }
# It ended well.
went_well() {
    echo "status $status: $output"
    [ "$status" = 0 ]
}
# Lets nobody be this user without a password, whatever the rest of the file says.
password_for() {
    local hba=$HOLDFAST_TEST_DIR/data/pg_hba.conf
    printf '%s\n' "host all $1 127.0.0.1/32 scram-sha-256" "$(grep -v " $1 " "$hba")" >hba
    cat hba >"$hba"
    ask -c 'SELECT pg_reload_conf()' >/dev/null
}
# How often the server had too many connections of a role.
refusals() { grep -c 'too many connections for role' "$HOLDFAST_TEST_DIR/log"; }
refused_again() { [ "$(refusals)" -gt "$before" ]; }
free_port() { "$SOURCE/tests/servers/free_port"; }

@test "TLS: the server's certificate counts" {
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 \
        -keyout other.key -out other.pem -subj /CN=127.0.0.1 2>openssl.out
    run holdfast -S "$HOLDFAST_STORE&sslmode=verify-full&sslrootcert=$HOLDFAST_TEST_DIR/tls.pem" \
        run "$K" -- psql -X -A -t -h 127.0.0.1 -p "$PORT" -U holdfast postgres -c \
        "SELECT string_agg(DISTINCT ssl::text, ',') FROM pg_stat_ssl JOIN pg_stat_activity
         USING (pid) WHERE application_name = 'holdfast'"
    [ "$status" = 0 ]
    [ "$output" = true ]
    run holdfast -S "$HOLDFAST_STORE&sslmode=verify-full&sslrootcert=$PWD/other.pem" \
        run -n "$K" -- true
    [[ $output == *certificate* ]]
    [ "$status" != 0 ]
    run holdfast -S "$HOLDFAST_STORE&sslmode=verify-full&sslrootcert=$PWD/none.pem" \
        run -n "$K" -- true
    [ "$status" != 0 ]
}

@test "a password: denied without it, in a file, and never told" {
    ask -c "CREATE ROLE guest LOGIN PASSWORD 's3cr3t-guest'" \
        -c 'GRANT CREATE ON SCHEMA public TO guest'
    password_for guest
    url="postgres://guest@$AT/postgres?table=guests"
    run holdfast -S "$url" run -n "$K" -- true
    refused 77
    HOLDFAST_STORE="postgres://guest:wr0ng-w0rd@$AT/postgres?table=guests"
    run holdfast run -n "$K" -- true
    refused 77
    [[ $output != *wr0ng* ]]
    printf '%s\n' "127.0.0.1:$PORT:*:guest:s3cr3t-guest" >passes
    chmod 600 passes
    run holdfast -S "$url&passfile=$PWD/passes" run -n "$K" -- env
    went_well
    [[ $output != *s3cr3t-guest* ]]
    HOLDFAST_STORE="postgres://guest:s3cr3t-guest@$AT/postgres?table=guests"
    run holdfast run -n "$K" -- env
    went_well
    [[ $output != *s3cr3t-guest* ]]
}

# As documented, word for word.
@test "a role with the least privileges of the page" {
    holdfast run "$K" -- true # makes the table
    ask -c 'CREATE ROLE app LOGIN'
    ask -c "$(grant_of_page postgres app)"
    HOLDFAST_STORE="postgres://app@$AT/postgres"
    use_all
    ask -c 'REVOKE UPDATE ON holdfast FROM app'
    run holdfast run -n "$K" -- true
    refused 77
}

@test "no connection for a role or a database: passing" {
    ask -c 'CREATE ROLE busy LOGIN CONNECTION LIMIT 0' \
        -c 'CREATE DATABASE closed CONNECTION LIMIT 0'
    ask -c 'GRANT ALL ON holdfast TO busy'
    run holdfast -S "postgres://busy@$AT/postgres" run -n "$K" -- true
    refused 69
    run holdfast -S "postgres://busy@$AT/closed" run -n "$K" -- true
    refused 69
    ask -c 'ALTER DATABASE closed CONNECTION LIMIT 5' \
        -c 'ALTER DATABASE closed ALLOW_CONNECTIONS false'
    run holdfast -S "postgres://holdfast@$AT/closed" run -n "$K" -- true
    refused 69
    # A waiter whose connections are cut meanwhile goes on.
    ask -c 'ALTER ROLE busy CONNECTION LIMIT -1'
    hold "$K"
    HOLDFAST_STORE="postgres://busy@$AT/postgres" background run -w 30 "$K" -- true
    await waiters "$K" 1
    before=$(refusals)
    ask -c 'ALTER ROLE busy CONNECTION LIMIT 0' \
        -c "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'busy'"
    kill "$(cat cmd.pid)"
    await refused_again
    ask -c 'ALTER ROLE busy CONNECTION LIMIT -1'
    finished
    [ "$STATUS" = 0 ]
}

@test "which table: SCHEMA.NAME, the search path when it was opened; doctor says it" {
    ask -c 'CREATE ROLE al LOGIN' -c 'CREATE ROLE bo LOGIN' -c 'CREATE SCHEMA AUTHORIZATION al' \
        -c 'CREATE SCHEMA AUTHORIZATION bo'
    HOLDFAST_STORE="postgres://al@$AT/postgres?table=shelf" holdfast run "$K" -- true
    HOLDFAST_STORE="postgres://bo@$AT/postgres?table=shelf" holdfast run "$K" -- true
    HOLDFAST_STORE="postgres://bo@$AT/postgres?table=shelf" run holdfast doctor
    echo "$output"
    [[ $output == *"in the table bo.shelf of the database postgres"* ]]
    run holdfast -S "postgres://bo@$AT/postgres?table=al.shelf" run -n "$K" -- true
    refused 77
    ask -c 'GRANT USAGE ON SCHEMA al TO bo' -c 'GRANT ALL ON al.shelf TO bo'
    HOLDFAST_STORE="postgres://al@$AT/postgres?table=shelf" hold "$K"
    run holdfast -S "postgres://bo@$AT/postgres?table=al.shelf" run -n "$K" -- true
    [ "$status" = 75 ]
    kill "$(cat cmd.pid)"
    run holdfast -S "postgres://bo@$AT/postgres?table=a.b.c" run -n "$K" -- true
    refused 64
    [ "$(ask -c "SELECT count(*) FROM pg_tables WHERE tablename LIKE '%.%'")" = 0 ]
}

@test "a role whose transactions are read-only is refused, with the reason" {
    ask -c 'CREATE ROLE reader LOGIN' -c 'GRANT ALL ON holdfast TO reader' \
        -c 'ALTER ROLE reader SET default_transaction_read_only = on'
    HOLDFAST_STORE="postgres://reader@$AT/postgres"
    run holdfast run -n "$K" -- true
    refused 64
    [[ $output == *read-only* ]]
}

@test "a standby is refused; doctor says why" {
    port=$(free_port)
    cd "$HOLDFAST_TEST_DIR"
    # shellcheck disable=SC2086
    $AS "$BIN/pg_basebackup" -D standby -h "$HOLDFAST_TEST_DIR" -p "$PORT" -U holdfast -R -N \
        -c fast
    # shellcheck disable=SC2086
    $AS "$BIN/postgres" -D "$PWD/standby" -p "$port" -k "$PWD/standby" -c ssl=off \
        -c listen_addresses=127.0.0.1 -c fsync=off -c max_connections=200 \
        >"$BATS_TEST_TMPDIR/log" 2>&1 3>&- &
    STARTED+=($!)
    cd "$BATS_TEST_TMPDIR"
    await "$BIN/pg_isready" -q -h 127.0.0.1 -p "$port"
    HOLDFAST_STORE="postgres://127.0.0.1:$port/postgres?user=holdfast"
    run holdfast run -n "$K" -- true
    [ "$status" = 64 ]
    [[ $output == *standby* ]]
    run holdfast doctor
    echo "$output"
    [ "$status" != 0 ]
    [[ $output == *"not safe, because"*standby* ]]
    # Named beside the primary it is passed over.
    hosts="host=127.0.0.1,127.0.0.1&port=$port,$PORT"
    run holdfast -S "postgres:///postgres?$hosts&user=holdfast" run -n "$K" -- true
    echo "$output"
    [ "$status" = 0 ]
}

@test "a new password in the passfile is used when it connects again" {
    made
    ask -c "CREATE ROLE changing LOGIN PASSWORD 'one'" -c 'GRANT ALL ON holdfast TO changing'
    password_for changing
    echo "127.0.0.1:$PORT:*:changing:one" >passes
    chmod 600 passes
    HOLDFAST_STORE="postgres://changing@$AT/postgres?passfile=$PWD/passes"
    hold "$K"
    background run -w 600 "$K" -- true
    await waiters "$K" 1
    echo "127.0.0.1:$PORT:*:changing:two" >passes
    ask -c "ALTER ROLE changing PASSWORD 'two'" \
        -c "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'changing'"
    kill "$(cat cmd.pid)"
    finished
    cat bg.err
    [ "$STATUS" = 0 ]
    finished "${STARTED[0]}"
    [ "$STATUS" = 143 ]
}

@test "TLS: a new authority in the file is trusted when it connects again" {
    authority_changes "$HOLDFAST_STORE&sslmode=verify-full&sslrootcert=$PWD/trusted.pem" \
        "$HOLDFAST_TEST_DIR"
}
