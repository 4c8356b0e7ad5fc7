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

# A certificate new.pem, and its key, of an authority that no client trusts yet.
new_certificate() {
    openssl req -x509 -newkey rsa:2048 -nodes -days 2 -keyout new.key -out new.pem -subj /CN=new \
        -addext subjectAltName=IP:127.0.0.1,DNS:localhost 2>openssl.out
}

# The server, whose certificate is $2/tls.pem, starts again with another authority's. The store is
# the URL $1, which names the authorities in trusted.pem: its handles read that file again.
authority_changes() {
    cp "$2/tls.pem" trusted.pem
    HOLDFAST_STORE=$1
    hold "$K"
    background run -w 600 "$K" -- true
    await waiters "$K" 1
    new_certificate
    "$HOLDFAST_TEST_CONTROL" kill
    cat new.pem >"$2/tls.pem"
    cat new.key >"$2/tls.key"
    cp new.pem trusted.pem
    "$HOLDFAST_TEST_CONTROL" start
    kill "$(cat cmd.pid)"
    finished
    cat bg.err
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
