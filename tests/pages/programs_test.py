"""Runs every example of the manuals' section 3, as a user who has just installed the build would.

    programs_test.py SOURCE BUILD

A literal block is a struct (structs_test compares it with the header), a program, or a part of one.
A part is put where PARTS says `@`, between what its page says is there. Each is compiled with
warnings as errors, and run; it prints what PARTS says. A block that PARTS doesn't name is a
failure, and so is an entry that no page has.
"""
import glob
import os
import re
import shutil
import sys
import tempfile
from textwrap import indent

sys.path.insert(0, os.path.join(os.path.dirname(__file__), '..'))
from pages import Home
from points import end, point

SOURCE, BUILD = (os.path.abspath(path) for path in sys.argv[1:3])
COMPILE = {
    'c': 'cc -x c -std=c11 -Wall -Wextra -Wpedantic -Werror -o part part.c '
         '$(pkg-config --cflags --libs holdfast)',
    'cpp': 'c++ -x c++ -std=c++11 -Wall -Wextra -Wpedantic -Werror -o part part.c '
           '$(pkg-config --cflags --libs holdfast)',
}
STORE = """hf *store;
    hf_error err;
    if (hf_open("file:locks", NULL, &store, &err)) return 2;"""
# (page, how the block begins): (language, what is around it, a pattern of what is printed).
PARTS = {
    ('holdfast.3', '#include <holdfast.h>'): ('c', '@', r'selling, by token \d+\n'),
    ('hf_acquire.3', 'const char *seats[]'): ('c', rf"""
#include <holdfast.h>
#include <stdio.h>
static int acquire(void)
{{
    {STORE}
    @
    printf("%d %d\n", hf_token(locks[0]) > 0, hf_token(locks[1]) > 0);
    for (int i = 0; i < 2; i++)
        if (hf_release(locks[i], &err)) return err.code;
    hf_close(store);
    return 0;
}}
int main(void) {{ return acquire() ? 1 : 0; }}""", '1 1\n'),
    ('hf_release.3', 'HF_SCOPED hf_lock'): ('c', rf"""
#include <holdfast.h>
#include <stdio.h>
int main(void)
{{
    {STORE}
    for (int i = 0; i < 2; i++) {{
        @
        printf("%d\n", hf_acquire(store, "k", NULL, &lock, &err));
    }}
    hf_close(store);
    return 0;
}}""", '0\n0\n'),
    ('hf_release.3', 'int sell('): ('c', rf"""
#include <holdfast.h>
#include <stdio.h>
static int sold;
static int taken(const char *seat) {{ return *seat == 's' && sold; }}
static int book(const char *seat, uint64_t token)
{{
    sold = *seat == 's' && token > 0;
    return 0;
}}
@
int main(void)
{{
    {STORE}
    int first = sell(store, "seats/1"), again = sell(store, "seats/1");
    printf("%d %d %d\n", first, again, sold);
    hf_close(store);
    return 0;
}}""", '0 1 1\n'),
    ('holdfast.hpp.3', 'holdfast::store store('): ('cpp', r"""
#include <holdfast.hpp>
#include <cstdio>
int main()
{
    @
    std::printf("%d %d %zu %d %d\n", (int)!!seat, (int)!!maybe, row.size(), (int)!!sent,
                (int)!!other);
}""", '1 1 2 0 1\n'),
    ('holdfast.hpp.3', '#include <holdfast.hpp>'): ('cpp', r"""
#include <cstdio>
#include <cstdint>
static int imported;
static bool import_next(std::uint64_t token) { return token > 0 && ++imported < 3; }
@
int main()
{
    holdfast::store store("file:locks");
    import_all(store);
    import_all(store);
    std::printf("%d\n", imported);
}""", '4\n'),
}


def plain(text):
    """The text of a manual without its escapes."""
    return re.sub(r'^\\&', '', text.replace(r'\-', '-').replace(r'\e', '\\'), flags=re.M)


def blocks():
    """(page, text) of every literal block."""
    for path in sorted(glob.glob(os.path.join(SOURCE, 'man', '*.3'))):
        with open(path, encoding='utf-8') as file:
            for text in re.findall(r'^\.Bd -literal.*\n((?:.*\n)*?)\.Ed$', file.read(), flags=re.M):
                yield os.path.basename(path), plain(text)


def run(home, page, text, part):
    language, around, printed = part
    where = f'{page}: {text.splitlines()[0]}'
    if 'file:/var/lib/shop/locks' in text:      # a folder that only the example has
        text = text.replace('file:/var/lib/shop/locks', 'file:locks')
    home.write('part.c', re.sub(r'^( *)@$', lambda at: indent(text, at.group(1)), around,
                                flags=re.M))
    status, said = home.sh(COMPILE[language])
    point(status == 0, f'{where}: compiles without a warning', said)
    status, said = home.sh('./part')
    point(status == 0 and re.fullmatch(printed, said), f'{where}: runs', f'{status}\n{said}')


seen = set()
folder = tempfile.mkdtemp(prefix='holdfast-programs-')
try:
    user = Home(folder, BUILD)
    for of_page, block in blocks():
        if block.startswith('typedef struct'):
            continue
        named = [key for key in PARTS if key[0] == of_page and block.startswith(key[1])]
        point(len(named) == 1, f'{of_page}: a block that this test runs', block)
        seen.update(named)
        for key in named:
            run(user, of_page, block, PARTS[key])
finally:
    shutil.rmtree(folder)
point(seen == set(PARTS), 'each entry of PARTS has its block', set(PARTS) - seen)
sys.exit(end())
