"""Which tests of a build a run of tools/test takes: for tools/steps.py."""
import json
import os
import re
import subprocess

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# Which tests run with a sanitizer.
CHOSEN = {'asan': ['--no-suite', 'plain', '--no-suite', 'lint'], 'tsan': ['--suite', 'tsan']}

# Tests of these suites take turns: each run of tools/test tries one of so many shares of them, and
# all of them with $HF_LONG. Two tests choose a share of their own work, and always run.
TURNS = {'own', 'torture', 'turns'}
SHARES = 8
NEVER_LEFT_OUT = {'seeds', 'seeded_file'}
# With a sanitizer these take turns, too. What reads a reply, a row or a URL (the suite unit) mostly
# runs with each commit.
MORE_TURNS = {'asan': {'cli', 'conform', 'node', 'python', 'sim', 'stores'}}
# What a release consists of takes turns, too, one part in each: for glibc, for musl, Debian's
# packages.
RELEASE = ['gnu', 'musl', 'deb']
# A commit that changes so many drivers or fewer tries all tests on them; one that changes more is
# about what they share, and tries the drivers' own tests.
FEW_DRIVERS = 2


def turn():
    """A number that the commit says: of what is too much for each run, which share is tried in this
    one. Given in $HF_TURN it is that."""
    said = subprocess.run(['git', 'rev-parse', '--short=6', 'HEAD'], cwd=TOP, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout.strip()
    return os.environ.get('HF_TURN') or str(int(said[:6] or '0', 16))


def shares():
    return 1 if os.environ.get('HF_LONG') else SHARES


def parts():
    """In so many turns each part of a release is made."""
    return 1 if os.environ.get('HF_LONG') else len(RELEASE)


def whole():
    """Is it the turn of what runs whole in one turn of three, and not at all in the others?"""
    return int(os.environ['HF_TURN']) % parts() == 0


def of_the_release():
    """The parts of RELEASE whose turn it is."""
    return [part for n, part in enumerate(RELEASE)
            if (n + int(os.environ['HF_TURN'])) % parts() == 0]


def known(folder, what):
    """What meson says of a build."""
    path = os.path.join(folder, 'meson-info', f'intro-{what}.json')
    with open(path, encoding='utf-8') as file:
        return json.load(file)


def suites_of(test):
    return {suite.split(':')[-1] for suite in test['suite']}


def of_suites(folder, selection):
    """The tests that `meson test` chooses by these options, all --suite or all --no-suite."""
    suites = set(selection[1::2])
    return [test for test in known(folder, 'tests')
            if bool(suites & suites_of(test)) == (selection[0] == '--suite')]


def changed():
    """The drivers that the commit or the files as they are now change, or a test of them, as a set;
    `servers` stands for the servers of the tests. None if git can't say."""
    done = subprocess.run(['git', 'diff', '--name-only', 'HEAD~1'], cwd=TOP, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    if done.returncode:
        return None
    return set(re.findall(r'^(?:tests/)?drivers/(\w+)/', done.stdout, flags=re.M) +
               re.findall(r'^tests/(servers)/', done.stdout, flags=re.M)) - {'kit'}


def concerned(test, drivers):
    """Does the change of these drivers make this test run, whatever turn it is?"""
    words = test['name'].split('_')
    if drivers is None:
        return 'own' in suites_of(test)
    # Words like etcd35 and rediss are of a driver, too.
    of_them = [word for word in words if word.startswith(tuple(drivers))]
    return bool(of_them) and (len(drivers) <= FEW_DRIVERS or
                              'own' in suites_of(test) and of_them[0] == words[0])


def in_turn(tests_of_build, turn_number, build='gcc'):
    """The names of those that run: what takes no turns, the share of the rest whose turn it is, and
    what a changed driver concerns. Neighbours by name, which try the same of other stores, are in
    other shares: of a suite that runs on eight stores or more, each run tries some."""
    suites = TURNS | MORE_TURNS.get(build, set())
    long = sorted(test['name'] for test in tests_of_build if suites & suites_of(test) and
                  test['name'] not in NEVER_LEFT_OUT)
    left_out = {name for n, name in enumerate(long) if (n + turn_number) % shares()}
    drivers = changed()
    left_out -= {test['name'] for test in tests_of_build if concerned(test, drivers)}
    return [test['name'] for test in tests_of_build if test['name'] not in left_out]


def needed(folder, selection):
    """What is made for these tests: all but the programs of other tests."""
    run = of_suites(folder, selection)
    used = {target for test in run for target in test['depends']}
    # Other things, like modules, are found by where they are.
    aside = [os.path.join(TOP, name, 'meson.build') for name in ('tests', 'bench')]
    return [os.path.relpath(path, folder) for target in known(folder, 'targets')
            if target['build_by_default'] and (target['id'] in used or
                                               target['type'] != 'executable' or
                                               target['defined_in'] not in aside)
            for path in target['filename']]
