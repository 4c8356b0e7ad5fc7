#!/usr/bin/env python3
"""A key that needs a passphrase is refused on every store: nobody is asked for one on the terminal.

Each server here says what makes a client load its key, and no more. Prints TAP.
"""
import os
import pty
import select
import socket
import subprocess
import sys
import tempfile
import threading

HOLDFAST = os.environ['HOLDFAST']
LIMIT = 60      # seconds for a client that waits for no passphrase

GREETING = (b'\x0a10.6.0-MariaDB\0' + b'\x01\0\0\0' + b'saltsalt\0' + b'\x08\xaa' + b'\x21\x02\0' +
            b'\x08\0' + b'\x15' + b'\0' * 10 + b'saltsaltsalt\0' + b'mysql_native_password\0')
SAYS = {
    'postgres': (b'', b'S'),    # before the client says something, and behind that
    'mariadb': (len(GREETING).to_bytes(3, 'little') + b'\0' + GREETING, b''),
    'mongodb': (b'', b''),
}
URLS = {
    'postgres': 'postgres://u:p@127.0.0.1:{port}/app?sslmode=require&sslcert={cert}&sslkey={key}',
    'mariadb': 'mariadb://u:p@127.0.0.1:{port}/app?ssl_cert={cert}&ssl_key={key}',
    'mongodb': 'mongodb://127.0.0.1:{port}/app?tls=true&tlsCertificateKeyFile={both}',
}


def talk(client, first, then):
    with client:
        client.sendall(first)
        if client.recv(4096) and then:
            client.sendall(then)
        while client.recv(4096):
            pass


def serve(listener, first, then):
    while True:
        try:
            client = listener.accept()[0]
        except OSError:
            return
        threading.Thread(target=talk, args=(client, first, then), daemon=True).start()


def said_on_a_terminal(*command):
    """What it prints there; a question nobody answers fails."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(command[0], command)
    text = b''
    while select.select([terminal], [], [], LIMIT)[0]:
        try:
            text += os.read(terminal, 4096)
        except OSError:     # it has ended
            os.close(terminal)
            return text.decode(), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    raise AssertionError(f'it waits: {text!r}')


def check(scheme, files):
    with socket.create_server(('127.0.0.1', 0)) as listener:
        threading.Thread(target=serve, args=(listener, *SAYS[scheme]), daemon=True).start()
        url = URLS[scheme].format(port=listener.getsockname()[1], **files)
        text, status = said_on_a_terminal(HOLDFAST, '-S', url, 'run', '-n', 'k', '--', 'true')
        listener.shutdown(socket.SHUT_RDWR)
    assert 'Enter' not in text, text
    assert status in (64, 69, 77), (status, text)


def main():
    failed = 0
    print(f'1..{len(URLS)}')
    with tempfile.TemporaryDirectory(prefix='holdfast-passphrase-') as folder:
        files = {name: os.path.join(folder, name + '.pem') for name in ('cert', 'key', 'both')}
        subprocess.run(['openssl', 'req', '-x509', '-newkey', 'rsa:2048', '-passout', 'pass:word',
                        '-days', '2', '-subj', '/CN=x', '-keyout', files['key'], '-out',
                        files['cert']], check=True, capture_output=True)
        with open(files['both'], 'wb') as both:
            for name in 'cert', 'key':
                with open(files[name], 'rb') as part:
                    both.write(part.read())
        os.chmod(files['both'], 0o600)
        for number, scheme in enumerate(URLS, 1):
            try:
                check(scheme, files)
                print(f'ok {number} - {scheme}: a key that needs a passphrase', flush=True)
            except AssertionError as why:
                failed = 1
                print(f'not ok {number} - {scheme}: {why!r}', flush=True)
    return failed


if __name__ == '__main__':
    sys.exit(main())
