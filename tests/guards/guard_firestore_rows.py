"""The table of guard_firestore.py: the documents, the user, the change, and whether it is allowed.

It is made for the time of day at which it is imported.
"""
import time

SECOND = 1000000
NOW = int(time.time() * SECOND)
OLD = NOW - 100 * SECOND     # the token that is there
FRESH = NOW                  # of a new grant


def lock(owner='', ends=0, token=OLD, rev=None, **more):
    row = {'key': 'doc', 'format': 2, 'rev': rev or token, 'token': token, 'owner': owner,
           'expires_us': ends, 'acquired_us': token if owner else 0,
           'lease_ms': 30000 if owner else 0, 'request': 'ab' * 16 if owner else '', 'note': ''}
    row.update(more)
    return row


def marked(who, **more):
    return {'done_us': NOW, 'keep_until_us': LIVE, 'by': who, 'result': '', **more}


LIVE, PAST = NOW + 200 * SECOND, NOW - SECOND
FREE = lock(rev=OLD + 5)
ALICES, BOBS = lock('alice', LIVE), lock('bob', LIVE)
WAS_ALICES, WAS_BOBS = lock('alice', PAST), lock('bob', PAST)
ENDED = {'owner': '(ended)', 'more': {'flags': 4, 'owner': 'alice'}}
ENDING, WAS_ENDING = ({**lock('alice', ends), **ENDED} for ends in (LIVE, PAST))
SHARED = {'mode': 2, 'limit': 2, 'holders': [
    {'request': 'ef' * 16, 'owner': 'bob', 'note': '', 'token': OLD - 3, 'expires_us': LIVE,
     'mode': 2, 'limit': 2}]}
SEVERAL = {**ALICES, 'more': SHARED}
LINE = [{'request': 'cd' * 16, 'owner': 'carol', 'note': ''}]


def grant(who, **more):
    return lock(who, **{'ends': NOW + 60 * SECOND, 'token': FRESH, **more})


def fresh(who, **more):
    return grant(who, **{'token': int(time.time() * SECOND), **more})


def changed(row, **more):
    return {**row, 'rev': row['rev'] + 1, **more}


def freed(row, **more):
    row = {k: v for k, v in row.items() if k != 'more'}
    return changed(row, **{'owner': '', 'expires_us': 0, **more})


# What it is about; the lock as it is (None: none); the user; the lock as it shall be (None: gone).
LOCKS = [
    ('absent: create for oneself', None, 'alice', grant('alice'), True),
    ('absent: create for another', None, 'alice', grant('bob'), False),
    ('absent: create as nobody', None, None, grant('alice'), False),
    ('absent: create as nobody for nobody', None, None, grant(''), False),
    ('absent: create it free', None, 'alice', lock(token=FRESH), False),
    ('absent: create with a token of the past', None, 'alice', grant('alice', token=17), False),
    ('absent: create with a token of an hour ago', None, 'alice',
     grant('alice', token=NOW - 3600 * SECOND), False),
    ('absent: create with a token of the future', None, 'alice',
     grant('alice', token=NOW + 3600 * SECOND), False),
    ('absent: create with a lease that is too long', None, 'alice',
     grant('alice', ends=NOW + 500 * SECOND), False),
    ('absent: create with the longest lease', None, 'alice',
     grant('alice', ends=NOW + 299 * SECOND), True),
    ('absent: create without an end', None, 'alice', grant('alice', ends=0), False),
    ('absent: create with another token than rev', None, 'alice',
     grant('alice', more={'token': FRESH - 1}), False),
    ('absent: create the lock of another key', None, 'alice', grant('alice', key='other'), False),
    ('absent: create with further holders', None, 'alice',
     grant('alice', more=SHARED), False),
    ('absent: create with a line', None, 'alice', grant('alice', queue=LINE), False),
    ('absent: create with a field of one\'s own', None, 'alice', grant('alice', mine=1), False),
    ('absent: create in another format', None, 'alice', grant('alice', format=1), False),
    ('absent: create shared', None, 'alice', grant('alice', more={'mode': 1}), False),
    ('absent: create with a number that is a text', None, 'alice', grant('alice', rev='1'), False),
    ('absent: create with an empty queue', None, 'alice', grant('alice', queue=[]), False),
    ('absent: create with nothing more', None, 'alice', grant('alice', more={}), True),
    ('absent: create with a flag', None, 'alice', grant('alice', more={'flags': 2}), False),
    ('absent: create by the name of nobody', None, '(ended)', grant('(ended)'), False),
    ('absent: create it as if it had been another\'s', None, 'bob',
     {**grant('bob'), **ENDED}, False),
    ('absent: create it as if it had been one\'s own', None, 'alice',
     {**grant('alice'), **ENDED}, False),
    ('absent: create with a long note', None, 'alice', grant('alice', note='x' * 256), False),
    ('absent: create with another\'s mark', None, 'alice',
     grant('alice', done=marked('bob')), False),
    ('absent: create with one\'s own mark (at most once)', None, 'alice',
     grant('alice', done=marked('alice')), True),

    ('free: take', FREE, 'bob', grant('bob'), True),
    ('free: take for another', FREE, 'bob', grant('alice'), False),
    ('free: take as nobody', FREE, None, grant('bob'), False),
    ('free: take with the old token', FREE, 'bob',
     changed(FREE, owner='bob', expires_us=LIVE, request='ab' * 16), False),
    ('free: take with a lower token', FREE, 'bob', grant('bob', token=OLD - 1), False),
    ('free: take with a lower token and a higher rev', FREE, 'bob',
     grant('bob', token=OLD - 1, rev=FRESH), False),
    ('free: take with a token of the future', FREE, 'bob',
     grant('bob', token=NOW + 3600 * SECOND), False),
    ('free: take for too long', FREE, 'bob', grant('bob', ends=NOW + 500 * SECOND), False),
    ('free: take under another key', FREE, 'bob', grant('bob', key='other'), False),
    ('free: take and jump the line', changed(FREE, queue=LINE), 'bob', grant('bob'), False),
    ('free: take and keep the line', changed(FREE, queue=LINE), 'bob', grant('bob', queue=LINE),
     False),
    ('free: take what several held', changed(FREE, more=SHARED), 'bob', grant('bob'), False),
    ('free, of another format: take', {**FREE, 'format': 1}, 'bob', grant('bob'), False),
    ('free: move rev', FREE, 'bob', changed(FREE), True),
    ('free: move rev back', FREE, 'bob', {**FREE, 'rev': OLD + 4}, False),
    ('free: move the token back', FREE, 'bob', changed(FREE, token=OLD - 1), False),
    ('free: move the token on', FREE, 'bob', changed(FREE, token=OLD + 6), False),
    ('free: mark it done', FREE, 'bob', changed(FREE, done=marked('bob')), False),
    ('free: delete', FREE, 'bob', None, False),
    ('free, far in the future: take by the next rev', lock(rev=NOW + 9000 * SECOND), 'bob',
     grant('bob', token=NOW + 9000 * SECOND + 1), True),

    ('held by oneself: renew', ALICES, 'alice', changed(ALICES, expires_us=NOW + 250 * SECOND),
     True),
    ('held by oneself: renew for too long', ALICES, 'alice',
     changed(ALICES, expires_us=NOW + 500 * SECOND), False),
    ('held by oneself: renew without an end', ALICES, 'alice', changed(ALICES, expires_us=0),
     False),
    ('held by oneself: renew with the old rev', ALICES, 'alice', {**ALICES, 'expires_us': LIVE + 1},
     False),
    ('held by oneself: renew with a lower token', ALICES, 'alice',
     changed(ALICES, token=OLD - 1), False),
    ('held by oneself: renew with a higher token', ALICES, 'alice',
     changed(ALICES, token=OLD + 1), False),
    ('held by oneself: take again', ALICES, 'alice', grant('alice'), False),
    ('held by oneself: pass on', ALICES, 'alice', changed(ALICES, owner='bob'), False),
    ('held by oneself: release', ALICES, 'alice', freed(ALICES), True),
    ('held by oneself: release, kept taken for a while', ALICES, 'alice',
     changed(ALICES, **ENDED, request='ff' * 16, expires_us=NOW + 5 * SECOND), True),
    ('held by oneself: release, kept taken for another', ALICES, 'alice',
     changed(ALICES, owner='(ended)', more={'flags': 4, 'owner': 'bob'}), False),
    ('held by oneself: release, kept taken without a name', ALICES, 'alice',
     changed(ALICES, owner='(ended)'), False),
    ('held by oneself: release, kept taken for too long', ALICES, 'alice',
     changed(ALICES, **ENDED, expires_us=NOW + 500 * SECOND), False),
    ('held by oneself: release, kept taken in one\'s own name', ALICES, 'alice',
     changed(ALICES, more={'flags': 4}), False),
    ('held by oneself: release with a lower token', ALICES, 'alice', freed(ALICES, token=OLD - 1),
     False),
    ('held by oneself: release and forget the token', ALICES, 'alice', freed(ALICES, token=0),
     False),
    ('held by oneself: release and mark', ALICES, 'alice',
     freed(ALICES, done=marked('alice', result='sent')), True),
    ('held by oneself: release and mark for another', ALICES, 'alice',
     freed(ALICES, done=marked('bob')), False),
    ('held by oneself: release past the line', changed(ALICES, queue=LINE), 'alice',
     freed(changed(ALICES, queue=LINE)), False),
    ('held by oneself: delete', ALICES, 'alice', None, False),
    ('held by oneself: renew as nobody', ALICES, None, changed(ALICES, expires_us=LIVE), False),
    ('ended by oneself: renew', ENDING, 'alice', changed(ENDING), False),
    ('ended by oneself: renew as if it weren\'t', ENDING, 'alice', changed(ENDING, owner='alice',
                                                                           more={}), False),
    ('ended by oneself: release', ENDING, 'alice', freed(ENDING), False),
    ('ended by another: take', ENDING, 'bob', grant('bob'), False),
    ('ended by another: renew by the name of nobody', ENDING, '(ended)', changed(ENDING), False),
    ('ended by another, and over: take', WAS_ENDING, 'bob', grant('bob'), True),
    ('ended by another, and over: tidy up', WAS_ENDING, 'bob', freed(WAS_ENDING), True),
    ('held by another: end it', ALICES, 'bob', changed(ALICES, **ENDED), False),
    ('held by another: end it in one\'s own name', ALICES, 'bob',
     changed(ALICES, owner='(ended)', more={'flags': 4, 'owner': 'bob'}), False),
    ('expired, but others hold: take', {**WAS_ALICES, 'more': SHARED}, 'bob', grant('bob'), False),
    ('expired, shared with nobody: take', {**WAS_ALICES, 'more': {'mode': 1}}, 'bob', grant('bob'),
     True),
    ('expired, with something unknown: take', {**WAS_ALICES, 'more': {'x': 1}}, 'bob',
     grant('bob'), False),
    ('expired, with a flag: take', {**WAS_ALICES, 'more': {'flags': 2}}, 'bob', grant('bob'), True),

    ('held by another: steal', ALICES, 'bob', grant('bob'), False),
    ('held by another: steal by a backdated write', ALICES, 'bob', grant('bob', token=OLD - 1),
     False),
    ('held by another: take its name', ALICES, 'bob', changed(ALICES, owner='bob'), False),
    ('held by another: renew', ALICES, 'bob', changed(ALICES, expires_us=LIVE + 1), False),
    ('held by another: shorten', ALICES, 'bob', changed(ALICES, expires_us=PAST), False),
    ('held by another: release', ALICES, 'bob', freed(ALICES), False),
    ('held by another: move rev', ALICES, 'bob', changed(ALICES), False),
    ('held by another: stand in line', ALICES, 'bob', changed(ALICES, queue=LINE), False),
    ('held by another: delete', ALICES, 'bob', None, False),
    ('held by another without an end: steal', {**ALICES, 'expires_us': 0}, 'bob', grant('bob'),
     False),

    ('expired: take', WAS_ALICES, 'bob', grant('bob'), True),
    ('expired: take for another', WAS_ALICES, 'bob', grant('carol'), False),
    ('expired: take with a lower token', WAS_ALICES, 'bob', grant('bob', token=OLD - 1), False),
    ('expired: tidy up', WAS_ALICES, 'bob', freed(WAS_ALICES), True),
    ('expired: renew', WAS_ALICES, 'alice', changed(WAS_ALICES, expires_us=LIVE), False),
    ('expired: take once more', WAS_ALICES, 'alice', grant('alice'), True),
    ('expired: mark', WAS_ALICES, 'alice', freed(WAS_ALICES, done=marked('alice')), False),
    ('expired: delete', WAS_ALICES, 'bob', None, False),
    ('expired: take as nobody', WAS_ALICES, None, grant('bob'), False),
    ('absent: create with an older grant', None, 'alice',
     grant('alice', token=FRESH - 1, rev=FRESH), False),
    ('absent: create it ended', None, 'alice', grant('alice', more={'flags': 4}), False),
    ('absent: create with a request that is none', None, 'alice',
     grant('alice', request='x'), False),
    ('held by oneself: renew with a field of one\'s own', ALICES, 'alice', changed(ALICES, mine=1),
     False),
    ('held by oneself: renew and remove the line', changed(ALICES, queue=LINE), 'alice',
     changed(changed(ALICES), expires_us=LIVE + 1), False),
    ('held by oneself: renew and keep the line', changed(ALICES, queue=LINE), 'alice',
     changed(changed(ALICES), queue=LINE), True),
    ('absent: create as somebody with a long name', None, 'x' * 128, grant('x' * 128), False),
    ('free: take and mark for another', FREE, 'bob', grant('bob', done=marked('alice')), False),
    ('free: take and mark (at most once)', FREE, 'bob',
     grant('bob', done=marked('bob')), True),
    ('free, marked: take, the mark with a number of another kind',
     {**FREE, 'done': marked('alice', keep_until_us=2**63 - 1)}, 'bob',
     grant('bob', done=marked('alice', keep_until_us=2.0**63)), False),
    ('held by oneself: release by halves', ALICES, 'alice', freed(ALICES, more={'flags': 2}),
     False),
    ('held by oneself: release with an end', ALICES, 'alice', freed(ALICES, expires_us=LIVE),
     False),
    ('held by oneself: renew as another request', ALICES, 'alice',
     changed(ALICES, request='cd' * 16), False),
    ('expired: tidy up past the line', changed(WAS_ALICES, queue=LINE), 'bob',
     freed(changed(WAS_ALICES, queue=LINE)), False),
    ('no lock at all: take', {'title': 'x'}, 'bob', grant('bob'), False),
]

# Fields of another kind, or out of range, or missing, in a renewal that is fine otherwise.
ODD = [(name, '1') for name, v in ALICES.items() if isinstance(v, int)]
ODD += [(name, 1) for name, v in ALICES.items() if isinstance(v, str)]
ODD += [('lease_ms', -1), ('lease_ms', 86400001), ('note', 'x' * 256), ('request', 'AB' * 16),
        ('request', 'ab' * 15), ('rev', -1), ('rev', 2**53), ('acquired_us', OLD + 1),
        ('owner', ''), ('queue', []), ('queue', [1]), ('queue', LINE),
        ('done', marked('alice')), ('done', {}), ('done', 'x')]
ODD += [('more', odd) for odd in (
    1, 'x', [], {'flags': 1}, {'flags': 2}, {'flags': 4}, {'flags': 8}, {'mode': 1}, SHARED,
    {'limit': 2}, {'token': OLD}, {'claim_ms': 1}, {'session': 1}, {'holders': []},
    {'owner': 'alice'}, {'flags': 2, 'mode': 0}, {'mine': 1})]
LOCKS += [(f'held by oneself: renew without {name}', ALICES, 'alice',
           {k: v for k, v in changed(ALICES).items() if k != name}, False) for name in ALICES]
LOCKS += [(f'absent: create without {name}', None, 'alice',
           {k: v for k, v in grant('alice').items() if k != name}, False) for name in ALICES]
LOCKS += [(f'held by oneself: renew with {name} = {str(odd)[:20]}', ALICES, 'alice',
           changed(ALICES, **{name: odd}), False) for name, odd in ODD]
LOCKS += [(f'held by oneself: mark with {name} = {str(odd)[:20]}', ALICES, 'alice',
           freed(ALICES, done=marked('alice', **{name: odd})), False)
          for name, odd in (('result', 'x' * 256), ('result', 'a\0'), ('result', 1), ('by', 1),
                            ('keep_until_us', -1), ('keep_until_us', 2.0**63),
                            ('done_us', 0), ('done_us', NOW + 3600 * SECOND), ('done_us', -5),
                            ('done_us', float(NOW)), ('mine', 1))]
LOCKS += [(f'held by oneself: mark without {name}', ALICES, 'alice',
           freed(ALICES, done={k: v for k, v in marked('alice').items() if k != name}), False)
          for name in marked('alice')]
# What a driver couldn't read would take the key from everybody: longer in bytes than in characters,
# a NUL, numbers of another kind.
LOCKS += [(f'absent: create with {name} = {str(odd)[:20]!r}', None, 'alice',
           grant('alice', **{name: odd}), False)
          for name, odd in [('note', 'é' * 128), ('note', 'a\0b'), ('request', 'ab' * 16 + '\0'),
                            ('done', marked('bob')), ('done', marked('alice', result='a\0')),
                            ('acquired_us', NOW + 3600 * SECOND), ('acquired_us', -1),
                            ('expires_us', 2**62), ('expires_us', -LIVE)] +
          [(name, float(v)) for name, v in grant('alice').items() if isinstance(v, int)]]
LOCKS += [
    ('absent: create with a note of 255 bytes', None, 'alice',
     grant('alice', note='é' * 127 + 'x'), True),
    ('absent: create as somebody with a name of many bytes', None, 'é' * 64, grant('é' * 64),
     False),
    ('absent: create as somebody with a name of 127 bytes', None, 'é' * 63 + 'x',
     grant('é' * 63 + 'x'), True),
    ('absent: create with another\'s name in other letters', None, 'Alice', grant('alice'), False),
    ('free: tidy up with a note that is too long in bytes', FREE, 'bob',
     changed(FREE, note='é' * 128), False),
    ('free: tidy up with a request that is none', FREE, 'bob', changed(FREE, request='x' * 33),
     False),
    ('free: take with a request that is none', FREE, 'bob', grant('bob', request='x'), False),
    ('free: take as one of several', FREE, 'bob', grant('bob', more={'mode': 2, 'limit': 2}),
     False),
    ('free: take as ended', FREE, 'bob', grant('bob', more={'flags': 4}), False),
    ('free: take as handed over', FREE, 'bob', grant('bob', more={'flags': 1}), False),
    ('free: take with a field of one\'s own', FREE, 'bob', grant('bob', mine=1), False),
    ('free, with a field of somebody\'s: take and keep it', {**FREE, 'theirs': 'x'}, 'bob',
     {**grant('bob'), 'theirs': 'x'}, True),
    ('free, with a field of somebody\'s: take and drop it', {**FREE, 'theirs': 'x'}, 'bob',
     grant('bob'), False),
]

# Marks: an event that another has done stays done.
DONE = {'done_us': OLD, 'keep_until_us': LIVE, 'by': 'alice', 'result': 'sent'}
FORGED = {'done': {'done_us': NOW, 'keep_until_us': LIVE, 'by': 'bob', 'result': 'forged'}}


def unmarked(row, **more):
    return {**{k: v for k, v in row.items() if k != 'done'}, **more}


for how, done, ends in (('for a while', DONE, False),
                        ('for ever', {**DONE, 'keep_until_us': 2**63 - 1}, False),
                        ('until a while ago', {**DONE, 'keep_until_us': PAST}, True),
                        ('by himself', {**DONE, 'by': 'bob'}, True)):
    free_row, held_row = {**FREE, 'done': done}, {**BOBS, 'done': done}
    LOCKS += [
        (f'free, done {how}: take and mark it anew', free_row, 'bob', grant('bob', **FORGED), ends),
        (f'free, done {how}: take and keep the mark', free_row, 'bob', grant('bob', done=done),
         True),
        (f'free, done {how}: take and unmark', free_row, 'bob', grant('bob'), False),
        (f'free, done {how}: unmark', free_row, 'bob', unmarked(changed(free_row)), False),
        (f'free, done {how}: empty the mark', free_row, 'bob', changed(free_row, done={}), False),
        (f'held by oneself, done {how}: release and mark it anew', held_row, 'bob',
         freed(held_row, **FORGED), ends),
        (f'held by oneself, done {how}: renew and mark it anew', held_row, 'bob',
         changed(held_row, **FORGED), False),
        (f'held by oneself, done {how}: release and unmark', held_row, 'bob',
         unmarked(freed(held_row)), False),
    ]

# Only service accounts stand in a line there. Nobody else touches it, not to leave it either; and a
# lock with a line isn't theirs to take.
BOB_WAITS = [{'request': 'ef' * 16, 'owner': 'bob', 'note': ''}]
for how, row in (('held by another', ALICES), ('expired', WAS_ALICES), ('free', FREE)):
    lined = {**row, 'queue': LINE + BOB_WAITS}
    LOCKS += [
        (f'{how}, in line: give up', lined, 'bob', changed(lined, queue=LINE), False),
        (f'{how}, in line: be first', lined, 'bob', changed(lined, queue=BOB_WAITS + LINE), False),
        (f'{how}, in line: send the others away', lined, 'bob', changed(lined, queue=BOB_WAITS),
         False),
        (f'{how}, in line: send all away', lined, 'bob', changed(lined, queue=[]), False),
        (f'{how}, in line: in the name of another', lined, 'bob',
         changed(lined, queue=LINE + BOB_WAITS + LINE), False),
        (f'{how}, in line: take it', lined, 'bob', grant('bob', queue=LINE), False),
        (f'{how}, in line: send all away as nobody', lined, None, changed(lined, queue=[]), False),
        (f'{how}: stand in line', row, 'bob', changed(row, queue=BOB_WAITS), False),
    ]

# A lock with several holders.
LOCKS += [
    ('held with others: renew', SEVERAL, 'alice', changed(SEVERAL, expires_us=LIVE + 1), False),
    ('held with others: let go for all', SEVERAL, 'bob', freed(SEVERAL), False),
    ('held with others: let go for all, by one of them', SEVERAL, 'alice', freed(SEVERAL), False),
    ('held with others: throw them out', SEVERAL, 'alice', changed(ALICES), False),
    ('held with others: join', {**ALICES, 'more': {'mode': 2, 'limit': 2}}, 'bob',
     changed(SEVERAL), False),
]

# A lock that somebody with more rights made so that users can't handle it.
LOCKS += [(f'expired, {name} = {odd}: take', {**WAS_ALICES, name: odd}, 'bob', grant('bob'), False)
          for name, odd in (('format', 1), ('format', 3), ('more', {'holders': [1]}),
                            ('queue', []))]

# A new lock's token has to be of the present: they come first, however long the rest takes.
LOCKS.sort(key=lambda row: row[1] is not None or not row[4])

# The lock; the guarded document as it is; the user; the document as it shall be (None: deleted).
BY_OLD, BY_NEW = {'n': 1, 'token': OLD - 9}, {'n': 2, 'token': OLD}
DATAS = [
    ('no lock: create', None, None, 'alice', BY_NEW, False),
    ('no lock: create as nobody', None, None, None, BY_NEW, False),
    ('free: create', FREE, None, 'alice', BY_NEW, False),
    ('free: update', FREE, BY_OLD, 'alice', BY_NEW, False),
    ('free: delete', FREE, BY_NEW, 'alice', None, False),
    ('held: create', ALICES, None, 'alice', BY_NEW, True),
    ('held: update', ALICES, BY_OLD, 'alice', BY_NEW, True),
    ('held: update again', ALICES, BY_NEW, 'alice', {'n': 3, 'token': OLD}, True),
    ('held: delete what one has written', ALICES, BY_NEW, 'alice', None, True),
    ('held: delete what an earlier one has written', ALICES, BY_OLD, 'alice', None, False),
    ('held: update without a token', ALICES, BY_OLD, 'alice', {'n': 3}, False),
    ('held: update with a lower token', ALICES, BY_OLD, 'alice', {'n': 3, 'token': OLD - 1}, False),
    ('held: update with a higher token', ALICES, BY_OLD, 'alice', {'n': 3, 'token': OLD + 1},
     False),
    ('held: update with the token that was there', ALICES, BY_OLD, 'alice',
     {'n': 3, 'token': OLD - 9}, False),
    ('held by another: create', BOBS, None, 'alice', BY_NEW, False),
    ('held by another: update', BOBS, BY_OLD, 'alice', BY_NEW, False),
    ('held by another: delete', BOBS, BY_NEW, 'alice', None, False),
    ('held by another: update as nobody', BOBS, BY_OLD, None, BY_NEW, False),
    ('expired: create', WAS_ALICES, None, 'alice', BY_NEW, False),
    ('expired: update', WAS_ALICES, BY_OLD, 'alice', BY_NEW, False),
    ('expired: delete', WAS_ALICES, BY_NEW, 'alice', None, False),
    ('expired, another\'s: update', WAS_BOBS, BY_OLD, 'alice', BY_NEW, False),
    ('ended: update', ENDING, BY_OLD, 'alice', BY_NEW, False),
    ('ended: update by the name of nobody', ENDING, BY_OLD, '(ended)', BY_NEW, False),
    ('held, with a flag: update', {**ALICES, 'more': {'flags': 2}}, BY_OLD, 'alice', BY_NEW,
     False),
    ('held, with something unknown: update', {**ALICES, 'more': {'x': 1}}, BY_OLD, 'alice', BY_NEW,
     False),
    ('held, of another format: update', {**ALICES, 'format': 1}, BY_OLD, 'alice', BY_NEW, False),
    ('held by several: update', SEVERAL, BY_OLD, 'alice', BY_NEW, False),
    ('held by several, as another of them: update', SEVERAL, BY_OLD, 'bob',
     {'n': 2, 'token': OLD - 3}, False),
    ('held shared: update', {**ALICES, 'more': {'mode': 1}}, BY_OLD, 'alice', BY_NEW, False),
    ('handed over, not taken up yet: update', {**ALICES, 'more': {'flags': 1}}, BY_OLD,
     'alice', BY_NEW, False),
    ('held, with a line: update', {**ALICES, 'queue': LINE}, BY_OLD, 'alice', BY_NEW, True),
    ('held: update with the token as a text', ALICES, BY_OLD, 'alice', {'n': 2, 'token': str(OLD)},
     False),
    ('held: create as somebody else', ALICES, None, 'Alice', BY_NEW, False),
    ('held without an end (not by these rules): update', {**ALICES, 'expires_us': 0}, BY_OLD,
     'alice', BY_NEW, False),
]
