#!/usr/bin/env bats
# Stores that can't be used: one line that says what was attempted, what happened and what is so
# then, and the status.

bats_require_minimum_version 1.5.0
load cli_common
setup() { cli_setup; }
teardown() { cli_teardown; }

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

@test "a store that fails at the first request: which store it is, and what is so then" {
    export HOLDFAST_DRIVERS=$BUILD FIRESTORE_EMULATOR_HOST=127.0.0.1:1
    while IFS='|' read -r words state; do
        # shellcheck disable=SC2086
        run --separate-stderr holdfast -S firestore://p $words
        [ "$status" = 69 ]
        # shellcheck disable=SC2154 # bats sets it
        [[ $stderr == "holdfast: "*"firestore: "*"connect to server\
 (store firestore://p, named by -S)$state" ]]
    done <<END
run -n $K -- true|; nothing was acquired, and nothing was executed
once -n $K -- true|; nothing was acquired, and nothing was executed
acquire -n $K --lease 9|; nothing was acquired
show $K|
ls|
forget $K|; the mark was not removed
END
    run holdfast doctor redis://127.0.0.1:1
    [ "$status" = 69 ]
    [[ $output == "holdfast: doctor: redis: connect '127.0.0.1:1': "* ]]
    [[ $output == *"; the store is neither proved nor refuted" ]]
}

@test "a URL that can't be parsed: what may be a password in it is not shown" {
    printf 'hunter2\n' >pass
    for url in redis://:hunter2 redis://default:hunter2 hunter2 @pass; do
        run holdfast -S "$url" run -n k -- true
        [ "$status" = 64 ]
        [[ $output != *hunter2* ]]
        [ "$url" = @pass ] && continue
        HOLDFAST_STORE=$url run holdfast stores
        [ "$status" = 0 ]
        [[ $output == *"Without -S the store is "* && $output != *hunter2* ]]
    done
    # It isn't in the arguments while the command goes on, here until its standard input has a line.
    mkfifo url
    env --default-signal "$HOLDFAST" -S redis://:hunter2 ls -S hunter2 -S @- \
        <url >bg.out 2>&1 3>&- &
    PID=$!
    STARTED+=("$PID")
    exec 9>url
    # shellcheck disable=SC2016  # each time anew
    await eval 'args=$(tr "\0" " " <"/proc/$PID/cmdline")
        [[ $args == *"redis: "* && $args != *hunter2* ]]'
    echo mem: >&9
    exec 9>&-
    finished "$PID"
    [ "$STATUS" = 0 ]
}

@test "a store that can't be opened: for which key, and what is so then" {
    export HOLDFAST_DRIVERS=$BUILD
    while IFS='|' read -r words about state; do
        # shellcheck disable=SC2086
        run --separate-stderr holdfast -S redis://127.0.0.1:1 $words
        [ "$status" = 69 ]
        # shellcheck disable=SC2154 # bats sets it
        [ "$stderr" = "holdfast: $about: redis: connect '127.0.0.1:1': Connection refused\
 (store redis://127.0.0.1:1, named by -S)$state" ]
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

@test "a change that the store refuses: of which key, and what is so then" {
    holdfast once k -- true
    holdfast acquire k2 --lease 10m
    token=$(token k2)
    while IFS='|' read -r words about state; do
        # shellcheck disable=SC2086
        HOLDFAST_FAULT='replace:*:full,update:*:full' run holdfast ${words/TOKEN/$token}
        [ "$status" = 69 ]
        [[ $output == "holdfast: $about: fault: "*": no room left; $state" ]]
    done <<'END'
renew k2 --token TOKEN|renew 'k2'|the lease was not extended
break k2 --token TOKEN|break 'k2'|the grant was not ended
forget k|forget 'k'|the mark was not removed
END
    for words in "renew k2 --token $token" "release k2 --token $token" "enter k2 --token $token" \
        "break k2 --token $token"; do
        # shellcheck disable=SC2086
        HOLDFAST_FAULT='get:*:denied' run holdfast $words
        [ "$status" = 77 ]
        [[ $output == "holdfast: ${words%% *} 'k2': fault: get 'k2': "*"; the "*" not "* ]]
    done
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

@test "a program is there, but not its interpreter: which one" {
    mkdir bin
    printf '#! /no/such/sh -e\n' >bin/bad-script
    printf '#!/bin/sh\r\n' >bin/dos
    chmod +x bin/*
    state="isn't; nothing was executed, and the lock is given back"
    for word in ./bin/bad-script bad-script; do
        for option in -o -F; do
            PATH=$PWD/bin:$PATH run -127 holdfast run $option k -- "$word"
            [ "$output" = "holdfast: run 'k': execute '$word': the file is there, but its\
 interpreter '/no/such/sh' or what that needs $state" ]
        done
    done
    run -127 holdfast run k -- bin/dos
    [[ $output == *"but its interpreter '/bin/sh?' or what that needs $state" ]]
    # As execvp(3): an empty part of PATH is the current directory.
    for path in "bin::/usr/bin" ":$PATH" "$PATH:" ""; do
        cd bin
        run -127 env PATH="$path" "$HOLDFAST" run k -- bad-script
        cd ..
        [[ $output == *"but its interpreter '/no/such/sh' or"* ]]
    done
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

@test "a full disk is told as one" {
    state="nothing was acquired, and nothing was executed"
    which='( .store .*.)?' # which store it is
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
        [[ ${lines[0]} =~ (No space left on device|disk is full)$which"; $state"$ ]]
        why="(No space left on device|disk is full)$which"
        [[ ${lines[2]} =~ $why("; nothing was acquired")?$ ]]
    done
}

@test "standard descriptors that are closed, and no /dev/null: the store gets no output" {
    export HOLDFAST_DRIVERS=$BUILD
    for url in "file:$PWD/store" "sqlite:$PWD/store.db"; do
        holdfast -S "$url" run "$K" -- true
        after=$(holdfast -S "$url" show "$K")
        for first in : 'mount -t tmpfs none /dev'; do
            run unshare -rm bash -ec "$first"'; exec <&-; "$0" --version; exec >&- 2>&-
                "$0" -S "$1" run -v "$2" -- sh -c "echo out\$((1 + 1))put
                    echo out\$((1 + 1))put >&2; true"' "$HOLDFAST" "$url" "$K"
            [ "$status" = 0 ]
            [[ $output == "holdfast "* && ${#lines[@]} == 1 ]]
            run grep -aE 'out2put|holdfast: ' store*
            [ "$status" = 1 ]
            before=$after
            after=$(holdfast -S "$url" show "$K")
            [[ $after == "$K: free"* && $after != "$before" ]]
        done
    done
    [ "$(sqlite3 store.db 'PRAGMA integrity_check')" = ok ]
}

@test "a limit of a file's size is told like a full disk; the command has it as it was" {
    state="nothing was acquired, and nothing was executed"
    export HOLDFAST_DRIVERS=$BUILD
    for url in "$HOLDFAST_STORE" "sqlite:$PWD/db"; do
        run env --default-signal=XFSZ sh -c 'ulimit -f 0; exec "$0" -S "$1" run k -- true' \
            "$HOLDFAST" "$url"
        [ "$status" = 69 ]
        [ "${#lines[@]}" = 1 ]
        [[ $output =~ (File too large|disk I/O error)" (store $url, named by -S); $state"$ ]]
    done
    run env --default-signal=XFSZ "$HOLDFAST" run "$K" -- sh -c 'kill -XFSZ $$'
    [ "$status" = 153 ]
}

@test "stores that can't be opened: why, and the status" {
    run holdfast -S "file:$PWD/no/such/directory/store" run "$K" -- true
    [ "$status" != 0 ]
    [ "${#lines[@]}" = 1 ]
    : >zero
    for command in "run -n $K -- true" "ls" "show $K" "once $K -- true" "bench"; do
        # shellcheck disable=SC2086
        run holdfast -S "file:$PWD/zero" $command
        refused 65
    done
    run holdfast doctor "file:$PWD/zero"
    [ "$status" = 65 ]
    [ "${lines[-1]}" = '1 of 1 checks failed: do not trust it' ]
    echo 'not a store at all' >other
    run holdfast -S "file:$PWD/other" run "$K" -- true
    refused 65
    mkdir directory
    run holdfast -S "file:$PWD/directory" run "$K" -- true
    [ "$status" != 0 ]
    [ "${#lines[@]}" = 1 ]
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
