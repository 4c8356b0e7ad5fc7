#!/usr/bin/env bats
# What this machine has too little of. Not with a sanitizer, whose runtime needs more memory to
# begin than these limits give.

bats_require_minimum_version 1.5.0
load cli_common
setup() { cli_setup; }
teardown() { cli_teardown; }

# `run -n KEY -- true` on the store $1, with the limit $3 of ulimit $2.
run_within() {
    run --separate-stderr bash -c 'for fd in /proc/self/fd/*; do
            [ "${fd##*/}" -lt 3 ] || eval "exec ${fd##*/}>&-"
        done
        ulimit "$1" "$2" && exec "$3" -S "$4" run -n "$5" -- true' \
        - "$2" "$3" "$HOLDFAST" "$1" "$K"
}

@test "short of memory, threads or descriptors: 69 or 70, with the key and what is so then" {
    export HOLDFAST_DRIVERS=$BUILD
    for url in "file:$PWD/store" "sqlite:$PWD/store.db" nats://127.0.0.1:1/b \
        mongodb://127.0.0.1:1/b; do
        short=0
        for limit in -n{5..12} -v{7,9,12,16,20,30,40,60}000; do
            run_within "$url" "${limit:0:2}" "${limit:2}"
            # shellcheck disable=SC2154 # bats sets it
            case $status:$stderr in
            0:) continue ;;
            127:*"shared libraries"* | 70:"holdfast: out of memory") continue ;; # before it began
            69:*"refused (store $url, named by -S); nothing was acquired, and nothing was executed")
                continue ;;
            # libbson ends a process that has no memory.
            134:*"Failure to allocate memory in bson"*) continue ;;
            69:*"Too many open files (store $url, named by -S); nothing was "*", and "*) ;;
            69:*"Too many open files; nothing was "*", and "*) ;;
            70:"holdfast: run '$K': "*"; nothing was "*", and "*) ;;
            70:"holdfast: acquire '$K': "*"; nothing was acquired, and nothing was executed") ;;
            *)
                echo "$url $limit: $status: $stderr"
                return 1
                ;;
            esac
            [[ $stderr == *"'$K'"* ]]
            ((++short))
        done
        [ "$short" -ge 1 ]
    done
}
