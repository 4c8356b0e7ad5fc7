#!/usr/bin/env python3
"""A pooler between clients and a MariaDB server: pooler.py PORT SERVER_SOCKET

It listens on PORT of 127.0.0.1. Each request of a client is passed on by another one of a few
connections to the server, as the user `holdfast`, and before each of them another client has
changed the settings of that session. Only a session in a transaction stays with its client, as in
the transaction mode of a pooler that restores no settings. The first client is told the number of
the session that its first request comes to. It prints "ready" when it listens.
"""
import collections
import socket
import struct
import sys
import threading

SESSIONS = 6
FIRST = 100000  # the clients' numbers
# Less than these a pooler must be able to do: long flags, a database, protocol 4.1, transactions,
# scrambled passwords, several statements and results, a plugin.
CAPABILITIES = 0x000BA20D
MORE, IN_TRANSACTION = 8, 1
QUERY, QUIT = b'\x03', b'\x01'

OTHERS_SETTINGS = (
    "SET time_zone = '+12:00', lc_time_names = 'de_DE'",
    'SET autocommit = 0',
    'SET NAMES latin1',
    "SET sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT,EMPTY_STRING_IS_NULL'",
    'SET timestamp = 1, sql_select_limit = 1',
    'SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED',
    'SET SESSION TRANSACTION READ ONLY',
    'SET lock_wait_timeout = 100, innodb_lock_wait_timeout = 100, max_statement_time = 100',
    'SET sql_safe_updates = 1',
    'USE information_schema',
)


class Gone(Exception):
    """The other end has closed the connection."""


def receive(sock, n):
    data = b''
    while len(data) < n:
        part = sock.recv(n - len(data))
        if not part:
            raise Gone
        data += part
    return data


def packet(sock):
    head = receive(sock, 4)
    body = receive(sock, int.from_bytes(head[:3], 'little'))
    return head + body, body


def framed(number, body):
    return len(body).to_bytes(3, 'little') + bytes([number]) + body


def length(body, at):
    """A length-encoded number: its value, and where it ends."""
    size = {0xFC: 2, 0xFD: 3, 0xFE: 8}.get(body[at], 0)
    if not size:
        return body[at], at + 1
    return int.from_bytes(body[at + 1 : at + 1 + size], 'little'), at + 1 + size


def status_of_ok(body):
    _, at = length(body, 1)
    _, at = length(body, at)
    return struct.unpack_from('<H', body, at)[0]


def is_eof(body):
    return body[0] == 0xFE and len(body) < 9


class Session:
    """A connection to the server."""

    def __init__(self, path, others):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(path)
        self.others = others  # which of the settings comes next
        self.status = 2
        greeting = packet(self.sock)[1]
        self.number = struct.unpack_from('<I', greeting, greeting.index(b'\0') + 1)[0]
        login = struct.pack('<IIB23x', CAPABILITIES, 1 << 24, 45)
        login += b'holdfast\0' + b'\0' + b'holdfast\0' + b'mysql_native_password\0'
        self.sock.sendall(framed(1, login))
        if packet(self.sock)[1][0] != 0:
            raise Gone

    def result(self, whole):
        """Reads the reply to one statement. Returns 1 if another one follows."""
        raw, body = packet(self.sock)
        whole.append(raw)
        if body[0] == 0xFF:
            return 0
        if body[0] == 0:
            self.status = status_of_ok(body)
            return self.status & MORE
        for _ in range(2):  # the columns, and the rows
            while not is_eof(body) or len(whole) == 1:
                raw, body = packet(self.sock)
                whole.append(raw)
                if body[0] == 0xFF:
                    return 0
            self.status = struct.unpack_from('<H', body, 3)[0]
            body = b'\0'
        return self.status & MORE

    def ask(self, request):
        self.sock.sendall(request)
        reply, whole = [], []
        more = 1
        while more:
            whole = []
            more = self.result(whole)
            reply += whole
        return b''.join(reply)

    def used_by_another(self):
        self.ask(framed(0, QUERY + OTHERS_SETTINGS[self.others % len(OTHERS_SETTINGS)].encode()))
        self.others += 1


class Pool:
    def __init__(self, path):
        self.path = path
        self.first = Session(path, 1)
        self.free = collections.deque([self.first] + [None] * (SESSIONS - 1))
        self.changed = threading.Condition()
        self.count = 0

    def take(self):
        with self.changed:
            while not self.free:
                self.changed.wait()
            session = self.free.popleft()
            self.count += 1
            count = self.count
        try:
            session = session or Session(self.path, count)
            session.used_by_another()
            return session
        except (Gone, OSError):
            self.give(None)
            raise

    def give(self, session):
        with self.changed:
            self.free.append(session)
            self.changed.notify()


def greet(client, number):
    greeting = b'\x0a10.11.0-MariaDB-pooler\0' + struct.pack('<I', number) + b'12345678\0'
    greeting += struct.pack('<HBHHB10x', CAPABILITIES & 0xFFFF, 45, 2, CAPABILITIES >> 16, 21)
    client.sendall(framed(0, greeting + b'123456789012\0mysql_native_password\0'))
    packet(client)
    client.sendall(framed(2, b'\0\0\0\2\0\0\0'))


def serve(client, pool, number):
    session = None
    try:
        greet(client, number)
        while True:
            request, body = packet(client)
            if body == QUIT:
                break
            session = session or pool.take()
            reply = session.ask(request)
            if not session.status & IN_TRANSACTION:
                kept, session = session, None
                pool.give(kept)
            client.sendall(reply)
    except (Gone, OSError):
        pass
    client.close()
    if session:  # in a transaction, or broken
        session.sock.close()
        pool.give(None)


def main():
    pool = Pool(sys.argv[2])
    with socket.create_server(('127.0.0.1', int(sys.argv[1])), backlog=200) as listener:
        print('ready', flush=True)
        for number in range(FIRST, 2 * FIRST):
            client, _ = listener.accept()
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if number == FIRST:
                number = pool.first.number
            threading.Thread(target=serve, args=(client, pool, number), daemon=True).start()


if __name__ == '__main__':
    main()
