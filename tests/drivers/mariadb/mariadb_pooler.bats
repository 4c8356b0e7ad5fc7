#!/usr/bin/env bats
# mariadb: behind a pooler that restores no settings. On the server of servers/mariadb.

bats_require_minimum_version 1.5.0
load ../../cli/cli_common
load ../drivers_common
load mariadb_common
setup() {
    cli_setup
    port=$("$SOURCE/tests/servers/free_port")
    "$SOURCE/tests/drivers/mariadb/pooler.py" "$port" "$DIR/server.sock" >pooler.out 2>&1 3>&- &
    STARTED+=($!)
    await grep -q ready pooler.out
    HOLDFAST_STORE="mariadb://127.0.0.1:$port/holdfast?user=holdfast"
}
teardown() { cli_teardown; }

@test "a number that is the server's by chance: each request has its settings" {
    "$BUILD/tests/lock_basic" "$HOLDFAST_STORE"
}

@test "the command" {
    use_all
}

@test "conform" {
    "$BUILD/tests/conform" "$HOLDFAST_STORE" alone
}
