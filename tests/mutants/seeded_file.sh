#!/bin/sh
# Are the crash tests of the `file:` store able to find mistakes? Builds explore and kills with each
# of the mistakes in tests/mutants/file (patches of drivers/file), and says what found it. The
# explorer has to find every mistake. Real kills have to find those whose patch says so
# ("Check: kills"): those that a death alone lays open.
#
#   tests/mutants/seeded_file.sh       $CC is the compiler (cc)
#
# With the number $HF_TURN (tools/test sets it to one that the commit says) one of six is tried,
# and of the others only whether the patch applies. $HF_LONG: all of them nevertheless.
set -u
top=$(cd "$(dirname "$0")/../.." && pwd)
dir=$(mktemp -d) || exit 70
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM

compile() ( # directory, definitions and sources
    mkdir -p "$dir/$1" && cd "$dir/$1" || exit 70
    shift
    # shellcheck disable=SC2046  # an option for each folder
    ${CC:-cc} -std=c11 -D_GNU_SOURCE -O1 -DHF_SEAM -DHF_MODULE_DIR='"."' -I"$top/include" \
        $(printf -- '-I%s ' "$top"/core/*/) -I"$top/drivers" -I"$top/drivers/file" -c "$@"
)
LATE_S=90   # without a mistake the kills take a fraction of it
layout='-DHF_FILE_BUCKETS=8u -DHF_FILE_SLOTS=16u -DHF_FILE_FIRST_HEAP=32768 -DHF_FILE_GROW=32768'

# The driver is a copy; what its files include is found beside them first.
# shellcheck disable=SC2086  # several words
build() { # patch, or '' for none
    rm -rf "$dir/driver" "$dir/tree"
    mkdir -p "$dir/tree/drivers" && cp -R "$top/drivers/file" "$dir/tree/drivers" || return 1
    [ -z "$1" ] ||
        patch -p1 -s -f -F0 -r - --no-backup-if-mismatch -d "$dir/tree" -i "$1" || return 1
    compile driver $layout "$dir"/tree/drivers/file/*.c || return 1
    set -- "$dir"/driver/*.o "$dir/core.a" -pthread -ldl
    ${CC:-cc} -o "$dir/explore" "$dir"/explorer/*.o "$@" \
        -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=free &&
        ${CC:-cc} -o "$dir/kills" "$dir"/killer/*.o "$@"
}

# shellcheck disable=SC2086,SC2046
{
    # An archive: what belongs to other drivers and systems is left out.
    others='#include (<(jansson|sqlite3|libpq|hiredis|curl|mongoc|sys/event\.h)|"json.h")'
    (compile core $(grep -LE "$others" "$top"/core/*/*.c "$top"/drivers/*.c) &&
        cd "$dir/core" && ar rc ../core.a ./*.o) &
    core_job=$!
    compile explorer $layout "$top"/tests/file/explore.c "$top"/tests/file/explore_*.c \
        "$top"/tests/file/file_fsck.c &
    explorer_job=$!
    compile killer $layout "$top"/tests/file/kills.c "$top"/tests/file/file_fsck.c &&
        wait $core_job && wait $explorer_job || exit 70
}

mkdir "$dir/tree" "$dir/tree/drivers" && cp -R "$top/drivers/file" "$dir/tree/drivers" || exit 70
shares=1
[ -z "${HF_TURN-}" ] || [ -n "${HF_LONG-}" ] || shares=6
at=0
stale=''
for patch in "$top"/tests/mutants/file/*.patch; do
    [ $(((at + ${HF_TURN:-0}) % shares)) != 0 ] || set -- "$@" "$patch"
    at=$((at + 1))
    patch -p1 -s -f -F0 -r - --dry-run -d "$dir/tree" -i "$patch" >/dev/null ||
        stale="$stale $(basename "$patch")"
done
echo "1..$(($# + 2))"
n=0
failed=0
say() { # ok, text
    n=$((n + 1))
    if [ "$1" = 0 ]; then
        echo "ok $n - $2"
    else
        echo "not ok $n - $2"
        failed=1
    fi
}
[ -z "$stale" ]
say $? "each of $at patches applies${stale:+, but not}$stale"
for patch; do
    what="$(basename "$patch" .patch) ($(sed -n 's/^Mistake: //p' "$patch"))"
    if ! build "$patch" >"$dir/errors" 2>&1; then
        sed 's/^/# /' "$dir/errors"
        say 1 "$what: does not apply or compile"
        continue
    fi
    by=''
    for each in 300 3000 30000 300000; do    # executions of each part of the search
        [ -n "$by" ] || "$dir/explore" --first --each $each >"$dir/out"
        by=$(sed -n '/^not ok/{s/^not ok [0-9]* - \([a-z]*\): .*/\1/;N;s/\n# /: /;p;q;}' "$dir/out")
    done
    replay=$(sed -n "s/^# explore --replay '\(.*\)'/\1/p;" "$dir/out" | head -n 1)
    # The string that it printed shows the same again.
    again=1
    if [ -n "$replay" ]; then
        "$dir/explore" --replay "$replay" >"$dir/trace"
        [ "$(tail -n 1 "$dir/trace")" = "${by#*: }" ] && again=0
    fi
    died=''
    if grep -q '^Check: kills$' "$patch"; then
        # A write that is lost may leave a waiter that nobody wakes: that is found, too.
        timeout -k 1 $LATE_S "$dir/kills" --first --kills 20000 >"$dir/out"
        [ $? -lt 124 ] || died=" kills: a waiter is left behind ($LATE_S s)"
        died=$(sed -n 's/^# seed .*after \([0-9]*\) kills: .*/ kills: after \1/p;' "$dir/out" |
            head -n 1)$died
        [ -n "$died" ] || again=1
    fi
    say "$again" "$what: found by explore ($by)${died:+,}$died"
done

# And without any they find nothing.
build '' && "$dir/explore" --preemptions 1 --deaths 0 >"$dir/out" &&
    "$dir/kills" --kills 1000 >>"$dir/out"
say $? 'no mistake, nothing found'
exit $failed
