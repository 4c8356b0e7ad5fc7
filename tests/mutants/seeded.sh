#!/bin/sh
# Is the enumeration of the step able to find mistakes? Builds it with each of the mistakes in
# tests/mutants/step (patches of core/state/step.c), and says which check found it.
#
#   tests/mutants/seeded.sh       $CC is the compiler (cc)
set -u
top=$(cd "$(dirname "$0")/../.." && pwd)
dir=$(mktemp -d) || exit 70
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM

compile() { # sources...
    (cd "$dir" && ${CC:-cc} -std=c11 -D_GNU_SOURCE -O1 -I"$top/include" -I"$top/core/state" \
        -I"$top/core/util" -c "$@")
}
# The step with a mistake: a copy, patched.
build() { # patch
    mkdir -p "$dir/core/state" && cp "$top/core/state/step.c" "$dir/core/state" &&
        patch -p1 -s -f -F0 -r - --no-backup-if-mismatch -d "$dir" -i "$1" &&
        compile "$dir/core/state/step.c" && ${CC:-cc} -o "$dir/enum" "$dir"/*.o
}

set -- "$top"/tests/mutants/step/*.patch
echo "1..$#"
compile "$top"/tests/core/step_*.c "$top"/core/state/row.c || exit 70
n=0
failed=0
for patch; do
    n=$((n + 1))
    what="$(basename "$patch" .patch) ($(sed -n 's/^Mistake: //p' "$patch"))"
    if ! build "$patch" >"$dir/errors" 2>&1; then
        sed 's/^/# /' "$dir/errors"
        echo "not ok $n - $what: does not apply or compile"
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
        echo "ok $n - $what: found by $by"
    else
        echo "not ok $n - $what: not found"
        failed=1
    fi
done
exit $failed
