# What the tests of MariaDB share, beside cli_common: the server of servers/mariadb as its root.

DIR=$(dirname "$HOLDFAST_TEST_CONTROL")
ask() { mariadb --no-defaults -S "$DIR/server.sock" -u root -N holdfast -e "$*"; }
