#!/usr/bin/env bats
# The command line itself: help, bad input (one clear line, 64), secrets.

bats_require_minimum_version 1.5.0
load cli_common
setup() { cli_setup; }
teardown() { cli_teardown; }

@test "help and version" {
    commands=(run once acquire renew release ls show watch break prune guard stores
        doctor bench)
    for how in --help -h help; do
        run holdfast $how
        [ "$status" = 0 ]
        for command in "${commands[@]}"; do [[ $output == *"  $command "* ]]; done
    done
    for command in "${commands[@]}"; do
        run help_text $command --help
        [ "$status" = 0 ]
        [[ $output == "usage: holdfast $command"* ]]
        run help_text help $command
        [[ $output == "usage: holdfast $command"* ]]
    done
    run holdfast --version
    [ "$status" = 0 ]
    [[ $output =~ ^holdfast\ [0-9]+\.[0-9]+\.[0-9]+$ ]]
    run holdfast
    [ "$status" = 64 ]
}

@test "unknown commands and options, missing and superfluous arguments" {
    run holdfast frobnicate
    refused 64 frobnicate
    run holdfast --frobnicate run "$K" -- true
    refused 64 --frobnicate
    run holdfast run --frobnicate "$K" -- true
    refused 64 --frobnicate
    run holdfast run -Z "$K" -- true
    refused 64 -Z
    run holdfast run -w
    refused 64 -w
    run holdfast run --lease
    refused 64 --lease
    run holdfast -S
    refused 64 -S
    run holdfast run
    refused 64 key
    run holdfast run "$K"
    refused 64 command
    run holdfast run "$K" --
    refused 64 command
    run holdfast run -- true
    refused 64 "no key" "'true'"
    run holdfast run "$K" -n true
    refused 64 -n
    run holdfast show
    refused 64 key
    run holdfast show "$K" more
    refused 64 more
    run holdfast ls a b
    refused 64 b
    run holdfast stores more
    refused 64 more
    run holdfast break --token 5
    refused 64 key
    run holdfast once "$K" --shared -- true
    refused 64 --shared
}

@test "times" {
    for time in '' x -1 1x 1.2.3 1e3 0x10 inf nan '1 s' 1ss ' 1' 99999999999999999999 1w +1 .; do
        run holdfast run -w "$time" "$K" -- true
        refused 64 "$time"
    done
    for time in 1 1s 1.5 .5 0.25s 100ms 1m 1h 1d 1.5m 0 0.0001; do
        run holdfast run -w "$time" "$K" -- true
        [ "$status" = 0 ]
    done
    for lease in 0 99ms 86401 2d; do
        run holdfast run --lease "$lease" "$K" -- true
        refused 64 --lease
    done
    run holdfast run --max-hold 0 "$K" -- true
    refused 64 --max-hold
    run holdfast run --at-least 25h "$K" -- true
    refused 64 --at-least
    run holdfast once --keep 0 "$K" -- true
    refused 64 --keep
    # Too long is a time all the same.
    for time in 36501d 99999999999999999999s 4000000000000000ms; do
        run holdfast once --keep "$time" "$K" -- true
        refused 64 --keep "must be 1ms to 36500d"
    done
}

@test "numbers and words" {
    for code in -1 256 x '' 1.5; do
        run holdfast run -E "$code" "$K" -- true
        refused 64 -E
    done
    for limit in 0 -1 1001 x; do
        run holdfast run --limit "$limit" "$K" -- true
        refused 64 --limit
    done
    run holdfast run --on-lost shrug "$K" -- true
    refused 64 shrug
}

@test "keys" {
    long=$(printf '%0512d' 0)
    run holdfast run "$long" -- sh -c 'echo ${#HOLDFAST_KEY}'
    [ "$output" = 512 ]
    for key in '' "0$long" $'a\nb' $'a\tb' $'\001' $'\177' $'\377' $'\xc3('; do
        for how in "run -n" "once -n"; do
            # shellcheck disable=SC2086
            run holdfast $how "$key" -- true
            refused 64
        done
        run holdfast show "$key"
        refused 64
        run holdfast acquire -n "$key" --lease 100s
        refused 64
        run holdfast break "$key" --token 5
        refused 64
    done
    for key in 'a b' 'a/b/5' '.' '..' '-' 'ü' '☃' 'a%b' "a'b" 'a"b' 'a\b' '*' '[' '~'; do
        run holdfast run -- "$key" -- sh -c 'printf %s "$HOLDFAST_KEY"'
        [ "$output" = "$key" ]
    done
    many=()
    for ((i = 0; i < 65; i++)); do many+=("$K-$i"); done
    run holdfast run "${many[@]}" -- true
    refused 64
    run holdfast run "${many[@]:1}" -- true
    [ "$status" = 0 ]
}

@test "URLs" {
    for url in '' nonsense: no-such-scheme://host '://' ':' 'file' '@/no/such/file'; do
        run holdfast -S "$url" run "$K" -- true
        refused 64
    done
    HOLDFAST_STORE=no-such-scheme: run holdfast run "$K" -- true
    refused 64 no-such-scheme
    : >empty
    run holdfast -S @empty run "$K" -- true
    refused 64 empty
}

@test "the default store is in the user's state directory" {
    unset HOLDFAST_STORE
    export HOME=$PWD/home XDG_STATE_HOME=$PWD/state
    mkdir home state
    run holdfast run "$K" -- sh -c 'echo "$HOLDFAST_STORE"'
    [ "$status" = 0 ]
    [ "$output" = "file:$PWD/state/holdfast/locks" ]
    [ -n "$(find state -type f)" ]
    # An empty variable names none: without it a program would use this one.
    for empty in '' ' ' $'\r'; do
        for how in "run $K -- touch ran" "ls --all" "acquire $K --lease 5" stores doctor; do
            # shellcheck disable=SC2086
            HOLDFAST_STORE=$empty run holdfast $how
            refused 64 "HOLDFAST_STORE is set, but empty"
        done
    done
    [ ! -e ran ]
}

@test "the default store: its directories are made, but not a home that isn't there" {
    unset HOLDFAST_STORE
    mkdir home state
    at() {
        HOME=$1 XDG_STATE_HOME=$2 holdfast run "$K" -- sh -c 'echo "$HOLDFAST_STORE"'
    }
    gone=$PWD/gone
    for gone in "$gone:" "$gone/anna:"; do
        run at "${gone%%:*}" "${gone#*:}"
        refused 69 gone "isn't made" "name a store" "nothing was executed"
        [ ! -e gone ]
    done
    for there in "$PWD/home:" "$PWD/home:$PWD/home/deep/state" "$PWD/gone:$PWD/state/own/deep"; do
        run at "${there%%:*}" "${there#*:}"
        [ "$status" = 0 ]
        [ -e "${output#file:}" ]
    done
}

@test "blanks and line ends behind a URL name no other store" {
    url=file:$PWD/st
    holdfast -S "$url" run "$K" -- true
    for end in ' ' $'\r' $'\n' $'\t' $' \r\n'; do
        printf '%s' "$url$end" >named
        for how in "-S|$url$end" "-S|@named"; do
            run holdfast "${how%%|*}" "${how#*|}" run "$K" -- sh -c 'echo "$HOLDFAST_STORE"'
            [ "$output" = "$url" ]
        done
        HOLDFAST_STORE=$url$end run holdfast run -v "$K" -- true
        [ "${lines[0]}" = "holdfast: the store is $url (HOLDFAST_STORE)" ]
        HOLDFAST_STORE="$url?mode=0600$end" run holdfast run -q "$K" -- true
        [ -z "$output" ]
    done
    # A name that ends in a blank is passed on as it is.
    mkdir sub
    run holdfast -S "file:st%20" run "$K" -- sh -c 'cd sub && "$0" run -n -E 9 "$1" -- true' \
        "$HOLDFAST" "$K"
    [ "$status" = 9 ]
    [ -e "st " ]
    HOLDFAST_STORE=" $url" run holdfast run "$K" -- true
    refused 64 "begins with a blank"
}

@test "HOLDFAST_STORE has no path that is another one in each directory" {
    for url in file:rel file:./rel sqlite:rel.db sqlite::memory: file:r%2fel; do
        for how in "run $K -- touch ran" ls stores; do
            # shellcheck disable=SC2086
            HOLDFAST_STORE=$url HOLDFAST_DRIVERS=$BUILD run holdfast $how
            refused 64 "HOLDFAST_STORE: the path in '" relative
        done
    done
    [ ! -e ran ]
}

@test "the user of a holder: the environment's, else root or the number" {
    user() {
        holdfast run "$K" -- "$HOLDFAST" show --json "$K" | sed 's/.*"user":"\([^"]*\)".*/\1/'
    }
    [ "$(USER=anna LOGNAME=berta user)" = anna ]
    [ "$(USER='' LOGNAME=berta user)" = berta ]
    unset USER LOGNAME
    if [ "$(id -u)" = 0 ]; then
        [ "$(user)" = root ]
    else
        [ "$(user)" = "$(id -u)" ]
    fi
}

@test "a store is passed on as the same one, wherever the command goes" {
    mkdir -p "odd %41 ?#@" fresh home/other
    stores=("file:relstore" "file:" "sqlite:rel.db" "sqlite:x?table=locks")
    unset XDG_STATE_HOME
    export HOME=$PWD/home FRESH=$PWD/fresh HOLDFAST_DRIVERS=$BUILD
    cd "odd %41 ?#@"
    for store in "${stores[@]}"; do
        run holdfast -S "$store" run "$K" -- sh -c '
            cd "$FRESH" && HOME=$HOME/other && export HOME &&
            unset HOLDFAST_TOKEN HOLDFAST_KEY && "$0" run -q -n -E 9 other -- echo FREE &&
            "$0" run -q -n -E 9 "$1" -- echo TWICE' "$HOLDFAST" "$K"
        [ "$output" = FREE ]
        [ "$status" = 9 ]
    done
    [ -z "$(ls "$FRESH")" ]
}

@test "HOLDFAST_STORE holds a URL, no name of a file" {
    HOLDFAST_STORE=@store.url run holdfast run "$K" -- true
    refused 64 "write the URL itself"
}

@test "a tree that was moved loads its own modules" {
    unset HOLDFAST_DRIVERS
    mkdir -p prefix/bin prefix/lib/holdfast
    cp "$HOLDFAST" prefix/bin/
    run prefix/bin/holdfast -S nosuch:db ls
    refused 64 "unknown scheme"
    cp "$BUILD/libholdfast-sqlite.so" prefix/lib/holdfast/
    run prefix/bin/holdfast -S sqlite:db run "$K" -- true
    [ "$status" = 0 ]
    prefix/bin/holdfast stores | grep sqlite | grep -vq "not installed"
}

@test "who comes from flock is told of a command before --" {
    run holdfast run "$K" env git -- true
    [ "$status" = 0 ]
    [ "${#lines[@]}" = 1 ]
    [[ $output == *"'env'"*"taken for a key"* ]]
    for quiet in "-q $K env" "$K no-such-program" "$K /no/such/env" "$K"; do
        # shellcheck disable=SC2086
        run holdfast run $quiet -- true
        [ "$status" = 0 ]
        [ -z "$output" ]
    done
}

@test "what isn't there any more is named as what was asked for" {
    made
    for command in release renew break enter; do
        run holdfast $command "$K" --token 1
        refused 76 "$command '$K': no current grant has token 1"
    done
}

@test "the command that is installed makes no call fail, and writes no trace" {
    HOLDFAST_FAULT=any:1+:denied HOLDFAST_TRACE=$PWD/trace "$HOLDFAST" run -n "$K" -- touch ran
    [ -e ran ]
    [ ! -e trace ]
}

# bats test_tags=stores, differs
@test "the password of a store is in no argument list, no environment, no listing, no message" {
    [ -n "${HOLDFAST_TEST_SECRET:-}" ] || return 0
    secret=${HOLDFAST_TEST_SECRET#*://*:}
    secret=${secret%%@*}
    url=$HOLDFAST_TEST_SECRET
    unset HOLDFAST_TEST_SECRET AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY
    export HOLDFAST_STORE=$url
    hold "$K"
    # While it becomes another program it has no environment.
    in_environment() {
        tr '\0' '\n' <"/proc/$(cat cmd.pid)/environ" >environment
        [ "$(grep -c '^HOLDFAST_STORE=' environment)" = 1 ]
    }
    await in_environment
    background -S "$url" run "$K" -- true
    lined_up "$K" 1
    cat "/proc/$PID/cmdline" "/proc/$(cat cmd.pid)/environ" >seen
    for how in "run -v -n $K -- true" "show $K" "show --json $K" "ls --all --json $K" \
        "release $K --token 1" "run -v $K-2 -- env"; do
        # shellcheck disable=SC2086
        holdfast $how >>seen 2>&1 || true
    done
    grep -qa "$K" seen
    run grep -a "$secret" seen
    [ "$status" = 1 ]
}

@test "-q: no word about a password in the arguments, wherever it stands" {
    url="redis://anna:geheim@127.0.0.1:1/0"
    for how in "-S $url run -q -n $K -- true" "run -q -S $url -n $K -- true" \
        "run -S $url -n -q $K -- true" "acquire -q -S $url $K --lease 5 -n"; do
        # shellcheck disable=SC2086
        run holdfast $how
        [ "$status" != 0 ]
        [[ $output != *"in the arguments"* ]]
        # shellcheck disable=SC2086
        run holdfast ${how/-q/}
        [ "$status" != 0 ]
        [ "$(grep -c "in the arguments" <<<"$output")" = 1 ]
    done
}

@test "a password in -S is wiped from the argument list, and never shown" {
    secret=s3cr3t-$RANDOM
    for url in "nosuch://anna:$secret@host/x" "nosuch://host/x?password=$secret" \
        "nosuch://host/?a=1&sslpassword=$secret&b=2" "nosuch://anna:a#$secret@host/x" \
        "nosuch://anna:a/$secret@host/x" "nosuch://anna:'a b$secret@host/x"; do
        run holdfast -S "$url" run "$K" -- true
        [ "$status" = 64 ]
        [[ $output != *"$secret"* ]]
        run holdfast doctor "$url"
        [ "$status" = 64 ]
        [[ $output != *"$secret"* ]]
    done
    # Only the driver knows that an option is misspelt.
    for url in "file:x?pasword=$secret" "redis://127.0.0.1:1/?pswd=$secret" \
        "etcd://127.0.0.1:1/?tokn=$secret" "sqlite:x?mode=1&credntials=$secret"; do
        for how in run doctor; do
            # shellcheck disable=SC2046
            run holdfast -S "$url" $how $([ $how = doctor ] || echo "$K -- true")
            [ "$status" = 64 ]
            [[ $output == *unknown* && $output != *"$secret"* ]]
        done
    done
    # The last one counts; all are wiped, and the command's environment has none.
    background -S "nosuch://anna:$secret@host/x" -S "nosuch://anna:a#b?c&d;'$secret@host/x" \
        -S "nosuch://anna:a#b c;'$secret@host/x" -S "nosuch://h/?password=a;b'$secret" \
        run --store="nosuch://h/?token=$secret" \
        -S "$HOLDFAST_STORE" "$K" -- sh -c 'echo "$HOLDFAST_STORE" >url; exec sleep 1200'
    await test -s url
    tr '\0' ' ' <"/proc/$PID/cmdline" >cmdline
    grep -q 'nosuch://anna@host/x *-S ' cmdline
    run grep "$secret" cmdline url bg.err
    [ "$status" = 1 ]
    grep -q password bg.err
}
