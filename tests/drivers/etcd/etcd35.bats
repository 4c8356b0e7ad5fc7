#!/usr/bin/env bats
# etcd: on a server of the 3.5 line, of tests/servers/etcd35: what the suites of tests/suites don't
# show.

load ../../cli/cli_common
setup() { cli_setup; }
teardown() { cli_teardown; }

@test "doctor names a release that loses writes, and the one that doesn't" {
    run holdfast doctor
    echo "$output"
    [ "$status" = 65 ]
    [[ $output == *"not safe, because etcd 3.5.1 may lose writes in a crash: use 3.5.5 or later"* ]]
}
