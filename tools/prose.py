"""How the project writes, as far as a machine can tell: the rule SUBJECT of tools/lint.

Prose is what people read: comments, literals that hold more than one word, pages, manuals, and
the first lines of patches. Identifiers in code are no prose.

    who     asks a question, direct ("who holds it?") or after a word of ASKING ("says who holds
            it"), or follows a noun for persons ("a user who"). Nothing else is called "who", and
            nothing "whoever": the subject of a sentence is a component with a name.
    one     no sentence after another begins with "One that" or "The one which": name the thing.

The rule COMMENT is of functions in C: the comment in front of one begins with what the function
does, and not with a result ("0: done"), with "It" or with "Of".

`tools/lint --prose` counts what breaks this, a line a folder, and names each place.
"""
import bisect
import collections
import io
import re
import tokenize

ASKING = set('ask asks asked asking decide decides find finds found forget forgets forgot know '
             'knows known knew knowing learn learns look looks matter matters out prove proves '
             'question record records remember remembers say says said saying see sees seen show '
             'shows shown tell tells told telling'.split())
PERSONS = set('administrator administrators author authors developer developers engineer engineers '
              'maintainer maintainers operator operators people person persons programmer '
              'programmers reader readers user users'.split())
# What joins two indirect questions: "says who holds, and who waits".
JOINING = {'and', 'or', ',', 'of', 'by'}
WHO = re.compile(r'(?<![\w.>])(?:who|whoever|whomever)\b(?![\'(\[.=]\S|")', flags=re.I)
ONE = re.compile(r'(?:^\W*|(?<=[.?!] ))(?:One|Ones|The one|The ones) (?:that|which|whose)\b')

# How no comment in front of a function begins, behind the name of the file that has the function.
HEADLESS = re.compile(r'(?:Of|It|Its|That|Then|So|(?:Is|Has|Does|Was) it)\b|'
                      r'(?:-?[01]|NULL)(?:[:,]| or )')
IN_FILE = re.compile(r'[\w.]+\.c[.:;]? ')
FUNCTION = re.compile(r'(?!if\b|else\b|enum\b)[A-Za-z_][\w *]*\(')
# What the comment of a mutex says.
DROPPED = re.compile(r'\bmutex(?: is|,) dropped')
CODE = ('core/', 'conform/', 'cli/', 'drivers/', 'include/', 'bindings/', 'examples/')

# Made by other programs, or no prose.
OTHERS = ('tests/fuzz/corpus/', 'bench/results/', 'doc/internals/map.md', 'LICENSE')
SLASHED = ('.c', '.h', '.hpp', '.cpp', '.js', '.mjs', '.cjs', '.ts', '.mts', '.cts', '.go',
           '.rules', '.proto', '.java', '.in')
WHOLE = ('.md', '.txt', '.1', '.3', '.5', '.7', '.tsv')
NO_PROSE = ('.json', '.csv', '.svg', '.png', '.sum', '.mod', '.lock')
LITERAL = r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|`(?:\\.|[^`\\])*`'


def blocks_slashed(text):
    """Comments, those of successive lines as one, and literals."""
    last = None
    for match in re.finditer(r'//[^\n]*|/\*.*?\*/|' + LITERAL, text, flags=re.S):
        found, start = match.group(0), match.start()
        if found[0] in '"\'`':
            if ' ' in found:
                yield start, found
            continue
        if last and found.startswith('//') and not text[last[0] + len(last[1]):start].strip(' \n'):
            last = (last[0], text[last[0]:match.end()])
            continue
        if last:
            yield last
        last = (start, found)
    if last:
        yield last


def blocks_python(text):
    starts = [0]
    for line in text.split('\n'):
        starts.append(starts[-1] + len(line) + 1)
    last = None
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            at = starts[token.start[0] - 1] + token.start[1]
            if token.type == tokenize.STRING and ' ' in token.string:
                yield at, re.sub(r'\{[^{}]*\}', lambda m: ' ' * len(m.group(0)), token.string)
            elif token.type == tokenize.COMMENT:
                if last and not text[last[0] + len(last[1]):at].strip():
                    last = (last[0], text[last[0]:at + len(token.string)])
                    continue
                if last:
                    yield last
                last = (at, token.string)
    except (tokenize.TokenError, IndentationError, SyntaxError):
        pass
    if last:
        yield last


def blocks_marked(text, mark):
    """Comments from a mark to the end of the line, those of successive lines as one."""
    last = None
    for match in re.finditer(rf'(?:^|(?<=\s)){mark}[^\n]*', text, flags=re.M):
        if last and not text[last[0] + len(last[1]):match.start()].strip():
            last = (last[0], text[last[0]:match.end()])
            continue
        if last:
            yield last
        last = (match.start(), match.group(0))
    if last:
        yield last


def blocks_page(path, text):
    if path.endswith('.md'):
        text = re.sub(r'^```.*?^```$|`[^`\n]*`', lambda m: re.sub(r'[^\n]', ' ', m.group(0)), text,
                      flags=re.M | re.S)
    text = re.sub(r'(?m)^#+ .*', lambda m: ' ' * len(m.group(0)), text)
    at = 0
    for part in re.split(r'(\n\s*\n|\n(?=[-|.] ?))', text):
        if part.strip():
            yield at, part
        at += len(part)


def blocks(path, text):
    """(offset, text) of what is prose in a file."""
    if path.endswith(NO_PROSE) or path.startswith(OTHERS):
        return []
    if path.endswith('.patch'):
        return [(0, re.split(r'^(?:---|diff) ', text, maxsplit=1, flags=re.M)[0])]
    if path.endswith(WHOLE):
        return blocks_page(path, text)
    if path.endswith(SLASHED):
        return blocks_slashed(text)
    if path.endswith(('.py', '.pyi')) or re.match(r'#![^\n]*python', text):
        return blocks_python(text)
    return blocks_marked(text, '--' if path.endswith(('.lua', '.sql')) else '#')


def flat(text):
    """A block as one line of the same length, without the marks of comments."""
    text = re.sub(r'(?m)^[ \t]*(?:/\*+|\*/?|//+|#+|--+|>)(?= |$)', lambda m: ' ' * len(m.group(0)),
                  text)
    return text.replace('\n', ' ')


def is_question(line, end):
    mark = re.search(r'[.?!;](?=[\s"\')]|$)', line[end:])
    return bool(mark) and mark.group(0) == '?'


def is_asked(line, at):
    """Whether the "who" at this place is an indirect question, or follows a noun for persons."""
    words = re.findall(r"[.:;?!](?=\s)|,|[\w']+", line[:at].lower())[-20:]
    before = words[-1] if words else ''
    if before in ASKING | PERSONS:
        return True
    ends = [n for n, word in enumerate(words) if word in ('.', ';', '?', '!')]
    clause = words[ends[-1] + 1 if ends else 0:]
    return before in JOINING and bool(ASKING & set(clause))


def breaches(path, text):
    """(line, what) of each sentence whose subject has no name."""
    starts = [match.start() for match in re.finditer('^', text, flags=re.M)]
    for offset, block in blocks(path, text):
        line = flat(block)
        found = [match.start() for match in WHO.finditer(line)
                 if match.group(0).lower() in ('whoever', 'whomever') or
                 not (is_asked(line, match.start()) or is_question(line, match.end()))]
        found += [match.start() for match in ONE.finditer(line)]
        for at in found:
            yield (bisect.bisect(starts, offset + at),
                   re.sub(r'\s+', ' ', line[max(at - 40, 0):at + 44]).strip())


def headless(path, text):
    """(line, what) of each comment that doesn't begin with what its function does."""
    if not path.startswith(CODE) or path[-2:] not in ('.c', '.h'):
        return
    for match in re.finditer(r'^/\*.*?\*/\n(?=(.*))', text, flags=re.M | re.S):
        said = IN_FILE.sub('', ' '.join(flat(match.group(0)).strip(' */').split()), count=1)
        if (FUNCTION.match(match.group(1).split('\n')[0]) and HEADLESS.match(said)
                or DROPPED.search(said)):
            yield text.count('\n', 0, match.start()) + 1, said[:60]


def count(files, read):
    """Prints each breach, and how many a folder has."""
    found = collections.Counter()
    for path in files:
        if path.endswith(NO_PROSE) or path.startswith(OTHERS):
            continue
        for line, what in breaches(path, read(path)):
            print(f'{path}:{line}: {what}')
            found[path.split('/')[0] if '/' in path else '.'] += 1
    for folder, number in sorted(found.items()):
        print(f'{number:5} {folder}')
