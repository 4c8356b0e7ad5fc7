#!/bin/sh
# trusts.sh ROOT BUNDLES COMMAND...: puts the authority that signed the certificate of the server at
# $HOLDFAST_TEST_TLS where each distribution would, in turn, and has it trusted there. COMMAND is a
# holdfast that sees the directory ROOT as its root; BUNDLES are paths there. See release_test.py.
root=$1 bundles=$2
shift 2
pem=$(echo "$HOLDFAST_TEST_TLS" | sed -E 's/.*[?&](cacert|cafile|tlsCAFile)=([^&]*).*/\2/')
cp "${pem%.pem}".* "$root/tmp"
# The first lock makes the store.
url=$(echo "$HOLDFAST_TEST_TLS" | sed "s,${pem%.pem},/tmp/tls,g")
"$@" -S "$url" acquire first --lease 1
# Without the authority; the client's own certificate or account is where it is seen.
url=$(echo "$url" | sed -E 's/([?&])(cacert|cafile|tlsCAFile)=[^&]*&?/\1/; s/[?&]$//')
"$@" -S "$url" ls && echo 'trusted by whom?'
for bundle in $bundles; do
    mkdir -p "$root${bundle%/*}"
    cp "$pem" "$root$bundle"
    "$@" -S "$url" ls --all && echo "trusted: $bundle"
    rm "$root$bundle"
done
