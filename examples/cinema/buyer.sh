#!/bin/sh
# One buyer, as the shop had it: looks whether the seats are free, thinks, books. It knows nothing
# of locks: called as it is, two buyers buy one seat; called by `holdfast run SEAT... --` they take
# turns.
#
#   buyer.sh DATABASE BUYER SECONDS SEAT...
#
# Says "thinking" while it thinks. Status: 0 booked, 3 a seat was taken, 64 usage.
set -eu
[ $# -ge 4 ] || { echo 'usage: buyer.sh DATABASE BUYER SECONDS SEAT...' >&2; exit 64; }
shop=$1 buyer=$2 seconds=$3
shift 3
for word in "$buyer" "$@"; do
    case $word in
    *[!A-Za-z0-9]* | '') echo "buyer.sh: '$word': only letters and digits" >&2; exit 64 ;;
    esac
done
now="(julianday('now') - 2440587.5) * 86400.0"
sql() { sqlite3 -batch -cmd '.timeout 20000' -cmd 'PRAGMA synchronous = NORMAL' "$shop" "$1"; }

list=$(printf "'%s'," "$@")
looked=$(sql "SELECT $now WHERE NOT EXISTS (SELECT 1 FROM bookings WHERE seat IN (${list%,}))")
[ -n "$looked" ] || { echo taken; exit 3; }
echo thinking
sleep "$seconds" # what people take their time for
rows=$(printf "('%s','$buyer',$looked,$now)," "$@")
sql "INSERT INTO bookings (seat, buyer, looked, booked) VALUES ${rows%,}"
echo booked
