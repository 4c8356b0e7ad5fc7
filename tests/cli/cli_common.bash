# What the command's tests share. The store under test is HOLDFAST_TEST_STORE, or a file: of each
# test's own; keys are new for every test, so that any store will do. What is tagged "stores" can
# run on every store, and does if it is tagged "differs", too: its result could depend on the store.
# What a store doesn't promise is asked for, not known by its name.

# shellcheck source=tests/gone.sh
. "${BASH_SOURCE[0]%/*}/../gone.sh"

cli_setup() {
    : "${HOLDFAST:?is not set: the command under test}"
    cd "$BATS_TEST_TMPDIR" || return 1
    export HOLDFAST_STORE=${HOLDFAST_TEST_STORE:-file:$BATS_TEST_TMPDIR/store}
    unset HOLDFAST_KEY HOLDFAST_TOKEN HOLDFAST_OWNER
    K=k-$$-$BATS_TEST_NUMBER-$RANDOM
    STARTED=()
    # A lease for holders that are killed or robbed: not too long where only time ends it.
    SHORT=() QUEUED=1
    [ -n "${HOLDFAST_TEST_STORE:-}" ] || return 0
    promises sessions || SHORT=(--lease "$(lease_ms 5000)ms")
    promises queued || QUEUED=
}

# A lease of so many ms, or as short a one as this store keeps (tests/servers/common.sh).
lease_ms() { echo $(($1 > ${HOLDFAST_TEST_LEASE_MS:-0} ? $1 : HOLDFAST_TEST_LEASE_MS)); }

# Does the store promise this ("sessions", "queued", "woken": see holdfast-doctor(1))?
promises() {
    "$HOLDFAST" stores --json | grep "\"scheme\":\"${HOLDFAST_STORE%%:*}\"" |
        grep -q "\"$1\":true"
}

# Ends what the test has started, and what that left behind.
cli_teardown() {
    local pid
    for pid in "${STARTED[@]}"; do
        kill -KILL "$pid" 2>/dev/null || true
    done
    for pid in $(cat ./*.pid 2>/dev/null); do
        kill -KILL "$pid" 2>/dev/null || true
    done
}

# The command; with a plan of faults, or traced, the one that is built for that (tests/fakes).
holdfast() { "$(the_command)" "$@"; }
the_command() {
    if [ -n "${HOLDFAST_FAULT:-}${HOLDFAST_TRACE:-}" ]; then
        echo "${HOLDFAST%cli/holdfast}tests/holdfast-faults"
    else
        echo "$HOLDFAST"
    fi
}

# What it answers to --help, without the lines by which a shell takes none of that for a command
# where `acquire` is asked.
help_text() {
    local text
    text=$(holdfast "$@") || return
    sed "/^: <<'END'\$/d; /^END\$/,\$d" <<<"$text"
}

# Is it one JSON document a line, each with these members of these types?
documents() {
    python3 -c '
import json, sys
types = {"s": str, "i": int, "b": bool, "n": type(None), "l": list}
for line in sys.stdin:
    document = json.loads(line)
    for want in sys.argv[1:]:
        name, _, kinds = want.partition(":")
        assert type(document[name]) in [types[k] for k in kinds], (name, document)
' "$@"
}

# Makes the store: commands that only look don't.
made() { holdfast run "$K-made" -- true; }

# Runs a function that has to succeed, and to take less than so many ms at least once: a busy
# machine may be late, but not each time.
within() {
    local most=$1 start
    shift
    for _ in 1 2 3 4 5 6 7 8; do
        start=$(date +%s%N)
        "$@" || return 1
        [ $((($(date +%s%N) - start) / 1000000)) -ge "$most" ] || return 0
    done
    return 1
}

# Until the command succeeds; fails after ten minutes, when it never will.
await() {
    local until=$((SECONDS + 600))
    while [ "$SECONDS" -lt $until ]; do
        "$@" >/dev/null 2>&1 && return 0
        sleep 0.02
    done
    echo "in vain: $*"
    return 1
}

# Starts holdfast in the background, where a shell would have it ignore INT and QUIT: its pid in
# PID, its output in bg.out and bg.err.
background() {
    env --default-signal "$(the_command)" "$@" >bg.out 2>bg.err 3>&- &
    PID=$!
    STARTED+=("$PID")
}

# Holds the key by a command that runs until the test ends; more options may follow. The pid of the
# command is in cmd.pid.
hold() {
    local key=$1
    shift
    background run "$@" "$key" -- sh -c 'echo $$ >cmd.tmp; mv cmd.tmp cmd.pid; exec sleep 1200'
    await test -s cmd.pid
}

# The status of the background command, in STATUS. It has to end before what it runs would end by
# itself, twenty minutes after its beginning.
finished() {
    local pid=${1:-$PID} until=$((SECONDS + 600))
    while [ "$SECONDS" -lt $until ]; do
        if gone "$pid"; then
            STATUS=0
            wait "$pid" || STATUS=$?
            return 0
        fi
        sleep 0.04
    done
    echo "$pid goes on"
    return 1
}

held() { holdfast show --json "$1" | grep -q '"held":true'; }
free() { holdfast show --json "$1" | grep -q '"held":false'; }
waiters() {
    [ "$(holdfast show --json "$1" | grep -o '"held":false,"token":null' | wc -l)" = "$2" ]
}
# Until so many wait for the key. Where nobody stands in line it can't be seen: long enough for them
# to have begun, which whatever follows doesn't depend on.
lined_up() {
    if [ -n "$QUEUED" ]; then await waiters "$1" "$2"; else sleep 1; fi
}
token() { holdfast show --json "$1" | sed 's/.*"held":true,"token":\([0-9]*\).*/\1/;s/^{.*//'; }

# Fails with the status, on one line that has all of the words; what acquire prints is left out.
refused() {
    local want=$1 word
    shift
    [ "$status" = "$want" ] || return 1
    mapfile -t lines < <(grep -v '^unset HOLDFAST_KEY ' <<<"$output")
    [ "${#lines[@]}" = 1 ] || return 1
    [[ ${lines[0]} == holdfast:\ * ]] || return 1
    for word; do [[ $output == *"$word"* ]] || return 1; done
}
