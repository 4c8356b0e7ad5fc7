#!/usr/bin/env bats
# redis: and rediss:, against servers that each test starts for itself: logins, what is
# refused, what survives, what an error of the server becomes.

bats_require_minimum_version 1.5.0
load ../../cli/cli_common
load ../drivers_common
setup() {
    cli_setup
    export HOLDFAST_DRIVERS=$BUILD
    SERVER=
}
teardown() {
    cli_teardown
    local pid
    for pid in $(cat ./*.server 2>/dev/null); do
        { kill -KILL "$pid" && wait "$pid"; } 2>/dev/null || true
    done
}

# redis NAME [OPTION...]: a server that listens on the socket NAME in this directory; its pid is in
# NAME.server, its store becomes HOLDFAST_STORE.
redis() {
    local name=$1
    shift
    mkdir -p "$name.d"
    redis-server --port 0 --unixsocket "$PWD/$name" --dir "$PWD/$name.d" --save '' \
        --daemonize no --logfile "$PWD/$name.log" "$@" >>"$name.log" 2>&1 </dev/null 3>&- &
    SERVER=$!
    echo "$SERVER" >"$name.server"
    HOLDFAST_STORE="redis:?socket=$PWD/$name"
    await answers "$name" || { cat "$name.log"; return 1; }
}
answers() { redis-cli -s "$1" ping 2>&1 | grep -q 'PONG\|NOAUTH'; }
ask() { redis-cli -s "$PWD/store" "$@"; }
free_port() { "$SOURCE/tests/servers/free_port"; }
@test "a good server: doctor says so" {
    redis store
    run holdfast doctor
    echo "$output"
    [ "$status" = 0 ]
    [[ $output != *"BAD "* ]]
    [[ $output == *"maxmemory-policy noeviction"* ]]
    [[ $output == *"in the database 0, in keys that begin with 'holdfast:'"* ]]
    [ -z "$(holdfast ls --all)" ]
    [ "$(ask dbsize)" = 0 ]
}

@test "ls -v and doctor say which database, and what the keys begin with" {
    redis store
    says_where "the locks are in the database 0, in keys that begin with 'holdfast:'"
    HOLDFAST_STORE+='&db=3&prefix=shop/' \
        says_where "the locks are in the database 3, in keys that begin with 'shop/'"
}

@test "an eviction policy is refused, by doctor in words; one that spares rows isn't" {
    redis store --maxmemory-policy allkeys-lru
    run holdfast doctor
    [ "$status" = 65 ]
    [[ $output == *"not safe, because "*allkeys-lru* ]]
    run holdfast run "$K" -- true
    refused 64
    [[ $output == *allkeys-lru* ]]
    ask config set maxmemory-policy volatile-lru
    holdfast run "$K" -- true
}

@test "a replica is refused; a server that becomes one doesn't show the past" {
    port=$(free_port)
    redis first --port "$port" --bind 127.0.0.1
    master=$HOLDFAST_STORE
    redis store --replicaof 127.0.0.1 "$port"
    run holdfast doctor
    [ "$status" = 65 ]
    [[ $output == *"not safe, because "*replica* ]]
    run holdfast show "$K"
    refused 64
    # Watching, it keeps its connection while the server's part changes.
    HOLDFAST_STORE=$master
    "$HOLDFAST" run "$K" --lease 5 -- sleep 1200 >held.out 2>held.err 3>&- &
    PID=$!
    STARTED+=("$PID")
    await held "$K"
    redis-cli -s first replicaof no.such.host.invalid 1
    finished
    [ "$STATUS" = 76 ]
}

@test "wait: a write counts when so many replicas have it" {
    port=$(free_port)
    redis store --port "$port" --bind 127.0.0.1
    master=$HOLDFAST_STORE
    redis copy --replicaof 127.0.0.1 "$port"
    await sh -c 'redis-cli -s copy info replication | grep -q "master_link_status:up"'
    HOLDFAST_STORE="$master&wait=1"
    holdfast run -n "$K" -- true
    eval "$(holdfast acquire "$K" --lease 60)"
    [ "$(redis-cli -s copy hget "holdfast:$K" token)" = "$HOLDFAST_TOKEN" ]
    # Nor does a later look take for granted what it reads of it, by this client or another.
    HOLDFAST_STORE="$master&wait=2" run holdfast run -w 6 "$K-2" -- true
    refused 69
    HOLDFAST_STORE="$master&wait=2" run holdfast show "$K"
    refused 69
    [[ $output == *"1 of 2 replicas have it"* ]]
    HOLDFAST_STORE="$master&wait=x" run holdfast show "$K"
    refused 64
}

# The holder before has opened the store otherwise, and what it did may be lost.
@test "wait: who is handed a key by one who didn't wait for replicas waits for them" {
    port=$(free_port)
    redis store --port "$port" --bind 127.0.0.1
    master=$HOLDFAST_STORE
    redis copy --replicaof 127.0.0.1 "$port"
    await sh -c 'redis-cli -s copy info replication | grep -q "master_link_status:up"'
    HOLDFAST_STORE=$master
    hold "$K"
    holder=$PID
    HOLDFAST_STORE="$master&wait=1" background run -w 600 "$K" -- touch ran
    await waiters "$K" 1
    kill -STOP "$(cat copy.server)"
    kill "$(cat cmd.pid)"
    finished "$holder"
    sleep 1
    [ ! -e ran ]
    kill -CONT "$(cat copy.server)"
    finished "$PID"
    [ "$STATUS" = 0 ]
    [ -e ran ]
}

@test "passwords: which are right, and never shown" {
    secret=s3cr3t-$RANDOM
    port=$(free_port)
    redis store --port "$port" --bind 127.0.0.1 --requirepass "$secret"
    HOLDFAST_STORE="redis://:$secret@127.0.0.1:$port" holdfast run "$K" -- true
    HOLDFAST_STORE="redis://default:$secret@127.0.0.1:$port/3" holdfast run "$K-3" -- true
    REDISCLI_AUTH=$secret ask -n 3 exists "holdfast:$K-3" | grep -q 1
    echo "$secret" >pass
    HOLDFAST_STORE="redis:?socket=$PWD/store&passfile=$PWD/pass" holdfast run "$K" -- true
    for url in "redis://127.0.0.1:$port" "redis://:no-$secret@127.0.0.1:$port" \
        "redis://nobody:$secret@127.0.0.1:$port"; do
        HOLDFAST_STORE=$url run holdfast run "$K" -- true
        refused 77
        [[ $output != *"$secret"* ]]
    done
    for rest in "" "?nosuch=1" "/db" "?passfile=$PWD/pass"; do # the first has no colon
        HOLDFAST_STORE="redis://${rest:+:}$secret@127.0.0.1:$port$rest"
        run holdfast run "$K" -- true
        refused 64
        [[ $output != *"$secret"* ]]
    done
    # `run` takes the password out of the URL that its command gets.
    url="redis://:$secret@127.0.0.1:$port"
    for nested in 'run -n inner -- true' 'ls'; do
        # shellcheck disable=SC2086,SC2016
        HOLDFAST_STORE=$url run holdfast run "$K" -- "$HOLDFAST" $nested
        refused 77 "(store redis://127.0.0.1:$port, named by HOLDFAST_STORE)" \
            "'holdfast run' around this command passes on no password" passfile=
        [[ $output != *"$secret"* ]]
    done
    # A server that quotes what it doesn't understand.
    redis odd --rename-command AUTH ''
    HOLDFAST_STORE="redis://:$secret@/?socket=$PWD/odd" run holdfast run "$K" -- true
    [ "$status" != 0 ]
    [[ $output != *"$secret"* ]]
}

@test "a password in a file: no secret is its name; a new one is used when it connects again" {
    redis store --requirepass one
    echo one >pass
    HOLDFAST_STORE="$HOLDFAST_STORE&passfile=$PWD/pass"
    run holdfast -S "$HOLDFAST_STORE" run "$K" -- \
        sh -c '"$HOLDFAST" run -n "$1" -- echo in' - "$K-in"
    echo "$output"
    [ "$output" = in ]
    hold "$K"
    background run -w 30 "$K" -- true
    await waiters "$K" 1
    echo two >pass
    REDISCLI_AUTH=one ask config set requirepass two
    REDISCLI_AUTH=two ask client kill type pubsub
    REDISCLI_AUTH=two ask client kill type normal
    kill "$(cat cmd.pid)"
    finished
    [ "$STATUS" = 0 ]
}

@test "what a URL may not say" {
    redis store
    for query in 'nosuch=1' 'prefix=' 'wait=-1' 'db=x' 'db=1&db=1' 'socket=' 'cacert=x' \
        "prefix=$(printf 'p%.0s' {1..65})" 'passfile=/dev'; do
        HOLDFAST_STORE="redis://127.0.0.1:1/?$query" run holdfast show "$K"
        refused 64
        what=${query%%=*}
        [[ $output == *"${what/passfile/password file}"* ]]
    done
    HOLDFAST_STORE="rediss:?socket=$PWD/store" run holdfast show "$K"
    refused 64
    HOLDFAST_STORE="redis://a:1,b:2" run holdfast show "$K"
    refused 64
    HOLDFAST_STORE="redis:?socket=$PWD/store&db=99" run holdfast show "$K"
    refused 64
}

# As documented, word for word.
@test "a user with the least privileges of the page" {
    redis store
    rights=$(sed -n '/ACL SETUSER locks/,/^$/p' "$SOURCE/doc/stores/redis.md" | tr -s ' \n' ' ')
    [[ $rights == *"+eval "* ]]
    # shellcheck disable=SC2086
    ask ${rights/PASSWORD/geheim}
    HOLDFAST_STORE="redis://locks:geheim@/?socket=$PWD/store"
    run holdfast doctor
    echo "$output"
    [ "$status" = 0 ]
    [[ $output != *"BAD "* ]]
    ask acl log | grep -q . && { ask acl log; false; }
    HOLDFAST_STORE="$HOLDFAST_STORE&prefix=other:" run holdfast show "$K"
    refused 77
    # What may be left out.
    ask acl setuser locks -info '-script|load' '-client|setname' -scan -wait -select resetchannels
    holdfast run "$K" -- true
    hand_over "$K-2"
    run holdfast ls
    refused 77
    # And what may not: nothing is left behind.
    ask acl setuser locks -hset
    run holdfast run "$K-3" -- true
    refused 77
    [ "$(ask exists "holdfast:$K-3")" = 0 ]
}

certificates() { # NAME...: a CA, and a certificate that it signs for 127.0.0.1
    local name
    for name; do
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 \
            -keyout "$name-ca.key" -out "$name-ca.pem" -subj "/CN=$name CA" 2>/dev/null
        openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes \
            -keyout "$name.key" -out "$name.csr" -subj "/CN=$name" 2>/dev/null
        printf 'subjectAltName=IP:127.0.0.1,DNS:store.test\n' >"$name.ext"
        openssl x509 -req -in "$name.csr" -CA "$name-ca.pem" -CAkey "$name-ca.key" -days 2 \
            -CAcreateserial -extfile "$name.ext" -out "$name.pem" 2>/dev/null
    done
}

@test "TLS: who the server is, and who we are" {
    certificates ours theirs
    port=$(free_port) plain=$(free_port)
    redis store --tls-port "$port" --port "$plain" --bind 127.0.0.1 --tls-auth-clients optional \
        --tls-cert-file "$PWD/ours.pem" --tls-key-file "$PWD/ours.key" \
        --tls-ca-cert-file "$PWD/theirs-ca.pem"
    url="rediss://127.0.0.1:$port/?cacert=$PWD/ours-ca.pem"
    HOLDFAST_STORE=$url run holdfast doctor
    echo "$output"
    [ "$status" = 0 ]
    # Waiters are woken over it.
    HOLDFAST_STORE=$url hold "$K"
    HOLDFAST_STORE=$url background run -w 30 "$K" -- true
    waiter=$PID
    await waiters "$K" 1
    kill "$(cat cmd.pid)"
    finished "$waiter"
    [ "$STATUS" = 0 ]
    HOLDFAST_STORE="$url&servername=store.test" holdfast run "$K" -- true
    for wrong in "$url&servername=other.test" "rediss://localhost:$port/?cacert=$PWD/ours-ca.pem" \
        "rediss://127.0.0.1:$port/?cacert=$PWD/theirs-ca.pem" "rediss://127.0.0.1:$port"; do
        HOLDFAST_STORE=$wrong run holdfast run "$K" -- true
        refused 77
        [[ $output == *certificate* ]]
    done
    HOLDFAST_STORE="rediss://127.0.0.1:$port/?cacert=$PWD/nosuch.pem" run holdfast show "$K"
    refused 69
    [[ $output == *"cacert "*"No such file"* ]]
    HOLDFAST_STORE="$url&cert=$PWD/theirs.pem" run holdfast show "$K"
    refused 64
    # A key that is another's; one that wants a passphrase is nobody's, and nobody is asked for it.
    openssl pkcs8 -topk8 -in theirs.key -passout pass:word -out locked.key
    for wrong in "cert=$PWD/none&key=$PWD/theirs.key" "cert=$PWD/theirs.pem&key=$PWD/none"; do
        HOLDFAST_STORE="$url&$wrong" run holdfast show "$K"
        refused 69
        [[ $output == *"'$PWD/none': No such file"* ]]
    done
    for wrong in "cert=$PWD/theirs.pem&key=$PWD/ours.key" \
        "cert=$PWD/theirs.pem&key=$PWD/locked.key" \
        "cert=a&cert=a" "key=a&key=a" "servername=a&servername=a" "cacert=a"; do
        HOLDFAST_STORE="$url&$wrong" run holdfast show "$K"
        refused 64
        [[ $output == *"${wrong%%=*}: "* || $output == *"key: "* ]]
    done
    HOLDFAST_STORE="rediss://127.0.0.1:$plain/?cacert=$PWD/ours-ca.pem" run holdfast show "$K"
    refused 69
    # One of the two that speaks plainly to a server that doesn't.
    HOLDFAST_STORE="redis://127.0.0.1:$port" run holdfast show "$K"
    refused 69
    ask config set tls-auth-clients yes # we are nobody then
    HOLDFAST_STORE=$url run holdfast show "$K"
    refused 77
    HOLDFAST_STORE="$url&cert=$PWD/theirs.pem&key=$PWD/theirs.key" holdfast run "$K" -- true
    # The server gets a certificate of another authority: the file that names it is read again.
    ask config set tls-auth-clients optional
    cp ours-ca.pem trusted.pem
    HOLDFAST_STORE="rediss://127.0.0.1:$port/?cacert=$PWD/trusted.pem"
    rm cmd.pid
    hold "$K-new"
    background run -w 30 "$K-new" -- true
    await waiters "$K-new" 1
    cp theirs-ca.pem trusted.pem
    ask config set tls-cert-file "$PWD/theirs.pem" tls-key-file "$PWD/theirs.key"
    ask client kill type pubsub
    ask client kill type normal
    kill "$(cat cmd.pid)"
    finished
    [ "$STATUS" = 0 ]
}

@test "keys are data: patterns, braces, blanks, and what looks like a protocol" {
    redis store
    keys=('a*' 'a?' 'a[b]' 'a\' 'a^' '{a}b' 'a b' "a'b" 'a"b' '$1' '*3' 'é' 'a%b' ':'
        "$(printf 'x%.0s' {1..512})")
    for key in "${keys[@]}" aa ab; do holdfast run "$key" -- true; done
    [ "$(ask dbsize)" = $((${#keys[@]} + 2)) ]
    for prefix in 'a*' 'a?' 'a[' 'a\' '{a}' '*'; do
        run holdfast ls --all --json "$prefix"
        echo "$prefix: $output"
        [ "${#lines[@]}" = 1 ]
    done
    run holdfast ls --all --json
    [ "${#lines[@]}" = $((${#keys[@]} + 2)) ]
    [ "$(ask hget 'holdfast:a[b]' owner)" = '' ]
}

@test "many rows are listed once each" {
    redis store
    holdfast run "$K" -- true
    ask eval "for i = 1, 5000 do redis.call('COPY', KEYS[1], 'holdfast:many/' .. i) end" \
        1 "holdfast:$K"
    [ "$(holdfast ls --all many/ --json | sort | uniq | wc -l)" = 5000 ]
    ask script flush
    [ "$(holdfast ls --all many/1 --json | wc -l)" = 1111 ]
}

@test "what isn't a row is an error, never a free key, and stays as it is" {
    redis store
    ask set "holdfast:$K" precious
    ask hset "holdfast:$K-2" field precious
    holdfast run "$K-3" -- true
    ask hset "holdfast:$K-3" format 1
    holdfast run "$K-4" -- true
    ask hdel "holdfast:$K-4" owner
    holdfast run "$K-5" -- true
    ask hset "holdfast:$K-5" rev 9007199254740993
    for key in "$K" "$K-2" "$K-3" "$K-4" "$K-5"; do
        before=$(ask dump "holdfast:$key")
        for command in "run -n" "once -n"; do
            # shellcheck disable=SC2086
            run holdfast $command "$key" -- true
            refused 65
            [[ $output == *"$key"* ]]
        done
        run holdfast show "$key"
        refused 65
        [ "$(ask dump "holdfast:$key")" = "$before" ]
    done
    run holdfast ls --all
    [ "$status" = 65 ]
    run holdfast show "$K-3"
    [[ $output == *"rows of format 1, "*"delete the keys that begin with its prefix"*markers* ]]
}

@test "after FLUSHALL, and after a lost script, tokens go on growing" {
    redis store
    last=0
    for i in 1 2 3 4; do
        eval "$(holdfast acquire "$K" --lease 60)"
        [ "$HOLDFAST_TOKEN" -gt "$last" ]
        last=$HOLDFAST_TOKEN
        case $i in
        1) ask flushall ;;
        2) ask script flush; holdfast release "$K" --token "$last" ;;
        3) ask del "holdfast:$K" ;;
        esac
    done
}

@test "FLUSHALL under a holder: its command is stopped" {
    redis store
    "$HOLDFAST" run "$K" --lease 5 -- sleep 1200 >held.out 2>held.err 3>&- &
    PID=$!
    STARTED+=("$PID")
    await held "$K"
    ask flushall
    finished
    [ "$STATUS" = 76 ]
}

@test "a server killed and started again: holders hold, waiters wait, tokens grow" {
    redis store --appendonly yes --appendfsync always
    hold "$K"
    holder=$PID
    before=$(token "$K")
    background run -w 600 "$K" -- sh -c 'echo "$HOLDFAST_TOKEN" >next'
    waiter=$PID
    await waiters "$K" 1
    kill -KILL "$SERVER"
    wait "$SERVER" || true
    run holdfast run -n "$K" -- true
    refused 69
    redis store --appendonly yes --appendfsync always
    [ "$(token "$K")" = "$before" ]
    run holdfast run -n "$K" -- true
    [ "$status" = 75 ]
    kill "$(cat cmd.pid)"
    finished "$waiter"
    [ "$STATUS" = 0 ]
    [ "$(cat next)" -gt "$before" ]
    finished "$holder"
}

@test "a server paused for longer than the lease: no overlap, and the holder hears of it" {
    redis store
    "$HOLDFAST" run "$K" --lease 5 -- sh -c 'echo in >>log; sleep 1200; echo late >>log' \
        >held.out 2>held.err 3>&- &
    holder=$!
    STARTED+=("$holder")
    await held "$K"
    before=$(token "$K")
    background run -w 600 "$K" -- sh -c 'echo "$HOLDFAST_TOKEN" >next'
    await waiters "$K" 1
    kill -STOP "$SERVER"
    finished "$holder"
    [ "$STATUS" = 76 ]
    kill -CONT "$SERVER"
    finished "$PID"
    [ "$STATUS" = 0 ]
    [ "$(cat next)" -gt "$before" ]
    [ "$(cat log)" = in ]
}

@test "connections that are cut are made anew, and waiters are still woken" {
    redis store
    hold "$K"
    background run -w 600 "$K" -- true
    await waiters "$K" 1
    ask client kill type pubsub
    ask client kill type normal skipme yes
    await held "$K"
    kill "$(cat cmd.pid)"
    finished
    [ "$STATUS" = 0 ]
}

@test "a server that is away, mute, full, busy or loading: which status, and one line" {
    port=$(free_port)
    HOLDFAST_STORE="redis://127.0.0.1:$port" run holdfast run -n "$K" -- true
    refused 69
    HOLDFAST_STORE="redis:?socket=$PWD/nosuch" run holdfast run -n "$K" -- true
    refused 69
    redis store
    ask config set busy-reply-threshold 50 || ask config set lua-time-limit 50
    ask eval 'while true do end' 0 >/dev/null 2>&1 3>&- &
    await sh -c 'redis-cli -s store ping 2>&1 | grep -q BUSY'
    run holdfast run -n "$K" -- true
    refused 69
    [[ $output == *BUSY* ]]
    ask script kill
    await answers store
    ask config set maxmemory 1
    run holdfast run -n "$K" -- true
    refused 69
    [[ $output == *memory* ]]
    ask config set maxmemory 0
    holdfast run "$K" -- true
    kill -STOP "$SERVER"
    run timeout 600 "$HOLDFAST" run -n "$K" -- true
    kill -CONT "$SERVER"
    refused 69
    # It can't save, and says so.
    rmdir store.d
    ask config set save '1 1'
    ask bgsave
    await sh -c 'redis-cli -s store info persistence | grep -q last_bgsave_status:err'
    run holdfast run -n "$K" -- true
    refused 69
    [[ $output == *MISCONF* ]]
}

@test "a renewal that is refused: the loss names the first reason, and what it means for the key" {
    redis store
    hold "$K" --lease 4s
    rmdir store.d
    ask config set save '1 1'
    ask bgsave
    await sh -c 'redis-cli -s store info errorstats | grep -q MISCONF'
    kill -KILL "$SERVER"
    finished
    cat bg.err
    [ "$STATUS" = 76 ]
    gone "$(cat cmd.pid)"
    [ "$(wc -l <bg.err)" = 1 ]
    grep -q "the lock on '$K' is lost; stopping the command: " bg.err
    grep -q 'its lease (4 s) ran out, as it could not be renewed: redis: .*MISCONF' bg.err
}

@test "a cluster: all rows in one slot, or none" {
    for name in store other; do
        redis "$name" --port "$(free_port)" --bind 127.0.0.1 --cluster-enabled yes \
            --cluster-port "$(free_port)"
    done
    run holdfast doctor "redis:?socket=$PWD/store"
    [ "$status" = 65 ]
    [[ $output == *"not safe, because "*cluster* ]]
    # Slot 12182 belongs to the tag "foo", the other node has it.
    [ "$(ask cluster keyslot '{foo}x')" = 12182 ]
    ask cluster addslotsrange 0 8191
    redis-cli -s other cluster addslotsrange 8192 16383
    ask cluster meet 127.0.0.1 "$(redis-cli -s other config get port | tail -1)" \
        "$(redis-cli -s other config get cluster-port | tail -1)"
    await sh -c 'redis-cli -s store cluster info | grep -q cluster_state:ok &&
        redis-cli -s other cluster info | grep -q cluster_state:ok'
    HOLDFAST_STORE="redis:?socket=$PWD/store&prefix={foo}:" run holdfast run -n "$K" -- true
    refused 64
    [[ $output == *MOVED*prefix* ]]
    HOLDFAST_STORE="redis:?socket=$PWD/other&prefix={foo}:"
    for key in '{bar}' '{}' plain; do holdfast run "$key" -- true; done
    [ "$(holdfast ls --all --json | wc -l)" = 3 ]
}

@test "writes that are refused for as long as the limit are the store's failure, not a holder" {
    redis store
    ask config set min-replicas-to-write 1
    for limit in '-n' '-w 0.3'; do
        # shellcheck disable=SC2086  # words
        run holdfast run $limit "$K" -- true
        refused 69
        [[ $output == *NOREPLICAS* ]]
    done
}

@test "too many clients: waited out within the limit, at once with -n" {
    redis store
    holdfast run "$K" -- true
    { echo client setname sits && await test -e go >/dev/null; } | ask &
    await eval 'ask client list | grep name=sits'
    ask config set maxclients 1
    await eval '! answers store'
    run holdfast run -n "$K" -- touch ran
    refused 69
    [[ $output == *"max number of clients"* ]]
    background run -v -w 600 "$K" -- touch ran
    await eval 'grep -q "max number of clients" bg.err || gone "$PID"'
    grep -q 'is tried again' bg.err
    touch go
    finished
    cat bg.err
    [ "$STATUS" = 0 ]
    [ -e ran ]
}
