#!/usr/bin/env bats
# mongodb:, against servers that each test starts for itself: what is refused, what the documents
# are, what survives, what an error of the server becomes.

bats_require_minimum_version 1.5.0
load ../../cli/cli_common
load ../drivers_common
setup_file() {
    CLASS_PATH=$("$SOURCE/tools/mongo-java-server")
    export CLASS_PATH
}
setup() {
    cli_setup
    export HOLDFAST_DRIVERS=$BUILD
}
teardown() {
    cli_teardown
    local pid
    for pid in $(cat ./*.server 2>/dev/null); do
        { kill -KILL "$pid" && wait "$pid"; } 2>/dev/null || true
    done
}

# mongo [HOW...]: a server as InMemoryMongo.java has it; its pid is SERVER. Its store becomes
# HOLDFAST_STORE; what it was asked is in the file "commands".
mongo() {
    java -Xmx128m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp "$CLASS_PATH" InMemoryMongo \
        "${PORT:-0}" "$PWD/commands" "$PWD/up" "$@" >>server.log 2>&1 </dev/null 3>&- &
    SERVER=$!
    echo "$SERVER" >"$SERVER.server"
    await listening || { cat server.log; return 1; }
    PORT=$(cut -d ' ' -f 2 up)
    HOLDFAST_STORE=mongodb://127.0.0.1:$PORT/app
}
listening() { [ "$(cut -d ' ' -f 1 up)" = "$SERVER" ]; }
# Python's eye on the rows.
ask() {
    /usr/bin/python3 -c "
import pymongo, sys
db = pymongo.MongoClient('127.0.0.1', $PORT).app
rows = db.holdfast
$1"
}
# Acquires; the grant's token.
token() { holdfast acquire "$@" | sed -n "s/^HOLDFAST_TOKEN='\(.*\)'/\1/p"; }

@test "a good server: doctor says so" {
    mongo
    run holdfast doctor # looking makes no collection
    [ "$status" = 69 ]
    [[ $output == "holdfast: doctor: no store at "*"no collection holdfast"* ]]
    holdfast run made -- true
    ask 'rows.delete_many({})'
    run holdfast doctor
    echo "$output"
    [ "$status" = 0 ]
    [[ $output != *"BAD "* ]]
    [[ $output == *"a single server"*"- a waiter looks about every 250 ms"* ]]
    [ "$(ask 'print(rows.estimated_document_count())')" = 0 ]
}

@test "ls -v and doctor say which collection and which database" {
    mongo
    says_where "the rows are documents of collection 'holdfast' in database 'app'"
    HOLDFAST_STORE="${HOLDFAST_STORE%/*}/shop?collection=locks" \
        says_where "the rows are documents of collection 'locks' in database 'shop'"
}

@test "a server that lets two win isn't safe: doctor says why" {
    run "$SOURCE/tests/servers/ferretdb" sh -c '
        export HOLDFAST_STORE="$1"; "$0" run made -- true; "$0" doctor' "$HOLDFAST" @
    echo "$output"
    [ "$status" = 65 ]
    [[ $output =~ "BAD   "[a-z\ ]*"lose no update: " ]]
    [[ $output =~ "not safe, because "([^$'\n']+) ]]
    [[ $output == *"BAD  "*": ${BASH_REMATCH[1]}"$'\n'* ]] # the reason of a check that failed
}

@test "the row is a document that people can read" {
    mongo
    local grant
    grant=$(token --lease 1m --owner me deploy/web)
    background run -w 600 deploy/web -- true
    await queued
    ask '
row = rows.find_one({"queue.mode": {"$exists": False}, "owner": {"$ne": ""}})
print(row)
assert row["_id"] == "deploy/web" and row["owner"] == "me" and row["format"] == 2
assert row["token"] <= row["rev"] and row["lease_ms"] == 60000
assert row["expires_us"] > row["acquired_us"] > 0 and "more" not in row
assert "done" not in row and len(row["queue"]) == 1 and "pid=" in row["queue"][0]["note"]
assert abs(row["written"].timestamp() * 1e6 - row["rev"]) < 60e6'
    ask 'rows.update_one({"_id": "deploy/web"}, {"$set": {"mine": 1, "lease_ms": 6e4}})'
    holdfast break deploy/web --token "$grant"
    wait "$PID"
    # Beside the row's own fields, of which nothing is left that says nothing.
    ask '
row = rows.find_one({"_id": "deploy/web"})
assert row["mine"] == 1 and row["owner"] == "" and not {"more", "queue", "done"} & row.keys()'
}
queued() { ask 'assert len(rows.find_one({})["queue"]) == 1'; }

@test "what is no row is damage, never a free key" {
    mongo
    ask '
rows.insert_one({"_id": "alien", "hello": "world"})
rows.insert_one({"_id": "later", "format": 3, "rev": 5, "holder": {"name": "x"}})
rows.insert_one({"_id": "before", "format": 1, "rev": 5, "token": 5, "owner": ""})
rows.insert_one({"_id": "zero", "rev": 0})
rows.insert_one({"_id": 5, "hello": "world"})'
    run holdfast run -n alien -- touch ran
    refused 65
    [[ $output == *"isn't of Holdfast"* ]]
    run holdfast run -n later -- touch ran
    refused 65
    [[ $output == *"format 3, and this version reads format 2"*"newer version"* ]]
    run holdfast run -n before -- touch ran
    refused 65
    [[ $output == *"rows of format 1, "*"drop the collection "*"markers"* ]]
    run holdfast show zero
    refused 65
    [ ! -e ran ]
    holdfast run -n sound -- true
    run --separate-stderr holdfast ls --all
    [ "$status" = 65 ]
    [[ $output == *$'\n'"sound "* ]]
    # shellcheck disable=SC2154  # what run sets
    local said=$stderr
    # shellcheck disable=SC2154
    [ "${#stderr_lines[@]}" = 4 ]
    for name in alien before later zero; do [[ $said == *"'$name': "* ]]; done
    ask 'rows.delete_one({"_id": "sound"})'
    ask 'rows.delete_many({"_id": {"$in": ["alien", "before", "later", "zero"]}})'
    [ -z "$(holdfast ls --all)" ] # what can't be a key isn't in the way
    holdfast run -n ok -- true
    local change
    for change in '"$set": {"queue": "[]"}' '"$set": {"queue": [{"owner": 5}]}' \
        '"$set": {"more": [5]}' '"$set": {"more": {"mode": 1}}' '"$set": {"done": {}}' \
        '"$unset": {"note": 1}' '"$set": {"rev": "5"}' '"$set": {"rev": 1.5}' \
        '"$set": {"owner": "x"}' '"$set": {"more": {"mode": 9}, "owner": "x"}'; do
        echo "$change"
        ask "
rows.replace_one({'_id': 'bad'}, dict(rows.find_one({'_id': 'ok'}), _id='bad'), upsert=True)
assert rows.update_one({'_id': 'bad'}, {$change}).modified_count == 1"
        run holdfast show bad
        refused 65
    done
}

@test "operators are data: in keys, owners, notes and prefixes" {
    mongo
    # shellcheck disable=SC2016
    local keys=('$where' '{"$ne":""}' 'a.b.$.c' '$$NOW' '_id' "'); db.dropDatabase(); ('") key
    for key in "${keys[@]}"; do
        holdfast acquire --lease 1m --owner "\$set.$key" "$key"
        run holdfast run -n "$key" -- true
        [ "$status" = 75 ]
        [ "$(holdfast ls "$key" --json | wc -l)" = 1 ]
    done
    [ "$(holdfast ls --json | wc -l)" = 6 ]
    ask '
found = list(rows.find())
assert len(found) == 6 and all(r["owner"] == "$set." + r["_id"] for r in found)'
}

@test "options: what would keep less than promised is refused, by name" {
    local option
    for option in w=1 w=2 w=0 journal=false readConcernLevel=local readPreference=secondary \
        retryWrites=maybe tls=yes collection= collection=a%24b collection=system.users x=1 \
        socketTimeoutMS=1 W=majority 'w=majority&w=majority'; do
        run holdfast -S "mongodb://127.0.0.1:1/app?$option" ls
        refused 64
        [[ $output == *"${option%%=*}"* ]]
    done
    for option in app/b 'a b' a.b '$'; do
        run holdfast -S "mongodb://127.0.0.1:1/$option" ls
        refused 64
    done
    run holdfast -S 'mongodb://a,b/app?directConnection=true' ls
    refused 64
    mongo
    holdfast -S "$HOLDFAST_STORE?w=majority&journal=true&retryWrites=true&readPreference=primary&\
readConcernLevel=majority&collection=locks" run k -- true
    ask 'assert db.locks.find_one({"_id": "k"})'
}

@test "collections that drop rows or mix keys up are refused" {
    mongo
    ask 'rows.create_index("written", expireAfterSeconds=60)'
    run holdfast run -n k -- true
    refused 64
    [[ $output == *"TTL index"* ]]
    run holdfast doctor
    [ "$status" = 65 ]
    [[ $output == *"not safe, because "*"TTL index"* ]]
    local option
    for option in capped collation expireAfterSeconds; do
        PORT=
        mongo has "$option"
        ask 'db.create_collection("holdfast")'
        run holdfast run -n k -- true
        refused 64
        [[ $output == *"collection 'holdfast'"* ]]
    done
}

@test "a secondary may become the primary: away; a router: refused with the reason" {
    mongo secondary
    run holdfast run -n k -- true
    refused 69
    [[ $output == *"not a primary"* ]]
    PORT=
    mongo mongos
    run holdfast run -n k -- true
    refused 64
    [[ $output == *"a clock of its own"* ]]
}

@test "a replica set: what is read can't be undone, what is written neither; who waits is woken" {
    mongo primary
    HOLDFAST_STORE+="?replicaSet=rs0"
    holdfast run -n k -- true # a change stream reads otherwise
    holdfast ls --all
    cat commands
    grep -q '^command aggregate linearizable$' commands
    grep -q '^command findAndModify w=majority j=true$' commands
    [ -z "$(grep '^command aggregate' commands | grep -v linearizable)" ]
    [ -z "$(grep '^command findAndModify' commands | grep -v 'w=majority j=true')" ]
    run holdfast doctor
    echo "$output"
    [ "$status" = 0 ]
    [[ $output == *"survives a fail-over"* ]]
    [[ $output == *"a waiter in another process is woken"*"+ a waiter is woken"* ]]
    run holdfast -S "${HOLDFAST_STORE/rs0/rs1}" run -n k -- true
    refused 69
}

@test "a write that nobody has confirmed is sent again, and lands once" {
    mongo primary unsure 3
    local first
    first=$(token --lease 1m -w 600 k)
    [ "$first" -gt 0 ]
    run holdfast run -n k -- true
    [ "$status" = 75 ]
    [ "$(grep -c '^command findAndModify' commands)" -ge 2 ]
}

@test "a fail-over under a write: it is asked again" {
    local code
    for code in 10107 189 11602 91; do
        PORT=
        mongo primary fails findAndModify "$code" 1 2
        holdfast run -w 600 k -- touch "ran-$code"
        [ -e "ran-$code" ]
    done
    PORT=
    mongo fails aggregate 11600 2 2
    holdfast run -w 600 k -- touch ran
    [ -e ran ]
}

@test "errors of the server: denied, full, unknown to it" {
    mongo fails findAndModify 13 1 1
    run holdfast run -w 600 k -- true
    refused 77
    PORT=
    mongo fails aggregate 13 1 1
    run holdfast run -w 600 k -- true
    refused 77
    PORT=
    mongo fails listCollections 13 1 1 # that one is only a precaution
    holdfast run k -- true
    PORT=
    mongo fails aggregate 40324 1 1000
    holdfast run k -- true # which makes the collection
    run holdfast doctor
    echo "$output"
    [ "$status" = 0 ]
    [[ $output == *"one request more"* ]]
}

@test "a wrong password: denied, and it is never told" {
    mongo
    for url in "mongodb://joe:s3cr3t@127.0.0.1:$PORT/app" \
        "mongodb://joe:s3cr3t@127.0.0.1:$PORT/app?authMechanism=PLAIN&authSource=%24external" \
        "mongodb://joe:s3cr3t@127.0.0.1:1/app" "mongodb://joe:s3cr3t@127.0.0.1:$PORT/app?w=1" \
        "mongodb://127.0.0.1:$PORT/app?tlsCertificateKeyFilePassword=s3cr3t&tls=no"; do
        HOLDFAST_STORE=$url run holdfast run -n k -- true
        echo "$status $output"
        [ "$status" != 0 ]
        [[ $output != *s3cr3t* ]]
        [ "${#lines[@]}" = 1 ]
    done
    HOLDFAST_STORE="mongodb://joe:s3cr3t@127.0.0.1:$PORT/app" run holdfast run -n k -- true
    refused 77
}

@test "killed and started again: away, then back, and tokens grow" {
    mongo
    local first second
    first=$(token --lease 1m k)
    { kill -KILL "$SERVER" && wait "$SERVER"; } 2>/dev/null || true
    run holdfast run -n k -- true
    refused 69
    mongo # it has forgotten everything
    second=$(token --lease 1m -n k)
    [ "$second" -gt "$first" ]
}

@test "a server that is mute: away, in the time that a request may take" {
    mongo
    holdfast run k -- true
    kill -STOP "$SERVER"
    local started=$SECONDS
    run holdfast run -n k -- true
    refused 69
    [ $((SECONDS - started)) -lt 300 ]
    kill -CONT "$SERVER"
    holdfast run -w 600 k -- true
}

@test "TLS: the server's certificate counts" {
    openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 2 \
        -subj /CN=localhost -addext subjectAltName=DNS:localhost,IP:127.0.0.1 2>/dev/null
    openssl pkcs12 -export -inkey key.pem -in cert.pem -out both.p12 -passout pass:word
    mongo tls "$PWD/both.p12" word
    run holdfast run -n k -- true
    refused 69
    run holdfast -S "$HOLDFAST_STORE?tls=true" run -n k -- true
    refused 69
    run holdfast -S "$HOLDFAST_STORE?tls=true&tlsCAFile=$PWD/none.pem" run -n k -- true
    refused 69
    holdfast -S "$HOLDFAST_STORE?tls=true&tlsCAFile=$PWD/cert.pem" run -n k -- touch ran
    [ -e ran ]
    holdfast -S "${HOLDFAST_STORE/127.0.0.1/localhost}?ssl=true&tlsInsecure=true" run k -- true
}

@test "TLS: a new authority in the file is trusted when it connects again" {
    new_certificate
    openssl pkcs12 -export -inkey new.key -in new.pem -out both.p12 -passout pass:word
    cp new.pem trusted.pem
    mongo tls "$PWD/both.p12" word
    HOLDFAST_STORE="$HOLDFAST_STORE?tls=true&tlsCAFile=$PWD/trusted.pem"
    hold k
    background run -w 600 k -- true
    await waiters k 1
    new_certificate
    openssl pkcs12 -export -inkey new.key -in new.pem -out both.p12 -passout pass:word
    kill -KILL "$SERVER"
    await gone "$SERVER"
    cp new.pem trusted.pem
    mongo tls "$PWD/both.p12" word # which has no rows: the key is free
    finished
    cat bg.err
    [ "$STATUS" = 0 ]
}
