#!/usr/bin/env bats
# Damaged rows among sound ones, in the store of $HOLDFAST_TEST_STORE.
# shellcheck disable=SC2154  # what run sets

bats_require_minimum_version 1.5.0
load cli_common
setup() { cli_setup; }
teardown() { cli_teardown; }

# Damages the row of a key.
spoil() {
    local name=${HOLDFAST_STORE#*:}
    case $HOLDFAST_STORE in
    sqlite:*) sqlite3 -bail "$name" "UPDATE holdfast SET queue = 'x' WHERE key = '$1'" ;;
    postgres:*) psql -X -q -v ON_ERROR_STOP=1 "$HOLDFAST_STORE" \
        -c "UPDATE holdfast SET queue = '5' WHERE key = '$1'" ;;
    redis:*) redis-cli -e -s "${name#*socket=}" hset "holdfast:$1" queue x ;;
    etcd:*) ETCDCTL_API=3 etcdctl --endpoints "${name#//}" put "/holdfast/$1" x ;;
    *) false ;;
    esac >/dev/null
}

# Copies the row of a key to a name that no key has.
misname() {
    local name=${HOLDFAST_STORE#*:}
    case $HOLDFAST_STORE in
    sqlite:*) sqlite3 -bail "$name" "
        CREATE TEMP TABLE other AS SELECT * FROM holdfast WHERE key = '$1';
        UPDATE other SET key = '$1' || char(10); INSERT INTO holdfast SELECT * FROM other" ;;
    postgres:*) psql -X -q -v ON_ERROR_STOP=1 "$HOLDFAST_STORE" \
        -c "CREATE TEMP TABLE other AS SELECT * FROM holdfast WHERE key = '$1'" \
        -c "UPDATE other SET key = '$1' || chr(10)" \
        -c "INSERT INTO holdfast SELECT * FROM other" ;;
    redis:*) redis-cli -e -s "${name#*socket=}" copy "holdfast:$1" "holdfast:$1"$'\n' ;;
    etcd:*) ETCDCTL_API=3 etcdctl --endpoints "${name#//}" get --print-value-only "/holdfast/$1" |
        ETCDCTL_API=3 etcdctl --endpoints "${name#//}" put "/holdfast/$1"$'\n' ;;
    *) false ;;
    esac >/dev/null
}

@test "what has no key's name isn't a lock" {
    eval "$(holdfast acquire "$K/a" --lease 60s)"
    misname "$K/a"
    eval "$(holdfast acquire "$K/b" --lease 60s)"
    run --separate-stderr holdfast ls "$K/"
    [ "$status" = 0 ]
    [ "${#lines[@]}" = 3 ]
    [[ ${lines[1]} == *"$K/a "* && ${lines[2]} == *"$K/b "* ]]
    [ -z "$stderr" ]
    holdfast prune --idle 60s
}

@test "ls names a damaged row, and shows the others" {
    for name in a b c d e; do
        eval "$(holdfast acquire "$K/$name" --lease 60s)"
    done
    run --separate-stderr holdfast ls "$K/"
    [ "$status" = 0 ]
    [ "${#lines[@]}" = 6 ]
    spoil "$K/b"
    spoil "$K/e"
    run --separate-stderr holdfast ls "$K/"
    [ "$status" = 65 ]
    [ "${#lines[@]}" = 4 ]
    for name in a c d; do [[ $output == *"$K/$name "* ]]; done
    [ "${#stderr_lines[@]}" = 2 ]
    for name in b e; do [[ $stderr == *"holdfast: "*"$K/$name': the row is damaged: "* ]]; done
    run --separate-stderr holdfast ls --json "$K/"
    [ "$status" = 65 ]
    [ "${#lines[@]}" = 5 ]
    [[ ${lines[0]} == "{\"key\":\"$K/a\","*'"held":true'* ]]
    [[ ${lines[1]} == "{\"key\":\"$K/b\",\"damaged\":\""*': the row is damaged: '*'"}' ]]
    [[ ${lines[4]} == "{\"key\":\"$K/e\",\"damaged\":\""* ]]
    [ "${#stderr_lines[@]}" = 2 ]
}

@test "what looks at damaged rows for a change, or to delete them, ends there" {
    eval "$(holdfast acquire "$K/a" --lease 60s)"
    spoil "$K/a"
    run timeout 600 "$HOLDFAST" watch "$K/"
    [ "$status" = 65 ]
    [[ $output == *"$K/a': the row is damaged: "* ]]
    run holdfast prune --idle 60s
    [ "$status" = 65 ]
    [[ $output == *"': the row is damaged: "* ]]
}
