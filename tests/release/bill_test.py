"""The bill of materials and the checksums of the artefacts: each artefact is in both, as it is. The
results are TAP.

    bill_test.py OUT

OUT: the artefacts of tools/release.
"""
import glob
import hashlib
import json
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
from points import end, point

OUT = os.path.abspath(sys.argv[1])
# What SPDX 2.3 asks for.
DOCUMENT = ['SPDXID', 'creationInfo', 'dataLicense', 'documentNamespace', 'name', 'spdxVersion']
PACKAGE = ['SPDXID', 'downloadLocation', 'name']
# What binaries for any Linux contain, but for SQLite and the C library.
LINKED = {'curl', 'hiredis', 'jansson', 'mongo-c-driver', 'nghttp2', 'openssl', 'postgresql-15',
          'protobuf-c'}
# Terms under which a binary may contain a library that nobody can replace in it (not LGPL).
PERMISSIVE = {'Apache-2.0', 'BSD-1-Clause', 'BSD-2-Clause', 'BSD-3-Clause', 'ISC', 'MIT',
              'PostgreSQL', 'Zlib', 'blessing', 'curl'}
RELATION = ['relatedSpdxElement', 'relationshipType', 'spdxElementId']


def digests():
    found = {}
    for name in os.listdir(OUT):
        with open(os.path.join(OUT, name), 'rb') as file:
            found[name] = hashlib.sha256(file.read()).hexdigest()
    return found


def checksums(real):
    with open(os.path.join(OUT, 'SHA256SUMS'), encoding='utf-8') as file:
        listed = dict(reversed(line.split()) for line in file)
    wanted = {name: digest for name, digest in real.items() if name != 'SHA256SUMS'}
    point(listed == wanted, 'SHA256SUMS is of every other file', set(listed.items()) ^ set(
        wanted.items()))


def form(bill):
    """The document is what SPDX says one is."""
    point(all(bill.get(name) for name in DOCUMENT) and bill['spdxVersion'] == 'SPDX-2.3' and
          bill['dataLicense'] == 'CC0-1.0', 'it is an SPDX document', sorted(bill))
    point(re.fullmatch(r'\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ', bill['creationInfo']['created']) and
          bill['creationInfo']['creators'], 'which says when and by what it was made',
          bill['creationInfo'])
    ids = [package['SPDXID'] for package in bill['packages']]
    bad = [own for own in ids if not re.fullmatch(r'SPDXRef-[A-Za-z0-9.-]+', own)]
    point(ids and not bad and len(ids) == len(set(ids)), 'its packages have identifiers', bad)
    bad = [package for package in bill['packages'] if not all(map(package.get, PACKAGE))]
    point(not bad, 'and what else a package has', bad)
    known = {*ids, bill['SPDXID']}
    bad = [one for one in bill['relationships'] if not all(map(one.get, RELATION)) or
           not {one['spdxElementId'], one['relatedSpdxElement']} <= known]
    point(not bad, 'relations are between them', bad)
    related = {one['relatedSpdxElement'] for one in bill['relationships']}
    point(related == set(ids), 'each of them is described, contained or depended on',
          set(ids) ^ related)


def artefacts(bill, real):
    names = {name for name in real if name != 'SHA256SUMS' and not name.endswith('.spdx.json')}
    listed = {package['packageFileName']: package['checksums'][0]['checksumValue']
              for package in bill['packages'] if 'packageFileName' in package}
    point(listed == {name: real[name] for name in names}, 'it lists every artefact, as it is',
          set(listed) ^ names)
    by_id = {package['SPDXID']: package for package in bill['packages']}
    inside = {}
    for one in bill['relationships']:
        if one['relationshipType'] in ('CONTAINS', 'DEPENDS_ON'):
            inside.setdefault(by_id[one['spdxElementId']]['name'], set()).add(
                by_id[one['relatedSpdxElement']]['name'])
    contained = {one['relatedSpdxElement'] for one in bill['relationships']
                 if one['relationshipType'] == 'CONTAINS'}
    terms = {by_id[one]['name']: by_id[one]['licenseConcluded'] for one in contained
             if 'packageFileName' not in by_id[one]}
    strange = {name: said for name, said in terms.items()
               if not set(said.split(' AND ')) <= PERMISSIVE}
    point(terms and not strange, 'nothing is contained that must be relinkable', strange or terms)
    for pattern, libraries in ((r'-linux-\w+\.tar\.gz$|\.(rpm|apk)$',
                                {*LINKED, 'musl', 'sqlite3'}),
                               (r'\.whl$', LINKED),
                               (r'^holdfast-linux-.*\.tgz$', {*LINKED, 'sqlite3'}),
                               (r'^holdfast-redis_.*\.deb$', {'libc6', 'libhiredis0.14',
                                                              'libjansson4', 'libssl3'}),
                               (r'^holdfast_.*\.deb$', {'libc6', 'jansson'})):
        for name in sorted(name for name in names if re.search(pattern, name)):
            point(inside.get(name) == libraries, f'{name}: what it is made of', inside.get(name))


def main():
    real = digests()
    checksums(real)
    found = glob.glob(os.path.join(OUT, '*.spdx.json'))
    point(len(found) == 1, 'there is one bill of materials', found)
    with open(found[0], encoding='utf-8') as file:
        bill = json.load(file)
    form(bill)
    artefacts(bill, real)
    return end()


if __name__ == '__main__':
    sys.exit(main())
