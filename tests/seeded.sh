#!/bin/sh
# Is the enumeration of the step able to find mistakes? Builds it with each of the mistakes that
# core/step.c can be compiled with (HF_BUG 20 to 31), and says which check found it.
#
#   tests/seeded.sh       $CC is the compiler (cc)
set -u
top=$(cd "$(dirname "$0")/.." && pwd)
dir=$(mktemp -d) || exit 70
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM

compile() { # HF_BUG, sources...
    bug=$1
    shift
    (cd "$dir" && ${CC:-cc} -std=c11 -D_GNU_SOURCE -O1 -DHF_BUG="$bug" -I"$top/include" \
        -I"$top/core" -c "$@")
}
build() { # HF_BUG
    compile "$1" "$top/core/step.c" && ${CC:-cc} -o "$dir/enum" "$dir"/*.o
}

bugs='20 a token is the rev of the write before
21 a newcomer barges past the queue
22 a release ends whatever is there
23 expired is decided by the latest reading of the clock
24 an expired grant can be renewed
25 a release does not hand over
26 a handed-over grant is claimed by a stranger
27 the limit is not checked
28 the done marker is ignored
29 a break ends whatever is there
30 who waits does so with the session to hold with
31 a renewal stays with the session that it should leave'

echo 1..12
compile 0 "$top"/tests/step_enum.c "$top"/tests/step_model.c "$top"/tests/step_wander.c \
    "$top"/tests/step_judge.c "$top"/core/row.c || exit 70
n=0
failed=0
while read -r bug what; do
    n=$((n + 1))
    if ! build "$bug" 2>"$dir/errors"; then
        sed 's/^/# /' "$dir/errors"
        echo "not ok $n - $bug: $what: does not compile"
        failed=1
        continue
    fi
    # The random run is short: what it finds, the enumeration must find too; most of it soon.
    for most in 500 5000 100000000; do
        timeout 3600 "$dir/enum" -s 1 -n 1 -m $most >"$dir/out"
        ! grep -q '^not ok .*: [A-Z-]*: ' "$dir/out" || break
    done
    by=$(sed -n 's/^not ok [0-9]* - .*: \([A-Z-]*: .*\)/\1/p' "$dir/out" | sort | uniq -c |
        sort -rn | sed -n '1s/^ *[0-9]* //p')
    if [ -n "$by" ]; then
        echo "ok $n - $bug: $what: found by $by"
    else
        echo "not ok $n - $bug: $what: not found"
        failed=1
    fi
done <<END
$bugs
END
exit $failed
