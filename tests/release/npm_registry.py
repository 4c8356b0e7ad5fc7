"""A registry of npm packages on loopback, made of tarballs in a folder: for tests that install what
isn't published."""
import base64
import hashlib
import http.server
import json
import os
import tarfile
import threading


class Registry:
    """with Registry(folder) as url: npm install --registry url NAME. Other packages are 404."""

    def __init__(self, folder):
        self.files, self.packages = {}, {}
        for file in sorted(os.listdir(folder)):
            if file.endswith('.tgz'):
                self.add(os.path.join(folder, file))

    def add(self, path):
        with open(path, 'rb') as file:
            data = file.read()
        with tarfile.open(path) as tar:
            about = json.load(tar.extractfile('package/package.json'))
        self.files[os.path.basename(path)] = data
        digest = base64.b64encode(hashlib.sha512(data).digest()).decode()
        about['dist'] = {'tarball': os.path.basename(path), 'integrity': 'sha512-' + digest,
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
