"""`python -m tests.run`: the whole suite in four processes at once, each with servers of its own.

Each takes about as long as the others. Two begin with the tests that start whole installations, which wait for one half
of their time, so that two cores always have something to do; a third takes the browser. `--quick` runs the pure and the
Postgres tier.

The output of the last process is shown as it comes, that of the others at the end. Fails if one of them does.
"""

import compileall
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from tests.support.stack import PREPARED

PYTEST = (sys.executable, "-m", "pytest")
PACKAGES = ("agents", "approvals", "client", "config", "runtime", "tests")
FAULTS = "tests/system/fault_injection"
LANES = (
    ("tests/system", f"--ignore={FAULTS}", "tests/interop", "tests/config", "tests/docs"),
    (FAULTS, "tests/approvals", "tests/stored", "tests/agents"),
    ("tests/browser",),
)
REST = (
    "tests",
    *(f"--ignore={path}" for lane in LANES for path in lane if not path.startswith("-")),
)
QUICK = (
    (
        "tests/core",
        "tests/stored",
        "tests/keyring",
        "tests/mutants",
        "tests/code_figures",
        "tests/agents",
        "tests/reads",
    ),
    (
        "tests/execution",
        "tests/control",
        "tests/store",
        "tests/broker",
        "tests/upkeep",
        "tests/triggers",
    ),
    ("tests/approvals",),
)


def main(arguments: Sequence[str]) -> int:
    """Run all lanes. Returns the exit status of one that failed, 0 if none did."""
    for package in PACKAGES:  # once, or each process that a test starts does it again
        compileall.compile_dir(package, quiet=2)
    *lanes, last = QUICK if "--quick" in arguments else (*LANES, REST)
    with ExitStack() as stack:
        shared = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="signoff-tests-")))
        shared.chmod(0o755)  # other accounts pass through it
        os.environ[PREPARED] = str(shared)
        kept = [stack.enter_context(tempfile.TemporaryFile()) for _ in lanes]
        others = [
            subprocess.Popen([*PYTEST, *lane], stdout=file, stderr=subprocess.STDOUT)
            for lane, file in zip(lanes, kept, strict=True)
        ]
        try:
            codes = [subprocess.run([*PYTEST, *last], check=False).returncode]
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
    raise SystemExit(main(sys.argv[1:]))
