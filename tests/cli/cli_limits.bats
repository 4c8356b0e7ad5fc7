#!/usr/bin/env bats
# The time limit of a wait, and the watch, while the server is away or mute. Run by
# tests/servers/NAME, with cli_outage.bats.

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
    back
}

server() {
    AWAY=$1
    "$HOLDFAST_TEST_CONTROL" "$1" 3>&-
}
server_can() { [[ $CAN == *" $1 "* ]]; }
back() {
    case $AWAY in
    kill) server start ;;
    pause) server resume ;;
    esac
    AWAY=
}

# The command in the background has met the store that is away; or has opened it, where opening
# makes no request.
tried() {
    await eval "met || gone $PID"
    met
}
met() { grep -q 'is tried again\|the store is ' bg.err; }

# In MS: how long the command in the background, with the status $1, runs on from now.
ends_with() {
    local since
    since=$(date +%s%N)
    finished
    MS=$((($(date +%s%N) - since) / 1000000))
    echo "status $STATUS after $MS ms: $(cat bg.err)"
    [ "$STATUS" = "$1" ]
}

# A function that sets MS has to set less than $1 at least once.
soon() {
    local most=$1
    shift
    for _ in 1 2 3 4 5; do
        "$@" || return 1
        [ "$MS" -ge "$most" ] || return 0
    done
    return 1
}

@test "a server that comes back within the limit: the command runs" {
    server_can kill || return 0
    holdfast run "$K" -- true
    server kill
    background run -v -w 600 "$K" -- touch ran
    tried
    server start
    AWAY=
    finished
    cat bg.err
    [ "$STATUS" = 0 ]
    [ -e ran ]
}

@test "a server that comes back within the limit: once and acquire get what they want" {
    server_can kill || return 0
    holdfast run "$K" -- true
    server kill
    background once -v -w 600 "$K-event" -- touch ran
    tried
    server start
    finished
    cat bg.err
    [ "$STATUS" = 0 ]
    [ -e ran ]
    server kill
    rm bg.err # which the next one makes anew, a moment later
    background acquire -v -w 600 "$K" --lease 600
    tried
    server start
    AWAY=
    finished
    cat bg.err
    [ "$STATUS" = 0 ]
    grep -q '^HOLDFAST_TOKEN=' bg.out
}

mute_from_the_start() {
    background run -w 3 "$K" -- touch ran
    ends_with 69
}

@test "a server that is mute from the start: -w ends the command a second later at most" {
    server_can pause || return 0
    holdfast run "$K" -- true
    server pause
    soon 4900 mute_from_the_start
    [ ! -e ran ]
}

mute_in_line() {
    holdfast acquire "$K" --lease 60 >acquired
    background run -w 4 "$K" -- touch ran
    lined_up "$K" 1
    server pause
    ends_with 69
    [ "$(wc -l <bg.err)" = 1 ]
    back
    await holdfast break "$K" --token "$(token "$K")"
}

@test "a server that turns mute: -w ends who waits in line a second later at most; 69, not 75" {
    server_can pause || return 0
    soon 5100 mute_in_line
    [ ! -e ran ]
    await free "$K"
}

mute_term() {
    holdfast acquire "$K" --lease 60 >acquired
    background run "$K" -- touch ran
    lined_up "$K" 1
    server pause
    kill "$PID"
    ends_with 143
    back
    await holdfast break "$K" --token "$(token "$K")"
}

@test "a server that turns mute: TERM ends who waits in line within about a second" {
    server_can pause || return 0
    soon 2500 mute_term
    [ ! -e ran ]
}

@test "a watch outlives an outage, which it tells once, as it tells the end of it" {
    server_can kill || return 0
    holdfast acquire "$K" --lease 600 >acquired
    background watch "$K"
    await grep -q "$K: held" bg.out
    server kill
    await eval 'grep -q "doesn.t answer since" bg.err || gone "$PID"'
    grep -q "doesn't answer since" bg.err
    server start
    AWAY=
    await grep -q 'answers again' bg.err
    holdfast acquire "$K-2" --lease 600 >acquired
    await grep -q "$K-2: held" bg.out
    kill -INT "$PID"
    finished
    cat bg.out bg.err
    [ "$STATUS" = 130 ]
    [ "$(wc -l <bg.err)" = 2 ]
}
