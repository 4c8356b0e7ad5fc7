# What the tests of guards in SQL share, on the database in which the locks are, too. `ask` runs SQL
# there, prints what it says, and fails if it does; `sql_guard` prints a guard for it.

guard_setup() {
    cli_setup
    holdfast run "$K-first" -- true # makes the locks' table
    ask 'DROP TABLE IF EXISTS seats; CREATE TABLE seats (id INTEGER PRIMARY KEY, n INTEGER);' \
        'INSERT INTO seats VALUES (1, 0), (2, 0);'
}
guard_teardown() {
    # Of a test that has failed a session may be left, for whose locks these would wait for ever.
    :     exec 5>&-
    sql_guard seats --undo | ask
    sql_guard --undo | ask
    ask 'DROP TABLE seats'
    cli_teardown
}

# What `run` ran has failed, and says so.
refused() { [ "$status" != 0 ] && [[ $output == *"$1"* ]]; }

# One transaction that enters a key with a token and then does something.
entered() { # KEY TOKEN SQL...
    local key=$1 token=$2
    shift 2
    ask 'BEGIN;' "$(enter_sql "$key" "$token")" "$@" "$LEAVE" 'COMMIT;'
}
n_of() { ask "SELECT n FROM seats WHERE id = $1"; }
# Puts the token of a new grant into T.
grant() { # KEY [OPTION...]
    eval "$(holdfast acquire "$@" --lease 60)"
    T=$HOLDFAST_TOKEN
    unset HOLDFAST_KEY HOLDFAST_TOKEN
}

guard_refuses() {
    sql_guard seats --key-column id --key-prefix "$K/" | ask
    run ask 'UPDATE seats SET n = 9 WHERE id = 1'
    refused "holdfast_enter"
    run ask 'DELETE FROM seats WHERE id = 1'
    refused "holdfast_enter"
    run ask 'INSERT INTO seats VALUES (3, 9)'
    refused "holdfast_enter"
    run entered "$K/1" 17 'UPDATE seats SET n = 9 WHERE id = 1;'
    refused "is over"
    grant "$K/1"
    run entered "$K/1" $((T + 1)) 'UPDATE seats SET n = 9 WHERE id = 1;'
    refused "is over"
    entered "$K/1" "$T" 'UPDATE seats SET n = 5 WHERE id = 1;' \
        'UPDATE seats SET n = n + 1 WHERE id = 1;'
    [ "$(n_of 1)" = 6 ]
    # Another key's row, and one that goes over to another key, are not his.
    run entered "$K/1" "$T" 'UPDATE seats SET n = 9 WHERE id = 2;'
    refused "holdfast_enter"
    run entered "$K/1" "$T" 'UPDATE seats SET id = 3 WHERE id = 1;'
    refused "holdfast_enter"
    run entered "$K/1" "$T" 'UPDATE seats SET n = 9;'
    refused "holdfast_enter"
    # What one transaction has entered the next has not.
    run ask 'UPDATE seats SET n = 9 WHERE id = 1'
    [ "$status" != 0 ]
    [ "$(ask 'SELECT id, n FROM seats ORDER BY id' | tr '|' ' ' | xargs)" = "1 6 2 0" ]
    holdfast release "$K/1" --token "$T"
    run entered "$K/1" "$T" 'UPDATE seats SET n = 9 WHERE id = 1;'
    refused "is over"
    grant "$K/1"
    entered "$K/1" "$T" 'DELETE FROM seats WHERE id = 1;'
    run ask 'INSERT INTO seats VALUES (1, 9)'
    refused "holdfast_enter"
    run entered "$K/1" "$T" 'UPDATE seats SET id = 1 WHERE id = 2;'
    refused "holdfast_enter"
    entered "$K/1" "$T" 'INSERT INTO seats VALUES (1, 7);'
    run ask 'DELETE FROM seats WHERE id = 1'
    refused "holdfast_enter"
    [ "$(n_of 1)" = 7 ]
    # Released, but kept taken for a while.
    T=$(holdfast run --at-least 60 "$K/2" -- sh -c 'echo "$HOLDFAST_TOKEN"')
    run holdfast acquire "$K/2" --lease 60 -n
    [ "$status" = 75 ]
    run entered "$K/2" "$T" 'UPDATE seats SET n = 9 WHERE id = 2;'
    refused "is over"
}

guard_elsewhere() {
    sql_guard seats --key-column id --elsewhere | ask
    entered 1 100 'UPDATE seats SET n = 1 WHERE id = 1;'
    entered 1 100 'UPDATE seats SET n = n + 1 WHERE id = 1;'
    entered 1 102 # a later one looks, and that is enough
    run entered 1 101 'UPDATE seats SET n = 9 WHERE id = 1;'
    refused "is over"
    run entered 1 100
    [ "$status" != 0 ]
    for bad in 0 -1 9007199254740992 NULL; do
        run entered 1 $bad
        refused "holdfast"
    done
    entered 2 50 'UPDATE seats SET n = 3 WHERE id = 2;' # another key counts for itself
    [ "$(n_of 1) $(n_of 2)" = "2 3" ]
}

guard_several_holders() {
    sql_guard seats --key-column id --key-prefix "$K/" | ask
    grant "$K/1" --limit 2
    first=$T
    grant "$K/1" --limit 2
    second=$T
    run entered "$K/1" $((second + 1)) 'UPDATE seats SET n = 9 WHERE id = 1;'
    refused "is over"
    entered "$K/1" "$second" 'UPDATE seats SET n = n + 1 WHERE id = 1;'
    entered "$K/1" "$first" 'UPDATE seats SET n = n + 1 WHERE id = 1;'
    holdfast release "$K/1" --token "$first"
    run entered "$K/1" "$first" 'UPDATE seats SET n = 9 WHERE id = 1;'
    refused "is over"
    entered "$K/1" "$second" 'UPDATE seats SET n = n + 1 WHERE id = 1;'
    [ "$(n_of 1)" = 3 ]
    # One of them has let go, but keeps its place for a while.
    grant "$K/2" --limit 2
    first=$T
    T=$(holdfast run --limit 2 --at-least 60 "$K/2" -- sh -c 'echo "$HOLDFAST_TOKEN"')
    run entered "$K/2" "$T" 'UPDATE seats SET n = 9 WHERE id = 2;'
    refused "is over"
    entered "$K/2" "$first" 'UPDATE seats SET n = 1 WHERE id = 2;'
    # A row that says something which a later version may mean by it; and one of that version.
    ask "UPDATE holdfast SET more = '{\"news\":1,' || substr(more, 2) WHERE \"key\" = '$K/2'"
    run entered "$K/2" "$first" 'UPDATE seats SET n = 9 WHERE id = 2;'
    refused "says more than this guard knows"
    ask "UPDATE holdfast SET more = replace(more, '\"news\":1,', '') WHERE \"key\" = '$K/2'"
    entered "$K/2" "$first" 'UPDATE seats SET n = 1 WHERE id = 2;'
    ask "UPDATE holdfast SET format = format + 1 WHERE \"key\" = '$K/2'"
    run entered "$K/2" "$first" 'UPDATE seats SET n = 9 WHERE id = 2;'
    refused holdfast
    ask "DELETE FROM holdfast WHERE \"key\" = '$K/2'"
    # A sole holder has released: the row's owner and token name it no more.
    T=$(holdfast run --at-least 60 "$K/2" -- sh -c 'echo "$HOLDFAST_TOKEN"')
    [ "$(ask "SELECT owner FROM holdfast WHERE \"key\" = '$K/2'")" = "(ended)" ]
    [ "$(ask "SELECT token FROM holdfast WHERE \"key\" = '$K/2'")" = "$T" ]
    run entered "$K/2" "$T" 'UPDATE seats SET n = 9 WHERE id = 2;'
    refused "is over"
    ask "DELETE FROM holdfast WHERE \"key\" = '$K/2'"
}

guard_again_and_undone() {
    sql_guard seats --key-column id --key-prefix "$K/" | ask
    grant "$K/1"
    entered "$K/1" "$T" 'UPDATE seats SET n = 1 WHERE id = 1;'
    sql_guard seats --key-column id --key-prefix "$K/" | ask
    entered "$K/1" "$T" 'UPDATE seats SET n = 2 WHERE id = 1;'
    run ask 'UPDATE seats SET n = 9 WHERE id = 1'
    [ "$status" != 0 ]
    ask 'CREATE TABLE more (id INTEGER);'
    sql_guard more --key-column id | ask
    [ -z "$(undo seats)" ]
    [[ $(undo seats) == *"seats\" has no guard"* ]]
    ask 'UPDATE seats SET n = 3 WHERE id = 1'
    # What other tables need stays.
    run undo
    [ "$status" != 0 ]
    [[ $output == *more*"undo th"* ]]
    run holdfast enter "$K/1" --token "$T"
    [ "$status" = 0 ]
    [ "$(n_of 1)" = 3 ]
    run ask 'INSERT INTO more VALUES (1)'
    [ "$status" != 0 ]
    [ -z "$(undo more)" ]
    [ -z "$(undo)" ]
    [[ $(undo) == *"nothing is undone"* ]]
    [[ $(undo nowhere) == *"nothing is undone"* ]]
    ask 'INSERT INTO more VALUES (1)' 'DROP TABLE more'
    [ "$(leftovers)" = 0 ]
    # And put up once more, twice.
    sql_guard seats --key-column id --key-prefix "$K/" | ask
    sql_guard seats --key-column id --key-prefix "$K/" | ask
    run ask 'UPDATE seats SET n = 9 WHERE id = 1'
    refused "holdfast_enter"
    entered "$K/1" "$T" 'UPDATE seats SET n = 4 WHERE id = 1;'
    holdfast enter "$K/1" --token "$T"
    [ "$(n_of 1)" = 4 ]
}

undo() {
    set -o pipefail
    sql_guard "$@" --undo | ask 2>&1
}

# A guard of what it needs itself would keep everybody out.
guard_own() {
    local own
    for own in "$@"; do
        run sql_guard "$own" --key-column key
        [ "$status" = 64 ]
        refused "Holdfast's own"
    done
}

# A table that gets another name keeps its guard; one that gets its name gets one of its own.
guard_renamed() {
    sql_guard seats --key-column id --key-prefix "$K/" | ask
    ask 'ALTER TABLE seats RENAME TO old' 'CREATE TABLE seats (id INTEGER, n INTEGER)'
    run ask 'UPDATE old SET n = 9'
    refused "holdfast_enter"
}

guard_strange_names() {
    local column="it's \"quoted\" \\" prefix="\$hf\$a'b\\c \$hf1\$ @TABLE@ " table row
    ask 'CREATE TABLE y (id INTEGER);'
    for table in 'x; drop table y' \
        "é\"'; DROP TABLE y; --ééééééééééééééééééééx" '@PREFIX@ %s $hf$ \'; do
        local name="\"${table//\"/\"\"}\""
        ask "CREATE TABLE $name (\"${column//\"/\"\"}\" TEXT, n INTEGER);"
        sql_guard "$table" --key-column "$column" --key-prefix "$prefix" | ask
        sql_guard "$table" --key-column "$column" --key-prefix "$prefix" | ask
        for row in z "\$hf\$ it's \\\"é\" 🎬 %'; DROP TABLE y; --"; do
            run ask "INSERT INTO $name VALUES ($(quoted "$row"), 1)"
            refused "holdfast_enter"
            grant "$prefix$row"
            holdfast enter "$prefix$row" --token "$T"
            entered "$prefix$row" "$T" "INSERT INTO $name VALUES ($(quoted "$row"), 1);"
            holdfast release "$prefix$row" --token "$T"
            run entered "$prefix$row" "$T" "UPDATE $name SET n = 9;"
            refused "is over"
        done
        [ "$(ask "SELECT sum(n) FROM $name; SELECT count(*) FROM y;" | xargs)" = "2 0" ]
        sql_guard "$table" --undo | ask
        ask "DELETE FROM $name; DROP TABLE $name;"
    done
    ask 'DROP TABLE y;'
}

# A table that isn't there, or a column, is noticed when the guard is put up.
guard_missing() {
    local words
    words=$(declare -f ask sql_guard holdfast the_command)
    run bash -c "$words; sql_guard seats --key-column no | ask"
    [ "$status" != 0 ]
    run bash -c "$words; sql_guard nowhere --key-column id | ask"
    [ "$status" != 0 ]
    ask 'UPDATE seats SET n = 1 WHERE id = 1'
}

# `holdfast enter` is hf_enter: what it raises is what the guard looks at.
guard_entered_from_outside() {
    local key="$K/it's \\ \$hf\$ \"1\""
    grant "$key"
    run holdfast enter "$key" --token "$T"
    [ "$status" = 64 ]
    refused "no guard is there"
    sql_guard seats --key-column id --key-prefix "$K/" | ask
    holdfast enter "$key" --token "$T"
    [ "$(fence_of "$key")" = "$T" ]
    entered "$key" "$T" # a transaction enters behind it
    HOLDFAST_FAULT=enter:1:after holdfast enter "$key" --token "$T"
    HOLDFAST_FAULT=enter:1:before holdfast enter "$key" --token "$T"
    run holdfast enter "$key" --token "$T" elsewhere
    [ "$status" = 64 ]
    run holdfast enter "$key" --token $((T + 1))
    [ "$status" = 76 ]
    first=$T
    holdfast break "$key" --token "$T"
    run holdfast enter "$key" --token "$T"
    [ "$status" = 76 ]
    # The fence alone refuses, too: here nobody holds the key any more, and the row says otherwise.
    grant "$key"
    holdfast enter "$key" --token "$T"
    [ "$T" -gt "$first" ] && [ "$(fence_of "$key")" = "$T" ]
    ask "UPDATE holdfast_fence SET token = $((T + 5)) WHERE \"key\" = $(quoted "$key")"
    run holdfast enter "$key" --token "$T"
    echo "$output"
    [ "$status" = 76 ]
    refused "a later one has entered"
    run entered "$key" "$T"
    refused "a later one has entered"
    # No transaction that is still open has entered: this one was in a transaction of its own.
    grant "$K/1"
    holdfast enter "$K/1" --token "$T"
    run ask 'UPDATE seats SET n = 9 WHERE id = 1'
    refused "holdfast_enter"
    # Of several holders the smallest token counts.
    grant "$K/2" --limit 2
    first=$T
    grant "$K/2" --limit 2
    holdfast enter "$K/2" --token "$T"
    [ "$(fence_of "$K/2")" = "$first" ]
    holdfast enter "$K/2" --token "$first"
}
fence_of() { ask "SELECT token FROM holdfast_fence WHERE \"key\" = $(quoted "$1")"; }
