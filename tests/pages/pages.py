"""What the tests of the documents share: the fenced blocks of a page, and a new user's home."""
import os
import re
import signal
import subprocess

USERS_OWN = ['make-report', 'deploy.sh', 'encode.sh', 'invoice.sh', 'migrate.sh', 'book.sh',
             'first-part', 'second-part']


def blocks(text):
    """The fenced blocks: (language, text, line)."""
    for match in re.finditer(r'^```(\S*)\n(.*?)^```$', text, flags=re.M | re.S):
        yield match.group(1), match.group(2), text[:match.start()].count('\n') + 1


def shows(expected, said):
    """Did a program print what a page shows? `...` is any text; alone in its line, any lines."""
    pattern = ''
    for line in expected.splitlines(keepends=True):
        if line == '...\n':
            pattern += r'(?:.*\n)*'
        else:
            words = [re.escape(word) for word in re.split(r'\s+', line.strip())]
            pattern += r'\s*' + r'\s+'.join(words).replace(re.escape('...'), '.*') + r'\s*\n'
    return re.fullmatch(pattern, said) is not None


class Home:
    """A new user's home: the build is installed for the user, with the programs that pages name
    (which note that they ran)."""

    def __init__(self, path, build, users_own=USERS_OWN):
        self.path = path
        self.ran = os.path.join(path, 'ran')
        tree = os.path.join(path, 'tree')
        # author_test removes what it has installed, and holds this lock meanwhile.
        subprocess.run(['flock', os.path.join(build, 'install.lock'), 'meson', 'install', '-C',
                        build, '--no-rebuild', '--quiet', '--destdir', tree], check=True,
                       stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        found = {name: folder for folder, _, names in os.walk(tree) for name in names}
        programs = os.path.join(path, 'programs')
        os.mkdir(programs)
        for name in users_own:
            script = os.path.join(programs if '.' not in name else path, name)
            with open(script, 'w', encoding='utf-8') as file:
                file.write(f'#!/bin/sh\necho "{name}|$HOLDFAST_KEY|$HOLDFAST_TOKEN|$*" '
                           f'>>{self.ran}\n')
            os.chmod(script, 0o755)
        self.env = {
            'HOME': path, 'USER': 'reader', 'LANG': 'C.UTF-8',
            'PATH': f'{programs}:{found["holdfast"]}:{os.environ["PATH"]}',
            'PKG_CONFIG_PATH': found['holdfast.pc'], 'PKG_CONFIG_SYSROOT_DIR': tree,
            'LD_LIBRARY_PATH': found['libholdfast.so.0.1.0'],
        }

    def sh(self, text, limit=1200, options='-euc', **env):
        """(status, what it printed); nothing that it started stays."""
        process = subprocess.Popen(['sh', options, text], cwd=self.path, env={**self.env, **env},
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                                   stderr=subprocess.STDOUT, start_new_session=True)
        try:
            said, _ = process.communicate(timeout=limit)
            return process.returncode, said
        except subprocess.TimeoutExpired:
            return 124, 'not done in time'
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def took_part(self):
        """The user's own programs that ran since last asked: (name, key, token, arguments)."""
        if not os.path.exists(self.ran):
            return []
        with open(self.ran, encoding='utf-8') as file:
            lines = [line.rstrip('\n').split('|') for line in file]
        os.unlink(self.ran)
        return lines

    def write(self, name, text):
        with open(os.path.join(self.path, name), 'w', encoding='utf-8') as file:
            file.write(text)
