"""What the libraries of a build export: for the step `api` of tools/steps.py."""
import os
import re
import subprocess

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def symbols(build, file, *options):
    """What a library of the build defines for others; a shared one, with its version."""
    listed = subprocess.run(['nm', *options, '--defined-only', '-g',
                             os.path.join(build, file)], capture_output=True, text=True)
    return set(re.findall(r'^[0-9a-f]+ [B-Z] (\w+(?:@@\w+)?)$', listed.stdout, flags=re.M))


def versioned(step, build, names):
    """Each public function has the version HOLDFAST_0, and its line among Debian's symbols."""
    exported = symbols(build, 'libholdfast.so', '-D')
    wrong = sorted(exported ^ {f'{name}@@HOLDFAST_0' for name in names})
    step.check(not wrong, f'libholdfast.so: not exported, or not as of HOLDFAST_0: {wrong}',
               'nm -D build-gcc/libholdfast.so')
    path = os.path.join('packaging', 'debian', 'libholdfast0.symbols')
    with open(os.path.join(TOP, path), encoding='utf-8') as file:
        text = file.read()
    listed = dict(re.findall(r'^ (hf_\w+)@HOLDFAST_0 (\S+)$', text, flags=re.M))
    if os.environ.get('HF_API_NEW'):
        with open(os.path.join(TOP, 'meson.build'), encoding='utf-8') as file:
            now = re.search(r"^ +version: '(.*)'", file.read(), flags=re.M).group(1)
        head = re.sub(r'^ hf_.*\n', '', text, flags=re.M)
        listed = {name: listed.get(name, now) for name in sorted(names)}
        with open(os.path.join(TOP, path), 'w', encoding='utf-8') as file:
            file.write(head + ''.join(f' {name}@HOLDFAST_0 {was}\n'
                                      for name, was in listed.items()))
    step.check(set(listed) == names, f'{path}: not the public functions: '
               f'{sorted(set(listed) ^ names)}', 'HF_API_NEW=1 tools/test api')
