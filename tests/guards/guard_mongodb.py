#!/usr/bin/env python3
"""What `holdfast guard mongodb` prints, and `holdfast enter`, on a server.

    tests/servers/mongodb /usr/bin/python3 tests/guards/guard_mongodb.py     (HOLDFAST: the command)

With Debian's own Python, which has its pymongo. What is printed is for mongosh; the commands in it
are JSON but for the words ID, TOKEN and UPDATE.
"""
import os
import re
import subprocess
import sys

import bson
import bson.json_util
import pymongo

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
from points import end, point  # noqa: E402

HOLDFAST = os.environ['HOLDFAST']
HOLDFAST_FAULTS = HOLDFAST.removesuffix('cli/holdfast') + 'tests/holdfast-faults'
STORE = os.environ['HOLDFAST_TEST_STORE']
DB = pymongo.MongoClient(STORE).get_default_database()


def holdfast(*arguments, **env):
    env = {**os.environ, 'HOLDFAST_STORE': STORE, **env}
    command = HOLDFAST_FAULTS if 'HOLDFAST_FAULT' in env else HOLDFAST
    done = subprocess.run([command, *arguments], env=env, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=1200)
    return done.returncode, done.stdout + done.stderr


def grant(key, *options):
    said = holdfast('acquire', key, '--lease', '100', *options)[1]
    return int(re.search(r"TOKEN='?(\d+)", said).group(1))


class Guard:
    def __init__(self, collection, field=None):
        options = ['--token-field', field] if field else []
        status, self.text = holdfast('guard', 'mongodb', collection, *options)
        assert status == 0, self.text
        self.calls = dict(re.findall(r'const (\w+) = .*?runCommand\((.*?)\);$', self.text,
                                     flags=re.M | re.S))

    def send(self, name, **words):
        """The command's reply; None: E11000."""
        text = self.calls[name]
        for word, what in words.items():
            text = re.sub(rf'(?<!")\b{word}\b(?!")',
                          lambda _, what=what: bson.json_util.dumps(what), text)
        try:
            return DB.command(bson.json_util.loads(text))
        except pymongo.errors.OperationFailure as error:
            if error.code != 11000:
                raise
            return None

    def enter(self, number, token):
        return self.send('holdfast_enter', ID=number, TOKEN=token)

    def write(self, number, token, update):
        return self.send('holdfast_write', ID=number, TOKEN=token, UPDATE=update)['n']


def a_life(collection, field, number):
    """Enters, writes, is overtaken; then the guard is removed and put up again."""
    what = f'{collection!r}, {field!r}, {number!r}'
    guard, rows, name = Guard(collection, field), DB[collection], field or 'holdfast_token'
    rows.insert_one({'_id': number, 'n': 1})
    rows.insert_one({'_id': 'another', 'n': 1})
    # An ID that was meant to be a condition is an ID.
    guard.send('holdfast_enter', ID={'$exists': True}, TOKEN=300)
    rows.delete_one({'_id': {'$eq': {'$exists': True}}})
    point(rows.count_documents({name: 300}) == 0 and guard.write({'$exists': True}, 100, {'$set': {
        'n': 9}}) == 0, f'{what}: an ID is no condition', list(rows.find()))
    first = guard.enter(number, 100)
    point(first and first['value']['n'] == 1, f'{what}: enters, and reads', first)
    point(guard.write(number, 100, {'$set': {'n': 2}}) == 1, f'{what}: writes')
    said = guard.send('holdfast_write', ID=number, TOKEN=100, UPDATE={'n': 9})
    point(said['n'] == 0 and rows.find_one({'_id': number})['n'] == 2,
          f'{what}: no replacement loses the token', said)
    point(guard.enter(number, 200)['value']['n'] == 2, f'{what}: another enters')
    point(guard.write(number, 100, {'$set': {'n': 9}}) == 0, f'{what}: the first writes no more')
    point(guard.enter(number, 100) is None, f'{what}: nor does it enter')
    point(rows.find_one({'_id': number}) == {'_id': number, 'n': 2, name: 200},
          f'{what}: the token is in the document', rows.find_one({'_id': number}))
    point(rows.find_one({'_id': 'another'}) == {'_id': 'another', 'n': 1},
          f'{what}: no other document is touched')
    point(Guard(collection, field).text == guard.text, f'{what}: printed again it is the same')
    for _ in range(2):    # as doc/guards.md says
        rows.update_many({}, {'$unset': {name: 1}})
    point(rows.find_one({'_id': number}) == {'_id': number, 'n': 2}, f'{what}: removed, twice')
    point(guard.write(number, 200, {'$set': {'n': 9}}) == 0 and guard.enter(number, 150)
          and guard.write(number, 150, {'$set': {'n': 3}}) == 1, f'{what}: and put up again')


def by_command():
    key, oid = "it's \"quoted\" \\ é $", bson.ObjectId()
    ids = [7, 2**40, 'A5', 'it\'s "quoted" \\ é $', oid, {'row': 1, 'seat': 'A'}, True]
    token = grant(key)
    for number in ids:
        said = bson.json_util.dumps(number)
        status, out = holdfast('enter', key, '--token', str(token), f'seats/{said}')
        row = DB.seats.find_one({'_id': number})
        point(status == 0 and row and row['holdfast_token'] == token, f'enter seats/{said}', out)
    n = DB.seats.count_documents({})
    for bad in ('', 'seats', 'seats/', '/7', 'seats/A5', 'seats/7}, "n": {"$gt": 0', 'seats/7 8',
                'seats/7, "$gt": 0', 'seats/{"$gt": 0}', 'seats/{"row": {"$gt": 0}', 'a$b/7',
                'x' * 200 + '/7'):
        status, said = holdfast('enter', key, '--token', str(token), bad)
        point(status == 64 and len(said.splitlines()) == 1
              and DB.seats.count_documents({}) == n, f'enter {bad[:40]!r} is refused',
              f'{status} {said}')
    status, said = holdfast('enter', key, '--token', str(token))
    point(status == 64 and 'COLLECTION/ID' in said, 'enter without a document is refused', said)
    for fault in ('enter:1:before', 'enter:1:after'):
        status, said = holdfast('enter', key, '--token', str(token), 'seats/7',
                                HOLDFAST_FAULT=fault)
        point(status == 0, f'enter, {fault}', said)
    # The printed guard looks at the same field.
    guard = Guard('seats')
    point(guard.write(7, token, {'$set': {'n': 1}}) == 1, 'entered by the command: writes')
    holdfast('break', key, '--token', str(token))
    later = grant(key)
    status, said = holdfast('enter', key, '--token', str(later), 'seats/7')
    point(status == 0 and guard.write(7, token, {'$set': {'n': 9}}) == 0,
          'and no more when the next one has entered', said)
    DB.seats.update_one({'_id': 7}, {'$set': {'holdfast_token': later + 1}})
    status, said = holdfast('enter', key, '--token', str(later), 'seats/7')
    point(status == 76 and 'later' in said, 'a token that is over doesn\'t enter', said)
    shared = grant('shared', '--shared')
    status, said = holdfast('enter', 'shared', '--token', str(shared), 'seats/8')
    point(status == 64 and not DB.seats.find_one({'_id': 8}), 'shared locks don\'t enter there',
          f'{status} {said}')


for row in (('seats', None, 42), ('x; drop table y', None, 'it\'s "quoted" \\ é $'),
            ('it\'s "quoted" \\ é/$hf'.replace('$', 'S'), 't"ok\\en é', bson.ObjectId())):
    a_life(*row)
by_command()
raise SystemExit(end())
