#!/bin/sh
# A case of cuts.c that hangs ends the program, which names it. Run by one of tests/servers: its
# server is stopped, and answers nobody.
#
#   cuts_hang.sh CUTS
set -eu
"$HOLDFAST_TEST_CONTROL" pause
status=0
said=$("$1" "$HOLDFAST_TEST_STORE" --jobs 2 --hang 500) || status=$?
"$HOLDFAST_TEST_CONTROL" resume
echo "$said" | sed 's/^/# /'
echo "# status $status"
good='not ok'
case $said in
*'# hangs: opening: worker '*) [ $status != 1 ] || good=ok ;;
esac
echo "1..1"
echo "$good 1 - what hangs is named"
[ "$good" = ok ]
