#!/usr/bin/env bats
# The tools of the repository: setup installs exactly what is missing, lint finds what it should.

setup() {
    cd "$BATS_TEST_TMPDIR"
    mkdir fake
    for tool in sh env cat flock mktemp rm printf sleep wc; do
        ln -s "$(command -v "$tool")" fake/
    done
}

# A program of that name in fake/, with that body.
fake() {
    printf '#!/bin/sh\n%s\n' "$2" >"fake/$1"
    chmod +x "fake/$1"
}

# setup, seeing nothing but fake/.
run_setup() { PATH="$PWD/fake" run "$SOURCE/tools/setup" "$@"; }

@test "setup is silent where everything is there" {
    run "$SOURCE/tools/setup"
    [ "$status" = 0 ]
    [ -z "$output" ]
}

@test "setup installs exactly what is missing, after an update" {
    fake dpkg-query 'for p; do case $p in -*|\$*|ninja-build|gcc) ;;
        *) echo "$p installed";; esac; done'
    fake id 'echo 0'
    fake apt-get 'echo "$*" >>calls'
    run_setup build
    [ "$status" = 0 ]
    [ "$output" = "setup: installing gcc ninja-build" ]
    [ "$(wc -l <calls)" = 2 ]
    [[ "$(sed -n 1p calls)" = *" update" ]]
    [[ "$(sed -n 2p calls)" = *" install --no-install-recommends gcc ninja-build" ]]
}

@test "setup counts a package that was removed, but not purged, as missing" {
    fake dpkg-query 'for p; do case $p in -*|\$*) ;; meson) echo "meson config-files";;
        *) echo "$p installed";; esac; done'
    fake id 'echo 0'
    fake apt-get 'echo "$*" >>calls'
    run_setup build
    [ "$status" = 0 ]
    [ "$output" = "setup: installing meson" ]
}

@test "setup: one of two at the same time waits for the other, and installs nothing then" {
    fake dpkg-query 'for p; do case $p in -*|\$*) ;; gcc) [ ! -e done ] || echo "gcc installed";;
        *) echo "$p installed";; esac; done'
    fake id 'echo 0'
    # The first call ends when the other setup waits for the lock, or calls apt-get, too.
    rm fake/flock
    fake flock "echo >>asked; exec $(command -v flock) \"\$@\""
    fake apt-get 'echo "$*" >>calls
        until [ "$(wc -l <asked)" = 2 ] || [ "$(wc -l <calls)" -gt 1 ]; do sleep 0.02; done
        case "$*" in *install*) : >done;; esac'
    : >asked
    PATH="$PWD/fake" "$SOURCE/tools/setup" build 3>&- &
    run_setup build
    [ "$status" = 0 ]
    wait $!
    [ "$(wc -l <calls)" = 2 ]
    [[ "$(sed -n 1p calls)" = *" update" ]]
    [[ "$(sed -n 2p calls)" = *" install --no-install-recommends gcc" ]]
}

@test "setup uses sudo where it isn't root" {
    fake dpkg-query 'exit 1'
    fake id 'echo 1000'
    fake sudo 'echo "sudo $*" >>calls'
    run_setup build
    [ "$status" = 0 ]
    [[ "$(sed -n 2p calls)" = sudo*apt-get*install*gcc* ]]
}

@test "setup names the packages where it is neither root nor has sudo, and stops" {
    fake dpkg-query 'exit 1'
    fake id 'echo 1000'
    fake apt-get 'echo called >>calls'
    run_setup build
    [ "$status" = 77 ]
    [[ "$output" = *"as root, please run:"*"apt-get install --no-install-recommends gcc "* ]]
    [ ! -e calls ]
}

@test "setup names the packages where there is no dpkg, and stops" {
    run_setup build
    [ "$status" = 69 ]
    [[ "$output" = *"no dpkg"*meson* ]]
}

@test "setup shows what apt said when it fails" {
    fake dpkg-query 'exit 1'
    fake id 'echo 0'
    fake apt-get 'echo "E: no network"; exit 100'
    run_setup build
    [ "$status" = 69 ]
    [[ "$output" = *"E: no network"*"apt-get update failed"* ]]
}

@test "setup refuses a group that it doesn't know" {
    run_setup everything
    [ "$status" = 64 ]
    [[ "$output" = *"unknown group 'everything'"* ]]
}

# A tree with the tools, no git, and one good file.
tree() {
    mkdir -p tree/core/state tree/include tree/tools
    cp "$SOURCE/tools/lint" "$SOURCE"/tools/{layers,messages,prose}.py tree/tools/
    cp "$SOURCE/.clang-format" tree/
    : >tree/tools/lint-exceptions
    printf '/*\n * good.c - a good file.\n */\nint hf__good;\n' >tree/core/good.c
}

# Does lint find RULE in a file of that content?
finds() {
    printf "$3" >"tree/$2"
    run tree/tools/lint
    rm "tree/$2"
    [ "$status" = 1 ] && [[ "$output" = *"$2:"*": $1: "* ]] && return
    echo "$1 not found in $2: $output"
    return 1
}

# The same of many files with one run of lint, by found_all. Each "bad" of a name gets a number, so
# that they stand beside each other.
WANTED=()
also_finds() {
    local name=${2/bad/bad${#WANTED[@]}}
    [ ! -e "tree/$name" ] || found_all
    printf "${3//bad./bad${#WANTED[@]}.}" >"tree/$name"
    WANTED+=("$name $1")
}
found_all() {
    local one
    run tree/tools/lint
    [ "$status" = 1 ]
    for one in "${WANTED[@]}"; do
        grep -q "^${one% *}:[0-9]*: ${one#* }: " <<<"$output" || { echo "$one: $output"; return 1; }
        rm -f "tree/${one% *}"
    done
    WANTED=()
}

@test "lint finds nothing in what is good" {
    tree
    printf 'Who holds it? It says who holds, and who waits. See `who waits`. A user who asks.\n' \
        >tree/page.md
    printf 'who = 1\nprint(who)   # not the user who\n' >tree/tools/who.py
    printf '%s\n' 'run ! grep a b' '! grep a b || return 1' 'if ! grep a b; then return 1; fi' \
        'until ! grep a b; do sleep 1; done' '[ ! -e a ] && [[ ! a = b ]]' >tree/good.bats
    run tree/tools/lint
    [ "$status" = 0 ]
    [ -z "$output" ]
}

@test "lint: each rule finds what it is for" {
    tree
    head='/*\n * bad.c - a bad file.\n */\n'
    long=$(printf '%0101d' 0)
    also_finds BANNED core/bad.c "${head}void f(char *a)\n{\n    strcpy(a, \"\");\n}\n"
    also_finds BANNED core/bad.c "${head}void f(void)\n{\n    usleep(1);\n}\n"
    also_finds BANNED core/bad.c "${head}char *f(void)\n{\n    return getenv(\"X\");\n}\n"
    also_finds NOCLOCK core/bad.c "${head}long f(void)\n{\n    return time(0);\n}\n"
    also_finds NOIO core/state/step.c '/*\n * step.c - pure.\n */\n#include <stdio.h>\n'
    also_finds LONGLINE core/bad.c "$head/* $long */\n"
    also_finds LONGFUNC core/bad.c "${head}void f(void)\n{\n$(printf '    f();\\n%.0s' {1..69})}\n"
    also_finds BIGFILE core/bad.c "$head$(printf 'int hf__a;\\n%.0s' {1..598})"
    also_finds TAB core/bad.c "${head}int\thf__a;\n"
    also_finds SPACE core/bad.c "${head}int hf__a; \n"
    also_finds SPACE core/bad.c "${head}int hf__a;"
    also_finds UNDONE core/bad.c "$head/* TO""DO: all */\n"
    not='! grep -q a b'
    also_finds NEGATED bad.bats "    $not\n"
    also_finds NEGATED bad.bats "none() { $not; }\n"
    also_finds NEGATED bad.bats "    [ -e b ] && $not\n"
    also_finds HEADERDOC include/bad.h '/*\n * bad.h - bad.\n */\n\nHF_API int hf_a(void);\n'
    also_finds OPENING core/bad.c 'int hf__a;\n'
    also_finds PATHS core/bad.c "$head/* see /ho""me/me/notes */\n"
    also_finds BIGPAGE README.md "$(printf 'a line\\n%.0s' {1..151})"
    also_finds WORDS README.md 'The pump rings.\n'
    also_finds SUBJECT tools/bad.c "$head/* Wakes\n   who waits. */\n"
    also_finds SUBJECT tools/bad.c "${head}const char *t = \"of those who wait\";\n"
    also_finds SUBJECT tools/bad.py '# Whoever holds it.\n'
    also_finds COMMENT core/bad.c "$head/* 0: done. */\nint hf__a(void);\n"
    also_finds COMMENT core/bad.c "$head/* Ends. Under the mutex, dropped. */\nint hf__a(void);\n"
    also_finds SUBJECT bad.md 'It ends. One that is late is refused.\n'
    also_finds NAMED bad.md 'The step is in `core/none.c`.\n'
    also_finds NAMED bad.md 'See [this](none.md).\n'
    also_finds NAMED bad.md 'See [this](bad.md#none).\n'
    also_finds NAMED bad.md '`hf_none` does it.\n'
    also_finds NAMED ARCHITECTURE.md '# A\n\n## Words\n\n| grant | a right | `none` |\n'
    also_finds OWNER core/bad.c "${head}void f(int *w)\n{\n    w->look_at_us = 0;\n}\n"
    also_finds EXEC core/bad.sh '#!/bin/sh\n'
    also_finds FORMAT core/bad.c "${head}int  hf__a;\n"
    found_all
}

# A file of the tree: its path, and what it has beside its opening.
file() {
    mkdir -p "tree/${1%/*}"
    printf '/*\n * %s - a part.\n */\n%b' "${1##*/}" "$2" >"tree/$1"
}

@test "lint: what is below knows nothing of what is above it" {
    tree
    file core/util/low.c 'int hf__low(void) { return 0; }\n'
    file core/util/low.h 'int hf__low(void);\n'
    file core/client/high.c '#include "low.h"\n\nint hf__high(void) { return hf__low(); }\n'
    file core/client/high.h 'int hf__high(void);\n'
    file conform/suite.c '#include "high.h"\n\nint hf__suite(void) { return hf__high(); }\n'
    run tree/tools/lint
    [ -z "$output" ]
    high='int hf__high(void);\n'
    head='/*\n * bad.c - bad.\n */\n'
    finds LAYER core/util/bad.c "$head#include \"high.h\"\n"
    finds LAYER core/util/bad.c "$head${high}void f(void)\n{\n    hf__high();\n}\n"
    finds LAYER core/util/bad.c "$head${high}int (*f)(void) = hf__high;\n"
    finds LAYER core/client/bad.c "${head}void f(void)\n{\n    hf__suite();\n}\n"
    mkdir tree/drivers
    finds LAYER drivers/bad.c '/*\n * bad.c - bad.\n */\n#include "high.h"\n'
    # An exception says how many there are.
    file core/util/old.c "${high}void f(void) { hf__high(); }\n"
    echo 'LAYER core/util/old.c 1 # old' >tree/tools/lint-exceptions
    run tree/tools/lint
    [ "$status" = 0 ]
    rm tree/core/util/old.c
    run tree/tools/lint
    [ "$status" = 1 ]
    [[ "$output" = *"LAYER core/util/old.c: there is no such thing"* ]]
}

@test "lint: files that call each other in a circle" {
    tree
    file core/util/a.c 'int hf__a(void) { return hf__b(); }\n'
    file core/util/b.c 'int hf__b(void) { return hf__c(); }\n'
    run tree/tools/lint
    [ -z "$output" ]
    file core/util/c.c 'int hf__c(void) { return hf__a(); }\n'
    run tree/tools/lint
    [ "$status" = 1 ]
    [ "$output" = "core:1: CYCLE: these call each other in a circle: util/a, util/b, util/c" ]
    echo 'CYCLE core 3 # old' >tree/tools/lint-exceptions
    run tree/tools/lint
    [ "$status" = 0 ]
    file core/util/c.c 'int hf__c(void) { return 0; }\n'
    run tree/tools/lint
    [ "$status" = 1 ]
    [[ "$output" = *"CYCLE core: there is no such thing"* ]]
}

@test "lint: the map of the core is as old as the sources" {
    tree
    file core/util/low.c 'int hf__low(void) { return 0; }\n'
    file core/client/high.c 'int hf__high(void) { return hf__low(); }\n'
    mkdir -p tree/doc/internals
    tree/tools/lint --map
    grep -E '^core/client( +[.]){7} +x$' tree/doc/internals/map.md
    grep -Fx -- '- **high**: a part' tree/doc/internals/map.md
    run tree/tools/lint tree/core/client/high.c
    [ -z "$output" ]
    file core/client/high.c 'int hf__high(void) { return 0; }\n'
    run tree/tools/lint tree/core/client/high.c
    [ "$status" = 1 ]
    [ "$output" = "doc/internals/map.md:1: MAP: is not what the sources say: tools/lint --map" ]
}

@test "lint --map: the page of messages is made from the header, and lint says when it is old" {
    tree
    mkdir -p tree/doc/internals
    table='#define HF_CODES(X) X(%s, -1, 75, "held", "nothing was changed",'
    table+=' \\\n    "see: holdfast show KEY")\n'
    file include/holdfast.h "$(printf "$table" BUSY)\n\nenum hf_code { HF_BUSY };\n"
    tree/tools/lint --map
    grep -Fx '| BUSY | 75 | held | nothing was changed | see: `holdfast show KEY` |' \
        tree/doc/messages.md
    run tree/tools/lint tree/include/holdfast.h
    [[ $output != *MAP* ]]
    file include/holdfast.h "$(printf "$table" FULL)\n\nenum hf_code { HF_FULL };\n"
    run tree/tools/lint tree/include/holdfast.h
    [[ $output == *"doc/messages.md:1: MAP: is not what the header says: tools/lint --map"* ]]
}

@test "lint: names in comments and strings are no calls" {
    tree
    printf '/*\n * ok.c - no strcpy( here.\n */\nconst char *hf__a = "gets(";\n' >tree/core/ok.c
    run tree/tools/lint
    [ "$status" = 0 ]
}

@test "lint: an exception excuses, and is a ratchet" {
    tree
    printf '/*\n * old.c - old.\n */\n#define A strcpy(0, 0)\n#define B strcat(0, 0)\n' \
        >tree/core/old.c
    echo 'BANNED core/old.c 2 # generated' >tree/tools/lint-exceptions
    run tree/tools/lint
    [ "$status" = 0 ]
    echo 'BANNED core/old.c 3 # generated' >tree/tools/lint-exceptions
    run tree/tools/lint
    [ "$status" = 1 ]
    [[ "$output" = *"RATCHET: BANNED only 2 times now"* ]]
    echo 'BANNED core/old.c 1 # generated' >tree/tools/lint-exceptions
    run tree/tools/lint
    [ "$status" = 1 ]
    [[ "$output" = *"BANNED: strcat"* ]]
    echo 'BANNED core/gone.c 1 # generated' >tree/tools/lint-exceptions
    run tree/tools/lint
    [[ "$output" = *"there is no such thing"* ]]
    echo 'BANNED core/old.c 2' >tree/tools/lint-exceptions
    run tree/tools/lint
    [[ "$output" = *"RATCHET: not of the form"* ]]
}

# What steps.py makes of a test's output, as meson logs it: "passed failed".
count() {
    mkdir -p b/meson-logs
    python3 - "$1" "$2" >b/meson-logs/testlog.json <<'END'
import json, sys
print(json.dumps({'name': 'holdfast:unit / t', 'stdout': sys.argv[1], 'result': sys.argv[2]}))
END
    PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$SOURCE/tools" python3 - <<'END'
import steps
steps.LOGS = '.'
step = steps.Step('t')
steps.count_points(step, 'b', 'b/meson-logs/testlog.json', '')
print(step.passed, len(step.failed))
END
}

@test "test counts points that ran, and takes a skip, a crash and silence for failures" {
    [ "$(count $'1..2\nok 1 - a\nok 2 - b\n' OK)" = "2 0" ]
    [ "$(count $'1..2\nok 1 - a\nnot ok 2 - b\n' FAIL)" = "1 1" ]
    [ "$(count $'1..1\nok 1 - a # SKIP no server\n' OK)" = "0 1" ]
    [ "$(count $'1..2\nok 1 - a\n' ERROR)" = "1 1" ]
    [ "$(count '' TIMEOUT)" = "0 1" ]
    [ "$(count '' OK)" = "0 1" ]
}

# in_turn TURN BUILD SUITE...: the tests of these suites that a run of tools/test takes.
in_turn() {
    PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="${CHOICE-$SOURCE/tools}" python3 - "$BUILD" "$@" <<'END'
import sys
import choice
folder, turn, build, *suites = sys.argv[1:]
chosen = choice.of_suites(folder, [word for suite in suites for word in ('--suite', suite)])
print('\n'.join(choice.in_turn(chosen, int(turn), build)))
END
}

# As many turns as try all tests.
TURNS='5 6 7 8 9 10 11 12'

@test "test tries a share of the long tests with each commit, and all of them in eight" {
    outside_of_git
    for turn in $TURNS; do
        in_turn "$turn" gcc torture turns unit >"$turn"
        grep -qx mixed_mem "$turn" || echo no >>left_out
        for always in drivers_test seeds seeded_file; do grep -qx "$always" "$turn"; done
    done
    [ "$(wc -l <left_out)" = 7 ]
    HF_LONG=1 in_turn 5 gcc torture turns unit | sort >all
    cat $TURNS | sort -u | diff - all
    [ "$(cat $TURNS | sort | uniq -c | grep -c '^ *1 ')" -gt 200 ]
}

@test "test runs conform and lock_basic on every store with each commit, each other suite on some" {
    outside_of_git
    HF_LONG=1 in_turn 0 gcc stores >all
    stores=$(sed -n 's/^driver_fails_\([a-z0-9]*\)$/\1/p' all | grep -vE '^(account|rediss|etcds)$')
    [ "$(wc -w <<<"$stores")" = 8 ]
    for turn in $TURNS; do
        in_turn "$turn" gcc stores >run
        for suite in conform lock_basic; do
            for store in sqlite five $stores; do
                grep -qx "${suite}_$store" run || { echo "$turn: ${suite}_$store"; false; }
            done
        done
        for suite in lock_again lock_life lock_process lock_trips lock_parked low_fd cases mixed \
            outage history cuts held_many driver_fails below guard node_cases python_cases cli; do
            grep -q "^${suite}_" run || { echo "$turn: $suite"; false; }
        done
    done
}

@test "test: a commit that changes a driver tries all tests on it, or only its own" {
    outside_of_git
    mkdir -p drivers/etcd drivers/kit drivers/nats tests/drivers/mariadb tests/servers
    git init -q .
    git config user.email a@example.org
    git config user.name a
    git commit -q --allow-empty -m one
    # Nobody can say what a commit without a parent changes.
    [ "$(tried_in_turns)" = 'etcd_test mariadb_test servers ' ]
    git commit -q --allow-empty -m two
    echo text >drivers/kit/kit.c
    git add drivers
    git commit -qm three
    [ "$(tried_in_turns)" = '' ]
    echo text >drivers/etcd/etcd.c
    git add drivers
    [ "$(tried_in_turns)" = 'driver_fails_etcds etcd_test lock_life_etcd outage_etcd_cluster ' ]
    git commit -qm four
    [ "$(tried_in_turns)" = 'driver_fails_etcds etcd_test lock_life_etcd outage_etcd_cluster ' ]
    echo text >tests/drivers/mariadb/mariadb_test.bats
    echo text >tests/servers/etcd
    git add tests
    git commit -qm five
    [ "$(tried_in_turns)" = 'lock_life_mariadb mariadb_test servers ' ]
    echo more | tee drivers/etcd/etcd.c tests/drivers/mariadb/mariadb_test.bats >drivers/nats/nats.c
    git add .
    [ "$(tried_in_turns)" = 'etcd_test mariadb_test servers ' ]
}

# tools/choice.py in a folder of its own, for which git knows of no commit.
outside_of_git() {
    mkdir -p repo/tools
    cp "$SOURCE/tools/choice.py" repo/tools/
    export GIT_CEILING_DIRECTORIES=$PWD
    cd repo
    export CHOICE=$PWD/tools
}

# Which of these are tried in each turn.
tried_in_turns() {
    local turn
    for turn in $TURNS; do in_turn "$turn" gcc stores; done |
        grep -xE '(etcd|mariadb)_test|lock_life_(etcd|mariadb)|(out|drive).*_etcd(s|_.*)|servers' |
        sort | uniq -c | sed -n 's/^ *8 //p' | tr '\n' ' '
}

@test "test: eight turns try each test, and three make each part of a release" {
    mkdir build
    ln -s "$BUILD/meson-info" build/
    PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$SOURCE/tools" python3 - build <<'END'
import os, sys
import choice, steps
listed = {test['name'] for test in choice.known(sys.argv[1], 'tests')}
tried, parts, clang = [], [], []
steps.build_dir = lambda name: sys.argv[1]
steps.Step.run = lambda step, command, **more: tried.append(command) or 0
class Taken(steps.Step):
    def __init__(self, name):
        self.name, self.note, self.before, self.details = name, '', (), []
    def check(self, *words):
        pass
for turn in range(5, 13):
    os.environ['HF_TURN'] = str(turn)
    for name in 'test gcc', 'test stores', 'test compute':
        steps.STEPS[name][0](Taken(name))
    parts.append(choice.of_the_release())
    clang.append(choice.whole())
names = [name for command in tried for name in command[command.index('--num-processes') + 2:]]
assert set(names) == listed, set(names) ^ listed
for three in parts[:3], parts[3:6]:
    assert sorted(three) == [[part] for part in sorted(choice.RELEASE)], parts
assert [sorted(three) for three in (clang[:3], clang[3:6])] == [[False, False, True]] * 2, clang
os.environ['HF_LONG'] = '1'
assert choice.of_the_release() == choice.RELEASE and choice.whole()
END
}

# report COMMAND...: what a step shows that ran these, one failed check each; then the summary.
report() {
    PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$SOURCE/tools" python3 - "$PWD" "$@" <<'END'
import sys
import report, steps
steps.TOP = steps.LOGS = sys.argv[1]
step = steps.Step('a step')
for command in sys.argv[2:]:
    step.check(step.run(['sh', '-c', command]) == 0, 'it works', 'do it again')
report.show(step, 1, steps.TOP)
report.summary([step])
END
}

@test "test shows in a few lines what failed of a step, why, and how to run it again" {
    report true 'echo fine' >out
    [ "$(wc -l <out)" = 1 ]
    report true 'seq 100; echo "a.c:1: error: no a"; seq 30; exit 1' 'echo fine' >out
    cat out
    [ "$(wc -l <out)" -le 15 ]
    grep -Fx '    failed: it works' out
    grep -Fx '    again:  do it again' out
    grep -Fx '    | a.c:1: error: no a' out
    run grep -E 'fine|\$ sh' out
    [ "$status" = 1 ]
    [ "$(tail -n 1 out)" = 'FAIL  a step: it works: a.c:1: error: no a; again: do it again' ]
    # A test's last point that failed, and what it says of it.
    report 'echo "ok 1 - a"; echo "not ok 2 - b"; echo "# because"; echo "ok 3 - c"; exit 1' >out
    grep -A 1 -Fx '    | not ok 2 - b' out | grep -Fx '    | # because'
    run grep 'ok 3' out
    [ "$status" = 1 ]
}

@test "test tries a share of the command's tests with the address sanitizer" {
    outside_of_git
    for turn in $TURNS; do in_turn "$turn" asan cli >"$turn"; done
    HF_LONG=1 in_turn 5 gcc cli | grep -v cinema | sort >all
    cat $TURNS | sort -u | grep -v cinema | diff - all
    [ "$(cat $TURNS | sort | uniq -d | wc -l)" = 0 ]
}

# A folder with a core of one file, compiled and run as tools/coverage has it.
counted_core() {
    mkdir -p tools tests core build-coverage/x.p
    cp "$SOURCE/tools/coverage" tools/
    : >tests/coverage-left
    printf '%s\n' 'int main(int n, char **w)' '{' '(void)w;' 'if (n > 1) return 1;' '}' \
        >core/a.c
    echo 'build x.p/core_a.c.o:' >build-coverage/build.ninja
    compile_core
    build-coverage/a
}

compile_core() {
    (cd build-coverage && gcc --coverage -c ../core/a.c -o x.p/core_a.c.o &&
        gcc --coverage x.p/core_a.c.o -o a)
}

@test "coverage says which branches weren't taken, and that it could" {
    counted_core
    run tools/coverage --report core
    [ "$status" = 0 ]
    [[ "$output" = *"core/a.c:4: 1 of 2: if (n > 1) return 1;"* ]]
    [[ "$output" = *"not ok core: 50.00 %"* ]]
    run tools/coverage --report core/a.c
    [ "$status" = 0 ]
    [[ "$output" != *"not ok"* ]]
}

@test "coverage says in one line why it can't say anything" {
    mkdir -p tools core
    cp "$SOURCE/tools/coverage" tools/
    run tools/coverage --report core
    [ "$status" = 1 ]
    [ "$output" = "tools/coverage: nothing has been built: tools/coverage does it" ]
    run tools/coverage --report cli
    [ "$status" = 64 ]
    counted_core
    touch -d '1 minute' core/a.c
    run tools/coverage --report core
    [ "$status" = 1 ]
    [ "${#lines[@]}" = 1 ]
    [[ "$output" = "tools/coverage: core/a.c was changed after it was compiled: "* ]]
}

@test "coverage leaves out what was counted of an earlier build, or of what isn't built any more" {
    counted_core
    sed -i 's/n > 1/n > 2/' core/a.c
    compile_core
    mkdir build-coverage/old.p
    echo none >build-coverage/old.p/core_b.c.gcno
    run tools/coverage --report core/a.c
    [ "$status" = 0 ]
    [[ "$output" = *"core/a.c:4: 2 of 2:"* ]]
    build-coverage/a
    run tools/coverage --report core/a.c
    [ "$status" = 0 ]
    [[ "$output" = *"core/a.c:4: 1 of 2:"* ]]
}

@test "meson: a module beside drivers that are built in exports its entry, and nothing else" {
    meson setup build "$SOURCE" -Dtests=false -Dbuiltin_drivers=sqlite,rediss
    ninja -C build libholdfast-redis.so
    run nm -D --defined-only --format=just-symbols build/libholdfast-redis.so
    [ "$output" = hf_driver_entry ]
}

@test "servers: who is being killed isn't gone when its first thread is" {
    printf '%s\n' '#include <pthread.h>' '#include <unistd.h>' \
        'static void *stay(void *p) { return pause(), p; }' \
        'int main(void) { pthread_t t; pthread_create(&t, 0, stay, 0); pthread_exit(0); }' >two.c
    $CC -pthread -o two two.c
    # shellcheck source=tests/gone.sh
    . "$SOURCE/tests/gone.sh"
    ./two &
    until grep -q '^State:.Z' "/proc/$!/status"; do sleep 0.01; done
    if gone $!; then return 1; fi
    kill -KILL $!
    until gone $!; do sleep 0.01; done
}

@test "reading: a seed picks twenty comments, ten paragraphs and ten messages, the same each time" {
    "$SOURCE/tools/reading" 1 >first
    "$SOURCE/tools/reading" 1 >again
    cmp first again
    for kind in 'comment 20' 'paragraph 10' 'message 10'; do
        [ "$(grep -c "^--- [0-9]*: ${kind% *}, " first)" = "${kind#* }" ]
    done
    "$SOURCE/tools/reading" 2 >other
    ! cmp -s first other || return 1
    run "$SOURCE/tools/reading"
    [ "$status" = 2 ]
}
