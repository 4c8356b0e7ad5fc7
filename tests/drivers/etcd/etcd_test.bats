#!/usr/bin/env bats
# etcd: and etcds:, what is their own: the leases behind the holds, logins, which member is
# asked, what an alarm becomes. With a server of tests/servers/etcd.

bats_require_minimum_version 1.5.0
load ../../cli/cli_common
load ../drivers_common
setup() {
    cli_setup
    export ETCDCTL_API=3
    AT=${HOLDFAST_STORE#etcd://}
}
teardown() { cli_teardown; }

ask() { etcdctl --endpoints "$AT" "$@"; }
leases() { ask lease list | sed 1d | grep -c .; }
# The leases that were granted for so many seconds.
of() {
    ask lease list | sed 1d | while read -r id; do
        ask lease timetolive "$id" | grep "TTL($1s)" >/dev/null && echo "$id"
    done || true
}
row() {
    ask get --print-value-only "/holdfast/$K" | head -c -1 |
        protoc --proto_path="$SOURCE/drivers/etcd" --decode=hf_et.Row etcd.proto
}
no_leases() { [ "$(leases)" = 0 ]; }

@test "all holds of a process share a lease, which ends with it" {
    await no_leases
    run holdfast run "$K/a" "$K/b" "$K/c" -- etcdctl --endpoints "$AT" lease list
    [ "$status" = 0 ]
    [ "${lines[0]}" = "found 1 leases" ]
    await no_leases
    [ -z "$(ask get --prefix --keys-only "/holdfast/$K" | grep $'\t[0-9a-f]')" ]
}

@test "a row can be read with protoc" {
    hold "$K" --owner e1
    token=$(holdfast show --json "$K" | grep -o '"token":[0-9]*' | head -n 1 | cut -d: -f2)
    row >row
    cat row
    grep -x 'format: 1' row
    grep -x "token: $token" row
    grep -x '  owner: "e1"' row
    [ "$(grep -c '^ *[0-9]' row)" = 0 ] # all fields have names
}

@test "a killed holder's key is the next one's when its lease is over" {
    hold "$K" --lease 4s
    kill -KILL "$PID" "$(cat cmd.pid)"
    SECONDS=0
    run holdfast run -w 600 "$K" -- true
    [ "$status" = 0 ]
    [ "$SECONDS" -lt 25 ] # the lease of others is 30 s
}

@test "a revoked lease is noticed by its holder, and given to the next" {
    hold "$K" --lease 4s
    background run -w 600 "$K" -- true
    next=$PID
    await waiters "$K" 1
    ask lease revoke "$(of 4)"
    finished "$next"
    [ "$STATUS" = 0 ]
    finished "${STARTED[0]}"
    [ "$STATUS" = 76 ]
}

@test "the end of a lease that was made under a former leader isn't believed at once" {
    for _ in 1 2 3 4 5 6; do # its holder mustn't have gone over to another one, on a busy machine
        hold "$K" --lease 9s
        lease=$(session)
        background run -w 600 "$K" -- sh -c "! kill -0 $(cat cmd.pid) && echo alone >alone"
        next=$PID
        await waiters "$K" 1
        restarted
        ask lease revoke "$lease"
        [ "$(session)" != "$lease" ] || break
        kill -KILL "$next"
        K=$K-
        rm cmd.pid
    done
    finished "$next"
    [ "$STATUS" = 0 ]
    [ -e alone ]
    finished "${STARTED[-2]}"
    [ "$STATUS" = 76 ]
    # Nothing is left behind.
    run holdfast run "$K" -- true
    [ "$status" = 0 ]
    run ask get --prefix --keys-only "/holdfast/$K"
    echo "$output"
    [ "$status" = 0 ]
    [[ $output != *$'\t'[0-9a-f]* ]]
}

@test "holds go over to a lease of the new leader's term" {
    hold "$K" --lease 4s
    lease=$(session)
    restarted
    await moved
    kill -KILL "$PID" "$(cat cmd.pid)"
    run holdfast run -w 600 "$K" -- true
    [ "$status" = 0 ]
}

restarted() { # the old leader may wake, and end what it thinks has run out
    "$HOLDFAST_TEST_CONTROL" kill
    "$HOLDFAST_TEST_CONTROL" start
}
session() { # of the holder: the queue comes later in the row
    printf %016x "$(row | sed -n 's/^  session: //p' | head -n 1)"
}
moved() { [ "$(session)" != "$lease" ]; }

@test "who waits is woken after the history was compacted, too" {
    for _ in 1 2 3 4 5 6; do # a busy machine may be late once
        woken_after_compaction
        [ "$SECONDS" -ge 4 ] || return 0 # without a watch it would look every 5 s
    done
    return 1
}

woken_after_compaction() {
    rm -f cmd.pid
    hold "$K"
    background run -w 600 "$K" -- true
    await waiters "$K" 1
    revision=$(ask put other x -w json | grep -o '"revision":[0-9]*' | cut -d: -f2)
    ask compact "$revision"
    ask put other y
    kill -TERM "$(cat cmd.pid)"
    SECONDS=0
    finished
    [ "$STATUS" = 0 ]
}

# A machine that stands still for a second may be too late, but not each time.
last_second() { # LEASE, in seconds
    local last
    eval "$(holdfast acquire "$K-$1" --lease "$1s")"
    last=$(awk "BEGIN { print $1 - 0.8 }")
    sleep "$last"
    run holdfast renew "$K-$1" --token "$HOLDFAST_TOKEN" --lease 60
    echo "$output"
    [ "$status" = 0 ] && held "$K-$1"
}
@test "a grant is renewed in the last second of its lease" {
    for lease in 2 5; do
        last_second $lease || { await free "$K-$lease" && last_second $lease; } ||
            { await free "$K-$lease" && last_second $lease; }
    done
}

@test "another's lease is renewed, kept after its process, and ended by a release" {
    await no_leases
    eval "$(holdfast acquire "$K" --lease 30s)"
    holdfast renew "$K" --token "$HOLDFAST_TOKEN" --lease 60s
    [ -n "$(of 60)" ]
    [ -z "$(of 30)" ]
    held "$K"
    holdfast release "$K" --token "$HOLDFAST_TOKEN"
    free "$K"
    await no_leases
}

@test "the next member is asked if one can't be reached" {
    dead=127.0.0.1:1
    run holdfast -S "etcd://$dead,$AT" run "$K" -- true
    [ "$status" = 0 ]
    run holdfast -S "etcd://$dead,127.0.0.1:2" run -n "$K" -- true
    refused 69
}

@test "a member that is mute costs a part of the time, not all of it" {
    exec {mute}< <(exec python3 -c '
import signal, socket
with socket.socket() as s:
    s.bind(("127.0.0.1", 0))
    s.listen()
    print(s.getsockname()[1], flush=True)
    signal.pause()')
    STARTED+=($!)
    read -r port <&"$mute"
    run holdfast -S "etcd://127.0.0.1:$port,$AT" run "$K" -- true
    [ "$status" = 0 ]
    run holdfast -S "etcd://127.0.0.1:$port" run -n "$K" -- true
    refused 69
}

# What carries HTTP/1.1 only, in front of the server; its port is $port.
http1() { # [DIR: over TLS, with the certificate that is there]
    exec {ports}< <(exec python3 - "$AT" "$@" <<'END'
import signal, socket, ssl, sys, threading
host, port = sys.argv[1].split(':')
tls = None
if len(sys.argv) > 2:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(sys.argv[2] + '/tls.pem', sys.argv[2] + '/tls.key')
    tls.set_alpn_protocols(['http/1.1'])
def pump(a, b):
    try:
        while data := a.recv(65536):
            b.sendall(data)
        b.shutdown(socket.SHUT_WR)
    except OSError:
        pass
def serve(one):
    try:
        one = tls.wrap_socket(one, server_side=True) if tls else one
        first = one.recv(65536)
        if first.startswith(b'PRI '):
            one.sendall(b'HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n')
        elif first:
            to = socket.create_connection((host, int(port)))
            to.sendall(first)
            threading.Thread(target=pump, args=(to, one), daemon=True).start()
            pump(one, to)
            return
        one.close()
    except OSError:
        pass
s = socket.create_server(('127.0.0.1', 0))
print(s.getsockname()[1], flush=True)
while True:
    threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
END
    )
    STARTED+=($!)
    read -r port <&"$ports"
}

@test "what carries HTTP/1.1 only is told" {
    http1
    run holdfast -S "etcd://127.0.0.1:$port" run -n "$K" -- true
    refused 64
    [[ $output == *"no HTTP/2 there, which gRPC needs"* ]]
    http1 "$(dirname "${HOLDFAST_TEST_TLS#*cafile=}")"
    tls="etcds://127.0.0.1:$port/?cafile=${HOLDFAST_TEST_TLS#*cafile=}"
    run holdfast -S "$tls" run -n "$K" -- true
    refused 64
    [[ $output == *"no HTTP/2 there, which gRPC needs"* ]]
}

@test "what speaks no HTTP at all is told what is missing; a lack of descriptors isn't its fault" {
    exec {ports}< <(exec python3 -c 'import socket
s = socket.create_server(("127.0.0.1", 0))
print(s.getsockname()[1], flush=True)
while True:
    one = s.accept()[0]
    one.sendall(b"SSH-2.0-other\r\n")
    one.close()')
    STARTED+=($!)
    read -r port <&"$ports"
    run holdfast -S "etcd://127.0.0.1:$port" ls
    refused 69
    [[ $output == *"; the address for gRPC has to serve HTTP/1.1, too"* ]]
    for most in 5 6 7 8 9 10 11 12 13 14; do
        (ulimit -n $most && exec "$HOLDFAST" ls) 2>>said || continue
    done
    grep -q 'etcd: connect .*Too many open files' said
    run ! grep 'has to serve' said
}

@test "over TLS; a certificate that nobody vouches for is refused" {
    run holdfast -S "$HOLDFAST_TEST_TLS" run "$K" -- "$HOLDFAST" -S "$HOLDFAST_STORE" show "$K"
    [ "$status" = 0 ]
    [[ $output == *"held by"* ]]
    hold "$K"
    STORE=$HOLDFAST_STORE
    HOLDFAST_STORE=$HOLDFAST_TEST_TLS
    background run -w 600 "$K" -- true # woken over TLS
    await waiters "$K" 1
    HOLDFAST_STORE=$STORE
    kill -TERM "$(cat cmd.pid)"
    finished
    [ "$STATUS" = 0 ]
    run holdfast -S "${HOLDFAST_TEST_TLS%%\?*}" run -n "$K" -- true
    refused 77
    run holdfast -S "etcds:${HOLDFAST_STORE#etcd:}" run -n "$K" -- true
    refused 69 "what answers there doesn't speak TLS"
}

@test "a key that needs a password is refused, and nobody is asked for it" {
    ca=${HOLDFAST_TEST_TLS#*cafile=}
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -days 2 \
        -passout pass:s3cr3t -keyout locked.key -out locked.pem -subj /CN=locked 2>/dev/null
    url="${HOLDFAST_TEST_TLS%%\?*}?cafile=$ca&cert=$PWD/locked.pem&key=$PWD/locked.key"
    # On a terminal, where it could be asked for.
    run timeout 60 script -qec "'$HOLDFAST' -S '$url' ls" /dev/null
    echo "$output"
    [ "$status" = 77 ]
    [[ $output != *hrase* ]]
}

@test "a command inherits no connection" {
    # shellcheck disable=SC2016  # the command's
    run holdfast run "$K" -- bash -c '
        for n in $(readlink /proc/$$/fd/* | sed -n "s/^socket:.\(.*\).$/\1/p"); do
            grep " $n " /proc/net/tcp /proc/net/tcp6 && echo "connection $n"
        done
        echo done'
    echo "$output"
    [ "$status" = 0 ]
    [ "$output" = "done" ]
}

@test "options that aren't known, or belong together" {
    for bad in 'prefix=x' 'cafile=/x' 'tls=true' 'api=json'; do
        run holdfast -S "$HOLDFAST_STORE/?$bad" ls
        refused 64
        [[ $output == *"${bad%%=*}"* ]]
    done
    run holdfast -S "${HOLDFAST_TEST_TLS}&cert=/x" ls
    refused 64
    [[ $output == *"cert"* ]]
}

@test "what isn't a row is damage, and stays as it is" {
    ask put "/holdfast/$K" "something else"
    run holdfast run -n "$K" -- true
    refused 65
    [ "$(ask get --print-value-only "/holdfast/$K")" = "something else" ]
}

@test "a prefix of its own" {
    run holdfast -S "$HOLDFAST_STORE/app/locks" run "$K" -- \
        etcdctl --endpoints "$AT" get --prefix --keys-only "/app/locks/$K"
    [ "$status" = 0 ]
    [ "${lines[0]}" = "/app/locks/$K" ]
    HOLDFAST_STORE+=/app/locks says_where "the rows are the keys that begin with '/app/locks/'"
}

@test "used-up space: nothing is granted, and doctor says so" {
    member=$(ask member list -w json | grep -o '"ID":[0-9]*' | head -n 1 | cut -d: -f2)
    alarm() {
        curl -sf "http://$AT/v3/maintenance/alarm" \
            -d "{\"action\":\"$1\",\"alarm\":\"NOSPACE\",\"memberID\":\"$member\"}" >/dev/null
    }
    alarm ACTIVATE
    run holdfast run -n "$K" -- true
    full="$status $output"
    run holdfast doctor
    alarm DEACTIVATE
    echo "$full"
    [[ $full == *"space exceeded"* ]]
    [ "$status" != 0 ]
    [[ $output == *"BAD "*NOSPACE* ]]
    run holdfast run -n "$K" -- true
    [ "$status" = 0 ]
}

@test "users and roles: who may not is denied, who may needs no more than the prefix" {
    ask user add root:r00t
    ask user add locks:s3cr3t-word
    ask user add other:0ther
    ask role add locks
    ask role grant-permission locks --prefix=true readwrite /holdfast/
    ask user grant-role locks locks
    ask auth enable
    for who in '' other:0ther@ locks:wrong@; do
        run holdfast -S "etcd://$who$AT" run -n "$K" -- true
        echo ": $status $output" >>denied
    done
    "$HOLDFAST" -S "etcd://locks:s3cr3t-word@$AT" doctor >examined || true
    run holdfast -S "etcd://locks:s3cr3t-word@$AT" run "$K" -- true
    ask --user root:r00t auth disable
    cat denied
    [ "$(grep -c ': 77 ' denied)" = 3 ]
    cat examined
    [ "$(grep -c '^BAD' examined)" = 0 ]
    [ "$(grep -c 'wrong\|0ther' denied)" = 0 ]
    [ "$status" = 0 ]
}

@test "TLS: a new authority in the file is trusted when it connects again" {
    authority_changes "${HOLDFAST_TEST_TLS%%\?*}?cafile=$PWD/trusted.pem" \
        "$(dirname "${HOLDFAST_TEST_TLS#*cafile=}")"
}
