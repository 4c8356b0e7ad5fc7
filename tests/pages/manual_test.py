"""Runs every command of the manuals' section 1, as a user who has just installed the build would.

    manual_test.py SOURCE BUILD

A line `.Dl $ COMMAND`, and each `$ COMMAND` of a literal block, is run in the order of the page, by
one shell. BEFORE makes what the page takes for granted; PROGRAMS, and a file that an example prints
by `cat`, are there. In a command, what STANDS_FOR names is replaced, and the number behind a
`--token` by the token of the lock that is held. What a block shows below a command has to be
printed; `...`, a token, an id, a time and the name of a holder are any text. AFTER looks at what
the commands did.

A literal block without a command is in OTHER_BLOCKS, a fenced block of a page that neither another
test nor SHELL_ONLY runs in NOT_RUN, each with its reason: an entry that fits nothing is a failure,
too.
"""
import glob
import os
import re
import shutil
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), '..'))
from pages import Home, blocks, shows
from points import end, point

SOURCE, BUILD = (os.path.abspath(path) for path in sys.argv[1:3])

# Servers and folders that are only in the examples: this home has them as files.
STANDS_FOR = {
    'redis://locks.example': 'file:locks-of-redis',
    'postgres://locks@db.example/shop': 'file:$PWD/locks-of-postgres',
    'file:/var/lib/shop/locks': 'file:locks-of-the-shop',
    '/usr/local/bin/backup': 'backup',
}
# What the examples call; each notes its name and its arguments.
PROGRAMS = ('backup', 'make-report', 'book', 'make', 'a', 'b', 'send-invoice', 'pay')
# What has to be so before an example, as its page says.
BEFORE = {
    'holdfast-break.1': r"""
        printf '#!/bin/sh\nexec sleep 1200\n' >backup; chmod +x backup; PATH=.:$PATH
        holdfast run backup -- backup --all >/dev/null 2>&1 &
        until holdfast show --json backup 2>/dev/null | grep -q '"held":true'; do sleep 0.05; done
        HOLDFAST_TOKEN=$(holdfast show --json backup | jq .token)""",
    'holdfast-guard.1': 'sqlite3 app.db "CREATE TABLE seats (id INTEGER PRIMARY KEY, sold INTEGER);'
                        ' INSERT INTO seats VALUES (12, 0)"',
    'holdfast-doctor.1': 'holdfast -S file:locks-of-the-shop run k -- true',
}
AFTER = {'holdfast-guard.1': ('sqlite3 app.db "SELECT sold FROM seats"', '1\n')}
# (page, the beginning of the block): why it isn't run here.
OTHER_BLOCKS = {
    ('holdfast-acquire.1', "HOLDFAST_KEY='nightly'"): 'output: cli_grants evaluates it',
    ('holdfast-acquire.1', 'unset HOLDFAST_KEY'): 'output: cli_grants evaluates it',
    ('holdfast-acquire.1', 'grant=$(holdfast acquire a b'): 'a script: readme_test runs it',
    ('holdfast-acquire.1', 'grant=$(holdfast acquire -w 30'): 'a script: readme_test runs it',
    ('holdfast-acquire.1', 'grant=$(holdfast acquire deploy'): 'a script: readme_test runs it',
}
# (page, language): why nothing runs such a block of it.
NOT_RUN = {
    ('CONTRIBUTING.md', 'sh'): 'it runs the tests themselves',
    ('README.md', 'sh'): 'readme_test',
    ('README.md', 'js'): 'readme_test',
    ('README.md', 'python'): 'readme_test',
    ('README.md', 'c'): 'readme_test',
    ('README.md', 'crontab'): 'readme_test',
    ('doc/adding-a-driver.md', 'sh'): 'author_test builds its steps one after the other',
    ('doc/adding-a-driver.md', 'c'): 'author_test builds its steps one after the other',
    ('doc/guards.md', 'sql'): 'guard_postgres and guard_mariadb',
    ('doc/guards.md', 'holdfast guard postgres'): 'guard_postgres',
    ('doc/guards.md', 'holdfast -S postgres:///app'): 'guard_postgres',
    ('doc/guards.md', 'holdfast guard mariadb'): 'guard_mariadb',
    ('doc/guards.md', 'holdfast guard redis'): 'guard_redis',
    ('doc/guards.md', 'holdfast guard mongodb'): 'guard_mongodb sends what is printed',
    ('doc/guards.md', 'holdfast guard firestore'): 'its second line needs an account of Firebase',
    ('examples/README.md', 'sh'): "the examples' own runs: tests/examples",
    ('examples/README.md', 'python'): 'parts of the programs that tests/examples runs',
    ('examples/README.md', 'js'): 'parts of the programs that tests/examples runs',
    ('packaging/README.md', 'sh'): 'it makes a release: tests/release does it',
    ('doc/guards/firestore.md', 'js'): 'it runs in a browser: guard_web and guard_firestore',
    ('bindings/node/README.md', 'console'): 'it installs the package: node_install',
    ('bindings/python/README.md', 'console'): 'it installs the package: python_install',
    ('doc/stores/file.md', 'console'): "root's part on a machine with several users: places",
}
# What pages_test runs of a page that it is given.
RUN = ('sh', 'python', 'js')
# Pages of which only the shell's blocks are run, here.
SHELL_ONLY = ('doc/guards/firestore.md',)


def read(path):
    with open(os.path.join(SOURCE, path), encoding='utf-8') as file:
        return file.read()


def plain(text):
    """The text of a manual without its escapes."""
    return text.replace(r'\-', '-').replace(r'\(aq', "'").replace(r'\(dq', '"').replace(
        r'\e', '\\')


def examples(page):
    """(commands with what is shown below each, the blocks without one), in the page's order."""
    commands, others = [], []
    for match in re.finditer(r'^\.Dl (.*)$|^\.Bd -literal.*\n((?:.*\n)*?)\.Ed$', plain(page), re.M):
        line, block = match.groups()
        if line is not None:
            point(line.startswith('$ '), f'a line that is shown by .Dl is a command: {line}')
            commands.append((line[2:], ''))
        elif not block.startswith('$ '):
            others.append(block)
        else:
            for part in block[2:].split('\n$ '):
                command, _, shown = part.partition('\n')
                commands.append((command, shown and shown.rstrip('\n') + '\n'))
    return commands, others


def as_it_stands(command):
    for example, here in STANDS_FOR.items():
        if example in command:
            used.add(example)
            command = command.replace(example, here)
    return command


def run_page(home, name, commands):
    """Each command prints a mark with its status behind its output."""
    script = [BEFORE.get(name, ':')]
    for command, shown in commands:
        if command.startswith('cat '):      # the page shows the file that it uses next
            home.write(command.split()[1], shown)
        command = re.sub(r'--token \d+', '--token "$HOLDFAST_TOKEN"', as_it_stands(command))
        script.append(f'{command}\nprintf "=%s=\\n" "$?"')
    after, expected = AFTER.get(name, (':', ''))
    status, said = home.sh('\n'.join(script + [after]), limit=100, options='-c')
    parts = re.split(r'=(\d+)=\n', said)
    point(status == 0 and len(parts) == 2 * len(commands) + 1, f'{name}: its shell ends', said)
    for number, (command, shown) in enumerate(commands):
        printed, status = parts[2 * number:2 * number + 2] or ('', '1')
        point(status == '0', f'{name}: {command}: status 0', f'status {status}\n{printed}')
        if shown:
            shown = re.sub(r'\b\d{16}\b|\b[0-9a-f]{16}\b', '...', shown)
            shown = re.sub(r'anna@db1 pid \d+|anna@db1|\d{4}-\d\d-\d\d [\d:]+', '...', shown)
            point(shows(shown, printed), f'{name}: {command}: prints what stands below it', printed)
    point(parts[-1] == expected, f'{name}: it comes to what the page says', parts[-1])
    home.path_took = home.took_part()


def manuals(home):
    seen = set()
    for path in sorted(glob.glob(os.path.join(SOURCE, 'man', '*.1'))):
        name = os.path.basename(path)
        commands, others = examples(read(path))
        for block in others:
            reasons = [key for key in OTHER_BLOCKS
                       if key[0] == name and block.startswith(key[1])]
            seen.update(reasons)
            point(reasons, f'{name}: a block that no test runs has its reason', block)
        if not commands:
            continue
        home.path = home.env['HOME'] = os.path.join(folder, name)
        os.mkdir(home.path)
        run_page(home, name, commands)
        called = {word for command, _ in commands for word in PROGRAMS
                  if re.search(rf"(?:-- |-c '|; |&& ){word}(?![\w-])", as_it_stands(command))}
        ran = {program for program, *_ in home.path_took}
        point(ran == called, f'{name}: runs {sorted(called) or "nothing else"}', sorted(ran))
    point(seen == set(OTHER_BLOCKS), 'each reason of OTHER_BLOCKS has its block',
          set(OTHER_BLOCKS) - seen)
    point(used == set(STANDS_FOR), 'each entry of STANDS_FOR is in an example',
          set(STANDS_FOR) - used)


def shell_blocks(home):
    for page in SHELL_ONLY:
        for language, text, line in blocks(read(page)):
            if language == 'sh':
                status, said = home.sh(text, limit=100)
                point(status == 0, f'{page}:{line} (sh): status 0', f'status {status}\n{said}')


def commands_in(shown):
    """The first three words of each block of text that begins with a command."""
    return {' '.join(text.split()[:3]) for language, text, _ in shown
            if language == 'text' and text.startswith('holdfast ')}


def every_block_is_run():
    """A page whose examples run is named by a list of tests; any other block has its reason."""
    lists = read('tests/pages/meson.build')
    seen = set()
    pages = [os.path.relpath(path, SOURCE) for pattern in
             ('*.md', 'doc/**/*.md', 'bench/*.md', 'bindings/*/*.md', 'examples/**/*.md',
              'guards/*.md', 'packaging/**/*.md', 'tests/**/*.md', 'tools/*.md')
             for path in glob.glob(os.path.join(SOURCE, pattern), recursive=True)]
    for page in sorted(pages):
        listed = f"'{page}'" in lists or page.startswith('doc/stores/') and \
            f"'{os.path.basename(page)[:-3]}': [" in lists
        shown = list(blocks(read(page)))
        for language in sorted({block[0] for block in shown} - {'text', ''} | commands_in(shown)):
            reason = (page, language)
            if listed and language in RUN or page in SHELL_ONLY and language == 'sh':
                point(reason not in NOT_RUN, f'{page}: its {language} is run')
                continue
            seen.add(reason)
            point(reason in NOT_RUN, f'{page}: its {language} is run, or has a reason why not')
    point(seen == set(NOT_RUN), 'each reason of NOT_RUN has its block', set(NOT_RUN) ^ seen)


# A paragraph about those that only a shared store serves, and how such a store is named.
SHARED = re.compile(r'\b(machines|hosts|(several|other|all) users)\b', re.I)
NAMED = re.compile(r'-S |HOLDFAST_STORE|/etc/holdfast/store')
OF_ONE_MACHINE = re.compile(r'\b(file|sqlite|mem):')


def examples_below(path):
    """(the paragraph above it, the example), for each example of a page or manual."""
    text = read(path)
    manual = not path.endswith('.md')
    shown = r'(?:^\.Dl .*\n)+|^\.Bd -literal.*\n(?:.*\n)*?\.Ed$' if manual else \
        r'^```\S*\n(?:.*\n)*?```$'
    ends = r'^\.(?:Pp|Sh|Ss|It)\b.*\n' if manual else r'\n\n'
    for match in re.finditer(shown, text, re.M):
        above = text[:match.start()].rstrip().removesuffix('.Pp')
        yield re.split(ends, above, flags=re.M)[-1], match.group()


def what_several_machines_share_is_named():
    found = 0
    paths = [path for pattern in ('README.md', 'doc/**/*.md', 'bindings/*/README.md',
                                  'examples/*.md', 'man/*.[13]')
             for path in glob.glob(os.path.join(SOURCE, pattern), recursive=True)]
    for path in (os.path.relpath(path, SOURCE) for path in sorted(paths)):
        for above, example in examples_below(path):
            about = SHARED.search(above)
            if about:
                found += 1
                point(NAMED.search(plain(above + example)) and
                      not ('user' not in about.group() and OF_ONE_MACHINE.search(example)),
                      f'{path}: an example for {about.group()} names the store that they share',
                      above + '\n' + example)
    point(found >= 10, 'examples for several machines are found', found)


used = set()
folder = tempfile.mkdtemp(prefix='holdfast-manuals-')
try:
    user = Home(folder, BUILD, PROGRAMS)
    manuals(user)
    shell_blocks(user)
finally:
    shutil.rmtree(folder)
every_block_is_run()
what_several_machines_share_is_named()
sys.exit(end())
