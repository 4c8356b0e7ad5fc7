"""Results as TAP, for tests that go on after what has failed."""
import sys

points = failures = 0


def point(good, what, shown=''):
    """One of them; what failed is shown."""
    global points, failures
    points += 1
    failures += not good
    print(f'{"ok" if good else "not ok"} {points} - {what}')
    if not good:
        for line in str(shown).splitlines():
            print(f'#   {line}')
    sys.stdout.flush()


def end():
    """How many there were; the exit status."""
    print(f'1..{points}')
    return 1 if failures or not points else 0
