#!/usr/bin/env python3
"""Writes a header by which the sources of a driver are compiled a second time into one program, as
another driver: it gives every name with a prefix another one.

    twin.py OUT.h PREFIX OTHER-PREFIX SOURCE...
"""
import re
import sys


def main(out, prefix, other, *sources):
    names = set()
    for path in sources:
        with open(path, encoding='utf-8') as file:
            names.update(re.findall(rf'\b{prefix}\w+', file.read()))
    with open(out, 'w', encoding='utf-8') as file:
        file.writelines(f'#define {name} {other}{name[len(prefix):]}\n' for name in sorted(names))


main(*sys.argv[1:])
