#!/usr/bin/env bats
# nats: over TLS, and several hosts, on the server of servers/nats with HOLDFAST_TEST_TLS_ONLY.

bats_require_minimum_version 1.5.0
load ../../cli/cli_common
load ../drivers_common
setup() {
    cli_setup
    AT=${HOLDFAST_TEST_STORE#nats://*:}
    AT=${AT%%/*}
    CA=$HOLDFAST_TEST_DIR/tls.pem
}
teardown() { cli_teardown; }

@test "the server's certificate counts, and the host that it names" {
    holdfast -S "nats://localhost:$AT/b?tls_ca=$CA" run "$K" -- true
    holdfast -S "nats://127.0.0.1:1,localhost:$AT/b?tls_ca=$CA" run "$K" -- true
    holdfast -S "nats://127.0.0.1:$AT/b?tls=on&tls_verify=off" run "$K" -- true
    # Another host's, and one that nobody known has signed.
    for url in "nats://127.0.0.1:$AT/b?tls_ca=$CA" "nats://localhost:$AT/b?tls=on"; do
        run holdfast -S "$url" run "$K" -- true
        echo "$output"
        [ "$status" = 77 ]
        [ "${#lines[@]}" = 1 ]
    done
}

@test "many requests at once, and waiters that are notified, over TLS" {
    HOLDFAST_STORE="nats://localhost:$AT/b?tls_ca=$CA"
    export HOLDFAST_STORE
    hold "$K"
    background run -w 60 "$K" -- true
    background run -w 60 "$K" -- true
    await waiters "$K" 2
    kill "$(cat cmd.pid)"
    finished
    cat bg.err
    [ "$STATUS" = 0 ]
    holdfast run "$K" -- true
}

@test "a new authority in the file is trusted when it connects again" {
    authority_changes "nats://localhost:$AT/b?tls_ca=$PWD/trusted.pem" "$HOLDFAST_TEST_DIR"
}
