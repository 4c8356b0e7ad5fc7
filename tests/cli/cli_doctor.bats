#!/usr/bin/env bats
# holdfast doctor, bench: a store is tried.

bats_require_minimum_version 1.5.0
load cli_common
setup() { cli_setup; }
teardown() { cli_teardown; }

trial_rows() {
    holdfast ls --all holdfast-conform/
    [[ ! $HOLDFAST_STORE =~ ^(file|sqlite): ]] ||
        find "$(dirname "${HOLDFAST_STORE#*:}")" -name '*.doctor-*' 2>/dev/null || true
}
of_a_trial_nothing_is_left() { [ -z "$(trial_rows)" ]; }
a_trial_has_written() { [ -n "$(trial_rows)" ]; }

seen_or_gone() { ls ./*.doctor-* || gone "$PID"; }

@test "doctor proves a good store, and says what it does not promise" {
    made
    before=$(find . -type f | sort)
    run holdfast doctor "$HOLDFAST_STORE"
    [ "$status" = 0 ]
    [[ $output != *"BAD "* ]]
    [[ $output == *"promises:"*"does not promise:"* ]]
    run holdfast doctor --json
    [ "$status" = 0 ]
    [[ ${lines[-1]} == *'"safe":true'* ]]
    printf '%s\n' "${lines[@]}" | grep -v '"safe"' | documents check:s ok:b
    # Nothing is left behind, also of one that is interrupted; and the store hasn't grown.
    [ "$(find . -type f | sort)" = "$before" ]
    for _ in 1 2 3 4 5 6 7 8 9 10 11 12; do
        background doctor
        await seen_or_gone
        kill "$PID" || true
        finished "$PID"
        [ "$STATUS" = 0 ] || break    # it had ended before anybody saw it
    done
    [ "$STATUS" = 143 ]
    await sh -c '! ls ./*.doctor-*'
}

# bats test_tags=stores, differs
@test "doctor leaves no row, whatever ends it" {
    made
    run holdfast doctor
    [[ $status = 0 || $status = 65 ]] # a test server may be one that a power cut damages
    of_a_trial_nothing_is_left
    for signal in TERM KILL; do
        background doctor
        await a_trial_has_written
        kill -s "$signal" "$PID"
        finished "$PID"
        [ "$STATUS" -gt 128 ]
        await of_a_trial_nothing_is_left
    done
}

@test "doctor that is killed while its store beside is being made leaves none" {
    export HOLDFAST_DRIVERS=$BUILD HOLDFAST_STORE="sqlite:$PWD/killed.db"
    made
    for ((i = 0; i < 12; i++)); do
        background doctor
        until compgen -G 'killed.db.doctor-*' >found; do
            if gone "$PID"; then return 1; fi
        done
        kill -KILL "$PID"
        finished "$PID"
        await of_a_trial_nothing_is_left
    done
}

@test "doctor leaves nothing in a file: or sqlite: store, whatever the mode of the database" {
    export HOLDFAST_DRIVERS=$BUILD
    sqlite3 old.db 'PRAGMA journal_mode = DELETE; CREATE TABLE own (n)'
    for url in "file:$PWD/one" "sqlite:$PWD/new.db" "sqlite:$PWD/old.db"; do
        holdfast -S "$url" run "$K" -- true
        size=$(stat -c %s "${url#*:}")
        run holdfast doctor "$url"
        # Eight writers that wait for a slow disk may be too many outside WAL mode.
        [ "$status" = 0 ] || [[ $url == */old.db && $output =~ (locked by others|too late) ]] || {
            grep -v '^ok' <<<"$output"
            return 1
        }
        [[ $output == *"tried on a store of its kind beside it"* ]]
        [ "$(stat -c %s "${url#*:}")" = "$size" ]
        [ -z "$(find . -name '*.doctor-*')" ]
        run holdfast -S "$url" ls --all
        [ "${#lines[@]}" = 2 ]
    done
    [ "$(sqlite3 old.db 'PRAGMA journal_mode')" = delete ]
}

@test "doctor finds a store that lies" {
    made
    HOLDFAST_FAULT=acquire:1+:before run holdfast doctor
    [ "$status" = 65 ]
    [[ $output == *"BAD  "*": acquire: fault: "*"do not trust it"* ]]
    [[ $output == *"not safe, because acquire: fault: "* ]] # not what should be
    HOLDFAST_FAULT=acquire:1+:before run holdfast doctor --json
    [[ ${lines[-1]} == *'"safe":false'*'"why":"acquire: fault: '* ]]
}

@test "doctor says nothing against a store beside which there is no room for the trial" {
    export HOLDFAST_DRIVERS=$BUILD
    mkdir full
    for kind in file: sqlite:; do
        # A command that holds keeps sqlite: open, with its files beside the database.
        run unshare -rm bash -c 'mount -t tmpfs -o size=8m none full &&
            "$0" -S "$1" run -q k -- sh -c "cat /dev/zero >full/rest 2>rest.err
                \"\$0\" doctor \"\$1\"; echo \$? full/*" "$0" "$1"' \
            "$HOLDFAST" "$kind$PWD/full/store"
        [[ $output =~ (No space left on device|disk is full)"; the store is neither proved" ]]
        [[ $output == *$'\n69 full/rest full/store'* ]]
        [[ $output != *"BAD "* && $output != *$'\n69 '*.doctor-* ]]
    done
}

@test "doctor of a file that is no store: do not trust it" {
    echo 'not a store at all' >other
    run holdfast doctor "file:$PWD/other"
    [ "$status" = 65 ]
    [[ $output == *"BAD "* && ${lines[-1]} == *"do not trust it" ]]
    [[ $output != *"neither proved nor refuted"* ]]
    run holdfast doctor --json "file:$PWD/other"
    [ "$status" = 65 ]
    [[ $output == *'"safe":false'* ]]
}

# T: stopped; Z: ended; empty: gone.
state_of() { sed -n 's/.*) \(.\).*/\1/p' "/proc/$1/stat" 2>state.err || true; }

@test "bench: a side that is killed isn't measured, and no file is left" {
    local left=
    while [ -z "$left" ]; do
        background bench
        until gone "$PID" || [ -n "$left" ]; do
            side=$(pgrep -P "$PID" | head -n 1) || continue
            # A stopped one can't end by itself before it is killed.
            kill -STOP "$side" 2>kill.err || continue
            [ "$(state_of "$side")" = T ] || continue
            kill -KILL "$side"
            left=$(readlink "/proc/$PID"/fd/* | grep /holdfast-bench-) || true
        done
        finished
    done
    [[ $left == *" (deleted)" ]]
    [ "$STATUS" = 69 ]
    grep -q "a process that held or waited was killed" bg.err
}

@test "bench measures beside flock, and leaves nothing held" {
    run timeout 600 "$HOLDFAST" bench "$HOLDFAST_STORE"
    [ "$status" = 0 ]
    [[ $output == *"flock"*"x "* ]]
    holdfast bench --json | documents what:s unit:s
    run holdfast ls holdfast-bench/
    [ -z "$output" ]
}

@test "bench: a pair takes what its requests take, no less, and no more than there was time for" {
    export HOLDFAST_DRIVERS=$BUILD HOLDFAST_STORE=sqlite:$PWD/store.db HOLDFAST_TRACE=$PWD/trace
    HOLDFAST_FAULT='acquire:*:delay=20,replace:*:delay=20' python3 - "$(the_command)" <<'END'
import json, subprocess, sys, time
began = time.monotonic_ns()
out = subprocess.run([sys.argv[1], 'bench', '--json'], check=True, stdout=subprocess.PIPE).stdout
took_ns = time.monotonic_ns() - began
pair, handover = map(json.loads, out.splitlines())
calls = [line.split()[1] for line in open('trace') if "'holdfast-bench/" in line]
calls = calls[:calls.index('acquire', 1)]   # then the processes begin that hand over
pairs = len(calls) / 2
assert (pair['unit'], handover['unit']) == ('ns', 'us')
assert pair['low'] >= 40e6 and pair['value'] >= 40e6, pair
# Each sample, of which one may be lower, has at most two pairs.
assert pairs >= 7 and pair['low'] * (pairs - 2) <= took_ns, (pair, pairs, took_ns)
assert handover['low'] >= 20e3 and handover['low'] * 1e3 <= took_ns, (handover, took_ns)
END
}
