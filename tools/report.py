"""What tools/test prints of its steps: what failed, why, and how to run it again; for steps.py."""
import os
import re

SAID = 10       # lines of what one failure said
FAILURES = 3    # that are shown so, of a step
# What compilers, meson, lint, shellcheck, mandoc and tests begin the line with that says why.
WHY = re.compile(r'not ok\b|FAILED: |.*\b([Ee]rror|ERROR): |.*\bundefined reference\b'
                 r'|\S+:\d+: [A-Z]+: |In .* line \d+:')


def reasons(said):
    """Of what a failed command or test said, the lines that say why: from its last failed test
    point on, or from its first error. What went well is left out."""
    said = [line for line in said if not re.match(r'ok\b|\s*$', line)]
    begin = max((n for n, line in enumerate(said) if line.startswith('not ok')), default=None)
    if begin is None:
        begin = next((n for n, line in enumerate(said) if WHY.match(line)), len(said))
    shown = said[begin:begin + SAID]
    more = SAID - len(shown)
    return shown + (said[max(0, begin - more):begin] if more else [])


def failures(step, top):
    """The lines on a step that failed: what failed first, each way to run it again once, so that
    both stand in the part of the output that is kept; then why."""
    lines, shown = [], step.failed[:20]
    for n, (what, again) in enumerate(shown):
        lines.append(f'    failed: {what}')
        if n + 1 == len(shown) or shown[n + 1][1] != again:
            lines.append(f'    again:  {again}')
    if len(shown) < len(step.failed):
        lines.append(f'    and {len(step.failed) - len(shown)} more')
    if not step.ruined:
        lines += ['    | ' + line[:400]
                  for said in step.details[:FAILURES] or [noted(step)] for line in said]
    return [*lines, f'    log:    {os.path.relpath(step.path, top)}']


def noted(step):
    """What a step without a failed command wrote itself at last, like a difference."""
    return [line for line in step.said().split('\n') if line and not line.startswith('$ ')][-SAID:]


def show(step, seconds, top):
    """Prints a step's line, and what else there is to say of it."""
    bad = f', {len(step.failed)} failed' if step.failed else ''
    lines = [f'{"FAIL" if step.failed else "ok":5} {step.name:12} {step.passed:6} passed{bad:12}'
             f' {seconds:7.1f} s']
    if step.failed:
        lines += failures(step, top)
    if step.note:
        lines.append('      ' + step.note)
    # A machine that is slow at one thing, a disk or a compiler, is known by what is slow on it.
    longest = [f'{name} {took:.0f} s' for took, name in sorted(step.took)[:-9:-1]]
    if longest and seconds > 60:
        lines.append('      longest: ' + ', '.join(longest))
    print('\n'.join(lines), flush=True)


def summary(steps):
    """The end of the output: the first failure of each step, why, and how to run it again."""
    for step in [step for step in steps if step.failed and not step.ruined][:SAID]:
        what, again = step.failed[0]
        why = next((line.strip() for said in step.details[:1] for line in said if WHY.match(line)
                    and line.strip() not in what), '')
        print(f'FAIL  {step.name}: {what[:120]}{f": {why[:200]}" if why else ""}; again: {again}')
