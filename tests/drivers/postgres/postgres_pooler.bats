#!/usr/bin/env bats
# postgres: behind PgBouncer, whose transactions come to any session. On the server of
# servers/postgres.

bats_require_minimum_version 1.5.0
load ../../cli/cli_common
load ../drivers_common
setup() {
    cli_setup
    server=${HOLDFAST_STORE#*127.0.0.1:}
    port=$("$SOURCE/tests/servers/free_port")
    # A session for each of at most three transactions at a time.
    cat >pooler.ini <<END
[databases]
* = host=127.0.0.1 port=${server%%/*} user=holdfast
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = $port
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 3
ignore_startup_parameters = extra_float_digits
END
    as=
    [ "$(id -u)" != 0 ] || as='setpriv --reuid=postgres --regid=postgres --clear-groups --'
    chmod 755 . "$BATS_TEST_TMPDIR"
    # shellcheck disable=SC2086
    $as pgbouncer pooler.ini >pooler.log 2>&1 3>&- &
    STARTED+=($!)
    HOLDFAST_STORE="postgres://127.0.0.1:$port/postgres?user=holdfast"
    await grep -q 'process up' pooler.log
}
teardown() { cli_teardown; }

@test "locks" {
    "$BUILD/tests/lock_basic" "$HOLDFAST_STORE"
}

@test "the command" {
    use_all
}

@test "conform" {
    "$BUILD/tests/conform" "$HOLDFAST_STORE" alone
}

@test "doctor finds nothing but the server's settings bad, and says that waiters poll" {
    one_is_bad 'fsync or full_page_writes is off'
    [[ $output == *"ok    a pooler is in between: waiters poll"* ]]
}
