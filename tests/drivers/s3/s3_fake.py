#!/usr/bin/env python3
"""An S3 server in memory with a mistake: s3_fake.py PORT-FILE [MISTAKE]

"ignore": it knows neither If-Match nor If-None-Match. "ignore-removals": it doesn't know them where
a removed row is written. "torn": the first read after a write shows the new ETag and the content
before. "twice": as behind a proxy that loses the reply to each PUT and sends it a second time.
"foreign": something in between answers every second PUT, with an ETag that no object has. "others":
ETags are no MD5 sums, as with SSE-KMS; "others-later": so are those after ten writes. No signature
is checked.
"""
import hashlib
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

objects, before, puts, mutex = {}, {}, [], threading.Lock()
ignores = sys.argv[2] if len(sys.argv) > 2 else ''


class Handler(BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def answer(self, status, body=b'', tag=None):
        self.send_response(status)
        if tag:
            self.send_header('ETag', tag)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_PUT(self):
        length = int(self.headers['Content-Length'])
        body = self.rfile.read(length)
        if len(body) < length:
            return
        with mutex:
            puts.append(self.path)
            others = ignores == 'others' or ignores == 'others-later' and len(puts) > 10
            tag = '"' + hashlib.md5(body + b'x' * others).hexdigest() + '"'
            if ignores == 'foreign' and len(puts) % 2:
                self.answer(200, tag='"' + 32 * '5' + '"')
                return
            now = objects.get(self.path, (None, None))[0]
            wants = self.headers.get('If-Match')
            fits = wants == now if wants else not now
            if not (fits or ignores == 'ignore' or
                    (ignores == 'ignore-removals' and b'"removed"' in body)):
                self.answer(412)
                return
            if now and ignores == 'torn':
                before[self.path] = objects[self.path][1]
            objects[self.path] = (tag, body)
        if ignores == 'twice':
            self.answer(412)
            return
        self.answer(200, tag=tag)

    def do_GET(self):
        url = urlsplit(self.path)
        if url.query:
            prefix = url.path + '/' + parse_qs(url.query)['prefix'][0]
            with mutex:
                names = sorted(name for name in objects if name.startswith(prefix))
            keys = ''.join(f'<Contents><Key>{name[len(url.path) + 1:]}</Key></Contents>'
                           for name in names)
            self.answer(200, f'<ListBucketResult><IsTruncated>false</IsTruncated>{keys}'
                             '</ListBucketResult>'.encode())
            return
        with mutex:
            tag, body = objects.get(self.path, (None, b'<Error><Code>NoSuchKey</Code></Error>'))
            body = before.pop(self.path, body)
        self.answer(200 if tag else 404, body, tag)


server = ThreadingHTTPServer(('127.0.0.1', 0), Handler)
with open(sys.argv[1] + '.new', 'w', encoding='ascii') as file:
    file.write(str(server.server_port))
os.rename(sys.argv[1] + '.new', sys.argv[1])
server.serve_forever()
