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
#                      remake; and "forgets" if the data is lost when the server is killed
#   server_wipe        removes all rows, behind everybody's back
#   server_drop        removes the table (collection, ...) itself
#   server_remake      removes the table and makes it again, slowly (for can: remake)
#   server_backup, server_restore      all rows as they are now, to and from $dir/backup
#
# An argument of the command that is @ becomes the URL, which is in $HOLDFAST_TEST_STORE, too. The
# server ends with the command. $HOLDFAST_TEST_CONTROL is a program that does this to the server and
# returns when it is done:
#
#   kill             SIGKILL to all of its processes, which are gone then
#   start            again, until it answers
#   pause, resume    SIGSTOP and SIGCONT to all of its processes
#   wipe, drop, remake, backup, restore        as above
#   can              prints the words of $can

# shellcheck source=tests/gone.sh
. "$(dirname "$0")/../gone.sh"

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
    (unset MALLOC_PERTURB_; server_run) >>"$dir/log" 2>&1 </dev/null 3>&- &
    echo $! >"$dir/pid"
    until_true 'the server does not start' "$(cat "$dir/pid")" server_answers
}

control_pause() { signal_all STOP; }
control_resume() { signal_all CONT; }
control_wipe() { server_wipe >>"$dir/log" 2>&1; }
control_drop() { server_drop >>"$dir/log" 2>&1; }
control_remake() { server_remake >>"$dir/log" 2>&1; }
control_backup() { server_backup >>"$dir/log" 2>&1; }
control_restore() { server_restore >>"$dir/log" 2>&1; }
control_can() { echo "$can"; }

# A port that is free, and nobody else's.
free_port() { "${0%/*}/free_port"; }

# shellcheck disable=SC2317  # reached by the trap
end() {
    trap - EXIT INT TERM
    [ ! -e "$dir/pid" ] || control_kill
    rm -rf "$dir"
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
    trap 'exit 1' INT TERM
    server_make
    if command -v server_start >/dev/null; then
        server_start
    else
        case " $can " in *" kill "*) control_start ;; esac
    fi
    HOLDFAST_TEST_STORE=$(server_url)
    HOLDFAST_TEST_CONTROL=$dir/control
    export HOLDFAST_TEST_STORE HOLDFAST_TEST_CONTROL
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
    status=0
    "$@" || status=$?
    exit $status
}
