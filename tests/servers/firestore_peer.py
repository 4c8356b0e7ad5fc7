"""What the tests of the Firestore driver have on the other end, beside the emulator.

    firestore_peer.py PORT-FILE token PUBLIC-KEY LOG [LIVES-S]   a token server (and
                                                    when there is a file LOG.away, none)
    firestore_peer.py PORT-FILE drop SERVER LOG     a proxy that loses every second commit's answer,
                                                    or says that the server is not available
    firestore_peer.py PORT-FILE tls SERVER CERT KEY              a proxy that speaks TLS
    firestore_peer.py PORT-FILE status              answers with the status that the project names

It listens on a free port of the loopback device, which it writes into PORT-FILE.
"""
import base64
import http.client
import http.server
import json
import os
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.parse

port_file, what, *args = sys.argv[1:]


class Peer(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    disable_nagle_algorithm = True      # a head and a body are two writes
    commits = 0

    def log_message(self, *_):
        pass

    def body(self):
        return self.rfile.read(int(self.headers.get('Content-Length', 0)))

    def answer(self, status, body):
        self.send_response(status)
        self.send_header('Content-Type', 'application/json')
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        {'token': self.token, 'drop': self.drop, 'tls': self.forward, 'status': self.status}[what]()

    def token(self):
        """Checks the signed statement as a token server does; its access token is the owner's."""
        form = urllib.parse.parse_qs(self.body().decode())
        if os.path.exists(args[1] + '.away'):
            with open(args[1], 'a') as f:
                print('away', file=f)
            self.close_connection = True
            return
        signed, signature = form['assertion'][0].rsplit('.', 1)
        head, claims = (json.loads(self.unbase64(part)) for part in signed.split('.'))
        with tempfile.NamedTemporaryFile() as f:
            f.write(self.unbase64(signature))
            f.flush()
            good = subprocess.run(['openssl', 'dgst', '-sha256', '-verify', args[0], '-signature',
                                   f.name], input=signed.encode(), capture_output=True).returncode
        age = abs(time.time() - claims['iat'])
        good = (good == 0 and head['alg'] == 'RS256' and head['kid'] == 'key-1' and age < 60
                and claims['aud'].endswith('/token') and claims['exp'] == claims['iat'] + 3600
                and claims['scope'] == 'https://www.googleapis.com/auth/datastore'
                and form['grant_type'] == ['urn:ietf:params:oauth:grant-type:jwt-bearer'])
        with open(args[1], 'a') as f:
            print(claims['iss'], 'good' if good else 'bad', file=f)
        if good:
            lives = int(args[2]) if len(args) > 2 else 3600
            said = {'access_token': 'owner', 'expires_in': lives, 'token_type': 'Bearer'}
        else:
            said = {'error': 'invalid_grant', 'error_description': 'Invalid JWT Signature.'}
        self.answer(200 if good else 400, json.dumps(said).encode())

    @staticmethod
    def unbase64(text):
        return base64.urlsafe_b64decode(text + '=' * (-len(text) % 4))

    def ask(self):
        server = http.client.HTTPConnection(args[0], timeout=300)
        headers = {'Authorization': self.headers['Authorization']}
        server.request('POST', self.path, self.body(), headers)
        answer = server.getresponse()
        return answer.status, answer.read()

    def forward(self):
        self.answer(*self.ask())

    def drop(self):
        status, body = self.ask()
        if self.path.endswith(':commit'):
            Peer.commits += 1
            if Peer.commits % 2 == 0:
                with open(args[1], 'a') as f:
                    print(status, file=f)
                if Peer.commits % 4 == 0:
                    self.answer(503, b'{"error": {"code": 503, "status": "UNAVAILABLE"}}')
                self.close_connection = True
                return
        self.answer(status, body)

    def status(self):
        self.body()
        status = int(self.path.split('/')[3].split('-')[1])
        said = {429: 'RESOURCE_EXHAUSTED', 403: 'PERMISSION_DENIED', 404: 'NOT_FOUND',
                401: 'UNAUTHENTICATED', 412: 'FAILED_PRECONDITION'}.get(status)
        if not said:
            self.answer(status, b'<html>a proxy says no</html>')
            return
        error = {'error': {'code': status, 'status': said,
                           'message': 'so it is, ' + self.headers['Authorization']}}
        self.answer(400 if status == 412 else status, json.dumps([error]).encode())


with http.server.ThreadingHTTPServer(('127.0.0.1', 0), Peer) as listener:
    if what == 'tls':
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(args[1], args[2])
        listener.socket = context.wrap_socket(listener.socket, server_side=True)
    with open(port_file + '.new', 'w') as f:
        f.write(str(listener.server_address[1]))
    os.rename(port_file + '.new', port_file)
    listener.serve_forever()
