"""Every combination of a lock, a user, and what the user does, for guard_firestore.py: on the lock,
and on the document that it guards. What is allowed is named; all else is refused.
"""
from guard_firestore_rows import (
    ALICES, BY_NEW, BY_OLD, FREE, FRESH, LIVE, NOW, OLD, SECOND, WAS_ALICES, changed, fresh, grant)

STATES = {'absent': None, 'free': FREE, 'held by alice': ALICES, 'expired, alice\'s': WAS_ALICES}
USERS = ('alice', 'bob', None)


def own(row, who, **more):
    """The row as it is, but held by this one."""
    return changed(row, **{'owner': who, 'expires_us': LIVE + 5, 'lease_ms': 30000,
                           'request': 'ab' * 16, **more})


# What becomes of the lock; None: it is deleted. The user is alice if nobody is signed in.
ON_LOCKS = {
    'create': lambda row, who: grant(who) if row else fresh(who),
    'update': lambda row, who: changed(row, note='seen'),
    'delete': lambda row, who: None,
    'renew': lambda row, who: own(row, row['owner'] or who),
    'steal': own,
    'backdate': lambda row, who: grant(who, token=OLD - 1),
    'future lease': lambda row, who: {**(grant(who) if row else fresh(who)),
                                      'expires_us': NOW + 900 * SECOND},
    'foreign owner': lambda row, who: grant('carol') if row else fresh('carol'),
    'lower token': lambda row, who: grant(who, token=OLD - 1, rev=FRESH),
}
ALLOWED_ON_LOCKS = {
    'create': {('absent', 'alice'), ('absent', 'bob'), ('free', 'alice'), ('free', 'bob'),
               ('expired, alice\'s', 'alice'), ('expired, alice\'s', 'bob')},
    'update': {('held by alice', 'alice'), ('free', 'alice'), ('free', 'bob')},
    'renew': {('held by alice', 'alice')},
    'steal': {('held by alice', 'alice')},    # of oneself, it is to renew
}

# The document as it was, and as it shall be.
ON_DATA = {
    'create': (None, BY_NEW), 'update': (BY_OLD, BY_NEW), 'delete': (BY_NEW, None),
    'renew (write again)': (BY_NEW, {'n': 3, 'token': OLD}),
    'steal (by no token)': (BY_OLD, {'n': 3}),
    'backdate': (BY_OLD, {'n': 3, 'token': 17}),
    'future token': (BY_OLD, {'n': 3, 'token': NOW + 900 * SECOND}),
    'foreign owner\'s token': (BY_OLD, {'n': 3, 'token': FRESH}),
    'lower token': (BY_NEW, {'n': 3, 'token': OLD - 1}),
    'delete what is of a lower token': (BY_OLD, None),
}
ALLOWED_ON_DATA = ('create', 'update', 'delete', 'renew (write again)')


def locks():
    """What it is about, the lock as it is, the user, the lock to be, and if that is allowed."""
    for state, row in STATES.items():
        for action, make in ON_LOCKS.items():
            if row is None and action in ('update', 'renew', 'steal'):
                continue    # of nothing
            for user in USERS:
                want = (state, user) in ALLOWED_ON_LOCKS.get(action, ())
                yield f'{state}: {action}', row, user, make(row, user or 'alice'), want


def data():
    """The same, with the document as it is behind the lock."""
    for state, row in STATES.items():
        for action, (old, new) in ON_DATA.items():
            for user in USERS:
                want = state == 'held by alice' and user == 'alice' and action in ALLOWED_ON_DATA
                yield f'{state}: {action}', row, old, user, new, want


# Which document is the lock of which key.
NAMES = [
    ('a/b%c', 'a%2Fb%25c', True), ('other', 'a%2Fb%25c', False), ('..', '%2E.', True),
    ('.', '%2E', True), ('..', '%2E', False), ('.', '%2E.', False), ('doc', '%2E', False),
    ('doc', '%2Edoc', False), ('__a__', '%5F_a__', True), ('__b__', '%5F_a__', False),
    ('____', '%5F___', True), ('__a/%__', '%5F_a%2F%25__', True), ('doc', '%5F_a__', False),
    ('__a', '%5F_a', False), ('__a', '__a', True), ('_', '%5F', False), ('a', '%~a', False),
    ('a%2Fb', 'a%2Fb', False), ('other', 'doc', False), ('é"\'\\ {$x}', 'é"\'\\ {$x}', True),
    ('a\nb', 'a\nb', False), ('a\x7fb', 'a\x7fb', False), ('a\x9fb', 'a\x9fb', False),
    ('', 'doc', False), ('é' * 256, 'é' * 256, True), ('é' * 257, 'é' * 257, False),
    ('x' * 512, 'x' * 512, True), ('x' * 513, 'x' * 513, False), ('x' * 513, '%5F', False)]
