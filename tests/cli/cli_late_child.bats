#!/usr/bin/env bats
# Children that the system runs late. Not with a sanitizer, which has to be loaded first.

bats_require_minimum_version 1.5.0
load cli_common
setup() { cli_setup; }
teardown() { cli_teardown; }

@test "doctor keeps its janitor, also if that runs only after doctor has gone on" {
    LD_PRELOAD=$LATE_CHILD run "$HOLDFAST" -S mem: doctor
    [ "$status" = 0 ]
}
