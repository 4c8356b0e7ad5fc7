#!/usr/bin/env bats
# What the command knows is what its manual and its completions say.

load cli_common
setup() {
    cli_setup
    cd "$BATS_TEST_TMPDIR"
}
teardown() { cli_teardown; }

# What bash offers for the last of the words, in the array OFFERED. As readline does, splits the
# words at ":", "=" and "@".
offer() {
    local rest
    COMP_LINE="holdfast $*" COMP_WORDS=(holdfast)
    for rest; do
        while [[ $rest =~ ^([^:=@]*)([:=@]+)(.*)$ ]]; do
            [ -z "${BASH_REMATCH[1]}" ] || COMP_WORDS+=("${BASH_REMATCH[1]}")
            COMP_WORDS+=("${BASH_REMATCH[2]}")
            rest=${BASH_REMATCH[3]}
            [ -n "$rest" ] || continue 2
        done
        COMP_WORDS+=("$rest")
    done
    # shellcheck source=../completions/holdfast.bash
    source "$SOURCE/completions/holdfast.bash"
    PATH=$(dirname "$HOLDFAST"):$PATH
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    COMPREPLY=()
    [[ ${*: -1} =~ @?[^:=@]*$ ]]
    _holdfast holdfast "${BASH_REMATCH[0]}" "${COMP_WORDS[COMP_CWORD - 1]}"
    OFFERED=("${COMPREPLY[@]}")
}

@test "bash completes commands and options" {
    offer re
    [ "${OFFERED[*]}" = "renew release" ]
    offer -S file:x pr
    [ "${OFFERED[*]}" = "prune" ]
    offer run --at
    [ "${OFFERED[*]}" = "--at-least" ]
    offer once --at
    [ "${OFFERED[*]}" = "--at-most-once" ]
    offer run --on-lost i
    [ "${OFFERED[*]}" = "ignore" ]
    offer break "$K" --tok
    [ "${OFFERED[*]}" = "--token" ]
    offer stores --tok
    [ "${#OFFERED[@]}" = 0 ]
}

@test "bash completes keys, those with blanks and quotes too" {
    holdfast run "$K-b c" "$K-a" "$K-\"q'\\" -- true
    offer run "$K-a"
    [ "${OFFERED[*]}" = "$K-a" ]
    offer show "$K-b"
    [ "${OFFERED[*]}" = "$K-b\\ c" ]
    offer show "$K-\""
    quoted=
    eval "quoted=${OFFERED[0]}"
    [ "$quoted" = "$K-\"q'\\" ]
    offer release "$K"
    [ "${#OFFERED[@]}" = 0 ]
    hold "$K-a"
    offer break "$K"
    [ "${OFFERED[*]}" = "$K-a" ]
}

@test "bash completes behind a store, and keys with : = @" {
    holdfast run "$K:a/1" "$K:b" "$K=c@d" -- true
    offer -S "$HOLDFAST_STORE" sho
    [ "${OFFERED[*]}" = show ]
    # shellcheck disable=SC2089
    for store in "-S $HOLDFAST_STORE" "--store=$HOLDFAST_STORE" "-S '$HOLDFAST_STORE'"; do
        # shellcheck disable=SC2086,SC2090  # two words; quotes, as typed
        HOLDFAST_STORE=mem: offer $store show "$K:a"
        [ "${OFFERED[*]}" = a/1 ]
    done
    offer show "$K:"
    [ "${OFFERED[*]}" = "a/1 b" ]
    offer show "$K=c@"
    [ "${OFFERED[*]}" = @d ]
    offer show "$K"
    [ "${OFFERED[*]}" = "$K:a/1 $K:b $K=c@d" ]
    offer -S "$HOLDFAST_STORE" run k -- ech
    [[ " ${OFFERED[*]} " == *" echo "* ]]
}

@test "bash completes the command behind --" {
    offer run k -- ech
    [[ " ${OFFERED[*]} " == *" echo "* ]]
    touch a-file
    offer run k -- cat a-f
    [ "${OFFERED[*]}" = a-file ]
}

@test "every long option is in the manual and in every completion" {
    options=$(sed -n 's/^ *{{"\([a-z-]*\)", [a-z]*_argument.*/\1/p' "$SOURCE/cli/option_table.c")
    options+=\ $(sed -n 's/^ *{"\([a-z-]*\)", [A-Z_| ]*, [A-Z]*(.*/\1/p' "$SOURCE/cli/guard.c")
    [ "$(wc -w <<<"$options")" -ge 27 ]
    for option in $options; do
        grep -q -e "-$option" "$SOURCE"/man/holdfast*.1
        case $option in nb | nonblocking | timeout) continue ;; esac # other names of flock's
        for file in holdfast.bash _holdfast; do
            grep -q -e "--$option" "$SOURCE/completions/$file"
        done
        grep -q -e "-l $option" "$SOURCE/completions/holdfast.fish"
    done
}

@test "every command has a page, and is in every completion" {
    commands=$(holdfast --help | sed -n 's/^  \([a-z]*\)  *.*/\1/p')
    [ "$(wc -w <<<"$commands")" -ge 13 ]
    for command in $commands; do
        page=$(holdfast "$command" --help | sed -n 's/^man \([a-z-]*\) says more.*/\1/p')
        grep -q "^.Nm holdfast $command$" "$SOURCE/man/$page.1"
        for file in "$SOURCE"/completions/*; do grep -qw "$command" "$file"; done
    done
}

@test "the synopsis of --help names no option that the command refuses" {
    for command in run once acquire renew release ls show watch break prune guard stores doctor \
        bench; do
        for option in $(holdfast "$command" --help | grep -o -e '--[a-z-]*'); do
            [ "$option" != -- ] || continue
            run holdfast "$command" "$option" --help
            [[ $output != *"bad option"* ]]
        done
    done
}

# One of a letter may stand among others: .Op Fl noqsvx, .Op Fl n | w Ar TIME.
@test "each option that --help lists is in the command's own page, or is every command's" {
    seen=0
    for command in run once acquire renew release ls show watch break prune guard stores doctor \
        bench enter forget; do
        holdfast "$command" --help >help
        page=$SOURCE/man/$(sed -n 's/^man \([a-z-]*\) says more.*/\1/p' help).1
        while read -r letter long; do
            seen=$((seen + 1))
            grep -qE "^\.(Op|It|Fl) .*-$long( |\$)" "$page" "$SOURCE/man/holdfast.1" ||
                grep -qE "^\.Op Fl (\w \| )*[a-zA-Z]*${letter}[a-zA-Z]*( |\$)" "$page" || {
                echo "$command: -$letter, --$long is not in $page"
                return 1
            }
        done < <(sed -nE 's/^  -(\w), --([a-z-]+).*/\1 \2/p; s/^      --([a-z-]+).*/none \1/p' help)
    done
    [ "$seen" -ge 100 ]
}

@test "every store has its page, which the README names" {
    export HOLDFAST_DRIVERS=$BUILD
    holdfast stores --json | grep -o '"scheme":"[a-z]*"' | cut -d'"' -f4 >schemes
    grep -qx file schemes
    grep -qx sqlite schemes
    while read -r scheme; do
        case $scheme in rediss) page=redis ;; etcds) page=etcd ;; *) page=$scheme ;; esac
        grep -q "\b$scheme:" "$SOURCE/doc/stores/$page.md"
        grep -q "(doc/stores/$page.md)" "$SOURCE/README.md"
    done <schemes
}
