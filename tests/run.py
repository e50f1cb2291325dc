"""`python -m tests.run`: the whole suite in three processes at once, each with servers of its own.

Two of them take the tests that start whole installations, which wait for one half of their time, so that two cores
always have something to do; the third takes all the rest. Its output is shown as it comes, that of the others when
all are through. Fails if one of them does.
"""

import subprocess
import sys
import tempfile
from contextlib import ExitStack

PYTEST = (sys.executable, "-m", "pytest")
FAULTS = "tests/system/fault_injection"
LANES = (
    ("tests/system", f"--ignore={FAULTS}", "tests/security", "tests/core", "tests/provider"),
    (FAULTS, "tests/config"),
)
REST = (
    "tests",
    *(f"--ignore={path}" for lane in LANES for path in lane if not path.startswith("-")),
)


def main() -> int:
    """Run all lanes. Returns the exit status of one that failed, 0 if none did."""
    with ExitStack() as stack:
        kept = [stack.enter_context(tempfile.TemporaryFile()) for _ in LANES]
        others = [
            subprocess.Popen([*PYTEST, *lane], stdout=file, stderr=subprocess.STDOUT)
            for lane, file in zip(LANES, kept, strict=True)
        ]
        try:
            codes = [subprocess.run([*PYTEST, *REST], check=False).returncode]
            codes += [other.wait() for other in others]
        finally:
            for other in others:
                other.terminate()
                other.wait()
        for file in kept:
            file.seek(0)
            sys.stdout.buffer.write(file.read())
        sys.stdout.flush()
    return next((code for code in codes if code), 0)


if __name__ == "__main__":
    raise SystemExit(main())
