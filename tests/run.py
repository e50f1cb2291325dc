"""`python -m tests.run`: the whole suite as groups of folders, each a process with servers of its own.

Five run at once, because whole installations wait for one half of their time, and two cores should always have work.
Each that ends makes room for the next group, so the order is from the longest to the shortest. `--quick` runs the pure
and the Postgres tier.

A group's output is shown when it and those before it have ended. Fails if one of them does.
"""

import compileall
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.support.stack import PREPARED

PYTEST = (sys.executable, "-m", "pytest")
PACKAGES = ("agents", "approvals", "client", "config", "runtime", "tests")
AT_ONCE = 5
FAULTS = "tests/system/fault_injection"
ACCESS = "tests/browser/access"
POLICIES = "tests/approvals/policies"
EVERY_ROUTE = ("tests/web/test_authorisation.py", "tests/web/test_strict_requests.py")
PAGES = ("tests/web/requests", "tests/web/runs", "tests/web/actions", "tests/web/accounts")
GROUPS = (
    (ACCESS,),
    ("tests/browser", f"--ignore={ACCESS}"),
    EVERY_ROUTE,
    ("tests/web", *(f"--ignore={path}" for path in (*EVERY_ROUTE, *PAGES))),
    PAGES,
    ("tests/system", f"--ignore={FAULTS}"),
    (FAULTS,),
    ("tests/approvals", "tests/stored", "tests/agents"),
    ("tests/config", "tests/docs", "tests/interop"),
    ("tests/execution", "tests/control", "tests/upkeep", "tests/triggers"),
)
REST = (
    "tests",
    *(f"--ignore={path}" for group in GROUPS for path in group if not path.startswith("-")),
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
        "tests/broker",
        POLICIES,
    ),
    ("tests/execution", "tests/control", "tests/store", "tests/upkeep", "tests/triggers"),
    ("tests/approvals", f"--ignore={POLICIES}"),
)


def main(arguments: Sequence[str]) -> int:
    """Run all groups. Returns the exit status of one that failed, 0 if none did."""
    for package in PACKAGES:  # once, or each process that a test starts does it again
        compileall.compile_dir(package, quiet=2)
    groups = QUICK if "--quick" in arguments else (REST, *GROUPS)
    code = 0
    with (
        tempfile.TemporaryDirectory(prefix="signoff-tests-") as shared,
        ThreadPoolExecutor(AT_ONCE) as processes,
    ):
        Path(shared).chmod(0o755)  # other accounts pass through it
        os.environ[PREPARED] = shared
        for group in processes.map(_run, groups):
            sys.stdout.buffer.write(group.stdout)
            sys.stdout.flush()
            code = code or group.returncode
    return code


def _run(group: Sequence[str]) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*PYTEST, *group], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
