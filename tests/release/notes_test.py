"""The notes of a release: all that CHANGELOG.md says of its version and nothing of others. The
results are TAP.

    notes_test.py SOURCE
"""
import os
import re
import sys

SOURCE = os.path.abspath(sys.argv[1])
sys.path.insert(0, os.path.join(SOURCE, 'tests'))
sys.path.insert(0, os.path.join(SOURCE, 'packaging'))
sys.dont_write_bytecode = True
import toolchain                                                        # noqa: E402
from notes import notes                                                 # noqa: E402
from points import end, point                                           # noqa: E402

THREE = '''# Changelog

## 0.1.1 (2027-02-03)

### Stores
- new: see [row](doc/row.md), [SPDX](https://spdx.dev)

## 0.1.0 (2027-01-01)

- old

## 0.10.0
'''


def refused(version, changelog):
    try:
        return notes(version, changelog)
    except toolchain.Failed as failure:
        return f'refused: {failure}'


def main():
    made = notes('0.1.1', THREE)
    point(made == '# Holdfast 0.1.1 (2027-02-03)\n\n## Stores\n- new: see row, '
          '[SPDX](https://spdx.dev)\n', 'the section of a version, without links to files', made)
    made = notes('0.1.0', THREE)
    point(made == '# Holdfast 0.1.0 (2027-01-01)\n\n- old\n', 'it ends where the next begins', made)
    for version in ('0.1', '0.1.2', '0.10.0'):
        made = refused(version, THREE)
        point(made == f'refused: CHANGELOG.md says nothing of {version}',
              f'{version}, of which nothing is said, is refused', made)
    status = toolchain.run(sys.executable, os.path.join(SOURCE, 'tools', 'release'), '--notes')
    changelog = toolchain.read(os.path.join(SOURCE, 'CHANGELOG.md'))
    version = re.search(r'^#define HF_VERSION "(.*)"', toolchain.read(
        os.path.join(SOURCE, 'include', 'holdfast.h')), flags=re.M).group(1)
    wanted = changelog.split(f'## {version}')[1].split('\n## ')[0].count('\n- ')
    point(status.startswith(f'# Holdfast {version}') and status.count('\n- ') == wanted,
          'tools/release --notes prints those of this version', status)
    return end()


if __name__ == '__main__':
    sys.exit(main())
