"""The notes of a release: what CHANGELOG.md says of its version, as a page of its own."""
import os
import re

from toolchain import TOP, Failed, read


def notes(version, changelog=None):
    """The section of `version` as Markdown. Links into the repository become plain text: a page of
    a release stands elsewhere."""
    text = read(os.path.join(TOP, 'CHANGELOG.md')) if changelog is None else changelog
    found = re.search(rf'^## {re.escape(version)}(?: \(([^)]*)\))?\n(.*?)(?=^## |\Z)', text,
                      flags=re.M | re.S)
    if not found or not found.group(2).strip():
        raise Failed(f'CHANGELOG.md says nothing of {version}')
    dated = f' ({found.group(1)})' if found.group(1) else ''
    said = re.sub(r'^###', '##', found.group(2).strip(), flags=re.M)
    said = re.sub(r'\[([^]]*)\]\((?!https?:)[^)]*\)', r'\1', said)
    return f'# Holdfast {version}{dated}\n\n{said}\n'
