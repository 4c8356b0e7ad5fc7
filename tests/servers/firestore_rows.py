"""The documents of a collection, to standard output or from a file.

    firestore_rows.py http://HOST:PORT PROJECT COLLECTION [FILE]
"""
import json
import sys
import urllib.parse
import urllib.request

host, project, collection = sys.argv[1:4]
base = f'{host}/v1/projects/{project}/databases/(default)/documents'
owner = {'Authorization': 'Bearer owner', 'Content-Type': 'application/json'}


def ask(url, body=None):
    request = urllib.request.Request(url, body and json.dumps(body).encode(), owner)
    with urllib.request.urlopen(request, timeout=600) as answer:
        return json.load(answer)


if len(sys.argv) > 4:
    with open(sys.argv[4]) as f:
        rows = json.load(f)
    for at in range(0, len(rows), 100):
        ask(base + ':commit', {'writes': [{'update': row} for row in rows[at:at + 100]]})
else:
    rows, page = [], ''
    while True:
        answer = ask(f'{base}/{collection}?pageSize=100&pageToken={urllib.parse.quote(page)}')
        rows += [{'name': d['name'], 'fields': d['fields']} for d in answer.get('documents', [])]
        page = answer.get('nextPageToken')
        if not page:
            break
    json.dump(rows, sys.stdout)
