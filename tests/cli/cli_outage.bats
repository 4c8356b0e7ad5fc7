#!/usr/bin/env bats
# The command while its server is away, mute, or comes back. Run by tests/servers/NAME: for what the
# library does then see outage.c.

bats_require_minimum_version 1.5.0
load cli_common
setup() {
    cli_setup
    : "${HOLDFAST_TEST_CONTROL:?is not set: run by one of tests/servers}"
    CAN=" $("$HOLDFAST_TEST_CONTROL" can) "
    AWAY=
}
teardown() {
    cli_teardown
    case $AWAY in
    kill) server start ;;
    pause) server resume ;;
    esac
}

server() {
    AWAY=$1
    "$HOLDFAST_TEST_CONTROL" "$1" 3>&-
}
server_can() { [[ $CAN == *" $1 "* ]]; }

# Runs it; it has to fail with 69 and one line, after between $1 and $2 ms; on a machine that stands
# still now and then not each time.
unreachable() {
    local least=$1 most=$2 start took
    shift 2
    for _ in 1 2 3 4 5 6 7 8; do
        start=$(date +%s%N)
        run --separate-stderr timeout 600 "$HOLDFAST" "$@"
        took=$((($(date +%s%N) - start) / 1000000))
        # shellcheck disable=SC2154 # bats sets it
        echo "$* took $took ms: $status, $stderr"
        [ "$status" = 69 ]
        # shellcheck disable=SC2154 # bats sets it
        [ "${#stderr_lines[@]}" = 1 ]
        [ "$took" -ge "$least" ]
        [ "$took" -ge "$most" ] || return 0
    done
    return 1
}

@test "a server that is gone: 69, at once with -n, within the limit with -w" {
    server_can kill || return 0
    holdfast run "$K" -- true
    server kill
    unreachable 0 4000 run -n "$K" -- touch ran
    unreachable 0 9000 run -w 1 "$K" -- touch ran
    unreachable 0 4000 once -n "$K" -- touch ran
    unreachable 0 4000 acquire -n --lease 30 "$K"
    unreachable 0 9000 show "$K"
    unreachable 0 9000 ls
    unreachable 0 9000 release "$K" --token 1
    [ ! -e ran ]
    server start
    run holdfast run -n "$K" -- true
    [ "$status" = 0 ]
}

@test "a server that accepts and stays mute: 69, within the limit" {
    server_can pause || return 0
    holdfast run "$K" -- true
    server pause
    unreachable 0 12000 run -n "$K" -- touch ran
    unreachable 0 12000 run -w 1 "$K" -- touch ran
    [ ! -e ran ]
    server resume
    run holdfast run -w 600 "$K" -- true
    [ "$status" = 0 ]
}

@test "a short outage is nobody's business: the command runs on, who waits gets its turn" {
    server_can kill && ! server_can forgets || return 0
    background run -v --lease 20s "$K" -- sh -c 'echo $$ >cmd.pid
        until [ -e go ]; do sleep 0.05; done; echo first >>order'
    await test -s cmd.pid
    first=$PID
    background run "$K" -- sh -c 'echo second >>order'
    lined_up "$K" 1
    server kill
    server start
    held "$K"
    touch go
    finished "$first"
    [ "$STATUS" = 0 ]
    finished
    [ "$STATUS" = 0 ]
    [ "$(cat order)" = $'first\nsecond' ]
}

@test "an outage that is longer than the lease: the command is stopped, 76; the next one runs" {
    server_can kill || return 0
    hold "$K" --lease "$(lease_ms 4000)ms"
    first=$(token "$K")
    server kill
    finished
    [ "$STATUS" = 76 ]
    gone "$(cat cmd.pid)"
    server start
    run holdfast run -w 600 "$K" -- sh -c 'echo $HOLDFAST_TOKEN'
    [ "$status" = 0 ]
    [ "$output" -gt "$first" ]
}

@test "a server that is mute from a handover on: the release waits, although no claim is stored" {
    server_can pause || return 0
    background run "$K" -- sh -c 'echo $$ >cmd.pid; until [ -e go ]; do sleep 0.05; done'
    await test -s cmd.pid
    background run "$K" -- sh -c '"$HOLDFAST_TEST_CONTROL" pause 3>&-; echo $$ >paused'
    lined_up "$K" 1
    AWAY=pause
    touch go
    await test -s paused
    sleep 2 # longer than a claim timeout; then the command is still there
    kill -0 "$PID"
    server resume
    finished
    cat bg.err
    [ "$STATUS" = 0 ]
    run ! grep -q 'may stay held' bg.err
}

# In WAITED: for how many ms the wrapper and this shell have waited for a processor so far; fails
# when the wrapper has ended.
waited() {
    local ns shell_ns
    read -r _ ns _ 2>bg.stat <"/proc/$PID/schedstat" || return 1
    read -r _ shell_ns _ <"/proc/$BASHPID/schedstat"
    WAITED=$(((ns + shell_ns) / 1000000))
}
# Awaits the end of what runs, and wakes the server: how many ms that end took is in TOOK, without
# those in which a busy machine gave no processor.
end_is_timed() {
    local since before
    since=$(date +%s%N)
    WAITED=0
    waited || true
    before=$WAITED
    while ! gone "$PID"; do
        waited || true
        sleep 0.01
    done 2>bg.gone
    TOOK=$((($(date +%s%N) - since) / 1000000 - WAITED + before))
    finished
    [ "$AWAY" != pause ] || server resume
    AWAY=
}
# One of five times it takes less: what this shell starts to look may get no processor, either.
in_time() { # MS COMMAND
    for _ in 1 2 3 4 5; do
        "$2"
        echo "it took $TOOK ms"
        [ "$TOOK" -ge "$1" ] || return 0
    done
    return 1
}

# At a server that turns mute: how many ms the wrapper outlives its command is in TOOK.
outlives() {
    rm -f cmd.pid
    hold "$K" --lease "$(lease_ms 2000)ms"
    server pause
    await gone "$(cat cmd.pid)"
    end_is_timed
    [ "$STATUS" = 76 ]
    holdfast run -w 600 "$K" -- true
}

@test "a lock that is lost at a mute server: holdfast ends soon after its command" {
    server_can pause || return 0
    in_time 1000 outlives
}

# With HOLDFAST_TEST_NAMES (tests/fakes/names.c) the server is known by its name. libcurl, which
# firestore and s3 use, looks up no "localhost"; without TLS s3 takes no other name, so nothing is
# looked up there.
by_name() {
    local name=localhost
    [ -n "${HOLDFAST_TEST_NAMES:-}" ] || return 1
    holdfast run "$K" -- true
    if [[ $HOLDFAST_STORE == firestore:* ]]; then
        name=store.test
    elif [[ $HOLDFAST_STORE != *127.0.0.1* ]]; then
        HOLDFAST_STORE=${HOLDFAST_TEST_TLS:-$HOLDFAST_STORE}
    fi
    export HOLDFAST_STORE=${HOLDFAST_STORE/127.0.0.1/$name} LD_PRELOAD=$HOLDFAST_TEST_NAMES
    export FIRESTORE_EMULATOR_HOST=${FIRESTORE_EMULATOR_HOST/127.0.0.1/$name}
}
server_by_name() { LD_PRELOAD='' server "$1"; }

# Its server is gone, and nobody answers where it might be: how many ms the wrapper outlives its
# command is in TOOK.
outlives_without_names() {
    hold "$K" --lease "$(lease_ms 2000)ms"
    touch mute
    server_by_name kill
    await gone "$(cat cmd.pid)"
    end_is_timed
    [ "$STATUS" = 76 ]
    unreachable 0 4000 run -n "$K" -- touch ran
    [[ $HOLDFAST_STORE == s3:* ]] || rm asked # a look-up was made
    rm mute cmd.pid
    server_by_name start
    holdfast run -w 600 "$K" -- true
}

@test "a lock that is lost at mute name servers: holdfast ends soon after its command; -n ends" {
    by_name || return 0
    in_time 1000 outlives_without_names
    [ ! -e ran ]
}

# The same of a command that goes on without its lock.
outlives_ignoring() {
    rm -f go
    background run --on-lost ignore --lease "$(lease_ms 2000)ms" "$K" -- sh -c '
        until [ -e go ]; do sleep 0.05; done; : >gone; exit 3'
    await held "$K"
    server pause
    await grep -q "the lock on '$K' is lost" bg.err
    rm -f gone
    touch go
    await test -e gone
    end_is_timed
    [ "$STATUS" = 3 ]
    holdfast run -w 600 "$K" -- true
}

@test "a lock that is lost at a mute server, --on-lost ignore: holdfast ends soon, too" {
    server_can pause || return 0
    in_time 1000 outlives_ignoring
}

@test "a server that is mute when the command ends: holdfast ends, and says what may stay held" {
    server_can pause || return 0
    background run --lease 60s "$K" -- sh -c 'echo $$ >cmd.pid
        until [ -e go ]; do sleep 0.05; done; exit 3'
    await test -s cmd.pid
    server pause
    touch go
    finished
    server resume
    AWAY=
    [ "$STATUS" = 3 ]
    [ "$(wc -l <bg.err)" = 1 ]
    grep -q "release '$K': .*; the lock may stay held until its lease ends" bg.err
    holdfast break "$K" --token "$(token "$K")" || free "$K" # it may have come through after all
}

# A wait at a server that is away ($1: kill or pause) is ended by a signal.
wait_is_ended() {
    local key="$K-$1"
    eval "$(holdfast acquire "$key" --lease 600s)"
    background run "$key" -- touch ran
    lined_up "$key" 1
    server "$1"
    kill -TERM "$PID"
    finished
    case $1 in
    kill) server start ;;
    pause) server resume ;;
    esac
    AWAY=
    cat bg.err
    [ "$STATUS" = 143 ]
    # A waiter that doesn't stand in line leaves nothing that could be granted.
    if [ -n "$QUEUED" ]; then
        [ "$(wc -l <bg.err)" = 1 ]
        grep -q "acquire '$key': given up, but the store .* expires by itself" bg.err
    fi
    [ ! -e ran ]
    holdfast break "$key" --token "$(token "$key")"
}

@test "a signal ends a wait while the server is away: what it may grant is told" {
    for way in kill pause; do
        [ $way = pause ] || ! server_can forgets || continue
        ! server_can $way || wait_is_ended $way
    done
}

watch_is_ended() {
    background watch "$K"
    until grep -q "$K" bg.out; do holdfast run "$K" -- true; done
    server pause
    sleep 1 # it looks again
    kill -TERM "$PID"
    end_is_timed
    [ "$STATUS" = 143 ]
}

@test "a signal ends a watch whose server is mute, soon" {
    server_can pause || return 0
    in_time 1500 watch_is_ended
}

# A command that ends while its server is mute: how many ms the wrapper outlives it is in TOOK.
gives_back_in_vain() {
    rm -f go gone cmd.pid
    background run --lease "$(lease_ms 2000)ms" "$K" -- sh -c 'echo $$ >cmd.pid
        until [ -e go ]; do sleep 0.05; done; : >gone; exit 3'
    await test -s cmd.pid
    server pause
    touch go
    await test -e gone
    end_is_timed
    holdfast run -w 600 "$K" -- true
}

@test "a server that is mute when the command ends: no longer than the lease lasts" {
    server_can pause || return 0
    in_time $((2500 + $(lease_ms 2000))) gives_back_in_vain
}

@test "a server that is mute for longer than the lease: the command is stopped in time" {
    server_can pause || return 0
    hold "$K" --lease "$(lease_ms 4000)ms"
    start=$(date +%s%N)
    server pause
    await gone "$(cat cmd.pid)"
    took=$((($(date +%s%N) - start) / 1000000))
    [ "$took" -lt 25000 ]
    server resume
    finished
    [ "$STATUS" = 76 ]
    run holdfast run -w 600 "$K" -- true
    [ "$status" = 0 ]
}

@test "a table that somebody else makes at the same moment" {
    server_can remake || return 0
    holdfast run "$K" -- true
    env --default-signal "$HOLDFAST" watch "$K" >seen 2>watch.err 3>&- &
    watcher=$!
    STARTED+=("$watcher")
    hold "$K"
    await grep -q "$K: held" seen
    "$HOLDFAST_TEST_CONTROL" remake 3>&-
    await grep -q "$K: free" seen
    kill "$watcher"
    finished "$watcher"
    [ "$STATUS" = 143 ]
}

@test "a table that is dropped while it is watched: reading goes on, and makes none" {
    server_can drop || return 0
    holdfast acquire "$K" --lease 600 >acquired
    env --default-signal "$HOLDFAST" watch "$K" >seen 2>watch.err 3>&- &
    watcher=$!
    STARTED+=("$watcher")
    await grep -q "$K: held" seen
    "$HOLDFAST_TEST_CONTROL" drop 3>&-
    await grep -q "$K: free" seen
    run --separate-stderr holdfast ls
    # shellcheck disable=SC2154  # of run --separate-stderr
    echo "$output $stderr $(cat watch.err)"
    case $HOLDFAST_STORE in
    redis:* | etcd:*) [ "$status" = 0 ] && [ -z "$output" ] ;; # without a table of their own
    *) [ "$status" = 69 ] && [[ $stderr == *"no store at"* ]] ;;
    esac
    holdfast acquire "$K" --lease 600 >acquired
    await eval '[ "$(grep -c "$K: held" seen)" -ge 2 ]'
    kill "$watcher"
    finished "$watcher"
    [ "$STATUS" = 143 ]
}

@test "rows that are gone: the command is stopped, 76; tokens grow" {
    for how in wipe drop; do
        server_can $how || continue
        hold "$K" --lease "$(lease_ms 4000)ms"
        first=$(token "$K")
        "$HOLDFAST_TEST_CONTROL" $how
        finished
        [ "$STATUS" = 76 ]
        gone "$(cat cmd.pid)"
        rm cmd.pid
        run holdfast run -n "$K" -- sh -c 'echo $HOLDFAST_TOKEN'
        [ "$output" -gt "$first" ]
    done
}
