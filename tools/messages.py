"""The page of messages, made from the table HF_CODES in include/holdfast.h: rule MAP of tools/lint.

`tools/lint --map` writes PAGE; the rule says when it is old.
"""
import os
import re

HEADER, PAGE = 'include/holdfast.h', 'doc/messages.md'
OPENING = '''# Messages

This page says what each error code means, which state it leaves, and what to do. `tools/lint --map`
makes the page from the table `HF_CODES` in `include/holdfast.h`.

An error of the library has a code and a text of one line. The text names the store, what was
attempted, the key, and why it failed. The command prints the text, and exits with the status of the
code:

```sh
holdfast ls -v -S file:/none/locks || echo "status $?"
```

With `-v` the command also prints the last two columns. A program gets the last three columns by
`hf_code_text`, `hf_code_state` and `hf_code_action`.

| code | status | text | state after it | what to do |
|---|---|---|---|---|
'''
ENDING = '''
`man holdfast` lists the statuses that only the command has, such as 126 and 127. Each page of
[stores](stores) says which errors of its server become which code.
'''


def codes(header):
    """The lines of HF_CODES: name, number, status, text, state, action."""
    table = re.search(r'#define HF_CODES.*?^$', header, flags=re.M | re.S)
    literal = r'[\s\\]*"([^"]*)"'
    return re.findall(rf'X\((\w+), (-?\d+), (\d+),{literal},{literal},{literal}\)',
                      table.group(0) if table else '')


def drawn(header):
    lines = [f'| {name} | {status} | {text} | {state} | {command(action)} |'
             for name, _, status, text, state, action in codes(header)]
    return OPENING + '\n'.join(lines) + '\n' + ENDING


def command(action):
    """The action, with its commands in `code`."""
    return re.sub(r'(holdfast \w+(?: [A-Z]+)?)', r'`\1`', action)


def check(files, read, report):
    if PAGE in files and read(PAGE) != drawn(read(HEADER)):
        report('MAP', PAGE, 1, 'is not what the header says: tools/lint --map')


def write_page(files, read, top):
    if HEADER not in files:
        return
    with open(os.path.join(top, PAGE), 'w', encoding='utf-8') as file:
        file.write(drawn(read(HEADER)))
