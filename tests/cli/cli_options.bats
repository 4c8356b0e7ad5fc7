#!/usr/bin/env bats
# What can be written on the command line: options, help, which store it is, and flock(1)'s words.

bats_require_minimum_version 1.5.0
load cli_common
setup() {
    cli_setup
    unset HOLDFAST_DRIVERS
}
teardown() { cli_teardown; }

# A command line that is refused as one that can't be meant.
refused() {
    run holdfast "${@:2}"
    [ "$status" = 64 ]
    [ "${#lines[@]}" = 1 ]
    [[ $output == *"$1"* ]]
}

@test "--help of each command has a line for each option that its synopsis names, and more" {
    for command in run once acquire renew enter release ls show watch break forget prune guard \
        stores doctor bench; do
        run help_text "$command" --help
        [ "$status" = 0 ]
        [[ ${lines[0]} == "usage: holdfast $command "* ]]
        for option in $(grep -o -- '--[a-z-]*[a-z]' <<<"${output%%$'\n\n'*}" | sort -u); do
            grep -q -- "^  \(-., \|    \)$option\b.* [a-z]" <<<"$output"
        done
        for short in $(grep -oE -- '(\[|\| )-[A-Za-z]\b' <<<"${output%%$'\n\n'*}" | tr -d '[| '); do
            grep -q -- "^  $short, --.* [a-z]" <<<"$output"
        done
    done
}

@test "help of a command that isn't: 64" {
    refused "unknown command 'nosuch'" help nosuch
    [ "$(holdfast help run)" = "$(holdfast run --help)" ]
    [ "$(holdfast help help)" = "$(holdfast help)" ]
    refused "one command at a time" help run nosuch
    refused "one command at a time" help help run
}

@test "an option that isn't: the one that is meant is named" {
    refused "bad option '--leese'; did you mean --lease?" run --leese 3 "$K" -- true
    # What another command would take isn't meant.
    refused "bad option '--nosuch' (see: " watch --nosuch
    refused "bad option '--tokn'; did you mean --token?" release "$K" --tokn 3
    refused "bad option '--xyz' (see" ls --xyz
}

@test "options that can't both be meant are refused" {
    refused "-n doesn't wait" run -n -w 1 "$K" -- true
    refused "-n doesn't wait" run -w 1 -n "$K" -- true
    holdfast run -n -w 0 "$K" -- true
    refused "--limit lets several" run -s --limit 2 "$K" -- true
    refused "--limit lets several" run --limit 2 -x "$K" -- true
    refused "-F leaves no process" run -F --lease 5 "$K" -- true
    refused "-F leaves no process" run -F --at-least 5 "$K" -- true
    refused "-F leaves no process" run -Fo "$K" -- true
    refused "--at-least keeps the key for longer than --max-hold" \
        run --at-least 5s --max-hold 4999ms "$K" -- true
    holdfast run --at-least 1ms --max-hold 1h "$K" -- true
}

@test "keys that look like options stand between two --; so does the key --" {
    for key in -n --; do
        [ "$(timeout 60 "$HOLDFAST" run -- "$key" -- printenv HOLDFAST_KEY)" = "$key" ]
    done
    refused "no key" run -- -- true
}

@test "several keys and -c: what is meant is said, and nothing runs" {
    refused "'k2' is no command; several keys need" run k1 k2 -c 'touch ran'
    [ ! -e ran ]
    run holdfast run k1 sh -c 'echo ran'
    [ "$output" = ran ]
    run env -u PATH "$HOLDFAST" run k1 sh -c 'echo ran'
    [ "$output" = ran ]
}

@test "flock's words do what they do in flock(1)" {
    for word in -n --nb --nonblock --nonblocking "-w 3" "--wait 3" "--timeout 3" -s --shared -x -e \
        --exclusive -o --close -F --no-fork "-E 3" "--conflict-exit-code 3" --verbose; do
        # shellcheck disable=SC2086
        flock $word lock echo "ran $word" 2>/dev/null | grep -qx -e "ran $word"
        # shellcheck disable=SC2086
        holdfast run $word "$K" echo "ran $word" 2>/dev/null | grep -qx -e "ran $word"
    done
    for word in -V --version -h --help; do
        flock $word
        holdfast run $word
    done
    [ "$(holdfast run -V)" = "$(holdfast --version)" ]
    [ "$(SHELL='' holdfast run "$K" -c 'echo a; echo b')" = "$(flock lock -c 'echo a; echo b')" ]
}

# The rows of the manual's table of what differs from flock(1): what is said is so.
@test "coming from flock(1): each row of the manual's table is true" {
    rows() { sed -n 's/^\.It \(.*\) Ta .*/\1/p' <<<"$table"; }
    table=$(sed -n '/^\.Ss Coming from flock(1)/,/^\.Sh/p' "$SOURCE/man/holdfast-run.1")
    [ "$(rows)" = 'Em flock(1)
a path, which is made
status 1 if not obtained
a descriptor: Ql flock 9
Fl u , -unlock
Fl F No with any file' ]
    # a key: no file of that name is made or looked at
    [[ $table == *"a key: no file of that name is made or looked at"* ]]
    flock path true
    [ -e path ]
    mkfifo fifo # to open it would block
    for key in none/such/path ./no-file fifo; do
        [ "$(timeout 60 "$HOLDFAST" run -n "$key" -- echo ran)" = ran ]
    done
    [ ! -e none ]
    [ ! -e no-file ]
    # status 75; -E gives another
    [[ $table == *"status 75; Fl E No gives another"* ]]
    eval "$(holdfast acquire "$K" --lease 1h)"
    run flock path flock -n path true
    [ "$status" = 1 ]
    run holdfast run -n "$K" -- true
    [ "$status" = 75 ]
    run holdfast run -n -E 1 "$K" -- true
    [ "$status" = 1 ]
    # a descriptor is none; -u is release
    [[ $table == *"Xr holdfast-acquire 1 , or a command"*"Ta Xr holdfast-release 1"* ]]
    exec 8>descriptor
    flock 8
    run holdfast run 8
    [ "$status" = 64 ]
    for word in -u --unlock; do
        run holdfast run $word "$K"
        [ "$status" = 64 ]
    done
    holdfast release "$K" --token "$HOLDFAST_TOKEN"
    holdfast run -n "$K" -- true
    # -F: on file: only
    [[ $table == *"on Ql file: No only"* ]]
    flock -F path true
    holdfast run -F "$K" -- true
    run holdfast -S "sqlite:$PWD/db" run -F "$K" -- true
    [ "$status" = 64 ]
    # the two don't exclude each other
    [[ $table == *"The two don't exclude each other"* ]]
    [ "$(flock path "$HOLDFAST" run -n path -- echo ran)" = ran ]
    [ "$(holdfast run path -- flock -n path echo ran)" = ran ]
}

@test "README: unless a store is named, each user has one of their own" {
    sentence='Unless you name a store, each user has a `file:` store of their own.'
    grep -qF "$sentence" "$SOURCE/README.md"
    unset HOLDFAST_STORE XDG_STATE_HOME
    mkdir anna berta
    as() { HOME=$PWD/$1 "$HOLDFAST" "${@:2}"; }
    # The command is given the name of anna's store; another user's job isn't.
    as anna run "$K" -- env -u HOLDFAST_STORE HOME="$PWD/berta" "$HOLDFAST" run -n "$K" -- \
        touch both
    [ -e both ]
    run as anna run "$K" -- env -u HOLDFAST_STORE "$HOLDFAST" run -n "$K" -- touch again
    [ "$status" = 75 ]
    [ ! -e again ]
    # a store that is named is shared
    as anna -S "file:$PWD/shared" run "$K" -- sh -c 'HOME=$PWD/berta "$0" run -n "$1" -- touch again
        test $? = 75' "$HOLDFAST" "$K"
    [ ! -e again ]
    [ -n "$(find anna -name '*holdfast*')" ]
    [ -n "$(find berta -name '*holdfast*')" ]
}

@test "-F: the command takes the place of holdfast, and holds until it ends" {
    "$HOLDFAST" run -F "$K" -- sh -c 'echo $$ >pid; until [ -e go ]; do sleep 0.05; done' 3>&- &
    started=$!
    STARTED+=("$started")
    await test -s pid
    [ "$(cat pid)" = "$started" ]
    run holdfast run -n "$K" -- true
    [ "$status" = 75 ]
    kill -KILL "$started"
    holdfast run -w 600 "$K" -- touch next
    [ -e next ]
    run -127 holdfast run -F "$K" -- ./nowhere
    [ "$status" = 127 ]
    holdfast run -n "$K" -- true
    run holdfast -S "sqlite:$PWD/db" run -F "$K" -- true
    [ "$status" = 64 ]
    [[ $output == *"-F: this store doesn't tell whether a process lives"* ]]
}

@test "the machine's file names the store of who names none" {
    unset HOLDFAST_STORE
    export HOME=$PWD HOLDFAST_FAULT=''
    faulty() { "${HOLDFAST%cli/holdfast}tests/holdfast-faults" "$@"; }
    printf 'file:%s/for-all\nanother line\n' "$PWD" >machine-store
    run faulty run -v "$K" -- sh -c 'echo "$HOLDFAST_STORE"'
    [[ $output == *"the store is file:$PWD/for-all (machine-store)"* ]]
    [[ $output == *$'\n'"file:$PWD/for-all" ]]
    faulty stores | grep -q "Without -S the store is file:$PWD/for-all (machine-store)"
    faulty doctor | grep -q for-all
    HOLDFAST_STORE=file:$PWD/mine faulty stores | grep -q "$PWD/mine (HOLDFAST_STORE)"
    faulty -S "file:$PWD/own" run -v "$K" -- true 2>&1 | grep -q "$PWD/own (-S)"
    # A file that is there, but names none that may be used: never another store instead.
    for line in '' 'redis://user:secret@h' 'postgres://h/d?password=secret'; do
        echo "$line" >machine-store
        run faulty run "$K" -- touch ran
        [ "$status" = 64 ]
        [[ $output == *machine-store* && $output != *secret@* && $output != *=secret* ]]
    done
    # A relative path would be another store in each directory.
    for url in file:rel file:./rel sqlite:rel.db 'sqlite:a/rel.db?table=t' file:r%2fel; do
        echo "$url" >machine-store
        for command in "run $K -- touch ran" "ls" "release $K --token 1" stores; do
            # shellcheck disable=SC2086
            run faulty $command
            [ "$status" = 64 ]
            [[ $output == *machine-store*relative* ]]
        done
    done
    [ ! -e ran ]
    for url in "file://$PWD/abs" "sqlite:$PWD/abs.db" file: 'redis://127.0.0.1/3'; do
        echo "$url" >machine-store
        faulty stores | grep -qF "Without -S the store is $url (machine-store)"
    done
    rm machine-store
    faulty stores | grep -q 'Without -S the store is file: (the default)'
}

@test "mem: would exclude nobody, so nothing is run or acquired on it" {
    for command in "run $K -- touch ran" "once $K -- touch ran" "acquire $K --lease 5" \
        "run -F $K -- touch ran"; do
        # shellcheck disable=SC2086
        run holdfast -S mem: $command
        [ "$status" = 64 ]
        [[ $output == *"mem: (-S)"*"exclude no other process"* ]]
        # shellcheck disable=SC2086
        HOLDFAST_STORE=mem:x run holdfast $command
        [ "$status" = 64 ]
        [[ $output == *"mem: (HOLDFAST_STORE)"*"exclude no other process"* ]]
    done
    [ ! -e ran ]
}

@test "what ends or changes something makes no store where there is none" {
    for store in "file:$PWD/none" "sqlite:$PWD/none"; do
        for command in "release $K --token 5" "renew $K --token 5" "enter $K --token 5" \
            "break $K --token 5" "forget $K" "prune --idle 1h"; do
            # shellcheck disable=SC2086
            run holdfast -S "$store" $command
            [ "$status" = 69 ]
            [[ $output == *"no store at "*none* ]]
            [ -z "$(find . -name 'none*')" ]
        done
        # Where there is one, they do what they are for.
        eval "$(holdfast -S "${store%none}some" acquire "$K" --lease 100)"
        holdfast -S "${store%none}some" renew "$K" --token "$HOLDFAST_TOKEN"
        holdfast -S "${store%none}some" release "$K" --token "$HOLDFAST_TOKEN"
        run holdfast -S "${store%none}some" release "$K" --token "$HOLDFAST_TOKEN"
        [ "$status" = 76 ]
        rm some*
    done
    # The default store is empty until there is one.
    unset HOLDFAST_STORE XDG_STATE_HOME
    mkdir home
    for command in "release $K --token 5" "break $K --token 5" "forget $K"; do
        # shellcheck disable=SC2086
        HOME=$PWD/home run holdfast $command
        [ "$status" = 76 ]
        [[ $output == *"$K"* ]]
        [ -z "$(find home -type f)" ]
    done
}

@test "a directory that takes no file: permission denied, 77, on file: and on sqlite:" {
    mkdir closed
    chmod 555 closed
    as_user=()
    if [ "$(id -u)" = 0 ]; then
        command -v setpriv >/dev/null || return 0
        chmod 755 "$BATS_RUN_TMPDIR" "$BATS_TEST_TMPDIR" "${BATS_TEST_TMPDIR%/*}"
        cp "$HOLDFAST" program
        export HOLDFAST_DRIVERS=${HOLDFAST%/cli/*}
        as_user=(setpriv --reuid 65534 --clear-groups)
        run "${as_user[@]}" ./program stores
        [[ $output == *sqlite* && $output != *"sqlite     cannot"* ]] || return 0
        HOLDFAST=./program
    fi
    for store in "file:$PWD/closed/st" "sqlite:$PWD/closed/st"; do
        run "${as_user[@]}" "$HOLDFAST" -S "$store" run "$K" -- true
        [ "$status" = 77 ]
        [[ $output == *"Permission denied"* ]]
        run "${as_user[@]}" "$HOLDFAST" -S "$store" ls
        [ "$status" = 69 ]
    done
    run "$HOLDFAST" -S "sqlite:$PWD/nowhere/st" run "$K" -- true
    [ "$status" = 69 ]
    [[ $output == *"No such file"* ]]
}

@test "a mistyped command: the one that was meant is named" {
    run holdfast aquire "$K"
    [ "$status" = 64 ]
    [[ $output == *"unknown command 'aquire'; did you mean acquire?"* ]]
    run holdfast -S run "$K" -- true
    [ "$status" = 64 ]
    [[ $output == *"-S 'run'"*"empty variable"* ]]
    run holdfast deploy
    [ "$status" = 64 ]
    [[ $output == *"unknown command 'deploy'"* && $output != *"did you"* && $output != *unset* ]]
    run holdfast help acquire
    [ "$status" = 0 ]
    [[ $output != *unset* ]]
}

@test "a build that isn't installed finds its own drivers" {
    run "$HOLDFAST" -S "sqlite:$PWD/db" run "$K" -- echo ran
    [ "$output" = ran ]
}

@test "ls, show and watch -v say which store it is, and how it is set up" {
    local url="sqlite:$PWD/db?table=shelf" where="in the table \"shelf\" of $PWD/db"
    holdfast -S "$url" run "$K" -- true
    for words in "ls" "show $K" "watch"; do
        rm -f bg.err # of the one before
        # shellcheck disable=SC2086
        background -S "$url" $words -v
        if [ "$words" = watch ]; then
            await awk 'END { exit NR < 2 }' bg.err
            kill "$PID"
        fi
        finished
        grep -qxF "holdfast: the locks are $where" bg.err
        [ "$STATUS" = 0 ] || [ "$words$STATUS" = watch143 ]
        [[ $(<bg.err) == "holdfast: the store is $url (-S)"$'\n'* ]]
        [[ $(<bg.out) != *"the store is"* ]]
    done
    run holdfast -S "$url" doctor
    grep -qxF "ok    the locks are $where" <<<"$output"
}

@test "ls: key, mode, age, lease and line, before who it is" {
    "$HOLDFAST" run -s "$K" -- sh -c 'echo $$ >cmd.pid; until [ -e go ]; do sleep 0.05; done' 3>&- &
    await test -s cmd.pid
    run holdfast ls
    [[ ${lines[0]} =~ ^KEY\ +MODE\ +AGE\ +LEFT\ +WAITING\ +TOKEN\ +HELD\ BY$ ]]
    [[ ${lines[1]} =~ ^$K\ +shared\ +[0-9.]+s\ +-\ +0\ +[0-9]+\ +.*pid\ [0-9]+ ]]
    touch go
    wait
}
