"""Archives that are the same bytes whenever and wherever they are written: entries sorted, with one
time, one owner and two modes."""
import base64
import gzip
import hashlib
import io
import tarfile
import time
import zipfile


def tar_gz(path, files, epoch):
    """files: {name in the archive: (bytes, executable)}."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode='w', format=tarfile.PAX_FORMAT) as tar:
        for name in sorted(files):
            data, executable = files[name]
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime = len(data), epoch
            entry.mode = 0o755 if executable else 0o644
            tar.addfile(entry, io.BytesIO(data))
    with open(path, 'wb') as file, gzip.GzipFile('', 'wb', 9, file, mtime=epoch) as packed:
        packed.write(plain.getvalue())


def read_tar(path):
    """The regular files of a tar.gz, as tar_gz takes them."""
    with tarfile.open(path) as tar:
        return {entry.name: (tar.extractfile(entry).read(), bool(entry.mode & 0o100))
                for entry in tar if entry.isfile()}


def wheel(path, files, info, epoch):
    """A wheel; `info` is the name of its .dist-info folder, whose RECORD is written here."""
    record = ''
    stamp = time.gmtime(max(epoch, 315532800))[:6]    # a zip knows no time before 1980
    with zipfile.ZipFile(path, 'w', zipfile.ZIP_DEFLATED, compresslevel=9) as file:
        def add(name, data, executable):
            entry = zipfile.ZipInfo(name, stamp)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3    # whose modes follow
            entry.external_attr = (0o100755 if executable else 0o100644) << 16
            file.writestr(entry, data)
        # Installers read what is at the end first.
        for name in sorted(files, key=lambda name: (name.startswith(info), name)):
            data, executable = files[name]
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()
            record += f'{name},sha256={digest},{len(data)}\n'
            add(name, data, executable)
        add(f'{info}/RECORD', (record + f'{info}/RECORD,,\n').encode(), False)
