#!/usr/bin/env bats
# What runs a command with a server of its own (tests/servers) leaves nothing behind, whatever ends
# it: no process, no folder, no shared memory.

setup() {
    # shellcheck source=tests/gone.sh
    . "$SOURCE/tests/gone.sh"
    # Short, as names of sockets have to be, and open to PostgreSQL's user.
    was=${TMPDIR:-/tmp}
    TMPDIR=$(mktemp -d "$was/servers.XXXXXX")
    chmod 711 "$TMPDIR"
    # A test that asks for a free port, there or here, asks the same one.
    TMPDIR=$was "$SOURCE/tests/servers/free_port" >/dev/null
    ln "$was/holdfast-ports-$(id -u)" "$TMPDIR/"
    export TMPDIR
    cd "$TMPDIR" || exit
}

teardown() {
    cd /
    for pid in ${script-} ${pids-}; do gone "$pid" || kill -KILL "$pid"; done
    rm -rf "$TMPDIR"
}

await() { # COMMAND...: until it succeeds, or for a minute
    for _ in {1..3000}; do
        ! "$@" || return 0
        sleep 0.02
    done
    echo "in vain: $*"
    return 1
}

# Runs KIND with a command that makes the file `started` and waits, and signals KIND alone then.
start_and() { # SIGNAL KIND [COMMAND...]
    signal=$1 kind=$2
    shift 2
    [ $# != 0 ] || set -- sh -c ': >started; exec sleep 1000'
    # bash lets what it starts in the background ignore SIGINT; nohup, SIGHUP.
    env --default-signal=INT,HUP "$SOURCE/tests/servers/$kind" \
        sh -c 'echo $$ >command; exec "$@"' sh "$@" 3>&- >said &
    script=$!
    await test -e started
    pids="$(cat command) $(cat holdfast-"$kind".*/pid* 2>/dev/null || true)"
    kill "-$signal" "$script"
    await gone "$script"
    status=0
    wait "$script" || status=$?
}

no_folder() { [ -z "$(compgen -G "holdfast-$kind.*")" ]; }
all_gone() { for pid in $pids; do gone "$pid" || return; done; }
all_ended() { # STATUS
    cat said
    [ "$status" = "$1" ]
    no_folder
    all_gone
}

# The command and so many servers are running, and end.
ended() { # KIND PROCESSES
    start_and TERM "$1"
    [ "$(wc -w <<<"$pids")" = "$2" ]
    all_ended 143
}
@test "postgres: SIGTERM ends the server and the command" { ended postgres 2; }
@test "postgres_pair: SIGTERM ends the servers and the command" { ended postgres_pair 3; }
@test "mariadb: SIGTERM ends the server and the command" { ended mariadb 2; }
@test "nats: SIGTERM ends the server and the command" { ended nats 2; }
@test "s3: SIGTERM ends the server and the command" { ended s3 2; }
@test "nats_cluster: SIGTERM ends the servers and the command" { ended nats_cluster 4; }
@test "redis: SIGTERM ends the server and the command" { ended redis 2; }
@test "redis_pair: SIGTERM ends the servers and the command" { ended redis_pair 3; }
@test "etcd: SIGTERM ends the server and the command" { ended etcd 2; }
@test "etcd_cluster: SIGTERM ends the servers and the command" { ended etcd_cluster 4; }
@test "valkey: SIGTERM ends the server and the command" { ended valkey 2; }
@test "etcd35: SIGTERM ends the server and the command" { ended etcd35 2; }
@test "mongodb: SIGTERM ends the server and the command" { ended mongodb 2; }
@test "firestore: SIGTERM ends the server and the command" { ended firestore 2; }
@test "sqlite: SIGTERM ends the command" { ended sqlite 1; }

@test "SIGINT and SIGHUP do, too" {
    start_and INT redis
    all_ended 130
    rm started
    start_and HUP redis
    all_ended 129
}

@test "what the command has started ends with it, even what ignores SIGTERM" {
    start_and TERM sqlite sh -c 'sh -c "trap : TERM; : >deaf; while :; do sleep 1; done" &
        echo $! >child
        until [ -e deaf ]; do sleep 0.02; done
        : >started
        wait'
    pids="$pids $(cat child)"
    all_ended 143
}

@test "upon SIGKILL, which is not to be heard of, all of it ends a little later" {
    for kind in postgres redis; do
        rm -f started
        start_and KILL "$kind"
        [ "$status" = 137 ]
        await no_folder
        all_gone
    done
}

@test "a server that was started again by the control ends, too" {
    start_and TERM redis sh -c '"$HOLDFAST_TEST_CONTROL" kill && "$HOLDFAST_TEST_CONTROL" start &&
        : >started && exec sleep 1000'
    all_ended 143
}

@test "the command has the input, its status, and SIGINT as ever" {
    run "$SOURCE/tests/servers/sqlite" sh -c 'cat; exit 7' <<<'what is read'
    [ "$status" = 7 ]
    [ "$output" = 'what is read' ]
    run env --default-signal=INT,HUP "$SOURCE/tests/servers/sqlite" sh -c 'kill -INT $$; exit 9'
    [ "$status" = 130 ]
}

# Of the servers of others that run beside this, it knows nothing: these are this one's own.
@test "postgres leaves no shared memory, killed and started again or not" {
    run "$SOURCE/tests/servers/postgres" sh -c '
        dir=${HOLDFAST_TEST_CONTROL%/*}
        segment() { awk "NR == 7 { print \$2 }" "$dir/data/postmaster.pid"; }
        psql -XAtqc "SHOW dynamic_shared_memory_type" "$HOLDFAST_TEST_STORE"
        segment
        "$HOLDFAST_TEST_CONTROL" kill && "$HOLDFAST_TEST_CONTROL" start || exit
        segment'
    echo "$output"
    [ "$status" = 0 ]
    [ "${lines[0]}" = mmap ]
    [ "${#lines[@]}" = 3 ]
    for id in "${lines[@]:1}"; do [[ "$(ipcs -m -i "$id" 2>&1)" != *"shmid=$id"* ]]; done
}

@test "mongodb leaves no counters of clients that were killed, and those of who lives" {
    sleep 1000 3>&- &
    lives=$!
    sh -c : &
    dead=$!
    wait "$dead"
    : >"/dev/shm/mongoc-$lives"
    : >"/dev/shm/mongoc-$dead"
    run "$SOURCE/tests/servers/mongodb" true
    left=$(ls /dev/shm)
    kill "$lives"
    rm -f "/dev/shm/mongoc-$lives" "/dev/shm/mongoc-$dead"
    [ "$status" = 0 ]
    [[ "$left" = *"mongoc-$lives"* ]]
    [[ "$left" != *"mongoc-$dead"* ]]
}
