"""OpenSSL for the portable artefacts: libssl and libcrypto, static, with what a client of TLS 1.2
and 1.3 needs. Nothing is loaded at run time: no engine, no provider, and no openssl.cnf. That file
is written for the system's OpenSSL, and may name what this one doesn't have."""
import os
import shutil

from toolchain import TARGETS, Kept, pinned, read, run, say, sources, tools, write

CONFIGURATIONS = {'x86_64': 'linux-x86_64', 'aarch64': 'linux-aarch64'}
# Left out: what only a server, another protocol or an old key needs, and what is loaded.
WITHOUT = '''
    shared tests dso module legacy engine static-engine padlockeng capieng afalgeng autoload-config
    ui-console uplink
    ssl3 tls1 tls1-method tls1_1 tls1_1-method dtls srtp nextprotoneg psk srp ssl-trace multiblock
    comp ct
    aria bf blake2 camellia cast dsa ec2m gost idea md4 mdc2 rc2 rc4 rmd160 seed sm2 sm3 sm4
    whirlpool cmac ocb siphash siv scrypt
    cmp cms ocsp rfc3779 ts
'''.split()
# Where distributions have the authorities that they trust, as one file. /etc/ssl/certs is looked at
# besides, whose files are named by what OpenSSL makes of a subject.
BUNDLES = [
    '/etc/ssl/certs/ca-certificates.crt',                   # Debian, Ubuntu, Alpine, Arch, Gentoo
    '/etc/pki/tls/certs/ca-bundle.crt',                     # Fedora, RHEL and its kin
    '/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem',    # the same, from where that one leads
    '/etc/ssl/ca-bundle.pem',                               # openSUSE, SLES
    '/etc/ssl/cert.pem',                                    # Alpine, Void
]
FIND_BUNDLE = '''
#include <unistd.h>

/* Holdfast's: distributions keep it in different places. */
const char *X509_get_default_cert_file(void)
{
    static const char *const known[] = {%s};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!access(known[i], R_OK)) return known[i];
    return X509_CERT_FILE;
}
'''


def trust_any_distribution(path):
    """Changes x509_def.c: the file of authorities is the first of BUNDLES that can be read."""
    text = read(path)
    old = 'const char *X509_get_default_cert_file(void)\n{\n    return X509_CERT_FILE;\n}\n'
    assert text.count(old) == 1, path
    write(path, text.replace(old, FIND_BUNDLE % ', '.join(f'"{one}"' for one in BUNDLES)))


def read_no_config(path):
    """Changes conf_sap.c: openssl.cnf counts as read from the start, whichever call asks for it.
    Libraries and OpenSSL's own lookups of names do, whatever no-autoload-config says."""
    text = read(path)
    old = 'static int openssl_configured = 0;\n'
    assert text.count(old) == 1, path
    write(path, text.replace(old, old.replace('0', '1')))


def openssl(target):
    """A folder with lib/libssl.a, lib/libcrypto.a and include/openssl."""
    version = {name: version for name, version, _ in pinned()}['openssl']
    programs = tools(target)
    kept = Kept('release-openssl-' + target, programs['cc'], version, read(__file__))

    def make(folder):
        say(f'building OpenSSL for {target}, once')
        source = os.path.join(folder, 'source')
        shutil.copytree(os.path.join(sources(), 'openssl', 'source'), source)
        trust_any_distribution(os.path.join(source, 'crypto', 'x509', 'x509_def.c'))
        read_no_config(os.path.join(source, 'crypto', 'conf', 'conf_sap.c'))
        # The date, and the flags with their paths, are part of what OpenSSL says of itself.
        env = {'SOURCE_DATE_EPOCH': '0', 'CC': 'cc', 'AR': 'ar', 'RANLIB': 'true',
               'PATH': os.path.join(folder, 'bin') + os.pathsep + os.environ['PATH']}
        os.mkdir(os.path.join(folder, 'bin'))
        for name, text in programs.items():
            write(os.path.join(folder, 'bin', name), text, 0o755)
        run('perl', 'Configure', CONFIGURATIONS[TARGETS[target][1]],
            *('no-' + name for name in WITHOUT), '--prefix=/usr', '--libdir=lib',
            '--openssldir=/etc/ssl', '-Os', '-fvisibility=hidden',
            '-ffunction-sections', '-fdata-sections', cwd=source, env=env)
        run('make', '-j2', 'build_generated', 'libcrypto.a', 'libssl.a', cwd=source, env=env)
        for name in 'libcrypto.a', 'libssl.a':
            os.makedirs(os.path.join(folder, 'lib'), exist_ok=True)
            shutil.move(os.path.join(source, name), os.path.join(folder, 'lib'))
        shutil.move(os.path.join(source, 'include', 'openssl'),
                    os.path.join(folder, 'include', 'openssl'))
        for name in 'source', 'bin':
            shutil.rmtree(os.path.join(folder, name))
    return kept.get(make)
