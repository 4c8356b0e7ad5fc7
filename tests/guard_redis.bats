#!/usr/bin/env bats
# holdfast guard redis, in the server in which the locks are; what the others print.

load cli_common

ask() { redis-cli -e -s "${HOLDFAST_STORE#*socket=}" "$@"; }
enter() { # FENCE ROW-OR-NOTHING TOKEN COMMAND...
    local fence=$1 row=$2 token=$3 script=$SCRIPT
    shift 3
    if [ -n "$row" ]; then
        ask EVAL "$script" 2 "$fence" "$row" "$token" "$@"
    else
        ask EVAL "$(holdfast guard redis --elsewhere)" 1 "$fence" "$token" "$@"
    fi
}
grant() {
    eval "$(holdfast acquire "$@" --lease 60)"
    T=$HOLDFAST_TOKEN
}
refused() { [ "$status" != 0 ] && [[ $output == *"$1"* ]]; }
is_lost() { refused LOST; }

setup() {
    cli_setup
    SCRIPT=$(holdfast guard redis)
}
teardown() { cli_teardown; }

@test "who hasn't entered, or with a token that is over, writes nothing" {
    run enter "f:$K" "holdfast:$K" 17
    is_lost
    grant "$K"
    run enter "f:$K" "holdfast:$K" $((T + 1))
    is_lost
    run enter "f:$K" "holdfast:$K" "$T" SET "$K" 1
    refused UNENTERED
    [ "$(enter "f:$K" "holdfast:$K" "$T")" = OK ]
    [ "$(enter "f:$K" "holdfast:$K" "$T" SET "$K" 5)" = OK ]
    [ "$(enter "f:$K" "holdfast:$K" "$T" INCR "$K")" = 6 ]
    holdfast release "$K" --token "$T"
    run enter "f:$K" "holdfast:$K" "$T" SET "$K" 9
    is_lost
    eval "$(holdfast acquire "$K" --lease 100ms)"
    await eval "! enter 'f:$K' 'holdfast:$K' $HOLDFAST_TOKEN"
    for bad in 0 -1 1.5 9007199254740992 x ''; do
        run enter "f:$K" "holdfast:$K" "$bad"
        is_lost
    done
    [ "$(ask GET "$K")" = 6 ]
}

@test "several holders are all admitted, and each until it lets go" {
    grant "$K" --limit 2
    first=$T
    grant "$K" --limit 2
    enter "f:$K" "holdfast:$K" "$T"
    enter "f:$K" "holdfast:$K" "$first"
    enter "f:$K" "holdfast:$K" "$first" SET "$K" 1
    enter "f:$K" "holdfast:$K" "$T" SET "$K" 2
    holdfast release "$K" --token "$first"
    run enter "f:$K" "holdfast:$K" "$first" SET "$K" 9
    is_lost
    enter "f:$K" "holdfast:$K" "$T"
    enter "f:$K" "holdfast:$K" "$T" SET "$K" 3
    [ "$(ask GET "f:$K")" = "$T" ]
    grant "$K-2" --limit 2
    first=$T
    T=$(holdfast run --limit 2 --at-least 60 "$K-2" -- sh -c 'echo "$HOLDFAST_TOKEN"')
    run enter "f:$K-2" "holdfast:$K-2" $((T + 1))
    is_lost
    run enter "f:$K-2" "holdfast:$K-2" "$T"
    is_lost
    enter "f:$K-2" "holdfast:$K-2" "$first"
    holdfast release "$K-2" --token "$first"
    run enter "f:$K-2" "holdfast:$K-2" "$first"
    is_lost
    grant "$K-4"
    ask HSET "holdfast:$K-4" format 2
    run enter "f:$K-4" "holdfast:$K-4" "$T"
    is_lost
    ask DEL "holdfast:$K-4"
    first=$(holdfast run --at-least 60 "$K-3" -- sh -c 'echo "$HOLDFAST_TOKEN"')
    run enter "f:$K-3" "holdfast:$K-3" "$first"
    is_lost
}

@test "with the locks elsewhere the greatest token that has entered counts" {
    enter "f:$K" '' 100
    enter "f:$K" '' 100 SET "$K" 1
    run enter "f:$K" '' 101 SET "$K" 9
    refused UNENTERED
    enter "f:$K" '' 102
    run enter "f:$K" '' 100 SET "$K" 9
    is_lost
    run enter "f:$K" '' 101
    is_lost
    [ "$(ask GET "$K")" = 1 ]
}

@test "other prefixes; unfit options" {
    [[ $(holdfast guard redis --key-prefix 'a:') == *"'a:'"* ]]
    for words in "redis x" "redis --undo" "redis --key-prefix a --elsewhere" "mongodb" \
        "mongodb a b" "mongodb a\$b" "mongodb a --token-field x.y" "sqlite t" \
        "sqlite t --key-column" \
        "sqlite t --key-column c --schema s" "sqlite t --key-column c --locks a --elsewhere" \
        "postgres t u" "" "oracle"; do
        # shellcheck disable=SC2086
        run holdfast guard $words
        [ "$status" = 64 ]
        [ "${#lines[@]}" = 1 ]
    done
    for name in '' "$(printf 'a\nb')" "$(printf 'a\377')" "$(printf '%064d' 0)"; do
        run holdfast guard sqlite "$name" --key-column c
        [ "$status" = 64 ]
        run holdfast guard postgres t --key-column "$name"
        [ "$status" = 64 ]
    done
    run holdfast guard sqlite t --key-column c --key-prefix "$(printf 'a\nb')"
    [ "$status" = 64 ]
    [[ $(holdfast guard mongodb 'a"\b' --token-field 't"') == *'"a\"\\b"'*'"t\""'* ]]
}
