"""The bill of materials of a release, in SPDX 2.3 as JSON: each artefact with its checksum, the
libraries that it contains, and those of Debian's packages that it depends on."""
import hashlib
import json
import os
import re
import time

from toolchain import Failed, built, pinned, run, zig

# What SPDX calls the licences of the libraries in packaging/sources, and of musl.
LICENCES = {'curl': 'curl', 'hiredis': 'BSD-3-Clause', 'jansson': 'MIT',
            'mongo-c-driver': 'Apache-2.0 AND BSD-1-Clause AND ISC AND MIT AND Zlib',
            'musl': 'MIT', 'nghttp2': 'MIT', 'openssl': 'Apache-2.0',
            'postgresql-15': 'PostgreSQL AND BSD-3-Clause AND ISC', 'protobuf-c': 'BSD-2-Clause',
            'sqlite3': 'blessing'}
SUFFIXES = ('.tgz', '.tar.gz', '.tar.xz', '.whl', '.deb', '.dsc', '.rpm', '.apk')


def identifier(*words):
    return 'SPDXRef-' + '-'.join(re.sub(r'[^A-Za-z0-9.-]', '-', word) for word in words)


def digest(path):
    with open(path, 'rb') as file:
        return hashlib.sha256(file.read()).hexdigest()


def package(spdx_id, name, version, licence, **more):
    return {'SPDXID': spdx_id, 'name': name, 'versionInfo': version,
            'downloadLocation': 'NOASSERTION', 'filesAnalyzed': False,
            'licenseConcluded': licence, 'licenseDeclared': licence,
            'copyrightText': 'NOASSERTION', **more}


def purl(kind, name, version):
    return [{'referenceCategory': 'PACKAGE-MANAGER', 'referenceType': 'purl',
             'referenceLocator': f'pkg:{kind}/{name}@{version.replace("+", "%2B")}'}]


class Bill:
    def __init__(self):
        self.packages, self.relations = {}, set()

    def relate(self, one, kind, other):
        self.relations.add((one, kind, other))

    def contains(self, artefact, name, version, kind='deb/debian', suffix='?arch=source'):
        """The artefact has this library linked into it."""
        own = identifier('linked', name, version)
        refs = purl(kind, name, version)
        refs[0]['referenceLocator'] += suffix
        self.packages[own] = package(own, name, version, LICENCES[name], externalRefs=refs)
        self.relate(artefact, 'CONTAINS', own)

    def depends(self, artefact, name):
        """The artefact's package depends on this package of Debian."""
        own = identifier('debian', name)
        version = run('dpkg-query', '-W', '-f', '${Version}', name).strip()
        self.packages[own] = package(own, name, version, 'NOASSERTION',
                                     externalRefs=purl('deb/debian', name, version))
        self.relate(artefact, 'DEPENDS_ON', own)


def linked(name):
    """The libraries of packaging/sources that an artefact contains."""
    if re.search(r'\.(whl|tgz|rpm|apk)$|-linux-\w+\.tar\.gz$', name) and not re.fullmatch(
            r'holdfast-[\d.]+\.tgz', name):
        # The wheels take the SQLite of the system.
        return [one for one, _, _ in pinned() if one != 'sqlite3' or not name.endswith('.whl')]
    return []


def of_deb(bill, own, path):
    """What the fields of a .deb say, and the library that the command has from Debian."""
    name = run('dpkg-deb', '-f', path, 'Package').strip()
    for part in re.findall(r'[\w.+-]+(?= \(|,|$)', re.sub(
            r'\s*\([^)]*\)', '', run('dpkg-deb', '-f', path, 'Depends').strip())):
        if not re.match('(lib)?holdfast', part):
            bill.depends(own, part)
    if name == 'holdfast':
        bill.contains(own, 'jansson', run(
            'dpkg-query', '-W', '-f', '${source:Version}', 'libjansson-dev').strip())


def document(out, version, epoch):
    """Writes holdfast-VERSION.spdx.json for the artefacts that are in `out`."""
    bill = Bill()
    names = sorted(os.listdir(out))
    versions = {name: found for name, found, _ in built()} if any(map(linked, names)) else {}
    if set(versions) - set(LICENCES):
        raise Failed(f'packaging/sbom.py names no licence of {set(versions) - set(LICENCES)}')
    for name in names:
        if not name.endswith(SUFFIXES):
            raise Failed(f'packaging/sbom.py knows no artefacts like {name}')
        own = identifier('artefact', name)
        path = os.path.join(out, name)
        bill.packages[own] = package(
            own, name, version, 'Apache-2.0', packageFileName=name,
            checksums=[{'algorithm': 'SHA256', 'checksumValue': digest(path)}])
        bill.relate('SPDXRef-DOCUMENT', 'DESCRIBES', own)
        for library in linked(name):
            bill.contains(own, library, versions[library])
        if re.search(r'-linux-\w+\.tar\.gz$|\.(rpm|apk)$', name):    # whose C library is in it, too
            bill.contains(own, 'musl', 'of-zig-' + run(zig(), 'version').strip(), 'generic', '')
        if name.endswith('.deb'):
            of_deb(bill, own, path)
    relations = [{'spdxElementId': one, 'relationshipType': kind, 'relatedSpdxElement': other}
                 for one, kind, other in sorted(bill.relations)]
    packages = [bill.packages[own] for own in sorted(bill.packages)]
    content = hashlib.sha256(json.dumps([packages, relations]).encode()).hexdigest()
    bill_of_materials = {
        'spdxVersion': 'SPDX-2.3', 'dataLicense': 'CC0-1.0', 'SPDXID': 'SPDXRef-DOCUMENT',
        'name': f'holdfast-{version}',
        'documentNamespace': f'https://spdx.org/spdxdocs/holdfast-{version}-{content}',
        'creationInfo': {'created': time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(epoch)),
                         'creators': ['Tool: holdfast-tools-release']},
        'packages': packages, 'relationships': relations}
    with open(os.path.join(out, f'holdfast-{version}.spdx.json'), 'w', encoding='utf-8') as file:
        json.dump(bill_of_materials, file, indent=1, sort_keys=True)
        file.write('\n')
