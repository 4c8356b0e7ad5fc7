#!/usr/bin/env bats
# What the command knows is what its manual and its completions say. What the completions do:
# cli_completion.

load cli_common
setup() {
    cli_setup
    cd "$BATS_TEST_TMPDIR"
}
teardown() { cli_teardown; }

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
