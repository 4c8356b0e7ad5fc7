"""A registry of npm packages on loopback, made of tarballs in a folder: for tests that install what
isn't published."""
import base64
import hashlib
import http.server
import io
import json
import os
import tarfile
import threading


def stand_in(name, version):
    """The tarball of a package of binaries for another platform, which has none."""
    _, system, cpu, libc = name.split('-')
    about = {'name': name, 'version': version, 'os': [system], 'cpu': [cpu],
             'libc': ['musl' if libc == 'musl' else 'glibc']}
    text, packed = json.dumps(about).encode(), io.BytesIO()
    with tarfile.open(fileobj=packed, mode='w:gz') as tar:
        entry = tarfile.TarInfo('package/package.json')
        entry.size = len(text)
        tar.addfile(entry, io.BytesIO(text))
    return packed.getvalue()


class Registry:
    """with Registry(folder) as url: npm install --registry url NAME. Other packages are 404. If the
    folder has not all platforms, the others are packages without binaries."""

    def __init__(self, folder):
        self.files, self.packages = {}, {}
        for file in sorted(os.listdir(folder)):
            if file.endswith('.tgz'):
                with open(os.path.join(folder, file), 'rb') as tarball:
                    self.add(file, tarball.read())
        for about in [one for package in self.packages.values()
                      for one in package['versions'].values()]:
            for name, version in about.get('optionalDependencies', {}).items():
                if name not in self.packages:
                    self.add(f'{name}-{version}.tgz', stand_in(name, version))

    def add(self, file, data):
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            about = json.load(tar.extractfile('package/package.json'))
        self.files[file] = data
        digest = base64.b64encode(hashlib.sha512(data).digest()).decode()
        about['dist'] = {'tarball': file, 'integrity': 'sha512-' + digest,
                         'shasum': hashlib.sha1(data).hexdigest()}
        self.packages[about['name']] = {
            'name': about['name'], 'dist-tags': {'latest': about['version']},
            'versions': {about['version']: about}}

    def answer(self, path, url):
        """The body of an answer; None: there is nothing."""
        name = path.lstrip('/').split('?')[0].replace('%2f', '/')
        if name in self.files:
            return self.files[name]
        if name not in self.packages:
            return None
        said = json.loads(json.dumps(self.packages[name]))
        for about in said['versions'].values():
            about['dist']['tarball'] = url + about['dist']['tarball']
        return json.dumps(said).encode()

    def __enter__(self):
        registry = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                body = registry.answer(self.path, registry.url)
                self.send_response(404 if body is None else 200)
                self.send_header('Content-Length', str(len(body or b'{}')))
                self.end_headers()
                self.wfile.write(body or b'{}')

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
        self.url = f'http://127.0.0.1:{self.server.server_port}/'
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self.url

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
