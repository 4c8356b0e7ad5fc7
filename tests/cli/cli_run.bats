#!/usr/bin/env bats
# holdfast run: what the command gets, what it answers, which holders go together, waiting.

bats_require_minimum_version 1.5.0
load cli_common
setup() { cli_setup; }
teardown() { cli_teardown; }

# bats test_tags=stores
@test "the command runs, and its status is passed on" {
    run holdfast run "$K" -- sh -c 'echo out; echo err >&2; exit 3'
    [ "$status" = 3 ]
    [ "$output" = $'out\nerr' ]
    run holdfast run "$K" -- true
    [ "$status" = 0 ]
    [ -z "$output" ]
}

@test "a command that died of a signal gives 128 and its number" {
    run holdfast run "$K" -- sh -c 'kill -KILL $$'
    [ "$status" = 137 ]
    run holdfast run "$K" -- sh -c 'kill -TERM $$'
    [ "$status" = 143 ]
}

@test "a command that isn't there gives 127, one that can't be executed 126" {
    run -127 holdfast run "$K" -- no-such-command-here
    [ "$status" = 127 ]
    [ "${#lines[@]}" = 1 ]
    [[ $output == *no-such-command-here* ]]
    run holdfast run "$K" -- /
    [ "$status" = 126 ]
    [ "${#lines[@]}" = 1 ]
    free "$K"
}

@test "a script without an interpreter line runs, as from a shell" {
    echo 'echo script $1' >s
    chmod +x s
    run holdfast run "$K" -- ./s one
    [ "$output" = "script one" ]
}

@test "the command gets stdin, and its output may go anywhere" {
    result=$(echo hello | holdfast run "$K" -- cat)
    [ "$result" = hello ]
}

# bats test_tags=stores
@test "the environment names key, token, owner and store, replacing what was inherited" {
    export HOLDFAST_KEY=other HOLDFAST_TOKEN=1 HOLDFAST_OWNER=nobody
    run holdfast run "$K" -- sh -c 'echo "$HOLDFAST_KEY|$HOLDFAST_TOKEN|$HOLDFAST_OWNER"; env'
    [[ ${lines[0]} =~ ^"$K"\|[0-9]+\|[0-9a-f]{32}$ ]]
    [ "$(printf '%s\n' "${lines[@]}" | grep -c '^HOLDFAST_KEY=')" = 1 ]
    [[ $output == *"HOLDFAST_STORE=$HOLDFAST_STORE"* ]]
}

# bats test_tags=stores
@test "--owner: who holds; a hold of the same owner elsewhere is waited for like any other" {
    hold "$K" --owner 'execution 7'
    holdfast show "$K" --json | grep -F '"owner":"execution 7"'
    for how in run once; do
        run holdfast $how -n --owner 'execution 7' "$K" -- true
        [ "$status" = 75 ]
        [[ $output == *"'$K': busy, held by execution 7, "* ]]
    done
    run holdfast run -n --owner 'execution 8' "$K" -- true
    [ "$status" = 75 ]
    [[ $output == *'execution 7'* ]]
    run holdfast run --owner 'execution 7' "$K/2" -- sh -c 'echo "$HOLDFAST_OWNER"'
    [ "$output" = 'execution 7' ]
    run holdfast run --owner '' "$K" -- true
    [ "$status" = 64 ]
    [[ $output == *--owner* ]]
    run holdfast run --owner "$(printf '%0128d' 1)" "$K" -- true
    [ "$status" = 64 ]
}

@test "messages that nobody reads hold nothing up: the command starts, and is stopped in time" {
    mkfifo full
    exec 9<>full
    timeout 1 cat /dev/zero >full || true
    timeout 45 "$HOLDFAST" run -v "$K" -- touch ran 2>full 3>&-   # it ends without being read, too
    [ -e ran ]
    timeout 600 "$HOLDFAST" run -v "$K" -- sh -c 'trap "" TERM; echo $$ >cmd.pid
        while :; do sleep 0.1; done' 2>full 3>&- &
    STARTED+=("$!")
    await test -s cmd.pid
    holdfast break "$K" --token "$(token "$K")"
    finished "$!"
    [ "$STATUS" = 76 ]
    gone "$(cat cmd.pid)"
    exec 9>&-
}

# bats test_tags=stores
@test "HOLDFAST_STORE of the command is the one that -S named" {
    run env -u HOLDFAST_STORE "$HOLDFAST" run -S "$HOLDFAST_STORE" "$K" -- \
        sh -c 'echo "$HOLDFAST_STORE"'
    [ "$output" = "$HOLDFAST_STORE" ]
}

# bats test_tags=stores, differs
@test "tokens grow with every grant" {
    a=$(holdfast run "$K" -- sh -c 'echo $HOLDFAST_TOKEN')
    b=$(holdfast run "$K" -- sh -c 'echo $HOLDFAST_TOKEN')
    [ "$a" -gt 0 ]
    [ "$b" -gt "$a" ]
}

@test "as flock has it: KEY CMD, KEY -c 'shell command', and options of the command's own" {
    run holdfast run "$K" echo -n -w x
    [ "$output" = "-w x" ]
    run holdfast run "$K" -c 'echo "a  b"; exit 4'
    [ "$output" = "a  b" ]
    [ "$status" = 4 ]
    run holdfast run -n "$K" --command 'echo long'
    [ "$output" = long ]
    run holdfast run "$K" -c 'echo a' b
    [ "$status" = 64 ]
}

@test "options may stand before and after the key, if -- separates the command" {
    run holdfast run "$K" -w 1 -v -- echo yes
    [ "$status" = 0 ]
    [[ $output == *yes* ]]
    run holdfast run -- "$K" echo yes
    [ "$output" = yes ]
    run holdfast run -- "-$K" -- sh -c 'echo "$HOLDFAST_KEY"'
    [ "$output" = "-$K" ]
}

# bats test_tags=stores
@test "-n: 75 at once if somebody holds it, and who that is" {
    hold "$K"
    run holdfast run -n "$K" -- echo ran
    [ "$status" = 75 ]
    [[ $output != *ran* ]]
    [ "${#lines[@]}" = 1 ]
    [[ $output == *"$K"*"$(hostname)"*"pid $PID"* ]]
    run holdfast run --nonblock "$K" -- true
    [ "$status" = 75 ]
    run holdfast run -w 0 "$K" -- true
    [ "$status" = 75 ]
}

# bats test_tags=stores
@test "-E: another status than 75, and -q: no line" {
    hold "$K"
    run holdfast run -n -E 9 "$K" -- true
    [ "$status" = 9 ]
    run holdfast run -n -q --conflict-exit-code 0 "$K" -- true
    [ "$status" = 0 ]
    [ -z "$output" ]
}

# bats test_tags=stores
@test "-w: gives up after the time, which may be a fraction" {
    hold "$K"
    start=$(date +%s%N)
    run holdfast run -w 0.3 "$K" -- true
    took=$((($(date +%s%N) - start) / 1000000))
    [ "$status" = 75 ]
    [ "$took" -ge 300 ]
    gives_up() { holdfast run -q -w 0.3 -E 0 "$K" -- true; }
    within 3000 gives_up
    run holdfast run --wait 50ms "$K" -- true
    [ "$status" = 75 ]
    await waiters "$K" 0
}

# bats test_tags=stores
@test "without -w it waits, and runs when its turn comes" {
    hold "$K"
    "$HOLDFAST" run "$K" -- sh -c 'echo second' >second.out 3>&- &
    second=$!
    STARTED+=("$second")
    lined_up "$K" 1
    [ ! -s second.out ]
    kill "$PID"
    finished "$second"
    [ "$STATUS" = 0 ]
    [ "$(cat second.out)" = second ]
}

# bats test_tags=stores, differs
@test "waiters are served in order" {
    [ -n "$QUEUED" ] || return 0
    hold "$K"
    for i in 1 2 3 4; do
        "$HOLDFAST" run "$K" -- sh -c "echo $i >>order" 3>&- &
        STARTED+=($!)
        lined_up "$K" "$i"
    done
    kill "$PID"
    wait
    [ "$(tr -d '\n' <order)" = 1234 ]
}

# bats test_tags=stores, differs
@test "-s: readers together, a writer alone" {
    hold "$K" -s
    run holdfast run -s -n "$K" -- true
    [ "$status" = 0 ]
    run holdfast run -n "$K" -- true
    [ "$status" = 75 ]
    run holdfast run -n -x "$K" -- true
    [ "$status" = 75 ]
    run holdfast run -n -s -x "$K" -- true
    [ "$status" = 75 ]
    run holdfast run --shared --nonblock "$K" -- true
    [ "$status" = 0 ]
}

# bats test_tags=stores, differs
@test "--limit: so many at once" {
    hold "$K" --limit 2
    run holdfast run -n --limit 2 "$K" -- "$HOLDFAST" run -n --limit 2 "$K" -- true
    [ "$status" = 75 ]
    run holdfast run -n --limit 2 "$K" -- true
    [ "$status" = 0 ]
    run holdfast run -n --limit 1 "$K" -- true
    [ "$status" = 75 ]
}

# bats test_tags=stores
@test "several keys: all held together, named in the order given" {
    run holdfast run "$K-b" "$K-a" -- sh -c 'echo "$HOLDFAST_KEY|$HOLDFAST_TOKEN";
        for k in $HOLDFAST_KEY; do "$0" run -n -q "$k" -- true; echo $?; done' "$HOLDFAST"
    [ "$status" = 0 ]
    [[ ${lines[0]} =~ ^"$K-b $K-a"\|[0-9]+\ [0-9]+$ ]]
    [ "${lines[1]}" = 75 ]
    [ "${lines[2]}" = 75 ]
    free "$K-a"
    free "$K-b"
}

# bats test_tags=stores, differs
@test "several keys: all or nothing" {
    hold "$K-b"
    run holdfast run -n "$K-a" "$K-b" -- true
    [ "$status" = 75 ]
    free "$K-a"
    run holdfast run -w 0.2 "$K-a" "$K-b" -- true
    refused 75 "'$K-b': not obtained in time, held by " "(sh -c"
    free "$K-a"
    "$HOLDFAST" run "$K-b" "$K-a" -- echo both >both.out 3>&- &
    both=$!
    STARTED+=("$both")
    lined_up "$K-b" 1
    held "$K-a"
    kill "$PID"
    finished "$both"
    [ "$(cat both.out)" = both ]
}

# bats test_tags=stores
@test "a key twice is refused" {
    for how in -n "-w 5" ""; do
        # shellcheck disable=SC2086
        run timeout 600 "$HOLDFAST" run $how "$K" "$K" -- true
        [ "$status" = 64 ]
        [[ $output == *"$K"* ]]
    done
}

# bats test_tags=stores
@test "nested runs of different keys, and their environment" {
    run holdfast run "$K-1" -- "$HOLDFAST" run "$K-2" -- sh -c 'echo "$HOLDFAST_KEY"'
    [ "$output" = "$K-2" ]
}

# bats test_tags=stores
@test "a key that a run further out holds is refused, too" {
    run timeout 600 "$HOLDFAST" run "$K-1" -- "$HOLDFAST" run "$K-2" -- \
        "$HOLDFAST" run "$K-3" -- "$HOLDFAST" run "$K-1" -- true
    [ "$status" = 64 ]
    [[ $output == *"'$K-1'"*"wait for itself"* ]]
}

@test "waiting for the key that it runs under is refused instead of waiting for ever" {
    run timeout 600 "$HOLDFAST" run "$K" -- "$HOLDFAST" run "$K" -- true
    [ "$status" = 64 ]
    [[ $output == *"wait for itself"* ]]
    run holdfast run "$K" -- "$HOLDFAST" run -w 0.1 "$K" -- true
    [ "$status" = 75 ]
}

# bats test_tags=stores, differs
@test "several keys, one of them held by a run further out: refused, whatever holds the others" {
    hold "$K-a"
    run timeout 600 "$HOLDFAST" run "$K-b" -- "$HOLDFAST" run "$K-a" "$K-b" -- true
    [ "$status" = 64 ]
    [[ $output == *"'$K-b'"*"wait for itself"* ]]
}

# bats test_tags=stores, differs
@test "a key that a run further out shares is shared with it, and waited for if others fill it" {
    run holdfast run -s "$K" -- "$HOLDFAST" run -s "$K" -- echo shared
    [ "$output" = shared ]
    run timeout 600 "$HOLDFAST" run -s "$K" -- "$HOLDFAST" run "$K" -- true
    [ "$status" = 64 ]
    run holdfast run --limit 2 "$K" -- "$HOLDFAST" run --limit 2 "$K" -- echo limited
    [ "$output" = limited ]
    run timeout 600 "$HOLDFAST" run --limit 2 "$K" -- "$HOLDFAST" run --limit 2 "$K" -- \
        "$HOLDFAST" run --limit 3 "$K" -- true
    [ "$status" = 64 ]
    hold "$K" --limit 2
    "$HOLDFAST" run --limit 2 "$K" -- sh -c 'touch began
        exec "$0" run --limit 2 "$1" -- echo its turn' "$HOLDFAST" "$K" >outer.out 2>&1 3>&- &
    outer=$!
    STARTED+=("$outer")
    await test -e began
    lined_up "$K" 1
    kill "$PID"
    finished "$outer"
    [ "$(cat outer.out)" = "its turn" ]
}

# An attempt without a limit ends with the store's answer; an error of it doesn't end the wait.
@test "a key that a run further out shares: a store that is slow or away is waited for" {
    export HOLDFAST_STORE=sqlite:$PWD/own.db HOLDFAST_DRIVERS=$BUILD
    inner=$(HOLDFAST_FAULT=any the_command)
    for fault in unavailable before after delay=4000; do
        run holdfast run -s "$K" -- env "HOLDFAST_FAULT=acquire:1:$fault" \
            "$inner" run -s "$K" -- echo shared
        [ "$output" = shared ]
    done
}

@test "somebody else with the token of the run further out is waited for" {
    hold "$K"
    HOLDFAST_TOKEN=$(token "$K") HOLDFAST_OWNER=another "$HOLDFAST" run "$K" -- touch ran 3>&- &
    waiter=$!
    STARTED+=("$waiter")
    await sh -c '[ ! -d /proc/$0/fd ] || "$1" show --json "$2" | grep -q "\"token\":null"' \
        "$waiter" "$HOLDFAST" "$K"
    kill "$PID"
    finished "$waiter"
    [ "$STATUS" = 0 ]
}

@test "-v: how long it took, and what runs" {
    run holdfast run -v "$K" -- true
    [[ ${lines[0]} == "holdfast: the store is "*" (HOLDFAST_STORE)" ]]
    [[ ${lines[1]} =~ ^holdfast:\ getting\ lock\ took\ [0-9]+\.[0-9]+\ seconds$ ]]
    [ "${lines[2]}" = "holdfast: executing true" ]
    hold "$K"
    run holdfast run -v -n "$K" -- true
    [[ $output == *"failed to get lock"* ]]
}

# bats test_tags=stores, differs
@test "--lease: a hold by time is renewed while the command runs" {
    background run --lease "$(lease_ms 4000)ms" "$K" -- sh -c 'until [ -e go ]; do sleep 0.05; done'
    await held "$K"
    token1=$(token "$K")
    sleep $(($(lease_ms 4000) + 1000))e-3
    [ "$(token "$K")" = "$token1" ]
    touch go
    finished
    [ "$STATUS" = 0 ]
    free "$K"
}

# bats test_tags=stores, differs
@test "--at-least: the key stays taken" {
    run holdfast run --at-least 600s "$K-2" -- true
    [ "$status" = 0 ]
    run holdfast run -n "$K-2" -- true
    [ "$status" = 75 ]
    run holdfast run --at-least 1s "$K" -- true
    [ "$status" = 0 ]
    run holdfast run -w 600 "$K" -- true
    [ "$status" = 0 ]
}

@test "--at-least: what was got while others weren't is given back" {
    hold "$K-b"
    run holdfast run -w 0.2 --at-least 600s "$K-a" "$K-b" -- true
    [ "$status" = 75 ]
    free "$K-a"
}

@test "--at-least: what the command leaves in the background goes on holding (file:)" {
    case $HOLDFAST_STORE in file:*) ;; *) return 0 ;; esac
    run holdfast run --at-least 100ms "$K" -- \
        sh -c 'sleep 1200 >/dev/null 2>&1 3>&- & echo $! >left.pid; sleep 0.2'
    [ "$status" = 0 ]
    held "$K"
    kill "$(cat left.pid)"
    await free "$K"
    run holdfast run --at-least 500ms "$K" -- \
        sh -c 'sleep 1200 >/dev/null 2>&1 3>&- & echo $! >left.pid; exit 4'
    [ "$status" = 4 ]
    sleep 0.6
    held "$K"
}

# How often its main thread has gone to sleep.
naps() { sed -n 's/^voluntary_ctxt_switches:\t//p' "/proc/$PID/status"; }

# For a second, at least once in eight: it may have just begun.
sleeps_on() {
    local before
    for _ in 1 2 3 4 5 6 7 8; do
        before=$(naps)
        sleep 1
        [ "$(naps)" != "$before" ] || return 0
    done
    return 1
}

@test "--at-least: it sleeps until those that the command left end, or a signal comes (file:)" {
    case $HOLDFAST_STORE in file:*) ;; *) return 0 ;; esac
    for how in left signal; do
        background run --at-least 1200s "$K-$how" -- \
            sh -c 'sleep 1200 >/dev/null 2>&1 3>&- & echo $! >left.tmp; mv left.tmp left.pid'
        await test -s left.pid
        sleeps_on
        if [ $how = left ]; then kill "$(cat left.pid)"; else kill "$PID"; fi
        finished
        if [ $how = left ]; then [ "$STATUS" = 0 ]; else [ "$STATUS" = 143 ]; fi
        held "$K-$how"
        [ $how = signal ] || rm left.pid
    done
}

# bats test_tags=stores
@test "--max-hold: stops a command that hangs, with 76" {
    run timeout 600 "$HOLDFAST" run --max-hold 300ms "$K" -- sleep 1200
    [ "$status" = 76 ]
    [[ $output == *max-hold* ]]
    free "$K"
    run holdfast run --max-hold 10s "$K" -- true
    [ "$status" = 0 ]
}

# bats test_tags=stores
@test "--max-hold: the time counts from the grant, also while others are waited for" {
    holdfast acquire "$K-b" --lease 500ms >/dev/null
    run timeout 600 "$HOLDFAST" run --max-hold 1s "$K-a" "$K-b" -- sleep 1200
    [ "$status" = 76 ]
    [[ $output == *max?hold* ]]
    holdfast acquire "$K-b" --lease 2s >/dev/null
    run timeout 600 "$HOLDFAST" run --max-hold 100ms "$K-a" "$K-b" -- touch started
    [ "$status" = 76 ]
    [[ $output == *"$K-a"*max-hold* ]]
    [ ! -e started ]
}

# bats test_tags=stores, differs
@test "--max-hold: the key is held until the command has ended, however long that takes" {
    background run --lease "$(lease_ms 2000)ms" --max-hold 500ms "$K" -- sh -c '
        trap "touch stopping; sleep 4; touch ended; exit 0" TERM
        touch began; while :; do sleep 0.1; done'
    await test -e began
    run holdfast run "$K" -- test -e stopping -a -e ended
    [ "$status" = 0 ]
    finished
    [ "$STATUS" = 76 ]
    [[ $(<bg.err) == *max-hold* ]]
}

# bats test_tags=stores, differs
@test "--max-hold: a wait for further keys ends with it, and gives the first ones back" {
    holdfast acquire "$K-b" --lease 100s >/dev/null
    run timeout 600 "$HOLDFAST" run --max-hold 300ms "$K-a" "$K-b" -- touch started
    [ "$status" = 76 ]
    [[ $output == *"$K-a"*max-hold* ]]
    [ ! -e started ]
    free "$K-a"
}

@test "--max-hold and --on-lost ignore contradict each other" {
    for command in run once; do
        run holdfast "$command" --max-hold 1s --on-lost ignore "$K" -- touch started
        [ "$status" = 64 ]
        [[ $output == *"--max-hold"*"--on-lost ignore"* ]]
        [ ! -e started ]
    done
}

# bats test_tags=stores, differs
@test "the note tells what runs where, and for whom" {
    hold "$K"
    run holdfast show --json "$K"
    [[ $output == *"\"host\":\"$(hostname)\""* ]]
    [[ $output == *"\"pid\":$PID"* ]]
    [[ $output == *'"command":"sh -c echo $$ >cmd.tmp; mv cmd.tmp cmd.pid; exec sleep 1200"'* ]]
}

@test "the note doesn't tell the passwords of URLs on a command line" {
    export HOLDFAST
    holdfast run "$K" -- sh -c '"$HOLDFAST" show --json "$0"' \
        "$K" postgres://anna:s3cr3t-1@host/x 'redis://h/?password=s3cr3t-2&db=1' \
        'mongodb://h/?tls=1&tlsCertificateKeyFilePassword=s3cr3t-4' >out
    holdfast run "$K" -- sh -c '"$HOLDFAST" show --json "$0"' "$K" 'x://h/?auth=s3cr3t-5' >>out
    sh -c '"$1" acquire "$2" --lease 100s; : "$3"' sh "$HOLDFAST" "$K" mongodb://a:s3cr3t-3@h/ >got
    holdfast show --json "$K" >>out
    grep -q 'anna:\*\*\*' out
    grep -q 'tls=1&tlsCertificateKeyFilePassword=\*\*\*' out
    grep -q 'auth=\*\*\*' out
    run grep s3cr3t out
    [ "$status" = 1 ]
}

# bats test_tags=stores
@test "-S before and after the subcommand, attached or not, by its long name, from a file" {
    unset HOLDFAST_STORE
    other=${HOLDFAST_TEST_STORE:-file:$BATS_TEST_TMPDIR/other}
    echo "$other" >url
    for option in "-S $other" "-S$other" "--store $other" "--store=$other" "-S @url"; do
        # shellcheck disable=SC2086
        run holdfast $option run "$K" -- sh -c 'echo $HOLDFAST_STORE'
        [ "$output" = "$other" ]
        # shellcheck disable=SC2086
        run holdfast run $option "$K" -- sh -c 'echo $HOLDFAST_STORE'
        [ "$output" = "$other" ]
    done
    result=$(echo "$other" | holdfast -S @- run "$K" -- sh -c 'echo $HOLDFAST_STORE')
    [ "$result" = "$other" ]
}
