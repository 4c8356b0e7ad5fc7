"""Which file may know which: the rules LAYER and CYCLE of tools/lint.

A file knows another if it includes it, or if code of its own names a function that the other
defines (a call, or a pointer to it; the declarations in headers are no code). `x.c` and `x.h` are
one unit.

    LAYER   the core is layered: a folder of it knows those before it in CORE, and itself; what is
            ABOVE may know all of the core, which knows nothing of that; drivers know what BELOW
            says (and call what the public headers declare). What a lower layer has to tell a
            higher one goes by a callback that was registered when the handle was opened.
    CYCLE   the units of a folder in UNCIRCLED call each other in one direction

`tools/lint --map` writes MAP, a page that shows what this finds; the rule MAP says when it is old.
"""
import collections
import os
import re

CORE = ['util', 'state', 'sched', 'store', 'session', 'client', 'threads', 'admin']
ABOVE = ['conform']
# For the drivers: what they share with the core, and the names of those that are built in.
MAP = 'doc/internals/map.md'
BELOW = ('core/util/', 'core/state/', 'core/store/drivers')
UNCIRCLED = ['bindings/node/src', 'bindings/python/src', 'conform', 'core', 'drivers/etcd',
             'drivers/kit']

DEFINED = re.compile(r'^(?:static inline |(?!static\b|typedef\b)[A-Za-z_])[\w \t*]*?\b(\w+)'
                     r'\([^;{}]*\)\s*\{', re.M)
INCLUDED = re.compile(r'^[ \t]*#[ \t]*include[ \t]+"([^"]+)"', re.M)
NAMED = re.compile(r'(?<![\w.>])[A-Za-z_]\w*')


def bodies(text):
    """A header without its declarations: what stands in braces behind a list of parameters."""
    found = []
    for match in re.finditer(r'\)\s*\{', text):
        depth, at = 1, match.end()
        while depth and at < len(text):
            depth += {'{': 1, '}': -1}.get(text[at], 0)
            at += 1
        found.append(text[match.end():at])
    return '\n'.join(found)


def unit(path):
    return os.path.splitext(path)[0]


class Tree:
    """The files of the folders that have rules: what each defines, includes and names."""

    def __init__(self, files, read, without_comments):
        folders = tuple(f'{folder}/' for folder in {*UNCIRCLED, *ABOVE, 'core', 'drivers'})
        self.text = {}
        for path in files:
            if path.startswith(folders) and path.endswith(('.c', '.h')):
                self.text[path] = read(path)
        self.code = {path: without_comments(text) for path, text in self.text.items()}
        self.home = collections.defaultdict(set)    # name -> files that define it
        for path, code in self.code.items():
            for match in DEFINED.finditer(code):
                if path.endswith('.h') or not match.group(0).startswith('static'):
                    self.home[match.group(1)].add(path)
        self.headers = collections.defaultdict(list)
        for path in self.text:
            if path.endswith('.h'):
                self.headers[os.path.basename(path)].append(path)

    def line(self, path, name):
        for number, line in enumerate(self.text[path].split('\n'), 1):
            if re.search(rf'(?<![\w.>]){re.escape(name)}\b', line):
                return number
        return 1

    def included(self, path):
        """[(the header's path, its name)] of those that are here."""
        found = []
        for name in INCLUDED.findall(self.text[path]):
            near = os.path.normpath(os.path.join(os.path.dirname(path), name))
            named = [near] if near in self.text else self.headers[os.path.basename(name)]
            found += [(header, name) for header in named]
        return found

    def called(self, path, inside):
        """[(the path of the definition, its name)] of functions that are defined `inside`."""
        code = self.code[path] if path.endswith('.c') else bodies(self.code[path])
        found = []
        for name in sorted(set(NAMED.findall(code))):
            there = [home for home in self.home.get(name, ()) if home.startswith(inside)]
            if there and unit(path) not in map(unit, there):
                found += [(home, name) for home in there]
        return found


def rank(path):
    part = path.split('/')
    if part[0] == 'core' and len(part) > 2 and part[1] in CORE:
        return CORE.index(part[1])
    return len(CORE) if part[0] in ABOVE else None


def layers(tree, report):
    layered = tuple(f'{folder}/' for folder in ['core', *ABOVE])
    for path in sorted(tree.text):
        own = rank(path)
        known = {}      # once for each file, however often it is named
        for other, name in tree.included(path) + tree.called(path, layered):
            known.setdefault(unit(other), (other, name))
        for other, name in known.values():
            if own is not None and rank(other) is not None and rank(other) > own:
                report('LAYER', path, tree.line(path, name),
                       f'{name} is of {other}, which is above this: register a callback')
            elif path.startswith('drivers/') and other.startswith('core/') and \
                    other.endswith('.h') and not other.startswith(BELOW):
                report('LAYER', path, tree.line(path, name), f'{name} is none of a driver\'s')


def strongly_connected(edges):
    """Tarjan's: the sets of more than one."""
    index, low, stack, found = {}, {}, [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(edges.get(node, ())):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            circle = stack[stack.index(node):]
            del stack[stack.index(node):]
            if len(circle) > 1:
                found.append(sorted(circle))

    for node in sorted(edges):
        if node not in index:
            visit(node)
    return found


def cycles(tree, report):
    for folder in UNCIRCLED:
        edges = collections.defaultdict(set)
        for path in tree.text:
            if path.startswith(folder + '/'):
                edges[unit(path)] |= {unit(other) for other, _ in
                                      tree.called(path, folder + '/')}
        for circle in strongly_connected(edges):
            names = [os.path.relpath(name, folder) for name in circle]
            for _ in circle:
                report('CYCLE', folder, 1, 'these call each other in a circle: ' + ', '.join(names))


# ---- the map ----

HEAD = """# The map of the core

This page shows which part of the core uses which, and says of each file what it is for. It is made
by `tools/lint --map`.

A row uses what is marked in its columns. Nothing uses what is above it:

```text
"""


def subject(tree, path):
    """What the opening comment of a file says that it is, up to the end of that sentence."""
    opening = re.match(r'/\*\s*\*?\s*\S+ - (.*?)\*/', tree.text[path], re.S)
    words = re.sub(r'\s*\n \* ?', ' ', opening.group(1)) if opening else ''
    return re.split(r'[.;](?= |$)', words)[0].strip().rstrip('.')


def top_down(tree, folder):
    """The units of a folder, each before those that it calls; where that leaves a choice, by
    name."""
    units = {unit(path) for path in tree.text if os.path.dirname(path) == folder}
    calls = {name: set() for name in units}
    for path in tree.text:
        if unit(path) in units:
            calls[unit(path)] |= {unit(other) for other, _ in tree.called(path, folder + '/')
                                  } & units - {unit(path)}
    ordered = []
    while calls:
        called = set().union(*calls.values())
        first = min(set(calls) - called or calls)
        del calls[first]
        ordered.append(first)
    return ordered


def uses(tree, folder, folders):
    """Which of the folders it includes or calls something of."""
    found = set()
    for path in tree.text:
        if os.path.dirname(path) == folder:
            for other, _ in tree.included(path) + tree.called(path, ('core/', *ABOVE)):
                found |= {os.path.dirname(other)} & set(folders) - {folder}
    return found


def drawn(tree):
    folders = [*ABOVE, *(f'core/{name}' for name in reversed(CORE))]
    width = max(map(len, folders))
    heads = [os.path.basename(folder) for folder in folders[1:]]
    page = HEAD + ' ' * width + ''.join(f'  {head}' for head in heads).rstrip() + '\n'
    for folder in folders:
        marks = [('x' if other in uses(tree, folder, folders) else '.').center(len(head))
                 for other, head in zip(folders[1:], heads)]
        page += (folder.ljust(width) + ''.join(f'  {mark}' for mark in marks)).rstrip() + '\n'
    page += '```\n\nIn each folder a file comes before those that it calls: read from the top.\n'
    for folder in folders:
        page += f'\n## {folder}\n\n'
        for name in top_down(tree, folder):
            path = name + ('.h' if name + '.h' in tree.text else '.c')
            page += f'- **{os.path.basename(name)}**: {subject(tree, path)}\n'
    return page


def check(files, read, without_comments, report):
    tree = Tree(files, read, without_comments)
    layers(tree, report)
    cycles(tree, report)
    if MAP in files and read(MAP) != drawn(tree):
        report('MAP', MAP, 1, 'is not what the sources say: tools/lint --map')


def write_map(files, read, without_comments, top):
    page = drawn(Tree(files, read, without_comments))
    with open(os.path.join(top, MAP), 'w', encoding='utf-8') as file:
        file.write(page)
