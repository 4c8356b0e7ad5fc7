#!/usr/bin/env bats
# nats: what is this store's own, on the server of servers/nats.

bats_require_minimum_version 1.5.0
load ../../cli/cli_common
load ../drivers_common
setup() {
    cli_setup
    BUCKET=test$BATS_TEST_NUMBER
    STORE=${HOLDFAST_TEST_STORE%/*}/$BUCKET
}
teardown() {
    becomes s3cr3t-word
    ask "\$JS.API.STREAM.DELETE.KV_$BUCKET" >/dev/null || true
    cli_teardown
}

ask() {
    port=${HOLDFAST_TEST_STORE##*:}
    "$SOURCE/tests/servers/nats_ask.py" "${port%%/*}" "$@"
}
logs_in() { # PASSWORD
    holdfast -S "nats://locks:$1@127.0.0.1:$(cat "$HOLDFAST_TEST_DIR/port")/$BUCKET" ls
}
# The server takes this password for the user `locks`, whose connections end if it is another one.
becomes() { # PASSWORD
    ! grep -q "locks, password: \"$1\"" "$HOLDFAST_TEST_DIR/server.conf" || return 0
    sed -i "s/locks, password: \"[^\"]*/locks, password: \"$1/" "$HOLDFAST_TEST_DIR/server.conf"
    kill -HUP "$(cat "$HOLDFAST_TEST_DIR/pid")"
    await logs_in "$1"
}
# The bucket, with other settings than it has by itself.
bucket() { # [JSON...]
    ask "\$JS.API.STREAM.CREATE.KV_$BUCKET" "{\"name\": \"KV_$BUCKET\", \"num_replicas\": 1,
        \"subjects\": [\"\$KV.$BUCKET.>\"], \"max_msgs_per_subject\": 1${1:+, $1}}"
}
# doctor finds one thing, and says it.
unsafe() { # WHY
    run holdfast -S "$STORE" doctor
    echo "$output"
    [ "$status" = 65 ]
    [[ $output == *"BAD   $1"* ]]
    [[ $output == *"not safe, because $1"* ]]
    [[ $output == *"1 of "*" failed"* ]]
}

@test "doctor says good of a bucket that the store has made" {
    holdfast -S "$STORE" run "$K" -- true
    run holdfast -S "$STORE" doctor
    echo "$output"
    [ "$status" = 0 ]
    [[ $output == *"the locks are in the bucket '$BUCKET'"* ]]
}

@test "ls -v and doctor say which bucket" {
    HOLDFAST_STORE=$STORE says_where "the locks are in the bucket '$BUCKET'; waiters are notified"
}

@test "doctor: a bucket in memory is not safe" {
    bucket '"storage": "memory"'
    unsafe 'storage: memory: a restart of the server loses all locks'
}

@test "doctor: a bucket with a TTL is not safe" {
    bucket '"storage": "file", "max_age": 60000000000, "duplicate_window": 1000000000'
    unsafe 'the bucket has a TTL: it deletes rows of held locks'
}

@test "doctor: a limited bucket that discards the old is not safe" {
    bucket '"storage": "file", "max_bytes": 10000000, "discard": "old"'
    unsafe 'the bucket has a limit and discards old messages: it loses rows'
}

@test "a full bucket is FULL, and no row is lost" {
    bucket '"storage": "file", "max_bytes": 3000, "discard": "new"'
    STATUS=0
    for i in 1 2 3 4 5 6 7 8 9 10 11 12; do
        run holdfast -S "$STORE" run -n "$K.$i" -- true
        [ "$status" = 0 ] || STATUS=$status
    done
    echo "$output"
    [ "$STATUS" = 69 ]
    [[ $output == *"the bucket is full"* ]]
    holdfast -S "$STORE" show "$K.1"
}

@test "streams that aren't such a bucket are refused with the reason" {
    ask "\$JS.API.STREAM.CREATE.KV_$BUCKET" \
        "{\"name\": \"KV_$BUCKET\", \"subjects\": [\"other.$BUCKET\"]}"
    run holdfast -S "$STORE" run "$K" -- true
    echo "$status $output"
    [ "$status" = 64 ]
    [[ $output == *"the stream isn't a bucket of keys and values"* ]]
    ask "\$JS.API.STREAM.DELETE.KV_$BUCKET"
    bucket '"retention": "workqueue"'
    run holdfast -S "$STORE" run "$K" -- true
    echo "$status $output"
    [ "$status" = 64 ]
    [[ $output == *"the stream deletes messages when they are read"* ]]
}

@test "a bucket that is gone is made again by a lock; who only looks makes none" {
    run holdfast -S "$STORE" ls
    echo "$output"
    [ "$status" = 69 ]
    [[ $output == *"no store at"*"no bucket '$BUCKET'"* ]]
    run ! ask "\$JS.API.STREAM.INFO.KV_$BUCKET"
    holdfast -S "$STORE" run "$K" -- "$SOURCE/tests/servers/nats_ask.py" \
        "$(port=${HOLDFAST_TEST_STORE##*:}; echo "${port%%/*}")" \
        "\$JS.API.STREAM.DELETE.KV_$BUCKET" || true
    holdfast -S "$STORE" run "$K" -- true
    ask "\$JS.API.STREAM.INFO.KV_$BUCKET"
}

@test "a key is the key of a bucket, and back" {
    holdfast -S "$STORE" run 'a.b/C-9_=*>% é' -- true
    holdfast -S "$STORE" run '_x' -- true
    run ask "\$JS.API.STREAM.INFO.KV_$BUCKET" '{"subjects_filter": ">"}'
    echo "$output"
    [[ $output == *"\$KV.$BUCKET.a=2Eb/C-9_=3D=2A=3E=25=20=C3=A9\""* ]]
    [[ $output == *"\$KV.$BUCKET.=5Fx\""* ]]
    run holdfast -S "$STORE" ls --all
    [[ $output == *'a.b/C-9_=*>% é'* ]]
    [[ $output == *$'\n_x '* ]]
}

@test "a value that is no row is damage, not a free key" {
    holdfast -S "$STORE" run sound -- true
    for value in '' 'x' '[]' '{"format": 2}'; do
        ask "\$KV.$BUCKET.damaged" "$value"
        run holdfast -S "$STORE" run -n damaged -- true
        echo "$output"
        [ "$status" = 65 ]
    done
    run holdfast -S "$STORE" ls --all
    echo "$output"
    [[ $output == *sound* ]]
}

@test "options that don't fit are refused with the reason" {
    at=${HOLDFAST_TEST_STORE%/*}
    for url in "$at/a.b" "$at/b?replicas=6" "$at/b?tls=maybe" "$at/b?tls_cert=/x" \
        "$at/b?tls=off&tls_ca=/x" "$at/b?creds=/dev" "$at/b?passfile=/dev" "$at/b?hosts=a" \
        "nats://a:1,b:x/b"; do
        run holdfast -S "$url" run "$K" -- true
        echo "$status $output"
        [ "$status" = 64 ]
        [ "${#lines[@]}" = 1 ]
    done
    for url in "$at/b?creds=$PWD/none" "$at/b?passfile=$PWD/none" "$at/b?tls_ca=$PWD/none"; do
        run holdfast -S "$url" run -n "$K" -- true
        echo "$status $output"
        [ "$status" = 69 ]
        [[ $output == *"No such file"* ]]
    done
}

@test "a password is denied if it is wrong, is in a file, and is never told" {
    at=${HOLDFAST_TEST_STORE#nats://}
    run holdfast -S "nats://locks:wrong-word@${at%/*}/$BUCKET" run "$K" -- true
    echo "$output"
    [ "$status" = 77 ]
    [[ $output != *wrong-word* ]]
    echo s3cr3t-word >"$BATS_TEST_TMPDIR/word"
    holdfast -S "nats://locks@${at%/*}/$BUCKET?passfile=$BATS_TEST_TMPDIR/word" run "$K" -- true
}

@test "a new password in the file is used when it connects again" {
    at=${HOLDFAST_TEST_STORE#nats://}
    at=${at%/*}
    echo s3cr3t-word >word
    export HOLDFAST_STORE="nats://locks@$at/$BUCKET?passfile=$PWD/word"
    hold "$K"
    holding=$PID
    background run -w 60 "$K" -- true
    await waiters "$K" 1
    echo another-word >word
    becomes another-word
    run -77 logs_in s3cr3t-word
    kill "$(cat cmd.pid)"
    finished
    cat bg.err
    [ "$STATUS" = 0 ]
    finished "$holding"
    [ "$STATUS" = 143 ]
}

@test "a token is written as a password, and never told" {
    at=${HOLDFAST_TEST_STORE#nats://}
    for more in "" "?nosuch=1" "?passfile=" "?tls_ca=/none"; do
        run holdfast -S "nats://s3cr3t-token@${at%/*}/$BUCKET$more" run -v "$K" -- true
        echo "$output"
        [ "$status" = 64 ]
        [[ $output == *"nats://:TOKEN@HOST"* && $output != *s3cr3t-token* ]]
    done
    run holdfast -S "nats://:s3cr3t-token@${at%/*}/$BUCKET" run -v "$K" -- true
    echo "$output"
    [ "$status" = 77 ]
    [[ $output != *s3cr3t-token* ]]
}

@test "SIGPIPE stays what it was, for what is run too" {
    run bash -c 'trap "" PIPE; trap - PIPE
        exec "$HOLDFAST" -S "$1" run k -- sh -c "grep SigIgn /proc/self/status"' x "$STORE"
    echo "$output"
    [ "$status" = 0 ]
    (( (0x${output##*[[:space:]]} >> 12) % 2 == 0 ))
}
