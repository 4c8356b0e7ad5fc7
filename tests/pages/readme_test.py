"""Runs every snippet of README.md, as a user who has just installed the build would.

    tests/servers/postgres tests/servers/firestore readme_test.py SOURCE BUILD URL

URL is the PostgreSQL server's. Snippets find its database `shop` by libpq's environment.
A fenced block is run by its language: sh, c, js, python, crontab. A language that nothing here
runs is a failure, and so is a snippet that does something else than the text around it says.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(__file__), '..'))
from pages import USERS_OWN, Home, blocks
from points import end, point

SOURCE, BUILD = (os.path.abspath(path) for path in sys.argv[1:3])
POSTGRES = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(sys.argv[3]).query))


def without_a_grant(home, text, where):
    """A script that acquires, and gets nothing, ends: with set -e and without."""
    if 'holdfast acquire' not in text:
        return
    for options in '-euc', '-c':
        status, said = home.sh(text, options=options, HOLDFAST_STORE='file:/dev/null/none',
                               HOLDFAST_TOKEN='1')
        ran = home.took_part()
        point(status not in (0, 127) and not ran, f'{where}: sh {options}: ends without a grant',
              f'status {status}, ran {ran}\n{said}')


def run_sh(home, text, where):
    if 'npm install' in text:
        # node_install and python_install do it: it takes long.
        for path in re.findall(r'install \S*?(bindings/\w+)', text):
            made = [name for name in ('package.json', 'pyproject.toml')
                    if os.path.exists(os.path.join(SOURCE, path, name))]
            point(made, f'{where}: {path} is a package')
        return
    status, said = home.sh(text)
    point(status == 0, f'{where}: status 0', f'status {status}\n{said}')
    ran = home.took_part()
    named = [name for name in USERS_OWN if re.search(rf'(?<![\w.-]){re.escape(name)}', text)]
    point([name for name, *_ in ran] == named, f'{where}: runs {named or "nothing else"}', ran)
    for name, key, token, arguments in ran:
        if re.search(rf'holdfast [^#\n]*{re.escape(name)}', text):
            point(key and token.isdigit(), f'{where}: {name} is told its key and token', ran)
        elif f'{name} "$HOLDFAST_TOKEN"' in text:
            point(arguments.isdigit(), f'{where}: {name} has the token', ran)
    without_a_grant(home, text, where)
    if 'firestore://' in text:
        place = ('http://$FIRESTORE_EMULATOR_HOST/v1/projects/my-project/databases/(default)'
                 '/documents/live/sync/screenings/12/A/5')
        status, said = home.sh(f'curl -fsS -H "Authorization: Bearer owner" "{place}"')
        point(status == 0 and 'screenings/12/A/5' in said,
              f'{where}: the lock is the document that the text names', said)


def run_crontab(home, text, where):
    for line in text.splitlines():
        if line.startswith('PATH='):
            point('/usr/local/bin' in line.split('=')[1].split(':'), f'{where}: PATH finds it',
                  line)
            continue
        match = re.fullmatch(r'((?:\S+ ){4}\S+)\s+(.*)', line)
        point(match, f'{where}: five fields and a command', line)
        if not match:
            continue
        command = match.group(2)
        status, said = home.sh(command)
        ran = home.took_part()
        point(status == 0 and len(ran) == 1, f'{where}: runs', f'{status} {ran}\n{said}')
        # Again from inside of itself, which is what an overlap is.
        key = re.search(r'holdfast run -n -q -E 0 (\S+)', command).group(1)
        status, said = home.sh(f"holdfast run {key} -- env -u HOLDFAST_KEY -u HOLDFAST_TOKEN sh -c "
                               f"'{command}'")
        point(status == 0 and not said and not home.took_part(),
              f"{where}: doesn't overlap with itself, and says nothing", said)


def run_c(home, text, where):
    """By the command that stands below it."""
    home.write('sell.c', text)
    status, said = home.sh('cc -std=c11 -Wall -Wextra -Wpedantic -Werror -fsyntax-only '
                           '$(pkg-config --cflags holdfast) sell.c')
    point(status == 0, f'{where}: compiles without a warning', said)
    with open(os.path.join(SOURCE, 'README.md'), encoding='utf-8') as file:
        command = re.search(r'`(cc -o sell [^`]*)`', file.read()).group(1)
    status, said = home.sh(f'{command} && ./sell')
    point(status == 0 and re.fullmatch(r'sold by token \d+\n', said), f'{where}: sell sells',
          said)


def run_js(home, text, where):
    """As a module, in a project that the package is linked to."""
    package = os.path.join(SOURCE, 'bindings', 'node')
    os.makedirs(os.path.join(home.path, 'node_modules'), exist_ok=True)
    os.symlink(package, os.path.join(home.path, 'node_modules', 'holdfast'))
    home.write('sell.mjs', text)
    home.env, own = {**os.environ, 'LANG': 'C.UTF-8'}, home.env     # the packages are in its cache
    status, said = home.sh(f'{package}/test/run {BUILD} {home.path}/sell.mjs', limit=3000)
    home.env = own
    point(status == 0 and re.search(r'^alone with user 5\nsold by token \d+ false$', said, re.M),
          f'{where}: runs, and sells', said)


def run_python(home, text, where):
    """With the extension of the build, on the PostgreSQL server."""
    home.write('sell.py', text)
    status, said = home.sh(f'PYTHONPATH={BUILD}/bindings/python /usr/bin/python3 -W error sell.py',
                           HOLDFAST_DRIVERS=BUILD)
    point(status == 0 and re.fullmatch(r'sold by token \d+\n', said), f'{where}: sells', said)
    status, said = home.sh("psql -X -A -t -c 'SELECT key, owner FROM holdfast' shop")
    point(status == 0 and said == 'seats/12/A/5|\n', f'{where}: the table is made, the key is free',
          said)


def manual_scripts(home):
    """The scripts of holdfast-acquire(1) run, and end if they get nothing."""
    with open(os.path.join(SOURCE, 'man', 'holdfast-acquire.1'), encoding='utf-8') as file:
        page = file.read()
    scripts = [text.replace('\\-', '-') for text in
               re.findall(r'^\.Bd -literal -offset indent\n(.*?)^\.Ed$', page, flags=re.M | re.S)
               if 'holdfast acquire' in text]
    point(len(scripts) == 3, 'holdfast-acquire(1) has three scripts', scripts)
    for number, text in enumerate(scripts, 1):
        where = f'script {number} of holdfast-acquire(1)'
        named = [name for name in USERS_OWN if re.search(rf'^{re.escape(name)}$', text, re.M)]
        # A script of its own, for the next one may want the key.
        status, said = home.sh(text + '\nholdfast release deploy --token "$HOLDFAST_TOKEN" || :\n')
        point(status == 0, f'{where}: status 0', f'status {status}\n{said}')
        ran = [name for name, *_ in home.took_part()]
        point(ran == named, f'{where}: runs {named or "nothing else"}', ran)
        without_a_grant(home, text + '\nmake-report\n', where)


OPENS = r"""
#include <holdfast.h>
#include <stdio.h>
int main(int argc, char **argv)
{
    hf *store;
    hf_lock *lock;
    hf_error err;
    if (argc < 2 || hf_open(argv[1], NULL, &store, &err) ||
        hf_acquire(store, "k", NULL, &lock, &err)) {
        puts(err.text);
        return 1;
    }
    hf_close(store);
    return 0;
}
"""


def moved(home):
    """What was installed isn't where it was built for: its modules are found all the same."""
    url = f'sqlite:{home.path}/moved.db'
    status, said = home.sh(f'holdfast -S {url} run k -- true')
    point(status == 0, 'a moved command finds its modules', said)
    home.write('opens.c', OPENS)
    status, said = home.sh(f'cc -o opens opens.c $(pkg-config --cflags --libs holdfast) && '
                           f'./opens {url}')
    point(status == 0, 'a moved library finds its modules', said)
    status, said = home.sh(f'cc -o static opens.c $(pkg-config --cflags holdfast) '
                           f'$(pkg-config --static --libs holdfast | sed '
                           f'"s/-lholdfast/-l:libholdfast.a/") && '
                           f'HOLDFAST_DRIVERS=$LD_LIBRARY_PATH/holdfast ./static {url}')
    point(status == 0, 'modules find the static library in the program', said)
    for page in ('row.md', 'adding-a-driver.md', 'stores/file.md', 'stores/sqlite.md'):
        _, said = home.sh(f'find tree -path "*/share/doc/holdfast/{page}"')
        point(said, f'{page} is installed')


def exit_statuses():
    """holdfast(1) names every status that a code of the header has."""
    with open(os.path.join(SOURCE, 'include', 'holdfast.h'), encoding='utf-8') as file:
        wanted = set(re.findall(r'^ +X\(\w+, +-?\d+, (\d+),', file.read(), flags=re.M)) - {'0'}
    with open(os.path.join(SOURCE, 'man', 'holdfast.1'), encoding='utf-8') as file:
        table = re.search(r'^\.Sh EXIT STATUS\n(.*?)^\.El', file.read(), flags=re.M | re.S).group(1)
    named = {number for item in re.findall(r'^\.It ([\d, ]+)$', table, flags=re.M)
             for number in re.findall(r'\d+', item)}
    point(wanted and wanted <= named, 'the table of exit statuses is complete',
          sorted(wanted - named))


def links(readme):
    for target in sorted(set(re.findall(r'\]\(([^)#:]+)\)', readme))):
        point(os.path.exists(os.path.join(SOURCE, target)), f'{target} is there')


def requests_of_the_table(readme):
    """They are those that lock_trips holds each store to."""
    with open(os.path.join(SOURCE, 'tests', 'meson.build'), encoding='utf-8') as file:
        held_to = dict(re.findall(r"^  '(\w+)': \{'light': .*'first': (\d+)", file.read(), re.M))
    said = dict(re.findall(r'^\| \[`(\w+):`\].*\| (\d+) \|[^|]*\|$', readme, re.M))
    point(len(held_to) >= 8 and said == held_to, 'the requests of a new key are as the table says',
          f'{said} and {held_to}')


def main():
    with open(os.path.join(SOURCE, 'README.md'), encoding='utf-8') as file:
        readme = file.read()
    runners = {'sh': run_sh, 'c': run_c, 'js': run_js, 'python': run_python, 'crontab': run_crontab}
    folder = tempfile.mkdtemp(prefix='holdfast-readme-')
    try:
        home = Home(folder, BUILD)
        home.env.update({'PGHOST': POSTGRES['host'], 'PGUSER': POSTGRES['user'],
                         'FIRESTORE_EMULATOR_HOST': os.environ['FIRESTORE_EMULATOR_HOST']})
        subprocess.run(['createdb', 'shop'], check=True, env={**os.environ, **home.env})
        for language, text, line in blocks(readme):
            where = f'line {line} ({language or "no language"})'
            if language in runners:
                runners[language](home, text, where)
            else:
                point(False, f'{where}: nothing runs that', text)
        manual_scripts(home)
        moved(home)
    finally:
        shutil.rmtree(folder)
    exit_statuses()
    links(readme)
    requests_of_the_table(readme)
    return end()


if __name__ == '__main__':
    sys.exit(main())
