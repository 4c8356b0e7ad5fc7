# What the tests of single stores share, beside cli_common.

# The last command ended with this status, and said one line.
refused() {
    echo "status $status: $output"
    [ "$status" = "$1" ]
    [ "${#lines[@]}" = 1 ]
}

# doctor finds one thing bad, which is said by these words; $output has all that it said.
one_is_bad() {
    run holdfast doctor
    echo "$output"
    [ "$status" = 65 ]
    [[ $output == *"BAD   $1"* ]]
    [[ $output == *"1 of "*" failed"* ]]
}

# `ls -v` and doctor each say on a line of its own where the locks of $HOLDFAST_STORE are: $1.
says_where() {
    holdfast run "$K-made" -- true
    run holdfast ls -v
    echo "$output"
    [ "$status" = 0 ]
    grep -qxF "holdfast: $1" <<<"$output"
    run holdfast doctor
    echo "$output"
    grep -qxF "ok    $1" <<<"$output"
}

# A key is held, waited for, and handed over when its holder ends.
hand_over() {
    hold "$1"
    background run -w 30 "$1" -- true
    await waiters "$1" 1
    kill "$(cat cmd.pid)"
    finished
    [ "$STATUS" = 0 ]
}

# The GRANT that the store's page says ("postgres", "mariadb"), word for word. $1: the store; $2: to
# whom it grants.
grant_of_page() {
    local rights
    rights=$(sed -n "s/^    \(GRANT .* ON holdfast TO $2;\)\$/\1/p" "$SOURCE/doc/stores/$1.md")
    [ -n "$rights" ] && echo "$rights"
}

# All that a client of $HOLDFAST_STORE writes and reads, but for the making of the store.
use_all() {
    hand_over "$K"
    holdfast once "$K-once" -- true
    holdfast ls --all | grep "$K"
    holdfast prune --idle 60
}
