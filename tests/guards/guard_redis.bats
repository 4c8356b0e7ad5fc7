#!/usr/bin/env bats
# holdfast guard redis, in the server in which the locks are; what the others print.

load ../cli/cli_common
load guard_page

ask() { redis-cli -e -s "${HOLDFAST_STORE#*socket=}" "$@"; }
enter() { # FENCE ROW-OR-NOTHING TOKEN COMMAND...
    local fence=$1 row=$2 token=$3 script=$SCRIPT
    shift 3
    local names=("$fence" ${2:+"$2"})
    if [ -n "$row" ]; then
        names=("$fence" "$row" ${2:+"$2"})
    else
        script=$(holdfast guard redis --elsewhere)
    fi
    ask EVAL "$script" ${#names[@]} "${names[@]}" "$token" "$@"
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
    eval "$(holdfast acquire "$K" --lease 1s)"
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
    ask HSET "holdfast:$K-4" more '{"news":1}' # of a later version, which may mean something by it
    run enter "f:$K-4" "holdfast:$K-4" "$T"
    is_lost
    ask HSET "holdfast:$K-4" more ''
    enter "f:$K-4" "holdfast:$K-4" "$T"
    ask HSET "holdfast:$K-4" format 1
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

@test "holdfast enter raises the fence" {
    local key="$K/it's \"\\ {1}"
    grant "$key"
    run holdfast enter "$key" --token $((T + 1))
    [ "$status" = 76 ]
    [ "$(ask EXISTS "fence:holdfast:$key")" = 0 ]
    holdfast enter "$key" --token "$T"
    [ "$(ask GET "fence:holdfast:$key")" = "$T" ]
    # What the printed script looks at is the same.
    [ "$(enter "fence:holdfast:$key" "holdfast:$key" "$T" SET "$key" 1)" = OK ]
    run enter "other:$key" "holdfast:$key" "$T" SET "$key" 2
    refused UNENTERED
    holdfast enter "$key" --token "$T" "other:$key"
    [ "$(enter "other:$key" "holdfast:$key" "$T" SET "$key" 2)" = OK ]
    HOLDFAST_FAULT=enter:1:after holdfast enter "$key" --token "$T"
    HOLDFAST_FAULT=enter:1:before holdfast enter "$key" --token "$T"
    run holdfast enter "$key" --token "$T" ''
    [ "$status" = 64 ]
    run holdfast enter "$key" --token "$T" a b
    [ "$status" = 64 ]
    run holdfast enter "$key"
    [ "$status" = 64 ]
    # A fence that is something else isn't touched.
    ask RPUSH "other:$K" x
    run holdfast enter "$key" --token "$T" "other:$K"
    echo "$output"
    [ "$status" = 65 ]
    first=$T
    holdfast break "$key" --token "$first"
    grant "$key"
    holdfast enter "$key" --token "$T"
    run holdfast enter "$key" --token "$first"
    [ "$status" = 76 ]
    run enter "fence:holdfast:$key" "holdfast:$key" "$first" SET "$key" 9
    is_lost
    ask SET "fence:holdfast:$key" $((T + 1))
    run holdfast enter "$key" --token "$T"
    [ "$status" = 76 ]
    refused "a later one has entered"
    # Of several holders the smallest token counts.
    grant "$K/2" --limit 2
    first=$T
    grant "$K/2" --limit 2
    holdfast enter "$K/2" --token "$T"
    [ "$(ask GET "fence:holdfast:$K/2")" = "$first" ]
    holdfast enter "$K/2" --token "$first"
}

@test "the fence may be deleted, and is made again" {
    grant "$K"
    [ "$SCRIPT" = "$(holdfast guard redis)" ]
    for _ in 1 2; do
        enter "f:$K" "holdfast:$K" "$T"
        enter "f:$K" "holdfast:$K" "$T" SET "$K" 1
        first=$T
        holdfast release "$K" --token "$T"
        grant "$K"
        ask DEL "f:$K"
        ask DEL "f:$K"
        run enter "f:$K" "holdfast:$K" "$T" SET "$K" 9
        refused UNENTERED
        run enter "f:$K" "holdfast:$K" "$first" # the lock's row refuses it
        is_lost
    done
    [ "$(ask GET "$K")" = 1 ]
}

@test "names are arguments, whatever they are made of" {
    local odd='x"; redis.call("FLUSHALL") -- '\''\ é {$hf$} ]]'
    grant "$K$odd"
    enter "f:$K$odd" "holdfast:$K$odd" "$T"
    # A prefix stands in a comment of one line only.
    script=$(holdfast guard redis --key-prefix "$odd")
    [ "$(grep -v '^--' <<<"$script")" = "$(grep -v '^--' <<<"$SCRIPT")" ]
    ask EVAL "$script" 3 "f:$K$odd" "holdfast:$K$odd" "$K$odd" "$T" SET "$K$odd" "$odd"
    [ "$(ask GET "$K$odd")" = "$odd" ]
}

@test "a command touches what is named, and nothing of Holdfast's" {
    grant "$K"
    local row=holdfast:$K fence=f:$K
    names() { # NAME... -- COMMAND...
        local keys=()
        while [ "$1" != -- ]; do keys+=("$1") && shift; done
        shift
        run ask EVAL "$SCRIPT" $((2 + ${#keys[@]})) "$fence" "$row" "${keys[@]}" "$T" "$@"
        echo "${keys[*]}: $*: $output"
    }
    enter "$fence" "$row" "$T"
    ask RPUSH "$K" 2 1
    ask SET "$K.b" 1
    # Another key than those that are named, as source, as target, or hidden in a list.
    for words in "SET $K.b 9" "SORT $K STORE $K.b" "RENAME $K $K.b" "RENAME $K.b $K" \
        "COPY $K $K.b" "COPY $K $K.b REPLACE" "LMOVE $K $K.b LEFT LEFT" \
        "MSET $K 9 $K.b 9" "DEL $K $K.b" \
        "BITOP AND $K $K.b" "ZUNIONSTORE $K 1 $K.b" "LMPOP 2 $K $K.b LEFT" "set $K.b 9" \
        "GEORADIUS $K 1 1 1 m STORE $K.b" "PFMERGE $K $K.b"; do
        # shellcheck disable=SC2086
        names "$K" -- $words
        refused MISNAMED
    done
    # To another database; to all keys; to none.
    for words in "MOVE $K 1" "COPY $K $K.b DB 1" "copy $K $K.b replace db 1" "FLUSHALL ASYNC" \
        "MIGRATE 127.0.0.1 1 $K 0 10" \
        "MIGRATE 127.0.0.1 1 $K 0 10 KEYS $K $K.b" 'SWAPDB 0 1' \
        'SELECT 1' 'PUBLISH a b' 'SCRIPT FLUSH' 'NOSUCH'; do
        # shellcheck disable=SC2086
        names "$K" "$K.b" -- $words
        refused MISNAMED
    done
    # The lock and the fence, also if somebody calls them data.
    for own in "$row" "$fence"; do
        for words in "DEL $own" "SET $own 1" "RENAME $K $own" "EXPIRE $own 1" "COPY $own $K.b"; do
            # shellcheck disable=SC2086
            names "$K" "$K.b" "$own" -- $words
            refused MISNAMED
        done
    done
    [ "$(ask LRANGE "$K" 0 -1 | xargs) $(ask GET "$K.b") $(ask GET "$fence")" = "2 1 1 $T" ]
    # With both named it is done.
    names "$K" "$K.b" -- SORT "$K" STORE "$K.b"
    [ "$(ask LRANGE "$K.b" 0 -1 | xargs)" = "1 2" ]
    names "$K" "$K.b" -- RENAME "$K.b" "$K"
    [ "$(ask LRANGE "$K" 0 -1 | xargs) $(ask EXISTS "$K.b")" = "1 2 0" ]
    run ask EVAL "$(holdfast guard redis --elsewhere)" 2 "$fence" "$K" "$T" DEL "$fence"
    refused MISNAMED
}

@test "a shell script does it by redis-cli" {
    echo "$SCRIPT" >holdfast_enter.lua
    cat >add.sh <<'END'
ask() { redis-cli -e -s "${HOLDFAST_STORE#*socket=}" "$@"; }
holdfast enter "$HOLDFAST_KEY" --token "$HOLDFAST_TOKEN" || exit
n=$(ask GET "cart:$HOLDFAST_KEY")
ask EVAL "$(cat holdfast_enter.lua)" 3 "fence:holdfast:$HOLDFAST_KEY" \
    "holdfast:$HOLDFAST_KEY" "cart:$HOLDFAST_KEY" "$HOLDFAST_TOKEN" \
    SET "cart:$HOLDFAST_KEY" $((n + 1))
END
    PATH=$(dirname "$HOLDFAST"):$PATH holdfast run "$K" -- sh add.sh
    PATH=$(dirname "$HOLDFAST"):$PATH holdfast run "$K" -- sh add.sh
    run env PATH="$(dirname "$HOLDFAST"):$PATH" HOLDFAST_KEY="$K" HOLDFAST_TOKEN=17 sh add.sh
    [ "$status" = 76 ]
    run redis-cli -e -s "${HOLDFAST_STORE#*socket=}" --eval holdfast_enter.lua \
        "fence:holdfast:$K" "holdfast:$K" , 17 # as the page enters
    refused LOST
    [ "$(ask GET "cart:$K")" = 2 ]
}

@test "the page's commands, as they stand" {
    redis-cli() { command redis-cli -e -s "${HOLDFAST_STORE#*socket=}" "$@"; }
    eval "$(of_page Redis 1)"
    enters=$(of_page Redis 2 | sed -n '/^redis-cli/p')
    eval "$(holdfast acquire cart/7 --lease 60)"
    eval "$enters"
    [ "$(ask GET fence:holdfast:cart/7)" = "$HOLDFAST_TOKEN" ]
    HOLDFAST_TOKEN=17
    run eval "$enters"
    refused LOST
}

@test "in MULTI, too, the script decides for itself alone" {
    grant "$K"
    enter "f:$K" "holdfast:$K" "$T"
    sha=$(ask SCRIPT LOAD "$SCRIPT")
    first=$T
    holdfast release "$K" --token "$T"
    grant "$K"
    local late="EVALSHA $sha 3 f:$K holdfast:$K $K $first SET $K 9"
    local enters="EVALSHA $sha 2 f:$K holdfast:$K $T"
    local writes="EVALSHA $sha 3 f:$K holdfast:$K $K $T SET $K 1"
    # What is refused doesn't take with it what goes past the script: doc/guards.md says so.
    printf '%s\n' MULTI "$late" "SET $K.raw 1" "$enters" "$writes" EXEC |
        redis-cli -s "${HOLDFAST_STORE#*socket=}" >out
    grep -q LOST out
    [ "$(ask GET "$K") $(ask GET "$K.raw")" = "1 1" ]
}

# Each of these checks is all that stands between the argument and the fence: the locks are
# elsewhere, so that no row refuses it.
@test "what is no token, no fence, no lock is refused, and changes nothing" {
    script=$(holdfast guard redis --elsewhere)
    enter f:"$K" '' 100
    for bad in '' x 0 -1 0.5 100.5 1e2.5 1e16 9007199254740992 inf -inf nan 1e999 '1 2' '1,5' \
        "$(printf '101\n1')"; do
        echo "token '$bad'"
        run enter "f:$K" '' "$bad"
        is_lost
        run enter "f:$K" '' "$bad" SET "$K" 1
        is_lost
        run enter "g:$K" '' "$bad"
        is_lost
    done
    run ask EVAL "$script" 0
    is_lost
    run ask EVAL "$script" 0 101
    is_lost
    run ask EVAL "$script" 1 "f:$K"
    is_lost
    [ "$(ask GET "f:$K") $(ask EXISTS "g:$K" "$K")" = "100 0" ]
    enter "g:$K" '' 9007199254740991 # the greatest there is
    [ "$(ask GET "g:$K")" = 9007199254740991 ]
    # With the locks here: no name of the row, or that of something else.
    run ask EVAL "$SCRIPT" 1 "h:$K" 5
    is_lost
    run ask EVAL "$SCRIPT" 2 "h:$K" "h:$K" 5
    is_lost
    run enter "h:$K" "f:$K" 5
    refused WRONGTYPE
    grant "$K"
    ask HSET "holdfast:$K" more '[1'
    run enter "h:$K" "holdfast:$K" "$T"
    [ "$status" != 0 ]
    ask HSET "holdfast:$K" more '' token 5.5
    run enter "h:$K" "holdfast:$K" 5
    is_lost
    run enter "h:$K" "holdfast:$K" 5.5
    is_lost
    [ "$(ask EXISTS "h:$K")" = 0 ]
    ask DEL "holdfast:$K"
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
