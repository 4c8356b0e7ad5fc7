# The examples of doc/guards.md, for the tests that run them as they stand.

# of_page SECTION N: the N-th fenced block of that section.
of_page() {
    sed -n "/^## $1\$/,/^## /p" "$SOURCE/doc/guards.md" |
        awk -v n="$2" '/^```/ { if (!open) nth++; open = !open; next } open && nth == n'
}
# The statements that a section shows, with what a page can't know: the token of a grant.
sql_of_page() { # SECTION N TOKEN
    of_page "$1" "$2" | sed "s|'seats/42', [0-9]\{16\}|$3|"
}
