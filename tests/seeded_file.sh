#!/bin/sh
# Are the crash tests of the `file:` store able to find mistakes? Builds explore and kills with each
# of the mistakes that drivers/file can be compiled with (HF_BUG 1 to 7), and says what found it.
# The explorer has to find every one; real kills have to find those that a death alone lays open.
#
#   tests/seeded_file.sh       $CC is the compiler (cc)
set -u
top=$(cd "$(dirname "$0")/.." && pwd)
dir=$(mktemp -d) || exit 70
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM

compile() ( # directory, definitions and sources
    mkdir -p "$dir/$1" && cd "$dir/$1" || exit 70
    shift
    ${CC:-cc} -std=c11 -D_GNU_SOURCE -O1 -DHF_SEAM -DHF_MODULE_DIR='"."' -I"$top/include" \
        -I"$top/core" -I"$top/drivers" -I"$top/drivers/file" -c "$@"
)
layout='-DHF_FILE_BUCKETS=8u -DHF_FILE_SLOTS=16u -DHF_FILE_FIRST_HEAP=32768 -DHF_FILE_GROW=32768'

# shellcheck disable=SC2086  # several words
build() { # HF_BUG
    rm -rf "$dir/driver"
    compile driver $layout -DHF_BUG="$1" "$top"/drivers/file/*.c || return 1
    set -- "$dir"/driver/*.o "$dir/core.a" -pthread -ldl
    ${CC:-cc} -o "$dir/explore" "$dir"/explorer/*.o "$@" \
        -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=free &&
        ${CC:-cc} -o "$dir/kills" "$dir"/killer/*.o "$@"
}

# What kills have to find too is marked with a K.
bugs='1 - a lock word is stored, not compared and swapped
2 K a row is published before it is written
3 K a swap does not compare
4 - a handover rings no bell
5 - a lock word of the dead is taken by a plain store
6 - who takes over rings nobody
7 K an allocation that was finished is taken back'

# shellcheck disable=SC2086,SC2046
{
    # An archive: what belongs to other drivers is left out.
    others='#include (<(jansson|sqlite3|libpq|hiredis|curl|mongoc)|"json.h")'
    (compile core $(grep -LE "$others" "$top"/core/*.c "$top"/drivers/*.c) &&
        cd "$dir/core" && ar rc ../core.a ./*.o) &
    core_job=$!
    compile explorer $layout "$top"/tests/explore.c "$top"/tests/explore_*.c \
        "$top"/tests/file_fsck.c &
    explorer_job=$!
    compile killer $layout "$top"/tests/kills.c "$top"/tests/file_fsck.c &&
        wait $core_job && wait $explorer_job || exit 70
}

echo 1..8
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
while read -r bug kills what; do
    if ! build "$bug" 2>"$dir/errors"; then
        sed 's/^/# /' "$dir/errors"
        say 1 "$bug: $what: does not compile"
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
    if [ "$kills" = K ]; then
        "$dir/kills" --first --kills 20000 >"$dir/out"
        died=$(sed -n 's/^# seed .*after \([0-9]*\) kills: .*/ kills: after \1/p;' "$dir/out" |
            head -n 1)
        [ -n "$died" ] || again=1
    fi
    say "$again" "$bug: $what: found by explore ($by)${died:+,}$died"
done <<END
$bugs
END

# And without any they find nothing.
build 0 && "$dir/explore" --preemptions 1 --deaths 0 >"$dir/out" &&
    "$dir/kills" --kills 1000 >>"$dir/out"
say $? 'no mistake, nothing found'
exit $failed
