"""`python -m tests.run`: the whole suite in two processes at once, each with servers of its own.

One takes the tests that start whole installations and mostly wait, the other all the rest. The output of
the second is shown as it comes, that of the first when both are through. Fails if either does.
"""

import subprocess
import sys
import tempfile

PYTEST = (sys.executable, "-m", "pytest")
WAITING = ("tests/browser", "tests/e2e", "tests/faults")
REST = ("tests", *(f"--ignore={folder}" for folder in WAITING))


def main() -> int:
    """Run both halves. Returns the exit status of the one that failed, 0 if none did."""
    with tempfile.TemporaryFile() as kept:
        waiting = subprocess.Popen([*PYTEST, *WAITING], stdout=kept, stderr=subprocess.STDOUT)
        try:
            rest = subprocess.run([*PYTEST, *REST], check=False).returncode
            waiting.wait()
        finally:
            waiting.terminate()
            waiting.wait()
        kept.seek(0)
        sys.stdout.buffer.write(kept.read())
        sys.stdout.flush()
    return rest or waiting.returncode


if __name__ == "__main__":
    raise SystemExit(main())
