"""What the manuals' section 3 says of structs and constants, beside the header and the library.

    structs_test.py SOURCE BUILD

A literal block that begins with `typedef struct` has the header's members, in their order. A page
that names HF_FOREVER says its value. Of a hold that lasts as long as its process hf_left_ms answers
INT64_MAX, and hf_peek HF_FOREVER, as hf_renew.3 and hf_list.3 say.
"""
import ctypes
import glob
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), '..'))
from points import end, point

SOURCE, BUILD = (os.path.abspath(path) for path in sys.argv[1:3])
INT64_MAX = 2**63 - 1


def read(*path):
    with open(os.path.join(SOURCE, *path), encoding='utf-8') as file:
        return file.read()


def members(body):
    """[TYPE NAME] of what stands in a struct; `int a, b` are two."""
    found = []
    for line in filter(None, (' '.join(line.split()) for line in body.split(';'))):
        first, *more = line.split(', ')
        found += [first] + [f'{first.rsplit(" ", 1)[0]} {name}' for name in more]
    return found


def structs(text):
    """{name: its members}, without comments."""
    text = re.sub(r'/\*.*?\*/', '', text, flags=re.S)
    return {name: members(body)
            for body, name in re.findall(r'^typedef struct \w+ \{\n(.*?)^\} (\w+);', text,
                                         flags=re.M | re.S)}


def said(page):
    """A page as one line, without macros and escapes."""
    words = re.sub(r'^\.[A-Z][a-z]\b', '', page, flags=re.M)
    words = re.sub(r'\b(Dv|Fa|Fn|Xr|No|Li|Po|Pc)\b', '', words)
    return ' '.join(words.replace(r'\-', '-').split())


def values(text, forever):
    """A page that names HF_FOREVER says its value behind one of the names, and no other value."""
    stated = re.findall(r'HF_FOREVER(?: is|\W{0,3}which is)?\W{0,3}(-\d+)', text)
    return bool(stated) and set(stated) == {forever}


def left_of_a_hold():
    """(hf_left_ms, hf_peek's left_ms) of a hold that lasts as long as its process."""
    library = ctypes.CDLL(os.path.join(BUILD, 'libholdfast.so'))
    library.hf_left_ms.restype = ctypes.c_int64
    store, lock, seen = ctypes.c_void_p(), ctypes.c_void_p(), []

    class Party(ctypes.Structure):
        _fields_ = [('owner', ctypes.c_char * SIZES['HF_OWNER_CAP']),
                    ('note', ctypes.c_char * SIZES['HF_NOTE_CAP']), ('token', ctypes.c_uint64),
                    ('since_us', ctypes.c_int64), ('left_ms', ctypes.c_int64)]

    class Info(ctypes.Structure):
        _fields_ = [('key', ctypes.c_char * SIZES['HF_KEY_CAP']), ('rev', ctypes.c_uint64),
                    ('token', ctypes.c_uint64), ('now_us', ctypes.c_int64),
                    ('done_us', ctypes.c_int64), ('keep_until_us', ctypes.c_int64),
                    ('result', ctypes.c_char * SIZES['HF_RESULT_CAP']),
                    ('done_by', ctypes.c_char * SIZES['HF_OWNER_CAP']),
                    ('n_holders', ctypes.c_size_t), ('n_waiters', ctypes.c_size_t),
                    ('parties', ctypes.POINTER(Party))]

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(Info))
    def see(_, info):
        seen.append(info[0].parties[0].left_ms)
        return 0

    assert library.hf_open(b'mem:', None, ctypes.byref(store), None) == 0
    assert library.hf_acquire(store, b'k', None, ctypes.byref(lock), None) == 0
    left = library.hf_left_ms(lock)
    assert library.hf_peek(store, b'k', see, None, None) == 0
    library.hf_release(lock, None)
    library.hf_close(store)
    return left, seen[0]


header = read('include', 'holdfast.h')
SIZES = {name: int(value) for name, value in re.findall(r'^#define (HF_\w+_CAP) +(\d+)', header,
                                                        flags=re.M)}
FOREVER = re.search(r'^#define HF_FOREVER +INT64_C\((-?\d+)\)', header, flags=re.M).group(1)
pages = {os.path.basename(path): read(path) for path in
         sorted(glob.glob(os.path.join(SOURCE, 'man', '*.3')))}

declared, shown = structs(header), {}
for page, source in pages.items():
    for struct, has in structs(source).items():
        shown.setdefault(struct, []).append(page)
        point(has == declared.get(struct), f'{page}: {struct} has the members of the header',
              f'page:   {has}\nheader: {declared.get(struct)}')
point(set(shown) == set(declared), 'a manual shows each struct of the header',
      set(shown) ^ set(declared))
for page, source in pages.items():
    if 'HF_FOREVER' in source:
        point(values(said(source), FOREVER), f'{page}: HF_FOREVER is {FOREVER}, as in the header',
              re.findall('HF_FOREVER.{30}', said(source)))
point('INT64_MAX' in re.search(r'hf_left_ms\(.*?\*/', header, flags=re.S).group(0),
      'the header says that hf_left_ms may answer INT64_MAX')
point('hf_left_ms says' in said(pages['hf_renew.3']) and
      re.search(r'hf_left_ms says [^.]*INT64_MAX that it lasts as long as this process',
                said(pages['hf_renew.3'])), 'hf_renew.3 says it, too', said(pages['hf_renew.3']))
point(re.search(rf'left_ms of a holder is[^.]*HF_FOREVER.{{0,5}}{FOREVER}; hf_left_ms 3 says '
                r'INT64_MAX instead', said(pages['hf_list.3'])),
      'hf_list.3 says what hf_peek answers, and hf_left_ms', said(pages['hf_list.3']))
point(left_of_a_hold() == (INT64_MAX, int(FOREVER)), 'the library answers that', left_of_a_hold())
sys.exit(end())
