"""Copies the documentation as it is installed: the pages of doc/, and beside them those of the top
of the checkout that a user needs.

    install.py SOURCE TO DEPFILE

SOURCE: the checkout. TO: the folder to make. DEPFILE: gets the names of what was read, for ninja.
A link to a page that is installed leads there. A figure is copied into TO/figures. Of a link into
the rest of the checkout its text remains.
"""
import os
import re
import shutil
import sys

TOP_PAGES = ['ARCHITECTURE.md', 'README.md', 'SECURITY.md']
LINK = re.compile(r'(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)')


def pages(source):
    """{page in the checkout: its place below the installed folder}."""
    found = {name: name for name in TOP_PAGES if os.path.exists(os.path.join(source, name))}
    for folder, _, names in os.walk(os.path.join(source, 'doc')):
        for name in names:
            if name.endswith('.md'):
                path = os.path.relpath(os.path.join(folder, name), source)
                found[path] = os.path.relpath(path, 'doc')
    return found


class Copy:
    def __init__(self, source, to):
        self.source, self.to = source, to
        self.pages = pages(source)
        self.read = [os.path.join(source, 'doc')]
        self.read += [os.path.join(source, 'doc', name) for name in sorted(
            {os.path.dirname(place) for place in self.pages.values()} - {''})]

    def linked(self, page, match):
        """What stands in the installed page for this link."""
        figure, text, target = match.groups()
        path, hash_, part = target.partition('#')
        if re.match(r'[a-z]+:', target) or not path:
            return match[0]
        there = os.path.normpath(os.path.join(os.path.dirname(page), path))
        place = self.pages.get(there)
        if not place and there.endswith('.svg') and os.path.exists(
                os.path.join(self.source, there)):
            place = os.path.join('figures', os.path.basename(there))
            os.makedirs(os.path.join(self.to, 'figures'), exist_ok=True)
            shutil.copyfile(os.path.join(self.source, there), os.path.join(self.to, place))
            self.read.append(os.path.join(self.source, there))
        if not place:
            return text
        place = os.path.relpath(place, os.path.dirname(self.pages[page]) or '.')
        return f'{figure}[{text}]({place}{hash_}{part})'

    def page(self, page):
        path = os.path.join(self.source, page)
        self.read.append(path)
        with open(path, encoding='utf-8') as file:
            text = file.read()
        to = os.path.join(self.to, self.pages[page])
        os.makedirs(os.path.dirname(to), exist_ok=True)
        with open(to, 'w', encoding='utf-8') as file:
            file.write(LINK.sub(lambda match: self.linked(page, match), text))


def main(source, to, depfile):
    shutil.rmtree(to, ignore_errors=True)
    copy = Copy(os.path.abspath(source), to)
    for page in sorted(copy.pages):
        copy.page(page)
    with open(depfile, 'w', encoding='utf-8') as file:
        file.write(f'{to}: ' + ' '.join(name.replace(' ', r'\ ') for name in copy.read) + '\n')


if __name__ == '__main__':
    main(*sys.argv[1:])
