#!/usr/bin/env python3
"""Turns the templates of this folder into C.

    embed.py OUT.c TEMPLATE...          each `const char *const guard_NAME[]`, its lines and NULL
    embed.py --script OUT.c TEMPLATE    `const char guard_script_NAME[]`, for a driver: as it is for
                                        locks in the same store, without comments

NAME is the file's, with a dot as an underscore.
"""
import os
import sys

ESCAPES = {'\\': '\\\\', '"': '\\"', '\n': '\\n', '\t': '\\t'}


def quoted(line):
    return '    "' + ''.join(ESCAPES.get(c, c) for c in line) + '"'


def lines_of(path):
    with open(path, encoding='utf-8') as lines:
        return list(lines)


def name_of(path):
    return os.path.basename(path).replace('.', '_')


def templates(paths):
    yield '#include "guard.h"\n'
    for path in paths:
        yield f'const char *const guard_{name_of(path)}[] = {{\n'
        yield from (quoted(line) + ',\n' for line in lines_of(path))
        yield '    NULL};\n'


def script(path):
    name, skipping = f'guard_script_{name_of(path)}[]', False
    yield f'extern const char {name};\nconst char {name} =\n'
    for line in lines_of(path):
        if line.startswith('@'):
            skipping = line.startswith('@if') and line.split()[1] != 'HERE'
        elif not skipping and not line.startswith('--'):
            yield quoted(line) + '\n'
    yield ';\n'


def main(*words):
    if words[0] == '--script':
        made = script(words[2])
        words = words[1:]
    else:
        made = templates(words[1:])
    with open(words[0], 'w', encoding='utf-8') as to:
        to.writelines(made)


main(*sys.argv[1:])
