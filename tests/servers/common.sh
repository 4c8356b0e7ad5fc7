# shellcheck shell=sh disable=SC2317,SC2154
# What the programs that run a command with a server of its own share: tests/servers/NAME COMMAND...
# Such a program sources this, sets and defines what follows, and ends with: serve "$@"
#
#   server_make        makes the server's data in $dir, a new directory, and fails with the reason
#   server_run         becomes the server (exec); all that it has to know again is in $dir
#   server_answers     does it answer?
#   server_url         prints the URL of the store
#   server_start       starts it (or them) where control_start doesn't fit
#   server_secret      prints one with a password in it, for $HOLDFAST_TEST_SECRET
#                      (only where there are passwords)
#   server_account     prints one with a file of credentials, for $HOLDFAST_TEST_ACCOUNT
#                      (only where there are such)
#   can                what the control (below) can do: words among kill pause wipe drop backup
#                      remake; "forgets" if the data is lost when the server is killed; "coarse"
#                      if its clock shows whole seconds, so that a key that is made, removed and
#                      made again at once may begin with a lower token
#   lease_ms           the shortest lease that is sure to be kept, where the tests' are too short
#   server_wipe        removes all rows, behind everybody's back
#   server_drop        removes the table (collection, ...) itself
#   server_remake      removes the table and makes it again, slowly (for can: remake)
#   server_backup, server_restore      all rows as they are now, to and from $dir/backup
#   server_left        removes what is left outside of $dir when all has ended
#
# An argument of the command that is @ becomes the URL, which is in $HOLDFAST_TEST_STORE, too; what
# lease_ms says is in $HOLDFAST_TEST_LEASE_MS. The server ends with the command; both end with this
# program, whatever ends that. Upon SIGTERM (143), SIGINT (130) and SIGHUP (129) the command and all
# that it has started get SIGTERM, and after ten seconds SIGKILL. What is started in the background
# and stays has to close descriptor 9 (below). $HOLDFAST_TEST_CONTROL is a program that does this to
# the server and returns when it is done:
#
#   kill             SIGKILL to all of its processes, which are gone then
#   start            again, until it answers
#   pause, resume    SIGSTOP and SIGCONT to all of its processes
#   wipe, drop, remake, backup, restore        as above
#   can              prints the words of $can

# shellcheck source=tests/gone.sh
. "$(dirname "$0")/../gone.sh"

# $dir/tls.pem and tls.key: a certificate for this machine, which signed itself.
own_certificate() {
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 \
        -keyout "$dir/tls.key" -out "$dir/tls.pem" -subj /CN=holdfast-test \
        -addext subjectAltName=IP:127.0.0.1,DNS:localhost 2>"$dir/log" ||
        { cat "$dir/log"; exit 1; }
}

# Until this command succeeds; or the process ends (if one is named), or ten minutes.
until_true() { # WHAT PID|'' COMMAND...
    what=$1
    needs=$2
    shift 2
    tries=0
    until "$@" >>"$dir/log" 2>&1; do
        tries=$((tries + 1))
        if [ $tries = 12000 ] || { [ -n "$needs" ] && gone "$needs"; }; then
            uniq "$dir/log" | tail -n 12 | sed 's/^/# /'
            echo "Bail out! $what"
            exit 1
        fi
        sleep 0.05
    done
}

# A process and all that it has started.
family() {
    echo "$1"
    # shellcheck disable=SC2013  # words
    for child in $(cat "/proc/$1/task/"*/children 2>/dev/null); do family "$child"; done
}

signal_all() { # SIGNAL
    main=$(cat "$dir/pid")
    kill -STOP "$main" 2>/dev/null || true # it has no more children from here on
    for pid in $(family "$main"); do kill "-$1" "$pid" 2>/dev/null || true; done
}

control_kill() {
    all=$(family "$(cat "$dir/pid")")
    signal_all KILL
    for pid in $all; do
        until gone "$pid"; do sleep 0.02; done
    done
}

control_start() {
    # What isn't tested fills no memory: that is an eighth of what a PostgreSQL does.
    (unset MALLOC_PERTURB_; server_run) >>"$dir/log" 2>&1 </dev/null 3>&- 9>&- &
    echo $! >"$dir/pid"
    until_true 'the server does not start' "$(cat "$dir/pid")" server_answers
}

# A signal is sent before each thread has stopped: until then one may go on for a moment.
stands() {
    gone "$1" || ! grep -L '^State:.[TtZX]' "/proc/$1/task/"*/status 2>/dev/null | grep -q .
}

control_pause() {
    signal_all STOP
    for pid in $(family "$main"); do
        until stands "$pid"; do sleep 0.001; done
    done
}
control_resume() { signal_all CONT; }
control_wipe() { server_wipe >>"$dir/log" 2>&1; }
control_drop() { server_drop >>"$dir/log" 2>&1; }
control_remake() { server_remake >>"$dir/log" 2>&1; }
control_backup() { server_backup >>"$dir/log" 2>&1; }
control_restore() { server_restore >>"$dir/log" 2>&1; }
control_can() { echo "$can"; }

# The counters of libmongoc, which a client removes when it ends, but not when it is killed.
counters_left() {
    find /dev/shm -maxdepth 1 -name 'mongoc-*' -user "$(id -u)" | while read -r file; do
        ! gone "${file##*-}" || echo "$file"
    done | xargs -r rm -f
}

# What PostgreSQL's server leaves of its shared memory when it is killed.
segment_left() { # DATA
    id=$(awk 'NR == 7 { print $2 }' "$1/postmaster.pid" 2>/dev/null) || return 0
    [ -z "$id" ] || ipcrm -m "$id" 2>/dev/null || true
}

# A port that is free, and nobody else's.
free_port() { "${0%/*}/free_port"; }

# The command, which is $dir/command's process, and all that it has started.
end_command() {
    all=$(family "$(cat "$dir/command")")
    tries=0
    for pid in $all; do kill -TERM "$pid" 2>/dev/null || true; done
    for pid in $all; do
        until gone "$pid"; do
            tries=$((tries + 1))
            [ $tries -lt 500 ] || kill -KILL "$pid" 2>/dev/null || true
            sleep 0.02
        done
    done
}

# shellcheck disable=SC2317  # reached by the trap
end() {
    trap - EXIT
    trap '' INT TERM HUP    # once is enough
    [ ! -s "$dir/command" ] || end_command
    [ ! -e "$dir/pid" ] || control_kill
    # What was being started when a signal came.
    for pid in $(family $$); do [ "$pid" = $$ ] || kill -KILL "$pid" 2>/dev/null || true; done
    ! command -v server_left >/dev/null || server_left
    rm -rf "$dir"
}

# Upon SIGKILL nothing is trapped: a process in a session of its own waits for the end of a pipe
# whose other end, descriptor 9, this program alone has open, and ends what is left.
watched() {
    mkfifo "$dir/watched"
    exec 9<>"$dir/watched"
    setsid "$0" --control "$dir" watch <"$dir/watched" >/dev/null 2>&1 3>&- 9>&- &
}
control_watch() {
    trap '' INT TERM HUP
    read -r _ || true
    [ ! -d "$dir" ] || end
}

serve() {
    if [ "${1-}" = --control ]; then
        dir=$2
        trap '[ $? = 0 ] || tail -n 6 "$dir/log"' EXIT
        "control_$3"
        exit
    fi
    dir=$(mktemp -d "${TMPDIR:-/tmp}/holdfast-${0##*/}.XXXXXX")
    trap end EXIT
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM
    watched
    server_make
    if command -v server_start >/dev/null; then
        server_start
    else
        case " $can " in *" kill "*) control_start ;; esac
    fi
    HOLDFAST_TEST_STORE=$(server_url)
    HOLDFAST_TEST_CONTROL=$dir/control
    export HOLDFAST_TEST_STORE HOLDFAST_TEST_CONTROL
    [ -z "${lease_ms-}" ] || export HOLDFAST_TEST_LEASE_MS="$lease_ms"
    if command -v server_secret >/dev/null; then
        HOLDFAST_TEST_SECRET=$(server_secret)
        export HOLDFAST_TEST_SECRET
    fi
    if command -v server_account >/dev/null; then
        HOLDFAST_TEST_ACCOUNT=$(server_account)
        export HOLDFAST_TEST_ACCOUNT
    fi
    printf "#!/bin/sh\nexec '%s' --control '%s' \"\$@\"\n" \
        "$(cd "$(dirname "$0")" && pwd)/${0##*/}" "$dir" >"$dir/control"
    chmod +x "$dir/control"
    for word; do
        shift
        [ "$word" != @ ] || word=$HOLDFAST_TEST_STORE
        set -- "$@" "$word"
    done
    # In the background, or no trap would run before it ends; there a shell takes its input away and
    # has it ignore SIGINT, which it shall have as it would in the foreground.
    { env --default-signal=INT,QUIT "$@" <&8 8<&- 9>&- & } 8<&0
    echo $! >"$dir/command"
    status=0
    wait $! || status=$?
    rm "$dir/command"
    exit $status
}
