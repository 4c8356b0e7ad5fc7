#!/usr/bin/env bats
# How bench/cost, bench/crowd, bench/guards and bench/sim end when something is amiss or they are
# told to: one line and a status that isn't 0, no traceback, and nothing that stays.

bats_require_minimum_version 1.5.0

setup() {
    # shellcheck source=tests/gone.sh
    . "$SOURCE/tests/gone.sh"
    TMPDIR=$BATS_TEST_TMPDIR/tmp
    export TMPDIR
    mkdir "$TMPDIR"
    cd "$BATS_TEST_TMPDIR" || exit
    unset HOLDFAST_TEST_STORE
}

# It ends so, in one line that has this in it.
# shellcheck disable=SC2154  # run sets them
ends() { # STATUS TEXT COMMAND...
    expected=$1 text=$2
    shift 2
    run --separate-stderr "$@"
    echo "status $status: $output $stderr"
    [ "$status" = "$expected" ]
    [ "${#stderr_lines[@]}" = 1 ]
    [[ "$stderr" = *"$text"* ]]
    [ -z "$(ls "$TMPDIR")" ]
}

# Starts a program, sends it SIGINT alone when it runs what it measures with, and awaits its end.
interrupted() { # COMMAND...
    env --default-signal=INT "$@" >said 2>&1 3>&- &
    pid=$!
    until [ -s running ]; do sleep 0.02; done
    kill -INT "$pid"
    status=0
    wait "$pid" || status=$?
    cat said
    [ "$status" = 130 ]
    [ ! -s said ]
    [ -z "$(ls "$TMPDIR")" ]
    for child in $(cat running); do until gone "$child"; do sleep 0.02; done; done
}

# A copy that may be hurt.
copy() {
    mkdir -p top/bench/results/sim top/doc
    cp "$SOURCE"/bench/{cost,cost.json,sim,builds.py,plainly.py} top/bench/
    cp "$SOURCE/bench/results/sim/numbers.json" top/bench/results/sim/
    cp "$SOURCE/doc/sizing.md" top/doc/
    export BUILD
}

# In place of a program: tells its number, and stays.
stays() { # PATH
    printf '#!/bin/sh\necho $$ >>"%s"\nexec sleep 1000\n' "$PWD/running" >"$1"
    chmod +x "$1"
}

@test "cost: without valgrind" {
    mkdir bin
    ln -s "$(command -v env)" "$(python3 -c 'import sys; print(sys.executable)')" bin/
    [ -e bin/python3 ] || ln -s "$(basename bin/python3.*)" bin/python3
    ends 1 'cost: no valgrind' env PATH="$PWD/bin" "$SOURCE/bench/cost"
}

@test "cost: kept is nothing, or nothing that it keeps" {
    copy
    hurt=$(sed 's/0,$/"x",/' top/bench/cost.json)
    for text in '' '{}' '[]' '{"mem: acquire, release": 692}' "$hurt"; do
        printf '%s' "$text" >top/bench/cost.json
        ends 1 'bench/cost --write' top/bench/cost --check
    done
    rm top/bench/cost.json
    ends 1 'cost.json: No such file or directory' top/bench/cost --check
}

@test "cost, sim: a build that is none" {
    for program in cost sim; do
        ends 69 "nothing is built in $PWD/nowhere" "$SOURCE/bench/$program" --build "$PWD/nowhere"
    done
    mkdir -p broken/bench
    for program in cost sim; do
        printf '#!/bin/sh\necho it broke >&2\nexit 3\n' >broken/bench/bench-$program
        chmod +x broken/bench/bench-$program
    done
    ends 1 'sim: bench-sim: status 3: it broke' "$SOURCE/bench/sim" --build broken --only death
}

@test "cost, sim: SIGINT" {
    mkdir -p bin fake/bench
    stays bin/valgrind
    stays fake/bench/bench-cost
    stays fake/bench/bench-sim
    PATH=$PWD/bin:$PATH interrupted "$SOURCE/bench/cost" --build fake
    rm running
    interrupted "$SOURCE/bench/sim" --build fake
}

@test "cost, sim: words that they don't know" {
    for program in cost sim; do
        ends 64 "$program: unrecognized arguments: --nonsense" "$SOURCE/bench/$program" --nonsense
    done
}

@test "cost, sim: of the builds that are there the newest that has the program" {
    copy
    mkdir -p top/build/bench top/build-new/bench top/build-newest
    for build in build build-new; do
        printf '#!/bin/sh\necho of %s. >&2\nexit 3\n' $build >top/$build/bench/bench-sim
        chmod +x top/$build/bench/bench-sim
    done
    touch -d '2020-01-01' top/build
    touch -d '2020-01-02' top/build-new
    ends 1 'sim: bench-sim: status 3: of build-new.' env -u BUILD top/bench/sim --only death
    touch -d '2020-01-03' top/build
    ends 1 'sim: bench-sim: status 3: of build.' env -u BUILD top/bench/sim --only death
    ends 69 'nothing is built in build*/' env -u BUILD top/bench/cost
}

@test "sim: output that can't be written, a reader that has gone" {
    ends 1 'sim: No space left on device' sh -c '"$@" >/dev/full' sh "$SOURCE/bench/sim" \
        --build "$BUILD" --only death
    ends 1 'sim: Broken pipe' bash -c 'set -o pipefail; "$@" | true' sh "$SOURCE/bench/sim" \
        --build "$BUILD" --only death
}

@test "sim: kept is nothing, the page has no place" {
    copy
    echo >top/bench/results/sim/numbers.json
    ends 1 'numbers.json: ' top/bench/sim --check --only death
    echo '{}' >top/bench/results/sim/numbers.json
    ends 1 'has no table "death"' top/bench/sim --check --only death
    echo >top/doc/sizing.md
    ends 1 'doc/sizing.md has no place for the table "death"' top/bench/sim --check --only death
}

@test "guards: no kind, an unknown one, no command, one that is none, no store" {
    export HOLDFAST_TEST_STORE=sqlite:$PWD/locks
    ends 2 'usage: tests/servers/KIND' "$SOURCE/bench/guards"
    ends 2 'usage: tests/servers/KIND' "$SOURCE/bench/guards" nonsense
    ends 1 'HOLDFAST is not set' env -u HOLDFAST "$SOURCE/bench/guards" sqlite
    HOLDFAST=/nope ends 1 '/nope: No such file or directory' "$SOURCE/bench/guards" sqlite
    rm locks
    HOLDFAST=false ends 1 'false: status 1' "$SOURCE/bench/guards" sqlite
    ends 1 'run it by tests/servers/redis' "$SOURCE/bench/guards" redis
    unset HOLDFAST_TEST_STORE
    ends 1 'run it by tests/servers/sqlite' "$SOURCE/bench/guards" sqlite
}

@test "guards: SIGINT" {
    stays holdfast
    export HOLDFAST_TEST_STORE=sqlite:$PWD/locks
    HOLDFAST=$PWD/holdfast interrupted "$SOURCE/bench/guards" sqlite
}

@test "crowd: what isn't a number" {
    ends 64 "invalid int value: 'x'" "$SOURCE/bench/crowd" file:store x
}

@test "crowd: all that were started have had the key" {
    run --separate-stderr "$SOURCE/bench/crowd" "file:$PWD/store" 5
    echo "$output $stderr"
    [ "$status" = 0 ]
    [[ "$output" = 'file: 5 in '*' s, CPU '*'; statuses 0: 5; '*'; beside another: 0' ]]
    [ -z "$stderr" ]
    [ -z "$(ls "$TMPDIR")" ]
}
