#!/usr/bin/env python3
"""Turns the templates of this folder into C: embed.py OUT.c TEMPLATE...

Each becomes `const char *const guard_NAME[]`, its lines and NULL; NAME is the file's, with a dot as
an underscore.
"""
import os
import sys

ESCAPES = {'\\': '\\\\', '"': '\\"', '\n': '\\n', '\t': '\\t'}


def main(out, *templates):
    with open(out, 'w', encoding='utf-8') as to:
        to.write('#include "guard.h"\n')
        for path in templates:
            name = os.path.basename(path).replace('.', '_')
            to.write(f'const char *const guard_{name}[] = {{\n')
            with open(path, encoding='utf-8') as lines:
                for line in lines:
                    to.write('    "' + ''.join(ESCAPES.get(c, c) for c in line) + '",\n')
            to.write('    NULL};\n')


main(*sys.argv[1:])
