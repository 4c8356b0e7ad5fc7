#!/usr/bin/env bats
# holdfast run: signals, killed wrappers, lost locks, what is left behind.

load cli_common
setup() { cli_setup; }
teardown() { cli_teardown; }

# A command that says which signals it got, in the file "got", until it gets TERM or 5 s pass.
start_listener() {
    cat >listen <<'END'
#!/bin/bash
for s in INT HUP QUIT USR1 USR2 WINCH CONT; do trap "echo $s >>got" $s; done
trap 'echo TERM >>got; exit 7' TERM
echo $$ >cmd.tmp; mv cmd.tmp cmd.pid
while :; do sleep 0.05; done
END
    chmod +x listen
    background run "${SHORT[@]}" "$@" "$K" -- ./listen
    await test -s cmd.pid
}

# TERM, once. The CONT behind it may be noted while that is being handled.
told_to_end() { [ "$(grep -vx CONT got)" = TERM ]; }

@test "every signal reaches the command, once" {
    start_listener
    for s in INT HUP QUIT USR1 USR2 WINCH CONT; do
        kill -"$s" "$PID"
        await grep -qx $s got
    done
    kill -TERM "$PID"
    finished
    [ "$STATUS" = 7 ]
    [ "$(sort got | uniq -c | awk '$1 != 1')" = "" ]
    [ "$(wc -l <got)" = 8 ]
    free "$K"
}

@test "TERM stops a shell's children too, not the shell alone" {
    background run "$K" -- sh -c 'sleep 1201 & echo $! >sleep.pid; wait'
    await test -s sleep.pid
    kill -TERM "$PID"
    finished
    [ "$STATUS" = 143 ]
    await gone "$(cat sleep.pid)"
    await free "$K"
}

@test "signals that were ignored stay ignored; others are as they were" {
    (trap '' HUP; exec "$HOLDFAST" run "$K" -- grep -E '^Sig(Blk|Ign)' /proc/self/status) >ignoring
    (trap '' HUP; exec grep -E '^Sig(Blk|Ign)' /proc/self/status) >plain
    cmp ignoring plain
    holdfast run "$K" -- grep -E '^Sig(Blk|Ign)' /proc/self/status >ours
    grep -E '^Sig(Blk|Ign)' /proc/self/status >plain
    cmp ours plain
    env --default-signal "$HOLDFAST" run "$K" -- grep -E '^SigIgn' /proc/self/status >default
    grep -q '0000000000000000' default
}

@test "an ignored HUP doesn't end a wait, nor reach the command" {
    hold "$K"
    HOLDER=$PID
    (trap '' HUP; exec env --default-signal=INT "$HOLDFAST" run "$K" -- sh -c 'echo ran >ran') &
    WAITER=$!
    STARTED+=("$WAITER")
    await waiters "$K" 1
    kill -HUP "$WAITER"
    kill -TERM "$HOLDER"
    finished "$WAITER"
    [ "$STATUS" = 0 ]
    [ -s ran ]
}

@test "TERM between the grant and the command: 143, nothing runs, nothing is left held" {
    HOLDFAST_FAULT=acquire:1:late=2000 background run "$K" -- sh -c 'echo ran >ran'
    await held "$K"
    kill -TERM "$PID"
    finished
    [ "$STATUS" = 143 ]
    [ ! -e ran ]
    free "$K"
}

@test "an ignored SIGCHLD doesn't lose the command's status" {
    run env --ignore-signal=CHLD "$HOLDFAST" run "$K" -- sh -c 'exit 5'
    [ "$status" = 5 ]
}

# bats test_tags=stores, differs
@test "given up by INT or TERM while waiting: 130, 143, and nobody left in the queue" {
    hold "$K"
    for pair in INT:130 TERM:143 HUP:129 QUIT:131; do
        env --default-signal "$HOLDFAST" run "$K" -- touch ran 3>&- &
        waiter=$!
        STARTED+=("$waiter")
        lined_up "$K" 1
        kill -"${pair%:*}" "$waiter"
        finished "$waiter"
        [ "$STATUS" = "${pair#*:}" ]
        waiters "$K" 0
    done
    [ ! -e ran ]
}

# bats test_tags=stores
@test "a wait for several keys is given up whole" {
    hold "$K-b"
    "$HOLDFAST" run "$K-a" "$K-b" -- touch ran 3>&- &
    waiter=$!
    STARTED+=("$waiter")
    lined_up "$K-b" 1
    kill "$waiter"
    finished "$waiter"
    [ "$STATUS" = 143 ]
    free "$K-a"
    waiters "$K-b" 0
}

@test "the wrapper killed: the key stays held while its command runs (file:)" {
    case $HOLDFAST_STORE in file:*) ;; *) return 0 ;; esac
    hold "$K"
    kill -KILL "$PID"
    finished
    [ "$STATUS" = 137 ]
    kill -0 "$(cat cmd.pid)"
    run holdfast run -n "$K" -- true
    [ "$status" = 75 ]
    kill -KILL "$(cat cmd.pid)"
    run holdfast run -w 600 "$K" -- true
    [ "$status" = 0 ]
}

@test "the wrapper killed: what it started is said to hold on, and not to be stopped (file:)" {
    case $HOLDFAST_STORE in file:*) ;; *) return 0 ;; esac
    hold "$K"
    [[ $(holdfast show "$K") != *ended* ]]
    [[ $(holdfast show --json "$K") != *carried* ]]
    kill -KILL "$PID"
    finished
    for how in "show $K" ls "run -n $K true" "run -w 0.1 $K true"; do
        # shellcheck disable=SC2086
        run holdfast $how
        [[ $output == *"pid $PID, ended; what it started holds on (sh -c "* ]]
    done
    [[ $(holdfast show --json "$K") == *'"carried":true'*'"carried":true'* ]]
    run holdfast break "$K" --token "$(token "$K")"
    [ "$status" = 0 ]
    [[ $output == *"'$K': the grant "*" is over; this stops no process: "* ]]
    [[ $output == *": what still runs there goes on without the lock" ]]
    kill -0 "$(cat cmd.pid)"
}

@test "a holder in another PID namespace isn't said to have ended (file:)" {
    case $HOLDFAST_STORE in file:*) ;; *) return 0 ;; esac
    unshare -p true || return 0    # which is root's to do
    hold "$K"
    # Processes there are numbered anew: the holder's number is nobody's.
    run unshare -fp "$HOLDFAST" run -n "$K" true
    [ "$status" = 75 ]
    [[ $output == *"pid $PID (sh -c "* && $output != *", ended"* ]]
    [[ $(unshare -fp "$HOLDFAST" show --json "$K") != *carried* ]]
}

@test "break names the holder that goes on until it notices" {
    hold "$K"
    run holdfast break "$K" --token "$(token "$K")"
    [ "$status" = 0 ]
    [[ $output == *" is over; this stops no process: "*"pid $PID (sh -c "* ]]
    [[ $output == *": it goes on until it notices" ]]
    finished
    [ "$STATUS" = 76 ]
    eval "$(holdfast acquire "$K" --lease 100)"
    run holdfast break "$K" --token "$((HOLDFAST_TOKEN + 1))"
    [ "$status" = 76 ]
    [ "${#lines[@]}" = 1 ]
}

@test "a waiter takes over when the command of a killed wrapper ends (file:)" {
    case $HOLDFAST_STORE in file:*) ;; *) return 0 ;; esac
    hold "$K"
    "$HOLDFAST" run "$K" -- touch ran 3>&- &
    waiter=$!
    STARTED+=("$waiter")
    lined_up "$K" 1
    kill -KILL "$PID"
    sleep 0.3
    [ ! -e ran ]
    kill -KILL "$(cat cmd.pid)"
    finished "$waiter"
    [ "$STATUS" = 0 ]
    [ -e ran ]
}

@test "-o: the command doesn't carry the hold (file:)" {
    case $HOLDFAST_STORE in file:*) ;; *) return 0 ;; esac
    run holdfast run "$K" -- sh -c 'ls -l /proc/self/fd'
    [[ $output == *"$BATS_TEST_TMPDIR/store"* ]]
    run holdfast run -o "$K" -- sh -c 'ls -l /proc/self/fd'
    [ "$status" = 0 ]
    [[ $output != *"$BATS_TEST_TMPDIR/store"* ]]
}

@test "-o: the command ends with its wrapper, and the key is held until it has ended (file:)" {
    case $HOLDFAST_STORE in file:*) ;; *) return 0 ;; esac
    background run -o "$K" -- sh -c 'trap "touch told" TERM; echo $$ >cmd.tmp; mv cmd.tmp cmd.pid
        while :; do sleep 0.1; done'
    await test -s cmd.pid
    kill -KILL "$PID"
    await test -e told
    run holdfast run -n "$K" -- true
    [ "$status" = 75 ]
    kill -KILL "$(cat cmd.pid)"
    run holdfast run -w 600 "$K" -- true
    [ "$status" = 0 ]
    rm cmd.pid
    hold "$K" -o --on-lost ignore
    kill -KILL "$PID"
    await gone "$PID"
    run holdfast run -n "$K" -- true
    [ "$status" = 75 ]
    kill -0 "$(cat cmd.pid)"
}

@test "-o: what keeps the hold has no other file open, and goes with the command (file:)" {
    case $HOLDFAST_STORE in file:*) ;; *) return 0 ;; esac
    background run -o --lease 1000s "$K" -- sh -c '
        cat /proc/$PPID/task/$PPID/children >children; touch began
        until [ -e go ]; do sleep 0.1; done'
    await test -e began
    keeper=
    for pid in $(cat children); do
        [ "$(cat "/proc/$pid/comm")" != hf-keeper ] || keeper=$pid
    done
    [ -n "$keeper" ]
    [ "$(find "/proc/$keeper/fd" -mindepth 1 | wc -l)" = 3 ]
    touch go
    await gone "$keeper"
    free "$K"
}

# bats test_tags=stores
@test "a hold by time: the command ends with its wrapper, as it couldn't be renewed any more" {
    hold "$K" --lease 100s
    kill -KILL "$PID"
    await gone "$(cat cmd.pid)"
}

# bats test_tags=stores, differs
@test "a hold by time: with -o, too, and the key is held until the lease ends" {
    hold "$K" -o --lease 100s
    kill -KILL "$PID"
    await gone "$(cat cmd.pid)"
    run holdfast run -n "$K" -- true
    [ "$status" = 75 ]
    held "$K"
    rm cmd.pid
    hold "$K-short" -o --lease "$(lease_ms 3000)ms"
    kill -KILL "$PID"
    await gone "$(cat cmd.pid)"
    run holdfast run -w 600 "$K-short" -- true
    [ "$status" = 0 ]
}

@test "in a PID namespace of its own, where no thread can be started" {
    unshare -p true || return 0    # which is root's to do
    # A sanitizer looks for leaks by a thread.
    export ASAN_OPTIONS="${ASAN_OPTIONS-}:detect_leaks=0"
    run unshare -p "$HOLDFAST" run "$K" -- sh -c 'echo "ran $$"'
    [ "$status" = 0 ]
    [ "$output" = "ran 1" ]
    run timeout 60 unshare -p "$HOLDFAST" run --max-hold 300ms "$K" -- sleep 1200
    [ "$status" = 76 ]
}

@test "what the command leaves in the background goes on holding, unless -o (file:)" {
    case $HOLDFAST_STORE in file:*) ;; *) return 0 ;; esac
    run holdfast run "$K" -- sh -c 'sleep 1200 >/dev/null 2>&1 3>&- & echo $! >left.pid; exit 4'
    [ "$status" = 4 ]
    run holdfast run -n "$K" -- true
    [ "$status" = 75 ]
    kill "$(cat left.pid)"
    run holdfast run -w 600 "$K" -- true
    [ "$status" = 0 ]
    run holdfast run -o "$K" -- sh -c 'sleep 1200 >/dev/null 2>&1 3>&- & echo $! >left.pid; exit 4'
    [ "$status" = 4 ]
    run holdfast run -n "$K" -- true
    [ "$status" = 0 ]
}

@test "where no descriptor carries the hold it is given back at the end" {
    for how in "run -o" "run --lease 100s"; do
        # shellcheck disable=SC2086
        HOLDFAST_TRACE=$PWD/trace run holdfast $how "$K" -- \
            sh -c 'sleep 1200 >/dev/null 2>&1 3>&- & echo $! >left.pid'
        [ "$status" = 0 ]
        grep -q '\(replace\|update\) .*rev=[1-9].*parties=0+0' trace
        rm trace
        kill "$(cat left.pid)"
    done
}

@test "orphans of the command are reaped while it runs" {
    background run "$K" -- sh -c '(sleep 0.1 & echo $! >orphan.pid); until [ -e go ]; do
        sleep 0.05; done'
    await test -s orphan.pid
    await sh -c '! [ -e /proc/$(cat orphan.pid) ]'
    touch go
    finished
    [ "$STATUS" = 0 ]
}

@test "messages that nobody reads end neither the command nor the hold" {
    for how in '2>&-' '2>/dev/full' '2>&1 | true'; do
        run bash -c 'set -o pipefail; "$0" run -v "$1" -- sh -c "
            \"\$0\" run -n -q $1 -- true; echo \$? >inner; exit 3" "$0" '"$how" "$HOLDFAST" "$K"
        [ "$status" = 3 ]
        [ "$(cat inner)" = 75 ]
        free "$K"
    done
}

# bats test_tags=stores, differs
@test "a lost lock stops the command and all that it started, with 76" {
    background run "${SHORT[@]}" "$K" -- sh -c 'sleep 1201 & echo $! >a.pid
        (sleep 1202 & echo $! >b.pid; wait) & (exec sleep 1203) & echo $! >c.pid; wait'
    await test -s a.pid
    await test -s b.pid
    await test -s c.pid
    holdfast break "$K" --token "$(token "$K")"
    finished
    [ "$STATUS" = 76 ]
    grep -q "$K" bg.err
    for f in a b c; do gone "$(cat $f.pid)"; done
}

@test "a lost lock: orphans of the command are stopped, daemons of their own session are not" {
    background run "$K" -- sh -c '(sleep 1201 & echo $! >orphan.pid); setsid sh -c "
        echo \$\$ >daemon.pid; exec sleep 1202" & sleep 1203'
    await test -s orphan.pid
    await test -s daemon.pid
    holdfast break "$K" --token "$(token "$K")"
    finished
    [ "$STATUS" = 76 ]
    gone "$(cat orphan.pid)"
    kill -0 "$(cat daemon.pid)"
}

# bats test_tags=stores
@test "a lost lock: TERM first, so that the command can tidy up" {
    start_listener
    holdfast break "$K" --token "$(token "$K")"
    finished
    [ "$STATUS" = 76 ]
    told_to_end
}

@test "a lost lock: a stopped command can tidy up, too" {
    start_listener
    kill -STOP "$(cat cmd.pid)"
    holdfast break "$K" --token "$(token "$K")"
    finished
    [ "$STATUS" = 76 ]
    told_to_end
}

@test "a lost lock: what ignores TERM is killed after 5 s, also if the command itself has ended" {
    background run "$K" -- sh -c 'sh -c "trap \"\" TERM; echo \$\$ >cmd.pid
        while :; do sleep 1; done" & exec sleep 1200'
    await test -s cmd.pid
    start=$(date +%s%N)
    holdfast break "$K" --token "$(token "$K")"
    finished
    took=$((($(date +%s%N) - start) / 1000000))
    [ "$STATUS" = 76 ]
    [ "$took" -ge 4900 ]
    [ "$took" -lt 25000 ]
    gone "$(cat cmd.pid)"
}

@test "a lost lock: a stopped command is stopped for good" {
    hold "$K"
    kill -STOP "$(cat cmd.pid)"
    holdfast break "$K" --token "$(token "$K")"
    finished
    [ "$STATUS" = 76 ]
    gone "$(cat cmd.pid)"
}

# bats test_tags=stores
@test "--on-lost kill: at once" { within 4500 killed_at_once; }
killed_at_once() {
    rm -f got cmd.pid
    start_listener --on-lost kill && holdfast break "$K" --token "$(token "$K")" && finished &&
        [ "$STATUS" = 76 ] && [ ! -s got ]
}

# bats test_tags=stores
@test "--on-lost ignore: the command goes on, and its status counts" {
    background run "${SHORT[@]}" --on-lost ignore "$K" -- sh -c 'echo $$ >cmd.pid
        until [ -e go ]; do sleep 0.05; done; exit 6'
    await test -s cmd.pid
    holdfast break "$K" --token "$(token "$K")"
    await grep -q 'goes on' bg.err
    touch go
    finished
    [ "$STATUS" = 6 ]
}

# bats test_tags=stores
@test "a lost lock that nobody noticed while the command ran is told at its end" {
    run holdfast run "$K" -- sh -c '"$0" break "$HOLDFAST_KEY" --token "$HOLDFAST_TOKEN"' \
        "$HOLDFAST"
    [ "$status" = 76 ]
}

@test "a lost lock's line names the key, the store's first words, and what follows" {
    HOLDFAST_FAULT='replace:2:full,replace:2+:unavailable' background run --lease 4s "$K" \
        -- sleep 1200
    finished
    [ "$STATUS" = 76 ]
    [ "$(wc -l <bg.err)" = 1 ]
    grep -q "the lock on '$K' is lost; stopping the command: " bg.err
    grep -q 'its lease (4 s) ran out, as it could not be renewed: .* no room left$' bg.err
}

@test "a refused release says until when the lock may stay held" {
    HOLDFAST_FAULT='replace:*:full' run holdfast run --lease 60s "$K" -- true
    [[ $output == *"release '$K': "*"no room left; the lock may stay held until its lease ends "* ]]
}

@test "a wait that a signal ends says so when its request could not be withdrawn" {
    hold "$K"
    HOLDFAST_FAULT='replace:2+:unavailable' background run "$K" -- touch ran
    await waiters "$K" 1
    kill -TERM "$PID"
    finished
    [ "$STATUS" = 143 ]
    [ "$(wc -l <bg.err)" = 1 ]
    grep -q "acquire '$K': given up, but the store has not confirmed it: .* be reached$" bg.err
    [ ! -e ran ]
}

@test "a wait that ends while the store refuses says so, in the store's words" {
    HOLDFAST_FAULT='acquire:*:unavailable,replace:*:unavailable' run holdfast run -w 0.5 "$K" \
        -- touch ran
    [ "$status" = 69 ]
    [ "${#lines[@]}" = 1 ]
    [[ $output == *"acquire '$K': the store cannot be reached (store "* ]]
    [[ $output == *", named by HOLDFAST_STORE); nothing was acquired, "* ]]
    [[ $output == *"and nothing was executed" ]]
    [ ! -e ran ]
}

# bats test_tags=stores, differs
@test "a lease that runs out in a stopped wrapper is lost when it goes on" {
    hold "$K" --lease "$(lease_ms 4000)ms"
    stopped=$PID
    first=$(token "$K")
    "$HOLDFAST" run -w 600 "$K" -- sh -c 'echo $HOLDFAST_TOKEN >second.tmp
        mv second.tmp second; until [ -e go ]; do sleep 0.05; done' 3>&- &
    second=$!
    STARTED+=("$second")
    lined_up "$K" 1
    # The wrapper and its command, as when a machine or a container is frozen.
    kill -STOP "$stopped" "$(cat cmd.pid)"
    await test -s second
    [ "$(cat second)" -gt "$first" ]
    kill -CONT "$stopped" "$(cat cmd.pid)"
    finished "$stopped"
    [ "$STATUS" = 76 ]
    gone "$(cat cmd.pid)"
    # What the first one did on waking was nothing to its successor.
    [ "$(token "$K")" = "$(cat second)" ]
    touch go
    finished "$second"
    [ "$STATUS" = 0 ]
    free "$K"
}

@test "kill 0 in the command doesn't come back to it" {
    cat >selfkill <<'END'
#!/bin/bash
n=0
trap 'n=$((n + 1)); echo $n >count' USR2
trap 'n=$((n + 1)); echo $n >count' TERM
kill -TERM 0
for i in 1 2 3 4 5 6; do sleep 0.05; done
exit 0
END
    chmod +x selfkill
    run setsid -w "$HOLDFAST" run "$K" -- ./selfkill
    [ "$status" = 0 ]
    [ "$(cat count)" = 1 ]
}

@test "a truncated store is noticed: the command is stopped, 65 (file:)" {
    [ -z "${HOLDFAST_TEST_STORE:-}" ] || return 0
    hold "$K"
    truncate -s 100 "$BATS_TEST_TMPDIR/store"
    finished
    [ "$STATUS" = 65 ]
    gone "$(cat cmd.pid)"
    grep -q truncated bg.err
}

@test "a store that is removed is noticed: the command is stopped, 65 (file:)" {
    [ -z "${HOLDFAST_TEST_STORE:-}" ] || return 0
    hold "$K"
    rm "$BATS_TEST_TMPDIR/store"
    finished
    [ "$STATUS" = 65 ]
    gone "$(cat cmd.pid)"
    grep -q "was removed" bg.err
}

@test "a store that is removed while somebody waits in it: 65 (file:)" {
    [ -z "${HOLDFAST_TEST_STORE:-}" ] || return 0
    hold "$K"
    holdfast run "$K" -- true 2>waiter.err &
    WAITER=$!
    STARTED+=("$WAITER")
    await waiters "$K" 1
    rm "$BATS_TEST_TMPDIR/store"
    finished "$WAITER"
    [ "$STATUS" = 65 ]
    grep -q "was removed" waiter.err
}

@test "--max-hold: what the command leaves in the background doesn't hold on (file:)" {
    run holdfast run --max-hold 60s "$K" -- sh -c 'sleep 1200 >/dev/null 2>&1 3>&- &
        echo $! >bg.pid'
    [ "$status" = 0 ]
    free "$K"
}

@test "a store that is truncated while somebody waits in it: 65 (file:)" {
    [ -z "${HOLDFAST_TEST_STORE:-}" ] || return 0
    hold "$K"
    "$HOLDFAST" run -w 600 "$K" -- touch ran 2>waiter.err 3>&- &
    waiter=$!
    STARTED+=("$waiter")
    lined_up "$K" 1
    truncate -s 0 "$BATS_TEST_TMPDIR/store"
    kill -KILL "$PID" "$(cat cmd.pid)" || true # which may have noticed already
    finished "$waiter"
    [ "$STATUS" = 65 ]
    [ ! -e ran ]
}
