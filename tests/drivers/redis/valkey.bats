#!/usr/bin/env bats
# redis: on a Valkey server of tests/servers/valkey: what the suites of tests/suites don't show.

load ../../cli/cli_common
setup() { cli_setup; }
teardown() { cli_teardown; }

@test "doctor finds a Valkey server good, and names it" {
    run holdfast doctor
    echo "$output"
    [ "$status" = 0 ]
    grep -E '^ok +Valkey 9\.1\.[0-9]+, which may be written$' <<<"$output"
}
