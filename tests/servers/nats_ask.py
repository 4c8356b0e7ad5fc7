#!/usr/bin/env python3
"""Asks a NATS server, and prints its reply: nats_ask.py PORT SUBJECT [DATA]

Without DATA the request is empty. The status is 1 if no reply came within ten seconds, if nobody
listens at that subject, or if the reply is an error of JetStream's.
"""
import json
import socket
import sys


def ask(port, subject, data=''):
    data = data.encode()
    with socket.create_connection(('127.0.0.1', port), 10) as link:
        stream = link.makefile('rb')
        stream.readline()                                    # INFO
        link.sendall(b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\n'
                     b'SUB _INBOX.ask 1\r\nPUB %s _INBOX.ask %d\r\n%s\r\n'
                     % (subject.encode(), len(data), data))
        while True:
            words = stream.readline().split()
            if not words:
                raise EOFError('the connection ended')
            if words[0] == b'PING':
                link.sendall(b'PONG\r\n')
            elif words[0] == b'-ERR':
                raise OSError(b' '.join(words).decode())
            elif words[0] in (b'MSG', b'HMSG'):
                head = int(words[-2]) if words[0] == b'HMSG' else 0
                reply = stream.read(int(words[-1]))
                if reply.startswith(b'NATS/1.0 503'):
                    raise OSError('nobody listens there')
                return reply[head:].decode()


if __name__ == '__main__':
    said = ask(int(sys.argv[1]), *sys.argv[2:])
    print(said)
    sys.exit('error' in json.loads(said))
