"""Pages that are installed: what the tests of archives and of Debian's packages ask of them."""
import glob
import os
import re


def broken_links(top):
    """(how many links of the pages below a folder name another file, those that lead nowhere)."""
    count, bad = 0, []
    for page in glob.glob(os.path.join(top, '**', '*.md'), recursive=True):
        with open(page, encoding='utf-8') as file:
            text = re.sub(r'^```.*?^```', '', file.read(), flags=re.M | re.S)
        for target in re.findall(r'\]\(([^()\s]+)\)', text):
            path = target.partition('#')[0]
            if path and not re.match('[a-z]+:', target):
                count += 1
                if not os.path.exists(os.path.join(os.path.dirname(page), path)):
                    bad.append(f'{os.path.relpath(page, top)}: {target}')
    return count, bad


def commands(usage):
    """The commands that `holdfast --help` names."""
    return re.findall(r'^  ([a-z]+)  ', usage, flags=re.M)
