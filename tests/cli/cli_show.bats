#!/usr/bin/env bats
# holdfast ls, show, watch, prune, stores: looking at stores.

bats_require_minimum_version 1.5.0
load cli_common
setup() { cli_setup; }
teardown() { cli_teardown; }

# bats test_tags=stores, differs
@test "ls names what is held or waited for, sorted; with --all free ones too" {
    hold "$K/b"
    holdfast run "$K/c" -- true
    eval "$(holdfast acquire "$K/a" --lease 100s)"
    run holdfast ls "$K/"
    [ "$status" = 0 ]
    [ "${#lines[@]}" = 3 ]
    [[ ${lines[1]} == *"$K/a "* ]]
    [[ ${lines[2]} == *"$K/b "*"pid $PID (sh -c "* ]]
    [[ $(holdfast ls --json "$K/a") =~ \"left_ms\":([0-9]{1,5}|100000), ]]
    run holdfast ls --all "$K/"
    [ "${#lines[@]}" = 4 ]
    [[ ${lines[3]} == *"$K/c "*"(free)" ]]
    holdfast acquire "$K/over" --lease "$(lease_ms 2000)ms" >/dev/null
    await sh -c '[ -z "$("$0" ls "$1")" ]' "$HOLDFAST" "$K/over"
    run holdfast ls "$K/none"
    [ "$status" = 0 ]
    [ -z "$output" ]
}

# bats test_tags=stores
@test "a prefix is taken literally" {
    for k in "$K%a" "${K}_a" "$K*a" "${K}[a"; do holdfast run "$k" -- true; done
    run holdfast ls --all --json "$K%"
    [ "${#lines[@]}" = 1 ]
    run holdfast ls --all --json "$K*"
    [ "${#lines[@]}" = 1 ]
}

# bats test_tags=stores, differs
@test "ls --json: a document a line, of the same shape everywhere" {
    hold "$K/a"
    "$HOLDFAST" run -s "$K/a" -- true 3>&- &
    STARTED+=($!)
    lined_up "$K/a" 1
    holdfast ls --json "$K/" >out
    [ "$(wc -l <out)" = 1 ]
    documents key:s held:b token:i owner:s mode:s since:s left_ms:in host:s pid:i user:s command:s \
        waiters:l holders:l <out
    python3 -c '
import json, sys
d = json.load(open("out"))
assert d["held"] is True and d["mode"] == "exclusive" and d["pid"] == int(sys.argv[1])
if not sys.argv[2]:
    sys.exit()
w, = d["waiters"]
assert w["held"] is False and w["mode"] == "shared" and w["token"] is None
assert w["key"] == d["key"] and w["command"] == "true" and w["host"] == d["host"]
' "$PID" "$QUEUED"
}

# bats test_tags=stores
@test "show: of an unused key says that it is free, status 0" {
    made
    run holdfast show "$K"
    [ "$status" = 0 ]
    [ "$output" = "$K: free" ]
    holdfast show --json "$K" | documents key:s held:b token:i owner:n mode:n since:n left_ms:n \
        host:n pid:n user:n command:n waiters:l
    run holdfast show --json "$K"
    [[ $output == *'"held":false'*'"waiters":[]'* ]]
}

# bats test_tags=stores, differs
@test "show: holder, waiters in order, token, owner, lease" {
    hold "$K" --lease 20s
    for name in first second; do
        "$HOLDFAST" run "$K" -- echo "$name" 3>&- &
        STARTED+=($!)
        lined_up "$K" $((++n))
    done
    run holdfast show "$K"
    [ "${lines[0]}" = "$K: held by" ]
    [[ ${lines[1]} == *"@$(hostname) pid $PID (sh -c "* ]]
    [[ ${lines[2]} == *"since 2"*"token $(token "$K")"*"s left" ]]
    run holdfast show --json "$K"
    [[ $output =~ \"left_ms\":(1[0-9]{4}|20000), ]]
    [ -n "$QUEUED" ] || return 0
    run holdfast show "$K"
    [ "${lines[3]}" = "waiting:" ]
    [[ ${lines[4]} == *"(echo first)"* ]]
    [[ ${lines[6]} == *"(echo second)"* ]]
}

# bats test_tags=stores
@test "show: modes" {
    hold "$K" --limit 3
    run holdfast show "$K"
    [[ $output == *"one of at most 3"* ]]
    run holdfast show --json "$K"
    [[ $output == *'"mode":"limited","limit":3'* ]]
}

# bats test_tags=stores, differs
@test "what others wrote into notes and keys can't drive the terminal" {
    key="$K-ü-☃"
    hold "$key"
    run holdfast run -n "$key" -- true
    [[ $output == *"$key"* ]]
    printf 'x\033]0;y\007\n' >evil
    background run "$K-e" -- sh -c 'exec sleep 1200' "$(cat evil)"
    await held "$K-e"
    for how in "ls $K" "show $K-e" "run -n $K-e -- true"; do
        # shellcheck disable=SC2086
        run holdfast $how
        [[ $output == *'x?]0;y?'* ]]
        [[ $output != *$'\033'* ]]
    done
}

@test "what would make a text look like another one isn't shown either" {
    odd=$'\u202e\u2028\u2066\u200b\ufeff'
    echo odd >"$odd"
    background run --owner "o$odd." "$K$odd." -- tail -f "$odd"
    await held "$K$odd."
    holdfast once "$K-once$odd." -- true
    for how in "ls" "ls --all" "show $K$odd." "show $K-once$odd." "run -n $K$odd. -- true" \
        "release $K$odd. --token 1" "-S file:/$odd ls" \
        "-S x:$odd stores"; do
        # shellcheck disable=SC2086
        run holdfast $how
        [[ $output == *'?????'* ]]
        [[ $output != *[$odd]* ]]
    done
    # A program gets the text as it is.
    holdfast ls --json "$K$odd" | python3 -c '
import json, sys
document = json.load(sys.stdin)
assert document["key"] == sys.argv[1] and document["owner"] == sys.argv[2], document
' "$K$odd." "o$odd."
}

# bats test_tags=stores, differs
@test "watch --json: a line per change, at once; INT ends it with 130" {
    made
    env --default-signal "$HOLDFAST" watch --json "$K" >seen 3>&- &
    watcher=$!
    STARTED+=("$watcher")
    hold "$K"
    await grep -q '"held":true' seen
    kill "$PID"
    await sh -c 'tail -n 1 seen | grep -q "\"held\":false"'
    kill -INT "$watcher"
    finished "$watcher"
    [ "$STATUS" = 130 ]
    documents key:s held:b token:i waiters:l <seen
}

# bats test_tags=stores
@test "watch: words; what is held already comes first; TERM ends it with 143" {
    hold "$K/a"
    env --default-signal "$HOLDFAST" watch "$K" >seen 3>&- &
    watcher=$!
    STARTED+=("$watcher")
    await grep -q "$K/a: held by .*pid $PID" seen
    holdfast once "$K/b" -- sh -c "until grep -q '/b: held' seen; do sleep 0.05; done"
    await grep -q "$K/b: done" seen
    kill "$watcher"
    finished "$watcher"
    [ "$STATUS" = 143 ]
}

@test "watch: what was over before it began isn't shown as free" {
    holdfast acquire "$K/over" --lease 1s >/dev/null
    await free "$K/over"
    hold "$K/held"
    env --default-signal "$HOLDFAST" watch "$K" >seen 3>&- &
    watcher=$!
    STARTED+=("$watcher")
    await grep -q "$K/held: held by" seen
    kill "$(cat cmd.pid)"
    await grep -q "$K/held: free" seen # so the first look is through
    kill "$watcher"
    finished "$watcher"
    run grep -c "$K/over" seen
    [ "$output" = 0 ]
}

# bats test_tags=stores
@test "watch: a reader that went away ends it" {
    hold "$K"
    for how in default:141:0 ignore:70:1; do
        IFS=: read -r is code lines <<<"$how"
        timeout 600 env --"$is"-signal=PIPE \
            sh -c '{ "$0" watch "$1" 2>err; echo $? >status; } | head -n 1' "$HOLDFAST" "$K"
        [ "$(cat status)" = "$code" ]
        [ "$(wc -l <err)" = "$lines" ]
    done
}

# into_nothing default|ignore CMD...: its standard output is a pipe that nobody reads, and its
# SIGPIPE is as said.
into_nothing() {
    exec 7> >(exit)
    wait $!
    run env --"$1"-signal=PIPE sh -c '"$0" "$@" >&7' "${@:2}"
    exec 7>&-
}

@test "a pipe that nobody reads ends what only reads as it ends other programs" {
    hold "$K"
    for how in "ls" "show $K" "show --json $K" "stores" "guard redis" "--version" "doctor" \
        "run --help"; do
        # shellcheck disable=SC2086
        into_nothing default "$HOLDFAST" $how
        echo "$how: $status $output"
        [ "$status" = 141 ]
        [ -z "$output" ]
        # shellcheck disable=SC2086
        into_nothing ignore "$HOLDFAST" $how
        [ "$status" = 70 ]
        [[ $output == *"writing to standard output: Broken pipe" ]]
    done
}

# bats test_tags=stores, differs
@test "ls -v says which store it is, and where in it the locks are" {
    made
    run --separate-stderr holdfast ls -v
    [ "$status" = 0 ]
    # shellcheck disable=SC2154  # run sets it
    echo "$stderr"
    [[ $stderr == *"the store is ${HOLDFAST_STORE%%:*}:"*$'\n'* ]]
    [[ $stderr =~ \ table\ |\ collection\ |\ bucket\ |\ keys\ that\ begin\ |/store\ on\  ]]
}

# The trial writes below keys of its own.
@test "a pipe that nobody reads ends doctor before its trial" {
    made
    export HOLDFAST_TRACE=$PWD/trace
    into_nothing default "$(the_command)" doctor
    [ "$status" = 141 ]
    run cat trace
    [[ $output != *holdfast-conform/* ]]
    holdfast doctor >/dev/null
    grep -q holdfast-conform/ trace
}

@test "a pipe that nobody reads: what was done is told; what failed keeps its status" {
    eval "$(holdfast acquire "$K" --lease 60s)"
    for sigpipe in default ignore; do
        into_nothing $sigpipe "$HOLDFAST" renew "$K" --token "$HOLDFAST_TOKEN" --json
        [ "$status" = 70 ]
        [[ $output == *"writing to standard output: Broken pipe; the grant was renewed" ]]
        into_nothing $sigpipe "$HOLDFAST" prune --idle 1d
        [ "$status" = 70 ]
        [[ $output == *"writing to standard output: Broken pipe; 0 deleted" ]]
        for json in "" --json; do
            # shellcheck disable=SC2086
            into_nothing $sigpipe "$HOLDFAST" acquire $json -n "$K" --lease 60s
            [ "$status" = 75 ]
            # shellcheck disable=SC2086
            into_nothing $sigpipe "$HOLDFAST" acquire $json "$K"
            [ "$status" = 64 ]
            # shellcheck disable=SC2086
            into_nothing $sigpipe "$HOLDFAST" acquire $json "$K/other" --lease 60s
            [ "$status" = 70 ]
            [[ $output == *"Broken pipe; what was acquired is given back" ]]
        done
    done
    run holdfast show "$K/other"
    [[ $output == *free* ]]
}

@test "the command has SIGPIPE as it was" {
    run env --default-signal=PIPE "$HOLDFAST" run "$K" -- sh -c 'kill -PIPE $$'
    [ "$status" = 141 ]
    run env --default-signal=PIPE "$HOLDFAST" run -F "$K" -- sh -c 'kill -PIPE $$'
    [ "$status" = 141 ]
    run env --ignore-signal=PIPE "$HOLDFAST" run "$K" -- sh -c 'kill -PIPE $$'
    [ "$status" = 0 ]
    run env --ignore-signal=PIPE "$HOLDFAST" run -F "$K" -- sh -c 'kill -PIPE $$'
    [ "$status" = 0 ]
}

@test "output that can't be written gives a nonzero status" {
    hold "$K"
    for how in "ls" "show $K" "stores" "--help" "--version" "run --help"; do
        # shellcheck disable=SC2086
        run sh -c '"$0" "$@" >/dev/full' "$HOLDFAST" $how
        [ "$status" = 70 ]
        [ "${#lines[@]}" = 1 ]
    done
    run sh -c '"$0" prune --idle 1d >/dev/full' "$HOLDFAST"
    [ "$status" = 70 ]
    [[ $output == *"writing to standard output: "*"; 0 deleted" ]]
    run sh -c '"$0" watch "$1" >&-' "$HOLDFAST" "$K-none"
    [ "$status" = 70 ]
    [[ $output == *"writing to standard output: Bad file descriptor" ]]
}

# bats test_tags=stores, differs
@test "prune deletes what is idle, and says how many" {
    holdfast run "$K" -- true
    run holdfast prune --idle 24h
    [ "$status" = 0 ]
    [[ $output =~ ^[0-9]+\ deleted$ ]]
    run holdfast prune --idle 24h --json
    [[ $output =~ ^\{\"deleted\":[0-9]+\}$ ]]
    run holdfast prune
    [ "$status" = 64 ]
    run holdfast prune --idle 59s
    [ "$status" = 64 ]
}

@test "stores names those that are built in" {
    run holdfast stores
    [ "$status" = 0 ]
    [[ $output == *mem* ]]
    [[ $output == *file* ]]
    holdfast stores --json | documents scheme:s usable:b about:sn path:sn why:sn \
        sessions:b queued:b woken:b promises:l lacks:l
}

@test "stores --json has what each of the eleven promises, and lacks" {
    HOLDFAST_DRIVERS=$BUILD holdfast stores --json >all
    python3 - all <<'END'
import json, sys
stores = {}
for line in open(sys.argv[1]):
    store = json.loads(line)
    stores[store["scheme"]] = store
polling = {"mariadb", "firestore", "s3"}
one = "one holder at a time by key (or as many as asked for), with tokens that only grow"
dead = "that a dead holder's key is free before its lease is over"
for name in ("mem file sqlite postgres mariadb redis mongodb nats etcd firestore s3").split():
    store = stores[name]
    said = store["promises"] + store["lacks"]
    assert len(set(said)) == len(said) >= 5, said
    assert one in store["promises"], name
    assert store["woken"] == (name not in polling), name
    assert ("a waiter is woken when its turn comes" in store["promises"]) == store["woken"], name
    assert any("served in order" in p for p in store["promises"]) == store["queued"], name
    assert (dead in store["lacks"]) == (not store["sessions"]), name
END
    # doctor says the same of the store that it has examined.
    made
    run holdfast doctor
    python3 - all "$output" <<'END'
import json, sys
for line in open(sys.argv[1]):
    store = json.loads(line)
    if store["scheme"] == "file":
        for word in store["promises"]:
            assert "\n  + " + word + "\n" in sys.argv[2], word
        for word in store["lacks"]:
            assert "\n  - " + word in sys.argv[2], word
END
}

@test "stores says why a module can't be used" {
    mkdir modules
    echo nonsense >modules/libholdfast-bad.so
    HOLDFAST_DRIVERS=$PWD/modules run holdfast stores
    [ "$status" = 0 ]
    [[ $output == *"bad "*"cannot be used: "* ]]
    HOLDFAST_DRIVERS=$PWD/modules run holdfast -S bad:x run "$K" -- true
    [ "$status" = 64 ]
}

@test "who looks makes no store: one that was named isn't there, the default one is empty" {
    export HOLDFAST_DRIVERS=$BUILD HOME=$PWD/home XDG_STATE_HOME=
    mkdir home
    for url in "file:$PWD/none" "sqlite:$PWD/none" "file:$PWD/no/such/none"; do
        for command in ls "show $K" watch doctor "prune --idle 1d"; do
            # shellcheck disable=SC2086
            run timeout 600 "$HOLDFAST" -S "$url" $command
            [ "$status" = 69 ]
            about=${command%% *}
            [ "$command" != doctor ] || about=
            [[ $output == "holdfast: $about"*"no store at '"*"none'"* ]]
        done
    done
    sqlite3 app.db 'CREATE TABLE own (n)'
    run holdfast -S "sqlite:$PWD/app.db" ls
    [ "$status" = 69 ]
    [[ $output == *"no store at "*"has no table"* ]]
    [ "$(sqlite3 app.db .tables)" = own ]
    unset HOLDFAST_STORE
    absent() {
        # shellcheck disable=SC2154 # bats sets it
        [[ $stderr == "holdfast: $1: "*"no store at '$PWD/home/"* ]]
        [[ $stderr == *" (the default), so nothing is held" ]]
        [[ $stderr != *$'\n'* ]]
        [ "$status" = 0 ]
    }
    run --separate-stderr holdfast ls --all
    absent ls
    [ -z "$output" ]
    run --separate-stderr holdfast show "$K"
    absent show
    [ "$output" = "$K: free" ]
    holdfast show --json "$K" | documents key:s held:b token:i waiters:l
    run --separate-stderr holdfast prune --idle 1d
    absent prune
    [ "$output" = "0 deleted" ]
    run holdfast show $'a\nb'
    [ "$status" = 64 ]
    run holdfast doctor
    [ "$status" = 0 ]
    [[ $output == *"no store at "*"promises:"* ]]
    [ -z "$(find home)" ] || [ "$(find home)" = home ]
    # A watch shows what comes with the first lock.
    env --default-signal "$HOLDFAST" watch >seen 2>watch.err 3>&- &
    watcher=$!
    STARTED+=("$watcher")
    holdfast run "$K" -- sh -c "until grep -q 'held by' seen; do sleep 0.05; done"
    kill "$watcher"
    finished "$watcher"
    [ "$STATUS" = 143 ]
    [ "$(grep -c "^holdfast: watch: .*no store at" watch.err)" = 1 ]
}

@test "ls: columns stand below each other, however many bytes a character has" {
    HOLDFAST_STORE=file:$PWD/own # where nothing else is
    for key in ascii Übergröße 鍵鍵鍵 'éé'; do
        holdfast acquire "$(printf '%b' "$key")" --lease 100 >/dev/null
    done
    holdfast ls >listed
    python3 - <<'EOF'
import unicodedata
def width(text):
    return sum(0 if unicodedata.combining(c) else
               2 if unicodedata.east_asian_width(c) in 'WF' else 1 for c in text)
at = {width(line[:line.index(word)]) for line in open('listed', encoding='utf-8')
      for word in ('MODE', 'exclusive') if word in line}
assert at == {26}, at
EOF
}
