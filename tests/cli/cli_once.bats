#!/usr/bin/env bats
# holdfast once: an event is serviced by one execution, and remembered.

# bats file_tags=stores
bats_require_minimum_version 1.5.0
load cli_common
setup() { cli_setup; }
teardown() { cli_teardown; }

# bats test_tags=differs
@test "the event runs once; then: 0, and a line that says when, by whom, with what result" {
    run holdfast once "$K" -- sh -c 'echo "ran $HOLDFAST_KEY $HOLDFAST_TOKEN"'
    [ "$status" = 0 ]
    [[ $output =~ ^"ran $K "[0-9]+$ ]]
    run --separate-stderr holdfast once "$K" -- echo again
    [ "$status" = 0 ]
    [ -z "$output" ]
    # shellcheck disable=SC2154  # run sets it
    [[ $stderr == *"'$K' was done "*" by "*": exit 0"* ]]
    holdfast show --json "$K" | grep -q '"done":"2.*"result":"exit 0"'
}

@test "other events aren't touched by it" {
    run holdfast once "$K-1" -- echo one
    [ "$output" = one ]
    run holdfast once "$K-2" -- echo two
    [ "$output" = two ]
}

@test "ten at once run it once" {
    for i in 1 2 3 4 5 6 7 8 9 10; do
        "$HOLDFAST" once "$K" -- sh -c "echo $i >>ran" 2>>told 3>&- &
        STARTED+=($!)
    done
    wait
    [ "$(wc -l <ran)" = 1 ]
    [ "$(grep -c 'was done' told)" = 9 ]
}

# bats test_tags=differs
@test "a done event says who did it; forgotten, it runs again" {
    USER=anna holdfast once "$K" -- true
    run holdfast show "$K"
    [[ $output == *"done 2"*" UTC by anna@$(hostname):"*": exit 0"* ]]
    holdfast show --json "$K" | grep -q '"done_by":"anna@'
    holdfast once "$K" -- touch ran
    [ ! -e ran ]
    holdfast forget "$K"
    run holdfast show "$K"
    [[ $output != *done* ]]
    holdfast once --owner "run 7" "$K" -- touch ran
    [ -e ran ]
    holdfast show --json "$K" | grep -q '"done_by":"run 7"'
}

@test "what isn't marked as done can't be forgotten: 76" {
    made
    for key in "$K-never" "$K-run"; do
        [ "$key" = "$K-never" ] || holdfast run "$key" -- true
        run holdfast forget "$key"
        [ "$status" = 76 ]
        [[ $output == *"forget '$key': it is not marked as done" ]]
    done
}

@test "a command that fails leaves it undone, with its own status" {
    run holdfast once "$K" -- sh -c 'exit 5'
    [ "$status" = 5 ]
    run holdfast once "$K" -- sh -c 'kill -TERM $$'
    [ "$status" = 143 ]
    run -127 holdfast once "$K" -- no-such-command-here
    run holdfast once "$K" -- echo ran
    [ "$output" = ran ]
}

@test "--at-most-once: marked before it runs, and never again" {
    run holdfast once --at-most-once "$K" -- sh -c 'exit 5'
    [ "$status" = 5 ]
    run --separate-stderr holdfast once --at-most-once "$K" -- echo again
    [ "$status" = 0 ]
    [ -z "$output" ]
    run --separate-stderr holdfast once "$K" -- echo again
    [ -z "$output" ]
}

@test "--at-most-once by one that waited in line" {
    background once "$K" -- sh -c 'echo $$ >cmd.pid; until [ -e go ]; do sleep 0.05; done; exit 3'
    await test -s cmd.pid
    "$HOLDFAST" once --at-most-once "$K" -- sh -c 'echo ran >>ran; exit 4' 3>&- &
    second=$!
    STARTED+=("$second")
    lined_up "$K" 1
    touch go
    finished
    [ "$STATUS" = 3 ]
    finished "$second"
    [ "$STATUS" = 4 ]
    run --separate-stderr holdfast once "$K" -- echo again
    [ -z "$output" ]
    [ "$(cat ran)" = ran ]
}

@test "busy while it runs: 75 with -n and -w; who waits learns that it is done" {
    background once "$K" -- sh -c 'echo $$ >cmd.pid; until [ -e go ]; do sleep 0.05; done'
    await test -s cmd.pid
    run holdfast once -n "$K" -- true
    [ "$status" = 75 ]
    run holdfast once -w 0.1 -E 8 "$K" -- true
    [ "$status" = 8 ]
    "$HOLDFAST" once "$K" -- touch again 2>waiter.err 3>&- &
    waiter=$!
    STARTED+=("$waiter")
    lined_up "$K" 1
    touch go
    finished "$waiter"
    [ "$STATUS" = 0 ]
    [ ! -e again ]
    grep -q 'was done' waiter.err
}

# bats test_tags=differs
@test "a runner that is killed with its command leaves it undone: the next one runs it" {
    background once "${SHORT[@]}" "$K" -- sh -c 'echo $$ >cmd.pid; exec sleep 1200'
    await test -s cmd.pid
    kill -KILL "$PID" "$(cat cmd.pid)"
    run holdfast once -w 600 "$K" -- echo ran
    [ "$output" = ran ]
}

@test "a runner that is killed, and started again with its owner: that waits for its own dead run" {
    background once --owner execution-7 "${SHORT[@]}" "$K" -- \
        sh -c 'echo $$ >cmd.pid; exec sleep 1200'
    await test -s cmd.pid
    run holdfast once --owner execution-7 -n "$K" -- echo ran
    [ "$status" = 75 ]
    kill -KILL "$PID" "$(cat cmd.pid)"
    run holdfast once --owner execution-7 "$K" -- echo ran
    [ "$status" = 0 ]
    [ "$output" = ran ]
}

@test "--owner: an event that is begun within its own run is refused" {
    run holdfast once --owner execution-7 "$K" -- "$HOLDFAST" once --owner execution-7 "$K" -- true
    [ "$status" = 64 ]
    [[ $output == *"it would wait for itself"* ]]
}

@test "--at-most-once: not even when its runner is killed" {
    background once --at-most-once "$K" -- sh -c 'echo $$ >cmd.pid; exec sleep 1200'
    await test -s cmd.pid
    kill -KILL "$PID" "$(cat cmd.pid)"
    finished
    run --separate-stderr holdfast once "$K" -- echo again
    [ "$status" = 0 ]
    [ -z "$output" ]
}

# bats test_tags=differs
@test "--keep: remembered for so long" {
    run holdfast once --keep 300ms "$K" -- echo one
    [ "$output" = one ]
    await sh -c '[ "$("$0" once --keep 300ms "$1" -- echo two)" = two ]' "$HOLDFAST" "$K"
    run holdfast once --keep forever "$K-e" -- true
    run holdfast show "$K-e"
    [[ $output == *"for ever"* ]]
}

# bats test_tags=differs
@test "a lost hold doesn't mark, and gives 76" {
    background once "${SHORT[@]}" "$K" -- sh -c 'echo $$ >cmd.pid; exec sleep 1200'
    await test -s cmd.pid
    holdfast break "$K" --token "$(token "$K")"
    finished
    [ "$STATUS" = 76 ]
    run holdfast once "$K" -- echo ran
    [ "$output" = ran ]
}

# bats test_tags=differs
@test "given up by TERM while waiting: 143, and nobody left in the queue" {
    background once "$K" -- sh -c 'echo $$ >cmd.pid; exec sleep 1200'
    await test -s cmd.pid
    "$HOLDFAST" once "$K" -- touch ran 3>&- &
    waiter=$!
    STARTED+=("$waiter")
    lined_up "$K" 1
    kill "$waiter"
    finished "$waiter"
    [ "$STATUS" = 143 ]
    waiters "$K" 0
}

# A store that nobody can write for as long as it is locked by the command, until `go` is there.
own_store() {
    export HOLDFAST_STORE=sqlite:$PWD/own.db HOLDFAST_DRIVERS=$BUILD
    made
    cat >lock_it <<'EOF'
    (
        printf 'BEGIN EXCLUSIVE;\n.shell touch locked\n'
        until [ -e go ]; do sleep 0.05; done
        echo 'COMMIT;'
    ) | sqlite3 -bail -cmd '.timeout 60000' own.db 3>&- &
    until [ -e locked ]; do sleep 0.05; done
    echo $$ >ended.new
    mv ended.new ended
    exit "${ENDS:-5}"
EOF
}

# Until `once` knows that its command has ended: an earlier signal would go to the command's
# processes too, which keep the store away.
command_ended() {
    await test -s ended
    await test ! -e "/proc/$(cat ended)"
}

@test "a store that is away when the command has failed: it is given back when the store is back" {
    [ -z "${HOLDFAST_TEST_STORE:-}" ] || return 0
    own_store
    # Whose requests take a second at most; it would have given up by then.
    background once -w 1 --lease 100s "$K" -- sh lock_it
    await test -e ended
    sleep 4
    touch go
    finished
    [ "$STATUS" = 5 ]
    [ ! -s bg.err ]
    run holdfast once -n "$K" -- echo ran
    [ "$output" = ran ]
}

@test "a store that is away when the command is done: the event is marked when the store is back" {
    [ -z "${HOLDFAST_TEST_STORE:-}" ] || return 0
    own_store
    export ENDS=0
    background once -w 1 --lease 100s "$K" -- sh lock_it
    await test -e ended
    sleep 4
    touch go
    finished
    [ "$STATUS" = 0 ]
    [ ! -s bg.err ]
    run --separate-stderr holdfast once -n "$K" -- echo ran
    [ "$status" = 0 ]
    [ -z "$output" ]
    rm go locked ended
    # A signal ends that.
    background once -w 1 --lease 1h "$K-2" -- sh lock_it
    command_ended
    kill "$PID"
    finished
    [ "$STATUS" = 143 ]
    grep -q "$K-2.*may not be marked as done, and may run again" bg.err
    touch go
}

@test "a store that is away until the lease is over: it says so; a signal ends that" {
    [ -z "${HOLDFAST_TEST_STORE:-}" ] || return 0
    own_store
    background once -w 1 --lease 5s "$K" -- sh lock_it
    finished
    [ "$STATUS" = 5 ]
    [ "$(grep -c "$K.*locked by others" bg.err)" = 1 ]
    touch go
    await sqlite3 -bail own.db 'BEGIN IMMEDIATE; COMMIT;'
    rm go locked ended
    background once -w 1 --lease 1h "$K-2" -- sh lock_it
    command_ended
    kill "$PID"
    finished
    [ "$STATUS" = 143 ]
    grep -q "$K-2.*locked by others" bg.err
    touch go
}

@test "--max-hold stops an event that hangs; it is undone" {
    run timeout 600 "$HOLDFAST" once --max-hold 300ms "$K" -- sleep 1200
    [ "$status" = 76 ]
    run holdfast once "$K" -- echo ran
    [ "$output" = ran ]
}

@test "one event at a time: two keys are refused" {
    run holdfast once "$K-1" "$K-2" -- true
    [ "$status" = 64 ]
}
