"""Stands between HTTP clients and a server of this machine; logs the first line of each request.

    http_log.py PORT SERVERS-PORT LOG SERVER [ARG...]

It starts the server. A request is in the log before the server has it.
"""
import socket
import subprocess
import sys
import threading

port, server_port, log_name = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
log = open(log_name, 'ab', buffering=0)


def pump(source, sink, logged):
    """Copies; `logged`: cuts the stream into requests, by their Content-Length."""
    body = 0
    try:
        while data := source.recv(65536):
            while logged and data:
                if body:
                    n = min(body, len(data))
                    body -= n
                    sink.sendall(data[:n])
                    data = data[n:]
                    continue
                while b'\r\n\r\n' not in data:
                    more = source.recv(65536)
                    if not more:
                        return
                    data += more
                end = data.index(b'\r\n\r\n') + 4
                head, data = data[:end], data[end:]
                log.write(head.split(b'\r\n', 1)[0] + b'\n')
                for line in head.split(b'\r\n'):
                    if line.lower().startswith(b'content-length:'):
                        body = int(line.split(b':')[1])
                sink.sendall(head)
            if not logged:
                sink.sendall(data)
    except OSError:
        pass
    finally:
        for end_of in (source, sink):
            try:
                end_of.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


subprocess.Popen(sys.argv[4:])
with socket.create_server(('127.0.0.1', port)) as listener:
    while True:
        client, _ = listener.accept()
        try:
            server = socket.create_connection(('127.0.0.1', server_port))
        except OSError:
            client.close()
            continue
        for args in (client, server, True), (server, client, False):
            for end_of in args[:2]:
                end_of.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=pump, args=args, daemon=True).start()
