#!/usr/bin/env bats
# The command line itself: help, bad input (one clear line, 64), stores that can't be used, secrets.

bats_require_minimum_version 1.5.0
load cli_common
setup() { cli_setup; }
teardown() { cli_teardown; }

# Fails with the status, on one line that has all of the words; what acquire prints is left out.
refused() {
    local want=$1 word
    shift
    [ "$status" = "$want" ] || return 1
    mapfile -t lines < <(grep -v '^unset HOLDFAST_KEY ' <<<"$output")
    [ "${#lines[@]}" = 1 ] || return 1
    [[ ${lines[0]} == holdfast:\ * ]] || return 1
    for word; do [[ $output == *"$word"* ]] || return 1; done
}

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
    HOLDFAST_STORE='' run holdfast ls --all
    [[ $output == *"$K"* ]]
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

@test "out of descriptors, or the directory is missing: the store is away, not wrong" {
    export HOLDFAST_DRIVERS=$BUILD
    for url in "file:$PWD/store" "sqlite:$PWD/store.db"; do
        holdfast -S "$url" run "$K" -- true
        for ((n = 4; n < 10; n++)); do
            run bash -c 'for fd in /proc/self/fd/*; do
                    [ "${fd##*/}" -lt 3 ] || eval "exec ${fd##*/}>&-"
                done
                ulimit -n "$1" && exec "$2" -S "$3" ls' - "$n" "$HOLDFAST" "$url"
            [ "$n" -gt 4 ] || refused 69 "Too many open files"
            [ "$status" = 0 ] || refused 69 "Too many open files"
        done
        run holdfast -S "${url%%:*}:$PWD/no/such/directory/store" run "$K" -- true
        refused 69 "No such file or directory"
    done
}

# `run -n KEY -- true` on the store $1, with the limit $3 of ulimit $2.
run_within() {
    run --separate-stderr bash -c 'for fd in /proc/self/fd/*; do
            [ "${fd##*/}" -lt 3 ] || eval "exec ${fd##*/}>&-"
        done
        ulimit "$1" "$2" && exec "$3" -S "$4" run -n "$5" -- true' \
        - "$2" "$3" "$HOLDFAST" "$1" "$K"
}

@test "short of memory, threads or descriptors: 69 or 70, with the key and what is so then" {
    export HOLDFAST_DRIVERS=$BUILD
    for url in "file:$PWD/store" "sqlite:$PWD/store.db" nats://127.0.0.1:1/b \
        mongodb://127.0.0.1:1/b; do
        short=0
        for limit in -n{5..12} -v{7,9,12,16,20,30,40,60}000; do
            run_within "$url" "${limit:0:2}" "${limit:2}"
            # shellcheck disable=SC2154 # bats sets it
            case $status:$stderr in
            0:) continue ;;
            127:*"shared libraries"* | 70:"holdfast: out of memory") continue ;; # before it began
            69:*"refused; nothing was acquired, and nothing was executed") continue ;;
            # libbson ends a process that has no memory.
            134:*"Failure to allocate memory in bson"*) continue ;;
            69:*"Too many open files; nothing was "*", and "*) ;;
            70:"holdfast: run '$K': "*"; nothing was "*", and "*) ;;
            70:"holdfast: acquire '$K': "*"; nothing was acquired, and nothing was executed") ;;
            *)
                echo "$url $limit: $status: $stderr"
                return 1
                ;;
            esac
            [[ $stderr == *"'$K'"* ]]
            ((++short))
        done
        [ "$short" -ge 1 ]
    done
}

@test "a store that fails at the first request: what is so then" {
    export HOLDFAST_DRIVERS=$BUILD FIRESTORE_EMULATOR_HOST=127.0.0.1:1
    while IFS='|' read -r words state; do
        # shellcheck disable=SC2086
        run --separate-stderr holdfast -S firestore://p $words
        [ "$status" = 69 ]
        [[ $stderr == "holdfast: firestore: get '$K': "*"connect to server; $state" ]]
    done <<END
run -n $K -- true|nothing was acquired, and nothing was executed
once -n $K -- true|nothing was acquired, and nothing was executed
acquire -n $K --lease 9|nothing was acquired
END
    run holdfast doctor redis://127.0.0.1:1
    [ "$status" = 69 ]
    [[ $output == "holdfast: doctor: redis: connect '127.0.0.1:1': "* ]]
    [[ $output == *"; the store is neither proved nor refuted" ]]
}

@test "HOLDFAST_STORE holds a URL, no name of a file" {
    HOLDFAST_STORE=@store.url run holdfast run "$K" -- true
    refused 64 "write the URL itself"
}

@test "a store that can't be opened: for which key, and what is so then" {
    export HOLDFAST_DRIVERS=$BUILD
    while IFS='|' read -r words about state; do
        # shellcheck disable=SC2086
        run --separate-stderr holdfast -S redis://127.0.0.1:1 $words
        [ "$status" = 69 ]
        # shellcheck disable=SC2154 # bats sets it
        [ "$stderr" = "holdfast: $about: redis: connect '127.0.0.1:1': Connection refused$state" ]
    done <<'END'
run -n k -- true|run 'k'|; nothing was acquired, and nothing was executed
once -n k -- true|once 'k'|; nothing was acquired, and nothing was executed
acquire -n k --lease 5|acquire 'k'|; nothing was acquired
renew k --token 1|renew 'k'|; the lease was not extended
enter k --token 1|enter 'k'|; the token was not shown
release k --token 1|release 'k'|; the grant was not given back
break k --token 1|break 'k'|; the grant was not ended
forget k|forget 'k'|; the mark was not removed
prune --idle 1d|prune|; nothing was deleted
show k|show 'k'|
ls|ls|
watch|watch|
bench|bench|
END
}

@test "a command that can't be executed: for which key, and what is so then" {
    while IFS='|' read -r words about state; do
        # shellcheck disable=SC2086
        run -127 holdfast $words /nonexistent
        [ "${#lines[@]}" = 1 ]
        [ "$output" = \
            "holdfast: $about: execute '/nonexistent': No such file or directory; $state" ]
    done <<'END'
run k|run 'k'|nothing was executed, and the lock is given back
run --at-least 1ms k|run 'k'|nothing was executed, and the lock is kept until --at-least has passed
once k --|once 'k'|nothing was executed, and the lock is given back
once --at-most-once k2 --|once 'k2'|nothing was executed, and the event stays marked as done
END
    holdfast once k2 -- touch ran
    [ ! -e ran ]
    holdfast once k -- touch ran
    [ -e ran ]
}

@test "a host that isn't known is away, whatever its name says" {
    export HOLDFAST_DRIVERS=$BUILD
    # Two dots: no server is asked.
    for host in invalid..host password..host certificate..host; do
        run holdfast -S "postgres://u@$host/x" ls
        refused 69 "Name or service not known"
        run holdfast -S "postgresql://u@$host/x" ls
        refused 69 "Name or service not known"
    done
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

@test "a full disk is told as one" {
    state="nothing was acquired, and nothing was executed"
    export HOLDFAST_DRIVERS=$BUILD
    mkdir full
    # One is made while there is room; what fills the rest is somebody else's.
    for kind in file: sqlite:; do
        run unshare -rm bash -c 'mount -t tmpfs -o size=8m none full &&
            "$0" -S "$1$PWD/full/store" run k -- true && cat /dev/zero >full/rest 2>/dev/null
            "$0" -S "$1$PWD/full/new" run k -- true
            echo $?
            for ((i = 0; i < 4000; i++)); do
                "$0" -S "$1$PWD/full/store" acquire --lease 1h "k$i-$2" >/dev/null || exit
            done' "$HOLDFAST" $kind "$(printf %0100d 0)"
        [ "$status" = 69 ]
        [ "${#lines[@]}" = 3 ]
        [ "${lines[1]}" = 69 ]
        [[ ${lines[0]} =~ (No space left on device|disk is full)"; $state"$ ]]
        [[ ${lines[2]} =~ (No space left on device|disk is full)("; nothing was acquired")?$ ]]
    done
}

@test "a limit of a file's size is told like a full disk; the command has it as it was" {
    state="nothing was acquired, and nothing was executed"
    export HOLDFAST_DRIVERS=$BUILD
    for url in "$HOLDFAST_STORE" "sqlite:$PWD/db"; do
        run env --default-signal=XFSZ sh -c 'ulimit -f 0; exec "$0" -S "$1" run k -- true' \
            "$HOLDFAST" "$url"
        [ "$status" = 69 ]
        [ "${#lines[@]}" = 1 ]
        [[ $output =~ (File too large|disk I/O error)"; $state"$ ]]
    done
    run env --default-signal=XFSZ "$HOLDFAST" run "$K" -- sh -c 'kill -XFSZ $$'
    [ "$status" = 153 ]
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

@test "stores that can't be opened: why, and the status" {
    run holdfast -S "file:$PWD/no/such/directory/store" run "$K" -- true
    [ "$status" != 0 ]
    [ "${#lines[@]}" = 1 ]
    : >zero
    for command in "run -n $K -- true" "ls" "show $K" "once $K -- true" "doctor" "bench"; do
        # shellcheck disable=SC2086
        run holdfast -S "file:$PWD/zero" $command
        refused 65
    done
    echo 'not a store at all' >other
    run holdfast -S "file:$PWD/other" run "$K" -- true
    refused 65
    mkdir directory
    run holdfast -S "file:$PWD/directory" run "$K" -- true
    [ "$status" != 0 ]
    [ "${#lines[@]}" = 1 ]
}

@test "the command that is installed makes no call fail, and writes no trace" {
    HOLDFAST_FAULT=any:1+:denied HOLDFAST_TRACE=$PWD/trace "$HOLDFAST" run -n "$K" -- touch ran
    [ -e ran ]
    [ ! -e trace ]
}

@test "a store that fails: which status, and one line" {
    made
    for pair in unavailable:69 denied:77 corrupt:65 full:69; do
        export HOLDFAST_FAULT=any:1+:${pair%:*}
        for how in "run -n $K -- true" "run -w 0.3 $K -- true" "once -n $K -- true" \
            "acquire -n $K --lease 5" "show $K" "ls"; do
            # shellcheck disable=SC2086
            run timeout 600 "$(the_command)" $how
            refused "${pair#*:}"
        done
    done
}

@test "no permission: 77" {
    mkdir locked
    chmod 0 locked
    if [ "$(id -u)" = 0 ]; then
        cp "$HOLDFAST" hf
        chmod 755 . hf
        chmod 711 "$BATS_RUN_TMPDIR" "$BATS_TEST_TMPDIR/.." || true
        # What it counts (tools/coverage) goes where it may write, and not unsaid.
        mkdir -m 777 counts
        GCOV_PREFIX=$PWD/counts run setpriv --reuid 65534 --clear-groups "$PWD/hf" \
            -S "file:$PWD/locked/store" run "$K" -- true
    else
        run holdfast -S "file:$PWD/locked/store" run "$K" -- true
    fi
    refused 77
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
        "nosuch://host/?a=1&sslpassword=$secret&b=2"; do
        run holdfast -S "$url" run "$K" -- true
        [ "$status" = 64 ]
        [[ $output != *"$secret"* ]]
        run holdfast doctor "$url"
        [ "$status" = 64 ]
        [[ $output != *"$secret"* ]]
    done
    # The last one counts; both are wiped, and the command's environment has neither.
    background -S "nosuch://anna:$secret@host/x" run --store="nosuch://h/?token=$secret" \
        -S "$HOLDFAST_STORE" "$K" -- sh -c 'echo "$HOLDFAST_STORE" >url; exec sleep 1200'
    await test -s url
    tr '\0' ' ' <"/proc/$PID/cmdline" >cmdline
    grep -q 'anna:\*\*\*.*@host/x run ' cmdline
    run grep "$secret" cmdline url bg.err
    [ "$status" = 1 ]
    grep -q password bg.err
}
