"""One trial: a forked process in which one module is the mutant and some tests run; did they see it?

The parent has imported the slow libraries, and a trial drops the imported modules of the project. So a trial costs
little, and every import of the module in it gets the mutant. A trial that does not end in time counts as seen.
"""

import gc
import importlib.abc
import importlib.machinery
import importlib.util
import os
import resource
import select
import signal
import sys
import types
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path

import hypothesis
import hypothesis.internal.conjecture.engine
import hypothesis.strategies
import psycopg  # noqa: F401
import pydantic  # noqa: F401
import pytest
import pytest_django  # noqa: F401
import rfc8785  # noqa: F401

from config.env.environment import ROOT
from tests.mutants.operators import Mutant

OURS = ("agents", "approvals", "config", "runtime", "tests")
OFF = ("-q", "-x", "--no-header", "--tb=no", "-p", "no:cacheprovider", "-W", "ignore")
MAX_BYTES = 4 * 1024**3  # what grows without end is stopped before the machine is full


class Seen(StrEnum):
    """The result of the tests."""

    RED = "red"
    LATE = "late"  # they did not end in time
    GREEN = "green"  # no test failed


def trial(mutant: Mutant | None, tests: Sequence[str], *, within: float) -> Seen:
    """Run the tests on the mutant, or on the code as it is, for at most so many seconds of work."""

    def tested() -> bool:
        forget()
        if mutant is not None:
            sys.meta_path.insert(0, _Import(mutant))
        return pytest.main([*OFF, *tests]) == 0

    return forked(tested, within=within)


def forked(tested: Callable[[], bool], *, within: float) -> Seen:
    """Return the result of a child process, which may use so many seconds of processor time.

    It may take ten times as long in all, because the machine may be busy with other work.
    """
    sys.stdout.flush()
    gc.freeze()  # a child that looks through all of it would copy it
    child = os.fork()
    if child == 0:
        os.setsid()
        code = 1
        try:
            settle()
            _confine(within)
            code = 0 if tested() else 1
        finally:
            os._exit(code)
    watched = os.pidfd_open(child)
    try:
        if not select.select([watched], [], [], 10 * within)[0]:
            os.killpg(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    finally:
        os.close(watched)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL):
        return Seen.LATE
    return Seen.GREEN if status == 0 else Seen.RED


def settle() -> None:
    """Silence the process and change to the folder of the tests."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nowhere, number)
    os.chdir(ROOT)
    # The first example that fails is enough.
    hypothesis.settings.register_profile("trial", phases=["explicit", "generate"], database=None)
    hypothesis.settings.load_profile("trial")


def forget() -> None:
    """Drop the imported modules of the project."""
    for name in [name for name in sys.modules if name.partition(".")[0] in OURS]:
        del sys.modules[name]


def _confine(within: float) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (int(within), int(within) + 5))
    resource.setrlimit(resource.RLIMIT_AS, (MAX_BYTES, MAX_BYTES))


class _Import(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Gives the mutant to each importer of its module."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(
        self, fullname: str, path: object, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._mutant.module:
            return None
        return importlib.util.spec_from_loader(fullname, self, origin=str(file_of(fullname)))

    def exec_module(self, module: types.ModuleType) -> None:
        file = file_of(self._mutant.module)
        module.__file__ = str(file)
        exec(code_of(self._mutant), module.__dict__)  # noqa: S102


def code_of(mutant: Mutant) -> types.CodeType:
    """The mutant's whole module."""
    file = file_of(mutant.module)
    return compile(mutant.tree(file.read_text()), str(file), "exec", dont_inherit=True)


def file_of(module: str) -> Path:
    return ROOT / (module.replace(".", "/") + ".py")
