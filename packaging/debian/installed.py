"""Prints the files that `meson install` takes from a build: installed.py BUILD < introspection."""
import json
import os
import sys

for target in json.load(sys.stdin):
    if target['installed']:
        print('\n'.join(os.path.relpath(path, sys.argv[1]) for path in target['filename']))
