#!/usr/bin/env bats
# holdfast bench, while other programs use the processors.

bats_require_minimum_version 1.5.0
load cli_common
setup() { cli_setup; }
teardown() { cli_teardown; }

@test "bench: what it measured on a busy machine is called so" {
    for _ in $(seq $((3 * $(nproc)))); do
        sh -c 'ulimit -t 60; while :; do :; done' 3>&- & # not longer, if this test is killed
        STARTED+=($!)
    done
    run --separate-stderr holdfast bench
    # shellcheck disable=SC2154  # run sets it
    echo "$output $stderr"
    [ "$status" = 0 ]
    [[ $output == *"flock"*"x "* ]]
    [[ $stderr =~ other\ programs\ used\ ([0-9]+)\ %\ of\ the\ processors\ meanwhile ]]
    [ "${BASH_REMATCH[1]}" -ge 60 ]
    [ "${BASH_REMATCH[1]}" -le 100 ]
}
