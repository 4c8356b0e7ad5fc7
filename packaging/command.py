"""The static command with its manuals, documentation and completions, as a tar.gz to unpack
anywhere and as rpm and apk packages."""
import os
import re

import nfpm
from archive import tar_gz
from build import static_command
from npm import data

COMPLETIONS = {'holdfast.bash': 'bash-completion/completions/holdfast',
               '_holdfast': 'zsh/site-functions/_holdfast',
               'holdfast.fish': 'fish/vendor_completions.d/holdfast.fish'}


def pages(folder):
    """The manuals of what the archive has, and the documentation. A page that is a link to another
    one becomes a file that includes it: archives here have no links."""
    found = {}
    for top, _, names in os.walk(os.path.join(folder, 'share')):
        for name in names:
            path = os.path.join(top, name)
            inside = os.path.relpath(path, folder)
            if re.search(r'/man/man3/', inside):    # of the library
                continue
            found[inside] = data(path)
            if os.path.islink(path):
                section = os.path.basename(top)
                found[inside] = f'.so {section}/{os.readlink(path)}\n'.encode(), False
    return found


def archive(source, out, version, target, terms, work, epoch):
    """holdfast-VERSION-linux-PROCESSOR.tar.gz, and the packages that nfpm makes."""
    name = f'holdfast-{version}-' + target.rsplit('-', 1)[0]
    program, installed = static_command(source, target, work)
    files = {'bin/holdfast': data(program, True),
             'share/licenses/holdfast/LICENSE': data(os.path.join(source, 'LICENSE')),
             'share/licenses/holdfast/THIRD-PARTY-NOTICES': (terms, False), **pages(installed)}
    for file, place in COMPLETIONS.items():
        files['share/' + place] = data(os.path.join(source, 'completions', file))
    tar_gz(os.path.join(out, name + '.tar.gz'),
           {f'{name}/{path}': what for path, what in files.items()}, epoch)
    nfpm.packages(out, version, target, files, work, epoch)
