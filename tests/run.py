"""`python -m tests.run`: the whole suite as groups of folders, each a process with servers of its own.

On Linux they are forks of a process that has imported the application, which takes each two seconds of CPU time.

Five run at once, because whole installations wait for one half of their time, and two cores should always have work.
Each that ends makes room for the next group, so the order is from the longest to the shortest. `--quick` runs the pure
and the Postgres tier without their slow tests.

A group's output is shown when all have begun, and it and those before it have ended. Fails if one of them does.
"""

import compileall
import multiprocessing
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from tests.support.stack import PREPARED

PACKAGES = ("agents", "approvals", "client", "config", "runtime", "tests")
AT_ONCE = 5
FAULTS = "tests/system/fault_injection"
ACCESS = "tests/browser/access"
POLICIES = "tests/approvals/policies"
EVERY_ROUTE = ("tests/web/test_authorisation.py", "tests/web/test_strict_requests.py")
PAGES = ("tests/web/requests", "tests/web/runs", "tests/web/actions", "tests/web/accounts")
GROUPS = (
    (FAULTS,),
    ("tests/browser", f"--ignore={ACCESS}"),
    ("tests/system", f"--ignore={FAULTS}"),
    ("tests/config", "tests/docs", "tests/interop"),
    ("tests/approvals", "tests/stored", "tests/agents"),
    (ACCESS,),
    EVERY_ROUTE,
    PAGES,
    ("tests/web", *(f"--ignore={path}" for path in (*EVERY_ROUTE, *PAGES))),
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
    ("tests/execution", "tests/store"),
    ("tests/control", "tests/upkeep", "tests/triggers"),
    ("tests/approvals", f"--ignore={POLICIES}"),
)


def main(arguments: Sequence[str]) -> int:
    """Run all groups. Returns the exit status of one that failed, 0 if none did."""
    for package in PACKAGES:  # once, or each process that a test starts does it again
        compileall.compile_dir(package, quiet=2)
    groups: Sequence[Sequence[str]] = (REST, *GROUPS)
    if "--quick" in arguments:
        groups = [(*group, "-m", "not slow") for group in QUICK]
        os.environ.setdefault("SIGNOFF_WALKS", "400")  # instead of 2,000
    code = 0
    with tempfile.TemporaryDirectory(prefix="signoff-tests-") as shared:
        Path(shared).chmod(0o755)  # other accounts pass through it
        os.environ[PREPARED] = shared
        outputs = [Path(shared, f"output-{number}") for number in range(len(groups))]
        for process, output in zip(_start_each(groups, outputs), outputs, strict=True):
            process.join()
            sys.stdout.buffer.write(output.read_bytes())
            sys.stdout.flush()
            code = code or process.exitcode or 0
    return code


def _start_each(groups: Sequence[Sequence[str]], outputs: Sequence[Path]) -> list[BaseProcess]:
    """Start a process for each group, and return when the last has begun."""
    make: Callable[..., BaseProcess] = multiprocessing.get_context("spawn").Process
    if sys.platform == "linux":
        make = multiprocessing.get_context("fork").Process
        _import_application()
    processes: list[BaseProcess] = [
        make(target=_test, args=group) for group in zip(groups, outputs, strict=True)
    ]
    for process in processes:
        while len(running := multiprocessing.active_children()) == AT_ONCE:
            connection.wait([child.sentinel for child in running])
        process.start()
    return processes


def _import_application() -> None:
    os.environ["DJANGO_SETTINGS_MODULE"] = "config.settings"
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # as pytest has it while it imports
        import_module("tests.support.preload")


def _test(group: Sequence[str], output: Path) -> None:
    with output.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    # Plugins that the application imports too are not rewritten.
    raise SystemExit(pytest.main([*group, "-W", "ignore::pytest.PytestAssertRewriteWarning"]))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
