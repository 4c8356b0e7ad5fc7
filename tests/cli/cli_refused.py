#!/usr/bin/env python3
"""A server that refuses for a while (starting up, too many clients): the wait goes on within its
limit, and ends with 69 if the refusals go on.

Between the command and a real server stands a front that refuses the first requests, or all, in the
words of the protocol. Run by tests/servers/NAME for the stores of REFUSALS; on the others
(PostgreSQL, MariaDB, Redis) the server itself refuses, in the tests of their drivers. Prints TAP.
"""
import os
import re
import socket
import struct
import subprocess
import sys
import threading
import time

from cli_tty import HOLDFAST, LIMIT, key, main

FIRST = 3       # so many requests are refused before the server accepts
LONG = 15       # without a limit: this takes longer than the wait for a server that isn't there
FOR_EVER = 1 << 30
LIMIT_S = 10    # of the wait that is in vain


# ---- refusals ----
# Each reads what the client says, and returns what it is answered.

def exactly(client, size):
    data = b''
    while len(data) < size:
        more = client.recv(size - len(data))
        if not more:
            raise ConnectionError
        data += more
    return data


def pump(source, sink):
    try:
        while data := source.recv(65536):
            sink.sendall(data)
    except OSError:
        pass
    for end in (source, sink):
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


def http_request(client):
    """The bytes of one request."""
    data = b''
    while b'\r\n\r\n' not in data:
        data += exactly(client, 1)
    length = re.search(rb'(?i)\r\ncontent-length: *(\d+)', data)
    return data + exactly(client, int(length[1]) if length else 0)


def http(status, kind, body):
    def refuse(client, _):
        http_request(client)
        return (f'HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n'
                f'Connection: close\r\n\r\n{body}').encode()
    return refuse


def nats(why):
    """A server that has no room says so when the client has logged in."""
    def refuse(client, _):
        client.sendall(b'INFO {"server_id":"front","version":"2.9.0","proto":1,"headers":true,'
                       b'"jetstream":true,"max_payload":1048576}\r\n')
        seen = b''
        while b'PING\r\n' not in seen:
            more = client.recv(4096)
            if not more:
                raise OSError('the client has gone')
            seen += more
        return f"-ERR '{why}'\r\n".encode()
    return refuse


def frame(kind, flags, stream, payload=b''):
    return struct.pack('>I', len(payload))[1:] + bytes((kind, flags)) + struct.pack('>I', stream) \
        + payload


def literal(name, value):
    """A field of HPACK that is in no table."""
    return b'\0' + bytes((len(name),)) + name.encode() + bytes((len(value),)) + value.encode()


def grpc(status, why):
    """A request of HTTP/2 gets a header that is its trailer, too; those for the date pass."""
    def refuse(client, server):
        if client.recv(4, socket.MSG_PEEK) == b'GET ':
            threading.Thread(target=pump, args=(server, client), daemon=True).start()
            pump(client, server)
            raise ConnectionError
        exactly(client, len(b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'))
        client.sendall(frame(4, 0, 0))
        while True:
            head = exactly(client, 9)
            exactly(client, int.from_bytes(head[:3], 'big'))
            kind, flags, stream = head[3], head[4], int.from_bytes(head[5:], 'big')
            if kind == 4 and not flags & 1:
                client.sendall(frame(4, 1, 0))
            if kind in (0, 1) and flags & 1:    # the end of a request
                return frame(1, 5, stream, b'\x88' + literal('content-type', 'application/grpc') +
                             literal('grpc-status', str(status)) + literal('grpc-message', why))
    return refuse


def bson(**fields):
    data = b''
    for name, value in fields.items():
        if isinstance(value, str):
            value = value.encode() + b'\0'
            data += b'\x02' + name.encode() + b'\0' + struct.pack('<i', len(value)) + value
        elif isinstance(value, int):
            data += b'\x10' + name.encode() + b'\0' + struct.pack('<i', value)
        else:
            data += b'\x01' + name.encode() + b'\0' + struct.pack('<d', value)
    return struct.pack('<i', len(data) + 5) + data + b'\0'


OP_MSG = 2013
GREETINGS = ('hello', 'isMaster', 'ismaster', 'ping', 'buildInfo', 'endSessions')


def mongodb_message(client):
    """One message, and the name of its command."""
    head = exactly(client, 16)
    size, _, _, opcode = struct.unpack('<iiii', head)
    body = exactly(client, size - 16)
    name = body[10:body.index(b'\0', 10)].decode() if opcode == OP_MSG else 'hello'
    return head + body, name


def mongodb(code, name, why):
    """A server in that state greets a client, and refuses its commands."""
    def refuse(client, server):
        while True:
            message, command = mongodb_message(client)
            if command not in GREETINGS:
                break
            server.sendall(message)
            client.sendall(mongodb_message(server)[0])
        body = b'\0' * 5 + bson(ok=0.0, errmsg=why, code=code, codeName=name)
        return struct.pack('<iiii', 16 + len(body), 1, struct.unpack_from('<i', message, 4)[0],
                           OP_MSG) + body
    return refuse


REFUSALS = {
    'nats': [nats('maximum connections exceeded'), nats('Server Shutdown')],
    'etcd': [grpc(14, 'etcdserver: no leader'), grpc(8, 'etcdserver: too many requests')],
    'mongodb': [mongodb(13436, 'NotPrimaryOrSecondary', 'node is in state STARTUP2'),
                mongodb(91, 'ShutdownInProgress', 'The server is in quiesce mode')],
    's3': [http('503 Slow Down', 'application/xml', '<Error><Code>SlowDown</Code><Message>Please '
                'reduce your request rate.</Message></Error>'),
           http('500 Internal Server Error', 'application/xml', '<Error><Code>InternalError</Code>'
                '<Message>We encountered an internal error.</Message></Error>')],
    'firestore': [http('503 Service Unavailable', 'application/json', '{"error":{"code":503,'
                       '"status":"UNAVAILABLE","message":"The service is starting up."}}'),
                  http('429 Too Many Requests', 'application/json', '{"error":{"code":429,'
                       '"status":"RESOURCE_EXHAUSTED","message":"Quota exceeded."}}')],
}
# What says that the server is there, and has no room for a client.
FULL = {'nats': [nats('maximum connections exceeded')]}
WORDS = {'nats': 'maximum connections|Shutdown', 'etcd': 'no leader|too many requests',
         'mongodb': 'STARTUP2|quiesce', 's3': 'SlowDown|InternalError',
         'firestore': 'starting up|Quota'}


# ---- the front ----

class Front:
    """Refuses so many connections, each at its first request; the later ones go to the server."""
    def __init__(self, server, refuse, refusals):
        self.server, self.refuse, self.refusals = server, refuse, refusals
        self.refused = self.passed = 0
        self.listener = socket.create_server(('127.0.0.1', 0), backlog=64)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.close()

    def accept(self):
        while True:
            try:
                client = self.listener.accept()[0]
            except OSError:
                return
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with client, socket.create_connection(self.server) as server:
            if self.refused < self.refusals:
                try:
                    answer = self.refuse(client, server)
                    self.refused += 1
                    client.sendall(answer)
                    client.shutdown(socket.SHUT_WR)
                    while client.recv(4096):
                        pass
                except OSError:
                    pass
                return
            self.passed += 1
            threading.Thread(target=pump, args=(server, client), daemon=True).start()
            pump(client, server)


# ---- the store behind it ----

STORE = os.environ['HOLDFAST_TEST_STORE']
SCHEME = STORE.split(':')[0]
AT = re.search(r'127\.0\.0\.1:(\d+)', os.environ.get('FIRESTORE_EMULATOR_HOST', '')
               if SCHEME == 'firestore' else STORE)


def behind(front, *arguments):
    """Starts the command with the front in the place of the server."""
    to = f'127.0.0.1:{front.port}'
    env = dict(os.environ, HOLDFAST_STORE=STORE.replace(AT[0], to), FIRESTORE_EMULATOR_HOST=to)
    began = time.monotonic()
    done = subprocess.run([HOLDFAST, *arguments], env=env, stdin=subprocess.DEVNULL, text=True,
                          capture_output=True, timeout=LIMIT, check=False)
    print('#', arguments, done.returncode, front.refused, front.passed, repr(done.stderr))
    return done.returncode, done.stderr.splitlines(), time.monotonic() - began


def each_refusal(refusals, kinds=REFUSALS):
    for refuse in kinds.get(SCHEME, []):
        with Front(('127.0.0.1', int(AT[1])), refuse, refusals) as front:
            yield front


def test_what_is_refused_for_a_while_is_waited_out_within_the_limit(_):
    for front in each_refusal(FIRST):
        status, _, _ = behind(front, 'run', '-v', '-w', '600', key(), '--', 'touch', 'ran')
        assert status == 0
        assert front.refused >= FIRST and front.passed
        os.remove('ran')


def test_a_server_that_is_full_is_waited_for_without_a_limit(_):
    for front in each_refusal(LONG, FULL):
        status, _, _ = behind(front, 'run', key(), '--', 'touch', 'ran')
        assert status == 0
        assert front.refused == LONG and front.passed
        os.remove('ran')


def test_what_is_refused_for_longer_ends_at_the_limit(_):
    for front in each_refusal(FOR_EVER):
        status, lines, took = behind(front, 'run', '-w', str(LIMIT_S), key(), '--', 'touch', 'ran')
        assert status == 69 and len(lines) == 1
        assert re.search(WORDS[SCHEME], lines[0])
        assert took >= LIMIT_S and front.refused > 1
        assert not os.path.exists('ran')


def test_what_is_refused_is_told_at_once_if_nothing_is_to_be_waited_for(_):
    for front in each_refusal(FOR_EVER):
        status, lines, _ = behind(front, 'run', '-n', key(), '--', 'touch', 'ran')
        assert status == 69 and len(lines) == 1
        assert re.search(WORDS[SCHEME], lines[0])
        assert not os.path.exists('ran')


if __name__ == '__main__':
    sys.exit(main(globals()))
