"""Firestore over REST, as much as the examples' own data needs: with the standard library only.

It knows nothing of locks; those are Holdfast's, in the same database.
"""
import http.client
import json
import os
import time
import urllib.parse

LIMIT = 600     # seconds that one request may take
AGAIN = (409, 429, 503)     # contention, too much, not now: to be asked again, as the SDKs do
PAUSES_S = (0.3, 0.6, 1.2, 2.4)
# Of a lock's document what the examples look at, as it is before anybody took it.
UNUSED_LOCK = {'owner': '', 'token': 0, 'expires_us': 0}


class Refused(Exception):
    """Firestore's answer wasn't a success; the text says which."""


def to_value(value):
    if isinstance(value, bool):
        return {'booleanValue': value}
    if isinstance(value, int):
        return {'integerValue': str(value)}
    if isinstance(value, float):
        return {'doubleValue': value}
    if isinstance(value, list):
        return {'arrayValue': {'values': [to_value(item) for item in value]}}
    return {'stringValue': value}


def from_value(value):
    (kind, content), = value.items()
    if kind == 'integerValue':
        return int(content)
    if kind == 'arrayValue':
        return [from_value(item) for item in content.get('values', [])]
    if kind == 'mapValue':
        return from_fields(content)
    return content


def from_fields(document):
    return {name: from_value(value) for name, value in document.get('fields', {}).items()}


class Database:
    """The database of a URL such as Holdfast takes: firestore://PROJECT[/DATABASE].

    FIRESTORE_EMULATOR_HOST and FIRESTORE_ID_TOKEN_FILE mean what they mean to Holdfast; the file
    may hold an access token as well.
    """

    def __init__(self, url):
        parts = urllib.parse.urlsplit(url)
        name = parts.path.strip('/') or '(default)'
        self.root = f'projects/{parts.netloc}/databases/{name}/documents'
        emulator = os.environ.get('FIRESTORE_EMULATOR_HOST')
        if emulator:
            self.http = http.client.HTTPConnection(emulator, timeout=LIMIT)
        else:
            self.http = http.client.HTTPSConnection('firestore.googleapis.com', timeout=LIMIT)

    def token(self):
        path = os.environ.get('FIRESTORE_ID_TOKEN_FILE')
        if path:
            with open(path, encoding='ascii') as file:
                return file.read().strip()
        return 'owner'      # an emulator's administrator

    def ask(self, method, path, more='', body=None):
        """The answer to a request of the documents below a path, '' for all."""
        for pause_s in PAUSES_S:
            self.http.request(method, '/v1/' + urllib.parse.quote(self.root + path) + more,
                              body and json.dumps(body).encode(),
                              {'Authorization': f'Bearer {self.token()}',
                               'Content-Type': 'application/json'})
            reply = self.http.getresponse()
            text = reply.read()
            if reply.status not in AGAIN:
                break
            time.sleep(pause_s)
        if reply.status != 200:
            raise Refused(f'{method} {path}{more}: {reply.status} {text[:200]!r}')
        return json.loads(text)

    def get(self, path):
        """The fields of a document, or None."""
        answer, = self.ask('POST', '', ':batchGet', {'documents': [f'{self.root}/{path}']})
        return from_fields(answer['found']) if 'found' in answer else None

    def commit(self, writes):
        self.ask('POST', '', ':commit', {'writes': writes})

    def merge(self, *changes):
        """Writes (path, fields) at once; the other fields of these documents stay."""
        self.commit([{'update': {'name': f'{self.root}/{path}',
                                 'fields': {name: to_value(value)
                                            for name, value in fields.items()}},
                      'updateMask': {'fieldPaths': list(fields)}}
                     for path, fields in changes])

    def documents(self, collection):
        """{ID: fields} of a collection."""
        found, page = {}, ''
        while True:
            answer = self.ask('GET', '/' + collection, f'?pageSize=300&pageToken={page}')
            for document in answer.get('documents', []):
                found[document['name'].rsplit('/', 1)[1]] = from_fields(document)
            page = urllib.parse.quote(answer.get('nextPageToken', ''), safe='')
            if not page:
                return found

    def delete(self, paths):
        paths = list(paths)
        for at in range(0, len(paths), 200):
            self.commit([{'delete': f'{self.root}/{path}'} for path in paths[at:at + 200]])
