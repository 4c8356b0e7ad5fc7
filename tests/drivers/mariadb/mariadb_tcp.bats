#!/usr/bin/env bats
# mariadb: over TCP: TLS, passwords, several hosts. On the server of servers/mariadb with
# HOLDFAST_TEST_TCP.

bats_require_minimum_version 1.5.0
load ../../cli/cli_common
load ../drivers_common
load mariadb_common
setup() {
    cli_setup
    PORT=${HOLDFAST_STORE#*127.0.0.1:}
    PORT=${PORT%%/*}
    made
}
teardown() { cli_teardown; }
free_port() { "$SOURCE/tests/servers/free_port"; }

@test "TLS: the server's certificate counts, and the host that it names" {
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 \
        -keyout other.key -out other.pem -subj /CN=localhost 2>openssl.out
    ask "CREATE OR REPLACE USER tls@'127.0.0.1' REQUIRE SSL;
        GRANT ALL ON holdfast.* TO tls@'127.0.0.1'"
    run holdfast -S "mariadb://tls@127.0.0.1:$PORT/holdfast" run -n "$K" -- true
    refused 77
    good="mariadb://tls@localhost:$PORT/holdfast?ssl_ca=$HOLDFAST_TEST_DIR/tls.pem"
    run holdfast -S "$good" run "$K" -- true
    echo "$output"
    [ "$status" = 0 ]
    # It names localhost alone.
    run holdfast -S "${good/localhost/127.0.0.1}" run -n "$K" -- true
    refused 77
    run holdfast -S "mariadb://tls@localhost:$PORT/holdfast?ssl_ca=$PWD/other.pem" \
        run -n "$K" -- true
    refused 77
    run holdfast -S "mariadb://tls@localhost:$PORT/holdfast?ssl=on" run -n "$K" -- true
    refused 77
    run holdfast -S "mariadb://tls@127.0.0.1:$PORT/holdfast?ssl=on&ssl_verify=off" \
        run "$K" -- true
    echo "$output"
    [ "$status" = 0 ]
}

@test "a password: denied without it, in a file, and never told" {
    ask "CREATE OR REPLACE USER guest@'127.0.0.1' IDENTIFIED BY 's3cr3t-guest';
        GRANT ALL ON holdfast.* TO guest@'127.0.0.1'"
    run holdfast -S "mariadb://guest@127.0.0.1:$PORT/holdfast" run -n "$K" -- true
    refused 77
    HOLDFAST_STORE=mariadb://guest:wr0ng-w0rd@127.0.0.1:$PORT/holdfast
    run holdfast run -n "$K" -- true
    refused 77
    [[ $output != *wr0ng* ]]
    echo s3cr3t-guest >pass
    for url in "mariadb://guest@127.0.0.1:$PORT/holdfast?passfile=$PWD/pass" \
        "mariadb://guest:s3cr3t-guest@127.0.0.1:$PORT/holdfast"; do
        HOLDFAST_STORE=$url run holdfast run -n "$K" -- env
        echo "$output"
        [ "$status" = 0 ]
        [[ $output != *s3cr3t-guest* ]]
    done
}

@test "a new password in the file is used when it connects again" {
    user="guest@'127.0.0.1'"
    ask "CREATE OR REPLACE USER $user IDENTIFIED BY 'one'; GRANT ALL ON holdfast.* TO $user"
    echo one >pass
    HOLDFAST_STORE="mariadb://guest@127.0.0.1:$PORT/holdfast?passfile=$PWD/pass"
    hold "$K"
    background run -w 60 "$K" -- true
    await waiters "$K" 1
    echo two >pass
    ask "SET PASSWORD FOR $user = PASSWORD('two'); KILL CONNECTION USER guest"
    kill "$(cat cmd.pid)"
    finished
    cat bg.err
    [ "$STATUS" = 0 ]
    # The holder has released it with the new password, too: no lease was waited for.
    finished "${STARTED[0]}"
    [ "$STATUS" = 143 ]
}

@test "a server that is mute, over TLS, is not waited for longer than the limit" {
    good="mariadb://holdfast@localhost:$PORT/holdfast?ssl_ca=$HOLDFAST_TEST_DIR/tls.pem"
    HOLDFAST_STORE=$good hold "$K"
    "$HOLDFAST_TEST_CONTROL" pause
    run timeout 60 "$HOLDFAST" -S "$good" run -n "$K-2" -- true # the login
    "$HOLDFAST_TEST_CONTROL" resume
    refused 69
    await held "$K"
    # A request of a connection that stood already.
    HOLDFAST_STORE=$good background run -w 3 "$K" -- true
    await waiters "$K" 1
    "$HOLDFAST_TEST_CONTROL" pause
    finished
    "$HOLDFAST_TEST_CONTROL" resume
    [ "$STATUS" != 0 ]
}

@test "several hosts: the first one that can be used" {
    none=$(free_port)
    run holdfast -S "mariadb://holdfast@127.0.0.1:$none,localhost:$PORT/holdfast" \
        run -n "$K" -- true
    echo "$output"
    [ "$status" = 0 ]
    run holdfast -S "mariadb://holdfast@127.0.0.1:$none,[::1]:$none/holdfast" run -n "$K" -- true
    refused 69
    [[ $output == *"'127.0.0.1:$none': "*"'[::1]:$none': "* ]]
}

@test "TLS: a new authority in the file is trusted when it connects again" {
    authority_changes "mariadb://holdfast@localhost:$PORT/holdfast?ssl_ca=$PWD/trusted.pem" \
        "$HOLDFAST_TEST_DIR"
}
