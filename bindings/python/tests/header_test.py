"""The package's codes, options and flags are those of include/holdfast.h.

    header_test.py HEADER TYPES NAMES
"""
import json
import re
import sys

import holdfast
from holdfast import _errors, _holdfast, _options
from tap import run

with open(sys.argv[1], encoding='utf-8') as file:
    HEADER = file.read()


def struct(name):
    """The fields of one of its structs."""
    text = re.search(rf'typedef struct {name} {{(.*?)^}} {name};', HEADER, flags=re.M | re.S)
    text = re.sub(r'/\*.*?\*/', '', text.group(1), flags=re.S)
    return [field for line in text.split(';') if line.strip()
            for field in re.findall(r'(\w+)(?:\[\w+\])?\s*(?:,|$)', line.strip())]


def the_codes():
    codes = re.findall(r'^ +X\((\w+), +(-?\d+), (\d+), "([^"]*)"', HEADER, flags=re.M)
    assert len(codes) > 10
    assert _holdfast.codes() == {name: (int(number), int(status), text)
                                 for name, number, status, text in codes}
    # Every code is a class; NOMEM is MemoryError, OK is none.
    assert set(_errors.BY_CODE) == {code[0] for code in codes} - {'OK', 'NOMEM'}
    for kind in _errors.BY_CODE.values():
        assert kind.__name__ in holdfast.__all__ and kind.__doc__, kind


def the_options():
    fields = struct('hf_options')
    flags = re.findall(r'^    (HF_\w+) = \d+,?$',
                       re.search(r'enum hf_flag {(.*?)};', HEADER, flags=re.S).group(1), flags=re.M)
    assert len(fields) > 8 and len(flags) > 4, (fields, flags)
    assert set(_holdfast.options().values()) == {
        *(set(fields) - {'size', 'flags'}), *flags, 'keep_ms'}
    for name, c_name in _holdfast.options().items():
        plain = re.sub(r'_ms$', '', c_name.lower().replace('hf_', '').replace('allow_', ''))
        assert name == plain or (name, plain) == ('shared', 'mode'), (name, c_name)
        assert re.search(rf'^    ({name}|owner, note) ', holdfast.__doc__, flags=re.M) or \
            name in ('keep', 'at_most_once', 'note'), name


def the_options_of_open():
    import inspect
    words = inspect.signature(holdfast.open).parameters
    assert ['url', *(name.replace('_ms', '').replace('flags', 'existing')
                     for name in struct('hf_open_options')[1:])] == list(words)


def what_is_shown():
    assert list(holdfast.Party._fields) == struct('hf_party_info')
    assert list(holdfast.Info._fields) == [
        field for field in struct('hf_info') if not field.startswith('n_') and field != 'parties'
    ] + ['holders', 'waiters']
    with holdfast.open('mem:') as store:
        assert set(store.stats()) == set(struct('hf_stats')) - {'size'}


def the_version():
    assert holdfast.__version__ == re.search(r'#define HF_VERSION "(.*)"', HEADER).group(1)


def each_function_has_a_name_here_or_a_reason_why_not():
    with open(sys.argv[3], encoding='utf-8') as file:
        names = json.load(file)
    names.pop('about')
    functions = re.findall(r'^HF_API [^;]*?\b(hf_\w+)\(', HEADER, flags=re.M)
    assert len(functions) > 30 and functions == list(names), set(functions) ^ set(names)
    for _, name in names.values():
        owner, _, member = name.rpartition('.')
        if ' ' in name or (owner, member) == ('HoldfastError', 'code'):
            continue
        assert hasattr(getattr(holdfast, owner) if owner else holdfast, member), name


def the_declared_types_are_those_of_the_module():
    with open(sys.argv[2], encoding='utf-8') as file:
        text = file.read()
    for name in ('Store', 'Lock', 'Locking', 'Wait', 'Mailbox', 'Watch'):
        of = re.search(rf'^class {name}:\n((?:    .*\n|\n)*)', text, flags=re.M).group(1)
        said = set(re.findall(r'def (\w+)\(', of)) - {'__new__', '__bool__'}
        there = {member for member in vars(getattr(_holdfast, name))
                 if not member.startswith('__') or
                 re.fullmatch('__a?(enter|exit)__', member)}
        assert said == there, said ^ there
    assert set(_options.OnceOptions.__annotations__) == set(_holdfast.options())
    assert set(_options.Options.__annotations__) == set(_holdfast.options()) - {
        'keep', 'at_most_once'}


if __name__ == '__main__':
    sys.exit(run([(one.__name__.replace('_', ' '), one) for one in (
        the_codes, the_options, the_options_of_open, what_is_shown, the_version,
        each_function_has_a_name_here_or_a_reason_why_not,
        the_declared_types_are_those_of_the_module)]))
