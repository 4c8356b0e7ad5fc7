#!/usr/bin/env bats
# postgres: what is this store's own, on the server of servers/postgres.

bats_require_minimum_version 1.5.0
load cli_common
setup() { cli_setup; }
teardown() { cli_teardown; }

@test "doctor says of settings what is wrong, not what should be" { # that server doesn't sync
    run holdfast doctor
    echo "$output"
    [ "$status" = 65 ]
    [[ $output == *"BAD   fsync or full_page_writes is off: a power cut may damage"* ]]
    [[ $output == *"not safe, because fsync or full_page_writes is off: "*"1 of "*" failed"* ]]
    [[ $output != *"a power cut doesn't damage"* ]]
}
