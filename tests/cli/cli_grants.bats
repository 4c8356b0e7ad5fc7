#!/usr/bin/env bats
# holdfast acquire, renew, release, break: grants by token, for scripts and operators.

# bats file_tags=stores
bats_require_minimum_version 1.5.0
load cli_common
setup() { cli_setup; }
teardown() { cli_teardown; }

# bats test_tags=differs
@test "acquire prints what a shell can eval; the grant outlives the process" {
    eval "$(holdfast acquire "$K" --lease 100s)"
    [ "$HOLDFAST_KEY" = "$K" ]
    [ "$HOLDFAST_TOKEN" = "$(token "$K")" ]
    [ -n "$HOLDFAST_OWNER" ]
    run holdfast run -n "$K" -- true
    [ "$status" = 75 ]
    run holdfast release "$K" --token "$HOLDFAST_TOKEN"
    [ "$status" = 0 ]
    free "$K"
}

# Evaluates what "$@" prints, in each shell, with and without `set -e`: the script must not go on,
# must end with the status, and must have no grant of somebody else.
refused_by_eval() {
    local want=$1 shell options got
    shift
    for shell in dash bash zsh; do
        for options in -c -ec -euc; do
            rm -f went-on
            got=0
            HOLDFAST_TOKEN=1 HOLDFAST_KEY=x HOLDFAST_OWNER=y "$shell" $options \
                'eval "$("$@")" || { got=$?
                     [ -z "${HOLDFAST_KEY-}${HOLDFAST_TOKEN-}${HOLDFAST_OWNER-}" ] || exit 1
                     exit $got; }
                 touch went-on' "$shell" "$@" || got=$?
            [ "$got" = "$want" ] || return 1
            got=0
            HOLDFAST_TOKEN=1 "$shell" "${options/c/}ec" 'eval "$("$@")"; touch went-on' \
                "$shell" "$@" || got=$?
            [ "$got" = "$want" ] || return 1
            [ ! -e went-on ] || return 1
        done
    done
}

@test "what acquire prints if it gets nothing fails where it is evaluated, and clears the grant" {
    hold "$K"
    refused_by_eval 75 "$HOLDFAST" acquire -n "$K" --lease 5
    refused_by_eval 75 "$HOLDFAST" acquire -q -w 0.01 "$K" --lease 5
    refused_by_eval 9 "$HOLDFAST" acquire -n -E 9 "$K" --lease 5
    refused_by_eval 75 "$HOLDFAST" acquire -n -E 0 "$K" --lease 5
    refused_by_eval 64 "$HOLDFAST" acquire "$K"
    refused_by_eval 64 "$HOLDFAST" acquire --nonsense "$K"
    refused_by_eval 64 "$HOLDFAST" --nonsense acquire "$K" --lease 5
    refused_by_eval 64 "$HOLDFAST" -S nonsense: acquire "$K" --lease 5
}

@test "a slip before the word acquire fails where it is evaluated, too" {
    refused_by_eval 64 "$HOLDFAST" -S acquire "$K" --lease 30
    refused_by_eval 64 "$HOLDFAST" --store acquire "$K" --lease 30
    refused_by_eval 64 "$HOLDFAST" -S acquire
    refused_by_eval 64 "$HOLDFAST"
    refused_by_eval 64 "$HOLDFAST" -S mem:
    refused_by_eval 64 "$HOLDFAST" ACQUIRE "$K" --lease 30
    refused_by_eval 64 "$HOLDFAST" Aquire "$K" --lease 30
    refused_by_eval 64 "$HOLDFAST" help acquire more
    refused_by_eval 64 "$HOLDFAST" -S acquire run --lease 30
    refused_by_eval 64 "$HOLDFAST" -S "" acquire "$K" --lease 30
    refused_by_eval 64 "$HOLDFAST" "$K" acquire --lease 30
    refused_by_eval 64 "$HOLDFAST" --wait 5 acquire "$K" --lease 30
    refused_by_eval 64 "$HOLDFAST" "acquire $K" --lease 30
    for word in aquire acqure acquier Acquire accquire; do
        refused_by_eval 64 "$HOLDFAST" "$word" "$K" --lease 30
    done
}

@test "help and the version, asked for where a grant is meant, fail where they are evaluated" {
    for word in --help -h --version -V; do
        refused_by_eval 64 "$HOLDFAST" acquire "$word"
        refused_by_eval 64 "$HOLDFAST" acquire "$K" --lease 5 "$word"
        refused_by_eval 64 "$HOLDFAST" "$word" acquire "$K" --lease 5
    done
}

@test "acquire that a signal ends while it waits fails where it is evaluated" {
    # A waiter that doesn't stand in line can't be seen to wait.
    [ -n "$QUEUED" ] || return 0
    hold "$K"
    # By a signal that it waits for, and by one that it has a handler for.
    cat >killed <<'END'
#!/bin/sh
# SIGNAL KEY: acquire gets the signal while it waits for the key.
"$HOLDFAST" acquire "$2" --lease 5 &
until "$HOLDFAST" show --json "$2" | grep -qF '"waiters":[{'; do sleep 0.02; done
kill -"$1" $!
wait $!
END
    chmod +x killed
    refused_by_eval 143 ./killed TERM "$K"
    refused_by_eval 138 ./killed USR1 "$K"
}

@test "acquire --json that gets nothing prints a document that says so" {
    hold "$K"
    run --separate-stderr holdfast acquire -n --json "$K" --lease 5
    [ "$status" = 75 ]
    [ "${#lines[@]}" = 1 ]
    [[ $output == '{"held":false,"status":75,"error":"'*"'$K': busy, held by "*'"}' ]]
    run --separate-stderr holdfast acquire --json --nonsense "$K"
    [ "$status" = 64 ]
    [[ $output == '{"held":false,"status":64,"error":"'*nonsense*'"}' ]]
}

@test "a key that a shell would take for something else" {
    key="$K"' it'\''s $(touch ran) "; `touch ran`'
    eval "$(holdfast acquire "$key" --lease 100s)"
    [ "$HOLDFAST_KEY" = "$key" ]
    [ ! -e ran ]
    holdfast release "$key" --token "$HOLDFAST_TOKEN"
}

@test "acquire needs --lease" {
    run holdfast acquire "$K"
    [ "$status" = 64 ]
    [[ $output == *--lease* ]]
}

# bats test_tags=differs
@test "the lease ends by itself" {
    eval "$(holdfast acquire "$K" --lease "$(lease_ms 2000)ms")"
    run holdfast run -w 600 "$K" -- true
    [ "$status" = 0 ]
}

# bats test_tags=differs
@test "renew extends it; an expired grant can't be renewed even if nobody took it" {
    eval "$(holdfast acquire "$K" --lease 60s)"
    run holdfast renew "$K" --token "$HOLDFAST_TOKEN" --lease 590s
    [ "$status" = 0 ]
    run holdfast show --json "$K"
    [[ $output =~ \"left_ms\":[1-5][0-9]{5}, ]]
    run holdfast renew "$K" --token "$HOLDFAST_TOKEN" --lease 60s --json
    [ "$status" = 0 ]
    [[ $output == "{\"key\":\"$K\",\"held\":true,\"token\":$HOLDFAST_TOKEN,"* ]]
    # For less than is left it isn't renewed: its holder may believe in that.
    [[ $output =~ \"left_ms\":[1-5][0-9]{5}[,}] ]]
    holdfast release "$K" --token "$HOLDFAST_TOKEN"
    eval "$(holdfast acquire "$K" --lease "$(lease_ms 3000)ms")"
    await free "$K"
    run holdfast renew "$K" --token "$HOLDFAST_TOKEN"
    [ "$status" = 76 ]
    [ "${#lines[@]}" = 1 ]
    [[ $output == *"$K"* ]]
}

@test "renew without --lease: for as long again" {
    eval "$(holdfast acquire "$K" --lease 100s)"
    left() { holdfast show --json "$K" | sed 's/.*"left_ms":\([0-9]*\).*/\1/'; }
    await eval '[ "$(left)" -lt 95000 ]'
    before=$(left)
    run holdfast renew "$K" --token "$HOLDFAST_TOKEN" --json
    [[ $output =~ \"left_ms\":([0-9]+)\} ]]
    [ "${BASH_REMATCH[1]}" -gt "$before" ]
    [ "${BASH_REMATCH[1]}" -le 100000 ]
}

# bats test_tags=differs
@test "another token is refused with 76, and changes nothing" {
    eval "$(holdfast acquire "$K" --lease 100s)"
    for command in renew release break; do
        run holdfast "$command" "$K" --token $((HOLDFAST_TOKEN - 1))
        [ "$status" = 76 ]
        [ "${#lines[@]}" = 1 ]
    done
    [ "$(token "$K")" = "$HOLDFAST_TOKEN" ]
    holdfast release "$K" --token "$HOLDFAST_TOKEN"
    for command in renew release break; do
        run holdfast "$command" "$K" --token "$HOLDFAST_TOKEN"
        [ "$status" = 76 ]
    done
    for command in renew release break; do
        run holdfast "$command" "$K-never" --token 1
        [ "$status" = 76 ]
    done
}

@test "a token is needed, and has to be a number" {
    for command in renew release break; do
        run holdfast "$command" "$K"
        [ "$status" = 64 ]
        [[ $output == *--token* ]]
        for token in 0 -1 x 1x '' 9007199254740992 99999999999999999999; do
            run holdfast "$command" "$K" --token "$token"
            [ "$status" = 64 ]
            [ "${#lines[@]}" = 1 ]
        done
    done
}

@test "acquire waits like run: -n, -w, and a signal" {
    hold "$K"
    run holdfast acquire -n "$K" --lease 100s
    [ "$status" = 75 ]
    run holdfast acquire -w 0.2 -E 3 "$K" --lease 100s
    [ "$status" = 3 ]
    "$HOLDFAST" acquire "$K" --lease 100s >grant 3>&- &
    waiter=$!
    STARTED+=("$waiter")
    lined_up "$K" 1
    kill "$waiter"
    finished "$waiter"
    [ "$STATUS" = 143 ]
    [ "$(cat grant)" = 'unset HOLDFAST_KEY HOLDFAST_TOKEN HOLDFAST_OWNER; (exit 143)' ]
    waiters "$K" 0
    "$HOLDFAST" acquire "$K" --lease 100s >grant 3>&- &
    waiter=$!
    STARTED+=("$waiter")
    lined_up "$K" 1
    kill "$PID"
    finished "$waiter"
    [ "$STATUS" = 0 ]
    grep -q "^HOLDFAST_TOKEN='$(token "$K")'$" grant
}

@test "several keys at once, all or nothing" {
    eval "$(holdfast acquire "$K-2" "$K-1" --lease 100s)"
    [ "$HOLDFAST_KEY" = "$K-2 $K-1" ]
    set -- $HOLDFAST_TOKEN
    [ "$(token "$K-2")" = "$1" ]
    [ "$(token "$K-1")" = "$2" ]
    for wait in -n -w0.3; do
        run holdfast acquire $wait "$K-0" "$K-1" --lease 100s
        [ "$status" = 75 ]
        free "$K-0"
    done
}

# bats test_tags=differs
@test "acquire --json: a document per key; shared and limited ones" {
    run holdfast acquire --json -s "$K-1" "$K-2" --lease 100s
    [ "${#lines[@]}" = 2 ]
    [[ ${lines[0]} == "{\"key\":\"$K-1\",\"held\":true,\"token\":"*',"owner":"'*',"left_ms":'* ]]
    run holdfast acquire -n -s "$K-1" --lease 100s
    [ "$status" = 0 ]
    run holdfast acquire -n "$K-1" --lease 100s
    [ "$status" = 75 ]
    run holdfast acquire -n --limit 2 "$K-3" --lease 100s
    run holdfast acquire -n --limit 2 "$K-3" --lease 100s
    [ "$status" = 0 ]
    run holdfast acquire -n --limit 2 "$K-3" --lease 100s
    [ "$status" = 75 ]
}

@test "a grant that couldn't be printed isn't left standing" {
    run sh -c '"$0" acquire "$1" --lease 100s >/dev/full' "$HOLDFAST" "$K"
    [ "$status" -gt 0 ]
    [ "${#lines[@]}" = 1 ]
    free "$K"
    [[ $output == *"; what was acquired is given back" ]]
    run sh -c '"$0" acquire "$1" --lease 100s >&-' "$HOLDFAST" "$K"
    [ "$status" -gt 0 ]
    free "$K"
}

@test "a renewal that couldn't be printed is told: it was made" {
    eval "$(holdfast acquire "$K" --lease 100s)"
    run sh -c '"$0" renew "$1" --token "$2" --lease 900s --json >/dev/full' \
        "$HOLDFAST" "$K" "$HOLDFAST_TOKEN"
    [ "$status" = 70 ]
    [ "${#lines[@]}" = 1 ]
    [[ $output == *"; the grant was renewed" ]]
    holdfast show --json "$K" | grep -q '"left_ms":8[0-9][0-9][0-9][0-9][0-9]'
}

# bats test_tags=differs
@test "release here what was acquired there: the holder of a run learns it" {
    hold "$K" "${SHORT[@]}"
    run holdfast release "$K" --token "$(token "$K")"
    [ "$status" = 0 ]
    finished
    [ "$STATUS" = 76 ]
}

# bats test_tags=differs
@test "break ends the named grant, and the next in line gets the key" {
    hold "$K" "${SHORT[@]}"
    "$HOLDFAST" run "$K" -- touch ran 3>&- &
    waiter=$!
    STARTED+=("$waiter")
    lined_up "$K" 1
    run holdfast break "$K" --token "$(token "$K")"
    [ "$status" = 0 ]
    [ "${#lines[@]}" = 1 ]
    finished "$waiter"
    [ "$STATUS" = 0 ]
    [ -e ran ]
    finished
    [ "$STATUS" = 76 ]
}
