#!/usr/bin/env bats
# s3: what is this store's own, on the server of servers/s3, and before one that ignores conditions.

bats_require_minimum_version 1.5.0
load ../../cli/cli_common
load ../drivers_common
setup() {
    cli_setup
    BASE=${HOLDFAST_TEST_STORE#*endpoint=}
    STORE="s3://locks/test$BATS_TEST_NUMBER?endpoint=${BASE%%&*}"
}
teardown() { cli_teardown; }

# A server in memory, whose store is $STORE then.
fake() { # [WHAT IT IGNORES]
    "$SOURCE/tests/drivers/s3/s3_fake.py" "$PWD/port" "$@" 3>&- &
    STARTED+=($!)
    until [ -s port ]; do sleep 0.02; done
    STORE="s3://locks/p?endpoint=http://127.0.0.1:$(cat port)"
}
unsafe() { # WHY
    run holdfast -S "$STORE" doctor
    echo "$output"
    [ "$status" = 65 ]
    [[ $output == *"not safe, because $1"* ]]
}

@test "doctor: a server that ignores conditions is not safe" {
    fake ignore
    unsafe ''
    [[ $output == *"BAD   eight processes lose no update"* ]]
}

@test "doctor: a server that ignores the condition of a removal is not safe" {
    fake ignore-removals
    unsafe ''
}

@test "ls -v and doctor say which bucket, where it is, and below which name" {
    local at=${BASE%%&*}
    HOLDFAST_STORE=$STORE \
        says_where "the bucket locks at $at, below test$BATS_TEST_NUMBER/, asked as holdfast"
}

@test "a read that shows one object's ETag and another's content is made again" {
    fake torn
    holdfast -S "$STORE" doctor
}

@test "a write that a proxy sends twice is one" {
    fake twice
    holdfast -S "$STORE" run "$K" -- true
    holdfast -S "$STORE" run -s "$K" -- true
    holdfast -S "$STORE" once event -- true
    run holdfast -S "$STORE" once event -- false
    [[ $output == *done* ]]
    holdfast -S "$STORE" forget event
    eval "$(holdfast -S "$STORE" acquire --lease 9s "$K")"
    holdfast -S "$STORE" renew --token "$HOLDFAST_TOKEN" "$K"
    holdfast -S "$STORE" break --token "$HOLDFAST_TOKEN" "$K"
}

@test "a reply with the ETag of something else grants nothing" {
    fake foreign
    holdfast -S "$STORE" run "$K" -- "$HOLDFAST" -S "$STORE" show "$K" --json | grep '"held":true'
    holdfast -S "$STORE" once event -- true
    run holdfast -S "$STORE" once event -- false
    [[ $output == *done* ]]
}

@test "a server whose ETags are no sums keeps locks" {
    fake others
    holdfast -S "$STORE" run "$K" -- true
    holdfast -S "$STORE" doctor
}

@test "a server whose ETags are no sums any more keeps locks" {
    fake others-later
    for _ in {1..8}; do holdfast -S "$STORE" run "$K" -- true; done
    holdfast -S "$STORE" doctor
}

@test "doctor says good, and what it removed are objects that are no rows" {
    holdfast -S "$STORE" doctor
    [ -z "$(holdfast -S "$STORE" ls --all)" ]
    grep -qr '"removed"' "$HOLDFAST_TEST_DIR/data/locks/test$BATS_TEST_NUMBER"
    run grep -r '"rev"' "$HOLDFAST_TEST_DIR/data/locks/test$BATS_TEST_NUMBER"
    [ "$status" = 1 ]
}

@test "what isn't a row is damaged, and hides no other" {
    holdfast -S "$STORE" run good -- true
    holdfast -S "$STORE" run other -- true
    echo '{"format":2}' >"$HOLDFAST_TEST_DIR/data/locks/test$BATS_TEST_NUMBER/good"
    run holdfast -S "$STORE" show good
    [ "$status" = 65 ]
    run holdfast -S "$STORE" ls --all
    [[ $output == *other* ]]
}

@test "more rows than a page has are listed" {
    dir=$HOLDFAST_TEST_DIR/data/locks/test$BATS_TEST_NUMBER
    holdfast -S "$STORE" run k0 -- true
    for i in {1..1005}; do cp --preserve=all "$dir/k0" "$dir/k$i"; done
    [ "$(holdfast -S "$STORE" ls --all --json | wc -l)" = 1006 ]
}

@test "a lease that is too short for the clock is refused" {
    run holdfast -S "$STORE" run --lease 5s "$K" -- true
    [ "$status" = 64 ]
    [[ $output == *"too short for this store's clock"* ]]
}

@test "the lease of a killed holder ends" {
    "$HOLDFAST" -S "$STORE" run --lease 6s "$K" -- sleep 60 3>&- &
    holder=$!
    STARTED+=("$holder")
    until holdfast -S "$STORE" show "$K" --json | grep -q '"held":true'; do sleep 0.1; done
    kill -KILL "$holder"
    holdfast -S "$STORE" run -w 30s "$K" -- true
}

@test "a wrong key is DENIED, a bucket that isn't there is no store" {
    AWS_SECRET_ACCESS_KEY=wrong run holdfast -S "$STORE" run "$K" -- true
    echo "$output"
    [ "$status" = 77 ]
    run holdfast -S "s3://nobody/x?endpoint=${BASE%%&*}" run -n "$K" -- true
    echo "$output"
    [ "$status" = 69 ]
    [[ $output == *"no such bucket"* ]]
}
