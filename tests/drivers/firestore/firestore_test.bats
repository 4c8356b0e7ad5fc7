#!/usr/bin/env bats
# What is Firestore's own: where the documents are, the user that asks, what a lost answer means.
# The emulator is that of tests/servers/firestore.

bats_require_minimum_version 1.5.0
load ../../cli/cli_common
load ../drivers_common

setup() {
    cli_setup
    BASE=http://$FIRESTORE_EMULATOR_HOST/v1/projects/demo-holdfast/databases/\(default\)/documents
    OWNER='Authorization: Bearer owner'
    SECRET=xsecretx
}
teardown() {
    cli_teardown
    FIRESTORE_EMULATOR_HOST=${BASE#http://}
    FIRESTORE_EMULATOR_HOST=${FIRESTORE_EMULATOR_HOST%%/*}
    rules "match /{d=**} { allow read, write: if true; }"
}

# A document as it is stored, read or written past the driver.
document() { curl -fsS -H "$OWNER" "$BASE/$1"; }
put_document() { curl -fsS -H "$OWNER" -X PATCH "$BASE/$1" -d "$2" >answer; }
# Only the fields: a document whose name isn't that of its URL is refused, or never answered.
fields() { python3 -c 'import json, sys
json.dump({"fields": json.load(sys.stdin)["fields"]}, sys.stdout)'; }
field() { python3 -c 'import json, sys
value = json.load(sys.stdin)["fields"][sys.argv[1]]
print(*(f"{k}:{v}" for k, v in value.items()))' "$1"; }

rules() {
    python3 -c 'import json, sys
print(json.dumps({"rules": {"files": [{"name": "r", "content":
    "rules_version = \"2\"; service cloud.firestore { match /databases/{x}/documents { %s } }"
    % sys.argv[1]}]}}))' "$1" >rules.json
    curl -fsS -X PUT -H 'Content-Type: application/json' -d @rules.json \
        "http://$FIRESTORE_EMULATOR_HOST/emulator/v1/projects/demo-holdfast:securityRules" >answer
}

# An ID token as the emulator takes it, unsigned.
id_token() {
    python3 -c 'import base64, json, sys, time
part = lambda d: base64.urlsafe_b64encode(json.dumps(d).encode()).rstrip(b"=").decode()
now = int(time.time())
print(part({"alg": "none", "typ": "JWT"}) + "." + part({"sub": sys.argv[1], "user_id": sys.argv[1],
    "iat": now, "exp": now + 3600, "aud": "demo-holdfast",
    "iss": "https://securetoken.google.com/demo-holdfast"}) + ".")' "$1"
}

# Something else on the other end, in the background: see firestore_peer.py. Its port in PORT.
peer() {
    rm -f port
    python3 "$SOURCE/tests/servers/firestore_peer.py" port "$@" >peer.out 2>&1 3>&- &
    STARTED+=($!)
    await test -s port
    PORT=$(cat port)
}

# A service account's file, with a key of its own unless one is named.
account() { # TOKEN-URI [KEY]
    [ $# -gt 1 ] || openssl genrsa -out key.pem 2048 2>openssl.out
    [ $# -gt 1 ] || openssl rsa -in key.pem -pubout -out public.pem 2>openssl.out
    python3 -c 'import json, sys
json.dump({"type": "service_account", "client_email": "robot@demo.example",
           "private_key_id": "key-1", "private_key": open(sys.argv[2]).read(),
           "token_uri": sys.argv[1]}, open("account.json", "w"))' "$1" "${2-key.pem}"
}

@test "seats are documents at their paths below the root, with fields for everybody" {
    export HOLDFAST_STORE="firestore://demo-holdfast?root=live/sync"
    seat=screenings/$K/A/5
    hold "$seat" --owner execution-7
    document "live/sync/$seat" >seat.json
    [ "$(field key <seat.json)" = "stringValue:$seat" ]
    [ "$(field owner <seat.json)" = stringValue:execution-7 ]
    [ "$(field token <seat.json)" = "integerValue:$(token "$seat")" ]
    # Nothing is said of what there isn't: those that a person reads are all.
    python3 -c 'import json, sys
assert sorted(json.load(sys.stdin)["fields"]) == sorted(
    "key format rev token owner expires_us acquired_us lease_ms request note".split())' <seat.json
    run -75 holdfast run -n "$seat" -- true
    holdfast run -n "screenings/$K/A/6" -- true
    holdfast ls "screenings/$K/A/" --all --json >list
    [ "$(wc -l <list)" = 2 ]
    run ! document "live/sync/holdfast/$(basename "$seat")"
}

@test "what isn't a path of Firestore is in a collection, and no two keys are one document" {
    long=$(printf '%0512d' 0)
    slashes=${long//0//}
    deep=$(printf 'a/%.0s' {1..200})a
    keys=(. .. ... __x__ __id7__ __ a a/b a/b/c a//b /a a/ / // a%2Fb a/. ../b "é/ß" "$long"
        "$slashes" "$deep/b" 'holdfast/a' 'holdfast%2Fa' holdfast/a/b/c '~' "%~~-" $'\u202e/x')
    for store in "root=live/odd$K" "collection=odd$K" "root=/&collection=odd2$K"; do
        export HOLDFAST_STORE="firestore://demo-holdfast?$store"
        for key in "${keys[@]}"; do
            holdfast acquire -n --lease 60 -- "$key" >grant
            echo "$(sed -n "s/^HOLDFAST_TOKEN='\(.*\)'/\1/p" grant) $key" >>grants
        done
        holdfast ls --json >list
        for key in "${keys[@]}"; do
            KEY=$key python3 -c 'import json, os
assert [json.loads(line)["key"] for line in open("list")].count(os.environ["KEY"]) == 1'
        done
    done
    document "odd$K/%252E" >dot.json
    [ "$(field key <dot.json)" = stringValue:. ]
    document "live/odd$K/holdfast/a%252Fb%252Fc" >odd.json
    [ "$(field key <odd.json)" = stringValue:a/b/c ]
    document "live/odd$K/holdfast/holdfast%252Fa" >own.json
    [ "$(field key <own.json)" = stringValue:holdfast/a ]
}

@test "a document that is no lock is neither free nor overwritten" {
    put_document "holdfast/$K" '{"fields": {"price": {"integerValue": "12"}}}'
    for what in "run -n" "run -w 1"; do
        run -65 holdfast $what "$K" -- true
        [[ $output == *"$K"*"not a lock"* ]]
    done
    run -65 holdfast show "$K"
    document "holdfast/$K" >after.json
    [ "$(field price <after.json)" = integerValue:12 ]
    run ! field owner <after.json
    # Nor is the lock of another key, wherever it came from.
    holdfast run "$K-b" -- true
    document "holdfast/$K-b" | fields >b.json
    put_document "holdfast/$K-c" @b.json
    run -65 holdfast run -n "$K-c" -- true
    [[ $output == *"another key"* ]]
    # A number that became a text.
    sed 's/"integerValue": "2"/"stringValue": "two"/' b.json >c.json
    put_document "holdfast/$K-b" @c.json
    run -65 holdfast run -n "$K-b" -- true
    # A lock of the format before this one.
    sed 's/"integerValue": "2"/"integerValue": "1"/' b.json >c.json
    put_document "holdfast/$K-b" @c.json
    run -65 holdfast run -n "$K-b" -- true
    [[ $output == *"rows of format 1, "*"delete the documents of "*"markers"* ]]
    run -65 holdfast acquire -n "$K-b" --lease 60
    document "holdfast/$K-b" >after.json
    [ "$(field format <after.json)" = integerValue:1 ]
    holdfast ls --all "other" >list
}

@test "fields of others in a lock's document stay as they are" {
    holdfast run "$K" -- true
    put_document "holdfast/$K?updateMask.fieldPaths=price" \
        '{"fields": {"price": {"integerValue": "12"}}}'
    holdfast run "$K" -- true
    document "holdfast/$K" >after.json
    [ "$(field price <after.json)" = integerValue:12 ]
    [ "$(field owner <after.json)" = stringValue: ]
}

@test "who waits stands in a line only where that is asked for" {
    hold "$K"
    background run -w 600 "$K" -- true
    waiting=$PID
    sleep 1
    waiters "$K" 0
    kill "$(cat cmd.pid)"
    finished "$waiting"
    [ "$STATUS" = 0 ]
    rm cmd.pid
    export HOLDFAST_STORE="$HOLDFAST_STORE?queue=1"
    hold "$K"
    background run -w 600 "$K" -- true
    await waiters "$K" 1
    kill "$(cat cmd.pid)"
    finished
    [ "$STATUS" = 0 ]
}

@test "a user's token makes the command that user, whom the rules may refuse" {
    rules 'match /holdfast/{k} { allow read, write: if request.auth.uid == "alice"; }'
    export FIRESTORE_ID_TOKEN
    FIRESTORE_ID_TOKEN=$(id_token bob)
    run -77 holdfast run -n "$K" -- true
    [[ $output == *"$K"*PERMISSION_DENIED* ]]
    [[ $output != *"$FIRESTORE_ID_TOKEN"* ]]
    FIRESTORE_ID_TOKEN=$(id_token alice)
    run holdfast run -n "$K" -- sh -c 'echo got it; env'
    [ "$status" = 0 ]
    [[ $output == "got it"* ]]
    [[ $output != *"${FIRESTORE_ID_TOKEN:20:30}"* ]]
    # From a file, which may become another's while the command runs.
    unset FIRESTORE_ID_TOKEN
    id_token alice >id
    export FIRESTORE_ID_TOKEN_FILE=$PWD/id
    background run --lease 4 "$K" -- sh -c 'touch began; sleep 1200'
    await test -e began
    id_token bob >id.new
    mv id.new id
    finished
    [ "$STATUS" = 76 ]
    rm id
    run -69 holdfast run -n "$K" -- true
    [[ $output == *"No such file"* ]]
    printf 'two words' >id
    FIRESTORE_ID_TOKEN_FILE='' FIRESTORE_ID_TOKEN=$(printf 'a\r\nb: c') run -77 \
        holdfast run -n "$K" -- true
    [[ $output == *"not a token"* ]]
}

@test "rules can tell from the fields who may write what" {
    rules 'match /holdfast/{k} {
        function now() { return request.time.toMillis() * 1000; }
        function before() { return resource.data; }
        function after() { return request.resource.data; }
        function mine() { return resource != null && before().owner == request.auth.uid; }
        function free() {
            return resource == null || before().owner == "" || before().expires_us <= now();
        }
        function sane() {
            return after().key is string && after().token is int
                && (resource == null || after().token >= before().token)
                && after().expires_us <= now() + 60000000 && !("queue" in after());
        }
        allow get: if request.auth != null;
        allow create, update: if sane() && (after().owner == request.auth.uid && (free() || mine())
            || after().owner == "" && mine());
    }'
    local alice bob
    alice=$(id_token alice) bob=$(id_token bob)
    export FIRESTORE_ID_TOKEN=$alice
    hold "$K" --owner alice --lease 5
    export FIRESTORE_ID_TOKEN=$bob
    run -75 holdfast run -n --owner bob "$K" -- true
    run -77 holdfast break "$K" --token "$(token "$K")"
    run -77 holdfast run -n --owner alice "$K-new" -- true
    run -77 holdfast run -n --owner bob --lease 120 "$K-new" -- true
    holdfast run -n --owner bob --lease 50 "$K-new" -- true
    # Whose lease is over is in nobody's way.
    kill -KILL "$PID" "$(cat cmd.pid)"
    holdfast run -w 600 --owner bob "$K" -- true
}

@test "a service account gets a token, which is renewed before its end" {
    peer token public.pem log 2
    account "http://127.0.0.1:$PORT/token"
    export HOLDFAST_STORE="firestore://demo-holdfast?credentials=$PWD/account.json"
    holdfast run "$K" -- true
    [ "$(cat log)" = "robot@demo.example good" ]
    holdfast run --lease 4 "$K" -- sleep 9
    [ "$(grep -c good log)" -ge 3 ]
    run ! grep bad log
    # Another key than the server knows.
    openssl genrsa -out key.pem 2048 2>openssl.out
    openssl rsa -in key.pem -pubout -out public.pem 2>openssl.out
    run -77 holdfast run -n "$K" -- true
    [[ $output == *robot@demo.example*"Invalid JWT Signature"* ]]
    [[ $output != *PRIVATE* ]]
}

@test "while the token server is away the old token is used" {
    peer token public.pem log 30 # wants another one from half of it on
    account "http://127.0.0.1:$PORT/token"
    export HOLDFAST_STORE="firestore://demo-holdfast?credentials=$PWD/account.json"
    # Without the old one the lease is over before the command is.
    background run --lease 8 "$K" -- \
        sh -c 'touch log.away; until grep -q away log; do sleep 0.2; done; sleep 9'
    finished
    [ "$STATUS" = 0 ]
    [ "$(grep -c good log)" = 1 ]
}

@test "bad credentials are told apart, and nothing of them is shown" {
    account "http://127.0.0.1:1/token"
    export HOLDFAST_STORE="firestore://demo-holdfast?credentials=$PWD/account.json"
    run -69 holdfast run -n "$K" -- true
    [[ $output == *127.0.0.1* ]]
    sed -i 's/PRIVATE KEY-----/&xsecretx/' account.json
    run -64 holdfast run -n "$K" -- true
    [[ $output == *"can't sign"* && $output != *$SECRET* ]]
    sed -i 's#"http:[^"]*"#"http://example.com/token"#' account.json
    run -64 holdfast run -n "$K" -- true
    [[ $output == *"not https"* ]]
    echo '{"type": "external_account", "private_key": "xsecretx"}' >account.json
    run -64 holdfast run -n "$K" -- true
    [[ $output == *credentials*neither* && $output != *$SECRET* ]]
    rm account.json
    run -69 holdfast run -n "$K" -- true
    [[ $output == *"No such file"* ]]
    unset FIRESTORE_EMULATOR_HOST
    HOLDFAST_STORE=firestore://demo-holdfast run -77 holdfast run -n "$K" -- true
    [[ $output == *"no credentials"*FIRESTORE_EMULATOR_HOST* ]]
}

@test "a key that can't sign is refused, and nobody is asked for its passphrase" {
    account "http://127.0.0.1:1/token"
    openssl ecparam -name prime256v1 -genkey -out ec.pem
    openssl pkcs8 -topk8 -in key.pem -passout pass:xsecretx -out encrypted.pem
    export HOLDFAST_STORE="firestore://demo-holdfast?credentials=$PWD/account.json"
    # The last bit of its modulus is damaged: it can be read.
    openssl rsa -in key.pem -noout -modulus >modulus
    python3 - >damaged.pem <<'EOF'
import base64
head, *lines, tail = open('key.pem').read().split('\n')[:-1]
n = bytes.fromhex(open('modulus').read().split('=')[1])
bad = n[:-1] + bytes([n[-1] ^ 1])
der = base64.b64decode(''.join(lines)).replace(n, bad)
print(head, base64.b64encode(der).decode(), tail, sep='\n')
EOF
    openssl pkey -in damaged.pem -noout
    for key in ec.pem encrypted.pem public.pem damaged.pem; do
        account "http://127.0.0.1:1/token" $key
        # With a terminal, on which a passphrase could be asked for.
        run -64 timeout 60 script -qec "'$HOLDFAST' run -n '$K' -- true" typescript
        [[ $output == *"can't sign"*"an RSA key"*passphrase* ]]
        [[ $output != *Enter* && $output != *PRIVATE* ]]
    done
}

@test "a commit whose answer is lost is neither repeated unseen nor taken for a loss" {
    peer drop "$FIRESTORE_EMULATOR_HOST" lost
    export HOLDFAST_STORE="firestore://demo-holdfast?endpoint=http://127.0.0.1:$PORT"
    for _ in 1 2 3 4 5; do
        run holdfast run -v "$K" -- true
        [ "$status" = 0 ]
        [[ $output != *lost* ]]
        free "$K"
    done
    # Each of the lost ones was done.
    [ "$(wc -l <lost)" -ge 3 ]
    [ "$(sort -u lost | head -n 1)" = 200 ]
}

@test "TLS is checked" {
    openssl req -x509 -newkey rsa:2048 -nodes -keyout tls.key -out tls.pem -days 2 \
        -subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1 2>openssl.out
    peer tls "$FIRESTORE_EMULATOR_HOST" tls.pem tls.key
    url="firestore://demo-holdfast?endpoint=https://127.0.0.1:$PORT"
    export FIRESTORE_ID_TOKEN=owner
    holdfast -S "$url&cafile=$PWD/tls.pem" run -n "$K" -- true
    run -77 holdfast -S "$url" run -n "$K" -- true
    [[ $output == *certificate* ]]
    run -69 holdfast -S "$url&cafile=$PWD/none.pem" run -n "$K" -- true
    run -64 holdfast -S "firestore://demo-holdfast?endpoint=http://example.com" run -n "$K" -- true
    [[ $output == *endpoint* ]]
}

@test "what the server says is told apart" {
    peer status
    for case in 401:77 403:77 404:64 412:64 413:64 429:69 500:69 503:69 200:69; do
        store="firestore://status-${case%:*}?endpoint=http://127.0.0.1:$PORT"
        run holdfast -S "$store" show "$K"
        [ "$status" = "${case#*:}" ] || { echo "$case: $status $output"; false; }
        [[ $output == *"$K"*"HTTP "* ]] || { echo "$case: $output"; false; }
    done
    FIRESTORE_ID_TOKEN=a.$SECRET.b run -77 holdfast -S \
        "firestore://status-403?endpoint=http://127.0.0.1:$PORT" show "$K"
    [[ $output != *$SECRET* ]]
    FIRESTORE_EMULATOR_HOST=127.0.0.1:1 run -69 holdfast show "$K"
    [[ $output == *"$K"* ]]
}

@test "bad parameters are named" {
    for bad in root=live root=a/__b__ root=a//b root= collection=a/b collection=.. queue=2 queue= \
        "root=a/b&collection=c/d/e" endpoint=ftp://x credentials= nothing=1 root=a/b\&root=c/d; do
        run -64 holdfast -S "firestore://demo-holdfast?$bad" show "$K"
        name=${bad%%=*}
        [[ $output == *"$name"* || $output == *collection* ]]
    done
    for bad in : :///db ://p:80/x ://u:pw@p/x ://p/a/b; do
        run -64 holdfast -S "firestore$bad" show "$K"
    done
    FIRESTORE_EMULATOR_HOST=x/y run -64 holdfast show "$K"
    [[ $output == *FIRESTORE_EMULATOR_HOST* ]]
}

@test "a server that was killed and forgot everything: the hold is over, tokens go on growing" {
    holdfast acquire --lease 60 "$K" >grant
    before=$(sed -n "s/^HOLDFAST_TOKEN='\(.*\)'/\1/p" grant)
    background run --lease 4 "$K-held" -- sh -c 'touch began; sleep 1200'
    await test -e began
    "$HOLDFAST_TEST_CONTROL" kill
    run -69 holdfast run -n "$K" -- true
    "$HOLDFAST_TEST_CONTROL" start
    finished
    [ "$STATUS" = 76 ]
    holdfast acquire --lease 60 "$K" >grant
    after=$(sed -n "s/^HOLDFAST_TOKEN='\(.*\)'/\1/p" grant)
    [ "$after" -gt "$before" ]
}

@test "the conformance suite passes below a root, and in another database" {
    for store in "demo-holdfast?root=live/sync" "demo-holdfast/other?root=/&collection=x"; do
        "$BUILD/tests/conform" "firestore://$store" >out || { grep -v '^ok' out; false; }
        [ "$(grep -c '^ok' out)" -ge 60 ]
    done
}

@test "doctor trusts it" {
    run holdfast doctor
    [ "$status" = 0 ]
    [[ $output == *emulator* ]]
    [[ $output == *"waiters don't queue"* ]]
    run holdfast doctor "$HOLDFAST_STORE?queue=1"
    [ "$status" = 0 ]
    [[ $output == *"served in order"* ]]
}

@test "ls -v and doctor say which database, and where in it the documents are" {
    local documents="projects/demo-holdfast/databases/(default)/documents"
    says_where "$documents, asked as an administrator of the emulator"
    says_where "keys are documents in the collection /holdfast"
    HOLDFAST_STORE+="?root=live/sync" says_where "keys are documents below /live/sync"
    HOLDFAST_STORE+="?collection=shop" says_where "keys are documents in the collection /shop"
}
